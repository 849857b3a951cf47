//! Actions of rules: responses, redirects, fields, paths, passwords, rates.

use super::acl::CountedRequests;
use super::expressions::Sample;
use super::format::{self, Piece, SampleText};
use super::frontends::{ConditionVerdict, RateRule, RequestFacts};
use super::rule_sets::FrontendRule;
use super::syntax::HaproxyLine;
use super::{HaproxyAdapter, values};
use crate::draft::{DraftValue, StatementOrigin};
use crate::rules::{self, Atom, Expression, FieldNow, Holds, PathNow, RegionOutcome};
use crate::values::{self as written, bare};

/// Unsupported actions, and what to do instead.
const REFUSED: [(&str, &str, &str); 21] = [
    ("set-var", "responses set no variables", "write the value where it is used: docs/conditions.md"),
    ("unset-var", "responses set no variables", "leave it out"),
    ("set-var-fmt", "responses set no variables", "write the value where it is used: docs/conditions.md"),
    ("lua", "there is no scripting", "use `forward_auth`, or do it in the server"),
    (
        "use-service",
        "there are no services within the proxy",
        "`metrics` serves metrics at a separate address",
    ),
    ("set-method", "methods stay as they are", "leave it to the server"),
    ("set-uri", "only the path is rewritten", "write `rewrite = { pattern = \"…\", path = \"…\" }`"),
    ("replace-uri", "only the path is rewritten", "write `rewrite = { pattern = \"…\", path = \"…\" }`"),
    ("replace-pathq", "only the path is rewritten", "write `rewrite = { pattern = \"…\", path = \"…\" }`"),
    ("set-query", "queries stay as they are", "leave it to the server, or redirect"),
    ("set-status", "statuses stay as they are", "leave it to the server"),
    ("replace-header", "fields are set as a whole", "write `set` of `request_headers` or `response_headers`"),
    ("replace-value", "fields are set as a whole", "write `set` of `request_headers` or `response_headers`"),
    (
        "set-src",
        "clients are read from X-Forwarded-For and Forwarded",
        "name the proxies in front in `trusted_proxies`",
    ),
    ("set-dst", "servers are named in the file", "write an [upstream.NAME]"),
    ("do-resolve", "servers are named in the file", "names are resolved again when their records expire"),
    ("send-spoe-group", "there are no agents", "use `forward_auth`"),
    ("set-map", "requests change no maps", "`vanward map set` and the admin API do: docs/maps.md"),
    ("del-map", "requests change no maps", "`vanward map delete` and the admin API do: docs/maps.md"),
    ("add-acl", "requests change no lists", "`vanward map set` and the admin API do: docs/maps.md"),
    ("normalize-uri", "paths are compared decoded, and ambiguous ones get 400", "leave it out"),
];

impl<'s> HaproxyAdapter<'s> {
    /// Applies the request rules. Returns whether one answers.
    pub(super) fn requests(
        &mut self,
        rules: &[FrontendRule<'s>],
        place: usize,
        facts: RequestFacts<'_>,
        made: &mut RegionOutcome,
    ) -> bool {
        let mut allowed = None;
        for (at, rule) in rules.iter().enumerate() {
            let action = action(rule);
            let is_skipped = allowed.is_some() && rule.line.word(0) == "http-request";
            // Rules about fields do not matter to requests that are refused: their conditions are decided last.
            if is_skipped || sets_variable(action) || is_minor(action) && !facts.is_in_order {
                continue;
            }
            match self.verdict(rule, facts, made, is_minor(action)) {
                ConditionVerdict::No => {}
                // The rules after it are skipped, except for those of other kinds.
                ConditionVerdict::Yes if action == "allow" => allowed = Some(at),
                ConditionVerdict::Yes => {
                    if self.act(rule, action, facts.holds, made) {
                        return true;
                    }
                }
                ConditionVerdict::Above(rate) => {
                    if self.rate(rule, place, &rate, made) {
                        return true;
                    }
                }
                // An unnecessary password prompt is safer than a missing one.
                ConditionVerdict::Unsaid(why) if action == "auth" => {
                    let instead = "write `auth` into the routes that need it";
                    self.sheet.differs(
                        rule.line.number,
                        &format!("every client is asked for a password: {why}"),
                        instead,
                    );
                    self.act(rule, action, facts.holds, made);
                }
                ConditionVerdict::Unsaid(why) if protects(rule.line) => {
                    return self.closed(rule, &why, made);
                }
                ConditionVerdict::Unsaid(why) => self.unsaid(rule, &why),
            }
        }
        let until = allowed.unwrap_or(rules.len());
        for rule in rules[..until].iter().filter(|_| !facts.is_in_order) {
            let action = action(rule);
            if !is_minor(action) {
                continue;
            }
            match self.verdict(rule, facts, made, true) {
                ConditionVerdict::No => {}
                ConditionVerdict::Yes => drop(self.act(rule, action, facts.holds, made)),
                ConditionVerdict::Above(_) => self.unsaid(rule, "a rate only refuses"),
                ConditionVerdict::Unsaid(why) => self.unsaid(rule, &why),
            }
        }
        false
    }

    /// Answers 501 in place of a rule that protects and has no translation. Returns `true`: it answers.
    fn closed(&mut self, rule: &FrontendRule<'_>, why: &str, made: &mut RegionOutcome) -> bool {
        self.unsaid(rule, &format!("{why}; its requests get 501, so that they are not let through"));
        self.not_taken(rule, made)
    }

    /// Applies an action. Returns whether it answers.
    fn act(
        &mut self,
        rule: &FrontendRule<'s>,
        action: &str,
        holds: &Holds<'_>,
        made: &mut RegionOutcome,
    ) -> bool {
        match action {
            "deny" | "reject" | "tarpit" | "silent-drop" => {
                self.denied(rule, action, made);
                return true;
            }
            "return" => {
                self.returned(rule, made);
                return true;
            }
            "redirect" => return self.redirected(rule, holds, made),
            "auth" => self.password(rule, made),
            "set-header" | "add-header" | "del-header" => {
                holds.change_field(rule.line.word(2), field_now(rule, action));
                self.field(rule, action, "request_headers", made);
            }
            "set-path" | "replace-path" => {
                let text = rule.words().get(2).map_or("", String::as_str);
                let decided = if rule.samples.is_empty() { None } else { self.decided(rule, text, holds) };
                let text = decided.as_deref().unwrap_or(text);
                holds.change_path(path_now(text, action));
                self.path(rule, text, action, made);
            }
            "track-sc0" | "track-sc1" | "track-sc2" | "track-sc" => self.sheet.say_if_unsaid(
                rule.line.number,
                crate::RemarkKind::NeedsNothing,
                "`rate_limit` and `concurrency` count automatically",
            ),
            "set-log-level" if rule.behind("set-log-level") == Some("silent") => {
                made.options.set("access_log", false, rule.from());
            }
            "capture" | "set-log-level" => {
                self.sheet.needless(rule.line.number, "`fields` and `format` of [log] name header fields");
            }
            "cache-use" => self.cache_use(rule, made),
            "wait-for-body" => made.options.set("request_buffering", true, rule.from()),
            "set-nice"
            | "set-mark"
            | "set-tos"
            | "set-priority-class"
            | "strict-mode"
            | "set-priority-offset" => {
                self.sheet.needless(rule.line.number, "it changes no answer");
            }
            _ => self.refused(rule, action),
        }
        false
    }

    fn refused(&mut self, rule: &FrontendRule<'_>, action: &str) {
        let bare = action.split('(').next().unwrap_or_default();
        let known = REFUSED.iter().find(|(name, ..)| *name == bare);
        let (_, why, instead) = known.unwrap_or(&(
            "",
            "there is no such action",
            "look for what it does in docs/configuration.md",
        ));
        self.sheet.refuse(rule.line.number, why, instead);
    }

    fn denied(&mut self, rule: &FrontendRule<'s>, action: &str, made: &mut RegionOutcome) {
        let default = if action == "tarpit" { 500 } else { 403 };
        let status = rule.behind("deny_status").or_else(|| rule.behind("status"));
        let status =
            status.and_then(|status| status.parse::<u64>().ok()).filter(|status| (200..600).contains(status));
        if action != "deny" {
            let why = "a connection is not held or closed without a response: the client gets one";
            self.sheet.differs(
                rule.line.number,
                why,
                "a fault can do that: `inject = \"reset\"` of [[fault]]",
            );
        }
        self.answered(rule, status.unwrap_or(default), made);
    }

    fn returned(&mut self, rule: &FrontendRule<'s>, made: &mut RegionOutcome) {
        let status = rule.behind("status").and_then(|status| status.parse::<u64>().ok()).unwrap_or(200);
        self.answered(rule, status.clamp(200, 599), made);
    }

    /// Sets a fixed response with the rule's body.
    fn answered(&mut self, rule: &FrontendRule<'s>, status: u64, made: &mut RegionOutcome) {
        let kind = rule.behind("content-type").unwrap_or("text/plain");
        let mut answer = rules::answer(status, None);
        if let DraftValue::Table(pairs) = &mut answer {
            if let Some(text) = rule.behind("string") {
                pairs.push(("body".to_owned(), text.into()));
                pairs.push(("content_type".to_owned(), kind.into()));
            } else if let Some(file) = rule.behind("file") {
                pairs.push(("file".to_owned(), file.into()));
                pairs.push(("content_type".to_owned(), kind.into()));
            } else if rule.behind("lf-string").or_else(|| rule.behind("lf-file")).is_some() {
                let why = "the body of a fixed response has no variables";
                self.sheet.refuse(rule.line.number, why, "write the text as it should be");
            } else if rule.behind("errorfile").or_else(|| rule.behind("errorfiles")).is_some() {
                let why = "its file has a head as well, and the status is written here";
                self.sheet.differs(rule.line.number, why, "write the body alone into a `file` of `respond`");
            }
        }
        made.options.keep(&["auth", "rate_limit", "concurrency"]);
        made.options.set("respond", answer, rule.from());
        let mut words = rule.words().iter();
        while let Some(word) = words.next() {
            if let ("hdr", Some(name), Some(value)) =
                (word.as_str(), words.clone().next(), words.clone().nth(1))
                && let (true, Ok(value)) = (is_field_name(name), self.template(rule, name, value))
            {
                made.options.field("response_headers", "set", name, &value, Vec::new());
            }
        }
    }

    /// Converts a log format to a text with variables and values. Values are named after `base`.
    fn template(&mut self, rule: &FrontendRule<'s>, base: &str, text: &str) -> Result<String, String> {
        let definitions = &mut self.sheet.definitions;
        format::template(text, &mut |sample| match rule.samples.get(sample) {
            Some(Ok(sample)) => match sample.only() {
                Some(text) => Ok(SampleText::Text(text.to_owned())),
                None => {
                    let text = sample.total();
                    // A value that has a name keeps it.
                    let own = text.strip_prefix("values.").filter(|name| definitions.has_value(name));
                    match own {
                        Some(name) => Ok(SampleText::Value(name.to_owned())),
                        None => definitions.value(base, bare(&text), rule.from()).map(SampleText::Value),
                    }
                }
            },
            Some(Err(why)) => Err(format!("%[{sample}]: {why}")),
            None => Err(format!("%[{sample}]")),
        })
    }

    /// Replaces samples that are one of several constants by the one that these requests have.
    fn decided(&mut self, rule: &FrontendRule<'s>, text: &str, holds: &Holds<'_>) -> Option<String> {
        let mut made = String::new();
        for piece in format::pieces(text).ok()? {
            let Piece::Sample(text) = &piece else {
                made.push_str(&piece.written());
                continue;
            };
            match rule.samples.get(text) {
                Some(Ok(sample)) => {
                    made.push_str(&self.decided_sample(rule, sample, holds)?.replace('%', "%%"));
                }
                Some(Err(_)) => return None,
                None => made.push_str(&piece.written()),
            }
        }
        Some(made)
    }

    fn decided_sample(&self, rule: &FrontendRule<'s>, sample: &Sample, holds: &Holds<'_>) -> Option<String> {
        /// Each is a route.
        const TEXTS_MAX: usize = 200;
        let holds_one = |atom: Atom| {
            // Conditions of requests do not depend on TLS here.
            Expression::Any(vec![atom], rule.line.number).verdict(holds, false)
        };
        if let Some(all) = &sample.alternatives {
            for (atom, value) in all.iter() {
                if holds_one(atom.clone()).ok()? {
                    return Some(value.clone());
                }
            }
            return None;
        }
        let possible = sample.possible.as_ref().filter(|possible| possible.len() <= TEXTS_MAX)?;
        for text in possible {
            if holds_one(Atom::When(sample.is_one_of(std::slice::from_ref(text)))).ok()? {
                return Some(text.clone());
            }
        }
        None
    }

    /// Translates `redirect`. Returns whether that was possible.
    fn redirected(&mut self, rule: &FrontendRule<'s>, holds: &Holds<'_>, made: &mut RegionOutcome) -> bool {
        let status = rule.behind("code").and_then(|code| code.parse::<u64>().ok()).unwrap_or(302);
        let to = if let Some(scheme) = rule.behind("scheme") {
            Ok(format!("{scheme}://$host$path_and_query"))
        } else if let Some(prefix) = rule.behind("prefix") {
            let has = |flag: &str| rule.words().iter().any(|word| word == flag);
            let path = match (has("drop-query"), has("append-slash")) {
                (true, true) => {
                    let why = "a path that ends in a slash gets a second one";
                    self.sheet.differs(rule.line.number, why, "exclude such paths by a condition");
                    "$path/?"
                }
                (true, false) => "$path?",
                (false, _) => "$path_and_query",
            };
            let bare = if prefix == "/" { "" } else { prefix };
            self.target(rule, bare, holds).map(|prefix| format!("{prefix}{path}"))
        } else {
            self.target(rule, rule.behind("location").unwrap_or("%"), holds)
        };
        // With the port that clients send.
        let to = to.map(|to| to.replacen("://$header.Host", "://$host", 1));
        let definitions = &self.sheet.definitions;
        let to = match to {
            Ok(to) if crate::values::is_location(&to, &|name| definitions.is_of_host(name)) => to,
            Ok(_) => {
                self.sheet.refuse(
                    rule.line.number,
                    "its target is not a URL or path",
                    "write `redirect` of a [[route]]",
                );
                return self.not_taken(rule, made);
            }
            Err(variable) => {
                let why = format!("there is no variable for {variable}");
                self.sheet.refuse(
                    rule.line.number,
                    &why,
                    "write the URL with the variables of docs/configuration.md",
                );
                return self.not_taken(rule, made);
            }
        };
        if rule.behind("set-cookie").or_else(|| rule.behind("clear-cookie")).is_some() {
            self.sheet.differs(rule.line.number, "a redirect sets no cookie", "have a server do so");
        }
        let to = if rule.behind("location").is_some() { crate::values::without_query(to) } else { to };
        let status = match status {
            301 | 302 | 303 | 307 | 308 => status,
            _ => 302,
        };
        let pairs = [("to".to_owned(), to.into()), ("status".to_owned(), DraftValue::Number(status))];
        made.options.keep(&["auth", "rate_limit", "concurrency"]);
        made.options.set("redirect", DraftValue::Table(pairs.into()), rule.from());
        true
    }

    /// Converts the target of a redirect. A value that is its host, or has a query, has to be a constant. A host may also be
    /// made of the requested one.
    fn target(&mut self, rule: &FrontendRule<'s>, text: &str, holds: &Holds<'_>) -> Result<String, String> {
        let mut before = String::new();
        let mut is_plain = true;
        for piece in format::pieces(text)? {
            if let Piece::Sample(sample) = &piece
                && let Some(Ok(sample)) = rule.samples.get(sample)
            {
                let is_in_path =
                    before.split_once("://").map_or(before.as_str(), |(_, rest)| rest).contains('/');
                let has_marks = |text: &String| text.contains(['?', '#', '%']);
                let is_path = !sample.possible.iter().flatten().any(has_marks);
                let is_host = matches!(before.as_str(), "http://" | "https://") && sample.is_of_host();
                is_plain &= is_host || is_in_path && is_path;
            }
            before.push_str(&piece.written());
        }
        if is_plain {
            return self.template(rule, "target", text);
        }
        match self.decided(rule, text, holds) {
            Some(text) => self.template(rule, "target", &text),
            None => Err(format!("{text}, which leads to more URLs than can become routes")),
        }
    }

    /// Answers 501 in place of an unsupported rule, so that its requests do not reach another rule.
    pub(super) fn not_taken(&mut self, rule: &FrontendRule<'_>, made: &mut RegionOutcome) -> bool {
        made.options.keep(&["auth", "rate_limit", "concurrency"]);
        let answer = rules::answer(501, Some(("not taken over from haproxy\n", "text/plain")));
        made.options.set("respond", answer, rule.from());
        true
    }

    /// Translates `http-request auth`. Vanward reads the users from a file.
    fn password(&mut self, rule: &FrontendRule<'s>, made: &mut RegionOutcome) {
        let list = rule.condition.iter().flat_map(super::acl::AclCondition::terms).find_map(|criterion| {
            match &criterion.term {
                super::acl::Term::LoggedIn(list) => Some(list.clone()),
                _ => None,
            }
        });
        let list = list.unwrap_or_else(|| "users".to_owned());
        let section =
            self.sections.iter().find(|section| section.kind() == "userlist" && section.name() == list);
        let file = format!("./{}.users", crate::sheet::name_of(&list));
        let mut pairs = vec![("users".to_owned(), DraftValue::from(file.as_str()))];
        if let Some(realm) = rule.behind("realm") {
            pairs.push(("realm".to_owned(), realm.into()));
        }
        let mut origins = rule.from();
        for line in section.iter().flat_map(|section| &section.lines).filter(|line| line.word(0) == "user") {
            origins.push(StatementOrigin::Directive(line.number));
            match line.behind("password") {
                Some(_) => {
                    let instead = format!("write NAME:HASH of this line into {file}");
                    self.sheet.differs(line.number, "users are listed in a file", &instead);
                }
                None => {
                    let instead = format!("`htpasswd -B {file} {}` makes a line of it", line.word(1));
                    self.sheet.differs(
                        line.number,
                        "users are listed in a file, with hashes of their passwords",
                        &instead,
                    );
                }
            }
        }
        origins.extend(section.map(|section| StatementOrigin::Directive(section.head.number)));
        let terms = rule.condition.iter().flat_map(super::acl::AclCondition::terms);
        let logins = terms.filter(|criterion| matches!(criterion.term, super::acl::Term::LoggedIn(_)));
        origins.extend(logins.map(|criterion| StatementOrigin::Directive(criterion.number)));
        made.options.set("auth", DraftValue::Table(pairs), origins);
    }

    /// Translates `set-header`, `add-header` and `del-header` for requests or responses.
    fn field(&mut self, rule: &FrontendRule<'s>, action: &str, option: &str, made: &mut RegionOutcome) {
        let (name, text) = (
            rule.words().get(2).cloned().unwrap_or_default(),
            rule.words().get(3).cloned().unwrap_or_default(),
        );
        if !is_field_name(&name) || (action == "del-header" && rule.words().len() > 3) {
            let instead = "name the fields in `request_headers` and `response_headers`";
            return self.sheet.refuse(rule.line.number, "it is no name of a field", instead);
        }
        let lower = name.to_ascii_lowercase();
        let always_sent = ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "forwarded"];
        let is_always_sent = option == "request_headers" && always_sent.contains(&lower.as_str());
        if action == "del-header" && is_always_sent {
            return self.sheet.needless(rule.line.number, "these fields from clients are dropped");
        }
        if action == "del-header" {
            return made.options.listed(option, "remove", &name, rule.from());
        }
        // A constant says what a proxy in front has ended; a sample is what Vanward knows from the connection.
        let is_found_out = text.contains('%') || rule.words().iter().any(|word| word.contains("ssl_fc"));
        if is_always_sent && is_found_out {
            return self.sheet.needless(rule.line.number, "servers always get this field");
        }
        let value = match self.template(rule, &name, &text) {
            Ok(value) => value,
            Err(variable) => {
                let instead = "write the value, or a variable of docs/configuration.md";
                let mut why = format!("there is no variable for {variable}");
                if option == "request_headers" && action == "set-header" {
                    why += "; the client's own field is removed";
                    made.options.listed(option, "remove", &name, rule.from());
                }
                return self.sheet.refuse(rule.line.number, &why, instead);
            }
        };
        if lower == "host" && option == "request_headers" {
            made.options.extend("rewrite", ("host", value.into()), rule.from());
            // HAProxy leaves the field as servers send it.
            return made.options.set("location", false, Vec::new());
        }
        if option == "response_headers" && lower == "strict-transport-security" && action == "set-header" {
            self.sheet.say_if_unsaid(
                rule.line.number,
                crate::RemarkKind::NeedsNothing,
                "it is as in another route",
            );
        }
        let place = if action == "add-header" { "add" } else { "set" };
        if !made.options.field(option, place, &name, &value, rule.from()) && place == "add" {
            let why = "a route can add a field only once";
            self.sheet.refuse(rule.line.number, why, "write both values into one, with a comma between");
        }
    }

    /// Translates `set-path` and `replace-path`.
    fn path(&mut self, rule: &FrontendRule<'s>, text: &str, action: &str, made: &mut RegionOutcome) {
        let rewritten = if action == "set-path" {
            set_path(text)
        } else {
            let to = rule.words().get(3);
            to.and_then(|to| {
                // The slash of a group that begins the new path comes before the group.
                let (text, to) = match (text.split_once("(/"), to.strip_prefix("\\1")) {
                    (Some((before, behind)), Some(rest)) if !before.contains('(') => {
                        (format!("{before}/({behind}"), format!("/\\1{rest}"))
                    }
                    _ => (text.to_owned(), to.clone()),
                };
                Some((written::expression(&text, false).ok()?, groups(&to)))
            })
        };
        let known =
            made.options.get("rewrite").is_some_and(|_| made.options.inner("rewrite", "path").is_some());
        match rewritten {
            Some((pattern, to)) if to.starts_with('/') && !to.contains('?') && !known => {
                made.options.extend("rewrite", ("pattern", pattern.into()), rule.from());
                made.options.extend("rewrite", ("path", to.into()), Vec::new());
                // HAProxy leaves the field as servers send it.
                made.options.set("location", false, Vec::new());
            }
            _ => {
                let why = if known { "a path is rewritten once" } else { "the new path is not understood" };
                self.sheet.refuse(
                    rule.line.number,
                    why,
                    "write `rewrite = { pattern = \"…\", path = \"…\" }`",
                );
            }
        }
    }

    /// Translates a rule that rejects clients above a rate, or with too many requests under way. Returns whether requests
    /// are answered without it.
    fn rate(
        &mut self,
        rule: &FrontendRule<'s>,
        place: usize,
        rate: &RateRule,
        made: &mut RegionOutcome,
    ) -> bool {
        if !protects(rule.line) {
            self.unsaid(rule, "a rate only refuses");
            return false;
        }
        let RateRule { counter, what, most, numbers, when } = rate;
        let lines = self.sections.iter().flat_map(|section| &section.lines);
        let name = format!("track-{counter}");
        let tracks = |line: &HaproxyLine| {
            line.words.iter().any(|word| {
                *word == name || *word == format!("track-sc({})", counter.trim_start_matches("sc"))
            })
        };
        let own = self.levels(place).flat_map(|level| &level.lines);
        let track = own.chain(lines).find(|line| tracks(line));
        let table =
            track.and_then(|line| line.behind("table")).and_then(|name| self.backend(name)).unwrap_or(place);
        let stick = self.one(table, &["stick-table"]);
        let period = stick.and_then(|line| {
            let store = line.behind("store")?;
            let inner = store.split_once("http_req_rate(")?.1;
            values::milliseconds(inner.split(')').next()?)
        });
        let key = match track {
            Some(line) => line
                .words
                .iter()
                .position(|word| word.starts_with("track-sc"))
                .and_then(|at| key(line.word(at + 1))),
            None => Some("client".to_owned()),
        };
        let (option, mut pairs) = match (what, period.filter(|period| *period > 0), key) {
            (CountedRequests::UnderWay, _, Some(key)) => {
                let pairs = [("max".to_owned(), DraftValue::Number(*most)), ("by".to_owned(), key.into())];
                ("concurrency", Vec::from(pairs))
            }
            (CountedRequests::Rate, Some(period), Some(key)) => {
                let rate = format!("{most}/{}", written::duration(period.min(86_400_000)));
                ("rate_limit", vec![("rate".to_owned(), rate.into()), ("key".to_owned(), key.into())])
            }
            (CountedRequests::Rate | CountedRequests::UnderWay, ..) => {
                return self.closed(rule, "its table or its key is not understood", made);
            }
        };
        pairs.extend(when.iter().map(|when| ("when".to_owned(), DraftValue::Expression(when.clone()))));
        let mut origins = rule.from();
        origins.extend(
            numbers
                .iter()
                .copied()
                .chain(track.map(|line| line.number))
                .chain(stick.map(|line| line.number))
                .map(StatementOrigin::Directive),
        );
        let table = DraftValue::Table(pairs);
        if rule.behind("deny_status").or_else(|| rule.behind("status")) != Some("429") {
            self.sheet.differs(rule.line.number, "clients get 429 with Retry-After", "");
        }
        add_limit(option, table, origins, made);
        false
    }

    pub(super) fn responses<'r>(
        &mut self,
        rules: impl IntoIterator<Item = &'r FrontendRule<'s>>,
        facts: RequestFacts<'_>,
        made: &mut RegionOutcome,
    ) where
        's: 'r,
    {
        for rule in rules {
            let action = action(rule);
            match self.verdict(rule, facts, made, true) {
                ConditionVerdict::No => {}
                ConditionVerdict::Yes => match action {
                    "set-header" | "add-header" | "del-header" => {
                        self.field(rule, action, "response_headers", made);
                    }
                    "cache-store" => self.cache_store(rule, made),
                    "capture" | "set-log-level" => {
                        self.sheet
                            .needless(rule.line.number, "`fields` and `format` of [log] name header fields");
                    }
                    _ => self.refused(rule, action),
                },
                ConditionVerdict::Above(_) => self.unsaid(rule, "a rate only refuses requests"),
                ConditionVerdict::Unsaid(why) => self.unsaid(rule, &why),
            }
        }
    }
}

fn action<'r>(rule: &'r FrontendRule<'_>) -> &'r str {
    action_of(rule.line)
}

fn action_of(line: &HaproxyLine) -> &str {
    match line.word(0) {
        "redirect" => "redirect",
        "tcp-request" => line.word(2),
        _ => line.word(1),
    }
}

/// Adds a limit to those of an option.
fn add_limit(option: &str, limit: DraftValue, origins: Vec<StatementOrigin>, made: &mut RegionOutcome) {
    let limits = match made.options.get(option).cloned() {
        None => limit,
        Some(DraftValue::List(mut known)) => {
            known.push(limit);
            DraftValue::List(known)
        }
        Some(known) => DraftValue::List(vec![known, limit]),
    };
    made.options.set(option, limits, origins);
}

/// Whether a rule changes variables, which are values.
fn sets_variable(action: &str) -> bool {
    ["set-var(", "set-var-fmt(", "unset-var("].iter().any(|begin| action.starts_with(begin))
}

/// Whether a rule only adds to requests or responses that are let through.
fn is_minor(action: &str) -> bool {
    matches!(action, "set-header" | "add-header" | "capture" | "set-log-level" | "set-nice" | "set-tos")
        || action.starts_with("track-sc")
}

/// Whether a rule refuses requests.
pub(super) fn protects(line: &HaproxyLine) -> bool {
    match action_of(line) {
        "deny" | "tarpit" | "reject" | "silent-drop" => true,
        "return" => line.behind("status").and_then(|status| status.parse::<u16>().ok()).unwrap_or(200) >= 400,
        _ => false,
    }
}

/// The value of a field after a rule that changes it.
fn field_now(rule: &FrontendRule<'_>, action: &str) -> FieldNow {
    match action {
        "del-header" => FieldNow::Absent,
        "set-header" => match rule.words().get(3) {
            Some(value) if !value.contains('%') => FieldNow::Is(value.clone()),
            _ => FieldNow::Unknown,
        },
        _ => FieldNow::Unknown,
    }
}

/// The path after a rule that changes it.
fn path_now(text: &str, action: &str) -> PathNow {
    match text.split_once('%') {
        _ if action != "set-path" => PathNow::Unknown,
        None => PathNow::Is(text.to_owned()),
        Some((begin, "[path]")) => PathNow::Begins(format!("{begin}/")),
        Some(_) => PathNow::Unknown,
    }
}

/// Converts a constant path, an added prefix, or a replaced part.
fn set_path(text: &str) -> Option<(String, String)> {
    if let Some(regsub) = text.strip_prefix("%[path,regsub(").and_then(|rest| rest.strip_suffix(")]")) {
        let mut parts = regsub.splitn(3, ',').map(|part| part.trim_matches('"'));
        let (pattern, to) = (parts.next()?, parts.next().unwrap_or_default());
        let start = pattern.strip_prefix('^')?;
        let is_plain = !pattern.contains(['(', '|', '$']);
        return is_plain.then(|| (format!("{start}(.*)"), format!("{}$1", groups(to))));
    }
    let (before, behind) = text.split_once("%[path]").unwrap_or((text, ""));
    let is_constant = !before.contains('%') && !behind.contains('%');
    let group = if text.contains("%[path]") { "$1" } else { "" };
    is_constant.then(|| {
        ("(.*)".to_owned(), format!("{}{group}{}", before.replace('$', "$$"), behind.replace('$', "$$")))
    })
}

/// Converts `\1` to `$1`.
fn groups(text: &str) -> String {
    let mut made = String::new();
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' if letters.peek().is_some_and(char::is_ascii_digit) => {
                made.push_str(&format!("${{{}}}", letters.next().unwrap_or('0')));
            }
            '$' => made.push_str("$$"),
            other => made.push(other),
        }
    }
    made
}

fn key(sample: &str) -> Option<String> {
    let (name, argument) =
        sample.split_once('(').map_or((sample, ""), |(name, rest)| (name, rest.trim_end_matches(')')));
    let is_plain = !argument.is_empty() && is_field_name(argument);
    match name {
        "src" => Some("client".to_owned()),
        "hdr" | "req.hdr" if argument.eq_ignore_ascii_case("host") => Some("host".to_owned()),
        "hdr" | "req.hdr" | "req.fhdr" if is_plain => Some(format!("header:{argument}")),
        "cook" | "req.cook" if is_plain => Some(format!("cookie:{argument}")),
        "url_param" | "urlp" if is_plain => Some(format!("query:{argument}")),
        _ => None,
    }
}

pub(super) fn is_field_name(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}
