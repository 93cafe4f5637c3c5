//! The watcher of a ring: the one task that asks its nodes who belongs to it. No caller waits for it.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::future::join_all;
use redis::cmd;
use tokio::time::{sleep, timeout};
use tracing::Instrument;

use super::record::BadRecord;
use super::{Member, Place, Record, Ring};
use crate::key::Slot;
use crate::observe;
use crate::said::is_host;
use crate::store::cluster::{Address, Fault, Node, Request, Router, connect_ahead};
use crate::sync::atomic::AtomicBool;
use crate::sync::{Arc, lock};
use crate::wire::{RingReply, Script};

/// How often it looks without a reason. A change of the ring waits for some of these before it takes anything for settled.
pub(super) const PERIOD: Duration = Duration::from_secs(1);
/// The least time between two looks.
const PAUSE: Duration = Duration::from_millis(100);
/// How long one node may take to answer.
pub(super) const PATIENCE: Duration = Duration::from_millis(500);

/// Watches until the router is gone.
pub(in crate::store) async fn watch(router: std::sync::Weak<Router>) {
    loop {
        let Some(present) = router.upgrade() else { return };
        let Some(ring) = &present.ring else { return };
        let doubt = Arc::clone(&present.doubt);
        look(&present, ring).instrument(observe::look()).await;
        drop(present);
        sleep(PAUSE.mul_f64(rand::random_range(0.5..1.5))).await;
        // Either way it is time to look again.
        let _ = timeout(PERIOD.mul_f64(rand::random_range(0.5..1.0)), doubt.notified()).await;
    }
}

/// Asks all nodes at once, takes the latest record, and tells it to those that have an older one or none.
async fn look(router: &Arc<Router>, ring: &Ring) {
    let found = ask_all(router, ring.everybody(), Say::Nothing).await;
    let (mut latest, mut failure): (Option<Record>, _) = (ring.known().map(|known| known.record.clone()), None);
    let mut heard = 0;
    for answer in found.values() {
        match answer {
            Ok(Heard { record, .. }) => {
                heard += 1;
                latest = [latest, record.clone()].into_iter().flatten().reduce(later);
            }
            Err(why) => failure = Some(why.clone()),
        }
    }
    // The first record is made by who has something to keep there, and hears from most of the nodes: one that lost its data must not
    // pass for a ring that never was.
    let may_make = router.is_wanted() && heard * 2 > ring.own.len();
    let mut latest = latest.filter(|_| heard > 0);
    if latest.is_none() && may_make {
        let first = Record::first(&ring.own);
        match ring.follow(router, None, &first).await {
            Ok(()) => latest = Some(first),
            // Perhaps of a client that was told of other nodes: the next look finds what that one made.
            Err(error) => failure = Some(error.to_string()),
        }
    }
    let Some(record) = latest else {
        let none = if heard > 0 { "no node that answers has a record of the ring" } else { "the ring has no nodes" };
        let failure = failure.unwrap_or_else(|| none.into());
        observe::topology_unknown(&failure);
        return router.has_looked(Some(failure));
    };
    if let Some(topology) = ring.take(record.clone()) {
        router.adopt(topology);
    }
    // What can't be read is of a later release, or nobody's of ours: it stays as it is. So does one of a ring that has no node in
    // common with this: a list that has nodes of two must not make one of them.
    let lacks = |member: &Member| match found.get(&member.name) {
        Some(Ok(Heard { record: None, .. })) => true,
        Some(Ok(Heard { record: Some(theirs), .. })) => record.is_later_than(theirs) && record.is_akin_to(theirs),
        Some(Err(_)) | None => false,
    };
    // Also those that belong to it no more, and come back with what was then, or with nothing: they would mislead whoever asks only
    // them.
    let behind: Vec<Member> = ring.everybody().into_iter().filter(lacks).collect();
    if !behind.is_empty() {
        ask_all(router, behind, Say::Tell(record)).await;
    }
    connect_ahead(router);
    router.has_looked(None);
}

fn later(one: Record, other: Record) -> Record {
    if other.is_later_than(&one) { other } else { one }
}

/// What a node is asked for, or told of.
#[derive(Clone)]
pub(super) enum Say {
    Nothing,
    /// It is in force.
    Tell(Record),
    /// Of what is to follow the record of this number and mark, or be the first after zero: a promise to heed no lower ballot, or a voice for this one.
    Vote {
        after: (u64, u64),
        ballot: u64,
        voice: Option<Record>,
    },
}

/// What a node has, after it was asked.
pub(super) struct Heard {
    pub record: Option<Record>,
    /// The highest ballot that it has promised to heed.
    pub promised: u64,
    /// What it gave its voice to, and by which ballot.
    pub voice: Option<(u64, Record)>,
}

/// What each of them says, by its name.
pub(super) async fn ask_all(
    router: &Arc<Router>,
    members: Vec<Member>,
    say: Say,
) -> HashMap<Box<str>, Result<Heard, String>> {
    let say = &say;
    let asked = members.into_iter().map(|member| async move {
        let asked = timeout(PATIENCE, ask(router, &member, say)).await;
        let late = |_| format!("{member} did not answer within {PATIENCE:?}");
        (member.name.clone(), asked.map_err(late).flatten())
    });
    join_all(asked).await.into_iter().collect()
}

async fn ask(router: &Arc<Router>, member: &Member, say: &Say) -> Result<Heard, String> {
    let Some(ring) = &router.ring else { return Err("there is no ring".into()) };
    let address = match say {
        Say::Nothing => find(router, ring, member).await?,
        // A look has just asked where it is.
        Say::Tell(_) | Say::Vote { .. } => match ring.address_of(member) {
            Some(address) => address,
            None => find(router, ring, member).await?,
        },
    };
    let node = router.node_at(&address);
    let ((number, mark), ballot, text) = match say {
        Say::Nothing => ((0, 0), 0, String::new()),
        Say::Tell(record) => ((record.number, record.mark()), 0, record.encode()),
        Say::Vote { after, ballot, voice } => {
            (*after, *ballot, voice.as_ref().map_or_else(String::new, Record::encode))
        }
    };
    let request = Request {
        // Of a server that knows no slots.
        slot: Slot::of(b""),
        script: Script::Ring,
        key: &ring.key(),
        arguments: &|command| {
            command.arg(number).arg(mark).arg(&text).arg(ballot);
        },
        sent: &AtomicBool::new(false),
    };
    let reply = router.look_at(&node, &request).await.map_err(Fault::what)?;
    let reply = RingReply::parse(reply).map_err(|bad| bad.to_string())?;
    let read = |text: &[u8]| match text {
        [] => Ok(None),
        text => Record::decode(text).map(Some).map_err(|bad: BadRecord| format!("{member}: {bad}")),
    };
    let voice = read(&reply.next)?.map(|record| (reply.voted, record));
    Ok(Heard { record: read(&reply.record)?, promised: reply.promised, voice })
}

/// The address of a member. Sentinels are asked each time: theirs is the word that counts.
async fn find(router: &Arc<Router>, ring: &Ring, member: &Member) -> Result<Address, String> {
    let sentinels = match &member.place {
        Place::Server(address) => return Ok(address.clone()),
        Place::Sentinels(sentinels) => sentinels,
    };
    let asked = sentinels.iter().map(|address| ring.sentinel_at(router, address)).map(|sentinel| async move {
        let late = |_| format!("Sentinel {} did not answer", sentinel.address);
        timeout(PATIENCE / 2, master_by(&sentinel, &member.name)).await.map_err(late).flatten()
    });
    let mut failure = String::from("no Sentinel is named");
    let mut answers = Vec::new();
    for answer in join_all(asked).await {
        match answer {
            Ok(answer) => answers.push(answer),
            Err(why) => failure = why,
        }
    }
    let have_all = answers.len() == sentinels.len();
    let resolved = &mut *lock(&ring.resolved);
    // One that was cut off, or just started, names a master of the past: of several the latest failover counts.
    if let Some((epoch, master)) = answers.into_iter().max_by_key(|(epoch, _)| *epoch) {
        // If all have forgotten what was, they were set up anew.
        if resolved.get(&member.name).is_none_or(|(known, _)| epoch >= *known || have_all) {
            resolved.insert(member.name.clone(), (epoch, master));
        }
    }
    // The master may be well all the same.
    resolved.get(&member.name).map(|(_, master)| master.clone()).ok_or(failure)
}

/// Where it is, and the epoch of the failover that brought it there.
async fn master_by(sentinel: &Arc<Node>, name: &str) -> Result<(u64, Address), String> {
    let question = |what: &str| {
        let mut question = cmd("SENTINEL");
        question.arg(what).arg(name);
        question
    };
    // In the middle of a failover only the first knows where it leads.
    let replies =
        sentinel.ask(&[question("GET-MASTER-ADDR-BY-NAME"), question("MASTER")]).await.map_err(Fault::what)?;
    let mut replies = replies.into_iter();
    let address: Option<(String, u16)> =
        redis::from_redis_value(replies.next().unwrap_or(redis::Value::Nil)).map_err(|_| unknown(sentinel, name))?;
    let (host, port) = address.filter(|(host, _)| is_host(host)).ok_or_else(|| unknown(sentinel, name))?;
    let state: HashMap<String, String> =
        replies.next().and_then(|reply| redis::from_redis_value(reply).ok()).unwrap_or_default();
    let epoch = state.get("config-epoch").and_then(|epoch| epoch.parse().ok()).unwrap_or(0);
    Ok((epoch, Address { host: host.into(), port }))
}

fn unknown(sentinel: &Node, name: &str) -> String {
    format!("Sentinel {} knows no master {name}", sentinel.address)
}

impl Ring {
    fn sentinel_at(&self, router: &Router, address: &Address) -> Arc<Node> {
        let sentinels = &mut *lock(&self.sentinels);
        let new = || Arc::new(router.new_node(address, &self.anonymous));
        Arc::clone(sentinels.entry(address.clone()).or_insert_with(new))
    }

    /// Lets go of the connections to Sentinels.
    pub(in crate::store) fn close(&self) {
        lock(&self.sentinels).values().for_each(|node| node.close());
    }
}
