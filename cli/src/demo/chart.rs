//! Offered against allowed, drawn in the terminal.

use rgb::RGB8;
use textplots::{Chart, ColorPlot, LabelBuilder, LabelFormat, Plot, Shape, TickDisplay, TickDisplayBuilder};

use crate::bench::Sample;
use crate::clock::{Nanos, SECOND};
use crate::output::{Style, count};

/// In dots, of which a character has two by four.
const WIDTH: u32 = 120;
const HEIGHT: u32 = 64;
/// Red and green as terminals that know only sixteen colours have them: there the nearest one is shown.
const OFFERED: RGB8 = RGB8::new(205, 0, 0);
const ALLOWED: RGB8 = RGB8::new(0, 205, 0);

/// Both rates over time, a point a sample, with `top` as the highest rate.
pub(super) fn chart(style: Style, samples: &[Sample], length: Nanos, top: u64) -> String {
    let points = |calls: fn(&Sample) -> u64| -> Vec<(f32, f32)> {
        let a_second = SECOND as f32 / length as f32;
        let at = |index: usize| (index as f32 + 0.5) / a_second;
        samples.iter().enumerate().map(|(index, sample)| (at(index), calls(sample) as f32 * a_second)).collect()
    };
    let (offered, allowed) = (points(|sample| sample.offered), points(|sample| sample.allowed));
    let (offered, allowed) = (Shape::Lines(&offered), Shape::Lines(&allowed));
    let seconds = samples.len() as f32 * length as f32 / SECOND as f32;
    let mut chart = Chart::new_with_y_range(WIDTH, HEIGHT, 0.0, seconds, 0.0, top as f32);
    let chart = if style.is_coloured() {
        chart.linecolorplot(&offered, OFFERED).linecolorplot(&allowed, ALLOWED)
    } else {
        chart.lineplot(&offered).lineplot(&allowed)
    };
    let chart = chart
        .x_label_format(LabelFormat::Custom(Box::new(|seconds| format!("{} s", (seconds * 10.0).round() / 10.0))))
        .y_label_format(LabelFormat::Custom(Box::new(|rate| format!("{}/s", count(rate.round() as u64)))))
        .y_tick_display(TickDisplay::Sparse);
    chart.axis();
    chart.figures();
    chart.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::MILLI;

    #[test]
    fn it_has_both_lines_and_both_axes() {
        let samples = vec![Sample { offered: 6_000, allowed: 2_000, denied: 4_000 }; 20];
        let text = chart(Style::plain(), &samples, 100 * MILLI, 80_000);
        assert!(text.contains("80,000/s") && text.contains("20,000/s") && text.contains("2 s"), "{text}");
        assert!(!text.contains('\x1b'));
        let drawn = |line: &&str| line.matches('⠉').count() > 50;
        assert_eq!(text.lines().filter(drawn).count(), 2, "{text}");
    }

    #[test]
    fn a_run_without_samples_draws_its_axes() {
        assert!(chart(Style::plain(), &[], 100 * MILLI, 80_000).contains("80,000/s"));
    }
}
