//! Requests rendered for the wire: the common part of a run's requests, and the changes after a redirect.

use ::http::header::CONTENT_LENGTH;
use ::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, Version};
use base64::Engine;

use crate::error::Error;
use crate::listed::Listed;
use crate::plan::LoadPlan;
use crate::url::{Url, UrlScheme, shortened};

/// Common parts of the requests to the URLs of a run, or a request of a list.
#[derive(Debug)]
pub(crate) struct RequestForm {
    method: String,
    /// Value of a given Host field.
    host: Option<String>,
    given: FormFields,
    /// Given credentials, sent only to the servers of the run's URLs.
    private: FormFields,
    body: Vec<u8>,
    keepalive: bool,
}

/// Header fields, as text for HTTP/1.1 and as a map for HTTP/2.
#[derive(Debug, Default)]
struct FormFields {
    text: Vec<u8>,
    map: HeaderMap,
}

/// Differences of a request from the plan's.
#[derive(Debug)]
pub(crate) struct Variation<'a> {
    pub(crate) method: &'a str,
    pub(crate) has_body: bool,
    /// A redirect led to another origin, which gets neither the given Host nor credentials.
    pub(crate) is_elsewhere: bool,
    /// Value of a Cookie field; empty for none.
    pub(crate) cookies: &'a str,
}

impl RequestForm {
    /// Makes the common part of the requests to the URLs of a plan.
    pub(crate) fn new(plan: &LoadPlan) -> Result<Self, Error> {
        Self::from_method(&plan.method, &[], &plan.body, plan)
    }

    pub(crate) fn listed(request: &Listed, plan: &LoadPlan) -> Result<Self, Error> {
        let form = Self::from_method(&request.method, &request.headers, &request.body, plan);
        form.map_err(|source| Error::Listed { place: request.place.clone(), source: Box::new(source) })
    }

    /// Fields in `own` replace the plan's fields with the same name.
    fn from_method(method: &str, own: &[String], body: &[u8], plan: &LoadPlan) -> Result<Self, Error> {
        check_method(method).map_err(|reason| refused("method", method, reason))?;
        let mut form = Self {
            method: method.to_owned(),
            host: None,
            given: FormFields::default(),
            private: FormFields::default(),
            body: body.to_vec(),
            keepalive: plan.keepalive,
        };
        let name = |field: &str| field.split(':').next().unwrap_or_default().to_ascii_lowercase();
        let is_own = |field: &&String| own.iter().any(|other| name(other) == name(field));
        for field in plan.headers.iter().filter(|field| !is_own(field)).chain(own) {
            form.add(field, plan)?;
        }
        if let Some(user) = &plan.user {
            form.private.push("Authorization", &basic(user)?);
        }
        Ok(form)
    }

    fn add(&mut self, field: &str, plan: &LoadPlan) -> Result<(), Error> {
        let wrong = |reason| Err(refused("header", field, reason));
        let Some((name, value)) = field.split_once(':') else {
            return wrong("write it as 'Name: value'");
        };
        let value = value.trim_matches([' ', '\t']);
        if let Err(reason) = check_field(name, value) {
            return wrong(reason);
        }
        let is_sent = match name.to_ascii_lowercase().as_str() {
            "host" => {
                self.host = Some(value.to_owned());
                true
            }
            // RFC 9113 §8.2.2: connection-specific fields.
            "connection" | "keep-alive" | "proxy-connection" | "upgrade" if plan.has_streams() => {
                return wrong("HTTP/2 and HTTP/3 have no such field; leave it out");
            }
            "te" if plan.has_streams() && value != "trailers" => {
                return wrong("the only TE of HTTP/2 and HTTP/3 is 'TE: trailers'");
            }
            "authorization" if plan.user.is_some() => return wrong("it follows from --user; leave one out"),
            "cookie" if plan.cookies.is_some() => {
                return wrong("it follows from --cookie; give the cookies there");
            }
            name if is_secret(name) => self.private.push(name, value),
            _ => self.given.push(name, value),
        };
        if is_sent { Ok(()) } else { wrong("it cannot be sent; write 'Name: value'") }
    }

    /// The request as in the plan.
    fn planned(&self) -> Variation<'_> {
        Variation { method: &self.method, has_body: true, is_elsewhere: false, cookies: "" }
    }

    pub(crate) fn method(&self) -> &str {
        &self.method
    }

    pub(crate) fn body(&self) -> &[u8] {
        &self.body
    }

    /// An HTTP/1.1 request as in the plan.
    pub(crate) fn render(&self, url: &Url<'_>) -> Box<[u8]> {
        self.render_varied(url, &self.planned()).into_boxed_slice()
    }

    pub(crate) fn render_varied(&self, url: &Url<'_>, variation: &Variation<'_>) -> Vec<u8> {
        let mut bytes = self.head_varied(url, variation);
        self.end(self.length(variation), &mut bytes);
        if variation.has_body {
            bytes.extend_from_slice(&self.body);
        }
        bytes
    }

    /// The head of the planned request, up to the fields that depend on the body.
    pub(crate) fn head(&self, url: &Url<'_>) -> Vec<u8> {
        self.head_varied(url, &self.planned())
    }

    fn head_varied(&self, url: &Url<'_>, variation: &Variation<'_>) -> Vec<u8> {
        let slash = if url.target.starts_with('/') { "" } else { "/" };
        let host = self.host.as_deref().filter(|_| !variation.is_elsewhere).unwrap_or(url.authority);
        let line = format!("{} {slash}{} HTTP/1.1\r\nHost: {host}\r\n", variation.method, url.target);
        let mut bytes = line.into_bytes();
        bytes.extend_from_slice(&self.given.text);
        if !variation.is_elsewhere {
            bytes.extend_from_slice(&self.private.text);
        }
        if !variation.cookies.is_empty() {
            bytes.extend_from_slice(format!("Cookie: {}\r\n", variation.cookies).as_bytes());
        }
        bytes
    }

    /// Ends the head of the planned request with a body of another size.
    pub(crate) fn end_head(&self, body_bytes: usize, bytes: &mut Vec<u8>) {
        self.end(length(&self.method, body_bytes), bytes);
    }

    fn end(&self, length: Option<usize>, bytes: &mut Vec<u8>) {
        if let Some(length) = length {
            bytes.extend_from_slice(format!("Content-Length: {length}\r\n").as_bytes());
        }
        if !self.keepalive {
            bytes.extend_from_slice(b"Connection: close\r\n");
        }
        bytes.extend_from_slice(b"\r\n");
    }

    fn length(&self, variation: &Variation<'_>) -> Option<usize> {
        length(variation.method, if variation.has_body { self.body.len() } else { 0 })
    }

    /// Replaces the text of the fields by `fill`.
    pub(crate) fn filled(&self, mut fill: impl FnMut(&str) -> String) -> Self {
        Self {
            method: self.method.clone(),
            host: self.host.as_deref().map(&mut fill),
            given: self.given.filled(&mut fill),
            private: self.private.filled(&mut fill),
            body: Vec::new(),
            keepalive: self.keepalive,
        }
    }

    pub(crate) fn set_body(&mut self, body: Vec<u8>) {
        self.body = body;
    }

    pub(crate) fn into_body(self) -> Vec<u8> {
        self.body
    }

    /// Head of an HTTP/2 request as in the plan. Method, URL and Host become pseudo-header fields.
    pub(crate) fn message(&self, url: &Url<'_>) -> Result<::http::Request<()>, &'static str> {
        self.message_varied(url, &self.planned())
    }

    pub(crate) fn message_varied(
        &self,
        url: &Url<'_>,
        variation: &Variation<'_>,
    ) -> Result<::http::Request<()>, &'static str> {
        let slash = if url.target.starts_with('/') { "" } else { "/" };
        let host = self.host.as_deref().filter(|_| !variation.is_elsewhere).unwrap_or(url.authority);
        let uri = Uri::builder()
            .scheme(if url.scheme == UrlScheme::Https { "https" } else { "http" })
            .authority(host)
            .path_and_query(format!("{slash}{}", url.target))
            .build()
            .map_err(|_| "it has a character that is not allowed in a URL; percent-encode it")?;
        let mut head = ::http::Request::new(());
        *head.method_mut() =
            Method::from_bytes(variation.method.as_bytes()).map_err(|_| "the method is not valid")?;
        *head.uri_mut() = uri;
        *head.version_mut() = Version::HTTP_2;
        let mut fields = self.given.map.clone();
        if !variation.is_elsewhere {
            fields.extend(self.private.map.clone());
        }
        if !variation.cookies.is_empty() {
            let cookies = HeaderValue::from_str(variation.cookies);
            fields.insert(::http::header::COOKIE, cookies.map_err(|_| "a cookie cannot be sent")?);
        }
        if let Some(length) = self.length(variation) {
            fields.insert(CONTENT_LENGTH, length.into());
        }
        *head.headers_mut() = fields;
        Ok(head)
    }
}

/// RFC 9110 §8.6: a method that expects content has a length even if that is 0.
fn length(method: &str, body_bytes: usize) -> Option<usize> {
    let expects_content = matches!(method, "POST" | "PUT" | "PATCH");
    (body_bytes > 0 || expects_content).then_some(body_bytes)
}

impl FormFields {
    /// Replaces the values by `fill`.
    fn filled(&self, mut fill: impl FnMut(&str) -> String) -> Self {
        let mut filled = Self::default();
        for line in String::from_utf8_lossy(&self.text).lines() {
            if let Some((name, value)) = line.split_once(": ") {
                filled.push(name, &fill(value));
            }
        }
        filled
    }

    /// Adds a field. Returns false if it cannot be sent.
    fn push(&mut self, name: &str, value: &str) -> bool {
        let known = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value));
        let (Ok(known_name), Ok(known_value)) = known else { return false };
        self.text.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        self.map.append(known_name, known_value);
        true
    }
}

/// Whether the value of a field is a secret: it is sent only to the servers of the plan, and is not printed.
fn is_secret(name: &str) -> bool {
    ["authorization", "proxy-authorization", "cookie"].iter().any(|secret| secret.eq_ignore_ascii_case(name))
}

/// The field for output, without a secret value.
pub(crate) fn shown(field: &str) -> String {
    match field.split_once(':') {
        Some((name, _)) if is_secret(name.trim()) => format!("{name}: …"),
        _ => field.to_owned(),
    }
}

/// Basic credentials (RFC 7617) of `NAME:PASSWORD`.
fn basic(user: &str) -> Result<String, Error> {
    let wrong = |reason| {
        // The message does not contain the password.
        let name = user.split(':').next().unwrap_or_default();
        Err(refused("user", name, reason))
    };
    if !user.contains(':') {
        return wrong("write it as NAME:PASSWORD");
    }
    if user.bytes().any(|byte| byte.is_ascii_control()) {
        return wrong("it has a control character");
    }
    Ok(format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(user)))
}

fn refused(what: &'static str, value: &str, reason: &'static str) -> Error {
    let value = if what == "header" { shown(value) } else { value.to_owned() };
    Error::Request { what, value: shortened(&value), reason }
}

/// The reason why requests with this method are impossible.
pub(crate) fn check_method(method: &str) -> Result<(), &'static str> {
    if !is_token(method) {
        return Err("it must be a word such as GET or POST");
    }
    if method == "CONNECT" {
        return Err("it asks for a tunnel, which has no response to measure");
    }
    Ok(())
}

/// The reason why a field cannot be sent with any version of HTTP.
pub(crate) fn check_field(name: &str, value: &str) -> Result<(), &'static str> {
    if !is_token(name) {
        return Err("the name before the colon is not valid; write 'Name: value'");
    }
    if value.bytes().any(|byte| byte.is_ascii_control() && byte != b'\t') {
        return Err("the value has a control character");
    }
    match name.to_ascii_lowercase().as_str() {
        "content-length" | "transfer-encoding" => Err("it follows from the body; leave it out"),
        _ => Ok(()),
    }
}

/// Whether text is a token (RFC 9110 §5.6.2).
pub(crate) fn is_token(text: &str) -> bool {
    let is_tchar = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_tchar)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_origin_gets_neither_the_given_host_nor_credentials() {
        let plan = LoadPlan {
            method: "POST".into(),
            headers: vec!["Host: given".into(), "Cookie: a=b".into(), "X-A: b".into()],
            user: Some("name:se:cret".into()),
            body: b"hi".to_vec(),
            ..LoadPlan::default()
        };
        let form = RequestForm::new(&plan).expect("a good plan");
        let url = Url::parse("http://other:81/x").expect("a URL");
        let planned = String::from_utf8(form.render(&url).into_vec()).expect("text");
        let credentials = "cookie: a=b\r\nAuthorization: Basic bmFtZTpzZTpjcmV0\r\n";
        assert_eq!(
            planned,
            format!("POST /x HTTP/1.1\r\nHost: given\r\nX-A: b\r\n{credentials}Content-Length: 2\r\n\r\nhi")
        );
        let variation = Variation { method: "GET", has_body: false, is_elsewhere: true, cookies: "c=d; e=f" };
        let varied = String::from_utf8(form.render_varied(&url, &variation)).expect("text");
        assert_eq!(varied, "GET /x HTTP/1.1\r\nHost: other:81\r\nX-A: b\r\nCookie: c=d; e=f\r\n\r\n");
        let head = form.message_varied(&url, &variation).expect("a message");
        assert_eq!((head.uri().to_string(), head.method().as_str()), ("http://other:81/x".into(), "GET"));
        let names: Vec<_> = head.headers().keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["x-a", "cookie"]);
        assert!(form.message(&url).expect("a message").headers().contains_key("authorization"));
    }

    #[test]
    fn secrets_are_in_no_message() {
        let with = |headers: &[&str], user: Option<&str>| LoadPlan {
            headers: headers.iter().copied().map(str::to_owned).collect(),
            user: user.map(str::to_owned),
            ..LoadPlan::default()
        };
        for (plan, message) in [
            (with(&[], Some("name")), "NAME:PASSWORD"),
            (with(&[], Some("name:secret\n")), "control character"),
            (with(&["Authorization: secret"], Some("name:secret")), "--user"),
            (with(&["Authorization: secret\u{7f}"], None), "control character"),
            (LoadPlan { cookies: Some(String::new()), ..with(&["Cookie: secret"], None) }, "--cookie"),
        ] {
            let error = RequestForm::new(&plan).expect_err(message).to_string();
            assert!(error.contains(message) && !error.contains("secret"), "{error}");
        }
        assert_eq!(shown("cookie: a=b"), "cookie: …");
        assert_eq!(shown("X-Cookie: a=b"), "X-Cookie: a=b");
    }
}
