//! Raw bytes as text that can be read back.

use std::fmt::Write;

/// Printable ASCII as it is, a backslash doubled, any other byte as `\xNN`.
pub(crate) fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            b'\\' => text.push_str("\\\\"),
            b' '..=b'~' => text.push(char::from(byte)),
            _ => {
                let _ = write!(text, "\\x{byte:02x}");
            }
        }
    }
    text
}

/// Text that may quote anything, without what a terminal would act on: control characters, and those that turn the direction
/// of writing.
pub(crate) fn visible(text: &str) -> String {
    replaced(text, |shown, c| shown.extend(c.escape_default()))
}

/// The same for JSON, which has escapes of its own and control characters of ASCII escaped already.
pub(crate) fn visible_json(text: &str) -> String {
    replaced(text, |shown, c| {
        let _ = write!(shown, "\\u{:04x}", u32::from(c));
    })
}

fn replaced(text: &str, replace: impl Fn(&mut String, char)) -> String {
    let acts = |c: char| {
        c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if acts(c) { replace(&mut shown, c) } else { shown.push(c) }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_that_a_terminal_would_act_on() {
        assert_eq!(visible_json("{\"a\": \"\u{202e}µ\u{9b}\"}"), "{\"a\": \"\\u202eµ\\u009b\"}");
        assert_eq!(visible("10 µs … “a”"), "10 µs … “a”");
        assert_eq!(visible("\x1b[2J\r\u{9b}\u{202e}x\0"), "\\u{1b}[2J\\r\\u{9b}\\u{202e}x\\u{0}");
    }

    #[test]
    fn only_printable_ascii_stays() {
        assert_eq!(escape(b"item 42~"), "item 42~");
        assert_eq!(escape(b"\x00\n\x1b[31m\x7f\xff"), "\\x00\\x0a\\x1b[31m\\x7f\\xff");
        assert_eq!(escape("µ".as_bytes()), "\\xc2\\xb5");
        assert_eq!(escape(br"a\xff"), r"a\\xff");
    }
}
