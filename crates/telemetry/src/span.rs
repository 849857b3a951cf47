//! Spans in the form in which collectors get them: OTLP messages (Protocol Buffers). Implements only the messages that
//! are written.
//!
//! A span is encoded once, by its observer. A message consists of a head and the bytes of many spans.

use std::fmt::{self, Display};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::wire::{self, WireValue, bytes, fixed, head, head_bytes, message, number};

/// The longest text of an attribute, in bytes.
const TEXT_MAX: usize = 512;
/// Room for the spans of a usual request, in bytes.
const ROOM: usize = 1536;

/// `TraceFlags.sampled` of the flags of a span.
const SAMPLED: u32 = 0x001;
/// Flag of a span: `REMOTE_PARENT` is valid.
const KNOWS_REMOTE: u32 = 0x100;
/// Flag of a span: its parent belongs to another process.
const REMOTE_PARENT: u32 = 0x200;
/// `Status.code` of a span that failed.
const STATUS_ERROR: u64 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// A step within the proxy.
    Internal = 1,
    /// A received request.
    Server = 2,
    /// A sent request: an attempt with a server.
    Client = 3,
}

/// A span that has ended, without its attributes.
#[derive(Debug, Clone, Copy)]
pub struct EndedSpan<'a> {
    /// Never 0.
    pub trace_id: u128,
    /// The span's own ID; never 0.
    pub span_id: u64,
    /// The parent span; 0 if there is none.
    pub parent_id: u64,
    /// Whether the parent belongs to another process.
    pub has_remote_parent: bool,
    /// Whether the trace was chosen for recording before its end was known.
    pub is_sampled: bool,
    pub kind: SpanKind,
    /// The words of its name, to be separated by spaces.
    pub name: &'a [&'a str],
    pub began: SystemTime,
    pub ended: SystemTime,
    /// The log word of its failure, if it failed.
    pub failure: Option<&'static str>,
}

/// Encoded spans.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Spans {
    /// `ScopeSpans.spans`, each with tag and length.
    bytes: Vec<u8>,
    count: usize,
}

impl Spans {
    /// An empty list with room for the spans of a request.
    #[must_use]
    pub fn of_request() -> Self {
        Self { bytes: Vec::with_capacity(ROOM), count: 0 }
    }

    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// The length of the encoded spans.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Adds a span, with the attributes that `tell` writes.
    pub fn add(&mut self, span: &EndedSpan<'_>, tell: impl FnOnce(&mut Attributes<'_>)) {
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

    /// Adds the spans of another request.
    pub fn append(&mut self, more: &Self) {
        self.bytes.extend_from_slice(&more.bytes);
        self.count += more.count;
    }
}

/// The attributes of a span or a process. Names follow OpenTelemetry's semantic conventions if these define one.
pub struct Attributes<'a> {
    out: &'a mut Vec<u8>,
    field: u8,
}

impl Attributes<'_> {
    /// Text from outside: invalid UTF-8 is replaced, and long text is cut.
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

    pub fn displayed(&mut self, name: &str, what: &impl Display) {
        self.value(name, |out| message(out, 1, |out| write(out, what)));
    }

    pub fn number(&mut self, name: &str, value: i64) {
        // A negative number is written as the unsigned number with the same bits.
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

pub struct SpanSource {
    /// `ResourceSpans.resource`, with tag and length.
    resource: Vec<u8>,
    /// `ScopeSpans.scope`, with tag and length.
    scope: Vec<u8>,
}

impl SpanSource {
    /// A process, with the attributes that `tell` writes, and the program's name.
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
    // Valid until the year 2554; no time is before 1970.
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

fn write(out: &mut Vec<u8>, what: &impl Display) {
    struct SpanOut<'a>(&'a mut Vec<u8>);
    impl fmt::Write for SpanOut<'_> {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0.extend_from_slice(text.as_bytes());
            Ok(())
        }
    }
    // Writing to a Vec cannot fail.
    let _ = fmt::Write::write_fmt(&mut SpanOut(out), format_args!("{what}"));
}

/// The number of spans of an accepted message that a collector has rejected, and its reason. `None` if the answer
/// reports no rejection, like most.
#[must_use]
pub fn rejected_spans(answer: &[u8]) -> Option<(u64, String)> {
    let (mut partial, mut spans, mut why) = (None, 0, &b""[..]);
    // `ExportTraceServiceResponse`, and its `partial_success`.
    wire::read(answer, |field, value| {
        if let (1, WireValue::Bytes(message)) = (field, value) {
            partial = Some(message);
        }
    })?;
    wire::read(partial?, |field, value| match (field, value) {
        (1, WireValue::Number(rejected)) => spans = u64::try_from(rejected.cast_signed()).unwrap_or(0),
        (2, WireValue::Bytes(text)) => why = text,
        _ => {}
    })?;
    let why = str::from_utf8(why).ok()?;
    (spans > 0 || !why.is_empty()).then(|| (spans, why.to_owned()))
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

    /// The span in OpenTelemetry's own types.
    fn expected(span: &EndedSpan<'_>, attributes: &[(String, Value)]) -> proto::Span {
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

    fn add(spans: &mut Spans, span: &EndedSpan<'_>, attributes: &[(String, Value)]) {
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
        // The encoding is the shortest one: no length takes more bytes than necessary.
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

    fn span() -> EndedSpan<'static> {
        EndedSpan {
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
        /// OpenTelemetry's own types decode every message to the same content, and would not encode it shorter.
        #[test]
        fn collectors_read_the_output(
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
                let span = EndedSpan {
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
    fn rejections_by_a_collector() {
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
