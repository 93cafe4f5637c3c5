//! One call under three limits at once: all of them are charged, or none.
//!
//! ```sh
//! cargo run -p shardlimit --example several_limits
//! cargo run -p shardlimit --example several_limits --features redis -- redis://127.0.0.1:6379
//! ```

#[path = "counting/mod.rs"]
mod counting;

use shardlimit::{AllDecision, Error};

fn main() -> Result<(), Error> {
    pollster::block_on(ask())
}

async fn ask() -> Result<(), Error> {
    let limiter = counting::limiter()?;
    let per_item = limiter.define("example-item", "500/s burst 50".parse()?)?;
    let per_user = limiter.define("example-user", "sliding-window 3/10s".parse()?)?;
    let per_address = limiter.define("example-address", "100/min burst 100".parse()?)?;
    for call in 1..=5 {
        let asks = [per_item.ask("item:42", 2), per_user.ask("u7", 1), per_address.ask("203.0.113.9", 1)];
        match limiter.acquire_all(asks).await? {
            AllDecision::Allowed(_) => println!("call {call}: allowed by all three"),
            AllDecision::Denied(denied) => {
                let names: Vec<&str> = denied.denials().map(|(ask, _)| ask.limit().name()).collect();
                println!("call {call}: {} said no, not before {:?}", names.join(" and "), denied.retry_after());
            }
        }
    }
    println!("item:42 has {} left", per_item.peek("item:42").await?.remaining().permits);
    Ok(())
}
