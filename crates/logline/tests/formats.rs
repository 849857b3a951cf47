//! Formats with chosen fields: their lines, their mistakes, and that no client's bytes leave their place.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, UNIX_EPOCH};

use logline::{
    Addresses, FieldFault, FormatFault, Headers, LineBatch, LineFormat, LineWriter, LogEntry, LoggedQuery,
    LoggedTls, LoggedVersion, Masks, More, Needs, Retried, Timestamp,
};
use proptest::prelude::*;
use serde_json::{Map, Value};

#[derive(Debug, Default)]
struct Sent<'a> {
    request: &'a [(&'a str, &'a [u8])],
    response: &'a [(&'a str, &'a [u8])],
}

fn of(lines: &[(&str, &[u8])], name: &[u8], see: &mut dyn FnMut(&[u8])) {
    let same = |known: &str| known.as_bytes().eq_ignore_ascii_case(name);
    lines.iter().filter(|(known, _)| same(known)).for_each(|(_, value)| see(value));
}

impl Headers for Sent<'_> {
    fn request(&self, name: &[u8], see: &mut dyn FnMut(&[u8])) {
        of(self.request, name, see);
    }

    fn response(&self, name: &[u8], see: &mut dyn FnMut(&[u8])) {
        of(self.response, name, see);
    }
}

const SENT: Sent<'static> = Sent {
    request: &[
        ("X-Two", b"a b"),
        ("x-two", b"\"c\""),
        ("Cookie", b"theme=dark; session=s3cret"),
        ("Authorization", b"Basic c2VjcmV0"),
        ("X-Forwarded-For", b"198.51.100.9"),
    ],
    response: &[("Server", b"app/1"), ("Location", b"/next?token=t"), ("Set-Cookie", b"session=s3cret")],
};

fn more<'a>(headers: &'a dyn Headers) -> More<'a> {
    More {
        trace_id: Some(0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c),
        tls: LoggedTls { version: "TLSv1.3", ..LoggedTls::default() },
        upstream_first_byte: Some(Duration::from_millis(10)),
        first_byte: Some(Duration::from_micros(11_500)),
        retried: &[Retried { server: "127.0.0.1:9001", cause: "upstream-refused" }],
        listener: "web",
        worker: 1,
        connection_request: 3,
        is_upstream_reused: Some(true),
        headers,
        ..More::NONE
    }
}

fn entry<'a>(more: &'a More<'a>) -> LogEntry<'a> {
    LogEntry {
        user: "me too",
        scheme: "https",
        method: b"GET",
        target: b"/a/b?page=2&token=t",
        version: Some(LoggedVersion(1, 1)),
        status: 200,
        body_bytes_sent: 2,
        bytes_sent: 130,
        bytes_received: 310,
        referer: b"http://example.test/?token=t",
        user_agent: b"curl/8.0 \"x\"",
        host: b"example.test:8080",
        upstream: Some("app"),
        server: Some("127.0.0.1:9000"),
        duration: Duration::from_micros(12_034),
        retries: 1,
        cache: "miss",
        weight: 333,
        more,
        ..LogEntry::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7)))
    }
}

fn format(text: &str, fields: &[&str]) -> LineFormat {
    let fields: Vec<String> = fields.iter().map(|&field| field.to_owned()).collect();
    LineFormat::new(text, &fields).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn line_with(format: LineFormat, masks: Masks, entry: &LogEntry<'_>) -> String {
    let mut timestamp = Timestamp::new();
    timestamp.set(UNIX_EPOCH + Duration::from_millis(971_186_136_007));
    let mut batch = LineBatch::default();
    LineWriter::new(format, masks).write(entry, &timestamp, &mut batch);
    str::from_utf8(batch.lines()).expect("a line is UTF-8").to_owned()
}

fn line(text: &str, fields: &[&str]) -> String {
    line_with(format(text, fields), Masks::default(), &entry(&more(&SENT)))
}

#[test]
fn combined_has_nine_fields_and_nothing_else() {
    assert_eq!(
        line("combined", &[]),
        "192.0.2.7 - me\\x20too [10/Oct/2000:13:55:36 +0000] \"GET /a/b?page=2&token=t HTTP/1.1\" 200 2 \
         \"http://example.test/?token=t\" \"curl/8.0 \\\"x\\\"\"\n"
    );
    let empty = line_with(LineFormat::Combined, Masks::default(), &LogEntry::new(Ipv4Addr::LOCALHOST.into()));
    assert_eq!(empty, "127.0.0.1 - - [10/Oct/2000:13:55:36 +0000] \"-\" - - \"-\" \"-\"\n");
}

#[test]
fn templates() {
    for (template, expected) in [
        ("$client $status", "192.0.2.7 200"),
        (
            "$client_address - [$time] \"$request\"",
            "192.0.2.7 - [2000-10-10T13:55:36.007Z] \"GET /a/b?page=2&token=t HTTP/1.1\"",
        ),
        (
            "[$time.common] $time.date $time.clock $time.unix $time.unix_ms",
            "[10/Oct/2000:13:55:36 +0000] 2000-10-10 13:55:36 971186136.007 971186136007",
        ),
        ("$method $path $query $protocol ${version}x", "GET /a/b page=2&token=t HTTP/1.1 1.1x"),
        ("$request", "GET\\x20/a/b?page=2&token=t\\x20HTTP/1.1"),
        ("$user \"$user\" $peer \"$peer\"", "me\\x20too \"me too\" - \"-\""),
        ("cost=$$1 $bytes_sent/$body_bytes_sent/$bytes_received", "cost=$1 130/2/310"),
        (
            "$duration_ms $duration_s $first_byte_ms $upstream_first_byte_s $upstream_connect_ms",
            "12.034 0.012034 11.500 0.010000 -",
        ),
        ("$attempts $retries $retried", "2 1 upstream-refused@127.0.0.1:9001"),
        ("$cache $listener $worker $connection_request $upstream_reused $weight", "miss web 1 3 true 3.33"),
        ("$tls.version $tls_version $tls.sni", "TLSv1.3 TLSv1.3 -"),
        ("$trace_id", "0af7651916cd43dd8448eb211c80319c"),
        ("$header.X-Two|\"$header.x-two\"|$header.None", "a\\x20b,\\x20\\\"c\\\"|\"a b, \\\"c\\\"\"|-"),
        ("$cookie.theme $cookie.none $arg.page $arg.none", "dark - 2 -"),
        ("$header.Cookie $header.authorization $response_header.Set-Cookie", "*** *** ***"),
        ("$response_header.server $response_header.Location", "app/1 /next?token=t"),
        ("$header.User-Agent $header.Referer", "curl/8.0\\x20\\\"x\\\" http://example.test/?token=t"),
    ] {
        assert_eq!(line(template, &[]), format!("{expected}\n"), "{template}");
    }
}

#[test]
fn json_has_the_fields_that_were_asked_for_and_that_have_a_value() {
    let fields = [
        "time",
        "client",
        "peer",
        "status",
        "duration_ms",
        "header.X-Two",
        "upstream_reused",
        "retried",
        "trace_id",
        "header.Cookie",
        "weight",
    ];
    assert_eq!(
        line("json", &fields),
        "{\"time\":\"2000-10-10T13:55:36.007Z\",\"client\":\"192.0.2.7\",\"status\":200,\"duration_ms\":12.034,\
         \"header.X-Two\":\"a b, \\\"c\\\"\",\"upstream_reused\":true,\"retried\":[{\"cause\":\"upstream-refused\",\
         \"server\":\"127.0.0.1:9001\"}],\"trace_id\":\"0af7651916cd43dd8448eb211c80319c\",\"header.Cookie\":\"***\",\
         \"weight\":3.33}\n"
    );
    assert_eq!(line("json", &["peer"]), "{}\n");
}

#[test]
fn a_template_of_an_object_is_one_whatever_the_values_are() {
    assert_eq!(
        line(
            "{\"ip\":$client,\"peer\":$peer,\"what\":\"$method of $user$peer\",\"n\":$status,\"\\\"\":[$retried]}",
            &[]
        ),
        "{\"ip\":\"192.0.2.7\",\"peer\":null,\"what\":\"GET of me too\",\"n\":200,\"\\\"\":\
         [[{\"cause\":\"upstream-refused\",\"server\":\"127.0.0.1:9001\"}]]}\n"
    );
}

#[test]
fn w3c_has_directives_and_columns() {
    let fields = [
        "time.date",
        "time.clock",
        "client",
        "user",
        "path",
        "query",
        "peer",
        "header.X-Two",
        "duration_s",
        "cause",
    ];
    let format = format("w3c", &fields);
    assert_eq!(
        line_with(format.clone(), Masks::default(), &entry(&more(&SENT))),
        "2000-10-10 13:55:36 192.0.2.7 me+too /a/b page=2&token=t - a+b,+%22c%22 0.012034 -\n"
    );
    let mut now = Timestamp::new();
    now.set(UNIX_EPOCH + Duration::from_millis(971_186_136_007));
    assert!(format.has_directives());
    assert_eq!(
        String::from_utf8(LineWriter::new(format, Masks::default()).head(&now)).unwrap(),
        "#Version: 1.0\n#Software: Vanward\n#Date: 2000-10-10 13:55:36\n\
         #Fields: date time c-ip cs-username cs-uri-stem cs-uri-query x-peer cs(X-Two) time-taken x-cause\n"
    );
    assert!(LineWriter::default().head(&now).is_empty());
    // A line that begins with # would be a directive.
    let sent = more(&SENT);
    let forged = LogEntry { target: b"#Fields:", ..entry(&sent) };
    assert_eq!(line_with(self::format("w3c", &["path"]), Masks::default(), &forged), "%23Fields:\n");
}

#[test]
fn masks() {
    let secret = Masks {
        query: LoggedQuery::Without(vec!["token".to_owned()]),
        addresses: Addresses::Network,
        hidden_headers: vec!["X-Two".to_owned(), "user-agent".to_owned()],
        shown_headers: vec!["cookie".to_owned()],
    };
    let shown = |text: &str| line_with(format(text, &[]), secret.clone(), &entry(&more(&SENT)));
    for (template, expected) in [
        ("$client $header.X-Forwarded-For", "192.0.2.0 ***"),
        (
            "$target $query $request",
            "/a/b?page=2&token=*** page=2&token=*** GET\\x20/a/b?page=2&token=***\\x20HTTP/1.1",
        ),
        ("$arg.page $arg.token $header.Referer", "2 *** http://example.test/?token=***"),
        ("$header.X-Two $user_agent $response_header.Location", "*** *** /next?token=***"),
        ("\"$header.Cookie\"", "\"theme=dark; session=s3cret\""),
    ] {
        assert_eq!(shown(template), format!("{expected}\n"), "{template}");
    }
    let none = Masks { query: LoggedQuery::Omitted, ..Masks::default() };
    let shown = line_with(format("$target $query $arg.page", &[]), none.clone(), &entry(&more(&SENT)));
    assert_eq!(shown, "/a/b - ***\n");
    for fixed in [LineFormat::Extended, LineFormat::Combined, LineFormat::Json] {
        let masks = Masks { addresses: Addresses::Network, ..none.clone() };
        let peer = Some("2001:db8:1:2::3".parse().unwrap());
        let more = More { peer, ..more(&SENT) };
        let entry = entry(&more);
        let line = line_with(fixed, masks, &entry);
        assert!(
            line.contains("192.0.2.0") && !line.contains("192.0.2.7") && !line.contains("token"),
            "{line}"
        );
        assert!(!line.contains("2001:db8:1:2"), "{line}");
    }
}

#[test]
fn mistakes_in_formats_have_a_place() {
    for (text, fields, place, is_in_fields, fault) in [
        ("combind", &[][..], 0, false, FormatFault::Unknown("combind".to_owned())),
        ("$client $stats", &[], 8, false, FormatFault::Field(FieldFault::Unknown("stats".to_owned()))),
        ("$client $1", &[], 8, false, FormatFault::Field(FieldFault::Unknown("1".to_owned()))),
        ("$header.", &[], 0, false, FormatFault::Field(FieldFault::Member("header.".to_owned()))),
        ("$client\n", &[], 7, false, FormatFault::Character('\n')),
        ("combined", &["time"], 0, true, FormatFault::NoChoice("\"combined\"".to_owned())),
        ("$client", &["time"], 0, true, FormatFault::NoChoice("a text with variables".to_owned())),
        ("json", &["time", "state"], 1, true, FormatFault::Field(FieldFault::Unknown("state".to_owned()))),
        ("json", &["client", "client_address"], 1, true, FormatFault::Twice("client_address".to_owned())),
        ("w3c", &["time"; 101], 0, true, FormatFault::TooMany(101)),
    ] {
        let fields: Vec<String> = fields.iter().map(|&field| field.to_owned()).collect();
        let error = LineFormat::new(text, &fields).expect_err(text);
        assert_eq!((error.place, error.is_in_fields, error.fault), (place, is_in_fields, fault), "{text}");
    }
    assert!(LineFormat::new(&"$client ".repeat(101), &[]).is_err());
    assert!(LineFormat::new(&"$client".repeat(1000), &[]).is_err());
}

#[test]
fn a_format_needs_only_the_parts_of_its_fields() {
    let needs = |text: &str| LineWriter::new(format(text, &[]), Masks::default()).needs();
    assert_eq!(needs("$client $status $duration_ms"), Needs::ENTRY);
    assert_eq!(needs("combined"), Needs::ENTRY.and(Needs::NAMED_HEADERS));
    let more = Needs::ENTRY.and(Needs::MORE);
    assert_eq!(needs("$upstream_total_s"), more.and(Needs::UPSTREAM_TIMES));
    assert_eq!(needs("$response_header.Server"), more.and(Needs::RESPONSE_HEAD));
    assert!(!needs("extended").has_any(Needs::FIRST_BYTE.and(Needs::RESPONSE_HEAD)));
}

#[test]
fn a_format_that_tells_more_says_so() {
    let families = ["header.Accept", "response_header.Server", "cookie.session", "arg.page"];
    let presets = ["combined", "extended", "json"].map(|name| format(name, &[]));
    let fields = logline::field_names().chain(families).map(|name| format(&format!("${{{name}}}"), &[]));
    for format in fields.chain(presets) {
        let with = line_with(format.clone(), Masks::default(), &entry(&more(&SENT)));
        let without = line_with(format.clone(), Masks::default(), &entry(&More::NONE));
        let needs = LineWriter::new(format.clone(), Masks::default()).needs();
        assert!(with == without || needs.has(Needs::MORE), "{format:?} tells {with}, and does not need it");
    }
}

/// Bytes that clients could send, including harmful ones.
fn outside() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..100),
        proptest::collection::vec(
            proptest::sample::select(b"\"\\\n\r\t #?&;=%*-,{}[]\0\x1b\x7f\xc2\x85\xe2\x80\xa8\x9b".to_vec()),
            0..20
        ),
    ]
}

fn fields() -> impl Strategy<Value = Vec<String>> {
    let names: Vec<String> = logline::field_names().map(|name| name.replace("NAME", "x")).collect();
    proptest::sample::subsequence(names, 1..60).prop_shuffle()
}

fn template() -> impl Strategy<Value = String> {
    (fields(), proptest::collection::vec(proptest::sample::select(&["\"", " ", "x", "\\", "$$", "="]), 60))
        .prop_map(|(fields, between)| {
            let pairs = fields.iter().zip(between);
            pairs.map(|(field, between)| format!("${{{field}}}{between}")).collect()
        })
}

proptest! {
    #[test]
    fn one_request_is_one_line_whatever_it_has(
        parts in proptest::collection::vec(outside(), 8), text in template(), fields in fields(),
        query in proptest::sample::select(vec![LoggedQuery::Full, LoggedQuery::Omitted, LoggedQuery::Masked, LoggedQuery::Without(vec!["x".to_owned()])]),
    ) {
        let text_of = |at: usize| String::from_utf8_lossy(&parts[at]).into_owned();
        let (user, subject, detail) = (text_of(0), text_of(1), text_of(2));
        let request: [(&str, &[u8]); 3] = [("x", &parts[3]), ("X", &parts[4]), ("cookie", &parts[5])];
        let sent = Sent { request: &request, response: &[("x", &parts[7])] };
        let more = More {
            request_id: &parts[0], listener: &subject,
            tls: LoggedTls { subject: &subject, server_name: &user, ..LoggedTls::default() },
            ..more(&sent)
        };
        let entry = LogEntry {
            user: &user, method: &parts[6], target: &parts[3], referer: &parts[4], user_agent: &parts[5],
            host: &parts[7], route: Some(&user), detail: Some(&detail),
            ..entry(&more)
        };
        let masks = || Masks { query: query.clone(), ..Masks::default() };
        let mut seen: Vec<String> = fields.iter().map(|name| name.replace("client_address", "client")).collect();
        seen.sort_unstable();
        let mut formats = vec![LineFormat::Extended, LineFormat::Combined, format(&text, &[])];
        formats.extend(LineFormat::new("w3c", &fields));
        let is_line = |line: &str| {
            line.ends_with('\n') && !line[..line.len() - 1].contains(|character: char| {
                character.is_control() || matches!(character, '\u{2028}' | '\u{2029}')
            })
        };
        for format in formats {
            let count = match &format {
                LineFormat::Chosen(_) if format.has_directives() => fields.len(),
                _ => 0,
            };
            let line = line_with(format, masks(), &entry);
            prop_assert!(is_line(&line), "{:?}", line);
            if count > 0 {
                prop_assert_eq!(line.split(' ').count(), count, "{:?}", line);
                prop_assert!(!line.starts_with('#'));
            }
        }
        let object = format!("{{\"a\":${{{0}}},\"b\":[\"${{{0}}}-$user\",$user],\"c\":${{{1}}}}}", fields[0], fields[fields.len() - 1]);
        for format in [Ok(LineFormat::Json), LineFormat::new("json", &fields), LineFormat::new(&object, &[])].into_iter().flatten() {
            let line = line_with(format, masks(), &entry);
            prop_assert!(is_line(&line), "{:?}", line);
            let parsed: Result<Map<String, Value>, _> = serde_json::from_str(&line);
            prop_assert!(parsed.is_ok(), "{:?}: {}", parsed, line);
        }
    }
}
