//! A listener of the control thread, for the admin API or the metrics. It is reopened when the configuration has
//! another address, and handed over in an upgrade.

use std::cell::LazyCell;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use axum::Router;
use config::ListenAddress;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::task::JoinHandle;

use crate::StartError;
use crate::handover::{self, Inheritance, Passed, Purpose};
use crate::service::{self, Accept};

/// A listener's address: TCP, or the path of a Unix socket.
pub(crate) trait ListenerAddress: PartialEq + Sized {
    /// The socket on the runtime of the control thread.
    type Accepting: Accept + 'static;
    /// Facts about an open listener besides its place.
    type Known;

    /// Identifies the socket in an upgrade.
    fn purpose(&self) -> Purpose;

    fn address(&self) -> ListenAddress;

    /// Listens, on the previous process's socket if there is one. Fails if the place is in use or needs permission.
    fn open(&self, inherited: Option<OwnedFd>) -> io::Result<(OwnedFd, Self::Known)>;

    /// Registers the socket with the runtime.
    fn accepting(socket: OwnedFd) -> io::Result<Self::Accepting>;
}

/// The TCP address of a page that the control thread serves.
#[derive(PartialEq)]
pub(crate) enum PageAddress {
    Metrics(SocketAddr),
    Dashboard(SocketAddr),
}

impl PageAddress {
    fn socket_address(&self) -> SocketAddr {
        let (Self::Metrics(address) | Self::Dashboard(address)) = self;
        *address
    }
}

impl ListenerAddress for PageAddress {
    type Accepting = tokio::net::TcpListener;
    /// The bound address: the kernel may have selected the port.
    type Known = SocketAddr;

    fn purpose(&self) -> Purpose {
        match self {
            Self::Metrics(address) => Purpose::Metrics(address.to_string()),
            Self::Dashboard(address) => Purpose::Dashboard(address.to_string()),
        }
    }

    fn address(&self) -> ListenAddress {
        ListenAddress::Tcp(self.socket_address())
    }

    fn open(&self, inherited: Option<OwnedFd>) -> io::Result<(OwnedFd, SocketAddr)> {
        let bind = || TcpListener::bind(self.socket_address());
        let socket = inherited.map_or_else(bind, |socket| Ok(socket.into()))?;
        socket.set_nonblocking(true)?;
        let bound = socket.local_addr()?;
        Ok((socket.into(), bound))
    }

    fn accepting(socket: OwnedFd) -> io::Result<tokio::net::TcpListener> {
        tokio::net::TcpListener::from_std(socket.into())
    }
}

pub(crate) struct ControlListener<P: ListenerAddress> {
    open: Mutex<Option<OpenListener<P>>>,
    sockets: UnboundedSender<Option<OwnedFd>>,
}

pub(crate) struct OpenListener<P: ListenerAddress> {
    /// As configured: a port may be 0.
    place: P,
    pub(crate) known: P::Known,
    /// The socket, for an upgrade.
    copy: OwnedFd,
}

/// A change of a listener: the opened replacement, or `None` to close it.
pub(crate) struct Moved<P: ListenerAddress>(Option<(OpenListener<P>, OwnedFd)>);

impl<P: ListenerAddress> ControlListener<P> {
    /// Creates a closed listener. `sockets` leads to [`serve`].
    pub(crate) fn new(sockets: UnboundedSender<Option<OwnedFd>>) -> Self {
        Self { open: Mutex::default(), sockets }
    }

    /// Opens the configured listener; `None` if that is already open. Fails if the kernel does not permit it.
    pub(crate) fn open(
        &self,
        place: Option<P>,
        inherited: &mut Inheritance,
    ) -> Result<Option<Moved<P>>, StartError> {
        if self.lock().as_ref().map(|open| &open.place) == place.as_ref() {
            return Ok(None);
        }
        let Some(place) = place else { return Ok(Some(Moved(None))) };
        let opened = place.open(inherited.take(&place.purpose()).pop());
        let opened = opened.and_then(|(socket, known)| Ok((handover::copy(&socket)?, socket, known)));
        let (copy, socket, known) =
            opened.map_err(|error| StartError::Listen { address: place.address(), error })?;
        Ok(Some(Moved(Some((OpenListener { place, known, copy }, socket)))))
    }

    /// Puts the change in force: the listener moves to the new place.
    pub(crate) fn listen(&self, moved: Moved<P>) {
        let (open, socket) = moved.0.unzip();
        *self.lock() = open;
        // A thread that has ended serves nothing.
        let _ = self.sockets.send(socket);
    }

    pub(crate) fn close(&self) {
        self.listen(Moved(None));
    }

    /// Copies the socket for an upgrade; `None` if the listener is closed. Fails if no file descriptor is left.
    pub(crate) fn pass_on(&self) -> io::Result<Option<Passed>> {
        let open = self.lock();
        let Some(OpenListener { place, copy, .. }) = &*open else { return Ok(None) };
        Ok(Some((place.purpose(), vec![handover::copy(copy)?])))
    }

    /// Locks the state: the open listener, or `None`.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Option<OpenListener<P>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves on the socket that was sent last, until the sender is dropped. The router is created for the first
/// socket, because most configurations have none.
pub(crate) async fn serve<P: ListenerAddress>(
    router: impl FnOnce() -> Router,
    mut sockets: UnboundedReceiver<Option<OwnedFd>>,
    guests: service::ServedConnections,
) {
    let router = LazyCell::new(router);
    let mut serving: Option<JoinHandle<()>> = None;
    while let Some(socket) = sockets.recv().await {
        if let Some(task) = serving.take() {
            task.abort();
        }
        let accepting = socket.and_then(|socket| P::accepting(socket).ok());
        let serve = |accepting| service::serve(accepting, LazyCell::force(&router).clone(), guests.clone());
        serving = accepting.map(|accepting| tokio::task::spawn_local(serve(accepting)));
    }
}
