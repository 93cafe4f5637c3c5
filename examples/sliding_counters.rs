//! Events in sliding windows: log-ins that failed within a minute and within an hour.
//!
//! ```sh
//! cargo run -p shardlimit --example sliding_counters
//! cargo run -p shardlimit --example sliding_counters --features redis -- redis://127.0.0.1:6379
//! ```

mod counting;

use std::time::Duration;

use shardlimit::Error;

fn main() -> Result<(), Error> {
    pollster::block_on(count())
}

async fn count() -> Result<(), Error> {
    let windows = [Duration::from_secs(60), Duration::from_secs(3_600)];
    let failed = counting::limiter()?.sliding_counters("example-failed", windows)?;
    failed.clear("alice").await?;
    for _ in 0..6 {
        let counts = failed.add("alice", 1).await?;
        println!("alice failed {} times within a minute, {} within an hour", counts[0], counts[1]);
        if counts[0] > 5 {
            println!("that is enough for now");
        }
    }
    println!("a look counts nothing: {:?}", failed.get("alice").await?);
    Ok(())
}
