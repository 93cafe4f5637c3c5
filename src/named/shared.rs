//! What only a shared store can tell.

use super::{NamedLimit, On};
use crate::error::{Error, ErrorKind};
use crate::key::check_key;
use crate::plan::Plan;

impl NamedLimit {
    /// The plan of a key: which shards it is split into, and where they lie. It is made if there is none.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidKey`](crate::ErrorKind::InvalidKey); [`ErrorKind::Refused`](crate::ErrorKind::Refused) on the
    /// embedded store, which splits nothing; and what the store answers.
    ///
    /// # Cancel safety
    /// A plan that was begun is finished by the next client that sees it.
    ///
    /// ```no_run
    /// # async fn run(checkout: shardlimit::NamedLimit) -> Result<(), shardlimit::Error> {
    /// println!("{} shards", checkout.plan("item:42").await?.shards.len());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn plan(&self, key: impl AsRef<[u8]>) -> Result<Plan, Error> {
        match &self.0 {
            On::Local(_) => {
                let message = "the embedded store splits no limit; a plan needs a limiter built with `redis`";
                Err(Error::new(ErrorKind::Refused, "store", message))
            }
            On::Shared(limit) => limit.plan(&limit.entry(check_key(key.as_ref())?)).await,
        }
    }
}
