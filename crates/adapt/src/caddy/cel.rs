//! Expressions of the matcher `expression`, which are CEL with Caddy's functions and placeholders.

use std::iter::Peekable;

use super::matchers::MatcherReader;
use super::texts::CaddyText;
use crate::rules::{Atom, Expression, HostIs, PathIs, TextIs, literal};
use crate::source::Directive;
use crate::values;

const DEPTH_MAX: usize = 32;
const TOKENS_MAX: usize = 4000;

/// Longer signs precede those that they start with.
const SIGNS: [&str; 19] =
    ["&&", "||", "==", "!=", "<=", ">=", "<", ">", "!", "(", ")", "[", "]", "{", "}", ",", ":", ".", "-"];

#[derive(Debug, Clone, PartialEq)]
enum CelToken {
    Name(String),
    Text(String),
    Number(i64),
    /// `{http.request.method}`, without its braces.
    Placeholder(String),
    Sign(&'static str),
}

/// A part of an expression by its type.
enum CelValue {
    Condition(Expression),
    /// A text of the request.
    Field(CelField),
    Text(String),
    Number(i64),
    /// A number of the request, as it is written here.
    Integer(String),
    List(Vec<String>),
    Map(Vec<(String, Vec<String>)>),
}

/// A text of the request: its name here, and its kind if routes have an option for it.
struct CelField {
    text: String,
    kind: FieldKind,
}

enum FieldKind {
    Method,
    Path,
    Host,
    Header(String),
    Cookie(String),
    Query(String),
    Other,
}

/// Translates an expression.
pub(super) fn read(text: &str, directive: &Directive, matchers: &mut MatcherReader<'_>) -> Expression {
    let unsaid = |why: String| Expression::Unsaid(format!("its expression is not understood: {why}"));
    let tokens = match tokens(text) {
        Ok(tokens) => tokens,
        Err(why) => return unsaid(why),
    };
    let mut reader = CelReader { tokens: tokens.into_iter().peekable(), directive, matchers };
    match reader.either(0) {
        Ok(CelValue::Condition(_)) if reader.tokens.peek().is_some() => {
            unsaid("more follows its end".to_owned())
        }
        Ok(CelValue::Condition(expression)) => expression,
        Ok(_) => unsaid("it is no condition".to_owned()),
        Err(why) => unsaid(why),
    }
}

fn tokens(text: &str) -> Result<Vec<CelToken>, String> {
    let mut made = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        if made.len() >= TOKENS_MAX {
            return Err("it is too long".to_owned());
        }
        let length = match first {
            '"' | '\'' | '`' => {
                let (text, length) = quoted(rest, first)?;
                made.push(CelToken::Text(text));
                length
            }
            'r' if rest[1..].starts_with(['"', '\'']) => {
                let quote = &rest[1..2];
                let inner = rest[2..].split_once(quote).ok_or("a quote does not end")?.0;
                made.push(CelToken::Text(inner.to_owned()));
                inner.len() + 3
            }
            '0'..='9' => {
                let length = rest.bytes().take_while(u8::is_ascii_digit).count();
                made.push(CelToken::Number(rest[..length].parse().map_err(|_| "a number is too large")?));
                length
            }
            letter if letter.is_ascii_alphabetic() || letter == '_' => {
                let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
                let length = rest.bytes().take_while(is_of_name).count();
                made.push(CelToken::Name(rest[..length].to_owned()));
                length
            }
            '{' if placeholder(rest).is_some() => {
                let name = placeholder(rest).unwrap_or_default();
                made.push(CelToken::Placeholder(name.to_owned()));
                name.len() + 2
            }
            other => match SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
                Some(sign) => {
                    made.push(CelToken::Sign(sign));
                    sign.len()
                }
                None => return Err(format!("{other:?} is not understood in it")),
            },
        };
        rest = rest[length..].trim_start();
    }
    Ok(made)
}

/// The name in `{http.request.method}`; maps have quotes within their braces.
pub(super) fn placeholder(text: &str) -> Option<&str> {
    let (name, _) = text.strip_prefix('{')?.split_once('}')?;
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (!name.is_empty() && name.bytes().all(is_name)).then_some(name)
}

/// Reads a text with escapes. Returns it, and the bytes that it is written with.
fn quoted(text: &str, quote: char) -> Result<(String, usize), String> {
    let mut made = String::new();
    let mut letters = text.char_indices().skip(1);
    while let Some((at, letter)) = letters.next() {
        match letter {
            letter if letter == quote => return Ok((made, at + 1)),
            '\\' if quote != '`' => match letters.next() {
                Some((_, 'n')) => made.push('\n'),
                Some((_, 't')) => made.push('\t'),
                Some((_, same @ ('\\' | '"' | '\'' | '`' | '?'))) => made.push(same),
                _ => return Err("an escape is not understood".to_owned()),
            },
            letter => made.push(letter),
        }
    }
    Err("a quote does not end".to_owned())
}

struct CelReader<'d, 'r> {
    tokens: Peekable<std::vec::IntoIter<CelToken>>,
    directive: &'d Directive,
    matchers: &'d mut MatcherReader<'r>,
}

impl CelReader<'_, '_> {
    fn takes(&mut self, sign: &'static str) -> bool {
        self.tokens.next_if_eq(&CelToken::Sign(sign)).is_some()
    }

    fn expect(&mut self, sign: &'static str) -> Result<(), String> {
        if self.takes(sign) { Ok(()) } else { Err(format!("a {sign} is missing")) }
    }

    fn either(&mut self, depth: usize) -> Result<CelValue, String> {
        if depth > DEPTH_MAX {
            return Err("its brackets are nested too deeply".to_owned());
        }
        let first = self.all(depth)?;
        if self.tokens.peek() != Some(&CelToken::Sign("||")) {
            return Ok(first);
        }
        let mut parts = vec![condition(first)?];
        while self.takes("||") {
            parts.push(condition(self.all(depth)?)?);
        }
        Ok(CelValue::Condition(Expression::either(parts)))
    }

    fn all(&mut self, depth: usize) -> Result<CelValue, String> {
        let first = self.relation(depth)?;
        if self.tokens.peek() != Some(&CelToken::Sign("&&")) {
            return Ok(first);
        }
        let mut parts = vec![condition(first)?];
        while self.takes("&&") {
            parts.push(condition(self.relation(depth)?)?);
        }
        Ok(CelValue::Condition(Expression::all(parts)))
    }

    fn relation(&mut self, depth: usize) -> Result<CelValue, String> {
        let left = self.unary(depth)?;
        let sign = match self.tokens.peek() {
            Some(CelToken::Sign(sign @ ("==" | "!=" | "<" | "<=" | ">" | ">="))) => *sign,
            Some(CelToken::Name(name)) if name == "in" => "in",
            _ => return Ok(left),
        };
        self.tokens.next();
        let right = self.unary(depth)?;
        self.compared(left, sign, right).map(CelValue::Condition)
    }

    fn compared(&self, left: CelValue, sign: &str, right: CelValue) -> Result<Expression, String> {
        match (left, right) {
            (CelValue::Field(field), CelValue::Text(text))
            | (CelValue::Text(text), CelValue::Field(field))
                if matches!(sign, "==" | "!=") =>
            {
                let is = self.any(vec![field.equals(&text)]);
                Ok(if sign == "!=" { is.not() } else { is })
            }
            (CelValue::Field(field), CelValue::List(list)) if sign == "in" && !list.is_empty() => {
                Ok(self.any(list.iter().map(|text| field.equals(text)).collect()))
            }
            (CelValue::Integer(text), CelValue::Number(number)) if sign != "in" => {
                Ok(self.any(vec![Atom::When(format!("{text} {sign} {number}"))]))
            }
            (CelValue::Condition(one), CelValue::Condition(other)) if sign == "==" => {
                Ok(Expression::either(vec![
                    Expression::all(vec![one.clone(), other.clone()]),
                    Expression::all(vec![one.not(), other.not()]),
                ]))
            }
            _ => Err(format!("{sign} compares other values")),
        }
    }

    fn any(&self, atoms: Vec<Atom>) -> Expression {
        Expression::Any(atoms, self.directive.number)
    }

    fn unary(&mut self, depth: usize) -> Result<CelValue, String> {
        if self.takes("!") {
            if depth > DEPTH_MAX {
                return Err("it is nested too deeply".to_owned());
            }
            return Ok(CelValue::Condition(condition(self.unary(depth + 1)?)?.not()));
        }
        let mut value = self.primary(depth)?;
        while self.takes(".") {
            let Some(CelToken::Name(name)) = self.tokens.next() else {
                return Err("a name is missing behind a dot".to_owned());
            };
            self.expect("(")?;
            let arguments = self.arguments(depth)?;
            value = self.method(value, &name, &arguments)?;
        }
        Ok(value)
    }

    fn primary(&mut self, depth: usize) -> Result<CelValue, String> {
        match self.tokens.next() {
            Some(CelToken::Sign("(")) => {
                let inner = self.either(depth + 1)?;
                self.expect(")")?;
                Ok(inner)
            }
            Some(CelToken::Sign("[")) => {
                let mut list = Vec::new();
                while !self.takes("]") {
                    list.push(self.text()?);
                    if !self.takes(",") {
                        self.expect("]")?;
                        break;
                    }
                }
                Ok(CelValue::List(list))
            }
            Some(CelToken::Sign("{")) => self.map().map(CelValue::Map),
            Some(CelToken::Sign("-")) => match self.tokens.next() {
                Some(CelToken::Number(number)) => Ok(CelValue::Number(-number)),
                _ => Err("a number is missing behind -".to_owned()),
            },
            Some(CelToken::Text(text)) => Ok(CelValue::Text(text)),
            Some(CelToken::Number(number)) => Ok(CelValue::Number(number)),
            Some(CelToken::Placeholder(name)) => self.placeholder(&name).map(CelValue::Field),
            Some(CelToken::Name(name)) if name == "true" || name == "false" => {
                Ok(CelValue::Condition(Expression::fixed(name == "true")))
            }
            Some(CelToken::Name(name)) => {
                self.expect("(")?;
                let arguments = self.arguments(depth)?;
                self.function(&name, arguments)
            }
            Some(other) => Err(format!("{other:?} is no value")),
            None => Err("it ends too soon".to_owned()),
        }
    }

    fn placeholder(&mut self, name: &str) -> Result<CelField, String> {
        if let Some(field) = field(name) {
            return Ok(field);
        }
        let text = CaddyText::read(&format!("{{{name}}}"), self.matchers.texts)?;
        Ok(CelField { text: text.written(self.matchers.definitions)?, kind: FieldKind::Other })
    }

    fn text(&mut self) -> Result<String, String> {
        match self.tokens.next() {
            Some(CelToken::Text(text)) => Ok(text),
            _ => Err("a text is expected in a list or map".to_owned()),
        }
    }

    /// Reads `{'NAME': 'VALUE', 'NAME': ['VALUE', …]}` behind its first brace.
    fn map(&mut self) -> Result<Vec<(String, Vec<String>)>, String> {
        let mut pairs = Vec::new();
        while !self.takes("}") {
            let name = self.text()?;
            self.expect(":")?;
            let mut values = Vec::new();
            if self.takes("[") {
                while !self.takes("]") {
                    values.push(self.text()?);
                    self.takes(",");
                }
            } else {
                values.push(self.text()?);
            }
            pairs.push((name, values));
            if !self.takes(",") {
                self.expect("}")?;
                break;
            }
        }
        Ok(pairs)
    }

    fn arguments(&mut self, depth: usize) -> Result<Vec<CelValue>, String> {
        let mut made = Vec::new();
        while !self.takes(")") {
            made.push(self.either(depth + 1)?);
            if !self.takes(",") {
                self.expect(")")?;
                break;
            }
        }
        Ok(made)
    }

    /// Caddy's matchers as functions, and `int`.
    fn function(&mut self, name: &str, arguments: Vec<CelValue>) -> Result<CelValue, String> {
        let mut words: Vec<String> = Vec::new();
        for argument in arguments {
            match argument {
                CelValue::Text(text) => words.push(text),
                CelValue::List(list) => words.extend(list),
                CelValue::Field(field) if name == "int" => {
                    return Ok(CelValue::Integer(format!("(int({}) ?? 0)", field.text)));
                }
                CelValue::Map(pairs) if matches!(name, "header" | "query") => {
                    let mut of_name = |(field, values): &(String, Vec<String>)| {
                        let one = |value: &String| {
                            let words = match name {
                                "query" => vec![format!("{field}={value}")],
                                _ => vec![field.clone(), value.clone()],
                            };
                            self.matchers.one(self.directive, name, &words)
                        };
                        Expression::either(values.iter().map(one).collect::<Vec<_>>())
                    };
                    return Ok(CelValue::Condition(Expression::all(
                        pairs.iter().map(&mut of_name).collect(),
                    )));
                }
                _ => return Err(format!("{name}() has other values")),
            }
        }
        let known =
            ["path", "path_regexp", "method", "host", "header_regexp", "remote_ip", "client_ip", "protocol"];
        if !known.contains(&name) {
            return Err(format!("{name}() has no equivalent"));
        }
        Ok(CelValue::Condition(self.matchers.one(self.directive, name, &words)))
    }

    fn method(&self, value: CelValue, name: &str, arguments: &[CelValue]) -> Result<CelValue, String> {
        let CelValue::Field(field) = value else { return Err(format!("{name}() needs a placeholder")) };
        match (name, arguments) {
            ("lowerAscii" | "upperAscii", []) => Ok(CelValue::Field(CelField {
                text: format!("{}.{name}()", field.text),
                kind: FieldKind::Other,
            })),
            ("startsWith" | "endsWith" | "contains" | "matches", [CelValue::Text(text)]) => {
                let atom = field.searched(name, text)?;
                Ok(CelValue::Condition(self.any(vec![atom])))
            }
            ("size", []) => Ok(CelValue::Integer(format!("{}.size()", field.text))),
            _ => Err(format!("{name}() has no equivalent")),
        }
    }
}

fn condition(value: CelValue) -> Result<Expression, String> {
    match value {
        CelValue::Condition(expression) => Ok(expression),
        _ => Err("a part of it is no condition".to_owned()),
    }
}

impl CelField {
    fn equals(&self, text: &str) -> Atom {
        let is_present = !text.is_empty();
        match &self.kind {
            FieldKind::Method if is_present => Atom::Methods(vec![text.to_owned()]),
            FieldKind::Path if text.starts_with('/') => Atom::Path(PathIs::exact(text)),
            FieldKind::Host if crate::rules::is_host(text) => {
                Atom::Host(HostIs::Exact(text.to_ascii_lowercase()))
            }
            FieldKind::Header(name) if is_present => {
                Atom::Header(name.clone(), TextIs::Exact(text.to_owned()))
            }
            FieldKind::Cookie(name) if is_present => {
                Atom::Cookie(name.clone(), TextIs::Exact(text.to_owned()))
            }
            FieldKind::Query(name) if is_present => Atom::Query(name.clone(), TextIs::Exact(text.to_owned())),
            _ => Atom::When(format!("{} == {}", self.text, literal(text))),
        }
    }

    /// `startsWith`, `endsWith`, `contains`, `matches`.
    fn searched(&self, name: &str, text: &str) -> Result<Atom, String> {
        let pattern = match name {
            "matches" => values::expression(text, false)?,
            _ if text.is_empty() => return Err("it looks for an empty text".to_owned()),
            "startsWith" => format!("{}.*", values::escaped(text)),
            "endsWith" => format!(".*{}", values::escaped(text)),
            _ => format!(".*{}.*", values::escaped(text)),
        };
        Ok(match &self.kind {
            // Matchers of paths ignore case, and come before prefixes: with letters, this is a pattern, too.
            FieldKind::Path
                if name == "startsWith"
                    && text.starts_with('/')
                    && !text.bytes().any(|byte| byte.is_ascii_alphabetic()) =>
            {
                Atom::Path(PathIs::prefix(text))
            }
            FieldKind::Path => Atom::Path(PathIs::Pattern(pattern)),
            FieldKind::Host => Atom::Host(HostIs::Pattern(pattern)),
            FieldKind::Header(field) => Atom::Header(field.clone(), TextIs::Pattern(pattern)),
            FieldKind::Cookie(cookie) => Atom::Cookie(cookie.clone(), TextIs::Pattern(pattern)),
            FieldKind::Query(key) => Atom::Query(key.clone(), TextIs::Pattern(pattern)),
            FieldKind::Method | FieldKind::Other => {
                let text = if name == "matches" { values::search(text, false)? } else { text.to_owned() };
                Atom::When(format!("{}.{name}({})", self.text, literal(&text)))
            }
        })
    }
}

/// Whether a text equals one of these, for the matcher `vars`.
pub(super) fn equals(placeholder: &str, values: &[String]) -> Option<Vec<Atom>> {
    let field = field(placeholder.strip_prefix('{')?.strip_suffix('}')?)?;
    (!values.is_empty()).then(|| values.iter().map(|value| field.equals(value)).collect())
}

/// The expression of a placeholder.
pub(super) fn text(placeholder: &str) -> Option<String> {
    field(placeholder).map(|field| field.text)
}

/// The text behind a placeholder. Caddy has empty texts for absent values.
fn field(name: &str) -> Option<CelField> {
    let bare = name.strip_prefix("http.request.").unwrap_or(name);
    let of = |text: &str, kind: FieldKind| Some(CelField { text: text.to_owned(), kind });
    match bare {
        "method" => of("request.method", FieldKind::Method),
        "path" | "uri.path" => of("request.path", FieldKind::Path),
        "host" => of("request.host", FieldKind::Host),
        "query" | "uri.query" => of("(request.query ?? \"\")", FieldKind::Other),
        "uri" => of("(request.path + (has(request.query) ? \"?\" + request.query : \"\"))", FieldKind::Other),
        "scheme" => of("request.scheme", FieldKind::Other),
        "remote_host" | "remote.host" | "client_ip" | "http.vars.client_ip" => {
            of("string(client.address)", FieldKind::Other)
        }
        "remote_port" | "remote.port" => of("string(client.port)", FieldKind::Other),
        "tls.server_name" => of("(client.tls.sni ?? \"\")", FieldKind::Other),
        _ => {
            let member = |begin: &str| bare.strip_prefix(begin).filter(|member| !member.is_empty());
            if let Some(header) = member("header.") {
                let text = format!("(request.headers[{}] ?? \"\")", literal(&header.to_ascii_lowercase()));
                return of(&text, FieldKind::Header(header.to_owned()));
            }
            if let Some(cookie) = member("cookie.") {
                let text = format!("(request.cookies[{}] ?? \"\")", literal(cookie));
                return of(&text, FieldKind::Cookie(cookie.to_owned()));
            }
            let key = member("uri.query.").or_else(|| member("query."))?;
            let text = format!("(request.query[{}] ?? \"\")", literal(key));
            of(&text, FieldKind::Query(key.to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_become_conditions() {
        let directive =
            Directive { number: 0, name: "expression".to_owned(), words: Vec::new(), block: None };
        let (texts, mut definitions) = Default::default();
        let mut matchers = MatcherReader { texts: &texts, definitions: &mut definitions };
        let mut read = |text: &str| super::read(text, &directive, &mut matchers);
        let cases = [
            ("path('/a', '/b')", r#"Any([Path(ExactAnyCase("/a")), Path(ExactAnyCase("/b"))], 0)"#),
            ("{method} == \"POST\" ", r#"Any([Methods(["POST"])], 0)"#),
            ("{http.request.method} != 'GET'", r#"Not(Any([Methods(["GET"])], 0))"#),
            ("{method} in ['GET', 'HEAD']", r#"Any([Methods(["GET"]), Methods(["HEAD"])], 0)"#),
            (
                "path('/a') && !(method('PUT') || {header.X-A} == 'b')",
                r#"All([Any([Path(ExactAnyCase("/a"))], 0), Not(Either([Any([Methods(["PUT"])], 0), Any([Header("X-A", Exact("b"))], 0)]))])"#,
            ),
            (
                "header({'X-A': ['b', 'c*'], 'X-B': 'd'})",
                r#"All([Either([Any([Header("X-A", Exact("b"))], 0), Any([Header("X-A", Prefix("c"))], 0)]), Any([Header("X-B", Exact("d"))], 0)])"#,
            ),
            ("{path}.startsWith('/x')", r#"Any([Path(Pattern("/x.*"))], 0)"#),
            ("{query}.contains('a=')", r#"Any([When("(request.query ?? \"\").contains(\"a=\")")], 0)"#),
            (
                "int({http.request.header.Content-Length}) > 100",
                r#"Any([When("(int((request.headers[\"content-length\"] ?? \"\")) ?? 0) > 100")], 0)"#,
            ),
            ("true", "All([])"),
            ("{labels} == 'a'", r#"Unsaid("its expression is not understood: {labels} has no equivalent")"#),
            ("file()", r#"Unsaid("its expression is not understood: file() has no equivalent")"#),
            ("path('/a'", r#"Unsaid("its expression is not understood: a ) is missing")"#),
            ("path('/a') path('/b')", r#"Unsaid("its expression is not understood: more follows its end")"#),
            ("{method}", r#"Unsaid("its expression is not understood: it is no condition")"#),
        ];
        for (text, expected) in cases {
            assert_eq!(format!("{:?}", read(text)), expected, "{text}");
        }
        let deep = format!("{}true{}", "(".repeat(500), ")".repeat(500));
        assert!(format!("{:?}", read(&deep)).contains("nested too deeply"));
        let deep = format!("{}true", "!".repeat(500));
        assert!(format!("{:?}", read(&deep)).contains("nested too deeply"));
    }
}
