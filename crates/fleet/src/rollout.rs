//! When an instance takes up a new version: at once, as the first one that tries it, or once that has found it good. Pure:
//! what is known goes in, a step comes out.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How new versions reach the instances.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// How long one instance tries a new version before the others take it up, in seconds; 0: all take it up at once.
    pub canary_seconds: u64,
    /// The most failed requests of all meanwhile, in percent: those that the proxy or a server answered with 5xx.
    pub errors_percent: f64,
    /// The instance that tries new versions; `None` means the first by name of those that run.
    pub instance: Option<String>,
}

impl Default for Policy {
    fn default() -> Self {
        Self { canary_seconds: 0, errors_percent: 1.0, instance: None }
    }
}

/// What the instance that tried a version found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Whether the others take it up.
    pub is_good: bool,
    /// Which instance says so.
    pub by: String,
    /// Why.
    pub why: String,
}

/// What an instance knows of the others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Known<'k> {
    /// How new versions reach the instances.
    pub(crate) policy: &'k Policy,
    /// The version in etcd.
    pub(crate) wanted: &'k str,
    /// What was found about it.
    pub(crate) verdict: Option<&'k Verdict>,
    /// The instances that run, sorted.
    pub(crate) running: &'k [String],
}

/// What an instance does itself.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Own {
    /// Its name.
    pub(crate) name: String,
    /// The version in force.
    pub(crate) version: Option<String>,
    /// The version in force is being tried, since so long.
    pub(crate) tried_for: Option<Duration>,
    /// The version that it refused, because of mistakes in it.
    pub(crate) refused: Option<String>,
    /// Requests since the trial began, and those of them that failed.
    pub(crate) requests: (u64, u64),
}

/// What an instance does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing: the wanted version is in force, or refused.
    Stay,
    /// The wanted version comes into force.
    TakeUp,
    /// The wanted version comes into force here alone, to be tried.
    Try,
    /// The trial goes on.
    GoOn,
    /// The trial has ended: this is said of it, and the version before it comes back unless it is good.
    Judge(Verdict),
    /// The version that was tried, and found bad or replaced meanwhile, is given up for the one before it.
    GiveUp,
    /// Another instance tries the wanted version.
    Wait,
    /// The wanted version was found bad: what is in force stays.
    Reject,
}

/// The next step of an instance.
pub(crate) fn next(known: Known<'_>, own: &Own) -> Step {
    let Known { policy, wanted, verdict, running } = known;
    let is_in_force = own.version.as_deref() == Some(wanted);
    if own.tried_for.is_some() && !is_in_force {
        return Step::GiveUp;
    }
    match (verdict, own.tried_for) {
        (Some(Verdict { is_good: false, .. }), Some(_)) => return Step::GiveUp,
        (Some(Verdict { is_good: false, .. }), None) if is_in_force => return Step::Stay,
        (Some(Verdict { is_good: false, .. }), None) => return Step::Reject,
        (Some(Verdict { is_good: true, .. }), Some(_)) => return Step::TakeUp,
        _ => {}
    }
    if let Some(tried_for) = own.tried_for {
        return judged(policy, own, tried_for).map_or(Step::GoOn, Step::Judge);
    }
    if is_in_force || own.refused.as_deref() == Some(wanted) {
        return Step::Stay;
    }
    let has_canary = policy.canary_seconds > 0 && verdict.is_none();
    // Without a version there is nothing to go on with meanwhile.
    if !has_canary || own.version.is_none() {
        return Step::TakeUp;
    }
    let named = policy.instance.as_ref().filter(|name| running.contains(name));
    let canary = named.or(running.first());
    if canary.is_none_or(|canary| *canary == own.name) { Step::Try } else { Step::Wait }
}

/// The verdict about what is being tried; `None` before its time.
fn judged(policy: &Policy, own: &Own, tried_for: Duration) -> Option<Verdict> {
    let (requests, failed) = own.requests;
    let percent = if requests == 0 { 0.0 } else { failed as f64 * 100.0 / requests as f64 };
    let said = format!("{failed} of {requests} requests failed in {} s", tried_for.as_secs());
    let is_over = tried_for >= Duration::from_secs(policy.canary_seconds);
    let is_bad = percent > policy.errors_percent;
    // A version that fails at once is not left in force until its time is over; a single failure says little.
    let is_clear = is_bad && failed >= 10;
    if !is_over && !is_clear {
        return None;
    }
    let bound = policy.errors_percent;
    let why = if is_bad { format!("{said}, more than {bound}%") } else { said };
    Some(Verdict { is_good: !is_bad, by: own.name.clone(), why })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(version: Option<&str>) -> Own {
        Own {
            name: "b".to_owned(),
            version: version.map(str::to_owned),
            tried_for: None,
            refused: None,
            requests: (0, 0),
        }
    }

    fn verdict(is_good: bool) -> Verdict {
        Verdict { is_good, by: "a".to_owned(), why: String::new() }
    }

    #[test]
    fn without_a_canary_all_take_it_up_at_once() {
        let policy = Policy::default();
        let running = ["a".to_owned(), "b".to_owned()];
        let known = Known { policy: &policy, wanted: "2", verdict: None, running: &running };
        assert_eq!(next(known, &own(Some("1"))), Step::TakeUp);
        assert_eq!(next(known, &own(None)), Step::TakeUp);
        assert_eq!(next(known, &own(Some("2"))), Step::Stay);
        let refused = Own { refused: Some("2".to_owned()), ..own(Some("1")) };
        assert_eq!(next(known, &refused), Step::Stay);
        let refused_before = Own { refused: Some("1".to_owned()), ..own(Some("0")) };
        assert_eq!(next(known, &refused_before), Step::TakeUp);
    }

    #[test]
    fn one_tries_it_and_the_others_wait_for_its_word() {
        let policy = Policy { canary_seconds: 10, ..Policy::default() };
        let (two, alone) = (["a".to_owned(), "b".to_owned()], ["b".to_owned()]);
        let (good, bad) = (verdict(true), verdict(false));
        for (running, verdict, version, expected) in [
            (&two[..], None, Some("1"), Step::Wait),
            (&two, Some(&good), Some("1"), Step::TakeUp),
            (&two, Some(&bad), Some("1"), Step::Reject),
            (&two, None, None, Step::TakeUp),
            (&two, Some(&bad), None, Step::Reject),
            (&alone, None, Some("1"), Step::Try),
            // Before its own name is known.
            (&[], None, Some("1"), Step::Try),
            (&two, Some(&bad), Some("2"), Step::Stay),
        ] {
            let known = Known { policy: &policy, wanted: "2", verdict, running };
            assert_eq!(next(known, &own(version)), expected, "{running:?} {verdict:?} {version:?}");
        }
        let named = Policy { instance: Some("b".to_owned()), ..policy.clone() };
        let known = Known { policy: &named, wanted: "2", verdict: None, running: &two };
        assert_eq!(next(known, &own(Some("1"))), Step::Try);
        let gone = Policy { instance: Some("c".to_owned()), ..policy };
        assert_eq!(next(Known { policy: &gone, ..known }, &own(Some("1"))), Step::Wait);
    }

    #[test]
    fn a_trial_ends_by_its_time_or_by_its_errors() {
        let policy = Policy { canary_seconds: 10, errors_percent: 1.0, instance: None };
        let running = ["b".to_owned()];
        let known = Known { policy: &policy, wanted: "2", verdict: None, running: &running };
        let trial = |seconds, requests| Own {
            tried_for: Some(Duration::from_secs(seconds)),
            requests,
            ..own(Some("2"))
        };
        let judged =
            |is_good, why: &str| Step::Judge(Verdict { is_good, by: "b".to_owned(), why: why.to_owned() });
        for (seconds, requests, expected) in [
            (9, (1000, 0), Step::GoOn),
            (9, (1000, 9), Step::GoOn),
            (2, (100, 10), judged(false, "10 of 100 requests failed in 2 s, more than 1%")),
            (10, (1000, 10), judged(true, "10 of 1000 requests failed in 10 s")),
            (10, (1000, 11), judged(false, "11 of 1000 requests failed in 10 s, more than 1%")),
            (10, (3, 1), judged(false, "1 of 3 requests failed in 10 s, more than 1%")),
            (10, (0, 0), judged(true, "0 of 0 requests failed in 10 s")),
        ] {
            assert_eq!(next(known, &trial(seconds, requests)), expected, "{seconds} {requests:?}");
        }
        let (good, bad) = (verdict(true), verdict(false));
        assert_eq!(next(Known { verdict: Some(&good), ..known }, &trial(1, (0, 0))), Step::TakeUp);
        assert_eq!(next(Known { verdict: Some(&bad), ..known }, &trial(1, (0, 0))), Step::GiveUp);
        assert_eq!(next(Known { wanted: "3", ..known }, &trial(1, (0, 0))), Step::GiveUp);
    }
}
