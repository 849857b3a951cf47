//! Answers to requests as bytes, and what servers saw of the requests.

/// Longer answers are cut.
const ANSWER_MAX: usize = 8 << 20;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProofAnswer {
    /// 0: no response came.
    pub status: u16,
    /// With names in lower case.
    pub fields: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Why there is no complete response; empty if there is one.
    pub trouble: String,
}

impl ProofAnswer {
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// A request as a server saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenRequest {
    /// Index of the server.
    pub server: usize,
    pub method: String,
    pub target: String,
    /// With names in lower case.
    pub fields: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl SeenRequest {
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// The answer to a request, and the requests that servers saw.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProofOutcome {
    pub answer: ProofAnswer,
    pub seen: Vec<SeenRequest>,
}

/// Bytes from a proxy, until a response is complete.
#[derive(Debug)]
pub struct ResponseWire {
    bytes: Vec<u8>,
    has_no_body: bool,
}

impl ResponseWire {
    /// Begins a response to a request with this method.
    pub fn new(method: &str) -> Self {
        Self { bytes: Vec::new(), has_no_body: method == "HEAD" }
    }

    /// Adds bytes. Returns whether the response is complete.
    pub fn push(&mut self, bytes: &[u8]) -> bool {
        self.bytes.extend_from_slice(bytes);
        self.bytes.len() > ANSWER_MAX || self.read(false).is_some()
    }

    /// Whether the response has switched protocols.
    pub fn has_switched(&self) -> bool {
        self.bytes.starts_with(b"HTTP/1.1 101 ") && position(&self.bytes, b"\r\n\r\n").is_some()
    }

    /// The response. `trouble` is why no more bytes come, where they are missing.
    pub fn answer(self, trouble: &str) -> ProofAnswer {
        let whole = self.read(true);
        whole.unwrap_or_else(|| ProofAnswer { trouble: trouble.to_owned(), ..ProofAnswer::default() })
    }

    /// Reads a response. With `is_end`, a body that ends with the connection is complete, and others are cut.
    fn read(&self, is_end: bool) -> Option<ProofAnswer> {
        let mut rest = self.bytes.as_slice();
        let (status, fields) = loop {
            let end = position(rest, b"\r\n\r\n")?;
            let head = head(&rest[..end])?;
            rest = &rest[end + 4..];
            // RFC 9110 §15.2: interim responses come before the final one.
            if !(100..200).contains(&head.0) || head.0 == 101 {
                break head;
            }
        };
        let value =
            |name: &str| fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        let is_chunked = value("transfer-encoding").is_some_and(|value| value.ends_with("chunked"));
        let length = value("content-length").and_then(|length| length.parse::<usize>().ok());
        // RFC 9112 §6.3: these have no body. Behind a 101, the other protocol ends with the connection.
        let has_none = self.has_no_body || matches!(status, 204 | 304);
        let cut = |body: Vec<u8>| ProofAnswer {
            status,
            fields: fields.clone(),
            body,
            trouble: "cut off".to_owned(),
        };
        let body = match length {
            _ if has_none => Vec::new(),
            _ if is_chunked => match chunks(rest) {
                (body, true) => body,
                (body, false) => return is_end.then(|| cut(body)),
            },
            Some(length) if rest.len() >= length => rest[..length].to_vec(),
            Some(_) => return is_end.then(|| cut(rest.to_vec())),
            None if is_end => rest.to_vec(),
            None => return None,
        };
        Some(ProofAnswer { status, fields, body, trouble: String::new() })
    }
}

fn position(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|part| part == wanted)
}

type ResponseHead = (u16, Vec<(String, String)>);

fn head(bytes: &[u8]) -> Option<ResponseHead> {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let fields = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim().to_owned()));
    Some((status, fields.collect()))
}

/// Decodes chunks. Returns whether the last one was there.
fn chunks(mut rest: &[u8]) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    loop {
        let Some(end) = position(rest, b"\r\n") else { return (body, false) };
        let line = String::from_utf8_lossy(&rest[..end]);
        let digits = line.split(';').next().unwrap_or_default().trim();
        let Ok(length) = usize::from_str_radix(digits, 16) else { return (body, false) };
        rest = &rest[end + 2..];
        if length == 0 {
            let is_whole = rest.starts_with(b"\r\n") || position(rest, b"\r\n\r\n").is_some();
            return (body, is_whole);
        }
        let Some(piece) = rest.get(..length) else { return (body, false) };
        body.extend_from_slice(piece);
        rest = rest.get(length + 2..).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_complete_as_their_framing_says() {
        let cases: [(&str, &str, bool, u16, &str, &str); 9] = [
            ("GET", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab", true, 200, "ab", ""),
            ("GET", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", false, 200, "ab", "cut off"),
            ("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", true, 200, "", ""),
            ("GET", "HTTP/1.1 304 Not Modified\r\n\r\n", true, 304, "", ""),
            ("GET", "HTTP/1.0 200 OK\r\n\r\nab", false, 200, "ab", ""),
            (
                "GET",
                "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x\r\nab\r\n0\r\n\r\n",
                true,
                200,
                "ab",
                "",
            ),
            ("GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\na", false, 200, "", "cut off"),
            ("GET", "HTT", false, 0, "", "closed"),
            ("GET", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: a\r\n\r\nab", false, 101, "ab", ""),
        ];
        for (method, bytes, is_whole, status, body, trouble) in cases {
            let mut wire = ResponseWire::new(method);
            assert_eq!(wire.push(bytes.as_bytes()), is_whole, "{bytes:?}");
            let answer = wire.answer("closed");
            let found = (answer.status, String::from_utf8_lossy(&answer.body).into_owned(), answer.trouble);
            assert_eq!(found, (status, body.to_owned(), trouble.to_owned()), "{bytes:?}");
        }
    }
}
