//! A command's answer, and the one place that prints to stdout.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::error::ErrorKind;
use serde::Serialize;

use super::style::Style;
use super::{visible, visible_json};
use crate::error::Failure;

/// Raised when a field changes its meaning or its type; new fields may come without.
const SCHEMA: u32 = 1;

/// How the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done; for a question: allowed, or fit.
    Success,
    /// The question was answered, with a no: denied, or not fit.
    Denied,
    /// No answer.
    Failed,
    /// Ended early by SIGINT, with what was known by then.
    Interrupted,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Success => Self::SUCCESS,
            Exit::Denied => Self::from(1),
            Exit::Failed => Self::from(2),
            // As a shell reports a process that SIGINT ended.
            Exit::Interrupted => Self::from(130),
        }
    }
}

/// A command's answer. Serialised, it gives the fields after `schema` and `command`.
pub(crate) trait Report: Serialize {
    const COMMAND: &'static str;

    /// The answer for people, each line ended.
    fn text(&self, style: Style) -> String;

    fn exit(&self) -> Exit;
}

#[derive(Serialize)]
struct Answer<'a, R: Serialize> {
    schema: u32,
    command: &'static str,
    #[serde(flatten)]
    report: &'a R,
}

#[derive(Serialize)]
struct Refusal<'a> {
    schema: u32,
    command: Option<&'a str>,
    error: &'a Failure,
}

/// The form in which the answer was asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    json: bool,
}

impl Output {
    pub(crate) fn new(json: bool) -> Self {
        Self { json }
    }

    pub(crate) fn report<R: Report>(self, report: &R) -> Result<Exit, Failure> {
        let text = if self.json {
            json_line(&Answer { schema: SCHEMA, command: R::COMMAND, report })
        } else {
            report.text(Style::for_stream(&io::stdout()))
        };
        print(&text).map_err(|error| Failure::system("stdout", "the answer can't be written", &error))?;
        Ok(report.exit())
    }

    pub(crate) fn failure(self, command: Option<&str>, failure: &Failure) -> Exit {
        say(&Style::for_stream(&io::stderr()).red("error:"), &failure.message);
        // When stdout itself is what failed, there is nobody left to tell.
        if self.json {
            let refusal = Refusal { schema: SCHEMA, command, error: failure };
            let _ = print(&json_line(&refusal));
        }
        if failure.is_interrupted() { Exit::Interrupted } else { Exit::Failed }
    }

    /// Arguments that could not be read; also `--help` and `--version`, which clap treats alike.
    pub(crate) fn refusal(self, command: Option<&str>, refusal: &clap::Error) -> Exit {
        if !refusal.use_stderr() {
            let _ = refusal.print();
            return Exit::Success;
        }
        // Without any argument: the help, which is more than an error could say.
        if refusal.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
            let _ = refusal.print();
            return Exit::Failed;
        }
        self.failure(command, &Failure::refused(command, refusal))
    }
}

/// Something that people should know and programs need not, on stderr.
pub(crate) fn note(text: &str) {
    say("note:", text);
}

fn json_line(object: &impl Serialize) -> String {
    let line = serde_json::to_string(object).expect("a report has text keys and finite numbers");
    let mut line = visible_json(&line);
    line.push('\n');
    line
}

/// `print!` would panic when the reader has gone.
fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// `eprintln!` would panic when nobody listens. The text may quote a server.
fn say(label: &str, text: &str) {
    let _ = writeln!(io::stderr().lock(), "{label} {}", visible(text));
}
