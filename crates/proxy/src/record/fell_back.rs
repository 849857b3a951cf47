//! Notes about a request that another upstream was asked for after an error (`on_status`).

use std::time::Instant;

use telemetry::Retried;

use super::tracing::EndedAttempt;
use super::{ExchangeRecord, RETRIES_NOTED};
use crate::context::exchange_slot::SlotMemory;
use crate::context::routed::ExchangeContext;
use crate::failure::Failure;

/// The first answer to a request, in place of which another upstream was asked.
pub(crate) struct FellBack {
    pub(crate) upstream: usize,
    /// The retries before.
    retries: u8,
    /// As logged: status or failure, and server.
    pub(super) told: Box<str>,
    /// The status of the second response, if the client gets the first.
    pub(super) status: Option<u16>,
}

impl ExchangeRecord<'_> {
    /// Notes that another upstream is asked, because of this status or failure of the first.
    #[cold]
    pub(crate) fn falls_back(&mut self, memory: &mut SlotMemory, status: u16, failure: Option<Failure>) {
        let Some(upstream) = self.upstream else { return };
        let ExchangeContext { worker, snapshot, .. } = *self.ctx;
        let server = self.server.take().filter(|(known, _)| *known == upstream).map(|(_, server)| server);
        let plan = &snapshot.plan.upstreams[upstream];
        let name = server.and_then(|server| plan.servers.get(server)).map(|server| server.authority.as_str());
        let name = name.unwrap_or(&plan.config.name);
        let told = match failure {
            Some(failure) => format!("{}@{name}", failure.facts().word),
            None => format!("{status}@{name}"),
        };
        worker.counters.upstream_fallbacks.increment();
        if failure.is_none() {
            worker.counters.upstream_bytes_received.add(memory.response.head.len as u64);
        }
        if let Some(places) = self.places() {
            worker.series.upstream(places.upstream(upstream)).fallbacks.increment();
            // A failed attempt has been counted.
            if let (Some(server), None) = (server, failure) {
                worker.series.server(places.server(upstream, server)).requests.count(status);
            }
        }
        if self.is_traced
            && let (Some(server), Some(began)) = (server, self.attempt_began)
        {
            let ended = Instant::now();
            self.settle_by(ended);
            let failure = failure.unwrap_or(Failure::UpstreamStatus);
            self.ended_attempts.push(EndedAttempt { upstream, server, failure, began, ended });
            if let Some(trace) = &mut memory.request.texts.trace {
                trace.attempts = trace.attempts.saturating_add(1);
            }
        }
        self.is_answered = false;
        self.attempt_began = None;
        let (retries, told) = (self.retries, told.into());
        self.fell_back = Some(Box::new(FellBack { upstream, retries, told, status: None }));
    }

    /// Notes the status of the other upstream, in place of which the client gets the first.
    #[cold]
    pub(crate) fn keeps_status(&mut self, status: u16) {
        if let Some(fell_back) = &mut self.fell_back {
            fell_back.status = Some(status);
        }
    }

    /// Returns the noted attempts before the last one, as logged. The first were those with the upstream that was asked
    /// first.
    pub(super) fn retries_told(&self) -> [Retried<'_>; RETRIES_NOTED] {
        let plan = &self.ctx.snapshot.plan;
        let own = self.server.map(|(upstream, _)| upstream);
        let mut attempt = 0;
        self.retried.map(|(server, failure)| {
            let first = self.fell_back.as_ref().filter(|first| attempt < first.retries);
            attempt += 1;
            let upstream = first.map(|first| first.upstream).or(own);
            let server =
                upstream.and_then(|upstream| plan.upstreams[upstream].servers.get(usize::from(server)));
            let server = server.map_or("", |server| server.authority.as_str());
            Retried { server, cause: failure.facts().word }
        })
    }
}
