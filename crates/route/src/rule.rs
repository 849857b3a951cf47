//! A rule: what a request must be like to take a route. Valid by construction, matched by `RouteTable`.
//!
//! How rules are written in a file, and which texts make no sense there, is for whoever reads the file.

use std::fmt;

use ipnet::IpNet;

use crate::form::FormReading;
use crate::network::{Networks, host_bits};
use crate::pattern::Pattern;
use crate::request::{Fields, Request, parameters};

/// What a request must be like. All conditions have to hold; the default holds for every request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rule {
    /// The listeners that it may come to; none means every one.
    pub listeners: Vec<usize>,
    /// Whom it is for.
    pub host: HostRule,
    /// What it is for.
    pub path: PathRule,
    /// Methods, as they are sent; none means every one.
    pub methods: Vec<String>,
    /// Fields that it has; each name with at least one field line whose value passes.
    pub headers: Vec<(String, ValueRule)>,
    /// Parameters of its query; each name with at least one parameter whose value, decoded, passes.
    pub query: Vec<(String, ValueRule)>,
    /// Networks of which one holds the client; none means every client.
    pub clients: Vec<IpNet>,
}

impl Rule {
    /// Whether a pattern is among its conditions: see [`RouteTable`](crate::RouteTable) for what clones are good for.
    pub fn has_pattern(&self) -> bool {
        let mut values = self.headers.iter().chain(&self.query);
        matches!(self.host, HostRule::Pattern(_))
            || matches!(self.path, PathRule::Pattern(_))
            || values.any(|(_, value)| matches!(value, ValueRule::Pattern(_)))
    }
}

/// Which hosts a rule is for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum HostRule {
    /// Every host, and requests without one.
    #[default]
    Any,
    /// This host, whatever its case and whether a dot ends it.
    Exact(String),
    /// Every host below this one, by any number of labels, and not this one itself: `*.example.com` without its `*.`.
    Below(String),
    /// Hosts that the pattern matches; it sees them in lower case and without a dot at the end, and so had better be one
    /// that [ignores case](Pattern::ignoring_case).
    Pattern(Pattern),
}

impl HostRule {
    /// Reads `www.example.com`, `*.example.com` or `*`. What is no host is a rule that nothing matches.
    pub fn of(text: &str) -> Self {
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

/// Which paths a rule is for. All are compared with the path as a lenient server reads it: escapes decoded once, slashes
/// in a row as one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathRule {
    /// This path and no other; a slash at the end counts.
    Exact(String),
    /// This path and what is below it, by whole segments: `/api`, which `/api/` means as well, is for `/api` and
    /// `/api/x`, not for `/apix`.
    Prefix(String),
    /// Paths that the pattern matches.
    Pattern(Pattern),
}

impl Default for PathRule {
    fn default() -> Self {
        Self::Prefix("/".to_owned())
    }
}

/// What a value must be like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueRule {
    /// Anything, the empty value included.
    Present,
    /// These bytes.
    Exact(String),
    /// What begins with these bytes.
    Prefix(String),
    /// What the pattern matches.
    Pattern(Pattern),
}

impl ValueRule {
    /// Whether a value is like that, as it stands.
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
            Self::Exact(text) => FormReading::of(value).eq(text.bytes()),
            Self::Prefix(text) => {
                let mut reading = FormReading::of(value);
                text.bytes().all(|byte| reading.next() == Some(byte))
            }
            // Values without an escape, which are most, need no copy.
            Self::Pattern(pattern) if FormReading::is_as_it_stands(value) => pattern.matches(value),
            Self::Pattern(pattern) => pattern.matches(&FormReading::of(value).collect::<Vec<u8>>()),
        }
    }

    /// How much it says: an exact value most.
    fn strictness(&self) -> usize {
        match self {
            Self::Present => 1,
            Self::Prefix(_) => 2,
            Self::Pattern(_) => 3,
            Self::Exact(_) => 4,
        }
    }
}

/// The conditions of a rule besides listener, host and path, as they are asked of a request.
#[derive(Debug, Clone)]
pub(crate) struct Conditions {
    methods: Vec<Box<[u8]>>,
    headers: Vec<(Box<[u8]>, ValueRule)>,
    query: Vec<(Box<[u8]>, ValueRule)>,
    clients: Option<Networks<()>>,
}

/// One of the conditions of a rule, in the order in which rules are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Condition {
    /// `Rule::listeners`
    Listener,
    /// `Rule::host`
    Host,
    /// `Rule::path`
    Path,
    /// `Rule::methods`
    Method,
    /// A part of `Rule::headers`, by its place there.
    Header(usize),
    /// A part of `Rule::query`, by its place there.
    Query(usize),
    /// `Rule::clients`
    Client,
}

impl Conditions {
    /// `None` where there are none, as in most rules.
    pub(crate) fn of(rule: &Rule) -> Option<Box<Self>> {
        let owned = |list: &[(String, ValueRule)]| {
            list.iter().map(|(name, value)| (name.as_bytes().into(), value.clone())).collect()
        };
        let clients = (!rule.clients.is_empty())
            .then(|| Networks::new(rule.clients.iter().map(|network| (*network, ()))));
        let conditions = Self {
            methods: rule.methods.iter().map(|method| method.as_bytes().into()).collect(),
            headers: owned(&rule.headers),
            query: owned(&rule.query),
            clients,
        };
        let is_plain = conditions.methods.is_empty()
            && conditions.headers.is_empty()
            && conditions.query.is_empty()
            && conditions.clients.is_none();
        (!is_plain).then(|| Box::new(conditions))
    }

    /// Whether all of them hold. The cheap ones are asked first.
    pub(crate) fn hold<F: Fields + ?Sized>(&self, request: &Request<'_, F>) -> bool {
        self.method_holds(request)
            && self.client_holds(request)
            && self.headers.iter().all(|header| header_holds(header, request))
            && self.query.iter().all(|parameter| parameter_holds(parameter, request))
    }

    /// Those that do not hold, in order.
    pub(crate) fn missed<'s, F: Fields + ?Sized>(
        &'s self,
        request: &'s Request<'_, F>,
    ) -> impl Iterator<Item = Condition> + 's {
        let method = (!self.method_holds(request)).then_some(Condition::Method);
        let headers = self.headers.iter().enumerate().filter(|(_, header)| !header_holds(header, request));
        let query =
            self.query.iter().enumerate().filter(|(_, parameter)| !parameter_holds(parameter, request));
        let client = (!self.client_holds(request)).then_some(Condition::Client);
        method
            .into_iter()
            .chain(headers.map(|(index, _)| Condition::Header(index)))
            .chain(query.map(|(index, _)| Condition::Query(index)))
            .chain(client)
    }

    #[inline]
    fn method_holds<F: ?Sized>(&self, request: &Request<'_, F>) -> bool {
        self.methods.is_empty() || self.methods.iter().any(|method| **method == *request.method)
    }

    fn client_holds<F: ?Sized>(&self, request: &Request<'_, F>) -> bool {
        self.clients.as_ref().is_none_or(|clients| clients.hold(request.client))
    }
}

fn header_holds<F: Fields + ?Sized>((name, rule): &(Box<[u8]>, ValueRule), request: &Request<'_, F>) -> bool {
    request.fields.values(name).any(|value| rule.passes(value))
}

fn parameter_holds<F: ?Sized>((name, rule): &(Box<[u8]>, ValueRule), request: &Request<'_, F>) -> bool {
    let Some(query) = request.query else { return false };
    let same = |written: &[u8]| FormReading::of(written).eq(name.iter().copied());
    parameters(query).any(|(written, value)| same(written) && rule.passes_decoded(value))
}

/// How specific a rule is besides its listeners, host and path: what is less comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Strictness {
    /// How many methods; all of them are more than any number.
    pub(crate) methods: usize,
    /// Parts missing from the largest number that can be, then strictness missing.
    pub(crate) headers: (usize, usize),
    pub(crate) query: (usize, usize),
    /// Open bits of the widest network; all addresses are wider than any network.
    pub(crate) client_bits: u16,
}

impl Strictness {
    pub(crate) fn of(rule: &Rule) -> Self {
        let laxity = |list: &[(String, ValueRule)]| {
            let strictness: usize = list.iter().map(|(_, value)| value.strictness()).sum();
            (usize::MAX - list.len(), usize::MAX - strictness)
        };
        Self {
            methods: rule.methods.len().wrapping_sub(1),
            headers: laxity(&rule.headers),
            query: laxity(&rule.query),
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
