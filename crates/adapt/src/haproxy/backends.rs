//! Backends: servers, balancing, checks, sessions, retries, and the options of their routes.

use super::acl::{Term, condition};
use super::binds::Bind;
use super::maps::PatternFiles;
use super::process::DAY;
use super::syntax::HaproxyLine;
use super::variables::HaproxyVariables;
use super::{HaproxyAdapter, values};
use crate::RemarkKind;
use crate::draft::{DraftTable, DraftValue, StatementOrigin};
use crate::rules::{Atom, HostIs, RegionOutcome};
use crate::sheet::name_of;

const HOUR: u64 = 3_600_000;
const TEMPLATE_MAX: u64 = 1000;

/// Server names, their upstream, and the origins.
type Passed = (Vec<DraftValue>, String, Vec<StatementOrigin>);

fn from(line: &HaproxyLine) -> Vec<StatementOrigin> {
    vec![StatementOrigin::Directive(line.number)]
}

impl<'s> HaproxyAdapter<'s> {
    /// Sets a route's options for a backend.
    pub(super) fn serve(&mut self, front: usize, back: usize, made: &mut RegionOutcome) {
        match self.upstream(back) {
            Some(name) => made.options.set("upstream", name, Vec::new()),
            None => {
                let why = StatementOrigin::Default("its backend has no server");
                return made.options.set("respond", crate::rules::answer(503, None), vec![why]);
            }
        }
        for (name, keys, most) in [
            ("server", &["upstream_first_byte", "upstream_body"][..], DAY),
            ("tunnel", &["tunnel_idle"], 365 * DAY),
        ] {
            let Some(line) = self.one(back, &["timeout", name]).filter(|line| !self.is_default(line)) else {
                continue;
            };
            match values::time(line.word(2), most) {
                Some(time) => {
                    for key in keys {
                        made.options.extend("timeouts", (key, time.as_str().into()), from(line));
                    }
                }
                None => self.unread(line),
            }
        }
        for place in [front, back] {
            if let Some(line) = self.one(place, &["option", "http-buffer-request"]) {
                made.options.set("request_buffering", true, from(line));
            }
            self.compression(place, made);
            self.error_pages(place, made);
            self.forwarded(place, made);
        }
    }

    /// Translates `option forwardfor` with another field.
    fn forwarded(&mut self, place: usize, made: &mut RegionOutcome) {
        let Some(line) = self.one(place, &["option", "forwardfor"]) else { return };
        match line.behind("header") {
            Some(field) if super::actions::is_field_name(field) => {
                made.options.field("request_headers", "set", field, "$client_address", from(line));
            }
            _ => {
                let why =
                    "servers always get X-Forwarded-For and Forwarded; these fields from clients are dropped";
                self.sheet.note(line.number, RemarkKind::NeedsNothing, why, "");
            }
        }
    }

    fn compression(&mut self, place: usize, made: &mut RegionOutcome) {
        let Some(algorithms) = self
            .one(place, &["compression", "algo"])
            .or_else(|| self.one(place, &["compression", "algo-res"]))
        else {
            return;
        };
        if !algorithms.words.iter().any(|word| word == "gzip") {
            let why = "deflate and similar codings are not offered";
            return self.sheet.refuse(algorithms.number, why, "write `compress = { codings = [\"gzip\"] }`");
        }
        let mut origins = from(algorithms);
        let mut pairs = vec![("codings".to_owned(), DraftValue::List(vec!["gzip".into()]))];
        let types = self
            .one(place, &["compression", "type"])
            .or_else(|| self.one(place, &["compression", "type-res"]));
        if let Some(types) = types {
            let mut list: Vec<String> = Vec::new();
            for kind in types.words.iter().skip(2) {
                // HAProxy compares the beginning of a type.
                let kind = if kind.ends_with('/') { format!("{kind}*") } else { kind.clone() };
                if kind.contains('/') && !list.contains(&kind) {
                    list.push(kind);
                }
            }
            pairs.push(("types".to_owned(), list.into()));
            origins.extend(from(types));
        }
        pairs.push(("min_size".to_owned(), DraftValue::Number(1)));
        made.options.set("compress", DraftValue::Table(pairs), origins);
        if let Some(offload) = self.one(place, &["compression", "offload"]) {
            let why = "responses that servers have compressed are forwarded unchanged";
            self.sheet.differs(
                offload.number,
                why,
                "`request_headers = { remove = \"Accept-Encoding\" }` makes servers send uncompressed \
                 responses",
            );
        }
    }

    fn error_pages(&mut self, place: usize, made: &mut RegionOutcome) {
        for line in self.all(place, "errorfile") {
            // Debian's error files repeat the default messages.
            if line.word(2).starts_with("/etc/haproxy/errors/") {
                self.sheet.needless(line.number, "errors have a short built-in text");
                continue;
            }
            let instead = "write its body into a file, and name that: `error_pages = { 503 = \"FILE\" }`";
            self.sheet.refuse(line.number, "the file has a head, and an error page is a body here", instead);
        }
        for line in self.all(place, "http-error") {
            let (Some(status), Some(file)) = (line.behind("status"), line.behind("file")) else {
                let instead = "write `error_pages = { 503 = \"FILE\" }`";
                self.sheet.refuse(line.number, "an error page is a file here", instead);
                continue;
            };
            if status.parse::<u16>().is_ok_and(|status| (400..600).contains(&status)) {
                made.options.extend("error_pages", (status, file.into()), from(line));
            } else {
                self.unread(line);
            }
        }
    }

    /// Returns the upstream of a backend, creating it if necessary; `None` without servers.
    fn upstream(&mut self, place: usize) -> Option<String> {
        if let Some(name) = self.upstreams.get(&place) {
            return Some(name.clone());
        }
        let mut made = DraftTable::new("", from(&self.sections[place].head));
        let scheme = if self.is_tcp(place) { "tcp" } else { "http" };
        self.servers(place, scheme, &mut made);
        made.get("servers")?;
        self.balance(place, &mut made);
        self.checks(place, &mut made);
        self.retries(place, &mut made);
        self.session(place, &mut made);
        self.queue(place, &mut made);
        self.connect_time(place, &mut made);
        let name = self.sheet.upstream(&name_of(self.sections[place].name()), made);
        self.upstreams.insert(place, name.clone());
        Some(name)
    }

    fn servers(&mut self, place: usize, scheme: &str, made: &mut DraftTable) {
        let section = &self.sections[place];
        for line in &section.lines {
            match line.word(0) {
                "server" => self.server(place, line, (line.word(1), line.word(2)), scheme, made),
                "server-template" => {
                    let (_, last) = line.word(2).split_once('-').unwrap_or(("1", line.word(2)));
                    let count = last.parse::<u64>().unwrap_or(0).min(TEMPLATE_MAX);
                    let why = "each address of a name is a server, and servers follow the DNS records";
                    self.sheet.differs(line.number, why, "");
                    if count > 0 {
                        self.server(place, line, ("", line.word(3)), scheme, made);
                    }
                }
                _ => {}
            }
        }
    }

    fn server(
        &mut self,
        place: usize,
        line: &'s HaproxyLine,
        (name, address): (&str, &str),
        scheme: &str,
        made: &mut DraftTable,
    ) {
        let defaults = self.all(place, "default-server");
        let words: Vec<&str> = line.words.iter().skip(3).map(String::as_str).collect();
        let default_words: Vec<&str> =
            defaults.iter().flat_map(|line| line.words.iter().skip(1)).map(String::as_str).collect();
        let has = |word: &str| is_said(word, &words, &default_words);
        let behind = |name: &str| said_behind(name, &words, &default_words);
        let mut origins = from(line);
        origins.extend(defaults.iter().map(|line| StatementOrigin::Directive(line.number)));
        let scheme = if has("ssl") && scheme == "http" { "https" } else { scheme };
        let Some(url) = url(scheme, address) else {
            return self.sheet.refuse(
                line.number,
                "it is not the address of a server",
                "name the server in `servers`",
            );
        };
        let mut pairs = vec![("url".to_owned(), DraftValue::from(url))];
        let is_name = !name.is_empty()
            && name.len() <= 64
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte));
        if is_name {
            pairs.push(("name".to_owned(), name.into()));
        }
        let number = |name: &str| behind(name).and_then(|number| number.parse::<u64>().ok());
        if let Some(weight) = number("weight") {
            pairs.push(("weight".to_owned(), DraftValue::Number(weight.min(1000))));
        }
        if has("backup") {
            pairs.push(("priority".to_owned(), DraftValue::Number(1)));
        }
        if has("disabled") {
            pairs.push(("down".to_owned(), true.into()));
        }
        if let Some(most) = number("maxconn").filter(|most| *most > 0) {
            pairs.push(("max_requests".to_owned(), DraftValue::Number(most.min(1_000_000))));
        }
        let value = if pairs.len() == 1 { pairs.remove(0).1 } else { DraftValue::Table(pairs) };
        made.push("servers", value, origins.clone());
        self.way(line, scheme, &words, &default_words, made);
    }

    /// Sets how a server is reached: protocol and TLS.
    fn way(
        &mut self,
        line: &'s HaproxyLine,
        scheme: &str,
        words: &[&str],
        default_words: &[&str],
        made: &mut DraftTable,
    ) {
        let has = |word: &str| is_said(word, words, default_words);
        let behind = |name: &str| said_behind(name, words, default_words);
        if let Some(time) = behind("slowstart").and_then(|time| values::time(&time, HOUR)) {
            made.set("slow_start", time, from(line));
        }
        if has("send-proxy") || has("send-proxy-v2") || has("send-proxy-v2-ssl") {
            let version = if has("send-proxy") { "v1" } else { "v2" };
            made.set("send_proxy_protocol", version, from(line));
        }
        if behind("proto").as_deref() == Some("h2")
            || behind("alpn").is_some_and(|list| list.split(',').next() == Some("h2"))
        {
            made.set("protocol", "h2", from(line));
        }
        if scheme == "https" {
            self.server_tls(line, &behind, made);
        }
        for word in words.iter().chain(default_words) {
            if let Some((_, why)) = UNKNOWN.iter().find(|(name, _)| name == word) {
                self.sheet.differs(line.number, &format!("{word}: {why}"), "");
            }
        }
    }

    fn server_tls(
        &mut self,
        line: &'s HaproxyLine,
        behind: &dyn Fn(&str) -> Option<String>,
        made: &mut DraftTable,
    ) {
        match behind("verify").as_deref() {
            Some("none") => made.extend("tls", ("verify", false.into()), from(line)),
            _ if behind("ca-file").is_none() => {
                let why = "the certificate is verified, with the CA certificates of the system";
                self.sheet.differs(line.number, why, "name its `ca` in `tls` of the upstream");
            }
            _ => {}
        }
        if let Some(file) = behind("ca-file").filter(|file| !file.starts_with('@')) {
            let (file, base) = self.based("ca-base", &file);
            let mut origins = from(line);
            origins.extend(base.map(StatementOrigin::Directive));
            made.extend("tls", ("ca", file.into()), origins);
        }
        if let Some(file) = behind("crt") {
            let (file, _) = self.based("crt-base", &file);
            made.extend("tls", ("cert", file.as_str().into()), Vec::new());
            made.extend("tls", ("key", file.into()), Vec::new());
        }
        let name =
            behind("sni").and_then(|name| Some(name.strip_prefix("str(")?.trim_end_matches(')').to_owned()));
        if let Some(name) = name.or_else(|| behind("verifyhost")) {
            made.extend("tls", ("name", name.into()), Vec::new());
        } else if let Some(sni) = behind("sni") {
            let why = format!("{sni}: the name of the server is sent and verified, not the client's");
            self.sheet.differs(line.number, &why, "write `name` in `tls` of the upstream");
        }
    }

    fn balance(&mut self, place: usize, made: &mut DraftTable) {
        let Some(line) = self.one(place, &["balance"]) else { return };
        let (name, argument) = line
            .word(1)
            .split_once('(')
            .map_or((line.word(1), ""), |(name, rest)| (name, rest.trim_end_matches(')')));
        let key = match name {
            "roundrobin" | "static-rr" => return made.set("balance", "round-robin", from(line)),
            "leastconn" => return made.set("balance", "least-connections", from(line)),
            "random" => return made.set("balance", "two-choices", from(line)),
            "source" => return made.set("balance", "client-address", from(line)),
            "uri" => "path".to_owned(),
            "url_param" => format!("query:{}", line.word(2)),
            "hdr" if !argument.is_empty() => {
                if argument.eq_ignore_ascii_case("host") {
                    "host".to_owned()
                } else {
                    format!("header:{argument}")
                }
            }
            "hash" => "client".to_owned(),
            _ => {
                let instead = "choose a `balance` of docs/configuration.md; servers with a `priority` are used in its order";
                return self.sheet.refuse(line.number, "servers cannot be chosen in this way", instead);
            }
        };
        made.set("balance", "consistent-hash", from(line));
        made.set("hash_key", key, from(line));
        self.sheet.differs(
            line.number,
            "keys are spread by a consistent hash: to other servers than HAProxy",
            "",
        );
        if let Some(hash) = self.one(place, &["hash-type"]) {
            self.sheet.needless(hash.number, "the hash is consistent");
        }
    }

    fn checks(&mut self, place: usize, made: &mut DraftTable) {
        let words = |line: &HaproxyLine| line.words.iter().any(|word| word == "check");
        let section = &self.sections[place];
        let mut servers = section.lines.iter().filter(|line| line.word(0).starts_with("server"));
        let defaults = self.all(place, "default-server");
        let checked =
            servers.find(|line| words(line)).or_else(|| defaults.iter().copied().find(|line| words(line)));
        let Some(checked) = checked else { return };
        let http = self.one(place, &["option", "httpchk"]);
        let kind = if http.is_some() { "http" } else { "tcp" };
        made.extend("check", ("type", kind.into()), from(checked));
        let all: Vec<&'s HaproxyLine> = std::iter::once(checked).chain(defaults).collect();
        let value = |name: &str| all.iter().find_map(|line| line.behind(name));
        for (name, key) in [("inter", "interval"), ("fastinter", "interval_in_doubt")] {
            if let Some(time) = value(name).and_then(values::milliseconds) {
                made.extend("check", (key, crate::values::duration(time.clamp(10, HOUR)).into()), Vec::new());
            }
        }
        for name in ["rise", "fall"] {
            if let Some(count @ 1..=1000) = value(name).and_then(|count| count.parse::<u64>().ok()) {
                made.extend("check", (name, DraftValue::Number(count)), Vec::new());
            }
        }
        if let Some(port) =
            value("port").and_then(|port| port.parse::<u64>().ok()).filter(|port| (1..=65_535).contains(port))
        {
            made.extend("check", ("port", DraftValue::Number(port)), Vec::new());
        }
        if let Some(line) = self.one(place, &["timeout", "check"])
            && let Some(time) = values::milliseconds(line.word(2))
        {
            made.extend(
                "check",
                ("timeout", crate::values::duration(time.clamp(10, HOUR)).into()),
                from(line),
            );
        }
        if let Some(http) = http {
            self.http_check(place, http, made);
        }
    }

    fn http_check(&mut self, place: usize, http: &'s HaproxyLine, made: &mut DraftTable) {
        // `option httpchk URI`, `option httpchk METHOD URI VERSION`
        let (mut method, mut path) = match http.words.len() {
            0..=2 => ("OPTIONS", None),
            3 => ("OPTIONS", Some(http.word(2))),
            _ => (http.word(2), Some(http.word(3))),
        };
        made.cite("check", StatementOrigin::Directive(http.number));
        if let Some(host) =
            http.words.iter().find_map(|word| word.split_once("Host:").map(|(_, host)| host.trim()))
        {
            let host = host.split(['\\', '\r']).next().unwrap_or_default();
            made.extend("check", ("host", host.into()), Vec::new());
        }
        let mut statuses = DraftValue::List(vec!["2xx".into(), "3xx".into()]);
        for line in self.all(place, "http-check") {
            match line.word(1) {
                "send" => {
                    method = line.behind("meth").unwrap_or(method);
                    path = line.behind("uri").or(path);
                    made.cite("check", StatementOrigin::Directive(line.number));
                    let host = line
                        .words
                        .iter()
                        .position(|word| word == "hdr")
                        .filter(|at| line.word(at + 1).eq_ignore_ascii_case("host"));
                    if let Some(at) = host {
                        made.extend("check", ("host", line.word(at + 2).into()), Vec::new());
                    }
                }
                "expect" => match (line.word(2), line.word(3)) {
                    ("status", list)
                        if list.split(',').all(|one| one.parse::<u16>().is_ok() || is_range(one)) =>
                    {
                        let one = |status: &str| {
                            status
                                .parse::<u64>()
                                .map_or_else(|_| DraftValue::from(status), DraftValue::Number)
                        };
                        statuses = DraftValue::List(list.split(',').map(one).collect());
                        made.cite("check", StatementOrigin::Directive(line.number));
                    }
                    ("string", text) => made.extend("check", ("body", text.into()), from(line)),
                    _ => self.sheet.refuse(
                        line.number,
                        "a check cannot judge responses in this way",
                        "write `status`, `headers` or `body` of `check`",
                    ),
                },
                _ => self.sheet.refuse(
                    line.number,
                    "a check is one request",
                    "write `path` and `host` of `check`",
                ),
            }
        }
        if method != "GET" {
            self.sheet.differs(http.number, &format!("servers are asked with GET, not {method}"), "");
        }
        made.extend(
            "check",
            ("path", path.filter(|path| path.starts_with('/')).unwrap_or("/").into()),
            Vec::new(),
        );
        made.extend("check", ("status", statuses), Vec::new());
    }

    fn retries(&mut self, place: usize, made: &mut DraftTable) {
        if let Some(line) = self.one(place, &["retries"]) {
            match line.word(1).parse::<u64>() {
                Ok(count) => {
                    made.extend(
                        "retry",
                        ("attempts", DraftValue::Number(count.saturating_add(1).min(16))),
                        from(line),
                    );
                }
                Err(_) => self.unread(line),
            }
        }
        let Some(line) = self.one(place, &["retry-on"]) else { return };
        let mut on: Vec<DraftValue> = Vec::new();
        for word in line.words.iter().skip(1) {
            let more: Vec<DraftValue> = match word.as_str() {
                "none" => Vec::new(),
                "conn-failure" => vec!["connect".into()],
                "empty-response" | "junk-response" => vec!["reset".into()],
                "response-timeout" => vec!["timeout".into()],
                "0rtt-rejected" => Vec::new(),
                "all-retryable-errors" => {
                    vec![
                        "connect".into(),
                        "reset".into(),
                        "timeout".into(),
                        DraftValue::Number(500),
                        DraftValue::Number(502),
                        DraftValue::Number(503),
                        DraftValue::Number(504),
                    ]
                }
                status => match status.parse::<u64>() {
                    Ok(status @ 400..=599) => vec![DraftValue::Number(status)],
                    _ => return self.unread(line),
                },
            };
            on.extend(more);
        }
        if !on.is_empty() {
            made.extend("retry", ("on", DraftValue::List(on)), from(line));
        }
    }

    /// Translates `cookie`: sticky sessions.
    fn session(&mut self, place: usize, made: &mut DraftTable) {
        self.recognized(place, made);
        // Balancing by address already keeps sessions.
        if made.get("sticky").is_some() && made.get("balance") == Some(&"client-address".into()) {
            made.set("balance", "round-robin", self.one(place, &["balance"]).map(from).unwrap_or_default());
            if let Some(line) = self.one(place, &["balance"]) {
                self.sheet.differs(line.number, "clients without a session are spread in turn", "");
            }
        }
    }

    fn recognized(&mut self, place: usize, made: &mut DraftTable) {
        if let Some(line) = self.one(place, &["cookie"]) {
            let mut pairs =
                vec![("by".to_owned(), DraftValue::from("cookie")), ("name".to_owned(), line.word(1).into())];
            if line.has("insert") {
                if let Some(domain) = line.behind("domain") {
                    pairs.push(("domain".to_owned(), domain.trim_start_matches('.').into()));
                }
                if line.has("secure") {
                    pairs.push(("secure".to_owned(), true.into()));
                }
                if line.has("nocache") {
                    pairs.push(("private".to_owned(), true.into()));
                }
                made.set("sticky", DraftValue::Table(pairs), from(line));
                let why = "the cookie is signed, and has another value: sessions start again";
                self.sheet.differs(line.number, why, "");
            } else {
                let name = format!("origin-cookie:{}", line.word(1));
                made.set("sticky", DraftValue::Table(vec![("by".to_owned(), name.into())]), from(line));
                let why = "the cookie of the server is remembered, and not changed";
                self.sheet.differs(line.number, why, "");
            }
        }
        if let Some(stick) =
            self.one(place, &["stick", "on"]).or_else(|| self.one(place, &["stick", "store-request"]))
        {
            if stick.word(2) != "src" || made.get("sticky").is_some() {
                let instead = "see `sticky` of [upstream.NAME]";
                return self.sheet.refuse(stick.number, "sessions cannot be recognized in this way", instead);
            }
            let mut origins = from(stick);
            let table = self.one(place, &["stick-table"]);
            let mut pairs = vec![("by".to_owned(), DraftValue::from("client"))];
            if let Some(time) = table.and_then(|table| values::milliseconds(table.behind("expire")?)) {
                pairs.push(("ttl".to_owned(), crate::values::duration(time.clamp(1000, 365 * DAY)).into()));
            }
            origins.extend(table.map(|table| StatementOrigin::Directive(table.number)));
            made.set("sticky", DraftValue::Table(pairs), origins);
        }
    }

    fn queue(&mut self, place: usize, made: &mut DraftTable) {
        if let Some(line) = self.one(place, &["timeout", "queue"]) {
            match values::time(line.word(2), DAY) {
                Some(time) => made.extend("queue", ("timeout", time.into()), from(line)),
                None => self.unread(line),
            }
        }
    }

    /// Translates `timeout connect`. It becomes global if `defaults` set it and the global value is not another one.
    fn connect_time(&mut self, place: usize, made: &mut DraftTable) {
        const ALL: (&str, &str) = ("[timeouts]", "upstream_connect");
        let Some(line) = self.one(place, &["timeout", "connect"]) else { return };
        let Some(time) = values::time(line.word(2), DAY) else { return self.unread(line) };
        let is_default = self.is_default(line);
        let of_all = self.sheet.table(ALL.0).get(ALL.1);
        if is_default && of_all.is_none_or(|known| *known == time.as_str().into()) {
            self.sheet.once(ALL.0, ALL.1, time, line.number);
        } else {
            made.extend("pool", ("connect_timeout", time.into()), from(line));
        }
    }

    /// Returns server names (SNI) with the upstream for their connections.
    fn names(&mut self, place: usize, files: &mut PatternFiles<'_>) -> Vec<Passed> {
        let mut names: Vec<Passed> = Vec::new();
        let section = &self.sections[place];
        let acls = self.acls[place].clone();
        for line in section.lines.iter().filter(|line| line.word(0) == "use_backend") {
            let variables = HaproxyVariables::default();
            let mut reader = self.reader(line, files, &variables);
            let (condition, _) = condition(line, &acls, &mut reader);
            let literals: Vec<_> =
                condition.iter().flat_map(|condition| condition.alternatives.iter()).collect();
            let mut hosts = Vec::new();
            let mut origins = from(line);
            let is_unless = condition.as_ref().is_some_and(|condition| condition.is_unless);
            let mut is_plain = !literals.is_empty() && !is_unless;
            for literal in &literals {
                is_plain &= literal.len() == 1 && !literal[0].negated;
                for criterion in literal.iter().flat_map(|literal| &literal.any) {
                    origins.push(StatementOrigin::Directive(criterion.number));
                    let Term::Any(atoms) = &criterion.term else {
                        is_plain = false;
                        continue;
                    };
                    for atom in atoms {
                        match atom {
                            Atom::Host(host @ (HostIs::Exact(_) | HostIs::Below(_))) => {
                                hosts.push(DraftValue::from(host.written()));
                            }
                            _ => is_plain = false,
                        }
                    }
                }
            }
            let upstream = self.backend(line.word(1)).and_then(|backend| self.upstream(backend));
            match upstream.filter(|_| is_plain && !hosts.is_empty()) {
                Some(upstream) => names.push((hosts, upstream, origins)),
                None => {
                    let instead =
                        "write `passthrough = [{ names = [\"…\"], upstream = \"NAME\" }]` in [[listen]]";
                    self.sheet.refuse(
                        line.number,
                        "connections are distinguished only by the server name that clients send (SNI)",
                        instead,
                    );
                }
            }
        }
        names
    }

    /// Translates a layer 4 frontend: to one backend, or by server name (SNI).
    pub(super) fn pass_bytes(&mut self, place: usize, binds: &[Bind], files: &mut PatternFiles<'_>) {
        let section = &self.sections[place];
        let names = self.names(place, files);
        let default = self.one(place, &["default_backend"]);
        let back = default.map_or(Some(place), |line| self.backend(line.word(1)));
        let upstream = back.and_then(|back| self.upstream(back));
        for bind in binds {
            let address = DraftValue::from(bind.address.as_str());
            let Some(listener) =
                self.sheet.listeners.iter_mut().find(|table| table.get("address") == Some(&address))
            else {
                continue;
            };
            for (hosts, upstream, origins) in &names {
                let pair = [
                    ("names".to_owned(), DraftValue::List(hosts.clone())),
                    ("upstream".to_owned(), upstream.as_str().into()),
                ];
                listener.push("passthrough", DraftValue::Table(pair.into()), origins.clone());
            }
            let mut origins = from(&section.head);
            origins.extend(default.map(|line| StatementOrigin::Directive(line.number)));
            if let Some(upstream) = &upstream {
                listener.set("tcp", upstream.as_str(), origins);
            }
        }
        if upstream.is_none() && names.is_empty() {
            self.sheet.refuse(
                section.head.number,
                "it has no server",
                "name an upstream as `tcp` of [[listen]]",
            );
        } else {
            let why = "its parts are in [[listen]] and [upstream.NAME]";
            self.sheet.say_if_unsaid(section.head.number, RemarkKind::NeedsNothing, why);
        }
    }

    /// Handles backends without a route.
    pub(super) fn left_backends(&mut self) {
        for (place, section) in self.sections.iter().enumerate() {
            if section.kind() != "backend" || self.upstreams.contains_key(&place) {
                continue;
            }
            if self.upstream(place).is_some() {
                let instead = "have a [[route]] lead to it, or leave it out";
                self.sheet.differs(section.head.number, "no route leads to it", instead);
            }
        }
    }
}

/// Unsupported words of servers, and the reasons.
const UNKNOWN: [(&str, &str); 8] = [
    ("agent-check", "there are no agents; `vanward weigh` and `drain` change a server while it runs"),
    ("observe", "ejection judges every response (`eject`)"),
    ("on-marked-down", "requests under way end as they are"),
    ("track", "each server is checked separately"),
    ("source", "the kernel chooses the address"),
    ("redir", "requests are not redirected to servers"),
    ("check-ssl", "a check reaches servers in the same way as requests"),
    ("check-send-proxy", "a check reaches servers in the same way as requests"),
];

/// Whether a server has a word, or inherits it from `default-server` and does not negate it.
fn is_said(word: &str, words: &[&str], default_words: &[&str]) -> bool {
    let refused = format!("no-{word}");
    words.contains(&word) || (default_words.contains(&word) && !words.contains(&refused.as_str()))
}

/// Returns the word after another one, from a server or `default-server`.
fn said_behind(name: &str, words: &[&str], default_words: &[&str]) -> Option<String> {
    let find = |list: &[&str]| {
        let at = list.iter().position(|word| *word == name)?;
        list.get(at + 1).map(|word| (*word).to_owned())
    };
    find(words).or_else(|| find(default_words))
}

fn is_range(text: &str) -> bool {
    text.split_once('-')
        .is_some_and(|(first, last)| first.parse::<u16>().is_ok() && last.parse::<u16>().is_ok())
}

fn url(scheme: &str, address: &str) -> Option<String> {
    let address =
        ["ipv4@", "ipv6@", "unix@"].iter().fold(address, |text, begin| text.trim_start_matches(begin));
    if address.starts_with('/') {
        return (scheme != "https").then(|| format!("http+unix:{address}"));
    }
    let (host, port) = match address.rsplit_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok_and(|port| port > 0) => (host, Some(port)),
        Some(_) => return None,
        None => (address, None),
    };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let host = if bare.contains(':') { format!("[{bare}]") } else { bare.to_owned() };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_[]:".contains(&byte);
    if bare.is_empty() || !host.bytes().all(is_plain) {
        return None;
    }
    Some(match port {
        Some(port) => format!("{scheme}://{host}:{port}"),
        None => format!("{scheme}://{host}"),
    })
}
