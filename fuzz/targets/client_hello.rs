//! The first bytes of a client: parsing never panics, and further bytes do not change a result. A hello that rustls
//! accepts has the same name and protocols here.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rustls::server::Acceptor;
use tls::{CLIENT_HELLO_MAX, ClientHello};

fuzz_target!(|bytes: &[u8]| {
    let read = ClientHello::read(bytes);
    match &read {
        // The parser waits for no more bytes.
        Ok(None) => assert!(bytes.len() < CLIENT_HELLO_MAX + 5),
        decided => {
            let more = [bytes, b"\x16\x03\x01\0\x01x"].concat();
            if matches!(decided, Ok(Some(_))) || bytes.len() < CLIENT_HELLO_MAX {
                assert_eq!(&ClientHello::read(&more), decided);
            }
        }
    }
    let mut acceptor = Acceptor::default();
    let mut rest = bytes;
    while !rest.is_empty() {
        if acceptor.read_tls(&mut rest).is_err() {
            return;
        }
        match acceptor.accept() {
            Ok(None) => {}
            Ok(Some(accepted)) => {
                let hello = accepted.client_hello();
                let Ok(Some(ours)) = read else { return };
                if let Some(name) = hello.server_name() {
                    assert_eq!(ours.server_name.as_deref(), Some(name.to_ascii_lowercase().as_str()));
                }
                let theirs: Vec<&[u8]> = hello.alpn().into_iter().flatten().collect();
                let ours: Vec<&[u8]> = ours.protocols.iter().map(|protocol| &**protocol).collect();
                assert_eq!(ours, theirs);
                return;
            }
            Err(_) => return,
        }
    }
});
