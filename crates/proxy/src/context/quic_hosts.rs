//! The state of a worker's QUIC endpoints, one for each listener with HTTP/3. Their behaviour is in `worker/quic`.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use quinn_proto::TransportConfig;
use tls::QuicKeys;
use transport::quic_beginnings::Beginnings;
use transport::quic_endpoint::QuicEndpoint;

use crate::context::worker::Worker;
use crate::listening::Listening;
use crate::owned::quic_processes::QuicProcesses;
use crate::shared::concurrency::Counted;

#[derive(Default)]
pub(crate) struct QuicHosts {
    pub(crate) hosts: RefCell<Vec<Rc<QuicHost>>>,
    pub(crate) next: Cell<u8>,
    /// The number of this process in the chain of upgrades.
    pub(crate) generation: Cell<u8>,
    /// Handshakes under way in all workers of this process.
    pub(crate) beginnings: Arc<Beginnings>,
    /// Processes before this one that still have connections.
    pub(crate) processes: Arc<QuicProcesses>,
    /// The channel to the next process, once that is started.
    pub(crate) next_process: RefCell<Option<Rc<OwnedFd>>>,
    /// Whether there ever was a next process.
    pub(crate) has_met_next: Cell<bool>,
    /// The addresses at which the next process receives.
    pub(crate) next_receives: RefCell<Vec<SocketAddr>>,
}

impl QuicHosts {
    /// Creates the endpoints of a worker, with the state that all workers share.
    pub(crate) fn new(processes: Arc<QuicProcesses>, beginnings: Arc<Beginnings>) -> Self {
        Self { processes, beginnings, ..Self::default() }
    }
}

/// An endpoint, and the settings for its connections.
pub(crate) struct QuicHost {
    pub(crate) number: u8,
    pub(crate) endpoint: QuicEndpoint,
    pub(crate) worker: Rc<Worker>,
    pub(crate) listening: Rc<Listening>,
    pub(crate) keys: QuicKeys,
    /// The worker of the previous process that is asked first: the one that had the endpoint's socket, if any.
    pub(crate) before: Option<usize>,
    /// The transport settings for the last idle time-out, which is beside them.
    pub(crate) transport: RefCell<Option<(Duration, Arc<TransportConfig>)>>,
    /// Counts the connection that is about to begin against the limit of its client.
    pub(crate) counted: Cell<Option<Counted>>,
}
