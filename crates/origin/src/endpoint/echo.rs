//! Endpoints that return the request: as text, as JSON, its body alone, or as a CGI environment.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::connection::Stop;
use crate::exchange::OriginExchange;
use crate::head::{Length, OriginHead};

/// Maximum size of a body that is returned with its head.
const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Returns the request as text (its head byte for byte, then its body without framing), or as JSON.
pub(crate) async fn request(exchange: &mut OriginExchange<'_>, json: bool) -> Result<(), Stop> {
    let body = exchange.whole_body(BODY_BYTES_MAX).await?;
    let (content_type, text) = if json {
        let mut text = describe(exchange, &body).to_string().into_bytes();
        text.push(b'\n');
        ("application/json", text)
    } else {
        ("text/plain; charset=utf-8", [exchange.request.head(), &body].concat())
    };
    let head = OriginHead::new(200, Length::Known(text.len() as u64)).field("Content-Type", content_type);
    exchange.respond(head.field("Cache-Control", "no-store"), &text).await
}

fn describe(exchange: &OriginExchange<'_>, body: &[u8]) -> Value {
    let request = &exchange.request;
    let fields: Vec<_> = request.fields().map(|(name, value)| [name.to_owned(), latin1(value)]).collect();
    let trailers: Vec<_> =
        exchange.trailers().iter().map(|(name, value)| [name.clone(), latin1(value)]).collect();
    let mut described = json!({
        "method": request.method,
        "target": request.target,
        "version": request.version,
        "headers": fields,
        "trailers": trailers,
        "body_bytes": body.len(),
        "client": exchange.peer.to_string(),
    });
    match std::str::from_utf8(body) {
        Ok(text) => described["body"] = text.into(),
        Err(_) => described["body_base64"] = BASE64_STANDARD.encode(body).into(),
    }
    described
}

/// Decodes each byte as one character (Latin-1), so that every value can be shown.
fn latin1(value: &[u8]) -> String {
    value.iter().map(|&byte| byte as char).collect()
}

/// Returns the request body while it arrives, with its type, framing and trailers.
pub(crate) async fn body(exchange: &mut OriginExchange<'_>) -> Result<(), Stop> {
    use crate::request::RequestFraming;
    let length = match exchange.request.facts.framing {
        RequestFraming::None => Length::Known(0),
        RequestFraming::Length(length) => Length::Known(length),
        RequestFraming::Chunked => Length::Chunked,
    };
    let content_type = exchange.request.values("Content-Type").next().map(latin1);
    let content_type = content_type.unwrap_or_else(|| "application/octet-stream".to_owned());

    // Waits for the first piece before the response begins, so that a client that waits for 100 gets it first.
    let mut piece = Vec::new();
    let mut more = exchange.body_piece(|bytes| piece.extend_from_slice(bytes)).await?;
    exchange.begin(OriginHead::new(200, length).field("Content-Type", content_type));
    while more {
        exchange.piece(&piece).await?;
        piece.clear();
        more = exchange.body_piece(|bytes| piece.extend_from_slice(bytes)).await?;
    }
    let trailers = exchange.trailers().to_vec();
    let trailers: Vec<_> = trailers.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
    exchange.finish(&trailers).await
}

/// Returns the output of `second.pl` of the Squid experiment: each variable as `KEY --> value<br>`.
pub(crate) async fn cgi(exchange: &mut OriginExchange<'_>) -> Result<(), Stop> {
    let mut page = String::new();
    for (name, value) in environment(exchange) {
        // The script prints values unescaped. Here no field can put a tag into the page.
        let value = value.replace('<', "&lt;").replace('>', "&gt;");
        page.push_str(&format!("{name} --> {value}<br>"));
    }
    let head = OriginHead::new(200, Length::Known(page.len() as u64)).field("Content-Type", "text/html");
    exchange.respond(head, page.as_bytes()).await
}

/// CGI variables (RFC 3875 §4.1), with Apache's additions.
fn environment(exchange: &OriginExchange<'_>) -> Vec<(String, String)> {
    let (request, target, peer, local) = (&exchange.request, &exchange.target, exchange.peer, exchange.local);
    let script = target.path.clone();
    let host = target.authority.clone().or_else(|| request.list("Host")).unwrap_or_default();
    // The colons of an IPv6 address are within brackets.
    let name = host
        .rsplit_once(':')
        .filter(|(_, port)| !port.ends_with(']'))
        .map_or(host.as_str(), |(name, _)| name);
    let mut variables = vec![
        ("GATEWAY_INTERFACE".to_owned(), "CGI/1.1".to_owned()),
        ("SERVER_SOFTWARE".to_owned(), "vanward-origin".to_owned()),
        ("SERVER_PROTOCOL".to_owned(), request.version.to_owned()),
        ("SERVER_NAME".to_owned(), name.to_owned()),
        ("SERVER_ADDR".to_owned(), local.ip().to_string()),
        ("SERVER_PORT".to_owned(), local.port().to_string()),
        ("REQUEST_METHOD".to_owned(), request.method.clone()),
        ("REQUEST_SCHEME".to_owned(), exchange.scheme.to_owned()),
        ("REQUEST_URI".to_owned(), request.target.clone()),
        ("QUERY_STRING".to_owned(), target.raw_query.clone()),
        ("SCRIPT_NAME".to_owned(), script.clone()),
        ("SCRIPT_FILENAME".to_owned(), script),
        ("REMOTE_ADDR".to_owned(), peer.ip().to_string()),
        ("REMOTE_PORT".to_owned(), peer.port().to_string()),
    ];
    for (name, variable) in [("Content-Type", "CONTENT_TYPE"), ("Content-Length", "CONTENT_LENGTH")] {
        variables.extend(request.list(name).map(|value| (variable.to_owned(), value)));
    }
    for (name, value) in request.fields() {
        // RFC 3875 §4.1.18: credentials are left out. So is Proxy, which programs took for their own variable.
        let hidden = ["authorization", "proxy", "proxy-authorization", "content-type", "content-length"];
        let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if !plain || hidden.iter().any(|hidden| name.eq_ignore_ascii_case(hidden)) {
            continue;
        }
        let variable = format!("HTTP_{}", name.to_ascii_uppercase().replace('-', "_"));
        let value = String::from_utf8_lossy(value).into_owned();
        match variables.iter_mut().find(|(found, _)| *found == variable) {
            Some((_, first)) => *first = format!("{first}, {value}"),
            None => variables.push((variable, value)),
        }
    }
    variables
}
