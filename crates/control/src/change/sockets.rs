//! Opens sockets of listeners and distributes them to workers, and passes QUIC sockets to a next process.

use std::io;
use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use config::{ListenAddress, Listener};
use proxy::context::worker::{ListeningSocket, WorkerMessage};
use proxy::listening::ListenerId;
use proxy::worker::listen::{self, OpenSockets};
use telemetry::WorkerLog;
use transport::quic_strays;

use super::{Control, Open};
use crate::handover::{self, QuicHandover};

/// Attempts if the kernel selects the port: it is free for TCP, but may be in use for UDP.
const PORTS_MAX: usize = 32;

/// QUIC sockets, and copies of them for the next process.
type Udp = (Arc<[OwnedFd]>, Vec<ListeningSocket>);

/// The sockets of a listener, at least one for each worker.
pub(crate) type Sockets = (ListenerId, Vec<ListeningSocket>);

pub(crate) struct WorkerStart {
    pub(crate) listeners: Vec<ListenerId>,
    pub(crate) opened: Vec<(ListenerId, ListeningSocket)>,
    pub(crate) log: Option<WorkerLog>,
}

/// Distributes sockets: each worker gets one of each listener, and more if a process with more workers passed more on.
pub(crate) fn deal(opened: Vec<Sockets>, workers: usize) -> Vec<Vec<(ListenerId, ListeningSocket)>> {
    let mut dealt: Vec<Vec<_>> = (0..workers).map(|_| Vec::new()).collect();
    for (id, sockets) in opened {
        for (index, socket) in sockets.into_iter().enumerate() {
            dealt[index % workers].push((id, socket));
        }
    }
    dealt
}

impl Control {
    /// Opens the sockets of a new listener, and QUIC sockets with HTTP/3. Passed sockets are used first.
    pub(super) fn open_listener(
        &self,
        listener: &Listener,
        (mut passed_on, mut udp_passed_on): (Vec<OwnedFd>, Vec<OwnedFd>),
        leaving: &[ListenAddress],
    ) -> io::Result<(OpenSockets, Option<Udp>)> {
        let is_chosen = listener.address.port() == Some(0) && passed_on.is_empty();
        for left in (0..PORTS_MAX).rev() {
            let passed_on = std::mem::take(&mut passed_on);
            let opened = listen::open(&listener.address, self.workers.len(), passed_on, leaving)?;
            if !listener.http3 {
                return Ok((opened, None));
            }
            match self.open_udp(&opened.bound, std::mem::take(&mut udp_passed_on)) {
                // The kernel has selected a port that is free for TCP only.
                Err(error) if is_chosen && left > 0 && error.kind() == io::ErrorKind::AddrInUse => {}
                udp => return Ok((opened, Some(udp?))),
            }
        }
        Err(io::ErrorKind::AddrInUse.into())
    }

    /// Opens the QUIC sockets at an address, with those passed by the previous process first, and copies them.
    pub(super) fn open_udp(&self, bound: &ListenAddress, passed_on: Vec<OwnedFd>) -> io::Result<Udp> {
        let passed = passed_on.into_iter().map(UdpSocket::from).enumerate();
        let mut sockets: Vec<_> = passed.map(|(place, socket)| (socket, Some(place))).collect();
        let missing = self.workers.len().saturating_sub(sockets.len());
        sockets.extend(listen::open_udp(bound, missing)?.into_iter().map(|socket| (socket, None)));
        let copies = sockets.iter().map(|(socket, _)| handover::copy(socket)).collect::<io::Result<_>>()?;
        let sockets = sockets.into_iter().map(|(socket, place)| ListeningSocket::Udp(socket, place));
        Ok((copies, sockets.collect()))
    }

    /// Returns the QUIC sockets, and channels to the processes that have connections on them. Workers get the other
    /// ends at once, because the new process receives packets before it reports that it serves.
    pub(super) fn pass_on_quic(&self, open: &[Open]) -> io::Result<QuicHandover> {
        let mut udp = Vec::new();
        for open in open.iter().filter(|open| !open.udp.is_empty()) {
            let copies = open.udp.iter().map(handover::copy).collect::<io::Result<_>>()?;
            udp.push((open.configured.to_string(), copies));
        }
        let mut processes = self.quic_processes.handover()?;
        if !udp.is_empty() {
            let mut theirs = Vec::with_capacity(self.workers.len());
            for worker in self.workers.iter() {
                let (own, other) = quic_strays::pair()?;
                theirs.push(other);
                // A worker that has ended has no connections.
                let _ = worker.send(WorkerMessage::NextProcess(own));
            }
            processes.insert(0, (self.plan().quic_generation(), theirs));
        }
        Ok(QuicHandover { udp, processes })
    }
}
