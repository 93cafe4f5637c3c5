//! What raw arguments tell, also where they can't be read; and what could stand there instead.

use std::ffi::OsString;

use clap::CommandFactory;

use crate::options::Cli;

/// Whether the raw arguments ask for JSON: an argument that could not be read must not change the form of the answer.
pub(crate) fn wants_json(arguments: &[OsString]) -> bool {
    arguments
        .iter()
        .skip(1)
        .take_while(|argument| *argument != "--")
        .any(|argument| argument == "--json" || argument.to_string_lossy().starts_with("--json="))
}

/// The command that the raw arguments name, if it is one.
pub(crate) fn named_command(arguments: &[OsString]) -> Option<String> {
    let first = arguments.iter().skip(1).find(|argument| !argument.to_string_lossy().starts_with('-'))?;
    let known = Cli::command();
    known.find_subcommand(first).map(|command| command.get_name().to_owned())
}

/// The names of all commands, or of those that stand after one.
pub(crate) fn known_commands(after: Option<&str>) -> String {
    let cli = Cli::command();
    let cli = after.and_then(|name| cli.find_subcommand(name)).unwrap_or(&cli);
    cli.get_subcommands().map(clap::Command::get_name).collect::<Vec<_>>().join(", ")
}

/// The options of a command and of those below it, or those that stand before any.
pub(crate) fn known_options(command: Option<&str>) -> String {
    let mut cli = Cli::command();
    // Options of all commands reach each of them only now.
    cli.build();
    let command = command.and_then(|name| cli.find_subcommand(name)).unwrap_or(&cli);
    let below = command.get_subcommands().filter(|_| command.get_name() != cli.get_name());
    let options = below.chain([command]).flat_map(clap::Command::get_arguments);
    let mut names = Vec::new();
    for name in options.filter_map(|option| Some(format!("--{}", option.get_long()?))) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(arguments: &[&str]) -> Vec<OsString> {
        arguments.iter().map(OsString::from).collect()
    }

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn json_is_found_in_arguments_that_do_not_parse() {
        assert!(wants_json(&raw(&["shardlimit", "acquire", "--nonsense", "--json"])));
        assert!(wants_json(&raw(&["shardlimit", "--json=yes"])));
        assert!(!wants_json(&raw(&["shardlimit", "acquire", "--", "--json"])));
        assert!(!wants_json(&raw(&["--json", "acquire", "--jsonl"])));
    }

    #[test]
    fn only_known_commands_are_named() {
        assert_eq!(named_command(&raw(&["shardlimit", "--json", "bench"])).as_deref(), Some("bench"));
        assert_eq!(named_command(&raw(&["shardlimit", "benches"])), None);
        assert_eq!(named_command(&raw(&["shardlimit", "--json"])), None);
    }
}
