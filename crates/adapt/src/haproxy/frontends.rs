//! Applies each frontend's rules once for every kind of request that its conditions distinguish.

use super::HaproxyAdapter;
use super::acl::{AclCondition, CountedRequests, KnownFacts, Term, condition};
use super::binds::Bind;
use super::syntax::HaproxyLine;
use crate::Include;
use crate::draft::{DraftTable, StatementOrigin};
use crate::rules::{self, Atom, Expression, Formula, Holds, RegionOutcome, Test};

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

/// Where requests go after the rules of a frontend.
enum Chosen {
    Backend(usize),
    /// A rule has answered.
    Answered,
    Nothing,
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
            let found = rules::routes(&tests, &mut |holds| {
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
        let back = match self.chosen(front, facts, &mut made) {
            Chosen::Backend(back) => back,
            Chosen::Answered => return made,
            Chosen::Nothing => {
                let why = vec![StatementOrigin::Default("no backend is chosen")];
                made.options.set("respond", rules::answer(503, None), why);
                return made;
            }
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

    fn chosen(&mut self, front: &RuleSet<'s>, facts: RequestFacts<'_>, made: &mut RegionOutcome) -> Chosen {
        for rule in &front.backends {
            match self.verdict(rule, facts, made, false) {
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
                    return place.map_or(Chosen::Nothing, Chosen::Backend);
                }
                ConditionVerdict::Above(_) if !self.refuses(rule) => {
                    self.unsaid(rule, "no backend is chosen by a rate");
                }
                ConditionVerdict::Unsaid(why) if !self.refuses(rule) => self.unsaid(rule, &why),
                ConditionVerdict::Above(_) | ConditionVerdict::Unsaid(_) => {
                    self.unsaid(
                        rule,
                        "its backend refuses requests, but its condition is not translated: 501",
                    );
                    self.not_taken(rule, made);
                    return Chosen::Answered;
                }
            }
        }
        if let Some(default) = self.one(front.place, &["default_backend"]) {
            made.from.push(StatementOrigin::Directive(default.number));
            return self.backend(default.word(1)).map_or(Chosen::Nothing, Chosen::Backend);
        }
        let is_listen = self.sections[front.place].kind() == "listen";
        if is_listen { Chosen::Backend(front.place) } else { Chosen::Nothing }
    }

    /// Whether a backend refuses all requests: it has no server, or denies without a condition.
    fn refuses(&self, rule: &FrontendRule<'_>) -> bool {
        let Some(place) = self.backend(rule.line.word(1)) else { return false };
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
                if let Some(when) = rest.written() {
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
        Atom::When(text) => changed.iter().any(|name| text.contains(&format!("request.headers[\"{name}\"]"))),
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
