//! A sub-key as it is stored: a head that all scripts know, a share with its state that only the scripts of one kernel
//! know, and at home the ledger.

use super::GrantId;
#[cfg(any(test, model))]
use crate::clock::Micros;
use crate::kernel::State;
use crate::kernel::bucket::Bucket;
use crate::kernel::fixed_window::FixedWindow;
#[cfg(any(test, model))]
use crate::kernel::sliding_window::{Part, SlidingWindow};
use crate::limit::Share;

/// The version of everything on the wire. A script refuses states of any other.
pub(super) const VERSION: u8 = 1;
/// Version, kernel, kind, id, where the ledger begins.
const LEDGER_AT: usize = 3 + GrantId::SIZE;
/// And since when runs are counted, how many they are, and how many there were a second before that.
const HEAD: usize = LEDGER_AT + 4 + 8 + 4 + 4;

/// What a sub-key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// The record of the key: its share and its ledger.
    Home = 0,
    /// A share that home lent.
    Lent = 1,
    /// A share that was closed, with what was left of it.
    #[cfg_attr(
        not(any(test, model)),
        expect(dead_code, reason = "only scripts make one; a client passes its bytes on")
    )]
    Tombstone = 2,
}

/// Which kernel's scripts know the share and the state.
pub(super) fn kernel(share: &Share) -> u8 {
    match share {
        Share::Bucket(_) => 1,
        Share::Fixed(_) => 2,
        Share::Sliding(_) => 3,
        Share::Composite(_) => 4,
    }
}

/// The bytes of a sub-key. No state is one that is as new.
pub(crate) fn pack(kind: Kind, id: GrantId, share: &Share, state: Option<&State>, ledger: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD + 44 + ledger.len());
    bytes.extend([VERSION, kernel(share), kind as u8]);
    bytes.extend(id.to_bytes());
    bytes.extend([0; HEAD - LEDGER_AT]);
    put_body(&mut bytes, share, state);
    let ledger_at = bytes.len() as u32;
    bytes[LEDGER_AT..LEDGER_AT + 4].copy_from_slice(&ledger_at.to_le_bytes());
    bytes.extend(ledger);
    bytes
}

/// A share and its state, as the scripts of its kernel know them.
pub(super) fn body(share: &Share, state: Option<&State>) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_body(&mut bytes, share, state);
    bytes
}

fn put_body(bytes: &mut Vec<u8>, share: &Share, state: Option<&State>) {
    let mut put = |numbers: &[i64]| numbers.iter().for_each(|number| bytes.extend(number.to_le_bytes()));
    match share {
        Share::Bucket(share) => {
            let bucket = match state {
                Some(State::Bucket(bucket)) => *bucket,
                _ => Bucket { level: share.capacity, seen: 0 },
            };
            put(&[share.rate, share.cost, share.burst as i64]);
            bytes.push(share.paced.into());
            bytes.extend(bucket.level.to_le_bytes());
            bytes.extend(bucket.seen.to_le_bytes());
        }
        Share::Fixed(share) => {
            let window = match state {
                Some(State::Fixed(window)) => *window,
                _ => FixedWindow { start: 0, used: 0 },
            };
            put(&[share.permits, share.window, window.start, window.used].map(|number| number as i64));
        }
        Share::Sliding(share) => {
            let window = match state {
                Some(State::Sliding(window)) => Some(window),
                _ => None,
            };
            let (seen, used) = window.map_or((0, 0), |window| (window.seen, window.used));
            put(&[share.permits, share.window, share.step, seen, used].map(|number| number as i64));
            bytes.extend(window.map_or(0, |window| window.parts.len() as u32).to_le_bytes());
            for part in window.iter().flat_map(|window| &window.parts) {
                bytes.extend(part.start.to_le_bytes());
                bytes.extend(part.permits.to_le_bytes());
            }
        }
        Share::Composite(shares) => {
            let states = match state {
                Some(State::Composite(states)) => &**states,
                _ => &[],
            };
            bytes.push(shares.len() as u8);
            for (index, share) in shares.iter().enumerate() {
                bytes.push(kernel(share));
                put_body(bytes, share, states.get(index).and_then(Option::as_ref));
            }
        }
    }
}

/// Whether these bytes begin as a share does that was lent under this id: one of this kernel, if it is known.
pub(super) fn is_lent(bytes: &[u8], share: Option<&Share>, id: GrantId) -> bool {
    bytes.len() > HEAD
        && (bytes[0], bytes[2]) == (VERSION, Kind::Lent as u8)
        && share.is_none_or(|share| bytes[1] == kernel(share))
        && bytes[3..3 + GrantId::SIZE] == id.to_bytes()
}

/// A sub-key read back, to the last byte.
#[cfg(any(test, model))]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Packed {
    pub kind: Kind,
    pub id: GrantId,
    pub share: Share,
    pub state: State,
    pub ledger: Vec<u8>,
}

/// Reads what a test put there or a script wrote; anything else fails the test.
#[cfg(any(test, model))]
pub(crate) fn unpack(bytes: &[u8]) -> Packed {
    assert_eq!(bytes[0], VERSION);
    let kind = [Kind::Home, Kind::Lent, Kind::Tombstone][usize::from(bytes[2])];
    let id = GrantId::from_bytes(&bytes[3..3 + GrantId::SIZE]).expect("an id");
    let (share, state, size) = unpack_body(bytes[1], &bytes[HEAD..]);
    let ledger_at = u32::from_le_bytes(bytes[LEDGER_AT..LEDGER_AT + 4].try_into().unwrap()) as usize;
    assert_eq!(ledger_at, HEAD + size, "the ledger begins behind the state");
    Packed { kind, id, share, state, ledger: bytes[ledger_at..].to_vec() }
}

/// What a bucket's bytes say of leases; none if there are none.
#[cfg(test)]
pub(crate) fn leased(bytes: &[u8]) -> Option<crate::kernel::leased::Leased> {
    let number = |at: usize| u64::from_le_bytes(bytes[HEAD + at..HEAD + at + 8].try_into().unwrap());
    let read = |from| [0, 8, 16, 24].map(|at| number(from + at));
    let [held_for, counted, lately, before] = (bytes[HEAD + 24] == LEASED).then(|| read(BUCKET))?;
    Some(crate::kernel::leased::Leased { held_for, counted, lately, before })
}

/// The flag of a bucket that keeps room for leases; what its share and state take, and what the leases.
#[cfg(any(test, model))]
const LEASED: u8 = 2;
#[cfg(any(test, model))]
const BUCKET: usize = 41;
#[cfg(any(test, model))]
const LEASES: usize = 32;

#[cfg(any(test, model))]
fn unpack_body(kernel: u8, bytes: &[u8]) -> (Share, State, usize) {
    use crate::limit::{BucketShare, WindowShare};
    let number = |at: usize| i64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let whole = |at: usize| u64::try_from(number(at)).expect("not negative");
    match kernel {
        1 => {
            let (rate, cost, burst) = (number(0), number(8), whole(16));
            let capacity = burst as i64 * cost;
            let refill = (capacity as u64).div_ceil(rate.max(1) as u64);
            let share = BucketShare { rate, cost, burst, capacity, refill, paced: bytes[24] == 1 };
            let size = if bytes[24] == LEASED { BUCKET + LEASES } else { BUCKET };
            (Share::Bucket(share), State::Bucket(Bucket { level: number(25), seen: whole(33) }), size)
        }
        2 => {
            let share = WindowShare { permits: whole(0), window: whole(8), step: whole(8) };
            (Share::Fixed(share), State::Fixed(FixedWindow { start: whole(16), used: whole(24) }), 32)
        }
        3 => {
            let share = WindowShare { permits: whole(0), window: whole(8), step: whole(16) };
            let count = u32::from_le_bytes(bytes[40..44].try_into().unwrap()) as usize;
            let part = |index: usize| Part { start: whole(44 + index * 16) as Micros, permits: whole(52 + index * 16) };
            let parts = (0..count).map(part).collect();
            let window = SlidingWindow { parts, used: whole(32), seen: whole(24) as Micros };
            (Share::Sliding(share), State::Sliding(Box::new(window)), 44 + count * 16)
        }
        4 => {
            let (mut shares, mut states, mut at) = (Vec::new(), Vec::new(), 1);
            for _ in 0..bytes[0] {
                let (share, state, size) = unpack_body(bytes[at], &bytes[at + 1..]);
                at += 1 + size;
                shares.push(share);
                states.push(Some(state));
            }
            (Share::Composite(shares.into()), State::Composite(states.into()), at)
        }
        other => panic!("kernel {other}"),
    }
}
