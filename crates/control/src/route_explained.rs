//! Explains which route a request takes, why, and with what result, for `vanward check --route` and the dashboard.
//! Sends nothing.

use std::fmt::Write;
use std::time::SystemTime;

use api::route::RouteOrder;
use config::{Action, ConcurrencyLimit, Config, DenyRule, Listener, Route};
use http1::HttpVersion;
use route::{
    AccessDecision, AccessList, Concurrency, Condition, Cors, ExplainedRule, Explanation, MapLookup, Miss,
    RequestFacts, RouteRule, RouteTable, RuleOutcome, TlsFacts, VariableValues,
};
use serde_json::{Value, json};

use crate::route_conditions::known_later;
use crate::{route_conditions, route_values};

struct ExplainTarget<'a> {
    is_https: bool,
    host: &'a str,
    port: Option<u16>,
    path: &'a str,
    query: Option<&'a str>,
}

impl<'a> ExplainTarget<'a> {
    fn parse(url: &'a str) -> Result<Self, String> {
        let refuse =
            |what: &str| format!("{url:?} {what}; write http://HOST/PATH, https://HOST/PATH or /PATH");
        if !url.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(refuse("has characters that must be percent-encoded (%XX)"));
        }
        let (scheme, rest) = match url.split_once("://") {
            Some((scheme, rest)) if !url.starts_with('/') => (Some(scheme), rest),
            _ => (None, url),
        };
        let is_https = match scheme {
            None | Some("http") => false,
            Some("https") => true,
            Some(_) => return Err(refuse("has an unsupported scheme")),
        };
        // RFC 9110 §4.2.5: a fragment is not sent.
        let rest = rest.split('#').next().unwrap_or_default();
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, target) = if scheme.is_some() { rest.split_at(end) } else { ("", rest) };
        if scheme.is_none() && !target.starts_with('/') || scheme.is_some() && authority.is_empty() {
            return Err(refuse("has no host"));
        }
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, Some(port.parse().map_err(|_| refuse("has an invalid port"))?))
            }
            _ => (authority, None),
        };
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (target, None),
        };
        Ok(Self { is_https, host, port, path: if path.is_empty() { "/" } else { path }, query })
    }

    fn scheme(&self) -> &'static str {
        if self.is_https { "https" } else { "http" }
    }

    /// Returns the listener with this name, or the first of the best fitting ones.
    fn listener(&self, config: &Config, wanted: Option<&str>) -> Result<usize, String> {
        let mut all = config.listeners.iter().enumerate().filter(|(_, listener)| listener.tcp.is_none());
        if let Some(wanted) = wanted {
            let is_wanted = |it: &Listener| it.name == wanted || it.address.to_string() == wanted;
            let found = all.clone().find(|(_, listener)| is_wanted(listener));
            let names: Vec<&str> = all.map(|(_, listener)| listener.name.as_str()).collect();
            let unknown = || format!("no listener is named {wanted:?}; there are {}", names.join(", "));
            return found.map(|(index, _)| index).ok_or_else(unknown);
        }
        let port = self.port.unwrap_or(if self.is_https { 443 } else { 80 });
        let fits = |listener: &Listener| {
            (listener.tls.is_some() == self.is_https, listener.address.port() == Some(port))
        };
        let first = all.next().ok_or("every listener has `tcp`, and such listeners use no routes")?;
        // Among equally good ones, the first.
        let best = all.fold(first, |best, next| if fits(next.1) > fits(best.1) { next } else { best });
        Ok(best.0)
    }
}

pub struct RouteExplained {
    pub text: String,
    pub json: Value,
    pub is_routed: bool,
}

/// Explains the result of a request under a configuration. Fails if the request is invalid.
pub fn explain_route(config: &Config, order: &RouteOrder) -> Result<RouteExplained, String> {
    explain_with_maps(config, &ConfiguredMaps(&config.maps), order)
}

/// Explains like [`explain_route`], with the maps as they are in force.
pub(crate) fn explain_with_maps(
    config: &Config,
    maps: &dyn MapLookup,
    order: &RouteOrder,
) -> Result<RouteExplained, String> {
    let RouteOrder { method, url, headers, client, listener } = order;
    let target = ExplainTarget::parse(url)?;
    let listener = target.listener(config, listener.as_deref())?;
    let (of_rule, rules): (Vec<usize>, Vec<RouteRule>) =
        config.rules().map(|(route, rule)| (route, rule.clone())).unzip();
    let table = RouteTable::compile(rules);
    let facts = RequestFacts {
        method: method.as_bytes(),
        host: target.host.as_bytes(),
        query: target.query.map(str::as_bytes),
        fields: headers.as_slice(),
        scheme: target.scheme(),
        version: HttpVersion::default().number(),
        size: Some(0),
        client: *client,
        client_port: 0,
        listener: &config.listeners[listener].name,
        tls: TlsFacts::default(),
        time_ns: now_ns(),
        maps,
        memory: None,
    };
    let request = facts.parts(listener, target.path.as_bytes());
    let is_ambiguous = table.is_ambiguous(&request);
    let explanation = table.explain(&request);
    let report = Report {
        config,
        of_rule,
        listener: &config.listeners[listener],
        is_ambiguous,
        values: VariableValues::from_request(request, target.scheme()),
        url,
        explanation,
    };
    Ok(RouteExplained { text: report.text(), json: report.json(), is_routed: report.route().is_some() })
}

/// Maps as the configuration and its files have them.
struct ConfiguredMaps<'a>(&'a [config::Map]);

impl MapLookup for ConfiguredMaps<'_> {
    fn lookup(&self, map: u16, key: expression::Value<'_>) -> Option<expression::Value<'_>> {
        self.0.get(usize::from(map))?.table.peek(key, 0)
    }
}

/// The current time in nanoseconds since 1970, for conditions on the time of day.
fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

struct Report<'a> {
    config: &'a Config,
    /// Index of the route for each rule of the explanation.
    of_rule: Vec<usize>,
    listener: &'a Listener,
    is_ambiguous: bool,
    values: VariableValues<'a, [(String, String)]>,
    url: &'a str,
    explanation: Explanation,
}

/// Maximum number of listed routes before and after the matching one.
const STEPS_TOLD: usize = 20;

impl Report<'_> {
    fn route(&self) -> Option<&Route> {
        let rule = self.explanation.route.filter(|_| !self.is_ambiguous)?;
        Some(self.route_of(rule))
    }

    fn route_of(&self, rule: usize) -> &Route {
        &self.config.routes[self.of_rule[rule]]
    }

    fn text(&self) -> String {
        let method = self.values.request.method.escape_ascii();
        let (client, listener) = (self.values.request.client, &self.listener.name);
        let mut text = format!("{method} {} from {client} at listener {listener}\n\n", self.url);
        let steps = &self.explanation.steps;
        let taken = steps.iter().position(|step| step.outcome == RuleOutcome::Taken).unwrap_or(steps.len());
        // The routes next to the matching one are the most helpful.
        let told = taken.saturating_sub(STEPS_TOLD)..(taken + 1 + STEPS_TOLD).min(steps.len());
        let skipped = |count: usize, text: &mut String| {
            if count > 0 {
                let _ = writeln!(text, "     … {count} more; --json has all of them");
            }
        };
        skipped(told.start, &mut text);
        for (place, step) in steps.iter().enumerate().take(told.end).skip(told.start) {
            let (name, rule) = (&self.route_of(step.route).name, &step.rule);
            // Most routes have a name that repeats the rule.
            let rule = if rule.ends_with(name.as_str()) { String::new() } else { format!(" ({rule})") };
            let _ = writeln!(text, "{:>4}. {name}{rule}: {}", place + 1, self.outcome(step));
        }
        skipped(steps.len() - told.end, &mut text);
        text.push('\n');
        for line in self.verdict() {
            text += &line;
            text.push('\n');
        }
        text
    }

    fn outcome(&self, step: &ExplainedRule) -> String {
        match &step.outcome {
            RuleOutcome::Taken => "taken".to_owned(),
            RuleOutcome::Overtaken { by, because } => {
                format!("also matches, but comes after {}: {because}", self.route_of(*by).name)
            }
            RuleOutcome::Missed(misses) => {
                let misses: Vec<String> = misses.iter().map(|miss| self.miss(step, miss)).collect();
                format!("no: {}", misses.join("; "))
            }
        }
    }

    fn miss(&self, step: &ExplainedRule, miss: &Miss) -> String {
        let Miss { condition, wanted, found } = miss;
        if *condition != Condition::Listener {
            return format!("expects {wanted}, found {found}");
        }
        // Rules refer to listeners by index.
        let rules = &self.route_of(step.route).rules;
        let wanted = rules.first().map(|rule| rule.listeners.as_slice()).unwrap_or_default();
        let names: Vec<&str> =
            wanted.iter().map(|&index| self.config.listeners[index].name.as_str()).collect();
        format!("expects listener {}, found {}", names.join(" or "), self.listener.name)
    }

    fn verdict(&self) -> Vec<String> {
        if self.is_ambiguous {
            return vec![
                "It is rejected with 400: its path is ambiguous. It has dot segments, a backslash or parameters, \
                 and a server might read it as the path of another route."
                    .to_owned(),
            ];
        }
        let Some(route) = self.route() else {
            return vec!["No route matches: 404.".to_owned()];
        };
        if self.is_redirected(route) {
            return vec![format!(
                "The route is {}, but its listener redirects to the https URL: 308.",
                route.name
            )];
        }
        let mut lines = vec![format!("The route is {}: {}.", route.name, self.action(route))];
        lines.extend(self.condition(route));
        lines.extend(route_values::listed(route, &self.values));
        let Route { policies, .. } = route;
        let access =
            AccessList::new(policies.access.allow.iter().copied(), policies.access.deny.iter().copied());
        if access.access(self.values.request.client) == AccessDecision::Denied {
            lines.push("This client is denied: 403.".to_owned());
        }
        let request = &self.values.request;
        let denies = |rule: &&DenyRule| request.conditions.hold(&rule.when, request.path);
        if let Some(rule) = policies.access.rules.iter().find(denies) {
            lines.push(format!("It is denied: {}.", rule.status));
        }
        if let Some(cors) = &policies.cors {
            if self.values.request.method == b"OPTIONS" && Cors::is_preflight(self.values.request.fields) {
                lines.push("It is a preflight (CORS): the proxy answers it with 204.".to_owned());
                return lines;
            }
            let origins: Vec<String> = cors.origins.iter().map(ToString::to_string).collect();
            lines.push(format!("Pages of these origins can read the response: {}.", origins.join(", ")));
        }
        if let Some(maintenance) = &policies.options.maintenance
            && maintenance.refuses(self.values.request.client)
        {
            let retry_after = config::written_duration(maintenance.retry_after);
            lines.push(format!("It is under maintenance: 503, retry after {retry_after}."));
        }
        for limit in &policies.rate_limits {
            let (requests, per) = limit.rate.requests_per();
            lines.push(format!(
                "Rate limit: {requests} requests in {per:?}, {} at once; beyond it 429.",
                limit.rate.burst()
            ));
        }
        lines.extend(policies.concurrency.iter().map(concurrency));
        lines.extend(self.proofs(policies));
        lines.extend(route_conditions::explained(route, request));
        if let Some(path) = &policies.rewrite.path {
            let mut out = Vec::new();
            let outcome = path.apply(&self.values, &mut out);
            match (known_later(path.values_known()), outcome) {
                (Some(known), Ok(true) | Err(_)) => {
                    lines.push(format!("The server gets a path that is known {known}: {}", path.to()));
                }
                (None, Ok(true)) => lines.push(format!("The server gets {}.", out.escape_ascii())),
                (_, Ok(false)) => {}
                (None, Err(error)) => lines.push(format!("It is rejected with 400: {error}.")),
            }
        }
        lines
    }

    /// Lists the parts of the route's condition (`when`) with their values.
    fn condition(&self, route: &Route) -> Option<String> {
        // The rules of a route differ only in their hosts.
        let when = route.rules.first()?.when.as_deref()?;
        let request = &self.values.request;
        let trace = request.conditions.explain(when, request.path).to_string();
        let parts: String = trace.lines().map(|part| format!("\n  {part}")).collect();
        Some(format!("Its condition holds, in at most {} steps:{parts}", when.cost()))
    }

    /// Whether the listener redirects the request to https.
    fn is_redirected(&self, route: &Route) -> bool {
        // Only a trusted proxy can report that the client used https.
        let is_told = !self.config.trusted_proxies.is_empty() || !self.listener.proxy_protocol.is_empty();
        let is_secure = self.values.scheme == "https" && is_told;
        self.listener.redirect_to_https && !is_secure && !self.config.is_for_plain_http(route)
    }

    fn proofs(&self, policies: &config::Policies) -> Vec<String> {
        let name = |index: usize| &self.config.upstreams[index].name;
        let mut lines = Vec::new();
        if let Some(auth) = &policies.auth {
            let file = auth.file.display();
            lines.push(format!(
                "It needs a user name and password from {file} (realm {:?}); otherwise 401.",
                auth.realm
            ));
        }
        if let Some(jwt) = &policies.jwt {
            lines.push(format!("It needs a JSON Web Token ({}); otherwise 401.", keys_of(jwt)));
            if !jwt.rules.required.is_empty() {
                let claims: Vec<&str> = jwt.rules.required.iter().map(|(claim, _)| claim.as_str()).collect();
                lines.push(format!(
                    "The token has to have the required claims {}; otherwise 403.",
                    claims.join(", ")
                ));
            }
        }
        if let Some(bots) = &policies.web_bot_auth {
            let agents: Vec<String> = bots.agents.iter().map(|source| source.url.origin()).collect();
            lines.push(format!("It needs the signature of a bot of {}; otherwise 403.", agents.join(", ")));
        }
        if let Some(auth) = &policies.forward_auth {
            lines.push(format!(
                "Upstream {} authorizes it ({}); a response other than 2xx goes to the client.",
                name(auth.upstream),
                auth.path
            ));
            if let Some(page) = &auth.sign_in {
                lines.push(format!("Instead of its 401, the client gets a redirect to {}.", page.as_str()));
            }
        }
        if policies.require == config::Require::Any {
            lines.push("The client needs to pass only one of these checks.".to_owned());
        }
        lines.extend(self.fallbacks(policies));
        if let Some(mirror) = &policies.mirror {
            let percent = f64::from(mirror.share.millionths()) / 10_000.0;
            lines.push(format!(
                "Upstream {} gets copies of {percent}% of such requests.",
                name(mirror.upstream)
            ));
        }
        lines
    }

    /// Lists the upstreams that answer in place of an error status.
    fn fallbacks(&self, policies: &config::Policies) -> Vec<String> {
        let all = policies.on_status.iter().flat_map(|fallbacks| fallbacks.pages());
        let line = |(scope, fallback): (route::PageFor, &config::StatusFallback)| {
            let page = fallback.path.as_ref().map(|path| format!(" with {path}")).unwrap_or_default();
            let status = if fallback.keep_status { "; the status stays" } else { "" };
            let name = &self.config.upstreams[fallback.upstream].name;
            let case = match fallback.only_failures {
                true => format!("no server answers ({scope})"),
                false => format!("a server answers {scope}"),
            };
            format!("If {case}, upstream {name} answers instead{page}{status}.")
        };
        let folders = policies.accel.iter().map(|folder| {
            let root = folder.files.root.display();
            format!("Its servers may name files below {root}, as {}… in X-Accel-Redirect.", folder.path)
        });
        all.map(line).chain(folders).collect()
    }

    fn action(&self, route: &Route) -> String {
        let name = |index: usize| &self.config.upstreams[index].name;
        match &route.action {
            Action::Upstream(index) => {
                let upstream = &self.config.upstreams[*index];
                let servers = match upstream.servers.len() {
                    1 => "1 server".to_owned(),
                    several => format!("{several} servers"),
                };
                format!("upstream {}, {} over {servers}", upstream.name, upstream.balance.name)
            }
            Action::Split(split) => {
                let shares: Vec<(usize, u32)> = split.shares().collect();
                let total: u64 = shares.iter().map(|(_, weight)| u64::from(*weight)).sum();
                let shares: Vec<String> = shares
                    .iter()
                    .map(|(index, weight)| format!("{} {weight} of {total}", name(*index)))
                    .collect();
                format!("split between upstreams: {}", shares.join(", "))
            }
            Action::Named(named) => {
                if let Some(known) = known_later(named.name.values_known()) {
                    return format!("an upstream that is known {known}: {}", named.name.as_str());
                }
                match route_values::upstream(named, &self.values) {
                    Ok(index) => format!("upstream {}, which its values name", name(index)),
                    Err(text) => format!("503, because its values name no upstream: {text:?}"),
                }
            }
            Action::Redirect(redirect) => {
                let location = self.location(redirect);
                format!("{} to {location}", redirect.status.code())
            }
            Action::Respond(respond) => self.own_response(respond),
            Action::Files(files) => {
                let folder = route_values::folder(files, &self.values);
                let is_for_files = matches!(self.values.request.method, b"GET" | b"HEAD");
                match files.otherwise.map(name) {
                    None => folder,
                    Some(upstream) if is_for_files => {
                        let scripts = self.config.scripts_beside(files);
                        let scripts =
                            scripts.map(|scripts| format!(" without *{scripts}")).unwrap_or_default();
                        format!("{folder}{scripts}, else upstream {upstream}")
                    }
                    Some(upstream) => {
                        format!("upstream {upstream}, because files are only for GET and HEAD")
                    }
                }
            }
        }
    }

    /// Describes the response of the option `respond`.
    fn own_response(&self, respond: &config::Respond) -> String {
        let response = &respond.response;
        let texts = respond.status.iter().chain(&respond.body).map(|text| text.values_known());
        if let Some(known) = texts.max().and_then(known_later) {
            return format!("a response that is known {known}, of {}", response.content_type());
        }
        let status = match route_values::status(respond, &self.values) {
            Ok(status) => status,
            Err(text) => return format!("500, because its values give no status: {text:?}"),
        };
        let mut body = response.body().to_vec();
        if let Some(template) = &respond.body {
            body.clear();
            template.fill(&self.values, &mut body);
        }
        if !route::may_have_body(status) {
            body.clear();
        }
        format!("{status}, {} bytes of {}", body.len(), response.content_type())
    }

    fn location(&self, redirect: &route::Redirect) -> String {
        if let Some(known) = known_later(redirect.values_known()) {
            return format!("a URL that is known {known}: {}", redirect.to());
        }
        let mut out = Vec::new();
        match redirect.location(&self.values, &mut out) {
            Ok(()) => out.escape_ascii().to_string(),
            Err(_) => "an invalid URL without a host, so it gets 400".to_owned(),
        }
    }

    fn json(&self) -> Value {
        let steps = self.explanation.steps.iter().map(|step| self.step_json(step));
        let action = self.route().map(|route| match &route.action {
            _ if self.is_redirected(route) => json!({ "redirect_to_https": { "status": 308 } }),
            Action::Upstream(index) => json!({ "upstream": self.config.upstreams[*index].name }),
            Action::Split(split) => {
                let name = |index: usize| self.config.upstreams[index].name.clone();
                let shares = split.shares().map(|(index, weight)| (name(index), json!(weight)));
                json!({ "split": shares.collect::<serde_json::Map<_, _>>() })
            }
            Action::Named(named) if known_later(named.name.values_known()).is_some() => {
                json!({ "named_upstream": named.name.as_str() })
            }
            Action::Named(named) => match route_values::upstream(named, &self.values) {
                Ok(index) => json!({ "upstream": self.config.upstreams[index].name }),
                Err(text) => json!({ "unknown_upstream": text }),
            },
            Action::Redirect(redirect) => {
                json!({ "redirect": { "status": redirect.status.code(), "location": self.location(redirect) } })
            }
            Action::Respond(respond) => {
                let status = route_values::status(respond, &self.values).unwrap_or(500);
                json!({ "respond": { "status": status } })
            }
            Action::Files(files) => match files.otherwise {
                None => json!({ "files": files.root }),
                Some(index) => {
                    json!({ "files": files.root, "else": { "upstream": self.config.upstreams[index].name } })
                }
            },
        });
        json!({
            "method": self.values.request.method.escape_ascii().to_string(),
            "url": self.url,
            "client": self.values.request.client,
            "listener": self.listener.name,
            "route": self.route().map(|route| &route.name),
            "action": action,
            "notes": self.verdict(),
            "order": steps.collect::<Vec<_>>(),
        })
    }

    fn step_json(&self, step: &ExplainedRule) -> Value {
        let name = &self.route_of(step.route).name;
        let outcome = match &step.outcome {
            RuleOutcome::Taken => json!({ "outcome": "taken" }),
            RuleOutcome::Overtaken { by, because } => {
                json!({ "outcome": "overtaken", "by": self.route_of(*by).name, "because": because })
            }
            RuleOutcome::Missed(misses) => {
                let misses: Vec<String> = misses.iter().map(|miss| self.miss(step, miss)).collect();
                json!({ "outcome": "missed", "because": misses })
            }
        };
        let mut value = json!({ "route": name, "for": step.rule });
        if let (Some(value), Value::Object(outcome)) = (value.as_object_mut(), outcome) {
            value.extend(outcome);
        }
        value
    }
}

fn keys_of(jwt: &config::Jwt) -> String {
    match &jwt.keys {
        config::TokenKeys::File(path, _) => format!("verified with the keys in {}", path.display()),
        config::TokenKeys::Secret(path, _) => format!("verified with the secret in {}", path.display()),
        config::TokenKeys::Fetched(source) => match &source.issuer {
            Some(issuer) => format!("verified with the keys of the issuer {issuer}"),
            None => format!("verified with the keys at {}", source.url),
        },
    }
}

fn concurrency(limit: &ConcurrencyLimit) -> String {
    let Concurrency { max, waiting_max } = limit.limit;
    let instances = limit.shared.map(|_| " over all instances").unwrap_or_default();
    let waiting = match waiting_max {
        0 => String::new(),
        waiting => format!(", and {waiting} wait for up to {}", config::written_duration(limit.wait)),
    };
    format!("Concurrency: {max} requests under way for each key{instances}{waiting}; beyond it 429.")
}

#[cfg(test)]
mod tests;
