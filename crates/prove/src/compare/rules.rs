//! Differences that are documented (docs/adapt.md and the page of each proxy), or have no meaning.
//!
//! No rule excuses a request that the old proxy refuses and Vanward does not, except where paths are ambiguous.

use super::OutcomeSide;
use crate::OldProxy;
use crate::request::ProofRequest;

pub(super) const OWN: &str = "the proxies' own responses";
const UPGRADES: &str = "upgrades need no option";

/// Fields that Vanward always sends to servers.
const OWN_SERVER_FIELDS: [&str; 6] = [
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-request-id",
];

/// Parameters that Vanward always sends to applications, in lower case.
const OF_CGI: [&str; 22] = [
    "script_filename",
    "script_name",
    "path_info",
    "path_translated",
    "document_root",
    "document_uri",
    "request_uri",
    "query_string",
    "request_method",
    "content_type",
    "content_length",
    "remote_addr",
    "remote_port",
    "remote_user",
    "auth_type",
    "server_name",
    "server_addr",
    "server_port",
    "server_protocol",
    "request_scheme",
    "gateway_interface",
    "redirect_status",
];
/// The beginning of the page of an application for a script that does not exist.
pub const MISSING_SCRIPT: &str = "File not found";

/// The rule by which a request may get another status, or reach another server.
pub(super) fn of_place(
    peer: OldProxy,
    request: &ProofRequest,
    theirs: &OutcomeSide,
    ours: &OutcomeSide,
    is_open: bool,
) -> Option<&'static str> {
    let path = request.path().to_ascii_lowercase();
    let has = |parts: &[&str]| parts.iter().any(|part| path.contains(part));
    let (their, our) = (theirs.answer.status, ours.answer.status);
    let is_own = theirs.seen.is_empty() && ours.seen.is_empty();
    let is_read = matches!(request.method.as_str(), "GET" | "HEAD");
    let sent = |name: &str| request.fields.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
    let is_read_only = |status: u16| [404, 405].contains(&status);
    let is_part = |status: u16| [200, 206, 416].contains(&status);
    Some(match () {
        () if our == 400 && has(&["..", "/./", ";", "%2e", "%2f", "%5c", "%00", "\\"]) => {
            "paths that servers may read as others get 400"
        }
        () if their == 400 && has(&["..", "%2e%2e", "%00"]) => {
            "paths above the root and zero bytes reach servers, where no route goes by them"
        }
        () if is_open => return None,
        () if (their, our) == (404, 404)
            && ours.seen.is_empty()
            && theirs.answer.body.starts_with(MISSING_SCRIPT.as_bytes()) =>
        {
            "only scripts that exist run"
        }
        () if request.is_upgrade() && our == 101 && their != 101 => UPGRADES,
        () if is_own && path.starts_with("/.") && is_read_only(our) => {
            "names that begin with a dot are never sent as files"
        }
        () if is_own && !is_read && is_read_only(their) && is_read_only(our) => {
            "files are only read, also those that are not there"
        }
        () if peer != OldProxy::Nginx && has(&["//", "%"]) => {
            "paths are compared with escapes decoded and repeated slashes merged"
        }
        () if peer == OldProxy::Caddy && path != request.path() => "the case of paths counts",
        () if peer == OldProxy::Caddy
            && matches!((their, our), (0 | 200, 404))
            && is_own
            && theirs.answer.body.is_empty() =>
        {
            "unknown hosts get 404"
        }
        () if sent("range") && is_part(their) && is_part(our) => "ranges of stored responses",
        () if sent("if-modified-since") && (their, our) == (200, 304) => {
            "If-Modified-Since with a later date is enough"
        }
        () if sent("if-none-match") && !is_read && their == 304 => "conditions of GET and HEAD only",
        () if peer == OldProxy::Varnish && is_read && (their, our) == (304, 200) && is_met(request, ours) => {
            "Varnish shortens what servers answer to If-None-Match"
        }
        () => return None,
    })
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
    theirs: &[String],
    ours: &[String],
) -> Option<&'static str> {
    let sent = request.fields.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
    Some(match name {
        name if OWN_SERVER_FIELDS.contains(&name) && theirs.is_empty() => {
            "servers get Forwarded and X-Forwarded-… from Vanward"
        }
        name if OWN_SERVER_FIELDS.contains(&name) && sent => {
            "Forwarded and X-Forwarded-… of clients are dropped, except from trusted_proxies"
        }
        "host" if theirs.iter().zip(ours).all(|(their, our)| their.eq_ignore_ascii_case(our)) => {
            "the case of Host"
        }
        "accept-encoding" if !sent && ours.is_empty() => "Caddy and Varnish ask servers for gzip",
        "range" | "if-none-match" | "if-modified-since" if has_cache && theirs.is_empty() => WHOLE,
        name if OF_CGI.contains(&name) && theirs.is_empty() => {
            "applications get the parameters of CGI from Vanward"
        }
        name if request.is_upgrade()
            && (name == "upgrade" || name.starts_with("sec-websocket"))
            && ours.is_empty() =>
        {
            "applications get no upgrades"
        }
        "upgrade" if request.is_upgrade() && theirs.is_empty() => UPGRADES,
        "server_software" | "remote_port" => "parameters of the proxy and the connection",
        _ => return None,
    })
}

/// The rule by which a server may get another target.
pub(super) fn of_target(peer: OldProxy, request: &ProofRequest) -> Option<&'static str> {
    let path = request.path().to_ascii_lowercase();
    let has_dots = ["/..", "/./", "/%2e"].iter().any(|part| path.contains(part));
    (peer == OldProxy::Nginx && has_dots)
        .then_some("nginx resolves dot segments, and servers get them from Vanward")
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
        "content-type" | "cache-control" | "retry-after" if is_own => OWN,
        "expires" if values.ours.is_empty() && ours.answer.field("cache-control").is_some() => {
            "Expires beside Cache-Control"
        }
        "retry-after" if values.theirs.is_empty() => "Retry-After of limits",
        "www-authenticate" if is_same_type => "the challenge says that names and passwords are UTF-8",
        // RFC 9110 §15.4.5: it describes a response that the client has.
        "content-type" if theirs.answer.status == 304 && values.ours.is_empty() => "Content-Type in 304",
        "content-type" if is_file && is_same_type => "charset of files",
        "cache-status" if values.theirs.is_empty() => "Cache-Status from Vanward",
        "vary" if values.theirs.is_empty() && is_accept_encoding(values.ours) => {
            "Vary of compressed responses"
        }
        "allow" if values.theirs.is_empty() && theirs.answer.status == 405 => "Allow in 405",
        _ => return None,
    })
}

fn is_accept_encoding(values: &[String]) -> bool {
    matches!(values, [value] if value.eq_ignore_ascii_case("accept-encoding"))
}

fn without_charset(values: &[String]) -> Vec<String> {
    let plain = |value: &String| {
        let value = value.to_ascii_lowercase().replace(' ', "");
        value.split([';', ',']).filter(|part| !part.starts_with("charset=")).collect::<Vec<_>>().join(";")
    };
    values.iter().map(plain).collect()
}
