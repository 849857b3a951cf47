//! Annotations about servers: what is spoken to them, how long they are waited for, and which of them is asked.

use super::{Annotations, Servers};
use crate::backends::Spoken;
use crate::filters::Options;
use crate::written::{inline, text};

const SECONDS: &str = "1 to 86400 seconds";
const HASHED: &str = "$remote_addr, $binary_remote_addr, $uri, $host, $http_NAME, $cookie_NAME or $arg_NAME";

impl Annotations<'_> {
    /// Options of the upstreams.
    pub(super) fn upstream(&mut self) -> Options {
        let connect = self.value("proxy-connect-timeout", |time| seconds(time).ok_or(SECONDS));
        let pool = connect.map(|time| ("pool", inline([("connect_timeout", time)])));
        let key = self.value("upstream-hash-by", |variable| hash_key(variable).ok_or(HASHED));
        let hashes = key.map(|key| [("balance", text("consistent-hash")), ("hash_key", text(&key))]);
        pool.into_iter().chain(hashes.into_iter().flatten()).collect()
    }

    /// The option `timeouts` of the routes.
    pub(super) fn timeouts(&mut self) -> Option<(&'static str, String)> {
        let read = self.value("proxy-read-timeout", |time| seconds(time).ok_or(SECONDS));
        let send = self.value("proxy-send-timeout", |time| seconds(time).ok_or(SECONDS));
        // From one piece that a server sends to the next, whatever is sent.
        let all = read.into_iter().flat_map(|read| {
            ["upstream_first_byte", "upstream_body", "tunnel_idle"].map(|name| (name, read.clone()))
        });
        let all: Vec<_> = all.chain(send.map(|send| ("upstream_send", send))).collect();
        (!all.is_empty()).then(|| ("timeouts", inline(all)))
    }
}

/// What is spoken to servers.
pub(super) fn spoken(value: &str) -> Result<Servers, &'static str> {
    let (spoken, is_secure) = match value.to_ascii_uppercase().as_str() {
        "HTTP" => (Spoken::Http1, false),
        "HTTPS" => (Spoken::Http1, true),
        "GRPC" => (Spoken::Http2, false),
        "GRPCS" => (Spoken::Http2, true),
        _ => return Err("HTTP, HTTPS, GRPC or GRPCS"),
    };
    Ok(Servers { spoken, is_secure })
}

/// A time in seconds, as options have it.
fn seconds(time: &str) -> Option<String> {
    let seconds = time.trim_end_matches('s').parse::<u32>().ok()?;
    (1..=86_400).contains(&seconds).then(|| text(&format!("{seconds}s")))
}

/// The key that a variable of nginx is.
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
