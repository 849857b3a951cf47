//! Servers and requests of a run: URLs are resolved and requests rendered once, before the run.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rustls::ClientConfig;
use rustls::pki_types::ServerName;

use crate::addresses::ServerAddresses;
use crate::breakdown::BreakdownTable;
use crate::cookies::Jar;
use crate::directions::DialDirections;
use crate::error::Error;
use crate::failure::LoadFailure;
use crate::fill::Fill;
use crate::form::RequestForm;
use crate::http2::{CommonFields, RequestBlock};
use crate::listed::{self, Check, Listed};
use crate::page::PagePattern;
use crate::plan::{Breakdown, CONNECTIONS_MAX, LoadPlan, Responses};
use crate::random::Random;
use crate::tls;
use crate::url::{Url, UrlScheme, shortened};
use crate::watch::Checker;

/// Maximum bytes of all rendered requests together.
const RENDERED_BYTES_MAX: usize = 1 << 30;
/// Maximum number of other ports that redirects lead to.
const FOUND_MAX: usize = 8;

/// The requests of a run in their order, and their servers. Shared by all threads, never changed.
#[derive(Debug)]
pub(crate) struct Targets {
    pub(crate) requests: RenderedRequests,
    pub(crate) servers: LoadServers,
    /// Common fields of the HTTP/2 requests to each server. The last entry is empty, for servers of redirects.
    commons: Vec<CommonFields>,
    /// TLS configuration, if any server uses TLS.
    pub(crate) tls: Option<ClientConfig>,
    pub(crate) tables: Vec<BreakdownTable>,
    /// The common part of the requests to URLs, or the form of each request of a list.
    forms: Vec<RequestForm>,
    /// Index of each request in the plan, if requests depend on earlier responses; otherwise empty.
    pub(crate) order: Vec<usize>,
    /// Order in which the requests of a list are sent; `None` for URLs, which are sent in turn.
    pub(crate) sequence: Option<Vec<u32>>,
}

/// Rendered requests, at least one, for the run's HTTP version.
#[derive(Debug)]
pub(crate) enum RenderedRequests {
    Http1(Vec<RenderedRequest>),
    Streams(Vec<H2Request>),
}

impl RenderedRequests {
    pub(crate) fn count(&self) -> usize {
        match self {
            Self::Http1(requests) => requests.len(),
            Self::Streams(messages) => messages.len(),
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct RenderedRequest {
    /// Index into `Targets::servers`.
    pub(crate) server: usize,
    pub(crate) bytes: Box<[u8]>,
    /// Whether its response has no body.
    pub(crate) is_head: bool,
    pub(crate) checker: Option<Arc<Checker>>,
    /// Pattern of its responses, if it has no checks.
    pub(crate) pattern: Option<Arc<PagePattern>>,
    /// Renders it, if it differs each time.
    pub(crate) fill: Option<Arc<Fill>>,
}

#[derive(Debug, Clone)]
pub(crate) struct H2Request {
    /// Index into `Targets::servers`.
    pub(crate) server: usize,
    pub(crate) block: RequestBlock,
    /// Whether its response has no body.
    pub(crate) is_head: bool,
    /// Index of its body in [`Targets::bodies`].
    pub(crate) body: usize,
    pub(crate) checker: Option<Arc<Checker>>,
    /// Pattern of its responses, if it has no checks.
    pub(crate) pattern: Option<Arc<PagePattern>>,
    /// Renders it, if it differs each time.
    pub(crate) fill: Option<Arc<Fill>>,
}

/// A server: one host and port.
#[derive(Debug)]
pub(crate) struct LoadServer {
    /// Host and port of the URL, to resolve them again.
    host: String,
    port: u16,
    pub(crate) addresses: ServerAddresses,
    /// Name that the server's certificate must have; `None` for plain HTTP.
    pub(crate) tls_name: Option<ServerName<'static>>,
}

impl Targets {
    /// Parses and resolves all URLs of the plan, and renders their requests.
    pub(crate) fn new(plan: &LoadPlan) -> Result<Self, Error> {
        let (forms, sequence) = forms(plan)?;
        if let Some(cookies) = &plan.cookies {
            let wrong = |reason| Error::Request { what: "--cookie", value: "…".to_owned(), reason };
            Jar::given(cookies).map_err(wrong)?;
        }
        let mut servers = LoadServers::new(plan)?;
        let (mut requests, mut heads, mut rendered_bytes) = (Vec::new(), Vec::new(), 0);
        let listed = plan.listed.iter().map(Some).chain(std::iter::repeat(None));
        for ((number, text), listed) in plan.all_urls().enumerate().zip(listed) {
            let placed = |error: Error| match listed {
                None => error,
                Some(request) => Error::Listed { place: request.place.clone(), source: Box::new(error) },
            };
            let refused = |reason| placed(Error::Url { url: shortened(text), reason });
            let url = Url::parse(text).map_err(refused)?;
            if plan.http3 && url.scheme == UrlScheme::Http {
                return Err(refused("HTTP/3 is always encrypted; write https://, or leave --h3 out"));
            }
            let server = servers.find(&url).map_err(placed)?;
            let body = if listed.is_some() { number } else { 0 };
            let form = &forms[body];
            let fill = fill(listed, form, &url, number, plan)?;
            let own = listed.map(|request| &request.check).filter(|check| **check != Check::default());
            let checker = own.unwrap_or(&plan.check).checker().map(Arc::new);
            // With cookies, a response depends on earlier ones.
            let is_compared =
                plan.responses == Responses::Same && checker.is_none() && plan.cookies.is_none();
            let pattern = is_compared.then(|| Arc::new(PagePattern::new(form.method())));
            if plan.has_streams() {
                rendered_bytes += size_of::<H2Request>() + text.len();
                let head = form.message(&url).map_err(refused)?;
                heads.push(Headed { server, head, body, checker, pattern, fill });
            } else {
                let (bytes, is_head) = (form.render(&url), form.method() == "HEAD");
                rendered_bytes += bytes.len();
                requests.push(RenderedRequest { server, bytes, is_head, checker, pattern, fill });
            }
            if rendered_bytes > RENDERED_BYTES_MAX {
                let expected = "small enough for all requests to fit in 1 GiB".to_owned();
                return Err(Error::Plan { what: "the URL list, with the body for each", expected });
            }
        }
        if plan.directions.resolve_every_seconds.is_some() && !servers.have_names() {
            let expected = "used with a host name: all hosts are addresses, or have --resolve".to_owned();
            return Err(Error::Plan { what: "--resolve-every", expected });
        }
        let (commons, mut messages) = messages(heads, servers.planned(), plan.http3);
        let mut tables = tables(plan);
        let mut order: Vec<usize> =
            if plan.has_visits() { (0..requests.len().max(messages.len())).collect() } else { Vec::new() };
        // A list is shuffled by its sequence.
        if let Some(seed) = plan.shuffle_seed.filter(|_| sequence.is_none()) {
            Random::new(seed).shuffle(&mut requests);
            Random::new(seed).shuffle(&mut messages);
            Random::new(seed).shuffle(&mut order);
            tables.iter_mut().for_each(|table| table.reorder(|rows| Random::new(seed).shuffle(rows)));
        }
        if plan.has_streams() && servers.planned() * plan.connections > CONNECTIONS_MAX {
            let expected = format!("at most {CONNECTIONS_MAX} with HTTP/2 or HTTP/3, one to each server");
            return Err(Error::Plan { what: "the number of connections (-c) by servers", expected });
        }
        // A redirect may lead to https.
        let wants_tls =
            plan.redirects_max.is_some() || servers.planned.iter().any(|server| server.tls_name.is_some());
        let tls = wants_tls.then(|| tls::config(plan)).transpose()?;
        let requests = if plan.has_streams() {
            RenderedRequests::Streams(messages)
        } else {
            RenderedRequests::Http1(requests)
        };
        Ok(Self { requests, servers, commons, tls, tables, forms, order, sequence })
    }

    pub(crate) fn form(&self, planned: usize) -> &RequestForm {
        self.forms.get(planned).unwrap_or(&self.forms[0])
    }

    /// The common header fields of the HTTP/2 requests to a server.
    #[inline]
    pub(crate) fn common(&self, server: usize) -> &CommonFields {
        &self.commons[server.min(self.commons.len() - 1)]
    }

    /// The bodies of HTTP/2 messages.
    pub(crate) fn bodies(&self) -> impl Iterator<Item = &[u8]> {
        self.forms.iter().map(RequestForm::body)
    }
}

/// An HTTP/2 request before its head is rendered.
struct Headed {
    server: usize,
    head: ::http::Request<()>,
    body: usize,
    checker: Option<Arc<Checker>>,
    pattern: Option<Arc<PagePattern>>,
    fill: Option<Arc<Fill>>,
}

/// Renders requests of HTTP/2 or HTTP/3, and the common fields for each server.
fn messages(heads: Vec<Headed>, servers: usize, is_http3: bool) -> (Vec<CommonFields>, Vec<H2Request>) {
    let of = |server| heads.iter().filter(move |headed| headed.server == server).map(|headed| &headed.head);
    let commons: Vec<_> = if is_http3 {
        (0..=servers).map(|_| CommonFields::qpack()).collect()
    } else {
        (0..servers)
            .map(|server| CommonFields::from_heads(of(server)))
            .chain([CommonFields::default()])
            .collect()
    };
    let render = |Headed { server, head, body, checker, pattern, fill }| {
        let (block, is_head) = (commons[server].block(&head), head.method() == ::http::Method::HEAD);
        H2Request { server, block, is_head, body, checker, pattern, fill }
    };
    let messages = heads.into_iter().map(render).collect();
    (commons, messages)
}

/// The templates of a request of a list; `None` if it is constant.
fn fill(
    listed: Option<&Listed>,
    form: &RequestForm,
    url: &Url<'_>,
    planned: usize,
    plan: &LoadPlan,
) -> Result<Option<Arc<Fill>>, Error> {
    let Some(listed) = listed else { return Ok(None) };
    let fill = Fill::new(listed, form, url, planned, plan.values_seed);
    let fill = fill.map_err(|expected| Error::Listed {
        place: listed.place.clone(),
        source: Box::new(Error::Plan {
            what: "a field of -H",
            expected: format!("without {{{{, or: {expected}"),
        }),
    });
    Ok(fill?.map(Arc::new))
}

/// The common part of the requests to URLs, or the form of each request of a list, and the order of the list.
fn forms(plan: &LoadPlan) -> Result<(Vec<RequestForm>, Option<Vec<u32>>), Error> {
    if plan.listed.is_empty() {
        return Ok((vec![RequestForm::new(plan)?], None));
    }
    let forms = plan.listed.iter().map(|request| RequestForm::listed(request, plan));
    Ok((forms.collect::<Result<_, _>>()?, Some(listed::sequence(&plan.listed, plan.shuffle_seed)?)))
}

/// Tables of a run, with the labels of its requests.
fn tables(plan: &LoadPlan) -> Vec<BreakdownTable> {
    let whole = |url: &str| url.split('#').next().unwrap_or(url).to_owned();
    let listed = |request: &Listed, by| match (by, &request.name) {
        (Breakdown::Name, Some(name)) => name.clone(),
        (Breakdown::Name, None) => name(&request.url).to_owned(),
        _ => format!("{} {}", request.method, whole(&request.url)),
    };
    let urls = |url: &String, by| if by == Breakdown::Name { name(url).to_owned() } else { whole(url) };
    let made = plan.tables().into_iter().map(|by| {
        let labels = plan.urls.iter().map(|url| urls(url, by));
        BreakdownTable::new(by, plan, labels.chain(plan.listed.iter().map(|request| listed(request, by))))
    });
    made.collect()
}

/// Name of a request in tables: the fragment of its URL, which is not sent (RFC 9110 §7.1), otherwise the path.
fn name(url: &str) -> &str {
    match url.split_once('#') {
        Some((_, fragment)) if !fragment.is_empty() => fragment,
        _ => {
            let target = Url::parse(url).map_or("", |url| url.target);
            let path = target.split('?').next().unwrap_or_default();
            if path.is_empty() { "/" } else { path }
        }
    }
}

/// The servers of a run, each resolved once: those of the URLs, and those that redirects lead to.
#[derive(Debug)]
pub(crate) struct LoadServers {
    planned: Vec<LoadServer>,
    found: Vec<OnceLock<LoadServer>>,
    known: Mutex<HashMap<Key, usize>>,
    directions: DialDirections,
    /// Server name instead of the URL's host.
    server_name: Option<String>,
    is_http3: bool,
}

/// Host in lower case, port and scheme.
type Key = (String, u16, UrlScheme);

impl LoadServers {
    fn new(plan: &LoadPlan) -> Result<Self, Error> {
        let found = if plan.redirects_max.is_some() { FOUND_MAX } else { 0 };
        Ok(Self {
            planned: Vec::new(),
            found: (0..found).map(|_| OnceLock::new()).collect(),
            known: Mutex::default(),
            directions: DialDirections::new(&plan.directions)?,
            server_name: plan.tls.server_name.clone(),
            is_http3: plan.http3,
        })
    }

    pub(crate) fn count(&self) -> usize {
        self.planned.len() + self.found.len()
    }

    pub(crate) fn planned(&self) -> usize {
        self.planned.len()
    }

    pub(crate) fn get(&self, server: usize) -> &LoadServer {
        let found = || self.found[server - self.planned.len()].get();
        match self.planned.get(server).or_else(found) {
            Some(server) => server,
            None => unreachable!("a server has a number once it is known"),
        }
    }

    /// The server of a URL of the plan.
    fn find(&mut self, url: &Url<'_>) -> Result<usize, Error> {
        let key = key(url);
        let known = self.known.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = known.get(&key) {
            return Ok(*server);
        }
        known.insert(key, self.planned.len());
        let server = self.resolve(url)?;
        self.planned.push(server);
        Ok(self.planned.len() - 1)
    }

    /// The server that a redirect leads to. Only hosts of the plan are allowed, because no other may get load.
    pub(crate) fn lead_to(&self, url: &Url<'_>) -> Result<usize, LoadFailure> {
        let key = key(url);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = known.get(&key) {
            return Ok(*server);
        }
        if !known.keys().any(|(host, ..)| *host == key.0) {
            return Err(LoadFailure::Redirect("it leads to a host that no URL of the run names"));
        }
        let number = known.len();
        if self.is_http3 && url.scheme == UrlScheme::Http {
            return Err(LoadFailure::Redirect("it leads to http, and HTTP/3 is for https"));
        }
        let Some(place) = self.found.get(number - self.planned.len()) else {
            return Err(LoadFailure::Redirect("redirects lead to more than 8 other ports"));
        };
        let server = self.resolve(url).map_err(|_| LoadFailure::Redirect("its host has no address"))?;
        place.get_or_init(|| server);
        known.insert(key, number);
        Ok(number)
    }

    fn resolve(&self, url: &Url<'_>) -> Result<LoadServer, Error> {
        let name = self.server_name.as_deref().unwrap_or(url.host);
        let tls_name = match url.scheme {
            UrlScheme::Http => None,
            UrlScheme::Https => Some(ServerName::try_from(name.to_owned()).map_err(|_| Error::Url {
                url: shortened(name),
                reason: "no certificate can be for this host; write a name or an address",
            })?),
        };
        let addresses = ServerAddresses::new(self.directions.addresses(url.host, url.port)?);
        Ok(LoadServer { host: url.host.to_owned(), port: url.port, addresses, tls_name })
    }

    /// Whether any server has a name to resolve again.
    fn have_names(&self) -> bool {
        self.planned.iter().any(|server| self.directions.is_name(&server.host, server.port))
    }

    /// Resolves the names again. Without an answer, the known addresses stay. Blocks.
    pub(crate) fn resolve_again(&self) {
        let found = self.found.iter().filter_map(OnceLock::get);
        for LoadServer { host, port, addresses, .. } in self.planned.iter().chain(found) {
            if self.directions.is_name(host, *port)
                && let Ok(resolved) = self.directions.addresses(host, *port)
            {
                addresses.replace(resolved);
            }
        }
    }
}

fn key(url: &Url<'_>) -> Key {
    (url.host.to_ascii_lowercase(), url.port, url.scheme)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(plan: &LoadPlan) -> Vec<RenderedRequest> {
        match Targets::new(plan).expect("a good plan").requests {
            RenderedRequests::Http1(requests) => requests,
            RenderedRequests::Streams(_) => panic!("this plan is of HTTP/1.1"),
        }
    }

    fn rendered(plan: &LoadPlan) -> Vec<String> {
        let requests = requests(plan);
        requests.iter().map(|request| String::from_utf8_lossy(&request.bytes).into_owned()).collect()
    }

    #[test]
    fn requests_carry_what_was_asked_and_nothing_else() {
        let plan = LoadPlan::new("http://127.0.0.1:9?x");
        assert_eq!(rendered(&plan), ["GET /?x HTTP/1.1\r\nHost: 127.0.0.1:9\r\n\r\n"]);
        let plan = LoadPlan {
            method: "POST".into(),
            headers: vec!["host: other".into(), "X-A:  b ".into()],
            body: b"hi".to_vec(),
            keepalive: false,
            ..LoadPlan::new("http://127.0.0.1/p")
        };
        assert_eq!(
            rendered(&plan),
            ["POST /p HTTP/1.1\r\nHost: other\r\nX-A: b\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi"]
        );
        let plan = LoadPlan { method: "PUT".into(), ..LoadPlan::new("http://127.0.0.1/") };
        assert_eq!(rendered(&plan), ["PUT / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n"]);
    }

    #[test]
    fn rfc_9113_8_3_a_message_has_what_a_request_line_and_host_say() {
        let plan = LoadPlan {
            method: "POST".into(),
            headers: vec!["Host: other".into(), "X-A: b".into(), "X-A: c".into()],
            body: b"hi".to_vec(),
            http2: true,
            ..LoadPlan::new("https://127.0.0.1:9?x")
        };
        let url = Url::parse(&plan.urls[0]).expect("a URL");
        let form = RequestForm::new(&plan).expect("a good plan");
        let head = form.message(&url).expect("a message");
        assert_eq!((head.method().as_str(), head.uri().to_string().as_str()), ("POST", "https://other/?x"));
        let fields: Vec<_> =
            head.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        assert_eq!(fields, [("x-a", &b"b"[..]), ("x-a", b"c"), ("content-length", b"2")]);
        assert!(matches!(
            Targets::new(&plan).map(|targets| targets.requests),
            Ok(RenderedRequests::Streams(_))
        ));
        for header in ["Connection: close", "Upgrade: x", "TE: gzip"] {
            let plan = LoadPlan { headers: vec![header.into()], ..plan.clone() };
            assert!(matches!(Targets::new(&plan), Err(Error::Request { what: "header", .. })), "{header}");
        }
    }

    #[test]
    fn a_host_and_port_is_another_server_with_tls() {
        let urls = ["http://127.0.0.1:9/", "https://127.0.0.1:9/", "https://127.0.0.1:9/again"];
        let tls = crate::plan::Tls { verify: false, ..crate::plan::Tls::default() };
        let plan = LoadPlan { urls: urls.map(str::to_owned).into(), tls, ..LoadPlan::default() };
        let targets = Targets::new(&plan).expect("a good plan");
        let names: Vec<bool> =
            targets.servers.planned.iter().map(|server| server.tls_name.is_some()).collect();
        assert_eq!((names, targets.tls.is_some()), (vec![false, true], true));
    }

    #[test]
    fn a_name_is_the_fragment_of_the_url_or_its_path() {
        for (url, expected) in [
            ("http://a/b?c#search", "search"),
            ("http://a/b?c#", "/b"),
            ("http://a/b/c?d=/e", "/b/c"),
            ("http://a?x", "/"),
            ("http://a", "/"),
        ] {
            assert_eq!(name(url), expected, "{url}");
        }
    }

    #[test]
    fn what_would_break_a_request_is_refused() {
        let base = || LoadPlan::new("http://127.0.0.1/");
        let bad_headers =
            ["X", ": x", "X Y: z", "X: a\r\nY: b", "Content-Length: 3", "transfer-encoding: chunked"];
        for header in bad_headers {
            let error = Targets::new(&LoadPlan { headers: vec![header.into()], ..base() }).expect_err(header);
            assert!(matches!(error, Error::Request { what: "header", .. }), "{error}");
        }
        for method in ["", "GET /", "G\r\n", "CONNECT"] {
            let error = Targets::new(&LoadPlan { method: method.into(), ..base() }).expect_err(method);
            assert!(matches!(error, Error::Request { what: "method", .. }), "{error}");
        }
    }

    #[test]
    fn a_list_knows_its_servers_and_is_shuffled_by_its_seed() {
        let urls: Vec<String> =
            (0..50).map(|index| format!("http://127.0.0.{}/{index}", 1 + index % 2)).collect();
        let plan = |shuffle_seed| LoadPlan { urls: urls.clone(), shuffle_seed, ..LoadPlan::default() };
        let targets = Targets::new(&plan(None)).expect("a good plan");
        assert_eq!(targets.servers.planned(), 2);
        let requests = requests(&plan(None));
        assert!(requests[3].bytes.starts_with(b"GET /3 "));
        assert_eq!(requests[3].server, 1);
        assert_eq!(rendered(&plan(Some(1))), rendered(&plan(Some(1))));
        assert_ne!(rendered(&plan(Some(1))), rendered(&plan(None)));
    }
}
