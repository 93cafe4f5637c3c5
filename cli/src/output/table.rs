//! Aligned text.

use super::style::Style;

/// On which side a column's cells meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// One fact a line: its name, then its value.
pub(crate) fn facts(style: Style, facts: &[(&str, String)]) -> String {
    let width = facts.iter().map(|(name, _)| width(name)).max().unwrap_or(0);
    let line = |(name, value): &(&str, String)| style.dim(&pad(name, width, Align::Left)) + "  " + value + "\n";
    facts.iter().map(line).collect()
}

/// Rows of cells under their headings. The cells must be plain: colours would count as width.
pub(crate) fn grid<const N: usize>(style: Style, columns: [(&str, Align); N], rows: &[[String; N]]) -> String {
    let widths: [usize; N] = std::array::from_fn(|column| {
        let cells = rows.iter().map(|row| width(&row[column]));
        cells.chain([width(columns[column].0)]).max().unwrap_or(0)
    });
    let line = |cells: [&str; N]| {
        let padded: Vec<String> = (0..N).map(|column| pad(cells[column], widths[column], columns[column].1)).collect();
        padded.join("  ").trim_end().to_owned()
    };
    let mut text = style.dim(&line(columns.map(|(heading, _)| heading))) + "\n";
    for row in rows {
        text += &line(std::array::from_fn(|column| row[column].as_str()));
        text.push('\n');
    }
    text
}

fn width(text: &str) -> usize {
    text.chars().count()
}

fn pad(text: &str, to: usize, align: Align) -> String {
    match align {
        Align::Left => format!("{text:<to$}"),
        Align::Right => format!("{text:>to$}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_meet() {
        let rows = [["0".into(), "10.0.0.1".into(), "1,000".into()], ["12".into(), "-".into(), "7".into()]];
        let columns = [("shard", Align::Right), ("master", Align::Left), ("calls", Align::Right)];
        let expected = "shard  master    calls\n    0  10.0.0.1  1,000\n   12  -             7\n";
        assert_eq!(grid(Style::plain(), columns, &rows), expected);
    }

    #[test]
    fn facts_line_up() {
        let text = facts(Style::plain(), &[("key", "a".into()), ("remaining", "3 µs".into())]);
        assert_eq!(text, "key        a\nremaining  3 µs\n");
    }
}
