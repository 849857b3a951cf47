//! Sockets of listeners, shared out to workers; and those of QUIC, which a next process takes over.

use std::io;
use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use config::{ListenAddress, Listener};
use proxy::context::listening::ListenerId;
use proxy::context::worker::{ListeningSocket, Message};
use proxy::worker::listen::{self, Opened};
use telemetry::WorkerLog;
use transport::quic_strays;

use super::{Control, Open};
use crate::handover::{self, QuicHandover};

/// Ports that are tried where the kernel chooses: those of UDP are others' for a moment each.
const PORTS_MAX: usize = 32;

/// Sockets of QUIC, and copies of them for the next process.
type Udp = (Arc<[OwnedFd]>, Vec<ListeningSocket>);

/// The sockets of a listener, at least one for each worker.
pub(crate) type Sockets = (ListenerId, Vec<ListeningSocket>);

/// The initial state of a worker.
pub(crate) struct Beginning {
    pub(crate) listeners: Vec<ListenerId>,
    pub(crate) opened: Vec<(ListenerId, ListeningSocket)>,
    pub(crate) log: Option<WorkerLog>,
}

/// Shares sockets out: each worker gets one of each listener, and more where a process with more workers has passed more
/// on.
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
    /// Opens the sockets of a new listener, for connections and, with HTTP/3, for QUIC; some have been passed on.
    pub(super) fn open_listener(
        &self,
        listener: &Listener,
        (mut passed_on, mut udp_passed_on): (Vec<OwnedFd>, Vec<OwnedFd>),
        leaving: &[ListenAddress],
    ) -> io::Result<(Opened, Option<Udp>)> {
        let is_chosen = listener.address.port() == Some(0) && passed_on.is_empty();
        for left in (0..PORTS_MAX).rev() {
            let passed_on = std::mem::take(&mut passed_on);
            let opened = listen::open(&listener.address, self.workers.len(), passed_on, leaving)?;
            if !listener.http3 {
                return Ok((opened, None));
            }
            match self.open_udp(&opened.bound, std::mem::take(&mut udp_passed_on)) {
                // The kernel has chosen a port that is free for TCP.
                Err(error) if is_chosen && left > 0 && error.kind() == io::ErrorKind::AddrInUse => {}
                udp => return Ok((opened, Some(udp?))),
            }
        }
        Err(io::ErrorKind::AddrInUse.into())
    }

    /// The sockets of QUIC at an address, those that the previous process has passed on first, and copies of them.
    pub(super) fn open_udp(&self, bound: &ListenAddress, passed_on: Vec<OwnedFd>) -> io::Result<Udp> {
        let passed = passed_on.into_iter().map(UdpSocket::from).enumerate();
        let mut sockets: Vec<_> = passed.map(|(place, socket)| (socket, Some(place))).collect();
        let missing = self.workers.len().saturating_sub(sockets.len());
        sockets.extend(listen::open_udp(bound, missing)?.into_iter().map(|socket| (socket, None)));
        let copies = sockets.iter().map(|(socket, _)| handover::copy(socket)).collect::<io::Result<_>>()?;
        let sockets = sockets.into_iter().map(|(socket, place)| ListeningSocket::Udp(socket, place));
        Ok((copies, sockets.collect()))
    }

    /// The sockets of QUIC, and the ways to the processes that have connections at them. Workers are given the other ends: the
    /// new process receives before it says that it serves.
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
                let _ = worker.send(Message::NextProcess(own));
            }
            processes.insert(0, (self.plan().quic_generation(), theirs));
        }
        Ok(QuicHandover { udp, processes })
    }
}
