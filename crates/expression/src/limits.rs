//! Limits of expressions.

/// Limits of an expression. All are checked when it is compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpressionLimits {
    /// The longest expression, in bytes.
    pub text_bytes: usize,
    /// The most operators, names, constants and functions.
    pub nodes: usize,
    /// The deepest nesting. A list of conditions joined by the same operator counts once.
    pub depth: usize,
    /// The deepest nesting, including the nesting of the named expressions that are used.
    pub total_depth: usize,
    /// The highest cost of one evaluation; see [`Expression::cost`](crate::Expression::cost).
    pub steps: u64,
    /// The most bytes that [`Facts`](crate::Facts) give for one name. A limit on heads limits their texts, too.
    pub value_bytes: usize,
    /// The size of the buffer for texts that are built, in bytes.
    pub scratch_bytes: usize,
}

impl Default for ExpressionLimits {
    fn default() -> Self {
        Self {
            text_bytes: 8192,
            nodes: 1000,
            depth: 40,
            total_depth: 200,
            steps: 100_000,
            value_bytes: 64 * 1024,
            scratch_bytes: 1024 * 1024,
        }
    }
}
