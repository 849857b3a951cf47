//! A request over plain HTTP, without starting curl for each.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

/// Returns the response to a request, with its head. The request is HTTP/1.0, so that the body is not chunked.
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
