//! Health checks by a GET: the request, and the expected response.

use config::{BodyRule, Probe, Protocol, Statuses};
use route::ValueRule;

use crate::probe::server::{Shared, Subject};
use crate::probe::{connect, http1, http2, http3};

/// The maximum number of body bytes that are read.
pub(super) const BODY_MAX: usize = 64 * 1024;
/// The maximum size of a response's head, and of its trailers.
pub(super) const HEAD_MAX: usize = 16 * 1024;

/// The User-Agent of health checks.
pub(super) const USER_AGENT: &str = concat!("vanward-check/", env!("CARGO_PKG_VERSION"));

/// The request of a health check.
pub(crate) struct Question<'a> {
    pub(crate) host: &'a str,
    /// Path and query of the URL.
    pub(crate) path: &'a str,
    /// The User-Agent.
    pub(crate) agent: &'a str,
    /// How much of the body is examined, in bytes.
    pub(crate) body_bytes_max: usize,
}

/// The response to a health check.
#[derive(Debug, Default)]
pub(crate) struct ProbeResponse {
    pub(crate) status: u16,
    /// The header fields, with names in lower case.
    pub(crate) headers: Vec<(String, Vec<u8>)>,
    pub(crate) body: Vec<u8>,
    /// The lines of trailers that came behind a body in chunks. Those of HTTP/2 are given beside it.
    pub(crate) trailers: Vec<u8>,
}

/// Sends the request, and checks the response.
pub(super) async fn ask(subject: &Subject, shared: &Shared) -> Result<(), String> {
    let Probe::Http { path, host, status, headers, body } = &subject.check.probe else { return Ok(()) };
    let question = Question {
        host: host.as_deref().unwrap_or(&subject.server.authority),
        path,
        agent: USER_AGENT,
        body_bytes_max: if body.is_some() { BODY_MAX } else { 0 },
    };
    let answer = match subject.protocol {
        Protocol::Http1 => {
            let socket = connect::open(subject, subject.protocol, shared).await?;
            http1::ask(&socket.into(), &question).await?
        }
        Protocol::Http3 => http1::ask(http3::open(subject, shared).await?.stream(), &question).await?,
        Protocol::Http2 => {
            let socket = connect::open(subject, subject.protocol, shared).await?;
            let scheme = subject.server.config.scheme;
            http2::ask(socket, http2::get(&question, scheme)?, None).await?.answer
        }
    };
    judge(&answer, status, headers, body.as_ref())
}

fn judge(
    answer: &ProbeResponse,
    statuses: &Statuses,
    headers: &[(String, ValueRule)],
    body: Option<&BodyRule>,
) -> Result<(), String> {
    if !statuses.contains(answer.status) {
        return Err(format!("status {}", answer.status));
    }
    for (name, rule) in headers {
        let mut values =
            answer.headers.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name)).peekable();
        if values.peek().is_none() {
            return Err(format!("no field {name}"));
        }
        if !values.any(|(_, value)| rule.passes(value)) {
            return Err(format!("the field {name} is not as expected"));
        }
    }
    match body {
        Some(rule) if !rule.passes(&answer.body) => Err("the body is not as expected".to_owned()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_what_was_expected_or_the_reason_is_told() {
        let answer = ProbeResponse {
            status: 200,
            headers: vec![
                ("x-role".to_owned(), b"replica".to_vec()),
                ("x-role".to_owned(), b"leader".to_vec()),
            ],
            body: b"all is well".to_vec(),
            trailers: Vec::new(),
        };
        let exact = |name: &str, value: &str| (name.to_owned(), ValueRule::Exact(value.to_owned()));
        let contains = |text: &str| Some(BodyRule::Contains(text.to_owned()));
        for (headers, body, expected) in [
            (vec![], None, Ok(())),
            (vec![exact("X-Role", "leader")], contains("well"), Ok(())),
            (vec![exact("X-Role", "witness")], None, Err("the field X-Role is not as expected")),
            (vec![exact("X-Zone", "a")], None, Err("no field X-Zone")),
            (vec![], contains("ill"), Err("the body is not as expected")),
        ] {
            let judged = judge(&answer, &Statuses::successful(), &headers, body.as_ref());
            assert_eq!(judged, expected.map_err(str::to_owned));
        }
        let answer = ProbeResponse { status: 503, ..answer };
        assert_eq!(judge(&answer, &Statuses::successful(), &[], None), Err("status 503".to_owned()));
    }
}
