//! Endpoints with small responses: statuses, fields, interim and early responses.

use std::time::Duration;

use crate::connection::Stop;
use crate::exchange::OriginExchange;
use crate::head::{Length, OriginHead, reason};
use crate::target::{InvalidTarget, PageOptions, QueryPairs, is_field_name, is_field_value};

/// Link field of an early hint.
const LINK: &str = "</style.css>; rel=preload; as=style";

/// Answers `OPTIONS *`.
pub(crate) async fn options(exchange: &mut OriginExchange<'_>) -> Result<(), Stop> {
    let head = OriginHead::new(204, Length::None);
    exchange.respond(head.field("Allow", "GET, HEAD, POST, PUT, DELETE, PATCH, OPTIONS"), b"").await
}

/// Sends this status, with the fields that it requires.
pub(crate) async fn status(exchange: &mut OriginExchange<'_>, status: u16) -> Result<(), Stop> {
    let body = match status {
        // RFC 9110 §15.3.6: a 205 has no content.
        205 => String::new(),
        _ => format!("{status} {}\n", reason(status)),
    };
    let head = OriginHead::new(status, Length::Known(body.len() as u64)).field("Content-Type", "text/plain");
    let head = match status {
        201 | 301..=303 | 307 | 308 => head.field("Location", "/tiny"),
        401 => head.field("WWW-Authenticate", "Basic realm=\"vanward origin\""),
        405 => head.field("Allow", "GET, HEAD"),
        407 => head.field("Proxy-Authenticate", "Basic realm=\"vanward origin\""),
        426 => head.field("Upgrade", "echo").field("Connection", "Upgrade"),
        429 | 503 => head.field("Retry-After", "1"),
        _ => head,
    };
    exchange.respond(head, body.as_bytes()).await
}

/// Sends this 1xx response, then 200.
pub(crate) async fn interim(exchange: &mut OriginExchange<'_>, status: u16) -> Result<(), Stop> {
    // RFC 9110 §15.2: no 1xx to HTTP/1.0.
    if exchange.request.facts.http11 {
        let head = OriginHead::new(status, Length::None);
        exchange.interim(&if status == 103 { head.field("Link", LINK) } else { head }).await?;
    }
    let body = format!("200 OK, after {status} {}\n", reason(status));
    let head = OriginHead::new(200, Length::Known(body.len() as u64)).field("Content-Type", "text/plain");
    exchange.respond(if status == 103 { head.field("Link", LINK) } else { head }, body.as_bytes()).await
}

/// Response fields from a query, without the options of every page. Framing fields are an error.
pub(crate) fn fields(query: &QueryPairs) -> Result<Vec<(String, String)>, InvalidTarget> {
    let ours = ["content-length", "transfer-encoding", "connection", "keep-alive", "upgrade"];
    let mut fields = Vec::new();
    for (name, value) in query.pairs().iter().filter(|(name, _)| !PageOptions::NAMES.contains(&name.as_str()))
    {
        if !is_field_name(name) || ours.contains(&name.to_ascii_lowercase().as_str()) {
            return Err(InvalidTarget::new(name, value, "a field that can be set here; /raw sends anything"));
        }
        if !is_field_value(value) {
            return Err(InvalidTarget::new(name, value, "a field value"));
        }
        fields.push((name.clone(), value.clone()));
    }
    Ok(fields)
}

pub(crate) async fn headers(
    exchange: &mut OriginExchange<'_>,
    fields: Vec<(String, String)>,
) -> Result<(), Stop> {
    let body: String = fields.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
    let mut head = OriginHead::new(200, Length::Known(body.len() as u64));
    if !fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
        head = head.field("Content-Type", "text/plain");
    }
    let head = fields.into_iter().fold(head, |head, (name, value)| head.field(name, value));
    exchange.respond(head, body.as_bytes()).await
}

pub(crate) async fn delay(exchange: &mut OriginExchange<'_>, wait: Duration) -> Result<(), Stop> {
    exchange.worker.hub.work(wait).await;
    exchange.respond_text(&format!("after {wait:?}\n")).await
}

/// Answers before the request body has arrived. Afterwards reads the rest, or closes the connection.
pub(crate) async fn early(exchange: &mut OriginExchange<'_>, close: bool) -> Result<(), Stop> {
    if close {
        exchange.close_afterwards();
    }
    exchange.respond_text("answered before the body was read\n").await
}
