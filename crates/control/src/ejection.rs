//! Outlier ejection on the control thread: compares the servers of an upstream once an interval, and ejects the
//! worst ones for a while. For failures in a row, workers eject servers at once.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::Duration;

use balance::{Ejector, IneligibleCause, Judgement, Outlier, ServerId, Spared, Time};
use config::written_duration;
use telemetry::message::{self, Level};

use crate::change::Control;
use crate::probe::{ProbeShared, watch_return};
use crate::tick::tick;
use proxy::context::plan::{Plan, UpstreamPlan};

/// Interval of checks whether a comparison is due.
const TICK: Duration = Duration::from_millis(100);
/// Interval while no upstream has servers to compare.
const REST: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Compared {
    ejector: Ejector,
    /// Servers that were ejected at the last look.
    ejected: Vec<ServerId>,
}

/// Compares the servers of each upstream, until the proxy ends.
pub(crate) async fn run(control: Weak<Control>, shared: Rc<ProbeShared>) {
    let mut fleets = Fleets::default();
    let mut pause = TICK;
    loop {
        tick(pause).await;
        let Some((plan, now)) = control.upgrade().map(|control| (control.plan(), control.time())) else {
            return;
        };
        fleets.keep_to(&plan);
        look(&plan, &mut fleets.compared, &shared, now);
        let is_comparing = plan.upstreams.iter().any(|upstream| upstream.servers.len() > 1);
        pause = if is_comparing { TICK } else { REST };
    }
}

#[derive(Default)]
struct Fleets {
    plan: Option<Arc<Plan>>,
    compared: Vec<Compared>,
}

impl Fleets {
    /// Keeps the state of upstreams that a new plan still has.
    fn keep_to(&mut self, plan: &Arc<Plan>) {
        if self.plan.as_ref().is_some_and(|known| Arc::ptr_eq(known, plan)) {
            return;
        }
        let upstreams = self.plan.iter().flat_map(|known| &known.upstreams);
        let names = upstreams.map(|upstream| upstream.config.name.as_str());
        let mut known: HashMap<&str, Compared> = names.zip(self.compared.drain(..)).collect();
        let compared = plan.upstreams.iter().map(|upstream| known.remove(upstream.config.name.as_str()));
        self.compared = compared.map(Option::unwrap_or_default).collect();
        self.plan = Some(Arc::clone(plan));
    }
}

fn look(plan: &Plan, compared: &mut [Compared], shared: &Rc<ProbeShared>, now: Time) {
    for (upstream, compared) in plan.upstreams.iter().zip(compared) {
        // The only server may have been ejected while there were others.
        compared.follow(upstream, shared, now);
        if upstream.servers.len() > 1 && now >= compared.ejector.due(&upstream.fleet) {
            for judgement in compared.ejector.judge(&upstream.fleet, now) {
                tell(upstream, &judgement, now);
            }
        }
    }
}

impl Compared {
    /// Checks whether servers ejected since the last look come back. Ends expired ejections that no request has
    /// ended, and reports all that have ended.
    fn follow(&mut self, upstream: &UpstreamPlan, shared: &Rc<ProbeShared>, now: Time) {
        let ejected_before = std::mem::take(&mut self.ejected);
        // A server may have been ejected since the last look, and the ejection may be over.
        let mut over = Vec::new();
        upstream.fleet.end_ejections(now, |server| over.push(server));
        for (index, member) in upstream.fleet.members().iter().enumerate() {
            let health = &member.health;
            if health.is_stopped_by(IneligibleCause::Ejection) {
                self.ejected.push(member.id);
                if !ejected_before.contains(&member.id) {
                    watch_return(upstream, index, shared);
                }
            } else if over.contains(&index) || ejected_before.contains(&member.id) {
                say(
                    upstream,
                    index,
                    Level::Info,
                    "no longer ejected: its time is over; its share of requests grows slowly",
                );
            }
        }
    }
}

fn tell(upstream: &UpstreamPlan, judgement: &Judgement, now: Time) {
    let reason = reason(judgement.outlier);
    match judgement.ejected {
        Ok(until) => {
            let watch = &upstream.watches[judgement.server];
            watch.count_ejection();
            watch.is_outlier(until, reason.clone());
            let what = format!("ejected for {}: {reason}", written_duration(until.since(now)));
            say(upstream, judgement.server, Level::Warn, &what);
        }
        Err(Spared::TooFewLeft) => {
            let what = format!("{reason}; not ejected, because too few servers would remain");
            say(upstream, judgement.server, Level::Warn, &what);
        }
        Err(Spared::NotUp | Spared::Busy) => {}
    }
}

fn reason(outlier: Outlier) -> String {
    match outlier {
        Outlier::Failures { percent, others_percent } => {
            format!("{percent:.0}% of its requests fail, {others_percent:.0}% on the other servers")
        }
        Outlier::Latency { mean, median } => {
            let millis = |duration: Duration| duration.as_secs_f64() * 1000.0;
            format!("its mean latency is {:.1} ms, the median is {:.1} ms", millis(mean), millis(median))
        }
    }
}

fn say(upstream: &UpstreamPlan, server: usize, level: Level, what: &str) {
    let text =
        format!("upstream {}, server {}: {what}", upstream.config.name, upstream.servers[server].label);
    message::say(level, &text);
}
