//! The cache in the path of a request: stored responses are sent at once; of several requests for the same response,
//! one asks a server, and the others read along.
//!
//! The crate `cache` decides what may be stored and used, and stores it.

/// Sends a stored response.
mod hit;
/// Stored responses in other content codings.
mod coded;
/// Stored responses that are dictionaries for later ones.
mod dictionaries;
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
/// Asks other instances for what they own.
pub(crate) mod peers;
/// What unsafe requests make invalid.
pub(crate) mod invalidated;
/// Purges stored responses.
mod purge;
/// Passes purges on to the next process.
pub mod successor;
/// Passes purges on to other instances.
mod others;
/// Explains to operators why a request is a hit or a miss.
mod explain;
/// Which fields of a request servers see as the client sent them.
mod sent;
/// The disk store behind the memory.
mod tier;

use std::sync::{Arc, OnceLock};

use ::cache::{
    Asked, Behind, Codings, Decision, Forward, Found, Freshness, Handling, Hot, Joined, Key, KeySecret,
    Object, OriginError, Policy, Resized, Store, StoreSettings, Stored, Uri, VariantKey, Vary, Verdict,
    decide, is_unsafe, judge_conditions, range_applies, serves_on_error,
};
use config::CacheStore;
use http1::Method;
use pages::Pages;
use telemetry::message;

use crate::context::client::Next;
use crate::context::exchange::{Exchange, ExchangeContext, Purpose, RoutedRequest};
use crate::context::exchange_slot::Request;
use crate::context::failure::Failure;
use crate::context::plan::Plan;
use crate::context::seen;
use crate::forward;
use crate::forward::respond;
use crate::shaping;
pub use counters::{miss_words, of_route, refusal_words};
use dictionaries::Dictionaries;
pub use explain::Question;
use hit::CacheReport;
pub(crate) use invalidated::invalidate;
use others::Others;
pub use others::{Publication, Ways, purge_of_everything};
use peers::Owner;
pub use purge::{Purging, sweep};
pub(crate) use purge::{is_purge, purge};
use sent::Passing;
pub(crate) use sent::prepare;
use successor::Successor;
use tier::SecondTier;

/// How long it is remembered that a response was not to be stored.
const REFUSED_FOR_SECONDS: u64 = 60;

/// The store of responses, and the secret for its keys.
#[derive(Clone)]
pub struct Cache {
    store: Arc<Store>,
    secret: KeySecret,
    second_tier: SecondTier,
    successor: Arc<Successor>,
    others: Arc<Others>,
    dictionaries: Arc<Dictionaries>,
    /// What is kept though another instance owns it; not before there is one.
    hot: Arc<OnceLock<Hot>>,
}

impl Cache {
    pub(crate) fn new(settings: &CacheStore) -> Self {
        let CacheStore { memory_bytes, object_bytes_max, ref disk, .. } = *settings;
        let second_tier = SecondTier::open(disk.as_ref());
        let fresh = || KeySecret::new(u128::from_le_bytes(crate::context::plan::secret()));
        let secret = second_tier.secret().unwrap_or_else(fresh);
        let behind = second_tier.tier().map(|tier| Arc::clone(tier) as Arc<dyn Behind>);
        let settings = StoreSettings { memory_bytes, object_bytes_max };
        let mut store = Store::new(settings, behind);
        match Pages::new() {
            Ok(pages) => store = store.with_shelf(Arc::new(pages)),
            Err(error) => message::warn(&format!("cached bodies are copied for each connection: {error}")),
        }
        Self {
            store: Arc::new(store),
            secret,
            second_tier,
            successor: Arc::default(),
            others: Arc::default(),
            dictionaries: Arc::default(),
            hot: Arc::default(),
        }
    }

    /// The secret that the secrets of cache spaces derive from.
    pub fn secret(&self) -> KeySecret {
        self.secret
    }

    /// Whether anything is stored under a key, or may be on the disk.
    fn has(&self, key: Key) -> bool {
        self.store.holds(key) || self.second_tier.tier().is_some_and(|tier| tier.has(key))
    }

    /// Adapts the store to a new plan, once that is in force. Returns a remark about stored responses that do not fit
    /// any more.
    pub fn follow(before: &Plan, now: &Plan) -> Option<String> {
        let last = before.cache.as_ref()?;
        let (Some(cache), Some(settings)) = (&now.cache, &now.config.cache) else {
            return dropped(last, "there is none any more");
        };
        if !Arc::ptr_eq(&cache.store, &last.store) {
            return dropped(last, "it has another disk, and begins anew");
        }
        let CacheStore { memory_bytes, object_bytes_max, .. } = *settings;
        let known = before.config.cache.as_ref();
        let is_same = |known: &CacheStore| {
            (known.memory_bytes, known.object_bytes_max) == (memory_bytes, object_bytes_max)
        };
        if known.is_some_and(is_same) {
            return None;
        }
        let Resized { kept, dropped } = cache.store.resize(StoreSettings { memory_bytes, object_bytes_max });
        let report =
            format!("cache: {dropped} stored responses made room, those used least; {kept} are kept");
        (dropped > 0).then_some(report)
    }

    /// Leaves the disk store to another process.
    pub fn leave(&self) {
        if let Some(tier) = self.second_tier.tier() {
            tier.close();
        }
    }

    /// Writes pending responses to the disk, at the end of the process.
    pub fn finish(&self) {
        if let Some(tier) = self.second_tier.tier() {
            tier.finish();
        }
    }
}

fn dropped(last: &Cache, why: &str) -> Option<String> {
    let count = last.store.responses();
    (count > 0).then(|| format!("cache: {why}: {count} stored responses in memory are dropped"))
}

/// The result of a look-up in the store.
pub(crate) enum Looked {
    /// A stored response answers the request.
    Hit(Hit),
    /// The request has to go to a server.
    Miss(Miss),
}

/// A stored response that answers a request.
pub(crate) struct Hit {
    object: Arc<Object>,
    /// Whether the request has neither preconditions nor ranges.
    is_plain: bool,
}

/// A request that no stored response answers.
pub(crate) struct Miss {
    path_to_server: ServerPath,
    forward: Forward,
    /// What is stored, and may be good still, or stand in if the server fails.
    found: Option<Arc<Object>>,
    /// The disk may have it. Whether it is a miss is counted when that is known.
    may_be_on_disk: bool,
    /// The other instance that owns the key, once it was looked for.
    owner: Option<Owner>,
}

impl Miss {
    /// One that nothing stored is for.
    fn of(path_to_server: ServerPath, forward: Forward) -> Self {
        Self { path_to_server, forward, found: None, may_be_on_disk: false, owner: None }
    }
}

/// How a request goes to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServerPath {
    /// One request fetches for all requests for the same response.
    Fetch,
    /// The request goes by itself, and its response serves no other.
    Pass,
    /// The request goes by itself, and invalidates stored responses (RFC 9111 §4.4).
    Change,
}

/// Looks up a request in the store.
pub(crate) fn look(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    request: &Request,
) -> Result<Looked, Failure> {
    let Some(ask) = Ask::of(ctx, routed, request) else {
        return Ok(Looked::Miss(Miss::of(ServerPath::Pass, Forward::Bypass)));
    };
    let asked = &ask.asked;
    if !asked.may_be_answered() {
        let (path_to_server, forward) = match asked.method {
            Method::Get | Method::Head => (ServerPath::Pass, Forward::Bypass),
            method if is_unsafe(method) => (ServerPath::Change, Forward::Method),
            _ => (ServerPath::Pass, Forward::Method),
        };
        counters::miss(ctx, routed, forward);
        return Ok(Looked::Miss(Miss::of(path_to_server, forward)));
    }
    let found = ask.look(request);
    if found.is_none()
        && asked.has_range()
        && let Some(hit) = ask.look_for_part(ctx, routed, request)
    {
        return Ok(Looked::Hit(hit));
    }
    let decision = ask.decide(found.as_deref());
    match (decision, found) {
        (Decision::Serve(freshness), Some(object)) => Ok(ask.serve(ctx, routed, request, object, freshness)),
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
        // Only what is stored is served.
        (Decision::Serve(_), None) => Ok(Looked::Miss(ask.miss(Forward::UriMiss, None))),
    }
}

/// Sends a stored response.
pub(crate) async fn serve(exchange: &mut Exchange<'_, '_>, hit: &Hit) -> Result<Next, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let shows_key =
        ctx.snapshot.plan.config.routes[routed.route].cache.as_ref().is_some_and(|policy| policy.shows_key);
    let Hit { object, is_plain } = hit;
    exchange.state.record.cached = routed.cached.get();
    // No server has been asked: there is nothing of its response.
    exchange.memory.response.added.clear();
    let report =
        CacheReport { handling: Handling::Hit, now_ms: ctx.worker.unix_ms(), shows_key, is_plain: *is_plain };
    hit::stored(exchange, object, report).await
}

/// Asks a server, for all requests for the same response or for this one only.
pub(crate) async fn ask(exchange: &mut Exchange<'_, '_>, miss: Miss) -> Result<Next, Failure> {
    let outcome = ask_server(exchange, miss).await;
    exchange.state.record.cached = exchange.routed.cached.get();
    outcome
}

async fn ask_server(exchange: &mut Exchange<'_, '_>, mut miss: Miss) -> Result<Next, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let delay = ctx.snapshot.plan.routes[routed.route].delay.as_ref();
    if let Some(delay) = delay.filter(|_| routed.purpose != Purpose::Peer) {
        shaping::hold_back(ctx, delay, exchange.memory).await;
    }
    exchange.memory.response.added.clear();
    let Some(ask) = Ask::of(ctx, routed, &exchange.memory.request) else {
        let reply = forward::forward(exchange).await?;
        return respond::respond(exchange, reply).await;
    };
    miss.owner = peers::owner(ctx, routed, &exchange.memory.request, &ask);
    match miss.path_to_server {
        // What another instance owns is not stored here, but for what is asked for often, so there is nothing to wait for.
        ServerPath::Fetch if miss.owner.is_some_and(|owner| !owner.is_hot) && miss.may_be_on_disk => {
            fetch::ask_disk(exchange, &ask, miss).await
        }
        ServerPath::Fetch if miss.owner.is_some_and(|owner| !owner.is_hot) => {
            pass::pass(exchange, &ask, miss).await
        }
        ServerPath::Fetch => fetch::ask(exchange, &ask, miss).await,
        ServerPath::Pass if miss.may_be_on_disk => fetch::ask_disk(exchange, &ask, miss).await,
        ServerPath::Pass => pass::pass(exchange, &ask, miss).await,
        ServerPath::Change => pass::change(exchange, miss.forward).await,
    }
}

/// A request to a route that has a cache.
#[derive(Clone, Copy)]
struct Ask<'a> {
    cache: &'a Cache,
    policy: &'a Policy,
    asked: Asked,
    key: Key,
    passing: Passing,
    now_ms: u64,
}

impl<'a> Ask<'a> {
    fn of(ctx: &ExchangeContext<'a>, routed: &RoutedRequest, request: &Request) -> Option<Self> {
        let plan = &ctx.snapshot.plan;
        let (cache, policy) = (plan.cache.as_ref()?, plan.config.routes[routed.route].cache.as_ref()?);
        let bytes = request.head_bytes();
        let uri = uri(ctx, routed, request);
        let secret = plan.routes[routed.route].key_secret(routed.upstream)?;
        let passing = Passing::of(ctx, routed);
        let key =
            Key::of(secret, &uri, &policy.key, &request.head, bytes, passing.passes(&request.head, bytes));
        let mut asked = Asked::of(&request.head, bytes);
        if passing.drops_authorization {
            asked = asked.without_authorization();
        }
        if passing.tells_user {
            asked = asked.with_authorization();
        }
        Some(Self { cache, policy, asked, key, passing, now_ms: ctx.worker.unix_ms() })
    }

    fn look(&self, request: &Request) -> Option<Arc<Object>> {
        self.cache.store.look(self.key, |vary| self.variant(vary, request))
    }

    /// A stored part that answers a request for a range of the whole.
    #[cold]
    fn look_for_part(
        &self,
        ctx: &ExchangeContext<'_>,
        routed: &RoutedRequest,
        request: &Request,
    ) -> Option<Hit> {
        let object = self.cache.store.part(self.key, |vary| self.variant(vary, request))?;
        let (asked, head, bytes) = (&self.asked, &request.head, request.head_bytes());
        let (stored, stored_head) = (object.stored(), object.head());
        stored.part?.select(head, bytes)?;
        let answers = range_applies(asked, head, bytes, stored, stored_head)
            && judge_conditions(asked, head, bytes, stored, stored_head) == Verdict::Proceed
            && self.decide(Some(&object)) == Decision::Serve(Freshness::Fresh);
        answers.then(|| {
            counters::hit(ctx, routed);
            Hit { object, is_plain: false }
        })
    }

    fn join(&self, request: &Request, seen: Option<&Arc<Object>>) -> Joined {
        self.cache.store.join(self.key, seen, |vary| self.variant(vary, request), self.now_ms / 1000)
    }

    fn variant(&self, vary: &Vary, request: &Request) -> VariantKey {
        let (head, bytes) = (&request.head, request.head_bytes());
        vary.variant(self.cache.secret, self.policy, head, bytes, self.passing.passes(head, bytes))
    }

    /// The codings that it has named to the server.
    fn codings(&self, request: &Request) -> Codings {
        let (head, bytes) = (&request.head, request.head_bytes());
        if self.passing.passes(head, bytes)(b"accept-encoding") {
            Codings::of(head, bytes)
        } else {
            Codings::default()
        }
    }

    fn is_ours(&self, request: &Request, vary: &Vary, variant: VariantKey) -> bool {
        self.variant(vary, request) == variant
    }

    fn decide(&self, object: Option<&Object>) -> Decision {
        let Some(object) = object else {
            let holds = self.cache.store.holds(self.key);
            let found = if holds { Found::OtherVariants } else { Found::Nothing };
            return decide(&self.asked, found, self.policy, self.now_ms);
        };
        if object.is_softly_purged() {
            return self.decide_about(&object.made_stale(self.now_ms));
        }
        self.decide_about(object.stored())
    }

    fn decide_about(&self, stored: &Stored) -> Decision {
        decide(&self.asked, Found::Variant(stored), self.policy, self.now_ms)
    }

    /// Whether what is stored answers in the place of a server that has failed; it may have been purged since it was found.
    fn stands_in(&self, object: &Object, error: OriginError) -> bool {
        if !self.cache.store.is_good(object) {
            return false;
        }
        let stored =
            if object.is_softly_purged() { object.made_stale(self.now_ms) } else { *object.stored() };
        serves_on_error(&self.asked, &stored, error, self.policy, self.now_ms)
    }

    /// What may be served answers, unless the request's preconditions are for the server to judge.
    #[inline]
    fn serve(
        &self,
        ctx: &ExchangeContext<'_>,
        routed: &RoutedRequest,
        request: &Request,
        object: Arc<Object>,
        freshness: Freshness,
    ) -> Looked {
        let asked = &self.asked;
        if asked.is_conditional() {
            let (head, bytes) = (&request.head, request.head_bytes());
            let verdict = judge_conditions(asked, head, bytes, object.stored(), object.head());
            if verdict == Verdict::AskOrigin {
                counters::miss(ctx, routed, Forward::Request);
                return Looked::Miss(Miss::of(ServerPath::Pass, Forward::Request));
            }
        }
        // The owner does so for all instances, and what is kept here for a while is not kept longer.
        if freshness == Freshness::StaleWhileRevalidate && peers::owner(ctx, routed, request, self).is_some()
        {
            counters::miss(ctx, routed, Forward::Stale);
            return Looked::Miss(self.miss(Forward::Stale, Some(object)));
        }
        counters::hit(ctx, routed);
        if freshness != Freshness::Fresh {
            counters::stale(ctx, routed);
        }
        // RFC 9111 §4.3.5: the response to a HEAD would leave the body as old as it is.
        if freshness == Freshness::StaleWhileRevalidate && routed.method == Method::Get {
            background::revalidate(ctx, routed, request, self, &object);
        }
        Looked::Hit(Hit { object, is_plain: self.is_plain() })
    }

    /// How a request goes to a server that what is stored does not answer.
    fn miss(&self, forward: Forward, found: Option<Arc<Object>>) -> Miss {
        let may_be_on_disk = found.is_none() && self.may_be_on_disk();
        // Who asks the disk for a GET has others with the same wait for what is there.
        let is_shared =
            (may_be_on_disk && self.asked.method == Method::Get) || self.is_for_all(found.as_ref());
        let path_to_server = if is_shared { ServerPath::Fetch } else { ServerPath::Pass };
        Miss { path_to_server, forward, found, may_be_on_disk, owner: None }
    }

    /// Whether the disk may have what memory has not.
    fn may_be_on_disk(&self) -> bool {
        self.cache.second_tier.tier().is_some_and(|tier| tier.has(self.key))
    }

    /// Whether what a server answers is for all who want the same.
    fn is_for_all(&self, found: Option<&Arc<Object>>) -> bool {
        let asked = &self.asked;
        let may_store = !asked.directives.no_store || self.policy.ignore.request_directives;
        let is_validated = found.is_some_and(|object| object.stored().has_validator());
        // A HEAD brings nothing to be stored. A part is asked for by itself, unless the whole is just to be validated.
        asked.method == Method::Get
            && may_store
            && !asked.has_condition_for_origin()
            && (is_validated || !asked.has_range())
    }

    /// Whether what comes for this request alone may be stored, if it says so.
    fn may_store(&self) -> bool {
        self.asked.method == Method::Get && self.asked.may_be_answered()
    }

    fn report(&self, ctx: &ExchangeContext<'_>, handling: Handling) -> CacheReport {
        let (now_ms, shows_key) = (ctx.worker.unix_ms(), self.policy.shows_key);
        CacheReport { handling, now_ms, shows_key, is_plain: self.is_plain() }
    }

    fn is_plain(&self) -> bool {
        !self.asked.is_conditional() && !self.asked.has_range()
    }
}

fn uri<'a>(ctx: &ExchangeContext<'_>, routed: &RoutedRequest, request: &'a Request) -> Uri<'a> {
    let (target, bytes) = (&routed.target, request.head_bytes());
    // RFC 9110 §7.1: scheme and host are those that the client used, as far as a trusted proxy tells them. Servers are told
    // of them as well: what one makes of them is for no other host.
    let is_https = seen::scheme(ctx, &request.head, bytes) == "https";
    let authority = seen::authority(ctx, &request.head, bytes, target);
    Uri::new(is_https, authority, target.path_and_query.of(bytes))
}
