//! The file form of captures: a line of JSON about the file, then one for each request.

use serde::{Deserialize, Serialize};

use crate::{Capture, CaptureError, CapturedRequest, REQUESTS_MAX, SkippedEntries, checked};

/// The version of the form.
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CaptureHead {
    vanward_capture: u32,
    source: String,
    masked: bool,
    lacks: Vec<String>,
    requests: usize,
    skipped: SkippedEntries,
}

/// Writes a capture.
pub fn write(capture: &Capture) -> String {
    let head = CaptureHead {
        vanward_capture: VERSION,
        source: capture.source.clone(),
        masked: capture.is_masked,
        lacks: capture.lacks.clone(),
        requests: capture.requests.len(),
        skipped: capture.skipped.clone(),
    };
    // Texts and numbers always have a form in JSON.
    let mut text = serde_json::to_string(&head).unwrap_or_default();
    text.push('\n');
    for request in &capture.requests {
        text += &serde_json::to_string(request).unwrap_or_default();
        text.push('\n');
    }
    text
}

/// Reads a capture.
///
/// # Errors
/// If the text is none, has another version, or is cut off.
pub fn read(text: &str) -> Result<Capture, CaptureError> {
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default();
    let head: CaptureHead = serde_json::from_str(first).map_err(|error| {
        let why = format!("it is no capture; make one with `vanward capture` ({error})");
        CaptureError::at(1, why)
    })?;
    if head.vanward_capture != VERSION {
        let why = format!("its version is {}, and this program reads {VERSION}", head.vanward_capture);
        return Err(CaptureError::at(1, why));
    }
    let mut requests = Vec::with_capacity(head.requests.min(REQUESTS_MAX));
    for (index, line) in lines.enumerate() {
        let line_number = index + 2;
        let request: CapturedRequest =
            serde_json::from_str(line).map_err(|error| CaptureError::at(line_number, error.to_string()))?;
        let request = checked(request).map_err(|why| CaptureError::at(line_number, why))?;
        if requests.len() == REQUESTS_MAX {
            return Err(CaptureError::at(line_number, format!("more than {REQUESTS_MAX} requests")));
        }
        requests.push(request);
    }
    if requests.len() != head.requests {
        let why = format!("it has {} of {} requests: it is cut off", requests.len(), head.requests);
        return Err(CaptureError::new(why));
    }
    let CaptureHead { source, masked, lacks, skipped, .. } = head;
    Ok(Capture { source, lacks, requests, skipped, is_masked: masked })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CapturedBody, CapturedResponse, CapturedScheme};

    fn capture() -> Capture {
        let request = CapturedRequest {
            time_ms: Some(1),
            client: "::1".parse().ok(),
            scheme: Some(CapturedScheme::Https),
            host: Some("a.example".to_owned()),
            method: "GET".to_owned(),
            target: "/ä\"".to_owned(),
            version: Some("2".to_owned()),
            fields: vec![("A".to_owned(), "b\n".to_owned())],
            body: Some(CapturedBody::of(b"x")),
            response: Some(CapturedResponse { status: 200, fields: Vec::new(), body_bytes: None }),
        };
        let bare = CapturedRequest { method: "GET".to_owned(), target: "*".to_owned(), ..Default::default() };
        Capture {
            source: "test".to_owned(),
            lacks: vec!["hosts".to_owned()],
            requests: vec![request, bare],
            skipped: SkippedEntries { count: 1, first: Some("line 1".to_owned()) },
            is_masked: true,
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let text = write(&capture());
        assert_eq!(text.lines().count(), 3);
        assert_eq!(text.lines().last(), Some(r#"{"method":"GET","target":"*"}"#));
        assert_eq!(read(&text), Ok(capture()));
    }

    #[test]
    fn mistakes_have_their_line() {
        let text = write(&capture());
        let lines: Vec<&str> = text.lines().collect();
        let with = |line: &str| format!("{}\n{line}\n", lines[0]);
        for (wrong, why) in [
            (String::new(), "line 1: it is no capture"),
            (lines[1].to_owned(), "line 1: it is no capture"),
            (text.replacen("\":1,", "\":9,", 1), "line 1: its version is 9"),
            (lines[..2].join("\n"), "it has 1 of 2 requests: it is cut off"),
            (text[..text.len() - 5].to_owned(), "line 3: "),
            (with(r#"{"method":"G T","target":"/"}"#), "line 2: `G T` is no method"),
            (with(r#"{"method":"GET","target":"x"}"#), "line 2: `x` is no path"),
            (with(r#"{"method":"GET","target":"/","host":"a b"}"#), "line 2: the host has spaces"),
            (with(r#"{"method":"GET","target":"/","fields":[["a:b","c"]]}"#), "line 2: `a:b` is not"),
            (with(r#"{"method":"GET","target":"/","more":1}"#), "line 2: unknown field `more`"),
        ] {
            let error = read(&wrong).expect_err(&wrong).to_string();
            assert!(error.starts_with(why), "{wrong}: {error}");
        }
    }
}
