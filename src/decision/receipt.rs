//! What a refund needs.

use crate::clock::Micros;
use crate::kernel::Refund;

/// Proof of a charge: what a refund or a settlement needs. Dropping it keeps the charge.
///
/// It is plain data, good for one refund at the limit and key that gave it.
///
/// ```
/// # use shardlimit::{Decision, Limiter};
/// # pollster::block_on(async {
/// # let limit = Limiter::local().define("api", "10/s".parse()?)?;
/// if let Decision::Allowed(allowed) = limit.acquire_n("alice", 5).await? {
///     let receipt = allowed.into_receipt();
///     assert_eq!(receipt.permits(), 5);
///     limit.refund("alice", receipt).await?; // the work was not done after all
/// }
/// # Ok::<(), shardlimit::Error>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct Receipt {
    /// The hash of the key, seeded anew for each named limit.
    pub(crate) owner: u64,
    pub(crate) permits: u64,
    pub(crate) at: Micros,
    pub(crate) line: i64,
}

impl Receipt {
    pub(crate) fn refund(&self, permits: u64) -> Refund {
        Refund { permits, at: self.at, line: self.line }
    }

    /// How many permits were charged.
    ///
    /// ```
    /// # use shardlimit::{Decision, Limiter};
    /// # fn main() -> Result<(), shardlimit::Error> {
    /// # let limit = Limiter::local().define("api", "10/s".parse()?)?;
    /// if let Some(Decision::Allowed(allowed)) = limit.try_acquire("alice", 2)? {
    ///     assert_eq!(allowed.into_receipt().permits(), 2);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn permits(&self) -> u64 {
        self.permits
    }
}
