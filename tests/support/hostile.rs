//! A server that speaks for a real one until it is told to do otherwise.
#![allow(dead_code, unreachable_pub)]

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::server::Server;

/// A request: the words of a command.
pub type Words = Vec<Vec<u8>>;

/// What becomes of a request.
pub enum Act {
    /// The real server answers.
    Honest,
    /// The real server answers, and this is said instead of its words.
    Instead(Box<dyn FnOnce(Vec<u8>) -> Vec<u8>>),
    /// It was answered already; with an error the connection ends.
    Done(io::Result<()>),
}

type Attack = Arc<dyn Fn(&Words, &mut TcpStream) -> Act + Send + Sync>;

struct State {
    port: u16,
    /// Of the real one.
    real: u16,
    attack: Mutex<Attack>,
    opened: AtomicUsize,
    closed: AtomicUsize,
}

pub struct Hostile {
    state: Arc<State>,
    /// Not with the state: threads that wait for connections hold on to that, and a test that ends does not wait for them.
    _real: Server,
}

impl Hostile {
    /// The topology it tells of is itself alone, with every slot.
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let real = Server::start(&[]);
        let state = Arc::new(State {
            port: listener.local_addr().unwrap().port(),
            real: real.port,
            attack: Mutex::new(Arc::new(|_, _| Act::Honest)),
            opened: AtomicUsize::new(0),
            closed: AtomicUsize::new(0),
        });
        let serving = Arc::clone(&state);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let state = Arc::clone(&serving);
                std::thread::spawn(move || {
                    state.opened.fetch_add(1, Ordering::SeqCst);
                    let _ = state.serve(client);
                    state.closed.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        Self { state, _real: real }
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.state.port)
    }

    pub fn port(&self) -> u16 {
        self.state.port
    }

    /// From now on, also on connections that are open.
    pub fn attack(&self, attack: impl Fn(&Words, &mut TcpStream) -> Act + Send + Sync + 'static) {
        *self.state.attack.lock().unwrap() = Arc::new(attack);
    }

    pub fn relent(&self) {
        self.attack(|_, _| Act::Honest);
    }

    /// Connections that came, and those of them that have ended.
    pub fn connections(&self) -> (usize, usize) {
        (self.state.opened.load(Ordering::SeqCst), self.state.closed.load(Ordering::SeqCst))
    }
}

impl State {
    fn serve(&self, mut client: TcpStream) -> io::Result<()> {
        client.set_nodelay(true)?;
        let mut requests = BufReader::new(client.try_clone()?);
        let mut real = TcpStream::connect(("127.0.0.1", self.real))?;
        let mut replies = BufReader::new(real.try_clone()?);
        loop {
            let mut frame = Vec::new();
            let words = read_request(&mut requests, &mut frame)?;
            let attack = Arc::clone(&self.attack.lock().unwrap());
            let act = attack(&words, &mut client);
            if let Act::Done(done) = act {
                done?;
                continue;
            }
            let reply = match (words[0].as_slice(), words.get(1).map(Vec::as_slice)) {
                (b"CLUSTER", Some(b"SLOTS")) => slots(self.port, [(0, 16_383)]),
                (b"CLUSTER", Some(b"INFO")) => bulk("cluster_state:ok\r\ncluster_current_epoch:1\r\n"),
                _ => {
                    real.write_all(&frame)?;
                    let mut reply = Vec::new();
                    read_reply(&mut replies, &mut reply)?;
                    reply
                }
            };
            client.write_all(&if let Act::Instead(change) = act { change(reply) } else { reply })?;
        }
    }
}

pub fn bulk(text: &str) -> Vec<u8> {
    format!("${}\r\n{text}\r\n", text.len()).into_bytes()
}

/// The answer to CLUSTER SLOTS: these ranges, all of one master with two replicas.
pub fn slots(port: u16, ranges: impl IntoIterator<Item = (u16, u16)>) -> Vec<u8> {
    let ranges: Vec<_> = ranges.into_iter().collect();
    let mut reply = format!("*{}\r\n", ranges.len()).into_bytes();
    for (first, last) in ranges {
        reply.extend(format!("*5\r\n:{first}\r\n:{last}\r\n").bytes());
        for node in ["a", "b", "c"] {
            let id = node.repeat(40);
            reply.extend(format!("*4\r\n$9\r\n127.0.0.1\r\n:{port}\r\n$40\r\n{id}\r\n*2\r\n").bytes());
            reply.extend([bulk("hostname"), bulk(&format!("redis-{node}.example.com"))].concat());
        }
    }
    reply
}

fn line(from: &mut impl BufRead, frame: &mut Vec<u8>) -> io::Result<(u8, i64)> {
    let start = frame.len();
    if from.read_until(b'\n', frame)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let text = std::str::from_utf8(&frame[start + 1..]).unwrap_or_default();
    Ok((frame[start], text.trim_end().parse().unwrap_or(0)))
}

fn bytes(from: &mut impl Read, frame: &mut Vec<u8>, length: i64) -> io::Result<Vec<u8>> {
    let start = frame.len();
    frame.resize(start + length as usize + 2, 0);
    from.read_exact(&mut frame[start..])?;
    Ok(frame[start..start + length as usize].to_vec())
}

fn read_request(from: &mut impl BufRead, frame: &mut Vec<u8>) -> io::Result<Words> {
    let (_, count) = line(from, frame)?;
    let mut words = Words::new();
    for _ in 0..count {
        let (_, length) = line(from, frame)?;
        words.push(bytes(from, frame, length)?);
    }
    Ok(words)
}

fn read_reply(from: &mut impl BufRead, frame: &mut Vec<u8>) -> io::Result<()> {
    let (kind, length) = line(from, frame)?;
    match kind {
        b'$' if length >= 0 => drop(bytes(from, frame, length)?),
        b'*' | b'%' => {
            for _ in 0..length * if kind == b'%' { 2 } else { 1 } {
                read_reply(from, frame)?;
            }
        }
        _ => {}
    }
    Ok(())
}
