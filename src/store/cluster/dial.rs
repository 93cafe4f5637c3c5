//! Opening a connection: name, socket, TLS, log-in.

use std::fmt::Display;
use std::io;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::socket2::{SockRef, TcpKeepalive};
use redis::{AsyncConnectionConfig, RedisConnectionInfo, RedisError, RedisResult};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::task::{AbortHandle, JoinSet};

use super::fault::Address;
use super::stream::{Guarded, Terms};
#[cfg(feature = "tls")]
use super::tls::Tls;
use crate::said::said_without;
use crate::sync::Arc;
use crate::sync::atomic::Ordering;

/// An idle connection is tried so often: whatever lies between forgets none that is in use, and one that was cut is noticed
/// before a call needs it.
const KEEP_ALIVE: TcpKeepalive =
    TcpKeepalive::new().with_time(Duration::from_secs(15)).with_interval(Duration::from_secs(5));

/// How to reach one server.
#[derive(Clone)]
pub(crate) struct Dial {
    pub(super) address: Address,
    /// User and password.
    pub(super) redis: RedisConnectionInfo,
    #[cfg(feature = "tls")]
    pub(super) tls: Option<Tls>,
    /// How long bytes may be on their way unseen, and a reply may take from its first to its last.
    pub(super) patience: Duration,
}

/// A connection with the task that serves it, which ends when this is dropped.
pub(super) struct Opened {
    pub(super) connection: MultiplexedConnection,
    terms: Arc<Terms>,
    task: AbortHandle,
}

impl Dial {
    /// # Cancel safety
    /// The connection is closed.
    pub(super) async fn open(&self, config: AsyncConnectionConfig) -> RedisResult<Opened> {
        let socket = self.connect().await?;
        socket.set_nodelay(true)?;
        let options = SockRef::from(&socket);
        options.set_tcp_keepalive(&KEEP_ALIVE)?;
        // A connection that was cut in silence is given up when what was sent on it is not even received.
        #[cfg(target_os = "linux")]
        options.set_tcp_user_timeout(Some(self.patience))?;
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            return self.log_in(tls.shake_hands(&self.address.host, socket).await?, config).await;
        }
        self.log_in(socket, config).await
    }

    /// Why it could not be opened: servers that do not know HELLO repeat the words that came with it.
    pub(super) fn explain(&self, error: &RedisError) -> String {
        let text = error.to_string();
        self.said(&text.split(", with args").next().unwrap_or_default())
    }

    /// What a server said, without the password.
    pub(super) fn said(&self, words: &dyn Display) -> String {
        said_without(self.redis.password().unwrap_or_default(), words)
    }

    /// To the first address of the name that answers.
    async fn connect(&self) -> io::Result<TcpStream> {
        let Address { host, port } = &self.address;
        let mut attempts = JoinSet::new();
        for address in lookup_host((&**host, *port)).await? {
            attempts.spawn(TcpStream::connect(address));
        }
        let mut failure = io::Error::new(io::ErrorKind::NotFound, "the name leads to no address");
        while let Some(attempt) = attempts.join_next().await {
            match attempt.map_err(io::Error::other).flatten() {
                Ok(socket) => return Ok(socket),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    async fn log_in<S>(&self, stream: S, config: AsyncConnectionConfig) -> RedisResult<Opened>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let terms = Arc::<Terms>::default();
        let stream = Guarded::new(stream, Arc::clone(&terms), self.patience);
        let (connection, task) = MultiplexedConnection::new_with_config(&self.redis, stream, config).await?;
        Ok(Opened { connection, terms, task: tokio::spawn(task).abort_handle() })
    }
}

impl Opened {
    /// Whether one of the next replies may be a description of the cluster.
    pub(super) fn expect_large(&self, expected: bool) {
        self.terms.large.store(expected, Ordering::Relaxed);
    }

    /// What an error on this connection means: why it was ended, if we ended it.
    pub(super) fn explain(&self, error: RedisError) -> RedisError {
        match self.terms.ended.get() {
            Some(why) if error.is_unrecoverable_error() => {
                io::Error::new(io::ErrorKind::ConnectionAborted, &**why).into()
            }
            _ => error,
        }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.task.abort();
    }
}
