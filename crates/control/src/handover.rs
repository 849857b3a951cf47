//! The handover to the process that takes over: listening sockets (SCM_RIGHTS), runtime overrides, and state.
//!
//! Both ends of the channel are here. Starting the process, and time limits, are in `upgrade`.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use config::ListenAddress;
use rustix::cmsg_space;
use rustix::fs::{Mode, OFlags};
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recv, recvmsg, send, sendmsg,
};
use serde::{Deserialize, Serialize};
use telemetry::message;

use crate::activation::Activated;
use crate::runtime_overrides::{MaintenanceHandover, RuntimeOverrides, ServerChange};
use api::shaping::ShapingOrder;
use proxy::context::handover_state::MESSAGE_BYTES_MAX;
use proxy::context::handover_state::{HandoverPart, HandoverState};
use proxy::faults::FaultHandover;

/// Environment variable with the ID of the process to take over from, which holds the other end of standard input.
pub(crate) const VARIABLE: &str = "VANWARD_TAKES_OVER_FROM";
/// Sockets in a message; the kernel takes no more than 253.
const SOCKETS_MAX: usize = 128;
/// What a message has beside what is inherited.
const ENVELOPE_BYTES_MAX: usize = 1024;
/// Of what is too long for a message.
const TOLD_BYTES: usize = 100;
/// How long the new process waits for what it is given.
const PATIENCE: Duration = Duration::from_secs(10);

/// The purpose of a listening socket, and its configured address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Purpose {
    Clients(String),
    Metrics(String),
    Admin(String),
    Dashboard(String),
}

/// The sockets for one purpose.
pub(crate) type Passed = (Purpose, Vec<OwnedFd>);

/// Everything that is handed over.
#[derive(Debug, Default)]
pub(crate) struct Handover {
    pub(crate) sockets: Vec<Passed>,
    pub(crate) quic: QuicHandover,
    pub(crate) overrides: RuntimeOverrides,
    /// The operators' changes of rates and delays, each with its remaining time.
    pub(crate) shaping: Vec<ShapingOrder>,
    pub(crate) faults: Vec<FaultHandover>,
    pub(crate) handover_state: HandoverState,
}

/// What is handed over of QUIC.
#[derive(Debug, Default)]
pub(crate) struct QuicHandover {
    /// The sockets of each listener, by its configured address, in the workers' order.
    pub(crate) udp: Vec<(String, Vec<OwnedFd>)>,
    /// The ways to the workers of this process and those before it, by generation, the newest first.
    pub(crate) processes: Vec<(u8, Vec<OwnedFd>)>,
}

/// A message to the new process. The sockets themselves go beside it.
#[derive(Serialize, Deserialize)]
#[serde(tag = "part", rename_all = "snake_case")]
enum Part<C = ServerChange, B = HandoverPart> {
    Sockets {
        purpose: Purpose,
    },
    /// A part of its own: an older version knows no such purpose, and leaves the part.
    Udp {
        listener: String,
    },
    Process {
        generation: u8,
    },
    Server {
        change: C,
    },
    Shaping {
        order: Box<ShapingOrder>,
    },
    Maintenance {
        switch: Box<MaintenanceHandover>,
    },
    Fault {
        #[serde(rename = "bequest")]
        part: Box<FaultHandover>,
    },
    Known {
        #[serde(rename = "bequest")]
        part: B,
    },
    End,
    /// A part that only newer versions know.
    #[serde(other)]
    Unknown,
}

/// The first message from the new process. What is said later is of what is purged: `cached/successor`.
const SERVING: &[u8] = b"serving";

/// What the previous process, or the service manager, handed over. Dropping it closes the sockets that were not taken.
#[derive(Debug, Default)]
pub struct Inheritance {
    sockets: Vec<(Purpose, OwnedFd)>,
    udp: Vec<(String, OwnedFd)>,
    pub(crate) processes: Vec<(u8, Vec<OwnedFd>)>,
    pub(crate) overrides: RuntimeOverrides,
    pub(crate) faults: Vec<FaultHandover>,
    pub(crate) handover_state: HandoverState,
    pub(crate) predecessor: Option<Predecessor>,
    /// What the service manager passes, where there is no previous process.
    pub(crate) activated: Activated,
}

impl Inheritance {
    /// Whether there are listening sockets that were opened by another process.
    pub fn has_sockets(&self) -> bool {
        !self.sockets.is_empty() || self.activated.left().is_some()
    }
}

/// The previous process, which waits until this one serves.
#[derive(Debug)]
pub(crate) struct Predecessor(OwnedFd);

impl Inheritance {
    /// Receives the handover, if this process was started to take over, else the sockets of the service manager. Call it once,
    /// before anything else is opened.
    ///
    /// # Errors
    /// If the previous process violates the protocol, or the service manager passes what is no socket for a listener.
    pub fn claim() -> Result<Self, String> {
        let of_predecessor = Self::of_predecessor()
            .map_err(|error| format!("cannot take over from the process before: {error}"))?;
        match of_predecessor {
            Some(inherited) => Ok(inherited),
            None => Ok(Self { activated: Activated::claim()?, ..Self::default() }),
        }
    }

    fn of_predecessor() -> io::Result<Option<Self>> {
        let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().to_string());
        // Whoever was started by such a process for something else inherits the variable, but not the parent.
        if parent.is_none() || std::env::var(VARIABLE).ok() != parent {
            return Ok(None);
        }
        let channel = fcntl_dupfd_cloexec(io::stdin(), 3)?;
        let nothing = rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        rustix::stdio::dup2_stdin(&nothing)?;
        set_socket_timeout(&channel, Timeout::Recv, Some(PATIENCE))?;
        Self::receive(channel).map(Some)
    }

    fn receive(channel: OwnedFd) -> io::Result<Self> {
        let (mut sockets, mut udp, mut processes) = (Vec::new(), Vec::new(), Vec::new());
        let mut faults = Vec::new();
        let (mut overrides, mut handover_state) = (RuntimeOverrides::default(), HandoverState::default());
        let mut buffer = vec![0; MESSAGE_BYTES_MAX];
        loop {
            let (count, received) = receive_message(&channel, &mut buffer)?;
            match serde_json::from_slice(&buffer[..count]).map_err(io::Error::from)? {
                Part::Sockets { purpose } => {
                    sockets.extend(received.into_iter().map(|socket| (purpose.clone(), socket)));
                }
                Part::Udp { listener } => {
                    udp.extend(received.into_iter().map(|socket| (listener.clone(), socket)));
                }
                Part::Process { generation } => join(&mut processes, generation, received),
                Part::Server { change } => overrides.insert(change),
                Part::Shaping { order } => overrides.shaping.inherit(&order),
                Part::Maintenance { switch } => overrides.maintenance.inherit(*switch),
                Part::Fault { part } => faults.push(*part),
                Part::Known { part } => handover_state.push(part),
                Part::Unknown => {}
                Part::End => {
                    let predecessor = Some(Predecessor(channel));
                    return Ok(Self {
                        sockets,
                        udp,
                        processes,
                        overrides,
                        faults,
                        handover_state,
                        predecessor,
                        activated: Activated::default(),
                    });
                }
            }
        }
    }

    /// Takes the sockets of QUIC of a listener.
    pub(crate) fn take_udp(&mut self, listener: &str) -> Vec<OwnedFd> {
        self.udp.extract_if(.., |(of, _)| of == listener).map(|(_, socket)| socket).collect()
    }

    /// Takes the sockets of a listener for clients.
    pub(crate) fn take_listening(&mut self, address: &ListenAddress) -> Vec<OwnedFd> {
        let of_predecessor = self.take(&Purpose::Clients(address.to_string()));
        if of_predecessor.is_empty() {
            self.activated.take(address).into_iter().collect()
        } else {
            of_predecessor
        }
    }

    /// Takes the sockets for a purpose.
    pub(crate) fn take(&mut self, purpose: &Purpose) -> Vec<OwnedFd> {
        self.sockets.extract_if(.., |(of, _)| of == purpose).map(|(_, socket)| socket).collect()
    }
}

impl Predecessor {
    /// Tells the previous process that this one serves.
    pub(crate) fn may_go(&self) {
        // If it has ended meanwhile it has gone already.
        let _ = send(&self.0, SERVING, SendFlags::NOSIGNAL);
    }

    /// The channel to the previous process, which sends purges until it ends.
    pub(crate) fn into_channel(self) -> OwnedFd {
        self.0
    }
}

/// A process with many workers takes several messages.
fn join(processes: &mut Vec<(u8, Vec<OwnedFd>)>, generation: u8, received: Vec<OwnedFd>) {
    match processes.last_mut() {
        Some((of, sockets)) if *of == generation => sockets.extend(received),
        _ => processes.push((generation, received)),
    }
}

fn receive_message(channel: &OwnedFd, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(SOCKETS_MAX))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let message = recvmsg(channel, &mut [IoSliceMut::new(buffer)], &mut beside, RecvFlags::CMSG_CLOEXEC)?;
    let mut sockets = Vec::new();
    for part in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = part {
            sockets.extend(received);
        }
    }
    if message.bytes == 0 {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    if message.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(io::Error::new(ErrorKind::InvalidData, "a message is too large"));
    }
    Ok((message.bytes, sockets))
}

/// Sends the handover to the new process.
pub(crate) fn give(channel: &OwnedFd, handover: &Handover) -> io::Result<()> {
    for (purpose, sockets) in &handover.sockets {
        send_sockets(channel, &Given::Sockets { purpose: purpose.clone() }, sockets)?;
    }
    for (listener, sockets) in &handover.quic.udp {
        send_sockets(channel, &Given::Udp { listener: listener.clone() }, sockets)?;
    }
    for (generation, sockets) in &handover.quic.processes {
        send_sockets(channel, &Given::Process { generation: *generation }, sockets)?;
    }
    for change in handover.overrides.changes() {
        send_part(channel, &Given::Server { change }, &[])?;
    }
    for order in &handover.shaping {
        send_part(channel, &Given::Shaping { order: Box::new(order.clone()) }, &[])?;
    }
    for switch in handover.overrides.maintenance.handover() {
        send_part(channel, &Given::Maintenance { switch: Box::new(switch) }, &[])?;
    }
    for part in &handover.faults {
        send_part(channel, &Given::Fault { part: Box::new(part.clone()) }, &[])?;
    }
    for part in handover.handover_state.parts() {
        send_part(channel, &Given::Known { part }, &[])?;
    }
    send_part(channel, &Given::End, &[])
}

fn send_sockets(channel: &OwnedFd, part: &Given<'_>, sockets: &[OwnedFd]) -> io::Result<()> {
    for some in sockets.chunks(SOCKETS_MAX) {
        let some: Vec<BorrowedFd<'_>> = some.iter().map(AsFd::as_fd).collect();
        send_part(channel, part, &some)?;
    }
    Ok(())
}

type Given<'a> = Part<&'a ServerChange, &'a HandoverPart>;

fn send_part(channel: &OwnedFd, part: &Given<'_>, sockets: &[BorrowedFd<'_>]) -> io::Result<()> {
    let text = serde_json::to_vec(part).map_err(io::Error::from)?;
    // The new process takes no such message, and would not start. Sockets have short names.
    if text.len() > MESSAGE_BYTES_MAX && sockets.is_empty() {
        let begin = String::from_utf8_lossy(&text[..TOLD_BYTES]);
        message::warn(&format!("not passed on to the next process, because it is too long: {begin}..."));
        return Ok(());
    }
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(SOCKETS_MAX))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !sockets.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(sockets)) {
        return Err(ErrorKind::InvalidInput.into());
    }
    sendmsg(channel, &[IoSlice::new(&text)], &mut beside, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// The answer of the new process.
#[derive(Debug)]
pub(crate) enum Word {
    /// The new process serves.
    Serving,
    /// The new process has ended, or sent something else.
    Nothing,
}

/// Waits for the new process to serve, for at most `patience`.
pub(crate) fn word(channel: &OwnedFd, patience: Duration) -> io::Result<Word> {
    set_socket_timeout(channel, Timeout::Recv, Some(patience))?;
    let mut buffer = [0; 64];
    let (count, _) = recv(channel, &mut buffer, RecvFlags::empty())?;
    Ok(if &buffer[..count] == SERVING { Word::Serving } else { Word::Nothing })
}

/// Whether a value fits into one message of the handover.
pub(crate) fn fits(inherited: &impl Serialize) -> bool {
    let bytes = serde_json::to_vec(inherited).map_or(usize::MAX, |text| text.len());
    bytes <= MESSAGE_BYTES_MAX - ENVELOPE_BYTES_MAX
}

/// Duplicates a socket for the new process.
pub(crate) fn copy(socket: impl AsFd) -> io::Result<OwnedFd> {
    let copy = fcntl_dupfd_cloexec(socket, 3)?;
    fcntl_setfd(&copy, FdFlags::CLOEXEC)?;
    Ok(copy)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use balance::{Inherited, ServerId};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;
    use api::shaping::PlaceKind;

    #[test]
    fn sockets_and_changes_arrive_as_they_were_given() {
        let (here, there) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .expect("a pair");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it listens");
        let copies = |count| (0..count).map(|_| copy(&listener).expect("a copy")).collect::<Vec<_>>();
        let clients = Purpose::Clients("127.0.0.1:0".to_owned());
        let admin = Purpose::Admin("/run/admin".to_owned());
        // More than fit one message.
        let many = SOCKETS_MAX + 3;
        let mut overrides = RuntimeOverrides::default();
        let mut change = ServerChange::none("app", "http://a:80");
        change.weight = Some(3);
        overrides.insert(change);
        let mut handover_state = HandoverState::default();
        let health = |server| HandoverPart::ServerHealth {
            upstream: "app".to_owned(),
            server,
            is_down: true,
            ejected_for_micros: Some(5),
            ejections: 2,
        };
        // More than the kernel's buffer holds.
        const PARTS: u64 = 5000;
        (0..PARTS).for_each(|server| handover_state.push(health(server)));
        let sockets = vec![(clients.clone(), copies(many)), (admin.clone(), copies(1))];
        let order = ShapingOrder {
            rate: Some(vec!["1MB/s".to_owned()]),
            ..ShapingOrder::of(PlaceKind::Route, Some("/".to_owned()))
        };
        let faults = vec![FaultHandover::Unknown; 2];
        let handover = Handover {
            sockets,
            quic: QuicHandover {
                udp: vec![("*:1".to_owned(), copies(2))],
                processes: vec![(0, copies(many)), (255, copies(1))],
            },
            overrides: overrides.clone(),
            shaping: vec![order.clone()],
            faults: faults.clone(),
            handover_state,
        };
        overrides.shaping.inherit(&order);
        let giver = std::thread::spawn(move || give(&here, &handover).map(|()| here));

        let mut inheritance = Inheritance::receive(there).expect("it is whole");
        let here = giver.join().expect("a thread").expect("all was taken");
        assert_eq!((&inheritance.overrides, &inheritance.faults), (&overrides, &faults));
        assert_eq!(inheritance.handover_state.parts().len() as u64, PARTS);
        let stood =
            inheritance.handover_state.health("app", ServerId::from_u64(PARTS - 1)).expect("it is there");
        let left = Some(Duration::from_micros(5));
        assert_eq!(stood, Inherited { is_down: true, ejected_for: left, ejections: 2 });
        let sockets = inheritance.take(&clients);
        assert_eq!((sockets.len(), inheritance.take(&clients).len()), (many, 0));
        for socket in sockets {
            assert_eq!(TcpListener::from(socket).local_addr().ok(), Some(address));
        }
        assert_eq!(inheritance.take(&admin).len(), 1);
        assert_eq!((inheritance.take_udp("*:2").len(), inheritance.take_udp("*:1").len()), (0, 2));
        let processes =
            inheritance.processes.iter().map(|(generation, sockets)| (*generation, sockets.len()));
        assert_eq!(processes.collect::<Vec<_>>(), [(0, many), (255, 1)]);
        inheritance.predecessor.as_ref().expect("it has one").may_go();
        assert!(matches!(word(&here, PATIENCE), Ok(Word::Serving)));
        drop(inheritance);
        assert!(matches!(word(&here, PATIENCE), Ok(Word::Nothing)));
    }

    #[test]
    fn what_is_too_long_for_a_message_is_left() {
        let (here, there) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .expect("a pair");
        let order = |rates| ShapingOrder {
            rate: Some(vec!["1MB/s".to_owned(); rates]),
            ..ShapingOrder::of(PlaceKind::Route, Some("/".to_owned()))
        };
        assert!(fits(&order(1000)) && !fits(&order(2500)));
        let config = config::Config::for_servers(
            vec!["127.0.0.1:1".parse().expect("is an address")],
            vec!["http://127.0.0.1:1".parse().expect("is a URL")],
        );
        let mut overrides = RuntimeOverrides::default();
        let refused = overrides.shaping.amend(&order(2500), &config, balance::Time::START);
        assert!(refused.is_err_and(|refusal| refusal.to_string().contains("15 KiB")));
        assert_eq!(overrides, RuntimeOverrides::default());
        overrides.shaping.inherit(&order(1000));
        let handover = Handover { shaping: vec![order(2500), order(1000)], ..Handover::default() };
        give(&here, &handover).expect("it fits");
        assert_eq!(Inheritance::receive(there).expect("it is whole").overrides, overrides);
    }

    #[test]
    fn half_an_inheritance_is_none() {
        let (here, there) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .expect("a pair");
        send_part(&here, &Given::Sockets { purpose: Purpose::Admin(String::new()) }, &[]).expect("it fits");
        drop(here);
        let error = Inheritance::receive(there).expect_err("there is no end");
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    }

    #[test]
    fn what_a_newer_version_adds_is_left() {
        let (here, there) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .expect("a pair");
        for part in
            [&br#"{"part":"later","more":[1]}"#[..], br#"{"part":"known","bequest":{"what":"later","x":{}}}"#]
        {
            send(&here, part, SendFlags::empty()).expect("it fits");
        }
        give(&here, &Handover::default()).expect("it fits");
        assert!(Inheritance::receive(there).is_ok());
    }
}
