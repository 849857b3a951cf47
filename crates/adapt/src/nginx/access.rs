//! What holds for requests besides what answers them: networks, passwords, rates, fields, error pages, timeouts.

use super::locations;
use super::scope::Scope;
use super::servers::Entry;
use super::syntax::Directive;
use super::{Adapter, content, from, values};
use crate::Kind;
use crate::draft::{Origin, Value};
use crate::values as written;

impl<'s> Adapter<'s> {
    /// Timeouts that there are once, as a server has them.
    pub(super) fn settings(&mut self, scope: &Scope<'s>) {
        let once = [("client_header_timeout", "client_header"), ("keepalive_timeout", "keep_alive")];
        for (name, key) in once {
            let Some(directive) = scope.one(name) else { continue };
            match values::milliseconds(directive.word(0)) {
                Some(0) if key == "keep_alive" => {
                    self.once("[limits]", "requests_per_connection", 1, directive);
                }
                Some(time @ 1..=86_400_000) => {
                    self.once("[timeouts]", key, written::duration(time), directive);
                }
                _ => self.unread_value(directive),
            }
        }
        for (name, key) in [("client_body_timeout", "client_body"), ("send_timeout", "client_write")] {
            let Some(directive) = scope.one(name) else { continue };
            match values::milliseconds(directive.word(0)) {
                Some(time @ 1..=86_400_000) => {
                    self.once("[timeouts]", key, written::duration(time), directive);
                }
                _ => self.unread_value(directive),
            }
        }
        if let Some(log) = scope.here("access_log")
            && !scope.is_outermost(log)
        {
            self.log_to(log);
        }
    }

    /// Everything that holds for a location whatever answers there, but for `return`, which nginx answers before.
    pub(super) fn access(&mut self, scope: &Scope<'s>, server: &'s Directive, entry: &mut Entry) {
        if entry.options.get("respond").is_some_and(|answer| format!("{answer:?}").contains("501")) {
            return;
        }
        self.networks(scope, entry);
        self.password(scope, entry);
        self.rates(scope, entry);
        self.response_headers(scope, entry);
        self.error_pages(scope, server, entry);
        self.compression(scope, entry);
        if let Some(question) = scope.one("auth_request")
            && question.word(0) != "off"
        {
            self.question(question, server, entry);
        }
        Self::logged(scope, entry);
    }

    /// `access_log off`.
    pub(super) fn logged(scope: &Scope<'s>, entry: &mut Entry) {
        if let Some(log) = scope.one("access_log")
            && log.word(0) == "off"
            && !scope.is_outermost(log)
        {
            entry.options.set("access_log", false, from(log));
        }
    }

    fn networks(&mut self, scope: &Scope<'s>, entry: &mut Entry) {
        let rules = scope.all_of(["allow", "deny"]);
        let mut broad: Option<&Directive> = None;
        for rule in &rules {
            if let Some(before) = broad {
                let why = format!("`{} all` before it decides", before.name);
                self.note(rule, Kind::NeedsNothing, &why, "");
                continue;
            }
            let network = rule.word(0);
            if network == "all" {
                broad = Some(rule);
                continue;
            }
            if !written::is_network(network) {
                self.note(rule, Kind::Refused, "it is no network", "write addresses in `allow` and `deny`");
                continue;
            }
            entry.options.push(&rule.name, network.into(), from(rule));
        }
        let Some(broad) = broad else {
            if entry.options.get("allow").is_some() {
                self.open(&rules, entry);
            }
            return;
        };
        let is_allowed = entry.options.get("allow").is_some();
        match (broad.name.as_str(), is_allowed) {
            // Whoever is not allowed is denied.
            ("deny", true) => entry.options.cite("allow", Origin::Directive(broad.number)),
            ("deny", false) => {
                let all = Value::List(vec!["0.0.0.0/0".into(), "::/0".into()]);
                entry.options.set("deny", all, from(broad));
            }
            (_, true) => self.open(&[broad], entry),
            (_, false) => {
                self.note(broad, Kind::NeedsNothing, "clients are allowed where no list says otherwise", "");
            }
        }
        if rules.iter().any(|rule| rule.name == "deny") && rules.iter().any(|rule| rule.name == "allow") {
            let why = "of networks that contain each other the longer prefix decides, in any order";
            self.note(broad, Kind::Differs, why, "");
        }
    }

    /// Where everybody else is allowed, a list of allowed networks only makes exceptions from denied ones.
    fn open(&mut self, rules: &[&Directive], entry: &mut Entry) {
        let everybody = [Value::from("0.0.0.0/0"), Value::from("::/0")];
        for network in everybody {
            entry.options.push("allow", network, rules.last().map(|rule| from(rule)).unwrap_or_default());
        }
    }

    fn password(&mut self, scope: &Scope<'s>, entry: &mut Entry) {
        let Some(realm) = scope.one("auth_basic") else { return };
        if realm.word(0) == "off" {
            return self.note(realm, Kind::NeedsNothing, "there is no password without `auth`", "");
        }
        let Some(users) = scope.one("auth_basic_user_file") else {
            let instead = "name one: `auth = { users = \"FILE\" }`";
            self.note(realm, Kind::Refused, "there is no file of users", instead);
            return content::not_taken(realm, entry);
        };
        if realm.word(0).contains('$') || users.word(0).contains('$') {
            let instead = "write a route for each realm";
            self.note(realm, Kind::Refused, "realm and file have no variables", instead);
            return content::not_taken(realm, entry);
        }
        let pairs =
            vec![("users".to_owned(), users.word(0).into()), ("realm".to_owned(), realm.word(0).into())];
        let mut origins = from(realm);
        origins.extend(from(users));
        entry.options.set("auth", Value::Table(pairs), origins);
        let why = "passwords are bcrypt, SHA-256 and SHA-512 crypt, and $apr1$";
        self.note(users, Kind::Differs, why, "make others anew with `htpasswd -B`");
    }

    fn rates(&mut self, scope: &Scope<'s>, entry: &mut Entry) {
        let limits = scope.all("limit_req");
        let mut tables = Vec::new();
        let mut origins = Vec::new();
        for limit in limits {
            let option = |name: &str| limit.words.iter().find_map(|word| word.strip_prefix(name));
            let name = option("zone=").unwrap_or_default();
            let zones = scope.outer("limit_req_zone");
            let zone = zones.into_iter().find(|zone| {
                zone.words.iter().any(|word| {
                    word.strip_prefix("zone=").is_some_and(|word| word.split(':').next() == Some(name))
                })
            });
            let Some(zone) = zone else {
                let instead = "read it together with the file that has its limit_req_zone";
                self.note(limit, Kind::Refused, "its zone is not in the file", instead);
                continue;
            };
            let rate = zone.words.iter().find_map(|word| word.strip_prefix("rate=")).and_then(rate);
            let (Some(key), Some(rate)) = (key(zone.word(0)), rate) else {
                let why = "requests are not counted by this, or the rate is not understood";
                self.note(
                    zone,
                    Kind::Refused,
                    why,
                    "`key` of `rate_limit` counts by client, header, cookie, query, host or route",
                );
                continue;
            };
            let burst = option("burst=").and_then(|burst| burst.parse::<u64>().ok()).unwrap_or(0);
            let pairs = [
                ("rate".to_owned(), rate.into()),
                ("burst".to_owned(), Value::Number(burst.saturating_add(1).min(u64::from(u32::MAX)))),
                ("key".to_owned(), key.into()),
            ];
            tables.push(Value::Table(pairs.into()));
            origins.extend([Origin::Directive(limit.number), Origin::Directive(zone.number)]);
            if burst > 0 && !limit.words.iter().any(|word| word == "nodelay") {
                let why = "requests within the burst are let through at once, as with nodelay";
                self.note(limit, Kind::Differs, why, "");
            }
            match scope.one("limit_req_status") {
                Some(status) if status.word(0) == "429" => origins.extend(from(status)),
                Some(status) => self.note(status, Kind::Differs, "clients get 429 with Retry-After", ""),
                None => self.note(limit, Kind::Differs, "clients get 429 with Retry-After, not 503", ""),
            }
        }
        match tables.len() {
            0 => {}
            1 => entry.options.set("rate_limit", tables.remove(0), origins),
            _ => entry.options.set("rate_limit", Value::List(tables), origins),
        }
        if let Some(rate) = scope.one("limit_rate") {
            match values::bytes(rate.word(0)) {
                Some(0) => self.note(rate, Kind::NeedsNothing, "it is the default", ""),
                Some(bytes) => entry.options.set("rate", format!("{bytes}B/s per request"), from(rate)),
                None => self.unread_value(rate),
            }
        }
    }

    /// `add_header` and `proxy_hide_header`.
    pub(super) fn response_headers(&mut self, scope: &Scope<'s>, entry: &mut Entry) {
        let is_server = entry.options.get("upstream").is_some();
        let hidden: Vec<_> = if is_server { scope.all("proxy_hide_header") } else { Vec::new() };
        let mut named: Vec<String> = Vec::new();
        for add in scope.all("add_header") {
            let (name, text) = (add.word(0), add.word(1));
            if text.is_empty() {
                self.note(add, Kind::NeedsNothing, "nginx adds no field without a value", "");
                continue;
            }
            let value = match values::template(text) {
                Ok(value) => value,
                Err(variable) if variable == "$upstream_cache_status" => {
                    let why = "Cache-Status (RFC 9211) tells what the cache did, in every response of a cached route";
                    self.note(add, Kind::NeedsNothing, why, "");
                    continue;
                }
                Err(variable) => {
                    let why = format!("there is no variable {variable}");
                    self.note(
                        add,
                        Kind::Refused,
                        &why,
                        "write the value, or a variable of docs/configuration.md",
                    );
                    continue;
                }
            };
            if !is_field_name(name) {
                self.note(add, Kind::Refused, "it is no name of a field", "write one in `response_headers`");
                continue;
            }
            if named.iter().any(|known| known.eq_ignore_ascii_case(name)) {
                let why = "a field is added once by a route";
                self.note(add, Kind::Refused, why, "write both values into one, with a comma between");
                continue;
            }
            named.push(name.to_owned());
            let is_hidden = hidden.iter().any(|hide| hide.word(0).eq_ignore_ascii_case(name));
            let place = if is_hidden { "set" } else { "add" };
            self.header("response_headers", place, name, value, add, entry);
            if add.word(2) != "always" {
                self.note(
                    add,
                    Kind::Differs,
                    "every response has the field, errors too, as with `always`",
                    "",
                );
            }
        }
        for hide in hidden {
            let name = hide.word(0);
            if named.iter().any(|known| known.eq_ignore_ascii_case(name)) {
                entry.options.cite("response_headers", Origin::Directive(hide.number));
            } else if is_field_name(name) {
                let mut removed = match entry.options.inner("response_headers", "remove") {
                    Some(Value::List(known)) => known.clone(),
                    _ => Vec::new(),
                };
                removed.push(name.into());
                entry.options.extend("response_headers", ("remove", Value::List(removed)), from(hide));
            }
        }
        if is_server {
            self.expires(scope, entry);
        }
    }

    /// `expires`, of the responses of servers.
    fn expires(&mut self, scope: &Scope<'s>, entry: &mut Entry) {
        if let Some(expires) = scope.one("expires") {
            match content::cache_control(&expires.words) {
                Some(Some(value)) => {
                    self.header("response_headers", "set", "Cache-Control", value, expires, entry);
                    self.note(expires, Kind::Differs, "Cache-Control is sent, and no Expires", "");
                }
                Some(None) => self.note(expires, Kind::NeedsNothing, "it is the default", ""),
                None => self.note(
                    expires,
                    Kind::Refused,
                    "it is no time",
                    "set Cache-Control in `response_headers`",
                ),
            }
        }
    }

    /// Adds a field to `set` or `add` of an option.
    pub(super) fn header(
        &mut self,
        option: &str,
        place: &str,
        name: &str,
        value: String,
        directive: &Directive,
        entry: &mut Entry,
    ) {
        let mut pairs = match entry.options.inner(option, place) {
            Some(Value::Table(known)) => known.clone(),
            _ => Vec::new(),
        };
        pairs.push((name.to_owned(), value.into()));
        entry.options.extend(option, (place, Value::Table(pairs)), from(directive));
    }

    /// `error_page` with a file of this machine.
    fn error_pages(&mut self, scope: &Scope<'s>, server: &'s Directive, entry: &mut Entry) {
        for page in scope.all("error_page") {
            let Some((uri, codes)) = page.words.split_last() else { continue };
            let are_codes = codes.iter().all(|code| code.parse::<u16>().is_ok());
            let file = match page_of(uri, scope, server) {
                Page::File(file) if are_codes => file,
                Page::Asked(handler) if are_codes => {
                    let why =
                        format!("an error page is a file here, and `{}` answers for {uri}", handler.name);
                    self.note(
                        page,
                        Kind::Refused,
                        &why,
                        "save the page to a file, and write that into `error_pages`",
                    );
                    continue;
                }
                _ => {
                    let why = "an error page is a file here, and the status stays";
                    let instead =
                        "write the file into `error_pages`, or `fallback` of `files` for an application";
                    self.note(page, Kind::Refused, why, instead);
                    continue;
                }
            };
            for code in
                codes.iter().filter(|code| code.parse::<u16>().is_ok_and(|code| (400..600).contains(&code)))
            {
                entry.options.extend("error_pages", (code, file.as_str().into()), from(page));
            }
        }
        if let Some(intercept) = scope.one("proxy_intercept_errors")
            && entry.options.get("upstream").is_some()
        {
            if values::is_on(intercept.word(0)) && entry.options.get("error_pages").is_some() {
                entry.options.set("replace_errors", true, from(intercept));
            } else {
                self.note(intercept, Kind::NeedsNothing, "without pages nothing is replaced", "");
            }
        }
    }
}

/// What an `error_page` leads to.
enum Page<'s> {
    /// A file of this machine.
    File(String),
    /// What a directive answers, such as a server.
    Asked(&'s Directive),
    /// Another host, a named location, a path that differs by request.
    Other,
}

/// nginx answers for the URI of an `error_page` as for a request.
fn page_of<'s>(uri: &str, scope: &Scope<'s>, server: &'s Directive) -> Page<'s> {
    if !uri.starts_with('/') || uri.contains(['$', '?']) || uri.contains("..") {
        return Page::Other;
    }
    let blocks = locations::leading_to(uri, server.inner());
    let answers = |directive: &&Directive| content::answers_without_files(&directive.name);
    if let Some(handler) = blocks.first().and_then(|block| block.inner().iter().find(answers)) {
        return Page::Asked(handler);
    }
    let root = |level: &'s [Directive]| level.iter().rev().find(|directive| directive.name == "root");
    let own = blocks.iter().map(|block| block.inner()).chain([server.inner()]).find_map(root);
    match own.or_else(|| scope.outer("root").last().copied()).map(|root| root.word(0)) {
        Some(root) if root.starts_with('/') && !root.contains('$') => {
            Page::File(format!("{}{uri}", root.trim_end_matches('/')))
        }
        _ => Page::Other,
    }
}

pub(super) fn is_field_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

/// What requests are counted by.
fn key(text: &str) -> Option<String> {
    match text {
        "$binary_remote_addr" | "$remote_addr" => Some("client".to_owned()),
        "$host" | "$server_name" | "$http_host" => Some("host".to_owned()),
        _ => {
            let name = text.strip_prefix('$')?;
            let is_name = |rest: &&str| {
                !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            };
            let of = |prefix: &str| name.strip_prefix(prefix).filter(is_name);
            let header = of("http_").map(|field| format!("header:{}", values::field_name(field)));
            header
                .or_else(|| of("cookie_").map(|cookie| format!("cookie:{cookie}")))
                .or_else(|| of("arg_").map(|argument| format!("query:{argument}")))
        }
    }
}

/// `10r/s` as `10/s`.
fn rate(text: &str) -> Option<String> {
    let (count, unit) = text.split_once("r/")?;
    let count: u64 = count.parse().ok().filter(|count| *count > 0)?;
    matches!(unit, "s" | "m").then(|| format!("{count}/{unit}"))
}
