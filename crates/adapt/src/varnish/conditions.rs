//! Conditions of VCL as conditions of routes.

use super::VarnishAdapter;
use super::backends::AclNetworks;
use super::repeats::Attempt;
use super::syntax::VclToken;
use crate::rules::{Atom, Expression, HostIs, PathIs, TextIs, literal};
use crate::values;

const DEEP_MAX: usize = 32;

/// The path and query as one text, as `req.url` is.
const URL: &str = "(request.path + (has(request.query) ? \"?\" + request.query : \"\"))";

struct ConditionReader<'t, 's> {
    tokens: &'t [VclToken],
    at: usize,
    number: usize,
    acls: &'t std::collections::BTreeMap<&'s str, Option<AclNetworks>>,
    attempt: Attempt,
}

impl<'s> VarnishAdapter<'s> {
    pub(super) fn condition(&self, tokens: &[VclToken], number: usize) -> Expression {
        let mut reader = ConditionReader { tokens, at: 0, number, acls: &self.acls, attempt: self.attempt };
        let made = reader.either(0);
        if reader.at < tokens.len() {
            Expression::Unsaid("this condition is not understood".to_owned())
        } else {
            made
        }
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
            return self.one(depth + 1).not();
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
            None => self.said(left, None),
            Some((sign, value)) => {
                let is = self.said(
                    left,
                    Some((sign.trim_start_matches('!').len() == 1 && sign.ends_with('~'), &value)),
                );
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

    /// Converts a name alone, or compared with a text (`false`) or an expression (`true`).
    fn said(&self, left: &str, right: Option<(bool, &str)>) -> Expression {
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
        let made = match (lower.as_str(), right) {
            ("req.url", Some((false, path))) => Some(vec![Atom::Path(PathIs::exact(path))]),
            ("req.url", Some((true, pattern))) => path(pattern).map(|path| vec![path]),
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

/// Converts an expression for a URL: `^/literal` is a prefix, `^/literal$` an exact path.
fn path(pattern: &str) -> Option<Atom> {
    let literal = pattern.strip_prefix('^').unwrap_or_default();
    let (literal, is_whole) = literal.strip_suffix('$').map_or((literal, false), |literal| (literal, true));
    let is_plain = |text: &str| {
        text.starts_with('/')
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/_-".contains(&byte))
    };
    if is_plain(literal) {
        return Some(Atom::Path(if is_whole { PathIs::exact(literal) } else { PathIs::prefix(literal) }));
    }
    // Only the path is compared here, without a query. So a suffix may be followed by one.
    let pattern = [r"(\?.*)?$", r"(\?|$)", r"($|\?)", r"(?:\?|$)"]
        .iter()
        .find_map(|end| pattern.strip_suffix(end))
        .map(|rest| format!("{rest}$"))
        .unwrap_or_else(|| pattern.to_owned());
    if !may_ask_for_query(&pattern) {
        return values::expression(&pattern, false).ok().map(|pattern| Atom::Path(PathIs::Pattern(pattern)));
    }
    // Escapes of the path are decoded here, those of the query are not.
    let pattern = values::search(&pattern, false).ok().filter(|pattern| !pattern.contains('%'))?;
    Some(Atom::When(format!("{URL}.matches({})", crate::rules::literal(&pattern))))
}

/// Whether an expression for a URL names what only queries have: `?`, `&` or `=`.
fn may_ask_for_query(pattern: &str) -> bool {
    let bare = pattern.replace(r"\?", "\u{1}");
    let mut letters = bare.chars();
    let mut in_class = false;
    while let Some(letter) = letters.next() {
        match letter {
            '\u{1}' | '&' | '=' => return true,
            '\\' => drop(letters.next()),
            '[' => in_class = true,
            ']' => in_class = false,
            '?' if in_class => return true,
            _ => {}
        }
    }
    false
}
