//! Directives for servers and files.

use super::directives::{CaddyDraft, TriedFiles};
use super::php::CaddyApplication;
use super::texts::CaddyText;
use super::{CaddyAdapter, from, milliseconds};
use crate::draft::{DraftTable, DraftValue, StatementOrigin};
use crate::environment;
use crate::rules::{self, literal};
use crate::sheet::name_of;
use crate::source::Directive;
use crate::values::duration;

const HOUR: u64 = 3_600_000;
const DAY: u64 = 24 * HOUR;

impl<'s> CaddyAdapter<'s> {
    pub(super) fn pass(&mut self, directive: &'s Directive, words: &[String], made: &mut CaddyDraft<'s>) {
        let mut table = DraftTable::new("", Vec::new());
        // Placeholders with one text are written out.
        let written = |word: &String| {
            let text = CaddyText::read(word, &made.texts).ok().filter(|_| word.contains('{'));
            text.and_then(|text| text.only()).unwrap_or_else(|| word.clone())
        };
        let mut servers: Vec<(String, Vec<StatementOrigin>)> =
            words.iter().map(|word| (written(word), from(directive))).collect();
        for to in directive.inner().iter().filter(|inner| inner.name == "to") {
            servers.extend(to.words.iter().map(|word| (written(word), from(to))));
        }
        let transport = directive.inner().iter().find(|inner| inner.name == "transport");
        let has_tls = transport
            .is_some_and(|transport| transport.inner().iter().any(|inner| inner.name.starts_with("tls")));
        if let [(word, _)] = servers.as_slice()
            && let Some(value) = self.named_upstream(directive, word, has_tls, made)
        {
            return self.passed(directive, value, made);
        }
        let mut base = String::new();
        let is_first =
            directive.inner().iter().any(|inner| inner.name == "lb_policy" && inner.word(0) == "first");
        for (index, (word, origins)) in servers.into_iter().enumerate() {
            let Some((url, protocol)) = url_of(&word, has_tls) else {
                self.sheet.refuse(
                    directive.number,
                    &format!("{} is not the address of a server", crate::environment::written(&word)),
                    "name the server in `servers`",
                );
                continue;
            };
            if base.is_empty() {
                let url = environment::assumed(&url).unwrap_or_else(|| "server".to_owned());
                base = name_of(url.split_once("://").map_or(url.as_str(), |(_, host)| host));
            }
            let value = match is_first {
                true => {
                    let pairs = [
                        ("url".to_owned(), url.into()),
                        ("priority".to_owned(), DraftValue::Number(index as u64)),
                    ];
                    DraftValue::Table(pairs.into())
                }
                false => url.into(),
            };
            table.push("servers", value, origins.clone());
            if protocol == "h2" {
                table.set("protocol", "h2", origins);
            }
        }
        let why = StatementOrigin::Default("the default of Caddy's lb_policy is random");
        for inner in directive.inner() {
            self.server_option(inner, &mut table, made);
        }
        if table.get("servers").is_none() {
            let answer = rules::answer(503, None);
            return self.done(directive, answer, made);
        }
        if table.get("balance").is_none() && words.len() > 1 {
            table.set("balance", "two-choices", vec![why]);
        }
        let name = self.sheet.upstream(&base, table);
        self.passed(directive, name, made);
    }

    /// Creates an upstream for each address that a text with placeholders can be. Returns the value that names them;
    /// `None` if the text has none, or any address.
    fn named_upstream(
        &mut self,
        directive: &'s Directive,
        word: &str,
        has_tls: bool,
        made: &mut CaddyDraft<'s>,
    ) -> Option<String> {
        let text = CaddyText::read(word, &made.texts).ok().filter(|_| word.contains('{'))?;
        let mut table = DraftTable::new("", from(directive));
        for inner in directive.inner() {
            self.server_option(inner, &mut table, made);
        }
        let mut upstreams = std::mem::take(&mut self.sheet.upstreams);
        let mut change = |address: &str| {
            let (url, protocol) =
                url(address, has_tls).ok_or_else(|| format!("{address} is not the address of a server"))?;
            let mut own = table.clone();
            own.set("servers", vec![url.clone()], from(directive));
            if protocol == "h2" {
                own.set("protocol", "h2", Vec::new());
            }
            let base = name_of(url.split_once("://").map_or(url.as_str(), |(_, host)| host));
            Ok(crate::sheet::upstream(&mut upstreams, &base, own))
        };
        let definitions = &mut self.sheet.definitions;
        let changed = text.changed("backend", &mut change, definitions);
        self.sheet.upstreams = upstreams;
        let value = changed.and_then(|value| {
            let value = value.ok_or_else(|| "it can be any address".to_owned())?;
            self.sheet.definitions.value("upstream_name", &value, text.from(directive))
        });
        match value {
            Ok(value) => Some(format!("${{{value}}}")),
            Err(why) => {
                self.sheet.refuse(
                    directive.number,
                    &why,
                    "write a map of the names of upstreams: docs/maps.md",
                );
                None
            }
        }
    }

    fn passed(&mut self, directive: &'s Directive, upstream: String, made: &mut CaddyDraft<'s>) {
        for (number, names) in std::mem::take(&mut made.early_fields) {
            if !names.iter().all(|name| self.joined_with_server(number, name, made)) {
                let why = "a field that the server sends, too, is replaced; Caddy sends both";
                self.sheet.differs(number, why, "write it as `add` of `response_headers`");
            }
        }
        match made.files_first.take() {
            Some(files) => self.files_before(files, directive, upstream, made),
            None => made.outcome.options.set("upstream", upstream, from(directive)),
        }
        made.asks();
    }

    /// Puts existing files before a server.
    fn files_before(
        &mut self,
        [handle, server]: [&'s Directive; 2],
        directive: &'s Directive,
        upstream: String,
        made: &mut CaddyDraft<'s>,
    ) {
        let path = made.root.map(|root| (root, root.words.last().map_or("", String::as_str)));
        let root =
            path.and_then(|(root, path)| self.folder(server, path, true, made).map(|path| (root, path)));
        let Some((root, path)) = root.filter(|_| !upstream.contains("${")) else {
            let why = "its folder or the server behind it is not a single one";
            self.sheet.refuse(handle.number, why, "write `files` with `else`: docs/files.md");
            return made.outcome.options.set("upstream", upstream, from(directive));
        };
        let origins = [handle, server, root, directive].into_iter().flat_map(from).collect();
        let pairs = vec![
            ("root".to_owned(), path.into()),
            ("try".to_owned(), vec!["$path".to_owned()].into()),
            ("symlinks".to_owned(), true.into()),
            ("else".to_owned(), DraftValue::Table(vec![("upstream".to_owned(), upstream.into())])),
        ];
        made.outcome.options.set("files", DraftValue::Table(pairs), origins);
        let why = "other methods than GET and HEAD, and directories, go to the server";
        self.sheet.differs(handle.number, why, "");
    }

    /// Writes a field in front of what the server sends in it, as Caddy does. Returns whether that is possible: the field is
    /// a list that servers often send, and its text a constant.
    fn joined_with_server(&mut self, number: usize, name: &str, made: &mut CaddyDraft<'s>) -> bool {
        const LISTS: [&str; 3] = ["cache-control", "link", "vary"];
        let lower = name.to_ascii_lowercase();
        let Some(DraftValue::Table(fields)) = made.outcome.options.inner("response_headers", "set") else {
            return false;
        };
        let known = fields.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        let Some((_, DraftValue::Text(text))) = known.filter(|_| LISTS.contains(&lower.as_str())) else {
            return false;
        };
        if text.contains('$') {
            return false;
        }
        let of_server = format!("response.headers[{}]", literal(&lower));
        let value = format!("{} + (has({of_server}) ? \", \" + {of_server} : \"\")", literal(text));
        let origins = vec![StatementOrigin::Directive(number)];
        let Ok(value) = self.sheet.definitions.value(&lower.replace('-', "_"), &value, origins.clone())
        else {
            return false;
        };
        let options = &mut made.outcome.options;
        options.field("response_headers", "set", name, &format!("${{{value}}}"), origins);
        true
    }

    pub(super) fn server_option(
        &mut self,
        inner: &'s Directive,
        table: &mut DraftTable,
        made: &mut CaddyDraft<'s>,
    ) {
        let origins = from(inner);
        let word = inner.word(0);
        let time =
            |most: u64| milliseconds(word).map(|time| DraftValue::from(duration(time.clamp(10, most))));
        match inner.name.as_str() {
            "to" => {}
            "lb_policy" => self.policy(inner, table),
            "lb_retries" => match word.parse::<u64>() {
                Ok(count) => table.extend(
                    "retry",
                    ("attempts", DraftValue::Number(count.saturating_add(1).min(16))),
                    origins,
                ),
                Err(_) => self.unread(inner),
            },
            "lb_try_duration" => match time(HOUR) {
                Some(time) => table.extend("retry", ("within", time), origins),
                None => self.unread(inner),
            },
            name if name.starts_with("health_") => self.health(inner, table),
            "max_fails" => match word.parse::<u64>() {
                Ok(count @ 1..=1_000_000) => {
                    table.extend("eject", ("failures_in_a_row", DraftValue::Number(count)), origins);
                }
                _ => self.unread(inner),
            },
            "fail_duration" => match time(HOUR) {
                Some(time) => table.extend("eject", ("base", time), origins),
                None => self.unread(inner),
            },
            "header_up" if word.eq_ignore_ascii_case("host") && inner.word(1).contains("upstream") => {
                table.set("host", "server", origins);
            }
            "header_up" => self.up(inner, made),
            "header_down" => self.field(inner, &inner.words, "response_headers", made),
            "transport" => self.transport(inner, table, made),
            "flush_interval" | "request_buffers" | "response_buffers" | "stream_timeout"
            | "stream_close_delay" | "trusted_proxies" => {
                self.sheet.needless(inner.number, "bodies are streamed");
            }
            _ => {
                let instead = "see [upstream.NAME] in docs/configuration.md";
                self.sheet.refuse(inner.number, "an upstream has no such option", instead);
            }
        }
    }

    /// Translates `health_…`: active checks.
    fn health(&mut self, inner: &'s Directive, table: &mut DraftTable) {
        let origins = from(inner);
        let word = inner.word(0);
        let time =
            |most: u64| milliseconds(word).map(|time| DraftValue::from(duration(time.clamp(10, most))));
        match inner.name.as_str() {
            "health_uri" => {
                table.extend("check", ("type", "http".into()), origins);
                table.extend("check", ("path", word.into()), Vec::new());
                if table.inner("check", "interval").is_none() {
                    table.extend("check", ("interval", "30s".into()), Vec::new());
                }
            }
            "health_interval" | "health_timeout" => match time(HOUR) {
                Some(time) => {
                    table.extend("check", ("type", "http".into()), origins);
                    table.extend(
                        "check",
                        (if inner.name == "health_interval" { "interval" } else { "timeout" }, time),
                        Vec::new(),
                    );
                }
                None => self.unread(inner),
            },
            "health_status" => {
                let status = word.parse::<u64>().map_or_else(|_| DraftValue::from(word), DraftValue::Number);
                table.extend("check", ("status", status), origins);
            }
            "health_port" => match word.parse::<u64>() {
                Ok(port @ 1..=65_535) => table.extend("check", ("port", DraftValue::Number(port)), origins),
                _ => self.unread(inner),
            },
            _ => {
                let instead = "see `check` of [upstream.NAME] in docs/configuration.md";
                self.sheet.refuse(inner.number, "a check has no such option", instead);
            }
        }
    }

    fn up(&mut self, inner: &'s Directive, made: &mut CaddyDraft<'s>) {
        let name = inner.word(0).trim_start_matches(['+', '-', '>']).to_ascii_lowercase();
        let by_itself = ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "x-forwarded-port"];
        if by_itself.contains(&name.as_str()) && inner.word(1).contains('{') {
            return self.sheet.needless(inner.number, "servers always get this field");
        }
        self.field(inner, &inner.words, "request_headers", made);
    }

    fn policy(&mut self, inner: &'s Directive, table: &mut DraftTable) {
        let (policy, key) = match (inner.word(0), inner.word(1)) {
            ("round_robin" | "weighted_round_robin", _) => ("round-robin", None),
            ("least_conn", _) => ("least-connections", None),
            ("random" | "random_choose", _) => ("two-choices", None),
            ("ip_hash" | "client_ip_hash", _) => ("client-address", None),
            ("uri_hash", _) => ("consistent-hash", Some("path".to_owned())),
            ("header", name) if !name.is_empty() => ("consistent-hash", Some(format!("header:{name}"))),
            ("query", name) if !name.is_empty() => ("consistent-hash", Some(format!("query:{name}"))),
            ("first", _) => ("round-robin", None),
            ("cookie", name) => {
                let name = if name.is_empty() { "lb" } else { name };
                let pairs = [("by".to_owned(), "cookie".into()), ("name".to_owned(), name.into())];
                table.set("sticky", DraftValue::Table(pairs.into()), from(inner));
                return self.sheet.differs(
                    inner.number,
                    "the cookie has another value: sessions start again",
                    "",
                );
            }
            _ => {
                let instead = "choose a `balance` of docs/configuration.md";
                return self.sheet.refuse(inner.number, "servers cannot be chosen in this way", instead);
            }
        };
        table.set("balance", policy, from(inner));
        if let Some(key) = key {
            table.set("hash_key", key, Vec::new());
            self.sheet.differs(
                inner.number,
                "keys are spread by a consistent hash: to other servers than Caddy",
                "",
            );
        }
        if inner.word(0) == "weighted_round_robin" {
            self.sheet.differs(
                inner.number,
                "weights belong to the servers",
                "write `{ url = \"…\", weight = 2 }` in `servers`",
            );
        }
    }

    fn transport(&mut self, transport: &'s Directive, table: &mut DraftTable, made: &mut CaddyDraft<'s>) {
        if transport.word(0) != "http" {
            return self.sheet.refuse(
                transport.number,
                "only HTTP is taken over",
                "write an upstream with `fcgi://` servers and `fastcgi`: docs/fastcgi.md",
            );
        }
        self.sheet.needless(transport.number, "its options are those of the upstream");
        for inner in transport.inner() {
            let time = milliseconds(inner.word(0)).filter(|time| *time > 0);
            let time = time.map(|time| duration(time.min(DAY)));
            match (inner.name.as_str(), time) {
                ("tls", _) => self.sheet.needless(inner.number, "servers have https:// URLs"),
                ("tls_insecure_skip_verify", _) => table.extend("tls", ("verify", false.into()), from(inner)),
                ("tls_server_name", _) => table.extend("tls", ("name", inner.word(0).into()), from(inner)),
                ("tls_trusted_ca_certs", _) => table.extend("tls", ("ca", inner.word(0).into()), from(inner)),
                ("tls_client_auth", _) => {
                    table.extend("tls", ("cert", inner.word(0).into()), from(inner));
                    table.extend("tls", ("key", inner.word(1).into()), Vec::new());
                }
                ("dial_timeout", Some(time)) => {
                    table.extend("pool", ("connect_timeout", time.into()), from(inner));
                }
                ("response_header_timeout", Some(time)) => {
                    made.outcome.options.extend(
                        "timeouts",
                        ("upstream_first_byte", time.into()),
                        from(inner),
                    );
                }
                ("read_timeout", Some(time)) => {
                    made.outcome.options.extend("timeouts", ("upstream_body", time.into()), from(inner));
                }
                ("write_timeout", Some(time)) => {
                    made.outcome.options.extend("timeouts", ("upstream_send", time.into()), from(inner));
                }
                ("keepalive", Some(time)) => table.extend("pool", ("idle_timeout", time.into()), from(inner)),
                ("versions", _) if inner.words.iter().any(|word| word == "h2c") || inner.word(0) == "2" => {
                    table.set("protocol", "h2", from(inner));
                }
                (
                    "versions"
                    | "compression"
                    | "write_buffer"
                    | "read_buffer"
                    | "max_response_header"
                    | "keepalive_idle_conns"
                    | "keepalive_idle_conns_per_host"
                    | "expect_continue_timeout"
                    | "dial_fallback_delay",
                    _,
                ) => {
                    self.sheet.needless(inner.number, "it is decided automatically");
                }
                _ => self.sheet.refuse(
                    inner.number,
                    "an upstream has no such option",
                    "see [upstream.NAME] in docs/configuration.md",
                ),
            }
        }
    }

    /// Translates `forward_auth`.
    pub(super) fn question(
        &mut self,
        step: &super::directives::DirectiveStep<'s>,
        made: &mut CaddyDraft<'s>,
    ) {
        let directive = step.directive();
        let inner = |name: &str| directive.inner().iter().find(|inner| inner.name == name);
        let server = step.words().first().and_then(|word| url(word, false));
        let (Some((server, _)), Some(uri)) = (server, inner("uri")) else {
            let instead = "write `forward_auth = { upstream = \"NAME\", path = \"/verify\" }`";
            self.sheet.refuse(directive.number, "its server or its `uri` is not understood", instead);
            return self.done(
                directive,
                rules::answer(501, Some(("not taken over from caddy\n", "text/plain"))),
                made,
            );
        };
        let base = name_of(server.split_once("://").map_or(server.as_str(), |(_, host)| host));
        let mut table = DraftTable::new("", Vec::new());
        table.set("servers", vec![server], from(directive));
        let name = self.sheet.upstream(&base, table);
        let mut origins = from(directive);
        origins.extend(from(uri));
        let mut pairs =
            vec![("upstream".to_owned(), DraftValue::from(name)), ("path".to_owned(), uri.word(0).into())];
        if let Some(copied) = inner("copy_headers") {
            let mut names = copied.words.clone();
            names.extend(copied.inner().iter().map(|inner| inner.name.clone()));
            let renamed = names.iter().any(|name| name.contains('>'))
                || copied.inner().iter().any(|inner| !inner.words.is_empty());
            if renamed {
                self.sheet.differs(copied.number, "fields keep their names", "");
            }
            let names: Vec<String> =
                names.iter().map(|name| name.split('>').next().unwrap_or_default().to_owned()).collect();
            pairs.push(("copy_headers".to_owned(), names.into()));
            origins.extend(from(copied));
            origins.extend(copied.inner().iter().map(|inner| StatementOrigin::Directive(inner.number)));
        }
        made.outcome.options.set("forward_auth", DraftValue::Table(pairs), origins);
    }

    /// Converts the folder of files. One with values is below a fixed one, and has no page for all paths.
    fn folder(
        &mut self,
        directive: &'s Directive,
        path: &str,
        has_page: bool,
        made: &CaddyDraft<'s>,
    ) -> Option<String> {
        let (fixed, rest) = path.split_once('{').map_or((path, None), |(fixed, rest)| (fixed, Some(rest)));
        let is_below = fixed.trim_end_matches('/').contains('/') && !has_page;
        let is_value = |name: &str| made.texts.contains_key(name.split('}').next().unwrap_or_default());
        let is_known = rest.is_none_or(|rest| is_below && rest.split('{').all(is_value));
        self.template(directive, path, made).ok().filter(|path| is_known && !path.is_empty())
    }

    /// Translates `file_server`.
    pub(super) fn files(&mut self, directive: &'s Directive, words: &[String], made: &mut CaddyDraft<'s>) {
        let inner = |name: &str| directive.inner().iter().find(|inner| inner.name == name);
        let own = inner("root").map(|root| (root, root.word(0)));
        let outer = made.root.map(|root| (root, root.words.last().map_or("", String::as_str)));
        let mut origins = from(directive);
        let is_listed = words.iter().any(|word| word == "browse") || inner("browse").is_some();
        let has_page = made.tried.as_ref().is_some_and(|(_, tried)| tried.page.is_some()) || is_listed;
        let root = match own.or(outer) {
            Some((root, path)) => {
                origins.extend(from(root));
                self.folder(directive, path, has_page, made)
            }
            None => Some(".".to_owned()),
        };
        let Some(root) = root else {
            self.sheet.refuse(
                directive.number,
                "a folder of files has no variables",
                "write a [[route]] for each",
            );
            return self.done(
                directive,
                rules::answer(501, Some(("not taken over from caddy\n", "text/plain"))),
                made,
            );
        };
        let mut pairs = vec![("root".to_owned(), DraftValue::from(root))];
        let index = inner("index");
        let names = index.map_or_else(
            || vec!["index.html".to_owned(), "index.txt".to_owned()],
            |index| index.words.clone(),
        );
        origins.extend(index.map(|index| StatementOrigin::Directive(index.number)));
        let application = made.application.take();
        // The application has the index of each directory.
        let names = if application.is_some() { Vec::new() } else { names };
        pairs.push(("index".to_owned(), names.into()));
        if let (Some(application), Some((tried, _))) = (&application, &made.tried) {
            let why = format!("the application {} answers if there is no file", application.upstream);
            self.sheet.refuse(tried.number, &why, "leave it out, or write a [[route]] with `files`");
        } else if let Some((directive, TriedFiles { places, page })) = &made.tried {
            pairs.extend(places.clone().map(|places| ("try".to_owned(), places.into())));
            pairs.extend(page.as_deref().map(|page| ("fallback".to_owned(), page.into())));
            origins.extend(from(directive));
        }
        if let Some(CaddyApplication { upstream, from }) = application {
            let why =
                "other methods than GET and HEAD go to the application; Caddy answers 405 if there is a file";
            self.sheet.differs(directive.number, why, "");
            let upstream = DraftValue::Table(vec![("upstream".to_owned(), upstream.into())]);
            pairs.push(("else".to_owned(), upstream));
            origins.extend(from);
        } else if is_listed {
            pairs.push(("listing".to_owned(), true.into()));
            origins.extend(inner("browse").map(|browse| StatementOrigin::Directive(browse.number)));
        }
        if let Some(packed) = inner("precompressed") {
            pairs.push(("precompressed".to_owned(), true.into()));
            origins.extend(from(packed));
        }
        pairs.push(("symlinks".to_owned(), true.into()));
        self.hidden(directive);
        made.outcome.options.set("files", DraftValue::Table(pairs), origins);
        made.asks();
    }

    fn hidden(&mut self, directive: &Directive) {
        for hidden in directive.inner().iter().filter(|inner| inner.name == "hide") {
            let why = "names that begin with a dot are never sent; others are";
            self.sheet.differs(
                hidden.number,
                why,
                "move these files elsewhere, or write a [[route]] with `respond`",
            );
        }
    }
}

/// As [`url`]. The address may be a variable of the environment, which is read when Vanward starts.
fn url_of(word: &str, has_tls: bool) -> Option<(String, &'static str)> {
    if !environment::is_in(word) {
        return url(word, has_tls);
    }
    let assumed = environment::assumed(word)?;
    let (made, protocol) = url(&assumed, has_tls)?;
    let (scheme, rest) = made.split_once("://")?;
    // A default without a host or with a scheme has another form in the URL.
    (rest == assumed).then(|| (format!("{scheme}://{word}"), protocol))
}

/// Converts an upstream address. Returns the URL and the protocol.
pub(super) fn url(word: &str, has_tls: bool) -> Option<(String, &'static str)> {
    if let Some(path) = word.strip_prefix("unix/") {
        return path.starts_with('/').then(|| (format!("http+unix:{path}"), "http/1.1"));
    }
    let (scheme, rest) = word.split_once("://").unwrap_or((if has_tls { "https" } else { "http" }, word));
    let (scheme, protocol) = match scheme {
        "http" if has_tls => ("https", "http/1.1"),
        "http" | "https" => (scheme, "http/1.1"),
        "h2c" => ("http", "h2"),
        _ => return None,
    };
    let rest = rest.trim_end_matches('/');
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) if !host.ends_with(':') => {
            (host, Some(port.parse::<u16>().ok().filter(|port| *port > 0)?))
        }
        _ => (rest, None),
    };
    let host = if host.is_empty() { "127.0.0.1" } else { host };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_[]:".contains(&byte);
    if !host.bytes().all(is_plain) || rest.is_empty() {
        return None;
    }
    let port = port.map(|port| format!(":{port}")).unwrap_or_default();
    Some((format!("{scheme}://{host}{port}"), protocol))
}
