//! Lists in TOML: tables `[[request]]`.

use std::ops::Range;

use mistake::{nearest, toml_syntax};
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::draft::RequestDraft;
use super::{CHECKS, ListReading, Placed, checks};

const KEYS: [&str; 10] =
    ["name", "method", "path", "url", "headers", "body", "body_file", "template", "weight", "check"];

type Value<'t> = Spanned<DeValue<'t>>;

pub(super) fn read(reading: &mut ListReading<'_>) {
    let (root, errors) = DeTable::parse_recoverable(reading.source.text);
    for error in &errors {
        let (at, words) = toml_syntax(reading.source.text, &error.span().unwrap_or(0..0), error.message());
        reading.wrong(&at, words.sentence());
    }
    if !errors.is_empty() {
        return;
    }
    for (key, value) in in_order(root.get_ref()) {
        if key.get_ref() != "request" {
            unknown(reading, &key.span(), key.get_ref(), "the file", &["request"]);
            continue;
        }
        let DeValue::Array(requests) = value.get_ref() else {
            reading.wrong(&key.span(), "a request is a table in a list; expected [[request]]");
            continue;
        };
        read_each(reading, requests);
        if reading.is_full() {
            return;
        }
    }
}

/// Reads the list of tables at a place in the text.
pub(super) fn read_at(reading: &mut ListReading<'_>, at: &Range<usize>) {
    // The caller has parsed the text, and reports mistakes in the rest of it.
    let (root, _) = DeTable::parse_recoverable(reading.source.text);
    if let Some(requests) = root.get_ref().values().find_map(|value| list_at(value, at)) {
        read_each(reading, requests);
    }
}

/// Finds the list at a place.
fn list_at<'v, 't>(value: &'v Value<'t>, at: &Range<usize>) -> Option<&'v DeArray<'t>> {
    match value.get_ref() {
        DeValue::Array(list) if value.span() == *at => Some(list),
        DeValue::Array(list) => list.iter().find_map(|value| list_at(value, at)),
        DeValue::Table(table) => table.values().find_map(|value| list_at(value, at)),
        _ => None,
    }
}

fn read_each(reading: &mut ListReading<'_>, requests: &DeArray<'_>) {
    for request in requests.iter() {
        match request.get_ref() {
            DeValue::Table(table) => read_request(reading, table, &first_line(reading, request.span())),
            _ => reading.wrong(&request.span(), "a request is a table; expected [[request]]"),
        }
        if reading.is_full() {
            return;
        }
    }
}

/// The first line of a piece that may have many.
fn first_line(reading: &ListReading<'_>, at: Range<usize>) -> Range<usize> {
    let length = reading.places.text(&at).and_then(|text| text.find('\n'));
    at.start..length.map_or(at.end, |length| at.start + length)
}

/// The entries of a table in the order of the text.
fn in_order<'v, 't>(table: &'v DeTable<'t>) -> Vec<(&'v Spanned<std::borrow::Cow<'t, str>>, &'v Value<'t>)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

fn unknown(reading: &mut ListReading<'_>, at: &Range<usize>, written: &str, place: &str, known: &[&str]) {
    let mistake = reading.places.mistake(at, format!("unknown key {written:?} in {place}"));
    let meant = nearest(written, known.iter().copied()).map(str::to_owned);
    reading.report(mistake.expecting(known.join(", ")).meaning(meant));
}

fn read_request(reading: &mut ListReading<'_>, table: &DeTable<'_>, at: &Range<usize>) {
    let known = reading.mistakes.len();
    let mut draft = RequestDraft::new(at.clone());
    let mut body_by: Option<String> = None;
    for (key, value) in in_order(table) {
        let (name, span) = (key.get_ref().as_ref(), value.span());
        match name {
            "name" => draft.name = text(reading, name, value),
            "method" => draft.method = text(reading, name, value).map(|value| Placed { value, at: span }),
            "path" | "url" => {
                let Some(written) = text(reading, name, value) else { continue };
                if draft.url.is_some() {
                    reading.wrong(&key.span(), "the request has both path and url; expected one of them");
                } else if (name == "path") != written.starts_with('/') {
                    let message = if name == "path" {
                        "a path starts with /; an absolute URL is written as url = \"http://…\""
                    } else {
                        "url must be absolute; write a URL that starts with / as path"
                    };
                    reading.wrong(&span, message);
                }
                draft.url = Some(Placed { value: written, at: span });
            }
            "headers" => read_headers(reading, value, &mut draft),
            "body" | "body_file" => {
                if let Some(other) = body_by.replace(name.to_owned()) {
                    reading
                        .wrong(&key.span(), format!("the request has both {other} and {name}; expected one"));
                }
                let Some(written) = text(reading, name, value) else { continue };
                draft.body = match name {
                    "body" => Some(written.into_bytes()),
                    _ => reading.file(&written, &span),
                };
            }
            "template" => match value.get_ref() {
                DeValue::Boolean(is_template) => draft.is_template = *is_template,
                _ => reading.wrong(&span, "template is true or false"),
            },
            "weight" => draft.weight = whole(reading, name, value).map(|value| Placed { value, at: span }),
            "check" => read_check(reading, value, &mut draft),
            _ => unknown(reading, &key.span(), name, "[[request]]", &KEYS),
        }
    }
    if reading.mistakes.len() == known {
        draft.end(reading);
    }
}

fn read_headers(reading: &mut ListReading<'_>, value: &Value<'_>, draft: &mut RequestDraft) {
    let DeValue::Table(fields) = value.get_ref() else {
        reading.wrong(&value.span(), "headers is a table, such as { Accept = \"text/html\" }");
        return;
    };
    for (name, value) in in_order(fields) {
        let at = name.span().start..value.span().end;
        let mut add = |reading: &mut ListReading<'_>, value: &Value<'_>| {
            if let Some(text) = text(reading, name.get_ref(), value) {
                draft.headers.push(Placed { value: (name.get_ref().to_string(), text), at: at.clone() });
            }
        };
        match value.get_ref() {
            DeValue::Array(values) => values.iter().for_each(|value| add(reading, value)),
            _ => add(reading, value),
        }
    }
}

fn read_check(reading: &mut ListReading<'_>, value: &Value<'_>, draft: &mut RequestDraft) {
    let DeValue::Table(table) = value.get_ref() else {
        reading.wrong(&value.span(), "check is a table, such as { status = 200, contains = \"total\" }");
        return;
    };
    for (key, value) in in_order(table) {
        match key.get_ref().as_ref() {
            "status" => each(reading, value, |reading, value| {
                if let Some(range) = word(reading, "status", value, checks::status) {
                    draft.check.status.push(range);
                }
            }),
            "header" => {
                let DeValue::Table(fields) = value.get_ref() else {
                    reading.wrong(&value.span(), "header is a table, such as { Content-Type = \"text/*\" }");
                    continue;
                };
                for (name, value) in in_order(fields) {
                    if !crate::form::is_token(name.get_ref()) {
                        reading
                            .wrong(&name.span(), format!("{:?} is not the name of a header", name.get_ref()));
                    }
                    if let Some(text) = text(reading, name.get_ref(), value) {
                        draft.check.header.push((name.get_ref().to_string(), text));
                    }
                }
            }
            "contains" => each(reading, value, |reading, value| match text(reading, "contains", value) {
                Some(text) if text.is_empty() => {
                    reading.wrong(&value.span(), "every body contains an empty text");
                }
                Some(text) => draft.check.contains.push(text),
                None => {}
            }),
            "size" => draft.check.size = word(reading, "size", value, checks::size),
            "digest" => draft.check.digest = word(reading, "digest", value, checks::digest),
            other => unknown(reading, &key.span(), other, "check", &CHECKS),
        }
    }
}

/// Calls `with` for a value, or for each value of a list.
fn each<'s>(
    reading: &mut ListReading<'s>,
    value: &Value<'_>,
    mut with: impl FnMut(&mut ListReading<'s>, &Value<'_>),
) {
    match value.get_ref() {
        DeValue::Array(values) if values.is_empty() => reading.wrong(&value.span(), "the list is empty"),
        DeValue::Array(values) => values.iter().for_each(|value| with(reading, value)),
        _ => with(reading, value),
    }
}

fn word<T>(
    reading: &mut ListReading<'_>,
    name: &str,
    value: &Value<'_>,
    parse: impl Fn(&str) -> Result<T, &'static str>,
) -> Option<T> {
    let parsed = match value.get_ref() {
        DeValue::String(text) => parse(text),
        DeValue::Integer(number) if number.radix() == 10 => parse(number.as_str()),
        _ => parse("?"),
    };
    parsed
        .map_err(|expected| reading.wrong(&value.span(), format!("{name} is not understood; {expected}")))
        .ok()
}

fn text(reading: &mut ListReading<'_>, name: &str, value: &Value<'_>) -> Option<String> {
    match value.get_ref() {
        DeValue::String(text) => Some(text.to_string()),
        other => {
            let kind = other.type_str();
            reading
                .wrong(&value.span(), format!("{name} must be a text in quotes, but this is of type {kind}"));
            None
        }
    }
}

fn whole(reading: &mut ListReading<'_>, name: &str, value: &Value<'_>) -> Option<i64> {
    let number = match value.get_ref() {
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix()).ok(),
        _ => None,
    };
    if number.is_none() {
        reading.wrong(&value.span(), format!("{name} is a whole number, such as 3"));
    }
    number
}

#[cfg(test)]
mod tests {
    use super::super::{ListFormat, RequestSource, parse};
    use crate::listed::{Check, Listed};

    fn read(text: &str, base: Option<&str>) -> Result<Vec<Listed>, Vec<String>> {
        let file = |name: &str| match name {
            "body.json" => Ok(b"{}".to_vec()),
            _ => Err("it is not there".to_owned()),
        };
        let source = RequestSource { text, file: "r.toml", base, hosts: &[], given: &[], read: &file };
        let shown = |mistakes: Vec<mistake::Mistake>| mistakes.iter().map(ToString::to_string).collect();
        parse(ListFormat::Toml, &source).map_err(shown)
    }

    #[test]
    fn a_request_is_what_its_table_says() {
        let text = r#"
            [[request]]
            path = "/list?q=1"
            [[request]]
            name = "order"
            method = "PUT"
            url = "https://b:8443/orders"
            headers = { X-B = "2", Accept = ["a", "b"] }
            body_file = "body.json"
            weight = 3
            check = { status = [201, "4xx"], header = { content-type = "text/*" }, contains = "id", size = "1KB..", digest = "crc32:00000001" }
            [[request]]
            path = "/x"
            body = "hi"
        "#;
        let told = read(text, Some("http://a:1/ignored")).expect("no mistake");
        let plain = Listed { method: "GET".into(), weight: 1, is_template: true, ..Listed::default() };
        let expected = [
            Listed { url: "http://a:1/list?q=1".into(), place: "r.toml:2:13".into(), ..plain.clone() },
            Listed {
                name: Some("order".into()),
                method: "PUT".into(),
                url: "https://b:8443/orders".into(),
                headers: ["X-B: 2", "Accept: a", "Accept: b"].map(str::to_owned).into(),
                body: b"{}".to_vec(),
                weight: 3,
                check: Check {
                    status: vec![(201, 201), (400, 499)],
                    header: vec![("content-type".into(), "text/*".into())],
                    contains: vec!["id".into()],
                    size: Some((1_000, u64::MAX)),
                    digest: Some(1),
                },
                place: "r.toml:4:13".into(),
                ..plain.clone()
            },
            Listed {
                method: "POST".into(),
                url: "http://a:1/x".into(),
                body: b"hi".to_vec(),
                place: "r.toml:12:13".into(),
                ..plain
            },
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn every_mistake_is_told_with_its_place_and_what_is_meant() {
        let cases = [
            ("", "1:1: the file has no request"),
            (
                "[[requests]]\npath = \"/\"",
                "1:3: unknown key \"requests\" in the file; did you mean \"request\"?",
            ),
            ("request = 1", "1:1: a request is a table in a list; expected [[request]]"),
            ("[[request]]", "1:1: the request has no URL"),
            (
                "[[request]]\npath = \"/\"\nmethdo = \"GET\"",
                "3:1: unknown key \"methdo\" in [[request]]; did you mean \"method\"?",
            ),
            (
                "[[request]]\npath = \"/\"\nmethod = \"PSOT\"",
                "3:10: unknown method \"PSOT\"; did you mean \"POST\"?",
            ),
            (
                "[[request]]\npath = \"/\"\nmethod = \"get\"",
                "3:10: unknown method \"get\"; did you mean \"GET\"?",
            ),
            (
                "[[request]]\npath = \"/\"\nmethod = \"CONNECT\"",
                "3:10: method \"CONNECT\": it asks for a tunnel",
            ),
            ("[[request]]\npath = \"x\"", "2:8: a path starts with /"),
            ("[[request]]\nurl = \"/x\"", "2:7: url must be absolute"),
            ("[[request]]\nurl = \"ftp://a/\"", "2:7: URL \"ftp://a/\": write http://HOST"),
            ("[[request]]\npath = \"/a b\"", "2:8: URL \"/a b\": it has a space"),
            ("[[request]]\npath = \"/\"\nurl = \"http://a/\"", "3:1: the request has both path and url"),
            (
                "[[request]]\npath = \"/\"\nheaders = { Host = 1 }",
                "3:20: Host must be a text in quotes, but this is of type integer",
            ),
            (
                "[[request]]\npath = \"/\"\nheaders = { \"a b\" = \"\" }",
                "3:13: header \"a b\": the name before",
            ),
            (
                "[[request]]\npath = \"/\"\nheaders.Content-Length = \"3\"",
                "3:9: header \"Content-Length\": it follows from the body",
            ),
            (
                "[[request]]\npath = \"/\"\nbody = \"a\"\nbody_file = \"body.json\"",
                "4:1: the request has both body and body_file",
            ),
            ("[[request]]\npath = \"/\"\nbody_file = \"other\"", "3:13: cannot read other: it is not there"),
            (
                "[[request]]\npath = \"/\"\nweight = -1",
                "3:10: the weight must be a whole number from 0 to 10000",
            ),
            ("[[request]]\npath = \"/\"\nweight = 1.5", "3:10: weight is a whole number"),
            ("[[request]]\npath = \"/\"\nweight = 0", "1:1: every request has weight 0"),
            (
                "[[request]]\npath = \"/\"\ncheck = { stauts = 200 }",
                "3:11: unknown key \"stauts\" in check; did you mean \"status\"?",
            ),
            (
                "[[request]]\npath = \"/\"\ncheck = { status = 2000 }",
                "3:20: status is not understood; expected a status such as 200",
            ),
            ("[[request]]\npath = \"/\"\ncheck = { size = \"9..1\" }", "3:18: size is not understood"),
            (
                "[[request]]\npath = \"/\"\ncheck = { contains = \"\" }",
                "3:22: every body contains an empty text",
            ),
            ("[[request]]\npath = \"/\"\ncheck = { contains = [] }", "3:22: the list is empty"),
            (
                "[[request]]\npath = \"/\"\ncheck = { header = { \"a:\" = \"\" } }",
                "3:22: \"a:\" is not the name of a header",
            ),
            ("[[request]]\npath = \"/", "2:10: "),
        ];
        for (text, expected) in cases {
            let mistakes = read(text, Some("http://a/")).expect_err(text);
            assert!(mistakes[0].starts_with(&format!("r.toml:{expected}")), "{text}: {mistakes:?}");
        }
        let mistakes =
            read("[[request]]\npath = \"/\"\n[[request]]\npath = \"/x\"", None).expect_err("no host");
        assert_eq!(mistakes.len(), 2, "{mistakes:?}");
        assert!(mistakes[1].starts_with("r.toml:4:8: a path needs a host; name one"), "{mistakes:?}");
    }
}
