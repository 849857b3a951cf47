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
    /// Missing if the file was written during the traffic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    requests: Option<usize>,
    #[serde(default)]
    skipped: SkippedEntries,
}

/// The last line of a file that was written during the traffic, if requests are missing.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LostRequests {
    lost: u64,
}

/// Writes a capture.
pub fn write(capture: &Capture) -> String {
    let mut text = head_line(capture, Some(capture.requests.len()));
    capture.requests.iter().for_each(|request| text += &request_line(request));
    text
}

/// Writes the first line of a capture. Without a number of requests, lines of requests may follow until the file ends.
pub fn head_line(capture: &Capture, requests: Option<usize>) -> String {
    line(&CaptureHead {
        vanward_capture: VERSION,
        source: capture.source.clone(),
        masked: capture.is_masked,
        lacks: capture.lacks.clone(),
        requests,
        skipped: capture.skipped.clone(),
    })
}

/// Writes the line of a request.
pub fn request_line(request: &CapturedRequest) -> String {
    line(request)
}

/// Writes the last line of a capture in which so many requests are missing.
pub fn lost_line(lost: u64) -> String {
    line(&LostRequests { lost })
}

fn line(value: &impl Serialize) -> String {
    // Texts and numbers always have a form in JSON.
    let mut text = serde_json::to_string(value).unwrap_or_default();
    text.push('\n');
    text
}

/// Reads a capture.
///
/// # Errors
/// If the text is none, has another version, or is cut off.
pub fn read(text: &str) -> Result<Capture, CaptureError> {
    let mut lines = text.split_inclusive('\n');
    let first = lines.next().unwrap_or_default();
    let head: CaptureHead = serde_json::from_str(first).map_err(|error| {
        let why = format!("it is no capture; make one with `vanward capture` ({error})");
        CaptureError::at(1, why)
    })?;
    if head.vanward_capture != VERSION {
        let why = format!("its version is {}, and this program reads {VERSION}", head.vanward_capture);
        return Err(CaptureError::at(1, why));
    }
    let CaptureHead { source, masked, mut lacks, requests: expected, mut skipped, .. } = head;
    let mut requests = Vec::with_capacity(expected.unwrap_or_default().min(REQUESTS_MAX));
    for (index, line) in lines.enumerate() {
        let line_number = index + 2;
        if expected.is_none() {
            if !line.ends_with('\n') {
                // The proxy ended while it wrote, or still writes.
                skipped.add(|| format!("line {line_number} is cut off"));
                break;
            }
            if let Ok(LostRequests { lost }) = serde_json::from_str(line) {
                lacks.push(lost_requests(lost));
                continue;
            }
        }
        let request: CapturedRequest =
            serde_json::from_str(line).map_err(|error| CaptureError::at(line_number, error.to_string()))?;
        let request = checked(request).map_err(|why| CaptureError::at(line_number, why))?;
        if requests.len() == REQUESTS_MAX {
            return Err(CaptureError::at(line_number, format!("more than {REQUESTS_MAX} requests")));
        }
        requests.push(request);
    }
    if expected.is_some_and(|expected| requests.len() != expected) {
        let expected = expected.unwrap_or_default();
        let why = format!("it has {} of {expected} requests: it is cut off", requests.len());
        return Err(CaptureError::new(why));
    }
    Ok(Capture { source, lacks, requests, skipped, is_masked: masked })
}

/// Says that requests are missing.
pub fn lost_requests(lost: u64) -> String {
    let requests = if lost == 1 { "request" } else { "requests" };
    format!("{lost} {requests}, which came faster than they could be written")
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
    #[test]
    fn a_capture_of_running_traffic_has_no_number_of_requests() {
        let capture = Capture { skipped: SkippedEntries::default(), ..capture() };
        let (head, lines) = (head_line(&capture, None), capture.requests.iter().map(request_line));
        let text = head + &lines.collect::<String>();
        assert_eq!(read(&text), Ok(capture.clone()));
        let lost = read(&(text.clone() + &lost_line(3))).expect("it is one");
        assert_eq!(lost.lacks, ["hosts", "3 requests, which came faster than they could be written"]);
        let cut = read(&text[..text.len() - 5]).expect("it is one");
        assert_eq!((cut.requests.len(), cut.skipped.first.as_deref()), (1, Some("line 3 is cut off")));
    }
}
