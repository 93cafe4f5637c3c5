//! One who takes part, and the check of each of its turns: that its calls were decided as the case says, and in process.

use shardlimit_peers::{Figures, allowed_of, lap};

use crate::{CALLS, Case, THREADS};

/// A loop of calls, its name, and what it asks a store for, if it is ours and has one.
pub(crate) struct Entrant<'a> {
    pub(crate) name: &'static str,
    work: Box<dyn Fn(usize, u64) -> u64 + Sync + 'a>,
    asked: Option<Box<dyn Fn() -> Asked + 'a>>,
}

/// What a store was asked for so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    /// Calls that had to wait for it.
    pub(crate) calls: u64,
    /// Script runs, also those that nobody waited for.
    pub(crate) runs: u64,
    /// Calls that the failure policy decided.
    pub(crate) failed: u64,
}

impl<'a> Entrant<'a> {
    /// Whose call says whether it was allowed.
    pub(crate) fn new(name: &'static str, call: impl Fn() -> bool + Sync + 'a) -> Self {
        Self { name, work: Box::new(move |_, calls| allowed_of(calls, &call)), asked: None }
    }

    /// With a store to look at.
    pub(crate) fn asking(mut self, asked: impl Fn() -> Asked + 'a) -> Self {
        self.asked = Some(Box::new(asked));
        self
    }

    pub(crate) fn warm_up(&self) {
        let _ = lap(&self.work, THREADS, CALLS / 10);
    }

    /// A turn that is not what the case says is no part of any figure.
    pub(crate) fn turn(&self, case: Case) -> Figures {
        let before = self.asked.as_ref().map(|asked| asked());
        let lap = lap(&self.work, THREADS, CALLS);
        let after = self.asked.as_ref().map(|asked| asked());
        let due = if case == Case::Allowed { lap.calls } else { 0 };
        let figures = lap.figures().flawed("some calls were decided otherwise", lap.allowed != due);
        let Some((before, after)) = before.zip(after) else { return figures };
        let runs = after.runs - before.runs;
        let most = (after.calls - before.calls).max(runs);
        figures
            .with("runs", runs as f64 / lap.calls as f64)
            .flawed("the store was asked for more than 1 % of the calls", most * 100 > lap.calls)
            .flawed("the failure policy decided", after.failed != before.failed)
    }
}
