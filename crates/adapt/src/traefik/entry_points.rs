//! Entry points: listeners, and options for all their requests.

use super::{TraefikAdapter, certificates, find, from, is_on, milliseconds, numbers, text};
use crate::draft::{DraftTable, DraftValue, StatementOrigin};
use crate::source::Directive;
use crate::values::{self, duration};

/// All addresses, as networks.
const ANYBODY: [&str; 2] = ["0.0.0.0/0", "::/0"];
const DAY: u64 = 86_400_000;

pub(super) struct ListenerPoint<'s> {
    pub(super) name: String,
    pub(super) directive: Option<&'s Directive>,
    /// As in [[listen]].
    pub(super) address: String,
    pub(super) has_tls: bool,
    /// Whether it serves routers without entry points.
    is_default: bool,
    /// Set if all requests are redirected.
    pub(super) redirect: Option<Redirect>,
}

#[derive(Clone)]
pub(super) enum Redirect {
    /// To the same URL with https on its default port.
    Https,
    /// `redirect` of a route.
    To(DraftValue, Vec<StatementOrigin>),
}

impl<'s> ListenerPoint<'s> {
    pub(super) fn has(&self, router: &Directive) -> bool {
        match find(router, "entryPoints") {
            Some(named) => named.words.iter().any(|name| name.eq_ignore_ascii_case(&self.name)),
            None => self.is_default,
        }
    }

    pub(super) fn of_http(&self, name: &str) -> Option<&'s Directive> {
        find(find(self.directive?, "http")?, name)
    }
}

impl<'s> TraefikAdapter<'s> {
    pub(super) fn entry_points(&mut self) -> Vec<ListenerPoint<'s>> {
        let all: Vec<&'s Directive> = self.top("entryPoints").flat_map(Directive::inner).collect();
        let has_defaults = all.iter().any(|directive| is_on(directive, "asDefault"));
        let mut points = Vec::new();
        for directive in &all {
            if self.is_internal(directive) {
                continue;
            }
            if let Some(address) = self.address(directive) {
                points.push(ListenerPoint {
                    name: directive.name.clone(),
                    directive: Some(directive),
                    address,
                    has_tls: false,
                    is_default: !has_defaults || is_on(directive, "asDefault"),
                    redirect: None,
                });
            }
        }
        if all.is_empty() {
            points = self.usual();
        }
        let ports: Vec<(String, String)> =
            points.iter().map(|point| (point.name.clone(), port(&point.address).to_owned())).collect();
        for point in &mut points {
            point.has_tls = self.has_tls(point);
            point.redirect = self.redirections(point, &ports);
        }
        points
    }

    /// Whether the entry point serves only Traefik's own pages.
    fn is_internal(&self, directive: &Directive) -> bool {
        let has_router = ["http", "tcp"].iter().any(|kind| {
            self.defined(kind, "routers")
                .filter_map(|router| find(router, "entryPoints"))
                .any(|named| named.words.iter().any(|name| name.eq_ignore_ascii_case(&directive.name)))
        });
        !has_router
            && (directive.name.eq_ignore_ascii_case("traefik")
                || self.metrics_point().is_some_and(|(name, _)| name.eq_ignore_ascii_case(&directive.name)))
    }

    /// Entry points that routers name but no file defines: `web` and `websecure` have default ports.
    fn usual(&mut self) -> Vec<ListenerPoint<'s>> {
        let mut names: Vec<&str> = Vec::new();
        for kind in ["http", "tcp"] {
            for router in self.defined(kind, "routers") {
                let named = find(router, "entryPoints");
                let words =
                    named.map_or(Vec::new(), |named| named.words.iter().map(String::as_str).collect());
                for name in if words.is_empty() { vec!["web"] } else { words } {
                    match (names.contains(&name), name.to_ascii_lowercase().as_str()) {
                        (false, "web" | "http" | "websecure" | "https") => names.push(name),
                        (false, _) => {
                            let why = format!("the entry point {name} is in another file");
                            let number = named.map_or(router.number, |named| named.number);
                            self.sheet.refuse(
                                number,
                                &why,
                                "name Traefik's static file, or write a [[listen]]",
                            );
                        }
                        _ => {}
                    }
                }
            }
        }
        let point = |name: &str| ListenerPoint {
            name: name.to_owned(),
            directive: None,
            address: if name.to_ascii_lowercase().ends_with('e')
                || name.to_ascii_lowercase().ends_with("https")
            {
                "*:443".to_owned()
            } else {
                "*:80".to_owned()
            },
            has_tls: false,
            is_default: true,
            redirect: None,
        };
        names.into_iter().map(point).collect()
    }

    fn address(&mut self, directive: &'s Directive) -> Option<String> {
        let (word, place) = text(directive, "address").unwrap_or(("", directive));
        let (word, protocol) = word.split_once('/').unwrap_or((word, "tcp"));
        if protocol.eq_ignore_ascii_case("udp") {
            let instead = "keep Traefik for it, or pass datagrams on with the kernel (nftables)";
            self.refuse_all(directive, "datagrams are not forwarded", instead);
            return None;
        }
        let (host, port) = word.rsplit_once(':')?;
        let bare = host.trim_matches(['[', ']']);
        let host = match bare.parse::<std::net::IpAddr>() {
            _ if bare.is_empty() => Some("*".to_owned()),
            Ok(std::net::IpAddr::V6(_)) => Some(format!("[{bare}]")),
            Ok(_) => Some(bare.to_owned()),
            Err(_) => None,
        };
        let address = host.filter(|_| port.parse::<u16>().is_ok()).map(|host| format!("{host}:{port}"));
        if address.is_none() {
            self.sheet.refuse(
                place.number,
                "it is no IP address with a port",
                "write a [[listen]] with the address",
            );
        }
        address
    }

    fn has_tls(&self, point: &ListenerPoint<'_>) -> bool {
        let routers = self.defined("http", "routers").chain(self.defined("tcp", "routers"));
        let is_decrypted =
            |router: &Directive| find(router, "tls").is_some_and(|tls| !is_on(tls, "passthrough"));
        point.of_http("tls").is_some() || routers.filter(|router| point.has(router)).any(is_decrypted)
    }

    /// Translates `redirections`: an entry point redirects all requests to another one.
    fn redirections(&mut self, point: &ListenerPoint<'s>, ports: &[(String, String)]) -> Option<Redirect> {
        let to = find(point.of_http("redirections")?, "entryPoint")?;
        let (target, place) = text(to, "to")?;
        let scheme = text(to, "scheme").map_or("https", |(scheme, _)| scheme);
        let is_permanent = text(to, "permanent").is_none_or(|(word, _)| word.eq_ignore_ascii_case("true"));
        let port = match target.strip_prefix(':') {
            Some(port) => Some(port),
            None => ports
                .iter()
                .find(|(name, _)| name.eq_ignore_ascii_case(target))
                .map(|(_, port)| port.as_str()),
        };
        let Some(port) = port else {
            let instead = "write `redirect_to_https = true` in the [[listen]]";
            self.sheet.refuse(place.number, "there is no such entry point in the files", instead);
            return None;
        };
        for inner in to.inner().iter().filter(|inner| inner.number != place.number) {
            self.sheet.needless(inner.number, "it is part of the redirect");
        }
        if scheme == "https" && port == "443" && is_permanent {
            let why = "the status is 308 for all methods, where Traefik sends 301 for GET; hosts without a route get 404";
            self.sheet.differs(place.number, why, "");
            return Some(Redirect::Https);
        }
        let usual = (scheme == "https" && port == "443") || (scheme == "http" && port == "80");
        let port = if usual { String::new() } else { format!(":{port}") };
        let status = if is_permanent { 308 } else { 307 };
        let pairs = [
            ("to".to_owned(), DraftValue::from(format!("{scheme}://$host{port}$path"))),
            ("status".to_owned(), DraftValue::Number(status)),
        ];
        let why = format!("the status is {status} for all methods, where Traefik sends another one for GET");
        self.sheet.differs(place.number, &why, "");
        Some(Redirect::To(DraftValue::Table(pairs.into()), from(place)))
    }

    pub(super) fn listener(&mut self, point: &ListenerPoint<'s>, has_name: bool) {
        let origins = point.directive.map_or_else(
            || vec![StatementOrigin::Default("entry points are in Traefik's static file")],
            from,
        );
        let mut table = DraftTable::new("[[listen]]", origins);
        let at = point.directive.and_then(|directive| find(directive, "address")).map_or(Vec::new(), from);
        table.set("address", point.address.as_str(), at);
        if has_name {
            table.set("name", point.name.as_str(), Vec::new());
        }
        if let Some(Redirect::Https) = point.redirect {
            let to = point.of_http("redirections").map_or(Vec::new(), |redirections| {
                numbers(redirections).into_iter().take(1).map(StatementOrigin::Directive).collect()
            });
            table.set("redirect_to_https", true, to);
        }
        if point.has_tls {
            certificates::write_certificates(self, point, &mut table);
        }
        for option in point.directive.map_or(&[][..], Directive::inner) {
            self.option(option, &mut table, point);
        }
        self.sheet.listeners.push(table);
    }

    fn option(&mut self, option: &'s Directive, table: &mut DraftTable, point: &ListenerPoint<'_>) {
        match option.name.to_ascii_lowercase().as_str() {
            "http" => option.inner().iter().for_each(|inner| self.http_option(inner)),
            "http3" => {
                if point.has_tls {
                    table.set("http3", true, vec![StatementOrigin::Directive(option.number)]);
                } else {
                    self.refuse_all(
                        option,
                        "HTTP/3 needs TLS, and no router here has it",
                        "write `tls` in the [[listen]]",
                    );
                }
                let told = text(option, "advertisedPort");
                if let Some((told, place)) = told.filter(|(told, _)| *told != port(&point.address)) {
                    let why = format!("responses name the port of the listener, not {told}");
                    self.sheet.differs(place.number, &why, "");
                }
            }
            "http2" => {
                let why = "streams of a connection have a separate limit";
                self.needless_all(option, why);
            }
            "proxyprotocol" => self.trusted(option, |adapter, networks, number| {
                table.set("proxy_protocol", networks, vec![StatementOrigin::Directive(number)]);
                let why = "connections from there have to begin with a PROXY header";
                adapter.sheet.differs(number, why, "name only those that send one");
            }),
            "forwardedheaders" => self.trusted(option, |adapter, networks, number| {
                for network in networks {
                    adapter.sheet.top.push(
                        "trusted_proxies",
                        network.into(),
                        vec![StatementOrigin::Directive(number)],
                    );
                }
                let why = "trusted proxies are trusted at all listeners, for PROXY headers and Forwarded";
                adapter.sheet.differs(number, why, "");
            }),
            "transport" => self.transport(option),
            "udp" => self.refuse_all(option, "datagrams are not forwarded", "leave it out"),
            _ => {}
        }
    }

    /// Translates `trustedIPs`, or `insecure` for all.
    fn trusted(&mut self, option: &'s Directive, then: impl FnOnce(&mut Self, Vec<String>, usize)) {
        if let Some((_, place)) = text(option, "insecure").filter(|_| is_on(option, "insecure")) {
            then(self, ANYBODY.map(str::to_owned).to_vec(), place.number);
        } else if let Some(networks) = find(option, "trustedIPs") {
            if networks.words.iter().all(|network| values::is_network(network)) {
                then(self, networks.words.clone(), networks.number);
            } else {
                self.unread(networks, "networks such as 10.0.0.0/8");
            }
        }
    }

    fn http_option(&mut self, option: &'s Directive) {
        match option.name.to_ascii_lowercase().as_str() {
            "maxheaderbytes" => match option.word(0).parse::<u64>() {
                Ok(bytes) => {
                    let bytes = values::size(bytes.clamp(1 << 10, 1 << 20));
                    self.sheet.once("[limits]", "header_bytes", bytes, option.number);
                }
                Err(_) => self.unread(option, "`header_bytes` of [limits]"),
            },
            "middlewares" => self.sheet.needless(option.number, "they are written in each route"),
            "encodedcharacters" | "sanitizepath" | "encodequerysemicolons" => {
                let why = "an ambiguous path is rejected with 400, any other path is forwarded unchanged";
                for number in numbers(option) {
                    self.sheet.differs(number, why, "");
                }
            }
            _ => {}
        }
    }

    fn transport(&mut self, transport: &'s Directive) {
        let all = transport.inner().iter().flat_map(|option| match &option.block {
            Some(inner) => inner.iter().collect(),
            None => vec![option],
        });
        for option in all {
            let time = milliseconds(option.word(0));
            let limited = |time: u64, least: u64| duration(time.clamp(least, DAY));
            match (option.name.to_ascii_lowercase().as_str(), time) {
                // Zero means no limit.
                ("readtimeout" | "writetimeout" | "idletimeout", Some(0)) => {
                    let why = "each wait has a limit";
                    self.sheet.differs(option.number, why, "see [timeouts] in docs/configuration.md");
                }
                ("readtimeout", Some(time)) => {
                    self.sheet.once("[timeouts]", "client_header", limited(time, 1), option.number);
                    let why = "it applies to the header section; `client_body` limits each pause in the body";
                    self.sheet.differs(option.number, why, "");
                }
                ("writetimeout", Some(time)) => {
                    self.sheet.once("[timeouts]", "client_write", limited(time, 1), option.number);
                    let why = "it counts while the client accepts no data, not for the whole response";
                    self.sheet.differs(option.number, why, "");
                }
                ("idletimeout", Some(time)) => {
                    self.sheet.once("[timeouts]", "keep_alive", limited(time, 1), option.number);
                }
                ("gracetimeout", Some(time)) => {
                    self.sheet.once("[timeouts]", "drain", limited(time, 0), option.number);
                }
                ("requestacceptgracetimeout", _) => {
                    let instead = "`vanward drain`, then wait, then stop it";
                    self.sheet.refuse(option.number, "a drain begins at once", instead);
                }
                ("keepalivemaxrequests", _) => match option.word(0).parse::<u64>() {
                    Ok(count @ 1..) => {
                        self.sheet.once("[limits]", "requests_per_connection", count, option.number);
                    }
                    _ => self.sheet.needless(option.number, "there is no such limit by default"),
                },
                ("keepalivemaxtime", _) => {
                    let instead = "`requests_per_connection` of [limits] counts requests";
                    self.sheet.refuse(option.number, "a connection has no longest age", instead);
                }
                _ => self.unread(option, "a time such as 10s"),
            }
        }
    }
}

fn port(address: &str) -> &str {
    address.rsplit_once(':').map_or("", |(_, port)| port)
}
