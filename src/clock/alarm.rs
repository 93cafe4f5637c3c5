//! Alarms: wakers sorted by the time at which they are due.
//!
//! Written here because callers may sit on any runtime or on none, and because a fake clock has to ring them
//! too; no timer crate does both.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::task::Waker;

use super::Micros;
use crate::sync::{Arc, Condvar, Mutex, lock};

/// Due time, then a number that keeps alarms of one microsecond apart.
type Due = (Micros, u64);

#[derive(Debug, Default)]
pub(super) struct Alarms {
    pub(super) board: Mutex<Board>,
    /// Told when the earliest alarm changes, and at the end.
    pub(super) changed: Condvar,
}

#[derive(Debug, Default)]
pub(super) struct Board {
    waiting: BTreeMap<Due, Waker>,
    set: u64,
    pub(super) closed: bool,
}

/// A set alarm. Dropping it takes the waker off the board.
#[derive(Debug)]
#[must_use = "dropping an alarm silences it"]
pub(crate) struct Alarm {
    due: Due,
    alarms: Arc<Alarms>,
}

impl Alarms {
    pub(super) fn set(self: &Arc<Self>, at: Micros, waker: &Waker) -> Alarm {
        let mut board = lock(&self.board);
        board.set += 1;
        let due = (at, board.set);
        board.waiting.insert(due, waker.clone());
        if board.waiting.first_key_value().map(|(first, _)| *first) == Some(due) {
            self.changed.notify_one();
        }
        drop(board);
        Alarm { due, alarms: Arc::clone(self) }
    }

    /// Wakes whatever is due. The lock is not held meanwhile: a waker may run foreign code. If one panics, the others
    /// are woken first.
    pub(super) fn ring(&self, now: Micros) {
        let due: Vec<Waker> = {
            let mut board = lock(&self.board);
            let later = board.waiting.split_off(&(now.saturating_add(1), 0));
            std::mem::replace(&mut board.waiting, later).into_values().collect()
        };
        let mut panicked = None;
        for waker in due {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
                panicked.get_or_insert(panic);
            }
        }
        if let Some(panic) = panicked {
            resume_unwind(panic);
        }
    }
}

impl Board {
    pub(super) fn earliest(&self) -> Option<Micros> {
        self.waiting.first_key_value().map(|((at, _), _)| *at)
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        let silenced = lock(&self.alarms.board).waiting.remove(&self.due);
        drop(silenced); // after the lock: dropping a waker may run foreign code
    }
}
