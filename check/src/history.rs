//! A limit that changes: which one was in force when, and what that allows in any interval.
//!
//! A change takes a moment, from the first step to the last. A lower limit counts from its end, a higher one from its
//! beginning: in between either may be in force.

use shardlimit::{Algorithm, Limit};

use crate::{Admission, Worst};

/// Another limit, from a moment on.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// When its first step was taken, in microseconds since 1970.
    pub begin: u64,
    /// When it was in force, in the same.
    pub end: u64,
    /// What was in force then.
    pub limit: Limit,
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

/// The limits that were in force, one after the other.
pub struct History(Vec<Piece>);

impl History {
    /// Of bucket limits only: what windows allow across a change is not a matter of rates.
    ///
    /// # Errors
    /// In words, for other limits, and for changes that do not stand in the order of their moments.
    pub fn new(first: &Limit, changes: &[Change]) -> Result<Self, String> {
        let rate = |limit: &Limit| limit.permits() as f64 / limit.period().as_micros() as f64;
        let mut pieces = vec![Piece { from: 0, rate: rate(first), burst: first.burst() as f64, before: 0.0 }];
        for limit in [first].into_iter().chain(changes.iter().map(|change| &change.limit)) {
            if !matches!(limit.algorithm(), Algorithm::TokenBucket | Algorithm::LeakyBucket) {
                return Err(format!("only buckets can be judged across one, not {limit}"));
            }
        }
        for change in changes {
            let last = &pieces[pieces.len() - 1];
            let (rate, burst) = (rate(&change.limit), change.limit.burst() as f64);
            let from = if rate < last.rate { change.end } else { change.begin };
            if from < last.from {
                return Err("must stand in the order of their moments".into());
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

    /// The interval that is the furthest above the burst at its beginning and all that came back in it, of admissions in the order of
    /// their moments.
    #[must_use]
    pub fn worst(&self, admissions: &[Admission]) -> Option<Worst> {
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
#[must_use]
pub fn reached(admissions: &[Admission], change: &Change, until: u64) -> Option<u64> {
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

    fn change(begin: u64, end: u64, limit: &str) -> Change {
        Change { begin, end, limit: limit.parse().unwrap() }
    }

    fn worst(first: &str, changes: &[Change], of: &[(u64, u64)]) -> i64 {
        let history = History::new(&first.parse().unwrap(), changes).unwrap();
        (history.worst(&admissions(of)).unwrap().permits * 1_000.0).round() as i64
    }

    #[test]
    fn each_piece_allows_what_its_limit_does() {
        let (high, low) = ("token-bucket 10/s burst 5", [change(100_000, 200_000, "token-bucket 1/s burst 2")]);
        assert_eq!(worst(high, &[], &[(0, 5), (50_000, 1)]), 500);
        // Until the change has ended the old rate counts, and the old burst for intervals that began before.
        assert_eq!(worst(high, &low, &[(0, 5), (200_000, 2)]), 0);
        assert_eq!(worst(high, &low, &[(0, 5), (200_000, 2), (1_200_000, 1)]), 0);
        assert_eq!(worst(high, &low, &[(0, 5), (200_000, 2), (1_200_000, 2)]), 1_000);
        assert_eq!(worst(high, &low, &[(300_000, 3)]), 1_000, "the new burst");
        // A higher one counts from the beginning.
        let up = [change(100_000, 200_000, "token-bucket 20/s burst 9")];
        assert_eq!(worst(high, &up, &[(0, 5), (100_000, 1), (200_000, 2)]), 0);
        assert_eq!(worst(high, &up, &[(100_000, 10)]), 1_000);
    }

    #[test]
    fn a_rate_is_reached_when_it_stays() {
        let change = change(0, 0, "token-bucket 100/s burst 5");
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
        let window = change(1, 2, "fixed-window 5/s");
        assert!(History::new(&"5/s".parse().unwrap(), &[window]).is_err());
        let back = [change(10, 20, "4/s"), change(1, 2, "3/s")];
        assert!(History::new(&"5/s".parse().unwrap(), &back).is_err());
    }
}
