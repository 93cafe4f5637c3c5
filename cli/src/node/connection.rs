//! One connection to one server.

use std::time::Duration;

use redis::{Client, Connection, ConnectionAddr, ConnectionInfo, FromRedisValue, IntoConnectionInfo, RedisResult};

/// A server in order answers in milliseconds, also from far away; and people wait for the answer.
const PATIENCE: Duration = Duration::from_secs(2);

pub(crate) struct Node(Connection);

impl Node {
    pub(crate) fn connect(info: ConnectionInfo) -> RedisResult<Self> {
        let connection = Client::open(info)?.get_connection_with_timeout(PATIENCE)?;
        connection.set_read_timeout(Some(PATIENCE))?;
        connection.set_write_timeout(Some(PATIENCE))?;
        Ok(Self(connection))
    }

    /// To a server on this machine.
    pub(crate) fn connect_local(port: u16) -> RedisResult<Self> {
        Self::connect(ConnectionAddr::Tcp("127.0.0.1".into(), port).into_connection_info()?)
    }

    pub(crate) fn ask<T: FromRedisValue>(&mut self, words: &[&str]) -> RedisResult<T> {
        let mut command = redis::Cmd::new();
        command.arg(words);
        command.query(&mut self.0)
    }
}

/// A field of what INFO or CLUSTER INFO answers.
pub(crate) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let info = "# Memory\r\nmaxmemory_policy:noeviction\r\nmaxmemory:0\r\n";
        assert_eq!(field(info, "maxmemory"), Some("0"));
        assert_eq!(field(info, "maxmemory_policy"), Some("noeviction"));
        assert_eq!(field(info, "memory"), None);
    }
}
