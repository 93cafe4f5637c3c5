//! Whether distinct values that four processes see five times each are counted once each, while connections are cut.

use std::fmt;
use std::time::Duration;

use crate::Failure;
use crate::counting::{Counting, Kind, TIMES, limiter, visitors};
use crate::fault::{Needs, Place};
use crate::folder::Folder;
use crate::options::Suite;
use crate::proxy::{Cut, Proxy};
use crate::stage::Stage;

pub(crate) const NAME: &str = "distinct";
pub(crate) const ABOUT: &str = "4 processes see 100,000 values 5 times each while connections are cut: 100,000";

const PROCESSES: u64 = 4;
const VALUES: u64 = 100_000;

/// What was counted.
#[derive(Debug)]
pub(crate) struct Counts {
    distinct: u64,
    fresh: u64,
    cuts: u64,
}

impl Counts {
    /// A value whose answer was cut off may be new to nobody.
    pub(crate) fn is_well(&self) -> bool {
        self.distinct == VALUES && self.fresh <= VALUES && self.cuts > 0
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { distinct, fresh, cuts } = self;
        let verdict = if self.is_well() { "ok" } else { "NOT OK" };
        let seen = TIMES * VALUES;
        write!(
            f,
            "{verdict:6} {distinct} distinct of {seen} values, {fresh} told to be new; {cuts} cuts after delivery"
        )
    }
}

pub(crate) fn run(suite: &Suite) -> Result<Counts, Failure> {
    let folder = Folder::temporary(NAME)?;
    let stage = Stage::build(suite, Needs::only(Place::Proxied), &folder.path)?;
    let urls = stage.cluster.urls();
    let mut counting = Counting::launch(Kind::Values, PROCESSES, VALUES, &urls)?;
    while counting.are_running() {
        stage.proxies.iter().for_each(|proxy| proxy.cut_next(Cut::After));
        std::thread::sleep(Duration::from_millis(50));
    }
    stage.proxies.iter().for_each(Proxy::let_be);
    let cuts = stage.proxies.iter().map(Proxy::cuts).sum();
    let fresh = counting.outcome()?.fresh;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let distinct = runtime.block_on(async {
        let limiter = limiter(&urls)?;
        limiter.ready(Duration::from_secs(10)).await?;
        Ok::<_, Failure>(visitors(&limiter)?.get("page").await?)
    })?;
    Ok(Counts { distinct, fresh, cuts })
}
