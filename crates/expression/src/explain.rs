//! Explains an evaluation: each part of the expression with its value.
//!
//! A second evaluator, with owned values and without the tricks of `evaluate`, so that tests can compare the two. Meant
//! for people, so not optimised.

use std::fmt;
use std::net::IpAddr;
use std::ops::Range;

use crate::calendar;
use crate::cost::own_steps;
use crate::digest;
use crate::evaluate::{decode, parse_integer, quotient};
use crate::facts::{FactFamily, Facts, Key};
use crate::node::{CaseMapping, Constants, Node, NodeComparison, NodeOperation, TextSearch};
use crate::value::{Value, ValueType};

/// The parts of an expression with their values, each before the parts that it consists of. Constants are left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpressionTrace {
    /// Parts in preorder: each before its operands.
    pub parts: Vec<ExplainedPart>,
    /// The steps that the evaluation took; never more than [`Expression::cost`](crate::Expression::cost).
    pub steps: u64,
    text: Box<str>,
}

/// A part of an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplainedPart {
    /// The range in the text of the expression, in bytes.
    pub at: Range<usize>,
    /// The number of parts around this one.
    pub depth: usize,
    /// The value.
    pub outcome: Outcome,
}

/// The value of a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// A value, written as in an expression. Long texts are cut.
    Value(String),
    /// The value is absent.
    Absent,
    /// The part was not evaluated, because other parts decided.
    Skipped,
}

impl ExpressionTrace {
    /// The names that were evaluated, each once, with their values: `request.method` and `\"GET\"`.
    pub fn names(&self) -> Vec<(&str, String)> {
        let mut names: Vec<(&str, String)> = Vec::new();
        for (index, part) in self.parts.iter().enumerate() {
            let has_parts = self.parts.get(index + 1).is_some_and(|next| next.depth > part.depth);
            let text = self.text.get(part.at.clone()).unwrap_or_default();
            if !has_parts && part.outcome != Outcome::Skipped && names.iter().all(|(known, _)| *known != text)
            {
                names.push((text, part.outcome.to_string()));
            }
        }
        names
    }
}

/// Writes one part per line: its value, then its text, indented by its depth.
impl fmt::Display for ExpressionTrace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in &self.parts {
            let indent = "  ".repeat(part.depth);
            let text = self.text.get(part.at.clone()).unwrap_or_default();
            let text: Vec<&str> = text.split_whitespace().collect();
            writeln!(formatter, "{indent}{}: {}", text.join(" "), part.outcome)?;
        }
        Ok(())
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(value) => formatter.write_str(value),
            Self::Absent => formatter.write_str("absent"),
            Self::Skipped => formatter.write_str("not evaluated"),
        }
    }
}

/// Explains the evaluation of `root`.
pub(crate) fn explain<F: Facts + ?Sized>(text: &str, root: &Node, facts: &F) -> ExpressionTrace {
    let mut walk = Walk { facts, parts: Vec::new(), depth: 0, steps: 0, is_recording: true };
    walk.value(root);
    ExpressionTrace { parts: walk.parts, steps: walk.steps, text: text.into() }
}

struct Walk<'f, F: ?Sized> {
    facts: &'f F,
    parts: Vec<ExplainedPart>,
    depth: usize,
    steps: u64,
    /// False within named expressions: their places are in another text.
    is_recording: bool,
}

/// A value with its own memory.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Owned {
    Boolean(bool),
    Number(ValueType, i64),
    Text(Vec<u8>),
    Address(IpAddr),
}

impl Owned {
    fn from_value(value: Value<'_>) -> Self {
        match value {
            Value::Boolean(value) => Self::Boolean(value),
            Value::Integer(value) => Self::Number(ValueType::Integer, value),
            Value::Duration(value) => Self::Number(ValueType::Duration, value),
            Value::Time(value) => Self::Number(ValueType::Time, value),
            Value::Text(text) => Self::Text(text.to_vec()),
            Value::Address(address) => Self::Address(address),
        }
    }

    fn borrowed(&self) -> Value<'_> {
        match self {
            Self::Boolean(value) => Value::Boolean(*value),
            Self::Number(ValueType::Duration, value) => Value::Duration(*value),
            Self::Number(ValueType::Time, value) => Value::Time(*value),
            Self::Number(_, value) => Value::Integer(*value),
            Self::Text(text) => Value::Text(text),
            Self::Address(address) => Value::Address(*address),
        }
    }

    fn is_true(value: Option<&Self>) -> bool {
        value == Some(&Self::Boolean(true))
    }

    fn text(self) -> Option<Vec<u8>> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    fn number(self) -> Option<i64> {
        if let Self::Number(_, value) = self { Some(value) } else { None }
    }

    fn length(&self) -> u64 {
        if let Self::Text(text) = self { text.len() as u64 } else { 0 }
    }

    fn shown(&self) -> String {
        const SHOWN_BYTES_MAX: usize = 200;
        match self {
            Self::Text(text) if text.len() > SHOWN_BYTES_MAX => {
                format!("{}… ({} bytes)", Value::Text(&text[..SHOWN_BYTES_MAX]), text.len())
            }
            value => value.borrowed().to_string(),
        }
    }
}

impl<F: Facts + ?Sized> Walk<'_, F> {
    fn value(&mut self, node: &Node) -> Option<Owned> {
        let place = self.parts.len();
        let is_shown = self.is_recording && !node.is_constant();
        if is_shown {
            let part = ExplainedPart { at: node.at.range(), depth: self.depth, outcome: Outcome::Skipped };
            self.parts.push(part);
            self.depth += 1;
        }
        let value = self.compute(node);
        if is_shown {
            self.depth -= 1;
            let shown = value.as_ref().map(Owned::shown);
            self.parts[place].outcome = shown.map_or(Outcome::Absent, Outcome::Value);
        }
        value
    }

    /// A part that is not evaluated.
    fn skip(&mut self, node: &Node) {
        if self.is_recording && !node.is_constant() {
            let part = ExplainedPart { at: node.at.range(), depth: self.depth, outcome: Outcome::Skipped };
            self.parts.push(part);
        }
    }

    fn compute(&mut self, node: &Node) -> Option<Owned> {
        match &node.operation {
            NodeOperation::Choose(parts) => self.choose(node, parts),
            NodeOperation::Default(parts) => {
                self.count(&node.operation, &[], 0);
                let value = self.value(&parts[0]);
                if value.is_some() {
                    self.skip(&parts[1]);
                    return value;
                }
                self.value(&parts[1])
            }
            NodeOperation::All(parts) => self.joined(node, parts, true),
            NodeOperation::Any(parts) => self.joined(node, parts, false),
            NodeOperation::Has(part) => {
                self.count(&node.operation, &[], 0);
                Some(Owned::Boolean(self.value(part).is_some()))
            }
            NodeOperation::Definition(definition) => {
                self.count(&node.operation, &[], 0);
                let was_recording = std::mem::replace(&mut self.is_recording, false);
                let value = self.value(&definition.0.root);
                self.is_recording = was_recording;
                value
            }
            _ => {
                let parts: Vec<Option<Owned>> = node.parts().iter().map(|part| self.value(part)).collect();
                self.apply(node, parts)
            }
        }
    }

    fn choose(&mut self, node: &Node, [condition, then, otherwise]: &[Node; 3]) -> Option<Owned> {
        self.count(&node.operation, &[], 0);
        if Owned::is_true(self.value(condition).as_ref()) {
            let value = self.value(then);
            self.skip(otherwise);
            value
        } else {
            self.skip(then);
            self.value(otherwise)
        }
    }

    fn joined(&mut self, node: &Node, parts: &[Node], is_all: bool) -> Option<Owned> {
        self.count(&node.operation, &[], 0);
        let mut decided = false;
        for part in parts {
            if decided {
                self.skip(part);
            } else {
                decided = Owned::is_true(self.value(part).as_ref()) != is_all;
            }
        }
        Some(Owned::Boolean(decided != is_all))
    }

    fn count(&mut self, operation: &NodeOperation, lengths: &[u64], value_bytes: u64) {
        self.steps += own_steps(operation, lengths, value_bytes);
    }

    /// The value of an operation whose parts have these values.
    fn apply(&mut self, node: &Node, parts: Vec<Option<Owned>>) -> Option<Owned> {
        let operation = &node.operation;
        let lengths: Vec<u64> = parts.iter().map(|part| part.as_ref().map_or(0, Owned::length)).collect();
        if let Some(value) = self.asked(node, &parts, &lengths) {
            return value;
        }
        self.count(operation, &lengths, 0);
        if let NodeOperation::Compare(comparison, _) = operation {
            return Some(Owned::Boolean(compare(*comparison, &parts)));
        }
        if node.kind.of == ValueType::Boolean {
            return Some(Owned::Boolean(condition(operation, parts)));
        }
        let mut parts = parts.into_iter();
        let first = parts.next().flatten();
        let second = parts.next().flatten();
        let number = |value: i64| Some(Owned::Number(node.kind.of, value));
        let both = || Some((first.clone()?.number()?, second.clone()?.number()?));
        match operation {
            NodeOperation::Number(value) => number(*value),
            NodeOperation::Text(text) => Some(Owned::Text(text.to_vec())),
            NodeOperation::Address(address) => Some(Owned::Address(*address)),
            NodeOperation::Negate(_) => number(first?.number()?.saturating_neg()),
            NodeOperation::Add(_) => both().and_then(|(one, other)| number(one.saturating_add(other))),
            NodeOperation::Subtract(_) => both().and_then(|(one, other)| number(one.saturating_sub(other))),
            NodeOperation::Multiply(_) => both().and_then(|(one, other)| number(one.saturating_mul(other))),
            NodeOperation::Divide(_, divisor) => number(quotient(first?.number()?, *divisor)),
            NodeOperation::Remainder(_, divisor) => {
                number(first?.number()?.checked_rem(*divisor).unwrap_or(0))
            }
            NodeOperation::Size(_) => number(first?.text()?.len() as i64),
            NodeOperation::ParseInteger(_) => number(parse_integer(&first?.text()?)?),
            NodeOperation::PartOfTime(_, offset, wanted) => {
                number(calendar::part(first?.number()?, *offset, *wanted))
            }
            NodeOperation::Concatenate(_) => {
                let all = [first, second].into_iter().chain(parts);
                let texts: Option<Vec<Vec<u8>>> = all.map(|part| part?.text()).collect();
                Some(Owned::Text(texts?.concat()))
            }
            NodeOperation::ChangeCase(CaseMapping::Lower, _) => {
                Some(Owned::Text(first?.text()?.to_ascii_lowercase()))
            }
            NodeOperation::ChangeCase(CaseMapping::Upper, _) => {
                Some(Owned::Text(first?.text()?.to_ascii_uppercase()))
            }
            NodeOperation::Hash(_, kind, form) => {
                Some(Owned::Text(digest::digest(*kind, *form, &first?.text()?).as_bytes().to_vec()))
            }
            NodeOperation::ReplaceFirst(_, pattern, by) => {
                let text = first?.text()?;
                Some(Owned::Text(match pattern.first_in(&text) {
                    Some(found) => [&text[..found.start], by, &text[found.end..]].concat(),
                    None => text,
                }))
            }
            NodeOperation::Piece(_, separator, number) => pieces(&first?.text()?, separator, *number),
            NodeOperation::Write(_) => Some(Owned::Text(first?.borrowed().to_string().into_bytes())),
            _ => None,
        }
    }

    /// The value of a name, a field or a look-up; `None` for other operations.
    fn asked(&mut self, node: &Node, parts: &[Option<Owned>], lengths: &[u64]) -> Option<Option<Owned>> {
        let operation = &node.operation;
        let key = parts.first().and_then(Option::as_ref);
        let value = match operation {
            NodeOperation::Fact(fact) => self
                .facts
                .value(*fact)
                .filter(|value| value.value_type() == fact.value_type())
                .map(Owned::from_value),
            NodeOperation::Lookup(map, _) => {
                let found = key.and_then(|key| self.facts.lookup(*map, key.borrowed()));
                let found = found.filter(|value| value.value_type() == node.kind.of).map(Owned::from_value);
                let is_boolean = node.kind.of == ValueType::Boolean;
                found.or_else(|| is_boolean.then_some(Owned::Boolean(false)))
            }
            NodeOperation::InMap(map, _) => {
                let found = key.and_then(|key| self.facts.lookup(*map, key.borrowed()));
                Some(Owned::Boolean(found.is_some()))
            }
            NodeOperation::Field(family, key) => {
                let text = self.facts.field(*family, key);
                self.count(operation, lengths, text.map_or(0, |text| text.len() as u64));
                return Some(text.map(|text| Owned::Text(decoded(*family, text))));
            }
            NodeOperation::AnyField(family, name, _) => {
                let (found, bytes) = self.any_field(*family, name, key);
                self.count(operation, lengths, bytes);
                return Some(Some(Owned::Boolean(found)));
            }
            _ => return None,
        };
        self.count(operation, lengths, 0);
        Some(value)
    }

    /// Whether any text of a name is equal, and how many bytes of texts were looked at.
    fn any_field(&self, family: FactFamily, name: &Key, wanted: Option<&Owned>) -> (bool, u64) {
        let mut bytes = 0;
        let found = self.facts.any_field(family, name, &mut |text| {
            bytes += text.len() as u64;
            wanted == Some(&Owned::Text(decoded(family, text)))
        });
        (found, bytes)
    }
}

fn decoded(family: FactFamily, text: &[u8]) -> Vec<u8> {
    if family != FactFamily::RequestQuery {
        return text.to_vec();
    }
    let mut out = Vec::new();
    decode(text, &mut out);
    out
}

fn compare(comparison: NodeComparison, parts: &[Option<Owned>]) -> bool {
    let [Some(left), Some(right)] = parts else { return comparison == NodeComparison::NotEqual };
    let order = match (left, right) {
        (Owned::Text(left), Owned::Text(right)) => left.cmp(right),
        (Owned::Number(_, left), Owned::Number(_, right)) => left.cmp(right),
        (Owned::Boolean(left), Owned::Boolean(right)) => left.cmp(right),
        (Owned::Address(left), Owned::Address(right)) => left.to_canonical().cmp(&right.to_canonical()),
        _ => return false,
    };
    comparison.holds(order)
}

/// A condition on values, which does not hold if they are absent.
fn condition(operation: &NodeOperation, parts: Vec<Option<Owned>>) -> bool {
    let mut parts = parts.into_iter();
    let first = parts.next().flatten();
    let second = parts.next().flatten();
    match (operation, first, second) {
        (NodeOperation::Boolean(value), ..) => *value,
        (NodeOperation::Not(_), Some(Owned::Boolean(value)), _) => !value,
        (NodeOperation::Among(_, Constants::Texts(texts)), Some(Owned::Text(text)), _) => {
            texts.iter().any(|known| **known == *text)
        }
        (NodeOperation::Among(_, Constants::Numbers(numbers)), Some(Owned::Number(_, value)), _) => {
            numbers.contains(&value)
        }
        (NodeOperation::InNetworks(_, networks), Some(Owned::Address(address)), _) => networks.hold(address),
        (NodeOperation::Matches(_, pattern), Some(Owned::Text(text)), _) => pattern.is_in(&text),
        (NodeOperation::Search(search, ..), Some(Owned::Text(text)), Some(Owned::Text(wanted))) => {
            match search {
                TextSearch::StartsWith => text.starts_with(&wanted),
                TextSearch::EndsWith => text.ends_with(&wanted),
                TextSearch::Contains => {
                    wanted.is_empty() || text.windows(wanted.len()).any(|part| part == wanted)
                }
            }
        }
        _ => false,
    }
}

fn pieces(text: &[u8], separator: &[u8], number: u32) -> Option<Owned> {
    let mut rest = text;
    let find = |text: &[u8]| text.windows(separator.len()).position(|part| part == separator);
    for _ in 0..number {
        rest = &rest[find(rest)? + separator.len()..];
    }
    Some(Owned::Text(rest[..find(rest).unwrap_or(rest.len())].to_vec()))
}
