//! A cluster, and processes that call.

use std::num::NonZeroU16;

use shardlimit::{FailurePolicy, NamedLimit, Shards};
use shardlimit_check::{Admission, worst};
use tokio::runtime::Runtime;

use crate::Failure;
use crate::fault::Needs;
use crate::fleet::{Fleet, Orders};
use crate::folder::Folder;
use crate::limiter::Settings;
use crate::network;
use crate::options::Suite;
use crate::stage::Stage;

/// Where a run takes place.
pub(super) struct Scene {
    pub stage: Stage,
    folder: Folder,
    /// Of clients of its own, which do what is done.
    runtime: Runtime,
}

impl Scene {
    pub(super) fn build(suite: &Suite, name: &str, needs: Needs) -> Result<Self, Failure> {
        let folder = Folder::of_run(suite.keep.as_deref(), name)?;
        let build = || Stage::build(suite, needs, &folder.path);
        // Somebody else may have taken a port between our look and the server's.
        let stage = build().or_else(|_| build())?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        Ok(Self { stage, folder, runtime })
    }

    /// Processes of one kind that are ready to call; `group` keeps their files apart from those of others.
    pub(super) fn launch(
        &self,
        group: &str,
        settings: &Settings,
        processes: usize,
        rate: u64,
    ) -> Result<Fleet, Failure> {
        let folder = self.folder.path.join(group);
        std::fs::create_dir_all(&folder)?;
        let namespace = |index| self.stage.network.is_some().then(|| network::caller(index));
        Fleet::launch(&Orders {
            settings,
            urls: &self.stage.cluster.urls(),
            rate,
            pulse: (1_000, 0),
            folder: &folder,
            namespaces: &(0..processes).map(namespace).collect::<Vec<_>>(),
        })
    }

    /// One more client, of this process.
    pub(super) fn client(&self, settings: &Settings) -> Result<NamedLimit, Failure> {
        Ok(settings.define(&self.stage.cluster.urls())?)
    }

    pub(super) fn wait_for<T>(&self, what: impl Future<Output = T>) -> T {
        self.runtime.block_on(what)
    }
}

/// Callers are to be told of everything: no policy decides.
pub(super) fn settings(suite: &Suite, limit: &str, shards: Shards) -> Result<Settings, Failure> {
    Ok(Settings { limit: limit.parse()?, policy: FailurePolicy::Error, shards, ..suite.settings.clone() })
}

pub(super) fn exactly(shards: u16) -> Shards {
    NonZeroU16::new(shards).map_or(Shards::Off, Shards::Exactly)
}

/// Permits above the formula in the worst interval; none if nobody was admitted.
pub(super) fn above(settings: &Settings, admissions: Vec<Admission>) -> f64 {
    worst(&settings.limit, admissions).map_or(f64::NAN, |worst| worst.permits)
}
