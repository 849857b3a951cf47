//! Health checks by a GET: the request, and the expected response.

use config::{BodyRule, Probe, Protocol, Statuses};
use route::ValueRule;

use crate::probe::server::{ProbeShared, ProbedServer};
use crate::probe::{connect, fastcgi, http1, http2, http3};

pub(super) const BODY_MAX: usize = 64 * 1024;
pub(super) const HEAD_MAX: usize = 16 * 1024;

pub(super) const USER_AGENT: &str = concat!("vanward-check/", env!("CARGO_PKG_VERSION"));

pub(crate) struct ProbeRequest<'a> {
    pub(crate) host: &'a str,
    pub(crate) path: &'a str,
    pub(crate) agent: &'a str,
    pub(crate) body_bytes_max: usize,
}

#[derive(Debug, Default)]
pub(crate) struct ProbeResponse {
    pub(crate) status: u16,
    /// With names in lower case.
    pub(crate) headers: Vec<(String, Vec<u8>)>,
    pub(crate) body: Vec<u8>,
    /// Lines of trailers after a chunked body. Trailers of HTTP/2 are returned separately.
    pub(crate) trailers: Vec<u8>,
}

pub(super) async fn ask(subject: &ProbedServer, shared: &ProbeShared) -> Result<(), String> {
    let Probe::Http { path, host, status, headers, body } = &subject.check.probe else { return Ok(()) };
    let question = ProbeRequest {
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
        Protocol::Fastcgi => {
            let socket = connect::open(subject, subject.protocol, shared).await?;
            let root = subject.scripts.as_ref().map_or("", |scripts| scripts.root.as_str());
            let label = format!("upstream {}, server {}", subject.upstream, subject.server.label);
            fastcgi::ask(socket, &question, root, &label).await?
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
    fn an_unexpected_response_has_a_reason() {
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
