//! The option `mirror` of a route: its declaration, its relations, and back.

use shape::Share;

use crate::fault_kinds::SHARE;
use crate::kind::{At, Located, Maybe, Name, located};
use crate::matching::FieldName;
use crate::range::{Count, Unit};
use crate::reader::Reader;
use crate::route_resolve::{Names, field_name};
use crate::settings::Mirror;
use crate::table::{Element, Inline, Table, element, key, required};

/// The parsed option `mirror`.
#[derive(Debug, Clone)]
pub(crate) struct MirrorWritten {
    upstream: Option<Located<String>>,
    share: Share,
    bodies: u64,
    max_requests: u32,
    mark: Option<Located<String>>,
}

impl Default for MirrorWritten {
    fn default() -> Self {
        Self { upstream: None, share: Share::WHOLE, bodies: 64 << 10, max_requests: 100, mark: None }
    }
}

pub(crate) const MIRROR: Inline<MirrorWritten> = Inline {
    title: "mirror",
    example: "{ upstream = \"shadow\", share = \"10%\" }",
    table: &Table {
        options: &[
            &required(
                "upstream",
                Maybe(At(Name { expected: "the name of an upstream: NAME of [upstream.NAME]" })),
                |mirror: &mut MirrorWritten| &mut mirror.upstream,
                "The upstream that gets the copies.",
            ),
            &key(
                "share",
                SHARE,
                |mirror: &mut MirrorWritten| &mut mirror.share,
                "Share of the requests that are copied; exact in the long run.",
            ),
            &key(
                "bodies",
                Count { range: 0..=16 << 20, unit: Unit::Bytes },
                |mirror: &mut MirrorWritten| &mut mirror.bodies,
                "The largest request body that is copied. Requests with a larger one are not mirrored. Each \
                 request under way may take so much memory.",
            ),
            &key(
                "max_requests",
                Count { range: 1..=100_000, unit: Unit::Things },
                |mirror: &mut MirrorWritten| &mut mirror.max_requests,
                "How many copies may be under way at once, over all workers. Requests beyond are not \
                 mirrored.",
            ),
            &key(
                "mark",
                Maybe(At(Name { expected: FieldName::EXPECTED })),
                |mirror: &mut MirrorWritten| &mut mirror.mark,
                "A request field that copies get, with the value 1, such as `X-Mirrored`. Requests of \
                 clients lose it. Default: copies look like other requests.",
            ),
        ],
    },
};

/// Converts the option; `None` if there is none, or a mistake.
pub(crate) fn mirror(
    written: Option<&Element<MirrorWritten>>,
    names: &Names<'_>,
    reader: &mut Reader<'_>,
) -> Option<Mirror> {
    let MirrorWritten { upstream, share, bodies, max_requests, mark } = &written?.value;
    let upstream = upstream.as_ref()?;
    let mark = mark.as_ref().and_then(|mark| field_name("mark", mark, reader));
    let upstream = names.http_upstream("upstream", &upstream.value, &upstream.at, reader)?;
    let (share, body_bytes_max, requests_max) = (*share, *bodies, *max_requests);
    Some(Mirror { upstream, share, body_bytes_max, requests_max, mark })
}

/// Converts a mirror back to the parsed option.
pub(crate) fn written(mirror: &Mirror, name: impl Fn(usize) -> Option<String>) -> Element<MirrorWritten> {
    element(MirrorWritten {
        upstream: name(mirror.upstream).map(located),
        share: mirror.share,
        bodies: mirror.body_bytes_max,
        max_requests: mirror.requests_max,
        mark: mirror.mark.clone().map(located),
    })
}
