//! What a client makes of a ledger that home says it has.

use crate::wire::GrantId;

/// A ledger that home was heard to have, beside the one that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// It is that one.
    Same,
    /// Home has written it since.
    Later,
    /// An older one: home has forgotten the one that is known.
    Forgot,
    /// Home was asked before the known one was heard of. Who knows which was first: it says nothing.
    Old,
}

/// `is_after`: home was asked after the ledger `known` was heard of.
pub(crate) fn news(known: GrantId, heard: GrantId, is_after: bool) -> News {
    if known == heard {
        News::Same
    } else if !is_after {
        News::Old
    } else if known.stamp > heard.stamp {
        News::Forgot
    } else {
        News::Later
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_ledger_means_to_one_who_knows_another() {
        let id = |stamp, random| GrantId { stamp, random };
        for (heard, is_after, means) in [
            (id(5, 1), true, News::Same),
            (id(5, 1), false, News::Same),
            (id(6, 2), true, News::Later),
            (id(4, 2), true, News::Forgot),
            // Written in the same millisecond, by somebody who had not heard of the known one either.
            (id(5, 2), true, News::Later),
            (id(6, 2), false, News::Old),
            (id(4, 2), false, News::Old),
        ] {
            assert_eq!(news(id(5, 1), heard, is_after), means, "{heard:?}, {is_after}");
        }
    }
}
