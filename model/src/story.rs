//! A history as text, one line an event: what happened, and what everything is after that.

use std::fmt::Write;

use super::account::PERMIT;
use super::client::Attempt;
use super::message::Request;
use super::server::{Held, Known, SubKey};
use super::setup::Setup;
use super::world::{Event, World};
use crate::escrow::Report;
use crate::wire::{GrantId, Status};

pub(super) fn tell(setup: &Setup, history: &[(World, Option<Event>)]) -> String {
    let mut story = String::new();
    for (number, (world, event)) in history.iter().enumerate() {
        let _ = writeln!(story, "{number:2}. {}", state(setup, world));
        if let Some(event) = event {
            let _ = writeln!(story, "    {}", happening(world, *event));
        }
    }
    story
}

fn happening(world: &World, event: Event) -> String {
    match event {
        Event::Deliver(index) => {
            let message = world.flying.iter().nth(index).expect("it was on its way");
            format!("-> arrives: {}", request(&message.request))
        }
        event => format!("-> {event:?}"),
    }
}

fn state(setup: &Setup, world: &World) -> String {
    let mut text = format!("at {}", world.now);
    match &world.home.key {
        Some(home) => {
            let _ = write!(text, " | home {} {}", ledger(&home.known), permits(&home.held));
        }
        None => text += " | no home",
    }
    for (slot, shard) in world.shards.iter().enumerate().skip(1) {
        let _ = match &shard.key {
            Some(SubKey::Lent(its, held)) => write!(text, " | {slot}: {} {}", id(*its), permits(held)),
            Some(SubKey::Tombstone(its, Some(held))) => write!(text, " | {slot}: +{} {}", id(*its), permits(held)),
            Some(SubKey::Tombstone(its, None)) => write!(text, " | {slot}: +{}", id(*its)),
            None => write!(text, " | {slot}: -"),
        };
    }
    for client in &world.clients {
        let attempt = match &client.attempt {
            None => String::new(),
            Some(Attempt::Settle(reports)) => {
                let reports: Vec<String> =
                    reports.iter().map(|(its, heard)| format!("{} {}", id(*its), report(heard))).collect();
                format!(" settles, heard {}", reports.join(", "))
            }
            Some(Attempt::Assert(_)) => " asserts".into(),
            Some(Attempt::Stale(its)) => format!(" found {} stale", id(*its)),
        };
        let _ = write!(text, " | client {}{attempt}", ledger(&client.view));
    }
    for message in world.flying.iter() {
        let _ = write!(text, " | ~{}", request(&message.request));
    }
    for answer in &world.answers {
        let of = if answer.is_old { " of an old plan" } else { "" };
        let _ = write!(text, " | ~answer to client {}: {} from {}{of}", answer.client, answer.granted, answer.slot);
    }
    if world.away != 0 {
        let _ = write!(text, " | out of reach: {:b}", world.away);
    }
    let account = &world.account;
    let _ = write!(
        text,
        " | {} admitted + {} left of {} + {}",
        thousandths(account.admitted),
        thousandths(world.spendable(setup)),
        thousandths(account.budget),
        thousandths(account.allowed)
    );
    text
}

fn request(request: &Request) -> String {
    match request {
        Request::Install { slot, id: its, not_after, .. } => format!("install {} at {slot} by {not_after}", id(*its)),
        Request::Close { slot, id: its } => format!("close {} at {slot}", id(*its)),
        Request::Refund { slot, permits, .. } => format!("{permits} back to {slot}"),
        Request::Home(run) => {
            let expected = run.expected.map_or("nothing".into(), id);
            let known = Known::new(run.id, run.write.ledger.clone());
            format!("{expected} becomes {} -{} +{}", ledger(&known), run.write.deduct, run.write.back.len())
        }
    }
}

fn report(report: &Report) -> String {
    match report {
        Report::Closed(left) if left.is_empty() => "Closed, nothing left".into(),
        Report::Closed(left) => format!("Closed {}", permits(&Held::unpack(left).1)),
        report => format!("{report:?}"),
    }
}

fn id(id: GrantId) -> String {
    format!("{}.{:x}", id.stamp, id.random & 0xffff)
}

fn ledger(known: &Known) -> String {
    let mut text = format!("{} <{}", id(known.id), known.ledger.definition.limit.permits());
    if let Some(next) = &known.ledger.next {
        let _ = write!(text, " next {}", next.limit.permits());
    }
    for grant in &known.ledger.grants {
        let status = match grant.status {
            Status::Live => "live",
            Status::Pending { .. } => "pending",
            Status::Recalled { .. } => "recalled",
        };
        let _ = write!(text, ", {} at {} {status}", id(grant.id), grant.slot.number());
    }
    text + ">"
}

fn permits(held: &Held) -> String {
    let level = held.bucket.level as f64 / held.share.cost as f64;
    format!("({level:.2} of {})", held.share.burst)
}

fn thousandths(parts: i64) -> String {
    format!("{:.2}", parts as f64 / PERMIT as f64)
}
