//! A fetch that no client waits for: what is stored was served stale, and is revalidated meanwhile (RFC 5861 §3).
//!
//! It takes the path of a request, as a copy of the one that it began with, from a client that hears nothing.

use std::rc::Rc;
use std::sync::Arc;

use ::cache::{Joined, Lead, Object};
use http1::Parsed;

use super::{Ask, fetch};
use crate::context::client::Client;
use crate::context::exchange::{Admitted, Call};
use crate::context::exchange_slot::{Memory, Request, Texts};
use crate::context::exchange_state::ExchangeState;
use crate::context::snapshot::Snapshot;
use crate::context::worker::Worker;

/// As many at once for each worker; what is beyond stays stale until the next request for it.
const FETCHES_MAX: u64 = 256;

/// Has what is stored revalidated, unless somebody does already.
pub(super) fn revalidate(
    call: &Call<'_>,
    admitted: &Admitted,
    request: &Request,
    ask: &Ask<'_>,
    object: &Arc<Object>,
) {
    let worker = call.worker;
    if worker.counters.cache_fetches_active.value() >= FETCHES_MAX {
        return;
    }
    let Joined::Lead(lead) = ask.join(request, Some(object)) else { return };
    worker.counters.cache_fetches.increment();
    worker.counters.cache_fetches_active.increment();
    let fetch = Fetch {
        worker: Rc::clone(worker),
        snapshot: Rc::clone(call.snapshot),
        client: Client::nobody(worker, call.client),
        admitted: admitted.unheard(),
        head: request.head_bytes()[..request.head.len].into(),
        texts: request.texts.clone(),
        lead: Some(lead),
        object: Arc::clone(object),
    };
    tokio::task::spawn_local(fetch.run());
}

struct Fetch {
    worker: Rc<Worker>,
    snapshot: Rc<Snapshot>,
    client: Client,
    admitted: Admitted,
    /// The request that it began with.
    head: Box<[u8]>,
    /// What its route has made for it.
    texts: Texts,
    lead: Option<Lead>,
    object: Arc<Object>,
}

impl Fetch {
    async fn run(mut self) {
        let call = Call::new(&self.worker, &self.snapshot, &self.client);
        let mut memory = Memory::of_request(&self.worker, &self.head);
        memory.request.texts = std::mem::take(&mut self.texts);
        let parsed = memory.request.head.parse(&self.head, &self.snapshot.head_limits);
        let (Ok(Parsed::Complete), Some(lead)) = (parsed, self.lead.take()) else { return };
        let Some(ask) = Ask::of(&call, &self.admitted, &memory.request) else { return };
        let mut state = ExchangeState::unheard(&call);
        // Whether it came to anything is counted on its way; the next stale answer begins another one.
        let fetched =
            fetch::fetch(&call, &self.admitted, &mut memory, &ask, lead, Some(&self.object), &mut state);
        drop(fetched.await);
        state.record.count_upstream(&memory);
    }
}

impl Drop for Fetch {
    fn drop(&mut self) {
        self.worker.counters.cache_fetches_active.decrement();
    }
}
