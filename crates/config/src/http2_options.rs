//! Options of `[limits.http2]`, declared once.

use http2::FloodLimits;

use crate::range::{Count, Unit};
use crate::settings::Http2Limits;
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
            "Requests that the client cancels before their response begins (rapid reset, CVE-2023-44487).",
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
            "PING frames, in addition to one per DATA frame sent or received.",
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
            "Empty DATA and CONTINUATION frames that end nothing.",
        ),
        &key(
            "errors_per_second",
            PER_SECOND,
            |limits: &mut Http2Limits| &mut floods(limits).errors,
            "Streams reset because of the client's errors (CVE-2025-8671).",
        ),
        &key(
            "overhead_per_second",
            PER_SECOND,
            |limits: &mut Http2Limits| &mut floods(limits).overhead,
            "Everything else that carries no data: WINDOW_UPDATE, unknown frame types, unrequested \
             acknowledgements, DATA that is mostly padding or for closed streams, requests \
             above the maximum of concurrent streams, and DATA under 256 bytes that the \
             client's small windows force us to send. Each request allows 4 of these, each \
             DATA frame sent 2 plus one per 512 bytes, each DATA frame received 1; only the \
             excess counts.",
        ),
        &key(
            "trusted_factor",
            Count { range: 1..=10_000, unit: Unit::Things },
            |limits: &mut Http2Limits| &mut limits.trusted_factor,
            "Multiplies these limits for proxies of `trusted_proxies`, whose connections carry requests of \
             many clients.",
        ),
    ],
};
