//! Figures of phases, recovery, and the expectations of them. Pure: slots in, judgements out.

use std::time::Duration;

use load::TimelineSlot;
use report::condition::{ConditionFigure, FigureCondition};
use report::resilience::{Figures, Phase, PhaseExpectation, Recovery, ResilienceRun};

use crate::generator::errors_by_kind;
use crate::proxies::vanward;

/// The expectation that every plan has: the proxy does not exit.
const RUNS_ON: &str = "the proxy keeps running";
/// The measured value of a phase in which an event of the plan did not happen, or a fault affected nothing.
const UNTESTED: &str = "not tested";
pub(crate) const WHOLE: &str = "whole run";
/// Minimum bounds of a recovery: a share of errors, and a p99.
const ERRORS_LEAST: f64 = 0.01;
const P99_LEAST_US: u64 = 100_000;
/// Above this share of errors a proxy has not recovered, even if the first phase was worse.
const ERRORS_MOST: f64 = 0.5;
/// Allowed ratio between a recovered proxy and its first phase.
const FACTOR: f64 = 2.0;

#[derive(Debug, Clone, PartialEq)]
pub struct Expect {
    /// As it was written, with the name of a proxy, if there is one.
    pub(crate) text: String,
    pub(crate) named: Option<String>,
    /// Its phases; empty for the whole run, or for every recovery.
    pub(crate) phases: Vec<String>,
    pub(crate) that: That,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum That {
    Holds(FigureCondition),
    RecoversWithin(f64),
}

impl Expect {
    /// Parses `errors < 0.1%`, `recovers within 2s`, or either with the name of a proxy before it.
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

    /// Error if the expectation names a proxy that is not in the plan.
    pub(crate) fn unknown_proxy(&self, names: &[&str]) -> Option<String> {
        let named = self.named.as_deref().filter(|named| !names.contains(named))?;
        Some(format!(
            "the plan has no proxy {named:?}, which {:?} names; it has {}",
            self.text,
            names.join(", ")
        ))
    }

    /// Error if it expects a recovery, but the plan has none.
    pub(crate) fn unjudged(&self, phases: &[Phase]) -> Option<String> {
        let That::RecoversWithin(_) = self.that else { return None };
        let text = &self.text;
        if self.phases.is_empty() {
            let is_none = phases.iter().all(|phase| !phase.recovers);
            return is_none.then(|| {
                format!(
                    "{text:?}: no phase of the plan begins with the end of a fault or with a recovery event; choose \
                     the phases with phase"
                )
            });
        }
        let first = phases.first().filter(|first| self.phases.contains(&first.name))?;
        Some(format!(
            "{text:?}: the first phase, {:?}, has nothing to recover from: no fault or event precedes it",
            first.name
        ))
    }

    fn is_about(&self, proxy: &str) -> bool {
        self.named.as_ref().is_none_or(|named| named == proxy)
    }

    /// Whether a run fails without it for this proxy: the named one; otherwise Vanward; without Vanward, each.
    fn is_required_of(&self, proxy: &str, names: &[&str]) -> bool {
        match &self.named {
            Some(named) => named == proxy,
            None => is_required(proxy, names),
        }
    }
}

/// Whether a run fails for this proxy by default: Vanward; without Vanward, each.
fn is_required(proxy: &str, names: &[&str]) -> bool {
    proxy == vanward::DRIVER.name || !names.contains(&vanward::DRIVER.name)
}

/// Whether a run can fail because of this proxy.
pub(crate) fn is_judged(expectations: &[Expect], proxy: &str, names: &[String]) -> bool {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    is_required(proxy, &names) || expectations.iter().any(|one| one.named.as_deref() == Some(proxy))
}

/// Events beside the load: the end of the proxy, and phases that were not tested.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lived {
    /// When the proxy ended unplanned, after the start of the load.
    pub(crate) died: Option<Duration>,
    /// Indices of the phases that were not tested.
    pub(crate) untested: Vec<usize>,
}

/// Parses a condition on a figure that slots have.
pub(crate) fn condition(text: &str) -> Result<FigureCondition, String> {
    let condition =
        FigureCondition::parse(text).map_err(|error| format!("{error}, or \"recovers within 2s\""))?;
    match condition.figure() {
        ConditionFigure::Quantile(_) | ConditionFigure::Mean | ConditionFigure::Errors | ConditionFigure::ErrorShare | ConditionFigure::Rate => Ok(condition),
        ConditionFigure::Status(_) | ConditionFigure::StatusShare(_) => Err(
            "a resilience run does not count responses by status; write a condition on errors: every status except \
             2xx and 3xx"
                .to_owned(),
        ),
        ConditionFigure::CpuPerRequest | ConditionFigure::Memory => {
            Err("a resilience run measures neither CPU time nor memory; vanward lab run does".to_owned())
        }
        ConditionFigure::Stream(_) => Err("a resilience run measures no streams; vanward load does".to_owned()),
    }
}

/// Requests of a time, with its duration. Those without a result count as failed; `unanswered` are in no slot.
#[derive(Debug, Clone, Default)]
pub(crate) struct MeasuredTime {
    pub(crate) slot: TimelineSlot,
    pub(crate) unanswered: u64,
    pub(crate) seconds: f64,
}

impl MeasuredTime {
    fn failed(&self) -> u64 {
        self.slot.errors.total() + self.slot.unanswered + self.unanswered
    }

    /// Value of a figure; `None` without a request that has one.
    fn value(&self, figure: ConditionFigure) -> Option<f64> {
        let all = self.failed() + self.slot.requests;
        match figure {
            ConditionFigure::Quantile(quantile) => self.slot.quantile_us(quantile).map(|us| us as f64),
            ConditionFigure::Mean => self.slot.mean_us(),
            ConditionFigure::Errors => (all > 0).then_some(self.failed() as f64),
            ConditionFigure::ErrorShare => (all > 0).then(|| self.failed() as f64 / all as f64),
            ConditionFigure::Rate => (self.seconds > 0.0).then(|| self.slot.requests as f64 / self.seconds),
            ConditionFigure::Status(_)
            | ConditionFigure::StatusShare(_)
            | ConditionFigure::CpuPerRequest
            | ConditionFigure::Memory
            | ConditionFigure::Stream(_) => None,
        }
    }

    pub(crate) fn figures(&self, recovery: Option<Recovery>) -> Figures {
        let mut errors = errors_by_kind(&self.slot.errors);
        let unanswered = self.slot.unanswered + self.unanswered;
        if unanswered > 0 {
            errors.insert("unanswered".to_owned(), unanswered);
        }
        Figures {
            requests: self.slot.requests,
            errors,
            requests_per_second: self.value(ConditionFigure::Rate).unwrap_or_default(),
            p50_us: self.slot.quantile_us(0.5),
            p99_us: self.slot.quantile_us(0.99),
            max_us: self.slot.quantile_us(1.0),
            recovery,
        }
    }
}

pub(crate) fn of_phase<'s>(
    slots: &'s [TimelineSlot],
    phase: &Phase,
    slot_seconds: f64,
) -> &'s [TimelineSlot] {
    let index = |seconds: f64| ((seconds / slot_seconds).round() as usize).min(slots.len());
    &slots[index(phase.from_seconds)..index(phase.until_seconds)]
}

/// Bounds of a recovery from the first phase: twice its errors, from 1% to 50%, and twice its p99, from 100 ms.
pub(crate) fn bounds(first: &MeasuredTime) -> Vec<FigureCondition> {
    let share = first.value(ConditionFigure::ErrorShare).unwrap_or_default();
    let p99_us = first.slot.quantile_us(0.99).unwrap_or_default() as f64 * FACTOR;
    let texts = [
        format!("errors <= {:.3}%", (share * FACTOR).clamp(ERRORS_LEAST, ERRORS_MOST) * 100.0),
        format!("p99 <= {}us", (p99_us as u64).max(P99_LEAST_US)),
    ];
    // The numbers are finite, so every text can be parsed.
    texts.iter().filter_map(|text| FigureCondition::parse(text).ok()).collect()
}

/// The first time from which the rest of a phase, taken together, meets all conditions. `None` without requests.
pub(crate) fn recovery(
    slots: &[TimelineSlot],
    unanswered: u64,
    slot_seconds: f64,
    bounds: &[FigureCondition],
) -> Option<Recovery> {
    let mut rest = MeasuredTime { unanswered, ..MeasuredTime::default() };
    let mut found = None;
    let mut has_requests = unanswered > 0;
    for (index, slot) in slots.iter().enumerate().rev() {
        rest.slot.merge(slot);
        rest.seconds += slot_seconds;
        if slot.requests + slot.errors.total() + slot.unanswered == 0 {
            continue;
        }
        has_requests = true;
        let is_met = |condition: &FigureCondition| {
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

/// Removes rounding errors.
fn whole_ms(seconds: f64) -> f64 {
    (seconds * 1e3).round() / 1e3
}

/// Judges one proxy's expectations, or counts them as missed. `measured` has its phases, then the whole run.
pub(crate) fn judge(
    expectations: &[Expect],
    names: &[&str],
    phases: &[Phase],
    run: &ResilienceRun,
    measured: &[MeasuredTime],
    lived: &Lived,
) -> Vec<PhaseExpectation> {
    let mut judged = Vec::new();
    for expect in expectations.iter().filter(|expect| expect.is_about(&run.proxy)) {
        for (index, name) in chosen(expect, phases) {
            let (told, is_met) = match &expect.that {
                _ if lived.untested.contains(&index) => (Some(UNTESTED.to_owned()), false),
                That::Holds(condition) => {
                    let value = measured[index].value(condition.figure());
                    let is_met = value.is_some_and(|value| condition.is_met_by(value));
                    (value.map(|value| condition.told(value)), is_met)
                }
                That::RecoversWithin(limit) => match run.phases.get(index).and_then(|phase| phase.recovery) {
                    Some(Recovery::AfterSeconds(after)) => {
                        let told = report::resilience::recovery(Recovery::AfterSeconds(after));
                        (Some(told), after <= *limit)
                    }
                    Some(Recovery::Never) => (Some(report::resilience::recovery(Recovery::Never)), false),
                    None => (None, false),
                },
            };
            judged.push(PhaseExpectation {
                measured: told,
                is_met,
                ..missed(expect, &run.proxy, name, expect.is_required_of(&run.proxy, names))
            });
        }
    }
    judged.extend(lived.died.map(|after| PhaseExpectation {
        text: RUNS_ON.to_owned(),
        proxy: run.proxy.clone(),
        phase: WHOLE.to_owned(),
        measured: Some(format!("died after {:.1} s", after.as_secs_f64())),
        is_met: false,
        is_required: is_required(&run.proxy, names),
    }));
    judged
}

/// Expectations of a proxy that took no part: all that are required of it are missed.
pub(crate) fn judge_absent(
    expectations: &[Expect],
    names: &[&str],
    phases: &[Phase],
    proxy: &str,
) -> Vec<PhaseExpectation> {
    let required =
        expectations.iter().filter(|expect| expect.is_about(proxy) && expect.is_required_of(proxy, names));
    required
        .flat_map(|expect| {
            chosen(expect, phases).into_iter().map(|(_, name)| missed(expect, proxy, name, true))
        })
        .collect()
}

fn missed(expect: &Expect, proxy: &str, phase: &str, is_required: bool) -> PhaseExpectation {
    PhaseExpectation {
        text: expect.text.clone(),
        proxy: proxy.to_owned(),
        phase: phase.to_owned(),
        measured: None,
        is_met: false,
        is_required,
    }
}

/// Index and name of the expectation's phases. The whole run comes after the last.
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
    // An expectation without phases is about the whole run, which has no recovery.
    if chosen.is_empty() {
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
    fn slots(letters: &str) -> Vec<TimelineSlot> {
        let slot = |letter: char| {
            let mut slot = TimelineSlot::default();
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

    fn measured(letters: &str) -> MeasuredTime {
        let seconds = letters.len() as f64 * 0.1;
        MeasuredTime { slot: TimelineSlot::merged(&slots(letters)), unanswered: 0, seconds }
    }

    #[test]
    fn a_recovery_is_where_the_rest_is_within_its_bounds() {
        let bounds = bounds(&measured("gggg"));
        assert_eq!(
            bounds.iter().map(FigureCondition::text).collect::<Vec<_>>(),
            ["errors <= 1.000%", "p99 <= 100000us"]
        );
        let cases = [
            ("gggggggggg", 0, Some(Recovery::AfterSeconds(0.0))),
            ("ffgggggggg", 0, Some(Recovery::AfterSeconds(0.2))),
            ("ffggggggsg", 0, Some(Recovery::AfterSeconds(0.9))),
            ("sssggggggg", 0, Some(Recovery::AfterSeconds(0.3))),
            ("hhhhhhhhhh", 0, Some(Recovery::Never)),
            ("gggggggggf", 0, Some(Recovery::Never)),
            // Unfinished requests are due in the last phase.
            ("gggggggggg", 50, Some(Recovery::Never)),
            ("f.........", 0, Some(Recovery::Never)),
            ("..........", 0, None),
            ("", 0, None),
        ];
        for (letters, unanswered, expected) in cases {
            assert_eq!(recovery(&slots(letters), unanswered, 0.1, &bounds), expected, "{letters}");
        }
        // One slow request in a thousand does not affect a p99.
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
        assert_eq!(told("f"), ["errors <= 50.000%", "p99 <= 100000us"]);
        assert!(told("s")[1].starts_with("p99 <= 10"), "{:?}", told("s"));
    }

    fn phase(name: &str, from_seconds: f64, until_seconds: f64, recovers: bool) -> Phase {
        Phase { name: name.to_owned(), from_seconds, until_seconds, due_per_second: 100.0, recovers }
    }

    #[test]
    fn phases_take_their_own_slots() {
        let slots = slots("ggffs");
        let told = |from, until| {
            TimelineSlot::merged(of_phase(&slots, &phase("p", from, until, false), 0.1)).errors.total()
        };
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
        let run = |name: &str| ResilienceRun {
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
            let judged = judge(&expectations, names, &phases, &run(name), &measured, &Lived::default());
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
        assert_eq!(judge_absent(&expectations, &["vanward"], &phases, "nginx").len(), 1);
        let judged =
            judge(&expectations, &["vanward"], &phases, &run("vanward"), &measured, &Lived::default());
        assert_eq!(judged[1].measured.as_deref(), Some("20"));
        assert_eq!(judged[5].measured.as_deref(), Some("after 0.2 s"));
    }

    #[test]
    fn what_was_not_tested_and_a_proxy_that_died_are_not_met() {
        let phases = [phase("steady", 0.0, 0.4, false), phase("dead", 0.4, 1.0, true)];
        let measured = [measured("gggg"), measured("gggggg"), measured("gggggggggg")];
        let figures = |one: &MeasuredTime| one.figures(Some(Recovery::AfterSeconds(0.0)));
        let run = ResilienceRun {
            proxy: "nginx".to_owned(),
            version: String::new(),
            command: String::new(),
            files: Vec::new(),
            whole: figures(&measured[2]),
            phases: measured[..2].iter().map(figures).collect(),
            recovered: Vec::new(),
            slots: Vec::new(),
            error_examples: BTreeMap::new(),
            remarks: Vec::new(),
            problems: Vec::new(),
        };
        let read = |text: &str, phase: &str| Expect::read(text, vec![phase.to_owned()]).expect(text);
        let expectations =
            [read("errors = 0", "dead"), read("recovers within 1s", "dead"), read("errors = 0", "steady")];
        let told = |lived: &Lived, names: &[&str]| {
            let judged = judge(&expectations, names, &phases, &run, &measured, lived);
            judged.into_iter().map(|one| (one.is_met, one.measured, one.is_required)).collect::<Vec<_>>()
        };
        let some = |text: &str| Some(text.to_owned());
        let alone = &["nginx"][..];
        assert!(told(&Lived::default(), alone).iter().all(|(is_met, ..)| *is_met));
        let untested = Lived { untested: vec![1], died: None };
        let expected =
            [(false, some(UNTESTED), true), (false, some(UNTESTED), true), (true, some("0"), true)];
        assert_eq!(told(&untested, alone), expected);
        let died = Lived { untested: Vec::new(), died: Some(Duration::from_millis(1300)) };
        assert_eq!(told(&died, alone)[3], (false, some("died after 1.3 s"), true));
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert!(is_judged(&expectations, "nginx", &owned(alone)));
        assert!(!is_judged(&expectations, "nginx", &owned(&["vanward", "nginx"])));
        let named = [Expect::read("nginx: errors = 0", Vec::new()).expect("it names one")];
        assert!(is_judged(&named, "nginx", &owned(&["vanward", "nginx"])));
        // For proxies other than Vanward, it is only reported.
        assert!(!told(&died, &["vanward", "nginx"])[3].2);
        // A proxy that is not installed meets none of its expectations.
        let absent = judge_absent(&expectations, alone, &phases, "nginx");
        assert!(absent.len() == 3 && absent.iter().all(|one| !one.is_met && one.is_required), "{absent:?}");
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
