//! Stored responses in a binary form that outlives the process. Only the purges checked so far are left out.
//!
//! Little-endian numbers, then texts of the given lengths, then the body. The caller guarantees the integrity of the
//! bytes; contradictions are still detected.

use bytes::Bytes;
use http1::ByteSpan;

use crate::purge::Label;
use crate::store::object::{Object, Opening};
use crate::stored::{Stored, Traits};
use crate::vary::{VariantKey, Vary};

/// The version of the format, written first.
const VERSION: u8 = 2;
/// The version without hidden fields, which can be read as well. Other versions cannot.
// An upgrade must not empty the disk.
const WITHOUT_HIDDEN: u8 = 1;

/// A response in its binary form, after reading.
#[derive(Debug)]
pub struct Recorded {
    /// The response up to its body.
    pub opening: Opening,
    /// The epoch in which the fetch began, as counted by the process that wrote the record.
    pub epoch: u64,
    pub body: Bytes,
}

impl Object {
    /// Encodes the response, in parts: a long body is shared, not copied.
    pub fn record(&self) -> Vec<Bytes> {
        // The fixed numbers take about 120 bytes, labels and key text a little more.
        let mut text = Vec::with_capacity(256 + self.head_and_short_body().len());
        let stored = self.stored();
        text.push(VERSION);
        text.push(stored.traits.as_u8());
        text.extend_from_slice(&stored.status.to_le_bytes());
        for number in [
            stored.stale_while_revalidate_seconds,
            stored.stale_if_error_seconds,
            stored.etag.start,
            stored.etag.end,
            stored.last_modified.start,
            stored.last_modified.end,
            self.vary().as_bytes().len() as u32,
            self.labels().len() as u32,
            self.key_text().len() as u32,
            self.head().len() as u32,
            self.hidden().len() as u32,
        ] {
            text.extend_from_slice(&number.to_le_bytes());
        }
        for number in [
            stored.last_modified_unix_seconds,
            stored.date_unix_seconds,
            stored.received_ms,
            stored.made_ms,
            stored.fresh_until_ms,
            self.epoch(),
        ] {
            text.extend_from_slice(&number.to_le_bytes());
        }
        text.extend_from_slice(&self.variant().as_u128().to_le_bytes());
        text.extend_from_slice(self.vary().as_bytes());
        for label in self.labels() {
            text.extend_from_slice(&label.as_u64().to_le_bytes());
        }
        text.extend_from_slice(self.key_text());
        text.extend_from_slice(self.hidden());
        text.extend_from_slice(self.head_and_short_body());
        let mut parts = vec![Bytes::from(text)];
        parts.extend(self.long_body());
        parts
    }
}

impl Recorded {
    /// Decodes the output of `Object::record`. `None` if the bytes are invalid.
    pub fn read(bytes: &Bytes) -> Option<Self> {
        let mut rest = UnreadRest(bytes);
        let [version @ (WITHOUT_HIDDEN | VERSION)] = rest.take::<1>()? else { return None };
        let traits = Traits::from_u8(rest.take::<1>()?[0]);
        let status = u16::from_le_bytes(rest.take()?);
        let [
            revalidate,
            on_error,
            etag_start,
            etag_end,
            modified_start,
            modified_end,
            vary,
            labels,
            key,
            head,
        ] = rest.numbers(|bytes| u32::from_le_bytes(*bytes))?;
        let hidden = if version == WITHOUT_HIDDEN { 0 } else { u32::from_le_bytes(rest.take()?) };
        let [last_modified_unix_seconds, date_unix_seconds, received_ms, made_ms, fresh_until_ms, epoch] =
            rest.numbers(|bytes| u64::from_le_bytes(*bytes))?;
        let variant = VariantKey::from_u128(u128::from_le_bytes(rest.take()?));
        let vary = Vary::from_bytes(rest.text(vary as usize)?);
        let labels: Option<Vec<Label>> =
            (0..labels).map(|_| Some(Label::from_u64(u64::from_le_bytes(rest.take()?)))).collect();
        let (key_text, hidden) = (rest.text(key as usize)?, rest.text(hidden as usize)?);
        let head = rest.text(head as usize)?;
        // A damaged span would panic much later, when a head is read.
        let span =
            |start, end| (start <= end && end as usize <= head.len()).then_some(ByteSpan { start, end });
        let stored = Stored {
            status,
            traits,
            stale_while_revalidate_seconds: revalidate,
            stale_if_error_seconds: on_error,
            etag: span(etag_start, etag_end)?,
            last_modified: span(modified_start, modified_end)?,
            last_modified_unix_seconds,
            date_unix_seconds,
            received_ms,
            made_ms,
            fresh_until_ms,
            // Parts are never written: see `Store::put`.
            part: None,
        };
        // Shared with the bytes that were read, not copied.
        let body = bytes.slice_ref(rest.0);
        let opening = Opening {
            stored,
            vary,
            variant,
            key_text: key_text.into(),
            // A head without its end would run into the body.
            head: Some(head).filter(|head| head.ends_with(b"\r\n\r\n"))?.into(),
            hidden: hidden.into(),
            labels: labels?.into(),
            body_bytes: Some(body.len() as u64),
            forms: None,
        };
        Some(Self { opening, epoch, body })
    }
}

/// The bytes that are not read yet.
struct UnreadRest<'a>(&'a [u8]);

impl<'a> UnreadRest<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn numbers<const N: usize, const COUNT: usize, T>(
        &mut self,
        of: impl Fn(&[u8; N]) -> T,
    ) -> Option<[T; COUNT]> {
        let mut taken = [[0; N]; COUNT];
        for number in &mut taken {
            *number = self.take()?;
        }
        Some(taken.map(|bytes| of(&bytes)))
    }

    fn text(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::{key, opening};

    fn object(body: &[u8]) -> Object {
        let opening = Opening {
            vary: Vary::from_bytes(b"accept,cookie"),
            variant: VariantKey::from_u128(7 << 90),
            labels: [Label::from_u64(3), Label::from_u64(u64::MAX)].into(),
            hidden: b"Surrogate-Key: a b\r\n"[..].into(),
            ..opening("http://a.example/b")
        };
        let opening =
            Opening { stored: Stored { etag: ByteSpan { start: 9, end: 12 }, ..opening.stored }, ..opening };
        Object::new(key(1), 5, opening, &[Bytes::copy_from_slice(body)])
    }

    #[test]
    fn written_records_are_read() {
        for body_bytes in [0, 1, 1000, 100_000, 300_000] {
            let body: Vec<u8> = (0..body_bytes).map(|at| (at * 7 % 251) as u8).collect();
            let written = object(&body);
            let recorded = Recorded::read(&written.record().concat().into()).expect("it is one");
            assert_eq!((recorded.epoch, &recorded.body[..]), (5, &body[..]));
            let read = Object::new(key(1), recorded.epoch, recorded.opening, &[recorded.body]);
            assert_eq!(read.stored(), written.stored());
            assert_eq!((read.vary(), read.variant()), (written.vary(), written.variant()));
            assert_eq!((read.labels(), read.key_text()), (written.labels(), written.key_text()));
            assert_eq!((read.head(), read.hidden()), (written.head(), written.hidden()));
        }
    }

    /// A disk may contain records of an earlier version.
    #[test]
    fn records_without_hidden_fields_are_read() {
        let opening = Opening { hidden: Box::new([]), ..object(b"").opening() };
        let written = Object::new(key(1), 5, opening, &[Bytes::from_static(b"body")]);
        let mut bytes = written.record().concat();
        bytes[0] = WITHOUT_HIDDEN;
        // Two bytes and a status, then ten numbers before the new one.
        assert_eq!(bytes.drain(44..48).collect::<Vec<u8>>(), [0; 4]);
        let recorded = Recorded::read(&bytes.into()).expect("it is one");
        assert_eq!((&recorded.body[..], &*recorded.opening.head), (&b"body"[..], written.head()));
    }

    #[test]
    fn a_response_cut_off_before_its_body_leaves_nothing() {
        let bytes = Bytes::from(object(b"").record().concat());
        for end in 0..bytes.len() {
            assert!(Recorded::read(&bytes.slice(..end)).is_none(), "{end}");
        }
    }

    #[test]
    fn lengths_that_lie_are_noticed() {
        let bytes = object(b"body").record().concat();
        // The numbers from the position of the entity tag on.
        for at in (12..44).chain([0]) {
            let mut damaged = bytes.clone();
            damaged[at] = 0xff;
            // It may decode to something else, but never panics.
            drop(Recorded::read(&damaged.into()));
        }
    }
}
