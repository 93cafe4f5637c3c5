//! Hears everything that is told by `tracing`.
#![allow(dead_code, unreachable_pub)]

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Every span and event of every crate, one line each.
#[derive(Clone, Default)]
pub struct Listener(Arc<Mutex<Vec<Told>>>);

/// Which module, how loud, and what.
type Told = (&'static str, Level, String);

#[derive(Default)]
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}

impl Subscriber for Listener {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut line = Line::default();
        span.record(&mut line);
        self.hear(span.metadata(), format!("span {}{}", span.metadata().name(), line.0));
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        self.hear(event.metadata(), line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl Listener {
    fn hear(&self, from: &'static Metadata<'static>, line: String) {
        self.0.lock().unwrap().push((from.target(), *from.level(), line));
    }

    pub fn has(&self, level: Level, text: &str) -> bool {
        self.0.lock().unwrap().iter().any(|(_, at, line)| *at == level && line.contains(text))
    }

    /// What modules whose path begins like this have told.
    pub fn lines(&self, module: &str) -> Vec<String> {
        let told = self.0.lock().unwrap();
        told.iter().filter(|(from, ..)| from.starts_with(module)).map(|(.., line)| line.clone()).collect()
    }
}
