//! The door for `fuzz/`: each parser of what comes from outside, with what must hold whatever comes. Only in builds for fuzzing.

use redis::Value;

use crate::config::Config;
use crate::counter::Sketch;
use crate::kernel::Ask;
use crate::key::{Slot, home_slot, sub_key};
use crate::limit::{Algorithm, Limit};
use crate::limiter::Limiter;
use crate::plan::{Definition, Shards};
use crate::store::cluster::{Address, Fault, Patience, Scanner, Settings};
use crate::store::ring::{Member, Record};
use crate::sync::atomic::AtomicBool;
use crate::topology::parse;
use crate::wire::{
    ApproximateReply, CloseReply, CountReply, DistinctReply, Grant, GrantId, HomeReply, InstallReply, Ledger,
    MoveInReply, MoveOutReply, Reply, RingReply, Status, TallyReply, WindowsReply,
};

/// What is written is read back as the same limit.
pub fn limit_text(data: &[u8]) {
    let Ok(limit) = String::from_utf8_lossy(data).parse::<Limit>() else { return };
    assert_eq!(limit.to_string().parse::<Limit>().as_ref(), Ok(&limit));
}

/// Bytes of a server: the same in one piece or byte by byte, and no reply ends elsewhere than for the crate below.
pub fn replies(data: &[u8]) {
    let data = &data[..data.len().min(256)];
    let large = AtomicBool::new(false);
    let (mut whole, mut bytewise) = (Scanner::of_replies(), Scanner::of_replies());
    let read = whole.read(data, &large);
    let mut first = None;
    let by_byte = data.iter().enumerate().try_for_each(|(at, byte)| {
        bytewise.read(&[*byte], &large)?;
        if bytewise.ended() == 1 && first.is_none() {
            first = Some(at + 1);
        }
        Ok(())
    });
    assert_eq!((read, whole.ended(), whole.is_between()), (by_byte, bytewise.ended(), bytewise.is_between()));
    let by_crate = (1..=data.len()).find(|length| redis::parse_redis_value(&data[..*length]).is_ok());
    match (first, by_crate) {
        (Some(first), Some(end)) => assert_eq!(first, end, "of {data:?}"),
        (None, Some(_)) => assert!(read.is_err(), "{data:?} is a reply"),
        (_, None) => {}
    }
}

/// A sketch as a server may send it: what is read can be counted.
fn sketch(data: &[u8]) {
    if let Ok(sketch) = Sketch::parse(data) {
        let _ = sketch.estimate();
    }
}

/// Replies of scripts. What is read grants nobody more than was asked for.
pub fn scripts(data: &[u8]) {
    let value = Spelled(data).list();
    let asks = [Ask { permits: 1, count: 3 }, Ask { permits: 7, count: 1 }];
    for asks in [&asks[..0], &asks[..1], &asks[..]] {
        if let Ok(Reply::Decided { verdicts, ledger, .. }) = Reply::parse(value.clone(), asks) {
            assert!(verdicts.iter().zip(asks).all(|(verdict, ask)| verdict.granted <= ask.count));
            ledger.iter().for_each(|ledger| drop(Ledger::decode(ledger)));
        }
    }
    let _ = InstallReply::parse(value.clone());
    let _ = HomeReply::parse(value.clone());
    let _ = CloseReply::parse(value.clone());
    let _ = CountReply::parse(value.clone());
    let _ = WindowsReply::parse(value.clone(), 2);
    let _ = DistinctReply::parse(value.clone());
    if let Ok(ApproximateReply { sketch: Some(bytes), .. }) = ApproximateReply::parse(value) {
        sketch(&bytes);
    }
    sketch(data);
}

/// The record of a ring as it comes, and a node as a user writes it: what is read is written as it was.
pub fn ring(data: &[u8]) {
    if let Ok(record) = Record::decode(data) {
        assert_eq!(record.encode().as_bytes(), data);
    }
    let text = String::from_utf8_lossy(data);
    if let Ok((member, login)) = Member::read(&text) {
        assert!(
            member.weight > 0 && text.contains(&login[login.find("://").map_or(0, |at| at + 3)..])
                || text.starts_with("sentinel")
        );
    }
    let value = Spelled(data).list();
    let _ = MoveOutReply::parse(value.clone());
    let _ = MoveInReply::parse(value.clone());
    let _ = TallyReply::parse(value.clone());
    let _ = RingReply::parse(value);
}

/// A ledger as it comes, and a good one with some bytes changed: what is read adds up, and is written as it was.
pub fn ledger(data: &[u8]) {
    let check = |bytes: &[u8]| {
        let Ok(ledger) = Ledger::decode(bytes) else { return };
        assert_eq!(Ledger::decode(&ledger.encode()).as_ref(), Ok(&ledger));
        let (permits, burst) = ledger.home_parts();
        let lent = |of: fn(&Grant) -> u64| {
            let live = ledger.grants.iter().filter(|grant| !grant.status.is_recalled());
            live.map(|grant| u128::from(of(grant))).sum::<u128>()
        };
        assert!(u128::from(permits) + lent(|grant| grant.permits) <= u128::from(ledger.limit().permits()));
        assert!(u128::from(burst) + lent(|grant| grant.burst) <= u128::from(ledger.limit().burst()));
        let _ = ledger.home_share();
        for grant in ledger.grants.iter().filter(|grant| !grant.status.is_recalled()) {
            let _ = ledger.share_of(grant);
        }
    };
    check(data);
    let [which, changes @ ..] = data else { return };
    let limits = [
        "token-bucket 600/s burst 60",
        "fixed-window 300/min",
        "sliding-window 90/h precision 9",
        "token-bucket 600/s burst 60 + fixed-window 300/min",
    ];
    let limit: Limit = limits[usize::from(*which) % limits.len()].parse().expect("a limit");
    let mut good = Ledger::new(Definition::new(limit, 7, Shards::PerMaster));
    let cost = good.cost;
    for number in 0..3u16 {
        let slot = Slot::new(number * 5_000).expect("below the count");
        let id = GrantId { stamp: 5 + u64::from(number), random: 9 };
        let status =
            if number == 1 || limit.algorithm() == Algorithm::Composite { Status::RECALLED } else { Status::Live };
        good.grants.push(Grant { slot, id, permits: 10, burst: 10, cost, status });
    }
    let mut bytes = good.encode();
    for change in changes.chunks_exact(3) {
        let at = usize::from(u16::from_le_bytes([change[0], change[1]])) % bytes.len();
        bytes[at] = change[2];
    }
    check(&bytes);
}

/// What a node says of the cluster: what is believed covers each slot once, by masters whose addresses can be shown.
pub fn topology(data: &[u8]) {
    let mut spelled = Spelled(data);
    let (slots, info) = (spelled.list(), spelled.value(0));
    for info in [info, Value::BulkString(b"cluster_current_epoch:3\r\n".to_vec())] {
        let Ok(topology) = parse::topology("seed", &slots, &info) else { continue };
        assert!(topology.covered() <= usize::from(Slot::COUNT));
        for master in topology.masters() {
            assert!(master.port > 0 && master.to_string().bytes().all(|byte| byte.is_ascii_graphic()));
        }
        for slot in Slot::all() {
            assert_eq!(topology.master_of(slot).is_some(), topology.index_of(slot).is_some());
        }
    }
}

/// A key from outside lies on the slot that it is meant for, and is nobody else's: not another key's, not another name's, and not
/// the record of a limit that was set for all keys.
pub fn sub_keys(data: &[u8]) {
    let [low, high, split, keys @ ..] = data else { return };
    let slot = Slot::new(u16::from_le_bytes([*low, *high]) % Slot::COUNT).expect("below the count");
    let (one, other) = keys.split_at(usize::from(*split).min(keys.len()));
    if one.is_empty() || other.is_empty() {
        return;
    }
    let mine = sub_key("shardlimit", slot, "api", one);
    assert_eq!(Slot::of(&mine), slot);
    assert_eq!(mine == sub_key("shardlimit", slot, "api", other), one == other);
    assert_ne!(mine, sub_key("shardlimit", slot, "ap", other));
    assert_ne!(mine, sub_key("shardlimit", slot, "api2", other));
    assert_ne!(mine, sub_key("shard", slot, "api", other));
    assert!(Slot::all().step_by(97).all(|at| sub_key("shardlimit", at, "api", b"") != mine));
    assert!(home_slot("api", one).number() < Slot::COUNT);
}

/// An error of a server: redirects lead to a host that can be shown, and so can whatever it says.
pub fn errors(data: &[u8]) {
    let from = Address { host: "10.0.0.1".into(), port: 6379 };
    for code in [&b"-"[..], b"-MOVED ", b"-ASK 7 ", b"-ERR "] {
        let line = [code, data, b"\r\n"].concat();
        let Err(fault) =
            Fault::check(&from, redis::parse_redis_value(&line), &|words| crate::said::said_without("", words))
        else {
            continue;
        };
        if let Fault::Moved { to, .. } | Fault::Ask { to } = &fault {
            assert!(to.host.bytes().all(|byte| byte.is_ascii_graphic()), "{to}");
        }
        let text = fault.into_error().to_string();
        assert!(text.len() < 1_000 && text.chars().all(|c| c == '…' || c == ' ' || c.is_ascii_graphic()), "{text:?}");
    }
}

/// A password never shows, however the URL around it is written.
pub fn urls(data: &[u8]) {
    const PASSWORD: &str = "hunter2";
    let text: String = String::from_utf8_lossy(data).chars().filter(|c| !c.is_control()).collect();
    if text.contains(PASSWORD) {
        return;
    }
    let (before, after) = text.split_at(text.char_indices().nth(text.chars().count() / 2).map_or(0, |(at, _)| at));
    for url in [
        text.clone(),
        format!("redis://{before}:{PASSWORD}{after}@10.0.0.1"),
        format!("redis://{before}:{PASSWORD}@{after}"),
        format!("{before}:{PASSWORD}@{after}"),
        format!("{before}{PASSWORD}{after}@h:1"),
    ] {
        let shown = match Settings::new(std::slice::from_ref(&url), Patience::default()) {
            Ok(settings) => format!("{settings:?} {}", settings.seeds()[0]),
            Err(error) => format!("{error} {error:?}"),
        };
        assert!(!shown.contains(PASSWORD) && !shown.chars().any(char::is_control), "{url:?} as {shown}");
    }
}

/// A configuration file, as it comes and behind what is often there: whatever is wrong is told on one line that can be shown, without a
/// password, and what is read can be built and defined.
pub fn config(data: &[u8]) {
    const PASSWORD: &str = "hunter2";
    let text = String::from_utf8_lossy(data);
    // A file in it would be read.
    if text.contains(PASSWORD) || text.contains("tls") {
        return;
    }
    for text in [
        text.clone().into_owned(),
        format!("[limits.a]\nlimit = \"5/min\"\n{text}"),
        format!("limits.a.limit = {text}"),
        format!("redis = [\"redis://u:{PASSWORD}@10.0.0.1{text}\"]"),
        format!("redis = [\"redis://u:{PASSWORD}@10.0.0.1\"]\n{text}"),
    ] {
        let shown = match Config::from_toml(&text) {
            Ok(config) => {
                let limiter = Limiter::builder().max_keys(1).build().expect("a limiter");
                let _ = config.define(&limiter);
                config.limits().for_each(|(_, limit)| assert_eq!(limit.to_string().parse(), Ok(limit)));
                format!("{config:?}")
            }
            Err(error) => error.to_string(),
        };
        assert!(!shown.contains(PASSWORD) && !shown.chars().any(char::is_control), "{text:?} as {shown}");
    }
}

/// Values as few bytes can spell them.
struct Spelled<'a>(&'a [u8]);

impl Spelled<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let (bytes, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        bytes.to_vec()
    }

    fn list(&mut self) -> Value {
        let length = self.byte() % 20;
        Value::Array((0..length).map(|_| self.value(1)).collect())
    }

    fn value(&mut self, depth: u8) -> Value {
        let kind = self.byte();
        match kind % 16 {
            0..=4 => Value::Int(i64::from(self.byte()) - 2),
            5 => Value::Int(i64::from(u16::from_le_bytes([self.byte(), self.byte()]))),
            6 => Value::Int([i64::MIN, i64::MAX, 1 << 53, -(1 << 53), (1 << 53) - 1][usize::from(self.byte()) % 5]),
            7 | 8 => Value::BulkString(self.bytes(16)),
            9 => Value::BulkString(Vec::new()),
            10 => {
                let length = self.byte().into();
                Value::BulkString(self.bytes(length))
            }
            11 => Value::BulkString(b"10.0.0.1".to_vec()),
            12 => Value::Nil,
            13 => Value::SimpleString(String::from_utf8_lossy(&self.bytes(4)).into_owned()),
            _ if depth < 5 => {
                let length = self.byte() % 6;
                Value::Array((0..length).map(|_| self.value(depth + 1)).collect())
            }
            _ => Value::Boolean(true),
        }
    }
}
