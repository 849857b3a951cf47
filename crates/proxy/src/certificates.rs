//! Certificates that change while the proxy runs: looked at on the control thread, exchanged without a restart.

use std::sync::Arc;
use std::time::Duration;

use tls::{Problem, Reload};

use crate::control::notice;
use crate::plan::Plan;

/// How often files are looked at.
const INTERVAL: Duration = Duration::from_secs(1);

/// Says what there is to say of the certificates at start; whether there are any.
pub(crate) fn begin(plan: &Plan) -> bool {
    let servers: Vec<_> = plan.listeners.iter().filter_map(|listener| listener.tls.as_ref()).collect();
    for server in &servers {
        say(&server.remarks());
    }
    for client in plan.upstream_tls.iter().flatten() {
        say(client.remarks());
    }
    !servers.is_empty() || plan.upstream_tls.iter().any(Option::is_some)
}

/// Looks at the files for ever.
pub(crate) async fn watch(plan: Arc<Plan>) {
    loop {
        tokio::time::sleep(INTERVAL).await;
        for listener in &plan.listeners {
            if let Some(server) = &listener.tls {
                report(&server.tick());
            }
        }
        for client in plan.upstream_tls.iter().flatten() {
            report(&client.tick());
        }
    }
}

fn report(reload: &Reload) {
    for path in &reload.taken {
        notice(&format!("{} has changed, and is in use", path.display()));
    }
    for problem in &reload.problems {
        let consequence = if problem.is_usable() { "" } else { "; the old one stays in use" };
        notice(&format!("{problem}{consequence}"));
    }
}

fn say(problems: &[Problem]) {
    for problem in problems {
        notice(&problem.to_string());
    }
}
