//! Options of faults, declared once. `resolve` has their relations.

use std::time::Duration;

use ::route::RateKeyPart;
use ipnet::IpNet;
use shape::{Fault, Millionths};

use crate::option::host::NETWORK_KIND;
use crate::option::keys::REQUEST_KEY;
use crate::option::kind::{At, Boxed, List, Located, Maybe, Name, Switch, Text};
use crate::option::matching::FieldName;
use crate::option::pairs::OneOrMany;
use crate::option::range::{Count, Unit, Wait};
use crate::option::table::{Element, Table, key, required, within};
use crate::tables::fault::kinds::{INJECTED, SHARE};
use crate::tables::fault::response::{RESPONSE, ResponseWritten};
use crate::tables::requests::{self, Requests};

#[derive(Debug, Clone)]
pub(crate) struct FaultWritten {
    pub(crate) name: Option<Located<String>>,
    pub(crate) inject: Option<Located<Fault>>,
    pub(crate) response: Option<Box<Element<ResponseWritten>>>,
    pub(crate) probability: Millionths,
    pub(crate) every: u32,
    pub(crate) client_share: Millionths,
    pub(crate) first: Option<u32>,
    pub(crate) key: Vec<Option<RateKeyPart>>,
    pub(crate) from: Duration,
    pub(crate) until: Option<Located<Duration>>,
    pub(crate) repeat: Option<Located<Duration>>,
    pub(crate) expires: Option<Duration>,
    pub(crate) show: bool,
    pub(crate) route: Vec<Located<String>>,
    pub(crate) requests: Requests,
}

impl Default for FaultWritten {
    fn default() -> Self {
        Self {
            name: None,
            inject: None,
            response: None,
            probability: Millionths::WHOLE,
            every: 1,
            client_share: Millionths::WHOLE,
            first: None,
            key: vec![Some(RateKeyPart::ClientNetwork { bits_v4: 32, bits_v6: 64 })],
            from: Duration::ZERO,
            until: None,
            repeat: None,
            expires: None,
            show: false,
            route: Vec::new(),
            requests: Requests::default(),
        }
    }
}

/// From nothing to a year: what a fault waits for, or lasts.
const TIME: Wait = Wait { range: Duration::ZERO..=Duration::from_secs(365 * 24 * 3600) };

pub(crate) static FAULT: Table<FaultWritten> = Table {
    options: &[
        required!(
            "inject",
            Maybe(At(INJECTED)),
            FaultWritten.inject,
            "The fault. A status from 200 to 599: respond so, without a server. `delay`: hold the request \
             back. `cut`: end the body after this many bytes. `length`: make Content-Length wrong by this \
             many bytes. `bad-chunk`: send an invalid first chunk. `drip`: send the header section line by \
             line. `no-trailers`: drop trailers. `reset`: reset the stream (HTTP/2) or the connection \
             (HTTP/1). `goaway`: send GOAWAY, or `Connection: close`. `connection …`: a fault of the whole \
             connection, see docs/faults.md; only its listener and client can be conditions. `connection \
             refuse`: refuse all connections of a listener, or of all listeners.",
        ),
        key!(
            "response",
            Maybe(Boxed(RESPONSE)),
            FaultWritten.response,
            "Body, fields and gRPC status of an injected status.",
        ),
        key!(
            "name",
            Maybe(At(Name { expected: "a name for the fault" })),
            FaultWritten.name,
            "Name in logs. Default: the text of `inject`.",
        ),
        key!("probability", SHARE, FaultWritten.probability, "Probability for each matching request.",),
        key!(
            "every",
            Count { range: 1..=1_000_000_000, unit: Unit::Things },
            FaultWritten.every,
            "Affects only every N-th matching request: with 3, the third, the sixth and so on.",
        ),
        key!(
            "client_share",
            SHARE,
            FaultWritten.client_share,
            "Share of the clients that are affected, always the same ones.",
        ),
        key!(
            "first",
            Maybe(Count { range: 1..=1_000_000_000, unit: Unit::Things }),
            FaultWritten.first,
            "Affects only this many first requests of each `key`.",
        ),
        key!(
            "key",
            OneOrMany(REQUEST_KEY),
            FaultWritten.key,
            "What `first` counts by; `\"route\"` counts all requests together.",
        ),
        key!("from", TIME, FaultWritten.from, "Start, counted from when the fault was loaded or added.",),
        key!("until", Maybe(At(TIME)), FaultWritten.until, "End, counted in the same way. Default: no end.",),
        key!(
            "repeat",
            Maybe(At(Wait { range: Duration::from_millis(1)..=Duration::from_secs(365 * 24 * 3600) })),
            FaultWritten.repeat,
            "Restarts `from` and `until` after this time. Several faults with the same `repeat` form a \
             timeline.",
        ),
        key!(
            "expires",
            Maybe(TIME),
            FaultWritten.expires,
            "The fault ends for good after this time, even with `repeat`.",
        ),
        key!("show", Switch, FaultWritten.show, "Names the fault in the response field `Vanward-Fault`.",),
        key!(
            "route",
            OneOrMany(At(Name { expected: "the name of a [[route]]" })),
            FaultWritten.route,
            "Names of the routes whose requests match. Default: all.",
        ),
        within!(FaultWritten.requests, requests::LISTENER),
        within!(FaultWritten.requests, requests::HOST),
        within!(FaultWritten.requests, requests::PATH),
        within!(FaultWritten.requests, requests::METHODS),
        within!(FaultWritten.requests, requests::HEADERS),
        within!(FaultWritten.requests, requests::COOKIE),
        within!(FaultWritten.requests, requests::QUERY),
        within!(FaultWritten.requests, requests::WHEN),
        within!(FaultWritten.requests, requests::CLIENTS),
    ],
};

#[derive(Debug, Clone)]
pub(crate) struct FaultsWritten {
    pub(crate) seed: u64,
    pub(crate) header: Option<Located<String>>,
    pub(crate) header_clients: Vec<IpNet>,
}

impl Default for FaultsWritten {
    fn default() -> Self {
        Self { seed: 1, header: None, header_clients: Vec::new() }
    }
}

pub(crate) static FAULTS: Table<FaultsWritten> = Table {
    options: &[
        key!(
            "seed",
            Count { range: 0..=i64::MAX as u64, unit: Unit::Things },
            FaultsWritten.seed,
            "Seed of all random decisions: the same seed and requests give the same faults.",
        ),
        key!(
            "header",
            Maybe(At(HEADER_NAME)),
            FaultsWritten.header,
            "A request field by which clients may ask for a fault: `X-Fault: 503`, or `10%:delay 1s`. \
             Default: none.",
        ),
        key!(
            "header_clients",
            List { kind: NETWORK_KIND, may_be_empty: true },
            FaultsWritten.header_clients,
            "Networks of clients that may use `header`. From others the field has no effect.",
        ),
    ],
};

const HEADER_NAME: Text<String> = Text {
    expected: FieldName::EXPECTED,
    read: |text| FieldName::read(text).map(|name| name.print()),
    print: String::clone,
};
