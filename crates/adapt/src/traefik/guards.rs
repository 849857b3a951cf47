//! Middlewares for fields and access: `headers`, `basicAuth`, `forwardAuth`, `ipAllowList`, `rateLimit`.

use super::middlewares::MiddlewareDraft;
use super::paths::escaped;
use super::{TraefikAdapter, find, from, is_on, milliseconds, numbers, text};
use crate::draft::{DraftValue, StatementOrigin};
use crate::source::Directive;
use crate::values::{self, duration};

/// Fields that `headers` sets by options.
const FIELDS: [(&str, &str); 6] = [
    ("contentsecuritypolicy", "Content-Security-Policy"),
    ("contentsecuritypolicyreportonly", "Content-Security-Policy-Report-Only"),
    ("customframeoptionsvalue", "X-Frame-Options"),
    ("custombrowserxssvalue", "X-XSS-Protection"),
    ("referrerpolicy", "Referrer-Policy"),
    ("permissionspolicy", "Permissions-Policy"),
];
const SWITCHES: [(&str, &str, &str); 3] = [
    ("framedeny", "X-Frame-Options", "DENY"),
    ("contenttypenosniff", "X-Content-Type-Options", "nosniff"),
    ("browserxssfilter", "X-XSS-Protection", "1; mode=block"),
];

impl<'s> TraefikAdapter<'s> {
    pub(super) fn headers(&mut self, kind: &'s Directive, made: &mut MiddlewareDraft<'_>) {
        for option in kind.inner() {
            let name = option.name.to_ascii_lowercase();
            let is_on = option.word(0).eq_ignore_ascii_case("true");
            let field = FIELDS.iter().find(|(known, _)| *known == name);
            let switch = SWITCHES.iter().find(|(known, ..)| *known == name);
            match (name.as_str(), field, switch) {
                (_, Some((_, field)), _) => response_field(made, field, option.word(0), option),
                (_, _, Some((_, field, value))) if is_on => {
                    // The custom value takes precedence.
                    if !(name == "framedeny" && find(kind, "customFrameOptionsValue").is_some()) {
                        response_field(made, field, value, option);
                    }
                }
                ("customrequestheaders", ..) => self.custom(option, "request_headers", made),
                ("customresponseheaders", ..) => self.custom(option, "response_headers", made),
                (name, ..) if name.starts_with("accesscontrol") => self.cors(option, name, made),
                ("stsseconds", ..) => self.hsts(kind, option, made),
                ("stsincludesubdomains" | "stspreload" | "forcestsheader", ..) => {
                    self.sheet.needless(option.number, "it is part of what `stsSeconds` says");
                }
                ("addvaryheader", ..) => {
                    self.sheet.needless(option.number, "`cors` adds Vary where it is needed");
                }
                ("sslproxyheaders" | "hostsproxyheaders", ..) => {
                    let instead = "`trusted_proxies` at the top names those in front of this one";
                    self.refuse_all(option, "fields of clients do not say which scheme they use", instead);
                }
                ("allowedhosts", ..) => {
                    let instead = "name them in `host` of the route: other hosts get 404";
                    self.refuse_all(option, "a route has the hosts that it serves", instead);
                }
                _ if !is_on && option.word(0).eq_ignore_ascii_case("false") => {
                    self.sheet.needless(option.number, "it is off");
                }
                _ => {
                    let instead = "write `redirect_to_https` or `response_headers`";
                    self.refuse_all(option, "Traefik has left it behind as well", instead);
                }
            }
        }
    }

    /// Translates fields by name; an empty value removes the field.
    fn custom(&mut self, list: &'s Directive, option: &str, made: &mut MiddlewareDraft<'_>) {
        for field in list.inner() {
            let value = field.word(0);
            if value.is_empty() {
                made.outcome.options.listed(option, "remove", &field.name, from(field));
            } else if option == "request_headers" && field.name.eq_ignore_ascii_case("host") {
                made.for_servers.extend("rewrite", ("host", escaped(value).into()), from(field));
            } else {
                made.outcome.options.field(option, "set", &field.name, &escaped(value), from(field));
            }
        }
    }

    fn cors(&mut self, option: &'s Directive, name: &str, made: &mut MiddlewareDraft<'_>) {
        let words = || DraftValue::from(option.words.clone());
        let pair = match name {
            "accesscontrolalloworiginlist" => ("origins", words()),
            "accesscontrolallowmethods" => ("methods", words()),
            "accesscontrolallowheaders" => ("headers", words()),
            "accesscontrolexposeheaders" => ("expose", words()),
            "accesscontrolallowcredentials" => {
                ("credentials", option.word(0).eq_ignore_ascii_case("true").into())
            }
            "accesscontrolmaxage" => match option.word(0).parse::<u64>() {
                Ok(seconds) => ("max_age", duration(seconds.min(86_400) * 1000).into()),
                Err(_) => return self.unread(option, "a number of seconds"),
            },
            _ => {
                let instead = "name origins, or `https://*.example.com`, in `cors`";
                return self.refuse_all(option, "origins have no expressions", instead);
            }
        };
        made.outcome.options.extend("cors", pair, from(option));
    }

    fn hsts(&mut self, kind: &'s Directive, option: &'s Directive, made: &mut MiddlewareDraft<'_>) {
        let Ok(seconds) = option.word(0).parse::<u64>() else {
            return self.unread(option, "a number of seconds");
        };
        if seconds == 0 || !(made.has_tls || is_on(kind, "forceSTSHeader")) {
            return self.sheet.needless(option.number, "it is sent over TLS alone");
        }
        let mut value = format!("max-age={seconds}");
        if is_on(kind, "stsIncludeSubdomains") {
            value.push_str("; includeSubDomains");
        }
        if is_on(kind, "stsPreload") {
            value.push_str("; preload");
        }
        response_field(made, "Strict-Transport-Security", &value, option);
    }

    /// Translates `basicAuth`. Vanward reads the users from a file.
    pub(super) fn basic_auth(
        &mut self,
        kind: &'s Directive,
        definition: &'s Directive,
        made: &mut MiddlewareDraft<'_>,
    ) {
        let own = format!("./{}.users", crate::sheet::name_of(&definition.name));
        let file = text(kind, "usersFile");
        let mut origins = Vec::new();
        if let Some(users) = find(kind, "users") {
            origins.extend(from(users));
            let instead = format!(
                "write the users of this line into {}, one a line",
                file.map_or(own.as_str(), |(file, _)| file)
            );
            self.sheet.differs(users.number, "users are listed in a file", &instead);
        }
        origins.extend(file.map(|(_, place)| StatementOrigin::Directive(place.number)));
        let realm = text(kind, "realm");
        origins.extend(realm.map(|(_, place)| StatementOrigin::Directive(place.number)));
        let pairs = [
            ("users".to_owned(), DraftValue::from(file.map_or(own.as_str(), |(file, _)| file))),
            ("realm".to_owned(), realm.map_or("traefik", |(realm, _)| realm).into()),
        ];
        made.outcome.options.set("auth", DraftValue::Table(pairs.into()), origins);
        if let Some(remove) = find(kind, "removeHeader") {
            if is_on(kind, "removeHeader") {
                made.outcome.options.listed("request_headers", "remove", "Authorization", from(remove));
            } else {
                self.sheet.needless(remove.number, "that is the default");
            }
        }
        if let Some((field, place)) = text(kind, "headerField") {
            made.outcome.options.field("request_headers", "set", field, "$user", from(place));
        }
    }

    pub(super) fn forward_auth(&mut self, kind: &'s Directive, made: &mut MiddlewareDraft<'_>) {
        let (url, place) = text(kind, "address").unwrap_or(("", kind));
        let (base, path) = match url
            .split_once("://")
            .and_then(|(_, rest)| rest.find('/').map(|at| at + url.len() - rest.len()))
        {
            Some(at) => (&url[..at], &url[at..]),
            None => (url, "/"),
        };
        let Some(name) = self.server_alone(base, place, find(kind, "tls")) else {
            let instead = "write `forward_auth` with a separate upstream";
            self.refuse_all(kind, "its address is no URL of a server", instead);
            return made.refuse(from(place));
        };
        let mut pairs = vec![("upstream".to_owned(), name.into()), ("path".to_owned(), path.into())];
        let mut origins = from(place);
        for option in kind.inner() {
            let words = DraftValue::from(option.words.clone());
            match option.name.to_ascii_lowercase().as_str() {
                "address" | "tls" => continue,
                "authresponseheaders" => pairs.push(("copy_headers".to_owned(), words)),
                "authrequestheaders" => pairs.push(("request_headers".to_owned(), words)),
                "headerfield" => pairs.push(("user_header".to_owned(), option.word(0).into())),
                "addauthcookiestoresponse" => {
                    pairs.push(("set_cookie".to_owned(), true.into()));
                    self.sheet.differs(option.number, "all cookies of its answer are added", "");
                }
                "trustforwardheader" => {
                    let instead = "`trusted_proxies` at the top names those whose fields count";
                    self.sheet.differs(
                        option.number,
                        "fields of clients about the request are dropped",
                        instead,
                    );
                    continue;
                }
                "authresponseheadersregex" => {
                    self.sheet.refuse(
                        option.number,
                        "fields are named, not matched",
                        "list them in `copy_headers`",
                    );
                    continue;
                }
                "maxbodysize"
                | "maxresponsebodysize"
                | "preserverequestmethod"
                | "preservelocationheader" => {
                    let why = "it gets GET requests, and its response is forwarded unchanged";
                    self.sheet.differs(option.number, why, "");
                    continue;
                }
                _ if option.word(0).eq_ignore_ascii_case("false") => {
                    self.sheet.needless(option.number, "it is off");
                    continue;
                }
                _ => {
                    let instead = "see `forward_auth` in docs/configuration.md";
                    self.refuse_all(option, "it gets only the header section of a request", instead);
                    continue;
                }
            }
            origins.extend(from(option));
        }
        made.outcome.options.set("forward_auth", DraftValue::Table(pairs), origins);
    }

    pub(super) fn allow_list(&mut self, kind: &'s Directive, made: &mut MiddlewareDraft<'_>) {
        let range = find(kind, "sourceRange");
        let Some(range) = range.filter(|range| range.words.iter().all(|network| values::is_network(network)))
        else {
            self.refuse_all(kind, "it has values other than networks", "write `allow = [\"10.0.0.0/8\"]`");
            return made.refuse(from(kind));
        };
        made.outcome.options.set("allow", range.words.clone(), from(range));
        if let Some((word, place)) = text(kind, "rejectStatusCode").filter(|(word, _)| *word != "403") {
            self.sheet.differs(place.number, &format!("others get 403, not {word}"), "");
        } else if let Some((_, place)) = text(kind, "rejectStatusCode") {
            self.sheet.needless(place.number, "others get 403");
        }
        self.ip_strategy(kind);
    }

    /// Translates how Traefik determines the client behind other proxies.
    fn ip_strategy(&mut self, block: &'s Directive) {
        let Some(strategy) = find(block, "ipStrategy") else { return };
        for number in numbers(strategy) {
            let why = "`trusted_proxies` decides the client's address everywhere";
            self.sheet.differs(number, why, "name the proxies in front of this one there");
        }
    }

    pub(super) fn rate_limit(&mut self, kind: &'s Directive, made: &mut MiddlewareDraft<'_>) {
        let number = |name: &str| text(kind, name).and_then(|(word, _)| word.parse::<u64>().ok());
        let Some(average @ 1..) = number("average") else {
            return self.needless_all(kind, "without `average` there is no limit");
        };
        let period =
            text(kind, "period").map_or(Some(1000), |(word, _)| milliseconds(word)).unwrap_or(1000).max(1);
        let rate = match period {
            1000 => format!("{average}/s"),
            60_000 => format!("{average}/m"),
            3_600_000 => format!("{average}/h"),
            other => format!("{average}/{}", duration(other)),
        };
        let mut pairs = vec![("rate".to_owned(), DraftValue::from(rate))];
        pairs.push((
            "burst".to_owned(),
            DraftValue::Number(number("burst").unwrap_or(1).clamp(1, u64::from(u32::MAX))),
        ));
        if let Some(source) = find(kind, "sourceCriterion") {
            if let Some((name, _)) = text(source, "requestHeaderName") {
                pairs.push(("key".to_owned(), format!("header:{name}").into()));
            } else if is_on(source, "requestHost") {
                pairs.push(("key".to_owned(), "host".into()));
            }
            self.ip_strategy(source);
        }
        if let Some(redis) = find(kind, "redis") {
            let instead = "write [redis], and `shared` in the `rate_limit`: docs/fleet.md";
            self.refuse_all(redis, "Redis is configured once, for all limits", instead);
        }
        let mut origins = Vec::new();
        for option in kind.inner().iter().filter(|option| !option.name.eq_ignore_ascii_case("redis")) {
            origins.extend(numbers(option).into_iter().map(StatementOrigin::Directive));
        }
        made.outcome.options.set("rate_limit", DraftValue::Table(pairs), origins);
    }
}

impl<'s> TraefikAdapter<'s> {
    /// Translates `inFlightReq`, which counts by host unless it has a source.
    pub(super) fn in_flight(&mut self, kind: &'s Directive, made: &mut MiddlewareDraft<'_>) {
        let amount = text(kind, "amount").and_then(|(word, _)| word.parse::<u32>().ok());
        let Some(amount @ 1..) = amount else {
            let instead = "`concurrency = { max = 20 }` of the route";
            self.refuse_all(kind, "it has no `amount` above 0", instead);
            return made.refuse(from(kind));
        };
        let source = find(kind, "sourceCriterion");
        let header = source.and_then(|source| text(source, "requestHeaderName"));
        let by = match (source, header) {
            (_, Some((name, _))) => format!("header:{name}"),
            (Some(source), None) if find(source, "ipStrategy").is_some() => "client".to_owned(),
            _ => "host".to_owned(),
        };
        if let Some(source) = source {
            self.ip_strategy(source);
        }
        let pairs = [("max".to_owned(), DraftValue::Number(amount.into())), ("by".to_owned(), by.into())];
        let origins = kind.inner().iter().flat_map(numbers).map(StatementOrigin::Directive).collect();
        made.outcome.options.set("concurrency", DraftValue::Table(pairs.into()), origins);
    }
}

fn response_field(made: &mut MiddlewareDraft<'_>, field: &str, value: &str, place: &Directive) {
    made.outcome.options.field("response_headers", "set", field, &escaped(value), from(place));
}
