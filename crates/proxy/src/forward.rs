//! One request to a server: pick, connect, send, and read the head of the response; retries if that is safe. The upload of
//! the request's body goes on beside all later steps, until it has ended.

/// The proxy's own responses.
pub(crate) mod answer;
/// Answers to certificate authorities.
pub(crate) mod challenge;
/// The proxy's own responses to gRPC calls.
pub(crate) mod grpc;
/// Waits for the status of gRPC calls.
mod calls;
/// Sends the response to the client.
pub(crate) mod respond;
/// Sends a response in another content coding.
pub(crate) mod coded;
/// Translates calls of gRPC-Web.
pub(crate) mod web;
/// Requests of the proxy's own.
pub(crate) mod subrequest;
/// Asks another instance.
mod to_peer;
/// Reads the whole body of a request before a server is chosen.
mod buffered;
/// Copies requests for another upstream.
pub(crate) mod mirror;
/// Checks whether an upgrade is the one that the client asked for.
pub(crate) mod switch;
/// Applies the policies of a route to its requests and responses.
pub(crate) mod policies;
/// Decides whether a client is let in.
pub(crate) mod authenticate;
/// Asks authentication servers.
pub(crate) mod ask_auth;
/// Verifies passwords on separate threads.
pub(crate) mod verify;
/// Verifies tokens.
pub(crate) mod token;
/// Verifies signatures of bots.
pub(crate) mod bots;

use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use balance::{Room, Time, Work};
use config::{HostHeader, Protocol};
use http1::{ConnectionOptions, Framing, Method, Name, Parsed, RequestRewrite, TraceContext, Version, Via};
use telemetry::B3Form;

use crate::body::upload::{self, Until, Upload};
use crate::context::asking::{Asking, kept_target};
use crate::context::client::Client;
use crate::context::client_tls::ClientTls;
use crate::context::exchange::{Exchange, ExchangeContext, Purpose, RoutedRequest};
use crate::context::exchange_slot::{Memory, Request, Response};
use crate::context::exchange_state::{ExchangeState, Sent};
use crate::context::explain::INTERIM_MAX;
use crate::context::failure::{Failure, Party};
use crate::context::seen;
use crate::context::worker::Worker;
use crate::shaping::{Direction, Pace};
use crate::upstream::choose::Choice;
use crate::upstream::retry::{Attempts, Progress, Setback, Verdict, leave_aside};
use crate::upstream::{Admission, PickedServer, ServerConnection, Upstream};
use transport::buffer::{Buffer, SMALL};
use transport::cold::{cold, poll_once};
use transport::deadline::{Elapsed, Ticks};
use transport::endpoint::Endpoint;
use transport::tcp::Follows;

pub(crate) use to_peer::to_peer;

/// First read of a response whose body is likely to be spliced: little more than its head.
const HEAD_ALONE: usize = 1024;

/// How long the rest of a short body is waited for before what is there of it is passed on.
const MOMENT: Ticks = Ticks(1);

/// The connection of a response whose head is in the exchange slot's memory.
pub(crate) type Reply = Box<ServerConnection>;

/// Error: the client has given its request up.
pub(crate) struct Gone;

/// Waits for the server, until the client gives its request up (HTTP/2 only). A moved future would occupy its memory twice.
pub(crate) async fn unless_gone<T>(
    client: &Client,
    mut wait: Pin<&mut impl Future<Output = T>>,
) -> Result<T, Gone> {
    poll_fn(|context| match wait.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Ok(output)),
        Poll::Pending => client.socket.poll_gone(context).map(|()| Err(Gone)),
    })
    .await
}

/// What ends the wait for a server.
enum Heard {
    /// The number of bytes read from the server; 0 is the end.
    Read(io::Result<usize>),
    /// The client has given its request up.
    ClientGone,
    Elapsed,
}

/// Sends the request and reads the head of the final response; tries further servers while retries are permitted.
pub(crate) async fn forward(exchange: &mut Exchange<'_, '_>) -> Result<Reply, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let upstream = &ctx.snapshot.upstreams[routed.upstream];
    exchange.state.record.upstream = Some(routed.upstream);
    if let Some(buffering) = buffered::wanted(ctx, routed) {
        cold(|| buffered::receive(exchange, buffering)).await?;
    }
    let admission = let_in(ctx, routed, upstream, exchange.state)?;
    let mut attempts = attempts(ctx, upstream, routed);
    let mut first_piece_taken = prepare_body(ctx, upstream, routed, &attempts, &mut exchange.memory.request)?;
    exchange.state.record.first_piece_bytes = first_piece_taken.0;
    let mut choice = Choice::of_request(ctx, upstream, routed, &exchange.memory.request);
    let mut tried = Vec::new();
    let (mut last_failure, mut another) = (None::<(usize, Failure)>, None);
    let failure = loop {
        let picked =
            match another.take().or_else(|| choice.at_once(&tried, &mut exchange.state.record.detours)) {
                Some(picked) => picked,
                None => match cold(|| wait_for_server(ctx, &mut choice, &tried, exchange.state)).await {
                    Ok(picked) => picked,
                    Err(Failure::ClientGone) => break Failure::ClientGone,
                    // What the servers said that were asked tells more.
                    Err(failure) => break last_failure.map_or(failure, |(_, failure)| failure),
                },
            };
        if let Some((server, failure)) = last_failure.take() {
            note_retry(exchange, server, failure);
            first_piece_taken = calls::repeat(&mut exchange.memory.request, first_piece_taken);
        }
        let index = picked.server;
        let attempt = Attempt::new((ctx, routed), upstream, index, &attempts);
        exchange.state.record.attempt_began(routed.upstream, index, picked.since);
        let mut progress = Progress::default();
        let outcome = attempt.exchange(exchange.memory, exchange.state, &mut progress).await;
        let is_whole = |request: &Request| is_all_here(request, first_piece_taken);
        let failure = match outcome {
            Ok(mut reply) => {
                let status = exchange.memory.response.head.start.status;
                let (latency, now) = answered(ctx.worker, &picked, &reply.upload, progress);
                let told = calls::as_http(progress.call, status);
                exchange.state.record.server_changed(upstream.answered(&picked, told, latency, now));
                if let Some(setback) = attempts.repeats(status, progress.call) {
                    tried.push(index);
                    let repeats = || attempts.after(setback, is_whole(&exchange.memory.request));
                    another = elsewhere(&mut choice, &tried, exchange.state, repeats);
                }
                if another.is_none() {
                    exchange.memory.request.body.forget();
                    exchange.state.record.is_answered = true;
                    choice.settle(&picked, Some(&mut exchange.memory.response));
                    admission.end(Work::Done(latency), now);
                    reply.under_way = Some(picked.into_under_way());
                    return Ok(reply);
                }
                last_failure = Some((index, Failure::UpstreamStatus));
                continue;
            }
            Err(failure) => failure,
        };
        let setback = attempt.failed(&picked, failure, progress, (exchange.memory, exchange.state));
        match attempts.after(setback, is_whole(&exchange.memory.request)) {
            Verdict::GiveUp => break failure,
            Verdict::Elsewhere => leave_aside((upstream, &choice), &mut tried, index, (failure, progress)),
            Verdict::Afresh => {}
        }
        last_failure = Some((index, failure));
    };
    admission.end(work_of(failure), ctx.worker.coarse_time());
    Err(failure)
}

/// Notes that an attempt has failed and another one follows.
#[cold]
fn note_retry(exchange: &mut Exchange<'_, '_>, server: usize, failure: Failure) {
    exchange.state.record.retried(server, failure);
    if let Some(trace) = &mut exchange.memory.request.texts.trace {
        trace.attempts = trace.attempts.saturating_add(1);
    }
}

/// Whether what was read of a request's body can be sent once more.
fn is_all_here(request: &Request, first_piece_taken: (u64, bool)) -> bool {
    // What was read beyond the first piece is gone unless it is kept, be it no more than the end (RFC 9112 §7.1).
    request.body.taken() == first_piece_taken || request.body.is_kept()
}

/// What a failure tells of how long servers take.
#[cold]
fn work_of(failure: Failure) -> Work {
    let is_overrun = matches!(failure, Failure::UpstreamTimeout | Failure::QueueTimeout);
    if is_overrun { Work::Overrun } else { Work::Other }
}

/// Waits for a server that may be asked, for as long as the client wants to hear of it.
async fn wait_for_server(
    ctx: &ExchangeContext<'_>,
    choice: &mut Choice<'_>,
    tried: &[usize],
    state: &mut ExchangeState<'_>,
) -> Result<PickedServer, Failure> {
    let picked = {
        let next = pin!(choice.next(tried, &mut state.record.detours));
        unless_gone(ctx.client, next).await.unwrap_or(Err(Failure::ClientGone))?
    };
    // Nothing was sent yet: where others wait, half a close counts as a close, so that no server works for nobody.
    if ctx.client.socket.has_peer_closed() {
        choice.give_back(&picked);
        return Err(Failure::ClientGone);
    }
    Ok(picked)
}

/// Another server for a request whose status is to be tried again. Where none has room, what was said is the answer.
#[cold]
fn elsewhere(
    choice: &mut Choice<'_>,
    tried: &[usize],
    state: &mut ExchangeState<'_>,
    repeats: impl FnOnce() -> Verdict,
) -> Option<PickedServer> {
    let is_there = choice.has_untried(tried, Room::Now) && repeats() != Verdict::GiveUp;
    is_there.then(|| choice.at_once(tried, &mut state.record.detours)).flatten()
}

/// Lets a request in that may be passed on, unless there are too many.
fn let_in<'a>(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    upstream: &'a Upstream,
    state: &mut ExchangeState<'_>,
) -> Result<Admission<'a>, Failure> {
    if is_connect(ctx, routed) && !routed.wants_upgrade {
        // One of the protocols that are not passed on (RFC 9110 §7.8, §15.6.2).
        return Err(Failure::ProtocolRefused);
    }
    upstream.admit(ctx.worker).inspect_err(|_| state.record.detours.shed = Some("latency"))
}

/// Whether a request was a CONNECT with a protocol (RFC 8441 §4): over HTTP/2 nothing else asks for an upgrade.
fn is_connect(ctx: &ExchangeContext<'_>, routed: &RoutedRequest) -> bool {
    routed.connection.upgrade && ctx.client.socket.frames_itself()
}

/// The attempts of a request, by the route's own rules, else those of the upstream.
fn attempts<'a>(ctx: &ExchangeContext<'a>, upstream: &'a Upstream, routed: &RoutedRequest) -> Attempts<'a> {
    let own = routed.policies(ctx).and_then(|policies| policies.settings.retry.as_ref());
    let rules = own.unwrap_or(&upstream.plan.config.retry);
    let mut attempts = Attempts::new(ctx.worker, upstream, rules, routed.method);
    if routed.purpose == Purpose::Mirror {
        attempts.make_last();
    }
    attempts
}

/// Frames what is there of the body, so that it leaves with the head. Returns how far the body is taken with that.
fn prepare_body(
    ctx: &ExchangeContext<'_>,
    upstream: &Upstream,
    routed: &RoutedRequest,
    attempts: &Attempts<'_>,
    request: &mut Request,
) -> Result<(u64, bool), Failure> {
    if let Some(replay) = &mut request.replay {
        replay.lead(upstream.plan.config.protocol == Protocol::Http1, &mut request.first_piece);
        request.keep_head();
        return Ok(request.body.taken());
    }
    if attempts.repeats_calls() {
        calls::keep(request);
    }
    let is_chunked = routed.framing == Framing::Chunked && upstream.plan.config.protocol == Protocol::Http1;
    upload::begin(ctx, routed, request, is_chunked);
    request.body.copy_to(request.tee.take());
    if routed.framing == Framing::None {
        return Ok(request.body.taken());
    }
    request.keep_head();
    if let Err(stop) = request.body.take_in(&mut request.buffer) {
        upload::outcome(Err(stop), Until::Head)?;
    }
    let count = request.body.unsent();
    request.first_piece.extend_from_slice(&request.buffer.filled()[..count]);
    request.body.sent(&mut request.buffer, count);
    Ok(request.body.taken())
}

/// How long a server took to answer, where that is timed, and the time now.
fn answered(
    worker: &Worker,
    picked: &PickedServer,
    upload: &Upload,
    progress: Progress,
) -> (Option<Duration>, Time) {
    let Some(since) = picked.since else { return (None, worker.coarse_time()) };
    let answered_at = progress.first_byte_at.unwrap_or_else(Instant::now);
    let since = upload.waits_for_server_since(since);
    (since.map(|since| answered_at.saturating_duration_since(since)), worker.time_of(answered_at))
}

/// The length of a short response of which a part is here: whole it leaves in one write, or a clear status does instead.
fn rest_is_awaited(connection: &ServerConnection, response: &mut Response) -> Option<usize> {
    let Framing::Length(length) = connection.framing else { return None };
    let buffer = &mut response.buffer;
    let whole = length.saturating_add(response.head.len as u64);
    let is_here = whole <= buffer.len() as u64;
    let fits = whole <= (buffer.len() + buffer.spare().len()) as u64;
    (!is_here && fits && connection.upload.is_done()).then_some(whole as usize)
}

/// Why nothing of a request could be sent.
#[cold]
fn unsent(connection: &ServerConnection, error: &io::Error, progress: &mut Progress) -> Failure {
    // What HTTP/2 and HTTP/3 have no words for.
    if error.kind() == ErrorKind::InvalidData {
        return Failure::BadRequest;
    }
    broken_off(connection, Some(error), progress)
}

/// Why there is no response: without an error the connection has just ended.
#[cold]
fn broken_off(connection: &ServerConnection, error: Option<&io::Error>, progress: &mut Progress) -> Failure {
    progress.is_untouched = error.is_some_and(|error| error.kind() == ErrorKind::ConnectionRefused);
    progress.is_stale = connection.has_ended() && (connection.is_reused || progress.is_untouched);
    match error.map(io::Error::kind) {
        // RFC 8446 §6.1: an end that nobody has sealed is an end all the same.
        None | Some(ErrorKind::UnexpectedEof) => Failure::UpstreamClosed,
        Some(_) => Failure::UpstreamReset,
    }
}

/// One try with one server.
struct Attempt<'a> {
    ctx: &'a ExchangeContext<'a>,
    routed: &'a RoutedRequest,
    upstream: &'a Upstream,
    index: usize,
    /// Whether a pooled connection may be used, of those that carry one exchange at a time.
    may_reuse: bool,
    /// Whether the status of a gRPC call may lead to a retry.
    reads_calls: bool,
    /// How long the server may take for its first word.
    patience: Ticks,
}

impl<'a> Attempt<'a> {
    fn new(
        (ctx, routed): (&'a ExchangeContext<'a>, &'a RoutedRequest),
        upstream: &'a Upstream,
        index: usize,
        attempts: &Attempts<'_>,
    ) -> Self {
        let (may_reuse, reads_calls) = (attempts.may_reuse(), attempts.repeats_calls());
        let patience = routed.ticks(ctx).upstream_first_byte;
        Self { ctx, routed, upstream, index, may_reuse, reads_calls, patience }
    }

    /// It came to nothing.
    #[cold]
    fn failed(
        &self,
        picked: &PickedServer,
        failure: Failure,
        progress: Progress,
        (memory, state): (&mut Memory, &mut ExchangeState<'_>),
    ) -> Setback {
        state.record.attempt_failed(failure);
        state.record.explain(memory, failure);
        let setback = Setback::Failed(failure, progress);
        let is_its_fault = setback.blames_server() && failure.facts().party == Party::Upstream;
        state.record.server_changed(self.upstream.failed(self.ctx.worker, picked, failure, is_its_fault));
        setback
    }

    async fn exchange(
        &self,
        memory: &mut Memory,
        state: &mut ExchangeState<'_>,
        progress: &mut Progress,
    ) -> Result<Reply, Failure> {
        let mut connection = match self.pooled() {
            Some(connection) => connection,
            None => {
                let connect = async {
                    let connect = pin!(self.connect(state));
                    unless_gone(self.ctx.client, connect).await
                };
                cold(|| connect).await.unwrap_or(Err(Failure::ClientGone))?
            }
        };
        let Memory { request, response, .. } = memory;
        response.buffer.clear();
        response.added.clear();
        self.render(request)?;
        let is_done = request.is_done_for(&connection.socket);
        let follows = if is_done { Follows::End } else { Follows::Nothing };
        let pace = Pace::new(Direction::Up, self.ctx.worker);
        pace.pass(request.out.len() - request.first_piece.len());
        let sent = self.send_at_once(&connection, &request.out, follows, &pace, progress)?;
        if sent < request.out.len() {
            cold(|| self.send(&connection, &request.out[sent..], follows, &pace, progress)).await?;
        }
        state.record.upstream_bytes_sent += request.out.len() as u64;
        // What is repeated is written anew.
        request.out.clear();
        self.ctx.worker.buffers.warm_text(&mut request.out);
        if is_done {
            self.ctx.worker.buffers.wait(&mut request.buffer);
            self.receive(&connection, response, state, progress).await?;
        } else {
            let deadline = self.ctx.worker.deadlines.deadline();
            connection.upload = match &request.replay {
                None => Upload::going_on(deadline, pace, self.is_held(request)),
                Some(_) => Upload::of_kept(deadline, pace),
            };
            let receive = pin!(self.receive(&connection, response, state, progress));
            connection
                .upload
                .beside(self.ctx, self.routed, &connection, request, Until::Head, receive)
                .await?;
        }
        self.read_framing(&mut connection, request, response)?;
        if let Some(whole) = rest_is_awaited(&connection, response) {
            self.settle(&connection, response, whole).await?;
        }
        if self.reads_calls {
            progress.call = cold(|| calls::status(self.ctx, &connection, response)).await?;
        }
        Ok(connection)
    }

    /// Whether the client may wait for the server's word before it sends its body, of which nothing is here.
    fn is_held(&self, request: &Request) -> bool {
        let expects = || request.head.value(request.head_bytes(), Name::Expect);
        // RFC 9110 §10.1.1: no expectation of an HTTP/1.0 client counts.
        request.body.taken() == (0, false)
            && request.buffer.is_empty()
            && self.routed.version != Version::Http10
            && expects().is_some_and(|value| value.eq_ignore_ascii_case(b"100-continue"))
    }

    /// A connection that is there already.
    fn pooled(&self) -> Option<Reply> {
        let server = &self.upstream.servers[self.index];
        let pooled = match self.upstream.plan.config.protocol {
            Protocol::Http1 if !self.may_reuse => None,
            Protocol::Http1 => {
                let may_be_repeated = self.routed.method.is_idempotent();
                server.pooled(self.ctx.worker, self.ctx.client, may_be_repeated)
            }
            // Those that have ended are not among them.
            Protocol::Http2 | Protocol::Http3 => server.stream(),
        };
        if pooled.is_some() {
            self.ctx.worker.counters.upstream_reuses.increment();
        }
        pooled
    }

    async fn connect(&self, state: &mut ExchangeState<'_>) -> Result<Reply, Failure> {
        let ExchangeContext { worker, client, .. } = *self.ctx;
        let server = &self.upstream.servers[self.index];
        let connection = match self.upstream.plan.config.protocol {
            Protocol::Http1 if self.may_reuse => {
                server.connect_or_reuse(worker, client, self.routed.method.is_idempotent()).await
            }
            // Behind pointers: making a connection takes much room, which waiting for one does not.
            Protocol::Http1 => cold(|| server.connect(worker, client)).await,
            Protocol::Http2 | Protocol::Http3 => {
                let connect = cold(|| server.connect_for_streams(worker, &client.deadline));
                to_peer::in_time(self, connect).await
            }
        };
        let is_reused = connection.as_ref().is_ok_and(|connection| connection.is_reused);
        if is_reused {
            worker.counters.upstream_reuses.increment();
        }
        state.record.connected(connection.is_ok(), is_reused);
        connection
    }

    /// The head as this server shall see it, and the first piece of the body behind it.
    fn render(&self, request: &mut Request) -> Result<(), Failure> {
        if let Some(hop) = request.texts.hop.take() {
            request.out = hop;
            return Ok(());
        }
        if let Some(replay) = &mut request.replay {
            replay.restart();
        }
        let own_authority = || Some(self.upstream.plan.servers[self.index].authority.as_bytes());
        let names_no_host = self.routed.target.authority == http1::Span::default();
        let host = match &self.upstream.plan.config.host {
            HostHeader::Pass if !names_no_host => None,
            HostHeader::Pass | HostHeader::Server => own_authority(),
            HostHeader::Set(host) => Some(host.as_bytes()),
        };
        let client = self.ctx.client;
        let chain = seen::chain(self.ctx, &request.head, request.head_bytes());
        let tracing = self.ctx.snapshot.plan.tracing.as_deref();
        let (parent, b3_lines);
        let trace = match (tracing, &request.texts.trace) {
            (Some(tracing), Some(trace)) => {
                parent = trace.parent_line();
                let b3 = match tracing.b3() {
                    B3Form::Off => b"",
                    form => {
                        b3_lines = trace.b3_lines(form);
                        b3_lines.bytes()
                    }
                };
                Some(TraceContext { parent: &parent, b3, keeps_state: trace.keeps_state() })
            }
            _ => None,
        };
        let rewrite = |edits| RequestRewrite {
            trace,
            path_and_query: None,
            edits,
            added: client.tls.as_deref().map_or(b"", ClientTls::lines),
            target: &self.routed.target,
            connection: self.routed.connection,
            framing: request.replay.as_ref().map_or(self.routed.framing, |replay| replay.framing()),
            expects: request.replay.is_none(),
            wants_upgrade: self.routed.wants_upgrade,
            client: http1::Client { address: client.address, scheme: seen::scheme_of_peer(self.ctx), chain },
            via: Via::Own,
            host,
        };
        let mut out = std::mem::take(&mut request.out);
        out.clear();
        self.ctx.worker.buffers.warm_text(&mut out);
        let outcome = match self.routed.policies(self.ctx) {
            None => {
                let asking = Asking::of(request.texts.conditions.as_deref(), false, None, None);
                let edits = asking.as_ref().map(|asking| asking as &dyn http1::Edits);
                let path_and_query = kept_target(self.routed, &request.texts);
                let rewrite = RequestRewrite { path_and_query, ..rewrite(edits) };
                http1::write_request(&mut out, &request.head, request.head_bytes(), &rewrite);
                Ok(())
            }
            Some(policies) => {
                let server = &self.upstream.plan.servers[self.index].authority;
                let rewrite = rewrite(None);
                policies::write_request(self.ctx, policies, self.routed, server, request, rewrite, &mut out)
            }
        };
        out.extend_from_slice(&request.first_piece);
        request.out = out;
        outcome
    }

    /// Sends what leaves without a wait: nearly always all. Says how much that is.
    fn send_at_once(
        &self,
        connection: &ServerConnection,
        bytes: &[u8],
        follows: Follows,
        pace: &Pace,
        progress: &mut Progress,
    ) -> Result<usize, Failure> {
        if !pace.is_free(self.ctx.worker) {
            return Ok(0);
        }
        match poll_once(|context| connection.socket.poll_write(context, bytes, follows)) {
            Some(Ok(count)) => {
                progress.has_sent = true;
                Ok(count)
            }
            Some(Err(error)) => Err(unsent(connection, &error, progress)),
            None => Ok(0),
        }
    }

    async fn send(
        &self,
        connection: &ServerConnection,
        mut bytes: &[u8],
        follows: Follows,
        pace: &Pace,
        progress: &mut Progress,
    ) -> Result<(), Failure> {
        while !bytes.is_empty() {
            let allowed =
                poll_fn(|context| pace.poll_allowance(context, &self.routed.place(self.ctx), bytes.len()))
                    .await;
            let follows = if allowed < bytes.len() { Follows::Nothing } else { follows };
            let write = connection.socket.write(&bytes[..allowed], follows);
            match self
                .ctx
                .client
                .deadline
                .within(self.routed.ticks(self.ctx).upstream_first_byte, write)
                .await
            {
                Ok(Ok(count)) => {
                    bytes = &bytes[count..];
                    pace.sent(count);
                }
                // A server may answer before it has read all, and close: what it said is still to be read.
                Ok(Err(_)) if progress.has_sent => return Ok(()),
                Ok(Err(error)) => return Err(unsent(connection, &error, progress)),
                Err(Elapsed) => return Err(Failure::UpstreamTimeout),
            }
            progress.has_sent = true;
        }
        Ok(())
    }

    /// Reads heads until the final one; interim ones are passed on (RFC 9110 §15.2).
    async fn receive(
        &self,
        connection: &ServerConnection,
        response: &mut Response,
        state: &mut ExchangeState<'_>,
        progress: &mut Progress,
    ) -> Result<(), Failure> {
        let mut limit = self.patience;
        for _ in 0..INTERIM_MAX {
            self.receive_head(connection, response, progress, limit).await?;
            progress.first_byte_at = state.record.first_byte();
            match response.head.start.status {
                // RFC 9110 §7.8: a server switches only to what it was asked for.
                101 if self.routed.wants_upgrade => return Ok(()),
                101 => return Err(Failure::UpstreamSwitch),
                100..=199 => {
                    // RFC 9110 §15.2: an HTTP/1.0 client knows none.
                    if self.routed.version != Version::Http10 {
                        progress.has_answered = true;
                        state.sent = Sent::Interim;
                        respond::interim(self.ctx, self.routed, response).await?;
                        state.sent = Sent::Nothing;
                        if response.head.start.status == 100 {
                            connection.upload.begin();
                        }
                    }
                    response.buffer.consume(response.head.len);
                    limit = self.routed.ticks(self.ctx).upstream_first_byte;
                }
                // RFC 9110 §9.3.6: a success would tell the client that the protocol is spoken. The server did nothing wrong.
                200..=299 if is_connect(self.ctx, self.routed) => return Err(Failure::NotUpgraded),
                _ => return Ok(()),
            }
        }
        Err(Failure::UpstreamInterims)
    }

    async fn receive_head(
        &self,
        connection: &ServerConnection,
        response: &mut Response,
        progress: &mut Progress,
        limit: Ticks,
    ) -> Result<(), Failure> {
        let limits = &self.ctx.snapshot.head_limits;
        let deadline = &self.ctx.client.deadline;
        response.head.clear();
        let mut is_armed = false;
        let mut is_uploading = connection.upload.is_under_way();
        loop {
            if !response.buffer.is_empty() {
                match response.head.parse(response.buffer.filled(), limits) {
                    Ok(Parsed::Complete) => {
                        match connection.socket {
                            Endpoint::Stream(_) => response.head.start.version = Version::Http2,
                            Endpoint::Http3(_) => response.head.start.version = Version::Http3,
                            Endpoint::Connection(_) | Endpoint::Detached => {}
                        }
                        return Ok(());
                    }
                    Ok(Parsed::Partial) => {}
                    Err(error) => return Err(Failure::of_response(error)),
                }
                if response.buffer.spare().is_empty() {
                    response.buffer.compact();
                }
                if response.buffer.spare().is_empty() {
                    self.ctx.worker.buffers.grow(&mut response.buffer);
                }
            }
            if !is_armed {
                deadline.set(limit);
                is_armed = true;
            }
            let client = &self.ctx.client.socket;
            let heard = poll_fn(|context| match self.poll_read(context, connection, &mut response.buffer) {
                Poll::Ready(read) => Poll::Ready(Heard::Read(read)),
                Poll::Pending if client.poll_gone(context).is_ready() => Poll::Ready(Heard::ClientGone),
                Poll::Pending => {
                    let was_uploading = is_uploading;
                    is_uploading = connection.upload.is_under_way();
                    if was_uploading && !is_uploading {
                        // The server's time begins when it has the whole request.
                        deadline.set(limit);
                    }
                    deadline.poll(context).map(|()| Heard::Elapsed)
                }
            });
            match heard.await {
                Heard::Read(Ok(count)) if count > 0 => response.buffer.advance(count),
                Heard::Read(read) => {
                    let failure = broken_off(connection, read.err().as_ref(), progress);
                    let wrong = connection.socket.wrong();
                    let failure = wrong.as_ref().map_or(failure, |wrong| match wrong.is_too_large {
                        true => Failure::UpstreamHeadTooLarge,
                        false => Failure::UpstreamMalformed,
                    });
                    response.wrong = wrong.map(|wrong| wrong.text);
                    return Err(failure);
                }
                Heard::ClientGone => return Err(Failure::ClientGone),
                Heard::Elapsed if is_uploading => is_armed = false,
                Heard::Elapsed => return Err(Failure::UpstreamTimeout),
            }
        }
    }

    /// Reads once there is something: who waits has no buffer of any size; a stream only where what is read can go on.
    fn poll_read(
        &self,
        context: &mut Context<'_>,
        connection: &ServerConnection,
        buffer: &mut Buffer,
    ) -> Poll<io::Result<usize>> {
        if buffer.is_empty() {
            let buffers = &self.ctx.worker.buffers;
            if connection.socket.poll_readable(context)?.is_pending() {
                buffers.wait(buffer);
                return Poll::Pending;
            }
            if !buffer.is_of_stream() {
                buffers.ready(buffer);
            } else if !self.ctx.client.socket.is_crowded() {
                self.ctx.worker.buffers.grow_to(buffer, SMALL);
            }
        }
        let spare = buffer.spare();
        let room = if connection.expects_long { spare.len().min(HEAD_ALONE) } else { spare.len() };
        connection.socket.poll_read(context, &mut spare[..room])
    }

    /// Waits a moment for the rest of a short body, until so many bytes are there.
    async fn settle(
        &self,
        connection: &ServerConnection,
        response: &mut Response,
        whole: usize,
    ) -> Result<(), Failure> {
        let buffer = &mut response.buffer;
        let deadline = &self.ctx.client.deadline;
        // One moment for all of it, in however many pieces it comes.
        deadline.set(MOMENT);
        while buffer.len() < whole {
            let read = connection.socket.read(buffer.spare());
            match deadline.guard(read).await {
                Ok(Ok(count)) if count > 0 => buffer.advance(count),
                Ok(_) => return Err(Failure::UpstreamTruncated),
                Err(Elapsed) => return Ok(()),
            }
        }
        Ok(())
    }

    /// Decides what follows the head.
    fn read_framing(
        &self,
        connection: &mut ServerConnection,
        request: &Request,
        response: &Response,
    ) -> Result<(), Failure> {
        let bytes = response.buffer.filled();
        let head = &response.head;
        let options = ConnectionOptions::of_response(head, bytes).map_err(|_| Failure::UpstreamFraming)?;
        connection.framing = if head.start.status == 101 {
            let made_key = self.ctx.client.socket.frames_itself();
            if !switch::is_asked_for(request, response, options, made_key) {
                return Err(Failure::UpstreamSwitch);
            }
            Framing::None
        } else {
            http1::response_framing(head, bytes, self.routed.method == Method::Head)
                .map_err(|_| Failure::UpstreamFraming)?
        };
        // A stream is for one exchange.
        connection.persists = options.persists(head.start.version)
            && connection.framing != Framing::UntilClose
            && !connection.socket.frames_itself();
        connection.options = options;
        (connection.upstream, connection.server) = (self.routed.upstream, self.index);
        Ok(())
    }
}
