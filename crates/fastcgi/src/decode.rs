//! Incremental decoder of the records that an application sends (FastCGI 1.0 §3.3, §5.3, §5.5).
//!
//! Content is lent from the bytes that the caller has read, never copied. Any split of the bytes gives the same
//! content, and the same error.

use crate::record::{HEADER_BYTES, Header, REQUEST_ID, RecordType, VERSION};

/// Limits on the records of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordLimits {
    /// The most records without content. Each costs the application eight bytes, and gives nothing.
    pub empty_records: u32,
}

impl Default for RecordLimits {
    fn default() -> Self {
        Self { empty_records: 16 }
    }
}

/// Result of one call of the decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecodedOutput<'a> {
    /// All bytes were decoded; the response goes on.
    More,
    /// A piece of the response: head, then body. Never empty.
    Stdout(&'a [u8]),
    /// A piece of the error output. Never empty.
    Stderr(&'a [u8]),
    /// The response is complete.
    End(EndRequest),
}

/// Content of the last record of a response (FastCGI §5.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndRequest {
    /// The exit code of a CGI program. php-fpm always sends 0.
    pub app_status: u32,
    /// Whether the application has handled the request.
    pub protocol_status: ProtocolStatus,
}

/// The protocol status of END_REQUEST (FastCGI §5.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ProtocolStatus {
    /// The request was handled (FCGI_REQUEST_COMPLETE).
    Complete = 0,
    /// The application serves one request at a time on a connection, and has one (FCGI_CANT_MPX_CONN).
    CannotMultiplex = 1,
    /// The application has no room; another server may be asked (FCGI_OVERLOADED).
    Overloaded = 2,
    /// The application is no responder (FCGI_UNKNOWN_ROLE).
    UnknownRole = 3,
}

impl ProtocolStatus {
    fn from_number(number: u8) -> Option<Self> {
        [Self::Complete, Self::CannotMultiplex, Self::Overloaded, Self::UnknownRole]
            .into_iter()
            .find(|status| *status as u8 == number)
    }

    /// Whether the application has not begun to handle the request, so that it may be sent again.
    pub fn is_untouched(self) -> bool {
        self != Self::Complete
    }
}

/// A broken rule of the protocol. The connection must not be used any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("record {record} of the response: {rule}")]
pub struct FastcgiBroken {
    /// The number of the record in the response, from 1.
    pub record: u64,
    pub rule: Rule,
}

/// A rule of the protocol, with what was received instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Rule {
    /// The version is not 1.
    #[error("its version is {0}, not 1 (FastCGI §3.3)")]
    Version(u8),
    /// The type is none that an application may send in a response.
    #[error("its type is {0}; a response has STDOUT (6), STDERR (7) and END_REQUEST (3) (FastCGI §6.2)")]
    Type(u8),
    /// The record belongs to another request.
    #[error("its request ID is {0}, not 1 (FastCGI §3.3)")]
    RequestId(u16),
    /// STDOUT has content after the empty record that ends it.
    #[error("it adds to STDOUT after its end (FastCGI §3.3)")]
    StdoutEnded,
    /// STDERR has content after the empty record that ends it.
    #[error("it adds to STDERR after its end (FastCGI §3.3)")]
    StderrEnded,
    /// END_REQUEST has another length.
    #[error("END_REQUEST has {0} bytes, not 8 (FastCGI §5.5)")]
    EndLength(u16),
    /// END_REQUEST has an unknown protocol status.
    #[error("its protocol status is {0}; there are 0 to 3 (FastCGI §5.5)")]
    ProtocolStatus(u8),
    /// Bytes follow END_REQUEST, though no further request was sent.
    #[error("it follows the end of the response (FastCGI §5.5)")]
    AfterEnd,
    /// There are more records without content than [`RecordLimits::empty_records`].
    #[error("there are more than {0} records without content")]
    TooManyEmpty(u32),
}

/// The size of END_REQUEST.
const END_BYTES: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DecodeState {
    /// Within a header.
    Header { held: [u8; HEADER_BYTES], len: u8 },
    /// Within the content of STDOUT or STDERR.
    Content { stream: Stream, left: u16, padding: u8 },
    /// Within END_REQUEST.
    End { held: [u8; END_BYTES], len: u8, padding: u8 },
    /// Within padding; the end of the response is reported behind it.
    Padding { left: u8, end: Option<EndRequest> },
    /// After END_REQUEST.
    Ended,
    /// After an error.
    Broken(Rule),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stream {
    Stdout,
    Stderr,
}

const START: DecodeState = DecodeState::Header { held: [0; HEADER_BYTES], len: 0 };

/// Decodes the records of one response after the other.
#[derive(Debug, Clone)]
pub struct Decoder {
    limits: RecordLimits,
    state: DecodeState,
    /// The number of the record, from 1.
    record: u64,
    empty: u32,
    has_stdout_ended: bool,
    has_stderr_ended: bool,
}

impl Decoder {
    /// A decoder that awaits the response to a first request.
    pub fn new(limits: RecordLimits) -> Self {
        Self { limits, state: START, record: 1, empty: 0, has_stdout_ended: false, has_stderr_ended: false }
    }

    /// Awaits the response to a further request on a kept connection.
    ///
    /// # Panics
    /// If the response before has not ended.
    pub fn begin(&mut self) {
        assert!(self.has_ended(), "a connection carries one request at a time");
        *self = Self::new(self.limits);
    }

    /// Whether the response has ended with END_REQUEST: only then may the connection carry a further request.
    pub fn has_ended(&self) -> bool {
        self.state == DecodeState::Ended
    }

    /// Whether a record has begun, and the rest of it has not arrived.
    pub fn is_within_record(&self) -> bool {
        !matches!(
            self.state,
            DecodeState::Header { len: 0, .. } | DecodeState::Ended | DecodeState::Broken(_)
        )
    }

    /// Decodes up to the next event, and returns how many bytes that took. After [`DecodedOutput::More`], it took all of them.
    ///
    /// # Errors
    /// The application has broken a rule of the protocol. Every further call returns the same error.
    #[inline]
    pub fn decode<'a>(&mut self, bytes: &'a [u8]) -> Result<(usize, DecodedOutput<'a>), FastcgiBroken> {
        let mut at = 0;
        loop {
            let rest = &bytes[at..];
            if rest.is_empty() {
                return Ok((at, DecodedOutput::More));
            }
            let (taken, output) = self.step(rest).map_err(|rule| self.broken(rule))?;
            at += taken;
            if let Some(output) = output {
                return Ok((at, output));
            }
        }
    }

    #[cold]
    fn broken(&mut self, rule: Rule) -> FastcgiBroken {
        self.state = DecodeState::Broken(rule);
        FastcgiBroken { record: self.record, rule }
    }

    /// Takes at least one byte, as far as the state goes.
    fn step<'a>(&mut self, bytes: &'a [u8]) -> Result<(usize, Option<DecodedOutput<'a>>), Rule> {
        match self.state {
            // Nearly always a whole header is here.
            DecodeState::Header { len: 0, .. } if let Some(header) = bytes.first_chunk() => {
                self.state = self.header(Header::decode(*header))?;
                Ok((HEADER_BYTES, None))
            }
            DecodeState::Header { held, len } => {
                let (taken, held, len) = gather(held, len, bytes);
                self.state = if usize::from(len) == HEADER_BYTES {
                    self.header(Header::decode(held))?
                } else {
                    DecodeState::Header { held, len }
                };
                Ok((taken, None))
            }
            DecodeState::Content { stream, left, padding } => {
                let taken = bytes.len().min(usize::from(left));
                let left = left - taken as u16;
                self.state = if left > 0 {
                    DecodeState::Content { stream, left, padding }
                } else {
                    self.behind(padding)
                };
                let piece = &bytes[..taken];
                Ok((
                    taken,
                    Some(match stream {
                        Stream::Stdout => DecodedOutput::Stdout(piece),
                        Stream::Stderr => DecodedOutput::Stderr(piece),
                    }),
                ))
            }
            DecodeState::End { held, len, padding } => {
                let (taken, held, len) = gather(held, len, bytes);
                if usize::from(len) < END_BYTES {
                    self.state = DecodeState::End { held, len, padding };
                    return Ok((taken, None));
                }
                let end = end_request(held)?;
                self.state = DecodeState::Padding { left: padding, end: Some(end) };
                Ok((taken, if padding == 0 { self.end() } else { None }))
            }
            DecodeState::Padding { left, end } => {
                let taken = bytes.len().min(usize::from(left));
                let left = left - taken as u8;
                self.state = DecodeState::Padding { left, end };
                Ok((taken, if left == 0 { self.end() } else { None }))
            }
            DecodeState::Ended => Err(Rule::AfterEnd),
            DecodeState::Broken(rule) => Err(rule),
        }
    }

    /// The state after a complete header.
    #[inline]
    fn header(&mut self, header: Header) -> Result<DecodeState, Rule> {
        let Header { version, kind, id, content, padding } = header;
        if version != VERSION {
            return Err(Rule::Version(version));
        }
        let stream = match RecordType::from_number(kind) {
            Some(RecordType::Stdout) => Some(Stream::Stdout),
            Some(RecordType::Stderr) => Some(Stream::Stderr),
            Some(RecordType::EndRequest) => None,
            // Management records are answers to questions that were not asked (FastCGI §4).
            _ => return Err(Rule::Type(kind)),
        };
        if id != REQUEST_ID {
            return Err(Rule::RequestId(id));
        }
        let Some(stream) = stream else {
            return if usize::from(content) == END_BYTES {
                Ok(DecodeState::End { held: [0; END_BYTES], len: 0, padding })
            } else {
                Err(Rule::EndLength(content))
            };
        };
        let has_ended = match stream {
            Stream::Stdout => &mut self.has_stdout_ended,
            Stream::Stderr => &mut self.has_stderr_ended,
        };
        if content == 0 {
            // FastCGI §3.3: a stream ends with an empty record. Some applications send several, some none.
            *has_ended = true;
            self.empty += 1;
            return if self.empty > self.limits.empty_records {
                Err(Rule::TooManyEmpty(self.limits.empty_records))
            } else {
                Ok(self.behind(padding))
            };
        }
        match (*has_ended, stream) {
            (false, _) => Ok(DecodeState::Content { stream, left: content, padding }),
            (true, Stream::Stdout) => Err(Rule::StdoutEnded),
            (true, Stream::Stderr) => Err(Rule::StderrEnded),
        }
    }

    /// The state behind the content of STDOUT or STDERR.
    #[inline]
    fn behind(&mut self, padding: u8) -> DecodeState {
        if padding > 0 {
            return DecodeState::Padding { left: padding, end: None };
        }
        self.record += 1;
        START
    }

    /// The padding is complete: the next record follows, or the end of the response is reported. It is reported behind
    /// the padding, so that a kept connection has no byte of the response left.
    fn end<'a>(&mut self) -> Option<DecodedOutput<'a>> {
        self.record += 1;
        match self.state {
            DecodeState::Padding { end: Some(end), .. } => {
                self.state = DecodeState::Ended;
                Some(DecodedOutput::End(end))
            }
            _ => {
                self.state = START;
                None
            }
        }
    }
}

/// Adds bytes to those of a fixed part of a record. Returns how many were added.
#[inline]
fn gather<const LEN: usize>(mut held: [u8; LEN], len: u8, bytes: &[u8]) -> (usize, [u8; LEN], u8) {
    let start = usize::from(len);
    let taken = bytes.len().min(LEN - start);
    held[start..start + taken].copy_from_slice(&bytes[..taken]);
    (taken, held, len + taken as u8)
}

/// FastCGI §5.5: the exit code, the protocol status, three reserved bytes.
fn end_request([a, b, c, d, status, ..]: [u8; END_BYTES]) -> Result<EndRequest, Rule> {
    let protocol_status = ProtocolStatus::from_number(status).ok_or(Rule::ProtocolStatus(status))?;
    Ok(EndRequest { app_status: u32::from_be_bytes([a, b, c, d]), protocol_status })
}
