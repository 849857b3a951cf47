//! Conversations over HTTP/2: every kind of endpoint once, and the features that only HTTP/2 has.

use std::future::poll_fn;
use std::net::SocketAddr;

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{Reason, SendStream};
use http::{HeaderMap, Method, Request, Response};
use tokio::net::TcpStream;

/// A complete response.
#[derive(Debug)]
struct Answer {
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
    trailers: Option<HeaderMap>,
}

async fn connect(address: SocketAddr) -> SendRequest<Bytes> {
    let stream = TcpStream::connect(address).await.expect("it listens");
    let (client, connection) = h2::client::handshake(stream).await.expect("it speaks HTTP/2");
    tokio::spawn(connection);
    client.ready().await.expect("it takes requests")
}

fn request(method: Method, target: &str) -> Request<()> {
    let uri = format!("http://origin.test{target}");
    Request::builder().method(method).uri(uri).body(()).expect("a request")
}

async fn whole(response: ResponseFuture) -> Result<Answer, h2::Error> {
    let (head, mut body) = response.await?.into_parts();
    let mut bytes = Vec::new();
    while let Some(piece) = body.data().await {
        let piece = piece?;
        bytes.extend_from_slice(&piece);
        body.flow_control().release_capacity(piece.len())?;
    }
    let trailers = body.trailers().await?;
    Ok(Answer { status: head.status.as_u16(), headers: head.headers, body: bytes, trailers })
}

async fn get(client: &mut SendRequest<Bytes>, target: &str) -> Result<Answer, h2::Error> {
    let (response, _) = client.send_request(request(Method::GET, target), true)?;
    whole(response).await
}

fn talk<F: Future<Output = ()>>(conversation: impl FnOnce(SocketAddr) -> F) -> origin::Stats {
    let running = origin::start(origin::OriginOptions::default()).expect("a port on loopback is free");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(conversation(running.addresses()[0]));
    running.stats()
}

fn pattern(length: u64) -> Vec<u8> {
    (0..length).map(origin::body_byte).collect()
}

#[test]
fn pages_are_whole_with_their_fields_and_counted() {
    let stats = talk(|address| async move {
        let mut client = connect(address).await;
        for (target, bytes) in [("/tiny", 128), ("/large", 165_854), ("/blank/3000000", 3_000_000)] {
            let answer = get(&mut client, target).await.expect("an answer");
            assert_eq!((answer.status, answer.body == pattern(bytes)), (200, true), "{target}");
            assert_eq!(answer.headers["content-length"], bytes.to_string());
            assert!(answer.headers.contains_key("date") && answer.headers.contains_key("etag"));
            assert!(!answer.headers.contains_key("connection"));
        }
        let (response, _) = client.send_request(request(Method::HEAD, "/large"), true).expect("open");
        let answer = whole(response).await.expect("an answer");
        assert_eq!(
            (answer.body.len(), &answer.headers["content-length"]),
            (0, &"165854".parse().expect("a value"))
        );
        let mut ranged = request(Method::GET, "/tiny");
        ranged.headers_mut().insert("range", "bytes=0-9".parse().expect("a value"));
        let (response, _) = client.send_request(ranged, true).expect("open");
        let answer = whole(response).await.expect("an answer");
        assert_eq!((answer.status, answer.body), (206, pattern(10)));
        for (target, status) in [("/status/204", 204), ("/status/426", 426), ("/nothing", 404), ("/raw", 501)]
        {
            let answer = get(&mut client, target).await.expect("an answer");
            assert_eq!((answer.status, answer.headers.contains_key("upgrade")), (status, false), "{target}");
        }
    });
    assert_eq!((stats.connections, stats.requests, stats.paths["/large"]), (1, 9, 2));
}

#[test]
fn echo_shows_the_pseudo_header_fields_and_the_trailers() {
    talk(|address| async move {
        let mut client = connect(address).await;
        let mut asked = request(Method::POST, "/echo?json");
        asked.headers_mut().insert("x-a", "b".parse().expect("a value"));
        let (response, mut stream) = client.send_request(asked, false).expect("open");
        stream.send_data(Bytes::from_static(b"hi"), false).expect("open");
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", "1".parse().expect("a value"));
        stream.send_trailers(trailers).expect("open");
        let answer = whole(response).await.expect("an answer");
        let told: serde_json::Value = serde_json::from_slice(&answer.body).expect("JSON");
        assert_eq!((&told["version"], &told["body"]), (&"HTTP/2".into(), &"hi".into()));
        assert_eq!(told["headers"][0], serde_json::json!([":method", "POST"]));
        assert!(
            told["headers"]
                .as_array()
                .is_some_and(|fields| fields.contains(&serde_json::json!(["x-a", "b"])))
        );
        assert_eq!(told["trailers"], serde_json::json!([["x-sum", "1"]]));
        let text = get(&mut client, "/echo").await.expect("an answer").body;
        let text = String::from_utf8(text).expect("text");
        assert!(
            text.starts_with(":method: GET\r\n:scheme: http\r\n:authority: origin.test\r\n:path: /echo\r\n"),
            "{text}"
        );
    });
}

#[test]
fn bodies_go_both_ways_as_fast_as_they_are_taken_and_trailers_follow() {
    talk(|address| async move {
        let mut client = connect(address).await;
        let (response, stream) =
            client.send_request(request(Method::POST, "/echo-body"), false).expect("open");
        let sent = pattern(5_000_000);
        let sending = send(stream, Bytes::from(sent.clone()));
        let (answer, ()) = tokio::join!(whole(response), sending);
        assert!(answer.expect("an answer").body == sent);
        let answer = get(&mut client, "/chunked/100?size=30&trailers").await.expect("an answer");
        assert_eq!((answer.body, answer.headers.contains_key("content-length")), (pattern(100), false));
        assert_eq!(answer.trailers.expect("trailers")["x-body-chunks"], "4");
        let answer = get(&mut client, "/drip?bytes=5&over=20ms").await.expect("an answer");
        assert_eq!(answer.body, pattern(5));
    });
}

/// Sends a whole body, as fast as flow control allows.
async fn send(mut stream: SendStream<Bytes>, mut rest: Bytes) {
    while !rest.is_empty() {
        stream.reserve_capacity(rest.len());
        let capacity = poll_fn(|context| stream.poll_capacity(context)).await.expect("open").expect("open");
        let piece = rest.split_to(capacity.min(rest.len()));
        stream.send_data(piece, rest.is_empty()).expect("open");
    }
}

#[test]
fn interim_and_early_responses_come_before_the_body() {
    talk(|address| async move {
        let mut client = connect(address).await;
        let (mut response, _) =
            client.send_request(request(Method::GET, "/early-hints"), true).expect("open");
        let hint: Option<Response<()>> =
            poll_fn(|context| response.poll_informational(context)).await.transpose().expect("no error");
        assert_eq!(hint.map(|hint| hint.status().as_u16()), Some(103));
        assert_eq!(whole(response).await.expect("an answer").status, 200);
        // The request body does not end, but the response does.
        let (response, _stream) = client.send_request(request(Method::POST, "/early"), false).expect("open");
        assert_eq!(whole(response).await.expect("an answer").status, 200);
        let mut expecting = request(Method::POST, "/echo-body");
        expecting.headers_mut().insert("expect", "100-continue".parse().expect("a value"));
        let (mut response, mut stream) = client.send_request(expecting, false).expect("open");
        let word: Option<Response<()>> =
            poll_fn(|context| response.poll_informational(context)).await.transpose().expect("no error");
        assert_eq!(word.map(|word| word.status().as_u16()), Some(100));
        stream.send_data(Bytes::from_static(b"now"), true).expect("open");
        assert_eq!(whole(response).await.expect("an answer").body, b"now");
    });
}

#[test]
fn faults_are_the_streams_own() {
    talk(|address| async move {
        let mut client = connect(address).await;
        for (target, reason) in [
            ("/reset", Reason::INTERNAL_ERROR),
            ("/refuse", Reason::REFUSED_STREAM),
            ("/reset?after=1000", Reason::INTERNAL_ERROR),
        ] {
            let error = get(&mut client, target).await.expect_err(target);
            assert_eq!((error.is_remote(), error.reason()), (true, Some(reason)), "{target}");
        }
        // The body is shorter than its length: the client notices that.
        let error = get(&mut client, "/truncate?length=500&sent=100").await.expect_err("it is cut");
        assert!(!error.is_remote(), "{error}");
        assert_eq!(get(&mut client, "/tiny").await.expect("the connection lives").body.len(), 128);
    });
}

#[test]
fn goaway_ends_a_connection_after_its_answer_or_at_once() {
    talk(|address| async move {
        let mut client = connect(address).await;
        let answer = get(&mut client, "/goaway").await.expect("an answer");
        assert_eq!(answer.status, 200);
        while poll_fn(|context| client.poll_ready(context)).await.is_ok() {
            tokio::task::yield_now().await;
        }
        let mut client = connect(address).await;
        get(&mut client, "/goaway?abrupt").await.expect_err("nothing is answered");
    });
}

#[test]
fn rfc8441_5_a_websocket_over_a_stream_echoes() {
    talk(|address| async move {
        let mut client = connect(address).await;
        while !client.is_extended_connect_protocol_enabled() {
            tokio::task::yield_now().await;
        }
        let mut asked = request(Method::CONNECT, "/websocket");
        asked.extensions_mut().insert(h2::ext::Protocol::from_static("websocket"));
        asked.headers_mut().insert("sec-websocket-version", "13".parse().expect("a value"));
        let (response, mut stream) = client.send_request(asked, false).expect("open");
        // A text of one byte and a close, each masked with zeros.
        let frames: &[u8] = b"\x81\x81\0\0\0\0a\x88\x80\0\0\0\0";
        stream.send_data(Bytes::from_static(frames), false).expect("open");
        let answer = whole(response).await.expect("an answer");
        assert_eq!((answer.status, answer.body), (200, b"\x81\x01a\x88\0".to_vec()));
        let (response, _) = client.send_request(request(Method::GET, "/websocket"), true).expect("open");
        assert_eq!(whole(response).await.expect("an answer").status, 426);
    });
}
