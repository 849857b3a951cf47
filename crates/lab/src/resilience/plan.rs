//! Plan of a resilience run: events and faults, the phases that follow from them, and the steps that carry them out.

use std::cmp::Reverse;
use std::num::NonZeroUsize;
use std::time::Duration;

use load::RateStage;
use mistake::nearest;
use report::condition::FigureCondition;
use report::resilience::{Mark, Phase};

use crate::agent::words::WantedProxies;
use crate::plan::{OriginPayload, OriginPlan, OriginSource};
use crate::resilience::judge::Expect;

/// Length of a slot of time. All times of a plan are multiples of it.
pub(crate) const SLOT: Duration = Duration::from_millis(100);
/// Maximum duration of the load on one proxy: a slot takes some kilobytes.
pub(crate) const DURATION_MAX: Duration = Duration::from_secs(15 * 60);

#[derive(Debug, Clone)]
pub struct ResiliencePlan {
    pub title: String,
    pub wanted: WantedProxies,
    pub origins: OriginPlan,
    /// Requests that each origin processes at once; `None` is no limit.
    pub capacity: Option<NonZeroUsize>,
    /// Worker threads or processes of each proxy.
    pub workers: NonZeroUsize,
    /// How long proxies wait for a server: to connect, and for its response.
    pub server_timeout: Duration,
    /// Requests per second at the start.
    pub rate: f64,
    pub connections: NonZeroUsize,
    pub payload: OriginPayload,
    pub timeout: Duration,
    /// Whether responses have to be those of the origins, or like the first ones.
    pub responses: load::Responses,
    pub duration: Duration,
    /// Load before it that is not counted.
    pub warm_up: Duration,
    /// In the order of the file.
    pub events: Vec<PlanEvent>,
    pub faults: Vec<PlanFault>,
    pub expectations: Vec<Expect>,
    /// Conditions for a recovery; without any, they follow from the first phase.
    pub recovered: Vec<FigureCondition>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct PlanEvent {
    pub at: At,
    pub action: Action,
    /// Name of the phase that begins with it; `None` uses the action's text.
    pub phase: Option<String>,
}

/// A single time, or a time at equal intervals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct At {
    pub from: Duration,
    /// The interval, and the end.
    pub every: Option<(Duration, Duration)>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Action {
    /// Kills an origin (SIGKILL), by its number from 1.
    Kill(usize),
    /// Starts a killed origin again.
    Start(usize),
    /// Stops an origin (SIGSTOP): it accepts connections, but does not answer.
    Pause(usize),
    /// Continues a paused origin (SIGCONT).
    Resume(usize),
    /// The proxy reads its configuration again.
    Reload,
    /// Changes the load to this many requests per second.
    Load(f64),
}

#[derive(Debug, Clone, PartialEq)]
pub struct PlanFault {
    pub from: Duration,
    pub until: Duration,
    pub kind: FaultKind,
    pub place: FaultPlace,
    /// Name of the phase that begins with it.
    pub phase: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FaultKind {
    /// A fault in the grammar of `vanward proxy --fail`.
    Inject(String),
    /// The profile of a slow link.
    Profile(String),
}

/// Where a fault is injected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultPlace {
    /// Between clients and proxy.
    Clients,
    /// Between the proxy and every origin.
    Origins,
    /// Between the proxy and one origin, by its number from 1.
    Origin(usize),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum PlanStep {
    Do(Action),
    /// Begins the fault with this index.
    Inject(usize),
    /// Ends the fault with this index.
    Lift(usize),
}

const ACTIONS: [&str; 6] =
    ["kill origin N", "start origin N", "pause origin N", "resume origin N", "reload proxy", "load N/s"];

impl TryFrom<&str> for Action {
    type Error = String;

    fn try_from(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let number = |word: &str| word.parse::<usize>().ok().filter(|number| *number > 0);
        let known = match words[..] {
            ["kill", "origin", which] => number(which).map(Self::Kill),
            ["start", "origin", which] => number(which).map(Self::Start),
            ["pause", "origin", which] => number(which).map(Self::Pause),
            ["resume", "origin", which] => number(which).map(Self::Resume),
            ["reload", "proxy"] => Some(Self::Reload),
            ["load", rate] => {
                let rate = rate.strip_suffix("/s").unwrap_or(rate).parse::<f64>().ok();
                rate.filter(|rate| rate.is_finite() && *rate > 0.0).map(Self::Load)
            }
            _ => None,
        };
        known.ok_or_else(|| {
            let verbs = ["kill", "start", "pause", "resume", "reload", "load"];
            let meant = words.first().and_then(|word| nearest(word, verbs).filter(|meant| meant != word));
            let meant = meant.map(|meant| format!("; did you mean {meant:?}?")).unwrap_or_default();
            format!("{text:?} is not an action{meant}; expected one of {}", ACTIONS.join(", "))
        })
    }
}

impl std::fmt::Display for Action {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Kill(origin) => write!(out, "kill origin {origin}"),
            Self::Start(origin) => write!(out, "start origin {origin}"),
            Self::Pause(origin) => write!(out, "pause origin {origin}"),
            Self::Resume(origin) => write!(out, "resume origin {origin}"),
            Self::Reload => write!(out, "reload proxy"),
            Self::Load(rate) => write!(out, "load {rate}/s"),
        }
    }
}

impl Action {
    pub(crate) fn origin(&self) -> Option<usize> {
        match self {
            Self::Kill(origin) | Self::Start(origin) | Self::Pause(origin) | Self::Resume(origin) => {
                Some(*origin)
            }
            Self::Reload | Self::Load(_) => None,
        }
    }
}

impl std::fmt::Display for PlanFault {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.kind {
            FaultKind::Inject(fault) => write!(out, "{fault}")?,
            FaultKind::Profile(profile) => write!(out, "{profile} link")?,
        }
        match self.place {
            FaultPlace::Clients => write!(out, " on clients"),
            FaultPlace::Origins => write!(out, " on origins"),
            FaultPlace::Origin(origin) => write!(out, " on origin {origin}"),
        }
    }
}

impl TryFrom<&str> for FaultPlace {
    type Error = String;

    fn try_from(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let known = match words[..] {
            ["clients"] => Some(Self::Clients),
            ["origins"] => Some(Self::Origins),
            ["origin", which] => which.parse().ok().filter(|number| *number > 0).map(Self::Origin),
            _ => None,
        };
        known.ok_or_else(|| {
            format!("{text:?} is not a place; expected \"origins\", \"origin 2\" or \"clients\"")
        })
    }
}

impl At {
    fn times(self) -> impl Iterator<Item = Duration> {
        let (every, until) = self.every.unwrap_or((Duration::MAX, self.from));
        std::iter::successors(Some(self.from), move |at| at.checked_add(every).filter(|next| *next < until))
    }
}

/// A boundary between phases.
struct Cut {
    at: Duration,
    name: String,
    is_named: bool,
    recovers: bool,
}

impl ResiliencePlan {
    /// Keeps only these proxies; an empty list keeps all. Returns a sentence for each expectation that loses its proxy.
    ///
    /// # Errors
    /// The first name that is not in the plan.
    pub fn choose(&mut self, proxies: &[String]) -> Result<Vec<String>, String> {
        let names = &mut self.wanted.names;
        if let Some(unknown) = proxies.iter().find(|name| !names.contains(name)) {
            let meant = nearest(unknown, names.iter().map(String::as_str));
            let meant = meant.map(|meant| format!("; did you mean {meant:?}?")).unwrap_or_default();
            return Err(format!("the plan has no proxy {unknown:?}{meant} (it has {})", names.join(", ")));
        }
        names.retain(|name| proxies.is_empty() || proxies.contains(name));
        // An expectation is never dropped without a message.
        let is_gone = |named: &String| !names.contains(named);
        let gone = self.expectations.extract_if(.., |expect| expect.named.as_ref().is_some_and(is_gone));
        Ok(gone.map(|expect| format!("{:?} is not judged: its proxy is left out", expect.text)).collect())
    }

    pub(crate) fn origin_count(&self) -> usize {
        match &self.origins.source {
            OriginSource::Own(count) | OriginSource::Command(count, _) => count.get(),
            OriginSource::Running(servers) => servers.len(),
            OriginSource::Nothing => 0,
        }
    }

    /// The phases. A phase begins at each event or fault; an event at intervals makes a single phase.
    pub fn phases(&self) -> Vec<Phase> {
        let mut cuts = self.cuts();
        cuts.sort_by_key(|cut| cut.at);
        let mut phases: Vec<Phase> = vec![self.phase("steady".to_owned(), Duration::ZERO, false)];
        let mut named = false;
        for cut in cuts.into_iter().filter(|cut| cut.at < self.duration) {
            let from = cut.at.as_secs_f64();
            match phases.last_mut().filter(|last| last.from_seconds == from) {
                // A given name applies to all events at that time.
                Some(last) => {
                    if cut.is_named && !named {
                        last.name = cut.name;
                    } else if cut.is_named == named {
                        last.name = format!("{}, {}", last.name, cut.name);
                    }
                    last.recovers &= cut.recovers;
                    named |= cut.is_named;
                }
                None => {
                    named = cut.is_named;
                    phases.push(self.phase(cut.name, cut.at, cut.recovers));
                }
            }
        }
        for index in 0..phases.len() {
            let until = phases.get(index + 1).map_or(self.duration.as_secs_f64(), |next| next.from_seconds);
            phases[index].until_seconds = until;
            let same = |phase: &&Phase| phase.name == phases[index].name;
            let before = phases[..index].iter().filter(same).count();
            if before > 0 {
                phases[index].name = format!("{} ({})", phases[index].name, before + 1);
            }
        }
        phases
    }

    fn phase(&self, name: String, at: Duration, recovers: bool) -> Phase {
        let from_seconds = at.as_secs_f64();
        Phase { name, from_seconds, until_seconds: 0.0, due_per_second: self.rate_at(at), recovers }
    }

    fn cuts(&self) -> Vec<Cut> {
        let mut cuts = Vec::new();
        for event in &self.events {
            let name = event.phase.clone().unwrap_or_else(|| event.action.to_string());
            // A proxy has to bear a higher load, not to recover from it.
            let recovers = match event.action {
                Action::Load(rate) => rate <= self.rate,
                _ => event.at.every.is_none(),
            };
            let after = event.at.every.map(|(_, until)| Cut {
                at: until,
                name: format!("after {name}"),
                is_named: false,
                recovers: true,
            });
            cuts.push(Cut { at: event.at.from, name, is_named: event.phase.is_some(), recovers });
            cuts.extend(after);
        }
        for fault in &self.faults {
            let name = fault.phase.clone().unwrap_or_else(|| fault.to_string());
            let after = format!("after {name}");
            cuts.push(Cut { at: fault.from, name, is_named: fault.phase.is_some(), recovers: false });
            cuts.push(Cut { at: fault.until, name: after, is_named: false, recovers: true });
        }
        cuts
    }

    /// Requests per second that are due at a time.
    fn rate_at(&self, at: Duration) -> f64 {
        let changes = self.load_changes();
        changes.into_iter().rev().find(|(from, _)| *from <= at).map_or(self.rate, |(_, rate)| rate)
    }

    /// Requests that are due between two times.
    pub(crate) fn due(&self, from: Duration, until: Duration) -> f64 {
        let slots = std::iter::successors(Some(from), |at| Some(*at + SLOT)).take_while(|at| *at < until);
        slots.map(|at| self.rate_at(at) * SLOT.as_secs_f64()).sum()
    }

    /// The later link that replaces this one for all of its time, if there is one.
    pub(crate) fn hiding(&self, index: usize) -> Option<&PlanFault> {
        let hidden = &self.faults[index];
        let is_link = |fault: &PlanFault| matches!(fault.kind, FaultKind::Profile(_));
        let hides = |fault: &&PlanFault| {
            let is_there = fault.place == hidden.place
                || fault.place == FaultPlace::Origins && hidden.place != FaultPlace::Clients;
            is_link(fault) && is_there && fault.from == hidden.from && fault.until >= hidden.until
        };
        self.faults[index + 1..].iter().find(hides).filter(|_| is_link(hidden))
    }

    fn load_changes(&self) -> Vec<(Duration, f64)> {
        let rate = |event: &PlanEvent| match event.action {
            Action::Load(rate) => Some((event.at.from, rate)),
            _ => None,
        };
        let mut changes: Vec<_> = self.events.iter().filter_map(rate).collect();
        changes.sort_by_key(|(from, _)| *from);
        changes
    }

    /// The rates as stages of the load generator.
    pub(crate) fn stages(&self) -> Vec<RateStage> {
        let mut changes = self.load_changes();
        changes.insert(0, (Duration::ZERO, self.rate));
        let end = |index: usize| changes.get(index + 1).map_or(self.duration, |(from, _)| *from);
        let stages = changes.iter().enumerate().map(|(index, (from, rate))| RateStage {
            seconds: end(index).saturating_sub(*from).as_secs_f64(),
            from_per_second: *rate,
            to_per_second: *rate,
        });
        stages.filter(|stage| stage.seconds > 0.0).collect()
    }

    /// All steps in order of time. Ends come before beginnings, and the fault that began last ends first: otherwise a
    /// hidden fault would be injected for a moment.
    pub(crate) fn steps(&self) -> Vec<(Duration, PlanStep)> {
        let mut steps = Vec::new();
        for event in &self.events {
            if !matches!(event.action, Action::Load(_)) {
                steps.extend(event.at.times().map(|at| (at, PlanStep::Do(event.action))));
            }
        }
        for (index, fault) in self.faults.iter().enumerate() {
            steps.push((fault.from, PlanStep::Inject(index)));
            steps.push((fault.until, PlanStep::Lift(index)));
        }
        steps.sort_by_key(|(at, step)| match step {
            PlanStep::Lift(index) => (*at, false, Reverse(*index)),
            PlanStep::Do(_) | PlanStep::Inject(_) => (*at, true, Reverse(0)),
        });
        steps.retain(|(at, _)| *at < self.duration);
        steps
    }

    /// Events and faults, for the time axis.
    pub fn marks(&self) -> Vec<Mark> {
        let events = self.events.iter().map(|event| Mark {
            text: event.action.to_string(),
            from_seconds: event.at.from.as_secs_f64(),
            until_seconds: event.at.every.map(|(_, until)| until.as_secs_f64()),
        });
        let faults = self.faults.iter().map(|fault| Mark {
            text: fault.to_string(),
            from_seconds: fault.from.as_secs_f64(),
            until_seconds: Some(fault.until.as_secs_f64()),
        });
        let mut marks: Vec<Mark> = events.chain(faults).collect();
        marks.sort_by(|one, other| one.from_seconds.total_cmp(&other.from_seconds));
        marks
    }

    /// Whether an event affects the proxy itself.
    pub(crate) fn reloads(&self) -> bool {
        self.events.iter().any(|event| event.action == Action::Reload)
    }

    /// Whether an event or fault affects the origins, or the way to them.
    pub(crate) fn needs_origins(&self) -> bool {
        self.events.iter().any(|event| event.action.origin().is_some())
            || self.capacity.is_some()
            || self.faults.iter().any(|fault| fault.place != FaultPlace::Clients)
    }

    /// The capacity, if an injector has to enforce it because the origins do not.
    pub(crate) fn injected_capacity(&self) -> Option<NonZeroUsize> {
        self.capacity.filter(|_| !self.origins.is_own())
    }

    /// Whether faults are injected in front of this origin, by its number from 1.
    pub(crate) fn has_faults_on(&self, origin: usize) -> bool {
        self.faults.iter().any(|fault| fault.place.is_on(origin))
    }
}

impl FaultPlace {
    pub(crate) fn is_on(self, origin: usize) -> bool {
        match self {
            Self::Origins => true,
            Self::Origin(one) => one == origin,
            Self::Clients => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    fn event(at: f64, what: &str, phase: Option<&str>) -> PlanEvent {
        let at = At { from: seconds(at), every: None };
        PlanEvent { at, action: Action::try_from(what).expect(what), phase: phase.map(str::to_owned) }
    }

    fn plan(events: Vec<PlanEvent>, faults: Vec<PlanFault>) -> ResiliencePlan {
        ResiliencePlan {
            title: "t".to_owned(),
            wanted: WantedProxies::default(),
            origins: OriginPlan::own(NonZeroUsize::MIN),
            capacity: None,
            workers: NonZeroUsize::MIN,
            server_timeout: seconds(1.0),
            rate: 100.0,
            connections: NonZeroUsize::MIN,
            payload: OriginPayload::tiny(),
            timeout: seconds(1.0),
            responses: load::Responses::Same,
            duration: seconds(10.0),
            warm_up: Duration::ZERO,
            events,
            faults,
            expectations: Vec::new(),
            recovered: Vec::new(),
        }
    }

    fn told(plan: &ResiliencePlan) -> Vec<(String, f64, f64, bool)> {
        let told = |phase: Phase| (phase.name, phase.from_seconds, phase.until_seconds, phase.recovers);
        plan.phases().into_iter().map(told).collect()
    }

    #[test]
    fn phases_begin_where_something_happens() {
        let fault = PlanFault {
            from: seconds(6.0),
            until: seconds(8.0),
            kind: FaultKind::Inject("5%:503".to_owned()),
            place: FaultPlace::Origin(2),
            phase: None,
        };
        let events = vec![
            event(4.0, "start origin 2", None),
            event(2.0, "kill origin 2", Some("origin 2 is dead")),
            event(2.0, "load 200/s", None),
            event(4.0, "load 100", None),
        ];
        let expected = [
            ("steady", 0.0, 2.0, false),
            ("origin 2 is dead", 2.0, 4.0, false),
            ("start origin 2, load 100/s", 4.0, 6.0, true),
            ("5%:503 on origin 2", 6.0, 8.0, false),
            ("after 5%:503 on origin 2", 8.0, 10.0, true),
        ];
        let plan = plan(events, vec![fault]);
        let expected = expected.map(|(name, from, until, recovers)| (name.to_owned(), from, until, recovers));
        assert_eq!(told(&plan), expected);
        let rates: Vec<f64> = plan.phases().iter().map(|phase| phase.due_per_second).collect();
        assert_eq!(rates, [100.0, 200.0, 100.0, 100.0, 100.0]);
        let stages: Vec<_> = plan.stages().iter().map(|stage| (stage.seconds, stage.to_per_second)).collect();
        assert_eq!(stages, [(2.0, 100.0), (2.0, 200.0), (6.0, 100.0)]);
        let steps: Vec<_> = plan.steps().into_iter().map(|(at, step)| (at.as_secs_f64(), step)).collect();
        let expected = [
            (2.0, PlanStep::Do(Action::Kill(2))),
            (4.0, PlanStep::Do(Action::Start(2))),
            (6.0, PlanStep::Inject(0)),
            (8.0, PlanStep::Lift(0)),
        ];
        assert_eq!(steps, expected);
        assert!(plan.has_faults_on(2) && !plan.has_faults_on(1) && plan.needs_origins() && !plan.reloads());
    }

    #[test]
    fn faults_that_end_together_end_in_reverse() {
        let fault = |from, until, place| {
            let (from, until) = (seconds(from), seconds(until));
            PlanFault { from, until, kind: FaultKind::Profile("3g".to_owned()), place, phase: None }
        };
        let faults = vec![
            fault(1.0, 3.0, FaultPlace::Origins),
            fault(2.0, 3.0, FaultPlace::Clients),
            fault(3.0, 4.0, FaultPlace::Origin(1)),
        ];
        let plan = plan(vec![event(3.0, "reload proxy", None)], faults);
        let steps: Vec<PlanStep> = plan.steps().into_iter().map(|(_, step)| step).collect();
        let reload = PlanStep::Do(Action::Reload);
        let expected = [
            PlanStep::Inject(0),
            PlanStep::Inject(1),
            PlanStep::Lift(1),
            PlanStep::Lift(0),
            reload,
            PlanStep::Inject(2),
            PlanStep::Lift(2),
        ];
        assert_eq!(steps, expected);
        assert_eq!(plan.due(seconds(1.0), seconds(2.5)).round(), 150.0);
        assert!((0..3).all(|index| plan.hiding(index).is_none()));
    }

    #[test]
    fn what_happens_at_intervals_is_one_phase() {
        let every = Some((seconds(0.5), seconds(4.0)));
        let storm = PlanEvent { at: At { from: seconds(2.0), every }, action: Action::Reload, phase: None };
        let plan = plan(vec![storm, event(6.0, "reload proxy", None)], Vec::new());
        let expected = [
            ("steady", 0.0, 2.0, false),
            ("reload proxy", 2.0, 4.0, false),
            ("after reload proxy", 4.0, 6.0, true),
            ("reload proxy (2)", 6.0, 10.0, true),
        ];
        assert_eq!(told(&plan), expected.map(|(name, from, until, is)| (name.to_owned(), from, until, is)));
        let times: Vec<f64> = plan.steps().iter().map(|(at, _)| at.as_secs_f64()).collect();
        assert_eq!(times, [2.0, 2.5, 3.0, 3.5, 6.0]);
        assert_eq!(plan.marks()[0].until_seconds, Some(4.0));
    }

    #[test]
    fn actions_are_read_back_as_they_are_told() {
        for text in [
            "kill origin 2",
            "start origin 1",
            "pause origin 3",
            "resume origin 3",
            "reload proxy",
            "load 50/s",
        ] {
            assert_eq!(Action::try_from(text).expect(text).to_string(), text);
        }
        for (text, said) in [
            ("kil origin 2", "did you mean \"kill\"?"),
            ("kill origin 0", "expected one of kill origin N"),
            ("kill origin", "expected one of"),
            ("", "expected one of"),
            ("load -5/s", "load N/s"),
            ("load inf/s", "load N/s"),
        ] {
            let error = Action::try_from(text).expect_err(text);
            assert!(error.contains(said), "{text}: {error}");
        }
        assert!(FaultPlace::try_from("origin 0").is_err() && FaultPlace::try_from("server").is_err());
        assert_eq!(FaultPlace::try_from("origin 2"), Ok(FaultPlace::Origin(2)));
    }
}
