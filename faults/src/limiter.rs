//! The one place in which the suite's limiters are built.

use std::time::Duration;

use clap::Args;
use shardlimit::{Builder, Error, FailurePolicy, Limit, Limiter, NamedLimit, Shards};

/// The name that the suite's limits go by.
pub(crate) const NAME: &str = "faults";
/// The one hot key.
pub(crate) const KEY: &str = "hot";

/// How limiters are set.
#[derive(Args, Clone, Debug)]
pub(crate) struct Settings {
    /// What is limited: one hot key.
    #[arg(long, default_value = "token-bucket 3000/s burst 300")]
    pub limit: Limit,
    /// Milliseconds that a call may take.
    #[arg(long, default_value_t = 50)]
    pub deadline: u64,
    /// What decides where a shard can't: open, closed, error, local or local:RATIO.
    #[arg(long, default_value = "local")]
    pub policy: FailurePolicy,
    /// How many shards the key has: per-master, off, auto or a number.
    #[arg(long, default_value = "per-master")]
    pub shards: Shards,
    /// The revision of the definition; by default the moment at which it is defined.
    #[arg(long)]
    pub revision: Option<u64>,
}

impl Settings {
    pub(crate) fn deadline(&self) -> Duration {
        Duration::from_millis(self.deadline)
    }

    /// As command-line options of a process that is to have the same.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let Self { limit, deadline, policy, shards, revision } = self;
        let mut pairs = vec![
            ("--limit", limit.to_string()),
            ("--deadline", deadline.to_string()),
            ("--policy", policy.to_string()),
            ("--shards", shards.to_string()),
        ];
        pairs.extend(revision.map(|revision| ("--revision", revision.to_string())));
        pairs.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
    }

    pub(crate) fn builder(&self, urls: &[String]) -> Builder {
        let urls = urls.iter().map(String::as_str);
        Limiter::builder().redis(urls).deadline(self.deadline()).on_failure(self.policy).shards(self.shards)
    }

    pub(crate) fn define(&self, urls: &[String]) -> Result<NamedLimit, Error> {
        let limiter = self.builder(urls).build()?;
        match self.revision {
            Some(revision) => limiter.define_revision(NAME, self.limit, revision),
            None => limiter.define(NAME, self.limit),
        }
    }
}
