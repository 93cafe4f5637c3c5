//! Whatever a key holds and a server says, nothing but text reaches the terminal.

#[path = "../../tests/support/hostile.rs"]
mod hostile;
#[path = "../../tests/support/server.rs"]
#[allow(dead_code, unreachable_pub)]
mod server;
mod support;

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStringExt;

use hostile::{Act, Hostile, bulk};
use server::Server;
use support::{Answer, run};

/// Every byte that an argument can have.
fn nasty_key() -> OsString {
    OsString::from_vec((1..=255).collect())
}

fn assert_only_text(what: &str, answer: &Answer) {
    for text in [&answer.stdout, &answer.stderr] {
        let acts = |c: &char| c.is_control() && *c != '\n' || ('\u{202a}'..='\u{202e}').contains(c);
        assert_eq!(text.chars().find(acts), None, "{what}: {text:?}");
    }
}

#[test]
fn keys_of_every_byte() {
    let server = Server::start(&[]);
    let url = format!("redis://127.0.0.1:{}", server.port);
    for command in [&["acquire"][..], &["plan"], &["limit", "get"]] {
        for form in [&[][..], &["--json"]] {
            let mut arguments: Vec<OsString> = command.iter().map(OsString::from).collect();
            arguments.push(nasty_key());
            arguments.extend(["--limit", "100/s", "--redis", &url].map(OsString::from));
            arguments.extend(form.iter().map(OsString::from));
            let answer = run(arguments);
            assert_eq!(answer.code, Some(0), "{command:?}: {}", answer.stderr);
            assert!(answer.stdout.contains("\\x1b"), "{command:?}: {}", answer.stdout);
            assert_only_text(&format!("{command:?}"), &answer);
        }
    }
}

#[test]
fn servers_that_say_anything() {
    const WORDS: &str = "\x1b]0;title\x07\x1b[2J\u{202e}\u{9b}";
    let server = Hostile::start();
    let commands: [&[&str]; 4] = [
        &["acquire", "k", "--limit", "9/s"],
        &["plan", "k", "--limit", "9/s"],
        &["doctor"],
        &["limit", "get", "k", "--limit", "9/s"],
    ];
    let look = |what: &str| {
        for command in commands {
            for form in [&[][..], &["--json"]] {
                let answer = run([command, &["--redis", &server.url()], form].concat());
                assert_only_text(&format!("{what}, {command:?}"), &answer);
            }
        }
    };
    server.attack(|_, to| Act::Done(to.write_all(format!("-ERR {WORDS}\r\n").as_bytes())));
    look("errors");
    for code in ["MOVED 1", "ASK 1", "NOPERM", "CLUSTERDOWN", WORDS] {
        server.attack(move |words, to| match words[0].as_slice() {
            b"EVAL" | b"EVALSHA" => Act::Done(to.write_all(format!("-{code} {WORDS}:7\r\n").as_bytes())),
            _ => Act::Honest,
        });
        look(code);
    }
    // What describes a server.
    server.attack(|words, to| match words[0].as_slice() {
        b"INFO" => {
            let info = format!("redis_version:{WORDS}\r\nmaxmemory:1\r\nmaxmemory_policy:{WORDS}\r\nrole:master\r\n");
            Act::Done(to.write_all(&bulk(&info)))
        }
        b"CONFIG" | b"ACL" => Act::Done(to.write_all(&bulk(WORDS))),
        b"CLUSTER" if words[1] != b"INFO" => {
            Act::Done(to.write_all(&bulk(&format!("{WORDS} {WORDS}:7@8 master - 0 0 1 connected 0-16383\n"))))
        }
        _ => Act::Honest,
    });
    look("descriptions");
}
