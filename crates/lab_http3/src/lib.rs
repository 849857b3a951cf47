//! HTTP/3 for the lab, shared by the origin and the load generator: frames, field sections, a UDP socket.
//!
//! It shares no code with the proxy, so that each reveals the other's mistakes. A client allows the server a dynamic
//! table of QPACK, as browsers do; a server allows none. The settings allow no blocked stream.

/// Error codes.
mod code;
/// Variable-length integers.
mod varint;
/// Frames of a request stream.
mod frame;
/// The peer's unidirectional streams: settings, GOAWAY, QPACK instructions.
mod control;
/// Field sections to send, and the static table.
mod qpack;
/// Dynamic tables of HPACK and QPACK.
mod dynamic;
/// Received field sections.
mod decoder;
/// Integers and strings of HPACK and QPACK.
pub mod prefixed;
/// Huffman code of strings.
mod huffman;
/// UDP socket.
mod socket;

pub use code::{LabH3Code, PeerViolation};
pub use control::{ConnectionSide, LabControl, LabPeerSettings, opening};
pub use decoder::{LabQpackDecoder, decode};
pub use dynamic::DynamicTable;
pub use frame::{Frames, StreamPart, push_data_head, push_goaway, push_headers};
pub use prefixed::Undecodable;
pub use qpack::{push_field, push_prefix};
pub use socket::{LabUdpSocket, ReceiveBatch};
