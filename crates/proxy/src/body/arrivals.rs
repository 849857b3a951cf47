//! When the pieces of a stream come from its server: how long its client waited for the first one, and the longest time
//! in which none came. Only where metrics are on, and only for responses whose length is not known.

use std::cell::Cell;
use std::time::{Duration, Instant};

use grpc::{ContentType, Form};
use http1::{Framing, Name};
use telemetry::{Place, StreamCell, StreamKind};

use crate::context::exchange::ExchangeContext;
use crate::context::exchange_slot::{Request, Response};
use crate::context::record::Record;
use crate::context::seen;

/// The pieces of one stream.
pub(crate) struct Arrivals<'a> {
    cell: &'a StreamCell,
    /// When the request began.
    began: Instant,
    last: Cell<Option<Instant>>,
    longest: Cell<Duration>,
}

impl<'a> Arrivals<'a> {
    /// The pieces of a response with this framing, if it is a stream.
    #[inline]
    pub(crate) fn of_response(
        ctx: &ExchangeContext<'a>,
        record: &Record<'_>,
        framing: Framing,
        response: &Response,
    ) -> Option<Self> {
        if matches!(framing, Framing::None | Framing::Length(_)) {
            return None;
        }
        let (place, began) = record.counted()?;
        Self::begin(ctx, place, began, kind(response)?)
    }

    /// The pieces of a connection that has become another protocol's.
    #[cold]
    pub(crate) fn of_upgrade(
        ctx: &ExchangeContext<'a>,
        record: &Record<'_>,
        request: &Request,
    ) -> Option<Self> {
        let (place, began) = record.counted()?;
        let protocol = request.head.value(request.head_bytes(), Name::Upgrade)?;
        let is_websocket = protocol.eq_ignore_ascii_case(b"websocket");
        is_websocket.then(|| Self::begin(ctx, place, began, StreamKind::WebSocket))?
    }

    fn begin(ctx: &ExchangeContext<'a>, place: Place, began: Instant, kind: StreamKind) -> Option<Self> {
        let cell = ctx.worker.series.route(place).streams[kind as usize].cell();
        Some(Self { cell, began, last: Cell::new(None), longest: Cell::default() })
    }

    /// Something has come, or the end.
    pub(crate) fn piece(&self) {
        let now = Instant::now();
        match self.last.replace(Some(now)) {
            None => self.cell.first_byte.observe(now.duration_since(self.began)),
            Some(last) => self.longest.set(self.longest.get().max(now.duration_since(last))),
        }
    }
}

/// However it ends, the time since the last piece counts.
impl Drop for Arrivals<'_> {
    fn drop(&mut self) {
        if let Some(last) = self.last.get() {
            self.cell.longest_gap.observe(self.longest.get().max(last.elapsed()));
        }
    }
}

#[cold]
fn kind(response: &Response) -> Option<StreamKind> {
    let media_type = seen::line(&response.head, response.buffer.filled(), b"content-type")?;
    if ContentType::of(media_type).is_some_and(|content| content.form == Form::Grpc) {
        return Some(StreamKind::Grpc);
    }
    let media_type = media_type.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii();
    media_type.eq_ignore_ascii_case(b"text/event-stream").then_some(StreamKind::Events)
}
