//! Numbers, for people and for JSON.

use std::time::Duration;

use crate::clock::{MICRO, MILLI, Nanos, SECOND};

/// `1,234,567`.
pub(crate) fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A time for people, in the unit that leaves one to three digits before the point.
pub(crate) fn human_time(time: Nanos) -> String {
    let (unit, name) = match time {
        0..MICRO => return format!("{time} ns"),
        MICRO..MILLI => (MICRO, "µs"),
        MILLI..SECOND => (MILLI, "ms"),
        SECOND.. => (SECOND, "s"),
    };
    let value = time as f64 / unit as f64;
    if value < 10.0 { format!("{value:.2} {name}") } else { format!("{value:.1} {name}") }
}

/// Milliseconds with at most three decimals, rounded up: a caller that waits so long does not come too early.
pub(crate) fn millis_up(time: Duration) -> f64 {
    time.as_nanos().div_ceil(MICRO.into()) as f64 / 1_000.0
}

/// Microseconds with at most three decimals.
pub(crate) fn micros(time: Nanos) -> f64 {
    time as f64 / MICRO as f64
}

/// Seconds with at most six decimals.
pub(crate) fn seconds(time: Nanos) -> f64 {
    (time / MICRO) as f64 / 1e6
}

/// `value` with at most so many decimals.
pub(crate) fn decimals(value: f64, places: i32) -> f64 {
    let unit = 10_f64.powi(places);
    (value * unit).round() / unit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_grouped() {
        let grouped: Vec<String> = [0, 999, 1_000, 123_456, 1_234_567].map(count).into();
        assert_eq!(grouped, ["0", "999", "1,000", "123,456", "1,234,567"]);
        assert_eq!(count(u64::MAX), "18,446,744,073,709,551,615");
    }

    #[test]
    fn a_wait_is_never_rounded_down() {
        assert_eq!(millis_up(Duration::ZERO).to_string(), "0");
        assert_eq!(millis_up(Duration::from_nanos(1)).to_string(), "0.001");
        assert_eq!(millis_up(Duration::from_micros(199_999)).to_string(), "199.999");
        assert_eq!(millis_up(Duration::from_nanos(1_000_001)).to_string(), "1.001");
        // The longest that a limit can say, to the microsecond.
        assert_eq!(millis_up(Duration::from_micros(366 * 86_400_000_000 - 1)).to_string(), "31622399999.999");
    }

    #[test]
    fn times_have_a_fitting_unit() {
        let texts: Vec<String> = [0, 999, 1_500, 12_345_678, SECOND, 5_250_000_000].map(human_time).into();
        assert_eq!(texts, ["0 ns", "999 ns", "1.50 µs", "12.3 ms", "1.00 s", "5.25 s"]);
    }
}
