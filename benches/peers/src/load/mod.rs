//! Callers on a runtime, and what became of their calls.
//!
//! [`closed_loop`]: each caller calls again at once, so the load follows the store. [`open_loop`]: calls are due on a schedule
//! whatever became of those before, and latency counts from the moment that a call was due.

mod closed;
mod open;
mod tally;

use std::future::Future;

pub use closed::closed_loop;
pub use open::{LATE, open_loop};
pub use tally::Load;
use tokio::runtime::Runtime;

/// What became of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It may go on.
    Allowed,
    /// It may not.
    Denied,
    /// There was no answer.
    Failed,
}

impl From<Result<shardlimit::Decision, shardlimit::Error>> for Outcome {
    fn from(answer: Result<shardlimit::Decision, shardlimit::Error>) -> Self {
        match answer {
            // Not by what is measured.
            Ok(decision) if decision.decided_by() == shardlimit::DecidedBy::Fallback => Self::Failed,
            Ok(decision) if decision.is_allowed() => Self::Allowed,
            Ok(_) => Self::Denied,
            Err(_) => Self::Failed,
        }
    }
}

/// One who calls. An implementation may be written as `async fn call(&mut self) -> Outcome`.
pub trait Caller: Send + 'static {
    /// One call.
    fn call(&mut self) -> impl Future<Output = Outcome> + Send;
}

/// The limiter of a handle.
impl Caller for shardlimit::Handle {
    async fn call(&mut self) -> Outcome {
        self.acquire().await.into()
    }
}

/// A runtime as a gateway has it: with so many workers.
///
/// # Panics
/// If the system has no threads left.
#[must_use]
pub fn runtime(workers: usize) -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(workers).enable_all().build().expect("threads for a runtime")
}
