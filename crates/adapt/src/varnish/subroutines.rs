//! Applies subroutines to each kind of request: backend, caching, response.

use std::collections::BTreeSet;

use super::conditions::is_refusal;
use super::repeats::{self, Attempt};
use super::responses::{self, ignore};
use super::syntax::{Statement, VclToken};
use super::{VarnishAdapter, milliseconds};
use crate::draft::{DraftTable, DraftValue, StatementOrigin};
use crate::rules::{self, Atom, Expression, FieldNow, Formula, Holds, PathNow, RegionOutcome, Test, TextIs};
use crate::values;

pub(super) const YEAR: u64 = 365 * 86_400_000;
pub(super) const CALLS_DEEP_MAX: usize = 16;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum RequestWay {
    Open,
    Hash,
    Pass,
    Synth(u64, String),
    /// Skips the decisions of the built-in VCL.
    Done,
}

/// The options for a kind of request so far.
pub(super) struct VarnishDraft {
    pub(super) outcome: RegionOutcome,
    pub(super) backend: Option<String>,
    pub(super) way: RequestWay,
    /// A rule that keeps responses out of the cache has no translation.
    is_never_stored: bool,
    /// Whether a constant replaces what servers say in Cache-Control, so that it does not forbid to store.
    replaces_directives: bool,
    /// The condition under which Varnish compresses for the store, and what clients get is not compressed: those responses
    /// vary nevertheless.
    pub(super) varies: Option<(Option<String>, Vec<StatementOrigin>)>,
    /// The options after `vcl_recv`.
    pub(super) received: DraftTable,
    /// Whether a stored response may not answer, although others may find it.
    pub(super) is_fresh: bool,
    /// Options with names of fields, in small letters, whose values are not known.
    unknown: BTreeSet<(&'static str, String)>,
}

impl VarnishDraft {
    pub(super) fn new(backend: Option<String>) -> Self {
        Self {
            outcome: RegionOutcome { from: Vec::new(), options: DraftTable::default() },
            backend,
            way: RequestWay::Open,
            is_never_stored: false,
            replaces_directives: false,
            varies: None,
            received: DraftTable::default(),
            is_fresh: false,
            unknown: BTreeSet::new(),
        }
    }
}

pub(super) fn from(number: usize) -> Vec<StatementOrigin> {
    vec![StatementOrigin::Directive(number)]
}

/// The condition under which the built-in VCL passes a request. Where a rule writes an unknown text into a field, the
/// client's field decides.
fn passed(holds: &Holds<'_>) -> Formula {
    let has = |name: &str| {
        let atom = Atom::Header(name.to_owned(), TextIs::Present);
        let rest = Expression::Any(vec![atom.clone()], usize::MAX).rest(holds, false);
        rest.unwrap_or_else(|_| holds.rest_of(Formula::Atom(atom)))
    };
    Formula::any(vec![has("Authorization"), has("Cookie")])
}

impl<'s> VarnishAdapter<'s> {
    pub(super) fn routes(&mut self) {
        let mut tests: Vec<Test> = Vec::new();
        let received = self.subs.get("vcl_recv").cloned().unwrap_or_default();
        if self.refuses(&received) {
            self.spell(&received, 0);
        }
        for name in ["vcl_recv", "vcl_backend_fetch", "vcl_backend_response", "vcl_deliver"] {
            let body = self.subs.get(name).cloned().unwrap_or_default();
            self.gather(&body, 0, &mut tests);
        }
        for name in ["vcl_backend_error", "vcl_synth"] {
            let body = self.subs.get(name).cloned().unwrap_or_default();
            if repeats::returns(body.iter().copied(), 0) {
                self.gather(&body, 0, &mut tests);
            }
        }
        let schema = self.sheet.definitions.schema();
        let found = rules::routes(&tests, &schema, &mut |holds| self.judge(holds));
        self.sheet.report(&found);
        self.sheet.routes = found.tables;
        self.left_repeats();
        self.left_backends();
    }

    /// Collects the conditions of all statements, including called subroutines.
    fn gather(&mut self, body: &[&'s Statement], depth: usize, tests: &mut Vec<Test>) {
        for statement in body.iter().filter(|_| depth <= CALLS_DEEP_MAX) {
            match statement {
                Statement::If(branches) => {
                    for (number, condition, inner) in branches {
                        if self.purges.contains(number) {
                            continue;
                        }
                        self.sheet.met.insert(*number);
                        self.condition(condition, *number).tests(tests);
                        self.gather(&inner.iter().collect::<Vec<_>>(), depth + 1, tests);
                    }
                }
                Statement::Plain { name, tokens, .. } if name == "call" => {
                    let called = tokens
                        .first()
                        .and_then(|name| self.subs.get(name.text()).cloned())
                        .unwrap_or_default();
                    self.gather(&called, depth + 1, tests);
                }
                Statement::Plain { .. } => {}
            }
        }
    }

    fn judge(&mut self, holds: &Holds<'_>) -> RegionOutcome {
        let backend = self.backends.iter().find(|known| known.name == "default").or(self.backends.first());
        let backend = backend.map(|known| known.name.clone());
        let mut made = VarnishDraft::new(backend);
        self.sub("vcl_recv", holds, &mut made);
        made.received = made.outcome.options.clone();
        if let RequestWay::Synth(status, reason) = made.way.clone() {
            self.synth(status, &reason, &mut made);
            return made.outcome;
        }
        let is_open = made.way == RequestWay::Open;
        let is_stored = made.way == RequestWay::Hash || is_open && !made.is_never_stored;
        let passed = if is_open { passed(holds) } else { Formula::Known(false) };
        if !self.send_to_backend(&mut made) {
            return made.outcome;
        }
        if is_stored && passed != Formula::Known(true) {
            let why = |text| vec![StatementOrigin::Default(text)];
            let options = &mut made.outcome.options;
            if passed != Formula::Known(false) {
                let schema = self.sheet.definitions.schema();
                let when = passed.negated().written(&schema).unwrap_or_else(|| "false".to_owned());
                options.extend("cache", ("when", DraftValue::Expression(when)), why("the built-in vcl_recv"));
            }
            options.extend(
                "cache",
                ("default_ttl", "2m".into()),
                why("default_ttl and default_grace of varnishd"),
            );
            options.extend("cache", ("stale_while_revalidate", "10s".into()), Vec::new());
            options.extend("cache", ("heuristic", "0%".into()), Vec::new());
            options.extend("cache", ("ignore", "request-directives".into()), Vec::new());
            made.way = RequestWay::Open;
            self.sub("vcl_hash", holds, &mut made);
        }
        made.way = RequestWay::Open;
        let backend = made.backend.clone();
        self.sub("vcl_backend_fetch", holds, &mut made);
        if made.backend != backend {
            made.outcome.options.without("timeouts");
            if !self.send_to_backend(&mut made) {
                made.outcome.options.keep(&["respond"]);
                return made.outcome;
            }
        }
        made.way = RequestWay::Open;
        self.sub("vcl_backend_response", holds, &mut made);
        if made.replaces_directives && made.outcome.options.inner("cache", "ttl").is_some() {
            ignore("response-directives", Vec::new(), &mut made);
        }
        self.failures(holds, &mut made);
        made.way = RequestWay::Open;
        self.sub("vcl_deliver", holds, &mut made);
        responses::vary(&mut made);
        if made.is_never_stored {
            made.outcome.options.without("cache");
        }
        if made.outcome.options.get("cache").is_none() {
            made.outcome.options.without("values");
        }
        made.outcome
    }

    /// Sets the upstream and its time-outs. Returns false, with a response instead, if the backend has no server.
    fn send_to_backend(&mut self, made: &mut VarnishDraft) -> bool {
        let options = &mut made.outcome.options;
        let Some(upstream) = made.backend.clone().and_then(|name| self.upstream(&name)) else {
            let why = vec![StatementOrigin::Default("its backend has no server")];
            options.set("respond", rules::answer(503, None), why);
            return false;
        };
        options.set("upstream", upstream, Vec::new());
        let timeouts = self.backends.iter().find(|known| Some(&known.name) == made.backend.as_ref());
        for (key, time, at) in timeouts.map(|known| known.timeouts.clone()).unwrap_or_default() {
            options.extend("timeouts", (key, time.into()), from(at));
        }
        true
    }

    pub(super) fn sub(&mut self, name: &str, holds: &Holds<'_>, made: &mut VarnishDraft) {
        let body = self.subs.get(name).cloned().unwrap_or_default();
        self.go(&body, name, 0, holds, made);
    }

    fn go(
        &mut self,
        body: &[&'s Statement],
        sub: &str,
        depth: usize,
        holds: &Holds<'_>,
        made: &mut VarnishDraft,
    ) {
        for statement in body.iter().filter(|_| depth <= CALLS_DEEP_MAX) {
            if made.way != RequestWay::Open {
                return;
            }
            match statement {
                Statement::If(branches) => self.conditional(branches, sub, depth, holds, made),
                Statement::Plain { number, name, tokens } => {
                    self.sheet.met.insert(*number);
                    if name == "call" {
                        let called = tokens
                            .first()
                            .and_then(|name| self.subs.get(name.text()).cloned())
                            .unwrap_or_default();
                        self.go(&called, sub, depth + 1, holds, made);
                    } else {
                        self.plain(*number, name, tokens, sub, holds, made);
                    }
                }
            }
        }
    }

    fn conditional(
        &mut self,
        branches: &'s [(usize, Vec<VclToken>, Vec<Statement>)],
        sub: &str,
        depth: usize,
        holds: &Holds<'_>,
        made: &mut VarnishDraft,
    ) {
        let mut is_about_hits = false;
        for (number, condition, inner) in branches {
            if self.purges.contains(number) {
                return;
            }
            if is_about_hits {
                self.sheet.needless(*number, "Cache-Status (RFC 9211) tells what the cache did");
                inner.iter().for_each(|inner| self.told_by_status(inner));
                continue;
            }
            if self.repeats((*number, condition), inner, sub, holds, made) {
                continue;
            }
            let words: Vec<&str> = condition.iter().map(VclToken::text).collect();
            let statuses = repeats::statuses(&words);
            if !statuses.is_empty() {
                // Statements for a status of the server.
                for (status, statement) in
                    statuses.iter().flat_map(|status| inner.iter().map(move |statement| (status, statement)))
                {
                    if let Statement::Plain { number: at, name, tokens } = statement {
                        self.of_status((*number, *at), name, tokens, status, made);
                    }
                }
                continue;
            }
            let expression = if condition.is_empty() {
                Expression::all(Vec::new())
            } else {
                self.condition(condition, *number)
            };
            let decided = match sub {
                "vcl_deliver" => expression.minor_verdict(holds, false),
                _ => expression.verdict(holds, false),
            };
            match decided {
                Ok(false) => {}
                Ok(true) => {
                    if self.attempt != Attempt::First {
                        made.outcome.from.extend(from(*number));
                    }
                    let inner: Vec<&Statement> = inner.iter().collect();
                    return self.go(&inner, sub, depth + 1, holds, made);
                }
                Err(why) => {
                    let words: String = condition.iter().map(VclToken::text).collect();
                    if words.starts_with("obj.hits") {
                        self.sheet.needless(*number, "Cache-Status (RFC 9211) tells what the cache did");
                        inner.iter().for_each(|inner| self.told_by_status(inner));
                        is_about_hits = true;
                    } else {
                        self.closed((*number, &why), condition, inner, sub, holds, made);
                        if made.way != RequestWay::Open {
                            return;
                        }
                    }
                }
            }
        }
    }

    /// Reports a condition without a translation. Where its statements refuse requests or keep responses out of the
    /// cache, its requests get 501, or are not stored.
    fn closed(
        &mut self,
        (number, why): (usize, &str),
        condition: &[VclToken],
        inner: &'s [Statement],
        sub: &str,
        holds: &Holds<'_>,
        made: &mut VarnishDraft,
    ) {
        let instead = "write a [[route]] with `host`, `path`, `clients` or `when`: docs/conditions.md";
        let all: Vec<&'s Statement> = inner.iter().collect();
        let mut plain: Vec<(&'s str, Vec<&'s str>)> = Vec::new();
        self.statements(&all, 0, &mut plain);
        let bans = condition.iter().any(|token| matches!(token, VclToken::Word(word) if word == "std.ban"));
        let refuses = bans || plain.iter().any(|(name, words)| is_refusal(name, words));
        let keeps_out = plain.iter().any(|(name, words)| match (*name, words.as_slice()) {
            ("return", [_, "pass" | "pipe" | "hit_for_pass", ..]) => true,
            ("set", ["beresp.uncacheable", "=", "true"]) => true,
            ("set", ["beresp.ttl", "=", time, ..]) => milliseconds(time) == Some(0),
            ("hash_data", _) => true,
            _ => false,
        });
        for (_, words) in plain.iter().filter(|(name, _)| matches!(*name, "set" | "unset" | "remove")) {
            let target = words.first().copied().unwrap_or_default();
            if let Some(field) =
                target.strip_prefix("req.http.").or_else(|| target.strip_prefix("bereq.http."))
            {
                holds.change_field(field, FieldNow::Unknown);
            } else if matches!(target, "req.url" | "bereq.url") {
                holds.change_path(PathNow::Unknown);
            }
        }
        if self.of_response((number, condition), inner, &plain, made) {
            return;
        }
        if refuses && sub == "vcl_recv" {
            let why = format!("{why}; its requests get 501, so that they are not let through");
            self.sheet.refuse(number, &why, instead);
            made.way = RequestWay::Synth(501, String::new());
        } else if keeps_out {
            self.sheet.refuse(number, &format!("{why}; so responses are not stored"), instead);
            made.is_never_stored = true;
        } else {
            self.sheet.refuse(number, why, instead);
        }
    }

    /// Collects statements, including those of conditions and called subroutines.
    pub(super) fn statements(
        &self,
        body: &[&'s Statement],
        depth: usize,
        into: &mut Vec<(&'s str, Vec<&'s str>)>,
    ) {
        /// Called subroutines may call others many times.
        const ENOUGH: usize = 10_000;
        for statement in body.iter().filter(|_| depth <= CALLS_DEEP_MAX) {
            if into.len() > ENOUGH {
                return;
            }
            match statement {
                Statement::If(branches) => {
                    for (_, _, inner) in branches {
                        self.statements(&inner.iter().collect::<Vec<_>>(), depth + 1, into);
                    }
                }
                Statement::Plain { name, tokens, .. } if name == "call" => {
                    let called = tokens.first().and_then(|name| self.subs.get(name.text()).cloned());
                    into.push((name, Vec::new()));
                    self.statements(&called.unwrap_or_default(), depth + 1, into);
                }
                Statement::Plain { name, tokens, .. } => {
                    into.push((name, tokens.iter().map(VclToken::text).collect()));
                }
            }
        }
    }

    fn told_by_status(&mut self, statement: &'s Statement) {
        if let Statement::Plain { number, .. } = statement {
            self.sheet.needless(*number, "Cache-Status (RFC 9211) tells what the cache did");
        }
    }

    fn plain(
        &mut self,
        number: usize,
        name: &str,
        tokens: &'s [VclToken],
        sub: &str,
        holds: &Holds<'_>,
        made: &mut VarnishDraft,
    ) {
        let words: Vec<&str> = tokens.iter().map(VclToken::text).collect();
        match (name, words.as_slice()) {
            ("return", [_, action, rest @ ..]) => self.returned(number, action, rest, sub, made),
            ("set", [target, "=", ..]) if normalizes_host(target, tokens.get(2..).unwrap_or_default()) => {
                self.sheet.needless(number, "hosts are compared without port and case");
            }
            ("set", [target, "=", value @ ..]) => {
                let tokens = tokens.get(2..).unwrap_or_default();
                changed(target, tokens, holds);
                self.set(number, target, value, tokens, sub, made);
            }
            ("unset" | "remove", [target]) => {
                if let Some(field) = request_field(target) {
                    holds.change_field(field, FieldNow::Absent);
                }
                self.unset(number, target, made);
            }
            ("hash_data", [_, "req.url" | "req.http.host" | "server.ip", _]) => {
                self.sheet.needless(number, "URL and host are the key");
            }
            ("hash_data", [_, value, _]) => self.key(number, value, tokens.get(1), holds, made),
            ("hash_data", _) => self.keyless(number, made),
            ("ban" | "std.ban", _) if sub == "vcl_recv" => {
                let (_, why, instead) = super::by_name(name, "");
                self.sheet.refuse(number, &format!("{why}; so these requests get 501"), &instead);
                made.way = RequestWay::Synth(501, String::new());
            }
            _ => {
                let (kind, why, instead) = super::by_name(name, "");
                self.sheet.note(number, kind, &why, &instead);
            }
        }
    }

    /// Adds a field or a constant to the cache key. A field that rules set is a constant under their conditions.
    fn key(
        &mut self,
        number: usize,
        value: &str,
        token: Option<&VclToken>,
        holds: &Holds<'_>,
        made: &mut VarnishDraft,
    ) {
        let options = &mut made.outcome.options;
        let (base, constant) = match (token, value.strip_prefix("req.http.")) {
            (Some(VclToken::Text(text)), _) => ("hash", text.clone()),
            (_, Some(field)) => match holds.changed_field(field) {
                None => return options.listed("cache", "key_headers", field, from(number)),
                Some(FieldNow::Is(value)) => (field, value),
                Some(FieldNow::Absent) => (field, String::new()),
                Some(FieldNow::Unknown) => return self.keyless(number, made),
            },
            _ => return self.keyless(number, made),
        };
        let definitions = &mut self.sheet.definitions;
        match definitions.value_of_route(options, base, &rules::literal(&constant), from(number)) {
            Ok(name) => options.listed("cache", "key_values", &name, from(number)),
            Err(_) => self.keyless(number, made),
        }
    }

    fn keyless(&mut self, number: usize, made: &mut VarnishDraft) {
        let why = "the key has fields as clients send them, constants, and no other values; so responses are not stored";
        self.sheet.refuse(number, why, "write `key_headers`, `key_cookies` or `key_values` of `cache`");
        made.is_never_stored = true;
    }

    fn returned(&mut self, number: usize, action: &str, rest: &[&str], sub: &str, made: &mut VarnishDraft) {
        made.way = match (action, sub) {
            ("hash" | "lookup", "vcl_recv") => RequestWay::Hash,
            ("pass" | "pipe", "vcl_recv") => RequestWay::Pass,
            ("synth", _) => {
                let status = rest.get(1).and_then(|status| status.parse::<u64>().ok()).unwrap_or(503);
                RequestWay::Synth(status, rest.get(3).map_or(String::new(), |reason| (*reason).to_owned()))
            }
            ("pass", "vcl_backend_response") | ("pass", _) => {
                made.outcome.options.without("cache");
                RequestWay::Done
            }
            ("deliver" | "fetch" | "hash" | "lookup", _) => RequestWay::Done,
            _ => {
                self.sheet.refuse(number, &format!("a request is not sent to {action}"), "leave it out");
                RequestWay::Done
            }
        };
        if action == "pipe" {
            self.sheet.differs(number, "each request is forwarded separately, without the cache", "");
        }
        made.outcome.from.extend(from(number));
    }

    fn set(
        &mut self,
        number: usize,
        target: &str,
        value: &[&str],
        tokens: &[VclToken],
        sub: &str,
        made: &mut VarnishDraft,
    ) {
        let options = &mut made.outcome.options;
        match target {
            "req.backend_hint" | "bereq.backend" => {
                made.backend = Some(backend(value));
                made.outcome.from.extend(from(number));
            }
            "req.hash_always_miss" if value == ["true"] && self.attempt != Attempt::First => {
                made.is_fresh = true;
                self.sheet.needless(number, "another upstream is asked, not the cache");
            }
            "beresp.ttl" | "beresp.grace" | "beresp.keep" => self.set_time(number, target, value, made),
            "beresp.uncacheable" if value == ["true"] => options.without("cache"),
            "beresp.do_gzip" if value == ["true"] => drop(self.gzip(number, made)),
            "beresp.do_stream" | "beresp.do_gunzip" | "beresp.do_gzip" => {
                self.sheet.needless(number, "bodies are streamed");
            }
            "req.url" | "bereq.url" => self.url(number, tokens, made),
            "resp.status" | "resp.reason" if sub == "vcl_synth" => {}
            _ => self.set_field(number, target, tokens, made),
        }
    }

    fn set_field(&mut self, number: usize, target: &str, tokens: &[VclToken], made: &mut VarnishDraft) {
        let side = [
            ("req.http.", "request_headers"),
            ("bereq.http.", "request_headers"),
            ("resp.http.", "response_headers"),
            ("beresp.http.", "response_headers"),
        ];
        let field = side.iter().find_map(|(begin, option)| Some((target.strip_prefix(begin)?, *option)));
        let Some((field, option)) = field else {
            let (kind, why, instead) = super::by_name("set", "");
            return self.sheet.note(number, kind, &why, &instead);
        };
        let id = (option, field.to_ascii_lowercase());
        let is_own = tokens.iter().any(|token| token.text().eq_ignore_ascii_case(target));
        // It would be a part of a value.
        let text = template(tokens).filter(|_| !is_own || !made.unknown.contains(&id));
        match text {
            Some(text) if field.eq_ignore_ascii_case("host") && option == "request_headers" => {
                made.outcome.options.extend("rewrite", ("host", text.into()), from(number));
                // Varnish leaves the field as servers send it.
                made.outcome.options.set("location", false, Vec::new());
            }
            Some(_) if option == "request_headers" && field.eq_ignore_ascii_case("x-forwarded-for") => {
                self.sheet.needless(number, "servers always get this field");
            }
            Some(text) => {
                // The built-in subroutine looks at the new field.
                if target.starts_with("beresp.") && field.eq_ignore_ascii_case("cache-control") {
                    let keeps_out =
                        ["private", "no-store", "no-cache"].iter().any(|word| text.contains(word));
                    made.replaces_directives = !keeps_out && !text.contains('$');
                }
                made.unknown.remove(&id);
                made.outcome.options.field(option, "set", field, &text, from(number));
            }
            None => {
                let instead = "write the value, or a variable of docs/configuration.md";
                made.unknown.insert(id);
                made.outcome.options.without_field(option, "set", field);
                if made.outcome.options.get(option) == Some(&DraftValue::Table(Vec::new())) {
                    made.outcome.options.without(option);
                }
                let is_forwarded = field.eq_ignore_ascii_case("x-forwarded-for");
                let why = if is_own || is_forwarded || option == "response_headers" {
                    "this value contains unknown variables; so the field stays as it was sent"
                } else {
                    // A client could write it, and a server would trust it.
                    made.outcome.options.listed(option, "remove", field, from(number));
                    "this value contains unknown variables; so the client's own field is removed"
                };
                self.sheet.refuse(number, why, instead);
            }
        }
    }

    fn unset(&mut self, number: usize, target: &str, made: &mut VarnishDraft) {
        let side = [
            ("req.http.", "request_headers"),
            ("bereq.http.", "request_headers"),
            ("resp.http.", "response_headers"),
            ("beresp.http.", "response_headers"),
        ];
        let Some((field, option)) =
            side.iter().find_map(|(begin, option)| Some((target.strip_prefix(begin)?, *option)))
        else {
            return self.sheet.refuse(
                number,
                "only fields are removed",
                "write `remove` of `request_headers`",
            );
        };
        if target.starts_with("beresp.http.")
            && field.eq_ignore_ascii_case("set-cookie")
            && made.outcome.options.get("cache").is_some()
        {
            ignore("set-cookie", from(number), made);
        }
        if option == "response_headers" && field.eq_ignore_ascii_case("via") {
            made.outcome.options.set("via", "off", from(number));
        } else if option == "response_headers"
            && ["x-varnish", "age"].contains(&field.to_ascii_lowercase().as_str())
        {
            self.sheet.needless(number, "there is no such field, or caches need it");
        } else {
            made.outcome.options.listed(option, "remove", field, from(number));
        }
    }

    /// Translates `set req.url = regsub(req.url, "A", "B")`.
    fn url(&mut self, number: usize, tokens: &[VclToken], made: &mut VarnishDraft) {
        let words: Vec<&str> = tokens.iter().map(VclToken::text).collect();
        let found = match words.as_slice() {
            ["regsub", "(", "req.url" | "bereq.url", ",", pattern, ",", to, ")"] => {
                let start =
                    pattern.strip_prefix('^').filter(|rest| !rest.contains(['(', '|', '$', '[', '?']));
                start.map(|start| (format!("{start}(.*)"), format!("{}$1", to.replace('$', "$$"))))
            }
            [first, "+", "req.url"] if first.starts_with('/') => {
                Some(("(.*)".to_owned(), format!("{first}$1")))
            }
            [constant] if constant.starts_with('/') => Some(("(.*)".to_owned(), (*constant).to_owned())),
            _ => None,
        };
        match found.filter(|(_, to)| {
            to.starts_with('/') && !to.contains('?') && values::expression(to, false).is_ok()
        }) {
            Some((pattern, to)) => {
                made.outcome.options.extend("rewrite", ("pattern", pattern.into()), from(number));
                made.outcome.options.extend("rewrite", ("path", to.into()), Vec::new());
                // Varnish leaves the field as servers send it.
                made.outcome.options.set("location", false, Vec::new());
            }
            None => {
                let instead = "write `rewrite = { pattern = \"…\", path = \"…\" }`, or `query_drop` of `cache` for parameters";
                self.sheet.refuse(number, "the new URL is not understood", instead);
            }
        }
    }

    /// Sets a synthetic response; `vcl_synth` may turn it into a redirect.
    fn synth(&mut self, status: u64, reason: &str, made: &mut VarnishDraft) {
        let wanted = status.to_string();
        let mut location = None;
        let mut own = status;
        let mut kind = "text/html; charset=utf-8".to_owned();
        let mut body = None;
        let mut origins = Vec::new();
        let sub: Vec<&'s Statement> = self.subs.get("vcl_synth").cloned().unwrap_or_default();
        for statement in sub {
            let Statement::If(branches) = statement else { continue };
            for (number, condition, inner) in branches {
                let words: Vec<&str> = condition.iter().map(VclToken::text).collect();
                if words != ["resp.status", "==", wanted.as_str()] {
                    continue;
                }
                origins.push(StatementOrigin::Directive(*number));
                for statement in inner {
                    let Statement::Plain { number, name, tokens } = statement else { continue };
                    let words: Vec<&str> = tokens.iter().map(VclToken::text).collect();
                    match (name.as_str(), words.as_slice()) {
                        ("set", ["resp.http.Location" | "resp.http.location", "=", "resp.reason"]) => {
                            location = Some(reason.to_owned());
                        }
                        ("set", ["resp.http.Location" | "resp.http.location", "=", ..]) => {
                            let with_reason = |token: &VclToken| match token.text() {
                                "resp.reason" => VclToken::Text(reason.to_owned()),
                                _ => token.clone(),
                            };
                            let tokens: Vec<VclToken> = tokens.iter().skip(2).map(with_reason).collect();
                            location = template(&tokens);
                            if location.is_none() {
                                let instead = "write a [[route]] with `redirect`";
                                self.sheet.refuse(*number, "the target is not understood", instead);
                            }
                        }
                        ("set", ["resp.http.Content-Type" | "resp.http.content-type", "=", text]) => {
                            kind = (*text).to_owned();
                        }
                        ("set", ["resp.status", "=", code]) => own = code.parse().unwrap_or(status),
                        ("synthetic", [_, text, _]) => body = Some((*text).to_owned()),
                        _ => {}
                    }
                    origins.push(StatementOrigin::Directive(*number));
                }
            }
        }
        let options = &mut made.outcome.options;
        options.keep(&[]);
        match location {
            Some(to) if to.starts_with(['/', '$']) || to.starts_with("http") => {
                // Only a target with the URL has the query of the request.
                let to = if to.contains("path_and_query") { to } else { crate::values::without_query(to) };
                let code = if [301, 302, 303, 307, 308].contains(&own) { own } else { 302 };
                let pairs = [("to".to_owned(), to.into()), ("status".to_owned(), DraftValue::Number(code))];
                options.set("redirect", DraftValue::Table(pairs.into()), origins);
            }
            _ => {
                let body = body.as_deref().map(|text| (text, kind.as_str()));
                options.set("respond", rules::answer(own.clamp(200, 599), body), origins);
            }
        }
    }
}

/// The name of a backend: `a`, or `director.backend()`.
pub(super) fn backend(value: &[&str]) -> String {
    value.first().map_or("", |name| name.split('.').next().unwrap_or_default()).to_owned()
}

fn request_field(target: &str) -> Option<&str> {
    target.strip_prefix("req.http.").or_else(|| target.strip_prefix("bereq.http."))
}

/// Whether a statement only removes the port of the host, or its capital letters: hosts are compared without them.
fn normalizes_host(target: &str, tokens: &[VclToken]) -> bool {
    let words: Vec<String> = tokens.iter().map(|token| token.text().to_ascii_lowercase()).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let is_own = |words: &[&str]| match words {
        ["regsub" | "regsuball", "(", "req.http.host", ",", pattern, ",", "", ")"] => {
            pattern.starts_with(":[0-9]") || pattern.starts_with(r":\d")
        }
        ["std.tolower", "(", "req.http.host", ")"] => true,
        _ => false,
    };
    target.eq_ignore_ascii_case("req.http.host") && is_own(&words)
}

/// Remembers what a statement changes: later conditions see the new value.
fn changed(target: &str, tokens: &[VclToken], holds: &Holds<'_>) {
    if normalizes_host(target, tokens) {
        return;
    }
    if let Some(field) = request_field(target) {
        holds.change_field(
            field,
            match tokens {
                [VclToken::Text(text)] => FieldNow::Is(text.clone()),
                _ => FieldNow::Unknown,
            },
        );
    } else if matches!(target, "req.url" | "bereq.url") {
        holds.change_path(match tokens {
            [VclToken::Text(path)] => PathNow::Is(path.split('?').next().unwrap_or_default().to_owned()),
            [VclToken::Text(begin), sign, word] if sign.is("+") && word.is(target) => {
                PathNow::Begins(format!("{begin}/"))
            }
            _ => PathNow::Unknown,
        });
    }
}

/// Converts a value concatenated from texts and variables.
fn template(tokens: &[VclToken]) -> Option<String> {
    let mut made = String::new();
    for token in tokens.iter().filter(|token| !token.is("+")) {
        match token {
            VclToken::Text(text) => made.push_str(&text.replace('$', "$$")),
            VclToken::Word(word) => {
                let variable = match word.as_str() {
                    "req.url" | "bereq.url" => "path_and_query".to_owned(),
                    "req.http.host" | "req.http.Host" => "host".to_owned(),
                    "req.method" => "method".to_owned(),
                    "client.ip" => "client_address".to_owned(),
                    "req.xid" => "request_id".to_owned(),
                    "server.hostname" => "hostname".to_owned(),
                    word => format!("header.{}", word.strip_prefix("req.http.")?),
                };
                made.push_str(&format!("${{{variable}}}"));
            }
            VclToken::Sign(_) => return None,
        }
    }
    Some(made)
}
