//! QUIC across an upgrade. The next process receives at the same sockets; it passes back datagrams for connections of
//! this one. While both receive, this one does the same for the next.
//!
//! A client chooses the connection ID of its first datagrams. So the next process asks for each whether this one knows
//! it, until this one reports that no handshake is under way here.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use telemetry::message;
use transport::quic_endpoint::Datagram;
use transport::quic_ids::{Destination, IdOwner};
use transport::quic_strays::{self, Stray, StrayMessage, Strays};

use crate::context::quic_hosts::{QuicHost, QuicHosts};
use crate::context::worker::{Worker, WorkerMessage, WorkerPhase};
use crate::listening::NOWHERE;
use crate::owned::quic_processes::QuicProcess;

/// Starts to receive messages from the workers of the previous process. Each of them is assigned to one worker here.
pub(crate) fn hear_predecessors(worker: &Rc<Worker>) {
    let Some(process) = worker.quic_hosts.processes.last() else { return };
    for other in (worker.index..process.workers()).step_by(worker.others.len()) {
        match process.channel(other).and_then(Strays::new) {
            Ok(strays) => {
                let worker = Rc::clone(worker);
                tokio::task::spawn_local(
                    async move { hear(&worker, strays, UpgradePeer::Before(other)).await },
                );
            }
            Err(error) => message::warn(&format!(
                "cannot receive from the previous process: {error}; its unfinished QUIC handshakes may fail"
            )),
        }
    }
}

/// Opens the channel to the next process, which is about to receive at the same sockets.
pub(crate) fn meet(worker: &Rc<Worker>, channel: OwnedFd) {
    let strays = match channel.try_clone().and_then(Strays::new) {
        Ok(strays) => strays,
        Err(error) => {
            let text = "cannot receive from the next process";
            return message::warn(&format!("{text}: {error}; QUIC connections may fail"));
        }
    };
    let hosts = &worker.quic_hosts;
    hosts.next_receives.borrow_mut().clear();
    let next = Rc::new(channel);
    let is_it = Rc::downgrade(&next);
    hosts.next_process.replace(Some(next));
    hosts.has_met_next.set(true);
    let worker = Rc::clone(worker);
    tokio::task::spawn_local(async move {
        hear(&worker, strays, UpgradePeer::Next).await;
        // The next process never came up, or ended first. Another may have started since.
        worker.quic_hosts.next_process.borrow_mut().take_if(|next| Rc::as_ptr(next) == is_it.as_ptr());
    });
}

/// The other end of a channel.
#[derive(Clone, Copy)]
enum UpgradePeer {
    /// A worker of the previous process, by its index.
    Before(usize),
    Next,
}

/// Handles messages from another process until its channel closes.
async fn hear(worker: &Worker, mut strays: Strays, peer: UpgradePeer) {
    while let Some(stray) = strays.next().await {
        heard(worker, stray, peer);
    }
}

/// Handles all messages that the next process has sent so far.
pub(crate) fn hear_next(worker: &Worker) {
    let next = worker.quic_hosts.next_process.borrow().clone();
    next.iter().flat_map(quic_strays::waiting).for_each(|stray| heard(worker, stray, UpgradePeer::Next));
}

/// Handles one message from another process.
fn heard(worker: &Worker, Stray { word, listener, datagram }: Stray, peer: UpgradePeer) {
    let hosts = &worker.quic_hosts;
    match word {
        StrayMessage::Pass => worker.route_datagram(listener, datagram),
        StrayMessage::Ask => {
            if let Some(datagram) = worker.begin_at(listener, datagram) {
                hosts.give_back(listener, datagram);
            }
        }
        StrayMessage::Unknown { has_pending } => {
            if let (UpgradePeer::Before(other), Some(process)) = (peer, hosts.processes.last())
                && !has_pending
            {
                process.ask_no_more(other);
            }
            // If there is no endpoint any more, the datagram is dropped.
            drop(worker.begin_at(listener, datagram));
        }
        StrayMessage::Receives => {
            hosts.next_receives.borrow_mut().push(listener);
            hosts.leave_receiving(worker.state.get());
        }
    }
}

impl Worker {
    /// Handles a datagram that another process has received, and that has a connection ID of this one.
    fn route_datagram(&self, listener: SocketAddr, datagram: Datagram) {
        let hosts = &self.quic_hosts;
        let Some(host) = hosts.at(listener) else { return };
        match host.endpoint.destination(&datagram.bytes) {
            Destination::Other(owner) if owner.generation == hosts.generation.get() => {
                if let Some(datagram) = hosts.pass_within(self, owner, datagram) {
                    host.endpoint.take(datagram, &*host);
                }
            }
            // It is not passed on again: two processes that each take the other for the owner would loop forever.
            _ => host.endpoint.take(datagram, &*host),
        }
    }

    /// Handles the first datagram of a client, received in either process at a socket with this address. Returns the
    /// datagram if there is no endpoint any more.
    fn begin_at(&self, listener: SocketAddr, datagram: Datagram) -> Option<Datagram> {
        let hosts = &self.quic_hosts;
        let Some(host) = hosts.at(listener) else { return Some(datagram) };
        let datagram = match host.endpoint.begun_elsewhere(&datagram.bytes) {
            Some(owner) => hosts.pass_within(self, owner, datagram)?,
            None => datagram,
        };
        host.endpoint.take(datagram, &*host);
        None
    }
}

impl QuicHosts {
    /// Returns the endpoint at an address; if there are several, one that accepts connections.
    fn at(&self, listener: SocketAddr) -> Option<Rc<QuicHost>> {
        let hosts = self.hosts.borrow();
        let here = || hosts.iter().filter(|host| host.endpoint.local_address() == Some(listener));
        here().find(|host| !host.endpoint.is_closing()).or_else(|| here().next()).cloned()
    }

    /// Passes the datagram of an unknown client to the next process. Returns false if that does not receive at the
    /// address.
    fn give_back(&self, listener: SocketAddr, datagram: Datagram) -> bool {
        let next = self.next_process.borrow();
        let Some(next) = next.as_deref().filter(|_| self.next_receives.borrow().contains(&listener)) else {
            return false;
        };
        let has_pending = !self.beginnings.is_empty();
        quic_strays::pass(next, &Stray { word: StrayMessage::Unknown { has_pending }, listener, datagram })
            .is_ok()
    }

    /// Stops receiving at sockets where the next process receives, once this worker accepts nothing new.
    pub(crate) fn leave_receiving(&self, state: WorkerPhase) {
        if state == WorkerPhase::Running {
            return;
        }
        let next = self.next_receives.borrow();
        for host in self.hosts.borrow().iter() {
            if host.endpoint.local_address().is_some_and(|address| next.contains(&address))
                && let Err(error) = host.endpoint.leave_receiving()
            {
                message::warn(&format!("cannot stop receiving QUIC datagrams: {error}"));
            }
        }
    }

    /// Passes a datagram to another worker or endpoint of this process. Returns it if there is none.
    pub(crate) fn pass_within(
        &self,
        worker: &Worker,
        owner: IdOwner,
        datagram: Datagram,
    ) -> Option<Datagram> {
        let index = usize::from(owner.worker);
        if index == worker.index && !self.has(owner.endpoint) {
            return Some(datagram);
        }
        let Some(other) = worker.others.get(index) else { return Some(datagram) };
        worker.counters.quic_passed_on.increment();
        // Uses a message within the same worker, too, because the endpoint runs in another task. When the queue is
        // full, datagrams are dropped, as networks do.
        if worker.pressure.begin_stray()
            && other.send(WorkerMessage::Datagram(owner.endpoint, Box::new(datagram))).is_err()
        {
            worker.pressure.end_stray();
        }
        None
    }
}

impl QuicHost {
    fn stray(&self, word: StrayMessage, datagram: Datagram) -> Stray {
        Stray { word, listener: self.endpoint.local_address().unwrap_or(NOWHERE), datagram }
    }

    /// Passes a datagram to the process that owns its connection. Returns it if that process has ended.
    pub(crate) fn pass_between(&self, owner: IdOwner, datagram: Datagram) -> Option<Datagram> {
        let hosts = &self.worker.quic_hosts;
        let own = hosts.generation.get();
        if let Some(process) = hosts.processes.for_generation(owner.generation) {
            let stray = self.stray(StrayMessage::Pass, datagram);
            return match process.pass(usize::from(owner.worker), &stray) {
                Ok(()) => {
                    self.worker.counters.quic_passed_on.increment();
                    None
                }
                Err(quic_strays::ProcessGone) => Some(stray.datagram),
            };
        }
        let is_next = owner.generation.wrapping_sub(own) < u8::MAX / 2;
        if let Some(next) = hosts.next_process.borrow().as_deref().filter(|_| is_next) {
            // An error drops the datagram.
            let _ = quic_strays::pass(next, &self.stray(StrayMessage::Pass, datagram));
            return None;
        }
        // Returning the datagram causes a stateless reset (RFC 9000 §10.3). It must not end connections of a next
        // process, but may end those of an old one. A process that never had a next one may see IDs of a killed
        // predecessor that used the same key file.
        if is_next && hosts.has_met_next.get() { None } else { Some(datagram) }
    }

    /// Whether new clients may have begun with the previous process.
    pub(crate) fn asks_before(&self) -> bool {
        self.worker.quic_hosts.processes.last().is_some_and(QuicProcess::asks)
    }

    /// Asks the previous process whether it knows a client. Returns the datagram if that process has ended.
    pub(crate) fn ask_before(&self, datagram: Datagram) -> Option<Datagram> {
        let last = self.worker.quic_hosts.processes.last();
        let Some((process, worker)) = last.zip(self.before) else { return Some(datagram) };
        let stray = self.stray(StrayMessage::Ask, datagram);
        process.ask(worker, &stray).err().map(|quic_strays::ProcessGone| stray.datagram)
    }

    /// Notifies the previous process that this one receives at the endpoint's socket.
    pub(crate) fn tell_before(&self) {
        let (Some(process), Some(_)) = (self.worker.quic_hosts.processes.last(), self.before) else { return };
        let nothing = Datagram { bytes: Vec::new(), remote: NOWHERE, local: None, ecn: None };
        let stray = self.stray(StrayMessage::Receives, nothing);
        // Errors mean that the worker has ended, so they are ignored.
        (0..process.workers()).for_each(|worker| _ = process.pass(worker, &stray));
    }

    /// Passes the first datagram of a connection from this closing endpoint to the one that accepts at the same
    /// address. Returns false if there is none.
    pub(crate) fn hand_on(&self, datagram: Datagram) -> bool {
        let hosts = &self.worker.quic_hosts;
        let Some(address) = self.endpoint.local_address() else { return false };
        if let Some(other) = hosts.at(address).filter(|other| !other.endpoint.is_closing()) {
            other.endpoint.take(datagram, &*other);
            return true;
        }
        hosts.give_back(address, datagram)
    }
}
