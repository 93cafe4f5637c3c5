//! Figures as a line for people, and as a row for the documentation.

use crate::clock::{MILLI, Nanos, SECOND};
use crate::judge::Figures;

/// The head of the table.
pub(crate) const HEAD: &str = "\
| fault | lasted | calls | hung | longest call | late | errors | by policy: allowed, denied | above the formula (stated) | least second | p99 of healthy shards | normal after | |
|---|---|---|---|---|---|---|---|---|---|---|---|---|";

/// One line, with what is wrong at its end.
pub(crate) fn line(name: &str, figures: &Figures) -> String {
    let [lasted, calls, hung, longest, late, errors, policy, above, least, p99, normal, wrong] = cells(figures);
    format!(
        "{name:16} {wrong:6} lasted {lasted}, {calls} calls, {hung} hung, longest {longest}, late {late}, errors {errors}, by policy {policy}, above {above}, \
         least second {least}, p99 {p99}, normal after {normal}"
    )
}

pub(crate) fn row(name: &str, figures: &Figures) -> String {
    format!("| `{name}` | {} |", cells(figures).join(" | "))
}

fn cells(figures: &Figures) -> [String; 12] {
    let mut errors = figures.tally.kinds();
    if figures.troubles_before > 0 {
        errors = format!("{errors} ({} troubled before)", figures.troubles_before);
    }
    let tally = &figures.tally;
    let calls = match tally.skipped {
        0 => tally.calls.to_string(),
        skipped => format!("{} ({skipped} skipped)", tally.calls),
    };
    let p99 =
        figures.p99.map_or_else(|| "–".into(), |(before, during)| format!("{} → {}", millis(before), millis(during)));
    let wrongs = figures.wrongs();
    [
        seconds(figures.lasted),
        calls,
        tally.hung.to_string(),
        millis(figures.longest),
        millis(figures.late),
        errors,
        format!("{}, {}", tally.by_policy.0, tally.by_policy.1),
        format!("{:+.0} ({:.0})", figures.above.all, figures.extra.all),
        if figures.least.is_nan() { "–".into() } else { format!("{:.0} %", figures.least * 100.0) },
        p99,
        figures.normal_after.map_or_else(|| "never".into(), seconds),
        if wrongs.is_empty() { "ok".into() } else { format!("NOT OK: {}", wrongs.join("; ")) },
    ]
}

fn millis(time: Nanos) -> String {
    format!("{:.1} ms", time as f64 / MILLI as f64)
}

fn seconds(time: Nanos) -> String {
    format!("{:.1} s", time as f64 / SECOND as f64)
}
