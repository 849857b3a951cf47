//! Options of faults, declared once. Their relations are in `fault_resolve`.

use std::time::Duration;

use ::route::RateKeyPart;
use ipnet::IpNet;
use shape::{Fault, Share};

use crate::fault_kinds::{INJECTED, SHARE};
use crate::keys::REQUEST_KEY;
use crate::kind::{At, List, Located, Maybe, Name, Switch, Text};
use crate::matching::FieldName;
use crate::options::NETWORK_KIND;
use crate::pairs::OneOrMany;
use crate::range::{Count, Unit, Wait};
use crate::requests::{self, Requests};
use crate::table::{Table, Within, key, required};

/// The parsed table `[[fault]]`.
#[derive(Debug, Clone)]
pub(crate) struct FaultWritten {
    pub(crate) name: Option<Located<String>>,
    pub(crate) inject: Option<Located<Fault>>,
    pub(crate) probability: Share,
    pub(crate) client_share: Share,
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
            probability: Share::WHOLE,
            client_share: Share::WHOLE,
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
        &required(
            "inject",
            Maybe(At(INJECTED)),
            |fault: &mut FaultWritten| &mut fault.inject,
            "The fault. A status from 200 to 599: respond so, without a server. `delay`: hold the request \
             back. `cut`: end the body after so many bytes. `length`: make Content-Length \
             wrong by so many bytes. `bad-chunk`: send an invalid first chunk. `drip`: send \
             the header section line by line. `no-trailers`: drop trailers. `reset`: reset the \
             stream (HTTP/2) or the connection (HTTP/1). `goaway`: send GOAWAY, or \
             `Connection: close`. `connection …`: a fault of the whole connection, see \
             docs/faults.md; only its listener and client can be conditions. `connection \
             refuse`: refuse all connections of a listener, or of all listeners.",
        ),
        &key(
            "name",
            Maybe(At(Name { expected: "a name for the fault" })),
            |fault: &mut FaultWritten| &mut fault.name,
            "Name in logs. Default: the text of `inject`.",
        ),
        &key(
            "probability",
            SHARE,
            |fault: &mut FaultWritten| &mut fault.probability,
            "Probability for each matching request.",
        ),
        &key(
            "client_share",
            SHARE,
            |fault: &mut FaultWritten| &mut fault.client_share,
            "Share of the clients that are affected, always the same ones.",
        ),
        &key(
            "first",
            Maybe(Count { range: 1..=1_000_000_000, unit: Unit::Things }),
            |fault: &mut FaultWritten| &mut fault.first,
            "Affects only the first so many requests of each `key`.",
        ),
        &key(
            "key",
            OneOrMany(REQUEST_KEY),
            |fault: &mut FaultWritten| &mut fault.key,
            "What `first` counts by; `\"route\"` counts all requests together.",
        ),
        &key(
            "from",
            TIME,
            |fault: &mut FaultWritten| &mut fault.from,
            "Start, counted from when the fault was loaded or added.",
        ),
        &key(
            "until",
            Maybe(At(TIME)),
            |fault: &mut FaultWritten| &mut fault.until,
            "End, counted in the same way. Default: no end.",
        ),
        &key(
            "repeat",
            Maybe(At(Wait { range: Duration::from_millis(1)..=Duration::from_secs(365 * 24 * 3600) })),
            |fault: &mut FaultWritten| &mut fault.repeat,
            "Restarts `from` and `until` after this time. Several faults with the same `repeat` form a \
             timeline.",
        ),
        &key(
            "expires",
            Maybe(TIME),
            |fault: &mut FaultWritten| &mut fault.expires,
            "The fault ends for good after this time, even with `repeat`.",
        ),
        &key(
            "show",
            Switch,
            |fault: &mut FaultWritten| &mut fault.show,
            "Tells the client in the response field `Vanward-Fault`.",
        ),
        &key(
            "route",
            OneOrMany(At(Name { expected: "the name of a [[route]]" })),
            |fault: &mut FaultWritten| &mut fault.route,
            "Names of the routes whose requests match. Default: all.",
        ),
        &Within { place: requests, option: requests::LISTENER },
        &Within { place: requests, option: requests::HOST },
        &Within { place: requests, option: requests::PATH },
        &Within { place: requests, option: requests::METHODS },
        &Within { place: requests, option: requests::HEADERS },
        &Within { place: requests, option: requests::COOKIE },
        &Within { place: requests, option: requests::QUERY },
        &Within { place: requests, option: requests::CLIENTS },
    ],
};

fn requests(fault: &mut FaultWritten) -> &mut Requests {
    &mut fault.requests
}

/// The parsed table `[faults]`.
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
        &key(
            "seed",
            Count { range: 0..=i64::MAX as u64, unit: Unit::Things },
            |faults: &mut FaultsWritten| &mut faults.seed,
            "Seed of all random decisions: the same seed and requests give the same faults.",
        ),
        &key(
            "header",
            Maybe(At(HEADER_NAME)),
            |faults: &mut FaultsWritten| &mut faults.header,
            "A request field by which clients may ask for a fault: `X-Fault: 503`, or `10%:delay 1s`. \
             Default: none.",
        ),
        &key(
            "header_clients",
            List { kind: NETWORK_KIND, may_be_empty: true },
            |faults: &mut FaultsWritten| &mut faults.header_clients,
            "Networks of clients that may use `header`. From others the field has no effect.",
        ),
    ],
};

const HEADER_NAME: Text<String> = Text {
    expected: FieldName::EXPECTED,
    read: |text| FieldName::read(text).map(|name| name.print()),
    print: String::clone,
};
