//! Refunds and settlements.

use std::time::Duration;

use crate::support::{allowed, ask, block_on, left, limit};
use shardlimit::{ErrorKind, Limiter, NamedLimit, Receipt};

fn charge(limit: &NamedLimit, key: &str, permits: u64) -> Receipt {
    allowed(block_on(limit.acquire_n(key, permits)).unwrap()).into_receipt()
}

const EVERY: [&str; 6] = [
    "token-bucket 10/s burst 10",
    "leaky-bucket 10/s capacity 10",
    "pacing-queue 10/s capacity 10",
    "fixed-window 10/s",
    "sliding-window 10/s",
    "sliding-log 10/s",
];

#[test]
fn a_refund_gives_back_what_was_charged() {
    for text in EVERY {
        let (limit, _) = limit(text);
        let receipt = charge(&limit, "alice", 7);
        assert_eq!((receipt.permits(), left(&limit, "alice")), (7, 3), "{text}");
        block_on(limit.refund("alice", receipt)).unwrap();
        assert_eq!(left(&limit, "alice"), 10, "{text}");
    }
}

#[test]
fn a_dropped_receipt_keeps_the_charge() {
    let (limit, _) = limit("10/s burst 10");
    let _unused = charge(&limit, "alice", 7);
    assert_eq!(left(&limit, "alice"), 3);
}

#[test]
fn a_late_refund_lifts_nothing_above_the_limit() {
    for text in EVERY {
        let (limit, time) = limit(text);
        let receipt = charge(&limit, "alice", 7);
        time.advance(Duration::from_millis(900));
        let _ = ask(&limit, "alice", 1);
        time.advance(Duration::from_millis(1_200));
        let before = left(&limit, "alice");
        block_on(limit.refund("alice", receipt)).unwrap();
        assert_eq!(left(&limit, "alice"), before, "{text}");
    }
}

#[test]
fn a_window_takes_back_only_its_own() {
    let (limit, time) = limit("fixed-window 10/s");
    let receipt = charge(&limit, "k", 7);
    time.advance(Duration::from_secs(1));
    assert!(ask(&limit, "k", 5));
    block_on(limit.refund("k", receipt)).unwrap();
    assert_eq!(left(&limit, "k"), 5, "charged in the window before");
}

#[test]
fn a_log_takes_back_its_own_entry() {
    let (limit, time) = limit("sliding-log 10/s");
    let first = charge(&limit, "k", 3);
    time.advance(Duration::from_millis(400));
    let second = charge(&limit, "k", 4);
    block_on(limit.refund("k", first)).unwrap();
    assert_eq!(left(&limit, "k"), 6);
    time.advance(Duration::from_millis(600));
    assert_eq!(left(&limit, "k"), 6, "the first entry is gone already, it expires no second time");
    time.advance(Duration::from_millis(400));
    assert_eq!(left(&limit, "k"), 10);
    block_on(limit.refund("k", second)).unwrap();
    assert_eq!(left(&limit, "k"), 10, "too late to matter");
}

#[test]
fn settling_for_less_gives_back_the_rest() {
    for text in EVERY {
        let (limit, _) = limit(text);
        let receipt = charge(&limit, "alice", 8);
        block_on(limit.settle("alice", receipt, 3)).unwrap();
        assert_eq!(left(&limit, "alice"), 7, "{text}");
        let receipt = charge(&limit, "alice", 2);
        block_on(limit.settle("alice", receipt, 2)).unwrap();
        assert_eq!(left(&limit, "alice"), 5, "{text}");
    }
}

#[test]
fn settling_for_more_is_paid_off_later() {
    for text in EVERY {
        let (limit, time) = limit(text);
        let receipt = charge(&limit, "alice", 4);
        block_on(limit.settle("alice", receipt, 15)).unwrap();
        assert_eq!(left(&limit, "alice"), 0, "{text}");
        let reset = block_on(limit.peek("alice")).unwrap().reset_after();
        time.advance(reset - Duration::from_micros(1));
        assert!(left(&limit, "alice") < 10, "{text}");
        time.advance(Duration::from_micros(1));
        assert_eq!(left(&limit, "alice"), 10, "{text}");
    }
}

/// A wild figure locks nobody out for longer than a debt of one burst takes.
#[test]
fn a_debt_has_an_end() {
    let (limit, time) = limit("token-bucket 10/s burst 10");
    let receipt = charge(&limit, "alice", 1);
    block_on(limit.settle("alice", receipt, u64::MAX)).unwrap();
    time.advance(Duration::from_millis(1_099));
    assert!(!ask(&limit, "alice", 1));
    time.advance(Duration::from_millis(1));
    assert!(ask(&limit, "alice", 1));
}

#[test]
fn a_receipt_is_good_at_its_own_key_and_limit_only() {
    let limiter = Limiter::local();
    let limit = limiter.define("one", "1/day burst 10".parse().unwrap()).unwrap();
    let other = limiter.define("two", "1/day burst 10".parse().unwrap()).unwrap();
    let _ = (ask(&limit, "bob", 9), ask(&other, "alice", 9));
    for (limit, key) in [(&limit, "bob"), (&other, "alice")] {
        for actual in [0, 20] {
            let receipt = charge(&limiter.define("one", "1/day burst 10".parse().unwrap()).unwrap(), "alice", 1);
            let error = block_on(limit.settle(key, receipt, actual)).unwrap_err();
            assert_eq!((error.kind(), error.field()), (ErrorKind::ForeignReceipt, "receipt"));
            assert_eq!(left(limit, key), 1, "nothing moved");
        }
    }
    let receipt = charge(&limit, "alice", 1);
    assert_eq!(block_on(other.refund("alice", receipt)).unwrap_err().kind(), ErrorKind::ForeignReceipt);
    assert_eq!(left(&limit, "alice"), 5, "the charges stay");
}
