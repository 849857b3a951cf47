//! The response of one stream while it arrives, over HTTP/2 or HTTP/3. Bodies are counted, not kept.

use std::time::Instant;

use super::decode::Decode;
use super::head::{BlockFault, Heads};
use crate::page::PageFacts;
use crate::watch::Observer;

/// Maximum number of interim (1xx) responses before the final one.
const INTERIM_MAX: u8 = 16;

#[derive(Debug)]
pub(crate) struct ReceivedResponse {
    pub(crate) page: PageFacts,
    pub(crate) first_byte: Instant,
    pub(crate) done: Instant,
    /// Names and values, if they are kept.
    pub(crate) fields: Fields,
    pub(crate) observer: Observer,
}

pub(crate) type Fields = Vec<(String, Vec<u8>)>;

/// A response that is arriving, or awaited.
#[derive(Debug, Default)]
pub(crate) struct IncomingResponse {
    is_head: bool,
    keeps_fields: bool,
    status: Option<u16>,
    kind: u32,
    interim: u8,
    length: Option<u64>,
    body_bytes: u64,
    first_byte: Option<Instant>,
    fields: Fields,
    observer: Observer,
}

impl IncomingResponse {
    #[inline]
    pub(crate) fn begin(&mut self, is_head: bool, keeps_fields: bool, observer: Observer) {
        (self.is_head, self.keeps_fields, self.observer) = (is_head, keeps_fields, observer);
        (self.status, self.length, self.first_byte) = (None, None, None);
        (self.interim, self.body_bytes) = (0, 0);
    }

    #[inline]
    pub(crate) fn has_head(&self) -> bool {
        self.status.is_some()
    }

    #[inline]
    pub(crate) fn head<D: Decode>(
        &mut self,
        heads: &mut Heads<D>,
        is_last: bool,
        block: &[u8],
        now: Instant,
    ) -> Result<(), BlockFault> {
        self.fields.clear();
        let keeps = self.keeps_fields || self.observer.has_watch();
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
                () if head.status == 101 => Err(BlockFault::Malformed("101 Switching Protocols")),
                () if is_last => Err(BlockFault::Malformed("an interim response ends the stream")),
                () if self.interim > INTERIM_MAX => {
                    Err(BlockFault::Malformed("more than 16 interim (1xx) responses"))
                }
                () => Ok(()),
            };
        }
        if let Some(watch) = self.observer.watch() {
            let fields = self.fields.iter().map(|(name, value)| (name.as_str(), value.as_slice()));
            watch.fields(&fields.collect::<Vec<_>>());
        }
        (self.status, self.length, self.first_byte) = (Some(head.status), head.length, Some(now));
        self.kind = head.kind;
        Ok(())
    }

    #[inline]
    pub(crate) fn body(&mut self, piece: &[u8]) {
        self.body_bytes += piece.len() as u64;
        self.observer.body(piece);
    }

    /// Ends the response. Fails with the reason if it is malformed.
    #[inline]
    pub(crate) fn complete(&mut self, now: Instant) -> Result<ReceivedResponse, &'static str> {
        let (Some(status), Some(first_byte)) = (self.status, self.first_byte) else {
            return Err("it ends before its head");
        };
        // RFC 9113 §8.1.1, RFC 9114 §4.1.2; RFC 9110 §8.6: without content, Content-Length may be another response's.
        let has_content = !self.is_head && status != 304;
        if self.length.is_some_and(|length| has_content && length != self.body_bytes) {
            return Err("its body is not as long as Content-Length says");
        }
        if self.is_head && self.body_bytes > 0 {
            return Err("a response to HEAD has a body");
        }
        Ok(ReceivedResponse {
            page: PageFacts {
                status,
                kind: self.kind,
                body_bytes: self.body_bytes,
                digest: self.observer.end_body(),
            },
            first_byte,
            done: now,
            fields: std::mem::take(&mut self.fields),
            observer: std::mem::take(&mut self.observer),
        })
    }
}
