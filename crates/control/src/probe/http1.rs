//! One HTTP/1.1 exchange on a new connection: a kept connection would not notice that the server no longer listens.

use http1::{ChunkLimits, Chunked, Framing, HeadLimits, Parsed, ResponseHead};

use crate::probe::connect::reason;
use crate::probe::http::{HEAD_MAX, ProbeResponse, Question};
use transport::endpoint::Endpoint;
use transport::tcp::Follows;

const LIMITS: HeadLimits = HeadLimits { bytes: HEAD_MAX, fields: 256, target: HEAD_MAX };
/// Interim responses before the final one.
const INTERIM_MAX: usize = 8;

/// Sends a GET and reads the response.
pub(crate) async fn ask(connection: &Endpoint, question: &Question<'_>) -> Result<ProbeResponse, String> {
    let Question { host, path, agent, body_bytes_max } = question;
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: {agent}\r\nAccept: */*\r\nConnection: close\r\n\r\n"
    );
    exchange(connection, request.as_bytes(), (false, *body_bytes_max)).await
}

/// Sends a request and reads the response, and of its body so much. The request says `Connection: close`.
pub(crate) async fn exchange(
    connection: &Endpoint,
    request: &[u8],
    (is_head, body_bytes_max): (bool, usize),
) -> Result<ProbeResponse, String> {
    let mut bytes = request;
    while !bytes.is_empty() {
        let count = connection.write(bytes, Follows::End).await.map_err(|error| reason(&error))?;
        bytes = &bytes[count..];
    }
    let mut received = Vec::new();
    let mut head = ResponseHead::default();
    for _ in 0..=INTERIM_MAX {
        receive_head(connection, &mut received, &mut head).await?;
        let status = head.start.status;
        if status >= 200 {
            return answer(connection, &head, received, (is_head, body_bytes_max)).await;
        }
        received.drain(..head.len);
        head.clear();
    }
    Err("its answer does not begin".to_owned())
}

async fn receive_head(
    connection: &Endpoint,
    received: &mut Vec<u8>,
    head: &mut ResponseHead,
) -> Result<(), String> {
    loop {
        match head.parse(received, &LIMITS) {
            Ok(Parsed::Complete) => return Ok(()),
            Ok(Parsed::Partial) => {}
            Err(_) => return Err("its answer is no HTTP".to_owned()),
        }
        if receive(connection, received).await? == 0 {
            return Err("it closed the connection".to_owned());
        }
    }
}

/// The head that has been received, and so much of the body as is looked at, with the trailers if that is all.
async fn answer(
    connection: &Endpoint,
    head: &ResponseHead,
    mut received: Vec<u8>,
    (is_head, body_bytes_max): (bool, usize),
) -> Result<ProbeResponse, String> {
    let framing =
        http1::response_framing(head, &received, is_head).map_err(|_| "its answer has no clear end")?;
    let text = |span: http1::Span| String::from_utf8_lossy(span.of(&received)).to_ascii_lowercase();
    let headers =
        head.fields.iter().map(|field| (text(field.name), field.value.of(&received).to_vec())).collect();
    let status = head.start.status;
    received.drain(..head.len);
    let (body, trailers) = match body_bytes_max {
        0 => (Vec::new(), Vec::new()),
        most => receive_body(connection, (framing, most), received).await?,
    };
    Ok(ProbeResponse { status, headers, body, trailers })
}

async fn receive_body(
    connection: &Endpoint,
    (framing, most): (Framing, usize),
    mut received: Vec<u8>,
) -> Result<(Vec<u8>, Vec<u8>), String> {
    let mut body = Vec::new();
    let mut chunked = Chunked::default();
    loop {
        let is_done = match framing {
            Framing::None => return Ok((body, Vec::new())),
            Framing::Length(length) => {
                body.append(&mut received);
                body.len() as u64 >= length
            }
            Framing::UntilClose => {
                body.append(&mut received);
                false
            }
            Framing::Chunked => {
                let decoded = chunked.decode(&mut received, &ChunkLimits::default());
                let decoded = decoded.map_err(|_| "its answer is no HTTP")?;
                body.extend_from_slice(&received[..decoded.data]);
                received.drain(..decoded.consumed);
                decoded.done
            }
        };
        if is_done || body.len() >= most {
            break;
        }
        if receive(connection, &mut received).await? == 0 {
            if framing != Framing::UntilClose {
                return Err("its answer is cut".to_owned());
            }
            break;
        }
    }
    body.truncate(most);
    Ok((body, chunked.trailers().to_vec()))
}

async fn receive(connection: &Endpoint, received: &mut Vec<u8>) -> Result<usize, String> {
    const PIECE: usize = 8 * 1024;
    let before = received.len();
    received.resize(before + PIECE, 0);
    let read = connection.read(&mut received[before..]).await;
    received.truncate(before + *read.as_ref().unwrap_or(&0));
    read.map_err(|error| reason(&error))
}
