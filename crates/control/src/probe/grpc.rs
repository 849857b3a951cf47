//! Health checks by the gRPC health service, `grpc.health.v1.Health/Check`: SERVING means healthy.

use bytes::Bytes;
use config::Protocol;
use http::Request;
use telemetry::wire::{self, WireValue};

use crate::probe::http::{BODY_MAX, ProbeResponse, USER_AGENT};
use crate::probe::server::{ProbeShared, ProbedServer};
use crate::probe::{connect, http1, http2, http3};

const PATH: &str = "/grpc.health.v1.Health/Check";
/// Compression flag and length.
const PREFIX_LEN: usize = 5;

/// Checks a service; the empty name means the server as a whole.
pub(super) async fn ask(subject: &ProbedServer, service: &str, shared: &ProbeShared) -> Result<(), String> {
    let server = &subject.server;
    if subject.protocol == Protocol::Http3 {
        let open = http3::open(subject, shared).await?;
        let request = written(&server.authority, service)?;
        let answer = http1::exchange(open.stream(), &request, BODY_MAX).await?;
        return judge(&answer, trailer(&answer.trailers, "grpc-status"));
    }
    let request = Request::post(http2::url(server.config.scheme, &server.authority, PATH))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("user-agent", USER_AGENT)
        .body(())
        .map_err(|error| format!("the request cannot be sent: {error}"))?;
    let socket = connect::open(subject, Protocol::Http2, shared).await?;
    let answered = http2::ask(socket, request, Some(question(service))).await?;
    judge(&answered.answer, answered.trailers.get("grpc-status").map(http::HeaderValue::as_bytes))
}

/// Writes the request as HTTP/1.1 text.
fn written(authority: &str, service: &str) -> Result<Vec<u8>, String> {
    let fields = [
        ("Host", authority),
        ("Content-Type", "application/grpc"),
        ("TE", "trailers"),
        ("User-Agent", USER_AGENT),
    ];
    http_client::request("POST", PATH, &fields, &question(service))
}

/// The value of a field in lines of trailers.
fn trailer<'a>(lines: &'a [u8], wanted: &str) -> Option<&'a [u8]> {
    lines.split(|byte| *byte == b'\n').find_map(|line| {
        let (name, value) = line.split_at_checked(line.iter().position(|byte| *byte == b':')?)?;
        name.eq_ignore_ascii_case(wanted.as_bytes()).then(|| value[1..].trim_ascii())
    })
}

/// `HealthCheckRequest { string service = 1; }`
fn question(service: &str) -> Bytes {
    let mut message = Vec::new();
    if !service.is_empty() {
        wire::bytes(&mut message, 1, service.as_bytes());
    }
    let mut framed = vec![0];
    framed.extend_from_slice(&(message.len() as u32).to_be_bytes());
    framed.extend_from_slice(&message);
    framed.into()
}

fn judge(answer: &ProbeResponse, told: Option<&[u8]>) -> Result<(), String> {
    if answer.status != 200 {
        return Err(format!("status {}", answer.status));
    }
    // A response without a message has its trailers in its head.
    let in_head =
        answer.headers.iter().find(|(name, _)| name == "grpc-status").map(|(_, value)| value.as_slice());
    match told.or(in_head) {
        Some(b"0") => {}
        Some(b"5") => return Err("it does not know the service".to_owned()),
        Some(b"12") => return Err("it has no health service".to_owned()),
        Some(code) => return Err(format!("grpc-status {}", String::from_utf8_lossy(code))),
        None => return Err("its answer is not gRPC".to_owned()),
    }
    match serving_status(&answer.body) {
        Some(1) => Ok(()),
        Some(0) => Err("UNKNOWN".to_owned()),
        Some(2) => Err("NOT_SERVING".to_owned()),
        Some(3) => Err("SERVICE_UNKNOWN".to_owned()),
        Some(status) => Err(format!("serving status {status}")),
        None => Err("its answer is not gRPC".to_owned()),
    }
}

/// `HealthCheckResponse { ServingStatus status = 1; }`
fn serving_status(body: &[u8]) -> Option<u64> {
    let (prefix, message) = body.split_at_checked(PREFIX_LEN)?;
    let length = u32::from_be_bytes(prefix[1..].try_into().ok()?);
    // Compression was not requested.
    if prefix[0] != 0 || message.len() != length as usize {
        return None;
    }
    let mut status = 0;
    wire::read(message, |field, value| {
        if let (1, WireValue::Number(value)) = (field, value) {
            status = value;
        }
    })?;
    Some(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_names_its_service() {
        assert_eq!(question("")[..], [0; 5]);
        assert_eq!(question("a.B")[..], *b"\0\0\0\0\x05\x0a\x03a.B");
        assert_eq!(question(&"x".repeat(300))[5..8], [0x0a, 0xac, 0x02]);
    }

    #[test]
    fn only_serving_is_up() {
        let serving = b"\0\0\0\0\x02\x08\x01";
        for (status, grpc_status, body, expected) in [
            (200, Some("0"), &serving[..], Ok(())),
            (200, Some("0"), b"\0\0\0\0\x07\x12\x03abc\x08\x01", Ok(())),
            (200, Some("0"), b"\0\0\0\0\x02\x08\x02", Err("NOT_SERVING")),
            (200, Some("0"), b"\0\0\0\0\0", Err("UNKNOWN")),
            (200, Some("0"), b"\0\0\0\0\x03\x08\x01", Err("its answer is not gRPC")),
            (200, Some("0"), b"\x01\0\0\0\x02\x08\x01", Err("its answer is not gRPC")),
            (200, Some("0"), b"\0\0\0\0\x02\x08\xff", Err("its answer is not gRPC")),
            (200, Some("12"), b"", Err("it has no health service")),
            (200, Some("5"), b"", Err("it does not know the service")),
            (200, Some("14"), serving, Err("grpc-status 14")),
            (200, None, serving, Err("its answer is not gRPC")),
            (503, Some("0"), serving, Err("status 503")),
        ] {
            let answer = ProbeResponse { status, body: body.to_vec(), ..ProbeResponse::default() };
            assert_eq!(
                judge(&answer, grpc_status.map(str::as_bytes)),
                expected.map_err(str::to_owned),
                "{body:?}"
            );
        }
    }
}
