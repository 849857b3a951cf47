//! Connections that turn into something else (RFC 9110 §7.8): an echo of bytes, for tests of tunnels.

use crate::connection::Stop;
use crate::exchange::Exchange;
use crate::head::{Head, Length};

/// Whatever protocol is asked for, what follows is an echo. Ends when the client has closed its side, and everything
/// it sent has gone back.
pub(crate) async fn echo(exchange: &mut Exchange<'_>) -> Result<(), Stop> {
    let Some(protocol) = requested(exchange) else { return required(exchange, "echo").await };
    discard_body(exchange).await?;
    exchange.switch(&protocol, None).await?;
    let mut piece = Vec::new();
    while exchange.tunnel_piece(&mut piece).await? {
        exchange.raw(&piece).await?;
    }
    Ok(())
}

/// RFC 9110 §7.8: a body comes before the upgrade. A CONNECT of HTTP/2 has none: all it sends is the tunnel's.
pub(super) async fn discard_body(exchange: &mut Exchange<'_>) -> Result<(), Stop> {
    while exchange.request.protocol.is_none() && exchange.body_piece(|_| {}).await? {}
    Ok(())
}

/// The first protocol that the client would switch to. RFC 9110 §7.8: only with `Connection: upgrade`, and never from
/// HTTP/1.0.
pub(super) fn requested(exchange: &Exchange<'_>) -> Option<String> {
    let facts = &exchange.request.facts;
    if let Some(protocol) = &exchange.request.protocol {
        return Some(protocol.clone());
    }
    let list = exchange.request.list("Upgrade").filter(|_| facts.upgrade && facts.http11)?;
    let first = list.split(',').next()?.trim();
    let sendable = !first.is_empty() && first.bytes().all(|byte| byte.is_ascii_graphic());
    sendable.then(|| first.to_owned())
}

/// RFC 9110 §15.5.22: says which protocol would be served.
pub(super) async fn required(exchange: &mut Exchange<'_>, protocol: &'static str) -> Result<(), Stop> {
    while exchange.body_piece(|_| {}).await? {}
    let text = format!("ask for it with Connection: Upgrade and Upgrade: {protocol}\n");
    let head = Head::new(426, Length::Known(text.len() as u64)).field("Content-Type", "text/plain");
    exchange.respond(head.field("Connection", "Upgrade").field("Upgrade", protocol), text.as_bytes()).await
}
