//! A process that counts: its part of the adds, or of the values, and then what became of them as one line.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use shardlimit::Limiter;
use shardlimit::counter::{Added, CounterSettings, Counters, DistinctCounters};

use crate::Failure;

/// Counters that adds are spread over, and how many shards each has.
pub(crate) const KEYS: u64 = 30;
const SHARDS: u16 = 3;
/// Adds a second that make a counter hot: few, so that all shards are in use.
const HOT: u64 = 20;
const DAY: Duration = Duration::from_secs(86_400);
/// Whatever is queued is delivered by then.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often each value is seen.
pub(crate) const TIMES: u64 = 5;

/// What is counted.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Kind {
    Adds,
    Values,
}

/// What a process is to do.
#[derive(Args, Debug)]
pub(crate) struct Job {
    #[arg(long, value_enum)]
    pub kind: Kind,
    /// Which of all processes it is, and how many there are.
    #[arg(long)]
    pub number: u64,
    #[arg(long)]
    pub of: u64,
    /// What all of them count together.
    #[arg(long)]
    pub amount: u64,
    /// Nodes of the cluster.
    #[arg(required = true)]
    pub urls: Vec<String>,
}

/// What became of it, in the order of the line: adds that were queued, refused and unknown; or values that were new.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcome {
    pub queued: u64,
    pub refused: u64,
    pub unknown: u64,
    pub fresh: u64,
}

pub(crate) fn limiter(urls: &[String]) -> Result<Limiter, Failure> {
    Ok(Limiter::builder().redis(urls.iter().map(String::as_str)).hot(HOT).build()?)
}

pub(crate) fn counters(limiter: &Limiter) -> Result<Counters, Failure> {
    Ok(limiter.counters("adds", CounterSettings::new(DAY).shards(SHARDS))?)
}

pub(crate) fn visitors(limiter: &Limiter) -> Result<DistinctCounters, Failure> {
    // Hundreds of values go at once, over connections that are cut.
    Ok(limiter.distinct_counters("values", DAY, SHARDS)?.deadline(Duration::from_secs(1)))
}

/// As one of the processes.
pub(crate) fn run(job: &Job) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let limiter = limiter(&job.urls)?;
    let Outcome { queued, refused, unknown, fresh } = runtime.block_on(async {
        match job.kind {
            Kind::Adds => add(job, &counters(&limiter)?).await,
            Kind::Values => see(job, &visitors(&limiter)?).await,
        }
    })?;
    println!("{queued} {refused} {unknown} {fresh}");
    Ok(())
}

async fn add(job: &Job, counters: &Counters) -> Result<Outcome, Failure> {
    const TOGETHER: u64 = 100;
    let mut outcome = Outcome::default();
    for round in 0..job.amount / job.of / TOGETHER {
        let adds = (0..TOGETHER).map(|add| (format!("key:{}", (job.number + round + add) % KEYS), 1));
        for added in counters.add_many(adds).await {
            outcome.queued += u64::from(added? == Added::Queued);
        }
    }
    counters.flush(PATIENCE).await?;
    (outcome.refused, outcome.unknown) = (counters.dropped().refused, counters.dropped().unknown);
    Ok(outcome)
}

async fn see(job: &Job, visitors: &DistinctCounters) -> Result<Outcome, Failure> {
    let mut outcome = Outcome::default();
    for batch in (job.number..TIMES * job.amount).step_by(job.of as usize).collect::<Vec<_>>().chunks(500) {
        let values = || batch.iter().map(|value| format!("user:{}", value * 7 % job.amount));
        // Adding a value again counts nothing twice.
        let patience = Instant::now();
        loop {
            match visitors.add_many("page", values()).await {
                Ok(fresh) => break outcome.fresh += fresh,
                Err(error) if patience.elapsed() > PATIENCE => return Err(error.into()),
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }
    Ok(outcome)
}

/// Such processes, as seen from the suite.
pub(crate) struct Counting(Vec<Child>);

impl Counting {
    pub(crate) fn launch(kind: Kind, of: u64, amount: u64, urls: &[String]) -> Result<Self, Failure> {
        let kind = kind.to_possible_value().ok_or_else(|| Failure::new("a kind without a name"))?;
        let mut processes = Self(Vec::new());
        for number in 0..of {
            let numbers = [("--number", number), ("--of", of), ("--amount", amount)];
            let process = Command::new(std::env::current_exe()?)
                .args(["count", "--kind", kind.get_name()])
                .args(numbers.iter().flat_map(|(name, value)| [(*name).to_owned(), value.to_string()]))
                .args(urls)
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .spawn()?;
            processes.0.push(process);
        }
        Ok(processes)
    }

    pub(crate) fn are_running(&mut self) -> bool {
        self.0.iter_mut().any(|process| process.try_wait().is_ok_and(|exit| exit.is_none()))
    }

    /// What all of them saw together.
    pub(crate) fn outcome(&mut self) -> Result<Outcome, Failure> {
        let mut all = Outcome::default();
        for process in &mut self.0 {
            let mut line = String::new();
            let output = process.stdout.take().ok_or_else(|| Failure::new("a process without output"))?;
            BufReader::new(output).read_line(&mut line)?;
            let end = process.wait()?;
            let numbers: Vec<u64> = line.split_whitespace().filter_map(|number| number.parse().ok()).collect();
            let [queued, refused, unknown, fresh] = numbers[..] else {
                return Err(Failure::new(format!("a process that counts ended with {end}")));
            };
            all.queued += queued;
            all.refused += refused;
            all.unknown += unknown;
            all.fresh += fresh;
        }
        Ok(all)
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        for process in &mut self.0 {
            if process.try_wait().is_ok_and(|exit| exit.is_none()) {
                let _ = process.kill();
                let _ = process.wait();
            }
        }
    }
}
