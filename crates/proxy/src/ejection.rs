//! Servers that are worse than the others: compared once an interval on the control thread, left out for a while, told
//! when they are asked again. Failures in a row are not waited for: workers eject for those themselves.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Weak;
use std::time::Duration;

use balance::{Cause, Ejector, Judgement, Outlier, ServerId, Spared, Time};

use crate::change::Control;
use crate::control::notice;
use crate::plan::{Plan, UpstreamPlan};
use crate::probe::{Shared, watch_return};

/// How often it is looked whether something is due.
const TICK: Duration = Duration::from_millis(100);

/// What is known of an upstream from one look to the next.
#[derive(Default)]
struct Compared {
    ejector: Ejector,
    /// Servers that were left out at the last look.
    ejected: Vec<ServerId>,
}

/// Compares the servers of each upstream until the proxy ends.
pub(crate) async fn run(control: Weak<Control>, shared: Rc<Shared>) {
    let mut upstreams: HashMap<String, Compared> = HashMap::new();
    loop {
        tokio::time::sleep(TICK).await;
        let Some((plan, now)) = control.upgrade().map(|control| (control.plan(), control.time())) else {
            return;
        };
        look(&plan, &mut upstreams, &shared, now);
    }
}

fn look(plan: &Plan, upstreams: &mut HashMap<String, Compared>, shared: &Rc<Shared>, now: Time) {
    upstreams.retain(|name, _| plan.upstreams.iter().any(|upstream| upstream.config.name == *name));
    for upstream in &plan.upstreams {
        if upstream.servers.len() < 2 {
            continue;
        }
        let compared = match upstreams.get_mut(&upstream.config.name) {
            Some(compared) => compared,
            None => upstreams.entry(upstream.config.name.clone()).or_default(),
        };
        compared.follow(upstream, shared, now);
        if now >= compared.ejector.due(&upstream.fleet) {
            for judgement in compared.ejector.judge(&upstream.fleet, now) {
                tell(upstream, &judgement, now);
            }
        }
    }
}

impl Compared {
    /// Watches whether servers come back that were ejected since the last look; ends the ejections whose time is over
    /// where no request does, and tells of all that have ended.
    fn follow(&mut self, upstream: &UpstreamPlan, shared: &Rc<Shared>, now: Time) {
        let ejected_before = std::mem::take(&mut self.ejected);
        for (index, member) in upstream.fleet.members().iter().enumerate() {
            let standing = &member.standing;
            if standing.is_stopped_by(Cause::Ejection) && now >= standing.ejected_until() {
                standing.restore(Cause::Ejection, now);
            }
            if standing.is_stopped_by(Cause::Ejection) {
                self.ejected.push(member.id);
                if !ejected_before.contains(&member.id) {
                    watch_return(upstream, index, shared);
                }
            } else if ejected_before.contains(&member.id) {
                say(upstream, index, "no longer left out; its requests become more little by little");
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
            say(upstream, judgement.server, &format!("left out for {:?}: {reason}", until.since(now)));
        }
        Err(Spared::TooFewLeft) => {
            let what = format!("{reason}; it is still asked, as too few would be left");
            say(upstream, judgement.server, &what);
        }
        Err(Spared::NotUp | Spared::Busy) => {}
    }
}

fn reason(outlier: Outlier) -> String {
    match outlier {
        Outlier::Failures { percent, others_percent } => {
            format!("{percent:.0}% of its requests fail, {others_percent:.0}% of the others'")
        }
        Outlier::Latency { mean, median } => {
            let millis = |duration: Duration| duration.as_secs_f64() * 1000.0;
            format!("it takes {:.1} ms to answer, the median is {:.1} ms", millis(mean), millis(median))
        }
    }
}

fn say(upstream: &UpstreamPlan, server: usize, what: &str) {
    notice(&format!("upstream {}, server {}: {what}", upstream.config.name, upstream.servers[server].label));
}
