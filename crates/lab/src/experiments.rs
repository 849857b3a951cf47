//! Built-in experiments: their plans and published figures.

use report::results::Published;

#[derive(Debug, Clone, Copy)]
pub struct BuiltInPlan {
    /// As in `vanward lab run`.
    pub name: &'static str,
    pub text: &'static str,
}

pub const ALL: [BuiltInPlan; 7] = [
    BuiltInPlan { name: "monolake", text: include_str!("../plans/monolake.toml") },
    BuiltInPlan { name: "squid-wrk", text: include_str!("../plans/squid-wrk.toml") },
    BuiltInPlan { name: "varnish-vs-squid", text: include_str!("../plans/varnish-vs-squid.toml") },
    BuiltInPlan { name: "chaos-proxy", text: include_str!("../plans/chaos-proxy.toml") },
    BuiltInPlan { name: "zproxy", text: include_str!("../plans/zproxy.toml") },
    BuiltInPlan { name: "streams", text: include_str!("../plans/streams.toml") },
    BuiltInPlan { name: "http3", text: include_str!("../plans/http3.toml") },
];

pub const RESILIENCE: [BuiltInPlan; 4] = [
    BuiltInPlan { name: "dying-servers", text: include_str!("../plans/resilience/dying-servers.toml") },
    BuiltInPlan { name: "slow-server", text: include_str!("../plans/resilience/slow-server.toml") },
    BuiltInPlan { name: "reload-storm", text: include_str!("../plans/resilience/reload-storm.toml") },
    BuiltInPlan { name: "overload", text: include_str!("../plans/resilience/overload.toml") },
];

pub fn resilience_named(name: &str) -> Option<BuiltInPlan> {
    RESILIENCE.into_iter().find(|plan| plan.name == name)
}

pub fn named(name: &str) -> Option<BuiltInPlan> {
    ALL.into_iter().find(|experiment| experiment.name == name)
}

/// Published figures of an experiment; empty if there are none.
pub fn published(experiment: &str) -> Vec<Published> {
    let figures = report::published::experiment(experiment)
        .into_iter()
        .flat_map(report::published::PublishedExperiment::figures);
    let owned = figures.map(|figure| Published {
        system: figure.system.to_owned(),
        case: figure.case.to_owned(),
        metric: figure.metric.to_owned(),
        value: figure.value,
        unit: figure.unit.to_owned(),
    });
    owned.collect()
}

#[cfg(test)]
mod tests {
    use report::results::ClientScheme;

    use super::*;
    use crate::plan::CasePlan;
    use crate::written::WrittenPlan;

    #[test]
    fn every_plan_can_be_read_and_has_figures_beside_it() {
        for experiment in ALL {
            for quick in [false, true] {
                let plan = WrittenPlan::read(experiment.text, experiment.name, quick).expect(experiment.name);
                if matches!(experiment.name, "streams" | "http3") {
                    // These experiments are our own, so there are no published figures.
                    let is_http3 = experiment.name == "http3";
                    let suits = |case: &CasePlan| case.streams.is_some() != is_http3;
                    assert!(plan.published.is_none() && plan.cases.iter().all(suits));
                    assert!(plan.cases.iter().all(|case| !is_http3 || case.scheme == ClientScheme::Https));
                    continue;
                }
                let published = published(plan.published.as_deref().expect("each was published"));
                let matched = plan.cases.iter().filter(|case| {
                    published.iter().any(|figure| Some(&figure.case) == case.published.as_ref())
                });
                assert!(matched.count() > 0, "{}", experiment.name);
            }
        }
        assert_eq!(published("monolake").len(), 128);
        assert!(published("nobody").is_empty());
    }

    #[test]
    fn every_plan_of_a_resilience_run_can_be_read_and_is_short_when_quick() {
        let grammar = crate::written::Grammar { fault: |_| Ok(()), profiles: &[] };
        for built_in in RESILIENCE {
            let [full, quick] = [false, true].map(|quick| {
                crate::resilience::ResiliencePlan::read(built_in.text, built_in.name, quick, grammar)
                    .expect(built_in.name)
            });
            assert!(quick.duration.as_secs() <= 20 && quick.duration < full.duration, "{}", built_in.name);
            assert_eq!(quick.phases().len(), full.phases().len(), "{}", built_in.name);
            assert!(!full.expectations.is_empty(), "{}", built_in.name);
            assert_eq!(resilience_named(built_in.name).map(|plan| plan.text), Some(built_in.text));
        }
        assert!(resilience_named("zproxy").is_none());
    }

    #[test]
    fn the_parameters_are_those_of_the_documents() {
        let read = |name| WrittenPlan::read(named(name).expect(name).text, name, false).expect(name);
        let zproxy = read("zproxy");
        let two = crate::plan::OriginSource::Own(2.try_into().expect("is not zero"));
        assert_eq!((&zproxy.origins.source, zproxy.timing.measured.as_secs()), (&two, 15));
        assert_eq!(
            (zproxy.cases[0].connections.get(), zproxy.cases[0].threads.map(std::num::NonZero::get)),
            (400, Some(10))
        );
        assert_eq!(read("chaos-proxy").cases.len(), 8);
        // Seven sizes and six numbers of users, then the list at six.
        assert_eq!(read("varnish-vs-squid").cases.len(), 48);
        assert_eq!(read("monolake").cases.len(), 17);
    }
}
