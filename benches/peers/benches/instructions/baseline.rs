//! The counts that are committed.

use std::fmt::Write as _;
use std::path::PathBuf;

/// Names with their instructions a call, from `benches/instructions.txt`.
pub(crate) struct Baseline(Vec<(String, f64)>);

fn path() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", "instructions.txt"].iter().collect()
}

impl Baseline {
    /// Nothing where there is no file yet.
    pub(crate) fn load() -> Self {
        let text = std::fs::read_to_string(path()).unwrap_or_default();
        let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
        let parse = |line: &str| {
            let (name, count) = line.rsplit_once(':').expect("name: count");
            (name.to_owned(), count.trim().parse().expect("a count"))
        };
        Self(lines.map(parse).collect())
    }

    pub(crate) fn of(&self, name: &str) -> Option<f64> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, count)| *count)
    }

    /// Writes the new counts; a case that was not counted this time keeps its old one.
    pub(crate) fn save(&self, rustc: &str, counted: &[(&str, Option<f64>)]) {
        let mut text = format!(
            "# Instructions a call, written by: cargo bench -p shardlimit-peers --bench instructions -- --save\n# {rustc}\n"
        );
        let kept = self.0.iter().filter(|(known, _)| counted.iter().all(|(name, _)| name != known));
        for (name, count) in kept {
            let _ = writeln!(text, "{name}: {count:.1}");
        }
        for (name, count) in counted {
            if let Some(count) = count.or_else(|| self.of(name)) {
                let _ = writeln!(text, "{name}: {count:.1}");
            }
        }
        std::fs::write(path(), text).expect("the baseline can be written");
        println!("\nsaved in {}", path().display());
    }
}
