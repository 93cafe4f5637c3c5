//! A network of our own: each server and each process that calls in a namespace, all on one bridge, in a world that ends
//! with this program.
//!
//! ```text
//!   n0   n1   n2      c0   c1            a namespace each, 10.77.0.x
//!    |    |    |       |    |
//!  ==+====+====+==...==+====+==  left    where this program is, too
//!  ===========================  right   an island: who is moved here can't reach the left
//! ```

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use crate::Failure;

/// Set in the world that the program made for itself.
const INSIDE: &str = "SHARDLIMIT_FAULTS_WORLD";
/// Every server has an address of its own, so all have the usual port.
pub(crate) const PORT: u16 = 6_379;

/// The namespaces by name.
pub(crate) struct Network {
    names: Vec<String>,
}

/// One of the two bridges.
#[derive(Clone, Copy)]
pub(crate) enum Side {
    Left,
    Right,
}

/// Goes on in namespaces of its own, for network, mounts and processes: whatever is made there is gone when the program is.
/// It returns only if it can't, or if it is there already.
pub(crate) fn enter_own_world() -> Result<(), Failure> {
    if std::env::var_os(INSIDE).is_some() {
        return Ok(());
    }
    let error = Command::new("unshare")
        .args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private"])
        .arg("--")
        .arg(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env(INSIDE, "1")
        .exec();
    Err(Failure::new(format!("unshare: {error}; faults of networks need root and util-linux")))
}

/// Once, before the first network. Loopback is down in a new world.
pub(crate) fn settle() -> Result<(), Failure> {
    run("mkdir", "-p /run/netns")?;
    run("mount", "-t tmpfs tmpfs /run/netns")?;
    run("ip", "link set lo up")?;
    for side in ["left", "right"] {
        run("ip", &format!("link add {side} type bridge"))?;
        run("ip", &format!("link set {side} up"))?;
    }
    run("ip", "address add 10.77.0.254/24 dev left")
}

impl Network {
    pub(crate) fn new(servers: usize, callers: usize) -> Result<Self, Failure> {
        let names = (0..servers).map(server).chain((0..callers).map(caller));
        let mut network = Self { names: Vec::new() };
        for name in names {
            run("ip", &format!("netns add {name}"))?;
            network.names.push(name.clone());
            run("ip", &format!("link add {name} type veth peer name eth0 netns {name}"))?;
            run("ip", &format!("link set {name} master left up"))?;
            run("ip", &format!("-n {name} address add {}/24 dev eth0", address(&name)))?;
            run("ip", &format!("-n {name} link set eth0 up"))?;
            run("ip", &format!("-n {name} link set lo up"))?;
        }
        Ok(network)
    }

    /// Takes effect at once, both ways.
    pub(crate) fn move_to(&self, name: &str, side: Side) -> Result<(), Failure> {
        let side = match side {
            Side::Left => "left",
            Side::Right => "right",
        };
        self.check(name)?;
        run("ip", &format!("link set {name} master {side}"))
    }

    /// A firewall at `name` that drops what matches, in `INPUT` or `OUTPUT`.
    pub(crate) fn drop_at(&self, name: &str, what: &str) -> Result<(), Failure> {
        self.check(name)?;
        run("ip", &format!("netns exec {name} iptables -A {what} -j DROP"))
    }

    /// Nothing is dropped there any more.
    pub(crate) fn heal(&self, name: &str) -> Result<(), Failure> {
        self.check(name)?;
        run("ip", &format!("netns exec {name} iptables -F"))
    }

    /// Nothing is done to namespaces of others.
    fn check(&self, name: &str) -> Result<(), Failure> {
        let known = self.names.iter().any(|own| own == name);
        if known { Ok(()) } else { Err(Failure::new(format!("there is no namespace {name}"))) }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = run("ip", &format!("link del {name}"));
            let _ = run("ip", &format!("netns del {name}"));
        }
    }
}

pub(crate) fn server(index: usize) -> String {
    format!("n{index}")
}

pub(crate) fn caller(index: usize) -> String {
    format!("c{index}")
}

pub(crate) fn address(name: &str) -> String {
    let (kind, index) = name.split_at(1);
    let base = if kind == "n" { 1 } else { 101 };
    format!("10.77.0.{}", base + index.parse::<u16>().unwrap_or_default())
}

fn run(program: &str, arguments: &str) -> Result<(), Failure> {
    let output = Command::new(program).args(arguments.split(' ')).stdin(Stdio::null()).output();
    let output = output.map_err(|error| Failure::new(format!("{program}: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let told = String::from_utf8_lossy(&output.stderr);
    Err(Failure::new(format!("{program} {arguments}: {}", told.trim())))
}
