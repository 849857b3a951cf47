//! Validators of files (RFC 9110 §8.8): a strong entity tag from length and modification time, and Last-Modified.

use std::io::Write;
use std::time::{Duration, UNIX_EPOCH};

use coding::Coding;

use crate::root::FileState;
use crate::siblings::extension;

/// Appends the entity tag of a file, with its quotes. A precompressed sibling is another representation (RFC 9110
/// §8.8.3.3), so its tag differs even if length and time are equal.
pub fn push_etag(state: &FileState, coding: Option<Coding>, out: &mut Vec<u8>) {
    let suffix = coding.map_or("", extension).replace('.', "-");
    let _ = write!(out, "\"{:x}-{:x}{suffix}\"", state.modified_ns, state.bytes);
}

/// Returns Last-Modified in seconds since 1970, and as text; never later than now (RFC 9110 §8.8.2.1).
#[must_use]
pub fn last_modified(state: &FileState, now_unix_seconds: u64) -> (u64, String) {
    let seconds = u64::try_from(state.modified_ns / 1_000_000_000).unwrap_or(0).min(now_unix_seconds);
    (seconds, httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc9110_8_8_a_file_has_strong_validators() {
        let state = FileState { bytes: 255, modified_ns: 1_727_776_800_000_000_001, ..FileState::default() };
        let etag = |state: &FileState, coding| {
            let mut out = Vec::new();
            push_etag(state, coding, &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(etag(&state, None), "\"17fa4bd86f294001-ff\"");
        let later = FileState { modified_ns: state.modified_ns + 1, ..state };
        let coded = crate::siblings::SIBLINGS.map(|coding| etag(&state, Some(coding)));
        let mut tags = vec![etag(&state, None), etag(&later, None)];
        tags.extend(coded);
        tags.sort_unstable();
        tags.dedup();
        assert_eq!(tags.len(), 5, "{tags:?}");
        assert_eq!(
            last_modified(&state, u64::MAX),
            (1_727_776_800, "Tue, 01 Oct 2024 10:00:00 GMT".to_owned())
        );
        // RFC 9110 §8.8.2.1: a time in the future is not sent, nor one before 1970.
        assert_eq!(last_modified(&state, 1_000_000_000).0, 1_000_000_000);
        let ancient = FileState { modified_ns: -1, ..state };
        assert_eq!(last_modified(&ancient, 5), (0, "Thu, 01 Jan 1970 00:00:00 GMT".to_owned()));
    }
}
