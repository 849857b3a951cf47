//! Content coding of bodies: whether a response is coded or decoded for a client, and the coders of a worker.

use std::cell::RefCell;

use coding::{Accepted, Change, Coding, CodingError, Content, Decoder, Encoder, Flush};
use config::Compress;
use http1::{RequestHead, ResponseHead};

use crate::context::exchange_slot::Request;

/// How many coders a worker keeps for later bodies: each has some 300 KB.
const SPARE_MAX: usize = 4;

/// So much a decoder makes of a piece at a time.
const DECODED_BYTES: usize = 32 << 10;

/// What becomes of a response's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    /// It leaves as it came. `adds_vary`: other clients get it otherwise, and Vary does not say so yet.
    Unchanged { adds_vary: bool },
    /// It has none, and its validator is weak, as that of the response that it is about.
    Weaken,
    /// It is coded.
    Code(Coding),
    /// It is decoded.
    Decode(Coding),
}

impl Choice {
    /// Decides about a response with this status and this content.
    pub(crate) fn of(compress: &Compress, request: &Request, status: u16, content: &Content<'_>) -> Self {
        if content.may_be_coded(status, &compress.types, compress.min_size) {
            let (accepted, forbids) = accepted(&request.head, request.head_bytes());
            return match accepted.choose(&compress.codings) {
                Some(coding) if !forbids => Self::Code(coding),
                _ => Self::Unchanged { adds_vary: !content.varies() },
            };
        }
        if content.is_coded() {
            let (accepted, forbids) = accepted(&request.head, request.head_bytes());
            if let (Some(coding), false) = (content.coding_to_remove(status, &accepted), forbids) {
                return Self::Decode(coding);
            }
        }
        Self::Unchanged { adds_vary: status == 304 && !content.varies() }
    }

    /// What the choice changes in the head.
    pub(crate) fn change(self) -> Option<Change> {
        match self {
            Self::Unchanged { .. } => None,
            Self::Code(coding) => Some(Change::Code(coding)),
            Self::Weaken | Self::Decode(_) => Some(Change::Decode),
        }
    }
}

/// What the client accepts, and whether it forbids any change (RFC 9111 §5.2.1.6).
pub(crate) fn accepted(head: &RequestHead, bytes: &[u8]) -> (Accepted, bool) {
    let values = |name: &'static [u8]| {
        let is_named = move |field: &&http1::Field| field.name.of(bytes).eq_ignore_ascii_case(name);
        head.fields.iter().filter(is_named).map(|field| field.value.of(bytes))
    };
    let forbids = values(b"cache-control")
        .flat_map(|value| value.split(|byte| *byte == b','))
        .any(|directive| directive.trim_ascii().eq_ignore_ascii_case(b"no-transform"));
    (Accepted::of(values(b"accept-encoding")), forbids)
}

/// The fields of a head, name and value of each.
pub(crate) fn fields<'a>(
    head: &'a ResponseHead,
    bytes: &'a [u8],
) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone {
    head.fields.iter().map(|field| (field.name.of(bytes), field.value.of(bytes)))
}

/// The fields of a head of the proxy's own writing.
pub(crate) fn fields_of_text(head: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
    let lines = head.split_inclusive(|byte| *byte == b'\n').skip(1);
    lines.filter_map(|line| {
        let (name, value) = line.split_at(line.iter().position(|byte| *byte == b':')?);
        Some((name, value[1..].trim_ascii()))
    })
}

/// Codes or decodes one body.
#[derive(Debug)]
pub(crate) enum Transform {
    Encode(Encoder),
    Decode(Decoder),
}

impl Transform {
    /// Appends what comes of a piece of the body to `out`.
    pub(crate) fn push(
        &mut self,
        mut piece: &[u8],
        flush: Flush,
        out: &mut Vec<u8>,
    ) -> Result<(), CodingError> {
        let decoder = match self {
            Self::Encode(encoder) => return encoder.encode(piece, flush, out),
            Self::Decode(decoder) => decoder,
        };
        loop {
            let decoded = decoder.decode(piece, DECODED_BYTES, out)?;
            piece = &piece[decoded.used..];
            if piece.is_empty() && decoded.wants_input {
                return Ok(());
            }
        }
    }

    /// Whether the body that was pushed is whole.
    pub(crate) fn is_whole(&self) -> bool {
        match self {
            Self::Encode(_) => true,
            Self::Decode(decoder) => decoder.is_over(),
        }
    }
}

/// The coders of a worker that are ready for another body. To make one costs as much as to code a few kilobytes.
#[derive(Default)]
pub(crate) struct Coders(RefCell<Vec<Encoder>>);

impl Coders {
    /// A coder or decoder for a body, of this length if it is known; `None` leaves the body as it is.
    pub(crate) fn take(&self, choice: Choice, compress: &Compress, size: Option<u64>) -> Option<Transform> {
        match choice {
            Choice::Unchanged { .. } | Choice::Weaken => None,
            Choice::Decode(coding) => Decoder::new(coding).map(Transform::Decode),
            Choice::Code(coding) => {
                let mut spare = self.0.borrow_mut();
                let known = spare.iter().position(|encoder| encoder.coding() == coding);
                let ready = known.map(|place| spare.swap_remove(place));
                let ready = ready.and_then(|mut encoder| encoder.reset(compress.levels).then_some(encoder));
                Some(Transform::Encode(ready.unwrap_or_else(|| Encoder::new(coding, compress.levels, size))))
            }
        }
    }

    /// Takes a coder back.
    pub(crate) fn give(&self, transform: Transform) {
        let mut spare = self.0.borrow_mut();
        if let Transform::Encode(encoder) = transform
            && encoder.coding() == Coding::Gzip
            && spare.len() < SPARE_MAX
        {
            spare.push(encoder);
        }
    }
}
