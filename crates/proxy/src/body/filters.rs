//! The chain of filters of a message, which change its head and trailers, and cut its body. Filters do not change body
//! bytes: content coding (`transform`) does, before the filters.
//!
//! Nearly every chain is empty, which costs a branch. A new filter is a variant of [`Filter`] with its effect in
//! [`Filters`]; the code that plans a response pushes it.

use std::time::Duration;

use http1::BodyFraming;

use crate::body::omitted_fields::OmittedFields;

/// The fields that state the length of a body.
const OF_LENGTH: [&[u8]; 2] = [b"content-length", b"transfer-encoding"];

#[derive(Debug, Clone)]
pub(crate) enum Filter {
    OmitTrailers(OmittedFields),
    NoTrailers,
    /// Adds a line to the head.
    AddLine(Vec<u8>),
    /// Changes Content-Length to a wrong value.
    WrongLength {
        /// Added to the length; may be negative.
        by: i64,
    },
    /// Sends the head line by line.
    Drip {
        /// The wait after each line.
        pause: Duration,
    },
    /// Announces this response as the last one (HTTP/2: GOAWAY).
    GoAway,
    Cut {
        /// Bytes of the body that are sent, if it is longer.
        after: u64,
    },
    /// Sends an invalid chunk in place of the body.
    BadChunk,
}

/// The filters of a message, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Filters(Vec<Filter>);

impl Filters {
    pub(crate) fn push(&mut self, filter: Filter) {
        self.0.push(filter);
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Changes a written head, and the framing of its body. `is_framed`: the client uses HTTP/2 or HTTP/3.
    pub(crate) fn change_head(&self, head: &mut Vec<u8>, framing: &mut BodyFraming, is_framed: bool) {
        for filter in &self.0 {
            match filter {
                Filter::AddLine(line) => replace_fields(head, &[], line),
                Filter::WrongLength { by } => {
                    if let BodyFraming::Length(length) = *framing {
                        let length = length.saturating_add_signed(*by);
                        replace_fields(head, &OF_LENGTH, format!("Content-Length: {length}\r\n").as_bytes());
                    }
                }
                // HTTP/2 and HTTP/3 have no chunks: there, the fault cuts the body instead (`cut_after`).
                Filter::BadChunk if !is_framed => {
                    replace_fields(head, &OF_LENGTH, b"Transfer-Encoding: chunked\r\n");
                    *framing = BodyFraming::Chunked;
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

    /// Whether the head is sent separately, before the body.
    pub(crate) fn delays_head(&self) -> bool {
        self.0.iter().any(|filter| matches!(filter, Filter::Drip { .. }))
    }

    /// Whether a filter acts before the head is sent.
    pub(crate) fn act_first(&self) -> bool {
        self.0.iter().any(|filter| matches!(filter, Filter::Drip { .. } | Filter::GoAway))
    }

    /// Returns after how many bytes the body is cut, if it is longer.
    pub(crate) fn cut_after(&self) -> Option<u64> {
        let bounds = self.0.iter().filter_map(|filter| match filter {
            Filter::Cut { after } => Some(*after),
            // The text in place of a chunk comes before any byte of the body.
            Filter::BadChunk => Some(0),
            _ => None,
        });
        bounds.min()
    }

    pub(crate) fn all(&self) -> &[Filter] {
        &self.0
    }

    pub(crate) fn omits_trailer(&self, name: &[u8]) -> bool {
        self.0.iter().any(|filter| match filter {
            Filter::OmitTrailers(omitted) => omitted.has(name),
            Filter::NoTrailers => true,
            _ => false,
        })
    }
}

/// Adds a line to a head, in place of the fields with these names.
fn replace_fields(head: &mut Vec<u8>, names: &[&[u8]], line: &[u8]) {
    let is_named = |line: &[u8]| {
        let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
        names.iter().any(|known| name.eq_ignore_ascii_case(known))
    };
    // Only faults come here, so the copy of the head is rare.
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
        let rows: [(&[Filter], bool, &str, BodyFraming); 5] = [
            (&[], false, "content-Length: 5\r\nB: c\r\n", BodyFraming::Length(5)),
            (
                &[Filter::WrongLength { by: 2 }],
                false,
                "B: c\r\nContent-Length: 7\r\n",
                BodyFraming::Length(5),
            ),
            (
                &[Filter::WrongLength { by: -9 }],
                true,
                "B: c\r\nContent-Length: 0\r\n",
                BodyFraming::Length(5),
            ),
            (
                &[Filter::AddLine(b"X: y\r\n".to_vec()), Filter::BadChunk],
                false,
                "B: c\r\nX: y\r\nTransfer-Encoding: chunked\r\n",
                BodyFraming::Chunked,
            ),
            (&[Filter::BadChunk], true, "content-Length: 5\r\nB: c\r\n", BodyFraming::Length(5)),
        ];
        for (chain, is_framed, expected, expected_framing) in rows {
            let (mut head, mut framing) = (HEAD.to_vec(), BodyFraming::Length(5));
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
