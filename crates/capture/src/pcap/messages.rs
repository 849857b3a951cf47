//! Requests and responses of HTTP/1 in the bytes of a connection.

use httparse::{EMPTY_HEADER, Header, Request, Response, Status, parse_chunk_size};

use super::TcpBytes;
use crate::{
    CapturedBody, CapturedRequest, CapturedResponse, CapturedScheme, checked, is_method, set_target,
};

const FIELDS_MAX: usize = 256;

/// The framing of a body (RFC 9112 §6.3).
#[derive(Clone, Copy)]
enum BodyFraming {
    Length(usize),
    Chunked,
    UntilEnd,
}

/// Whether bytes begin as a response.
pub(super) fn is_response(bytes: &[u8]) -> bool {
    bytes.starts_with(b"HTTP/1.")
}

/// Returns the requests of a connection with their responses.
///
/// # Errors
/// If the bytes of the client do not begin with a request.
pub(super) fn requests_of(client: &TcpBytes, server: &TcpBytes) -> Result<Vec<CapturedRequest>, String> {
    let bytes = &client.bytes[..];
    match bytes {
        [] => return Ok(Vec::new()),
        [0x16, 3, ..] => return Err("it is TLS; read the access log instead, or a HAR file".to_owned()),
        _ if bytes.starts_with(b"PRI * HTTP/2.0") => return Err("it is HTTP/2, which is not read".to_owned()),
        _ => {}
    }
    let (mut requests, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let Some((mut request, behind)) = request_at(bytes, at) else { break };
        request.time_ms = client.time_ms(at);
        request.scheme = Some(CapturedScheme::Http);
        let Ok(request) = checked(request) else { break };
        requests.push(request);
        at = behind;
    }
    if requests.is_empty() {
        return Err("it does not begin with a request of HTTP/1".to_owned());
    }
    let mut at = 0;
    for request in &mut requests {
        let Some((response, behind)) = response_at(&server.bytes, at, &request.method) else { break };
        // RFC 9110 §15.2.2: another protocol follows.
        let is_over = response.status == 101;
        request.response = Some(response);
        if is_over {
            break;
        }
        at = behind;
    }
    Ok(requests)
}

/// Reads the request at a place. Returns it with the place behind it.
fn request_at(bytes: &[u8], at: usize) -> Option<(CapturedRequest, usize)> {
    let rest = bytes.get(at..)?;
    let mut fields = [EMPTY_HEADER; FIELDS_MAX];
    let mut head = Request::new(&mut fields);
    let Ok(Status::Complete(length)) = head.parse(rest) else { return None };
    let mut request = CapturedRequest {
        method: head.method.filter(|method| is_method(method))?.to_owned(),
        version: Some(if head.version == Some(0) { "1.0" } else { "1.1" }.to_owned()),
        ..Default::default()
    };
    let framing = framing(head.headers);
    let fields = texts(head.headers);
    set_target(head.path?, &mut request).ok()?;
    let host =
        fields.iter().find(|(name, _)| name.eq_ignore_ascii_case("host")).map(|(_, host)| host.clone());
    request.host = request.host.or(host);
    request.fields = fields.into_iter().filter(|(name, _)| !name.eq_ignore_ascii_case("host")).collect();
    let (body, behind) = match framing {
        // RFC 9112 §6.3: a request without a length has no body.
        None => return Some((request, at + length)),
        Some(framing) => body_at(rest, length, framing)?,
    };
    request.body = (!body.is_empty()).then(|| CapturedBody::of(&body));
    Some((request, at + behind))
}

/// Reads the response at a place, behind interim ones. Returns it with the place behind it.
fn response_at(bytes: &[u8], mut at: usize, method: &str) -> Option<(CapturedResponse, usize)> {
    loop {
        let rest = bytes.get(at..)?;
        let mut fields = [EMPTY_HEADER; FIELDS_MAX];
        let mut head = Response::new(&mut fields);
        let Ok(Status::Complete(length)) = head.parse(rest) else { return None };
        let status = head.code?;
        // RFC 9110 §15.2: interim responses precede the final one.
        if (100..200).contains(&status) && status != 101 {
            at += length;
            continue;
        }
        // RFC 9112 §6.3: these have no body.
        let is_bare = method == "HEAD" || matches!(status, 101 | 204 | 304);
        let framing = match framing(head.headers) {
            _ if is_bare => BodyFraming::Length(0),
            None => BodyFraming::UntilEnd,
            Some(framing) => framing,
        };
        let mut response = CapturedResponse { status, fields: texts(head.headers), body_bytes: None };
        // A body that is cut off has no length.
        let Some((body, behind)) = body_at(rest, length, framing) else {
            return Some((response, bytes.len()));
        };
        response.body_bytes = Some(body.len() as u64);
        return Some((response, at + behind));
    }
}

fn framing(fields: &[Header<'_>]) -> Option<BodyFraming> {
    let value = |name: &str| {
        fields.iter().find(|field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value)
    };
    if value("transfer-encoding").is_some_and(|value| value.to_ascii_lowercase().ends_with(b"chunked")) {
        return Some(BodyFraming::Chunked);
    }
    let length = std::str::from_utf8(value("content-length")?).ok()?;
    length.trim().parse().ok().map(BodyFraming::Length)
}

/// Reads a body. `start` is where it begins.
fn body_at(bytes: &[u8], start: usize, framing: BodyFraming) -> Option<(Vec<u8>, usize)> {
    match framing {
        BodyFraming::Length(length) => {
            let end = start.checked_add(length)?;
            Some((bytes.get(start..end)?.to_vec(), end))
        }
        BodyFraming::UntilEnd => Some((bytes.get(start..)?.to_vec(), bytes.len())),
        BodyFraming::Chunked => {
            let (mut body, mut at) = (Vec::new(), start);
            loop {
                let Ok(Status::Complete((head, size))) = parse_chunk_size(bytes.get(at..)?) else {
                    return None;
                };
                at += head;
                if size == 0 {
                    let mut fields = [EMPTY_HEADER; FIELDS_MAX];
                    let trailers = httparse::parse_headers(bytes.get(at..)?, &mut fields);
                    let Ok(Status::Complete((length, _))) = trailers else { return None };
                    return Some((body, at + length));
                }
                let end = at.checked_add(usize::try_from(size).ok()?)?;
                body.extend_from_slice(bytes.get(at..end)?);
                at = end + 2;
            }
        }
    }
}

fn texts(fields: &[Header<'_>]) -> Vec<(String, String)> {
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    fields.iter().map(|field| (field.name.to_owned(), text(field.value))).collect()
}
