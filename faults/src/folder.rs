//! Where the files of a run lie.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use crate::Failure;

/// Process ids begin anew in a world of its own, so they do not tell two suites apart; moments do.
static RUN: LazyLock<String> = LazyLock::new(|| format!("shardlimit-faults-{}", crate::clock::now()));

/// A folder that is gone when this is, unless it is to be kept.
pub(crate) struct Folder {
    pub path: PathBuf,
    keep: bool,
}

impl Folder {
    /// In a place of this suite's own.
    pub(crate) fn temporary(name: &str) -> Result<Self, Failure> {
        Self::make(&std::env::temp_dir().join(&*RUN), name, false)
    }

    /// Of one run; in `place`, and kept, if there is one.
    pub(crate) fn of_run(place: Option<&Path>, name: &str) -> Result<Self, Failure> {
        match place {
            Some(place) => Self::make(place, name, true),
            None => Self::temporary(name),
        }
    }

    fn make(place: &Path, name: &str, keep: bool) -> Result<Self, Failure> {
        let path = place.join(name);
        std::fs::create_dir_all(&path)?;
        Ok(Self { path, keep })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.keep {
            let _ = std::fs::remove_dir_all(&self.path);
            // The last one takes the place along.
            let _ = self.path.parent().map(std::fs::remove_dir);
        }
    }
}
