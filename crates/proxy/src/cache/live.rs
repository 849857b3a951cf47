//! Sends a response while it is being stored. Each reader has a separate pace.

use std::future::poll_fn;
use std::ops::Range;
use std::task::{Context, Poll};

use ::cache::{FillReader, FormReader, Opening, ReadError};
use bytes::Bytes;
use http1::{BodyFraming, Method};

use super::coded::{self, Arriving};
use super::head::{self, SentPart, StoredHead};
use super::hit::{self, CacheReport, WantedPart, unsatisfied, wanted};
use crate::context::client::AfterExchange;
use crate::context::later::{self, KnownResponse};
use crate::exchange::{Exchange, ExchangeState};
use crate::failure::Failure;
use crate::forward::respond;
use crate::outgoing::faults;
use crate::outgoing::response_plan::ResponsePlan;
use crate::outgoing::sink::BodySink;
use transport::tcp::Follows;

/// Sends a response while it arrives in the store, in the coding that the client prefers. Called by the leading request
/// and by those that wait.
pub(super) async fn coming(
    exchange: &mut Exchange<'_, '_>,
    reader: FillReader,
    report: CacheReport,
) -> Result<AfterExchange, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let opening = reader.opening();
    let known = || KnownResponse {
        status: opening.stored.status,
        head: &opening.head,
        size: opening.body_bytes,
        server: "",
    };
    if later::compression(ctx, routed, &exchange.memory.request, known).is_none() {
        return as_stored(exchange, reader, report).await;
    }
    match coded::pick_arriving(ctx, routed, exchange.memory, reader) {
        Arriving::AsStored(reader) => as_stored(exchange, reader, report).await,
        Arriving::Form(reader, opening) => form(exchange, reader, &opening, report).await,
        Arriving::Made(form) => hit::whole(exchange, &form, report).await,
    }
}

/// Sends another form of a response, as far as it is made.
pub(super) async fn form(
    exchange: &mut Exchange<'_, '_>,
    reader: FormReader,
    opening: &Opening,
    report: CacheReport,
) -> Result<AfterExchange, Failure> {
    send(exchange, BodySource::Form(reader, 0), opening, report).await
}

async fn as_stored(
    exchange: &mut Exchange<'_, '_>,
    reader: FillReader,
    report: CacheReport,
) -> Result<AfterExchange, Failure> {
    let opening = reader.opening().clone();
    send(exchange, BodySource::Stored(reader), &opening, report).await
}

/// Sends as much of a response as the client wants, while it may still arrive.
async fn send(
    exchange: &mut Exchange<'_, '_>,
    mut source: BodySource,
    opening: &Opening,
    report: CacheReport,
) -> Result<AfterExchange, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let body_bytes = opening.body_bytes;
    let part = opening.stored.part.map(|part| (part.start..part.end, part.whole_bytes));
    let wanted = match part {
        // A part that this client alone has requested.
        Some((range, whole_bytes)) => WantedPart::Extent(SentPart::Part(range, whole_bytes)),
        None => wanted(&exchange.memory.request, &opening.stored, &opening.head, body_bytes),
    };
    let extent = match wanted {
        // A request for several ranges gets the complete response, because a later range may arrive first.
        WantedPart::Extent(SentPart::Parts(..)) => SentPart::Whole,
        WantedPart::Extent(extent) => extent,
        WantedPart::Nothing => {
            let whole_bytes = body_bytes.unwrap_or_default();
            return unsatisfied(exchange, whole_bytes, report).await;
        }
    };
    let is_head_alone = routed.method == Method::Head || extent == SentPart::NotModified;
    let framing = match (&extent, body_bytes) {
        (SentPart::NotModified, _) => BodyFraming::None,
        (SentPart::Part(range, _), _) => BodyFraming::Length(range.end - range.start),
        (_, Some(length)) => BodyFraming::Length(length),
        // RFC 9110 §9.3.2: a form that is not complete has no known length.
        (_, None) if is_head_alone => BodyFraming::None,
        (_, None) => BodyFraming::Chunked,
    };
    let status = extent.status(&opening.stored);
    let mut plan = ResponsePlan::new(ctx, routed, status, framing, true);
    if exchange.state.has_fault() {
        faults::add_to_routed(ctx, routed, &mut plan, status, false, exchange.state);
    }
    let age_seconds = opening.stored.age_seconds(report.now_ms);
    let stored_head = StoredHead {
        stored: &opening.stored,
        head: &opening.head,
        hidden: &opening.hidden,
        extent: &extent,
        handling: report.handling,
        // RFC 9111 §5.1: no Age for a new response.
        age_seconds: (age_seconds > 0).then_some(age_seconds),
        ttl_seconds: opening.stored.ttl_seconds(report.now_ms),
        key: report.shows_key.then_some(&*opening.key_text),
    };
    head::write(ctx, routed, exchange.memory, &stored_head, &plan)?;
    exchange.state.answers(status);
    let wanted = match extent {
        SentPart::Part(range, _) if opening.stored.part.is_none() => range,
        _ => 0..u64::MAX,
    };
    let out = &mut exchange.memory.response.out;
    let sink = BodySink::paced(ctx, routed, plan, out, exchange.state);
    let sending = Sending { sink, wanted, is_head_alone };
    match sending.body(&mut source, out, exchange.state).await {
        Ok(()) => Ok(sending.sink.plan().next()),
        Err(end) => broken(exchange, &end, sending.sink.has_begun()),
    }
}

/// Ends a response that breaks off.
#[cold]
fn broken(
    exchange: &mut Exchange<'_, '_>,
    end: &BodyBreak,
    has_begun: bool,
) -> Result<AfterExchange, Failure> {
    if let BodyBreak::Source(error) = end {
        exchange.memory.response.wrong = Some(error.to_string());
    }
    if has_begun {
        return Ok(respond::cut(exchange, end.failure()));
    }
    // The head was not sent: the client gets an error response.
    exchange.state.answers_nothing();
    Err(end.failure())
}

/// Reader of a stored body that may still grow.
enum BodySource {
    Stored(FillReader),
    /// A form of it, and how many bytes of that were read.
    Form(FormReader, u64),
}

impl BodySource {
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
    sink: BodySink<'a>,
    /// The range of bytes to send.
    wanted: Range<u64>,
    /// Whether only the head is sent: the response to a HEAD, or a 304.
    is_head_alone: bool,
}

impl Sending<'_> {
    /// Sends `out`, and the body behind it.
    async fn body(
        &self,
        reader: &mut BodySource,
        out: &mut Vec<u8>,
        state: &mut ExchangeState<'_>,
    ) -> Result<(), BodyBreak> {
        let plan = self.sink.plan();
        let mut taken_bytes = 0;
        self.sink.begin(out).await?;
        while !self.is_whole(taken_bytes) {
            let Some(part) = self.next(reader, out).await? else { break };
            let part = self.within(part, reader.read_bytes());
            // All of these bytes lie before the wanted range.
            if part.is_empty() {
                continue;
            }
            taken_bytes += part.len() as u64;
            let sent = self.sink.send_part(out, &part, self.is_whole(taken_bytes)).await;
            state.body_bytes_sent = self.sink.sent_bytes();
            sent?;
        }
        if self.is_head_alone || matches!(plan.framing, BodyFraming::Length(_)) {
            return Ok(self.sink.send(out, b"", plan.at_end()).await?);
        }
        Ok(self.sink.end(out, b"", b"").await?)
    }

    /// Whether this number of bytes completes a body of announced length.
    fn is_whole(&self, taken_bytes: u64) -> bool {
        match self.sink.plan().framing {
            _ if self.is_head_alone => true,
            BodyFraming::Length(length) => taken_bytes == length,
            BodyFraming::None | BodyFraming::Chunked | BodyFraming::UntilClose => false,
        }
    }

    /// Returns the next part of the body. Sends `out` before a wait.
    async fn next(&self, reader: &mut BodySource, out: &mut Vec<u8>) -> Result<Option<Bytes>, BodyBreak> {
        let next = match poll_fn(|context| Poll::Ready(reader.poll_next(context))).await {
            Poll::Ready(next) => next,
            Poll::Pending => {
                // What is ready leaves before the wait: the next piece may take long.
                self.sink.send(out, b"", Follows::Nothing).await?;
                out.clear();
                poll_fn(|context| reader.poll_next(context)).await
            }
        };
        next.transpose().map_err(BodyBreak::Source)
    }

    /// Cuts a part of the body to the wanted range; `end` is the offset of the part's end.
    fn within(&self, part: Bytes, end: u64) -> Bytes {
        let begin = end - part.len() as u64;
        let inside = |at: u64| at.clamp(begin, end) - begin;
        part.slice(inside(self.wanted.start) as usize..inside(self.wanted.end) as usize)
    }
}

/// The reason why a body breaks off.
enum BodyBreak {
    Client(Failure),
    Source(ReadError),
}

impl BodyBreak {
    /// Returns the failure, as it would be without a cache.
    fn failure(&self) -> Failure {
        match self {
            Self::Client(failure) => *failure,
            Self::Source(ReadError::Malformed) => Failure::UpstreamFraming,
            Self::Source(ReadError::Stalled) => Failure::UpstreamStalled,
            Self::Source(ReadError::Undecodable) => Failure::UpstreamUndecodable,
            Self::Source(ReadError::Broken) => Failure::UpstreamTruncated,
            Self::Source(ReadError::Behind) => Failure::ClientBehind,
        }
    }
}

impl From<Failure> for BodyBreak {
    fn from(failure: Failure) -> Self {
        Self::Client(failure)
    }
}
