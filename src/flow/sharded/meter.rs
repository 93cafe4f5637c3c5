//! How much a shard granted lately.

use crate::clock::Micros;

/// Permits that the shard granted, by the clock of this process, in the present span and in the one before. Small, for an idle key
/// keeps it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Meter {
    /// The number of the span.
    number: u32,
    present: u32,
    before: u32,
}

impl Meter {
    pub(super) fn add(&mut self, permits: u64, span: Micros, now: Micros) {
        self.turn(span, now);
        self.present = self.present.saturating_add(u32::try_from(permits).unwrap_or(u32::MAX));
    }

    fn turn(&mut self, span: Micros, now: Micros) {
        let number = (now / span) as u32;
        match number.wrapping_sub(self.number) as i32 {
            // What was sent before the last edge counts for the present.
            ..=0 => {}
            1 => (self.number, self.before, self.present) = (number, self.present, 0),
            _ => (self.number, self.before, self.present) = (number, 0, 0),
        }
    }

    /// Permits a second.
    pub(super) fn rate(&mut self, span: Micros, now: Micros) -> f64 {
        self.turn(span, now);
        (u64::from(self.before) + u64::from(self.present)) as f64 * 1e6 / (span + now % span) as f64
    }
}
