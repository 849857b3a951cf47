//! Receives the rest of a response into the store. It is a task of its own: it goes on when its client has left, and no
//! slow reader delays it.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;

use ::cache::{Fill, Filled, Refusal, Wanted};
use config::Compress;
use telemetry::Place;

use super::Cache;
use super::coded::dictionary_bytes_max;
use crate::body::incoming_body::{IncomingBody, Taken};
use crate::context::exchange::{ExchangeContext, RoutedRequest};
use crate::context::exchange_slot::Response;
use crate::context::worker::Worker;
use crate::forward::Reply;
use crate::upstream::Server;
use transport::buffer::BULK;
use transport::deadline::{Deadline, Ticks};

/// A body that is being received into the store.
pub(super) struct Filling {
    fill: Fill,
    refused_until_seconds: u64,
    reply: Reply,
    server: Rc<Server>,
    worker: Rc<Worker>,
    /// Where it is counted.
    place: Option<Place>,
    deadline: Deadline,
    limit: Ticks,
    /// Told of the response when it is whole, if it may be a dictionary.
    compression: Option<(Cache, Arc<Compress>)>,
}

impl Filling {
    pub(super) fn new(
        ctx: &ExchangeContext<'_>,
        routed: &RoutedRequest,
        refused_until_seconds: u64,
        fill: Fill,
        reply: Reply,
    ) -> Self {
        let server = Rc::clone(&ctx.snapshot.upstreams[reply.upstream].servers[reply.server]);
        Self {
            fill,
            refused_until_seconds,
            reply,
            server,
            worker: Rc::clone(ctx.worker),
            place: ctx.snapshot.plan.places.as_ref().map(|places| places.route(Some(routed.route))),
            deadline: ctx.worker.deadlines.deadline(),
            limit: routed.ticks(ctx).upstream_body,
            compression: compression(ctx, routed),
        }
    }

    /// Takes over the bytes that arrived behind the head, and receives the rest in a task of its own.
    pub(super) fn begin(mut self, response: &mut Response) {
        response.buffer.consume(response.head.len);
        let mut body = IncomingBody::new(self.reply.framing);
        let early = response.buffer.filled_mut();
        let step = self.take(&mut body, early);
        let left = step.map(|consumed| early.len() - consumed);
        response.buffer.clear();
        match (left, body.is_over()) {
            // What follows a response belongs to no request, and its connection to none either.
            (Some(left), true) => self.finish(left == 0),
            (Some(_), false) => drop(tokio::task::spawn_local(self.run(body))),
            (None, _) => {}
        }
    }

    async fn run(mut self, mut body: IncomingBody) {
        let mut buffer = vec![0; BULK];
        let mut held = 0;
        while !body.is_over() {
            // Those who read what is not stored set the pace: each is held to its own time-out.
            poll_fn(|context| self.fill.poll_room(context)).await;
            let read = self.reply.socket.read(&mut buffer[held..]);
            let Ok(Ok(count)) = self.deadline.within(self.limit, read).await else { return };
            if count == 0 {
                if body.closed() {
                    self.finish(false);
                }
                return;
            }
            let filled = held + count;
            let step = self.take(&mut body, &mut buffer[..filled]);
            let Some(consumed) = step else { return };
            buffer.copy_within(consumed..filled, 0);
            held = filled - consumed;
            if body.is_over() {
                return self.finish(held == 0);
            }
        }
    }

    /// Hands on what has arrived of the body, and says how much of it that was; `None` ends it: it is broken, or nobody
    /// wants it.
    fn take(&mut self, body: &mut IncomingBody, bytes: &mut [u8]) -> Option<usize> {
        let Taken { data, consumed } = body.take(bytes).ok()?;
        self.worker.counters.upstream_bytes_received.add(data as u64);
        if data > 0 && self.fill.push(&bytes[..data], self.refused_until_seconds) == Wanted::No {
            return None;
        }
        Some(consumed)
    }

    /// The body is whole.
    fn finish(self, is_clean: bool) {
        let filled = self.fill.finish();
        if let (Filled::Stored(object), Some((cache, compress))) = (&filled, &self.compression) {
            cache.dictionaries.consider(object, compress, dictionary_bytes_max(cache));
        }
        if let Some(place) = self.place {
            let cell = self.worker.series.route(place).cache.cell();
            match filled {
                Filled::Stored(_) => cell.stored.increment(),
                Filled::TooLarge => cell.refusals.count(Refusal::TooLarge as usize),
                Filled::Purged => cell.refusals.count(Refusal::Purged as usize),
                Filled::Broken => cell.refusals.count(Refusal::Incomplete as usize),
            }
        }
        if self.reply.persists && is_clean {
            self.server.keep(self.reply, &self.worker.deadlines);
        }
    }
}

/// The cache and the settings that say which responses are dictionaries, where bodies are coded.
fn compression(ctx: &ExchangeContext<'_>, routed: &RoutedRequest) -> Option<(Cache, Arc<Compress>)> {
    let plan = &ctx.snapshot.plan;
    let compression = plan.routes[routed.route].compress.as_ref()?;
    Some((plan.cache.clone()?, Arc::clone(&compression.settings)))
}
