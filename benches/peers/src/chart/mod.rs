//! Charts as SVG: [`Lines`] over a number, and groups of [`Bars`].

mod axis;
mod draw;

/// How an axis counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// From nothing.
    Linear,
    /// By powers of ten.
    Log,
}

/// A line, or the bars of one colour.
#[derive(Clone, Debug)]
pub struct Series<T> {
    /// As the legend names it.
    pub name: String,
    /// Points of a line, or one bar a group; what is not finite is left out.
    pub values: Vec<T>,
}

/// Lines over a number.
#[derive(Clone, Debug)]
pub struct Lines {
    /// Above the chart.
    pub title: String,
    /// What is on the horizontal axis, and how.
    pub x: (&'static str, Scale),
    /// What is on the vertical axis, and how.
    pub y: (&'static str, Scale),
    /// Points (x, y).
    pub series: Vec<Series<(f64, f64)>>,
}

/// Groups of bars.
#[derive(Clone, Debug)]
pub struct Bars {
    /// Above the chart.
    pub title: String,
    /// What is on the vertical axis, and how.
    pub y: (&'static str, Scale),
    /// Below the groups.
    pub groups: Vec<String>,
    /// One value a group.
    pub series: Vec<Series<f64>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charts_hold_their_words_and_leave_out_what_is_no_number() {
        let folder = std::env::temp_dir().join(format!("shardlimit-charts-{}", std::process::id()));
        let series = |name: &str, values| Series { name: name.into(), values };
        let lines = Lines {
            title: "hot key".into(),
            x: ("callers", Scale::Log),
            y: ("decisions/s", Scale::Log),
            series: vec![Series {
                name: "exact".into(),
                values: vec![(1.0, 9_000.0), (1_000.0, 1e6), (1e4, f64::NAN)],
            }],
        };
        let bars = Bars {
            title: "algorithms".into(),
            y: ("decisions/s", Scale::Linear),
            groups: vec!["token bucket".into(), "sliding log".into()],
            series: vec![series("with batches", vec![9.0, f64::NAN]), series("without", vec![1.0, 2.0])],
        };
        lines.draw(&folder.join("lines.svg")).unwrap();
        bars.draw(&folder.join("bars.svg")).unwrap();
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
        for word in ["hot key", "callers", "decisions/s", "exact", "1,000,000"] {
            assert!(read("lines.svg").contains(word), "{word}");
        }
        for word in ["token bucket", "sliding log", "without", "8"] {
            assert!(read("bars.svg").contains(word), "{word}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }
}
