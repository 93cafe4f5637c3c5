//! `shardlimit acquire`: one question, one decision.

use std::time::Duration;

use serde::Serialize;
use shardlimit::{Decision, NamedLimit};

use crate::error::Failure;
use crate::options::AcquireOptions;
use crate::output::{Exit, Report, Style, count, escape, facts, human_time, millis_up, note};
use crate::runtime;
use crate::store::Store;

/// How long a decision waits for what it has begun: a process that ends at once leaves shares on their way, and what it gives back is
/// lost with it.
const END: Duration = Duration::from_secs(1);

/// The decision and its facts.
#[derive(Debug, Serialize)]
pub(crate) struct AcquireReport {
    key: String,
    name: String,
    limit: String,
    permits: u64,
    allowed: bool,
    remaining: u64,
    remaining_exact: bool,
    retry_after_ms: f64,
    reset_after_ms: f64,
    wait_ms: f64,
    decided_by: &'static str,
}

pub(crate) fn run(options: &AcquireOptions) -> Result<AcquireReport, Failure> {
    let (store, limit) = Store::of(&options.store, &options.limit)?;
    let limiter = store.limiter(None)?;
    let limit = store.define_on(&limiter, &options.limit.name, limit)?;
    let decision = runtime()?.block_on(async {
        let decision = limit.acquire_n(&options.key.0, options.permits).await?;
        if let Err(error) = limiter.shutdown(END).await {
            note(&error.to_string());
        }
        Ok::<_, shardlimit::Error>(decision)
    })?;
    Ok(AcquireReport::new(&limit, &options.key.0, options.permits, &decision))
}

impl AcquireReport {
    fn new(limit: &NamedLimit, key: &[u8], permits: u64, decision: &Decision) -> Self {
        let (retry_after, wait) = match decision {
            Decision::Allowed(allowed) => (Duration::ZERO, allowed.wait()),
            Decision::Denied(denied) => (denied.retry_after(), Duration::ZERO),
        };
        Self {
            key: escape(key),
            name: limit.name().to_owned(),
            limit: limit.limit().to_string(),
            permits,
            allowed: decision.is_allowed(),
            remaining: decision.remaining().permits,
            remaining_exact: decision.remaining().exact,
            retry_after_ms: millis_up(retry_after),
            reset_after_ms: millis_up(decision.reset_after()),
            wait_ms: millis_up(wait),
            decided_by: decision.decided_by().name(),
        }
    }
}

impl Report for AcquireReport {
    const COMMAND: &'static str = "acquire";

    fn text(&self, style: Style) -> String {
        let time = |millis: f64| human_time((millis * 1e6).round() as u64);
        let verdict = if self.allowed { style.green("allowed") } else { style.red("denied") };
        let exact = if self.remaining_exact { "exact" } else { "an estimate" };
        let mut lines = vec![
            ("decision", verdict),
            ("key", self.key.clone()),
            ("limit", self.limit.clone()),
            ("name", self.name.clone()),
            ("permits", count(self.permits)),
            ("remaining", format!("{} ({exact})", count(self.remaining))),
        ];
        if !self.allowed {
            lines.push(("retry after", time(self.retry_after_ms)));
        }
        if self.wait_ms > 0.0 {
            lines.push(("wait", format!("{} for its turn", time(self.wait_ms))));
        }
        lines.push(("reset after", time(self.reset_after_ms)));
        lines.push(("decided by", self.decided_by.into()));
        if self.decided_by == "local" {
            lines.push(("store", "embedded: this process's own, as new at every start".into()));
        }
        facts(style, &lines)
    }

    fn exit(&self) -> Exit {
        if self.allowed { Exit::Success } else { Exit::Denied }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardlimit::{FakeClock, Limiter};

    /// Every process starts with a new embedded store, so no command line can show a denial: this does.
    #[test]
    fn a_denial_says_when_to_retry_and_exits_with_1() {
        let limiter = Limiter::builder().clock(FakeClock::new()).build().unwrap();
        let limit = limiter.define("login", "7/s burst 2".parse().unwrap()).unwrap();
        let _ = limit.try_acquire("alice", 2).unwrap();
        let denied = limit.try_acquire("alice", 1).unwrap().unwrap();
        let report = AcquireReport::new(&limit, b"alice", 1, &denied);

        assert_eq!(report.exit(), Exit::Denied);
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["allowed"], false);
        // 1/7 s is 142.857142… ms, and a microsecond less would be too early.
        assert_eq!(json["retry_after_ms"], 142.858);
        assert_eq!(json["remaining"], 0);
        assert!(report.text(Style::plain()).contains("retry after  142.9 ms"), "{}", report.text(Style::plain()));
    }

    #[test]
    fn a_pacing_queue_says_how_long_to_wait() {
        let limiter = Limiter::builder().clock(FakeClock::new()).build().unwrap();
        let limit = limiter.define("mail", "pacing-queue 10/s capacity 5".parse().unwrap()).unwrap();
        let _ = limit.try_acquire("smtp", 1).unwrap();
        let second = limit.try_acquire("smtp", 1).unwrap().unwrap();
        let report = AcquireReport::new(&limit, b"smtp", 1, &second);

        assert_eq!(report.exit(), Exit::Success);
        assert_eq!(serde_json::to_value(&report).unwrap()["wait_ms"], 100.0);
        assert!(report.text(Style::plain()).contains("100.0 ms for its turn"));
    }
}
