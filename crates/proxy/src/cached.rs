//! The cache in the way of a request: what is stored answers at once; of all who want the same one asks, and the rest
//! read with it what comes.
//!
//! What may be stored and used is decided by the crate `cache`, which also keeps it.

/// A response from the store, or as it comes into it.
mod hit;
/// The rest of a response on its way into the store.
mod fill;

use std::future::poll_fn;
use std::sync::Arc;

use ::cache::{
    Asked, Decision, Found, Freshness, Joined, Key, KeySecret, Lead, Object, Opening, OriginError, Policy,
    Refusal, Store, StoreSettings, Times, Uri, Vary, Waited, decide, serves_on_error, write_key,
};
use config::CacheStore;
use wire::{Framing, Method};

use crate::answer;
use crate::client::Next;
use crate::exchange::{Admitted, Call};
use crate::failure::{Failure, Party};
use crate::forward::{self, Reply};
use crate::lane::{Memory, Request, Response};
use crate::record::Record;
use crate::respond;
use fill::Filling;

/// How long it is remembered that a response was not to be stored.
const REFUSED_FOR_SECONDS: u64 = 60;

/// What is stored, and what it is found by.
#[derive(Clone)]
pub(crate) struct Cache {
    store: Arc<Store>,
    secret: KeySecret,
}

impl Cache {
    pub(crate) fn new(meant: &CacheStore) -> Self {
        let CacheStore { memory_bytes, object_bytes_max } = *meant;
        let secret = KeySecret::new(u128::from_le_bytes(crate::plan::secret()));
        Self { store: Arc::new(Store::new(StoreSettings { memory_bytes, object_bytes_max })), secret }
    }
}

/// A request to a route that has a cache.
#[derive(Clone, Copy)]
struct Ask<'a> {
    cache: &'a Cache,
    policy: &'a Policy,
    asked: Asked,
    key: Key,
    now_ms: u64,
}

impl<'a> Ask<'a> {
    fn of(call: &Call<'a>, admitted: &Admitted, request: &Request) -> Option<Self> {
        let plan = &call.snapshot.plan;
        let (cache, policy) = (plan.cache.as_ref()?, plan.config.routes[admitted.route].cache.as_ref()?);
        let bytes = request.head_bytes();
        let uri = uri(call, admitted, bytes);
        let key = Key::of(cache.secret, &uri, &policy.key, &request.head, bytes);
        let asked = Asked::of(&request.head, bytes);
        Some(Self { cache, policy, asked, key, now_ms: call.worker.unix_ms() })
    }

    fn look(&self, request: &Request) -> Option<Arc<Object>> {
        self.cache.store.look(self.key, |vary| self.variant(vary, request))
    }

    fn variant(&self, vary: &Vary, request: &Request) -> ::cache::VariantKey {
        vary.variant(self.cache.secret, self.policy, &request.head, request.head_bytes())
    }

    fn decide(&self, found: Option<&Arc<Object>>) -> Decision {
        let found = found.map_or(Found::Nothing, |object| Found::Variant(object.stored()));
        decide(&self.asked, found, self.policy, self.now_ms)
    }

    /// Whether what is stored answers in the place of a server that has failed.
    fn stands_in(&self, object: &Object, error: OriginError) -> bool {
        serves_on_error(&self.asked, object.stored(), error, self.policy, self.now_ms)
    }

    fn refused_until_seconds(&self) -> u64 {
        self.now_ms / 1000 + REFUSED_FOR_SECONDS
    }
}

fn uri<'a>(call: &Call<'_>, admitted: &Admitted, bytes: &'a [u8]) -> Uri<'a> {
    let target = &admitted.target;
    Uri::new(call.client.tls.is_some(), target.authority.of(bytes), target.path_and_query.of(bytes))
}

/// What the store has to say of a request.
pub(crate) enum Looked {
    /// This answers.
    Hit(Arc<Object>),
    /// Nothing answers; what is stored may stand in if the server fails.
    Miss(Option<Arc<Object>>),
    /// It is for a server, and what that says is not stored.
    Pass,
    /// It changes things at the server (RFC 9111 §4.4).
    Unsafe,
}

/// Looks whether what is stored answers.
pub(crate) fn look(call: &Call<'_>, admitted: &Admitted, request: &Request) -> Result<Looked, Failure> {
    let Some(ask) = Ask::of(call, admitted, request) else { return Ok(Looked::Pass) };
    if !ask.asked.may_be_answered() {
        return Ok(if ask.asked.is_unsafe() { Looked::Unsafe } else { Looked::Pass });
    }
    // A server answers for a part, or under a condition, what is no answer to others.
    if ask.asked.is_conditional() || ask.asked.has_range() {
        return Ok(Looked::Pass);
    }
    let found =
        ask.look(request).filter(|object| !object.is_softly_purged() && object.stored().part.is_none());
    match (ask.decide(found.as_ref()), found) {
        (Decision::Serve(Freshness::Fresh | Freshness::StaleForClient), Some(object)) => {
            call.worker.counters.cache_hits.increment();
            Ok(Looked::Hit(object))
        }
        (Decision::OnlyIfCached, _) => Err(Failure::NotStored),
        (_, found) => {
            call.worker.counters.cache_misses.increment();
            // A HEAD brings nothing to be stored.
            Ok(if admitted.method == Method::Get { Looked::Miss(found) } else { Looked::Pass })
        }
    }
}

/// Answers with what is stored.
pub(crate) async fn serve(
    call: &Call<'_>,
    admitted: &Admitted,
    memory: &mut Memory,
    object: &Object,
    record: &mut Record<'_>,
) -> Result<Next, Failure> {
    let now_ms = call.worker.unix_ms();
    hit::stored(call, admitted, memory, object, now_ms, record).await
}

/// Forwards what changes things: what is stored of its target is invalid then.
pub(crate) async fn change(
    call: &Call<'_>,
    admitted: &Admitted,
    memory: &mut Memory,
    record: &mut Record<'_>,
) -> Result<Next, Failure> {
    let ask = Ask::of(call, admitted, &memory.request);
    let reply = forward::forward(call, admitted, memory, record).await?;
    // RFC 9111 §4.4: only where it has succeeded.
    if let Some(ask) = ask.filter(|_| (200..400).contains(&memory.response.head.start.status)) {
        ask.cache.store.purge_key(ask.key, ::cache::Force::Hard);
    }
    respond::respond(call, admitted, memory, reply, record).await
}

/// Asks a server, or waits for who does already.
pub(crate) async fn ask(
    call: &Call<'_>,
    admitted: &Admitted,
    memory: &mut Memory,
    found: Option<Arc<Object>>,
    record: &mut Record<'_>,
) -> Result<Next, Failure> {
    let Some(ask) = Ask::of(call, admitted, &memory.request) else {
        return pass(call, admitted, memory, record).await;
    };
    let request = &memory.request;
    let joined =
        ask.cache.store.join(ask.key, found.as_ref(), |vary| ask.variant(vary, request), ask.now_ms / 1000);
    let waited = match joined {
        Joined::Hit(object) => Waited::Hit(object),
        Joined::Lead(lead) => Waited::Lead(lead),
        Joined::Stream(reader) => Waited::Stream(reader),
        Joined::Pass => Waited::Refused,
        Joined::Wait(mut wait) => {
            call.worker.counters.cache_waits.increment();
            poll_fn(|context| wait.poll(context)).await
        }
    };
    let is_ours = |vary: &Vary, variant| ask.variant(vary, &memory.request) == variant;
    match waited {
        Waited::Hit(object) if is_ours(object.vary(), object.variant()) => {
            hit::stored(call, admitted, memory, &object, ask.now_ms, record).await
        }
        Waited::Stream(reader) if is_ours(&reader.opening().vary, reader.opening().variant) => {
            hit::stream(call, admitted, memory, reader, record).await
        }
        Waited::Lead(lead) => lead_fetch(call, admitted, memory, &ask, lead, found, record).await,
        Waited::Failed => match found.filter(|object| ask.stands_in(object, OriginError::Unreachable)) {
            Some(object) => hit::stored(call, admitted, memory, &object, ask.now_ms, record).await,
            None => Err(Failure::FetchFailed),
        },
        Waited::Hit(_) | Waited::Stream(_) | Waited::Refused => pass(call, admitted, memory, record).await,
    }
}

async fn pass(
    call: &Call<'_>,
    admitted: &Admitted,
    memory: &mut Memory,
    record: &mut Record<'_>,
) -> Result<Next, Failure> {
    let reply = forward::forward(call, admitted, memory, record).await?;
    respond::respond(call, admitted, memory, reply, record).await
}

/// Asks the server for all who want the same.
async fn lead_fetch(
    call: &Call<'_>,
    admitted: &Admitted,
    memory: &mut Memory,
    ask: &Ask<'_>,
    lead: Lead,
    found: Option<Arc<Object>>,
    record: &mut Record<'_>,
) -> Result<Next, Failure> {
    let outcome = forward::forward(call, admitted, memory, record).await;
    let error = match &outcome {
        Ok(_) => OriginError::of_status(memory.response.head.start.status),
        Err(failure) => (failure.facts().party != Party::Client).then_some(OriginError::Unreachable),
    };
    if let (Some(error), Some(object)) = (error, &found)
        && ask.stands_in(object, error)
    {
        lead.fail();
        return hit::stored(call, admitted, memory, object, ask.now_ms, record).await;
    }
    let reply = match outcome {
        Ok(reply) => reply,
        Err(failure) => {
            // What went wrong with this client is nothing to the others: dropped, one of them leads.
            if error.is_some() {
                lead.fail();
            }
            return Err(failure);
        }
    };
    match opening(call, admitted, ask, &memory.request, &memory.response, &reply) {
        Ok(opening) => {
            let fill = lead.open(opening);
            let reader = fill.reader();
            let filling = Filling::new(call, admitted, ask.refused_until_seconds(), fill, reply);
            filling.begin(&mut memory.response);
            match reader {
                Some(reader) => hit::stream(call, admitted, memory, reader, record).await,
                // It is as large as nothing that is stored only where nothing can be.
                None => Err(Failure::FetchFailed),
            }
        }
        Err(_) => {
            lead.refuse(ask.refused_until_seconds());
            respond::respond(call, admitted, memory, reply, record).await
        }
    }
}

/// What is stored of a response, up to its body.
fn opening(
    call: &Call<'_>,
    admitted: &Admitted,
    ask: &Ask<'_>,
    request: &Request,
    response: &Response,
    reply: &Reply,
) -> Result<Opening, Refusal> {
    let (head, bytes) = (&response.head, response.buffer.filled());
    let times = Times { requested_ms: ask.now_ms, received_ms: call.worker.unix_ms() };
    // The cookie of a session is one client's.
    if !response.added.is_empty() {
        return Err(Refusal::SetCookie);
    }
    // A page stands in for it each time.
    if answer::stand_in(call, admitted.policies(call), head.start.status).is_some() {
        return Err(Refusal::StatusTtlZero);
    }
    let vary = Vary::of(head, bytes, ask.policy)?;
    let mut kept = Vec::new();
    let stored = ::cache::admit(&ask.asked, head, bytes, times, ask.policy, &mut kept)?;
    let body_bytes = match reply.framing {
        Framing::None => Some(0),
        Framing::Length(length) => Some(length),
        Framing::Chunked | Framing::UntilClose => None,
    };
    if body_bytes.is_some_and(|length| length > ask.cache.store.object_bytes_max()) {
        return Err(Refusal::TooLarge);
    }
    let mut key_text = Vec::new();
    let request_bytes = request.head_bytes();
    write_key(
        &mut key_text,
        &uri(call, admitted, request_bytes),
        &ask.policy.key,
        &request.head,
        request_bytes,
    );
    Ok(Opening {
        stored,
        variant: ask.variant(&vary, request),
        vary,
        key_text: key_text.into(),
        head: kept.into(),
        labels: Box::default(),
        body_bytes,
    })
}
