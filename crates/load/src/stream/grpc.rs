//! Length-prefixed messages of gRPC (PROTOCOL-HTTP2.md) and its statuses. No I/O; messages are not decoded.

use super::assembled::Assembled;

/// A flag, and four bytes of length.
const PREFIX_BYTES: usize = 5;
const MESSAGE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Names of the statuses, indexed by their numbers.
const NAMES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// A violation of the framing by a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GrpcViolation {
    #[error("a gRPC message is compressed, although the call accepts none (grpc-accept-encoding: identity)")]
    Compressed,
    #[error("the flag of a gRPC message is neither 0 nor 1; is it gRPC?")]
    Flag,
    #[error("a gRPC message is larger than 64 MiB; is it gRPC?")]
    TooLarge,
    #[error("the call ended within a gRPC message")]
    Cut,
}

/// Reader of the messages of one body.
#[derive(Debug, Default)]
pub(crate) struct Messages {
    prefix: Assembled,
    /// The message, after its prefix.
    message: Option<Assembled>,
}

impl Messages {
    /// Reads the next bytes, and passes each complete message to `take`.
    pub(crate) fn read(
        &mut self,
        mut input: &[u8],
        mut take: impl FnMut(&[u8]),
    ) -> Result<(), GrpcViolation> {
        loop {
            if let Some(message) = &mut self.message {
                let Some(whole) = message.take(&mut input) else { return Ok(()) };
                take(whole);
                self.message = None;
            }
            if self.prefix.is_done() {
                self.prefix = Assembled::from_length(PREFIX_BYTES);
            }
            let Some(prefix) = self.prefix.take(&mut input) else { return Ok(()) };
            let &[flag, ref length @ ..] = prefix else { return Ok(()) };
            let length = length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
            match flag {
                0 if length > MESSAGE_BYTES_MAX => return Err(GrpcViolation::TooLarge),
                0 => self.message = Some(Assembled::from_length(length)),
                1 => return Err(GrpcViolation::Compressed),
                _ => return Err(GrpcViolation::Flag),
            }
        }
    }

    /// Ends the body. Fails within a message.
    pub(crate) fn end(&self) -> Result<(), GrpcViolation> {
        let is_between = self.message.is_none() && self.prefix.is_fresh();
        if is_between { Ok(()) } else { Err(GrpcViolation::Cut) }
    }
}

/// Appends a message with its prefix, not compressed.
pub(crate) fn append(message: &[u8], out: &mut Vec<u8>) {
    out.push(0);
    // The plan refuses larger messages.
    out.extend_from_slice(&u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend_from_slice(message);
}

pub(crate) fn name(status: u16) -> String {
    NAMES.get(usize::from(status)).map_or_else(|| status.to_string(), |name| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_however_they_are_split() {
        let long = vec![7; 70_000];
        let mut input = Vec::new();
        [&b""[..], b"a", b"", &long, b"xyz"].iter().for_each(|message| append(message, &mut input));
        assert_eq!(&input[..11], b"\0\0\0\0\0\0\0\0\0\x01a");
        for size in [1, 2, 5, 6, 7, 1000, input.len()] {
            let (mut messages, mut found) = (Messages::default(), Vec::new());
            for piece in input.chunks(size) {
                messages.read(piece, |message| found.push(message.to_vec())).expect("right messages");
            }
            assert!(found == [&b""[..], b"a", b"", &long, b"xyz"], "in pieces of {size}");
            assert_eq!(messages.end(), Ok(()));
        }
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let read = |input: &[u8]| {
            let mut messages = Messages::default();
            messages.read(input, |_| {}).and_then(|()| messages.end())
        };
        assert_eq!(read(b""), Ok(()));
        assert_eq!(read(b"\x01\0\0\0\x01a"), Err(GrpcViolation::Compressed));
        assert_eq!(read(b"<html"), Err(GrpcViolation::Flag));
        assert_eq!(read(b"\0\xff\0\0\0"), Err(GrpcViolation::TooLarge));
        for cut in [&b"\0"[..], b"\0\0\0\0\x02a", b"\0\0\0\0\0\0\0\0\0"] {
            assert_eq!(read(cut), Err(GrpcViolation::Cut), "{cut:?}");
        }
        assert_eq!([name(0), name(14), name(99)], ["OK", "UNAVAILABLE", "99"]);
    }
}
