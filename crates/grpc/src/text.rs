//! Base64 of `grpc-web-text` (RFC 4648 §4), in pieces. A sender may pad at each flush, and then continue.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextError;

/// Streaming base64 decoder.
#[derive(Debug, Clone, Default)]
pub struct TextDecoder {
    /// Bits that do not fill a byte yet.
    bits: u16,
    /// Characters so far of the current group of four.
    taken: u8,
    /// Padding characters among them.
    padding: u8,
}

impl TextDecoder {
    /// Decodes the next piece in place. Returns the number of decoded bytes, which are at its start.
    ///
    /// # Errors
    /// If a character is not base64, or is misplaced.
    pub fn decode(&mut self, piece: &mut [u8]) -> Result<usize, TextError> {
        let mut len = 0;
        for at in 0..piece.len() {
            if let Some(byte) = self.take(piece[at])? {
                piece[len] = byte;
                len += 1;
            }
        }
        Ok(len)
    }

    fn take(&mut self, character: u8) -> Result<Option<u8>, TextError> {
        if character == b'=' {
            // RFC 4648 §3.5: the unused bits must be zero.
            if self.taken < 2 || self.bits != 0 {
                return Err(TextError);
            }
            self.padding += 1;
            self.step();
            return Ok(None);
        }
        if self.padding > 0 {
            return Err(TextError);
        }
        let bits = self.bits << 6 | u16::from(value(character).ok_or(TextError)?);
        // The first character of four completes no byte; after the others 4, 2 and 0 bits are left.
        let (byte, left) = match self.taken {
            0 => (None, bits),
            1 => (Some(bits >> 4), bits & 0xf),
            2 => (Some(bits >> 2), bits & 0x3),
            _ => (Some(bits), 0),
        };
        self.bits = left;
        self.step();
        Ok(byte.map(|byte| byte as u8))
    }

    fn step(&mut self) {
        self.taken += 1;
        if self.taken == 4 {
            *self = Self::default();
        }
    }

    pub fn is_whole(&self) -> bool {
        self.taken == 0
    }
}

fn value(character: u8) -> Option<u8> {
    Some(match character {
        b'A'..=b'Z' => character - b'A',
        b'a'..=b'z' => character - b'a' + 26,
        b'0'..=b'9' => character - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    })
}

/// Streaming base64 encoder.
#[derive(Debug, Clone, Default)]
pub struct TextEncoder {
    /// Up to two bytes that do not fill a group of three yet.
    held: Vec<u8>,
}

impl TextEncoder {
    /// Encodes bytes to `out`, and keeps up to two for the next call.
    pub fn push(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) {
        while !self.held.is_empty() && self.held.len() < 3 {
            let Some((first, rest)) = bytes.split_first() else { return };
            self.held.push(*first);
            bytes = rest;
        }
        if self.held.len() == 3 {
            push_group(&self.held, out);
            self.held.clear();
        }
        let groups = bytes.chunks_exact(3);
        self.held.extend_from_slice(groups.remainder());
        out.reserve(bytes.len() / 3 * 4);
        groups.for_each(|group| push_group(group, out));
    }

    /// Encodes the kept bytes with padding.
    pub fn flush(&mut self, out: &mut Vec<u8>) {
        if !self.held.is_empty() {
            push_group(&self.held, out);
            self.held.clear();
        }
    }
}

fn push_group(group: &[u8], out: &mut Vec<u8>) {
    const CHARACTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or_default());
    let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
    for at in 0..4 {
        let character = CHARACTERS[(bits >> (18 - 6 * at) & 63) as usize];
        out.push(if at as usize <= group.len() { character } else { b'=' });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(text: &str, piece: usize) -> Result<Vec<u8>, TextError> {
        let mut decoder = TextDecoder::default();
        let mut out = Vec::new();
        for piece in text.as_bytes().chunks(piece) {
            let mut piece = piece.to_vec();
            let len = decoder.decode(&mut piece)?;
            out.extend_from_slice(&piece[..len]);
        }
        if decoder.is_whole() { Ok(out) } else { Err(TextError) }
    }

    #[test]
    fn text_is_decoded_however_it_comes() {
        let rows: &[(&str, Result<&[u8], TextError>)] = &[
            ("", Ok(b"")),
            ("Zg==", Ok(b"f")),
            ("Zm8=", Ok(b"fo")),
            ("Zm9v", Ok(b"foo")),
            ("Zm9vYmFy", Ok(b"foobar")),
            // Padding at each flush of the sender.
            ("Zg==Zm8=Zm9v", Ok(b"ffofoo")),
            ("+/+/", Ok(b"\xfb\xff\xbf")),
            ("Zg", Err(TextError)),
            ("Zg=", Err(TextError)),
            ("Zg=A", Err(TextError)),
            ("=", Err(TextError)),
            ("Z===", Err(TextError)),
            ("Zh==", Err(TextError)),
            ("Zm9=", Err(TextError)),
            ("Zg==\n", Err(TextError)),
            ("-_-_", Err(TextError)),
            ("Zm9v=", Err(TextError)),
        ];
        for (text, expected) in rows {
            for piece in 1..=text.len().max(1) {
                let got = decoded(text, piece);
                assert_eq!(got.as_deref(), expected.as_deref(), "{text:?} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn bytes_are_encoded_however_they_come() {
        for (bytes, piece, is_flushed, expected) in [
            ("foobar", 6, false, "Zm9vYmFy"),
            ("foobar", 1, false, "Zm9vYmFy"),
            ("foobar", 4, false, "Zm9vYmFy"),
            ("foob", 2, false, "Zm9vYg=="),
            ("foob", 2, true, "Zm8=b2I="),
            ("fooba", 5, false, "Zm9vYmE="),
            ("", 1, true, ""),
        ] {
            let (mut encoder, mut out) = (TextEncoder::default(), Vec::new());
            for piece in bytes.as_bytes().chunks(piece) {
                encoder.push(piece, &mut out);
                if is_flushed {
                    encoder.flush(&mut out);
                }
            }
            encoder.flush(&mut out);
            assert_eq!(std::str::from_utf8(&out), Ok(expected), "{bytes:?} in pieces of {piece}");
        }
    }

    #[test]
    fn what_is_encoded_is_decoded_to_the_same() {
        let bytes: Vec<u8> = (0..=255).collect();
        for len in 0..bytes.len() {
            let (mut encoder, mut out) = (TextEncoder::default(), Vec::new());
            encoder.push(&bytes[..len], &mut out);
            encoder.flush(&mut out);
            let text = String::from_utf8(out).expect("is text");
            assert_eq!(decoded(&text, 7).as_deref(), Ok(&bytes[..len]), "{text}");
        }
    }
}
