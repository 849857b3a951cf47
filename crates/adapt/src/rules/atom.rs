//! Conditions on requests that a `[[route]]` supports, and relations between two of them.

use std::cell::RefCell;
use std::collections::BTreeMap;

use regex::bytes::{Regex, RegexBuilder};

use crate::values;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Atom {
    Host(HostIs),
    Path(PathIs),
    Methods(Vec<String>),
    Header(String, TextIs),
    Cookie(String, TextIs),
    Query(String, TextIs),
    Clients(Vec<String>),
    /// A condition in the language of `when`.
    When(String),
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum HostIs {
    Exact(String),
    /// Every name below a domain, but not the domain itself.
    Below(String),
    /// An expression that matches the whole host.
    Pattern(String),
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PathIs {
    Exact(String),
    /// As [`PathIs::Exact`], without case. The text is in lower case.
    ExactAnyCase(String),
    /// Paths that begin with this text: `/api*` in a route.
    Prefix(String),
    /// As [`PathIs::Prefix`], without case. The text is in lower case.
    PrefixAnyCase(String),
    /// An expression that matches the whole path.
    Pattern(String),
    /// Begins with the first, and matches the second, which begins with `.*`.
    Both(String, String),
}

/// A condition on the value of a field, a cookie or a query parameter.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TextIs {
    Present,
    Exact(String),
    Prefix(String),
    Pattern(String),
}

/// The intersection of two conditions on the same property.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Meet<T> {
    /// This condition is the intersection.
    Is(T),
    Nothing,
    /// A request may match both, but no single condition expresses that.
    Unsaid,
}

impl Atom {
    /// The weight of a condition in Vanward's precedence; an exact value is strictest.
    pub(super) fn strictness(&self) -> usize {
        match self {
            Self::Header(_, text) | Self::Cookie(_, text) | Self::Query(_, text) => match text {
                TextIs::Present => 1,
                TextIs::Exact(text) if text.ends_with('*') || text.starts_with('~') => 3,
                TextIs::Exact(_) => 4,
                TextIs::Prefix(text) if !text.starts_with('~') => 2,
                TextIs::Prefix(_) | TextIs::Pattern(_) => 3,
            },
            _ => 0,
        }
    }
}

impl HostIs {
    /// Parses a host name, which may begin with `*.`; `None` if it is invalid.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let lower = name.to_ascii_lowercase();
        let bare = lower.strip_prefix("*.").unwrap_or(&lower);
        if !is_host(bare) && bare.parse::<std::net::IpAddr>().is_err() {
            return None;
        }
        Some(match lower.strip_prefix("*.") {
            Some(domain) => Self::Below(domain.to_owned()),
            None => Self::Exact(lower),
        })
    }

    /// Whether every host of this condition also meets the other.
    pub(crate) fn implies(&self, other: &Self, patterns: &Patterns) -> bool {
        match (self, other) {
            (Self::Exact(host), Self::Below(domain)) => is_below(host, domain),
            (Self::Exact(host), Self::Pattern(pattern)) => patterns.matches(pattern, host),
            (Self::Below(inner), Self::Below(domain)) => inner == domain || is_below(inner, domain),
            _ => self == other,
        }
    }

    /// As in [[route]].
    pub(crate) fn written(&self) -> String {
        match self {
            Self::Exact(host) => host.clone(),
            Self::Below(domain) => format!("*.{domain}"),
            Self::Pattern(pattern) => format!("~ {pattern}"),
        }
    }
}

impl PathIs {
    pub(crate) fn exact(path: &str) -> Self {
        if is_path(path) { Self::Exact(path.to_owned()) } else { Self::Pattern(values::escaped(path)) }
    }

    pub(crate) fn prefix(path: &str) -> Self {
        if is_path(path) {
            Self::Prefix(path.to_owned())
        } else {
            Self::Pattern(format!("{}.*", values::escaped(path)))
        }
    }

    /// As [`PathIs::exact`], without case.
    pub(crate) fn exact_any_case(path: &str) -> Self {
        match has_letters(path) {
            true => Self::ExactAnyCase(path.to_ascii_lowercase()),
            false => Self::exact(path),
        }
    }

    /// As [`PathIs::prefix`], without case.
    pub(crate) fn prefix_any_case(path: &str) -> Self {
        match has_letters(path) {
            true => Self::PrefixAnyCase(path.to_ascii_lowercase()),
            false => Self::prefix(path),
        }
    }

    /// The condition on a path with a beginning that is equal to this one on the rest. Where this one ignores case, so
    /// does the beginning.
    pub(crate) fn behind(&self, begin: &str) -> Option<Self> {
        match self {
            Self::Exact(path) => Some(Self::exact(&format!("{begin}{path}"))),
            Self::Prefix(path) => Some(Self::prefix(&format!("{begin}{path}"))),
            Self::ExactAnyCase(path) => Some(Self::exact_any_case(&format!("{begin}{path}"))),
            Self::PrefixAnyCase(path) => Some(Self::prefix_any_case(&format!("{begin}{path}"))),
            Self::Pattern(pattern) => {
                let (flag, rest) = match pattern.strip_prefix("(?i)") {
                    Some(rest) => ("(?i)", rest),
                    None => ("", pattern.as_str()),
                };
                let group =
                    if values::has_bare_choice(rest) { format!("(?:{rest})") } else { rest.to_owned() };
                Some(Self::Pattern(format!("{flag}{}{group}", values::escaped(begin))))
            }
            Self::Both(..) => None,
        }
    }

    /// Whether every path of this condition also meets the other.
    pub(crate) fn implies(&self, other: &Self, patterns: &Patterns) -> bool {
        match (self, other) {
            (Self::Exact(path) | Self::Prefix(path) | Self::Both(path, _), Self::Prefix(prefix)) => {
                path.starts_with(prefix)
            }
            (Self::Exact(path), Self::ExactAnyCase(other)) => path.eq_ignore_ascii_case(other),
            (Self::Exact(path) | Self::Prefix(path), Self::PrefixAnyCase(prefix)) => {
                path.to_ascii_lowercase().starts_with(prefix)
            }
            (Self::ExactAnyCase(path) | Self::PrefixAnyCase(path), Self::PrefixAnyCase(prefix)) => {
                path.starts_with(prefix)
            }
            (Self::ExactAnyCase(path) | Self::PrefixAnyCase(path), Self::Prefix(prefix)) => {
                path.starts_with(prefix) && !has_letters(prefix)
            }
            (Self::ExactAnyCase(path), Self::Pattern(pattern)) if pattern.starts_with("(?i)") => {
                patterns.matches(pattern, path)
            }
            (Self::Exact(path), Self::Pattern(pattern)) => patterns.matches(pattern, path),
            (Self::Pattern(pattern), Self::Prefix(prefix)) => patterns.beginning(pattern).starts_with(prefix),
            (Self::Both(_, pattern), Self::Pattern(other)) => pattern == other,
            (Self::Exact(path), Self::Both(prefix, pattern)) => {
                path.starts_with(prefix) && patterns.matches(pattern, path)
            }
            (Self::Both(long, pattern), Self::Both(prefix, other)) => {
                long.starts_with(prefix) && pattern == other
            }
            _ => self == other,
        }
    }

    pub(crate) fn meet(&self, other: &Self, patterns: &Patterns) -> Meet<Self> {
        if self.implies(other, patterns) {
            return Meet::Is(self.clone());
        }
        if other.implies(self, patterns) {
            return Meet::Is(other.clone());
        }
        match (self, other) {
            (Self::Prefix(prefix), Self::Pattern(pattern))
            | (Self::Pattern(pattern), Self::Prefix(prefix)) => {
                if pattern.starts_with(".*") || pattern.starts_with("(?i).*") {
                    Meet::Is(Self::Both(prefix.clone(), pattern.clone()))
                } else if is_apart(prefix, pattern) {
                    Meet::Nothing
                } else {
                    Meet::Unsaid
                }
            }
            (Self::Pattern(_) | Self::Both(..), Self::Pattern(_) | Self::Both(..)) => Meet::Unsaid,
            (Self::ExactAnyCase(_), Self::Pattern(pattern))
            | (Self::Pattern(pattern), Self::ExactAnyCase(_))
                if pattern.starts_with("(?i)") =>
            {
                Meet::Nothing
            }
            (Self::ExactAnyCase(_) | Self::PrefixAnyCase(_), Self::Pattern(_) | Self::Both(..))
            | (Self::Pattern(_) | Self::Both(..), Self::ExactAnyCase(_) | Self::PrefixAnyCase(_)) => {
                Meet::Unsaid
            }
            (Self::Prefix(prefix), Self::ExactAnyCase(path) | Self::PrefixAnyCase(path))
            | (Self::ExactAnyCase(path) | Self::PrefixAnyCase(path), Self::Prefix(prefix))
                if path.starts_with(&prefix.to_ascii_lowercase()) =>
            {
                Meet::Unsaid
            }
            _ => Meet::Nothing,
        }
    }

    /// As in [[route]].
    pub(crate) fn written(&self) -> String {
        match self {
            Self::Exact(path) => format!("= {path}"),
            Self::Prefix(path) if path == "/" => path.clone(),
            Self::Prefix(path) => format!("{path}*"),
            Self::ExactAnyCase(path) => format!("~ (?i){}", values::escaped(path)),
            Self::PrefixAnyCase(path) => format!("~ (?i){}.*", values::escaped(path)),
            Self::Pattern(pattern) => format!("~ {pattern}"),
            Self::Both(prefix, pattern) => {
                let (flags, rest) = match pattern.strip_prefix("(?i)") {
                    Some(rest) => ("(?i)", rest),
                    None => ("", pattern.as_str()),
                };
                format!("~ {flags}{}{rest}", values::escaped(prefix))
            }
        }
    }
}

impl TextIs {
    pub(crate) fn implies(&self, other: &Self, patterns: &Patterns) -> bool {
        match (self, other) {
            (_, Self::Present) => true,
            (Self::Exact(text), Self::Prefix(prefix)) => text.starts_with(prefix),
            (Self::Prefix(long), Self::Prefix(prefix)) => long.starts_with(prefix),
            (Self::Exact(text), Self::Pattern(pattern)) => patterns.matches(pattern, text),
            _ => self == other,
        }
    }

    /// As in the tables `headers`, `cookie` and `query`.
    pub(crate) fn written(&self) -> crate::draft::DraftValue {
        match self {
            Self::Present => true.into(),
            Self::Exact(text) if text.ends_with('*') || text.starts_with('~') => {
                format!("~ {}", values::escaped(text)).into()
            }
            Self::Exact(text) => text.clone().into(),
            Self::Prefix(text) if text.starts_with('~') => format!("~ {}.*", values::escaped(text)).into(),
            Self::Prefix(text) => format!("{text}*").into(),
            Self::Pattern(pattern) => format!("~ {pattern}").into(),
        }
    }
}

/// Compiled expressions, and the literal prefixes of their matches.
#[derive(Default)]
pub(crate) struct Patterns {
    compiled: RefCell<BTreeMap<String, Option<Regex>>>,
    beginnings: RefCell<BTreeMap<String, String>>,
}

impl Patterns {
    /// Larger programs are not compiled, and match nothing.
    const PROGRAM_BYTES_MAX: usize = 1 << 20;

    fn matches(&self, pattern: &str, text: &str) -> bool {
        let mut known = self.compiled.borrow_mut();
        let regex = known.entry(pattern.to_owned()).or_insert_with(|| {
            let whole = format!("^(?s:{pattern})$");
            RegexBuilder::new(&whole).size_limit(Self::PROGRAM_BYTES_MAX).build().ok()
        });
        regex.as_ref().is_some_and(|regex| regex.is_match(text.as_bytes()))
    }

    /// Returns the prefix of all paths that match an expression.
    fn beginning(&self, pattern: &str) -> String {
        let mut known = self.beginnings.borrow_mut();
        known.entry(pattern.to_owned()).or_insert_with(|| beginning(pattern)).clone()
    }
}

fn beginning(pattern: &str) -> String {
    let mut parser = regex_syntax::ParserBuilder::new();
    let Ok(parsed) = parser.unicode(false).utf8(false).nest_limit(50).build().parse(pattern) else {
        return String::new();
    };
    let prefixes = regex_syntax::hir::literal::Extractor::new().extract(&parsed);
    let common = prefixes.longest_common_prefix().unwrap_or_default();
    String::from_utf8_lossy(common).into_owned()
}

/// Whether an expression's literal beginning excludes a prefix.
fn is_apart(prefix: &str, pattern: &str) -> bool {
    let literal: String = pattern
        .chars()
        .take_while(|letter| letter.is_ascii_alphanumeric() || "/_-".contains(*letter))
        .collect();
    // The last letter may be optional: `/a?`.
    let literal = literal.get(..literal.len().saturating_sub(1)).unwrap_or_default();
    !literal.starts_with(prefix) && !prefix.starts_with(literal)
}

fn has_letters(path: &str) -> bool {
    path.bytes().any(|byte| byte.is_ascii_alphabetic())
}

fn is_below(host: &str, domain: &str) -> bool {
    host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.') && rest.len() > 1)
}

/// Whether a path needs no escaping in a route.
pub(crate) fn is_path(path: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/_.~!&'(),=:@-+".contains(&byte);
    path.starts_with('/')
        && path.bytes().all(is_plain)
        && !path.contains("//")
        && path.split('/').all(|segment| !matches!(segment, "." | ".."))
}

pub(crate) fn is_host(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 253
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'))
        && text.split('.').all(|label| {
            !label.is_empty() && label.len() <= 63 && !label.starts_with('-') && !label.ends_with('-')
        })
}

/// Whether a condition implies another.
pub(super) fn implies(known: &Atom, wanted: &Atom, patterns: &Patterns) -> bool {
    match (known, wanted) {
        (known, wanted) if known == wanted => true,
        (Atom::Host(own), Atom::Host(other)) => own.implies(other, patterns),
        (Atom::Path(own), Atom::Path(other)) => own.implies(other, patterns),
        (Atom::Methods(own), Atom::Methods(other)) => own.iter().all(|method| other.contains(method)),
        (Atom::Clients(own), Atom::Clients(other)) => {
            own.iter().all(|network| other.iter().any(|wide| values::is_within(network, wide)))
        }
        (Atom::Header(name, own), Atom::Header(wanted, other)) => {
            name.eq_ignore_ascii_case(wanted) && own.implies(other, patterns)
        }
        (Atom::Cookie(name, own), Atom::Cookie(wanted, other))
        | (Atom::Query(name, own), Atom::Query(wanted, other)) => {
            name == wanted && own.implies(other, patterns)
        }
        _ => false,
    }
}

/// Adds a condition to a set, if a route supports all of them together.
pub(super) fn with(set: &[Atom], atom: &Atom, patterns: &Patterns) -> Option<Vec<Atom>> {
    if set.iter().any(|known| implies(known, atom, patterns)) {
        return None;
    }
    let mut set: Vec<Atom> = set.iter().filter(|known| !implies(atom, known, patterns)).cloned().collect();
    let mut met = atom.clone();
    for index in (0..set.len()).rev() {
        match (&set[index], &met) {
            (Atom::Methods(own), Atom::Methods(other)) => {
                met = Atom::Methods(own.iter().filter(|method| other.contains(method)).cloned().collect());
                set.remove(index);
            }
            (Atom::Clients(own), Atom::Clients(other)) => {
                let mut both = networks_within(own, other);
                both.extend(networks_within(other, own));
                both.dedup();
                met = Atom::Clients(both);
                set.remove(index);
            }
            (Atom::Header(name, _), Atom::Header(other, _)) if name.eq_ignore_ascii_case(other) => {
                return None;
            }
            (Atom::Cookie(name, _), Atom::Cookie(other, _))
            | (Atom::Query(name, _), Atom::Query(other, _))
                if name == other =>
            {
                return None;
            }
            _ => {}
        }
    }
    let is_nothing = match &met {
        Atom::Methods(list) | Atom::Clients(list) => list.is_empty(),
        _ => false,
    };
    set.push(met);
    (!is_nothing).then_some(set)
}

fn networks_within(own: &[String], other: &[String]) -> Vec<String> {
    let is_in = |network: &&String| other.iter().any(|wide| values::is_within(network, wide));
    own.iter().filter(is_in).cloned().collect()
}
