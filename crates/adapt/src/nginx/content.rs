//! Content of a location: a server, files, a fixed response, a redirect.

use super::fallbacks::{IfMissing, missing, tries_files};
use super::locations::{Location, LocationMatch};
use super::scope::BlockScope;
use super::servers::RouteEntry;
use super::syntax::Directive;
use super::{NginxAdapter, from, values};
use crate::RemarkKind;
use crate::draft::{DraftValue, StatementOrigin};
use crate::values as written;

const REFUSED: [&str; 13] = [
    "uwsgi_pass",
    "scgi_pass",
    "memcached_pass",
    "perl",
    "js_content",
    "content_by_lua_block",
    "content_by_lua_file",
    "empty_gif",
    "flv",
    "mp4",
    "stub_status",
    "random_index",
    "api",
];

/// Whether a location with this directive gives a response other than the file at the path.
pub(super) fn answers_without_files(name: &str) -> bool {
    REFUSED.contains(&name)
        || ["proxy_pass", "grpc_pass", "fastcgi_pass", "return", "rewrite", "alias"].contains(&name)
}

impl<'s> NginxAdapter<'s> {
    /// Sets the content of a location's route. Returns whether that is a server.
    pub(super) fn content(
        &mut self,
        location: &Location<'s>,
        server: &'s Directive,
        entry: &mut RouteEntry,
    ) -> bool {
        let scope = &location.scope;
        if let Some(internal) = scope.here("internal") {
            // Only other locations lead there: for clients it does not exist.
            let status = DraftValue::Table(vec![("status".to_owned(), 404.into())]);
            entry.options.set("respond", status, from(internal));
            if scope.all("error_page").iter().any(|page| page.words.iter().any(|word| word == "404")) {
                let why = "clients that ask for it get 404 without the page of `error_page`";
                self.note(internal, RemarkKind::Differs, why, "");
            }
            return false;
        }
        if let Some(answer) = scope.here("return") {
            self.answer(answer, None, scope, entry);
            return false;
        }
        if let Some(handler) = REFUSED.iter().find_map(|name| scope.here(name)) {
            not_taken(handler, entry);
            self.note_by_name(handler.number);
            return false;
        }
        if let Some(pass) = scope.here("proxy_pass").or_else(|| scope.here("grpc_pass")) {
            self.pass(pass, location, entry);
            self.access(scope, server, entry);
            return true;
        }
        if let Some(pass) = scope.here("fastcgi_pass") {
            self.application(pass, location, server, entry);
            self.access(scope, server, entry);
            return true;
        }
        if self.front_controller(location, server, entry) {
            return true;
        }
        if let Some(rewrite) = scope.here("rewrite")
            && let Some(moved) = self.moved_within(rewrite, location)
        {
            *entry = RouteEntry { when: entry.when.take(), ..moved };
            self.response_headers(scope, entry);
            self.logged(scope, entry);
            return false;
        }
        self.files_or_nothing(scope, &location.matching, entry);
        if !self.files_else(location, server, entry) {
            self.access(scope, server, entry);
        }
        false
    }

    /// Translates a `rewrite` to another URL, a location's only content, if its expression matches the location's
    /// paths.
    fn moved_within(&mut self, rewrite: &'s Directive, location: &Location<'s>) -> Option<RouteEntry> {
        let begins =
            location.matching.path().is_some_and(|path| rewrite.word(0).starts_with(&format!("^{path}")));
        if !begins || !matches!(rewrite.word(2), "permanent" | "redirect") {
            self.note(
                rewrite,
                RemarkKind::Refused,
                "a path is rewritten in its route",
                "write a [[route]] with `redirect`",
            );
            return None;
        }
        let pattern = written::expression(rewrite.word(0), false).ok()?;
        let mut origins = from(location.block);
        origins.extend(from(rewrite));
        let mut entry = RouteEntry::new(format!("~ {pattern}"), origins);
        let status = if rewrite.word(2) == "permanent" { 301 } else { 302 };
        let to = rewrite.word(1).trim_end_matches('?');
        self.redirect(rewrite, to, status, &location.scope, &mut entry);
        Some(entry)
    }

    /// Translates `return`. `target` replaces its URL.
    pub(super) fn answer(
        &mut self,
        answer: &'s Directive,
        target: Option<&str>,
        scope: &BlockScope<'s>,
        entry: &mut RouteEntry,
    ) {
        let (first, second) = (answer.word(0), answer.words.get(1));
        let status = first.parse::<u64>().ok();
        match (status, second) {
            (None, None) => self.redirect(answer, target.unwrap_or(first), 302, scope, entry),
            (Some(status @ (301 | 302 | 303 | 307 | 308)), Some(url)) => {
                self.redirect(answer, target.unwrap_or(url), status, scope, entry);
            }
            (Some(444), _) => {
                let why = "a connection is not closed without a response: the client gets 403";
                self.note(
                    answer,
                    RemarkKind::Differs,
                    why,
                    "a fault can do that: `inject = \"reset\"` of [[fault]]",
                );
                self.respond(answer, 403, None, scope, entry);
            }
            (Some(status @ 200..=599), text) => self.respond(answer, status, text, scope, entry),
            _ => {
                self.unread_value(answer);
                not_taken(answer, entry);
            }
        }
        self.response_headers(scope, entry);
        self.logged(scope, entry);
    }

    fn respond(
        &mut self,
        answer: &Directive,
        status: u64,
        text: Option<&String>,
        scope: &BlockScope<'s>,
        entry: &mut RouteEntry,
    ) {
        let mut pairs = vec![("status".to_owned(), DraftValue::Number(status))];
        let mut origins = from(answer);
        match text {
            Some(text) if !text.is_empty() => {
                match self.body_template(text, scope, entry) {
                    Ok(body) => pairs.push(("body".to_owned(), body.into())),
                    Err(why) => {
                        self.note(answer, RemarkKind::Refused, &why, "write the text as it should be");
                    }
                }
                let kind = scope.one("default_type");
                origins.extend(kind.map(|kind| StatementOrigin::Directive(kind.number)));
                let kind = kind.map_or("text/plain", |kind| kind.word(0));
                pairs.push(("content_type".to_owned(), kind.into()));
            }
            _ => {}
        }
        entry.options.set("respond", DraftValue::Table(pairs), origins);
    }

    pub(super) fn redirect(
        &mut self,
        directive: &Directive,
        url: &str,
        status: u64,
        scope: &BlockScope<'s>,
        entry: &mut RouteEntry,
    ) {
        // The client's Host, in a URL whose scheme is known.
        let url = &url.replacen("://$http_host", "://$host", 1);
        let ends = ["$is_args$args", "$is_args$query_string", "${is_args}$args"];
        let path = ends.iter().find_map(|end| url.strip_suffix(end));
        let made = match path.unwrap_or(url) {
            // A value is escaped as a part of the path.
            url if url.contains("is_args") => Err("the query is a part of the path".to_owned()),
            url => self.template(url, scope, entry),
        };
        let to = match made {
            Ok(to) => to,
            Err(why) => {
                self.note(
                    directive,
                    RemarkKind::Refused,
                    &why,
                    "write the URL with the variables of docs/configuration.md",
                );
                return not_taken(directive, entry);
            }
        };
        let begins = ["/", "http://", "https://", "$scheme://", "${scheme}://", "$path", "${path"];
        if !begins.iter().any(|begin| to.starts_with(begin))
            || to.starts_with("//")
            || to.contains(char::is_whitespace)
        {
            self.note(
                directive,
                RemarkKind::Refused,
                "the target is neither a URL nor a path",
                "write a complete URL",
            );
            return not_taken(directive, entry);
        }
        let to = to.replace("$path?$query", "$path_and_query");
        // Without a query of its own, the target gets that of the request.
        let is_whole = directive.name == "return" && path.is_none();
        let to = if is_whole { crate::values::without_query(to) } else { to };
        let pairs = vec![("to".to_owned(), to.into()), ("status".to_owned(), status.into())];
        entry.options.set("redirect", DraftValue::Table(pairs), from(directive));
    }

    /// Sets the files of `root` or `alias`; without one, 404.
    pub(super) fn files_or_nothing(
        &mut self,
        scope: &BlockScope<'s>,
        matching: &LocationMatch,
        entry: &mut RouteEntry,
    ) {
        let Some(root) = scope.here("alias").or_else(|| scope.one("root")) else {
            let status = DraftValue::Table(vec![("status".to_owned(), 404.into())]);
            entry.options.set("respond", status, vec![StatementOrigin::Default("nothing answers there")]);
            return;
        };
        let directory = root.word(0);
        if !directory.starts_with('/') || directory.contains('$') {
            let why = "the directory is not an absolute path";
            self.note(root, RemarkKind::Refused, why, "write its whole path, without variables");
            return not_taken(root, entry);
        }
        let bare = directory.trim_end_matches('/');
        let mut pairs = vec![("root".to_owned(), DraftValue::from(if bare.is_empty() { "/" } else { bare }))];
        let mut origins = from(root);
        if root.name == "alias" && !self.alias(root, matching, entry) {
            return not_taken(root, entry);
        }
        if let Some(index) = scope.one("index") {
            let names: Vec<String> =
                index.words.iter().filter(|name| !name.contains(['$', '/'])).cloned().collect();
            if names.len() < index.words.len() {
                self.note(
                    index,
                    RemarkKind::Refused,
                    "an index is the name of a file",
                    "leave the others out",
                );
            }
            if !names.is_empty() {
                pairs.push(("index".to_owned(), names.into()));
                origins.extend(from(index));
            }
        }
        self.files_options(scope, &mut pairs, &mut origins);
        entry.options.set("files", DraftValue::Table(pairs), origins);
        self.media_types(scope, entry);
    }

    /// Translates the path of an `alias`. Returns whether it has a translation.
    fn alias(&mut self, alias: &'s Directive, matching: &LocationMatch, entry: &mut RouteEntry) -> bool {
        match matching {
            LocationMatch::Prefix(path) | LocationMatch::FirstPrefix(path)
                if !entry.path.starts_with('~') =>
            {
                if path == "/" {
                    return true;
                }
                if !path.ends_with('/') {
                    let why = format!("{path} matches whole segments: not {path}x");
                    self.note(alias, RemarkKind::Differs, &why, "");
                    entry.path.clone_from(path);
                }
                let rewrite = DraftValue::Table(vec![("path".to_owned(), "/".into())]);
                entry.options.set("rewrite", rewrite, from(alias));
            }
            // The expression of a `^~`.
            LocationMatch::FirstPrefix(path) if path.ends_with('/') && alias.word(0).ends_with('/') => {
                let pattern = format!("{}(.*)", written::escaped(path));
                let pairs = [("pattern".to_owned(), pattern.into()), ("path".to_owned(), "/$1".into())];
                entry.options.set("rewrite", DraftValue::Table(pairs.into()), from(alias));
            }
            _ => {
                let why = "an alias is taken over for prefixes only";
                let instead = "write a [[route]] with a prefix, `files` and `rewrite`";
                self.note(alias, RemarkKind::Refused, why, instead);
                return false;
            }
        }
        true
    }

    /// Translates `types { }` with `default_type`: all files have this type. Other tables are refused.
    fn media_types(&mut self, scope: &BlockScope<'s>, entry: &mut RouteEntry) {
        let (Some(types), default) = (scope.one("types"), scope.one("default_type")) else { return };
        if types.inner().is_empty() {
            let kind = default.map_or("text/plain", |default| default.word(0));
            let mut origins = from(types);
            origins.extend(default.map(|default| StatementOrigin::Directive(default.number)));
            entry.options.field("response_headers", "set", "Content-Type", kind, origins);
        } else if !self.sheet.source.file_of(types.number).ends_with("mime.types") {
            let why = "files have the media types of a built-in table";
            let instead = "write a [[route]] for other ones, with Content-Type in `response_headers`";
            self.note(types, RemarkKind::Refused, why, instead);
        }
    }

    /// Sets the page for paths without a file.
    fn page_else(
        &mut self,
        scope: &BlockScope<'s>,
        pairs: &mut Vec<(String, DraftValue)>,
        origins: &mut Vec<StatementOrigin>,
    ) {
        let Some(tried) = scope.here("try_files") else {
            if let Some((block, IfMissing::Page(page), _)) = missing(scope)
                && is_page(page)
            {
                pairs.push(("fallback".to_owned(), page.into()));
                origins.extend(from(block));
                block.inner().iter().for_each(|inner| origins.extend(from(inner)));
            }
            return;
        };
        let words: Vec<&str> = tried.words.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["$uri", "=404"] | ["$uri", "$uri/", "=404"] => origins.extend(from(tried)),
            ["$uri", page] | ["$uri", "$uri/", page] if is_page(page) => {
                pairs.push(("fallback".to_owned(), (*page).into()));
                origins.extend(from(tried));
            }
            // `files_else` adds the server.
            [before @ .., name] if name.starts_with('@') && tries_files(before) => {}
            _ => {
                let why = "only a file, its directory, and a page, 404 or a named location are tried";
                let instead = "write routes with paths, such as /assets for files and / for a server";
                self.note(tried, RemarkKind::Refused, why, instead);
            }
        }
    }

    fn files_options(
        &mut self,
        scope: &BlockScope<'s>,
        pairs: &mut Vec<(String, DraftValue)>,
        origins: &mut Vec<StatementOrigin>,
    ) {
        self.page_else(scope, pairs, origins);
        if let Some(listing) = scope.one("autoindex")
            && values::is_on(listing.word(0))
        {
            pairs.push(("listing".to_owned(), true.into()));
            origins.extend(from(listing));
        }
        if let Some(packed) = scope.one("gzip_static")
            && values::is_on(packed.word(0))
        {
            pairs.push(("precompressed".to_owned(), true.into()));
            origins.extend(from(packed));
        }
        match scope.one("disable_symlinks") {
            Some(links) if links.word(0) != "off" => origins.extend(from(links)),
            links => {
                pairs.push(("symlinks".to_owned(), true.into()));
                origins.extend(links.map(|links| StatementOrigin::Directive(links.number)));
            }
        }
        if let Some(expires) = scope.one("expires") {
            match cache_control(&expires.words) {
                Some(Some(value)) => {
                    pairs.push(("cache_control".to_owned(), value.into()));
                    origins.extend(from(expires));
                    self.note(expires, RemarkKind::Differs, "Cache-Control is sent, and no Expires", "");
                }
                Some(None) => self.note(
                    expires,
                    RemarkKind::NeedsNothing,
                    "files have no Cache-Control without an option",
                    "",
                ),
                None => {
                    self.note(
                        expires,
                        RemarkKind::Refused,
                        "it is no time",
                        "write `cache_control` of `files`",
                    );
                }
            }
        }
    }
}

/// Answers 501 in place of unsupported content, so that the requests do not reach another route.
pub(super) fn not_taken(directive: &Directive, entry: &mut RouteEntry) {
    let body = "not taken over from nginx\n".into();
    let pairs = vec![("status".to_owned(), DraftValue::Number(501)), ("body".to_owned(), body)];
    let number = StatementOrigin::Directive(directive.number);
    entry.options = crate::draft::DraftTable::default();
    entry.options.set("respond", DraftValue::Table(pairs), vec![number]);
}

/// Whether the last word of `try_files` is a file.
fn is_page(text: &str) -> bool {
    text.starts_with('/')
        && !text.contains(['$', '?', '@'])
        && !text.ends_with('/')
        && !text.ends_with(".php")
}

/// Returns Cache-Control for `expires`: `Some(None)` for `off`, `None` for an invalid time.
pub(super) fn cache_control(words: &[String]) -> Option<Option<String>> {
    match words {
        [word] => match word.as_str() {
            "off" => Some(None),
            "epoch" => Some(Some("no-cache".to_owned())),
            "max" => Some(Some("max-age=315360000".to_owned())),
            word if word.starts_with('-') => Some(Some("no-cache".to_owned())),
            word => values::milliseconds(word).map(|time| Some(format!("max-age={}", time / 1000))),
        },
        _ => None,
    }
}
