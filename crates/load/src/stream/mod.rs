//! Streams as a workload: server-sent events, WebSockets (echo and fan-out) and gRPC calls, in place of requests.
//!
//! The formats (`sse`, `websocket`, `grpc`), the figures of messages (`stamp`, `order`, `unanswered`) and the plan do
//! no I/O. Connections, threads, the schedule and the record are those of requests.

/// Settings of the streams.
mod plan;
/// Server-sent events. No I/O.
mod sse;
/// WebSocket frames and handshake. No I/O.
mod websocket;
/// gRPC messages and statuses. No I/O.
mod grpc;
/// Bytes that arrive in pieces. No I/O.
mod assembled;
/// Sender, number and time in a message. No I/O.
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
/// An HTTP/2 connection, shared by streams.
mod session;
/// An open stream.
mod pipe;
/// Opens a stream: sends the request, and checks the response.
mod open;
/// Received, lost and awaited messages of a stream.
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
pub use plan::{Call, MESSAGE_BYTES_MAX, StampFields, StreamMessage, StreamsPlan, Workload};
pub(crate) use tally::Tally;
pub use tally::{StreamCounts, StreamFigures};

use crate::error::Error;
use crate::plan::LoadPlan;
use crate::template::{LoadTemplate, Values};
use crate::worker::LoadWorker;
use session::SessionLink;
use stamp::Stamps;

/// State that all threads of a run with streams share.
#[derive(Debug)]
pub(crate) struct Prepared {
    plan: StreamsPlan,
    message: LoadTemplate,
    /// Whether messages are text, in the sense of WebSockets.
    is_text: bool,
    stamps: Stamps,
    /// Whether messages carry their number and their sender.
    is_numbered: bool,
    /// Fan-out: messages that each sender has sent.
    sent: Box<[AtomicU64]>,
    /// Fan-out: number of the first message of each sender in the measured window.
    first_measured: Box<[AtomicU64]>,
    /// Fan-out: number of senders that are done.
    ended: AtomicUsize,
}

impl Prepared {
    /// `None` for a plan of requests.
    pub(crate) fn new(plan: &LoadPlan) -> Result<Option<Self>, Error> {
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
pub(crate) fn completed(plan: &LoadPlan) -> Cow<'_, LoadPlan> {
    let (method, fields): (_, &[(&str, &str)]) = match plan.stream.as_deref() {
        None => return Cow::Borrowed(plan),
        Some(StreamsPlan { workload: Workload::Events, .. }) => {
            (None, &[("Accept", "text/event-stream"), ("Cache-Control", "no-store")])
        }
        Some(StreamsPlan { workload: Workload::Grpc { .. }, .. }) => (
            Some("POST"),
            &[("Content-Type", "application/grpc"), ("TE", "trailers"), ("grpc-accept-encoding", "identity")],
        ),
        Some(StreamsPlan { workload: Workload::Echo | Workload::FanOut { .. }, .. }) => (Some("GET"), &[]),
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

/// The part of the schedule that a thread has, and the number of parts; `None` if none of its streams sends.
pub(crate) fn turns(plan: &LoadPlan, thread: usize) -> Option<(usize, usize)> {
    let Some(streams) = &plan.stream else { return Some((thread, plan.threads)) };
    // Streams are dealt to the threads in turn.
    let connections = streams.workload.senders(plan.connections * plan.streams).div_ceil(plan.streams);
    let threads = plan.threads.min(connections);
    (streams.workload.sends() && thread < threads).then_some((thread, threads))
}

pub(crate) fn drive_all(worker: &Rc<LoadWorker>, connection: usize, streams: &mut JoinSet<()>) {
    let link = Rc::new(SessionLink::new(worker));
    let plan = &worker.shared.plan;
    for stream in 0..plan.streams {
        let number = (connection * plan.threads + worker.thread()) * plan.streams + stream;
        let place = converse::StreamNumber { local: connection * plan.streams + stream, number };
        streams.spawn_local(converse::drive(Rc::clone(&link), place));
    }
    if connection == 0 && worker.shared.streams.as_ref().is_some_and(|streams| !streams.sent.is_empty()) {
        streams.spawn_local(watchman::watch(Rc::clone(worker)));
    }
}

/// Records transferred bytes of the measured window.
fn transferred(worker: &LoadWorker, sent_bytes: u64, received_bytes: u64) {
    if worker.is_measured(Instant::now()) {
        worker.record.borrow_mut().transferred(sent_bytes, received_bytes);
    }
}
