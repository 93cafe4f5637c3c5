//! Parts of a shared store's calls by themselves, where nothing but their callers' timing is at stake.
//!
//! * `planned`: what is packed goes on where it was.
//! * `purse`: what was added is spent, held or taken back, once each.
//! * `recent`: how much of it is held goes by what was used lately.
//! * `round`: what calls find in the one answer that they share. `stripes`: calls of several threads that come side by side.
//! * `waits`: who waits is served in the order of arrival.

mod planned;
mod purse;
mod recent;
mod round;
mod stripes;
mod waits;
