//! One limit on servers that form no cluster.
//!
//! ```sh
//! cargo run -p shardlimit --example ring --features redis -- redis://127.0.0.1:6379 redis://127.0.0.1:6380 redis://127.0.0.1:6381
//! ```

use shardlimit::{Error, Limiter};

fn main() -> Result<(), Error> {
    let nodes: Vec<String> = std::env::args().skip(1).collect();
    if nodes.is_empty() {
        println!("give the servers: redis://host:port, or sentinel://host:port/name");
        return Ok(());
    }
    pollster::block_on(ask(nodes))
}

async fn ask(nodes: Vec<String>) -> Result<(), Error> {
    let limiter = Limiter::builder().ring(nodes).build()?;
    let checkout = limiter.define("example-checkout", "token-bucket 3000/s burst 300".parse()?)?;
    let decision = checkout.acquire("item:42").await?;
    println!("allowed: {}", decision.is_allowed());
    for shard in checkout.plan("item:42").await?.shards {
        let node = shard.master.map_or_else(|| "nobody".into(), |master| master.to_string());
        println!("{node} has {} a second, burst {}", shard.permits, shard.burst);
    }
    if limiter.ring()?.is_some_and(|ring| ring.differs()) {
        println!("the ring has other nodes than were given; its own count");
    }
    Ok(())
}
