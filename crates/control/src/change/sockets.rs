//! Sockets of listeners, shared out to workers; and those of QUIC, which a next process takes over.

use std::io;
use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use config::ListenAddress;
use proxy::context::listening::ListenerId;
use proxy::context::worker::{ListeningSocket, Message};
use proxy::worker::listen;
use telemetry::WorkerLog;
use transport::quic_strays;

use super::{Control, Open};
use crate::handover::{self, QuicHandover};

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
    /// The sockets of QUIC at an address, those that the previous process has passed on first, and copies of them.
    pub(super) fn open_udp(
        &self,
        bound: &ListenAddress,
        passed_on: Vec<OwnedFd>,
    ) -> io::Result<(Arc<[OwnedFd]>, Vec<ListeningSocket>)> {
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
