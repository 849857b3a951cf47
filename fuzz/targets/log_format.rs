//! Formats of the access log: rejected with a place, or writing one line for a request, which in JSON is an object.
//! The format is the text before the first zero byte; the rest is a client's bytes.

#![no_main]

use std::net::{IpAddr, Ipv4Addr};

use libfuzzer_sys::fuzz_target;
use logline::{Headers, LineBatch, LineFormat, LineWriter, LogEntry, LoggedQuery, Masks, More, Timestamp};

/// Gives every field this value.
#[derive(Debug)]
struct Sent<'a>(&'a [u8]);

impl Headers for Sent<'_> {
    fn request(&self, _name: &[u8], see: &mut dyn FnMut(&[u8])) {
        see(self.0);
    }

    fn response(&self, _name: &[u8], see: &mut dyn FnMut(&[u8])) {
        see(self.0);
        see(self.0);
    }
}

fuzz_target!(|bytes: &[u8]| {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    let (format, sent) = (&bytes[..end], &bytes[end..]);
    let Ok(text) = std::str::from_utf8(format) else { return };
    let fields: Vec<String> = text.split(' ').map(str::to_owned).collect();
    let formats =
        [LineFormat::new(text, &[]), LineFormat::new("json", &fields), LineFormat::new("w3c", &fields)];
    for format in formats {
        let format = match format {
            Ok(format) => format,
            Err(error) => {
                let length = if error.is_in_fields { fields.len() } else { text.len() + 1 };
                assert!(error.place < length.max(1), "{error:?}");
                continue;
            }
        };
        let headers = Sent(sent);
        let detail = String::from_utf8_lossy(sent);
        let entry = LogEntry {
            method: sent,
            target: sent,
            referer: sent,
            user_agent: sent,
            host: sent,
            detail: Some(&detail),
            more: &More { request_id: sent, headers: &headers, ..More::NONE },
            ..LogEntry::new(IpAddr::V4(Ipv4Addr::LOCALHOST))
        };
        let columns = format.has_directives().then_some(fields.len());
        let is_object = format.is_json_template();
        for query in [LoggedQuery::Full, LoggedQuery::Masked, LoggedQuery::Omitted] {
            let mut batch = LineBatch::default();
            let masks = Masks { query, ..Masks::default() };
            LineWriter::new(format.clone(), masks.clone()).write(&entry, &Timestamp::new(), &mut batch);
            let line = str::from_utf8(batch.lines()).expect("a line is text");
            let written = line.strip_suffix('\n').expect("a line ends");
            assert!(!written.contains(char::is_control), "{written:?}");
            if let Some(columns) = columns {
                assert_eq!(written.split(' ').count(), columns, "{written:?}");
            }
            if is_object {
                // A format that writes an object for an empty entry does so for any.
                let mut empty = LineBatch::default();
                let nobody = LogEntry::new(IpAddr::V4(Ipv4Addr::LOCALHOST));
                LineWriter::new(format.clone(), masks).write(&nobody, &Timestamp::new(), &mut empty);
                let is_one = |line: &[u8]| serde_json::from_slice::<serde_json::Value>(line).is_ok();
                assert!(!is_one(empty.lines()) || is_one(line.as_bytes()), "{line}");
            }
        }
    }
});
