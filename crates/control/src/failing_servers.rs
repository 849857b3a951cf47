//! Reports servers that go on failing requests: once a minute, with the number of failures and the last reason. Workers
//! report the first failure themselves.

use std::sync::Weak;
use std::time::Duration;

use telemetry::message;

use crate::change::Control;
use crate::tick::tick;

const LOOK: Duration = Duration::from_secs(5);

/// Reports failures that no message has mentioned, until the proxy ends.
pub(crate) async fn watch(control: Weak<Control>) {
    loop {
        tick(LOOK).await;
        let Some((plan, now)) = control.upgrade().map(|control| (control.plan(), control.time())) else {
            return;
        };
        for upstream in &plan.upstreams {
            for (server, watch) in upstream.servers.iter().zip(&upstream.watches) {
                let Some((count, reason)) = watch.due_failures(now) else { continue };
                let requests =
                    if count == 1 { "1 more request".to_owned() } else { format!("{count} more requests") };
                let (name, label) = (&upstream.config.name, &server.label);
                message::warn(&format!(
                    "upstream {name}, server {label}: {requests} failed, the last one: {reason}"
                ));
            }
        }
    }
}
