//! Listeners for all addresses of the machine, of one family or of both.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};

use config::Config;

/// The response contains the client's address.
fn read(addresses: &[&str]) -> Config {
    let listeners: String =
        addresses.iter().map(|address| format!("[[listen]]\naddress = \"{address}\"\n")).collect();
    let text = format!(
        "workers = 2\n{listeners}[[route]]\nallow = [\"127.0.0.1\", \"::1\"]\nrespond = {{ status = 200, body = \"in\" }}\n\
         response_headers = {{ set = {{ X-Client = \"$client_address\" }} }}\n"
    );
    config::parse(&text, "f").unwrap_or_else(|mistakes| panic!("{mistakes:#?}\n{text}"))
}

/// Returns the client address in the response at this local address; `None` if no socket listens there.
fn client(ip: IpAddr, port: u16) -> Option<String> {
    let mut answer = String::new();
    loop {
        let mut stream = TcpStream::connect((ip, port)).ok()?;
        let asked = stream.write_all(b"GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
        match asked.and_then(|()| stream.read_to_string(&mut answer)) {
            Ok(_) => break,
            // The kernel accepted it at a socket that a worker was closing: no socket listens there now.
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "it answers, and closes"),
        }
        answer.clear();
    }
    let client = answer.lines().find_map(|line| line.strip_prefix("X-Client: "));
    Some(client.unwrap_or_else(|| panic!("{answer}")).to_owned())
}

#[test]
fn a_listener_of_both_families_takes_both_and_one_of_either_takes_its_own() {
    const FOUR: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const SIX: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);
    let has_six = TcpListener::bind((SIX, 0)).is_ok();
    let (four, six) = (Some("127.0.0.1".to_owned()), has_six.then(|| "::1".to_owned()));
    let proxy = control::start(read(&["*:0"])).expect("it starts");
    let port = proxy.listeners()[0].port().expect("it is one of TCP");
    assert_eq!(proxy.listeners()[0].to_string(), format!("*:{port}"));
    // Access lists and servers see an IPv4 address, even if it came through an IPv6 socket.
    assert_eq!((client(FOUR, port), client(SIX, port)), (four.clone(), six.clone()));
    if !has_six {
        return;
    }
    for (address, expected) in [
        ("[::]", (None, six.clone())),
        ("*", (four.clone(), six.clone())),
        ("0.0.0.0", (four.clone(), None)),
        ("*", (four.clone(), six.clone())),
        ("127.0.0.1", (four.clone(), None)),
        ("*", (four.clone(), six.clone())),
    ] {
        // The new socket is opened before the old one is closed, without a conflict.
        proxy
            .reload(read(&[&format!("{address}:{port}")]))
            .unwrap_or_else(|error| panic!("{address}: {error}"));
        assert_eq!((client(FOUR, port), client(SIX, port)), expected, "{address}");
    }
    let other = control::start(read(&[&format!("[::]:{port}")])).err().expect("another one is in the way");
    assert!(other.to_string().contains("another process listens there"), "{other}");
}

#[test]
fn a_part_of_all_addresses_is_not_listened_on_beside_them() {
    for (addresses, said) in [
        (["*:8080", "0.0.0.0:8080"], "4:11: address: 0.0.0.0:8080 is already included in *:8080"),
        (["[::]:8080", "*:8080"], "2:11: address: [::]:8080 is already included in *:8080"),
        (["*:8080", "*:8080"], "4:11: address: *:8080 appears twice"),
    ] {
        let [one, other] = addresses;
        let text = format!(
            "[[listen]]\naddress = \"{one}\"\n[[listen]]\naddress = \"{other}\"\n[[route]]\nrespond = {{ status = 200 }}\n"
        );
        let mistakes = config::parse(&text, "f").expect_err("one is in the way of the other");
        assert!(mistakes[0].to_string().starts_with(&format!("f:{said}")), "{mistakes:?}");
    }
    for address in ["*:", "*", "*:x", "*:99999", "**:80"] {
        let text = format!("[[listen]]\naddress = \"{address}\"\n[[route]]\nrespond = {{ status = 200 }}\n");
        assert!(config::parse(&text, "f").is_err(), "{address}");
    }
}
