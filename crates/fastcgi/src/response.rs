//! Reads the response to a request: the head as HTTP/1.1 text, the pieces of the body, the error output, the end.
//!
//! Pieces are lent from what the caller has read; only a head is copied, into memory that the next one reuses.

use crate::decode::{DecodedOutput, Decoder, EndRequest, FastcgiBroken, ProtocolStatus, RecordLimits};
use crate::head::{Body, CgiHeadError, CgiHeadLimits, HeadEnd, HeadOutline, write_head, write_plain_head};

/// Limits on a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseLimits {
    /// Limits on the records.
    pub records: RecordLimits,
    /// Limits on the head.
    pub head: CgiHeadLimits,
    /// The most bytes of error output that are handed out. The rest is counted and dropped: a script that warns much is
    /// no reason to fail its response.
    pub stderr_bytes: usize,
}

/// Result of one call of [`Response::read`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// All bytes were read; the response goes on.
    More,
    /// The head is complete, and its text was appended.
    Head {
        /// Its properties.
        outline: HeadOutline,
        /// The piece of the body that has arrived with its end; may be empty.
        body: &'a [u8],
    },
    /// A piece of the body. Never empty.
    Body(&'a [u8]),
    /// A piece of the error output. Never empty.
    Stderr(&'a [u8]),
    /// The response is complete. Unless the protocol status is `Complete`, it is a refusal: if no head was read, the
    /// request may be sent to another server, and otherwise the response is broken.
    End(EndRequest),
}

/// Why a response is refused. The connection must not be used any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ResponseError {
    /// A record breaks a rule of FastCGI.
    #[error(transparent)]
    Record(#[from] FastcgiBroken),
    /// The head is refused.
    #[error(transparent)]
    Head(#[from] CgiHeadError),
    /// The body is longer than its Content-Length.
    #[error("the body is longer than its Content-Length, {length} bytes (RFC 9110 §8.6)")]
    BodyTooLong {
        /// The Content-Length.
        length: u64,
    },
    /// The body is shorter than its Content-Length.
    #[error("the body ends {missing} bytes before its Content-Length, {length} bytes (RFC 9110 §8.6)")]
    BodyTooShort {
        /// The Content-Length.
        length: u64,
        /// How many bytes are missing.
        missing: u64,
    },
}

#[derive(Debug, Clone, Copy)]
enum ResponseStage {
    /// Within the head.
    Head(HeadEnd),
    /// Within a body of known length.
    Length { length: u64, left: u64 },
    /// Within a body of unknown length.
    Unknown,
    /// The body is dropped.
    Dropped,
    /// After an error.
    Failed(ResponseError),
}

/// Reads one response after the other from a connection.
#[derive(Debug)]
pub struct Response {
    limits: ResponseLimits,
    decoder: Decoder,
    stage: ResponseStage,
    /// The head, as far as it has arrived.
    head: Vec<u8>,
    /// Whether the request is a HEAD.
    to_head: bool,
    stderr_left: usize,
    stderr_dropped: u64,
}

/// The most memory that is kept for the next head.
const KEEP_MAX: usize = 4096;

impl Response {
    /// Awaits the response to the first request of a connection. `to_head` says whether that is a HEAD.
    pub fn new(limits: ResponseLimits, to_head: bool) -> Self {
        Self {
            limits,
            decoder: Decoder::new(limits.records),
            stage: ResponseStage::Head(HeadEnd::default()),
            head: Vec::new(),
            to_head,
            stderr_left: limits.stderr_bytes,
            stderr_dropped: 0,
        }
    }

    /// Awaits the response to a further request on a kept connection.
    ///
    /// # Panics
    /// If the response before has not ended.
    pub fn begin(&mut self, to_head: bool) {
        self.decoder.begin();
        self.stage = ResponseStage::Head(HeadEnd::default());
        self.to_head = to_head;
        self.stderr_left = self.limits.stderr_bytes;
        self.stderr_dropped = 0;
    }

    /// Whether the response has ended as it should: only then may the connection carry a further request, if the whole
    /// request was sent.
    pub fn has_ended(&self) -> bool {
        self.decoder.has_ended() && !matches!(self.stage, ResponseStage::Failed(_))
    }

    /// Whether the head has been read.
    pub fn has_head(&self) -> bool {
        matches!(self.stage, ResponseStage::Length { .. } | ResponseStage::Unknown | ResponseStage::Dropped)
    }

    /// How many bytes of error output exceeded [`ResponseLimits::stderr_bytes`].
    pub fn stderr_dropped(&self) -> u64 {
        self.stderr_dropped
    }

    /// Reads up to the next event, and returns how many bytes that took. After [`Event::More`], it took all of them. The
    /// text of a head is appended to `text`.
    ///
    /// # Errors
    /// The response is refused. Every further call returns the same error.
    #[inline]
    pub fn read<'a>(
        &mut self,
        bytes: &'a [u8],
        text: &mut Vec<u8>,
    ) -> Result<(usize, Event<'a>), ResponseError> {
        let mut at = 0;
        loop {
            if let ResponseStage::Failed(error) = self.stage {
                return Err(error);
            }
            let (taken, output) =
                self.decoder.decode(&bytes[at..]).map_err(|broken| self.fail(broken.into()))?;
            at += taken;
            let event = match output {
                DecodedOutput::More => Some(Event::More),
                DecodedOutput::Stdout(piece) => self.stdout(piece, text).map_err(|error| self.fail(error))?,
                DecodedOutput::Stderr(piece) => self.stderr(piece),
                DecodedOutput::End(end) => Some(self.end(end).map_err(|error| self.fail(error))?),
            };
            if let Some(event) = event {
                return Ok((at, event));
            }
        }
    }

    /// The connection has ended: explains in which part of the response. `None` if the response was complete.
    #[cold]
    pub fn cut_off(&self) -> Option<&'static str> {
        Some(match self.stage {
            _ if self.has_ended() => return None,
            ResponseStage::Failed(_) => "the response was refused before",
            _ if self.decoder.is_within_record() => "the connection ended within a record (FastCGI §3.3)",
            ResponseStage::Head(_) if self.head.is_empty() => "the connection ended before the response",
            ResponseStage::Head(_) => "the connection ended within the response head (RFC 3875 §6.2)",
            _ => "the connection ended without END_REQUEST (FastCGI §5.5)",
        })
    }

    #[cold]
    fn fail(&mut self, error: ResponseError) -> ResponseError {
        self.stage = ResponseStage::Failed(error);
        error
    }

    fn stdout<'a>(
        &mut self,
        piece: &'a [u8],
        text: &mut Vec<u8>,
    ) -> Result<Option<Event<'a>>, ResponseError> {
        match &mut self.stage {
            ResponseStage::Head(end) => {
                // Usually a record has the whole head.
                if self.head.is_empty()
                    && let Some((len, outline)) =
                        write_plain_head(piece, self.to_head, self.limits.head, text)
                {
                    return Ok(Some(self.begin_body(outline, &piece[len..])));
                }
                let (start, limit) = (self.head.len(), self.limits.head.bytes);
                let room = limit.saturating_sub(start).min(piece.len());
                self.head.extend_from_slice(&piece[..room]);
                let Some(len) = end.find(&self.head) else {
                    let is_too_large = self.head.len() == limit;
                    return if is_too_large { Err(CgiHeadError::TooLarge(limit).into()) } else { Ok(None) };
                };
                let outline = write_head(&self.head[..len], self.to_head, self.limits.head.fields, text)?;
                self.head.clear();
                self.head.shrink_to(KEEP_MAX);
                Ok(Some(self.begin_body(outline, &piece[len - start..])))
            }
            _ => {
                let body = self.body(piece);
                // The error for a body that is too long has no piece to go with.
                if let (true, ResponseStage::Failed(error)) = (body.is_empty(), self.stage) {
                    return Err(error);
                }
                Ok((!body.is_empty()).then_some(Event::Body(body)))
            }
        }
    }

    /// Begins the body with the piece of it that has arrived with the end of the head.
    #[inline]
    fn begin_body<'a>(&mut self, outline: HeadOutline, piece: &'a [u8]) -> Event<'a> {
        self.stage = match outline.body {
            Body::None => ResponseStage::Dropped,
            Body::Length(length) => ResponseStage::Length { length, left: length },
            Body::UntilEnd => ResponseStage::Unknown,
        };
        Event::Head { outline, body: self.body(piece) }
    }

    /// Returns the part of a piece that belongs to the body. The bytes beyond its length are an error of the next call, so
    /// that any split of the bytes gives the same body.
    #[inline]
    fn body<'a>(&mut self, piece: &'a [u8]) -> &'a [u8] {
        match &mut self.stage {
            ResponseStage::Unknown => piece,
            ResponseStage::Length { length, left } => {
                let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(piece.len());
                *left -= taken as u64;
                if taken < piece.len() {
                    self.stage = ResponseStage::Failed(ResponseError::BodyTooLong { length: *length });
                }
                &piece[..taken]
            }
            // RFC 3875 §4.3.2: the body of a response to HEAD is discarded, and so is that of a 204 or 304.
            ResponseStage::Head(_) | ResponseStage::Dropped | ResponseStage::Failed(_) => &[],
        }
    }

    #[cold]
    fn stderr<'a>(&mut self, piece: &'a [u8]) -> Option<Event<'a>> {
        let taken = piece.len().min(self.stderr_left);
        self.stderr_left -= taken;
        self.stderr_dropped += (piece.len() - taken) as u64;
        (taken > 0).then_some(Event::Stderr(&piece[..taken]))
    }

    fn end<'a>(&mut self, end: EndRequest) -> Result<Event<'a>, ResponseError> {
        if end.protocol_status == ProtocolStatus::Complete {
            match self.stage {
                ResponseStage::Head(_) => return Err(CgiHeadError::Incomplete(self.head.len()).into()),
                ResponseStage::Length { length, left: missing @ 1.. } => {
                    return Err(ResponseError::BodyTooShort { length, missing });
                }
                _ => {}
            }
        }
        self.head.clear();
        Ok(Event::End(end))
    }
}
