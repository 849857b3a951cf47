//! The options of what goes wrong on purpose, declared once. What they mean together is in `injected_resolve`.

use std::time::Duration;

use ::route::RateKeyPart;
use ipnet::IpNet;
use shape::{Fault, Share};

use crate::injected::{INJECTED, SHARE};
use crate::keys::RATE_KEY;
use crate::kind::{At, List, Located, Maybe, Name, Switch, Text};
use crate::matching::FieldName;
use crate::options::NETWORK_KIND;
use crate::pairs::OneOrMany;
use crate::range::{Count, Unit, Wait};
use crate::requests::{self, Requests};
use crate::table::{Table, Within, key, required};

/// `[[fault]]`.
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
            "What goes wrong. A status from 200 to 599: the answer, without a server. `delay`: the request goes on late. `cut`: \
             the body ends after so many bytes. `length`: Content-Length says so many bytes more or less. `bad-chunk`: \
             something else where the first chunk begins. `drip`: the head comes a line at a time. `no-trailers`. `reset`: \
             the stream of HTTP/2 is reset, of HTTP/1 the connection. `goaway`: GOAWAY, or `Connection: close`. \
             `connection …`: a connection as a whole, see docs/faults.md; only its listener and its client count. \
             `connection refuse`: all connections of a listener, or of all listeners.",
        ),
        &key(
            "name",
            Maybe(At(Name { expected: "a name for the fault" })),
            |fault: &mut FaultWritten| &mut fault.name,
            "What it is called in logs. Left out, what goes wrong.",
        ),
        &key(
            "probability",
            SHARE,
            |fault: &mut FaultWritten| &mut fault.probability,
            "How probable it is for a request that matches.",
        ),
        &key(
            "client_share",
            SHARE,
            |fault: &mut FaultWritten| &mut fault.client_share,
            "How many of the clients it happens to, always the same ones.",
        ),
        &key(
            "first",
            Maybe(Count { range: 1..=1_000_000_000, unit: Unit::Things }),
            |fault: &mut FaultWritten| &mut fault.first,
            "It happens to so many requests alone, the first ones of each `key`; then it recovers.",
        ),
        &key(
            "key",
            OneOrMany(RATE_KEY),
            |fault: &mut FaultWritten| &mut fault.key,
            "What `first` is counted by; `\"route\"` is all together.",
        ),
        &key(
            "from",
            TIME,
            |fault: &mut FaultWritten| &mut fault.from,
            "When it begins, from when it came in force.",
        ),
        &key(
            "until",
            Maybe(At(TIME)),
            |fault: &mut FaultWritten| &mut fault.until,
            "When it ends. Left out, never.",
        ),
        &key(
            "repeat",
            Maybe(At(Wait { range: Duration::from_millis(1)..=Duration::from_secs(365 * 24 * 3600) })),
            |fault: &mut FaultWritten| &mut fault.repeat,
            "After so long `from` and `until` count from the beginning again. Several faults with the same are a timeline.",
        ),
        &key(
            "expires",
            Maybe(TIME),
            |fault: &mut FaultWritten| &mut fault.expires,
            "When it ends for good, whatever repeats.",
        ),
        &key(
            "show",
            Switch,
            |fault: &mut FaultWritten| &mut fault.show,
            "Whether responses say so, in the field `Vanward-Fault`.",
        ),
        &key(
            "route",
            OneOrMany(At(Name { expected: "the name of a [[route]]" })),
            |fault: &mut FaultWritten| &mut fault.route,
            "The routes of these requests, by name. Left out, all.",
        ),
        &Within { place: requests, option: requests::LISTENER },
        &Within { place: requests, option: requests::HOST },
        &Within { place: requests, option: requests::PATH },
        &Within { place: requests, option: requests::METHODS },
        &Within { place: requests, option: requests::HEADERS },
        &Within { place: requests, option: requests::QUERY },
        &Within { place: requests, option: requests::CLIENTS },
    ],
};

fn requests(fault: &mut FaultWritten) -> &mut Requests {
    &mut fault.requests
}

/// `[faults]`.
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
            "What all that is left to chance goes by: the same seed and requests give the same faults.",
        ),
        &key(
            "header",
            Maybe(At(HEADER_NAME)),
            |faults: &mut FaultsWritten| &mut faults.header,
            "A header field by which requests may ask for a fault: `X-Fault: 503`, or `10%:delay 1s`. Left out, none.",
        ),
        &key(
            "header_clients",
            List { kind: NETWORK_KIND, may_be_empty: true },
            |faults: &mut FaultsWritten| &mut faults.header_clients,
            "The networks of clients that may do so. Of others the field means nothing.",
        ),
    ],
};

const HEADER_NAME: Text<String> = Text {
    expected: FieldName::EXPECTED,
    read: |text| FieldName::read(text).map(|name| name.print()),
    print: String::clone,
};
