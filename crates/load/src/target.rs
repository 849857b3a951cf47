//! Servers and requests of a run: URLs are resolved and requests rendered once, before the run.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rustls::ClientConfig;
use rustls::pki_types::ServerName;

use crate::breakdown::Table;
use crate::cookies::Jar;
use crate::directions::{Address, Directions};
use crate::error::Error;
use crate::failure::Failure;
use crate::fill::Fill;
use crate::form::Form;
use crate::http2::{Block, Common};
use crate::listed::{self, Listed};
use crate::plan::{Breakdown, CONNECTIONS_MAX, Plan};
use crate::random::Random;
use crate::tls;
use crate::url::{Scheme, Url, shortened};
use crate::watch::Checker;

/// Maximum bytes of all rendered requests together.
const RENDERED_BYTES_MAX: usize = 1 << 30;
/// Maximum number of other ports that redirects lead to.
const FOUND_MAX: usize = 8;

/// The requests of a run in their order, and their servers. Shared by all threads, never changed.
#[derive(Debug)]
pub(crate) struct Targets {
    pub(crate) requests: Requests,
    pub(crate) servers: Servers,
    /// Header fields that the HTTP/2 requests to each server have in common; at last, for servers that redirects lead to,
    /// none.
    commons: Vec<Common>,
    /// TLS configuration, if any server uses TLS.
    pub(crate) tls: Option<ClientConfig>,
    /// Tables that the requests are recorded in.
    pub(crate) tables: Vec<Table>,
    /// What the requests to URLs have in common, or the form of each request of a list.
    forms: Vec<Form>,
    /// Index of each request in the plan, if requests depend on earlier responses; otherwise empty.
    pub(crate) order: Vec<usize>,
    /// Order in which the requests of a list are sent; `None` for URLs, which are sent in turn.
    pub(crate) sequence: Option<Vec<u32>>,
}

/// Rendered requests, at least one, for the run's HTTP version.
#[derive(Debug)]
pub(crate) enum Requests {
    Http1(Vec<Request>),
    /// Of HTTP/2 and HTTP/3.
    Streams(Vec<Message>),
}

impl Requests {
    pub(crate) fn count(&self) -> usize {
        match self {
            Self::Http1(requests) => requests.len(),
            Self::Streams(messages) => messages.len(),
        }
    }
}

/// A rendered HTTP/1.1 request.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// Index into `Targets::servers`.
    pub(crate) server: usize,
    pub(crate) bytes: Box<[u8]>,
    /// Whether its response has no body.
    pub(crate) is_head: bool,
    /// What its response must be.
    pub(crate) checker: Option<Arc<Checker>>,
    /// Renders it, if it differs each time.
    pub(crate) fill: Option<Arc<Fill>>,
}

/// An HTTP/2 request.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    /// Index into `Targets::servers`.
    pub(crate) server: usize,
    pub(crate) block: Block,
    /// Whether its response has no body.
    pub(crate) is_head: bool,
    /// Index of its body in [`Targets::bodies`].
    pub(crate) body: usize,
    /// What its response must be.
    pub(crate) checker: Option<Arc<Checker>>,
    /// Renders it, if it differs each time.
    pub(crate) fill: Option<Arc<Fill>>,
}

/// A server: one host and port.
#[derive(Debug)]
pub(crate) struct Server {
    /// Addresses of the server, at least one, tried in their order.
    pub(crate) addresses: Vec<Address>,
    /// Name that the server's certificate must have; `None` for plain HTTP.
    pub(crate) tls_name: Option<ServerName<'static>>,
}

impl Targets {
    /// Parses and resolves all URLs of the plan, and renders their requests.
    pub(crate) fn new(plan: &Plan) -> Result<Self, Error> {
        let (forms, sequence) = forms(plan)?;
        if let Some(cookies) = &plan.cookies {
            let wrong = |reason| Error::Request { what: "--cookie", value: "…".to_owned(), reason };
            Jar::given(cookies).map_err(wrong)?;
        }
        let mut servers = Servers::new(plan)?;
        let (mut requests, mut heads, mut rendered_bytes) = (Vec::new(), Vec::new(), 0);
        let listed = plan.listed.iter().map(Some).chain(std::iter::repeat(None));
        for ((number, text), listed) in plan.all_urls().enumerate().zip(listed) {
            let placed = |error: Error| match listed {
                None => error,
                Some(request) => Error::Listed { place: request.place.clone(), source: Box::new(error) },
            };
            let refused = |reason| placed(Error::Url { url: shortened(text), reason });
            let url = Url::parse(text).map_err(refused)?;
            if plan.http3 && url.scheme == Scheme::Http {
                return Err(refused("HTTP/3 is always encrypted; write https://, or leave --h3 out"));
            }
            let server = servers.find(&url).map_err(placed)?;
            let body = if listed.is_some() { number } else { 0 };
            let form = &forms[body];
            let fill = fill(listed, form, &url, number, plan)?;
            let checker = listed.and_then(|request| request.check.checker()).map(Arc::new);
            if plan.has_streams() {
                rendered_bytes += size_of::<Message>() + text.len();
                let head = form.message(&url).map_err(refused)?;
                heads.push(Headed { server, head, body, checker, fill });
            } else {
                let (bytes, is_head) = (form.render(&url), form.method() == "HEAD");
                rendered_bytes += bytes.len();
                requests.push(Request { server, bytes, is_head, checker, fill });
            }
            if rendered_bytes > RENDERED_BYTES_MAX {
                let expected = "small enough for all requests to fit in 1 GiB".to_owned();
                return Err(Error::Plan { what: "the URL list, with the body for each", expected });
            }
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
        let requests =
            if plan.has_streams() { Requests::Streams(messages) } else { Requests::Http1(requests) };
        Ok(Self { requests, servers, commons, tls, tables, forms, order, sequence })
    }

    /// The form of a request of the plan.
    pub(crate) fn form(&self, planned: usize) -> &Form {
        self.forms.get(planned).unwrap_or(&self.forms[0])
    }

    /// The header fields that the HTTP/2 requests to a server have in common.
    #[inline]
    pub(crate) fn common(&self, server: usize) -> &Common {
        &self.commons[server.min(self.commons.len() - 1)]
    }

    /// The bodies of HTTP/2 messages.
    pub(crate) fn bodies(&self) -> impl Iterator<Item = &[u8]> {
        self.forms.iter().map(Form::body)
    }
}

/// An HTTP/2 request before its head is rendered.
struct Headed {
    server: usize,
    head: ::http::Request<()>,
    body: usize,
    checker: Option<Arc<Checker>>,
    fill: Option<Arc<Fill>>,
}

/// Renders requests of HTTP/2 or HTTP/3, and what those to each server have in common.
fn messages(heads: Vec<Headed>, servers: usize, is_http3: bool) -> (Vec<Common>, Vec<Message>) {
    let of = |server| heads.iter().filter(move |headed| headed.server == server).map(|headed| &headed.head);
    let commons: Vec<_> = if is_http3 {
        (0..=servers).map(|_| Common::qpack()).collect()
    } else {
        (0..servers).map(|server| Common::of(of(server))).chain([Common::default()]).collect()
    };
    let render = |Headed { server, head, body, checker, fill }| {
        let block = commons[server].block(&head);
        Message { server, block, is_head: head.method() == ::http::Method::HEAD, body, checker, fill }
    };
    let messages = heads.into_iter().map(render).collect();
    (commons, messages)
}

/// What renders a request of a list, if it differs each time.
fn fill(
    listed: Option<&Listed>,
    form: &Form,
    url: &Url<'_>,
    planned: usize,
    plan: &Plan,
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

/// What the requests to URLs have in common, or the form of each request of a list, and the order of the list.
fn forms(plan: &Plan) -> Result<(Vec<Form>, Option<Vec<u32>>), Error> {
    if plan.listed.is_empty() {
        return Ok((vec![Form::new(plan)?], None));
    }
    let forms = plan.listed.iter().map(|request| Form::listed(request, plan));
    Ok((forms.collect::<Result<_, _>>()?, Some(listed::sequence(&plan.listed, plan.shuffle_seed)?)))
}

/// Tables of a run, with the labels of its requests.
fn tables(plan: &Plan) -> Vec<Table> {
    let whole = |url: &str| url.split('#').next().unwrap_or(url).to_owned();
    let listed = |request: &Listed, by| match (by, &request.name) {
        (Breakdown::Name, Some(name)) => name.clone(),
        (Breakdown::Name, None) => name(&request.url).to_owned(),
        _ => format!("{} {}", request.method, whole(&request.url)),
    };
    let urls = |url: &String, by| if by == Breakdown::Name { name(url).to_owned() } else { whole(url) };
    let made = plan.tables().into_iter().map(|by| {
        let labels = plan.urls.iter().map(|url| urls(url, by));
        Table::new(by, plan, labels.chain(plan.listed.iter().map(|request| listed(request, by))))
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
pub(crate) struct Servers {
    planned: Vec<Server>,
    /// Found while the load runs.
    found: Vec<OnceLock<Server>>,
    known: Mutex<HashMap<Key, usize>>,
    directions: Directions,
    /// Server name instead of the URL's host.
    server_name: Option<String>,
    is_http3: bool,
}

/// Host in lower case, port and scheme.
type Key = (String, u16, Scheme);

impl Servers {
    fn new(plan: &Plan) -> Result<Self, Error> {
        let found = if plan.redirects_max.is_some() { FOUND_MAX } else { 0 };
        Ok(Self {
            planned: Vec::new(),
            found: (0..found).map(|_| OnceLock::new()).collect(),
            known: Mutex::default(),
            directions: Directions::new(&plan.directions)?,
            server_name: plan.tls.server_name.clone(),
            is_http3: plan.http3,
        })
    }

    /// Number of servers that there can be.
    pub(crate) fn count(&self) -> usize {
        self.planned.len() + self.found.len()
    }

    /// Number of servers of the URLs.
    pub(crate) fn planned(&self) -> usize {
        self.planned.len()
    }

    pub(crate) fn get(&self, server: usize) -> &Server {
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

    /// The server that a redirect leads to. Only to a host of the plan: load is sent to nobody else.
    pub(crate) fn lead_to(&self, url: &Url<'_>) -> Result<usize, Failure> {
        let key = key(url);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = known.get(&key) {
            return Ok(*server);
        }
        if !known.keys().any(|(host, ..)| *host == key.0) {
            return Err(Failure::Redirect("it leads to a host that no URL of the run names"));
        }
        let number = known.len();
        if self.is_http3 && url.scheme == Scheme::Http {
            return Err(Failure::Redirect("it leads to http, and HTTP/3 is for https"));
        }
        let Some(place) = self.found.get(number - self.planned.len()) else {
            return Err(Failure::Redirect("redirects lead to more than 8 other ports"));
        };
        let server = self.resolve(url).map_err(|_| Failure::Redirect("its host has no address"))?;
        place.get_or_init(|| server);
        known.insert(key, number);
        Ok(number)
    }

    fn resolve(&self, url: &Url<'_>) -> Result<Server, Error> {
        let name = self.server_name.as_deref().unwrap_or(url.host);
        let tls_name = match url.scheme {
            Scheme::Http => None,
            Scheme::Https => Some(ServerName::try_from(name.to_owned()).map_err(|_| Error::Url {
                url: shortened(name),
                reason: "no certificate can be for this host; write a name or an address",
            })?),
        };
        Ok(Server { addresses: self.directions.addresses(url.host, url.port)?, tls_name })
    }
}

fn key(url: &Url<'_>) -> Key {
    (url.host.to_ascii_lowercase(), url.port, url.scheme)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(plan: &Plan) -> Vec<Request> {
        match Targets::new(plan).expect("a good plan").requests {
            Requests::Http1(requests) => requests,
            Requests::Streams(_) => panic!("this plan is of HTTP/1.1"),
        }
    }

    fn rendered(plan: &Plan) -> Vec<String> {
        let requests = requests(plan);
        requests.iter().map(|request| String::from_utf8_lossy(&request.bytes).into_owned()).collect()
    }

    #[test]
    fn requests_carry_what_was_asked_and_nothing_else() {
        let plan = Plan::new("http://127.0.0.1:9?x");
        assert_eq!(rendered(&plan), ["GET /?x HTTP/1.1\r\nHost: 127.0.0.1:9\r\n\r\n"]);
        let plan = Plan {
            method: "POST".into(),
            headers: vec!["host: other".into(), "X-A:  b ".into()],
            body: b"hi".to_vec(),
            keepalive: false,
            ..Plan::new("http://127.0.0.1/p")
        };
        assert_eq!(
            rendered(&plan),
            ["POST /p HTTP/1.1\r\nHost: other\r\nX-A: b\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi"]
        );
        let plan = Plan { method: "PUT".into(), ..Plan::new("http://127.0.0.1/") };
        assert_eq!(rendered(&plan), ["PUT / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n"]);
    }

    #[test]
    fn rfc_9113_8_3_a_message_has_what_a_request_line_and_host_say() {
        let plan = Plan {
            method: "POST".into(),
            headers: vec!["Host: other".into(), "X-A: b".into(), "X-A: c".into()],
            body: b"hi".to_vec(),
            http2: true,
            ..Plan::new("https://127.0.0.1:9?x")
        };
        let url = Url::parse(&plan.urls[0]).expect("a URL");
        let form = Form::new(&plan).expect("a good plan");
        let head = form.message(&url).expect("a message");
        assert_eq!((head.method().as_str(), head.uri().to_string().as_str()), ("POST", "https://other/?x"));
        let fields: Vec<_> =
            head.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        assert_eq!(fields, [("x-a", &b"b"[..]), ("x-a", b"c"), ("content-length", b"2")]);
        assert!(matches!(Targets::new(&plan).map(|targets| targets.requests), Ok(Requests::Streams(_))));
        for header in ["Connection: close", "Upgrade: x", "TE: gzip"] {
            let plan = Plan { headers: vec![header.into()], ..plan.clone() };
            assert!(matches!(Targets::new(&plan), Err(Error::Request { what: "header", .. })), "{header}");
        }
    }

    #[test]
    fn a_host_and_port_is_another_server_with_tls() {
        let urls = ["http://127.0.0.1:9/", "https://127.0.0.1:9/", "https://127.0.0.1:9/again"];
        let tls = crate::plan::Tls { verify: false, ..crate::plan::Tls::default() };
        let plan = Plan { urls: urls.map(str::to_owned).into(), tls, ..Plan::default() };
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
        let base = || Plan::new("http://127.0.0.1/");
        let bad_headers =
            ["X", ": x", "X Y: z", "X: a\r\nY: b", "Content-Length: 3", "transfer-encoding: chunked"];
        for header in bad_headers {
            let error = Targets::new(&Plan { headers: vec![header.into()], ..base() }).expect_err(header);
            assert!(matches!(error, Error::Request { what: "header", .. }), "{error}");
        }
        for method in ["", "GET /", "G\r\n", "CONNECT"] {
            let error = Targets::new(&Plan { method: method.into(), ..base() }).expect_err(method);
            assert!(matches!(error, Error::Request { what: "method", .. }), "{error}");
        }
    }

    #[test]
    fn a_list_knows_its_servers_and_is_shuffled_by_its_seed() {
        let urls: Vec<String> =
            (0..50).map(|index| format!("http://127.0.0.{}/{index}", 1 + index % 2)).collect();
        let plan = |shuffle_seed| Plan { urls: urls.clone(), shuffle_seed, ..Plan::default() };
        let targets = Targets::new(&plan(None)).expect("a good plan");
        assert_eq!(targets.servers.planned(), 2);
        let requests = requests(&plan(None));
        assert!(requests[3].bytes.starts_with(b"GET /3 "));
        assert_eq!(requests[3].server, 1);
        assert_eq!(rendered(&plan(Some(1))), rendered(&plan(Some(1))));
        assert_ne!(rendered(&plan(Some(1))), rendered(&plan(None)));
    }
}
