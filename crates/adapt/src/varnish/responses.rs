//! Statements about responses: lifetimes, by status and by field, and compression.

use super::subroutines::{VarnishDraft, YEAR, from};
use super::syntax::{Statement, VclToken};
use super::{VarnishAdapter, milliseconds};
use crate::RemarkKind;
use crate::draft::{DraftValue, StatementOrigin};
use crate::rules::literal;
use crate::values::{self, duration};

/// The statuses for which a lifetime counts that has no condition.
const EVERY_STATUS: &str = "200-599";

impl<'s> VarnishAdapter<'s> {
    /// Translates `set beresp.ttl`, `grace` and `keep`. A lifetime makes every response storable.
    pub(super) fn set_time(&mut self, number: usize, target: &str, value: &[&str], made: &mut VarnishDraft) {
        let options = &mut made.outcome.options;
        let has_cache = options.get("cache").is_some();
        match value.first().and_then(|time| milliseconds(time)) {
            Some(0) if target == "beresp.ttl" => options.without("cache"),
            Some(_) if target == "beresp.keep" => {
                self.sheet.needless(number, "stale responses are kept to be revalidated");
            }
            Some(time) if has_cache => {
                let time = DraftValue::from(duration(time.clamp(1, YEAR)));
                if target == "beresp.ttl" {
                    options.extend("cache", ("ttl", time.clone()), from(number));
                    let every = vec![(EVERY_STATUS.to_owned(), time)];
                    options.extend("cache", ("status_ttl", DraftValue::Table(every)), Vec::new());
                } else {
                    options.extend("cache", ("stale_while_revalidate", time.clone()), from(number));
                    options.extend("cache", ("grace", time), Vec::new());
                }
            }
            Some(_) => {}
            None => self.sheet.refuse(number, "it is no time", "write `ttl` of `cache`"),
        }
    }

    /// Translates the lifetime of responses with one status.
    pub(super) fn of_status(
        &mut self,
        (condition, number): (usize, usize),
        name: &str,
        tokens: &[VclToken],
        status: &str,
        made: &mut VarnishDraft,
    ) {
        let words: Vec<&str> = tokens.iter().map(VclToken::text).collect();
        let time = match (name, words.as_slice()) {
            ("set", ["beresp.ttl", "=", time]) => milliseconds(time),
            ("set", ["beresp.uncacheable", "=", "true"]) => Some(0),
            ("return", _) => {
                return self.sheet.needless(number, "the rest of the subroutine applies to all statuses");
            }
            _ => None,
        };
        let Some(time) = time else {
            let instead = "write `status_ttl` of `cache`, or `error_pages`";
            return self.sheet.refuse(
                number,
                "only the lifetime of a response can depend on its status",
                instead,
            );
        };
        if made.outcome.options.get("cache").is_some() {
            let mut pairs = match made.outcome.options.inner("cache", "status_ttl") {
                Some(DraftValue::Table(known)) => known.clone(),
                _ => Vec::new(),
            };
            if !pairs.iter().any(|(known, _)| known == status) {
                // The first that matches counts.
                let every = pairs.iter().position(|(known, _)| known == EVERY_STATUS);
                let pair = (status.to_owned(), duration(time.min(YEAR)).into());
                pairs.insert(every.unwrap_or(pairs.len()), pair);
            }
            let mut origins = from(number);
            origins.extend(from(condition));
            made.outcome.options.extend("cache", ("status_ttl", DraftValue::Table(pairs)), origins);
        }
    }

    /// Translates `set beresp.do_gzip = true`. Returns whether there is an option for it.
    pub(super) fn gzip(&mut self, number: usize, made: &mut VarnishDraft) -> bool {
        let is_so = compress(number, made);
        if !is_so {
            made.varies = Some((None, from(number)));
            self.sheet.say_if_unsaid(
                number,
                RemarkKind::NeedsNothing,
                "where a rule removes Accept-Encoding, responses are not compressed",
            );
        }
        is_so
    }

    /// Translates statements for responses whose fields meet a condition. Returns whether all of them are.
    pub(super) fn of_response(
        &mut self,
        (number, condition): (usize, &[VclToken]),
        inner: &'s [Statement],
        plain: &[(&'s str, Vec<&'s str>)],
        made: &mut VarnishDraft,
    ) -> bool {
        let words: Vec<&str> = condition.iter().map(VclToken::text).collect();
        let words: Vec<&str> = words.into_iter().filter(|word| !matches!(*word, "(" | ")")).collect();
        let numbers: Vec<usize> = inner.iter().filter_map(plain_number).collect();
        // Statements that only say how long a response is stored.
        let is_lifetime = |(name, words): &(&str, Vec<&str>)| {
            matches!(
                (*name, words.as_slice()),
                ("set", ["beresp.uncacheable", "=", "true"])
                    | ("set", ["beresp.ttl" | "beresp.grace", "=", ..])
                    | ("return", _)
            )
        };
        let keeps_out = plain.iter().all(is_lifetime) && numbers.len() == inner.len();
        let needless = |adapter: &mut Self, why: &str| {
            for number in std::iter::once(number).chain(numbers.iter().copied()) {
                adapter.sheet.needless(number, why);
            }
            true
        };
        if keeps_out && matches!(words.as_slice(), ["beresp.ttl", "<=" | "<", "0s"]) {
            return needless(self, "responses without a lifetime are not stored");
        }
        let field = words.first().and_then(|name| name.strip_prefix("beresp.http."));
        let ignores_cookies = matches!(
            made.outcome.options.inner("cache", "ignore"),
            Some(DraftValue::List(ignored)) if ignored.contains(&"set-cookie".into())
        );
        if keeps_out
            && field.is_some_and(|field| field.eq_ignore_ascii_case("set-cookie"))
            && !words.iter().any(|word| matches!(*word, "!~" | "!="))
            && words.len() <= 3
            && !ignores_cookies
        {
            return needless(self, "responses with Set-Cookie are not stored");
        }
        let Some(when) = field_condition(&words) else { return false };
        let lines = (number, numbers.as_slice());
        self.under_condition(lines, when, plain, keeps_out, made)
    }

    /// Translates statements under a condition on the response: a lifetime, or compression.
    fn under_condition(
        &mut self,
        (number, numbers): (usize, &[usize]),
        when: String,
        plain: &[(&'s str, Vec<&'s str>)],
        keeps_out: bool,
        made: &mut VarnishDraft,
    ) -> bool {
        let origins: Vec<StatementOrigin> =
            std::iter::once(number).chain(numbers.iter().copied()).map(StatementOrigin::Directive).collect();
        let options = &mut made.outcome.options;
        let is_refused = plain.iter().any(|(name, words)| {
            matches!(words.as_slice(), ["beresp.uncacheable", "=", "true"])
                || *name == "return" && words.get(1) == Some(&"pass")
        });
        let time = plain.iter().find_map(|(_, words)| match words.as_slice() {
            ["beresp.ttl", "=", time] => milliseconds(time),
            _ => None,
        });
        match plain {
            [("set", words)] if *words == ["beresp.do_gzip", "=", "true"] => {
                if self.gzip(numbers.first().copied().unwrap_or(number), made) {
                    let options = &mut made.outcome.options;
                    options.extend("compress", ("when", DraftValue::Expression(when)), origins);
                } else {
                    made.varies = Some((Some(when), origins));
                }
                true
            }
            _ if keeps_out && options.get("cache").is_some() && (is_refused || time.is_some()) => {
                let time = if is_refused { 0 } else { time.unwrap_or(0).min(YEAR) };
                let rule = DraftValue::Table(vec![
                    ("when".to_owned(), DraftValue::Expression(when)),
                    ("ttl".to_owned(), duration(time).into()),
                ]);
                let mut rules = match options.inner("cache", "rules") {
                    Some(DraftValue::List(known)) => known.clone(),
                    _ => Vec::new(),
                };
                rules.push(rule);
                options.extend("cache", ("rules", DraftValue::List(rules)), origins);
                true
            }
            _ => false,
        }
    }
}

/// Adds to what a cache ignores.
pub(super) fn ignore(what: &str, from: Vec<StatementOrigin>, made: &mut VarnishDraft) {
    let options = &mut made.outcome.options;
    let mut all = match options.inner("cache", "ignore") {
        Some(DraftValue::List(known)) => known.clone(),
        Some(one) => vec![one.clone()],
        None => Vec::new(),
    };
    if !all.contains(&what.into()) {
        all.push(what.into());
    }
    options.extend("cache", ("ignore", DraftValue::List(all)), from);
}

/// Compresses responses, whatever their media type. Returns whether clients may get them so: rules can forbid that.
fn compress(number: usize, made: &mut VarnishDraft) -> bool {
    let refused = made.outcome.options.inner("request_headers", "remove");
    let is_coding = |name: &DraftValue| matches!(name, DraftValue::Text(name) if name.eq_ignore_ascii_case("accept-encoding"));
    if matches!(refused, Some(DraftValue::List(names)) if names.iter().any(is_coding)) {
        return false;
    }
    let pairs = vec![
        ("codings".to_owned(), DraftValue::List(vec!["gzip".into()])),
        ("min_size".to_owned(), DraftValue::Number(1)),
        ("types".to_owned(), DraftValue::List(vec!["*/*".into()])),
    ];
    made.outcome.options.set("compress", DraftValue::Table(pairs), from(number));
    true
}

/// Adds Vary to the responses that Varnish compresses for the store only.
pub(super) fn vary(made: &mut VarnishDraft) {
    let Some((when, origins)) = made.varies.take() else { return };
    let options = &mut made.outcome.options;
    let (known, mut from) = options.option("response_headers").unzip();
    let mut edits: Vec<DraftValue> = known.into_iter().collect();
    let mut pairs: Vec<(String, DraftValue)> =
        when.map(|when| ("when".to_owned(), DraftValue::Expression(when))).into_iter().collect();
    let vary = vec![("Vary".to_owned(), "Accept-Encoding".into())];
    pairs.push(("add".to_owned(), DraftValue::Table(vary)));
    edits.push(DraftValue::Table(pairs));
    from.get_or_insert_default().extend(origins);
    options.set("response_headers", DraftValue::List(edits), from.unwrap_or_default());
}

fn plain_number(statement: &Statement) -> Option<usize> {
    match statement {
        Statement::Plain { number, .. } => Some(*number),
        Statement::If(_) => None,
    }
}

/// A comparison of a field of the response, as a condition.
fn field_condition(words: &[&str]) -> Option<String> {
    let name = |name: &str| name.strip_prefix("beresp.http.").map(|name| literal(&name.to_ascii_lowercase()));
    match words {
        [field] => Some(format!("{} in response.headers", name(field)?)),
        [field, sign @ ("~" | "!~"), pattern] => {
            let field = name(field)?;
            let pattern = literal(&values::search(pattern, false).ok()?);
            let not = if *sign == "!~" { "!" } else { "" };
            Some(format!("{not}(response.headers[{field}] ?? \"\").matches({pattern})"))
        }
        [field, sign @ ("==" | "!="), value] => {
            Some(format!("response.headers[{}] {sign} {}", name(field)?, literal(value)))
        }
        _ => None,
    }
}
