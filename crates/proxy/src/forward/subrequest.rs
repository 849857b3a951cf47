//! Requests of the proxy's own, made from a client's: they take the path of a request under the rules of its route, but
//! no client waits for them, and they are not logged.

use std::rc::Rc;

use http1::Parsed;

use crate::context::client::Client;
use crate::context::exchange::{Exchange, ExchangeContext, RoutedRequest};
use crate::context::exchange_slot::{Memory, Request, Texts};
use crate::context::exchange_state::ExchangeState;
use crate::context::snapshot::Snapshot;
use crate::context::worker::Worker;

/// A request of the proxy's own, before it runs. It owns its data, since the client's request may end first.
pub(crate) struct Subrequest {
    worker: Rc<Worker>,
    snapshot: Rc<Snapshot>,
    client: Client,
    routed: RoutedRequest,
    /// The head of the request that it was made from.
    head: Box<[u8]>,
    /// What the policies of the route have made for that request.
    texts: Texts,
}

impl Subrequest {
    /// Copies a request without its body.
    pub(crate) fn copy_of(ctx: &ExchangeContext<'_>, routed: &RoutedRequest, request: &Request) -> Self {
        Self {
            worker: Rc::clone(ctx.worker),
            snapshot: Rc::clone(ctx.snapshot),
            client: Client::detached(ctx.worker, ctx.client),
            routed: routed.detached(),
            head: request.head_bytes()[..request.head.len].into(),
            texts: request.texts.clone(),
        }
    }

    /// Runs `steps` with the request, and counts bytes sent to and received from servers.
    pub(crate) async fn run(self, steps: impl AsyncFnOnce(&mut Exchange<'_, '_>)) {
        let ctx = ExchangeContext::new(&self.worker, &self.snapshot, &self.client);
        let mut memory = Memory::of_request(&self.worker, &self.head);
        memory.request.texts = self.texts;
        let parsed = memory.request.head.parse(&self.head, &self.snapshot.head_limits);
        let Ok(Parsed::Complete) = parsed else { return };
        let mut state = ExchangeState::detached(&ctx);
        let (ctx, routed) = (&ctx, &self.routed);
        steps(&mut Exchange { ctx, routed, memory: &mut memory, state: &mut state }).await;
        state.record.count_upstream(&memory);
    }
}
