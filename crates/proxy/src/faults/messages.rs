//! Injects faults into HTTP messages: into a request before a server is asked, and into the response that its client gets,
//! wherever that comes from. What is stored, and what others get who wait for the same, stays as it is.
//!
//! Nothing here is on the path of a request that no fault was drawn for.

/// Injects faults into responses that are written here: those of the cache, and our own.
mod written;

use std::rc::Rc;
use std::time::Duration;

use http1::{ClientConnection, Framing, Version};
use shape::Fault;

use crate::body::pump::Pump;
use crate::context::client::Next;
use crate::context::exchange::{Exchange, ExchangeContext, RoutedRequest};
use crate::context::exchange_slot::Response;
use crate::context::exchange_state::ExchangeState;
use crate::context::failure::Failure;
use crate::forward::Reply;
use crate::forward::answer;
use crate::forward::respond::{Plan, send};
use transport::tcp::Follows;
pub(crate) use written::Injection;

/// The body of an answer that no server gave.
const INJECTED: &[u8] = b"This answer was injected on purpose: no server gave it.\n";
/// Where the size of a chunk should be (RFC 9112 §7.1).
const NO_CHUNK: &[u8] = b"this is no chunk\r\n";

/// Draws a fault for a request, and injects what comes before anybody is asked. `None` where the request goes on.
pub(crate) async fn request(exchange: &mut Exchange<'_, '_>) -> Result<Option<Next>, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let Some(drawn) =
        ctx.worker.faults.draw(ctx, routed, exchange.state.route(), &exchange.memory.request)?
    else {
        return Ok(None);
    };
    let drawn = Rc::new(drawn);
    exchange.state.drawn(Rc::clone(&drawn));
    match &drawn.fault {
        Fault::Answer { status } => {
            exchange.state.injected();
            let out = &mut exchange.memory.response.out;
            answer::begin(out, *status);
            let body = if matches!(status, 204 | 304) { b"" } else { INJECTED };
            answer::push_content(out, *status, "text/plain", body);
            return answer::own(exchange, (*status, body)).await.map(Some);
        }
        Fault::Reset => {
            exchange.state.injected();
            ctx.client.socket.reset_on_drop();
            return Err(Failure::FaultInjected);
        }
        Fault::Delay(delay) => {
            exchange.state.injected();
            let late_ns = delay.draw_ns(drawn.number, drawn.extent());
            exchange.memory.park(ctx.worker);
            ctx.worker.alarms.sleep(Duration::from_nanos(late_ns)).await;
            exchange.memory.unpark(ctx.worker);
        }
        // Done to the response, or to the connection before.
        Fault::Connection(_)
        | Fault::Cut { .. }
        | Fault::Length { .. }
        | Fault::BadChunk
        | Fault::Drip { .. }
        | Fault::NoTrailers
        | Fault::GoAway => {}
    }
    Ok(None)
}

/// What of a response decides which faults fit it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outline {
    pub(crate) version: Version,
    pub(crate) status: u16,
    /// Of the body that is sent; `None` where none is.
    pub(crate) framing: Framing,
    /// Whether trailers may follow the body.
    pub(crate) may_have_trailers: bool,
    /// Whether it leaves in frames (HTTP/2).
    pub(crate) is_framed: bool,
}

/// Decides whether a fault is injected into a server's response; the client is told of it if it is to be.
#[cold]
pub(crate) fn plan(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    response: &mut Response,
    plan: &mut Plan,
    reply: &Reply,
    state: &mut ExchangeState<'_>,
) -> Option<Fault> {
    let drawn = state.fault()?;
    let outline = Outline {
        version: routed.version,
        status: response.head.start.status,
        framing: plan.framing,
        may_have_trailers: reply.framing == Framing::Chunked,
        is_framed: ctx.client.socket.frames_itself(),
    };
    if !fits(&drawn.fault, outline) {
        return None;
    }
    state.injected();
    drawn.push_line(&mut response.added);
    if ends_connection(&drawn.fault) && outline.status != 101 {
        plan.client_connection = ClientConnection::Close;
    }
    Some(drawn.fault.clone())
}

/// Alters a head that is written.
pub(crate) fn alter(fault: &Fault, ctx: &ExchangeContext<'_>, response: &mut Response, plan: &mut Plan) {
    alter_head(fault, &mut response.out, plan.framing, ctx.client.socket.frames_itself());
    if matches!(fault, Fault::BadChunk) && !ctx.client.socket.frames_itself() {
        plan.framing = Framing::Chunked;
    }
}

/// Alters what a head says of the length of its body.
fn alter_head(fault: &Fault, head: &mut Vec<u8>, framing: Framing, is_framed: bool) {
    match (fault, framing) {
        (Fault::Length { by }, Framing::Length(length)) => {
            let length = length.saturating_add_signed(*by);
            exchange(head, &OF_LENGTH, format!("Content-Length: {length}\r\n").as_bytes());
        }
        (Fault::BadChunk, _) if !is_framed => {
            exchange(head, &OF_LENGTH, b"Transfer-Encoding: chunked\r\n");
        }
        _ => {}
    }
}

/// Alters a body of which nothing is taken yet.
pub(crate) fn alter_body(fault: &Fault, body: &mut Pump) {
    match fault {
        Fault::Cut { bytes } => body.cut_after(*bytes),
        Fault::BadChunk => body.cut_after(0),
        Fault::NoTrailers => body.drop_trailers(),
        _ => {}
    }
}

/// Does what comes before all else of a response: its head leaves slowly, or is told to be the last.
pub(crate) async fn begun(
    fault: &Fault,
    ctx: &ExchangeContext<'_>,
    head: &mut Vec<u8>,
) -> Result<(), Failure> {
    match fault {
        Fault::Drip { pause } => drip(ctx, head, *pause).await?,
        Fault::GoAway => ctx.client.socket.retire(),
        _ => {}
    }
    Ok(())
}

/// Sends what comes where a body is broken off. A stream of HTTP/2 knows no chunks: it is reset.
pub(crate) async fn broken_off(fault: &Fault, ctx: &ExchangeContext<'_>) -> Result<(), Failure> {
    match fault {
        Fault::BadChunk if !ctx.client.socket.frames_itself() => send(ctx, NO_CHUNK, Follows::End).await,
        _ => Ok(()),
    }
}

/// Whether a fault can be injected into a response.
fn fits(fault: &Fault, outline: Outline) -> bool {
    let Outline { version, status, framing, may_have_trailers, is_framed } = outline;
    let has_body = !matches!(framing, Framing::None | Framing::Length(0));
    match fault {
        // What follows a switch of protocols is no body, and on HTTP/1 no connection of HTTP.
        Fault::Cut { .. } | Fault::Length { .. } | Fault::BadChunk | Fault::NoTrailers if status == 101 => {
            false
        }
        Fault::GoAway => status != 101 || is_framed,
        Fault::Cut { bytes } => match framing {
            Framing::Length(length) => length > *bytes,
            _ => has_body,
        },
        Fault::Length { .. } => matches!(framing, Framing::Length(_)),
        // RFC 9112 §7.1: HTTP/1.0 knows no chunks.
        Fault::BadChunk => has_body && version != Version::Http10,
        Fault::NoTrailers => may_have_trailers,
        // Some were injected before: what is left is to tell of them.
        Fault::Drip { .. } | Fault::Delay(_) | Fault::Answer { .. } | Fault::Reset | Fault::Connection(_) => {
            true
        }
    }
}

/// Whether what follows on the connection could not be told from what is wrong.
fn ends_connection(fault: &Fault) -> bool {
    match fault {
        Fault::Cut { .. } | Fault::Length { .. } | Fault::BadChunk | Fault::GoAway => true,
        Fault::Drip { .. }
        | Fault::NoTrailers
        | Fault::Delay(_)
        | Fault::Answer { .. }
        | Fault::Reset
        | Fault::Connection(_) => false,
    }
}

/// Sends a head a line at a time. That of a stream is sent as a whole, as late as its last line would be: between its
/// frames there could be no others (RFC 9113 §6.10), so all streams would wait.
async fn drip(ctx: &ExchangeContext<'_>, head: &mut Vec<u8>, pause: Duration) -> Result<(), Failure> {
    if ctx.client.socket.frames_itself() {
        let lines = head.iter().filter(|byte| **byte == b'\n').count() as u32;
        ctx.worker.alarms.sleep(pause.saturating_mul(lines)).await;
        return Ok(());
    }
    let mut rest = head.as_slice();
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        send(ctx, &rest[..=end], Follows::Nothing).await?;
        rest = &rest[end + 1..];
        ctx.worker.alarms.sleep(pause).await;
    }
    head.clear();
    Ok(())
}

/// The fields of which one says how long a body is.
const OF_LENGTH: [&[u8]; 2] = [b"content-length", b"transfer-encoding"];

/// Puts a line into a head, in the place of the fields with these names.
fn exchange(head: &mut Vec<u8>, names: &[&[u8]], line: &[u8]) {
    let is_named = |line: &[u8]| {
        let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
        names.iter().any(|known| name.eq_ignore_ascii_case(known))
    };
    let mut kept = Vec::with_capacity(head.len() + line.len());
    let fields = head.len() - b"\r\n".len();
    for field in head[..fields].split_inclusive(|byte| *byte == b'\n').filter(|field| !is_named(field)) {
        kept.extend_from_slice(field);
    }
    kept.extend_from_slice(line);
    kept.extend_from_slice(b"\r\n");
    *head = kept;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_head_says_of_its_length_is_exchanged() {
        let mut head =
            b"HTTP/1.1 200 OK\r\nA: content-length: 1\r\ncontent-Length: 5\r\nB: c\r\n\r\n".to_vec();
        exchange(&mut head, &OF_LENGTH, b"Content-Length: 7\r\n");
        assert_eq!(head, b"HTTP/1.1 200 OK\r\nA: content-length: 1\r\nB: c\r\nContent-Length: 7\r\n\r\n");
        exchange(&mut head, &OF_LENGTH, b"Transfer-Encoding: chunked\r\n");
        assert_eq!(
            head,
            b"HTTP/1.1 200 OK\r\nA: content-length: 1\r\nB: c\r\nTransfer-Encoding: chunked\r\n\r\n"
        );
    }
}
