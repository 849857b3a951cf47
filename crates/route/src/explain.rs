//! Explains why a request takes its route: all rules in order of precedence, with the result of each.
//!
//! Tests the conditions one by one, as the docs of `Rule` describe them, without the tables of `RouteTable::choose`, so
//! that tests can compare the two. Meant for people, so not optimised.

use std::fmt;

use crate::host::{HOST_BYTES_MAX, without_dot};
use crate::path::{canonical_text, end_of_prefix, with_reading};
use crate::prefixes::canonical_prefix;
use crate::request::{FieldLookup, RequestParts, cookie, parameters};
use crate::rule::{Condition, Conditions, HostRule, PathRule, RouteRule, ValueRule};
use crate::table::{Rank, RouteTable, ranks};

/// Explains the choice of a route. `Display` writes it line by line, with routes numbered from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// The route that the request takes.
    pub route: Option<usize>,
    /// All rules, in order of precedence.
    pub steps: Vec<ExplainedRule>,
}

/// A rule and its result for a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplainedRule {
    /// Index into the list of rules.
    pub route: usize,
    /// Host and path of the rule.
    pub rule: String,
    pub outcome: RuleOutcome,
}

/// The result of testing a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleOutcome {
    /// The rule matches, and has the highest precedence of all that do.
    Taken,
    /// The rule matches, but another one takes precedence.
    Overtaken {
        /// The route that takes precedence.
        by: usize,
        /// The difference that gives the other route precedence.
        because: String,
    },
    /// The rule does not match, for one or more reasons.
    Missed(Vec<Miss>),
}

/// A condition that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Miss {
    pub condition: Condition,
    /// The value that the rule requires.
    pub wanted: String,
    /// The value in the request.
    pub found: String,
}

impl RouteTable {
    /// Explains the result of [`RouteTable::choose`] for a request.
    pub fn explain<F: FieldLookup + ?Sized>(&self, request: &RequestParts<'_, F>) -> Explanation {
        let ranks = ranks(self.rules.iter());
        let mut order: Vec<usize> = (0..self.rules.len()).collect();
        order.sort_by_key(|index| ranks[*index]);
        let mut taken: Option<usize> = None;
        let steps = order.into_iter().map(|route| {
            let rule = &self.rules[route];
            let misses = missed(rule, request);
            let outcome = match taken {
                _ if !misses.is_empty() => RuleOutcome::Missed(misses),
                None => {
                    taken = Some(route);
                    RuleOutcome::Taken
                }
                Some(by) => RuleOutcome::Overtaken {
                    by,
                    because: self.because((by, &ranks[by]), (route, &ranks[route])),
                },
            };
            ExplainedRule { route, rule: format!("{} {}", rule.host, rule.path), outcome }
        });
        let steps = steps.collect();
        Explanation { route: taken, steps }
    }

    /// Explains why route `first` takes precedence over route `second`, if both match.
    fn because(&self, (first, one): (usize, &Rank), (second, other): (usize, &Rank)) -> String {
        let (rule, behind) = (&self.rules[first], &self.rules[second]);
        if one.is_for_every_listener != other.is_for_every_listener {
            "that one is for this listener, this one for all".to_owned()
        } else if one.host != other.host {
            format!("the host {} comes before {}", rule.host, behind.host)
        } else if one.path != other.path {
            format!("the path {} comes before {}", rule.path, behind.path)
        } else if one.strictness.methods != other.strictness.methods {
            "that one is for fewer methods".to_owned()
        } else if one.strictness.headers != other.strictness.headers {
            "that one asks for more of the headers".to_owned()
        } else if one.strictness.cookies != other.strictness.cookies {
            "that one asks for more of the cookies".to_owned()
        } else if one.strictness.query != other.strictness.query {
            "that one asks for more of the query".to_owned()
        } else if one.strictness.claims != other.strictness.claims {
            "that one asks for more claims".to_owned()
        } else if one.strictness.lacks_when != other.strictness.lacks_when {
            "that one has a condition (when)".to_owned()
        } else if one.strictness.client_bits != other.strictness.client_bits {
            "that one is for narrower networks of clients".to_owned()
        } else {
            "neither is more specific, and that one is written first".to_owned()
        }
    }
}

/// The conditions of a rule that do not hold, each with the wanted and the found value.
fn missed<F: FieldLookup + ?Sized>(rule: &RouteRule, request: &RequestParts<'_, F>) -> Vec<Miss> {
    let mut misses = Vec::new();
    let mut miss = |condition, wanted: String, found: String| misses.push(Miss { condition, wanted, found });
    if !rule.listeners.is_empty() && !rule.listeners.contains(&request.listener) {
        let numbers = rule.listeners.iter().map(|listener| format!("{}", listener + 1)).collect::<Vec<_>>();
        miss(
            Condition::Listener,
            format!("listener {}", numbers.join(" or ")),
            format!("{}", request.listener + 1),
        );
    }
    if !host_holds(&rule.host, request.host) {
        miss(Condition::Host, format!("host {}", rule.host), readable(request.host));
    }
    if !path_holds(&rule.path, request.path) {
        let found = with_reading(request.path, readable);
        miss(Condition::Path, format!("path {}", rule.path), found);
    }
    if let Some(conditions) = Conditions::from_rule(rule) {
        for condition in conditions.missed(request) {
            let (wanted, found) = wanted_and_found(condition, rule, request);
            miss(condition, wanted, found);
        }
    }
    misses
}

/// Both values as text, for a condition of `Conditions`.
fn wanted_and_found<F: FieldLookup + ?Sized>(
    condition: Condition,
    rule: &RouteRule,
    request: &RequestParts<'_, F>,
) -> (String, String) {
    let values = |values: Vec<String>| if values.is_empty() { "none".to_owned() } else { values.join(", ") };
    let of_part = |kind: &str, (name, value): &(String, ValueRule), found: Vec<String>| {
        (format!("{kind} {name} {value}"), values(found))
    };
    match condition {
        Condition::Header(index) => {
            let part = &rule.headers[index];
            of_part("header", part, request.fields.values(part.0.as_bytes()).map(readable).collect())
        }
        Condition::Cookie(index) => {
            let part = &rule.cookies[index];
            of_part(
                "cookie",
                part,
                cookie(request.fields, part.0.as_bytes()).map(readable).into_iter().collect(),
            )
        }
        Condition::Query(index) => {
            let part = &rule.query[index];
            let read = |written: &[u8]| crate::form::FormReading::from_written(written).collect::<Vec<u8>>();
            let all = parameters(request.query.unwrap_or_default());
            let found = all.filter(|(name, _)| read(name) == part.0.as_bytes());
            of_part("parameter", part, found.map(|(_, value)| readable(&read(value))).collect())
        }
        Condition::Claim(index) => {
            let part = &rule.claims.values[index];
            let claims = rule.claims.read(request);
            of_part("claim", part, claims.map(|claims| claims.texts(&part.0)).unwrap_or_default())
        }
        Condition::When => {
            let Some(when) = &rule.when else { return Default::default() };
            let trace = request.conditions.explain(when, request.path);
            let names = trace.names().into_iter().map(|(name, value)| format!("{name} {value}"));
            (format!("when {when}"), values(names.collect()))
        }
        Condition::Client => {
            let networks: Vec<String> = rule.clients.iter().map(ToString::to_string).collect();
            (format!("client in {}", networks.join(" or ")), request.client.to_string())
        }
        Condition::Method => (format!("method {}", rule.methods.join(" or ")), readable(request.method)),
        // `missed` handles these conditions.
        Condition::Listener | Condition::Host | Condition::Path => (String::new(), String::new()),
    }
}

fn host_holds(rule: &HostRule, host: &[u8]) -> bool {
    let host = without_dot(host).to_ascii_lowercase();
    let canonical = |name: &str| without_dot(name.as_bytes()).to_ascii_lowercase();
    host.len() <= HOST_BYTES_MAX
        && match rule {
            HostRule::Any => true,
            HostRule::Exact(name) => canonical(name) == host,
            HostRule::Below(parent) => {
                let labels = host.strip_suffix(canonical(parent).as_slice());
                let before = labels.and_then(|labels| labels.strip_suffix(b"."));
                before.is_some_and(|labels| !labels.is_empty())
            }
            HostRule::Pattern(pattern) => pattern.matches(&host),
        }
        || matches!(rule, HostRule::Any)
}

fn path_holds(rule: &PathRule, path: &[u8]) -> bool {
    match rule {
        PathRule::Prefix(prefix) => {
            let prefix = canonical_prefix(prefix);
            prefix.is_empty() || (prefix[0] == b'/' && end_of_prefix(path, &prefix).is_some())
        }
        PathRule::TextPrefix(text) => with_reading(path, |path| path.starts_with(&canonical_text(text))),
        PathRule::Exact(exact) => {
            with_reading(exact.as_bytes(), |exact| with_reading(path, |path| exact == path))
        }
        PathRule::Pattern(pattern) => with_reading(path, |path| pattern.matches(path)),
    }
}

/// A printable form of received bytes: without control characters, and shortened.
fn readable(bytes: &[u8]) -> String {
    const SHOWN_MAX: usize = 200;
    let shown = &bytes[..bytes.len().min(SHOWN_MAX)];
    let text: String = shown.escape_ascii().to_string();
    if bytes.is_empty() {
        "(empty)".to_owned()
    } else if shown.len() < bytes.len() {
        format!("{text}…")
    } else {
        text
    }
}

impl fmt::Display for RuleOutcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken => formatter.write_str("taken"),
            Self::Overtaken { by, because } => {
                write!(formatter, "holds as well, but after route {}: {because}", by + 1)
            }
            Self::Missed(misses) => {
                for (index, Miss { wanted, found, .. }) in misses.iter().enumerate() {
                    let separator = if index == 0 { "no: " } else { "; " };
                    write!(formatter, "{separator}wants {wanted}, found {found}")?;
                }
                Ok(())
            }
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ExplainedRule { route, rule, outcome } in &self.steps {
            writeln!(formatter, "route {} ({rule}): {outcome}", route + 1)?;
        }
        match self.route {
            Some(route) => write!(formatter, "The request takes route {}.", route + 1),
            None => formatter.write_str("No route holds for the request."),
        }
    }
}
