//! The processes that call, as seen from the suite.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::Failure;
use crate::limiter::Settings;
use crate::record::Record;

/// What the processes are to do.
pub(crate) struct Orders<'a> {
    pub settings: &'a Settings,
    pub urls: &'a [String],
    /// Calls a second of all together.
    pub rate: u64,
    /// Milliseconds of calling and of silence in turn.
    pub pulse: (u64, u64),
    /// Where their records go.
    pub folder: &'a Path,
    /// One for each process: the namespace that it runs in.
    pub namespaces: &'a [Option<String>],
}

/// Processes that are ready, or calling.
pub(crate) struct Fleet(Vec<Ship>);

struct Ship {
    process: Child,
    input: ChildStdin,
    out: PathBuf,
}

impl Fleet {
    /// Starts them, and waits until all can call.
    pub(crate) fn launch(orders: &Orders<'_>) -> Result<Self, Failure> {
        let mut fleet = Self(Vec::new());
        let mut outputs = Vec::new();
        for (index, namespace) in orders.namespaces.iter().enumerate() {
            let program = std::env::current_exe()?;
            let mut command = match namespace {
                Some(namespace) => {
                    let mut command = Command::new("ip");
                    command.args(["netns", "exec", namespace]).arg(program);
                    command
                }
                None => Command::new(program),
            };
            let out = orders.folder.join(format!("process-{index}"));
            let rate = orders.rate / orders.namespaces.len() as u64;
            let mut process = command
                .arg("load")
                .args(orders.settings.arguments())
                .args(["--rate", &rate.to_string(), "--on", &orders.pulse.0.to_string()])
                .args(["--off", &orders.pulse.1.to_string(), "--out"])
                .arg(&out)
                .args(orders.urls)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()?;
            let (Some(input), Some(output)) = (process.stdin.take(), process.stdout.take()) else {
                return Err(Failure::new("a process without input and output"));
            };
            outputs.push(output);
            fleet.0.push(Ship { process, input, out });
        }
        for output in outputs {
            let mut line = String::new();
            BufReader::new(output).read_line(&mut line)?;
            if line != "ready\n" {
                return Err(Failure::new("a process that calls would not start"));
            }
        }
        Ok(fleet)
    }

    /// All begin to call.
    pub(crate) fn start(&mut self) -> Result<(), Failure> {
        self.tell("start\n")
    }

    /// Nobody calls until they go on.
    pub(crate) fn pause(&mut self) -> Result<(), Failure> {
        self.tell("pause\n")
    }

    pub(crate) fn go_on(&mut self) -> Result<(), Failure> {
        self.tell("go on\n")
    }

    /// All stop, wait for what is out, and say what they saw.
    pub(crate) fn stop(mut self) -> Result<Vec<Record>, Failure> {
        self.tell("stop\n")?;
        let mut records = Vec::new();
        for ship in &mut self.0 {
            let end = ship.process.wait()?;
            if !end.success() {
                return Err(Failure::new(format!("a process that calls ended with {end}")));
            }
            records.push(Record::read(&ship.out)?);
        }
        Ok(records)
    }

    fn tell(&mut self, word: &str) -> Result<(), Failure> {
        for ship in &mut self.0 {
            ship.input.write_all(word.as_bytes())?;
        }
        Ok(())
    }
}

impl Drop for Ship {
    fn drop(&mut self) {
        if self.process.try_wait().is_ok_and(|exit| exit.is_none()) {
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }
}
