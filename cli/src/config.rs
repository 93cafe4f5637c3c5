//! `shardlimit config`: what a configuration file says.

use serde::Serialize;
use shardlimit::Config;

use crate::error::Failure;
use crate::options::ConfigCheckOptions;
use crate::output::{Align, Exit, Report, Style, facts, grid};

/// A file that can be used.
#[derive(Debug, Serialize)]
pub(crate) struct CheckReport {
    action: &'static str,
    file: String,
    store: &'static str,
    limits: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    name: String,
    limit: String,
    leased: bool,
}

pub(crate) fn check(options: &ConfigCheckOptions) -> Result<CheckReport, Failure> {
    let config = Config::read(&options.file)?;
    let row = |(name, limit): (&str, shardlimit::Limit)| Row {
        name: name.into(),
        limit: limit.to_string(),
        leased: config.leases(name).is_some(),
    };
    let file = options.file.display().to_string();
    Ok(CheckReport { action: "check", file, store: config.store(), limits: config.limits().map(row).collect() })
}

impl Report for CheckReport {
    const COMMAND: &'static str = "config";

    fn text(&self, style: Style) -> String {
        let fine = style.green("can be used");
        let mut text = facts(style, &[("file", self.file.clone()), ("state", fine), ("store", self.store.into())]);
        text.push('\n');
        let row = |row: &Row| {
            let leased = if row.leased { "yes" } else { "no" };
            [row.name.clone(), row.limit.clone(), leased.to_owned()]
        };
        let rows: Vec<[String; 3]> = self.limits.iter().map(row).collect();
        let columns = [("name", Align::Left), ("limit", Align::Left), ("leased", Align::Left)];
        text + &grid(style, columns, &rows)
    }

    fn exit(&self) -> Exit {
        Exit::Success
    }
}
