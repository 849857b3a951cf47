//! Requests to an application behind FastCGI. Scripts lie beneath the root, no pair is split over records, and each
//! variable is sent once. A client's fields set no variables except their own.

#![no_main]

use std::collections::BTreeMap;

use fastcgi::{
    Gateway, Header, ParamPairs, ParamsLimits, RecordType, Request, Script, ScriptCandidates, ScriptRules,
    begin_request,
};
use fuzz::LIMITS;
use http1::{HttpVersion, MessageHead, Parsed, RequestHead, RequestTarget};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut head: RequestHead = MessageHead::default();
    if head.parse(bytes, &LIMITS[0]) != Ok(Parsed::Complete) {
        return;
    }
    let Ok(target) = RequestTarget::from_head(&head, bytes) else { return };
    let rules = ScriptRules::new(".php", Some("index.php"), true).expect("is valid");
    let mut memory = Vec::new();
    let Ok(candidates) = ScriptCandidates::new(target.path.for_bytes(bytes), rules, &mut memory) else {
        return;
    };
    for script in candidates {
        assert!(script.name.starts_with(b"/") && script.name.ends_with(b".php"));
        let is_plain = |segment: &[u8]| !segment.is_empty() && !segment.starts_with(b".");
        assert!(script.name[1..].split(|&byte| byte == b'/').all(is_plain));
        assert!(!script.name.iter().any(|&byte| byte < b' ' || byte == b'\\'));
        check(&head, bytes, target, script);
    }
});

fn check(head: &RequestHead, bytes: &[u8], target: RequestTarget, script: Script<'_>) {
    let request = Request {
        head,
        bytes,
        target,
        script,
        uri: None,
        content_length: None,
        version: HttpVersion::Http11,
        is_tls: false,
        client: None,
        local: None,
        port: None,
        server_name: None,
        session: None,
        user: None,
    };
    let gateway = Gateway {
        root: b"/srv",
        software: b"x",
        params: &[("HTTP_X_OURS".to_owned(), "ours".to_owned())],
        keep: true,
        limits: ParamsLimits { bytes: 4096 },
    };
    let mut out = Vec::new();
    let Ok(outline) = request.write(&gateway, &mut out) else {
        assert!(out.is_empty());
        return;
    };
    let variables = variables(&out);
    assert_eq!(variables[&b"SCRIPT_FILENAME"[..]], [b"/srv", script.name].concat());
    assert_eq!(variables[&b"HTTP_X_OURS"[..]], b"ours");
    assert!(!variables.contains_key(&b"HTTP_PROXY"[..]) && !variables.contains_key(&b"REMOTE_USER"[..]));
    let length = variables
        .get(&b"CONTENT_LENGTH"[..])
        .map_or(0, |text| std::str::from_utf8(text).expect("is text").parse().expect("is a number"));
    assert_eq!(outline.body, length);
}

fn variables(bytes: &[u8]) -> BTreeMap<&[u8], &[u8]> {
    let mut rest = bytes.strip_prefix(&begin_request(true)).expect("begins the request");
    let mut variables = BTreeMap::new();
    while let Some((header, behind)) = rest.split_first_chunk() {
        let header = Header::decode(*header);
        assert_eq!((header.kind, header.id, header.padding), (RecordType::Params as u8, 1, 0));
        let (content, behind) = behind.split_at(header.content.into());
        assert_eq!(content.is_empty(), behind.is_empty());
        rest = behind;
        for pair in ParamPairs::new(content) {
            let (name, value) = pair.expect("no pair is split");
            assert!(
                name.iter().all(|&byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
            );
            assert_eq!(variables.insert(name, value), None);
        }
    }
    variables
}
