//! Huffman code of header strings (RFC 7541 §5.2 and Appendix B). The code is canonical: its code lengths define it.

/// Code length in bits of each byte, then of the end-of-string symbol.
#[rustfmt::skip]
const LENGTHS: [u8; SYMBOLS] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

const SYMBOLS: usize = 257;
const LENGTH_MIN: usize = 5;
const LENGTH_MAX: usize = 30;

/// Decoding table of the canonical code: symbols in the order of their codes, and where the codes of each length begin.
struct Canonical {
    symbols: [u16; SYMBOLS],
    /// Position in `symbols` of the first code of a length.
    positions: [u16; LENGTH_MAX + 2],
    first: [u32; LENGTH_MAX + 2],
    /// Exclusive upper limit of the codes of this length or shorter, left-aligned in 32 bits.
    limits: [u64; LENGTH_MAX + 2],
}

static CODE: Canonical = {
    let mut code = Canonical {
        symbols: [0; SYMBOLS],
        positions: [0; LENGTH_MAX + 2],
        first: [0; LENGTH_MAX + 2],
        limits: [0; LENGTH_MAX + 2],
    };
    let (mut next, mut count, mut length) = (0u32, 0, 1);
    while length <= LENGTH_MAX {
        next <<= 1;
        code.first[length] = next;
        code.positions[length] = count as u16;
        let mut symbol = 0;
        while symbol < SYMBOLS {
            if LENGTHS[symbol] as usize == length {
                code.symbols[count] = symbol as u16;
                count += 1;
                next += 1;
            }
            symbol += 1;
        }
        code.limits[length] = (next as u64) << (32 - length);
        length += 1;
    }
    code
};

static CODES: [u32; SYMBOLS] = {
    let mut codes = [0; SYMBOLS];
    let mut position = 0;
    while position < SYMBOLS {
        let symbol = CODE.symbols[position] as usize;
        let length = LENGTHS[symbol] as usize;
        codes[symbol] = CODE.first[length] + (position as u32 - CODE.positions[length] as u32);
        position += 1;
    }
    codes
};

/// Appends the decoded string to `text`. Returns false if it is not valid.
pub(crate) fn decode(mut coded: &[u8], text: &mut Vec<u8>) -> bool {
    // The next bits, left-aligned, and their number.
    let (mut bits, mut count) = (0u64, 0usize);
    loop {
        while count <= 56
            && let Some((byte, rest)) = coded.split_first()
        {
            bits |= u64::from(*byte) << (56 - count);
            count += 8;
            coded = rest;
        }
        let head = bits >> 32;
        let length = (LENGTH_MIN..=LENGTH_MAX).find(|&length| head < CODE.limits[length]);
        let length = length.unwrap_or(LENGTH_MAX);
        let position =
            u32::from(CODE.positions[length]) + ((head as u32) >> (32 - length)) - CODE.first[length];
        let symbol = CODE.symbols[position as usize];
        if length > count || usize::from(symbol) == SYMBOLS - 1 {
            // RFC 7541 §5.2: padding is shorter than a byte, and is a prefix of the end-of-string code: all ones.
            return count < 8 && bits.leading_ones() as usize >= count;
        }
        text.push(symbol as u8);
        bits <<= length;
        count -= length;
    }
}

/// Computes the length of a string after encoding.
pub(crate) fn encoded_bytes(text: &[u8]) -> usize {
    let bits: usize = text.iter().map(|byte| usize::from(LENGTHS[usize::from(*byte)])).sum();
    bits.div_ceil(8)
}

pub(crate) fn encode(text: &[u8], coded: &mut Vec<u8>) {
    let (mut bits, mut count) = (0u64, 0);
    for byte in text {
        let length = u32::from(LENGTHS[usize::from(*byte)]);
        bits = bits << length | u64::from(CODES[usize::from(*byte)]);
        count += length;
        while count >= 8 {
            count -= 8;
            coded.push((bits >> count) as u8);
        }
    }
    if count > 0 {
        coded.push((bits << (8 - count)) as u8 | 0xff >> count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(coded: &[u8]) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        decode(coded, &mut text).then_some(text)
    }

    #[test]
    fn rfc_7541_c_4_examples() {
        for (text, coded) in [
            ("www.example.com", &b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff"[..]),
            ("no-cache", b"\xa8\xeb\x10\x64\x9c\xbf"),
            ("", b""),
        ] {
            let mut out = Vec::new();
            encode(text.as_bytes(), &mut out);
            assert_eq!((out.as_slice(), encoded_bytes(text.as_bytes())), (coded, coded.len()), "{text}");
            assert_eq!(decoded(coded).as_deref(), Some(text.as_bytes()));
        }
    }

    #[test]
    fn what_is_no_code_is_refused() {
        for coded in
            [&b"\xff"[..], b"\x1f\xff\xff", b"\x18", b"\xff\xff\xff\xff", b"\xff\xff\xff\xff\xff\xff\xff\xff"]
        {
            assert_eq!(decoded(coded), None, "{coded:x?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_string_survives(text: Vec<u8>) {
            let mut coded = Vec::new();
            encode(&text, &mut coded);
            assert_eq!(decoded(&coded), Some(text));
        }

        #[test]
        fn any_bytes_are_a_string_or_refused(coded: Vec<u8>) {
            decoded(&coded);
        }
    }
}
