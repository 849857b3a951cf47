//! `ProxyPass` in order, then `Redirect`: the content of a request, behind its guards.

use super::hosts::VirtualHost;
use super::sections::{below, refuse};
use super::{ApacheAdapter, from, is_on, last};
use crate::draft::{DraftTable, DraftValue, StatementOrigin};
use crate::rules::{self, Atom, Expression, Holds, PathIs, RegionOutcome};
use crate::sheet::name_of;
use crate::source::Directive;
use crate::values;

/// A URL of a server: its address, and the path behind it.
struct TargetUrl<'u> {
    server: String,
    path: &'u str,
}

/// The condition on paths of a `ProxyPass` or `Redirect`; `None` for other directives.
pub(super) fn condition(directive: &Directive) -> Option<Expression> {
    let path = match directive.name.as_str() {
        "proxypass" => directive.word(0),
        "redirect" | "redirectpermanent" | "redirecttemp" => redirect_words(directive)?.1,
        "proxypassmatch" => {
            return Some(match values::expression(directive.word(0), false) {
                Ok(pattern) => Expression::Any(vec![Atom::Path(PathIs::Pattern(pattern))], directive.number),
                Err(why) => Expression::Unsaid(why),
            });
        }
        _ => return None,
    };
    path.starts_with('/').then(|| below(path, directive.number))
}

/// The status of a `Redirect`, its path and its URL.
fn redirect_words(directive: &Directive) -> Option<(u64, &str, &str)> {
    let words: Vec<&str> = directive.words.iter().map(String::as_str).collect();
    let usual = if directive.name == "redirectpermanent" { 301 } else { 302 };
    match words.as_slice() {
        [path, url] if path.starts_with('/') => Some((usual, path, url)),
        [status, path, url] => Some((status_of(status)?, path, url)),
        _ => None,
    }
}

fn status_of(word: &str) -> Option<u64> {
    match word.to_ascii_lowercase().as_str() {
        "permanent" => Some(301),
        "temp" => Some(302),
        "seeother" => Some(303),
        word => word.parse().ok().filter(|status| [301, 302, 303, 307, 308].contains(status)),
    }
}

impl<'s> ApacheAdapter<'s> {
    /// Sets the server or the redirect of a request.
    pub(super) fn target(
        &mut self,
        host: &VirtualHost<'_>,
        balancers: &[&Directive],
        holds: &Holds<'_>,
        made: &mut RegionOutcome,
    ) {
        let keeps_host = last(host.inner, "proxypreservehost");
        // Those of sections come first; of several, the last.
        let sections = self.inside(host, holds).unwrap_or_default();
        let own =
            sections.iter().rev().find_map(|section| Some((section, last(section.inner(), "proxypass")?)));
        if let Some((section, pass)) = own {
            let path = section.word(0);
            if section.name == "<location>" && section.words.len() == 1 {
                self.pass(pass, path, pass.word(0), balancers, keeps_host, made);
                let reverse = last(section.inner(), "proxypassreverse");
                return mapped_back(reverse, maps_cookies(section.inner()), made);
            }
            self.sheet.refuse(
                pass.number,
                "its section has an expression",
                "write `rewrite` of the [[route]]",
            );
            return refuse(made, from(pass));
        }
        for directive in host.inner {
            if !matches!(directive.name.as_str(), "proxypass" | "proxypassmatch") {
                continue;
            }
            match condition(directive).map(|condition| condition.verdict(holds, false)) {
                Some(Ok(false)) => continue,
                Some(Ok(true)) if directive.word(1) == "!" => {
                    made.from.extend(from(directive));
                    break;
                }
                Some(Ok(true)) if directive.name == "proxypass" => {
                    let (path, url) = (directive.word(0), directive.word(1));
                    self.pass(directive, path, url, balancers, keeps_host, made);
                    let reverse = host.inner.iter().find(|reverse| {
                        reverse.name == "proxypassreverse"
                            && reverse.word(1).trim_end_matches('/') == url.trim_end_matches('/')
                    });
                    return mapped_back(reverse, maps_cookies(host.inner), made);
                }
                Some(Ok(true)) => return self.pass_match(directive, balancers, keeps_host, made),
                Some(Err(_)) | None => {
                    let why = "its path is not understood; requests of this host get 501";
                    self.sheet.refuse(directive.number, why, "write a [[route]] with `path` and `upstream`");
                    return refuse(made, from(directive));
                }
            }
        }
        for directive in host.inner {
            let is_it = directive.name.starts_with("redirect")
                && condition(directive).is_some_and(|condition| condition.verdict(holds, false) == Ok(true));
            if is_it && let Some((status, path, url)) = redirect_words(directive) {
                return self.redirect(directive, status, path, url, made);
            }
        }
        self.nothing(host, made);
    }

    /// The response without a server: files are not taken over.
    fn nothing(&mut self, host: &VirtualHost<'_>, made: &mut RegionOutcome) {
        if let Some(root) = last(host.inner, "documentroot") {
            let why = "files are not taken over; their requests get 501";
            self.sheet.refuse(
                root.number,
                why,
                "write `files = { root = \"FOLDER\" }` of a [[route]]: docs/files.md",
            );
            return refuse(made, from(root));
        }
        let origins = vec![StatementOrigin::Default("no ProxyPass or Redirect is for it")];
        made.options.set("respond", rules::answer(404, None), origins);
    }

    fn pass(
        &mut self,
        directive: &Directive,
        path: &str,
        url: &str,
        balancers: &[&Directive],
        keeps_host: Option<&Directive>,
        made: &mut RegionOutcome,
    ) {
        let keeps = keeps_host.is_some_and(is_on);
        let Some((upstream, target)) = self.upstream(directive, url, balancers, keeps) else {
            return refuse(made, from(directive));
        };
        self.parameters(directive);
        made.from.extend(from(directive));
        made.options.set("upstream", upstream, from(directive));
        if let Some(keeps_host) = keeps_host {
            self.sheet.needless(keeps_host.number, "it is `host` of the upstream");
        }
        let target = if target.is_empty() && path == "/" { "/" } else { target.as_str() };
        if target.ends_with('/') && !path.ends_with('/') {
            let why = "its URL ends with a slash and its path does not: Apache sends `//`, and Vanward `/`";
            self.sheet.differs(directive.number, why, "");
        }
        if target != path {
            let pattern = format!("{}(.*)", values::escaped(path));
            made.options.extend("rewrite", ("pattern", pattern.into()), from(directive));
            made.options.extend(
                "rewrite",
                ("path", format!("{}$1", target.replace('$', "$$")).into()),
                Vec::new(),
            );
        }
    }

    fn pass_match(
        &mut self,
        directive: &Directive,
        balancers: &[&Directive],
        keeps_host: Option<&Directive>,
        made: &mut RegionOutcome,
    ) {
        let (pattern, url) = (directive.word(0), directive.word(1));
        let pattern = pattern.strip_prefix('^').map(|rest| rest.strip_suffix('$').unwrap_or(rest));
        let server = url.split_once("://").map_or("", |(_, rest)| rest.split('/').next().unwrap_or_default());
        let known = pattern.filter(|_| !server.contains('$')).and_then(|pattern| {
            let keeps = keeps_host.is_some_and(is_on);
            Some((pattern, self.upstream(directive, url, balancers, keeps)?))
        });
        let Some((pattern, (upstream, target))) = known.filter(|(_, (_, target))| target.starts_with('/'))
        else {
            let why = "its expression begins anywhere, or its URL has no server of HTTP with a path";
            self.sheet.refuse(directive.number, why, "write `rewrite` of the [[route]]");
            return refuse(made, from(directive));
        };
        self.parameters(directive);
        made.from.extend(from(directive));
        made.options.set("upstream", upstream, from(directive));
        made.options.extend("rewrite", ("pattern", pattern.into()), from(directive));
        made.options.extend("rewrite", ("path", target.into()), Vec::new());
    }

    /// Parameters behind the URL, such as `timeout=5`.
    fn parameters(&mut self, directive: &Directive) {
        let behind = directive.words.iter().filter(|word| word.contains('=')).cloned().collect::<Vec<_>>();
        if !behind.is_empty() {
            let why = format!("{} is not taken over", behind.join(" "));
            let instead = "`timeouts` of the route, `pool` and `sticky` of the upstream: docs/balancing.md";
            self.sheet.differs(directive.number, &why, instead);
        }
    }

    /// The upstream of a URL, and the path behind it; `None` with a note if it is no server of HTTP.
    fn upstream(
        &mut self,
        directive: &Directive,
        url: &str,
        balancers: &[&Directive],
        keeps_host: bool,
    ) -> Option<(String, String)> {
        let balancer = url.strip_prefix("balancer://");
        let (key, path) = match balancer {
            Some(rest) => {
                let (name, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                (format!("balancer://{name}"), path.to_owned())
            }
            None => match url_of(url) {
                Some(target) => (target.server, target.path.to_owned()),
                None => {
                    let why = "its URL is no server of HTTP; its requests get 501";
                    self.sheet.refuse(directive.number, why, "write an [upstream.NAME] with its servers");
                    return None;
                }
            },
        };
        if let Some(known) = self.upstreams.get(&(key.clone(), keeps_host)) {
            return Some((known.clone(), path));
        }
        let mut table = DraftTable::new("", Vec::new());
        if balancer.is_some() {
            let section = balancers.iter().find(|section| section.word(0).trim_end_matches('/') == key);
            for member in section.map_or(&[][..], |section| section.inner()) {
                self.member(member, &mut table);
            }
        } else {
            table.push("servers", key.as_str().into(), from(directive));
        }
        if table.get("servers").is_none() {
            let why =
                "the balancer has no servers in the file, or another has its name; its requests get 501";
            self.sheet.refuse(directive.number, why, "write an [upstream.NAME] with its servers");
            return None;
        }
        if !keeps_host {
            let origins = vec![StatementOrigin::Default("ProxyPreserveHost is Off")];
            table.set("host", "server", origins);
        }
        let base = key.split_once("://").map_or(key.as_str(), |(_, rest)| rest);
        let name = self.sheet.upstream(&name_of(base), table);
        self.upstreams.insert((key, keeps_host), name.clone());
        Some((name, path))
    }

    fn member(&mut self, member: &Directive, table: &mut DraftTable) {
        if member.name != "balancermember" {
            return;
        }
        let Some(target) = url_of(member.word(0)).filter(|target| matches!(target.path, "" | "/")) else {
            let why = "its URL is no server of HTTP without a path";
            return self.sheet.refuse(member.number, why, "write it into `servers` of the upstream");
        };
        let mut pairs = vec![("url".to_owned(), DraftValue::from(target.server))];
        for word in member.words.iter().skip(1) {
            match word.to_ascii_lowercase().split_once('=') {
                Some(("loadfactor", weight)) => {
                    if let Ok(weight @ 1..=1000) = weight.parse::<u64>() {
                        pairs.push(("weight".to_owned(), DraftValue::Number(weight)));
                    }
                }
                Some(("status", "+h")) => pairs.push(("priority".to_owned(), DraftValue::Number(1))),
                _ => {
                    let why = format!("{word} is not taken over");
                    self.sheet.differs(member.number, &why, "see docs/balancing.md");
                }
            }
        }
        let value = if pairs.len() == 1 { pairs.remove(0).1 } else { DraftValue::Table(pairs) };
        table.push("servers", value, from(member));
    }

    /// Translates `Redirect` of a section, which has no path. Returns whether it could.
    pub(super) fn redirect_in_section(&mut self, directive: &Directive, made: &mut RegionOutcome) -> bool {
        let words: Vec<&str> = directive.words.iter().map(String::as_str).collect();
        let found = match words.as_slice() {
            [url] => Some((302, *url)),
            [status, url] => status_of(status).map(|status| (status, *url)),
            _ => None,
        };
        match found.filter(|(_, url)| is_location(url)) {
            Some((status, url)) => {
                let to = values::without_query(url.replace('$', "$$"));
                self.answer(directive, status, to, None, made);
            }
            None => {
                let why = "it is no redirect to a URL; its requests get 501";
                self.sheet.refuse(directive.number, why, "write `redirect` of the [[route]]");
                refuse(made, from(directive));
            }
        }
        true
    }

    fn redirect(
        &mut self,
        directive: &Directive,
        status: u64,
        path: &str,
        url: &str,
        made: &mut RegionOutcome,
    ) {
        if !is_location(url) {
            let why = "it is no redirect to a URL; its requests get 501";
            self.sheet.refuse(directive.number, why, "write `redirect` of the [[route]]");
            return refuse(made, from(directive));
        }
        // The rest of the path is appended.
        let to = format!("{}$1", url.replace('$', "$$"));
        self.answer(directive, status, to, Some(format!("{}(.*)", values::escaped(path))), made);
    }

    fn answer(
        &mut self,
        directive: &Directive,
        status: u64,
        to: String,
        pattern: Option<String>,
        made: &mut RegionOutcome,
    ) {
        made.from.extend(from(directive));
        let mut pairs = vec![("to".to_owned(), to.into()), ("status".to_owned(), DraftValue::Number(status))];
        pairs.extend(pattern.map(|pattern| ("pattern".to_owned(), pattern.into())));
        made.options.without("request_headers");
        made.options.set("redirect", DraftValue::Table(pairs), from(directive));
    }
}

fn is_location(url: &str) -> bool {
    url.starts_with('/') || url.starts_with("http://") || url.starts_with("https://")
}

/// A URL in parts; `None` if it is no server of HTTP.
fn url_of(url: &str) -> Option<TargetUrl<'_>> {
    let (scheme, rest) = url.split_once("://")?;
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let scheme = match scheme.to_ascii_lowercase().as_str() {
        // Upgrades need no option.
        "http" | "ws" => "http",
        "https" | "wss" => "https",
        _ => return None,
    };
    let (name, port) = match authority.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, Some(port)),
        _ => (authority, None),
    };
    let bare = name.trim_matches(['[', ']']);
    let is_host = rules::is_host(name) || bare.parse::<std::net::IpAddr>().is_ok();
    let has_port = port.is_none_or(|port| port.parse::<u16>().is_ok());
    (is_host && has_port).then(|| TargetUrl { server: format!("{scheme}://{authority}"), path })
}

/// Maps Location of servers back if `reverse` says so. `maps_cookies`: paths of cookies, too.
fn mapped_back(reverse: Option<&Directive>, maps_cookies: bool, made: &mut RegionOutcome) {
    if made.options.get("upstream").is_none() {
        return;
    }
    let changes_path = made.options.get("rewrite").is_some();
    match reverse {
        // Apache leaves paths as servers send them.
        Some(reverse) => made.options.set("location", "absolute", from(reverse)),
        None if changes_path => {
            let why = vec![StatementOrigin::Default("no ProxyPassReverse is for it")];
            made.options.set("location", false, why);
        }
        None => {}
    }
    if changes_path && !maps_cookies {
        let why = vec![StatementOrigin::Default("no ProxyPassReverseCookiePath is for it")];
        made.options.extend("cookies", ("path", false.into()), why);
    }
}

fn maps_cookies(inner: &[Directive]) -> bool {
    inner.iter().any(|directive| directive.name == "proxypassreversecookiepath")
}

/// Writes the rewrite of a route for a prefix without an expression, so that Location can be mapped back.
pub(super) fn replace_prefix(table: &mut DraftTable) {
    let text = |value: Option<&DraftValue>| match value {
        Some(DraftValue::Text(text)) => Some(text.clone()),
        _ => None,
    };
    let (Some(path), Some(pattern), Some(to)) = (
        text(table.get("path")),
        text(table.inner("rewrite", "pattern")),
        text(table.inner("rewrite", "path")),
    ) else {
        return;
    };
    let (Some(prefix), Some(own), Some(to)) =
        (path.strip_suffix('*'), pattern.strip_suffix("(.*)"), to.strip_suffix("$1"))
    else {
        return;
    };
    // The prefix may be longer than the path of `ProxyPass`.
    let is_end = |end: &usize| prefix.is_char_boundary(*end) && values::escaped(&prefix[..*end]) == own;
    let Some(end) = (0..=prefix.len()).find(is_end) else { return };
    let new = format!("{to}{}", prefix[end..].replace('$', "$$"));
    if new.starts_with("//") {
        return;
    }
    table.remove_pairs("rewrite", &["pattern", "path"]);
    table.extend("rewrite", ("path", new.into()), Vec::new());
}
