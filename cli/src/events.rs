//! `shardlimit count events`: how many events a key had lately, in sliding windows.

use std::time::Duration;

use serde::Serialize;

use crate::count::limiter;
use crate::error::Failure;
use crate::options::EventsOptions;
use crate::output::{Exit, Report, Style, count, escape, facts};
use crate::runtime;

/// A key's events, after some were added.
#[derive(Debug, Serialize)]
pub(crate) struct EventsReport {
    action: &'static str,
    key: String,
    name: String,
    /// How many were added.
    added: u64,
    windows: Vec<Window>,
    store: &'static str,
}

#[derive(Debug, Serialize)]
struct Window {
    ms: u64,
    events: u64,
}

pub(crate) fn run(options: &EventsOptions) -> Result<EventsReport, Failure> {
    let EventsOptions { count, added, windows } = options;
    let (store, limiter) = limiter(count)?;
    let counters = limiter.sliding_counters(&count.name, windows.iter().copied())?;
    let (key, name) = (&count.key.0, count.name.clone());
    let events = runtime()?.block_on(async {
        match added {
            0 => counters.get(key).await,
            added => counters.add(key, *added).await,
        }
    })?;
    let of_window = |(window, events): (&Duration, u64)| Window { ms: window.as_millis() as u64, events };
    let windows = windows.iter().zip(events).map(of_window).collect();
    Ok(EventsReport { action: "events", key: escape(key), name, added: *added, windows, store: store.name() })
}

impl Report for EventsReport {
    const COMMAND: &'static str = "count";

    fn text(&self, style: Style) -> String {
        let of_window = |window: &Window| (format!("{:?}", Duration::from_millis(window.ms)), count(window.events));
        let windows: Vec<(String, String)> = self.windows.iter().map(of_window).collect();
        let mut lines: Vec<(&str, String)> =
            windows.iter().map(|(window, events)| (&**window, events.clone())).collect();
        lines.extend([("key", self.key.clone()), ("name", self.name.clone()), ("added", count(self.added))]);
        facts(style, &lines)
    }

    fn exit(&self) -> Exit {
        Exit::Success
    }
}
