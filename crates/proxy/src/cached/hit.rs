//! A response from the store, or as it comes into it: the head is what is stored, with what is said anew each time.

use std::future::poll_fn;
use std::io::Write;
use std::task::Poll;

use ::cache::{Object, Reader, Stored};
use wire::{
    ClientConnection, ConnectionOptions, Framing, HeadLimits, Method, ResponseRewrite, Version, chunk_prefix,
};

use crate::answer;
use crate::client::Next;
use crate::exchange::{Admitted, Call};
use crate::failure::Failure;
use crate::lane::Memory;
use crate::policy::{self, Sender};
use crate::record::Record;
use crate::respond::{send, send_paced};
use crate::shaping::{Pace, Way};
use crate::tcp::Follows;

/// A body up to this length is copied behind its head.
const ONE_PIECE_BYTES_MAX: u64 = 2048;

/// Answers with what is stored.
pub(super) async fn stored(
    call: &Call<'_>,
    admitted: &Admitted,
    memory: &mut Memory,
    object: &Object,
    now_ms: u64,
    record: &mut Record<'_>,
) -> Result<Next, Failure> {
    let length = object.body_bytes();
    let said = Said {
        stored: object.stored(),
        head: object.head(),
        framing: Framing::Length(length),
        hit_ms: Some(now_ms),
    };
    let connection = render(call, admitted, memory, &said)?;
    let out = &mut memory.response.out;
    record.status = object.stored().status;
    record.head_bytes_sent = out.len() as u64;
    let next = if connection == ClientConnection::Close { Next::Close } else { Next::Reuse };
    let follows = if next == Next::Close { Follows::Close } else { Follows::End };
    if admitted.method == Method::Head || length == 0 {
        send(call, out, follows).await?;
        return Ok(next);
    }
    record.body_bytes_sent = length;
    let mut piece = object.body_at(0);
    let pace = Pace::new(Way::Down, call.worker);
    if length <= ONE_PIECE_BYTES_MAX && !pace.is_limited() {
        out.extend_from_slice(piece);
        send(call, out, follows).await?;
        return Ok(next);
    }
    let (mut at, mut head) = (0, out.as_slice());
    while !piece.is_empty() {
        at += piece.len() as u64;
        let is_last = at == length;
        let follows = if is_last { follows } else { Follows::More };
        let sent = send_paced(call, admitted, &pace, (head, piece), follows).await;
        if let Err(failure) = sent {
            return Ok(cut(call, record, failure));
        }
        head = b"";
        piece = object.body_at(at);
    }
    Ok(next)
}

/// Answers with what comes into the store, as it comes.
pub(super) async fn stream(
    call: &Call<'_>,
    admitted: &Admitted,
    memory: &mut Memory,
    mut reader: Reader,
    record: &mut Record<'_>,
) -> Result<Next, Failure> {
    let opening = reader.opening();
    let framing = match (opening.body_bytes, admitted.version) {
        (Some(length), _) => Framing::Length(length),
        // RFC 9112 §7.1: HTTP/1.0 knows no chunks; there the end of the connection ends the body.
        (None, Version::Http10) => Framing::UntilClose,
        (None, _) => Framing::Chunked,
    };
    let said = Said { stored: &opening.stored, head: &opening.head, framing, hit_ms: None };
    let connection = render(call, admitted, memory, &said)?;
    record.status = opening.stored.status;
    record.head_bytes_sent = memory.response.out.len() as u64;
    let socket = &call.client.socket;
    let is_chunked = framing == Framing::Chunked && !socket.frames_itself();
    let out = &mut memory.response.out;
    let mut is_behind_chunk = false;
    let pace = Pace::new(Way::Down, call.worker);
    let outcome = loop {
        let next = match poll_fn(|context| Poll::Ready(reader.poll_next(context))).await {
            Poll::Ready(next) => next,
            Poll::Pending => {
                // What is there leaves before a wait.
                if let Err(failure) = send(call, out, Follows::Nothing).await {
                    break Err(failure);
                }
                out.clear();
                poll_fn(|context| reader.poll_next(context)).await
            }
        };
        let part = match next {
            Some(Ok(part)) => part,
            Some(Err(_)) => break Err(Failure::UpstreamTruncated),
            None => break Ok(()),
        };
        record.body_bytes_sent += part.len() as u64;
        if is_chunked {
            let (text, start) = chunk_prefix(part.len());
            out.extend_from_slice(if is_behind_chunk { b"\r\n" } else { b"" });
            out.extend_from_slice(&text[start..]);
            is_behind_chunk = true;
        }
        let is_whole = framing == Framing::Length(reader.read_bytes());
        let follows = if is_whole { Follows::End } else { Follows::Nothing };
        if let Err(failure) = send_paced(call, admitted, &pace, (out, &part), follows).await {
            break Err(failure);
        }
        out.clear();
    };
    let ended = match outcome {
        Ok(()) => {
            if is_chunked {
                out.extend_from_slice(if is_behind_chunk { b"\r\n0\r\n\r\n" } else { b"0\r\n\r\n" });
            }
            let sent = send(call, out, Follows::End).await;
            sent.and_then(|()| socket.end(b"").map_err(|_| Failure::ClientGone))
        }
        broken => broken,
    };
    Ok(match ended {
        Ok(()) if connection == ClientConnection::Close => Next::Close,
        Ok(()) => Next::Reuse,
        Err(failure) => cut(call, record, failure),
    })
}

/// The head may have left: all that can be said now is that the body is not whole.
fn cut(call: &Call<'_>, record: &mut Record<'_>, failure: Failure) -> Next {
    call.client.socket.reset_on_drop();
    record.failure = Some(failure);
    Next::Close
}

/// What a response is told from.
struct Said<'a> {
    stored: &'a Stored,
    /// As it is stored, with its empty line.
    head: &'a [u8],
    framing: Framing,
    /// When it was served from the store, if it was.
    hit_ms: Option<u64>,
}

/// Writes the head to `Response::out`, and says what becomes of the connection.
fn render(
    call: &Call<'_>,
    admitted: &Admitted,
    memory: &mut Memory,
    said: &Said<'_>,
) -> Result<ClientConnection, Failure> {
    let persists = admitted.connection.persists(admitted.version)
        && said.framing != Framing::UntilClose
        && answer::may_go_on(call);
    let connection = match (persists, admitted.version) {
        (true, Version::Http10) => ClientConnection::KeepAlive,
        (true, _) => ClientConnection::Persist,
        (false, _) => ClientConnection::Close,
    };
    let Memory { request, response } = memory;
    // It has not come with this exchange: nothing of its body was received here.
    response.body.begin(Framing::None, false, None);
    let out = &mut response.out;
    out.clear();
    out.extend_from_slice(&said.head[..said.head.len() - 2]);
    push_own(out, said);
    let Some(policies) = admitted.policies(call) else {
        match (said.framing, connection) {
            (Framing::Chunked, _) => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
            (_, ClientConnection::KeepAlive) => out.extend_from_slice(b"Connection: keep-alive\r\n"),
            (_, ClientConnection::Close) => out.extend_from_slice(b"Connection: close\r\n"),
            _ => {}
        }
        if said.framing == Framing::Chunked && connection == ClientConnection::Close {
            out.extend_from_slice(b"Connection: close\r\n");
        }
        out.extend_from_slice(&call.listener.added);
        out.extend_from_slice(b"Via: 1.1 vanward\r\n\r\n");
        return Ok(connection);
    };
    // What the route wants of the head depends on the request: it is written as if a server had sent it.
    out.extend_from_slice(b"\r\n");
    let buffer = &mut response.buffer;
    buffer.clear();
    call.worker.buffers.fit(buffer, out.len());
    buffer.spare()[..out.len()].copy_from_slice(out);
    buffer.advance(out.len());
    response.head.clear();
    let limits = HeadLimits { bytes: out.len(), fields: usize::MAX, target: 0 };
    response.head.parse(buffer.filled(), &limits).map_err(|_| Failure::UpstreamMalformed)?;
    let options =
        ConnectionOptions::of(&response.head, buffer.filled()).map_err(|_| Failure::UpstreamFraming)?;
    out.clear();
    let date = call.worker.date();
    let rewrite = ResponseRewrite {
        edits: None,
        added: &call.listener.added,
        connection: options,
        framing: said.framing,
        client_connection: connection,
        date: &date,
    };
    let sender = Sender { server: "", has_page: false };
    policy::write_response(call, policies, admitted, sender, request, response, rewrite);
    response.buffer.clear();
    Ok(connection)
}

/// Appends what is said anew each time.
fn push_own(out: &mut Vec<u8>, said: &Said<'_>) {
    // Writing into a Vec does not fail. RFC 9110 §8.6: no Content-Length in a 204.
    if let (Framing::Length(length), true) = (said.framing, said.stored.status != 204) {
        out.extend_from_slice(b"Content-Length: ");
        push_number(out, length);
        out.extend_from_slice(b"\r\n");
    }
    match said.hit_ms {
        Some(now_ms) => {
            // RFC 9111 §5.1, RFC 9211 §2.
            out.extend_from_slice(b"Age: ");
            push_number(out, said.stored.age_seconds(now_ms));
            out.extend_from_slice(b"\r\nCache-Status: vanward; hit; ttl=");
            let ttl_seconds = said.stored.ttl_seconds(now_ms);
            out.extend_from_slice(if ttl_seconds < 0 { b"-" } else { b"" });
            push_number(out, ttl_seconds.unsigned_abs());
            out.extend_from_slice(b"\r\n");
        }
        None => out.extend_from_slice(b"Cache-Status: vanward; fwd=miss; stored\r\n"),
    }
}

fn push_number(out: &mut Vec<u8>, number: u64) {
    // Small ones are what there mostly is, and writing them needs no formatter.
    if number < 10 {
        out.push(b'0' + number as u8);
    } else {
        let _ = write!(out, "{number}");
    }
}
