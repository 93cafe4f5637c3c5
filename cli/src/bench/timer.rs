//! One precise alarm for a thread that has many callers.

#[cfg(target_os = "linux")]
pub(super) use linux::Timer;
#[cfg(not(target_os = "linux"))]
pub(super) use portable::Timer;

/// A timerfd: the runtime's own timers go by whole milliseconds, which would make most calls of a fast schedule late;
/// spinning until a call is due would take the processor time that the measurement is about.
#[cfg(target_os = "linux")]
mod linux {
    use std::io;
    use std::os::fd::OwnedFd;

    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
    };
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    use crate::clock::{Nanos, SECOND};

    #[derive(Debug)]
    pub(in crate::bench) struct Timer(AsyncFd<OwnedFd>);

    impl Timer {
        /// To be called inside the runtime that will wait for it.
        #[allow(
            deprecated,
            reason = "its successor is unsafe, for descriptors that others may close: this one is ours"
        )]
        pub(in crate::bench) fn new() -> io::Result<Self> {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            Ok(Self(AsyncFd::with_interest(timerfd_create(TimerfdClockId::Monotonic, flags)?, Interest::READABLE)?))
        }

        /// Fires once, `after` so long; what was set before is forgotten.
        pub(in crate::bench) fn set(&self, after: Nanos) {
            // Zero would switch it off.
            let after = after.max(1);
            let once = Itimerspec {
                it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
                it_value: Timespec { tv_sec: (after / SECOND) as i64, tv_nsec: (after % SECOND) as _ },
            };
            timerfd_settime(self.0.get_ref(), TimerfdTimerFlags::empty(), &once).expect("the time is well-formed");
        }

        /// Waits until it fires. It may also return without reason.
        ///
        /// # Cancel safety
        /// Nothing is lost: it stays readable until it is set again.
        pub(in crate::bench) async fn fired(&self) {
            // Setting it again clears the expiry, so there is no need to read it. Only a runtime that ends
            // returns an error, and then nobody waits any more.
            if let Ok(mut ready) = self.0.readable().await {
                ready.clear_ready();
            }
        }
    }
}

/// A thread that sleeps: as precise as the system's condition variables, at the price of a hand-over between threads.
#[cfg(not(target_os = "linux"))]
mod portable {
    use std::future::poll_fn;
    use std::io;
    use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
    use std::task::{Poll, Waker};
    use std::thread;
    use std::time::{Duration, Instant};

    use crate::clock::Nanos;

    #[derive(Debug)]
    pub(in crate::bench) struct Timer(Arc<Shared>);

    #[derive(Debug, Default)]
    struct Shared {
        state: Mutex<State>,
        changed: Condvar,
    }

    #[derive(Debug, Default)]
    struct State {
        at: Option<Instant>,
        fired: bool,
        waiting: Option<Waker>,
        closed: bool,
    }

    impl Timer {
        pub(in crate::bench) fn new() -> io::Result<Self> {
            let shared = Arc::<Shared>::default();
            let sleeper = Arc::clone(&shared);
            thread::Builder::new().name("bench-timer".into()).spawn(move || sleeper.sleep())?;
            Ok(Self(shared))
        }

        /// Fires once, `after` so long; what was set before is forgotten.
        pub(in crate::bench) fn set(&self, after: Nanos) {
            self.0.lock().at = Some(Instant::now() + Duration::from_nanos(after));
            self.0.changed.notify_one();
        }

        /// Waits until it fires. It may also return without reason.
        ///
        /// # Cancel safety
        /// Nothing is lost: what has fired is seen by the next one that waits.
        pub(in crate::bench) async fn fired(&self) {
            poll_fn(|context| {
                let mut state = self.0.lock();
                if std::mem::take(&mut state.fired) {
                    return Poll::Ready(());
                }
                state.waiting = Some(context.waker().clone());
                Poll::Pending
            })
            .await;
        }
    }

    impl Drop for Timer {
        fn drop(&mut self) {
            self.0.lock().closed = true;
            self.0.changed.notify_one();
        }
    }

    impl Shared {
        fn lock(&self) -> MutexGuard<'_, State> {
            self.state.lock().unwrap_or_else(PoisonError::into_inner)
        }

        fn sleep(&self) {
            let mut state = self.lock();
            while !state.closed {
                let left = state.at.map(|at| at.saturating_duration_since(Instant::now()));
                state = match left {
                    None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                    Some(Duration::ZERO) => {
                        state.at = None;
                        state.fired = true;
                        if let Some(waker) = state.waiting.take() {
                            waker.wake();
                        }
                        state
                    }
                    Some(left) => self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
                };
            }
        }
    }
}
