//! The Connection field (RFC 9110 §7.6.1): what a sender says of this hop alone.

use crate::head::{Head, Version};
use crate::name::Name;

/// The options that Connection names, of all its lines together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConnectionOptions {
    /// `close`.
    pub close: bool,
    /// `keep-alive`.
    pub keep_alive: bool,
    /// `upgrade`.
    pub upgrade: bool,
    /// Names of fields that end at this hop, besides those that always do.
    pub names_fields: bool,
}

/// Connection names a field that no hop may take away, such as Host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionError;

impl ConnectionOptions {
    /// Reads the options of a complete head.
    pub fn of<Start>(head: &Head<Start>, bytes: &[u8]) -> Result<ConnectionOptions, ConnectionError> {
        let mut options = ConnectionOptions::default();
        for value in head.values(bytes, Name::Connection) {
            for token in tokens(value) {
                options.add(token)?;
            }
        }
        Ok(options)
    }

    fn add(&mut self, token: &[u8]) -> Result<(), ConnectionError> {
        if token.eq_ignore_ascii_case(b"close") {
            self.close = true;
        } else if token.eq_ignore_ascii_case(b"keep-alive") {
            self.keep_alive = true;
        } else if token.eq_ignore_ascii_case(b"upgrade") {
            self.upgrade = true;
        } else {
            match Name::of(token) {
                // Without these the next hop would read another message than this one did.
                Name::Host | Name::ContentLength | Name::TransferEncoding => return Err(ConnectionError),
                name if name.is_hop_by_hop() => {}
                _ => self.names_fields = true,
            }
        }
        Ok(())
    }

    /// Whether the sender keeps the connection open after this message (RFC 9112 §9.3).
    pub fn persists(&self, version: Version) -> bool {
        match version {
            Version::Http11 => !self.close,
            Version::Http10 => self.keep_alive && !self.close,
        }
    }
}

/// Whether a Connection field names this field.
pub(crate) fn is_named<Start>(head: &Head<Start>, bytes: &[u8], name: &[u8]) -> bool {
    head.values(bytes, Name::Connection).flat_map(tokens).any(|token| token.eq_ignore_ascii_case(name))
}

/// Whether a list-valued field has this member, without its parameters.
pub(crate) fn has_member<Start>(head: &Head<Start>, bytes: &[u8], field: Name, member: &[u8]) -> bool {
    head.values(bytes, field).flat_map(tokens).any(|token| {
        let end = token.iter().position(|&byte| byte == b';').unwrap_or(token.len());
        token[..end].trim_ascii().eq_ignore_ascii_case(member)
    })
}

/// The members of a comma-separated list, empty ones left out (RFC 9110 §5.6.1).
fn tokens(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).filter(|token| !token.is_empty())
}
