//! Calls that wait for their permits, in the order in which they came.
//!
//! ```sh
//! cargo run -p shardlimit --example waiting
//! cargo run -p shardlimit --example waiting --features redis -- redis://127.0.0.1:6379
//! ```

#[path = "counting/mod.rs"]
mod counting;

use std::thread;
use std::time::{Duration, Instant};

use shardlimit::Error;

fn main() -> Result<(), Error> {
    let limiter = counting::limiter()?;
    let limit = limiter.define("example-waiting", "token-bucket 10/s burst 1".parse()?)?;
    let begun = Instant::now();
    let callers = (1..=5).map(|caller| {
        let limit = limit.clone();
        // A moment apart, so that it is known who came first.
        thread::sleep(Duration::from_millis(5));
        thread::spawn(move || {
            let decision = pollster::block_on(limit.acquire_within("printer", 1, Duration::from_secs(2)))?;
            println!("caller {caller}: allowed {}, after {:?}", decision.is_allowed(), begun.elapsed());
            Ok::<(), Error>(())
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.join().expect("no caller panics")?;
    }
    Ok(())
}
