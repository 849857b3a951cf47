//! The condition under which a finished request is logged, and the values of its line.

use std::time::Instant;

use expression::{Expression, Fact, FactFamily};
use http1::{BodyFraming, RequestTarget};
use route::{LaterFacts, ResponseFacts};
use telemetry::Needs;

use crate::context::exchange_slot::CurrentRequest;
use crate::context::later;
use crate::context::request_values::RequestValues;
use crate::record::ExchangeRecord;

impl<'a> ExchangeRecord<'a> {
    /// Notes the route of the request.
    #[inline]
    pub(crate) fn takes_route(&mut self, route: usize) {
        self.route = Some(route);
        if self.ctx.snapshot.plan.routes[route].log_when.is_some() {
            self.keeps_head = true;
        }
    }

    /// Returns the condition under which the request is logged.
    fn log_condition(&self) -> Option<&'a Expression> {
        let condition = self.ctx.snapshot.plan.routes[self.route?].log_when.as_deref();
        condition.filter(|_| self.needs.has(Needs::ENTRY))
    }

    /// Keeps the response head, or its time, as the log and its condition need them.
    #[cold]
    pub(super) fn keep_head(&mut self, head: &[u8]) {
        let asked = self.log_condition();
        if self.needs.has(Needs::FIRST_BYTE) || asked.is_some_and(|when| when.asks_for(Fact::ResponseTime)) {
            self.head_left = Some(Instant::now());
        }
        let asks_for_head = |when: &Expression| when.asks_for_family(FactFamily::ResponseHeaders);
        if self.is_captured || self.needs.has(Needs::RESPONSE_HEAD) || asked.is_some_and(asks_for_head) {
            // Only requests with such a log borrow a buffer.
            if self.head.capacity() == 0 {
                self.head = self.ctx.worker.log.take_head();
            }
            self.head.clear();
            self.head.extend_from_slice(head);
        }
    }

    /// Whether the condition of the log holds for the finished exchange.
    #[cold]
    pub(super) fn is_logged(&self, request: &CurrentRequest, when: &Expression) -> bool {
        // A request has a route only if its target is valid.
        let Some(values) = self.values(request) else { return true };
        values.holds(self.ctx.snapshot.conditions.own(when))
    }

    /// Returns the values of the finished exchange, which may ask for all that is known of it; `None` if its request could
    /// not be read.
    pub(super) fn values<'v>(&'v self, request: &'v CurrentRequest) -> Option<RequestValues<'v>> {
        let (ctx, head, bytes) = (self.ctx, &request.head, request.head_bytes());
        let target = RequestTarget::from_head(head, bytes).ok().filter(|_| head.len > 0)?;
        let framing = http1::request_framing(head, bytes).unwrap_or(BodyFraming::Chunked);
        let plan = &ctx.snapshot.plan;
        let policies = self.route.and_then(|route| plan.routes[route].policies.as_deref());
        let upstream = self.server.and_then(|(upstream, _)| plan.upstreams.get(upstream));
        let server = self.server.and_then(|(_, server)| upstream?.servers.get(server));
        let began = request.texts.began.or(self.began);
        let time = began.zip(self.head_left).map(|(began, left)| left.saturating_duration_since(began));
        let later = LaterFacts {
            upstream: upstream.map_or("", |upstream| upstream.config.name.as_str()),
            server: server.map_or("", |server| &server.authority),
            response: Some(ResponseFacts {
                status: self.status,
                head: &self.head,
                size: Some(self.body_bytes_sent),
                time,
            }),
            cache_status: self.cached.word(),
            ..later::of_client(policies, self.user, &request.texts)
        };
        let client = self.named.unwrap_or(ctx.client.address);
        Some(RequestValues::new(ctx, (target, framing), client, request).with(later))
    }
}
