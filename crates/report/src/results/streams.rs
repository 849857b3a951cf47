//! Streams of a case, and their additional figures.

use serde::{Deserialize, Serialize};

use crate::latency::LatencyHistogram;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamResults {
    pub kind: StreamKind,
    pub per_connection: usize,
    /// Smallest size of a sent message; 0 if the plan has none.
    pub message_bytes: usize,
    /// Number of streams that send, if not all do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub senders: Option<usize>,
}

/// The protocol and pattern of streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StreamKind {
    Events,
    /// WebSockets whose server returns each message.
    Echo,
    /// WebSockets whose server sends each message of some to all others.
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

    /// Whether the server decides when messages are sent, and clients send none.
    pub fn is_paced_by_server(self) -> bool {
        matches!(self, Self::Events | Self::GrpcServerStream)
    }

    pub fn is_websocket(self) -> bool {
        matches!(self, Self::Echo | Self::FanOut)
    }

    pub fn is_grpc(self) -> bool {
        !matches!(self, Self::Events | Self::Echo | Self::FanOut)
    }
}

/// Figures that only streams have. In the other figures, a request is a message, and its latency is the delay.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StreamsMeasured {
    /// Streams opened, including those before the measured window and reopened ones.
    pub opened: u64,
    pub not_opened: u64,
    /// Streams that ended before the measurement did.
    pub closed_early: u64,
    /// Streams that were reopened after that.
    pub reconnected: u64,
    pub sent: u64,
    /// Messages that did not arrive, or were not answered.
    pub lost: u64,
    /// Messages that arrived twice.
    pub duplicates: u64,
    /// Messages that arrived after a later one.
    pub out_of_order: u64,
    /// Times between two messages of a stream.
    pub gaps: LatencyHistogram,
    /// Longest time without a message on a stream, also after its last one.
    pub longest_silence_us: u64,
}

impl StreamsMeasured {
    /// Combines the figures of two parts of the same load.
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
            gaps: LatencyHistogram::merged([&self.gaps, &other.gaps]),
            longest_silence_us: self.longest_silence_us.max(other.longest_silence_us),
        }
    }
}
