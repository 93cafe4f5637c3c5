//! What a reply takes of this process's memory, found out while it comes in and before anything is made of it.
//!
//! The crate below buffers whatever a server sends: 400 MiB of one reply were seen. So every byte passes here first. A list
//! or a string counts as soon as it is announced, so a reply that would be too large is refused at its first line.

use std::fmt;

use crate::sync::atomic::{AtomicBool, Ordering};

/// What a reply of a script may weigh. The largest: the ledger of 1,000 shares of a sliding window on their way, 2 MB.
pub(super) const SMALL: usize = 4 << 20;
/// What a description of the cluster may weigh. The largest: 16,384 ranges with three nodes each and their host names, 28 MB.
pub(super) const LARGE: usize = 40 << 20;
/// The longest line. Errors have some hundred bytes.
const LINE: usize = 64 << 10;
/// What a value weighs beside its bytes: the crate's own takes 56 bytes, in a list that grows by doubling.
const VALUE: usize = 64;
/// Lists within lists. CLUSTER SLOTS and HELLO have four; the crate follows a hundred, each a frame on the stack.
const DEEPEST: usize = 8;

/// Reads along: knows where each message ends, and how heavy the present one is.
#[derive(Debug)]
pub(crate) struct Scanner {
    at: At,
    weight: usize,
    /// What one may weigh.
    most: usize,
    /// It may be as heavy as a description of the cluster.
    is_large: bool,
    /// How many values are still to come in each list that is open.
    open: [u64; DEEPEST],
    depth: usize,
    /// The first byte of the present one, or of the last.
    kind: u8,
    ended: u64,
    pushes: u64,
}

/// What comes next.
#[derive(Clone, Copy, Debug)]
enum At {
    /// The first byte of a value.
    Type,
    /// A line of text: how much of it there was, and whether its last byte was a carriage return.
    Text { length: usize, cr: bool },
    /// A line with a length.
    Length { kind: u8, negative: bool, number: u64, digits: u8, cr: bool },
    /// So many bytes of a string and its line end.
    Bytes(u64),
}

/// Why a reply is not read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Excess {
    /// It would take too much memory.
    Heavy { most: usize },
    /// One of its lines has no end.
    Long,
    /// Its lists are nested too deeply.
    Deep,
    /// It is no reply at all.
    Garbled,
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Heavy { most } => write!(f, "the server sent a reply of more than {} MiB", most >> 20),
            Self::Long => write!(f, "the server sent a line of more than {} KiB", LINE >> 10),
            Self::Deep => write!(f, "the server sent a reply with more than {DEEPEST} lists within each other"),
            Self::Garbled => f.write_str("the server sent something that is no reply"),
        }
    }
}

impl Scanner {
    /// Of what a server sends.
    pub(crate) fn of_replies() -> Self {
        Self::new(SMALL)
    }

    /// Of what we send, which may be as heavy as it is.
    pub(crate) fn of_requests() -> Self {
        Self::new(usize::MAX)
    }

    fn new(most: usize) -> Self {
        Self {
            at: At::Type,
            weight: 0,
            most,
            is_large: false,
            open: [0; DEEPEST],
            depth: 0,
            kind: 0,
            ended: 0,
            pushes: 0,
        }
    }

    /// Reads what came. `large` is taken, once, by a reply that is too heavy for anything but a description of the cluster.
    pub(crate) fn read(&mut self, mut bytes: &[u8], large: &AtomicBool) -> Result<(), Excess> {
        while let [first, rest @ ..] = bytes {
            match self.at {
                At::Type => {
                    bytes = rest;
                    self.begin(*first, large)?;
                }
                At::Text { length, cr } => {
                    let end = bytes.iter().position(|byte| *byte == b'\n');
                    let before = end.unwrap_or(bytes.len());
                    let cr = if before == 0 { cr } else { bytes[before - 1] == b'\r' };
                    let length = length + before;
                    if length > LINE {
                        return Err(Excess::Long);
                    }
                    self.weigh(before, large)?;
                    bytes = &bytes[end.map_or(before, |end| end + 1)..];
                    match end {
                        Some(_) if cr => self.end_value(),
                        Some(_) => self.at = At::Text { length, cr: false },
                        None => self.at = At::Text { length, cr },
                    }
                }
                At::Length { .. } => {
                    bytes = rest;
                    self.length(*first, large)?;
                }
                At::Bytes(left) => {
                    let here = left.min(bytes.len() as u64);
                    bytes = &bytes[here as usize..];
                    if here == left { self.end_value() } else { self.at = At::Bytes(left - here) }
                }
            }
        }
        Ok(())
    }

    /// No reply is half read.
    pub(crate) fn is_between(&self) -> bool {
        self.depth == 0 && matches!(self.at, At::Type)
    }

    /// How many messages have come to their end.
    pub(crate) fn ended(&self) -> u64 {
        self.ended
    }

    /// How many of them answer a request: a push does not.
    pub(crate) fn answers(&self) -> u64 {
        self.ended - self.pushes
    }

    /// Whether the last of them was an error.
    pub(crate) fn was_error(&self) -> bool {
        matches!(self.kind, b'-' | b'!')
    }

    fn begin(&mut self, kind: u8, large: &AtomicBool) -> Result<(), Excess> {
        if self.depth == 0 {
            self.kind = kind;
            self.weigh(VALUE, large)?;
        }
        self.at = match kind {
            b'+' | b'-' | b':' | b'_' | b',' | b'#' | b'(' => At::Text { length: 0, cr: false },
            b'$' | b'=' | b'!' | b'*' | b'~' | b'>' | b'%' | b'|' => {
                At::Length { kind, negative: false, number: 0, digits: 0, cr: false }
            }
            _ => return Err(Excess::Garbled),
        };
        Ok(())
    }

    /// One byte of a line with a length.
    fn length(&mut self, byte: u8, large: &AtomicBool) -> Result<(), Excess> {
        let At::Length { kind, negative, number, digits, cr } = self.at else { return Err(Excess::Garbled) };
        self.at = match byte {
            b'-' if digits == 0 && !negative => At::Length { kind, negative: true, number, digits, cr },
            b'0'..=b'9' if digits < 18 && !cr => {
                let number = number * 10 + u64::from(byte - b'0');
                At::Length { kind, negative, number, digits: digits + 1, cr }
            }
            b'\r' if digits > 0 && !cr => At::Length { kind, negative, number, digits, cr: true },
            // For the crate `-0` is a length of zero, and not one below it.
            b'\n' if cr && !(negative && number == 0) => {
                return self.announced(kind, (!negative).then_some(number), large);
            }
            _ => return Err(Excess::Garbled),
        };
        Ok(())
    }

    /// None: a length below zero.
    fn announced(&mut self, kind: u8, length: Option<u64>, large: &AtomicBool) -> Result<(), Excess> {
        let values = match (kind, length) {
            (b'$' | b'=' | b'!', Some(length)) => {
                let bytes = usize::try_from(length).unwrap_or(usize::MAX);
                // Only a list is ever large.
                if bytes > self.most {
                    return Err(Excess::Heavy { most: self.most });
                }
                self.weigh(bytes, large)?;
                self.at = At::Bytes(length + 2);
                return Ok(());
            }
            (b'*' | b'~' | b'>', Some(length)) => length,
            (b'%', Some(pairs)) => 2 * pairs,
            // The value that it is about comes behind it, and belongs to it.
            (b'|', Some(pairs)) => 2 * pairs + 1,
            // Nothing there, as older servers say it.
            (b'$' | b'*' | b'~' | b'>', None) => 0,
            _ => return Err(Excess::Garbled),
        };
        self.weigh(usize::try_from(values).unwrap_or(usize::MAX).saturating_mul(VALUE), large)?;
        if values == 0 {
            self.end_value();
            return Ok(());
        }
        *self.open.get_mut(self.depth).ok_or(Excess::Deep)? = values;
        self.depth += 1;
        self.at = At::Type;
        Ok(())
    }

    fn end_value(&mut self) {
        self.at = At::Type;
        while self.depth > 0 {
            let left = &mut self.open[self.depth - 1];
            *left -= 1;
            if *left > 0 {
                return;
            }
            self.depth -= 1;
        }
        (self.weight, self.is_large) = (0, false);
        self.ended += 1;
        self.pushes += u64::from(self.kind == b'>');
    }

    fn weigh(&mut self, more: usize, large: &AtomicBool) -> Result<(), Excess> {
        self.weight = self.weight.saturating_add(more);
        if self.weight > self.most && !self.is_large {
            self.is_large = large.swap(false, Ordering::Relaxed);
        }
        let most = if self.is_large { LARGE } else { self.most };
        if self.weight > most { Err(Excess::Heavy { most }) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Reads it in pieces of this size, without leave for anything large.
    fn read(bytes: &[u8], pieces: usize) -> Result<Scanner, Excess> {
        let mut scanner = Scanner::of_replies();
        bytes.chunks(pieces).try_for_each(|piece| scanner.read(piece, &AtomicBool::new(false)))?;
        Ok(scanner)
    }

    /// After how many bytes the crate below has a whole value; none if it never has.
    fn end_by_crate(bytes: &[u8]) -> Option<usize> {
        (1..=bytes.len()).find(|length| redis::parse_redis_value(&bytes[..*length]).is_ok())
    }

    /// The same by the scanner; an error where it refuses the reply before its end.
    fn end_by_scanner(bytes: &[u8]) -> Result<Option<usize>, Excess> {
        let mut scanner = Scanner::of_replies();
        for (index, byte) in bytes.iter().enumerate() {
            scanner.read(&[*byte], &AtomicBool::new(false))?;
            if scanner.ended() > 0 {
                return Ok(Some(index + 1));
            }
        }
        Ok(None)
    }

    #[test]
    fn replies_of_every_kind_end_where_they_end() {
        let every = "+OK\r\n-ERR a\nb\r\n:-5\r\n$3\r\na\r\n\r\n$-1\r\n$0\r\n\r\n*0\r\n*-1\r\n_\r\n,1.5\r\n#t\r\n(99\r\n\
                     =5\r\ntxt:x\r\n!3\r\nERR\r\n%1\r\n+a\r\n*2\r\n:1\r\n:2\r\n~1\r\n:1\r\n>1\r\n+x\r\n|1\r\n+a\r\n+b\r\n:7\r\n";
        for pieces in 1..=every.len() {
            let scanner = read(every.as_bytes(), pieces).unwrap();
            assert_eq!(
                (scanner.ended(), scanner.answers(), scanner.is_between(), scanner.weight),
                (18, 17, true, 0),
                "pieces of {pieces}"
            );
        }
        let half = read(b"*2\r\n:1\r\n", 4).unwrap();
        assert_eq!((half.ended(), half.is_between()), (0, false));
    }

    #[test]
    fn what_is_too_much_is_refused_where_it_is_announced() {
        let heavy = Excess::Heavy { most: SMALL };
        for announced in ["$500000000\r\n", "*1000000\r\n", "%999999\r\n", "|40000\r\n", "=99999999\r\n", "~70000\r\n"]
        {
            assert_eq!(read(announced.as_bytes(), 1).unwrap_err(), heavy, "{announced}");
        }
        let line = format!(":{}", "1".repeat(LINE));
        assert!(read(line.as_bytes(), 4_096).is_ok());
        assert_eq!(read((line + "1").as_bytes(), 4_096).unwrap_err(), Excess::Long);
        let strings = format!("*2\r\n${SMALL}\r\n");
        assert_eq!(read(strings.as_bytes(), 7).unwrap_err(), heavy, "together with the list");
        assert_eq!(read(&b"*1\r\n".repeat(DEEPEST + 1), 3).unwrap_err(), Excess::Deep);
        for garbled in [
            "x",
            "$+3\r\n",
            "$\r\n",
            "*1 \r\n",
            "%-1\r\n",
            "=-1\r\n",
            "$-0\r\n",
            "*--1",
            "$1\n",
            "*1\rx",
            "*9999999999999999999",
        ] {
            assert_eq!(read(garbled.as_bytes(), 2).unwrap_err(), Excess::Garbled, "{garbled}");
        }
    }

    /// Many small ones may be read for ever.
    #[test]
    fn only_one_reply_is_weighed() {
        let bytes = format!("${}\r\n{}\r\n", SMALL - 100, "x".repeat(SMALL - 100));
        assert_eq!(read(bytes.repeat(3).as_bytes(), 100_000).unwrap().ended(), 3);
    }

    #[test]
    fn leave_for_a_large_reply_is_used_once() {
        let bytes = format!("*2\r\n{}", format!("${}\r\n{}\r\n", SMALL / 2, "x".repeat(SMALL / 2)).repeat(2));
        let (mut scanner, large) = (Scanner::of_replies(), AtomicBool::new(true));
        scanner.read(b":1\r\n", &large).unwrap();
        scanner.read(bytes.as_bytes(), &large).unwrap();
        assert_eq!(scanner.ended(), 2, "a small one in between does not use it up");
        assert_eq!(scanner.read(bytes.as_bytes(), &large).unwrap_err(), Excess::Heavy { most: SMALL });
        let more = format!("*{}\r\n", LARGE / VALUE + 1);
        let refused = Scanner::of_replies().read(more.as_bytes(), &AtomicBool::new(true)).unwrap_err();
        assert_eq!(refused, Excess::Heavy { most: LARGE });
    }

    #[test]
    fn a_value_weighs_no_less_than_it_takes() {
        assert!(size_of::<redis::Value>() <= VALUE);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]
        /// A reply that ends elsewhere for the crate than here could hide another one: whatever both read ends at one byte.
        #[test]
        fn it_never_disagrees_with_the_crate(text in "([*$:+%~>|=!_,#(-]-?[0-3]?(\r\n|\r|\n)?[a1]{0,2}(\r\n)?){1,8}") {
            let bytes = text.as_bytes();
            match end_by_scanner(bytes) {
                Ok(end) => {
                    let by_crate = end_by_crate(bytes);
                    // It also refuses by content, as a `:` without a number.
                    prop_assert!(by_crate == end || by_crate.is_none(), "{:?} here, {:?} there", end, by_crate);
                }
                Err(Excess::Garbled) => {}
                Err(excess) => prop_assert!(false, "{excess}"),
            }
        }
    }
}
