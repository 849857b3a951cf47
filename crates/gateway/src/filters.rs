//! Translates filters of rules to options of routes.

use regex_syntax::escape;

use crate::backends::{Backends, Referring};
use crate::condition::Fault;
use crate::kinds::{
    Cors, HeaderModifier, HttpFilter, PathModifier, RequestMirror, RequestRedirect, UrlRewrite,
};
use crate::listeners::ListenerProtocol;
use crate::object::unknown;
use crate::written::{escaped, inline, list, literal, template, text};

/// Option names with TOML values.
pub(crate) type Options = Vec<(&'static str, String)>;

#[derive(Debug, Default)]
pub(crate) struct Filtered {
    pub(crate) options: Options,
    pub(crate) redirect: Option<RequestRedirect>,
    pub(crate) unresolved: Vec<Fault>,
}

/// The path match, for filters that replace the matched part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Matched {
    Prefix(String),
    Exact(String),
    Pattern(String),
}

/// Translates the filters of a rule. Fails on an unsupported filter.
pub(crate) fn filtered(
    filters: &[HttpFilter],
    path: &Matched,
    from: Referring<'_>,
    backends: &mut Backends<'_>,
) -> Result<Filtered, String> {
    let mut out = Filtered::default();
    for (place, filter) in filters.iter().enumerate() {
        if filters[..place].iter().any(|other| other.kind == filter.kind) {
            return Err(format!("filters: {} appears twice", filter.kind));
        }
        let lacking = || format!("filters: {} has no options", filter.kind);
        match filter.kind.as_str() {
            "RequestHeaderModifier" => {
                let edits = filter.request_header_modifier.as_ref().ok_or_else(lacking)?;
                out.options.push(("request_headers", edits_of(edits)?));
            }
            "ResponseHeaderModifier" => {
                let edits = filter.response_header_modifier.as_ref().ok_or_else(lacking)?;
                out.options.push(("response_headers", edits_of(edits)?));
            }
            "RequestRedirect" => {
                let redirect = filter.request_redirect.as_ref().ok_or_else(lacking)?;
                known("RequestRedirect", unknown(&redirect.other))?;
                out.redirect = Some(redirect.clone());
            }
            "URLRewrite" => {
                let rewrite = filter.url_rewrite.as_ref().ok_or_else(lacking)?;
                out.options.push(("rewrite", rewrite_of(rewrite, path)?));
            }
            "RequestMirror" => {
                let mirror = filter.request_mirror.as_ref().ok_or_else(lacking)?;
                match mirror_of(mirror, from, backends)? {
                    Ok(option) => out.options.push(("mirror", option)),
                    Err(fault) => out.unresolved.push(fault),
                }
            }
            "CORS" => {
                let cors = filter.cors.as_ref().ok_or_else(lacking)?;
                out.options.push(("cors", cors_of(cors)?));
            }
            other => return Err(format!("filters: {other} is not supported")),
        }
    }
    if out.redirect.is_some()
        && let Some((name, _)) = out.options.iter().find(|(name, _)| *name != "response_headers")
    {
        return Err(format!("filters: a redirect uses no server, so {name} has no effect"));
    }
    Ok(out)
}

fn known(filter: &str, unknown: Option<String>) -> Result<(), String> {
    match unknown {
        Some(names) => Err(format!("filters: {filter}: not supported: {names}")),
        None => Ok(()),
    }
}

fn edits_of(edits: &HeaderModifier) -> Result<String, String> {
    known("headers", unknown(&edits.other))?;
    let mut parts = Vec::new();
    for (key, fields) in [("set", &edits.set), ("add", &edits.add)] {
        if !fields.is_empty() {
            let fields = fields.iter().map(|field| (field.name.as_str(), literal(&field.value)));
            parts.push((key, inline(fields)));
        }
    }
    if !edits.remove.is_empty() {
        parts.push(("remove", list(edits.remove.iter().map(|name| text(name)))));
    }
    Ok(inline(parts))
}

fn rewrite_of(rewrite: &UrlRewrite, matched: &Matched) -> Result<String, String> {
    known("URLRewrite", unknown(&rewrite.other))?;
    let mut parts = Vec::new();
    if let Some(path) = &rewrite.path {
        match (new_path(path)?, matched) {
            (NewPath::Full(path), _) => {
                parts.push(("pattern", text("(?s:.*)")));
                parts.push(("path", literal(path)));
            }
            (NewPath::Prefix(path), Matched::Prefix(_)) => parts.push(("path", literal(path))),
            (NewPath::Prefix(_), _) => return Err(NO_PREFIX.to_owned()),
        }
    }
    if let Some(host) = &rewrite.hostname {
        parts.push(("host", literal(host)));
    }
    Ok(inline(parts))
}

const NO_PREFIX: &str = "filters: ReplacePrefixMatch needs a path of type PathPrefix";

enum NewPath<'p> {
    Full(&'p str),
    Prefix(&'p str),
}

fn new_path(path: &PathModifier) -> Result<NewPath<'_>, String> {
    let rooted = |path: &'_ Option<String>| path.as_deref().filter(|path| !path.is_empty()).is_none();
    match path.kind.as_str() {
        "ReplaceFullPath" if rooted(&path.replace_full_path) => Ok(NewPath::Full("/")),
        "ReplaceFullPath" => Ok(NewPath::Full(path.replace_full_path.as_deref().unwrap_or("/"))),
        "ReplacePrefixMatch" if rooted(&path.replace_prefix_match) => Ok(NewPath::Prefix("/")),
        "ReplacePrefixMatch" => Ok(NewPath::Prefix(path.replace_prefix_match.as_deref().unwrap_or("/"))),
        other => Err(format!("filters: path of type {other} is not supported")),
    }
}

/// Translates a redirect at a listener to an option. Fails on an unsupported field.
pub(crate) fn redirect_of(
    redirect: &RequestRedirect,
    matched: &Matched,
    protocol: ListenerProtocol,
    port: u16,
) -> Result<String, String> {
    let own_scheme = if protocol == ListenerProtocol::Http { "http" } else { "https" };
    let scheme = match redirect.scheme.as_deref() {
        None => own_scheme,
        Some(scheme @ ("http" | "https")) => scheme,
        Some(other) => return Err(format!("filters: RequestRedirect: scheme {other} is not supported")),
    };
    let usual = if scheme == "http" { 80 } else { 443 };
    // Without a port: the default of the scheme if one is given, else the listener's port.
    let port = redirect.port.unwrap_or(if redirect.scheme.is_some() { usual } else { port });
    let host = redirect.hostname.as_deref().map_or_else(|| "$host".to_owned(), escaped);
    let authority = if port == usual { host } else { format!("{host}:{port}") };
    let (path, pattern) = match redirect.path.as_ref().map(new_path).transpose()? {
        None => ("$path".to_owned(), None),
        Some(NewPath::Full(path)) => (escaped(path), None),
        Some(NewPath::Prefix(new)) => {
            let Matched::Prefix(prefix) = matched else { return Err(NO_PREFIX.to_owned()) };
            let prefix = prefix.trim_end_matches('/');
            match new.trim_end_matches('/') {
                // The leading slash must remain.
                "" => ("/$1".to_owned(), Some(format!("{}/*((?s:.*))", escape(prefix)))),
                new => (format!("{}$1", escaped(new)), Some(format!("{}(/(?s:.*))?", escape(prefix)))),
            }
        }
    };
    let status = redirect.status_code.unwrap_or(302);
    if !matches!(status, 301 | 302 | 307 | 308) {
        return Err(format!("filters: RequestRedirect: statusCode {status} is not supported"));
    }
    let mut parts =
        vec![("to", template(&format!("{scheme}://{authority}{path}"))), ("status", status.to_string())];
    if let Some(pattern) = pattern {
        parts.push(("pattern", text(&pattern)));
    }
    Ok(inline(parts))
}

fn mirror_of(
    mirror: &RequestMirror,
    from: Referring<'_>,
    backends: &mut Backends<'_>,
) -> Result<Result<String, Fault>, String> {
    known("RequestMirror", unknown(&mirror.other))?;
    let share = match (&mirror.percent, &mirror.fraction) {
        (Some(percent), _) => Some((*percent).into()),
        (None, Some(share)) => {
            Some(f64::from(share.numerator) * 100.0 / f64::from(share.denominator.unwrap_or(100).max(1)))
        }
        (None, None) => None,
    };
    let upstream = match backends.upstream(from, &mirror.backend_ref) {
        Ok(upstream) => upstream,
        Err(fault) => return Ok(Err(fault)),
    };
    let mut parts = vec![("upstream", text(&upstream))];
    if let Some(share) = share {
        parts.push(("share", text(&format!("{share}%"))));
    }
    Ok(Ok(inline(parts)))
}

fn cors_of(cors: &Cors) -> Result<String, String> {
    known("CORS", unknown(&cors.other))?;
    let texts = |texts: &[String]| list(texts.iter().map(|one| text(one)));
    let mut parts = vec![("origins", texts(&cors.allow_origins))];
    for (key, values) in
        [("methods", &cors.allow_methods), ("headers", &cors.allow_headers), ("expose", &cors.expose_headers)]
    {
        if !values.is_empty() {
            parts.push((key, texts(values)));
        }
    }
    if let Some(allowed) = cors.allow_credentials {
        parts.push(("credentials", allowed.to_string()));
    }
    // The API's default.
    parts.push(("max_age", text(&format!("{}s", cors.max_age.unwrap_or(5)))));
    Ok(inline(parts))
}
