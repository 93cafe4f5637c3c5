//! Several limits of one key as one: a second and a day, in one record, decided together.
//!
//! ```sh
//! cargo run -p shardlimit --example composite_limit
//! cargo run -p shardlimit --example composite_limit --features redis -- redis://127.0.0.1:6379
//! ```

#[path = "counting/mod.rs"]
mod counting;

use shardlimit::{Decision, Error, Limit};

fn main() -> Result<(), Error> {
    pollster::block_on(ask())
}

async fn ask() -> Result<(), Error> {
    let limit: Limit = "5/s burst 5 + fixed-window 12/day".parse()?;
    let api = counting::limiter()?.define("example-composite", limit)?;
    for call in 1..=5 {
        match api.acquire_n("alice", 4).await? {
            Decision::Allowed(allowed) => println!("call {call}: allowed, {} left", allowed.remaining().permits),
            Decision::Denied(denied) => {
                let part = denied.part().and_then(|part| limit.parts().nth(part)).unwrap_or(limit);
                println!("call {call}: \"{part}\" says no, not before {:?}", denied.retry_after());
            }
        }
        if let Decision::Allowed(_) = api.acquire_within("alice", 1, std::time::Duration::from_secs(1)).await? {
            println!("call {call}: one more, as soon as it was there");
        }
    }
    Ok(())
}
