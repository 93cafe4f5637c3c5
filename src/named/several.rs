//! A limit as one of several that are asked at once.

use super::{NamedLimit, On, call};
use crate::ask::Ask;
use crate::decision::{Decision, Receipt};
use crate::error::Error;
use crate::key::check_key;
use crate::sync::Arc;

impl NamedLimit {
    /// What a call for so many permits of a key would ask, to be made together with others: see
    /// [`acquire_many`](crate::Limiter::acquire_many) and [`acquire_all`](crate::Limiter::acquire_all).
    ///
    /// ```
    /// # use shardlimit::Limiter;
    /// # fn main() -> Result<(), shardlimit::Error> {
    /// # let limit = Limiter::local().define("search", "100/min".parse()?)?;
    /// assert_eq!(limit.ask("alice", 2).permits(), 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn ask(&self, key: impl AsRef<[u8]>, permits: u64) -> Ask {
        Ask::new(self.clone(), key.as_ref(), permits)
    }

    /// What tells one limit from another, whatever clones there are of it.
    pub(crate) fn identity(&self) -> usize {
        match &self.on {
            On::Local(definition) => Arc::as_ptr(definition).addr(),
            #[cfg(feature = "redis")]
            On::Shared(limit) => Arc::as_ptr(limit).addr(),
        }
    }

    /// Whether such a call makes sense, as far as is known here.
    pub(crate) fn check(&self, key: &[u8], permits: u64) -> Result<(), Error> {
        check_key(key)?;
        match &self.on {
            On::Local(definition) => definition.limit.check_permits(permits),
            #[cfg(feature = "redis")]
            On::Shared(limit) => limit.check_permits(permits),
        }
    }

    /// A denial, if it is known without asking a store. Nothing is taken.
    #[cfg_attr(not(feature = "redis"), expect(unused_variables, reason = "the embedded store is not looked at"))]
    pub(crate) fn denies(&self, key: &[u8], permits: u64) -> Option<Decision> {
        match &self.on {
            // To ask costs as little as to look.
            On::Local(_) => None,
            #[cfg(feature = "redis")]
            On::Shared(limit) => limit.denies(key, permits).filter(|_| !limit.shadow.is_on()),
        }
    }

    /// Gives back what was never handed out, and waits for nothing.
    #[cfg_attr(not(feature = "redis"), expect(clippy::needless_pass_by_value, reason = "a shared store keeps it"))]
    pub(crate) fn give_back(&self, key: &[u8], receipt: Receipt) {
        match &self.on {
            On::Local(definition) => {
                // The receipt is its own: nothing can be wrong with it.
                let _ = call(definition, key).and_then(|call| call.refund(&receipt, receipt.permits));
            }
            #[cfg(feature = "redis")]
            On::Shared(limit) => limit.give_back_all(&limit.entry(key), receipt),
        }
    }
}
