//! `shardlimit plan`: which shards a key has, and where they lie.

use serde::Serialize;
use shardlimit::Plan;

use crate::error::Failure;
use crate::options::PlanOptions;
use crate::output::{Align, Exit, Report, Style, count, escape, facts, grid};
use crate::runtime;
use crate::store::Store;

/// The plan in force.
#[derive(Debug, Serialize)]
pub(crate) struct PlanReport {
    key: String,
    name: String,
    limit: String,
    shards: Vec<Shard>,
}

#[derive(Debug, Serialize)]
#[allow(clippy::struct_field_names, reason = "the fields are the names in the JSON")]
struct Shard {
    shard: usize,
    home: bool,
    subkey: String,
    slot: u16,
    master: Option<String>,
    grant: String,
    /// Permits in each of the limit's own periods.
    rate: u64,
    burst: u64,
}

pub(crate) fn run(options: &PlanOptions) -> Result<PlanReport, Failure> {
    let (store, limit) = Store::of(&options.store, &options.limit)?;
    let limit = store.define(&options.limit.name, limit)?;
    let plan = runtime()?.block_on(limit.plan(&options.key.0))?;
    Ok(PlanReport::new(&options.key.0, &options.limit.name, plan))
}

impl PlanReport {
    fn new(key: &[u8], name: &str, plan: Plan) -> Self {
        let shard = |(index, shard): (usize, shardlimit::PlannedShard)| Shard {
            shard: index,
            home: shard.is_home,
            subkey: escape(&shard.sub_key),
            slot: shard.slot.number(),
            master: shard.master.map(|master| master.to_string()),
            grant: shard.grant,
            rate: shard.permits,
            burst: shard.burst,
        };
        let shards = plan.shards.into_iter().enumerate().map(shard).collect();
        Self { key: escape(key), name: name.into(), limit: plan.limit.to_string(), shards }
    }
}

impl Report for PlanReport {
    const COMMAND: &'static str = "plan";

    fn text(&self, style: Style) -> String {
        let mut text = facts(
            style,
            &[
                ("key", self.key.clone()),
                ("limit", format!("{} as \"{}\"", self.limit, self.name)),
                ("shards", count(self.shards.len() as u64)),
            ],
        );
        text.push('\n');
        let rows: Vec<[String; 7]> = self
            .shards
            .iter()
            .map(|shard| {
                [
                    format!("{}{}", shard.shard, if shard.home { " home" } else { "" }),
                    shard.slot.to_string(),
                    shard.master.clone().unwrap_or_else(|| "nobody".into()),
                    count(shard.rate),
                    count(shard.burst),
                    shard.grant.clone(),
                    shard.subkey.clone(),
                ]
            })
            .collect();
        let columns = [
            ("shard", Align::Left),
            ("slot", Align::Right),
            ("master", Align::Left),
            ("rate", Align::Right),
            ("burst", Align::Right),
            ("grant", Align::Left),
            ("sub-key", Align::Left),
        ];
        text + &grid(style, columns, &rows)
    }

    fn exit(&self) -> Exit {
        Exit::Success
    }
}
