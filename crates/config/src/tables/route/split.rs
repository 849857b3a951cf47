//! The option `sticky` of routes with a split: keeps a client on its side.

use balance::SessionSource;

use crate::document::reader::Reader;
use crate::option::table::{Element, Inline};
use crate::tables::route::SplitKey;
use crate::tables::route::options::RouteWritten;
use crate::tables::upstream::StickyCookie;
use crate::tables::upstream::sticky::{self, SPLIT_TABLE, StickyWritten, attributes};

pub(crate) const STICKY_SPLIT: Inline<StickyWritten> =
    Inline { title: "sticky", example: "{ by = \"cookie\" }", table: &SPLIT_TABLE };

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
