//! A line serves whoever waits, in the order of arrival, once each.

use std::task::{Poll, Waker};

use proptest::prelude::*;

use super::super::waits::{Arrival, Joined, Left, Next, Waits};
use crate::clock::Micros;
use crate::decision::Decision;
use crate::error::{Error, ErrorKind};
use crate::flow::Line;
use crate::flow::line::MOST;

#[derive(Clone, Debug)]
enum Step {
    /// Somebody arrives; later ones may stand in line before.
    Arrive {
        permits: u64,
        within: Micros,
    },
    /// Of those who arrived and stand nowhere yet, one joins.
    Join(usize),
    Leave(usize),
    Poll(usize),
    Wait(Micros),
    /// An ask for what the head wants was granted.
    Grant,
    /// It was denied: not before so long from now.
    Deny(Micros),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1..4_u64, 1..100_u64).prop_map(|(permits, within)| Step::Arrive { permits, within }),
        4 => (0..8_usize).prop_map(Step::Join),
        1 => (0..20_usize).prop_map(Step::Leave),
        4 => (0..20_usize).prop_map(Step::Poll),
        2 => (1..20_u64).prop_map(Step::Wait),
        4 => Just(Step::Grant),
        2 => (1..40_u64).prop_map(Step::Deny),
    ];
    prop::collection::vec(step, 1..120)
}

/// A call as the model knows it.
#[derive(Clone, Copy, Debug)]
struct Known {
    ticket: u64,
    permits: u64,
    deadline: Micros,
}

#[derive(Default)]
struct Model {
    /// In the order of arrival.
    line: Vec<Known>,
    /// Served, by the number of the grant.
    served: Vec<(u64, u64)>,
    too_late: Vec<u64>,
}

impl Model {
    fn expire(&mut self, now: Micros) {
        self.line.retain(|call| call.deadline >= now);
    }
}

/// What tells one answer from another.
fn mark(number: u64) -> Result<Decision, Error> {
    Err(Error::new(ErrorKind::Unknown, "mark", number.to_string()))
}

proptest! {
    #[test]
    fn a_line_is_served_in_order(steps in steps()) {
        let (waits, waker) = (Waits::default(), Waker::noop());
        let (mut model, mut now, mut grants) = (Model::default(), 1_000, 0);
        let (mut arrived, mut all): (Vec<Known>, Vec<Known>) = (Vec::new(), Vec::new());
        for step in steps {
            match step {
                Step::Arrive { permits, within } => {
                    arrived.push(Known { ticket: Line::ticket(), permits, deadline: now + within });
                }
                Step::Join(which) if !arrived.is_empty() => {
                    let call = arrived.remove(which % arrived.len());
                    let Known { ticket, permits, deadline } = call;
                    waits.join(Arrival { ticket, permits, deadline, due: 0, trouble: None }, waker);
                    all.push(call);
                    model.line.push(call);
                    model.line.sort_by_key(|call| call.ticket);
                }
                Step::Leave(which) if !all.is_empty() => {
                    let call = all.remove(which % all.len());
                    let answer = waits.leave(call.ticket);
                    let served = model.served.iter().position(|(ticket, _)| *ticket == call.ticket);
                    prop_assert_eq!(answer.is_some(), served.is_some());
                    served.map(|place| model.served.remove(place));
                    model.line.retain(|other| other.ticket != call.ticket);
                    model.too_late.retain(|ticket| *ticket != call.ticket);
                }
                Step::Poll(which) if !all.is_empty() => {
                    let call = all[which % all.len()];
                    model.expire(now);
                    let in_line = model.line.iter().position(|other| other.ticket == call.ticket);
                    let served = model.served.iter().position(|(ticket, _)| *ticket == call.ticket);
                    match waits.poll(call.ticket, now, waker) {
                        Poll::Pending => prop_assert!(in_line.is_some() && now < call.deadline),
                        Poll::Ready(Left::Decided(decided)) => {
                            let (_, number) = model.served.remove(served.expect("nobody is served twice"));
                            prop_assert_eq!(decided.unwrap_err().to_string(), mark(number).unwrap_err().to_string());
                            all.retain(|other| other.ticket != call.ticket);
                        }
                        Poll::Ready(Left::Late { ahead, .. }) => {
                            let denied = model.too_late.contains(&call.ticket);
                            prop_assert!(served.is_none() && (denied || now >= call.deadline));
                            if let Some(place) = in_line {
                                let before = model.line[..place].iter().map(|other| other.permits).sum::<u64>();
                                prop_assert_eq!(ahead, before);
                                model.line.remove(place);
                            }
                            all.retain(|other| other.ticket != call.ticket);
                        }
                    }
                }
                Step::Wait(micros) => now += micros,
                Step::Grant | Step::Deny(_) => {
                    model.expire(now);
                    // Whatever was said before: it is asked for now.
                    waits.stir();
                    let head = match waits.next(now, waker) {
                        Next::Nobody => None,
                        Next::Ask { permits, calls } => {
                            let alike = model.line.iter().take_while(|call| call.permits == permits).count();
                            prop_assert_eq!(calls, alike);
                            Some(permits)
                        }
                        Next::Until(_) => return Err(TestCaseError::fail("it was stirred")),
                    };
                    prop_assert_eq!(head, model.line.first().map(|call| call.permits));
                    let Some(permits) = head else { continue };
                    if let Step::Deny(wait) = step {
                        waits.rest_until(permits, now + wait, None);
                        while let Some(call) = model.line.first().copied() {
                            if call.permits != permits || call.deadline >= now + wait {
                                break;
                            }
                            model.too_late.push(call.ticket);
                            model.line.remove(0);
                        }
                    } else {
                        grants += 1;
                        prop_assert!(waits.answer(permits, mark(grants)).is_none());
                        model.served.push((model.line.remove(0).ticket, grants));
                    }
                }
                Step::Join(_) | Step::Leave(_) | Step::Poll(_) => {}
            }
            let wanted: u64 = model.line.iter().map(|call| call.permits).sum();
            if let Some((ahead, _)) = waits.ahead(now) {
                model.expire(now);
                prop_assert_eq!(ahead, model.line.iter().map(|call| call.permits).sum::<u64>());
            } else {
                model.expire(now);
                prop_assert!(model.line.is_empty(), "{} permits are waited for", wanted);
            }
            prop_assert_eq!(waits.is_empty(), model.line.is_empty());
        }
    }
}

/// Whoever serves the line may be the one who sees that a deadline has passed: the call learns all the same why nobody could be
/// asked for it.
#[test]
fn who_is_cleared_away_learns_of_the_trouble() {
    let (waits, waker) = (Waits::default(), Waker::noop());
    let trouble = || Some(mark(7).unwrap_err());
    let ticket = Line::ticket();
    waits.join(Arrival { ticket, permits: 1, deadline: 50, due: 10, trouble: trouble() }, waker);
    assert!(matches!(waits.next(51, waker), Next::Nobody));
    match waits.poll(ticket, 51, waker) {
        Poll::Ready(Left::Decided(Err(error))) => {
            assert_eq!(Some(error.to_string()), trouble().map(|error| error.to_string()));
        }
        _ => panic!("it was told something else"),
    }
    assert!(waits.is_empty());
}

#[test]
fn a_full_line_takes_nobody_in() {
    let (waits, waker) = (Waits::default(), Waker::noop());
    let arrive = || Arrival { ticket: Line::ticket(), permits: 2, deadline: 50, due: 30, trouble: None };
    assert_eq!(waits.join(arrive(), waker), Joined::First);
    for _ in 1..MOST {
        assert_eq!(waits.join(arrive(), waker), Joined::Behind);
    }
    assert_eq!(waits.join(arrive(), waker), Joined::Full(2 * MOST as u64, 30));
    // The head is served.
    assert!(waits.answer(2, mark(1)).is_none());
    assert_eq!(waits.join(arrive(), waker), Joined::Behind);
}
