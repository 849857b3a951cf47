//! Compares the outcomes of a request with both proxies. Rules say which differences have no meaning.

/// Texts that differ only in a time, or in counts.
mod alike;
/// Parameters of applications behind FastCGI that may differ.
mod parameters;
/// Differences that are documented, or have no meaning.
mod rules;

pub use rules::MISSING_SCRIPT;

use std::collections::{BTreeMap, BTreeSet};

use crate::answer::{ProofAnswer, ProofOutcome, SeenRequest};
use adapt::statements::Statement;

use crate::OldProxy;
use crate::old::{OldConfiguration, OldDoor};
use crate::request::{MARK, ProofRequest, SHARE};
use crate::stand_in::StandIns;

/// The aspect in which outcomes differ.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Aspect {
    Status,
    /// Which servers were asked, and how often.
    Asked,
    Method,
    Target,
    /// A field that a server got.
    ServerField(String),
    ServerBody,
    /// A field that the client got.
    Field(String),
    Body,
    /// How many of many requests in a row were refused.
    Limit,
    /// Whether the access log has a line.
    Logged,
}

impl Aspect {
    pub fn text(&self) -> String {
        match self {
            Self::Status => "the status".to_owned(),
            Self::Asked => "the server that was asked".to_owned(),
            Self::Method => "the method that the server got".to_owned(),
            Self::Target => "the target that the server got".to_owned(),
            Self::ServerField(name) => format!("the field {name} that the server got"),
            Self::ServerBody => "the body that the server got".to_owned(),
            Self::Field(name) => format!("the field {name} of the response"),
            Self::Body => "the body of the response".to_owned(),
            Self::Limit => "how many requests a limit refused".to_owned(),
            Self::Logged => "the line in the access log".to_owned(),
        }
    }

    /// Directives of nginx and others that decide such a matter.
    pub(crate) fn words(&self) -> &'static [&'static str] {
        match self {
            Self::Status | Self::Limit => &[
                "return",
                "deny",
                "allow",
                "auth",
                "limit",
                "try_files",
                "error_page",
                "rewrite",
                "pass",
                "internal",
                "block",
                "redirect",
                "respond",
                "abort",
                "max_body",
                "satisfy",
                "allowlist",
                "whitelist",
                "auth",
                "inflight",
                "maxrequestbody",
                "errors",
                ".rule",
            ],
            Self::Asked => &[
                "pass",
                "upstream",
                "backend",
                "try_files",
                "error_page",
                "server",
                "mirror",
                "auth_request",
                "service",
                "forwardauth",
                ".rule",
            ],
            Self::Logged => &["access_log", "log"],
            Self::Method | Self::Target => &["pass", "rewrite", "uri", "path", "method", "prefix"],
            Self::ServerField(_) | Self::ServerBody => {
                &["proxy_set", "header", "forwardfor", "proxy_hide", "proxy_pass"]
            }
            Self::Field(_) => &[
                "header", "expires", "cache", "gzip", "redirect", "return", "rewrite", "encode", "charset",
                "type", "cookie",
            ],
            Self::Body => &[
                "root",
                "alias",
                "index",
                "return",
                "error_page",
                "try_files",
                "sub_filter",
                "respond",
                "file",
            ],
        }
    }
}

/// A difference between the proxies, in one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProofDifference {
    pub request: usize,
    pub aspect: Aspect,
    pub theirs: String,
    pub ours: String,
    /// The old proxy refuses the request, and Vanward does not.
    pub is_open: bool,
}

/// Fields of responses that may differ.
pub(crate) const FREE_FIELDS: [&str; 12] = [
    "date",
    "server",
    "via",
    "connection",
    "keep-alive",
    "transfer-encoding",
    "content-length",
    "age",
    "x-varnish",
    "alt-svc",
    "last-modified",
    "x-vanward-reached",
];
/// Fields to servers that may differ.
pub(crate) const FREE_SERVER_FIELDS: [&str; 10] = [
    "connection",
    "keep-alive",
    "via",
    "te",
    "content-length",
    "transfer-encoding",
    "x-varnish",
    "expect",
    "x-vanward-reached",
    "proxy-connection",
];
/// Statuses of refusals.
const REFUSALS: [u16; 9] = [400, 401, 403, 405, 407, 413, 421, 429, 444];
/// Fields of responses with marks begin with this.
const MARKS: &str = "x-vanward-reached-";
/// Texts of Traefik's own responses.
const TRAEFIK_PAGES: [&str; 18] = [
    "404 page not found",
    "401 Unauthorized",
    "no available server",
    "Moved Permanently",
    "Found",
    "Temporary Redirect",
    "Permanent Redirect",
    "Bad Request",
    "Unauthorized",
    "Forbidden",
    "Not Found",
    "Request Entity Too Large",
    "I'm a teapot",
    "Too Many Requests",
    "Internal Server Error",
    "Bad Gateway",
    "Service Unavailable",
    "Gateway Timeout",
];
/// A part of the pages of Apache.
const APACHE_PAGE: &str = "</title>\n</head><body>\n<h1>";
/// Parts of the pages of nginx, HAProxy and Varnish.
const OWN_PAGES: [&str; 3] = ["<center>nginx", "<html><body><h1>", "<p>Varnish cache server</p>"];
/// The ETag of all responses of stand-ins of servers.
const ORIGIN_TAG: &str = "\"proof\"";
/// A line in each page of a stand-in of a server.
pub const ORIGIN_LINE: &str = "A line of a page that can be compressed.";
/// Shown texts are cut, in characters.
const SHOWN_MAX: usize = 200;

/// Compares outcomes, and counts the differences that have no meaning, by rule.
pub(crate) struct Comparer<'c> {
    pub(crate) old: &'c OldConfiguration,
    pub(crate) theirs: &'c StandIns,
    pub(crate) ours: &'c StandIns,
    pub(crate) tolerated: BTreeMap<&'static str, BTreeSet<usize>>,
}

/// An outcome, with the texts of the old configuration in place of the stand-ins.
struct OutcomeSide {
    answer: ProofAnswer,
    seen: Vec<SeenRequest>,
    /// The proxy wrote the response, and the configuration has no page for it.
    is_own: bool,
    /// The body is that of a stand-in of a server.
    is_of_server: bool,
}

impl Comparer<'_> {
    pub(crate) fn compare(
        &mut self,
        request: &ProofRequest,
        theirs: &ProofOutcome,
        ours: &ProofOutcome,
    ) -> Vec<ProofDifference> {
        let (theirs, ours) = (self.side(self.theirs, request, theirs), self.side(self.ours, request, ours));
        let mut found = FoundDifferences { request: request.number, all: Vec::new() };
        let (their_status, our_status) = (theirs.answer.status, ours.answer.status);
        // RFC 9110 §9.3.7: it is about the server as a whole, and most programs answer it themselves.
        if request.target == "*" && self.old.peer != OldProxy::Haproxy {
            self.tolerate("`OPTIONS *` reaches the server of `/`", request);
            return Vec::new();
        }
        // nginx refuses to list a directory without an index, which is no rule of the configuration.
        let is_directory = self.old.peer == OldProxy::Nginx
            && their_status == 403
            && theirs.is_own
            && request.path().ends_with('/')
            && self.old.any(&|statement| statement.name == "try_files");
        let is_refused = REFUSALS.contains(&their_status) && theirs.seen.is_empty() && !is_directory;
        let is_open = is_refused && (!ours.seen.is_empty() || (200..300).contains(&our_status));
        let groups =
            |side: &OutcomeSide| side.seen.iter().map(|seen| self.group(seen).to_owned()).collect::<Vec<_>>();
        let (their_groups, our_groups) = (groups(&theirs), groups(&ours));
        let is_elsewhere = their_status != our_status || their_groups != our_groups;
        if is_elsewhere && let Some(rule) = rules::of_other_methods(self.old, request, &theirs, &ours) {
            self.tolerate(rule, request);
            return Vec::new();
        }
        if is_elsewhere
            && !is_open
            && let Some(rule) = rules::of_raw_paths(self.old, request)
        {
            self.tolerate(rule, request);
            return Vec::new();
        }
        if is_elsewhere && let Some(rule) = rules::of_place(self.old, request, &theirs, &ours, is_open) {
            self.tolerate(rule, request);
            return Vec::new();
        }
        let is_same_redirect = self.is_same_redirect(request, &theirs, &ours);
        if is_same_redirect {
            self.tolerate("redirects keep the method: 308 and 307, where Traefik sends 301 and 302", request);
        }
        if their_status == our_status && self.is_split(&their_groups, &our_groups) {
            self.tolerate("the part of a split that a client gets", request);
            return Vec::new();
        }
        if their_status != our_status && !is_same_redirect {
            found.add(Aspect::Status, self.summary(&theirs), self.summary(&ours));
            if let Some(last) = found.all.last_mut() {
                last.is_open = is_open;
            }
            return found.all;
        }
        if their_groups != our_groups {
            found.add(Aspect::Asked, self.summary(&theirs), self.summary(&ours));
            return found.all;
        }
        self.servers(request, &theirs, &ours, &mut found);
        self.fields(request, &theirs, &ours, &mut found);
        self.body(request, &theirs, &ours, &mut found);
        found.all
    }

    /// Whether Traefik sends the redirect of another status to the same place.
    fn is_same_redirect(&self, request: &ProofRequest, theirs: &OutcomeSide, ours: &OutcomeSide) -> bool {
        let statuses = (theirs.answer.status, ours.answer.status);
        let is_it = self.old.peer == OldProxy::Traefik && matches!(statuses, (301, 308) | (302, 307));
        let Some(door) = self.old.doors.get(request.door).filter(|_| is_it) else { return false };
        let place = |side: &OutcomeSide| {
            let location = resolved(request, door, side.answer.field("location")?);
            Some(rules::merged(&[location]))
        };
        place(theirs) == place(ours)
    }

    /// Whether a server gets copies of some requests from Traefik, but not of all.
    fn is_copy_of_some(&self, seen: &SeenRequest) -> bool {
        let group = self.group(seen);
        let text = |mirror: &Statement, name: &str| {
            let found = mirror.inner().iter().find(|inner| inner.name.eq_ignore_ascii_case(name));
            found.map(|found| found.word(0).to_owned())
        };
        let is_it = |mirrors: &Statement| {
            mirrors.name.eq_ignore_ascii_case("mirrors")
                && mirrors.inner().iter().any(|mirror| {
                    text(mirror, "name").as_deref() == Some(group)
                        && text(mirror, "percent").as_deref() != Some("100")
                })
        };
        self.old.peer == OldProxy::Traefik && self.old.any(&is_it)
    }

    /// Whether both groups are parts of one split: another hash chooses.
    fn is_split(&self, theirs: &[String], ours: &[String]) -> bool {
        let names = |split: &Statement, group: &str| match split.name.as_str() {
            "split_clients" => split.inner().iter().any(|part| part.word(0) == group),
            // The services of Traefik.
            name if name.eq_ignore_ascii_case("weighted") => {
                let parts = split.inner().iter().flat_map(Statement::inner).flat_map(Statement::inner);
                parts.filter(|part| part.name.eq_ignore_ascii_case("name")).any(|part| part.word(0) == group)
            }
            _ => false,
        };
        let is_it = |split: &Statement| theirs.iter().chain(ours).all(|group| names(split, group));
        theirs != ours && theirs.len() == ours.len() && self.old.any(&is_it)
    }

    fn tolerate(&mut self, rule: &'static str, request: &ProofRequest) {
        self.tolerated.entry(rule).or_default().insert(request.number);
    }

    fn side(&self, stand_ins: &StandIns, request: &ProofRequest, outcome: &ProofOutcome) -> OutcomeSide {
        let original = |text: &str| stand_ins.original(self.old, text);
        let of_fields = |fields: &[(String, String)]| {
            fields.iter().map(|(name, value)| (name.clone(), original(value))).collect::<Vec<_>>()
        };
        let mut answer = outcome.answer.clone();
        answer.fields.retain(|(name, _)| !is_mark(name));
        answer.fields = of_fields(&answer.fields);
        answer.fields.retain_mut(|(name, value)| name != "vary" || !without_share(value).is_empty());
        let mut seen: Vec<SeenRequest> = outcome
            .seen
            .iter()
            .map(|seen| SeenRequest {
                fields: of_fields(&seen.fields),
                target: original(&seen.target),
                ..seen.clone()
            })
            .collect();
        // Of several requests, some may be copies, of a share of all.
        if seen.len() > 1 {
            seen.retain(|seen| !self.is_copy_of_some(seen));
        }
        // Requests of the proxy's own may come in any order. Traefik may write their targets in another way.
        let group = |seen: &SeenRequest| match self.old.peer {
            OldProxy::Traefik => self.group(seen).to_owned(),
            _ => String::new(),
        };
        let key = |seen: &SeenRequest| (group(seen), seen.target.clone(), seen.server);
        seen.sort_by_cached_key(key);
        let is_of_server = has_text(&answer, ORIGIN_LINE) || answer.field("etag") == Some(ORIGIN_TAG);
        // Servers may have been asked whether to admit the client. A response to HEAD has no text.
        let shows_text = request.method != "HEAD" || is_of_server;
        let has_own_text = has_own_text(self.old.peer, &answer);
        let is_own = is_own_page(&answer, has_own_text) && (seen.is_empty() || has_own_text || !shows_text);
        OutcomeSide { answer, seen, is_own, is_of_server }
    }

    /// A line with the status, and the servers that were asked.
    fn summary(&self, side: &OutcomeSide) -> String {
        let status = match side.answer.status {
            0 => format!("no response ({})", side.answer.trouble),
            status => status.to_string(),
        };
        let location =
            side.answer.field("location").map(|location| format!(" to {location}")).unwrap_or_default();
        let asked = match side.seen.as_slice() {
            [] => "no server was asked".to_owned(),
            seen => seen.iter().map(|seen| self.asked(seen)).collect::<Vec<_>>().join(", "),
        };
        format!("{status}{location}; {asked}")
    }

    fn asked(&self, seen: &SeenRequest) -> String {
        let server = self.old.servers.get(seen.server).map_or("?", |server| server.address.as_str());
        format!("{server} got {} {}", seen.method, seen.target)
    }

    fn group(&self, seen: &SeenRequest) -> &str {
        self.old.servers.get(seen.server).map_or("?", |server| server.group.as_str())
    }

    fn servers(
        &mut self,
        request: &ProofRequest,
        theirs: &OutcomeSide,
        ours: &OutcomeSide,
        found: &mut FoundDifferences,
    ) {
        let groups =
            |side: &OutcomeSide| side.seen.iter().map(|seen| self.group(seen).to_owned()).collect::<Vec<_>>();
        if groups(theirs) != groups(ours) {
            return found.add(Aspect::Asked, self.summary(theirs), self.summary(ours));
        }
        let has_cache = self.old.has_cache();
        let is_asked = |seen: &SeenRequest| seen.field("x-forwarded-uri").is_some();
        for (their, our) in theirs.seen.iter().zip(&ours.seen) {
            // Varnish makes GET of all methods that it looks up.
            let is_looked_up = their.method == "GET"
                && our.method == request.method
                && (our.method == "HEAD" || self.old.peer == OldProxy::Varnish);
            if their.method != our.method {
                if has_cache && is_looked_up {
                    self.tolerate(rules::WHOLE, request);
                } else if is_looked_up && rules::has_error_pages(self.old, request) {
                    self.tolerate(rules::ERROR_PAGES, request);
                } else {
                    found.add(Aspect::Method, their.method.clone(), our.method.clone());
                }
            }
            // An empty query is none.
            if their.target.trim_end_matches('?') != our.target.trim_end_matches('?') {
                let targets = (their.target.as_str(), our.target.as_str());
                let rule = rules::of_target(self.old.peer, request, is_asked(our), targets);
                match rule.or_else(|| rules::of_raw_paths(self.old, request)) {
                    Some(rule) => self.tolerate(rule, request),
                    None => found.add(Aspect::Target, their.target.clone(), our.target.clone()),
                }
            }
            if their.body != our.body && !(has_cache && is_looked_up && their.method != our.method) {
                if self.old.peer == OldProxy::Varnish && request.method == "GET" && their.body.is_empty() {
                    self.tolerate("servers get the bodies of GET requests, which pass the cache", request);
                } else {
                    let shown = |seen: &SeenRequest| format!("{} bytes", seen.body.len());
                    found.add(Aspect::ServerBody, shown(their), shown(our));
                }
            }
            for name in names(&their.fields, &our.fields) {
                let (theirs, ours) = (values(&their.fields, &name), values(&our.fields, &name));
                if theirs == ours
                    || [MARK, SHARE].iter().any(|own| name.eq_ignore_ascii_case(own))
                    || FREE_SERVER_FIELDS.contains(&name.as_str())
                {
                    continue;
                }
                let sides = (theirs.as_slice(), ours.as_slice());
                let rule = rules::of_server_field(has_cache, request, &name, sides, is_asked(our));
                let of_peer = || rules::of_peer_server_field(self.old, request, &name, sides);
                match rule.or_else(of_peer) {
                    Some(rule) => self.tolerate(rule, request),
                    None => found.add(Aspect::ServerField(name), shown(&theirs), shown(&ours)),
                }
            }
        }
    }

    fn fields(
        &mut self,
        request: &ProofRequest,
        theirs: &OutcomeSide,
        ours: &OutcomeSide,
        found: &mut FoundDifferences,
    ) {
        let is_coded = |side: &OutcomeSide| side.answer.field("content-encoding").is_some();
        // RFC 9110 §15.5.17: the response is not a representation.
        if theirs.answer.status == 416 {
            return;
        }
        let (coded, own) = (is_coded(theirs) || is_coded(ours), theirs.is_own && !ours.is_of_server);
        for name in names(&theirs.answer.fields, &ours.answer.fields) {
            let (mut their, mut our) =
                (values(&theirs.answer.fields, &name), values(&ours.answer.fields, &name));
            if name == "location"
                && let Some(door) = self.old.doors.get(request.door)
            {
                for location in their.iter_mut().chain(&mut our) {
                    *location = resolved(request, door, location);
                }
            }
            if their == our || FREE_FIELDS.contains(&name.as_str()) {
                continue;
            }
            let values = rules::FieldValues { name: &name, theirs: &their, ours: &our };
            let rule = rules::of_field(&values, theirs, ours, coded, own);
            let rule = rule.or_else(|| rules::of_old_field(self.old, request, &values, theirs, ours));
            match rule {
                Some(rule) => self.tolerate(rule, request),
                None => found.add(Aspect::Field(name), shown(&their), shown(&our)),
            }
        }
    }

    fn body(
        &mut self,
        request: &ProofRequest,
        theirs: &OutcomeSide,
        ours: &OutcomeSide,
        found: &mut FoundDifferences,
    ) {
        let is_coded = |side: &OutcomeSide| side.answer.field("content-encoding").is_some();
        let is_range = theirs.answer.status == 416;
        if theirs.answer.body == ours.answer.body || is_range || is_coded(theirs) || is_coded(ours) {
            return;
        }
        if theirs.is_own && !ours.is_of_server {
            return self.tolerate(rules::OWN, request);
        }
        if theirs.answer.status >= 400 && theirs.answer.field("content-range").is_some() {
            return self.tolerate(rules::PARTS_OF_PAGES, request);
        }
        if alike::are_counts(&theirs.answer.body, &ours.answer.body) {
            return self.tolerate("the counts of stub_status", request);
        }
        let shown = |side: &OutcomeSide| {
            let text = String::from_utf8_lossy(&side.answer.body);
            format!("{} bytes: {:?}", side.answer.body.len(), cut(&text, 60))
        };
        found.add(Aspect::Body, shown(theirs), shown(ours));
    }
}

struct FoundDifferences {
    request: usize,
    all: Vec<ProofDifference>,
}

impl FoundDifferences {
    fn add(&mut self, aspect: Aspect, theirs: String, ours: String) {
        let (theirs, ours) = (cut(&theirs, SHOWN_MAX), cut(&ours, SHOWN_MAX));
        self.all.push(ProofDifference { request: self.request, aspect, theirs, ours, is_open: false });
    }
}

/// Removes the field of a proof from a value of Vary.
fn without_share(value: &mut String) -> &str {
    let rest = value.split(',').map(str::trim).filter(|name| !name.eq_ignore_ascii_case(SHARE));
    *value = rest.collect::<Vec<_>>().join(", ");
    value
}

/// Whether a proxy wrote the page itself: with nothing from the configuration in it.
fn is_own_page(answer: &ProofAnswer, is_page: bool) -> bool {
    let is_coded = answer.field("content-encoding").is_some();
    is_page || answer.status >= 300 && answer.body.is_empty() || answer.status >= 400 && is_coded
}

/// Whether the body is that of a page of the old proxy.
fn has_own_text(peer: OldProxy, answer: &ProofAnswer) -> bool {
    if peer == OldProxy::Traefik {
        let text = String::from_utf8_lossy(&answer.body);
        return TRAEFIK_PAGES.contains(&text.trim());
    }
    let is_apache = peer == OldProxy::Apache && has_text(answer, APACHE_PAGE);
    is_apache || OWN_PAGES.iter().any(|part| has_text(answer, part))
}

/// Whether a field of a response has a mark.
pub(crate) fn is_mark(name: &str) -> bool {
    name.starts_with(MARKS)
}

fn has_text(answer: &ProofAnswer, part: &str) -> bool {
    String::from_utf8_lossy(&answer.body).contains(part)
}

/// A URL on the requested host becomes a path. The case of hosts and an empty query have no meaning.
fn resolved(request: &ProofRequest, door: &OldDoor, location: &str) -> String {
    let location = location.trim_end_matches('?');
    let scheme = if door.is_tls { "https" } else { "http" };
    let own = format!("{scheme}://{}", door.authority(&request.host));
    let Some((scheme, rest)) = location.split_once("://") else { return location.to_owned() };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let origin = format!("{scheme}://{authority}").to_ascii_lowercase();
    if origin == own.to_ascii_lowercase() { path.to_owned() } else { origin + path }
}

fn names(theirs: &[(String, String)], ours: &[(String, String)]) -> BTreeSet<String> {
    theirs.iter().chain(ours).map(|(name, _)| name.clone()).collect()
}

/// The values of a field: one for each in a list of them. Of cookies, the order has no meaning.
fn values(fields: &[(String, String)], name: &str) -> Vec<String> {
    let all = fields.iter().filter(|(known, _)| known == name).map(|(_, value)| value.clone());
    let mut values: Vec<String> = all.collect();
    if name == "set-cookie" {
        values.sort();
    } else if values.len() > 1 {
        values = vec![values.join(", ")];
    }
    values
}

fn shown(values: &[String]) -> String {
    if values.is_empty() { "none".to_owned() } else { values.join(" | ") }
}

fn cut(text: &str, most: usize) -> String {
    let mut shown: String = text.chars().take(most).collect();
    if text.chars().nth(most).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests;
