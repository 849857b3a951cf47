//! What a change of the plan does to servers, for the operator: those that are added and removed, and other weights. Changes
//! by the admin API are told by that.

use std::collections::HashMap;

use balance::Member;
use proxy::context::plan::{Plan, UpstreamPlan};
use telemetry::message;

/// Tells which servers of upstreams that stay have come, gone, or changed. `why` ends each message.
pub(crate) fn tell(before: &Plan, after: &Plan, why: &str) {
    for change in changes(before, after) {
        message::info(&format!("{change}, {why}"));
    }
}

/// What has changed, without the reason.
pub(crate) fn changes(before: &Plan, after: &Plan) -> Vec<String> {
    let name = |upstream: &UpstreamPlan| upstream.config.name.clone();
    let known: HashMap<String, _> =
        before.upstreams.iter().map(|upstream| (name(upstream), upstream)).collect();
    let mut changes = Vec::new();
    for upstream in &after.upstreams {
        let Some(previous) = known.get(&upstream.config.name) else { continue };
        let say =
            |label: &str, what: &str| format!("upstream {}, server {label}: {what}", upstream.config.name);
        let mut gone: HashMap<_, _> =
            members(previous).map(|(label, member)| (member.id, (label, member))).collect();
        for (label, member) in members(upstream) {
            match gone.remove(&member.id) {
                None => changes.push(say(label, "added; its share of requests grows slowly")),
                Some((_, before)) if before.weight != member.weight => {
                    changes.push(say(label, &format!("weight {}, before {}", member.weight, before.weight)));
                }
                Some(_) => {}
            }
        }
        let mut gone: Vec<&str> = gone.into_values().map(|(label, _)| label).collect();
        gone.sort_unstable();
        changes.extend(gone.into_iter().map(|label| say(label, "removed")));
    }
    changes
}

fn members(upstream: &UpstreamPlan) -> impl Iterator<Item = (&str, &Member)> {
    let labels = upstream.servers.iter().map(|server| server.label.as_str());
    labels.zip(upstream.fleet.members())
}
