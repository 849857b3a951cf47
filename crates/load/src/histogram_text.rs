//! Histograms as text in HdrHistogram's log format: its second format, compressed, in base64. Only the parts for
//! histograms of times: no offset of indices, no factor.
//!
//! The library has this, too, but needs another base64, another deflate and a parser of logs.

use std::io::{Read as _, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use hdrhistogram::Histogram;

const COMPRESSED: u32 = 0x1c84_9314;
const PLAIN: u32 = 0x1c84_9313;
/// Before the counts: cookie, length, offset of indices, digits, lowest and highest value, factor.
const HEADER_BYTES: usize = 40;
/// More than the counts of any histogram of times take.
const BYTES_MAX: u64 = 64 << 20;

pub(crate) fn encode(histogram: &Histogram<u64>) -> String {
    let counts = counts(histogram);
    let mut plain = Vec::with_capacity(HEADER_BYTES + counts.len());
    plain.extend_from_slice(&PLAIN.to_be_bytes());
    plain.extend_from_slice(&(counts.len() as u32).to_be_bytes());
    plain.extend_from_slice(&[0; 4]);
    plain.extend_from_slice(&u32::from(histogram.sigfig()).to_be_bytes());
    plain.extend_from_slice(&histogram.low().to_be_bytes());
    plain.extend_from_slice(&histogram.high().to_be_bytes());
    plain.extend_from_slice(&1f64.to_be_bytes());
    plain.extend_from_slice(&counts);
    let mut packing = ZlibEncoder::new(Vec::new(), Compression::default());
    // Writing to memory does not fail.
    let packed = packing.write_all(&plain).and_then(|()| packing.finish()).unwrap_or_default();
    let mut bytes = COMPRESSED.to_be_bytes().to_vec();
    bytes.extend_from_slice(&(packed.len() as u32).to_be_bytes());
    bytes.extend_from_slice(&packed);
    STANDARD.encode(bytes)
}

/// The counts in the order of their values, up to that of the highest time. A positive number is a count; a negative
/// one stands for that many counts of zero.
fn counts(histogram: &Histogram<u64>) -> Vec<u8> {
    let (mut bytes, mut zeros, mut value) = (Vec::new(), 0_i64, 0);
    loop {
        match i64::try_from(histogram.count_at(value)).unwrap_or(i64::MAX) {
            0 => zeros += 1,
            count => {
                if zeros > 0 {
                    put(&mut bytes, -zeros);
                }
                put(&mut bytes, count);
                zeros = 0;
            }
        }
        value = histogram.next_non_equivalent(value);
        if value > histogram.max() {
            break;
        }
    }
    if zeros > 0 {
        put(&mut bytes, -zeros);
    }
    bytes
}

/// Writes a number in steps of seven bits, lowest first; the lowest bit is its sign. A ninth byte has all eight.
fn put(bytes: &mut Vec<u8>, number: i64) {
    let mut rest = ((number << 1) ^ (number >> 63)).cast_unsigned();
    for _ in 0..8 {
        if rest < 0x80 {
            break;
        }
        bytes.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
}

fn take(bytes: &mut &[u8]) -> Option<i64> {
    let mut number = 0;
    for step in 0..9 {
        let byte = bytes.split_off_first()?;
        let bits = if step == 8 { *byte } else { byte & 0x7f };
        number |= u64::from(bits) << (7 * step);
        if step == 8 || byte & 0x80 == 0 {
            break;
        }
    }
    Some((number >> 1).cast_signed() ^ -((number & 1).cast_signed()))
}

/// # Errors
/// The reason why the text is not a histogram.
pub(crate) fn decode(text: &str) -> Result<Histogram<u64>, String> {
    let bytes = STANDARD.decode(text).map_err(|error| error.to_string())?;
    let cut = || "it ends too early".to_owned();
    let packed = match bytes.split_first_chunk() {
        // Skips the length of the rest, which is known.
        Some((cookie, rest)) if u32::from_be_bytes(*cookie) == COMPRESSED => rest.get(4..).ok_or_else(cut)?,
        _ => return Err("it is not a compressed histogram in the V2 format".to_owned()),
    };
    let mut plain = Vec::new();
    ZlibDecoder::new(packed).take(BYTES_MAX).read_to_end(&mut plain).map_err(|error| error.to_string())?;
    let (header, counts) = plain.split_at_checked(HEADER_BYTES).ok_or_else(cut)?;
    let word = |at: usize| header[at..at + 4].iter().fold(0, |word, byte| word << 8 | u32::from(*byte));
    let long = |at: usize| u64::from(word(at)) << 32 | u64::from(word(at + 4));
    if word(0) != PLAIN || word(8) != 0 || long(32) != 1f64.to_bits() {
        return Err("it has an offset or a factor, or is of another format".to_owned());
    }
    let digits = u8::try_from(word(12)).unwrap_or(u8::MAX);
    let histogram = Histogram::new_with_bounds(long(16), long(24), digits);
    let mut histogram = histogram.map_err(|error| error.to_string())?;
    let mut counts = counts.get(..word(4) as usize).ok_or_else(cut)?;
    let (mut value, mut left) = (0, histogram.distinct_values());
    while !counts.is_empty() {
        let number = take(&mut counts).ok_or_else(cut)?;
        let step = if number < 0 { number.unsigned_abs() } else { 1 };
        left = usize::try_from(step)
            .ok()
            .and_then(|step| left.checked_sub(step))
            .ok_or("it has too many counts")?;
        if number > 0 {
            histogram.record_n(value, number.unsigned_abs()).map_err(|error| error.to_string())?;
        }
        for _ in 0..step {
            value = histogram.next_non_equivalent(value);
        }
    }
    Ok(histogram)
}

#[cfg(test)]
mod tests {
    use hdrhistogram::serialization::{Deserializer, Serializer as _, V2DeflateSerializer};
    use proptest::prelude::*;

    use super::*;

    fn histogram(times: &[(u64, u64)], digits: u8) -> Histogram<u64> {
        let mut histogram = Histogram::new_with_bounds(1, 3_600_000_000, digits).expect("valid bounds");
        times.iter().for_each(|(time, count)| histogram.record_n(*time, *count).expect("within the bounds"));
        histogram
    }

    fn written(histogram: &Histogram<u64>) -> String {
        let mut bytes = Vec::new();
        V2DeflateSerializer::new().serialize(histogram, &mut bytes).expect("it fits");
        STANDARD.encode(bytes)
    }

    fn read(text: &str) -> Histogram<u64> {
        let bytes = STANDARD.decode(text).expect("it is base64");
        Deserializer::new().deserialize(&mut bytes.as_slice()).expect("it is a histogram")
    }

    proptest! {
        #[test]
        fn the_library_reads_and_writes_the_same(
            times in prop::collection::vec((0..3_600_000_000_u64, 1..1_000_000_000_000_u64), 0..50),
            digits in 2..4_u8,
        ) {
            let histogram = histogram(&times, digits);
            let text = encode(&histogram);
            prop_assert_eq!(&read(&text), &histogram);
            for text in [text, written(&histogram)] {
                let decoded = decode(&text).expect("it is a histogram");
                prop_assert_eq!(&decoded, &histogram);
                prop_assert_eq!((decoded.min(), decoded.max(), decoded.len()), (histogram.min(), histogram.max(), histogram.len()));
            }
        }

        #[test]
        fn numbers_come_back(number in any::<i64>()) {
            let mut bytes = Vec::new();
            put(&mut bytes, number);
            let mut rest = bytes.as_slice();
            prop_assert_eq!((take(&mut rest), rest.len()), (Some(number), 0));
        }

        #[test]
        fn other_texts_are_mistakes(bytes in prop::collection::vec(any::<u8>(), 0..200), cut in 0..100_usize) {
            let _ = decode(&STANDARD.encode(bytes));
            let text = encode(&histogram(&[(5, 3), (700, 1)], 3));
            prop_assert!(cut >= text.len() || decode(&text[..cut / 4 * 4]).is_err());
        }
    }

    #[test]
    fn one_that_grows_is_read_with_its_bounds() {
        let mut growing = Histogram::<u64>::new(3).expect("3 digits");
        growing.auto(true);
        assert_eq!(decode(&encode(&growing)), Ok(read(&encode(&growing))));
        growing.record(987_654_321).expect("it grows");
        assert_eq!(decode(&encode(&growing)), Ok(growing));
    }
}
