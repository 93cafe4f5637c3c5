//! One failover: what was lost by it, and what that may admit.

use shardlimit::Limit;
use shardlimit_check::{Change, History};

use crate::Failure;
use crate::agree::Verdict;
use crate::judge::admissions;
use crate::ledger::{Grant, Ledger};
use crate::record::{Call, Outcome, Record};

/// Moments are in microseconds since 1970.
pub(super) struct Round {
    pub begin: u64,
    /// From here on the replica learns of nothing.
    pub lag_begin: u64,
    pub killed: u64,
    pub elected: u64,
    /// When home was seen to know what it had forgotten.
    pub told: u64,
    /// When the key had as many shards as before, and nothing was on its way.
    pub settled: u64,
    pub held_up: bool,
    /// Home was not there any more when the replica was elected.
    pub is_gone: bool,
    /// The ledger as the dead master had it, as its replica had it then, and when all was over.
    pub last: Ledger,
    pub found: Ledger,
    pub then: Ledger,
}

impl Round {
    /// Grants that were in use, and that the replica never heard of.
    pub(super) fn lost(&self) -> Vec<&Grant> {
        let known = self.found.ids();
        self.last.grants.iter().filter(|grant| grant.is_live && !known.contains(&grant.id)).collect()
    }

    /// What `docs/accuracy.md` states: burst and rate for so long of each lost grant, and the charges that home has forgotten, up to the burst
    /// of its share. Nothing, if home is gone: whoever knows it makes it again with nothing in it.
    fn stated(&self, (old, new): (&Limit, &Limit), seconds: f64, charges: usize) -> f64 {
        if self.is_gone {
            return 0.0;
        }
        let period = new.period().as_secs_f64();
        let of = |grant: &&Grant| grant.burst as f64 + grant.permits as f64 / period * seconds;
        // Of another limit home has the share that it had before.
        let (limit, ledger) = if old == new { (new, &self.last) } else { (old, &self.found) };
        let kept = limit.burst().saturating_sub(ledger.grants.iter().map(|grant| grant.burst).sum());
        self.lost().iter().map(of).sum::<f64>() + (charges as f64).min(kept as f64)
    }

    /// By what was admitted from its begin `until` the next one's.
    pub(super) fn judge(
        &self,
        home: u16,
        records: &[Record],
        until: u64,
        verdict: &mut Verdict,
    ) -> Result<(), Failure> {
        let (old, new): (Limit, Limit) = (self.found.limit.parse()?, self.last.limit.parse()?);
        let calls = || records.iter().flat_map(|record| &record.calls);
        let is_within = |call: &&Call| (self.begin..until).contains(&call.at);
        let at_home = |call: &&Call| call.outcome == Outcome::Allowed && call.slot == Some(home);
        // A limit that home forgot counts from when it was in force for good.
        let change = Change { begin: self.lag_begin, end: self.settled, limit: new };
        let then = if old == new { Vec::new() } else { vec![change] };
        let mut admitted = admissions(calls().filter(is_within));
        admitted.sort_unstable();
        let history = History::new(&old, &then).map_err(Failure::new)?;
        let above = history.worst(&admitted).map_or(f64::NAN, |worst| worst.permits);
        // Home can't have admitted anything between the kill and the election.
        let since = calls().filter(at_home).map(|call| call.at).filter(|at| *at > self.killed).min();
        let untold = self.told.saturating_sub(since.unwrap_or(self.told));
        let before = calls().filter(at_home).filter(|call| (self.killed..self.told).contains(&call.at)).count();
        let charges = calls().filter(at_home).filter(|call| (self.lag_begin..=self.killed).contains(&call.at)).count();
        let stated = self.stated((&old, &new), untold as f64 / 1e6, charges);
        let lost = self.lost();
        let bursts: u64 = lost.iter().map(|grant| grant.burst).sum();
        let again = lost.iter().filter(|grant| self.then.ids().contains(&grant.id)).count();
        let held_up = if self.held_up { ", calls held up" } else { "" };
        let gone = if self.is_gone { ", home gone" } else { "" };
        let what = if old == new { String::new() } else { format!("{old} to {new}, ") };
        verdict.tell_round(format!(
            "{what}{} to {} shards{held_up}{gone}: {} grants lost with a burst of {bursts}, {charges} charges lost; elected after {} ms; home admitted {before} \
             in {:.1} ms until it was told; {again} lent again, all as before after {} ms; {above:+.0} ({stated:.0}) above the formula",
            self.found.grants.len() + 1,
            self.last.grants.len() + 1,
            lost.len(),
            (self.elected - self.killed) / 1_000,
            untold as f64 / 1e3,
            (self.settled - self.elected) / 1_000,
        ));
        verdict.within(above, stated);
        verdict.must(!lost.is_empty(), "no grant was lost, so nothing is shown");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(stamp: u64, ids: &[u128]) -> Ledger {
        let grant = |(slot, id): (u16, &u128)| Grant { slot, id: *id, permits: 30, burst: 10, is_live: true };
        let grants: Vec<Grant> = (0..).zip(ids).map(grant).collect();
        Ledger {
            stamp,
            limit: "token-bucket 90/s burst 30".into(),
            shards: grants.len() as u16 + 1,
            is_changing: false,
            grants,
        }
    }

    fn round(found: &[u128], last: &[u128]) -> Round {
        let (last, found) = (ledger(2, last), ledger(1, found));
        let then = Ledger { stamp: 3, ..last.clone() };
        let [begin, lag_begin, killed, elected, told] = [0, 1_000_000, 1_300_000, 3_000_000, 3_200_000];
        Round {
            begin,
            lag_begin,
            killed,
            elected,
            told,
            settled: told,
            held_up: false,
            is_gone: false,
            last,
            found,
            then,
        }
    }

    fn is_well(round: &Round, admitted: &[(u64, usize)]) -> bool {
        let call = |at| Call { end: Some(1), outcome: Outcome::Allowed, slot: Some(7), at, ..Call::begin() };
        let calls = admitted.iter().flat_map(|(at, count)| vec![call(*at); *count]).collect();
        let records = [Record { calls, ..Record::default() }];
        let mut verdict = Verdict::default();
        round.judge(7, &records, 9_000_000, &mut verdict).unwrap();
        verdict.is_well()
    }

    #[test]
    fn only_what_the_replica_did_not_know_is_lost() {
        let of =
            |found: &[u128], last: &[u128]| round(found, last).lost().iter().map(|grant| grant.id).collect::<Vec<_>>();
        assert_eq!(of(&[], &[1, 2]), [1, 2]);
        assert_eq!(of(&[2], &[2, 3]), [3]);
        assert_eq!(of(&[1, 2], &[1, 2]), [] as [u128; 0]);
    }

    #[test]
    fn each_lost_grant_may_admit_its_burst_and_its_rate() {
        // 30 by the formula, 20 by two lost grants, and 60 a second of theirs from the first admission until home is told.
        assert!(is_well(&round(&[], &[1, 2]), &[(3_200_000, 50)]));
        assert!(!is_well(&round(&[], &[1, 2]), &[(3_200_000, 51)]));
        assert!(is_well(&round(&[], &[1, 2]), &[(3_100_000, 56)]));
        assert!(!is_well(&round(&[], &[1, 2]), &[(3_100_000, 57)]));
        // Three charges within the lag are forgotten; long before, and long after, they are in the formula.
        assert!(is_well(&round(&[], &[1, 2]), &[(1_100_000, 3), (3_200_000, 53)]));
        assert!(!is_well(&round(&[], &[1, 2]), &[(1_100_000, 3), (3_200_000, 54)]));
        assert!(is_well(&round(&[], &[1, 2]), &[(3_200_000, 1), (9_000_001, 500)]), "of the next round");
        assert!(!is_well(&round(&[1, 2], &[1, 2]), &[(3_200_000, 1)]), "nothing was lost");
        // The old limit counts until the new one is in force again, and its burst of what home forgot.
        let mut lowered = round(&[], &[1, 2]);
        lowered.last.limit = "token-bucket 30/s burst 24".into();
        lowered.settled = 4_200_000;
        assert!(is_well(&lowered, &[(3_200_000, 50), (4_200_000, 24), (5_200_000, 44)]));
        assert!(!is_well(&lowered, &[(3_200_000, 50), (4_200_000, 24), (5_200_000, 45)]));
        let gone = Round { is_gone: true, ..round(&[], &[1, 2]) };
        assert!(is_well(&gone, &[(3_100_000, 30)]) && !is_well(&gone, &[(3_100_000, 31)]));
    }
}
