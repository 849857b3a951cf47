//! A client's connection over HTTP/2 (RFC 9113): each of its streams is an exchange of its own, on the one path.
//!
//! Framing, HPACK and the windows are those of `h2`; here are the limits that keep one connection from costing more than
//! it is worth to its client.

use std::cell::Cell;
use std::future::poll_fn;
use std::net::IpAddr;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::server::{Builder, Connection, SendResponse};
use h2::{Reason, RecvStream};
use http::{Request, Response, StatusCode};

use crate::buffer::TINY;
use crate::client::Client;
use crate::control::notice;
use crate::failure::Failure;
use crate::frames::{Frames, GATHER_MAX};
use crate::introduce::Introduced;
use crate::lane::Kind;
use crate::listen::Listening;
use crate::socket::Socket;
use crate::stream::Stream;
use crate::upstream::Permit;
use crate::windows;
use crate::worker::Worker;

/// Streams that a client may have open at once (RFC 9113 §6.5.2 recommends no fewer).
const STREAMS_MAX: u32 = 100;
/// What a client may send at first before the path has taken any of it, on all streams of a connection together.
const CONNECTION_WINDOW: u32 = 4 * windows::STREAM;
/// Of a stream's response, taken from the path and not yet sent.
const SEND_BUFFER: usize = GATHER_MAX;
/// What the heads of all streams that are under way take beyond the buffers that each has anyway.
const LONG_HEADS_MAX: usize = 192 * 1024;
/// Streams that we had to reset for what the client did wrong on them, in the life of a connection.
const PROVOKED_RESETS_MAX: usize = 64;
/// Streams that the client reset before they were looked at.
const EARLY_RESETS_MAX: usize = 64;

type Accepted = (Request<RecvStream>, SendResponse<Bytes>);

/// Serves a connection until it has ended. `early` is what was read of it already.
pub(crate) async fn serve(worker: Rc<Worker>, client: Client, early: Vec<u8>) {
    // The connection's own address is out of its streams' reach.
    let introduced = client.introduced.clone().or_else(|| Some(Introduced::by(&client.socket)));
    let Client { socket, address, port, is_trusted, identity, listening, is_secure, deadline, .. } = client;
    let frames = Frames::new(&worker, socket, early);
    let handshake = settings(&worker).handshake::<_, Bytes>(frames.clone());
    deadline.set(worker.snapshot().ticks.client_header);
    let Ok(Ok(connection)) = deadline.guard(handshake).await else { return };
    worker.counters.http2_connections.increment();
    let mut session = Session {
        worker: &worker,
        address,
        connection,
        frames: frames.clone(),
        listening: Rc::clone(&listening),
        deadline,
        active: Rc::default(),
        long_heads: Rc::default(),
        served: 0,
        is_closing: false,
    };
    while let Some((request, respond)) = session.accept().await {
        let (parts, body) = request.into_parts();
        let stream = match Stream::from_client(&parts, body, respond, frames.clone()) {
            Ok(stream) => stream,
            Err((respond, _)) => {
                refuse(respond);
                continue;
            }
        };
        let Some(share) = session.share_for(&stream) else { continue };
        session.count();
        let client = Client {
            socket: Socket::Stream(Box::new(stream)),
            address,
            port,
            introduced: introduced.clone(),
            kept: Cell::new(None),
            is_trusted,
            identity: identity.clone(),
            listening: Rc::clone(&listening),
            is_secure,
            deadline: worker.deadlines.deadline(),
            served: 0,
        };
        tokio::task::spawn_local(exchange(Rc::clone(&worker), client, share));
    }
}

fn settings(worker: &Worker) -> Builder {
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(STREAMS_MAX)
        .initial_window_size(windows::STREAM)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(worker.snapshot().head_limits.bytes as u32)
        .max_send_buffer_size(SEND_BUFFER)
        .max_local_error_reset_streams(Some(PROVOKED_RESETS_MAX))
        .max_pending_accept_reset_streams(EARLY_RESETS_MAX)
        .enable_connect_protocol();
    builder
}

/// A connection and what is watched of it.
struct Session<'a> {
    worker: &'a Worker,
    address: IpAddr,
    connection: Connection<Frames, Bytes>,
    frames: Frames,
    listening: Rc<Listening>,
    deadline: crate::deadline::Deadline,
    active: Rc<Cell<usize>>,
    long_heads: Rc<Cell<usize>>,
    /// Requests so far.
    served: u64,
    is_closing: bool,
}

/// What a stream takes up of its connection, for as long as it is there.
struct Share {
    _active: Permit,
    long_heads: Rc<Cell<usize>>,
    head: usize,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.long_heads.set(self.long_heads.get() - self.head);
    }
}

impl Session<'_> {
    /// The next request; `None` when the connection has ended.
    async fn accept(&mut self) -> Option<Accepted> {
        self.deadline.set_idle(self.worker.snapshot().ticks.keep_alive);
        poll_fn(|context| self.poll_accept(context)).await
    }

    /// One more request is served, which may be the last.
    fn count(&mut self) {
        self.served += 1;
        let limit = self.worker.snapshot().plan.config.limits.requests_per_connection;
        if limit.is_some_and(|limit| self.served >= limit) {
            self.close();
        }
    }

    /// RFC 9113 §6.8: what is under way is finished.
    fn close(&mut self) {
        if !self.is_closing {
            self.is_closing = true;
            self.connection.graceful_shutdown();
        }
    }

    /// The share of a stream, unless its head is one long one too many: then it is told that it may come again.
    fn share_for(&self, stream: &Stream) -> Option<Share> {
        let head = stream.text_len().saturating_sub(TINY);
        let long_heads = self.long_heads.get() + head;
        if long_heads > LONG_HEADS_MAX.max(head) {
            self.worker.counters.failure(Failure::Http2Excess as usize);
            stream.refuse();
            return None;
        }
        self.long_heads.set(long_heads);
        let long_heads = Rc::clone(&self.long_heads);
        Some(Share { _active: Permit::new(&self.active), long_heads, head })
    }

    fn poll_accept(&mut self, context: &mut Context<'_>) -> Poll<Option<Accepted>> {
        if !self.worker.keeps(&self.listening) {
            self.close();
        }
        loop {
            let connection = &mut self.connection;
            self.frames.adjust(u32::MAX, |window| {
                connection.set_initial_window_size(window)?;
                connection.set_target_window_size(window.max(CONNECTION_WINDOW));
                Ok(())
            });
            let accepted = self.connection.poll_accept(context);
            // What fails here is told to `h2` by its next call.
            let _ = self.frames.poll_send(context);
            if let Some(flood) = self.frames.flood() {
                self.note(flood);
                self.connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
                continue;
            }
            match accepted {
                Poll::Ready(Some(Ok(accepted))) => return Poll::Ready(Some(accepted)),
                Poll::Ready(Some(Err(error))) => {
                    match error.reason().filter(|_| error.is_library()) {
                        None | Some(Reason::NO_ERROR) => {}
                        Some(Reason::ENHANCE_YOUR_CALM) => self.note(Failure::Http2Excess),
                        Some(_) => self.worker.counters.failure(Failure::Http2Malformed as usize),
                    }
                    return Poll::Ready(None);
                }
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending if self.frames.resume() => {
                    // What came first is taken up before more comes.
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Poll::Pending => {}
            }
            if self.deadline.poll(context).is_pending() {
                return Poll::Pending;
            }
            let is_idle = self.active.get() == 0;
            if is_idle && self.is_closing {
                return Poll::Ready(None);
            }
            if is_idle {
                self.close();
                self.deadline.set_idle(self.worker.snapshot().ticks.client_header);
            } else {
                self.deadline.set_idle(self.worker.snapshot().ticks.keep_alive);
            }
        }
    }

    /// Counts and says why a connection is ended that does nothing but keep us busy.
    fn note(&self, failure: Failure) {
        self.worker.counters.failure(failure as usize);
        notice(&format!("{} was disconnected: {}", self.address, failure.facts().word));
    }
}

/// One stream: a lane serves it as it does a connection of HTTP/1.
async fn exchange(worker: Rc<Worker>, client: Client, _share: Share) {
    let mut lane = worker.lanes.take(&worker, Kind::Stream);
    lane.hand_over(client);
    drop(lane.served().await);
    worker.lanes.give(lane);
}

/// A request that no text of HTTP/1.1 says.
fn refuse(mut respond: SendResponse<Bytes>) {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::BAD_REQUEST;
    // The client may have gone meanwhile.
    let _ = respond.send_response(response, true);
}
