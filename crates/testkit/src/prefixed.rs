//! Integers and strings of HPACK and QPACK (RFC 7541 §5, RFC 9204 §4.1), written by hand, and fields as lines of text.

/// Encodes an integer. Its first byte has the flags, and `bits` bits of the integer.
pub fn put_integer(out: &mut Vec<u8>, flags: u8, bits: u32, mut number: usize) {
    let most = (1 << bits) - 1;
    if number < most {
        return out.push(flags | number as u8);
    }
    out.push(flags | most as u8);
    number -= most;
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Encodes a string without Huffman coding.
pub fn put_string(out: &mut Vec<u8>, flags: u8, bits: u32, text: &str) {
    put_integer(out, flags, bits, text.len());
    out.extend(text.as_bytes());
}

/// Splits lines `name: value`, whose names may begin with a colon.
pub fn fields(lines: &str) -> impl Iterator<Item = (&str, &str)> {
    lines.lines().map(|line| match line[1..].find(": ") {
        Some(at) => (&line[..=at], &line[at + 3..]),
        None => (line.trim_end_matches(':'), ""),
    })
}
