//! Values that are computed from hostile requests, in every kind of text with variables: none breaks out of its place.
//!
//! The input up to the first zero byte is the expression of the value. The lines after it are path, query, host, and
//! then fields of the request: eight bytes of name, and the value. The fields are the entries of a map, too, whose key is
//! the host. For values of later stages, the host is the user and the server, and the lines are the response's head.

#![no_main]

use std::sync::Arc;
use std::time::Duration;

use expression::{
    EvaluationScratch, ExchangeStage, Expression, ExpressionLimits, ExpressionTrace, Map, Schema, Value,
    ValueMemory, ValueType,
};
use libfuzzer_sys::fuzz_target;
use route::{
    ActiveEdits, ContentSyntax, HeaderEdit, HeaderEdits, HostRewrite, LaterFacts, MapLookup, NamedValues,
    PathRewrite, Present, Redirect, RedirectStatus, RequestConditions, RequestFacts, RequestParts,
    RequestSource, ResponseFacts, RouteTemplate, TemplateStage, TemplateUse, TlsFacts, VariableValues,
    has_dot_segments,
};

type Fields<'a> = [(&'a [u8], &'a [u8])];

fuzz_target!(|bytes: &[u8]| {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    let (text, rest) = (&bytes[..end], bytes.get(end + 1..).unwrap_or_default());
    let Ok(text) = std::str::from_utf8(text) else { return };
    let map = Map { number: 0, keys: ValueType::Text, values: Some(ValueType::Text) };
    let schema = Schema::new(ExchangeStage::Response).with_map("map.all", map);
    let limits = ExpressionLimits::default();
    let Ok(expression) = Expression::new(text, &schema, &limits) else { return };
    let is_early = expression.stage() <= ExchangeStage::Request;
    let mut values = NamedValues::default();
    values.add("v", &Arc::new(expression));
    let entry = Expression::new("map.all[request.host]", &schema, &limits).expect("is valid");
    values.add_map("map.m", &Arc::new(entry));

    let mut lines = rest.split(|&byte| byte == b'\n');
    let mut line = || lines.next().unwrap_or_default();
    let (path, query, host) = (line(), line(), line());
    let fields: Vec<(&[u8], &[u8])> = lines.map(|line| line.split_at(line.len().min(8))).collect();
    let memory = ValueMemory::new();
    let facts = RequestFacts {
        method: b"GET",
        host,
        query: Some(query),
        fields: fields.as_slice(),
        scheme: "https",
        version: "1.1",
        size: Some(0),
        client: [192, 0, 2, 1].into(),
        client_port: 1,
        listener: "web",
        tls: TlsFacts::default(),
        time_ns: 1_780_000_000_000_000_000,
        maps: &Entries(&fields),
        memory: Some(&memory),
    };
    let name = String::from_utf8_lossy(host);
    let response = ResponseFacts { status: 200, head: rest, size: None, time: Some(Duration::from_millis(1)) };
    let later = LaterFacts {
        user: &name,
        claims: None,
        upstream: "app",
        server: &name,
        response: Some(response),
        cache_status: "miss",
    };
    let exchange = Exchange { facts: &facts, later };
    let parts = RequestParts { conditions: &exchange, ..facts.parts(0, path) };
    let late = VariableValues::from_request(parts, "https");
    let used = Used { variable: "${v}", values: &values, stage: TemplateStage::Response };
    fields_end_nowhere(used, &late);
    url_keeps_its_parts(used, &late);
    content_stays_text(used, &late);
    if !is_early {
        return;
    }
    let request = VariableValues::from_request(facts.parts(0, path), "https");
    for variable in ["${v}", "${map.m}"] {
        let used = Used { variable, values: &values, stage: TemplateStage::Route };
        fields_end_nowhere(used, &request);
        url_keeps_its_parts(used, &request);
        redirects_and_hosts_stay_valid(used, &request);
        paths_stay_below(used, &request);
        content_stays_text(used, &request);
    }
});

/// A request, and what is known of its exchange.
struct Exchange<'a> {
    facts: &'a RequestFacts<'a, Fields<'a>>,
    later: LaterFacts<'a>,
}

impl RequestConditions for Exchange<'_> {
    fn hold(&self, condition: &Expression, path: &[u8]) -> bool {
        self.facts.hold_later(condition, path, &self.later, &mut EvaluationScratch::new())
    }

    fn explain(&self, condition: &Expression, path: &[u8]) -> ExpressionTrace {
        self.facts.explain_with(condition, path)
    }

    fn value(&self, value: &Expression, path: &[u8], then: &mut dyn FnMut(&[u8])) {
        self.facts.value_later(value, path, &self.later, &mut EvaluationScratch::new(), then);
    }
}

/// A map with the fields of the request as entries, whatever bytes they have.
struct Entries<'a>(&'a [(&'a [u8], &'a [u8])]);

impl MapLookup for Entries<'_> {
    fn lookup(&self, _: u16, key: Value<'_>) -> Option<Value<'_>> {
        let entry = self.0.iter().find(|(name, _)| Value::Text(name) == key).or(self.0.first());
        entry.map(|(_, value)| Value::Text(value))
    }
}

/// The value that takes the place of `${v}` in texts.
#[derive(Clone, Copy)]
struct Used<'a> {
    variable: &'a str,
    values: &'a NamedValues,
    /// The stage at which it is filled in.
    stage: TemplateStage,
}

impl Used<'_> {
    fn text(self, text: &str) -> String {
        text.replace("${v}", self.variable)
    }
}

fn filled(
    text: &str,
    place: TemplateUse,
    used: Used<'_>,
    request: &VariableValues<'_, Fields<'_>>,
) -> Vec<u8> {
    let template = RouteTemplate::new(&used.text(text), place, used.stage, used.values);
    let template = template.expect("the value is known");
    let mut out = Vec::new();
    template.fill(request, &mut out);
    let mut again = Vec::new();
    template.fill(request, &mut again);
    assert_eq!(out, again, "a value stays the same during a request");
    out
}

/// RFC 9110 §5.5: no control character but the tab.
fn fields_end_nowhere(used: Used<'_>, request: &VariableValues<'_, Fields<'_>>) {
    let is_clean = |out: &[u8]| !out.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t');
    assert!(is_clean(&filled("a ${v} b", TemplateUse::FieldValue, used, request)));
    let (set, added) = (used.text("${v}"), used.text("<${v}>"));
    let edits = [HeaderEdit::Set("A", &set), HeaderEdit::Add("B", &added)];
    let edits = HeaderEdits::new(edits, used.stage.max(TemplateStage::Forward), used.values).expect("the value is known");
    let mut out = Vec::new();
    edits.write(request, Present::default(), ActiveEdits::FIRST, &mut out);
    for line in out.split_inclusive(|&byte| byte == b'\n') {
        let line = line.strip_suffix(b"\r\n").expect("each line ends as one");
        assert!((line.starts_with(b"A: ") || line.starts_with(b"B: ")) && is_clean(line));
    }
}

/// RFC 3986 §3: the value stays in the part of the URL in which it is written.
fn url_keeps_its_parts(used: Used<'_>, request: &VariableValues<'_, Fields<'_>>) {
    let url = filled("https://${v}.example/a/${v}/z?q=${v}&r=1#${v}", TemplateUse::Location, used, request);
    assert!(url.iter().all(u8::is_ascii_graphic));
    let url = std::str::from_utf8(&url).expect("is ASCII").strip_prefix("https://").expect("as written");
    let (host, rest) = url.split_once('/').expect("as written");
    assert!(host.ends_with(".example") && !host.contains([':', '@', '?', '#', '\\']), "{host}");
    let (path, rest) = rest.split_once('?').expect("as written");
    assert!(path.starts_with("a/") && path.ends_with("/z") && !path.contains('#'), "{path}");
    let (query, fragment) = rest.split_once('#').expect("as written");
    assert!(query.starts_with("q=") && query.ends_with("&r=1") && query.matches('&').count() == 1, "{query}");
    assert!(!fragment.contains('#'), "{fragment}");
}

/// RFC 9110 §10.2.2, §7.2.
fn redirects_and_hosts_stay_valid(used: Used<'_>, request: &VariableValues<'_, Fields<'_>>) {
    let redirect = Redirect::new(RedirectStatus::Found, &used.text("/${v}"), None, used.values)
        .expect("the value is known");
    let mut location = Vec::new();
    if redirect.location(request, &mut location).is_ok() {
        assert!(location.starts_with(b"/") && !location.starts_with(b"//") && !location.starts_with(b"/\\"));
        assert!(location.iter().all(u8::is_ascii_graphic));
    }
    let host = HostRewrite::new(&used.text("${v}.internal"), used.values).expect("the value is known");
    let mut out = Vec::new();
    if host.apply(request, &mut out).is_ok() {
        assert!(out.ends_with(b".internal"));
        assert!(out.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(byte)));
    }
}

/// No path for a server has dot segments, and no folder has a separator or a name that is hidden.
fn paths_stay_below(used: Used<'_>, request: &VariableValues<'_, Fields<'_>>) {
    let rewrite = PathRewrite::whole(&used.text("/below/${v}"), used.values).expect("the value is known");
    let mut out = Vec::new();
    if rewrite.apply(request, &mut out) == Ok(true) {
        let path = out.split(|&byte| byte == b'?').next().unwrap_or_default();
        assert!(
            path.starts_with(b"/below/") && !has_dot_segments(path) && path.iter().all(u8::is_ascii_graphic)
        );
    }
    let folder =
        RouteTemplate::new(&used.text("a/${v}/z"), TemplateUse::Folder, TemplateStage::Route, used.values);
    let mut out = Vec::new();
    if folder.expect("the value is known").fill_folder(request, &mut out) {
        let segments: Vec<&[u8]> = out.split(|&byte| byte == b'/').collect();
        assert!(segments.len() == 3 && segments[0] == b"a" && segments[2] == b"z");
        assert!(!segments[1].is_empty() && !segments[1].starts_with(b"."));
        assert!(segments[1].iter().all(|byte| byte.is_ascii_alphanumeric() || b"-._~%".contains(byte)));
        let decoded = segments[1].to_ascii_lowercase();
        for separator in [&b"%2f"[..], b"%5c", b"%00"] {
            assert!(!decoded.windows(3).any(|escape| escape == separator));
        }
    } else {
        assert!(out.is_empty());
    }
}

fn content_stays_text(used: Used<'_>, request: &VariableValues<'_, Fields<'_>>) {
    let of = |syntax| filled("${v}", TemplateUse::Content(syntax), used, request);
    let markup = of(ContentSyntax::Markup);
    assert!(!markup.iter().any(|byte| b"<>\"'`=".contains(byte)));
    let json = of(ContentSyntax::Json);
    assert!(!json.iter().any(|byte| byte.is_ascii_control() || b"\"<>".contains(byte)));
    for (at, _) in json.iter().enumerate().filter(|(_, byte)| **byte == b'\\') {
        let escape = json.get(at + 1..at + 6).expect("an escape is whole");
        assert!(escape.starts_with(b"u00") && escape[3..].iter().all(u8::is_ascii_hexdigit));
    }
}
