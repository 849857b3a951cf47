//! The option `concurrency` of routes: its declaration, and its relations.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use ::route::{Alone, Concurrency, RateKey, RateKeyPart};
use expression::{ExchangeStage, Expression};

use crate::document::reader::Reader;
use crate::option::keys::ALONE;
use crate::option::kind::{At, Located, Maybe, Name};
use crate::option::later_condition::LaterCondition;
use crate::option::pairs::OneOrMany;
use crate::option::range::{Count, NonZero, UP_TO_A_DAY, Unit};
use crate::option::table::{Element, Inline, Table, key, required};
use crate::option::value_key::RateKeyKind;

/// The longest wait in the queue, if none is written.
const WAIT: Duration = Duration::from_secs(1);

/// A limit on requests under way per key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConcurrencyLimit {
    pub limit: Concurrency,
    /// The key that requests are counted by.
    pub key: RateKey,
    /// The longest wait for room.
    pub wait: Duration,
    /// The condition under which requests count; `None` means all.
    pub when: Option<Arc<Expression>>,
    /// Whether instances count together, and what happens while they cannot.
    pub shared: Option<Alone>,
    /// Routes with the same zone count together.
    pub zone: Option<Box<str>>,
}

impl ConcurrencyLimit {
    /// Returns the settings that limits of one zone have in common. Instances that share a zone know one maximum.
    pub fn zone_terms(&self) -> (&RateKey, Option<Alone>, Option<NonZeroU32>) {
        (&self.key, self.shared, self.shared.map(|_| self.limit.max))
    }
}

#[derive(Debug, Clone)]
pub(crate) struct ConcurrencyWritten {
    pub(crate) max: Option<NonZeroU32>,
    pub(crate) by: Vec<Option<RateKeyPart>>,
    pub(crate) queue: u32,
    pub(crate) wait: Option<Located<Duration>>,
    pub(crate) shared: Option<Located<Alone>>,
    pub(crate) when: Option<Located<Arc<Expression>>>,
    pub(crate) zone: Option<Located<String>>,
}

impl Default for ConcurrencyWritten {
    fn default() -> Self {
        let client = RateKeyPart::ClientNetwork { bits_v4: 32, bits_v6: 64 };
        Self { max: None, by: vec![Some(client)], queue: 0, wait: None, shared: None, when: None, zone: None }
    }
}

pub(crate) const CONCURRENCY: Inline<ConcurrencyWritten> = Inline {
    title: "concurrency",
    example: "{ max = 20 }",
    table: &Table {
        options: &[
            required!(
                "max",
                Maybe(NonZero(Count { range: 1..=u32::MAX as u64, unit: Unit::Things })),
                ConcurrencyWritten.max,
                "How many requests of a key may be under way at once. A request is under way until its response \
                 was sent or its client has left, a WebSocket until it ends.",
            ),
            key!(
                "by",
                OneOrMany(RateKeyKind),
                ConcurrencyWritten.by,
                "What requests are counted by, written like `key` of `rate_limit`.",
            ),
            key!(
                "queue",
                Count { range: 0..=1_000_000, unit: Unit::Things },
                ConcurrencyWritten.queue,
                "How many further requests of a key may wait, in the order of their arrival. 0: none.",
            ),
            key!(
                "wait",
                Maybe(At(UP_TO_A_DAY)),
                ConcurrencyWritten.wait,
                "How long a request may wait in the `queue`; then 429. Default: `\"1s\"`.",
            ),
            key!(
                "shared",
                Maybe(At(ALONE)),
                ConcurrencyWritten.shared,
                "Counts the requests of all instances together, through `[redis]`. The value says what \
                 happens while Redis does not answer: `\"open\"` admits all requests, `\"local\"` gives each \
                 instance its share of `max`, `\"closed\"` rejects all. Default: each instance counts its \
                 own. See [several instances](fleet.md#shared-limits-on-requests-under-way).",
            ),
            key!(
                "when",
                Maybe(LaterCondition(ExchangeStage::Authenticated)),
                ConcurrencyWritten.when,
                "Condition under which a request counts. Default: all do. See [conditions](conditions.md).",
            ),
            key!(
                "zone",
                Maybe(At(Name { expected: "a name for the zone" })),
                ConcurrencyWritten.zone,
                "Routes whose limits have the same zone and `by` count together. `max`, `queue`, `wait` and `when` \
                 may differ, but not `shared`, and with it not `max`. Default: each route counts separately.",
            ),
        ],
    },
};

/// Checks the relations of the options; `None` if there is a mistake.
pub(crate) fn concurrency(
    Element { value: written, at, .. }: &Element<ConcurrencyWritten>,
    reader: &mut Reader<'_>,
) -> Option<ConcurrencyLimit> {
    let ConcurrencyWritten { max, by, queue, wait, shared, when, zone } = written;
    if by.is_empty() {
        let what =
            "by is empty: say what requests are counted by, or \"route\" for all of the route together";
        let mistake = reader.mistake(at, what.to_owned());
        reader.add(mistake);
        return None;
    }
    if let (Some(wait), 0) = (wait, *queue) {
        let mistake = reader.mistake(&wait.at, "wait: without a queue, no request waits".to_owned());
        reader.add(mistake.expecting("queue as well, or no wait"));
    }
    Some(ConcurrencyLimit {
        limit: Concurrency { max: (*max)?, waiting_max: *queue },
        key: RateKey(by.iter().flatten().cloned().collect()),
        wait: wait.as_ref().map_or(WAIT, |wait| wait.value),
        shared: shared.as_ref().map(|shared| shared.value),
        when: when.as_ref().map(|when| Arc::clone(&when.value)),
        zone: zone.as_ref().map(|zone| zone.value.as_str().into()),
    })
}
