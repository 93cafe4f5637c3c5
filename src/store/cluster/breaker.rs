//! A breaker: stops asking a master that does not answer, and finds out when it does again.

use std::time::{Duration, Instant};

use super::fault::Fault;
use crate::breaker::{BreakerForce, BreakerSettings, BreakerState};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, lock};

/// Parts of the window, each counted by itself: the oldest leaves it as a whole.
const PARTS: usize = 10;
/// Requests that may be out at once while it is not sure.
const PROBES: u32 = 3;

pub(crate) struct Breaker {
    settings: BreakerSettings,
    inner: Mutex<Inner>,
}

struct Inner {
    mode: Mode,
    force: BreakerForce,
    parts: [Part; PARTS],
    /// The part that is counted in, and when it began.
    present: usize,
    since: Instant,
    /// When the master last answered.
    heard: Option<Instant>,
    /// How often it opened without having been closed in between.
    opened: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Closed,
    Open {
        until: Instant,
    },
    /// So many probes are out, and so many came back.
    HalfOpen {
        out: u32,
        back: u32,
    },
}

#[derive(Clone, Copy, Default)]
struct Part {
    all: u32,
    failed: u32,
    slow: u32,
}

/// A request that was let through. Dropped without a word, it had no answer.
pub(super) struct Pass<'a> {
    breaker: &'a Breaker,
    begun: Instant,
    is_probe: bool,
    is_over: bool,
    /// Whether it is out, if that is known.
    sent: Option<&'a AtomicBool>,
}

impl Breaker {
    pub(super) fn new(settings: BreakerSettings) -> Self {
        let inner = Inner {
            mode: Mode::Closed,
            force: BreakerForce::Off,
            parts: [Part::default(); PARTS],
            present: 0,
            since: Instant::now(),
            heard: None,
            opened: 0,
        };
        Self { settings, inner: Mutex::new(inner) }
    }

    /// Lets a request through; none while it is open.
    pub(super) fn pass(&self, now: Instant) -> Option<Pass<'_>> {
        let inner = &mut *lock(&self.inner);
        let pass = |is_probe| Some(Pass { breaker: self, begun: now, is_probe, is_over: false, sent: None });
        match (inner.force, inner.mode) {
            (BreakerForce::Open, _) => None,
            (BreakerForce::Closed, _) | (_, Mode::Closed) => pass(false),
            (_, Mode::Open { until }) if now < until => None,
            (_, Mode::Open { .. }) => {
                inner.mode = Mode::HalfOpen { out: 1, back: 0 };
                pass(true)
            }
            (_, Mode::HalfOpen { out, back }) if out < PROBES => {
                inner.mode = Mode::HalfOpen { out: out + 1, back };
                pass(true)
            }
            (_, Mode::HalfOpen { .. }) => None,
        }
    }

    /// A request has had no answer by its deadline. If the master has not answered anything else since, it hangs.
    pub(super) fn overdue(&self, now: Instant) {
        let inner = &mut *lock(&self.inner);
        let lately = inner.heard.is_some_and(|heard| now.saturating_duration_since(heard) < self.settings.slowness());
        if !lately && inner.mode == Mode::Closed {
            inner.open(now, &self.settings);
        }
    }

    pub(super) fn force(&self, force: BreakerForce) {
        lock(&self.inner).force = force;
    }

    pub(super) fn state(&self) -> BreakerState {
        let inner = lock(&self.inner);
        match (inner.force, inner.mode) {
            (BreakerForce::Open, _) => BreakerState::Open,
            (BreakerForce::Closed, _) | (_, Mode::Closed) => BreakerState::Closed,
            (_, Mode::Open { .. }) => BreakerState::Open,
            (_, Mode::HalfOpen { .. }) => BreakerState::HalfOpen,
        }
    }

    fn ended(&self, begun: Instant, now: Instant, is_probe: bool, answered: bool) {
        let settings = &self.settings;
        let inner = &mut *lock(&self.inner);
        let slow = now.saturating_duration_since(begun) >= settings.slowness();
        if answered {
            inner.heard = Some(now);
        }
        inner.count(now, settings, !answered, slow);
        let is_well = answered && !slow;
        match inner.mode {
            Mode::Closed if inner.has_failed(settings) => inner.open(now, settings),
            // What was sent before it opened has come back: it is worth a try at once.
            Mode::Open { .. } if answered => inner.mode = Mode::Open { until: now },
            Mode::Closed | Mode::Open { .. } => {}
            Mode::HalfOpen { .. } if !is_probe => {}
            Mode::HalfOpen { out, back } if is_well => {
                inner.mode = Mode::HalfOpen { out: out.saturating_sub(1), back: back + 1 };
                if back + 1 >= PROBES {
                    (inner.mode, inner.opened) = (Mode::Closed, 0);
                    inner.parts = [Part::default(); PARTS];
                }
            }
            Mode::HalfOpen { .. } => inner.open(now, settings),
        }
    }
}

impl Inner {
    fn open(&mut self, now: Instant, settings: &BreakerSettings) {
        let wait = settings.open.saturating_mul(1 << self.opened.min(16)).min(settings.longest_open);
        self.opened += 1;
        // Clients that lost a master together do not come back together.
        self.mode = Mode::Open { until: now + wait.mul_f64(rand::random_range(0.5..=1.0)) };
    }

    fn count(&mut self, now: Instant, settings: &BreakerSettings, failed: bool, slow: bool) {
        let part = (settings.window / PARTS as u32).max(Duration::from_micros(1));
        let passed = now.saturating_duration_since(self.since).as_nanos() / part.as_nanos();
        for _ in 0..passed.min(PARTS as u128) {
            self.present = (self.present + 1) % PARTS;
            self.parts[self.present] = Part::default();
        }
        if passed > 0 {
            self.since = now;
        }
        let present = &mut self.parts[self.present];
        present.all += 1;
        present.failed += u32::from(failed);
        present.slow += u32::from(slow);
    }

    /// Whether too much of the window failed, or was slow.
    fn has_failed(&self, settings: &BreakerSettings) -> bool {
        let sum = |of: fn(&Part) -> u32| self.parts.iter().map(of).sum::<u32>();
        let all = sum(|part| part.all);
        let reaches = |part: u32, ratio: f64| f64::from(part) >= ratio * f64::from(all);
        all >= settings.least
            && (reaches(sum(|part| part.failed), settings.error_ratio)
                || reaches(sum(|part| part.slow), settings.slow_ratio))
    }
}

impl<'a> Pass<'a> {
    /// For a request of which this says whether it is out.
    pub(super) fn of(mut self, sent: &'a AtomicBool) -> Self {
        self.sent = Some(sent);
        self
    }

    /// Given up before it was out, by somebody with little time: that says nothing of the master.
    fn is_idle(&self, now: Instant) -> bool {
        let is_in = self.sent.is_some_and(|sent| !sent.load(Ordering::Relaxed));
        is_in && !self.is_probe && now.saturating_duration_since(self.begun) < self.breaker.settings.slowness() / 2
    }

    /// The request has come to its end. What the server says, whatever it is, is an answer.
    pub(super) fn ended<T>(mut self, reply: &Result<T, Fault>) {
        self.is_over = true;
        let answered = !matches!(reply, Err(Fault::Unknown(_) | Fault::NotSent(_)));
        self.breaker.ended(self.begun, Instant::now(), self.is_probe, answered);
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if !self.is_over && !self.is_idle(Instant::now()) {
            self.breaker.ended(self.begun, Instant::now(), self.is_probe, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    fn breaker() -> (Breaker, Instant) {
        (Breaker::new(BreakerSettings::default()), Instant::now())
    }

    /// A request that took a millisecond.
    fn request(breaker: &Breaker, now: Instant, answered: bool) -> bool {
        let Some(mut pass) = breaker.pass(now) else { return false };
        pass.is_over = true;
        breaker.ended(now, now + MILLI, pass.is_probe, answered);
        true
    }

    #[test]
    fn half_of_ten_that_fail_open_it() {
        let (breaker, now) = breaker();
        for number in 0..9 {
            assert!(request(&breaker, now, number % 2 == 0), "{number}");
        }
        assert_eq!(breaker.state(), BreakerState::Closed, "4 of 9");
        assert!(request(&breaker, now, false));
        assert_eq!(breaker.state(), BreakerState::Open, "5 of 10");
        assert!(!request(&breaker, now, true));
    }

    #[test]
    fn what_is_slow_opens_it_too() {
        let (breaker, now) = breaker();
        for _ in 0..10 {
            breaker.ended(now, now + BreakerSettings::default().slowness(), false, true);
        }
        assert_eq!(breaker.state(), BreakerState::Open);
    }

    #[test]
    fn what_failed_long_ago_is_forgotten() {
        let (breaker, now) = breaker();
        for _ in 0..9 {
            request(&breaker, now, false);
        }
        let later = now + BreakerSettings::default().window + MILLI;
        for number in 0..5 {
            request(&breaker, later, number > 0);
        }
        for _ in 0..5 {
            request(&breaker, later, true);
        }
        assert_eq!(breaker.state(), BreakerState::Closed, "1 of 10");
    }

    /// Some ways of one master hanging for longer and longer.
    #[test]
    fn it_is_probed_and_closes_after_three_that_go_well() {
        let (breaker, mut now) = breaker();
        breaker.overdue(now);
        for opened in 0..4 {
            assert_eq!(breaker.state(), BreakerState::Open);
            now += BreakerSettings::default().longest_open;
            assert!(request(&breaker, now, false), "{opened}: one may look");
        }
        now += BreakerSettings::default().longest_open;
        let passes: Vec<_> = std::iter::from_fn(|| breaker.pass(now)).collect();
        assert_eq!((passes.len(), breaker.state()), (3, BreakerState::HalfOpen));
        for pass in passes {
            pass.ended(&Ok(()));
        }
        assert_eq!(breaker.state(), BreakerState::Closed);
    }

    #[test]
    fn a_probe_that_nobody_waits_for_any_more_has_failed() {
        let (breaker, now) = breaker();
        breaker.overdue(now);
        drop(breaker.pass(now + BreakerSettings::default().longest_open));
        assert_eq!(breaker.state(), BreakerState::Open);
    }

    /// Callers with a millisecond each, while the first connection is opened, shut a sound master out.
    #[test]
    fn what_was_given_up_before_it_was_out_says_nothing() {
        let (breaker, sent) = (breaker().0, AtomicBool::new(false));
        for _ in 0..100 {
            drop(breaker.pass(Instant::now()).map(|pass| pass.of(&sent)));
        }
        assert_eq!(breaker.state(), BreakerState::Closed);
        let long_ago = Instant::now() - BreakerSettings::default().slowness();
        for _ in 0..10 {
            drop(breaker.pass(long_ago).map(|pass| pass.of(&sent)));
        }
        assert_eq!(breaker.state(), BreakerState::Open, "a connection that does not come to be does");
    }

    #[test]
    fn one_late_answer_among_others_is_no_hang() {
        let (breaker, now) = breaker();
        request(&breaker, now, true);
        breaker.overdue(now + 2 * MILLI);
        assert_eq!(breaker.state(), BreakerState::Closed);
        breaker.overdue(now + BreakerSettings::default().slowness() + 2 * MILLI);
        assert_eq!(breaker.state(), BreakerState::Open);
        breaker.ended(now, now + 100 * MILLI, false, true);
        assert!(breaker.pass(now + 100 * MILLI).is_some(), "it has come back");
    }

    #[test]
    fn it_can_be_forced() {
        let (breaker, now) = breaker();
        breaker.force(BreakerForce::Open);
        assert!(!request(&breaker, now, true));
        assert_eq!(breaker.state(), BreakerState::Open);
        breaker.force(BreakerForce::Closed);
        for _ in 0..100 {
            assert!(request(&breaker, now, false));
        }
        assert_eq!(breaker.state(), BreakerState::Closed);
        breaker.force(BreakerForce::Off);
        assert_eq!(breaker.state(), BreakerState::Open, "what it counted meanwhile counts");
    }
}
