//! Upgraded connections (RFC 9110 §7.8) that echo bytes, for tests of tunnels.

use crate::connection::Stop;
use crate::exchange::OriginExchange;
use crate::head::{Length, OriginHead};

/// Upgrades to any protocol and echoes the bytes. Ends after the client has closed its side and everything was echoed.
pub(crate) async fn echo(exchange: &mut OriginExchange<'_>) -> Result<(), Stop> {
    let Some(protocol) = requested(exchange) else { return required(exchange, "echo").await };
    discard_body(exchange).await?;
    exchange.switch(&protocol, None).await?;
    let mut piece = Vec::new();
    while exchange.tunnel_piece(&mut piece).await? {
        exchange.raw(&piece).await?;
    }
    Ok(())
}

/// Reads the body before the upgrade (RFC 9110 §7.8). All data of a CONNECT over HTTP/2 is the tunnel's.
pub(super) async fn discard_body(exchange: &mut OriginExchange<'_>) -> Result<(), Stop> {
    while exchange.request.protocol.is_none() && exchange.body_piece(|_| {}).await? {}
    Ok(())
}

/// The first protocol of the Upgrade field. Requires `Connection: upgrade` and HTTP/1.1 (RFC 9110 §7.8).
pub(super) fn requested(exchange: &OriginExchange<'_>) -> Option<String> {
    let facts = &exchange.request.facts;
    if let Some(protocol) = &exchange.request.protocol {
        return Some(protocol.clone());
    }
    let list = exchange.request.list("Upgrade").filter(|_| facts.upgrade && facts.http11)?;
    let first = list.split(',').next()?.trim();
    let sendable = !first.is_empty() && first.bytes().all(|byte| byte.is_ascii_graphic());
    sendable.then(|| first.to_owned())
}

/// Sends 426 with the supported protocol (RFC 9110 §15.5.22).
pub(super) async fn required(exchange: &mut OriginExchange<'_>, protocol: &'static str) -> Result<(), Stop> {
    while exchange.body_piece(|_| {}).await? {}
    let text = format!("ask for it with Connection: Upgrade and Upgrade: {protocol}\n");
    let head = OriginHead::new(426, Length::Known(text.len() as u64)).field("Content-Type", "text/plain");
    exchange.respond(head.field("Connection", "Upgrade").field("Upgrade", protocol), text.as_bytes()).await
}
