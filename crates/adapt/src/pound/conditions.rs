//! Conditions of services.

use crate::rules::{Atom, Expression, HostIs, PathIs, TextIs};
use crate::source::Directive;
use crate::values;

/// Statements of a service that are conditions, except those that combine others.
const NAMES: [&str; 12] = [
    "url",
    "path",
    "host",
    "headrequire",
    "header",
    "headdeny",
    "acl",
    "basicauth",
    "query",
    "queryparam",
    "stringmatch",
    "clientcert",
];

#[derive(Clone, Copy, PartialEq)]
enum How {
    Regex,
    Exact,
    Begins,
    Ends,
    Contains,
}

/// Parses a condition of a service; `None` for any other statement.
pub(super) fn condition(directive: &Directive, ignores_case: bool) -> Option<Expression> {
    let number = directive.number;
    let (name, words) = match directive.name.as_str() {
        "not" => {
            let (name, rest) = directive.words.split_first()?;
            let inner =
                Directive { number, name: name.to_ascii_lowercase(), words: rest.to_vec(), block: None };
            return Some(condition(&inner, ignores_case)?.not());
        }
        "match" => {
            let parts: Vec<_> =
                directive.inner().iter().filter_map(|inner| condition(inner, ignores_case)).collect();
            let is_or = directive.word(0).eq_ignore_ascii_case("or");
            return Some(if is_or { Expression::Either(parts) } else { Expression::all(parts) });
        }
        name if NAMES.contains(&name) => (name, &directive.words),
        _ => return None,
    };
    // Pound 2 and zproxy compare by expressions, as later versions do by default. Hosts are compared as a whole.
    let mut how = if name == "host" { How::Exact } else { How::Regex };
    let mut ignores_case = ignores_case;
    for word in words.iter().take(words.len().saturating_sub(1)) {
        match word.as_str() {
            "-re" | "-pcre" | "-posix" => how = How::Regex,
            "-exact" => how = How::Exact,
            "-beg" => how = How::Begins,
            "-end" => how = How::Ends,
            "-contain" => how = How::Contains,
            "-icase" => ignores_case = true,
            "-case" => ignores_case = false,
            other => return Some(Expression::Unsaid(format!("{other} is not examined"))),
        }
    }
    let text = words.last().map_or("", String::as_str);
    Some(match name {
        "url" | "path" => path(text, how, ignores_case, number),
        "host" => host(text, how, number),
        "headrequire" | "header" => line(text, how, number),
        "headdeny" => line(text, how, number).not(),
        _ => Expression::Unsaid(format!("the condition {name} is written in another way")),
    })
}

/// Converts another comparison to an expression.
fn as_expression(text: &str, how: How) -> String {
    match how {
        How::Regex => text.to_owned(),
        How::Exact => format!("^{}$", values::escaped(text)),
        How::Begins => format!("^{}", values::escaped(text)),
        How::Ends => format!("{}$", values::escaped(text)),
        How::Contains => values::escaped(text),
    }
}

fn path(text: &str, how: How, ignores_case: bool, number: usize) -> Expression {
    if how == How::Exact && !ignores_case {
        return Expression::Any(vec![Atom::Path(PathIs::exact(text))], number);
    }
    match values::expression(&as_expression(text, how), ignores_case) {
        Ok(pattern) => Expression::Any(vec![Atom::Path(PathIs::Pattern(pattern))], number),
        Err(why) => Expression::Unsaid(why),
    }
}

fn host(text: &str, how: How, number: usize) -> Expression {
    if how == How::Exact
        && let Some(host) = HostIs::named(text)
    {
        return Expression::Any(vec![Atom::Host(host)], number);
    }
    match values::expression(&as_expression(text, how), false) {
        Ok(pattern) => Expression::Any(vec![Atom::Host(HostIs::Pattern(pattern))], number),
        Err(why) => Expression::Unsaid(why),
    }
}

/// Parses a condition on a header line: `Host: .*example\.com.*`.
fn line(text: &str, how: How, number: usize) -> Expression {
    let unsaid = || Expression::Unsaid("it is not an expression of the form NAME: VALUE".to_owned());
    let Some((name, value)) = text.trim_start_matches('^').split_once(':').filter(|_| how == How::Regex)
    else {
        return unsaid();
    };
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        return unsaid();
    }
    // Spaces before the value are not part of it.
    let mut value = value;
    for blank in ["[ \t]*", "[ \\t]*", "[[:space:]]*", "\\s*", " *", " ?", " "] {
        value = value.trim_start_matches(blank);
    }
    if name.eq_ignore_ascii_case("host") {
        if let Some(host) = plain_host(value) {
            return Expression::Any(vec![Atom::Host(host)], number);
        }
        return host(&format!("^(?:{value})"), How::Regex, number);
    }
    if matches!(value, "" | ".*" | ".+") {
        return Expression::Any(vec![Atom::Header(name.to_owned(), TextIs::Present)], number);
    }
    match values::expression(&format!("^(?:{value})"), false) {
        Ok(pattern) => Expression::Any(vec![Atom::Header(name.to_owned(), TextIs::Pattern(pattern))], number),
        Err(why) => Expression::Unsaid(why),
    }
}

/// Returns the host that an expression matches, if it is literal: `www\.example\.com$`.
fn plain_host(expression: &str) -> Option<HostIs> {
    let text = expression.strip_suffix('$')?;
    let host = text.replace("\\.", ".");
    if text.replace("\\.", "").contains(['.', '*', '+', '?', '(', '[', '|', '\\', '^']) {
        return None;
    }
    HostIs::named(&host)
}
