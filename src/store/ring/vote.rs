//! Which record follows the one in force is put to the vote of its nodes: of several changes at once, one is made.
//!
//! A vote has ballots, each of one voter's own. More than half of the nodes first *promise* to heed no lower ballot, and say what
//! they gave their voice to; then they are asked for their *voice*, for that of the highest ballot, or where there is none for what
//! is wanted here. What more than half gave their voice to under one ballot is decided, and only then is anybody told (this is Paxos, with
//! nodes that only store). Whoever dies in the middle has told nobody, and the next one who wants a change finishes the vote.

use std::time::Duration;

use tokio::time::sleep;

use super::change::overtaken;
use super::watcher::{Heard, Say, ask_all};
use super::{Member, Record, Ring};
use crate::error::{Error, ErrorKind};
use crate::store::cluster::Router;
use crate::sync::Arc;

/// Others vote too. Each time it takes two round trips.
const TRIES: usize = 20;
/// So often too few may answer: one that is slow is asked again.
const SILENT: usize = 3;
/// The bits of a ballot that tell voters apart; above them is which try it is.
const OWN_BITS: u32 = 32;
/// Lua counts up to here.
const MOST_BALLOTS: u64 = 1 << 53;

/// What nodes say to a ballot.
struct Said {
    /// More than half are for it.
    carried: bool,
    /// The highest ballot that any of them knows.
    highest: u64,
    /// What the highest ballot that has voices is for.
    theirs: Option<Record>,
    failure: String,
}

impl Ring {
    /// Has `wanted` follow `base`, or be the first, and tells everybody.
    ///
    /// # Cancel safety
    /// It may be decided without anybody being told: the next change finishes that one first.
    pub(super) async fn follow(
        &self,
        router: &Arc<Router>,
        base: Option<&Record>,
        wanted: &Record,
    ) -> Result<(), Error> {
        // What is lost has no voice. More than half of all nodes, and more than half of all but one, have a node in common.
        let has_voice = |member: &&Member| !wanted.lost.contains(&member.name);
        let voters: Vec<Member> = base.unwrap_or(wanted).all().filter(has_voice).cloned().collect();
        let after = base.map_or((0, 0), |base| (base.number, base.mark()));
        let (mut highest, mut silent, mut was_voiced) = (0, 0, false);
        for _ in 0..TRIES {
            let ballot = ballot_above(highest);
            let promise = Say::Vote { after, ballot, voice: None };
            let Some(mut said) = vote(router, &voters, (base, wanted), promise).await? else { return Ok(()) };
            if said.carried {
                let next = said.theirs.unwrap_or_else(|| wanted.clone());
                let voice = Say::Vote { after, ballot, voice: Some(next.clone()) };
                was_voiced = true;
                said = match vote(router, &voters, (base, wanted), voice).await? {
                    None => return Ok(()),
                    Some(said) if said.carried => {
                        self.tell(router, &next).await?;
                        return if next == *wanted { Ok(()) } else { Err(overtaken()) };
                    }
                    Some(said) => said,
                };
            }
            highest = highest.max(said.highest).max(ballot);
            // Nobody has a higher one: too few have answered.
            if said.highest <= ballot {
                silent += 1;
                if silent == SILENT {
                    return Err(undecided(&format!("too few of its nodes answered ({})", said.failure), was_voiced));
                }
            }
            // Whoever has the higher ballot may come to an end.
            sleep(Duration::from_millis(rand::random_range(5..100))).await;
        }
        Err(undecided("others are changing it all the time", was_voiced))
    }
}

/// Once a node may have given its voice, another may find it there, and finish the vote.
fn undecided(why: &str, was_voiced: bool) -> Error {
    let (kind, state) = if was_voiced {
        (ErrorKind::Unknown, "it may change yet: look at it")
    } else {
        (ErrorKind::NotSent, "nothing has changed")
    };
    Error::new(kind, "ring", format!("{why}; {state}, and try again"))
}

/// One round of it. Nothing if what is wanted is in force already.
async fn vote(
    router: &Arc<Router>,
    voters: &[Member],
    (base, wanted): (Option<&Record>, &Record),
    say: Say,
) -> Result<Option<Said>, Error> {
    let Say::Vote { ballot, voice, .. } = &say else { unreachable!("only votes come here") };
    let (ballot, is_voice) = (*ballot, voice.is_some());
    let mut said = Said { carried: false, highest: 0, theirs: None, failure: String::new() };
    let (mut count, mut voiced) = (0, 0);
    for (name, heard) in ask_all(router, voters.to_vec(), say).await {
        match heard {
            Ok(Heard { record, promised, voice }) if record.as_ref() == base => {
                said.highest = said.highest.max(promised);
                let is_for_it =
                    promised == ballot && (!is_voice || voice.as_ref().is_some_and(|(by, _)| *by == ballot));
                count += usize::from(is_for_it);
                if let Some((by, record)) = voice.filter(|(by, _)| is_for_it && *by > voiced) {
                    (voiced, said.theirs) = (by, Some(record));
                }
            }
            Ok(Heard { record: Some(record), .. }) if record == *wanted => return Ok(None),
            Ok(Heard { record: Some(record), .. }) if base.is_none_or(|base| record.is_later_than(base)) => {
                return Err(overtaken());
            }
            // It is told of the record by the next look.
            Ok(_) => said.failure = format!("{name} has an older record"),
            Err(why) => said.failure = why,
        }
    }
    said.carried = count * 2 > voters.len();
    Ok(Some(said))
}

/// Nobody else's.
fn ballot_above(highest: u64) -> u64 {
    let next = (highest >> OWN_BITS) + 1;
    (next << OWN_BITS | u64::from(rand::random::<u32>())).min(MOST_BALLOTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_ballot_is_higher() {
        let first = ballot_above(0);
        let second = ballot_above(first);
        assert!(first > 0 && second > first && ballot_above(second) > second);
        assert!(ballot_above(MOST_BALLOTS) <= MOST_BALLOTS, "what Lua can't count is no ballot");
    }
}
