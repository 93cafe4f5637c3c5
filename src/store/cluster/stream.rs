//! A stream under the connection that ends it when a server sends too much, too slowly, or what nobody asked for.

use std::io;
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use super::scanner::Scanner;
use crate::sync::Arc;
use crate::sync::atomic::AtomicBool;

/// So many requests may be without an answer on one connection. The crate keeps a place for each until its answer comes, also
/// when its caller has long gone: some 250 bytes.
const WAITING: u64 = 50_000;

/// Bytes go through as they are, without a copy.
pub(super) struct Guarded<S> {
    stream: S,
    requests: Scanner,
    replies: Scanner,
    terms: Arc<Terms>,
    /// The longest from a reply's first byte to its last.
    patience: Duration,
    /// When the reply that is half read began to be.
    since: Option<Instant>,
    /// Ends the wait for the rest of it. Most replies come in one piece, and no timer is made.
    late: Option<Pin<Box<Sleep>>>,
}

/// What the stream and those who use the connection tell each other.
#[derive(Default)]
pub(super) struct Terms {
    /// Set by whoever asks for a description of the cluster: one reply may be large.
    pub(super) large: AtomicBool,
    /// Why the stream ended the connection: the crate tells only one of its callers.
    pub(super) ended: OnceLock<Box<str>>,
}

impl Terms {
    /// An error of a kind that the crate takes for the end of the connection.
    fn end(&self, why: &str) -> io::Error {
        io::Error::new(io::ErrorKind::ConnectionAborted, &**self.ended.get_or_init(|| why.into()))
    }
}

impl<S> Guarded<S> {
    pub(super) fn new(stream: S, terms: Arc<Terms>, patience: Duration) -> Self {
        let (requests, replies) = (Scanner::of_requests(), Scanner::of_replies());
        Self { stream, requests, replies, terms, patience, since: None, late: None }
    }

    /// Counts what was read.
    fn count_reply(&mut self, bytes: &[u8]) -> io::Result<()> {
        let before = self.replies.ended();
        self.replies.read(bytes, &self.terms.large).map_err(|excess| self.terms.end(&excess.to_string()))?;
        // A server that has no room for us says so before it is asked.
        let is_farewell = self.replies.ended() == 1 && self.replies.was_error();
        if self.replies.answers() > self.requests.ended() && !is_farewell {
            return Err(self.terms.end("the server sent a reply that nobody asked for"));
        }
        if self.replies.is_between() {
            (self.since, self.late) = (None, None);
        } else if self.since.is_none() || self.replies.ended() != before {
            (self.since, self.late) = (Some(Instant::now()), None);
        }
        Ok(())
    }

    /// Counts what was written.
    fn count_request(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.requests.read(bytes, &self.terms.large).map_err(|excess| self.terms.end(&excess.to_string()))?;
        if self.requests.ended().saturating_sub(self.replies.answers()) > WAITING {
            return Err(self.terms.end("the server left too many requests without an answer"));
        }
        Ok(())
    }

    /// Whether the reply that is half read has taken too long. Wakes the caller when it has.
    fn is_late(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(since) = self.since else { return false };
        let late = self.late.get_or_insert_with(|| Box::pin(sleep_until(since + self.patience)));
        late.as_mut().poll(cx).is_ready()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(cx, buffer);
        if read.is_pending() && this.is_late(cx) {
            let why = format!("the server took longer than {:?} for one reply", this.patience);
            return Poll::Ready(Err(this.terms.end(&why)));
        }
        ready!(read)?;
        Poll::Ready(this.count_reply(&buffer.filled()[before..]))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.stream).poll_write(cx, bytes))?;
        Poll::Ready(this.count_request(&bytes[..written]).map(|()| written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
