//! The task that sends for a lane: batches out, outcomes back.

use std::pin::pin;

use super::entry::{Entry, Word};
use super::job::Miss;
use super::lane::{Lane, is_due};
use super::losses::Lost;
use super::queue::{Load, MOST_ASKS, Sending, sum};
use super::round::{Decided, Round, Sealed};
use super::watch::Watch;
use super::{SharedLimit, escrow};
use crate::clock::Micros;
use crate::decision::StoreFacts;
use crate::kernel::{Batch, Refund};
use crate::store::cluster::{Fault, Request};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::wire::{Ledger, Reply, Run, Script};

/// Home's state is written at the least so often while its key is used, whatever the calls on it come to: the shares
/// that it lent must not outlive it.
const TOUCH: Micros = 2_000_000;

/// Calls of which the first finds its lane idle come so close together that one round is worth waiting for: a fraction of what the
/// others would wait for the first one's.
const TOGETHER: Micros = 50;

/// How often a lane gives way before it sends again.
const MOST_YIELDS: usize = 2;

/// Sends until the lane is empty; without a load, what waits there by the time that nobody else comes.
pub(super) async fn drive(limit: Arc<SharedLimit>, entry: Arc<Entry>, mut sending: Sending, load: Option<Load>) {
    let lane = Arc::clone(&sending.lane);
    let mut watch = Watch::new(&limit, &lane);
    let mut next = load;
    if next.is_none() {
        let_in(&limit, &lane, TOGETHER).await;
        next = sending.next();
    }
    while let Some(Load { round, refunds }) = next {
        let begun = limit.clock.now();
        // Calls that nobody waits for any more, or whose deadline has passed, cost nothing.
        let mut sealed = round.seal(begun);
        let calls = sealed.calls();
        // They go in any case.
        let returns = !refunds.is_empty();
        loop {
            if !sealed.wanted && !returns {
                lane.miss(&round, sealed, Miss::Stale);
                break;
            }
            let is_over = AtomicBool::new(false);
            let is_out_of_date = {
                let sending = pin!(send(&limit, &entry, &lane, &round, sealed, refunds.clone(), &is_over));
                watch.over(&round, sending, &is_over).await
            };
            if !is_out_of_date {
                break;
            }
            sealed = round.seal(limit.clock.now());
        }
        if returns {
            lane.returned();
        }
        lane.is_shared.store(calls > 1, Ordering::Relaxed);
        if calls > 1 {
            // Those who were just answered may ask again.
            let_in(&limit, &lane, limit.clock.now().saturating_sub(begun)).await;
        }
        next = sending.next();
    }
    limit.rest(entry);
}

/// Calls that are about to come are let in before the next round goes, which is so much larger. That lasts as long as it grows,
/// and not longer than `most`.
async fn let_in(limit: &SharedLimit, lane: &Lane, most: Micros) {
    let until = limit.clock.now() + most;
    let mut before = 0;
    for _ in 0..MOST_YIELDS {
        tokio::task::yield_now().await;
        let waiting = lane.waiting();
        if waiting <= before || waiting >= MOST_ASKS || limit.clock.now() >= until {
            break;
        }
        before = waiting;
    }
}

async fn send(
    limit: &Arc<SharedLimit>,
    entry: &Arc<Entry>,
    lane: &Arc<Lane>,
    round: &Arc<Round>,
    sealed: Sealed,
    unclaimed: Vec<Refund>,
    is_over: &AtomicBool,
) {
    let mut refunds = unclaimed;
    refunds.extend_from_slice(&sealed.refunds);
    let sent = limit.clock.now();
    // A home that has to live for longer than its state needs.
    let touch = sealed.make || lane.is_home && lane.least_ttl > 0 && is_due(&lane.touched, sent, TOUCH);
    let defined = limit.defined();
    let run = Run {
        id: lane.id,
        // A home of which more is known than its definition is not made again without that.
        home: if lane.is_home && lane.id == defined.alone { &defined.new_home } else { &[] },
        least_ttl: lane.least_ttl,
        touch,
        batch: Batch {
            reset: sealed.reset,
            refunds: &refunds,
            debt: sealed.debt,
            asks: &sealed.asks,
            held_for: sealed.held_for,
        },
    };
    let request = Request {
        slot: lane.slot,
        script: Script::acquire(&lane.share),
        key: &lane.sub_key,
        arguments: &|command| run.write(command),
        sent: &round.trip.sent,
    };
    let reply = limit.engine.transport.run(&request).await;
    if !matches!(reply, Err(Fault::NotSent(_))) {
        lane.counts.runs.fetch_add(1, Ordering::Relaxed);
    }
    is_over.store(true, Ordering::Relaxed);
    let parsed = |value| Reply::parse(value, &sealed.asks).map_err(|bad| Fault::Unknown(bad.to_string()));
    match reply.and_then(parsed) {
        Ok(reply) => {
            let comes_back = sealed.reset || !refunds.is_empty();
            answered(limit, entry, lane, (round, sealed, sent), &refunds, reply).await;
            // Only now: before, the last answer would tell those who wait that there is nothing.
            if comes_back {
                lane.send_kept();
                entry.waits.stir();
            }
        }
        Err(fault) => {
            limit.tell_fault(&entry.key, &fault);
            lane.failed(sent, limit.clock.now(), &fault.clone().what());
            // Their receipts are spent, so they can't be tried again: they wait for the next round.
            let lost = if matches!(fault, Fault::Unknown(_)) {
                // What was leased may have been charged, and nobody holds it.
                sum(&refunds) + sealed.leased()
            } else {
                // Home is home under any plan, and another lane leads there by now if the plan is another.
                let lost = if lane.is_home { entry.view().home().keep(refunds) } else { lane.keep(refunds) };
                limit.call_collector();
                lost
            };
            limit.lose(&entry.key, Lost::unreturned(lost));
            lane.miss(round, sealed, Miss::Failed(fault.into_error()));
        }
    }
}

async fn answered(
    limit: &Arc<SharedLimit>,
    entry: &Arc<Entry>,
    lane: &Arc<Lane>,
    (round, sealed, sent): (&Arc<Round>, Sealed, Micros),
    refunds: &[Refund],
    reply: Reply,
) {
    let (id, ledger, header, load, verdicts) = match reply {
        Reply::Decided { id, ledger, header, load, verdicts } => (id, ledger, header, load, verdicts),
        Reply::Stale { .. } => {
            // Few rounds come to this: boxed, so that the others carry no room for it.
            Box::pin(escrow::gone_stale(limit, entry, lane)).await;
            return lane.miss(round, sealed, Miss::Stale);
        }
        Reply::OtherKernel { id, ledger } => {
            return match Ledger::decode(&ledger) {
                Ok(ledger) => {
                    if entry.is_later(id, sent, limit.clock.now()) {
                        Box::pin(escrow::home_forgot(limit, entry, (id, ledger))).await;
                    } else {
                        entry.adopt(limit, id, ledger, Word::InsteadOf(lane.id));
                    }
                    lane.miss(round, sealed, Miss::Stale);
                }
                Err(bad) => lane.miss(round, sealed, Miss::Failed(Fault::Refused(bad.to_string()).into_error())),
            };
        }
    };
    let mut share = lane.share.clone();
    match ledger.map(|ledger| Ledger::decode(&ledger)) {
        None => {}
        Some(Ok(ledger)) => {
            share = ledger.home_share();
            if entry.is_later(id, sent, limit.clock.now()) {
                Box::pin(escrow::home_forgot(limit, entry, (id, ledger))).await;
            } else {
                entry.adopt(limit, id, ledger, Word::Sent(sent));
            }
        }
        // The calls are decided all the same, but by a share that is not known: only what was granted is.
        Some(Err(bad)) => limit.tell_fault(&entry.key, &Fault::Refused(bad.to_string())),
    }
    let now = limit.clock.now();
    // One that takes longer than anybody waits for it is no help: the next try will tell.
    if now.saturating_sub(sent) < limit.deadline || round.is_waited_for(now) {
        lane.answered(now);
    }
    limit.pay(entry, lane);
    lane.load.store(load, Ordering::Relaxed);
    entry.feel(limit);
    if lane.is_home {
        entry.heard(sent, header.now);
    }
    // A look at a key that nobody has used makes no home that could lend anything.
    let used = verdicts.iter().any(|verdict| verdict.granted > 0);
    limit.tally(entry, (&sealed.asks, &verdicts, refunds), header.now, now);
    lane.note(&sealed, &header, &share, &verdicts, (sent, limit.ceiling));
    let facts = {
        let (view, now) = (entry.load(), limit.clock.now());
        let denied = sealed.asks.iter().zip(&verdicts).find(|(ask, verdict)| verdict.granted < ask.count);
        let part = denied.map_or(0, |(_, verdict)| verdict.part(&share));
        let facts = StoreFacts { part, ..view.facts(Some((lane, &header, &share)), now) };
        entry.look_out(&facts, now, limit.ceiling > 0);
        facts
    };
    lane.decide(round, sealed, Decided { header, share, id, sent, facts, verdicts });
    // Those that are sick are tried by those that are not, whatever the selector picks.
    for other in entry.load().lanes.iter().filter(|other| other.is_sick(sent)) {
        limit.try_again(entry, other, sent);
    }
    escrow::look_after(limit, entry, used);
    limit.watch_record(sent);
}
