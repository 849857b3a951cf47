//! Lines of HAProxy's `option httplog` and `option httpslog`, also behind the head of a syslog message.

use crate::{CapturedRequest, CapturedResponse, CapturedScheme, read_request_line, time};

/// Reads a line. `captured` names the captured fields of requests.
pub(super) fn line(line: &str, captured: &[String]) -> Result<CapturedRequest, String> {
    let mut request = CapturedRequest::default();
    let other =
        || "it is no line of `option httplog`: CLIENT:PORT [TIME] FRONTEND BACKEND/SERVER …".to_owned();
    let (head, rest) = line.split_once(" [").filter(|(head, _)| !head.is_empty()).ok_or_else(other)?;
    // The number of a process in the head of a syslog message also stands in brackets, without a space in front.
    let client = head.rsplit(' ').next().and_then(|client| client.rsplit_once(':'));
    let (address, _) = client.ok_or_else(other)?;
    request.client = address.trim_matches(['[', ']'].as_slice()).parse().ok();
    let (stamp, rest) = rest.split_once("] ").ok_or_else(other)?;
    request.time_ms = Some(time::common(stamp).ok_or_else(other)?);
    let mut words = rest.split(' ');
    let frontend = words.next().ok_or_else(other)?;
    // A tilde marks a listener with TLS.
    request.scheme = Some(if frontend.ends_with('~') { CapturedScheme::Https } else { CapturedScheme::Http });
    let status = words.nth(2).ok_or_else(other)?;
    let body_bytes = words.next().and_then(|bytes| bytes.parse().ok());
    // -1 stands for a client that got none.
    request.response = status.parse().ok().filter(|status| *status > 0).map(|status| CapturedResponse {
        status,
        body_bytes,
        ..Default::default()
    });
    let (before, quoted) = rest.split_once(" \"").ok_or_else(other)?;
    if let Some((values, _)) = before.split_once('{').and_then(|(_, inner)| inner.split_once('}')) {
        let values: Vec<&str> = values.split('|').collect();
        for (name, value) in captured.iter().zip(values).filter(|(_, value)| !value.is_empty()) {
            if name.eq_ignore_ascii_case("host") {
                request.host = Some(value.to_owned());
            } else {
                request.fields.push((name.clone(), value.to_owned()));
            }
        }
    }
    let end = quoted.rfind('"').unwrap_or(quoted.len());
    read_request_line(&quoted[..end], &mut request)?;
    Ok(request)
}
