//! CLUSTER NODES: one line a node.

use std::ops::RangeInclusive;

/// A node as another one sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub id: String,
    /// Empty where the node that was asked doesn't know its own.
    pub host: String,
    /// 0 where nobody knows it.
    pub port: u16,
    /// The id of its master, for a replica.
    pub replica_of: Option<String>,
    /// Most masters hold it for dead, or this one does.
    pub failed: bool,
    /// Not known by its true id yet.
    pub handshake: bool,
    pub slots: Vec<RangeInclusive<u16>>,
}

/// `None` if a line is not as it should be: half a view would be a wrong one.
pub(crate) fn read_nodes(text: &str) -> Option<Vec<Seen>> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).map(read_node).collect()
}

/// `id host:port@bus[,hostname] flags master-id ping pong epoch link slot slot-slot [slot->-id]`
fn read_node(line: &str) -> Option<Seen> {
    let mut words = line.split(' ');
    let id = words.next()?.to_owned();
    let (address, flags, master) = (words.next()?, words.next()?, words.next()?);
    let (host, port) = address.split([',', '@']).next()?.rsplit_once(':')?;
    let has = |flag: &str| flags.split(',').any(|one| one == flag);
    // Slots on their way belong to whom they leave: those in brackets say nothing more about who owns them.
    let slots = words.skip(4).filter(|word| !word.starts_with('[')).map(read_range).collect::<Option<_>>()?;
    Some(Seen {
        id,
        host: host.trim_matches(['[', ']']).to_owned(),
        port: port.parse().ok()?,
        replica_of: (has("slave") && master != "-").then(|| master.to_owned()),
        failed: has("fail") || has("fail?") || has("noaddr"),
        handshake: has("handshake"),
        slots,
    })
}

fn read_range(word: &str) -> Option<RangeInclusive<u16>> {
    let (from, to) = word.split_once('-').unwrap_or((word, word));
    let (from, to): (u16, u16) = (from.parse().ok()?, to.parse().ok()?);
    (from <= to && to < shardlimit::Slot::COUNT).then_some(from..=to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_every_kind() {
        let text = "\
            a1 127.0.0.1:7001@17001 myself,master - 0 0 1 connected 0-5460 5470 [93->-b2]\n\
            b2 10.0.0.2:7002@17002,redis-2.example master,fail - 1 2 2 disconnected 5461-5469\n\
            c3 :0@0 slave,noaddr a1 1 2 1 disconnected\n\
            d4 2001:db8::1:7004@17004 slave a1 0 2 1 connected\n\
            e5 127.0.0.1:7005@17005 handshake - 0 0 0 connected\n";
        let nodes = read_nodes(text).unwrap();
        assert_eq!(nodes[0].slots, [0..=5460, 5470..=5470]);
        assert!(nodes[0].replica_of.is_none() && !nodes[0].failed);
        assert!(nodes[1].failed && nodes[1].host == "10.0.0.2" && nodes[1].port == 7002);
        assert!(nodes[2].failed && nodes[2].host.is_empty() && nodes[2].port == 0);
        assert_eq!((nodes[3].host.as_str(), nodes[3].replica_of.as_deref()), ("2001:db8::1", Some("a1")));
        assert!(nodes[4].handshake);
    }

    #[test]
    fn half_a_line_is_no_view() {
        for text in ["a1", "a1 x master - 0 0 1 connected", "a1 h:1@2 master - 0 0 1 connected 0-99999"] {
            assert_eq!(read_nodes(text), None, "{text}");
        }
    }
}
