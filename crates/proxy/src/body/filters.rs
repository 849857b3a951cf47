//! The chain of filters that a message passes through: what changes its head and its trailers, and cuts its body. None changes
//! the bytes of a body: content coding does ([`super::transform`]), before the filters.
//!
//! An empty chain, as nearly every message has, costs a branch. A new filter is a variant of [`Filter`] and what it does in
//! the steps of [`Filters`]; whoever plans a response pushes it ([`super::response_plan`]).

use std::time::Duration;

use http1::Framing;

use crate::body::omitted_fields::OmittedFields;
use crate::body::send::Delivery;
use crate::context::failure::Failure;
use transport::tcp::Follows;

/// Where the size of a chunk should be (RFC 9112 §7.1).
const NO_CHUNK: &[u8] = b"this is no chunk\r\n";
/// The fields of which one says how long a body is.
const OF_LENGTH: [&[u8]; 2] = [b"content-length", b"transfer-encoding"];

/// One change of a message.
#[derive(Debug, Clone)]
pub(crate) enum Filter {
    /// Some trailers are left out.
    OmitTrailers(OmittedFields),
    /// All trailers are left out.
    NoTrailers,
    /// The head gets one more line.
    AddLine(Vec<u8>),
    /// The head says another length than the body has.
    WrongLength {
        /// Bytes that are added to the length.
        by: i64,
    },
    /// The head leaves a line at a time.
    Drip {
        /// The wait behind each line.
        pause: Duration,
    },
    /// The client is told that this response is the last (HTTP/2: GOAWAY).
    GoAway,
    /// The body is broken off.
    Cut {
        /// Behind so many bytes, if there are more.
        after: u64,
    },
    /// In the place of the body comes what is no chunk.
    BadChunk,
}

/// All changes of a message, in their order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Filters(Vec<Filter>);

impl Filters {
    /// Adds a filter behind those that are there.
    pub(crate) fn push(&mut self, filter: Filter) {
        self.0.push(filter);
    }

    /// Whether nothing is changed.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Changes a head that is written, and how the body's end is told. `is_framed` is of a client that speaks HTTP/2.
    pub(crate) fn change_head(&self, head: &mut Vec<u8>, framing: &mut Framing, is_framed: bool) {
        for filter in &self.0 {
            match filter {
                Filter::AddLine(line) => replace_fields(head, &[], line),
                Filter::WrongLength { by } => {
                    if let Framing::Length(length) = *framing {
                        let length = length.saturating_add_signed(*by);
                        replace_fields(head, &OF_LENGTH, format!("Content-Length: {length}\r\n").as_bytes());
                    }
                }
                Filter::BadChunk if !is_framed => {
                    replace_fields(head, &OF_LENGTH, b"Transfer-Encoding: chunked\r\n");
                    *framing = Framing::Chunked;
                }
                Filter::BadChunk
                | Filter::OmitTrailers(_)
                | Filter::NoTrailers
                | Filter::Drip { .. }
                | Filter::GoAway
                | Filter::Cut { .. } => {}
            }
        }
    }

    /// Whether the head leaves by itself, before all else.
    pub(crate) fn delays_head(&self) -> bool {
        self.0.iter().any(|filter| matches!(filter, Filter::Drip { .. }))
    }

    /// Whether [`Self::begin`] has something to do.
    pub(crate) fn act_first(&self) -> bool {
        self.0.iter().any(|filter| matches!(filter, Filter::Drip { .. } | Filter::GoAway))
    }

    /// Does what comes before all else of a response is sent. What of the head has left by then is taken out of it.
    pub(crate) async fn begin(&self, delivery: &Delivery<'_>, head: &mut Vec<u8>) -> Result<(), Failure> {
        for filter in &self.0 {
            match filter {
                Filter::Drip { pause } => drip(delivery, head, *pause).await?,
                Filter::GoAway => delivery.ctx.client.socket.retire(),
                _ => {}
            }
        }
        Ok(())
    }

    /// Behind how many bytes the body is broken off, if it has more.
    pub(crate) fn cut_after(&self) -> Option<u64> {
        let bounds = self.0.iter().filter_map(|filter| match filter {
            Filter::Cut { after } => Some(*after),
            Filter::BadChunk => Some(0),
            _ => None,
        });
        bounds.min()
    }

    /// Sends what comes where a body is broken off. A stream of HTTP/2 knows no chunks: it is reset.
    pub(crate) async fn break_off(&self, delivery: &Delivery<'_>) -> Result<(), Failure> {
        if self.0.iter().any(|filter| matches!(filter, Filter::BadChunk))
            && !delivery.ctx.client.socket.frames_itself()
        {
            return delivery.send(NO_CHUNK, Follows::End).await;
        }
        Ok(())
    }

    /// Whether a trailer with this name is left out.
    pub(crate) fn omits_trailer(&self, name: &[u8]) -> bool {
        self.0.iter().any(|filter| match filter {
            Filter::OmitTrailers(omitted) => omitted.has(name),
            Filter::NoTrailers => true,
            _ => false,
        })
    }
}

/// Sends a head a line at a time. That of a stream is sent as a whole, as late as its last line would be: between its
/// frames there could be no others (RFC 9113 §6.10), so all streams would wait.
async fn drip(delivery: &Delivery<'_>, head: &mut Vec<u8>, pause: Duration) -> Result<(), Failure> {
    let ctx = delivery.ctx;
    if ctx.client.socket.frames_itself() {
        let lines = head.iter().filter(|byte| **byte == b'\n').count() as u32;
        ctx.worker.alarms.sleep(pause.saturating_mul(lines)).await;
        return Ok(());
    }
    let mut rest = head.as_slice();
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        delivery.send(&rest[..=end], Follows::Nothing).await?;
        rest = &rest[end + 1..];
        ctx.worker.alarms.sleep(pause).await;
    }
    head.clear();
    Ok(())
}

/// Puts a line into a head, in the place of the fields with these names.
fn replace_fields(head: &mut Vec<u8>, names: &[&[u8]], line: &[u8]) {
    let is_named = |line: &[u8]| {
        let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
        names.iter().any(|known| name.eq_ignore_ascii_case(known))
    };
    let mut kept = Vec::with_capacity(head.len() + line.len());
    let fields = head.len() - b"\r\n".len();
    for field in head[..fields].split_inclusive(|byte| *byte == b'\n').filter(|field| !is_named(field)) {
        kept.extend_from_slice(field);
    }
    kept.extend_from_slice(line);
    kept.extend_from_slice(b"\r\n");
    *head = kept;
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nA: content-length: 1\r\ncontent-Length: 5\r\nB: c\r\n\r\n";

    #[test]
    fn heads_are_changed_in_the_order_of_the_chain() {
        let rows: [(&[Filter], bool, &str, Framing); 5] = [
            (&[], false, "content-Length: 5\r\nB: c\r\n", Framing::Length(5)),
            (&[Filter::WrongLength { by: 2 }], false, "B: c\r\nContent-Length: 7\r\n", Framing::Length(5)),
            (&[Filter::WrongLength { by: -9 }], true, "B: c\r\nContent-Length: 0\r\n", Framing::Length(5)),
            (
                &[Filter::AddLine(b"X: y\r\n".to_vec()), Filter::BadChunk],
                false,
                "B: c\r\nX: y\r\nTransfer-Encoding: chunked\r\n",
                Framing::Chunked,
            ),
            (&[Filter::BadChunk], true, "content-Length: 5\r\nB: c\r\n", Framing::Length(5)),
        ];
        for (chain, is_framed, expected, expected_framing) in rows {
            let (mut head, mut framing) = (HEAD.to_vec(), Framing::Length(5));
            Filters(chain.to_vec()).change_head(&mut head, &mut framing, is_framed);
            let expected = format!("HTTP/1.1 200 OK\r\nA: content-length: 1\r\n{expected}\r\n");
            assert_eq!(String::from_utf8_lossy(&head), expected, "{chain:?}");
            assert_eq!(framing, expected_framing, "{chain:?}");
        }
    }

    #[test]
    fn the_first_cut_holds_and_trailers_are_left_out_by_any_filter() {
        let mut filters = Filters::default();
        assert_eq!((filters.cut_after(), filters.omits_trailer(b"x")), (None, false));
        filters.push(Filter::Cut { after: 7 });
        filters.push(Filter::Cut { after: 9 });
        assert_eq!(filters.cut_after(), Some(7));
        filters.push(Filter::BadChunk);
        assert_eq!(filters.cut_after(), Some(0));
        filters.push(Filter::NoTrailers);
        assert!(filters.omits_trailer(b"x"));
    }
}
