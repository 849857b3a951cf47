//! Listeners, and options for all of their requests.

use super::{PoundAdapter, from, is_on};
use crate::draft::{DraftTable, DraftValue, StatementOrigin};
use crate::rules;
use crate::source::Directive;

/// Pound forwards only GET, HEAD and POST unless `xHTTP` permits more methods.
const METHODS: &str = "all methods are forwarded except CONNECT and TRACE";
const METHODS_INSTEAD: &str = "`methods` of [[route]] permits some";

impl PoundAdapter<'_> {
    pub(super) fn listeners(&mut self, all: &[Directive]) {
        let global: Vec<&Directive> = all.iter().filter(|directive| directive.name == "service").collect();
        let listening: Vec<&Directive> = all
            .iter()
            .filter(|directive| matches!(directive.name.as_str(), "listenhttp" | "listenhttps"))
            .collect();
        let mut routes = Vec::new();
        for listener in &listening {
            let Some(address) = self.listener(listener) else { continue };
            let own = listener.inner().iter().filter(|directive| directive.name == "service");
            let services: Vec<&Directive> = own.chain(global.iter().copied()).collect();
            let fields = self.fields(listener.inner());
            let mut tables = self.routes(&services, &fields);
            if listening.len() > 1 {
                tables.iter_mut().for_each(|table| table.set_first("listener", address.as_str()));
            }
            routes.extend(tables);
        }
        self.sheet.routes = routes;
    }

    /// Writes a listener. Returns its address, or `None` if it is unsupported.
    fn listener(&mut self, listener: &Directive) -> Option<String> {
        let has_tls = listener.name == "listenhttps";
        let Some(address) = address(listener, if has_tls { "443" } else { "80" }) else {
            let instead = "write a [[listen]] with the address";
            self.sheet.refuse(listener.number, "it has no IP address with a port", instead);
            return None;
        };
        if self.sheet.listeners.iter().any(|known| known.get("address") == Some(&address.as_str().into())) {
            let why = "another listener has this address already";
            self.sheet.refuse(listener.number, why, "leave one of them out");
            return None;
        }
        let mut table = DraftTable::new("[[listen]]", from(listener));
        let mut at = from(listener);
        let places =
            listener.inner().iter().filter(|inner| matches!(inner.name.as_str(), "address" | "port"));
        at.extend(places.flat_map(from));
        table.set("address", address.as_str(), at);
        for inner in listener.inner() {
            self.listener_option(&mut table, inner);
        }
        if !listener.inner().iter().any(|inner| inner.name == "xhttp") {
            self.sheet.differs(listener.number, METHODS, METHODS_INSTEAD);
        }
        if has_tls && table.get("tls").is_none() {
            let instead = "name one in `certificates` of [listen.tls]";
            self.sheet.refuse(listener.number, "it has no certificate", instead);
            return None;
        }
        self.sheet.listeners.push(table);
        Some(address)
    }

    fn listener_option(&mut self, table: &mut DraftTable, inner: &Directive) {
        match inner.name.as_str() {
            "cert" => {
                let file = inner.word(0);
                let pair = vec![("cert".to_owned(), file.into()), ("key".to_owned(), file.into())];
                let mut certificates = match table.inner("tls", "certificates") {
                    Some(DraftValue::List(known)) => known.clone(),
                    _ => Vec::new(),
                };
                certificates.push(DraftValue::Table(pair));
                table.extend("tls", ("certificates", DraftValue::List(certificates)), from(inner));
            }
            "disable" if inner.word(0).eq_ignore_ascii_case("tlsv1_2") => {
                table.extend("tls", ("min_version", "1.3".into()), from(inner));
            }
            "disable" => self.sheet.needless(inner.number, "only TLS 1.2 and 1.3 are supported"),
            "client" => self.time("client_header", inner),
            "timeout" => self.response_time(inner),
            "connto" => self.time("upstream_connect", inner),
            "maxrequest" => match inner.word(0).parse::<u64>() {
                Ok(bytes) => {
                    let most = if bytes == 0 { "none".to_owned() } else { crate::values::size(bytes) };
                    self.sheet.once("[limits]", "body_bytes", most, inner.number);
                }
                Err(_) => {
                    self.sheet.refuse(inner.number, "it is no number", "write `body_bytes` of [limits]");
                }
            },
            "rewritelocation" if is_on(inner) => {
                let why = "Location of responses is passed on as the server wrote it";
                self.sheet.differs(
                    inner.number,
                    why,
                    "servers that read X-Forwarded-Proto and Host write the right one",
                );
            }
            "xhttp" => {
                self.sheet.differs(inner.number, METHODS, METHODS_INSTEAD);
            }
            "err404" | "err413" | "err414" | "err500" | "err501" | "err503" => {
                let status = inner.name.trim_start_matches("err");
                self.sheet.top.extend("error_pages", (status, inner.word(0).into()), from(inner));
            }
            _ => {}
        }
    }

    /// Collects the fields that a listener or a service adds and removes, in requests and responses.
    pub(super) fn fields(&mut self, inner: &[Directive]) -> DraftTable {
        let mut table = DraftTable::default();
        for directive in inner {
            let (option, verb) = match directive.name.as_str() {
                "addheader" | "headeradd" => ("request_headers", "add"),
                "setheader" => ("request_headers", "set"),
                "headremove" | "headerremove" | "removeheader" => ("request_headers", "remove"),
                "addresponseheader" | "addresponsehead" => ("response_headers", "add"),
                "removeresponsehead" | "removeresponseheader" => ("response_headers", "remove"),
                _ => continue,
            };
            let text = directive.words.last().map_or("", String::as_str);
            let (name, value) = text.split_once(':').unwrap_or((text, ""));
            let name = name.trim().trim_end_matches(".*");
            let is_name = !name.is_empty()
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
            let is_plain = matches!(value.trim(), "" | ".*" | ".+");
            if !is_name || verb == "remove" && !is_plain || value.contains(['$', '%']) {
                let instead = "write `request_headers` or `response_headers` of the routes";
                self.sheet.refuse(directive.number, "it is more than a name and a text", instead);
            } else if verb == "remove" {
                table.listed(option, "remove", name, from(directive));
            } else {
                table.field(option, verb, name, value.trim(), from(directive));
            }
        }
        table
    }
}

/// Returns the address of a listener or server, with its port.
fn address(block: &Directive, port: &str) -> Option<String> {
    let word = |name: &str| block.inner().iter().find(|inner| inner.name == name).map(|inner| inner.word(0));
    let port = word("port").unwrap_or(port).parse::<u16>().ok()?;
    let host = word("address")?.trim_matches(['[', ']']).parse::<std::net::IpAddr>().ok()?;
    Some(std::net::SocketAddr::new(host, port).to_string())
}

/// The response if no service matches.
pub(super) fn nobody() -> (DraftValue, Vec<StatementOrigin>) {
    (rules::answer(503, None), vec![StatementOrigin::Default("no service takes it")])
}
