//! What a run saw, and what of it is not as promised.

use std::fmt;

use crate::cluster::Cluster;
use crate::judge::Tally;

/// Figures in words, and wrongs.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    figures: Vec<String>,
    /// Of single rounds, a line each.
    rounds: Vec<String>,
    wrongs: Vec<String>,
}

impl Verdict {
    pub(crate) fn is_well(&self) -> bool {
        self.wrongs.is_empty()
    }

    pub(super) fn tell(&mut self, figure: impl Into<String>) {
        self.figures.push(figure.into());
    }

    pub(super) fn tell_round(&mut self, figures: String) {
        self.rounds.push(figures);
    }

    pub(super) fn must(&mut self, holds: bool, otherwise: impl Into<String>) {
        if !holds {
            self.wrongs.push(otherwise.into());
        }
    }

    /// Calls that hang and panics are wrong everywhere.
    pub(super) fn calls(&mut self, tally: &Tally, cluster: &Cluster) {
        let skipped = if tally.skipped > 0 { format!(" and {} not made", tally.skipped) } else { String::new() };
        self.tell(format!("{} calls{skipped}, errors {}", tally.calls, tally.kinds()));
        self.tell(format!("servers took up to {} ms for a command", cluster.longest_command()));
        self.wrongs.extend(tally.wrongs());
    }

    /// Where it is promised that nobody notices.
    pub(super) fn no_errors(&mut self, tally: &Tally) {
        let whys: Vec<String> = tally.whys.iter().map(|why| format!("\n    {why}")).collect();
        self.must(tally.errors() == 0, format!("{} callers got an error, such as{}", tally.errors(), whys.concat()));
    }

    /// Of permits above the formula in the worst interval.
    pub(super) fn bound(&mut self, above: f64, stated: f64) {
        self.tell(format!("{above:+.0} ({stated:.0}) above the formula"));
        self.within(above, stated);
    }

    /// The same without telling.
    pub(super) fn within(&mut self, above: f64, stated: f64) {
        // By half a permit nothing can be admitted. A run that admitted nobody shows nothing.
        let holds = above < stated + 1.0;
        self.must(holds, format!("{above:.0} permits above the formula, {stated:.0} are stated"));
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { figures, rounds, wrongs } = self;
        write!(f, "{:6} {}", if wrongs.is_empty() { "ok" } else { "NOT OK" }, figures.join("; "))?;
        for round in rounds {
            write!(f, "\n  {round}")?;
        }
        if !wrongs.is_empty() {
            write!(f, "\n  wrong: {}", wrongs.join("; "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_hold_is_wrong() {
        let mut verdict = Verdict::default();
        verdict.bound(0.4, 0.0);
        verdict.bound(-3.0, 0.0);
        verdict.must(true, "never said");
        assert!(verdict.is_well(), "{verdict}");
        verdict.bound(1.0, 0.0);
        verdict.bound(f64::NAN, 0.0);
        assert_eq!(verdict.wrongs.len(), 2, "{verdict}");
        assert!(verdict.to_string().starts_with("NOT OK"), "{verdict}");
    }
}
