//! Applies middlewares in a router's order: they become options of its route.

use super::paths::{self, Rewrite};
use super::routers::{prefix_test, redirect_value};
use super::{TraefikAdapter, find, from, is_on, numbers, of_file, text};
use crate::draft::{DraftTable, DraftValue, StatementOrigin};
use crate::rules::{self, Atom, Holds, HostIs, PathIs, RegionOutcome, Test};
use crate::source::Directive;
use crate::values;

/// Maximum depth of nested `chain`s.
const DEPTH_MAX: usize = 16;

pub(super) struct MiddlewareDraft<'h> {
    pub(super) outcome: RegionOutcome,
    pub(super) holds: &'h Holds<'h>,
    pub(super) has_tls: bool,
    /// Whether a middleware has answered.
    pub(super) is_done: bool,
    path: Rewrite,
    /// Options for routes with a server only, such as `retry`.
    pub(super) for_servers: DraftTable,
}

impl<'h> MiddlewareDraft<'h> {
    pub(super) fn new(from: Vec<StatementOrigin>, holds: &'h Holds<'h>, has_tls: bool) -> Self {
        Self {
            outcome: RegionOutcome { from, options: DraftTable::default() },
            holds,
            has_tls,
            is_done: false,
            path: Rewrite::default(),
            for_servers: DraftTable::default(),
        }
    }

    pub(super) fn done(&mut self, key: &str, value: DraftValue, from: Vec<StatementOrigin>) {
        self.outcome.options.keep(&[
            "allow",
            "auth",
            "response_headers",
            "rate_limit",
            "concurrency",
            "cors",
        ]);
        self.outcome.options.set(key, value, from);
        self.is_done = true;
    }

    /// Answers 501 in place of an unsupported middleware.
    pub(super) fn refuse(&mut self, from: Vec<StatementOrigin>) {
        let body = Some(("not taken over from traefik\n", "text/plain"));
        self.done("respond", rules::answer(501, body), from);
    }

    pub(super) fn finish(mut self) -> RegionOutcome {
        if !self.is_done {
            self.path.write(&mut self.outcome.options);
            self.outcome.options.append(&self.for_servers);
        }
        self.outcome
    }
}

impl<'s> TraefikAdapter<'s> {
    pub(super) fn tests_of(
        &mut self,
        chain: &[(&'s str, &'s Directive)],
        tests: &mut Vec<Test>,
        depth: usize,
    ) {
        for (name, _) in chain {
            let Some((kind, _)) = self.middleware(name) else { continue };
            match kind.name.to_ascii_lowercase().as_str() {
                "stripprefix" => {
                    for prefixes in find(kind, "prefixes").into_iter() {
                        tests.extend(
                            prefixes.words.iter().map(|prefix| prefix_test(prefix.trim(), prefixes.number)),
                        );
                    }
                }
                "redirectregex" => {
                    if let Some(wanted) = url_pattern(kind) {
                        let from = find(kind, "regex").map_or(Vec::new(), from);
                        tests.extend(
                            wanted.host.map(|host| Test { atom: Atom::Host(host), from: from.clone() }),
                        );
                        tests.extend(
                            wanted.path.map(|path| Test { atom: Atom::Path(PathIs::Pattern(path)), from }),
                        );
                    }
                }
                "chain" if depth < DEPTH_MAX => {
                    let inner = names(kind);
                    self.tests_of(&inner, tests, depth + 1);
                }
                _ => {}
            }
        }
    }

    fn middleware(&mut self, name: &str) -> Option<(&'s Directive, &'s Directive)> {
        let definition = self.definition("http", "middlewares", name)?;
        Some((definition.inner().first()?, definition))
    }

    /// Whether a middleware may refuse requests.
    pub(super) fn guards(&mut self, chain: &[(&'s str, &'s Directive)], depth: usize) -> bool {
        const GUARDS: [&str; 8] = [
            "basicauth",
            "digestauth",
            "forwardauth",
            "ipallowlist",
            "ipwhitelist",
            "ratelimit",
            "inflightreq",
            "plugin",
        ];
        chain.iter().any(|(name, _)| match self.middleware(name) {
            Some((kind, _)) if kind.name.eq_ignore_ascii_case("chain") => {
                depth < DEPTH_MAX && self.guards(&names(kind), depth + 1)
            }
            Some((kind, _)) => GUARDS.contains(&kind.name.to_ascii_lowercase().as_str()),
            // It may be one of another provider.
            None => true,
        })
    }

    pub(super) fn through(
        &mut self,
        chain: &[(&'s str, &'s Directive)],
        made: &mut MiddlewareDraft<'_>,
        depth: usize,
    ) {
        for (name, place) in chain {
            if made.is_done {
                return;
            }
            let Some((kind, definition)) = self.middleware(name) else {
                let why = match of_file(name) {
                    Some(_) => format!("there is no middleware {name} in the files"),
                    None => format!("{name} is of another provider"),
                };
                self.sheet.refuse(place.number, &why, "write what it does into the [[route]]");
                made.refuse(from(place));
                return;
            };
            made.outcome.from.extend(from(definition));
            if kind.name.eq_ignore_ascii_case("chain") {
                if depth >= DEPTH_MAX {
                    self.sheet.refuse(
                        definition.number,
                        "chains are more than 16 deep",
                        "name the middlewares themselves",
                    );
                    return made.refuse(from(definition));
                }
                numbers(kind)
                    .into_iter()
                    .for_each(|number| self.sheet.needless(number, "they are written in each route"));
                self.through(&names(kind), made, depth + 1);
            } else {
                self.one(kind, definition, made);
            }
        }
    }

    fn one(&mut self, kind: &'s Directive, definition: &'s Directive, made: &mut MiddlewareDraft<'_>) {
        match kind.name.to_ascii_lowercase().as_str() {
            "stripprefix" | "stripprefixregex" | "addprefix" | "replacepath" | "replacepathregex" => {
                self.path(kind, made);
            }
            "redirectscheme" => self.redirect_scheme(kind, made),
            "redirectregex" => self.redirect_pattern(kind, made),
            "headers" => self.headers(kind, made),
            "basicauth" => self.basic_auth(kind, definition, made),
            "forwardauth" => self.forward_auth(kind, made),
            "ipallowlist" | "ipwhitelist" => self.allow_list(kind, made),
            "ratelimit" => self.rate_limit(kind, made),
            "inflightreq" => self.in_flight(kind, made),
            "compress" => self.compress(kind, made),
            "retry" => self.retry(kind, made),
            "buffering" => self.buffering(kind, made),
            "grpcweb" => {
                made.for_servers.set("grpc_web", true, from(kind));
                if let Some(origins) = find(kind, "allowOrigins") {
                    made.outcome.options.extend(
                        "cors",
                        ("origins", origins.words.clone().into()),
                        from(origins),
                    );
                }
            }
            "contenttype" => {
                let why = "no Content-Type is guessed";
                numbers(kind).into_iter().for_each(|number| self.sheet.needless(number, why));
            }
            "errors" => self.errors(kind, made),
            "circuitbreaker" => {
                let instead = "[upstream.NAME.breaker] and `eject` go by the failures of each server: docs/balancing.md";
                self.refuse_all(kind, "a circuit has no expression", instead);
            }
            "passtlsclientcert" => {
                let instead = "`client_cert` sends it in Client-Cert; X-Client-Cert-Subject is always sent";
                self.refuse_all(kind, "servers get the client's certificate in other fields", instead);
            }
            _ => {
                // Its purpose may be to reject requests.
                let (why, instead) = match kind.name.to_ascii_lowercase().as_str() {
                    "plugin" => {
                        ("plug-ins cannot be loaded", "look for what it does in docs/configuration.md")
                    }
                    "digestauth" => {
                        ("passwords are asked for with Basic alone", "write `auth` with new hashes")
                    }
                    _ => ("there is no such middleware", "look for what it does in docs/configuration.md"),
                };
                self.refuse_all(kind, why, instead);
                made.refuse(from(kind));
            }
        }
    }

    fn path(&mut self, kind: &'s Directive, made: &mut MiddlewareDraft<'_>) {
        let mut is_said = true;
        let place = kind.inner().first().unwrap_or(kind);
        match kind.name.to_ascii_lowercase().as_str() {
            "stripprefix" => {
                let Some(prefixes) = find(kind, "prefixes") else { return };
                let prefix = prefixes
                    .words
                    .iter()
                    .map(|prefix| prefix.trim())
                    .find(|prefix| made.holds.atom(&Atom::Path(PathIs::prefix(prefix))));
                if let Some(force) = find(kind, "forceSlash") {
                    self.sheet.needless(force.number, "a path begins with a slash");
                }
                let Some(prefix) = prefix else { return };
                is_said = made.path.strip(prefix, from(prefixes));
                field(made, "X-Forwarded-Prefix", &paths::escaped(prefix));
            }
            "stripprefixregex" => {
                let pattern = find(kind, "regex").filter(|regex| regex.words.len() == 1);
                let made_of = pattern.and_then(|regex| paths::whole(regex.word(0)).map(|_| regex.word(0)));
                is_said = match made_of {
                    Some(pattern) => {
                        let pattern = format!("{}/?(?P<rest>.*)$", pattern.trim_end_matches('/'));
                        made.path.replace_pattern(&pattern, "/${rest}", from(place))
                    }
                    None => false,
                };
                self.sheet.differs(place.number, "servers get no X-Forwarded-Prefix of it", "");
            }
            "addprefix" => made.path.add(place.word(0), from(place)),
            "replacepath" => {
                made.path.replace(place.word(0), from(place));
                field(made, "X-Replaced-Path", "$path");
            }
            _ => {
                let (regex, replacement) = (text(kind, "regex"), text(kind, "replacement"));
                if let (Some((regex, place)), Some((replacement, other))) = (regex, replacement) {
                    let origins = [from(place), from(other)].concat();
                    is_said = made.path.replace_pattern(regex, replacement, origins);
                    let why = "X-Replaced-Path is sent whether the expression matches or not";
                    self.sheet.differs(place.number, why, "");
                    field(made, "X-Replaced-Path", "$path");
                }
            }
        }
        if !is_said {
            let why = "the new path is not understood, or does not follow from the ones before";
            self.refuse_all(kind, why, "write `rewrite = { pattern = \"…\", path = \"…\" }`");
            made.refuse(from(place));
        }
    }

    fn redirect_scheme(&mut self, kind: &'s Directive, made: &mut MiddlewareDraft<'_>) {
        let (scheme, place) = text(kind, "scheme").unwrap_or(("https", kind));
        for inner in kind.inner().iter().filter(|inner| inner.number != place.number) {
            self.sheet.needless(inner.number, "it is part of the redirect");
        }
        let port = text(kind, "port").map_or("", |(port, _)| port);
        let usual = if scheme == "https" { "443" } else { "80" };
        let is_there = made.has_tls == (scheme == "https");
        if is_there && (port.is_empty() || port == usual) {
            let why = "at a listener with TLS all requests have https, at others http";
            return self.sheet.needless(place.number, why);
        }
        let port = if port.is_empty() || port == usual { String::new() } else { format!(":{port}") };
        self.redirect(format!("{scheme}://$host{port}$path"), kind, place, made);
    }

    fn redirect_pattern(&mut self, kind: &'s Directive, made: &mut MiddlewareDraft<'_>) {
        let Some((regex, place)) = text(kind, "regex") else { return };
        for inner in kind.inner().iter().filter(|inner| inner.number != place.number) {
            self.sheet.needless(inner.number, "it is part of the redirect");
        }
        let replacement = text(kind, "replacement").map_or("", |(replacement, _)| replacement);
        let scheme = if made.has_tls { "https" } else { "http" };
        let Some(wanted) = url_pattern(kind) else {
            if let (Some(prefix), Some(host)) = (url_prefix(regex), made.holds.host()) {
                let url = format!("{scheme}://{host}");
                let Some(rest) = prefix.find(&url).map(|found| &url[found.end()..]) else { return };
                if let Some(before) = without_group(replacement) {
                    return self.redirect(format!("{before}{rest}$path"), kind, place, made);
                }
            }
            let why = format!("{regex} matches the whole URL, but expressions here match only the path");
            let instead = "write a [[route]] with `host` and `redirect = { pattern = \"…\", to = \"…\" }`";
            self.refuse_all(kind, &why, instead);
            return made.refuse(from(place));
        };
        let holds = wanted.host.as_ref().is_none_or(|host| made.holds.atom(&Atom::Host(host.clone())))
            && wanted
                .path
                .as_ref()
                .is_none_or(|path| made.holds.atom(&Atom::Path(PathIs::Pattern(path.clone()))))
            && wanted.scheme.is_none_or(|wanted| wanted == scheme);
        if !holds {
            return;
        }
        self.redirect(paths::groups(replacement), kind, place, made);
        made.outcome.options.extend("redirect", ("pattern", wanted.groups.into()), Vec::new());
    }

    fn redirect(
        &mut self,
        to: String,
        kind: &'s Directive,
        place: &'s Directive,
        made: &mut MiddlewareDraft<'_>,
    ) {
        let status = if is_on(kind, "permanent") { 308 } else { 307 };
        let why = format!("the status is {status} for all methods, where Traefik sends another one for GET");
        self.sheet.differs(place.number, &why, "");
        made.done("redirect", redirect_value(to, status), from(place));
    }

    fn compress(&mut self, kind: &'s Directive, made: &mut MiddlewareDraft<'_>) {
        let codings = find(kind, "encodings").map_or_else(
            || ["gzip", "br", "zstd"].map(str::to_owned).to_vec(),
            |listed| {
                listed
                    .words
                    .iter()
                    .filter(|word| ["gzip", "br", "zstd"].contains(&word.as_str()))
                    .cloned()
                    .collect()
            },
        );
        let mut pairs = vec![("codings".to_owned(), DraftValue::from(codings))];
        if let Some(types) = find(kind, "includedContentTypes") {
            pairs.push(("types".to_owned(), types.words.clone().into()));
        }
        let least =
            text(kind, "minResponseBodyBytes").and_then(|(word, _)| word.parse().ok()).unwrap_or(1024);
        pairs.push(("min_size".to_owned(), values::size(least).into()));
        if let Some(types) = find(kind, "excludedContentTypes") {
            let instead = "list in `types` the media types to compress";
            self.sheet.differs(
                types.number,
                "media types that compress well are compressed, no others",
                instead,
            );
        }
        if let Some((_, place)) = text(kind, "defaultEncoding") {
            let why = "clients without Accept-Encoding get what the server sent";
            self.sheet.differs(place.number, why, "");
        }
        let origins = numbers(kind).into_iter().map(StatementOrigin::Directive).collect();
        made.for_servers.set("compress", DraftValue::Table(pairs), origins);
    }

    fn retry(&mut self, kind: &'s Directive, made: &mut MiddlewareDraft<'_>) {
        if let Some((word, place)) = text(kind, "attempts") {
            match word.parse::<u64>() {
                Ok(attempts) => {
                    let attempts = DraftValue::Number(attempts.clamp(1, 16));
                    made.for_servers.extend("retry", ("attempts", attempts), from(place));
                }
                Err(_) => self.unread(place, "`retry = { attempts = 3 }`"),
            }
        }
        if let Some((_, place)) = text(kind, "initialInterval") {
            self.sheet.differs(
                place.number,
                "a retry goes to another server, at once and within a budget",
                "",
            );
        }
    }

    fn buffering(&mut self, kind: &'s Directive, made: &mut MiddlewareDraft<'_>) {
        let mut most = None;
        for option in kind.inner() {
            let bytes = option.word(0).parse::<i64>().ok().and_then(|bytes| u64::try_from(bytes).ok());
            match (option.name.to_ascii_lowercase().as_str(), bytes) {
                ("maxrequestbodybytes", Some(bytes @ 1..)) => {
                    most = Some(StatementOrigin::Directive(option.number));
                    made.outcome.options.extend(
                        "limits",
                        ("body_bytes", values::size(bytes).into()),
                        from(option),
                    );
                }
                ("maxrequestbodybytes" | "maxresponsebodybytes", _)
                    if bytes.is_none_or(|bytes| bytes == 0) =>
                {
                    self.sheet.needless(option.number, "there is no such limit by default");
                }
                ("memrequestbodybytes", Some(bytes)) => {
                    let memory = values::size(bytes.min(16 << 20));
                    made.for_servers.extend("request_buffering", ("memory", memory.into()), from(option));
                }
                ("memresponsebodybytes", _) => {
                    self.sheet.differs(option.number, "responses are streamed", "");
                }
                ("maxresponsebodybytes", _) => {
                    self.sheet.refuse(
                        option.number,
                        "bodies of servers have no limit",
                        "let the server have one",
                    );
                }
                ("retryexpression", _) => {
                    let instead = "`retry` of the route: `on`, `attempts`, `non_idempotent`";
                    self.sheet.refuse(option.number, "retries are written in another way", instead);
                }
                _ => self.unread(option, "a number of bytes"),
            }
        }
        if made.for_servers.get("request_buffering").is_none() {
            made.for_servers.set("request_buffering", true, most.into_iter().collect());
        }
    }
}

fn names(chain: &Directive) -> Vec<(&str, &Directive)> {
    let lists = chain.inner().iter().filter(|inner| inner.name.eq_ignore_ascii_case("middlewares"));
    lists.flat_map(|list| list.words.iter().map(move |name| (name.as_str(), list))).collect()
}

/// Sets a field that Traefik sends to servers.
fn field(made: &mut MiddlewareDraft<'_>, name: &str, value: &str) {
    made.outcome.options.field("request_headers", "set", name, value, Vec::new());
}

/// The parts of an expression for a whole URL.
struct UrlPattern {
    scheme: Option<&'static str>,
    /// `None` matches any.
    host: Option<HostIs>,
    /// Matches the whole path; `None` matches any.
    path: Option<String>,
    groups: String,
}

/// Splits `regex` into parts; `None` if it has others, or groups outside of the path.
fn url_pattern(kind: &Directive) -> Option<UrlPattern> {
    let (regex, _) = text(kind, "regex")?;
    let schemes = [
        ("^https?://", None),
        ("^http://", Some("http")),
        ("^https://", Some("https")),
        ("^.*://", None),
        ("^[^:]+://", None),
    ];
    let (start, scheme) = schemes.iter().find(|(start, _)| regex.starts_with(start))?;
    let rest = &regex[start.len()..];
    let (host, path) = first_slash(rest).map_or((rest, None), |at| (&rest[..at], Some(&rest[at..])));
    let plain = host.replace("\\.", ".");
    let host = match host {
        "[^/]+" | "[^/]*" | ".*" | ".+" => None,
        _ if plain.contains(['(', '$']) => return None,
        _ => Some(
            HostIs::named(&plain)
                .or_else(|| values::expression(&format!("^{host}$"), true).ok().map(HostIs::Pattern))?,
        ),
    };
    let path = match path {
        None => return None,
        // All paths.
        Some(path @ ("/(.*)" | "/(.*)$" | "/(.+)")) => {
            return Some(UrlPattern {
                scheme: *scheme,
                host,
                path: None,
                groups: path.trim_end_matches('$').to_owned(),
            });
        }
        Some(path) => {
            let (pattern, rest) = paths::whole(path)?;
            // Any text after the match would be appended to the replacement.
            if !rest.is_empty() {
                return None;
            }
            pattern
        }
    };
    Some(UrlPattern { scheme: *scheme, host, path: Some(path.clone()), groups: path })
}

/// Returns the first slash of an expression outside of classes.
fn first_slash(pattern: &str) -> Option<usize> {
    let mut in_class = false;
    pattern.bytes().position(|byte| {
        match byte {
            b'[' => in_class = true,
            b']' => in_class = false,
            _ => {}
        }
        byte == b'/' && !in_class
    })
}

/// Returns the expression before a final group that matches the rest of a URL: `^https?://www\.(.*)`.
fn url_prefix(regex: &str) -> Option<regex::Regex> {
    let bare = regex.strip_suffix('$').unwrap_or(regex);
    let before = bare.strip_suffix("(.*)").or_else(|| bare.strip_suffix("(.+)"))?;
    let is_plain = before.starts_with('^') && before.contains("://") && !before.contains('(');
    if is_plain { regex::RegexBuilder::new(before).size_limit(1 << 16).build().ok() } else { None }
}

/// Removes the only group from the end of a replacement.
fn without_group(replacement: &str) -> Option<String> {
    let before = replacement.strip_suffix("${1}").or_else(|| replacement.strip_suffix("$1"))?;
    (!before.contains('$')).then(|| before.to_owned())
}
