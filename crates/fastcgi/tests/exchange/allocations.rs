//! Once the memory for a head is allocated, further responses need no allocations.

use allocation_counter::measure;
use fastcgi::{Event, RecordType, Response, ScriptCandidates, ScriptRules, Stdin};

use crate::{LIMITS, end, padded, stderr, stdout};

/// Reads a response, and returns how many bytes of the body it has.
fn read(response: &mut Response, bytes: &[u8], text: &mut Vec<u8>) -> usize {
    let (mut rest, mut body) = (bytes, 0);
    loop {
        let (taken, event) = response.read(rest, text).unwrap();
        rest = &rest[taken..];
        match event {
            Event::Head { body: piece, .. } | Event::Body(piece) => body += piece.len(),
            Event::Stderr(_) => {}
            Event::End(_) => return body,
            Event::More => panic!("the response is whole"),
        }
    }
}

#[test]
fn a_response_on_a_kept_connection_allocates_nothing() {
    let records = padded(RecordType::Stdout, &[b'x'; 1000], 8).repeat(100);
    let bytes =
        [stdout("Status: 404\r\nContent-Length: 100000\r\n\r\n"), stderr("warning"), records, end(0, 0)]
            .concat();
    let mut response = Response::new(LIMITS, false);
    let mut text = Vec::new();
    // The first response makes room for heads.
    read(&mut response, &bytes, &mut text);
    let counts = measure(|| {
        for _ in 0..10 {
            response.begin(false);
            text.clear();
            assert_eq!(read(&mut response, &bytes, &mut text), 100_000);
        }
    });
    assert_eq!(counts.count_total, 0);
}

#[test]
fn paths_and_pieces_of_a_body_allocate_nothing() {
    let rules = ScriptRules::new(".php", Some("index.php"), true).unwrap();
    let mut memory = Vec::with_capacity(64);
    let counts = measure(|| {
        for path in ["/a.php/b%20c", "/about", "/x.jpg/a.php"] {
            let candidates = ScriptCandidates::new(path.as_bytes(), rules, &mut memory).unwrap();
            assert!(candidates.first_existing(|name| name == b"/index.php" || name == b"/a.php").is_some());
        }
        assert_eq!(Stdin::new(100_000).record(100_000).map(|(_, taken)| taken), Ok(0xfff8));
    });
    assert_eq!(counts.count_total, 0);
}
