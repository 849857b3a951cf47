//! QUIC endpoints of a worker, one for each listener with HTTP/3: what they hold. What they do is `worker/quic`.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use quinn_proto::TransportConfig;
use tls::QuicKeys;
use transport::quic_endpoint::QuicEndpoint;

use crate::context::listening::Listening;
use crate::context::worker::Worker;

/// The endpoints of a worker.
#[derive(Default)]
pub(crate) struct QuicHosts {
    pub(crate) hosts: RefCell<Vec<Rc<QuicHost>>>,
    pub(crate) next: Cell<u8>,
}

/// An endpoint, and what decides about its connections.
pub(crate) struct QuicHost {
    pub(crate) number: u8,
    pub(crate) endpoint: QuicEndpoint,
    pub(crate) worker: Rc<Worker>,
    pub(crate) listening: RefCell<Rc<Listening>>,
    pub(crate) keys: QuicKeys,
    /// For this idle time-out.
    pub(crate) transport: RefCell<Option<(Duration, Arc<TransportConfig>)>>,
}
