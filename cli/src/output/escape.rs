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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_printable_ascii_stays() {
        assert_eq!(escape(b"item 42~"), "item 42~");
        assert_eq!(escape(b"\x00\n\x1b[31m\x7f\xff"), "\\x00\\x0a\\x1b[31m\\x7f\\xff");
        assert_eq!(escape("µ".as_bytes()), "\\xc2\\xb5");
        assert_eq!(escape(br"a\xff"), r"a\\xff");
    }
}
