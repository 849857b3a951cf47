//! The option `rate_limit` of routes: its declaration, and its relations.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use ::route::{Alone, Rate, RateError, RateKey, RateKeyPart};
use expression::{ExchangeStage, Expression};

use crate::document::reader::Reader;
use crate::option::keys::ALONE;
use crate::option::kind::{At, Located, Maybe, Name, Switch};
use crate::option::later_condition::{LaterCondition, check_stage};
use crate::option::pairs::OneOrMany;
use crate::option::range::{Count, NonZero, Unit};
use crate::option::table::{Inline, Table, key, required};
use crate::option::value_key::RateKeyKind;
use crate::tables::route::RateLimit;
use crate::tables::route::kinds::RATE;

#[derive(Debug, Clone)]
pub(crate) struct RateLimitWritten {
    pub(crate) rate: Option<Located<(NonZeroU32, Duration)>>,
    pub(crate) burst: Option<Located<NonZeroU32>>,
    pub(crate) key: Vec<Option<RateKeyPart>>,
    pub(crate) keys_max: usize,
    pub(crate) shared: Option<Located<Alone>>,
    pub(crate) fields: bool,
    pub(crate) when: Option<Located<Arc<Expression>>>,
    pub(crate) zone: Option<Located<String>>,
}

impl Default for RateLimitWritten {
    fn default() -> Self {
        let client = RateKeyPart::ClientNetwork { bits_v4: 32, bits_v6: 64 };
        Self {
            rate: None,
            burst: None,
            key: vec![Some(client)],
            keys_max: 65_536,
            shared: None,
            fields: false,
            when: None,
            zone: None,
        }
    }
}

pub(crate) const RATE_LIMIT: Inline<RateLimitWritten> = Inline {
    title: "rate_limit",
    example: "{ rate = \"100/s\", key = \"client\" }",
    table: &Table {
        options: &[
            required!(
                "rate",
                Maybe(At(RATE)),
                RateLimitWritten.rate,
                "Mean rate: `\"100/s\"`, `\"10/m\"`, `\"1000/h\"`, `\"5/10s\"`.",
            ),
            key!(
                "burst",
                Maybe(At(NonZero(Count { range: 1..=u32::MAX as u64, unit: Unit::Things }))),
                RateLimitWritten.burst,
                "How many requests may come at once. Default: the number in `rate`.",
            ),
            key!(
                "key",
                OneOrMany(RateKeyKind),
                RateLimitWritten.key,
                "What requests are counted by. `client/24` counts by network; an IPv6 address counts by its \
                 first 64 bits, unless the key is for example `client/32/128`. `user` is the authenticated \
                 user (`auth`, `jwt`, `web_bot_auth`, `forward_auth`). Such a limit counts after \
                 authentication, the others before it. `${app}` is a value. `route` counts all requests of the route together.",
            ),
            key!(
                "keys_max",
                Count { range: 1..=16_777_216, unit: Unit::Things },
                RateLimitWritten.keys_max,
                "How many keys are remembered. Their memory is allocated at the start.",
            ),
            key!(
                "shared",
                Maybe(At(ALONE)),
                RateLimitWritten.shared,
                "Counts the requests of all instances together, through `[redis]`. The value says what \
                 happens while Redis does not answer: `\"open\"` admits all requests, `\"local\"` gives each \
                 instance its share of the rate, `\"closed\"` rejects all. Default: each instance counts its \
                 own. See [several instances](fleet.md#shared-rate-limits).",
            ),
            key!(
                "fields",
                Switch,
                RateLimitWritten.fields,
                "Sends clients their quota, in the response fields `RateLimit-Policy` and `RateLimit` \
                 (draft-ietf-httpapi-ratelimit-headers-10). See [rate limits](rate-limits.md#tell-clients).",
            ),
            key!(
                "when",
                Maybe(LaterCondition(ExchangeStage::Authenticated)),
                RateLimitWritten.when,
                "Condition under which a request counts: `'!(client.address in \"10.0.0.0/8\")'`. Default: all \
                 do. Only a limit by `user` may ask for the user. See [conditions](conditions.md).",
            ),
            key!(
                "zone",
                Maybe(At(Name { expected: "a name for the zone" })),
                RateLimitWritten.zone,
                "Routes whose limits have the same zone count together: a client has one rate for all of them. They \
                 need the same `rate`, `key`, `keys_max` and `shared`; `burst`, `fields` and `when` may differ. \
                 Default: each route counts separately.",
            ),
        ],
    },
};

/// Checks the relations of the options; `None` if there is a mistake.
pub(crate) fn rate_limit(written: &RateLimitWritten, reader: &mut Reader<'_>) -> Option<RateLimit> {
    let RateLimitWritten { rate, burst, key, keys_max, shared, fields, when, zone } = written;
    let rate = rate.as_ref()?;
    if key.is_empty() {
        let what =
            "key is empty: say what requests are counted by, or \"route\" for all of the route together";
        let mistake = reader.mistake(&rate.at, what.to_owned());
        reader.add(mistake);
        return None;
    }
    let (requests, per) = rate.value;
    let most = burst.as_ref().map_or(requests, |burst| burst.value);
    match Rate::new(requests, per, most) {
        Ok(rate) => {
            let key = RateKey(key.iter().flatten().cloned().collect());
            let shared = shared.as_ref().map(|shared| shared.value);
            // Other limits count before the client is authenticated.
            if let (Some(when), false) = (when, key.has_user()) {
                check_stage(when, ExchangeStage::Request, reader);
            }
            let when = when.as_ref().map(|when| Arc::clone(&when.value));
            let zone = zone.as_ref().map(|zone| zone.value.as_str().into());
            Some(RateLimit { rate, key, keys_max: *keys_max, shared, fields: *fields, when, zone })
        }
        Err(error) => {
            let (option, at) = match (&error, burst) {
                (RateError::Burst(_), Some(burst)) => ("burst", &burst.at),
                _ => ("rate", &rate.at),
            };
            let mistake = reader.mistake(at, format!("{option}: {error}"));
            reader.add(mistake);
            None
        }
    }
}
