//! Access logs of nginx, Apache httpd, HAProxy, Caddy, Traefik and Vanward.

/// Lines with a format: that of nginx or Apache httpd.
mod template;
/// Lines of HAProxy.
mod haproxy;
/// Lines that are JSON objects.
mod json;

use std::collections::BTreeSet;

use crate::{Capture, CaptureError, CapturedRequest, REQUESTS_MAX, SkippedEntries, checked, is_field_name};
use template::{LineTemplate, LogField};

/// Longer lines are skipped.
const LINE_BYTES_MAX: usize = 1 << 20;

/// The program that wrote a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogSource {
    Nginx,
    Apache,
    Haproxy,
    Caddy,
    Traefik,
    Vanward,
}

impl LogSource {
    fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Apache => "Apache httpd",
            Self::Haproxy => "HAProxy",
            Self::Caddy => "Caddy",
            Self::Traefik => "Traefik",
            Self::Vanward => "Vanward",
        }
    }
}

/// Reads access logs of one form.
#[derive(Debug, Clone)]
pub struct LogReader {
    source: LogSource,
    /// Forms in which a line may be, in this order.
    templates: Vec<LineTemplate>,
    /// Names of the fields that HAProxy captures, in the order of the log.
    captured: Vec<String>,
}

impl LogReader {
    /// A reader of the usual form: combined, with a virtual host in front or not (nginx, Apache, Vanward), `option
    /// httplog` (HAProxy), JSON (Caddy, Traefik, Vanward) or the Common Log Format (Traefik).
    pub fn new(source: LogSource) -> Self {
        let templates = match source {
            LogSource::Nginx | LogSource::Vanward | LogSource::Traefik => vec![LineTemplate::combined()],
            LogSource::Apache => vec![LineTemplate::of_hosts(), LineTemplate::combined()],
            LogSource::Haproxy | LogSource::Caddy => Vec::new(),
        };
        Self { source, templates, captured: Vec::new() }
    }

    /// Sets the format: of nginx's `log_format`, or of Apache's `LogFormat`.
    ///
    /// # Errors
    /// If the program has no such formats, or the format has two fields without a text between them.
    pub fn with_format(mut self, format: &str) -> Result<Self, CaptureError> {
        let template = match self.source {
            LogSource::Nginx => LineTemplate::nginx(format),
            LogSource::Apache => LineTemplate::apache(format),
            other => {
                return Err(CaptureError::new(format!("logs of {} have no format to name", other.name())));
            }
        };
        self.templates = vec![template.map_err(CaptureError::new)?];
        Ok(self)
    }

    /// Sets the names of the request fields that HAProxy captures, in the order of its configuration.
    ///
    /// # Errors
    /// If the program does not capture fields, or a name is none of a field.
    pub fn with_captured(mut self, names: &[String]) -> Result<Self, CaptureError> {
        if self.source != LogSource::Haproxy && !names.is_empty() {
            return Err(CaptureError::new("only HAProxy logs captured fields without their names"));
        }
        if let Some(wrong) = names.iter().find(|name| !is_field_name(name)) {
            return Err(CaptureError::new(format!("`{wrong}` is not the name of a field")));
        }
        self.captured = names.to_vec();
        Ok(self)
    }

    /// Reads a log. Lines that are no requests are counted.
    ///
    /// # Errors
    /// If no line is a request.
    pub fn read(&self, text: &[u8]) -> Result<Capture, CaptureError> {
        let (mut requests, mut skipped) = (Vec::new(), SkippedEntries::default());
        for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() {
                continue;
            }
            let read = match () {
                () if requests.len() >= REQUESTS_MAX => Err(format!("more than {REQUESTS_MAX} requests")),
                () if line.len() > LINE_BYTES_MAX => Err("the line is too long".to_owned()),
                () => self.line(&String::from_utf8_lossy(line)),
            };
            match read.and_then(checked) {
                Ok(request) => requests.push(request),
                Err(why) => skipped.add(|| format!("line {}: {why}", index + 1)),
            }
        }
        if requests.is_empty() {
            let name = self.source.name();
            let first = skipped.first.unwrap_or_else(|| "it is empty".to_owned());
            return Err(CaptureError::new(format!("no line is a request as {name} logs it; {first}")));
        }
        let lacks = self.lacks(&requests);
        let source = format!("access log of {}", self.source.name());
        Ok(Capture { source, lacks, requests, skipped, is_masked: false })
    }

    fn line(&self, line: &str) -> Result<CapturedRequest, String> {
        if line.starts_with('{') && self.source != LogSource::Haproxy {
            return json::line(self.source, line);
        }
        if self.source == LogSource::Haproxy {
            return haproxy::line(line, &self.captured);
        }
        let mut why = "the line is no JSON object".to_owned();
        for template in &self.templates {
            match template.line(line).and_then(checked) {
                Ok(request) => return Ok(request),
                Err(other) => why = other,
            }
        }
        Err(why)
    }

    /// Lists facts that a faithful replay needs and these requests do not have.
    fn lacks(&self, requests: &[CapturedRequest]) -> Vec<String> {
        let mut lacks = Vec::new();
        let known: BTreeSet<String> = requests
            .iter()
            .flat_map(|request| &request.fields)
            .map(|(name, _)| name.to_ascii_lowercase())
            .collect();
        let logs_all = matches!(self.source, LogSource::Caddy);
        if !logs_all {
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            let but = if known.is_empty() { String::new() } else { format!(" except {}", known.join(", ")) };
            lacks.push(format!("fields of requests{but}"));
        }
        lacks.push("bodies of requests".to_owned());
        if requests.iter().all(|request| request.host.is_none()) {
            lacks.push("hosts".to_owned());
        }
        if requests.iter().all(|request| request.scheme.is_none()) {
            lacks.push("whether a request came over TLS".to_owned());
        }
        if requests.iter().all(|request| request.client.is_none()) {
            lacks.push("addresses of clients".to_owned());
        }
        if requests.iter().all(|request| request.time_ms.is_none()) {
            lacks.push("times".to_owned());
        }
        if self.templates.iter().any(|template| template.has(&LogField::Path)) {
            lacks.push("paths as clients sent them: $uri has no escapes".to_owned());
        }
        lacks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CapturedResponse, CapturedScheme};

    fn one(reader: &LogReader, line: &str) -> CapturedRequest {
        let mut capture = reader.read(line.as_bytes()).unwrap_or_else(|error| panic!("{line}: {error}"));
        assert_eq!((capture.requests.len(), capture.skipped.count), (1, 0), "{line}");
        capture.requests.remove(0)
    }

    fn combined() -> CapturedRequest {
        CapturedRequest {
            time_ms: Some(1_791_640_536_000),
            client: "192.0.2.7".parse().ok(),
            method: "GET".to_owned(),
            target: "/a?page=2".to_owned(),
            version: Some("1.1".to_owned()),
            fields: vec![
                ("Referer".to_owned(), "https://b.example/\"".to_owned()),
                ("User-Agent".to_owned(), "curl/8.14".to_owned()),
            ],
            response: Some(CapturedResponse { status: 200, body_bytes: Some(2326), ..Default::default() }),
            ..Default::default()
        }
    }

    #[test]
    fn combined_lines_of_each_program() {
        let line = |quote: &str| {
            format!(
                "192.0.2.7 - - [10/Oct/2026:13:55:36 +0000] \"GET /a?page=2 HTTP/1.1\" 200 2326 \
                 \"https://b.example/{quote}\" \"curl/8.14\""
            )
        };
        let (nginx, apache) = (line("\\x22"), line("\\\""));
        assert_eq!(one(&LogReader::new(LogSource::Nginx), &nginx), combined());
        assert_eq!(one(&LogReader::new(LogSource::Apache), &apache), combined());
        // With the name of the server in front, and a field behind.
        let hosts = CapturedRequest { host: Some("a.example:443".to_owned()), ..combined() };
        assert_eq!(one(&LogReader::new(LogSource::Apache), &format!("a.example:443 {apache}")), hosts);
        assert_eq!(one(&LogReader::new(LogSource::Nginx), &format!("{nginx} \"192.0.2.9\"")), combined());
        let traefik = format!("{apache} 1 \"app@docker\" \"http://10.0.0.1:80\" 5ms");
        assert_eq!(one(&LogReader::new(LogSource::Traefik), &traefik), combined());
    }

    #[test]
    fn formats_of_nginx_and_apache() {
        let format = "$remote_addr|$time_iso8601|$scheme|$host|$request_method $uri?$args $server_protocol|$status|\
                      $http_x_api_key|${sent_http_content_type}|$request_time";
        let nginx = LogReader::new(LogSource::Nginx).with_format(format).expect("it is one");
        let read = one(
            &nginx,
            "::1|2026-10-10T13:55:36+00:00|https|a.example|PUT /x?y=1 HTTP/2.0|204|\\x00k|text/html|0.003",
        );
        let expected = CapturedRequest {
            time_ms: Some(1_791_640_536_000),
            client: "::1".parse().ok(),
            scheme: Some(CapturedScheme::Https),
            host: Some("a.example".to_owned()),
            method: "PUT".to_owned(),
            target: "/x?y=1".to_owned(),
            version: Some("2".to_owned()),
            fields: vec![("X-Api-Key".to_owned(), "\0k".to_owned())],
            response: Some(CapturedResponse {
                status: 204,
                fields: vec![("Content-Type".to_owned(), "text/html".to_owned())],
                body_bytes: None,
            }),
            ..Default::default()
        };
        assert_eq!(read, expected);
        let format = "%{c}a %u %t \"%m %U%q %H\" %>s %B %D \"%{Host}i\" \"%{Set-Cookie}o\"";
        let apache = LogReader::new(LogSource::Apache).with_format(format).expect("it is one");
        let read = one(
            &apache,
            "192.0.2.7 alice [10/Oct/2026:15:55:36 +0200] \"GET /a?b HTTP/1.1\" 302 0 17 \"a.example\" \"-\"",
        );
        assert_eq!((read.target.as_str(), read.host.as_deref()), ("/a?b", Some("a.example")));
        assert_eq!(read.time_ms, Some(1_791_640_536_000));
        assert_eq!(read.response.map(|response| response.status), Some(302));
    }

    #[test]
    fn formats_that_cannot_be_read_are_refused() {
        for (source, format, why) in [
            (LogSource::Nginx, "$status$request", "no text stands between $status and $request"),
            (LogSource::Nginx, "$remote_addr $status", "the format has no request"),
            (LogSource::Apache, "%h %>s", "the format has no request"),
            (LogSource::Nginx, "", "the format has no request"),
            (LogSource::Caddy, "$request", "logs of Caddy have no format to name"),
        ] {
            let error = LogReader::new(source).with_format(format).expect_err(format);
            assert!(error.why.contains(why), "{format}: {error}");
        }
    }

    #[test]
    fn lines_of_haproxy() {
        let line = "Feb  6 12:14:14 lb haproxy[14389]: 10.0.1.2:33317 [06/Feb/2009:12:14:14.655] http-in~ static/srv1 \
                    10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 {www.a.example|curl/8.14 \\x7c} {nginx} \
                    \"GET /index.html?a=b HTTP/1.1\"";
        let names = ["Host", "User-Agent"].map(str::to_owned);
        let reader = LogReader::new(LogSource::Haproxy).with_captured(&names).expect("they are names");
        let expected = CapturedRequest {
            time_ms: Some(1_233_922_454_655),
            client: "10.0.1.2".parse().ok(),
            scheme: Some(CapturedScheme::Https),
            host: Some("www.a.example".to_owned()),
            method: "GET".to_owned(),
            target: "/index.html?a=b".to_owned(),
            version: Some("1.1".to_owned()),
            fields: vec![("User-Agent".to_owned(), "curl/8.14 \\x7c".to_owned())],
            response: Some(CapturedResponse { status: 200, body_bytes: Some(2750), ..Default::default() }),
            ..Default::default()
        };
        assert_eq!(one(&reader, line), expected);
        // Without captured fields, over IPv6, and a client that left.
        let bare = "::1:4444 [06/Feb/2009:12:14:14.655] web app/<NOSRV> 1/-1/-1/-1/2 -1 0 - - CQ-- 0/0/0/0/0 0/0 \
                    \"POST http://a.example/x HTTP/2.0\"";
        let read = one(&LogReader::new(LogSource::Haproxy), bare);
        assert_eq!((read.target.as_str(), read.host.as_deref()), ("/x", Some("a.example")));
        assert_eq!((read.client, read.response), ("::1".parse().ok(), None));
    }

    #[test]
    fn json_of_each_program() {
        let caddy = r#"{"level":"info","ts":1791640536.007,"logger":"http.log.access","msg":"handled request","request":{"remote_ip":"192.0.2.7","remote_port":"1","client_ip":"192.0.2.8","proto":"HTTP/2.0","method":"GET","host":"a.example","uri":"/a?page=2","headers":{"User-Agent":["curl/8.14"],"Cookie":["REDACTED"]},"tls":{"resumed":false}},"status":200,"size":7,"resp_headers":{"Server":["Caddy"]}}"#;
        let traefik = r#"{"ClientHost":"192.0.2.8","RequestMethod":"GET","RequestHost":"a.example","RequestAddr":"a.example:8443","RequestPath":"/a?page=2","RequestProtocol":"HTTP/2.0","RequestScheme":"https","DownstreamStatus":200,"DownstreamContentSize":7,"StartUTC":"2026-10-10T13:55:36.007Z","request_User-Agent":"curl/8.14","downstream_Server":"Caddy"}"#;
        let vanward = r#"{"time":"2026-10-10T13:55:36.007Z","client":"192.0.2.8","method":"GET","target":"/a?page=2","version":"2","scheme":"https","host":"a.example","user_agent":"curl/8.14","status":200,"body_bytes_sent":7,"response_header.Server":"Caddy"}"#;
        for (source, line) in
            [(LogSource::Caddy, caddy), (LogSource::Traefik, traefik), (LogSource::Vanward, vanward)]
        {
            let read = one(&LogReader::new(source), line);
            assert_eq!(read.time_ms, Some(1_791_640_536_007), "{line}");
            assert_eq!(read.client, "192.0.2.8".parse().ok(), "{line}");
            assert_eq!(read.scheme, Some(CapturedScheme::Https), "{line}");
            assert!(read.host.as_deref().is_some_and(|host| host.starts_with("a.example")), "{line}");
            assert_eq!((read.method.as_str(), read.target.as_str()), ("GET", "/a?page=2"), "{line}");
            assert_eq!(read.version.as_deref(), Some("2"), "{line}");
            assert_eq!(read.field("user-agent"), Some("curl/8.14"), "{line}");
            let response = read.response.unwrap_or_default();
            assert_eq!((response.status, response.body_bytes), (200, Some(7)), "{line}");
            assert_eq!(response.field("Server"), Some("Caddy"), "{line}");
        }
    }

    #[test]
    fn other_lines_are_counted_and_a_log_without_requests_is_refused() {
        let line = "192.0.2.7 - - [10/Oct/2026:13:55:36 +0000] \"\\x16\\x03\" 400 0 \"-\" \"-\"\n";
        let good =
            "192.0.2.7 - - [10/Oct/2026:13:55:36 +0000] \"GET /\\xC3\\xA4 HTTP/1.1\" 400 0 \"-\" \"-\"\n";
        let reader = LogReader::new(LogSource::Nginx);
        let read = reader.read(format!("{line}\n{good}rubbish\n").as_bytes()).expect("one is a request");
        assert_eq!((read.requests.len(), read.skipped.count), (1, 2));
        assert_eq!(read.requests[0].target, "/%C3%A4");
        assert!(read.skipped.first.as_deref().is_some_and(|first| first.starts_with("line 1: ")));
        assert!(read.lacks.iter().any(|lack| lack == "hosts"), "{:?}", read.lacks);
        let error = reader.read(line.as_bytes()).expect_err("no request");
        assert!(error.to_string().contains("line 1"), "{error}");
        for source in [LogSource::Haproxy, LogSource::Caddy, LogSource::Traefik, LogSource::Vanward] {
            for wrong in
                ["", "{", "{}", "[]", "\u{0}", "{\"request\":3}", "x [y", "a:1 [x] b c/d e", "\u{feff}{"]
            {
                assert!(LogReader::new(source).read(wrong.as_bytes()).is_err(), "{source:?} {wrong}");
            }
        }
    }
}
