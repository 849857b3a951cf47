//! Rules in order: access, selection of servers, caching.

use super::SquidAdapter;
use super::syntax::SquidLine;
use crate::draft::{DraftTable, DraftValue, StatementOrigin};
use crate::rules::{self, Expression, Holds, RegionOutcome, Test};
use crate::values::{self, duration};

/// A rule: whether it allows, the condition, the line.
struct AccessRule<'s> {
    allows: bool,
    condition: Expression,
    line: &'s SquidLine,
}

/// A refresh_pattern: its expression as a path condition, and the line.
struct Refresh<'s> {
    condition: Option<Expression>,
    line: &'s SquidLine,
}

struct AccessRules<'s> {
    access: Vec<AccessRule<'s>>,
    cache: Vec<AccessRule<'s>>,
    peers: Vec<(&'s SquidLine, Vec<AccessRule<'s>>)>,
    refresh: Vec<Refresh<'s>>,
}

fn from(line: &SquidLine) -> Vec<StatementOrigin> {
    vec![StatementOrigin::Directive(line.number)]
}

impl<'s> SquidAdapter<'s> {
    pub(super) fn routes(&mut self) {
        let rules = self.read();
        let mut tests: Vec<Test> = Vec::new();
        let all =
            rules.access.iter().chain(&rules.cache).chain(rules.peers.iter().flat_map(|(_, rules)| rules));
        for rule in all {
            rule.condition.tests(&mut tests);
            self.sheet.met.insert(rule.line.number);
            self.sheet
                .met
                .extend(rule.condition.numbers().into_iter().filter(|number| *number != usize::MAX));
        }
        for condition in rules.refresh.iter().filter_map(|refresh| refresh.condition.as_ref()) {
            condition.tests(&mut tests);
        }
        // Predefined ACLs have no line.
        for test in &mut tests {
            test.from.retain(|origin| *origin != StatementOrigin::Directive(usize::MAX));
        }
        if self.sheet.listeners.is_empty() {
            return;
        }
        let has_tls = self.sheet.listeners.iter().all(|listener| listener.get("tls").is_some());
        let schema = self.sheet.definitions.schema();
        let found = rules::routes(&tests, &schema, &mut |holds| self.judge(&rules, holds, has_tls));
        self.sheet.report(&found);
        self.sheet.routes = found.tables;
    }

    fn read(&mut self) -> AccessRules<'s> {
        let rules = |name: &'static str, skip: usize| -> Vec<AccessRule<'s>> {
            self.all(name).filter_map(|line| self.rule(line, skip)).collect()
        };
        let access = rules("http_access", 1);
        let mut cache = rules("cache", 1);
        cache.extend(rules("no_cache", 1));
        let named = rules("cache_peer_access", 2);
        let mut peers: Vec<(&'s SquidLine, Vec<AccessRule<'s>>)> = self
            .all("cache_peer")
            .filter(|line| line.has("originserver"))
            .map(|line| (line, Vec::new()))
            .collect();
        for rule in named {
            let name = rule.line.word(1);
            if let Some((_, list)) =
                peers.iter_mut().find(|(line, _)| line.option("name").unwrap_or_else(|| line.word(1)) == name)
            {
                list.push(rule);
            }
        }
        let refresh = self.all("refresh_pattern").map(|line| {
            let ignores_case = line.word(1) == "-i";
            let text = line.word(1 + usize::from(ignores_case));
            let condition = match text {
                "." => None,
                text => Some(match values::expression(text, ignores_case) {
                    // Squid searches the whole URL.
                    Ok(pattern) if !text.starts_with('^') => {
                        Expression::Any(vec![rules::Atom::Path(rules::PathIs::Pattern(pattern))], line.number)
                    }
                    _ => Expression::Unsaid("its expression matches the whole URL".to_owned()),
                }),
            };
            Refresh { condition, line }
        });
        let refresh = refresh.collect();
        AccessRules { access, cache, peers, refresh }
    }

    /// Parses `http_access allow A !B`: all ACLs must hold.
    fn rule(&self, line: &'s SquidLine, skip: usize) -> Option<AccessRule<'s>> {
        let allows = match line.word(skip) {
            "allow" => true,
            "deny" => false,
            _ => return None,
        };
        let parts = line.words.iter().skip(skip + 1).map(|word| {
            let name = word.strip_prefix('!').unwrap_or(word);
            let unknown = || Expression::Unsaid(format!("there is no ACL {name}"));
            let known = self.acls.get(name).cloned().unwrap_or_else(unknown);
            if word.starts_with('!') { known.not() } else { known }
        });
        Some(AccessRule { allows, condition: Expression::all(parts.collect()), line })
    }

    /// Returns the result of the first rule that holds; without one, the opposite of the last.
    fn first(
        &mut self,
        list: &[AccessRule<'s>],
        otherwise: bool,
        holds: &Holds<'_>,
        has_tls: bool,
    ) -> (bool, Option<&'s SquidLine>) {
        for rule in list {
            match rule.condition.verdict(holds, has_tls) {
                Ok(true) => return (rule.allows, Some(rule.line)),
                Ok(false) => {}
                Err(why) => {
                    let instead = "write a [[route]] with `host`, `path`, `methods`, `headers` or `clients`";
                    self.sheet.refuse(rule.line.number, &why, instead);
                }
            }
        }
        (list.last().map_or(otherwise, |rule| !rule.allows), None)
    }

    fn judge(&mut self, rules: &AccessRules<'s>, holds: &Holds<'_>, has_tls: bool) -> RegionOutcome {
        let mut made = RegionOutcome { from: Vec::new(), options: DraftTable::default() };
        let (is_allowed, line) = self.first(&rules.access, false, holds, has_tls);
        made.from.extend(line.map(|line| StatementOrigin::Directive(line.number)));
        if !is_allowed {
            self.refused(line, &mut made);
            return made;
        }
        let mut peers = Vec::new();
        for (peer, list) in &rules.peers {
            let (may, line) = self.first(list, true, holds, has_tls);
            if may {
                peers.push(*peer);
                made.from.extend(line.map(|line| StatementOrigin::Directive(line.number)));
            }
        }
        let Some(upstream) = (!peers.is_empty()).then(|| self.upstream(&peers)).flatten() else {
            made.options.set(
                "respond",
                rules::answer(503, None),
                vec![StatementOrigin::Default("no server may be asked")],
            );
            return made;
        };
        made.options.set("upstream", upstream, Vec::new());
        let (is_stored, line) = self.first(&rules.cache, true, holds, has_tls);
        made.from.extend(line.map(|line| StatementOrigin::Directive(line.number)));
        if is_stored {
            self.freshness(&rules.refresh, holds, &mut made);
        }
        self.fields(&mut made);
        made
    }

    /// Sets 403, or the response that `deny_info` has for the rule's last ACL.
    fn refused(&mut self, line: Option<&'s SquidLine>, made: &mut RegionOutcome) {
        let origins = line.map(from).unwrap_or_else(|| vec![StatementOrigin::Default("no rule allows it")]);
        let last = line.and_then(|line| line.words.last());
        let told = self
            .all("deny_info")
            .find(|told| last.is_some_and(|last| told.words.iter().skip(2).any(|name| name == last)));
        if let Some(told) = told {
            let (status, to) = told
                .word(1)
                .split_once(':')
                .filter(|(status, _)| status.parse::<u64>().is_ok())
                .unwrap_or(("302", told.word(1)));
            if to.starts_with("http") && !to.contains('%') {
                let status = status
                    .parse()
                    .ok()
                    .filter(|status| [301, 302, 303, 307, 308].contains(status))
                    .unwrap_or(302);
                let to = crate::values::without_query(to.to_owned());
                let pairs = [("to".to_owned(), to.into()), ("status".to_owned(), DraftValue::Number(status))];
                return made.options.set("redirect", DraftValue::Table(pairs.into()), from(told));
            }
        }
        made.options.set("respond", rules::answer(403, None), origins);
    }

    /// Sets the lifetime of responses without explicit freshness.
    fn freshness(&mut self, patterns: &[Refresh<'s>], holds: &Holds<'_>, made: &mut RegionOutcome) {
        made.options.extend(
            "cache",
            ("heuristic", "20%".into()),
            vec![StatementOrigin::Default("as Squid stores by default")],
        );
        made.options.extend("cache", ("heuristic_max", "3d".into()), Vec::new());
        for refresh in patterns {
            let line = refresh.line;
            match refresh.condition.as_ref().map_or(Ok(true), |condition| condition.verdict(holds, false)) {
                Ok(false) => continue,
                Ok(true) => {}
                Err(why) => {
                    let instead = "write `default_ttl`, `heuristic` and `heuristic_max` of `cache`";
                    self.sheet.refuse(line.number, &why, instead);
                    continue;
                }
            }
            let first = 2 + usize::from(line.word(1) == "-i");
            let minutes = |index: usize| {
                line.word(first + index)
                    .parse::<u64>()
                    .ok()
                    .map(|minutes| minutes.saturating_mul(60_000).min(365 * 86_400_000))
            };
            let percent = line
                .word(first + 1)
                .trim_end_matches('%')
                .parse::<u64>()
                .ok()
                .map(|percent| percent.min(100));
            let (Some(least), Some(percent), Some(most)) = (minutes(0), percent, minutes(2)) else {
                self.sheet.refuse(
                    line.number,
                    "its numbers are not understood",
                    "write `heuristic` of `cache`",
                );
                continue;
            };
            made.options.extend("cache", ("heuristic", format!("{percent}%").into()), from(line));
            if most > 0 {
                made.options.extend("cache", ("heuristic_max", duration(most).into()), Vec::new());
            }
            if least > 0 {
                let key = if line.has("override-expire") { "ttl" } else { "default_ttl" };
                made.options.extend("cache", (key, duration(least).into()), Vec::new());
            }
            if line.has("ignore-private") || line.has("ignore-no-store") {
                made.options.extend("cache", ("force", true.into()), Vec::new());
            }
            if line.has("ignore-reload") || line.has("reload-into-ims") {
                made.options.extend("cache", ("ignore", "request-directives".into()), Vec::new());
            }
            return;
        }
    }

    fn fields(&mut self, made: &mut RegionOutcome) {
        let lines = self.lines;
        for line in lines {
            match (line.word(0), line.word(1), line.word(2), line.word(3)) {
                ("via", "off", ..) => made.options.set("via", "off", from(line)),
                ("request_header_access", field, "deny", "all") => {
                    made.options.listed("request_headers", "remove", field, from(line));
                }
                ("reply_header_access", field, "deny", "all") => {
                    made.options.listed("response_headers", "remove", field, from(line));
                }
                ("request_header_add", field, value, "all") if !value.contains('%') => {
                    made.options.field("request_headers", "add", field, value, from(line));
                }
                ("reply_header_add", field, value, "all") if !value.contains('%') => {
                    made.options.field("response_headers", "add", field, value, from(line));
                }
                _ => {}
            }
        }
    }
}
