//! Captured traffic of any source: what is read can be written and read again, also with its secrets masked. The first
//! byte selects the source; a format of a log is the text up to the first zero byte.

#![no_main]

use capture::{Capture, CaptureError, LogReader, LogSource, Mask};
use libfuzzer_sys::fuzz_target;

const LOGS: [LogSource; 6] = [
    LogSource::Nginx,
    LogSource::Apache,
    LogSource::Haproxy,
    LogSource::Caddy,
    LogSource::Traefik,
    LogSource::Vanward,
];

fuzz_target!(|bytes: &[u8]| {
    let Some((selector, bytes)) = bytes.split_first() else { return };
    let read = match usize::from(selector % 11) {
        index @ 0..=5 => LogReader::new(LOGS[index]).read(bytes),
        index @ 6..=7 => with_format(LOGS[index - 6], bytes),
        8 => capture::har(bytes),
        9 => capture::pcap(bytes, &[]),
        _ => match std::str::from_utf8(bytes) {
            Ok(text) => capture::read(text),
            Err(_) => return,
        },
    };
    let Ok(mut capture) = read else { return };
    assert!(!capture.requests.is_empty() || selector % 11 == 10);
    assert_eq!(capture::read(&capture::write(&capture)).as_ref(), Ok(&capture));
    Mask::new([7; 32]).apply(&mut capture);
    assert!(capture.is_masked);
    assert_eq!(capture::read(&capture::write(&capture)), Ok(capture));
});

fn with_format(source: LogSource, bytes: &[u8]) -> Result<Capture, CaptureError> {
    let text = String::from_utf8_lossy(bytes);
    let (format, lines) = text.split_once('\0').unwrap_or((&text, ""));
    LogReader::new(source).with_format(format)?.read(lines.as_bytes())
}
