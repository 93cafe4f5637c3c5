//! What does planning a key cost? At most 50 µs, on 1,000 masters too.
//!
//! `cargo bench -p shardlimit --bench planner`

// The planner is no part of the API: its files are compiled in here, with the names that they use.
#[path = "../src/plan/planner.rs"]
mod planner;
#[path = "../src/topology/snapshot.rs"]
#[expect(dead_code, unreachable_pub, reason = "only what the planner needs is used")]
mod snapshot;
mod key {
    pub(crate) use shardlimit::Slot;
}
mod topology {
    pub(crate) use crate::snapshot::Topology;
}

use std::hint::black_box;
use std::ops::RangeInclusive;
use std::time::Instant;

use key::Slot;
use planner::plan;
use snapshot::{Master, Topology};

const MOST_MICROS: f64 = 50.0;
const ROUNDS: usize = 5;
const PLANS: u64 = 500;

struct Case {
    masters: u16,
    layout: &'static str,
    shards: usize,
    topology: Topology,
    /// µs a plan in each round: of a new key, and of one whose plan is still good.
    micros: [Vec<f64>; 2],
}

fn main() {
    let mut cases = Vec::new();
    for masters in [3, 100, 1_000] {
        for (layout, owner) in [("contiguous", contiguous as fn(u16, u16) -> u16), ("striped", striped)] {
            let topology = topology(masters, owner);
            for shards in [3, 100, 1_000] {
                let micros = [Vec::new(), Vec::new()];
                cases.push(Case { masters, layout, shards, topology: topology.clone(), micros });
            }
        }
    }
    for round in 0..ROUNDS as u64 {
        for case in &mut cases {
            case.measure(round);
        }
    }

    println!("µs a plan, median of {ROUNDS} interleaved rounds of {PLANS} plans, each of another key\n");
    println!("{:>7}  {:<10}  {:>6}  {:>7}  {:>7}", "masters", "layout", "shards", "new", "present");
    let mut worst: f64 = 0.0;
    for Case { masters, layout, shards, micros, .. } in &mut cases {
        let [new, present] = micros.each_mut().map(|rounds| median(rounds));
        println!("{masters:>7}  {layout:<10}  {shards:>6}  {new:>7.2}  {present:>7.2}");
        worst = worst.max(new).max(present);
    }
    println!("\nhighest: {worst:.1} µs; at most {MOST_MICROS} are accepted");
}

impl Case {
    fn measure(&mut self, round: u64) {
        let keys: Vec<(Slot, u64)> = (0..PLANS)
            .map(|key| key + round * PLANS)
            .map(|key| (Slot::of(&key.to_be_bytes()), key.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
            .collect();
        let plans: Vec<Vec<Slot>> =
            keys.iter().map(|(home, seed)| plan(*home, *seed, &self.topology, self.shards, &[])).collect();

        let start = Instant::now();
        for (home, seed) in &keys {
            black_box(plan(*home, *seed, &self.topology, self.shards, &[]));
        }
        self.micros[0].push(start.elapsed().as_secs_f64() * 1e6 / PLANS as f64);

        let start = Instant::now();
        for ((home, seed), present) in keys.iter().zip(&plans) {
            black_box(plan(*home, *seed, &self.topology, self.shards, present));
        }
        self.micros[1].push(start.elapsed().as_secs_f64() * 1e6 / PLANS as f64);
    }
}

fn contiguous(slot: u16, masters: u16) -> u16 {
    (u32::from(slot) * u32::from(masters) / u32::from(Slot::COUNT)) as u16
}

fn striped(slot: u16, masters: u16) -> u16 {
    slot % masters
}

fn topology(masters: u16, owner: fn(u16, u16) -> u16) -> Topology {
    let listed = (0..masters).map(|number| {
        let master = Master { id: format!("{number:040x}").into(), host: "10.0.0.1".into(), port: number };
        let slots = (0..Slot::COUNT).filter(|slot| owner(*slot, masters) == number);
        (master, slots.map(|slot| slot..=slot).collect::<Vec<RangeInclusive<u16>>>())
    });
    Topology::new(1, listed).expect("every slot is listed once")
}

fn median(rounds: &mut [f64]) -> f64 {
    rounds.sort_by(f64::total_cmp);
    rounds[rounds.len() / 2]
}
