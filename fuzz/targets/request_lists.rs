//! Lists of requests for the load generator: read or refused, every mistake at a place in its file, and what is read can be
//! handed over and read again. The first byte chooses the format, and whether there is a host for paths.

#![no_main]

use libfuzzer_sys::fuzz_target;
use load::requests::{Format, Source, has_methods, here, hosts, parse, parse_tables};

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, text)) = bytes.split_first() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let formats = [Format::Toml, Format::Http, Format::Har, Format::Lines, Format::Handed];
    let format = formats[usize::from(*choice & 0x7f) % formats.len()];
    let base = (choice & 0x80 != 0).then_some("http://a.test:81/x");
    // Names of an odd length are there.
    let file = |name: &str| match name.len() % 2 {
        1 => Ok(name.as_bytes().to_vec()),
        _ => Err("there is none".to_owned()),
    };
    let source = Source { text, file: "list", base, hosts: &[], given: &["cookie".to_owned()], read: &file };
    has_methods(text);
    // Anywhere in a larger text.
    let whole = 0..text.len();
    parse_tables(&source, &whole).ok();
    let mut listed = match parse(format, &source) {
        Ok(listed) => listed,
        Err(mistakes) => {
            assert!(!mistakes.is_empty() && mistakes.len() <= 20);
            for mistake in mistakes {
                let line = text.split('\n').nth(mistake.line.wrapping_sub(1)).expect("a line of the text");
                // One past the end is where something is missing.
                assert!((1..=line.chars().count() + 1).contains(&mistake.column), "{mistake}");
                assert!(!mistake.message.is_empty());
            }
            return;
        }
    };
    assert!(!listed.is_empty() && listed.iter().any(|request| request.weight > 0));
    assert!(hosts(&listed).iter().all(|host| host.contains("://")), "{listed:?}");
    for request in &listed {
        assert!(!request.method.is_empty() && request.headers.iter().all(|field| field.contains(':')));
    }
    listed.iter_mut().for_each(here);
    assert!(listed.iter().all(|request| request.url.starts_with('/')), "{listed:?}");
    let text = serde_json::to_string(&listed).expect("JSON");
    let again = parse(Format::Handed, &Source { text: &text, base: Some("http://b.test"), ..source });
    let mut again = again.expect("what was read is a list");
    again.iter_mut().for_each(here);
    assert_eq!(again, listed);
});
