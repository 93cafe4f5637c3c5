//! Consistent hashing: which node of a ring of independent servers has which slot.
//!
//! Maglev: each node has an order of the slots of its own, and nodes take turns to take the next free one. `benches/ring.rs` has the
//! figures that decided it against rendezvous hashing and points on a circle: with up to ten nodes it moves as few slots as they do
//! when a node comes or goes, and all nodes have equally many, where those are up to 7 and 32 % off.

use std::vec::IntoIter;

use crate::key::{Slot, plan_seed};

/// The greatest weight of a node.
pub(crate) const MOST_WEIGHT: u16 = 100;

/// The index of the node that has each slot. A node is its name and its weight, whatever its place in the list: clients that list
/// them in another order agree. Without nodes, or with weights of zero only, nobody has anything.
pub(crate) fn assign(nodes: &[(&str, u16)]) -> Vec<Option<usize>> {
    let most = nodes.iter().map(|(_, weight)| u32::from(*weight)).max().unwrap_or(0);
    let mut owners = vec![None; usize::from(Slot::COUNT)];
    if most == 0 {
        return owners;
    }
    let mut takers: Vec<Taker> = nodes.iter().enumerate().map(|(index, node)| Taker::new(index, *node)).collect();
    takers.sort_unstable_by_key(|taker| (taker.seed, taker.index));
    let mut left = owners.len();
    loop {
        for taker in &mut takers {
            // One with half of the greatest weight takes every second turn.
            taker.credit += taker.weight;
            if taker.credit < most {
                continue;
            }
            taker.credit -= most;
            let free = taker.order.find(|slot| owners[usize::from(*slot)].is_none()).expect("one is left");
            owners[usize::from(free)] = Some(taker.index);
            left -= 1;
            if left == 0 {
                return owners;
            }
        }
    }
}

/// A node, and how far it has come in its order of the slots.
struct Taker {
    index: usize,
    weight: u32,
    credit: u32,
    /// By which nodes take turns.
    seed: u64,
    /// The slots that it has not come to.
    order: IntoIter<u16>,
}

impl Taker {
    fn new(index: usize, (name, weight): (&str, u16)) -> Self {
        let seed = mix(plan_seed("ring", name.as_bytes()));
        let mut order: Vec<u16> = (0..Slot::COUNT).collect();
        // As good as drawn by lot. Steps of one length, which are quicker to come by, make pairs of nodes that are always after the
        // same slots, and then more have to move.
        order.sort_by_cached_key(|slot| mix(seed ^ mix(u64::from(*slot))));
        Self { index, weight: weight.into(), credit: 0, seed, order: order.into_iter() }
    }
}

/// The finish of `SplitMix64`: no library's next release may change it.
fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shares(nodes: &[(&str, u16)]) -> Vec<usize> {
        let owners = assign(nodes);
        (0..nodes.len()).map(|index| owners.iter().filter(|owner| **owner == Some(index)).count()).collect()
    }

    #[test]
    fn weights_are_parts_of_the_whole() {
        assert_eq!(shares(&[("a", 1), ("b", 1)]), [8_192, 8_192]);
        assert_eq!(shares(&[("a", 3), ("b", 1)]), [12_288, 4_096]);
        assert_eq!(shares(&[("a", 50), ("b", 100), ("c", 0)]), [5_461, 10_923, 0]);
        assert_eq!(shares(&[("a", 0)]), [0]);
        assert_eq!(assign(&[]), vec![None; 16_384]);
    }

    /// Clients of all releases must agree.
    #[test]
    fn the_table_never_changes() {
        let owners = assign(&[("10.0.0.1:6379", 1), ("10.0.0.2:6379", 2), ("10.0.0.3:6379", 1)]);
        let text: Vec<u8> = owners.iter().map(|owner| b'0' + owner.unwrap() as u8).collect();
        assert_eq!(crc16::State::<crc16::XMODEM>::calculate(&text), 59_151);
    }

    proptest! {
        #[test]
        fn the_order_of_the_list_does_not_count(
            nodes in prop::collection::hash_map("[a-z]{1,8}", 1..=MOST_WEIGHT, 1..8),
            turn in 0_usize..8,
        ) {
            let nodes: Vec<(&str, u16)> = nodes.iter().map(|(name, weight)| (name.as_str(), *weight)).collect();
            let mut turned = nodes.clone();
            turned.rotate_left(turn % nodes.len());
            let names = |nodes: &[(&str, u16)]| -> Vec<String> {
                assign(nodes).into_iter().map(|owner| nodes[owner.unwrap()].0.to_owned()).collect()
            };
            prop_assert_eq!(names(&nodes), names(&turned));
        }

        /// When one of up to ten goes, what the others had stays with them, but for a tenth of what has to move.
        #[test]
        fn few_slots_move(count in 2_usize..=10, gone in 0_usize..10, set: u8) {
            let names: Vec<String> = (0..count).map(|node| format!("10.0.{set}.{node}:6379")).collect();
            let nodes: Vec<(&str, u16)> = names.iter().map(|name| (name.as_str(), 1)).collect();
            let gone = gone % count;
            let mut fewer = nodes.clone();
            fewer.remove(gone);
            let (all, fewer) = (assign(&nodes), assign(&fewer));
            let stays = |(one, other): &(&Option<usize>, &Option<usize>)| {
                one.unwrap() == other.unwrap() + usize::from(other.unwrap() >= gone)
            };
            let moved = 16_384 - all.iter().zip(&fewer).filter(stays).count();
            prop_assert!(moved * count * 10 <= 16_384 * 11, "{moved} of 16384 with {count} nodes");
        }
    }
}
