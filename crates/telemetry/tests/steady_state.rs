//! Once buffers exist, a line of the access log allocates nothing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, UNIX_EPOCH};

use telemetry::{
    AccessLog, LineFormat, LogDestination, LogEntry, LogLines, LoggedVersion, Masks, More, Retried,
};

#[test]
fn a_line_allocates_nothing() {
    let fields = ["time", "client", "method", "path", "query", "status", "duration_ms", "retried", "detail"];
    let fields = fields.map(str::to_owned);
    let template = "$client [$time.common] \"$request\" $status $header.X-A $cookie.a $arg.with";
    for format in [
        LineFormat::Extended,
        LineFormat::Combined,
        LineFormat::Json,
        LineFormat::new("json", &fields).expect("a format"),
        LineFormat::new("w3c", &[]).expect("a format"),
        LineFormat::new(template, &[]).expect("a format"),
    ] {
        let lines = LogLines::new(format.clone(), Masks::default());
        let log =
            AccessLog::open(vec![(LogDestination::Writer(Box::new(std::io::sink())), lines)]).expect("opens");
        let mut worker = log.for_worker();
        let mut entry = LogEntry {
            method: b"GET",
            target: b"/a/path?with=\"quotes\"",
            version: Some(LoggedVersion(1, 1)),
            status: 200,
            body_bytes_sent: 128,
            bytes_received: 78,
            referer: b"http://example.test/",
            user_agent: "Mozilla/5.0 (ünïcode; \x1b)".as_bytes(),
            host: b"example.test",
            route: Some("/"),
            upstream: Some("app"),
            server: Some("127.0.0.1:9000"),
            duration: Duration::from_micros(900),
            retries: 1,
            cause: Some("upstream_reset"),
            detail: Some("it closed the connection"),
            more: &More {
                upstream_first_byte: Some(Duration::from_micros(700)),
                upstream_total: Some(Duration::from_micros(800)),
                queued: Some(Duration::from_micros(300)),
                retried: &[Retried { server: "127.0.0.1:9001", cause: "upstream-refused" }],
                session_moved: Some(("stopped", None)),
                ..More::NONE
            },
            ..LogEntry::new(IpAddr::V4(Ipv4Addr::LOCALHOST))
        };
        let counted = allocation_counter::measure(|| {
            // Fewer lines than a buffer holds, over a few seconds, so that dates are rendered too.
            for number in 0..100 {
                entry.client = if number % 2 == 0 {
                    IpAddr::V4(Ipv4Addr::LOCALHOST)
                } else {
                    IpAddr::V6(Ipv6Addr::LOCALHOST)
                };
                worker.record(&entry, UNIX_EPOCH + Duration::from_millis(50 * number));
            }
        });
        assert_eq!(counted.count_total, 0, "{format:?}");
        drop(worker);
        log.close();
    }
}
