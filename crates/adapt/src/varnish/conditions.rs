//! Conditions of VCL as conditions of routes.

use super::VarnishAdapter;
use super::syntax::VclToken;
use crate::rules::{Atom, Expression, HostIs, PathIs, TextIs};
use crate::values;

const DEEP_MAX: usize = 32;

struct ConditionReader<'t, 's> {
    tokens: &'t [VclToken],
    at: usize,
    number: usize,
    acls: &'t std::collections::BTreeMap<&'s str, Option<Vec<String>>>,
}

impl<'s> VarnishAdapter<'s> {
    pub(super) fn condition(&self, tokens: &[VclToken], number: usize) -> Expression {
        let mut reader = ConditionReader { tokens, at: 0, number, acls: &self.acls };
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
                    _ => Expression::Unsaid(format!("routes cannot match on {left} {sign}")),
                }
            }
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
        let unsaid = || Expression::Unsaid(format!("routes cannot match on {left}"));
        let made = match (lower.as_str(), right) {
            ("req.url", Some((false, path))) => Some(vec![Atom::Path(PathIs::exact(path))]),
            ("req.url", Some((true, pattern))) => path(pattern).map(|path| vec![Atom::Path(path)]),
            ("req.http.host", Some((false, host))) => HostIs::named(host).map(|host| vec![Atom::Host(host)]),
            ("req.http.host", Some((true, pattern))) => values::expression(pattern, true)
                .ok()
                .map(|pattern| vec![Atom::Host(HostIs::Pattern(pattern))]),
            ("req.method" | "req.request", Some((false, method))) => {
                Some(vec![Atom::Methods(vec![method.to_owned()])])
            }
            ("req.method" | "req.request", Some((true, pattern))) => {
                let bare = pattern.trim_start_matches('^').trim_end_matches('$').trim_matches(['(', ')']);
                let methods: Vec<String> = bare.split('|').map(str::to_owned).collect();
                let are_words = methods
                    .iter()
                    .all(|method| method.bytes().all(|byte| byte.is_ascii_uppercase()) && !method.is_empty());
                are_words.then(|| vec![Atom::Methods(methods)])
            }
            ("client.ip", Some((true, acl))) => {
                self.acls.get(acl).cloned().flatten().map(|networks| vec![Atom::Clients(networks)])
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

/// Converts an expression for a URL: `^/literal` is a prefix, `^/literal$` an exact path.
fn path(pattern: &str) -> Option<PathIs> {
    let literal = pattern.strip_prefix('^').unwrap_or_default();
    let (literal, is_whole) = literal.strip_suffix('$').map_or((literal, false), |literal| (literal, true));
    let is_plain = |text: &str| {
        text.starts_with('/')
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/_-".contains(&byte))
    };
    if is_plain(literal) {
        return Some(if is_whole { PathIs::exact(literal) } else { PathIs::prefix(literal) });
    }
    // Only the path is compared here, without a query. So a suffix may be followed by one.
    let pattern = pattern
        .strip_suffix(r"(\?.*)?$")
        .map(|rest| format!("{rest}$"))
        .unwrap_or_else(|| pattern.to_owned());
    if pattern.contains("\\?") {
        return None;
    }
    values::expression(&pattern, false).ok().map(PathIs::Pattern)
}
