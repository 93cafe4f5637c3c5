//! The task that sends for a lane: batches out, outcomes back.

use super::entry::{Entry, Word};
use super::job::{Job, Miss, Outcome, Work};
use super::lane::{Lane, Load, Sending, is_due};
use super::{SharedLimit, escrow};
use crate::clock::Micros;
use crate::error::{Error, ErrorKind};
use crate::kernel::{Ask, Batch, Verdict};
use crate::observe;
use crate::store::cluster::{Fault, Request};
use crate::sync::Arc;
use crate::sync::atomic::Ordering;
use crate::wire::{Ledger, Reply, Run, Script};

/// Home's state is written at the least so often while its key is used, whatever the calls on it come to: the shares
/// that it lent must not outlive it.
const TOUCH: Micros = 2_000_000;

/// Sends until the lane is empty.
pub(super) async fn drive(limit: Arc<SharedLimit>, entry: Arc<Entry>, mut sending: Sending, mut load: Load) {
    loop {
        let lane = Arc::clone(&sending.lane);
        load.jobs = sort_out(&limit, &lane, load.jobs);
        if !load.jobs.is_empty() || !load.refunds.is_empty() {
            send(&limit, &entry, &lane, load).await;
        }
        match sending.next() {
            Some(next) => load = next,
            None => return,
        }
    }
}

/// Calls that nobody waits for any more, or that waited for too long, cost nothing. A refund is never too late to send.
fn sort_out(limit: &SharedLimit, lane: &Lane, jobs: Vec<Job>) -> Vec<Job> {
    let mut kept = Vec::with_capacity(jobs.len());
    for job in jobs {
        if job.is_abandoned() && matches!(job.work, Work::Ask(_) | Work::Look) {
            lane.answer(job, Err(Miss::Stale));
        } else if job.is_late(limit.timeout) && !matches!(job.work, Work::Refund(_)) {
            let message =
                format!("waited for its shard for more than {:?}; nothing was charged; try again", limit.timeout);
            lane.answer(job, Err(Miss::Failed(Error::new(ErrorKind::NotSent, "redis", message))));
        } else {
            kept.push(job);
        }
    }
    kept
}

async fn send(limit: &Arc<SharedLimit>, entry: &Arc<Entry>, lane: &Arc<Lane>, load: Load) {
    let Load { jobs, refunds: unclaimed } = load;
    let mut refunds = unclaimed.clone();
    let (mut asks, mut debt): (Vec<Ask>, u64) = (Vec::new(), 0);
    let (mut reset, mut make) = (false, false);
    for job in &jobs {
        match job.work {
            Work::Ask(permits) => match asks.last_mut() {
                Some(ask) if ask.permits == permits => ask.count += 1,
                _ => asks.push(Ask { permits, count: 1 }),
            },
            Work::Look => {}
            Work::Make => make = true,
            Work::Reset => reset = true,
            Work::Debt(permits) => debt = debt.saturating_add(permits),
            Work::Refund(refund) => refunds.push(refund),
        }
    }
    let sent = limit.clock.now();
    let touch = make || lane.is_home && entry.view().is_split() && is_due(&lane.touched, sent, TOUCH);
    let run = Run {
        id: lane.id,
        home: if lane.is_home { &limit.new_home } else { &[] },
        least_ttl: lane.least_ttl,
        touch,
        batch: Batch { reset, refunds: &refunds, debt, asks: &asks },
    };
    let request = Request {
        slot: lane.slot,
        script: Script::acquire(&lane.share),
        key: &lane.sub_key,
        arguments: &|command| run.write(command),
    };
    lane.counts.runs.fetch_add(1, Ordering::Relaxed);
    let reply = limit.engine.transport.run(&request).await;
    let reply = reply.and_then(|value| Reply::parse(value, asks.len()).map_err(|bad| Fault::Unknown(bad.to_string())));
    match reply {
        Ok(reply) => answered(limit, entry, lane, Batched { jobs, asks, sent }, reply).await,
        Err(fault) => {
            observe::fault(&limit.name, &entry.key, &fault);
            lane.failed(limit.clock.now());
            if !matches!(fault, Fault::Unknown(_)) {
                lane.keep(unclaimed);
            }
            fail(lane, jobs, &fault);
        }
    }
}

struct Batched {
    jobs: Vec<Job>,
    asks: Vec<Ask>,
    sent: Micros,
}

async fn answered(limit: &Arc<SharedLimit>, entry: &Arc<Entry>, lane: &Arc<Lane>, batched: Batched, reply: Reply) {
    let (id, ledger, header, verdicts) = match reply {
        Reply::Decided { id, ledger, header, verdicts } => (id, ledger, header, verdicts),
        Reply::Stale { .. } => {
            escrow::gone_stale(limit, entry, lane).await;
            return batched.jobs.into_iter().for_each(|job| lane.answer(job, Err(Miss::Stale)));
        }
        Reply::OtherKernel { id, ledger } => {
            return match Ledger::decode(&ledger) {
                Ok(ledger) => {
                    entry.adopt(limit, id, ledger, Word::InsteadOf(lane.id));
                    batched.jobs.into_iter().for_each(|job| lane.answer(job, Err(Miss::Stale)));
                }
                Err(bad) => fail(lane, batched.jobs, &Fault::Refused(bad.to_string())),
            };
        }
    };
    let mut share = lane.share;
    match ledger.map(|ledger| Ledger::decode(&ledger)) {
        None => {}
        Some(Ok(ledger)) => {
            share = ledger.home_share();
            entry.adopt(limit, id, ledger, Word::Sent(batched.sent));
        }
        // The calls are decided all the same, but by a share that is not known: only what was granted is.
        Some(Err(bad)) => observe::fault(&limit.name, &entry.key, &Fault::Refused(bad.to_string())),
    }
    lane.answered();
    if lane.is_home {
        entry.heard(batched.sent, header.now);
    }
    let denied = batched.asks.iter().zip(&verdicts).find(|(ask, verdict)| verdict.granted < ask.count);
    lane.ceiling.note(&share, &header, denied.map(|(ask, verdict)| (ask.permits, verdict.lack)), batched.sent);

    let mut left = batched.asks.iter().zip(&verdicts);
    let mut current: Option<(&Ask, &Verdict, u64)> = None;
    for job in batched.jobs {
        let mut verdict = Verdict::default();
        if let Work::Ask(permits) = job.work {
            let (ask, of_all, index) = match current {
                Some((ask, verdict, index)) if index < ask.count => (ask, verdict, index),
                _ => left.next().map(|(ask, verdict)| (ask, verdict, 0)).expect("an ask for each run of jobs"),
            };
            current = Some((ask, of_all, index + 1));
            let ahead = index as i64 * permits as i64 * share.cost();
            verdict =
                Verdict { granted: (index < of_all.granted).into(), lack: of_all.lack, line: of_all.line + ahead };
        }
        lane.decide(job, Outcome { header, verdict, share, id });
    }
    // A look at a key that nobody has used makes no home that could lend anything.
    if verdicts.iter().any(|verdict| verdict.granted > 0) || entry.view().is_split() {
        escrow::look_after(limit, entry);
    }
}

fn fail(lane: &Lane, jobs: Vec<Job>, fault: &Fault) {
    let error = fault.clone().into_error();
    for job in jobs {
        match (job.work, fault) {
            // Its receipt is spent, so it can't be tried again: it waits for the next batch.
            (Work::Refund(refund), fault) if !matches!(fault, Fault::Unknown(_)) => {
                lane.keep(vec![refund]);
                lane.answer(job, Err(Miss::Stale));
            }
            _ => lane.answer(job, Err(Miss::Failed(error.clone()))),
        }
    }
}
