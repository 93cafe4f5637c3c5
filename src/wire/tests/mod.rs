//! What is written is read back, and nothing else is read.

pub(crate) mod ledger;
mod replies;
