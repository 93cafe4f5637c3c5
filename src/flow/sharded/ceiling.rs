//! Ceilings: the most that a shard can have now, from its last answer.
//!
//! An answer describes the shard at a moment after its request was sent. So whatever came back since has come back
//! after the sending: counted from there, the ceiling can only be too high. Refunds of other clients are the one thing
//! that it does not see.

use crate::clock::Micros;
use crate::kernel::Header;
use crate::kernel::batch::NEVER;
use crate::limit::Share;
use crate::sync::{Mutex, lock};

pub(crate) struct Ceiling(Mutex<Known>);

#[derive(Clone, Copy)]
struct Known {
    share: Share,
    /// When the request was sent, by this process's clock; nothing is known before the first answer.
    sent: Option<Micros>,
    /// By the server's clock: a later fact wins.
    at: Micros,
    level: i64,
    /// When the shard is as new.
    new_at: Micros,
    /// Until then nothing comes back to a fixed window.
    window_ends: Micros,
    /// Asks for at least so many permits are denied until then.
    denied: Option<(u64, Micros)>,
}

impl Ceiling {
    pub(super) fn new(share: Share) -> Self {
        Self(Mutex::new(Known { share, sent: None, at: 0, level: 0, new_at: 0, window_ends: 0, denied: None }))
    }

    /// Takes note of an answer; `denied` is an ask of that batch that was, with its lack.
    pub(super) fn note(&self, share: &Share, header: &Header, denied: Option<(u64, i64)>, sent: Micros) {
        let known = &mut *lock(&self.0);
        if header.now < known.at && sent < known.sent.unwrap_or(0) {
            return;
        }
        let window_ends = match share {
            Share::Fixed(window) => sent + (header.at - header.at % window.window + window.window - header.now),
            Share::Bucket(_) | Share::Sliding(_) => 0,
        };
        let until = |lack: i64| sent + (lack as u64).div_ceil(share.rate() as u64);
        let denied = denied.filter(|(_, lack)| *lack != NEVER).map(|(permits, lack)| (permits, until(lack)));
        let (at, level, new_at) = (header.now, header.level, until(header.missing.max(0)));
        *known = Known { share: *share, sent: Some(sent), at, level, new_at, window_ends, denied };
    }

    /// Forgets what it knew: something came back that its last answer does not tell of.
    pub(super) fn clear(&self) {
        lock(&self.0).sent = None;
    }

    /// The most permits that the shard can have. For a sliding window, of which an answer does not say when it comes
    /// back, an estimate.
    pub(crate) fn most(&self, now: Micros) -> u64 {
        lock(&self.0).most(now)
    }

    /// How long until the shard is as new, as far as is known.
    pub(super) fn reset_after(&self, now: Micros) -> Micros {
        let known = lock(&self.0);
        if known.sent.is_some() { known.new_at.saturating_sub(now) } else { 0 }
    }

    /// How long until a fixed window ends, as far as is known.
    pub(super) fn window_ends_in(&self, now: Micros) -> Micros {
        lock(&self.0).window_ends.saturating_sub(now)
    }

    /// Whether an ask could be granted.
    pub(super) fn allows(&self, permits: u64, now: Micros) -> bool {
        let known = lock(&self.0);
        match known.share {
            Share::Bucket(_) | Share::Fixed(_) => known.most(now) >= permits,
            Share::Sliding(window) => {
                permits <= window.permits
                    && !known.denied.is_some_and(|(denied, until)| permits >= denied && now < until)
            }
        }
    }

    /// How long until an ask could be granted; zero if it could be now, and none if never.
    pub(super) fn wait_for(&self, permits: u64, now: Micros) -> Option<Micros> {
        if self.allows(permits, now) {
            return Some(0);
        }
        let known = lock(&self.0);
        match known.share {
            Share::Bucket(share) if permits <= share.burst => {
                let sent = known.sent.unwrap_or(now);
                let lack = (permits as i64 * share.cost - known.level).max(0) as u64;
                Some((sent + lack.div_ceil(share.rate as u64)).saturating_sub(now))
            }
            Share::Fixed(window) if permits <= window.permits => Some(known.window_ends.saturating_sub(now)),
            Share::Sliding(window) if permits <= window.permits => {
                known.denied.map(|(_, until)| until.saturating_sub(now))
            }
            _ => None,
        }
    }
}

impl Known {
    fn most(&self, now: Micros) -> u64 {
        let since = |sent: Micros| now.saturating_sub(sent);
        match (self.share, self.sent) {
            (Share::Bucket(share), None) => share.burst,
            (Share::Fixed(share) | Share::Sliding(share), None) => share.permits,
            (Share::Bucket(share), Some(sent)) => {
                let refilled = share.rate * since(sent).min(2 * share.refill) as i64;
                ((self.level + refilled).clamp(0, share.capacity) / share.cost) as u64
            }
            (Share::Fixed(share), Some(_)) if now >= self.window_ends => share.permits,
            (Share::Fixed(_), Some(_)) => self.level.max(0) as u64,
            (Share::Sliding(share), Some(sent)) => {
                // What was used comes back about evenly.
                let part = since(sent).min(share.window) as f64 / share.window as f64;
                let used = share.permits.saturating_sub(self.level.max(0) as u64);
                share.permits - (used as f64 * (1.0 - part)) as u64
            }
        }
    }
}
