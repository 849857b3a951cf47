//! What an exchange notes for the access log and the counters. With the log off no clock is read.

use std::time::Instant;

use wire::{Name, Version};

use crate::exchange::Call;
use crate::failure::Failure;
use crate::lane::{Memory, Request};

/// The notes of one exchange.
pub(crate) struct Record<'a> {
    call: &'a Call<'a>,
    began: Option<Instant>,
    attempt_began: Option<Instant>,
    connected: Option<Instant>,
    first_byte: Option<Instant>,
    upstream_ended: Option<Instant>,
    pub(crate) route: Option<usize>,
    /// Upstream and server, by index.
    pub(crate) server: Option<(usize, usize)>,
    /// What the client was sent; 0 while it was sent nothing.
    pub(crate) status: u16,
    pub(crate) body_bytes_sent: u64,
    /// Of the response's head, and of a body that left with it as one text.
    pub(crate) head_bytes_sent: u64,
    /// Of heads that servers were sent, with the first piece of the body.
    pub(crate) upstream_bytes_sent: u64,
    /// Of the body, in that first piece.
    pub(crate) first_piece_bytes: u64,
    /// Whether a server's response was read, as far as its head.
    pub(crate) is_answered: bool,
    pub(crate) retries: u8,
    pub(crate) failure: Option<Failure>,
}

impl<'a> Record<'a> {
    pub(crate) fn new(call: &'a Call<'a>) -> Self {
        let worker = call.worker;
        worker.counters.requests.increment();
        worker.counters.requests_active.increment();
        Self {
            call,
            began: worker.clock(),
            attempt_began: None,
            connected: None,
            first_byte: None,
            upstream_ended: None,
            route: None,
            server: None,
            status: 0,
            body_bytes_sent: 0,
            head_bytes_sent: 0,
            upstream_bytes_sent: 0,
            first_piece_bytes: 0,
            is_answered: false,
            retries: 0,
            failure: None,
        }
    }

    /// A server was picked, and is about to be connected to.
    pub(crate) fn attempt_began(&mut self, upstream: usize, server: usize) {
        self.server = Some((upstream, server));
        self.attempt_began = self.call.worker.clock();
        self.connected = None;
        self.first_byte = None;
    }

    /// A new connection is there.
    pub(crate) fn connected(&mut self) {
        self.connected = self.call.worker.clock();
    }

    /// The server has begun to answer.
    pub(crate) fn first_byte(&mut self) {
        self.first_byte = self.call.worker.clock();
    }

    /// The server's response is over.
    pub(crate) fn upstream_ended(&mut self) {
        self.upstream_ended = self.call.worker.clock();
    }

    /// The one exit of every exchange: counts and logs it.
    pub(crate) fn finish(&self, memory: &Memory) {
        let Memory { request, response } = memory;
        let counters = &self.call.worker.counters;
        if self.status > 0 {
            counters.response(self.status);
        }
        if let Some(failure) = self.failure {
            counters.failure(failure as usize);
        }
        counters.client_bytes_received.add(self.bytes_received(request));
        counters.client_bytes_sent.add(self.head_bytes_sent + self.body_bytes_sent);
        if self.server.is_some() {
            let rest = request.body.moved - self.first_piece_bytes;
            counters.upstream_bytes_sent.add(self.upstream_bytes_sent + rest);
        }
        if self.is_answered {
            counters.upstream_bytes_received.add(response.head.len as u64 + response.body.moved);
        }
        if let (Some(log), Some(began)) = (&self.call.worker.log, self.began) {
            let entry = self.entry(request, began);
            log.borrow_mut().record(&entry, self.call.worker.wall_clock());
        }
    }

    /// Head and body, without the framing of chunks; of a request that went to no server only its head.
    fn bytes_received(&self, request: &Request) -> u64 {
        let body = if self.server.is_some() { request.body.moved } else { 0 };
        request.head.len as u64 + body
    }

    fn entry<'b>(&'b self, request: &'b Request, began: Instant) -> telemetry::Entry<'b> {
        let bytes = request.head_bytes();
        let plan = &self.call.snapshot.plan;
        let head = &request.head;
        // A head that was refused has no fields to be quoted.
        let is_whole = head.len > 0;
        let value = |name| if is_whole { head.value(bytes, name).unwrap_or(b"") } else { b"" };
        let since_attempt = |end: Option<Instant>| Some(end?.duration_since(self.attempt_began?));
        let route = self.route.map(|route| &plan.routes[route]);
        telemetry::Entry {
            client: self.call.client.address,
            method: if is_whole { head.start.method_span.of(bytes) } else { b"" },
            target: if is_whole { head.start.target.of(bytes) } else { b"" },
            version: match head.start.version {
                Version::Http10 => telemetry::Version(1, 0),
                Version::Http11 => telemetry::Version(1, 1),
                Version::Http2 => telemetry::Version(2, 0),
            },
            status: self.status,
            body_bytes_sent: self.body_bytes_sent,
            bytes_received: self.bytes_received(request),
            referer: value(Name::Referer),
            user_agent: value(Name::UserAgent),
            host: value(Name::Host),
            route: route.map(|route| route.label.as_str()),
            upstream: self.server.map(|(upstream, _)| plan.upstreams[upstream].config.name.as_str()),
            server: self
                .server
                .map(|(upstream, server)| plan.upstreams[upstream].servers[server].authority.as_str()),
            duration: began.elapsed(),
            upstream_connect: since_attempt(self.connected),
            upstream_first_byte: since_attempt(self.first_byte),
            upstream_total: since_attempt(self.upstream_ended),
            retries: self.retries,
            cause: self.failure.map(|failure| failure.facts().word),
        }
    }
}

impl Drop for Record<'_> {
    fn drop(&mut self) {
        self.call.worker.counters.requests_active.decrement();
    }
}
