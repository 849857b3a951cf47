//! nginx's own variables, as expressions.

use super::groups;
use crate::rules::literal;

/// A variable that nginx itself sets, as an expression. It is always present, because nginx has empty texts instead.
pub(super) struct NginxFact {
    pub(super) expression: String,
    /// Whether it has no capital letters.
    pub(super) is_lower: bool,
    /// Whether it is neither empty nor `0`.
    pub(super) is_set: bool,
    /// Whether it is known only after the response.
    pub(super) is_late: bool,
}

/// The name, the expression, and what is known: `l` for no capital letters, `s` for always set, `r` for a response.
const PLAIN: [(&str, &str, &str); 25] = [
    ("host", "request.host", "l"),
    ("request_method", "request.method", "s"),
    ("scheme", "request.scheme", "ls"),
    ("uri", "request.path", "s"),
    ("document_uri", "request.path", "s"),
    ("request_uri", "(has(request.query) ? request.path + \"?\" + request.query : request.path)", "s"),
    ("args", "(request.query ?? \"\")", ""),
    ("query_string", "(request.query ?? \"\")", ""),
    ("is_args", "(has(request.query) ? \"?\" : \"\")", "l"),
    ("remote_addr", "string(client.address)", "ls"),
    ("binary_remote_addr", "string(client.address)", "ls"),
    ("realip_remote_addr", "string(client.address)", "ls"),
    ("proxy_protocol_addr", "string(client.address)", "ls"),
    ("https", "(request.scheme == \"https\" ? \"on\" : \"\")", "l"),
    (
        "server_protocol",
        "(\"HTTP/\" + (request.version in [\"2\", \"3\"] ? request.version + \".0\" : request.version))",
        "s",
    ),
    ("ssl_protocol", "(client.tls.version ?? \"\")", ""),
    ("ssl_cipher", "(client.tls.cipher ?? \"\")", ""),
    ("ssl_server_name", "(client.tls.sni ?? \"\")", ""),
    ("ssl_client_s_dn", "(client.tls.subject ?? \"\")", ""),
    ("ssl_client_i_dn", "(client.tls.issuer ?? \"\")", ""),
    // A certificate that is not valid ends the handshake.
    ("ssl_client_verify", "(has(client.tls.fingerprint) ? \"SUCCESS\" : \"NONE\")", "s"),
    ("content_type", "(request.headers[\"content-type\"] ?? \"\")", ""),
    ("content_length", "(request.headers[\"content-length\"] ?? \"\")", ""),
    ("status", "string(response.status)", "lsr"),
    ("sent_http_content_type", "(response.headers[\"content-type\"] ?? \"\")", "r"),
];

/// Returns the variable with a name. `uri[2]` is a piece of one: a group of an `if`.
pub(super) fn fact(name: &str) -> Option<NginxFact> {
    if let Some((whole, index)) = name.strip_suffix(']').and_then(|name| name.split_once('[')) {
        let NginxFact { expression, is_lower, is_late, .. } = fact(whole)?;
        let separator = literal(&groups::separator(whole)?.to_string());
        let piece = format!("{expression}.split({separator})[{index}]");
        // The first piece is never absent: a text without separators is a piece.
        let expression = if index == "0" { piece } else { format!("({piece} ?? \"\")") };
        return Some(NginxFact { expression, is_lower, is_set: false, is_late });
    }
    if let Some((_, expression, known)) = PLAIN.iter().find(|(known, ..)| *known == name) {
        let has = |letter: char| known.contains(letter);
        return Some(NginxFact {
            expression: (*expression).to_owned(),
            is_lower: has('l'),
            is_set: has('s'),
            is_late: has('r'),
        });
    }
    let member = |family: &str, name: &str, is_late: bool| NginxFact {
        expression: format!("({family}[{}] ?? \"\")", literal(name)),
        is_lower: false,
        is_set: false,
        is_late,
    };
    let of = |prefix: &str| name.strip_prefix(prefix).filter(|rest| !rest.is_empty());
    let field = |rest: &str| rest.replace('_', "-");
    of("http_")
        .map(|rest| member("request.headers", &field(rest), false))
        .or_else(|| of("cookie_").map(|rest| member("request.cookies", rest, false)))
        .or_else(|| of("arg_").map(|rest| member("request.query", rest, false)))
        .or_else(|| of("sent_http_").map(|rest| member("response.headers", &field(rest), true)))
}

/// Returns an expression that is the part of no other, without brackets around it.
pub(super) fn without_brackets(text: String) -> String {
    match text.strip_prefix('(').and_then(|text| text.strip_suffix(')')) {
        Some(inner) if is_one_group(&text) => inner.to_owned(),
        _ => text,
    }
}

/// Whether the first bracket of an expression closes at its end.
fn is_one_group(text: &str) -> bool {
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => quoted = !quoted,
            b'(' if !quoted => depth += 1,
            b')' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 && at + 1 < text.len() {
            return false;
        }
    }
    depth == 0
}
