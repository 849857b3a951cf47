//! Starts and stops an origin: binds addresses, starts threads. Dropping `Running` ends them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::num::NonZeroUsize;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use rustls::ServerConfig;
use socket2::{Domain, Socket, Type};
use tokio::sync::watch;

use crate::http3;
use crate::hub::Hub;
use crate::stats::{self, Counters, Stats};
use crate::tls::{self, OriginCertificate};
use crate::worker::{self, OriginListener};

/// Length of each listener's accept queue.
const BACKLOG: i32 = 4096;

/// The default suits a test: one worker, on a port that the kernel chooses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OriginOptions {
    /// Addresses to listen on, at least one. With port 0 the kernel chooses: see [`RunningOrigin::addresses`].
    pub listen: Vec<SocketAddr>,
    /// Number of threads, each with its own connections. `None`: one per CPU core that the process may use.
    pub workers: Option<NonZeroUsize>,
    /// Certificate for TLS on the addresses of `listen_tls`, or on all if there are none. `None`: plain TCP.
    pub certificate: Option<OriginCertificate>,
    /// Additional addresses, which accept only TLS.
    pub listen_tls: Vec<SocketAddr>,
    /// Whether addresses with TLS accept HTTP/3 as well, on the same UDP ports.
    pub http3: bool,
    /// IANA name of the only cipher suite. `None`: all safe ones.
    pub cipher: Option<String>,
    /// Whether HTTP/1.1 responses have `Connection: keep-alive`, too, if the connection is kept.
    pub says_keep_alive: bool,
    /// Number of requests that are processed at once, as by a thread pool; others wait. `None`: no limit.
    pub capacity: Option<NonZeroUsize>,
}

impl Default for OriginOptions {
    fn default() -> Self {
        Self {
            listen: vec![(Ipv4Addr::LOCALHOST, 0).into()],
            workers: Some(NonZeroUsize::MIN),
            certificate: None,
            listen_tls: Vec::new(),
            http3: false,
            cipher: None,
            says_keep_alive: false,
            capacity: None,
        }
    }
}

/// A running origin. Dropping it stops it and closes its connections.
#[must_use = "the origin stops when this is dropped"]
pub struct RunningOrigin {
    addresses: Vec<SocketAddr>,
    counters: Arc<[Counters]>,
    stop: watch::Sender<()>,
    threads: Vec<JoinHandle<()>>,
}

/// Starts an origin. It listens when this returns.
///
/// ```
/// use std::io::{Read, Write};
///
/// let running = origin::start(origin::OriginOptions::default())?;
/// let mut client = std::net::TcpStream::connect(running.addresses()[0])?;
/// client.write_all(b"GET /tiny HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")?;
/// let mut response = String::new();
/// client.read_to_string(&mut response)?;
/// assert!(response.starts_with("HTTP/1.1 200 OK\r\n"));
/// assert_eq!(running.stats().requests, 1);
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
/// An address that cannot be listened on or a certificate that cannot be used (the message names it), or a thread that
/// the system does not give.
pub fn start(options: OriginOptions) -> io::Result<RunningOrigin> {
    if options.listen.is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "no address to listen on: name at least one",
        ));
    }
    let tls = options.certificate.as_ref().map(|certificate| {
        let all = options.listen.iter().chain(&options.listen_tls);
        let addresses: Vec<IpAddr> = all.map(SocketAddr::ip).collect();
        tls::config(certificate, &addresses, options.cipher.as_deref())
    });
    let tls = tls.transpose()?;
    if tls.is_none() && !options.listen_tls.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "TLS without a certificate: give one"));
    }
    if options.http3 && tls.is_none() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "HTTP/3 without a certificate: it is always encrypted; give one",
        ));
    }
    let quic = tls.as_deref().filter(|_| options.http3).map(http3::config).transpose()?;
    let everywhere = options.listen_tls.is_empty();
    let workers = options.workers.map_or_else(thread::available_parallelism, Ok)?.get();
    let (mut addresses, mut listeners) = (Vec::new(), Vec::new());
    listeners.resize_with(workers, Vec::new);
    let plain = options.listen.into_iter().map(|wanted| (wanted, tls.clone().filter(|_| everywhere)));
    let encrypted = options.listen_tls.into_iter().map(|wanted| (wanted, tls.clone()));
    for (wanted, tls) in plain.chain(encrypted) {
        let bound = bind_all(wanted, &mut listeners, tls.as_ref(), quic.as_ref())
            .map_err(|error| explain(wanted, &error))?;
        addresses.push(bound);
    }

    let counters: Arc<[Counters]> = (0..workers).map(|_| Counters::default()).collect();
    let hub = Arc::new(Hub::new(options.capacity));
    let (stop, stopped) = watch::channel(());
    let mut running = RunningOrigin { addresses, counters: Arc::clone(&counters), stop, threads: Vec::new() };
    let (ready, answers) = mpsc::channel();
    for (index, listeners) in listeners.into_iter().enumerate() {
        let (counters, stopped, ready) = (Arc::clone(&counters), stopped.clone(), ready.clone());
        let (hub, says_keep_alive) = (Arc::clone(&hub), options.says_keep_alive);
        let body = move || worker::run(listeners, says_keep_alive, counters, hub, index, stopped, &ready);
        running.threads.push(thread::Builder::new().name(format!("origin-{index}")).spawn(body)?);
    }
    for _ in 0..workers {
        answers.recv().map_err(io::Error::other)??;
    }
    Ok(running)
}

impl RunningOrigin {
    /// The listening addresses with actual ports: those of `Options::listen`, then of `Options::listen_tls`.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The counters since the start or the last reset.
    #[must_use]
    pub fn stats(&self) -> Stats {
        stats::sum(&self.counters)
    }

    pub fn reset_stats(&self) {
        stats::reset(&self.counters);
    }

    /// Stops accepting and closes every connection at once. Returns after all threads have ended.
    pub fn stop(self) {}
}

impl Drop for RunningOrigin {
    fn drop(&mut self) {
        // An error means that the threads have ended already.
        let _ = self.stop.send(());
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn explain(wanted: SocketAddr, error: &io::Error) -> io::Error {
    let remedy = match error.kind() {
        io::ErrorKind::AddrInUse => "; stop what listens there, or choose another port (0: any that is free)",
        io::ErrorKind::AddrNotAvailable => "; choose an address of this machine, such as 127.0.0.1",
        io::ErrorKind::PermissionDenied => "; choose a port above 1023",
        _ => "",
    };
    io::Error::new(error.kind(), format!("cannot listen on {wanted}: {error}{remedy}"))
}

/// Number of attempts to find a port that is free for both TCP and UDP.
const PORTS_TRIED: usize = 16;

/// Binds one listener for each worker, all to one address.
fn bind_all(
    wanted: SocketAddr,
    listeners: &mut [Vec<OriginListener>],
    tls: Option<&Arc<ServerConfig>>,
    quic: Option<&Arc<quinn_proto::ServerConfig>>,
) -> io::Result<SocketAddr> {
    let quic = quic.filter(|_| tls.is_some());
    // With SO_REUSEPORT alone the kernel would let two origins share a port, each with half of the requests.
    if wanted.port() != 0 {
        bind(wanted, Type::STREAM, false)?;
        if quic.is_some() {
            bind(wanted, Type::DGRAM, false)?;
        }
    }
    let (first, udp) = bind_first(wanted, quic.is_some())?;
    let address = first.local_addr()?;
    let mut bound = Some((first, udp));
    for own in listeners {
        let (tcp, udp) = match bound.take() {
            Some(first) => first,
            None => bind_both(address, quic.is_some())?,
        };
        own.push(OriginListener { tcp, tls: tls.cloned(), udp: udp.zip(quic.cloned()) });
    }
    Ok(address)
}

/// Binds the sockets of the first worker. A port that the kernel chooses must be free for UDP as well.
fn bind_first(wanted: SocketAddr, has_udp: bool) -> io::Result<(TcpListener, Option<UdpSocket>)> {
    for _ in 0..PORTS_TRIED {
        match bind_both(wanted, has_udp) {
            Err(error) if wanted.port() == 0 && error.kind() == io::ErrorKind::AddrInUse => {}
            bound => return bound,
        }
    }
    bind_both(wanted, has_udp)
}

fn bind_both(wanted: SocketAddr, has_udp: bool) -> io::Result<(TcpListener, Option<UdpSocket>)> {
    let socket = bind(wanted, Type::STREAM, true)?;
    // Linux copies this option to every accepted connection, which saves a system call for each.
    socket.set_tcp_nodelay(true)?;
    socket.listen(BACKLOG)?;
    let tcp = TcpListener::from(socket);
    let address = tcp.local_addr()?;
    let udp = has_udp.then(|| bind(address, Type::DGRAM, true).map(UdpSocket::from)).transpose()?;
    Ok((tcp, udp))
}

fn bind(address: SocketAddr, kind: Type, shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), kind.nonblocking(), None)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    // With UDP it would let several processes share a port.
    socket.set_reuse_address(kind == Type::STREAM)?;
    socket.set_reuse_port(shared)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_in_use_is_said() {
        let running = start(OriginOptions::default()).expect("starts");
        let listen = vec![running.addresses()[0]];
        let error = start(OriginOptions { listen: listen.clone(), ..OriginOptions::default() })
            .err()
            .expect("the port is taken");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(error.to_string().contains(&listen[0].to_string()), "{error}");
        running.stop();
        start(OriginOptions { listen, ..OriginOptions::default() }).expect("the port is free again").stop();
    }

    #[test]
    fn several_addresses_and_workers() {
        let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let workers = NonZeroUsize::new(3);
        let running =
            start(OriginOptions { listen: vec![local, local], workers, ..OriginOptions::default() })
                .expect("starts");
        let [first, second] = running.addresses() else { panic!("two addresses") };
        assert_ne!(first.port(), second.port());
        assert!(start(OriginOptions { listen: vec![], ..OriginOptions::default() }).is_err());
    }
}
