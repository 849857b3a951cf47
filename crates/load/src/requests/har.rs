//! Recordings of browsers and proxies: HAR 1.2. Each entry is a request. It is sent as recorded, except for the fields
//! that belong to its connection. Responses are ignored.

use std::collections::BTreeMap;
use std::ops::Range;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use mistake::json_error;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::draft::RequestDraft;
use super::{ListReading, Placed};
use crate::url::{self, Url};

/// Maximum number of hosts in a message.
const HOSTS_SHOWN: usize = 8;
/// Fields of one connection, and fields that are derived from the request.
const LEFT_OUT: [&str; 10] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "proxy-connection",
    "upgrade",
    "te",
    "http2-settings",
    "expect",
];

#[derive(Deserialize)]
struct Archive<'t> {
    #[serde(borrow)]
    log: HarLog<'t>,
}

#[derive(Deserialize)]
struct HarLog<'t> {
    #[serde(borrow)]
    entries: Vec<&'t RawValue>,
}

#[derive(Deserialize)]
struct HarEntry {
    request: HarRequest,
    response: Option<HarResponse>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HarRequest {
    method: String,
    url: String,
    #[serde(default)]
    headers: Vec<HarField>,
    #[serde(default)]
    cookies: Vec<HarField>,
    post_data: Option<PostData>,
    /// -1 if it is unknown.
    #[serde(default)]
    body_size: i64,
}

#[derive(Deserialize)]
struct HarResponse {
    status: Option<i64>,
}

#[derive(Deserialize)]
struct HarField {
    name: String,
    value: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PostData {
    #[serde(default)]
    mime_type: String,
    text: Option<String>,
    /// The encoding of `text`; `None` for plain text.
    encoding: Option<String>,
    #[serde(default)]
    params: Vec<Param>,
}

#[derive(Deserialize)]
struct Param {
    name: String,
    value: Option<String>,
}

pub(super) fn read(reading: &mut ListReading<'_>) {
    let text = reading.source.text;
    // Some programs write a byte order mark.
    let archive = serde_json::from_str::<Archive<'_>>(text.trim_start_matches('\u{feff}'));
    let archive = match archive {
        Ok(archive) => archive,
        Err(error) => {
            let line =
                text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum::<usize>();
            let at = (line + error.column().saturating_sub(1)).min(text.len());
            reading.wrong(&(at..at), format!("this is not a HAR file with log.entries: {}", reason(&error)));
            return;
        }
    };
    let mut hosts: BTreeMap<String, usize> = BTreeMap::new();
    let mut drafts = Vec::new();
    for raw in archive.log.entries {
        let at = place(text, raw);
        match serde_json::from_str::<HarEntry>(raw.get()) {
            Err(error) => {
                reading.wrong(&at, format!("this entry is not valid HAR 1.2: {}", reason(&error)));
            }
            Ok(entry) => {
                if let Some((host, draft)) = draft(reading, entry, at) {
                    *hosts.entry(host.clone()).or_default() += 1;
                    drafts.push((host, draft));
                }
            }
        }
        if reading.is_full() {
            return;
        }
    }
    if !reading.mistakes.is_empty() {
        return;
    }
    let is_meant = meant(reading, &hosts);
    for (_, draft) in drafts.into_iter().filter(|(host, _)| is_meant.contains(host)) {
        draft.end(reading);
        if reading.is_full() {
            return;
        }
    }
}

/// The mistake, without the position within a part of the file.
fn reason(error: &serde_json::Error) -> String {
    let words = error.to_string();
    let reason = words.rsplit_once(" at line ").map_or(words.as_str(), |(reason, _)| reason);
    json_error(reason)
}

/// Where an entry is in the text: its first line.
fn place(text: &str, raw: &RawValue) -> Range<usize> {
    let start = (raw.get().as_ptr() as usize).saturating_sub(text.as_ptr() as usize).min(text.len());
    start..start + raw.get().find(['\n', '\r']).unwrap_or(raw.get().len())
}

/// The hosts whose requests are sent. A recording also has requests to hosts of other people, which must get no load.
fn meant(reading: &mut ListReading<'_>, hosts: &BTreeMap<String, usize>) -> Vec<String> {
    let base = reading.source.base.and_then(|base| Url::parse(base).ok());
    let base = base.map(|base| base.host.to_ascii_lowercase());
    let is_meant = |host: &&String| match (reading.source.hosts, &base) {
        ([], None) => hosts.len() == 1,
        ([], Some(base)) => *host == base,
        (meant, _) => meant.iter().any(|other| other.eq_ignore_ascii_case(host)),
    };
    let meant: Vec<String> = hosts.keys().filter(is_meant).cloned().collect();
    if meant.is_empty() {
        let mut most: Vec<_> = hosts.iter().collect();
        most.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let shown = most.iter().take(HOSTS_SHOWN).map(|(host, count)| format!("{host} ({count})"));
        let shown = shown.collect::<Vec<_>>().join(", ");
        let message = match (hosts.len(), reading.source.hosts.is_empty() && base.is_none()) {
            (0, _) => "the recording has no request that can be sent".to_owned(),
            (_, true) => format!(
                "the recording has requests to several hosts: {shown}; name the hosts that may receive load with \
                 --hosts HOST,HOST"
            ),
            (_, false) => format!("no request goes to the requested hosts; the recording has {shown}"),
        };
        reading.wrong(&(0..0), message);
    }
    meant
}

/// An entry as a request, and its host; `None` for other schemes.
fn draft(reading: &mut ListReading<'_>, entry: HarEntry, at: Range<usize>) -> Option<(String, RequestDraft)> {
    let HarRequest { method, url, headers, cookies, post_data, body_size } = entry.request;
    let is_tunnel =
        method == "CONNECT" || entry.response.is_some_and(|response| response.status == Some(101));
    let url = url::encoded(url.split('#').next().unwrap_or_default());
    let host = Url::parse(&url).ok().filter(|_| !is_tunnel)?.host.to_ascii_lowercase();
    let mut draft = RequestDraft::new(at.clone());
    draft.is_template = false;
    let is_given = |name: &str| reading.source.given.iter().any(|given| given.eq_ignore_ascii_case(name));
    // Pseudo-header fields of HTTP/2 are recorded as fields.
    let is_sent = |field: &HarField| {
        let is_left_out = LEFT_OUT.iter().any(|other| other.eq_ignore_ascii_case(&field.name));
        !field.name.starts_with(':') && !is_left_out && !is_given(&field.name)
    };
    let (of_cookies, mut fields): (Vec<HarField>, Vec<HarField>) =
        headers.into_iter().filter(is_sent).partition(|field| field.name.eq_ignore_ascii_case("cookie"));
    fields.extend(cookie(of_cookies, cookies).filter(is_sent));
    let kind = post_data.as_ref().map(|data| data.mime_type.clone()).filter(|kind| !kind.is_empty());
    let has_kind = fields.iter().any(|field| field.name.eq_ignore_ascii_case("content-type"));
    let kind = kind.filter(|_| !has_kind).map(|value| HarField { name: "Content-Type".to_owned(), value });
    fields.extend(kind.filter(is_sent));
    let placed = |HarField { name, value }| Placed { value: (name, value), at: at.clone() };
    draft.headers = fields.into_iter().map(placed).collect();
    if post_data.is_none() && body_size > 0 {
        reading.wrong(&at, format!("the body of this request, of {body_size} bytes, was not recorded"));
    }
    draft.body = post_data.and_then(|data| body(reading, data, &at));
    draft.method = Some(Placed { value: method, at: at.clone() });
    draft.url = Some(Placed { value: url, at });
    Some((host, draft))
}

/// Joins all cookies in one field (RFC 9113 §8.2.3: HTTP/2 may have several). Some programs record only their list.
fn cookie(fields: Vec<HarField>, cookies: Vec<HarField>) -> Option<HarField> {
    let pairs: Vec<String> = match fields.is_empty() {
        false => fields.into_iter().map(|field| field.value).collect(),
        true => cookies.into_iter().map(|cookie| format!("{}={}", cookie.name, cookie.value)).collect(),
    };
    (!pairs.is_empty()).then(|| HarField { name: "Cookie".to_owned(), value: pairs.join("; ") })
}

fn body(reading: &mut ListReading<'_>, data: PostData, at: &Range<usize>) -> Option<Vec<u8>> {
    if let Some(text) = data.text.filter(|text| !text.is_empty() || data.params.is_empty()) {
        return match data.encoding.as_deref().unwrap_or_default() {
            "" => Some(text.into_bytes()),
            "base64" => match BASE64_STANDARD.decode(text.trim()) {
                Ok(body) => Some(body),
                Err(error) => {
                    reading.wrong(at, format!("the body of this request is not valid base64: {error}"));
                    None
                }
            },
            other => {
                reading
                    .wrong(at, format!("the body of this request is recorded as {other:?}; expected base64"));
                None
            }
        };
    }
    if !data.mime_type.starts_with("application/x-www-form-urlencoded") {
        let kind = data.mime_type;
        reading.wrong(at, format!("the body of this request, of type {kind:?}, was not recorded as text"));
        return None;
    }
    let fields = data.params.iter().map(|param| {
        format!("{}={}", form_encoded(&param.name), form_encoded(param.value.as_deref().unwrap_or_default()))
    });
    Some(fields.collect::<Vec<_>>().join("&").into_bytes())
}

/// Encodes a name or a value of a form. Values that were recorded encoded stay unchanged.
fn form_encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        byte if byte.is_ascii_alphanumeric() || b"-._*+%".contains(&byte) => char::from(byte).to_string(),
        b' ' => "+".to_owned(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{ListFormat, RequestSource, parse};
    use crate::listed::Listed;

    fn read(text: &str, base: Option<&str>, hosts: &[&str]) -> Result<Vec<Listed>, Vec<String>> {
        let hosts: Vec<String> = hosts.iter().copied().map(str::to_owned).collect();
        let given = vec!["user-agent".to_owned()];
        let source = RequestSource {
            text,
            file: "r.har",
            base,
            hosts: &hosts,
            given: &given,
            read: &|_| Ok(Vec::new()),
        };
        let shown = |mistakes: Vec<mistake::Mistake>| mistakes.iter().map(ToString::to_string).collect();
        parse(ListFormat::Har, &source).map_err(shown)
    }

    const RECORDING: &str = r#"{"log": {"version": "1.2", "entries": [
        {"request": {"method": "GET", "url": "https://Shop.test/a b?q=\u00e9#top", "httpVersion": "HTTP/2", "cookies": [],
            "headers": [{"name": ":authority", "value": "shop.test"}, {"name": "Host", "value": "x"},
                {"name": "Cookie", "value": "a=b"}, {"name": "User-Agent", "value": "z"}]}, "response": {"status": 200}},
        {"request": {"method": "POST", "url": "https://shop.test:8443/form", "headers": [{"name": "Content-Length", "value": "3"}],
            "postData": {"mimeType": "application/x-www-form-urlencoded", "params": [{"name": "a b", "value": "{{c}}"}, {"name": "d"}]}}},
        {"request": {"method": "PUT", "url": "https://ads.test/x", "headers": [], "postData": {"mimeType": "text/plain", "text": "hi"}}},
        {"request": {"method": "GET", "url": "https://shop.test/ws", "headers": []}, "response": {"status": 101}},
        {"request": {"method": "GET", "url": "data:text/plain,x", "headers": []}}
    ]}}"#;

    #[test]
    fn entries_of_the_hosts_that_are_asked_for_are_requests() {
        let plain = Listed { method: "GET".into(), weight: 1, ..Listed::default() };
        let shop = [
            Listed {
                url: "https://Shop.test/a%20b?q=%C3%A9".into(),
                headers: vec!["Cookie: a=b".into()],
                place: "r.har:2:9".into(),
                ..plain.clone()
            },
            Listed {
                method: "POST".into(),
                url: "https://shop.test:8443/form".into(),
                headers: vec!["Content-Type: application/x-www-form-urlencoded".into()],
                body: b"a+b=%7B%7Bc%7D%7D&d=".to_vec(),
                place: "r.har:5:9".into(),
                ..plain
            },
        ];
        assert_eq!(read(RECORDING, Some("http://shop.test/"), &[]).expect("a host"), shop);
        assert_eq!(read(RECORDING, None, &["SHOP.test"]).expect("a host"), shop);
        let both = read(RECORDING, Some("http://other/"), &["shop.test", "ads.test"]).expect("hosts");
        assert_eq!((both.len(), &both[2].body[..]), (3, &b"hi"[..]));
    }

    #[test]
    fn bodies_types_and_cookies_are_those_of_the_recording() {
        let sent = |request: &str| {
            let text = format!(
                "{{\"log\": {{\"entries\": [{{\"request\": {{\"url\": \"http://a/\", {request}}}}}]}}}}"
            );
            let listed = read(&text, None, &[]).expect(request);
            (listed[0].headers.clone(), listed[0].body.clone())
        };
        let post = |data: &str, headers: &str| {
            sent(&format!("\"method\": \"POST\", \"headers\": [{headers}], \"postData\": {{{data}}}"))
        };
        let of = |fields: &[&str], body: &[u8]| {
            (fields.iter().copied().map(str::to_owned).collect::<Vec<_>>(), body.to_vec())
        };
        let binary = r#""mimeType": "application/octet-stream", "text": "AAEC/w==", "encoding": "base64""#;
        assert_eq!(post(binary, ""), of(&["Content-Type: application/octet-stream"], b"\0\x01\x02\xff"));
        let typed = r#"{"name": "content-type", "value": "text/x"}"#;
        assert_eq!(
            post(r#""mimeType": "text/plain", "text": "hi""#, typed),
            of(&["content-type: text/x"], b"hi")
        );
        assert_eq!(post(r#""mimeType": "", "text": "hi""#, ""), of(&[], b"hi"));
        let get = |rest: &str| sent(&format!("\"method\": \"GET\", {rest}"));
        let fields = r#""headers": [{"name": "cookie", "value": "a=1"}, {"name": "x", "value": "y"}, {"name": "Cookie", "value": "b=2"}]"#;
        assert_eq!(get(fields), of(&["x: y", "Cookie: a=1; b=2"], b""));
        let listed = r#""cookies": [{"name": "a", "value": "1"}, {"name": "b", "value": "2"}]"#;
        assert_eq!(get(listed), of(&["Cookie: a=1; b=2"], b""));
        assert_eq!(get(&format!("{fields}, {listed}")), of(&["x: y", "Cookie: a=1; b=2"], b""));
    }

    #[test]
    fn mistakes_are_told_with_their_place() {
        let entry = |request: &str| format!("{{\"log\": {{\"entries\": [\n{{\"request\": {request}}}]}}}}");
        for (text, expected) in [
            (
                RECORDING.to_owned(),
                "1:1: the recording has requests to several hosts: shop.test (2), ads.test (1); name",
            ),
            ("{".to_owned(), "1:1: this is not a HAR file"),
            ("{\"log\": {}}".to_owned(), "1:10: this is not a HAR file with log.entries: missing field"),
            ("{\"log\": {\"entries\": []}}".to_owned(), "1:1: the recording has no request"),
            (
                entry("{\"url\": \"http://a/\"}"),
                "2:1: this entry is not valid HAR 1.2: missing field `method`",
            ),
            (
                entry("{\"method\": \"G T\", \"url\": \"http://a/\"}"),
                "2:1: method \"G T\": it must be a word",
            ),
            (
                entry(
                    "{\"method\": \"POST\", \"url\": \"http://a/\", \"postData\": {\"mimeType\": \"multipart/form-data\", \"params\": []}}",
                ),
                "2:1: the body of this request, of type \"multipart/form-data\", was not recorded",
            ),
            (
                entry("{\"method\": \"POST\", \"url\": \"http://a/\", \"bodySize\": 12}"),
                "2:1: the body of this request, of 12 bytes, was not recorded",
            ),
            (
                entry(
                    "{\"method\": \"POST\", \"url\": \"http://a/\", \"postData\": {\"text\": \"?\", \"encoding\": \"base64\"}}",
                ),
                "2:1: the body of this request is not valid base64",
            ),
            (
                entry(
                    "{\"method\": \"POST\", \"url\": \"http://a/\", \"postData\": {\"text\": \"?\", \"encoding\": \"gzip\"}}",
                ),
                "2:1: the body of this request is recorded as \"gzip\"; expected base64",
            ),
        ] {
            let mistakes = read(&text, None, &[]).expect_err(&text);
            assert!(mistakes[0].starts_with(&format!("r.har:{expected}")), "{text}: {mistakes:?}");
        }
        let mistakes = read(RECORDING, Some("http://b/"), &[]).expect_err("no host");
        assert!(mistakes[0].contains("no request goes to the requested hosts"), "{mistakes:?}");
    }
}
