//! Worker thread: runtime, listeners, connections, spare buffers, fixed pages, date. Workers share only the counters.

use std::cell::{Cell, RefCell};
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use rustls::ServerConfig;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::watch;
use tokio::task::spawn_local;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::buffer::Spare;
use crate::connection::{FROM_FILE_BYTES_MIN, OriginConnection};
use crate::endpoint::page::SizedPage;
use crate::http3;
use crate::hub::Hub;
use crate::socket::ClientSocket;
use crate::stats::Counters;

/// The fixed pages that are sent from memory, by path.
pub(crate) const FAST_PAGES: [(&str, SizedPage); 5] = [
    ("/tiny", SizedPage::Pattern { bytes: 128 }),
    ("/small", SizedPage::Pattern { bytes: 3269 }),
    ("/medium", SizedPage::Pattern { bytes: 11_268 }),
    ("/large", SizedPage::Pattern { bytes: 165_854 }),
    ("/hello.html", SizedPage::Hello),
];

/// Further connections of a worker are closed at once.
const CONNECTIONS_MAX: u64 = 100_000;

const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// Pause after accept fails, for example without file descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The sockets of an address.
pub(crate) struct OriginListener {
    pub(crate) tcp: TcpListener,
    /// `None` without TLS.
    pub(crate) tls: Option<Arc<ServerConfig>>,
    /// Socket and configuration for HTTP/3.
    pub(crate) udp: Option<(UdpSocket, Arc<quinn_proto::ServerConfig>)>,
}

/// A [`Listener`] within the runtime.
struct Accepting {
    tcp: tokio::net::TcpListener,
    tls: Option<Arc<ServerConfig>>,
    udp: Option<(UdpSocket, Arc<quinn_proto::ServerConfig>)>,
}

/// In the format of HTTP.
pub(crate) type Date = [u8; 29];

/// State that the connections of one thread share.
pub(crate) struct OriginWorker {
    /// Whether HTTP/1.1 responses have `Connection: keep-alive`.
    pub(crate) says_keep_alive: bool,
    pub(crate) all_counters: Arc<[Counters]>,
    pub(crate) hub: Arc<Hub>,
    index: usize,
    pub(crate) spare: RefCell<Spare>,
    pages: RefCell<Vec<RenderedPage>>,
    /// The fixed pages of HTTP/3 that were requested since the date last changed.
    http3_pages: RefCell<[Option<Http3Page>; FAST_PAGES.len()]>,
    pub(crate) date: Cell<Date>,
    /// Seconds since the start: a cheap clock for idle timeouts.
    pub(crate) second: Cell<u64>,
    connections: Cell<u64>,
}

/// A fixed page to send: head and body in one piece, or a head and the length of a body from the pattern's file.
#[derive(Clone)]
pub(crate) struct FastPage {
    pub(crate) bytes: Rc<Vec<u8>>,
    pub(crate) head_length: usize,
    pub(crate) from_file_bytes: u64,
}

/// A fixed page as frames of HTTP/3.
#[derive(Clone)]
pub(crate) struct Http3Page {
    /// HEADERS, and the head of DATA.
    pub(crate) front: Bytes,
    pub(crate) head: Bytes,
    pub(crate) content: Bytes,
}

struct RenderedPage {
    page: FastPage,
    date_offset: usize,
}

/// Serves from `listeners` until `stopped`. Reports on `ready` that it serves, or why it cannot.
pub(crate) fn run(
    listeners: Vec<OriginListener>,
    says_keep_alive: bool,
    all_counters: Arc<[Counters]>,
    hub: Arc<Hub>,
    index: usize,
    mut stopped: watch::Receiver<()>,
    ready: &mpsc::Sender<io::Result<()>>,
) {
    let (runtime, listeners) = match prepare(listeners) {
        Ok(prepared) => prepared,
        Err(error) => return drop(ready.send(Err(error))),
    };
    // An error means that the receiver, which waits for this message, has gone.
    let _ = ready.send(Ok(()));
    runtime.block_on(async move {
        let worker = Rc::new(OriginWorker::new(says_keep_alive, all_counters, hub, index));
        spawn_local(keep_time(Rc::clone(&worker)));
        for Accepting { tcp, tls, udp } in listeners {
            if let Some((socket, config)) = udp {
                spawn_local(http3::serve(Rc::clone(&worker), socket, config));
            }
            spawn_local(accept(Rc::clone(&worker), tcp, tls.map(TlsAcceptor::from)));
        }
        // A sender that is gone stops the worker, too.
        let _ = stopped.changed().await;
    });
    // Dropping the runtime drops its tasks, which closes the connections.
}

fn prepare(listeners: Vec<OriginListener>) -> io::Result<(LocalRuntime, Vec<Accepting>)> {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
    let entered = runtime.enter();
    let accepting = |OriginListener { tcp, tls, udp }| {
        Ok(Accepting { tcp: tokio::net::TcpListener::from_std(tcp)?, tls, udp })
    };
    let listeners = listeners.into_iter().map(accepting).collect::<io::Result<_>>()?;
    drop(entered);
    Ok((runtime, listeners))
}

async fn accept(worker: Rc<OriginWorker>, listener: tokio::net::TcpListener, tls: Option<TlsAcceptor>) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => worker.admit(stream, peer, tls.clone()),
            // The client closed the connection while it was queued.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// Connection field that keeps an HTTP/1.1 connection. RFC 9112 §9.3 needs none, but some clients expect it.
pub(crate) fn kept(says_keep_alive: bool) -> Option<&'static str> {
    says_keep_alive.then_some("keep-alive")
}

async fn keep_time(worker: Rc<OriginWorker>) {
    loop {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        worker.set_date(now.as_secs());
        worker.second.set(worker.second.get() + 1);
        tokio::time::sleep(Duration::from_secs(1) - Duration::from_nanos(now.subsec_nanos().into())).await;
    }
}

impl OriginWorker {
    fn new(says_keep_alive: bool, all_counters: Arc<[Counters]>, hub: Arc<Hub>, index: usize) -> Self {
        let date = *b"Thu, 01 Jan 1970 00:00:00 GMT";
        let pages = FAST_PAGES
            .iter()
            .map(|(_, page)| RenderedPage::new(page, &date, kept(says_keep_alive)))
            .collect();
        Self {
            says_keep_alive,
            all_counters,
            hub,
            index,
            spare: RefCell::default(),
            pages: RefCell::new(pages),
            http3_pages: RefCell::default(),
            date: Cell::new(date),
            second: Cell::new(0),
            connections: Cell::new(0),
        }
    }

    /// Whether there is room for another connection, which then counts.
    pub(crate) fn admits(&self) -> bool {
        if self.connections.get() >= CONNECTIONS_MAX {
            self.counters().turned_away();
            return false;
        }
        self.connections.set(self.connections.get() + 1);
        self.counters().opened();
        true
    }

    fn admit(self: &Rc<Self>, stream: TcpStream, peer: SocketAddr, tls: Option<TlsAcceptor>) {
        if !self.admits() {
            return;
        }
        match tls {
            None => {
                spawn_local(OriginConnection::new(Rc::clone(self), ClientSocket::Plain(stream), peer).serve())
            }
            Some(tls) => spawn_local(Rc::clone(self).shake_hands(tls, stream, peer)),
        };
    }

    async fn shake_hands(self: Rc<Self>, tls: TlsAcceptor, stream: TcpStream, peer: SocketAddr) {
        match timeout(HANDSHAKE_MAX, tls.accept(stream)).await {
            Ok(Ok(stream)) => {
                OriginConnection::new(self, ClientSocket::Tls(Box::new(stream)), peer).serve().await;
            }
            Ok(Err(_)) | Err(_) => self.dismiss(),
        }
    }

    /// Removes a closed connection from the counts.
    pub(crate) fn dismiss(&self) {
        self.connections.set(self.connections.get() - 1);
        self.counters().closed();
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.all_counters[self.index]
    }

    /// The fixed page for this target, with its index in `FAST_PAGES`; `None` if the target is not a fixed page.
    pub(crate) fn fast_page(&self, target: &str) -> Option<(usize, FastPage)> {
        let index = FAST_PAGES.iter().position(|(path, _)| *path == target)?;
        Some((index, self.pages.borrow()[index].page.clone()))
    }

    /// A fixed page for HTTP/3, by its index in `FAST_PAGES`.
    pub(crate) fn http3_page(&self, index: usize) -> Http3Page {
        let mut pages = self.http3_pages.borrow_mut();
        let page = pages[index].get_or_insert_with(|| {
            let (_, page) = &FAST_PAGES[index];
            let mut content = Vec::new();
            page.pieces(0, page.length()).for_each(|piece| content.extend_from_slice(piece));
            let (front, head) = http3::page_front(&page.head(200), &self.date.get(), page.length());
            Http3Page { front, head, content: content.into() }
        });
        page.clone()
    }

    fn set_date(&self, unix_seconds: u64) {
        let date = httpdate::HttpDate::from(UNIX_EPOCH + Duration::from_secs(unix_seconds));
        let mut text = self.date.get();
        // Four-digit years fill it exactly, until the year 9999.
        if write!(&mut text[..], "{date}").is_err() {
            return;
        }
        self.date.set(text);
        self.http3_pages.take();
        for RenderedPage { page, date_offset } in self.pages.borrow_mut().iter_mut() {
            // Copies the page only if it is being sent to a client.
            Rc::make_mut(&mut page.bytes)[*date_offset..][..text.len()].copy_from_slice(&text);
        }
    }
}

impl RenderedPage {
    fn new(page: &SizedPage, date: &Date, connection: Option<&str>) -> Self {
        let mut bytes = Vec::new();
        page.head(200).render(date, connection, &mut bytes);
        let head_length = bytes.len();
        let found = bytes.windows(date.len()).position(|window| window == date);
        let date_offset = found.expect("a head has a date");
        let from_file_bytes = match page {
            SizedPage::Pattern { bytes } if *bytes >= FROM_FILE_BYTES_MIN => *bytes,
            _ => {
                page.pieces(0, page.length()).for_each(|piece| bytes.extend_from_slice(piece));
                0
            }
        };
        Self { page: FastPage { bytes: Rc::new(bytes), head_length, from_file_bytes }, date_offset }
    }
}
