//! Differences that are documented (docs/adapt.md and the page of each proxy), or have no meaning.
//!
//! No rule excuses a request that the old proxy refuses and Vanward does not, except where paths are ambiguous.

use super::OutcomeSide;
use super::alike::is_same_time;
use super::parameters::of_parameter;
use adapt::statements::Statement;

use crate::OldProxy;
use crate::old::{OldConfiguration, Site};
use crate::request::{OriginBehaviour, ProofRequest};

pub(super) const OWN: &str = "the proxies' own responses";
const UPGRADES: &str = "upgrades need no option";

/// Fields that Vanward always sends to servers.
const OWN_SERVER_FIELDS: [&str; 11] = [
    "x-forwarded-method",
    "x-forwarded-uri",
    "x-original-method",
    "x-original-uri",
    "x-original-url",
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-request-id",
];

/// Fields that ask for a part of a response, or for one that has changed.
const AUTHENTICATING: &str = "servers that authenticate get no conditions and ranges";
const CONDITIONS: [&str; 6] =
    ["range", "if-range", "if-none-match", "if-modified-since", "if-match", "if-unmodified-since"];

/// The beginning of the page of an application for a script that does not exist.
pub const MISSING_SCRIPT: &str = "File not found";

/// The rule by which a request may get another status, or reach another server.
pub(super) fn of_place(
    old: &OldConfiguration,
    request: &ProofRequest,
    theirs: &OutcomeSide,
    ours: &OutcomeSide,
    is_open: bool,
) -> Option<&'static str> {
    let peer = old.peer;
    let path = request.path().to_ascii_lowercase();
    let has = |parts: &[&str]| parts.iter().any(|part| path.contains(part));
    let (their, our) = (theirs.answer.status, ours.answer.status);
    Some(match () {
        () if our == 400
            && (path.ends_with("/.") || has(&["..", "/./", ";", "%2e", "%2f", "%5c", "%00", "\\"])) =>
        {
            "paths that servers may read as others get 400"
        }
        () if their == 400 && (is_above_root(&path) || has(&["%00"])) => {
            "paths above the root and zero bytes reach servers, where no route goes by them"
        }
        () if is_open => return None,
        () if (their, our) == (404, 404)
            && ours.seen.is_empty()
            && theirs.answer.body.starts_with(MISSING_SCRIPT.as_bytes()) =>
        {
            "only scripts that exist run"
        }
        () if peer == OldProxy::Nginx
            && path.ends_with(".php")
            && !request.path().ends_with(".php")
            && theirs.seen.is_empty()
            && !ours.seen.is_empty() =>
        {
            "the source of a script is never sent, whatever the case of its extension"
        }
        () if request.is_upgrade() && our == 101 && their != 101 => UPGRADES,
        // The stand-in of a server that authenticates accepts the upgrade itself.
        () if request.is_upgrade() && our == 101 && theirs.seen.len() < ours.seen.len() => AUTHENTICATING,
        () if peer == OldProxy::Varnish && request.host != request.host.to_ascii_lowercase() => {
            "the case of hosts has no meaning"
        }
        () if peer == OldProxy::Haproxy && request.host.ends_with('.') => {
            "hosts are compared without a dot at their end"
        }
        // Caddy compares paths in the same way.
        () if matches!(peer, OldProxy::Haproxy | OldProxy::Varnish) && has(&["//", "%"]) => {
            "paths are compared with escapes decoded and repeated slashes merged"
        }
        // Its own files and maps have one spelling.
        () if peer == OldProxy::Caddy
            && theirs.seen.is_empty()
            && ours.seen.is_empty()
            && has(&["//", "%"]) =>
        {
            "paths are compared with escapes decoded and repeated slashes merged"
        }
        () if request.is_upgrade() && their == our && has_error_pages(old, request) => {
            "refused upgrades get no page of errors"
        }
        () if peer == OldProxy::Traefik
            && their == 418
            && theirs.seen.is_empty()
            && ours.seen.is_empty()
            && matches!(our, 404 | 501) =>
        {
            "pages of Traefik itself, and services of other providers"
        }
        () if theirs.seen.is_empty() && ours.seen.is_empty() => {
            return of_own(old, request, theirs, ours).or_else(|| of_conditions(peer, request, theirs, ours));
        }
        () => return of_conditions(peer, request, theirs, ours),
    })
}

/// Whether the dot segments of a path lead out of the root.
fn is_above_root(path: &str) -> bool {
    let mut depth = 0_i32;
    decoded(path).split(['/', '\\']).filter(|segment| !matches!(*segment, "" | ".")).any(|segment| {
        depth += if segment == ".." { -1 } else { 1 };
        depth < 0
    })
}

/// The rule for requests that reach no server.
fn of_own(
    old: &OldConfiguration,
    request: &ProofRequest,
    theirs: &OutcomeSide,
    ours: &OutcomeSide,
) -> Option<&'static str> {
    let peer = old.peer;
    let (their, our) = (theirs.answer.status, ours.answer.status);
    let path = request.path().to_ascii_lowercase();
    let is_read = matches!(request.method.as_str(), "GET" | "HEAD");
    let is_read_only = |status: u16| [404, 405].contains(&status);
    let is_part = |status: u16| [200, 206, 416].contains(&status);
    Some(match () {
        () if their == 0 && theirs.answer.trouble.contains("closed") && (400..500).contains(&our) => {
            "refusals that close the connection become a status"
        }
        () if peer == OldProxy::Caddy && !is_read && our == 405 && (is_part(their) || their == 404) => {
            "files are only read, also those that are not there"
        }
        () if peer == OldProxy::Apache && request.method == "OPTIONS" && (their, our) == (200, 404) => {
            "files are only read, also those that are not there"
        }
        () if peer == OldProxy::Nginx && !is_read && (their, our) == (405, 403) => {
            "methods that the counts of stub_status do not know get 403"
        }
        () if request.method == "PURGE" && their >= 400 && our >= 400 => "refused purges have another status",
        () if path.contains("/.") && is_read_only(our) => {
            "names that begin with a dot are never sent as files"
        }
        () if !is_read && (is_read_only(their) || their == 403) && our == 405 => {
            "files are only read, also those that are not there"
        }
        () if peer == OldProxy::Nginx
            && is_read
            && (their, our) == (403, 404)
            && theirs.is_own
            && path.ends_with('/') =>
        {
            "a directory without an index gets 404, not 403"
        }
        () if !is_read && their == 301 && our == 405 && adds_slash(request, theirs) => {
            "files are only read, also those that are not there"
        }
        () if !is_read && is_read_only(their) && is_read_only(our) => {
            "files are only read, also those that are not there"
        }
        () if peer == OldProxy::Traefik
            && (their, our) == (200, 204)
            && request.method == "OPTIONS"
            && theirs.answer.body.is_empty() =>
        {
            "answers to preflights have no content"
        }
        () if peer == OldProxy::Traefik
            && matches!((their, our), (301 | 308, 404))
            && theirs.answer.field("location").is_some_and(|to| to.starts_with("https://"))
            && !old.sites.iter().any(|site| is_for_host(site, &request.host)) =>
        {
            "unknown hosts get 404"
        }
        () if peer == OldProxy::Caddy
            && matches!((their, our), (0 | 200, 404))
            && theirs.answer.body.is_empty()
            && !old.sites.iter().any(|site| is_for_host(site, &request.host)) =>
        {
            "unknown hosts get 404"
        }
        () => return None,
    })
}

/// Whether a redirect adds a slash to the path: it is that of a directory.
fn adds_slash(request: &ProofRequest, side: &OutcomeSide) -> bool {
    let path = decoded(request.path());
    let location = side.answer.field("location").unwrap_or_default();
    let location = location.split('?').next().unwrap_or_default();
    decoded(location).ends_with(&format!("{}/", path.trim_start_matches('/')))
}

/// Whether a site is for a host. Those without hosts are for all.
fn is_for_host(site: &Site, host: &str) -> bool {
    let host = host.to_ascii_lowercase();
    site.hosts.is_empty() || site.hosts.iter().any(|known| known.holds(&host) != Some(false))
}

/// The rule for requests of ranges, and with conditions.
fn of_conditions(
    peer: OldProxy,
    request: &ProofRequest,
    theirs: &OutcomeSide,
    ours: &OutcomeSide,
) -> Option<&'static str> {
    let (their, our) = (theirs.answer.status, ours.answer.status);
    let is_read = matches!(request.method.as_str(), "GET" | "HEAD");
    let sent = |name: &str| request.fields.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
    let is_part = |status: u16| [200, 206, 416].contains(&status);
    Some(match () {
        () if sent("range") && is_part(their) && is_part(our) => "ranges of stored responses",
        () if sent("if-modified-since") && (their, our) == (200, 304) => {
            "If-Modified-Since with a later date is enough"
        }
        () if matches!(their, 304 | 500)
            && theirs.seen.len() == 1
            && ours.seen.len() == 2
            && sent("if-none-match") =>
        {
            AUTHENTICATING
        }
        () if sent("if-none-match") && !is_read && their == 304 => "conditions of GET and HEAD only",
        () if matches!(peer, OldProxy::Varnish | OldProxy::Nginx)
            && is_read
            && (their, our) == (304, 200)
            && is_met(request, ours) =>
        {
            "Varnish shortens what servers answer to If-None-Match"
        }
        () => return None,
    })
}

/// A path that a statement of nginx reads as it was sent, in `$request_uri`.
pub(super) fn of_raw_paths(old: &OldConfiguration, request: &ProofRequest) -> Option<&'static str> {
    let reads = |statement: &Statement| statement.name == "rewrite" && statement.word(1) == "$request_uri";
    let has = |part: &str| request.path().contains(part);
    let is_it = old.peer == OldProxy::Nginx && (has("//") || has("%")) && old.any(&reads);
    is_it.then_some("paths are compared with escapes decoded and repeated slashes merged")
}

/// nginx answers 405 where a file exists; with a server for missing files, other methods go there.
pub(super) fn of_other_methods(
    old: &OldConfiguration,
    request: &ProofRequest,
    theirs: &OutcomeSide,
    ours: &OutcomeSide,
) -> Option<&'static str> {
    let is_read = matches!(request.method.as_str(), "GET" | "HEAD");
    let tries = |statement: &Statement| statement.name == "try_files";
    let refuses = |statement: &Statement| statement.name == "return" && statement.word(0) == "405";
    let is_of_file = old.peer == OldProxy::Nginx && theirs.answer.status == 405 && theirs.is_own;
    // The server gets the request as it is.
    let is_passed = matches!(ours.seen.as_slice(), [seen] if seen.method == request.method);
    let is_it = is_of_file && !is_read && is_passed && old.any(&tries) && !old.any(&refuses);
    is_it.then_some("other methods than GET and HEAD go to the server for missing files")
}

/// Statuses of responses that caches store without a lifetime (RFC 9110 §15.1).
const BY_DEFAULT: [u16; 12] = [200, 203, 204, 206, 300, 301, 308, 404, 405, 410, 414, 501];
/// Statuses for which nginx adds fields without `always`.
const WITH_FIELDS: [u16; 10] = [200, 201, 204, 206, 301, 302, 303, 304, 307, 308];
/// Values of `$upstream_cache_status`.
const CACHE_STATUSES: [&str; 7] = ["MISS", "HIT", "BYPASS", "EXPIRED", "STALE", "UPDATING", "REVALIDATED"];

/// The rule by which a field of a response may differ, because of a statement of the old configuration.
pub(super) fn of_old_field(
    old: &OldConfiguration,
    request: &ProofRequest,
    values: &FieldValues<'_>,
    theirs: &OutcomeSide,
    ours: &OutcomeSide,
) -> Option<&'static str> {
    let status = theirs.answer.status;
    let is_own = theirs.seen.is_empty() && ours.seen.is_empty();
    let sticks = |statement: &Statement| {
        statement.name == "cookie" || statement.name == "lb_policy" && statement.word(0) == "cookie"
    };
    Some(match values.name {
        _ if values.theirs.is_empty() && status == 101 => "fields of responses that accept an upgrade",
        "set-cookie" if old.any(&sticks) && names_of(values.theirs) == names_of(values.ours) => {
            "cookies of sessions are signed"
        }
        "cache-control"
            if is_made_private(values)
                && old.any(&|statement: &Statement| {
                    statement.name == "cookie" && statement.words.iter().any(|word| word == "nocache")
                })
                && (!matches!(request.method.as_str(), "GET" | "HEAD")
                    || !BY_DEFAULT.contains(&status)
                    || values.theirs.iter().any(|value| value.contains("private"))) =>
        {
            "responses that begin a session are private, also those that caches do not store"
        }
        "content-type" | "retry-after" | "etag" | "cache-control" if is_own && request.method == "PURGE" => {
            "the answer to a purge"
        }
        _ if old.peer == OldProxy::Caddy && values.theirs.is_empty() && is_own && status >= 400 => {
            "header applies to every response"
        }
        "etag" if of_gzip(values.theirs) == values.ours => "ETag of compressed responses",
        // The route has them for HTTPS.
        _ if old.peer == OldProxy::Traefik
            && is_own
            && values.theirs.is_empty()
            && old.any(&|statement: &Statement| statement.name.eq_ignore_ascii_case("redirections"))
            && ours.answer.field("location").is_some_and(|to| to.starts_with("https://")) =>
        {
            "redirects to HTTPS have the fields of their route"
        }
        "location" if let Some(rule) = of_server_location(old, values) => rule,
        _ if old.peer == OldProxy::Traefik => return of_traefik_field(old, request, values),
        "location" if old.peer == OldProxy::Nginx && is_of_host(values.theirs, ours) => {
            "Location is mapped back where the host is rewritten"
        }
        _ if old.peer == OldProxy::Varnish
            && values.ours.is_empty()
            && values.theirs.iter().all(|value| CACHE_STATUSES.contains(&value.as_str())) =>
        {
            "Cache-Status in place of fields about hits"
        }
        "retry-after" if old.peer == OldProxy::Varnish && is_own && values.theirs == ["5"] => OWN,
        // The head of the page that a GET gets.
        "content-type"
            if old.peer == OldProxy::Varnish
                && is_own
                && request.method == "HEAD"
                && values.theirs == ["text/html; charset=utf-8"]
                && values.ours.is_empty() =>
        {
            OWN
        }
        _ if old.peer == OldProxy::Nginx => return of_nginx_field(old, request, values, theirs, ours),
        _ => return None,
    })
}

/// As [`of_old_field`], for Traefik.
fn of_traefik_field(
    old: &OldConfiguration,
    request: &ProofRequest,
    values: &FieldValues<'_>,
) -> Option<&'static str> {
    let is_of_server = |theirs: &String, ours: &String| {
        old.servers.iter().any(|server| *theirs == format!("http://{}{ours}", server.written))
    };
    let codings = request.fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case("accept-encoding"));
    let has_capitals = |(_, value): &(String, String)| value.bytes().any(|byte| byte.is_ascii_uppercase());
    Some(match values.name {
        "location" if merged(values.theirs) == merged(values.ours) => {
            "repeated slashes and escapes in redirects"
        }
        "location" if values.theirs.iter().zip(values.ours).all(|(their, our)| is_of_server(their, our)) => {
            "Location of servers that authenticate is not changed"
        }
        "content-encoding" if values.theirs.is_empty() && codings.clone().any(has_capitals) => {
            "content codings have no case"
        }
        "content-encoding" if values.theirs.is_empty() && request.method == "HEAD" => {
            "HEAD gets the fields of GET"
        }
        "content-type" if values.theirs.is_empty() && request.path() == "/ping" => {
            "the page of ping has a media type"
        }
        "vary" if values.ours.is_empty() && request.is_upgrade() => {
            "fields of responses that accept an upgrade"
        }
        _ => return None,
    })
}

/// As [`of_old_field`], for nginx.
fn of_nginx_field(
    old: &OldConfiguration,
    request: &ProofRequest,
    values: &FieldValues<'_>,
    theirs: &OutcomeSide,
    ours: &OutcomeSide,
) -> Option<&'static str> {
    let status = theirs.answer.status;
    let is_own = theirs.seen.is_empty() && ours.seen.is_empty();
    let is_ambiguous = status == 400 && ours.answer.status == 400 && is_own && is_above_root(request.path());
    let adds = |statement: &Statement| {
        statement.name == "add_header" && statement.word(0).eq_ignore_ascii_case(values.name)
    };
    let has_charset = |statement: &Statement| statement.name == "charset";
    Some(match values.name {
        _ if values.theirs.is_empty() && !WITH_FIELDS.contains(&status) && old.any(&adds) => {
            "add_header applies to every response"
        }
        _ if is_ambiguous && values.ours.is_empty() && old.any(&adds) => {
            "requests that are no request of a server have no fields of one"
        }
        _ if values.ours.is_empty()
            && values.theirs.iter().all(|value| CACHE_STATUSES.contains(&value.as_str()))
            && old.any(&adds) =>
        {
            "Cache-Status in place of $upstream_cache_status"
        }
        "content-encoding" if values.theirs.is_empty() && ![200, 403, 404].contains(&status) => {
            "responses of any status are compressed"
        }
        "content-type"
            if without_charset(values.theirs) == without_charset(values.ours)
                && old.any(&has_charset)
                && !values.theirs.iter().any(|value| has_other_charset(value)) =>
        {
            "text is UTF-8 without `charset`"
        }
        "expires" | "cache-control"
            if values.ours.is_empty() && is_own && matches!(status, 301 | 302 | 303 | 307 | 308) =>
        {
            "redirects that add a slash have no lifetime"
        }
        "location" if merged(values.theirs) == merged(values.ours) => {
            "repeated slashes and escapes in redirects"
        }
        "content-type"
            if is_own
                && !ours.answer.body.is_empty()
                && theirs.answer.body == ours.answer.body
                && theirs.answer.field("etag").is_none() =>
        {
            "the type of a returned text does not depend on the path"
        }
        _ => return None,
    })
}

/// Whether Vanward's Cache-Control has one more `private`.
fn is_made_private(values: &FieldValues<'_>) -> bool {
    match (values.theirs, values.ours) {
        ([], [ours]) => ours == "private",
        ([theirs], [ours]) => ours.strip_suffix(", private") == Some(theirs),
        _ => false,
    }
}

/// A text with its escapes decoded.
fn decoded(text: &str) -> String {
    let mut made = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((byte, behind)) = rest.split_first() {
        let digits = behind.get(..2).filter(|_| *byte == b'%').and_then(|two| std::str::from_utf8(two).ok());
        match digits.and_then(|two| u8::from_str_radix(two, 16).ok()) {
            Some(letter) => {
                made.push(letter);
                rest = &behind[2..];
            }
            None => {
                made.push(*byte);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&made).into_owned()
}

/// URLs without repeated slashes and escapes in their paths.
pub(super) fn merged(locations: &[String]) -> Vec<String> {
    let merge = |location: &String| {
        let (scheme, rest) = location.split_once("://").unwrap_or(("", location));
        let mut path = rest.to_owned();
        while path.contains("//") {
            path = path.replace("//", "/");
        }
        format!("{scheme}{}", without_dots(&decoded(&path)))
    };
    locations.iter().map(merge).collect()
}

/// A URL whose dot segments are resolved, as clients do (RFC 3986 §5.2.4).
fn without_dots(url: &str) -> String {
    let (path, query) = url.split_at(url.find(['?', '#']).unwrap_or(url.len()));
    let mut made: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "." => {}
            ".." if made.len() > 1 => drop(made.pop()),
            ".." => {}
            segment => made.push(segment),
        }
    }
    made.join("/") + query
}

/// The names of cookies.
fn names_of(cookies: &[String]) -> Vec<&str> {
    cookies.iter().filter_map(|cookie| cookie.split('=').next()).collect()
}

/// An ETag that Varnish made weak, as it was.
fn of_gzip(tags: &[String]) -> Vec<String> {
    tags.iter().map(|tag| tag.trim_start_matches("W/").to_owned()).collect()
}

/// Whether a URL has the host that Vanward sent to the server.
fn is_of_host(location: &[String], ours: &OutcomeSide) -> bool {
    let host = ours.seen.first().and_then(|seen| seen.field("host")).unwrap_or_default();
    let own = format!("http://{host}/");
    !host.is_empty() && location.iter().all(|location| location.starts_with(&own))
}

/// Whether the response has the ETag that the request names.
fn is_met(request: &ProofRequest, ours: &OutcomeSide) -> bool {
    let named = request.fields.iter().find(|(name, _)| name.eq_ignore_ascii_case("if-none-match"));
    named.is_some_and(|(_, named)| ours.answer.field("etag") == Some(named))
}

pub(super) const WHOLE: &str = "caches fetch whole responses: GET, without conditions and ranges";

/// The rule by which a field to a server may differ. `has_cache`: the old proxy stores responses.
pub(super) fn of_server_field(
    has_cache: bool,
    request: &ProofRequest,
    name: &str,
    (theirs, ours): (&[String], &[String]),
    is_asked: bool,
) -> Option<&'static str> {
    let sent = request.fields.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
    Some(match name {
        name if OWN_SERVER_FIELDS.contains(&name) && theirs.is_empty() => {
            "servers get Forwarded and X-Forwarded-… from Vanward"
        }
        name if OWN_SERVER_FIELDS.contains(&name) && sent => {
            "Forwarded and X-Forwarded-… of clients are dropped, except from trusted_proxies"
        }
        "host" | "x-forwarded-host"
            if theirs.len() == ours.len()
                && theirs.iter().zip(ours).all(|(their, our)| their.eq_ignore_ascii_case(our)) =>
        {
            "the case of Host"
        }
        "accept-encoding" if ours.is_empty() && (!sent || theirs == ["gzip"]) => {
            "Caddy, Traefik and Varnish ask servers for gzip"
        }
        "cache-control" if theirs.is_empty() && has_cache => "servers get Cache-Control of clients",
        "cache-control" if ours.is_empty() && theirs == ["no-cache"] && request.field("pragma").is_some() => {
            "Caddy and Traefik send Cache-Control beside Pragma"
        }
        "host"
            if theirs.concat().eq_ignore_ascii_case(&request.host)
                && request.host != request.host.to_ascii_lowercase() =>
        {
            "the case of hosts has no meaning"
        }
        "x-request-id" if !theirs.is_empty() && !ours.is_empty() && !sent => {
            "each proxy has its own request ID"
        }
        _ if !sent && is_same_time(theirs, ours) => "the time of a request, up to a minute apart",
        _ if theirs.iter().all(|value| value.starts_with("{http.")) && ours.is_empty() => {
            "Caddy sends the names of placeholders without a value"
        }
        name if request.is_upgrade()
            && (name == "upgrade" || name.starts_with("sec-websocket"))
            && theirs.is_empty() =>
        {
            "upgrades need no option"
        }
        _ if CONDITIONS.contains(&name) && has_cache && theirs.is_empty() => WHOLE,
        _ if CONDITIONS.contains(&name) && is_asked && ours.is_empty() => AUTHENTICATING,
        name if request.is_upgrade()
            && (name == "upgrade" || name.starts_with("sec-websocket"))
            && ours.is_empty() =>
        {
            "applications get no upgrades"
        }
        "upgrade" if request.is_upgrade() && theirs.is_empty() => UPGRADES,
        name => return of_parameter(request, name, (theirs, ours)),
    })
}

pub(super) const PARTS_OF_PAGES: &str = "pages of errors are sent whole";
pub(super) const ERROR_PAGES: &str = "pages of errors are asked for without conditions and ranges";

/// Whether a service of Traefik's has pages for the errors of servers, and the request gets one.
pub(super) fn has_error_pages(old: &OldConfiguration, request: &ProofRequest) -> bool {
    let is_it = |statement: &Statement| statement.name.eq_ignore_ascii_case("errors");
    let is_error = matches!(
        request.behaviour,
        OriginBehaviour::Missing | OriginBehaviour::Unavailable | OriginBehaviour::Unauthorized
    );
    old.peer == OldProxy::Traefik && is_error && old.any(&is_it)
}

/// The rule by which a field from Traefik or Apache to a server may differ.
pub(super) fn of_peer_server_field(
    old: &OldConfiguration,
    request: &ProofRequest,
    name: &str,
    sides: (&[String], &[String]),
) -> Option<&'static str> {
    match old.peer {
        OldProxy::Traefik => of_traefik_server_field(old, request, name, sides),
        OldProxy::Apache => match (name, sides) {
            ("x-forwarded-server", (_, [])) => Some("servers get X-Forwarded-Server from Apache only"),
            ("host", (theirs, ours)) if are_of_one_group(old, theirs, ours) => Some(CHOICE),
            _ => None,
        },
        _ => None,
    }
}

/// The rule by which a Location of a server may differ.
fn of_server_location(old: &OldConfiguration, values: &FieldValues<'_>) -> Option<&'static str> {
    let FieldValues { theirs, ours, .. } = values;
    match old.peer {
        OldProxy::Apache | OldProxy::Traefik if are_of_one_group(old, theirs, ours) => Some(CHOICE),
        OldProxy::Apache if merged(theirs) == merged(ours) => {
            Some("repeated slashes and escapes in redirects")
        }
        _ => None,
    }
}

const CHOICE: &str = "the choice among the servers of a group";

/// Whether texts differ only in the server of a group that they name.
fn are_of_one_group(old: &OldConfiguration, theirs: &[String], ours: &[String]) -> bool {
    let ([their], [our]) = (theirs, ours) else { return false };
    old.servers.iter().any(|one| {
        let others = old.servers.iter().filter(|other| other.group == one.group);
        their.contains(&one.written)
            && others.into_iter().any(|other| their.replace(&one.written, &other.written) == *our)
    })
}

/// As [`of_peer_server_field`], for Traefik.
fn of_traefik_server_field(
    old: &OldConfiguration,
    request: &ProofRequest,
    name: &str,
    (theirs, ours): (&[String], &[String]),
) -> Option<&'static str> {
    let is_set = |statement: &Statement| statement.name.eq_ignore_ascii_case(name);
    if old.any(&is_set) {
        return None;
    }
    if name == "host" && are_of_one_group(old, theirs, ours) {
        return Some(CHOICE);
    }
    Some(match name {
        "x-real-ip" | "x-forwarded-server" | "x-forwarded-port" if ours.is_empty() => {
            "servers get X-Real-Ip, X-Forwarded-Server and X-Forwarded-Port from Traefik only"
        }
        "x-replaced-path"
            if theirs.is_empty() || merged(theirs) == merged(ours) || has_error_pages(old, request) =>
        {
            "X-Replaced-Path is the path as it was sent, whether the expression matches or not"
        }
        "x-forwarded-uri" if merged(theirs) == merged(ours) => {
            "paths are compared with escapes decoded and repeated slashes merged"
        }
        "user-agent" if ours.is_empty() && theirs.iter().all(|agent| agent.starts_with("Go-http-client")) => {
            "Traefik names itself to servers that authenticate"
        }
        _ if CONDITIONS.contains(&name) && ours.is_empty() && has_error_pages(old, request) => ERROR_PAGES,
        "x-forwarded-proto"
            if request.is_upgrade() && theirs.iter().all(|scheme| scheme.starts_with("ws")) =>
        {
            "the scheme of a WebSocket is that of HTTP"
        }
        _ => return None,
    })
}

/// The rule by which a server may get another target.
pub(super) fn of_target(
    peer: OldProxy,
    request: &ProofRequest,
    is_asked: bool,
    (theirs, ours): (&str, &str),
) -> Option<&'static str> {
    let path_of = |target: &str| target.split('?').next().unwrap_or_default().to_owned();
    if is_asked && path_of(theirs) == path_of(ours) {
        return Some("servers that authenticate get the query in X-Forwarded-Uri");
    }
    if peer != OldProxy::Nginx && ["//", "%"].iter().any(|part| request.path().contains(part)) {
        return Some("paths are compared with escapes decoded and repeated slashes merged");
    }
    let path = request.path().to_ascii_lowercase();
    let has_dots = ["/..", "/./", "/%2e"].iter().any(|part| path.contains(part));
    let is_same = || merged(&[theirs.to_owned()]) == merged(&[ours.to_owned()]);
    (matches!(peer, OldProxy::Nginx | OldProxy::Traefik | OldProxy::Apache) && has_dots && is_same())
        .then_some("nginx, Traefik and Apache resolve dot segments, and servers get them from Vanward")
}

/// The values of a field in both responses.
pub(super) struct FieldValues<'v> {
    pub(super) name: &'v str,
    pub(super) theirs: &'v [String],
    pub(super) ours: &'v [String],
}

/// The rule by which a field of a response may differ.
pub(super) fn of_field(
    values: &FieldValues<'_>,
    theirs: &OutcomeSide,
    ours: &OutcomeSide,
    is_coded: bool,
    is_own: bool,
) -> Option<&'static str> {
    let is_file = theirs.seen.is_empty() && ours.seen.is_empty();
    let is_same_type = without_charset(values.theirs) == without_charset(values.ours);
    Some(match values.name {
        "etag" if is_coded => "ETag of compressed responses",
        "etag" if is_file => "ETag of files",
        "accept-ranges" => "Accept-Ranges",
        "content-type" | "cache-control" | "retry-after" | "content-encoding" | "vary" if is_own => OWN,
        // Beside the page of Traefik.
        "x-content-type-options" if is_own && theirs.answer.status == 404 => OWN,
        "expires" if values.ours.is_empty() && ours.answer.field("cache-control").is_some() => {
            "Expires beside Cache-Control"
        }
        "retry-after" if values.theirs.is_empty() => "Retry-After of limits",
        "www-authenticate" if is_same_type => "the challenge says that names and passwords are UTF-8",
        // RFC 9110 §15.4.5: it describes a response that the client has.
        "content-type" if theirs.answer.status == 304 && values.ours.is_empty() => "Content-Type in 304",
        "vary"
            if theirs.answer.status == 304 && values.ours.is_empty() && is_accept_encoding(values.theirs) =>
        {
            "Vary in 304"
        }
        "content-type" if is_file && is_same_type => "charset of files",
        // Only files have both in nginx.
        "content-type"
            if is_file
                && !values.ours.is_empty()
                && ["last-modified", "etag"].iter().all(|name| theirs.answer.field(name).is_some()) =>
        {
            "files have the media types of a built-in table"
        }
        "cache-status" if values.theirs.is_empty() => "Cache-Status from Vanward",
        "vary" if values.theirs.is_empty() && is_accept_encoding(values.ours) => {
            "Vary of compressed responses"
        }
        "allow" if values.theirs.is_empty() && theirs.answer.status == 405 => "Allow in 405",
        "content-range" if values.ours.is_empty() && theirs.answer.status >= 400 => PARTS_OF_PAGES,
        // RFC 3875 §6.3.3: it is for the gateway.
        "status"
            if values.ours.is_empty()
                && theirs.seen.iter().any(|seen| seen.field("script_filename").is_some()) =>
        {
            "Status of an application, which is the status of the response"
        }
        _ => return None,
    })
}

fn is_accept_encoding(values: &[String]) -> bool {
    matches!(values, [value] if value.eq_ignore_ascii_case("accept-encoding"))
}

/// Whether a media type has a charset, and it is not UTF-8.
fn has_other_charset(value: &str) -> bool {
    let charset = value.to_ascii_lowercase();
    charset.split_once("charset=").is_some_and(|(_, charset)| charset.trim_matches('"') != "utf-8")
}

fn without_charset(values: &[String]) -> Vec<String> {
    let plain = |value: &String| {
        let value = value.to_ascii_lowercase().replace(' ', "");
        value.split([';', ',']).filter(|part| !part.starts_with("charset=")).collect::<Vec<_>>().join(";")
    };
    values.iter().map(plain).collect()
}
