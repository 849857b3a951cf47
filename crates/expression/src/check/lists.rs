//! The right side of `in`: lists of constants, networks, maps, families, and fields with several values.

use ipnet::IpNet;

use super::ExpressionChecker;
use crate::fault::{ExpressionFault, Span};
use crate::networks::{self, NetworkFault, NetworkSet};
use crate::node::{Constants, Node, NodeOperation};
use crate::schema::{self, Meaning, SchemaAddition, SchemaConstant};
use crate::syntax::{SyntaxForm, SyntaxTree};
use crate::value::ValueType;

impl ExpressionChecker<'_> {
    /// `value in list`
    pub(super) fn within(
        &mut self,
        at: Span,
        left: &SyntaxTree,
        right: &SyntaxTree,
    ) -> Result<Node, ExpressionFault> {
        if let Some(path) = right.path() {
            let meaning = self.schema.meaning(&path);
            if let Some(Meaning::Added(SchemaAddition::Map(map))) = meaning {
                let map = *map;
                let key = self.key_of_map(map, left, &path)?;
                return Ok(self.boolean(at, NodeOperation::InMap(map.number, Box::new(key))));
            }
            if let Some(Meaning::Added(SchemaAddition::Constant(SchemaConstant::List(list)))) = meaning {
                let list: Vec<ListElement> = list
                    .iter()
                    .map(|text| ListElement { at: right.at, value: ListLiteral::Text(text.clone()) })
                    .collect();
                return self.among(at, left, &list);
            }
            if let Some(family) = schema::family(&path) {
                let SyntaxForm::Text(key) = &left.form else {
                    let fault = ExpressionFault::new(left.at, format!("\"in {path}\" needs a constant name"));
                    return Err(fault.hinting(format!("write \"name\" in {path}")));
                };
                let field = self.field(right.at, family, key, left.at)?;
                // An explanation shows the field's value beside its name.
                let field = Node { at: left.at, ..field };
                return Ok(self.boolean(at, NodeOperation::Has(Box::new(field))));
            }
        }
        match &right.form {
            SyntaxForm::List(list) => {
                let elements: Result<Vec<_>, _> = list.iter().map(|element| self.element(element)).collect();
                self.among(at, left, &elements?)
            }
            SyntaxForm::Text(text) => self.in_text(at, left, right, text),
            _ => self.in_field(at, left, right),
        }
    }

    /// `address in "10.0.0.0/8"`
    fn in_text(
        &mut self,
        at: Span,
        left: &SyntaxTree,
        right: &SyntaxTree,
        text: &str,
    ) -> Result<Node, ExpressionFault> {
        let value = self.node(left)?;
        if value.kind.of == ValueType::Address {
            return self.among(
                at,
                left,
                &[ListElement { at: right.at, value: ListLiteral::Text(text.to_owned()) }],
            );
        }
        let fault = ExpressionFault::new(right.at, "\"in\" needs a list here");
        let (left, right) = (self.written(left.at), self.written(right.at));
        Err(fault
            .hinting(format!("write {left} in [{right}], or {right}.contains({left}) for a part of a text")))
    }

    /// `"admin" in jwt.claims["roles"]`: whether any of its values is equal.
    fn in_field(&mut self, at: Span, left: &SyntaxTree, right: &SyntaxTree) -> Result<Node, ExpressionFault> {
        let value = self.node(left)?;
        let list = self.node(right)?;
        let NodeOperation::Field(family, key) = list.operation else {
            let fault =
                ExpressionFault::new(list.at, format!("\"in\" needs a list; this is {}", list.kind.of));
            let (left, right) = (self.written(left.at), self.written(right.at));
            return Err(match list.kind.of {
                ValueType::Text => {
                    fault.hinting(format!("for a part of a text, write {right}.contains({left})"))
                }
                _ => fault.hinting(format!("write {left} == {right}")),
            });
        };
        let value = self.for_node(value, ValueType::Text, "\"in\" a group of texts")?;
        Ok(self.boolean(at, NodeOperation::AnyField(family, key, Box::new(value))))
    }

    /// An element of a list: a constant.
    fn element(&self, element: &SyntaxTree) -> Result<ListElement, ExpressionFault> {
        let value = match &element.form {
            SyntaxForm::Text(text) => ListLiteral::Text(text.clone()),
            SyntaxForm::Integer(value) if *value <= i64::MAX as u64 => ListLiteral::Integer(*value as i64),
            SyntaxForm::Negate(part) => match part.form {
                SyntaxForm::Integer(value) if value <= 1 << 63 => {
                    ListLiteral::Integer(0_i64.wrapping_sub_unsigned(value))
                }
                _ => return Err(not_constant(element.at)),
            },
            _ => return Err(not_constant(element.at)),
        };
        Ok(ListElement { at: element.at, value })
    }

    fn among(&mut self, at: Span, left: &SyntaxTree, list: &[ListElement]) -> Result<Node, ExpressionFault> {
        let value = self.node(left)?;
        if list.is_empty() {
            return Err(ExpressionFault::new(at, "nothing is in an empty list")
                .hinting("name what it has, or write false"));
        }
        let of = value.kind.of;
        let value = Box::new(value);
        let operation = match of {
            ValueType::Address => NodeOperation::InNetworks(value, networks_of(list)?),
            ValueType::Text => {
                let texts: Result<Vec<Box<[u8]>>, ExpressionFault> =
                    list.iter().map(ListElement::text).collect();
                let mut texts = texts?;
                texts.sort_unstable();
                texts.dedup();
                NodeOperation::Among(value, Constants::Texts(texts.into()))
            }
            ValueType::Integer => {
                let numbers: Result<Vec<i64>, ExpressionFault> =
                    list.iter().map(ListElement::integer).collect();
                let mut numbers = numbers?;
                numbers.sort_unstable();
                numbers.dedup();
                NodeOperation::Among(value, Constants::Numbers(numbers.into()))
            }
            other => {
                let fault = ExpressionFault::new(left.at, format!("\"in\" does not look for {other}"));
                return Err(fault.hinting("join comparisons with ||"));
            }
        };
        Ok(self.boolean(at, operation))
    }
}

/// An element of a list, with its place.
struct ListElement {
    at: Span,
    value: ListLiteral,
}

enum ListLiteral {
    Text(String),
    Integer(i64),
}

impl ListElement {
    fn text(&self) -> Result<Box<[u8]>, ExpressionFault> {
        match &self.value {
            ListLiteral::Text(text) => Ok(text.as_bytes().into()),
            ListLiteral::Integer(value) => {
                let fault =
                    ExpressionFault::new(self.at, "a list for a text has texts only; this is an integer");
                Err(fault.hinting(format!("write \"{value}\"")))
            }
        }
    }

    fn integer(&self) -> Result<i64, ExpressionFault> {
        match &self.value {
            ListLiteral::Integer(value) => Ok(*value),
            ListLiteral::Text(text) => {
                let fault =
                    ExpressionFault::new(self.at, "a list for an integer has integers only; this is a text");
                Err(match text.parse::<i64>() {
                    Ok(value) => fault.hinting(format!("write {value} without quotes")),
                    Err(_) => fault,
                })
            }
        }
    }

    fn network(&self) -> Result<IpNet, ExpressionFault> {
        let ListLiteral::Text(text) = &self.value else {
            let fault =
                ExpressionFault::new(self.at, "a list for an address has networks; this is an integer");
            return Err(fault.hinting("write a text such as \"10.0.0.0/8\""));
        };
        networks::parse(text).map_err(|fault| match fault {
            NetworkFault::Syntax => {
                ExpressionFault::new(self.at, format!("{text:?} is neither an address nor a network"))
                    .hinting("write a text such as \"10.0.0.0/8\" or \"2001:db8::1\"")
            }
            NetworkFault::HostBits(network) => {
                ExpressionFault::new(self.at, format!("{text:?} is an address within a network"))
                    .hinting(format!("for the network, write \"{network}\""))
            }
        })
    }
}

fn networks_of(list: &[ListElement]) -> Result<NetworkSet, ExpressionFault> {
    let networks: Result<Vec<IpNet>, ExpressionFault> = list.iter().map(ListElement::network).collect();
    Ok(NetworkSet::new(&networks?))
}

fn not_constant(at: Span) -> ExpressionFault {
    ExpressionFault::new(at, "elements of a list are constants")
        .hinting("join comparisons with ||: a == x || a == y")
}
