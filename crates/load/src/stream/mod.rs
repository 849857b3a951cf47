//! Streams as a workload: server-sent events, WebSockets (echo and fan-out) and gRPC calls, in place of requests.
//!
//! The formats (`sse`, `websocket`, `grpc`), the figures of messages (`stamp`, `order`, `unanswered`) and the plan do no
//! I/O. Connections, threads, the schedule and the record are those of requests.

/// What a run does with streams.
mod plan;
/// Server-sent events. No I/O.
mod sse;
/// WebSocket frames and handshake. No I/O.
mod websocket;
/// gRPC messages and statuses. No I/O.
mod grpc;
/// Bytes that arrive in pieces. No I/O.
mod assembled;
/// Who sent a message, its number, and when. No I/O.
mod stamp;
/// Lost, repeated and reordered messages. No I/O.
mod order;
/// Messages that wait for their answer. No I/O.
mod unanswered;
/// Head of an HTTP/1.1 response. No I/O.
mod head;
/// Failures that only streams have.
mod failure;
/// Counts of a thread, and figures of a run. No I/O.
mod tally;
/// Prints the figures of streams.
pub(crate) mod text;
/// The HTTP/2 connection of some streams.
mod session;
/// An open stream.
mod pipe;
/// Opens a stream: the request, and what its response must be.
mod open;
/// What a stream has received, lost and waits for.
mod ledger;
/// A stream, from its opening to its end.
mod converse;
/// Ends a run whose receivers do not know when it is over.
mod watchman;

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::Instant;

use tokio::task::JoinSet;

pub(crate) use failure::StreamFailure;
pub(crate) use plan::check;
pub use plan::{Call, MESSAGE_BYTES_MAX, Message, StampFields, Streams, Workload};
pub(crate) use tally::Tally;
pub use tally::{Counts, StreamFigures};

use crate::error::Error;
use crate::plan::Plan;
use crate::template::{Template, Values};
use crate::worker::Worker;
use session::Link;
use stamp::Stamps;

/// What all threads of a run with streams share.
#[derive(Debug)]
pub(crate) struct Prepared {
    plan: Streams,
    message: Template,
    /// Whether messages are text, as WebSockets tell text from binary.
    is_text: bool,
    stamps: Stamps,
    /// Whether messages carry their number and their sender.
    is_numbered: bool,
    /// Fan-out: messages that each sender has sent.
    sent: Box<[AtomicU64]>,
    /// Fan-out: number of the first message of each sender in the measured window.
    first_measured: Box<[AtomicU64]>,
    /// Fan-out: senders that send no more.
    ended: AtomicUsize,
}

impl Prepared {
    /// What the streams of a plan share; `None` for requests.
    pub(crate) fn new(plan: &Plan) -> Result<Option<Self>, Error> {
        let Some(streams) = &plan.stream else { return Ok(None) };
        let senders = match streams.workload {
            Workload::FanOut { senders } => senders,
            _ => 0,
        };
        let (message, stamps) = (streams.message.template()?, Stamps::new(&streams.fields));
        let mut tried = Vec::new();
        message.render(&mut Values::of_stream(1, 7, 5, 0), &mut tried);
        let stamp = stamps.read(&tried);
        Ok(Some(Self {
            plan: (**streams).clone(),
            is_numbered: (stamp.sender, stamp.number) == (Some(7), Some(5)),
            message,
            stamps,
            is_text: !streams.message.is_hexadecimal && std::str::from_utf8(&streams.message.content).is_ok(),
            sent: (0..senders).map(|_| AtomicU64::new(0)).collect(),
            first_measured: (0..senders).map(|_| AtomicU64::new(u64::MAX)).collect(),
            ended: AtomicUsize::new(0),
        }))
    }
}

/// The plan with the method and the fields that its streams need. Given fields stay.
pub(crate) fn completed(plan: &Plan) -> Cow<'_, Plan> {
    let (method, fields): (_, &[(&str, &str)]) = match plan.stream.as_deref() {
        None => return Cow::Borrowed(plan),
        Some(Streams { workload: Workload::Events, .. }) => {
            (None, &[("Accept", "text/event-stream"), ("Cache-Control", "no-store")])
        }
        Some(Streams { workload: Workload::Grpc { .. }, .. }) => (
            Some("POST"),
            &[("Content-Type", "application/grpc"), ("TE", "trailers"), ("grpc-accept-encoding", "identity")],
        ),
        Some(Streams { workload: Workload::Echo | Workload::FanOut { .. }, .. }) => (Some("GET"), &[]),
    };
    let mut plan = plan.clone();
    if let Some(method) = method {
        plan.method = method.to_owned();
    }
    for (name, value) in fields {
        let is_given = |field: &String| {
            field.split(':').next().is_some_and(|given| given.trim().eq_ignore_ascii_case(name))
        };
        if !plan.headers.iter().any(is_given) {
            plan.headers.push(format!("{name}: {value}"));
        }
    }
    Cow::Owned(plan)
}

/// Which part of the schedule a thread has, and of how many; `None` if none of its streams sends.
pub(crate) fn turns(plan: &Plan, thread: usize) -> Option<(usize, usize)> {
    let Some(streams) = &plan.stream else { return Some((thread, plan.threads)) };
    // Stream by stream, the threads take turns.
    let connections = streams.workload.senders(plan.connections * plan.streams).div_ceil(plan.streams);
    let threads = plan.threads.min(connections);
    (streams.workload.sends() && thread < threads).then_some((thread, threads))
}

/// Starts the streams of a connection.
pub(crate) fn drive_all(worker: &Rc<Worker>, connection: usize, streams: &mut JoinSet<()>) {
    let link = Rc::new(Link::new(worker));
    let plan = &worker.shared.plan;
    for stream in 0..plan.streams {
        let number = (connection * plan.threads + worker.thread()) * plan.streams + stream;
        let place = converse::Place { local: connection * plan.streams + stream, number };
        streams.spawn_local(converse::drive(Rc::clone(&link), place));
    }
    if connection == 0 && worker.shared.streams.as_ref().is_some_and(|streams| !streams.sent.is_empty()) {
        streams.spawn_local(watchman::watch(Rc::clone(worker)));
    }
}

/// Records transferred bytes of the measured window.
fn transferred(worker: &Worker, sent_bytes: u64, received_bytes: u64) {
    if worker.is_measured(Instant::now()) {
        worker.record.borrow_mut().transferred(sent_bytes, received_bytes);
    }
}
