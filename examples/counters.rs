//! Totals by key: clicks of a day, and seats that must not be sold twice.
//!
//! ```sh
//! cargo run -p shardlimit --example counters
//! cargo run -p shardlimit --example counters --features redis -- redis://127.0.0.1:6379
//! ```

mod counting;

use std::time::Duration;

use shardlimit::Error;
use shardlimit::counter::{Added, CounterSettings, Within};

const DAY: Duration = Duration::from_secs(86_400);

fn main() -> Result<(), Error> {
    pollster::block_on(count())
}

async fn count() -> Result<(), Error> {
    let limiter = counting::limiter()?;

    // A hot counter: split over masters, and read as one.
    let clicks = limiter.counters("example-clicks", CounterSettings::new(DAY).shards(4))?;
    let adds = (0..1_000).map(|click| (format!("item:{}", click % 3), 1));
    for added in clicks.add_many(adds).await {
        if added? == Added::Queued {
            println!("the store does not answer yet; it is delivered later");
        }
    }
    #[cfg(feature = "redis")]
    clicks.flush(Duration::from_secs(5)).await?;
    for (item, total) in clicks.get_many(["item:0", "item:1", "item:2"]).await.into_iter().enumerate() {
        println!("item:{item} has {} clicks", total?);
    }
    println!("{:?}", clicks.dropped());

    // A bound needs one number, so these have one shard.
    let seats = limiter.counters("example-seats", CounterSettings::new(DAY))?;
    seats.reset("hall").await?;
    for group in [60, 30, 20, 10] {
        match seats.add_within("hall", group, 100).await? {
            Within::Counted { total } => println!("{group} seats sold, {total} in all"),
            Within::Above { total } => println!("{group} seats are too many: {total} of 100 are sold"),
        }
    }
    Ok(())
}
