//! A finished request and its response, for captures.

use std::time::{Instant, SystemTime};

use capture::{CapturedBody, CapturedRequest, CapturedResponse, CapturedScheme, LIVE_BODY_BYTES_MAX};
use http1::{HttpVersion, RequestTarget};
use route::FieldLookup as _;

use crate::context::exchange_slot::CurrentRequest;
use crate::context::seen::{self, RequestFields};
use crate::record::ExchangeRecord;
use crate::shared::request_fields::fields_of_text;

/// Bytes that are no text are replaced: the file of a capture is JSON.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn fields<'f>(fields: impl Iterator<Item = (&'f [u8], &'f [u8])>) -> Vec<(String, String)> {
    fields.map(|(name, value)| (text(name), text(value))).collect()
}

impl ExchangeRecord<'_> {
    /// Gives the request to the captures. A request that could not be read is in none.
    #[cold]
    pub(super) fn give_to_captures(&self, request: &CurrentRequest) {
        let (head, bytes) = (&request.head, request.head_bytes());
        let Ok(target) = RequestTarget::from_head(head, bytes) else { return };
        let path = target.path_and_query.for_bytes(bytes);
        // CONNECT has no path.
        if head.len == 0 || !path.starts_with(b"/") && path != b"*" {
            return;
        }
        let label = self.route.map(|route| &*self.ctx.snapshot.plan.routes[route].label);
        self.ctx.worker.captures.give(label, |has_body| self.captured(request, &target, has_body));
    }

    fn captured(&self, request: &CurrentRequest, target: &RequestTarget, has_body: bool) -> CapturedRequest {
        let (head, bytes) = (&request.head, request.head_bytes());
        let began = self.ctx.worker.wall_clock_at(self.began.unwrap_or_else(Instant::now));
        let time_ms = began.duration_since(SystemTime::UNIX_EPOCH).ok();
        let body_bytes = self.bytes_received(request) - head.len as u64;
        let buffered = request.replay.as_ref().filter(|_| has_body).and_then(|replay| replay.in_memory());
        // A body that was discarded is empty.
        let buffered = buffered
            .filter(|body| body.len() as u64 == body_bytes && body.len() <= LIVE_BODY_BYTES_MAX)
            .map(CapturedBody::of);
        let body = buffered.unwrap_or(CapturedBody { bytes: body_bytes, base64: None });
        let lines = RequestFields::new(head, bytes);
        let lines = lines.lines().filter(|(name, _)| !name.eq_ignore_ascii_case(b"host"));
        CapturedRequest {
            time_ms: time_ms.map(|time| time.as_millis() as u64),
            client: Some(self.named.unwrap_or(self.ctx.client.address)),
            scheme: Some(match seen::scheme(self.ctx, head, bytes) {
                "https" => CapturedScheme::Https,
                _ => CapturedScheme::Http,
            }),
            // RFC 9112 §3.2.2: that of an absolute target replaces Host.
            host: Some(text(target.authority.for_bytes(bytes))).filter(|host| !host.is_empty()),
            method: text(head.start.method_span.for_bytes(bytes)),
            target: text(target.path_and_query.for_bytes(bytes)),
            version: Some(
                match head.start.version {
                    HttpVersion::Http10 => "1.0",
                    HttpVersion::Http11 => "1.1",
                    HttpVersion::Http2 => "2",
                    HttpVersion::Http3 => "3",
                }
                .to_owned(),
            ),
            fields: fields(lines),
            body: (body_bytes > 0).then_some(body),
            // A client may leave before it gets one.
            response: (self.status > 0).then(|| CapturedResponse {
                status: self.status,
                fields: fields(fields_of_text(&self.head)),
                body_bytes: Some(self.body_bytes_sent),
            }),
        }
    }
}
