//! A simple parser of heads, byte by byte and line by line, that tests compare the fast one with.

use http1::{BodyFraming, FramingError, HeadError, HeadLimits, HttpVersion, Method, Name};

/// A complete head, in the form that the fast parser exposes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) start: Start,
    pub(crate) fields: Vec<Field>,
    pub(crate) len: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Start {
    Request { method: Method, method_text: Vec<u8>, target: Vec<u8>, version: HttpVersion },
    Response { status: u16, reason: Vec<u8>, version: HttpVersion },
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) name: Vec<u8>,
    pub(crate) value: Vec<u8>,
    pub(crate) known: Name,
    /// The line with its CRLF.
    pub(crate) line: Vec<u8>,
}

/// Reads a head; `None` if it is incomplete.
pub(crate) fn read(bytes: &[u8], limits: &HeadLimits, is_request: bool) -> Result<Option<Read>, HeadError> {
    let bytes = &bytes[..bytes.len().min(limits.bytes)];
    if bytes.first().is_some_and(|&first| !(is_token(first) || (is_request && first == b'\r'))) {
        return Err(HeadError::RequestLine);
    }
    let (mut start, mut fields, mut at, mut may_be_empty) = (None, Vec::new(), 0, is_request);
    while let Some(length) = bytes[at..].iter().position(|&byte| byte == b'\n') {
        let line = bytes[at..at + length].strip_suffix(b"\r").ok_or(HeadError::BareLf)?;
        let whole = &bytes[at..at + length + 1];
        at += whole.len();
        match start.take() {
            None if line.is_empty() && may_be_empty => may_be_empty = false,
            None if is_request => start = Some(request_line(line, limits)?),
            None => start = Some(status_line(line)?),
            Some(start) if line.is_empty() => return Ok(Some(Read { start, fields, len: at })),
            Some(_) if fields.len() == limits.fields => return Err(HeadError::TooManyFields),
            Some(whole_start) => {
                fields.push(field(line, whole)?);
                start = Some(whole_start);
            }
        }
    }
    match (bytes.len() == limits.bytes, start) {
        (false, _) => Ok(None),
        (true, None) if is_request => Err(HeadError::TargetTooLong),
        (true, _) => Err(HeadError::TooLarge),
    }
}

fn request_line(line: &[u8], limits: &HeadLimits) -> Result<Start, HeadError> {
    let method_end = line.iter().position(|&byte| !is_token(byte)).ok_or(HeadError::RequestLine)?;
    let (method, rest) = line.split_at(method_end);
    if method.is_empty() {
        return Err(HeadError::Method);
    }
    match rest[0] {
        b' ' if method.len() > 64 => return Err(HeadError::MethodTooLong),
        b' ' => {}
        b'\t' => return Err(HeadError::RequestLine),
        _ => return Err(HeadError::Method),
    }
    let rest = &rest[1..];
    let is_target = |byte: u8| byte.is_ascii_graphic() && byte != b'#';
    let target_end = rest.iter().position(|&byte| !is_target(byte)).unwrap_or(rest.len());
    if target_end > limits.target {
        return Err(HeadError::TargetTooLong);
    }
    let (target, rest) = rest.split_at(target_end);
    match rest.first() {
        Some(b' ') if !target.is_empty() => {}
        Some(b' ' | b'\t') | None => return Err(HeadError::RequestLine),
        Some(b'\r') => return Err(HeadError::BareCr),
        Some(_) => return Err(HeadError::TargetByte),
    }
    let version = match version(&rest[1..]) {
        Some(version) => version,
        None if matches!(rest[1..], [b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', b'.', b'0'..=b'9']) => {
            return Err(HeadError::Version);
        }
        None => return Err(HeadError::RequestLine),
    };
    let known = [
        ("GET", Method::Get),
        ("HEAD", Method::Head),
        ("POST", Method::Post),
        ("PUT", Method::Put),
        ("DELETE", Method::Delete),
        ("OPTIONS", Method::Options),
        ("TRACE", Method::Trace),
        ("CONNECT", Method::Connect),
        ("PATCH", Method::Patch),
    ];
    let method_known = known.iter().find(|(text, _)| text.as_bytes() == method);
    Ok(Start::Request {
        method: method_known.map_or(Method::Other, |(_, method)| *method),
        method_text: method.to_vec(),
        target: target.to_vec(),
        version,
    })
}

fn status_line(line: &[u8]) -> Result<Start, HeadError> {
    let (protocol, rest) = line.split_at_checked(8).ok_or(HeadError::StatusLine)?;
    let version = version(protocol).ok_or(HeadError::Version)?;
    let (status, reason) = match rest {
        [b' ', status @ ..] if status.len() == 3 => (status, b"".as_slice()),
        [b' ', a, b, c, b' ', ..] => (&[*a, *b, *c][..], &rest[5..]),
        _ => return Err(HeadError::StatusLine),
    };
    let text = std::str::from_utf8(status).map_err(|_| HeadError::StatusLine)?;
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let status: u16 = is_number.then(|| text.parse().unwrap()).ok_or(HeadError::StatusLine)?;
    if !(100..600).contains(&status) {
        return Err(HeadError::StatusLine);
    }
    check_text(reason)?;
    Ok(Start::Response { status, reason: reason.to_vec(), version })
}

fn version(text: &[u8]) -> Option<HttpVersion> {
    match text {
        b"HTTP/1.0" => Some(HttpVersion::Http10),
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'1'..=b'9'] => Some(HttpVersion::Http11),
        _ => None,
    }
}

fn field(line: &[u8], whole: &[u8]) -> Result<Field, HeadError> {
    if line.starts_with(b" ") || line.starts_with(b"\t") {
        return Err(HeadError::Folded);
    }
    let colon = line.iter().position(|&byte| byte == b':').ok_or(HeadError::FieldName)?;
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    if name.is_empty() || !name.iter().all(|&byte| is_token(byte)) {
        return Err(HeadError::FieldName);
    }
    let is_white = |byte: &u8| b" \t".contains(byte);
    let first = value.iter().position(|byte| !is_white(byte)).unwrap_or(value.len());
    let last = value.iter().rposition(|byte| !is_white(byte)).map_or(first, |last| last + 1);
    let value = &value[first..last];
    check_text(value)?;
    Ok(Field { name: name.to_vec(), value: value.to_vec(), known: known(name), line: whole.to_vec() })
}

fn check_text(text: &[u8]) -> Result<(), HeadError> {
    match text.iter().any(|&byte| byte.is_ascii_control() && byte != b'\t') {
        false => Ok(()),
        true if text.contains(&b'\r') => Err(HeadError::BareCr),
        true => Err(HeadError::FieldValue),
    }
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// All names except the variants that stand for several.
pub(crate) const NAMES: [Name; 25] = [
    Name::Host,
    Name::ContentLength,
    Name::TransferEncoding,
    Name::DisguisedContentLength,
    Name::DisguisedTransferEncoding,
    Name::Connection,
    Name::KeepAlive,
    Name::ProxyConnection,
    Name::ProxyAuthenticate,
    Name::ProxyAuthorization,
    Name::Te,
    Name::Trailer,
    Name::Upgrade,
    Name::Http2Settings,
    Name::Via,
    Name::Forwarded,
    Name::XForwardedFor,
    Name::XForwardedProto,
    Name::XForwardedHost,
    Name::Expect,
    Name::MaxForwards,
    Name::Date,
    Name::Referer,
    Name::UserAgent,
    Name::AltSvc,
];

pub(crate) fn known(name: &[u8]) -> Name {
    let lower = name.to_ascii_lowercase();
    let hyphened = String::from_utf8_lossy(&lower).replace('_', "-");
    match NAMES.iter().find(|known| known.text().to_ascii_lowercase().as_bytes() == lower) {
        Some(&known) => known,
        None if is_forwarded(&hyphened) && hyphened.as_bytes() != lower => Name::DisguisedForwarded,
        None if is_forwarded(&hyphened) => Name::XForwardedOther,
        None => Name::Other,
    }
}

/// Whether a name, with underscores read as hyphens, is a forwarding field.
fn is_forwarded(hyphened: &str) -> bool {
    hyphened == "x-real-ip" || hyphened.strip_prefix("x-forwarded-").is_some_and(|rest| !rest.is_empty())
}

/// The framing that the fields declare, read one after the other.
pub(crate) fn declared(fields: &[Field], version: HttpVersion) -> Result<Option<BodyFraming>, FramingError> {
    let mut framing = None;
    for field in fields {
        let text = String::from_utf8_lossy(&field.value);
        let this = match field.known {
            Name::ContentLength => {
                let is_number =
                    (1..=19).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
                let length = is_number.then(|| text.parse::<i64>().ok()).flatten();
                BodyFraming::Length(length.ok_or(FramingError::LengthInvalid)? as u64)
            }
            Name::TransferEncoding if version == HttpVersion::Http10 => {
                return Err(FramingError::CodingInHttp10);
            }
            Name::TransferEncoding if text.to_ascii_lowercase() == "chunked" => BodyFraming::Chunked,
            Name::TransferEncoding => return Err(FramingError::CodingUnknown),
            Name::DisguisedContentLength | Name::DisguisedTransferEncoding => {
                return Err(FramingError::Disguised);
            }
            _ => continue,
        };
        framing = match (framing, this) {
            (None, this) => Some(this),
            (Some(BodyFraming::Length(_)), BodyFraming::Length(_)) => {
                return Err(FramingError::LengthRepeated);
            }
            (Some(BodyFraming::Chunked), BodyFraming::Chunked) => return Err(FramingError::CodingUnknown),
            _ => return Err(FramingError::BothLengthAndCoding),
        };
    }
    Ok(framing)
}

/// The members of all Connection fields, in lower case.
pub(crate) fn connection(fields: &[Field]) -> Vec<String> {
    let values = fields.iter().filter(|field| field.known == Name::Connection);
    let values: Vec<String> =
        values.map(|field| String::from_utf8_lossy(&field.value).to_lowercase()).collect();
    let members = values.join(",");
    let members = members.split(',').map(|member| member.trim_matches([' ', '\t']));
    members.filter(|member| !member.is_empty()).map(str::to_owned).collect()
}
