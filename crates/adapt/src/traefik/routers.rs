//! Applies routers in the order of priority to each kind of request.

use super::entry_points::{ListenerPoint, Redirect};
use super::middlewares::MiddlewareDraft;
use super::rule::{self, RuleSyntax};
use super::{TraefikAdapter, find, from, numbers, text};
use crate::RemarkKind;
use crate::draft::{DraftTable, DraftValue, StatementOrigin};
use crate::rules::{self, Atom, Expression, Holds, PathIs, RegionOutcome, Test};
use crate::source::Directive;

struct Router<'s> {
    directive: &'s Directive,
    rule: Expression,
    priority: i64,
}

impl<'s> TraefikAdapter<'s> {
    pub(super) fn routers(&mut self, points: &[ListenerPoint<'s>]) {
        let mut routers: Vec<Router<'s>> = Vec::new();
        for directive in self.defined("http", "routers") {
            routers.extend(self.router(directive));
        }
        // Highest priority first; for equal ones, the longer rule.
        routers.sort_by_key(|router| std::cmp::Reverse(router.priority));
        let have_routes: Vec<&ListenerPoint<'s>> = points
            .iter()
            .filter(|point| {
                !matches!(point.redirect, Some(Redirect::Https))
                    && (point.redirect.is_some() || routers.iter().any(|router| point.has(router.directive)))
            })
            .collect();
        let has_names = points.len() > 1;
        for point in points {
            self.listener(point, has_names);
        }
        let needs_names = have_routes.len() > 1;
        for point in have_routes {
            for mut table in self.routes(point, &routers) {
                if needs_names {
                    table.set_first("listener", point.name.as_str());
                }
                self.sheet.routes.push(table);
            }
        }
        for router in &routers {
            let told = find(router.directive, "rule").map_or(router.directive.number, |rule| rule.number);
            for number in [router.directive.number, told] {
                self.sheet.say_if_unsaid(
                    number,
                    RemarkKind::NeedsNothing,
                    "requests get the same responses without it",
                );
            }
        }
    }

    fn router(&mut self, directive: &'s Directive) -> Option<Router<'s>> {
        let (written, place) = text(directive, "rule").unwrap_or(("PathPrefix(`/`)", directive));
        let instead = "write a [[route]] with `host`, `path`, `methods`, `headers`, `query` or `clients`";
        let core = self.top("core").find_map(|core| text(core, "defaultRuleSyntax"));
        let told = text(directive, "ruleSyntax").or(core);
        let syntax = told.and_then(|(word, _)| RuleSyntax::named(word)).unwrap_or(RuleSyntax::Either);
        let rule = match rule::read(written, syntax, place.number) {
            Ok(rule) => rule,
            Err(why) => {
                self.sheet.refuse(place.number, &format!("its rule is not understood: {why}"), instead);
                return None;
            }
        };
        let told = text(directive, "priority").and_then(|(word, _)| word.parse::<i64>().ok());
        // Traefik counts bytes.
        let priority = told.filter(|told| *told != 0).unwrap_or(written.len().try_into().unwrap_or(i64::MAX));
        for inner in directive.inner() {
            match inner.name.to_ascii_lowercase().as_str() {
                "entrypoints" => self.sheet.needless(inner.number, "the routes are at the listeners"),
                "priority" => {
                    self.sheet.needless(inner.number, "the order of routes follows from what they match");
                }
                "middlewares" => self.sheet.needless(inner.number, "they are written in the route"),
                "rulesyntax" => self.sheet.needless(inner.number, "rules are read by their version"),
                _ => {}
            }
        }
        Some(Router { directive, rule, priority })
    }

    fn routes(&mut self, point: &ListenerPoint<'s>, all: &[Router<'s>]) -> Vec<DraftTable> {
        if let Some(Redirect::To(to, origins)) = &point.redirect {
            let mut table = DraftTable::new("[[route]]", Vec::new());
            table.set("redirect", to.clone(), origins.clone());
            return vec![table];
        }
        let mut routers: Vec<&Router<'s>> = Vec::new();
        for router in all.iter().filter(|router| point.has(router.directive)) {
            let has_tls = find(router.directive, "tls").is_some() || point.of_http("tls").is_some();
            if point.has_tls && !has_tls {
                let why = format!(
                    "other routers of {} have TLS, and a listener with TLS accepts no plain HTTP",
                    point.name
                );
                let instead = "give it a separate entry point, or `tls: {}`";
                self.sheet.refuse(router.directive.number, &why, instead);
            } else {
                routers.push(router);
            }
        }
        let mut tests: Vec<Test> = Vec::new();
        for router in &routers {
            router.rule.tests(&mut tests);
            let chain = self.chain(point, router.directive);
            self.tests_of(&chain, &mut tests, 0);
        }
        let schema = self.sheet.definitions.schema();
        let found = rules::routes(&tests, &schema, &mut |holds| self.judge(point, &routers, holds));
        self.sheet.report(&found);
        // Without a route the response is 404 as well.
        let nobody = nobody().options;
        found.tables.into_iter().filter(|table| !table.says_the_same(&nobody)).collect()
    }

    fn judge(
        &mut self,
        point: &ListenerPoint<'s>,
        routers: &[&Router<'s>],
        holds: &Holds<'_>,
    ) -> RegionOutcome {
        for router in routers {
            match router.rule.verdict(holds, point.has_tls) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(why) => {
                    let instead =
                        "write a [[route]] with `host`, `path`, `clients` or `when`: docs/conditions.md";
                    let chain = self.chain(point, router.directive);
                    if !self.guards(&chain, 0) {
                        self.sheet.refuse(router.directive.number, &why, instead);
                        continue;
                    }
                    let why = format!("{why}; its requests get 501, so that they are not let through");
                    self.sheet.refuse(router.directive.number, &why, instead);
                    let mut made = MiddlewareDraft::new(from(router.directive), holds, point.has_tls);
                    made.refuse(from(router.directive));
                    return made.finish();
                }
            }
            let mut made = MiddlewareDraft::new(from(router.directive), holds, point.has_tls);
            let chain = self.chain(point, router.directive);
            self.through(&chain, &mut made, 0);
            if !made.is_done {
                self.serve(router.directive, &mut made);
            }
            self.observed(router.directive, &mut made.outcome.options);
            return made.finish();
        }
        nobody()
    }

    /// Names of a router's middlewares with their places, those of its entry point first.
    fn chain(&self, point: &ListenerPoint<'s>, router: &'s Directive) -> Vec<(&'s str, &'s Directive)> {
        let lists = point.of_http("middlewares").into_iter().chain(find(router, "middlewares"));
        lists.flat_map(|list| list.words.iter().map(move |name| (name.as_str(), list))).collect()
    }

    fn observed(&mut self, router: &'s Directive, options: &mut DraftTable) {
        let Some(observability) = find(router, "observability") else { return };
        for option in observability.inner() {
            match (option.name.to_ascii_lowercase().as_str(), option.word(0)) {
                ("accesslogs", "false") => options.set("access_log", false, from(option)),
                ("accesslogs", _) => self.sheet.needless(option.number, "that is the default"),
                _ => {
                    for number in numbers(option) {
                        self.sheet.needless(number, "metrics and traces cover all routes");
                    }
                }
            }
        }
    }
}

/// The response if no router matches.
fn nobody() -> RegionOutcome {
    let mut options = DraftTable::default();
    let body = Some(("404 page not found\n", "text/plain; charset=utf-8"));
    options.set("respond", rules::answer(404, body), vec![StatementOrigin::Default("no router takes it")]);
    RegionOutcome { from: Vec::new(), options }
}

pub(super) fn prefix_test(prefix: &str, number: usize) -> Test {
    Test { atom: Atom::Path(PathIs::prefix(prefix)), from: vec![StatementOrigin::Directive(number)] }
}

pub(super) fn redirect_value(to: String, status: u64) -> DraftValue {
    DraftValue::Table(vec![("to".to_owned(), to.into()), ("status".to_owned(), DraftValue::Number(status))])
}
