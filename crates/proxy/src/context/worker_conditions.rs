//! A worker's copies of the conditions of options, for those with regular expressions.
//!
//! Threads that share a regular expression sometimes wait for each other. The conditions of routes are copied with the
//! route table.

use std::collections::HashMap;
use std::sync::Arc;

use expression::Expression;

/// Copies by the address of the original, which the plan keeps.
#[derive(Default)]
pub(crate) struct WorkerConditions(HashMap<*const Expression, Expression>);

impl WorkerConditions {
    /// Copies conditions for another worker.
    pub(crate) fn new(conditions: &[Arc<Expression>]) -> Self {
        Self(conditions.iter().map(|one| (Arc::as_ptr(one), Expression::clone(one))).collect())
    }

    /// Returns the worker's copy of a condition, or the condition itself if it needs none.
    #[inline]
    pub(crate) fn own<'a>(&'a self, condition: &'a Expression) -> &'a Expression {
        if condition.has_pattern() {
            self.0.get(&std::ptr::from_ref(condition)).unwrap_or(condition)
        } else {
            condition
        }
    }
}
