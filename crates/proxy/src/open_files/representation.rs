//! A representation of an open file, with its validators, and the head lines that are equal in all responses.

use std::cell::Cell;
use std::io::Write;
use std::sync::Arc;

use ::cache::{Validators, write_content_length};
use ::files::{FoundFile, OpenFile, last_modified, media_type, push_etag};
use coding::{Accepted, Coding};
use http1::RequestHead;

use super::coded_forms::KeptForms;
use crate::body::transform::values;

/// Up to this length, a body that was in memory is sent without another check.
const WARM_BYTES_MAX: u64 = 1 << 20;
/// A file that was changed less than this before it was opened may change again within the same tick of the file
/// system's clock.
const SETTLED_SECONDS: u64 = 2;

/// A file, and its precompressed siblings.
pub(crate) struct ServedFile {
    identity: Representation,
    coded: Vec<(Coding, Representation)>,
    /// Coded forms of the file.
    pub(crate) forms: KeptForms,
}

/// The content of one file, and its fields.
pub(crate) struct Representation {
    /// Shared with threads that read it from a disk.
    pub(crate) file: Arc<OpenFile>,
    /// Start line and fields of a complete response, without those that differ per request.
    whole_head: Box<[u8]>,
    /// The Content-Type line with CRLF.
    content_type: Box<[u8]>,
    /// The other fields about the content.
    of_content: Box<[u8]>,
    /// The fields that a 304 has, too.
    others: Box<[u8]>,
    etag: Box<[u8]>,
    last_modified: Box<[u8]>,
    modified_unix_seconds: u64,
    opened_unix_seconds: u64,
    /// Whether it was completely in memory at the last check, and is short enough to stay there.
    is_warm: Cell<bool>,
}

impl ServedFile {
    pub(crate) fn new(found: FoundFile, settings: &config::Files, now_unix_seconds: u64) -> Self {
        let (media_type, charset) = media_type(&found.path);
        let varies = !found.siblings.is_empty();
        let cache_control = settings.cache_control_of(&found.path);
        let represent = |file, coding| {
            Representation::new(file, media_type, charset, coding, cache_control, varies, now_unix_seconds)
        };
        Self {
            identity: represent(found.file, None),
            coded: found
                .siblings
                .into_iter()
                .map(|sibling| (sibling.coding, represent(sibling.file, Some(sibling.coding))))
                .collect(),
            forms: KeptForms::default(),
        }
    }

    /// Chooses the representation by Accept-Encoding. Called for each request for the file.
    #[inline]
    pub(crate) fn choose(&self, head: &RequestHead, bytes: &[u8]) -> &Representation {
        if self.coded.is_empty() { &self.identity } else { self.choose_coded(head, bytes) }
    }

    fn choose_coded(&self, head: &RequestHead, bytes: &[u8]) -> &Representation {
        let of = |coding| self.coded.iter().find(|(known, _)| *known == coding);
        let chosen = Accepted::from_values(values(head, bytes, b"accept-encoding"))
            .choose(self.coded.iter().map(|(coding, _)| *coding));
        chosen.and_then(of).map_or(&self.identity, |(_, representation)| representation)
    }

    /// Whether the file is unchanged since it was opened.
    pub(crate) fn is_still(&self, found: &FoundFile) -> bool {
        let is_same = |representation: &Representation, file: &OpenFile| {
            // A file that was changed just before may change again without another time stamp.
            representation.is_settled() && representation.file.state() == file.state()
        };
        is_same(&self.identity, &found.file)
            && self.coded.len() == found.siblings.len()
            && self.coded.iter().zip(&found.siblings).all(|((coding, representation), sibling)| {
                *coding == sibling.coding && is_same(representation, &sibling.file)
            })
    }

    /// Checks again whether its bytes are in memory.
    pub(crate) fn look_again(&self) {
        self.identity.look_again();
        self.coded.iter().for_each(|(_, representation)| representation.look_again());
    }
}

impl Representation {
    fn new(
        file: OpenFile,
        media_type: &str,
        charset: &str,
        coding: Option<Coding>,
        cache_control: Option<&str>,
        varies: bool,
        now_unix_seconds: u64,
    ) -> Self {
        let mut etag = Vec::new();
        push_etag(file.state(), coding, &mut etag);
        let (modified_unix_seconds, last_modified) = last_modified(file.state(), now_unix_seconds);
        let content_type = format!("Content-Type: {media_type}{charset}\r\n");
        let mut of_content = b"Accept-Ranges: bytes\r\n".to_vec();
        // Writing into a Vec cannot fail.
        if let Some(coding) = coding {
            let _ = write!(of_content, "Content-Encoding: {}\r\n", coding.name());
        }
        let mut others = b"ETag: ".to_vec();
        others.extend_from_slice(&etag);
        let _ = write!(others, "\r\nLast-Modified: {last_modified}\r\n");
        if let Some(cache_control) = cache_control {
            let _ = write!(others, "Cache-Control: {cache_control}\r\n");
        }
        if varies {
            // RFC 9110 §12.5.5: also if the file itself is sent.
            others.extend_from_slice(b"Vary: Accept-Encoding\r\n");
        }
        let mut whole_head = b"HTTP/1.1 200 OK\r\n".to_vec();
        write_content_length(&mut whole_head, file.state().bytes);
        for part in [content_type.as_bytes(), &of_content, &others] {
            whole_head.extend_from_slice(part);
        }
        let representation = Self {
            file: Arc::new(file),
            whole_head: whole_head.into(),
            content_type: content_type.into_bytes().into(),
            of_content: of_content.into(),
            others: others.into(),
            etag: etag.into(),
            last_modified: last_modified.into_bytes().into(),
            modified_unix_seconds,
            opened_unix_seconds: now_unix_seconds,
            is_warm: Cell::default(),
        };
        representation.look_again();
        representation
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.file.state().bytes
    }

    /// The complete content, if it is in this process's memory.
    #[inline]
    pub(crate) fn content(&self) -> Option<&[u8]> {
        self.file.content()
    }

    /// Whether its bytes are in memory, so that sending does not block.
    pub(crate) fn is_warm(&self) -> bool {
        self.is_warm.get()
    }

    fn look_again(&self) {
        let bytes = self.bytes();
        let is_warm =
            self.file.content().is_some() || (bytes <= WARM_BYTES_MAX && self.file.is_in_memory(0..bytes));
        self.is_warm.set(is_warm);
    }

    fn is_settled(&self) -> bool {
        self.modified_unix_seconds + SETTLED_SECONDS <= self.opened_unix_seconds
    }

    pub(crate) fn validators(&self) -> Validators<'_> {
        Validators {
            etag: Some(&self.etag),
            last_modified: Some(&self.last_modified),
            modified_unix_seconds: self.modified_unix_seconds,
            // RFC 9110 §8.8.2.2: it was not changed again in the second of its date.
            is_date_strong: self.is_settled(),
        }
    }

    /// The Content-Type line with CRLF.
    pub(crate) fn content_type(&self) -> &[u8] {
        &self.content_type
    }

    /// The fields about the content, except type and length.
    pub(crate) fn of_content(&self) -> &[u8] {
        &self.of_content
    }

    /// The fields that a 304 has, too (RFC 9110 §15.4.5).
    pub(crate) fn others(&self) -> &[u8] {
        &self.others
    }

    /// Start line and fields of a complete response that are equal for all clients.
    pub(crate) fn whole_head(&self) -> &[u8] {
        &self.whole_head
    }
}
