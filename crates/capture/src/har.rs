//! Recordings of browsers and proxies: HAR 1.2.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;

use crate::{
    Capture, CaptureError, CapturedBody, CapturedRequest, CapturedResponse, REQUESTS_MAX, SkippedEntries,
    checked, is_field_name, is_method, set_target, time, version_of,
};

#[derive(Deserialize)]
struct BrowserArchive {
    log: BrowserLog,
}

#[derive(Deserialize)]
struct BrowserLog {
    entries: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BrowserEntry {
    #[serde(default)]
    started_date_time: String,
    request: BrowserRequest,
    response: Option<BrowserResponse>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BrowserRequest {
    method: String,
    url: String,
    #[serde(default)]
    http_version: String,
    #[serde(default)]
    headers: Vec<BrowserField>,
    post_data: Option<BrowserBody>,
}

#[derive(Deserialize)]
struct BrowserBody {
    #[serde(default)]
    text: String,
    /// `base64` for binary bodies.
    #[serde(default)]
    encoding: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BrowserResponse {
    #[serde(default)]
    status: i64,
    #[serde(default)]
    headers: Vec<BrowserField>,
    /// -1 if it is unknown.
    #[serde(default)]
    body_size: i64,
}

#[derive(Deserialize)]
struct BrowserField {
    name: String,
    value: String,
}

/// Reads a HAR file.
///
/// # Errors
/// If the file is none, or has no request that can be read.
pub fn har(text: &[u8]) -> Result<Capture, CaptureError> {
    // Some browsers begin files with a byte order mark.
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let archive: BrowserArchive = serde_json::from_slice(text)
        .map_err(|error| CaptureError::at(error.line(), format!("it is no HAR file: {error}")))?;
    let (mut requests, mut skipped) = (Vec::new(), SkippedEntries::default());
    for (index, value) in archive.log.entries.into_iter().enumerate() {
        let read = match serde_json::from_value::<BrowserEntry>(value) {
            Ok(_) if requests.len() >= REQUESTS_MAX => Err(format!("more than {REQUESTS_MAX} requests")),
            Ok(entry) => entry_of(entry),
            Err(error) => Err(error.to_string()),
        };
        match read.and_then(checked) {
            Ok(request) => requests.push(request),
            Err(why) => skipped.add(|| format!("entry {}: {why}", index + 1)),
        }
    }
    if requests.is_empty() {
        let first = skipped.first.unwrap_or_else(|| "it has no entries".to_owned());
        return Err(CaptureError::new(format!("no entry is a request; {first}")));
    }
    let lacks = vec!["addresses of clients".to_owned(), "bodies that the browser did not record".to_owned()];
    Ok(Capture { source: "HAR file".to_owned(), lacks, requests, skipped, is_masked: false })
}

fn entry_of(entry: BrowserEntry) -> Result<CapturedRequest, String> {
    let BrowserEntry { started_date_time, request: asked, response } = entry;
    let mut request = CapturedRequest::default();
    if !is_method(&asked.method) {
        return Err(format!("`{}` is no method", asked.method));
    }
    if !asked.url.starts_with("http://") && !asked.url.starts_with("https://") {
        return Err(format!("`{}` is no HTTP request", asked.url.chars().take(60).collect::<String>()));
    }
    set_target(&asked.url, &mut request)?;
    request.time_ms = time::iso(&started_date_time);
    request.method = asked.method;
    request.version = version_of(match asked.http_version.to_ascii_lowercase().as_str() {
        "h2" => "2",
        "h3" => "3",
        "http/1.0" => "1.0",
        "http/1.1" => "1.1",
        "http/2" | "http/2.0" => "2",
        "http/3" | "http/3.0" => "3",
        _ => "",
    });
    request.fields = fields_of(asked.headers);
    request.body = match asked.post_data {
        None => None,
        Some(data) if data.encoding == "base64" => {
            let content = BASE64_STANDARD.decode(data.text).map_err(|error| format!("the body: {error}"))?;
            Some(CapturedBody::of(&content))
        }
        Some(data) => Some(CapturedBody::of(data.text.as_bytes())),
    };
    request.response = response.filter(|response| response.status > 0).map(|response| CapturedResponse {
        status: u16::try_from(response.status).unwrap_or(0),
        fields: fields_of(response.headers),
        body_bytes: u64::try_from(response.body_size).ok(),
    });
    Ok(request)
}

/// Fields without those of HTTP/2 (`:path`) and `Host`, which the URL has.
fn fields_of(fields: Vec<BrowserField>) -> Vec<(String, String)> {
    let is_kept = |name: &str| is_field_name(name) && !name.eq_ignore_ascii_case("host");
    fields.into_iter().filter(|field| is_kept(&field.name)).map(|field| (field.name, field.value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CapturedScheme;

    #[test]
    fn entries_of_a_browser() {
        let text = br#"{"log":{"entries":[
            {"startedDateTime":"2026-10-10T13:55:36.007Z","request":{"method":"POST","url":"https://a.example:8443/x?y=1#z",
             "httpVersion":"h2","headers":[{"name":":path","value":"/x"},{"name":"Host","value":"a"},{"name":"cookie","value":"a=b"}],
             "postData":{"mimeType":"text/plain","text":"hello"}},
             "response":{"status":201,"headers":[{"name":"Location","value":"/y"}],"bodySize":-1}},
            {"request":{"method":"GET","url":"data:text/plain,x"}},
            {"request":{"method":"PUT","url":"http://a.example","postData":{"text":"AAE=","encoding":"base64"}},"response":{"status":0}}
        ]}}"#;
        let capture = har(text).expect("it is one");
        assert_eq!((capture.requests.len(), capture.skipped.count), (2, 1));
        assert!(capture.skipped.first.as_deref().is_some_and(|first| first.starts_with("entry 2")));
        let [first, second] = &capture.requests[..] else { panic!("{capture:?}") };
        assert_eq!(
            (first.scheme, first.host.as_deref()),
            (Some(CapturedScheme::Https), Some("a.example:8443"))
        );
        assert_eq!((first.target.as_str(), first.version.as_deref()), ("/x?y=1", Some("2")));
        assert_eq!(first.fields, [("cookie".to_owned(), "a=b".to_owned())]);
        assert_eq!(first.body.as_ref().map(|body| body.bytes), Some(5));
        let response = first.response.clone().unwrap_or_default();
        assert_eq!(
            (response.status, response.field("location"), response.body_bytes),
            (201, Some("/y"), None)
        );
        assert_eq!((second.target.as_str(), second.response.clone()), ("/", None));
        assert_eq!(second.body.as_ref().and_then(|body| body.base64.as_deref()), Some("AAE="));
    }

    #[test]
    fn other_files_are_refused() {
        for (wrong, why) in [
            ("", "it is no HAR file"),
            ("{}", "it is no HAR file"),
            ("{\"log\":{\"entries\":[]}}", "it has no entries"),
            ("{\"log\":{\"entries\":[3]}}", "entry 1"),
            (
                "{\"log\":{\"entries\":[{\"request\":{\"method\":\"G T\",\"url\":\"http://a/\"}}]}}",
                "no method",
            ),
        ] {
            let error = har(wrong.as_bytes()).expect_err(wrong);
            assert!(error.why.contains(why), "{wrong}: {error}");
        }
    }
}
