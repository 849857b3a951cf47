//! Expected messages in short form: `{…}` stands for text that the proxy adds to every message.

/// Placeholder that matches any byte.
pub const ANY: u8 = 0x01;

const DATE_BYTES: usize = 29;

pub const GET: &str = "GET / HTTP/1.1\r\nHost: test\r\n\r\n";
/// [`GET`] as a server receives it.
pub const GET_SEEN: &str = "GET / HTTP/1.1\r\nHost: test\r\n{ours}\r\n";
/// A response with a body of two bytes.
pub const OK: &str = "HTTP/1.1 200 OK\r\nDate: D\r\nContent-Length: 2\r\n\r\nok";
/// [`OK`] as a client receives it.
pub const OK_GOT: &str = "HTTP/1.1 200 OK\r\nDate: D\r\nContent-Length: 2\r\n{via}\r\nok";

/// Replaces placeholders. `{ours}`: the proxy's fields in a request for the host `test`; `{ours10}`: in an HTTP/1.0
/// request without a host; `{via}`, `{via10}`: in a response; `{date}`: any date; `{server}`: `server`.
pub fn expand(text: &str, server: &str) -> Vec<u8> {
    let date = char::from(ANY).to_string().repeat(DATE_BYTES);
    text.replace("{ours}", &added("1.1", "test"))
        .replace("{ours10}", "Via: 1.0 vanward\r\nX-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: http\r\nForwarded: for=127.0.0.1;proto=http\r\n")
        .replace("{via}", "Via: 1.1 vanward\r\n")
        .replace("{via10}", "Via: 1.0 vanward\r\n")
        .replace("{date}", &date)
        .replace("{server}", server)
        .into_bytes()
}

/// Fields that the proxy adds to a request of this version for this host.
pub fn added(version: &str, host: &str) -> String {
    format!(
        "Via: {version} vanward\r\nX-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: http\r\n\
         X-Forwarded-Host: {host}\r\nForwarded: for=127.0.0.1;proto=http;host=\"{host}\"\r\n"
    )
}

/// An error response by the proxy, which then closes the connection.
pub fn failure_and_close(status: &str, reason: &str) -> String {
    failure(status, "Connection: close\r\n", reason)
}

/// An error response by the proxy that keeps the connection open.
pub fn failure_and_go_on(status: &str, reason: &str) -> String {
    failure(status, "", reason)
}

/// The proxy's 503 response under overload, with Retry-After.
pub fn failure_of_load(reason: &str) -> String {
    failure("503 Service Unavailable", "Retry-After: 1\r\n", reason)
}

fn failure(status: &str, fields: &str, reason: &str) -> String {
    let length = reason.len() + 1;
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n{fields}Date: {{date}}\r\n\r\n{reason}\n"
    )
}

/// Formats bytes for failure messages.
pub fn show(bytes: &[u8]) -> String {
    const SHOWN_MAX: usize = 2000;
    let shown =
        bytes[..bytes.len().min(SHOWN_MAX)].escape_ascii().to_string().replace("\\r\\n", "\\r\\n\n  ");
    if bytes.len() > SHOWN_MAX { format!("{shown}… ({} bytes)", bytes.len()) } else { shown }
}
