//! Record headers (FastCGI 1.0 §3.3), and the records that start, end and abort a request.

/// The size of a record header.
pub const HEADER_BYTES: usize = 8;
/// The most content of a record (FastCGI §3.3).
pub const CONTENT_MAX: usize = 65_535;
/// Longest content of a record that this crate writes: a multiple of 8, so padding is not needed. php-fpm rejects a
/// record whose content and padding exceed 65,535 bytes together.
pub const PIECE_MAX: usize = 0xfff8;
/// The ID of every request: nothing is multiplexed, so one number serves all of them.
pub const REQUEST_ID: u16 = 1;

/// The version of the protocol.
pub(crate) const VERSION: u8 = 1;
/// Role of an application that answers HTTP requests (FastCGI §6.2).
const RESPONDER: u8 = 1;
/// Keep the connection after the response (FastCGI §5.1).
const KEEP_CONN: u8 = 1;

/// Type of a record (FastCGI §8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordType {
    /// Starts a request.
    BeginRequest = 1,
    AbortRequest = 2,
    /// Ends a response.
    EndRequest = 3,
    /// Parameters of a request.
    Params = 4,
    /// Body of a request.
    Stdin = 5,
    /// Head and body of a response.
    Stdout = 6,
    /// Error output.
    Stderr = 7,
    /// Second input of a filter.
    Data = 8,
    /// Asks for variables of the application.
    GetValues = 9,
    /// Variables of the application.
    GetValuesResult = 10,
    /// The application does not know the type of a management record.
    UnknownType = 11,
}

impl RecordType {
    /// The type with this number.
    pub fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::BeginRequest,
            2 => Self::AbortRequest,
            3 => Self::EndRequest,
            4 => Self::Params,
            5 => Self::Stdin,
            6 => Self::Stdout,
            7 => Self::Stderr,
            8 => Self::Data,
            9 => Self::GetValues,
            10 => Self::GetValuesResult,
            11 => Self::UnknownType,
            _ => return None,
        })
    }
}

/// A record header, with any version, type and request ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The version of the protocol; 1.
    pub version: u8,
    /// The number of the record's [`RecordType`].
    pub kind: u8,
    /// The request ID; 0 for management records.
    pub id: u16,
    /// The length of the content.
    pub content: u16,
    /// The length of the padding.
    pub padding: u8,
}

impl Header {
    /// The header of a record of our request, without padding.
    pub const fn new(kind: RecordType, content: u16) -> Self {
        Self { version: VERSION, kind: kind as u8, id: REQUEST_ID, content, padding: 0 }
    }

    /// Decodes a header. Every eight bytes are one; the caller checks its fields.
    pub const fn decode(bytes: [u8; HEADER_BYTES]) -> Self {
        let [version, kind, id1, id0, content1, content0, padding, _reserved] = bytes;
        Self {
            version,
            kind,
            id: u16::from_be_bytes([id1, id0]),
            content: u16::from_be_bytes([content1, content0]),
            padding,
        }
    }

    /// Encodes the header.
    pub const fn encode(self) -> [u8; HEADER_BYTES] {
        let [id1, id0] = self.id.to_be_bytes();
        let [content1, content0] = self.content.to_be_bytes();
        [self.version, self.kind, id1, id0, content1, content0, self.padding, 0]
    }
}

/// The record that starts a request, for a responder. With `keep`, the application leaves the connection open after its
/// response (FastCGI §5.1).
pub const fn begin_request(keep: bool) -> [u8; 2 * HEADER_BYTES] {
    let [a, b, c, d, e, f, g, h] = Header::new(RecordType::BeginRequest, 8).encode();
    let flags = if keep { KEEP_CONN } else { 0 };
    [a, b, c, d, e, f, g, h, 0, RESPONDER, flags, 0, 0, 0, 0, 0]
}

/// The record that ends the parameters of a request (FastCGI §5.2).
pub(crate) const PARAMS_END: [u8; HEADER_BYTES] = Header::new(RecordType::Params, 0).encode();

/// The record that aborts a request (FastCGI §5.4). php-fpm does not read it while a script runs, so closing the
/// connection is what stops a response.
pub const ABORT: [u8; HEADER_BYTES] = Header::new(RecordType::AbortRequest, 0).encode();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_as_in_the_examples_of_the_specification() {
        assert_eq!(begin_request(false), *b"\x01\x01\0\x01\0\x08\0\0\0\x01\0\0\0\0\0\0");
        assert_eq!(begin_request(true), *b"\x01\x01\0\x01\0\x08\0\0\0\x01\x01\0\0\0\0\0");
        assert_eq!(PARAMS_END, *b"\x01\x04\0\x01\0\0\0\0");
        assert_eq!(ABORT, *b"\x01\x02\0\x01\0\0\0\0");
    }

    #[test]
    fn headers_decode_to_what_was_encoded() {
        let header = Header { version: 1, kind: 7, id: 0x0102, content: 0xfffe, padding: 255 };
        assert_eq!(header.encode(), *b"\x01\x07\x01\x02\xff\xfe\xff\0");
        assert_eq!(Header::decode(header.encode()), header);
        // FastCGI §3.3: the reserved byte has no meaning.
        assert_eq!(Header::decode(*b"\x01\x07\x01\x02\xff\xfe\xff\x99"), header);
    }

    #[test]
    fn types_have_their_numbers() {
        for number in 0..=255 {
            let kind = RecordType::from_number(number);
            assert_eq!(kind.is_some(), (1..=11).contains(&number));
            assert!(kind.is_none_or(|kind| kind as u8 == number));
        }
    }
}
