//! Command-line changes to a plan: other times, a selection of cases and proxies. Each change is reported.

use std::num::NonZeroUsize;
use std::time::Duration;

use mistake::nearest;
use report::figure;

use crate::generator::Generator;
use crate::plan::PlanLoad;
use crate::written::WrittenPlan;

/// By default no change.
#[derive(Debug, Clone, Default)]
pub struct Changes {
    pub rounds: Option<NonZeroUsize>,
    pub measured: Option<Duration>,
    /// Duration of the uncounted load before each measurement.
    pub warm_up: Option<Duration>,
    /// Names of the cases to measure; `*` matches any text. Empty: all cases.
    pub cases: Vec<String>,
    /// Names of the proxies to measure. Empty: all proxies.
    pub proxies: Vec<String>,
    /// Load generator for every case.
    pub generator: Option<&'static Generator>,
}

impl Changes {
    /// Applies the changes to the plan, and returns a phrase for each. An unknown name is an error.
    pub fn apply(&self, plan: &mut WrittenPlan) -> Result<Vec<String>, String> {
        let mut said = Vec::new();
        let timing = &mut plan.timing;
        if let Some(rounds) = self.rounds.map(NonZeroUsize::get)
            && rounds != timing.rounds
        {
            said.push(format!("{} instead of {}", figure::things(rounds, "round"), timing.rounds));
            timing.rounds = rounds;
        }
        for (wanted, planned, what) in [
            (self.measured, &mut timing.measured, "measurements"),
            (self.warm_up, &mut timing.warm_up, "warm-ups"),
        ] {
            let Some(wanted) = wanted.filter(|wanted| wanted != planned) else { continue };
            let [now, before] = [wanted, *planned].map(told);
            said.push(format!("{what} of {now} instead of {before}"));
            *planned = wanted;
        }
        if let Some(wanted) = self.measured {
            let own = plan.cases.iter_mut().filter_map(|case| case.measured.take());
            let others = own.filter(|own| *own != wanted).count();
            if others > 0 {
                said.push(format!(
                    "measurements of {} in {}, too",
                    told(wanted),
                    figure::things(others, "case")
                ));
            }
        }
        said.extend(self.choose_cases(plan)?);
        said.extend(self.choose_proxies(plan)?);
        if let Some(generator) = self.generator {
            let others = plan.cases.iter_mut().filter(|case| case.generator.name != generator.name);
            let others = others.map(|case| case.generator = generator).count();
            if others > 0 {
                said.push(format!("load by {} in {}", generator.name, figure::things(others, "case")));
            }
        }
        Ok(said)
    }

    fn choose_cases(&self, plan: &mut WrittenPlan) -> Result<Option<String>, String> {
        let all = plan.cases.len();
        let names = || plan.cases.iter().map(|case| case.name.as_str());
        if let Some(pattern) = self.cases.iter().find(|pattern| !names().any(|name| matches(pattern, name))) {
            return Err(format!("no case of the plan is called {pattern:?}; {}", expected(pattern, names())));
        }
        let is_wanted =
            |name: &str| self.cases.is_empty() || self.cases.iter().any(|pattern| matches(pattern, name));
        for case in plan.cases.iter().filter(|case| is_wanted(&case.name)) {
            let PlanLoad::ShareOfSlowest(_) = case.load else { continue };
            let closed = plan.cases.iter().find(|closed| closed.is_closed_loop_of(case));
            if let Some(closed) = closed.filter(|closed| !is_wanted(&closed.name)) {
                return Err(format!(
                    "the rate of {:?} follows from {:?}, which is not among the chosen cases; choose that as well",
                    case.name, closed.name
                ));
            }
        }
        plan.cases.retain(|case| is_wanted(&case.name));
        Ok((plan.cases.len() < all).then(|| format!("{} of {all} cases", plan.cases.len())))
    }

    fn choose_proxies(&self, plan: &mut WrittenPlan) -> Result<Vec<String>, String> {
        let names = &mut plan.wanted.names;
        if let Some(unknown) = self.proxies.iter().find(|wanted| !names.contains(wanted)) {
            let there_are = names.iter().map(String::as_str);
            let remedy = match nearest(unknown, there_are.clone()) {
                Some(_) => "",
                None => {
                    ". To compare it too, add it to the proxies of your own plan; `vanward lab show` prints one to \
                     start from"
                }
            };
            return Err(format!(
                "the plan has no proxy {unknown:?}; {}{remedy}",
                expected(unknown, there_are)
            ));
        }
        let all = names.len();
        names.retain(|name| self.proxies.is_empty() || self.proxies.contains(name));
        let (left, names) = (names.len(), &plan.wanted.names);
        let mut said = Vec::from_iter((left < all).then(|| format!("{left} of {all} proxies")));
        // An expectation is never dropped without a message.
        for expect in &mut plan.expectations {
            let gone = expect.retain(|name| names.iter().any(|left| left == name));
            if !gone.is_empty() {
                said.push(format!("{:?} is not judged for {}", expect.text(), gone.join(", ")));
            }
        }
        Ok(said)
    }
}

fn told(time: Duration) -> String {
    if time.is_zero() { "none".to_owned() } else { format!("{time:?}") }
}

/// Hint for an unknown name: the most similar known name, or all known names.
fn expected<'n>(written: &str, names: impl Iterator<Item = &'n str> + Clone) -> String {
    match nearest(written, names.clone()) {
        Some(name) => format!("did you mean {name:?}?"),
        None => format!("expected names from {}", names.collect::<Vec<_>>().join(", ")),
    }
}

/// Whether a name matches a pattern, in which `*` is any text.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(head) else { return false };
    let (middle, tail) = rest.rsplit_once('*').unwrap_or(("", rest));
    // The first match of each part leaves the most text for the parts after it.
    for part in middle.split('*') {
        let Some((_, after)) = name.split_once(part) else { return false };
        name = after;
    }
    name.ends_with(tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> WrittenPlan {
        let text = "title = \"t\"\nproxies = [\"direct\", \"vanward\", \"nginx\"]\nrepeats = 5\nduration = \"60s\"\n\
                    [[case]]\nname = \"{scheme}-{payload}-{load}\"\nscheme = [\"http\", \"https\"]\n\
                    payload = [\"tiny\", \"large\"]\nconnections = 1\nload = [\"closed\", \"50%\"]\n\
                    [[case]]\nname = \"search\"\npayload = \"tiny\"\nconnections = 1\nload = \"p99 < 5ms\"\n\
                    duration = \"5s\"\n";
        WrittenPlan::read(text, "f", false).expect("a plan")
    }

    #[test]
    fn a_pattern_chooses_by_name() {
        let cases = [
            ("http-tiny", "http-tiny", true),
            ("http-tiny", "http-tiny-50%", false),
            ("http-*", "http-tiny", true),
            ("http-*", "https-tiny", false),
            ("*-50%", "http-tiny-50%", true),
            ("*tiny*", "http-tiny-50%", true),
            ("h*-*-closed", "http-tiny-closed", true),
            ("h*-*-closed", "http-closed", false),
            ("*", "", true),
            ("aba*ba", "aba", false),
        ];
        for (pattern, name, fits) in cases {
            assert_eq!(matches(pattern, name), fits, "{pattern} {name}");
        }
    }

    #[test]
    fn what_is_otherwise_than_the_plan_is_said() {
        let mut changed = plan();
        let changes = Changes {
            rounds: NonZeroUsize::new(3),
            measured: Some(Duration::from_secs(10)),
            warm_up: Some(Duration::from_millis(300)),
            cases: vec!["http-tiny-*".to_owned()],
            proxies: vec!["nginx".to_owned(), "vanward".to_owned()],
            generator: crate::generator::named("wrk"),
        };
        let said = changes.apply(&mut changed).expect("names that it has");
        let expected = [
            "3 rounds instead of 5",
            "measurements of 10s instead of 60s",
            "warm-ups of 300ms instead of none",
            "measurements of 10s in 1 case, too",
            "2 of 9 cases",
            "2 of 3 proxies",
            "load by wrk in 2 cases",
        ];
        assert_eq!(said, expected);
        assert_eq!((changed.timing.rounds, changed.timing.measured.as_secs()), (3, 10));
        assert_eq!(changed.wanted.names, ["vanward", "nginx"], "in the order of the plan");
        assert_eq!(changed.cases.len(), 2);
        assert_eq!(Changes::default().apply(&mut plan()), Ok(Vec::new()));
    }

    #[test]
    fn names_that_the_plan_has_not_are_said_with_the_nearest() {
        let of = |cases: &[&str], proxies: &[&str]| {
            let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
            Changes { cases: owned(cases), proxies: owned(proxies), ..Changes::default() }
        };
        let cases = [
            (of(&["http-tiny-closd"], &[]), "did you mean \"http-tiny-closed\"?"),
            (of(&["*", "quic-*"], &[]), "expected names from http-tiny-closed, "),
            (of(&["http-*", "https-tiny-50%"], &[]), "follows from \"https-tiny-closed\""),
            (of(&[], &["ngnix"]), "did you mean \"nginx\"?"),
            (of(&[], &["squid"]), "expected names from direct, vanward, nginx. To compare it too, add it"),
        ];
        for (changes, expected) in cases {
            let refused = changes.apply(&mut plan()).expect_err("a mistake");
            assert!(refused.contains(expected), "{refused}");
        }
    }
}
