//! HTTP/3 of the lab: what the origin and the load generator share of it. Frames, field sections, a UDP socket.
//!
//! No code of the proxy is in it, so that a mistake of either is noticed by the other. A client lets the server have a dynamic
//! table of QPACK, as browsers do, and a server none. No field section waits for another: the settings allow no blocked stream.

/// Error codes.
mod code;
/// Variable-length integers.
mod varint;
/// Frames of a request's stream.
mod frame;
/// The peer's unidirectional streams: settings, GOAWAY, QPACK's instructions.
mod control;
/// Field sections to send, and the static table.
mod qpack;
/// Dynamic tables of HPACK and QPACK.
mod dynamic;
/// Field sections that came, and the dynamic table.
mod decoder;
/// Integers and strings of HPACK and QPACK.
pub mod prefixed;
/// Huffman code of those strings.
mod huffman;
/// UDP socket.
mod socket;

pub use code::{Broken, Code};
pub use control::{Control, Side, Told, opening};
pub use decoder::{Decoder, decode};
pub use dynamic::DynamicTable;
pub use frame::{Frames, Part, push_data_head, push_goaway, push_headers};
pub use prefixed::Undecodable;
pub use qpack::{push_field, push_prefix};
pub use socket::{Batch, Socket};
