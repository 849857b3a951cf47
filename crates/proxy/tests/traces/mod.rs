//! Traces: contexts that servers receive, and spans that a collector gets. The spans are decoded by OpenTelemetry's
//! protocol types.

use std::collections::HashMap;
use std::net::TcpStream;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use testkit::http1::Http1Peer;
use testkit::scene::{BOTH, BodylessRequest, Scene, Spoken, get};
use testkit::text::OK;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";
const TAKEN: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n";

/// Numbers of span kinds in OTLP.
const INTERNAL: i32 = 1;
const SERVER: i32 = 2;
const CLIENT: i32 = 3;

/// A proxy with a server, and a collector as the server `{1}`.
fn scene(options: &str) -> Scene {
    scene_with(options, "[[route]]\nupstream = \"app\"\n[upstream.app]\nservers = [\"http://{0}\"]\n", 1)
}

fn scene_with(options: &str, routes: &str, collector: usize) -> Scene {
    Scene::new(&format!("[tracing]\ncollector = \"http://{{{collector}}}\"\n{options}\n{routes}"))
}

fn receive(collector: &mut Http1Peer) -> (String, ExportTraceServiceRequest) {
    let head = collector.head().to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).expect("a length");
    let body = collector.exactly(length.trim().parse().expect("a number"));
    (head, ExportTraceServiceRequest::decode(&body[..]).expect("a message of OTLP"))
}

/// Receives and acknowledges the collector's next message. Returns its spans.
fn spans(scene: &Scene, collector: usize) -> Vec<Span> {
    let mut peer = scene.accept(collector);
    let (_, message) = receive(&mut peer);
    peer.sends(TAKEN);
    spans_of(message)
}

fn spans_of(message: ExportTraceServiceRequest) -> Vec<Span> {
    let scopes = message.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
    scopes.flat_map(|scope| scope.spans).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The attributes of a span, as text.
fn attributes(span: &Span) -> HashMap<&str, String> {
    let text = |value: &Value| match value {
        Value::StringValue(text) => text.clone(),
        Value::IntValue(number) => number.to_string(),
        other => panic!("{other:?}"),
    };
    let value = |pair: &opentelemetry_proto::tonic::common::v1::KeyValue| {
        pair.value.as_ref().and_then(|value| value.value.as_ref()).map(text).expect("a value")
    };
    span.attributes.iter().map(|pair| (pair.key.as_str(), value(pair))).collect()
}

fn only(spans: &[Span], kind: i32) -> &Span {
    let found: Vec<&Span> = spans.iter().filter(|span| span.kind == kind).collect();
    assert_eq!(found.len(), 1, "{spans:#?}");
    found[0]
}

/// Asserts that a child span is within its parent.
#[track_caller]
fn assert_within(part: &Span, whole: &Span) {
    let times = |span: &Span| (span.start_time_unix_nano, span.end_time_unix_nano);
    let ((began, ended), (whole_began, whole_ended)) = (times(part), times(whole));
    assert!(whole_began <= began && began <= ended && ended <= whole_ended, "{part:#?} in {whole:#?}");
}

/// Asserts that a duration in the attributes of an attempt is no longer than the attempt.
#[track_caller]
fn assert_passes(attempt: &Span, name: &str) {
    let microseconds: u64 = attributes(attempt)[name].parse().expect("a number");
    assert!(microseconds * 1000 <= attempt.end_time_unix_nano - attempt.start_time_unix_nano, "{attempt:#?}");
}

/// Returns the values of a field in a head, by name in any case.
fn values<'a>(head: &'a str, name: &str) -> Vec<&'a str> {
    let fields = head.lines().filter_map(|line| line.split_once(": "));
    fields.filter(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).collect()
}

#[test]
fn a_trace_goes_on_with_the_proxy_in_it() {
    for spoken in BOTH {
        let scene = scene("follow = \"all\"\nsample = \"0%\"\nservice = \"edge\"");
        let fields = format!("traceparent: 00-{TRACE}-{PARENT}-01\ntracestate: a=b\nuser-agent: me");
        let asked = BodylessRequest { fields: &fields, ..get("/a?token=s3cret") };
        let (seen, got) = scene.exchange(spoken, &asked, OK);
        assert_eq!(got.status, 200);
        let mut peer = scene.accept(1);
        let (head, message) = receive(&mut peer);
        assert!(head.starts_with("post /v1/traces http/1.1\r\n"), "{head}");
        assert_eq!(values(&head, "content-type"), ["application/x-protobuf"]);
        peer.sends(TAKEN);
        let resource = message.resource_spans[0].resource.clone().expect("a resource");
        let service = resource.attributes.iter().find(|pair| pair.key == "service.name").expect("a service");
        let service = service.value.clone().and_then(|value| value.value);
        assert_eq!(service, Some(Value::StringValue("edge".to_owned())));
        let spans = spans_of(message);
        let (own, attempt) = (only(&spans, SERVER), only(&spans, CLIENT));
        assert_eq!((hex(&own.trace_id), hex(&own.parent_span_id)), (TRACE.to_owned(), PARENT.to_owned()));
        assert_eq!(attempt.parent_span_id, own.span_id);
        assert_within(attempt, own);
        assert_passes(attempt, "vanward.first_byte_us");
        assert_passes(attempt, "vanward.connect_us");
        let sent = format!("00-{TRACE}-{}-01", hex(&attempt.span_id));
        assert_eq!(
            (values(&seen, "traceparent"), values(&seen, "tracestate")),
            (vec![&sent[..]], vec!["a=b"])
        );
        let own = attributes(own);
        for (name, value) in [
            ("http.request.method", "GET"),
            ("http.response.status_code", "200"),
            ("url.path", "/a"),
            ("url.scheme", "http"),
            ("server.address", "test"),
            ("user_agent.original", "me"),
            ("client.address", "127.0.0.1"),
            ("network.protocol.version", if spoken == Spoken::Http2 { "2" } else { "1.1" }),
        ] {
            assert_eq!(own.get(name).map(String::as_str), Some(value), "{name} of {own:?}");
        }
        assert!(!format!("{spans:?}").contains("s3cret"));
        let attempt = attributes(attempt);
        let server = format!("{}:{}", attempt["server.address"], attempt["server.port"]);
        assert_eq!(server, scene.server_address(0));
        assert_eq!(
            (attempt["vanward.upstream"].as_str(), attempt["http.response.status_code"].as_str()),
            ("app", "200")
        );
    }
}

#[test]
fn a_context_that_is_not_valid_begins_a_new_trace_without_its_state() {
    let scene = scene("sample = \"0%\"");
    let valid = format!("00-{TRACE}-{PARENT}-01");
    for fields in [
        String::new(),
        "tracestate: a=b".to_owned(),
        format!("traceparent: {valid}x\ntracestate: a=b"),
        format!("traceparent: {valid}\ntraceparent: {valid}\ntracestate: a=b"),
        format!("b3: {TRACE}-{PARENT}-1"),
    ] {
        let (seen, _) = scene.exchange(Spoken::Http1, &BodylessRequest { fields: &fields, ..get("/") }, OK);
        let contexts = values(&seen, "traceparent");
        assert_eq!(contexts.len(), 1, "{seen}");
        assert!(contexts[0].starts_with("00-") && contexts[0].ends_with("-02"), "{seen}");
        assert!(!contexts[0].contains(TRACE) && values(&seen, "tracestate").is_empty(), "{seen}");
        // Without `b3`, the client's B3 fields are passed on unchanged.
        assert_eq!(values(&seen, "b3").len(), usize::from(fields.starts_with("b3")), "{seen}");
    }
    // The caller is not trusted: its trace continues, but its sampling decision is ignored.
    let fields = format!("traceparent: {valid}");
    let (seen, _) = scene.exchange(Spoken::Http1, &BodylessRequest { fields: &fields, ..get("/") }, OK);
    assert!(values(&seen, "traceparent")[0].starts_with(&format!("00-{TRACE}-")), "{seen}");
    assert!(values(&seen, "traceparent")[0].ends_with("-00"), "{seen}");
}

#[test]
fn b3_is_read_and_written_in_the_form_that_is_asked_for() {
    for (form, expected) in [("single", 0), ("multi", 1)] {
        let scene = scene(&format!("b3 = \"{form}\"\nfollow = \"all\""));
        let fields = format!("x-b3-traceid: {TRACE}\nx-b3-spanid: {PARENT}\nx-b3-sampled: 0\nx-b3-flags: 0");
        let (seen, _) = scene.exchange(Spoken::Http1, &BodylessRequest { fields: &fields, ..get("/") }, OK);
        assert!(values(&seen, "traceparent")[0].starts_with(&format!("00-{TRACE}-")), "{seen}");
        assert_eq!(values(&seen, "b3").len(), 1 - expected, "{seen}");
        assert_eq!(values(&seen, "x-b3-traceid"), vec![TRACE; expected], "{seen}");
        assert_eq!(values(&seen, "x-b3-sampled"), vec!["0"; expected], "{seen}");
        assert_ne!(values(&seen, "x-b3-spanid"), vec![PARENT; expected.max(1)], "{seen}");
        assert!(values(&seen, "x-b3-flags").is_empty(), "{seen}");
    }
}

#[test]
fn each_attempt_is_a_span_and_what_fails_is_recorded_though_it_was_not_chosen() {
    let routes = "[[route]]\nupstream = \"app\"\n[upstream.app]\nservers = [\"http://{0}\"]\nretry = { attempts = 2 }\n";
    let scene = scene_with("sample = \"0%\"", routes, 1);
    let mut client = scene.client(Spoken::Http1).asking(&get("/"));
    let mut contexts = Vec::new();
    for _ in 0..2 {
        let mut server = scene.accept(0);
        contexts.push(values(&server.head(), "traceparent")[0].to_owned());
        drop(server);
    }
    assert_eq!(client.gets().status, 502);
    let spans = spans(&scene, 1);
    let own = only(&spans, SERVER);
    let attempts: Vec<&Span> = spans.iter().filter(|span| span.kind == CLIENT).collect();
    assert_eq!(attempts.len(), 2, "{spans:#?}");
    for (number, (attempt, context)) in attempts.iter().zip(&contexts).enumerate() {
        assert_eq!(*context, format!("00-{}-{}-02", hex(&own.trace_id), hex(&attempt.span_id)));
        assert_eq!(attempt.parent_span_id, own.span_id);
        assert_within(attempt, own);
        let known = attributes(attempt);
        assert_eq!(known["error.type"], "upstream-closed");
        let resent = known.get("http.request.resend_count").map(String::as_str);
        assert_eq!(resent, [None, Some("1")][number]);
        let status = attempt.status.as_ref().expect("a status");
        assert_eq!((status.code, status.message.as_str()), (2, "upstream-closed"));
    }
    assert!(attempts[0].start_time_unix_nano < attempts[1].start_time_unix_nano, "{attempts:#?}");
    let own = attributes(own);
    assert_eq!(
        (own["http.response.status_code"].as_str(), own["error.type"].as_str()),
        ("502", "upstream-closed")
    );
}

#[test]
fn both_servers_of_a_fallback_are_spans_of_the_trace() {
    let routes = "[[route]]\nupstream = \"app\"\non_status = { 404 = { upstream = \"legacy\" } }\n\
                  [upstream.app]\nservers = [\"http://{0}\"]\n[upstream.legacy]\nservers = [\"http://{1}\"]\n";
    let scene = scene_with("sample = \"100%\"", routes, 2);
    let mut client = scene.client(Spoken::Http1).asking(&get("/"));
    let mut contexts = Vec::new();
    for (number, response) in [
        "HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 4\r\n\r\nlost",
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nfound",
    ]
    .iter()
    .enumerate()
    {
        let mut server = scene.accept(number);
        contexts.push(values(&server.head(), "traceparent")[0].to_owned());
        server.sends(response);
    }
    assert_eq!(client.gets().body, "found");
    let spans = spans(&scene, 2);
    let own = only(&spans, SERVER);
    let mut attempts: Vec<&Span> = spans.iter().filter(|span| span.kind == CLIENT).collect();
    attempts.sort_by_key(|attempt| attempt.start_time_unix_nano);
    assert_eq!(attempts.len(), 2, "{spans:#?}");
    for (number, (attempt, context)) in attempts.iter().zip(&contexts).enumerate() {
        assert!(
            context.starts_with(&format!("00-{}-{}-", hex(&own.trace_id), hex(&attempt.span_id))),
            "{context}"
        );
        assert_eq!(attempt.parent_span_id, own.span_id);
        assert_within(attempt, own);
        let known = attributes(attempt);
        let server = format!("{}:{}", known["server.address"], known["server.port"]);
        assert_eq!(
            (known["vanward.upstream"].as_str(), server),
            (["app", "legacy"][number], scene.server_address(number))
        );
        let failure = known.get("error.type").map(String::as_str);
        assert_eq!(failure, [Some("upstream-status"), None][number]);
    }
    assert_eq!(attributes(own)["http.response.status_code"], "200");
}

/// Times that only spans need are not read at once: an unsampled request nevertheless has them if it fails at its end.
#[test]
fn a_request_that_was_not_chosen_has_its_times_when_it_fails_late() {
    let scene = scene("sample = \"0%\"");
    let mut client = scene.client(Spoken::Http1).asking(&get("/late"));
    let mut server = scene.accept(0).after_head();
    server.sends("HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n");
    server.sends("x".repeat(50_000));
    // The client's bytes left the proxy before the server failed.
    client.gets_head_alone();
    drop(server);
    let spans = spans(&scene, 1);
    let (own, attempt) = (only(&spans, SERVER), only(&spans, CLIENT));
    assert_within(attempt, own);
    assert_passes(attempt, "vanward.connect_us");
    let first_byte: u64 = attributes(attempt)["vanward.first_byte_us"].parse().expect("a number");
    let lasted = attempt.end_time_unix_nano - attempt.start_time_unix_nano;
    assert!((first_byte + 1) * 1000 <= lasted, "the first byte came before the end: {attempt:#?}");
    assert_eq!(attributes(own)["error.type"], "upstream-truncated");
}

#[test]
fn a_slow_request_is_recorded_and_a_quick_one_is_not() {
    let scene = scene("sample = \"0%\"\nslow = \"30ms\"");
    scene.exchange(Spoken::Http1, &get("/quick"), OK);
    let mut client = scene.client(Spoken::Http1).asking(&get("/slow"));
    let mut server = scene.accept(0).after_head();
    std::thread::sleep(std::time::Duration::from_millis(40));
    server.sends(OK);
    assert_eq!(client.gets().status, 200);
    let spans = spans(&scene, 1);
    let own = spans.iter().find(|span| attributes(span).get("url.path").map(String::as_str) == Some("/slow"));
    let own = own.expect("the slow one");
    assert!(own.end_time_unix_nano - own.start_time_unix_nano >= 40_000_000, "{own:#?}");
}

#[test]
fn questions_copies_and_the_cache_are_spans_of_the_trace() {
    let routes = "[cache]\nmemory = \"1MiB\"\n[[route]]\nupstream = \"app\"\ncache = {}\nforward_auth = { upstream = \"auth\" }\n\
                  mirror = { upstream = \"copy\" }\n[upstream.app]\nservers = [\"http://{0}\"]\n\
                  [upstream.auth]\nservers = [\"http://{1}\"]\n[upstream.copy]\nservers = [\"http://{2}\"]\n";
    let scene = scene_with("sample = \"100%\"", routes, 3);
    let context = |head: &str| values(head, "traceparent")[0].to_owned();
    let mut client = scene.client(Spoken::Http1).asking(&get("/"));
    let mut auth = scene.accept(1);
    let auth_context = context(&auth.head());
    auth.sends(OK);
    let mut app = scene.accept(0);
    let app_context = context(&app.head());
    app.sends("HTTP/1.1 200 OK\r\ncache-control: max-age=60\r\ncontent-length: 0\r\n\r\n");
    assert_eq!(client.gets().status, 200);
    let mut copy = scene.accept(2);
    let copy_context = context(&copy.head());
    copy.sends(OK);
    let mut all = Vec::new();
    // The copy may end after the request's spans were sent.
    while all.len() < 6 {
        all.extend(spans(&scene, 3));
    }
    assert_eq!(all.len(), 6, "{all:#?}");
    let named = |name: &str, kind| {
        let mut found = all.iter().filter(|span| span.name == name && span.kind == kind);
        found.next().unwrap_or_else(|| panic!("no {name} in {all:#?}"))
    };
    let own = only(&all, SERVER);
    let (question, cache, mirror) =
        (named("authentication", CLIENT), named("cache", INTERNAL), named("mirror", INTERNAL));
    for span in [question, cache, mirror] {
        assert_eq!(span.parent_span_id, own.span_id, "{}", span.name);
    }
    assert_eq!(attributes(cache)["vanward.cache"], "miss");
    let of = |parent: &Span| {
        let mut spans = all.iter().filter(|span| span.name == "GET" && span.parent_span_id == parent.span_id);
        hex(&spans.next().expect("an attempt").span_id)
    };
    let trace = hex(&own.trace_id);
    assert_eq!(app_context, format!("00-{trace}-{}-03", of(own)));
    assert_eq!(copy_context, format!("00-{trace}-{}-03", of(mirror)));
    assert!(auth_context.starts_with(&format!("00-{trace}-")), "{auth_context}");
}

#[test]
fn spans_wait_for_a_collector_and_are_lost_where_it_refuses_them() {
    let routes = "[[route]]\nupstream = \"app\"\n[upstream.app]\nservers = [\"http://{0}\"]\n";
    let scene = Scene::new(&format!(
        "metrics = \"127.0.0.1:0\"\n[tracing]\ncollector = \"http://{{1}}\"\nsample = \"100%\"\n{routes}"
    ));
    let metrics = scene.running().metrics_address().expect("an address");
    let counters = || {
        let mut peer = Http1Peer::new("scraper", TcpStream::connect(metrics).expect("it listens"));
        peer.sends("GET /metrics HTTP/1.1\r\nhost: test\r\n\r\n");
        let page = String::from_utf8(peer.rest().0).expect("text");
        let value = |name: &str| {
            let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.expect(name).parse::<f64>().expect("a number") as u64
        };
        (value("vanward_trace_spans_sent_total"), value("vanward_trace_spans_refused_total"))
    };
    scene.exchange(Spoken::Http1, &get("/1"), OK);
    let mut peer = scene.accept(1);
    let (_, first) = receive(&mut peer);
    peer.sends("HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n");
    let mut peer = scene.accept(1);
    let (_, again) = receive(&mut peer);
    assert_eq!(first, again);
    peer.sends(TAKEN);
    testkit::wait::assert_soon("two spans are sent", || counters() == (2, 0));
    scene.exchange(Spoken::Http1, &get("/2"), OK);
    let mut peer = scene.accept(1);
    receive(&mut peer);
    peer.sends("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
    testkit::wait::assert_soon("two spans are lost", || counters() == (2, 2));
    // OTLP partial success: a message is accepted, and one of its spans rejected.
    scene.exchange(Spoken::Http1, &get("/3"), OK);
    let mut peer = scene.accept(1);
    receive(&mut peer);
    peer.sends("HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\n\x0a\x06\x08\x01\x12\x02no");
    testkit::wait::assert_soon("one span more is lost", || counters() == (3, 3));
}

/// The durations of a route refer to the trace of a recorded request, in the format with exemplars.
#[test]
fn metrics_have_a_recorded_trace_as_an_exemplar() {
    let routes = "[[route]]\nupstream = \"app\"\n[upstream.app]\nservers = [\"http://{0}\"]\n";
    let scene = Scene::new(&format!(
        "metrics = \"127.0.0.1:0\"\n[tracing]\ncollector = \"http://{{1}}\"\nsample = \"0%\"\nfollow = \"all\"\n{routes}"
    ));
    let metrics = scene.running().metrics_address().expect("an address");
    let page = |accept: &str| {
        let mut peer = Http1Peer::new("scraper", TcpStream::connect(metrics).expect("it listens"));
        peer.sends(format!("GET /metrics HTTP/1.1\r\nhost: test\r\n{accept}\r\n"));
        String::from_utf8(peer.rest().0).expect("text")
    };
    let openmetrics = || page("accept: application/openmetrics-text\r\n");
    scene.exchange(Spoken::Http1, &get("/unrecorded"), OK);
    testkit::wait::assert_soon("it is counted", || openmetrics().contains("duration_seconds_count"));
    assert!(!openmetrics().contains("trace_id"));
    let fields = format!("traceparent: 00-{TRACE}-{PARENT}-01");
    scene.exchange(Spoken::Http1, &BodylessRequest { fields: &fields, ..get("/") }, OK);
    let exemplar = format!(" # {{trace_id=\"{TRACE}\"}} ");
    testkit::wait::assert_soon("the trace is told", || openmetrics().contains(&exemplar));
    assert!(!page("").contains("trace_id"), "the text of Prometheus has no place for it");
}

#[test]
fn what_waits_is_sent_when_the_proxy_ends() {
    let scene = scene("sample = \"100%\"");
    let collector = scene.listener(1);
    scene.exchange(Spoken::Http1, &get("/last"), OK);
    let (running, _folder) = scene.into_parts();
    let ending = std::thread::spawn(move || drop(running));
    let mut peer = Http1Peer::new("collector", testkit::ports::accept(&collector));
    let (_, message) = receive(&mut peer);
    peer.sends(TAKEN);
    assert_eq!(attributes(only(&spans_of(message), SERVER))["url.path"], "/last");
    ending.join().expect("it ends");
}

#[test]
fn without_tracing_a_context_passes_as_it_is() {
    let scene = Scene::new("[[route]]\nupstream = \"app\"\n[upstream.app]\nservers = [\"http://{0}\"]\n");
    let fields = format!("traceparent: 00-{TRACE}-{PARENT}-01\ntracestate: a=b\nb3: 0");
    let (seen, _) = scene.exchange(Spoken::Http1, &BodylessRequest { fields: &fields, ..get("/") }, OK);
    assert_eq!(values(&seen, "traceparent"), [format!("00-{TRACE}-{PARENT}-01")]);
    assert_eq!((values(&seen, "tracestate"), values(&seen, "b3")), (vec!["a=b"], vec!["0"]));
}
