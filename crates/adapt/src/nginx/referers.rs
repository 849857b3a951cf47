//! `valid_referers`: what pages may lead to a location, as the variable `$invalid_referer`.

use std::rc::Rc;

use super::scope::BlockScope;
use super::truth::NginxCondition;
use super::variables::{ResolvedVariable, SetVariables, ValueTest, VariableValue};
use crate::rules::literal;
use crate::values;

const REFERER: &str = "request.headers[\"referer\"]";

/// Gives `$invalid_referer` its value, if the place has `valid_referers`.
pub(super) fn set(scope: &BlockScope<'_>, sets: &mut Rc<SetVariables>) {
    let all = scope.all("valid_referers");
    if all.is_empty() {
        return;
    }
    let words: Vec<&str> = all.iter().flat_map(|directive| &directive.words).map(String::as_str).collect();
    let resolved = valid(&words, scope).map(|valid| {
        let tests = vec![(ValueTest::When(valid), VariableValue::constant(""))];
        let otherwise = Box::new(VariableValue::constant("1"));
        let used = all.iter().map(|directive| directive.number).collect();
        Rc::new(ResolvedVariable {
            value: VariableValue::Choice { tests, otherwise },
            used,
            is_of_block: true,
        })
    });
    Rc::make_mut(sets).insert("invalid_referer".to_owned(), resolved);
}

/// The condition of a valid Referer.
///
/// # Errors
/// A word is not understood.
fn valid(words: &[&str], scope: &BlockScope<'_>) -> Result<NginxCondition, String> {
    let mut parts = Vec::new();
    let mut hosts: Vec<String> = Vec::new();
    for word in words {
        match *word {
            "none" => parts.push(NginxCondition::call(format!("has({REFERER})")).negated()),
            "blocked" => {
                let has_url = NginxCondition::call(matches("^https?://."));
                let is_there = NginxCondition::call(format!("has({REFERER})"));
                parts.push(NginxCondition::all(vec![is_there, has_url.negated()]));
            }
            "server_names" => {
                let names = scope.one("server_name").map(|names| names.words.as_slice()).unwrap_or_default();
                for name in names.iter().filter(|name| !name.starts_with('~')) {
                    hosts.extend(host(name));
                }
            }
            word => match word.strip_prefix('~') {
                Some(pattern) => {
                    let anywhere = match pattern.strip_prefix('^') {
                        Some(rest) => format!("^https?://(?:{rest})"),
                        None => format!("^https?://.*(?:{pattern})"),
                    };
                    let pattern = values::search(&anywhere, true)?;
                    parts.push(NginxCondition::call(matches(&pattern)));
                }
                None => hosts.push(host(word).ok_or_else(|| format!("{word} is no host"))?),
            },
        }
    }
    if !hosts.is_empty() {
        parts.push(NginxCondition::call(matches(&format!("^https?://(?:{})", hosts.join("|")))));
    }
    Ok(NginxCondition::any(parts))
}

/// A test of the Referer in lower case: nginx ignores its case.
fn matches(pattern: &str) -> String {
    format!("({REFERER} ?? \"\").lowerAscii().matches({})", literal(pattern))
}

/// An expression for a host, with what may follow; `None` for a text that is none. A host may have the beginning of a path.
fn host(name: &str) -> Option<String> {
    let name = name.to_ascii_lowercase();
    let (host, path) = name.split_once('/').map_or((name.as_str(), None), |(host, path)| (host, Some(path)));
    let is_name = |host: &str| {
        !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte))
    };
    let (before, core, behind) =
        match (host.strip_prefix("*."), host.strip_prefix('.'), host.strip_suffix(".*")) {
            (Some(domain), ..) => ("[^/:]+\\.", domain, ""),
            (None, Some(domain), _) => ("(?:[^/:]+\\.)?", domain, ""),
            (None, None, Some(beginning)) => ("", beginning, "\\.[^/:]+"),
            (None, None, None) => ("", host, ""),
        };
    let end = match path {
        Some(path) => format!("(?::[0-9]*)?/{}", values::escaped(path)),
        None => "(?:[/:]|$)".to_owned(),
    };
    is_name(core).then(|| format!("{before}{}{behind}{end}", values::escaped(core)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_referers_are_whole_names() {
        for (name, expected) in [
            ("example.org", Some("example\\.org(?:[/:]|$)")),
            ("*.Example.com", Some("[^/:]+\\.example\\.com(?:[/:]|$)")),
            (".example.com", Some("(?:[^/:]+\\.)?example\\.com(?:[/:]|$)")),
            ("www.example.*", Some("www\\.example\\.[^/:]+(?:[/:]|$)")),
            ("example.org/galleries/", Some("example\\.org(?::[0-9]*)?/galleries/")),
            ("_", Some("_(?:[/:]|$)")),
            ("a b", None),
            ("", None),
        ] {
            assert_eq!(host(name).as_deref(), expected, "{name}");
        }
    }
}
