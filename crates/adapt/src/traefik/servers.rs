//! The servers of a service: balancing, checks, transport.

use super::{TraefikAdapter, find, from, is_on, milliseconds, numbers, text};
use crate::draft::{DraftTable, DraftValue, StatementOrigin};
use crate::sheet::name_of;
use crate::source::Directive;
use crate::values::duration;

const HOUR: u64 = 3_600_000;
const DAY: u64 = 24 * HOUR;

impl<'s> TraefikAdapter<'s> {
    /// Builds the upstream of a `loadBalancer`, and further options of its routes.
    pub(super) fn balancer(
        &mut self,
        definition: &'s Directive,
        kind: &'s Directive,
    ) -> Option<(DraftTable, DraftTable)> {
        let mut upstream = DraftTable::new("", from(definition));
        let mut route = DraftTable::default();
        let mut has_tls = false;
        for server in find(kind, "servers").map_or(&[][..], Directive::inner) {
            has_tls |= self.server(server, &mut upstream, &mut route);
        }
        if upstream.get("servers").is_none() {
            let number = definition.number;
            self.sheet.refuse(number, "it has no servers", "write them into `servers` of an [upstream.NAME]");
            return None;
        }
        for option in kind.inner() {
            match (option.name.to_ascii_lowercase().as_str(), option.word(0)) {
                ("servers", _) => {}
                ("strategy", "p2c") => upstream.set("balance", "two-choices", from(option)),
                ("strategy", "hrw") => upstream.set("balance", "client-address", from(option)),
                ("strategy", "leasttime") => upstream.set("balance", "response-time", from(option)),
                ("strategy", _) => upstream.set("balance", "round-robin", from(option)),
                ("passhostheader", word) if word.eq_ignore_ascii_case("false") => {
                    upstream.set("host", "server", from(option));
                }
                ("passhostheader", _) => self.sheet.needless(option.number, "servers get the client's Host"),
                ("sticky", _) => {
                    let (value, origins) = self.cookie(option);
                    upstream.set("sticky", value, origins);
                }
                ("healthcheck", _) => self.check(option, &mut upstream),
                ("passivehealthcheck", _) => self.passive(option, &mut upstream),
                ("responseforwarding", _) => self.needless_all(option, "bodies are streamed"),
                ("serverstransport", name) => match self.definition("http", "serversTransports", name) {
                    Some(transport) => {
                        self.sheet.needless(option.number, "it is written in the upstream");
                        self.transport_of(transport, has_tls, &mut upstream, &mut route);
                    }
                    None => {
                        let why = format!("there is no transport {name} in the files");
                        self.sheet.refuse(option.number, &why, "write `tls` of the upstream");
                    }
                },
                _ => {}
            }
        }
        if find(kind, "serversTransport").is_none() {
            for transport in self.top("serversTransport") {
                self.transport_of(transport, has_tls, &mut upstream, &mut route);
            }
        }
        Some((upstream, route))
    }

    /// Adds a server. Returns whether it uses TLS.
    fn server(&mut self, server: &'s Directive, upstream: &mut DraftTable, route: &mut DraftTable) -> bool {
        let Some((written, place)) = text(server, "url") else {
            self.refuse_all(server, "it has no URL", "write it into `servers` of the upstream");
            return false;
        };
        let Some((url, path, is_h2)) = url(written) else {
            self.refuse_all(
                server,
                "its URL has no host with a port",
                "write it into `servers` of the upstream",
            );
            return false;
        };
        let mut origins = from(place);
        let mut value = DraftValue::from(url.as_str());
        if let Some((word, place)) = text(server, "weight") {
            if let Ok(weight) = word.parse::<u64>() {
                let pairs = vec![
                    ("url".to_owned(), value),
                    ("weight".to_owned(), DraftValue::Number(weight.min(1000))),
                ];
                value = DraftValue::Table(pairs);
                origins.extend(from(place));
            } else {
                self.unread(place, "`weight = 2` of the server");
            }
        }
        if is_h2 {
            upstream.set("protocol", "h2", from(place));
        }
        if let Some(preserve) = find(server, "preservePath") {
            if is_on(server, "preservePath") && path.len() > 1 {
                let path = super::paths::escaped(path.trim_end_matches('/'));
                route.extend("rewrite", ("pattern", "(.*)".into()), from(preserve));
                route.extend("rewrite", ("path", format!("{path}$1").into()), Vec::new());
                let why = "the path of the first server is put in front, for all servers";
                self.sheet.differs(preserve.number, why, "");
            } else {
                self.sheet.needless(preserve.number, "the path of a URL has no effect without it");
            }
        }
        upstream.push("servers", value, origins);
        url.starts_with("https:")
    }

    /// Adds an upstream with one server, for `forwardAuth`.
    pub(super) fn server_alone(
        &mut self,
        base: &str,
        place: &'s Directive,
        tls: Option<&'s Directive>,
    ) -> Option<String> {
        let (url, ..) = url(base)?;
        let host = url.split_once("://").map_or(url.as_str(), |(_, host)| host).to_owned();
        let mut table = DraftTable::new("", from(place));
        table.push("servers", url.into(), Vec::new());
        // The request has the server's own Host.
        table.set("host", "server", Vec::new());
        for option in tls.map_or(&[][..], Directive::inner) {
            let key = match option.name.to_ascii_lowercase().as_str() {
                "ca" => "ca",
                "cert" => "cert",
                "key" => "key",
                "insecureskipverify" if option.word(0).eq_ignore_ascii_case("true") => {
                    table.extend("tls", ("verify", false.into()), from(option));
                    continue;
                }
                _ => {
                    self.sheet.needless(option.number, "that is the default");
                    continue;
                }
            };
            table.extend("tls", (key, option.word(0).into()), from(option));
        }
        Some(self.sheet.upstream(&name_of(&host), table))
    }

    /// Translates `healthCheck`.
    fn check(&mut self, check: &'s Directive, upstream: &mut DraftTable) {
        let is_grpc = text(check, "mode").is_some_and(|(mode, _)| mode.eq_ignore_ascii_case("grpc"));
        let mut pairs = vec![("type".to_owned(), DraftValue::from(if is_grpc { "grpc" } else { "http" }))];
        let mut origins = Vec::new();
        let mut put = |key: &str, value: DraftValue| pairs.push((key.to_owned(), value));
        // In Traefik, one check decides; it accepts 2xx and 3xx.
        if !is_grpc && find(check, "status").is_none() {
            put("status", vec!["2xx".to_owned(), "3xx".to_owned()].into());
        }
        put("rise", DraftValue::Number(1));
        put("fall", DraftValue::Number(1));
        if find(check, "interval").is_none() {
            put("interval", "30s".into());
        }
        if find(check, "timeout").is_none() {
            put("timeout", "5s".into());
        }
        for option in check.inner() {
            let word = option.word(0);
            match (option.name.to_ascii_lowercase().as_str(), word.parse::<u64>()) {
                ("path", _) if !is_grpc => put("path", word.into()),
                ("status", Ok(status)) => put("status", DraftValue::Number(status)),
                ("port", Ok(port @ 1..=65_535)) => put("port", DraftValue::Number(port)),
                (name @ ("interval" | "timeout" | "unhealthyinterval"), _) => match milliseconds(word) {
                    Some(time) => {
                        let key = if name == "unhealthyinterval" { "interval_in_doubt" } else { name };
                        put(key, duration(time.clamp(10, HOUR)).into());
                    }
                    None => {
                        self.unread(option, "a time such as 10s");
                        continue;
                    }
                },
                ("hostname", _) => put("host", word.into()),
                ("mode", _) => {}
                ("followredirects", _) => {
                    self.sheet.differs(
                        option.number,
                        "a redirect is not followed: it is a healthy answer",
                        "",
                    );
                    continue;
                }
                ("scheme", _) => {
                    self.sheet.differs(option.number, "the check uses the server's scheme", "");
                    continue;
                }
                ("method", _) if word.eq_ignore_ascii_case("get") => {
                    self.sheet.needless(option.number, "it is GET");
                    continue;
                }
                _ => {
                    let instead = "`type = \"command\"` runs a program of your own";
                    self.refuse_all(option, "a check has no such option", instead);
                    continue;
                }
            }
            origins.extend(numbers(option).into_iter().map(StatementOrigin::Directive));
        }
        upstream.set("check", DraftValue::Table(pairs), origins);
    }

    /// Translates `passiveHealthCheck`.
    fn passive(&mut self, check: &'s Directive, upstream: &mut DraftTable) {
        if let Some((word, place)) = text(check, "maxFailedAttempts") {
            match word.parse::<u64>() {
                Ok(count) => {
                    let count = DraftValue::Number(count.clamp(1, 1_000_000));
                    upstream.extend("eject", ("failures_in_a_row", count), from(place));
                }
                Err(_) => self.unread(place, "`eject = { failures_in_a_row = 5 }`"),
            }
        }
        if let Some((word, place)) = text(check, "failureWindow") {
            match milliseconds(word) {
                Some(time) => {
                    upstream.extend("eject", ("base", duration(time.clamp(10, HOUR)).into()), from(place));
                }
                None => self.unread(place, "`eject = { base = \"10s\" }`"),
            }
        }
        self.sheet.differs(check.number, "a server is ejected only where others answer", "");
    }

    /// Translates `serversTransport`.
    fn transport_of(
        &mut self,
        transport: &'s Directive,
        has_tls: bool,
        upstream: &mut DraftTable,
        route: &mut DraftTable,
    ) {
        for option in transport.inner() {
            let word = option.word(0);
            let name = option.name.to_ascii_lowercase();
            let of_tls =
                ["servername", "insecureskipverify", "rootcas", "certificates", "minversion", "maxversion"];
            if of_tls.contains(&name.as_str()) && !has_tls {
                self.needless_all(option, "its servers have http:// URLs");
                continue;
            }
            match name.as_str() {
                "servername" => upstream.extend("tls", ("name", word.into()), from(option)),
                "insecureskipverify" if word.eq_ignore_ascii_case("true") => {
                    upstream.extend("tls", ("verify", false.into()), from(option));
                }
                "rootcas" if option.words.len() == 1 && !word.contains("BEGIN") => {
                    upstream.extend("tls", ("ca", word.into()), from(option));
                }
                "rootcas" => {
                    let instead = "put all CA certificates into one file: `tls = { ca = \"FILE\" }`";
                    self.sheet.refuse(option.number, "they are not one file", instead);
                }
                "certificates" => {
                    for pair in option.inner().iter().take(1) {
                        for (key, ours) in [("certFile", "cert"), ("keyFile", "key")] {
                            if let Some((file, place)) = text(pair, key) {
                                upstream.extend("tls", (ours, file.into()), from(place));
                            }
                        }
                    }
                    for pair in option.inner().iter().skip(1) {
                        let instead = "put servers with another one into a separate upstream";
                        self.refuse_all(pair, "servers get one certificate", instead);
                    }
                }
                "minversion" | "maxversion" => {
                    let version = if word.ends_with("13") { "1.3" } else { "1.2" };
                    let key = if name.starts_with("min") { "min_version" } else { "max_version" };
                    upstream.extend("tls", (key, version.into()), from(option));
                }
                "maxidleconnsperhost" => match word.parse::<u64>() {
                    Ok(count @ 1..=1_000_000) => {
                        upstream.extend("pool", ("idle", DraftValue::Number(count)), from(option));
                    }
                    _ => self.sheet.needless(option.number, "recent use decides how many are kept"),
                },
                "forwardingtimeouts" => self.forwarding(option, upstream, route),
                "disablehttp2" => {
                    self.sheet.needless(option.number, "servers get HTTP/1.1 unless `protocol` says h2");
                }
                "ciphersuites" | "curvepreferences" => {
                    let instead = "`ciphers` and `groups` of `tls` have the names of the IANA";
                    self.refuse_all(option, "the defaults are secure", instead);
                }
                _ if word.eq_ignore_ascii_case("false") => self.sheet.needless(option.number, "it is off"),
                _ => {
                    let instead = "see `tls` of [upstream.NAME] in docs/configuration.md";
                    self.refuse_all(option, "certificates of servers are verified by their names", instead);
                }
            }
        }
    }

    fn forwarding(&mut self, timeouts: &'s Directive, upstream: &mut DraftTable, route: &mut DraftTable) {
        for option in timeouts.inner() {
            let time =
                milliseconds(option.word(0)).filter(|time| *time > 0).map(|time| duration(time.min(DAY)));
            match (option.name.to_ascii_lowercase().as_str(), time) {
                (_, None) => {
                    let instead = "see [timeouts] in docs/configuration.md";
                    self.sheet.differs(option.number, "each wait has a limit", instead);
                }
                ("dialtimeout", Some(time)) => {
                    upstream.extend("pool", ("connect_timeout", time.into()), from(option));
                }
                ("responseheadertimeout", Some(time)) => {
                    route.extend("timeouts", ("upstream_first_byte", time.into()), from(option));
                }
                ("idleconntimeout", Some(time)) => {
                    upstream.extend("pool", ("idle_timeout", time.into()), from(option));
                }
                _ => self.sheet.needless(option.number, "HTTP/2 connections are tested automatically"),
            }
        }
    }
}

/// Converts a server's URL. Returns it with its path, and whether it is HTTP/2 without TLS.
fn url(text: &str) -> Option<(String, &str, bool)> {
    let (scheme, rest) = text.split_once("://")?;
    let (host, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, Some(port)),
        _ => (host, None),
    };
    let bare = name.trim_matches(['[', ']']);
    let is_host = crate::rules::is_host(name) || bare.parse::<std::net::IpAddr>().is_ok();
    if !is_host || port.is_some_and(|port| port.parse::<u16>().is_err()) {
        return None;
    }
    match scheme.to_ascii_lowercase().as_str() {
        "http" => Some((format!("http://{host}"), path, false)),
        "https" => Some((format!("https://{host}"), path, false)),
        "h2c" => Some((format!("http://{host}"), path, true)),
        _ => None,
    }
}
