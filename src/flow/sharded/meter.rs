//! How much a shard granted lately.

use crate::clock::Micros;

/// Permits that the shard granted, by the clock of this process, in the present span and in the one before. Small, for an idle key
/// keeps it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Meter {
    /// The number of the span.
    pub number: u32,
    pub present: u32,
    pub before: u32,
}

impl Meter {
    pub(super) fn add(&mut self, permits: u64, span: Micros, now: Micros) {
        self.turn(span, now);
        self.present = self.present.saturating_add(u32::try_from(permits).unwrap_or(u32::MAX));
    }

    /// So many were not used after all. It does not say when they were granted: those of now go first, so that what was used lately is
    /// never made out to be more.
    pub(super) fn take_off(&mut self, permits: u64, span: Micros, now: Micros) {
        self.turn(span, now);
        let permits = u32::try_from(permits).unwrap_or(u32::MAX);
        let present = permits.min(self.present);
        self.present -= present;
        self.before = self.before.saturating_sub(permits - present);
    }

    fn turn(&mut self, span: Micros, now: Micros) {
        let number = (now / span) as u32;
        if self.present == 0 && self.before == 0 {
            // It may never have had one.
            self.number = number;
        }
        match number.wrapping_sub(self.number) as i32 {
            // What was sent before the last edge counts for the present.
            ..=0 => {}
            1 => (self.number, self.before, self.present) = (number, self.present, 0),
            _ => (self.number, self.before, self.present) = (number, 0, 0),
        }
    }

    /// The same at this moment, by spans of another length if they are; nothing if all of it is long past.
    pub(super) fn by(mut self, span: Micros, other: Micros, now: Micros) -> Self {
        self.turn(span, now);
        if span != other {
            // As many as come to the same rate.
            let rate = self.rate(span, now);
            self = Self::default();
            self.add((rate * (other + now % other) as f64 / 1e6) as u64, other, now);
        }
        if self.present == 0 && self.before == 0 { Self::default() } else { self }
    }

    /// Permits a second.
    pub(super) fn rate(&mut self, span: Micros, now: Micros) -> f64 {
        self.turn(span, now);
        (u64::from(self.before) + u64::from(self.present)) as f64 * 1e6 / (span + now % span) as f64
    }
}
