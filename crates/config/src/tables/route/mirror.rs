//! The option `mirror` of a route: its declaration, and its relations.

use std::sync::Arc;

use expression::{ExchangeStage, Expression};
use shape::Millionths;

use crate::document::reader::Reader;
use crate::option::kind::{At, Located, Maybe, Name, UPSTREAM_NAME};
use crate::option::later_condition::LaterCondition;
use crate::option::matching::FieldName;
use crate::option::range::{Count, Unit};
use crate::option::table::{Element, Inline, Table, key, required};
use crate::option::templates::field_name;
use crate::tables::fault::kinds::SHARE;
use crate::tables::names::Names;
use crate::tables::route::Mirror;

#[derive(Debug, Clone)]
pub(crate) struct MirrorWritten {
    upstream: Option<Located<String>>,
    share: Millionths,
    bodies: u64,
    max_requests: u32,
    mark: Option<Located<String>>,
    pub(crate) when: Option<Located<Arc<Expression>>>,
}

impl Default for MirrorWritten {
    fn default() -> Self {
        Self {
            upstream: None,
            share: Millionths::WHOLE,
            bodies: 64 << 10,
            max_requests: 100,
            mark: None,
            when: None,
        }
    }
}

pub(crate) const MIRROR: Inline<MirrorWritten> = Inline {
    title: "mirror",
    example: "{ upstream = \"shadow\", share = \"10%\" }",
    table: &Table {
        options: &[
            required!(
                "upstream",
                Maybe(At(UPSTREAM_NAME)),
                MirrorWritten.upstream,
                "The upstream that gets the copies.",
            ),
            key!(
                "share",
                SHARE,
                MirrorWritten.share,
                "Share of the requests that are copied; exact in the long run.",
            ),
            key!(
                "bodies",
                Count { range: 0..=16 << 20, unit: Unit::Bytes },
                MirrorWritten.bodies,
                "The largest request body that is copied. Requests with a larger one are not mirrored. Each \
                 running copy may take this much memory.",
            ),
            key!(
                "max_requests",
                Count { range: 1..=100_000, unit: Unit::Things },
                MirrorWritten.max_requests,
                "How many copies may run at once, over all workers. Further requests are not mirrored.",
            ),
            key!(
                "mark",
                Maybe(At(Name { expected: FieldName::EXPECTED })),
                MirrorWritten.mark,
                "A request field that copies get, with the value 1, such as `X-Mirrored`. It is removed from \
                 clients' requests. Default: copies look like other requests.",
            ),
            key!(
                "when",
                Maybe(LaterCondition(ExchangeStage::Authenticated)),
                MirrorWritten.when,
                "Condition under which a request may be copied: `'request.method == \"GET\"'`. Default: all. See \
                 [conditions](conditions.md).",
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
    let MirrorWritten { upstream, share, bodies, max_requests, mark, when } = &written?.value;
    let upstream = upstream.as_ref()?;
    let mark = mark.as_ref().and_then(|mark| field_name("mark", mark, reader));
    let upstream = names.http_upstream("upstream", &upstream.value, &upstream.at, reader)?;
    let when = when.as_ref().map(|when| Arc::clone(&when.value));
    let (share, body_bytes_max, requests_max) = (*share, *bodies, *max_requests);
    Some(Mirror { upstream, share, body_bytes_max, requests_max, mark, when })
}
