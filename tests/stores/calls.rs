//! What a call gets, on every algorithm.

use std::time::Duration;

use crate::support::{allowed, ask, block_on, left, limit};
use shardlimit::{DecidedBy, Decision, ErrorKind, FakeClock, Limiter, NamedLimit};

const EVERY: [&str; 6] = [
    "token-bucket 10/s burst 5",
    "leaky-bucket 10/s capacity 5",
    "pacing-queue 10/s capacity 5",
    "fixed-window 5/s",
    "sliding-window 5/s",
    "sliding-log 5/s",
];

#[test]
fn five_are_allowed_and_the_sixth_is_told_when() {
    for text in EVERY {
        let (limit, time) = limit(text);
        for remaining in (0..5).rev() {
            let decision = block_on(limit.acquire("alice")).unwrap();
            assert!(decision.is_allowed(), "{text}");
            assert_eq!(decision.remaining().permits, remaining, "{text}");
            assert!(decision.remaining().exact);
            assert_eq!(decision.decided_by(), DecidedBy::Local);
        }
        let Decision::Denied(denied) = block_on(limit.acquire("alice")).unwrap() else { panic!("{text}: a sixth") };
        let wait = denied.retry_after();
        assert!(wait > Duration::ZERO && denied.reset_after() >= wait, "{text}");
        time.advance(wait - Duration::from_micros(1));
        assert!(!ask(&limit, "alice", 1), "{text}: a microsecond early");
        time.advance(Duration::from_micros(1));
        assert!(ask(&limit, "alice", 1), "{text}");
        assert!(ask(&limit, "bob", 5), "{text}: another key has its own");
    }
}

#[test]
fn many_permits_are_all_or_nothing() {
    for text in EVERY {
        let (limit, _) = limit(text);
        assert!(block_on(limit.acquire_n("alice", 3)).unwrap().is_allowed());
        assert!(!block_on(limit.acquire_n("alice", 3)).unwrap().is_allowed(), "{text}");
        assert_eq!(left(&limit, "alice"), 2, "{text}: a denied call costs nothing");
        assert!(block_on(limit.acquire_n("alice", 2)).unwrap().is_allowed());
    }
}

/// "Not yet" is a decision, "never" is an error.
#[test]
fn more_than_the_limit_ever_holds_is_an_error() {
    for text in EVERY {
        let (limit, _) = limit(text);
        for permits in [6, u64::MAX] {
            let error = block_on(limit.acquire_n("alice", permits)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Never, "{text}");
            assert!(error.to_string().contains("at most 5"), "{error}");
            assert_eq!(limit.try_acquire("alice", permits).unwrap_err().kind(), ErrorKind::Never);
            let waited = block_on(limit.acquire_within("alice", permits, Duration::from_secs(9)));
            assert_eq!(waited.unwrap_err().kind(), ErrorKind::Never);
        }
        let zero = block_on(limit.acquire_n("alice", 0)).unwrap_err();
        assert_eq!((zero.kind(), zero.field()), (ErrorKind::InvalidPermits, "permits"));
        assert_eq!(left(&limit, "alice"), 5, "{text}: an error costs nothing");
    }
}

#[test]
fn any_bytes_are_a_key_within_its_length() {
    let (limit, _) = limit("5/s");
    for key in [&b"\0"[..], b"a{b}c", b"\xff\xfe", b"line\nbreak", &[b'x'; 16_384]] {
        assert!(limit.try_acquire(key, 5).unwrap().unwrap().is_allowed());
        assert!(!limit.try_acquire(key, 1).unwrap().unwrap().is_allowed());
    }
    for key in [vec![], vec![b'x'; 16_385]] {
        let error = limit.try_acquire(&key, 1).unwrap_err();
        assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidKey, "key"));
        assert!(error.to_string().contains("1 to 16384 bytes"), "{error}");
        assert_eq!(block_on(limit.peek(&key)).unwrap_err().kind(), ErrorKind::InvalidKey);
        assert_eq!(limit.handle(&key).unwrap_err().kind(), ErrorKind::InvalidKey);
    }
}

/// Keys of all lengths around those that are compared in a special way.
#[test]
fn keys_that_differ_in_one_byte_are_different() {
    let (limit, _) = limit("1/day");
    for length in 1..40 {
        let key = vec![b'k'; length];
        assert!(limit.try_acquire(&key, 1).unwrap().unwrap().is_allowed());
        for at in 0..length {
            let mut other = key.clone();
            other[at] = b'o';
            assert!(limit.try_acquire(&other, 1).unwrap().unwrap().is_allowed(), "byte {at} of {length}");
        }
        assert!(!limit.try_acquire(&key, 1).unwrap().unwrap().is_allowed());
    }
}

#[test]
fn a_name_stands_for_one_limit() {
    let limiter = Limiter::local();
    let login = limiter.define("login", "1/day".parse().unwrap()).unwrap();
    assert!(ask(&login, "alice", 1));
    let again = limiter.clone().define("login", "1/day".parse().unwrap()).unwrap();
    assert!(!ask(&again, "alice", 1), "the same state");
    let error = limiter.define("login", "2/day".parse().unwrap()).unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::NameTaken, "name"));
    assert!(error.to_string().contains("token-bucket 1/day burst 1"), "{error}");
    let other = limiter.define("other", "2/day".parse().unwrap()).unwrap();
    assert!(ask(&other, "alice", 2), "the same key under another limit has a state of its own");
}

#[test]
fn bad_names_prefixes_and_settings_are_refused() {
    let limiter = Limiter::local();
    for name in ["", "a{b", "a}b", "a:b", "a b", "a\nb", "é", &"x".repeat(129)] {
        let error = limiter.define(name, "1/s".parse().unwrap()).unwrap_err();
        assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidName, "name"), "{name:?}");
        let error = Limiter::builder().prefix(name).build().unwrap_err();
        assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidName, "prefix"), "{name:?}");
    }
    assert!(limiter.define(&"x".repeat(128), "1/s".parse().unwrap()).is_ok());
    let error = Limiter::builder().max_keys(0).build().unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidSetting, "max_keys"));
}

#[test]
fn a_handle_is_the_key_itself() {
    for text in EVERY {
        let (limit, _) = limit(text);
        assert!(ask(&limit, "alice", 1));
        let hot = limit.handle("alice").unwrap();
        assert!(block_on(hot.acquire_n(2)).unwrap().is_allowed());
        assert!(block_on(hot.acquire()).unwrap().is_allowed());
        assert_eq!(left(&limit, "alice"), 1);
        assert_eq!(block_on(hot.peek()).unwrap().remaining().permits, 1);
        let receipt = allowed(hot.try_acquire(1).unwrap().unwrap()).into_receipt();
        assert!(!ask(&limit, "alice", 1));
        block_on(hot.refund(receipt)).unwrap();
        assert_eq!(left(&limit, "alice"), 1, "{text}");
        block_on(hot.reset()).unwrap();
        assert_eq!(left(&limit, "alice"), 5);
        drop(hot);
        assert!(ask(&limit, "alice", 5));
    }
}

#[test]
fn peek_charges_nothing_and_tracks_nothing() {
    for text in EVERY {
        let (limit, time) = limit(text);
        for _ in 0..3 {
            let peek = block_on(limit.peek("alice")).unwrap();
            assert_eq!((peek.remaining().permits, peek.reset_after()), (5, Duration::ZERO));
            assert_eq!(peek.decided_by(), DecidedBy::Local);
        }
        assert!(ask(&limit, "alice", 4));
        let peek = block_on(limit.peek("alice")).unwrap();
        assert_eq!(peek.remaining().permits, 1, "{text}");
        time.advance(peek.reset_after());
        assert_eq!(left(&limit, "alice"), 5, "{text}");
    }
}

#[test]
fn reset_forgets() {
    for text in EVERY {
        let (limit, _) = limit(text);
        assert!(ask(&limit, "alice", 5));
        block_on(limit.reset("alice")).unwrap();
        assert!(ask(&limit, "alice", 5), "{text}");
    }
}

#[test]
fn a_pacing_queue_says_how_long_to_wait() {
    let (limit, time) = limit("pacing-queue 10/s capacity 5");
    let waits: Vec<u64> =
        (0..5).map(|_| allowed(block_on(limit.acquire("smtp")).unwrap()).wait().as_millis() as u64).collect();
    assert_eq!(waits, [0, 100, 200, 300, 400]);
    assert!(!ask(&limit, "smtp", 1), "the line is full");
    time.advance(Duration::from_millis(150));
    assert_eq!(allowed(block_on(limit.acquire("smtp")).unwrap()).wait(), Duration::from_millis(350));
    // Other algorithms never make an allowed call wait.
    for text in EVERY.iter().filter(|text| !text.starts_with("pacing")) {
        let limit = crate::support::limit(text).0;
        let _ = limit.try_acquire("k", 3);
        assert_eq!(allowed(block_on(limit.acquire("k")).unwrap()).wait(), Duration::ZERO, "{text}");
    }
}

#[test]
fn a_fixed_window_begins_with_the_clock() {
    let (limit, time) = limit("fixed-window 3/s");
    time.advance(Duration::from_millis(900));
    assert!(ask(&limit, "k", 3));
    assert!(!ask(&limit, "k", 1));
    time.advance(Duration::from_millis(100));
    assert!(ask(&limit, "k", 3), "a new second");
}

/// Keys without a bucket of their own share one: nobody gains by a refund or a reset of another.
#[test]
fn keys_that_share_an_overflow_do_not_help_each_other() {
    let time = FakeClock::new();
    let limiter = Limiter::builder().clock(&time).max_keys(1).build().unwrap();
    let limit = limiter.define("test", "token-bucket 1/day burst 5".parse().unwrap()).unwrap();
    assert!(ask(&limit, "tracked", 1));
    let receipt = allowed(block_on(limit.acquire_n("first", 3)).unwrap()).into_receipt();
    assert_eq!(left(&limit, "second"), 2, "a look tells what a call would get");
    block_on(limit.refund("first", receipt)).unwrap();
    assert_eq!(left(&limit, "second"), 2);
    block_on(limit.reset("first")).unwrap();
    assert_eq!(left(&limit, "second"), 2);
    assert!(!ask(&limit, "second", 3) && ask(&limit, "second", 2));

    // A handle has a bucket of its own while it lives, and leaves its charge behind.
    block_on(limit.reset("tracked")).unwrap();
    assert!(ask(&limit, "tracked", 1));
    let handle = limit.handle("third").unwrap();
    let twin = handle.clone();
    assert_eq!(block_on(twin.peek()).unwrap().remaining().permits, 0, "it begins with what is left of the overflow");
    drop(handle);
    assert_eq!(twin.key(), b"third");
    drop(twin);
    assert_eq!(left(&limit, "tracked"), 4, "whoever is tracked does not notice");
}

#[test]
fn times_are_rounded_up_and_count_from_a_clock_that_is_behind() {
    let (limit, time) = limit("token-bucket 3/s burst 3");
    assert!(ask(&limit, "k", 3));
    let retry_after = |limit: &NamedLimit| match limit.try_acquire("k", 1).unwrap() {
        Some(Decision::Denied(denied)) => denied.retry_after(),
        other => panic!("{other:?}"),
    };
    assert_eq!(retry_after(&limit), Duration::from_micros(333_334));
    time.step_back(Duration::from_millis(100));
    assert_eq!(retry_after(&limit), Duration::from_micros(433_334), "time stands still until the clock has caught up");
}
