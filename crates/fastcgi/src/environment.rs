//! CGI meta-variables of a request (RFC 3875 §4.1), with those that nginx sends and php-fpm expects.
//!
//! A request head becomes BEGIN_REQUEST and PARAMS; its body follows in STDIN records. Each variable is sent once, so no
//! field of a client can replace one of them.

use std::net::SocketAddr;

use http1::{
    BodyFraming, FieldLine, HttpVersion, Name, RequestHead, RequestTarget, host_without_port, request_framing,
};

use crate::params::{ParamWriter, ParamsError, ParamsLimits, RequestOutline, VariableName};
use crate::record::begin_request;
use crate::script::Script;

/// Settings of a route.
#[derive(Debug, Clone, Copy)]
pub struct Gateway<'a> {
    /// DOCUMENT_ROOT: an absolute path, as the application sees it.
    pub root: &'a [u8],
    /// SERVER_SOFTWARE.
    pub software: &'a [u8],
    /// Further variables, each name once. They replace those of the same name.
    pub params: &'a [(String, String)],
    /// Whether the application leaves the connection open after its response.
    pub keep: bool,
    /// Limits on the variables.
    pub limits: ParamsLimits,
}

/// A request, with what its head does not say.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The complete head.
    pub head: &'a RequestHead,
    /// The bytes that the head was parsed from.
    pub bytes: &'a [u8],
    /// The target of the head.
    pub target: RequestTarget,
    /// The script, and what of the path is behind it.
    pub script: Script<'a>,
    /// REQUEST_URI, if the head's target is not what the client has sent.
    pub uri: Option<&'a [u8]>,
    /// The length of the body, if it is known and the head does not say it.
    pub content_length: Option<u64>,
    /// The HTTP version of the client.
    pub version: HttpVersion,
    /// Whether the client uses TLS.
    pub is_tls: bool,
    /// SSL_PROTOCOL and SSL_CIPHER, if TLS ends here: `TLSv1.3` and the IANA name.
    pub session: Option<(&'a [u8], &'a [u8])>,
    /// The client's address; a Unix socket has none.
    pub client: Option<SocketAddr>,
    /// The address that the client has connected to.
    pub local: Option<SocketAddr>,
    /// SERVER_PORT, if it is not the port of `local`.
    pub port: Option<u16>,
    /// SERVER_NAME, if it is not the host of the request.
    pub server_name: Option<&'a [u8]>,
    /// The authenticated user, and the scheme by which: REMOTE_USER, AUTH_TYPE.
    pub user: Option<(&'a [u8], &'a [u8])>,
}

/// Whether a text is the name of a variable: letters, digits and underscores, no digit first.
pub fn is_valid_name(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    name.bytes().all(is_part) && name.bytes().next().is_some_and(|first| !first.is_ascii_digit())
}

/// Treatment of a header field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FieldUse {
    /// The field is sent as a variable `HTTP_…`.
    Variable,
    /// The field has another variable, or concerns this hop alone.
    Elsewhere,
    /// The field is dropped, because another field could have the same variable.
    Ambiguous,
}

fn field_use(name: &[u8], known: Name) -> FieldUse {
    // PHP reads dots in names as underscores, too: `X.Real.IP` would be X-Real-IP. So only letters, digits and hyphens
    // are unambiguous (RFC 3875 §4.1.18).
    if !is_unambiguous(name) {
        return FieldUse::Ambiguous;
    }
    // Programs take HTTP_PROXY for the proxy that they have to use (CVE-2016-5385, httpoxy). There is no such field.
    if name.eq_ignore_ascii_case(b"proxy") {
        return FieldUse::Ambiguous;
    }
    let is_elsewhere = known.is_hop_by_hop()
        || matches!(known, Name::Host | Name::ContentLength | Name::TransferEncoding | Name::Expect)
        || name.eq_ignore_ascii_case(b"content-type");
    if is_elsewhere { FieldUse::Elsewhere } else { FieldUse::Variable }
}

/// How many bytes of a name are examined at once, in vector registers.
const NAME_PIECE: usize = 16;

/// Whether a name has only letters, digits and hyphens.
#[inline]
fn is_unambiguous(name: &[u8]) -> bool {
    let (pieces, rest) = name.as_chunks();
    let mut piece = [b'-'; NAME_PIECE];
    piece[..rest.len()].copy_from_slice(rest);
    pieces.iter().all(are_unambiguous) && are_unambiguous(&piece)
}

#[inline(always)]
fn are_unambiguous(piece: &[u8; NAME_PIECE]) -> bool {
    // Without early exit, so that it compiles to vector instructions.
    let mut all = true;
    for byte in piece {
        all &= byte.is_ascii_alphanumeric() | (*byte == b'-');
    }
    all
}

impl Request<'_> {
    /// Appends the request: BEGIN_REQUEST, and PARAMS with their end. After an error `out` is unchanged.
    ///
    /// Authorization has a variable, too, because PHP reads credentials and tokens from it; RFC 3875 §4.1.18 leaves that
    /// to the server. A route that keeps credentials from the application removes the field.
    ///
    /// # Errors
    /// The variables exceed a limit, or the length of the body is unknown.
    pub fn write(&self, gateway: &Gateway<'_>, out: &mut Vec<u8>) -> Result<RequestOutline, ParamsError> {
        let body = self.body_len()?;
        let start = out.len();
        out.extend_from_slice(&begin_request(gateway.keep));
        let written = self.write_params(gateway, body, out);
        if written.is_err() {
            out.truncate(start);
        }
        Ok(RequestOutline { body: body.unwrap_or(0), dropped_fields: written? })
    }

    /// The length of the body; `None` if there is no body (RFC 3875 §4.1.2).
    fn body_len(&self) -> Result<Option<u64>, ParamsError> {
        let framing = request_framing(self.head, self.bytes).map_err(|_| ParamsError::Framing)?;
        match (framing, self.content_length) {
            (_, Some(length)) => Ok(Some(length)),
            // An empty body is a body: if the client has sent Content-Length, the application gets it.
            (BodyFraming::None, None) => Ok(self.head.value(self.bytes, Name::ContentLength).map(|_| 0)),
            (BodyFraming::Length(length), None) => Ok(Some(length)),
            (BodyFraming::Chunked | BodyFraming::UntilClose, None) => Err(ParamsError::LengthUnknown),
        }
    }

    fn write_params(
        &self,
        gateway: &Gateway<'_>,
        body: Option<u64>,
        out: &mut Vec<u8>,
    ) -> Result<usize, ParamsError> {
        let mut variables =
            Variables { writer: ParamWriter::new(out, gateway.limits), params: gateway.params };
        self.write_script(gateway, &mut variables)?;
        self.write_message(body, &mut variables)?;
        self.write_connection(gateway, &mut variables)?;
        let dropped = self.write_fields(&mut variables)?;
        for (name, value) in gateway.params {
            variables.writer.push(VariableName::Plain(name.as_bytes()), [value.as_bytes()].into_iter())?;
        }
        variables.writer.end();
        Ok(dropped)
    }

    /// Where the script is (RFC 3875 §4.1.5, §4.1.6, §4.1.13).
    fn write_script(
        &self,
        gateway: &Gateway<'_>,
        variables: &mut Variables<'_, '_>,
    ) -> Result<(), ParamsError> {
        let Script { name, path_info, .. } = self.script;
        let root = gateway.root.strip_suffix(b"/").unwrap_or(gateway.root);
        variables.put(b"SCRIPT_FILENAME", &[root, name])?;
        variables.put(b"SCRIPT_NAME", &[name])?;
        if !path_info.is_empty() {
            variables.put(b"PATH_INFO", &[path_info])?;
            variables.put(b"PATH_TRANSLATED", &[root, path_info])?;
        }
        variables.put(b"DOCUMENT_ROOT", &[gateway.root])?;
        variables.put(b"DOCUMENT_URI", &[name, path_info])?;
        // php-cgi refuses requests without it (`cgi.force_redirect`).
        variables.put(b"REDIRECT_STATUS", &[b"200"])
    }

    /// Writes the variables from the request line and the fields of the body.
    fn write_message(&self, body: Option<u64>, variables: &mut Variables<'_, '_>) -> Result<(), ParamsError> {
        let target = self.target.path_and_query.for_bytes(self.bytes);
        let path_len = self.target.path.for_bytes(self.bytes).len();
        // RFC 3875 §4.1.7: there is a QUERY_STRING, perhaps an empty one.
        variables.put(b"QUERY_STRING", &[target.get(path_len + 1..).unwrap_or_default()])?;
        variables.put(b"REQUEST_METHOD", &[self.head.start.method_span.for_bytes(self.bytes)])?;
        // RFC 9112 §3.2.2: a target in absolute form may have no path.
        let slash: &[u8] = if target.starts_with(b"/") { b"" } else { b"/" };
        match self.uri {
            Some(uri) => variables.put(b"REQUEST_URI", &[uri])?,
            None => variables.put(b"REQUEST_URI", &[slash, target])?,
        }
        let content_type = |name: &[u8]| name.eq_ignore_ascii_case(b"content-type");
        let field = self.head.fields.iter().find(|field| content_type(field.name.for_bytes(self.bytes)));
        if let Some(field) = field {
            variables.put(b"CONTENT_TYPE", &[field.value.for_bytes(self.bytes)])?;
        }
        if let Some(length) = body {
            variables.put_short(b"CONTENT_LENGTH", |out| push_number(length, out))?;
        }
        Ok(())
    }

    /// Client, server, and how they are connected.
    fn write_connection(
        &self,
        gateway: &Gateway<'_>,
        variables: &mut Variables<'_, '_>,
    ) -> Result<(), ParamsError> {
        let (protocol, scheme): (&[u8], &[u8]) = (
            match self.version {
                HttpVersion::Http10 => b"HTTP/1.0",
                HttpVersion::Http11 => b"HTTP/1.1",
                HttpVersion::Http2 => b"HTTP/2.0",
                HttpVersion::Http3 => b"HTTP/3.0",
            },
            if self.is_tls { b"https" } else { b"http" },
        );
        variables.put(b"GATEWAY_INTERFACE", &[b"CGI/1.1"])?;
        variables.put(b"SERVER_SOFTWARE", &[gateway.software])?;
        variables.put(b"SERVER_PROTOCOL", &[protocol])?;
        variables.put(b"REQUEST_SCHEME", &[scheme])?;
        // Absent without TLS: PHP programs take any value other than `off` for true.
        if self.is_tls {
            variables.put(b"HTTPS", &[b"on"])?;
        }
        if let Some((protocol, cipher)) = self.session {
            variables.put(b"SSL_PROTOCOL", &[protocol])?;
            variables.put(b"SSL_CIPHER", &[cipher])?;
        }
        match self.client {
            Some(client) => {
                variables.put_short(b"REMOTE_ADDR", |out| push_address(client, out))?;
                // RFC 3875 §4.1.9: the address is permitted in place of a name.
                variables.put_short(b"REMOTE_HOST", |out| push_address(client, out))?;
                variables.put_short(b"REMOTE_PORT", |out| push_number(client.port().into(), out))?;
            }
            // RFC 3875 §4.1.8: there is a REMOTE_ADDR. nginx says the same of a Unix socket.
            None => variables.put(b"REMOTE_ADDR", &[b"unix:"])?,
        }
        if let Some(local) = self.local {
            variables.put_short(b"SERVER_ADDR", |out| push_address(local, out))?;
        }
        // RFC 3875 §4.1.15: there is a SERVER_PORT.
        let default_port = if self.is_tls { 443 } else { 80 };
        let port = self.port.or(self.local.map(|local| local.port())).unwrap_or(default_port);
        variables.put_short(b"SERVER_PORT", |out| push_number(port.into(), out))?;
        // RFC 3875 §4.1.14: an HTTP/1.0 request may name no host, but there is a SERVER_NAME.
        let host = host_without_port(self.target.authority.for_bytes(self.bytes));
        match (self.server_name, self.local) {
            (Some(name), _) => variables.put(b"SERVER_NAME", &[name])?,
            (None, _) if !host.is_empty() => variables.put(b"SERVER_NAME", &[host])?,
            (None, Some(local)) => variables.put_short(b"SERVER_NAME", |out| push_address(local, out))?,
            (None, None) => variables.put(b"SERVER_NAME", &[b"localhost"])?,
        }
        if let Some((user, scheme)) = self.user {
            variables.put(b"REMOTE_USER", &[user])?;
            variables.put(b"AUTH_TYPE", &[scheme])?;
        }
        Ok(())
    }

    /// The fields (RFC 3875 §4.1.18). Returns how many were dropped.
    fn write_fields(&self, variables: &mut Variables<'_, '_>) -> Result<usize, ParamsError> {
        // RFC 9112 §3.2.2: the host of a target in absolute form replaces Host.
        let host = self.target.authority.for_bytes(self.bytes);
        if !host.is_empty() {
            variables.put(b"HTTP_HOST", &[host])?;
        }
        let shared = shared_marks(self.head, self.bytes);
        let mut dropped = 0;
        for (at, field) in self.head.fields.iter().enumerate() {
            let name = field.name.for_bytes(self.bytes);
            match field_use(name, field.known) {
                FieldUse::Elsewhere => {}
                FieldUse::Ambiguous => dropped += 1,
                FieldUse::Variable if shared & mark(name) != 0 && self.has_namesake(at) => {
                    self.write_list(at, variables)?;
                }
                FieldUse::Variable => variables
                    .put_parts(VariableName::Field(name), [field.value.for_bytes(self.bytes)].into_iter())?,
            }
        }
        Ok(dropped)
    }

    fn is_named(&self, field: &FieldLine, name: &[u8]) -> bool {
        let other = field.name.for_bytes(self.bytes);
        other.len() == name.len() && other.eq_ignore_ascii_case(name)
    }

    /// Whether another field has the same name. Marks say only that one may.
    #[inline(never)]
    fn has_namesake(&self, at: usize) -> bool {
        let fields = &self.head.fields;
        let name = fields[at].name.for_bytes(self.bytes);
        fields.iter().enumerate().any(|(other, field)| other != at && self.is_named(field, name))
    }

    /// Writes a field whose name others have, too.
    #[cold]
    fn write_list(&self, at: usize, variables: &mut Variables<'_, '_>) -> Result<(), ParamsError> {
        let fields = &self.head.fields;
        let name = fields[at].name.for_bytes(self.bytes);
        // RFC 3875 §4.1.18: fields of one name become one value, at the place of the first.
        if fields[..at].iter().any(|field| self.is_named(field, name)) {
            return Ok(());
        }
        // RFC 6265 §4.2.1: a list of cookies has semicolons, every other list commas.
        let separator: &[u8] = if name.eq_ignore_ascii_case(b"cookie") { b"; " } else { b", " };
        let others = fields[at + 1..].iter().filter(|field| self.is_named(field, name));
        let others = others.flat_map(|field| [separator, field.value.for_bytes(self.bytes)]);
        let parts = std::iter::once(fields[at].value.for_bytes(self.bytes)).chain(others);
        variables.put_parts(VariableName::Field(name), parts)
    }
}

/// The marks that more than one field has. All other fields have a name of their own, which is found without a comparison
/// of each name with each other.
fn shared_marks(head: &RequestHead, bytes: &[u8]) -> u64 {
    let (mut seen, mut shared) = (0, 0);
    for field in &head.fields {
        let mark = mark(field.name.for_bytes(bytes));
        shared |= seen & mark;
        seen |= mark;
    }
    shared
}

/// Returns a mark, one of 64 bits. Equal names have the same mark, also in another case.
#[inline(always)]
fn mark(name: &[u8]) -> u64 {
    let (Some(first), Some(last)) = (name.first(), name.last()) else { return 1 };
    // Letters differ in this bit only, and hyphens and digits have it.
    let (first, last) = (u32::from(first | 0x20), u32::from(last | 0x20));
    // A factor with which the usual fields of browsers and proxies have different marks.
    let mixed = (first | last << 8 | (name.len() as u32) << 16).wrapping_mul(0x6832_155f);
    1 << (mixed >> 26)
}

/// Writes variables, except those that are replaced.
struct Variables<'o, 'p> {
    writer: ParamWriter<'o>,
    params: &'p [(String, String)],
}

impl Variables<'_, '_> {
    // Always inlined, so that names are constants, which are copied without a call.
    #[inline(always)]
    fn put(&mut self, name: &[u8], parts: &[&[u8]]) -> Result<(), ParamsError> {
        self.put_parts(VariableName::Plain(name), parts.iter().copied())
    }

    /// Adds a variable with a number or an address.
    #[inline(always)]
    fn put_short(&mut self, name: &[u8], write: impl FnOnce(&mut Vec<u8>)) -> Result<(), ParamsError> {
        if self.is_replaced(VariableName::Plain(name)) {
            return Ok(());
        }
        self.writer.push_short(name, write)
    }

    #[inline(always)]
    fn put_parts<'v>(
        &mut self,
        name: VariableName<'_>,
        parts: impl Iterator<Item = &'v [u8]> + Clone,
    ) -> Result<(), ParamsError> {
        if self.is_replaced(name) {
            return Ok(());
        }
        self.writer.push(name, parts)
    }

    #[inline(always)]
    fn is_replaced(&self, name: VariableName<'_>) -> bool {
        !self.params.is_empty() && is_among(self.params, name)
    }
}

#[inline(never)]
fn is_among(params: &[(String, String)], name: VariableName<'_>) -> bool {
    params.iter().any(|(replaced, _)| name.is(replaced.as_bytes()))
}

#[inline]
fn push_address(address: SocketAddr, out: &mut Vec<u8>) {
    http1::push_address(out, address.ip().to_canonical());
}

#[inline]
fn push_number(number: u64, out: &mut Vec<u8>) {
    http1::push_number(out, number);
}
