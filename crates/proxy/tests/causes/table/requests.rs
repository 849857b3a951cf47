//! Requests that are invalid, or exceed a limit.

use std::thread;

use proxy::failure::Failure;
use testkit::http1::Http1Peer;
use testkit::http2::H2End;
use testkit::http3::H3TestClient;
use testkit::http3::frame::frame;
use testkit::ports;

use crate::causes::caller::{Caller, Seen, Wire};
use crate::causes::cells::{Case, EACH, ONE, Play, Row, STREAMS, THREE, TWO};

const BEFORE: &str = "the request is refused before a server is asked";
const SERVERS_SEND_RESPONSES: &str = "the failure is one of a request, and this side sends responses";
const BUFFERED: &str = "upstream = \"app\"\nrequest_buffering = { memory = 100 }";
const GRPC_WEB: &str = "upstream = \"app\"\ngrpc_web = true";

pub(crate) fn rows() -> Vec<Row> {
    let long_line: fn(&Play<'_>) -> Seen = |play| play.asks("GET", &format!("/{}", "x".repeat(200)), "");
    vec![
        Row::of(Failure::BadRequest)
            .case(
                Case::new("a space in a field name", |play| play.asks("GET", "/", "x y: 1\n"))
                    .clients(ONE)
                    .detail("the field 'x y'"),
            )
            .case(
                Case::new("a target that is none", |play| play.asks("GET", "a b", ""))
                    .clients(ONE)
                    .detail("the request line"),
            )
            .no_clients(TWO, "a malformed message is a stream error of type PROTOCOL_ERROR (RFC 9113 §8.1.1)")
            .no_clients(THREE, "a malformed message is a stream error of type H3_MESSAGE_ERROR (RFC 9114 §4.1.2)")
            .no_servers(EACH, SERVERS_SEND_RESPONSES),
        Row::of(Failure::PlainHttp)
            .case(
                Case::new("HTTP to the port of HTTPS", |play| {
                    let mut client = Http1Peer::new("client", play.scene.connect(1));
                    client.sends("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
                    Seen::of(client)
                })
                .clients(ONE)
                .without_version()
                .detail("it speaks HTTP to a port of HTTPS"),
            )
            .no_clients(TWO, "a client of HTTP/2 without TLS is answered as one of HTTP/1.1, before it is known")
            .no_clients(THREE, "QUIC has TLS in each connection")
            .no_servers(EACH, "the failure is one of a listener"),
        Row::of(Failure::BadHost)
            .case(
                Case::new("a host with a space", |play| {
                    let mut client = play.scene.client1();
                    client.sends("GET / HTTP/1.1\r\nHost: a b\r\n\r\n");
                    Seen::of(client)
                })
                .clients(ONE)
                .detail("Host 'a b'"),
            )
            .no_clients(STREAMS, "an invalid authority makes the message malformed (RFC 9113 §8.3.1, RFC 9114 §4.3.1)")
            .no_servers(EACH, SERVERS_SEND_RESPONSES),
        Row::of(Failure::BadFraming)
            .case(
                Case::new("two lengths", |play| {
                    play.asks("POST", "/", "content-length: 1\ncontent-length: 2\n")
                })
                .clients(ONE)
                .detail("there is more than one Content-Length"),
            )
            .no_clients(STREAMS, "frames have their length, and a wrong Content-Length makes the message malformed")
            .no_servers(EACH, SERVERS_SEND_RESPONSES),
        Row::of(Failure::BadBody)
            .case(
                Case::new("a chunk without a size", |play| {
                    let mut client = play.scene.client1();
                    client.sends("POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n");
                    let mut server = play.scene.accept1();
                    server.head();
                    client.sends("xyz\r\n");
                    server.is_closed();
                    Seen::of(client)
                })
                .clients(ONE)
                .detail("in the chunks, at 'xyz"),
            )
            .no_clients(STREAMS, "bodies have no chunks there")
            .no_servers(EACH, SERVERS_SEND_RESPONSES),
        Row::of(Failure::RequestBufferExceeded)
            .case(
                Case::new("a body longer than the buffer", |play| posts(play, "content-length: 5001\n", 5_001))
                    .route(BUFFERED)
                    .tables("[request_buffering]\ndisk = 0\nmemory = 5000\npath = \"{dir}\"\n")
                    .clients(EACH)
                    .detail("the body is longer than the limit for buffered bodies, 100 bytes"),
            )
            .no_servers(EACH, BEFORE),
        Row::of(Failure::RequestBuffersFull)
            .case(
                Case::new("bodies longer than the disk", |play| {
                    let mut first = play.caller();
                    first.begins("POST", "/", "content-length: 80000\n");
                    first.sends(&[b'x'; 79_999]);
                    play.scene.waits("the first body is kept", |counters| counters.request_buffer_disk_bytes > 60_000);
                    posts(play, "content-length: 80000\n", 79_999)
                })
                .route(BUFFERED)
                .tables("[request_buffering]\nmemory = 150\ndisk = \"100KB\"\npath = \"{dir}\"\n")
                .clients(EACH)
                .detail("buffered bodies use all of request_buffering.disk, 100000 bytes"),
            )
            .no_servers(EACH, BEFORE),
        Row::of(Failure::RequestBufferFailed)
            .case(
                Case::new("a folder that is gone", |play| {
                    std::fs::remove_dir_all(play.scene.folder().join("kept")).expect("it can be removed");
                    posts(play, "content-length: 5000\n", 5_000)
                })
                .route(BUFFERED)
                .tables("[request_buffering]\npath = \"{dir}/kept\"\n")
                .files(&[("kept/x", "")])
                .clients(EACH)
                .detail("/"),
            )
            .no_servers(EACH, BEFORE),
        Row::of(Failure::BadText)
            .case(
                Case::new("a body that is no base64", |play| {
                    let mut caller = play.caller();
                    let lines = "content-type: application/grpc-web-text\ncontent-length: 5\n";
                    caller.begins("POST", "/", lines);
                    caller.sends(b"AAAA!");
                    caller.ends();
                    thread::scope(|scope| {
                        let seen = scope.spawn(|| caller.gets());
                        let mut servers = Vec::new();
                        // The request may be rejected before there is a connection to the server.
                        while !seen.is_finished() {
                            servers.extend(ports::try_accept(&play.scene.tcp).map(|stream| H2End::server(stream, &[])));
                            thread::yield_now();
                        }
                        seen.join().expect("no panic")
                    })
                })
                .route(GRPC_WEB)
                .upstream("protocol = \"h2\"")
                .clients(EACH)
                .seen(200, 200, ""),
            )
            .no_servers(EACH, SERVERS_SEND_RESPONSES),
        Row::of(Failure::BadFault)
            .case(
                Case::new("a fault that is none", |play| play.asks("GET", "/", "x-fault: no such fault\n"))
                    .tables("[faults]\nheader = \"X-Fault\"\nheader_clients = [\"127.0.0.1\"]\n")
                    .clients(EACH),
            )
            .no_servers(EACH, BEFORE),
        Row::of(Failure::AmbiguousPath)
            .case(
                Case::new("dot segments", |play| play.asks("GET", "/x/../api", ""))
                    .tables("[[route]]\npath = \"/api\"\nrespond = { status = 200 }\n")
                    .clients(EACH)
                    .detail("the path contains dot segments"),
            )
            .no_servers(EACH, BEFORE),
        Row::of(Failure::MethodRefused)
            .case(Case::new("TRACE", |play| play.asks("TRACE", "/", "")).clients(EACH))
            .no_servers(EACH, BEFORE),
        Row::of(Failure::BodyTooLarge)
            .case(
                Case::new("a length beyond the limit", |play| posts(play, "content-length: 6\n", 6))
                    .front("limits = { body_bytes = 5 }")
                    .clients(EACH)
                    .detail("Content-Length 6 is more than limits.body_bytes, 5 bytes"),
            )
            .case(
                Case::new("a body that becomes too long", |play| {
                    let mut caller = play.caller();
                    caller.begins("POST", "/", "");
                    caller.sends(b"abc");
                    let mut server = play.scene.accept1();
                    server.head();
                    caller.sends(b"def");
                    let seen = caller.gets();
                    server.rest();
                    seen
                })
                .front("limits = { body_bytes = 5 }")
                .clients(EACH)
                .detail("the body is more than limits.body_bytes, 5 bytes"),
            )
            .no_servers(EACH, SERVERS_SEND_RESPONSES),
        Row::of(Failure::TargetTooLong)
            .case(
                Case::new("a target beyond the limit", long_line)
                    .front("limits = { target_bytes = 100 }")
                    .clients(EACH)
                    .detail("the target is longer than limits.target_bytes, 100 bytes"),
            )
            .no_servers(EACH, SERVERS_SEND_RESPONSES),
        Row::of(Failure::HeadTooLarge)
            .case(
                Case::new("a long field", |play| play.asks("GET", "/", &format!("x-long: {}\n", "x".repeat(8_000))))
                    .front("limits = { header_bytes = \"4KB\" }")
                    .clients(ONE)
                    .detail("the head is larger than limits.header_bytes, 4000 bytes"),
            )
            .case(
                // Only the status: the head was not read to its end.
                Case::new("a long field", |play| play.asks("GET", "/", &format!("x-long: {}\n", "x".repeat(8_000))))
                    .front("limits = { header_bytes = \"4KB\" }")
                    .clients(STREAMS)
                    .seen(431, 431, "")
                    .details(["", "with the field 'x-long' the head is larger than limits.header_bytes", "a field section of"]),
            )
            .case(
                Case::new("many fields", |play| play.asks("GET", "/", &"a: b\n".repeat(300)))
                    .clients(EACH)
                    .detail("there are more header fields than limits.header_count"),
            )
            .no_servers(EACH, SERVERS_SEND_RESPONSES),
        Row::of(Failure::UpstreamHeadLimit)
            .case(
                Case::new("a field beyond the server's limit", |play| {
                    let mut caller = play.caller();
                    caller.asks("GET", "/", &format!("x-long: {}\n", "x".repeat(3_000)));
                    let mut served = play.scene.quic.accept_silently();
                    // SETTINGS_MAX_FIELD_SECTION_SIZE: 2000.
                    served.control(&[0x04, 0x03, 0x06, 0x47, 0xd0]);
                    caller.gets()
                })
                .servers(THREE)
                .detail("the head of 3"),
            )
            .no_clients(EACH, "servers::a_request_longer_than_its_server_accepts_gets_431 has each client, with a server of HTTP/3")
            .no_servers(ONE, "HTTP/1.1 announces no limit")
            .no_servers(TWO, "SETTINGS_MAX_HEADER_LIST_SIZE is advisory (RFC 9113 §6.5.2)"),
        Row::of(Failure::ClientHeadLimit)
            .case(
                Case::new("a response field beyond the client's limit", |play| {
                    let address = play.scene.address(1);
                    let client = H3TestClient::try_connect(address, &[b"h3"], quinn::TransportConfig::default());
                    let mut client = client.unwrap_or_else(|error| panic!("no connection: {error}"));
                    // SETTINGS_MAX_FIELD_SECTION_SIZE: 2000.
                    client.control(&frame(0x04, &[0x06, 0x47, 0xd0]));
                    let mut caller = Caller::over(Wire::Three(client.open(), client));
                    caller.asks("GET", "/", "");
                    let mut server = play.asked();
                    server.sends_head(&format!("x-long: {}\ncontent-length: 0\n", "x".repeat(3_000)));
                    caller.gets()
                })
                .clients(THREE)
                .detail("the response head is larger than the client's SETTINGS_MAX_FIELD_SECTION_SIZE"),
            )
            .no_clients(ONE, "HTTP/1.1 announces no limit")
            .no_clients(TWO, "SETTINGS_MAX_HEADER_LIST_SIZE is advisory (RFC 9113 §6.5.2)")
            .no_servers(EACH, "the limit is one of clients"),
        Row::of(Failure::MethodTooLong)
            .case(
                Case::new("a method of 65 bytes", |play| play.asks(&"M".repeat(65), "/", ""))
                    .clients(ONE)
                    .without_version()
                    .detail("the method 'MMM"),
            )
            .case(
                Case::new("a method of 65 bytes", |play| play.asks(&"M".repeat(65), "/", ""))
                    .clients(STREAMS)
                    .detail("the method 'MMM"),
            )
            .no_servers(EACH, SERVERS_SEND_RESPONSES),
        Row::of(Failure::ProtocolRefused)
            .case(
                Case::new("an upgrade to h2c", |play| {
                    let mut caller = play.caller();
                    caller.upgrades("h2c");
                    caller.gets()
                })
                .clients(STREAMS),
            )
            .no_clients(ONE, "an Upgrade to h2c is an offer, which is not passed on (RFC 9110 §7.8)")
            .no_servers(EACH, BEFORE),
        Row::of(Failure::VersionRefused)
            .case(
                Case::new("HTTP/2.0 in a request line", |play| {
                    let mut client = play.scene.client1();
                    client.sends("GET / HTTP/2.0\r\nHost: test\r\n\r\n");
                    Seen::of(client)
                })
                .clients(ONE)
                .without_version()
                .detail("the version 'HTTP/2.0'"),
            )
            .no_clients(STREAMS, "the version is agreed on with the connection")
            .no_servers(EACH, "a response of another version is no valid HTTP: upstream-malformed"),
    ]
}

/// Sends a POST with a body of this many bytes, and receives the response.
fn posts(play: &Play<'_>, lines: &str, count: usize) -> Seen {
    let mut caller = play.caller();
    caller.begins("POST", "/", lines);
    caller.sends(&vec![b'x'; count]);
    caller.gets()
}
