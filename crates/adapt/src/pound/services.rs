//! Services in order, with their servers.

use super::conditions::condition;
use super::listeners::nobody;
use super::{PoundAdapter, from, is_on};
use crate::draft::{DraftTable, DraftValue, StatementOrigin};
use crate::rules::{self, Expression, Holds, RegionOutcome, Test};
use crate::sheet::name_of;
use crate::source::Directive;

struct PoundService<'d> {
    directive: &'d Directive,
    condition: Expression,
}

impl PoundAdapter<'_> {
    /// Builds the routes of services: a request belongs to the first with all conditions met. `fields` are the
    /// listener's.
    pub(super) fn routes(&mut self, services: &[&Directive], fields: &DraftTable) -> Vec<DraftTable> {
        let services: Vec<PoundService<'_>> = services
            .iter()
            .filter(|directive| {
                !directive.inner().iter().any(|inner| inner.name == "disabled" && is_on(inner))
            })
            .map(|directive| PoundService { directive, condition: self.condition(directive) })
            .collect();
        let mut tests: Vec<Test> = Vec::new();
        for service in &services {
            service.condition.tests(&mut tests);
        }
        let schema = self.sheet.definitions.schema();
        let found = rules::routes(&tests, &schema, &mut |holds| self.judge(&services, fields, holds));
        self.sheet.report(&found);
        found.tables
    }

    fn condition(&mut self, service: &Directive) -> Expression {
        let said = service.inner().iter().find(|inner| inner.name == "ignorecase");
        if let Some(said) = said {
            self.sheet.needless(said.number, "it is in the expressions of routes");
        }
        let ignores_case = said.map_or(self.ignores_case, is_on);
        let inner = service.inner().iter();
        Expression::all(inner.filter_map(|inner| condition(inner, ignores_case)).collect())
    }

    fn judge(
        &mut self,
        services: &[PoundService<'_>],
        fields: &DraftTable,
        holds: &Holds<'_>,
    ) -> RegionOutcome {
        let mut made = RegionOutcome { from: Vec::new(), options: DraftTable::default() };
        for service in services {
            let directive = service.directive;
            match service.condition.verdict(holds, false) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(why) => {
                    let instead = "write a [[route]] with `host`, `path`, `headers` or `clients`";
                    self.sheet.refuse(directive.number, &why, instead);
                    continue;
                }
            }
            made.from.push(StatementOrigin::Directive(directive.number));
            self.serve(directive, &mut made);
            made.options.append(fields);
            made.options.append(&self.fields(directive.inner()));
            return made;
        }
        let (answer, origins) = nobody();
        made.options.set("respond", answer, origins);
        made
    }

    fn serve(&mut self, service: &Directive, made: &mut RegionOutcome) {
        let redirect = |inner: &&Directive| matches!(inner.name.as_str(), "redirect" | "redirectappend");
        if let Some(redirect) = service.inner().iter().find(redirect) {
            return self.redirect(redirect, made);
        }
        if let Some(error) = service.inner().iter().find(|inner| inner.name == "error") {
            let status = error.word(0).parse().unwrap_or(503);
            return made.options.set("respond", rules::answer(status, None), from(error));
        }
        match self.upstream(service) {
            Some(name) => made.options.set("upstream", name, Vec::new()),
            None => {
                let none = vec![StatementOrigin::Default("no server of it can be taken over")];
                made.options.set("respond", rules::answer(503, None), none);
            }
        }
    }

    /// Translates `Redirect 301 "URL"`. The path is appended if the URL has none, and always by `RedirectAppend`.
    fn redirect(&mut self, redirect: &Directive, made: &mut RegionOutcome) {
        let url = redirect.words.last().map_or("", String::as_str);
        let status = redirect.word(0).parse::<u64>().unwrap_or(302);
        let host = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
        let Some(host) = host.filter(|host| !host.is_empty() && !url.contains(['$', '%'])) else {
            let instead = "write `redirect` of the [[route]]; $host and $path stand for those of the request";
            self.sheet.refuse(redirect.number, "its URL has placeholders with another syntax", instead);
            return made.options.set("respond", rules::answer(503, None), from(redirect));
        };
        if ![301, 302, 303, 307, 308].contains(&status) {
            self.sheet.differs(
                redirect.number,
                "the status is 302",
                "`status` takes 301, 302, 303, 307 and 308",
            );
        }
        let status = if [301, 302, 303, 307, 308].contains(&status) { status } else { 302 };
        let has_path = host.trim_end_matches('/').contains('/');
        let to = if redirect.name == "redirectappend" || !has_path {
            format!("{}$path_and_query", url.trim_end_matches('/'))
        } else {
            crate::values::without_query(url.to_owned())
        };
        let pairs = vec![("to".to_owned(), to.into()), ("status".to_owned(), DraftValue::Number(status))];
        made.options.set("redirect", DraftValue::Table(pairs), from(redirect));
    }

    /// Returns the upstream of a service, creating it if necessary; `None` without servers.
    fn upstream(&mut self, service: &Directive) -> Option<String> {
        if let Some(name) = self.upstreams.get(&service.number) {
            return Some(name.clone());
        }
        let mut made = DraftTable::new("", Vec::new());
        for inner in service.inner() {
            match inner.name.as_str() {
                "backend" | "emergency" => {
                    if let Some((server, origins)) = self.server(inner, &mut made) {
                        made.push("servers", server, origins);
                    }
                }
                "session" => self.session(inner, &mut made),
                _ => {}
            }
        }
        made.get("servers")?;
        let named = service.words.first().map_or("service", String::as_str);
        let name = self.sheet.upstream(&name_of(named), made);
        self.upstreams.insert(service.number, name.clone());
        Some(name)
    }

    fn server(
        &mut self,
        server: &Directive,
        upstream: &mut DraftTable,
    ) -> Option<(DraftValue, Vec<StatementOrigin>)> {
        let find = |name: &str| server.inner().iter().find(|inner| inner.name == name);
        let https = find("https");
        let address = find("address").map_or("", |inner| inner.word(0));
        let port = find("port").map_or(if https.is_some() { "443" } else { "80" }, |inner| inner.word(0));
        let scheme = if https.is_some() { "https" } else { "http" };
        let is_host = |text: &str| {
            rules::is_host(text) || text.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok()
        };
        let url = if address.starts_with('/') && https.is_none() {
            format!("http+unix:{address}")
        } else if is_host(address) && port.parse::<u16>().is_ok_and(|port| port > 0) {
            let bare = address.trim_matches(['[', ']']);
            if bare.contains(':') {
                format!("{scheme}://[{bare}]:{port}")
            } else {
                format!("{scheme}://{bare}:{port}")
            }
        } else {
            self.sheet.refuse(
                server.number,
                "it has no address with a port",
                "write it in `servers` of the upstream",
            );
            return None;
        };
        let mut origins = from(server);
        let mut pairs = vec![("url".to_owned(), DraftValue::from(url))];
        for inner in server.inner() {
            match (inner.name.as_str(), inner.word(0).parse::<u64>()) {
                ("address" | "port", _) => {}
                ("priority" | "weight", Ok(weight)) => {
                    pairs.push(("weight".to_owned(), DraftValue::Number(weight.min(1000))));
                }
                ("disabled", _) if is_on(inner) => pairs.push(("down".to_owned(), true.into())),
                ("https", _) => {
                    upstream.extend("tls", ("verify", false.into()), from(inner));
                    let why = "Pound verifies no certificate of a server, and so does the result";
                    self.sheet.differs(
                        inner.number,
                        why,
                        "leave `verify` out, and name the CA in `ca` of `tls`",
                    );
                    continue;
                }
                ("timeout", _) => {
                    self.response_time(inner);
                    continue;
                }
                ("connto", _) => {
                    self.connect_time(inner, upstream);
                    continue;
                }
                _ => continue,
            }
            origins.push(StatementOrigin::Directive(inner.number));
        }
        if server.name == "emergency" {
            pairs.push(("priority".to_owned(), DraftValue::Number(1)));
        }
        let value = if pairs.len() == 1 { pairs.remove(0).1 } else { DraftValue::Table(pairs) };
        Some((value, origins))
    }

    /// Translates `ConnTO` of a server: one timeout for the whole upstream.
    fn connect_time(&mut self, directive: &Directive, upstream: &mut DraftTable) {
        let Some(seconds @ 1..=86_400) = directive.word(0).parse::<u64>().ok() else {
            let instead = "see `pool` of [upstream.NAME] in docs/configuration.md";
            return self.sheet.refuse(directive.number, "it is no time from 1 s to a day", instead);
        };
        let time: DraftValue = crate::values::duration(seconds * 1000).into();
        if upstream.inner("pool", "connect_timeout").is_some_and(|known| *known != time) {
            let why =
                "all servers of an upstream share one `connect_timeout`, and an earlier server has set it";
            return self.sheet.refuse(directive.number, why, "choose the time that suits all of them");
        }
        upstream.extend("pool", ("connect_timeout", time), from(directive));
    }

    fn session(&mut self, session: &Directive, upstream: &mut DraftTable) {
        let find = |name: &str| session.inner().iter().find(|inner| inner.name == name);
        let kind = find("type").map_or(String::new(), |inner| inner.word(0).to_ascii_uppercase());
        let id = find("id").map_or("", |inner| inner.word(0));
        let by = match kind.as_str() {
            "IP" => "client".to_owned(),
            "BASIC" => "basic-user".to_owned(),
            "COOKIE" if !id.is_empty() => format!("origin-cookie:{id}"),
            "HEADER" if !id.is_empty() => format!("header:{id}"),
            "URL" if !id.is_empty() => format!("query:{id}"),
            _ => {
                let instead = "see `by` of [upstream.NAME.sticky]";
                return self.sheet.refuse(session.number, "this kind of session is not supported", instead);
            }
        };
        let mut origins = from(session);
        origins.extend(session.inner().iter().map(|inner| StatementOrigin::Directive(inner.number)));
        upstream.extend("sticky", ("by", by.into()), origins);
        if let Some(seconds @ 1..) = find("ttl").and_then(|inner| inner.word(0).parse::<u64>().ok()) {
            let ttl = crate::values::duration(seconds.min(365 * 86_400) * 1000);
            upstream.extend("sticky", ("ttl", ttl.into()), Vec::new());
        }
    }
}
