//! The cache in the path of a request: stored responses are sent at once. Concurrent requests for a missing or stale
//! response are collapsed: one asks a server, and the others read along.
//!
//! The crate `cache` decides what may be stored and used, and stores it.

/// Sends a stored response.
mod hit;
/// Stored responses in other content codings.
mod coded;
/// Writes the head of a stored response.
mod head;
/// Sends a response while it is being stored.
mod live;
/// Asks a server on behalf of all requests for the same response.
mod fetch;
/// Revalidates a stored response in the background.
mod background;
/// Receives the rest of a response into the store.
mod fill;
/// Requests that bypass the store.
mod pass;
/// Counters and status of the cache.
mod counters;
/// Lifetimes by condition.
mod lifetimes;
/// Asks the instances that own a key.
pub(crate) mod peers;
/// Invalidates stored responses after unsafe requests.
pub(crate) mod invalidated;
/// Purges stored responses.
mod purge;
/// Waits for purges elsewhere, and applies those of the previous process.
pub mod told;
/// Explains to operators why a request is a hit or a miss.
mod explain;
/// Determines which request fields reach servers unchanged.
mod sent;

use std::sync::Arc;

use ::cache::{
    CacheKey, CachePolicy, CacheRequestFields, Codings, Decision, Forward, Freshness, Handling, KeyValues,
    LookUp, MissRole, Object, OriginError, PreconditionResult, Resized, StoreSettings, Stored, Uri,
    VariantKey, Vary, decide, is_unsafe, judge_conditions, range_applies, serves_on_error,
};
use config::CacheStore;
use http1::Method;

use crate::context::client::AfterExchange;
use crate::context::exchange_slot::CurrentRequest;
use crate::context::plan::Plan;
use crate::context::request_values::RequestValues;
use crate::context::routed::{ExchangeContext, Purpose, RoutedRequest};
use crate::context::seen;
use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::forward;
use crate::forward::{respond, tags};
use crate::outgoing::delay;
pub use crate::store::{Cache, Publication, Purging, Ways, purge_of_everything};
pub use counters::{miss_words, of_route, refusal_words};
pub use explain::ExplainRequest;
use hit::CacheReport;
pub(crate) use invalidated::invalidate;
use peers::KeyOwner;
pub use purge::sweep;
pub(crate) use purge::{is_purge, purge};
use sent::Passing;
pub(crate) use sent::prepare;

/// Seconds for which the store remembers that a response may not be stored.
const REFUSED_FOR_SECONDS: u64 = 60;

/// Adapts the store to a new plan, once that is in force. Returns a message about stored responses that no longer fit.
pub fn follow(before: &Plan, now: &Plan) -> Option<String> {
    let last = before.cache.as_ref()?;
    let (Some(cache), Some(settings)) = (&now.cache, &now.config.cache) else {
        return dropped(last, "it was removed from the configuration");
    };
    if !Arc::ptr_eq(&cache.store, &last.store) {
        return dropped(last, "it starts empty, because its disk was changed");
    }
    let CacheStore { memory_bytes, object_bytes_max, .. } = *settings;
    let known = before.config.cache.as_ref();
    let is_same =
        |known: &CacheStore| (known.memory_bytes, known.object_bytes_max) == (memory_bytes, object_bytes_max);
    if known.is_some_and(is_same) {
        return None;
    }
    let Resized { kept, dropped } = cache.store.resize(StoreSettings { memory_bytes, object_bytes_max });
    let report = format!(
        "cache: {dropped} stored responses were evicted, least used first, to fit the new limits; {kept} remain"
    );
    (dropped > 0).then_some(report)
}

/// Describes why the whole store was dropped.
fn dropped(last: &Cache, why: &str) -> Option<String> {
    let count = last.store.responses();
    (count > 0).then(|| format!("cache: {why}: {count} stored responses in memory are dropped"))
}

/// Result of a look-up in the store.
pub(crate) enum Looked {
    Hit(Hit),
    /// The request must go to a server.
    Miss(Miss),
}

pub(crate) struct Hit {
    object: Arc<Object>,
    /// Whether the request has neither preconditions nor ranges.
    is_plain: bool,
}

pub(crate) struct Miss {
    path_to_server: ServerPath,
    forward: Forward,
    /// A stored response that may be revalidated, or replaces the response of a failed server.
    found: Option<Arc<Object>>,
    /// Whether the disk may have a response. The miss is only counted once that is known.
    may_be_on_disk: bool,
    /// The other instance that owns the key, once looked up.
    owner: Option<KeyOwner>,
}

impl Miss {
    /// Creates a miss without a stored response.
    fn new(path_to_server: ServerPath, forward: Forward) -> Self {
        Self { path_to_server, forward, found: None, may_be_on_disk: false, owner: None }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServerPath {
    /// A single request fetches for all requests for the same response.
    Fetch,
    /// The request is sent separately, and its response serves no other.
    Pass,
    /// The request is sent separately, and invalidates stored responses (RFC 9111 §4.4).
    Change,
}

/// Looks up a request in the store. Called once for each request of a route with a cache, after its policies.
pub(crate) fn look(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    request: &CurrentRequest,
) -> Result<Looked, Failure> {
    let Some(ask) = CacheRequest::new(ctx, routed, request) else {
        return Ok(Looked::Miss(Miss::new(ServerPath::Pass, Forward::Bypass)));
    };
    let asked = &ask.asked;
    if !asked.may_be_answered() {
        let (path_to_server, forward) = match asked.method {
            Method::Get | Method::Head => (ServerPath::Pass, Forward::Bypass),
            // RFC 9111 §4.4: if it succeeds, responses that are stored for its URI are invalid.
            method if is_unsafe(method) => (ServerPath::Change, Forward::Method),
            _ => (ServerPath::Pass, Forward::Method),
        };
        counters::miss(ctx, routed, forward);
        return Ok(Looked::Miss(Miss::new(path_to_server, forward)));
    }
    let found = ask.look(request);
    // Parts lie under separate keys, so that a look-up of a complete response pays nothing for them.
    if found.is_none()
        && asked.has_range()
        && let Some(hit) = ask.look_for_part(ctx, routed, request)
    {
        return Ok(Looked::Hit(hit));
    }
    let decision = ask.decide(found.as_deref());
    match (decision, found) {
        (Decision::Serve(freshness), Some(object)) => Ok(ask.serve(ctx, routed, request, object, freshness)),
        // RFC 9111 §5.2.1.7: the client wants no server to be asked. The disk may still have a response.
        (Decision::OnlyIfCached, found) if found.is_some() || !ask.may_be_on_disk() => {
            Err(Failure::NotStored)
        }
        (Decision::OnlyIfCached, _) => Ok(Looked::Miss(ask.miss(Forward::UriMiss, None))),
        (Decision::Validate(forward) | Decision::Forward(forward), found) => {
            let miss = ask.miss(forward, found);
            if !miss.may_be_on_disk {
                counters::miss(ctx, routed, forward);
            }
            Ok(Looked::Miss(miss))
        }
        // Not reached: a response is only served if one was found.
        (Decision::Serve(_), None) => Ok(Looked::Miss(ask.miss(Forward::UriMiss, None))),
    }
}

/// Sends a stored response. Called after a hit.
pub(crate) async fn serve(exchange: &mut Exchange<'_, '_>, hit: &Hit) -> Result<AfterExchange, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let shows_key =
        ctx.snapshot.plan.config.routes[routed.route].cache.as_ref().is_some_and(|policy| policy.shows_key);
    let Hit { object, is_plain } = hit;
    exchange.state.record.cached = routed.cached.get();
    // Discards lines for a server's response, such as a session cookie: no server was asked.
    exchange.memory.response.added.clear();
    let report =
        CacheReport { handling: Handling::Hit, now_ms: ctx.worker.unix_ms(), shows_key, is_plain: *is_plain };
    hit::stored(exchange, object, report).await
}

/// Asks a server, for all requests for the same response or for this one only. Called after a miss.
pub(crate) async fn ask(exchange: &mut Exchange<'_, '_>, miss: Miss) -> Result<AfterExchange, Failure> {
    let outcome = ask_server(exchange, miss).await;
    exchange.state.record.cached = exchange.routed.cached.get();
    outcome
}

/// Applies the route's delay and rewrites the conditions, then asks. Called once for each miss.
async fn ask_server(exchange: &mut Exchange<'_, '_>, miss: Miss) -> Result<AfterExchange, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let delay = ctx.snapshot.plan.routes[routed.route].delay.as_ref();
    // The instance that asks for its client has already applied the delay.
    if let Some(delay) = delay.filter(|_| routed.purpose != Purpose::Peer) {
        delay::hold_back(ctx, delay, exchange.memory).await;
    }
    exchange.memory.response.added.clear();
    // Clients know the weak tag of a coded response, servers only their strong one: If-Match would fail (412).
    exchange.memory.request.texts.conditions = tags::conditions(ctx, routed, &exchange.memory.request);
    let outcome = ask_for(exchange, miss).await;
    exchange.memory.request.texts.conditions = None;
    outcome
}

/// Sends the request on the path that the look-up has chosen.
async fn ask_for(exchange: &mut Exchange<'_, '_>, mut miss: Miss) -> Result<AfterExchange, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let Some(mut ask) = CacheRequest::new(ctx, routed, &exchange.memory.request) else {
        let reply = forward::forward(exchange).await?;
        return respond::respond(exchange, reply).await;
    };
    miss.owner = peers::owner(ctx, routed, &exchange.memory.request, &ask);
    let min_uses = ask.policy.min_uses;
    // The owner counts its own.
    ask.is_rare = min_uses > 1
        && miss.found.is_none()
        && miss.owner.is_none()
        && miss.path_to_server != ServerPath::Change
        && ask.cache.store.count_use(ask.key, |vary| ask.variant(vary, &exchange.memory.request)) < min_uses;
    match miss.path_to_server {
        // Another instance owns the response, so it is not stored here unless it is hot. Waiting for other requests
        // would gain nothing.
        ServerPath::Fetch if miss.owner.is_some_and(|owner| !owner.is_hot) && miss.may_be_on_disk => {
            fetch::ask_disk(exchange, &ask, miss).await
        }
        ServerPath::Fetch if miss.owner.is_some_and(|owner| !owner.is_hot) => {
            pass::pass(exchange, &ask, miss).await
        }
        ServerPath::Fetch if ask.is_rare && miss.may_be_on_disk => {
            fetch::ask_disk(exchange, &ask, miss).await
        }
        // No other request waits for a response that is not stored.
        ServerPath::Fetch if ask.is_rare => pass::pass(exchange, &ask, miss).await,
        ServerPath::Fetch => fetch::ask(exchange, &ask, miss).await,
        ServerPath::Pass if miss.may_be_on_disk => fetch::ask_disk(exchange, &ask, miss).await,
        ServerPath::Pass => pass::pass(exchange, &ask, miss).await,
        ServerPath::Change => pass::change(exchange, miss.forward).await,
    }
}

/// A request to a route that has a cache.
#[derive(Clone, Copy)]
struct CacheRequest<'a> {
    cache: &'a Cache,
    policy: &'a CachePolicy,
    asked: CacheRequestFields,
    key: CacheKey,
    passing: Passing,
    now_ms: u64,
    /// Whether the response is requested too rarely to be stored.
    is_rare: bool,
}

/// The values in the cache key of a request.
fn key_values<'a>(
    ctx: &'a ExchangeContext<'_>,
    routed: &'a RoutedRequest,
    request: &'a CurrentRequest,
) -> impl KeyValues {
    let wanted = &ctx.snapshot.plan.routes[routed.route].key_values;
    move |write: &mut dyn FnMut(&str, &[u8])| {
        let values = RequestValues::from_routed(ctx, routed, request);
        for (name, value) in wanted {
            values.write(value, &mut |text| write(name, text));
        }
    }
}

impl<'a> CacheRequest<'a> {
    fn new(ctx: &ExchangeContext<'a>, routed: &RoutedRequest, request: &CurrentRequest) -> Option<Self> {
        let plan = &ctx.snapshot.plan;
        let (cache, policy) = (plan.cache.as_ref()?, plan.config.routes[routed.route].cache.as_deref()?);
        let bytes = request.head_bytes();
        let uri = uri(ctx, routed, request);
        let secret = plan.routes[routed.route].key_secret(routed.upstream.get())?;
        let passing = Passing::new(ctx, routed);
        let key = CacheKey::from_secret(
            secret,
            &uri,
            &policy.key,
            (&request.head, bytes),
            passing.passes(&request.head, bytes),
            key_values(ctx, routed, request),
        );
        let mut asked = CacheRequestFields::new(&request.head, bytes);
        // The password is for this proxy. GET and HEAD reach servers without it, so RFC 9111 §3.5 does not apply.
        if passing.drops_authorization {
            asked = asked.without_authorization();
        }
        // The server learns the user from another field, so its responses count as those to requests with
        // Authorization.
        if passing.tells_user {
            asked = asked.with_authorization();
        }
        Some(Self { cache, policy, asked, key, passing, now_ms: ctx.worker.unix_ms(), is_rare: false })
    }

    fn look(&self, request: &CurrentRequest) -> Option<Arc<Object>> {
        self.cache.store.look(self.key, |vary| self.variant(vary, request))
    }

    /// Returns a stored part that answers a request for a range.
    #[cold]
    fn look_for_part(
        &self,
        ctx: &ExchangeContext<'_>,
        routed: &RoutedRequest,
        request: &CurrentRequest,
    ) -> Option<Hit> {
        let object = self.cache.store.part(self.key, |vary| self.variant(vary, request))?;
        let (asked, head, bytes) = (&self.asked, &request.head, request.head_bytes());
        let (stored, stored_head) = (object.stored(), object.head());
        stored.part?.select(head, bytes)?;
        let answers = coded::accepts_part(ctx, routed, request, &object)
            && range_applies(asked, head, bytes, stored, stored_head)
            && judge_conditions(asked, head, bytes, stored, stored_head) == PreconditionResult::Proceed
            && self.decide(Some(&object)) == Decision::Serve(Freshness::Fresh);
        answers.then(|| {
            counters::hit(ctx, routed);
            Hit { object, is_plain: false }
        })
    }

    fn join(&self, request: &CurrentRequest, seen: Option<&Arc<Object>>) -> MissRole {
        self.cache.store.join(self.key, seen, |vary| self.variant(vary, request), self.now_ms / 1000)
    }

    fn variant(&self, vary: &Vary, request: &CurrentRequest) -> VariantKey {
        let (head, bytes) = (&request.head, request.head_bytes());
        vary.variant(self.cache.secret, self.policy, head, bytes, self.passing.passes(head, bytes))
    }

    /// Returns the codings that the client has named to the server.
    fn codings(&self, request: &CurrentRequest) -> Codings {
        let (head, bytes) = (&request.head, request.head_bytes());
        // The server decides by the field that it gets, which need not be the client's.
        if self.passing.passes(head, bytes)(b"accept-encoding") {
            Codings::new(head, bytes)
        } else {
            Codings::default()
        }
    }

    fn is_ours(&self, request: &CurrentRequest, vary: &Vary, variant: VariantKey) -> bool {
        self.variant(vary, request) == variant
    }

    fn decide(&self, object: Option<&Object>) -> Decision {
        let Some(object) = object else {
            let holds = self.cache.store.holds(self.key);
            let found = if holds { LookUp::OtherVariants } else { LookUp::Nothing };
            return decide(&self.asked, found, self.policy, self.now_ms);
        };
        // Stale since the purge, not since this request: otherwise its stale windows would never end.
        if object.is_softly_purged() {
            return self.decide_about(&object.made_stale(self.now_ms));
        }
        self.decide_about(object.stored())
    }

    fn decide_about(&self, stored: &Stored) -> Decision {
        decide(&self.asked, LookUp::Variant(stored), self.policy, self.now_ms)
    }

    /// Whether a stored response replaces the error of a failed server. It may have been purged since the look-up.
    fn stands_in(&self, object: &Object, error: OriginError) -> bool {
        if !self.cache.store.is_good(object) {
            return false;
        }
        let stored =
            if object.is_softly_purged() { object.made_stale(self.now_ms) } else { *object.stored() };
        serves_on_error(&self.asked, &stored, error, self.policy, self.now_ms)
    }

    /// Returns a hit with a usable response, unless the server must judge the request's preconditions.
    #[inline]
    fn serve(
        &self,
        ctx: &ExchangeContext<'_>,
        routed: &RoutedRequest,
        request: &CurrentRequest,
        object: Arc<Object>,
        freshness: Freshness,
    ) -> Looked {
        let asked = &self.asked;
        if asked.is_conditional() {
            let (head, bytes) = (&request.head, request.head_bytes());
            let verdict = judge_conditions(asked, head, bytes, object.stored(), object.head());
            if verdict == PreconditionResult::AskOrigin {
                counters::miss(ctx, routed, Forward::Request);
                return Looked::Miss(Miss::new(ServerPath::Pass, Forward::Request));
            }
        }
        // The owner revalidates for all instances. A copy of a hot response is not served stale, because only the owner
        // knows whether a server has withdrawn it.
        if freshness != Freshness::Fresh && peers::owner(ctx, routed, request, self).is_some() {
            counters::miss(ctx, routed, Forward::Stale);
            return Looked::Miss(self.miss(Forward::Stale, Some(object)));
        }
        counters::hit(ctx, routed);
        if freshness != Freshness::Fresh {
            counters::stale(ctx, routed);
        }
        // RFC 9111 §4.3.5: a response to HEAD would not refresh the stored body.
        if freshness == Freshness::StaleWhileRevalidate && routed.method == Method::Get {
            background::revalidate(ctx, routed, request, self, &object);
        }
        Looked::Hit(Hit { object, is_plain: self.is_plain() })
    }

    /// Returns a miss, with the path that the request takes to a server.
    fn miss(&self, forward: Forward, found: Option<Arc<Object>>) -> Miss {
        let may_be_on_disk = found.is_none() && self.may_be_on_disk();
        // Other requests wait for a GET that reads the disk.
        let is_shared =
            (may_be_on_disk && self.asked.method == Method::Get) || self.is_for_all(found.as_ref());
        let path_to_server = if is_shared { ServerPath::Fetch } else { ServerPath::Pass };
        Miss { path_to_server, forward, found, may_be_on_disk, owner: None }
    }

    /// Whether the disk may have a response that memory lacks.
    fn may_be_on_disk(&self) -> bool {
        self.cache.second_tier.tier().is_some_and(|tier| tier.has(self.key))
    }

    /// Whether the server's answer serves all requests for the same response.
    fn is_for_all(&self, found: Option<&Arc<Object>>) -> bool {
        let asked = &self.asked;
        // RFC 9111 §5.2.1.5: a response to no-store must not be stored, so no other request may wait for it.
        let may_store = !asked.directives.no_store || self.policy.ignore.request_directives;
        let is_validated = found.is_some_and(|object| object.stored().has_validator());
        // A response to HEAD is not stored. A range is requested separately, unless the complete response only needs
        // revalidation.
        asked.method == Method::Get
            && may_store
            && !asked.has_condition_for_origin()
            && (is_validated || !asked.has_range())
    }

    /// Whether the response to a request that is sent separately may be stored, if its directives permit.
    fn may_store(&self) -> bool {
        !self.is_rare && self.asked.method == Method::Get && self.asked.may_be_answered()
    }

    fn report(&self, ctx: &ExchangeContext<'_>, handling: Handling) -> CacheReport {
        let (now_ms, shows_key) = (ctx.worker.unix_ms(), self.policy.shows_key);
        CacheReport { handling, now_ms, shows_key, is_plain: self.is_plain() }
    }

    fn is_plain(&self) -> bool {
        !self.asked.is_conditional() && !self.asked.has_range()
    }
}

fn uri<'a>(ctx: &ExchangeContext<'_>, routed: &RoutedRequest, request: &'a CurrentRequest) -> Uri<'a> {
    let (target, bytes) = (&routed.target, request.head_bytes());
    // RFC 9110 §7.1: scheme and host are those that the client used, as reported by trusted proxies. Servers receive
    // them, too, so a response that depends on them is stored under them.
    let is_https = seen::scheme(ctx, &request.head, bytes) == "https";
    let authority = seen::authority(ctx, &request.head, bytes, target);
    Uri::new(is_https, authority, target.path_and_query.for_bytes(bytes))
}
