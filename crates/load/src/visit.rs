//! A request of a user with cookies or redirects, and its changes by responses. Only for runs with either; all others
//! send requests that are rendered before the load.

use std::time::{Instant, SystemTime};

use bytes::Bytes;

use crate::cookies::Jar;
use crate::failure::LoadFailure;
use crate::fill::Fill;
use crate::form::{RequestForm, Variation};
use crate::target::Targets;
use crate::url::{self, Url, UrlScheme};
use crate::worker::LoadShared;

/// The fields of a response that change the user's next requests.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct VisitFields {
    pub(crate) status: u16,
    pub(crate) location: Option<String>,
    pub(crate) cookies: Vec<String>,
}

impl VisitFields {
    /// From the head of an HTTP/1.1 response that was checked already.
    pub(crate) fn of_head(head: &[u8]) -> Self {
        let mut fields = [httparse::EMPTY_HEADER; 256];
        let mut response = httparse::Response::new(&mut fields);
        if response.parse(head).is_err() {
            return Self::default();
        }
        let status = response.code.unwrap_or_default();
        Self::of_fields(status, response.headers.iter().map(|field| (field.name, field.value)))
    }

    pub(crate) fn of_fields<'f>(status: u16, fields: impl Iterator<Item = (&'f str, &'f [u8])>) -> Self {
        let mut answer = Self { status, ..Self::default() };
        for (name, value) in fields {
            let text = || String::from_utf8_lossy(value).into_owned();
            if name.eq_ignore_ascii_case("location") {
                answer.location.get_or_insert_with(text);
            } else if name.eq_ignore_ascii_case("set-cookie") {
                answer.cookies.push(text());
            }
        }
        answer
    }
}

/// A request, and its continuation after redirects.
#[derive(Debug)]
pub(crate) struct Visit {
    planned: usize,
    /// URL of the next request; a valid one.
    url: String,
    pub(crate) server: usize,
    method: String,
    has_body: bool,
    is_elsewhere: bool,
    pub(crate) redirects: u32,
    /// The form with its values, of a request that differs each time.
    filled: Option<Box<RequestForm>>,
}

impl Visit {
    /// The planned request with this number.
    pub(crate) fn new(shared: &LoadShared, request: usize, server: usize, fill: Option<&Fill>) -> Self {
        let planned = shared.targets.order[request];
        let filled = fill.map(|fill| fill.filled(shared.targets.form(planned)));
        let (url, filled) = match filled {
            Some((url, form)) => (url, Some(Box::new(form))),
            None => (shared.plan.url(planned).to_owned(), None),
        };
        Self {
            planned,
            url,
            filled,
            server,
            method: shared.targets.form(planned).method().to_owned(),
            has_body: true,
            is_elsewhere: false,
            redirects: 0,
        }
    }

    fn url(&self) -> Url<'_> {
        match Url::parse(&self.url) {
            Ok(url) => url,
            Err(_) => unreachable!("it was parsed when it was stored"),
        }
    }

    fn form<'f>(&'f self, targets: &'f Targets) -> &'f RequestForm {
        self.filled.as_deref().unwrap_or_else(|| targets.form(self.planned))
    }

    /// The body of an HTTP/2 request that differs each time.
    pub(crate) fn filled_body(&self) -> Option<Bytes> {
        self.filled.as_ref().map(|form| Bytes::copy_from_slice(form.body()))
    }

    pub(crate) fn render(&self, targets: &Targets, jar: Option<&Jar>) -> Vec<u8> {
        let (url, cookies) = (self.url(), self.cookies(jar));
        self.form(targets).render_varied(&url, &self.variation(&cookies))
    }

    pub(crate) fn message(
        &self,
        targets: &Targets,
        jar: Option<&Jar>,
    ) -> Result<::http::Request<()>, LoadFailure> {
        let (url, cookies) = (self.url(), self.cookies(jar));
        self.form(targets).message_varied(&url, &self.variation(&cookies)).map_err(LoadFailure::Redirect)
    }

    pub(crate) fn has_body(&self) -> bool {
        self.has_body
    }

    fn cookies(&self, jar: Option<&Jar>) -> String {
        jar.map(|jar| jar.field(&self.url(), Instant::now())).unwrap_or_default()
    }

    fn variation<'v>(&'v self, cookies: &'v str) -> Variation<'v> {
        let Self { method, has_body, is_elsewhere, .. } = self;
        Variation { method, has_body: *has_body, is_elsewhere: *is_elsewhere, cookies }
    }

    /// Applies a response. Returns true if the visit continues with another request.
    pub(crate) fn takes(
        &mut self,
        shared: &LoadShared,
        answer: &VisitFields,
        jar: Option<&mut Jar>,
    ) -> Result<bool, LoadFailure> {
        if let Some(jar) = jar {
            let (url, now, clock) = (self.url(), Instant::now(), SystemTime::now());
            answer.cookies.iter().for_each(|cookie| jar.set(cookie, &url, now, clock));
        }
        let (Some(most), Some(location)) = (shared.plan.redirects_max, &answer.location) else {
            return Ok(false);
        };
        if !matches!(answer.status, 301 | 302 | 303 | 307 | 308) {
            return Ok(false);
        }
        if self.redirects >= most {
            return Err(LoadFailure::Redirect("there are more redirects than --max-redirs allows"));
        }
        self.redirects += 1;
        let base = self.url();
        let next = url::resolved(&base, location);
        let to = Url::parse(&next).map_err(|_| LoadFailure::Redirect("it leads to no http or https URL"))?;
        let origin =
            |url: &Url<'_>| (url.host.to_ascii_lowercase(), url.port, url.scheme == UrlScheme::Https);
        let is_same = origin(&base) == origin(&to);
        let server = if is_same { self.server } else { shared.targets.servers.lead_to(&to)? };
        // RFC 9110 §15.4: a 303 is followed by a GET; so is a 301 or 302 after a POST, as in every browser.
        let changes = match answer.status {
            303 => self.method != "HEAD",
            301 | 302 => self.method == "POST",
            _ => false,
        };
        if changes {
            "GET".clone_into(&mut self.method);
            self.has_body = false;
        }
        self.is_elsewhere |= !is_same;
        self.server = server;
        self.url = next;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::LoadPlan;
    use crate::worker::ServerReach;

    fn shared(method: &str) -> LoadShared {
        let plan = LoadPlan {
            method: method.into(),
            body: b"hi".to_vec(),
            redirects_max: Some(2),
            tls: crate::plan::Tls { verify: false, ..Default::default() },
            ..LoadPlan::new("http://127.0.0.1:9/a/b")
        };
        let targets = Targets::new(&plan).expect("a good plan");
        LoadShared { plan, targets, streams: None, reach: ServerReach::default() }
    }

    fn to(status: u16, location: &str) -> VisitFields {
        VisitFields { status, location: Some(location.to_owned()), cookies: Vec::new() }
    }

    #[test]
    fn rfc_9110_15_4_methods_after_a_redirect() {
        for (method, status, expected, has_body) in [
            ("POST", 301, "GET", false),
            ("POST", 302, "GET", false),
            ("PUT", 302, "PUT", true),
            ("PUT", 303, "GET", false),
            ("HEAD", 303, "HEAD", true),
            ("POST", 307, "POST", true),
            ("POST", 308, "POST", true),
        ] {
            let shared = shared(method);
            let mut visit = Visit::new(&shared, 0, 0, None);
            assert!(visit.takes(&shared, &to(status, "c"), None).expect("a redirect"));
            assert_eq!((visit.method.as_str(), visit.has_body), (expected, has_body), "{method} {status}");
            assert_eq!(visit.url, "http://127.0.0.1:9/a/c");
        }
    }

    #[test]
    fn redirects_end_and_lead_only_to_hosts_of_the_run() {
        let shared = shared("GET");
        let failed = |answer: &VisitFields| match Visit::new(&shared, 0, 0, None).takes(&shared, answer, None)
        {
            Err(failure) => failure.to_string(),
            Ok(goes_on) => panic!("{answer:?}: {goes_on}"),
        };
        assert!(failed(&to(302, "http://other.test/")).contains("no URL of the run"));
        assert!(failed(&to(302, "mailto:a")).contains("no http"));
        let mut visit = Visit::new(&shared, 0, 0, None);
        for status in [300, 304, 200] {
            assert!(!visit.takes(&shared, &to(status, "/"), None).expect("no redirect"), "{status}");
        }
        assert!(
            !visit
                .takes(&shared, &VisitFields { status: 302, ..VisitFields::default() }, None)
                .expect("nowhere")
        );
        // Another port and scheme of a known host is another server, the same one each time.
        assert!(visit.takes(&shared, &to(302, "https://127.0.0.1/x"), None).expect("a redirect"));
        assert_eq!((visit.server, visit.is_elsewhere), (1, true));
        assert!(visit.takes(&shared, &to(302, "/y"), None).expect("a redirect"));
        assert_eq!((visit.server, visit.is_elsewhere), (1, true));
        let error = visit.takes(&shared, &to(302, "/z"), None).expect_err("too many").to_string();
        assert!(error.contains("--max-redirs"), "{error}");
        let mut again = Visit::new(&shared, 0, 0, None);
        again.takes(&shared, &to(302, "https://127.0.0.1:443/"), None).expect("a redirect");
        assert_eq!(again.server, 1);
    }
}
