//! What is written is read back, and nothing else is read.

mod ledger;
mod replies;
