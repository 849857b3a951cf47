//! Middlewares: the conditions under which they act, and the servers and files that they name.

use adapt::statements::Statement;

use super::rule::expression;
use super::tree::{UsedMiddleware, find, place, word};
use super::{server_of, untested};
use crate::old::{OldCondition, OldConfiguration, OldFileKind};
use crate::pattern::TextPattern;

/// Requests beyond what a limit admits, and the most for one limit.
const BURST_MORE: usize = 5;
const BURST_MAX: usize = 60;
/// Requests beyond what a limit of concurrent ones admits, and the highest limit that gets them.
const AT_ONCE_MORE: usize = 3;
const AT_ONCE_MAX: usize = 100;
/// Values of one option that get requests.
const VALUES_MAX: usize = 8;

/// Conditions of one middleware.
#[derive(Debug, Default, PartialEq)]
pub(super) struct MiddlewareConditions {
    /// Each list meets the middleware in another way.
    pub(super) reached: Vec<Vec<OldCondition>>,
    /// Requests that meet these get past it.
    pub(super) passed: Vec<OldCondition>,
}

pub(super) struct MiddlewareFacts<'o> {
    pub(super) old: &'o mut OldConfiguration,
}

impl MiddlewareFacts<'_> {
    pub(super) fn read(&mut self, used: &UsedMiddleware<'_>) -> MiddlewareConditions {
        let (Some(definition), Some(kind)) = (used.definition, used.kind()) else {
            untested(self.old, used.place.clone(), "the middleware is of another provider, or missing");
            return MiddlewareConditions::default();
        };
        let path = format!("http.middlewares.{}", definition.name);
        let name = used.kind_name();
        let why = match name.as_str() {
            "digestauth" => Some("no password is known"),
            "plugin" => Some("plug-ins are not loaded"),
            "passtlsclientcert" => Some("clients have no certificates"),
            "grpcweb" => Some("gRPC is not sent"),
            _ => None,
        };
        if let Some(why) = why {
            untested(self.old, place(&path, kind), why);
        }
        // Of lists of networks, and of limits.
        for (block, path) in [
            (Some(kind), path.clone()),
            (find(kind, "sourceCriterion"), format!("{path}.{}.sourceCriterion", kind.name)),
        ] {
            let strategy = block.and_then(|block| find(block, "ipStrategy"));
            if let Some(strategy) = strategy.filter(|strategy| !strategy.inner().is_empty()) {
                untested(self.old, place(&path, strategy), "clients behind other proxies are not tested");
            }
        }
        let made = self.guard(&name, kind, &path);
        let made = made.or_else(|| self.limit(&name, kind, used));
        made.unwrap_or_else(|| MiddlewareConditions { reached: changed(&name, kind), passed: Vec::new() })
    }

    /// A middleware that asks who the client is.
    fn guard(&mut self, name: &str, kind: &Statement, path: &str) -> Option<MiddlewareConditions> {
        let condition = match name {
            "ipallowlist" | "ipwhitelist" => {
                let networks = words(kind, "sourceRange");
                networks.iter().for_each(|network| self.old.network(network));
                OldCondition::Clients(networks)
            }
            "basicauth" => {
                if let Some(file) = word(kind, "usersFile") {
                    self.old.file(file, OldFileKind::Users);
                }
                OldCondition::Credentials
            }
            "forwardauth" => {
                match server_of(word(kind, "address").unwrap_or_default()) {
                    Some((_, authority, port)) => self.old.server(authority, port, None),
                    None => untested(self.old, place(path, kind), "only TCP servers have stand-ins"),
                }
                return Some(MiddlewareConditions::default());
            }
            _ => return None,
        };
        Some(MiddlewareConditions { reached: vec![vec![condition.clone()]], passed: vec![condition] })
    }

    /// A middleware that refuses requests beyond a number or a size.
    fn limit(
        &mut self,
        name: &str,
        kind: &Statement,
        used: &UsedMiddleware<'_>,
    ) -> Option<MiddlewareConditions> {
        let number = |name: &str| word(kind, name).and_then(|word| word.parse::<usize>().ok());
        let condition = match name {
            "ratelimit" if number("average").is_some_and(|average| average > 0) => {
                let burst = number("burst").unwrap_or(1).max(1).saturating_add(BURST_MORE);
                if burst > BURST_MAX {
                    let why = format!("more than {BURST_MAX} requests in a row are not sent");
                    untested(self.old, used.place.clone(), &why);
                }
                OldCondition::Burst(burst.min(BURST_MAX))
            }
            "inflightreq" => match number("amount").filter(|most| *most <= AT_ONCE_MAX) {
                Some(most) => OldCondition::AtOnce(most + AT_ONCE_MORE),
                None => {
                    let why = format!("more than {AT_ONCE_MAX} concurrent requests are not sent");
                    untested(self.old, used.place.clone(), &why);
                    return None;
                }
            },
            "buffering" => {
                let most = number("maxRequestBodyBytes").filter(|most| *most > 0)?;
                OldCondition::Body(most as u64)
            }
            _ => return None,
        };
        Some(MiddlewareConditions { reached: vec![vec![condition]], passed: Vec::new() })
    }
}

fn words(kind: &Statement, name: &str) -> Vec<String> {
    find(kind, name).map(|list| list.words.clone()).unwrap_or_default()
}

/// Conditions under which a middleware changes a request or its response.
fn changed(name: &str, kind: &Statement) -> Vec<Vec<OldCondition>> {
    let path_of = |pattern: TextPattern| vec![OldCondition::Path(pattern)];
    match name {
        "stripprefix" => {
            let of_prefix = |prefix: &String| path_of(TextPattern::Prefix(prefix.trim().to_owned()));
            words(kind, "prefixes").iter().take(VALUES_MAX).map(of_prefix).collect()
        }
        "stripprefixregex" | "replacepathregex" => {
            let of_pattern = |pattern: &String| path_of(expression(pattern, false));
            words(kind, "regex").iter().take(VALUES_MAX).map(of_pattern).collect()
        }
        "redirectregex" => {
            let path = word(kind, "regex").and_then(path_of_url);
            path.map(|pattern| path_of(expression(&pattern, false))).into_iter().collect()
        }
        "headers" => cors(kind),
        "compress" => {
            let gzip = TextPattern::Exact("gzip".to_owned());
            vec![vec![OldCondition::Field("Accept-Encoding".to_owned(), gzip)]]
        }
        "errors" if words(kind, "status").iter().any(|range| has_503(range)) => {
            vec![vec![OldCondition::ServerError]]
        }
        _ => Vec::new(),
    }
}

/// Requests of other origins: simple ones, and preflights.
fn cors(kind: &Statement) -> Vec<Vec<OldCondition>> {
    let field =
        |name: &str, value: &str| OldCondition::Field(name.to_owned(), TextPattern::Exact(value.to_owned()));
    let Some(origins) = find(kind, "accessControlAllowOriginList") else { return Vec::new() };
    let mut all = Vec::new();
    for origin in origins.words.iter().take(VALUES_MAX) {
        let origin = if origin == "*" { "https://any.example.org" } else { origin };
        all.push(vec![field("Origin", origin)]);
        let method = find(kind, "accessControlAllowMethods").map_or("GET", |list| list.word(0));
        all.push(vec![
            OldCondition::Methods(vec!["OPTIONS".to_owned()]),
            field("Origin", origin),
            field("Access-Control-Request-Method", method),
        ]);
    }
    all
}

/// Whether a status or a range such as `500-599` contains 503.
fn has_503(range: &str) -> bool {
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let number = |text: &str| text.trim().parse::<u16>().ok();
    matches!((number(first), number(last)), (Some(first), Some(last)) if (first..=last).contains(&503))
}

/// The part of an expression for URLs that is about the path.
fn path_of_url(regex: &str) -> Option<String> {
    let (_, rest) = regex.split_once("://")?;
    let mut in_class = false;
    let slash = rest.bytes().position(|byte| {
        in_class = match byte {
            b'[' => true,
            b']' => false,
            _ => in_class,
        };
        byte == b'/' && !in_class
    })?;
    Some(format!("^{}", &rest[slash..]))
}
