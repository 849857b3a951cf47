//! Servers that fail, and connections to them that cannot be made.

use std::io::{Read, Write};
use std::sync::Arc;

use proxy::failure::Failure;
use rustls::version::TLS13;
use testkit::http2::frame::{ENHANCE_YOUR_CALM, go_away};
use testkit::http3::H3TestServer;
use testkit::ports::{self, loopback};
use testkit::tls::{TestAuthority, TlsEnd, tunnel};

use super::policies::CA;
use crate::causes::asked::Asked;
use crate::causes::caller::Seen;
use crate::causes::cells::{Case, EACH, ONE, OVER_TCP, Play, Row, STREAMS, THREE, TWO};
use crate::causes::scene::Spoken;

/// Over TLS without verification of certificates.
const SECURED: &str = "servers = [\"{secured}\"]\ntls = { verify = false }\n{protocol}";
const ONLY_RETRIED: &str = "such a response is passed on unless it is retried; then the word is in `retried`";
/// RFC 8446 §6: a fatal handshake_failure.
const ALERT: &[u8] = &[21, 3, 3, 0, 2, 2, 40];
const PLAIN: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";

pub(crate) fn rows() -> Vec<Row> {
    connections().into_iter().chain(responses()).collect()
}

fn connections() -> Vec<Row> {
    let plain: fn(&Play<'_>) -> Seen = |play| play.asks("GET", "/", "");
    vec![
        over_tcp_and_quic(
            Failure::UpstreamRefused,
            Case::new("nobody listens", plain)
                .upstream("servers = [\"{nobody}\"]\n{options}")
                .detail("Connection refused"),
            "its UDP port does not respond",
        ),
        Row::of(Failure::UpstreamHandshake)
            .case(
                Case::new("a port without TLS", |play| play.asks_at(PLAIN))
                    .upstream(SECURED)
                    .clients(EACH)
                    .servers(OVER_TCP)
                    .detail("no TLS: it does not speak TLS on this port"),
            )
            .no_servers(THREE, "what is no packet of the connection is dropped (RFC 9000 §5.2)"),
        over_tcp_and_quic(
            Failure::UpstreamCertificate,
            Case::new("a certificate of another authority", |play| {
                let mut caller = play.caller();
                caller.asks("GET", "/", "");
                if play.server == Spoken::Http3 {
                    assert!(play.scene.quic.try_accept().is_err());
                } else {
                    let stream = ports::accept(&play.scene.tcp);
                    let _server = tunnel::server(&TestAuthority::new(), play.server == Spoken::Http2, stream);
                    return caller.gets();
                }
                caller.gets()
            })
            .upstream("servers = [\"{secured}\"]\ntls = { ca = \"{dir}/ca.pem\", name = \"a.example\" }\n{protocol}")
            .files(&[CA])
            .detail("no TLS: no trusted CA has signed its certificate"),
            "no trusted CA has signed its certificate",
        ),
        Row::of(Failure::UpstreamAlert)
            .case(
                Case::new("a refusal", |play| play.asks_at(ALERT))
                    .upstream(SECURED)
                    .clients(EACH)
                    .servers(OVER_TCP)
                    .detail("no TLS: it refuses what we offer"),
            )
            .case(
                Case::new("a certificate that is asked for", |play| {
                    let mut caller = play.caller();
                    caller.asks("GET", "/", "");
                    assert!(play.scene.quic.try_accept().is_err());
                    caller.gets()
                })
                .quic(|| {
                    let authority = TestAuthority::new();
                    H3TestServer::from_tls(authority.server_asking(&authority.issue(&["test"])), loopback(), |_| ())
                })
                .servers(THREE)
                .detail("it wants a client certificate"),
            ),
        Row::of(Failure::UpstreamProtocol)
            .case(
                Case::new("HTTP/1.1 in the place of HTTP/2", |play| play.asks_at(PLAIN))
                    .servers(TWO)
                    .detail("its first bytes are not HTTP/2"),
            )
            .case(
                Case::new("no SETTINGS", |play| play.asks_at(b""))
                    .servers(TWO)
                    .detail("it closed the connection before its HTTP/2 SETTINGS"),
            )
            .case(
                Case::new("a server of HTTP/2 alone", |play| {
                    let mut caller = play.caller();
                    caller.asks("GET", "/", "");
                    let authority = TestAuthority::new();
                    let mut tls = authority.server(&authority.issue(&["test"]), &TLS13);
                    tls.alpn_protocols = vec![b"h2".to_vec()];
                    let mut server = TlsEnd::server(ports::accept(&play.scene.tcp), &Arc::new(tls));
                    assert!(server.shakes_hands().is_err());
                    caller.gets()
                })
                .upstream(SECURED)
                .clients(EACH)
                .servers(ONE)
                .detail("no TLS: it does not speak the configured protocol"),
            )
            .case(
                Case::new("another protocol over QUIC", |play| {
                    let mut caller = play.caller();
                    caller.asks("GET", "/", "");
                    assert!(play.scene.quic.try_accept().is_err());
                    caller.gets()
                })
                .quic(|| {
                    let authority = TestAuthority::new();
                    let mut tls = authority.server(&authority.issue(&["test"]), &TLS13);
                    tls.alpn_protocols = vec![b"hq-interop".to_vec()];
                    H3TestServer::from_tls(tls, loopback(), |_| ())
                })
                .servers(THREE)
                .detail("it does not speak the configured protocol"),
            ),
        Row::of(Failure::UpstreamClosed).case(
            Case::new("an end before the response", |play| play.asks_of(Asked::leaves))
                .clients(EACH)
                .servers(EACH)
                .detail("it closed the connection"),
        ),
        Row::of(Failure::UpstreamReset)
            .case(
                Case::new("a reset before the response", |play| play.asks_of(Asked::resets))
                    .clients(ONE)
                    .servers(EACH)
                    .details([
                        "the connection broke: Connection reset by peer",
                        "it reset the stream with INTERNAL_ERROR",
                        "it reset the stream with H3_INTERNAL_ERROR",
                    ]),
            )
            .case(
                Case::new("a reset before the response", |play| play.asks_of(Asked::resets))
                    .clients(STREAMS)
                    .detail("the connection broke: Connection reset by peer"),
            )
            .case(
                Case::new("an end with an error code", |play| {
                    play.asks_of(|server| match std::mem::replace(server, Asked::Gone) {
                        Asked::Two(mut end) => end.sends(go_away(1, ENHANCE_YOUR_CALM)),
                        Asked::Three(_, served) => served.closes(0x107),
                        Asked::One(_) | Asked::Gone => {}
                    })
                })
                .servers(STREAMS)
                .details([
                    "",
                    "it reset the stream with ENHANCE_YOUR_CALM",
                    "it reset the stream with H3_EXCESSIVE_LOAD",
                ]),
            ),
    ]
}

fn responses() -> Vec<Row> {
    let plain: fn(&Play<'_>) -> Seen = |play| play.asks("GET", "/", "");
    let any = |failure: Failure, case: Case| Row::of(failure).case(case.clients(EACH).servers(EACH));
    vec![
        Row::of(Failure::UpstreamMalformed)
            .case(
                Case::new("a space in a field name", |play| {
                    play.asks_of(|server| {
                        server.sends_head("x y: 1\n");
                        server.ends();
                    })
                })
                .clients(EACH)
                .servers(ONE)
                .detail("the field 'x y' has a space in its name"),
            )
            .case(
                Case::new("a space in a field name", |play| {
                    play.asks_of(|server| {
                        server.sends_head("x y: 1\n");
                        server.ends();
                    })
                })
                .servers(STREAMS)
                .detail("'x y' is no field name in lower case"),
            ),
        Row::of(Failure::UpstreamHeadTooLarge)
            .case(
                Case::new("a long field", answers_at_length)
                    .front("limits = { header_bytes = \"4KB\" }")
                    .clients(EACH)
                    .servers(ONE)
                    .detail("the head is larger than limits.header_bytes, 4000 bytes"),
            )
            .case(
                Case::new("a long field", answers_at_length)
                    .front("limits = { header_bytes = \"4KB\" }")
                    .servers(STREAMS)
                    .details(["", "with the field 'x-long' the head is larger", "a field section of"]),
            ),
        any(
            Failure::UpstreamInterims,
            Case::new("interim responses without end", |play| {
                play.asks_of(|server| (0..40).for_each(|_| server.sends_status(103, "")))
            })
            .detail("more than 32 interim responses"),
        ),
        Row::of(Failure::UpstreamFraming)
            .case(
                Case::new("two framings", |play| {
                    play.asks_of(|server| {
                        server.sends_head("content-length: 2\ntransfer-encoding: chunked\n");
                    })
                })
                .clients(EACH)
                .servers(ONE)
                .detail("there are both Content-Length '2' and Transfer-Encoding 'chunked'"),
            )
            .no_servers(
                STREAMS,
                "a field of the connection, or a wrong Content-Length, makes the message malformed",
            ),
        Row::of(Failure::UpstreamSwitch)
            .case(
                Case::new("a 101 without an offer", |play| {
                    play.asks_of(|server| server.sends_status(101, "upgrade: x\n"))
                })
                .clients(EACH)
                .servers(ONE)
                .detail("an invalid 101: not requested"),
            )
            .no_servers(STREAMS, "a 101 makes the message malformed (RFC 9113 §8.6, RFC 9114 §4.5)"),
        any(
            Failure::UpstreamTruncated,
            Case::new("a body that breaks off", |play| {
                let mut caller = play.caller();
                caller.asks("GET", "/", "");
                let mut server = play.asked();
                server.sends_head("content-length: 50000\n");
                server.sends_data(&[b'x'; 9_000]);
                caller.gets_body(9_000);
                server.resets();
                caller.gets()
            })
            .cut(200)
            .detail("9000 of 50000 bytes (Content-Length) arrived"),
        )
        .case(
            Case::new("a body longer than its Content-Length", |play| {
                play.asks_of(|server| {
                    server.sends_head("content-length: 2\n");
                    server.sends_data(b"long");
                })
            })
            .servers(STREAMS)
            .detail("0 of 2 bytes (Content-Length) arrived; the body is longer than content-length"),
        )
        .case(
            Case::new("a body shorter than its Content-Length", |play| {
                play.asks_of(|server| {
                    server.sends_head("content-length: 5\n");
                    server.sends_data(b"1234");
                    server.ends();
                })
            })
            .servers(STREAMS)
            .detail("4 of 5 bytes (Content-Length) arrived; the body is 1 bytes shorter"),
        ),
        any(
            Failure::UpstreamUndecodable,
            Case::new("another coding than the head says", |play| {
                play.asks_of(|server| {
                    server.sends_head(
                        "content-type: text/plain\ncontent-encoding: gzip\ncontent-length: 9000\n",
                    );
                    server.sends_data(&[b'x'; 9_000]);
                    server.ends();
                })
            })
            .detail("the body is not valid gzip"),
        ),
        Row::of(Failure::UpstreamStatus).no_clients(EACH, ONLY_RETRIED).no_servers(EACH, ONLY_RETRIED),
        any(
            Failure::UpstreamUnknown,
            Case::new("a name without an address", plain)
                .upstream("servers = [\"{scheme}://unknown.invalid\"]\n{options}")
                .detail("the name in unknown.invalid"),
        ),
        any(
            Failure::NoServer,
            Case::new("each server is down", plain)
                .upstream("servers = [{ url = \"{server}\", down = true }]\nnone_up = \"refuse\"\n{options}"),
        ),
        any(
            Failure::NoBackend,
            Case::new("each server is down for good", plain)
                .upstream("servers = [{ url = \"{server}\", down = true }]\nnone_up = \"fail\"\n{options}"),
        ),
        Row::of(Failure::NotUpgraded)
            .case(
                Case::new("a page in the place of a tunnel", |play| {
                    let mut caller = play.caller();
                    caller.upgrades("echo");
                    let mut server = play.scene.accept1();
                    server.head();
                    server.sends("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
                    caller.gets()
                })
                .clients(STREAMS),
            )
            .no_clients(ONE, "Upgrade is an offer, which a server may ignore (RFC 9110 §7.8)")
            .no_servers(EACH, "the failure is one of extended CONNECT, which only clients of streams send"),
        Row::of(Failure::UpstreamConnectTimeout)
            .case(
                Case::new("a silent port", plain)
                    .front("timeouts = { upstream_connect = \"1s\" }")
                    .upstream(SECURED)
                    .clients(EACH)
                    .servers(ONE)
                    .detail("the TLS handshake did not complete within timeouts.upstream_connect, 1s"),
            )
            .case(
                Case::new("no SETTINGS", |play| {
                    let mut caller = play.caller();
                    caller.asks("GET", "/", "");
                    let _served = (play.server == Spoken::Http3).then(|| play.scene.quic.accept_silently());
                    caller.gets()
                })
                .front("timeouts = { upstream_connect = \"1s\" }")
                .servers(STREAMS)
                .details([
                    "",
                    "it sent no HTTP/2 SETTINGS within",
                    "it sent no HTTP/3 SETTINGS within",
                ]),
            ),
        any(
            Failure::UpstreamTimeout,
            Case::new("no response", |play| play.asks_of(|_| ()))
                .front("timeouts = { upstream_first_byte = \"1s\" }")
                .detail("the server did not begin to answer within timeouts.upstream_first_byte, 1s"),
        ),
        any(
            Failure::UpstreamStalled,
            Case::new("half a response", |play| {
                play.asks_of(|server| {
                    server.sends_head("content-length: 50000\n");
                    server.sends_data(&[b'x'; 9_000]);
                })
            })
            .front("timeouts = { upstream_body = \"1s\" }")
            .cut(200)
            .detail("the server sent no more data within timeouts.upstream_body, 1s"),
        ),
        any(
            Failure::RequestTimeout,
            Case::new("half a response, and no more", |play| {
                play.asks_of(|server| {
                    server.sends_head("content-length: 50000\n");
                    server.sends_data(&[b'x'; 9_000]);
                })
            })
            .front("timeouts = { request = \"1s\" }")
            .cut(200)
            .detail("the response was not complete within timeouts.request, 1s"),
        ),
    ]
}

/// A failure in each cell, with another detail for an HTTP/3 server.
fn over_tcp_and_quic(failure: Failure, case: Case, over_quic: &'static str) -> Row {
    Row::of(failure).case(case.clients(EACH).servers(OVER_TCP)).case(case.servers(THREE).detail(over_quic))
}

/// Receives a response with a field of 8,000 bytes.
fn answers_at_length(play: &Play<'_>) -> Seen {
    play.asks_of(|server| {
        server.sends_head(&format!("x-long: {}\n", "x".repeat(8_000)));
        server.ends();
    })
}

impl Play<'_> {
    /// Sends a request to a TCP server that answers any bytes with these, and closes.
    fn asks_at(&self, said: &[u8]) -> Seen {
        let mut caller = self.caller();
        caller.asks("GET", "/", "");
        let mut server = ports::accept(&self.scene.tcp);
        let _ = server.read(&mut [0; 4096]);
        server.write_all(said).expect("it is taken");
        drop(server);
        caller.gets()
    }
}
