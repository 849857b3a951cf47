//! Sends a response while it is being stored. Each reader has its own pace.

use std::future::poll_fn;
use std::ops::Range;
use std::task::{Context, Poll};

use ::cache::{FormReader, Opening, ReadError, Reader};
use bytes::Bytes;
use http1::Framing;

use super::coded::{self, Arriving};
use super::head::{self, Extent, StoredHead};
use super::hit::{self, CacheReport, Wanted, cut, unsatisfied, wanted};
use crate::body::response_plan::ResponsePlan;
use crate::body::sink::BodySink;
use crate::context::client::Next;
use crate::context::exchange::{Exchange, ExchangeContext};
use crate::context::exchange_state::ExchangeState;
use crate::context::failure::Failure;
use crate::faults::messages;
use transport::tcp::Follows;

/// Sends a response as it arrives in the store.
pub(super) async fn coming(
    exchange: &mut Exchange<'_, '_>,
    reader: Reader,
    report: CacheReport,
) -> Result<Next, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    if routed.compression(ctx).is_none() {
        return as_stored(exchange, reader, report).await;
    }
    match coded::pick_arriving(ctx, routed, exchange.memory, reader) {
        Arriving::AsStored(reader) => as_stored(exchange, reader, report).await,
        Arriving::Form(reader, opening) => form(exchange, reader, &opening, report).await,
        Arriving::Made(form) => hit::whole(exchange, &form, report).await,
    }
}

/// Sends another form of a response as far as it is made.
pub(super) async fn form(
    exchange: &mut Exchange<'_, '_>,
    reader: FormReader,
    opening: &Opening,
    report: CacheReport,
) -> Result<Next, Failure> {
    send(exchange, Source::Form(reader, 0), opening, report).await
}

async fn as_stored(
    exchange: &mut Exchange<'_, '_>,
    reader: Reader,
    report: CacheReport,
) -> Result<Next, Failure> {
    let opening = reader.opening().clone();
    send(exchange, Source::Stored(reader), &opening, report).await
}

async fn send(
    exchange: &mut Exchange<'_, '_>,
    source: Source,
    opening: &Opening,
    report: CacheReport,
) -> Result<Next, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let body_bytes = opening.body_bytes;
    let part = opening.stored.part.map(|part| (part.start..part.end, part.whole_bytes));
    let wanted = match part {
        // It is what this client has asked for, and nobody else.
        Some((range, whole_bytes)) => Wanted::Extent(Extent::Part(range, whole_bytes)),
        None => wanted(&exchange.memory.request, &opening.stored, &opening.head, body_bytes),
    };
    let extent = match wanted {
        // Who wants several gets the whole: what is sent second may come first.
        Wanted::Extent(Extent::Parts(..)) => Extent::Whole,
        Wanted::Extent(extent) => extent,
        Wanted::Nothing => {
            let whole_bytes = body_bytes.unwrap_or_default();
            return unsatisfied(exchange, whole_bytes, report).await;
        }
    };
    let framing = match (&extent, body_bytes) {
        (Extent::NotModified, _) => Framing::None,
        (Extent::Part(range, _), _) => Framing::Length(range.end - range.start),
        (_, Some(length)) => Framing::Length(length),
        (_, None) => Framing::Chunked,
    };
    let status = extent.status(&opening.stored);
    let mut plan = ResponsePlan::new(ctx, routed, status, framing, true);
    if exchange.state.has_fault() {
        messages::add_to_routed(ctx, routed, &mut plan, (status, false), exchange.state);
    }
    let age_seconds = opening.stored.age_seconds(report.now_ms);
    let stored_head = StoredHead {
        stored: &opening.stored,
        head: &opening.head,
        extent: &extent,
        handling: report.handling,
        // RFC 9111 §5.1: of what has just been made nothing is said.
        age_seconds: (age_seconds > 0).then_some(age_seconds),
        ttl_seconds: opening.stored.ttl_seconds(report.now_ms),
        key: report.shows_key.then_some(&*opening.key_text),
    };
    head::write(ctx, routed, exchange.memory, &stored_head, &plan)?;
    exchange.state.answers(status);
    let wanted = match extent {
        Extent::Part(range, _) if opening.stored.part.is_none() => range,
        _ => 0..u64::MAX,
    };
    let out = &mut exchange.memory.response.out;
    let sink = BodySink::paced(ctx, routed, plan, out, exchange.state);
    let sending = Sending { ctx, sink, wanted };
    Ok(sending.run(source, out, exchange.state).await)
}

/// Where a body is read.
enum Source {
    Stored(Reader),
    /// A form of it, and how much of that was read.
    Form(FormReader, u64),
}

impl Source {
    fn poll_next(&mut self, context: &Context<'_>) -> Poll<Option<Result<Bytes, ReadError>>> {
        match self {
            Self::Stored(reader) => reader.poll_next(context),
            Self::Form(reader, read_bytes) => {
                let next = reader.poll_next(context);
                if let Poll::Ready(Some(Ok(part))) = &next {
                    *read_bytes += part.len() as u64;
                }
                next
            }
        }
    }

    fn read_bytes(&self) -> u64 {
        match self {
            Self::Stored(reader) => reader.read_bytes(),
            Self::Form(_, read_bytes) => *read_bytes,
        }
    }
}

/// A body on its way to one client.
struct Sending<'a> {
    ctx: &'a ExchangeContext<'a>,
    sink: BodySink<'a>,
    /// Which bytes of it.
    wanted: Range<u64>,
}

impl Sending<'_> {
    async fn run(&self, mut reader: Source, out: &mut Vec<u8>, state: &mut ExchangeState<'_>) -> Next {
        match self.body(&mut reader, out, state).await {
            Ok(()) => self.sink.plan().next(),
            Err(failure) => cut(self.ctx, state, failure),
        }
    }

    /// Sends what is in `out`, and the body behind it.
    async fn body(
        &self,
        reader: &mut Source,
        out: &mut Vec<u8>,
        state: &mut ExchangeState<'_>,
    ) -> Result<(), Failure> {
        let plan = self.sink.plan();
        let mut taken_bytes = 0;
        self.sink.begin(out).await?;
        while !self.is_whole(taken_bytes) {
            let Some(part) = self.next(reader, out).await? else { break };
            let part = self.within(part, reader.read_bytes());
            if part.is_empty() {
                continue;
            }
            taken_bytes += part.len() as u64;
            let sent = self.sink.send_part(out, &part, self.is_whole(taken_bytes)).await;
            state.body_bytes_sent = self.sink.sent_bytes();
            sent?;
        }
        if matches!(plan.framing, Framing::Length(_) | Framing::None) {
            return self.sink.send(out, b"", plan.at_end()).await;
        }
        self.sink.end(out, b"", b"").await
    }

    /// Whether so many bytes are all of a body whose length was told.
    fn is_whole(&self, taken_bytes: u64) -> bool {
        match self.sink.plan().framing {
            Framing::None => true,
            Framing::Length(length) => taken_bytes == length,
            Framing::Chunked | Framing::UntilClose => false,
        }
    }

    /// The next part of the body; what is in `out` leaves before a wait.
    async fn next(&self, reader: &mut Source, out: &mut Vec<u8>) -> Result<Option<Bytes>, Failure> {
        let next = match poll_fn(|context| Poll::Ready(reader.poll_next(context))).await {
            Poll::Ready(next) => next,
            Poll::Pending => {
                self.sink.send(out, b"", Follows::Nothing).await?;
                out.clear();
                poll_fn(|context| reader.poll_next(context)).await
            }
        };
        next.transpose().map_err(|_| Failure::UpstreamTruncated)
    }

    /// What of a part is wanted that ends so many bytes behind the body's beginning.
    fn within(&self, part: Bytes, end: u64) -> Bytes {
        let begin = end - part.len() as u64;
        let inside = |at: u64| at.clamp(begin, end) - begin;
        part.slice(inside(self.wanted.start) as usize..inside(self.wanted.end) as usize)
    }
}
