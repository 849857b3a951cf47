//! Plans of resilience runs: a separate kind of file, read like the others, with all mistakes before anything starts.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use mistake::{LineMap, Mistake, nearest};
use serde::Deserialize;
use toml::Spanned;

use super::own_services::{RawCommand, RawOrigin, RawTarget};
use super::values::{Each, ValueSpan};
use super::{NamedProxies, check_proxies, every, wanted};
use crate::agent::words::WantedProxies;
use crate::plan::{OriginPayload, OriginSource};
use crate::proxies::direct;
use crate::resilience::{
    Action, At, DURATION_MAX, Expect, FaultKind, FaultPlace, PlanEvent, PlanFault, ResiliencePlan, SLOT,
    condition,
};

/// The proxy's grammar, which only the caller knows.
#[derive(Debug, Clone, Copy)]
pub struct Grammar {
    /// Describes a mistake in a fault.
    pub fault: fn(&str) -> Result<(), String>,
    /// Names of the profiles of slow links.
    pub profiles: &'static [&'static str],
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawResilience {
    title: Option<String>,
    #[serde(default)]
    proxies: Vec<Spanned<String>>,
    #[serde(default)]
    command: BTreeMap<Spanned<String>, RawCommand>,
    #[serde(default)]
    target: BTreeMap<Spanned<String>, RawTarget>,
    #[serde(default)]
    program: BTreeMap<Spanned<String>, PathBuf>,
    origins: Option<Spanned<NonZeroUsize>>,
    origin: Option<Spanned<RawOrigin>>,
    capacity: Option<NonZeroUsize>,
    rate: Option<Spanned<f64>>,
    #[serde(default = "connections")]
    connections: NonZeroUsize,
    #[serde(default = "payload")]
    payload: Spanned<String>,
    #[serde(default = "workers")]
    workers: NonZeroUsize,
    #[serde(default = "two_seconds")]
    timeout: ValueSpan,
    responses: Option<load::Responses>,
    #[serde(default = "one_second")]
    server_timeout: ValueSpan,
    duration: Option<Spanned<ValueSpan>>,
    #[serde(default = "half_a_second")]
    warm_up: ValueSpan,
    #[serde(default)]
    event: Vec<Spanned<RawEvent>>,
    #[serde(default)]
    fault: Vec<Spanned<RawFault>>,
    #[serde(default)]
    expect: Vec<Spanned<RawExpect>>,
    #[serde(default)]
    recovered: Vec<Spanned<String>>,
    quick: Option<RawQuick>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawEvent {
    at: Spanned<ValueSpan>,
    every: Option<Spanned<ValueSpan>>,
    until: Option<Spanned<ValueSpan>>,
    #[serde(rename = "do")]
    action: Spanned<String>,
    phase: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFault {
    from: Spanned<ValueSpan>,
    until: Spanned<ValueSpan>,
    inject: Option<Spanned<String>>,
    profile: Option<Spanned<String>>,
    on: Option<Spanned<String>>,
    phase: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawExpect {
    phase: Option<Spanned<Each<String>>>,
    that: Spanned<Each<String>>,
}

/// Changes by `--quick`.
#[derive(Deserialize, Clone, Copy)]
#[serde(deny_unknown_fields)]
struct RawQuick {
    times: f64,
}

fn connections() -> NonZeroUsize {
    const { NonZeroUsize::new(50).expect("not zero") }
}

/// Whether `vanward origin` delays its response to a path.
fn takes_time(path: &str) -> bool {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    path.starts_with("/delay/") || query.split('&').any(|option| option.starts_with("delay="))
}

fn payload() -> Spanned<String> {
    Spanned::new(0..0, "tiny".to_owned())
}

fn workers() -> NonZeroUsize {
    const { NonZeroUsize::new(2).expect("not zero") }
}

fn half_a_second() -> ValueSpan {
    ValueSpan(Duration::from_millis(500))
}

fn one_second() -> ValueSpan {
    ValueSpan(Duration::from_secs(1))
}

fn two_seconds() -> ValueSpan {
    ValueSpan(Duration::from_secs(2))
}

impl ResiliencePlan {
    /// Reads the text of `file`. With `quick`, its times are multiplied by `times` of its `[quick]`.
    ///
    /// # Errors
    /// Every mistake, in the order of the file.
    pub fn read(text: &str, file: &str, quick: bool, grammar: Grammar) -> Result<Self, Vec<Mistake>> {
        let mut every = every::read::<RawResilience>(text, file);
        let mut mistakes = std::mem::take(&mut every.mistakes);
        let is_whole = mistakes.is_empty();
        let Some(raw) = every.value.take() else { return Err(mistakes) };
        let places = LineMap::new(text, file);
        let there =
            [raw.title.is_some(), !raw.proxies.is_empty(), raw.rate.is_some(), raw.duration.is_some()];
        for (key, is_there) in ["title", "proxies", "rate", "duration"].into_iter().zip(there) {
            if !is_there && every.lacks(key) {
                mistakes.push(places.mistake(&(0..0), format!("the plan has no {key}")));
            }
        }
        let mut refuse = |at: Range<usize>, message: String| mistakes.push(places.mistake(&at, message));
        let read = raw.read(file, (quick, is_whole), grammar, &mut refuse);
        mistakes.sort_by_key(|mistake| (mistake.line, mistake.column));
        match read {
            Some(plan) if mistakes.is_empty() => Ok(plan),
            _ => Err(mistakes),
        }
    }
}

type Refuse<'r> = &'r mut dyn FnMut(Range<usize>, String);

impl RawResilience {
    /// The plan; `None` if a required part is missing.
    fn read(
        self,
        file: &str,
        (quick, is_whole): (bool, bool),
        grammar: Grammar,
        refuse: Refuse<'_>,
    ) -> Option<ResiliencePlan> {
        let Self { proxies, command, target, program, .. } = &self;
        check_proxies(&NamedProxies { proxies, command, target, program }, refuse);
        if let Some(name) = proxies.iter().find(|name| name.get_ref() == direct::DRIVER.name) {
            refuse(name.span(), "\"direct\" has no proxy that could recover; leave it out".to_owned());
        }
        let clock = self.clock(quick, refuse);
        if let Some(rate) = &self.rate
            && !(rate.get_ref().is_finite() && *rate.get_ref() > 0.0)
        {
            refuse(rate.span(), "a rate is a number of requests/s above 0".to_owned());
        }
        let origins = RawOrigin::plan(self.origin.as_ref(), self.origins.as_ref(), file, refuse);
        if let (Some(_), Some(origin)) = (&origins.tls, &self.origin) {
            refuse(
                origin.span(),
                "resilience runs reach origins without TLS; expected http:// URLs".to_owned(),
            );
        }
        for ca in self.target.values().filter_map(|target| target.ca.as_ref()) {
            let message = "resilience runs trust only the system's certificate authorities; leave out ca";
            refuse(ca.span(), message.to_owned());
        }
        if origins.is_own()
            && let Err(message) = origin::serves(&OriginPayload::from_written(self.payload.get_ref()).path)
        {
            refuse(self.payload.span(), format!("payload {:?}: {message}", self.payload.get_ref()));
        }
        let mut payload = OriginPayload::from_written(self.payload.get_ref());
        payload.bytes = payload.bytes.filter(|_| origins.is_own());
        let events = self.event.iter().filter_map(|event| event.get_ref().event(clock, refuse)).collect();
        let faults = self.fault.iter().filter_map(|fault| fault_of(fault, clock, grammar, refuse)).collect();
        let recovered = self.recovered.iter().filter_map(|text| {
            condition(text.get_ref()).map_err(|message| refuse(text.span(), message)).ok()
        });
        let recovered = recovered.collect();
        let mut plan = ResiliencePlan {
            title: self.title.clone()?,
            wanted: WantedProxies::default(),
            origins,
            capacity: self.capacity,
            workers: self.workers,
            server_timeout: self.server_timeout.0,
            rate: *self.rate.as_ref()?.get_ref(),
            connections: self.connections,
            payload,
            timeout: self.timeout.0,
            responses: self.responses.unwrap_or(load::Responses::Same),
            duration: clock.end,
            warm_up: self.warm_up.0,
            events,
            faults,
            expectations: Vec::new(),
            recovered,
        };
        if is_whole {
            self.check_origins(&plan, refuse);
            self.check_links(&plan, refuse);
            plan.expectations = self.expectations(&plan, refuse);
        }
        let tables = (self.command, self.target, self.program);
        plan.wanted = wanted(self.proxies, tables, BTreeMap::new());
        Some(plan)
    }

    /// The conversion of the file's times to times of the run.
    fn clock(&self, quick: bool, refuse: Refuse<'_>) -> PlanTimes {
        let times = self.quick.map_or(1.0, |quick| quick.times);
        if !(times > 0.0 && times <= 1.0) {
            refuse(
                0..0,
                format!(
                    "quick.times = {times} is not a fraction of the plan's times; expected 0 to 1, such as 0.25"
                ),
            );
        }
        let clock = PlanTimes { times: if quick { times } else { 1.0 }, end: Duration::MAX };
        let Some(duration) = &self.duration else { return clock };
        let end = clock.for_written(duration.get_ref().0);
        if end < SLOT || end > DURATION_MAX {
            refuse(
                duration.span(),
                format!("a resilience run takes from {SLOT:?} to {DURATION_MAX:?} for each proxy"),
            );
        }
        PlanTimes { end, ..clock }
    }

    /// Reports events and faults on origins that do not exist, or are in the wrong state.
    fn check_origins(&self, plan: &ResiliencePlan, refuse: Refuse<'_>) {
        if plan.capacity.is_some() && plan.origins.is_own() && !takes_time(&plan.payload.path) {
            let message = "capacity has an effect only on requests that take time; expected a payload such as \
                           /delay/50ms";
            refuse(self.payload.span(), message.to_owned());
        }
        let count = plan.origin_count();
        let there = |origin: usize| -> Result<(), String> {
            (origin <= count).then_some(()).ok_or_else(|| match count {
                1 => "the plan has one origin".to_owned(),
                _ => format!("the plan has {count} origins"),
            })
        };
        for (raw, fault) in self.fault.iter().zip(&plan.faults) {
            if let FaultPlace::Origin(origin) = fault.place
                && let Err(message) = there(origin)
            {
                refuse(raw.get_ref().on.as_ref().map_or(raw.span(), Spanned::span), message);
            }
        }
        if plan.events.len() != self.event.len() {
            return;
        }
        let mut order: Vec<_> = self.event.iter().zip(&plan.events).collect();
        order.sort_by_key(|(_, event)| event.at.from);
        // Whether each is alive, and whether it is paused.
        let mut states = vec![(true, false); count];
        for (raw, event) in order {
            let Some(origin) = event.action.origin() else { continue };
            let at = raw.get_ref().action.span();
            if matches!(plan.origins.source, OriginSource::Running(_)) {
                let message =
                    "the lab cannot stop the servers of url in [origin], because it did not start them";
                refuse(at, message.to_owned());
            } else if let Err(message) = there(origin) {
                refuse(at, message);
            } else if let Err(message) = next_state(&mut states[origin - 1], event.action) {
                refuse(at, format!("origin {origin} {message}"));
            }
        }
    }

    /// Reports links that never apply.
    fn check_links(&self, plan: &ResiliencePlan, refuse: Refuse<'_>) {
        if plan.faults.len() != self.fault.len() {
            return;
        }
        for (index, raw) in self.fault.iter().enumerate() {
            if let Some(later) = plan.hiding(index) {
                refuse(
                    raw.span(),
                    format!("{later}, further down, overrides this link during its whole time"),
                );
            }
        }
    }

    fn expectations(&self, plan: &ResiliencePlan, refuse: Refuse<'_>) -> Vec<Expect> {
        let planned = plan.phases();
        let phases: Vec<String> = planned.iter().map(|phase| phase.name.clone()).collect();
        let names: Vec<&str> = self.proxies.iter().map(|name| name.get_ref().as_str()).collect();
        let mut expectations = Vec::new();
        for raw in &self.expect {
            let RawExpect { phase, that } = raw.get_ref();
            let about = phase.as_ref().map(|phase| phase.get_ref().0.clone()).unwrap_or_default();
            let at = phase.as_ref().map_or(raw.span(), Spanned::span);
            for name in about.iter().filter(|name| !phases.contains(name)) {
                let meant = nearest(name, phases.iter().map(String::as_str));
                let meant = meant.map(|meant| format!("; did you mean {meant:?}?")).unwrap_or_default();
                let message =
                    format!("there is no phase {name:?}{meant}; the plan has {}", phases.join(", "));
                refuse(at.clone(), message);
            }
            if phase.is_some() && about.is_empty() {
                refuse(at, "no phase is named: leave phase out for the whole run".to_owned());
            }
            if that.get_ref().0.is_empty() {
                let message = "the expectation has no condition; write one, such as \"errors < 1%\"";
                refuse(that.span(), message.to_owned());
            }
            for text in &that.get_ref().0 {
                match Expect::read(text, about.clone()) {
                    Ok(expect) => match expect.unknown_proxy(&names).or(expect.unjudged(&planned)) {
                        Some(message) => refuse(that.span(), message),
                        None => expectations.push(expect),
                    },
                    Err(message) => refuse(that.span(), message),
                }
            }
        }
        expectations
    }
}

/// Updates whether an origin is alive, and whether it is paused. Fails if the action is impossible.
fn next_state(state: &mut (bool, bool), action: Action) -> Result<(), &'static str> {
    *state = match (action, *state) {
        (Action::Kill(_), (true, _)) => (false, false),
        (Action::Kill(_), (false, _)) => return Err("has already been killed at that time"),
        (Action::Start(_), (false, _)) => (true, false),
        (Action::Start(_), (true, _)) => return Err("is running at that time; expected \"kill\" before it"),
        (Action::Pause(_), (true, false)) => (true, true),
        (Action::Pause(_), _) => return Err("is not running at that time"),
        (Action::Resume(_), (true, true)) => (true, false),
        (Action::Resume(_), _) => return Err("is not paused at that time"),
        (_, state) => state,
    };
    Ok(())
}

/// Converts times of the file, and has the end of the run.
#[derive(Clone, Copy)]
struct PlanTimes {
    times: f64,
    end: Duration,
}

impl PlanTimes {
    /// A time of the run: in whole slots, and at least one.
    fn for_written(self, written: Duration) -> Duration {
        let slots = (written.as_secs_f64() * self.times / SLOT.as_secs_f64()).round().max(1.0);
        SLOT.mul_f64(slots)
    }

    fn within(self, written: &Spanned<ValueSpan>, refuse: Refuse<'_>) -> Duration {
        let given = written.get_ref().0;
        let at = self.for_written(given);
        if given.is_zero() || !given.as_millis().is_multiple_of(SLOT.as_millis()) {
            refuse(written.span(), format!("a time must be a multiple of {SLOT:?}, and at least that long"));
        } else if at > self.end {
            refuse(written.span(), format!("this is after the end of the run, at {:?}", self.end));
        }
        at
    }
}

impl RawEvent {
    fn event(&self, clock: PlanTimes, refuse: Refuse<'_>) -> Option<PlanEvent> {
        let action = match Action::try_from(self.action.get_ref().as_str()) {
            Ok(action) => action,
            Err(message) => {
                refuse(self.action.span(), message);
                return None;
            }
        };
        let from = clock.within(&self.at, refuse);
        if from == clock.end {
            refuse(self.at.span(), "nothing follows it: the run ends at that time".to_owned());
        }
        let every = match (&self.every, &self.until) {
            (Some(every), Some(until)) => {
                if action != Action::Reload {
                    refuse(every.span(), "only \"reload proxy\" can be repeated with every".to_owned());
                }
                let end = clock.within(until, refuse);
                if end <= from {
                    refuse(until.span(), "until is not after at".to_owned());
                }
                Some((clock.within(every, refuse), end))
            }
            (None, None) => None,
            (Some(one), None) | (None, Some(one)) => {
                refuse(one.span(), "every and until belong together: an interval, and its end".to_owned());
                None
            }
        };
        Some(PlanEvent { at: At { from, every }, action, phase: self.phase.clone() })
    }
}

fn fault_of(
    written: &Spanned<RawFault>,
    clock: PlanTimes,
    grammar: Grammar,
    refuse: Refuse<'_>,
) -> Option<PlanFault> {
    let RawFault { from, until, inject, profile, on, phase } = written.get_ref();
    let (begin, end) = (clock.within(from, refuse), clock.within(until, refuse));
    if end <= begin {
        refuse(until.span(), "until is not after from".to_owned());
    }
    let place = on.as_ref().map_or(Ok(FaultPlace::Origins), |on| {
        FaultPlace::try_from(on.get_ref().as_str()).map_err(|message| refuse(on.span(), message))
    });
    let kind = match (inject, profile) {
        (Some(fault), None) => {
            if let Err(message) = (grammar.fault)(fault.get_ref()) {
                refuse(fault.span(), message);
            }
            FaultKind::Inject(fault.get_ref().clone())
        }
        (None, Some(profile)) => {
            if !grammar.profiles.contains(&profile.get_ref().as_str()) {
                let message = format!(
                    "there is no profile {:?}; expected one of {}",
                    profile.get_ref(),
                    grammar.profiles.join(", ")
                );
                refuse(profile.span(), message);
            }
            FaultKind::Profile(profile.get_ref().clone())
        }
        _ => {
            let message = "a fault has either inject, such as \"5%:503\", or profile, such as \"3g\"";
            refuse(written.span(), message.to_owned());
            return None;
        }
    };
    Some(PlanFault { from: begin, until: end, kind, place: place.ok()?, phase: phase.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRAMMAR: Grammar = Grammar {
        fault: |text| if text.contains("503") { Ok(()) } else { Err(format!("{text:?} is no fault")) },
        profiles: &["3g", "lte"],
    };
    const SHORTEST: &str =
        "title = \"t\"\nproxies = [\"vanward\"]\nrate = 100\nduration = \"10s\"\norigins = 3\n";

    fn read(text: &str, quick: bool) -> Result<ResiliencePlan, Vec<String>> {
        ResiliencePlan::read(text, "f", quick, GRAMMAR)
            .map_err(|mistakes| mistakes.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_plan_is_read_and_quick_makes_it_shorter() {
        let text = format!(
            "{SHORTEST}recovered = [\"errors < 1%\"]\n[[event]]\nat = \"2s\"\ndo = \"kill origin 2\"\nphase = \"dead\"\n\
             [[event]]\nat = \"4s\"\ndo = \"reload proxy\"\nevery = \"500ms\"\nuntil = \"5s\"\n\
             [[fault]]\nfrom = \"6s\"\nuntil = \"8s\"\ninject = \"5%:503\"\n\
             [[fault]]\nfrom = \"6s\"\nuntil = \"10s\"\nprofile = \"3g\"\non = \"clients\"\n\
             [[expect]]\nphase = [\"dead\"]\nthat = [\"errors = 0\", \"recovers within 2s\"]\n\
             [[expect]]\nthat = \"vanward: p99 < 1s\"\n[quick]\ntimes = 0.25\n"
        );
        let full = read(&text, false).expect("a plan");
        assert_eq!((full.duration.as_secs(), full.origin_count(), full.expectations.len()), (10, 3, 3));
        assert_eq!(full.faults[0].place, FaultPlace::Origins);
        let quick = read(&text, true).expect("a plan");
        let times =
            |plan: &ResiliencePlan| plan.steps().iter().map(|(at, _)| at.as_millis()).collect::<Vec<_>>();
        assert_eq!(times(&full), [2_000, 4_000, 4_500, 6_000, 6_000, 8_000]);
        assert_eq!(times(&quick), [500, 1_000, 1_100, 1_200, 1_500, 1_500, 2_000]);
        assert_eq!((quick.duration.as_millis(), quick.rate), (2_500, 100.0));
    }

    #[test]
    fn every_mistake_has_its_place() {
        let event = |rest: &str| format!("{SHORTEST}[[event]]\nat = \"2s\"\n{rest}");
        let fault = |rest: &str| format!("{SHORTEST}[[fault]]\nfrom = \"2s\"\nuntil = \"4s\"\n{rest}");
        let expect = |rest: &str| event(&format!("do = \"kill origin 2\"\n[[expect]]\n{rest}"));
        let cases = [
            (SHORTEST.replace("vanward", "vanwrd"), "f:2:12: ", "did you mean \"vanward\"?"),
            (SHORTEST.replace("vanward", "direct"), "f:2:12: ", "has no proxy"),
            (SHORTEST.replace("rate", "rat"), "f:3:1: ", "did you mean \"rate\"?"),
            (SHORTEST.replace("rate = 100\n", ""), "f:1:1: ", "the plan has no rate"),
            (SHORTEST.replace("100", "-1"), "f:3:8: ", "above 0"),
            (SHORTEST.replace("10s", "60m"), "f:4:12: ", "for each proxy"),
            (format!("{SHORTEST}payload = \"tinny\"\n"), "f:6:11: ", "no such page"),
            (format!("{SHORTEST}capacity = 4\npayload = \"tiny\"\n"), "f:7:11: ", "expected a payload such as /delay/50ms"),
            (format!("{SHORTEST}recovered = [\"p99 < 5\"]\n"), "f:6:14: ", "is not a duration"),
            (event("do = \"kil origin 2\"\n"), "f:8:6: ", "did you mean \"kill\"?"),
            (event("do = \"kill origin 4\"\n"), "f:8:6: ", "the plan has 3 origins"),
            (event("do = \"start origin 1\"\n"), "f:8:6: ", "origin 1 is running at that time"),
            (event("do = \"resume origin 1\"\n"), "f:8:6: ", "is not paused"),
            (event("do = \"reload proxy\"\nevery = \"1s\"\n"), "f:9:9: ", "belong together"),
            (event("do = \"load 5\"\nevery = \"1s\"\nuntil = \"4s\"\n"), "f:9:9: ", "only \"reload proxy\""),
            (event("do = \"reload proxy\"\n").replace("\"2s\"", "\"12s\""), "f:7:6: ", "after the end"),
            (event("do = \"reload proxy\"\n").replace("\"2s\"", "\"10s\""), "f:7:6: ", "nothing follows"),
            (event("do = \"reload proxy\"\n").replace("\"2s\"", "\"250ms\""), "f:7:6: ", "multiple of 100ms"),
            (event("do = \"reload proxy\"\n").replace("\"2s\"", "\"0s\""), "f:7:6: ", "multiple of 100ms"),
            (event(""), "f:6:", "missing field `do`"),
            (fault("inject = \"5%:500\"\n"), "f:9:10: ", "is no fault"),
            (fault("profile = \"2g\"\n"), "f:9:11: ", "expected one of 3g, lte"),
            (fault(""), "f:6:1: ", "either inject"),
            (fault("inject = \"503\"\non = \"origin 9\"\n"), "f:10:6: ", "the plan has 3 origins"),
            (fault("inject = \"503\"\non = \"server\"\n"), "f:10:6: ", "is not a place"),
            (fault("inject = \"503\"\n").replace("\"4s\"", "\"1s\""), "f:8:9: ", "not after from"),
            (expect("phase = \"kill origin\"\nthat = \"errors = 0\"\n"), "f:10:9: ", "did you mean \"kill origin 2\"?"),
            (expect("that = \"errrors = 0\"\n"), "f:10:8: ", "did you mean \"errors\"?"),
            (expect("that = \"nginx: errors = 0\"\n"), "f:10:8: ", "no proxy \"nginx\""),
            (expect("that = []\n"), "f:10:8: ", "has no condition"),
            (expect("phase = []\nthat = \"errors = 0\"\n"), "f:10:9: ", "leave phase out"),
            (expect("phase = \"steady\"\nthat = \"recovers within 1s\"\n"), "f:11:8: ", "nothing to recover from"),
            (format!("{SHORTEST}[[expect]]\nthat = \"recovers within 1s\"\n"), "f:7:8: ", "no phase of the plan"),
            (fault("profile = \"3g\"\n[[fault]]\nfrom = \"2s\"\nuntil = \"5s\"\nprofile = \"lte\"\n"), "f:6:1: ", "overrides this link"),
            (format!("{SHORTEST}[quick]\ntimes = 2\n"), "f:1:1: ", "expected 0 to 1"),
            (format!("{SHORTEST}[origin]\nurl = [\"http://127.0.0.1:1\"]\n[[event]]\nat = \"1s\"\ndo = \"kill origin \
                      1\"\n")
                .replace("origins = 3\n", ""), "f:9:6: ", "the lab cannot stop the servers"),
        ];
        for (text, place, said) in cases {
            let mistakes = read(&text, false).expect_err(&text);
            assert_eq!(mistakes.len(), 1, "{mistakes:?}\n{text}");
            assert!(mistakes[0].starts_with(place) && mistakes[0].contains(said), "{}\n{text}", mistakes[0]);
        }
    }

    #[test]
    fn several_mistakes_are_told_together() {
        let text = "titel = \"t\"\nproxies = [\"vanwrd\"]\nrate = \"much\"\n[[event]]\nat = \"2s\"\ndo = \"dance\"\n";
        let mistakes = read(text, false).expect_err("mistakes");
        assert_eq!(mistakes.len(), 5, "{mistakes:#?}");
        for text in ["", "[", "[[event]]", "event = 1", "[[event]]\nat = \"1s\"\ndo = \"\"\n[[fault]]\n"] {
            assert!(read(text, false).is_err(), "{text}");
        }
    }
}
