//! One table, slot → tag.
//!
//! Tags become part of the names of keys that outlive the program, so the table may never change: for each slot it has
//! the first string that hashes there, shorter ones first, in the order of [`LETTERS`].

use std::sync::OnceLock;

use super::slot::Slot;

const LETTERS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
/// Four letters reach every slot; three leave some out.
const LONGEST: usize = 4;

#[derive(Clone, Copy, Default)]
struct Tag {
    letters: [u8; LONGEST],
    length: u8,
}

/// Made by the first call: 60,822 strings are tried until every slot has one.
static TAGS: OnceLock<Box<[Tag]>> = OnceLock::new();

pub(super) fn of(slot: Slot) -> &'static str {
    let tag = &TAGS.get_or_init(search)[usize::from(slot.number())];
    std::str::from_utf8(&tag.letters[..usize::from(tag.length)]).unwrap_or_default()
}

fn search() -> Box<[Tag]> {
    let mut tags = vec![Tag::default(); usize::from(Slot::COUNT)];
    let mut missing = tags.len();
    for length in 1..=LONGEST {
        let strings = LETTERS.len().pow(length as u32);
        for number in 0..strings {
            if missing == 0 {
                return tags.into();
            }
            let letters = spell(number, length);
            let tag = &mut tags[usize::from(Slot::of(&letters[..length]).number())];
            if tag.length == 0 {
                *tag = Tag { letters, length: length as u8 };
                missing -= 1;
            }
        }
    }
    tags.into()
}

/// The number in base 36, with this many digits.
fn spell(mut number: usize, length: usize) -> [u8; LONGEST] {
    let mut letters = [0; LONGEST];
    for letter in letters[..length].iter_mut().rev() {
        *letter = LETTERS[number % LETTERS.len()];
        number /= LETTERS.len();
    }
    letters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_has_a_short_printable_tag_that_leads_there() {
        let mut seen = std::collections::HashSet::new();
        for slot in Slot::all() {
            let tag = slot.tag();
            assert!((1..=LONGEST).contains(&tag.len()), "{slot:?}: {tag:?}");
            assert!(tag.bytes().all(|byte| LETTERS.contains(&byte)));
            assert_eq!(Slot::of(tag.as_bytes()), slot);
            assert_eq!(Slot::of(format!("p:{{{tag}}}:name:{{other}}").as_bytes()), slot);
            assert!(seen.insert(tag), "{tag:?} stands twice");
        }
    }

    /// Keys of running systems carry these tags.
    #[test]
    fn the_table_never_changes() {
        let all: String = Slot::all().map(Slot::tag).collect::<Vec<_>>().join(",");
        assert_eq!((all.len(), crc16::State::<crc16::XMODEM>::calculate(all.as_bytes())), (64_444, 38_200));
    }
}
