//! The chunked coding: valid and invalid bodies, and its limits. `properties` covers splits of the input.

use http1::{CHUNK_FRAME_BYTES, ChunkError, ChunkLimits, ChunkedDecoder, chunk_prefix};

use crate::text;

const LIMITS: ChunkLimits = ChunkLimits { extension_bytes: 32, trailer_bytes: 64 };

/// Data, bytes after the body, and trailers; `None` if the body is incomplete.
type Body = Option<(Vec<u8>, Vec<u8>, Vec<u8>)>;

fn decode(bytes: &[u8]) -> Result<Body, ChunkError> {
    let mut chunked = ChunkedDecoder::default();
    let mut buffer = bytes.to_vec();
    let decoded = chunked.decode(&mut buffer, &LIMITS)?;
    assert!(decoded.done || decoded.consumed == bytes.len(), "all is consumed while the body goes on");
    let behind = buffer[decoded.consumed..].to_vec();
    Ok(decoded.done.then(|| (buffer[..decoded.data].to_vec(), behind, chunked.trailers().to_vec())))
}

/// RFC 9112 §7.1.
#[test]
fn bodies() {
    for (bytes, data, behind, trailers) in [
        ("0\r\n\r\n", "", "", ""),
        ("000\r\n\r\n", "", "", ""),
        ("5\r\nhello\r\n0\r\n\r\n", "hello", "", ""),
        ("5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n", "hello world", "", ""),
        ("a\r\n0123456789\r\nA\r\n0123456789\r\n0\r\n\r\n", "01234567890123456789", "", ""),
        ("000000000000005\r\nhello\r\n0\r\n\r\n", "hello", "", ""),
        ("4\r\n\r\n\r\n\r\n0\r\n\r\n", "\r\n\r\n", "", ""),
        ("1\r\nx\r\n0\r\n\r\nGET / HTTP/1.1\r\n", "x", "GET / HTTP/1.1\r\n", ""),
        // §7.1.1: extensions are skipped.
        ("1;a\r\nx\r\n0;b=\"c;d\";e\r\n\r\n", "x", "", ""),
        ("1;\r\nx\r\n0\r\n\r\n", "x", "", ""),
        ("1; a = \t\u{e9}\r\nx\r\n0\r\n\r\n", "x", "", ""),
        // §7.1.2: forwarded trailers, and dropped ones (RFC 9110 §6.5.1).
        ("0\r\nA: b\r\nC: d\r\n\r\n", "", "", "A: b\r\nC: d\r\n"),
        ("0\r\nContent-Length: 5\r\nA: b\r\nHost: x\r\n\r\n", "", "", "A: b\r\n"),
        ("0\r\nTransfer-Encoding: chunked\r\n\r\n", "", "", ""),
        ("0\r\nSet-Cookie: a=b\r\nAuthorization: x\r\n\r\n", "", "", ""),
        ("0\r\nX-Forwarded-For: a\r\nX_Forwarded_For: a\r\n\r\n", "", "", ""),
        ("0\r\nif-match: x\r\nETag: y\r\n\r\nrest", "", "rest", "ETag: y\r\n"),
    ] {
        let expected = (data.as_bytes().to_vec(), behind.as_bytes().to_vec(), trailers.as_bytes().to_vec());
        assert_eq!(decode(bytes.as_bytes()), Ok(Some(expected)), "{}", text(bytes.as_bytes()));
    }
}

/// RFC 9112 §7.1 and §11.2.
#[test]
fn bodies_that_are_refused() {
    for (bytes, error) in [
        ("\r\n", ChunkError::Size),
        ("\n", ChunkError::Size),
        (" 5\r\nhello\r\n", ChunkError::Size),
        ("5 \r\nhello\r\n", ChunkError::Size),
        ("5\t\r\nhello\r\n", ChunkError::Size),
        ("5 ;a\r\nhello\r\n", ChunkError::Size),
        (";a\r\n", ChunkError::Size),
        ("-1\r\n", ChunkError::Size),
        ("+1\r\n", ChunkError::Size),
        ("0x5\r\nhello\r\n", ChunkError::Size),
        ("5h\r\nhello\r\n", ChunkError::Size),
        ("5_0\r\n", ChunkError::Size),
        ("5,5\r\n", ChunkError::Size),
        ("\"5\"\r\n", ChunkError::Size),
        ("g\r\n", ChunkError::Size),
        ("5\0\r\n", ChunkError::Size),
        ("0000000000000005\r\nhello\r\n", ChunkError::SizeTooLarge),
        ("ffffffffffffffff\r\n", ChunkError::SizeTooLarge),
        ("10000000000000000\r\n", ChunkError::SizeTooLarge),
        ("10000000000000005\r\nhello\r\n", ChunkError::SizeTooLarge),
        ("5\nhello\r\n0\r\n\r\n", ChunkError::Terminator),
        ("5\r\rhello", ChunkError::Terminator),
        ("5\rhello", ChunkError::Terminator),
        ("5\r\nhello\n0\r\n\r\n", ChunkError::Terminator),
        ("5\r\nhello0\r\n\r\n", ChunkError::Terminator),
        ("5\r\nhello!\r\n", ChunkError::Terminator),
        ("5\r\nhello\r0", ChunkError::Terminator),
        ("5\r\nhello\r\r\n", ChunkError::Terminator),
        ("5\r\nhello\r\n\r\n0\r\n\r\n", ChunkError::Size),
        // Some parsers take a bare LF as the end of an extension.
        ("5;a\nhello\r\n", ChunkError::Extension),
        ("5;\nhello\r\n", ChunkError::Extension),
        ("5;a\0\r\n", ChunkError::Extension),
        ("5;a\x7f\r\n", ChunkError::Extension),
        ("5;a\rb\r\n", ChunkError::Terminator),
        ("0\r\n\n", ChunkError::Terminator),
        ("0\r\nA: b\n\r\n", ChunkError::Terminator),
        ("0\r\nA\r\n\r\n", ChunkError::Trailer),
        ("0\r\nA : b\r\n\r\n", ChunkError::Trailer),
        ("0\r\n b\r\n\r\n", ChunkError::Trailer),
        ("0\r\nA: b\r\n c\r\n\r\n", ChunkError::Trailer),
        ("0\r\nA: b\rc\r\n\r\n", ChunkError::Trailer),
        ("0\r\nA: \0\r\n\r\n", ChunkError::Trailer),
        ("0\r\n\rx\r\n", ChunkError::Trailer),
        ("0\r\nGET / HTTP/1.1\r\n\r\n", ChunkError::Trailer),
    ] {
        assert_eq!(decode(bytes.as_bytes()), Err(error), "{}", text(bytes.as_bytes()));
    }
}

#[test]
fn bodies_that_have_not_ended() {
    for bytes in [
        "",
        "5",
        "5\r",
        "5\r\n",
        "5\r\nhel",
        "5\r\nhello",
        "5\r\nhello\r\n",
        "0\r\n",
        "0\r\nA: b\r\n",
        "0\r\n\r",
    ] {
        assert_eq!(decode(bytes.as_bytes()), Ok(None), "{}", text(bytes.as_bytes()));
    }
}

#[test]
fn limits_at_the_bound_and_one_over() {
    let extended = |len: usize| format!("0;{}\r\n\r\n", "x".repeat(len));
    assert!(decode(extended(32).as_bytes()).is_ok());
    assert_eq!(decode(extended(33).as_bytes()), Err(ChunkError::ExtensionsTooLarge));
    // The limit holds for a whole body, not for each chunk.
    let spread = format!("{}0\r\n\r\n", "1;abc\r\nx\r\n".repeat(11));
    assert_eq!(decode(spread.as_bytes()), Err(ChunkError::ExtensionsTooLarge));
    let trailed = |len: usize| format!("0\r\nA: {}\r\n\r\n", "x".repeat(len - 7));
    assert!(decode(trailed(64).as_bytes()).is_ok());
    assert_eq!(decode(trailed(65).as_bytes()), Err(ChunkError::TrailersTooLarge));
    // Dropped trailers count as well.
    let dropped = format!("0\r\n{}\r\n", "Host: abc\r\n".repeat(6));
    assert_eq!(decode(dropped.as_bytes()), Err(ChunkError::TrailersTooLarge));
}

#[test]
fn a_decoder_is_used_again() {
    let mut chunked = ChunkedDecoder::default();
    let mut first = b"1;abc\r\nx\r\n0\r\nA: b\r\n\r\n".to_vec();
    assert!(chunked.decode(&mut first, &LIMITS).unwrap().done);
    let again = chunked.decode(&mut first, &LIMITS).unwrap();
    assert_eq!(
        (again.consumed, again.data, again.done),
        (0, 0, true),
        "a body that has ended takes nothing more"
    );
    chunked.clear();
    let mut second = b"1\r\ny\r\n".to_vec();
    let decoded = chunked.decode(&mut second, &LIMITS).unwrap();
    assert_eq!((decoded.data, decoded.done, chunked.trailers()), (1, false, b"".as_slice()));
}

#[test]
fn unwanted_trailers_are_taken_out() {
    let mut chunked = ChunkedDecoder::default();
    let mut body = b"0\r\nA: b\r\nX-Secret: A: 1\r\nC: X-Secret\r\nHost: x\r\n\r\n".to_vec();
    assert!(chunked.decode(&mut body, &LIMITS).unwrap().done);
    chunked.retain_trailers(|name| !name.eq_ignore_ascii_case(b"x-secret"));
    assert_eq!(chunked.trailers(), b"A: b\r\nC: X-Secret\r\n");
    chunked.retain_trailers(|_| false);
    assert_eq!(chunked.trailers(), b"");
}

#[test]
fn size_lines() {
    for (size, line) in [(0, "0\r\n"), (1, "1\r\n"), (0xabc, "abc\r\n"), (65_536, "10000\r\n")] {
        let (bytes, start) = chunk_prefix(size);
        assert_eq!(&bytes[start..], line.as_bytes());
    }
    let (bytes, start) = chunk_prefix((1 << 60) - 1);
    assert_eq!(bytes[start..].len() + 2, CHUNK_FRAME_BYTES);
    assert_eq!(chunk_prefix(usize::MAX).1, 0);
}
