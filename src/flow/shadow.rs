//! Shadow mode: every call is decided and counted, and none is turned away.

use crate::decision::Decision;
use crate::error::{Error, ErrorKind};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Of one named limit.
#[derive(Default)]
pub(crate) struct Shadow {
    on: AtomicBool,
    /// Calls that would have been turned away.
    spared: AtomicU64,
}

impl Shadow {
    pub(crate) fn new(on: bool) -> Self {
        Self { on: AtomicBool::new(on), spared: AtomicU64::new(0) }
    }

    pub(crate) fn set(&self, on: bool) {
        self.on.store(on, Ordering::Relaxed);
    }

    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    pub(crate) fn spared(&self) -> u64 {
        self.spared.load(Ordering::Relaxed)
    }

    /// Lets a call pass that was not allowed, if it is to.
    #[inline(always)]
    pub(crate) fn over(&self, decided: Result<Decision, Error>) -> Result<Decision, Error> {
        match decided {
            Ok(Decision::Allowed(allowed)) => Ok(Decision::Allowed(allowed)),
            other => self.spare(other),
        }
    }

    /// The same, where only a store may be able to tell.
    #[cfg(feature = "redis")]
    #[inline(always)]
    pub(crate) fn over_known(&self, decided: Result<Option<Decision>, Error>) -> Result<Option<Decision>, Error> {
        match decided {
            Ok(None) => Ok(None),
            Ok(Some(decision)) => self.over(Ok(decision)).map(Some),
            Err(error) => self.over(Err(error)).map(Some),
        }
    }

    #[cold]
    fn spare(&self, decided: Result<Decision, Error>) -> Result<Decision, Error> {
        if !self.is_on() {
            return decided;
        }
        let spared = match decided {
            Ok(decision) => decision.spared(),
            // A store that does not answer turns nobody away either; an ask that makes no sense stays an error.
            Err(error) if is_of_store(&error) => Decision::spared_from_error(),
            Err(error) => return Err(error),
        };
        self.spared.fetch_add(1, Ordering::Relaxed);
        Ok(spared)
    }
}

fn is_of_store(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NotSent | ErrorKind::Unknown | ErrorKind::Refused)
}
