//! A limit that changes: which one was in force when, and what that allows in any interval.
//!
//! A change takes a moment, from the first step to the last. A lower limit counts from its end, a higher one from its
//! beginning: in between either may be in force.

use std::str::FromStr;

use shardlimit::{Algorithm, Limit};
use shardlimit_check::{Admission, Worst};

use crate::error::Failure;

/// `BEGIN-END=LIMIT`, in microseconds since 1970.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Change {
    pub begin: u64,
    pub end: u64,
    pub limit: Limit,
}

impl FromStr for Change {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self, Failure> {
        let wrong = || {
            let form = "must be BEGIN-END=LIMIT with microseconds since 1970";
            Failure::usage("change", format!("{form}, got {text:?}"))
        };
        let (moments, limit) = text.split_once('=').ok_or_else(wrong)?;
        let (begin, end) = moments.split_once('-').ok_or_else(wrong)?;
        let (begin, end) = (begin.parse().map_err(|_| wrong())?, end.parse().map_err(|_| wrong())?);
        if begin > end {
            return Err(wrong());
        }
        Ok(Self { begin, end, limit: limit.parse()? })
    }
}

/// A stretch of time with one limit.
struct Piece {
    from: u64,
    /// Permits a microsecond.
    rate: f64,
    burst: f64,
    /// What came back until it began, since the first one did.
    before: f64,
}

pub(super) struct History(Vec<Piece>);

impl History {
    /// Of bucket limits only: what windows allow across a change is not a matter of rates.
    pub(super) fn new(first: &Limit, changes: &[Change]) -> Result<Self, Failure> {
        let rate = |limit: &Limit| limit.permits() as f64 / limit.period().as_micros() as f64;
        let mut pieces = vec![Piece { from: 0, rate: rate(first), burst: first.burst() as f64, before: 0.0 }];
        for limit in [first].into_iter().chain(changes.iter().map(|change| &change.limit)) {
            if !matches!(limit.algorithm(), Algorithm::TokenBucket | Algorithm::LeakyBucket) {
                return Err(Failure::usage("change", format!("only buckets can be judged across one, not {limit}")));
            }
        }
        for change in changes {
            let last = pieces.last().expect("the first limit");
            let (rate, burst) = (rate(&change.limit), change.limit.burst() as f64);
            let from = if rate < last.rate { change.end } else { change.begin };
            if from < last.from {
                return Err(Failure::usage("change", "must stand in the order of their moments"));
            }
            let before = last.before + last.rate * (from - last.from) as f64;
            pieces.push(Piece { from, rate, burst, before });
        }
        Ok(Self(pieces))
    }

    fn at(&self, moment: u64) -> &Piece {
        let index = self.0.partition_point(|piece| piece.from <= moment);
        &self.0[index.saturating_sub(1)]
    }

    /// The interval that is the furthest above the burst at its beginning and all that came back in it.
    pub(super) fn worst(&self, admissions: &[Admission]) -> Option<Worst> {
        let first = admissions.first()?.at;
        let base = self.refilled(first);
        let (mut sum, mut lowest, mut worst) = (0.0, None::<(f64, u64)>, None::<Worst>);
        for admission in admissions {
            let refilled = self.refilled(admission.at) - base;
            let start = sum - refilled + self.at(admission.at).burst;
            if lowest.is_none_or(|(lowest, _)| start < lowest) {
                lowest = Some((start, admission.at));
            }
            sum += admission.permits as f64;
            let (start, from) = lowest?;
            let permits = sum - refilled - start;
            if worst.is_none_or(|worst| permits > worst.permits) {
                worst = Some(Worst { permits, micros: admission.at - from });
            }
        }
        worst
    }

    fn refilled(&self, moment: u64) -> f64 {
        let piece = self.at(moment);
        piece.before + piece.rate * (moment - piece.from) as f64
    }
}

/// A stretch of time has the new rate if it is off by this part of it at the most.
const OFF: f64 = 0.15;
/// The length of a stretch, in microseconds.
const STRETCH: u64 = 50_000;
/// So many of them in a row have to have it. Later ones may be off again: a busy machine has stalls of its own.
const IN_A_ROW: usize = 4;

/// How long after a change began its new rate was reached, in microseconds; none if it was not until `until`. It says
/// something only if there was demand for it all the time.
pub(super) fn reached(admissions: &[Admission], change: &Change, until: u64) -> Option<u64> {
    let expected = change.limit.permits() as f64 * STRETCH as f64 / change.limit.period().as_micros() as f64;
    let count = (until.saturating_sub(change.begin) / STRETCH) as usize;
    let mut stretches = vec![0_u64; count];
    for admission in admissions.iter().filter(|admission| admission.at >= change.begin && admission.at < until) {
        if let Some(stretch) = stretches.get_mut(((admission.at - change.begin) / STRETCH) as usize) {
            *stretch += admission.permits;
        }
    }
    let has_it = |admitted: &u64| (*admitted as f64 - expected).abs() <= OFF * expected;
    let first = stretches.windows(IN_A_ROW).position(|row| row.iter().all(has_it))?;
    Some(first as u64 * STRETCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admissions(of: &[(u64, u64)]) -> Vec<Admission> {
        of.iter().map(|(at, permits)| Admission { at: *at, permits: *permits }).collect()
    }

    fn worst(first: &str, changes: &[&str], of: &[(u64, u64)]) -> i64 {
        let changes: Vec<Change> = changes.iter().map(|change| change.parse().unwrap()).collect();
        let history = History::new(&first.parse().unwrap(), &changes).unwrap();
        (history.worst(&admissions(of)).unwrap().permits * 1_000.0).round() as i64
    }

    #[test]
    fn each_piece_allows_what_its_limit_does() {
        let (high, low) = ("token-bucket 10/s burst 5", "100000-200000=token-bucket 1/s burst 2");
        assert_eq!(worst(high, &[], &[(0, 5), (50_000, 1)]), 500);
        // Until the change has ended the old rate counts, and the old burst for intervals that began before.
        assert_eq!(worst(high, &[low], &[(0, 5), (200_000, 2)]), 0);
        assert_eq!(worst(high, &[low], &[(0, 5), (200_000, 2), (1_200_000, 1)]), 0);
        assert_eq!(worst(high, &[low], &[(0, 5), (200_000, 2), (1_200_000, 2)]), 1_000);
        assert_eq!(worst(high, &[low], &[(300_000, 3)]), 1_000, "the new burst");
        // A higher one counts from the beginning.
        let up = "100000-200000=token-bucket 20/s burst 9";
        assert_eq!(worst(high, &[up], &[(0, 5), (100_000, 1), (200_000, 2)]), 0);
        assert_eq!(worst(high, &[up], &[(100_000, 10)]), 1_000);
    }

    #[test]
    fn a_rate_is_reached_when_it_stays() {
        let change: Change = "0-0=token-bucket 100/s burst 5".parse().unwrap();
        let reached = |first: &[u64]| {
            let steady = (first.len() as u64..20).map(|_| 5);
            let of: Vec<_> = (0..).map(|stretch| stretch * STRETCH).zip(first.iter().copied().chain(steady)).collect();
            reached(&admissions(&of), &change, 1_000_000)
        };
        assert_eq!(reached(&[]), Some(0));
        assert_eq!(reached(&[50, 20]), Some(2 * STRETCH));
        assert_eq!(reached(&[50, 5, 5, 9]), Some(4 * STRETCH), "two are no row");
        assert_eq!(reached(&[50; 18]), None);
    }

    #[test]
    fn changes_are_refused_where_they_make_no_sense() {
        for text in ["", "1=1/s", "5-4=1/s", "a-b=1/s", "1-2=nonsense"] {
            assert!(text.parse::<Change>().is_err(), "{text}");
        }
        let window: Change = "1-2=fixed-window 5/s".parse().unwrap();
        assert!(History::new(&"5/s".parse().unwrap(), &[window]).is_err());
        let back: Vec<Change> = ["10-20=4/s", "1-2=3/s"].iter().map(|text| text.parse().unwrap()).collect();
        assert!(History::new(&"5/s".parse().unwrap(), &back).is_err());
    }
}
