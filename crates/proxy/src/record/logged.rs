//! The condition under which a finished request is logged.

use std::cell::Cell;
use std::time::Instant;

use expression::{Expression, Fact, FactFamily};
use http1::RequestTarget;
use telemetry::Needs;

use crate::context::exchange_slot::CurrentRequest;
use crate::context::later::{self, ExchangeConditions, KnownResponse};
use crate::context::routed::RoutedRequest;
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
        if self.needs.has(Needs::RESPONSE_HEAD) || asked.is_some_and(asks_for_head) {
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
    pub(super) fn is_logged(&self, request: &CurrentRequest, route: usize, when: &Expression) -> bool {
        let (ctx, head) = (self.ctx, &request.head);
        // A request has a route only if its target is valid.
        let Ok(target) = RequestTarget::from_head(head, request.head_bytes()) else { return true };
        let (upstream, server) = self.server.unwrap_or((usize::MAX, 0));
        let servers = ctx.snapshot.plan.upstreams.get(upstream).map(|upstream| &upstream.servers);
        let server = servers.and_then(|servers| servers.get(server));
        let known = RoutedRequest {
            target,
            route,
            upstream: Cell::new(upstream),
            client: self.named.unwrap_or(ctx.client.address),
            user: self.user,
            cached: Cell::new(self.cached),
            ..RoutedRequest::new(ctx, head)
        };
        let routed = later::routed_again(ctx, request, known);
        let response = KnownResponse {
            status: self.status,
            head: &self.head,
            size: Some(self.body_bytes_sent),
            server: server.map_or("", |server| &server.authority),
        };
        ExchangeConditions::new(ctx, &routed, request)
            .answered(response)
            .answered_at(self.head_left)
            .hold(when)
    }
}
