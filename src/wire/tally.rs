//! A tally: what all clients admitted of one key lately, by cells of store time.

use redis::{Cmd, Value};

use super::packed::VERSION;
use super::reply::{BadReply, Fields};

/// More are never kept.
pub(crate) const MOST_CELLS: usize = 300;

/// Permits that were admitted in one cell of store time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    /// Store time divided by the length of a cell.
    pub number: u64,
    /// Below zero where more was given back in it than charged.
    pub permits: i64,
}

/// Adds what is new.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TallyRun<'a> {
    /// How many cells are kept, counted back from the newest.
    pub keep: u64,
    /// Milliseconds that it lives if nobody adds anything.
    pub ttl: u64,
    pub new: &'a [Cell],
}

impl TallyRun<'_> {
    /// Appends the arguments behind the key.
    pub(crate) fn write(&self, cmd: &mut Cmd) {
        cmd.arg(self.keep).arg(self.ttl);
        for cell in self.new {
            cmd.arg(cell.number).arg(cell.permits);
        }
    }
}

/// What is there now, the oldest cell first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TallyReply(pub Vec<Cell>);

impl TallyReply {
    pub(crate) fn parse(value: Value) -> Result<Self, BadReply> {
        let mut fields = Fields::new(value)?;
        let packed = fields.bytes("cells")?;
        let (version, cells) = packed.split_first().ok_or_else(|| BadReply::new("cells", "empty"))?;
        if *version != VERSION {
            return Err(BadReply::new("version of the tally", version));
        }
        let (cells, rest) = cells.as_chunks::<16>();
        if !rest.is_empty() {
            return Err(BadReply::new("cells", format_args!("{} bytes, which are no whole cells", packed.len())));
        }
        let number = |bytes: &[u8]| bytes.try_into().map_or(0, i64::from_le_bytes);
        let cells = cells.iter().map(|cell| Cell { number: number(&cell[..8]) as u64, permits: number(&cell[8..]) });
        let cells: Vec<Cell> = cells.collect();
        let is_exact = |cell: &Cell| cell.number < 1 << 53 && cell.permits.unsigned_abs() <= 1 << 53;
        if cells.len() > MOST_CELLS || !cells.iter().all(is_exact) || !cells.is_sorted_by_key(|cell| cell.number) {
            return Err(BadReply::new("cells", format_args!("{}: too many, too large or out of order", cells.len())));
        }
        fields.end(Self(cells))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(packed: &[u8]) -> Result<TallyReply, BadReply> {
        TallyReply::parse(Value::Array(vec![Value::Int(i64::from(VERSION)), Value::BulkString(packed.to_vec())]))
    }

    #[test]
    fn cells_are_read_as_they_were_packed() {
        let mut packed = vec![VERSION];
        for number in [7_u64, 12, 9, 1 << 40] {
            packed.extend(number.to_le_bytes());
        }
        let cells = vec![Cell { number: 7, permits: 12 }, Cell { number: 9, permits: 1 << 40 }];
        assert_eq!(reply(&packed), Ok(TallyReply(cells)));
        assert_eq!(reply(&[VERSION]), Ok(TallyReply(Vec::new())));
    }

    #[test]
    fn what_is_no_tally_is_an_error() {
        for wrong in [&[][..], &[VERSION + 1], &[VERSION, 0, 0]] {
            assert!(reply(wrong).is_err(), "{wrong:?}");
        }
        let many = [vec![VERSION], vec![0; 16 * (MOST_CELLS + 1)]].concat();
        let huge = [vec![VERSION], vec![0xff; 16]].concat();
        let turned = [&[VERSION][..], &2_u64.to_le_bytes(), &[0; 24]].concat();
        for wrong in [many, huge, turned] {
            assert!(reply(&wrong).is_err());
        }
    }
}
