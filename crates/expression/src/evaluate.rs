//! Evaluates the checked tree: no allocation, no copy of texts of the head, no error.
//!
//! There is one function per type. What the checker excludes results in false, or in an absent value.

use std::io::Write as _;
use std::net::IpAddr;

use memchr::memmem;

use crate::calendar;
use crate::digest;
use crate::facts::{FactFamily, Facts, Key};
use crate::node::{CaseMapping, Constants, Finder, Node, NodeComparison, NodeOperation, TextSearch};
use crate::pattern::Pattern;
use crate::value::{Value, ValueType};

/// An evaluation under way.
pub(crate) struct Evaluation<'a, 's, F: ?Sized> {
    pub(crate) facts: &'a F,
    pub(crate) scratch: &'s mut Vec<u8>,
}

/// A text: borrowed from facts or from the expression, or a range of the scratch space.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Bytes<'a> {
    Borrowed(&'a [u8]),
    Written(usize, usize),
}

impl<'a> Bytes<'a> {
    #[inline]
    pub(crate) fn for_scratch<'x>(self, scratch: &'x [u8]) -> &'x [u8]
    where
        'a: 'x,
    {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Written(start, end) => scratch.get(start..end).unwrap_or_default(),
        }
    }

    /// A part of the text.
    fn slice(self, start: usize, end: usize) -> Self {
        match self {
            Self::Borrowed(bytes) => Self::Borrowed(bytes.get(start..end).unwrap_or_default()),
            Self::Written(first, _) => Self::Written(first + start, first + end),
        }
    }
}

impl<'a, 's, F: Facts + ?Sized> Evaluation<'a, 's, F> {
    pub(crate) fn new(facts: &'a F, scratch: &'s mut Vec<u8>) -> Self {
        scratch.clear();
        Self { facts, scratch }
    }

    /// A condition.
    pub(crate) fn test(&mut self, node: &'a Node) -> bool {
        match &node.operation {
            NodeOperation::Boolean(value) => *value,
            NodeOperation::All(parts) => parts.iter().all(|part| self.test(part)),
            NodeOperation::Any(parts) => parts.iter().any(|part| self.test(part)),
            NodeOperation::Not(part) => !self.test(part),
            NodeOperation::Choose(parts) => {
                let [condition, then, otherwise] = &**parts;
                if self.test(condition) { self.test(then) } else { self.test(otherwise) }
            }
            NodeOperation::Compare(comparison, parts) => self.compare(*comparison, parts),
            NodeOperation::Has(part) => self.has(part),
            NodeOperation::Among(part, Constants::Texts(texts)) => self.with_text(part, |text| {
                text.is_some_and(|text| texts.binary_search_by(|known| (**known).cmp(text)).is_ok())
            }),
            NodeOperation::Among(part, Constants::Numbers(numbers)) => {
                self.number(part).is_some_and(|value| numbers.binary_search(&value).is_ok())
            }
            NodeOperation::InNetworks(part, networks) => {
                self.address(part).is_some_and(|address| networks.hold(address))
            }
            NodeOperation::InMap(map, key) => self.lookup(*map, key).is_some(),
            NodeOperation::Lookup(map, key) => self.lookup(*map, key) == Some(Value::Boolean(true)),
            NodeOperation::AnyField(family, key, value) => self.any_field(*family, key, value),
            NodeOperation::Matches(part, pattern) => {
                self.with_text(part, |text| text.is_some_and(|text| pattern.is_in(text)))
            }
            NodeOperation::Search(search, parts, finder) => self.search(*search, parts, finder),
            NodeOperation::Fact(fact) => self.facts.value(*fact) == Some(Value::Boolean(true)),
            NodeOperation::Definition(definition) => self.test_definition(definition),
            _ => false,
        }
    }

    fn compare(&mut self, comparison: NodeComparison, parts: &'a [Node; 2]) -> bool {
        let [left, right] = parts;
        // An absent value differs from every other.
        let if_absent = comparison == NodeComparison::NotEqual;
        match left.kind.of {
            ValueType::Text => {
                let mark = self.scratch.len();
                let texts = (self.text(left), self.text(right));
                let holds = match texts {
                    (Some(left), Some(right)) => {
                        let (left, right) = (left.for_scratch(self.scratch), right.for_scratch(self.scratch));
                        match comparison {
                            NodeComparison::Equal => left == right,
                            NodeComparison::NotEqual => left != right,
                            _ => comparison.holds(left.cmp(right)),
                        }
                    }
                    _ => if_absent,
                };
                self.scratch.truncate(mark);
                holds
            }
            ValueType::Integer | ValueType::Duration | ValueType::Time => {
                match (self.number(left), self.number(right)) {
                    (Some(left), Some(right)) => comparison.holds(left.cmp(&right)),
                    _ => if_absent,
                }
            }
            ValueType::Address => match (self.address(left), self.address(right)) {
                (Some(left), Some(right)) => comparison.holds(left.to_canonical().cmp(&right.to_canonical())),
                _ => if_absent,
            },
            ValueType::Boolean => {
                let left = self.test(left);
                comparison.holds(left.cmp(&self.test(right)))
            }
        }
    }

    /// Whether a value is present.
    fn has(&mut self, node: &'a Node) -> bool {
        match node.kind.of {
            ValueType::Text => match &node.operation {
                // Its presence needs no decoding.
                NodeOperation::Field(family, key) => self.facts.field(*family, key).is_some(),
                _ => self.with_text(node, |text| text.is_some()),
            },
            ValueType::Integer | ValueType::Duration | ValueType::Time => self.number(node).is_some(),
            ValueType::Address => self.address(node).is_some(),
            ValueType::Boolean => true,
        }
    }

    /// Whether any text of a name is equal to a value. Parameters of a query are decoded one after the other.
    fn any_field(&mut self, family: FactFamily, key: &'a Key, value: &'a Node) -> bool {
        let mark = self.scratch.len();
        let Some(wanted) = self.text(value) else { return false };
        let scratch = &mut *self.scratch;
        let start = scratch.len();
        let found = self.facts.any_field(family, key, &mut |text| {
            if family != FactFamily::RequestQuery || !is_coded(text) {
                return text == wanted.for_scratch(scratch);
            }
            scratch.truncate(start);
            decode(text, scratch);
            scratch.get(start..) == Some(wanted.for_scratch(scratch))
        });
        self.scratch.truncate(mark);
        found
    }

    fn search(&mut self, search: TextSearch, parts: &'a [Node; 2], finder: &'a Finder) -> bool {
        let mark = self.scratch.len();
        let texts = (self.text(&parts[0]), self.text(&parts[1]));
        let found = match texts {
            (Some(text), Some(wanted)) => {
                let (text, wanted) = (text.for_scratch(self.scratch), wanted.for_scratch(self.scratch));
                match search {
                    TextSearch::StartsWith => text.starts_with(wanted),
                    TextSearch::EndsWith => text.ends_with(wanted),
                    TextSearch::Contains => finder.is_in(text, wanted),
                }
            }
            _ => false,
        };
        self.scratch.truncate(mark);
        found
    }

    /// An integer, a duration or a time.
    pub(crate) fn number(&mut self, node: &'a Node) -> Option<i64> {
        match &node.operation {
            NodeOperation::Number(value) => Some(*value),
            NodeOperation::Fact(fact) => number_of(self.facts.value(*fact)?, node.kind.of),
            NodeOperation::Choose(parts) => {
                let [condition, then, otherwise] = &**parts;
                if self.test(condition) { self.number(then) } else { self.number(otherwise) }
            }
            NodeOperation::Default(parts) => self.number(&parts[0]).or_else(|| self.number(&parts[1])),
            NodeOperation::Lookup(map, key) => number_of(self.lookup(*map, key)?, node.kind.of),
            NodeOperation::Negate(part) => Some(self.number(part)?.saturating_neg()),
            NodeOperation::Add(parts) => {
                Some(self.number(&parts[0])?.saturating_add(self.number(&parts[1])?))
            }
            NodeOperation::Subtract(parts) => {
                Some(self.number(&parts[0])?.saturating_sub(self.number(&parts[1])?))
            }
            NodeOperation::Multiply(parts) => {
                Some(self.number(&parts[0])?.saturating_mul(self.number(&parts[1])?))
            }
            NodeOperation::Divide(part, divisor) => Some(quotient(self.number(part)?, *divisor)),
            NodeOperation::Remainder(part, divisor) => {
                Some(self.number(part)?.checked_rem(*divisor).unwrap_or(0))
            }
            NodeOperation::Size(part) => self.with_text(part, |text| Some(text?.len() as i64)),
            NodeOperation::ParseInteger(part) => self.with_text(part, |text| parse_integer(text?)),
            NodeOperation::PartOfTime(part, offset, wanted) => {
                Some(calendar::part(self.number(part)?, *offset, *wanted))
            }
            NodeOperation::Definition(definition) => self.number_of_definition(definition),
            _ => None,
        }
    }

    /// Evaluates a node of type address; `None` if the value is absent.
    pub(crate) fn address(&mut self, node: &'a Node) -> Option<IpAddr> {
        match &node.operation {
            NodeOperation::Address(address) => Some(*address),
            NodeOperation::Fact(fact) => address_of(self.facts.value(*fact)?),
            NodeOperation::Choose(parts) => {
                let [condition, then, otherwise] = &**parts;
                if self.test(condition) { self.address(then) } else { self.address(otherwise) }
            }
            NodeOperation::Default(parts) => self.address(&parts[0]).or_else(|| self.address(&parts[1])),
            NodeOperation::Lookup(map, key) => address_of(self.lookup(*map, key)?),
            NodeOperation::Definition(definition) => self.address_of_definition(definition),
            _ => None,
        }
    }

    /// A text. What is built for it stays in the scratch space.
    pub(crate) fn text(&mut self, node: &'a Node) -> Option<Bytes<'a>> {
        match &node.operation {
            NodeOperation::Text(text) => Some(Bytes::Borrowed(text)),
            NodeOperation::Fact(fact) => text_of(self.facts.value(*fact)?),
            NodeOperation::Field(family, key) => {
                let text = self.facts.field(*family, key)?;
                if *family != FactFamily::RequestQuery || !is_coded(text) {
                    return Some(Bytes::Borrowed(text));
                }
                let start = self.scratch.len();
                decode(text, self.scratch);
                Some(Bytes::Written(start, self.scratch.len()))
            }
            NodeOperation::Choose(parts) => {
                let [condition, then, otherwise] = &**parts;
                if self.test(condition) { self.text(then) } else { self.text(otherwise) }
            }
            NodeOperation::Default(parts) => self.text(&parts[0]).or_else(|| self.text(&parts[1])),
            NodeOperation::Lookup(map, key) => text_of(self.lookup(*map, key)?),
            NodeOperation::Concatenate(_) | NodeOperation::Write(_) => {
                let start = self.scratch.len();
                self.append(node)?;
                Some(Bytes::Written(start, self.scratch.len()))
            }
            NodeOperation::ChangeCase(case, part) => {
                let text = self.text(part)?;
                Some(self.in_case(text, *case))
            }
            NodeOperation::Hash(part, kind, form) => {
                let text = self.text(part)?;
                let made = digest::digest(*kind, *form, text.for_scratch(self.scratch));
                let start = self.scratch.len();
                self.scratch.extend_from_slice(made.as_bytes());
                Some(Bytes::Written(start, self.scratch.len()))
            }
            NodeOperation::ReplaceFirst(part, pattern, by) => {
                let text = self.text(part)?;
                Some(self.replaced(text, pattern, by))
            }
            NodeOperation::Piece(part, separator, number) => {
                let text = self.text(part)?;
                let (start, end) = piece(text.for_scratch(self.scratch), separator, *number)?;
                Some(text.slice(start, end))
            }
            NodeOperation::Definition(definition) => self.text_of_definition(definition),
            _ => None,
        }
    }

    /// Appends a text to the scratch space.
    fn append(&mut self, node: &'a Node) -> Option<()> {
        match &node.operation {
            NodeOperation::Concatenate(parts) => {
                for part in parts {
                    self.append(part)?;
                }
            }
            NodeOperation::Write(part) => {
                // Writing to memory does not fail.
                let _ = match part.kind.of {
                    ValueType::Address => {
                        let address = self.address(part)?;
                        write!(self.scratch, "{address}")
                    }
                    _ => {
                        let number = self.number(part)?;
                        write!(self.scratch, "{number}")
                    }
                };
            }
            _ => {
                let start = self.scratch.len();
                match self.text(node)? {
                    Bytes::Borrowed(bytes) => {
                        // An absent value may have left what was built for it.
                        self.scratch.truncate(start);
                        self.scratch.extend_from_slice(bytes);
                    }
                    // What was built just now stands where it belongs.
                    Bytes::Written(first, end) if first == start => self.scratch.truncate(end),
                    Bytes::Written(first, end) => {
                        self.scratch.copy_within(first..end, start);
                        self.scratch.truncate(start + end - first);
                    }
                }
            }
        }
        Some(())
    }

    /// A text with `by` in place of the first match. It is not copied if only one of its ends is cut off.
    fn replaced(&mut self, text: Bytes<'a>, pattern: &Pattern, by: &[u8]) -> Bytes<'a> {
        let whole = text.for_scratch(self.scratch);
        let (Some(found), length) = (pattern.first_in(whole), whole.len()) else { return text };
        match (found.start, found.end) {
            (0, end) if by.is_empty() => return text.slice(end, length),
            (start, end) if by.is_empty() && end == length => return text.slice(0, start),
            _ => {}
        }
        let start = self.scratch.len();
        for (part, between) in [(0..found.start, by), (found.end..length, &b""[..])] {
            match text {
                Bytes::Borrowed(bytes) => {
                    self.scratch.extend_from_slice(bytes.get(part).unwrap_or_default());
                }
                Bytes::Written(first, _) => {
                    self.scratch.extend_from_within(first + part.start..first + part.end);
                }
            }
            self.scratch.extend_from_slice(between);
        }
        Bytes::Written(start, self.scratch.len())
    }

    /// A text with its letters changed: in place if it was built here, unchanged if it has none to change.
    fn in_case(&mut self, text: Bytes<'a>, case: CaseMapping) -> Bytes<'a> {
        let change = |bytes: &mut [u8]| match case {
            CaseMapping::Lower => bytes.make_ascii_lowercase(),
            CaseMapping::Upper => bytes.make_ascii_uppercase(),
        };
        match text {
            Bytes::Borrowed(bytes) => {
                let differs = match case {
                    CaseMapping::Lower => bytes.iter().any(u8::is_ascii_uppercase),
                    CaseMapping::Upper => bytes.iter().any(u8::is_ascii_lowercase),
                };
                if !differs {
                    return text;
                }
                let start = self.scratch.len();
                self.scratch.extend_from_slice(bytes);
                change(&mut self.scratch[start..]);
                Bytes::Written(start, self.scratch.len())
            }
            Bytes::Written(start, end) => {
                change(self.scratch.get_mut(start..end).unwrap_or_default());
                text
            }
        }
    }

    fn lookup(&mut self, map: u16, key: &'a Node) -> Option<Value<'a>> {
        let facts = self.facts;
        match key.kind.of {
            ValueType::Text => self.with_text(key, |key| facts.lookup(map, Value::Text(key?))),
            ValueType::Address => facts.lookup(map, Value::Address(self.address(key)?)),
            ValueType::Integer => facts.lookup(map, Value::Integer(self.number(key)?)),
            ValueType::Duration => facts.lookup(map, Value::Duration(self.number(key)?)),
            ValueType::Time => facts.lookup(map, Value::Time(self.number(key)?)),
            ValueType::Boolean => facts.lookup(map, Value::Boolean(self.test(key))),
        }
    }

    /// Uses a text, then releases what was built for it.
    #[inline]
    fn with_text<R>(&mut self, node: &'a Node, then: impl FnOnce(Option<&[u8]>) -> R) -> R {
        let mark = self.scratch.len();
        let text = self.text(node);
        let result = then(text.map(|text| text.for_scratch(self.scratch)));
        self.scratch.truncate(mark);
        result
    }
}

/// The number in a value of this type.
fn number_of(value: Value<'_>, of: ValueType) -> Option<i64> {
    match (value, of) {
        (Value::Integer(value), ValueType::Integer)
        | (Value::Duration(value), ValueType::Duration)
        | (Value::Time(value), ValueType::Time) => Some(value),
        _ => None,
    }
}

fn address_of(value: Value<'_>) -> Option<IpAddr> {
    match value {
        Value::Address(address) => Some(address),
        _ => None,
    }
}

fn text_of(value: Value<'_>) -> Option<Bytes<'_>> {
    match value {
        Value::Text(text) => Some(Bytes::Borrowed(text)),
        _ => None,
    }
}

/// A quotient that is rounded towards 0. The one that does not fit is the largest integer.
pub(crate) fn quotient(value: i64, divisor: i64) -> i64 {
    value.checked_div(divisor).unwrap_or(i64::MAX)
}

/// A decimal integer with an optional `-`.
pub(crate) fn parse_integer(text: &[u8]) -> Option<i64> {
    const DIGITS_MAX: usize = 20;
    if text.len() > DIGITS_MAX || text.first() == Some(&b'+') {
        return None;
    }
    str::from_utf8(text).ok()?.parse().ok()
}

/// The range of a piece between separators.
pub(crate) fn piece(text: &[u8], separator: &[u8], number: u32) -> Option<(usize, usize)> {
    let mut start = 0;
    for _ in 0..number {
        start += memmem::find(&text[start..], separator)? + separator.len();
    }
    let length = memmem::find(&text[start..], separator).unwrap_or(text.len() - start);
    Some((start, start + length))
}

fn is_coded(text: &[u8]) -> bool {
    memchr::memchr2(b'%', b'+', text).is_some()
}

/// Decodes a parameter of a query: `+` is a space, `%41` is a byte, and what is no escape stays.
pub(crate) fn decode(text: &[u8], out: &mut Vec<u8>) {
    let digit = |at: usize| text.get(at).and_then(|&byte| char::from(byte).to_digit(16));
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        let escaped = if byte == b'%' { digit(at + 1).zip(digit(at + 2)) } else { None };
        match (byte, escaped) {
            (_, Some((high, low))) => {
                out.push((high << 4 | low) as u8);
                at += 3;
            }
            (b'+', None) => {
                out.push(b' ');
                at += 1;
            }
            (byte, None) => {
                out.push(byte);
                at += 1;
            }
        }
    }
}
