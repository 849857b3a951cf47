//! Expected bytes, written short: `{…}` stands for what the proxy adds to every message.

/// Stands for any byte in expected bytes.
pub(crate) const ANY: u8 = 0x01;

/// Length of an HTTP date.
const DATE_BYTES: usize = 29;

/// A request that fits anywhere, and what a server sees of it.
pub(crate) const GET: &str = "GET / HTTP/1.1\r\nHost: test\r\n\r\n";
pub(crate) const GET_SEEN: &str = "GET / HTTP/1.1\r\nHost: test\r\n{ours}\r\n";
/// A response that fits anywhere, and what a client gets of it.
pub(crate) const OK: &str = "HTTP/1.1 200 OK\r\nDate: D\r\nContent-Length: 2\r\n\r\nok";
pub(crate) const OK_GOT: &str = "HTTP/1.1 200 OK\r\nDate: D\r\nContent-Length: 2\r\n{via}\r\nok";

/// `{ours}` is what is added to a request for the host `test`, `{ours10}` to one of HTTP/1.0 without a host, `{via}`
/// and `{via10}` what is added to a response of HTTP/1.1 and 1.0, `{date}` any date, `{server}` the first server.
pub(crate) fn expand(text: &str, server: &str) -> Vec<u8> {
    let date = char::from(ANY).to_string().repeat(DATE_BYTES);
    text.replace("{ours}", &added("1.1", "test"))
        .replace("{ours10}", "Via: 1.0 vanward\r\nX-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: http\r\nForwarded: for=127.0.0.1;proto=http\r\n")
        .replace("{via}", "Via: 1.1 vanward\r\n")
        .replace("{via10}", "Via: 1.0 vanward\r\n")
        .replace("{date}", &date)
        .replace("{server}", server)
        .into_bytes()
}

/// What is added to a request of this version for this host.
pub(crate) fn added(version: &str, host: &str) -> String {
    format!(
        "Via: {version} vanward\r\nX-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: http\r\n\
         X-Forwarded-Host: {host}\r\nForwarded: for=127.0.0.1;proto=http;host=\"{host}\"\r\n"
    )
}

/// What a client gets of a failure after which its connection is closed.
pub(crate) fn failure_and_close(status: &str, reason: &str) -> String {
    failure(status, "Connection: close\r\n", reason)
}

/// What a client gets of a failure after which its connection goes on.
pub(crate) fn failure_and_go_on(status: &str, reason: &str) -> String {
    failure(status, "", reason)
}

/// What a client gets where there is too much to do: it may come again.
pub(crate) fn failure_of_load(reason: &str) -> String {
    failure("503 Service Unavailable", "Retry-After: 1\r\n", reason)
}

fn failure(status: &str, fields: &str, reason: &str) -> String {
    let length = reason.len() + 1;
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n{fields}Date: {{date}}\r\n\r\n{reason}\n"
    )
}

/// Bytes as they are shown in messages.
pub(crate) fn show(bytes: &[u8]) -> String {
    const SHOWN_MAX: usize = 2000;
    let shown =
        bytes[..bytes.len().min(SHOWN_MAX)].escape_ascii().to_string().replace("\\r\\n", "\\r\\n\n  ");
    if bytes.len() > SHOWN_MAX { format!("{shown}… ({} bytes)", bytes.len()) } else { shown }
}
