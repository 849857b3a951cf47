//! Applies each frontend's rules once for every kind of request that its conditions distinguish.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::HaproxyAdapter;
use super::acl::{AclCondition, CountedRequests, KnownFacts, Term};
use super::binds::Bind;
use super::choice::ChosenBackend;
use super::maps::PatternFiles;
use super::rule_sets::{FrontendRule, RuleSet};
use crate::draft::{DraftTable, StatementOrigin};
use crate::rules::{self, Atom, Expression, Formula, Holds, RegionOutcome, Test};

#[derive(Clone, Copy)]
pub(super) struct RequestFacts<'h> {
    pub(super) holds: &'h Holds<'h>,
    pub(super) has_tls: bool,
    port: Option<u16>,
    /// Whether conditions depend on fields that rules change, so that the order of all rules matters.
    pub(super) is_in_order: bool,
}

/// Requests above a limit, from the condition of a rule.
pub(super) struct RateRule {
    pub(super) counter: String,
    pub(super) what: CountedRequests,
    pub(super) most: u64,
    /// The lines of the condition.
    pub(super) numbers: Vec<usize>,
    /// The rest of the condition, for `when` of the rate.
    pub(super) when: Option<String>,
}

pub(super) enum ConditionVerdict {
    Yes,
    No,
    /// For clients above a rate.
    Above(RateRule),
    Unsaid(String),
}

/// Listeners whose requests conditions distinguish from others.
struct Class {
    has_tls: bool,
    port: Option<u16>,
    addresses: Vec<String>,
}

impl<'s> HaproxyAdapter<'s> {
    pub(super) fn frontends(&mut self, files: &mut PatternFiles<'_>) {
        let mut http = Vec::new();
        for (place, section) in self.sections.iter().enumerate() {
            if !matches!(section.kind(), "frontend" | "listen") || self.is_statistics(place) {
                continue;
            }
            self.timeouts(place);
            let binds = self.binds(place);
            if self.is_tcp(place) {
                self.pass_bytes(place, &binds, files);
            } else {
                http.push((place, binds));
            }
        }
        let mut made: Vec<(Vec<String>, Vec<DraftTable>)> = Vec::new();
        for (place, binds) in http {
            for (addresses, tables) in self.routes(place, &binds, files) {
                made.push((addresses, tables));
            }
        }
        let needs_names = made.len() > 1;
        for (addresses, tables) in made {
            for mut table in tables {
                if needs_names {
                    table.set_first("listener", crate::sheet::one_or_list(&addresses));
                }
                self.sheet.routes.push(table);
            }
        }
    }

    /// Handles a section that only serves statistics. Returns whether it does.
    fn is_statistics(&mut self, place: usize) -> bool {
        let section = &self.sections[place];
        let has = |names: &[&str]| section.lines.iter().any(|line| names.contains(&line.word(0)));
        let is_metrics = section.lines.iter().any(|line| line.has("prometheus-exporter"));
        let is = (has(&["stats"]) || is_metrics)
            && !has(&["server", "default_backend", "use_backend", "server-template"]);
        if is {
            let lines = std::iter::once(&section.head).chain(&section.lines);
            for line in lines {
                let why = "there is no page of statistics at a listener";
                let instead =
                    "use `dashboard` and `metrics` (an address each), `vanward top` and `vanward status`";
                self.sheet.refuse(line.number, why, instead);
            }
        }
        is
    }

    /// Builds the routes of a frontend, for each group of listeners with the same result.
    fn routes(
        &mut self,
        place: usize,
        binds: &[Bind],
        files: &mut PatternFiles<'_>,
    ) -> Vec<(Vec<String>, Vec<DraftTable>)> {
        let mut variables = Rc::default();
        let mut sets = vec![self.rules(place, files, &mut variables)];
        let named = sets[0].backends.iter().map(|rule| match &rule.backend {
            None => self.backend(rule.line.word(1)).into_iter().collect(),
            Some(name) => name.as_ref().map_or(Vec::new(), |name| self.candidates(name)),
        });
        let mut backends: Vec<usize> = named.flatten().collect();
        backends.extend(self.one(place, &["default_backend"]).and_then(|line| self.backend(line.word(1))));
        let mut reached = BTreeSet::from([place]);
        for backend in backends {
            if reached.insert(backend) {
                sets.push(self.rules(backend, files, &mut Rc::clone(&variables)));
            }
        }
        let schema = self.sheet.definitions.schema();
        let all =
            || sets.iter().flat_map(|set| set.requests.iter().chain(&set.backends).chain(&set.responses));
        let conditions: Vec<&AclCondition> = all().filter_map(|rule| rule.condition.as_ref()).collect();
        let tests: Vec<Test> = conditions.iter().flat_map(|condition| condition.tests()).collect();
        let goes_by = |is_it: fn(&Term) -> bool| {
            conditions.iter().flat_map(|condition| condition.terms()).any(|criterion| is_it(&criterion.term))
        };
        let by_tls = goes_by(|term| matches!(term, Term::Tls(_)));
        let by_port = goes_by(|term| matches!(term, Term::Port(_)));
        for rule in all() {
            self.sheet.met.insert(rule.line.number);
            self.sheet.met.extend(rule.condition.iter().flat_map(AclCondition::numbers));
        }
        let is_in_order = depends_on_order(&sets, &tests);
        let mut made: Vec<(Vec<String>, Vec<DraftTable>)> = Vec::new();
        for class in classes(binds, by_tls, by_port) {
            let found = rules::routes(&tests, &schema, &mut |holds| {
                let facts = RequestFacts { holds, has_tls: class.has_tls, port: class.port, is_in_order };
                self.judge(&sets, facts)
            });
            self.sheet.report(&found);
            let is_same = |tables: &Vec<DraftTable>| {
                tables.len() == found.tables.len()
                    && tables.iter().zip(&found.tables).all(|(one, other)| one.says_the_same(other))
            };
            match made.iter_mut().find(|(_, tables)| is_same(tables)) {
                Some((addresses, _)) => addresses.extend(class.addresses),
                None => made.push((class.addresses, found.tables)),
            }
        }
        made
    }

    pub(super) fn backend(&self, name: &str) -> Option<usize> {
        let is_it = |kind: &str| matches!(kind, "backend" | "listen");
        self.sections.iter().position(|section| is_it(section.kind()) && section.name() == name)
    }

    /// Applies all rules to one kind of request.
    fn judge(&mut self, sets: &[RuleSet<'s>], facts: RequestFacts<'_>) -> RegionOutcome {
        let front = &sets[0];
        let head = &self.sections[front.place].head;
        let mut made = RegionOutcome {
            from: vec![StatementOrigin::Directive(head.number)],
            options: DraftTable::default(),
        };
        if self.requests(&front.requests, front.place, facts, &mut made) {
            self.responses(after(&front.responses), facts, &mut made);
            return made;
        }
        let (back, upstream) = match self.chosen(sets, facts, &mut made) {
            ChosenBackend::Backend(back) => (back, None),
            ChosenBackend::Named(back, upstream) => (back, Some(upstream)),
            ChosenBackend::Answered => return made,
            ChosenBackend::Nothing => {
                let why = vec![StatementOrigin::Default("no backend is chosen")];
                made.options.set("respond", rules::answer(503, None), why);
                self.responses(after(&front.responses), facts, &mut made);
                return made;
            }
        };
        let Some(set) = sets.iter().find(|set| set.place == back) else { return made };
        if back != front.place {
            if upstream.is_none() {
                made.from.push(StatementOrigin::Directive(self.sections[back].head.number));
            }
            if self.requests(&set.requests, back, facts, &mut made) {
                self.responses(after(&front.responses), facts, &mut made);
                self.responses(after(&set.responses), facts, &mut made);
                return made;
            }
        }
        self.serve(front.place, back, &mut made);
        if let Some(upstream) = upstream {
            made.options.set("upstream", upstream, Vec::new());
        }
        self.responses(&front.responses, facts, &mut made);
        if back != front.place {
            self.responses(&set.responses, facts, &mut made);
        }
        made
    }

    pub(super) fn unsaid(&mut self, rule: &FrontendRule<'_>, why: &str) {
        let instead = "write a [[route]] with `host`, `path`, `clients` or `when`: docs/conditions.md";
        self.sheet.refuse(rule.line.number, why, instead);
    }

    /// Evaluates the condition of a rule. Where routes would become too many, that of a `minor` one is unsaid.
    pub(super) fn verdict(
        &self,
        rule: &FrontendRule<'_>,
        facts: RequestFacts<'_>,
        made: &RegionOutcome,
        is_minor: bool,
    ) -> ConditionVerdict {
        let Some(condition) = &rule.condition else { return ConditionVerdict::Yes };
        let RequestFacts { holds, has_tls, port, .. } = facts;
        let is_logged_in = made.options.get("auth").is_some();
        let said =
            |is_above: bool| condition.expression(KnownFacts { has_tls, port, is_logged_in, is_above });
        let decided = |said: &Expression| match is_minor {
            true => said.minor_verdict(holds, has_tls),
            false => said.verdict(holds, has_tls),
        };
        // Nearly all requests are below the rate.
        match decided(&said(false)) {
            Ok(true) => return ConditionVerdict::Yes,
            Err(why) => return ConditionVerdict::Unsaid(why),
            Ok(false) => {}
        }
        let Some((counter, most, what)) = condition.rate() else { return ConditionVerdict::No };
        let rate = |when: Option<String>| {
            ConditionVerdict::Above(RateRule {
                counter: counter.to_owned(),
                what,
                most,
                numbers: condition.numbers(),
                when,
            })
        };
        let above = said(true);
        // Without a path, the rest of the condition is one of the rate, and needs no route.
        let rest = above.rest(holds, has_tls).ok().filter(|rest| !rest.asks_for_path());
        match rest {
            Some(Formula::Known(true)) => return rate(None),
            Some(Formula::Known(false)) => return ConditionVerdict::No,
            Some(rest) => {
                if let Some(when) = rest.written(&self.sheet.definitions.schema()) {
                    return rate(Some(when));
                }
            }
            None => {}
        }
        match decided(&above) {
            Ok(true) => rate(None),
            Ok(false) => ConditionVerdict::No,
            Err(why) => ConditionVerdict::Unsaid(why),
        }
    }
}

/// The rules that also apply to HAProxy's own responses.
fn after<'r, 's>(rules: &'r [FrontendRule<'s>]) -> impl Iterator<Item = &'r FrontendRule<'s>> {
    rules.iter().filter(|rule| rule.line.word(0) == "http-after-response")
}

/// Whether a condition asks for a request field that a rule changes.
fn depends_on_order(sets: &[RuleSet<'_>], tests: &[Test]) -> bool {
    let changed: Vec<String> = sets
        .iter()
        .flat_map(|set| &set.requests)
        .filter(|rule| matches!(rule.line.word(1), "set-header" | "add-header" | "del-header"))
        .map(|rule| rule.line.word(2).to_ascii_lowercase())
        .collect();
    tests.iter().any(|test| match &test.atom {
        Atom::Header(name, _) => changed.contains(&name.to_ascii_lowercase()),
        Atom::Host(_) => changed.iter().any(|name| name == "host"),
        Atom::When(text) => changed.iter().any(|name| match name.as_str() {
            "host" => text.contains("request.host"),
            name => text.contains(&format!("request.headers[\"{name}\"]")),
        }),
        _ => false,
    })
}

/// Groups the listeners of a frontend by the properties that its conditions use.
fn classes(binds: &[Bind], by_tls: bool, by_port: bool) -> Vec<Class> {
    let mut classes: Vec<Class> = Vec::new();
    for bind in binds {
        let (has_tls, port) = (by_tls && bind.has_tls, bind.port.filter(|_| by_port));
        match classes.iter_mut().find(|class| (class.has_tls, class.port) == (has_tls, port)) {
            Some(class) => class.addresses.push(bind.address.clone()),
            None => classes.push(Class { has_tls, port, addresses: vec![bind.address.clone()] }),
        }
    }
    classes
}
