//! Connections whose first message decides: TLS that is passed on as it is, and names with rules of their own about
//! client certificates.

use std::cell::Cell;
use std::rc::Rc;

use tls::{CLIENT_HELLO_MAX, ClientHello};

use crate::connection::client::{behind, secured};
use crate::connection::layer4::{self, PassedOn};
use crate::connection::refused_handshake;
use crate::context::client::Client;
use crate::context::worker::Worker;

/// Bytes that are read at once: nearly every hello is here as a whole.
const READ_BYTES: usize = 4096;

/// What a client has sent first.
#[derive(Default)]
pub(crate) struct First {
    /// Its hello; `None` if it sent something else, or nothing yet.
    pub(crate) hello: Option<ClientHello>,
    /// All that was read, to be processed or passed on.
    pub(crate) received: Vec<u8>,
}

/// Reads a client's hello, and passes its connection on, or secures it. Returns `None` if nothing is left to be done
/// with it, else whether HTTP/2 was agreed on. Connections without TLS here are those that `tcp` of the listener passes on.
pub(crate) async fn meet(worker: &Rc<Worker>, mut client: Box<Client>) -> Option<(Box<Client>, bool)> {
    let mut first = First::default();
    client.deadline.set(worker.snapshot().ticks.client_header);
    let outcome = client.deadline.guard(receive(&client, &mut first.received)).await;
    let (is_late, hello) = match outcome {
        Ok(Ok(hello)) => (false, hello),
        // As those do that only want to know whether somebody listens.
        Ok(Err(_)) if first.received.is_empty() => return None,
        // What was sent is for others to judge.
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
                refused_handshake::failed(worker, &mut client, None).await;
                return None;
            }
            secured(worker, tls, client, first).await
        }
        _ => {
            behind(worker, &mut client);
            let server_name = first.hello.and_then(|hello| hello.server_name);
            let passed_on = PassedOn { to, received: first.received, server_name };
            layer4::serve(worker, *client, passed_on).await;
            None
        }
    }
}

/// Reads until a hello is whole, or something else is there.
async fn receive(client: &Client, received: &mut Vec<u8>) -> std::io::Result<Option<ClientHello>> {
    let filled = Cell::new(0);
    loop {
        received.resize(filled.get() + READ_BYTES, 0);
        let read = client.socket.read(&mut received[filled.get()..]).await;
        filled.set(filled.get() + read.as_ref().map_or(0, |count| *count));
        received.truncate(filled.get());
        if read? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        debug_assert!(received.len() < CLIENT_HELLO_MAX + READ_BYTES);
        match ClientHello::read(received) {
            Ok(None) => {}
            Ok(Some(hello)) => return Ok(Some(hello)),
            // RFC 8446 §6 has an alert for it, which rustls knows.
            Err(_) => return Ok(None),
        }
    }
}
