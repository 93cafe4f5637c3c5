//! The scripts that run on servers, and the names that servers know them by.

use std::sync::LazyLock;

use crate::limit::Share;

/// A script of `lua/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Script {
    Bucket,
    FixedWindow,
    SlidingWindow,
    Composite,
    HomeBucket,
    HomeFixedWindow,
    HomeSlidingWindow,
    HomeComposite,
    Install,
    Close,
    Tally,
    Ring,
    MoveOut,
    MoveIn,
    Counter,
    SlidingCounter,
    Distinct,
    Approximate,
}

impl Script {
    /// In the order of their declaration.
    pub(crate) const ALL: [Self; 18] = [
        Self::Bucket,
        Self::FixedWindow,
        Self::SlidingWindow,
        Self::Composite,
        Self::HomeBucket,
        Self::HomeFixedWindow,
        Self::HomeSlidingWindow,
        Self::HomeComposite,
        Self::Install,
        Self::Close,
        Self::Tally,
        Self::Ring,
        Self::MoveOut,
        Self::MoveIn,
        Self::Counter,
        Self::SlidingCounter,
        Self::Distinct,
        Self::Approximate,
    ];

    /// What charges a share.
    pub(crate) fn acquire(share: &Share) -> Self {
        match share {
            Share::Bucket(_) => Self::Bucket,
            Share::Fixed(_) => Self::FixedWindow,
            Share::Sliding(_) => Self::SlidingWindow,
            Share::Composite(_) => Self::Composite,
        }
    }

    /// What writes a ledger to a home that has this share afterwards.
    pub(crate) fn home(share: &Share) -> Self {
        match share {
            Share::Bucket(_) => Self::HomeBucket,
            Share::Fixed(_) => Self::HomeFixedWindow,
            Share::Sliding(_) => Self::HomeSlidingWindow,
            Share::Composite(_) => Self::HomeComposite,
        }
    }

    pub(crate) fn source(self) -> &'static str {
        match self {
            Self::Bucket => include_str!("../../lua/bucket.lua"),
            Self::FixedWindow => include_str!("../../lua/fixed_window.lua"),
            Self::SlidingWindow => include_str!("../../lua/sliding_window.lua"),
            Self::Composite => include_str!("../../lua/composite.lua"),
            Self::HomeBucket => include_str!("../../lua/home_bucket.lua"),
            Self::HomeFixedWindow => include_str!("../../lua/home_fixed_window.lua"),
            Self::HomeSlidingWindow => include_str!("../../lua/home_sliding_window.lua"),
            Self::HomeComposite => include_str!("../../lua/home_composite.lua"),
            Self::Install => include_str!("../../lua/install.lua"),
            Self::Close => include_str!("../../lua/close.lua"),
            Self::Tally => include_str!("../../lua/tally.lua"),
            Self::Ring => include_str!("../../lua/ring.lua"),
            Self::MoveOut => include_str!("../../lua/move_out.lua"),
            Self::MoveIn => include_str!("../../lua/move_in.lua"),
            Self::Counter => include_str!("../../lua/counter.lua"),
            Self::SlidingCounter => include_str!("../../lua/sliding_counter.lua"),
            Self::Distinct => include_str!("../../lua/distinct.lua"),
            Self::Approximate => include_str!("../../lua/approximate.lua"),
        }
    }

    /// The digest that `EVALSHA` takes.
    pub(crate) fn sha(self) -> &'static str {
        static DIGESTS: LazyLock<[String; Script::ALL.len()]> =
            LazyLock::new(|| Script::ALL.map(|script| redis::Script::new(script.source()).get_hash().to_owned()));
        &DIGESTS[self as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_script_has_its_own_digest() {
        for script in Script::ALL {
            assert_eq!(script.sha(), redis::Script::new(script.source()).get_hash(), "{script:?}");
        }
    }
}
