//! Applications: `fastcgi_pass` with its parameters, and `try_files` that ends in a script.

use super::content;
use super::fallbacks::{self, IfMissing};
use super::locations::{Location, LocationMatch, leading_to};
use super::scope::BlockScope;
use super::servers::RouteEntry;
use super::syntax::Directive;
use super::upstreams::PassTarget;
use super::{NginxAdapter, from};
use crate::RemarkKind;
use crate::draft::{DraftValue, StatementOrigin};

/// Parameters that applications get without an option, with the values that have this meaning.
const SENT: [(&str, &[&str]); 26] = [
    ("QUERY_STRING", &["$query_string", "$args"]),
    ("REQUEST_METHOD", &["$request_method"]),
    ("CONTENT_TYPE", &["$content_type"]),
    ("CONTENT_LENGTH", &["$content_length"]),
    ("SCRIPT_NAME", &["$fastcgi_script_name"]),
    ("REQUEST_URI", &["$request_uri"]),
    ("DOCUMENT_URI", &["$document_uri", "$uri"]),
    ("DOCUMENT_ROOT", &["$document_root", "$realpath_root"]),
    ("SERVER_PROTOCOL", &["$server_protocol"]),
    ("REQUEST_SCHEME", &["$scheme"]),
    ("HTTPS", &["$https"]),
    ("GATEWAY_INTERFACE", &["CGI/1.1"]),
    ("SERVER_SOFTWARE", &["nginx/$nginx_version", "nginx"]),
    ("REMOTE_ADDR", &["$remote_addr"]),
    ("REMOTE_PORT", &["$remote_port"]),
    ("REMOTE_USER", &["$remote_user"]),
    ("SERVER_ADDR", &["$server_addr"]),
    ("SERVER_PORT", &["$server_port"]),
    ("SERVER_NAME", &["$server_name", "$host", "$http_host"]),
    ("REDIRECT_STATUS", &["200"]),
    ("PATH_INFO", &["$fastcgi_path_info", "$path_info"]),
    ("PATH_TRANSLATED", &["$document_root$fastcgi_path_info", "$document_root$path_info"]),
    ("HTTP_HOST", &["$host", "$http_host"]),
    ("HTTP_PROXY", &[""]),
    ("AUTH_TYPE", &["$auth_type"]),
    ("HTTP_AUTHORIZATION", &["$http_authorization"]),
];

impl<'s> NginxAdapter<'s> {
    /// Translates `fastcgi_pass` of a location.
    pub(super) fn application(
        &mut self,
        pass: &'s Directive,
        location: &Location<'s>,
        entry: &mut RouteEntry,
    ) {
        let scope = &location.scope;
        // Without it, a script that does not exist is an error.
        let has_front = front(scope).is_some();
        for tried in scope.here("try_files").into_iter().chain(missing(scope)) {
            let why = "only scripts that exist run";
            self.note(tried, RemarkKind::NeedsNothing, why, "");
            for inner in tried.inner() {
                self.note(inner, RemarkKind::NeedsNothing, why, "");
            }
        }
        let Some(name) = self.application_upstream(pass, scope, has_front) else {
            return content::not_taken(pass, entry);
        };
        entry.options.set("upstream", name, from(pass));
        self.timeouts(pass, scope, entry);
        self.cache("fastcgi", scope, entry);
        self.body_limit(scope, entry);
    }

    /// Translates `try_files $uri $uri/ /index.php?$args` of a location: files first, else the application. Returns whether
    /// the location has that form.
    pub(super) fn front_controller(
        &mut self,
        location: &Location<'s>,
        server: &'s Directive,
        entry: &mut RouteEntry,
    ) -> bool {
        let scope = &location.scope;
        let Some(FrontController { tried, before, script, path, named }) = front(scope) else { return false };
        let blocks = leading_to(&script, server.inner());
        let innermost = blocks.first().map(|block| block.inner()).unwrap_or_default();
        let pass = innermost.iter().find(|inner| inner.name == "fastcgi_pass");
        let (Some(pass), None) = (pass, scope.here("alias")) else { return false };
        let mut scope_of_pass = BlockScope::from_level(scope.outermost()).within(server.inner());
        for block in blocks.iter().rev() {
            scope_of_pass = scope_of_pass.within(block.inner());
        }
        let scope_of_pass = scope_of_pass.with_sets(&scope.shared_sets());
        let path = match self.script_path(&path, scope, entry) {
            Ok(path) => path,
            Err(why) => {
                self.note(
                    tried,
                    RemarkKind::Refused,
                    &why,
                    "write `path` of `else` in `files`: docs/files.md",
                );
                return false;
            }
        };
        let has_front = front(&scope_of_pass).is_some();
        let Some(name) = self.application_upstream(pass, &scope_of_pass, has_front) else { return false };
        let mut origins = from(tried);
        tried.inner().iter().for_each(|inner| origins.extend(from(inner)));
        origins.extend(from(pass));
        if let Some(named) = named {
            self.named.insert(named.number);
            origins.extend(from(named));
            named.inner().iter().for_each(|inner| origins.extend(from(inner)));
        }
        self.has_application = true;
        self.files_or_nothing(scope, &location.matching, entry);
        self.has_application = false;
        let has_files = entry.options.get("files").is_some();
        if has_files && before.len() == 1 {
            // A directory is no file there, so none has an index.
            entry.options.remove_pairs("files", &["index", "listing"]);
            entry.options.extend("files", ("index", DraftValue::List(Vec::new())), Vec::new());
        }
        // Without a folder, nothing else answers.
        entry.options.without("respond");
        entry.options.set("upstream", name, Vec::new());
        self.timeouts(pass, &scope_of_pass, entry);
        self.cache("fastcgi", &scope_of_pass, entry);
        self.body_limit(scope, entry);
        self.access_of_script(scope, &scope_of_pass, server, entry);
        if has_files && let Some((upstream, _)) = entry.options.option("upstream") {
            entry.options.without("upstream");
            let pairs = vec![("upstream".to_owned(), upstream), ("path".to_owned(), path.into())];
            entry.options.extend("files", ("else", DraftValue::Table(pairs)), origins);
        } else {
            entry.options.extend("rewrite", ("path", path.into()), origins);
        }
        self.note(tried, RemarkKind::Differs, fallbacks::ELSEWHERE, "");
        true
    }

    /// Converts the path of a script with its query. In a query, `$uri` is the path as nginx has read it.
    fn script_path(
        &mut self,
        path: &str,
        scope: &BlockScope<'s>,
        entry: &mut RouteEntry,
    ) -> Result<String, String> {
        let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
        let mut made = self.template(path, scope, entry)?;
        if let Some(query) = query {
            made.push('?');
            for (index, part) in query.split("$uri").enumerate() {
                if index > 0 {
                    let uri = self.declarations.text("$uri", scope.sets())?;
                    made += &format!("${{{}}}", self.value("uri", &uri, Some(&mut *entry))?);
                }
                made += &self.template(part, scope, entry)?;
            }
        }
        Ok(made)
    }

    /// Finds the application that runs the index of a location's folders, if that is a script. Sets it as the server of the
    /// route, and returns whether there is one.
    pub(super) fn index_application(
        &mut self,
        location: &Location<'s>,
        server: &'s Directive,
        entry: &mut RouteEntry,
    ) -> bool {
        let scope = &location.scope;
        let is_plain = matches!(location.matching, LocationMatch::Prefix(_) | LocationMatch::Exact(_));
        let has_other = entry.options.get("rewrite").is_some()
            || entry.options.inner("files", "fallback").is_some()
            || entry.options.get("files").is_none();
        let scripts = scope.one("index").map(|index| index.words.as_slice()).unwrap_or_default();
        let script = scripts.iter().find(|name| name.ends_with(".php") && !name.contains(['$', '/']));
        let Some(script) = script.filter(|_| is_plain && !has_other) else { return false };
        let blocks = leading_to(&format!("/{script}"), server.inner());
        let innermost = blocks.first().map(|block| block.inner()).unwrap_or_default();
        let Some(pass) = innermost.iter().find(|inner| inner.name == "fastcgi_pass") else { return false };
        let mut scope_of_pass = BlockScope::from_level(scope.outermost()).within(server.inner());
        for block in blocks.iter().rev() {
            scope_of_pass = scope_of_pass.within(block.inner());
        }
        // Such an application would get all paths without a file.
        if front(&scope_of_pass).is_some() {
            return false;
        }
        let Some(name) = self.application_upstream(pass, &scope_of_pass, false) else { return false };
        entry.options.set("upstream", name, from(pass));
        self.timeouts(pass, &scope_of_pass, entry);
        self.access_of_script(scope, &scope_of_pass, server, entry);
        if let Some((upstream, origins)) = entry.options.option("upstream")
            && entry.options.get("files").is_some()
        {
            entry.options.without("upstream");
            let upstream = DraftValue::Table(vec![("upstream".to_owned(), upstream)]);
            entry.options.extend("files", ("else", upstream), origins);
        }
        true
    }

    /// Returns the name of the upstream that an application is.
    fn application_upstream(
        &mut self,
        pass: &'s Directive,
        scope: &BlockScope<'s>,
        has_front: bool,
    ) -> Option<String> {
        let word = pass.word(0);
        let address = word.strip_prefix("fastcgi://").unwrap_or(word);
        if address.contains('$') || address.is_empty() {
            let instead = "name the servers in [upstream.NAME], and choose among them by [[route]]";
            self.note(pass, RemarkKind::Refused, "a server is not chosen by a variable", instead);
            return None;
        }
        let scripts = self.scripts(pass, scope, has_front)?;
        let target = PassTarget {
            scheme: "fcgi",
            host: address.trim_end_matches(':').to_owned(),
            uri: None,
            scripts: Some(scripts),
            host_field: None,
        };
        self.upstream(&target, pass, scope)
    }

    /// Returns the option `fastcgi`.
    fn scripts(
        &mut self,
        pass: &'s Directive,
        scope: &BlockScope<'s>,
        has_front: bool,
    ) -> Option<(DraftValue, Vec<StatementOrigin>)> {
        let (mut root, mut origins) = (None, Vec::new());
        if let Some(directive) = scope.one("root") {
            root = Some(directive.word(0).to_owned());
            origins.extend(from(directive));
        }
        let params = self.params(scope, &mut root, &mut origins);
        let root = root.filter(|root| root.starts_with('/') && !root.contains('$'));
        let Some(root) = root else {
            let why = "the directory of its scripts is not an absolute path";
            self.note(pass, RemarkKind::Refused, why, "write `root` of `fastcgi` in the upstream");
            return None;
        };
        let mut scripts = vec![("root".to_owned(), DraftValue::from(root))];
        if let Some(index) = scope.one("fastcgi_index") {
            if index.word(0).ends_with(".php") && !index.word(0).contains(['$', '/']) {
                scripts.push(("index".to_owned(), index.word(0).into()));
                origins.extend(from(index));
            } else {
                self.unread_value(index);
            }
        }
        if let Some(split) = scope.one("fastcgi_split_path_info") {
            if split.word(0).contains(".php") {
                self.note(split, RemarkKind::NeedsNothing, "paths are split behind .php", "");
            } else {
                let instead = "write the extension of scripts as `split` of `fastcgi`";
                self.note(split, RemarkKind::Refused, "paths are split behind an extension", instead);
            }
        }
        if !has_front {
            scripts.push(("front_controller".to_owned(), false.into()));
        }
        if !params.is_empty() {
            scripts.push(("params".to_owned(), DraftValue::Table(params)));
        }
        Some((DraftValue::Table(scripts), origins))
    }

    /// Returns the parameters that applications do not get anyway, and finds the root.
    fn params(
        &mut self,
        scope: &BlockScope<'s>,
        root: &mut Option<String>,
        origins: &mut Vec<StatementOrigin>,
    ) -> Vec<(String, DraftValue)> {
        let mut params: Vec<(String, DraftValue)> = Vec::new();
        for param in scope.all("fastcgi_param") {
            let (name, value) = (param.word(0), param.word(1));
            if name == "SCRIPT_FILENAME" {
                let directory = ["$fastcgi_script_name", "$uri"]
                    .iter()
                    .find_map(|script| value.strip_suffix(script))
                    .filter(|directory| directory.starts_with('/') && !directory.contains('$'));
                let is_usual =
                    ["$document_root", "$realpath_root"].iter().any(|root| value.starts_with(root))
                        || value == "$request_filename";
                match directory {
                    Some(directory) => *root = Some(directory.to_owned()),
                    None if is_usual => {}
                    None => {
                        let why = "the script is a file below `root` with the name of the path";
                        self.note(param, RemarkKind::Differs, why, "write `root` and `index` of `fastcgi`");
                    }
                }
                origins.extend(from(param));
            } else if SENT.iter().any(|(sent, values)| *sent == name && values.contains(&value)) {
                self.note(param, RemarkKind::NeedsNothing, "applications always get this parameter", "");
            } else if value.contains('$') {
                let instead = "write a constant in `params` of `fastcgi`, or a field in `request_headers`";
                self.note(param, RemarkKind::Refused, "parameters have no variables", instead);
            } else if is_name(name) {
                // The last one counts where nginx has several.
                params.retain(|(known, _)| known != name);
                params.push((name.to_owned(), DraftValue::from(value)));
                origins.extend(from(param));
            } else {
                self.unread_value(param);
            }
        }
        params
    }
}

/// A location whose requests without a file run a script.
struct FrontController<'s> {
    /// `try_files`, or an `if` for missing files.
    tried: &'s Directive,
    /// Words of `try_files` before the last one.
    before: Vec<&'s str>,
    script: String,
    /// The path for the application, with its query.
    path: String,
    /// The named location between them.
    named: Option<&'s Directive>,
}

/// Finds the script of a location with `try_files` that ends in one, or with an `if` for missing files.
fn front<'s>(scope: &BlockScope<'s>) -> Option<FrontController<'s>> {
    if let Some((tried, IfMissing::Page(path), before)) = fallbacks::missing(scope) {
        let (script, path) = (path.to_owned(), path.to_owned());
        let is_script = path.ends_with(".php");
        return is_script.then(|| FrontController {
            tried,
            before: before.to_vec(),
            script,
            path,
            named: None,
        });
    }
    let tried = scope.here("try_files")?;
    let words = fallbacks::words_of(tried);
    let (last, before) = words.split_last()?;
    if !fallbacks::tries_files(before) {
        return None;
    }
    let (named, written) = match last.strip_prefix('@') {
        None => (None, *last),
        Some(_) => {
            let (named, _) = scope.named(last)?;
            let [rewrite] = named.inner() else { return None };
            let is_all =
                ["^", "^(.*)$", "^(.+)$", ".*", "^.*$", "(.*)", "^/(.*)$"].contains(&rewrite.word(0));
            let is_within = matches!(rewrite.word(2), "" | "last");
            (rewrite.name == "rewrite" && is_all && is_within).then_some((Some(named), rewrite.word(1)))?
        }
    };
    let (path, query) = match written.strip_suffix("$is_args$args") {
        Some(path) => (path, Some("$args")),
        None => written.split_once('?').map_or((written, None), |(path, query)| (path, Some(query))),
    };
    let script = path.strip_suffix("$request_uri").unwrap_or(path);
    if !script.starts_with('/') || !script.ends_with(".php") || script.contains('$') {
        return None;
    }
    let path = match query {
        Some("$args" | "$query_string") => path.to_owned(),
        // `rewrite` keeps the query of the request, `try_files` does not.
        None if named.is_some() || path.ends_with("$request_uri") => path.to_owned(),
        None => format!("{path}?"),
        Some(query) => format!("{path}?{query}"),
    };
    Some(FrontController { tried, before: before.to_vec(), script: script.to_owned(), path, named })
}

/// Returns `if (!-f $document_root$fastcgi_script_name) { return 404; }`.
fn missing<'s>(scope: &BlockScope<'s>) -> Option<&'s Directive> {
    scope.own().iter().find(|block| is_for_missing_files(block))
}

/// Whether an `if` tests that there is no file.
pub(super) fn is_for_missing_files(block: &Directive) -> bool {
    block.name == "if" && block.words.join(" ").trim_start_matches(['(', ' ']).starts_with("!-f")
}

/// Whether a text is the name of a parameter.
fn is_name(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    name.bytes().all(is_part) && name.bytes().next().is_some_and(|first| !first.is_ascii_digit())
}
