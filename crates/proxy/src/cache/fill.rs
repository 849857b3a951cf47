//! Receives the rest of a response into the store, in a separate task: it continues when its client has left, and no
//! slow reader delays it.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;

use ::cache::{BodyDemand, Fill, Filled, NotStored, ReadError};
use config::Compress;
use telemetry::SeriesIndex;

use super::Cache;
use super::coded::dictionary_bytes_max;
use crate::body::incoming_body::{IncomingBody, Taken};
use crate::context::exchange_slot::CurrentResponse;
use crate::context::routed::{ExchangeContext, RoutedRequest};
use crate::context::worker::Worker;
use crate::forward::Reply;
use crate::upstream::UpstreamServer;
use transport::buffer::BULK;
use transport::deadline::{Deadline, Ticks};

/// A body that is received into the store.
pub(super) struct Filling {
    fill: Fill,
    refused_until_seconds: u64,
    reply: Reply,
    server: Rc<UpstreamServer>,
    worker: Rc<Worker>,
    /// The counters of its route.
    place: Option<SeriesIndex>,
    deadline: Deadline,
    limit: Ticks,
    /// Set if the response may become a dictionary, which is decided when it is complete.
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

    /// Takes the bytes that arrived behind the head, and receives the rest in a separate task.
    pub(super) fn begin(mut self, response: &mut CurrentResponse) {
        response.buffer.consume(response.head.len);
        let mut body = IncomingBody::new(self.reply.framing);
        let early = response.buffer.filled_mut();
        let step = self.take(&mut body, early);
        let left = step.map(|consumed| early.len() - consumed);
        response.buffer.clear();
        match (left, body.is_over()) {
            // If bytes follow the response, the connection is not reused.
            (Ok(left), true) => self.finish(left == 0),
            (Ok(_), false) => drop(tokio::task::spawn_local(self.run(body))),
            (Err(why), _) => self.fill.fail(why),
        }
    }

    async fn run(mut self, body: IncomingBody) {
        match self.receive(body).await {
            Ok(is_clean) => self.finish(is_clean),
            Err(why) => self.fill.fail(why),
        }
    }

    /// Receives the rest of the body. Returns whether no bytes followed it.
    async fn receive(&mut self, mut body: IncomingBody) -> Result<bool, ReadError> {
        // A separate buffer, because this task outlives the exchange.
        let mut buffer = vec![0; BULK];
        let mut held = 0;
        while !body.is_over() {
            // A response that is not stored is read at the pace of its readers, each of which has its own time-out.
            poll_fn(|context| self.fill.poll_room(context)).await;
            let read = self.reply.socket.read(&mut buffer[held..]);
            let read = self.deadline.within(self.limit, read).await.map_err(|_| ReadError::Stalled)?;
            let count = read.map_err(|_| ReadError::Broken)?;
            if count == 0 {
                return if body.closed() { Ok(false) } else { Err(ReadError::Broken) };
            }
            let filled = held + count;
            let consumed = self.take(&mut body, &mut buffer[..filled])?;
            // The bytes of an incomplete chunk line stay at the front for the next read.
            buffer.copy_within(consumed..filled, 0);
            held = filled - consumed;
        }
        Ok(held == 0)
    }

    /// Passes on the body bytes in a buffer, and returns how many bytes were consumed. Fails if they are malformed, or
    /// no reader is left.
    fn take(&mut self, body: &mut IncomingBody, bytes: &mut [u8]) -> Result<usize, ReadError> {
        let Taken { data, consumed } = body.take(bytes).map_err(|_| ReadError::Malformed)?;
        self.worker.counters.upstream_bytes_received.add(data as u64);
        if data > 0 && self.fill.push(&bytes[..data], self.refused_until_seconds) == BodyDemand::No {
            return Err(ReadError::Broken);
        }
        Ok(consumed)
    }

    /// Completes the stored response, and reuses the connection if `is_clean`.
    fn finish(self, is_clean: bool) {
        let filled = self.fill.finish();
        if let (Filled::Stored(object), Some((cache, compress))) = (&filled, &self.compression) {
            cache.dictionaries.consider(object, compress, dictionary_bytes_max(cache));
        }
        if let Some(place) = self.place {
            let cell = self.worker.series.route(place).cache.cell();
            match filled {
                Filled::Stored(_) => cell.stored.increment(),
                Filled::TooLarge => cell.refusals.count(NotStored::TooLarge as usize),
                Filled::Purged => cell.refusals.count(NotStored::Purged as usize),
                Filled::Broken => cell.refusals.count(NotStored::Incomplete as usize),
            }
        }
        if self.reply.persists && is_clean {
            self.server.keep(self.reply, &self.worker.deadlines);
        }
    }
}

/// Returns the cache and the settings that decide which responses become dictionaries, for routes that code bodies.
fn compression(ctx: &ExchangeContext<'_>, routed: &RoutedRequest) -> Option<(Cache, Arc<Compress>)> {
    let plan = &ctx.snapshot.plan;
    let compression = plan.routes[routed.route].compress.as_ref()?;
    Some((plan.cache.clone()?, Arc::clone(&compression.settings)))
}
