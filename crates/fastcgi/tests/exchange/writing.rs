//! Requests: which variables an application gets.

use std::collections::BTreeMap;

use fastcgi::{
    Gateway, Header, ParamPairs, ParamsError, ParamsLimits, RecordType, Request, RequestOutline, Script,
    ScriptForm, begin_request, is_valid_name,
};
use http1::{HeadLimits, HttpVersion, MessageHead, Parsed, RequestLine, RequestTarget};

const GATEWAY: Gateway<'_> = Gateway {
    root: b"/srv/app/public",
    software: b"vanward",
    params: &[],
    keep: true,
    limits: ParamsLimits { bytes: 128 * 1024 },
};

const SCRIPT: Script<'_> = Script { name: b"/index.php", path_info: b"", form: ScriptForm::Script };

type Variables = BTreeMap<String, String>;

/// Writes a request for this head, after a change of what the head does not say.
fn written(
    text: &str,
    gateway: &Gateway<'_>,
    change: impl FnOnce(&mut Request<'_>),
) -> Result<(Variables, RequestOutline), ParamsError> {
    let mut head = MessageHead::<RequestLine>::default();
    let limits = HeadLimits { bytes: 1 << 20, fields: 256, target: 1 << 20 };
    assert_eq!(head.parse(text.as_bytes(), &limits), Ok(Parsed::Complete), "{text}");
    let mut request = Request {
        head: &head,
        bytes: text.as_bytes(),
        target: RequestTarget::from_head(&head, text.as_bytes()).unwrap(),
        script: SCRIPT,
        uri: None,
        content_length: None,
        version: HttpVersion::Http11,
        is_tls: false,
        client: Some("192.0.2.1:50000".parse().unwrap()),
        local: Some("[::ffff:198.51.100.1]:8080".parse().unwrap()),
        port: None,
        server_name: None,
        session: None,
        user: None,
    };
    change(&mut request);
    let mut out = b"kept".to_vec();
    let outline = request.write(gateway, &mut out).inspect_err(|_| assert_eq!(out, b"kept"))?;
    Ok((variables(&out[4..], gateway.keep), outline))
}

fn variables(bytes: &[u8], keep: bool) -> Variables {
    let mut rest = bytes.strip_prefix(&begin_request(keep)).expect("begins the request");
    let mut variables = Variables::new();
    while let Some((header, behind)) = rest.split_first_chunk() {
        let header = Header::decode(*header);
        assert_eq!((header.version, header.kind, header.id), (1, RecordType::Params as u8, 1));
        let (content, behind) = behind.split_at(header.content.into());
        assert_eq!(content.is_empty(), behind.is_empty(), "the empty record is the last one");
        rest = behind;
        for pair in ParamPairs::new(content) {
            let (name, value) = pair.expect("no pair is split");
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            assert_eq!(variables.insert(text(name), text(value)), None, "each variable is sent once");
        }
    }
    variables
}

fn lines(variables: &Variables) -> Vec<String> {
    variables.iter().map(|(name, value)| format!("{name}={value}")).collect()
}

#[test]
fn all_variables_of_a_request() {
    let text = "POST /index.php/a%20b?x=1&y HTTP/1.1\r\nHost: www.example.com:8443\r\nContent-Type: text/plain\r\n\
        Content-Length: 5\r\nAccept: */*\r\n\r\n";
    let (variables, outline) = written(text, &GATEWAY, |request| {
        request.script.path_info = b"/a b";
        request.is_tls = true;
        request.session = Some((b"TLSv1.3", b"TLS_AES_128_GCM_SHA256"));
        request.version = HttpVersion::Http2;
        request.user = Some((b"ada", b"Basic"));
    })
    .unwrap();
    assert_eq!(outline, RequestOutline { body: 5, dropped_fields: 0 });
    assert_eq!(
        lines(&variables),
        [
            "AUTH_TYPE=Basic",
            "CONTENT_LENGTH=5",
            "CONTENT_TYPE=text/plain",
            "DOCUMENT_ROOT=/srv/app/public",
            "DOCUMENT_URI=/index.php/a b",
            "GATEWAY_INTERFACE=CGI/1.1",
            "HTTPS=on",
            "HTTP_ACCEPT=*/*",
            "HTTP_HOST=www.example.com:8443",
            "PATH_INFO=/a b",
            "PATH_TRANSLATED=/srv/app/public/a b",
            "QUERY_STRING=x=1&y",
            "REDIRECT_STATUS=200",
            "REMOTE_ADDR=192.0.2.1",
            "REMOTE_HOST=192.0.2.1",
            "REMOTE_PORT=50000",
            "REMOTE_USER=ada",
            "REQUEST_METHOD=POST",
            "REQUEST_SCHEME=https",
            "REQUEST_URI=/index.php/a%20b?x=1&y",
            "SCRIPT_FILENAME=/srv/app/public/index.php",
            "SCRIPT_NAME=/index.php",
            "SERVER_ADDR=198.51.100.1",
            "SERVER_NAME=www.example.com",
            "SERVER_PORT=8080",
            "SERVER_PROTOCOL=HTTP/2.0",
            "SERVER_SOFTWARE=vanward",
            "SSL_CIPHER=TLS_AES_128_GCM_SHA256",
            "SSL_PROTOCOL=TLSv1.3",
        ]
    );
}

#[test]
fn what_a_request_does_not_have_is_left_out() {
    let (variables, outline) = written("GET / HTTP/1.1\r\nHost: a\r\n\r\n", &GATEWAY, |_| {}).unwrap();
    assert_eq!(outline, RequestOutline { body: 0, dropped_fields: 0 });
    for name in [
        "CONTENT_TYPE",
        "CONTENT_LENGTH",
        "HTTPS",
        "SSL_PROTOCOL",
        "SSL_CIPHER",
        "PATH_INFO",
        "PATH_TRANSLATED",
        "REMOTE_USER",
        "AUTH_TYPE",
    ] {
        assert_eq!(variables.get(name), None, "{name}");
    }
    assert_eq!(variables["QUERY_STRING"], "");
    assert_eq!(variables["REQUEST_SCHEME"], "http");
}

#[test]
fn targets_and_addresses_in_all_forms() {
    for (text, name, expected) in [
        ("GET /?a?b HTTP/1.1\r\nHost: a\r\n\r\n", "QUERY_STRING", "a?b"),
        ("GET /? HTTP/1.1\r\nHost: a\r\n\r\n", "QUERY_STRING", ""),
        ("GET http://b:81/x?y HTTP/1.1\r\nHost: a\r\n\r\n", "REQUEST_URI", "/x?y"),
        ("GET http://b:81/x?y HTTP/1.1\r\nHost: a\r\n\r\n", "SERVER_NAME", "b"),
        ("GET http://b:81/x?y HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP_HOST", "b:81"),
        ("GET http://b:81/ HTTP/1.0\r\n\r\n", "HTTP_HOST", "b:81"),
        ("GET http://b HTTP/1.1\r\nHost: a\r\n\r\n", "REQUEST_URI", "/"),
        ("GET http://b?y HTTP/1.1\r\nHost: a\r\n\r\n", "REQUEST_URI", "/?y"),
        ("GET http://b?y HTTP/1.1\r\nHost: a\r\n\r\n", "QUERY_STRING", "y"),
        ("GET / HTTP/1.1\r\nHost: [2001:db8::1]:80\r\n\r\n", "SERVER_NAME", "[2001:db8::1]"),
        ("GET / HTTP/1.0\r\n\r\n", "SERVER_NAME", "198.51.100.1"),
    ] {
        let (variables, _) = written(text, &GATEWAY, |_| {}).unwrap();
        assert_eq!(variables[name], expected, "{text}");
    }
    let (variables, _) = written("GET / HTTP/1.0\r\n\r\n", &GATEWAY, |request| {
        (request.client, request.local) = (None, None);
        request.is_tls = true;
        request.uri = Some(b"/original?x");
    })
    .unwrap();
    for (name, expected) in [
        ("REMOTE_ADDR", Some("unix:")),
        ("REMOTE_HOST", None),
        ("REMOTE_PORT", None),
        ("SERVER_ADDR", None),
        ("SERVER_PORT", Some("443")),
        ("SERVER_NAME", Some("localhost")),
        ("REQUEST_URI", Some("/original?x")),
    ] {
        assert_eq!(variables.get(name).map(String::as_str), expected, "{name}");
    }
}

#[test]
fn fields_become_variables_that_cannot_be_forged() {
    let text = "GET / HTTP/1.1\r\nHost: a\r\nCookie: a=1\r\nX-Tag: one\r\nx-tag: two\r\nCOOKIE: b=2\r\nX-Tag:\r\n\
        Proxy: evil.example\r\nX_Tag: three\r\nX.Tag: four\r\nX~Tag: five\r\nX_Forwarded_For: 10.0.0.1\r\n\
        Connection: close\r\nTE: trailers\r\nExpect: 100-continue\r\nAuthorization: Bearer t\r\nRemote-User: root\r\n\
        Upgrade: x\r\nKeep-Alive: 5\r\n\r\n";
    let (variables, outline) = written(text, &GATEWAY, |_| {}).unwrap();
    let (of_body, _) = written(
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: a/b\r\nContent-Length: 5\r\nX-1a: b\r\n\r\n",
        &GATEWAY,
        |_| {},
    )
    .unwrap();
    let fields = lines(&of_body).into_iter().filter(|line| line.starts_with("HTTP_"));
    assert_eq!(Vec::from_iter(fields), ["HTTP_HOST=a", "HTTP_X_1A=b"]);
    let fields = lines(&variables).into_iter().filter(|line| line.starts_with("HTTP_"));
    assert_eq!(
        Vec::from_iter(fields),
        [
            "HTTP_AUTHORIZATION=Bearer t",
            "HTTP_COOKIE=a=1; b=2",
            "HTTP_HOST=a",
            "HTTP_REMOTE_USER=root",
            "HTTP_X_TAG=one, two, ",
        ]
    );
    assert_eq!(variables.get("REMOTE_USER"), None);
    assert_eq!(outline.dropped_fields, 5);
}

#[test]
fn fields_are_joined_by_name_however_many_there_are() {
    // Every name in three spellings, so that several fields have the same mark.
    let names: Vec<String> = (0..80).map(|number| format!("x{number}-{}y", "n".repeat(number / 8))).collect();
    for spellings in 1..=3 {
        let spelling = |name: &String, spelling: usize| match spelling {
            0 => name.clone(),
            1 => name.to_ascii_uppercase(),
            _ => name.replace('n', "N"),
        };
        let lines = (0..spellings).flat_map(|spelt| {
            names.iter().map(move |name| format!("{}: {spelt}\r\n", spelling(name, spelt)))
        });
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", lines.collect::<String>());
        let (variables, outline) = written(&text, &GATEWAY, |_| {}).unwrap();
        assert_eq!(outline.dropped_fields, 0);
        for name in &names {
            let variable = format!("HTTP_{}", name.to_ascii_uppercase().replace('-', "_"));
            assert_eq!(variables[&variable], ["0", "0, 1", "0, 1, 2"][spellings - 1], "{name}");
        }
    }
}

#[test]
fn names_are_checked_to_their_last_byte() {
    for len in 1..40 {
        for byte in [b'_', b'.', b'~', b'!'] {
            let mut name = vec![b'x'; len];
            name[len - 1] = byte;
            let text =
                format!("GET / HTTP/1.1\r\nHost: a\r\n{}: 1\r\n\r\n", String::from_utf8(name).unwrap());
            let (variables, outline) = written(&text, &GATEWAY, |_| {}).unwrap();
            assert_eq!(outline.dropped_fields, 1, "{text}");
            assert_eq!(variables.keys().filter(|name| name.starts_with("HTTP_")).count(), 1, "{text}");
        }
    }
}

#[test]
fn params_of_the_route_replace_variables() {
    let gateway = Gateway {
        root: b"/srv/app/",
        params: &[("HTTPS", "on"), ("HTTP_X_TAG", "ours"), ("SERVER_NAME", ""), ("APP_ENV", "prod")]
            .map(|(name, value)| (name.to_owned(), value.to_owned())),
        keep: false,
        ..GATEWAY
    };
    let text = "GET / HTTP/1.1\r\nHost: a\r\nX-Tag: theirs\r\n\r\n";
    let (variables, _) = written(text, &gateway, |_| {}).unwrap();
    for (name, expected) in [
        ("HTTPS", "on"),
        ("HTTP_X_TAG", "ours"),
        ("SERVER_NAME", ""),
        ("APP_ENV", "prod"),
        ("DOCUMENT_ROOT", "/srv/app/"),
        ("SCRIPT_FILENAME", "/srv/app/index.php"),
    ] {
        assert_eq!(variables[name], expected, "{name}");
    }
    for (name, expected) in [
        ("APP_ENV", true),
        ("_a9", true),
        ("", false),
        ("9A", false),
        ("A-B", false),
        ("A.B", false),
        ("Ä", false),
    ] {
        assert_eq!(is_valid_name(name), expected, "{name}");
    }
}

#[test]
fn the_length_of_a_body_comes_before_it() {
    let with = |field: &str| format!("POST / HTTP/1.1\r\nHost: a\r\n{field}\r\n");
    for (field, known, expected) in [
        ("", None, Ok(None)),
        ("Content-Length: 0\r\n", None, Ok(Some("0"))),
        ("Content-Length: 70\r\n", None, Ok(Some("70"))),
        ("Content-Length: 70\r\n", Some(70), Ok(Some("70"))),
        ("Transfer-Encoding: chunked\r\n", None, Err(ParamsError::LengthUnknown)),
        ("Transfer-Encoding: chunked\r\n", Some(u64::MAX), Ok(Some("18446744073709551615"))),
        ("Content-Length: x\r\n", None, Err(ParamsError::Framing)),
        ("Content_Length: 1\r\n", None, Err(ParamsError::Framing)),
    ] {
        let outcome = written(&with(field), &GATEWAY, |request| request.content_length = known);
        let length = outcome.map(|(variables, _)| variables.get("CONTENT_LENGTH").cloned());
        assert_eq!(length, expected.map(|length| length.map(str::to_owned)), "{field}");
    }
}

#[test]
fn large_heads_take_several_records_or_are_refused() {
    let with = |len: usize, count: usize| {
        let fields = (0..count).map(|number| format!("X-{number}: {}\r\n", "v".repeat(len)));
        format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", fields.collect::<String>())
    };
    let (variables, _) = written(&with(30_000, 4), &GATEWAY, |_| {}).unwrap();
    assert_eq!(variables["HTTP_X_3"].len(), 30_000);
    for (text, error) in [
        (with(30_000, 5), ParamsError::TooLarge(128 * 1024)),
        (with(65_528, 1), ParamsError::PairTooLarge(65_528 + 8 + 5)),
    ] {
        assert_eq!(written(&text, &GATEWAY, |_| {}), Err(error));
    }
}
