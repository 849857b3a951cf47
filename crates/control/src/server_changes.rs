//! Reports changes of servers in a new plan to the operator: added and removed servers, and weights. The admin API
//! reports its own changes.

use std::collections::HashMap;
use std::sync::Arc;

use balance::FleetMember;
use proxy::context::plan::{Plan, UpstreamPlan};
use telemetry::message;

/// Reports added, removed and changed servers in upstreams of both plans. `why` ends each message.
pub(crate) fn tell(before: &Plan, after: &Plan, why: &str) {
    for change in changes(before, after) {
        message::info(&format!("{change}, {why}"));
    }
}

pub(crate) fn changes(before: &Plan, after: &Plan) -> Vec<String> {
    let is_other = |(place, upstream): &(usize, &Arc<UpstreamPlan>)| {
        before.upstreams.get(*place).is_none_or(|before| !Arc::ptr_eq(before, upstream))
    };
    let others: Vec<&Arc<UpstreamPlan>> =
        after.upstreams.iter().enumerate().filter(is_other).map(|(_, upstream)| upstream).collect();
    if others.is_empty() {
        return Vec::new();
    }
    let known: HashMap<&str, _> =
        before.upstreams.iter().map(|upstream| (upstream.config.name.as_str(), upstream)).collect();
    let mut changes = Vec::new();
    for upstream in others {
        let Some(previous) = known.get(upstream.config.name.as_str()) else { continue };
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

fn members(upstream: &UpstreamPlan) -> impl Iterator<Item = (&str, &FleetMember)> {
    let labels = upstream.servers.iter().map(|server| server.label.as_str());
    labels.zip(upstream.fleet.members())
}
