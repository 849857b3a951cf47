//! Parameters of applications behind FastCGI that may differ.

use super::rules::merged;
use crate::request::ProofRequest;

/// Parameters that Vanward always sends to applications, in lower case.
const OF_CGI: [&str; 25] = [
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
    "remote_host",
    "remote_port",
    "ssl_protocol",
    "ssl_cipher",
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

const BEHIND_SCRIPT: &str = "scripts with a path behind them";

/// The rule by which a parameter may differ.
pub(super) fn of_parameter(
    request: &ProofRequest,
    name: &str,
    (theirs, ours): (&[String], &[String]),
) -> Option<&'static str> {
    Some(match name {
        name if OF_CGI.contains(&name) && theirs.is_empty() => {
            "applications get the parameters of CGI from Vanward"
        }
        "server_software" | "remote_port" | "server_name" if !ours.is_empty() => {
            "parameters of the proxy and the connection"
        }
        "document_uri" | "script_name" | "script_filename"
            if has_path_behind(request) && (is_longer(theirs, ours) || is_longer(ours, theirs)) =>
        {
            BEHIND_SCRIPT
        }
        "path_info" if has_path_behind(request) && (ends_with(theirs, ours) || ends_with(ours, theirs)) => {
            BEHIND_SCRIPT
        }
        "document_uri" if is_longer(theirs, ours) => BEHIND_SCRIPT,
        "path_info" | "query_string" if merged(theirs) == merged(ours) => {
            "paths are read with escapes decoded and repeated slashes merged"
        }
        "ssl_cipher" if is_cipher(theirs) && is_cipher(ours) => {
            "the cipher suite that a client and a proxy agree on"
        }
        "content_type"
            if theirs == ["application/x-www-form-urlencoded"]
                && ours.is_empty()
                && request.field("content-type").is_none() =>
        {
            "Caddy names a type for requests without one"
        }
        // RFC 3875 §4.1.3
        "content_type" if theirs == [""] && ours.is_empty() => "an empty parameter, or none",
        // RFC 3875 §4.1.2: without a body, it may be absent.
        "content_length" if theirs == ["0"] && ours.is_empty() => "the length of no body is absent or 0",
        name if OF_CGI.contains(&name) || name == "https" => match (theirs, ours) {
            ([their], [our]) if their.split(", ").all(|part| part == our) => "parameters that are repeated",
            _ => return None,
        },
        _ => return None,
    })
}

/// Whether the request has a path behind its script, which configurations of nginx often take for a part of the script.
fn has_path_behind(request: &ProofRequest) -> bool {
    request.path().contains(".php/")
}

/// Whether the second path is the first with more behind it.
fn is_longer(first: &[String], second: &[String]) -> bool {
    matches!((first, second), ([first], [second]) if second.strip_prefix(first.as_str()).is_some_and(|rest| rest.starts_with('/')))
}

/// Whether the first path ends with the second. A missing one is empty.
fn ends_with(first: &[String], second: &[String]) -> bool {
    let text = |values: &[String]| values.first().cloned().unwrap_or_default();
    first.len() <= 1 && second.len() <= 1 && text(first).ends_with(&text(second))
}

/// Whether it is a cipher suite, as OpenSSL and RFC 8446 name those that both sides have.
fn is_cipher(values: &[String]) -> bool {
    matches!(values, [name] if name.starts_with("TLS_") || name.starts_with("ECDHE-"))
}
