//! Decodes a body piece by piece, into bounded memory.

use brotli::enc::StandardAlloc;
use brotli::{BrotliDecompressStream, BrotliResult, BrotliState};
use flate2::{Decompress, FlushDecompress, Status};
use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer, ResetDirective};

use crate::{Coding, CodingError};

/// RFC 9659 §3: decoders need not support a larger window.
const ZSTD_WINDOW_MAX: u32 = 23;
/// 2^15 bytes.
const GZIP_WINDOW: u8 = 15;

pub struct BodyDecoder {
    coding: Coding,
    kind: DecoderKind,
    has_begun: bool,
    is_over: bool,
}

enum DecoderKind {
    Gzip(Decompress),
    Brotli(Box<BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>>),
    Zstd(DCtx<'static>),
}

/// Result of one call of [`BodyDecoder::decode`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeStep {
    /// Bytes of the piece that were used. The caller passes the rest again.
    pub used: usize,
    /// Whether the decoder waits for more input; otherwise it has more output.
    pub wants_input: bool,
}

impl BodyDecoder {
    /// Returns `None` for a coding with a dictionary.
    pub fn new(coding: Coding) -> Option<Self> {
        let kind = match coding {
            Coding::Gzip => DecoderKind::Gzip(Decompress::new_gzip(GZIP_WINDOW)),
            Coding::Brotli => {
                let alloc = StandardAlloc::default;
                DecoderKind::Brotli(Box::new(BrotliState::new(alloc(), alloc(), alloc())))
            }
            Coding::Zstd => {
                let mut decoder = DCtx::create();
                decoder.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_MAX)).ok()?;
                DecoderKind::Zstd(decoder)
            }
            Coding::DictionaryBrotli | Coding::DictionaryZstd => return None,
        };
        Some(Self { coding, kind, has_begun: false, is_over: false })
    }

    /// Decodes a piece's start into `out`, at most `room` bytes per call, to bound the memory of a compression bomb.
    ///
    /// # Errors
    /// If the body is not in this coding, or continues after its end.
    pub fn decode(
        &mut self,
        piece: &[u8],
        room: usize,
        out: &mut Vec<u8>,
    ) -> Result<DecodeStep, CodingError> {
        let coding = self.coding;
        let failed = |reason| CodingError { coding, reason };
        self.has_begun |= !piece.is_empty();
        let at = out.len();
        out.resize(at + room, 0);
        let decoded = self.decode_into(piece, &mut out[at..]);
        let (used, written) = match decoded {
            Ok(counts) => counts,
            Err(reason) => {
                out.truncate(at);
                return Err(failed(reason));
            }
        };
        out.truncate(at + written);
        Ok(DecodeStep { used, wants_input: written < room })
    }

    fn decode_into(&mut self, piece: &[u8], out: &mut [u8]) -> Result<(usize, usize), &'static str> {
        let (mut used, mut written) = (0, 0);
        loop {
            let (piece, out) = (&piece[used..], &mut out[written..]);
            if piece.is_empty() && (self.is_over || out.is_empty()) {
                return Ok((used, written));
            }
            if self.is_over && !self.begin_next() {
                return Err("there are bytes behind the end");
            }
            let (now_used, now_written, is_over) = match &mut self.kind {
                DecoderKind::Gzip(decoder) => gzip_step(decoder, piece, out)?,
                DecoderKind::Brotli(decoder) => brotli_step(decoder, piece, out)?,
                DecoderKind::Zstd(decoder) => zstd_step(decoder, piece, out)?,
            };
            (used, written, self.is_over) = (used + now_used, written + now_written, is_over);
            let is_stuck = now_used == 0 && now_written == 0 && !is_over;
            if is_stuck || now_written == out.len() {
                return Ok((used, written));
            }
        }
    }

    /// RFC 1952 §2.2, RFC 8878 §3.1: members and frames may follow each other.
    fn begin_next(&mut self) -> bool {
        self.is_over = false;
        match &mut self.kind {
            DecoderKind::Gzip(decoder) => *decoder = Decompress::new_gzip(GZIP_WINDOW),
            DecoderKind::Zstd(decoder) => drop(decoder.reset(ResetDirective::SessionOnly)),
            DecoderKind::Brotli(_) => return false,
        }
        true
    }

    /// Whether the end of the coded body was reached.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Whether the bytes so far are a whole body. An empty body is whole: servers name a coding of empty bodies, too.
    pub fn is_whole(&self) -> bool {
        self.is_over || !self.has_begun
    }
}

impl std::fmt::Debug for BodyDecoder {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Decoder").field("coding", &self.coding).finish_non_exhaustive()
    }
}

/// Bytes used, bytes written, and whether the body has ended.
type Step = Result<(usize, usize, bool), &'static str>;

fn gzip_step(decoder: &mut Decompress, piece: &[u8], out: &mut [u8]) -> Step {
    let (used, written) = (decoder.total_in(), decoder.total_out());
    let status = decoder.decompress(piece, out, FlushDecompress::None).map_err(|_| "it is malformed")?;
    let counts = ((decoder.total_in() - used) as usize, (decoder.total_out() - written) as usize);
    Ok((counts.0, counts.1, status == Status::StreamEnd))
}

fn brotli_step(
    decoder: &mut BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>,
    piece: &[u8],
    out: &mut [u8],
) -> Step {
    let (mut left, mut used, mut room, mut written, mut total) = (piece.len(), 0, out.len(), 0, 0);
    let result = BrotliDecompressStream(
        &mut left,
        &mut used,
        piece,
        &mut room,
        &mut written,
        out,
        &mut total,
        decoder,
    );
    match result {
        BrotliResult::ResultFailure => Err("it is malformed"),
        BrotliResult::ResultSuccess => Ok((used, written, true)),
        BrotliResult::NeedsMoreInput | BrotliResult::NeedsMoreOutput => Ok((used, written, false)),
    }
}

fn zstd_step(decoder: &mut DCtx<'_>, piece: &[u8], out: &mut [u8]) -> Step {
    let (mut input, mut output) = (InBuffer::around(piece), OutBuffer::around(out));
    let left = decoder.decompress_stream(&mut output, &mut input).map_err(zstd_safe::get_error_name)?;
    Ok((input.pos(), output.pos(), left == 0))
}
