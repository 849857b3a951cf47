//! Takes a body out of its framing, for those who look at its bytes: the store, and coders.

use http1::{ChunkError, ChunkLimits, Chunked, Framing};

/// What remains of a body that arrives.
pub(crate) struct IncomingBody {
    framing: Framing,
    left: u64,
    decoder: Chunked,
    is_over: bool,
}

/// What was taken of the bytes that have arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Bytes of the body, which are in front.
    pub(crate) data: usize,
    /// Bytes that are done with. Those behind them belong to no body.
    pub(crate) consumed: usize,
}

impl IncomingBody {
    pub(crate) fn new(framing: Framing) -> Self {
        let left = if let Framing::Length(length) = framing { length } else { 0 };
        let is_over = framing == Framing::None || framing == Framing::Length(0);
        Self { framing, left, decoder: Chunked::default(), is_over }
    }

    /// Takes what has arrived, and moves the bytes of the body to the front.
    ///
    /// # Errors
    /// The chunks are malformed.
    pub(crate) fn take(&mut self, bytes: &mut [u8]) -> Result<Taken, ChunkError> {
        let all = |count: usize| Taken { data: count, consumed: count };
        Ok(match self.framing {
            Framing::None => all(0),
            Framing::Length(_) => {
                let count = self.left.min(bytes.len() as u64);
                self.left -= count;
                self.is_over = self.left == 0;
                all(count as usize)
            }
            Framing::UntilClose => all(bytes.len()),
            Framing::Chunked => {
                let decoded = self.decoder.decode(bytes, &ChunkLimits::default())?;
                self.is_over = decoded.done;
                Taken { data: decoded.data, consumed: decoded.consumed }
            }
        })
    }

    /// The sender has closed. Returns whether that is the end of the body.
    pub(crate) fn closed(&mut self) -> bool {
        self.is_over |= self.framing == Framing::UntilClose;
        self.is_over
    }

    /// Whether all of the body has been taken.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// The trailers that pass these filters, as lines; complete once the body is over.
    pub(crate) fn trailers(&mut self, is_wanted: impl Fn(&[u8]) -> bool) -> &[u8] {
        if !self.decoder.trailers().is_empty() {
            self.decoder.retain_trailers(is_wanted);
        }
        self.decoder.trailers()
    }
}
