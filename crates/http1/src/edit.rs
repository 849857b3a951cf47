//! Edits of header fields that an operator has configured, applied while the head is written.
//!
//! The caller makes sure that no edit touches the framing of a message or hop-by-hop fields.

use std::fmt;

pub trait Edits {
    /// Whether fields with this name are edited. Called for every field, so it must be fast.
    fn touches(&self, name: &[u8]) -> bool;

    /// Whether all fields with this name are removed, the proxy's own included. Fields that `add` appends stay.
    fn removes(&self, name: &[u8]) -> bool;

    /// Appends the replacement of an edited field, each line with CRLF; nothing if the field is removed.
    fn replace(&self, name: &[u8], value: &[u8], out: &mut Vec<u8>);

    /// Appends the added lines, each with CRLF.
    fn add(&self, out: &mut Vec<u8>);
}

impl fmt::Debug for dyn Edits + '_ {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Edits")
    }
}

/// Applies the edits to the lines from `own` on, which the proxy has written: removes fields, and inserts the added
/// lines before the empty line, if there is one.
#[cold]
pub fn edit_lines(out: &mut Vec<u8>, own: usize, edits: &dyn Edits) {
    let has_end = out.ends_with(b"\r\n\r\n");
    if has_end {
        out.truncate(out.len() - 2);
    }
    let mut at = own;
    while let Some(len) = out[at..].windows(2).position(|end| end == b"\r\n") {
        let line = &out[at..at + len];
        let name = name_of(line);
        if edits.removes(name) {
            out.drain(at..at + len + 2);
        } else {
            at += len + 2;
        }
    }
    // Behind the loop: a field that is both removed and added keeps its new value.
    edits.add(out);
    if has_end {
        out.extend_from_slice(b"\r\n");
    }
}

pub(crate) fn name_of(line: &[u8]) -> &[u8] {
    line.split(|&byte| byte == b':').next().unwrap_or_default()
}
