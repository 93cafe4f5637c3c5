//! `shardlimit count`: totals by key, and distinct values.

use std::time::Duration;

use serde::Serialize;
use shardlimit::Limiter;
use shardlimit::counter::{Added, CounterSettings, Within};

use crate::error::Failure;
use crate::options::{CountAddOptions, CountOptions, DistinctOptions};
use crate::output::{Exit, Report, Style, count, escape, facts};
use crate::runtime;
use crate::store::Store;

/// Whoever only looks shortens no counter's life: the longest there is.
const LONGEST: Duration = Duration::from_secs(10 * 365 * 86_400);

/// A counter, as it is now.
#[derive(Debug, Serialize)]
pub(crate) struct CountReport {
    action: &'static str,
    key: String,
    name: String,
    /// What was to be added.
    amount: Option<i64>,
    /// Whether it is counted: not, if the total would be above `--within`.
    counted: Option<bool>,
    total: i64,
    store: &'static str,
}

pub(crate) fn limiter(options: &CountOptions) -> Result<(Store, Limiter), Failure> {
    // How limits are split makes no difference here.
    let store = Store::beside_others(&options.redis, shardlimit::Shards::default());
    let limiter = store.limiter(None)?;
    Ok((store, limiter))
}

pub(crate) fn add(options: &CountAddOptions) -> Result<CountReport, Failure> {
    let CountAddOptions { count, amount, ttl, within, renew, shards } = options;
    let (store, limiter) = limiter(count)?;
    let settings = CounterSettings::new(*ttl).shards(shards.shards);
    let counters = limiter.counters(&count.name, if *renew { settings.renew() } else { settings })?;
    let (counted, total) = runtime()?.block_on(async {
        let key = &count.key.0;
        if let Some(bound) = within {
            return Ok(match counters.add_within(key, *amount, *bound).await? {
                Within::Counted { total } => (true, total),
                Within::Above { total } => (false, total),
            });
        }
        match counters.add(key, *amount).await? {
            Added::Counted { total: Some(total) } => Ok((true, total)),
            Added::Counted { total: None } => Ok((true, counters.get(key).await?)),
            _ => {
                let message =
                    "no answer in time, and this program does not wait longer; it may have been counted, or not";
                Err(Failure::server("redis", message))
            }
        }
    })?;
    Ok(CountReport::new("add", count, &store, Some(*amount), Some(counted), total))
}

pub(crate) fn get(options: &CountOptions, shards: u16) -> Result<CountReport, Failure> {
    let (store, limiter) = limiter(options)?;
    let counters = limiter.counters(&options.name, CounterSettings::new(LONGEST).shards(shards))?;
    let total = runtime()?.block_on(counters.get(&options.key.0))?;
    Ok(CountReport::new("get", options, &store, None, None, total))
}

pub(crate) fn reset(options: &CountOptions, shards: u16) -> Result<CountReport, Failure> {
    let (store, limiter) = limiter(options)?;
    let counters = limiter.counters(&options.name, CounterSettings::new(LONGEST).shards(shards))?;
    runtime()?.block_on(counters.reset(&options.key.0))?;
    Ok(CountReport::new("reset", options, &store, None, None, 0))
}

impl CountReport {
    fn new(
        action: &'static str,
        options: &CountOptions,
        store: &Store,
        amount: Option<i64>,
        counted: Option<bool>,
        total: i64,
    ) -> Self {
        let (key, name) = (escape(&options.key.0), options.name.clone());
        Self { action, key, name, amount, counted, total, store: store.name() }
    }
}

impl Report for CountReport {
    const COMMAND: &'static str = "count";

    fn text(&self, style: Style) -> String {
        let mut lines = vec![("total", self.total.to_string()), ("key", self.key.clone()), ("name", self.name.clone())];
        if let Some(amount) = self.amount {
            lines.push(("amount", amount.to_string()));
        }
        match self.counted {
            Some(true) => lines.push(("counted", style.green("yes"))),
            Some(false) => lines.push(("counted", style.red("no: it would be above the bound"))),
            None => {}
        }
        facts(style, &lines)
    }

    fn exit(&self) -> Exit {
        if self.counted == Some(false) { Exit::Denied } else { Exit::Success }
    }
}

/// How many distinct values a key has, after some were added.
#[derive(Debug, Serialize)]
pub(crate) struct DistinctReport {
    action: &'static str,
    key: String,
    name: String,
    values: u64,
    /// Those that were not seen within the window. Only the exact count knows.
    fresh: Option<u64>,
    distinct: u64,
    exact: bool,
    store: &'static str,
}

pub(crate) fn distinct(options: &DistinctOptions) -> Result<DistinctReport, Failure> {
    let DistinctOptions { count, values, window, approximate, shards } = options;
    let (store, limiter) = limiter(count)?;
    let (key, name) = (&count.key.0, &count.name);
    let added = || values.iter().map(|value| &value.0);
    let (fresh, distinct) = if *approximate {
        let counters = limiter.approximate_counters(name, *window)?;
        runtime()?.block_on(async {
            counters.add_many(key, added()).await?;
            Ok::<_, Failure>((None, counters.get(key).await?))
        })?
    } else {
        let counters = limiter.distinct_counters(name, *window, shards.shards)?;
        runtime()?.block_on(async {
            let fresh = counters.add_many(key, added()).await?;
            Ok::<_, Failure>((Some(fresh), counters.get(key).await?))
        })?
    };
    Ok(DistinctReport {
        action: "distinct",
        key: escape(key),
        name: name.clone(),
        values: values.len() as u64,
        fresh,
        distinct,
        exact: !approximate,
        store: store.name(),
    })
}

impl Report for DistinctReport {
    const COMMAND: &'static str = "count";

    fn text(&self, style: Style) -> String {
        let exact = if self.exact { "exact" } else { "about" };
        let mut lines = vec![
            ("distinct", format!("{} ({exact})", count(self.distinct))),
            ("key", self.key.clone()),
            ("name", self.name.clone()),
            ("values", count(self.values)),
        ];
        if let Some(fresh) = self.fresh {
            lines.push(("new", count(fresh)));
        }
        facts(style, &lines)
    }

    fn exit(&self) -> Exit {
        Exit::Success
    }
}
