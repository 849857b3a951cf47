//! Watches certificate files on the control thread, and reloads certificates without a restart.

use std::sync::{Arc, Weak};
use std::time::Duration;

use telemetry::message;
use tls::{CertificateProblem, Reload};

use crate::change::Control;
use crate::tick::tick;
use proxy::context::plan::Plan;

const INTERVAL: Duration = Duration::from_secs(1);

/// Reports problems of a plan's certificates that the previous plan did not have.
pub(crate) fn remark(plan: &Plan, before: Option<&Plan>) {
    let of_listeners = |plan: &Plan| -> Vec<_> {
        plan.listeners.iter().filter_map(|listener| listener.tls.clone()).collect()
    };
    let (servers, clients) = (before.map(of_listeners).unwrap_or_default(), before.map(Plan::upstream_tls));
    for server in of_listeners(plan) {
        if !servers.iter().any(|known| Arc::ptr_eq(known, &server)) {
            say(&server.remarks());
        }
    }
    for client in plan.upstream_tls() {
        if !clients.iter().flatten().any(|known| Arc::ptr_eq(known, client)) {
            say(client.remarks());
        }
    }
}

/// Checks the certificate files once a second, until the proxy ends.
pub(crate) async fn watch(control: Weak<Control>) {
    loop {
        tick(INTERVAL).await;
        let Some(plan) = control.upgrade().map(|control| control.plan()) else { return };
        for listener in &plan.listeners {
            if let Some(server) = &listener.tls {
                report(&server.tick());
            }
        }
        for client in plan.upstream_tls() {
            report(&client.tick());
        }
    }
}

fn report(reload: &Reload) {
    for path in &reload.taken {
        message::info(&format!("{} has changed and was reloaded", path.display()));
    }
    for problem in &reload.problems {
        let consequence = if problem.is_usable() { "" } else { "; the old one stays in use" };
        message::warn(&format!("{problem}{consequence}"));
    }
}

fn say(problems: &[CertificateProblem]) {
    for problem in problems {
        message::warn(&problem.to_string());
    }
}
