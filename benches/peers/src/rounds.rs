//! Contestants of any kind, in interleaved rounds.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

/// What one turn of one contestant gave: figures by name.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    values: BTreeMap<&'static str, f64>,
    flaw: Option<&'static str>,
}

impl Figures {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: f64) -> Self {
        self.values.insert(name, value);
        self
    }

    /// Marks a turn whose load came too late to say anything about the contestant.
    #[must_use]
    pub fn late(self, late: bool) -> Self {
        self.flawed("late", late)
    }

    /// Marks a turn that says nothing about the contestant for another reason, in a word or two.
    #[must_use]
    pub fn flawed(mut self, why: &'static str, flawed: bool) -> Self {
        if flawed {
            self.flaw = Some(why);
        }
        self
    }
}

type Turn<'a> = Box<dyn FnMut() -> Figures + 'a>;

/// Who takes part, in the order of their turns.
pub struct Rounds<'a> {
    rounds: usize,
    contestants: Vec<(String, Turn<'a>)>,
}

impl<'a> Rounds<'a> {
    /// So many rounds.
    #[must_use]
    pub fn new(rounds: usize) -> Self {
        Self { rounds, contestants: Vec::new() }
    }

    /// Adds a contestant. Its turn blocks until it is over; what is async belongs into a `block_on`. What only the first
    /// turn would pay for (connections, scripts, plans) is to be done before.
    pub fn contestant(&mut self, name: impl Into<String>, turn: impl FnMut() -> Figures + 'a) {
        self.contestants.push((name.into(), Box::new(turn)));
    }

    /// Runs all rounds. Every other one goes backwards, so that nobody always follows the same one.
    #[must_use]
    pub fn run(mut self) -> Results {
        let mut turns: Vec<Vec<Figures>> = vec![Vec::with_capacity(self.rounds); self.contestants.len()];
        for round in 0..self.rounds {
            let mut order: Vec<usize> = (0..self.contestants.len()).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for index in order {
                turns[index].push((self.contestants[index].1)());
            }
        }
        let names = self.contestants.into_iter().map(|(name, _)| name);
        Results { contestants: names.zip(turns).collect() }
    }
}

/// What all turns gave.
#[derive(Clone, Debug)]
pub struct Results {
    contestants: Vec<(String, Vec<Figures>)>,
}

impl Results {
    /// The contestants, in their order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.contestants.iter().map(|(name, _)| name.as_str())
    }

    /// A figure of one contestant over all rounds.
    #[must_use]
    pub fn spread(&self, contestant: &str, figure: &str) -> Option<Spread> {
        Spread::of(self.turns(contestant)?.iter().filter_map(|turn| turn.values.get(figure).copied()).collect())
    }

    /// The same over the rounds without a flaw. With no more than half of the rounds left there is none at all.
    #[must_use]
    pub fn sound(&self, contestant: &str, figure: &str) -> Option<Spread> {
        let turns = self.turns(contestant)?;
        let sound = turns.iter().filter(|turn| turn.flaw.is_none());
        most(sound.filter_map(|turn| turn.values.get(figure).copied()).collect(), turns.len())
    }

    /// A figure of one contestant divided by the baseline's, each within its round. A round in which either of them has a
    /// flaw has no ratio, and with no more than half of the rounds left there is none at all.
    #[must_use]
    pub fn ratio(&self, contestant: &str, baseline: &str, figure: &str) -> Option<Spread> {
        let (own, base) = (self.turns(contestant)?, self.turns(baseline)?);
        let pairs = own.iter().zip(base).filter(|(own, base)| own.flaw.is_none() && base.flaw.is_none());
        let ratios = pairs.filter_map(|(own, base)| Some(own.values.get(figure)? / base.values.get(figure)?));
        most(ratios.collect(), own.len())
    }

    /// Who has rounds with a flaw, how many and why: for below a table, a line each. Empty where nobody has.
    #[must_use]
    pub fn left_out(&self) -> String {
        let mut lines = String::new();
        for (name, turns) in &self.contestants {
            let mut flaws = BTreeMap::<&str, usize>::new();
            for flaw in turns.iter().filter_map(|turn| turn.flaw) {
                *flaws.entry(flaw).or_default() += 1;
            }
            for (flaw, rounds) in flaws {
                let _ = writeln!(lines, "left out: {name}: {rounds} of {} rounds: {flaw}", turns.len());
            }
        }
        lines
    }

    fn turns(&self, contestant: &str) -> Option<&[Figures]> {
        Some(&self.contestants.iter().find(|(name, _)| name == contestant)?.1)
    }
}

/// Of no more than half of all rounds there is none.
fn most(values: Vec<f64>, rounds: usize) -> Option<Spread> {
    if values.len() * 2 <= rounds { None } else { Spread::of(values) }
}

/// A figure over several rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The one that counts; of an even number, the mean of the middle two.
    pub median: f64,
    /// The lowest.
    pub min: f64,
    /// The highest.
    pub max: f64,
}

impl Spread {
    /// Of nothing, or of what is not a number, there is none.
    #[must_use]
    pub fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let half = values.len() / 2;
        let median = if values.len() % 2 == 1 { values[half] } else { f64::midpoint(values[half - 1], values[half]) };
        [median, min, max].iter().all(|value| value.is_finite()).then_some(Self { median, min, max })
    }

    /// As text, with a form for each of its numbers.
    #[must_use]
    pub fn show(self, form: impl Fn(f64) -> String) -> String {
        format!("{} ({}–{})", form(self.median), form(self.min), form(self.max))
    }
}

/// As a ratio is written.
impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} ({:.2}–{:.2})", self.median, self.min, self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(ours: &[(f64, bool)], theirs: &[(f64, bool)]) -> Results {
        let mut rounds = Rounds::new(ours.len());
        for (name, turns) in [("ours", ours), ("theirs", theirs)] {
            let mut turns = turns.iter();
            rounds.contestant(name, move || {
                let &(rate, late) = turns.next().unwrap();
                Figures::new().with("rate", rate).late(late)
            });
        }
        rounds.run()
    }

    #[test]
    fn the_ratio_is_taken_within_a_round() {
        // The machine was twice as fast in the second round, for both.
        let results =
            results(&[(10.0, false), (22.0, false), (10.0, false)], &[(5.0, false), (10.0, false), (4.0, false)]);
        assert_eq!(results.ratio("ours", "theirs", "rate"), Some(Spread { median: 2.2, min: 2.0, max: 2.5 }));
        assert_eq!(results.spread("ours", "rate"), Some(Spread { median: 10.0, min: 10.0, max: 22.0 }));
        assert_eq!(results.ratio("ours", "nobody", "rate"), None);
        assert_eq!(results.ratio("ours", "theirs", "weight"), None);
    }

    #[test]
    fn late_rounds_count_for_nobody() {
        let on_time = [(1.0, false); 3];
        let once = results(&[(9.0, true), (2.0, false), (2.0, false)], &on_time);
        assert_eq!(once.ratio("ours", "theirs", "rate").map(|ratio| ratio.max), Some(2.0));
        assert_eq!(once.sound("ours", "rate").map(|rate| rate.max), Some(2.0));
        assert_eq!(once.spread("ours", "rate").map(|rate| rate.max), Some(9.0));
        assert_eq!(once.left_out(), "left out: ours: 1 of 3 rounds: late\n");
        let twice = results(&on_time, &[(9.0, true), (2.0, false), (2.0, true)]);
        assert_eq!(twice.ratio("ours", "theirs", "rate"), None);
        assert_eq!(twice.sound("theirs", "rate"), None);
        assert_eq!(twice.left_out(), "left out: theirs: 2 of 3 rounds: late\n");
        assert_eq!(results(&on_time, &on_time).left_out(), "");
    }

    #[test]
    fn nothing_has_no_spread() {
        assert_eq!(Spread::of(vec![]), None);
        assert_eq!(Spread::of(vec![1.0, f64::NAN]), None);
        assert_eq!(Spread::of(vec![4.0, 1.0]).map(|spread| spread.median), Some(2.5));
    }
}
