//! Pages of known size, with validators, preconditions and ranges. A fixed page without options or conditional fields
//! is sent from memory and does not reach this module.

use crate::conditional::{self, PreconditionAnswer, Validators};
use crate::connection::Stop;
use crate::content::{self, HELLO, LAST_MODIFIED, LAST_MODIFIED_UNIX_SECONDS};
use crate::exchange::OriginExchange;
use crate::head::{Length, OriginHead};
use crate::range::{self, ByteRange, Selection};

const GENERATED_CACHE_CONTROL: &str = "public, max-age=3600";

/// Boundary of multipart/byteranges. No page contains it after a line end, because no page has a CR.
const BOUNDARY: &str = "vanward-origin-part";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SizedPage {
    /// The first `bytes` bytes of the pattern.
    Pattern {
        bytes: u64,
    },
    /// The first `bytes` bytes of the pattern without validators, cacheable or not.
    Generated {
        bytes: u64,
        cacheable: bool,
    },
    Hello,
}

impl SizedPage {
    pub(crate) fn length(&self) -> u64 {
        match self {
            Self::Pattern { bytes } | Self::Generated { bytes, .. } => *bytes,
            Self::Hello => HELLO.len() as u64,
        }
    }

    /// Returns `length` bytes from `offset`, as contiguous pieces.
    pub(crate) fn pieces(&self, offset: u64, length: u64) -> impl Iterator<Item = &'static [u8]> {
        let (page, mut sent) = (*self, 0);
        std::iter::from_fn(move || {
            let (from, left) = (offset + sent, length - sent);
            let piece = match page {
                Self::Hello => HELLO.get(from as usize..(from + left) as usize).unwrap_or_default(),
                Self::Pattern { .. } | Self::Generated { .. } => content::pattern(from, left),
            };
            sent += piece.len() as u64;
            (left > 0).then_some(piece)
        })
    }

    fn content_type(&self) -> &'static str {
        match self {
            Self::Pattern { .. } | Self::Generated { .. } => "text/plain",
            Self::Hello => "text/html",
        }
    }

    fn etag(&self) -> String {
        match self {
            Self::Pattern { bytes } | Self::Generated { bytes, .. } => format!("\"pattern-{bytes}\""),
            Self::Hello => "\"hello\"".to_owned(),
        }
    }

    /// Head of a response with the whole page.
    pub(crate) fn head(&self, status: u16) -> OriginHead {
        let head =
            OriginHead::new(status, Length::Known(self.length())).field("Content-Type", self.content_type());
        self.describe(head)
    }

    /// Adds the fields that RFC 9110 §15.4.5 requires on every response about a representation, including 304.
    fn describe(&self, head: OriginHead) -> OriginHead {
        match self {
            Self::Generated { cacheable: true, .. } => head.field("Cache-Control", GENERATED_CACHE_CONTROL),
            Self::Generated { cacheable: false, .. } => head.field("Cache-Control", "no-store"),
            Self::Pattern { .. } | Self::Hello => head
                .field("Last-Modified", LAST_MODIFIED)
                .field("ETag", self.etag())
                .field("Accept-Ranges", "bytes"),
        }
    }

    pub(crate) async fn answer(&self, exchange: &mut OriginExchange<'_>) -> Result<(), Stop> {
        // RFC 9110 §13.2.1: preconditions count only if the response would be a success without them. A response whose
        // status an option sets cannot be 304, 206 or 416 either.
        let selective = !matches!(self, Self::Generated { .. }) && exchange.has_its_own_status();
        if !selective {
            return self.whole(exchange).await;
        }
        let etag = self.etag();
        let validators = Validators { etag: &etag, last_modified_unix_seconds: LAST_MODIFIED_UNIX_SECONDS };
        match conditional::evaluate(&exchange.request, &validators) {
            PreconditionAnswer::Proceed => {}
            PreconditionAnswer::NotModified => {
                return exchange.respond(self.describe(OriginHead::new(304, Length::None)), b"").await;
            }
            PreconditionAnswer::PreconditionFailed => {
                return exchange.respond(OriginHead::new(412, Length::Known(0)), b"").await;
            }
        }
        // RFC 9110 §14.2: Range is defined for GET alone, and is evaluated after the preconditions.
        let range = exchange.request.list("Range").filter(|_| exchange.request.method == "GET");
        let selection = match range {
            Some(value) if conditional::range_applies(&exchange.request, &validators) => {
                range::select(&value, self.length())
            }
            _ => Selection::Whole,
        };
        match selection {
            Selection::Whole => self.whole(exchange).await,
            Selection::Parts(parts) if parts.len() == 1 => self.part(exchange, parts[0]).await,
            Selection::Parts(parts) => self.parts(exchange, &parts).await,
            Selection::Unsatisfiable => {
                // RFC 9110 §15.5.17: Content-Range has the length of the representation.
                let head = OriginHead::new(416, Length::Known(0)).field("Accept-Ranges", "bytes");
                exchange.respond(head.field("Content-Range", format!("bytes */{}", self.length())), b"").await
            }
        }
    }

    async fn whole(&self, exchange: &mut OriginExchange<'_>) -> Result<(), Stop> {
        exchange.begin(self.head(200));
        self.send(exchange, 0, self.length()).await?;
        exchange.finish(&[]).await
    }

    async fn part(&self, exchange: &mut OriginExchange<'_>, part: ByteRange) -> Result<(), Stop> {
        let head =
            OriginHead::new(206, Length::Known(part.length())).field("Content-Type", self.content_type());
        exchange.begin(self.describe(head).field("Content-Range", self.content_range(part)));
        self.send(exchange, part.first, part.length()).await?;
        exchange.finish(&[]).await
    }

    /// Sends several ranges as multipart/byteranges (RFC 9110 §14.6).
    async fn parts(&self, exchange: &mut OriginExchange<'_>, parts: &[ByteRange]) -> Result<(), Stop> {
        let openings: Vec<_> = parts
            .iter()
            .map(|part| {
                let (content_type, content_range) = (self.content_type(), self.content_range(*part));
                format!(
                    "\r\n--{BOUNDARY}\r\nContent-Type: {content_type}\r\nContent-Range: {content_range}\r\n\r\n"
                )
            })
            .collect();
        let closing = format!("\r\n--{BOUNDARY}--\r\n");
        let framing = openings.iter().map(String::len).sum::<usize>() + closing.len();
        let length = framing as u64 + parts.iter().map(|part| part.length()).sum::<u64>();
        let head = OriginHead::new(206, Length::Known(length))
            .field("Content-Type", format!("multipart/byteranges; boundary={BOUNDARY}"));
        exchange.begin(self.describe(head));
        for (part, opening) in parts.iter().zip(openings) {
            exchange.piece(opening.as_bytes()).await?;
            self.send(exchange, part.first, part.length()).await?;
        }
        exchange.piece(closing.as_bytes()).await?;
        exchange.finish(&[]).await
    }

    fn content_range(&self, part: ByteRange) -> String {
        format!("bytes {}-{}/{}", part.first, part.last, self.length())
    }

    async fn send(&self, exchange: &mut OriginExchange<'_>, offset: u64, length: u64) -> Result<(), Stop> {
        match self {
            Self::Pattern { .. } | Self::Generated { .. } => exchange.pattern(offset, length).await,
            Self::Hello => exchange.piece(&HELLO[offset as usize..(offset + length) as usize]).await,
        }
    }
}
