//! Faults: each as the client sees it, byte for byte.

use std::io::ErrorKind;
use std::net::Shutdown;

use super::client::{Client, pattern, start};

fn get(client: &mut Client, target: &str) {
    client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
}

#[test]
fn reset_at_once_and_after_a_part() {
    let running = start();
    let mut client = Client::connect(&running);
    get(&mut client, "/reset");
    let (bytes, ending) = client.rest();
    assert_eq!((bytes.len(), ending.map_err(|error| error.kind())), (0, Err(ErrorKind::ConnectionReset)));

    let mut client = Client::connect(&running);
    get(&mut client, "/reset?after=1000");
    assert_eq!(client.response_head().field("Content-Length"), Some("1001"));
    let (bytes, ending) = client.rest();
    assert_eq!(ending.map_err(|error| error.kind()), Err(ErrorKind::ConnectionReset));
    assert_eq!(bytes, pattern(0, 1000));
}

#[test]
fn truncate_promises_more_than_it_sends() {
    let running = start();
    let mut client = Client::connect(&running);
    get(&mut client, "/truncate?length=500&sent=100");
    let head = client.response_head();
    assert_eq!((head.field("Content-Length"), head.field("Connection")), (Some("500"), None));
    let (bytes, ending) = client.rest();
    ending.expect("closes in an orderly way");
    assert_eq!(bytes, pattern(0, 100));

    let mut client = Client::connect(&running);
    get(&mut client, "/truncate?length=500&sent=100&chunked");
    assert_eq!(client.response_head().field("Transfer-Encoding"), Some("chunked"));
    let (bytes, ending) = client.rest();
    ending.expect("closes in an orderly way");
    assert_eq!(bytes, [b"1f4\r\n".to_vec(), pattern(0, 100)].concat());
    assert_eq!(Client::connect(&running).get("/truncate?length=5&sent=5").status, 400);
    for chunked in ["", "&chunked"] {
        let mut client = Client::connect(&running);
        client.send(format!("HEAD /truncate?length=500&sent=100{chunked} HTTP/1.1\r\nHost: a\r\n\r\n"));
        client.response_head();
        client.assert_closed();
    }
}

#[test]
fn stall_sends_a_part_and_ends_with_the_client() {
    let running = start();
    for (target, head, body) in
        [("/stall", false, 0), ("/stall?after=0", true, 0), ("/stall?after=9", true, 9)]
    {
        let mut client = Client::connect(&running);
        get(&mut client, target);
        if head {
            assert_eq!(client.response_head().field("Content-Length"), Some((body + 1).to_string().as_str()));
        }
        assert_eq!(client.exactly(body), pattern(0, body as u64));
        // The origin closes only after the client has closed its side.
        client.stream().shutdown(Shutdown::Write).expect("is connected");
        client.assert_closed();
    }
}

#[test]
fn garbage_is_no_response() {
    let running = start();
    let mut client = Client::connect(&running);
    get(&mut client, "/garbage");
    let (bytes, ending) = client.rest();
    ending.expect("closes in an orderly way");
    assert!(!bytes.is_empty() && !bytes.starts_with(b"HTTP/"));
}

#[test]
fn raw_sends_what_it_is_given() {
    let running = start();
    let mut client = Client::connect(&running);
    get(&mut client, "/raw?keep&text=HTTP/1.1+200+OK%0d%0aContent-Length:+2%0d%0a%0d%0ahi");
    assert_eq!(client.response("GET").body, b"hi");
    let response = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab";
    client.send(format!(
        "POST /raw HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{response}",
        response.len()
    ));
    let (bytes, ending) = client.rest();
    ending.expect("closes in an orderly way");
    assert_eq!(bytes, response.as_bytes());
}
