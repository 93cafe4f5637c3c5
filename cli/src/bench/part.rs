//! One process of a run in several. It speaks in lines of JSON with the one that started it:
//! the job comes in; *ready* goes out; the common start comes in; the tally goes out. The end of its input means *stop*.

use std::io::{self, BufRead, Write};
use std::thread;

use serde::{Deserialize, Serialize};

use super::generator::Generator;
use super::job::Job;
use super::tally::Tally;
use crate::clock::Nanos;
use crate::error::Failure;
use crate::interrupt::Interrupt;
use crate::output::Exit;

/// The argument that makes this program a part of a run.
pub(crate) const PART: &str = "bench-process";

/// What a part says.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    Ready,
    Done(Box<Tally>),
    Failed(Failure),
}

/// When to begin, by the kernel's monotonic clock: the processes of one machine have no other clock in common that
/// nobody sets.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Start {
    pub monotonic: Nanos,
}

pub(crate) fn run() -> Exit {
    let (reply, exit) = match Interrupt::install().and_then(|interrupt| serve(&interrupt)) {
        Ok(tally) => (Reply::Done(Box::new(tally)), Exit::Success),
        Err(failure) => (Reply::Failed(failure), Exit::Failed),
    };
    // A parent that has gone wants no answer.
    let _ = say(&reply);
    exit
}

fn serve(interrupt: &Interrupt) -> Result<Tally, Failure> {
    let job: Job = hear()?.ok_or_else(|| Failure::usage("input", "a job is expected, the input is empty"))?;
    let generator = Generator::prepare(job)?;
    say(&Reply::Ready).map_err(|error| Failure::system("stdout", "can't be written", &error))?;
    let Some(Start { monotonic }) = hear()? else {
        return Ok(Tally { interrupted: true, ..Tally::default() });
    };
    stop_with_input(interrupt)?;
    let start = generator.stopwatch.at_monotonic(monotonic);
    generator.run(start, interrupt, &mut |_| {})
}

/// A parent that ends, however it ends, takes its parts along.
fn stop_with_input(interrupt: &Interrupt) -> Result<(), Failure> {
    let interrupt = interrupt.clone();
    let wait = move || {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        interrupt.set();
    };
    let waiting = thread::Builder::new().name("bench-stop".into()).spawn(wait);
    waiting.map(drop).map_err(|error| Failure::system("generator", "a thread can't be started", &error))
}

/// The next line, or nothing at the end of the input.
fn hear<T: for<'de> Deserialize<'de>>() -> Result<Option<T>, Failure> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).map_err(|error| Failure::system("stdin", "can't be read", &error))?;
    if line.is_empty() {
        return Ok(None);
    }
    serde_json::from_str(&line).map(Some).map_err(|error| Failure::usage("input", error))
}

fn say(reply: &Reply) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    serde_json::to_writer(&mut stdout, reply)?;
    stdout.write_all(b"\n")?;
    stdout.flush()
}
