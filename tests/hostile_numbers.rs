//! Replies that have the right form and say what can't be: no number, id or ledger of a server makes a call hang or anything panic.
#![cfg(feature = "redis")]

#[path = "support/hostile.rs"]
mod hostile;
#[path = "support/server.rs"]
#[allow(dead_code, unreachable_pub)]
mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use hostile::{Act, Hostile};
use shardlimit::{Carry, Decision, FailurePolicy, Leases, Limiter, NamedLimit, Shards};

static PANICS: AtomicUsize = AtomicUsize::new(0);

const EVERY: [&str; 6] = [
    "token-bucket 3000/s burst 300",
    "leaky-bucket 3000/s capacity 300",
    "fixed-window 300/s",
    "sliding-window 300/s",
    "sliding-log 300/s",
    "pacing-queue 3000/s capacity 300",
];
const EXTREMES: [i64; 12] =
    [0, 1, -1, 2, 1 << 52, (1 << 53) - 1, 1 << 53, (1 << 53) + 1, -(1 << 53), i64::MAX, i64::MIN, 1_000_000];

/// Good enough to vary replies, and the same in every run.
struct Dice(AtomicU64);

impl Dice {
    fn roll(&self, below: usize) -> usize {
        let number = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((mixed ^ (mixed >> 27)) >> 11) as usize % below
    }
}

/// The elements of a list as they are written.
fn elements(reply: &[u8]) -> Option<Vec<Vec<u8>>> {
    let line = |at: usize| reply[at..].iter().position(|byte| *byte == b'\n').map(|end| at + end + 1);
    let mut at = line(0).filter(|_| reply[0] == b'*')?;
    let mut elements = Vec::new();
    while at < reply.len() {
        let mut end = line(at)?;
        if reply[at] == b'$' {
            end += std::str::from_utf8(&reply[at + 1..end - 2]).ok()?.parse::<usize>().ok()? + 2;
        }
        elements.push(reply[at..end].to_vec());
        at = end;
    }
    Some(elements)
}

/// The same list with one thing wrong.
fn garble(dice: &Dice, reply: Vec<u8>) -> Vec<u8> {
    let Some(mut elements) = elements(&reply).filter(|elements| !elements.is_empty()) else { return reply };
    let at = dice.roll(elements.len());
    match (dice.roll(10), elements[at][0]) {
        (0, _) => drop(elements.remove(at)),
        (1, _) => elements.insert(at, elements[dice.roll(elements.len())].clone()),
        (_, b'$') => {
            let text = elements[at].iter().position(|byte| *byte == b'\n').unwrap() + 1;
            let mut bytes = elements[at][text..elements[at].len() - 2].to_vec();
            match dice.roll(4) {
                0 => bytes.truncate(dice.roll(bytes.len() + 1)),
                1 => bytes.push(0xff),
                _ if bytes.is_empty() => bytes = vec![0; 16],
                _ => {
                    let index = dice.roll(bytes.len());
                    bytes[index] = [0, 1, 0x7f, 0x80, 0xff, bytes[index] ^ 1][dice.roll(6)];
                }
            }
            elements[at] = [format!("${}\r\n", bytes.len()).as_bytes(), &bytes, b"\r\n"].concat();
        }
        _ => elements[at] = format!(":{}\r\n", EXTREMES[dice.roll(EXTREMES.len())]).into_bytes(),
    }
    [format!("*{}\r\n", elements.len()).into_bytes(), elements.concat()].concat()
}

/// Everything that a caller can ask for. What is answered does not matter.
async fn use_all(limit: &NamedLimit, key: &str, other: &str) {
    let _ = limit.acquire(key).await;
    if let Ok(Decision::Allowed(allowed)) = limit.acquire_n(key, 7).await {
        let _ = limit.settle(key, allowed.into_receipt(), 3).await;
    }
    // More than a shard has: gathered.
    if let Ok(Decision::Allowed(allowed)) = limit.acquire_n(key, 150).await {
        let _ = limit.refund(key, allowed.into_receipt()).await;
    }
    let _ = limit.acquire_within(key, 300, Duration::from_millis(20)).await;
    let _ = limit.peek(key).await;
    let _ = limit.plan(key).await;
    let _ = limit.limit_of(key).await;
    let _ = limit.set_limit_of(key, other.parse().unwrap(), Carry::Proportional).await;
    let _ = limit.reset(key).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_number_of_a_server_makes_anything_panic() {
    std::panic::set_hook(Box::new(|panic| {
        PANICS.fetch_add(1, Ordering::SeqCst);
        eprintln!("{panic}\n{}", std::backtrace::Backtrace::force_capture());
    }));
    let server = Hostile::start();
    let (dice, garbled) = (Arc::new(Dice(AtomicU64::new(1))), Arc::new(AtomicUsize::new(0)));
    let start = |shards| {
        let builder = Limiter::builder().redis([server.url()]).timeout(Duration::from_millis(200)).shards(shards);
        builder.deadline(Duration::from_secs(60)).on_failure(FailurePolicy::Error).build().unwrap()
    };
    for shards in [Shards::Off, Shards::Exactly(3.try_into().unwrap()), Shards::Auto] {
        let counter = Arc::clone(&garbled);
        let rolls = Arc::clone(&dice);
        server.attack(move |words, _| {
            if words[0].starts_with(b"EVAL") && rolls.roll(3) == 0 {
                counter.fetch_add(1, Ordering::SeqCst);
                let rolls = Arc::clone(&rolls);
                return Act::Instead(Box::new(move |reply| garble(&rolls, reply)));
            }
            Act::Honest
        });
        let limiter = start(shards);
        for (number, text) in EVERY.into_iter().enumerate() {
            let limit = limiter.define(&format!("limit-{number}"), text.parse().unwrap()).unwrap();
            let leased = format!("leased-{number}");
            let leased =
                limiter.define_leased(&leased, text.parse().unwrap(), Leases::default()).unwrap_or(limit.clone());
            for round in 0..40 {
                // Another key each time: a shard that was garbled is not asked for a while.
                let (key, other) = (format!("key-{round}"), EVERY[(number + round) % 4]);
                tokio::join!(use_all(&limit, &key, other), use_all(&limit, &key, other), use_all(&leased, &key, text));
            }
        }
        server.relent();
        let after = start(shards).define("after", EVERY[0].parse().unwrap()).unwrap();
        assert!(after.acquire("alice").await.unwrap().is_allowed());
    }
    let garbled = garbled.load(Ordering::SeqCst);
    println!("{garbled} replies were garbled");
    assert!(garbled > 1_000, "only {garbled} replies were garbled");
    assert_eq!(PANICS.load(Ordering::SeqCst), 0);
}
