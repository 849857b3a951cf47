//! Routes as the request path uses them: matching, requirements and actions.
//!
//! Request counts and verified users are shared by all workers, and survive a configuration change that leaves their
//! settings as they were.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cache::{KeySecret, Space};
use config::{Action, Compress, Config, Jwt, KeySource, RateLimit, Redis, TokenKeys, WebBotAuth};
use route::{
    AccessList, Credentials, CredentialsDigest, PathRule, Pattern, RateLimiter, Request, RouteTable, Rule,
    SharedIdentity, Users, Verified,
};

use super::split_key::SplitKey;
use super::stickiness::CookieSecret;
use crate::context::exchange_slot::Texts;
use crate::context::failure::Failure;
use crate::context::plan::authentication::{Authentication, Proof};
use crate::context::plan::bots::Bots;
use crate::context::plan::decisions_elsewhere::Elsewhere;
use crate::context::plan::forward_auth::ForwardAuth;
use crate::context::plan::logged::Logged;
use crate::context::plan::mirror::Mirror;
use crate::context::plan::tokens::{Keys, Tokens};
use crate::context::seen::Fields;
use crate::context::snapshot::{ClientLimits, TimeoutTicks};
use crate::files::RouteFiles;
use crate::shaping::Limits;
use transport::delay::Delayed;

/// How many credentials are remembered as verified for a file of users, and for how long.
const VERIFIED_MAX: usize = 1024;
const VERIFIED_FOR: Duration = Duration::from_secs(10 * 60);

/// The index of the upstream of a route that has none.
const NO_UPSTREAM: usize = usize::MAX;

/// A route of the plan.
pub struct Route {
    /// The index of the upstream; of none if the policies have an action without one.
    pub(crate) upstream: usize,
    /// The name in the log.
    pub label: String,
    /// The policies, if the route has any.
    pub(crate) policies: Option<Box<Policies>>,
    /// Whether responses are cached.
    pub(crate) is_cached: bool,
    /// Which requests are in the access log.
    pub(crate) logged: Logged,
    /// How bodies are coded for clients, if they are.
    pub(crate) compress: Option<Compression>,
    /// Whether the route is only for listeners without TLS: then its requests are not redirected to https.
    pub(crate) is_for_plain_http: bool,
    /// What keys are hashed with, for each of its upstreams; empty where nothing is stored.
    key_secrets: Box<[(usize, KeySecret)]>,
    /// The bandwidth limits of bodies; `None` if there are none.
    pub(crate) limits: Option<Arc<Limits>>,
    /// The weight of the route's bodies under limits that it shares with other routes.
    pub(crate) weight: NonZeroU32,
    /// The delay of requests.
    pub(crate) delay: Option<Arc<Delayed>>,
    /// The delay of responses.
    pub(crate) response_delay: Option<Arc<Delayed>>,
}

/// The policies of a route: requirements on requests, and actions besides the choice of one upstream.
pub struct Policies {
    pub(crate) action: Action,
    pub(crate) access: Option<AccessList>,
    pub(crate) limits: Vec<Limit>,
    /// Whether one of them counts users.
    pub(crate) limits_users: bool,
    /// Copies requests for another upstream.
    pub(crate) mirror: Option<Arc<Mirror>>,
    /// How clients prove who they are, if they have to.
    pub(crate) authentication: Option<Authentication>,
    /// The configured policies for messages.
    pub(crate) settings: config::Policies,
    /// The files, if the route answers with some.
    pub(crate) files: Option<Arc<RouteFiles>>,
    /// What keeps clients on their side of a split; see `Route::sign_splits`.
    pub(crate) split_key: Option<SplitKey>,
    /// The path pattern, whose groups edits of fields may use.
    pub(crate) pattern: Option<Pattern>,
    /// Whether the policies may need a request ID.
    pub(crate) names_request: bool,
    /// The time-outs, if the route has any of its own.
    pub(crate) ticks: Option<TimeoutTicks>,
    /// The limits on clients, if the route has any of its own.
    pub(crate) client_limits: Option<ClientLimits>,
}

/// How a route codes bodies.
#[derive(Debug, Clone)]
pub(crate) struct Compression {
    pub(crate) settings: Arc<Compress>,
    /// Tells the settings from others: what was noted under those does not count.
    pub(crate) number: u64,
}

impl Compression {
    fn new(settings: &Arc<Compress>) -> Self {
        let mut hash = DefaultHasher::new();
        format!("{settings:?}").hash(&mut hash);
        Self { settings: Arc::clone(settings), number: hash.finish() }
    }
}

/// A rate limit on requests.
pub(crate) struct Limit {
    settings: RateLimit,
    /// Whether users are counted, who have to be known.
    pub(crate) of_users: bool,
    pub(crate) limiter: Arc<RateLimiter>,
    /// What it is to other instances, if they share it.
    identity: Option<SharedIdentity>,
}

/// A rate limit that instances share.
#[derive(Debug, Clone)]
pub struct SharedLimit {
    /// The same for all instances.
    pub id: u64,
    /// The limiter of this one.
    pub limiter: Arc<RateLimiter>,
}

impl Limit {
    /// The limit as instances share it, if they do.
    pub(super) fn shared(&self) -> Option<SharedLimit> {
        let SharedIdentity { id, .. } = self.identity?;
        Some(SharedLimit { id, limiter: Arc::clone(&self.limiter) })
    }
}

/// The users who may send requests.
pub struct Auth {
    pub(crate) users: Arc<Users>,
    /// The value of WWW-Authenticate.
    pub(crate) challenge: String,
    /// Held for the length of a look-up.
    verified: Mutex<Verified>,
}

impl Auth {
    fn new(settings: &config::Auth) -> Self {
        let lifetime_ns = VERIFIED_FOR.as_nanos() as u64;
        Self {
            users: Arc::clone(&settings.users),
            challenge: route::challenge(&settings.realm).unwrap_or_else(|| "Basic realm=\"\"".to_owned()),
            verified: Mutex::new(Verified::new(VERIFIED_MAX, lifetime_ns, secret())),
        }
    }

    /// The digest of credentials, and the index of the user if they were verified lately.
    pub(crate) fn known(&self, credentials: &Credentials, now_ns: u64) -> (CredentialsDigest, Option<usize>) {
        let verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        let digest = verified.digest(credentials);
        let user = verified.user(&digest, now_ns);
        (digest, user)
    }

    /// Remembers credentials as verified.
    pub(crate) fn keep(&self, digest: CredentialsDigest, user: usize, now_ns: u64) {
        self.verified.lock().unwrap_or_else(PoisonError::into_inner).keep(digest, user, now_ns);
    }
}

/// The table that selects the route of a request.
#[derive(Clone)]
pub struct Table {
    rules: RouteTable,
    /// The route of each rule.
    of_rule: Arc<[usize]>,
    only: Option<usize>,
    /// Whether searches need scratch space, which threads had better not share.
    has_patterns: bool,
}

impl Table {
    pub(crate) fn new(config: &Config) -> Self {
        let (of_rule, rules): (Vec<usize>, Vec<route::Rule>) =
            config.rules().map(|(route, rule)| (route, rule.clone())).unzip();
        let has_patterns = rules.iter().any(route::Rule::has_pattern);
        let rules = RouteTable::compile(rules);
        let only = rules.only().map(|rule| of_rule[rule]);
        Self { rules, of_rule: of_rule.into(), only, has_patterns }
    }

    /// A copy of the table for one more worker.
    pub(crate) fn for_worker(table: &Arc<Self>) -> Arc<Self> {
        if table.has_patterns { Arc::new(Self::clone(table)) } else { Arc::clone(table) }
    }

    /// The route of every request, if there is only one.
    #[inline]
    pub(crate) fn only(&self) -> Option<usize> {
        self.only
    }

    /// Selects the route for a request.
    pub(crate) fn choose(&self, request: &Request<'_, Fields<'_>>) -> Result<usize, Failure> {
        // Where the path decides, it must not be read in two ways.
        if self.rules.is_ambiguous(request) {
            return Err(Failure::AmbiguousPath);
        }
        self.rules.choose(request).map(|rule| self.of_rule[rule]).ok_or(Failure::NoRoute)
    }
}

/// Compiles the routes. Counts and verified users of `previous` are kept. Cache keys are hashed with secrets that
/// derive from the cache's secret.
pub(crate) fn routes(
    config: &Config,
    previous: Option<(&Config, &[Route])>,
    secret: Option<KeySecret>,
) -> Vec<Route> {
    let mut kept = Kept::of(previous);
    config.routes.iter().map(|route| Route::new(config, route, &mut kept, secret)).collect()
}

/// The cache spaces of these routes, without duplicates.
pub(crate) fn spaces(config: &Config, routes: &[Route]) -> Vec<Space> {
    let mut spaces: Vec<Space> = Vec::new();
    for (settings, route) in config.routes.iter().zip(routes) {
        let Some(policy) = &settings.cache else { continue };
        for &(_, secret) in &route.key_secrets {
            let space = Space { secret, options: policy.key.clone() };
            if !spaces.contains(&space) {
                spaces.push(space);
            }
        }
    }
    spaces
}

/// The name of the space in which a route stores what an upstream answers: the same after every start and change that
/// leaves both as they were. Where a URL alone does not lead to the route, others may have the same one, and other answers
/// to it.
fn space_name(config: &Config, route: &config::Route, upstream: usize) -> Vec<u8> {
    let upstream = config.upstreams[upstream].name.as_bytes();
    let mut name = (upstream.len() as u64).to_le_bytes().to_vec();
    name.extend_from_slice(upstream);
    if route.rules.iter().any(has_conditions) {
        name.extend_from_slice(route.name.as_bytes());
    }
    name
}

fn is_for_plain_http(config: &Config, rule: &Rule) -> bool {
    let has_no_tls = |listener: &usize| config.listeners[*listener].tls.is_none();
    !rule.listeners.is_empty() && rule.listeners.iter().all(has_no_tls)
}

/// Whether more counts of a request than its host and path.
fn has_conditions(rule: &Rule) -> bool {
    let Rule { listeners, host: _, path: _, methods, headers, cookies, query, claims, clients } = rule;
    !(listeners.is_empty()
        && methods.is_empty()
        && headers.is_empty()
        && cookies.is_empty()
        && query.is_empty()
        && claims.values.is_empty()
        && clients.is_empty())
}

/// Whether no policy is set but those that have a place of their own in the route.
fn is_default(policies: &config::Policies) -> bool {
    let mut policies = policies.clone();
    policies.options.compress = None;
    policies.options.access_log = None;
    policies == config::Policies::default()
}

impl Route {
    /// Its rate limits that instances share.
    pub(super) fn shared_limits(&self) -> impl Iterator<Item = SharedLimit> {
        self.policies.iter().flat_map(|policies| policies.limits.iter().filter_map(Limit::shared))
    }

    /// The decisions about its requests that instances share, if they do.
    pub(super) fn shared_decisions(&self) -> Option<&Arc<Elsewhere>> {
        let authentication = self.policies.as_ref()?.authentication.as_ref()?;
        authentication.server()?.memory.as_ref()?.elsewhere.as_ref()
    }

    fn new(
        config: &Config,
        settings: &config::Route,
        kept: &mut Kept<'_>,
        secret: Option<KeySecret>,
    ) -> Self {
        let is_plain = matches!(settings.action, Action::Upstream(_)) && is_default(&settings.policies);
        let secret = secret.filter(|_| settings.cache.is_some());
        let key_secrets = secret.map_or_else(Box::default, |secret| {
            let of = |upstream| (upstream, secret.of_space(&space_name(config, settings, upstream)));
            settings.action.upstreams().map(of).collect()
        });
        let before = kept.delays.get(settings.name.as_str()).copied();
        let [delay, response_delay] =
            before.map_or([None, None], |route| [&route.delay, &route.response_delay].map(Option::as_ref));
        Self {
            upstream: settings.action.upstreams().next().unwrap_or(NO_UPSTREAM),
            label: settings.name.clone(),
            is_cached: settings.cache.is_some() && config.cache.is_some(),
            logged: Logged::new(settings.policies.options.access_log),
            compress: settings.policies.options.compress.as_ref().map(Compression::new),
            is_for_plain_http: settings.rules.iter().all(|rule| is_for_plain_http(config, rule)),
            key_secrets,
            limits: Limits::new(
                &settings.shaping.bandwidths,
                kept.bandwidths.get(settings.name.as_str()).copied(),
            ),
            weight: settings.shaping.weight,
            delay: Delayed::new(settings.shaping.delay.as_ref(), delay),
            response_delay: Delayed::new(settings.shaping.response_delay.as_ref(), response_delay),
            policies: (!is_plain).then(|| Box::new(Policies::new(config, settings, kept))),
        }
    }

    /// The keys of tokens and of bots that are fetched.
    pub fn fetched_keys(&self) -> impl Iterator<Item = &Arc<Keys>> {
        let policies = self.policies.as_deref();
        let of_tokens = policies.and_then(Policies::tokens).map(|tokens| &tokens.keys);
        let bots = policies.and_then(Policies::bots);
        let of_bots = bots.into_iter().flat_map(|bots| bots.agents.iter().map(|agent| &agent.keys));
        of_tokens.into_iter().chain(of_bots).filter(|keys| keys.remote.is_some())
    }

    /// Has the cookies of the route's split signed with this secret, if the configuration has none.
    pub(super) fn sign_splits(&mut self, secret: &CookieSecret) {
        if let Some(policies) = &mut self.policies {
            let key = policies.settings.split_key.as_ref();
            policies.split_key = key.map(|key| SplitKey::new(key, secret));
        }
    }

    /// The secret for the cache keys of an upstream's responses; `None` if the route has no cache.
    #[inline]
    pub(crate) fn key_secret(&self, upstream: usize) -> Option<KeySecret> {
        self.key_secrets.iter().find(|(known, _)| *known == upstream).map(|(_, secret)| *secret)
    }

    /// The secrets for the cache keys of all the route's upstreams.
    pub(crate) fn key_secrets(&self) -> impl Iterator<Item = KeySecret> {
        self.key_secrets.iter().map(|(_, secret)| *secret)
    }
}

impl Policies {
    /// The name of a listed user; empty for `None`.
    fn user_name(&self, user: Option<usize>) -> &str {
        let name = || self.password()?.users.name(user?);
        name().unwrap_or_default()
    }

    /// The name of a request's user, listed or vouched for; empty if there is none.
    pub(crate) fn user<'a>(&'a self, listed: Option<usize>, texts: &'a Texts) -> &'a str {
        let vouched = texts.user();
        if vouched.is_empty() { self.user_name(listed) } else { vouched }
    }

    /// The bots that are let in, if their signatures are asked for.
    fn bots(&self) -> Option<&Arc<Bots>> {
        self.authentication.as_ref()?.bots()
    }

    /// The rules of tokens, if tokens are asked for.
    pub(crate) fn tokens(&self) -> Option<&Arc<Tokens>> {
        self.authentication.as_ref()?.tokens()
    }

    /// The listed users, if passwords are asked for.
    pub(crate) fn password(&self) -> Option<&Arc<Auth>> {
        self.authentication.as_ref()?.password()
    }

    fn new(config: &Config, route: &config::Route, kept: &mut Kept<'_>) -> Self {
        let settings = &*route.policies;
        let config::Access { allow, deny } = &settings.access;
        let is_open = allow.is_empty() && deny.is_empty();
        let pattern = route.rules.first().and_then(|rule| match &rule.path {
            PathRule::Pattern(pattern) => Some(pattern.clone()),
            PathRule::Exact(_) | PathRule::Prefix(_) => None,
        });
        let authentication = kept.authentication(config, settings);
        let mark = settings.mirror.iter().filter_map(|mirror| mirror.mark.as_deref());
        let own_fields = authentication.iter().flat_map(Authentication::own_fields).chain(mark);
        let request_headers = settings.request_headers.clone().removing(own_fields);
        let has_waits = settings.timeouts != config::RouteTimeouts::default();
        Self {
            action: route.action.clone(),
            access: (!is_open).then(|| AccessList::new(allow.iter().copied(), deny.iter().copied())),
            limits: kept.limits(config, &route.name, &settings.rate_limits),
            limits_users: settings.rate_limits.iter().any(|limit| limit.key.has_user()),
            authentication,
            mirror: settings.mirror.as_ref().map(|mirror| Arc::new(Mirror::new(mirror))),
            files: match &route.action {
                Action::Files(settings) => Some(kept.files(&route.name, settings)),
                Action::Upstream(_) | Action::Split(_) | Action::Redirect(_) | Action::Respond(_) => None,
            },
            split_key: None,
            pattern,
            names_request: names_request(&route.action, settings),
            client_limits: (settings.limits != config::RouteLimits::default())
                .then(|| ClientLimits::of_route(&config.limits, &settings.limits)),
            ticks: has_waits.then(|| TimeoutTicks::of_route(&config.timeouts, &settings.timeouts)),
            settings: config::Policies { request_headers, ..settings.clone() },
        }
    }
}

/// Whether a template may name `$request_id`. One that is not named is not made.
fn names_request(action: &Action, policies: &config::Policies) -> bool {
    let is_named = |text: &str| text.contains("request_id");
    let location = match action {
        Action::Redirect(redirect) => Some(redirect.to()),
        Action::Upstream(_) | Action::Split(_) | Action::Respond(_) | Action::Files(_) => None,
    };
    let path = policies.rewrite.path.as_ref().map(route::PathRewrite::to);
    let host = policies.rewrite.host.as_ref().map(route::HostRewrite::as_str);
    let sign_in = policies.forward_auth.as_ref().and_then(|auth| auth.sign_in.as_ref());
    let sign_in = sign_in.map(route::SignIn::as_str);
    let mut edits = policies.request_headers.edits().chain(policies.response_headers.edits());
    [location, path, host, sign_in].into_iter().flatten().any(is_named)
        || edits.any(|edit| match edit {
            route::HeaderEdit::Set(_, value)
            | route::HeaderEdit::Add(_, value)
            | route::HeaderEdit::Default(_, value) => is_named(value),
            route::HeaderEdit::Remove(_) => false,
        })
}

/// What a limit is to all instances: those with the same settings for a route of the same name count together.
fn identity(redis: &Redis, route: &str, settings: &RateLimit) -> SharedIdentity {
    let secret = redis.secret.as_ref().map_or(redis.name.as_bytes(), |secret| &secret.bytes);
    let RateLimit { rate, key, .. } = settings;
    SharedIdentity::of(secret, &format!("{route}\n{:?} {} {key:?}", rate.requests_per(), rate.burst()))
}

/// What the plan before has that may go on, and what this one has by now.
struct Kept<'p> {
    bandwidths: HashMap<&'p str, &'p Arc<Limits>>,
    /// Those that hold messages back.
    delays: HashMap<&'p str, &'p Route>,
    limits: HashMap<&'p str, &'p [Limit]>,
    files: HashMap<&'p str, &'p Arc<RouteFiles>>,
    /// By realm and file.
    auths: HashMap<(String, PathBuf), Arc<Auth>>,
    tokens: Vec<Arc<Tokens>>,
    bots: Vec<Arc<Bots>>,
    /// Keys that are fetched.
    keys: HashMap<KeySource, Arc<Keys>>,
    forward_auths: Vec<Arc<ForwardAuth>>,
}

impl<'p> Kept<'p> {
    fn of(previous: Option<(&'p Config, &'p [Route])>) -> Self {
        let mut kept = Self {
            bandwidths: HashMap::new(),
            delays: HashMap::new(),
            limits: HashMap::new(),
            files: HashMap::new(),
            auths: HashMap::new(),
            tokens: Vec::new(),
            bots: Vec::new(),
            keys: HashMap::new(),
            forward_auths: Vec::new(),
        };
        let (config, routes) =
            previous.map_or((&[][..], &[][..]), |(config, routes)| (&config.routes, routes));
        for (settings, route) in config.iter().zip(routes) {
            if let Some(limits) = &route.limits {
                kept.bandwidths.insert(&settings.name, limits);
            }
            if route.delay.is_some() || route.response_delay.is_some() {
                kept.delays.insert(&settings.name, route);
            }
            let Some(policies) = &route.policies else { continue };
            if !policies.limits.is_empty() {
                kept.limits.insert(&settings.name, &policies.limits);
            }
            let authentication = policies.authentication.as_ref();
            kept.forward_auths.extend(authentication.and_then(Authentication::server).cloned());
            if let Some(files) = &policies.files {
                kept.files.insert(&settings.name, files);
            }
            if let (Some(settings), Some(auth)) = (&settings.policies.auth, policies.password()) {
                kept.auths.insert((settings.realm.clone(), settings.file.clone()), Arc::clone(auth));
            }
            if let Some(tokens) = policies.tokens() {
                kept.keep_tokens(tokens);
            }
            if let Some(bots) = policies.bots() {
                kept.keep_bots(bots);
            }
        }
        kept
    }

    /// The limits of a route of this name: those that it had count on.
    fn limits(&self, config: &Config, route: &str, settings: &[RateLimit]) -> Vec<Limit> {
        let mut before: Vec<&Limit> = self.limits.get(route).copied().unwrap_or_default().iter().collect();
        let limit = |settings: &RateLimit| {
            let shared = settings.shared.zip(config.redis.as_ref());
            let identity = shared.map(|(_, redis)| identity(redis, route, settings));
            let is_same = |limit: &&Limit| limit.settings == *settings && limit.identity == identity;
            let place = before.iter().position(is_same);
            let limiter = match (place.map(|place| before.remove(place)), shared.zip(identity)) {
                (Some(limit), _) => Arc::clone(&limit.limiter),
                (None, Some(((alone, redis), SharedIdentity { secret, .. }))) => {
                    let RateLimit { rate, key, keys_max, .. } = settings.clone();
                    Arc::new(RateLimiter::shared(rate, key, keys_max, secret, (alone, redis.instances)))
                }
                (None, None) => {
                    let [low, high] = [secret(), secret()].map(u64::from_le_bytes);
                    Arc::new(RateLimiter::new(
                        settings.rate,
                        settings.key.clone(),
                        settings.keys_max,
                        [low, high],
                    ))
                }
            };
            Limit { of_users: settings.key.has_user(), settings: settings.clone(), limiter, identity }
        };
        settings.iter().map(limit).collect()
    }

    /// The proofs that a route asks for: those that are decided at once come first.
    fn authentication(&mut self, config: &Config, settings: &config::Policies) -> Option<Authentication> {
        let password = settings.auth.as_ref().map(|auth| Proof::Password(self.auth(auth)));
        let token = settings.jwt.as_ref().map(|jwt| Proof::Token(self.tokens(jwt)));
        let server =
            settings.forward_auth.as_ref().map(|auth| Proof::Server(self.forward_auth(config, auth)));
        let bot = settings.web_bot_auth.as_ref().map(|bots| Proof::Bot(self.bots(bots)));
        Authentication::new(settings.require, password.into_iter().chain(token).chain(bot).chain(server))
    }

    /// Routes that ask for the same tokens share what has been verified, and those with the same URL their keys.
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

    /// Routes that let in the same bots share them, and agents their keys.
    fn bots(&mut self, settings: &WebBotAuth) -> Arc<Bots> {
        if let Some(bots) = self.bots.iter().find(|bots| bots.settings == *settings) {
            return Arc::clone(bots);
        }
        let keys = settings.agents.iter().map(|source| {
            let new = || Arc::new(Keys::new(&TokenKeys::Fetched(source.clone())));
            Arc::clone(self.keys.entry(source.clone()).or_insert_with(new))
        });
        let keys: Vec<Arc<Keys>> = keys.collect();
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

    /// Routes that ask the same question share the decisions.
    fn forward_auth(&mut self, config: &Config, settings: &config::ForwardAuth) -> Arc<ForwardAuth> {
        let upstream = config.upstreams[settings.upstream].name.as_str();
        if let Some(auth) = self.forward_auths.iter().find(|auth| auth.is_alike(upstream, settings)) {
            return Arc::clone(auth);
        }
        let auth = Arc::new(ForwardAuth::new(upstream, settings));
        self.forward_auths.push(Arc::clone(&auth));
        auth
    }

    /// The files of a route of this name, if they are the same: what is open of them stays open.
    fn files(&self, route: &str, settings: &Arc<config::Files>) -> Arc<RouteFiles> {
        let before = self.files.get(route).filter(|files| files.is_of(settings));
        before.map_or_else(|| Arc::new(RouteFiles::new(settings)), |files| Arc::clone(files))
    }

    /// Routes with the same users share who has been verified.
    fn auth(&mut self, settings: &config::Auth) -> Arc<Auth> {
        let key = (settings.realm.clone(), settings.file.clone());
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

/// Random bytes for a secret.
pub fn secret<const LEN: usize>() -> [u8; LEN] {
    let mut bytes = [0; LEN];
    if rustls::crypto::aws_lc_rs::default_provider().secure_random.fill(&mut bytes).is_err() {
        // A system without randomness serves no TLS either; what is left is seeded by the standard library's hashes.
        fastrand::fill(&mut bytes);
    }
    bytes
}
