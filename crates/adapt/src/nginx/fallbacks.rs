//! Servers of other locations: those that a request goes to if there is no file (`try_files … @name`), or after an error
//! (`error_page`).

use super::locations::{Location, LocationMatch};
use super::scope::BlockScope;
use super::servers::RouteEntry;
use super::syntax::Directive;
use super::{NginxAdapter, from};
use crate::RemarkKind;
use crate::draft::{DraftTable, DraftValue, StatementOrigin};

/// Directives that a route has once, for its files and for all servers that it asks.
const SHARED: [&str; 22] = [
    "access_log",
    "add_header",
    "allow",
    "auth_basic",
    "auth_basic_user_file",
    "auth_request",
    "auth_request_set",
    "client_max_body_size",
    "deny",
    "error_page",
    "gzip",
    "gzip_comp_level",
    "gzip_min_length",
    "gzip_types",
    "limit_conn",
    "limit_conn_status",
    "limit_rate",
    "limit_rate_after",
    "limit_req",
    "limit_req_status",
    "proxy_intercept_errors",
    "satisfy",
];

/// Directives that do more with a request than to pass it to a server.
const DOES_MORE: [&str; 6] = ["if", "return", "rewrite", "try_files", "set", "mirror"];

/// The difference of `files.else` from `try_files`.
pub(super) const ELSEWHERE: &str = "other methods than GET and HEAD, and directories without an index, go to the server; nginx answers 405 and 403";

/// The words of `try_files` that are a file, or also its directory, before the last one.
pub(super) fn tries_files(words: &[&str]) -> bool {
    matches!(
        words,
        ["$uri"]
            | ["$uri", "$uri/" | "$uri/index.html"]
            | ["$uri/index.html", "$uri"]
            | ["$uri", "$uri/", "$uri/index.html"]
    )
}

/// The words of `try_files` before the last one as places of `files.try`; `None` if one has no equivalent.
pub(super) fn places(words: &[&str]) -> Option<Vec<String>> {
    let is_plain = |text: &str| {
        text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte))
            && !text.split('/').any(|segment| segment.starts_with('.') && !segment.starts_with(".html"))
    };
    let place = |word: &&str| match word.split_once("$uri") {
        // `$uri` begins with a slash.
        Some((before, after)) => {
            let before = before.strip_suffix('/').unwrap_or(before);
            let is_one =
                (before.is_empty() || before.starts_with('/')) && is_plain(before) && is_plain(after);
            is_one.then(|| format!("{before}$path{after}"))
        }
        None => (word.starts_with('/') && !word.ends_with('/') && is_plain(word)).then(|| (*word).to_owned()),
    };
    (!words.is_empty()).then(|| words.iter().map(place).collect())?
}

/// The folder in front of the path that `try_files /folder/$uri` tries; empty if it tries the path itself.
pub(super) fn folder_of(tried: &Directive) -> &str {
    let folder = tried.word(0).strip_suffix("$uri").unwrap_or_default().trim_end_matches('/');
    if folder.starts_with('/') && !folder.contains('$') { folder } else { "" }
}

/// The words of `try_files`, without that folder.
pub(super) fn words_of(tried: &Directive) -> Vec<&str> {
    let folder = folder_of(tried);
    let bare = |word: &'_ str| -> usize {
        match word.strip_prefix(folder).map(|rest| rest.trim_start_matches('/')) {
            Some(rest) if !folder.is_empty() && rest.starts_with("$uri") => word.len() - rest.len(),
            _ => 0,
        }
    };
    tried.words.iter().map(|word| &word[bare(word)..]).collect()
}

/// The effect of an `if` for missing files on their requests.
pub(super) enum IfMissing<'s> {
    /// `proxy_pass`
    Asks,
    /// `rewrite … /index.html last;`
    Page(&'s str),
}

/// Returns what `if (!-f $request_filename) { … }` does instead of sending a file, and the words of `try_files` with the
/// same meaning.
pub(super) fn if_missing(block: &Directive) -> Option<(IfMissing<'_>, &'static [&'static str])> {
    let words: String = block.words.concat();
    let tried: &[&str] = match words.trim_matches(['(', ')']) {
        "!-f$request_filename" | "!-f$document_root$uri" => &["$uri"],
        "!-e$request_filename" | "!-e$document_root$uri" => &["$uri", "$uri/"],
        _ => return None,
    };
    let inner: Vec<&Directive> = block.inner().iter().filter(|inner| inner.name != "break").collect();
    match inner.as_slice() {
        [pass] if pass.name == "proxy_pass" => Some((IfMissing::Asks, tried)),
        [rewrite] if rewrite.name == "rewrite" && matches!(rewrite.word(2), "" | "last" | "break") => {
            let path = rewrite.word(1).split('?').next()?;
            let is_all = ["^", "^(.*)$", "^(.+)$", ".*", "^.*$", "(.*)", "^/(.*)$", "^/(.+)$", "."]
                .contains(&rewrite.word(0));
            (is_all && path.starts_with('/') && !path.contains('$')).then_some((IfMissing::Page(path), tried))
        }
        _ => None,
    }
}

/// The `if` for missing files of a location.
pub(super) fn missing<'s>(
    scope: &BlockScope<'s>,
) -> Option<(&'s Directive, IfMissing<'s>, &'static [&'static str])> {
    let blocks = scope.own().iter().filter(|directive| directive.name == "if");
    blocks.filter_map(|block| if_missing(block).map(|(does, tried)| (block, does, tried))).next()
}

impl<'s> NginxAdapter<'s> {
    /// Adds the server of a named location to the files of a route: `try_files $uri $uri/ @name`. Returns whether the
    /// route now has it, with all its options.
    pub(super) fn files_else(
        &mut self,
        location: &Location<'s>,
        server: &'s Directive,
        entry: &mut RouteEntry,
    ) -> bool {
        let scope = &location.scope;
        let Some(ElseServer { tried, before, name, found }) = else_server(scope) else { return false };
        if entry.options.get("files").is_none() || !tries_files(&before) {
            return false;
        }
        let refuse = |adapter: &mut Self, why: &str| {
            let instead = "write `else = { upstream = \"NAME\" }` into `files`: docs/files.md";
            adapter.note(tried, RemarkKind::Refused, why, instead);
            false
        };
        if entry.options.get("rewrite").is_some() {
            return refuse(self, "the path for the server would be that below the `alias`");
        }
        let Some((block, named)) = found else {
            return refuse(self, &format!("there is no location {name}"));
        };
        if named.one("expires").is_some() {
            return refuse(self, "`expires` would apply to files only");
        }
        let mut made = RouteEntry::new(entry.path.clone(), Vec::new());
        let found = (block, named.clone(), LocationMatch::Named);
        // Files and server have fields of their own.
        let shared: Vec<&str> = SHARED.iter().copied().filter(|name| *name != "add_header").collect();
        if let Err(why) = self.server_of(&found, scope, &shared, &mut made) {
            return refuse(self, &why);
        }
        let Some((upstream, mut origins)) = made.options.option("upstream") else { return false };
        origins.extend(from(tried));
        origins.extend(from(block));
        if before.len() == 1 {
            // A directory is no file there, so none has an index.
            entry.options.remove_pairs("files", &["index", "listing"]);
            entry.options.extend("files", ("index", DraftValue::List(Vec::new())), Vec::new());
        }
        self.named.insert(block.number);
        entry.options.append(&made.options);
        self.access_of_script(scope, &named, server, entry);
        if entry.options.get("files").is_some() {
            entry.options.without("upstream");
            let upstream = DraftValue::Table(vec![("upstream".to_owned(), upstream)]);
            entry.options.extend("files", ("else", upstream), origins);
        }
        let why = match before.as_slice() {
            [_] => "other methods than GET and HEAD go to the server; nginx answers 405 if there is a file",
            _ => ELSEWHERE,
        };
        self.note(tried, RemarkKind::Differs, why, "");
        true
    }

    /// Translates a location whose only content is a server, with the options for requests to it. Fails if it has other
    /// options than the location that leads to it, because a route has each of them once.
    pub(super) fn server_of(
        &mut self,
        (block, named, matching): &(&'s Directive, BlockScope<'s>, LocationMatch),
        scope: &BlockScope<'s>,
        shared: &[&str],
        made: &mut RouteEntry,
    ) -> Result<(), String> {
        let name = block.words.join(" ");
        let pass = named.here("proxy_pass").or_else(|| named.here("grpc_pass"));
        let Some(pass) = pass else { return Err(format!("no `proxy_pass` answers in location {name}")) };
        if let Some(more) = DOES_MORE.iter().find(|more| named.here(more).is_some()) {
            return Err(format!("location {name} has `{more}`"));
        }
        let numbers = |scope: &BlockScope<'s>, directive: &str| -> Vec<usize> {
            scope.all(directive).iter().map(|directive| directive.number).collect()
        };
        if let Some(differs) = shared.iter().find(|shared| numbers(scope, shared) != numbers(named, shared)) {
            return Err(format!("`{differs}` of location {name} is another one, and a route has it once"));
        }
        let location =
            Location { block, scope: named.clone(), matching: matching.clone(), outer: None, within: None };
        self.pass(pass, &location, made);
        match made.options.get("upstream") {
            Some(_) => Ok(()),
            None => Err(format!("the server of location {name} was not taken over")),
        }
    }

    /// Translates `error_page` with a server: `error_page 404 = @name`, or a path whose location has `proxy_pass`. Returns
    /// whether it is one.
    ///
    /// # Errors
    /// Why the meaning would be another one.
    pub(super) fn error_server(
        &mut self,
        page: &'s Directive,
        scope: &BlockScope<'s>,
        server: &'s Directive,
        entry: &mut RouteEntry,
    ) -> Result<bool, String> {
        let Some((uri, codes)) = page.words.split_last() else { return Ok(false) };
        let is_named = uri.starts_with('@');
        let found = match is_named {
            true => scope.named(uri).map(|(block, named)| (block, named, LocationMatch::Named)),
            false => scope.answering(uri, server),
        };
        let Some(found) = found else {
            return if is_named { Err(format!("there is no location {uri}")) } else { Ok(false) };
        };
        let is_intercepted = scope.one("proxy_intercept_errors").is_some_and(|on| on.word(0) == "on");
        if !is_intercepted {
            let why = "without `proxy_intercept_errors on`, it is for errors of nginx only";
            return if is_named { Err(why.to_owned()) } else { Ok(false) };
        }
        let (codes, keeps_status) = match codes {
            [codes @ .., sign] if sign == "=" => (codes, false),
            codes => (codes, true),
        };
        if let Some(code) = codes.iter().find(|code| !is_of_servers(code, scope)) {
            return Err(format!(
                "nginx itself may answer {code} here, and a route replaces responses of servers"
            ));
        }
        let shared = SHARED.iter().filter(|name| !matches!(**name, "error_page" | "proxy_intercept_errors"));
        let shared: Vec<&str> = shared.copied().collect();
        let mut made = RouteEntry::new(entry.path.clone(), Vec::new());
        self.server_of(&found, scope, &shared, &mut made)?;
        let mut pairs = Vec::new();
        let Some((upstream, mut origins)) = made.options.option("upstream") else { return Ok(false) };
        made.options.without("upstream");
        if is_named && entry.options.get("upstream") == Some(&upstream) {
            return Err("the same servers would get the same request again".to_owned());
        }
        pairs.push(("upstream".to_owned(), upstream));
        let own_path = made.options.inner("rewrite", "path").cloned();
        made.options.remove_pairs("rewrite", &["path", "normalize"]);
        let own = DraftValue::from(entry.path.as_str());
        if is_named && entry.options.inner("rewrite", "path").is_some_and(|path| *path != own) {
            return Err("the server of this location gets another path than that of the named one".to_owned());
        }
        if is_named && scope.one("proxy_request_buffering").is_none_or(|buffers| buffers.word(0) != "off") {
            // The second server gets the body, too.
            let why = vec![StatementOrigin::Default("nginx gathers bodies of requests")];
            entry.options.set("request_buffering", true, why);
        }
        if !is_named {
            let path = own_path.unwrap_or_else(|| uri.as_str().into());
            pairs.push(("path".to_owned(), path));
        }
        has_same_options(entry, &made)?;
        if keeps_status {
            pairs.push(("keep_status".to_owned(), true.into()));
        }
        origins.extend(from(page));
        origins.extend(from(found.0));
        self.named.insert(found.0.number);
        for code in codes {
            // The first directive for a status wins.
            if entry.options.inner("on_status", code).is_none() {
                let fallback = DraftValue::Table(pairs.clone());
                entry.options.extend("on_status", (code, fallback), origins.clone());
            }
        }
        Ok(true)
    }
}

/// The server that gets requests without a file.
struct ElseServer<'s> {
    tried: &'s Directive,
    /// As in `try_files`.
    before: Vec<&'s str>,
    name: &'s str,
    found: Option<(&'s Directive, BlockScope<'s>)>,
}

/// Finds it in `try_files` or an `if` of a location.
fn else_server<'s>(scope: &BlockScope<'s>) -> Option<ElseServer<'s>> {
    if let Some((block, IfMissing::Asks, before)) = missing(scope) {
        let found = Some((block, scope.within(block.inner())));
        return Some(ElseServer { tried: block, before: before.to_vec(), name: "", found });
    }
    let tried = scope.here("try_files")?;
    let words = words_of(tried);
    let (name, before) = words.split_last().filter(|(name, _)| name.starts_with('@'))?;
    Some(ElseServer { tried, before: before.to_vec(), name, found: scope.named(name) })
}

/// Checks that both servers get requests with the same options, because a route has them once.
fn has_same_options(entry: &RouteEntry, made: &RouteEntry) -> Result<(), String> {
    let mut own = entry.options.clone();
    own.remove_pairs("rewrite", &["path", "normalize"]);
    let is_empty = |value: &DraftValue| *value == DraftValue::Table(Vec::new());
    for key in ["request_headers", "rewrite", "timeouts", "retry", "limits", "cache"] {
        let value = |table: &DraftTable| table.get(key).filter(|value| !is_empty(value)).cloned();
        if value(&own) != value(&made.options) {
            return Err(format!(
                "its server would need another `{key}` than the one of this location, and a route has one"
            ));
        }
    }
    Ok(())
}

/// Whether only servers answer with a status in a location, or nginx in place of a server.
fn is_of_servers(code: &str, scope: &BlockScope<'_>) -> bool {
    let has = |names: &[&str]| names.iter().any(|name| scope.one(name).is_some());
    match code.parse::<u16>() {
        Ok(401) => !has(&["auth_basic", "auth_request"]),
        Ok(403) => !has(&["allow", "deny", "auth_request", "secure_link"]),
        Ok(503) => !has(&["limit_req", "limit_conn"]),
        Ok(429) => !has(&["limit_req_status", "limit_conn_status"]),
        Ok(400 | 405 | 408 | 411..=417 | 421 | 431 | 494..=499 | 505) => false,
        Ok(402..=599) => true,
        _ => false,
    }
}
