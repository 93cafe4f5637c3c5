//! What became of each call, in a file: a line for each, which the process that called writes and the suite reads.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::Path;

use shardlimit::{DecidedBy, Decision, Error, ErrorKind};

use crate::clock::{Nanos, now, real_time};
use crate::silence::Silence;

/// One call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub begin: Nanos,
    /// None of a call that never ended.
    pub end: Option<Nanos>,
    pub outcome: Outcome,
    /// Of an allowed call: the slot of the shard that was charged, if one was.
    pub slot: Option<u16>,
    /// Of an allowed call: when it was charged, in microseconds since 1970 by the clock of who decided.
    pub at: u64,
    /// Whether the failure policy decided it.
    pub by_policy: bool,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    Hung,
    Allowed,
    Denied,
    NotSent,
    Unknown,
    Refused,
    Other,
}

/// A bare timer: when it was due, and how much later it fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tick {
    pub due: Nanos,
    pub late: Nanos,
}

/// All that one process saw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    pub calls: Vec<Call>,
    pub ticks: Vec<Tick>,
    pub silences: Vec<Silence>,
    /// What the first errors said.
    pub whys: Vec<String>,
    /// Calls that were due and not made, because too many were out.
    pub skipped: u64,
    pub panics: u64,
}

/// Two errors that differ in nothing else say the same.
pub(crate) fn without_numbers(why: &str) -> String {
    why.chars().filter(|letter| !letter.is_ascii_digit()).collect()
}

impl Call {
    /// A call that begins now.
    pub(crate) fn begin() -> Self {
        Self { begin: now(), end: None, outcome: Outcome::Hung, slot: None, at: 0, by_policy: false }
    }

    /// It ends now, and so.
    pub(crate) fn end(mut self, result: &Result<Decision, Error>) -> Self {
        self.end = Some(now());
        self.outcome = Outcome::of(result);
        self.by_policy = result.as_ref().is_ok_and(|decision| decision.decided_by() == DecidedBy::Fallback);
        if let Ok(Decision::Allowed(allowed)) = result {
            let shard = allowed.receipt().shards().next();
            self.slot = shard.map(|(slot, ..)| slot.number());
            // Who decided without a shard went by the clock of this machine.
            self.at = shard.map_or_else(real_time, |(_, _, at)| at);
        }
        self
    }

    /// Whether no shard stands behind the answer.
    pub(crate) fn is_troubled(&self) -> bool {
        self.by_policy || self.outcome.is_error()
    }
}

impl Outcome {
    const NAMES: [(Self, &str); 7] = [
        (Self::Hung, "hung"),
        (Self::Allowed, "allowed"),
        (Self::Denied, "denied"),
        (Self::NotSent, "not-sent"),
        (Self::Unknown, "unknown"),
        (Self::Refused, "refused"),
        (Self::Other, "other"),
    ];

    pub(crate) fn of(result: &Result<Decision, Error>) -> Self {
        match result {
            Ok(Decision::Allowed(_)) => Self::Allowed,
            Ok(Decision::Denied(_)) => Self::Denied,
            Err(error) => match error.kind() {
                ErrorKind::NotSent => Self::NotSent,
                ErrorKind::Unknown => Self::Unknown,
                ErrorKind::Refused => Self::Refused,
                _ => Self::Other,
            },
        }
    }

    pub(crate) fn is_error(self) -> bool {
        !matches!(self, Self::Allowed | Self::Denied)
    }

    pub(crate) fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(outcome, _)| *outcome == self).map_or("other", |(_, name)| name)
    }

    fn parse(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(_, known)| *known == name).map(|(outcome, _)| *outcome)
    }
}

impl Record {
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        let mut file = BufWriter::new(File::create(path)?);
        for Call { begin, end, outcome, slot, at, by_policy } in &self.calls {
            let (end, slot) = (end.unwrap_or(0), slot.map_or(-1, i32::from));
            writeln!(file, "call {begin} {end} {} {slot} {at} {}", outcome.name(), u8::from(*by_policy))?;
        }
        for Tick { due, late } in &self.ticks {
            writeln!(file, "tick {due} {late}")?;
        }
        for Silence { slot, from, to } in &self.silences {
            writeln!(file, "silence {slot} {from} {to}")?;
        }
        for why in &self.whys {
            writeln!(file, "why {}", why.replace('\n', " "))?;
        }
        writeln!(file, "over {} {}", self.skipped, self.panics)?;
        file.flush()
    }

    /// What a process wrote. A file without its last line is one of a process that did not live to write it.
    pub(crate) fn read(path: &Path) -> io::Result<Self> {
        let mut record = Self::default();
        let wrong = |line: &str| io::Error::other(format!("{}: no record: {line:?}", path.display()));
        let mut over = false;
        for line in BufReader::new(File::open(path)?).lines() {
            let line = line?;
            over = record.add(&line).ok_or_else(|| wrong(&line))?;
        }
        if over { Ok(record) } else { Err(wrong("it has no end")) }
    }

    /// Says whether the line was the last one.
    fn add(&mut self, line: &str) -> Option<bool> {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["call", begin, end, outcome, slot, at, by_policy] => self.calls.push(Call {
                begin: begin.parse().ok()?,
                end: Some(end.parse().ok()?).filter(|end| *end > 0),
                outcome: Outcome::parse(outcome)?,
                slot: u16::try_from(slot.parse::<i32>().ok()?).ok(),
                at: at.parse().ok()?,
                by_policy: by_policy == "1",
            }),
            ["tick", due, late] => self.ticks.push(Tick { due: due.parse().ok()?, late: late.parse().ok()? }),
            ["silence", slot, from, to] => {
                let (slot, from, to) = (slot.parse().ok()?, from.parse().ok()?, to.parse().ok()?);
                self.silences.push(Silence { slot, from, to });
            }
            ["why", ..] => self.whys.push(line[4..].to_owned()),
            ["over", skipped, panics] => {
                self.skipped += skipped.parse::<u64>().ok()?;
                self.panics += panics.parse::<u64>().ok()?;
                return Some(true);
            }
            _ => return None,
        }
        Some(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let path = std::env::temp_dir().join(format!("shardlimit-faults-record-{}", std::process::id()));
        let allowed =
            Call { begin: 5, end: Some(9), outcome: Outcome::Allowed, slot: Some(0), at: 17, by_policy: true };
        let hung = Call { begin: 6, end: None, outcome: Outcome::Hung, slot: None, at: 0, by_policy: false };
        let (ticks, silences) = (vec![Tick { due: 3, late: 1 }], vec![Silence { slot: 7, from: 1, to: 2 }]);
        let whys = vec!["it was late".into()];
        let record = Record { calls: vec![allowed, hung], ticks, silences, whys, skipped: 2, panics: 1 };
        record.write(&path).unwrap();
        assert_eq!(Record::read(&path).unwrap(), record);
        std::fs::write(&path, "tick 1 2\n").unwrap();
        assert!(Record::read(&path).is_err(), "cut short");
        std::fs::remove_file(&path).unwrap();
    }
}
