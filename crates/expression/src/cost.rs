//! The worst case of an evaluation: steps, bytes of scratch space, depth. Computed when an expression is compiled.
//!
//! A step is one node, 64 bytes of text that are read or written, or 8 bytes that a small regular expression reads.

use crate::digest::DIGEST_BYTES_MAX;
use crate::facts::FactFamily;
use crate::fault::{ExpressionFault, Span};
use crate::limits::ExpressionLimits;
use crate::node::{Constants, Node, NodeOperation, TextSearch};
use crate::value::ValueType;

const BYTES_PER_STEP: u64 = 64;
const PATTERN_BYTES_PER_STEP: u64 = 8;
/// A digest reads so many bytes in a step, and takes some for its last block.
const DIGEST_BYTES_PER_STEP: u64 = 8;
const DIGEST_STEPS: u64 = 16;
/// Steps to find a field in a head, or a key in a map.
const LOOKUP_STEPS: u64 = 4;
/// The longest integer or address, as a text.
const WRITTEN_BYTES_MAX: u64 = 45;

/// Upper bounds of one evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Cost {
    pub(crate) steps: u64,
    /// The longest text that results.
    pub(crate) longest: u64,
    /// The most scratch space in use at any time.
    pub(crate) scratch_peak: u64,
    /// The scratch space that the result takes.
    pub(crate) scratch_kept: u64,
    pub(crate) depth: usize,
}

/// Computes the cost, and requires that it is within the limits.
pub(crate) fn measure(root: &Node, limits: &ExpressionLimits) -> Result<Cost, ExpressionFault> {
    let cost = cost(root, limits.value_bytes as u64);
    let whole = |what: String| ExpressionFault::new(Span { start: root.at.start, end: root.at.end }, what);
    if cost.depth > limits.total_depth {
        let what = format!("named expressions are nested deeper than {} levels", limits.total_depth);
        return Err(whole(what).hinting("let fewer of them use each other"));
    }
    if cost.steps > limits.steps {
        let what =
            format!("the expression takes up to {} steps; at most {} are allowed", cost.steps, limits.steps);
        return Err(
            whole(what).hinting("regular expressions cost most: use startsWith, endsWith or contains")
        );
    }
    if cost.scratch_peak > limits.scratch_bytes as u64 {
        let what = format!(
            "the expression builds texts of up to {} bytes; at most {} are allowed",
            cost.scratch_peak, limits.scratch_bytes
        );
        return Err(whole(what).hinting("join fewer texts"));
    }
    Ok(cost)
}

/// Computes the cost of a node with its parts. `value_bytes` are the bytes of the texts that facts give.
pub(crate) fn cost(node: &Node, value_bytes: u64) -> Cost {
    if let NodeOperation::Definition(definition) = &node.operation {
        let inner = definition.0.cost;
        return Cost {
            steps: inner.steps.saturating_add(1),
            // A value that was computed before is copied to the scratch space.
            scratch_peak: inner.scratch_peak.max(inner.longest),
            scratch_kept: inner.scratch_kept.max(inner.longest),
            depth: inner.depth + 1,
            ..inner
        };
    }
    let mut sum = Cost::default();
    let mut lengths = Vec::new();
    for part in node.parts() {
        let part = cost(part, value_bytes);
        sum.steps = sum.steps.saturating_add(part.steps);
        sum.scratch_peak = sum.scratch_peak.max(sum.scratch_kept.saturating_add(part.scratch_peak));
        sum.scratch_kept = sum.scratch_kept.saturating_add(part.scratch_kept);
        sum.depth = sum.depth.max(part.depth);
        lengths.push(part.longest);
    }
    let longest = if node.is_text() { longest(&node.operation, &lengths, value_bytes) } else { 0 };
    let writes = writes(&node.operation, longest, value_bytes);
    let kept = sum.scratch_kept.saturating_add(writes);
    let peak = sum.scratch_peak.max(kept);
    Cost {
        steps: sum.steps.saturating_add(own_steps(&node.operation, &lengths, value_bytes)),
        longest,
        scratch_peak: peak,
        scratch_kept: if node.is_text() { kept } else { 0 },
        depth: sum.depth + 1,
    }
}

/// The longest text of an operation that results in a text.
fn longest(operation: &NodeOperation, lengths: &[u64], value_bytes: u64) -> u64 {
    match operation {
        NodeOperation::Text(text) => text.len() as u64,
        NodeOperation::Concatenate(_) => {
            lengths.iter().fold(0, |sum: u64, length| sum.saturating_add(*length))
        }
        NodeOperation::ChangeCase(..) | NodeOperation::Piece(..) => lengths[0],
        NodeOperation::ReplaceFirst(_, _, by) => lengths[0].saturating_add(by.len() as u64),
        NodeOperation::Choose(_) => lengths[1].max(lengths[2]),
        NodeOperation::Default(_) => lengths[0].max(lengths[1]),
        NodeOperation::Write(_) => WRITTEN_BYTES_MAX,
        NodeOperation::Hash(..) => DIGEST_BYTES_MAX,
        _ => value_bytes,
    }
}

/// The bytes that an operation appends to the scratch space.
fn writes(operation: &NodeOperation, longest: u64, value_bytes: u64) -> u64 {
    match operation {
        NodeOperation::Concatenate(_)
        | NodeOperation::ChangeCase(..)
        | NodeOperation::ReplaceFirst(..)
        | NodeOperation::Hash(..)
        | NodeOperation::Write(_) => longest,
        NodeOperation::Field(FactFamily::RequestQuery, _)
        | NodeOperation::AnyField(FactFamily::RequestQuery, ..) => value_bytes,
        _ => 0,
    }
}

/// The steps of one node without its parts. `lengths` are the bytes of the parts' texts, `value_bytes` the bytes of the
/// texts that facts give. More bytes never take fewer steps, so that the longest texts give the worst case.
pub(crate) fn own_steps(operation: &NodeOperation, lengths: &[u64], value_bytes: u64) -> u64 {
    let length = |part: usize| lengths.get(part).copied().unwrap_or(0);
    let all = || lengths.iter().fold(0, |sum: u64, length| sum.saturating_add(*length));
    1 + match operation {
        NodeOperation::Field(..) => LOOKUP_STEPS + value_bytes / BYTES_PER_STEP,
        NodeOperation::AnyField(..) => LOOKUP_STEPS + value_bytes.saturating_add(length(0)) / BYTES_PER_STEP,
        NodeOperation::Lookup(..) | NodeOperation::InMap(..) => LOOKUP_STEPS + length(0) / BYTES_PER_STEP,
        NodeOperation::Compare(_, parts) if parts[0].kind.of == ValueType::Text => {
            length(0).min(length(1)) / BYTES_PER_STEP
        }
        NodeOperation::Among(_, Constants::Texts(texts)) => {
            halvings(texts.len()) * (1 + length(0) / BYTES_PER_STEP)
        }
        NodeOperation::Among(_, Constants::Numbers(numbers)) => halvings(numbers.len()),
        NodeOperation::InNetworks(_, networks) => halvings(networks.len()),
        NodeOperation::Matches(_, pattern) => length(0) / PATTERN_BYTES_PER_STEP * pattern.weight(),
        NodeOperation::Hash(..) => length(0) / DIGEST_BYTES_PER_STEP + DIGEST_STEPS,
        // A search for the end of the match, one for its start, and a copy.
        NodeOperation::ReplaceFirst(_, pattern, _) => {
            2 * (length(0) / PATTERN_BYTES_PER_STEP * pattern.weight()) + length(0) / BYTES_PER_STEP
        }
        NodeOperation::Search(TextSearch::Contains, ..) => all() / BYTES_PER_STEP,
        NodeOperation::Search(..) => length(1) / BYTES_PER_STEP,
        NodeOperation::Concatenate(_) | NodeOperation::ChangeCase(..) | NodeOperation::Piece(..) => {
            all() / BYTES_PER_STEP
        }
        _ => 0,
    }
}

/// The comparisons of a search by halves.
fn halvings(count: usize) -> u64 {
    u64::from(usize::BITS - count.leading_zeros())
}
