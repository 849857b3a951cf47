//! Requests that a policy rejects.

use std::sync::Arc;

use proxy::failure::Failure;
use testkit::http1::Http1Peer;
use testkit::http2::H2End;
use testkit::http2::frame::last_headers;
use testkit::tls;

use crate::causes::asked::Asked;
use crate::causes::caller::{Caller, Seen, Wire};
use crate::causes::cells::{Case, EACH, ONE, OVER_TCP, Play, Row, STREAMS, THREE};
use crate::causes::scene::Spoken;

const BEFORE: &str = "the request is refused before a server is asked";
/// The user `me`, with an expensive hash.
const USERS: (&str, &str) = ("users", "me:$2b$11$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW\n");
const KEY: &str = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAQF7E5cditspqwqYjcr3CkU5GyGJBuC4G/kQKRBhlzZk=\n\
                   -----END PUBLIC KEY-----\n";
/// A token signed with that key: `{"exp":4900000000,"sub":"ann","role":"user"}`.
const TOKEN: &str = "authorization: Bearer eyJhbGciOiJFZERTQSIsInR5cCI6IkpXVCJ9.\
                     eyJleHAiOjQ5MDAwMDAwMDAsInN1YiI6ImFubiIsInJvbGUiOiJ1c2VyIn0.\
                     EUx2Jgh9CKM1AaqhAw5B6AAoXtqDFB4CBTqu1x6d_5CqXRB-Cxwzd0iDWodrhridUgSy0XHy11KXiwXNDtR2Ag\n";
const TOKENS: &str = "upstream = \"app\"\njwt = { keys = \"{dir}/key.pem\", require = { role = \"admin\" } }";
const BOTS: &str = "upstream = \"app\"\nweb_bot_auth = { agents = \"http://127.0.0.1:1\" }";
/// The authentication server is the case's server.
const ASKS: &str = "respond = { status = 200 }\nforward_auth = { upstream = \"app\", path = \"/\" }";
/// A certificate authority for client certificates.
pub(super) const CA: (&str, &str) = (
    "ca.pem",
    "-----BEGIN CERTIFICATE-----\n\
                  MIIBOjCB7aADAgECAhQugOswk5B/V2I6BvGNwchhNOo0BTAFBgMrZXAwEjEQMA4G\n\
                  A1UEAwwHY2xpZW50czAgFw0yNjExMjkwOTEwNTFaGA8yMTI2MTEwNTA5MTA1MVow\n\
                  EjEQMA4GA1UEAwwHY2xpZW50czAqMAUGAytlcAMhABtdTSilmMoZ5Ppe5dh6//WW\n\
                  0WTGtPrG7TdUoK9k2mu5o1MwUTAdBgNVHQ4EFgQUcufIRJj4XEdt1/Y+03MJsbXS\n\
                  sfIwHwYDVR0jBBgwFoAUcufIRJj4XEdt1/Y+03MJsbXSsfIwDwYDVR0TAQH/BAUw\n\
                  AwEB/zAFBgMrZXADQQCI9xdl3pLQ0AygSP+VwEHFu2dFEI5k4aSP7McgQYk991l4\n\
                  RnFkFy2DxdeICqylAKTYqe2YvxdeOD9Q/++5x9EB\n-----END CERTIFICATE-----\n",
);
/// The third listener: a request for `b.example` needs a certificate.
const BY_NAME: &str = "[[listen]]\naddress = \"127.0.0.1:0\"\n[listen.tls]\nself_signed = true\n\
                       [[listen.tls.client_certificates_by_name]]\nnames = [\"b.example\"]\nmode = \"required\"\n\
                       ca = \"{dir}/ca.pem\"\n";

/// The third listener requires a certificate.
pub(super) const REQUIRED: &str = "[[listen]]\naddress = \"127.0.0.1:0\"\nhttp3 = true\n[listen.tls]\nself_signed = true\n\
                                   client_certificates = { mode = \"required\", ca = \"{dir}/ca.pem\" }\n";

pub(crate) fn rows() -> Vec<Row> {
    let plain: fn(&Play<'_>) -> Seen = |play| play.asks("GET", "/", "");
    let before =
        |failure: Failure, case: Case| Row::of(failure).case(case.clients(EACH)).no_servers(EACH, BEFORE);
    vec![
        before(
            Failure::Unauthorized,
            Case::new("no password", plain)
                .route("upstream = \"app\"\nauth = { users = \"{dir}/users\" }")
                .files(&[USERS]),
        ),
        before(
            Failure::TokenMissing,
            Case::new("no token", plain)
                .route(TOKENS)
                .files(&[("key.pem", KEY)])
                .detail("a token is required"),
        ),
        before(
            Failure::TokenRefused,
            Case::new("a token that is none", |play| play.asks("GET", "/", "authorization: Bearer x\n"))
                .route(TOKENS)
                .files(&[("key.pem", KEY)])
                .detail("the token"),
        ),
        before(
            Failure::TokenInsufficient,
            Case::new("a token without the role", |play| play.asks("GET", "/", TOKEN))
                .route(TOKENS)
                .files(&[("key.pem", KEY)])
                .detail("the token"),
        ),
        before(
            Failure::BotUnsigned,
            Case::new("no signature", plain).route(BOTS).detail("the request has no signature of a bot"),
        ),
        before(
            Failure::BotRefused,
            Case::new("a signature that is none", |play| {
                play.asks("GET", "/", "signature-input: s=();tag=\"web-bot-auth\"\nsignature: s=:AA==:\n")
            })
            .route(BOTS)
            .detail("the signature"),
        ),
        before(
            Failure::Forbidden,
            Case::new("a denied network", plain).route("upstream = \"app\"\ndeny = [\"127.0.0.0/8\"]"),
        ),
        before(
            Failure::Denied,
            Case::new("a condition that denies", plain)
                .route("upstream = \"app\"\ndeny = { when = 'request.path == \"/\"' }"),
        ),
        before(
            Failure::NoRoute,
            Case::new("another path", plain).route("upstream = \"app\"\npath = \"/app\""),
        ),
        Row::of(Failure::Misdirected)
            .case(
                Case::new("a name that needs a certificate", asks_for_another_name)
                    .tables(BY_NAME)
                    .files(&[CA])
                    .clients(OVER_TCP),
            )
            .no_clients(
                THREE,
                "a handshake of QUIC begins before the name is known, so that names have no rules there",
            )
            .no_servers(EACH, BEFORE),
        before(
            Failure::RateLimited,
            Case::new("the second request in an hour", |play| {
                play.asks("GET", "/", "");
                play.asks("GET", "/", "")
            })
            .route("respond = { status = 204 }\nrate_limit = { rate = \"1/h\" }"),
        ),
        before(
            Failure::ConcurrencyLimited,
            Case::new("a second request beside the first", |play| {
                let mut first = play.scene.client1();
                first.sends("GET /first HTTP/1.1\r\nHost: test\r\n\r\n");
                let _server = play.scene.accept1();
                play.asks("GET", "/", "")
            })
            .route("upstream = \"app\"\nconcurrency = { max = 1 }")
            .detail("as many requests are under way as max, 1; there is no queue"),
        ),
        before(
            Failure::Maintenance,
            Case::new("maintenance", plain).route("upstream = \"app\"\nmaintenance = true"),
        ),
        before(
            Failure::NamedUpstreamUnknown,
            Case::new("a value that names no upstream", plain)
                .route(
                    "upstream = \"${name}\"\nvalues = { name = 'request.headers[\"x-name\"] ?? \"nothing\"' }",
                )
                .detail("no upstream is named \"nothing\""),
        ),
        before(
            Failure::StatusInvalid,
            Case::new("a value that is no status", plain)
                .route(
                    "respond = { status = \"${code}\" }\nvalues = { code = 'request.headers[\"x-code\"] ?? \"600\"' }",
                )
                .detail("no status from 200 to 599 is \"600\""),
        ),
        before(
            Failure::VerifierBusy,
            Case::new("a crowd with passwords", |play| {
                const LINE: usize = 256;
                let crowd: Vec<Http1Peer> =
                    (0..LINE).map(|number| asks_with_password(play, number)).collect();
                play.scene.waits("the line is full", |counters| counters.requests_active >= LINE as u64);
                let seen = play.asks("GET", "/mine", &password("me:mine"));
                drop(crowd);
                seen
            })
            .route("upstream = \"app\"\nauth = { users = \"{dir}/users\" }")
            .files(&[USERS])
            .target("/mine"),
        ),
        before(
            Failure::TokenKeysMissing,
            Case::new("no key set", |play| play.asks("GET", "/", TOKEN))
                .route("upstream = \"app\"\njwt = { jwks = \"http://127.0.0.1:1/keys\" }"),
        ),
        Row::of(Failure::AuthUnreachable)
            .case(
                Case::new("nobody listens", plain)
                    .route(ASKS)
                    .upstream("servers = [\"{nobody}\"]\n{options}")
                    .clients(EACH)
                    .servers(OVER_TCP)
                    .detail("Connection refused"),
            )
            .case(
                Case::new("nobody listens", plain)
                    .route(ASKS)
                    .upstream("servers = [\"{nobody}\"]\n{options}")
                    .servers(THREE)
                    .detail("its UDP port does not respond"),
            ),
        Row::of(Failure::AuthFailed)
            .case(
                Case::new("a reset", |play| play.asks_of(Asked::resets))
                    .route(ASKS)
                    .clients(EACH)
                    .servers(ONE)
                    .detail("the connection broke: Connection reset by peer"),
            )
            .case(
                Case::new("a reset", |play| play.asks_of(Asked::resets))
                    .route(ASKS)
                    .servers(STREAMS)
                    .details([
                        "",
                        "it reset the stream with INTERNAL_ERROR",
                        "it reset the stream with H3_INTERNAL_ERROR",
                    ]),
            ),
        Row::of(Failure::AuthTooLarge).case(
            Case::new("a long refusal", |play| {
                let mut caller = play.caller();
                caller.asks("GET", "/", "");
                let mut server = play.asked();
                server.sends_status(403, "content-length: 300000\n");
                // The limit is 256 KiB.
                server.sends_long(270_000);
                caller.gets()
            })
            .route(ASKS)
            .clients(EACH)
            .servers(EACH),
        ),
        Row::of(Failure::AuthUnavailable).case(
            Case::new("no connection is free", |play| {
                let mut first = play.caller();
                first.asks("GET", "/first", "");
                let _server = play.asked();
                play.asks("GET", "/", "")
            })
            .route(ASKS)
            .upstream(
                "servers = [{ url = \"{server}\", max_requests = 1 }]\nqueue = { length = 0 }\n{options}",
            )
            .clients(EACH)
            .servers(EACH),
        ),
        Row::of(Failure::AuthTimeout).case(
            Case::new("silence", |play| play.asks_of(|_| ()))
                .route(
                    "respond = { status = 200 }\n\
                     forward_auth = { upstream = \"app\", path = \"/\", timeout = \"1s\" }",
                )
                .clients(EACH)
                .servers(EACH),
        ),
        before(
            Failure::FaultInjected,
            Case::new("a reset", plain).tables("[[fault]]\nname = \"broken\"\ninject = \"reset\"\n"),
        ),
    ]
}

/// The Authorization line of a user with a password.
fn password(user: &str) -> String {
    use base64::Engine;
    format!("authorization: Basic {}\n", base64::prelude::BASE64_STANDARD.encode(user))
}

/// Returns a client that waits for its password to be verified.
fn asks_with_password(play: &Play<'_>, number: usize) -> Http1Peer {
    let mut client = play.scene.client1();
    let line = password(&format!("me:{number}")).replace('\n', "\r\n");
    client.sends(format!("GET /crowd HTTP/1.1\r\nHost: test\r\n{line}\r\n"));
    client
}

/// Requests another host than the connection's server name.
fn asks_for_another_name(play: &Play<'_>) -> Seen {
    let trusting = |protocol: &[u8]| testkit::http3::trusting(&[protocol]);
    match play.client {
        Spoken::Http1 => {
            let config = Arc::new(trusting(b"http/1.1"));
            let mut client = tls::TlsEnd::client(play.scene.connect(2), &config, "a.example");
            client.shakes_hands().expect("the name needs no certificate");
            client.sends("GET / HTTP/1.1\r\nHost: b.example\r\nConnection: close\r\n\r\n");
            let head = client.head();
            let status = head.get(9..12).and_then(|status| status.parse().ok()).unwrap_or(0);
            let body = String::from_utf8_lossy(&client.rest().0).into_owned();
            Seen { status, head, body, is_whole: true }
        }
        Spoken::Http2 => {
            let stream = tls::tunnel::client_with(trusting(b"h2"), true, play.scene.connect(2));
            let mut client = H2End::client(stream, &[]);
            client.sends(last_headers(1, ":method: GET\n:scheme: https\n:authority: b.example\n:path: /\n"));
            Caller::over(Wire::Two(client)).gets()
        }
        Spoken::Http3 => unreachable!("names have no rules there"),
    }
}
