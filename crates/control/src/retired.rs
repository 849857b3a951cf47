//! Plans that another one has replaced, while requests use them.
//!
//! Freeing 50,000 routes that a change has replaced takes 10 ms. If the last request that uses the plan freed it, the other
//! requests of that worker would wait for that. So the control side keeps each plan until no worker uses it.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use proxy::context::plan::Plan;

use crate::change::Control;
use crate::tick::tick;

/// How often the control side looks for plans that are no longer used.
const INTERVAL: Duration = Duration::from_secs(1);

/// The plans that were replaced.
#[derive(Default)]
pub(crate) struct Retired(Mutex<Vec<Arc<Plan>>>);

impl Retired {
    pub(crate) fn add(&self, plan: Arc<Plan>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(plan);
    }

    /// Frees the plans that are used nowhere else. Returns whether there were any.
    pub(crate) fn free_unused(&self) -> bool {
        let mut plans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let unused: Vec<_> = plans.extract_if(.., |plan| Arc::strong_count(plan) == 1).collect();
        drop(plans);
        !unused.is_empty()
    }
}

/// Frees replaced plans on the control thread, until the proxy ends.
pub(crate) async fn watch(control: Weak<Control>) {
    loop {
        tick(INTERVAL).await;
        let Some(control) = control.upgrade() else { return };
        if control.retired.free_unused() {
            control.release_memory();
        }
    }
}
