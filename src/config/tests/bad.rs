//! What can't be is told with its place, and without a password.

use super::read;
use crate::error::ErrorKind;

/// The text, the field of the error, and what its message has to have.
const BAD: [(&str, &str, &[&str]); 13] = [
    ("x = ", "config", &["is no TOML", "line 1"]),
    ("prefix = \"a\"\nprefix = \"b\"", "config", &["is no TOML", "duplicate", "line 2"]),
    ("\n\ntiemout = 1", "config", &["\"tiemout\" is not known here", "max_keys", "tiemout, line 3"]),
    ("[limits.login]\nlimit = \"5/min\"\nburst = 5", "config", &["limits.login.burst, line 3", "shadow"]),
    ("prefix = 5", "prefix", &["must be text", "there is a whole number", "prefix, line 1"]),
    ("prefix = \"a{b}\"", "prefix", &["without braces", "prefix, line 1"]),
    ("max_keys = -1", "max_keys", &["not negative", "line 1"]),
    ("max_keys = 0", "max_keys", &["at least 1", "max_keys, line 1"]),
    ("shadow = \"yes\"", "shadow", &["must be true or false", "there is a text"]),
    ("limits = [1]", "limits", &["must be a table", "there is a list"]),
    ("[limits.login]\nshadow = true", "limits", &["has no `limit`", "limits.login, line 1"]),
    ("[limits.login]\nlimit = \"5 per minute\"", "algorithm", &["\"5\" is not known", "limits.login.limit, line 2"]),
    ("[limits.\"a b\"]\nlimit = \"5/min\"", "name", &["visible ASCII", "limits.a b, line 1"]),
];

#[cfg(feature = "redis")]
const BAD_OF_STORES: [(&str, &str, &[&str]); 25] = [
    ("timeout = 50", "timeout", &["a number and a unit", "\"50ms\"", "there is a whole number"]),
    ("timeout = \"50 parsecs\"", "timeout", &["got \"50 parsecs\"", "timeout, line 1"]),
    ("timeout = \"0s\"", "timeout", &["longer than 0", "timeout, line 1"]),
    ("connect_timeout = \"2h\"", "connect_timeout", &["at most 3600s", "connect_timeout, line 1"]),
    ("deadline = \"2h\"", "deadline", &["deadline, line 1"]),
    ("ceiling = \"2h\"", "ceiling", &["ceiling, line 1"]),
    ("connections = 17", "connections", &["from 1 to 16", "connections, line 1"]),
    ("gateways = 4294967296", "gateways", &["too large"]),
    ("hot = 0", "hot", &["at least 1", "line 1"]),
    ("max_in_flight = 0", "max_in_flight", &["line 1"]),
    ("sample_allowed = 1.5", "sample_allowed", &["from 0 to 1", "line 1"]),
    ("shards = 0", "shards", &["per-master", "line 1"]),
    ("shards = -3", "shards", &["must be a whole number that is not negative", "line 1"]),
    ("shards = \"many\"", "shards", &["per-master", "line 1"]),
    ("selector = \"best\"", "selector", &["least-loaded", "line 1"]),
    ("on_failure = \"local:2\"", "on_failure", &["at most 1", "line 1"]),
    ("\n[breaker]\nerror_ratio = 2", "breaker", &["error_ratio must be above 0", "breaker, line 2"]),
    ("[breaker]\nslowness = \"1s\"", "config", &["breaker.slowness, line 2", "longest_open"]),
    ("reconnect = { first = \"0s\" }", "reconnect", &["first wait", "line 1"]),
    ("retries = { budget = -1 }", "retries", &["budget", "line 1"]),
    ("redis = []", "redis", &["at least one URL", "line 1"]),
    ("redis = [\"h:1\"]\nring = [\"h:1\"]", "ring", &["give one of them", "ring, line 2"]),
    ("limits.a.limit = \"9/s\"\nlimits.a.leases.ttl = \"20s\"", "ttl", &["at most 10s", "limits.a, line"]),
    ("limits.a = { limit = \"9/s\", leases = {}, revision = 1 }", "limits", &["both leases and a revision"]),
    ("limits.a = { limit = \"9/s\", revision = 9007199254740992 }", "revision", &["limits.a.revision, line 1"]),
];

#[test]
fn bad_input_is_told_with_its_place() {
    let all = BAD.iter();
    #[cfg(feature = "redis")]
    let all = all.chain(&BAD_OF_STORES);
    for (text, field, parts) in all {
        let error = read(text).unwrap_err();
        let shown = error.to_string();
        assert_eq!(error.field(), *field, "{text:?}: {error}");
        assert!(parts.iter().all(|part| shown.contains(part)), "{text:?}: {error}");
        assert!(shown.lines().count() == 1 && !shown.chars().any(char::is_control), "{error}");
    }
}

#[cfg(not(feature = "redis"))]
#[test]
fn settings_of_shared_stores_need_a_feature() {
    for text in ["redis = [\"h:1\"]", "timeout = \"1s\"", "on_failure = \"open\"", "limits.a.revision = 1"] {
        let error = read(text).unwrap_err();
        assert!(error.kind() == ErrorKind::InvalidSetting && error.to_string().contains("feature `redis`"), "{error}");
    }
}

/// A file may be checked by another program than the one that goes by it.
#[cfg(all(feature = "redis", not(feature = "tls")))]
#[test]
fn tls_needs_a_feature() {
    for text in ["redis = [\"rediss://h:1\"]", "ring = [\"rediss://h:1\"]", "tls.authority = \"a.pem\""] {
        let error = read(text).unwrap_err().to_string();
        assert!(error.contains("this program is built without") && error.contains("feature `tls`"), "{error}");
    }
}

/// A password, wherever it stands by mistake, and however wrong the text is around it.
#[cfg(feature = "redis")]
#[test]
fn no_password_is_shown() {
    const URL: &str = "redis://user:hunter2@10.0.0.1:6379";
    let mut texts = vec![
        format!("redis = {URL:?}"),
        format!("redis = [{URL:?}"),
        format!("redis = [{URL}]"),
        format!("redis = [\"{URL}]"),
        format!("redis = [\"{URL}:x\"]"),
        "redis = [\"http://user:hunter2@h\"]".into(),
        "redis = [\"redis://user:hunter2/@h\"]".into(),
        format!("redis = [{URL:?}, \"rediss://user:hunter2@h\"]"),
        format!("redis = [{URL:?}]\ntimeout = 5"),
        format!("redis = [\"{URL}${{MISSING}}\"]"),
        format!("ring = [\"{URL}*900\"]"),
        format!("ring = [\"{URL}\", \"{URL}\"]"),
        format!("redis = {{ url = {URL:?} }}"),
        format!("{URL:?} = 1"),
        format!("limits.{URL:?}.limit = \"5/min\""),
        format!("limits.a.limit = {URL:?}"),
        format!("{URL} = 1"),
    ];
    texts.extend(crate::config::fields::KNOWN.map(|field| format!("{field} = {URL:?}")));
    texts.extend(crate::config::fields::KNOWN.map(|field| format!("{field} = [{URL:?}, 1]")));
    for text in texts {
        let error = read(&text).expect_err(&text);
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{text}: {error}");
    }
    for text in [format!("redis = [{URL:?}]"), "redis = [\"${REDIS_URL}\"]".into(), format!("ring = [{URL:?}]")] {
        let config = read(&text).unwrap();
        let shown = format!("{config:?} {config:#?} {:?}", config.builder());
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}

#[cfg(feature = "redis")]
#[test]
fn variables_that_are_none_are_named() {
    for (text, part) in [
        ("redis://u:${MISSING}@h", "takes MISSING from the environment"),
        ("redis://u:${NOTHING}@h", "takes NOTHING from the environment, and that is empty"),
        ("redis://u:${REDIS_PASSWORD@h", "without the }"),
        ("redis://u:${}@h", "between ${ and }"),
        ("redis://u:${A-B}@h", "between ${ and }"),
    ] {
        let error = read(&format!("redis = [{text:?}]")).unwrap_err();
        assert!(error.kind() == ErrorKind::InvalidSetting && error.to_string().contains(part), "{error}");
        assert!(error.to_string().contains("redis[0], line 1"), "{error}");
    }
}
