//! Options that select the requests of a `[[route]]` or a `[[fault]]`, declared once.
//!
//! The syntax of the values is in `matching`.

use std::sync::Arc;

use ::route::{ClaimRules, HostRule, PathRule, RouteRule, ValueRule};
use expression::Expression;
use ipnet::IpNet;

use crate::document::reader::Reader;
use crate::option::condition::ConditionKind;
use crate::option::host::NETWORK_KIND;
use crate::option::kind::{At, List, Located, Maybe, Name, located};
use crate::option::matching::{FieldName, HOST_RULE, METHOD, PATH_RULE, ValueRuleKind, parameter_name};
use crate::option::pairs::{OneOrMany, Pair, Pairs, pair};
use crate::option::table::{Declared, key};
use crate::tables::listen::Listener;
use crate::tables::names::Names;
use crate::tables::upstream::sticky::COOKIE_NAME;

#[derive(Debug, Clone, Default)]
pub(crate) struct Requests {
    listener: Vec<Located<String>>,
    host: Vec<Located<HostRule>>,
    pub(crate) path: PathRule,
    methods: Vec<String>,
    headers: Vec<Pair<FieldName, ValueRule>>,
    cookie: Vec<Pair<String, ValueRule>>,
    query: Vec<Pair<String, ValueRule>>,
    when: Option<Arc<Expression>>,
    clients: Vec<IpNet>,
}

impl Requests {
    /// The rules for these conditions and claims: one for each host, or one for all.
    pub(crate) fn rules(
        &self,
        claims: ClaimRules,
        names: &Names<'_>,
        reader: &mut Reader<'_>,
    ) -> Vec<RouteRule> {
        let rule = RouteRule {
            listeners: self.listener.iter().filter_map(|name| names.listener(name, reader)).collect(),
            host: HostRule::Any,
            path: self.path.clone(),
            methods: self.methods.clone(),
            headers: self.headers.iter().map(|pair| (pair.name.0.clone(), pair.value.clone())).collect(),
            cookies: self.cookie.iter().map(|pair| (pair.name.clone(), pair.value.clone())).collect(),
            query: self.query.iter().map(|pair| (pair.name.clone(), pair.value.clone())).collect(),
            claims,
            when: self.when.clone(),
            clients: self.clients.clone(),
        };
        match self.host.as_slice() {
            [] => vec![rule],
            hosts => {
                hosts.iter().map(|host| RouteRule { host: host.value.clone(), ..rule.clone() }).collect()
            }
        }
    }

    /// The rule for connections, of which no request is known yet: only listener and client count, and any protocol is
    /// accepted.
    pub(crate) fn rule_of_connections(&self, names: &Names<'_>, reader: &mut Reader<'_>) -> RouteRule {
        let listeners = self.listener.iter().filter_map(|name| names.any_listener(name, reader)).collect();
        RouteRule { listeners, clients: self.clients.clone(), ..RouteRule::default() }
    }

    /// Whether requests with this method may match.
    pub(crate) fn has_method(&self, method: &str) -> bool {
        self.methods.is_empty() || self.methods.iter().any(|known| known == method)
    }

    pub(crate) fn listeners(&self) -> &[Located<String>] {
        &self.listener
    }

    /// Whether the conditions apply to some clients only.
    pub(crate) fn are_of_some_clients(&self) -> bool {
        !self.clients.is_empty()
    }

    /// The names of the written conditions that apply to requests only, not to connections.
    pub(crate) fn of_requests_alone(&self) -> impl Iterator<Item = &'static str> {
        let said = [
            ("host", !self.host.is_empty()),
            ("path", self.path != PathRule::default()),
            ("methods", !self.methods.is_empty()),
            ("headers", !self.headers.is_empty()),
            ("cookie", !self.cookie.is_empty()),
            ("query", !self.query.is_empty()),
            ("when", self.when.is_some()),
        ];
        said.into_iter().filter_map(|(option, is_said)| is_said.then_some(option))
    }

    /// Converts rules that differ only in their hosts back to parsed options, for printing.
    pub(crate) fn written(rules: &[RouteRule], listeners: &[Listener]) -> Self {
        let rule = rules.first().cloned().unwrap_or_default();
        let listener = |index: &usize| listeners.get(*index).map(|listener| located(listener.name.clone()));
        let is_for_any_host = rules.iter().any(|rule| rule.host == HostRule::Any);
        let hosts = if is_for_any_host { &[][..] } else { rules };
        Self {
            listener: rule.listeners.iter().filter_map(listener).collect(),
            host: hosts.iter().map(|rule| located(rule.host.clone())).collect(),
            path: rule.path,
            methods: rule.methods,
            headers: rule.headers.into_iter().map(|(name, value)| pair(FieldName(name), value)).collect(),
            cookie: rule.cookies.into_iter().map(|(name, value)| pair(name, value)).collect(),
            query: rule.query.into_iter().map(|(name, value)| pair(name, value)).collect(),
            when: rule.when,
            clients: rule.clients,
        }
    }
}

pub(crate) const LISTENER: Declared<Requests> = key!(
    "listener",
    OneOrMany(At(Name { expected: "the name of a [[listen]]" })),
    Requests.listener,
    "Listeners whose requests match, by name or address. Default: all.",
);

pub(crate) const HOST: Declared<Requests> = key!(
    "host",
    OneOrMany(At(HOST_RULE)),
    Requests.host,
    "Hosts that match, whatever the port and case: an exact name; `*.example.com` for every name below it, \
     not the name itself; or `~` and a regular expression that matches the whole host. Default: any \
     host.",
);

pub(crate) const PATH: Declared<Requests> = key!(
    "path",
    PATH_RULE,
    Requests.path,
    "Path prefix that matches, in whole segments: `/api` matches `/api` and `/api/x`, not `/apix`. \
     `/api*` matches every path that starts with this text, so also `/apix`; `/api/*` does not match `/api`. \
     `= /api` matches only that path; `~ /api/(.*)` is a regular expression that matches the whole path. \
     Paths are compared with escapes decoded and repeated slashes merged. Case matters, so take care \
     with servers that ignore it. A path that a server might read as that of another route is rejected \
     with 400: dot segments, backslashes, parameters as in `/admin;v=1/x`.",
);

pub(crate) const METHODS: Declared<Requests> =
    key!("methods", OneOrMany(METHOD), Requests.methods, "Methods that match. Default: any.",);

pub(crate) const HEADERS: Declared<Requests> = key!(
    "headers",
    Pairs {
        expected: "a table such as { X-Tenant = \"a\", X-Debug = true }",
        name: FieldName::read,
        print_name: FieldName::print,
        kind: ValueRuleKind,
    },
    Requests.headers,
    "Request fields that must match, all of them: by name, `true` for any value, a value, `\"a*\"` for a \
     prefix, or `\"~ regex\"`.",
);

pub(crate) const COOKIE: Declared<Requests> = key!(
    "cookie",
    Pairs {
        expected: "a table such as { canary = \"1\", session = true }",
        name: COOKIE_NAME.read,
        print_name: String::clone,
        kind: ValueRuleKind,
    },
    Requests.cookie,
    "Cookies of the request that must match, written like `headers`. Names are case-sensitive; of several \
     cookies with one name the first counts.",
);

pub(crate) const QUERY: Declared<Requests> = key!(
    "query",
    Pairs {
        expected: "a table such as { version = \"2\", debug = true }",
        name: parameter_name,
        print_name: String::clone,
        kind: ValueRuleKind,
    },
    Requests.query,
    "Query parameters that must match, written like `headers`.",
);

pub(crate) const WHEN: Declared<Requests> = key!(
    "when",
    Maybe(ConditionKind),
    Requests.when,
    "Condition that must hold, for all that the options above cannot express: `'request.method == \"GET\" && \
     !(\"X-Debug\" in request.headers)'`. See [conditions](conditions.md).",
);

pub(crate) const CLIENTS: Declared<Requests> = key!(
    "clients",
    List { kind: NETWORK_KIND, may_be_empty: true },
    Requests.clients,
    "Networks of clients that match. Default, also for an empty list: all. Use `allow` of routes to refuse \
     clients.",
);
