//! The parent of a run in several processes: starts them, gives them one common start, and adds up what they counted.

use std::env;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use serde::Serialize;
use signal_hook::consts::SIGINT;

use super::job::Job;
use super::live::Seen;
use super::part::{PART, Reply, Start};
use super::tally::Tally;
use crate::clock::{Nanos, SECOND, monotonic, processor_time};
use crate::error::Failure;
use crate::interrupt::Interrupt;

/// How much longer than it should a process may take to get ready or to answer, before it is given up.
const PATIENCE: Nanos = 15 * SECOND;
const LOOK: Duration = Duration::from_millis(50);

/// Runs the job in as many processes as it has parts.
pub(super) fn run(job: &Job, interrupt: &Interrupt, show: &mut dyn FnMut(Seen)) -> Result<Tally, Failure> {
    let used_before = processor_time();
    let (replies, heard) = channel();
    let parts = (0..job.parts).map(|part| Part::start(&job.for_part(part), &replies));
    let parts = parts.collect::<Result<Vec<_>, Failure>>()?;
    drop(replies);
    let mut whole = Run { parts, heard, start: None }.finish(job, interrupt, show)?;
    whole.processor_time += processor_time().saturating_sub(used_before);
    Ok(whole)
}

struct Run {
    parts: Vec<Part>,
    heard: Receiver<(u64, Option<Reply>)>,
    start: Option<Nanos>,
}

impl Run {
    fn finish(mut self, job: &Job, interrupt: &Interrupt, show: &mut dyn FnMut(Seen)) -> Result<Tally, Failure> {
        let mut give_up = monotonic() + PATIENCE;
        let mut stopped = false;
        while self.parts.iter().any(|part| part.tally.is_none()) {
            if interrupt.is_set() && !stopped {
                stopped = true;
                give_up = monotonic() + PATIENCE;
                self.parts.iter_mut().for_each(Part::stop);
            }
            if self.start.is_none() && !stopped && self.parts.iter().all(|part| part.ready) {
                let start = monotonic() + job.lead();
                self.start = Some(start);
                give_up = start + job.duration + PATIENCE;
                self.parts.iter_mut().for_each(|part| part.tell(&Start { monotonic: start }));
            }
            match self.heard.recv_timeout(LOOK) {
                Ok((index, reply)) => self.parts[index as usize].hear(index, reply, interrupt)?,
                Err(_) if monotonic() > give_up => {
                    return Err(Failure::internal("processes", "one of them neither ended nor answered"));
                }
                Err(_) => {}
            }
            if let Some(start) = self.start {
                show(Seen { elapsed: monotonic().saturating_sub(start), calls: None });
            }
        }
        let mut whole = Tally { interrupted: interrupt.is_set(), ..Tally::default() };
        self.parts.iter().filter_map(|part| part.tally.as_ref()).for_each(|tally| whole.merge(tally));
        Ok(whole)
    }
}

/// A process that was started. It is not left behind: dropping it ends it.
struct Part {
    process: Child,
    input: Option<ChildStdin>,
    ready: bool,
    tally: Option<Tally>,
}

impl Part {
    fn start(job: &Job, replies: &Sender<(u64, Option<Reply>)>) -> Result<Self, Failure> {
        let wrong = |error: io::Error| Failure::system("processes", "one can't be started", &error);
        let mut command = Command::new(env::current_exe().map_err(wrong)?);
        command.arg(PART).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().map_err(wrong)?;
        let (input, output) = (process.stdin.take(), process.stdout.take());
        let mut part = Self { process, input, ready: false, tally: None };
        let (replies, index) = (replies.clone(), job.part);
        let listen = move || {
            for line in output.into_iter().flat_map(|output| BufReader::new(output).lines()) {
                let reply = line.ok().and_then(|line| serde_json::from_str(&line).ok());
                let _ = replies.send((index, reply));
            }
            // The end of its output; no reply if it has not given its tally.
            let _ = replies.send((index, None));
        };
        thread::Builder::new().name(format!("part-{index}")).spawn(listen).map_err(wrong)?;
        part.tell(job);
        Ok(part)
    }

    fn tell(&mut self, message: &impl Serialize) {
        // A process that does not listen has ended, which its output tells as well.
        if let (Some(input), Ok(mut line)) = (&mut self.input, serde_json::to_vec(message)) {
            line.push(b'\n');
            let _ = input.write_all(&line);
        }
    }

    /// It may have got no SIGINT itself: only a terminal sends it to all.
    fn stop(&mut self) {
        self.input = None;
    }

    fn hear(&mut self, index: u64, reply: Option<Reply>, interrupt: &Interrupt) -> Result<(), Failure> {
        match reply {
            Some(Reply::Ready) => self.ready = true,
            Some(Reply::Done(tally)) => self.tally = Some(*tally),
            Some(Reply::Failed(failure)) => return Err(failure),
            None if self.tally.is_some() => {}
            None => self.end_without_tally(index, interrupt)?,
        }
        Ok(())
    }

    /// SIGINT ends a process that can't handle it yet, and that has not called either. A terminal sends it to all, and this
    /// one may see the end of the other before its own signal.
    fn end_without_tally(&mut self, index: u64, interrupt: &Interrupt) -> Result<(), Failure> {
        let end = self.process.wait();
        if end.as_ref().is_ok_and(|status| status.signal() == Some(SIGINT)) {
            interrupt.set();
            self.tally = Some(Tally::default());
            return Ok(());
        }
        let end = end.map_or_else(|error| error.to_string(), |status| status.to_string());
        Err(Failure::internal("processes", format!("process {index} ended without its counts ({end})")))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.input = None;
        // Having its tally, it ends by itself.
        if self.tally.is_none() {
            let _ = self.process.kill();
        }
        let _ = self.process.wait();
    }
}
