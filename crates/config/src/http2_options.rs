//! The options of `[limits.http2]`, declared once.

use http2::FloodLimits;

use crate::meaning::Http2Limits;
use crate::range::{Count, Unit};
use crate::table::{Table, key};

const PER_SECOND: Count = Count { range: 10..=1_000_000, unit: Unit::Things };

fn floods(limits: &mut Http2Limits) -> &mut FloodLimits {
    &mut limits.floods
}

pub(crate) static HTTP2_LIMITS: Table<Http2Limits> = Table {
    options: &[
        &key(
            "resets_per_second",
            PER_SECOND,
            |limits: &mut Http2Limits| &mut floods(limits).resets,
            "Requests that the client cancels before their responses begin (rapid reset, CVE-2023-44487).",
        ),
        &key(
            "settings_per_second",
            PER_SECOND,
            |limits: &mut Http2Limits| &mut floods(limits).settings,
            "SETTINGS frames.",
        ),
        &key(
            "pings_per_second",
            PER_SECOND,
            |limits: &mut Http2Limits| &mut floods(limits).pings,
            "PING frames, beyond one for each DATA frame sent or received.",
        ),
        &key(
            "priorities_per_second",
            PER_SECOND,
            |limits: &mut Http2Limits| &mut floods(limits).priorities,
            "PRIORITY frames.",
        ),
        &key(
            "empty_frames_per_second",
            PER_SECOND,
            |limits: &mut Http2Limits| &mut floods(limits).empty_frames,
            "DATA and CONTINUATION frames without a byte that end nothing.",
        ),
        &key(
            "errors_per_second",
            PER_SECOND,
            |limits: &mut Http2Limits| &mut floods(limits).errors,
            "Streams that are reset for what the client did wrong on them (CVE-2025-8671).",
        ),
        &key(
            "overhead_per_second",
            PER_SECOND,
            |limits: &mut Http2Limits| &mut floods(limits).overhead,
            "All else that carries nothing: WINDOW_UPDATE, frames of unknown types, answers to nothing, DATA that is mostly \
             padding or for streams that are over, requests beyond the streams that may be open, and DATA of less than 256 bytes \
             that the client's windows have us send. Each request earns 4 of these, each DATA frame sent 2 and one for each 512 \
             bytes, each received 1; only those beyond are counted.",
        ),
        &key(
            "trusted_factor",
            Count { range: 1..=10_000, unit: Unit::Things },
            |limits: &mut Http2Limits| &mut limits.trusted_factor,
            "How many times as much of each a proxy of `trusted_proxies` may send: its connection carries the requests of many.",
        ),
    ],
};
