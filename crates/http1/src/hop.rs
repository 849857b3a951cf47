//! The Connection field (RFC 9110 §7.6.1): what a sender says of this hop alone.

use crate::head::{Field, Fields, Head, RequestHead, ResponseHead, Version};
use crate::name::{Name, NameSet, is};

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

/// Connection names a field that no hop may take away, such as Host, or is longer than any that means something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionError;

/// All Connection values of a message: each of its fields is looked for in them.
pub(crate) const OPTIONS_BYTES_MAX: usize = 1024;

/// Without these the next hop would read another message than this one did, or not see whom it came through.
pub(crate) const NEVER_NAMED: NameSet = NameSet::NONE
    .with(Name::Host)
    .with(Name::ContentLength)
    .with(Name::TransferEncoding)
    .with(Name::Via)
    .with(Name::Forwarded)
    .with(Name::XForwardedFor)
    .with(Name::XForwardedProto)
    .with(Name::XForwardedHost);

impl ConnectionOptions {
    /// Reads the options of a complete head.
    #[inline]
    pub fn of<Start>(head: &Head<Start>, bytes: &[u8]) -> Result<ConnectionOptions, ConnectionError> {
        // Most messages have none.
        if !head.fields.names.has(Name::Connection) {
            return Ok(ConnectionOptions::default());
        }
        Self::of_fields(&head.fields, bytes, ConnectionOptions::add_name)
    }

    /// The same of a response. An option that names a field no hop may take away is ignored, and the field counts: nobody can
    /// use a server's answer to smuggle a request.
    ///
    /// # Errors
    /// The options are longer than any that mean something.
    #[inline]
    pub fn of_response(head: &ResponseHead, bytes: &[u8]) -> Result<ConnectionOptions, ConnectionError> {
        if !head.fields.names.has(Name::Connection) {
            return Ok(ConnectionOptions::default());
        }
        Self::of_fields(&head.fields, bytes, |options, token| {
            let _ = options.add_name(token);
            Ok(())
        })
    }

    fn of_fields(
        fields: &Fields,
        bytes: &[u8],
        add_name: impl Fn(&mut Self, &[u8]) -> Result<(), ConnectionError>,
    ) -> Result<ConnectionOptions, ConnectionError> {
        let mut options = ConnectionOptions::default();
        let mut len = 0;
        for value in fields.values(bytes, Name::Connection) {
            len += value.len();
            if len > OPTIONS_BYTES_MAX {
                return Err(ConnectionError);
            }
            // Nearly always there is one option, and no list.
            if options.add_option(value) {
                continue;
            }
            for token in tokens(value) {
                if !options.add_option(token) {
                    add_name(&mut options, token)?;
                }
            }
        }
        Ok(options)
    }

    /// Whether this is an option that is no name of a field.
    #[inline]
    fn add_option(&mut self, token: &[u8]) -> bool {
        let (close, keep_alive, upgrade) =
            (is(token, b"close"), is(token, b"keep-alive"), is(token, b"upgrade"));
        self.close |= close;
        self.keep_alive |= keep_alive;
        self.upgrade |= upgrade;
        close | keep_alive | upgrade
    }

    fn add_name(&mut self, token: &[u8]) -> Result<(), ConnectionError> {
        let name = Name::of(token);
        if NEVER_NAMED.has(name) {
            return Err(ConnectionError);
        }
        self.names_fields |= !NameSet::HOP_BY_HOP.has(name);
        Ok(())
    }

    /// Whether the sender keeps the connection open after this message (RFC 9112 §9.3).
    pub fn persists(&self, version: Version) -> bool {
        match version {
            Version::Http11 | Version::Http2 => !self.close,
            Version::Http10 => self.keep_alive && !self.close,
        }
    }
}

/// Whether a request asks for an upgrade that is passed on.
pub fn wants_upgrade(head: &RequestHead, bytes: &[u8], options: ConnectionOptions) -> bool {
    // RFC 9110 §7.8: an Upgrade in a request of HTTP/1.0 is ignored.
    options.upgrade && head.start.version != Version::Http10 && upgrades(head, bytes).next().is_some()
}

/// Whether a 101 is the switch that its request asks for (RFC 9110 §7.8): its Connection says so, and its Upgrade names
/// protocols that were offered, no others.
pub fn is_switch_asked_for(
    request: (&RequestHead, &[u8]),
    response: (&ResponseHead, &[u8]),
    options: ConnectionOptions,
) -> bool {
    let is_offered =
        |protocol: &[u8]| upgrades(request.0, request.1).any(|it| it.eq_ignore_ascii_case(protocol));
    let mut protocols = response.0.values(response.1, Name::Upgrade).flat_map(tokens).peekable();
    options.upgrade && protocols.peek().is_some() && protocols.all(is_offered)
}

/// The protocols of an Upgrade field that are passed on: all but those in which requests would go on, past the
/// rules of this proxy (`h2c`, `HTTP/2.0`, `TLS/1.0`).
pub(crate) fn upgrades<'a, Start>(head: &'a Head<Start>, bytes: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    const REFUSED: [&[u8]; 4] = [b"h2c", b"h2", b"http", b"tls"];
    head.values(bytes, Name::Upgrade).flat_map(tokens).filter(|protocol| {
        let name_len = protocol.iter().position(|&byte| byte == b'/').unwrap_or(protocol.len());
        !REFUSED.iter().any(|refused| protocol[..name_len].eq_ignore_ascii_case(refused))
    })
}

/// Whether a Connection field takes this field away at this hop.
pub(crate) fn is_named(fields: &Fields, bytes: &[u8], field: &Field) -> bool {
    let name = field.name.of(bytes);
    !NEVER_NAMED.has(field.known)
        && fields
            .values(bytes, Name::Connection)
            .flat_map(tokens)
            .any(|token| token.eq_ignore_ascii_case(name))
}

/// Whether a list-valued field has this member, without its parameters.
pub(crate) fn has_member<Start>(head: &Head<Start>, bytes: &[u8], field: Name, member: &[u8]) -> bool {
    head.values(bytes, field).flat_map(tokens).any(|token| {
        let end = token.iter().position(|&byte| byte == b';').unwrap_or(token.len());
        token[..end].trim_ascii().eq_ignore_ascii_case(member)
    })
}

/// The members of a comma-separated list, empty ones left out (RFC 9110 §5.6.1).
pub(crate) fn tokens(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).filter(|token| !token.is_empty())
}
