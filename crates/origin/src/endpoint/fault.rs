//! What a broken server does: each fault as exactly as a socket allows.

use crate::connection::Stop;
use crate::content;
use crate::exchange::Exchange;
use crate::head::{Head, Length};

/// A response that is sent as it is.
const RAW_BYTES_MAX: usize = 1024 * 1024;

/// Neither HTTP nor text, of several lines.
const GARBAGE: &[u8] = b"\x16\x03\x01\x00\x2a this is not HTTP \xff\xfe\r\nneither: is this\x00\r\n\r\n";

/// Resets the connection: before any byte of a response, or after `after` bytes of its body. What the client had no
/// room for at that moment is lost with it.
pub(crate) async fn reset(exchange: &mut Exchange<'_>, after: Option<u64>) -> Result<(), Stop> {
    if let Some(after) = after {
        unfinished(exchange, after + 1, after).await?;
    }
    exchange.reset()
}

/// Promises more than it sends, then closes the connection in an orderly way.
pub(crate) async fn truncate(
    exchange: &mut Exchange<'_>,
    length: u64,
    sent: u64,
    chunked: bool,
) -> Result<(), Stop> {
    if chunked && exchange.request.facts.http11 {
        exchange.begin(Head::new(200, Length::Chunked).field("Content-Type", "text/plain"));
        // A chunk that is begun and not ended.
        let opening = format!("{length:x}\r\n");
        exchange.flush().await?;
        exchange.raw(opening.as_bytes()).await?;
        let mut done = 0;
        while done < sent {
            let piece = content::pattern(done, sent - done);
            exchange.raw(piece).await?;
            done += piece.len() as u64;
        }
    } else {
        unfinished(exchange, length, sent).await?;
    }
    exchange.close_afterwards();
    Ok(())
}

/// Stops sending: before any byte of a response, or after `after` bytes of its body.
pub(crate) async fn stall(exchange: &mut Exchange<'_>, after: Option<u64>) -> Result<(), Stop> {
    if let Some(after) = after {
        unfinished(exchange, after + 1, after).await?;
    }
    exchange.wait_for_close().await
}

/// The head of a response of `length` bytes, and `sent` of them. It does not say that the connection will close.
async fn unfinished(exchange: &mut Exchange<'_>, length: u64, sent: u64) -> Result<(), Stop> {
    exchange.begin(Head::new(200, Length::Known(length)).field("Content-Type", "text/plain"));
    exchange.pattern(0, sent).await?;
    exchange.flush().await
}

pub(crate) async fn garbage(exchange: &mut Exchange<'_>) -> Result<(), Stop> {
    exchange.raw(GARBAGE).await?;
    exchange.close_afterwards();
    Ok(())
}

/// Sends `text`, or the request's body, in place of a response; with `keep` the connection stays open after it.
pub(crate) async fn raw(exchange: &mut Exchange<'_>, text: Option<String>, keep: bool) -> Result<(), Stop> {
    let body = exchange.whole_body(RAW_BYTES_MAX).await?;
    let bytes = text.map_or(body, String::into_bytes);
    exchange.raw(&bytes).await?;
    if !keep {
        exchange.close_afterwards();
    }
    Ok(())
}
