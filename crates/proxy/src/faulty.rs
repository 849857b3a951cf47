//! How things go wrong on purpose: with a request before a server is asked, and with the response of one.
//!
//! Nothing here is on the path of a request to which nothing happens.

use std::time::Duration;

use shape::Fault;
use wire::{ClientConnection, Framing, Version};

use crate::answer;
use crate::client::Next;
use crate::exchange::{Admitted, Call};
use crate::failure::Failure;
use crate::faults::Drawn;
use crate::forward::Reply;
use crate::lane::{Memory, Response};
use crate::record::Record;
use crate::relay::Pump;
use crate::respond::{Plan, send};
use crate::tcp::Follows;

/// The body of an answer that no server gave.
const INJECTED: &[u8] = b"This answer was injected on purpose: no server gave it.\n";
/// Where the size of a chunk should be (RFC 9112 §7.1).
const NO_CHUNK: &[u8] = b"this is no chunk\r\n";

/// Draws what goes wrong with a request, and does what comes before a server is asked. `None` where one is to be asked.
pub(crate) async fn request(
    call: &Call<'_>,
    memory: &mut Memory,
    admitted: &mut Admitted,
    record: &mut Record<'_>,
) -> Result<Option<Next>, Failure> {
    let Some(drawn) = call.worker.faults.draw(call, admitted, &memory.request)? else { return Ok(None) };
    match &drawn.fault {
        Fault::Answer { status } => {
            record.injected(&drawn);
            record.status = *status;
            let out = &mut memory.response.out;
            answer::begin(out, *status);
            let body = if matches!(status, 204 | 304) { b"" } else { INJECTED };
            answer::push_content(out, *status, "text/plain", body);
            drawn.push_line(out);
            return answer::own(call, memory, admitted, record, body).await.map(Some);
        }
        Fault::Reset => {
            record.injected(&drawn);
            call.client.socket.reset_on_drop();
            return Err(Failure::FaultInjected);
        }
        Fault::Delay(delay) => {
            record.injected(&drawn);
            let late_ns = delay.draw_ns(drawn.number, drawn.extent());
            memory.park(call.worker);
            call.worker.alarms.sleep(Duration::from_nanos(late_ns)).await;
            memory.unpark(call.worker);
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
    admitted.fault = Some(Box::new(drawn));
    Ok(None)
}

/// Decides whether a response goes wrong like that; the client is told of it if it is to be.
pub(crate) fn plan<'a>(
    drawn: &'a Drawn,
    admitted: &Admitted,
    response: &mut Response,
    plan: &mut Plan,
    reply: &Reply,
    record: &mut Record<'_>,
) -> Option<&'a Fault> {
    let fault = &drawn.fault;
    if response.head.start.status == 101 || !applies(fault, plan, reply, admitted) {
        return None;
    }
    if fault.is_of_response() {
        record.injected(drawn);
    }
    drawn.push_line(&mut response.added);
    if ends_connection(fault) {
        plan.client_connection = ClientConnection::Close;
    }
    Some(fault)
}

/// Alters a head that is written.
pub(crate) fn alter(fault: &Fault, call: &Call<'_>, response: &mut Response, plan: &mut Plan) {
    match (fault, plan.framing) {
        (Fault::Length { by }, Framing::Length(length)) => {
            let length = length.saturating_add_signed(*by);
            reframe(&mut response.out, format!("Content-Length: {length}\r\n").as_bytes());
        }
        (Fault::BadChunk, _) if !call.client.socket.frames_itself() => {
            plan.framing = Framing::Chunked;
            reframe(&mut response.out, b"Transfer-Encoding: chunked\r\n");
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

/// Sends what leaves before all else.
pub(crate) async fn begun(fault: &Fault, call: &Call<'_>, response: &mut Response) -> Result<(), Failure> {
    match fault {
        Fault::Drip { pause } => drip(call, &mut response.out, *pause).await?,
        Fault::GoAway => call.client.socket.retire(),
        _ => {}
    }
    Ok(())
}

/// Sends what comes where a body is broken off. A stream of HTTP/2 knows no chunks: it is reset.
pub(crate) async fn broken_off(fault: &Fault, call: &Call<'_>) -> Result<(), Failure> {
    match fault {
        Fault::BadChunk if !call.client.socket.frames_itself() => send(call, NO_CHUNK, Follows::End).await,
        _ => Ok(()),
    }
}

/// Whether a response can go wrong like that.
fn applies(fault: &Fault, plan: &Plan, reply: &Reply, admitted: &Admitted) -> bool {
    let has_body = !matches!(plan.framing, Framing::None | Framing::Length(0));
    match fault {
        Fault::Cut { .. } => has_body,
        Fault::Length { .. } => matches!(plan.framing, Framing::Length(_)),
        // RFC 9112 §7.1: HTTP/1.0 knows no chunks.
        Fault::BadChunk => has_body && admitted.version != Version::Http10,
        Fault::NoTrailers => reply.framing == Framing::Chunked,
        Fault::Drip { .. } | Fault::GoAway => true,
        // Done before; what is left is to tell of it.
        Fault::Delay(_) | Fault::Answer { .. } | Fault::Reset | Fault::Connection(_) => true,
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
async fn drip(call: &Call<'_>, head: &mut Vec<u8>, pause: Duration) -> Result<(), Failure> {
    if call.client.socket.frames_itself() {
        let lines = head.iter().filter(|byte| **byte == b'\n').count() as u32;
        call.worker.alarms.sleep(pause.saturating_mul(lines)).await;
        return Ok(());
    }
    let mut rest = head.as_slice();
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        send(call, &rest[..=end], Follows::Nothing).await?;
        rest = &rest[end + 1..];
        call.worker.alarms.sleep(pause).await;
    }
    head.clear();
    Ok(())
}

/// Exchanges what a head says of its body's length for this line.
fn reframe(head: &mut Vec<u8>, line: &[u8]) {
    let names: [&[u8]; 2] = [b"content-length:", b"transfer-encoding:"];
    let is_of_length = |line: &[u8]| {
        names.iter().any(|name| line.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name)))
    };
    let mut kept = Vec::with_capacity(head.len() + line.len());
    let fields = head.len() - b"\r\n".len();
    for field in head[..fields].split_inclusive(|byte| *byte == b'\n').filter(|field| !is_of_length(field)) {
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
        reframe(&mut head, b"Content-Length: 7\r\n");
        assert_eq!(head, b"HTTP/1.1 200 OK\r\nA: content-length: 1\r\nB: c\r\nContent-Length: 7\r\n\r\n");
        reframe(&mut head, b"Transfer-Encoding: chunked\r\n");
        assert_eq!(
            head,
            b"HTTP/1.1 200 OK\r\nA: content-length: 1\r\nB: c\r\nTransfer-Encoding: chunked\r\n\r\n"
        );
    }
}
