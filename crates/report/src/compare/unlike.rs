//! Differences between the plans, durations, rates and machines of two runs.

use crate::figure;
use crate::results::{Arrivals, Case, Results};
use crate::summary;

/// Whether two cases have the same task, so that their figures can be compared.
pub(super) fn is_same(one: &Case, other: &Case) -> bool {
    let kind = |case: &Case| std::mem::discriminant(&case.arrivals);
    let asked = |case: &Case| {
        let Case { scheme, version, payload_bytes, connections, workers, requests, upstream, layer, .. } =
            *case;
        ((scheme, version, payload_bytes, connections), (workers, requests, upstream, layer))
    };
    let more = |case: &Case| {
        (case.payload.clone(), case.features.clone(), case.generator.clone(), case.streams.clone())
    };
    kind(one) == kind(other)
        && asked(one) == asked(other)
        && more(one) == more(other)
        && bound(one) == bound(other)
}

/// Differences of two plans and machines, a sentence each.
pub(super) fn differences(before: &Results, after: &Results) -> Vec<String> {
    let mut said = Vec::new();
    let (one, other) = (&before.conditions, &after.conditions);
    let seconds = |seconds: f64| format!("{seconds} s");
    let mut differs = |what: &str, before: String, after: String| {
        if before != after {
            said.push(format!("{what} differ: {before} in the first results, {after} in the second."));
        }
    };
    differs("Rounds", one.rounds.to_string(), other.rounds.to_string());
    differs("Durations", seconds(one.measured_seconds), seconds(other.measured_seconds));
    differs("Warm-ups", seconds(one.warm_up_seconds), seconds(other.warm_up_seconds));
    let machine = |results: &Results| {
        let machine = &results.machine;
        format!(
            "{}, {}, {}, {}, {}",
            machine.processor,
            machine.architecture,
            figure::things(machine.cores, "core"),
            figure::memory_bytes(machine.memory_bytes as f64),
            machine.kernel
        )
    };
    differs("Machines", machine(before), machine(after));
    let governor =
        |results: &Results| results.machine.governor.clone().unwrap_or_else(|| "not reported".to_owned());
    differs("Governors", governor(before), governor(after));
    let cores = |results: &Results| {
        let cores = &results.conditions.cores;
        format!("proxy {:?}, origins {:?}, load {:?}", cores.proxy, cores.origins, cores.load)
    };
    differs("Cores", cores(before), cores(after));
    for (one, other) in pairs(before, after) {
        if !is_same(one, other) {
            differs(
                &format!("{} is not compared, because its settings", one.name),
                summary::title(one),
                summary::title(other),
            );
            continue;
        }
        if let (Some(before), Some(after)) = (rate(one), rate(other)) {
            differs(
                &format!("Rates of {}", one.name),
                figure::count(before) + "/s",
                figure::count(after) + "/s",
            );
        }
        if one.measured_seconds != other.measured_seconds {
            let own = |case: &Case, results: &Results| {
                seconds(case.measured_seconds.unwrap_or(results.conditions.measured_seconds))
            };
            differs(&format!("Durations of {}", one.name), own(one, before), own(other, after));
        }
    }
    said
}

/// Pairs of cases with the same name.
fn pairs<'r>(before: &'r Results, after: &'r Results) -> impl Iterator<Item = (&'r Case, &'r Case)> {
    let other = |case: &Case| after.cases.iter().find(|other| other.name == case.name);
    before.cases.iter().filter_map(move |case| Some((case, other(case)?)))
}

fn rate(case: &Case) -> Option<f64> {
    match case.arrivals {
        Arrivals::Constant { rate_per_second } => Some(rate_per_second),
        Arrivals::Closed | Arrivals::Searched { .. } => None,
    }
}

fn bound(case: &Case) -> Option<&str> {
    match &case.arrivals {
        Arrivals::Searched { bound } => Some(bound),
        Arrivals::Closed | Arrivals::Constant { .. } => None,
    }
}
