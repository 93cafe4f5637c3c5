//! Distinct values: visitors of a page within an hour, exactly, and about how many.
//!
//! ```sh
//! cargo run -p shardlimit --example distinct_counters
//! cargo run -p shardlimit --example distinct_counters --features redis -- redis://127.0.0.1:6379
//! ```

mod counting;

use std::time::Duration;

use shardlimit::Error;

const HOUR: Duration = Duration::from_secs(3_600);

fn main() -> Result<(), Error> {
    pollster::block_on(count())
}

async fn count() -> Result<(), Error> {
    let limiter = counting::limiter()?;
    let exact = limiter.distinct_counters("example-visitors", HOUR, 3)?;
    let about = limiter.approximate_counters("example-visitors", HOUR)?;
    exact.clear("page").await?;
    about.clear("page").await?;
    // 20,000 visits by 5,000 people.
    for visits in (0..20_000).collect::<Vec<u32>>().chunks(1_000) {
        let visitors: Vec<String> = visits.iter().map(|visit| format!("user:{}", visit % 5_000)).collect();
        let fresh = exact.add_many("page", &visitors).await?;
        about.add_many("page", &visitors).await?;
        println!("{} visits, {fresh} people came for the first time", visits.len());
    }
    println!("{} visitors exactly, about {}", exact.get("page").await?, about.get("page").await?);
    Ok(())
}
