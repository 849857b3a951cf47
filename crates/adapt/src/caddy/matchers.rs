//! Matchers: the first word of a directive, and the named matchers of a site.

use std::collections::BTreeMap;

use super::texts::{self, CaddyText, Texts};
use crate::definitions::Definitions;
use crate::rules::{Atom, Expression, HostIs, PathIs, TextIs, literal};
use crate::source::Directive;
use crate::{environment, values};

/// The names of a block.
#[derive(Debug, Clone, Default)]
pub(super) struct Named<'s> {
    /// Matchers, without the `@`.
    matchers: BTreeMap<&'s str, Expression>,
    /// Files that `rewrite` tries: what follows `file` in a matcher, and whether it is negated.
    tried: BTreeMap<&'s str, (bool, &'s [String])>,
    /// Regular expressions for paths, of which a matcher has one.
    patterns: BTreeMap<&'s str, PathGroups>,
    pub(super) texts: Texts,
}

/// A regular expression for paths, with groups that placeholders name.
#[derive(Debug, Clone)]
pub(super) struct PathGroups {
    /// Empty if it has none.
    name: String,
    pub(super) pattern: String,
}

impl PathGroups {
    fn read(directive: &Directive) -> Option<Self> {
        let (kind, words) = match directive.name.starts_with('@') {
            true => directive.words.split_first()?,
            false => (&directive.name, directive.words.as_slice()),
        };
        let (name, pattern) = match words {
            [pattern] => ("", pattern),
            [name, pattern] => (name.as_str(), pattern),
            _ => return None,
        };
        let pattern = values::expression(pattern, false).ok().filter(|_| kind == "path_regexp")?;
        Some(Self { name: name.to_owned(), pattern })
    }

    /// Calls `change` with the number of each group that a text names.
    pub(super) fn replaced(&self, text: &str, change: impl Fn(usize) -> String) -> String {
        let mut made = text.to_owned();
        for number in 1..=9 {
            let names = [self.name.as_str(), ""].map(|name| match name {
                "" => format!("{number}}}"),
                name => format!("{name}.{number}}}"),
            });
            for name in names {
                for begin in ["{re.", "{http.regexp."] {
                    made = made.replace(&format!("{begin}{name}"), &change(number));
                }
            }
        }
        made
    }
}

/// Reads matchers, with the placeholders that they may name.
pub(super) struct MatcherReader<'r> {
    pub(super) texts: &'r Texts,
    pub(super) definitions: &'r mut Definitions,
}

/// Reads the maps, variables and matchers of a block.
pub(super) fn named<'s>(
    block: &'s [Directive],
    outer: &Named<'s>,
    definitions: &mut Definitions,
) -> Named<'s> {
    let mut named = outer.clone();
    for directive in block.iter().filter(|directive| directive.name == "map") {
        texts::map(directive, &mut named.texts);
    }
    let is_definition = |directive: &&Directive| directive.name.starts_with('@');
    let mut variables: Vec<&Directive> = block.iter().filter(|directive| directive.name == "vars").collect();
    // The most specific is the last to set a variable.
    variables.sort_by_key(|directive| match directive.word(0) {
        path if path.starts_with('/') => (1, path.len()),
        name => (usize::from(name.starts_with('@')), 0),
    });
    for directive in variables {
        let mut all = named.clone();
        all.define(block.iter().filter(is_definition), definitions);
        set_variables(directive, &all, &mut named.texts, definitions);
    }
    named.define(block.iter().filter(is_definition), definitions);
    named
}

impl<'s> Named<'s> {
    fn define(&mut self, all: impl Iterator<Item = &'s Directive>, definitions: &mut Definitions) {
        for directive in all {
            let Some(name) = directive.name.strip_prefix('@') else { continue };
            let mut reader = MatcherReader { texts: &self.texts, definitions };
            let expression = match &directive.block {
                Some(inner) => reader.set(inner),
                None => {
                    reader.one(directive, directive.word(0), directive.words.get(1..).unwrap_or_default())
                }
            };
            self.matchers.insert(name, expression);
            self.tried.extend(tried_files(directive).map(|tried| (name, tried)));
            let lines = std::iter::once(directive).chain(directive.inner());
            self.patterns.extend(lines.filter_map(PathGroups::read).map(|groups| (name, groups)));
        }
    }

    /// The regular expression of a directive's matcher.
    pub(super) fn groups(&self, directive: &Directive) -> Option<&PathGroups> {
        self.patterns.get(directive.word(0).strip_prefix('@')?)
    }

    /// The files that a directive's matcher tries, and whether the directive is for those without one.
    pub(super) fn tried(&self, directive: &Directive) -> Option<(bool, &'s [String])> {
        self.tried.get(directive.word(0).strip_prefix('@')?).copied()
    }
}

/// The files that a matcher tries, if it does nothing else.
fn tried_files(directive: &Directive) -> Option<(bool, &[String])> {
    let (name, words) = match directive.name.starts_with('@') {
        true if directive.words.is_empty() => match directive.inner() {
            [only] => return tried_files(only),
            _ => return None,
        },
        true => directive.words.split_first()?,
        false => (&directive.name, directive.words.as_slice()),
    };
    match (name.as_str(), words) {
        ("file", words) => match directive.inner() {
            [] => Some((false, words)),
            [only] if only.name == "try_files" && words.is_empty() => Some((false, &only.words)),
            _ => None,
        },
        ("not", [file, words @ ..]) if file == "file" && directive.inner().is_empty() => Some((true, words)),
        _ => None,
    }
}

/// Applies a directive `vars`.
fn set_variables(directive: &Directive, named: &Named<'_>, texts: &mut Texts, definitions: &mut Definitions) {
    let (matcher, count) = expression(directive, named);
    let words = directive.words.get(count..).unwrap_or_default();
    let pairs: Vec<(&str, &str)> = match words {
        [name, value] => vec![(name, value)],
        [] => directive.inner().iter().map(|inner| (inner.name.as_str(), inner.word(0))).collect(),
        _ => return,
    };
    let condition = matcher.map(|matcher| {
        let schema = definitions.schema();
        matcher.formula()?.written(&schema).ok_or_else(|| "its condition is too long".to_owned())
    });
    for (name, value) in pairs {
        let name = format!("vars.{name}");
        let new = CaddyText::read(value, texts).map(|text| text.set_by(directive));
        let made = match &condition {
            None => new,
            Some(condition) => {
                let old = texts.get(&name).cloned().unwrap_or_else(|| Ok(CaddyText::constant("")));
                chosen(condition.clone(), new, old, definitions)
            }
        };
        texts.insert(name, made);
    }
}

/// Joins two texts: the first one under a condition.
fn chosen(
    condition: Result<String, String>,
    new: Result<CaddyText, String>,
    old: Result<CaddyText, String>,
    definitions: &mut Definitions,
) -> Result<CaddyText, String> {
    let (condition, new, old) = (condition?, new?, old?);
    let possible = new.possible().zip(old.possible()).map(|(new, old)| new.into_iter().chain(old).collect());
    let text = format!("({condition} ? {} : {})", new.written(definitions)?, old.written(definitions)?);
    let mut made = CaddyText::expression(text, possible);
    made.from = [old.from, new.from].concat();
    Ok(made)
}

impl MatcherReader<'_> {
    /// Whether a variable or placeholder has one of these values.
    fn vars(&mut self, directive: &Directive, words: &[String]) -> Expression {
        let Some((name, values)) = words.split_first() else {
            return Expression::Unsaid("`vars` names no variable".to_owned());
        };
        if let Some(atoms) = super::cel::equals(name, values) {
            return Expression::Any(atoms, directive.number);
        }
        let placeholder = if name.starts_with('{') { name.clone() } else { format!("{{vars.{name}}}") };
        let Ok(text) = CaddyText::read(&placeholder, self.texts) else {
            return Expression::Unsaid(format!("the value of {name} is not known"));
        };
        if let Some(only) = text.only() {
            let never = Expression::Any(Vec::new(), directive.number);
            return if values.contains(&only) { never.not() } else { never };
        }
        match text.written(self.definitions) {
            Ok(text) => {
                let is = |value: &String| Atom::When(format!("{text} == {}", literal(value)));
                Expression::Any(values.iter().map(is).collect(), directive.number)
            }
            Err(why) => Expression::Unsaid(why),
        }
    }
}

/// Returns the matcher at the start of a directive and its number of words; `None` matches all requests.
pub(super) fn expression(directive: &Directive, named: &Named<'_>) -> (Option<Expression>, usize) {
    let word = directive.word(0);
    if word == "*" {
        return (None, 1);
    }
    if let Some(name) = word.strip_prefix('@') {
        let unknown = || Expression::Unsaid(format!("there is no matcher {word}"));
        return (Some(named.matchers.get(name).cloned().unwrap_or_else(unknown)), 1);
    }
    let unknown = || (Some(Expression::Unsaid("its path comes from the environment".to_owned())), 1);
    let known = match word_of(directive) {
        Ok(known) => known,
        // The other words of these directives are in their blocks.
        Err(()) if word.starts_with('/') || super::directives::has_directives(&directive.name) => {
            return unknown();
        }
        Err(()) => return (None, 0),
    };
    if known.starts_with('/') {
        return (Some(Expression::Any(path(&known).into_iter().collect(), directive.number)), 1);
    }
    (None, 0)
}

/// The first word of a directive, with the defaults of variables of the environment; an error if one has none.
pub(super) fn word_of(directive: &Directive) -> Result<std::borrow::Cow<'_, str>, ()> {
    let word = directive.word(0);
    match environment::is_in(word) {
        true => environment::assumed(word).map(Into::into).ok_or(()),
        false => Ok(word.into()),
    }
}

impl MatcherReader<'_> {
    /// Parses a matcher set. All conditions must hold, but only one of those with the same kind and field.
    fn set(&mut self, block: &[Directive]) -> Expression {
        let mut kinds: Vec<(String, Vec<Expression>)> = Vec::new();
        for directive in block {
            let kind = match directive.name.as_str() {
                name @ ("header" | "header_regexp") => {
                    let field = directive.words.iter().rev().nth(1).or(directive.words.first());
                    format!("{name} {}", field.map_or(String::new(), |field| field.to_ascii_lowercase()))
                }
                "query" if directive.words.len() == 1 => {
                    format!("query {}", directive.word(0).split('=').next().unwrap_or_default())
                }
                "query" => format!("query {}", directive.number),
                "vars" => format!("vars {}", directive.word(0)),
                // Several of these must all hold.
                name @ ("not" | "expression") => format!("{name} {}", directive.number),
                name => name.to_owned(),
            };
            let expression = self.one(directive, &directive.name, &directive.words);
            match kinds.iter_mut().find(|(known, _)| *known == kind) {
                Some((_, list)) => list.push(expression),
                None => kinds.push((kind, vec![expression])),
            }
        }
        Expression::all(kinds.into_iter().map(|(_, list)| Expression::either(list)).collect())
    }

    pub(super) fn one(&mut self, directive: &Directive, name: &str, words: &[String]) -> Expression {
        if words.iter().any(|word| environment::is_in(word)) {
            return Expression::Unsaid("its value comes from the environment".to_owned());
        }
        let unsaid = || Expression::Unsaid(format!("routes cannot match on `{name}`"));
        let each = |made: &dyn Fn(&str) -> Option<Atom>| {
            let atoms: Option<Vec<Atom>> = words.iter().map(|word| made(word)).collect();
            atoms
                .filter(|atoms| !atoms.is_empty())
                .map_or_else(unsaid, |atoms| Expression::Any(atoms, directive.number))
        };
        match name {
            "path" => each(&path),
            "path_regexp" => {
                let pattern = words.last().and_then(|pattern| values::expression(pattern, false).ok());
                pattern.map_or_else(unsaid, |pattern| {
                    Expression::Any(vec![Atom::Path(PathIs::Pattern(pattern))], directive.number)
                })
            }
            "host" => each(&|host| HostIs::named(host).map(Atom::Host)),
            "method" => {
                let methods = words.iter().map(|method| method.to_ascii_uppercase()).collect();
                Expression::Any(vec![Atom::Methods(methods)], directive.number)
            }
            "vars" => self.vars(directive, words),
            "expression" => super::cel::read(&words.join(" "), directive, self),
            "header" | "query" | "header_regexp" => fields(directive, name, words).unwrap_or_else(unsaid),
            "remote_ip" | "client_ip" => {
                let networks: Vec<String> = words
                    .iter()
                    .filter(|word| *word != "forwarded")
                    .flat_map(|word| {
                        if word == "private_ranges" {
                            PRIVATE.map(str::to_owned).to_vec()
                        } else {
                            vec![word.clone()]
                        }
                    })
                    .collect();
                let are_networks =
                    !networks.is_empty() && networks.iter().all(|network| values::is_network(network));
                if are_networks {
                    Expression::Any(vec![Atom::Clients(networks)], directive.number)
                } else {
                    unsaid()
                }
            }
            "protocol" => match words {
                [scheme] if scheme == "https" => Expression::Tls,
                [scheme] if scheme == "http" => Expression::Tls.not(),
                [version] => version_is(version)
                    .map_or_else(unsaid, |said| Expression::Any(vec![Atom::When(said)], directive.number)),
                _ => unsaid(),
            },
            "not" => match (&directive.block, words.split_first()) {
                (Some(inner), _) if name == directive.name => self.set(inner).not(),
                (_, Some((first, rest))) => self.one(directive, first, rest).not(),
                _ => unsaid(),
            },
            _ => unsaid(),
        }
    }
}

/// A condition on the version of HTTP: `http/1.1`, or `http/2+` for later ones, too.
fn version_is(text: &str) -> Option<String> {
    const VERSIONS: [(&str, &str); 4] =
        [("http/1.0", "1.0"), ("http/1.1", "1.1"), ("http/2", "2"), ("http/3", "3")];
    if text == "grpc" {
        let kind = "(request.headers[\"content-type\"] ?? \"\")";
        return Some(format!("{kind}.startsWith(\"application/grpc\")"));
    }
    let bare = text.strip_suffix('+').unwrap_or(text);
    let place = VERSIONS.iter().position(|(name, _)| *name == bare)?;
    let last = if text.ends_with('+') { VERSIONS.len() } else { place + 1 };
    let names: Vec<String> = VERSIONS[place..last].iter().map(|(_, here)| format!("\"{here}\"")).collect();
    Some(format!("request.version in [{}]", names.join(", ")))
}

/// Caddy's name for private networks.
pub(super) const PRIVATE: [&str; 6] =
    ["192.168.0.0/16", "172.16.0.0/12", "10.0.0.0/8", "127.0.0.0/8", "fd00::/8", "::1"];

fn fields(directive: &Directive, name: &str, words: &[String]) -> Option<Expression> {
    let atom = match (name, words) {
        ("header", [field]) => match field.strip_prefix('!') {
            Some(field) => {
                return Some(
                    Expression::Any(vec![Atom::Header(field.to_owned(), TextIs::Present)], directive.number)
                        .not(),
                );
            }
            None => Atom::Header(field.clone(), TextIs::Present),
        },
        ("header", [field, value]) => Atom::Header(field.clone(), text(value)),
        ("header_regexp", [.., field, pattern]) => {
            Atom::Header(field.clone(), TextIs::Pattern(values::expression(pattern, false).ok()?))
        }
        ("query", [pair]) if pair.is_empty() => Atom::When("(request.query ?? \"\") == \"\"".to_owned()),
        ("query", [pair]) => match pair.split_once('=')? {
            (_, value) if value.contains('{') => return None,
            (name, "*") => Atom::Query(name.to_owned(), TextIs::Present),
            (name, value) => Atom::Query(name.to_owned(), TextIs::Exact(value.to_owned())),
        },
        ("query", [_, _, ..]) => return pairs(directive, words),
        _ => return None,
    };
    Some(Expression::Any(vec![atom], directive.number))
}

/// Several pairs: all keys, each with one of its values.
fn pairs(directive: &Directive, words: &[String]) -> Option<Expression> {
    let mut keys: Vec<(&str, Vec<Expression>)> = Vec::new();
    for word in words {
        let (key, _) = word.split_once('=')?;
        let one = fields(directive, "query", std::slice::from_ref(word))?;
        match keys.iter_mut().find(|(known, _)| *known == key) {
            Some((_, list)) => list.push(one),
            None => keys.push((key, vec![one])),
        }
    }
    Some(Expression::all(keys.into_iter().map(|(_, list)| Expression::either(list)).collect()))
}

/// Parses a value with `*` at its beginning or end.
fn text(value: &str) -> TextIs {
    match (value.strip_prefix('*'), value.strip_suffix('*')) {
        (Some(""), _) => TextIs::Present,
        (Some(rest), _) => match rest.strip_suffix('*') {
            Some(inner) => TextIs::Pattern(format!(".*{}.*", values::escaped(inner))),
            None => TextIs::Pattern(format!(".*{}", values::escaped(rest))),
        },
        (None, Some(prefix)) => TextIs::Prefix(prefix.to_owned()),
        (None, None) => TextIs::Exact(value.to_owned()),
    }
}

/// Parses a path with `*`: a prefix, a suffix, or a part of a segment. Case has no meaning.
pub(super) fn path(word: &str) -> Option<Atom> {
    let stars = word.matches('*').count();
    let path = match (word.strip_prefix('*'), word.strip_suffix('*'), stars) {
        (None, None, 0) => PathIs::exact_any_case(word),
        (None, Some("" | "/"), 1) => PathIs::prefix("/"),
        (None, Some(prefix), 1) => PathIs::prefix_any_case(prefix),
        (Some(end), None, 1) => PathIs::Pattern(format!("(?i).*{}", values::escaped(end))),
        (Some(_), Some(_), 2) => {
            PathIs::Pattern(format!("(?i).*{}.*", values::escaped(word.trim_matches('*'))))
        }
        _ => {
            let parts: Vec<String> = word.split('*').map(values::escaped).collect();
            PathIs::Pattern(format!("(?i){}", parts.join("[^/]*")))
        }
    };
    (!word.contains('{')).then_some(Atom::Path(path))
}
