//! Applies each frontend's rules once for every kind of request that its conditions distinguish.

use super::HaproxyAdapter;
use super::acl::{AclCondition, Literal, Term, condition};
use super::binds::Bind;
use super::syntax::HaproxyLine;
use crate::Include;
use crate::draft::{DraftTable, StatementOrigin};
use crate::rules::{self, Holds, RegionOutcome, Test};

pub(super) struct FrontendRule<'s> {
    pub(super) line: &'s HaproxyLine,
    pub(super) condition: Option<AclCondition>,
    /// The number of words before the condition.
    pub(super) end: usize,
}

impl FrontendRule<'_> {
    pub(super) fn words(&self) -> &[String] {
        &self.line.words[..self.end]
    }

    /// Returns the word after another one, before the condition.
    pub(super) fn behind(&self, name: &str) -> Option<&str> {
        let place = self.words().iter().position(|word| word == name)?;
        self.words().get(place + 1).map(String::as_str)
    }

    pub(super) fn from(&self) -> Vec<StatementOrigin> {
        vec![StatementOrigin::Directive(self.line.number)]
    }
}

pub(super) struct RuleSet<'s> {
    pub(super) place: usize,
    pub(super) requests: Vec<FrontendRule<'s>>,
    pub(super) backends: Vec<FrontendRule<'s>>,
    pub(super) responses: Vec<FrontendRule<'s>>,
}

#[derive(Clone, Copy)]
pub(super) struct RequestFacts<'h> {
    pub(super) holds: &'h Holds<'h>,
    has_tls: bool,
    port: Option<u16>,
}

pub(super) enum ConditionVerdict {
    Yes,
    No,
    /// For clients above a rate: counter, number, and the origins.
    Above(String, u64, Vec<usize>),
    Unsaid(String),
}

/// Listeners whose requests conditions distinguish from others.
struct Class {
    has_tls: bool,
    port: Option<u16>,
    addresses: Vec<String>,
}

impl<'s> HaproxyAdapter<'s> {
    pub(super) fn frontends(&mut self, include: Include<'_>) {
        let mut http = Vec::new();
        for (place, section) in self.sections.iter().enumerate() {
            if !matches!(section.kind(), "frontend" | "listen") || self.is_statistics(place) {
                continue;
            }
            self.timeouts(place);
            let binds = self.binds(place);
            if self.is_tcp(place) {
                self.pass_bytes(place, &binds, include);
            } else {
                http.push((place, binds));
            }
        }
        let mut made: Vec<(Vec<String>, Vec<DraftTable>)> = Vec::new();
        for (place, binds) in http {
            for (addresses, tables) in self.routes(place, &binds, include) {
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
        include: Include<'_>,
    ) -> Vec<(Vec<String>, Vec<DraftTable>)> {
        let mut sets = vec![self.rules(place, include)];
        let mut names: Vec<&str> = sets[0].backends.iter().map(|rule| rule.line.word(1)).collect();
        names.extend(self.one(place, &["default_backend"]).map(|line| line.word(1)));
        let mut reached = vec![place];
        for name in names {
            if let Some(backend) = self.backend(name)
                && !reached.contains(&backend)
            {
                reached.push(backend);
                sets.push(self.rules(backend, include));
            }
        }
        let all =
            || sets.iter().flat_map(|set| set.requests.iter().chain(&set.backends).chain(&set.responses));
        let conditions: Vec<&AclCondition> = all().filter_map(|rule| rule.condition.as_ref()).collect();
        let tests: Vec<Test> = conditions.iter().flat_map(|condition| condition.tests()).collect();
        for (number, why) in rules::segments(&tests) {
            self.sheet.differs(number, &why, rules::SEGMENTS_INSTEAD);
        }
        let goes_by = |is_it: fn(&Term) -> bool| {
            conditions.iter().flat_map(|condition| condition.terms()).any(|criterion| is_it(&criterion.term))
        };
        let by_tls = goes_by(|term| matches!(term, Term::Tls));
        let by_port = goes_by(|term| matches!(term, Term::Port(_)));
        for rule in all() {
            self.sheet.met.insert(rule.line.number);
            self.sheet.met.extend(rule.condition.iter().flat_map(AclCondition::numbers));
        }
        let mut made: Vec<(Vec<String>, Vec<DraftTable>)> = Vec::new();
        for class in classes(binds, by_tls, by_port) {
            let found = rules::routes(&tests, &mut |holds| {
                self.judge(&sets, RequestFacts { holds, has_tls: class.has_tls, port: class.port })
            });
            for (origins, why) in [
                (
                    found.unsaid,
                    "a request that matches this and another expression gets the result of the first one",
                ),
                (found.dropped, "it has more conditions than can become routes"),
            ] {
                for origin in origins {
                    if let StatementOrigin::Directive(number) = origin {
                        self.sheet.differs(number, why, "write a [[route]] for requests that match both");
                    }
                }
            }
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

    fn rules(&mut self, place: usize, include: Include<'_>) -> RuleSet<'s> {
        let mut set = RuleSet { place, requests: Vec::new(), backends: Vec::new(), responses: Vec::new() };
        let mut levels: Vec<_> = self.levels(place).collect();
        levels.reverse();
        let mut redirects = Vec::new();
        for line in levels.iter().flat_map(|level| &level.lines) {
            let list = match line.word(0) {
                "http-request" => &mut set.requests,
                // HAProxy applies these after all others.
                "redirect" => &mut redirects,
                "tcp-request"
                    if matches!(line.word(2), "reject" | "silent-drop")
                        && line.word(1) != "inspect-delay" =>
                {
                    &mut set.requests
                }
                "use_backend" => &mut set.backends,
                "http-response" | "http-after-response" => &mut set.responses,
                _ => continue,
            };
            let (condition, end) = condition(line, &self.acls[place], include);
            list.push(FrontendRule { line, condition, end });
        }
        set.requests.extend(redirects);
        set
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
            return made;
        }
        let Some(back) = self.chosen(front, facts, &mut made) else {
            made.options.set(
                "respond",
                rules::answer(503, None),
                vec![StatementOrigin::Default("no backend is chosen")],
            );
            return made;
        };
        let Some(set) = sets.iter().find(|set| set.place == back) else { return made };
        if back != front.place {
            made.from.push(StatementOrigin::Directive(self.sections[back].head.number));
            if self.requests(&set.requests, back, facts, &mut made) {
                return made;
            }
        }
        self.serve(front.place, back, &mut made);
        self.responses(&front.responses, facts, &mut made);
        if back != front.place {
            self.responses(&set.responses, facts, &mut made);
        }
        made
    }

    fn chosen(
        &mut self,
        front: &RuleSet<'s>,
        facts: RequestFacts<'_>,
        made: &mut RegionOutcome,
    ) -> Option<usize> {
        for rule in &front.backends {
            match self.verdict(rule, facts, made) {
                ConditionVerdict::No => {}
                ConditionVerdict::Yes => {
                    made.from.push(StatementOrigin::Directive(rule.line.number));
                    let place = self.backend(rule.line.word(1));
                    if place.is_none() {
                        let instead = "write a [[route]] for each backend, with `headers`, `host` or `query`";
                        self.sheet.refuse(
                            rule.line.number,
                            "no backend has this name, or it contains a variable",
                            instead,
                        );
                        continue;
                    }
                    return place;
                }
                ConditionVerdict::Above(..) => self.unsaid(rule, "no backend is chosen by a rate"),
                ConditionVerdict::Unsaid(why) => self.unsaid(rule, &why),
            }
        }
        if let Some(default) = self.one(front.place, &["default_backend"]) {
            made.from.push(StatementOrigin::Directive(default.number));
            return self.backend(default.word(1));
        }
        let is_listen = self.sections[front.place].kind() == "listen";
        is_listen.then_some(front.place)
    }

    pub(super) fn unsaid(&mut self, rule: &FrontendRule<'_>, why: &str) {
        let instead =
            "write a [[route]] with `host`, `path`, `methods`, `headers`, `cookie`, `query` or `clients`";
        self.sheet.refuse(rule.line.number, why, instead);
    }

    pub(super) fn verdict(
        &mut self,
        rule: &FrontendRule<'_>,
        facts: RequestFacts<'_>,
        made: &RegionOutcome,
    ) -> ConditionVerdict {
        let Some(condition) = &rule.condition else { return ConditionVerdict::Yes };
        let mut best = ConditionVerdict::No;
        for alternative in &condition.0 {
            let verdict = together(alternative, facts, made.options.get("auth").is_some());
            best = match (best, verdict) {
                (_, ConditionVerdict::Yes) => return ConditionVerdict::Yes,
                (ConditionVerdict::No, found) => found,
                (ConditionVerdict::Unsaid(_), found @ ConditionVerdict::Above(..)) => found,
                (best, _) => best,
            };
        }
        best
    }
}

/// Evaluates an alternative: all of its parts must hold.
fn together(alternative: &[Literal], facts: RequestFacts<'_>, is_logged_in: bool) -> ConditionVerdict {
    let mut best = ConditionVerdict::Yes;
    for literal in alternative {
        let mut found = ConditionVerdict::No;
        for criterion in &literal.any {
            let is = match &criterion.term {
                Term::Any(atoms) => atoms.iter().any(|atom| facts.holds.atom(atom)),
                Term::Tls => facts.has_tls,
                Term::Port(ports) => facts.port.is_some_and(|port| ports.contains(&port)),
                Term::LoggedIn(_) => is_logged_in,
                Term::Fixed(is) => *is,
                Term::Rate { counter, most } => {
                    found = ConditionVerdict::Above(counter.clone(), *most, vec![criterion.number]);
                    false
                }
                Term::Unsaid(why) => {
                    found = ConditionVerdict::Unsaid(why.clone());
                    false
                }
            };
            if is {
                found = ConditionVerdict::Yes;
                break;
            }
        }
        let found = match (literal.negated, found) {
            // Nearly all requests are below the rate.
            (true, ConditionVerdict::No | ConditionVerdict::Above(..)) => ConditionVerdict::Yes,
            (true, ConditionVerdict::Yes) => ConditionVerdict::No,
            (_, found) => found,
        };
        best = match (best, found) {
            (_, ConditionVerdict::No) => return ConditionVerdict::No,
            (best, ConditionVerdict::Yes) => best,
            (best @ ConditionVerdict::Unsaid(_), _) => best,
            (_, found) => found,
        };
    }
    best
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
