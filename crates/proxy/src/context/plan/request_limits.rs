//! Limits of routes: on the rate of requests, and on requests under way. All workers share their counts, which survive
//! configuration changes.

use std::collections::HashMap;
use std::sync::Arc;

use config::{Config, RateLimit, Redis};
use route::{RateLimiter, SharedIdentity};

use crate::shared::concurrency::{ConcurrencyLimiter, SharedConcurrency};
use crate::shared::secret::secret;

pub(crate) struct Limit {
    pub(crate) settings: RateLimit,
    /// Whether the key contains the user, who must then be known.
    pub(crate) of_users: bool,
    pub(crate) limiter: Arc<RateLimiter>,
    /// Its identity among instances, if they share it.
    identity: Option<SharedIdentity>,
    /// The lines that describe it to clients, up to the remaining quota; `None` if they are not sent.
    pub(crate) told: Option<Box<[u8]>>,
}

/// A limit on requests under way.
#[derive(Clone)]
pub(crate) struct ConcurrencyLimit {
    pub(crate) settings: config::ConcurrencyLimit,
    pub(crate) limiter: ConcurrencyLimiter,
    /// Its identity among instances, if they share it.
    identity: Option<SharedIdentity>,
}

impl ConcurrencyLimit {
    /// Returns the limit as instances share it, if they do.
    pub(super) fn shared(&self) -> Option<SharedConcurrency> {
        let SharedIdentity { id, .. } = self.identity?;
        Some(SharedConcurrency { id, limiter: self.limiter.clone() })
    }

    /// Whether the counts are valid for other settings, such as another maximum.
    fn counts_like(&self, other: &config::ConcurrencyLimit, identity: Option<SharedIdentity>) -> bool {
        let config::ConcurrencyLimit { key, shared, .. } = &self.settings;
        (key, shared, self.identity) == (&other.key, &other.shared, identity)
    }
}

#[derive(Debug, Clone)]
pub struct SharedLimit {
    /// Equal on all instances.
    pub id: u64,
    /// The limiter of this instance.
    pub limiter: Arc<RateLimiter>,
}

impl Limit {
    /// Returns the limit as instances share it, if they do.
    pub(super) fn shared(&self) -> Option<SharedLimit> {
        let SharedIdentity { id, .. } = self.identity?;
        Some(SharedLimit { id, limiter: Arc::clone(&self.limiter) })
    }
}

/// Returns the lines that describe a limit to clients: its policy, and the beginning of the remaining quota
/// (draft-ietf-httpapi-ratelimit-headers-10 §3, §4). `names` are those of earlier limits.
fn told(settings: &RateLimit, names: &mut Vec<String>) -> Box<[u8]> {
    let rate = settings.rate;
    let (requests, per) = rate.requests_per();
    let mut name = format!("{requests}/{}", config::written_duration(per));
    // Names distinguish the policies of a response.
    if names.contains(&name) {
        name = format!("{name}-{}", names.len() + 1);
    }
    // The burst and the time in which it is restored. A window is in whole seconds.
    let window_ns = u128::from(rate.interval_ns()) * u128::from(rate.burst().get());
    let window = match window_ns.div_ceil(1_000_000_000) {
        _ if window_ns < 1_000_000_000 => String::new(),
        seconds => format!(";w={seconds}"),
    };
    let lines = format!("RateLimit-Policy: \"{name}\";q={}{window}\r\nRateLimit: \"{name}\"", rate.burst());
    names.push(name);
    lines.into_bytes().into()
}

/// Returns a limit's identity among instances: equal settings on routes of the same name, or of one zone, count together.
fn identity(redis: &Redis, route: &str, zone: Option<&str>, described: &str) -> SharedIdentity {
    let secret = redis.secret.as_ref().map_or(redis.name.as_bytes(), |secret| &secret.bytes);
    let place = match zone {
        // No name of a route has a line break.
        Some(zone) => format!("\n{zone}"),
        None => route.to_owned(),
    };
    SharedIdentity::from_secret(secret, &format!("{place}\n{described}"))
}

/// The limits of zones, which several routes count in: those of the previous plan, and of the routes that are compiled.
#[derive(Default)]
pub(super) struct LimitZones {
    rates: HashMap<Box<str>, ZoneRate>,
    concurrency: HashMap<Box<str>, ConcurrencyLimit>,
}

struct ZoneRate {
    settings: RateLimit,
    identity: Option<SharedIdentity>,
    limiter: Arc<RateLimiter>,
}

impl LimitZones {
    /// Adds the zones of a route of the previous plan.
    pub(super) fn keep(&mut self, rates: &[Limit], concurrency: &[ConcurrencyLimit]) {
        for Limit { settings, identity, limiter, .. } in rates {
            if let Some(zone) = &settings.zone {
                self.rates.entry(zone.clone()).or_insert_with(|| ZoneRate {
                    settings: settings.clone(),
                    identity: *identity,
                    limiter: Arc::clone(limiter),
                });
            }
        }
        for limit in concurrency {
            if let Some(zone) = &limit.settings.zone {
                self.concurrency.entry(zone.clone()).or_insert_with(|| limit.clone());
            }
        }
    }

    /// Returns the limiter of a zone. It keeps the counts of the zone's other routes, and of the previous plan if its
    /// settings are the same.
    fn rate(
        &mut self,
        zone: &str,
        settings: &RateLimit,
        identity: Option<SharedIdentity>,
        new: impl FnOnce() -> Arc<RateLimiter>,
    ) -> Arc<RateLimiter> {
        let known = self.rates.get(zone);
        if let Some(known) =
            known.filter(|known| known.settings.is_of_one_zone(settings) && known.identity == identity)
        {
            let is_same = known.settings.rate == settings.rate;
            return if is_same {
                Arc::clone(&known.limiter)
            } else {
                Arc::new(known.limiter.with_burst_of(settings.rate))
            };
        }
        let limiter = new();
        let added = ZoneRate { settings: settings.clone(), identity, limiter: Arc::clone(&limiter) };
        self.rates.insert(zone.into(), added);
        limiter
    }

    /// Returns the limiter of a zone of limits on requests under way, as [`rate`](Self::rate) does.
    fn concurrency(
        &mut self,
        zone: &str,
        settings: &config::ConcurrencyLimit,
        identity: Option<SharedIdentity>,
        new: impl FnOnce() -> ConcurrencyLimiter,
    ) -> ConcurrencyLimiter {
        if let Some(known) = self.concurrency.get(zone).filter(|known| known.counts_like(settings, identity))
        {
            return known.limiter.clone();
        }
        let added = ConcurrencyLimit { settings: settings.clone(), limiter: new(), identity };
        let limiter = added.limiter.clone();
        self.concurrency.insert(zone.into(), added);
        limiter
    }
}

/// Returns the rate limits of a route. Those that it had `before` keep their counts.
pub(super) fn rates(
    config: &Config,
    route: &str,
    settings: &[RateLimit],
    before: &[Limit],
    zones: &mut LimitZones,
) -> Box<[Limit]> {
    let mut names = Vec::new();
    let mut before: Vec<&Limit> = before.iter().filter(|limit| limit.settings.zone.is_none()).collect();
    let limit = |settings: &RateLimit| {
        let shared = settings.shared.zip(config.redis.as_ref());
        let identity = shared.map(|(_, redis)| {
            let RateLimit { rate, key, .. } = settings;
            let described = format!("{:?} {} {key:?}", rate.requests_per(), rate.burst());
            identity(redis, route, settings.zone.as_deref(), &described)
        });
        let new = || {
            let RateLimit { rate, key, keys_max, .. } = settings.clone();
            Arc::new(match shared.zip(identity) {
                Some(((alone, redis), SharedIdentity { secret, .. })) => {
                    RateLimiter::shared(rate, key, keys_max, secret, (alone, redis.instances))
                }
                None => {
                    // Random, so that clients cannot choose keys that collide.
                    let [low, high] = [secret(), secret()].map(u64::from_le_bytes);
                    RateLimiter::new(rate, key, keys_max, [low, high])
                }
            })
        };
        let limiter = match &settings.zone {
            Some(zone) => zones.rate(zone, settings, identity, new),
            None => {
                let is_same =
                    |limit: &&Limit| limit.settings.counts_like(settings) && limit.identity == identity;
                // Each earlier limit is taken once, so that two equal limits of a route keep separate counts.
                let place = before.iter().position(is_same);
                place.map_or_else(new, |place| Arc::clone(&before.remove(place).limiter))
            }
        };
        let told = settings.fields.then(|| told(settings, &mut names));
        Limit { of_users: settings.key.has_user(), settings: settings.clone(), limiter, identity, told }
    };
    settings.iter().map(limit).collect()
}

/// Returns the limits on requests under way of a route. Those that count by the same key as one that it had `before`
/// keep its counts, also with another maximum.
pub(super) fn concurrency(
    config: &Config,
    route: &str,
    all: &[config::ConcurrencyLimit],
    before: &[ConcurrencyLimit],
    zones: &mut LimitZones,
) -> Box<[ConcurrencyLimit]> {
    let mut before: Vec<&ConcurrencyLimit> =
        before.iter().filter(|limit| limit.settings.zone.is_none()).collect();
    let limit = |(index, settings): (usize, &config::ConcurrencyLimit)| {
        let shared = settings.shared.zip(config.redis.as_ref());
        let identity = shared.map(|(_, redis)| {
            // Equal limits of a route, for example with different conditions, count separately.
            let is_alike = |earlier: &&config::ConcurrencyLimit| {
                (&earlier.key, &earlier.zone, &settings.zone) == (&settings.key, &None, &None)
            };
            let number = all[..index].iter().filter(is_alike).count();
            let described = format!("under way {number} {:?}", settings.key);
            identity(redis, route, settings.zone.as_deref(), &described)
        });
        let new = || match shared.zip(identity) {
            Some(((alone, redis), SharedIdentity { secret, .. })) => {
                ConcurrencyLimiter::shared(secret, alone, redis.instances)
            }
            None => ConcurrencyLimiter::new(),
        };
        let limiter = match &settings.zone {
            Some(zone) => zones.concurrency(zone, settings, identity, new),
            None => {
                let place = before.iter().position(|limit| limit.counts_like(settings, identity));
                place.map_or_else(new, |place| before.remove(place).limiter.clone())
            }
        };
        ConcurrencyLimit { settings: settings.clone(), limiter, identity }
    };
    all.iter().enumerate().map(limit).collect()
}
