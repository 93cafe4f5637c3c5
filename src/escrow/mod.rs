//! Escrow: how shares move between home and its shards. Pure: what is to be done next, from what is known.
//!
//! The whole limit belongs to home, which lends parts of it out. A share moves by steps on one key each, which any client may
//! take or finish, and which change nothing when they are taken twice:
//!
//! | step | where | what it does |
//! |---|---|---|
//! | grant | home | deducts a share and logs it as pending |
//! | install | shard | takes the share, before its `not_after`, if nothing newer is there |
//! | confirm | home | marks it as live: calls may use it |
//! | recall | home | marks it as on its way back: calls may not use it any more |
//! | close | shard | a tombstone keeps what was left |
//! | return | home | adds what was left, and strikes the share off the ledger |
//!
//! All steps at home are one script: it writes another ledger if the one there is still the one that the client knows.
//!
//! * `steps`: the next step of a key. `targets`: which shares it should have lent.
//! * `news`: what a ledger that home says it has means to one who knows another. `losses`: what to do when home has forgotten
//!   something.

mod losses;
mod news;
mod steps;
mod targets;

pub(crate) use losses::assert_again;
pub(crate) use news::{News, news};
pub(crate) use steps::{Report, Step, Wish, Write, next_step};
pub(crate) use targets::Target;
