//! The option `limits` of a route.

use std::time::Duration;

use crate::option::kind::{Maybe, Unless};
use crate::option::range::{Count, Unit, Wait};
use crate::option::table::{Inline, Table, key};
use crate::tables::route::RouteLimits;

pub(crate) const LIMITS: Inline<RouteLimits> = Inline {
    title: "limits",
    example: "{ body_bytes = \"1GB\" }",
    table: &Table {
        options: &[
            key!(
                "body_bytes",
                Maybe(Unless { word: "none", kind: Count { range: 0..=u64::MAX, unit: Unit::Bytes } }),
                RouteLimits.body_bytes,
                "Request body; above it 413. `\"none\"`: no limit.",
            ),
            key!(
                "minimum_rate",
                Maybe(Count { range: 0..=1_000_000_000, unit: Unit::BytesPerSecond }),
                RouteLimits.minimum_rate_bytes_per_second,
                "Minimum rate, averaged over `rate_window`, at which a client must send a request body or \
                 accept a response; slower clients are disconnected. 0: no minimum.",
            ),
            key!(
                "rate_window",
                Maybe(Wait { range: Duration::from_secs(1)..=Duration::from_secs(3600) }),
                RouteLimits.rate_window,
                "Averaging period of `minimum_rate`.",
            ),
        ],
    },
};
