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

    /// Lets a call pass that was not allowed, if it is to. In place: a decision that is moved once more costs a call that is decided in
    /// process a third of its time. Where all of it is synchronous, look at [`is_on`](Self::is_on) first, for the same reason.
    #[inline(always)]
    pub(crate) fn over(&self, decided: &mut impl Decided) {
        if self.is_on() && decided.spare() {
            self.spared.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// What a call comes to.
pub(crate) trait Decided {
    /// Allows it, if it was not. Says whether that was so.
    fn spare(&mut self) -> bool;
}

impl Decided for Result<Decision, Error> {
    fn spare(&mut self) -> bool {
        let spared = match self {
            Ok(decision) if !decision.is_allowed() => decision.spared(),
            // A store that does not answer turns nobody away either; an ask that makes no sense stays an error.
            Err(error) if is_of_store(error) => Decision::spared_from_error(),
            Ok(_) | Err(_) => return false,
        };
        *self = Ok(spared);
        true
    }
}

/// Where only a store may be able to tell.
impl Decided for Result<Option<Decision>, Error> {
    fn spare(&mut self) -> bool {
        let mut decided = match std::mem::replace(self, Ok(None)) {
            Ok(None) => return false,
            Ok(Some(decision)) => Ok(decision),
            Err(error) => Err(error),
        };
        let is_spared = decided.spare();
        *self = decided.map(Some);
        is_spared
    }
}

fn is_of_store(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NotSent | ErrorKind::Unknown | ErrorKind::Refused)
}
