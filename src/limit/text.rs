//! The text form of a limit: `[algorithm] permits/period [burst N | capacity N | precision N]`, several of them with `+`
//! in between.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::definition::{Algorithm, DEFAULT_PRECISION, Limit, invalid};
use crate::clock::Micros;
use crate::error::Error;

/// Unit names, longest first within one length; the first name of a length is the one we print.
const UNITS: [(Micros, &[&str]); 7] = [
    (7 * 86_400_000_000, &["week", "weeks", "w"]),
    (86_400_000_000, &["day", "days", "d"]),
    (3_600_000_000, &["h", "hour", "hours"]),
    (60_000_000, &["min", "minute", "minutes", "m"]),
    (1_000_000, &["s", "sec", "second", "seconds"]),
    (1_000, &["ms", "millisecond", "milliseconds"]),
    (1, &["us", "µs", "μs", "microsecond", "microseconds"]),
];
const SHAPE: &str = "[algorithm] permits/period [burst N], such as \"token-bucket 500000/s burst 50000\"";

/// Reads the text form. Digits may be grouped by `_`; the algorithm is `token-bucket` when left out; a burst or
/// capacity left out is one period's permits.
///
/// ```
/// use shardlimit::Limit;
///
/// for text in [
///     "token-bucket 500000/s burst 50000",
///     "leaky-bucket 100/s capacity 500",
///     "pacing-queue 20/s capacity 40",
///     "fixed-window 10000/day",
///     "sliding-window 3/10s",
///     "sliding-log 5/min",
///     "token-bucket 100/s burst 20 + fixed-window 10000/day",
/// ] {
///     assert_eq!(text.parse::<Limit>()?.to_string(), text);
/// }
/// assert_eq!("500_000/s".parse::<Limit>()?.to_string(), "token-bucket 500000/s burst 500000");
/// # Ok::<(), shardlimit::Error>(())
/// ```
impl FromStr for Limit {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let mut parts = words.split(|word| *word == "+").map(Self::of_words);
        let Some(first) = parts.next() else { unreachable!("a split has at least one piece") };
        parts.try_fold(first?, |limit, part| limit.and(part?))
    }
}

impl Limit {
    /// Reads what stands between two of them.
    fn of_words(words: &[&str]) -> Result<Self, Error> {
        let mut words = words.iter().copied();
        let first = words.next().ok_or_else(|| invalid("limit", format!("is empty; write {SHAPE}")))?;
        let (algorithm, rate) = if first.contains('/') {
            (Algorithm::TokenBucket, first)
        } else {
            let rate =
                words.next().ok_or_else(|| invalid("rate", format!("is missing after {first:?}; write {SHAPE}")))?;
            (algorithm(first)?, rate)
        };
        let (permits, period) = rate
            .split_once('/')
            .ok_or_else(|| invalid("rate", format!("must be permits/period such as 100/s, got {rate:?}")))?;
        let (permits, period) = (number("rate", permits)?, duration(period)?);

        let (mut burst, mut precision) = (None, None);
        while let Some(word) = words.next() {
            let (field, setting) = match word {
                "precision" if algorithm == Algorithm::SlidingWindow => ("precision", &mut precision),
                _ => match algorithm.burst_word() {
                    Some(known) if known == word => (known, &mut burst),
                    _ => return Err(unknown_setting(algorithm, word)),
                },
            };
            let value = words
                .next()
                .ok_or_else(|| invalid(field, format!("a number must follow \"{field}\", the text ends there")))?;
            if setting.replace(number(field, value)?).is_some() {
                return Err(invalid(field, format!("\"{field}\" is given twice")));
            }
        }

        let limit = match algorithm {
            Algorithm::SlidingWindow => Self::sliding_window(permits, period)?,
            _ => Self::build(algorithm, permits, period, burst.unwrap_or(permits), 0)?,
        };
        match precision {
            Some(parts) => limit.with_precision(u32::try_from(parts).unwrap_or(u32::MAX)),
            None => Ok(limit),
        }
    }
}

/// Writes the text form that [`FromStr`] reads back to the same limit.
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let algorithm = self.algorithm();
        if algorithm == Algorithm::Composite {
            return self.parts().enumerate().try_for_each(|(index, part)| {
                f.write_str(if index > 0 { " + " } else { "" })?;
                part.fmt(f)
            });
        }
        write!(f, "{} {}/{}", algorithm.name(), self.permits(), Period(self.period()))?;
        if let Some(word) = algorithm.burst_word() {
            write!(f, " {word} {}", self.burst())?;
        }
        match self.precision() {
            Some(parts) if Self::sliding_window(self.permits(), self.period()).as_ref() != Ok(self) => {
                debug_assert!(parts != DEFAULT_PRECISION);
                write!(f, " precision {parts}")
            }
            _ => Ok(()),
        }
    }
}

struct Period(Duration);

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0.as_micros() as Micros;
        // The last unit is 1 µs, which divides everything.
        for (unit, names) in UNITS {
            if micros.is_multiple_of(unit) {
                if micros != unit {
                    write!(f, "{}", micros / unit)?;
                }
                return f.write_str(names[0]);
            }
        }
        Ok(())
    }
}

fn algorithm(word: &str) -> Result<Algorithm, Error> {
    if let Some(found) = Algorithm::ALL.into_iter().find(|known| known.name() == word) {
        return Ok(found);
    }
    let known = Algorithm::ALL.map(Algorithm::name).join(", ");
    let hint = match word {
        "gcra" => "; gcra decides just as token-bucket does, write that",
        _ if word.starts_with(|c: char| c.is_ascii_digit() || c == '-') => {
            "; a rate is written permits/period, such as 100/s"
        }
        _ => "",
    };
    Err(invalid("algorithm", format!("{word:?} is not known{hint}; known are {known}")))
}

fn unknown_setting(algorithm: Algorithm, word: &str) -> Error {
    let accepts = match (algorithm, algorithm.burst_word()) {
        (Algorithm::SlidingWindow, _) => "\"precision\"",
        (_, Some("burst")) => "\"burst\"",
        (_, Some(_)) => "\"capacity\"",
        (_, None) => "no setting",
    };
    invalid("limit", format!("{} accepts {accepts} after its rate, got {word:?}", algorithm.name()))
}

fn number(field: &'static str, text: &str) -> Result<u64, Error> {
    let wrong = || invalid(field, format!("must be a whole number above 0, got {text:?}"));
    if !text.starts_with(|c: char| c.is_ascii_digit()) || text.ends_with('_') {
        return Err(wrong());
    }
    if !text.bytes().all(|b| b.is_ascii_digit() || b == b'_') {
        return Err(wrong());
    }
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    // All digits, so the only way to fail is to be too large; the range check says what is accepted.
    Ok(digits.parse().unwrap_or(u64::MAX))
}

pub(crate) fn duration(text: &str) -> Result<Duration, Error> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(text.len());
    let (count, unit) = text.split_at(digits);
    let count = if count.is_empty() { 1 } else { number("period", count)? };
    let micros = UNITS.iter().find_map(|(micros, names)| names.contains(&unit).then_some(*micros));
    let Some(micros) = micros else {
        return Err(invalid(
            "period",
            format!("must be a number and a unit of us, ms, s, min, h, day or week (10s, day), got {text:?}"),
        ));
    };
    Ok(Duration::from_micros(count.saturating_mul(micros)))
}
