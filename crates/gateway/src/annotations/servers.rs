//! Annotations for servers: protocol, timeouts, and load balancing.

use super::{Annotations, ServerOptions};
use crate::backends::Spoken;
use crate::filters::Options;
use crate::written::{inline, list, text};

const SECONDS: &str = "1 to 86400 seconds";
const HASHED: &str = "$remote_addr, $binary_remote_addr, $uri, $host, $http_NAME, $cookie_NAME or $arg_NAME";

impl Annotations<'_> {
    pub(super) fn upstream(&mut self) -> Options {
        let connect = self.value("proxy-connect-timeout", |time| seconds(time).ok_or(SECONDS));
        let pool = connect.map(|time| ("pool", inline([("connect_timeout", time)])));
        let key = self.value("upstream-hash-by", |variable| hash_key(variable).ok_or(HASHED));
        let hashes = key.map(|key| [("balance", text("consistent-hash")), ("hash_key", text(&key))]);
        pool.into_iter().chain(hashes.into_iter().flatten()).collect()
    }

    pub(super) fn timeouts(&mut self) -> Option<(&'static str, String)> {
        let read = self.value("proxy-read-timeout", |time| seconds(time).ok_or(SECONDS));
        let send = self.value("proxy-send-timeout", |time| seconds(time).ok_or(SECONDS));
        // nginx's limit is between two reads, whatever is received.
        let all = read.into_iter().flat_map(|read| {
            ["upstream_first_byte", "upstream_body", "tunnel_idle"].map(|name| (name, read.clone()))
        });
        let all: Vec<_> = all.chain(send.map(|send| ("upstream_send", send))).collect();
        (!all.is_empty()).then(|| ("timeouts", inline(all)))
    }
}

impl Annotations<'_> {
    pub(super) fn retries(&mut self) -> Option<(&'static str, String)> {
        const TRIES: &str = "at most 16";
        const SECONDS: &str = "at most 3600 seconds";
        let on = self.value("proxy-next-upstream", retried);
        // nginx has no limit for 0. The highest limit is as far from what happens.
        let tries = self.value("proxy-next-upstream-tries", |tries| match tries.parse::<u8>() {
            Ok(0) => Ok(16),
            Ok(tries @ 1..=16) => Ok(tries),
            _ => Err(TRIES),
        });
        let within = self.value("proxy-next-upstream-timeout", |seconds| match seconds.parse::<u16>() {
            Ok(0) => Ok(3600),
            Ok(seconds @ 1..=3600) => Ok(seconds),
            _ => Err(SECONDS),
        });
        let (on, attempts) = match on {
            Some(Retried::Never) => (Vec::new(), Some(1)),
            Some(Retried::After(options)) => (options, tries),
            None => (Vec::new(), tries),
        };
        let attempts = attempts.map(|tries| ("attempts", tries.to_string()));
        let within = within.map(|seconds| ("within", text(&format!("{seconds}s"))));
        let options: Vec<_> = on.into_iter().chain(attempts).chain(within).collect();
        (!options.is_empty()).then(|| ("retry", inline(options)))
    }
}

enum Retried {
    Never,
    /// Options of `retry`.
    After(Options),
}

fn retried(value: &str) -> Result<Retried, &'static str> {
    const EXPECTED: &str = "error, timeout, invalid_header, http_STATUS, non_idempotent, or off alone";
    let (mut on, mut twice) = (Vec::new(), None);
    for word in value.split_whitespace() {
        match word {
            "off" if value == "off" => return Ok(Retried::Never),
            "error" => on.extend(["connect", "reset"].map(text)),
            "timeout" => on.push(text("timeout")),
            // An empty response is a reset; a malformed one is never retried.
            "invalid_header" => on.push(text("reset")),
            "non_idempotent" => twice = Some(("non_idempotent", "true".to_owned())),
            word => match word.strip_prefix("http_").and_then(|status| status.parse::<u16>().ok()) {
                Some(status @ 400..=599) => on.push(status.to_string()),
                _ => return Err(EXPECTED),
            },
        }
    }
    on.sort_unstable();
    on.dedup();
    if on.is_empty() {
        return Err(EXPECTED);
    }
    Ok(Retried::After([("on", list(on))].into_iter().chain(twice).collect()))
}

pub(super) fn spoken(value: &str) -> Result<ServerOptions, &'static str> {
    let (spoken, is_secure) = match value.to_ascii_uppercase().as_str() {
        "HTTP" => (Spoken::Http1, false),
        "HTTPS" => (Spoken::Http1, true),
        "GRPC" => (Spoken::Http2, false),
        "GRPCS" => (Spoken::Http2, true),
        _ => return Err("HTTP, HTTPS, GRPC or GRPCS"),
    };
    Ok(ServerOptions { spoken, is_secure })
}

fn seconds(time: &str) -> Option<String> {
    let seconds = time.trim_end_matches('s').parse::<u32>().ok()?;
    (1..=86_400).contains(&seconds).then(|| text(&format!("{seconds}s")))
}

fn hash_key(variable: &str) -> Option<String> {
    let name = variable.strip_prefix('$')?;
    let member = |prefix: &str, kind: &str| {
        let name = name.strip_prefix(prefix)?;
        let is_name =
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        is_name.then(|| format!("{kind}:{name}"))
    };
    match name {
        "remote_addr" | "binary_remote_addr" => Some("client".to_owned()),
        "uri" => Some("path".to_owned()),
        "host" | "http_host" => Some("host".to_owned()),
        _ => member("http_", "header")
            .map(|key| key.replace('_', "-"))
            .or_else(|| member("cookie_", "cookie"))
            .or_else(|| member("arg_", "query")),
    }
}
