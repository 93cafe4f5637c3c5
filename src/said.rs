//! A server's own words, as an error, a log and a terminal can bear them.

use std::fmt::{self, Write};

/// Characters that are kept: a line of a log.
const MOST: usize = 200;
/// As DNS has it.
const LONGEST_HOST: usize = 255;

/// The text with everything but printable ASCII escaped, and cut. Nothing is built that would be cut off: the words of a hostile
/// server can have megabytes.
pub(crate) fn said(words: &dyn fmt::Display) -> String {
    let mut line = Line(String::new());
    if write!(line, "{words}").is_err() {
        line.0.push('…');
    }
    line.0
}

/// Refuses what is too much, which ends the writing.
struct Line(String);

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            if self.0.len() >= MOST {
                return Err(fmt::Error);
            }
            match c {
                ' '..='~' => self.0.push(c),
                _ => self.0.extend(c.escape_default()),
            }
        }
        Ok(())
    }
}

/// A host or a node's id that a server named: visible ASCII, so that it can be shown wherever an address is.
pub(crate) fn is_host(text: &str) -> bool {
    (1..=LONGEST_HOST).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_printable_ascii_is_left_and_not_too_much() {
        assert_eq!(said(&"plain words"), "plain words");
        assert_eq!(said(&"\x1b[2J\r\n\u{9b}é\0"), "\\u{1b}[2J\\r\\n\\u{9b}\\u{e9}\\u{0}");
        let long = said(&"x".repeat(1_000_000));
        assert_eq!((long.chars().count(), long.ends_with('…')), (MOST + 1, true));
        assert_eq!(said(&"x".repeat(MOST)), "x".repeat(MOST));
    }

    #[test]
    fn hosts_are_names_and_addresses() {
        assert!(is_host("redis-7.example.com") && is_host("fe80::1") && is_host("10.0.0.1"));
        assert!(
            !is_host("") && !is_host("a b") && !is_host("\u{1b}[2J") && !is_host("é") && !is_host(&"h".repeat(256))
        );
    }
}
