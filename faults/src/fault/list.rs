//! All of them, in the order in which they run.

use super::{Extra, Fault, Needs, Place, failover, net, process, proxied, server, slots};

const NOTHING: Needs = Needs::only(Place::Loopback);
const PROXIES: Needs = Needs::only(Place::Proxied);
const CLOCK: Needs = Needs::only(Place::Lied);
const NETWORK: Needs = Needs::only(Place::Network);
const REPLICAS: Needs = Needs { replicas: true, ..NOTHING };

macro_rules! faults {
    ($($name:literal, $about:literal, $needs:expr, $extra:ident, $inject:expr;)*) => {
        &[$(Fault { name: $name, about: $about, needs: $needs, extra: Extra::$extra, inject: $inject }),*]
    };
}

/// Every fault.
pub(crate) const ALL: &[Fault] = faults![
    "kill-one", "kill -9 of a master that holds a share", NOTHING, LostCharges, process::kill_one;
    "kill-home", "kill -9 of home's master", NOTHING, LostCharges, process::kill_home;
    "kill-two", "kill -9 of two masters", NOTHING, LostCharges, process::kill_two;
    "kill-all", "kill -9 of all masters", NOTHING, LostCharges, process::kill_all;
    "stop", "SIGSTOP of a master for 10 s", NOTHING, LostCharges, process::stop;
    "failover", "failover by command, of a share's master and of home's", REPLICAS, None, failover::by_command;
    "lag", "a replica is promoted that lacks the last 300 ms", Needs { replicas: true, ..NETWORK }, LostCharges, failover::with_lag;
    "partition", "a master and a client on an island", NETWORK, Minority, net::partition;
    "partition-home", "home's master and a client on an island", NETWORK, Minority, net::partition_home;
    "partition-out", "nothing that a master sends arrives", NETWORK, Minority, net::no_outgoing;
    "partition-in", "nothing that a master is sent arrives", NETWORK, Minority, net::no_incoming;
    "latency", "100 ms more for all that a master answers", PROXIES, Beside, proxied::latency;
    "loss", "5 % of the packets to and from one master are lost", NETWORK, Beside, net::loss;
    "script-flush", "SCRIPT FLUSH everywhere every 100 ms", NOTHING, None, server::script_flush;
    "migrate", "the key's slots move back and forth", NOTHING, None, slots::back_and_forth;
    "kill-migrating", "kill -9 of a master whose slot is on its way", NOTHING, LostCharges, slots::kill_source;
    "maxmemory", "a master has no memory left", NOTHING, None, server::out_of_memory;
    "evict", "a master evicts all keys", NOTHING, None, server::evict;
    "clock-forward", "a master's clock 30 s ahead, and back", CLOCK, Clock, server::clock_forward;
    "clock-back", "a master's clock 30 s behind, and back", CLOCK, Clock, server::clock_back;
    "cut-before", "a connection is cut every 50 ms, its request undelivered", PROXIES, MomentsLost, proxied::before;
    "cut-after", "the same, its request delivered and run", PROXIES, Moments, proxied::after;
    "cut-inside", "the same, in the middle of its reply", PROXIES, Moments, proxied::inside;
    "client-kill", "CLIENT KILL everywhere every 50 ms", NOTHING, MomentsLost, server::client_kill;
    "client-pause", "CLIENT PAUSE of a master for 3 s", NOTHING, Beside, server::client_pause;
    "idle", "servers close what is idle for 1 s; calls come in pulses", Needs { silence: true, ..NOTHING }, None, server::idle;
    "flushall", "FLUSHALL of a master that holds a share", NOTHING, None, server::flush_share;
    "flushall-home", "FLUSHALL of home's master", NOTHING, None, server::flush_home;
    "rolling-restart", "every node is restarted, one after the other", NOTHING, LostCharges, process::rolling_restart;
];
