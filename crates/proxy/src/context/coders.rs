//! Coders and decoders of bodies, and those that a worker keeps.

use std::cell::RefCell;

use coding::{Coding, CodingError, Decoder, Encoder, Flush, Levels};
use grpc::WebBody;

/// How many coders a worker keeps for later bodies: each has some 300 KB.
const SPARE_MAX: usize = 4;

/// So much a decoder makes of a piece at a time.
const DECODED_BYTES: usize = 32 << 10;

/// Codes or decodes one body.
#[derive(Debug)]
pub(crate) enum Transform {
    Encode(Encoder),
    Decode(Decoder),
    /// From gRPC to gRPC-Web.
    Web(WebBody),
}

impl Transform {
    /// Appends what comes of a piece of the body to `out`.
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
        loop {
            let decoded = decoder.decode(piece, DECODED_BYTES, out)?;
            piece = &piece[decoded.used..];
            if piece.is_empty() && decoded.wants_input {
                return Ok(());
            }
        }
    }

    /// Whether the body that was pushed is whole.
    pub(crate) fn is_whole(&self) -> bool {
        match self {
            Self::Encode(_) | Self::Web(_) => true,
            Self::Decode(decoder) => decoder.is_over(),
        }
    }
}

/// The coders of a worker that are ready for another body. To make one costs as much as to code a few kilobytes.
#[derive(Default)]
pub(crate) struct Coders(RefCell<Vec<Encoder>>);

impl Coders {
    /// A coder for a body, of this length if it is known.
    pub(crate) fn take(&self, coding: Coding, levels: Levels, size: Option<u64>) -> Encoder {
        let mut spare = self.0.borrow_mut();
        let known = spare.iter().position(|encoder| encoder.coding() == coding);
        let ready = known.map(|place| spare.swap_remove(place));
        let ready = ready.and_then(|mut encoder| encoder.reset(levels).then_some(encoder));
        ready.unwrap_or_else(|| Encoder::new(coding, levels, size))
    }

    /// Takes a coder back.
    pub(crate) fn give(&self, transform: Transform) {
        let mut spare = self.0.borrow_mut();
        if let Transform::Encode(encoder) = transform
            && encoder.coding() == Coding::Gzip
            && spare.len() < SPARE_MAX
        {
            spare.push(encoder);
        }
    }
}
