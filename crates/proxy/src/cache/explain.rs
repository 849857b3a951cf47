//! Explains to operators how the cache would answer a GET, and why the last one was a miss. Runs on the control thread.
//!
//! The request is built, parsed and judged like a client's, but nothing is sent.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use ::cache::{
    CacheKey, CachePolicy, CacheRequestFields, Decision, Freshness, KeySecret, Label, LookUp, MissEnding,
    MissOutcome, NotNamed, NotStored, Object, Uri, UrlParts, decide, tags_of_lines, write_key,
};
use config::CacheStore;
use expression::{ExchangeStage, Expression};
use http1::{HeadLimits, HttpVersion, Parsed, RequestHead, RequestTarget, host_without_port};

use super::Cache;
use super::sent::Passing;
use crate::context::plan::Plan;
use crate::context::seen::RequestFields;
use crate::store::unix_ms;
use api::cache::{CacheOwner, CacheVerdict, Explained, LastMiss, StoreRefusal, StoredResponse};

/// Maximum number of variants that are listed.
const VARIANTS_TOLD_MAX: usize = 64;

pub struct ExplainRequest {
    bytes: Vec<u8>,
    head: RequestHead,
    is_https: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum Unanswered {
    #[error(transparent)]
    NotNamed(#[from] NotNamed),
    #[error("the request is invalid with these header fields")]
    NotValid,
    #[error("no route matches the request")]
    NoRoute,
}

/// Texts with names: the values in a cache key.
type NamedTexts = Vec<(Box<str>, Vec<u8>)>;

impl ExplainRequest {
    /// Creates a GET for a URL. Without a scheme in the URL, https is preferred if clients can use it, else http.
    pub fn new(plan: &Plan, url: &str, fields: &[(String, String)]) -> Result<Self, Unanswered> {
        let address = UrlParts::parse(url)?;
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
        // An operator's question is limited by nothing but its own size.
        let limits = HeadLimits { bytes: bytes.len(), fields: fields.len() + 1, target: bytes.len() };
        match head.parse(&bytes, &limits) {
            Ok(Parsed::Complete) if head.len == bytes.len() => {}
            _ => return Err(Unanswered::NotValid),
        }
        let is_https = uri.is_https;
        Ok(Self { bytes, head, is_https })
    }

    pub fn answer(&self, plan: &Plan) -> Result<Explained, Unanswered> {
        let target = RequestTarget::from_head(&self.head, &self.bytes).map_err(|_| Unanswered::NotValid)?;
        let (route, uses_cache, values) = self.route(plan, &target)?;
        let values = |write: &mut dyn FnMut(&str, &[u8])| {
            for (name, value) in &values {
                write(name, value);
            }
        };
        let authority = target.authority.for_bytes(&self.bytes);
        let uri = Uri::new(self.is_https, authority, target.path_and_query.for_bytes(&self.bytes));
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
        let Some((cache, policy)) = plan.cache.as_ref().zip(plan.config.routes[route].cache.as_deref())
        else {
            explained.remedies.push("give the route `cache = {}`, and the file a [cache]".to_owned());
            return Ok(explained);
        };
        if !uses_cache {
            let when = plan.routes[route].cache_when.as_deref().map_or("", Expression::as_str);
            explained.remedies.push(format!("cache.when of the route must hold: {when}"));
            return Ok(explained);
        }
        if let Some(when) =
            plan.routes[route].policies.as_ref().and_then(|policies| policies.cache_when.as_ref())
        {
            explained.remedies.push(format!("cache.when of the route must hold for the user: {when}"));
        }
        let of_users = plan.routes[route].key_values.iter();
        let of_users = of_users.filter(|(_, value)| value.stage() > ExchangeStage::Request);
        explained.remedies.extend(of_users.map(|(name, _)| {
            format!("the key is that of a request without a user: {name} is known after authentication")
        }));
        let passes = self.passes();
        let mut key = Vec::new();
        write_key(&mut key, &uri, &policy.key, (&self.head, &self.bytes), passes, values);
        explained.key = Some(text(&key));
        explained.owner = plan.peers.as_ref().and_then(|peers| {
            // The owner for the first upstream, if there are several.
            let number = peers.number(route, plan.routes[route].upstream)?;
            let secret = peers.secret(number);
            let head = (&self.head, &*self.bytes);
            let key = CacheKey::from_secret(secret, &uri, &policy.key, head, passes, values);
            let upstream = &plan.upstreams[peers.upstream];
            let server = peers.owner_of(upstream, key)?;
            let address = upstream.servers[server].authority.clone();
            Some(CacheOwner { address, is_own: peers.is_own(upstream, server) })
        });
        let keys = plan.routes[route].key_secrets();
        let keys: Vec<CacheKey> = keys
            .map(|secret| {
                let head = (&self.head, &*self.bytes);
                CacheKey::from_secret(secret, &uri, &policy.key, head, passes, values)
            })
            .collect();
        // With several upstreams, the one that has a stored response says more.
        if let Some(key) = keys.iter().find(|key| cache.has(**key)).or(keys.first()) {
            self.look(plan, cache, policy, *key, &uri, &mut explained);
        }
        Ok(explained)
    }

    /// Returns the route of the request, whether its condition for the cache holds, and the values in its key.
    fn route(&self, plan: &Plan, target: &RequestTarget) -> Result<(usize, bool, NamedTexts), Unanswered> {
        // Listeners with `tcp` pass bytes on and have no routes.
        let fits =
            |listener: &config::Listener| listener.tcp.is_none() && listener.tls.is_some() == self.is_https;
        let path = target.path.for_bytes(&self.bytes);
        let behind = target.path_and_query.for_bytes(&self.bytes).get(path.len()..);
        let fields = RequestFields::new(&self.head, &self.bytes);
        let listener = plan.config.listeners.iter().position(fits).unwrap_or(0);
        let facts = route::RequestFacts {
            method: b"GET",
            host: host_without_port(target.authority.for_bytes(&self.bytes)),
            query: behind.and_then(|rest| rest.strip_prefix(b"?")),
            fields: &fields,
            scheme: if self.is_https { "https" } else { "http" },
            version: HttpVersion::Http11.number(),
            size: Some(0),
            // The client is unknown: routes for networks are chosen as for a local one.
            client: IpAddr::V4(Ipv4Addr::LOCALHOST),
            client_port: 0,
            listener: plan.config.listeners.get(listener).map_or("", |listener| &listener.name),
            tls: route::TlsFacts::default(),
            time_ns: i64::try_from(unix_ms()).map_or(i64::MAX, |ms| ms.saturating_mul(1_000_000)),
            maps: &plan.maps.peek(unix_ms()),
            memory: None,
        };
        let request = facts.parts(listener, path);
        let route = plan.table.choose(&request).map_err(|_| Unanswered::NoRoute)?;
        let when = plan.routes[route].cache_when.as_deref();
        let mut values = Vec::new();
        for (name, value) in &plan.routes[route].key_values {
            request.conditions.value(value, path, &mut |text| values.push((name.clone(), text.to_vec())));
        }
        Ok((route, when.is_none_or(|when| request.conditions.hold(when, path)), values))
    }

    /// Returns a test of whether servers see a field unchanged from an untrusted client.
    fn passes(&self) -> impl Fn(&[u8]) -> bool + Copy {
        Passing { is_trusted: false, names_fields: false, drops_authorization: false, tells_user: false }
            .passes(&self.head, &self.bytes)
    }

    fn look(
        &self,
        plan: &Plan,
        cache: &Cache,
        policy: &CachePolicy,
        key: CacheKey,
        uri: &Uri<'_>,
        explained: &mut Explained,
    ) {
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
            (Some(stored), _) => LookUp::Variant(stored),
            (None, false) => LookUp::OtherVariants,
            (None, true) => LookUp::Nothing,
        };
        // Only reading the record would show whether it answers this request.
        let is_on_disk = stored.is_empty() && cache.second_tier.tier().is_some_and(|tier| tier.has(key));
        if is_on_disk {
            explained.now = CacheVerdict::OnDisk;
            return;
        }
        let decision = decide(&CacheRequestFields::new(head, bytes), found, policy, now_ms);
        explained.now = now(decision);
        // Leaves out the labels for host and URL, which are not tags.
        let own = [
            Label::host(cache.secret, host_without_port(uri.authority)),
            Label::uri(cache.secret, uri, &policy.key),
        ];
        let report = |object: &Arc<Object>| {
            let (tags, tags_untold) = tags(object, cache.secret, &own);
            StoredResponse { tags, tags_untold, ..stored_response(object, is_asked_for(object), now_ms) }
        };
        // Variants that answer this request come first, so that the limit never hides them.
        let (asked_for, others): (Vec<_>, Vec<_>) = stored.iter().partition(|object| is_asked_for(object));
        explained.stored = asked_for.into_iter().chain(others).take(VARIANTS_TOLD_MAX).map(report).collect();
        explained.variants = stored.len();
        let last = cache.store.outcome(key);
        explained.last_miss = last.map(|outcome| last_miss(&outcome, now_ms));
        // Two options limit the size, so the remedy names the one that applies here.
        let is_too_large = last.is_some_and(|last| last.ending == MissEnding::Refused(NotStored::TooLarge));
        let settings = plan.config.cache.as_ref().filter(|_| is_too_large);
        explained.remedies = match settings {
            Some(settings) => vec![size_remedy(settings, cache.store.object_bytes_max())],
            None => remedies(decision, answering.map(AsRef::as_ref), last.as_ref()),
        };
        let (displaced, bytes_max) = cache.store.displaced(key);
        explained.variants_displaced = displaced;
        if displaced > 0 {
            explained.remedies.push(format!(
                "the variants of a URL share {bytes_max} bytes, so {displaced} were evicted: name in Vary only \
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

fn last_miss(outcome: &MissOutcome, now_ms: u64) -> LastMiss {
    let refusal = match outcome.ending {
        MissEnding::Refused(refusal) => Some(refusal.row()),
        _ => None,
    };
    LastMiss {
        seconds_ago: now_ms.saturating_sub(outcome.at_ms) / 1000,
        forward: outcome.forward.word().to_owned(),
        why: outcome.forward.what().to_owned(),
        status: outcome.status,
        is_stored: matches!(outcome.ending, MissEnding::Stored | MissEnding::Validated),
        not_stored: refusal
            .map(|row| StoreRefusal { reason: row.word.to_owned(), what: row.what.to_owned() }),
    }
}

/// Names the option that limits the size of stored responses.
fn size_remedy(settings: &CacheStore, object_bytes_max: u64) -> String {
    let of_memory = if settings.object_bytes_max > object_bytes_max {
        "raise `memory` of `[cache]`, if it is worth that: one response may take an eighth of it at most"
    } else {
        "raise `object` of `[cache]`, if it is worth the room"
    };
    format!("{of_memory}; now that is {object_bytes_max} bytes")
}

/// Suggests settings that would turn the next requests into hits.
fn remedies(decision: Decision, answering: Option<&Object>, last: Option<&MissOutcome>) -> Vec<String> {
    let mut remedies = Vec::new();
    if let Some(MissOutcome { ending: MissEnding::Refused(refusal), .. }) = last {
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
                "send Cache-Control: max-age, because the lifetime is only estimated from Last-Modified"
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

/// Returns the tags of a response whose text is kept, and the number of others.
fn tags(object: &Object, secret: KeySecret, own: &[Label]) -> (Vec<String>, usize) {
    let mut told: Vec<&[u8]> = tags_of_lines(object.hidden()).chain(tags_of_lines(object.head())).collect();
    told.sort_unstable();
    told.dedup();
    let labels: Vec<Label> = told.iter().map(|tag| Label::tag(secret, tag)).collect();
    let is_untold = |label: &&Label| !own.contains(label) && !labels.contains(label);
    (told.into_iter().map(text).collect(), object.labels().iter().filter(is_untold).count())
}

fn stored_response(object: &Object, is_asked_for: bool, now_ms: u64) -> StoredResponse {
    let (stored, head) = (object.stored(), object.head());
    StoredResponse {
        status: stored.status,
        is_asked_for,
        vary: text(object.vary().as_bytes()),
        age_seconds: stored.age_seconds(now_ms),
        // Stale by a purge, however long its lifetime was.
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
        tags: Vec::new(),
        tags_untold: 0,
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
