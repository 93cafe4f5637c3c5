//! The commands that a server was sent, as its MONITOR shows them.

use std::time::Duration;

use redis::{Cmd, Connection, Value};

/// Reads along what comes to a server.
pub(crate) struct Monitor(Connection);

impl Monitor {
    pub(crate) fn new(mut connection: Connection) -> Self {
        connection.set_read_timeout(Some(Duration::from_secs(10))).expect("a socket");
        connection.send_packed_command(&redis::cmd("MONITOR").get_packed_command()).expect("a server");
        let answer = connection.recv_response().expect("a server");
        assert_eq!(answer, Value::Okay);
        Self(connection)
    }

    /// The next script run on this key, with all its arguments.
    pub(crate) fn next_run(&mut self, key: &[u8]) -> Cmd {
        loop {
            let Ok(Value::SimpleString(line)) = self.0.recv_response() else { panic!("no script run in 10 s") };
            let words = words(&line);
            // Name, sum, number of keys, key.
            let on_key = words.get(3).is_some_and(|word| word == key);
            if on_key && words[0].eq_ignore_ascii_case(b"EVALSHA") {
                let mut command = Cmd::new();
                for word in words {
                    command.arg(word);
                }
                return command;
            }
        }
    }
}

/// The words of a line, each in quotes and escaped as C does it.
fn words(line: &str) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let mut bytes = line.bytes();
    while bytes.by_ref().any(|byte| byte == b'"') {
        let mut word = Vec::new();
        loop {
            match bytes.next() {
                Some(b'"') | None => break,
                Some(b'\\') => word.push(unescape(&mut bytes)),
                Some(byte) => word.push(byte),
            }
        }
        words.push(word);
    }
    words
}

fn unescape(bytes: &mut impl Iterator<Item = u8>) -> u8 {
    match bytes.next().unwrap_or(b'\\') {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'a' => 7,
        b'b' => 8,
        b'x' => {
            let mut digit = || char::from(bytes.next().unwrap_or(b'0')).to_digit(16).unwrap_or(0);
            (digit() * 16 + digit()) as u8
        }
        byte => byte,
    }
}
