//! Tables that read well in a terminal and in Markdown.

use std::fmt;

/// A table. The first column and those without a name are text, the others are numbers.
#[derive(Clone, Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// With the names of its columns.
    #[must_use]
    pub fn new<T: Into<String>>(head: impl IntoIterator<Item = T>) -> Self {
        Self { rows: vec![head.into_iter().map(Into::into).collect()] }
    }

    /// Adds a row. What is missing at its end stays empty.
    pub fn row<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        let mut row: Vec<String> = cells.into_iter().map(Into::into).collect();
        row.resize(self.rows[0].len(), String::new());
        self.rows.push(row);
    }

    fn is_text(&self, column: usize) -> bool {
        column == 0 || self.rows[0][column].is_empty()
    }

    fn width(&self, column: usize) -> usize {
        self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths: Vec<usize> = (0..self.rows[0].len()).map(|column| self.width(column)).collect();
        for (index, row) in self.rows.iter().enumerate() {
            for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
                let edge = if column == 0 { "|" } else { "" };
                if self.is_text(column) {
                    write!(f, "{edge} {cell:<width$} |")?;
                } else {
                    write!(f, " {cell:>width$} |")?;
                }
            }
            writeln!(f)?;
            if index == 0 {
                for (column, width) in widths.iter().enumerate() {
                    let edge = if column == 0 { "|" } else { "" };
                    let end = if self.is_text(column) { "-" } else { ":" };
                    write!(f, "{edge}{}{end}|", "-".repeat(width + 1))?;
                }
                writeln!(f)?;
            }
        }
        Ok(())
    }
}

/// A whole number, in groups of three digits.
#[must_use]
pub fn count(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::from(if value <= -0.5 { "-" } else { "" });
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number with about three digits that say something.
#[must_use]
pub fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => count(value),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.1 || size == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// Microseconds, in the unit that suits them.
#[must_use]
pub fn micros(value: f64) -> String {
    if value >= 10_000.0 { format!("{:.1} ms", value / 1_000.0) } else { format!("{} µs", number(value)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_what_they_hold() {
        let mut table = Table::new(["who", "decisions/s"]);
        table.row(["one key", "66,000"]);
        table.row(["é"]);
        let text = "| who     | decisions/s |\n|---------|------------:|\n| one key |      66,000 |\n| é       |             |\n";
        assert_eq!(table.to_string(), text);
    }

    #[test]
    fn numbers_are_grouped() {
        let texts = [0.0, 999.4, 1_000.0, 1_234_567.0, -1_234.0].map(count);
        assert_eq!(texts, ["0", "999", "1,000", "1,234,567", "-1,234"]);
        assert_eq!([0.0125, 0.5, 12.34, 1_234.0].map(number), ["0.0125", "0.50", "12.3", "1,234"]);
        assert_eq!([85.04, 12_345.0].map(micros), ["85.0 µs", "12.3 ms"]);
    }
}
