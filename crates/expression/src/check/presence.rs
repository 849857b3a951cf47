//! Values that are known to be present, because a condition that has been evaluated before says so.

use super::ExpressionChecker;
use crate::node::{Node, NodeComparison, NodeOperation};

impl ExpressionChecker<'_> {
    /// Remembers what is present if a condition is true, or if it is false.
    pub(super) fn learn(&mut self, condition: &Node, is_true: bool) {
        match &condition.operation {
            NodeOperation::Has(value) if is_true => self.present.push((**value).clone()),
            NodeOperation::Compare(comparison, values) => {
                // An absent value differs from every other.
                let wanted = if is_true { NodeComparison::Equal } else { NodeComparison::NotEqual };
                if *comparison == wanted {
                    let optional = values.iter().filter(|value| value.kind.is_optional);
                    self.present.extend(optional.cloned());
                }
            }
            NodeOperation::Among(value, _) | NodeOperation::InNetworks(value, _)
                if is_true && value.kind.is_optional =>
            {
                self.present.push((**value).clone());
            }
            NodeOperation::AnyField(family, key, value) if is_true => {
                let operation = NodeOperation::Field(*family, key.clone());
                self.present.push(Node { operation, ..(**value).clone() });
            }
            NodeOperation::InMap(number, key) if is_true => {
                let operation = NodeOperation::Lookup(*number, key.clone());
                self.present.push(Node { operation, ..(**key).clone() });
            }
            NodeOperation::Not(part) => self.learn(part, !is_true),
            NodeOperation::All(parts) if is_true => parts.iter().for_each(|part| self.learn(part, true)),
            NodeOperation::Any(parts) if !is_true => parts.iter().for_each(|part| self.learn(part, false)),
            _ => {}
        }
    }
}
