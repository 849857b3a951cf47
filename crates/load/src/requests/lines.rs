//! Lists of URLs with methods: `METHOD URL`, `METHOD URL body` or `METHOD URL @file` on a line. A URL has no spaces, so
//! a line with a space is more than a URL.

use super::draft::RequestDraft;
use super::{ListReading, Placed};

pub(super) fn has_method(line: &str) -> bool {
    let words = line.trim().split_once(char::is_whitespace);
    words.is_some_and(|(method, url)| {
        let url = url.trim_start();
        let is_url = url.starts_with('/') || url.contains("://");
        is_url && !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'-')
    })
}

pub(super) fn read(reading: &mut ListReading<'_>) {
    let text = reading.source.text;
    let mut start = 0;
    for whole in text.split_inclusive('\n') {
        let at = start + (whole.len() - whole.trim_start().len());
        start += whole.len();
        let line = whole.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let mut draft = RequestDraft::new(at..at + line.len());
        draft.is_template = false;
        let placed = |part: &str| {
            let begin = at + (part.as_ptr() as usize - line.as_ptr() as usize);
            Placed { value: part.to_owned(), at: begin..begin + part.len() }
        };
        let rest = match line.split_once(char::is_whitespace).filter(|_| has_method(line)) {
            Some((method, rest)) => {
                draft.method = Some(placed(method));
                rest.trim_start()
            }
            None => line,
        };
        let (url, body) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        draft.url = Some(placed(url));
        let body = body.trim_start();
        draft.body = match body.strip_prefix('@') {
            Some(file) => reading.file(file, &placed(body).at),
            None => Some(body.as_bytes().to_vec()).filter(|body| !body.is_empty()),
        };
        draft.end(reading);
        if reading.is_full() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ListFormat, RequestSource, has_methods, parse};

    fn read(text: &str) -> Result<Vec<(String, String, String)>, Vec<String>> {
        let file = |name: &str| match name {
            "body.json" => Ok(b"{{}}".to_vec()),
            _ => Err("it is not there".to_owned()),
        };
        let source = RequestSource {
            text,
            file: "urls",
            base: Some("http://a/"),
            hosts: &[],
            given: &[],
            read: &file,
        };
        let listed = parse(ListFormat::Lines, &source)
            .map_err(|mistakes| mistakes.iter().map(ToString::to_string).collect::<Vec<_>>())?;
        let told = listed
            .into_iter()
            .map(|request| (request.method, request.url, String::from_utf8(request.body).expect("text")));
        Ok(told.collect())
    }

    #[test]
    fn a_line_may_have_a_method_and_a_body() {
        let text = "# list\n/plain#name\nGET http://b/x\n  DELETE /y\r\nPOST /z {\"a\": 1}\nPUT\t/z @body.json\n/w hello\n";
        assert!(has_methods(text) && !has_methods("http://a/\n/b\n# GET /x\nGET\n"));
        let request =
            |method: &str, url: &str, body: &str| (method.to_owned(), url.to_owned(), body.to_owned());
        let expected = [
            request("GET", "http://a/plain#name", ""),
            request("GET", "http://b/x", ""),
            request("DELETE", "http://a/y", ""),
            request("POST", "http://a/z", "{\"a\": 1}"),
            request("PUT", "http://a/z", "{{}}"),
            request("POST", "http://a/w", "hello"),
        ];
        assert_eq!(read(text).expect("no mistake"), expected);
        for (text, expected) in [
            ("GET /a\n GTE /x", "2:2: unknown method \"GTE\"; did you mean \"GET\"?"),
            ("get /a", "1:1: unknown method \"get\"; did you mean \"GET\"?"),
            ("GET /a\nx", "2:1: URL \"x\": write http"),
            ("POST /a @none", "1:9: cannot read none: it is not there"),
        ] {
            let mistakes = read(text).expect_err(text);
            assert!(mistakes[0].starts_with(&format!("urls:{expected}")), "{text}: {mistakes:?}");
        }
    }
}
