//! What the user of the URL may not do.

use redis::Value;

use crate::node::Node;

/// Something that the limiter does.
struct Need {
    /// As ACL rules name it.
    name: &'static str,
    words: Vec<String>,
    optional: bool,
    /// Not harmless when really run.
    dry_only: bool,
}

/// Something that the limiter does and this user may not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Missing {
    pub name: String,
    /// The rule that would permit it.
    pub rule: String,
    /// Limits work without.
    pub optional: bool,
}

/// Also harmless when really run: a script that nobody has, a SET that needs an old value.
fn needs(key: &str) -> Vec<Need> {
    let need = |name, words: &[&str], optional| Need {
        name,
        words: words.iter().map(|word| (*word).to_owned()).collect(),
        optional,
        dry_only: name == "PFADD",
    };
    let nobodys = "0".repeat(40);
    vec![
        need("EVALSHA", &["EVALSHA", &nobodys, "0"], false),
        need("EVAL", &["EVAL", "return 1", "0"], false),
        need("SCRIPT|LOAD", &["SCRIPT", "LOAD", "return 1"], false),
        need("CLUSTER|SLOTS", &["CLUSTER", "SLOTS"], false),
        need("CLUSTER|INFO", &["CLUSTER", "INFO"], false),
        need("TIME", &["TIME"], false),
        need("ASKING", &["ASKING"], false),
        // The limiter never sends it: for this command's own round trips, and to take back what ASKING says about the next one.
        need("PING", &["PING"], true),
        need("HELLO", &["HELLO"], false),
        // These run inside scripts, as this user.
        need("GET", &["GET", key], false),
        need("SET", &["SET", key, "", "XX", "PX", "1"], false),
        need("PTTL", &["PTTL", key], false),
        // Only counters of distinct values need these.
        need("PEXPIRE", &["PEXPIRE", key, "1"], true),
        need("ZADD", &["ZADD", key, "XX", "0", ""], true),
        need("ZCOUNT", &["ZCOUNT", key, "0", "0"], true),
        need("ZRANGE", &["ZRANGE", key, "0", "0"], true),
        need("ZREMRANGEBYSCORE", &["ZREMRANGEBYSCORE", key, "0", "0"], true),
        need("PFADD", &["PFADD", key], true),
    ]
}

/// By ACL DRYRUN where there is one and the user may, else by really doing it.
pub(super) fn missing(node: &mut Node, limit_name: &str) -> Vec<Missing> {
    let key = format!("shardlimit:{{doctor}}:{limit_name}:doctor");
    let user: Option<String> = node.ask(&["ACL", "WHOAMI"]).ok();
    let user = user.filter(|user| node.ask::<String>(&["ACL", "DRYRUN", user, "PING"]).is_ok());
    let mut missing: Vec<Missing> = Vec::new();
    for need in needs(&key) {
        let words: Vec<&str> = need.words.iter().map(String::as_str).collect();
        let denial = match &user {
            Some(user) => dry_run(node, user, &words),
            None if need.dry_only => None,
            None => real_run(node, &words),
        };
        let Some(denial) = denial else { continue };
        let found = name_denial(&denial, &need);
        if !missing.contains(&found) {
            missing.push(found);
        }
    }
    missing
}

/// A denial is text. An error is a command that this version does not have: nobody is denied it.
fn dry_run(node: &mut Node, user: &str, words: &[&str]) -> Option<String> {
    let answer: String = node.ask(&[&["ACL", "DRYRUN", user], words].concat()).ok()?;
    (answer != "OK").then_some(answer)
}

fn real_run(node: &mut Node, words: &[&str]) -> Option<String> {
    let error = node.ask::<Value>(words).err()?;
    (error.code() == Some("NOPERM")).then(|| error.to_string())
}

/// "… no permissions to run the 'get' command" or "… to access the 'x' key", "… one of the keys".
fn name_denial(denial: &str, need: &Need) -> Missing {
    if denial.contains(" key") {
        return Missing { name: "~shardlimit:*".into(), rule: "~shardlimit:*".into(), optional: false };
    }
    Missing { name: need.name.into(), rule: format!("+{}", need.name.to_lowercase()), optional: need.optional }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denied_key_is_not_a_denied_command() {
        let need = &needs("k")[0];
        for denial in [
            "This user has no permissions to access the 'k' key",
            "NOPERM: this user has no permissions to access one of the keys used as arguments",
            "NOPERM No permissions to access a key",
        ] {
            assert_eq!(name_denial(denial, need).name, "~shardlimit:*");
        }
        let denied = name_denial("This user has no permissions to run the 'evalsha' command", need);
        assert_eq!((denied.name.as_str(), denied.rule.as_str()), ("EVALSHA", "+evalsha"));
    }
}
