//! Sends a request to a server: pick, connect, send, and read the head of the response; retries if that is safe. The
//! upload of the request's body continues beside all later steps, until it has ended.

/// Chooses the server for a request.
pub(crate) mod choose;
/// Decides whether a request is retried.
pub(crate) mod retry;
/// Waits for the gRPC status of a response.
mod calls;
/// Describes how servers end connections and streams before their response.
mod endings;
/// Sends the response to the client.
pub(crate) mod respond;
/// Sends a response in another content coding.
pub(crate) mod coded;
/// Tunnels: bytes both ways, after an upgrade or CONNECT.
pub(crate) mod tunnel;
/// Sends the body of a request beside the other steps.
pub(crate) mod upload;
/// Restores entity tags that the proxy has weakened.
pub(crate) mod tags;
/// Translates gRPC-Web calls.
pub(crate) mod web;
/// Sends a request to another instance.
mod to_peer;
/// Reads the whole body of a request before a server is chosen.
mod buffered;
/// Finds the script of a FastCGI request.
pub(crate) mod script;
/// Makes the records of a FastCGI request.
mod records;
/// Framing of requests and responses.
mod framing;
/// Waits that end with the client's request, or with its time.
mod unless;
/// Classifies failed requests for the adaptive limit.
mod work;
/// Checks whether an upgrade is the one that the client asked for.
pub(crate) mod switch;
/// Asks another upstream after an error.
mod fallback;
/// Files that servers name in place of a body.
mod accel;

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use balance::{Room, Time, Work};
use config::{HostHeader, Protocol};
use http1::{BodyFraming, HttpVersion, Name, Parsed, RequestRewrite, TraceContext, Via};
use telemetry::B3Form;

use crate::body::upload::{Until, Upload};
use crate::context::client::framed_version;
use crate::context::client_tls::ClientTls;
use crate::context::exchange_slot::{CurrentRequest, CurrentResponse, SlotMemory};
use crate::context::routed::{ExchangeContext, RoutedRequest};
use crate::context::seen;
use crate::context::worker::Worker;
use crate::exchange::{Exchange, ExchangeState, SentProgress};
use crate::failure::{Failure, Party};
use crate::forward::choose::Choice;
use crate::forward::endings::{broken_off, ended, unsent};
use crate::forward::retry::{AttemptProgress, Attempts, RetryVerdict, Setback, leave_aside};
use crate::outgoing::asking::{AuthRequestEdits, kept_target};
use crate::outgoing::edits;
use crate::record::explain::INTERIM_MAX;
use crate::shaping::{Direction, Pace};
use crate::upstream::{Admission, PickedServer, ServerConnection, WorkerUpstream};
use transport::buffer::{Buffer, SMALL};
use transport::cold::{cold, poll_once};
use transport::deadline::{Elapsed, Ticks};
use transport::tcp::Follows;

pub(crate) use fallback::forward;
pub(crate) use to_peer::to_peer;
use unless::unless_overdue;
pub(crate) use unless::{RequestGivenUp, unless_gone};

/// First read of a response whose body is likely to be spliced: little more than the head, because bytes read here must
/// be copied.
const HEAD_ALONE: usize = 1024;

/// How long the rest of a short body is awaited before the available part is passed on.
const MOMENT: Ticks = Ticks(1);

/// The server connection of a response whose head is in the exchange slot's memory.
pub(crate) type Reply = Box<ServerConnection>;

/// Event that ends the wait for a server.
enum Heard {
    /// The number of bytes read from the server; 0 means that the connection has ended.
    Read(io::Result<usize>),
    /// The client has cancelled its request.
    ClientGone,
    Elapsed,
}

/// Sends the request to the upstream and reads the head of the final response; tries further servers while retries are
/// permitted. Called for routes without `on_status`, and by `fallback` for the others.
pub(crate) async fn to_upstream(exchange: &mut Exchange<'_, '_>) -> Result<Reply, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let upstream = &ctx.snapshot.upstreams[routed.upstream.get()];
    exchange.state.record.upstream = Some(routed.upstream.get());
    prepare(exchange, upstream).await?;
    let admission = admit(ctx, routed, upstream, exchange.state)?;
    let mut attempts = Attempts::of_request(ctx, upstream, routed);
    let mut first_piece_taken = prepare_body(ctx, upstream, routed, &attempts, &mut exchange.memory.request)?;
    exchange.state.record.first_piece_bytes = first_piece_taken.0;
    let mut choice = Choice::of_request(ctx, upstream, routed, &exchange.memory.request);
    let mut tried = Vec::new();
    let (mut last_failure, mut another) = (None::<(usize, Failure)>, None);
    let (failure, work) = loop {
        let picked =
            match another.take().or_else(|| choice.at_once(&tried, &mut exchange.state.record.detours)) {
                Some(picked) => picked,
                None => match cold(|| wait_for_server(ctx, &mut choice, &tried, exchange.state)).await {
                    Ok(picked) => picked,
                    Err(failure) => break work::without_server(failure, last_failure),
                },
            };
        if let Some((server, failure)) = last_failure.take() {
            note_retry(exchange, server, failure);
            first_piece_taken = calls::repeat(&mut exchange.memory.request, first_piece_taken);
        }
        let index = picked.server;
        let attempt = Attempt::new(ctx, routed, upstream, index, &attempts);
        exchange.state.record.attempt_began(routed.upstream.get(), index, picked.since);
        let mut progress = AttemptProgress::default();
        let outcome = attempt.run(exchange.memory, exchange.state, &mut progress).await;
        let is_whole = |request: &CurrentRequest| is_all_here(request, first_piece_taken);
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
        let setback = attempt.failed(&picked, failure, progress, exchange.memory, exchange.state);
        match attempts.after(setback, is_whole(&exchange.memory.request)) {
            RetryVerdict::GiveUp => break work::given_up(failure, progress.waits_for_server),
            RetryVerdict::Elsewhere => leave_aside(&attempts, &choice, &mut tried, index, failure, progress),
            RetryVerdict::Afresh => {}
        }
        last_failure = Some((index, failure));
    };
    admission.end(work, ctx.worker.coarse_time());
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

/// Whether all that was read of the request's body can be sent again. Checked before a retry.
fn is_all_here(request: &CurrentRequest, first_piece_taken: (u64, bool)) -> bool {
    // Anything read after the first piece is lost unless it is kept, even the final chunk (RFC 9112 §7.1).
    request.body.taken() == first_piece_taken || request.body.is_kept()
}

/// Waits for a server that may be asked, for as long as the client wants to hear of it and the request has time.
async fn wait_for_server(
    ctx: &ExchangeContext<'_>,
    choice: &mut Choice<'_>,
    tried: &[usize],
    state: &mut ExchangeState<'_>,
) -> Result<PickedServer, Failure> {
    let picked = {
        let next = pin!(choice.next(tried, &mut state.record.detours));
        let next = pin!(unless_overdue(ctx.client, next));
        unless_gone(ctx.client, next).await.unwrap_or(Err(Failure::ClientGone))?
    };
    // Nothing was sent yet: while others wait, a half-closed client counts as gone, so that no server works in vain.
    if ctx.client.socket.has_peer_closed() {
        choice.give_back(&picked);
        return Err(Failure::ClientGone);
    }
    Ok(picked)
}

/// Finds the script of a FastCGI request, and reads a body that is buffered.
#[inline]
async fn prepare(exchange: &mut Exchange<'_, '_>, upstream: &WorkerUpstream) -> Result<(), Failure> {
    if upstream.plan.config.protocol == Protocol::Fastcgi {
        script::prepare(exchange).await?;
    }
    match buffered::wanted(exchange.ctx, exchange.routed) {
        // The body is kept already if another upstream is asked again.
        Some(buffering) if exchange.memory.request.replay.is_none() => {
            cold(|| buffered::receive(exchange, buffering)).await
        }
        _ => Ok(()),
    }
}

/// Returns another server for a request whose status permits a retry. If no other has room, the client gets this
/// response.
#[cold]
fn elsewhere(
    choice: &mut Choice<'_>,
    tried: &[usize],
    state: &mut ExchangeState<'_>,
    repeats: impl FnOnce() -> RetryVerdict,
) -> Option<PickedServer> {
    let is_there = choice.has_untried(tried, Room::Now) && repeats() != RetryVerdict::GiveUp;
    is_there.then(|| choice.at_once(tried, &mut state.record.detours)).flatten()
}

/// Checks that a request may be forwarded, and the limits on concurrent requests. Called before a server is chosen.
fn admit<'a>(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    upstream: &'a WorkerUpstream,
    state: &mut ExchangeState<'_>,
) -> Result<Admission<'a>, Failure> {
    if is_connect(ctx, routed) && !routed.wants_upgrade {
        // A protocol that the proxy does not forward (RFC 9110 §7.8, §15.6.2).
        return Err(Failure::ProtocolRefused);
    }
    upstream.admit(ctx.worker.coarse_time()).inspect_err(|_| state.record.detours.shed = Some("latency"))
}

/// Whether a request was an extended CONNECT (RFC 8441 §4): only that asks for an upgrade over HTTP/2.
fn is_connect(ctx: &ExchangeContext<'_>, routed: &RoutedRequest) -> bool {
    routed.connection.upgrade && ctx.client.socket.frames_itself()
}

/// Frames the part of the body that has arrived, so that it is sent with the head. Returns the progress of the body
/// after that.
fn prepare_body(
    ctx: &ExchangeContext<'_>,
    upstream: &WorkerUpstream,
    routed: &RoutedRequest,
    attempts: &Attempts<'_>,
    request: &mut CurrentRequest,
) -> Result<(u64, bool), Failure> {
    if let Some(replay) = &mut request.replay {
        replay.lead(upstream.plan.config.protocol == Protocol::Http1, &mut request.first_piece);
        request.keep_head();
        return Ok(request.body.taken());
    }
    if attempts.repeats_calls() {
        calls::keep(request);
    }
    let is_chunked =
        routed.framing == BodyFraming::Chunked && upstream.plan.config.protocol == Protocol::Http1;
    upload::begin(ctx, routed, request, is_chunked);
    request.body.copy_to(request.tee.take());
    if routed.framing == BodyFraming::None {
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

/// Returns the response time of the server, if it is measured, and the time now.
fn answered(
    worker: &Worker,
    picked: &PickedServer,
    upload: &Upload,
    progress: AttemptProgress,
) -> (Option<Duration>, Time) {
    let Some(since) = picked.since else { return (None, worker.coarse_time()) };
    let answered_at = progress.first_byte_at.unwrap_or_else(Instant::now);
    let since = upload.waits_for_server_since(since);
    (since.map(|since| answered_at.saturating_duration_since(since)), worker.time_of(answered_at))
}

/// Returns the length of a short response of which a part is missing. It is then awaited, so that it leaves in one
/// write, or is replaced by an error.
fn rest_is_awaited(connection: &ServerConnection, response: &mut CurrentResponse) -> Option<usize> {
    let BodyFraming::Length(length) = connection.framing else { return None };
    let buffer = &mut response.buffer;
    let whole = length.saturating_add(response.head.len as u64);
    let is_here = whole <= buffer.len() as u64;
    let fits = whole <= (buffer.len() + buffer.spare().len()) as u64;
    (!is_here && fits && connection.upload.is_done()).then_some(whole as usize)
}

/// A single attempt with a server.
struct Attempt<'a> {
    ctx: &'a ExchangeContext<'a>,
    routed: &'a RoutedRequest,
    upstream: &'a WorkerUpstream,
    index: usize,
    /// Whether a pooled HTTP/1 connection may be used.
    may_reuse: bool,
    /// Whether the gRPC status may lead to a retry.
    reads_calls: bool,
    /// How long the server may take until the first byte of its response.
    patience: Ticks,
    /// The tick at which the attempt began.
    began: u32,
}

impl<'a> Attempt<'a> {
    fn new(
        ctx: &'a ExchangeContext<'a>,
        routed: &'a RoutedRequest,
        upstream: &'a WorkerUpstream,
        index: usize,
        attempts: &Attempts<'_>,
    ) -> Self {
        let (may_reuse, reads_calls) = (attempts.may_reuse(), attempts.repeats_calls());
        let patience = routed.ticks(ctx).upstream_first_byte;
        let began = ctx.worker.deadlines.now();
        Self { ctx, routed, upstream, index, may_reuse, reads_calls, patience, began }
    }

    /// Notes a failed attempt. Returns what `Attempts::after` needs to decide about a retry.
    #[cold]
    fn failed(
        &self,
        picked: &PickedServer,
        failure: Failure,
        progress: AttemptProgress,
        memory: &mut SlotMemory,
        state: &mut ExchangeState<'_>,
    ) -> Setback {
        state.record.attempt_failed(failure);
        let setback = Setback::Failed(failure, progress);
        // A stale pooled connection says nothing about the server's health.
        let is_its_fault = match failure {
            Failure::RequestTimeout => progress.waits_for_server && self.took_most_time(),
            failure => setback.blames_server() && failure.facts().party == Party::Upstream,
        };
        let now = self.ctx.worker.coarse_time();
        let event = if is_its_fault {
            self.upstream.failed(picked, failure, state.record.explain_to_all(memory, failure), now)
        } else {
            state.record.explain(memory, failure);
            self.upstream.abandoned(picked, failure, now)
        };
        state.record.server_changed(event);
        setback
    }

    /// Whether the attempt had at least half of the time of the request. One that began late says nothing about its
    /// server: the time went to a queue, to other servers or to a delay.
    fn took_most_time(&self) -> bool {
        let took = self.ctx.worker.deadlines.now().saturating_sub(self.began);
        let limit = self.routed.ticks(self.ctx).request;
        limit.is_some_and(|limit| took >= limit.0 / 2)
    }

    /// Asks the server, within the time of the request.
    async fn run(
        &self,
        memory: &mut SlotMemory,
        state: &mut ExchangeState<'_>,
        progress: &mut AttemptProgress,
    ) -> Result<Reply, Failure> {
        let ask = pin!(self.ask(memory, state, progress));
        unless_overdue(self.ctx.client, ask).await
    }

    async fn ask(
        &self,
        memory: &mut SlotMemory,
        state: &mut ExchangeState<'_>,
        progress: &mut AttemptProgress,
    ) -> Result<Reply, Failure> {
        let mut connection = match self.pooled() {
            Some(connection) => connection,
            None => {
                let connect = async {
                    let connect = pin!(self.connect(state));
                    unless_gone(self.ctx.client, connect).await
                };
                progress.waits_for_server = true;
                cold(|| connect).await.unwrap_or(Err(Failure::ClientGone))?
            }
        };
        let SlotMemory { request, response, .. } = memory;
        response.buffer.clear();
        response.added.clear();
        self.render(request)?;
        records::begin(self.routed, &connection, request);
        let is_done = request.is_done_for(&connection.socket);
        let follows = if is_done { Follows::End } else { Follows::Nothing };
        let pace = Pace::new(Direction::Up, &self.ctx.worker.shaper);
        // Rates apply to bodies only, so the head passes freely.
        pace.pass(request.out.len() - request.first_piece.len());
        let wrong = &mut response.wrong;
        let sent = self.send_at_once(&connection, &request.out, follows, &pace, progress, wrong)?;
        if sent < request.out.len() {
            cold(|| self.send(&connection, &request.out[sent..], follows, &pace, progress, wrong)).await?;
        }
        state.record.upstream_bytes_sent += request.out.len() as u64;
        // A retry renders the head again.
        request.out.clear();
        self.ctx.worker.buffers.warm_text(&mut request.out);
        if is_done {
            // The body has left: while the server works, the request holds no buffer.
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

    /// Whether the upload waits for the server's 100 (Continue), because the client does and no byte of its body has
    /// arrived.
    fn is_held(&self, request: &CurrentRequest) -> bool {
        let expects = || request.head.value(request.head_bytes(), Name::Expect);
        // RFC 9110 §10.1.1: Expect from an HTTP/1.0 client is ignored.
        request.body.taken() == (0, false)
            && request.buffer.is_empty()
            // No application sends 100: the client was asked for its body already.
            && self.upstream.plan.config.protocol != Protocol::Fastcgi
            && self.routed.version != HttpVersion::Http10
            && expects().is_some_and(|value| value.eq_ignore_ascii_case(b"100-continue"))
    }

    /// Returns a pooled connection, or a stream on an existing one.
    fn pooled(&self) -> Option<Reply> {
        let server = &self.upstream.servers[self.index];
        let pooled = match self.upstream.plan.config.protocol {
            Protocol::Http1 | Protocol::Fastcgi if !self.may_reuse => None,
            Protocol::Http1 | Protocol::Fastcgi => {
                let may_be_repeated = self.routed.method.is_idempotent();
                server.pooled(&**self.ctx.worker, self.ctx.client, may_be_repeated)
            }
            // A stream is only opened on a connection that has not ended.
            Protocol::Http2 | Protocol::Http3 => server.stream(),
        };
        if pooled.is_some() {
            self.ctx.worker.counters.upstream_reuses.increment();
        }
        pooled
    }

    /// Makes a connection to the server. Called if the pool has none.
    async fn connect(&self, state: &mut ExchangeState<'_>) -> Result<Reply, Failure> {
        let ExchangeContext { worker, client, .. } = *self.ctx;
        let server = &self.upstream.servers[self.index];
        let connection = match self.upstream.plan.config.protocol {
            Protocol::Http1 | Protocol::Fastcgi if self.may_reuse => {
                server.connect_or_reuse(worker, client, self.routed.method.is_idempotent()).await
            }
            // Boxed: making a connection takes much memory, which waiting for one does not.
            Protocol::Http1 | Protocol::Fastcgi => cold(|| server.connect(&**worker, client)).await,
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

    /// Returns the value of Host if it is not the client's.
    fn host(&self) -> Option<&[u8]> {
        let names_no_host = self.routed.target.authority == http1::ByteSpan::default();
        match &self.upstream.plan.config.host {
            HostHeader::Pass if !names_no_host => None,
            HostHeader::Pass | HostHeader::Server => {
                Some(self.upstream.plan.servers[self.index].authority.as_bytes())
            }
            HostHeader::Set(host) => Some(host.as_bytes()),
        }
    }

    /// Renders the head for this server, with the first piece of the body behind it, into `request.out`. Called once
    /// per attempt.
    fn render(&self, request: &mut CurrentRequest) -> Result<(), Failure> {
        if let Some(hop) = request.texts.hop.take() {
            request.out = hop;
            return Ok(());
        }
        if let Some(replay) = &mut request.replay {
            replay.restart();
        }
        let host = self.host();
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
        let framing = self.framing(request);
        let rewrite = |edits| RequestRewrite {
            trace,
            path_and_query: None,
            edits,
            added: client.tls.as_deref().map_or(b"", ClientTls::lines),
            target: &self.routed.target,
            connection: self.routed.connection,
            framing,
            expects: request.replay.is_none(),
            wants_upgrade: self.routed.wants_upgrade,
            client: http1::ForwardedSender {
                address: client.address,
                scheme: seen::scheme_of_peer(self.ctx),
                chain,
            },
            via: Via::Own,
            host,
        };
        let mut out = std::mem::take(&mut request.out);
        out.clear();
        self.ctx.worker.buffers.warm_text(&mut out);
        let outcome = match self.routed.policies(self.ctx) {
            None => {
                let asking = AuthRequestEdits::new(request.texts.conditions.as_deref(), false, None, None);
                let edits = asking.as_ref().map(|asking| asking as &dyn http1::Edits);
                let path_and_query = kept_target(self.routed, &request.texts);
                let rewrite = RequestRewrite { path_and_query, ..rewrite(edits) };
                http1::write_request(&mut out, &request.head, request.head_bytes(), &rewrite);
                Ok(())
            }
            Some(policies) => {
                let server = &self.upstream.plan.servers[self.index].authority;
                let rewrite = rewrite(None);
                edits::write_request(self.ctx, policies, self.routed, server, request, rewrite, &mut out)
            }
        };
        let outcome = outcome.and_then(|()| self.complete(request, &mut out));
        request.out = out;
        outcome
    }

    /// Sends what the socket takes without a wait, nearly always everything. Returns the number of bytes.
    fn send_at_once(
        &self,
        connection: &ServerConnection,
        bytes: &[u8],
        follows: Follows,
        pace: &Pace,
        progress: &mut AttemptProgress,
        wrong: &mut Option<String>,
    ) -> Result<usize, Failure> {
        if !pace.is_free(&self.ctx.worker.shaper) {
            return Ok(0);
        }
        match poll_once(|context| connection.socket.poll_write(context, bytes, follows)) {
            Some(Ok(count)) => {
                progress.has_sent = true;
                Ok(count)
            }
            Some(Err(error)) => Err(unsent(connection, &error, progress, wrong)),
            None => Ok(0),
        }
    }

    /// Sends the rest of the head and the first piece. Called if `send_at_once` could not send everything.
    async fn send(
        &self,
        connection: &ServerConnection,
        mut bytes: &[u8],
        follows: Follows,
        pace: &Pace,
        progress: &mut AttemptProgress,
        wrong: &mut Option<String>,
    ) -> Result<(), Failure> {
        while !bytes.is_empty() {
            progress.waits_for_server = false;
            let allowed =
                poll_fn(|context| pace.poll_allowance(context, &self.routed.place(self.ctx), bytes.len()))
                    .await;
            let follows = if allowed < bytes.len() { Follows::Nothing } else { follows };
            let write = connection.socket.write(&bytes[..allowed], follows);
            let limit = self.routed.ticks(self.ctx).upstream_first_byte;
            progress.waits_for_server = true;
            match self.ctx.client.deadline.within(limit, write).await {
                Ok(Ok(count)) => {
                    bytes = &bytes[count..];
                    pace.sent(count);
                }
                // A server may respond before it has read everything, and close: its response can still be read.
                Ok(Err(_)) if progress.has_sent => return Ok(()),
                Ok(Err(error)) => return Err(unsent(connection, &error, progress, wrong)),
                Err(Elapsed) => return Err(Failure::UpstreamTimeout),
            }
            progress.has_sent = true;
        }
        Ok(())
    }

    /// Reads heads until the final one, and passes interim responses on (RFC 9110 §15.2).
    async fn receive(
        &self,
        connection: &ServerConnection,
        response: &mut CurrentResponse,
        state: &mut ExchangeState<'_>,
        progress: &mut AttemptProgress,
    ) -> Result<(), Failure> {
        let mut limit = self.patience;
        for _ in 0..INTERIM_MAX {
            self.receive_head(connection, response, progress, limit).await?;
            progress.first_byte_at = state.record.first_byte();
            match response.head.start.status {
                // RFC 9110 §7.8: a server may only switch to a protocol that was requested.
                101 if self.routed.wants_upgrade => return Ok(()),
                101 => return Err(Failure::UpstreamSwitch),
                100..=199 => {
                    // RFC 9110 §15.2: HTTP/1.0 has no interim responses.
                    if self.routed.version != HttpVersion::Http10 {
                        // The client has seen an interim response, so a retry could contradict it.
                        progress.has_answered = true;
                        state.sent = SentProgress::Interim;
                        respond::interim(self.ctx, self.routed, response).await?;
                        state.sent = SentProgress::Nothing;
                        if response.head.start.status == 100 {
                            connection.upload.begin();
                        }
                    }
                    response.buffer.consume(response.head.len);
                    // An interim response shows that the server works: its time begins again.
                    limit = self.routed.ticks(self.ctx).upstream_first_byte;
                }
                // RFC 9110 §9.3.6: a success would claim that the server speaks the protocol. It is not the server's
                // fault.
                200..=299 if is_connect(self.ctx, self.routed) => return Err(Failure::NotUpgraded),
                _ => return Ok(()),
            }
        }
        Err(Failure::UpstreamInterims)
    }

    /// Reads one head, while the upload continues beside it.
    async fn receive_head(
        &self,
        connection: &ServerConnection,
        response: &mut CurrentResponse,
        progress: &mut AttemptProgress,
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
                        if let Some(version) = framed_version(&connection.socket) {
                            response.head.start.version = version;
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
            progress.waits_for_server = !is_uploading;
            let client = &self.ctx.client.socket;
            let heard = poll_fn(|context| match self.poll_read(context, connection, &mut response.buffer) {
                Poll::Ready(read) => Poll::Ready(Heard::Read(read)),
                Poll::Pending if client.poll_gone(context).is_ready() => Poll::Ready(Heard::ClientGone),
                Poll::Pending => {
                    let was_uploading = is_uploading;
                    is_uploading = connection.upload.is_under_way();
                    if was_uploading && !is_uploading {
                        // The server's time-out starts when it has the whole request.
                        deadline.set(limit);
                        progress.waits_for_server = true;
                    }
                    deadline.poll(context).map(|()| Heard::Elapsed)
                }
            });
            match heard.await {
                Heard::Read(Ok(count)) if count > 0 => response.buffer.advance(count),
                Heard::Read(read) => {
                    let failure = broken_off(connection, read.as_ref().err(), progress);
                    let wrong = connection.socket.wrong();
                    let failure = wrong.as_ref().map_or(failure, |wrong| match wrong.is_too_large {
                        true => Failure::UpstreamHeadTooLarge,
                        false => Failure::UpstreamMalformed,
                    });
                    let told = wrong.map(|wrong| wrong.text);
                    response.wrong = told.or_else(|| Some(ended(connection, read.err().as_ref())));
                    return Err(failure);
                }
                Heard::ClientGone => return Err(Failure::ClientGone),
                // While the client still uploads, the server's time-out starts again.
                Heard::Elapsed if is_uploading => is_armed = false,
                Heard::Elapsed => return Err(Failure::UpstreamTimeout),
            }
        }
    }

    /// Reads when data is available. The buffer is only allocated then, so waiting requests hold none.
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
                // Many streams share a connection's memory; a lone one may take more.
                self.ctx.worker.buffers.grow_to(buffer, SMALL);
            }
        }
        let spare = buffer.spare();
        let room = if connection.expects_long { spare.len().min(HEAD_ALONE) } else { spare.len() };
        connection.socket.poll_read(context, &mut spare[..room])
    }

    /// Waits briefly for the rest of a short body, until `whole` bytes are there.
    async fn settle(
        &self,
        connection: &ServerConnection,
        response: &mut CurrentResponse,
        whole: usize,
    ) -> Result<(), Failure> {
        let buffer = &mut response.buffer;
        let deadline = &self.ctx.client.deadline;
        // The limit covers all pieces together.
        deadline.set(MOMENT);
        while buffer.len() < whole {
            let read = connection.socket.read(buffer.spare());
            match deadline.guard(read).await {
                Ok(Ok(count)) if count > 0 => buffer.advance(count),
                Ok(_) => return Err(respond::cut_short(&connection.socket, response)),
                // The head has waited long enough: it leaves with the part that is here.
                Err(Elapsed) => return Ok(()),
            }
        }
        Ok(())
    }
}
