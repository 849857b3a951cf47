//! Rules of routers, as ways to meet them. It does not share code with `adapt`, so that a mistake there shows.

use crate::old::OldCondition;
use crate::pattern::TextPattern;

/// Ways to meet a rule that get requests.
const WAYS_MAX: usize = 16;
const DEPTH_MAX: usize = 32;

/// A way to meet a rule.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct RuleWay {
    pub(super) conditions: Vec<OldCondition>,
    /// Conditions behind `!`: a request that meets one misses the rule.
    pub(super) excluded: Vec<OldCondition>,
}

impl RuleWay {
    fn with(&self, other: &Self) -> Self {
        let both = |one: &[OldCondition], other: &[OldCondition]| [one, other].concat();
        Self {
            conditions: both(&self.conditions, &other.conditions),
            excluded: both(&self.excluded, &other.excluded),
        }
    }
}

enum RuleTree {
    /// Any of these.
    Any(Vec<OldCondition>),
    /// Every request meets it.
    True,
    All(Vec<RuleTree>),
    Either(Vec<RuleTree>),
    Not(Box<RuleTree>),
}

/// Returns the ways to meet a rule; `None` if it is not understood.
pub(super) fn ways(rule: &str) -> Option<Vec<RuleWay>> {
    let tokens = tokens(rule)?;
    let mut reader = RuleReader { tokens: tokens.into_iter().peekable() };
    let tree = reader.either(0)?;
    reader.tokens.next().is_none().then(|| of_tree(&tree, false))
}

fn of_tree(tree: &RuleTree, is_negated: bool) -> Vec<RuleWay> {
    let mut all = match tree {
        RuleTree::True => vec![RuleWay::default()],
        RuleTree::Any(conditions) if is_negated => {
            vec![RuleWay { conditions: Vec::new(), excluded: conditions.clone() }]
        }
        RuleTree::Any(conditions) => {
            let way = |condition: &OldCondition| RuleWay {
                conditions: vec![condition.clone()],
                excluded: Vec::new(),
            };
            conditions.iter().map(way).collect()
        }
        RuleTree::Not(inner) => of_tree(inner, !is_negated),
        RuleTree::All(parts) if !is_negated => product(parts, is_negated),
        RuleTree::Either(parts) if is_negated => product(parts, is_negated),
        RuleTree::All(parts) | RuleTree::Either(parts) => {
            parts.iter().flat_map(|part| of_tree(part, is_negated)).collect()
        }
    };
    all.truncate(WAYS_MAX);
    all
}

/// The ways to meet all parts at once.
fn product(parts: &[RuleTree], is_negated: bool) -> Vec<RuleWay> {
    let mut all = vec![RuleWay::default()];
    for part in parts {
        let more = of_tree(part, is_negated);
        all = all.iter().flat_map(|one| more.iter().map(|other| one.with(other))).take(WAYS_MAX).collect();
    }
    all
}

#[derive(Debug, Clone, PartialEq)]
enum RuleToken {
    Name(String),
    Text(String),
    Sign(char),
}

fn tokens(rule: &str) -> Option<Vec<RuleToken>> {
    let mut found = Vec::new();
    let mut letters = rule.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            _ if letter.is_whitespace() => {}
            '(' | ')' | ',' | '!' => found.push(RuleToken::Sign(letter)),
            '&' | '|' => {
                letters.next_if_eq(&letter)?;
                found.push(RuleToken::Sign(letter));
            }
            '`' | '"' | '\'' => {
                let mut text = String::new();
                loop {
                    match letters.next()? {
                        end if end == letter => break,
                        '\\' if letter == '"' => text.push(letters.next()?),
                        inner => text.push(inner),
                    }
                }
                found.push(RuleToken::Text(text));
            }
            _ if letter.is_ascii_alphabetic() => {
                let mut name = letter.to_ascii_lowercase().to_string();
                while let Some(next) = letters.next_if(char::is_ascii_alphanumeric) {
                    name.push(next.to_ascii_lowercase());
                }
                found.push(RuleToken::Name(name));
            }
            _ => return None,
        }
    }
    Some(found)
}

struct RuleReader {
    tokens: std::iter::Peekable<std::vec::IntoIter<RuleToken>>,
}

impl RuleReader {
    fn either(&mut self, depth: usize) -> Option<RuleTree> {
        let mut parts = vec![self.all(depth)?];
        while self.takes('|') {
            parts.push(self.all(depth)?);
        }
        Some(RuleTree::Either(parts))
    }

    fn all(&mut self, depth: usize) -> Option<RuleTree> {
        let mut parts = vec![self.one(depth)?];
        while self.takes('&') {
            parts.push(self.one(depth)?);
        }
        Some(RuleTree::All(parts))
    }

    fn one(&mut self, depth: usize) -> Option<RuleTree> {
        if depth > DEPTH_MAX {
            return None;
        }
        match self.tokens.next()? {
            RuleToken::Sign('!') => Some(RuleTree::Not(Box::new(self.one(depth + 1)?))),
            RuleToken::Sign('(') => {
                let inner = self.either(depth + 1)?;
                self.takes(')').then_some(inner)
            }
            RuleToken::Name(name) => {
                self.takes('(').then_some(())?;
                let mut texts = Vec::new();
                while let Some(RuleToken::Text(text)) =
                    self.tokens.next_if(|token| matches!(token, RuleToken::Text(_)))
                {
                    texts.push(text);
                    self.takes(',');
                }
                self.takes(')').then_some(())?;
                matcher(&name, &texts)
            }
            _ => None,
        }
    }

    fn takes(&mut self, sign: char) -> bool {
        self.tokens.next_if_eq(&RuleToken::Sign(sign)).is_some()
    }
}

fn matcher(name: &str, texts: &[String]) -> Option<RuleTree> {
    let first = texts.first()?;
    let second = texts.get(1);
    let each =
        |made: &dyn Fn(&str) -> OldCondition| RuleTree::Any(texts.iter().map(|text| made(text)).collect());
    let exact = |text: &str| TextPattern::Exact(text.to_owned());
    let regex = |pattern: &str| expression(pattern, false);
    Some(match name {
        "host" | "hostheader" if first == "*" => RuleTree::True,
        "host" | "hostheader" => each(&|text| match text.strip_prefix('*') {
            Some(domain) => OldCondition::Host(TextPattern::Suffix(domain.to_ascii_lowercase())),
            None => OldCondition::Host(exact(&text.to_ascii_lowercase())),
        }),
        "hostregexp" => each(&|text| {
            OldCondition::Host(match braces(text, "[^.]+") {
                Some(pattern) => expression(&pattern, true),
                None => expression(text, true),
            })
        }),
        "path" => each(&|text| {
            OldCondition::Path(braces(text, "[^/]+").map_or_else(|| exact(text), |pattern| regex(&pattern)))
        }),
        "pathprefix" if first == "/" => RuleTree::True,
        "pathprefix" => each(&|text| {
            OldCondition::Path(match braces(text, "[^/]+") {
                Some(pattern) => regex(pattern.trim_end_matches('$')),
                None => TextPattern::Prefix(text.to_owned()),
            })
        }),
        "pathregexp" => each(&|text| OldCondition::Path(regex(text))),
        "method" => RuleTree::Any(vec![OldCondition::Methods(
            texts.iter().map(|text| text.to_ascii_uppercase()).collect(),
        )]),
        "header" | "headers" => field(first, exact(second?)),
        "headerregexp" | "headersregexp" => field(first, regex(second?)),
        "query" => match (first.split_once('='), second) {
            // In Traefik 2, all pairs have to match.
            (Some(_), _) => {
                let pairs = texts.iter().filter_map(|pair| pair.split_once('='));
                let argument =
                    |(name, value): (&str, &str)| OldCondition::Argument(name.to_owned(), exact(value));
                RuleTree::All(pairs.map(|pair| RuleTree::Any(vec![argument(pair)])).collect())
            }
            (None, value) => {
                let value = value.map_or("", String::as_str);
                RuleTree::Any(vec![OldCondition::Argument(first.clone(), exact(value))])
            }
        },
        "queryregexp" => RuleTree::Any(vec![OldCondition::Argument(first.clone(), regex(second?))]),
        "clientip" => RuleTree::Any(vec![OldCondition::Clients(texts.to_vec())]),
        _ => return None,
    })
}

fn field(name: &str, pattern: TextPattern) -> RuleTree {
    // A request with these becomes a tunnel.
    let is_of_connection = ["connection", "upgrade"].iter().any(|known| name.eq_ignore_ascii_case(known));
    if is_of_connection {
        return RuleTree::True;
    }
    RuleTree::Any(vec![OldCondition::Field(name.to_owned(), pattern)])
}

pub(super) fn expression(pattern: &str, any_case: bool) -> TextPattern {
    TextPattern::Regex { pattern: pattern.to_owned(), any_case }
}

/// The expression of a text with names in braces, as in Traefik 2: `{name}` and `{name:[a-z]+}`. `part` is the text
/// that a name alone matches. `None` for a text without names in braces.
fn braces(text: &str, part: &str) -> Option<String> {
    let mut made = "^".to_owned();
    let mut rest = text;
    let mut has_name = false;
    while let Some((before, behind)) = rest.split_once('{') {
        let length = behind.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count();
        if length == 0 || behind.as_bytes()[0].is_ascii_digit() {
            return None;
        }
        made += &regex::escape(before);
        let mut depth = 1;
        let end = behind.char_indices().find_map(|(at, letter)| {
            depth += match letter {
                '{' => 1,
                '}' => -1,
                _ => 0,
            };
            (depth == 0).then_some(at)
        })?;
        made += &match behind[length..end].strip_prefix(':') {
            Some(pattern) => format!("(?:{pattern})"),
            None if length == end => part.to_owned(),
            None => return None,
        };
        has_name = true;
        rest = &behind[end + 1..];
    }
    has_name.then(|| format!("{made}{}$", regex::escape(rest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exact(text: &str) -> TextPattern {
        TextPattern::Exact(text.to_owned())
    }

    fn host(text: &str) -> OldCondition {
        OldCondition::Host(exact(text))
    }

    fn prefix(text: &str) -> OldCondition {
        OldCondition::Path(TextPattern::Prefix(text.to_owned()))
    }

    #[test]
    fn rules_become_ways_to_meet_them() {
        let way = |conditions: &[OldCondition], excluded: &[OldCondition]| RuleWay {
            conditions: conditions.to_vec(),
            excluded: excluded.to_vec(),
        };
        let argument = |name: &str, value: &str| OldCondition::Argument(name.to_owned(), exact(value));
        let regex = |pattern: &str| OldCondition::Path(expression(pattern, false));
        let cases = [
            ("Host(`A.b`) && PathPrefix(`/x`)", vec![way(&[host("a.b"), prefix("/x")], &[])]),
            ("Host(`a`, `b`)", vec![way(&[host("a")], &[]), way(&[host("b")], &[])]),
            (
                "(Path(`/a`) || PathPrefix(`/b`)) && !Method(`GET`)",
                [OldCondition::Path(exact("/a")), prefix("/b")]
                    .map(|path| way(&[path], &[OldCondition::Methods(vec!["GET".to_owned()])]))
                    .into(),
            ),
            (
                "!(Host(`a`) || PathPrefix(`/b`)) && ClientIP(`10.0.0.0/8`)",
                vec![way(
                    &[OldCondition::Clients(vec!["10.0.0.0/8".to_owned()])],
                    &[host("a"), prefix("/b")],
                )],
            ),
            ("!(Host(`a`) && PathPrefix(`/b`))", vec![way(&[], &[host("a")]), way(&[], &[prefix("/b")])]),
            ("PathPrefix(`/`)", vec![way(&[], &[])]),
            ("Query(`a`, `b`)", vec![way(&[argument("a", "b")], &[])]),
            ("Query(`a=b`, `c=d`)", vec![way(&[argument("a", "b"), argument("c", "d")], &[])]),
            ("Query(`a`)", vec![way(&[argument("a", "")], &[])]),
            ("PathPrefix(`/u/{id:[0-9]{2}}/{x}`)", vec![way(&[regex("^/u/(?:[0-9]{2})/[^/]+")], &[])]),
            ("PathRegexp(`^/[a-z]{3}`)", vec![way(&[regex("^/[a-z]{3}")], &[])]),
            (
                "Header(`X`, \"a\\\"b\")",
                vec![way(&[OldCondition::Field("X".to_owned(), exact("a\"b"))], &[])],
            ),
        ];
        for (rule, expected) in cases {
            assert_eq!(ways(rule), Some(expected), "{rule}");
        }
    }

    #[test]
    fn wrong_rules_are_not_understood() {
        for rule in [
            "",
            "Host(`a`",
            "Host(`a`) &&",
            "Host(`a`) & Path(`/`)",
            "Nothing(`a`)",
            "Host()",
            "Path(`/a`) x",
            "&",
        ] {
            assert_eq!(ways(rule), None, "{rule}");
        }
        let deep = format!("{}Host(`a`){}", "(".repeat(100), ")".repeat(100));
        assert_eq!(ways(&deep), None);
    }

    #[test]
    fn many_ways_are_cut() {
        let one = (0..9).map(|number| format!("Host(`h{number}`)")).collect::<Vec<_>>().join(" || ");
        let rule = format!("({one}) && ({one}) && ({one})");
        assert_eq!(ways(&rule).map(|ways| ways.len()), Some(WAYS_MAX));
    }
}
