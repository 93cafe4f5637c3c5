//! A server's own words, as an error, a log and a terminal can bear them.

use std::fmt::{self, Write};

/// Characters that are kept: a line of a log.
const MOST: usize = 200;
/// As DNS has it.
const LONGEST_HOST: usize = 255;

/// The text with everything but printable ASCII escaped, and cut; and without a secret: a server may repeat it whenever it likes, also
/// where it is cut off in the middle of it. Nothing is built that would be cut off: the words of a hostile server can have megabytes.
pub(crate) fn said_without(secret: &str, words: &dyn fmt::Display) -> String {
    let mut begin = Begin { text: String::new(), most: MOST + secret.len() };
    let is_cut = write!(begin, "{words}").is_err();
    let mut text = begin.text;
    if !secret.is_empty() {
        text = text.replace(secret, "***");
        let mut starts = secret.char_indices().rev().map(|(end, _)| &secret[..end]);
        if let Some(start) = starts.find(|start| is_cut && text.ends_with(start)) {
            text.truncate(text.len() - start.len());
        }
    }
    let mut line = String::new();
    let mut chars = text.chars();
    while line.len() < MOST {
        match chars.next() {
            Some(c @ ' '..='~') => line.push(c),
            Some(c) => line.extend(c.escape_default()),
            None if is_cut => break,
            None => return line,
        }
    }
    if is_cut || chars.next().is_some() {
        line.push('…');
    }
    line
}

/// So many bytes of a text at the least, if it has them. Refuses what is too much, which ends the writing.
struct Begin {
    text: String,
    most: usize,
}

impl Write for Begin {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            if self.text.len() >= self.most {
                return Err(fmt::Error);
            }
            self.text.push(c);
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

    fn said(words: &dyn fmt::Display) -> String {
        said_without("", words)
    }

    #[test]
    fn only_printable_ascii_is_left_and_not_too_much() {
        assert_eq!(said(&"plain words"), "plain words");
        assert_eq!(said(&"\x1b[2J\r\n\u{9b}é\0"), "\\u{1b}[2J\\r\\n\\u{9b}\\u{e9}\\u{0}");
        let long = said(&"x".repeat(1_000_000));
        assert_eq!((long.chars().count(), long.ends_with('…')), (MOST + 1, true));
        assert_eq!(said(&"x".repeat(MOST)), "x".repeat(MOST));
    }

    /// Its beginning was shown where the line ended, and all of it where it had to be escaped.
    #[test]
    fn no_part_of_a_secret_is_left() {
        assert_eq!(said_without("hunter2", &"ERR hunter2? hunter2!"), "ERR ***? ***!");
        assert_eq!(said_without("päss\n", &"no such user päss\n"), "no such user ***");
        for before in 0..2 * MOST {
            for times in [1, 2, 50] {
                let line = said_without("hunter2", &format_args!("{}{}", "x".repeat(before), "hunter2".repeat(times)));
                let left = line.trim_start_matches('x').trim_end_matches('…');
                assert!(
                    left.chars().all(|c| c == '*') && line.chars().count() <= MOST + 1,
                    "{before}, {times}: {line}"
                );
            }
        }
    }

    #[test]
    fn hosts_are_names_and_addresses() {
        assert!(is_host("redis-7.example.com") && is_host("fe80::1") && is_host("10.0.0.1"));
        assert!(
            !is_host("") && !is_host("a b") && !is_host("\u{1b}[2J") && !is_host("é") && !is_host(&"h".repeat(256))
        );
    }
}
