//! `shardlimit limit`: which limit is in force for a key, and another one while it is in use.

use std::ffi::OsString;

use serde::Serialize;
use shardlimit::{Carry, Limit};

use crate::error::Failure;
use crate::options::{GetOptions, SetOptions};
use crate::output::{Exit, Report, Style, escape, facts};
use crate::runtime;
use crate::store::Store;
use crate::values::Key;

/// The limit in force, beside the definition.
#[derive(Debug, Serialize)]
pub(crate) struct GetReport {
    action: &'static str,
    key: String,
    name: String,
    limit: String,
    definition: String,
    differs: bool,
}

pub(crate) fn get(options: &GetOptions) -> Result<GetReport, Failure> {
    let GetOptions { key, limit, redis } = options;
    // How many shards it is to have makes no difference: nothing is made.
    let named = Store::beside_others(redis, shardlimit::Shards::default()).define(&limit.name, limit.limit)?;
    let in_force = runtime()?.block_on(named.limit_of(&key.0))?;
    Ok(GetReport {
        action: "get",
        key: escape(&key.0),
        name: limit.name.clone(),
        limit: in_force.to_string(),
        definition: limit.limit.to_string(),
        differs: in_force != limit.limit,
    })
}

impl Report for GetReport {
    const COMMAND: &'static str = "limit";

    fn text(&self, style: Style) -> String {
        let differs = if self.differs { style.red("yes") } else { "no".into() };
        let lines = [
            ("limit", self.limit.clone()),
            ("key", self.key.clone()),
            ("name", self.name.clone()),
            ("definition", self.definition.clone()),
            ("differs", differs),
        ];
        facts(style, &lines)
    }

    fn exit(&self) -> Exit {
        Exit::Success
    }
}

/// What was set, and what is in force then.
#[derive(Debug, Serialize)]
pub(crate) struct SetReport {
    action: &'static str,
    /// None: all keys of the name that have no limit of their own.
    key: Option<String>,
    name: String,
    carry: String,
    /// In force afterwards.
    limit: String,
    /// Whether that is the one that was asked for: another process may have set a later one meanwhile.
    set: bool,
}

pub(crate) fn set(options: SetOptions) -> Result<SetReport, Failure> {
    let SetOptions { first, second, all, carry, name, limit, redis, shards } = options;
    let (key, new) = key_and_limit(first, second, all)?;
    let named = Store::beside_others(&redis, shards.shards).define(&name, limit.unwrap_or(new))?;
    let in_force = runtime()?.block_on(async {
        match &key {
            Some(key) => named.set_limit_of(&key.0, new, carry).await,
            None => named.set_limit(new, carry).await,
        }
    })?;
    Ok(SetReport::new(key.as_ref(), name, carry, new, in_force))
}

/// With `--all` there is no key, and the new limit stands in its place.
fn key_and_limit(first: OsString, second: Option<OsString>, all: bool) -> Result<(Option<Key>, Limit), Failure> {
    let (key, limit) = match (second, all) {
        (Some(limit), false) => (Some(Key::from(first)), limit),
        (None, true) => (None, first),
        (Some(_), true) => return Err(Failure::usage("all", "is for all keys: none can be given with it")),
        (None, false) => {
            return Err(Failure::usage(
                "limit",
                "is missing; give a key and its new limit, or --all and the new limit",
            ));
        }
    };
    let text = limit.to_str().ok_or_else(|| Failure::usage("limit", "must be text"))?;
    Ok((key, text.parse()?))
}

impl SetReport {
    fn new(key: Option<&Key>, name: String, carry: Carry, wanted: Limit, in_force: Limit) -> Self {
        Self {
            action: "set",
            key: key.map(|key| escape(&key.0)),
            name,
            carry: carry.to_string(),
            limit: in_force.to_string(),
            set: in_force == wanted,
        }
    }
}

impl Report for SetReport {
    const COMMAND: &'static str = "limit";

    fn text(&self, style: Style) -> String {
        let key = self.key.clone().unwrap_or_else(|| "all that have no limit of their own".into());
        let set = if self.set { style.green("yes") } else { style.red("no: a later one was set meanwhile") };
        let lines = [
            ("limit", self.limit.clone()),
            ("set", set),
            ("key", key),
            ("name", self.name.clone()),
            ("carry", self.carry.clone()),
        ];
        facts(style, &lines)
    }

    fn exit(&self) -> Exit {
        Exit::Success
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two processes that set a limit at once agree on one of them: the other one has to learn that it lost.
    #[test]
    fn a_later_limit_is_told() {
        let limit = |text: &str| text.parse::<Limit>().unwrap();
        let report = SetReport::new(None, "api".into(), Carry::Keep, limit("5/s"), limit("6/s"));
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!((&json["set"], &json["limit"]), (&false.into(), &"token-bucket 6/s burst 6".into()));
        assert!(report.text(Style::plain()).contains("a later one"), "{}", report.text(Style::plain()));
    }
}
