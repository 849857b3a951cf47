//! QUIC endpoints of a worker, one for each listener with HTTP/3: what they hold. What they do is `worker/quic`.

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

use crate::context::listening::Listening;
use crate::context::quic_processes::QuicProcesses;
use crate::context::worker::Worker;

/// The endpoints of a worker.
#[derive(Default)]
pub(crate) struct QuicHosts {
    pub(crate) hosts: RefCell<Vec<Rc<QuicHost>>>,
    pub(crate) next: Cell<u8>,
    /// The number of this process among those of upgrades.
    pub(crate) generation: Cell<u8>,
    /// Handshakes under way, with all workers of this process.
    pub(crate) beginnings: Arc<Beginnings>,
    /// Those before it.
    pub(crate) processes: Arc<QuicProcesses>,
    /// The way to the next process, from when that is started.
    pub(crate) next_process: RefCell<Option<Rc<OwnedFd>>>,
    /// Where the next process receives.
    pub(crate) next_receives: RefCell<Vec<SocketAddr>>,
}

impl QuicHosts {
    /// Those of a worker, with what all workers share.
    pub(crate) fn of(processes: Arc<QuicProcesses>, beginnings: Arc<Beginnings>) -> Self {
        Self { processes, beginnings, ..Self::default() }
    }
}

/// An endpoint, and what decides about its connections.
pub(crate) struct QuicHost {
    pub(crate) number: u8,
    pub(crate) endpoint: QuicEndpoint,
    pub(crate) worker: Rc<Worker>,
    pub(crate) listening: Rc<Listening>,
    pub(crate) keys: QuicKeys,
    /// The worker of the process before this one that is asked first: the one that had the endpoint's socket, if any had it.
    pub(crate) before: Option<usize>,
    /// For this idle time-out.
    pub(crate) transport: RefCell<Option<(Duration, Arc<TransportConfig>)>>,
}
