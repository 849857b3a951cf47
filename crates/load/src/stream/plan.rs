//! Plan of a run with streams in place of requests. Plain serialisable values.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::plan::{Arrival, LoadPlan};
use crate::template::LoadTemplate;

/// Maximum size of a sent message.
pub const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Maximum number of unanswered messages of a stream.
const IN_FLIGHT_MAX: usize = 100_000;

/// The protocol of the streams, and their messages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StreamsPlan {
    pub workload: Workload,
    pub message: StreamMessage,
    /// Without a rate: messages that a stream sends before the first is answered.
    pub in_flight: usize,
    /// Field names for sender, number and time of a message.
    pub fields: StampFields,
}

/// The protocol and pattern of a run's streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Workload {
    Events,
    /// WebSockets whose server returns each message.
    Echo,
    /// WebSockets whose server sends the messages of some to all others.
    FanOut {
        /// Number of streams that send. Messages sent to them are not counted.
        senders: usize,
    },
    Grpc {
        call: Call,
        /// Messages of a [`Call::ClientStream`] or [`Call::Bidi`] call; `None` sends until the end of the run.
        messages: Option<u64>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Call {
    /// A message and its response.
    Unary,
    /// A message and many responses.
    ServerStream,
    /// Many messages, one response.
    ClientStream,
    /// Many messages, each with a response.
    Bidi,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StreamMessage {
    /// The text, with values such as `{{counter}}`.
    pub content: Vec<u8>,
    /// Whether `content` is hexadecimal digits between its values.
    pub is_hexadecimal: bool,
    /// Shorter messages are padded to this size with dots.
    pub size_bytes: usize,
}

/// Field names for sender, number and time of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StampFields {
    pub sender: String,
    /// Number of the message, counted up by one by its sender.
    pub number: String,
    /// Send time: seconds, milliseconds, microseconds or nanoseconds since 1970.
    pub time: String,
}

impl Default for StampFields {
    fn default() -> Self {
        Self { sender: "from".to_owned(), number: "seq".to_owned(), time: "sent_ns".to_owned() }
    }
}

impl Default for StreamsPlan {
    fn default() -> Self {
        Self {
            workload: Workload::Events,
            message: StreamMessage::default(),
            in_flight: 1,
            fields: StampFields::default(),
        }
    }
}

impl StreamMessage {
    /// A message with all fields that are measured: `from=0 seq=1 sent_ns=1700000000000000000`.
    pub fn stamped(size_bytes: usize) -> Self {
        let content = b"from={{stream}} seq={{counter}} sent_ns={{timestamp_ns}} ".to_vec();
        Self { content, is_hexadecimal: false, size_bytes }
    }

    /// Parses a message: text, `hex:DIGITS` or `base64:TEXT`, with values such as `{{counter}}`.
    ///
    /// # Errors
    /// The mistake, as the end of a sentence about the message.
    pub fn parse(text: &str) -> Result<Self, String> {
        let message = if let Some(digits) = text.strip_prefix("hex:") {
            Self { content: digits.as_bytes().to_vec(), is_hexadecimal: true, size_bytes: 0 }
        } else if let Some(encoded) = text.strip_prefix("base64:") {
            let content = BASE64_STANDARD
                .decode(encoded)
                .map_err(|error| format!("base64 after base64:, but is not: {error}"))?;
            Self { content, ..Self::default() }
        } else {
            Self { content: text.as_bytes().to_vec(), ..Self::default() }
        };
        message.checked()?;
        Ok(message)
    }

    /// The message as a template, or its mistake.
    fn checked(&self) -> Result<LoadTemplate, String> {
        let template = LoadTemplate::parse_message(&self.content).map_err(|(_, message)| message)?;
        if !self.is_hexadecimal {
            return Ok(template);
        }
        let odd = |()| "pairs of hexadecimal digits after hex:".to_owned();
        template.with_text(hexadecimal).map_err(odd)
    }

    pub(crate) fn template(&self) -> Result<LoadTemplate, Error> {
        self.checked().map_err(|expected| Error::Plan { what: "the message (--message)", expected })
    }
}

/// Parses hexadecimal digits, with or without spaces between pairs.
fn hexadecimal(text: &[u8]) -> Result<Vec<u8>, ()> {
    let digits = text.iter().filter(|byte| !byte.is_ascii_whitespace());
    let digits = digits.map(|byte| char::from(*byte).to_digit(16).map(|digit| digit as u8).ok_or(()));
    let digits: Vec<u8> = digits.collect::<Result<_, _>>()?;
    let (pairs, rest) = digits.as_chunks::<2>();
    if rest.is_empty() { Ok(pairs.iter().map(|[high, low]| high << 4 | low).collect()) } else { Err(()) }
}

impl Workload {
    /// Whether the streams send messages on a schedule or in a closed loop.
    pub(crate) fn sends(self) -> bool {
        !matches!(self, Self::Events | Self::Grpc { call: Call::ServerStream, .. })
    }

    /// Number of streams that send, among all.
    pub(crate) fn senders(self, streams: usize) -> usize {
        match self {
            Self::FanOut { senders } => senders,
            _ => streams,
        }
    }

    pub(crate) fn is_websocket(self) -> bool {
        matches!(self, Self::Echo | Self::FanOut { .. })
    }
}

/// Reports options that a plan with streams cannot have.
pub(crate) fn check(plan: &LoadPlan, streams: &StreamsPlan) -> Result<(), Error> {
    let wrong = |what: &'static str, expected: &str| Err(Error::Plan { what, expected: expected.to_owned() });
    if plan.urls.len() != 1 || !plan.listed.is_empty() {
        return wrong("the number of URLs", "1 for streams");
    }
    if plan.has_visits() || !plan.keepalive || plan.think_time.is_some() || !plan.breakdowns.is_empty() {
        return wrong(
            "a plan of streams",
            "without cookies, redirects, think time, tables and --no-keepalive",
        );
    }
    if !(1..=IN_FLIGHT_MAX).contains(&streams.in_flight) {
        return wrong("the number of unanswered messages (--in-flight)", "1 to 100000");
    }
    if streams.message.content.len().max(streams.message.size_bytes) > MESSAGE_BYTES_MAX {
        return wrong("the message", "at most 16 MiB");
    }
    let is_closed = plan.arrival == Arrival::Closed;
    match streams.workload {
        Workload::Grpc { .. } if !plan.http2 => return wrong("gRPC", "sent over HTTP/2"),
        Workload::Grpc { messages: Some(0), .. } => {
            return wrong("the messages of a call (--messages)", "at least 1");
        }
        Workload::FanOut { senders } if senders == 0 || senders >= plan.connections * plan.streams => {
            return wrong(
                "the number of senders (--senders)",
                "at least 1, and less than the connections (-c)",
            );
        }
        Workload::FanOut { .. } if is_closed => {
            return wrong(
                "fan-out",
                "given a rate (-R): a fan-out has no answers, so there is no closed loop",
            );
        }
        workload if !workload.sends() && !is_closed => {
            return wrong("the rate (-R)", "left out: the server decides when it sends messages");
        }
        _ => {}
    }
    streams.message.template().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::Values;

    #[test]
    fn a_hexadecimal_message_keeps_its_values() {
        let message =
            StreamMessage { content: b"0a 05{{counter 5}}fF".to_vec(), is_hexadecimal: true, size_bytes: 0 };
        let mut out = Vec::new();
        let template = message.template().expect("a message");
        template.render(&mut Values::of_stream(1, 0, 7, 0), &mut out);
        assert_eq!(out, b"\x0a\x0500007\xff");
        for content in ["0", "0g", "0{{counter}}0", "{{count}}"] {
            let message = StreamMessage { content: content.as_bytes().to_vec(), ..message.clone() };
            assert!(message.template().is_err(), "{content}");
        }
    }

    #[test]
    fn what_streams_cannot_have_is_refused_by_its_flag() {
        let plan = |workload, arrival: &Arrival| LoadPlan {
            stream: Some(Box::new(StreamsPlan { workload, ..StreamsPlan::default() })),
            arrival: arrival.clone(),
            ..LoadPlan::new("http://127.0.0.1/")
        };
        let rate = Arrival::Constant { requests_per_second: 5.0 };
        let grpc = |call| Workload::Grpc { call, messages: None };
        for (plan, named) in [
            (plan(Workload::Events, &rate), "-R"),
            (plan(Workload::FanOut { senders: 10 }, &rate), "--senders"),
            (plan(Workload::FanOut { senders: 0 }, &rate), "--senders"),
            (plan(Workload::FanOut { senders: 1 }, &Arrival::Closed), "-R"),
            (plan(grpc(Call::Unary), &rate), "HTTP/2"),
            (LoadPlan { http2: true, ..plan(grpc(Call::ServerStream), &rate) }, "-R"),
            (LoadPlan { keepalive: false, ..plan(Workload::Echo, &rate) }, "keepalive"),
        ] {
            let message = plan.check().expect_err(named).to_string();
            assert!(message.contains(named), "{message:?} does not name {named}");
        }
        plan(Workload::Events, &Arrival::Closed).check().expect("it runs");
        plan(Workload::FanOut { senders: 9 }, &rate).check().expect("it runs");
        LoadPlan { http2: true, ..plan(grpc(Call::Bidi), &rate) }.check().expect("it runs");
    }
}
