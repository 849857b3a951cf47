//! Conditions of `if` and keys of `map`, as conditions on requests.

use adapt::statements::Statement;

use crate::old::OldCondition;
use crate::pattern::TextPattern;

/// The condition of an `if`. None if requests cannot bring it about.
pub(super) fn of_if(statement: &Statement) -> Option<OldCondition> {
    let joined = statement.words.join(" ");
    let inner = joined.trim().strip_prefix('(')?.strip_suffix(')')?.trim().to_owned();
    let mut parts = inner.splitn(3, ' ');
    let (variable, operator, value) = (parts.next()?, parts.next(), parts.next().unwrap_or_default());
    let value = value.trim();
    let pattern = match operator {
        None => TextPattern::Present,
        Some("=" | "!=") => TextPattern::Exact(value.to_owned()),
        Some("~" | "!~") => super::expression(value, false),
        Some("~*" | "!~*") => super::expression(value, true),
        Some(_) => return None,
    };
    of_variable(variable, pattern)
}

/// The key of a map's row.
pub(super) fn of_key(key: &str) -> TextPattern {
    if let Some(pattern) = key.strip_prefix("~*") {
        return super::expression(pattern, true);
    }
    if let Some(pattern) = key.strip_prefix('~') {
        return super::expression(pattern, false);
    }
    if key.starts_with("*.") {
        return TextPattern::Suffix(key[1..].to_owned());
    }
    TextPattern::ExactAnyCase(key.trim_start_matches('\\').to_owned())
}

/// The condition that a variable has a value.
pub(super) fn of_variable(variable: &str, pattern: TextPattern) -> Option<OldCondition> {
    let name = variable.trim_start_matches('$').trim_matches(['{', '}']);
    let text = match &pattern {
        TextPattern::Exact(text) | TextPattern::ExactAnyCase(text) => Some(text.clone()),
        _ => None,
    };
    match name {
        "host" | "http_host" => return Some(OldCondition::Host(pattern)),
        "query_string" | "args" => return Some(OldCondition::Query(pattern)),
        "uri" | "request_uri" | "document_uri" => return Some(OldCondition::Path(pattern)),
        "invalid_referer" => {
            // A Referer that is no URL may be valid.
            let elsewhere = TextPattern::Exact("https://stranger.example.net/page".to_owned());
            return Some(OldCondition::Field("Referer".to_owned(), elsewhere));
        }
        "remote_addr" | "binary_remote_addr" => return text.map(|text| OldCondition::Clients(vec![text])),
        "request_method" => {
            let methods = text.map_or_else(
                || pattern.matching(&mut crate::pattern::Random::new(0)),
                |text| vec![text.to_ascii_uppercase()],
            );
            return Some(OldCondition::Methods(methods));
        }
        // A request with it becomes a tunnel.
        "http_upgrade" | "http_connection" => return None,
        _ => {}
    }
    if let Some(field) = name.strip_prefix("http_") {
        return Some(OldCondition::Field(field.replace('_', "-"), pattern));
    }
    if let Some(cookie) = name.strip_prefix("cookie_") {
        return Some(OldCondition::Cookie(cookie.to_owned(), pattern));
    }
    name.strip_prefix("arg_").map(|argument| OldCondition::Argument(argument.to_owned(), pattern))
}
