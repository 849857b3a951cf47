//! Options of routes other than the content: networks, passwords, rates, fields, error pages, timeouts.

use super::conditions::{TestedCondition, VariableTest};
use super::scope::BlockScope;
use super::servers::RouteEntry;
use super::syntax::Directive;
use super::truth::{Binding, NginxCondition};
use super::variables::VariableValue;
use super::{NginxAdapter, conditions, content, from, locations, questions, upstreams, values};
use crate::RemarkKind;
use crate::draft::{DraftTable, DraftValue, StatementOrigin};
use crate::values as written;

/// An option of a draft: edits of responses with the statuses for which nginx adds fields.
pub(super) const OF_SUCCESSES: &str = "response_headers of successes";
/// The beginning of the names of such options with other conditions.
pub(super) const IF: &str = "response_headers if ";
/// The condition of responses of servers, beside files.
const OF_SERVERS: &str = "has(server.name)";
pub(super) const SUCCESSES: &str = "response.status in [200, 201, 204, 206, 301, 302, 303, 304, 307, 308]";

/// Directives that remove fields of servers.
const HIDING: [&str; 2] = ["proxy_hide_header", "fastcgi_hide_header"];

/// Fields that Vanward writes itself.
const OWN_FIELDS: [&str; 4] = ["Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive"];

impl<'s> NginxAdapter<'s> {
    /// Translates timeouts that Vanward has only once.
    pub(super) fn settings(&mut self, scope: &BlockScope<'s>) {
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
            self.log_to(log, scope);
        }
    }

    /// Translates all that holds for a location whatever its content, except `return`, because nginx answers it first.
    pub(super) fn access(&mut self, scope: &BlockScope<'s>, server: &'s Directive, entry: &mut RouteEntry) {
        self.access_of_script(scope, scope, server, entry);
    }

    /// As [`access`](Self::access), for a script to which nginx moves requests within: fields are those of its location.
    pub(super) fn access_of_script(
        &mut self,
        scope: &BlockScope<'s>,
        script: &BlockScope<'s>,
        server: &'s Directive,
        entry: &mut RouteEntry,
    ) {
        if entry.options.get("respond").is_some_and(|answer| format!("{answer:?}").contains("501")) {
            return;
        }
        self.networks(scope, entry);
        self.password(scope, entry);
        self.rates(scope, entry);
        self.concurrency(scope, entry);
        self.response_headers_of_both(scope, script, entry);
        self.error_pages(scope, server, entry);
        self.compression(scope, entry);
        if let Some(question) = scope.one("auth_request")
            && question.word(0) != "off"
        {
            self.question(question, scope, server, entry);
        }
        self.satisfied_by_any(scope, entry);
        self.logged(scope, entry);
    }

    /// Translates `access_log off`, and the condition of a log.
    pub(super) fn logged(&mut self, scope: &BlockScope<'s>, entry: &mut RouteEntry) {
        let Some(log) = scope.all("access_log").first().copied() else { return };
        if log.word(0) == "off" {
            if !scope.is_outermost(log) {
                entry.options.set("access_log", false, from(log));
            }
            return;
        }
        let Some(variable) = log.words.iter().find_map(|word| word.strip_prefix("if=")) else { return };
        match self.tested_later(&[format!("({variable})")], scope.sets()) {
            Ok(TestedCondition { condition: NginxCondition::Known(true), .. }) => {}
            Ok(TestedCondition { condition: NginxCondition::Known(false), .. }) => {
                entry.options.set("access_log", false, from(log));
            }
            Ok(TestedCondition { condition, used, .. }) => {
                let when = ("when".to_owned(), DraftValue::Expression(condition.written()));
                let mut origins = from(log);
                origins.extend(conditions::origins(used));
                entry.options.set("access_log", DraftValue::Table(vec![when]), origins);
            }
            Err(why) => {
                let why = format!("all requests are logged: {why}");
                self.note(
                    log,
                    RemarkKind::Differs,
                    &why,
                    "write `access_log = { when = \"…\" }` in the [[route]]",
                );
            }
        }
    }

    fn networks(&mut self, scope: &BlockScope<'s>, entry: &mut RouteEntry) {
        let rules = scope.all_of(["allow", "deny"]);
        let mut broad: Option<&Directive> = None;
        for rule in &rules {
            if let Some(before) = broad {
                let why = format!("`{} all` before it decides", before.name);
                self.note(rule, RemarkKind::NeedsNothing, &why, "");
                continue;
            }
            let network = rule.word(0);
            if network == "all" {
                broad = Some(rule);
                continue;
            }
            if !written::is_network(network) {
                self.note(
                    rule,
                    RemarkKind::Refused,
                    "it is no network",
                    "write addresses in `allow` and `deny`",
                );
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
            // The last rule denies all others.
            ("deny", true) => entry.options.cite("allow", StatementOrigin::Directive(broad.number)),
            ("deny", false) => {
                let all = DraftValue::List(vec!["0.0.0.0/0".into(), "::/0".into()]);
                entry.options.set("deny", all, from(broad));
            }
            (_, true) => self.open(&[broad], entry),
            (_, false) => {
                self.note(
                    broad,
                    RemarkKind::NeedsNothing,
                    "clients are allowed unless a list denies them",
                    "",
                );
            }
        }
        if rules.iter().any(|rule| rule.name == "deny") && rules.iter().any(|rule| rule.name == "allow") {
            let why = "if networks overlap, the longest prefix decides, in any order";
            self.note(broad, RemarkKind::Differs, why, "");
        }
    }

    /// If all others are allowed, the list of allowed networks contains only exceptions from denied ones.
    fn open(&mut self, rules: &[&Directive], entry: &mut RouteEntry) {
        let everybody = [DraftValue::from("0.0.0.0/0"), DraftValue::from("::/0")];
        for network in everybody {
            entry.options.push("allow", network, rules.last().map(|rule| from(rule)).unwrap_or_default());
        }
    }

    fn password(&mut self, scope: &BlockScope<'s>, entry: &mut RouteEntry) {
        let Some(realm) = scope.one("auth_basic") else { return };
        if realm.word(0) == "off" {
            return self.note(realm, RemarkKind::NeedsNothing, "there is no password without `auth`", "");
        }
        let Some(users) = scope.one("auth_basic_user_file") else {
            let instead = "name one: `auth = { users = \"FILE\" }`";
            self.note(realm, RemarkKind::Refused, "there is no file of users", instead);
            return content::not_taken(realm, entry);
        };
        if realm.word(0).contains('$') || users.word(0).contains('$') {
            let instead = "write a route for each realm";
            self.note(realm, RemarkKind::Refused, "realm and file have no variables", instead);
            return content::not_taken(realm, entry);
        }
        let pairs =
            vec![("users".to_owned(), users.word(0).into()), ("realm".to_owned(), realm.word(0).into())];
        let mut origins = from(realm);
        origins.extend(from(users));
        entry.options.set("auth", DraftValue::Table(pairs), origins);
        let why = "passwords are bcrypt, SHA-256 and SHA-512 crypt, and $apr1$";
        self.note(users, RemarkKind::Differs, why, "create others again with `htpasswd -B`");
    }

    fn rates(&mut self, scope: &BlockScope<'s>, entry: &mut RouteEntry) {
        let limits = scope.all("limit_req");
        let mut tables = Vec::new();
        let mut origins = Vec::new();
        for limit in limits {
            let option = |name: &str| limit.words.iter().find_map(|word| word.strip_prefix(name));
            let Some(zone) = zone(scope, "limit_req_zone", option("zone=").unwrap_or_default()) else {
                let instead = "read it together with the file that has its limit_req_zone";
                self.note(limit, RemarkKind::Refused, "its zone is not in the file", instead);
                continue;
            };
            let rate = zone.words.iter().find_map(|word| word.strip_prefix("rate=")).and_then(rate);
            let rate = rate.ok_or_else(|| "the rate is not understood".to_owned());
            let counted = rate.and_then(|rate| Ok((rate, self.rate_key(zone.word(0), scope, entry)?)));
            let (rate, key) = match counted {
                Ok(counted) => counted,
                Err(why) => {
                    let why = format!("requests cannot be counted by this key: {why}");
                    let instead = "`key` of `rate_limit` counts by client, header, cookie, query, host, route or a value";
                    self.note(zone, RemarkKind::Refused, &why, instead);
                    continue;
                }
            };
            let shared = self.shared_zone(zone, &key.key);
            let burst = option("burst=").and_then(|burst| burst.parse::<u64>().ok()).unwrap_or(0);
            let mut pairs = vec![
                ("rate".to_owned(), rate.into()),
                ("burst".to_owned(), DraftValue::Number(burst.saturating_add(1).min(u64::from(u32::MAX)))),
                ("key".to_owned(), key.key),
            ];
            pairs.extend(key.when.map(|when| ("when".to_owned(), DraftValue::Expression(when))));
            pairs.extend(shared);
            tables.push(DraftValue::Table(pairs));
            origins
                .extend([StatementOrigin::Directive(limit.number), StatementOrigin::Directive(zone.number)]);
            origins.extend(key.from);
            if burst > 0 && !limit.words.iter().any(|word| word == "nodelay") {
                let why = "requests within the burst are let through at once, as with nodelay";
                self.note(limit, RemarkKind::Differs, why, "");
            }
            match scope.one("limit_req_status") {
                Some(status) if status.word(0) == "429" => origins.extend(from(status)),
                Some(status) => {
                    self.note(status, RemarkKind::Differs, "clients get 429 with Retry-After", "");
                }
                None => {
                    self.note(limit, RemarkKind::Differs, "clients get 429 with Retry-After, not 503", "");
                }
            }
        }
        match tables.len() {
            0 => {}
            1 => entry.options.set("rate_limit", tables.remove(0), origins),
            _ => entry.options.set("rate_limit", DraftValue::List(tables), origins),
        }
        if let Some(rate) = scope.one("limit_rate") {
            match values::bytes(rate.word(0)) {
                Some(0) => self.note(rate, RemarkKind::NeedsNothing, "it is the default", ""),
                Some(bytes) => entry.options.set("rate", format!("{bytes}B/s per request"), from(rate)),
                None => self.unread_value(rate),
            }
        }
    }

    /// Returns the option by which all routes with a limit of this zone count together; `None` if another route counts
    /// by another key.
    fn shared_zone(&mut self, zone: &'s Directive, key: &DraftValue) -> Option<(String, DraftValue)> {
        if self.counted.entry(zone.number).or_insert_with(|| key.clone()) != key {
            let why =
                "requests of this location are counted separately, because its key has another form here";
            self.note(zone, RemarkKind::Differs, why, "use the same key for all routes of a `zone`");
            return None;
        }
        let name = zone.words.iter().find_map(|word| word.strip_prefix("zone="))?;
        Some(("zone".to_owned(), name.split(':').next()?.into()))
    }

    /// Translates `limit_conn`. nginx counts the requests of a connection, too.
    fn concurrency(&mut self, scope: &BlockScope<'s>, entry: &mut RouteEntry) {
        let mut tables = Vec::new();
        let mut origins = Vec::new();
        for limit in scope.all("limit_conn") {
            let Some(zone) = zone(scope, "limit_conn_zone", limit.word(0)) else {
                let instead = "read it together with the file that has its limit_conn_zone";
                self.note(limit, RemarkKind::Refused, "its zone is not in the file", instead);
                continue;
            };
            let max = limit.word(1).parse::<u32>().ok().filter(|max| *max > 0);
            let max = max.ok_or_else(|| "the number is not understood".to_owned());
            let counted = max.and_then(|max| Ok((max, self.rate_key(zone.word(0), scope, entry)?)));
            let (max, key) = match counted {
                Ok(counted) => counted,
                Err(why) => {
                    let why = format!("requests cannot be counted by this key: {why}");
                    let instead = "`by` of `concurrency` is client, header, cookie, query, host or a value";
                    self.note(zone, RemarkKind::Refused, &why, instead);
                    continue;
                }
            };
            let shared = self.shared_zone(zone, &key.key);
            let mut pairs =
                vec![("max".to_owned(), DraftValue::Number(max.into())), ("by".to_owned(), key.key)];
            pairs.extend(key.when.map(|when| ("when".to_owned(), DraftValue::Expression(when))));
            pairs.extend(shared);
            tables.push(DraftValue::Table(pairs));
            origins
                .extend([StatementOrigin::Directive(limit.number), StatementOrigin::Directive(zone.number)]);
            origins.extend(key.from);
            let status = scope.one("limit_conn_status");
            origins.extend(status.map(|status| StatementOrigin::Directive(status.number)));
            if status.is_none_or(|status| status.word(0) != "429") {
                self.note(limit, RemarkKind::Differs, "clients get 429 with Retry-After", "");
            }
        }
        match tables.len() {
            0 => {}
            1 => entry.options.set("concurrency", tables.remove(0), origins),
            _ => entry.options.set("concurrency", DraftValue::List(tables), origins),
        }
    }

    /// Translates `add_header` and `proxy_hide_header` of a location with files, and of the one whose server answers for
    /// missing files.
    fn response_headers_of_both(
        &mut self,
        of_files: &BlockScope<'s>,
        of_server: &BlockScope<'s>,
        entry: &mut RouteEntry,
    ) {
        let numbers = |scope: &BlockScope<'s>| {
            ["add_header", "expires"]
                .map(|name| scope.all(name).iter().map(|directive| directive.number).collect::<Vec<_>>())
        };
        if numbers(of_files) == numbers(of_server) || entry.options.get("files").is_none() {
            return self.response_headers(of_server, entry);
        }
        let mut files = RouteEntry { options: DraftTable::default(), ..entry.clone() };
        self.response_headers(of_files, &mut files);
        let mut asked = files.clone();
        asked.options = DraftTable::default();
        if let Some((upstream, origins)) = entry.options.option("upstream") {
            asked.options.set("upstream", upstream, origins);
        }
        self.response_headers(of_server, &mut asked);
        asked.options.without("upstream");
        let negated = format!("!{OF_SERVERS}");
        for (made, when) in [(files, negated.as_str()), (asked, OF_SERVERS)] {
            let names: Vec<String> = made.options.pairs().map(|(name, _)| name.to_owned()).collect();
            for name in names {
                let Some((value, origins)) = made.options.option(&name) else { continue };
                let name = match name.as_str() {
                    "response_headers" => format!("{IF}{when}"),
                    OF_SUCCESSES => format!("{IF}{when} && {SUCCESSES}"),
                    name => match name.strip_prefix(IF) {
                        Some(other) => format!("{IF}{when} && ({other})"),
                        None => name.to_owned(),
                    },
                };
                match (value, entry.options.get(&name)) {
                    // Values of the route.
                    (DraftValue::Table(pairs), Some(_)) => {
                        for (key, value) in pairs {
                            entry.options.extend(&name, (&key, value), origins.clone());
                        }
                    }
                    (value, _) => entry.options.set(&name, value, origins),
                }
            }
        }
    }

    /// Translates `add_header` and `proxy_hide_header`.
    pub(super) fn response_headers(&mut self, scope: &BlockScope<'s>, entry: &mut RouteEntry) {
        let is_server = entry.has_server();
        let hidden: Vec<_> = HIDING.iter().filter(|_| is_server).flat_map(|name| scope.all(name)).collect();
        let mut named: Vec<String> = Vec::new();
        for add in scope.all("add_header") {
            let (name, text) = (add.word(0), add.word(1));
            if let Some(why) = needless(name, text) {
                self.note(add, RemarkKind::NeedsNothing, why, "");
                continue;
            }
            let value = match self.template_of_response(text, scope, entry) {
                Ok(value) => value,
                Err(why) => {
                    let instead = "write the value, or a variable of docs/configuration.md";
                    self.note(add, RemarkKind::Refused, &why, instead);
                    continue;
                }
            };
            if !is_field_name(name) {
                self.note(
                    add,
                    RemarkKind::Refused,
                    "it is no name of a field",
                    "write one in `response_headers`",
                );
                continue;
            }
            if named.iter().any(|known| known.eq_ignore_ascii_case(name)) {
                let why = "a route can add a field only once";
                self.note(add, RemarkKind::Refused, why, "write both values into one, with a comma between");
                continue;
            }
            named.push(name.to_owned());
            let is_hidden = hidden.iter().any(|hide| hide.word(0).eq_ignore_ascii_case(name));
            let place = if is_hidden { "set" } else { "add" };
            let is_lifetime = ["Cache-Control", "Expires"].iter().any(|of| of.eq_ignore_ascii_case(name));
            if add.word(2) != "always" && is_lifetime {
                // An error must not be kept as long as the content.
                self.header(OF_SUCCESSES, place, name, value, add, entry);
                continue;
            }
            self.header("response_headers", place, name, value, add, entry);
            if add.word(2) != "always" {
                self.note(
                    add,
                    RemarkKind::Differs,
                    "every response has the field, errors too, as with `always`",
                    "",
                );
            }
        }
        for hide in hidden {
            let name = hide.word(0);
            if named.iter().any(|known| known.eq_ignore_ascii_case(name)) {
                entry.options.cite("response_headers", StatementOrigin::Directive(hide.number));
            } else if is_field_name(name) {
                let mut removed = match entry.options.inner("response_headers", "remove") {
                    Some(DraftValue::List(known)) => known.clone(),
                    _ => Vec::new(),
                };
                removed.push(name.into());
                entry.options.extend("response_headers", ("remove", DraftValue::List(removed)), from(hide));
            }
        }
        if is_server {
            self.expires(scope, entry);
        }
    }

    /// Translates `expires` for responses of servers.
    fn expires(&mut self, scope: &BlockScope<'s>, entry: &mut RouteEntry) {
        if let Some(expires) = scope.one("expires") {
            if expires.word(0).starts_with('$') && expires.words.len() == 1 {
                if let Err(why) = self.computed_expires(expires, scope, entry) {
                    let instead = "set Cache-Control in `response_headers`";
                    self.note(expires, RemarkKind::Refused, &why, instead);
                }
                return;
            }
            match content::cache_control(&expires.words) {
                Some(Some(value)) => {
                    self.header(OF_SUCCESSES, "set", "Cache-Control", value, expires, entry);
                    self.note(expires, RemarkKind::Differs, "Cache-Control is sent, and no Expires", "");
                }
                Some(None) => self.note(expires, RemarkKind::NeedsNothing, "it is the default", ""),
                None => self.note(
                    expires,
                    RemarkKind::Refused,
                    "it is no time",
                    "set Cache-Control in `response_headers`",
                ),
            }
        }
    }

    /// Translates `expires` with a variable that has one of several constants.
    ///
    /// # Errors
    /// Why it has no translation.
    fn computed_expires(
        &mut self,
        expires: &'s Directive,
        scope: &BlockScope<'s>,
        entry: &mut RouteEntry,
    ) -> Result<(), String> {
        let name = expires.word(0).trim_start_matches(['$', '{']).trim_end_matches('}');
        let mut resolved = self.declarations.text(expires.word(0), scope.sets())?;
        resolved.value = resolved.value.map(&mut |leaf: &VariableValue| {
            let text = leaf.as_constant().ok_or("its times depend on other variables")?;
            let words = if text.is_empty() { "off" } else { text };
            let lifetime = content::cache_control(&[words.to_owned()]).ok_or(format!("{text} is no time"))?;
            Ok::<_, String>(VariableValue::constant(lifetime.as_deref().unwrap_or_default()))
        })?;
        let is_there = VariableTest::Equal { value: VariableValue::constant(""), is_not: true };
        let is_there = self.condition(&resolved, &is_there, name)?;
        let value = self.known_value(name, &resolved, Some(entry))?;
        let successes = NginxCondition::Text(SUCCESSES.to_owned(), Binding::Comparison);
        let when = NginxCondition::all(vec![is_there, successes]).written();
        self.header(&format!("{IF}{when}"), "set", "Cache-Control", format!("${{{value}}}"), expires, entry);
        self.note(expires, RemarkKind::Differs, "Cache-Control is sent, and no Expires", "");
        Ok(())
    }

    /// Translates `mirror` of a route with a server.
    pub(super) fn mirror(&mut self, scope: &BlockScope<'s>, server: &'s Directive, entry: &mut RouteEntry) {
        let mirrors = scope.all("mirror");
        let Some((mirror, more)) = mirrors.split_first().filter(|(mirror, _)| mirror.word(0) != "off") else {
            return;
        };
        for other in more {
            self.note(other, RemarkKind::Refused, "a route has one mirror", "leave one of them out");
        }
        let (pairs, origins) = match self.copies(mirror, server) {
            Ok(copies) => copies,
            Err(why) => {
                let instead = "write `mirror = { upstream = \"NAME\" }` in the route";
                return self.note(mirror, RemarkKind::Refused, &why, instead);
            }
        };
        entry.options.set("mirror", DraftValue::Table(pairs), origins);
        let bodies = scope.one("mirror_request_body");
        let size = if bodies.is_some_and(|bodies| bodies.word(0) == "off") { "0" } else { "16MiB" };
        let from = bodies.map(|bodies| vec![StatementOrigin::Directive(bodies.number)]).unwrap_or_default();
        entry.options.extend("mirror", ("bodies", size.into()), from);
    }

    /// The option `mirror`, from the location of the copies.
    ///
    /// # Errors
    /// Why it has no translation.
    fn copies(&mut self, mirror: &'s Directive, server: &'s Directive) -> Result<OptionPairs, String> {
        let is_it = |block: &&Directive| {
            block.name == "location"
                && locations::LocationMatch::from_location(block).path() == Some(mirror.word(0))
        };
        let block = server.inner().iter().find(is_it).ok_or("there is no such location")?;
        let pass = block.inner().iter().find(|inner| inner.name == "proxy_pass");
        let pass = pass.ok_or("its location leads to no server")?;
        if !pass.word(0).ends_with("$request_uri") {
            return Err("copies have the path of the request".to_owned());
        }
        let scope = BlockScope::from_level(server.inner()).within(block.inner());
        let target = upstreams::target(pass.word(0), &pass.name).map_err(|(why, _)| why.to_owned())?;
        let name = self.upstream(&target, pass, &scope).ok_or("its servers were not taken over")?;
        let mut pairs = vec![("upstream".to_owned(), name.into())];
        let mut origins = from(mirror);
        origins.extend(from(block));
        origins.extend(from(pass));
        for set in block.inner().iter().filter(|inner| inner.name == "proxy_set_header") {
            let is_mark = set.word(1) == "1" && is_field_name(set.word(0)) && pairs.len() == 1;
            match set.word(0).to_ascii_lowercase().as_str() {
                "host" | "content-length" => {}
                _ if is_mark => pairs.push(("mark".to_owned(), set.word(0).into())),
                _ => {
                    let why = "copies have the fields of the request";
                    self.note(set, RemarkKind::Refused, why, "write `mark` of `mirror`");
                    continue;
                }
            }
            origins.extend(from(set));
        }
        Ok((pairs, origins))
    }

    /// Adds a field to `set` or `add` of an option.
    pub(super) fn header(
        &mut self,
        option: &str,
        place: &str,
        name: &str,
        value: String,
        directive: &Directive,
        entry: &mut RouteEntry,
    ) {
        let mut pairs = match entry.options.inner(option, place) {
            Some(DraftValue::Table(known)) => known.clone(),
            _ => Vec::new(),
        };
        pairs.push((name.to_owned(), value.into()));
        entry.options.extend(option, (place, DraftValue::Table(pairs)), from(directive));
    }

    /// Translates `error_page` with a local file.
    pub(super) fn error_pages(
        &mut self,
        scope: &BlockScope<'s>,
        server: &'s Directive,
        entry: &mut RouteEntry,
    ) {
        for page in scope.all("error_page") {
            self.error_page(page, scope, server, entry);
        }
        if let Some(intercept) = scope.one("proxy_intercept_errors")
            && entry.has_server()
        {
            if values::is_on(intercept.word(0)) && entry.options.get("error_pages").is_some() {
                entry.options.set("replace_errors", true, from(intercept));
            } else if entry.options.get("on_status").is_some() {
                entry.options.cite("on_status", StatementOrigin::Directive(intercept.number));
            } else {
                self.note(intercept, RemarkKind::NeedsNothing, "without pages nothing is replaced", "");
            }
        }
    }

    /// Translates an `error_page`.
    pub(super) fn error_page(
        &mut self,
        page: &'s Directive,
        scope: &BlockScope<'s>,
        server: &'s Directive,
        entry: &mut RouteEntry,
    ) {
        let Some((uri, codes)) = page.words.split_last() else { return };
        // `forward_auth` sends these clients away.
        let signs_in = self.signs_in(scope, server).map(|(known, ..)| known);
        let known = signs_in.or_else(|| questions::to_location(scope).map(|(known, _)| known));
        let known = known.or_else(|| questions::sign_in_server(scope, server).map(|(known, _)| known));
        if known.is_some_and(|known| known.number == page.number) {
            return;
        }
        if entry.has_server() {
            match self.error_server(page, scope, server, entry) {
                Ok(false) => {}
                Ok(true) => return,
                Err(why) => {
                    let instead = "write `on_status` of the [[route]]: docs/fallbacks.md";
                    return self.note(page, RemarkKind::Refused, &why, instead);
                }
            }
        }
        let are_codes = codes.iter().all(|code| code.parse::<u16>().is_ok());
        let file = match page_of(uri, scope, server) {
            ErrorPageTarget::File(file) if are_codes => file,
            ErrorPageTarget::Asked(handler) if are_codes => {
                let why = format!("an error page is a file here, and `{}` answers for {uri}", handler.name);
                let instead = "save the page to a file, and write that into `error_pages`";
                return self.note(page, RemarkKind::Refused, &why, instead);
            }
            _ => {
                let why = "an error page is a file here, and the status stays";
                let instead =
                    "write the file into `error_pages`, or `fallback` of `files` for an application";
                return self.note(page, RemarkKind::Refused, why, instead);
            }
        };
        for code in
            codes.iter().filter(|code| code.parse::<u16>().is_ok_and(|code| (400..600).contains(&code)))
        {
            entry.options.extend("error_pages", (code, file.as_str().into()), from(page));
        }
    }
}

/// An option that is a table, and its origins.
type OptionPairs = (Vec<(String, DraftValue)>, Vec<StatementOrigin>);

enum ErrorPageTarget<'s> {
    File(String),
    /// A directive that gives the response, such as a server.
    Asked(&'s Directive),
    /// Another host, a named location, or a path that depends on the request.
    Other,
}

/// Resolves the URI of an `error_page` as nginx does, like a request.
fn page_of<'s>(uri: &str, scope: &BlockScope<'s>, server: &'s Directive) -> ErrorPageTarget<'s> {
    if !uri.starts_with('/') || uri.contains(['$', '?']) || uri.contains("..") {
        return ErrorPageTarget::Other;
    }
    let blocks = locations::leading_to(uri, server.inner());
    let answers = |directive: &&Directive| content::answers_without_files(&directive.name);
    if let Some(block) = blocks.first()
        && let Some(handler) = block.inner().iter().find(answers)
    {
        let file =
            (handler.name == "alias").then(|| locations::aliased(block, handler.word(0), uri)).flatten();
        return file.map_or(ErrorPageTarget::Asked(handler), ErrorPageTarget::File);
    }
    let root = |level: &'s [Directive]| level.iter().rev().find(|directive| directive.name == "root");
    let own = blocks.iter().map(|block| block.inner()).chain([server.inner()]).find_map(root);
    match own.or_else(|| scope.outer("root").last().copied()).map(|root| root.word(0)) {
        Some(root) if root.starts_with('/') && !root.contains('$') => {
            ErrorPageTarget::File(format!("{}{uri}", root.trim_end_matches('/')))
        }
        _ => ErrorPageTarget::Other,
    }
}

/// Why an `add_header` needs nothing.
fn needless(name: &str, text: &str) -> Option<&'static str> {
    if text.is_empty() {
        Some("nginx adds no field without a value")
    } else if OWN_FIELDS.iter().any(|own| own.eq_ignore_ascii_case(name)) {
        Some("messages are framed, and connections kept, without an option")
    } else if text == "$upstream_cache_status" {
        Some("Cache-Status (RFC 9211) tells what the cache did, in every response of a cached route")
    } else {
        None
    }
}

pub(super) fn is_field_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

/// Finds the zone of a limit by its name.
pub(super) fn zone<'s>(scope: &BlockScope<'s>, kind: &str, name: &str) -> Option<&'s Directive> {
    let is_named =
        |word: &String| word.strip_prefix("zone=").is_some_and(|word| word.split(':').next() == Some(name));
    scope.outer(kind).into_iter().find(|zone| zone.words.iter().any(is_named))
}

/// Converts `10r/s` to `10/s`.
fn rate(text: &str) -> Option<String> {
    let (count, unit) = text.split_once("r/")?;
    let count: u64 = count.parse().ok().filter(|count| *count > 0)?;
    matches!(unit, "s" | "m").then(|| format!("{count}/{unit}"))
}
