//! Connections whose ClientHello decides: TLS that is passed on undecrypted, and server names with separate rules for
//! client certificates.

use std::rc::Rc;

use tls::{CLIENT_HELLO_MAX, ClientHello};

use crate::connection::client::{behind, secured};
use crate::connection::layer4::{self, PassedOn};
use crate::connection::refused_handshake;
use crate::context::client::FrontConnection;
use crate::context::worker::Worker;

/// Bytes per read: nearly every ClientHello fits.
const READ_BYTES: usize = 4096;

/// The first bytes from a client.
#[derive(Default)]
pub(crate) struct First {
    /// `None` if the client sent something else, or nothing yet.
    pub(crate) hello: Option<ClientHello>,
    /// All bytes that were read, to be processed or passed on.
    pub(crate) received: Vec<u8>,
}

/// Reads a client's ClientHello, and passes its connection on or does the handshake. Returns `None` if the connection
/// is finished, else whether HTTP/2 was agreed on. Without TLS, these are connections that the listener's `tcp` passes
/// on.
pub(crate) async fn meet(
    worker: &Rc<Worker>,
    mut client: Box<FrontConnection>,
) -> Option<(Box<FrontConnection>, bool)> {
    let mut first = First::default();
    client.deadline.set(worker.snapshot().ticks.client_header);
    let outcome = client.deadline.guard(receive(&client, &mut first.received)).await;
    let (is_late, hello) = match outcome {
        Ok(Ok(hello)) => (false, hello),
        // Such as health checks that only open a connection.
        Ok(Err(_)) if first.received.is_empty() => return None,
        // The bytes are passed on, for the server to judge.
        Ok(Err(_)) => (false, None),
        Err(_) => (true, None),
    };
    first.hello = hello;
    let (tls, passthrough) = {
        let snapshot = worker.snapshot();
        let listener = snapshot.listener(&client.listening);
        (listener.tls.clone(), listener.passthrough.clone())
    };
    let to = passthrough.zip(first.hello.as_ref());
    let to = to.and_then(|(passthrough, hello)| passthrough.upstream(hello, fastrand::u64(..)).cloned());
    match tls {
        Some(tls) if to.is_none() => {
            if is_late {
                // The handshake would have to begin with bytes that never came.
                refused_handshake::failed(worker, &mut client, None).await;
                return None;
            }
            secured(worker, tls, client, first).await
        }
        // Passed on even without a ClientHello: the client may wait for the server to speak first.
        _ => {
            behind(worker, &mut client);
            let server_name = first.hello.and_then(|hello| hello.server_name);
            let passed_on = PassedOn { to, received: first.received, server_name };
            layer4::serve(worker, *client, passed_on).await;
            None
        }
    }
}

/// Reads until a ClientHello is complete, or cannot be one.
async fn receive(client: &FrontConnection, received: &mut Vec<u8>) -> std::io::Result<Option<ClientHello>> {
    // Apart from what was received: a deadline drops this future while it waits, and the rest of the buffer with it.
    let mut piece = vec![0; READ_BYTES];
    loop {
        let count = client.socket.read(&mut piece).await?;
        if count == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        received.extend_from_slice(&piece[..count]);
        debug_assert!(received.len() < CLIENT_HELLO_MAX + READ_BYTES);
        match ClientHello::read(received) {
            Ok(None) => {}
            Ok(Some(hello)) => return Ok(Some(hello)),
            // rustls sends the right alert for it (RFC 8446 §6).
            Err(_) => return Ok(None),
        }
    }
}
