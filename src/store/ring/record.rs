//! The record: which nodes form the ring. Every one of them has it, and the latest counts for all clients.

use std::fmt;

use super::member::{Member, is_name};
use crate::key::plan_seed;

/// The first line: whoever finds another does not know what it means.
const TITLE: &str = "shardlimit ring 1";
/// The most members that a record may have, and the most bytes.
const MOST_MEMBERS: usize = 1_024;
const MOST_BYTES: usize = 256 * 1_024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// Each change has a higher one.
    pub number: u64,
    /// In the order of their names.
    pub members: Vec<Member>,
    /// The members before the last change, until everything they had is where it belongs now. Empty: it is.
    pub before: Vec<Member>,
    /// Names of those of them that are gone for good, with all they had.
    pub lost: Vec<Box<str>>,
    /// Number and mark of the record that the change began with: it goes on if one of the nodes before is lost meanwhile. Zero
    /// if there is none.
    pub since: (u64, u64),
}

impl Record {
    /// The first one: as a client was told.
    pub(super) fn first(members: &[Member]) -> Self {
        let mut members = members.to_vec();
        members.sort_unstable();
        Self { number: 1, members, before: Vec::new(), lost: Vec::new(), since: (0, 0) }
    }

    /// With these members from now on.
    pub(super) fn change(&self, mut members: Vec<Member>, lost: Option<&str>) -> Self {
        members.sort_unstable();
        let lost = lost.map(Into::into).into_iter().collect();
        let (number, before) = (self.number + 1, self.members.clone());
        let mut next = Self { number, members, before, lost, since: (0, 0) };
        next.since = (number, next.mark());
        next
    }

    /// The change goes on without what this one of the nodes before had.
    pub(super) fn without(&self, lost: &str) -> Self {
        let mut next = Self { number: self.number + 1, ..self.clone() };
        next.lost.push(lost.into());
        next
    }

    /// When all that has moved is where it belongs.
    pub(super) fn settled(&self) -> Self {
        let (number, members) = (self.number + 1, self.members.clone());
        Self { number, members, before: Vec::new(), lost: Vec::new(), since: (0, 0) }
    }

    /// Whether all clients could read it: what they can't, nobody could change any more.
    pub(super) fn is_good(&self) -> bool {
        Self::decode(self.encode().as_bytes()).as_ref() == Ok(self)
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.before.is_empty()
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Member> {
        self.members.iter().find(|member| &*member.name == name)
    }

    /// Everybody who has to do with it.
    pub(super) fn all(&self) -> impl Iterator<Item = &Member> {
        let gone = |member: &&Member| self.find(&member.name).is_none() && !self.lost.contains(&member.name);
        self.members.iter().chain(self.before.iter().filter(gone))
    }

    /// Whether both may be of one ring: they have a node in common.
    pub(super) fn is_akin_to(&self, other: &Self) -> bool {
        other.all().any(|theirs| self.all().any(|member| member.name == theirs.name))
    }

    /// Which of two counts.
    pub(super) fn is_later_than(&self, other: &Self) -> bool {
        (self.number, self.mark()) > (other.number, other.mark())
    }

    /// What tells it from others with the same number, below 2⁵³: Lua compares numbers, and strings by the server's locale.
    pub(super) fn mark(&self) -> u64 {
        plan_seed("ring", self.lines().as_bytes()) >> 12
    }

    pub(crate) fn encode(&self) -> String {
        format!("{TITLE}\nnumber {} {}\n{}", self.number, self.mark(), self.lines())
    }

    fn lines(&self) -> String {
        let mut lines = Vec::new();
        for (word, members) in [("node", &self.members), ("before", &self.before)] {
            for member in members {
                lines.push(format!("{word} {}\n", member.line()));
            }
        }
        for name in &self.lost {
            lines.push(format!("lost {name}\n"));
        }
        if self.since.0 > 0 {
            lines.push(format!("since {} {}\n", self.since.0, self.since.1));
        }
        lines.concat()
    }

    /// Whoever can write to a server may have written it.
    pub(crate) fn decode(text: &[u8]) -> Result<Self, BadRecord> {
        if text.len() > MOST_BYTES {
            return Err(BadRecord("it is too long"));
        }
        let text = std::str::from_utf8(text).map_err(|_| BadRecord("it is no text"))?;
        let mut lines = text.strip_suffix('\n').ok_or(BadRecord("its end is missing"))?.split('\n');
        if lines.next() != Some(TITLE) {
            return Err(BadRecord("it is of another version"));
        }
        let number = lines.next().and_then(|line| numbers(line.strip_prefix("number ")?));
        let (number, mark) = number.ok_or(BadRecord("it has no number"))?;
        let mut record = Self { number, members: Vec::new(), before: Vec::new(), lost: Vec::new(), since: (0, 0) };
        let wrong = BadRecord("one of its lines can't be read");
        for line in lines {
            let (word, rest) = line.split_once(' ').ok_or(wrong)?;
            let member = || Member::parse(rest).ok_or(wrong);
            match word {
                "node" => record.members.push(member()?),
                "before" => record.before.push(member()?),
                "lost" if is_name(rest) => record.lost.push(rest.into()),
                "since" => record.since = numbers(rest).filter(|since| since.0 > 0).ok_or(wrong)?,
                _ => return Err(wrong),
            }
        }
        let is_sorted = |members: &[Member]| members.is_sorted_by(|one, next| one.name < next.name);
        if record.members.is_empty() || record.members.len() + record.before.len() > MOST_MEMBERS {
            return Err(BadRecord("it has no nodes, or too many"));
        }
        if !is_sorted(&record.members) || !is_sorted(&record.before) {
            return Err(BadRecord("a node is in it twice, or out of order"));
        }
        if record.mark() != mark {
            return Err(BadRecord("its mark is not that of what it says"));
        }
        Ok(record)
    }
}

/// A number and a mark, such as Lua can count, written as this writes them.
fn numbers(text: &str) -> Option<(u64, u64)> {
    let (number, mark) = text.split_once(' ')?;
    let read = |text: &str| text.parse().ok().filter(|number: &u64| *number < 1 << 53 && number.to_string() == text);
    Some((read(number)?, read(mark)?))
}

/// Why a record can't be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadRecord(&'static str);

impl fmt::Display for BadRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the record of the ring is not one: {}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn members(texts: &[&str]) -> Vec<Member> {
        texts.iter().map(|text| Member::read(text).unwrap().0).collect()
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let first = Record::first(&members(&["b:2*3", "a:1"]));
        let changed = first.change(members(&["c:3", "a:1", "sentinel://s:1+s:2/main"]), Some("b:2"));
        for record in [&first, &changed, &changed.without("a:1"), &changed.settled()] {
            assert_eq!(Record::decode(record.encode().as_bytes()).as_ref(), Ok(record));
        }
        assert!(changed.is_later_than(&first) && !first.is_later_than(&changed) && !first.is_later_than(&first));
        let text =
            format!("shardlimit ring 1\nnumber 1 {}\nnode a:1 1 server a:1\nnode b:2 3 server b:2\n", first.mark());
        assert_eq!(first.encode(), text);
        let all: Vec<&str> = changed.all().map(|member| &*member.name).collect();
        assert_eq!(all, ["a:1", "c:3", "main"], "what is lost is not asked any more");
    }

    /// Clients that list the same nodes in another order make the same record.
    #[test]
    fn the_order_of_a_list_does_not_count() {
        assert_eq!(Record::first(&members(&["b:2", "a:1"])), Record::first(&members(&["a:1", "b:2"])));
    }

    proptest! {
        #[test]
        fn whatever_is_found_is_a_record_or_an_error(
            head in "(shardlimit ring 1\n)?(number [0-9]{1,3})?",
            lines in "((node|before|lost|x) [a-c]:1 [0-3] (server|sentinels) [ab]:[0-2](\\+c:2)?\n){0,3}",
        ) {
            let text = format!("{head} {}\n{lines}", plan_seed("ring", lines.as_bytes()) >> 12);
            if let Ok(record) = Record::decode(text.as_bytes()) {
                prop_assert_eq!(record.encode(), text);
            }
        }
    }
}
