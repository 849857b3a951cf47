//! Pages of known size, with validators, preconditions and ranges. A fixed page without options or conditional fields
//! is sent from memory and does not reach this module.

use crate::conditional::{self, Validators, Verdict};
use crate::connection::Stop;
use crate::content::{self, HELLO, LAST_MODIFIED, LAST_MODIFIED_UNIX_SECONDS};
use crate::exchange::Exchange;
use crate::head::{Head, Length};
use crate::range::{self, ByteRange, Selection};

/// Cache-Control of a cacheable generated page.
const GENERATED_CACHE_CONTROL: &str = "public, max-age=3600";

/// Boundary of multipart/byteranges. No page contains it after a line end, as no page has a CR.
const BOUNDARY: &str = "vanward-origin-part";

/// A page of known size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Page {
    /// The first `bytes` bytes of the pattern.
    Pattern { bytes: u64 },
    /// The first `bytes` bytes of the pattern without validators, cacheable or not.
    Generated { bytes: u64, cacheable: bool },
    /// A small HTML page.
    Hello,
}

impl Page {
    pub(crate) fn length(&self) -> u64 {
        match self {
            Self::Pattern { bytes } | Self::Generated { bytes, .. } => *bytes,
            Self::Hello => HELLO.len() as u64,
        }
    }

    /// The bytes from `offset`, `length` of them, as contiguous pieces.
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
    pub(crate) fn head(&self, status: u16) -> Head {
        let head = Head::new(status, Length::Known(self.length())).field("Content-Type", self.content_type());
        self.describe(head)
    }

    /// Adds the fields that RFC 9110 §15.4.5 requires on every response about a representation, including 304.
    fn describe(&self, head: Head) -> Head {
        match self {
            Self::Generated { cacheable: true, .. } => head.field("Cache-Control", GENERATED_CACHE_CONTROL),
            Self::Generated { cacheable: false, .. } => head.field("Cache-Control", "no-store"),
            Self::Pattern { .. } | Self::Hello => head
                .field("Last-Modified", LAST_MODIFIED)
                .field("ETag", self.etag())
                .field("Accept-Ranges", "bytes"),
        }
    }

    pub(crate) async fn answer(&self, exchange: &mut Exchange<'_>) -> Result<(), Stop> {
        // RFC 9110 §13.2.1: preconditions count only where the answer would be a success otherwise. One whose status is
        // given is no 304, 206 or 416 either.
        let selective = !matches!(self, Self::Generated { .. }) && exchange.has_its_own_status();
        if !selective {
            return self.whole(exchange).await;
        }
        let etag = self.etag();
        let validators = Validators { etag: &etag, last_modified_unix_seconds: LAST_MODIFIED_UNIX_SECONDS };
        match conditional::evaluate(&exchange.request, &validators) {
            Verdict::Proceed => {}
            Verdict::NotModified => {
                return exchange.respond(self.describe(Head::new(304, Length::None)), b"").await;
            }
            Verdict::PreconditionFailed => {
                return exchange.respond(Head::new(412, Length::Known(0)), b"").await;
            }
        }
        // RFC 9110 §14.2: Range is defined for GET alone, and comes after the preconditions.
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
                // RFC 9110 §15.5.17: says what there would have been.
                let head = Head::new(416, Length::Known(0)).field("Accept-Ranges", "bytes");
                exchange.respond(head.field("Content-Range", format!("bytes */{}", self.length())), b"").await
            }
        }
    }

    async fn whole(&self, exchange: &mut Exchange<'_>) -> Result<(), Stop> {
        exchange.begin(self.head(200));
        self.send(exchange, 0, self.length()).await?;
        exchange.finish(&[]).await
    }

    async fn part(&self, exchange: &mut Exchange<'_>, part: ByteRange) -> Result<(), Stop> {
        let head = Head::new(206, Length::Known(part.length())).field("Content-Type", self.content_type());
        exchange.begin(self.describe(head).field("Content-Range", self.content_range(part)));
        self.send(exchange, part.first, part.length()).await?;
        exchange.finish(&[]).await
    }

    /// Sends several ranges as multipart/byteranges (RFC 9110 §14.6).
    async fn parts(&self, exchange: &mut Exchange<'_>, parts: &[ByteRange]) -> Result<(), Stop> {
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
        let head = Head::new(206, Length::Known(length))
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

    async fn send(&self, exchange: &mut Exchange<'_>, offset: u64, length: u64) -> Result<(), Stop> {
        match self {
            Self::Pattern { .. } | Self::Generated { .. } => exchange.pattern(offset, length).await,
            Self::Hello => exchange.piece(&HELLO[offset as usize..(offset + length) as usize]).await,
        }
    }
}
