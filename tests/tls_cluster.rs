//! A cluster whose nodes speak TLS, and ask their clients who they are.
#![cfg(feature = "tls")]

#[path = "support/papers.rs"]
mod papers;
#[path = "support/shared.rs"]
mod shared;

use papers::{Folder, Papers};
use redis::cmd;
use shardlimit::Limiter;
use shared::server::Port;
use shared::{BURST, SPLIT, Server, candid, eventually, server, take_all};

/// Nodes that know each other by their TLS ports; each has a plain one too, for the test alone.
struct TlsCluster {
    nodes: Vec<Server>,
    ports: Vec<Port>,
}

impl TlsCluster {
    fn start(papers: &Papers, folder: &Folder) -> Self {
        let files = papers.files(&folder.0);
        let (nodes, ports): (Vec<Server>, Vec<Port>) = (0..3).map(|_| Self::node(&files)).unzip();
        let cluster = Self { nodes, ports };
        let ranges = [(0, 5_460), (5_461, 10_922), (10_923, 16_383)];
        for (index, (first, last)) in ranges.into_iter().enumerate() {
            cluster.ask(index, &["SET-CONFIG-EPOCH", &(index + 1).to_string()]);
            cluster.ask(index, &["ADDSLOTSRANGE", &first.to_string(), &last.to_string()]);
        }
        for port in &cluster.ports[1..] {
            cluster.ask(0, &["MEET", "127.0.0.1", &port.number.to_string()]);
        }
        cluster
    }

    fn node(files: &[String]) -> (Server, Port) {
        let port = Port::take();
        let text = port.number.to_string();
        let mut options = vec!["--cluster-enabled", "yes", "--tls-cluster", "yes", "--tls-port", &text];
        options.extend(files.iter().map(String::as_str));
        (Server::start(&options), port)
    }

    fn ask(&self, node: usize, words: &[&str]) -> String {
        let reply: redis::Value = cmd("CLUSTER").arg(words).query(&mut self.nodes[node].connection()).unwrap();
        redis::from_redis_value(reply).unwrap()
    }

    fn is_up(&self) -> bool {
        (0..3).all(|node| {
            let info = self.ask(node, &["INFO"]);
            info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:3")
        })
    }
}

/// Every node by its own certificate, found through the first: the plan has a shard on each, and all of the limit can be had.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_node_of_a_cluster_shows_its_papers() {
    rustls::crypto::ring::default_provider().install_default().unwrap();
    let (folder, papers) = (Folder::new("tls-cluster"), Papers::new());
    let cluster = TlsCluster::start(&papers, &folder);
    eventually("the nodes agree", async || cluster.is_up()).await;
    let builder = candid(Limiter::builder().redis([format!("rediss://localhost:{}", cluster.ports[0].number)]))
        .tls_authority(papers.authority)
        .tls_client(papers.certificate, papers.key);
    let limit = builder.build().unwrap().define("api", SPLIT[0].parse().unwrap()).unwrap();
    let plan = limit.plan("hot").await.unwrap();
    let mut on: Vec<u16> = plan.shards.iter().filter_map(|shard| Some(shard.master.as_ref()?.port)).collect();
    let mut ports: Vec<u16> = cluster.ports.iter().map(|port| port.number).collect();
    on.sort_unstable();
    ports.sort_unstable();
    assert_eq!(on, ports);
    assert_eq!(take_all(&limit, "hot").await, BURST);
}
