//! Checks names and types, and compiles constants: turns syntax into nodes.
//!
//! A value that may be absent needs a default, or a test with `has` that is joined to its use by `&&`, `||` or `?:`.

/// Calls of functions.
mod functions;
/// Lists, networks and maps on the right side of `in`.
mod lists;
/// Names, fields and look-ups in maps.
mod names;
/// Operators.
mod operators;
/// Values that are known to be present.
mod presence;

use crate::facts::ExchangeStage;
use crate::fault::{ExpressionFault, Span};
use crate::node::{Node, NodeOperation};
use crate::schema::Schema;
use crate::syntax::{SyntaxForm, SyntaxTree};
use crate::value::{ValueKind, ValueType};

/// The result of the checks.
pub(crate) struct CheckedNode {
    pub(crate) root: Node,
    /// The first stage at which all names are known.
    pub(crate) stage: ExchangeStage,
}

/// Checks a syntax tree. `wanted` is the type that the caller needs, if only one will do.
pub(crate) fn check(
    text: &str,
    tree: &SyntaxTree,
    schema: &Schema,
    wanted: Option<ValueType>,
) -> Result<CheckedNode, ExpressionFault> {
    let mut checker =
        ExpressionChecker { text, schema, present: Vec::new(), stage: ExchangeStage::Connection };
    let root = checker.node(tree)?;
    if let Some(wanted) = wanted {
        checker.expect_result(&root, wanted)?;
    }
    Ok(CheckedNode { root, stage: checker.stage })
}

struct ExpressionChecker<'c> {
    text: &'c str,
    schema: &'c Schema,
    /// Values that are present wherever the checker is.
    present: Vec<Node>,
    stage: ExchangeStage,
}

impl ExpressionChecker<'_> {
    /// The text of a part, for hints. Long parts are replaced.
    fn written(&self, at: Span) -> &str {
        const SHOWN_BYTES_MAX: usize = 60;
        let text = self.text.get(at.range()).unwrap_or_default();
        if text.len() > SHOWN_BYTES_MAX || text.contains('\n') { "…" } else { text }
    }

    fn make(&self, at: Span, kind: ValueKind, operation: NodeOperation) -> Node {
        let node = Node { at, kind, operation };
        if node.kind.is_optional && self.present.contains(&node) {
            return Node { kind: ValueKind::always(kind.of), ..node };
        }
        node
    }

    fn boolean(&self, at: Span, operation: NodeOperation) -> Node {
        self.make(at, ValueKind::always(ValueType::Boolean), operation)
    }

    fn node(&mut self, tree: &SyntaxTree) -> Result<Node, ExpressionFault> {
        let at = tree.at;
        match &tree.form {
            SyntaxForm::Boolean(value) => Ok(self.boolean(at, NodeOperation::Boolean(*value))),
            SyntaxForm::Integer(value) => match i64::try_from(*value) {
                Ok(value) => {
                    Ok(self.make(at, ValueKind::always(ValueType::Integer), NodeOperation::Number(value)))
                }
                Err(_) => Err(ExpressionFault::new(at, format!("{value} is too large"))
                    .hinting("the largest integer is 9223372036854775807")),
            },
            SyntaxForm::Text(text) => Ok(self.make(
                at,
                ValueKind::always(ValueType::Text),
                NodeOperation::Text(text.as_bytes().into()),
            )),
            SyntaxForm::List(_) => Err(ExpressionFault::new(at, "a list can stand only behind \"in\"")
                .hinting("write VALUE in [\"a\", \"b\"]")),
            SyntaxForm::Name(_) | SyntaxForm::Select(..) => self.name(tree),
            SyntaxForm::Index(base, key) => self.index(tree, base, key),
            SyntaxForm::Call(target, word, arguments) => self.call(tree, target.as_deref(), word, arguments),
            SyntaxForm::Not(part) => {
                let part = self.condition(part, "!")?;
                Ok(self.boolean(at, NodeOperation::Not(Box::new(part))))
            }
            SyntaxForm::Negate(part) => self.negate(at, part),
            SyntaxForm::All(list) => self.joined(at, list, true),
            SyntaxForm::Any(list) => self.joined(at, list, false),
            SyntaxForm::Choose(parts) => self.choose(at, parts),
            SyntaxForm::Binary(operator, sign, parts) => self.binary(at, *operator, *sign, parts),
        }
    }

    /// A part that is true or false.
    fn condition(&mut self, tree: &SyntaxTree, sign: &str) -> Result<Node, ExpressionFault> {
        let node = self.node(tree)?;
        if node.kind.of == ValueType::Boolean {
            return Ok(node);
        }
        let fault =
            ExpressionFault::new(node.at, format!("{sign} needs conditions; this is {}", node.kind.of));
        Err(fault.hinting(self.as_condition(&node)))
    }

    /// A condition that a value is likely meant as.
    fn as_condition(&self, node: &Node) -> String {
        let written = self.written(node.at);
        if node.kind.is_optional {
            return format!("to ask whether it is present, write has({written})");
        }
        match node.kind.of {
            ValueType::Text if node.is_constant() => {
                format!("compare a value with it, as in request.method in [\"…\", {written}]")
            }
            ValueType::Text => format!("compare it, as in {written} == \"…\""),
            ValueType::Integer => format!("compare it, as in {written} > 0"),
            ValueType::Address => format!("write {written} in \"10.0.0.0/8\""),
            ValueType::Duration => format!("compare it, as in {written} > duration(\"1s\")"),
            ValueType::Time => format!("compare it, as in {written} > timestamp(\"2026-01-01T00:00:00Z\")"),
            ValueType::Boolean => String::new(),
        }
    }

    /// Conditions joined by `&&` or `||`. Each is evaluated only if those before are true, or false.
    fn joined(&mut self, at: Span, list: &[SyntaxTree], is_all: bool) -> Result<Node, ExpressionFault> {
        let known = self.present.len();
        let sign = if is_all { "&&" } else { "||" };
        let mut nodes = Vec::with_capacity(list.len());
        for tree in list {
            let node = self.condition(tree, sign)?;
            self.learn(&node, is_all);
            nodes.push(node);
        }
        self.present.truncate(known);
        let nodes = nodes.into();
        Ok(self.boolean(at, if is_all { NodeOperation::All(nodes) } else { NodeOperation::Any(nodes) }))
    }

    fn choose(
        &mut self,
        at: Span,
        [condition, then, otherwise]: &[SyntaxTree; 3],
    ) -> Result<Node, ExpressionFault> {
        let condition = self.condition(condition, "?")?;
        let known = self.present.len();
        self.learn(&condition, true);
        let then = self.node(then)?;
        self.present.truncate(known);
        self.learn(&condition, false);
        let otherwise = self.node(otherwise)?;
        self.present.truncate(known);
        let (one, other) = (then.kind, otherwise.kind);
        if one.of != other.of {
            let what =
                format!("?: chooses between values of one type; these are {} and {}", one.of, other.of);
            return Err(ExpressionFault::new(otherwise.at, what));
        }
        let kind = ValueKind { of: one.of, is_optional: one.is_optional || other.is_optional };
        Ok(self.make(at, kind, NodeOperation::Choose(Box::new([condition, then, otherwise]))))
    }

    /// Requires that a value is present.
    fn always(&self, node: Node) -> Result<Node, ExpressionFault> {
        if !node.kind.is_optional {
            return Ok(node);
        }
        let written = self.written(node.at);
        let default = match node.kind.of {
            ValueType::Text => "\"\"",
            ValueType::Integer => "0",
            ValueType::Duration => "duration(\"0s\")",
            ValueType::Boolean => "false",
            ValueType::Time | ValueType::Address => "…",
        };
        let hint = format!("write ({written} ?? {default}), or test it first: has({written}) && …");
        Err(ExpressionFault::new(node.at, format!("{written} may be absent")).hinting(hint))
    }

    /// Requires a type, and that the value is present.
    fn for_node(&self, node: Node, of: ValueType, what: &str) -> Result<Node, ExpressionFault> {
        if node.kind.of != of {
            return Err(ExpressionFault::new(
                node.at,
                format!("{what} needs {of}; this is {}", node.kind.of),
            ));
        }
        self.always(node)
    }

    fn expect_result(&self, root: &Node, wanted: ValueType) -> Result<(), ExpressionFault> {
        let of = root.kind.of;
        if of == wanted {
            return Ok(());
        }
        if wanted == ValueType::Boolean {
            let fault = ExpressionFault::new(root.at, format!("a condition is true or false; this is {of}"));
            return Err(fault.hinting(self.as_condition(root)));
        }
        let fault = ExpressionFault::new(root.at, format!("{wanted} is needed here; this is {of}"));
        let written = self.written(root.at);
        Err(match (wanted, of) {
            (ValueType::Text, ValueType::Boolean) => {
                fault.hinting(format!("write ({written}) ? \"yes\" : \"no\""))
            }
            (ValueType::Text, ValueType::Integer | ValueType::Address) => {
                fault.hinting(format!("write string({written})"))
            }
            (ValueType::Integer, ValueType::Text) => fault.hinting(format!("write int({written}) ?? 0")),
            _ => fault,
        })
    }
}
