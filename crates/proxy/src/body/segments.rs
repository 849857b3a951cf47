//! Bodies of several ranges: texts of the proxy, each followed by a range of the content.

use std::ops::Range;

use ::cache::Boundary;

/// A text of the proxy, and the range of the content that follows it.
#[derive(Default)]
pub(crate) struct Segment {
    pub(crate) text: Vec<u8>,
    pub(crate) range: Range<u64>,
}

impl Segment {
    pub(crate) fn from_range(range: Range<u64>) -> Self {
        Self { text: Vec::new(), range }
    }

    /// The length of both, in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.text.len() as u64 + (self.range.end - self.range.start)
    }
}

/// Returns the body of multipart/byteranges (RFC 9110 §14.6).
pub(crate) fn parts(
    ranges: &[Range<u64>],
    boundary: &Boundary,
    content_type: Option<&[u8]>,
    whole_bytes: u64,
) -> Vec<Segment> {
    let part = |range: &Range<u64>| {
        let mut text = Vec::new();
        boundary.write_part_head(&mut text, content_type, range, whole_bytes);
        Segment { text, range: range.clone() }
    };
    let mut segments: Vec<Segment> = ranges.iter().map(part).collect();
    let mut text = Vec::new();
    boundary.write_end(&mut text);
    segments.push(Segment { text, range: 0..0 });
    segments
}
