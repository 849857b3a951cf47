//! `handle_errors`: another upstream's answer in place of a failure, a file, or a text.

use super::directives::CaddyDraft;
use super::servers::url;
use super::{CaddyAdapter, from};
use crate::draft::{DraftTable, DraftValue};
use crate::sheet::name_of;
use crate::source::Directive;

/// The statuses with which Caddy answers in place of a server.
const FAILURES: [&str; 3] = ["502", "503", "504"];

impl<'s> CaddyAdapter<'s> {
    /// Adds the servers that answer errors of a site to a route with servers.
    pub(super) fn errors_elsewhere(&mut self, block: &'s [Directive], made: &mut CaddyDraft<'s>) {
        let options = &made.outcome.options;
        if options.get("upstream").is_none() && options.inner("files", "else").is_none() {
            return;
        }
        for handler in block.iter().filter(|directive| directive.name == "handle_errors") {
            let Some((server, path)) = error_server(handler) else { continue };
            let (proxy, url) = server;
            let mut origins = from(handler);
            origins.extend(from(proxy));
            let mut table = DraftTable::new("", Vec::new());
            table.set("servers", vec![url.clone()], from(proxy));
            let base = name_of(url.split_once("://").map_or(url.as_str(), |(_, host)| host));
            let upstream = self.sheet.upstream(&base, table);
            // Caddy replaces its own responses, and none of servers.
            let mut pairs = vec![
                ("upstream".to_owned(), DraftValue::from(upstream)),
                ("only_failures".to_owned(), true.into()),
            ];
            if let Some((rewrite, path)) = path {
                pairs.push(("path".to_owned(), path.into()));
                origins.extend(from(rewrite));
            }
            for status in FAILURES.iter().filter(|status| is_for(handler, status)) {
                if made.outcome.options.inner("on_status", status).is_none() {
                    let fallback = DraftValue::Table(pairs.clone());
                    made.outcome.options.extend("on_status", (status, fallback), origins.clone());
                }
            }
        }
    }
}

impl<'s> CaddyAdapter<'s> {
    /// Adds the texts and files of errors of a site to a route with files or servers. Caddy replaces its own errors
    /// only; a fixed response is none.
    pub(super) fn errors_as_pages(&mut self, block: &'s [Directive], made: &mut CaddyDraft<'s>) {
        let options = &mut made.outcome.options;
        if options.get("upstream").is_none() && options.get("files").is_none() {
            return;
        }
        for handler in block.iter().filter(|directive| directive.name == "handle_errors") {
            let text = error_text(handler).map(|(respond, text)| {
                (vec![respond], DraftValue::Table(vec![("body".to_owned(), text.into())]))
            });
            let Some((directives, page)) = text.or_else(|| error_file(handler, made.root)) else { continue };
            let mut origins = from(handler);
            origins.extend(directives.into_iter().flat_map(from));
            let every = ["*".to_owned()];
            let statuses = if handler.words.is_empty() { &every[..] } else { &handler.words[..] };
            for status in statuses {
                if options.inner("error_pages", status).is_none() {
                    options.extend("error_pages", (status, page.clone()), origins.clone());
                }
            }
        }
    }
}

/// Returns the only text of an error handler, with the status as its only placeholder.
fn error_text(handler: &Directive) -> Option<(&Directive, String)> {
    let [respond] = handler.inner() else { return None };
    let ("respond", [text], []) = (respond.name.as_str(), respond.words.as_slice(), respond.inner()) else {
        return None;
    };
    // A number alone is a status, which differs from that of the error.
    if text.parse::<u16>().is_ok() || !handler.words.iter().all(|status| is_status(status)) {
        return None;
    }
    let plain = with_status(text, "");
    (!plain.contains(['{', '}']) && !text.is_empty()).then(|| (respond, with_status(text, "{status}")))
}

/// Returns the only file of an error handler, `rewrite * /404.html` with `file_server`, and its directives.
fn error_file<'s>(
    handler: &'s Directive,
    root: Option<&'s Directive>,
) -> Option<(Vec<&'s Directive>, DraftValue)> {
    let (own, rewrite, server) = match handler.inner() {
        [rewrite, server] => (None, rewrite, server),
        [own, rewrite, server] if own.name == "root" => (Some(own), rewrite, server),
        _ => return None,
    };
    let root = own.or(root).and_then(|root| root.words.last())?;
    let is_plain = server.name == "file_server" && server.words.is_empty() && server.inner().is_empty();
    let to = match rewrite.words.as_slice() {
        [to] => to,
        [every, to] if every == "*" => to,
        _ => return None,
    };
    let is_file =
        to.starts_with('/') && !to.ends_with('/') && !to.contains(['{', '?']) && root.starts_with('/');
    let page = format!("{}{to}", root.trim_end_matches('/'));
    (is_plain
        && is_file
        && rewrite.name == "rewrite"
        && !root.contains('{')
        && handler.words.iter().all(|status| is_status(status)))
    .then(|| (own.into_iter().chain([rewrite, server]).collect(), page.into()))
}

fn is_status(status: &str) -> bool {
    matches!(status, "4xx" | "5xx") || status.parse::<u16>().is_ok_and(|status| (400..600).contains(&status))
}

/// A text with another one in place of the status of the error.
fn with_status(text: &str, status: &str) -> String {
    text.replace("{err.status_code}", status).replace("{http.error.status_code}", status)
}

/// The directive and the URL of the server, and the directive and the path of the page that it is asked for.
type ErrorServer<'s> = ((&'s Directive, String), Option<(&'s Directive, String)>);

/// Returns the only server of an error handler, if nothing else is in it but the path of a page.
fn error_server(handler: &Directive) -> Option<ErrorServer<'_>> {
    let (page, proxy) = match handler.inner() {
        [proxy] => (None, proxy),
        [rewrite, proxy] if rewrite.name == "rewrite" => (Some(rewrite), proxy),
        _ => return None,
    };
    let ("reverse_proxy", [word], []) = (proxy.name.as_str(), proxy.words.as_slice(), proxy.inner()) else {
        return None;
    };
    let (url, _) = url(word, false).filter(|(_, protocol)| *protocol == "http/1.1")?;
    let page = match page {
        None => None,
        Some(rewrite) => {
            let to = match rewrite.words.as_slice() {
                [to] => to,
                [every, to] if every == "*" => to,
                _ => return None,
            };
            let path = with_status(to, "\0");
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/_.-\0".contains(&byte);
            let is_path = path.starts_with('/') && path.bytes().all(is_plain);
            Some((rewrite, is_path.then(|| path.replace('\0', "{status}"))?))
        }
    };
    Some(((proxy, url), page))
}

/// Whether a handler is for a status: for all, or for those that it lists.
fn is_for(handler: &Directive, status: &str) -> bool {
    handler.words.is_empty()
        || handler.words.iter().any(|word| matches!(word.as_str(), "5xx") || word == status)
}
