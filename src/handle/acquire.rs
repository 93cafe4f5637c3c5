//! A call through a handle, as it is awaited.

use std::pin::Pin;
use std::task::{Context, Poll};

use super::{Handle, Held};
use crate::decision::Decision;
use crate::error::Error;
#[cfg(feature = "redis")]
use crate::flow::sharded::Acquiring;

/// Written by hand: an `async` block would have a decision that was made in process go through its own state, and moved five times over,
/// which took as many instructions as to decide it.
///
/// # Cancel safety
/// As [`NamedLimit::acquire`](crate::NamedLimit::acquire).
#[must_use = "futures do nothing unless polled"]
pub(super) struct Acquire<'a> {
    handle: &'a Handle,
    state: State<Store<'a>>,
}

enum State<A> {
    /// For so many permits.
    New(u64),
    /// It is for the store to decide.
    #[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "the embedded store answers at once"))]
    Asked(A),
    Over,
}

#[cfg(feature = "redis")]
type Store<'a> = Acquiring<'a>;
#[cfg(not(feature = "redis"))]
type Store<'a> = std::future::Ready<Result<Decision, Error>>;

impl<'a> Acquire<'a> {
    pub(super) fn new(handle: &'a Handle, permits: u64) -> Self {
        Self { handle, state: State::New(permits) }
    }
}

impl Future for Acquire<'_> {
    type Output = Result<Decision, Error>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        match this.state {
            State::New(permits) if !this.handle.limit.shadow().is_on() => this.begin(permits, context),
            _ => this.go_on(context),
        }
    }
}

impl Acquire<'_> {
    /// What is decided at once is made where the caller wants it.
    #[inline]
    fn begin(
        &mut self,
        permits: u64,
        #[cfg_attr(not(feature = "redis"), expect(unused))] context: &mut Context<'_>,
    ) -> Poll<Result<Decision, Error>> {
        let Self { handle, state } = self;
        *state = State::Over;
        match &handle.held {
            Held::Local(hold) => Poll::Ready(hold.ask(permits)),
            #[cfg(feature = "redis")]
            Held::Shared(hold) => hold.limit.decide_here(hold.entry(), permits, |now| {
                let mut asked = hold.limit.ask_store(hold.entry(), permits, now, handle.limit.within());
                let decided = Pin::new(&mut asked).poll(context);
                if decided.is_pending() {
                    *state = State::Asked(asked);
                }
                decided
            }),
        }
    }

    #[inline(never)]
    fn go_on(&mut self, context: &mut Context<'_>) -> Poll<Result<Decision, Error>> {
        let mut decided = match &mut self.state {
            State::New(permits) => {
                let permits = *permits;
                self.begin(permits, context)
            }
            State::Asked(asked) => Pin::new(asked).poll(context),
            State::Over => panic!("a call was polled after its end"),
        };
        if let Poll::Ready(decided) = &mut decided {
            self.state = State::Over;
            self.handle.limit.shadow().over(decided);
        }
        decided
    }
}
