//! Replies: each field checked, whatever a server sends.

use proptest::prelude::*;
use redis::Value;

use crate::kernel::batch::NEVER;
use crate::kernel::{Ask, Batch, Header, Refund, Verdict};
use crate::wire::{BadReply, CloseReply, GrantId, HomeReply, InstallReply, Reply, Run, Verdicts};

const ID: GrantId = GrantId { stamp: 5, random: 6 };
const ASK: Ask = Ask { permits: 1, count: 5 };

fn bytes(bytes: &[u8]) -> Value {
    Value::BulkString(bytes.to_vec())
}

fn decided(numbers: &[i64]) -> Vec<Value> {
    let head = [Value::Int(1), Value::Int(0), bytes(&ID.to_bytes()), bytes(b"")];
    head.into_iter().chain(numbers.iter().copied().map(Value::Int)).collect()
}

#[test]
fn replies_of_every_kind_are_read() {
    let numbers = [100, 101, -7, 9, 77, 3, -1, 0, 2, 50, 4];
    let header = Header { now: 100, at: 101, level: -7, missing: 9 };
    let verdicts: Verdicts =
        [Verdict { granted: 3, lack: NEVER, line: 0 }, Verdict { granted: 2, lack: 50, line: 4 }].into_iter().collect();
    let mut reply = decided(&numbers);
    let expected = Reply::Decided { id: ID, ledger: None, header, load: 77, verdicts: verdicts.clone() };
    assert_eq!(Reply::parse(Value::Array(reply.clone()), &[ASK; 2]), Ok(expected));
    reply[3] = bytes(b"ledger");
    let expected = Reply::Decided { id: ID, ledger: Some(b"ledger".to_vec()), header, load: 77, verdicts };
    assert_eq!(Reply::parse(Value::Array(reply), &[ASK; 2]), Ok(expected));

    let reply = |status, rest: &[Value]| Value::Array([&[Value::Int(1), Value::Int(status)], rest].concat());
    let id = bytes(&ID.to_bytes());
    assert_eq!(Reply::parse(reply(1, &[bytes(b"")]), &[ASK; 2]), Ok(Reply::Stale { id: None }));
    assert_eq!(Reply::parse(reply(1, std::slice::from_ref(&id)), &[ASK; 2]), Ok(Reply::Stale { id: Some(ID) }));
    let (with_ledger, nothing) = ([id.clone(), bytes(b"l")], [bytes(b""), bytes(b"")]);
    let other = Reply::OtherKernel { id: ID, ledger: b"l".to_vec() };
    assert_eq!(Reply::parse(reply(2, &with_ledger), &[ASK; 2]), Ok(other));

    let granted = HomeReply::Written { id: ID, ledger: b"l".to_vec() };
    assert_eq!(HomeReply::parse(reply(0, &with_ledger)), Ok(granted));
    let refused = HomeReply::Refused { id: Some(ID), ledger: Some(b"l".to_vec()) };
    assert_eq!(HomeReply::parse(reply(1, &with_ledger)), Ok(refused.clone()));
    assert_eq!(HomeReply::parse(reply(2, &with_ledger)), Ok(refused));
    assert_eq!(HomeReply::parse(reply(1, &nothing)), Ok(HomeReply::Refused { id: None, ledger: None }));

    let now = [Value::Int(77)];
    assert_eq!(InstallReply::parse(reply(0, &now)), Ok(InstallReply::Installed { now: 77 }));
    assert_eq!(InstallReply::parse(reply(1, &now)), Ok(InstallReply::Newer { now: 77 }));
    assert_eq!(InstallReply::parse(reply(2, &now)), Ok(InstallReply::Late { now: 77 }));

    let (left, nothing) = ([bytes(b"left"), Value::Int(77)], [bytes(b""), Value::Int(77)]);
    let closed = |tombstone: Option<&[u8]>| Ok(CloseReply::Closed { tombstone: tombstone.map(Into::into), now: 77 });
    assert_eq!(CloseReply::parse(reply(0, &left)), closed(Some(b"left")));
    assert_eq!(CloseReply::parse(reply(0, &nothing)), closed(None));
    assert_eq!(CloseReply::parse(reply(1, &nothing)), Ok(CloseReply::Newer { now: 77 }));
}

#[test]
fn a_bad_reply_says_which_field_and_why() {
    let good = decided(&[1, 1, 1, 1, 1, 1, 1, 1]);
    let with = |at: usize, value: Value| {
        let mut reply = good.clone();
        reply[at] = value;
        Value::Array(reply)
    };
    for (value, why) in [
        (Value::Okay, "the reply is of another type"),
        (Value::Array(vec![]), "version is missing"),
        (with(0, Value::Int(2)), "version is 2, this client knows 1"),
        (with(1, Value::Int(3)), "status is 3"),
        (with(1, Value::Nil), "status is nil"),
        (with(2, bytes(b"short")), "id is a string of 5 bytes"),
        (with(2, bytes(b"")), "id is empty"),
        (with(3, Value::Array(good.clone())), "ledger is a list of 12"),
        (with(4, Value::Int(-1)), "now is -1"),
        (with(5, Value::Int(i64::MAX)), "at is 9223372036854775807"),
        (with(6, Value::Int(i64::MIN)), "level is -9223372036854775808"),
        (with(7, Value::Double(1.5)), "missing is of another type"),
        (with(8, Value::Int(-1)), "load is -1"),
        (with(9, Value::Int(-1)), "granted is -1"),
        (with(9, Value::Int(6)), "granted is 6 of 5 calls"),
        (with(10, Value::Int(-2)), "lack is -2"),
        (with(11, Value::Int(-1)), "line is -1"),
        (Value::Array(good[..11].to_vec()), "the list of verdicts is 2 numbers for 1 asks"),
        (Value::Array([&good[..], &[Value::Int(1)]].concat()), "the list of verdicts is 4 numbers for 1 asks"),
    ] {
        let error: BadReply = Reply::parse(value, &[ASK]).unwrap_err();
        assert_eq!(error.to_string(), format!("malformed reply of a script: {why}"));
    }
    let stale = vec![Value::Int(1), Value::Int(1), bytes(b""), bytes(b"")];
    let error = Reply::parse(Value::Array(stale), &[]).unwrap_err().to_string();
    assert!(error.ends_with("what follows the last field is a string of 0 bytes"), "{error}");
}

fn any_value() -> impl Strategy<Value = Value> {
    let id = prop::collection::vec(any::<u8>(), 16);
    let leaf = prop_oneof![
        4 => (-3i64..5).prop_map(Value::Int),
        1 => any::<i64>().prop_map(Value::Int),
        2 => id.prop_map(Value::BulkString),
        1 => prop::collection::vec(any::<u8>(), 0..4).prop_map(Value::BulkString),
        1 => Just(Value::Nil),
        1 => any::<f64>().prop_map(Value::Double),
    ];
    leaf.prop_recursive(2, 30, 12, |value| prop::collection::vec(value, 0..12).prop_map(Value::Array))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]

    #[test]
    fn no_reply_makes_us_panic(values in prop::collection::vec(any_value(), 0..14), asks in 0usize..4) {
        for start in [vec![], vec![Value::Int(1)], vec![Value::Int(1), Value::Int(0)]] {
            let value = Value::Array([start, values.clone()].concat());
            if let Ok(Reply::Decided { verdicts, .. }) = Reply::parse(value.clone(), &vec![ASK; asks]) {
                prop_assert_eq!(verdicts.len(), asks);
            }
            let _ = HomeReply::parse(value.clone());
            let _ = InstallReply::parse(value.clone());
            let _ = CloseReply::parse(value);
        }
    }
}

#[test]
fn arguments_are_in_the_order_of_the_contract() {
    let refunds = [Refund { permits: 3, at: 4, line: -5 }];
    let asks = [Ask { permits: 6, count: 7 }, Ask { permits: 8, count: 9 }];
    let batch = Batch { refunds: &refunds, debt: 2, asks: &asks, ..Batch::default() };
    for (touch, reset, code) in [(false, false, "0"), (false, true, "1"), (true, true, "1"), (true, false, "2")] {
        let mut cmd = redis::Cmd::new();
        Run { id: ID, home: b"home", least_ttl: 1, touch, batch: Batch { reset, ..batch } }.write(&mut cmd);
        let arguments: Vec<&[u8]> = cmd
            .args_iter()
            .map(|argument| match argument {
                redis::Arg::Simple(bytes) => bytes,
                _ => panic!("a cursor"),
            })
            .collect();
        assert_eq!(arguments[0], ID.to_bytes());
        let words: Vec<&str> = arguments[1..].iter().map(|bytes| std::str::from_utf8(bytes).unwrap()).collect();
        assert_eq!(words, ["home", "1", code, "2", "1", "3", "4", "-5", "6", "7", "8", "9"]);
    }
}
