//! Decides which responses are timed as streams: those of unknown length, while metrics are on.

use std::time::Instant;

use grpc::{CallForm, ContentType};
use http1::{BodyFraming, Name};
use telemetry::{SeriesIndex, StreamKind};

use crate::body::arrivals::StreamPieces;
use crate::context::exchange_slot::{CurrentRequest, CurrentResponse};
use crate::context::routed::ExchangeContext;
use crate::context::seen;
use crate::record::ExchangeRecord;

/// Returns the timer for the pieces of a response, if it is a stream.
#[inline]
pub(crate) fn of_response<'a>(
    ctx: &ExchangeContext<'a>,
    record: &ExchangeRecord<'_>,
    framing: BodyFraming,
    response: &CurrentResponse,
) -> Option<StreamPieces<'a>> {
    // A body of known length was made as a whole, so its pieces tell nothing.
    if matches!(framing, BodyFraming::None | BodyFraming::Length(_)) {
        return None;
    }
    let (place, began) = record.counted()?;
    begin(ctx, place, began, kind(response)?)
}

/// Returns the timer for the pieces of an upgraded connection.
#[cold]
pub(crate) fn of_upgrade<'a>(
    ctx: &ExchangeContext<'a>,
    record: &ExchangeRecord<'_>,
    request: &CurrentRequest,
) -> Option<StreamPieces<'a>> {
    let (place, began) = record.counted()?;
    let protocol = request.head.value(request.head_bytes(), Name::Upgrade)?;
    let is_websocket = protocol.eq_ignore_ascii_case(b"websocket");
    is_websocket.then(|| begin(ctx, place, began, StreamKind::WebSocket))?
}

fn begin<'a>(
    ctx: &ExchangeContext<'a>,
    place: SeriesIndex,
    began: Instant,
    kind: StreamKind,
) -> Option<StreamPieces<'a>> {
    let cell = ctx.worker.series.route(place).streams[kind as usize].cell();
    Some(StreamPieces::new(cell, began))
}

#[cold]
fn kind(response: &CurrentResponse) -> Option<StreamKind> {
    let media_type = seen::line(&response.head, response.buffer.filled(), b"content-type")?;
    if ContentType::parse(media_type).is_some_and(|content| content.form == CallForm::Grpc) {
        return Some(StreamKind::Grpc);
    }
    let media_type = media_type.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii();
    media_type.eq_ignore_ascii_case(b"text/event-stream").then_some(StreamKind::Events)
}
