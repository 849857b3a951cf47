//! Sends a request as HTTP/2.

use std::io::{ErrorKind, Read, Write};
use std::rc::Rc;

use ::http2::{FloodLimits, H2Limits, H2Role, H2StateMachine, Key, Now, STREAM_WINDOW, WireScheme};
use prove::{OldDoor, ProofAnswer, ProofRequest, ResponseWire};

const LIMITS: H2Limits = H2Limits {
    streams: 1,
    connection_window: 4 * STREAM_WINDOW,
    head_bytes: 256 << 10,
    short_head_bytes: 256 << 10,
    long_heads_bytes: 1 << 20,
    floods: FloodLimits::DEFAULT,
};
const NOW: Now = Now { tick: 0, second: 0 };

pub(super) fn transfer(mut stream: impl Read + Write, door: &OldDoor, request: &ProofRequest) -> ProofAnswer {
    let mut connection = H2StateMachine::new(H2Role::Client, LIMITS, Rc::default());
    let key = connection.open();
    let mut wire = ResponseWire::new(&request.method);
    match exchange(&mut connection, key, &mut stream, &request.bytes(door), &mut wire) {
        Ok(()) => wire.answer(""),
        Err(why) => wire.answer(&why),
    }
}

/// Sends a message, and reads the response.
///
/// # Errors
/// Why the response is not complete.
fn exchange(
    connection: &mut H2StateMachine,
    key: Key,
    stream: &mut (impl Read + Write),
    message: &[u8],
    wire: &mut ResponseWire,
) -> Result<(), String> {
    let written = connection.write_head(key, message, true, WireScheme::Https);
    let mut body = &message[written.map_err(|_| "HTTP/2 cannot express the request")?..];
    let mut piece = vec![0; 64 << 10];
    loop {
        if !body.is_empty() {
            let room = connection.room(key).unwrap_or(0).min(connection.room_of_connection());
            body = &body[connection.write(key, body, room, true)..];
        }
        let unsent = connection.unsent().to_vec();
        // A proxy that refuses a request may close before it has read everything; it has answered then.
        let _ = stream.write_all(&unsent).and_then(|()| stream.flush());
        connection.sent(unsent.len());
        loop {
            match connection.read(key, &mut piece, 0) {
                Ok(Some(0)) => return Ok(()),
                Ok(Some(length)) if wire.push(&piece[..length]) => return Ok(()),
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => return Err("the stream was reset".to_owned()),
            }
        }
        let length = match stream.read(&mut piece) {
            Ok(0) => return Err("the connection was closed".to_owned()),
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(super::trouble(&error)),
        };
        let mut received = &piece[..length];
        loop {
            let taken = connection.receive(received, NOW);
            let (count, event) = taken.map_err(|broken| broken.why().to_owned())?;
            received = &received[count..];
            if event.is_none() && received.is_empty() {
                break;
            }
        }
    }
}
