//! A stand-in of an application behind FastCGI, such as php-fpm.

use std::io::{BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;

use fastcgi::{CONTENT_MAX, HEADER_BYTES, Header, ParamPairs, RecordType};
use prove::{MISSING_SCRIPT, SeenRequest};

use super::{BODY_BYTES_MAX, HEAD_BYTES_MAX, Notes};

/// The flag of a request that keeps the connection (FastCGI 1.0 §5.1).
const KEEPS: u8 = 1;

/// A request in records.
#[derive(Default)]
struct ApplicationRequest {
    keeps: bool,
    id: u16,
    params: Vec<u8>,
    body: Vec<u8>,
}

/// Answers the requests of a connection, until one is not understood.
pub(super) fn serve(stream: &TcpStream, server: usize, name: &str, notes: &Notes) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut writer = stream.try_clone().ok()?;
    loop {
        let request = read(&mut reader)?;
        let (keeps, id) = (request.keeps, request.id);
        let (seen, script) = seen(request, server)?;
        let (answer, _) = notes.noted(seen, name);
        let output = match script {
            Some(script) if !Path::new(&script).is_file() => {
                format!("Status: 404 Not Found\r\nContent-Type: text/html\r\n\r\n{MISSING_SCRIPT}.\n")
                    .into_bytes()
            }
            // The first line of a response of HTTP has the status, too.
            _ => [b"Status:", answer.strip_prefix(b"HTTP/1.1").unwrap_or(&answer)].concat(),
        };
        for piece in output.chunks(CONTENT_MAX) {
            record(RecordType::Stdout, id, piece, &mut writer)?;
        }
        record(RecordType::Stdout, id, &[], &mut writer)?;
        record(RecordType::EndRequest, id, &[0; 8], &mut writer)?;
        if !keeps {
            return None;
        }
    }
}

fn read(reader: &mut BufReader<TcpStream>) -> Option<ApplicationRequest> {
    let mut request = ApplicationRequest::default();
    loop {
        let mut bytes = [0; HEADER_BYTES];
        reader.read_exact(&mut bytes).ok()?;
        let header = Header::decode(bytes);
        let mut content = vec![0; usize::from(header.content) + usize::from(header.padding)];
        reader.read_exact(&mut content).ok()?;
        content.truncate(header.content.into());
        match RecordType::from_number(header.kind)? {
            RecordType::BeginRequest => {
                request.id = header.id;
                request.keeps = content.get(2).is_some_and(|flags| flags & KEEPS != 0);
            }
            RecordType::Params => request.params.extend(content),
            // An empty record ends a stream (FastCGI 1.0 §3.3).
            RecordType::Stdin if content.is_empty() => return Some(request),
            RecordType::Stdin => request.body.extend(content),
            _ => return None,
        }
        if request.params.len() as u64 > HEAD_BYTES_MAX || request.body.len() as u64 > BODY_BYTES_MAX {
            return None;
        }
    }
}

/// The request as a server of HTTP would see it, with all other parameters as fields, and its script.
fn seen(request: ApplicationRequest, server: usize) -> Option<(SeenRequest, Option<String>)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut fields = Vec::new();
    let (mut method, mut target, mut script) = (String::new(), String::new(), None);
    for pair in ParamPairs::new(&request.params) {
        let (name, value) = pair.ok()?;
        let (name, value) = (text(name), text(value));
        match name.as_str() {
            "REQUEST_METHOD" => method.clone_from(&value),
            "REQUEST_URI" => target.clone_from(&value),
            "SCRIPT_FILENAME" => script = Some(value.clone()),
            _ => {}
        }
        // An empty parameter means the same as none.
        if !value.is_empty() {
            let name = name.to_ascii_lowercase();
            fields.push((
                name.strip_prefix("http_").map_or(name.clone(), |name| name.replace('_', "-")),
                value,
            ));
        }
    }
    Some((SeenRequest { server, method, target, fields, body: request.body }, script))
}

fn record(kind: RecordType, id: u16, content: &[u8], writer: &mut TcpStream) -> Option<()> {
    let header = Header { id, ..Header::new(kind, content.len() as u16) };
    writer.write_all(&[&header.encode(), content].concat()).ok()
}
