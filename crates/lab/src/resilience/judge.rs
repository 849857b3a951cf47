//! Figures of phases, recovery, and the expectations of them. Pure: slots in, judgements out.

use load::Slot;
use report::condition::{Condition, Figure};
use report::resilience::{Expectation, Figures, Phase, Recovery, Run};

use crate::generator::errors_by_kind;
use crate::proxies::vanward;

/// Name of the whole run among the phases.
pub(crate) const WHOLE: &str = "whole run";
/// Bounds of a recovery that the first phase does not tighten: a share of errors, and a p99.
const ERRORS_LEAST: f64 = 0.01;
const P99_LEAST_US: u64 = 100_000;
/// How far a recovered proxy may be from its first phase.
const FACTOR: f64 = 2.0;

/// An expectation of a plan.
#[derive(Debug, Clone, PartialEq)]
pub struct Expect {
    /// As it was written, with the name of a proxy, if there is one.
    pub(crate) text: String,
    /// Proxy named in the text.
    pub(crate) named: Option<String>,
    /// Phases that it is about; empty for the whole run, or for every recovery.
    pub(crate) phases: Vec<String>,
    pub(crate) that: That,
}

/// What is expected.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum That {
    /// A condition on a figure.
    Holds(Condition),
    /// A recovery within so many seconds.
    RecoversWithin(f64),
}

impl Expect {
    /// Reads `errors < 0.1%`, `recovers within 2s`, or either with the name of a proxy before it.
    pub(crate) fn read(text: &str, phases: Vec<String>) -> Result<Self, String> {
        let (named, rest) = match text.split_once(':') {
            Some((name, rest)) => (Some(name.trim().to_owned()), rest.trim()),
            None => (None, text.trim()),
        };
        let that = match rest.strip_prefix("recovers") {
            Some(time) => {
                let time = time.trim().strip_prefix("within").map(str::trim);
                let time = time.ok_or("expected \"recovers within\" and a duration, such as 2s")?;
                That::RecoversWithin(report::quantity::duration(time)?.as_secs_f64())
            }
            None => That::Holds(condition(rest)?),
        };
        Ok(Self { text: text.trim().to_owned(), named, phases, that })
    }

    /// Why it is about no proxy of the plan, if it names one that is not there.
    pub(crate) fn unknown_proxy(&self, names: &[&str]) -> Option<String> {
        let named = self.named.as_deref().filter(|named| !names.contains(named))?;
        Some(format!(
            "the plan has no proxy {named:?}, of which {:?} is expected; it has {}",
            self.text,
            names.join(", ")
        ))
    }

    /// Whether a run fails without it for this proxy: the named one; otherwise Vanward; without Vanward, each.
    fn is_required_of(&self, proxy: &str, names: &[&str]) -> bool {
        match &self.named {
            Some(named) => named == proxy,
            None => proxy == vanward::DRIVER.name || !names.contains(&vanward::DRIVER.name),
        }
    }
}

/// A condition on a figure of slots.
pub(crate) fn condition(text: &str) -> Result<Condition, String> {
    let condition = Condition::parse(text).map_err(|error| format!("{error}, or \"recovers within 2s\""))?;
    match condition.figure() {
        Figure::Quantile(_) | Figure::Mean | Figure::Errors | Figure::ErrorShare | Figure::Rate => Ok(condition),
        Figure::Status(_) | Figure::StatusShare(_) => Err(
            "a resilience run counts no responses by status; expect something of errors, which have every status but 2xx \
             and 3xx"
                .to_owned(),
        ),
        Figure::CpuPerRequest | Figure::Memory => {
            Err("a resilience run measures neither CPU time nor memory; vanward lab run does".to_owned())
        }
        Figure::Stream(_) => Err("a resilience run measures no streams; vanward load does".to_owned()),
    }
}

/// Requests of a time, with its duration. Those that have no result at the end count as failed; `unanswered` are those that
/// no slot has.
#[derive(Debug, Clone, Default)]
pub(crate) struct Measured {
    pub(crate) slot: Slot,
    pub(crate) unanswered: u64,
    pub(crate) seconds: f64,
}

impl Measured {
    fn failed(&self) -> u64 {
        self.slot.errors.total() + self.slot.unanswered + self.unanswered
    }

    /// Value of a figure; `None` without a request that has one.
    fn value(&self, figure: Figure) -> Option<f64> {
        let all = self.failed() + self.slot.requests;
        match figure {
            Figure::Quantile(quantile) => self.slot.quantile_us(quantile).map(|us| us as f64),
            Figure::Mean => self.slot.mean_us(),
            Figure::Errors => (all > 0).then_some(self.failed() as f64),
            Figure::ErrorShare => (all > 0).then(|| self.failed() as f64 / all as f64),
            Figure::Rate => (self.seconds > 0.0).then(|| self.slot.requests as f64 / self.seconds),
            Figure::Status(_)
            | Figure::StatusShare(_)
            | Figure::CpuPerRequest
            | Figure::Memory
            | Figure::Stream(_) => None,
        }
    }

    /// The figures for the report.
    pub(crate) fn figures(&self, recovery: Option<Recovery>) -> Figures {
        let mut errors = errors_by_kind(&self.slot.errors);
        let unanswered = self.slot.unanswered + self.unanswered;
        if unanswered > 0 {
            errors.insert("unanswered".to_owned(), unanswered);
        }
        Figures {
            requests: self.slot.requests,
            errors,
            requests_per_second: self.value(Figure::Rate).unwrap_or_default(),
            p50_us: self.slot.quantile_us(0.5),
            p99_us: self.slot.quantile_us(0.99),
            max_us: self.slot.quantile_us(1.0),
            recovery,
        }
    }
}

/// The slots of a phase.
pub(crate) fn of_phase<'s>(slots: &'s [Slot], phase: &Phase, slot_seconds: f64) -> &'s [Slot] {
    let index = |seconds: f64| ((seconds / slot_seconds).round() as usize).min(slots.len());
    &slots[index(phase.from_seconds)..index(phase.until_seconds)]
}

/// Bounds of a recovery that follow from the first phase: twice its errors, at least 1%, and twice its p99, at least
/// 100 ms.
pub(crate) fn bounds(first: &Measured) -> Vec<Condition> {
    let share = first.value(Figure::ErrorShare).unwrap_or_default();
    let p99_us = first.slot.quantile_us(0.99).unwrap_or_default() as f64 * FACTOR;
    let texts = [
        format!("errors <= {:.3}%", (share * FACTOR).max(ERRORS_LEAST) * 100.0),
        format!("p99 <= {}us", (p99_us as u64).max(P99_LEAST_US)),
    ];
    // Made of numbers that are finite: each can be read.
    texts.iter().filter_map(|text| Condition::parse(text).ok()).collect()
}

/// The recovery in a phase: the first time from which the rest of it, taken together, meets all conditions. `None`
/// without requests.
pub(crate) fn recovery(
    slots: &[Slot],
    unanswered: u64,
    slot_seconds: f64,
    bounds: &[Condition],
) -> Option<Recovery> {
    let mut rest = Measured { unanswered, ..Measured::default() };
    let mut found = None;
    let mut has_requests = unanswered > 0;
    for (index, slot) in slots.iter().enumerate().rev() {
        rest.slot.merge(slot);
        rest.seconds += slot_seconds;
        if slot.requests + slot.errors.total() + slot.unanswered == 0 {
            continue;
        }
        has_requests = true;
        let is_met = |condition: &Condition| {
            rest.value(condition.figure()).is_some_and(|value| condition.is_met_by(value))
        };
        if bounds.iter().all(is_met) {
            found = Some(index);
        }
    }
    has_requests.then(|| {
        found.map_or(Recovery::Never, |index| Recovery::AfterSeconds(whole_ms(index as f64 * slot_seconds)))
    })
}

/// Without what floats add.
fn whole_ms(seconds: f64) -> f64 {
    (seconds * 1e3).round() / 1e3
}

/// Judges the expectations of one proxy. `measured` are its phases, then the whole run.
pub(crate) fn judge(
    expectations: &[Expect],
    names: &[&str],
    phases: &[Phase],
    run: &Run,
    measured: &[Measured],
) -> Vec<Expectation> {
    let mut judged = Vec::new();
    let about =
        expectations.iter().filter(|expect| expect.named.as_ref().is_none_or(|named| *named == run.proxy));
    for expect in about {
        for (index, name) in chosen(expect, phases) {
            let (told, is_met) = match &expect.that {
                That::Holds(condition) => {
                    let value = measured[index].value(condition.figure());
                    let is_met = value.is_some_and(|value| condition.is_met_by(value));
                    (value.map(|value| condition.told(value)), is_met)
                }
                That::RecoversWithin(limit) => match run.phases[index].recovery {
                    Some(Recovery::AfterSeconds(after)) => {
                        let told = report::resilience::recovery(Recovery::AfterSeconds(after));
                        (Some(told), after <= *limit)
                    }
                    Some(Recovery::Never) => (Some(report::resilience::recovery(Recovery::Never)), false),
                    None => (None, false),
                },
            };
            judged.push(Expectation {
                measured: told,
                is_met,
                ..missed(expect, &run.proxy, name, expect.is_required_of(&run.proxy, names))
            });
        }
    }
    judged
}

/// Expectations of a proxy that took no part: all of them are missed.
pub(crate) fn judge_absent(expectations: &[Expect], names: &[&str], proxy: &str) -> Vec<Expectation> {
    let required = expectations.iter().filter(|expect| expect.named.as_deref() == Some(proxy));
    required.map(|expect| missed(expect, proxy, WHOLE, expect.is_required_of(proxy, names))).collect()
}

fn missed(expect: &Expect, proxy: &str, phase: &str, is_required: bool) -> Expectation {
    Expectation {
        text: expect.text.clone(),
        proxy: proxy.to_owned(),
        phase: phase.to_owned(),
        measured: None,
        is_met: false,
        is_required,
    }
}

/// Index and name of the phases that an expectation is about. The whole run is behind the last.
fn chosen<'p>(expect: &'p Expect, phases: &'p [Phase]) -> Vec<(usize, &'p str)> {
    let numbered = phases.iter().enumerate();
    let is_chosen = |phase: &Phase| match (&expect.that, expect.phases.is_empty()) {
        (_, false) => expect.phases.contains(&phase.name),
        (That::RecoversWithin(_), true) => phase.recovers,
        (That::Holds(_), true) => false,
    };
    let mut chosen: Vec<_> = numbered
        .filter(|(_, phase)| is_chosen(phase))
        .map(|(index, phase)| (index, phase.name.as_str()))
        .collect();
    if expect.phases.is_empty() && matches!(expect.that, That::Holds(_)) {
        chosen.push((phases.len(), WHOLE));
    }
    chosen
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use load::ErrorClass;

    use super::*;

    /// A slot for each letter: good, slow, failing, empty; and `half`, which fails half of its requests.
    fn slots(letters: &str) -> Vec<Slot> {
        let slot = |letter: char| {
            let mut slot = Slot::default();
            for number in 0..10 {
                match letter {
                    'g' => slot.succeeded(Duration::from_millis(1)),
                    's' => slot.succeeded(Duration::from_millis(500)),
                    'f' => slot.failed(ErrorClass::Status),
                    'h' if number % 2 == 0 => slot.failed(ErrorClass::Read),
                    'h' => slot.succeeded(Duration::from_millis(1)),
                    _ => {}
                }
            }
            slot
        };
        letters.chars().map(slot).collect()
    }

    fn measured(letters: &str) -> Measured {
        let seconds = letters.len() as f64 * 0.1;
        Measured { slot: Slot::merged(&slots(letters)), unanswered: 0, seconds }
    }

    #[test]
    fn a_recovery_is_where_the_rest_is_within_its_bounds() {
        let bounds = bounds(&measured("gggg"));
        assert_eq!(
            bounds.iter().map(Condition::text).collect::<Vec<_>>(),
            ["errors <= 1.000%", "p99 <= 100000us"]
        );
        let cases = [
            ("gggggggggg", 0, Some(Recovery::AfterSeconds(0.0))),
            ("ffgggggggg", 0, Some(Recovery::AfterSeconds(0.2))),
            ("ffggggggsg", 0, Some(Recovery::AfterSeconds(0.9))),
            ("sssggggggg", 0, Some(Recovery::AfterSeconds(0.3))),
            ("hhhhhhhhhh", 0, Some(Recovery::Never)),
            ("gggggggggf", 0, Some(Recovery::Never)),
            // Requests that never came to an end are due in the last phase.
            ("gggggggggg", 50, Some(Recovery::Never)),
            ("f.........", 0, Some(Recovery::Never)),
            ("..........", 0, None),
            ("", 0, None),
        ];
        for (letters, unanswered, expected) in cases {
            assert_eq!(recovery(&slots(letters), unanswered, 0.1, &bounds), expected, "{letters}");
        }
        // One slow request in a thousand is within a p99.
        let mut long = slots(&"g".repeat(200));
        long[150].succeeded(Duration::from_secs(1));
        assert_eq!(recovery(&long, 0, 0.1, &bounds), Some(Recovery::AfterSeconds(0.0)));
    }

    #[test]
    fn bounds_follow_from_a_first_phase_that_is_worse() {
        let told = |letters: &str| {
            bounds(&measured(letters)).iter().map(|one| one.text().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(told("ggggh")[0], "errors <= 20.000%");
        assert_eq!(told("f")[1], "p99 <= 100000us");
        assert!(told("s")[1].starts_with("p99 <= 10"), "{:?}", told("s"));
    }

    fn phase(name: &str, from_seconds: f64, until_seconds: f64, recovers: bool) -> Phase {
        Phase { name: name.to_owned(), from_seconds, until_seconds, due_per_second: 100.0, recovers }
    }

    #[test]
    fn phases_take_their_own_slots() {
        let slots = slots("ggffs");
        let told =
            |from, until| Slot::merged(of_phase(&slots, &phase("p", from, until, false), 0.1)).errors.total();
        assert_eq!(
            [told(0.0, 0.2), told(0.2, 0.3), told(0.2, 0.4), told(0.4, 9.0), told(7.0, 9.0)],
            [0, 10, 20, 0, 0]
        );
    }

    #[test]
    fn expectations_are_judged_by_phase_and_for_all() {
        let phases = [phase("steady", 0.0, 0.4, false), phase("dead", 0.4, 1.0, true)];
        let all = slots("ggggffgggg");
        let measured = [measured("gggg"), measured("ffgggg"), measured("ggggffgggg")];
        let recovered = recovery(of_phase(&all, &phases[1], 0.1), 0, 0.1, &bounds(&measured[0]));
        let run = |name: &str| Run {
            proxy: name.to_owned(),
            version: String::new(),
            command: String::new(),
            files: Vec::new(),
            whole: measured[2].figures(None),
            phases: vec![measured[0].figures(None), measured[1].figures(recovered)],
            recovered: Vec::new(),
            slots: Vec::new(),
            error_examples: BTreeMap::new(),
            remarks: Vec::new(),
            problems: Vec::new(),
        };
        let read = |text: &str, phase: &str| {
            let phases = if phase.is_empty() { Vec::new() } else { vec![phase.to_owned()] };
            Expect::read(text, phases).expect(text)
        };
        let expectations = [
            read("errors = 0", "steady"),
            read("errors = 0", ""),
            read("errors < 25%", ""),
            read("p99 < 100ms", "dead"),
            read("recovers within 200ms", ""),
            read("recovers within 100ms", "dead"),
            read("nginx: rate > 1000/s", ""),
        ];
        let told = |name: &str, names: &[&str]| {
            let judged = judge(&expectations, names, &phases, &run(name), &measured);
            judged.into_iter().map(|each| (each.phase, each.is_met, each.is_required)).collect::<Vec<_>>()
        };
        let expected = [
            ("steady", true),
            ("whole run", false),
            ("whole run", true),
            ("dead", true),
            ("dead", true),
            ("dead", false),
        ];
        let of = |is_required: bool| {
            expected.map(|(phase, is_met)| (phase.to_owned(), is_met, is_required)).to_vec()
        };
        assert_eq!(told("vanward", &["vanward", "mine"]), of(true));
        assert_eq!(told("mine", &["vanward", "mine"]), of(false));
        assert_eq!(told("mine", &["mine"]), of(true));
        let named = told("nginx", &["vanward", "nginx"]);
        assert_eq!(named[6], ("whole run".to_owned(), false, true));
        assert_eq!(judge_absent(&expectations, &["vanward"], "nginx").len(), 1);
        let judged = judge(&expectations, &["vanward"], &phases, &run("vanward"), &measured);
        assert_eq!(judged[1].measured.as_deref(), Some("20"));
        assert_eq!(judged[5].measured.as_deref(), Some("after 0.2 s"));
    }

    #[test]
    fn errors_are_told_by_kind() {
        let mut measured = measured("gfh");
        measured.unanswered = 3;
        let figures = measured.figures(None);
        let told: Vec<_> = figures.errors.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        assert_eq!(told, ["5 read", "10 status", "3 unanswered"]);
        assert_eq!((figures.requests, figures.failed()), (15, 18));
    }

    #[test]
    fn what_a_run_does_not_measure_is_refused() {
        let refused = |text: &str| Expect::read(text, Vec::new()).expect_err(text);
        assert!(refused("5xx = 0").contains("by status"));
        assert!(refused("memory < 1MB").contains("vanward lab run"));
        assert!(refused("recovers in 2s").contains("recovers within"));
        assert!(refused("recovers within 2").contains("is not a duration"));
        assert!(refused("errros = 0").contains("did you mean \"errors\"?"));
    }
}
