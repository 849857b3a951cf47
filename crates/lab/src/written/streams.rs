//! Streams in a case, and combinations that are impossible.

use std::num::NonZeroUsize;

use report::results::{ClientVersion, Layer, OWN_GENERATOR, OriginProtocol, StreamKind};
use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::GivenPlan;
use super::values::Size;
use crate::plan::{CasePlan, OriginSource, PlanLoad, StreamPlan};

const STREAMS_MOST: usize = 1_000_000;

/// Streams in place of requests: their kind, or a table.
#[derive(Clone)]
pub(super) struct RawStreams {
    pub(super) kind: StreamKind,
    table: StreamsTable,
}

#[derive(Deserialize, Clone, Default)]
#[serde(deny_unknown_fields)]
struct StreamsTable {
    kind: Option<StreamKind>,
    per_connection: Option<NonZeroUsize>,
    message: Option<WrittenMessage>,
    size: Option<Size>,
    in_flight: Option<NonZeroUsize>,
    senders: Option<NonZeroUsize>,
    messages: Option<NonZeroUsize>,
    number_field: Option<String>,
    time_field: Option<String>,
    sender_field: Option<String>,
}

/// A valid template of a message.
#[derive(Deserialize, Clone)]
#[serde(try_from = "String")]
struct WrittenMessage(String);

impl TryFrom<String> for WrittenMessage {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text.starts_with('@') {
            return Err(
                "a message begins with @, which names a file elsewhere; expected text, hex:DIGITS or \
                        base64:TEXT"
                    .to_owned(),
            );
        }
        let wrong = |expected| format!("the message cannot be sent: it must be {expected}");
        load::StreamMessage::parse(&text).map_err(wrong).map(|_| Self(text))
    }
}

impl<'de> Deserialize<'de> for RawStreams {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct StreamOrList;
        impl<'de> Visitor<'de> for StreamOrList {
            type Value = RawStreams;

            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("a kind of streams, \"echo\", or { kind = \"echo\", size = \"200B\" }")
            }

            fn visit_str<E: serde::de::Error>(self, written: &str) -> Result<RawStreams, E> {
                let kind = StreamKind::deserialize(StrDeserializer::new(written))?;
                Ok(RawStreams { kind, table: StreamsTable::default() })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RawStreams, A::Error> {
                let table = StreamsTable::deserialize(MapAccessDeserializer::new(map))?;
                let kind = table.kind.ok_or_else(|| serde::de::Error::missing_field("kind"))?;
                Ok(RawStreams { kind, table })
            }
        }
        deserializer.deserialize_any(StreamOrList)
    }
}

impl RawStreams {
    pub(super) fn plan(&self) -> StreamPlan {
        let StreamsTable { per_connection, message, size, in_flight, senders, messages, .. } = &self.table;
        let mut fields = load::StampFields::default();
        for (field, given) in [
            (&mut fields.number, &self.table.number_field),
            (&mut fields.time, &self.table.time_field),
            (&mut fields.sender, &self.table.sender_field),
        ] {
            if let Some(given) = given {
                field.clone_from(given);
            }
        }
        StreamPlan {
            kind: self.kind,
            per_connection: per_connection.unwrap_or(NonZeroUsize::MIN),
            message: message.as_ref().map(|message| message.0.clone()),
            size_bytes: size.map_or(0, |size| usize::try_from(size.0).unwrap_or(usize::MAX)),
            in_flight: *in_flight,
            senders: senders.or((self.kind == StreamKind::FanOut).then_some(NonZeroUsize::MIN)),
            messages: *messages,
            fields,
        }
    }

    /// An option that this kind of streams does not have.
    pub(super) fn impossible(&self) -> Option<String> {
        let kind = self.kind;
        let StreamsTable { message, size, in_flight, senders, messages, .. } = &self.table;
        let word = kind.word();
        let sends = !kind.is_paced_by_server();
        // A message starts a server stream.
        let has_message = kind != StreamKind::Events;
        let wrong =
            |key: &str, of: &str| Some(format!("{key} applies to {of}, not to {word:?}; leave it out"));
        if (message.is_some() || size.is_some()) && !has_message {
            return wrong(if message.is_some() { "message" } else { "size" }, "streams that send");
        }
        if in_flight.is_some() && !(sends && kind != StreamKind::FanOut) {
            return wrong("in_flight", "streams whose messages are answered");
        }
        if senders.is_some() && kind != StreamKind::FanOut {
            return wrong("senders", "\"fan-out\"");
        }
        if messages.is_some() && !matches!(kind, StreamKind::GrpcClientStream | StreamKind::GrpcBidi) {
            return wrong("messages", "\"grpc-client-stream\" and \"grpc-bidi\"");
        }
        let most = load::MESSAGE_BYTES_MAX as u64;
        let is_long = size.is_some_and(|size| size.0 > most);
        is_long.then(|| "the messages are too long; expected a size of at most 16 MiB".to_owned())
    }
}

/// The reason why no proxy could be measured with the streams of a case.
pub(super) fn impossible(case: &CasePlan, given: GivenPlan<'_>) -> Option<String> {
    let streams = case.streams.as_ref()?;
    let (name, kind) = (&case.name, streams.kind);
    let what = kind.phrase();
    if case.generator.name != OWN_GENERATOR {
        return Some(format!("{name:?} has streams, which only the generator \"vanward\" measures"));
    }
    if case.has_list() || case.message.method.is_some() || case.message.body.is_some() {
        return Some(format!(
            "{name:?} has streams in place of requests; leave out urls, requests_from, and everything in request \
             except headers"
        ));
    }
    if case.features.cache_bytes.is_some() {
        return Some(format!("{name:?} has streams, which no cache stores; leave out cache"));
    }
    if given.says_keep_alive {
        return Some(format!(
            "{name:?} has streams, which manage their connections themselves; leave out say_keep_alive"
        ));
    }
    if let Some(wrong) = wrong_load(case, streams) {
        return Some(format!("{name:?}: {wrong}"));
    }
    let all = case.connections.get().saturating_mul(streams.per_connection.get());
    if all > STREAMS_MOST {
        return Some(format!("{name:?} has {all} streams; expected at most {STREAMS_MOST}"));
    }
    if streams.per_connection.get() > 1 && case.version == ClientVersion::Http1 {
        return Some(format!("{name:?} has several streams per_connection, which need version = \"2\""));
    }
    if kind.is_grpc() && case.version == ClientVersion::Http1 {
        return Some(format!("{name:?} has {what}, which are sent over HTTP/2; expected version = \"2\""));
    }
    match (case.layer, case.upstream) {
        (Layer::Seven, OriginProtocol::Http | OriginProtocol::Https) if kind.is_grpc() => {
            return Some(format!(
                "{name:?} has {what}, which reach origins over HTTP/2; expected upstream = \"h2\""
            ));
        }
        (Layer::Seven, OriginProtocol::H2) if kind.is_websocket() => {
            return Some(format!(
                "{name:?} has WebSockets, which reach origins over HTTP/1.1; expected upstream = \"http\" \
                                 or \"https\""
            ));
        }
        _ => {}
    }
    if kind == StreamKind::FanOut {
        if streams.senders.is_some_and(|senders| senders.get() >= all) {
            return Some(format!(
                "{name:?} has as many senders as streams; expected fewer: the others receive"
            ));
        }
        if given.clients > 1 {
            return Some(format!(
                "{name:?} has fan-out, whose messages a single generator must count; expected one client machine"
            ));
        }
        if matches!(&given.origins.source, OriginSource::Own(count) | OriginSource::Command(count, _) if count.get() > 1)
        {
            return Some(format!(
                "{name:?} has fan-out, and origins do not share rooms; expected origins = 1"
            ));
        }
    }
    wrong_path(case, kind, given)
}

/// The reason why a kind of streams does not support a load.
fn wrong_load(case: &CasePlan, streams: &StreamPlan) -> Option<&'static str> {
    match (&case.load, streams.kind) {
        (PlanLoad::Closed, StreamKind::FanOut) => {
            Some("a fan-out has no answers, so there is no closed loop; expected load = messages a second")
        }
        (PlanLoad::ShareOfSlowest(_), StreamKind::FanOut) => Some(
            "a fan-out has no answers, so there is no closed loop to take a share of; expected messages a second",
        ),
        (PlanLoad::Rate(_) | PlanLoad::ShareOfSlowest(_) | PlanLoad::Search(_), kind)
            if kind.is_paced_by_server() =>
        {
            Some("the server decides when it sends messages; leave out load")
        }
        (PlanLoad::Rate(_) | PlanLoad::ShareOfSlowest(_) | PlanLoad::Search(_), _)
            if streams.in_flight.is_some() =>
        {
            Some("in_flight applies only to closed loops; leave it out with a rate")
        }
        _ => None,
    }
}

/// Checks that the path has such streams, and that a probe can show that a proxy is ready.
fn wrong_path(case: &CasePlan, kind: StreamKind, given: GivenPlan<'_>) -> Option<String> {
    let (name, path) = (&case.name, &case.payload.path);
    match &given.origins.source {
        OriginSource::Own(_) => {
            let expected = match kind {
                StreamKind::Events => "/events",
                StreamKind::Echo => "/websocket",
                StreamKind::FanOut => "/websocket/fan-out",
                StreamKind::GrpcUnary | StreamKind::GrpcBidi => "/vanward.Origin/Echo",
                StreamKind::GrpcServerStream => "/vanward.Origin/Events",
                StreamKind::GrpcClientStream => {
                    return Some(format!(
                        "{name:?}: `vanward origin` has no method with client streams; expected your own [origin]"
                    ));
                }
            };
            let is_there = path.split('?').next() == Some(expected);
            (!is_there).then(|| {
                format!(
                    "{name:?}: `vanward origin` has {} at {expected}; expected that as payload",
                    kind.phrase()
                )
            })
        }
        OriginSource::Command(..) | OriginSource::Running(_) if given.origins.ready.is_none() => {
            Some(format!(
                "{name:?} has streams, which do not show that a proxy is ready; expected ready = \"/PATH\" in [origin]"
            ))
        }
        _ => None,
    }
}
