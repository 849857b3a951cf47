//! Active health checks: a task for each checked server, on the control thread. Results go to the server's
//! `ServerHealth`, which workers read, and to its `Watch`, which keeps the reasons.

/// The health checks of one server.
mod server;
/// Connections for health checks.
mod connect;
/// Health checks by HTTP: the request, and the expected response.
mod http;
/// A single FastCGI exchange.
mod fastcgi;
/// A single HTTP/1.1 exchange.
mod http1;
/// A single HTTP/2 exchange.
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

use balance::{IneligibleCause, ServerId};
use tokio::task::AbortHandle;

use crate::change::Control;
use proxy::context::plan::Plan;
use server::ProbedServer;

pub(crate) use connect::reason;
pub(crate) use http::{ProbeRequest, ProbeResponse};
pub(crate) use http1::{ask as get, exchange};
pub(crate) use server::{ProbeShared, watch_return};

type Tasks = HashMap<(String, ServerId), ProbeTask>;

struct ProbeTask {
    subject: Rc<ProbedServer>,
    handle: AbortHandle,
}

impl Drop for ProbeTask {
    fn drop(&mut self) {
        self.handle.abort();
    }
}

/// Checks the servers of the plan in force, until the proxy ends. Checks that a new plan does not change continue.
pub(crate) async fn run(control: Weak<Control>, shared: Rc<ProbeShared>) {
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

fn follow(plan: &Plan, tasks: &mut Tasks, shared: &Rc<ProbeShared>) {
    let mut before = std::mem::take(tasks);
    for upstream in &plan.upstreams {
        for (index, member) in upstream.fleet.members().iter().enumerate() {
            let Some(subject) = ProbedServer::new(upstream, index) else {
                // Without checks, earlier results no longer count.
                if member.health.restore(IneligibleCause::Check, shared.now()) {
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
                ProbeTask { subject, handle: tokio::task::spawn_local(checks).abort_handle() }
            });
            tasks.insert(key, task);
        }
    }
}
