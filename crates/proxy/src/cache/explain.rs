//! Explains to operators how the cache would answer a GET, and why the last one was a miss. Runs on the control thread.
//!
//! The request is built, parsed and decided about as a client's would be, but nothing is sent.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use ::cache::{
    Address, Asked, Decision, Ending, Found, Freshness, Key, NotNamed, Object, Outcome, Policy, Refusal, Uri,
    decide, write_key,
};
use config::CacheStore;
use http1::{HeadLimits, Parsed, RequestHead, Target, host_without_port};

use super::Cache;
use super::sent::Passing;
use crate::context::plan::Plan;
use crate::context::seen::Fields;
use api::cache::{CacheOwner, CacheVerdict, Explained, LastMiss, StoreRefusal, StoredResponse};

/// As many variants are told of one by one.
const VARIANTS_TOLD_MAX: usize = 64;

/// A GET to explain.
pub struct Question {
    bytes: Vec<u8>,
    head: RequestHead,
    is_https: bool,
}

/// Why a GET cannot be explained.
#[derive(Debug, thiserror::Error)]
pub enum Unanswered {
    #[error(transparent)]
    NotNamed(#[from] NotNamed),
    #[error("with these header fields it is no valid request")]
    NotValid,
    #[error("no route takes it")]
    NoRoute,
}

impl Question {
    /// A GET for a URL. Without a scheme in the URL, https is preferred if clients can use it, else http.
    pub fn of(plan: &Plan, url: &str, fields: &[(String, String)]) -> Result<Self, Unanswered> {
        let address = Address::parse(url)?;
        let has_tls = plan.config.listeners.iter().any(|listener| listener.tls.is_some());
        let uris: Vec<Uri<'_>> = address.uris().collect();
        let uri = uris.iter().find(|uri| uri.is_https == has_tls).unwrap_or(&uris[0]);
        let mut bytes = b"GET ".to_vec();
        bytes.extend_from_slice(uri.path);
        if let Some(query) = uri.query {
            bytes.push(b'?');
            bytes.extend_from_slice(query);
        }
        bytes.extend_from_slice(b" HTTP/1.1\r\nHost: ");
        bytes.extend_from_slice(uri.authority);
        for (name, value) in fields {
            bytes.extend_from_slice(format!("\r\n{name}: {value}").as_bytes());
        }
        bytes.extend_from_slice(b"\r\n\r\n");
        let mut head = RequestHead::default();
        let limits = HeadLimits { bytes: bytes.len(), fields: fields.len() + 1, target: bytes.len() };
        match head.parse(&bytes, &limits) {
            Ok(Parsed::Complete) if head.len == bytes.len() => {}
            _ => return Err(Unanswered::NotValid),
        }
        let is_https = uri.is_https;
        Ok(Self { bytes, head, is_https })
    }

    /// Explains how the cache would answer.
    pub fn answer(&self, plan: &Plan) -> Result<Explained, Unanswered> {
        let target = Target::of(&self.head, &self.bytes).map_err(|_| Unanswered::NotValid)?;
        let route = self.route(plan, &target)?;
        let authority = target.authority.of(&self.bytes);
        let uri = Uri::new(self.is_https, authority, target.path_and_query.of(&self.bytes));
        let mut explained = Explained {
            route: plan.routes[route].label.clone(),
            key: None,
            now: CacheVerdict::Off,
            stored: Vec::new(),
            variants: 0,
            variants_displaced: 0,
            last_miss: None,
            owner: None,
            remedies: Vec::new(),
        };
        let Some((cache, policy)) = plan.cache.as_ref().zip(plan.config.routes[route].cache.as_ref()) else {
            explained.remedies.push("give the route `cache = {}`, and the file a [cache]".to_owned());
            return Ok(explained);
        };
        let passes = self.passes();
        let mut key = Vec::new();
        write_key(&mut key, &uri, &policy.key, &self.head, &self.bytes, passes);
        explained.key = Some(text(&key));
        explained.owner = plan.peers.as_ref().and_then(|peers| {
            // Of several upstreams the first.
            let number = peers.number(route, plan.routes[route].upstream)?;
            let secret = peers.secret(number);
            let key = Key::of(secret, &uri, &policy.key, &self.head, &self.bytes, passes);
            let upstream = &plan.upstreams[peers.upstream];
            let server = peers.owner_of(upstream, key)?;
            let address = upstream.servers[server].authority.clone();
            Some(CacheOwner { address, is_own: peers.is_own(upstream, server) })
        });
        let keys = plan.routes[route].key_secrets();
        let keys: Vec<Key> =
            keys.map(|secret| Key::of(secret, &uri, &policy.key, &self.head, &self.bytes, passes)).collect();
        // Of several upstreams one whose answer is stored says more.
        if let Some(key) = keys.iter().find(|key| cache.has(**key)).or(keys.first()) {
            self.look(plan, cache, policy, *key, &mut explained);
        }
        Ok(explained)
    }

    fn route(&self, plan: &Plan, target: &Target) -> Result<usize, Unanswered> {
        let fits =
            |listener: &config::Listener| listener.tcp.is_none() && listener.tls.is_some() == self.is_https;
        let path = target.path.of(&self.bytes);
        let behind = target.path_and_query.of(&self.bytes).get(path.len()..);
        let fields = Fields::of(&self.head, &self.bytes);
        let request = route::Request {
            listener: plan.config.listeners.iter().position(fits).unwrap_or(0),
            host: host_without_port(target.authority.of(&self.bytes)),
            path,
            query: behind.and_then(|rest| rest.strip_prefix(b"?")),
            method: b"GET",
            client: IpAddr::V4(Ipv4Addr::LOCALHOST),
            fields: &fields,
        };
        plan.table.choose(&request).map_err(|_| Unanswered::NoRoute)
    }

    /// Whether a server sees a field of a name, as a client that nobody trusts would send it.
    fn passes(&self) -> impl Fn(&[u8]) -> bool + Copy {
        Passing { is_trusted: false, names_fields: false, drops_authorization: false, tells_user: false }
            .passes(&self.head, &self.bytes)
    }

    fn look(&self, plan: &Plan, cache: &Cache, policy: &Policy, key: Key, explained: &mut Explained) {
        let Self { head, bytes, .. } = self;
        let now_ms = unix_ms();
        let stored = cache.store.variants(key);
        let is_asked_for = |object: &Object| {
            object.vary().variant(cache.secret, policy, head, bytes, self.passes()) == object.variant()
        };
        let answering = stored.iter().find(|object| is_asked_for(object));
        let known = answering.map(|object| {
            if object.is_softly_purged() { object.made_stale(now_ms) } else { *object.stored() }
        });
        let found = match (&known, stored.is_empty()) {
            (Some(stored), _) => Found::Variant(stored),
            (None, false) => Found::OtherVariants,
            (None, true) => Found::Nothing,
        };
        let is_on_disk = stored.is_empty() && cache.second_tier.tier().is_some_and(|tier| tier.has(key));
        if is_on_disk {
            explained.now = CacheVerdict::OnDisk;
            return;
        }
        let decision = decide(&Asked::of(head, bytes), found, policy, now_ms);
        explained.now = now(decision);
        let report = |object: &Arc<Object>| stored_response(object, is_asked_for(object), now_ms);
        let (asked_for, others): (Vec<_>, Vec<_>) = stored.iter().partition(|object| is_asked_for(object));
        explained.stored = asked_for.into_iter().chain(others).take(VARIANTS_TOLD_MAX).map(report).collect();
        explained.variants = stored.len();
        let last = cache.store.outcome(key);
        explained.last_miss = last.map(|outcome| last_miss(&outcome, now_ms));
        let is_too_large = last.is_some_and(|last| last.ending == Ending::Refused(Refusal::TooLarge));
        let settings = plan.config.cache.as_ref().filter(|_| is_too_large);
        explained.remedies = match settings {
            Some(settings) => vec![size_remedy(settings, cache.store.object_bytes_max())],
            None => remedies(decision, answering.map(AsRef::as_ref), last.as_ref()),
        };
        let (displaced, bytes_max) = cache.store.displaced(key);
        explained.variants_displaced = displaced;
        if displaced > 0 {
            explained.remedies.push(format!(
                "all variants of a URL may take {bytes_max} bytes together, and {displaced} had to make room: name in Vary only \
                 fields with few values, or raise `memory` of `[cache]`"
            ));
        }
    }
}

fn now(decision: Decision) -> CacheVerdict {
    match decision {
        Decision::Serve(Freshness::StaleWhileRevalidate | Freshness::StaleForClient) => {
            CacheVerdict::StaleHit
        }
        Decision::Serve(Freshness::Fresh) => CacheVerdict::Hit,
        Decision::Validate(forward) => CacheVerdict::Validated(forward.what().to_owned()),
        Decision::Forward(forward) => CacheVerdict::Miss(forward.what().to_owned()),
        Decision::OnlyIfCached => CacheVerdict::Refused,
    }
}

fn last_miss(outcome: &Outcome, now_ms: u64) -> LastMiss {
    let refusal = match outcome.ending {
        Ending::Refused(refusal) => Some(refusal.row()),
        _ => None,
    };
    LastMiss {
        seconds_ago: now_ms.saturating_sub(outcome.at_ms) / 1000,
        forward: outcome.forward.word().to_owned(),
        why: outcome.forward.what().to_owned(),
        status: outcome.status,
        is_stored: matches!(outcome.ending, Ending::Stored | Ending::Validated),
        not_stored: refusal
            .map(|row| StoreRefusal { reason: row.word.to_owned(), what: row.what.to_owned() }),
    }
}

/// What has larger responses stored: whichever option limits them.
fn size_remedy(settings: &CacheStore, object_bytes_max: u64) -> String {
    let of_memory = if settings.object_bytes_max > object_bytes_max {
        "raise `memory` of `[cache]`, if it is worth that: one response may take an eighth of it at most"
    } else {
        "raise `object` of `[cache]`, if it is worth the room"
    };
    format!("{of_memory}; now that is {object_bytes_max} bytes")
}

/// What would make hits of the next requests.
fn remedies(decision: Decision, answering: Option<&Object>, last: Option<&Outcome>) -> Vec<String> {
    let mut remedies = Vec::new();
    if let Some(Outcome { ending: Ending::Refused(refusal), .. }) = last {
        remedies.push(refusal.row().remedy.to_owned());
    }
    let forward = match decision {
        Decision::Forward(forward) | Decision::Validate(forward) => Some(forward),
        Decision::Serve(_) | Decision::OnlyIfCached => None,
    };
    remedies.extend(forward.and_then(::cache::Forward::remedy).map(str::to_owned));
    if let Some(object) = answering {
        if object.stored().is_heuristic() {
            remedies.push(
                "say how long it is fresh by Cache-Control: max-age: it is a guess from Last-Modified"
                    .to_owned(),
            );
        }
        if !object.stored().has_validator() {
            remedies.push(
                "send an ETag or Last-Modified, so that it need not be sent again once it is stale"
                    .to_owned(),
            );
        }
    }
    remedies
}

/// What is stored of a response.
fn stored_response(object: &Object, is_asked_for: bool, now_ms: u64) -> StoredResponse {
    let (stored, head) = (object.stored(), object.head());
    StoredResponse {
        status: stored.status,
        is_asked_for,
        vary: text(object.vary().as_bytes()),
        age_seconds: stored.age_seconds(now_ms),
        ttl_seconds: if object.is_softly_purged() {
            stored.ttl_seconds(now_ms).min(0)
        } else {
            stored.ttl_seconds(now_ms)
        },
        is_purged_softly: object.is_softly_purged(),
        is_guess: stored.is_heuristic(),
        body_bytes: object.body_bytes(),
        memory_bytes: object.weight_bytes(),
        etag: stored.etag(head).map(text),
        last_modified: stored.last_modified(head).map(text),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The time of day in milliseconds, read from the system, since the control thread has no worker's clock.
pub(super) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
