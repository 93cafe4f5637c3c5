//! Which kind of consistent hashing spreads slots the most evenly, and moves the fewest when a node comes or goes?
//!
//! `cargo bench -p shardlimit --bench ring`
//!
//! It fails if the one that is used leaves its bounds: 1.1/M of the slots move with up to ten nodes, 1/M + 10 % with more, and all nodes
//! are within 5 % of each other's keys at a million of them.

// The table is no part of the API: its file is compiled in here, with the names that it uses.
#[path = "../src/topology/ring.rs"]
#[expect(dead_code, reason = "only the table is used")]
mod ring;
#[path = "../src/key/subkey.rs"]
#[expect(dead_code, unused_imports, reason = "only its hash is used")]
mod subkey;
mod key {
    pub(crate) use shardlimit::Slot;

    pub(crate) use super::subkey::plan_seed;
}

use std::time::Instant;

use key::Slot;

const SLOTS: usize = Slot::COUNT as usize;
const KEYS: usize = 1_000_000;

/// A way to give each slot to a node, by the nodes' names.
type Way = fn(&[String]) -> Vec<usize>;

const WAYS: [(&str, Way); 5] = [
    ("maglev, as used", used),
    ("rendezvous", rendezvous),
    ("bounded rendezvous", bounded),
    ("ring, 160 points a node", |nodes| points(nodes, 160)),
    ("ring, 1,000 points a node", |nodes| points(nodes, 1_000)),
];

fn main() {
    let keys = keys();
    println!(
        "{SLOTS} slots; moved: of all slots when one of M nodes goes, against 1/M; spread: of {KEYS} keys, the fullest and the"
    );
    println!("emptiest node against the mean; the worst of 5 sets of names\n");
    println!("| M | | moved by a removal | by an addition | × 1/M | fullest | emptiest | ms a table |");
    println!("|---:|---|---:|---:|---:|---:|---:|---:|");
    let mut is_good = true;
    for count in [2, 3, 5, 10, 30, 100] {
        for (index, (name, way)) in WAYS.iter().enumerate() {
            let mut worst = Row::default();
            for set in 0..5 {
                worst.take(&measure(*way, count, set, &keys));
            }
            let times = worst.removed.max(worst.added) * count as f64;
            println!(
                "| {count} | {name} | {:.2} % | {:.2} % | {times:.2} | {:+.1} % | {:+.1} % | {:.1} |",
                100.0 * worst.removed,
                100.0 * worst.added,
                100.0 * worst.fullest,
                100.0 * worst.emptiest,
                worst.millis,
            );
            if index == 0 {
                let share = 1.0 / count as f64;
                let most = if count <= 10 { 1.1 * share } else { share + 0.1 };
                is_good &=
                    worst.removed <= most && worst.added <= most && worst.fullest < 0.05 && worst.emptiest > -0.05;
            }
        }
    }
    assert!(is_good, "what is used leaves its bounds");
}

#[derive(Default)]
struct Row {
    removed: f64,
    added: f64,
    fullest: f64,
    emptiest: f64,
    millis: f64,
}

impl Row {
    fn take(&mut self, other: &Self) {
        self.removed = self.removed.max(other.removed);
        self.added = self.added.max(other.added);
        self.fullest = self.fullest.max(other.fullest);
        self.emptiest = self.emptiest.min(other.emptiest);
        self.millis = self.millis.max(other.millis);
    }
}

fn measure(way: Way, count: usize, set: usize, keys: &[u32]) -> Row {
    let names: Vec<String> = (0..=count).map(|node| format!("10.{set}.0.{node}:6379")).collect();
    let begun = Instant::now();
    let owners = way(&names[..count]);
    let millis = begun.elapsed().as_secs_f64() * 1e3;
    // Another index where a node in the middle is gone.
    let gone = count / 2;
    let mut fewer = names[..count].to_vec();
    fewer.remove(gone);
    let after: Vec<usize> = way(&fewer).into_iter().map(|node| node + usize::from(node >= gone)).collect();
    let more = way(&names);
    let moved =
        |after: &[usize]| owners.iter().zip(after).filter(|(one, other)| one != other).count() as f64 / SLOTS as f64;
    let mut loads = vec![0_u64; count];
    for (owner, keys) in owners.iter().zip(keys) {
        loads[*owner] += u64::from(*keys);
    }
    let mean = KEYS as f64 / count as f64;
    let off = |load: Option<&u64>| *load.expect("a node") as f64 / mean - 1.0;
    // An addition to M nodes is one of M + 1: its share is 1/(M + 1), held to 1/M.
    Row {
        removed: moved(&after),
        added: moved(&more),
        fullest: off(loads.iter().max()),
        emptiest: off(loads.iter().min()),
        millis,
    }
}

/// How many of the keys each slot has.
fn keys() -> Vec<u32> {
    let mut counts = vec![0; SLOTS];
    for key in 0..KEYS {
        counts[usize::from(Slot::of(format!("user:{key}").as_bytes()).number())] += 1;
    }
    counts
}

fn used(nodes: &[String]) -> Vec<usize> {
    let nodes: Vec<(&str, u16)> = nodes.iter().map(|name| (name.as_str(), 1)).collect();
    ring::assign(&nodes).into_iter().map(|owner| owner.expect("there are nodes")).collect()
}

fn rendezvous(nodes: &[String]) -> Vec<usize> {
    let seeds: Vec<u64> = nodes.iter().map(|name| hash(name, 0)).collect();
    let best = |slot: u64| (0..seeds.len()).max_by_key(|index| mix(seeds[*index] ^ mix(slot)));
    (0..SLOTS as u64).filter_map(best).collect()
}

/// The same, but the first that is not 2 % above the mean.
fn bounded(nodes: &[String]) -> Vec<usize> {
    let seeds: Vec<u64> = nodes.iter().map(|name| hash(name, 0)).collect();
    let mut room = vec![SLOTS * 102 / 100 / nodes.len() + 1; nodes.len()];
    let take = |slot: u64| {
        let open = (0..seeds.len()).filter(|index| room[*index] > 0);
        let best = open.max_by_key(|index| mix(seeds[*index] ^ mix(slot)))?;
        room[best] -= 1;
        Some(best)
    };
    (0..SLOTS as u64).filter_map(take).collect()
}

/// Points of each node on a circle; a slot goes to the next one.
fn points(nodes: &[String], count: u64) -> Vec<usize> {
    let mut circle: Vec<(u64, usize)> = nodes
        .iter()
        .enumerate()
        .flat_map(|(index, name)| (0..count).map(move |point| (hash(name, point), index)))
        .collect();
    circle.sort_unstable();
    let next = |slot: u64| circle[circle.partition_point(|(at, _)| *at < mix(slot)) % circle.len()].1;
    (0..SLOTS as u64).map(next).collect()
}

fn hash(name: &str, number: u64) -> u64 {
    mix(name.bytes().fold(number, |hash, byte| mix(hash ^ u64::from(byte))))
}

fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}
