//! Hash slots: where a Redis Cluster keeps a key.

use super::tag;

/// One of the 16,384 slots of a Redis Cluster.
///
/// ```
/// use shardlimit::Slot;
///
/// let slot = Slot::of(b"user:{42}:cart");
/// assert_eq!(slot, Slot::of(b"42")); // only what stands in braces counts
/// assert_eq!(slot.number(), 8000);
/// assert_eq!(Slot::of(slot.tag().as_bytes()), slot);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(u16);

impl Slot {
    /// How many there are.
    ///
    /// ```
    /// assert_eq!(shardlimit::Slot::COUNT, 16_384);
    /// ```
    pub const COUNT: u16 = 16_384;

    /// The slot with this number; `None` from [`COUNT`](Slot::COUNT) on.
    ///
    /// ```
    /// # use shardlimit::Slot;
    /// assert_eq!(Slot::new(16_383).map(Slot::number), Some(16_383));
    /// assert_eq!(Slot::new(16_384), None);
    /// ```
    #[must_use]
    pub const fn new(number: u16) -> Option<Self> {
        if number < Self::COUNT { Some(Self(number)) } else { None }
    }

    /// The slot of a key: CRC16 of what stands between its first `{` and the next `}`, or of the whole key when there is
    /// nothing between them or no such pair.
    ///
    /// ```
    /// # use shardlimit::Slot;
    /// assert_eq!(Slot::of(b"123456789").number(), 12_739);
    /// assert_eq!(Slot::of(b"{x}y{z}"), Slot::of(b"x"));
    /// assert_ne!(Slot::of(b"{}x"), Slot::of(b"{}y")); // nothing in the braces: the whole key counts
    /// ```
    #[must_use]
    pub fn of(key: &[u8]) -> Self {
        Self(crc16::State::<crc16::XMODEM>::calculate(hashed_part(key)) % Self::COUNT)
    }

    /// Its number, below [`COUNT`](Slot::COUNT).
    ///
    /// ```
    /// assert_eq!(shardlimit::Slot::of(b"foo").number(), 12_182);
    /// ```
    #[must_use]
    pub const fn number(self) -> u16 {
        self.0
    }

    /// A short printable string that hashes to this slot: in braces, it moves any key there. It never changes.
    ///
    /// ```
    /// # use shardlimit::Slot;
    /// let tag = Slot::of(b"some key").tag();
    /// assert!(tag.len() <= 4);
    /// assert_eq!(Slot::of(format!("limit:{{{tag}}}:x").as_bytes()), Slot::of(b"some key"));
    /// ```
    #[must_use]
    pub fn tag(self) -> &'static str {
        tag::of(self)
    }

    /// Every slot, in order.
    ///
    /// ```
    /// assert_eq!(shardlimit::Slot::all().count(), 16_384);
    /// ```
    pub fn all() -> impl Iterator<Item = Self> {
        (0..Self::COUNT).map(Self)
    }
}

fn hashed_part(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|byte| *byte == b'{') else { return key };
    let inner = &key[open + 1..];
    match inner.iter().position(|byte| *byte == b'}') {
        Some(0) | None => key,
        Some(close) => &inner[..close],
    }
}
