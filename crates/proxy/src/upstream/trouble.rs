//! Reports why connections to a server fail: the failure, and the text for the log.

use std::io;

use telemetry::message;

use crate::failure::Failure;
use crate::upstream::UpstreamServer;
use transport::descriptors::is_out_of_descriptors;
use transport::dial::{self, Destination};

/// Text with the cause and the remedy.
const OUT_OF_PORTS: &str = "all local ports are in use for this address: keep more connections (pool), or widen \
                            net.ipv4.ip_local_port_range";

impl UpstreamServer {
    /// Notes why a connection failed, or which step is under way, for the log.
    pub(crate) fn is_troubled(&self, why: &str) {
        let mut trouble = self.trouble.borrow_mut();
        trouble.clear();
        trouble.push_str(why);
    }

    /// Returns why the last connection failed, if that is known.
    pub(crate) fn trouble(&self) -> Option<String> {
        Some(self.trouble.borrow().clone()).filter(|trouble| !trouble.is_empty())
    }

    /// Returns the failure for a system error of connect.
    pub(crate) fn unreached(&self, error: &io::Error, destination: Destination<'_>) -> Failure {
        self.is_troubled(&error.to_string());
        if is_out_of_descriptors(error) {
            return Failure::OutOfDescriptors;
        }
        if dial::is_out_of_ports(error, destination) {
            self.is_troubled(OUT_OF_PORTS);
            return Failure::OutOfPorts;
        }
        // The two shortages above are not the server's fault, so only here does it count as gone.
        self.plan.was_reached(false);
        Failure::UpstreamRefused
    }

    /// Notes and logs why a handshake with the server failed.
    #[cold]
    pub(crate) fn refused(&self, failure: Failure, why: &str) -> Failure {
        self.is_troubled(why);
        message::warn(&format!("{}: {why}", self.plan.authority));
        failure
    }
}
