//! Operators: comparisons, arithmetic, defaults.

use super::ExpressionChecker;
use crate::fault::{ExpressionFault, Span};
use crate::node::{Node, NodeComparison, NodeOperation};
use crate::schema;
use crate::syntax::{Operator, SyntaxForm, SyntaxTree};
use crate::value::{ValueKind, ValueType};

impl ExpressionChecker<'_> {
    pub(super) fn binary(
        &mut self,
        at: Span,
        operator: Operator,
        sign: Span,
        parts: &[SyntaxTree; 2],
    ) -> Result<Node, ExpressionFault> {
        let [left, right] = parts;
        match operator {
            Operator::In => self.within(at, left, right),
            Operator::Default => self.default(at, left, right),
            Operator::Equal => self.compare(at, NodeComparison::Equal, operator, left, right),
            Operator::NotEqual => self.compare(at, NodeComparison::NotEqual, operator, left, right),
            Operator::Less => self.compare(at, NodeComparison::Less, operator, left, right),
            Operator::LessOrEqual => self.compare(at, NodeComparison::LessOrEqual, operator, left, right),
            Operator::Greater => self.compare(at, NodeComparison::Greater, operator, left, right),
            Operator::GreaterOrEqual => {
                self.compare(at, NodeComparison::GreaterOrEqual, operator, left, right)
            }
            Operator::Add => self.add(at, sign, left, right),
            Operator::Subtract => self.subtract(at, sign, left, right),
            Operator::Multiply => {
                let [left, right] = [left, right].map(|part| self.node(part));
                let left = self.for_node(left?, ValueType::Integer, "*")?;
                let right = self.for_node(right?, ValueType::Integer, "*")?;
                Ok(self.integer(at, NodeOperation::Multiply(Box::new([left, right]))))
            }
            Operator::Divide | Operator::Remainder => self.divide(at, operator, left, right),
        }
    }

    pub(super) fn integer(&self, at: Span, operation: NodeOperation) -> Node {
        self.make(at, ValueKind::always(ValueType::Integer), operation)
    }

    pub(super) fn negate(&mut self, at: Span, part: &SyntaxTree) -> Result<Node, ExpressionFault> {
        // The smallest integer is written as the negative of one that does not exist.
        if part.form == SyntaxForm::Integer(1 << 63) {
            return Ok(self.integer(at, NodeOperation::Number(i64::MIN)));
        }
        let part = self.node(part)?;
        let of = part.kind.of;
        let part =
            self.for_node(part, if of == ValueType::Duration { of } else { ValueType::Integer }, "-")?;
        let operation = match part.operation {
            NodeOperation::Number(value) => NodeOperation::Number(value.saturating_neg()),
            _ => NodeOperation::Negate(Box::new(part)),
        };
        Ok(self.make(at, ValueKind::always(of), operation))
    }

    fn compare(
        &mut self,
        at: Span,
        comparison: NodeComparison,
        operator: Operator,
        left: &SyntaxTree,
        right: &SyntaxTree,
    ) -> Result<Node, ExpressionFault> {
        let (left, right) = (self.node(left)?, self.node(right)?);
        let (left, right) = (self.beside(left, &right)?, right);
        let right = self.beside(right, &left)?;
        if left.kind.of != right.kind.of {
            return Err(self.different_types(operator, &left, &right));
        }
        let is_equality = matches!(comparison, NodeComparison::Equal | NodeComparison::NotEqual);
        if !is_equality && matches!(left.kind.of, ValueType::Boolean | ValueType::Address) {
            let fault =
                ExpressionFault::new(at, format!("{} has no order for {}", operator.sign(), left.kind.of));
            return Err(match left.kind.of {
                ValueType::Address => fault.hinting("write ADDRESS in \"10.0.0.0/8\""),
                _ => fault,
            });
        }
        // An absent value is equal to none: `request.headers["x"] == "1"` needs no default.
        let (left, right) = match (is_equality, left.kind.is_optional && right.kind.is_optional) {
            (true, false) => (left, right),
            (true, true) => (left, self.always(right)?),
            (false, _) => (self.always(left)?, self.always(right)?),
        };
        // Constants stand on the right, so that equal conditions look alike.
        let (comparison, parts) = match left.is_constant() && !right.is_constant() {
            true => (flipped(comparison), [right, left]),
            false => (comparison, [left, right]),
        };
        Ok(self.boolean(at, NodeOperation::Compare(comparison, Box::new(parts))))
    }

    /// A constant text beside an address is an address.
    fn beside(&self, node: Node, other: &Node) -> Result<Node, ExpressionFault> {
        let NodeOperation::Text(text) = &node.operation else { return Ok(node) };
        if other.kind.of != ValueType::Address {
            return Ok(node);
        }
        let written = String::from_utf8_lossy(text);
        match written.parse() {
            Ok(address) => Ok(Node {
                kind: ValueKind::always(ValueType::Address),
                operation: NodeOperation::Address(address),
                ..node
            }),
            Err(_) => {
                let fault = ExpressionFault::new(node.at, format!("{written:?} is not an address"));
                Err(if written.contains('/') {
                    let other = self.written(other.at);
                    fault.hinting(format!("for a network, write {other} in {written:?}"))
                } else {
                    fault.hinting("write an address such as \"192.0.2.1\" or \"2001:db8::1\"")
                })
            }
        }
    }

    fn different_types(&self, operator: Operator, left: &Node, right: &Node) -> ExpressionFault {
        let (one, other) = (left.kind.of, right.kind.of);
        let what =
            format!("{} compares values of the same type; these are {one} and {other}", operator.sign());
        let fault = ExpressionFault::new(left.at.to(right.at), what);
        let (constant, value) = if right.is_constant() { (right, left) } else { (left, right) };
        let (written, constant_written) = (self.written(value.at), self.written(constant.at));
        let quoted = match &constant.operation {
            NodeOperation::Text(text) => Some(String::from_utf8_lossy(text)),
            _ => None,
        };
        match (value.kind.of, constant.kind.of, quoted) {
            (ValueType::Integer, ValueType::Text, Some(text)) if text.parse::<i64>().is_ok() => {
                fault.hinting(format!("write {text} without quotes"))
            }
            (ValueType::Boolean, ValueType::Text, Some(text)) if *text == *"true" || *text == *"false" => {
                fault.hinting(format!("write {text} without quotes"))
            }
            (ValueType::Text, ValueType::Integer, _) if constant.is_constant() => {
                fault.hinting(format!("write \"{constant_written}\" in quotes, or int({written}) ?? 0"))
            }
            (ValueType::Duration, ValueType::Text, Some(text)) if crate::duration::parse(&text).is_some() => {
                fault.hinting(format!("write duration({text:?})"))
            }
            (ValueType::Duration, ValueType::Text, Some(text)) if clock(&text).is_some() => {
                let (hours, minutes) = clock(&text).unwrap_or_default();
                fault.hinting(format!("write duration(\"{hours}h{minutes}m\")"))
            }
            (ValueType::Duration, _, _) => fault.hinting("write a duration such as duration(\"500ms\")"),
            (ValueType::Time, ValueType::Text, Some(text)) if crate::calendar::parse(&text).is_some() => {
                fault.hinting(format!("write timestamp({text:?})"))
            }
            (ValueType::Time, ValueType::Duration, _) => {
                fault.hinting(format!("for the time of day, write {written}.getTimeOfDay()"))
            }
            (ValueType::Time, _, _) => {
                fault.hinting("write a time such as timestamp(\"2026-01-01T00:00:00Z\")")
            }
            (ValueType::Address, ValueType::Text, None) => fault.hinting(format!("write string({written})")),
            _ => fault,
        }
    }

    /// `value ?? default`
    pub(super) fn default(
        &mut self,
        at: Span,
        value: &SyntaxTree,
        default: &SyntaxTree,
    ) -> Result<Node, ExpressionFault> {
        let value = self.node(value)?;
        let default = self.node(default)?;
        if !value.may_be_absent() {
            let fault = ExpressionFault::new(value.at, format!("{} is never absent", self.written(value.at)));
            return Err(fault.hinting("omit the default"));
        }
        if value.kind.of != default.kind.of {
            let what = format!(
                "the default of {} is {} too; this is {}",
                value.kind.of, value.kind.of, default.kind.of
            );
            return Err(ExpressionFault::new(default.at, what));
        }
        let is_optional = value.kind.is_optional && default.kind.is_optional;
        let kind = ValueKind { of: value.kind.of, is_optional };
        Ok(self.make(at, kind, NodeOperation::Default(Box::new([value, default]))))
    }

    fn add(
        &mut self,
        at: Span,
        sign: Span,
        left: &SyntaxTree,
        right: &SyntaxTree,
    ) -> Result<Node, ExpressionFault> {
        let (left, right) = (self.node(left)?, self.node(right)?);
        let of = match (left.kind.of, right.kind.of) {
            (ValueType::Text, ValueType::Text) => {
                return self.concatenate(at, left, right);
            }
            (ValueType::Integer, ValueType::Integer) => ValueType::Integer,
            (ValueType::Duration, ValueType::Duration) => ValueType::Duration,
            (ValueType::Time, ValueType::Duration) | (ValueType::Duration, ValueType::Time) => {
                ValueType::Time
            }
            (one, other) => {
                let fault = ExpressionFault::new(sign, format!("+ does not add {one} and {other}"));
                let text = if one == ValueType::Text { &right } else { &left };
                let is_writable = matches!(text.kind.of, ValueType::Integer | ValueType::Address);
                let is_text = one == ValueType::Text || other == ValueType::Text;
                return Err(if is_text && is_writable {
                    fault.hinting(format!("write string({})", self.written(text.at)))
                } else {
                    fault
                });
            }
        };
        let parts = Box::new([self.always(left)?, self.always(right)?]);
        Ok(self.make(at, ValueKind::always(of), NodeOperation::Add(parts)))
    }

    /// Joins texts; a chain becomes one node.
    fn concatenate(&self, at: Span, left: Node, right: Node) -> Result<Node, ExpressionFault> {
        let (left, right) = (self.always(left)?, self.always(right)?);
        let mut parts = match left.operation {
            NodeOperation::Concatenate(parts) => parts.into_vec(),
            _ => vec![left],
        };
        parts.push(right);
        Ok(self.make(at, ValueKind::always(ValueType::Text), NodeOperation::Concatenate(parts.into())))
    }

    fn subtract(
        &mut self,
        at: Span,
        sign: Span,
        left: &SyntaxTree,
        right: &SyntaxTree,
    ) -> Result<Node, ExpressionFault> {
        if let Some(fault) = self.name_with_hyphen(at, left, right) {
            return Err(fault);
        }
        let (left, right) = (self.node(left)?, self.node(right)?);
        let of = match (left.kind.of, right.kind.of) {
            (ValueType::Integer, ValueType::Integer) => ValueType::Integer,
            (ValueType::Duration, ValueType::Duration) | (ValueType::Time, ValueType::Time) => {
                ValueType::Duration
            }
            (ValueType::Time, ValueType::Duration) => ValueType::Time,
            (one, other) => {
                return Err(ExpressionFault::new(sign, format!("- does not subtract {other} from {one}")));
            }
        };
        let parts = Box::new([self.always(left)?, self.always(right)?]);
        Ok(self.make(at, ValueKind::always(of), NodeOperation::Subtract(parts)))
    }

    /// `request.headers.user-agent` reads as a difference.
    fn name_with_hyphen(&self, at: Span, left: &SyntaxTree, right: &SyntaxTree) -> Option<ExpressionFault> {
        let path = left.path()?;
        let (base, _) = path.rsplit_once('.')?;
        let family = schema::family(base)?;
        matches!(right.form, SyntaxForm::Name(_)).then_some(())?;
        let key = self.written(at).strip_prefix(base)?.strip_prefix('.')?;
        let fault = ExpressionFault::new(at, "a name with a hyphen needs quotes");
        Some(fault.hinting(format!("write {}[\"{key}\"]", family.name())))
    }

    fn divide(
        &mut self,
        at: Span,
        operator: Operator,
        left: &SyntaxTree,
        right: &SyntaxTree,
    ) -> Result<Node, ExpressionFault> {
        let sign = operator.sign();
        let (left, right) = (self.node(left)?, self.node(right)?);
        let left = self.for_node(left, ValueType::Integer, sign)?;
        let right = self.for_node(right, ValueType::Integer, sign)?;
        let NodeOperation::Number(divisor) = right.operation else {
            let fault = ExpressionFault::new(right.at, format!("{sign} needs a constant on its right side"));
            return Err(fault.hinting("so that it is never 0"));
        };
        if divisor == 0 {
            return Err(ExpressionFault::new(right.at, format!("{sign} by 0 has no result")));
        }
        let left = Box::new(left);
        Ok(self.integer(
            at,
            match operator {
                Operator::Divide => NodeOperation::Divide(left, divisor),
                _ => NodeOperation::Remainder(left, divisor),
            },
        ))
    }
}

/// The comparison with its sides swapped.
fn flipped(comparison: NodeComparison) -> NodeComparison {
    match comparison {
        NodeComparison::Less => NodeComparison::Greater,
        NodeComparison::LessOrEqual => NodeComparison::GreaterOrEqual,
        NodeComparison::Greater => NodeComparison::Less,
        NodeComparison::GreaterOrEqual => NodeComparison::LessOrEqual,
        same => same,
    }
}

/// Hours and minutes of a time of day, such as `08:30`.
fn clock(text: &str) -> Option<(u8, u8)> {
    let (hours, minutes) = text.split_once(':')?;
    Some((hours.parse().ok()?, minutes.parse().ok()?))
}
