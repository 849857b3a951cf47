//! Interfaces that connections to servers need: to the worker, and to their client.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use route::ProxyVersion;
use telemetry::Counters;

use crate::context::plan::Plan;
use crate::upstream::PinnedConnection;
use transport::alarm::Alarms;
use transport::deadline::{Deadline, Deadlines};
use transport::fastcgi_connection::FastcgiMemory;
use transport::h2_connection;
use transport::quic_client::QuicClients;
use transport::tls::Records;

/// The worker that connects to servers, and lends its resources.
pub(crate) trait Lender: 'static {
    fn deadlines(&self) -> &Rc<Deadlines>;

    fn alarms(&self) -> &Rc<Alarms>;

    /// Buffers for TLS records.
    fn records(&self) -> &Rc<Records>;

    /// Buffers for FastCGI records.
    fn applications(&self) -> &Rc<FastcgiMemory>;

    /// Buffers for HTTP/2 frames.
    fn frames(&self) -> &Rc<h2_connection::Stock>;

    fn quic_clients(&self) -> &QuicClients;

    fn counters(&self) -> &Counters;

    fn plan(&self) -> Arc<Plan>;

    /// Closes idle connections and files because descriptors are used up. Returns whether descriptors are free now.
    fn give_up_idle(&self) -> bool;
}

/// A client for which a connection may be reserved.
pub(crate) trait Reserver {
    fn deadline(&self) -> &Deadline;

    /// Holds the connection that is reserved for the client, while it is idle.
    fn pinned(&self) -> &Cell<Option<Box<PinnedConnection>>>;

    /// Writes the PROXY header that names the client to a server.
    fn header(&self, version: ProxyVersion) -> Vec<u8>;
}
