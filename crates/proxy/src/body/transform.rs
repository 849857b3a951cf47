//! Content coding of bodies: whether a response is coded or decoded for a client.

use coding::{Accepted, Change, Coding, Content, Decoder};
use config::Compress;
use http1::{RequestHead, ResponseHead};

use crate::context::coders::{Coders, Transform};
use crate::context::exchange_slot::Request;

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

    /// What codes or decodes the body, which has this length if it is known; `None` leaves it as it is.
    pub(crate) fn transform(
        self,
        coders: &Coders,
        compress: &Compress,
        size: Option<u64>,
    ) -> Option<Transform> {
        match self {
            Self::Unchanged { .. } | Self::Weaken => None,
            Self::Decode(coding) => Decoder::new(coding).map(Transform::Decode),
            Self::Code(coding) => Some(Transform::Encode(coders.take(coding, compress.levels, size))),
        }
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
    let forbids = values(head, bytes, b"cache-control")
        .flat_map(|value| value.split(|byte| *byte == b','))
        .any(|directive| directive.trim_ascii().eq_ignore_ascii_case(b"no-transform"));
    (Accepted::of(values(head, bytes, b"accept-encoding")), forbids)
}

/// The values of all fields of a request with this name.
pub(crate) fn values<'a>(
    head: &'a RequestHead,
    bytes: &'a [u8],
    name: &'a [u8],
) -> impl Iterator<Item = &'a [u8]> {
    let is_named = move |field: &&http1::Field| field.name.of(bytes).eq_ignore_ascii_case(name);
    head.fields.iter().filter(is_named).map(|field| field.value.of(bytes))
}

/// The start of a head whose body changes: its start line and its fields, without their end and the new length.
pub(crate) fn changed_head<'a>(
    head: &[u8],
    fields: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
    change: Change,
) -> Vec<u8> {
    let start = head.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let mut text = head[..start].to_vec();
    change.write(&mut text, fields);
    text
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
