//! BranchTargets of requests: `proxy_pass`, and the `upstream` blocks that it names.

use super::locations::{Location, LocationMatch};
use super::scope::BlockScope;
use super::servers::RouteEntry;
use super::syntax::Directive;
use super::{NginxAdapter, access, branches, content, from, questions, values};
use crate::RemarkKind;
use crate::draft::{DraftTable, DraftValue, StatementOrigin};
use crate::sheet::{name_of, upstream_header};
use crate::values as written;

/// Fields that Vanward sends to servers without an option.
pub(super) const BY_ITSELF: [&str; 7] = [
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-forwarded-host",
    "forwarded",
    "upgrade",
    "connection",
    "x-request-id",
];

/// Fields about a connection or the framing of a message, which cannot be edited.
const OF_THE_CONNECTION: [&str; 8] = [
    "content-length",
    "transfer-encoding",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "expect",
    "http2-settings",
];

/// The servers that `proxy_pass` leads to.
pub(super) struct AskedServers {
    /// The name of an upstream, or a value that names one.
    pub(super) upstream: String,
    /// The host that nginx sends; None for a socket.
    pub(super) host: Option<String>,
    pub(super) path: AskedPath,
    pub(super) from: Vec<StatementOrigin>,
}

/// The path that servers get.
pub(super) enum AskedPath {
    Own,
    /// This one in place of the location's.
    Joined(String),
    /// This one for all requests, as `path` of `rewrite`.
    Fixed(String),
}

impl AskedServers {
    /// The path of a location, and that of the servers in its place, if they differ.
    pub(super) fn prefixes<'p>(
        &'p self,
        location: &'p Location<'_>,
        entry: &RouteEntry,
    ) -> Option<(&'p str, &'p str)> {
        let (AskedPath::Joined(to), Some(path)) = (&self.path, location.matching.path()) else { return None };
        let is_replaced = entry.options.inner("rewrite", "path").is_some()
            && entry.options.inner("rewrite", "pattern").is_none()
            && entry.path.starts_with('/');
        (is_replaced && path.trim_end_matches('/') != to.trim_end_matches('/')).then_some((path, to))
    }
}

pub(super) struct PassTarget {
    pub(super) scheme: &'static str,
    pub(super) host: String,
    pub(super) uri: Option<String>,
    /// The option `fastcgi` of an application.
    pub(super) scripts: Option<(DraftValue, Vec<StatementOrigin>)>,
    /// The Host that all requests to these servers have.
    pub(super) host_field: Option<String>,
}

impl<'s> NginxAdapter<'s> {
    /// Translates `proxy_pass` and `grpc_pass` of a location, with all options for requests to the server and
    /// responses.
    pub(super) fn pass(&mut self, pass: &'s Directive, location: &Location<'s>, entry: &mut RouteEntry) {
        let scope = &location.scope;
        let word = match without_prefix(location) {
            Some(_) => pass.word(0).strip_suffix("$uri").unwrap_or(pass.word(0)),
            None => pass.word(0),
        };
        let asked = match target(word, &pass.name) {
            Ok(target) => self.upstream(&target, pass, scope).map(|name| {
                let host = has_host(&target).then(|| without_usual_port(&target));
                let path = match target.uri {
                    None => AskedPath::Own,
                    Some(uri) if self.passes.contains(&pass.number) => AskedPath::Fixed(whole_path(&uri)),
                    Some(uri) => AskedPath::Joined(uri),
                };
                AskedServers { upstream: name, host, path, from: Vec::new() }
            }),
            Err((why, instead)) if !pass.word(0).contains('$') => {
                self.note(pass, RemarkKind::Refused, why, instead);
                None
            }
            Err(_) => match self.chosen(pass, scope, entry) {
                Ok(asked) => Some(asked),
                Err(why) => {
                    let instead = "name the servers in [upstream.NAME], and choose among them by [[route]]";
                    self.note(pass, RemarkKind::Refused, &why, instead);
                    None
                }
            },
        };
        let Some(asked) = asked else { return content::not_taken(pass, entry) };
        let mut origins = from(pass);
        origins.extend(asked.from.clone());
        if entry.options.get("split").is_none() {
            entry.options.set("upstream", asked.upstream.as_str(), origins);
        }
        self.uri(pass, &asked, location, entry);
        self.request_headers(&asked, scope, entry);
        self.timeouts(pass, scope, entry);
        self.retries(scope, entry);
        self.cache("proxy", scope, entry);
        self.body_limit(scope, entry);
        self.mapped_back(&asked, location, entry);
        if let Some(body) = scope.one("proxy_pass_request_body").filter(|body| body.word(0) == "off") {
            entry.options.extend("request_buffering", ("discard", true.into()), from(body));
        }
        if let Some(buffered) = scope.one("proxy_request_buffering") {
            let why = "bodies are streamed; `request_buffering = true` gathers them";
            self.note(buffered, RemarkKind::NeedsNothing, why, "");
        }
    }

    pub(super) fn body_limit(&mut self, scope: &BlockScope<'s>, entry: &mut RouteEntry) {
        if let Some(limit) = scope.one("client_max_body_size").filter(|limit| !scope.is_outermost(limit))
            && let Some(size) = self.body_size(limit)
        {
            entry.options.extend("limits", ("body_bytes", size.into()), from(limit));
        }
    }

    /// Returns the name of a target's upstream, creating it if necessary.
    pub(super) fn upstream(
        &mut self,
        target: &PassTarget,
        pass: &'s Directive,
        scope: &BlockScope<'s>,
    ) -> Option<String> {
        let group = self.groups.get(target.host.as_str()).copied();
        let mut base =
            name_of(if group.is_some() { &target.host } else { target.host.trim_start_matches('/') });
        if !matches!(target.scheme, "http" | "fcgi")
            && group.is_some()
            && self.sheet.upstreams.iter().any(|known| known.header == upstream_header(&base))
        {
            base = format!("{base}-{}", if pass.name == "grpc_pass" { "grpc" } else { target.scheme });
        }
        let connect = self.connect_time(pass, scope);
        let mut made = self.draft_upstream(target, group, (pass, scope));
        if let Some((directive, time)) = &connect {
            made.extend("pool", ("connect_timeout", time.as_str().into()), from(directive));
        }
        // The same servers with the same options share an upstream.
        for attempt in 1.. {
            let name = if attempt == 1 { base.clone() } else { format!("{base}-{attempt}") };
            made.header = upstream_header(&name);
            match self.sheet.upstreams.iter().position(|known| known.header == made.header) {
                Some(known) if self.sheet.upstreams[known].says_the_same(&made) => {
                    let known = &mut self.sheet.upstreams[known];
                    known.cite("servers", StatementOrigin::Directive(pass.number));
                    if let Some((directive, _)) = connect {
                        known.cite("pool", StatementOrigin::Directive(directive.number));
                    }
                    return Some(name);
                }
                Some(_) if attempt < 100 => {}
                Some(_) => return None,
                None => {
                    if made.get("servers").is_none_or(|servers| *servers == DraftValue::List(Vec::new())) {
                        let why = "its upstream has no server";
                        self.note(pass, RemarkKind::Refused, why, "name one in `servers`");
                        return None;
                    }
                    self.sheet.upstreams.push(made);
                    if group.is_some() && name != base {
                        let why = "its servers are a separate upstream here, since locations reach them with \
                                   other options: connections and failures are counted for each";
                        self.note(pass, RemarkKind::Differs, why, "");
                    }
                    return Some(name);
                }
            }
        }
        None
    }

    /// Returns an upstream without its name and its connect timeout.
    fn draft_upstream(
        &mut self,
        target: &PassTarget,
        group: Option<&'s Directive>,
        (pass, scope): (&'s Directive, &BlockScope<'s>),
    ) -> DraftTable {
        let tls = self.server_tls(target, scope);
        let is_grpc = pass.name == "grpc_pass";
        let mut made = DraftTable::new("", group.map(from).unwrap_or_else(|| from(pass)));
        match group {
            Some(group) => self.group(group, target.scheme, &mut made),
            None => {
                let server = DraftValue::List(vec![url(target.scheme, &target.host).into()]);
                made.set("servers", server, from(pass));
            }
        }
        if is_grpc {
            made.set("protocol", "h2", from(pass));
        }
        if let Some((scripts, origins)) = &target.scripts {
            made.set("fastcgi", scripts.clone(), origins.clone());
        }
        for (key, value, origins) in tls {
            made.extend("tls", (key, value), origins);
        }
        if let Some(host) = &target.host_field {
            let why = vec![StatementOrigin::Default("the Host that nginx sends there")];
            made.extend("host", ("set", host.as_str().into()), why);
        }
        made
    }

    /// Returns the connect timeout of a target's servers, unless it is the global one.
    fn connect_time(&mut self, pass: &Directive, scope: &BlockScope<'s>) -> Option<(&'s Directive, String)> {
        let kind = kind_of(pass);
        let directive = scope.one(&format!("{kind}_connect_timeout"))?;
        let Some(time @ 1..=86_400_000) = values::milliseconds(directive.word(0)) else {
            self.unread_value(directive);
            return None;
        };
        let time = written::duration(time);
        if scope.is_outermost(directive) && kind == "proxy" {
            self.once("[timeouts]", "upstream_connect", time, directive);
            return None;
        }
        Some((directive, time))
    }

    pub(super) fn group(&mut self, group: &'s Directive, scheme: &str, made: &mut DraftTable) {
        for directive in group.inner() {
            match directive.name.as_str() {
                "server" => self.member(directive, scheme, made),
                "least_conn" => made.set("balance", "least-connections", from(directive)),
                "ip_hash" => made.set("balance", "client-address", from(directive)),
                "random" => {
                    made.set("balance", "two-choices", from(directive));
                    if directive.word(0) != "two" {
                        let why = "of two random servers the less busy one is taken";
                        self.note(directive, RemarkKind::Differs, why, "");
                    }
                }
                "hash" => self.hash(directive, made),
                "least_time" => made.set("balance", "response-time", from(directive)),
                _ => {}
            }
        }
    }

    fn hash(&mut self, directive: &'s Directive, made: &mut DraftTable) {
        let key = match directive.word(0) {
            "$remote_addr" | "$binary_remote_addr" => Some("client".to_owned()),
            "$request_uri" | "$uri" => Some("path".to_owned()),
            "$host" | "$http_host" => Some("host".to_owned()),
            variable => {
                let name = variable.trim_start_matches('$');
                let header =
                    name.strip_prefix("http_").map(|field| format!("header:{}", values::field_name(field)));
                header
                    .or_else(|| name.strip_prefix("cookie_").map(|cookie| format!("cookie:{cookie}")))
                    .or_else(|| name.strip_prefix("arg_").map(|argument| format!("query:{argument}")))
                    .filter(|_| variable.matches('$').count() == 1)
            }
        };
        let Some(key) = key else {
            let instead = "`hash_key` takes client, header, cookie, query, path, host or basic-user";
            return self.note(
                directive,
                RemarkKind::Refused,
                "servers cannot be chosen by this key",
                instead,
            );
        };
        made.set("balance", "consistent-hash", from(directive));
        made.set("hash_key", key, from(directive));
        if directive.word(1) != "consistent" {
            self.note(
                directive,
                RemarkKind::Differs,
                "keys are spread by a consistent hash: to other servers than nginx",
                "",
            );
        }
        if directive.word(0) == "$request_uri" {
            self.note(directive, RemarkKind::Differs, "the path is hashed, without the query", "");
        }
    }

    fn member(&mut self, server: &'s Directive, scheme: &str, made: &mut DraftTable) {
        let mut pairs = vec![("url".to_owned(), DraftValue::from(url(scheme, server.word(0))))];
        for word in server.words.iter().skip(1) {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let number = value.parse::<u64>().ok();
            match (name, number) {
                ("weight", Some(weight)) => {
                    pairs.push(("weight".to_owned(), DraftValue::Number(weight.min(1000))));
                }
                ("backup", _) => pairs.push(("priority".to_owned(), DraftValue::Number(1))),
                ("down", _) => pairs.push(("down".to_owned(), true.into())),
                ("max_conns", Some(most @ 1..)) => {
                    pairs.push(("max_requests".to_owned(), DraftValue::Number(most.min(1_000_000))));
                }
                ("max_conns", _) | ("resolve", _) => {}
                ("max_fails", Some(0)) => self.eject(server, ("failures_in_a_row", "off".into()), made),
                ("max_fails", Some(most)) => {
                    self.eject(server, ("failures_in_a_row", DraftValue::Number(most.min(1_000_000))), made);
                }
                ("fail_timeout", _) => match values::milliseconds(value) {
                    Some(time @ 10..=3_600_000) => {
                        self.eject(server, ("base", written::duration(time).into()), made);
                    }
                    _ => self.note(
                        server,
                        RemarkKind::Differs,
                        "fail_timeout is not from 10 ms to an hour: it is left out",
                        "",
                    ),
                },
                ("slow_start", _) => {
                    if let Some(time) = values::milliseconds(value) {
                        made.set("slow_start", written::duration(time.min(3_600_000)), from(server));
                    }
                }
                _ => {
                    let why = format!("{word} has no counterpart");
                    self.note(
                        server,
                        RemarkKind::Differs,
                        &why,
                        "see [upstream.NAME] in docs/configuration.md",
                    );
                }
            }
        }
        let value = if pairs.len() == 1 { pairs.remove(0).1 } else { DraftValue::Table(pairs) };
        made.push("servers", value, from(server));
    }

    /// Sets an ejection option. It is common to all servers of an upstream: the first value wins.
    fn eject(&mut self, server: &'s Directive, (key, value): (&str, DraftValue), made: &mut DraftTable) {
        match made.inner("eject", key) {
            Some(known) if *known != value => {
                let why =
                    "max_fails and fail_timeout are one rule for all servers of an upstream: the first holds";
                self.note(server, RemarkKind::Differs, why, "");
            }
            Some(_) => {}
            None => made.extend("eject", (key, value), from(server)),
        }
    }

    /// Translates `proxy_pass` with a path, which replaces the location's match.
    fn uri(
        &mut self,
        pass: &'s Directive,
        target: &AskedServers,
        location: &Location<'s>,
        entry: &mut RouteEntry,
    ) {
        if let AskedPath::Fixed(path) = &target.path {
            if entry.path.starts_with('/') {
                entry.options.extend("rewrite", ("pattern", ".*".into()), Vec::new());
            }
            return entry.options.extend("rewrite", ("path", path.as_str().into()), from(pass));
        }
        if let Some(rewrites) = without_prefix(location) {
            let origins = rewrites.iter().map(|rewrite| StatementOrigin::Directive(rewrite.number));
            entry.options.extend("rewrite", ("path", "/".into()), origins.collect());
            let why = vec![StatementOrigin::Default("nginx maps nothing of servers with variables")];
            entry.options.set("location", false, why.clone());
            return entry.options.extend("cookies", ("path", false.into()), why);
        }
        let rewrites = location.scope.here("rewrite").filter(|rewrite| !branches::is_redirect(rewrite));
        if let Some(rewrite) = rewrites {
            let pattern = written::expression(rewrite.word(0), false);
            let to = self.template(rewrite.word(1).trim_end_matches('?'), &location.scope, entry);
            match (pattern, to, rewrite.word(2)) {
                (Ok(pattern), Ok(to), "break" | "") if to.starts_with('/') && !to.contains('?') => {
                    if rewrite.word(1).ends_with('?') {
                        let why = "the query stays, which nginx leaves out";
                        self.note(rewrite, RemarkKind::Differs, why, "have the server ignore it");
                    }
                    entry.options.extend("rewrite", ("pattern", pattern.into()), from(rewrite));
                    entry.options.extend("rewrite", ("path", to.into()), Vec::new());
                }
                _ => {
                    let why = "only `rewrite EXPRESSION PATH break` is taken over where a server is asked";
                    self.note(
                        rewrite,
                        RemarkKind::Refused,
                        why,
                        "write `rewrite = { pattern = \"…\", path = \"…\" }`",
                    );
                }
            }
            return;
        }
        if let (AskedPath::Joined(uri), Some(path)) = (&target.path, location.matching.path()) {
            self.joined(pass, (uri, path), location, entry);
        }
    }

    /// Replaces the path of a location by that of `proxy_pass`. The rest is sent as nginx has read it.
    fn joined(
        &mut self,
        pass: &'s Directive,
        (uri, path): (&str, &str),
        location: &Location<'s>,
        entry: &mut RouteEntry,
    ) {
        if uri.contains('?') {
            let (why, instead) = ("a path with a query cannot be inserted", "leave the query out");
            return self.note(pass, RemarkKind::Refused, why, instead);
        }
        let is_exact = matches!(location.matching, LocationMatch::Exact(_));
        let merges = location.scope.one("merge_slashes").is_none_or(|merges| merges.word(0) != "off");
        if uri == path && !is_exact && !merges {
            return;
        }
        let to = match () {
            () if is_exact => uri.to_owned(),
            () if entry.path.starts_with('~') => format!("{}$1", uri.replace('$', "$$")),
            () => {
                // `location /` with `http://server/v1` makes `/v1x` of `/x`.
                if entry.path == "/" && !uri.ends_with('/') {
                    entry.path = "/*".to_owned();
                }
                uri.to_owned()
            }
        };
        entry.options.extend("rewrite", ("path", to.into()), from(pass));
        if !is_exact && !entry.path.starts_with('~') && merges {
            let why = StatementOrigin::Default("nginx sends a path as it has read it");
            entry.options.extend("rewrite", ("normalize", true.into()), vec![why]);
        }
    }

    fn request_headers(&mut self, target: &AskedServers, scope: &BlockScope<'s>, entry: &mut RouteEntry) {
        let mut has_host = false;
        let all: Vec<_> =
            scope.all("proxy_set_header").into_iter().chain(scope.all("grpc_set_header")).collect();
        for set in all {
            let (name, text) = (set.word(0).to_ascii_lowercase(), set.word(1));
            match name.as_str() {
                "host" => {
                    has_host = true;
                    self.host(set, target, scope, entry);
                }
                "x-forwarded-for"
                    if text.contains("$proxy_add_x_forwarded_for") || text == "$remote_addr" =>
                {
                    self.note(
                        set,
                        RemarkKind::NeedsNothing,
                        "servers always get X-Forwarded-For and Forwarded",
                        "",
                    );
                }
                name if OF_THE_CONNECTION.contains(&name) => {
                    let why = "messages are framed, and connections kept, without an option";
                    self.note(set, RemarkKind::NeedsNothing, why, "");
                }
                "upgrade" | "connection" => {
                    let why = "upgrades are forwarded, and connections to servers are kept open";
                    self.note(set, RemarkKind::NeedsNothing, why, "");
                }
                name if BY_ITSELF.contains(&name) && text.starts_with('$') && text != "$server_name" => {
                    self.note(set, RemarkKind::NeedsNothing, "servers always get this field", "");
                }
                "accept-encoding" if text.is_empty() => {
                    self.header("request_headers", "set", set.word(0), String::new(), set, entry);
                }
                _ if !access::is_field_name(&name) => {
                    self.note(
                        set,
                        RemarkKind::Refused,
                        "it is no name of a field",
                        "write one in `request_headers`",
                    );
                }
                // `question` has the authentication server send it.
                _ if questions::vouched(set, scope).is_some() => {}
                _ => match self.template(text, scope, entry) {
                    Ok(value) => self.header("request_headers", "set", set.word(0), value, set, entry),
                    Err(why) => {
                        let why = format!("{why}; the client's own field is removed");
                        let instead = "write the value, or a variable of docs/configuration.md";
                        self.note(set, RemarkKind::Refused, &why, instead);
                        self.header("request_headers", "set", set.word(0), String::new(), set, entry);
                    }
                },
            }
        }
        if let Some(host) = target.host.as_deref().filter(|_| !has_host) {
            let default = vec![StatementOrigin::Default("nginx sends the host of proxy_pass")];
            entry.options.extend("rewrite", ("host", host.into()), default);
        }
    }

    fn host(
        &mut self,
        set: &'s Directive,
        target: &AskedServers,
        scope: &BlockScope<'s>,
        entry: &mut RouteEntry,
    ) {
        let has_usual_ports = self.doors.iter().all(super::Door::has_usual_port);
        let host = match set.word(1) {
            "$http_host" => {
                return self.note(set, RemarkKind::NeedsNothing, "servers get the Host of the client", "");
            }
            "$host" if has_usual_ports => {
                return self.note(set, RemarkKind::NeedsNothing, "servers get the Host of the client", "");
            }
            // Without the client's port.
            "$host" => "$host".to_owned(),
            "$host:$server_port" | "$host:$proxy_port" => {
                return self.note(
                    set,
                    RemarkKind::NeedsNothing,
                    "servers get the Host of the client, with its port",
                    "",
                );
            }
            "$proxy_host" => target.host.clone().unwrap_or_default(),
            other => match self.template(other, scope, entry) {
                Ok(host) => host,
                Err(why) => {
                    return self.note(
                        set,
                        RemarkKind::Refused,
                        &why,
                        "write the host in `host` of `rewrite`",
                    );
                }
            },
        };
        entry.options.extend("rewrite", ("host", host.into()), from(set));
    }

    pub(super) fn timeouts(&mut self, pass: &Directive, scope: &BlockScope<'s>, entry: &mut RouteEntry) {
        let kind = kind_of(pass);
        for (name, keys) in
            [("read", &["upstream_first_byte", "upstream_body"][..]), ("send", &["upstream_send"])]
        {
            let Some(directive) = scope.one(&format!("{kind}_{name}_timeout")) else { continue };
            let Some(time @ 1..) = values::milliseconds(directive.word(0)) else {
                self.unread_value(directive);
                continue;
            };
            let waits = written::duration(time.min(86_400_000));
            if time > 86_400_000 {
                self.note(directive, RemarkKind::Differs, "the longest wait is one day", "");
            }
            for key in keys {
                entry.options.extend("timeouts", (key, waits.as_str().into()), from(directive));
            }
            let upgrades =
                scope.all("proxy_set_header").iter().any(|set| set.word(0).eq_ignore_ascii_case("upgrade"));
            if name == "read" && upgrades {
                entry.options.extend(
                    "timeouts",
                    ("tunnel_idle", written::duration(time.min(365 * 86_400_000)).into()),
                    Vec::new(),
                );
            }
        }
    }

    fn retries(&mut self, scope: &BlockScope<'s>, entry: &mut RouteEntry) {
        if let Some(next) = scope.one("proxy_next_upstream") {
            let mut on: Vec<DraftValue> = Vec::new();
            for word in &next.words {
                match word.as_str() {
                    "off" => {
                        entry.options.extend("retry", ("attempts", DraftValue::Number(1)), from(next));
                        return;
                    }
                    "error" => on.extend(["connect".into(), "reset".into()]),
                    "timeout" => on.push("timeout".into()),
                    "non_idempotent" => {
                        entry.options.extend("retry", ("non_idempotent", true.into()), Vec::new());
                    }
                    "invalid_header" | "updating" => {}
                    status => match status.strip_prefix("http_").and_then(|code| code.parse::<u64>().ok()) {
                        Some(code) => on.push(DraftValue::Number(code)),
                        None => self.unread_value(next),
                    },
                }
            }
            entry.options.extend("retry", ("on", DraftValue::List(on)), from(next));
        }
        if let Some(tries) = scope.one("proxy_next_upstream_tries") {
            match tries.word(0).parse::<u64>() {
                Ok(0) => self.note(
                    tries,
                    RemarkKind::Differs,
                    "three attempts are the default",
                    "write `attempts` of `retry`",
                ),
                Ok(count) => {
                    entry.options.extend(
                        "retry",
                        ("attempts", DraftValue::Number(count.min(16))),
                        from(tries),
                    );
                }
                Err(_) => self.unread_value(tries),
            }
        }
        if let Some(within) = scope.one("proxy_next_upstream_timeout") {
            match values::milliseconds(within.word(0)) {
                Some(0) => self.note(
                    within,
                    RemarkKind::Differs,
                    "no attempt starts after ten seconds",
                    "write `within` of `retry`",
                ),
                Some(time) => {
                    let time = written::duration(time.min(3_600_000));
                    entry.options.extend("retry", ("within", time.into()), from(within));
                }
                None => self.unread_value(within),
            }
        }
    }

    fn server_tls(
        &mut self,
        target: &PassTarget,
        scope: &BlockScope<'s>,
    ) -> Vec<(&'static str, DraftValue, Vec<StatementOrigin>)> {
        let mut options: Vec<(&str, DraftValue, Vec<StatementOrigin>)> = Vec::new();
        if target.scheme != "https" {
            return options;
        }
        let names = [
            ("proxy_ssl_trusted_certificate", "ca"),
            ("proxy_ssl_certificate", "cert"),
            ("proxy_ssl_certificate_key", "key"),
            ("proxy_ssl_name", "name"),
        ];
        for (name, key) in names {
            let Some(directive) = scope.one(name) else { continue };
            if directive.word(0).contains('$') {
                let instead = "leave it out: the host of the server is the default";
                self.note(directive, RemarkKind::Refused, "it has no variables", instead);
            } else {
                options.push((key, directive.word(0).into(), from(directive)));
            }
        }
        match scope.one("proxy_ssl_verify") {
            Some(verify) if values::is_on(verify.word(0)) => {
                self.note(
                    verify,
                    RemarkKind::NeedsNothing,
                    "certificates of servers are always verified",
                    "",
                );
            }
            Some(verify) => options.push(("verify", false.into(), from(verify))),
            None => {
                if let Some(pass) = scope.here("proxy_pass").or_else(|| scope.here("grpc_pass")) {
                    let why = "the certificate of the server is verified, which nginx does not by default";
                    let instead = "name its `ca` in `tls` of the upstream, or set `verify = false`";
                    self.note(pass, RemarkKind::Differs, why, instead);
                }
            }
        }
        for name in [
            "proxy_ssl_server_name",
            "proxy_ssl_protocols",
            "proxy_ssl_ciphers",
            "proxy_ssl_session_reuse",
            "proxy_ssl_verify_depth",
        ] {
            if let Some(directive) = scope.one(name) {
                self.note(
                    directive,
                    RemarkKind::NeedsNothing,
                    "the name is sent, and versions and ciphers have secure defaults",
                    "",
                );
            }
        }
        options
    }
}

pub(super) fn url(scheme: &str, address: &str) -> String {
    match address.strip_prefix("unix:") {
        // nginx also accepts `unix://` before the path.
        Some(path) => {
            let scheme = if scheme == "fcgi" { scheme } else { "http" };
            format!("{scheme}+unix:/{}", path.trim_end_matches(':').trim_start_matches('/'))
        }
        // nginx takes the port of HTTP.
        None if scheme == "fcgi" && !has_port(address) => format!("fcgi://{address}:80"),
        None => format!("{scheme}://{address}"),
    }
}

/// The directives that remove the prefix of a location from the path as it was sent:
/// `rewrite ^ $request_uri; rewrite ^/prefix(/.*) $1 break; proxy_pass http://server$uri;`.
fn without_prefix<'s>(location: &Location<'s>) -> Option<[&'s Directive; 2]> {
    let LocationMatch::Prefix(path) = &location.matching else { return None };
    let mut rewrites = location.scope.own().iter().filter(|directive| directive.name == "rewrite");
    let (whole, rest, None) = (rewrites.next()?, rewrites.next()?, rewrites.next()) else { return None };
    let is_it =
        |rewrite: &Directive, words: [&str; 3]| (0..3).all(|index| rewrite.word(index) == words[index]);
    let prefix = format!("^{}(/.*)", path.strip_suffix('/')?);
    let pass = location.scope.here("proxy_pass")?;
    (is_it(whole, ["^", "$request_uri", ""])
        && is_it(rest, [prefix.as_str(), "$1", "break"])
        && pass.word(0).ends_with("$uri"))
    .then_some([whole, rest])
}

/// Writes a path for all requests. The query of a request is left out, unless the path ends with it.
pub(super) fn whole_path(uri: &str) -> String {
    if uri.contains('?') { uri.to_owned() } else { format!("{uri}?") }
}

fn has_port(address: &str) -> bool {
    address.rsplit_once(':').is_some_and(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The beginning of the names of directives about requests to a server.
fn kind_of(pass: &Directive) -> &str {
    pass.name.strip_suffix("_pass").unwrap_or("proxy")
}

/// Whether nginx sends a host of its own: not for a socket.
pub(super) fn has_host(target: &PassTarget) -> bool {
    !target.host.starts_with("unix:") && !target.host.starts_with('/')
}

pub(super) fn without_usual_port(target: &PassTarget) -> String {
    let port = if target.scheme == "https" { ":443" } else { ":80" };
    target.host.strip_suffix(port).unwrap_or(&target.host).to_owned()
}

/// Parses the target of `proxy_pass`, or returns why it is unsupported and what to do.
pub(super) fn target(word: &str, directive: &str) -> Result<PassTarget, (&'static str, &'static str)> {
    let (scheme, rest) = match word.split_once("://") {
        Some(("http" | "grpc", rest)) => ("http", rest),
        Some(("https" | "grpcs", rest)) => ("https", rest),
        None if directive == "grpc_pass" => ("http", word),
        _ => return Err(("it has no scheme http:// or https://", "name the server in `servers`")),
    };
    let rest = rest.strip_suffix("$request_uri").unwrap_or(rest);
    if rest.contains('$') {
        let instead = "name the servers in [upstream.NAME], and choose among them by [[route]]";
        return Err(("a server is not chosen by a variable", instead));
    }
    if let Some(socket) = rest.strip_prefix("unix:") {
        let (path, uri) = match socket.split_once(':') {
            Some((path, uri)) => (path, (!uri.is_empty()).then(|| uri.to_owned())),
            None => (socket, None),
        };
        return Ok(PassTarget { scheme, host: format!("unix:{path}"), uri, scripts: None, host_field: None });
    }
    let (host, uri) = match rest.find('/') {
        Some(slash) => (&rest[..slash], Some(rest[slash..].to_owned())),
        None => (rest, None),
    };
    if host.is_empty() || host.contains([' ', '@', '?', '#']) {
        return Err(("it names no host", "name the server in `servers`"));
    }
    Ok(PassTarget { scheme, host: host.to_owned(), uri, scripts: None, host_field: None })
}
