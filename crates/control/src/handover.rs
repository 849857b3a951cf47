//! The handover to the new process in an upgrade: listening sockets (SCM_RIGHTS), runtime overrides, and state.
//!
//! Both ends of the channel are here. `upgrade` starts the process and sets time limits.

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
use proxy::faults::FaultHandover;
use proxy::shared::handover_state::MESSAGE_BYTES_MAX;
use proxy::shared::handover_state::{HandoverPart, HandoverState};
use proxy::shared::live_maps::MapHandover;

/// Environment variable with the ID of the process to take over from, which holds the other end of standard input.
pub(crate) const VARIABLE: &str = "VANWARD_TAKES_OVER_FROM";
/// Sockets in a message; the kernel's limit is 253.
const SOCKETS_MAX: usize = 128;
/// Bytes of a message besides the inherited state.
const ENVELOPE_BYTES_MAX: usize = 1024;
/// Shown bytes of a part that is too long for a message.
const TOLD_BYTES: usize = 100;
/// How long the new process waits for the handover.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Purpose {
    Clients(String),
    Metrics(String),
    Admin(String),
    Dashboard(String),
}

pub(crate) type Passed = (Purpose, Vec<OwnedFd>);

#[derive(Debug, Default)]
pub(crate) struct Handover {
    pub(crate) sockets: Vec<Passed>,
    pub(crate) quic: QuicHandover,
    pub(crate) overrides: RuntimeOverrides,
    /// The operators' changes of rates and delays, each with its remaining time.
    pub(crate) shaping: Vec<ShapingOrder>,
    pub(crate) faults: Vec<FaultHandover>,
    pub(crate) maps: Vec<MapHandover>,
    pub(crate) handover_state: HandoverState,
}

#[derive(Debug, Default)]
pub(crate) struct QuicHandover {
    /// The sockets of each listener, by its configured address, in the workers' order.
    pub(crate) udp: Vec<(String, Vec<OwnedFd>)>,
    /// Channels to the workers of this process and earlier ones, by generation, newest first.
    pub(crate) processes: Vec<(u8, Vec<OwnedFd>)>,
}

/// A message to the new process. The sockets themselves are ancillary data.
#[derive(Serialize, Deserialize)]
#[serde(tag = "part", rename_all = "snake_case")]
enum HandoverMessage<C = ServerChange, B = HandoverPart> {
    Sockets {
        purpose: Purpose,
    },
    /// A separate part, because an older version does not know such a purpose and skips the part.
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
    Map {
        #[serde(rename = "bequest")]
        part: Box<MapHandover>,
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

/// The first message from the new process. Later messages are purges: see `cached/successor`.
const SERVING: &[u8] = b"serving";

/// The handover from the previous process or the service manager. Dropping it closes the sockets that were not taken.
#[derive(Debug, Default)]
pub struct Inheritance {
    sockets: Vec<(Purpose, OwnedFd)>,
    udp: Vec<(String, OwnedFd)>,
    pub(crate) processes: Vec<(u8, Vec<OwnedFd>)>,
    pub(crate) overrides: RuntimeOverrides,
    pub(crate) faults: Vec<FaultHandover>,
    pub(crate) maps: Vec<MapHandover>,
    pub(crate) handover_state: HandoverState,
    pub(crate) predecessor: Option<Predecessor>,
    /// The service manager's sockets, if there is no previous process.
    pub(crate) activated: Activated,
}

impl Inheritance {
    /// Whether other processes have opened listening sockets for this one.
    pub fn has_sockets(&self) -> bool {
        !self.sockets.is_empty() || self.activated.left().is_some()
    }
}

/// The previous process, which waits until this one serves.
#[derive(Debug)]
pub(crate) struct Predecessor(OwnedFd);

impl Inheritance {
    /// Receives the handover, if this process was started to take over, else the sockets of the service manager. Call
    /// it once, before any other file is opened. It fails if the previous process violates the protocol, or if the
    /// service manager passes an unsuitable socket.
    pub fn claim() -> Result<Self, String> {
        let of_predecessor = Self::of_predecessor()
            .map_err(|error| format!("cannot take over from the previous process: {error}"))?;
        match of_predecessor {
            Some(inherited) => Ok(inherited),
            None => Ok(Self { activated: Activated::claim()?, ..Self::default() }),
        }
    }

    fn of_predecessor() -> io::Result<Option<Self>> {
        let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().to_string());
        // Other children of such a process inherit the variable, but have another parent.
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
        let (mut faults, mut maps) = (Vec::new(), Vec::new());
        let (mut overrides, mut handover_state) = (RuntimeOverrides::default(), HandoverState::default());
        let mut buffer = vec![0; MESSAGE_BYTES_MAX];
        loop {
            let (count, received) = receive_message(&channel, &mut buffer)?;
            match serde_json::from_slice(&buffer[..count]).map_err(io::Error::from)? {
                HandoverMessage::Sockets { purpose } => {
                    sockets.extend(received.into_iter().map(|socket| (purpose.clone(), socket)));
                }
                HandoverMessage::Udp { listener } => {
                    udp.extend(received.into_iter().map(|socket| (listener.clone(), socket)));
                }
                HandoverMessage::Process { generation } => join(&mut processes, generation, received),
                HandoverMessage::Server { change } => overrides.insert(change),
                HandoverMessage::Shaping { order } => overrides.shaping.inherit(&order),
                HandoverMessage::Maintenance { switch } => overrides.maintenance.inherit(*switch),
                HandoverMessage::Fault { part } => faults.push(*part),
                HandoverMessage::Map { part } => maps.push(*part),
                HandoverMessage::Known { part } => handover_state.push(part),
                HandoverMessage::Unknown => {}
                HandoverMessage::End => {
                    let predecessor = Some(Predecessor(channel));
                    return Ok(Self {
                        sockets,
                        udp,
                        processes,
                        overrides,
                        faults,
                        maps,
                        handover_state,
                        predecessor,
                        activated: Activated::default(),
                    });
                }
            }
        }
    }

    pub(crate) fn take_udp(&mut self, listener: &str) -> Vec<OwnedFd> {
        self.udp.extract_if(.., |(of, _)| of == listener).map(|(_, socket)| socket).collect()
    }

    pub(crate) fn take_listening(&mut self, address: &ListenAddress) -> Vec<OwnedFd> {
        let of_predecessor = self.take(&Purpose::Clients(address.to_string()));
        if of_predecessor.is_empty() {
            self.activated.take(address).into_iter().collect()
        } else {
            of_predecessor
        }
    }

    pub(crate) fn take(&mut self, purpose: &Purpose) -> Vec<OwnedFd> {
        self.sockets.extract_if(.., |(of, _)| of == purpose).map(|(_, socket)| socket).collect()
    }
}

impl Predecessor {
    pub(crate) fn may_go(&self) {
        // It may have ended already.
        let _ = send(&self.0, SERVING, SendFlags::NOSIGNAL);
    }

    /// The channel to the previous process, which sends purges until it ends.
    pub(crate) fn into_channel(self) -> OwnedFd {
        self.0
    }
}

/// Merges the messages of a process with many workers.
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
    for part in &handover.maps {
        send_part(channel, &Given::Map { part: Box::new(part.clone()) }, &[])?;
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

type Given<'a> = HandoverMessage<&'a ServerChange, &'a HandoverPart>;

fn send_part(channel: &OwnedFd, part: &Given<'_>, sockets: &[BorrowedFd<'_>]) -> io::Result<()> {
    let text = serde_json::to_vec(part).map_err(io::Error::from)?;
    // The new process would reject such a message and not start. Sockets have short names.
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

#[derive(Debug)]
pub(crate) enum HandoverAnswer {
    Serving,
    /// The new process has ended, or sent another message.
    Nothing,
}

/// Waits until the new process serves, for at most `patience`.
pub(crate) fn word(channel: &OwnedFd, patience: Duration) -> io::Result<HandoverAnswer> {
    set_socket_timeout(channel, Timeout::Recv, Some(patience))?;
    let mut buffer = [0; 64];
    let (count, _) = recv(channel, &mut buffer, RecvFlags::empty())?;
    Ok(if &buffer[..count] == SERVING { HandoverAnswer::Serving } else { HandoverAnswer::Nothing })
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
            ..ShapingOrder::new(PlaceKind::Route, Some("/".to_owned()))
        };
        let faults = vec![FaultHandover::Unknown; 2];
        let handover = Handover {
            sockets,
            maps: Vec::new(),
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
        assert!(matches!(word(&here, PATIENCE), Ok(HandoverAnswer::Serving)));
        drop(inheritance);
        assert!(matches!(word(&here, PATIENCE), Ok(HandoverAnswer::Nothing)));
    }

    #[test]
    fn parts_that_are_too_long_for_a_message_are_left_out() {
        let (here, there) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .expect("a pair");
        let order = |rates| ShapingOrder {
            rate: Some(vec!["1MB/s".to_owned(); rates]),
            ..ShapingOrder::new(PlaceKind::Route, Some("/".to_owned()))
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
    fn parts_of_newer_versions_are_ignored() {
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
