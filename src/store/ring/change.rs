//! Nodes come and go: a new record for everybody, then whatever has to move, then a record without the past.

use redis::{Value, cmd};
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::watcher::{Heard, PERIOD, Say, ask_all};
use super::{Known, Member, Record, Ring};
use crate::error::{Error, ErrorKind};
use crate::key::Slot;
use crate::store::cluster::{Address, Fault, Router};
use crate::sync::Arc;
use crate::topology::Topology;

/// Keys of one answer of SCAN, or so.
const PAGE: usize = 100;
/// The longest that one step of many may take.
const STEP: Duration = Duration::from_secs(2);

/// What becomes of the ring.
pub(crate) enum Change {
    Add(Member),
    /// It is there still, and hands over what it has.
    Remove(String),
    /// It is gone for good, with all it had.
    Lost(String),
}

impl Ring {
    /// Makes a change, and waits until all that has to move has moved.
    ///
    /// # Cancel safety
    /// The change may be in force without being settled: then [`settle`](Self::settle) goes on with it.
    pub(crate) async fn change(&self, router: &Arc<Router>, change: Change) -> Result<(), Error> {
        let record = self.latest(router).await?;
        if let Change::Add(member) = &change {
            let answers = ask_all(router, vec![member.clone()], Say::Nothing).await;
            match answers.into_values().next() {
                Some(Err(why)) => return Err(refused(&format!("the node can't be used ({why})"))),
                // Its record may have the higher number: then all clients of this ring would follow it.
                Some(Ok(Heard { record: Some(theirs), .. })) if !record.is_akin_to(&theirs) => {
                    let nodes: Vec<&str> = theirs.members.iter().map(|member| &*member.name).collect();
                    let why =
                        format!("the node is of another ring, of {}; remove it there, and empty it", nodes.join(", "));
                    return Err(refused(&why));
                }
                Some(Ok(_)) | None => {}
            }
            let address = self.address_of(member);
            let same =
                record.members.iter().find(|known| known.name != member.name && self.address_of(known) == address);
            if let Some(same) = same {
                return Err(refused(&format!("{member} is the same server as {same}")));
            }
        }
        let next = next(&record, &change)?;
        self.follow(router, Some(&record), &next).await?;
        self.settle(router).await
    }

    /// Finishes a change that another process began, or this one. Nothing to do if there is none.
    ///
    /// # Cancel safety
    /// What has moved has moved; it can be done again.
    pub(crate) async fn settle(&self, router: &Arc<Router>) -> Result<(), Error> {
        let record = self.latest(router).await?;
        if record.is_settled() {
            return Ok(());
        }
        // By then every client that reaches any node has heard of it, and makes nothing at the old places any more: a look takes
        // no longer than two periods, pause and patience included.
        sleep(PERIOD * 4).await;
        let known = self.known().filter(|known| known.record == record).ok_or_else(overtaken)?;
        let topology = router.topology();
        if let Some(lacking) = record.members.iter().find(|member| self.address_of(member).is_none()) {
            return Err(unsettled(lacking, "its Sentinels can't find it"));
        }
        for from in record.before.iter().filter(|from| !record.lost.contains(&from.name)) {
            let address = self.address_of(from).ok_or_else(|| unsettled(from, "its Sentinels can't find it"))?;
            self.empty(router, &known, (from, &address), &topology)
                .await
                .map_err(|fault| unsettled(from, &fault.what()))?;
        }
        self.follow(router, Some(&record), &record.settled()).await?;
        self.latest(router).await.map(|_| ())
    }

    /// Everything that a node has and another should.
    async fn empty(
        &self,
        router: &Arc<Router>,
        known: &Known,
        (from, address): (&Member, &Address),
        topology: &Topology,
    ) -> Result<(), Fault> {
        let Some(before) = &known.before else { return Ok(()) };
        let node = router.node_at(address);
        let late = |_| Fault::NotSent(format!("{from} did not answer within {STEP:?}"));
        let mut cursor = 0_u64;
        loop {
            let mut scan = cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(format!("{}:*", escaped(&self.prefix))).arg("COUNT").arg(PAGE);
            let replies = timeout(STEP, node.ask(std::slice::from_ref(&scan))).await.map_err(late)??;
            let reply = replies.into_iter().next().unwrap_or(Value::Nil);
            let wrong = |_| Fault::Refused(format!("{from} does not say which keys it has; may this user SCAN?"));
            let (next, keys): (u64, Vec<Vec<u8>>) = redis::from_redis_value(reply).map_err(wrong)?;
            for key in keys.iter().filter(|key| is_ours(key)) {
                let slot = Slot::of(key);
                if before.owner(&known.record, slot).is_some_and(|owner| owner.name == from.name) {
                    timeout(STEP, self.bring(router, topology, slot, key)).await.map_err(late)??;
                }
            }
            if next == 0 {
                return Ok(());
            }
            cursor = next;
        }
    }

    /// The record in force, after a look at all nodes.
    async fn latest(&self, router: &Arc<Router>) -> Result<Record, Error> {
        // The first may have begun before.
        for _ in 0..2 {
            router.look_again().await;
        }
        let known = self.known().ok_or_else(|| {
            let why = router.failure().unwrap_or_else(|| "no node has answered".into());
            Error::new(ErrorKind::NotSent, "ring", format!("{why}; nothing has changed; try again"))
        })?;
        Ok(known.record.clone())
    }

    /// Tells everybody what was decided. More than half have to know, or some clients may not hear of it for long.
    pub(super) async fn tell(&self, router: &Arc<Router>, record: &Record) -> Result<(), Error> {
        let all: Vec<Member> = record.all().cloned().collect();
        let count = all.len();
        let told = ask_all(router, all, Say::Tell(record.clone())).await;
        let (mut agreed, mut failure) = (0, String::new());
        for heard in told.into_values() {
            match heard {
                Ok(heard) if heard.record.as_ref() == Some(record) => agreed += 1,
                Ok(_) => return Err(overtaken()),
                Err(why) => failure = why,
            }
        }
        if agreed * 2 <= count {
            let message =
                format!("only {agreed} of {count} nodes could be told ({failure}); settle it when more answer");
            return Err(Error::new(ErrorKind::Unknown, "ring", message));
        }
        Ok(())
    }
}

fn next(record: &Record, change: &Change) -> Result<Record, Error> {
    match change {
        // One of the nodes before: the change goes on without what it had.
        Change::Lost(name) if !record.is_settled() && record.find(name).is_none() => {
            let is_there = record.before.iter().any(|member| *member.name == **name);
            let is_new = is_there && record.lost.iter().all(|lost| **lost != **name);
            return if is_new { Ok(record.without(name)) } else { Err(refused(&format!("{name:?} is no node of it"))) };
        }
        Change::Add(_) | Change::Remove(_) if !record.is_settled() => {
            return Err(refused("the last change is not settled; settle it first"));
        }
        // Also a node that came, and is gone already: what has not gone there yet is where it was.
        _ => {}
    }
    let mut members = record.members.clone();
    let leave = |members: &mut Vec<Member>, name: &str| {
        let count = members.len();
        members.retain(|member| &*member.name != name);
        match members.len() {
            left if left == count => Err(refused(&format!("{name:?} is no node of it: {}", names(record)))),
            0 => Err(refused(&format!("{name:?} is its only node"))),
            _ => Ok(()),
        }
    };
    let lost = match change {
        Change::Add(member) => {
            // A name with another weight, or other Sentinels, takes the place of what it was.
            members.retain(|known| known.name != member.name);
            members.push(member.clone());
            None
        }
        Change::Remove(name) => leave(&mut members, name).map(|()| None)?,
        Change::Lost(name) => leave(&mut members, name).map(|()| Some(name.as_str()))?,
    };
    let next = record.change(members, lost);
    if next.members == record.members {
        return Err(refused("it is like that already"));
    }
    if !next.is_good() {
        return Err(refused(
            "it has too many nodes, or one whose name has other characters than letters, digits and .-_:[]",
        ));
    }
    Ok(next)
}

/// Of the application's own keys under the same prefix none has just our tag in braces.
fn is_ours(key: &[u8]) -> bool {
    let tag = format!("{{{}}}:", Slot::of(key).tag());
    key.windows(tag.len()).any(|part| part == tag.as_bytes())
}

fn unsettled(node: &Member, why: &str) -> Error {
    let message = format!(
        "{node} could not be emptied, or filled: {why}; what is in force stays so, and keys that have to move are decided by the failure \
         policy until the ring is settled; settle it when the node answers, or remove it as lost"
    );
    Error::new(ErrorKind::NotSent, "ring", message)
}

fn names(record: &Record) -> String {
    let names: Vec<&str> = record.members.iter().map(|member| &*member.name).collect();
    names.join(", ")
}

fn refused(why: &str) -> Error {
    Error::new(ErrorKind::Refused, "ring", format!("can't be changed: {why}; nothing has changed"))
}

pub(super) fn overtaken() -> Error {
    Error::new(ErrorKind::Refused, "ring", "was changed by somebody else meanwhile; look at it, and try again")
}

/// As a pattern that means just these characters.
fn escaped(text: &str) -> String {
    let special = |letter: char| if r"*?[]\^-".contains(letter) { format!("\\{letter}") } else { letter.to_string() };
    text.chars().map(special).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(text: &str) -> Member {
        Member::read(text).unwrap().0
    }

    #[test]
    fn nodes_come_and_go() {
        let first = Record::first(&[member("a:1"), member("b:1")]);
        let added = next(&first, &Change::Add(member("c:1"))).unwrap();
        assert_eq!((added.number, added.members.len(), added.before.len(), added.lost.len()), (2, 3, 2, 0));
        let heavier = next(&first, &Change::Add(member("a:1*2"))).unwrap();
        assert_eq!(heavier.find("a:1").map(|member| member.weight), Some(2));
        let removed = next(&first, &Change::Remove("a:1".into())).unwrap();
        assert_eq!((removed.members.len(), removed.all().count(), removed.lost.len()), (1, 2, 0));
        let lost = next(&first, &Change::Lost("a:1".into())).unwrap();
        assert_eq!((lost.all().count(), &*lost.lost[0]), (1, "a:1"));
    }

    #[test]
    fn a_node_may_be_lost_in_the_middle_of_a_change() {
        let first = Record::first(&[member("a:1"), member("b:1")]);
        let leaving = next(&first, &Change::Remove("a:1".into())).unwrap();
        assert!(next(&leaving, &Change::Add(member("c:1"))).is_err());
        let lost = next(&leaving, &Change::Lost("a:1".into())).unwrap();
        assert_eq!((&lost.members, &lost.before, lost.since), (&leaving.members, &leaving.before, leaving.since));
        assert!(lost.is_later_than(&leaving) && next(&lost, &Change::Lost("a:1".into())).is_err());
        let coming = next(&first, &Change::Add(member("c:1"))).unwrap();
        let undone = next(&coming, &Change::Lost("c:1".into())).unwrap();
        assert_eq!((&undone.members, undone.since.0), (&first.members, undone.number));
    }

    #[test]
    fn keys_of_others_stay_where_they_are() {
        let ours = crate::key::sub_key("app", Slot::of(b"x"), "api", b"key");
        assert!(is_ours(&ours) && is_ours(&[b"app:tally".to_vec(), ours[3..].to_vec()].concat()));
        for theirs in ["app:session:1", "app:{user}:1", "app:ring", "app:{}:1"] {
            assert!(!is_ours(theirs.as_bytes()), "{theirs}");
        }
    }

    #[test]
    fn what_changes_nothing_or_everything_is_refused() {
        let only = Record::first(&[member("a:1")]);
        for change in [Change::Add(member("a:1")), Change::Remove("a:1".into()), Change::Lost("x:1".into())] {
            let error = next(&only, &change).unwrap_err();
            assert_eq!((error.kind(), error.field()), (ErrorKind::Refused, "ring"));
        }
    }

    #[test]
    fn a_prefix_is_no_pattern() {
        assert_eq!(escaped("a*b[c]"), r"a\*b\[c\]");
    }
}
