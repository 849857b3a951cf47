//! The options `split` and `sticky` of routes: upstreams by weight, and clients that stay on their side.

use std::sync::Arc;

use balance::SessionSource;
use expression::{ExchangeStage, Expression};
use toml::de::DeValue;

use crate::document::reader::Reader;
use crate::option::form::Form;
use crate::option::kind::{Described, Kind, Located, Maybe};
use crate::option::later_condition::LaterCondition;
use crate::option::matching::parameter_name;
use crate::option::pairs::Pairs;
use crate::option::range::{Count, Unit};
use crate::option::table::{Element, Inline, Table, Written, key, required};
use crate::tables::route::SplitKey;
use crate::tables::route::options::RouteWritten;
use crate::tables::upstream::StickyCookie;
use crate::tables::upstream::sticky::{self, SPLIT_TABLE, StickyWritten, attributes};

pub(crate) const STICKY_SPLIT: Inline<StickyWritten> =
    Inline { title: "sticky", example: "{ by = \"cookie\" }", table: &SPLIT_TABLE };

/// Upstreams with their weights and conditions.
pub(crate) const ROUTE_SPLIT: Pairs<String, ShareKind> = Pairs {
    expected: "weights of upstreams such as { app = 9, canary = 1 }",
    name: parameter_name,
    print_name: String::clone,
    kind: ShareKind,
};

/// The share of an upstream.
#[derive(Debug, Clone, Default)]
pub(crate) struct ShareWritten {
    pub(crate) weight: u32,
    pub(crate) when: Option<Located<Arc<Expression>>>,
}

/// A weight, or a table with a weight and a condition.
pub(crate) struct ShareKind;

const WEIGHT: Count = Count { range: 0..=1_000_000, unit: Unit::Things };

const SHARE: Inline<ShareWritten> = Inline {
    title: "split",
    example: "{ weight = 1, when = '\"beta\" in request.cookies[\"group\"]' }",
    table: &Table {
        options: &[
            required!("weight", WEIGHT, ShareWritten.weight, "The weight of the upstream.",),
            key!(
                "when",
                Maybe(LaterCondition(ExchangeStage::Authenticated)),
                ShareWritten.when,
                "Condition under which requests may go to this upstream. The others share all other requests. \
                 Default: all. See [conditions](conditions.md).",
            ),
        ],
    },
};

impl Described for ShareKind {
    fn form(&self) -> Form {
        let expected = format!("{}, or a table such as {}", WEIGHT.expected(), SHARE.example);
        Form::brief(expected, "number, or table")
    }
}

impl Kind<ShareWritten> for ShareKind {
    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<ShareWritten> {
        match written.value.get_ref() {
            DeValue::Table(_) => SHARE.read(written, reader).map(|share| share.value),
            _ => WEIGHT.read(written, reader).map(|weight| ShareWritten { weight, when: None }),
        }
    }

    fn print(&self, share: &ShareWritten) -> Option<String> {
        match share.when {
            None => WEIGHT.print(&share.weight),
            Some(_) => Some(SHARE.print_value(share)),
        }
    }
}

/// The default name of the cookie: the same for all splits, so that a client has one number everywhere.
const COOKIE: &str = "vanward_split";

/// Converts the option; `None` if there is none, or a mistake.
pub(crate) fn split_key(route: &RouteWritten, reader: &mut Reader<'_>) -> Option<SplitKey> {
    let Element { value: sticky, at, .. } = route.sticky.as_deref()?;
    let mut refuse = |at: &crate::document::reader::Span, message: &str, expected: &str| {
        let mistake = reader.mistake(at, message);
        reader.add(mistake.expecting(expected));
    };
    if route.split.is_none() {
        refuse(at, "sticky: this route has no split", "split, or sticky of [upstream.NAME]");
    }
    let by = sticky.by.as_ref()?;
    match (&by.value, &sticky.ttl) {
        (Some(SessionSource::Cookie(_)), _) => {
            let message = "sticky: a client would change its side when its server sets the cookie";
            refuse(&by.at, message, "by = \"cookie\"");
        }
        (Some(_), Some(ttl)) => {
            refuse(&ttl.at, "sticky: a split has no sessions that could expire", "no ttl");
        }
        _ => {}
    }
    sticky::check(&StickyWritten { ttl: None, ..sticky.clone() }, reader);
    Some(match &by.value {
        Some(source) => SplitKey::Source(source.clone()),
        None => SplitKey::Cookie(StickyCookie {
            attributes: attributes(sticky),
            name: sticky.name.as_ref().map_or_else(|| COOKIE.to_owned(), |name| name.value.clone()),
            ttl: sticky.ttl.as_ref().and_then(|ttl| ttl.value),
            secrets: sticky.secret_file.as_ref().map(|secrets| secrets.value.clone()),
        }),
    })
}
