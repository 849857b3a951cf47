//! Rules of routers: matchers with `&&`, `||`, `!` and parentheses, in the syntax of Traefik 3 and 2.

use crate::rules::{Atom, Expression, HostIs, PathIs, TextIs};
use crate::values;

const DEPTH_MAX: usize = 32;

#[derive(Debug, Clone, PartialEq)]
enum RuleToken {
    Name(String),
    Text(String),
    Mark(char),
    And,
    Or,
}

/// Parses a rule from the statement with this number. Fails with the part that cannot be parsed.
pub(super) fn read(text: &str, syntax: RuleSyntax, number: usize) -> Result<Expression, String> {
    let tokens = tokens(text)?;
    let mut rule = TraefikRule { tokens: tokens.into_iter().peekable(), syntax, number };
    let expression = rule.either(0)?;
    match rule.tokens.next() {
        None => Ok(expression),
        Some(rest) => Err(format!("{rest:?} follows its end")),
    }
}

fn tokens(text: &str) -> Result<Vec<RuleToken>, String> {
    let mut found = Vec::new();
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            letter if letter.is_whitespace() => {}
            '(' | ')' | ',' | '!' => found.push(RuleToken::Mark(letter)),
            '&' | '|' if letters.next_if_eq(&letter).is_some() => {
                found.push(if letter == '&' { RuleToken::And } else { RuleToken::Or });
            }
            '`' | '"' | '\'' => found.push(RuleToken::Text(quoted(letter, &mut letters)?)),
            first if first.is_ascii_alphabetic() => {
                let mut name = String::from(first);
                while let Some(next) = letters.next_if(char::is_ascii_alphanumeric) {
                    name.push(next);
                }
                found.push(RuleToken::Name(name));
            }
            other => return Err(format!("{other:?} is not understood in it")),
        }
    }
    Ok(found)
}

/// Reads a text up to its closing quote. In double quotes a backslash escapes the next letter.
fn quoted(quote: char, letters: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Result<String, String> {
    let mut text = String::new();
    loop {
        match letters.next() {
            None => return Err("a quote does not end".to_owned()),
            Some(end) if end == quote => return Ok(text),
            Some('\\') if quote == '"' => text.extend(letters.next()),
            Some(letter) => text.push(letter),
        }
    }
}

struct TraefikRule {
    tokens: std::iter::Peekable<std::vec::IntoIter<RuleToken>>,
    syntax: RuleSyntax,
    number: usize,
}

impl TraefikRule {
    fn either(&mut self, depth: usize) -> Result<Expression, String> {
        let mut parts = vec![self.all(depth)?];
        while self.tokens.next_if_eq(&RuleToken::Or).is_some() {
            parts.push(self.all(depth)?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Expression::Either(parts) })
    }

    fn all(&mut self, depth: usize) -> Result<Expression, String> {
        let mut parts = vec![self.one(depth)?];
        while self.tokens.next_if_eq(&RuleToken::And).is_some() {
            parts.push(self.one(depth)?);
        }
        Ok(Expression::all(parts))
    }

    fn one(&mut self, depth: usize) -> Result<Expression, String> {
        if depth >= DEPTH_MAX {
            return Err("its brackets are nested too deeply".to_owned());
        }
        match self.tokens.next() {
            Some(RuleToken::Mark('!')) => Ok(self.one(depth + 1)?.not()),
            Some(RuleToken::Mark('(')) => {
                let inner = self.either(depth + 1)?;
                self.expect(')')?;
                Ok(inner)
            }
            Some(RuleToken::Name(name)) => {
                self.expect('(')?;
                let mut texts = Vec::new();
                while let Some(RuleToken::Text(text)) =
                    self.tokens.next_if(|token| matches!(token, RuleToken::Text(_)))
                {
                    texts.push(text);
                    self.tokens.next_if_eq(&RuleToken::Mark(','));
                }
                self.expect(')')?;
                matcher(&name, &texts, self.syntax, self.number)
            }
            Some(other) => Err(format!("{other:?} is no matcher")),
            None => Err("it ends too soon".to_owned()),
        }
    }

    fn expect(&mut self, mark: char) -> Result<(), String> {
        match self.tokens.next() {
            Some(RuleToken::Mark(found)) if found == mark => Ok(()),
            found => Err(format!("a {mark} is missing before {found:?}")),
        }
    }
}

/// The version of Traefik that a rule is written for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum RuleSyntax {
    V2,
    V3,
    /// None is named: matchers of both are read.
    Either,
}

impl RuleSyntax {
    /// Parses `ruleSyntax`.
    pub(super) fn named(word: &str) -> Option<Self> {
        match word.to_ascii_lowercase().as_str() {
            "v2" => Some(Self::V2),
            "v3" => Some(Self::V3),
            _ => None,
        }
    }

    /// Checks that this version has a matcher, and that it takes so many texts.
    fn check(self, name: &str, texts: &[String]) -> Result<(), String> {
        const OF_V2: [&str; 3] = ["hostheader", "headers", "headersregexp"];
        const OF_V3: [&str; 4] = ["pathregexp", "header", "headerregexp", "queryregexp"];
        const OF_ONE: [&str; 7] =
            ["host", "hostregexp", "path", "pathprefix", "pathregexp", "method", "clientip"];
        let lower = name.to_ascii_lowercase();
        let is_in = |names: &[&str]| names.contains(&lower.as_str());
        match self {
            Self::V2 if is_in(&OF_V3) => Err(format!("{name} is a matcher of Traefik 3, and the rule of 2")),
            Self::V3 if is_in(&OF_V2) => Err(format!("{name} is a matcher of Traefik 2, and the rule of 3")),
            Self::V3 if is_in(&OF_ONE) && texts.len() != 1 => {
                Err(format!("{name} takes one value in Traefik 3"))
            }
            _ => Ok(()),
        }
    }

    /// The expression for a text with braces; `None` if it is to be taken literally. `part` is what `{name}` matches.
    fn template(self, text: &str, part: &str) -> Option<String> {
        match self {
            Self::V2 => braces(text, Some(part)),
            Self::V3 => None,
            Self::Either => braces(text, None),
        }
    }
}

/// Parses a matcher with its texts. An expression that is invalid here leaves the rest of the rule as it is.
fn matcher(name: &str, texts: &[String], syntax: RuleSyntax, number: usize) -> Result<Expression, String> {
    syntax.check(name, texts)?;
    let found = known(name, texts, syntax, number);
    let is_expression = name.to_ascii_lowercase().ends_with("regexp") && !texts.is_empty();
    found.or_else(|why| if is_expression { Ok(Expression::Unsaid(why)) } else { Err(why) })
}

/// Most matchers take one text, but several in the syntax of Traefik 2.
fn known(name: &str, texts: &[String], syntax: RuleSyntax, number: usize) -> Result<Expression, String> {
    let each = |made: &dyn Fn(&str) -> Result<Atom, String>| -> Result<Expression, String> {
        if texts.is_empty() {
            return Err(format!("{name} has no value"));
        }
        let atoms: Result<Vec<Atom>, String> = texts.iter().map(|text| made(text)).collect();
        Ok(Expression::Any(atoms?, number))
    };
    let segment = |text: &str| syntax.template(text, "[^/]+");
    match name.to_ascii_lowercase().as_str() {
        "host" | "hostheader" if texts == ["*"] => Ok(Expression::All(Vec::new())),
        "host" | "hostheader" => each(&host),
        "pathprefix" if texts == ["/"] => Ok(Expression::All(Vec::new())),
        "hostregexp" => each(&|text| match syntax.template(text, "[^.]+") {
            Some(pattern) => Ok(Atom::Host(HostIs::Pattern(pattern))),
            None if syntax == RuleSyntax::V2 => host(text),
            None => Ok(Atom::Host(HostIs::Pattern(values::expression(text, true)?))),
        }),
        "path" => {
            each(&|text| Ok(Atom::Path(segment(text).map_or_else(|| PathIs::exact(text), PathIs::Pattern))))
        }
        "pathprefix" => each(&|text| {
            let prefix = |pattern: String| PathIs::Pattern(format!("{pattern}.*"));
            Ok(Atom::Path(segment(text).map_or_else(|| PathIs::prefix(text), prefix)))
        }),
        "pathregexp" => each(&|text| Ok(Atom::Path(PathIs::Pattern(values::expression(text, false)?)))),
        "method" => Ok(Expression::Any(
            vec![Atom::Methods(texts.iter().map(|text| text.to_ascii_uppercase()).collect())],
            number,
        )),
        "clientip" => {
            let are_networks = !texts.is_empty() && texts.iter().all(|text| values::is_network(text));
            are_networks
                .then(|| Expression::Any(vec![Atom::Clients(texts.to_vec())], number))
                .ok_or_else(|| "ClientIP has values other than networks".to_owned())
        }
        // In Traefik 2, an empty value matches any.
        "headers" if matches!(texts, [_, value] if value.is_empty()) => {
            Ok(one(Atom::Header(texts[0].clone(), TextIs::Present), number))
        }
        "header" | "headers" => match texts {
            [field, value] => Ok(one(Atom::Header(field.clone(), TextIs::Exact(value.clone())), number)),
            _ => Err(format!("{name} needs a name and a value")),
        },
        "headerregexp" | "headersregexp" => match texts {
            [field, pattern] => {
                let text = TextIs::Pattern(values::expression(pattern, false)?);
                Ok(one(Atom::Header(field.clone(), text), number))
            }
            _ => Err(format!("{name} needs a name and an expression")),
        },
        "query" => query(texts, syntax, number),
        "queryregexp" => match texts {
            [key, pattern] => {
                let text = TextIs::Pattern(values::expression(pattern, false)?);
                Ok(one(Atom::Query(key.clone(), text), number))
            }
            _ => Err("QueryRegexp needs a name and an expression".to_owned()),
        },
        _ => Err(format!("routes cannot match on {name}")),
    }
}

fn query(texts: &[String], syntax: RuleSyntax, number: usize) -> Result<Expression, String> {
    let atom = |key: &str, text: TextIs| one(Atom::Query(key.to_owned(), text), number);
    let are_pairs = texts.iter().all(|pair| pair.contains('='));
    match (syntax, texts) {
        // All pairs must match. An empty value matches any.
        (RuleSyntax::V2, [_, ..]) if are_pairs => {
            let pairs = texts.iter().map(|pair| pair.split_once('=').unwrap_or_default());
            let text = |value: &str| match syntax.template(value, ".*") {
                Some(pattern) => TextIs::Pattern(pattern),
                None if value.is_empty() => TextIs::Present,
                None => TextIs::Exact(value.to_owned()),
            };
            Ok(Expression::all(pairs.map(|(key, value)| atom(key, text(value))).collect()))
        }
        (RuleSyntax::V2, _) => Err("Query needs pairs such as `a=b` in Traefik 2".to_owned()),
        (RuleSyntax::Either, [_, _, ..]) if are_pairs => {
            let pairs = texts.iter().map(|pair| pair.split_once('=').unwrap_or_default());
            Ok(Expression::all(
                pairs.map(|(key, value)| atom(key, TextIs::Exact(value.to_owned()))).collect(),
            ))
        }
        (RuleSyntax::Either, [pair]) if are_pairs => {
            let (key, value) = pair.split_once('=').unwrap_or_default();
            Ok(atom(key, TextIs::Exact(value.to_owned())))
        }
        (_, [key]) => Ok(atom(key, TextIs::Exact(String::new()))),
        (_, [key, value]) => Ok(atom(key, TextIs::Exact(value.clone()))),
        _ => Err("Query needs a name and a value".to_owned()),
    }
}

fn one(atom: Atom, number: usize) -> Expression {
    Expression::Any(vec![atom], number)
}

/// Parses a host; `*.` stands for one label.
fn host(text: &str) -> Result<Atom, String> {
    if let Some(domain) = text.strip_prefix("*.").filter(|domain| crate::rules::is_host(domain)) {
        let domain = values::escaped(&domain.to_ascii_lowercase());
        return Ok(Atom::Host(HostIs::Pattern(format!("[^.]+\\.{domain}"))));
    }
    HostIs::named(text).map(Atom::Host).ok_or_else(|| format!("{text} is no host"))
}

/// Converts expressions in braces, as in Traefik 2: `{subdomain:[a-z]+}.example.com`. `None` if there are none. `part` is
/// what a name alone matches, as in `{id}`.
fn braces(text: &str, part: Option<&str>) -> Option<String> {
    let mut made = String::new();
    let mut rest = text;
    while let Some((before, inner)) = rest.split_once('{') {
        let end = inner.find([':', '}'])?;
        let (name, behind) = inner.split_at(end);
        if let (Some(part), Some(behind)) = (part, behind.strip_prefix('}')) {
            made += &format!("{}{part}", values::escaped(before));
            rest = behind;
            continue;
        }
        let pattern = behind.strip_prefix(':')?;
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            return None;
        }
        let mut depth = 1;
        let end = pattern.char_indices().find_map(|(at, letter)| {
            match letter {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            (depth == 0).then_some(at)
        })?;
        made += &values::escaped(before);
        made += &format!("(?:{})", &pattern[..end]);
        rest = &pattern[end + 1..];
    }
    if made.is_empty() {
        return None;
    }
    made += &values::escaped(rest);
    values::expression(&format!("^{made}$"), false).ok()
}

/// Returns the hosts in a TCP router's matchers; `*` is any.
pub(super) fn server_names(text: &str) -> Result<Vec<String>, String> {
    let mut tokens = tokens(text)?.into_iter().peekable();
    let mut names = Vec::new();
    loop {
        match (tokens.next(), tokens.next()) {
            (Some(RuleToken::Name(name)), Some(RuleToken::Mark('(')))
                if name.eq_ignore_ascii_case("HostSNI") => {}
            _ => return Err("a listener can match on server names only".to_owned()),
        }
        while let Some(RuleToken::Text(text)) = tokens.next_if(|token| matches!(token, RuleToken::Text(_))) {
            names.push(text.to_ascii_lowercase());
            tokens.next_if_eq(&RuleToken::Mark(','));
        }
        match (tokens.next(), tokens.next()) {
            (Some(RuleToken::Mark(')')), None) => return Ok(names),
            (Some(RuleToken::Mark(')')), Some(RuleToken::Or)) => {}
            _ => return Err("a listener can match on server names only".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Formats a rule briefly.
    fn shown(expression: &Expression) -> String {
        let list = |parts: &[Expression], between: &str| {
            format!("({})", parts.iter().map(shown).collect::<Vec<_>>().join(between))
        };
        match expression {
            Expression::All(parts) => list(parts, " & "),
            Expression::Either(parts) => list(parts, " | "),
            Expression::Not(inner) => format!("!{}", shown(inner)),
            Expression::Any(atoms, _) => {
                let atoms: Vec<String> = atoms.iter().map(|atom| format!("{atom:?}")).collect();
                atoms.join("/").replace("Exact", "=").replace('"', "'")
            }
            Expression::Tls => "tls".to_owned(),
            Expression::Unsaid(why) => why.clone(),
        }
    }

    #[test]
    fn rules_of_traefik_3_and_2() {
        let cases = [
            ("Host(`a.b`)", Ok("Host(=('a.b'))")),
            ("Host(`*`)", Ok("()")),
            ("Host(`a.b`, `c.d`)", Ok("Host(=('a.b'))/Host(=('c.d'))")),
            ("Host(\"a.b\") && PathPrefix(`/x`)", Ok("(Host(=('a.b')) & Path(Prefix('/x')))")),
            // `&&` binds more tightly than `||`.
            (
                "Path(`/a`) || Path(`/b`) && !Method(`get`)",
                Ok("(Path(=('/a')) | (Path(=('/b')) & !Methods(['GET'])))"),
            ),
            (
                "(Path(`/a`) || Path(`/b`)) && Header(`X`, `1`)",
                Ok("((Path(=('/a')) | Path(=('/b'))) & Header('X', =('1')))"),
            ),
            ("Host(`*.b.c`)", Ok("Host(Pattern('[^.]+\\\\.b\\\\.c'))")),
            ("HostRegexp(`{sub:[a-z]+}.b`)", Ok("Host(Pattern('(?:[a-z]+)\\\\.b'))")),
            ("PathRegexp(`\\.png$`)", Ok("Path(Pattern('.*\\\\.png'))")),
            ("Query(`a=b`)", Ok("Query('a', =('b'))")),
            ("Query(`a`)", Ok("Query('a', =(''))")),
            ("ClientIP(`10.0.0.0/8`)", Ok("Clients(['10.0.0.0/8'])")),
            ("Host(`a b`)", Err("a b is no host")),
            ("Host(`a.b`", Err("a ) is missing before None")),
            ("Host(`a.b`) Path(`/`)", Err("Name(\"Path\") follows its end")),
            ("Host(`a.b", Err("a quote does not end")),
            ("HostSNI(`a`)", Err("routes cannot match on HostSNI")),
            ("", Err("it ends too soon")),
        ];
        for (text, expected) in cases {
            let found = read(text, RuleSyntax::Either, 0).map(|rule| shown(&rule));
            assert_eq!(found.as_deref().map_err(String::as_str), expected, "{text}");
        }
        let deep = format!("{}Path(`/`)", "!".repeat(100));
        assert_eq!(
            read(&deep, RuleSyntax::Either, 0).map(|rule| shown(&rule)),
            Err("its brackets are nested too deeply".to_owned())
        );
    }

    #[test]
    fn rules_by_their_version() {
        type Found<'f> = Result<&'f str, &'f str>;
        let of_2 = Err("is a matcher of Traefik 2");
        let of_3 = Err("is a matcher of Traefik 3");
        let single = Err("takes one value in Traefik 3");
        let cases: [(&str, Found<'_>, Found<'_>); 20] = [
            ("Host(`a.b`)", Ok("Host(=('a.b'))"), Ok("Host(=('a.b'))")),
            ("Host(`a.b`, `c.d`)", Ok("Host(=('a.b'))/Host(=('c.d'))"), single),
            ("HostHeader(`a.b`)", Ok("Host(=('a.b'))"), of_2),
            // Braces are templates in Traefik 2, and parts of an expression in Traefik 3.
            (
                "HostRegexp(`{sub:[a-z]{2}}.b.c`)",
                Ok("Host(Pattern('(?:[a-z]{2})\\\\.b\\\\.c'))"),
                Ok("the expression is invalid here (syntax of the Rust crate regex)"),
            ),
            ("HostRegexp(`^[a-z]+.b$`)", Ok("^[a-z]+.b$ is no host"), Ok("Host(Pattern('(?i)[a-z]+.b'))")),
            (
                "HostRegexp(`{sub}.b.c`)",
                Ok("Host(Pattern('[^.]+\\\\.b\\\\.c'))"),
                Ok("the expression is invalid here (syntax of the Rust crate regex)"),
            ),
            ("HostRegexp(`a.b`)", Ok("Host(=('a.b'))"), Ok("Host(Pattern('(?i).*a.b.*'))")),
            (
                "Path(`/a/{id:[0-9]+}`)",
                Ok("Path(Pattern('/a/(?:[0-9]+)'))"),
                Ok("Path(Pattern('/a/\\\\{id:\\\\[0\\\\-9\\\\]\\\\+\\\\}'))"),
            ),
            (
                "Path(`/a/{id}/b`)",
                Ok("Path(Pattern('/a/[^/]+/b'))"),
                Ok("Path(Pattern('/a/\\\\{id\\\\}/b'))"),
            ),
            (
                "PathPrefix(`/{v:v[0-9]}/`)",
                Ok("Path(Pattern('/(?:v[0-9])/.*'))"),
                Ok("Path(Pattern('/\\\\{v:v\\\\[0\\\\-9\\\\]\\\\}/.*'))"),
            ),
            ("PathRegexp(`^/a`)", of_3, Ok("Path(Pattern('/a.*'))")),
            ("Method(`GET`, `PUT`)", Ok("Methods(['GET', 'PUT'])"), single),
            ("Headers(`X`, `1`)", Ok("Header('X', =('1'))"), of_2),
            ("Headers(`X`, ``)", Ok("Header('X', Present)"), of_2),
            ("Header(`X`, `1`)", of_3, Ok("Header('X', =('1'))")),
            ("HeadersRegexp(`X`, `^a`)", Ok("Header('X', Pattern('a.*'))"), of_2),
            (
                "Query(`a=1`, `b=`)",
                Ok("(Query('a', =('1')) & Query('b', Present))"),
                Ok("Query('a=1', =('b='))"),
            ),
            (
                "Query(`a={n:[0-9]+}`)",
                Ok("Query('a', Pattern('(?:[0-9]+)'))"),
                Ok("Query('a={n:[0-9]+}', =(''))"),
            ),
            (
                "Query(`a`, `1`)",
                Err("Query needs pairs such as `a=b` in Traefik 2"),
                Ok("Query('a', =('1'))"),
            ),
            ("QueryRegexp(`a`, `^1`)", of_3, Ok("Query('a', Pattern('1.*'))")),
        ];
        for (text, two, three) in cases {
            for (syntax, expected) in [(RuleSyntax::V2, two), (RuleSyntax::V3, three)] {
                match (read(text, syntax, 0).map(|rule| shown(&rule)), expected) {
                    (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{text} {syntax:?}"),
                    (Err(found), Err(expected)) => {
                        assert!(found.contains(expected), "{text} {syntax:?}: {found}");
                    }
                    (found, _) => panic!("{text} {syntax:?}: {found:?}"),
                }
            }
        }
    }

    #[test]
    fn server_names_of_tcp_routers() {
        assert_eq!(
            server_names("HostSNI(`A.b`) || HostSNI(`c.d`)"),
            Ok(vec!["a.b".to_owned(), "c.d".to_owned()])
        );
        assert_eq!(server_names("HostSNI(`*`)"), Ok(vec!["*".to_owned()]));
        assert!(server_names("HostSNI(`a`) && ClientIP(`::1`)").is_err());
    }
}
