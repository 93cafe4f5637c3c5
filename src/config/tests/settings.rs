//! What stands in a file reaches the limiter.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::time::Duration;

use super::read;
use crate::breaker::BreakerSettings;
use crate::config::fields::KNOWN;
use crate::config::limits;
use crate::leases::Leases;
use crate::limiter::Limiter;
use crate::plan::Shards;
use crate::policy::FailurePolicy;
use crate::retries::{Backoff, Retries};
use crate::selector::{LeastLoaded, PowerOfTwo, RoundRobin};

/// The examples of the documentation.
fn examples() -> Vec<&'static str> {
    let pieces = include_str!("../../../docs/configuration.md").split("```toml\n").skip(1);
    pieces.map(|piece| piece.split("```").next().unwrap()).collect()
}

/// The example of the documentation has every setting, and each has another value than its default: so one that is not read, or
/// goes to another place, is seen.
#[test]
fn every_setting_reaches_the_builder() {
    let millis = Duration::from_millis;
    let config = read(examples()[0]).unwrap();
    let expected = Limiter::builder()
        .redis(["redis://gateway:p%40ss%2Fw%3Ard%3F%25@10.0.0.1:6379", "redis://10.0.0.2:6379"])
        .prefix("gateway-eu")
        .shards(Shards::Auto)
        .hot(2_000)
        .selector(LeastLoaded)
        .deadline(millis(20))
        .timeout(millis(200))
        .connections(2)
        .connect_timeout(millis(1_000))
        .reconnect(Backoff { first: millis(10), most: millis(1_000), multiplier: 1.5, jitter: 0.3 })
        .on_failure(FailurePolicy::Local { ratio: 0.8 })
        .gateways(12)
        .max_in_flight(10_000)
        .ceiling(millis(200))
        .max_keys(1_000_000)
        .watch_overshoot(8)
        .sample_allowed(0.001)
        .shadow(true)
        .breaker(BreakerSettings {
            error_ratio: 0.3,
            slow_ratio: 0.9,
            slow: Some(millis(100)),
            window: millis(2_000),
            least: 20,
            open: millis(100),
            longest_open: millis(1_000),
        })
        .retries(Retries {
            budget: 0.05,
            free: 5,
            backoff: Backoff { first: millis(2), most: millis(50), multiplier: 3.0, jitter: 0.2 },
        });
    assert_eq!(config.builder().told(), expected.told());

    let defaults: BTreeMap<_, _> = Limiter::builder().told().into_iter().collect();
    let told = config.builder().told();
    let elsewhere = ["ring", "tls"];
    for (setting, value) in told {
        assert!(KNOWN.contains(&setting), "{setting} can't be said in a file");
        assert_eq!(defaults[setting] == value, elsewhere.contains(&setting), "{setting}: {value}");
    }
    for known in KNOWN {
        assert!(known == "limits" || defaults.contains_key(known) || known == "tls", "{known} reaches no builder");
    }
    let ring = read("ring = [\"redis://10.0.0.1*2\", \"sentinel://10.0.0.8:26379/main\"]").unwrap();
    let expected = Limiter::builder().ring(["redis://10.0.0.1*2", "sentinel://10.0.0.8:26379/main"]);
    assert_eq!(ring.builder().told(), expected.told());
}

#[test]
fn every_setting_of_a_limit_is_read() {
    let config = read(examples()[0]).unwrap();
    let limits::LimitSettings { limit, shadow, revision, leases, on_failure, in_doubt: _ } = &config.limits["checkout"];
    let expected = Leases::new().horizon(Duration::from_millis(10)).ttl(Duration::from_millis(20)).within_burst();
    assert_eq!((limit.to_string().as_str(), *leases), ("token-bucket 500000/s burst 50000", Some(expected)));
    assert_eq!((*shadow, *revision, *on_failure), (None, None, None));
    let limits::LimitSettings { limit, shadow, revision, leases, on_failure, in_doubt: _ } = &config.limits["login"];
    assert_eq!((limit.to_string().as_str(), *leases), ("sliding-log 5/min", None));
    assert_eq!((*shadow, *revision, *on_failure), (Some(false), Some(7), Some(FailurePolicy::Closed)));
    for known in limits::KNOWN {
        assert!(examples()[0].contains(&format!("\n{known} = ")), "{known} is in no example");
    }
}

#[test]
fn words_stand_for_what_they_say() {
    let told = |text: &str, setting: &str| {
        let told = read(text).unwrap().builder().told();
        told.into_iter().find(|(name, _)| *name == setting).unwrap().1
    };
    let name = std::any::type_name::<PowerOfTwo>;
    assert_eq!(told("selector = \"power-of-two\"", "selector"), format!("{:?}", name()));
    let name = std::any::type_name::<RoundRobin>;
    assert_eq!(told("selector = \"round-robin\"", "selector"), format!("{:?}", name()));
    let six = format!("{:?}", Shards::Exactly(NonZeroU16::new(6).unwrap()));
    assert_eq!((told("shards = 6", "shards"), told("shards = \"6\"", "shards")), (six.clone(), six));
    let reconnect = |multiplier: &str| told(&format!("reconnect.multiplier = {multiplier}"), "reconnect");
    assert_eq!([reconnect("0x10"), reconnect("0b1_0000"), reconnect("1.6e1")], [(); 3].map(|()| reconnect("16")));
    for policy in ["open", "closed", "error", "local"] {
        let expected = format!("{:?}", policy.parse::<FailurePolicy>().unwrap());
        assert_eq!(told(&format!("on_failure = {policy:?}"), "on_failure"), expected);
    }
}

#[test]
fn variables_stand_for_urls_or_parts_of_them() {
    let urls = |text: &str| read(text).unwrap().builder().told()[3].1.clone();
    assert_eq!(urls("redis = [\"${REDIS_URL}\"]"), "Some([\"redis://u:hunter2@10.0.0.7:1\"])");
    assert_eq!(
        urls("redis = [\"redis://u:${REDIS_PASSWORD}@${HOST}:1\"]"),
        "Some([\"redis://u:p%40ss%2Fw%3Ard%3F%25@10.0.0.9:1\"])"
    );
}

/// With the feature `tls`: three files, of which two belong together.
#[cfg(feature = "tls")]
#[test]
fn certificates_are_read_from_files() {
    let folder = std::env::temp_dir().join(format!("shardlimit-config-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for name in ["authority.pem", "client.pem", "client-key.pem"] {
        std::fs::write(folder.join(name), name).unwrap();
    }
    let file = folder.join("limits.toml");
    std::fs::write(&file, examples()[1]).unwrap();
    let told = crate::Config::read(&file).unwrap().builder().told();
    std::fs::write(&file, examples()[1].replace("client_key", "# ")).unwrap();
    let half = crate::Config::read(&file).unwrap_err();
    std::fs::remove_dir_all(&folder).unwrap();
    let bytes = |text: &str| format!("{:?}", text.as_bytes());
    let expected =
        format!("Some({}) Some(({}, {}))", bytes("authority.pem"), bytes("client.pem"), bytes("client-key.pem"));
    assert_eq!(told.iter().find(|(name, _)| *name == "tls").unwrap().1, expected);
    assert!(half.to_string().contains("needs both") && half.to_string().contains("limits.toml"), "{half}");
    let missing = crate::Config::from_toml("tls.authority = \"/nowhere/a.pem\"").unwrap_err();
    assert!(missing.to_string().contains("/nowhere/a.pem"), "{missing}");
}
