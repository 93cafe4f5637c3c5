//! The text form of limits, and what is refused.

use std::time::Duration;

use proptest::prelude::*;
use shardlimit::{Algorithm, ErrorKind, Limit};

/// What is malformed or out of range is refused with the field that is wrong and what is accepted.
#[test]
fn bad_limits_name_their_field() {
    let cases = [
        ("", "limit", "is empty"),
        ("   ", "limit", "is empty"),
        ("token-bucket", "rate", "is missing"),
        ("token-bucket 5", "rate", "permits/period"),
        ("token-bucket 0/s", "rate", "from 1 to"),
        ("token-bucket -5/s", "rate", "whole number above 0"),
        ("token-bucket +5/s", "rate", "whole number above 0"),
        ("token-bucket 1.5/s", "rate", "whole number above 0"),
        ("token-bucket 5__/s", "rate", "whole number above 0"),
        ("token-bucket five/s", "rate", "whole number above 0"),
        ("token-bucket 1000000000000/s", "rate", "from 1 to 100000000000"),
        ("token-bucket 1000000/us", "rate", "100000000000 a second"),
        ("token-bucket 99999999999999999999999999/s", "rate", "from 1 to"),
        ("token-bucket 5/", "period", "a unit of"),
        ("token-bucket 5/0s", "period", "above 0"),
        ("token-bucket 5/-1s", "period", "a unit of"),
        ("token-bucket 5/fortnight", "period", "a unit of"),
        ("token-bucket 5/s/s", "period", "a unit of"),
        ("fixed-window 5/36500days", "period", "366 days"),
        ("fixed-window 5/18446744073709551615weeks", "period", "366 days"),
        ("token-bucket 5/s burst 0", "burst", "from 1 to"),
        ("token-bucket 5/s burst -1", "burst", "whole number above 0"),
        ("token-bucket 5/s burst", "burst", "a number must follow"),
        ("token-bucket 5/s burst 18446744073709551615", "burst", "from 1 to"),
        ("token-bucket 5/s burst 1 burst 2", "burst", "given twice"),
        ("token-bucket 5/s capacity 3", "limit", "accepts \"burst\""),
        ("token-bucket 999983/day burst 1000000", "burst", "exactly"),
        ("leaky-bucket 5/s capacity 0", "capacity", "from 1 to"),
        ("leaky-bucket 5/s burst 3", "limit", "accepts \"capacity\""),
        ("pacing-queue 5/s capacity 0", "capacity", "from 1 to"),
        ("fixed-window 5/s burst 3", "limit", "accepts no setting"),
        ("fixed-window 0/s", "rate", "from 1 to"),
        ("sliding-window 5/s precision 0", "precision", "from 1 to 1024"),
        ("sliding-window 5/s precision 1025", "precision", "from 1 to 1024"),
        ("sliding-window 5/s precision 99999999999", "precision", "from 1 to 1024"),
        ("sliding-window 5/10us precision 11", "precision", "do not fit"),
        ("sliding-log 5/s precision 3", "limit", "accepts no setting"),
        ("sliding-log 10001/s", "rate", "at most 10000"),
        ("gcra 5/s", "algorithm", "token-bucket"),
        ("leakybucket 5/s", "algorithm", "known are token-bucket, leaky-bucket"),
        ("5 token-bucket", "algorithm", "permits/period"),
    ];
    for (text, field, message) in cases {
        let error = text.parse::<Limit>().expect_err(text);
        assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidLimit, field), "{text:?}: {error}");
        assert!(error.to_string().contains(message), "{text:?}: {error}");
    }
}

#[test]
fn constructors_refuse_what_the_text_refuses() {
    let second = Duration::from_secs(1);
    let field = |limit: Result<Limit, shardlimit::Error>| limit.expect_err("out of range").field();
    assert_eq!(field(Limit::token_bucket(0, second, 1)), "rate");
    assert_eq!(field(Limit::token_bucket(1, second, 0)), "burst");
    assert_eq!(field(Limit::token_bucket(u64::MAX, second, 1)), "rate");
    assert_eq!(field(Limit::token_bucket(1, second, u64::MAX)), "burst");
    assert_eq!(field(Limit::token_bucket(1, Duration::ZERO, 1)), "period");
    assert_eq!(field(Limit::token_bucket(1, Duration::from_nanos(1_500), 1)), "period");
    assert_eq!(field(Limit::token_bucket(1, Duration::MAX, 1)), "period");
    assert_eq!(field(Limit::leaky_bucket(1, second, 0)), "capacity");
    assert_eq!(field(Limit::pacing_queue(1, second, 0)), "capacity");
    assert_eq!(field(Limit::fixed_window(0, second)), "rate");
    assert_eq!(field(Limit::sliding_window(0, second)), "rate");
    assert_eq!(field(Limit::sliding_window(1, Duration::ZERO)), "period");
    assert_eq!(field(Limit::sliding_log(10_001, second)), "rate");
    let bucket = Limit::token_bucket(1, second, 1).unwrap();
    assert_eq!(field(bucket.with_precision(4)), "precision");
}

#[test]
fn periods_are_read_in_every_unit_and_written_in_the_largest() {
    for (text, written) in [
        ("5/s", "token-bucket 5/s burst 5"),
        ("5/1000ms", "token-bucket 5/s burst 5"),
        ("5/1500ms", "token-bucket 5/1500ms burst 5"),
        ("5/µs", "token-bucket 5/us burst 5"),
        ("60/minute", "token-bucket 60/min burst 60"),
        ("60/hour burst 7", "token-bucket 60/h burst 7"),
        ("1_000/7d", "token-bucket 1000/week burst 1000"),
        ("fixed-window 10/24h", "fixed-window 10/day"),
        ("sliding-window 3/10s precision 128", "sliding-window 3/10s"),
        ("sliding-window 3/10us", "sliding-window 3/10us"),
        ("sliding-window 3/10us precision 5", "sliding-window 3/10us precision 5"),
    ] {
        assert_eq!(text.parse::<Limit>().expect(text).to_string(), written);
    }
}

fn any_limit() -> impl Strategy<Value = Limit> {
    let number = prop_oneof![1u64..100, 1u64..1_000_000, 1u64..200_000_000_000];
    let period = prop_oneof![1u64..100, 1u64..10_000_000_000, 1u64..40_000_000_000_000];
    (0..6, number.clone(), period, number, 0u32..1_100).prop_filter_map(
        "out of range",
        |(algorithm, permits, period, burst, precision)| {
            let period = Duration::from_micros(period);
            match algorithm {
                0 => Limit::token_bucket(permits, period, burst),
                1 => Limit::leaky_bucket(permits, period, burst),
                2 => Limit::pacing_queue(permits, period, burst),
                3 => Limit::fixed_window(permits, period),
                4 if precision == 0 => Limit::sliding_window(permits, period),
                4 => Limit::sliding_window(permits, period).and_then(|limit| limit.with_precision(precision)),
                _ => Limit::sliding_log(permits % 12_000, period),
            }
            .ok()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, max_local_rejects: 1_000_000, ..ProptestConfig::default() })]

    #[test]
    fn text_goes_both_ways(limit in any_limit()) {
        prop_assert_eq!(limit.to_string().parse::<Limit>(), Ok(limit));
    }

    /// Whatever the text: a limit that reads back to itself, or an error with a message.
    #[test]
    fn no_text_panics(text in any::<String>()) {
        check(&text)?;
    }

    /// Texts that look much like a limit get deeper into the parser.
    #[test]
    fn no_likely_text_panics(
        words in prop::collection::vec(
            prop_oneof![
                prop::sample::select(vec![
                    "token-bucket", "leaky-bucket", "pacing-queue", "fixed-window", "sliding-window", "sliding-log",
                    "burst", "capacity", "precision", "gcra", "/", "1/s", "100/day", "3/10s", "0", "5", "-1", "_",
                    "18446744073709551616", "99999999999", "1/366day", "1/367day",
                ]).prop_map(String::from),
                "[0-9_]{1,21}/[0-9_]{0,21}(us|µs|ms|s|min|h|day|week|x)?",
                "[0-9]{1,12}",
            ],
            0..7,
        ),
        space in prop::sample::select(vec![" ", "  ", "\t", "\u{a0}"]),
    ) {
        check(&words.join(space))?;
    }
}

fn check(text: &str) -> Result<(), TestCaseError> {
    match text.parse::<Limit>() {
        Ok(limit) => prop_assert_eq!(limit.to_string().parse::<Limit>(), Ok(limit)),
        Err(error) => {
            prop_assert_eq!(error.kind(), ErrorKind::InvalidLimit);
            prop_assert!(!error.to_string().is_empty());
        }
    }
    Ok(())
}

#[test]
fn every_algorithm_has_a_name_that_reads_back() {
    for algorithm in [
        Algorithm::TokenBucket,
        Algorithm::LeakyBucket,
        Algorithm::PacingQueue,
        Algorithm::FixedWindow,
        Algorithm::SlidingWindow,
        Algorithm::SlidingLog,
    ] {
        let limit: Limit = format!("{} 5/s", algorithm.name()).parse().unwrap();
        assert_eq!(limit.algorithm(), algorithm);
    }
}

#[cfg(feature = "serde")]
#[test]
fn a_limit_in_json_is_its_text() {
    let limit: Limit = "sliding-window 3/10s".parse().unwrap();
    let json = serde_json::to_string(&limit).unwrap();
    assert_eq!(json, r#""sliding-window 3/10s""#);
    assert_eq!(serde_json::from_str::<Limit>(&json).unwrap(), limit);
    let error = serde_json::from_str::<Limit>(r#""token-bucket 0/s""#).unwrap_err();
    assert!(error.to_string().contains("rate: must be"), "{error}");
    assert!(serde_json::from_str::<Limit>("5").unwrap_err().to_string().contains("a limit such as"));
}
