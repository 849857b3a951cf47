//! Coders and decoders of bodies, and the spare ones of a worker.

use std::cell::RefCell;

use coding::{BodyDecoder, BodyEncoder, Coding, CodingError, Flush, Levels};
use grpc::WebBody;

/// How many coders a worker keeps for later bodies: each takes about 300 KB.
const SPARE_MAX: usize = 4;

/// Output of a decoder per step, in bytes.
const DECODED_BYTES: usize = 32 << 10;

#[derive(Debug)]
pub(crate) enum Transform {
    Encode(BodyEncoder),
    Decode(BodyDecoder),
    /// From gRPC to gRPC-Web.
    Web(WebBody),
}

impl Transform {
    /// Codes a piece of the body, and appends the result to `out`.
    pub(crate) fn push(
        &mut self,
        mut piece: &[u8],
        flush: Flush,
        out: &mut Vec<u8>,
    ) -> Result<(), CodingError> {
        let decoder = match self {
            Self::Encode(encoder) => return encoder.encode(piece, flush, out),
            Self::Decode(decoder) => decoder,
            Self::Web(body) => {
                body.push(piece, out);
                if flush != Flush::Nothing {
                    body.flush(out);
                }
                return Ok(());
            }
        };
        // Each step decodes a bounded amount, so one piece may take several.
        loop {
            let decoded = decoder.decode(piece, DECODED_BYTES, out)?;
            piece = &piece[decoded.used..];
            if piece.is_empty() && decoded.wants_input {
                return Ok(());
            }
        }
    }

    /// Whether the body so far is complete.
    pub(crate) fn is_whole(&self) -> bool {
        match self {
            Self::Encode(_) | Self::Web(_) => true,
            Self::Decode(decoder) => decoder.is_whole(),
        }
    }
}

/// A worker's spare coders. Making one costs as much as coding a few kilobytes.
#[derive(Default)]
pub(crate) struct Coders(RefCell<Vec<BodyEncoder>>);

impl Coders {
    /// Returns a coder for a body; `size` is its length, if known.
    pub(crate) fn take(&self, coding: Coding, levels: Levels, size: Option<u64>) -> BodyEncoder {
        let mut spare = self.0.borrow_mut();
        let known = spare.iter().position(|encoder| encoder.coding() == coding);
        let ready = known.map(|place| spare.swap_remove(place));
        // A coder with another level is dropped.
        let ready = ready.and_then(|mut encoder| encoder.reset(levels).then_some(encoder));
        ready.unwrap_or_else(|| BodyEncoder::new(coding, levels, size))
    }

    pub(crate) fn give(&self, transform: Transform) {
        let mut spare = self.0.borrow_mut();
        // Only gzip's coder can be reset for another body.
        if let Transform::Encode(encoder) = transform
            && encoder.coding() == Coding::Gzip
            && spare.len() < SPARE_MAX
        {
            spare.push(encoder);
        }
    }
}
