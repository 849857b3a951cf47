//! Content of a location: a server, files, a fixed response, a redirect.

use super::fallbacks::{self, IfMissing, missing, tries_files};
use super::locations::{Location, LocationMatch, encoded, leading_to};
use super::scope::BlockScope;
use super::servers::RouteEntry;
use super::syntax::Directive;
use super::{NginxAdapter, from, values};
use crate::RemarkKind;
use crate::draft::{DraftTable, DraftValue, StatementOrigin};
use crate::values as written;

const REFUSED: [&str; 12] = [
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
            self.own_page(404, scope, server, entry);
            return false;
        }
        if let Some(answer) = scope.here("return") {
            self.answer(answer, None, scope, server, entry);
            return false;
        }
        if let Some(handler) = REFUSED.iter().find_map(|name| scope.here(name)) {
            not_taken(handler, entry);
            self.note_by_name(handler.number);
            return false;
        }
        if let Some(figures) = scope.here("stub_status") {
            self.figures(figures, scope, server, entry);
            return false;
        }
        if let Some(pass) = scope.here("proxy_pass").or_else(|| scope.here("grpc_pass")) {
            self.pass(pass, location, entry);
            self.mirror(scope, server, entry);
            self.access(scope, server, entry);
            return true;
        }
        if let Some(pass) = scope.here("fastcgi_pass") {
            self.application(pass, location, entry);
            self.access(scope, server, entry);
            return true;
        }
        if self.front_controller(location, server, entry) {
            return false;
        }
        if let Some(rewrite) = scope.here("rewrite")
            && scope.here("try_files").is_none()
            && scope.here("root").is_none()
            && let Some(moved) = self.moved_within(rewrite, location)
        {
            *entry = RouteEntry { when: entry.when.take(), ..moved };
            self.response_headers(scope, entry);
            self.logged(scope, entry);
            return false;
        }
        self.files_or_nothing(scope, &location.matching, entry);
        page_lifetimes(scope, server, entry);
        if !self.files_else(location, server, entry) && !self.index_application(location, server, entry) {
            self.access(scope, server, entry);
        }
        false
    }

    /// Translates `stub_status`: the same text, with counts of Vanward.
    fn figures(
        &mut self,
        figures: &'s Directive,
        scope: &BlockScope<'s>,
        server: &'s Directive,
        entry: &mut RouteEntry,
    ) {
        let body = "Active connections: ${proxy.connections} \nserver accepts handled requests\n \
                    ${proxy.accepted} ${proxy.accepted} ${proxy.requests} \nReading: 0 Writing: ${proxy.serving} \
                    Waiting: ${proxy.idle} \n";
        let pairs = [("status", 200.into()), ("body", body.into()), ("content_type", "text/plain".into())];
        let pairs = pairs.map(|(key, value): (&str, DraftValue)| (key.to_owned(), value));
        entry.options.set("respond", DraftValue::Table(pairs.into()), from(figures));
        self.access(scope, server, entry);
        let when = DraftValue::Expression("!(request.method in [\"GET\", \"HEAD\"])".to_owned());
        let denied = vec![("when".to_owned(), when), ("status".to_owned(), DraftValue::Number(403))];
        entry.options.push("deny", DraftValue::Table(denied), from(figures));
        let why = "connections that read a request are counted as waiting, and other methods get 403";
        self.note(figures, RemarkKind::Differs, why, "");
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
        server: &'s Directive,
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
            (Some(status @ 200..=599), text) => {
                self.respond(answer, status, text, scope, entry);
                if status >= 400
                    && text.is_none_or(String::is_empty)
                    && self.own_page(status, scope, server, entry)
                {
                    return;
                }
            }
            _ => {
                self.unread_value(answer);
                not_taken(answer, entry);
            }
        }
        self.response_headers(scope, entry);
        self.logged(scope, entry);
    }

    /// Gives an answer of nginx without a text the page of `error_page` for its status. Returns whether another location
    /// answers, with fields of its own.
    fn own_page(
        &mut self,
        status: u64,
        scope: &BlockScope<'s>,
        server: &'s Directive,
        entry: &mut RouteEntry,
    ) -> bool {
        let code = status.to_string();
        let pages = scope.all("error_page");
        // The first directive for a status wins.
        let Some(page) =
            pages.into_iter().find(|page| page.words.iter().rev().skip(1).any(|word| *word == code))
        else {
            return false;
        };
        let Some((location, answer, inner)) = answering_page(page, scope, server) else {
            self.error_page(page, scope, server, entry);
            return false;
        };
        let replaced = page.words.iter().rev().skip(1).find_map(|word| word.strip_prefix('='));
        let mut made = RouteEntry { options: DraftTable::default(), ..entry.clone() };
        // A page has no page of its own.
        self.answer(answer, None, &inner.without_pages(), server, &mut made);
        let kept = match replaced {
            Some("") => None,
            Some(other) => other.parse::<u64>().ok(),
            None => Some(status),
        };
        match kept {
            Some(kept) if made.options.get("respond").is_some() => {
                made.options.extend("respond", ("status", kept.into()), from(page));
            }
            Some(_) => {
                let why = "the status of its redirect would be another one";
                self.note(page, RemarkKind::Refused, why, "write `error_page CODE = @name`");
                return false;
            }
            None => {}
        }
        for option in ["respond", "redirect"] {
            made.options.cite(option, StatementOrigin::Directive(page.number));
            made.options.cite(option, StatementOrigin::Directive(location.number));
        }
        self.named.insert(location.number);
        entry.options = made.options;
        true
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
        let mut origins = from(root);
        let bare = match (root.name.as_str(), directory.contains('$')) {
            ("alias", _) if directory.starts_with('/') => match self.alias(root, matching, entry) {
                Some(bare) => bare,
                None => return not_taken(root, entry),
            },
            (_, false) if directory.starts_with('/') => directory.trim_end_matches('/'),
            _ => {
                let why = "the directory is not an absolute path";
                self.note(root, RemarkKind::Refused, why, "write its whole path, without variables");
                return not_taken(root, entry);
            }
        };
        // `try_files /folder/$uri` looks below that folder.
        let below = scope.here("try_files").filter(|_| root.name == "root").map_or("", fallbacks::folder_of);
        let bare = format!("{bare}{below}");
        let mut pairs =
            vec![("root".to_owned(), DraftValue::from(if bare.is_empty() { "/" } else { bare.as_str() }))];
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

    /// Translates an `alias`: nginx writes it in place of the text that the location matches. Returns the folder that the
    /// files are below; `None` if there is no translation.
    fn alias(
        &mut self,
        alias: &'s Directive,
        matching: &LocationMatch,
        entry: &mut RouteEntry,
    ) -> Option<&'s str> {
        let whole = alias.word(0);
        let fixed = whole.split('$').next().unwrap_or_default();
        // Where the alias is no whole folder, its last name is a part of the path.
        let slash = fixed.rfind('/')?;
        let (folder, rest) = (whole[..slash].trim_end_matches('/'), &whole[slash + 1..]);
        let rewrite = |pairs: Vec<(&str, String)>| {
            DraftValue::Table(pairs.into_iter().map(|(key, value)| (key.to_owned(), value.into())).collect())
        };
        match matching {
            LocationMatch::Prefix(path) | LocationMatch::FirstPrefix(path)
                if !entry.path.starts_with('~') && fixed == whole =>
            {
                if path == "/" && rest.is_empty() {
                    return Some(folder);
                }
                if path == "/" {
                    entry.path = "/*".to_owned();
                }
                entry.options.set(
                    "rewrite",
                    rewrite(vec![("path", format!("/{}", encoded(rest)))]),
                    from(alias),
                );
                Some(folder)
            }
            // The expression of a `^~`.
            LocationMatch::FirstPrefix(path)
                if fixed == whole && (path.ends_with('/') || !rest.is_empty()) =>
            {
                let pattern = format!("{}(.*)", written::escaped(path));
                let path = format!("/{}$1", encoded(rest));
                entry.options.set(
                    "rewrite",
                    rewrite(vec![("pattern", pattern), ("path", path)]),
                    from(alias),
                );
                Some(folder)
            }
            LocationMatch::Exact(_) if fixed == whole && !rest.is_empty() => {
                let path = format!("/{}", encoded(rest));
                entry.options.set("rewrite", rewrite(vec![("path", path)]), from(alias));
                Some(folder)
            }
            LocationMatch::Pattern { text, ignores_case } if is_of_groups(rest) && !folder.is_empty() => {
                let pattern = written::expression(text, *ignores_case).ok()?;
                let path = format!("/{rest}");
                entry.options.set(
                    "rewrite",
                    rewrite(vec![("pattern", pattern), ("path", path)]),
                    from(alias),
                );
                Some(folder)
            }
            _ => {
                let why = "an alias is taken over for prefixes, and for expressions with their groups";
                let instead = "write a [[route]] with a prefix, `files` and `rewrite`";
                self.note(alias, RemarkKind::Refused, why, instead);
                None
            }
        }
    }

    /// Notes fields of a page that other paths get, too, as an index or by `try_files`: nginx looks for its location then.
    pub(super) fn pages_with_fields(&mut self, locations: &[Location<'s>], server: &BlockScope<'s>) {
        let tried = locations.iter().filter_map(|location| location.scope.here("try_files")?.words.last());
        let mut pages: Vec<String> = tried.filter(|page| is_page(page)).cloned().collect();
        let index = server.one("index").map(|index| index.words.as_slice()).unwrap_or_default();
        pages.extend(index.iter().map(|name| format!("/{name}")));
        for location in locations {
            let own = location.scope.own();
            let is_page = matches!(&location.matching, LocationMatch::Exact(path) if pages.contains(path));
            if !is_page || own.iter().any(|own| answers_without_files(&own.name)) {
                continue;
            }
            // `page_lifetimes` has written it into the routes that send the page, too.
            let is_said = locations.iter().all(|other| {
                let is_page = std::ptr::eq(other.block, location.block);
                is_page || other.scope.all("add_header").is_empty() || !sends_pages(&other.scope)
            });
            if is_said && page_lifetime(own).is_some() {
                continue;
            }
            for field in own.iter().filter(|own| matches!(own.name.as_str(), "add_header" | "expires")) {
                let why = "directories and paths without a file get this page without it";
                let instead = "write it into the [[route]] with `index` or `fallback`, too";
                self.note(field, RemarkKind::Differs, why, instead);
            }
        }
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
        if self.has_application {
            return;
        }
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
        let words = fallbacks::words_of(tried);
        match words.as_slice() {
            ["$uri", "=404"] | ["$uri", "$uri/", "=404"] => origins.extend(from(tried)),
            ["$uri", page] | ["$uri", "$uri/", page] if is_page(page) => {
                pairs.push(("fallback".to_owned(), (*page).into()));
                origins.extend(from(tried));
            }
            [before @ .., name] if index_of_named(scope, name).is_some() && tries_files(before) => {
                if let Some((block, page)) = index_of_named(scope, name) {
                    pairs.push(("fallback".to_owned(), page.into()));
                    origins.extend(from(tried));
                    origins.extend(from(block));
                    block.inner().iter().for_each(|inner| origins.extend(from(inner)));
                    self.named.insert(block.number);
                }
            }
            // `files_else` adds the server.
            [before @ .., name] if name.starts_with('@') && tries_files(before) => {}
            [before @ .., last]
                if (*last == "=404" || is_page(last)) && fallbacks::places(before).is_some() =>
            {
                let places = fallbacks::places(before).unwrap_or_default();
                if !places.iter().any(|place| place.ends_with("$path/")) {
                    pairs.retain(|(key, _)| key != "index");
                }
                pairs.push(("try".to_owned(), places.into()));
                if is_page(last) {
                    pairs.push(("fallback".to_owned(), (*last).into()));
                }
                origins.extend(from(tried));
            }
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
        let has_directories = pairs.iter().all(|(key, places)| {
            key != "try"
                || matches!(places, DraftValue::List(places) if places.iter().any(|place| {
                    matches!(place, DraftValue::Text(text) if text.ends_with("$path/"))
                }))
        });
        if let Some(listing) = scope.one("autoindex")
            && values::is_on(listing.word(0))
            && has_directories
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

/// Whether a location may send a page in place of a directory or of a file that does not exist.
fn sends_pages(scope: &BlockScope<'_>) -> bool {
    !scope.own().iter().any(|own| answers_without_files(&own.name))
}

/// The lifetime that the location of a page gives it, if that is the only field: nginx looks for this location whenever it
/// sends the page.
fn page_lifetime(own: &[Directive]) -> Option<(&Directive, String)> {
    let mut fields = own.iter().filter(|own| matches!(own.name.as_str(), "add_header" | "expires"));
    let (field, None) = (fields.next()?, fields.next()) else { return None };
    let value = match field.name.as_str() {
        "expires" => cache_control(&field.words)??,
        _ if field.word(0).eq_ignore_ascii_case("cache-control") && !field.word(1).contains('$') => {
            field.word(1).to_owned()
        }
        _ => return None,
    };
    (!value.is_empty()).then_some((field, value))
}

/// Gives the pages of a route the lifetimes that their own locations have.
fn page_lifetimes<'s>(scope: &BlockScope<'s>, server: &'s Directive, entry: &mut RouteEntry) {
    if !scope.all("add_header").is_empty() {
        return;
    }
    let text = |value: &DraftValue| match value {
        DraftValue::Text(text) => Some(text.clone()),
        _ => None,
    };
    let mut pages: Vec<String> =
        entry.options.inner("files", "fallback").and_then(text).into_iter().collect();
    if entry.path == "/"
        && let Some(DraftValue::List(names)) = entry.options.inner("files", "index")
    {
        pages.extend(names.iter().filter_map(text).map(|name| format!("/{name}")));
    }
    pages.dedup();
    let mut found = Vec::new();
    let mut origins = Vec::new();
    for page in pages {
        let is_own = |block: &&Directive| {
            block.name == "location" && block.word(0) == "=" && block.word(1) == page.as_str()
        };
        let block = server.inner().iter().find(is_own).map(Directive::inner).unwrap_or_default();
        if block.iter().any(|own| answers_without_files(&own.name)) {
            continue;
        }
        if let Some((field, value)) = page_lifetime(block) {
            origins.extend(from(field));
            found.push((page, value.into()));
        }
    }
    if !found.is_empty() {
        entry.options.extend("files", ("cache_control_for", DraftValue::Table(found)), origins);
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

/// A named location that sends the index of the root, `rewrite ^/(.*)$ / break;`, or another page; with the page.
fn index_of_named<'s>(scope: &BlockScope<'s>, name: &str) -> Option<(&'s Directive, String)> {
    let (block, named) = scope.named(name)?;
    let [rewrite] = block.inner() else { return None };
    let is_all = ["^", "^(.*)$", "^(.+)$", ".*", "^.*$", "(.*)", "^/(.*)$"].contains(&rewrite.word(0));
    if rewrite.name != "rewrite" || !is_all || rewrite.word(2) != "break" {
        return None;
    }
    let page = match rewrite.word(1) {
        "/" => {
            let index = named.one("index").map_or("index.html", |index| index.word(0));
            format!("/{}", index.trim_start_matches('/'))
        }
        page => page.to_owned(),
    };
    is_page(&page).then_some((block, page))
}

/// The location that answers for `error_page` with a `return`, that directive and its scope.
pub(super) fn answering_page<'s>(
    page: &'s Directive,
    scope: &BlockScope<'s>,
    server: &'s Directive,
) -> Option<(&'s Directive, &'s Directive, BlockScope<'s>)> {
    let uri = page.words.last()?;
    let (location, inner) = match uri.starts_with('@') {
        true => scope.named(uri)?,
        false => {
            let blocks = leading_to(uri, server.inner());
            let [block] = blocks.as_slice() else { return None };
            (*block, BlockScope::from_level(scope.outermost()).within(server.inner()).within(block.inner()))
        }
    };
    const BESIDE: [&str; 4] = ["default_type", "add_header", "internal", "access_log"];
    let mut others = location.inner().iter().filter(|inner| !BESIDE.contains(&inner.name.as_str()));
    let answer = others.next().filter(|answer| answer.name == "return" && others.next().is_none())?;
    Some((location, answer, inner.with_sets(&scope.shared_sets())))
}

/// Whether a text is a path with groups of an expression, which are whole segments or end before a dot.
fn is_of_groups(path: &str) -> bool {
    let mut parts = path.split('$');
    let is_plain =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte));
    let is_group = |part: &str| {
        let mut letters = part.chars();
        letters.next().is_some_and(|digit| ('1'..='9').contains(&digit))
            && matches!(letters.next(), None | Some('/' | '.'))
    };
    parts.next().is_some_and(is_plain) && parts.all(|part| is_group(part) && is_plain(part))
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
