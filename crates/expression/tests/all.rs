//! Tests of the language: values, mistakes, agreement with a naive evaluator, costs, implied conditions, allocations.

/// An exchange as a list of facts.
mod exchange;
/// Values of expressions.
mod values;
/// Names for expressions.
mod named;
/// Mistakes and their messages.
mod mistakes;
/// Random expressions, compared with a naive evaluator.
mod properties;
/// Explanations, costs and limits.
mod explanations;
/// Conditions that follow from others.
mod implied;
/// Allocations of a thread.
mod allocations;
