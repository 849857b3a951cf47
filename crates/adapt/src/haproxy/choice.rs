//! Chooses the backend of a request: by `use_backend`, also by a name that depends on the request.

use super::HaproxyAdapter;
use super::expressions::Sample;
use super::frontends::{ConditionVerdict, RequestFacts};
use super::rule_sets::{FrontendRule, RuleSet};
use super::samples;
use crate::draft::{DraftTable, DraftValue, StatementOrigin};
use crate::rules::{Atom, Expression, RegionOutcome};
use crate::values::bare;

/// Where requests go after the rules of a frontend.
pub(super) enum ChosenBackend {
    Backend(usize),
    /// Several backends without rules, which all have the options of this one. The text names their upstream.
    Named(usize, String),
    /// A rule has answered.
    Answered,
    Nothing,
}

/// Backends whose routes differ in their upstream alone.
struct BackendClass {
    places: Vec<usize>,
    names: Vec<String>,
    /// Options of the route besides `upstream`; `None` if the backend has rules.
    options: Option<DraftTable>,
}

/// Writes the default of a name so that it is a backend of the class: the route has a condition for the names.
fn of_class(text: String, class: &BackendClass) -> String {
    let Some((before, default)) = text.rsplit_once("?? \"") else { return text };
    let Some(default) = default.strip_suffix('"') else { return text };
    match class.names.first() {
        Some(first) if !default.is_empty() && !class.names.iter().any(|name| name == default) => {
            format!("{before}?? \"{first}\"")
        }
        _ => text,
    }
}

impl<'s> HaproxyAdapter<'s> {
    pub(super) fn chosen(
        &mut self,
        sets: &[RuleSet<'s>],
        facts: RequestFacts<'_>,
        made: &mut RegionOutcome,
    ) -> ChosenBackend {
        let front = &sets[0];
        for rule in &front.backends {
            match self.verdict(rule, facts, made, false) {
                ConditionVerdict::No => {}
                ConditionVerdict::Yes => {
                    made.from.push(StatementOrigin::Directive(rule.line.number));
                    match &rule.backend {
                        None => {
                            if let Some(place) = self.backend(rule.line.word(1)) {
                                return ChosenBackend::Backend(place);
                            }
                            let instead = "write an [upstream.NAME] and a [[route]] that leads there";
                            self.sheet.refuse(rule.line.number, "no backend has this name", instead);
                        }
                        Some(Ok(name)) => match self.named(rule, name, sets, facts) {
                            Some(chosen) => return chosen,
                            // Without a backend of this name, requests go to the default.
                            None => break,
                        },
                        Some(Err(why)) => self.unnamed(rule, why),
                    }
                }
                ConditionVerdict::Above(_) if !self.refuses(rule) => {
                    self.unsaid(rule, "no backend is chosen by a rate");
                }
                ConditionVerdict::Unsaid(why) if self.is_about_default(&why, front.place) => {
                    let why = "if no server is up, clients get a 503 of Vanward";
                    let instead = "write the page as `error_pages`, or a server for it as `on_status`";
                    self.sheet.differs(rule.line.number, why, instead);
                }
                ConditionVerdict::Unsaid(why) if !self.refuses(rule) => self.unsaid(rule, &why),
                ConditionVerdict::Above(_) | ConditionVerdict::Unsaid(_) => {
                    self.unsaid(
                        rule,
                        "its backend refuses requests, but its condition is not translated: 501",
                    );
                    self.not_taken(rule, made);
                    return ChosenBackend::Answered;
                }
            }
        }
        if let Some(default) = self.one(front.place, &["default_backend"]) {
            made.from.push(StatementOrigin::Directive(default.number));
            return self.backend(default.word(1)).map_or(ChosenBackend::Nothing, ChosenBackend::Backend);
        }
        let is_listen = self.sections[front.place].kind() == "listen";
        if is_listen { ChosenBackend::Backend(front.place) } else { ChosenBackend::Nothing }
    }

    /// Whether a condition asks for servers of the default backend alone: without them, it answers 503 itself.
    fn is_about_default(&self, why: &str, front: usize) -> bool {
        let default = self.one(front, &["default_backend"]);
        default.is_some_and(|line| why == samples::of_servers(line.word(1)))
    }

    fn unnamed(&mut self, rule: &FrontendRule<'s>, why: &str) {
        let instead = "write a [[route]] for each backend, or a value as `upstream`: docs/conditions.md";
        self.sheet.refuse(rule.line.number, &format!("the name of the backend is not known: {why}"), instead);
    }

    /// Chooses the backend with a name that depends on the request; `None` if there is none.
    fn named(
        &mut self,
        rule: &FrontendRule<'s>,
        name: &Sample,
        sets: &[RuleSet<'s>],
        facts: RequestFacts<'_>,
    ) -> Option<ChosenBackend> {
        let places = self.candidates(name);
        let are_all = name.possible_in_all().is_some_and(|possible| {
            possible.iter().all(|name| places.iter().any(|place| self.sections[*place].name() == name))
        });
        let classes = self.classes_of(sets, &places);
        let last = classes.len().saturating_sub(1);
        for (at, class) in classes.iter().enumerate() {
            if !(are_all && at == last) {
                let atom = Atom::When(name.is_one_of(&class.names));
                let is_one = Expression::Any(vec![atom], rule.line.number);
                match is_one.verdict(facts.holds, facts.has_tls) {
                    Ok(true) => {}
                    Ok(false) => continue,
                    Err(why) => {
                        self.unnamed(rule, &why);
                        return None;
                    }
                }
            }
            let first = *class.places.first()?;
            if class.places.len() == 1 {
                return Some(ChosenBackend::Backend(first));
            }
            let text = of_class(bare(&name.total()).to_owned(), class);
            return match self.sheet.definitions.value("backend", bare(&text), rule.from()) {
                Ok(value) => Some(ChosenBackend::Named(first, format!("${{{value}}}"))),
                Err(why) => {
                    self.unnamed(rule, &why);
                    None
                }
            };
        }
        None
    }

    /// The backends that a name can be that of.
    pub(super) fn candidates(&self, name: &Sample) -> Vec<usize> {
        let is_backend = |place: &usize| {
            let section = &self.sections[*place];
            matches!(section.kind(), "backend" | "listen")
                && name.possible.as_ref().is_none_or(|possible| possible.contains(section.name()))
                && !self.is_tcp(*place)
        };
        (0..self.sections.len()).filter(is_backend).collect()
    }

    fn classes_of(&mut self, sets: &[RuleSet<'s>], places: &[usize]) -> Vec<BackendClass> {
        let mut classes: Vec<BackendClass> = Vec::new();
        for place in places {
            let name = self.sections[*place].name().to_owned();
            let set = sets.iter().find(|set| set.place == *place);
            let has_rules = set.is_none_or(|set| !set.requests.is_empty() || !set.responses.is_empty());
            let mut route = RegionOutcome::default();
            self.serve(sets[0].place, *place, &mut route);
            let is_named = route.options.get("upstream") == Some(&DraftValue::from(name.as_str()));
            route.options.without("upstream");
            let options = (is_named && !has_rules).then_some(route.options);
            let same = classes.iter_mut().find(|class| {
                class
                    .options
                    .as_ref()
                    .zip(options.as_ref())
                    .is_some_and(|(one, other)| one.says_the_same(other))
            });
            match same {
                Some(class) => {
                    class.places.push(*place);
                    class.names.push(name);
                }
                None => classes.push(BackendClass { places: vec![*place], names: vec![name], options }),
            }
        }
        classes
    }

    /// Whether a rule's backend refuses all requests: it has no server, or denies without a condition.
    fn refuses(&self, rule: &FrontendRule<'_>) -> bool {
        match &rule.backend {
            None => self.backend(rule.line.word(1)).is_some_and(|place| self.refuses_all(place)),
            Some(Ok(name)) => self.candidates(name).into_iter().any(|place| self.refuses_all(place)),
            Some(Err(_)) => false,
        }
    }

    fn refuses_all(&self, place: usize) -> bool {
        let lines = || self.levels(place).flat_map(|level| &level.lines);
        let has_server =
            lines().any(|line| matches!(line.word(0), "server" | "server-template" | "dispatch"));
        let denies = lines().any(|line| {
            line.word(0) == "http-request"
                && matches!(line.word(1), "deny" | "tarpit" | "reject" | "silent-drop")
                && !line.has("if")
                && !line.has("unless")
        });
        !has_server || denies
    }
}
