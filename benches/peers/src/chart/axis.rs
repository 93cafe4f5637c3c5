//! An axis that counts linearly or by powers of ten.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

use super::Scale;
use crate::table::{count, number};

/// Where an axis begins and ends, and how it counts in between.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    scale: Scale,
    range: Range<f64>,
}

impl Axis {
    /// Wide enough for all of these: from 0 on, or from one power of ten to another.
    pub(super) fn around(scale: Scale, values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = values
            .filter(|value| value.is_finite() && (scale == Scale::Linear || *value > 0.0))
            .fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
        let range = match scale {
            _ if low > high => 0.1..10.0, // nothing to show
            Scale::Linear => low.min(0.0)..if high > 0.0 { high * 1.05 } else { 1.0 },
            Scale::Log => {
                let (first, last) = (low.log10().floor(), high.log10().ceil());
                10f64.powf(first)..10f64.powf(if last > first { last } else { first + 1.0 })
            }
        };
        Self { scale, range }
    }

    /// From here to there, without room at the ends.
    pub(super) fn exact(range: Range<f64>) -> Self {
        Self { scale: Scale::Linear, range }
    }

    /// Where bars stand.
    pub(super) fn floor(&self) -> f64 {
        self.range.start
    }

    /// How far along the axis a value lies, from 0 to 1.
    fn part(&self, value: f64) -> f64 {
        let Range { start, end } = self.range;
        match self.scale {
            Scale::Linear => (value - start) / (end - start),
            Scale::Log => (value / start).log10() / (end / start).log10(),
        }
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        limit.0 + (self.part(*value) * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        let Range { start, end } = self.range;
        match self.scale {
            Scale::Linear => {
                // Steps of 1, 2 or 5 times a power of ten.
                let least = (end - start) / hint.max_num_points().clamp(2, 10) as f64;
                let power = 10f64.powf(least.log10().floor());
                let step = power * [1.0, 2.0, 5.0, 10.0].into_iter().find(|step| power * step >= least).unwrap_or(10.0);
                let first = (start / step).ceil();
                (0..=20).map(|index| (first + f64::from(index)) * step).take_while(|point| *point <= end).collect()
            }
            Scale::Log => {
                let decades = start.log10().round() as i32..=end.log10().round() as i32;
                decades.map(|decade| 10f64.powi(decade)).collect()
            }
        }
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        if value.fract().abs() < 1e-9 { count(*value) } else { number(*value) }
    }
}

#[cfg(test)]
mod tests {
    use plotters::coord::ranged1d::BoldPoints;

    use super::*;

    #[test]
    fn powers_of_ten_are_evenly_spaced() {
        let axis = Axis::around(Scale::Log, [12.0, 40_000.0].into_iter());
        assert_eq!(axis.key_points(BoldPoints(10)), [10.0, 100.0, 1_000.0, 10_000.0, 100_000.0]);
        assert_eq!([10.0, 1_000.0, 100_000.0].map(|value| axis.map(&value, (400, 0))), [400, 200, 0]);
    }

    #[test]
    fn a_linear_axis_begins_at_nothing() {
        let axis = Axis::around(Scale::Linear, [3.0, 88.0].into_iter());
        assert_eq!(axis.key_points(BoldPoints(6)), [0.0, 20.0, 40.0, 60.0, 80.0]);
    }

    #[test]
    fn nothing_to_show_is_no_fault() {
        for scale in [Scale::Linear, Scale::Log] {
            assert!(Axis::around(scale, [f64::NAN, 0.0].into_iter()).range.end > 0.0);
        }
    }
}
