//! Ceilings: the most that a shard can have now, from its last answer.
//!
//! An answer describes the shard at a moment after its request was sent. So whatever came back since has come back
//! after the sending: counted from there, the ceiling can only be too high. A call for more than that is denied without
//! asking. What it does not see are the refunds and resets of other clients: so an answer counts for a while only.

use crate::clock::Micros;
use crate::kernel::Header;
use crate::kernel::batch::NEVER;
use crate::limit::{BucketShare, Share};
use crate::sync::AtomicCell;

/// Clients that were denied together do not ask again together: each waits for up to this much longer, and a quarter of it
/// at the least, drawn anew for each answer: a question that comes a little too early is asked in vain. Two milliseconds
/// hold some batches of a busy client, and no share is split so small that it fills up in ten times that. A share that
/// does takes an eighth of its refill.
pub(super) const SPREAD: Micros = 2_000;

const SECOND: Micros = 1_000_000;

/// Read without a lock, by every call that goes to the store.
pub(crate) struct Ceiling(AtomicCell<Known>);

/// What the last answer said.
#[derive(Clone, Copy)]
pub(super) struct Known {
    /// When the request was sent, by this process's clock.
    sent: Micros,
    /// Until then it counts; 0 before the first answer.
    holds: Micros,
    /// Units of a bucket, permits of a window.
    level: i64,
    /// When the shard is as new.
    new_at: Micros,
    /// Asks for at least `from` permits are denied until then: of a window, and of a bucket that keeps room for leases.
    until: Micros,
    from: u64,
    /// What comes back counts so much later.
    spread: Micros,
}

/// What is known of all shards of a key together, by this process's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shut {
    /// Until then it counts, and nothing can be granted.
    pub holds: Micros,
    /// When something could be: what those are told who are denied until then.
    pub opens_at: Micros,
}

impl Shut {
    /// In few bytes, for an idle key: until when it counts, and how many whole seconds after that something could be granted.
    pub(super) fn short(self) -> (Micros, u16) {
        let Self { holds, opens_at } = self;
        (holds, u16::try_from(opens_at.saturating_sub(holds) / SECOND).unwrap_or(u16::MAX))
    }

    /// The same again, less what is shorter than a second.
    pub(super) fn of_short(holds: Micros, further: u16) -> Self {
        Self { holds, opens_at: holds + Micros::from(further) * SECOND }
    }
}

/// What a lane is told of an answer.
pub(super) struct Note<'a> {
    pub share: &'a Share,
    pub header: &'a Header,
    /// An ask of the batch that was denied, with its lack.
    pub denied: Option<(u64, i64)>,
    pub sent: Micros,
    /// For how long it counts, at the most.
    pub cap: Micros,
}

impl Ceiling {
    pub(super) fn new() -> Self {
        Self(AtomicCell::new(Known::NOTHING))
    }

    #[inline]
    pub(super) fn known(&self) -> Known {
        self.0.load()
    }

    /// Takes note of an answer. Those of one lane come one after the other, so the last one is the latest.
    pub(super) fn note(&self, note: &Note<'_>) {
        self.0.store(Known::from(note));
    }

    /// Takes over what is known of a key that was idle, and counts until `holds`: nothing can be granted before `opens_at`.
    pub(super) fn shut(&self, share: &Share, now: Micros, Shut { holds, opens_at }: Shut) {
        let level = match share {
            // So much that a permit is there by then.
            Share::Bucket(bucket) => {
                bucket.cost - bucket.rate * opens_at.saturating_sub(now).min(2 * bucket.refill) as i64
            }
            Share::Fixed(_) | Share::Sliding(_) | Share::Composite(_) => 0,
        };
        self.0.store(Known { sent: now, holds, level, new_at: opens_at, until: opens_at, from: 1, spread: 0 });
    }

    /// Forgets what it knew: something came back that its last answer does not tell of.
    pub(super) fn clear(&self) {
        self.0.store(Known::NOTHING);
    }
}

impl Known {
    const NOTHING: Self = Self { sent: 0, holds: 0, level: 0, new_at: 0, until: 0, from: 0, spread: 0 };

    fn from(note: &Note<'_>) -> Self {
        let Note { share, header, denied, sent, cap } = *note;
        let after = |lack: i64| sent + (lack as u64).div_ceil(share.rate() as u64);
        let denied = denied.filter(|(_, lack)| *lack != NEVER);
        let (from, until) = match share {
            // What is leased of it has its place there: for so long nothing comes back, whatever the level and the rate say.
            Share::Bucket(bucket) => denied
                .filter(|(permits, lack)| *lack > *permits as i64 * bucket.cost - header.level)
                .map_or((u64::MAX, 0), |(permits, lack)| (permits, after(lack))),
            Share::Fixed(window) => {
                let ends = header.at - header.at % window.window + window.window;
                (header.level.max(0) as u64 + 1, sent + (ends - header.now))
            }
            Share::Sliding(_) | Share::Composite(_) => {
                denied.map_or((u64::MAX, 0), |(permits, lack)| (permits, after(lack)))
            }
        };
        let exhausted = denied.is_some() || header.level < share.cost();
        let most = SPREAD.min(period(share) / 8);
        Self {
            sent,
            holds: sent + rand::random_range(cap / 2..=cap),
            level: header.level,
            new_at: after(header.missing.max(0)),
            until,
            from,
            spread: if exhausted { rand::random_range(most / 4..=most) } else { 0 },
        }
    }

    /// Whether there was an answer that still counts.
    #[inline]
    pub(super) fn counts(&self, now: Micros) -> bool {
        now < self.holds
    }

    /// How long until an ask could be granted, behind asks for `ahead` permits that are on their way; zero if it could be
    /// now, and none if never. An answer that counts no more is none: it could be granted.
    #[inline]
    pub(super) fn opens_in(&self, share: &Share, permits: u64, ahead: u64, now: Micros) -> Option<Micros> {
        let wanted = permits.saturating_add(ahead);
        match share {
            Share::Bucket(bucket) => {
                if permits > bucket.burst {
                    return None;
                }
                // Two full buckets are as far as the units of a share are exact.
                let need = wanted.min(2 * bucket.burst) as i64 * bucket.cost;
                let have = if self.counts(now) { self.units(bucket, self.spread, now) } else { bucket.capacity };
                let lack = need - have;
                let without_room = if permits >= self.from { self.shut_for(now) } else { 0 };
                if lack <= 0 {
                    return Some(without_room);
                }
                // Within the spread nothing has come back yet, by what is counted here.
                let until_counted = self.spread.saturating_sub(now.saturating_sub(self.sent));
                Some(((lack as u64).div_ceil(bucket.rate as u64) + until_counted).max(without_room))
            }
            Share::Fixed(window) | Share::Sliding(window) if permits > window.permits => None,
            Share::Fixed(_) => Some(if wanted >= self.from { self.shut_for(now) } else { 0 }),
            Share::Composite(_) if permits > share.burst() => None,
            Share::Sliding(_) | Share::Composite(_) => Some(if permits >= self.from { self.shut_for(now) } else { 0 }),
        }
    }

    /// How long asks for `from` permits are still denied.
    #[inline]
    fn shut_for(&self, now: Micros) -> Micros {
        if self.counts(now) { (self.until + self.spread).saturating_sub(now) } else { 0 }
    }

    /// When an ask could be granted; 0 if one can be: callers may have read the clock a little earlier.
    pub(super) fn opens_at(&self, share: &Share, now: Micros) -> Micros {
        match self.opens_in(share, 1, 0, now) {
            None | Some(0) => 0,
            Some(opens_in) => now.saturating_add(opens_in),
        }
    }

    /// Until when that is so without another look.
    pub(super) fn shut_until(&self, share: &Share, now: Micros) -> Micros {
        self.opens_at(share, now).min(self.holds)
    }

    /// The most permits that the shard can have. For a sliding window and a composite, of which an answer does not say when
    /// they come back, an estimate.
    pub(super) fn most(&self, share: &Share, now: Micros) -> u64 {
        match share {
            Share::Bucket(bucket) if self.counts(now) => match self.units(bucket, 0, now) {
                units if units < bucket.cost => 0,
                units => units as u64 / bucket.cost as u64,
            },
            Share::Bucket(bucket) => bucket.burst,
            Share::Fixed(_) | Share::Composite(_) if self.counts(now) && now < self.until => self.level.max(0) as u64,
            Share::Sliding(window) if self.counts(now) => {
                // What was used comes back about evenly.
                let since = now.saturating_sub(self.sent).min(window.window);
                let used = window.permits.saturating_sub(self.level.max(0) as u64);
                window.permits - (used as f64 * (1.0 - since as f64 / window.window as f64)) as u64
            }
            Share::Fixed(_) | Share::Sliding(_) | Share::Composite(_) => share.burst(),
        }
    }

    /// How long until the shard is as new, as far as is known.
    pub(super) fn reset_after(&self, now: Micros) -> Micros {
        self.new_at.saturating_sub(now)
    }

    /// How long until a fixed window ends, as far as is known.
    pub(super) fn window_ends_in(&self, now: Micros) -> Micros {
        self.until.saturating_sub(now)
    }

    #[inline]
    fn units(&self, bucket: &BucketShare, spread: Micros, now: Micros) -> i64 {
        let since = now.saturating_sub(self.sent).saturating_sub(spread).min(2 * bucket.refill);
        (self.level + bucket.rate * since as i64).min(bucket.capacity)
    }
}

/// The time in which what a share holds comes back; of a composite, of the part that is the first.
pub(super) fn period(share: &Share) -> Micros {
    match share {
        Share::Bucket(bucket) => bucket.refill,
        Share::Fixed(window) | Share::Sliding(window) => window.window,
        Share::Composite(shares) => shares.iter().map(period).min().unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clients that were denied together must not ask again together, nor all at the end of what a ceiling counts for.
    #[test]
    fn no_two_ask_again_at_the_same_moment() {
        for text in ["token-bucket 1000/s burst 1000", "fixed-window 1000/s", "sliding-window 1000/s"] {
            let share = Share::whole(&text.parse().unwrap());
            let (sent, cap, most) = (1_000, 1_000_000, SPREAD.min(period(&share) / 8));
            let known = |left: i64, denied| {
                let header = Header { now: 5, at: 5, level: left * share.cost(), missing: 0 };
                Known::from(&Note { share: &share, header: &header, denied, sent, cap })
            };
            let many: Vec<Known> = (0..1_000).map(|_| known(0, Some((1, 500 * share.rate())))).collect();
            for part in 0..4 {
                let within = |value: u64, from: u64, to: u64| {
                    let quarter = (to - from) / 4;
                    (from + part * quarter..=from + (part + 1) * quarter).contains(&value)
                };
                let ends = many.iter().filter(|known| within(known.holds - sent, cap / 2, cap)).count();
                let spreads = many.iter().filter(|known| within(known.spread, most / 4, most)).count();
                assert!(ends > 150 && spreads > 150, "{text}: {ends} and {spreads} of 1,000 in part {part}");
            }
            assert!(many.iter().all(|known| (cap / 2..=cap).contains(&(known.holds - sent))), "{text}");
            assert!(many.iter().all(|known| (most / 4..=most).contains(&known.spread)), "{text}");
            assert_eq!(known(10, None).spread, 0, "{text}: who has some left waits for nothing");
        }
    }

    /// A bucket that keeps room for what is leased of it: its level and rate alone promised a permit long before there was room for one.
    #[test]
    fn a_bucket_without_room_is_shut_until_leases_are_forgotten() {
        let share = Share::whole(&"token-bucket 1000/s burst 100".parse().unwrap());
        let (cost, rate) = (share.cost(), share.rate());
        let header = Header { now: 5, at: 5, level: 0, missing: 100 * cost };
        let known = |permits, lack| {
            let note =
                Note { share: &share, header: &header, denied: Some((permits, lack)), sent: 1_000, cap: 1_000_000 };
            Known::from(&note)
        };
        let without_room = known(3, 80_000 * rate);
        let opens_in = |permits, now| without_room.opens_in(&share, permits, 0, now).unwrap();
        assert!((80_000..=80_000 + SPREAD).contains(&opens_in(3, 1_000)), "{}", opens_in(3, 1_000));
        assert!((40_000..=40_000 + SPREAD).contains(&opens_in(30, 41_000)), "40 are back by its level");
        assert!(opens_in(2, 1_000) < 10_000, "there may be room for fewer");
        assert_eq!(opens_in(3, 81_000 + SPREAD), 0);
        // Where there is room, what is lacking is all that counts.
        assert_eq!(known(3, 3 * cost).until, 0);
    }

    /// A caller that had read the clock a microsecond before the answer was noted was denied by a share that had
    /// millions left.
    #[test]
    fn an_open_share_is_shut_until_no_time_at_all() {
        for text in ["token-bucket 1000/s burst 1000", "fixed-window 1000/s", "sliding-window 1000/s"] {
            let share = Share::whole(&text.parse().unwrap());
            let ceiling = Ceiling::new();
            let note = |left: i64, denied| {
                let header = Header { now: 5, at: 5, level: left * share.cost(), missing: 0 };
                ceiling.note(&Note { share: &share, header: &header, denied, sent: 1_000, cap: 1_000_000 });
            };
            assert_eq!(ceiling.known().shut_until(&share, 1_001), 0, "{text}: nothing is known");
            note(10, None);
            assert_eq!(ceiling.known().shut_until(&share, 1_001), 0, "{text}");
            note(0, Some((1, 500 * share.rate())));
            assert!(ceiling.known().shut_until(&share, 1_001) > 1_001, "{text}");
        }
    }
}
