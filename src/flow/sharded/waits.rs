//! The calls of this process that wait for one key, in the order of their arrival.
//!
//! They ask for nothing themselves. One task asks for the head of the line, and for those behind it that want as many permits;
//! whichever of these asks is granted, the head has it: so nobody overtakes, however many shards there are. Who has an answer is
//! out of the line, and takes it when it is polled.

use std::collections::BTreeMap;
use std::task::{Poll, Waker};

use super::queue::MOST_ASKS;
use crate::clock::Micros;
use crate::decision::Decision;
use crate::error::Error;
use crate::flow::Line;
use crate::flow::line::Afterwards;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, lock};

/// Of one key.
#[derive(Default)]
pub(super) struct Waits {
    /// Permits that those in line want: what every call of the key looks at.
    permits: AtomicU64,
    /// While somebody waits.
    state: Mutex<Option<Box<State>>>,
}

#[derive(Default)]
struct State {
    line: Line,
    /// Of calls that are out of the line and do not know it yet.
    answers: BTreeMap<u64, Answer>,
    /// Before that no ask is worth it.
    due: Micros,
    /// Unless something came back, or another call is at the head.
    is_stirred: bool,
    /// A task asks for those in line.
    is_served: bool,
    /// What wakes it while it has nothing to do.
    task: Option<Waker>,
    /// Why the store could not be asked the last time.
    trouble: Option<Error>,
}

enum Answer {
    Decided(Result<Decision, Error>),
    /// No permit will be there before its deadline.
    TooLate,
}

/// How a call left the line.
pub(super) enum Left {
    Decided(Result<Decision, Error>),
    /// Without a decision: so many permits were wanted by those ahead, and no ask is worth it before `due`.
    Late {
        ahead: u64,
        due: Micros,
        trouble: Option<Error>,
    },
}

/// What is to be done for the line.
pub(super) enum Next {
    /// Nobody waits any more: the task is to end.
    Nobody,
    /// So many calls at the head want as many permits each.
    Ask {
        permits: u64,
        calls: usize,
    },
    Until(Micros),
}

/// How a call came to the line.
#[derive(Debug, PartialEq)]
pub(super) enum Joined {
    /// It waits, and a task has to begin to serve.
    First,
    Behind,
    /// Too many wait already: so many permits are wanted by them, and no ask is worth it before then.
    Full(u64, Micros),
}

/// A call that is about to wait.
pub(super) struct Arrival {
    pub ticket: u64,
    pub permits: u64,
    pub deadline: Micros,
    /// What it knows already: before that no ask is worth it,
    pub due: Micros,
    /// or the store could not be asked.
    pub trouble: Option<Error>,
}

impl Waits {
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.permits.load(Ordering::Relaxed) == 0
    }

    /// Permits that those in line want, and before when no ask is worth it; none if nobody waits.
    pub(super) fn ahead(&self, now: Micros) -> Option<(u64, Micros)> {
        self.when_waited_for(|state, afterwards| {
            state.expire(now, afterwards);
            (!state.line.is_empty()).then_some((state.line.permits(), state.due))
        })
        .flatten()
    }

    /// Takes a place in line, by its ticket.
    pub(super) fn join(&self, arrival: Arrival, waker: &Waker) -> Joined {
        let Arrival { ticket, permits, deadline, due, trouble } = arrival;
        let mut afterwards = Afterwards::default();
        let joined = self.locked(|state| {
            let (state, afterwards) = (state.get_or_insert_default(), &mut afterwards);
            if state.line.is_full() {
                return Joined::Full(state.line.permits(), state.due);
            }
            state.line.join_as(ticket, permits, deadline, waker);
            if state.line.head().is_some_and(|head| head.ticket == ticket) {
                (state.due, state.trouble) = (due, trouble);
                // If it has just asked, there is no hurry.
                let hurry = state.is_stirred || due == 0;
                state.stir(afterwards);
                state.is_stirred = hurry;
            }
            if std::mem::replace(&mut state.is_served, true) { Joined::Behind } else { Joined::First }
        });
        afterwards.run();
        joined
    }

    /// Looks for an answer; at its deadline the call leaves without one.
    pub(super) fn poll(&self, ticket: u64, now: Micros, waker: &Waker) -> Poll<Left> {
        let left = self.when_waited_for(|state, afterwards| {
            state.expire(now, afterwards);
            let late = |state: &State, ahead| Left::Late { ahead, due: state.due, trouble: state.trouble.clone() };
            match state.answers.remove(&ticket) {
                Some(Answer::Decided(decided)) => return Poll::Ready(Left::Decided(decided)),
                Some(Answer::TooLate) => return Poll::Ready(late(state, 0)),
                None => {}
            }
            match state.line.deadline_of(ticket, waker, afterwards) {
                Some(deadline) if now < deadline => Poll::Pending,
                _ => {
                    let ahead = state.line.ahead_of(ticket);
                    state.leave(ticket, afterwards);
                    Poll::Ready(late(state, ahead))
                }
            }
        });
        left.unwrap_or(Poll::Ready(Left::Late { ahead: 0, due: 0, trouble: None }))
    }

    /// Leaves before it had an answer, or with the one that lay ready.
    pub(super) fn leave(&self, ticket: u64) -> Option<Result<Decision, Error>> {
        let answer = self.when_waited_for(|state, afterwards| {
            state.leave(ticket, afterwards);
            state.answers.remove(&ticket)
        });
        match answer.flatten()? {
            Answer::Decided(decided) => Some(decided),
            Answer::TooLate => None,
        }
    }

    /// Something came back: the head may be served earlier than was said.
    pub(super) fn stir(&self) {
        if !self.is_empty() {
            self.when_waited_for(State::stir);
        }
    }

    /// What the task does next. While there is nothing to do, `waker` wakes it.
    pub(super) fn next(&self, now: Micros, waker: &Waker) -> Next {
        let next = self.when_waited_for(|state, afterwards| {
            state.expire(now, afterwards);
            let Some(head) = state.line.head() else {
                state.is_served = false;
                return Next::Nobody;
            };
            if std::mem::take(&mut state.is_stirred) || now >= state.due {
                state.task = None;
                return Next::Ask { permits: head.permits, calls: state.line.alike(MOST_ASKS) };
            }
            state.task = Some(waker.clone());
            Next::Until(state.due)
        });
        next.unwrap_or(Next::Nobody)
    }

    /// What an ask for so many permits came to: the head's. It comes back if the head is another by now and wants no such thing.
    pub(super) fn answer(&self, permits: u64, decided: Result<Decision, Error>) -> Option<Result<Decision, Error>> {
        let mut decided = Some(decided);
        self.when_waited_for(|state, afterwards| {
            if let Some(head) = state.line.head().filter(|head| head.permits == permits)
                && let Some(decided) = decided.take()
            {
                state.give(head.ticket, Answer::Decided(decided), afterwards);
            }
        });
        decided
    }

    /// The store has no more for an ask of so many permits before `due`, if that is not past. Those at the head who can't wait for
    /// so long leave.
    pub(super) fn rest_until(&self, permits: u64, due: Micros, trouble: Option<Error>) {
        self.when_waited_for(|state, afterwards| {
            (state.due, state.trouble) = (due, trouble);
            // While the store can't be asked nobody knows what will be there.
            while let Some(head) = state.line.head().filter(|_| state.trouble.is_none()) {
                if head.permits != permits {
                    // A call with another wish: what was said does not count for it.
                    state.is_stirred = true;
                    return;
                }
                if head.deadline >= due {
                    return;
                }
                state.give(head.ticket, Answer::TooLate, afterwards);
            }
        });
    }

    /// The task has come to its end, and nobody else will ask.
    pub(super) fn end(&self, error: &Error) {
        self.when_waited_for(|state, afterwards| {
            state.is_served = false;
            while let Some(head) = state.line.head() {
                state.give(head.ticket, Answer::Decided(Err(error.clone())), afterwards);
            }
        });
    }

    /// Nothing if nobody waits.
    fn when_waited_for<T>(&self, work: impl FnOnce(&mut State, &mut Afterwards) -> T) -> Option<T> {
        let mut afterwards = Afterwards::default();
        let done = self.locked(|state| state.as_mut().map(|state| work(state, &mut afterwards)));
        afterwards.run();
        done
    }

    fn locked<T>(&self, work: impl FnOnce(&mut Option<Box<State>>) -> T) -> T {
        let (done, over) = {
            let state = &mut *lock(&self.state);
            let done = work(state);
            let wanted = state.as_ref().map_or(0, |state| state.line.permits());
            self.permits.store(wanted, Ordering::Relaxed);
            (done, state.take_if(|state| state.is_over()))
        };
        // After the lock: it may hold a waker.
        drop(over);
        done
    }
}

impl State {
    /// Nobody waits, nobody has an answer to fetch, and nobody serves.
    fn is_over(&self) -> bool {
        !self.is_served && self.line.is_empty() && self.answers.is_empty()
    }

    fn stir(&mut self, afterwards: &mut Afterwards) {
        self.is_stirred = true;
        afterwards.also_wake.extend(self.task.take());
    }

    /// Clears calls whose deadline has passed. Where the store could not be asked, they are still to learn why.
    fn expire(&mut self, now: Micros, afterwards: &mut Afterwards) {
        let head = self.line.head().map(|head| head.ticket);
        for ticket in self.line.expire(now, afterwards) {
            if let Some(trouble) = &self.trouble {
                self.answers.insert(ticket, Answer::Decided(Err(trouble.clone())));
            }
        }
        if self.line.head().map(|head| head.ticket) != head {
            self.stir(afterwards);
        }
    }

    fn give(&mut self, ticket: u64, answer: Answer, afterwards: &mut Afterwards) {
        if let Some(waker) = self.line.take(ticket) {
            self.answers.insert(ticket, answer);
            afterwards.also_wake.push(waker);
        }
    }

    /// If it was the head, another one is, who may want less.
    fn leave(&mut self, ticket: u64, afterwards: &mut Afterwards) {
        let was_head = self.line.head().is_some_and(|head| head.ticket == ticket);
        afterwards.drop.extend(self.line.take(ticket));
        if was_head {
            self.stir(afterwards);
        }
    }
}
