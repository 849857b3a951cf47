//! The response of one stream as it arrives, over HTTP/2 and HTTP/3 alike. Bodies are counted, not kept.

use std::time::Instant;

use super::decode::Decode;
use super::head::{Fault, Heads};
use crate::watch::Watch;

/// Maximum number of interim (1xx) responses before the final one.
const INTERIM_MAX: u8 = 16;

/// A complete response.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) status: u16,
    pub(crate) body_bytes: u64,
    pub(crate) first_byte: Instant,
    pub(crate) done: Instant,
    /// Names and values, if they are kept.
    pub(crate) fields: Fields,
    pub(crate) watch: Option<Box<Watch>>,
}

/// Names and values of header fields.
pub(crate) type Fields = Vec<(String, Vec<u8>)>;

/// A response that is under way, or its request.
#[derive(Debug, Default)]
pub(crate) struct Incoming {
    is_head: bool,
    keeps_fields: bool,
    /// Status of the final head.
    status: Option<u16>,
    interim: u8,
    length: Option<u64>,
    body_bytes: u64,
    first_byte: Option<Instant>,
    fields: Fields,
    watch: Option<Box<Watch>>,
}

impl Incoming {
    /// Begins with the request.
    #[inline]
    pub(crate) fn begin(&mut self, is_head: bool, keeps_fields: bool, watch: Option<Box<Watch>>) {
        (self.is_head, self.keeps_fields, self.watch) = (is_head, keeps_fields, watch);
        (self.status, self.length, self.first_byte) = (None, None, None);
        (self.interim, self.body_bytes) = (0, 0);
    }

    /// Whether the final head has come.
    #[inline]
    pub(crate) fn has_head(&self) -> bool {
        self.status.is_some()
    }

    /// Reads a head.
    #[inline]
    pub(crate) fn head<D: Decode>(
        &mut self,
        heads: &mut Heads<D>,
        is_last: bool,
        block: &[u8],
        now: Instant,
    ) -> Result<(), Fault> {
        self.fields.clear();
        let keeps = self.keeps_fields || self.watch.is_some();
        let head = if keeps {
            let fields = &mut self.fields;
            heads.read_fields(block, |name, value| {
                fields.push((String::from_utf8_lossy(name).into_owned(), value.to_vec()));
            })?
        } else {
            heads.read(block)?
        };
        if head.status < 200 {
            self.interim += 1;
            // RFC 9113 §8.6, RFC 9114 §4.5: there is no 101.
            return match () {
                () if head.status == 101 => Err(Fault::Malformed("101 Switching Protocols")),
                () if is_last => Err(Fault::Malformed("an interim response ends the stream")),
                () if self.interim > INTERIM_MAX => {
                    Err(Fault::Malformed("more than 16 interim (1xx) responses"))
                }
                () => Ok(()),
            };
        }
        if let Some(watch) = &mut self.watch {
            let fields = self.fields.iter().map(|(name, value)| (name.as_str(), value.as_slice()));
            watch.fields(&fields.collect::<Vec<_>>());
        }
        (self.status, self.length, self.first_byte) = (Some(head.status), head.length, Some(now));
        Ok(())
    }

    /// Counts content.
    #[inline]
    pub(crate) fn body(&mut self, piece: &[u8]) {
        self.body_bytes += piece.len() as u64;
        if let Some(watch) = &mut self.watch {
            watch.body(piece);
        }
    }

    /// The response has come to its end. What is wrong with it, if it is malformed.
    #[inline]
    pub(crate) fn complete(&mut self, now: Instant) -> Result<Received, &'static str> {
        let (Some(status), Some(first_byte)) = (self.status, self.first_byte) else {
            return Err("it ends before its head");
        };
        // RFC 9113 §8.1.1, RFC 9114 §4.1.2; RFC 9110 §8.6: those that have no content may say how much another had.
        let has_content = !self.is_head && status != 304;
        if self.length.is_some_and(|length| has_content && length != self.body_bytes) {
            return Err("its body is not as long as Content-Length says");
        }
        if self.is_head && self.body_bytes > 0 {
            return Err("a response to HEAD has a body");
        }
        Ok(Received {
            status,
            body_bytes: self.body_bytes,
            first_byte,
            done: now,
            fields: std::mem::take(&mut self.fields),
            watch: self.watch.take(),
        })
    }
}
