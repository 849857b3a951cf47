//! Conditions of options that workers copy.

use std::sync::Arc;

use config::Config;
use expression::Expression;

/// Returns the conditions of all options that have a regular expression, each once.
pub(super) fn with_patterns(config: &Config) -> Arc<[Arc<Expression>]> {
    let all = config.routes.iter().flat_map(|route| route.conditions());
    let mut found: Vec<Arc<Expression>> = all
        .filter(|condition| condition.when.has_pattern())
        .map(|condition| Arc::clone(condition.when))
        .collect();
    found.sort_unstable_by_key(Arc::as_ptr);
    found.dedup_by(|one, other| Arc::ptr_eq(one, other));
    found.into()
}
