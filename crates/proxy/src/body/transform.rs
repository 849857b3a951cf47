//! Decides whether a response is coded or decoded for a client, and changes its head.

use coding::{Accepted, BodyChange, BodyDecoder, BodyHead, Coding};
use config::Compress;
use http1::{RequestHead, ResponseHead};

use crate::body::coders::{Coders, Transform};

/// The change of a response's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    /// No change. `adds_vary`: other clients get another coding, and Vary lacks Accept-Encoding.
    Unchanged {
        adds_vary: bool,
    },
    /// A response without a body (304) whose validator becomes weak, like that of the response it refers to.
    Weaken,
    Code(Coding),
    Decode(Coding),
}

impl Choice {
    /// Decides about a response, given its status and content.
    pub(crate) fn new(
        compress: &Compress,
        head: &RequestHead,
        bytes: &[u8],
        status: u16,
        content: &BodyHead<'_>,
    ) -> Self {
        let Compress { types, min_size, codings, .. } = compress;
        let may_be_coded = content.may_be_coded(status, types, *min_size);
        // Accept-Encoding is only parsed if the answer depends on it.
        if may_be_coded || content.removable_coding(status).is_some() {
            let (accepted, forbids) = accepted(head, bytes);
            let choice = match may_be_coded {
                true => accepted.choose(codings).map(Self::Code),
                false => content.coding_to_remove(status, &accepted).map(Self::Decode),
            };
            if let Some(choice) = choice.filter(|_| !forbids) {
                return choice;
            }
        }
        // RFC 9110 §12.5.5: an unchanged response varies, too, if another client would get it coded.
        let is_negotiated = content.is_negotiated(status, types, *min_size);
        Self::Unchanged { adds_vary: is_negotiated && !content.varies() }
    }

    /// Returns the coder or decoder for the body; `None` if it stays unchanged. `size` is its length, if known.
    pub(crate) fn transform(
        self,
        coders: &Coders,
        compress: &Compress,
        size: Option<u64>,
    ) -> Option<Transform> {
        match self {
            Self::Unchanged { .. } | Self::Weaken => None,
            Self::Decode(coding) => BodyDecoder::new(coding).map(Transform::Decode),
            Self::Code(coding) => Some(Transform::Encode(coders.take(coding, compress.levels, size))),
        }
    }

    /// Returns the change of the head.
    pub(crate) fn change(self) -> Option<BodyChange> {
        match self {
            Self::Unchanged { .. } => None,
            Self::Code(coding) => Some(BodyChange::Code(coding)),
            Self::Weaken | Self::Decode(_) => Some(BodyChange::Decode),
        }
    }
}

/// Returns the codings that the client accepts, and whether it forbids changes (no-transform, RFC 9111 §5.2.1.6).
pub(crate) fn accepted(head: &RequestHead, bytes: &[u8]) -> (Accepted, bool) {
    let forbids = values(head, bytes, b"cache-control")
        .flat_map(|value| value.split(|byte| *byte == b','))
        .any(|directive| directive.trim_ascii().eq_ignore_ascii_case(b"no-transform"));
    (Accepted::from_values(values(head, bytes, b"accept-encoding")), forbids)
}

/// Returns the values of all fields with this name.
pub(crate) fn values<'a>(
    head: &'a RequestHead,
    bytes: &'a [u8],
    name: &'a [u8],
) -> impl Iterator<Item = &'a [u8]> {
    let is_named = move |field: &&http1::FieldLine| field.name.for_bytes(bytes).eq_ignore_ascii_case(name);
    head.fields.iter().filter(is_named).map(|field| field.value.for_bytes(bytes))
}

/// Returns the beginning of the head of a changed body: start line and fields, without the final empty line. `length`
/// is that of the changed body; `None` if it is unknown, or written later.
pub(crate) fn changed_head<'a>(
    head: &[u8],
    fields: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
    change: BodyChange,
    length: Option<u64>,
) -> Vec<u8> {
    let start = head.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let mut text = head[..start].to_vec();
    change.write(&mut text, fields);
    if let Some(length) = length {
        ::cache::write_content_length(&mut text, length);
    }
    text
}

/// Returns the fields of a head, as name and value.
pub(crate) fn fields<'a>(
    head: &'a ResponseHead,
    bytes: &'a [u8],
) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone {
    head.fields.iter().map(|field| (field.name.for_bytes(bytes), field.value.for_bytes(bytes)))
}
