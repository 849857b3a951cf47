//! Lines with a format: fields with texts between them, as nginx's `log_format` and Apache's `LogFormat` name them.

use crate::{
    CapturedRequest, CapturedResponse, CapturedScheme, is_field_name, read_request_line, set_target, time,
    version_of,
};

/// A value of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LogField {
    Client,
    /// `10/Oct/2026:13:55:36 +0000`
    CommonTime,
    IsoTime,
    /// Seconds since 1970.
    Seconds,
    RequestLine,
    Method,
    Target,
    /// The path without its query.
    Path,
    /// The query; `?` may stand in front.
    Query,
    Version,
    Status,
    BodyBytes,
    Host,
    /// Belongs to the host in front of it.
    Port,
    Scheme,
    Field(String),
    ResponseField(String),
    Ignored,
}

/// A field, and the text behind it.
#[derive(Debug, Clone)]
struct TemplatePart {
    field: LogField,
    behind: String,
}

#[derive(Debug, Clone)]
pub(super) struct LineTemplate {
    /// The text in front of the first field.
    start: String,
    parts: Vec<TemplatePart>,
}

impl LineTemplate {
    /// The Combined Log Format.
    pub(super) fn combined() -> Self {
        Self::usual("")
    }

    /// The Combined Log Format with the server's name and port in front.
    pub(super) fn of_hosts() -> Self {
        Self::usual("%V:%p ")
    }

    fn usual(start: &str) -> Self {
        let format = format!("{start}%h %l %u %t \"%r\" %>s %b \"%{{Referer}}i\" \"%{{User-Agent}}i\"");
        let made = Self::apache(&format);
        // The text is the one above, which a test reads.
        made.unwrap_or(Self { start: String::new(), parts: Vec::new() })
    }

    /// Reads a format of nginx.
    pub(super) fn nginx(format: &str) -> Result<Self, String> {
        let mut parts: Vec<(LogField, String, String)> = Vec::new();
        let (mut start, mut rest) = (String::new(), format);
        while let Some((before, behind)) = rest.split_once('$') {
            push_text(&mut start, &mut parts, before);
            let (name, tail) = match behind.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
                Some(braced) => braced,
                None => {
                    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
                    behind.split_at(behind.find(|letter| !is_name(letter)).unwrap_or(behind.len()))
                }
            };
            parts.push((nginx_field(name), String::new(), format!("${name}")));
            rest = tail;
        }
        push_text(&mut start, &mut parts, rest);
        Self::of(start, parts)
    }

    /// Reads a format of Apache httpd.
    pub(super) fn apache(format: &str) -> Result<Self, String> {
        let mut parts: Vec<(LogField, String, String)> = Vec::new();
        let (mut start, mut rest) = (String::new(), format);
        while let Some((before, behind)) = rest.split_once('%') {
            push_text(&mut start, &mut parts, before);
            if let Some(tail) = behind.strip_prefix('%') {
                push_text(&mut start, &mut parts, "%");
                rest = tail;
                continue;
            }
            // Statuses for which the value is logged, and which of several requests it is from.
            let directive = behind.trim_start_matches(['!', '<', '>', ','].as_slice());
            let directive =
                directive.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == ',');
            let (name, tail) = match directive.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
                Some((name, tail)) => (Some(name), tail),
                None => (None, directive),
            };
            let length = if tail.starts_with('^') { 3 } else { 1 };
            let (letter, tail) = tail.split_at_checked(length).ok_or("the format ends within a field")?;
            let shown = format!("%{letter}");
            if letter == "t" && name.is_none() {
                push_text(&mut start, &mut parts, "[");
                parts.push((LogField::CommonTime, "]".to_owned(), shown));
            } else {
                parts.push((apache_field(letter, name), String::new(), shown));
            }
            rest = tail;
        }
        push_text(&mut start, &mut parts, rest);
        Self::of(start, parts)
    }

    fn of(start: String, parts: Vec<(LogField, String, String)>) -> Result<Self, String> {
        for pair in parts.windows(2) {
            let ((field, behind, name), (next, _, other)) = (&pair[0], &pair[1]);
            // A query begins with its sign.
            if behind.is_empty() && !(*field == LogField::Path && *next == LogField::Query) {
                return Err(format!(
                    "no text stands between {name} and {other}, so values cannot be told apart"
                ));
            }
        }
        for (field, ..) in &parts {
            if let LogField::Field(name) | LogField::ResponseField(name) = field
                && !is_field_name(name)
            {
                return Err(format!("`{name}` is not the name of a field"));
            }
        }
        let has = |wanted: &LogField| parts.iter().any(|(field, ..)| field == wanted);
        let has_parts = has(&LogField::Method) && (has(&LogField::Target) || has(&LogField::Path));
        if !has(&LogField::RequestLine) && !has_parts {
            return Err("the format has no request: neither the request line, nor method and path".to_owned());
        }
        let parts = parts.into_iter().map(|(field, behind, _)| TemplatePart { field, behind }).collect();
        Ok(Self { start, parts })
    }

    pub(super) fn has(&self, wanted: &LogField) -> bool {
        self.parts.iter().any(|part| part.field == *wanted)
    }

    /// Reads a line. Text behind the last field is ignored.
    pub(super) fn line(&self, line: &str) -> Result<CapturedRequest, String> {
        let mut request = CapturedRequest::default();
        let mut response = CapturedResponse::default();
        let mut rest = line.strip_prefix(&self.start).ok_or("the line does not begin as the format")?;
        let (mut path, mut query) = (None, String::new());
        for (index, part) in self.parts.iter().enumerate() {
            let is_last = index + 1 == self.parts.len();
            let end = match (part.field == LogField::Path && part.behind.is_empty(), part.behind.is_empty()) {
                (true, _) => rest.find(['?', ' ', '"']).unwrap_or(rest.len()),
                (_, true) => rest.len(),
                _ => end_of(rest, &part.behind).ok_or_else(|| {
                    format!("the line ends before {:?}, the value {} of the format", part.behind, index + 1)
                })?,
            };
            let value = unescaped(&rest[..end]);
            rest = if is_last { "" } else { &rest[end + part.behind.len()..] };
            match &part.field {
                LogField::Path => path = Some(value),
                LogField::Query if value != "-" => query = value,
                field => set(field, value, &mut request, &mut response)?,
            }
        }
        if let Some(path) = path {
            let query = query.strip_prefix('?').unwrap_or(&query);
            let sign = if query.is_empty() { "" } else { "?" };
            set_target(&encoded(&format!("{path}{sign}{query}")), &mut request)?;
        }
        request.response = (response.status != 0).then_some(response);
        Ok(request)
    }
}

fn push_text(start: &mut String, parts: &mut [(LogField, String, String)], text: &str) {
    match parts.last_mut() {
        Some((_, behind, _)) => behind.push_str(text),
        None => start.push_str(text),
    }
}

/// Returns where a text begins. A quote behind an odd number of backslashes belongs to the value.
fn end_of(rest: &str, behind: &str) -> Option<usize> {
    let mut from = 0;
    loop {
        let at = from + rest.get(from..)?.find(behind)?;
        let escapes = rest[..at].bytes().rev().take_while(|byte| *byte == b'\\').count();
        if !behind.starts_with('"') || escapes % 2 == 0 {
            return Some(at);
        }
        from = at + 1;
    }
}

fn set(
    field: &LogField,
    value: String,
    request: &mut CapturedRequest,
    response: &mut CapturedResponse,
) -> Result<(), String> {
    if value == "-" && *field != LogField::RequestLine {
        return Ok(());
    }
    match field {
        LogField::Client => request.client = value.parse().ok(),
        LogField::CommonTime => request.time_ms = time::common(&value),
        LogField::IsoTime => request.time_ms = time::iso(&value),
        LogField::Seconds => request.time_ms = time::seconds(&value),
        LogField::RequestLine => read_request_line(&encoded(&value), request)?,
        LogField::Method if !crate::is_method(&value) => return Err(format!("`{value}` is no method")),
        LogField::Method => request.method = value,
        LogField::Target => set_target(&encoded(&value), request)?,
        LogField::Version => request.version = version_of(&value),
        LogField::Status => response.status = value.parse().unwrap_or(0),
        LogField::BodyBytes => response.body_bytes = value.parse().ok(),
        LogField::Host => request.host = Some(value),
        LogField::Port => {
            if let Some(host) = request.host.as_mut().filter(|host| !host.contains(':')) {
                *host += &format!(":{value}");
            }
        }
        LogField::Scheme => request.scheme = CapturedScheme::parse(&value),
        LogField::Field(name) if name.eq_ignore_ascii_case("host") => request.host = Some(value),
        LogField::Field(name) => request.fields.push((name.clone(), value)),
        LogField::ResponseField(name) => response.fields.push((name.clone(), value)),
        LogField::Path | LogField::Query | LogField::Ignored => {}
    }
    Ok(())
}

fn nginx_field(name: &str) -> LogField {
    let field = |name: &str| {
        let words = name.split('_').map(|word| {
            let (first, rest) = word.split_at_checked(1).unwrap_or((word, ""));
            first.to_ascii_uppercase() + rest
        });
        words.collect::<Vec<_>>().join("-")
    };
    match name {
        "remote_addr" => LogField::Client,
        "time_local" => LogField::CommonTime,
        "time_iso8601" => LogField::IsoTime,
        "msec" => LogField::Seconds,
        "request" => LogField::RequestLine,
        "request_method" => LogField::Method,
        "request_uri" => LogField::Target,
        "uri" | "document_uri" => LogField::Path,
        "args" | "query_string" => LogField::Query,
        "server_protocol" => LogField::Version,
        "status" => LogField::Status,
        "body_bytes_sent" => LogField::BodyBytes,
        "host" => LogField::Host,
        "server_port" => LogField::Port,
        "scheme" => LogField::Scheme,
        _ => match (name.strip_prefix("sent_http_"), name.strip_prefix("http_")) {
            (Some(sent), _) => LogField::ResponseField(field(sent)),
            (_, Some(received)) => LogField::Field(field(received)),
            _ => LogField::Ignored,
        },
    }
}

fn apache_field(letter: &str, name: Option<&str>) -> LogField {
    match (letter, name) {
        ("h" | "a", _) => LogField::Client,
        ("t", Some("sec")) => LogField::Seconds,
        ("r", _) => LogField::RequestLine,
        ("m", _) => LogField::Method,
        ("U", _) => LogField::Path,
        ("q", _) => LogField::Query,
        ("H", _) => LogField::Version,
        ("s", _) => LogField::Status,
        ("b" | "B", _) => LogField::BodyBytes,
        ("v" | "V", _) => LogField::Host,
        ("p", _) => LogField::Port,
        ("i", Some(name)) => LogField::Field(name.to_owned()),
        ("o", Some(name)) => LogField::ResponseField(name.to_owned()),
        _ => LogField::Ignored,
    }
}

/// Decodes `\xHH`, `\"` and the like.
fn unescaped(text: &str) -> String {
    let mut made = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, behind)) = rest.split_first() {
        let escaped = if *byte == b'\\' { behind.split_first() } else { None };
        let Some((letter, tail)) = escaped else {
            made.push(*byte);
            rest = behind;
            continue;
        };
        let digits = tail.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let code = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        rest = tail;
        match (letter, code) {
            (b'x', Some(code)) => {
                made.push(code);
                rest = &tail[2..];
            }
            (b'n', _) => made.push(b'\n'),
            (b't', _) => made.push(b'\t'),
            (b'r', _) => made.push(b'\r'),
            (b'"' | b'\\' | b'/', _) => made.push(*letter),
            _ => made.extend([b'\\', *letter]),
        }
    }
    String::from_utf8_lossy(&made).into_owned()
}

/// Encodes letters beyond ASCII as clients do in targets.
fn encoded(text: &str) -> String {
    let mut made = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            _ if letter.is_ascii() => made.push(letter),
            _ => letter.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| made += &format!("%{byte:02X}")),
        }
    }
    made
}
