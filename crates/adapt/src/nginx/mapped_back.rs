//! URLs and cookies of servers in responses: `proxy_redirect`, `proxy_cookie_path` and the like.
//!
//! With a replaced prefix, Vanward maps paths back. nginx maps only what these directives name: by default, URLs with the
//! address in `proxy_pass`.

use super::locations::Location;
use super::servers::RouteEntry;
use super::syntax::Directive;
use super::upstreams::AskedServers;
use super::{NginxAdapter, from};
use crate::RemarkKind;
use crate::draft::{DraftValue, StatementOrigin};

impl<'s> NginxAdapter<'s> {
    /// Translates how URLs and cookies of a server are mapped to those of clients.
    pub(super) fn mapped_back(
        &mut self,
        asked: &AskedServers,
        location: &Location<'s>,
        entry: &mut RouteEntry,
    ) {
        let prefixes = asked.prefixes(location, entry);
        self.redirects(prefixes, location, entry);
        self.cookies(prefixes, location, entry);
    }

    fn redirects(&mut self, prefixes: Option<(&str, &str)>, location: &Location<'s>, entry: &mut RouteEntry) {
        let mut paths = None;
        for mapped in location.scope.all("proxy_redirect") {
            let words: Vec<&str> = mapped.words.iter().map(String::as_str).collect();
            match words.as_slice() {
                ["default"] => {}
                ["off"] if entry.options.get("rewrite").is_some() => {
                    return entry.options.set("location", false, from(mapped));
                }
                ["off"] => {
                    let why = "Location is only mapped where the path or host is rewritten";
                    self.note(mapped, RemarkKind::NeedsNothing, why, "");
                }
                [server, client] if is_of(prefixes, server, client) => paths = Some(mapped),
                ["http://", "https://"] => {
                    entry.options.set("location", true, from(mapped));
                    let why = "only URLs with the host of the request, or that of the server, get the client's scheme";
                    self.note(mapped, RemarkKind::Differs, why, "");
                    return;
                }
                [url, client] if is_default(url, client, prefixes, location) => {}
                _ => {
                    let why = "Location is only mapped back from the server's URL to the client's";
                    let instead = "have the server know its own URL by X-Forwarded-Proto and -Host";
                    self.note(mapped, RemarkKind::Refused, why, instead);
                }
            }
        }
        match (paths, prefixes) {
            (Some(mapped), _) => entry.options.set("location", true, from(mapped)),
            (None, Some(_)) => {
                let why = StatementOrigin::Default("proxy_redirect maps no paths");
                entry.options.set("location", "absolute", vec![why]);
            }
            (None, None) => {}
        }
    }

    fn cookies(&mut self, prefixes: Option<(&str, &str)>, location: &Location<'s>, entry: &mut RouteEntry) {
        let mut is_mapped = false;
        for directive in location.scope.all("proxy_cookie_path") {
            match (directive.word(0), directive.word(1)) {
                ("off", "") => {}
                (server, client) if is_of(prefixes, server, client) => {
                    is_mapped = true;
                    entry.options.extend("cookies", ("path", true.into()), from(directive));
                }
                // `proxy_cookie_path / "/; Secure"` adds attributes.
                (server, client)
                    if client.split(';').next().is_some_and(|path| path.trim() == server)
                        && attributes(client).is_some() =>
                {
                    for (key, value) in attributes(client).unwrap_or_default() {
                        entry.options.extend("cookies", (key, value), from(directive));
                    }
                }
                _ => {
                    let why =
                        "Path of cookies is only mapped back from the server's prefix to the location's";
                    let instead = "have the server set the Path that clients need";
                    self.note(directive, RemarkKind::Refused, why, instead);
                }
            }
        }
        if prefixes.is_some() && !is_mapped {
            let why = StatementOrigin::Default("nginx keeps Path of cookies");
            entry.options.extend("cookies", ("path", false.into()), vec![why]);
        }
        self.cookie_domains(location, entry);
    }

    fn cookie_domains(&mut self, location: &Location<'s>, entry: &mut RouteEntry) {
        let mut pairs = Vec::new();
        let mut origins = Vec::new();
        for directive in location.scope.all("proxy_cookie_domain") {
            match directive.words.as_slice() {
                [off] if off == "off" => {}
                [server, client] if is_domain(server) && is_domain(client) => {
                    pairs
                        .push((server.trim_start_matches('.').to_owned(), DraftValue::from(client.as_str())));
                    origins.extend(from(directive));
                }
                _ => self.domain_refused(directive),
            }
        }
        if !pairs.is_empty() {
            entry.options.extend("cookies", ("domain", DraftValue::Table(pairs)), origins);
        }
    }

    fn domain_refused(&mut self, directive: &'s Directive) {
        let why = "domains of cookies are constants";
        self.note(directive, RemarkKind::Refused, why, "write `domain` of `cookies`");
    }
}

/// Whether these are the server's prefix and the client's.
fn is_of(prefixes: Option<(&str, &str)>, server: &str, client: &str) -> bool {
    let bare = |path: &str| path.trim_end_matches('/').to_owned();
    prefixes.is_some_and(|(path, to)| {
        server.starts_with('/') && bare(server) == bare(to) && bare(client) == bare(path)
    })
}

/// Whether a mapping is the one that nginx has by default.
fn is_default(url: &str, client: &str, prefixes: Option<(&str, &str)>, location: &Location<'_>) -> bool {
    let Some(pass) = location.scope.here("proxy_pass") else { return false };
    let has_path = pass.word(0).splitn(4, '/').nth(3).is_some();
    let (wanted, place) = match prefixes {
        Some((path, _)) => (pass.word(0).to_owned(), path),
        None if has_path => return false,
        None => (format!("{}/", pass.word(0)), "/"),
    };
    url == wanted && client == place
}

/// The attributes behind the path of `proxy_cookie_path`, as options. None if one is unknown.
fn attributes(client: &str) -> Option<Vec<(&'static str, DraftValue)>> {
    let attribute = |text: &str| match text.trim().to_ascii_lowercase().as_str() {
        "secure" => Some(("secure", DraftValue::from(true))),
        "httponly" => Some(("http_only", true.into())),
        "samesite=strict" => Some(("same_site", "strict".into())),
        "samesite=lax" => Some(("same_site", "lax".into())),
        // The option needs Secure as well, as browsers do.
        "samesite=none" if client.to_ascii_lowercase().contains("secure") => {
            Some(("same_site", "none".into()))
        }
        _ => None,
    };
    let parts: Vec<&str> = client.split(';').skip(1).filter(|part| !part.trim().is_empty()).collect();
    if parts.is_empty() { None } else { parts.into_iter().map(attribute).collect() }
}

fn is_domain(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte))
}
