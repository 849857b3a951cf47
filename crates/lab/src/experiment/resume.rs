//! Continues an interrupted run, or adds rounds: earlier measurements stay, and only the rest is measured.

use report::figure;
use report::results::{Arrivals, MachinePlace, Results, RunMachine};

use crate::error::Error;

/// Copies an earlier run's measurements into new, empty results. Returns the earlier run's duration in seconds.
///
/// # Errors
/// If the plan, the program, the machine or the version of a proxy differs.
pub(super) fn take(mut earlier: Results, now: &mut Results) -> Result<f64, Error> {
    if let Some(difference) = difference(&earlier, now) {
        return Err(Error::Another(difference));
    }
    let took_seconds = earlier.runs.last().map_or(0.0, |run| run.began_seconds).max(earlier.took_seconds);
    drop_begun(&mut earlier);
    let was = if earlier.incomplete.is_some() { "was interrupted" } else { "had ended" };
    let gone_on = format!(
        "The run {was} after {}, and was continued at {}.",
        figure::things(earlier.runs.len(), "measurement"),
        figure::date(now.started_unix_seconds)
    );
    earlier.notes.push(gone_on);
    keep_rates(&earlier, now);
    for (proxy, before) in now.proxies.iter_mut().zip(earlier.proxies) {
        proxy.started = before.started;
    }
    // A disturbance of either run counts for both.
    if earlier.conditions.load_before[0] > now.conditions.load_before[0] {
        now.conditions.load_before = earlier.conditions.load_before;
    }
    now.started_unix_seconds = earlier.started_unix_seconds;
    (now.runs, now.notes) = (earlier.runs, earlier.notes);
    Ok(took_seconds)
}

/// Keeps constant rates of the earlier run, although more rounds of their closed loops are measured.
fn keep_rates(earlier: &Results, now: &mut Results) {
    for case in &mut now.cases {
        let before = earlier.cases.iter().find(|before| before.name == case.name);
        if let Some(arrivals @ Arrivals::Constant { .. }) = before.map(|before| &before.arrivals) {
            case.arrivals = arrivals.clone();
        }
    }
}

/// Removes incomplete searches, which start again.
fn drop_begun(earlier: &mut Results) {
    let Some(last) = earlier.runs.last().filter(|run| run.step.is_some()) else { return };
    let begun = (last.proxy.clone(), last.case.clone(), last.round);
    earlier.runs.retain(|run| (&run.proxy, &run.case, run.round) != (&begun.0, &begun.1, begun.2));
}

/// The reason why figures of both runs must not be combined.
fn difference(earlier: &Results, now: &Results) -> Option<String> {
    if but_for_rounds(&earlier.command) != but_for_rounds(&now.command) {
        return Some(format!("its command was `{}`", earlier.command));
    }
    let (before, here) = (earlier.conditions.rounds, now.conditions.rounds);
    if before > here {
        return Some(format!(
            "it was planned with {}, and this run with {here}",
            figure::things(before, "round")
        ));
    }
    if earlier.plan != now.plan {
        return Some("its plan was different".to_owned());
    }
    if earlier.measured_by != now.measured_by {
        return Some(format!("it was measured by {}, but this is {}", earlier.measured_by, now.measured_by));
    }
    if let Some(difference) = of_machines(&earlier.machine, &now.machine) {
        return Some(difference);
    }
    let places = |results: &Results| -> Vec<_> {
        let place = |place: &MachinePlace| (place.name.clone(), place.cores.clone(), place.machine.clone());
        results.machines.iter().map(place).collect()
    };
    if earlier.conditions.cores != now.conditions.cores || places(earlier) != places(now) {
        return Some("it used other machines or cores".to_owned());
    }
    let programs = |results: &Results| -> Vec<String> {
        results.proxies.iter().map(|proxy| format!("{} {}", proxy.name, proxy.version)).collect()
    };
    let (before, these) = (programs(earlier), programs(now));
    (before != these)
        .then(|| format!("it used {}, but this machine has {}", before.join(", "), these.join(", ")))
}

fn but_for_rounds(command: &str) -> Vec<&str> {
    let mut words = command.split(' ');
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        if word == "--repeats" {
            words.next();
        } else {
            kept.push(word);
        }
    }
    kept
}

fn of_machines(earlier: &RunMachine, now: &RunMachine) -> Option<String> {
    if earlier == now {
        return None;
    }
    let named =
        |machine: &RunMachine| format!("{}, {} cores, {}", machine.processor, machine.cores, machine.kernel);
    let (before, here) = (named(earlier), named(now));
    Some(if before == here {
        "settings of the machine have changed".to_owned()
    } else {
        format!("it was measured on {before}, but this is {here}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Results with these runs: round, and whether it is a step of a search.
    fn results(runs: &[(usize, bool)]) -> Results {
        let run = |&(round, is_step): &(usize, bool)| {
            let step = if is_step { r#""step": {"rate_per_second": 1.0, "is_met": true},"# } else { "" };
            format!(
                r#"{{"proxy": "p", "case": "c", "round": {round}, "began_seconds": {round}.5, "command": "", {step}
                    "outcome": {{"kind": "failed", "reason": "r"}}}}"#
            )
        };
        let runs: Vec<String> = runs.iter().map(run).collect();
        let text = format!(
            r#"{{"schema": 3, "title": "t", "measured_by": "vanward 1", "command": "c", "started_unix_seconds": 1000,
                "took_seconds": 0.0, "notes": ["n"], "origins": [], "cases": [], "runs": [{}],
                "machine": {{"processor": "x", "architecture": "a", "cores": 2, "memory_bytes": 1, "kernel": "k",
                             "governor": null, "settings": {{}}}},
                "conditions": {{"load_before": [0.5, 0.0, 0.0], "rounds": 2, "measured_seconds": 1.0, "warm_up_seconds": 0.0,
                                "seed": 1, "cores": {{"proxy": [0], "origins": [1], "load": [1]}}, "alike": []}},
                "proxies": [{{"name": "p", "role": "peer", "version": "1"}}]}}"#,
            runs.join(", ")
        );
        Results::from_json(&text).expect("results")
    }

    #[test]
    fn what_was_measured_is_taken_but_for_a_search_that_had_begun() {
        for (runs, rounds, took) in [
            (vec![], vec![], 0.0),
            (vec![(1, false), (2, false)], vec![1, 2], 2.5),
            (vec![(1, true), (1, true), (2, true)], vec![1, 1], 2.5),
            (vec![(1, true), (2, false)], vec![1, 2], 2.5),
        ] {
            let mut now = results(&[]);
            now.started_unix_seconds = 5000;
            assert_eq!(take(results(&runs), &mut now).expect("they are alike"), took);
            assert_eq!(now.runs.iter().map(|run| run.round).collect::<Vec<_>>(), rounds);
            assert_eq!((now.started_unix_seconds, now.notes.len()), (1000, 2));
            let said =
                format!("had ended after {}, and was continued", figure::things(rounds.len(), "measurement"));
            assert!(now.notes[1].contains(&said), "{:?}", now.notes);
        }
    }

    #[test]
    fn more_rounds_are_at_the_same_rate() {
        let case = |arrivals: Arrivals| report::results::Case {
            name: "c".to_owned(),
            scheme: Default::default(),
            version: Default::default(),
            payload: "tiny".to_owned(),
            payload_bytes: 128,
            connections: 1,
            arrivals,
            streams: None,
            workers: 1,
            requests: None,
            measured_seconds: None,
            upstream: Default::default(),
            layer: Default::default(),
            features: Vec::new(),
            published: None,
            generator: "vanward".to_owned(),
        };
        let constant = Arrivals::Constant { rate_per_second: 700.0 };
        let mut earlier = results(&[(1, false)]);
        earlier.command = "vanward lab run p --repeats 2 --seed 1".to_owned();
        earlier.cases = vec![case(constant.clone())];
        let mut now = results(&[]);
        now.command = "vanward lab run p --seed 1".to_owned();
        now.conditions.rounds = 3;
        now.cases = vec![case(Arrivals::Closed)];
        take(earlier, &mut now).expect("they are alike but for the rounds");
        assert_eq!((now.cases, now.runs.len()), (vec![case(constant)], 1));
        assert_eq!((now.conditions.rounds, now.command.as_str()), (3, "vanward lab run p --seed 1"));
    }

    #[test]
    fn figures_that_are_not_alike_are_not_mixed() {
        let refused = |change: fn(&mut Results), said: &str| {
            let mut earlier = results(&[(1, false)]);
            change(&mut earlier);
            let mut now = results(&[]);
            let error = take(earlier, &mut now).expect_err("they are not alike").to_string();
            assert_eq!(now, results(&[]));
            assert!(error.contains(said) && error.contains("--out"), "{error}");
        };
        refused(
            |earlier| earlier.command = "vanward lab run x".to_owned(),
            "its command was `vanward lab run x`;",
        );
        refused(
            |earlier| earlier.command = "c --repeats 2 --seed 2".to_owned(),
            "its command was `c --repeats 2 --seed 2`;",
        );
        refused(
            |earlier| earlier.conditions.rounds = 3,
            "it was planned with 3 rounds, and this run with 2;",
        );
        refused(|earlier| earlier.measured_by = "vanward 0".to_owned(), "vanward 0, but this is vanward 1;");
        refused(|earlier| earlier.machine.processor = "y".to_owned(), "on y, 2 cores, k, but this is x, 2");
        refused(|earlier| earlier.machine.memory_bytes = 2, "settings of the machine have changed;");
        refused(|earlier| earlier.conditions.cores.load = vec![0], "it used other machines or cores;");
        refused(
            |earlier| earlier.proxies[0].version = "0".to_owned(),
            "it used p 0, but this machine has p 1;",
        );
    }
}
