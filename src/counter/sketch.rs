//! `HyperLogLog`: about how many distinct values, in 16,384 registers. Pure.
//!
//! Registers of a server are read as it stores them, so that those of several parts are joined here.

/// Registers; the standard error of an estimate is 1.04 / √16,384 = 0.81 %.
const REGISTERS: usize = 1 << 14;
/// Bits of a hash behind those that choose the register.
const RANKS: usize = 64 - 14;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sketch(Box<[u8]>);

impl Default for Sketch {
    fn default() -> Self {
        Self(vec![0; REGISTERS].into())
    }
}

impl Sketch {
    pub(super) fn add(&mut self, value: &[u8]) {
        let hash = hash(value);
        let rank = (hash >> 14 | 1 << RANKS).trailing_zeros() as u8 + 1;
        let register = &mut self.0[hash as usize % REGISTERS];
        *register = rank.max(*register);
    }

    /// The sketch of all that either has seen.
    pub(super) fn join(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(mine, other)| *mine = (*mine).max(*other));
    }

    /// About how many values were added: as `PFCOUNT` computes it, by O. Ertl's *New cardinality estimation
    /// algorithms for `HyperLogLog` sketches*.
    pub(crate) fn estimate(&self) -> u64 {
        const ALPHA: f64 = 0.721_347_520_444_481_7;
        let mut histogram = [0_u32; 64];
        self.0.iter().for_each(|rank| histogram[usize::from(*rank)] += 1);
        let registers = REGISTERS as f64;
        let mut z = registers * tau((registers - f64::from(histogram[RANKS + 1])) / registers);
        for count in histogram[1..=RANKS].iter().rev() {
            z = (z + f64::from(*count)) * 0.5;
        }
        z += registers * sigma(f64::from(histogram[0]) / registers);
        (ALPHA * registers * registers / z).round() as u64
    }
}

#[cfg(any(test, feature = "redis"))]
impl Sketch {
    /// Reads what a server stores: a head of 16 bytes, then runs of registers (sparse), or all of them in 6 bits each (dense).
    ///
    /// # Errors
    /// With what is wrong.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let body = bytes.get(16..).filter(|_| bytes.starts_with(b"HYLL")).ok_or("it is no HyperLogLog")?;
        match bytes[4] {
            0 => Self::dense(body),
            1 => Self::sparse(body),
            other => Err(format!("its encoding is {other}")),
        }
    }

    fn dense(body: &[u8]) -> Result<Self, String> {
        if body.len() < REGISTERS * 6 / 8 {
            return Err(format!("it has {} bytes of registers", body.len()));
        }
        let register = |index: usize| {
            let (byte, shift) = (index * 6 / 8, index * 6 % 8);
            let next = body.get(byte + 1).copied().unwrap_or(0);
            (u16::from_le_bytes([body[byte], next]) >> shift) as u8 & 63
        };
        let registers: Box<[u8]> = (0..REGISTERS).map(register).collect();
        Self::checked(registers)
    }

    fn sparse(body: &[u8]) -> Result<Self, String> {
        let (mut registers, mut bytes) = (Vec::with_capacity(REGISTERS), body.iter().copied());
        while let Some(byte) = bytes.next() {
            let (rank, run) = match byte >> 6 {
                0 => (0, usize::from(byte & 63) + 1),
                1 => (0, usize::from(byte & 63) << 8 | usize::from(bytes.next().ok_or("it is cut off")?)),
                _ => ((byte >> 2 & 31) + 1, usize::from(byte & 3) + 1),
            };
            // The second form of a run of zeros counts from one, too.
            let run = run + usize::from(byte >> 6 == 1);
            if registers.len() + run > REGISTERS {
                return Err("it has too many registers".into());
            }
            registers.resize(registers.len() + run, rank);
        }
        Self::checked(registers.into())
    }

    fn checked(registers: Box<[u8]>) -> Result<Self, String> {
        match registers.iter().find(|rank| usize::from(**rank) > RANKS + 1) {
            _ if registers.len() != REGISTERS => Err(format!("it has {} registers", registers.len())),
            Some(rank) => Err(format!("a register is {rank}")),
            None => Ok(Self(registers)),
        }
    }
}

/// The same on every client and release: a value always goes to the same shard.
pub(super) fn hash(value: &[u8]) -> u64 {
    // FNV-1a, and the end of MurmurHash3, so that all bits depend on all bytes.
    let fnv = value
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    let mixed = (fnv ^ fnv >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let mixed = (mixed ^ mixed >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    mixed ^ mixed >> 33
}

#[allow(clippy::float_cmp, reason = "it ends when nothing changes any more")]
fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x).powi(2) * y;
        if before == z {
            return z / 3.0;
        }
    }
}

#[allow(clippy::float_cmp, reason = "it ends when nothing changes any more")]
fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if before == z {
            return z;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_is_near() {
        for count in [0_u64, 1, 10, 1_000, 20_000, 100_000, 500_000] {
            let mut sketch = Sketch::default();
            (0..2 * count).for_each(|value| sketch.add((value % count).to_string().as_bytes()));
            let error = sketch.estimate().abs_diff(count) as f64 / count.max(1) as f64;
            // Four standard errors.
            assert!(error < 0.033, "{} of {count}", sketch.estimate());
        }
    }

    /// A value of a running system must not change its shard.
    #[test]
    fn the_hash_never_changes() {
        assert_eq!([hash(b""), hash(b"alice")], [0xefd0_1f60_ba99_2926, 0x3507_d047_a67c_08f4]);
    }

    #[test]
    fn what_is_no_sketch_is_refused() {
        let head = |encoding: u8| [b"HYLL".as_slice(), &[encoding], &[0; 11]].concat();
        for (bytes, why) in [
            (b"HYLL".to_vec(), "no HyperLogLog"),
            (vec![0; 40], "no HyperLogLog"),
            (head(2), "encoding is 2"),
            (head(0), "0 bytes"),
            (head(1), "0 registers"),
            ([head(1), vec![0x7f]].concat(), "cut off"),
            ([head(1), vec![0x7f, 0xff, 0]].concat(), "too many"),
            ([head(0), vec![0xff; 12_288]].concat(), "a register is 63"),
        ] {
            let error = Sketch::parse(&bytes).unwrap_err();
            assert!(error.contains(why), "{error} for {why}");
        }
        assert_eq!(Sketch::parse(&[head(1), vec![0x7f, 0xff]].concat()), Ok(Sketch::default()));
    }
}
