//! A stream under the connection that ends it when a reply takes too much memory or too long.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use super::scanner::Scanner;
use crate::sync::Arc;
use crate::sync::atomic::AtomicBool;

/// Bytes go through as they are, without a copy.
pub(super) struct Guarded<S> {
    stream: S,
    scanner: Scanner,
    /// Set by whoever asks for a description of the cluster: one reply may be large.
    large: Arc<AtomicBool>,
    /// The longest from a reply's first byte to its last.
    patience: Duration,
    /// When the reply that is half read began to be.
    since: Option<Instant>,
    /// Ends the wait for the rest of it. Most replies come in one piece, and no timer is made.
    late: Option<Pin<Box<Sleep>>>,
}

impl<S> Guarded<S> {
    pub(super) fn new(stream: S, large: Arc<AtomicBool>, patience: Duration) -> Self {
        Self { stream, scanner: Scanner::default(), large, patience, since: None, late: None }
    }

    /// Counts what was read.
    fn count(&mut self, bytes: &[u8]) -> io::Result<()> {
        let before = self.scanner.ended();
        self.scanner.read(bytes, &self.large).map_err(|excess| ended(&excess.to_string()))?;
        if self.scanner.is_between() {
            (self.since, self.late) = (None, None);
        } else if self.since.is_none() || self.scanner.ended() != before {
            (self.since, self.late) = (Some(Instant::now()), None);
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

/// Of a kind that the crate takes for the end of the connection.
fn ended(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, why)
}

impl<S: AsyncRead + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(cx, buffer);
        if read.is_pending() && this.is_late(cx) {
            let why = format!("the server took longer than {:?} for one reply", this.patience);
            return Poll::Ready(Err(ended(&why)));
        }
        ready!(read)?;
        Poll::Ready(this.count(&buffer.filled()[before..]))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
