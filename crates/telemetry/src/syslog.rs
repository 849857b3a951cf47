//! Sends lines to a syslog receiver, each as a message (RFC 5424). The transport is a Unix socket, UDP (RFC 5426), TCP
//! with octet counting (RFC 6587), or TLS (RFC 5425).
//!
//! An outage of a few seconds is bridged; in a longer one lines are dropped, and the receiver is tried now and then.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use logline::Timestamp;
use rustix::io::Errno;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::log::count_lines;
use crate::writer::{LogSink, Lost};

/// The longest time that a receiver may accept nothing.
pub(crate) const BLOCKED_MAX: Duration = Duration::from_secs(5);
/// The connect time-out for each address.
const CONNECT_MAX: Duration = Duration::from_secs(3);
/// How long lines wait for a receiver to return.
const BRIDGED: Duration = Duration::from_secs(4);
/// The first and the longest pause between two attempts.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));
/// Size of the pieces in which messages are written.
const PIECE_BYTES: usize = 16 * 1024;

/// A syslog receiver, and the header fields of messages.
#[derive(Clone)]
pub struct Syslog {
    pub receiver: Receiver,
    /// 0 to 23.
    pub facility: u8,
    /// 0 to 7.
    pub severity: u8,
    /// APP-NAME: 1 to 48 printable ASCII characters.
    pub app_name: String,
}

/// The transport to a syslog receiver.
#[derive(Clone)]
pub enum Receiver {
    /// A datagram socket of this machine, such as `/dev/log`.
    Unix(PathBuf),
    /// A datagram for each message.
    Udp {
        /// An address or a name.
        host: String,
        port: u16,
    },
    /// A stream, with TLS or without.
    Tcp {
        /// An address or a name.
        host: String,
        port: u16,
        tls: Option<SyslogTls>,
    },
}

/// The configuration of a TLS handshake, and the name that the receiver's certificate must contain.
pub type SyslogTls = (Arc<ClientConfig>, ServerName<'static>);

/// The connection to a receiver.
enum SyslogWire {
    Unix(UnixDatagram),
    Udp(UdpSocket),
    Tcp(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

/// The sink for a receiver.
pub(crate) struct SyslogSink {
    settings: Syslog,
    name: String,
    /// ` HOSTNAME APP-NAME PROCID MSGID SD `, which is constant.
    middle: Vec<u8>,
    timestamp: Timestamp,
    wire: Option<SyslogWire>,
    outage: Outage,
    message: Vec<u8>,
    piece: Vec<u8>,
    /// The ends of the messages in the piece.
    ends: Vec<usize>,
}

impl SyslogSink {
    pub(crate) fn new(settings: Syslog) -> Self {
        let name = match &settings.receiver {
            Receiver::Unix(path) => format!("syslog:{}", path.display()),
            Receiver::Udp { host, port } => format!("syslog:udp://{host}:{port}"),
            Receiver::Tcp { host, port, tls: None } => format!("syslog:tcp://{host}:{port}"),
            Receiver::Tcp { host, port, tls: Some(_) } => format!("syslog:tls://{host}:{port}"),
        };
        // RFC 5424 §6.2: HOSTNAME APP-NAME PROCID MSGID, and no structured data.
        let middle =
            format!(" {} {} {} access - ", host_name(), settings.app_name, std::process::id()).into_bytes();
        Self {
            settings,
            name,
            middle,
            timestamp: Timestamp::new(),
            wire: None,
            outage: Outage::default(),
            message: Vec::new(),
            piece: Vec::new(),
            ends: Vec::new(),
        }
    }

    /// Creates the message of a line (RFC 5424 §6).
    fn compose(&mut self, line: &[u8]) {
        let priority = u16::from(self.settings.facility) * 8 + u16::from(self.settings.severity);
        self.message.clear();
        // Writing to a Vec cannot fail.
        let _ = write!(self.message, "<{priority}>1 ");
        self.message.extend_from_slice(self.timestamp.rfc3339());
        let _ = write!(self.message, ".{:03}Z", self.timestamp.millisecond());
        self.message.extend_from_slice(&self.middle);
        self.message.extend_from_slice(line);
    }

    /// Sends one message per datagram. Only a message that is too long is lost, or one that a missing UDP receiver
    /// refuses.
    fn send_datagrams(&mut self, lines: &[u8]) -> Result<(), Lost> {
        let (mut rest, mut lost) = (lines, None::<Lost>);
        while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
            self.compose(&rest[..end]);
            let Self { settings, wire, outage, message, .. } = self;
            let sent = match settings.receiver {
                Receiver::Udp { .. } => send(settings, wire, message),
                _ => outage.bridge(|| send(settings, wire, message)),
            };
            if let Err(error) = sent {
                if !matches!(settings.receiver, Receiver::Udp { .. }) && !is_too_long(&error) {
                    let before = lost.as_ref().map_or(0, |lost| lost.lines);
                    return Err(Lost { lines: before + count_lines(rest), error });
                }
                lost = Some(Lost { lines: lost.as_ref().map_or(0, |lost| lost.lines) + 1, error });
            }
            rest = &rest[end + 1..];
        }
        lost.map_or(Ok(()), Err)
    }

    /// Sends messages one behind the other, each with its length in front (RFC 6587 §3.4.1, RFC 5425 §4.3).
    fn send_stream(&mut self, lines: &[u8]) -> Result<(), Lost> {
        let mut rest = lines;
        while !rest.is_empty() {
            let start = rest;
            self.piece.clear();
            self.ends.clear();
            while self.piece.len() < PIECE_BYTES
                && let Some(end) = rest.iter().position(|&byte| byte == b'\n')
            {
                self.compose(&rest[..end]);
                let _ = write!(self.piece, "{} ", self.message.len());
                self.piece.extend_from_slice(&self.message);
                self.ends.push(self.piece.len());
                rest = &rest[end + 1..];
            }
            if self.ends.is_empty() {
                break;
            }
            let Self { settings, wire, outage, piece, ends, .. } = self;
            let mut done = 0;
            let sent = outage.bridge(|| {
                put(settings, wire, &piece[done..]).map_err(|(written, error)| {
                    // Complete messages need not be sent again; a partial one ends with the connection.
                    let written = done + written;
                    done =
                        ends.iter().copied().take_while(|end| *end <= written).last().unwrap_or(0).max(done);
                    error
                })
            });
            if let Err(error) = sent {
                let gone = ends.iter().filter(|end| **end <= done).count() as u64;
                return Err(Lost { lines: count_lines(start) - gone, error });
            }
        }
        Ok(())
    }
}

impl LogSink for SyslogSink {
    fn name(&self) -> &str {
        &self.name
    }

    fn write(&mut self, lines: &[u8], now: SystemTime) -> Result<(), Lost> {
        self.timestamp.set(now);
        match self.settings.receiver {
            Receiver::Unix(_) | Receiver::Udp { .. } => self.send_datagrams(lines),
            Receiver::Tcp { .. } => self.send_stream(lines),
        }
    }
}

/// Sends a datagram. After a failure, the next one starts with a new connection.
fn send(settings: &Syslog, wire: &mut Option<SyslogWire>, message: &[u8]) -> io::Result<()> {
    let sent = match connected(settings, wire)? {
        SyslogWire::Unix(socket) => socket.send(message),
        SyslogWire::Udp(socket) => socket.send(message),
        SyslogWire::Tcp(_) | SyslogWire::Tls(_) => return Err(ErrorKind::Unsupported.into()),
    };
    sent.map(drop).inspect_err(|error| {
        if !is_too_long(error) {
            *wire = None;
        }
    })
}

/// Writes to the stream. A failure contains the number of bytes that certainly left, and ends the connection.
fn put(settings: &Syslog, wire: &mut Option<SyslogWire>, bytes: &[u8]) -> Result<(), (usize, io::Error)> {
    if wire.as_mut().is_some_and(is_closed) {
        *wire = None;
    }
    let mut written = 0;
    let sent = match connected(settings, wire) {
        Err(error) => Err(error),
        Ok(SyslogWire::Tcp(stream)) => write_counted(stream, bytes, &mut written),
        Ok(SyslogWire::Tls(stream)) => stream.write_all(bytes).and_then(|()| stream.flush()),
        Ok(SyslogWire::Unix(_) | SyslogWire::Udp(_)) => Err(ErrorKind::Unsupported.into()),
    };
    sent.map_err(|error| {
        *wire = None;
        (written, error)
    })
}

fn write_counted(stream: &mut TcpStream, bytes: &[u8], written: &mut usize) -> io::Result<()> {
    while *written < bytes.len() {
        match stream.write(&bytes[*written..]) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => *written += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether the receiver has closed the connection: later writes would be lost.
fn is_closed(wire: &mut SyslogWire) -> bool {
    let is_over = |read: io::Result<usize>| match read {
        Ok(count) => count == 0,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    };
    match wire {
        SyslogWire::Unix(_) | SyslogWire::Udp(_) => false,
        SyslogWire::Tcp(stream) => {
            // Syslog has no answers, so anything that the receiver sends is discarded.
            stream.set_nonblocking(true).is_err()
                || is_over(stream.read(&mut [0; 512]))
                || stream.set_nonblocking(false).is_err()
        }
        SyslogWire::Tls(stream) => {
            let StreamOwned { conn, sock } = stream.as_mut();
            sock.set_nonblocking(true).is_err()
                || is_over(conn.read_tls(sock))
                || conn.process_new_packets().map_or(true, |state| state.peer_has_closed())
                || is_over(conn.reader().read(&mut [0; 512]))
                || sock.set_nonblocking(false).is_err()
        }
    }
}

fn connected<'w>(settings: &Syslog, wire: &'w mut Option<SyslogWire>) -> io::Result<&'w mut SyslogWire> {
    if wire.is_none() {
        *wire = Some(connect(&settings.receiver)?);
    }
    wire.as_mut().ok_or_else(|| ErrorKind::NotConnected.into())
}

fn connect(receiver: &Receiver) -> io::Result<SyslogWire> {
    match receiver {
        Receiver::Unix(path) => {
            let socket = UnixDatagram::unbound()?;
            socket.set_write_timeout(Some(BLOCKED_MAX))?;
            socket.connect(path)?;
            Ok(SyslogWire::Unix(socket))
        }
        Receiver::Udp { host, port } => {
            let mut failure = io::Error::other("the name has no address");
            for address in (host.as_str(), *port).to_socket_addrs()? {
                let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
                match UdpSocket::bind(any).and_then(|socket| socket.connect(address).map(|()| socket)) {
                    Ok(socket) => return Ok(SyslogWire::Udp(socket)),
                    Err(error) => failure = error,
                }
            }
            Err(failure)
        }
        Receiver::Tcp { host, port, tls } => {
            let mut failure = io::Error::other("the name has no address");
            for address in (host.as_str(), *port).to_socket_addrs()? {
                match TcpStream::connect_timeout(&address, CONNECT_MAX) {
                    Ok(stream) => return secure(stream, tls.as_ref()),
                    Err(error) => failure = error,
                }
            }
            Err(failure)
        }
    }
}

fn secure(stream: TcpStream, tls: Option<&SyslogTls>) -> io::Result<SyslogWire> {
    stream.set_write_timeout(Some(BLOCKED_MAX))?;
    stream.set_read_timeout(Some(BLOCKED_MAX))?;
    // A receiver that disappeared is detected by missing acknowledgments.
    let unacknowledged_ms = BLOCKED_MAX.as_millis() as u32 * 4;
    rustix::net::sockopt::set_tcp_user_timeout(&stream, unacknowledged_ms)?;
    let Some((config, name)) = tls else { return Ok(SyslogWire::Tcp(stream)) };
    let connection = ClientConnection::new(Arc::clone(config), name.clone()).map_err(io::Error::other)?;
    let mut stream = StreamOwned::new(connection, stream);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(SyslogWire::Tls(Box::new(stream)))
}

pub(crate) fn is_too_long(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::MSGSIZE.raw_os_error())
}

/// Returns the name of this machine, or `-`. RFC 5424 §6: up to 255 printable characters of ASCII.
pub fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name: String = name.trim().chars().filter(char::is_ascii_graphic).take(255).collect();
    if name.is_empty() { "-".to_owned() } else { name }
}

/// How long a receiver has been failing, and when it is tried again.
#[derive(Default)]
pub(crate) struct Outage {
    since: Option<Since>,
}

struct Since {
    began: Instant,
    next: Instant,
    pause: Duration,
    reason: String,
}

impl Outage {
    /// Repeats an action until it succeeds, with growing pauses, but not for long. In a longer outage it fails at once,
    /// unless another attempt is due.
    pub(crate) fn bridge(&mut self, mut action: impl FnMut() -> io::Result<()>) -> io::Result<()> {
        loop {
            if let Some(since) = &self.since {
                let now = Instant::now();
                if now < since.next {
                    if since.next.duration_since(since.began) > BRIDGED {
                        return Err(io::Error::other(since.reason.clone()));
                    }
                    thread::sleep(since.next - now);
                }
            }
            let error = match action() {
                Ok(()) => {
                    self.since = None;
                    return Ok(());
                }
                Err(error) if is_too_long(&error) => return Err(error),
                Err(error) => error,
            };
            let now = Instant::now();
            let (began, pause) = self
                .since
                .as_ref()
                .map_or((now, PAUSES.0), |since| (since.began, (since.pause * 2).min(PAUSES.1)));
            self.since = Some(Since { began, next: now + pause, pause, reason: error.to_string() });
            if (now + pause).duration_since(began) > BRIDGED {
                return Err(error);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_of_a_moment_is_bridged_and_a_longer_one_is_not_waited_for() {
        let mut outage = Outage::default();
        let mut tries = 0;
        let action = || {
            tries += 1;
            if tries < 3 { Err(ErrorKind::ConnectionRefused.into()) } else { Ok(()) }
        };
        outage.bridge(action).expect("bridged");
        assert_eq!(tries, 3);
        assert!(outage.since.is_none());

        let now = Instant::now();
        let pause = Duration::from_secs(3600);
        let reason = "nobody is there".to_owned();
        outage.since = Some(Since { began: now, next: now + pause, pause, reason });
        let error = outage.bridge(|| panic!("it is not time to try")).expect_err("an outage");
        assert_eq!(error.to_string(), "nobody is there");
        let now = Instant::now();
        let long = BRIDGED + Duration::from_secs(1);
        if let Some(began) = now.checked_sub(long) {
            outage.since = Some(Since { began, next: now, pause, reason: String::new() });
            let error = outage.bridge(|| Err(ErrorKind::TimedOut.into())).expect_err("still an outage");
            assert_eq!(error.kind(), ErrorKind::TimedOut);
            assert_eq!(outage.since.as_ref().map(|since| since.pause), Some(PAUSES.1));
        }
    }
}
