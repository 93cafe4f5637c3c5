//! The values of options: read once, checked, and refused with the field and what is accepted.

use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

use shardlimit_check::Change;

use crate::bench::Demand;
use crate::clock::{MICRO, MILLI, Nanos, SECOND};
use crate::error::Failure;

/// More tasks than any gateway has, and still only some tens of megabytes.
const MOST_CALLERS: u64 = 100_000;
const MOST_PROCESSES: u64 = 256;
/// A cluster to try things on: more would only make one machine slower.
const MOST_MASTERS: u64 = 16;
const MOST_REPLICAS: u64 = 3;
const LONGEST_RUN: Nanos = 24 * HOUR;
/// Revisions from 2⁵¹ on are of limits that were set while in use.
const HIGHEST_REVISION: u64 = (1 << 51) - 1;
/// One a nanosecond: no generator comes near, and times stay whole numbers.
const HIGHEST_DEMAND: u64 = 1_000_000_000;

const MINUTE: Nanos = 60 * SECOND;
const HOUR: Nanos = 60 * MINUTE;
const DAY: Nanos = 24 * HOUR;
const LONGEST_COUNT: Nanos = 3_650 * DAY;
/// What scripts compute exactly.
const LARGEST: u64 = (1 << 53) - 1;
const UNITS: [(&str, Nanos); 6] =
    [("us", MICRO), ("ms", MILLI), ("s", SECOND), ("min", MINUTE), ("m", MINUTE), ("h", HOUR)];

/// A key as the shell gave it: any bytes. How long it may be is the library's to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key(pub Vec<u8>);

impl From<OsString> for Key {
    fn from(argument: OsString) -> Self {
        Self(argument.into_vec())
    }
}

/// `BEGIN-END=LIMIT`, in microseconds since 1970.
pub(crate) fn change(text: &str) -> Result<Change, Failure> {
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
    Ok(Change { begin, end, limit: limit.parse()? })
}

pub(crate) fn permits(text: &str) -> Result<u64, Failure> {
    whole("permits", text, 1..=u64::MAX)
}

pub(crate) fn callers(text: &str) -> Result<u64, Failure> {
    whole("callers", text, 1..=MOST_CALLERS)
}

pub(crate) fn processes(text: &str) -> Result<u64, Failure> {
    whole("processes", text, 1..=MOST_PROCESSES)
}

pub(crate) fn masters(text: &str) -> Result<u64, Failure> {
    whole("masters", text, 1..=MOST_MASTERS)
}

pub(crate) fn replicas(text: &str) -> Result<u64, Failure> {
    whole("replicas", text, 0..=MOST_REPLICAS)
}

pub(crate) fn hot(text: &str) -> Result<u64, Failure> {
    whole("hot", text, 1..=u64::MAX)
}

pub(crate) fn revision(text: &str) -> Result<u64, Failure> {
    whole("revision", text, 0..=HIGHEST_REVISION)
}

/// `5s`, `500ms`, `2min`.
pub(crate) fn duration(text: &str) -> Result<Nanos, Failure> {
    time("duration", text)
}

/// The same, of a call.
pub(crate) fn deadline(text: &str) -> Result<Duration, Failure> {
    time("deadline", text).map(Duration::from_nanos)
}

/// The same, of a counter.
pub(crate) fn ttl(text: &str) -> Result<Duration, Failure> {
    long_time("ttl", text)
}

/// The same, of what is counted lately.
pub(crate) fn window(text: &str) -> Result<Duration, Failure> {
    long_time("window", text)
}

fn time(field: &'static str, text: &str) -> Result<Nanos, Failure> {
    let accepted = "must be a whole number and a unit of ms, s, min or h, from 1ms to 24h, such as 5s";
    let wrong = || Failure::usage(field, format!("{accepted}, got {text:?}"));
    length(text).filter(|length| (MILLI..=LONGEST_RUN).contains(length)).ok_or_else(wrong)
}

fn long_time(field: &'static str, text: &str) -> Result<Duration, Failure> {
    let accepted = "must be a whole number and a unit of ms, s, min, h or d, from 1ms to 3650d, such as 1h";
    let wrong = || Failure::usage(field, format!("{accepted}, got {text:?}"));
    let days = text.strip_suffix('d').and_then(number).and_then(|days| days.checked_mul(DAY));
    let length = days.or_else(|| length(text)).filter(|length| (MILLI..=LONGEST_COUNT).contains(length));
    length.map(Duration::from_nanos).ok_or_else(wrong)
}

fn length(text: &str) -> Option<Nanos> {
    let unit = text.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(text.len());
    number(&text[..unit])?.checked_mul(unit_length(&text[unit..])?)
}

pub(crate) fn count_shards(text: &str) -> Result<u16, Failure> {
    whole("shards", text, 1..=128).map(|shards| shards as u16)
}

pub(crate) fn events(text: &str) -> Result<u64, Failure> {
    whole("events", text, 0..=LARGEST)
}

pub(crate) fn amount(text: &str) -> Result<i64, Failure> {
    signed("amount", text)
}

pub(crate) fn within(text: &str) -> Result<i64, Failure> {
    signed("within", text)
}

fn signed(field: &'static str, text: &str) -> Result<i64, Failure> {
    let (digits, sign) = text.strip_prefix('-').map_or((text, 1), |digits| (digits, -1));
    let wrong = || Failure::usage(field, format!("must be a whole number within ±{LARGEST}, got {text:?}"));
    number(digits).filter(|number| *number <= LARGEST).map(|number| sign * number as i64).ok_or_else(wrong)
}

/// `200000/s`, `30/min`.
pub(crate) fn demand(text: &str) -> Result<Demand, Failure> {
    let wrong = || {
        let accepted =
            "must be calls/period with a period of us, ms, s, min or h, up to 1000000000/s, such as 200000/s";
        Failure::usage("demand", format!("{accepted}, got {text:?}"))
    };
    let (calls, period) = text.split_once('/').ok_or_else(wrong)?;
    let (calls, period) = number(calls).zip(unit_length(period)).ok_or_else(wrong)?;
    let most = u128::from(HIGHEST_DEMAND) * u128::from(period) / u128::from(SECOND);
    if calls == 0 || u128::from(calls) > most {
        return Err(wrong());
    }
    Ok(Demand { calls, period })
}

fn whole(field: &str, text: &str, range: RangeInclusive<u64>) -> Result<u64, Failure> {
    let (least, most) = (range.start(), range.end());
    let wrong = || Failure::usage(field, format!("must be a whole number from {least} to {most}, got {text:?}"));
    number(text).filter(|value| range.contains(value)).ok_or_else(wrong)
}

/// Digits, which may be grouped by `_` as in the text of a limit.
fn number(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|b| b.is_ascii_digit() || b == b'_');
    if !digits || text.starts_with('_') || text.ends_with('_') {
        return None;
    }
    text.replace('_', "").parse().ok()
}

fn unit_length(text: &str) -> Option<Nanos> {
    UNITS.iter().find_map(|(name, length)| (*name == text).then_some(*length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit_and_a_range() {
        assert_eq!(duration("5s"), Ok(5 * SECOND));
        assert_eq!(duration("1_500ms"), Ok(1_500 * MILLI));
        assert_eq!(duration("2min"), duration("2m"));
        assert_eq!(duration("24h"), Ok(LONGEST_RUN));
        for text in ["", "5", "s", "-5s", "0s", "1.5s", "5 s", "5x", "25h", "99999999999999999999s", "18446744073709h"]
        {
            let failure = duration(text).expect_err(text);
            assert_eq!(failure.field, "duration");
            assert!(failure.message.contains("such as 5s"), "{}", failure.message);
        }
    }

    #[test]
    fn changes_have_two_moments_and_a_limit() {
        let limit = "4/s".parse().unwrap();
        assert_eq!(change("10-20=4/s"), Ok(Change { begin: 10, end: 20, limit }));
        for text in ["", "1=1/s", "5-4=1/s", "a-b=1/s", "1-2=nonsense"] {
            assert!(change(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_counted_has_a_length_and_a_size() {
        assert_eq!(ttl("30d"), Ok(Duration::from_secs(30 * 86_400)));
        assert_eq!(window("90s"), Ok(Duration::from_secs(90)));
        for text in ["", "d", "-1d", "0d", "3651d", "1.5h", "18446744073709551615d"] {
            let failure = ttl(text).expect_err(text);
            assert!(failure.field == "ttl" && failure.message.contains("such as 1h"), "{}", failure.message);
        }
        assert_eq!([amount("-5"), amount("9_007_199_254_740_991")], [Ok(-5), Ok((1 << 53) - 1)]);
        for text in ["", "-", "--5", "+5", "1.0", "9007199254740992", "-9007199254740992"] {
            assert_eq!(amount(text).expect_err(text).field, "amount");
        }
    }

    #[test]
    fn demands_are_calls_a_period() {
        assert_eq!(demand("200_000/s"), Ok(Demand { calls: 200_000, period: SECOND }));
        assert_eq!(demand("30/min"), Ok(Demand { calls: 30, period: MINUTE }));
        assert_eq!(demand("1000/us"), Ok(Demand { calls: 1_000, period: MICRO }));
        for text in ["", "5", "/s", "5/", "0/s", "-1/s", "1001/us", "1000000001/s", "5/10s", "1e6/s", "_5/s", "5_/s"] {
            let failure = demand(text).expect_err(text);
            assert_eq!(failure.field, "demand");
            assert!(failure.message.contains("such as 200000/s"), "{}", failure.message);
        }
    }

    #[test]
    fn numbers_name_their_range() {
        assert_eq!(permits("18446744073709551615"), Ok(u64::MAX));
        for text in ["0", "-1", "+1", "1.0", "", "18446744073709551616", "0x10", "١"] {
            let failure = permits(text).expect_err(text);
            assert!(failure.message.starts_with("permits: must be a whole number from 1 to"), "{}", failure.message);
        }
    }
}
