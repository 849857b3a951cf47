//! Encodes a body in pieces.

use brotli::enc::StandardAlloc;
use brotli::enc::encode::{BrotliEncoderOperation, BrotliEncoderParameter, BrotliEncoderStateStruct};
use flate2::{Compress, Compression, FlushCompress};
use zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer, zstd_sys::ZSTD_EndDirective};

use crate::dictionary::{Digest, MAGIC_OF_BROTLI, MAGIC_OF_ZSTD, is_dictionary};
use crate::{Coding, CodingError};

/// Compression levels: a higher level is smaller and slower.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Levels {
    /// 1 to 9.
    pub gzip: u8,
    /// 0 to 11.
    pub brotli: u8,
    /// 1 to 19.
    pub zstd: u8,
}

impl Default for Levels {
    fn default() -> Self {
        Self { gzip: 5, brotli: 4, zstd: 3 }
    }
}

impl Levels {
    pub const fn for_coding(self, coding: Coding) -> u8 {
        match coding {
            Coding::Gzip => self.gzip,
            Coding::Brotli | Coding::DictionaryBrotli => self.brotli,
            Coding::Zstd | Coding::DictionaryZstd => self.zstd,
        }
    }

    pub const fn of_mut(&mut self, coding: Coding) -> &mut u8 {
        match coding {
            Coding::Gzip => &mut self.gzip,
            Coding::Brotli | Coding::DictionaryBrotli => &mut self.brotli,
            Coding::Zstd | Coding::DictionaryZstd => &mut self.zstd,
        }
    }

    pub const fn range(coding: Coding) -> std::ops::RangeInclusive<u8> {
        match coding {
            Coding::Gzip => 1..=9,
            Coding::Brotli | Coding::DictionaryBrotli => 0..=11,
            Coding::Zstd | Coding::DictionaryZstd => 1..=19,
        }
    }
}

/// Passed with each piece: whether the encoder may hold back output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flush {
    /// More input follows at once: the encoder may hold back output.
    Nothing,
    /// A pause follows: all input so far leaves the encoder, so that the client can decode it.
    Piece,
    End,
}

/// Space for output that each step reserves.
const OUTPUT_BYTES: usize = 16 << 10;
/// 2^15 bytes.
const GZIP_WINDOW: u8 = 15;
/// Window sizes as powers of two: Brotli (RFC 7932 §9.1), and Zstandard (RFC 9659 §3: at most 8 MB).
const BROTLI_WINDOWS: std::ops::RangeInclusive<u32> = 16..=22;
const ZSTD_WINDOWS: std::ops::RangeInclusive<u32> = 16..=21;
const ZSTD_WINDOW_MAX: u32 = 23;
const BROTLI_WINDOW_MAX: u32 = 24;
/// RFC 7932 §9.1: bytes of a window that cannot be used.
const BROTLI_WINDOW_GAP: u64 = 16;

pub struct BodyEncoder {
    coding: Coding,
    level: u8,
    /// Bytes to write before the encoder's output.
    prefix: Vec<u8>,
    kind: EncoderKind,
}

enum EncoderKind {
    Gzip(Compress),
    Brotli(Box<BrotliEncoderStateStruct<StandardAlloc>>),
    Zstd(CCtx<'static>),
}

impl BodyEncoder {
    /// Makes an encoder without a dictionary. `size`: length of the body, if known; a short body needs less memory.
    pub fn new(coding: Coding, levels: Levels, size: Option<u64>) -> Self {
        let level = levels.for_coding(coding);
        let kind = match coding {
            Coding::Gzip => {
                EncoderKind::Gzip(Compress::new_gzip(Compression::new(u32::from(level)), GZIP_WINDOW))
            }
            Coding::Brotli | Coding::DictionaryBrotli => {
                EncoderKind::Brotli(brotli(level, window(size, BROTLI_WINDOWS), size))
            }
            Coding::Zstd | Coding::DictionaryZstd => {
                EncoderKind::Zstd(zstd(level, window(size, ZSTD_WINDOWS)))
            }
        };
        Self { coding, level, prefix: Vec::new(), kind }
    }

    /// Makes an encoder with a dictionary, for `DictionaryBrotli` or `DictionaryZstd`. `None` if the coding cannot use
    /// the dictionary for this body.
    pub fn with_dictionary(
        coding: Coding,
        levels: Levels,
        size: Option<u64>,
        (dictionary, digest): (&[u8], &Digest),
    ) -> Option<Self> {
        let level = levels.for_coding(coding);
        let all_bytes = size.map(|size| size + dictionary.len() as u64);
        let (magic, kind) = match coding {
            Coding::DictionaryBrotli => {
                // RFC 9842 §4: every position of the body can refer to the dictionary only if the window holds both.
                let all_bytes = all_bytes? + BROTLI_WINDOW_GAP;
                let window = (*BROTLI_WINDOWS.start()..=BROTLI_WINDOW_MAX).find(|n| all_bytes <= 1 << n)?;
                // Lower levels do not support dictionaries.
                let mut encoder = brotli(level.max(2), window, size);
                encoder.set_custom_dictionary(dictionary.len(), dictionary);
                (MAGIC_OF_BROTLI, EncoderKind::Brotli(encoder))
            }
            Coding::DictionaryZstd => {
                if !is_dictionary(dictionary) {
                    return None;
                }
                let least = window(all_bytes, *ZSTD_WINDOWS.start()..=ZSTD_WINDOW_MAX);
                let mut encoder = zstd(level, least);
                encoder.load_dictionary(dictionary).ok()?;
                (MAGIC_OF_ZSTD, EncoderKind::Zstd(encoder))
            }
            Coding::Gzip | Coding::Brotli | Coding::Zstd => return None,
        };
        Some(Self { coding, level, prefix: [magic, &digest[..]].concat(), kind })
    }

    pub fn coding(&self) -> Coding {
        self.coding
    }

    /// Prepares the encoder for another body, and returns true, if that is cheaper than a new one.
    pub fn reset(&mut self, levels: Levels) -> bool {
        match &mut self.kind {
            EncoderKind::Gzip(encoder) if self.level == levels.gzip => {
                encoder.reset();
                true
            }
            _ => false,
        }
    }

    /// Encodes a piece of the body to `out`.
    ///
    /// # Errors
    /// If the encoder fails for lack of memory. The body cannot be continued.
    pub fn encode(&mut self, piece: &[u8], flush: Flush, out: &mut Vec<u8>) -> Result<(), CodingError> {
        out.append(&mut self.prefix);
        let coding = self.coding;
        let failed = |reason| CodingError { coding, reason };
        match &mut self.kind {
            EncoderKind::Gzip(encoder) => gzip_piece(encoder, piece, flush, out).map_err(failed),
            EncoderKind::Brotli(encoder) => brotli_piece(encoder, piece, flush, out).map_err(failed),
            EncoderKind::Zstd(encoder) => zstd_piece(encoder, piece, flush, out).map_err(failed),
        }
    }
}

impl std::fmt::Debug for BodyEncoder {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Encoder").field("coding", &self.coding).finish_non_exhaustive()
    }
}

/// Returns the smallest window that holds a body of this size. A body of unknown size gets the smallest window of all,
/// because there may be many such streams.
fn window(size: Option<u64>, windows: std::ops::RangeInclusive<u32>) -> u32 {
    let (least, most) = (*windows.start(), *windows.end());
    let Some(size) = size else { return least };
    windows.into_iter().find(|n| size <= 1 << n).unwrap_or(most)
}

fn brotli(level: u8, window: u32, size: Option<u64>) -> Box<BrotliEncoderStateStruct<StandardAlloc>> {
    let mut encoder = Box::new(BrotliEncoderStateStruct::new(StandardAlloc::default()));
    let hint = size.map_or(0, |size| u32::try_from(size).unwrap_or(u32::MAX));
    for (parameter, value) in [
        (BrotliEncoderParameter::BROTLI_PARAM_QUALITY, u32::from(level)),
        (BrotliEncoderParameter::BROTLI_PARAM_LGWIN, window),
        (BrotliEncoderParameter::BROTLI_PARAM_SIZE_HINT, hint),
    ] {
        encoder.set_parameter(parameter, value);
    }
    encoder
}

fn zstd(level: u8, window: u32) -> CCtx<'static> {
    let mut encoder = CCtx::create();
    // Tables no larger than the window: there may be many streams of unknown length.
    let table = window.max(*ZSTD_WINDOWS.start());
    for parameter in [CParameter::CompressionLevel(i32::from(level)), CParameter::WindowLog(window)] {
        // Both are within the library's limits.
        let _ = encoder.set_parameter(parameter);
    }
    if table == *ZSTD_WINDOWS.start() {
        let _ = encoder.set_parameter(CParameter::HashLog(table));
        let _ = encoder.set_parameter(CParameter::ChainLog(table));
    }
    encoder
}

fn gzip_piece(
    encoder: &mut Compress,
    mut piece: &[u8],
    flush: Flush,
    out: &mut Vec<u8>,
) -> Result<(), &'static str> {
    let flush = match flush {
        Flush::Nothing => FlushCompress::None,
        Flush::Piece => FlushCompress::Sync,
        Flush::End => FlushCompress::Finish,
    };
    loop {
        out.reserve(OUTPUT_BYTES.min(piece.len() + 64));
        let before = encoder.total_in();
        let status = encoder.compress_vec(piece, out, flush).map_err(|_| "the coder fails")?;
        piece = &piece[(encoder.total_in() - before) as usize..];
        let is_over = match flush {
            FlushCompress::Finish => status == flate2::Status::StreamEnd,
            // Unused output space means that the encoder holds nothing back.
            _ => piece.is_empty() && out.len() < out.capacity(),
        };
        if is_over {
            return Ok(());
        }
    }
}

fn brotli_piece(
    encoder: &mut BrotliEncoderStateStruct<StandardAlloc>,
    piece: &[u8],
    flush: Flush,
    out: &mut Vec<u8>,
) -> Result<(), &'static str> {
    let operation = match flush {
        Flush::Nothing => BrotliEncoderOperation::BROTLI_OPERATION_PROCESS,
        Flush::Piece => BrotliEncoderOperation::BROTLI_OPERATION_FLUSH,
        Flush::End => BrotliEncoderOperation::BROTLI_OPERATION_FINISH,
    };
    let (mut left, mut offset) = (piece.len(), 0);
    loop {
        let (mut room, mut at) = (0, 0);
        let is_well = encoder.compress_stream(
            operation,
            &mut left,
            piece,
            &mut offset,
            &mut room,
            &mut [],
            &mut at,
            &mut None,
            &mut |_, _, _, _| (),
        );
        if !is_well {
            return Err("the coder fails");
        }
        let mut size = 0;
        // The library lends its output buffer.
        let output = encoder.take_output(&mut size);
        out.extend_from_slice(&output[..size]);
        if left == 0 && !encoder.has_more_output() {
            return Ok(());
        }
    }
}

fn zstd_piece(
    encoder: &mut CCtx<'_>,
    piece: &[u8],
    flush: Flush,
    out: &mut Vec<u8>,
) -> Result<(), &'static str> {
    let directive = match flush {
        Flush::Nothing => ZSTD_EndDirective::ZSTD_e_continue,
        Flush::Piece => ZSTD_EndDirective::ZSTD_e_flush,
        Flush::End => ZSTD_EndDirective::ZSTD_e_end,
    };
    let mut input = InBuffer::around(piece);
    loop {
        out.reserve(OUTPUT_BYTES.min(piece.len() + 64));
        let at = out.len();
        let mut output = OutBuffer::around_pos(out, at);
        let left = encoder
            .compress_stream2(&mut output, &mut input, directive)
            .map_err(zstd_safe::get_error_name)?;
        let is_taken = input.pos() == piece.len();
        if is_taken && (left == 0 || flush == Flush::Nothing) {
            return Ok(());
        }
    }
}
