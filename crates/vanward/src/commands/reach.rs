//! Client of the admin API: finds the admin socket by flag or configuration file, and sends HTTP requests to it.
//!
//! `proxy::status` defines the JSON of the responses. This is not `http_client`, which is asynchronous: a command blocks, and
//! one response on a local socket, which ends with its connection, needs no runtime.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use api::status::RefusedOrder;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Timeout of a command. A reload waits for name resolution and for the workers.
const PATIENCE: Duration = Duration::from_secs(60);
/// Maximum size of a response; a status is much smaller.
const RESPONSE_BYTES_MAX: u64 = 256 << 20;

/// Flags that select the proxy.
#[derive(Clone, clap::Args)]
pub(crate) struct ProxySelection {
    /// Admin socket of the proxy [default: `admin` of the configuration file]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,

    /// Configuration file that names the admin socket [default: vanward.toml, or /etc/vanward/vanward.toml if there is none here]
    #[arg(long, short, value_name = "FILE", conflicts_with = "socket")]
    config: Option<PathBuf>,
}

pub(crate) struct AdminResponse {
    is_done: bool,
    pub(crate) body: Vec<u8>,
}

impl ProxySelection {
    pub(crate) fn get(&self, path: &str) -> Result<AdminResponse, ExitCode> {
        self.ask("GET", path, b"")
    }

    pub(crate) fn post(&self, path: &str, order: &impl Serialize) -> Result<AdminResponse, ExitCode> {
        let body = serde_json::to_vec(order).map_err(|error| super::fail(super::FAILED, error))?;
        self.ask("POST", path, &body)
    }

    pub(crate) fn post_text(&self, path: &str, text: &str) -> Result<AdminResponse, ExitCode> {
        self.ask("POST", path, text.as_bytes())
    }

    pub(crate) fn delete(&self, path: &str) -> Result<AdminResponse, ExitCode> {
        self.ask("DELETE", path, b"")
    }

    fn ask(&self, method: &str, path: &str, body: &[u8]) -> Result<AdminResponse, ExitCode> {
        self.line()?.exchange(method, path, body, PATIENCE).map_err(|error| super::fail(super::FAILED, error))
    }

    /// Whether a flag selects a proxy.
    #[cfg(feature = "lab")]
    pub(crate) fn is_given(&self) -> bool {
        self.socket.is_some() || self.config.is_some()
    }

    /// Returns a connection to the proxy, for a command with several requests.
    pub(crate) fn line(&self) -> Result<AdminLine, ExitCode> {
        self.socket().map(|socket| AdminLine { socket })
    }

    /// Finds the path of the socket. A file with mistakes elsewhere still has it.
    fn socket(&self) -> Result<PathBuf, ExitCode> {
        if let Some(socket) = &self.socket {
            return Ok(socket.clone());
        }
        let path = super::file_or_usual(self.config.as_deref());
        let file = path.display();
        std::fs::File::open(&path).map_err(|error| {
            let remedy =
                "name the proxy's configuration with --config FILE, or its socket with --socket PATH";
            super::fail(super::USAGE, format_args!("{file}: {error}; {remedy}"))
        })?;
        match config::admin_socket(&path) {
            Ok(Some(path)) => Ok(path),
            Err(mistakes) => {
                let lines = mistakes.iter().map(ToString::to_string);
                Err(mistaken(lines, "the proxy was not contacted, and has not changed"))
            }
            Ok(None) => Err(super::fail(
                super::USAGE,
                format_args!("{file} has no `admin` socket; give the proxy's with --socket PATH"),
            )),
        }
    }
}

pub(crate) struct AdminLine {
    socket: PathBuf,
}

impl AdminLine {
    /// The socket's path, for messages.
    pub(crate) fn place(&self) -> String {
        self.socket.display().to_string()
    }

    /// Sends a request, and waits for the response up to `patience` at each step. An error says what to do about it.
    pub(crate) fn exchange(
        &self,
        method: &str,
        path: &str,
        body: &[u8],
        patience: Duration,
    ) -> Result<AdminResponse, String> {
        let failed = |what: &str, error| self.failed(what, &error);
        let mut stream = UnixStream::connect(&self.socket).map_err(|error| failed("connect to", error))?;
        let exchange = |stream: &mut UnixStream| {
            stream.set_read_timeout(Some(patience))?;
            stream.set_write_timeout(Some(patience))?;
            let head = format!(
                "{method} {path} HTTP/1.1\r\nHost: vanward\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            stream.write_all(&[head.as_bytes(), body].concat())?;
            let mut response = Vec::new();
            stream.take(RESPONSE_BYTES_MAX).read_to_end(&mut response)?;
            Ok(response)
        };
        let response = exchange(&mut stream).map_err(|error| failed("communicate with", error))?;
        parse(&response).ok_or_else(|| self.invalid())
    }

    /// Sends a request whose response goes on. Returns its lines, or the proxy's rejection.
    #[cfg(feature = "lab")]
    pub(crate) fn lines(
        &self,
        path: &str,
        order: &impl Serialize,
    ) -> Result<std::io::BufReader<UnixStream>, String> {
        use std::io::BufRead as _;
        let body = serde_json::to_vec(order).map_err(|error| error.to_string())?;
        let stream = UnixStream::connect(&self.socket).map_err(|error| self.failed("connect to", &error))?;
        let mut lines = std::io::BufReader::new(stream);
        let mut head = Vec::new();
        let begin = |lines: &mut std::io::BufReader<UnixStream>, head: &mut Vec<u8>| {
            lines.get_ref().set_read_timeout(Some(PATIENCE))?;
            // A response to HTTP/1.0 has no chunks (RFC 9112 §7.1).
            let length = body.len();
            let asked = format!("POST {path} HTTP/1.0\r\nHost: vanward\r\nContent-Length: {length}\r\n\r\n");
            lines.get_mut().write_all(&[asked.as_bytes(), &body].concat())?;
            while !head.ends_with(b"\r\n\r\n") && lines.read_until(b'\n', head)? > 0 {}
            Ok(())
        };
        begin(&mut lines, &mut head)
            .map_err(|error: std::io::Error| self.failed("communicate with", &error))?;
        if parse(&head).ok_or_else(|| self.invalid())?.is_done {
            return Ok(lines);
        }
        let taken = lines.take(RESPONSE_BYTES_MAX).read_to_end(&mut head);
        taken.map_err(|error| self.failed("communicate with", &error))?;
        let refused = parse(&head).ok_or_else(|| self.invalid())?.read::<serde_json::Value>();
        Err(refused.err().unwrap_or_else(|| self.invalid()))
    }

    fn failed(&self, what: &str, error: &std::io::Error) -> String {
        let remedy = match error.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
                "; is the proxy running, and is this the `admin` of its configuration?"
            }
            ErrorKind::PermissionDenied => "; only root and the user that the proxy runs as may use it",
            _ => "",
        };
        format!("cannot {what} {}: {error}{remedy}", self.socket.display())
    }

    fn invalid(&self) -> String {
        format!("{} did not give a valid response: is it the admin socket of a proxy?", self.socket.display())
    }
}

impl AdminResponse {
    /// Parses the JSON of the response. The error, one line, is the proxy's rejection, or why the JSON is invalid.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, String> {
        if self.is_done {
            return serde_json::from_slice(&self.body).map_err(|error| invalid(&error));
        }
        match serde_json::from_slice(&self.body) {
            Ok(RefusedOrder { error, .. }) => Err(error),
            Err(_) => {
                Err(format!("the proxy rejects it: {}", String::from_utf8_lossy(&self.body).trim_end()))
            }
        }
    }

    /// Parses the JSON of the response, or reports why the request failed.
    pub(crate) fn told<T: DeserializeOwned>(&self) -> Result<T, ExitCode> {
        if self.is_done {
            return serde_json::from_slice(&self.body)
                .map_err(|error| super::fail(super::FAILED, invalid(&error)));
        }
        let Ok(RefusedOrder { error, mistakes }) = serde_json::from_slice(&self.body) else {
            let body = String::from_utf8_lossy(&self.body);
            return Err(super::fail(super::FAILED, format_args!("the proxy rejects it: {body}")));
        };
        if mistakes.is_empty() {
            return Err(super::fail(super::FAILED, error));
        }
        Err(mistaken(mistakes.into_iter().map(|mistake| mistake.text), &error))
    }
}

fn invalid(error: &serde_json::Error) -> String {
    if error.is_eof() {
        return "the proxy closed the connection before its response was complete: has it ended?".to_owned();
    }
    format!("the proxy's response is invalid: {error}")
}

fn mistaken(mistakes: impl Iterator<Item = String>, consequence: &str) -> ExitCode {
    let lines: String = mistakes.map(|mistake| mistake + "\n").collect();
    // The exit code says the same if standard error is closed.
    let _ = std::io::stderr().lock().write_all(lines.as_bytes());
    super::fail(super::BAD_CONFIGURATION, consequence)
}

/// Parses status and body of a response that ends with its connection.
fn parse(response: &[u8]) -> Option<AdminResponse> {
    let at = response.windows(4).position(|window| window == b"\r\n\r\n")?;
    let status = response.strip_prefix(b"HTTP/1.")?.get(2)?;
    Some(AdminResponse { is_done: *status == b'2', body: response[at + 4..].to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_truncated_response_is_reported_as_such() {
        let read =
            |body: &str| AdminResponse { is_done: true, body: body.into() }.read::<serde_json::Value>();
        for body in ["", "{", "[1,"] {
            let said = read(body).expect_err("it is cut off");
            assert_eq!(
                said,
                "the proxy closed the connection before its response was complete: has it ended?"
            );
        }
        assert!(read("no").expect_err("it is no JSON").starts_with("the proxy's response is invalid: "));
        assert!(read("{}").is_ok());
    }

    #[test]
    fn a_response_is_a_status_and_a_body() {
        let parsed = |text: &str| parse(text.as_bytes()).map(|answer| (answer.is_done, answer.body));
        assert_eq!(parsed("HTTP/1.1 200 OK\r\nA: b\r\n\r\n{}"), Some((true, b"{}".to_vec())));
        assert_eq!(parsed("HTTP/1.1 409 Conflict\r\n\r\n"), Some((false, Vec::new())));
        for text in ["", "HTTP/1.1 200 OK\r\n", "SSH-2.0\r\n\r\n"] {
            assert!(parse(text.as_bytes()).is_none(), "{text:?}");
        }
    }
}
