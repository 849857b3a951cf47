//! Traces and metrics of a request that one instance sends to another: one trace with one sampling decision, and one
//! count as a client's request.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use testkit::scene::{BodylessRequest, get};
use testkit::wait;

use super::fleet::Fleet;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
/// Numbers of span kinds in OTLP.
const SERVER: i32 = 2;
const CLIENT: i32 = 3;
/// Status code of a failed span in OTLP.
const ERROR: i32 = 2;

/// The spans that a collector has received from all instances.
struct Collector {
    address: SocketAddr,
    spans: Arc<Mutex<Vec<Span>>>,
}

impl Collector {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let collector = Self { address: listener.local_addr().expect("it listens"), spans: Arc::default() };
        let spans = Arc::clone(&collector.spans);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let body = receive(stream);
                let message = ExportTraceServiceRequest::decode(&body[..]).expect("a message of OTLP");
                let scopes = message.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
                spans.lock().expect("nobody panics").extend(scopes.flat_map(|scope| scope.spans));
            }
        });
        collector
    }

    /// Waits until `look` finds something among the spans of the trace: instances send theirs separately.
    fn finds<T>(&self, look: impl Fn(&[Span]) -> Option<T>) -> T {
        let mut found = None;
        wait::assert_soon("the collector lacks spans", || {
            let spans = self.spans.lock().expect("nobody panics");
            let of_trace = spans.iter().filter(|span| hex(&span.trace_id) == TRACE).cloned();
            found = look(&of_trace.collect::<Vec<_>>());
            found.is_some()
        });
        found.expect("it was found")
    }
}

/// Receives one message, and returns its body.
fn receive(mut stream: TcpStream) -> Vec<u8> {
    let (mut received, mut bytes) = (Vec::new(), [0; 4096]);
    loop {
        let count = stream.read(&mut bytes).expect("is a socket");
        received.extend_from_slice(&bytes[..count]);
        let Some(end) = received.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&received[..end]).to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).expect("a length");
        let whole = end + 4 + length.trim().parse::<usize>().expect("a number");
        while received.len() < whole {
            let count = stream.read(&mut bytes).expect("is a socket");
            received.extend_from_slice(&bytes[..count]);
        }
        let taken = "HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n";
        stream.write_all(taken.as_bytes()).expect("it reads");
        return received.split_off(end + 4);
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Two instances that each record this share of traces, without errors or slow requests.
fn fleet(collector: &Collector, shares: [&str; 2]) -> Fleet {
    let options = |number: usize| {
        format!(
            "[tracing]\ncollector = \"http://{}\"\nsample = {:?}\nslow = \"off\"\nerrors = false\n",
            collector.address, shares[number]
        )
    };
    Fleet::with_each(2, "cache = {}", options, |_, addresses| addresses.to_vec())
}

/// Sends a request within the trace to the first instance for a key of the second one. Returns the context that the
/// server got.
fn ask(fleet: &Fleet) -> String {
    let path = fleet.foreign_path(0, 1).replace("?probe", "?traced");
    let fields = format!("traceparent: 00-{TRACE}-00f067aa0ba902b7-00");
    for number in 0.. {
        let (target, before) = (format!("{path}{number}"), fleet.served(1));
        let got = fleet.ask(0, &BodylessRequest { fields: &fields, ..get(&target) });
        assert_eq!(got.status, 200);
        if fleet.served(1) > before {
            let head = fleet.server.heads(&target).pop().expect("the server was asked").to_lowercase();
            let context = head.lines().find_map(|line| line.strip_prefix("traceparent: "));
            return context.expect("it has a context").trim().to_owned();
        }
    }
    unreachable!("some key is the other instance's")
}

#[test]
fn both_instances_record_what_the_first_one_has_decided_to() {
    let collector = Collector::start();
    let fleet = fleet(&collector, ["100%", "0%"]);
    // The client is not a trusted proxy, so its decision is not followed; the owner follows the instance.
    let context = ask(&fleet);
    assert!(context.starts_with(&format!("00-{TRACE}-")) && context.ends_with("-01"), "{context}");
    let (asker, attempt) = collector.finds(|spans| {
        let of_kind = |kind: i32| spans.iter().filter(move |span| span.kind == kind);
        of_kind(SERVER).find_map(|owner| {
            let asked = of_kind(CLIENT).find(|attempt| attempt.span_id == owner.parent_span_id)?;
            let asker = of_kind(SERVER).find(|asker| asker.span_id == asked.parent_span_id)?;
            let attempt = of_kind(CLIENT).find(|attempt| attempt.parent_span_id == owner.span_id)?;
            Some((asker.clone(), attempt.clone()))
        })
    });
    assert_eq!(hex(&asker.parent_span_id), "00f067aa0ba902b7");
    assert_eq!(context.split('-').nth(2), Some(&*hex(&attempt.span_id)));
}

#[test]
fn neither_instance_records_what_the_first_one_has_decided_not_to() {
    let collector = Collector::start();
    let fleet = fleet(&collector, ["0%", "100%"]);
    let context = ask(&fleet);
    assert!(context.starts_with(&format!("00-{TRACE}-")) && context.ends_with("-00"), "{context}");
}

/// The asking instance sends the request to the server itself. Its own span shows whether that failed.
#[test]
fn a_request_that_is_declined_is_no_error_of_the_instance_that_declines() {
    let collector = Collector::start();
    let fleet = fleet(&collector, ["100%", "0%"]);
    let fields = format!("traceparent: 00-{TRACE}-00f067aa0ba902b7-01");
    for number in 0.. {
        let (target, before) = (format!("/declined-{number}"), fleet.served(1));
        fleet.server.answers(&target, "no response at all\r\n\r\n");
        assert_eq!(fleet.ask(0, &BodylessRequest { fields: &fields, ..get(&target) }).status, 502);
        if fleet.served(1) > before {
            break;
        }
    }
    let (asker, owner, attempt) = collector.finds(|spans| {
        let of_kind = |kind: i32| spans.iter().filter(move |span| span.kind == kind);
        let owner = of_kind(SERVER).find(|span| hex(&span.parent_span_id) != "00f067aa0ba902b7")?;
        let asked = of_kind(CLIENT).find(|attempt| attempt.span_id == owner.parent_span_id)?;
        let asker = of_kind(SERVER).find(|asker| asker.span_id == asked.parent_span_id)?;
        let attempt = of_kind(CLIENT).find(|attempt| attempt.parent_span_id == owner.span_id)?;
        Some((asker.clone(), owner.clone(), attempt.clone()))
    });
    let is_error = |span: &Span| span.status.as_ref().is_some_and(|status| status.code == ERROR);
    assert_eq!([is_error(&asker), is_error(&owner), is_error(&attempt)], [true, false, true]);
    assert!(owner.attributes.iter().all(|attribute| attribute.key != "error.type"), "{owner:#?}");
}

#[test]
fn a_request_for_another_instance_counts_as_one_and_not_as_a_clients() {
    let fleet = Fleet::with(2, "cache = {}\nname = \"site\"", "", |_, addresses| addresses.to_vec());
    let path = fleet.foreign_path(0, 1);
    assert_eq!(fleet.ask(0, &get(&path)).status, 200);
    let counted = |number, route| fleet.requests(number, route);
    wait::assert_soon("the requests are not counted", || {
        counted(1, "(cache-peers)") > 0 && counted(0, "site") > 0
    });
    // Only the first instance has sent requests to the second.
    assert_eq!((counted(1, "site"), counted(0, "(cache-peers)")), (0, 0));
}
