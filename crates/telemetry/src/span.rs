//! Spans, in the form in which collectors get them: messages of OTLP (Protocol Buffers), of which there is what is written here.
//!
//! A span is written once, by who has seen it. A message is made of many by copying their bytes behind a head.

use std::fmt::{self, Display};
use std::time::{SystemTime, UNIX_EPOCH};

/// The longest text of an attribute, in bytes.
const TEXT_MAX: usize = 512;
/// Room for the spans of a usual request.
const ROOM: usize = 1536;

/// `TraceFlags.sampled` of the flags of a span.
const SAMPLED: u32 = 0x001;
/// Of the flags of a span: the next one is known.
const KNOWS_REMOTE: u32 = 0x100;
/// Of the flags of a span: its parent is another process's.
const REMOTE_PARENT: u32 = 0x200;
/// `Status.code` of a span that failed.
const STATUS_ERROR: u64 = 2;

/// What a span is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// A step within the proxy.
    Internal = 1,
    /// A request that was received.
    Server = 2,
    /// A request that was sent: an attempt with a server.
    Client = 3,
}

/// A span that has ended, without its attributes.
#[derive(Debug, Clone, Copy)]
pub struct Span<'a> {
    /// The trace; never 0.
    pub trace_id: u128,
    /// The span's own ID; never 0.
    pub span_id: u64,
    /// The span that it is a part of; 0 if there is none.
    pub parent_id: u64,
    /// Whether that span is another process's.
    pub has_remote_parent: bool,
    /// Whether the trace was chosen for recording before its end was known.
    pub is_sampled: bool,
    /// What it is about.
    pub kind: SpanKind,
    /// The words of its name, which spaces part.
    pub name: &'a [&'a str],
    /// When it began.
    pub began: SystemTime,
    /// When it ended.
    pub ended: SystemTime,
    /// The log word of its failure, if it failed.
    pub failure: Option<&'static str>,
}

/// Spans as they are sent.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Spans {
    /// `ScopeSpans.spans`, each with tag and length.
    bytes: Vec<u8>,
    count: usize,
}

impl Spans {
    /// None yet, with room for those of a request.
    #[must_use]
    pub fn of_request() -> Self {
        Self { bytes: Vec::with_capacity(ROOM), count: 0 }
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// How long they are as they are sent.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Adds a span, with the attributes that `tell` tells.
    pub fn add(&mut self, span: &Span<'_>, tell: impl FnOnce(&mut Attributes<'_>)) {
        message(&mut self.bytes, 2, |out| {
            bytes(out, 1, &span.trace_id.to_be_bytes());
            bytes(out, 2, &span.span_id.to_be_bytes());
            if span.parent_id != 0 {
                bytes(out, 4, &span.parent_id.to_be_bytes());
            }
            message(out, 5, |out| {
                for (at, word) in span.name.iter().enumerate() {
                    out.extend_from_slice(if at == 0 { b"" } else { b" " });
                    out.extend_from_slice(word.as_bytes());
                }
            });
            number(out, 6, span.kind as u64);
            fixed(out, 7, nanoseconds(span.began));
            fixed(out, 8, nanoseconds(span.ended));
            tell(&mut Attributes { out, field: 9 });
            if let Some(failure) = span.failure {
                message(out, 15, |out| {
                    bytes(out, 2, failure.as_bytes());
                    number(out, 3, STATUS_ERROR);
                });
            }
            let sampled = if span.is_sampled { SAMPLED } else { 0 };
            let remote = if span.has_remote_parent { REMOTE_PARENT } else { 0 };
            // Field 16, whose tag takes two bytes.
            out.extend_from_slice(&[0x85, 0x01]);
            out.extend_from_slice(&(KNOWS_REMOTE | sampled | remote).to_le_bytes());
        });
        self.count += 1;
    }

    /// Adds those of another request.
    pub fn append(&mut self, more: &Self) {
        self.bytes.extend_from_slice(&more.bytes);
        self.count += more.count;
    }
}

/// The attributes of a span or a process, by the names of OpenTelemetry's semantic conventions where there are such.
pub struct Attributes<'a> {
    out: &'a mut Vec<u8>,
    field: u8,
}

impl Attributes<'_> {
    /// Text. Of what came from outside: what is no UTF-8 is replaced, and what is too long is cut.
    pub fn text(&mut self, name: &str, text: &[u8]) {
        self.value(name, |out| {
            message(out, 1, |out| {
                for chunk in text[..text.len().min(TEXT_MAX)].utf8_chunks() {
                    out.extend_from_slice(chunk.valid().as_bytes());
                    if !chunk.invalid().is_empty() {
                        out.extend_from_slice("\u{fffd}".as_bytes());
                    }
                }
            });
        });
    }

    /// A word or name of the proxy's own.
    pub fn word(&mut self, name: &str, word: &str) {
        self.value(name, |out| bytes(out, 1, word.as_bytes()));
    }

    /// Something that is written as text.
    pub fn displayed(&mut self, name: &str, what: &impl Display) {
        self.value(name, |out| message(out, 1, |out| write(out, what)));
    }

    /// A number.
    pub fn number(&mut self, name: &str, value: i64) {
        // Negative ones are written as the large ones that have the same bits.
        self.value(name, |out| number(out, 3, value.cast_unsigned()));
    }

    /// `KeyValue`, whose value is an `AnyValue`.
    fn value(&mut self, name: &str, write: impl FnOnce(&mut Vec<u8>)) {
        message(self.out, self.field, |out| {
            bytes(out, 1, name.as_bytes());
            message(out, 2, write);
        });
    }
}

/// Who spans are of.
pub struct SpanSource {
    /// `ResourceSpans.resource`, with tag and length.
    resource: Vec<u8>,
    /// `ScopeSpans.scope`, with tag and length.
    scope: Vec<u8>,
}

impl SpanSource {
    /// A process, with the attributes that `tell` tells, and the program's name.
    pub fn new(program: &str, tell: impl FnOnce(&mut Attributes<'_>)) -> Self {
        let (mut resource, mut scope) = (Vec::new(), Vec::new());
        message(&mut resource, 1, |out| tell(&mut Attributes { out, field: 1 }));
        message(&mut scope, 1, |out| bytes(out, 1, program.as_bytes()));
        Self { resource, scope }
    }

    /// An `ExportTraceServiceRequest` with these spans.
    #[must_use]
    pub fn message(&self, spans: &Spans) -> Vec<u8> {
        let of_scope = self.scope.len() + spans.bytes.len();
        let of_resource = self.resource.len() + head_bytes(of_scope) + of_scope;
        let mut out = Vec::with_capacity(head_bytes(of_resource) + of_resource);
        head(&mut out, 1, of_resource);
        out.extend_from_slice(&self.resource);
        head(&mut out, 2, of_scope);
        out.extend_from_slice(&self.scope);
        out.extend_from_slice(&spans.bytes);
        out
    }
}

fn nanoseconds(time: SystemTime) -> u64 {
    // Until the year 2554; none is before 1970.
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// Protocol Buffers' types on the wire.
const VARINT: u8 = 0;
const FIXED64: u8 = 1;
const LENGTH: u8 = 2;

/// Writes a field with a message or a text that `write` writes. The length comes before it, and is known after it: it nearly
/// always takes the one byte that is left for it.
#[inline]
fn message(out: &mut Vec<u8>, field: u8, write: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(&[field << 3 | LENGTH, 0]);
    let start = out.len();
    write(out);
    let length = out.len() - start;
    match u8::try_from(length) {
        Ok(length) if length < 0x80 => out[start - 1] = length,
        _ => widen(out, start, length),
    }
}

/// Moves what has been written behind a length that takes more than one byte.
#[inline(never)]
fn widen(out: &mut Vec<u8>, start: usize, length: usize) {
    let more = varint_bytes(length as u64) - 1;
    out.extend_from_slice(&[0; 9][..more]);
    out.copy_within(start..start + length, start + more);
    let mut rest = length as u64;
    for byte in &mut out[start - 1..start + more] {
        *byte = rest as u8 & 0x7f | 0x80;
        rest >>= 7;
    }
    out[start + more - 1] &= 0x7f;
}

#[inline]
fn bytes(out: &mut Vec<u8>, field: u8, value: &[u8]) {
    head(out, field, value.len());
    out.extend_from_slice(value);
}

#[inline]
fn head(out: &mut Vec<u8>, field: u8, length: usize) {
    out.push(field << 3 | LENGTH);
    varint(out, length as u64);
}

/// How long that is.
fn head_bytes(length: usize) -> usize {
    1 + varint_bytes(length as u64)
}

fn number(out: &mut Vec<u8>, field: u8, value: u64) {
    out.push(field << 3 | VARINT);
    varint(out, value);
}

fn fixed(out: &mut Vec<u8>, field: u8, value: u64) {
    out.push(field << 3 | FIXED64);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Seven bits in each byte, the lowest first; the last one has no bit above them.
#[inline]
fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn varint_bytes(value: u64) -> usize {
    ((u64::BITS - (value | 1).leading_zeros()) as usize).div_ceil(7)
}

fn write(out: &mut Vec<u8>, what: &impl Display) {
    struct Out<'a>(&'a mut Vec<u8>);
    impl fmt::Write for Out<'_> {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0.extend_from_slice(text.as_bytes());
            Ok(())
        }
    }
    // A Vec takes everything.
    let _ = fmt::Write::write_fmt(&mut Out(out), format_args!("{what}"));
}

/// What a collector answers (`ExportTraceServiceResponse`).
#[derive(Clone, PartialEq, prost::Message)]
struct Answer {
    #[prost(message, optional, tag = "1")]
    partial_success: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct PartialSuccess {
    #[prost(int64, tag = "1")]
    rejected_spans: i64,
    #[prost(string, tag = "2")]
    error_message: String,
}

/// How many spans of a message that it took a collector has rejected, and why in its words. `None` if it has nothing to say, as
/// most, or says something else.
#[must_use]
pub fn rejected_spans(answer: &[u8]) -> Option<(u64, String)> {
    let answer = <Answer as prost::Message>::decode(answer).ok()?;
    let PartialSuccess { rejected_spans, error_message } = answer.partial_success?;
    let spans = u64::try_from(rejected_spans).unwrap_or(0);
    (spans > 0 || !error_message.is_empty()).then_some((spans, error_message))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
    use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
    use opentelemetry_proto::tonic::resource::v1::Resource;
    use opentelemetry_proto::tonic::trace::v1::{self as proto, ResourceSpans, ScopeSpans, Status};
    use proptest::prelude::*;
    use prost::Message;

    use super::*;

    #[derive(Debug, Clone)]
    enum Value {
        Text(Vec<u8>),
        Word(String),
        Number(i64),
    }

    impl Value {
        fn expected(&self) -> any_value::Value {
            match self {
                Self::Text(bytes) => {
                    let cut = &bytes[..bytes.len().min(512)];
                    any_value::Value::StringValue(String::from_utf8_lossy(cut).into_owned())
                }
                Self::Word(word) => any_value::Value::StringValue(word.clone()),
                Self::Number(number) => any_value::Value::IntValue(*number),
            }
        }
    }

    fn pair(key: &str, value: any_value::Value) -> KeyValue {
        KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
    }

    /// What OpenTelemetry's own types say of a span.
    fn expected(span: &Span<'_>, attributes: &[(String, Value)]) -> proto::Span {
        let nanoseconds = |time: SystemTime| time.duration_since(UNIX_EPOCH).expect("since 1970").as_nanos();
        let flags = 0x100 | u32::from(span.is_sampled) | if span.has_remote_parent { 0x200 } else { 0 };
        proto::Span {
            trace_id: span.trace_id.to_be_bytes().to_vec(),
            span_id: span.span_id.to_be_bytes().to_vec(),
            parent_span_id: match span.parent_id {
                0 => Vec::new(),
                id => id.to_be_bytes().to_vec(),
            },
            flags,
            name: span.name.join(" "),
            kind: match span.kind {
                SpanKind::Internal => proto::span::SpanKind::Internal,
                SpanKind::Server => proto::span::SpanKind::Server,
                SpanKind::Client => proto::span::SpanKind::Client,
            }
            .into(),
            start_time_unix_nano: nanoseconds(span.began) as u64,
            end_time_unix_nano: nanoseconds(span.ended) as u64,
            attributes: attributes.iter().map(|(key, value)| pair(key, value.expected())).collect(),
            status: span.failure.map(|word| Status {
                message: word.to_owned(),
                code: proto::status::StatusCode::Error.into(),
            }),
            ..proto::Span::default()
        }
    }

    fn add(spans: &mut Spans, span: &Span<'_>, attributes: &[(String, Value)]) {
        spans.add(span, |told| {
            for (key, value) in attributes {
                match value {
                    Value::Text(bytes) => told.text(key, bytes),
                    Value::Word(word) => told.word(key, word),
                    Value::Number(number) => told.number(key, *number),
                }
            }
        });
    }

    fn decoded(spans: &Spans) -> ExportTraceServiceRequest {
        let source = SpanSource::new("vanward", |told| {
            told.word("service.name", "edge");
            told.number("process.pid", 7);
        });
        let bytes = source.message(spans);
        let message = ExportTraceServiceRequest::decode(&bytes[..]).expect("a message of OTLP");
        // As short as it can be: no length has more bytes than it needs.
        assert_eq!(message.encoded_len(), bytes.len());
        message
    }

    fn all(spans: Vec<proto::Span>) -> ExportTraceServiceRequest {
        let attributes = vec![
            pair("service.name", any_value::Value::StringValue("edge".to_owned())),
            pair("process.pid", any_value::Value::IntValue(7)),
        ];
        let scope = InstrumentationScope { name: "vanward".to_owned(), ..InstrumentationScope::default() };
        ExportTraceServiceRequest {
            resource_spans: vec![ResourceSpans {
                resource: Some(Resource { attributes, ..Resource::default() }),
                scope_spans: vec![ScopeSpans { scope: Some(scope), spans, ..ScopeSpans::default() }],
                ..ResourceSpans::default()
            }],
        }
    }

    fn span() -> Span<'static> {
        Span {
            trace_id: 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736,
            span_id: 2,
            parent_id: 1,
            has_remote_parent: true,
            is_sampled: true,
            kind: SpanKind::Server,
            name: &["GET", "/shop"],
            began: UNIX_EPOCH + Duration::from_secs(1),
            ended: UNIX_EPOCH + Duration::from_secs(2),
            failure: None,
        }
    }

    #[test]
    fn addresses_are_written_as_text() {
        let mut spans = Spans::of_request();
        let address = std::net::Ipv6Addr::LOCALHOST;
        spans.add(&span(), |told| told.displayed("client.address", &address));
        let message = decoded(&spans);
        let told = &message.resource_spans[0].scope_spans[0].spans[0];
        assert_eq!(
            told.attributes,
            [pair("client.address", any_value::Value::StringValue("::1".to_owned()))]
        );
    }

    #[test]
    fn texts_of_clients_are_bounded() {
        for (text, expected) in [
            (&b"a\xff"[..], "a\u{fffd}".to_owned()),
            (&[b'a'; 600], "a".repeat(512)),
            (&b"\xe2\x82\xff"[..], "\u{fffd}\u{fffd}".to_owned()),
            (b"", String::new()),
        ] {
            let mut spans = Spans::default();
            spans.add(&span(), |told| told.text("url.path", text));
            let message = decoded(&spans);
            let attribute = &message.resource_spans[0].scope_spans[0].spans[0].attributes[0];
            assert_eq!(*attribute, pair("url.path", any_value::Value::StringValue(expected)));
        }
    }

    fn value() -> impl Strategy<Value = Value> {
        prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..700).prop_map(Value::Text),
            "\\PC{0,200}".prop_map(Value::Word),
            any::<i64>().prop_map(Value::Number),
        ]
    }

    proptest! {
        /// Whatever is written, OpenTelemetry's own types read it as it is meant, and would write it no shorter.
        #[test]
        fn collectors_read_what_is_written(
            spans in proptest::collection::vec(
                (
                    (1..=u128::MAX, 1..=u64::MAX, any::<u64>(), any::<bool>(), any::<bool>(), 0..3usize),
                    proptest::collection::vec("\\PC{1,90}", 1..3),
                    (1..1u64 << 33, 0..1_000_000_000u32, any::<u32>(), any::<bool>()),
                    proptest::collection::vec(("[a-z._]{1,200}", value()), 0..10),
                ),
                0..4,
            ),
        ) {
            let (mut written, mut meant) = (Spans::default(), Vec::new());
            for ((trace_id, span_id, parent_id, has_remote_parent, is_sampled, kind), name, times, attributes) in &spans {
                let name: Vec<&str> = name.iter().map(String::as_str).collect();
                let (seconds, nanoseconds, microseconds, has_failed) = *times;
                let began = UNIX_EPOCH + Duration::new(seconds, nanoseconds);
                let span = Span {
                    trace_id: *trace_id,
                    span_id: *span_id,
                    parent_id: *parent_id,
                    has_remote_parent: *has_remote_parent,
                    is_sampled: *is_sampled,
                    kind: [SpanKind::Internal, SpanKind::Server, SpanKind::Client][*kind],
                    name: &name,
                    began,
                    ended: began + Duration::from_micros(microseconds.into()),
                    failure: has_failed.then_some("upstream-refused"),
                };
                let mut one = Spans::of_request();
                add(&mut one, &span, attributes);
                written.append(&one);
                meant.push(expected(&span, attributes));
            }
            prop_assert_eq!(written.count(), meant.len());
            prop_assert_eq!(decoded(&written), all(meant));
        }
    }

    #[test]
    fn what_a_collector_rejects() {
        use opentelemetry_proto::tonic::collector::trace::v1::{
            ExportTracePartialSuccess, ExportTraceServiceResponse,
        };
        let answer = |spans, error_message: &str| {
            let partial =
                ExportTracePartialSuccess { rejected_spans: spans, error_message: error_message.to_owned() };
            let answer = ExportTraceServiceResponse { partial_success: Some(partial) };
            rejected_spans(&prost::Message::encode_to_vec(&answer))
        };
        assert_eq!(answer(3, "too old"), Some((3, "too old".to_owned())));
        assert_eq!(answer(0, "slow down"), Some((0, "slow down".to_owned())));
        assert_eq!(answer(-1, "no"), Some((0, "no".to_owned())));
        assert_eq!(answer(0, ""), None);
        for other in [&b""[..], b"\x0a", b"ok", b"{\"partialSuccess\":{}}"] {
            assert_eq!(rejected_spans(other), None, "{other:x?}");
        }
    }
}
