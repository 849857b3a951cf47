//! The checked tree: names and types are known, constants are compiled. Evaluation walks this tree.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use memchr::memmem;

use crate::calendar::CalendarPart;
use crate::digest::{DigestForm, DigestKind};
use crate::facts::{Fact, FactFamily, Key};
use crate::fault::Span;
use crate::networks::NetworkSet;
use crate::pattern::Pattern;
use crate::value::{ValueKind, ValueType};
use crate::{Expression, PossibleTexts};

/// A part of an expression, with its place and its type.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) at: Span,
    pub(crate) kind: ValueKind,
    pub(crate) operation: NodeOperation,
}

/// Equal if the operations are, wherever they are written: equal nodes have equal values.
impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        self.operation == other.operation
    }
}

/// Operation of a node, with its operands. The checker guarantees that the operands have the types that the operation
/// needs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum NodeOperation {
    // Of any type.
    /// `condition ? then : otherwise`
    Choose(Box<[Node; 3]>),
    /// `value ?? default`
    Default(Box<[Node; 2]>),
    Fact(Fact),
    /// The value of a key in a map.
    Lookup(u16, Box<Node>),
    /// The value of another expression.
    Definition(Definition),

    // True or false.
    Boolean(bool),
    All(Box<[Node]>),
    Any(Box<[Node]>),
    Not(Box<Node>),
    Compare(NodeComparison, Box<[Node; 2]>),
    /// Whether a value is present.
    Has(Box<Node>),
    /// Whether a text or integer is among constants.
    Among(Box<Node>, Constants),
    /// Whether an address is in one of the networks.
    InNetworks(Box<Node>, NetworkSet),
    /// Whether a map has a key.
    InMap(u16, Box<Node>),
    /// Whether any text of this name is equal.
    AnyField(FactFamily, Key, Box<Node>),
    Matches(Box<Node>, Pattern),
    Search(TextSearch, Box<[Node; 2]>, Finder),

    // Integers, durations, times: all are 64 bits with a sign.
    Number(i64),
    Negate(Box<Node>),
    Add(Box<[Node; 2]>),
    Subtract(Box<[Node; 2]>),
    Multiply(Box<[Node; 2]>),
    /// By a constant that is not 0.
    Divide(Box<Node>, i64),
    Remainder(Box<Node>, i64),
    Size(Box<Node>),
    /// `int(TEXT)`; absent if it is not an integer.
    ParseInteger(Box<Node>),
    /// A part of a time, at an offset from UTC in seconds.
    PartOfTime(Box<Node>, i32, CalendarPart),

    // Texts.
    Text(Box<[u8]>),
    Field(FactFamily, Key),
    Concatenate(Box<[Node]>),
    ChangeCase(CaseMapping, Box<Node>),
    /// The digest of a text.
    Hash(Box<Node>, DigestKind, DigestForm),
    /// A text with another one in place of the first match of a pattern.
    ReplaceFirst(Box<Node>, Pattern, Box<[u8]>),
    /// A piece of a text between separators, by its number.
    Piece(Box<Node>, Box<[u8]>, u32),
    /// `string(INTEGER)` or `string(ADDRESS)`.
    Write(Box<Node>),

    /// An IP address.
    Address(IpAddr),
}

/// Comparisons of two values of one type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NodeComparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl NodeComparison {
    #[inline]
    pub(crate) fn holds(self, order: std::cmp::Ordering) -> bool {
        match self {
            Self::Equal => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
        }
    }
}

/// Where a text is looked for in another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextSearch {
    StartsWith,
    EndsWith,
    Contains,
}

/// A search for a constant text, prepared when the expression is compiled.
#[derive(Debug, Clone)]
pub(crate) struct Finder(Option<Box<memmem::Finder<'static>>>);

/// Follows from the nodes that it is made for.
impl PartialEq for Finder {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Finder {
    pub(crate) fn new(search: TextSearch, wanted: &Node) -> Self {
        Self(match (search, &wanted.operation) {
            (TextSearch::Contains, NodeOperation::Text(text)) => {
                Some(Box::new(memmem::Finder::new(text).into_owned()))
            }
            _ => None,
        })
    }

    #[inline]
    pub(crate) fn is_in(&self, text: &[u8], wanted: &[u8]) -> bool {
        match &self.0 {
            Some(finder) => finder.find(text).is_some(),
            None => memmem::find(text, wanted).is_some(),
        }
    }
}

/// Changes of letters of ASCII.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CaseMapping {
    Lower,
    Upper,
}

/// Constants in order, to be searched by halves.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Constants {
    Texts(Box<[Box<[u8]>]>),
    Numbers(Box<[i64]>),
}

/// The expression behind a name. Equal if the expressions are: two readings of one file have equal values.
#[derive(Debug, Clone)]
pub(crate) struct Definition(pub(crate) Arc<Expression>);

impl PartialEq for Definition {
    fn eq(&self, other: &Self) -> bool {
        // The limit on steps counts each use, and so bounds this comparison, too.
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl Node {
    /// A constant or a name; its value is its own explanation.
    pub(crate) fn is_constant(&self) -> bool {
        use NodeOperation::{Address, Boolean, Number, Text};
        matches!(self.operation, Boolean(_) | Number(_) | Text(_) | Address(_))
    }

    /// Whether the value is absent for some facts. A condition around the node may exclude that, as its kind says.
    pub(crate) fn may_be_absent(&self) -> bool {
        match &self.operation {
            NodeOperation::Fact(fact) => fact.is_optional(),
            NodeOperation::Lookup(..) => self.kind.of != ValueType::Boolean,
            NodeOperation::Field(..) | NodeOperation::ParseInteger(_) => true,
            NodeOperation::Piece(_, _, number) => *number > 0,
            NodeOperation::Choose(parts) => parts[1].may_be_absent() || parts[2].may_be_absent(),
            NodeOperation::Default(parts) => parts[1].may_be_absent(),
            NodeOperation::Definition(definition) => definition.0.kind().is_optional,
            _ => false,
        }
    }

    /// Adds the texts that the value can be; `None` if they depend on more than constants and maps.
    pub(crate) fn possible_texts<'n>(&'n self, found: &mut PossibleTexts<'n>) -> Option<()> {
        match &self.operation {
            NodeOperation::Text(text) => found.constants.push(Cow::Borrowed(text)),
            NodeOperation::Number(number) if self.kind.of == ValueType::Integer => {
                found.constants.push(number.to_string().into_bytes().into());
            }
            NodeOperation::Lookup(map, _) if matches!(self.kind.of, ValueType::Text | ValueType::Integer) => {
                found.maps.push(*map);
            }
            NodeOperation::Choose(parts) => {
                parts[1].possible_texts(found)?;
                parts[2].possible_texts(found)?;
            }
            NodeOperation::Default(parts) => {
                parts[0].possible_texts(found)?;
                parts[1].possible_texts(found)?;
            }
            NodeOperation::Definition(definition) => definition.0.root.possible_texts(found)?,
            _ => return None,
        }
        Some(())
    }

    /// Whether the value is a text.
    pub(crate) fn is_text(&self) -> bool {
        self.kind.of == ValueType::Text
    }

    /// The nodes below, in the order in which they are written.
    pub(crate) fn parts(&self) -> &[Self] {
        use std::slice::from_ref;
        match &self.operation {
            NodeOperation::Choose(parts) => &parts[..],
            NodeOperation::Default(parts)
            | NodeOperation::Compare(_, parts)
            | NodeOperation::Search(_, parts, _)
            | NodeOperation::Add(parts)
            | NodeOperation::Subtract(parts)
            | NodeOperation::Multiply(parts) => &parts[..],
            NodeOperation::All(parts) | NodeOperation::Any(parts) | NodeOperation::Concatenate(parts) => {
                parts
            }
            NodeOperation::Lookup(_, part)
            | NodeOperation::Not(part)
            | NodeOperation::Has(part)
            | NodeOperation::Among(part, _)
            | NodeOperation::InNetworks(part, _)
            | NodeOperation::InMap(_, part)
            | NodeOperation::AnyField(_, _, part)
            | NodeOperation::Matches(part, _)
            | NodeOperation::Negate(part)
            | NodeOperation::Divide(part, _)
            | NodeOperation::Remainder(part, _)
            | NodeOperation::Size(part)
            | NodeOperation::ParseInteger(part)
            | NodeOperation::PartOfTime(part, _, _)
            | NodeOperation::ChangeCase(_, part)
            | NodeOperation::ReplaceFirst(part, _, _)
            | NodeOperation::Hash(part, _, _)
            | NodeOperation::Piece(part, _, _)
            | NodeOperation::Write(part) => from_ref(part),
            NodeOperation::Fact(_)
            | NodeOperation::Definition(_)
            | NodeOperation::Boolean(_)
            | NodeOperation::Number(_)
            | NodeOperation::Text(_)
            | NodeOperation::Address(_)
            | NodeOperation::Field(_, _) => &[],
        }
    }
}
