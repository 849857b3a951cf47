//! The product: a reverse proxy, one thread a core.
//!
//! `start` takes a `Config` and returns at once; the modules below are in the order of a request. Nothing here reads
//! a file but the access log, and nothing but `control` knows of signals.

#![forbid(unsafe_code)]

/// The configuration, compiled for the path.
mod plan;
/// All that one core owns.
mod worker;
/// Sleep that many wake-ups are saved by.
mod gather;
/// The plan as one worker uses it.
mod snapshot;
/// Listening sockets and accepting.
mod listen;
/// A client's connection.
mod client;
/// Whom a connection is from: the PROXY protocol.
mod introduce;
/// Handshakes of clients that fail.
mod unshaken;
/// What a client's TLS says of it.
mod client_tls;
/// A client's connection that is passed on as it is.
mod layer4;
/// A client's connection over HTTP/2.
mod http2;
/// What is rare, and what need not wait.
mod aside;
/// What a running exchange needs, kept for the next.
mod lane;
/// The path of a request.
mod exchange;
/// What routes see of a request.
mod seen;
/// What a route asks of a request, and does with it.
mod policy;
/// Passwords, away from the workers.
mod verify;
/// The sending of a request's body beside what follows of it.
mod upload;
/// Servers and the connections to them.
mod upstream;
/// Idle connections to a server, and requests that wait for one.
mod pool;
/// Connections of HTTP/2 to a server, shared by many requests.
mod multiplex;
/// What is stored of responses.
mod cached;
/// Which server a request is tried on.
mod choose;
/// Who waits for a server with room.
mod line;
/// Whether it is tried once more.
mod retry;
/// Whether a switch of protocols is the one asked for.
mod switch;
/// One request to a server.
mod forward;
/// The one body pump.
mod relay;
/// Fields that are in no part of a message.
mod unwanted;
/// Bytes both ways.
mod tunnel;
/// Messages that are slowed down on purpose.
mod shaping;
/// What goes wrong on purpose, and with which requests.
mod faults;
/// How it goes wrong.
mod faulty;
/// How connections do.
mod broken;
/// Listeners that take none.
mod refusing;
/// Connections whose bytes come late.
mod late;
/// What the client is sent.
mod respond;
/// What the client is sent without a server.
mod answer;
/// The same for calls of gRPC.
mod grpc;
/// What can go wrong, and what is said of it.
mod failure;
/// What exactly was wrong, for the log.
mod explain;
/// Notes for the log.
mod record;
/// Time-outs.
mod deadline;
/// Waits that are precise.
mod alarm;
/// Buffers with room in front.
mod buffer;
/// What a message comes from and goes to.
mod socket;
/// TCP connections and pipes.
mod tcp;
/// Sockets in the file system.
mod unix;
/// TLS on a connection.
mod secure;
/// A stream of HTTP/2, as the path reads and writes it.
mod stream;
/// A connection of HTTP/2, as its streams share it.
mod session;
/// Names of servers.
mod resolve;
/// Active checks of servers.
mod probe;
/// Servers that are worse than the others.
mod ejection;
/// Certificates that change.
mod certificates;
/// A bound on memory.
mod pressure;
/// What operators have changed.
mod overlay;
/// From one configuration to the next.
mod change;
/// A small HTTP server for the control thread.
mod service;
/// What Prometheus asks for.
mod metrics;
/// Threads and notices.
mod control;
/// What it knows that the one that takes its place goes on with.
mod legacy;
/// What a process gives to that one.
mod handover;
/// Starting that one.
mod upgrade;
/// What the admin API tells, and takes.
mod admin;
/// What signals ask for.
mod signals;
/// What the service manager is told.
mod notify;
/// The chaos proxy, on its own.
pub mod chaos;

pub use admin::shaped;
pub use admin::stored;
pub use admin::told as status;
pub use control::{Reread, Running, Setup, StartError, speak, start, start_with};
pub use handover::Inheritance;
pub use resolve::unresolved;
pub use signals::run_until_signal;
