//! What goes wrong, in one form: its kind for code, its field, and a message that says what is accepted.

use std::error::Error as _;
use std::fmt;
use std::io;

use clap::error::{ContextKind, ContextValue, ErrorKind as Refused};
use serde::{Deserialize, Serialize};
use shardlimit::ErrorKind;

use crate::arguments::{known_commands, known_options};
use crate::redis_url::without_passwords;

const INTERRUPTED: &str = "interrupted";

/// Why a command gives no answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failure {
    /// For code: `usage`, `invalid_limit`, `never`, …
    pub kind: String,
    /// What was wrong: an option, a part of the limit, or a piece of the system.
    pub field: String,
    /// For people. It begins with the field unless it quotes it.
    pub message: String,
}

impl Failure {
    /// An argument that can't be read.
    pub(crate) fn usage(field: &str, message: impl fmt::Display) -> Self {
        Self { kind: "usage".into(), field: field.into(), message: format!("{field}: {message}") }
    }

    /// The operating system would not.
    pub(crate) fn system(field: &str, message: &str, cause: &io::Error) -> Self {
        Self { kind: "system".into(), field: field.into(), message: format!("{field}: {message}: {cause}") }
    }

    /// A server would not, or was not there.
    pub(crate) fn server(field: &str, message: impl fmt::Display) -> Self {
        Self { kind: "server".into(), field: field.into(), message: format!("{field}: {message}") }
    }

    /// SIGINT came before there was an answer.
    pub(crate) fn interrupted(field: &str, message: impl fmt::Display) -> Self {
        Self { kind: INTERRUPTED.into(), field: field.into(), message: format!("{field}: {message}") }
    }

    pub(crate) fn is_interrupted(&self) -> bool {
        self.kind == INTERRUPTED
    }

    /// This program is wrong.
    pub(crate) fn internal(field: &str, message: impl fmt::Display) -> Self {
        Self { kind: "internal".into(), field: field.into(), message: format!("{field}: {message}") }
    }

    /// What clap refused. It quotes what can't be placed, and that may be a URL with a password.
    pub(crate) fn refused(command: Option<&str>, refusal: &clap::Error) -> Self {
        let Self { kind, field, message } = Self::as_refused(command, refusal);
        Self { kind, field: without_passwords(&field), message: without_passwords(&message) }
    }

    /// In our own words where they say more than clap's, on one line.
    fn as_refused(command: Option<&str>, refusal: &clap::Error) -> Self {
        if let Some(source) = refusal.source() {
            if let Some(failure) = source.downcast_ref::<Self>() {
                return failure.clone();
            }
            if let Some(error) = source.downcast_ref::<shardlimit::Error>() {
                return error.clone().into();
            }
        }
        let given = |context| refusal.get(context).map(ToString::to_string).unwrap_or_default();
        let unknown = given(ContextKind::InvalidArg);
        match refusal.kind() {
            Refused::MissingSubcommand => {
                Self::usage("command", format!("is missing; known are {}", known_commands(command)))
            }
            Refused::InvalidSubcommand => {
                let got = given(ContextKind::InvalidSubcommand);
                Self::usage("command", format!("{got:?} is not known; known are {}", known_commands(command)))
            }
            Refused::UnknownArgument if unknown.starts_with('-') => {
                let message = format!("option {unknown} is not known; known are {}", known_options(command));
                Self { kind: "usage".into(), field: refused_field(refusal), message }
            }
            _ => Self { kind: "usage".into(), field: refused_field(refusal), message: one_line(&refusal.to_string()) },
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

impl From<shardlimit::Error> for Failure {
    fn from(error: shardlimit::Error) -> Self {
        let kind = match error.kind() {
            ErrorKind::InvalidLimit => "invalid_limit",
            ErrorKind::InvalidName => "invalid_name",
            ErrorKind::InvalidKey => "invalid_key",
            ErrorKind::InvalidPermits => "invalid_permits",
            ErrorKind::InvalidAmount => "invalid_amount",
            ErrorKind::InvalidSetting => "invalid_setting",
            ErrorKind::Never => "never",
            ErrorKind::NameTaken => "name_taken",
            ErrorKind::ForeignReceipt => "foreign_receipt",
            ErrorKind::NotSent => "not_sent",
            ErrorKind::Unknown => "unknown",
            ErrorKind::Refused => "refused",
            // The library may learn of new ones.
            _ => "other",
        };
        Self { kind: kind.into(), field: error.field().into(), message: error.to_string() }
    }
}

/// `--limit <LIMIT>` is the field `limit`, `<KEY>` is `key`.
fn refused_field(refusal: &clap::Error) -> String {
    let argument = match refusal.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(argument)) => argument.as_str(),
        Some(ContextValue::Strings(arguments)) => arguments.first().map_or("", String::as_str),
        _ => return "arguments".into(),
    };
    let name = argument.split([' ', '=']).next().unwrap_or_default();
    name.trim_start_matches('-').trim_matches(['<', '>', '[', ']', '.']).to_lowercase()
}

/// Clap's text without its layout, its prefix and its pointer to the help.
fn one_line(text: &str) -> String {
    let mut line = String::new();
    for part in text.lines().map(str::trim).filter(|part| !part.is_empty() && !part.starts_with("For more info")) {
        if !line.is_empty() {
            line.push_str(if line.ends_with(':') { " " } else { "; " });
        }
        line.push_str(part.strip_prefix("error: ").unwrap_or(part));
    }
    line
}
