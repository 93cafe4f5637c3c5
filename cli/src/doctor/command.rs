//! The way of one examination: who is there, what each says, what is wrong with it.

use std::thread;
use std::time::Instant;

use redis::{ConnectionAddr, ConnectionInfo};

use super::diagnosis::{Diagnosis, Master, Replica};
use super::probe::{Facts, Patient, connect};
use super::report::DoctorReport;
use super::topology::View;
use crate::error::Failure;
use crate::node::Seen;
use crate::options::DoctorOptions;
use crate::redis_url::{RedisUrl, RedisUrls, address};
use crate::store;

/// One of the URLs, and what it led to.
struct Entry {
    address: String,
    info: ConnectionInfo,
    view: Result<Option<View>, String>,
}

/// A server to look at.
struct Member {
    seen: Seen,
    info: ConnectionInfo,
}

pub(crate) fn run(options: &DoctorOptions) -> Result<DoctorReport, Failure> {
    // Refuses a name that no limit could have.
    store::Store::embedded().define(&options.name, "1/s".parse()?)?;
    let RedisUrls(urls) = options.redis.redis.as_ref().ok_or_else(|| Failure::usage("redis", "is missing"))?;
    let infos = urls.iter().map(connection_info).collect::<Result<Vec<_>, _>>()?;
    let entries = in_parallel(&infos, enter);
    if entries.iter().all(|entry| entry.view.is_err()) {
        let why = entries.iter().filter_map(|entry| Some(format!("{}: {}", entry.address, entry.view.as_ref().err()?)));
        let why: Vec<String> = why.collect();
        return Err(Failure::server("redis", format!("nothing answers: {}", why.join("; "))));
    }
    let (mut members, mut diagnosis) = members(entries);
    // The same order for everybody, whichever node was asked.
    members.sort_by_key(|member| member.seen.slots.first().map_or(u16::MAX, |range| *range.start()));
    let mut patients = in_parallel(&members, |member| {
        let name = member.seen.replica_of.is_none().then_some(options.name.as_str());
        Patient::examine(member.info.clone(), name)
    });
    let start = Instant::now();
    for (member, patient) in members.into_iter().zip(&mut patients) {
        let Member { seen, .. } = member;
        if let (Ok(patient), None) = (patient.as_mut(), &seen.replica_of) {
            patient.measure(start);
        }
        let facts = patient.as_ref().map(|patient| patient.facts.clone()).map_err(Clone::clone);
        place(&mut diagnosis, seen, facts);
    }
    Ok(DoctorReport::new(&diagnosis))
}

fn connection_info(url: &RedisUrl) -> Result<ConnectionInfo, Failure> {
    if url.is_tls() {
        let message = format!("{}: rediss:// needs TLS, which this build does not have", url.address());
        return Err(Failure::usage("redis", message));
    }
    let info: Result<ConnectionInfo, _> = url.as_str().parse();
    info.map_err(|_| Failure::usage("redis", format!("{} can't be used", url.address())))
}

/// Servers that don't answer take their time-outs side by side.
fn in_parallel<T: Sync, R: Send>(of: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    thread::scope(|scope| {
        let threads: Vec<_> = of.iter().map(|one| scope.spawn(|| work(one))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no examination panics")).collect()
    })
}

fn enter(info: &ConnectionInfo) -> Entry {
    let (host, port) = host_and_port(info);
    let view = connect(info.clone()).and_then(|mut node| View::ask(&mut node, &host, port));
    Entry { address: address(&host, port), info: info.clone(), view }
}

fn host_and_port(info: &ConnectionInfo) -> (String, u16) {
    match info.addr() {
        ConnectionAddr::Tcp(host, port) => (host.clone(), *port),
        other => (other.to_string(), 0),
    }
}

/// Whom to look at, and a diagnosis that knows nothing of them yet. A cluster is what its newest view says; single
/// servers are the URLs themselves.
fn members(entries: Vec<Entry>) -> (Vec<Member>, Diagnosis) {
    let cluster = entries.iter().any(|entry| matches!(entry.view, Ok(Some(_))));
    let mut diagnosis = Diagnosis { cluster, blind: false, masters: vec![], replicas: vec![], odd_urls: vec![] };
    if !cluster {
        let member = |entry: Entry| {
            let (host, port) = host_and_port(&entry.info);
            Member { seen: Seen::master(String::new(), &host, port), info: entry.info }
        };
        return (entries.into_iter().map(member).collect(), diagnosis);
    }
    let mut newest: Option<(View, ConnectionInfo)> = None;
    for entry in entries {
        match entry.view {
            Ok(Some(view)) if newest.as_ref().is_none_or(|(newest, _)| newest.epoch < view.epoch) => {
                newest = Some((view, entry.info));
            }
            Ok(Some(_)) => {}
            Ok(None) => diagnosis.odd_urls.push((entry.address, "it is not a cluster".into())),
            Err(why) => diagnosis.odd_urls.push((entry.address, why)),
        }
    }
    let (view, info) = newest.expect("one of them is a cluster");
    diagnosis.blind = view.blind;
    // A member's own trouble is told as that.
    let known: Vec<String> = view.members.iter().map(|seen| address(&seen.host, seen.port)).collect();
    diagnosis.odd_urls.retain(|(address, _)| !known.contains(address));
    let member = |seen: Seen| {
        let info = info.clone().set_addr(ConnectionAddr::Tcp(seen.host.clone(), seen.port));
        Member { seen, info }
    };
    (view.members.into_iter().map(member).collect(), diagnosis)
}

fn place(diagnosis: &mut Diagnosis, seen: Seen, facts: Result<Facts, String>) {
    let Seen { id, host, port, replica_of, failed, slots, .. } = seen;
    let address = address(&host, port);
    if let Some(master) = replica_of {
        diagnosis.replicas.push(Replica { id, address, master, facts });
        return;
    }
    let id = (!id.is_empty()).then_some(id);
    diagnosis.masters.push(Master { id, address, slots, failed, facts });
}
