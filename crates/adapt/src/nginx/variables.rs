//! Values of variables: texts of the request, constants, and choices between them by `map`, `geo`, `set` and `if`.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::facts::{NginxFact, fact};
use super::maps;
use super::syntax::Directive;
use super::truth::NginxCondition;
use super::values::split_name;
use crate::rules::literal;
use crate::values;

/// Variables that depend on others, one within another. More are probably a cycle.
const NESTED_MAX: usize = 16;
/// The most results of joined choices, such as `$a$b`.
const JOINED_MAX: usize = 256;

/// A text, or a choice between texts.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum VariableValue {
    /// Parts in order; none for the empty text.
    Text(Vec<TextPart>),
    /// The first test that holds decides.
    Choice { tests: Vec<(ValueTest, VariableValue)>, otherwise: Box<VariableValue> },
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum TextPart {
    Constant(String),
    /// A variable of nginx itself.
    NginxFact(String),
}

/// A test of a choice.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ValueTest {
    /// Compares an expression with a key, as a map does.
    Key {
        kind: MapKeyKind,
        source: String,
        key: String,
    },
    When(NginxCondition),
}

/// Kinds of Vanward's maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MapKeyKind {
    Exact,
    Prefix,
    Suffix,
    Network,
    Regex,
}

/// A value, and where it comes from.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ResolvedVariable {
    pub(super) value: VariableValue,
    /// The directives that declare or set its variables.
    pub(super) used: BTreeSet<usize>,
    /// Whether it depends on the block, because `set` is in it.
    pub(super) is_of_block: bool,
}

/// Variables that a block sets, or why they are not known.
pub(super) type SetVariables = BTreeMap<String, Result<Rc<ResolvedVariable>, String>>;

impl ResolvedVariable {
    pub(super) fn constant(text: &str) -> Self {
        Self { value: VariableValue::constant(text), used: BTreeSet::new(), is_of_block: false }
    }
}

impl VariableValue {
    pub(super) fn constant(text: &str) -> Self {
        let parts = if text.is_empty() { Vec::new() } else { vec![TextPart::Constant(text.to_owned())] };
        Self::Text(parts)
    }

    /// The text, if it is a constant.
    pub(super) fn as_constant(&self) -> Option<&str> {
        match self {
            Self::Text(parts) => match parts.as_slice() {
                [] => Some(""),
                [TextPart::Constant(text)] => Some(text),
                _ => None,
            },
            Self::Choice { .. } => None,
        }
    }

    /// All texts that it can be.
    pub(super) fn leaves(&self) -> Vec<&Self> {
        match self {
            Self::Text(_) => vec![self],
            Self::Choice { tests, otherwise } => {
                let all = tests.iter().map(|(_, value)| value).chain([otherwise.as_ref()]);
                all.flat_map(Self::leaves).collect()
            }
        }
    }

    /// Replaces each text.
    ///
    /// # Errors
    /// The first one of `change`.
    pub(super) fn map<E>(&self, change: &mut impl FnMut(&Self) -> Result<Self, E>) -> Result<Self, E> {
        match self {
            Self::Text(_) => change(self),
            Self::Choice { tests, otherwise } => {
                let mut made = Vec::with_capacity(tests.len());
                for (test, value) in tests {
                    made.push((test.clone(), value.map(change)?));
                }
                Ok(Self::Choice { tests: made, otherwise: Box::new(otherwise.map(change)?) })
            }
        }
    }

    /// Joins two values to one text.
    fn joined(&self, other: &Self) -> Result<Self, String> {
        match (self, other) {
            (Self::Text(one), Self::Text(other)) => {
                let mut parts = one.clone();
                for part in other {
                    match (parts.last_mut(), part) {
                        (Some(TextPart::Constant(text)), TextPart::Constant(more)) => text.push_str(more),
                        _ => parts.push(part.clone()),
                    }
                }
                Ok(Self::Text(parts))
            }
            (Self::Choice { .. }, Self::Choice { .. })
                if self.leaves().len().saturating_mul(other.leaves().len()) > JOINED_MAX =>
            {
                Err(format!("its variables have more than {JOINED_MAX} combinations"))
            }
            (Self::Choice { .. }, _) => self.map(&mut |own| own.joined(other)),
            (Self::Text(_), Self::Choice { .. }) => other.map(&mut |leaf| self.joined(leaf)),
        }
    }

    /// The variable of nginx that it is, if it is nothing else.
    pub(super) fn as_fact(&self) -> Option<&str> {
        match self {
            Self::Text(parts) => match parts.as_slice() {
                [TextPart::NginxFact(name)] => Some(name),
                _ => None,
            },
            Self::Choice { .. } => None,
        }
    }

    /// Whether it depends on one of nginx's variables, also in its tests.
    pub(super) fn depends_on(&self, of: &dyn Fn(&str) -> bool, in_expression: &dyn Fn(&str) -> bool) -> bool {
        match self {
            Self::Text(parts) => {
                parts.iter().any(|part| matches!(part, TextPart::NginxFact(name) if of(name)))
            }
            Self::Choice { tests, otherwise } => {
                let in_test = |test: &ValueTest| match test {
                    ValueTest::Key { source, .. } => in_expression(source),
                    ValueTest::When(condition) => in_expression(&condition.written()),
                };
                otherwise.depends_on(of, in_expression)
                    || tests.iter().any(|(test, value)| in_test(test) || value.depends_on(of, in_expression))
            }
        }
    }

    /// Whether it has the path as it was sent, with which Vanward's expressions compare the decoded one.
    pub(super) fn is_decoded(&self) -> bool {
        self.depends_on(&|name| name == "request_uri", &|text| text.contains("request.path + "))
    }

    /// Whether it is known only after the response.
    pub(super) fn is_late(&self) -> bool {
        self.depends_on(&|name| fact(name).is_some_and(|fact| fact.is_late), &|text| {
            text.contains("response.")
        })
    }
}

/// A text as an expression.
pub(super) struct TextExpression {
    pub(super) text: String,
    pub(super) is_lower: bool,
    /// Whether it is neither empty nor `0`.
    pub(super) is_set: bool,
}

/// Writes parts as an expression.
///
/// # Errors
/// A variable has none.
pub(super) fn expression_of(parts: &[TextPart]) -> Result<TextExpression, String> {
    let mut made = TextExpression { text: String::new(), is_lower: true, is_set: false };
    let mut texts = Vec::with_capacity(parts.len());
    for part in parts {
        match part {
            TextPart::Constant(text) => {
                made.is_lower &= !text.bytes().any(|byte| byte.is_ascii_uppercase());
                made.is_set |= text.bytes().any(|byte| byte != b'0');
                texts.push(literal(text));
            }
            TextPart::NginxFact(name) => {
                let NginxFact { expression, is_lower, is_set, .. } =
                    fact(name).ok_or_else(|| format!("${name} cannot be compared here"))?;
                made.is_lower &= is_lower;
                made.is_set |= is_set;
                texts.push(expression);
            }
        }
    }
    made.text = match texts.as_slice() {
        [] => "\"\"".to_owned(),
        [one] => one.clone(),
        _ => format!("({})", texts.join(" + ")),
    };
    Ok(made)
}

impl ValueTest {
    pub(super) fn condition(&self) -> NginxCondition {
        match self {
            Self::When(condition) => condition.clone(),
            Self::Key { kind, source, key } => match kind {
                MapKeyKind::Exact => NginxCondition::equal(source, key),
                MapKeyKind::Prefix => NginxCondition::call(format!("{source}.startsWith({})", literal(key))),
                MapKeyKind::Suffix => {
                    let domain = key.strip_prefix("*.");
                    let end = literal(&format!(".{}", domain.unwrap_or(key)));
                    let below = NginxCondition::call(format!("{source}.endsWith({end})"));
                    match domain {
                        Some(_) => below,
                        None => NginxCondition::any(vec![NginxCondition::equal(source, key), below]),
                    }
                }
                MapKeyKind::Network => {
                    let network = literal(&values::masked(key));
                    NginxCondition::Text(format!("{source} in {network}"), super::truth::Binding::Comparison)
                }
                MapKeyKind::Regex => NginxCondition::call(format!("{source}.matches({})", literal(key))),
            },
        }
    }

    /// Whether one of several tests holds.
    pub(super) fn any<'t>(tests: impl Iterator<Item = &'t Self>) -> NginxCondition {
        let mut parts: Vec<NginxCondition> = Vec::new();
        let mut alike: Option<(MapKeyKind, &str, Vec<&str>)> = None;
        let closed = |alike: &mut Option<(MapKeyKind, &'t str, Vec<&'t str>)>,
                      parts: &mut Vec<NginxCondition>| {
            if let Some((kind, source, keys)) = alike.take() {
                parts.push(one_of(kind, source, &keys));
            }
        };
        for test in tests {
            match test {
                Self::Key { kind: kind @ (MapKeyKind::Exact | MapKeyKind::Network), source, key } => {
                    match &mut alike {
                        Some((known, of, keys)) if known == kind && of == source => keys.push(key),
                        _ => {
                            closed(&mut alike, &mut parts);
                            alike = Some((*kind, source, vec![key]));
                        }
                    }
                }
                other => {
                    closed(&mut alike, &mut parts);
                    parts.push(other.condition());
                }
            }
        }
        closed(&mut alike, &mut parts);
        NginxCondition::any(parts)
    }
}

fn one_of(kind: MapKeyKind, source: &str, keys: &[&str]) -> NginxCondition {
    match (kind, keys) {
        (_, [key]) => ValueTest::Key { kind, source: source.to_owned(), key: (*key).to_owned() }.condition(),
        (MapKeyKind::Network, _) => {
            let masked: Vec<String> = keys.iter().map(|key| values::masked(key)).collect();
            NginxCondition::among(source, &masked.iter().map(String::as_str).collect::<Vec<_>>())
        }
        _ => NginxCondition::among(source, keys),
    }
}

/// The variables of the `http` block.
pub(super) struct Declarations<'s> {
    declared: BTreeMap<&'s str, &'s Directive>,
    /// Numbers of blocks whose included files cannot be read.
    unread: BTreeSet<usize>,
}

impl<'s> Declarations<'s> {
    pub(super) fn new(level: &'s [Directive], unread: BTreeSet<usize>) -> Self {
        let is_one =
            |directive: &&Directive| matches!(directive.name.as_str(), "map" | "geo" | "split_clients");
        let declared = level.iter().filter(is_one).filter_map(|directive| {
            let name = directive.words.last()?.strip_prefix('$')?;
            Some((name, directive))
        });
        Self { declared: declared.collect(), unread }
    }

    pub(super) fn find(&self, name: &str) -> Option<&'s Directive> {
        self.declared.get(name).copied()
    }

    /// Resolves a text with variables.
    ///
    /// # Errors
    /// Why it has no translation.
    pub(super) fn text(&self, text: &str, sets: &SetVariables) -> Result<ResolvedVariable, String> {
        self.text_within(text, sets, 0)
    }

    pub(super) fn text_within(
        &self,
        text: &str,
        sets: &SetVariables,
        nested: usize,
    ) -> Result<ResolvedVariable, String> {
        let mut made = ResolvedVariable::constant("");
        let mut add = |part: ResolvedVariable| -> Result<(), String> {
            made.value = made.value.joined(&part.value)?;
            made.used.extend(part.used);
            made.is_of_block |= part.is_of_block;
            Ok(())
        };
        let mut rest = text;
        while let Some(dollar) = rest.find('$') {
            add(ResolvedVariable::constant(&rest[..dollar]))?;
            let (name, behind) = split_name(&rest[dollar + 1..]);
            match name {
                "" => add(ResolvedVariable::constant("$"))?,
                name => add(self.variable(name, sets, nested)?)?,
            }
            rest = behind;
        }
        add(ResolvedVariable::constant(rest))?;
        Ok(made)
    }

    /// Resolves a variable.
    fn variable(&self, name: &str, sets: &SetVariables, nested: usize) -> Result<ResolvedVariable, String> {
        if nested > NESTED_MAX {
            return Err("its variables depend on each other".to_owned());
        }
        if let Some(set) = sets.get(name) {
            return set.as_deref().cloned().map_err(Clone::clone);
        }
        if let Some(directive) = self.find(name) {
            let why = |why: String| format!("{} of ${name}: {why}", directive.name);
            if self.unread.contains(&directive.number) {
                return Err(why("a file that it includes cannot be read".to_owned()));
            }
            let mut resolved = match directive.name.as_str() {
                "map" => maps::of_map(directive, self, sets, nested + 1).map_err(why)?,
                "geo" => maps::of_geo(directive).map_err(why)?,
                _ => return Err(why("only `proxy_pass` can use it".to_owned())),
            };
            resolved.used.insert(directive.number);
            return Ok(resolved);
        }
        if name.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(format!("${name} is a group of an expression, which is not known there"));
        }
        if fact(name).is_none() && super::values::variable(name).is_none() {
            return Err(format!("there is no variable ${name}"));
        }
        let value = VariableValue::Text(vec![TextPart::NginxFact(name.to_owned())]);
        Ok(ResolvedVariable { value, used: BTreeSet::new(), is_of_block: false })
    }
}
