//! Compression of responses.

use super::scope::BlockScope;
use super::servers::RouteEntry;
use super::{NginxAdapter, from, values};
use crate::RemarkKind;
use crate::draft::{DraftValue, StatementOrigin};
use crate::values as written;

/// Script types in nginx's lists of types.
const NGINX_SCRIPTS: [&str; 2] = ["application/javascript", "application/x-javascript"];

impl<'s> NginxAdapter<'s> {
    /// Translates `gzip`.
    pub(super) fn compression(&mut self, scope: &BlockScope<'s>, entry: &mut RouteEntry) {
        let Some(gzip) = scope.one("gzip") else { return };
        let has_body = entry.has_server() || entry.options.get("files").is_some();
        if !values::is_on(gzip.word(0)) {
            return self.note(gzip, RemarkKind::NeedsNothing, "nothing is compressed without `compress`", "");
        }
        if !has_body {
            return;
        }
        let mut origins = from(gzip);
        let mut pairs = vec![("codings".to_owned(), DraftValue::List(vec!["gzip".into()]))];
        if let Some(level) = scope.one("gzip_comp_level")
            && let Ok(number @ 1..=9) = level.word(0).parse::<u64>()
        {
            pairs.push((
                "level".to_owned(),
                DraftValue::Table(vec![("gzip".to_owned(), DraftValue::Number(number))]),
            ));
            origins.extend(from(level));
        }
        let mut types: Vec<DraftValue> = vec!["text/html".into()];
        if let Some(list) = scope.one("gzip_types") {
            for kind in &list.words {
                let kind = if kind == "*" { "*/*" } else { kind };
                if kind == "*/*" {
                    let why = "types are named, such as \"text/*\"";
                    self.note(list, RemarkKind::Differs, why, "name more in `types` of `compress`");
                } else if kind.contains('/') && !types.contains(&kind.into()) {
                    types.push(kind.into());
                }
            }
            origins.extend(from(list));
        }
        // Scripts have another type here (RFC 9239) than in nginx's list of types.
        let is_script = |kind: &DraftValue| NGINX_SCRIPTS.iter().any(|script| *kind == (*script).into());
        if entry.options.get("files").is_some()
            && types.iter().any(is_script)
            && !types.contains(&"text/javascript".into())
        {
            types.push("text/javascript".into());
        }
        pairs.push(("types".to_owned(), DraftValue::List(types)));
        let least = scope.one("gzip_min_length");
        let bytes = least.and_then(|least| values::bytes(least.word(0))).unwrap_or(20);
        pairs.push(("min_size".to_owned(), written::size(bytes).into()));
        origins.extend(least.map(|least| StatementOrigin::Directive(least.number)));
        entry.options.set("compress", DraftValue::Table(pairs), origins);
    }
}
