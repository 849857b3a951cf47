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
        "document_uri" | "script_name" | "script_filename" | "path_info"
            if request.path().contains(".php") =>
        {
            "scripts with a path behind them"
        }
        "document_uri" if is_longer(theirs, ours) => "scripts with a path behind them",
        "path_info" | "query_string" if merged(theirs) == merged(ours) => {
            "paths are read with escapes decoded and repeated slashes merged"
        }
        "ssl_cipher" if theirs.len() == 1 && ours.len() == 1 => {
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

/// Whether our path is theirs with more behind it.
fn is_longer(theirs: &[String], ours: &[String]) -> bool {
    matches!((theirs, ours), ([their], [our]) if our.strip_prefix(their.as_str()).is_some_and(|rest| rest.starts_with('/')))
}
