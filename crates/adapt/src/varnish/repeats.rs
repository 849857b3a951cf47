//! Requests that VCL sends to another backend because of a status: `return (restart)`, `return (retry)` and
//! `return (abandon)` become `on_status`. Not: other reasons, further attempts, changed requests.

use super::VarnishAdapter;
use super::subroutines::{RequestWay, VarnishDraft, backend, from};
use super::syntax::{Statement, VclToken};
use crate::RemarkKind;
use crate::draft::{DraftTable, DraftValue, StatementOrigin};
use crate::rules::Holds;

const INSTEAD: &str = "write `on_status` of the [[route]]: docs/fallbacks.md";
/// The statuses of failures here. Varnish has 503 for all of them.
const FAILURES: [&str; 3] = ["502", "503", "504"];
const DEEP_MAX: usize = 32;

/// The attempt for which conditions on `req.restarts` and `bereq.retries` are evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attempt {
    First,
    Restarted,
    Retried,
}

impl Attempt {
    /// Returns the value of a counter; `None` if it is none.
    pub(super) fn count(self, name: &str) -> Option<u32> {
        match name {
            "req.restarts" => Some(u32::from(self == Self::Restarted)),
            "bereq.retries" => Some(u32::from(self == Self::Retried)),
            _ => None,
        }
    }
}

/// A branch that repeats requests, up to its `return`.
#[derive(Clone)]
struct Repetition<'s> {
    statuses: Vec<String>,
    /// Whether only failures count, not responses.
    is_failure: bool,
    /// Its conditions besides the status, with the numbers of their statements.
    conditions: Vec<(usize, Vec<VclToken>)>,
    backend: Option<String>,
    /// A statement that has no translation, and why.
    obstacle: Option<(usize, &'static str)>,
    from: Vec<StatementOrigin>,
    /// The statement that remarks are about.
    at: usize,
    sub: &'s str,
}

impl<'s> VarnishAdapter<'s> {
    /// Translates a branch that repeats requests because of a status. Returns whether it is one.
    pub(super) fn repeats(
        &mut self,
        (number, condition): (usize, &[VclToken]),
        inner: &'s [Statement],
        sub: &str,
        holds: &Holds<'_>,
        made: &mut VarnishDraft,
    ) -> bool {
        let sub = match sub {
            "vcl_deliver" => "vcl_deliver",
            "vcl_backend_response" => "vcl_backend_response",
            _ => return false,
        };
        let Some((statuses, rest)) = parted(condition).filter(|(statuses, _)| !statuses.is_empty()) else {
            return false;
        };
        if !returns(inner, 0) {
            return false;
        }
        let repetition = Repetition {
            statuses,
            is_failure: false,
            conditions: rest.into_iter().map(|part| (number, part)).collect(),
            backend: None,
            obstacle: None,
            from: from(number),
            at: number,
            sub,
        };
        self.repeat(repetition, inner, 0, holds, made);
        true
    }

    /// Translates the repetitions of `vcl_backend_error`.
    pub(super) fn failures(&mut self, holds: &Holds<'_>, made: &mut VarnishDraft) {
        let body = self.subs.get("vcl_backend_error").cloned().unwrap_or_default();
        let repetition = Repetition {
            statuses: FAILURES.map(str::to_owned).to_vec(),
            is_failure: true,
            conditions: Vec::new(),
            backend: None,
            obstacle: None,
            from: Vec::new(),
            at: 0,
            sub: "vcl_backend_error",
        };
        self.repeat(repetition, body, 0, holds, made);
    }

    /// Follows the statements of a branch to its `return`, if the conditions of the first attempt hold.
    fn repeat(
        &mut self,
        mut repetition: Repetition<'s>,
        body: impl IntoIterator<Item = &'s Statement>,
        depth: usize,
        holds: &Holds<'_>,
        made: &mut VarnishDraft,
    ) {
        for (number, part) in &repetition.conditions {
            match self.condition(part, *number).verdict(holds, false) {
                Ok(true) => {}
                Ok(false) => return,
                Err(why) => return self.sheet.refuse(*number, &why, INSTEAD),
            }
        }
        for statement in body {
            let (number, name, tokens) = match statement {
                Statement::If(branches) => {
                    for (number, condition, inner) in branches.iter().filter(|_| depth < DEEP_MAX) {
                        if returns(inner, 0) {
                            self.nested(&repetition, (*number, condition), inner, depth + 1, holds, made);
                        }
                    }
                    continue;
                }
                Statement::Plain { number, name, tokens } => (*number, name.as_str(), tokens),
            };
            let words: Vec<&str> = tokens.iter().map(VclToken::text).collect();
            match (name, words.as_slice()) {
                ("return", [_, action @ ("restart" | "retry" | "abandon"), ..]) => {
                    self.sheet.met.insert(number);
                    repetition.from.extend(from(number));
                    repetition.at = number;
                    let is_again = self.again(&mut repetition, action, depth, holds, made);
                    if let Err((at, why)) = is_again {
                        self.sheet.refuse(at.unwrap_or(number), &why, INSTEAD);
                    }
                    return;
                }
                ("return", _) => return,
                ("set", ["req.backend_hint" | "bereq.backend", "=", value @ ..]) => {
                    repetition.backend = Some(backend(value));
                    repetition.from.extend(from(number));
                }
                ("set" | "unset", [target, ..])
                    if ["resp.", "beresp."].iter().any(|side| target.starts_with(side)) =>
                {
                    if !repetition.is_failure {
                        self.sheet.needless(number, "the response that it changes is not sent");
                    }
                }
                ("std.log" | "std.syslog" | "std.timestamp", _) => {}
                ("set", ["req.hash_always_miss", "=", "true"]) => made.is_fresh = true,
                _ => {
                    let why = "a request that is sent again is not changed here";
                    repetition.obstacle.get_or_insert((number, why));
                }
            }
        }
    }

    /// Follows a condition within a branch.
    fn nested(
        &mut self,
        repetition: &Repetition<'s>,
        (number, condition): (usize, &[VclToken]),
        inner: &'s [Statement],
        depth: usize,
        holds: &Holds<'_>,
        made: &mut VarnishDraft,
    ) {
        let Some((statuses, rest)) = parted(condition) else {
            let why = "this combination of statuses is not understood";
            return self.sheet.refuse(number, why, INSTEAD);
        };
        let is_503 = |status: &String| status == "503" || status == "5xx";
        let is_meant = statuses.is_empty() || repetition.is_failure && statuses.iter().any(is_503);
        if !is_meant {
            if !repetition.is_failure {
                self.sheet.refuse(number, "the status is compared twice", INSTEAD);
            }
            return;
        }
        self.sheet.met.insert(number);
        let mut repetition = repetition.clone();
        repetition.conditions.extend(rest.into_iter().map(|part| (number, part)));
        repetition.from.extend(from(number));
        self.repeat(repetition, inner, depth, holds, made);
    }

    /// Writes the option for a `return`. An error names the statement, if it is another one.
    fn again(
        &mut self,
        repetition: &mut Repetition<'s>,
        action: &str,
        depth: usize,
        holds: &Holds<'_>,
        made: &mut VarnishDraft,
    ) -> Result<(), (Option<usize>, String)> {
        if let Some((number, why)) = repetition.obstacle {
            return Err((Some(number), why.to_owned()));
        }
        let here = |why: String| (None, why);
        let backend = match (action, repetition.sub) {
            ("restart", "vcl_deliver") => self.restarted(repetition, holds, made).map_err(here)?,
            ("retry", "vcl_backend_response" | "vcl_backend_error") => {
                self.retried(repetition, holds, made).map_err(here)?
            }
            ("abandon", "vcl_backend_response" | "vcl_backend_error") => {
                return self.abandoned(repetition, depth, holds, made).map_err(here);
            }
            _ => return Err(here(format!("{} has no {action}", repetition.sub))),
        };
        let wanted = backend.and_then(|name| self.upstream(&name));
        let upstream = DraftValue::from(wanted.ok_or_else(|| here("its backend has no server".to_owned()))?);
        if made.outcome.options.get("upstream") == Some(&upstream) {
            let why = "the same backend is asked again; `retry` asks other servers of an upstream";
            return Err(here(why.to_owned()));
        }
        let is_error = |status: &String| status.starts_with(['4', '5']);
        if !repetition.statuses.iter().all(is_error) {
            return Err(here("only statuses from 400 on lead to another upstream".to_owned()));
        }
        let conditions = &repetition.conditions;
        self.attempt = if action == "retry" { Attempt::Retried } else { Attempt::Restarted };
        let holds_again = |(number, part): &(usize, Vec<VclToken>)| {
            self.condition(part, *number).verdict(holds, false) == Ok(true)
        };
        let is_repeated = conditions.iter().all(holds_again);
        self.attempt = Attempt::First;
        if is_repeated {
            let why =
                "the other upstream is asked once; Varnish repeats this up to max_restarts or max_retries";
            self.sheet.differs(repetition.at, why, "");
        }
        self.write(repetition, upstream, made).map_err(here)
    }

    fn write(
        &mut self,
        repetition: &Repetition<'s>,
        upstream: DraftValue,
        made: &mut VarnishDraft,
    ) -> Result<(), String> {
        let has = |status: &str| repetition.statuses.iter().any(|known| known == status || known == "5xx");
        let mut keys: Vec<(&str, bool)> =
            repetition.statuses.iter().map(|status| (status.as_str(), repetition.is_failure)).collect();
        if repetition.sub == "vcl_deliver" && has("503") {
            keys.extend(FAILURES.into_iter().filter(|status| !has(status)).map(|status| (status, true)));
        } else if !repetition.is_failure && FAILURES.into_iter().any(has) {
            let body = self.subs.get("vcl_backend_error").cloned().unwrap_or_default();
            if repetition.sub == "vcl_deliver" || !returns(body, 0) {
                let why = "failures such as refused connections lead to the other upstream, too";
                self.sheet.differs(repetition.at, why, "");
            }
        }
        let options = &mut made.outcome.options;
        for (status, only_failures) in keys {
            let mut pairs = vec![("upstream".to_owned(), upstream.clone())];
            if only_failures {
                pairs.push(("only_failures".to_owned(), true.into()));
            }
            let class = if status.starts_with('5') { "5xx" } else { "4xx" };
            match options.inner("on_status", status).or_else(|| options.inner("on_status", class)) {
                None => {
                    let fallback = DraftValue::Table(pairs);
                    options.extend("on_status", (status, fallback), repetition.from.clone());
                }
                Some(DraftValue::Table(known)) if known.contains(&pairs[0]) => {
                    repetition.from.iter().for_each(|origin| options.cite("on_status", origin.clone()));
                }
                Some(_) => return Err(format!("a response with {status} leads to another upstream already")),
            }
        }
        Ok(())
    }

    /// Returns the backend of a request that passes `vcl_recv` again, if nothing else of it differs.
    fn restarted(
        &mut self,
        repetition: &mut Repetition<'s>,
        holds: &Holds<'_>,
        made: &mut VarnishDraft,
    ) -> Result<Option<String>, String> {
        let mut second = VarnishDraft::new(repetition.backend.clone().or(made.backend.clone()));
        second.is_fresh = made.is_fresh;
        self.attempt = Attempt::Restarted;
        self.sub("vcl_recv", holds, &mut second);
        self.attempt = Attempt::First;
        if matches!(second.way, RequestWay::Synth(..)) {
            return Err("the restarted request gets a response of the proxy".to_owned());
        }
        is_unchanged(&second.outcome.options, &made.received)?;
        // Varnish stores these statuses for a time, unless VCL sets another one.
        let is_stored = |status: &String| {
            let ttl = made.outcome.options.inner("cache", "status_ttl");
            let is_none = |(known, ttl): &(String, DraftValue)| known == status && *ttl == "0s".into();
            let is_kept_out = matches!(ttl, Some(DraftValue::Table(ttls)) if ttls.iter().any(is_none));
            let is_storable = ["404", "410", "414", "4xx"].contains(&status.as_str());
            !is_kept_out && (is_storable || made.outcome.options.inner("cache", "ttl").is_some())
        };
        if made.outcome.options.get("cache").is_some() {
            let is_passed = second.way == RequestWay::Pass || second.is_fresh;
            if !is_passed && repetition.statuses.iter().any(is_stored) {
                let why = "the stored response answers the restarted request as well, unless it has `return (pass)`";
                return Err(why.to_owned());
            }
            if is_passed {
                let why = "the response of the other upstream is stored like one of the first";
                self.sheet.differs(repetition.at, why, "");
            }
        }
        repetition.from.append(&mut second.outcome.from);
        Ok(second.backend)
    }

    /// Returns the backend of a request that passes `vcl_backend_fetch` again, if nothing else of it differs.
    fn retried(
        &mut self,
        repetition: &mut Repetition<'s>,
        holds: &Holds<'_>,
        made: &VarnishDraft,
    ) -> Result<Option<String>, String> {
        let mut second = VarnishDraft::new(repetition.backend.clone().or(made.backend.clone()));
        self.attempt = Attempt::Retried;
        self.sub("vcl_backend_fetch", holds, &mut second);
        self.attempt = Attempt::First;
        is_unchanged(&second.outcome.options, &made.outcome.options)?;
        repetition.from.append(&mut second.outcome.from);
        Ok(second.backend)
    }

    /// Follows a request without a response to `vcl_synth`, which may restart it.
    fn abandoned(
        &mut self,
        repetition: &Repetition<'s>,
        depth: usize,
        holds: &Holds<'_>,
        made: &mut VarnishDraft,
    ) -> Result<(), String> {
        let body = self.subs.get("vcl_synth").cloned().unwrap_or_default();
        let branches = body.into_iter().filter_map(|statement| match statement {
            Statement::If(branches) => Some(branches),
            Statement::Plain { .. } => None,
        });
        for (number, condition, inner) in branches.flatten() {
            let Some((statuses, rest)) = parted(condition) else { continue };
            let is_503 =
                statuses.is_empty() || statuses.iter().any(|status| status == "503" || status == "5xx");
            if is_503 && returns(inner, 0) && depth < DEEP_MAX {
                self.sheet.met.insert(*number);
                let mut repetition = Repetition { sub: "vcl_deliver", ..repetition.clone() };
                repetition.conditions.extend(rest.into_iter().map(|part| (*number, part)));
                repetition.from.extend(from(*number));
                self.repeat(repetition, inner, depth + 1, holds, made);
                return Ok(());
            }
        }
        Err("vcl_synth does not restart it, so its client gets 503".to_owned())
    }

    /// Reports repetitions that no status leads to.
    pub(super) fn left_repeats(&mut self) {
        let bodies: Vec<Vec<&'s Statement>> = self.subs.values().cloned().collect();
        for number in bodies.into_iter().flat_map(repeating) {
            let why =
                "a request is sent to another upstream only because of the status of a server's response";
            self.sheet.say_if_unsaid(number, RemarkKind::Refused, why);
        }
    }
}

/// Whether the second pass of a request sets no more than the first one.
fn is_unchanged(second: &DraftTable, first: &DraftTable) -> Result<(), String> {
    for (key, value) in second.pairs() {
        let has_path = key == "rewrite" && second.inner("rewrite", "path").is_some();
        if has_path {
            return Err("the URL of the repeated request is rewritten again".to_owned());
        }
        if first.get(key) != Some(value) {
            return Err(format!("the repeated request differs in more than its backend: `{key}`"));
        }
    }
    Ok(())
}

/// Parses `beresp.status == 404`, also several with `||`, and `beresp.status >= 400`: the statuses.
pub(super) fn statuses(words: &[&str]) -> Vec<String> {
    let one = |words: &[&str]| match words {
        ["beresp.status", "==", status]
            if status.parse::<u16>().is_ok_and(|status| (200..600).contains(&status)) =>
        {
            Some(vec![(*status).to_owned()])
        }
        ["beresp.status", ">=", "400"] | ["beresp.status", ">", "399"] => {
            Some(vec!["4xx".to_owned(), "5xx".to_owned()])
        }
        ["beresp.status", ">=", "500"] | ["beresp.status", ">", "499"] => Some(vec!["5xx".to_owned()]),
        _ => None,
    };
    let all: Option<Vec<Vec<String>>> = words.split(|word| *word == "||").map(one).collect();
    all.unwrap_or_default().concat()
}

/// Parses a conjunction: the statuses, and the other conditions. `None` if the statuses are not one part of it.
fn parted(condition: &[VclToken]) -> Option<(Vec<String>, Vec<Vec<VclToken>>)> {
    let condition = bare(condition);
    let parts = split(condition, "&&");
    let (mut found, mut rest) = (Vec::new(), Vec::new());
    for raw in &parts {
        // `&&` binds more tightly than `||`.
        if parts.len() > 1 && split(raw, "||").len() > 1 {
            return None;
        }
        let part = bare(raw);
        let words: Vec<&str> = part
            .iter()
            .map(VclToken::text)
            .map(|word| if word == "resp.status" { "beresp.status" } else { word })
            .collect();
        if matches!(words.as_slice(), ["beresp.status", "<", "600"] | ["beresp.status", "<=", "599"]) {
            continue;
        }
        match statuses(&words) {
            some if !some.is_empty() && found.is_empty() => found = some,
            none if none.is_empty() && !words.contains(&"beresp.status") => rest.push(part.to_vec()),
            _ => return None,
        }
    }
    Some((found, rest))
}

/// Splits at an operator outside of parentheses.
fn split<'t>(tokens: &'t [VclToken], sign: &str) -> Vec<&'t [VclToken]> {
    let mut depth = 0_i32;
    let is_between = move |token: &VclToken| {
        depth += i32::from(token.is("(")) - i32::from(token.is(")"));
        depth == 0 && token.is(sign)
    };
    tokens.split(is_between).collect()
}

/// Returns a condition without the parentheses around it.
fn bare(mut tokens: &[VclToken]) -> &[VclToken] {
    while let [open, inner @ .., close] = tokens
        && open.is("(")
        && close.is(")")
    {
        let mut depth = 0_i32;
        let closes_early = inner.iter().any(|token| {
            depth += i32::from(token.is("(")) - i32::from(token.is(")"));
            depth < 0
        });
        if closes_early {
            break;
        }
        tokens = inner;
    }
    tokens
}

/// Whether one of the statements repeats requests.
pub(super) fn returns<'s>(body: impl IntoIterator<Item = &'s Statement>, depth: usize) -> bool {
    depth < DEEP_MAX
        && body.into_iter().any(|statement| match statement {
            Statement::If(branches) => branches.iter().any(|(_, _, inner)| returns(inner, depth + 1)),
            Statement::Plain { name, tokens, .. } => is_repeating(name, tokens),
        })
}

/// The numbers of statements that repeat requests.
fn repeating<'s>(body: impl IntoIterator<Item = &'s Statement>) -> Vec<usize> {
    let each = |statement: &'s Statement| match statement {
        Statement::If(branches) => branches.iter().flat_map(|(_, _, inner)| repeating(inner)).collect(),
        Statement::Plain { number, name, tokens } if is_repeating(name, tokens) => vec![*number],
        Statement::Plain { .. } => Vec::new(),
    };
    body.into_iter().flat_map(each).collect()
}

fn is_repeating(name: &str, tokens: &[VclToken]) -> bool {
    let action = tokens.get(1).map(VclToken::text);
    name == "return" && matches!(action, Some("restart" | "retry" | "abandon"))
}
