//! A request over plain HTTP, for what curl would have to be started for each time.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The longest wait for an answer, on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// The response to a request, with its head. The request is one of HTTP/1.0, so that the body is as it is, not in chunks.
pub(super) fn get(address: SocketAddr, host: &str, target: &str) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("http://{address}{target}: {error}");
    let mut stream = TcpStream::connect(address).map_err(failed)?;
    stream.set_read_timeout(Some(LIMIT)).map_err(failed)?;
    let request = format!("GET {target} HTTP/1.0\r\nHost: {host}\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(failed)?;
    let mut response = Vec::new();
    stream.read_to_end(&mut response).map_err(failed)?;
    Ok(String::from_utf8_lossy(&response).into_owned())
}
