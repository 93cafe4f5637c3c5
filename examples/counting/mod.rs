//! Where an example counts: in this process, or on the servers of its first argument.

use shardlimit::{Error, Limiter};

/// `cargo run --example counters --features redis -- redis://127.0.0.1:6379`
#[cfg_attr(not(feature = "redis"), expect(clippy::unnecessary_wraps, reason = "servers may not be built"))]
pub(crate) fn limiter() -> Result<Limiter, Error> {
    match std::env::args().nth(1) {
        None => Ok(Limiter::local()),
        #[cfg(feature = "redis")]
        Some(urls) => {
            // The first call opens connections.
            Limiter::builder().redis(urls.split(',')).deadline(std::time::Duration::from_secs(1)).build()
        }
        #[cfg(not(feature = "redis"))]
        Some(_) => panic!("servers need the feature `redis`: cargo run --features redis --example …"),
    }
}
