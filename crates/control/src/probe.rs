//! Active health checks: a task for each checked server, on the control thread. Results go to the server's
//! `ServerHealth`, which workers read, and to its `Watch`, which keeps the reasons.

/// The health checks of one server.
mod server;
/// Connections for health checks.
mod connect;
/// Health checks by HTTP: the request, and the expected response.
mod http;
/// One HTTP/1.1 exchange.
mod http1;
/// One HTTP/2 exchange.
mod http2;
/// HTTP/3 connections for health checks.
mod http3;
/// Health checks by the gRPC health service.
mod grpc;
/// Health checks by an external command.
mod command;

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Weak;
use telemetry::message;

use balance::{Cause, ServerId};
use tokio::task::AbortHandle;

use crate::change::Control;
use proxy::context::plan::Plan;
use server::Subject;

pub(crate) use connect::reason;
pub(crate) use http::{ProbeResponse, Question};
pub(crate) use http1::{ask as get, exchange};
pub(crate) use server::{Shared, watch_return};

/// What is checked now, by upstream and server.
type Tasks = HashMap<(String, ServerId), Task>;

struct Task {
    subject: Rc<Subject>,
    handle: AbortHandle,
}

impl Drop for Task {
    fn drop(&mut self) {
        self.handle.abort();
    }
}

/// Checks the servers of the plan in force, until the proxy ends. Checks that a new plan does not change go on.
pub(crate) async fn run(control: Weak<Control>, shared: Rc<Shared>) {
    let Some(mut changes) = control.upgrade().map(|control| control.changes.subscribe()) else { return };
    let mut tasks = Tasks::new();
    loop {
        changes.mark_unchanged();
        let Some(plan) = control.upgrade().map(|control| control.plan()) else { return };
        follow(&plan, &mut tasks, &shared);
        drop(plan);
        if changes.changed().await.is_err() {
            return;
        }
    }
}

/// Has the tasks be those that a plan asks for.
fn follow(plan: &Plan, tasks: &mut Tasks, shared: &Rc<Shared>) {
    let mut before = std::mem::take(tasks);
    for upstream in &plan.upstreams {
        for (index, member) in upstream.fleet.members().iter().enumerate() {
            let Some(subject) = Subject::new(upstream, index) else {
                // What checks have found does not count where there are none.
                if member.health.restore(Cause::Check, shared.now()) {
                    let (upstream, server) = (&upstream.config.name, &upstream.servers[index].label);
                    message::info(&format!(
                        "upstream {upstream}, server {server}: up, because its checks ended"
                    ));
                }
                upstream.watches[index].forget_checks();
                continue;
            };
            let key = (upstream.config.name.clone(), member.id);
            let same = before.remove(&key).filter(|task| task.subject.is_alike(&subject));
            let task = same.unwrap_or_else(|| {
                let subject = Rc::new(subject);
                let checks = server::check(Rc::clone(&subject), Rc::clone(shared));
                Task { subject, handle: tokio::task::spawn_local(checks).abort_handle() }
            });
            tasks.insert(key, task);
        }
    }
}
