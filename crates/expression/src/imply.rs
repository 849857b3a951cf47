//! Implied conditions: whether one condition is true whenever another is, as far as their forms prove it.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::networks::NetworkSet;
use crate::node::{Constants, Node, NodeComparison, NodeOperation, TextSearch};

/// Pairs of parts that are compared at most: nested `&&` and `||` could take exponential time.
const PAIRS_MAX: usize = 20_000;

/// Whether `then` is certainly true whenever `given` is. False if that is unknown.
pub(crate) fn implies(given: &Node, then: &Node) -> bool {
    ImplicationProof { pairs: 0 }.implies(given, then)
}

struct ImplicationProof {
    pairs: usize,
}

impl ImplicationProof {
    fn implies(&mut self, given: &Node, then: &Node) -> bool {
        self.pairs += 1;
        if self.pairs > PAIRS_MAX {
            return false;
        }
        if given == then {
            return true;
        }
        match (&given.operation, &then.operation) {
            (NodeOperation::Boolean(false), _) | (_, NodeOperation::Boolean(true)) => return true,
            (_, NodeOperation::All(parts)) => return parts.iter().all(|part| self.implies(given, part)),
            (NodeOperation::Any(parts), _) => return parts.iter().all(|part| self.implies(part, then)),
            // The contraposition.
            (NodeOperation::Not(given), NodeOperation::Not(then)) => return self.implies(then, given),
            (NodeOperation::Definition(definition), _) => return self.implies(&definition.0.root, then),
            (_, NodeOperation::Definition(definition)) => return self.implies(given, &definition.0.root),
            _ => {}
        }
        let by_one_of_then = match &then.operation {
            NodeOperation::Any(parts) => parts.iter().any(|part| self.implies(given, part)),
            _ => false,
        };
        let by_one_of_given = match &given.operation {
            NodeOperation::All(parts) => parts.iter().any(|part| self.implies(part, then)),
            _ => false,
        };
        by_one_of_then || by_one_of_given || self.by_each_value(given, then) || follows(given, then)
    }

    /// Whether `given` leaves a value a few constants, each of which makes `then` true.
    fn by_each_value(&mut self, given: &Node, then: &Node) -> bool {
        let Some((value, constants)) = constants_of(given) else { return false };
        constants.into_iter().all(|constant| self.decided(value, constant, then) == Some(true))
    }

    /// The truth of a condition where `value` is this constant; `None` if it depends on more.
    fn decided(&mut self, value: &Node, constant: ImpliedConstant<'_>, condition: &Node) -> Option<bool> {
        self.pairs += 1;
        if self.pairs > PAIRS_MAX {
            return None;
        }
        match &condition.operation {
            NodeOperation::Boolean(value) => Some(*value),
            NodeOperation::Not(part) => self.decided(value, constant, part).map(|is_true| !is_true),
            NodeOperation::All(parts) => self.joined(value, constant, parts, true),
            NodeOperation::Any(parts) => self.joined(value, constant, parts, false),
            NodeOperation::Definition(definition) => self.decided(value, constant, &definition.0.root),
            _ => test(value, constant, condition),
        }
    }

    fn joined(
        &mut self,
        value: &Node,
        constant: ImpliedConstant<'_>,
        parts: &[Node],
        is_all: bool,
    ) -> Option<bool> {
        let mut result = Some(is_all);
        for part in parts {
            match self.decided(value, constant, part) {
                Some(is_true) if is_true == is_all => {}
                Some(_) => return Some(!is_all),
                None => result = None,
            }
        }
        result
    }
}

/// A constant that a value is compared with.
#[derive(Clone, Copy)]
enum ImpliedConstant<'n> {
    Text(&'n [u8]),
    Number(i64),
}

/// Whether a condition on a value follows from one on the same value.
fn follows(given: &Node, then: &Node) -> bool {
    match (&given.operation, &then.operation) {
        (NodeOperation::InNetworks(value, networks), NodeOperation::InNetworks(other, wider)) => {
            value == other && wider.contain(networks)
        }
        (
            NodeOperation::Compare(NodeComparison::Equal, parts),
            NodeOperation::InNetworks(other, networks),
        ) => {
            matches!(parts[1].operation, NodeOperation::Address(address) if networks.hold(address))
                && parts[0] == **other
        }
        (
            NodeOperation::InNetworks(value, networks),
            NodeOperation::Compare(NodeComparison::Equal, parts),
        ) => {
            matches!(parts[1].operation, NodeOperation::Address(address) if only(address).contain(networks))
                && **value == parts[0]
        }
        (
            NodeOperation::Search(TextSearch::StartsWith, parts, _),
            NodeOperation::Search(search, others, _),
        ) => match (&parts[1].operation, &others[1].operation) {
            (NodeOperation::Text(long), NodeOperation::Text(short)) if parts[0] == others[0] => {
                match search {
                    TextSearch::StartsWith => long.starts_with(short),
                    TextSearch::Contains => contains(long, short),
                    TextSearch::EndsWith => false,
                }
            }
            _ => false,
        },
        (
            NodeOperation::Search(TextSearch::EndsWith | TextSearch::Contains, parts, _),
            NodeOperation::Search(TextSearch::Contains, others, _),
        ) => match (&parts[1].operation, &others[1].operation) {
            (NodeOperation::Text(long), NodeOperation::Text(short)) => {
                parts[0] == others[0] && contains(long, short)
            }
            _ => false,
        },
        (_, NodeOperation::Has(value)) => needs(given, value),
        (NodeOperation::Compare(given, parts), NodeOperation::Compare(then, others)) => {
            match (&parts[1].operation, &others[1].operation) {
                (NodeOperation::Number(one), NodeOperation::Number(other)) if parts[0] == others[0] => {
                    range_within(*given, *one, *then, *other)
                }
                _ => false,
            }
        }
        _ => false,
    }
}

fn only(address: IpAddr) -> NetworkSet {
    NetworkSet::new(&[IpNet::from(address)])
}

fn contains(text: &[u8], wanted: &[u8]) -> bool {
    memchr::memmem::find(text, wanted).is_some()
}

/// The constants that a value is one of, if the condition is true.
fn constants_of(condition: &Node) -> Option<(&Node, Vec<ImpliedConstant<'_>>)> {
    match &condition.operation {
        NodeOperation::Compare(NodeComparison::Equal, parts) => match &parts[1].operation {
            NodeOperation::Text(text) => Some((&parts[0], vec![ImpliedConstant::Text(text)])),
            NodeOperation::Number(number) => Some((&parts[0], vec![ImpliedConstant::Number(*number)])),
            _ => None,
        },
        NodeOperation::Among(value, Constants::Texts(texts)) => {
            Some((value, texts.iter().map(|text| ImpliedConstant::Text(text)).collect()))
        }
        NodeOperation::Among(value, Constants::Numbers(numbers)) => {
            Some((value, numbers.iter().copied().map(ImpliedConstant::Number).collect()))
        }
        _ => None,
    }
}

/// The truth of a single condition where `value` is this constant; `None` if it is about something else.
fn test(value: &Node, constant: ImpliedConstant<'_>, condition: &Node) -> Option<bool> {
    let (about, is_true) = match (&condition.operation, constant) {
        (NodeOperation::Compare(comparison, parts), _) => {
            let order = match (&parts[1].operation, constant) {
                (NodeOperation::Text(other), ImpliedConstant::Text(text)) => text.cmp(other),
                (NodeOperation::Number(other), ImpliedConstant::Number(number)) => number.cmp(other),
                _ => return None,
            };
            (&parts[0], comparison.holds(order))
        }
        (NodeOperation::Among(about, Constants::Texts(texts)), ImpliedConstant::Text(text)) => {
            (&**about, texts.iter().any(|known| **known == *text))
        }
        (NodeOperation::Among(about, Constants::Numbers(numbers)), ImpliedConstant::Number(number)) => {
            (&**about, numbers.contains(&number))
        }
        (NodeOperation::Matches(about, pattern), ImpliedConstant::Text(text)) => {
            (&**about, pattern.is_in(text))
        }
        (NodeOperation::Search(search, parts, _), ImpliedConstant::Text(text)) => {
            let NodeOperation::Text(wanted) = &parts[1].operation else { return None };
            let is_true = match search {
                TextSearch::StartsWith => text.starts_with(wanted),
                TextSearch::EndsWith => text.ends_with(wanted),
                TextSearch::Contains => contains(text, wanted),
            };
            (&parts[0], is_true)
        }
        (NodeOperation::Has(about), _) => (&**about, true),
        _ => return None,
    };
    (*about == *value).then_some(is_true)
}

/// Whether a condition is false where `value` is absent.
fn needs(condition: &Node, value: &Node) -> bool {
    match &condition.operation {
        NodeOperation::Has(other) => **other == *value,
        NodeOperation::Compare(comparison, parts) => {
            *comparison != NodeComparison::NotEqual && parts.contains(value)
        }
        NodeOperation::Search(_, parts, _) => parts.contains(value),
        NodeOperation::Among(other, _)
        | NodeOperation::InNetworks(other, _)
        | NodeOperation::InMap(_, other)
        | NodeOperation::Matches(other, _) => **other == *value,
        NodeOperation::AnyField(family, key, _) => {
            matches!(&value.operation, NodeOperation::Field(other, name) if other == family && name == key)
        }
        _ => false,
    }
}

/// Whether `x GIVEN one` implies `x THEN other`.
fn range_within(given: NodeComparison, one: i64, then: NodeComparison, other: i64) -> bool {
    use NodeComparison::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};
    // The smallest and the largest number for which the condition is true.
    let range = match given {
        Equal => Some((one, one)),
        Less => one.checked_sub(1).map(|last| (i64::MIN, last)),
        LessOrEqual => Some((i64::MIN, one)),
        Greater => one.checked_add(1).map(|first| (first, i64::MAX)),
        GreaterOrEqual => Some((one, i64::MAX)),
        NotEqual => return then == NotEqual && one == other,
    };
    // Without such a number, the condition is never true.
    let Some((first, last)) = range else { return true };
    match then {
        Equal => first == other && last == other,
        NotEqual => other < first || last < other,
        Less => last < other,
        LessOrEqual => last <= other,
        Greater => first > other,
        GreaterOrEqual => first >= other,
    }
}
