//! Rules: the conditions that a request must fulfil to take a route. Valid by construction, matched by `RouteTable`.
//!
//! The reader of the file checks the syntax of rules, and rejects meaningless ones.

use std::fmt;
use std::sync::Arc;

use expression::{Expression, Fact};
use ipnet::IpNet;

use crate::form::FormReading;
use crate::network::{Networks, host_bits};
use crate::pattern::BytePattern;
use crate::request::{FieldLookup, RequestParts, cookie, parameters};
use crate::token::{ClaimRules, ReadClaims, claim_holds};

/// The conditions of a route. All must hold; the default matches every request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RouteRule {
    /// Empty means all.
    pub listeners: Vec<usize>,
    pub host: HostRule,
    pub path: PathRule,
    /// Case-sensitive; empty means all.
    pub methods: Vec<String>,
    /// Required fields: for each name, at least one field line must pass.
    pub headers: Vec<(String, ValueRule)>,
    /// Required cookies: for each name, the value of the first cookie must pass. Names are case-sensitive.
    pub cookies: Vec<(String, ValueRule)>,
    /// Required query parameters: for each name, the decoded value of at least one parameter must pass.
    pub query: Vec<(String, ValueRule)>,
    /// Required claims of the request's token.
    pub claims: ClaimRules,
    /// A condition on anything else; see [`RequestConditions`](crate::RequestConditions).
    pub when: Option<Arc<Expression>>,
    /// The client's networks, of which one must contain the client; empty means all clients.
    pub clients: Vec<IpNet>,
}

impl RouteRule {
    /// Whether a condition is a pattern. See [`RouteTable`](crate::RouteTable) for why clones help then.
    pub fn has_pattern(&self) -> bool {
        let mut values =
            self.headers.iter().chain(&self.cookies).chain(&self.query).chain(&self.claims.values);
        matches!(self.host, HostRule::Pattern(_))
            || matches!(self.path, PathRule::Pattern(_))
            || values.any(|(_, value)| matches!(value, ValueRule::Pattern(_)))
            || self.when.as_ref().is_some_and(|when| when.has_pattern())
    }

    /// Whether `when` depends on the path.
    pub(crate) fn asks_for_path(&self) -> bool {
        let asks =
            |when: &Arc<Expression>| when.asks_for(Fact::RequestPath) || when.asks_for(Fact::RequestRawPath);
        self.when.as_ref().is_some_and(asks)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum HostRule {
    /// Every host, and requests without one.
    #[default]
    Any,
    /// A host, ignoring case and a trailing dot.
    Exact(String),
    /// Every host below this one, at any depth, but not the host itself: `*.example.com` without its `*.`.
    Below(String),
    /// Hosts that the pattern matches. Hosts are compared in lower case without a trailing dot, so the pattern should
    /// [ignore case](BytePattern::ignoring_case).
    Pattern(BytePattern),
}

impl HostRule {
    /// Parses `www.example.com`, `*.example.com` or `*`. An invalid host gives a rule that never matches.
    pub fn from_text(text: &str) -> Self {
        match text.strip_prefix('*') {
            Some("") => Self::Any,
            Some(rest) => match rest.strip_prefix('.') {
                Some(parent) => Self::Below(parent.to_owned()),
                None => Self::Exact(text.to_owned()),
            },
            None => Self::Exact(text.to_owned()),
        }
    }
}

/// The paths that a rule matches. Paths are compared as a lenient server reads them: escapes decoded once, repeated
/// slashes merged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathRule {
    /// A path; a trailing slash matters.
    Exact(String),
    /// A path and everything below it, by whole segments: `/api` (or `/api/`) matches `/api` and `/api/x`, not `/apix`.
    Prefix(String),
    /// All paths that start with this text: `/api` matches `/api`, `/api/x` and `/apix`; `/api/` does not match `/api`.
    TextPrefix(String),
    Pattern(BytePattern),
}

impl Default for PathRule {
    fn default() -> Self {
        Self::Prefix("/".to_owned())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueRule {
    /// Any value, even an empty one.
    Present,
    Exact(String),
    Prefix(String),
    Pattern(BytePattern),
}

impl ValueRule {
    /// Whether a value passes, without decoding.
    pub fn passes(&self, value: &[u8]) -> bool {
        match self {
            Self::Present => true,
            Self::Exact(text) => value == text.as_bytes(),
            Self::Prefix(text) => value.starts_with(text.as_bytes()),
            Self::Pattern(pattern) => pattern.matches(value),
        }
    }

    fn passes_decoded(&self, value: &[u8]) -> bool {
        match self {
            Self::Present => true,
            Self::Exact(text) => FormReading::from_written(value).eq(text.bytes()),
            Self::Prefix(text) => {
                let mut reading = FormReading::from_written(value);
                text.bytes().all(|byte| reading.next() == Some(byte))
            }
            // Most values contain no escape, and need no copy.
            Self::Pattern(pattern) if FormReading::is_as_it_stands(value) => pattern.matches(value),
            Self::Pattern(pattern) => pattern.matches(&FormReading::from_written(value).collect::<Vec<u8>>()),
        }
    }

    /// The strictness of the condition; an exact value is strictest.
    fn strictness(&self) -> usize {
        match self {
            Self::Present => 1,
            Self::Prefix(_) => 2,
            Self::Pattern(_) => 3,
            Self::Exact(_) => 4,
        }
    }
}

/// The conditions of a rule besides listener, host and path.
#[derive(Debug, Clone)]
pub(crate) struct Conditions {
    methods: Vec<Box<[u8]>>,
    headers: Vec<(Box<[u8]>, ValueRule)>,
    cookies: Vec<(Box<[u8]>, ValueRule)>,
    query: Vec<(Box<[u8]>, ValueRule)>,
    claims: ClaimRules,
    /// A separate copy for each clone, because threads should not share regular expressions.
    when: Option<Box<Expression>>,
    clients: Option<Networks<()>>,
}

/// A condition of a rule, in the order in which rules are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Condition {
    Listener,
    Host,
    Path,
    Method,
    /// Index into `Rule::headers`.
    Header(usize),
    /// Index into `Rule::cookies`.
    Cookie(usize),
    /// Index into `Rule::query`.
    Query(usize),
    /// Index into the values of `Rule::claims`.
    Claim(usize),
    When,
    Client,
}

impl Conditions {
    /// The conditions of a rule. `None` if there are none, as in most rules.
    pub(crate) fn from_rule(rule: &RouteRule) -> Option<Box<Self>> {
        let owned = |list: &[(String, ValueRule)]| {
            list.iter().map(|(name, value)| (name.as_bytes().into(), value.clone())).collect()
        };
        let clients = (!rule.clients.is_empty())
            .then(|| Networks::new(rule.clients.iter().map(|network| (*network, ()))));
        let conditions = Self {
            methods: rule.methods.iter().map(|method| method.as_bytes().into()).collect(),
            headers: owned(&rule.headers),
            cookies: owned(&rule.cookies),
            query: owned(&rule.query),
            claims: rule.claims.clone(),
            when: rule.when.as_deref().map(|when| Box::new(when.clone())),
            clients,
        };
        let is_plain = conditions.methods.is_empty()
            && conditions.headers.is_empty()
            && conditions.cookies.is_empty()
            && conditions.query.is_empty()
            && conditions.claims.values.is_empty()
            && conditions.when.is_none()
            && conditions.clients.is_none();
        (!is_plain).then(|| Box::new(conditions))
    }

    /// Whether all conditions hold. Cheap ones are tested first.
    pub(crate) fn hold<F: FieldLookup + ?Sized>(
        &self,
        request: &RequestParts<'_, F>,
        read: &ReadClaims,
    ) -> bool {
        self.method_holds(request)
            && self.client_holds(request)
            && self.headers.iter().all(|header| header_holds(header, request))
            && self.cookies.iter().all(|cookie| cookie_holds(cookie, request))
            && self.query.iter().all(|parameter| parameter_holds(parameter, request))
            && self.when_holds(request)
            && (self.claims.values.is_empty() || read.hold(&self.claims, request))
    }

    /// The conditions that do not hold, in order.
    pub(crate) fn missed<'s, F: FieldLookup + ?Sized>(
        &'s self,
        request: &'s RequestParts<'_, F>,
    ) -> impl Iterator<Item = Condition> + 's {
        let method = (!self.method_holds(request)).then_some(Condition::Method);
        let headers = self.headers.iter().enumerate().filter(|(_, header)| !header_holds(header, request));
        let cookies = self.cookies.iter().enumerate().filter(|(_, cookie)| !cookie_holds(cookie, request));
        let query =
            self.query.iter().enumerate().filter(|(_, parameter)| !parameter_holds(parameter, request));
        let token = if self.claims.values.is_empty() { None } else { self.claims.read(request) };
        let claims = self.claims.values.iter().enumerate().filter_map(move |(index, value)| {
            let holds = token.as_ref().is_some_and(|token| claim_holds(value, token));
            (!holds).then_some(Condition::Claim(index))
        });
        let when = (!self.when_holds(request)).then_some(Condition::When);
        let client = (!self.client_holds(request)).then_some(Condition::Client);
        method
            .into_iter()
            .chain(headers.map(|(index, _)| Condition::Header(index)))
            .chain(cookies.map(|(index, _)| Condition::Cookie(index)))
            .chain(query.map(|(index, _)| Condition::Query(index)))
            .chain(claims)
            .chain(when)
            .chain(client)
    }

    #[inline]
    fn method_holds<F: ?Sized>(&self, request: &RequestParts<'_, F>) -> bool {
        self.methods.is_empty() || self.methods.iter().any(|method| **method == *request.method)
    }

    fn when_holds<F: ?Sized>(&self, request: &RequestParts<'_, F>) -> bool {
        self.when.as_ref().is_none_or(|when| request.conditions.hold(when, request.path))
    }

    fn client_holds<F: ?Sized>(&self, request: &RequestParts<'_, F>) -> bool {
        self.clients.as_ref().is_none_or(|clients| clients.hold(request.client))
    }
}

fn header_holds<F: FieldLookup + ?Sized>(
    (name, rule): &(Box<[u8]>, ValueRule),
    request: &RequestParts<'_, F>,
) -> bool {
    request.fields.values(name).any(|value| rule.passes(value))
}

/// RFC 6265 §5.4: a client sends the cookie with the longest path first, which is the one that counts.
fn cookie_holds<F: FieldLookup + ?Sized>(
    (name, rule): &(Box<[u8]>, ValueRule),
    request: &RequestParts<'_, F>,
) -> bool {
    cookie(request.fields, name).is_some_and(|value| rule.passes(value))
}

fn parameter_holds<F: ?Sized>((name, rule): &(Box<[u8]>, ValueRule), request: &RequestParts<'_, F>) -> bool {
    let Some(query) = request.query else { return false };
    let same = |written: &[u8]| FormReading::from_written(written).eq(name.iter().copied());
    parameters(query).any(|(written, value)| same(written) && rule.passes_decoded(value))
}

/// The specificity of a rule besides listener, host and path. The smallest value comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Strictness {
    /// The number of methods; no restriction counts as more than any number.
    pub(crate) methods: usize,
    /// The number of conditions, then their strictness, both subtracted from the largest number.
    pub(crate) headers: (usize, usize),
    pub(crate) cookies: (usize, usize),
    pub(crate) query: (usize, usize),
    pub(crate) claims: (usize, usize),
    pub(crate) lacks_when: bool,
    /// The host bits of the widest network; no restriction counts as wider than any network.
    pub(crate) client_bits: u16,
}

impl Strictness {
    pub(crate) fn from_rule(rule: &RouteRule) -> Self {
        let laxity = |list: &[(String, ValueRule)]| {
            let strictness: usize = list.iter().map(|(_, value)| value.strictness()).sum();
            (usize::MAX - list.len(), usize::MAX - strictness)
        };
        Self {
            methods: rule.methods.len().wrapping_sub(1),
            headers: laxity(&rule.headers),
            cookies: laxity(&rule.cookies),
            query: laxity(&rule.query),
            claims: laxity(&rule.claims.values),
            lacks_when: rule.when.is_none(),
            client_bits: rule
                .clients
                .iter()
                .map(|network| u16::from(host_bits(*network)))
                .max()
                .unwrap_or(u16::MAX),
        }
    }
}

impl fmt::Display for HostRule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => formatter.write_str("*"),
            Self::Exact(host) => formatter.write_str(host),
            Self::Below(parent) => write!(formatter, "*.{parent}"),
            Self::Pattern(pattern) => write!(formatter, "~ {pattern}"),
        }
    }
}

impl fmt::Display for PathRule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(path) => write!(formatter, "= {path}"),
            Self::Prefix(path) => formatter.write_str(path),
            Self::TextPrefix(text) => write!(formatter, "{text}*"),
            Self::Pattern(pattern) => write!(formatter, "~ {pattern}"),
        }
    }
}

impl fmt::Display for ValueRule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Present => formatter.write_str("is present"),
            Self::Exact(text) => write!(formatter, "= {text}"),
            Self::Prefix(text) => write!(formatter, "= {text}*"),
            Self::Pattern(pattern) => write!(formatter, "~ {pattern}"),
        }
    }
}
