//! Huffman code of header strings (RFC 7541 §5.2, Appendix B). The code is canonical: the tables follow from the code
//! lengths alone.

/// Code length in bits of each byte; the last one is that of the end-of-string symbol (EOS).
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
/// The end-of-string symbol (EOS). Its whole code is never sent.
const END: u16 = 256;
const LENGTH_MAX: usize = 30;
/// Codes up to this many bits, all but the rare ones, are decoded by table lookup; longer ones by search.
const QUICK: u32 = 9;

/// The first code of each length, and the number of symbols with shorter codes.
struct Lengths {
    first: [u32; LENGTH_MAX + 2],
    before: [u16; LENGTH_MAX + 2],
}

const BY_LENGTH: Lengths = {
    let mut lengths = Lengths { first: [0; LENGTH_MAX + 2], before: [0; LENGTH_MAX + 2] };
    let (mut code, mut before, mut length) = (0, 0, 1);
    while length <= LENGTH_MAX + 1 {
        lengths.first[length] = code;
        lengths.before[length] = before;
        let mut symbol = 0;
        while symbol < SYMBOLS {
            if LENGTHS[symbol] as usize == length {
                code += 1;
                before += 1;
            }
            symbol += 1;
        }
        code <<= 1;
        length += 1;
    }
    lengths
};

const ORDER: [u16; SYMBOLS] = {
    let mut order = [0; SYMBOLS];
    let (mut at, mut length) = (0, 1);
    while length <= LENGTH_MAX {
        let mut symbol = 0;
        while symbol < SYMBOLS {
            if LENGTHS[symbol] as usize == length {
                order[at] = symbol as u16;
                at += 1;
            }
            symbol += 1;
        }
        length += 1;
    }
    order
};

/// The code of each byte, and its length in bits.
static CODES: [(u32, u32); SYMBOLS] = {
    let mut codes = [(0, 0); SYMBOLS];
    let mut at = 0;
    while at < SYMBOLS {
        let symbol = ORDER[at] as usize;
        let length = LENGTHS[symbol] as usize;
        let code = BY_LENGTH.first[length] + at as u32 - BY_LENGTH.before[length] as u32;
        codes[symbol] = (code, length as u32);
        at += 1;
    }
    codes
};

/// By the next `QUICK` bits: the symbol, and the length of its code in bits; length 0 if the code is longer.
static QUICKLY: [(u8, u8); 1 << QUICK] = {
    let mut table = [(0, 0); 1 << QUICK];
    let mut symbol = 0;
    while symbol < SYMBOLS {
        let length = LENGTHS[symbol] as u32;
        if length <= QUICK {
            let first = (CODES[symbol].0 << (QUICK - length)) as usize;
            let mut rest = 0;
            while rest < 1 << (QUICK - length) {
                table[first + rest] = (symbol as u8, length as u8);
                rest += 1;
            }
        }
        symbol += 1;
    }
    table
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidHuffman;

/// Appends the decoded text to `text`.
pub fn decode(coded: &[u8], text: &mut Vec<u8>) -> Result<(), InvalidHuffman> {
    // Bits that were fetched but not decoded, from the highest.
    let (mut bits, mut count) = (0u64, 0u32);
    let mut rest = coded;
    // The shortest codes have five bits.
    text.reserve(coded.len() * 8 / 5);
    loop {
        if count < 32
            && let Some((&word, behind)) = rest.split_first_chunk()
        {
            bits |= u64::from(u32::from_be_bytes(word)) << (32 - count);
            count += 32;
            rest = behind;
        }
        while count < 32
            && let Some((&byte, behind)) = rest.split_first()
        {
            bits |= u64::from(byte) << (56 - count);
            count += 8;
            rest = behind;
        }
        if count == 0 {
            return Ok(());
        }
        let (symbol, length) = match QUICKLY[(bits >> (64 - QUICK)) as usize] {
            (_, 0) => search((bits >> 32) as u32),
            (symbol, length) => (u16::from(symbol), u32::from(length)),
        };
        if length > count || symbol == END {
            // RFC 7541 §5.2: the padding is shorter than a byte, and consists of the first bits of EOS, which are ones.
            let is_padding = count < 8 && bits >> (64 - count) == (1 << count) - 1;
            return if is_padding { Ok(()) } else { Err(InvalidHuffman) };
        }
        text.push(symbol as u8);
        bits <<= length;
        count -= length;
    }
}

/// Finds the symbol of a code longer than `QUICK` bits, and the length of the code.
fn search(bits: u32) -> (u16, u32) {
    for length in QUICK as usize + 1..=LENGTH_MAX {
        let code = bits >> (32 - length as u32);
        let at = u32::from(BY_LENGTH.before[length]) + code.wrapping_sub(BY_LENGTH.first[length]);
        if code >= BY_LENGTH.first[length] && at < u32::from(BY_LENGTH.before[length + 1]) {
            return (ORDER[at as usize], length as u32);
        }
    }
    (END, LENGTH_MAX as u32)
}

pub fn coded_len(text: &[u8]) -> usize {
    let bits: usize = text.iter().map(|&byte| usize::from(LENGTHS[usize::from(byte)])).sum();
    bits.div_ceil(8)
}

/// Appends the code to `coded`.
pub fn encode(text: &[u8], coded: &mut Vec<u8>) {
    // Bits that are not yet written, from the lowest. There are fewer than 32 before the next code, which has at most
    // 30.
    let (mut bits, mut count) = (0u64, 0u32);
    coded.reserve(text.len());
    for &byte in text {
        let (code, length) = CODES[usize::from(byte)];
        bits = bits << length | u64::from(code);
        count += length;
        if count >= 32 {
            count -= 32;
            coded.extend_from_slice(&((bits >> count) as u32).to_be_bytes());
        }
    }
    if count > 0 {
        // RFC 7541 §5.2: the last byte is filled with ones.
        let filled = (bits << (32 - count)) as u32 | (u32::MAX >> count);
        coded.extend_from_slice(&filled.to_be_bytes()[..count.div_ceil(8) as usize]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(coded: &[u8]) -> Result<Vec<u8>, InvalidHuffman> {
        let mut text = Vec::new();
        decode(coded, &mut text).map(|()| text)
    }

    #[test]
    fn the_examples_of_the_rfc() {
        // RFC 7541 §C.4, §C.6.
        let examples: [(&str, &[u8]); 4] = [
            ("www.example.com", &[0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff]),
            ("no-cache", &[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf]),
            ("302", &[0x64, 0x02]),
            ("private", &[0xae, 0xc3, 0x77, 0x1a, 0x4b]),
        ];
        for (text, coded) in examples {
            let mut got = Vec::new();
            encode(text.as_bytes(), &mut got);
            assert_eq!((got.as_slice(), coded_len(text.as_bytes())), (coded, coded.len()), "{text}");
            assert_eq!(decoded(coded).as_deref(), Ok(text.as_bytes()));
        }
    }

    #[test]
    fn padding_is_short_and_of_ones() {
        assert_eq!(decoded(&[]), Ok(Vec::new()));
        for bad in [&[0xff][..], &[0x1f, 0xff, 0xff], &[0x18], &[0xff, 0xff, 0xff, 0xff], &[0xff; 8]] {
            assert_eq!(decoded(bad), Err(InvalidHuffman), "{bad:x?}");
        }
        assert_eq!(decoded(&[0x1f]).as_deref(), Ok(b"a".as_slice()));
    }

    proptest::proptest! {
        #![proptest_config(proptest::test_runner::Config::with_cases(64))]

        #[test]
        fn decoding_inverts_coding(text: Vec<u8>) {
            let mut coded = Vec::new();
            encode(&text, &mut coded);
            assert_eq!(coded.len(), coded_len(&text));
            assert_eq!(decoded(&coded), Ok(text));
        }

        #[test]
        fn anything_is_text_or_unreadable(coded: Vec<u8>) {
            // Each text has exactly one encoding.
            if let Ok(text) = decoded(&coded) {
                let mut again = Vec::new();
                encode(&text, &mut again);
                assert_eq!(again, coded);
            }
        }
    }
}
