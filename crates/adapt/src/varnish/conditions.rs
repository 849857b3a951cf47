//! Conditions of VCL as conditions of routes.

use regex_syntax::hir::{Class, Hir, HirKind};

use super::VarnishAdapter;
use super::backends::AclNetworks;
use super::repeats::Attempt;
use super::subroutines::CALLS_DEEP_MAX;
use super::syntax::{Statement, VclToken};
use crate::rules::{Atom, Expression, HostIs, PathIs, TextIs, literal};
use crate::values;

const DEEP_MAX: usize = 32;

/// The path and query as one text, as `req.url` is.
const URL: &str = "(request.raw_path + (has(request.query) ? \"?\" + request.query : \"\"))";
const NO_QUERY: &str = "!has(request.query)";

/// The requests for which a condition on the path holds only if they send the path as it is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SpelledPaths {
    None,
    /// Requests that meet the condition, because other statements refuse requests.
    Meeting,
    /// Requests that do not, because the statements behind the condition refuse requests.
    Missing,
}

struct ConditionReader<'t, 's> {
    tokens: &'t [VclToken],
    at: usize,
    number: usize,
    acls: &'t std::collections::BTreeMap<&'s str, Option<AclNetworks>>,
    attempt: Attempt,
    spelled: SpelledPaths,
    is_negated: bool,
}

impl<'s> VarnishAdapter<'s> {
    pub(super) fn condition(&self, tokens: &[VclToken], number: usize) -> Expression {
        let (acls, attempt) = (&self.acls, self.attempt);
        let spelled = self.spelled.get(&number).copied().unwrap_or(SpelledPaths::None);
        let mut reader = ConditionReader { tokens, at: 0, number, acls, attempt, spelled, is_negated: false };
        let made = reader.either(0);
        if reader.at < tokens.len() {
            Expression::Unsaid("this condition is not understood".to_owned())
        } else {
            made
        }
    }
}

impl<'s> VarnishAdapter<'s> {
    /// Notes whether requests that meet a condition, or the others, pass what refuses requests. Varnish compares paths as
    /// they are sent, so only that spelling of a path may let them pass.
    pub(super) fn spell(&mut self, body: &[&'s Statement], depth: usize) {
        for statement in body.iter().filter(|_| depth <= CALLS_DEEP_MAX) {
            match statement {
                Statement::If(branches) => {
                    for (number, _, inner) in branches {
                        let inner: Vec<&'s Statement> = inner.iter().collect();
                        let spelled = match self.refuses(&inner) {
                            true => SpelledPaths::Missing,
                            false => SpelledPaths::Meeting,
                        };
                        self.spelled.insert(*number, spelled);
                        self.spell(&inner, depth + 1);
                    }
                }
                Statement::Plain { name, tokens, .. } if name == "call" => {
                    let called = tokens.first().and_then(|name| self.subs.get(name.text()).cloned());
                    self.spell(&called.unwrap_or_default(), depth + 1);
                }
                Statement::Plain { .. } => {}
            }
        }
    }

    /// Whether some statement refuses requests, at any depth.
    pub(super) fn refuses(&self, body: &[&'s Statement]) -> bool {
        let mut plain = Vec::new();
        self.statements(body, 0, &mut plain);
        plain.iter().any(|(name, words)| is_refusal(name, words))
    }
}

/// Whether a statement refuses requests.
pub(super) fn is_refusal(name: &str, words: &[&str]) -> bool {
    match (name, words) {
        ("return", [_, "synth", _, status, ..]) => {
            status.parse::<u16>().is_ok_and(|status| !(200..400).contains(&status) && status < 700)
        }
        _ => false,
    }
}

impl ConditionReader<'_, '_> {
    fn either(&mut self, depth: usize) -> Expression {
        let mut parts = vec![self.both(depth)];
        while self.takes("||") {
            parts.push(self.both(depth));
        }
        if parts.len() == 1 { parts.remove(0) } else { Expression::Either(parts) }
    }

    fn both(&mut self, depth: usize) -> Expression {
        let mut parts = vec![self.one(depth)];
        while self.takes("&&") {
            parts.push(self.one(depth));
        }
        Expression::all(parts)
    }

    fn takes(&mut self, sign: &str) -> bool {
        let is = self.tokens.get(self.at).is_some_and(|token| token.is(sign));
        self.at += usize::from(is);
        is
    }

    fn one(&mut self, depth: usize) -> Expression {
        if depth > DEEP_MAX {
            self.at = self.tokens.len() + 1;
            return Expression::Unsaid("it is nested too deeply".to_owned());
        }
        if self.takes("!") {
            self.is_negated = !self.is_negated;
            let inner = self.one(depth + 1).not();
            self.is_negated = !self.is_negated;
            return inner;
        }
        if self.takes("(") {
            let inner = self.either(depth + 1);
            self.takes(")");
            return inner;
        }
        let Some(VclToken::Word(left)) = self.tokens.get(self.at) else {
            self.at += 1;
            return Expression::Unsaid("this condition is not understood".to_owned());
        };
        self.at += 1;
        // A function: its parentheses belong to it.
        if self.takes("(") {
            let mut open = 1;
            while let Some(token) = self.tokens.get(self.at).filter(|_| open > 0) {
                open += i32::from(token.is("(")) - i32::from(token.is(")"));
                self.at += 1;
            }
            self.right();
            return Expression::Unsaid(format!("routes cannot match on {left}()"));
        }
        match self.right() {
            None => self.said(left, None, false),
            Some((sign, value)) => {
                let is_pattern = sign.trim_start_matches('!').len() == 1 && sign.ends_with('~');
                let is = self.said(left, Some((is_pattern, &value)), sign.starts_with('!'));
                match sign {
                    "~" | "==" => is,
                    "!~" | "!=" => is.not(),
                    sign => self.number(left, sign, &value),
                }
            }
        }
    }

    /// A comparison of numbers.
    fn number(&self, left: &str, sign: &str, value: &str) -> Expression {
        match (self.attempt.count(left), value.parse::<u32>()) {
            (Some(count), Ok(number)) => Expression::fixed(match sign {
                ">" => count > number,
                ">=" => count >= number,
                "<" => count < number,
                _ => count <= number,
            }),
            _ => Expression::Unsaid(format!("routes cannot match on {left} {sign}")),
        }
    }

    /// Takes the operator and the value after a name.
    fn right(&mut self) -> Option<(&'static str, String)> {
        let Some(VclToken::Sign(sign)) = self.tokens.get(self.at) else { return None };
        if !["~", "!~", "==", "!=", "<", ">", "<=", ">="].contains(sign) {
            return None;
        }
        self.at += 1;
        let value = self.tokens.get(self.at).map_or(String::new(), |token| token.text().to_owned());
        self.at += 1;
        Some((sign, value))
    }

    /// Converts a name alone, or compared with a text (`false`) or an expression (`true`). `is_unequal`: the comparison
    /// is negated.
    fn said(&self, left: &str, right: Option<(bool, &str)>, is_unequal: bool) -> Expression {
        let lower = left.to_ascii_lowercase();
        let lower = lower.replacen("bereq.", "req.", 1);
        let any = |atoms: Vec<Atom>| Expression::Any(atoms, self.number);
        match (lower.as_str(), right) {
            ("true" | "false", None) => return Expression::fixed(lower == "true"),
            // Varnish adds the client to this field before its rules.
            ("req.http.x-forwarded-for", None) => return Expression::fixed(true),
            ("req.http.x-forwarded-for", Some(_)) => {
                return Expression::Unsaid(format!("{left} has the client's address at its end"));
            }
            (_, Some((false, value))) if let Some(count) = self.attempt.count(left) => {
                return Expression::fixed(value.parse() == Ok(count));
            }
            (_, None) if let Some(count) = self.attempt.count(left) => return Expression::fixed(count > 0),
            ("client.ip", Some((true, acl))) => {
                let Some(AclNetworks { within, except }) = self.acls.get(acl).cloned().flatten() else {
                    return Expression::Unsaid(format!("the networks of {acl} are not translated"));
                };
                let is_within = any(vec![Atom::Clients(within)]);
                return match except.is_empty() {
                    true => is_within,
                    false => Expression::all(vec![is_within, any(vec![Atom::Clients(except)]).not()]),
                };
            }
            _ => {}
        }
        let unsaid = || Expression::Unsaid(format!("routes cannot match on {left}"));
        if let ("req.url", Some((is_pattern, text))) = (lower.as_str(), right) {
            let made =
                if is_pattern { UrlCondition::matching(text) } else { Some(UrlCondition::exact(text)) };
            let is_spelled = self.spelled != SpelledPaths::None
                && (self.spelled == SpelledPaths::Missing) == (self.is_negated != is_unequal);
            return made.map_or_else(unsaid, |url| url.expression(is_spelled, self.number));
        }
        let made = match (lower.as_str(), right) {
            ("req.http.host", Some((false, host))) => HostIs::named(host).map(|host| vec![Atom::Host(host)]),
            ("req.http.host", Some((true, pattern))) => values::expression(pattern, true)
                .ok()
                .map(|pattern| vec![Atom::Host(HostIs::Pattern(pattern))]),
            ("req.method" | "req.request", Some((false, method))) => {
                Some(vec![Atom::Methods(vec![method.to_owned()])])
            }
            ("req.method" | "req.request", Some((true, pattern))) => methods(pattern).map(|atom| vec![atom]),
            ("client.ip", Some((false, address))) if values::is_network(address) => {
                Some(vec![Atom::Clients(vec![address.to_owned()])])
            }
            ("req.proto", Some((false, version))) => {
                const VERSIONS: [(&str, &str); 3] =
                    [("HTTP/1.0", "1.0"), ("HTTP/1.1", "1.1"), ("HTTP/2.0", "2")];
                let known = VERSIONS.iter().find(|(name, _)| *name == version);
                known.map(|(_, here)| vec![Atom::When(format!("request.version == \"{here}\""))])
            }
            (name, right) => {
                match (name.strip_prefix("req.http.").map(|field| &left[left.len() - field.len()..]), right) {
                    (Some(field), None) => Some(vec![Atom::Header(field.to_owned(), TextIs::Present)]),
                    (Some(field), Some((false, value))) => {
                        Some(vec![Atom::Header(field.to_owned(), TextIs::Exact(value.to_owned()))])
                    }
                    (Some(field), Some((true, pattern))) => {
                        let pattern = values::expression(pattern, false).ok();
                        pattern.map(|pattern| vec![Atom::Header(field.to_owned(), TextIs::Pattern(pattern))])
                    }
                    (None, _) => None,
                }
            }
        };
        made.map_or_else(unsaid, any)
    }
}

/// Converts an expression for a method: `^(GET|HEAD)$` is a list.
fn methods(pattern: &str) -> Option<Atom> {
    let bare = pattern.trim_start_matches('^').trim_end_matches('$').trim_matches(['(', ')']);
    let methods: Vec<String> = bare.split('|').map(str::to_owned).collect();
    let is_word =
        |method: &String| method.bytes().all(|byte| byte.is_ascii_uppercase()) && !method.is_empty();
    if methods.iter().all(is_word) && pattern.starts_with('^') && pattern.ends_with('$') {
        return Some(Atom::Methods(methods));
    }
    let pattern = values::search(pattern, false).ok()?;
    Some(Atom::When(format!("request.method.matches({})", literal(&pattern))))
}

/// A condition on a URL: on its path, on the absence of a query, or on the whole text.
struct UrlCondition {
    path: Option<PathIs>,
    /// Conditions beside that on the path.
    more: Vec<String>,
}

impl UrlCondition {
    /// A comparison with a whole URL.
    fn exact(url: &str) -> Self {
        match url.contains('?') || !url.starts_with('/') {
            true => Self::whole(format!("{URL} == {}", literal(url))),
            false => Self { path: Some(PathIs::exact(url)), more: vec![NO_QUERY.to_owned()] },
        }
    }

    fn whole(text: String) -> Self {
        Self { path: None, more: vec![text] }
    }

    /// An expression: `^/literal` is a prefix, `^/literal$` an exact path without a query. Others that cannot reach into
    /// the query are expressions for the path.
    fn matching(pattern: &str) -> Option<Self> {
        let literal = pattern.strip_prefix('^').unwrap_or_default();
        let (literal, is_whole) =
            literal.strip_suffix('$').map_or((literal, false), |literal| (literal, true));
        let is_plain = |text: &str| {
            text.starts_with('/')
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/_-".contains(&byte))
        };
        if is_plain(literal) {
            return Some(match is_whole {
                true => Self::exact(literal),
                false => Self { path: Some(PathIs::prefix(literal)), more: Vec::new() },
            });
        }
        // A path with any query behind it.
        let of_path = [r"(\?.*)?$", r"(\?|$)", r"($|\?)", r"(?:\?|$)"]
            .iter()
            .find_map(|end| pattern.strip_suffix(end))
            .map(|rest| (format!("{rest}$"), Vec::new()));
        let (of_path, more) = of_path.unwrap_or_else(|| match pattern.ends_with('$') {
            true => (pattern.to_owned(), vec![NO_QUERY.to_owned()]),
            false => (pattern.to_owned(), Vec::new()),
        });
        if stays_in_path(&of_path) {
            let path = values::expression(&of_path, false).ok()?;
            return Some(Self { path: Some(PathIs::Pattern(path)), more });
        }
        let pattern = values::search(pattern, false).ok()?;
        Some(Self::whole(format!("{URL}.matches({})", crate::rules::literal(&pattern))))
    }

    /// `is_spelled`: the path has to be sent as it is written, because such requests pass what protects others.
    fn expression(self, is_spelled: bool, number: usize) -> Expression {
        let is = |atom: Atom| Expression::Any(vec![atom], number);
        let spelled = self.path.iter().filter(|_| is_spelled).map(crate::rules::spelled);
        let more: Vec<Atom> = spelled.chain(self.more.iter().cloned().map(Atom::When)).collect();
        let path = self.path.map(Atom::Path).into_iter();
        Expression::all(path.chain(more).map(is).collect())
    }
}

/// Whether an expression for a URL looks at its path alone: it begins at the start, and matches no `?`.
fn stays_in_path(pattern: &str) -> bool {
    let mut parser = regex_syntax::ParserBuilder::new();
    let Ok(parsed) = parser.unicode(false).utf8(false).nest_limit(50).build().parse(pattern) else {
        return false;
    };
    let properties = parsed.properties();
    let ends = |set: regex_syntax::hir::LookSet| set.contains(regex_syntax::hir::Look::End);
    let (has_end, is_at_end) = (ends(properties.look_set()), ends(properties.look_set_suffix()));
    let begins = properties.look_set_prefix().contains(regex_syntax::hir::Look::Start);
    begins && has_end == is_at_end && !has_question_mark(&parsed)
}

fn has_question_mark(hir: &Hir) -> bool {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => false,
        HirKind::Literal(literal) => literal.0.contains(&b'?'),
        HirKind::Class(Class::Unicode(class)) => {
            class.iter().any(|range| (range.start()..=range.end()).contains(&'?'))
        }
        HirKind::Class(Class::Bytes(class)) => {
            class.iter().any(|range| (range.start()..=range.end()).contains(&b'?'))
        }
        HirKind::Repetition(repetition) => has_question_mark(&repetition.sub),
        HirKind::Capture(capture) => has_question_mark(&capture.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => parts.iter().any(has_question_mark),
    }
}
