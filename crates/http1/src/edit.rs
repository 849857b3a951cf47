//! What an operator wants of a head beyond what HTTP asks for, and how it gets into the one pass that writes the head.
//!
//! Which edits make sense is for whoever makes them: nothing that frames a message or belongs to a hop may be among them.

use std::fmt;

/// What is done to the fields of a message as it is passed on.
pub trait Edits {
    /// Whether fields of this name are edited; asked for each, so it is quick to say no.
    fn touches(&self, name: &[u8]) -> bool;

    /// Whether no field of this name is to be there, the proxy's own included, but for what is added.
    fn removes(&self, name: &[u8]) -> bool;

    /// Appends what stands in the place of a field that is edited, each line with its CRLF; nothing if it is removed.
    fn replace(&self, name: &[u8], value: &[u8], out: &mut Vec<u8>);

    /// Appends the lines that are new, each with its CRLF.
    fn add(&self, out: &mut Vec<u8>);
}

impl fmt::Debug for dyn Edits + '_ {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Edits")
    }
}

/// Edits lines that the proxy itself has written, those from `own` on: what is to be removed is taken out again, and what is
/// added comes behind them, before the empty line if that is there.
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
    edits.add(out);
    if has_end {
        out.extend_from_slice(b"\r\n");
    }
}

/// The name in a field line.
pub(crate) fn name_of(line: &[u8]) -> &[u8] {
    line.split(|&byte| byte == b':').next().unwrap_or_default()
}
