//! Routes as the request path uses them: matching, requirements and actions.
//!
//! Request counts and verified users are shared by all workers, and survive configuration changes that leave their
//! settings unchanged.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cache::{KeySecret, Space};
use config::{Action, Compress, Config, DenyRule, Jwt, KeySource, RouteLog, Shared, TokenKeys, WebBotAuth};
use expression::{ExchangeStage, Expression, Fact};
use route::{
    AccessList, BytePattern, Credentials, CredentialsDigest, PathRewrite, PathRule, RequestParts, RouteRule,
    RouteTable, Users, VerifiedCredentials,
};

use super::request_limits::{self, ConcurrencyLimit, Limit, LimitZones};
use super::sent_tags::SentTags;
use super::split_key::SplitKey;
use super::stickiness::CookieSecret;
use crate::context::plan::Plan;
use crate::context::plan::authentication::{Authentication, Proof};
use crate::context::plan::bots::Bots;
use crate::context::plan::decisions_elsewhere::Elsewhere;
use crate::context::plan::forward_auth::ForwardAuth;
use crate::context::plan::logged::Logged;
use crate::context::plan::mirror::Mirror;
use crate::context::plan::tokens::{LiveTokenKeys, Tokens};
use crate::failure::Failure;
use crate::shared::client_limits::{ClientLimits, TimeoutTicks};
use crate::shared::limits::BandwidthLimits;
use crate::shared::request_fields::RequestFields;
use crate::shared::route_files::RouteFiles;
pub use crate::shared::secret::secret;
use transport::delay::Delayed;

/// How many verified credentials are remembered per user file, and for how long.
const VERIFIED_MAX: usize = 1024;
const VERIFIED_FOR: Duration = Duration::from_secs(10 * 60);

/// The index in place of an upstream's, for a route or a request without one.
pub(crate) const NO_UPSTREAM: usize = usize::MAX;

pub struct PlanRoute {
    /// Index of the upstream; `NO_UPSTREAM` if the action needs none.
    pub(crate) upstream: usize,
    /// For log and metrics.
    pub label: String,
    /// `None` if the route has no policies, which makes its requests cheaper.
    pub(crate) policies: Option<Box<RoutePolicies>>,
    pub(crate) is_cached: bool,
    /// The condition under which requests use the cache.
    pub(crate) cache_when: Option<Arc<Expression>>,
    /// The values in the cache key, with their names.
    pub(crate) key_values: Box<[(Box<str>, Arc<Expression>)]>,
    pub(crate) logged: Logged,
    /// The condition under which requests are logged.
    pub(crate) log_when: Option<Arc<Expression>>,
    pub(crate) compress: Option<Compression>,
    /// Whether requests are delayed, or may need other conditions for their server.
    pub(crate) prepares_requests: bool,
    /// Whether another upstream may answer in place of the first.
    pub(crate) falls_back: bool,
    /// Whether the route is only for listeners without TLS, so that its requests are not redirected to https.
    pub(crate) is_for_plain_http: bool,
    /// The secret of cache keys, for each of its upstreams; empty without a cache.
    key_secrets: Box<[(usize, KeySecret)]>,
    /// The bandwidth limits of bodies.
    pub(crate) limits: Option<Arc<BandwidthLimits>>,
    /// The weight of the route's bodies under limits that it shares with other routes.
    pub(crate) weight: NonZeroU32,
    pub(crate) delay: Option<Arc<Delayed>>,
    pub(crate) response_delay: Option<Arc<Delayed>>,
}

/// A route's policies: requirements on requests, and actions besides the choice of one upstream.
pub struct RoutePolicies {
    pub(crate) action: Action,
    pub(crate) access: Option<Box<RouteAccess>>,
    pub(crate) limits: Box<[Limit]>,
    pub(crate) concurrency: Box<[ConcurrencyLimit]>,
    /// Whether a rate limit counts users.
    pub(crate) limits_users: bool,
    pub(crate) mirror: Option<Arc<Mirror>>,
    /// The proofs that clients must give, if any.
    pub(crate) authentication: Option<Authentication>,
    /// The configured policies for messages.
    pub(crate) settings: Shared<config::Policies>,
    /// The files, if the route serves some.
    pub(crate) files: Option<Arc<RouteFiles>>,
    /// The files that servers may name, if any.
    pub(crate) accel: Option<Box<Accel>>,
    /// Keeps clients on their side of a split; see `Route::sign_splits`.
    pub(crate) split_key: Option<Box<SplitKey>>,
    /// The path pattern, whose groups edits may use.
    pub(crate) pattern: Option<BytePattern>,
    /// Whether the policies may need a request ID.
    pub(crate) names_request: bool,
    /// Whether a condition or a value asks for the time of the response.
    pub(crate) asks_time: bool,
    /// The condition for the cache, if it asks for the user.
    pub(crate) cache_when: Option<Arc<Expression>>,
    /// Whether edits of responses have conditions, or values that ask for more than the request and its user.
    pub(crate) edits_ask: bool,
    /// Whether templates of the route can have values.
    pub(crate) has_values: bool,
    /// `None` if the global ones apply.
    pub(crate) ticks: Option<Box<TimeoutTicks>>,
    /// `None` if the global ones apply.
    pub(crate) client_limits: Option<Box<ClientLimits>>,
}

/// Denied clients and requests of a route.
pub(crate) struct RouteAccess {
    pub(crate) networks: AccessList,
    pub(crate) rules: Box<[DenyRule]>,
}

/// Content coding of a route's bodies.
#[derive(Debug, Clone)]
pub(crate) struct Compression {
    pub(crate) settings: Arc<Compress>,
    /// A hash of the settings: notes made under other settings are ignored.
    pub(crate) number: u64,
    /// The kinds of tags that the route's servers send; some leave the proxy as weak ones.
    pub(crate) sent_tags: Arc<SentTags>,
}

impl Compression {
    /// Keeps the previous route's knowledge about its servers.
    fn new(settings: &Arc<Compress>, last: Option<&Self>) -> Self {
        let mut hash = DefaultHasher::new();
        format!("{settings:?}").hash(&mut hash);
        let sent_tags = last.map(|last| Arc::clone(&last.sent_tags)).unwrap_or_default();
        Self { settings: Arc::clone(settings), number: hash.finish(), sent_tags }
    }
}

/// Fields by which servers tell a proxy how to send a response.
const ACCEL_FIELDS: [&str; 6] = [
    "X-Accel-Redirect",
    "X-Sendfile",
    "X-Accel-Buffering",
    "X-Accel-Charset",
    "X-Accel-Expires",
    "X-Accel-Limit-Rate",
];

/// The folders whose files servers may name.
pub(crate) struct Accel {
    /// By the beginning of a path, the longest first.
    pub(crate) folders: Vec<(String, Arc<RouteFiles>)>,
}

impl Accel {
    fn new(settings: &config::Policies, config: &Config) -> Option<Box<Self>> {
        let folders = settings.accel.iter();
        let folders = folders.map(|it| (it.path.clone(), Arc::new(RouteFiles::new(&it.files, config))));
        (!settings.accel.is_empty()).then(|| Box::new(Self { folders: folders.collect() }))
    }
}

/// The users of a route with passwords.
pub struct Auth {
    pub(crate) users: Arc<Users>,
    /// The value of WWW-Authenticate.
    pub(crate) challenge: String,
    /// Locked for a single look-up.
    verified: Mutex<VerifiedCredentials>,
}

impl Auth {
    fn new(settings: &config::Auth) -> Self {
        let lifetime_ns = VERIFIED_FOR.as_nanos() as u64;
        Self {
            users: Arc::clone(&settings.users),
            challenge: route::challenge(&settings.realm).unwrap_or_else(|| "Basic realm=\"\"".to_owned()),
            verified: Mutex::new(VerifiedCredentials::new(VERIFIED_MAX, lifetime_ns, secret())),
        }
    }

    /// Returns the digest of credentials, and the index of the user if they were verified recently.
    pub(crate) fn known(&self, credentials: &Credentials, now_ns: u64) -> (CredentialsDigest, Option<usize>) {
        let verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        let digest = verified.digest(credentials);
        let user = verified.user(&digest, now_ns);
        (digest, user)
    }

    pub(crate) fn keep(&self, digest: CredentialsDigest, user: usize, now_ns: u64) {
        self.verified.lock().unwrap_or_else(PoisonError::into_inner).keep(digest, user, now_ns);
    }
}

/// The table that selects the route of a request.
#[derive(Clone)]
pub struct PlanRouteTable {
    rules: RouteTable,
    /// The route of each rule.
    of_rule: Arc<[usize]>,
    only: Option<usize>,
    /// Whether searches need scratch space, which threads should not share.
    has_patterns: bool,
}

impl PlanRouteTable {
    pub(crate) fn new(config: &Config) -> Self {
        let (of_rule, rules): (Vec<usize>, Vec<&RouteRule>) = config.rules().unzip();
        let has_patterns = rules.iter().any(|rule| rule.has_pattern());
        let rules = RouteTable::choosing(&rules);
        let only = rules.only().map(|rule| of_rule[rule]);
        Self { rules, of_rule: of_rule.into(), only, has_patterns }
    }

    /// Returns a copy of the table for another worker, or the same table if it can be shared.
    pub(crate) fn for_worker(table: &Arc<Self>) -> Arc<Self> {
        if table.has_patterns { Arc::new(Self::clone(table)) } else { Arc::clone(table) }
    }

    /// Returns the route of every request, if there is only one.
    #[inline]
    pub(crate) fn only(&self) -> Option<usize> {
        self.only
    }

    /// Selects the route for a request. Called once per request, during admission.
    pub(crate) fn choose(&self, request: &RequestParts<'_, RequestFields<'_>>) -> Result<usize, Failure> {
        // If a rule depends on the path, it must not be ambiguous.
        if self.rules.is_ambiguous(request) {
            return Err(Failure::AmbiguousPath);
        }
        self.rules.choose(request).map(|rule| self.of_rule[rule]).ok_or(Failure::NoRoute)
    }
}

/// Compiles the routes. Unchanged routes of `alike` are kept; it is the previous plan if everything around its routes
/// is unchanged, too. Other routes keep counts and verified users of `previous`. Secrets of cache keys derive from the
/// cache's secret.
pub(crate) fn routes(
    config: &Config,
    previous: Option<&Plan>,
    alike: Option<&Plan>,
    (cache_secret, split_secret): (Option<KeySecret>, &CookieSecret),
) -> Vec<Arc<PlanRoute>> {
    let mut kept = None;
    let route = |(place, settings): (usize, &Shared<config::Route>)| {
        let is_same = |before: &&Plan, place: usize| {
            before.config.routes.get(place).is_some_and(|before| before.is_one_with(settings))
        };
        // Unchanged routes are shared, so that an edit of one among thousands costs little.
        if let Some(alike) = alike.filter(|alike| is_same(alike, place)) {
            return Arc::clone(&alike.routes[place]);
        }
        // The maps of earlier state are only made once a route has changed.
        let kept = kept.get_or_insert_with(|| KeptState::from_previous(previous));
        let moved = kept.places.get(settings.name.as_str()).copied();
        if let Some((alike, place)) = alike.zip(moved).filter(|(alike, place)| is_same(alike, *place)) {
            return Arc::clone(&alike.routes[place]);
        }
        let mut route = PlanRoute::new(config, settings, kept, cache_secret);
        route.sign_splits(split_secret);
        Arc::new(route)
    };
    config.routes.iter().enumerate().map(route).collect()
}

/// Whether equal route settings have the same meaning in two configurations: scripts of a server are no files of routes.
pub(crate) fn are_surroundings_alike(one: &Config, other: &Config) -> bool {
    let has_tls = |config: &Config| -> Vec<bool> {
        config.listeners.iter().map(|listener| listener.tls.is_some()).collect()
    };
    let is_named_alike = |(one, other): (&Shared<config::Upstream>, &Shared<config::Upstream>)| {
        one.is_one_with(other) || (&one.name, one.scripts()) == (&other.name, other.scripts())
    };
    (&one.limits, &one.timeouts, &one.redis) == (&other.limits, &other.timeouts, &other.redis)
        && one.upstreams.len() == other.upstreams.len()
        && one.upstreams.iter().zip(&other.upstreams).all(is_named_alike)
        && has_tls(one) == has_tls(other)
}

/// Whether the rules of two configurations lead to the same routes.
pub(crate) fn have_same_rules(one: &Config, other: &Config) -> bool {
    let is_ruled_alike = |(one, other): (&Shared<config::Route>, &Shared<config::Route>)| {
        one.is_one_with(other) || one.rules == other.rules
    };
    one.routes.len() == other.routes.len() && one.routes.iter().zip(&other.routes).all(is_ruled_alike)
}

/// Whether these are identical routes.
pub(crate) fn are_same(before: &[Arc<PlanRoute>], routes: &[Arc<PlanRoute>]) -> bool {
    before.len() == routes.len() && before.iter().zip(routes).all(|(one, other)| Arc::ptr_eq(one, other))
}

/// Returns the cache spaces of these routes, without duplicates.
pub(crate) fn spaces(config: &Config, routes: &[Arc<PlanRoute>]) -> Vec<Space> {
    let mut spaces: Vec<Space> = Vec::new();
    // Nearly every secret has a single space.
    let mut known: HashMap<KeySecret, Vec<usize>> = HashMap::new();
    for (settings, route) in config.routes.iter().zip(routes) {
        let Some(policy) = &settings.cache else { continue };
        for &(_, secret) in &route.key_secrets {
            let known = known.entry(secret).or_default();
            if !known.iter().any(|place| spaces[*place].options == policy.key) {
                known.push(spaces.len());
                spaces.push(Space { secret, options: policy.key.clone() });
            }
        }
    }
    spaces
}

/// Returns the name of the space in which a route stores an upstream's responses: stable across restarts and changes of
/// other settings. If a route matches on more than host and path, other routes may answer the same URL, so its space is
/// separate.
fn space_name(config: &Config, route: &config::Route, upstream: usize) -> Vec<u8> {
    let upstream = config.upstreams[upstream].name.as_bytes();
    let mut name = (upstream.len() as u64).to_le_bytes().to_vec();
    name.extend_from_slice(upstream);
    if route.rules.iter().any(has_conditions) {
        name.extend_from_slice(route.name.as_bytes());
    }
    name
}

/// Whether a rule matches on more than host and path.
fn has_conditions(rule: &RouteRule) -> bool {
    let RouteRule { listeners, host: _, path: _, methods, headers, cookies, query, claims, when, clients } =
        rule;
    !(listeners.is_empty()
        && methods.is_empty()
        && headers.is_empty()
        && cookies.is_empty()
        && query.is_empty()
        && claims.values.is_empty()
        && when.is_none()
        && clients.is_empty())
}

/// Whether a condition is evaluated after authentication.
fn asks_for_user(condition: &Arc<Expression>) -> bool {
    condition.stage() > ExchangeStage::Request
}

/// Whether a condition of the route needs what is noted for routes with policies.
fn has_later_conditions(route: &config::Route) -> bool {
    route.conditions().any(|condition| asks_for_user(condition.when))
}

/// Whether all policies are default, except those with a separate field in `Route`.
fn is_default(policies: &config::Policies, default: &config::Policies) -> bool {
    let options = &policies.options;
    // The usual case needs no copy of the policies.
    if options.compress.is_none() && options.access_log.is_none() {
        return policies == default;
    }
    let mut policies = policies.clone();
    (policies.options.compress, policies.options.access_log) = (None, None);
    policies == *default
}

impl PlanRoute {
    pub(super) fn rate_limits(&self) -> impl Iterator<Item = &Limit> {
        self.policies.iter().flat_map(|policies| &policies.limits)
    }

    pub(super) fn concurrency_limits(&self) -> impl Iterator<Item = &ConcurrencyLimit> {
        self.policies.iter().flat_map(|policies| &policies.concurrency)
    }

    /// The channel of authentication decisions about its requests, if they are shared.
    pub(super) fn shared_decisions(&self) -> Option<&Arc<Elsewhere>> {
        let authentication = self.policies.as_ref()?.authentication.as_ref()?;
        authentication.server()?.memory.as_ref()?.elsewhere.as_ref()
    }

    fn new(
        config: &Config,
        settings: &config::Route,
        kept: &mut KeptState<'_>,
        secret: Option<KeySecret>,
    ) -> Self {
        let is_plain = matches!(settings.action, Action::Upstream(_))
            && is_default(&settings.policies, &kept.default)
            && !has_later_conditions(settings);
        let secret = secret.filter(|_| settings.cache.is_some());
        let key_secrets = secret.map_or_else(Box::default, |secret| {
            let of = |upstream| (upstream, secret.of_space(&space_name(config, settings, upstream)));
            settings.action.upstreams().map(of).collect()
        });
        let before = kept.routes.get(settings.name.as_str()).copied();
        let [delay, response_delay] =
            before.map_or([None, None], |route| [&route.delay, &route.response_delay].map(Option::as_ref));
        let last = before.and_then(|route| route.compress.as_ref());
        let compress =
            settings.policies.options.compress.as_ref().map(|settings| Compression::new(settings, last));
        let delay = Delayed::new(settings.shaping.delay.as_ref(), delay);
        let log = settings.policies.options.access_log.as_ref();
        let log_when = log.and_then(|log| if let RouteLog::When(when, _) = log { Some(when) } else { None });
        Self {
            upstream: settings.action.upstreams().next().unwrap_or(NO_UPSTREAM),
            label: settings.name.clone(),
            is_cached: settings.cache.is_some() && config.cache.is_some(),
            cache_when: settings.cache_when.clone().filter(|when| !asks_for_user(when)),
            key_values: key_values(settings),
            logged: Logged::new(log),
            log_when: log_when.cloned(),
            prepares_requests: delay.is_some() || compress.is_some(),
            falls_back: settings.policies.on_status.is_some(),
            compress,
            is_for_plain_http: config.is_for_plain_http(settings),
            key_secrets,
            limits: BandwidthLimits::new(
                &settings.shaping.bandwidths,
                kept.bandwidths.get(settings.name.as_str()).copied(),
            ),
            weight: settings.shaping.weight,
            delay,
            response_delay: Delayed::new(settings.shaping.response_delay.as_ref(), response_delay),
            policies: (!is_plain).then(|| Box::new(RoutePolicies::new(config, settings, kept))),
        }
    }

    /// The keys of tokens and bots that are fetched.
    pub fn fetched_keys(&self) -> impl Iterator<Item = &Arc<LiveTokenKeys>> {
        let policies = self.policies.as_deref();
        let of_tokens = policies.and_then(RoutePolicies::tokens).map(|tokens| &tokens.keys);
        let bots = policies.and_then(RoutePolicies::bots);
        let of_bots = bots.into_iter().flat_map(|bots| bots.agents.iter().map(|agent| &agent.keys));
        // Keys from a file only change with the configuration.
        of_tokens.into_iter().chain(of_bots).filter(|keys| keys.remote.is_some())
    }

    /// Sets the secret that signs the route's split cookies, if the configuration has none.
    pub(super) fn sign_splits(&mut self, secret: &CookieSecret) {
        if let Some(policies) = &mut self.policies {
            let key = policies.settings.split_key.as_ref();
            policies.split_key = key.map(|key| Box::new(SplitKey::new(key, secret)));
        }
    }

    /// The secret of cache keys for an upstream's responses; `None` without a cache.
    #[inline]
    pub(crate) fn key_secret(&self, upstream: usize) -> Option<KeySecret> {
        self.key_secrets.iter().find(|(known, _)| *known == upstream).map(|(_, secret)| *secret)
    }

    /// The secrets of cache keys of all the route's upstreams.
    pub(crate) fn key_secrets(&self) -> impl Iterator<Item = KeySecret> {
        self.key_secrets.iter().map(|(_, secret)| *secret)
    }
}

impl RoutePolicies {
    /// The name of a listed user; empty for `None`.
    fn user_name(&self, user: Option<usize>) -> &str {
        let name = || self.password()?.users.name(user?);
        name().unwrap_or_default()
    }

    /// The path that the upstream for missing files gets in place of that of a request.
    pub(crate) fn else_path(&self) -> Option<&PathRewrite> {
        let Action::Files(files) = &self.action else { return None };
        files.else_path.as_ref()
    }

    /// The name of a request's user, listed or vouched for; empty if there is none.
    pub(crate) fn user<'a>(&'a self, listed: Option<usize>, vouched: &'a str) -> &'a str {
        if vouched.is_empty() { self.user_name(listed) } else { vouched }
    }

    /// The admitted bots, if their signatures are proofs.
    fn bots(&self) -> Option<&Arc<Bots>> {
        self.authentication.as_ref()?.bots()
    }

    /// The rules of tokens, if tokens are proofs.
    pub(crate) fn tokens(&self) -> Option<&Arc<Tokens>> {
        self.authentication.as_ref()?.tokens()
    }

    /// The listed users, if passwords are proofs.
    pub(crate) fn password(&self) -> Option<&Arc<Auth>> {
        self.authentication.as_ref()?.password()
    }

    fn new(config: &Config, route: &config::Route, kept: &mut KeptState<'_>) -> Self {
        let settings = &route.policies;
        let config::Access { allow, deny, rules } = &*settings.access;
        let is_open = allow.is_empty() && deny.is_empty() && rules.is_empty();
        let pattern = route.rules.first().and_then(|rule| match &rule.path {
            PathRule::Pattern(pattern) => Some(pattern.clone()),
            PathRule::Exact(_) | PathRule::Prefix(_) | PathRule::TextPrefix(_) => None,
        });
        let authentication = kept.authentication(config, settings);
        // The mark of a mirror is a field of this proxy, too, which clients must not set.
        let mark = settings.mirror.iter().filter_map(|mirror| mirror.mark.as_deref());
        let own_fields = authentication.iter().flat_map(Authentication::own_fields).chain(mark);
        let own_fields: Vec<&str> = own_fields.collect();
        let mut own_settings = Shared::clone(settings);
        // Servers trust these fields, which only this proxy may send: a client's own are removed.
        if !own_fields.is_empty() {
            own_settings.request_headers = settings.request_headers.clone().removing(own_fields);
        }
        let accel = Accel::new(settings, config);
        if accel.is_some() {
            // They name files of this machine.
            own_settings.response_headers = settings.response_headers.clone().removing(ACCEL_FIELDS);
        }
        let has_waits = *settings.timeouts != config::RouteTimeouts::default();
        Self {
            action: route.action.clone(),
            access: (!is_open).then(|| {
                let networks = AccessList::new(allow.iter().copied(), deny.iter().copied());
                Box::new(RouteAccess { networks, rules: rules.as_slice().into() })
            }),
            limits: request_limits::rates(
                config,
                &route.name,
                &settings.rate_limits,
                kept.limits.get(route.name.as_str()).copied().unwrap_or_default(),
                &mut kept.zones,
            ),
            concurrency: request_limits::concurrency(
                config,
                &route.name,
                &settings.concurrency,
                kept.concurrency.get(route.name.as_str()).copied().unwrap_or_default(),
                &mut kept.zones,
            ),
            limits_users: settings.rate_limits.iter().any(|limit| limit.key.has_user()),
            authentication,
            mirror: settings.mirror.as_ref().map(|mirror| Arc::new(Mirror::new(mirror))),
            files: match &route.action {
                Action::Files(settings) => Some(kept.files(config, &route.name, settings)),
                Action::Upstream(_)
                | Action::Split(_)
                | Action::Named(_)
                | Action::Redirect(_)
                | Action::Respond(_) => None,
            },
            accel,
            // `sign_splits` sets it, because the secret may come from the previous process.
            split_key: None,
            pattern,
            names_request: names_request(&route.action, settings),
            asks_time: asks_time(route),
            cache_when: route.cache_when.clone().filter(asks_for_user),
            edits_ask: edits_ask(&settings.response_headers),
            has_values: !route.values.is_empty(),
            client_limits: (*settings.limits != config::RouteLimits::default())
                .then(|| Box::new(ClientLimits::of_route(&config.limits, &settings.limits))),
            ticks: has_waits.then(|| Box::new(TimeoutTicks::of_route(&config.timeouts, &settings.timeouts))),
            settings: own_settings,
        }
    }
}

/// Whether a condition asks for the time of the response, or a value in its fields.
fn asks_time(route: &config::Route) -> bool {
    let conditions = route.conditions().map(|condition| condition.when);
    let mut all = conditions.chain(route.policies.response_headers.values());
    all.any(|one| one.asks_for(Fact::ResponseTime))
}

/// Whether edits of responses have conditions, or values that ask for more than the request and its user.
fn edits_ask(edits: &route::HeaderEdits) -> bool {
    edits.has_conditions() || edits.values().any(|value| value.stage() > ExchangeStage::Authenticated)
}

/// Returns the values in the cache key of a route.
fn key_values(settings: &config::Route) -> Box<[(Box<str>, Arc<Expression>)]> {
    let names = settings.cache.iter().flat_map(|policy| &policy.key.values);
    let found = names.filter_map(|name| Some((name.clone(), Arc::clone(settings.values.find(name)?))));
    found.collect()
}

/// Whether a template may use `$request_id`. Otherwise no ID is made.
fn names_request(action: &Action, policies: &config::Policies) -> bool {
    // A text that only looks like the variable costs an ID that is never used.
    let is_named = |text: &str| text.contains("request_id");
    let location = match action {
        Action::Redirect(redirect) => Some(redirect.to()),
        Action::Respond(respond) => respond.body.as_ref().map(|body| body.as_str()),
        Action::Named(named) => Some(named.name.as_str()),
        Action::Files(files) => files.below.as_ref().map(route::RouteTemplate::as_str),
        Action::Upstream(_) | Action::Split(_) => None,
    };
    let path = policies.rewrite.path.as_ref().map(route::PathRewrite::to);
    let host = policies.rewrite.host.as_ref().map(route::HostRewrite::as_str);
    let sign_in = policies.forward_auth.as_ref().and_then(|auth| auth.sign_in.as_ref());
    let sign_in = sign_in.map(route::SignIn::as_str);
    let mut edits = policies.edits();
    [location, path, host, sign_in].into_iter().flatten().any(is_named)
        || edits.any(|edit| match edit {
            route::HeaderEdit::Set(_, value)
            | route::HeaderEdit::Add(_, value)
            | route::HeaderEdit::Default(_, value) => is_named(value),
            route::HeaderEdit::Remove(_) => false,
        })
}

/// State of the previous plan to keep, and objects of this plan to share.
struct KeptState<'p> {
    /// The index of each route.
    places: HashMap<&'p str, usize>,
    /// The policies of a route without any.
    default: config::Policies,
    bandwidths: HashMap<&'p str, &'p Arc<BandwidthLimits>>,
    /// Routes with delays or compression.
    routes: HashMap<&'p str, &'p PlanRoute>,
    limits: HashMap<&'p str, &'p [Limit]>,
    concurrency: HashMap<&'p str, &'p [ConcurrencyLimit]>,
    zones: LimitZones,
    files: HashMap<&'p str, &'p Arc<RouteFiles>>,
    /// By realm and file.
    auths: HashMap<(String, PathBuf), Arc<Auth>>,
    tokens: Vec<Arc<Tokens>>,
    bots: Vec<Arc<Bots>>,
    /// Keys from URLs, by source.
    keys: HashMap<KeySource, Arc<LiveTokenKeys>>,
    forward_auths: Vec<Arc<ForwardAuth>>,
}

impl<'p> KeptState<'p> {
    fn from_previous(previous: Option<&'p Plan>) -> Self {
        let mut kept = Self {
            places: HashMap::new(),
            default: config::Policies::default(),
            bandwidths: HashMap::new(),
            routes: HashMap::new(),
            limits: HashMap::new(),
            concurrency: HashMap::new(),
            zones: LimitZones::default(),
            files: HashMap::new(),
            auths: HashMap::new(),
            tokens: Vec::new(),
            bots: Vec::new(),
            keys: HashMap::new(),
            forward_auths: Vec::new(),
        };
        let (config, routes) =
            previous.map_or((&[][..], &[][..]), |plan| (&plan.config.routes, &plan.routes));
        for (place, (settings, route)) in config.iter().zip(routes).enumerate() {
            kept.places.insert(&settings.name, place);
            if let Some(limits) = &route.limits {
                kept.bandwidths.insert(&settings.name, limits);
            }
            if route.delay.is_some() || route.response_delay.is_some() || route.compress.is_some() {
                kept.routes.insert(&settings.name, route);
            }
            let Some(policies) = &route.policies else { continue };
            if !policies.limits.is_empty() {
                kept.limits.insert(&settings.name, &policies.limits);
            }
            if !policies.concurrency.is_empty() {
                kept.concurrency.insert(&settings.name, &policies.concurrency);
            }
            kept.zones.keep(&policies.limits, &policies.concurrency);
            let authentication = policies.authentication.as_ref();
            if let Some(server) = authentication.and_then(Authentication::server)
                // Neighbouring routes with equal settings share one object, which is kept once.
                && kept.forward_auths.last().is_none_or(|last| !Arc::ptr_eq(last, server))
            {
                kept.forward_auths.push(Arc::clone(server));
            }
            if let Some(files) = &policies.files {
                kept.files.insert(&settings.name, files);
            }
            if let (Some(settings), Some(auth)) = (&settings.policies.auth, policies.password()) {
                kept.auths.insert((settings.realm.clone(), settings.file.clone()), Arc::clone(auth));
            }
            if let Some(tokens) = policies.tokens()
                && kept.tokens.last().is_none_or(|last| !Arc::ptr_eq(last, tokens))
            {
                kept.keep_tokens(tokens);
            }
            if let Some(bots) = policies.bots()
                && kept.bots.last().is_none_or(|last| !Arc::ptr_eq(last, bots))
            {
                kept.keep_bots(bots);
            }
        }
        kept
    }

    /// Returns the proofs that a route requires: those that need no wait come first.
    fn authentication(&mut self, config: &Config, settings: &config::Policies) -> Option<Authentication> {
        let password = settings.auth.as_ref().map(|auth| Proof::Password(self.auth(auth)));
        let token = settings.jwt.as_ref().map(|jwt| Proof::Token(self.tokens(jwt)));
        let server =
            settings.forward_auth.as_ref().map(|auth| Proof::Server(self.forward_auth(config, auth)));
        let bot = settings.web_bot_auth.as_ref().map(|bots| Proof::Bot(self.bots(bots)));
        Authentication::new(settings.require, password.into_iter().chain(token).chain(bot).chain(server))
    }

    /// Returns the tokens for these settings. Routes with equal settings share verified tokens; those with the same URL
    /// share keys.
    fn tokens(&mut self, settings: &Jwt) -> Arc<Tokens> {
        if let Some(tokens) = self.tokens.iter().find(|tokens| tokens.settings == *settings) {
            return Arc::clone(tokens);
        }
        let fetched = match &settings.keys {
            TokenKeys::Fetched(source) => self.keys.get(source).cloned(),
            TokenKeys::File(..) | TokenKeys::Secret(..) => None,
        };
        let tokens = Arc::new(Tokens::new(settings, fetched));
        self.keep_tokens(&tokens);
        tokens
    }

    /// Returns the bots for these settings. Routes with equal settings share them, and agents share keys.
    fn bots(&mut self, settings: &WebBotAuth) -> Arc<Bots> {
        if let Some(bots) = self.bots.iter().find(|bots| bots.settings == *settings) {
            return Arc::clone(bots);
        }
        let keys = settings.agents.iter().map(|source| {
            let new = || Arc::new(LiveTokenKeys::new(&TokenKeys::Fetched(source.clone())));
            Arc::clone(self.keys.entry(source.clone()).or_insert_with(new))
        });
        let keys: Vec<Arc<LiveTokenKeys>> = keys.collect();
        let bots = Arc::new(Bots::new(settings, keys));
        self.keep_bots(&bots);
        bots
    }

    fn keep_bots(&mut self, bots: &Arc<Bots>) {
        for (source, agent) in bots.settings.agents.iter().zip(&bots.agents) {
            self.keys.insert(source.clone(), Arc::clone(&agent.keys));
        }
        self.bots.push(Arc::clone(bots));
    }

    fn keep_tokens(&mut self, tokens: &Arc<Tokens>) {
        if let Some(remote) = &tokens.keys.remote {
            self.keys.insert(remote.source.clone(), Arc::clone(&tokens.keys));
        }
        self.tokens.push(Arc::clone(tokens));
    }

    /// Returns the forward authentication for these settings. Routes with equal settings share decisions.
    fn forward_auth(&mut self, config: &Config, settings: &config::ForwardAuth) -> Arc<ForwardAuth> {
        let upstream = config.upstreams[settings.upstream].name.as_str();
        if let Some(auth) = self.forward_auths.iter().find(|auth| auth.is_alike(upstream, settings)) {
            return Arc::clone(auth);
        }
        let auth = Arc::new(ForwardAuth::new(upstream, settings));
        self.forward_auths.push(Arc::clone(&auth));
        auth
    }

    /// Returns the files of a route of this name. If unchanged, open files stay open.
    fn files(&self, config: &Config, route: &str, settings: &Arc<config::Files>) -> Arc<RouteFiles> {
        let before = self.files.get(route).filter(|files| files.is_of(settings, config));
        before.map_or_else(|| Arc::new(RouteFiles::new(settings, config)), |files| Arc::clone(files))
    }

    /// Returns the users for these settings. Routes with the same users share verified credentials.
    fn auth(&mut self, settings: &config::Auth) -> Arc<Auth> {
        let key = (settings.realm.clone(), settings.file.clone());
        // Changed users get a new table: a removed user must not stay verified.
        if let Some(auth) = self.auths.get(&key)
            && (Arc::ptr_eq(&auth.users, &settings.users) || auth.users == settings.users)
        {
            return Arc::clone(auth);
        }
        let auth = Arc::new(Auth::new(settings));
        self.auths.insert(key, Arc::clone(&auth));
        auth
    }
}
