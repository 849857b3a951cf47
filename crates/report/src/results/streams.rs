//! Streams of a case, and what they have beside other figures.

use serde::{Deserialize, Serialize};

use crate::latency::Latency;

/// Streams of a case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Streams {
    /// What they are.
    pub kind: StreamKind,
    /// Streams on each connection.
    pub per_connection: usize,
    /// Smallest size of a message that is sent; 0 if the plan says none.
    pub message_bytes: usize,
    /// Streams that send, if not all do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub senders: Option<usize>,
}

/// What the streams of a case are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StreamKind {
    /// Server-sent events.
    Events,
    /// WebSockets whose server returns each message.
    Echo,
    /// WebSockets whose server gives the messages of some to all others.
    FanOut,
    /// gRPC calls with one message and one response.
    GrpcUnary,
    /// gRPC calls with one message and many responses.
    GrpcServerStream,
    /// gRPC calls with many messages and one response.
    GrpcClientStream,
    /// gRPC calls with many messages, each with a response.
    GrpcBidi,
}

impl StreamKind {
    /// All kinds.
    pub const ALL: [Self; 7] = [
        Self::Events,
        Self::Echo,
        Self::FanOut,
        Self::GrpcUnary,
        Self::GrpcServerStream,
        Self::GrpcClientStream,
        Self::GrpcBidi,
    ];

    /// Name in plans.
    pub fn word(self) -> &'static str {
        match self {
            Self::Events => "events",
            Self::Echo => "echo",
            Self::FanOut => "fan-out",
            Self::GrpcUnary => "grpc-unary",
            Self::GrpcServerStream => "grpc-server-stream",
            Self::GrpcClientStream => "grpc-client-stream",
            Self::GrpcBidi => "grpc-bidi",
        }
    }

    /// Name for readers.
    pub fn phrase(self) -> &'static str {
        match self {
            Self::Events => "server-sent events",
            Self::Echo => "WebSocket echo",
            Self::FanOut => "WebSocket fan-out",
            Self::GrpcUnary => "gRPC unary calls",
            Self::GrpcServerStream => "gRPC server streams",
            Self::GrpcClientStream => "gRPC client streams",
            Self::GrpcBidi => "gRPC bidirectional streams",
        }
    }

    /// Whether the server says when messages come, and clients send none.
    pub fn is_paced_by_server(self) -> bool {
        matches!(self, Self::Events | Self::GrpcServerStream)
    }

    /// Whether its streams are WebSockets.
    pub fn is_websocket(self) -> bool {
        matches!(self, Self::Echo | Self::FanOut)
    }

    /// Whether its streams are gRPC calls.
    pub fn is_grpc(self) -> bool {
        !matches!(self, Self::Events | Self::Echo | Self::FanOut)
    }
}

/// Figures that only streams have. In the other figures, a request is a message, and its latency is the delay.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StreamsMeasured {
    /// Streams opened, also before the measured window and again.
    pub opened: u64,
    /// Attempts to open a stream that failed.
    pub not_opened: u64,
    /// Streams that ended before the measurement did.
    pub closed_early: u64,
    /// Streams opened again after that.
    pub reconnected: u64,
    /// Messages sent.
    pub sent: u64,
    /// Messages that did not arrive, or were not answered.
    pub lost: u64,
    /// Messages that arrived twice.
    pub duplicates: u64,
    /// Messages that arrived after a later one.
    pub out_of_order: u64,
    /// Times between two messages of a stream.
    pub gaps: Latency,
    /// Longest time without a message on a stream, also after its last one.
    pub longest_silence_us: u64,
}

impl StreamsMeasured {
    /// The figures of two parts of the same load.
    #[must_use]
    pub fn merged(&self, other: &Self) -> Self {
        Self {
            opened: self.opened + other.opened,
            not_opened: self.not_opened + other.not_opened,
            closed_early: self.closed_early + other.closed_early,
            reconnected: self.reconnected + other.reconnected,
            sent: self.sent + other.sent,
            lost: self.lost + other.lost,
            duplicates: self.duplicates + other.duplicates,
            out_of_order: self.out_of_order + other.out_of_order,
            gaps: Latency::merged([&self.gaps, &other.gaps]),
            longest_silence_us: self.longest_silence_us.max(other.longest_silence_us),
        }
    }
}
