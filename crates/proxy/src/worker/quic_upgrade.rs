//! QUIC over an upgrade. The next process receives at the same sockets; datagrams for connections that this one still has
//! come back from there, and the other way round for as long as both receive.
//!
//! A client chooses the ID of its first datagrams by itself. So the next process asks for each whether this one knows it,
//! until this one says that nobody is beginning here.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use telemetry::message;
use transport::quic_endpoint::Datagram;
use transport::quic_ids::{Destination, Owner};
use transport::quic_strays::{self, Stray, Strays, Word};

use crate::context::listening::NOWHERE;
use crate::context::quic_hosts::{QuicHost, QuicHosts};
use crate::context::quic_processes::QuicProcess;
use crate::context::worker::{Message, State, Worker};

/// Hears the workers of the process before this one, each by one of ours.
pub(crate) fn hear_predecessors(worker: &Rc<Worker>) {
    let Some(process) = worker.quic_hosts.processes.last() else { return };
    for other in (worker.index..process.workers()).step_by(worker.others.len()) {
        match process.channel(other).and_then(Strays::new) {
            Ok(strays) => {
                let worker = Rc::clone(worker);
                tokio::task::spawn_local(async move { hear(&worker, strays, Peer::Before(other)).await });
            }
            Err(error) => message::warn(&format!(
                "cannot hear the process before this one: {error}; QUIC handshakes that it has begun may fail"
            )),
        }
    }
}

/// Meets the next process, which is about to receive at the same sockets.
pub(crate) fn meet(worker: &Rc<Worker>, channel: OwnedFd) {
    let strays = match channel.try_clone().and_then(Strays::new) {
        Ok(strays) => strays,
        Err(error) => {
            let text = "cannot hear the next process";
            return message::warn(&format!("{text}: {error}; connections of QUIC may fail"));
        }
    };
    let hosts = &worker.quic_hosts;
    hosts.next_receives.borrow_mut().clear();
    let next = Rc::new(channel);
    let is_it = Rc::downgrade(&next);
    hosts.next_process.replace(Some(next));
    let worker = Rc::clone(worker);
    tokio::task::spawn_local(async move {
        hear(&worker, strays, Peer::Next).await;
        // It never came to serve, or has ended before this one. Another may have been started since.
        worker.quic_hosts.next_process.borrow_mut().take_if(|next| Rc::as_ptr(next) == is_it.as_ptr());
    });
}

/// Who is heard.
#[derive(Clone, Copy)]
enum Peer {
    /// This worker of the process before.
    Before(usize),
    Next,
}

async fn hear(worker: &Worker, mut strays: Strays, peer: Peer) {
    while let Some(stray) = strays.next().await {
        heard(worker, stray, peer);
    }
}

/// Hears all that the next process has said so far.
pub(crate) fn hear_next(worker: &Worker) {
    let next = worker.quic_hosts.next_process.borrow().clone();
    next.iter().flat_map(quic_strays::waiting).for_each(|stray| heard(worker, stray, Peer::Next));
}

fn heard(worker: &Worker, Stray { word, listener, datagram }: Stray, peer: Peer) {
    let hosts = &worker.quic_hosts;
    match word {
        Word::Pass => worker.route_datagram(listener, datagram),
        Word::Ask => {
            if let Some(datagram) = worker.begin_at(listener, datagram) {
                hosts.give_back(listener, datagram);
            }
        }
        Word::Unknown { has_pending } => {
            if let (Peer::Before(other), Some(process)) = (peer, hosts.processes.last())
                && !has_pending
            {
                process.ask_no_more(other);
            }
            // Without an endpoint there, nobody begins connections.
            drop(worker.begin_at(listener, datagram));
        }
        Word::Receives => {
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
            // Not one that has to go on: two processes that take each other for the owner would pass it on for ever.
            _ => host.endpoint.take(datagram, &*host),
        }
    }

    /// Handles a datagram of a client that begins, which has come to a socket with this address in whichever process; gives it
    /// back if no endpoint is there any more.
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
    /// The endpoint at an address; one that accepts connections, if there are several.
    fn at(&self, listener: SocketAddr) -> Option<Rc<QuicHost>> {
        let hosts = self.hosts.borrow();
        let here = || hosts.iter().filter(|host| host.endpoint.local_address() == Some(listener));
        here().find(|host| !host.endpoint.is_closing()).or_else(|| here().next()).cloned()
    }

    /// Gives the datagram of a client that is unknown here to the next process; false if it does not receive there.
    fn give_back(&self, listener: SocketAddr, datagram: Datagram) -> bool {
        let next = self.next_process.borrow();
        let Some(next) = next.as_deref().filter(|_| self.next_receives.borrow().contains(&listener)) else {
            return false;
        };
        let has_pending = !self.beginnings.is_empty();
        quic_strays::pass(next, &Stray { word: Word::Unknown { has_pending }, listener, datagram }).is_ok()
    }

    /// Leaves to the next process to receive, where it does, and where this worker takes nothing new.
    pub(crate) fn leave_receiving(&self, state: State) {
        if state == State::Running {
            return;
        }
        let next = self.next_receives.borrow();
        for host in self.hosts.borrow().iter() {
            if host.endpoint.local_address().is_some_and(|address| next.contains(&address))
                && let Err(error) = host.endpoint.leave_receiving()
            {
                message::warn(&format!("goes on receiving datagrams of QUIC: {error}"));
            }
        }
    }

    /// Passes a datagram on to another worker or endpoint of this process; gives it back if there is none.
    pub(crate) fn pass_within(&self, worker: &Worker, owner: Owner, datagram: Datagram) -> Option<Datagram> {
        let index = usize::from(owner.worker);
        if index == worker.index && !self.has(owner.endpoint) {
            return Some(datagram);
        }
        let Some(other) = worker.others.get(index) else { return Some(datagram) };
        worker.counters.quic_passed_on.increment();
        // Also within the worker: the endpoint is another task's. One that is overrun loses datagrams, as networks do.
        if worker.pressure.begin_stray()
            && other.send(Message::Datagram(owner.endpoint, Box::new(datagram))).is_err()
        {
            worker.pressure.end_stray();
        }
        None
    }
}

impl QuicHost {
    fn stray(&self, word: Word, datagram: Datagram) -> Stray {
        Stray { word, listener: self.endpoint.local_address().unwrap_or(NOWHERE), datagram }
    }

    /// Passes a datagram on to the process whose connection it is of; gives it back if that has ended.
    pub(crate) fn pass_between(&self, owner: Owner, datagram: Datagram) -> Option<Datagram> {
        let hosts = &self.worker.quic_hosts;
        let own = hosts.generation.get();
        if let Some(process) = hosts.processes.of(owner.generation) {
            let stray = self.stray(Word::Pass, datagram);
            return match process.pass(usize::from(owner.worker), &stray) {
                Ok(()) => {
                    self.worker.counters.quic_passed_on.increment();
                    None
                }
                Err(quic_strays::Gone) => Some(stray.datagram),
            };
        }
        let is_next = owner.generation.wrapping_sub(own) < u8::MAX / 2;
        if let Some(next) = hosts.next_process.borrow().as_deref().filter(|_| is_next) {
            // What cannot be told is lost.
            let _ = quic_strays::pass(next, &self.stray(Word::Pass, datagram));
            return None;
        }
        // A stateless reset would end what a next process has begun; that of an old one has ended.
        if is_next { None } else { Some(datagram) }
    }

    /// Whether clients that begin may have begun with the process before this one.
    pub(crate) fn asks_before(&self) -> bool {
        self.worker.quic_hosts.processes.last().is_some_and(QuicProcess::asks)
    }

    /// Asks the process before this one whether it knows a client; gives the datagram back if it has ended.
    pub(crate) fn ask_before(&self, datagram: Datagram) -> Option<Datagram> {
        let last = self.worker.quic_hosts.processes.last();
        let Some((process, worker)) = last.zip(self.before) else { return Some(datagram) };
        let stray = self.stray(Word::Ask, datagram);
        process.ask(worker, &stray).err().map(|quic_strays::Gone| stray.datagram)
    }

    /// Tells the process before this one that this one receives at the endpoint's socket.
    pub(crate) fn tell_before(&self) {
        let (Some(process), Some(_)) = (self.worker.quic_hosts.processes.last(), self.before) else { return };
        let nothing = Datagram { bytes: Vec::new(), remote: NOWHERE, local: None, ecn: None };
        let stray = self.stray(Word::Receives, nothing);
        // A worker that has ended needs no telling.
        (0..process.workers()).for_each(|worker| _ = process.pass(worker, &stray));
    }

    /// Gives the first datagram of a connection, which this closed endpoint does not begin, to whoever accepts connections at
    /// the same address; false if that is nobody.
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
