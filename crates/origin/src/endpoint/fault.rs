//! Endpoints that fail like a broken server, as exactly as a socket allows.

use ::h2::Reason;

use crate::connection::Stop;
use crate::content;
use crate::exchange::OriginExchange;
use crate::head::{Length, OriginHead};
use crate::http2::Farewell;

const RAW_BYTES_MAX: usize = 1024 * 1024;

/// Bytes that are neither HTTP nor text, in several lines.
const GARBAGE: &[u8] = b"\x16\x03\x01\x00\x2a this is not HTTP \xff\xfe\r\nneither: is this\x00\r\n\r\n";

/// Resets the connection before the response, or `after` bytes into its body. Bytes in transit are lost.
pub(crate) async fn reset(exchange: &mut OriginExchange<'_>, after: Option<u64>) -> Result<(), Stop> {
    if let Some(after) = after {
        unfinished(exchange, after + 1, after).await?;
    }
    exchange.reset().await
}

/// Announces more bytes than it sends, then closes the connection gracefully.
pub(crate) async fn truncate(
    exchange: &mut OriginExchange<'_>,
    length: u64,
    sent: u64,
    chunked: bool,
) -> Result<(), Stop> {
    if chunked && exchange.request.facts.http11 && exchange.stream().is_none() {
        exchange.begin(OriginHead::new(200, Length::Chunked).field("Content-Type", "text/plain"));
        // An unfinished chunk.
        let opening = format!("{length:x}\r\n");
        exchange.flush().await?;
        // RFC 9110 §9.3.2: the response to HEAD ends with its head.
        if exchange.sends_body() {
            exchange.raw(opening.as_bytes()).await?;
            let mut done = 0;
            while done < sent {
                let piece = content::pattern(done, sent - done);
                exchange.raw(piece).await?;
                done += piece.len() as u64;
            }
        }
    } else {
        unfinished(exchange, length, sent).await?;
    }
    exchange.close_afterwards();
    Ok(())
}

/// Stops sending: before the response, or after `after` bytes of its body.
pub(crate) async fn stall(exchange: &mut OriginExchange<'_>, after: Option<u64>) -> Result<(), Stop> {
    if let Some(after) = after {
        unfinished(exchange, after + 1, after).await?;
    }
    exchange.wait_for_close().await
}

/// Sends the head of a response of `length` bytes, and `sent` bytes of its body. The head does not announce a close.
async fn unfinished(exchange: &mut OriginExchange<'_>, length: u64, sent: u64) -> Result<(), Stop> {
    exchange.begin(OriginHead::new(200, Length::Known(length)).field("Content-Type", "text/plain"));
    exchange.pattern(0, sent).await?;
    exchange.flush().await
}

/// HTTP/2, HTTP/3: resets the stream with the code for a request that was not processed.
pub(crate) async fn refuse(exchange: &mut OriginExchange<'_>) -> Result<(), Stop> {
    let Some(stream) = exchange.stream() else { return other_version(exchange, "HTTP/2 and HTTP/3").await };
    stream.reset(Reason::REFUSED_STREAM);
    Ok(())
}

/// HTTP/2, HTTP/3: sends GOAWAY, at once or after the active requests.
pub(crate) async fn go_away(exchange: &mut OriginExchange<'_>, abrupt: bool) -> Result<(), Stop> {
    let Some(stream) = exchange.stream() else { return other_version(exchange, "HTTP/2 and HTTP/3").await };
    if abrupt {
        stream.say_farewell(Farewell::Abrupt);
        return exchange.wait_for_close().await;
    }
    stream.say_farewell(Farewell::Graceful);
    exchange.respond_text("the connection accepts no more requests\n").await
}

/// Reports that this fault needs another HTTP version than the request's.
pub(crate) async fn other_version(exchange: &mut OriginExchange<'_>, version: &str) -> Result<(), Stop> {
    while exchange.body_piece(|_| {}).await? {}
    let text = format!("only {version} has this\n");
    let head = OriginHead::new(501, Length::Known(text.len() as u64)).field("Content-Type", "text/plain");
    exchange.respond(head, text.as_bytes()).await
}

pub(crate) async fn garbage(exchange: &mut OriginExchange<'_>) -> Result<(), Stop> {
    exchange.raw(GARBAGE).await?;
    exchange.close_afterwards();
    Ok(())
}

/// Sends `text`, or the request body, in place of a response. With `keep`, the connection stays open.
pub(crate) async fn raw(
    exchange: &mut OriginExchange<'_>,
    text: Option<String>,
    keep: bool,
) -> Result<(), Stop> {
    let body = exchange.whole_body(RAW_BYTES_MAX).await?;
    let bytes = text.map_or(body, String::into_bytes);
    exchange.raw(&bytes).await?;
    if !keep {
        exchange.close_afterwards();
    }
    Ok(())
}
