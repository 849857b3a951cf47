//! Decodes the framing of a body whose bytes are examined: for the store and for coders.

use http1::{BodyFraming, ChunkError, ChunkLimits, ChunkedDecoder};

/// The rest of a body that arrives.
pub(crate) struct IncomingBody {
    framing: BodyFraming,
    left: u64,
    decoder: ChunkedDecoder,
    is_over: bool,
}

/// Result of decoding the bytes that have arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Bytes of the body, moved to the front.
    pub(crate) data: usize,
    /// Bytes that were consumed. Those behind them follow the body.
    pub(crate) consumed: usize,
}

impl IncomingBody {
    pub(crate) fn new(framing: BodyFraming) -> Self {
        let left = if let BodyFraming::Length(length) = framing { length } else { 0 };
        // A body without bytes has no end that could still arrive.
        let is_over = framing == BodyFraming::None || framing == BodyFraming::Length(0);
        Self { framing, left, decoder: ChunkedDecoder::default(), is_over }
    }

    /// Decodes bytes that have arrived, and moves those of the body to the front.
    ///
    /// # Errors
    /// If the chunks are malformed.
    pub(crate) fn take(&mut self, bytes: &mut [u8]) -> Result<Taken, ChunkError> {
        let all = |count: usize| Taken { data: count, consumed: count };
        Ok(match self.framing {
            BodyFraming::None => all(0),
            BodyFraming::Length(_) => {
                let count = self.left.min(bytes.len() as u64);
                self.left -= count;
                self.is_over = self.left == 0;
                all(count as usize)
            }
            BodyFraming::UntilClose => all(bytes.len()),
            BodyFraming::Chunked => {
                let decoded = self.decoder.decode(bytes, &ChunkLimits::default())?;
                self.is_over = decoded.done;
                Taken { data: decoded.data, consumed: decoded.consumed }
            }
        })
    }

    /// Notes that the sender has closed. Returns whether that ends the body.
    pub(crate) fn closed(&mut self) -> bool {
        // RFC 9112 §6.3: only a body of unknown length without chunks ends with the connection.
        self.is_over |= self.framing == BodyFraming::UntilClose;
        self.is_over
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns the wanted trailers as lines; complete once the body is over.
    pub(crate) fn trailers(&mut self, is_wanted: impl Fn(&[u8]) -> bool) -> &[u8] {
        // Usually there are no trailers, and nothing to filter.
        if !self.decoder.trailers().is_empty() {
            self.decoder.retain_trailers(is_wanted);
        }
        self.decoder.trailers()
    }
}
