//! The Redis keys that hold a key's shards.

use crate::key::Slot;

/// The slot of a key's home: of the name and the key as they are, braces or not, so that nobody outside chooses it.
pub(crate) fn home_slot(name: &str, key: &[u8]) -> Slot {
    let mut crc = crc16::State::<crc16::XMODEM>::new();
    crc.update(name.as_bytes());
    crc.update(b":");
    crc.update(key);
    Slot::new(crc.get() % Slot::COUNT).expect("below the count")
}

/// What the planner draws a key's slots by: the same on every client and release, so that whoever plans anew finds the
/// sub-keys of the plan before.
pub(crate) fn plan_seed(name: &str, key: &[u8]) -> u64 {
    // FNV-1a: no library's next release may change it.
    let bytes = name.bytes().chain([b':']).chain(key.iter().copied());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// `prefix:{tag}:name:key`. Neither prefix nor name holds a brace, so the tag alone decides the slot; no number of the
/// limit is in it, so that a changed limit finds its state.
pub(crate) fn sub_key(prefix: &str, slot: Slot, name: &str, key: &[u8]) -> Box<[u8]> {
    let mut bytes = Vec::with_capacity(prefix.len() + name.len() + key.len() + 9);
    bytes.extend(prefix.as_bytes());
    bytes.extend(b":{");
    bytes.extend(slot.tag().as_bytes());
    bytes.extend(b"}:");
    bytes.extend(name.as_bytes());
    bytes.push(b':');
    bytes.extend(key);
    bytes.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever a key holds, its sub-keys lie where they are meant to.
        #[test]
        fn a_sub_key_lies_on_its_slot(number in 0..Slot::COUNT, key in prop::collection::vec(any::<u8>(), 1..80)) {
            let slot = Slot::new(number).unwrap();
            prop_assert_eq!(Slot::of(&sub_key("shardlimit", slot, "login", &key)), slot);
        }

        /// Two keys never share a sub-key, nor do two names.
        #[test]
        fn sub_keys_are_distinct(a in "[a-c:{}]{1,6}", b in "[a-c:{}]{1,6}") {
            let slot = Slot::of(b"x");
            let one = sub_key("p", slot, "n", a.as_bytes());
            prop_assert_eq!(one == sub_key("p", slot, "n", b.as_bytes()), a == b);
            prop_assert!(one != sub_key("p", slot, "m", b.as_bytes()));
        }
    }

    /// Clients of all releases must plan alike.
    #[test]
    fn the_seed_of_a_plan_never_changes() {
        assert_eq!(plan_seed("checkout", b"item:42"), 0x194e_307e_f8c2_4442);
        assert_ne!(plan_seed("checkout", b"item:42"), plan_seed("checkout", b"item:43"));
    }

    #[test]
    fn it_reads_as_documented() {
        let slot = home_slot("checkout", b"item:{42}");
        let text = String::from_utf8(sub_key("shardlimit", slot, "checkout", b"item:{42}").into()).unwrap();
        assert_eq!(text, format!("shardlimit:{{{}}}:checkout:item:{{42}}", slot.tag()));
    }
}
