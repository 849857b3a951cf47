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
use crate::values as written;

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

/// Extensions of files that applications usually leave to the web server.
const STATIC: &str =
    "(?i:css|js|mjs|map|png|jpe?g|gif|svg|ico|webp|avif|woff2?|ttf|otf|eot|pdf|mp4|webm|mp3)";

impl<'s> NginxAdapter<'s> {
    /// Translates `fastcgi_pass` of a location.
    pub(super) fn application(
        &mut self,
        pass: &'s Directive,
        location: &Location<'s>,
        server: &'s Directive,
        entry: &mut RouteEntry,
    ) {
        let scope = &location.scope;
        let has_front = server
            .inner()
            .iter()
            .any(|block| block.name == "location" && front(&BlockScope::from_level(block.inner())).is_some());
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
        self.body_limit(scope, entry);
    }

    /// Translates `try_files $uri $uri/ /index.php?$args` of a location: the application gets all paths, except for
    /// static files. Returns whether the location has that form.
    pub(super) fn front_controller(
        &mut self,
        location: &Location<'s>,
        server: &'s Directive,
        entry: &mut RouteEntry,
    ) -> bool {
        let scope = &location.scope;
        let Some((tried, script)) = front(scope) else { return false };
        let blocks = leading_to(script, server.inner());
        let innermost = blocks.first().map(|block| block.inner()).unwrap_or_default();
        let pass = innermost.iter().find(|inner| inner.name == "fastcgi_pass");
        let (Some(pass), None, Some(_)) = (pass, scope.here("alias"), location.matching.path()) else {
            return false;
        };
        let mut scope_of_pass = BlockScope::from_level(scope.outermost()).within(server.inner());
        for block in blocks.iter().rev() {
            scope_of_pass = scope_of_pass.within(block.inner());
        }
        let Some(name) = self.application_upstream(pass, &scope_of_pass, true) else { return false };
        let mut origins = from(tried);
        tried.inner().iter().for_each(|inner| origins.extend(from(inner)));
        origins.extend(from(pass));
        entry.options.set("upstream", name, origins);
        self.timeouts(pass, &scope_of_pass, entry);
        self.body_limit(scope, entry);
        self.access_of_script(scope, &scope_of_pass, server, entry);
        let why = "files are told by their extensions here, and all other paths run the application";
        self.note(tried, RemarkKind::Differs, why, "add further extensions to the route with `files`");
        true
    }

    /// Returns the route for static files beside a front controller.
    pub(super) fn static_files(&mut self, location: &Location<'s>, entry: &RouteEntry) -> Option<RouteEntry> {
        let (tried, _) = front(&location.scope)?;
        entry.options.get("upstream")?;
        let path = location.matching.path()?.trim_end_matches('/');
        let mut files = RouteEntry::new(format!("~ {}/.*\\.{STATIC}", written::escaped(path)), from(tried));
        self.files_or_nothing(
            &location.scope.within(&[]),
            &LocationMatch::Prefix("/".to_owned()),
            &mut files,
        );
        files.options.get("files").is_some().then_some(files)
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

/// Returns `try_files` that ends in a script, or an `if` for missing files, and the path of the script.
fn front<'s>(scope: &BlockScope<'s>) -> Option<(&'s Directive, &'s str)> {
    if let Some((block, IfMissing::Page(path), _)) = fallbacks::missing(scope) {
        return path.ends_with(".php").then_some((block, path));
    }
    let tried = scope.here("try_files")?;
    let words: Vec<&str> = tried.words.iter().map(String::as_str).collect();
    let (["$uri", _] | ["$uri", "$uri/", _]) = words.as_slice() else { return None };
    let path = tried.words.last()?.split('?').next()?;
    let path = path.strip_suffix("$is_args$args").unwrap_or(path);
    (path.starts_with('/') && path.ends_with(".php") && !path.contains('$')).then_some((tried, path))
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
