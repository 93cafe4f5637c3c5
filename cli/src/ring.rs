//! `shardlimit ring`: which servers form a ring, and how they come and go.

use std::time::Duration;

use serde::Serialize;
use shardlimit::{Limiter, Ring};

use crate::error::Failure;
use crate::options::{RemoveOptions, RingCommand, RingNodeOptions, RingOptions};
use crate::output::{Align, Exit, Report, Style, escape, facts, grid};
use crate::redis_url::RingNodes;
use crate::runtime;

/// How long its nodes have to say how it looks.
const WITHIN: Duration = Duration::from_secs(5);

/// The ring as it is now.
#[derive(Debug, Serialize)]
pub(crate) struct RingReport {
    nodes: Vec<Node>,
    /// Whether everything is where it belongs.
    settled: bool,
    /// Whether the nodes that were given are others than those of the ring.
    differs: bool,
}

#[derive(Debug, Serialize)]
struct Node {
    name: String,
    weight: u16,
    address: Option<String>,
    sentinels: bool,
}

pub(crate) fn run(command: &RingCommand) -> Result<RingReport, Failure> {
    let (RingCommand::Show(RingOptions { ring })
    | RingCommand::Add(RingNodeOptions { of: RingOptions { ring }, .. })
    | RingCommand::Remove(RemoveOptions { of: RingOptions { ring }, .. })
    | RingCommand::Settle(RingOptions { ring })) = command;
    runtime()?.block_on(async {
        let limiter = limiter(ring)?;
        let ring = limiter.ring()?.ok_or_else(|| Failure::usage("ring", "is missing"))?;
        // It makes no ring where there is none: that is for those who have limits to keep there.
        let until = tokio::time::Instant::now() + WITHIN;
        while ring.nodes().is_empty() {
            if tokio::time::Instant::now() >= until {
                let message = format!("no node that was given has a record of it, or none answered within {WITHIN:?}");
                return Err(Failure::usage("ring", message));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        match command {
            RingCommand::Show(_) => {}
            RingCommand::Add(RingNodeOptions { node, .. }) => ring.add(node).await?,
            RingCommand::Remove(RemoveOptions { node, lost: false, .. }) => ring.remove(node).await?,
            RingCommand::Remove(RemoveOptions { node, .. }) => ring.remove_lost(node).await?,
            RingCommand::Settle(_) => ring.settle().await?,
        }
        Ok(RingReport::new(&ring))
    })
}

fn limiter(RingNodes(nodes): &RingNodes) -> Result<Limiter, Failure> {
    Ok(Limiter::builder().ring(nodes.iter().cloned()).build()?)
}

impl RingReport {
    fn new(ring: &Ring) -> Self {
        let node = |node: shardlimit::RingNode| Node {
            name: escape(node.name.as_bytes()),
            weight: node.weight,
            address: node.address,
            sentinels: node.has_sentinels,
        };
        let nodes = ring.nodes().into_iter().map(node).collect();
        Self { nodes, settled: ring.is_settled(), differs: ring.differs() }
    }
}

impl Report for RingReport {
    const COMMAND: &'static str = "ring";

    fn exit(&self) -> Exit {
        Exit::Success
    }

    fn text(&self, style: Style) -> String {
        let row = |node: &Node| {
            let address = node.address.clone().unwrap_or_else(|| "not known".into());
            let found = if node.sentinels { "by Sentinels" } else { "" };
            [node.name.clone(), node.weight.to_string(), address, found.to_owned()]
        };
        let columns = [("node", Align::Left), ("weight", Align::Right), ("address", Align::Left), ("", Align::Left)];
        let settled = if self.settled { "yes" } else { "no: `shardlimit ring settle` finishes the last change" };
        let given = if self.differs { "other nodes: the ring's own count" } else { "the same nodes" };
        let head = facts(style, &[("settled", settled.to_owned()), ("given", given.to_owned())]);
        let rows: Vec<_> = self.nodes.iter().map(row).collect();
        format!("{head}\n{}", grid(style, columns, &rows))
    }
}
