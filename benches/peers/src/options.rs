//! What a bench is told on its command line.

use std::path::PathBuf;
use std::time::Duration;

const HELP: &str = "\
--rounds N     interleaved rounds
--seconds S    length of one contestant's turn in a round
--quick        a short run that shows whether the bench works, not how fast anything is
--only TEXT    the sections whose name contains this
--no-peers     without other crates, where a bench has them in one table with ways to use Redis
--svg          draw charts into docs/charts
--charts DIR   draw charts into another folder";

/// What holds where the command line says nothing.
#[derive(Clone, Copy, Debug)]
pub struct Defaults {
    /// Interleaved rounds.
    pub rounds: usize,
    /// Length of one turn, in seconds.
    pub seconds: f64,
}

/// The settings of one run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Interleaved rounds.
    pub rounds: usize,
    /// Length of one contestant's turn in a round.
    pub turn: Duration,
    /// Whether this is only to see that the bench works.
    pub quick: bool,
    /// Whether other crates take part, where they can be left out.
    pub peers: bool,
    only: Option<String>,
    charts: Option<PathBuf>,
}

impl Options {
    /// Reads the command line; says what it may hold and ends the process where it can't.
    #[must_use]
    pub fn from_args(defaults: Defaults) -> Self {
        match Self::parse(defaults, std::env::args().skip(1)) {
            Ok(options) => options,
            Err(message) => {
                eprintln!("{message}\n\n{HELP}");
                std::process::exit(2);
            }
        }
    }

    fn parse(defaults: Defaults, args: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let (mut rounds, mut seconds, mut only, mut charts) = (None, None, None, None);
        let (mut quick, mut peers) = (false, true);
        let mut args = args.into_iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
            match arg.as_str() {
                "--bench" => {} // cargo's own
                "--rounds" => rounds = Some(value()?.parse().map_err(|error| format!("--rounds: {error}"))?),
                "--seconds" => seconds = Some(value()?.parse().map_err(|error| format!("--seconds: {error}"))?),
                "--quick" => quick = true,
                "--no-peers" => peers = false,
                "--only" => only = Some(value()?),
                "--svg" => charts = Some(PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/charts"))),
                "--charts" => charts = Some(value()?.into()),
                _ => return Err(format!("unknown argument: {arg}")),
            }
        }
        let seconds: f64 = seconds.unwrap_or(if quick { defaults.seconds.min(0.5) } else { defaults.seconds });
        let rounds = rounds.unwrap_or(if quick { defaults.rounds.min(2) } else { defaults.rounds });
        if rounds == 0 || !(0.05..=3_600.0).contains(&seconds) {
            return Err("at least one round, of at least 0.05 seconds".into());
        }
        Ok(Self { rounds, turn: Duration::from_secs_f64(seconds), quick, peers, only, charts })
    }

    /// Whether a section of this name is to be run.
    #[must_use]
    pub fn wants(&self, section: &str) -> bool {
        self.only.as_ref().is_none_or(|only| section.contains(only.as_str()))
    }

    /// Where the chart of this name is to be drawn, if any is.
    #[must_use]
    pub fn chart(&self, name: &str) -> Option<PathBuf> {
        Some(self.charts.as_ref()?.join(name).with_extension("svg"))
    }

    /// Rounds and their length, for the head of a report.
    #[must_use]
    pub fn describe(&self) -> String {
        let quick = if self.quick { "; a quick run: its figures say little" } else { "" };
        let seconds = self.turn.as_secs_f64();
        format!("{} interleaved rounds of {seconds} s a contestant: median (min–max){quick}", self.rounds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Options, String> {
        let args = text.split_whitespace().map(ToOwned::to_owned);
        Options::parse(Defaults { rounds: 5, seconds: 2.0 }, args)
    }

    #[test]
    fn what_is_said_counts_above_quick_and_that_above_the_defaults() {
        let options = parse("--bench --quick --rounds 3 --only lat --no-peers --charts out").unwrap();
        assert_eq!((options.rounds, options.turn), (3, Duration::from_millis(500)));
        assert!(options.wants("latency") && !options.wants("closed") && !options.peers);
        assert_eq!(options.chart("hot_key"), Some("out/hot_key.svg".into()));

        let options = parse("").unwrap();
        assert_eq!((options.rounds, options.turn, options.chart("x")), (5, Duration::from_secs(2), None));
        assert!(options.wants("closed") && options.peers);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["--rounds", "--rounds 0", "--seconds x", "--seconds nan", "--fast"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
