//! Request lists for the load generator: rejected with each mistake at a place in its file, or passed on and read
//! again. The first byte selects the format, and whether there is a host for paths.

#![no_main]

use libfuzzer_sys::fuzz_target;
use load::requests::{ListFormat, RequestSource, has_methods, here, hosts, parse, parse_tables};

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, text)) = bytes.split_first() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let formats =
        [ListFormat::Toml, ListFormat::Http, ListFormat::Har, ListFormat::Lines, ListFormat::Handed];
    let format = formats[usize::from(*choice & 0x7f) % formats.len()];
    let base = (choice & 0x80 != 0).then_some("http://a.test:81/x");
    // Files with names of odd length exist.
    let file = |name: &str| match name.len() % 2 {
        1 => Ok(name.as_bytes().to_vec()),
        _ => Err("there is none".to_owned()),
    };
    let source =
        RequestSource { text, file: "list", base, hosts: &[], given: &["cookie".to_owned()], read: &file };
    has_methods(text);
    // As a part of a larger text.
    let whole = 0..text.len();
    parse_tables(&source, &whole).ok();
    let mut listed = match parse(format, &source) {
        Ok(listed) => listed,
        Err(mistakes) => {
            assert!(!mistakes.is_empty() && mistakes.len() <= 20);
            for mistake in mistakes {
                let line = text.split('\n').nth(mistake.line.wrapping_sub(1)).expect("a line of the text");
                // One past the end is the place of a missing item.
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
    let again =
        parse(ListFormat::Handed, &RequestSource { text: &text, base: Some("http://b.test"), ..source });
    let mut again = again.expect("what was read is a list");
    again.iter_mut().for_each(here);
    assert_eq!(again, listed);
});
