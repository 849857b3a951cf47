//! Requests as an application gets them, and responses as it sends them.

/// Responses in order.
mod reading;
/// Broken responses.
mod hostile;
/// Paths and scripts.
mod scripts;
/// Requests.
mod writing;
/// Properties of random inputs.
mod properties;
/// Allocations of a thread.
mod allocations;
/// Exchanges with php-fpm, where it is installed.
mod php_fpm;

use fastcgi::{
    CgiHeadLimits, EndRequest, Event, HeadOutline, Header, RecordLimits, RecordType, Response, ResponseError,
    ResponseLimits,
};

const LIMITS: ResponseLimits = ResponseLimits {
    records: RecordLimits { empty_records: 4 },
    head: CgiHeadLimits { bytes: 256, fields: 8 },
    stderr_bytes: 64,
};

/// A record of the application with this padding.
fn padded(kind: RecordType, content: &[u8], padding: u8) -> Vec<u8> {
    let header = Header { padding, ..Header::new(kind, content.len().try_into().unwrap()) };
    [&header.encode(), content, &vec![0xff; padding.into()]].concat()
}

fn record(kind: RecordType, content: &[u8]) -> Vec<u8> {
    padded(kind, content, 0)
}

fn stdout(content: &str) -> Vec<u8> {
    record(RecordType::Stdout, content.as_bytes())
}

fn stderr(content: &str) -> Vec<u8> {
    record(RecordType::Stderr, content.as_bytes())
}

/// END_REQUEST with this exit code and protocol status.
fn end(app_status: u32, protocol_status: u8) -> Vec<u8> {
    record(RecordType::EndRequest, &[&app_status.to_be_bytes()[..], &[protocol_status, 0, 0, 0]].concat())
}

/// A response as it was read.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    head: String,
    outline: Option<HeadOutline>,
    body: Vec<u8>,
    stderr: Vec<u8>,
    stderr_dropped: u64,
    end: Option<EndRequest>,
    error: Option<ResponseError>,
    /// How many bytes were read before the end or an error.
    len: usize,
}

/// Reads a response whose bytes arrive in pieces of these lengths, and then the rest.
fn read_pieces(response: &mut Response, bytes: &[u8], lens: impl IntoIterator<Item = usize>) -> Seen {
    let (mut seen, mut text) = (Seen::default(), Vec::new());
    let mut rest = bytes;
    let mut lens = lens.into_iter();
    while !rest.is_empty() && seen.end.is_none() && seen.error.is_none() {
        let len = lens.next().unwrap_or(rest.len()).clamp(1, rest.len());
        let mut piece = &rest[..len];
        rest = &rest[len..];
        loop {
            let (taken, event) = match response.read(piece, &mut text) {
                Ok(read) => read,
                Err(error) => {
                    seen.error = Some(error);
                    break;
                }
            };
            piece = &piece[taken..];
            seen.len += taken;
            match event {
                Event::More => {
                    assert!(piece.is_empty());
                    break;
                }
                Event::Head { outline, body } => {
                    assert_eq!(seen.outline.replace(outline), None, "one head");
                    seen.body.extend_from_slice(body);
                }
                Event::Body(body) => {
                    assert!(!body.is_empty() && seen.outline.is_some());
                    seen.body.extend_from_slice(body);
                }
                Event::Stderr(output) => {
                    assert!(!output.is_empty());
                    seen.stderr.extend_from_slice(output);
                }
                Event::End(end) => {
                    seen.end = Some(end);
                    break;
                }
            }
        }
    }
    // The next call returns the error of the last piece.
    if let (None, Err(error)) = (seen.error, response.read(b"", &mut text)) {
        seen.error = Some(error);
    }
    if seen.error.is_some() {
        // How far a refused record was read depends on the split.
        seen.len = 0;
    }
    seen.stderr_dropped = response.stderr_dropped();
    seen.head = String::from_utf8(text).expect("heads of tests are text");
    seen
}

fn read(bytes: &[u8]) -> Seen {
    read_pieces(&mut Response::new(LIMITS, false), bytes, [])
}
