//! A proxy before a server that cuts connections at a chosen point of a request's way, holds its answers back, or kills who sent a
//! request.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::Failure;

/// Where a connection is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The server never sees the request.
    Before = 1,
    /// The server has run it, and its answer is dropped.
    After = 2,
    /// Half of the answer comes through.
    Inside = 3,
}

/// Relays one server's connections until it is dropped.
pub(crate) struct Proxy {
    pub port: u16,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// The next cut, as a number of [`Cut`]; 0: none.
    next: AtomicU8,
    cuts: AtomicU64,
    /// Milliseconds for which answers are held back.
    delay: AtomicU64,
    over: AtomicBool,
    /// For who connects from now on.
    trap: Mutex<Option<Arc<Trap>>>,
}

/// Kills a process with its so-manyeth script run, at whichever server: the request arrives, and its answer finds nobody.
pub(crate) struct Trap {
    process: Pid,
    at: u64,
    runs: AtomicU64,
}

/// One connection of a client with its own to the server.
struct Pair {
    client: TcpStream,
    server: TcpStream,
    /// Script runs that the server was sent and has not begun to answer.
    asked: AtomicBool,
    shared: Arc<Shared>,
    trap: Option<Arc<Trap>>,
}

impl Trap {
    pub(crate) fn new(process: Pid, at: u64) -> Self {
        Self { process, at, runs: AtomicU64::new(0) }
    }

    pub(crate) fn has_snapped(&self) -> bool {
        self.runs.load(Ordering::SeqCst) >= self.at
    }

    /// One more script run.
    fn count(&self) {
        if self.runs.fetch_add(1, Ordering::SeqCst) + 1 == self.at {
            // One that has ended by itself can't be killed.
            let _ = kill_process(self.process, Signal::KILL);
        }
    }
}

impl Proxy {
    /// Listens on a port that was found free, for a server that need not be there yet.
    pub(crate) fn start(listener: TcpListener, server: u16) -> Result<Self, Failure> {
        let port = listener.local_addr()?.port();
        let shared = Arc::<Shared>::default();
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if accepting.over.load(Ordering::Relaxed) {
                    return;
                }
                // A server that is not there: the client's connection closes.
                if let Ok(server) = TcpStream::connect(("127.0.0.1", server)) {
                    let _ = Pair::start(client, server, Arc::clone(&accepting));
                }
            }
        });
        Ok(Self { port, shared })
    }

    /// Cuts the next connection that gets to this point.
    pub(crate) fn cut_next(&self, cut: Cut) {
        self.shared.next.store(cut as u8, Ordering::Relaxed);
    }

    pub(crate) fn let_be(&self) {
        self.shared.next.store(0, Ordering::Relaxed);
    }

    /// Holds every answer back for so long.
    pub(crate) fn delay(&self, delay: Duration) {
        self.shared.delay.store(delay.as_millis() as u64, Ordering::Relaxed);
    }

    /// Sets a trap for whoever connects from now on, or none.
    pub(crate) fn set_trap(&self, trap: Option<&Arc<Trap>>) {
        *self.shared.trap.lock().unwrap_or_else(PoisonError::into_inner) = trap.cloned();
    }

    /// How many connections were cut.
    pub(crate) fn cuts(&self) -> u64 {
        self.shared.cuts.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl Pair {
    fn start(client: TcpStream, server: TcpStream, shared: Arc<Shared>) -> std::io::Result<()> {
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let trap = shared.trap.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let pair = Arc::new(Self { client, server, asked: AtomicBool::new(false), shared, trap });
        let (back, to_client) = (Arc::clone(&pair), Arc::clone(&pair));
        let (send, held) = channel();
        thread::spawn(move || {
            let _ = pair.relay_requests();
            pair.close();
        });
        thread::spawn(move || {
            // Closes when what is held back has been delivered.
            let _ = back.relay_replies(&send);
        });
        thread::spawn(move || {
            let _ = to_client.deliver(&held);
            to_client.close();
        });
        Ok(())
    }

    fn relay_requests(&self) -> std::io::Result<()> {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let length = (&self.client).read(&mut buffer)?;
            if length == 0 {
                return Ok(());
            }
            let runs_script = buffer[..length].windows(4).any(|word| word == b"EVAL");
            if runs_script && self.takes(Cut::Before) {
                return Ok(());
            }
            if let (true, Some(trap)) = (runs_script, &self.trap) {
                trap.count();
            }
            // Before it is sent: the answer may be here at once.
            self.asked.fetch_or(runs_script, Ordering::SeqCst);
            (&self.server).write_all(&buffer[..length])?;
        }
    }

    fn relay_replies(&self, send: &Sender<(Instant, Vec<u8>)>) -> std::io::Result<()> {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let length = (&self.server).read(&mut buffer)?;
            if length == 0 {
                return Ok(());
            }
            if self.asked.swap(false, Ordering::SeqCst) {
                if self.takes(Cut::After) {
                    return Ok(());
                }
                if self.takes(Cut::Inside) {
                    let _ = send.send((Instant::now(), buffer[..length / 2].to_vec()));
                    return Ok(());
                }
            }
            let due = Instant::now() + Duration::from_millis(self.shared.delay.load(Ordering::Relaxed));
            if send.send((due, buffer[..length].to_vec())).is_err() {
                return Ok(());
            }
        }
    }

    fn deliver(&self, held: &Receiver<(Instant, Vec<u8>)>) -> std::io::Result<()> {
        for (due, bytes) in held {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            (&self.client).write_all(&bytes)?;
        }
        Ok(())
    }

    /// Whether a cut is wanted here; it is this connection's then.
    fn takes(&self, cut: Cut) -> bool {
        let taken = self.shared.next.compare_exchange(cut as u8, 0, Ordering::SeqCst, Ordering::Relaxed).is_ok();
        self.shared.cuts.fetch_add(u64::from(taken), Ordering::Relaxed);
        taken
    }

    fn close(&self) {
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }
}
