//! Translates the condition of an `if` to an expression, for `when` of a route. Variables of `map` and `geo` are
//! written out.

use std::cmp::Reverse;

use regex::RegexBuilder;

use super::syntax::Directive;
use crate::values;

/// The longest expression: that of Vanward.
const EXPRESSION_BYTES_MAX: usize = 8192;

/// A variable: a text of the request, or constants that depend on tests.
enum Variable {
    Text(String),
    Choice(Choice),
}

/// The first test that holds decides.
struct Choice {
    tests: Vec<(String, String)>,
    default: String,
    /// The number of the directive that declares the variable.
    number: usize,
}

/// An expression, and the directives that declare its variables.
pub(super) struct WrittenCondition {
    pub(super) text: String,
    pub(super) declared: Vec<usize>,
}

/// Translates the words of an `if`. `declarations` are the directives of the `http` block.
///
/// # Errors
/// Why it has no translation.
pub(super) fn written(words: &[String], declarations: &[Directive]) -> Result<WrittenCondition, String> {
    let mut words: Vec<String> = words.to_vec();
    match words.first_mut() {
        Some(first) if first.starts_with('(') => drop(first.remove(0)),
        _ => return Err("the condition has no brackets".to_owned()),
    }
    if let Some(last) = words.last_mut() {
        *last = last.strip_suffix(')').unwrap_or(last).to_owned();
    }
    words.retain(|word| !word.is_empty());
    let (name, test) = match words.as_slice() {
        [name] => (name, Test::IsSet),
        [name, sign, value @ ..] => (name, Test::new(sign, value.join(" "))?),
        [] => return Err("the condition is empty".to_owned()),
    };
    let name = name.strip_prefix('$').ok_or("the condition tests no variable")?;
    let (text, declared) = match variable(name, declarations)? {
        Variable::Text(text) => (test.on_text(&text), Vec::new()),
        Variable::Choice(choice) => (test.on_choice(&choice), vec![choice.number]),
    };
    match text.len() {
        ..=EXPRESSION_BYTES_MAX => Ok(WrittenCondition { text, declared }),
        _ => Err(format!("the expression would be longer than {EXPRESSION_BYTES_MAX} bytes")),
    }
}

enum Test {
    /// Neither empty nor `0`.
    IsSet,
    Equal {
        value: String,
        is_not: bool,
    },
    Matches {
        pattern: String,
        is_not: bool,
    },
}

impl Test {
    fn new(sign: &str, value: String) -> Result<Self, String> {
        let is_not = sign.starts_with('!');
        match sign.trim_start_matches('!') {
            "=" if value.contains('$') => Err("the condition compares two variables".to_owned()),
            "=" => Ok(Self::Equal { value, is_not }),
            "~" => Ok(Self::Matches { pattern: values::search(&value, false)?, is_not }),
            "~*" => Ok(Self::Matches { pattern: values::search(&value, true)?, is_not }),
            _ => Err("the condition asks for files".to_owned()),
        }
    }

    fn on_text(&self, text: &str) -> String {
        match self {
            Self::IsSet => format!("!({text} in [\"\", \"0\"])"),
            Self::Equal { value, is_not } => {
                format!("{text} {} {}", if *is_not { "!=" } else { "==" }, literal(value))
            }
            Self::Matches { pattern, is_not } => {
                format!("{}{text}.matches({})", if *is_not { "!" } else { "" }, literal(pattern))
            }
        }
    }

    fn holds(&self, value: &str) -> bool {
        match self {
            Self::IsSet => !matches!(value, "" | "0"),
            Self::Equal { value: wanted, is_not } => (value == wanted) != *is_not,
            Self::Matches { pattern, is_not } => {
                RegexBuilder::new(pattern).build().is_ok_and(|pattern| pattern.is_match(value)) != *is_not
            }
        }
    }

    /// The values are constants, so only the tests remain.
    fn on_choice(&self, Choice { tests, default, .. }: &Choice) -> String {
        let otherwise = self.holds(default);
        let results: Vec<bool> = tests.iter().map(|(_, value)| self.holds(value)).collect();
        let any = || tests.iter().map(|(test, _)| test.as_str()).collect::<Vec<_>>().join(" || ");
        if tests.is_empty() || results.iter().all(|result| *result == otherwise) {
            otherwise.to_string()
        } else if results.iter().all(|result| *result) {
            any()
        } else if results.iter().all(|result| !result) {
            format!("!({})", any())
        } else {
            let choices =
                tests.iter().zip(results).map(|((test, _), result)| format!("{test} ? {result} : "));
            choices.collect::<String>() + &otherwise.to_string()
        }
    }
}

/// Quotes a text for an expression.
fn literal(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn variable(name: &str, declarations: &[Directive]) -> Result<Variable, String> {
    match declaration(name, declarations) {
        Some(map) if map.name == "map" => choice_of_map(map, declarations).map(Variable::Choice),
        Some(geo) => choice_of_geo(geo).map(Variable::Choice),
        None => text(name).map(Variable::Text).ok_or_else(|| format!("${name} is unknown here")),
    }
}

/// Returns the `map` or `geo` that declares a variable.
fn declaration<'d>(name: &str, declarations: &'d [Directive]) -> Option<&'d Directive> {
    declarations.iter().find(|directive| {
        matches!(directive.name.as_str(), "map" | "geo")
            && directive.words.last().is_some_and(|word| word.strip_prefix('$') == Some(name))
    })
}

/// The name of a variable in expressions. The value is always present, because nginx has empty texts instead.
fn text(name: &str) -> Option<String> {
    let known = match name {
        "host" => "request.host",
        "request_method" => "request.method",
        "scheme" => "request.scheme",
        "uri" | "document_uri" => "request.path",
        "args" | "query_string" => "(request.query ?? \"\")",
        "is_args" => "(has(request.query) ? \"?\" : \"\")",
        "remote_addr" | "realip_remote_addr" | "proxy_protocol_addr" => "string(client.address)",
        "https" => "(request.scheme == \"https\" ? \"on\" : \"\")",
        "ssl_protocol" => "(client.tls.version ?? \"\")",
        "ssl_server_name" => "(client.tls.sni ?? \"\")",
        "ssl_client_s_dn" => "(client.tls.subject ?? \"\")",
        "ssl_client_i_dn" => "(client.tls.issuer ?? \"\")",
        "content_type" => "(request.headers[\"content-type\"] ?? \"\")",
        "content_length" => "(request.headers[\"content-length\"] ?? \"\")",
        _ => "",
    };
    if !known.is_empty() {
        return Some(known.to_owned());
    }
    let named = |family: &str, name: &str| format!("(request.{family}[{}] ?? \"\")", literal(name));
    let of = |prefix: &str| name.strip_prefix(prefix).filter(|rest| !rest.is_empty());
    if let Some(field) = of("http_") {
        return Some(named("headers", &field.replace('_', "-")));
    }
    let cookie = of("cookie_").map(|cookie| named("cookies", cookie));
    cookie.or_else(|| of("arg_").map(|argument| named("query", argument)))
}

fn choice_of_map(map: &Directive, declarations: &[Directive]) -> Result<Choice, String> {
    let source = map.word(0).strip_prefix('$').ok_or("the source of the map is not one variable")?;
    if declaration(source, declarations).is_some() {
        return Err("the map depends on another one".to_owned());
    }
    let source = text(source).ok_or_else(|| format!("${source} is unknown here"))?;
    let (mut exact, mut patterns, mut default) = (Vec::new(), Vec::new(), String::new());
    for entry in map.inner() {
        let value = entry.word(0).to_owned();
        if value.contains('$') {
            return Err("the values of the map are not constants".to_owned());
        }
        match entry.name.as_str() {
            "default" => default = value,
            "hostnames" | "include" => return Err(format!("`{}` in a map is not supported", entry.name)),
            "volatile" => {}
            name => match name.strip_prefix('~') {
                Some(pattern) => {
                    let ignores_case = pattern.starts_with('*');
                    let pattern = values::search(pattern.trim_start_matches('*'), ignores_case)?;
                    patterns.push((format!("{source}.matches({})", literal(&pattern)), value));
                }
                // nginx ignores case here, and prefers these to expressions.
                None => {
                    let key = name.strip_prefix('\\').unwrap_or(name).to_ascii_lowercase();
                    exact.push((format!("{source}.lowerAscii() == {}", literal(&key)), value));
                }
            },
        }
    }
    exact.extend(patterns);
    Ok(Choice { tests: exact, default, number: map.number })
}

fn choice_of_geo(geo: &Directive) -> Result<Choice, String> {
    if geo.words.len() > 1 && geo.word(0) != "$remote_addr" {
        return Err("the address of the geo is another variable".to_owned());
    }
    let (mut networks, mut default) = (Vec::new(), String::new());
    for entry in geo.inner() {
        match (entry.name.as_str(), entry.word(0)) {
            ("default", value) => default = value.to_owned(),
            (network, value) if values::is_network(network) => networks.push((network, value.to_owned())),
            (other, _) => return Err(format!("`{other}` in a geo is not supported")),
        }
    }
    // The longest prefix decides.
    networks.sort_by_key(|(network, _)| Reverse(128 - values::host_bits(network)));
    let test = |(network, value)| (format!("client.address in {}", literal(network)), value);
    Ok(Choice { tests: networks.into_iter().map(test).collect(), default, number: geo.number })
}
