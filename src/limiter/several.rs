//! Several asks at once: one decision for each, or one for all of them.

use std::collections::HashMap;

use futures_util::future::join_all;

use super::Limiter;
use crate::ask::{Ask, Held};
use crate::decision::{AllAllowed, AllDecision, AllDenied, Decision, Denied};
use crate::error::Error;

impl Limiter {
    /// Makes several asks side by side, and says what became of each, in the order in which they are given.
    ///
    /// No ask waits for another's answer before it is sent. On a shared store those that go to the same master go in one pipeline, so
    /// the whole takes about as long as one call. Asks of one limit and key are decided in their order; more than one of
    /// them may take one more round trip. Limits of other limiters can be asked along.
    ///
    /// # Cancel safety
    /// Dropping the future gives back what was taken, as dropping each call would.
    ///
    /// ```
    /// # use shardlimit::Limiter;
    /// # pollster::block_on(async {
    /// let limiter = Limiter::local();
    /// let checkout = limiter.define("checkout", "500/s".parse()?)?;
    /// let per_user = limiter.define("per-user", "1/day".parse()?)?;
    /// let asks = [checkout.ask("item:42", 1), per_user.ask("u7", 1), per_user.ask("u7", 1)];
    /// let decisions = limiter.acquire_many(asks).await;
    /// let allowed: Vec<_> = decisions.into_iter().map(|decision| decision.unwrap().is_allowed()).collect();
    /// assert_eq!(allowed, [true, true, false]);
    /// # Ok::<(), shardlimit::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn acquire_many(&self, asks: impl IntoIterator<Item = Ask>) -> Vec<Result<Decision, Error>> {
        let asks: Vec<Ask> = asks.into_iter().collect();
        let taken = join_all(asks.iter().map(Ask::take)).await;
        taken.into_iter().map(|held| held.map(Held::keep)).collect()
    }

    /// Makes several asks as one: all of them are allowed, or none is charged. For limits of different keys that have to
    /// agree: the item's, the user's, the address's.
    ///
    /// If one of them is known in process to deny, no other is asked. Else all are asked side by side; if one denies, what the others took goes back at once, by their receipts: until it is there, it
    /// is missing for other calls. A pacing queue takes back only its tail, so leave it out if others may deny often. Nothing
    /// waits while it holds permits, so nobody waits for each other.
    ///
    /// # Errors
    /// Those of [`NamedLimit::acquire_n`](crate::NamedLimit::acquire_n), of the first ask in the list that ended in one: a limit
    /// whose store can't be reached decides by its failure policy first. What the others took goes back. After
    /// [`Unknown`](crate::ErrorKind::Unknown), the ask that ended so may have been charged.
    ///
    /// # Cancel safety
    /// Dropping the future gives back what was taken; what is on its way goes back when its answer comes.
    ///
    /// ```
    /// use shardlimit::{AllDecision, Limiter};
    ///
    /// # pollster::block_on(async {
    /// let limiter = Limiter::local();
    /// let per_item = limiter.define("per-item", "500/s".parse()?)?;
    /// let per_user = limiter.define("per-user", "1/day".parse()?)?;
    /// let asks = || [per_item.ask("item:42", 1), per_user.ask("u7", 1)];
    ///
    /// assert!(limiter.acquire_all(asks()).await?.is_allowed());
    /// match limiter.acquire_all(asks()).await? {
    ///     AllDecision::Allowed(_) => unreachable!("one a day"),
    ///     AllDecision::Denied(denied) => {
    ///         let (ask, _) = denied.denials().next().expect("one at the least");
    ///         assert_eq!(ask.limit().name(), "per-user");
    ///     }
    /// }
    /// # Ok::<(), shardlimit::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn acquire_all(&self, asks: impl IntoIterator<Item = Ask>) -> Result<AllDecision, Error> {
        let asks: Vec<Ask> = asks.into_iter().collect();
        // What makes no sense is found before anything is taken.
        let mut wanted = HashMap::with_capacity(asks.len());
        for ask in &asks {
            // Of one key all of them together: more than it ever holds is never allowed.
            let permits: &mut u64 = wanted.entry((ask.limit().identity(), ask.key())).or_default();
            *permits = permits.saturating_add(ask.permits());
            let checked = ask.limit().check(ask.key(), ask.permits());
            checked.and_then(|()| ask.limit().check(ask.key(), *permits)).map_err(|error| of(ask, error))?;
        }
        drop(wanted);
        // Nor is anything taken where somebody is known to say no: it would only have to go back.
        let denies = |(place, ask): (usize, &Ask)| Some((place, ask.limit().denies(ask.key(), ask.permits())?));
        let denials = denied(asks.iter().enumerate().filter_map(denies));
        if !denials.is_empty() {
            return Ok(AllDecision::Denied(AllDenied::new(asks, denials)));
        }
        let taken = join_all(asks.iter().map(Ask::take)).await;
        let mut held = Vec::with_capacity(taken.len());
        for (ask, taken) in asks.iter().zip(taken) {
            held.push(taken.map_err(|error| of(ask, error))?);
        }
        if held.iter().all(Held::is_allowed) {
            let allowed = held.into_iter().filter_map(|held| match held.keep() {
                Decision::Allowed(allowed) => Some(allowed),
                Decision::Denied(_) => None,
            });
            let allowed = allowed.collect();
            return Ok(AllDecision::Allowed(AllAllowed::new(asks, allowed)));
        }
        // Those that were allowed are dropped here, and give back what they took.
        let held = held.into_iter().enumerate().filter(|(_, held)| !held.is_allowed());
        let denials = denied(held.map(|(place, held)| (place, held.keep())));
        Ok(AllDecision::Denied(AllDenied::new(asks, denials)))
    }
}

fn denied(decisions: impl Iterator<Item = (usize, Decision)>) -> Vec<(usize, Denied)> {
    let denied = decisions.filter_map(|(place, decision)| match decision {
        Decision::Allowed(_) => None,
        Decision::Denied(denied) => Some((place, denied)),
    });
    denied.collect()
}

/// Which of the asks ended so.
fn of(ask: &Ask, error: Error) -> Error {
    error.noting(format_args!("asked of limit {:?} with others, which were charged nothing", ask.limit().name()))
}
