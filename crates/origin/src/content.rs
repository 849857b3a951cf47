//! Content of the pages: one byte pattern. A page of N bytes is its first N bytes.
//!
//! The period of the pattern is a prime, so that bytes lost, doubled or moved by a round number are noticed.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::LazyLock;

use rustix::fs::{MemfdFlags, memfd_create};

/// The largest prime below 64 KiB.
pub(crate) const PERIOD_BYTES: usize = 65_521;

/// Number of periods kept in memory, so that from any offset at least three of them are contiguous.
const PERIODS: usize = 4;

/// Last-Modified of the fixed pages; it never changes.
pub(crate) const LAST_MODIFIED: &str = "Mon, 01 Jan 2024 00:00:00 GMT";
pub(crate) const LAST_MODIFIED_UNIX_SECONDS: u64 = 1_704_067_200;

/// The HTML page that benchmarks of load balancing request.
pub(crate) const HELLO: &[u8; 42] = b"<!doctype html><title>Hi</title><p>Hello!\n";

static BLOCK: LazyLock<Box<[u8]>> = LazyLock::new(|| {
    (0..PERIOD_BYTES * PERIODS).map(|index| pattern_byte((index % PERIOD_BYTES) as u64)).collect()
});

/// Byte `offset` of any body whose bytes nothing else decides (`/blank`, `/large`, `/chunked`, …), so that a client
/// can check what it received.
///
/// ```
/// let expected: Vec<u8> = (0..128).map(origin::body_byte).collect(); // what `/tiny` serves
/// assert!(expected.is_ascii());
/// ```
#[must_use]
pub fn body_byte(offset: u64) -> u8 {
    pattern_byte(offset % PERIOD_BYTES as u64)
}

/// Returns the longest contiguous piece of the pattern from `offset`, at most `length` bytes.
pub(crate) fn pattern(offset: u64, length: u64) -> &'static [u8] {
    let start = (offset % PERIOD_BYTES as u64) as usize;
    let piece = &BLOCK[start..];
    &piece[..usize::try_from(length).map_or(piece.len(), |length| length.min(piece.len()))]
}

/// Returns the piece of [`pattern`] as a range of a file for sendfile(2), which avoids a copy in the kernel. `None` if
/// the system has no such file.
pub(crate) fn pattern_file(offset: u64, length: u64) -> Option<(BorrowedFd<'static>, u64, usize)> {
    static FILE: LazyLock<Option<File>> = LazyLock::new(|| {
        let mut file = File::from(memfd_create("origin-pattern", MemfdFlags::CLOEXEC).ok()?);
        file.write_all(&BLOCK).ok()?;
        Some(file)
    });
    let file = FILE.as_ref()?;
    Some((file.as_fd(), offset % PERIOD_BYTES as u64, pattern(offset, length).len()))
}

/// A byte of the pattern: printable, in lines, and irregular, so that a shifted body is noticed.
fn pattern_byte(index: u64) -> u8 {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    if index % 80 == 79 {
        return b'\n';
    }
    LETTERS[(scramble(index) >> 58) as usize]
}

/// Output function of SplitMix64: 64 well mixed bits from a counter.
pub(crate) fn scramble(counter: u64) -> u64 {
    let mut z = counter.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_the_pattern_at_any_offset() {
        for offset in [0, 1, 65_520, 65_521, 65_522, 1 << 33] {
            let piece = pattern(offset, 1 << 40);
            assert!(piece.len() >= 3 * PERIOD_BYTES);
            for (index, byte) in piece.iter().enumerate() {
                assert_eq!(*byte, body_byte(offset + index as u64));
            }
        }
        assert_eq!(pattern(7, 0).len(), 0);
        assert_eq!(pattern(7, 3).len(), 3);
    }

    #[test]
    fn a_shifted_body_differs() {
        for shift in [1, 80, 1460, 4096, 8192, 16_384, 65_536, 1 << 20] {
            let same = (0..1000).filter(|&offset| body_byte(offset) == body_byte(offset + shift)).count();
            assert!(same < 100, "shift {shift}: {same} of 1000 bytes alike");
        }
    }

    #[test]
    fn the_date_is_the_number() {
        let moment = std::time::UNIX_EPOCH + std::time::Duration::from_secs(LAST_MODIFIED_UNIX_SECONDS);
        assert_eq!(httpdate::fmt_http_date(moment), LAST_MODIFIED);
    }
}
