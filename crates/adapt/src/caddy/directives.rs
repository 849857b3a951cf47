//! Applies directives in Caddy's order to a kind of request.

use super::format::{self, PlaceholderText};
use super::matchers::{self, Named, PathGroups};
use super::php::CaddyApplication;
use super::texts::{CaddyText, Texts};
use super::{CaddyAdapter, bytes, from};
use crate::definitions::Definitions;
use crate::draft::{DraftValue, StatementOrigin};
use crate::rules::{self, Atom, Expression, FieldNow, Holds, PathNow, RegionOutcome, literal};
use crate::source::Directive;
use crate::values;

const ORDER: [&str; 32] = [
    "map",
    "vars",
    "root",
    "log",
    "log_skip",
    "skip_log",
    "header",
    "request_body",
    "redir",
    "method",
    "rewrite",
    "uri",
    "try_files",
    "basic_auth",
    "basicauth",
    "forward_auth",
    "request_header",
    "encode",
    "push",
    "templates",
    "invoke",
    "handle",
    "handle_path",
    "route",
    "abort",
    "error",
    "respond",
    "metrics",
    "reverse_proxy",
    "php_fastcgi",
    "file_server",
    "acme_server",
];

pub(super) fn has_directives(name: &str) -> bool {
    matches!(name, "handle" | "handle_path" | "route")
}

/// The prefix that `handle_path` removes from the path within it.
pub(super) fn stripped(directive: &Directive) -> Option<String> {
    let word = matchers::word_of(directive).unwrap_or_default();
    let prefix = word.trim_end_matches('*').trim_end_matches('/');
    (directive.name == "handle_path").then(|| prefix.to_owned())
}

/// Whether a directive, or one within it, refuses requests.
fn protects(directive: &Directive) -> bool {
    let refuses = |word: &String| word.parse::<u64>().is_ok_and(|status| (400..600).contains(&status));
    match directive.name.as_str() {
        "abort" | "error" => true,
        "respond" => directive.words.iter().any(refuses),
        "basic_auth" | "basicauth" | "forward_auth" => true,
        name if has_directives(name) => directive.inner().iter().any(protects),
        _ => false,
    }
}

/// Whether a directive only adds to requests or responses that are let through.
fn is_minor(directive: &Directive) -> bool {
    let removes = |word: &str| word.starts_with('-');
    match directive.name.as_str() {
        "header" | "encode" | "log_skip" | "skip_log" | "map" | "vars" | "templates" => true,
        "request_header" => {
            let names = directive.words.iter().map(String::as_str);
            !names.chain(directive.inner().iter().map(|inner| inner.name.as_str())).any(removes)
        }
        _ => false,
    }
}

/// Whether a directive answers requests, other than with files.
fn is_answer(name: &str) -> bool {
    matches!(name, "abort" | "error" | "redir" | "respond" | "reverse_proxy" | "php_fastcgi")
}

pub(super) struct DirectiveStep<'s> {
    directive: &'s Directive,
    matcher: Option<Expression>,
    /// The words after the matcher.
    words: &'s [String],
}

impl<'s> DirectiveStep<'s> {
    pub(super) fn directive(&self) -> &'s Directive {
        self.directive
    }

    pub(super) fn words(&self) -> &'s [String] {
        self.words
    }
}

/// The files that are tried, as `files` has them.
pub(super) struct TriedFiles {
    /// `files.try`; none for its default.
    pub(super) places: Option<Vec<String>>,
    /// The page in the place of missing files.
    pub(super) page: Option<String>,
}

/// The options for a kind of request so far.
pub(super) struct CaddyDraft<'s> {
    pub(super) outcome: RegionOutcome,
    pub(super) root: Option<&'s Directive>,
    /// The files that `try_files` tries.
    pub(super) tried: Option<(&'s Directive, TriedFiles)>,
    /// The application, if files may still come before it.
    pub(super) application: Option<CaddyApplication>,
    /// The prefix that was cut from the path.
    pub(super) strip: String,
    /// Texts of placeholders that the requests of this kind still have.
    pub(super) texts: Texts,
    /// The directives that set fields of responses before a server answers, with the names of the fields.
    pub(super) early_fields: Vec<(usize, Vec<String>)>,
    /// `handle @file { file_server }`, both directives: existing files come before what follows.
    pub(super) files_first: Option<[&'s Directive; 2]>,
    /// The regular expression of the directive's matcher.
    pub(super) groups: Option<PathGroups>,
    pub(super) has_tls: bool,
    pub(super) is_done: bool,
}

impl CaddyDraft<'_> {
    /// Ends the processing with a server or files, which see the path without the prefix that was cut.
    pub(super) fn asks(&mut self) {
        if !self.strip.is_empty() {
            let flag = if self.strip.bytes().any(|byte| byte.is_ascii_alphabetic()) { "(?i)" } else { "" };
            let pattern = format!("{flag}{}/(.*)", values::escaped(&self.strip));
            let options = &mut self.outcome.options;
            options.extend("rewrite", ("pattern", pattern.into()), Vec::new());
            options.extend("rewrite", ("path", "/$1".into()), Vec::new());
        }
        if self.outcome.options.inner("rewrite", "path").is_some() {
            // Caddy leaves the field as servers send it.
            self.outcome.options.set("location", false, Vec::new());
        }
        self.is_done = true;
    }
}

pub(super) fn sorted<'s>(block: &'s [Directive], named: &Named<'s>) -> Vec<DirectiveStep<'s>> {
    let mut steps = in_order(block, named);
    let place = |step: &DirectiveStep<'_>| {
        let name = if step.directive.name == "handle_path" { "handle" } else { step.directive.name.as_str() };
        ORDER.iter().position(|known| *known == name).unwrap_or(ORDER.len())
    };
    // For the same name, longer paths come first, and directives without a matcher last.
    let specific = |step: &DirectiveStep<'_>| match (&step.matcher, step.directive.word(0)) {
        (None, _) => 0,
        (_, word) if word.starts_with('/') => 2 + word.len(),
        (Some(_), word) if crate::environment::is_in(word) => 2 + word.len(),
        _ => 1,
    };
    steps.sort_by_key(|step| (place(step), std::cmp::Reverse(specific(step))));
    steps
}

fn in_order<'s>(block: &'s [Directive], named: &Named<'s>) -> Vec<DirectiveStep<'s>> {
    let is_step = |directive: &&Directive| {
        !directive.name.starts_with('@')
            && !matches!(directive.name.as_str(), "tls" | "bind" | "import" | "log" | "handle_errors")
    };
    let step = |directive: &'s Directive| {
        let (matcher, count) = matchers::expression(directive, named);
        DirectiveStep { directive, matcher, words: directive.words.get(count..).unwrap_or_default() }
    };
    block.iter().filter(is_step).map(step).collect()
}

impl<'s> CaddyAdapter<'s> {
    /// Translates directives that hold for the whole site.
    pub(super) fn check_block(&mut self, block: &'s [Directive]) {
        for log in block.iter().filter(|directive| directive.name == "log") {
            self.log(log);
        }
    }

    pub(super) fn go(
        &mut self,
        steps: &[DirectiveStep<'s>],
        named: &Named<'s>,
        holds: &Holds<'_>,
        made: &mut CaddyDraft<'s>,
    ) {
        let mut handled = false;
        for step in steps {
            if made.is_done {
                return;
            }
            let name = step.directive.name.as_str();
            let is_handle = matches!(name, "handle" | "handle_path");
            if handled && is_handle {
                continue;
            }
            self.sheet.met.insert(step.directive.number);
            if matches!(name, "map" | "vars") {
                self.defined(step.directive, named);
                continue;
            }
            if let Some(page) = tried_page(step, named) {
                holds.change_path(PathNow::Unknown);
                made.tried = Some((step.directive, TriedFiles { places: None, page: Some(page) }));
                continue;
            }
            if let Some(server) = files_first(step, named) {
                self.sheet.met.insert(server.number);
                made.files_first = Some([step.directive, server]);
                continue;
            }
            let decided = |matcher: &Expression| match is_minor(step.directive) {
                true => matcher.minor_verdict(holds, made.has_tls),
                false => matcher.verdict(holds, made.has_tls),
            };
            match step.matcher.as_ref().map_or(Ok(true), decided) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(why) => {
                    let instead =
                        "write a [[route]] with `host`, `path`, `clients` or `when`: docs/conditions.md";
                    if protects(step.directive) {
                        let why = format!("{why}; its requests get 501, so that they are not let through");
                        self.sheet.refuse(step.directive.number, &why, instead);
                        let answer = rules::answer(501, Some(("not taken over from caddy\n", "text/plain")));
                        self.done(step.directive, answer, made);
                        return;
                    }
                    self.sheet.refuse(step.directive.number, &why, instead);
                    continue;
                }
            }
            self.sheet.met.extend(step.matcher.iter().flat_map(Expression::numbers));
            if step.matcher.is_some() && crate::environment::is_in(step.directive.word(0)) {
                let why = "its path is the default of the variable, not what the environment has";
                self.sheet.differs(step.directive.number, why, "write the path that the variable has");
            }
            if has_directives(name) {
                handled |= is_handle;
                self.inner(step, named, holds, made);
            } else {
                self.change(step, holds);
                made.texts = known(&named.texts, holds);
                made.groups = named.groups(step.directive).cloned();
                self.step(step, holds, made);
            }
        }
    }

    /// Remembers what a directive changes: later matchers see the new path and fields.
    fn change(&self, step: &DirectiveStep<'s>, holds: &Holds<'_>) {
        match step.directive.name.as_str() {
            "rewrite" => {
                let to = step.words.first().map_or("", String::as_str);
                holds.change_path(match to.split_once('{') {
                    None => PathNow::Is(to.split('?').next().unwrap_or_default().to_owned()),
                    Some((begin, "uri}" | "path}")) => PathNow::Begins(format!("{begin}/")),
                    Some(_) => PathNow::Unknown,
                });
            }
            "uri" => {
                holds.change_path(match step.words {
                    [action, prefix] if action == "strip_prefix" => {
                        PathNow::Without(prefix.trim_end_matches('/').to_owned())
                    }
                    _ => PathNow::Unknown,
                });
            }
            "try_files" => {
                holds.change_path(PathNow::Unknown);
            }
            "request_header" => {
                let own = step.words.first().map(|name| (name.as_str(), step.words.get(1).cloned()));
                let inner = step.directive.inner().iter();
                for (name, value) in own
                    .into_iter()
                    .chain(inner.map(|inner| (inner.name.as_str(), inner.words.first().cloned())))
                {
                    let now = match (name.strip_prefix('-'), value) {
                        (Some(_), _) => FieldNow::Absent,
                        (None, Some(value)) if !value.contains('{') && !name.starts_with('+') => {
                            FieldNow::Is(value)
                        }
                        _ => FieldNow::Unknown,
                    };
                    holds.change_field(name.trim_start_matches(['-', '+', '?', '>']), now);
                }
            }
            _ => {}
        }
    }

    fn inner(
        &mut self,
        step: &DirectiveStep<'s>,
        named: &Named<'s>,
        holds: &Holds<'_>,
        made: &mut CaddyDraft<'s>,
    ) {
        let block = step.directive.inner();
        let named = matchers::named(block, named, &mut self.sheet.definitions);
        made.outcome.from.extend(from(step.directive));
        let stripped = stripped(step.directive);
        let before = stripped.as_ref().map(|prefix| holds.change_path(PathNow::Without(prefix.clone())));
        made.strip = stripped.unwrap_or_else(|| made.strip.clone());
        let steps =
            if step.directive.name == "route" { in_order(block, &named) } else { sorted(block, &named) };
        let root = made.root;
        self.go(&steps, &named, holds, made);
        if !made.is_done {
            made.root = root;
        }
        if let Some(before) = before {
            holds.restore_path(before);
        }
    }

    /// Reports placeholders that are not known. Others are written where they are used.
    fn defined(&mut self, directive: &'s Directive, named: &Named<'s>) {
        let names = directive.words.iter().chain(directive.inner().iter().map(|inner| &inner.name));
        let own = names.filter_map(|name| {
            let name = name.trim_matches(['{', '}']);
            named.texts.get(name).or_else(|| named.texts.get(&format!("vars.{name}")))
        });
        let unknown = own.filter_map(|text| text.as_ref().err()).next();
        for number in
            std::iter::once(directive.number).chain(directive.inner().iter().map(|inner| inner.number))
        {
            match unknown {
                Some(why) => {
                    let instead = "write a map or a value: docs/maps.md and docs/conditions.md";
                    self.sheet.refuse(number, &format!("its placeholder is not known: {why}"), instead);
                }
                None => {
                    let why = "its texts are written where they are used";
                    self.sheet.say_if_unsaid(number, crate::RemarkKind::NeedsNothing, why);
                }
            }
        }
    }

    /// Converts a text with placeholders to one with variables and values.
    pub(super) fn template(
        &mut self,
        directive: &Directive,
        text: &str,
        made: &CaddyDraft<'s>,
    ) -> Result<String, String> {
        let definitions = &mut self.sheet.definitions;
        format::template(text, &mut |name| filled(directive, name, &made.texts, definitions))
    }

    fn step(&mut self, step: &DirectiveStep<'s>, holds: &Holds<'_>, made: &mut CaddyDraft<'s>) {
        let directive = step.directive;
        if made.application.is_some() && is_answer(&directive.name) {
            let why = "it answers for existing files only, behind `php_fastcgi`";
            return self.sheet.refuse(directive.number, why, "write a [[route]] with their paths");
        }
        match directive.name.as_str() {
            "root" => made.root = Some(directive),
            "header" => self.header(step, "response_headers", made),
            "request_header" => self.header(step, "request_headers", made),
            "request_body" => self.body(directive, made),
            "redir" => self.redirect(step, holds, made),
            "respond" => self.respond(step, made),
            "error" => {
                let status = step.words.iter().find_map(|word| word.parse::<u64>().ok()).unwrap_or(500);
                self.done(directive, rules::answer(status.clamp(200, 599), None), made);
            }
            "abort" => {
                let why = "a connection is not closed without a response: the client gets 403";
                self.sheet.differs(
                    directive.number,
                    why,
                    "a fault can do that: `inject = \"reset\"` of [[fault]]",
                );
                self.done(directive, rules::answer(403, None), made);
            }
            "rewrite" | "uri" => self.rewrite(step, made),
            "try_files" => self.try_files(step, made),
            "basic_auth" | "basicauth" => self.password(step, made),
            "forward_auth" => self.question(step, made),
            "encode" => self.encode(step, made),
            "reverse_proxy" => self.pass(directive, step.words, made),
            "file_server" => self.files(step.directive, step.words, made),
            "php_fastcgi" => self.php(directive, step.words, made),
            "log_skip" | "skip_log" => made.outcome.options.set("access_log", false, from(directive)),
            _ => {
                let (kind, why, instead) = super::by_name(&directive.name, "");
                self.sheet.note(directive.number, kind, &why, &instead);
            }
        }
    }

    /// Sets a fixed response, which ends the processing.
    pub(super) fn done(&mut self, directive: &Directive, answer: DraftValue, made: &mut CaddyDraft<'s>) {
        made.outcome.options.keep(&["auth", "response_headers", "forward_auth", "access_log"]);
        made.outcome.options.set("respond", answer, from(directive));
        made.is_done = true;
    }

    /// Translates `header` and `request_header`: a single field, or a block of them.
    fn header(&mut self, step: &DirectiveStep<'s>, option: &str, made: &mut CaddyDraft<'s>) {
        let own = [(step.directive, step.words.to_vec())];
        let inner = step.directive.inner().iter().map(|inner| {
            let words = std::iter::once(inner.name.clone()).chain(inner.words.clone()).collect();
            (inner, words)
        });
        let all: Vec<(&Directive, Vec<String>)> =
            if step.words.is_empty() { inner.collect() } else { own.into_iter().chain(inner).collect() };
        if step.words.is_empty() {
            made.outcome.options.extend(
                option,
                ("remove", DraftValue::List(Vec::new())),
                from(step.directive),
            );
        }
        let is_early = |words: &[String]| {
            let [name, _] = words else { return false };
            !name.starts_with(['+', '-', '?', '>'])
        };
        let is_deferred = step.directive.inner().iter().any(|inner| inner.name == "defer");
        let early: Vec<String> =
            all.iter().filter(|(_, words)| is_early(words)).map(|(_, words)| words[0].clone()).collect();
        if option == "response_headers" && !is_deferred && !early.is_empty() {
            made.early_fields.push((step.directive.number, early));
        }
        for (directive, words) in all {
            self.field(directive, &words, option, made);
        }
        // Without a field to remove the list is omitted.
        made.outcome.options.without_empty(option, "remove");
    }

    pub(super) fn field(
        &mut self,
        directive: &Directive,
        words: &[String],
        option: &str,
        made: &mut CaddyDraft<'s>,
    ) {
        let Some(first) = words.first().filter(|first| *first != "defer") else {
            return self.sheet.say_if_unsaid(
                directive.number,
                crate::RemarkKind::NeedsNothing,
                "fields of servers are known then",
            );
        };
        let (place, name) = match first.split_at_checked(1) {
            Some(("+", name)) => ("add", name),
            Some(("?", name)) => ("default", name),
            Some(("-", name)) => ("remove", name),
            Some((">", name)) => ("set", name),
            _ => ("set", first.as_str()),
        };
        if words.len() > 2
            || name.is_empty()
            || name.contains('*')
            || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        {
            let instead = "write `set`, `add` or `remove` of `request_headers` or `response_headers`";
            return self.sheet.refuse(directive.number, "fields are named, and set as a whole", instead);
        }
        if place == "remove" {
            return made.outcome.options.listed(option, "remove", name, from(directive));
        }
        let value = match self.template(directive, words.get(1).map_or("", String::as_str), made) {
            Ok(value) => value,
            Err(variable) => {
                let instead = "write the value, or a variable of docs/configuration.md";
                return self.sheet.refuse(
                    directive.number,
                    &format!("there is no variable {variable}"),
                    instead,
                );
            }
        };
        if option == "request_headers" && name.eq_ignore_ascii_case("host") {
            let server = ["$server", "$upstream_hostport"].contains(&value.as_str());
            if server {
                let why = "`host = \"server\"` of the upstream sends it";
                return self.sheet.differs(directive.number, why, "write it into [upstream.NAME]");
            }
            made.outcome.options.extend("rewrite", ("host", value.into()), from(directive));
            // Caddy leaves the field as servers send it.
            return made.outcome.options.set("location", false, Vec::new());
        }
        if !made.outcome.options.field(option, place, name, &value, from(directive)) && place == "add" {
            let why = "a route can add a field only once";
            self.sheet.refuse(directive.number, why, "write both values into one, with a comma between");
        }
    }

    fn body(&mut self, directive: &'s Directive, made: &mut CaddyDraft<'s>) {
        let Some(size) = directive.inner().iter().find(|inner| inner.name == "max_size") else { return };
        match bytes(size.word(0)) {
            Some(bytes) => {
                let mut origins = from(directive);
                origins.extend(from(size));
                made.outcome.options.extend(
                    "limits",
                    ("body_bytes", crate::values::size(bytes).into()),
                    origins,
                );
            }
            None => self.unread(size),
        }
    }

    /// Converts the target of a redirect. A placeholder that is its host has to be one of several constants.
    fn target(
        &mut self,
        directive: &Directive,
        text: &str,
        holds: &Holds<'_>,
        made: &CaddyDraft<'s>,
    ) -> Result<String, String> {
        /// Each is a route.
        const TEXTS_MAX: usize = 200;
        let begin = text.split_once("://").map_or(text, |(_, rest)| rest);
        let begin = begin.split('/').next().unwrap_or_default();
        let is_own = |name: &String| begin.contains(&format!("{{{name}}}"));
        let Some((name, known)) = made.texts.iter().find(|(name, _)| is_own(name)) else {
            return self.template(directive, text, made);
        };
        let known = known.as_ref().map_err(String::clone)?;
        let possible = known.possible().filter(|possible| possible.len() <= TEXTS_MAX);
        let possible =
            possible.ok_or_else(|| format!("{{{name}}}, which has more texts than can become routes"))?;
        let written = known.written(&mut self.sheet.definitions)?;
        let mut rest = possible.iter().peekable();
        while let Some(value) = rest.next() {
            let is_it = Atom::When(format!("{written} == {}", literal(value)));
            let is_it = Expression::Any(vec![is_it], directive.number);
            if rest.peek().is_none() || is_it.verdict(holds, made.has_tls)? {
                return self.template(directive, &text.replace(&format!("{{{name}}}"), value), made);
            }
        }
        Err(format!("{{{name}}}"))
    }

    fn redirect(&mut self, step: &DirectiveStep<'s>, holds: &Holds<'_>, made: &mut CaddyDraft<'s>) {
        let directive = step.directive;
        let text = step.words.first().map_or("", String::as_str);
        // Groups are written as `$1`, after other placeholders are replaced.
        let marked = made.groups.as_ref().map(|groups| groups.replaced(text, |at| format!("\u{1}{at}\u{2}")));
        let groups = made.groups.clone().filter(|_| marked.as_deref().is_some_and(|marked| marked != text));
        let to = self.target(directive, marked.as_deref().unwrap_or(text), holds, made);
        let to = to.map(|to| to.replace('\u{1}', "${").replace('\u{2}', "}"));
        let status = match step.words.get(1).map_or("", String::as_str) {
            "" | "temporary" | "302" | "html" => 302,
            "permanent" | "301" => 301,
            code => code.parse::<u64>().unwrap_or(302),
        };
        if ![301, 302, 303, 307, 308].contains(&status) {
            self.sheet.differs(directive.number, &format!("there is no {status} here, but 302"), "");
        }
        let status = if [301, 303, 307, 308].contains(&status) { status } else { 302 };
        match to {
            Ok(to) if values::is_location(&to, &|_| false) => {
                let to = values::without_query(to);
                let mut pairs =
                    vec![("to".to_owned(), to.into()), ("status".to_owned(), DraftValue::Number(status))];
                pairs.extend(groups.map(|groups| ("pattern".to_owned(), groups.pattern.into())));
                made.outcome.options.keep(&["auth", "response_headers", "access_log"]);
                made.outcome.options.set("redirect", DraftValue::Table(pairs), from(directive));
                made.is_done = true;
            }
            told => {
                let why = told.map_or_else(
                    |variable| format!("there is no variable {variable}"),
                    |_| "its target is not a URL or path".to_owned(),
                );
                self.sheet.refuse(directive.number, &why, "write `redirect` of a [[route]]");
                self.done(
                    directive,
                    rules::answer(501, Some(("not taken over from caddy\n", "text/plain"))),
                    made,
                );
            }
        }
    }

    fn respond(&mut self, step: &DirectiveStep<'s>, made: &mut CaddyDraft<'s>) {
        let status = |word: &String| word.parse::<u64>().ok().filter(|status| (200..600).contains(status));
        let (text, code) = match step.words {
            [one] => status(one).map_or((one.as_str(), 200), |code| ("", code)),
            [text, code, ..] => (text.as_str(), status(code).unwrap_or(200)),
            [] => ("", 200),
        };
        let inner = |name: &str| step.directive.inner().iter().find(|inner| inner.name == name);
        let text = inner("body").map_or(text, |body| body.word(0));
        let definitions = &mut self.sheet.definitions;
        let content =
            format::content(text, &mut |name| filled(step.directive, name, &made.texts, definitions));
        let text = content.unwrap_or_else(|variable| {
            let instead = "write the text as it should be";
            self.sheet.refuse(step.directive.number, &format!("there is no variable {variable}"), instead);
            text.to_owned()
        });
        let is_json = [('{', '}'), ('[', ']')]
            .iter()
            .any(|(start, end)| text.starts_with(*start) && text.ends_with(*end));
        let kind = if is_json { "application/json" } else { "text/plain; charset=utf-8" };
        let body = (!text.is_empty()).then_some((text.as_str(), kind));
        self.done(step.directive, rules::answer(code, body), made);
        if let Some(close) = inner("close") {
            self.sheet.needless(close.number, "connections are kept or closed as the client asks");
        }
    }

    fn rewrite(&mut self, step: &DirectiveStep<'s>, made: &mut CaddyDraft<'s>) {
        let words: Vec<&str> = step.words.iter().map(String::as_str).collect();
        let is_first = made.outcome.options.inner("rewrite", "path").is_none() && made.strip.is_empty();
        let found = match (step.directive.name.as_str(), words.as_slice()) {
            ("rewrite", [to]) => {
                let (before, group) = match to.strip_suffix("{uri}").or_else(|| to.strip_suffix("{path}")) {
                    Some(before) => (before, "$1"),
                    None => (*to, ""),
                };
                let before = self.template(step.directive, before, made).ok();
                before.map(|before| ("(.*)".to_owned(), format!("{before}{group}")))
            }
            ("uri", ["strip_prefix", prefix]) if is_first => {
                made.strip = prefix.trim_end_matches('/').to_owned();
                return made.outcome.from.extend(from(step.directive));
            }
            ("uri", ["path_regexp", pattern, to]) => {
                let start = pattern.strip_prefix('^').filter(|rest| !rest.contains(['(', '|', '$']));
                start.map(|start| (format!("{start}(.*)"), format!("{to}$1")))
            }
            _ => None,
        };
        match found.filter(|(_, to)| to.starts_with('/') && !to.contains('?') && is_first) {
            Some((pattern, to)) => {
                made.outcome.options.extend("rewrite", ("pattern", pattern.into()), from(step.directive));
                made.outcome.options.extend("rewrite", ("path", to.into()), Vec::new());
            }
            None => {
                let instead = "write `rewrite = { pattern = \"…\", path = \"…\" }`";
                self.sheet.refuse(
                    step.directive.number,
                    "the new path is not understood, or is one of several",
                    instead,
                );
            }
        }
    }

    fn try_files(&mut self, step: &DirectiveStep<'s>, made: &mut CaddyDraft<'s>) {
        match tried(step.words) {
            Some(tried) => made.tried = Some((step.directive, tried)),
            None => {
                let instead = "write routes with paths, such as /assets for files and / for a server";
                self.sheet.refuse(
                    step.directive.number,
                    "only files whose names have the path, and a page in their place, are tried",
                    instead,
                );
            }
        }
    }

    /// Translates `basic_auth`. Vanward reads the users from a file.
    fn password(&mut self, step: &DirectiveStep<'s>, made: &mut CaddyDraft<'s>) {
        let file = "./caddy.users";
        let mut pairs = vec![("users".to_owned(), DraftValue::from(file))];
        if let Some(realm) =
            step.words.iter().find(|word| !matches!(word.as_str(), "bcrypt" | "argon2id" | "scrypt"))
        {
            pairs.push(("realm".to_owned(), realm.as_str().into()));
        } else {
            pairs.push(("realm".to_owned(), "restricted".into()));
        }
        let mut origins = from(step.directive);
        for user in step.directive.inner() {
            origins.push(StatementOrigin::Directive(user.number));
            let instead = format!("write {}:HASH of this line into {file}", user.name);
            self.sheet.differs(user.number, "users are listed in a file", &instead);
        }
        made.outcome.options.set("auth", DraftValue::Table(pairs), origins);
    }

    fn encode(&mut self, step: &DirectiveStep<'s>, made: &mut CaddyDraft<'s>) {
        let known = ["gzip", "zstd", "br"];
        let inner = step.directive.inner();
        let mut codings: Vec<String> =
            step.words.iter().filter(|word| known.contains(&word.as_str())).cloned().collect();
        codings.extend(
            inner.iter().map(|inner| inner.name.clone()).filter(|name| known.contains(&name.as_str())),
        );
        if codings.is_empty() {
            codings = vec!["zstd".to_owned(), "gzip".to_owned()];
        }
        let mut origins = from(step.directive);
        let mut pairs = vec![("codings".to_owned(), DraftValue::from(codings))];
        let least = inner.iter().find(|inner| inner.name == "minimum_length");
        let size = least.and_then(|least| bytes(least.word(0))).unwrap_or(512);
        pairs.push(("min_size".to_owned(), crate::values::size(size).into()));
        origins.extend(inner.iter().map(|inner| StatementOrigin::Directive(inner.number)));
        made.outcome.options.set("compress", DraftValue::Table(pairs), origins);
    }
}

/// The files of `try_files`: `{path} {path}.html /page`. The file server tries the path itself behind them.
fn tried(words: &[String]) -> Option<TriedFiles> {
    let is_plain = |text: &str| {
        text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte))
            && !text.contains("..")
    };
    let is_page = |word: &&String| word.starts_with('/') && is_plain(word) && !word.ends_with('/');
    let page = words.last().filter(is_page).cloned();
    let files = if page.is_some() { words.split_last()?.1 } else { words };
    let place = |word: &String| {
        let (before, behind) =
            word.split_once("{path}").or_else(|| word.split_once("{http.request.uri.path}"))?;
        (before.is_empty() && is_plain(behind)).then(|| format!("$path{behind}"))
    };
    let mut places = files.iter().map(place).collect::<Option<Vec<String>>>()?;
    if places.is_empty() {
        return None;
    }
    let is_default = places[0] == "$path" && places[1..].iter().all(|place| place == "$path/");
    for own in ["$path", "$path/"] {
        if !places.iter().any(|place| place == own) {
            places.push(own.to_owned());
        }
    }
    Some(TriedFiles { places: (!is_default).then_some(places), page })
}

/// The page in the place of files that do not exist: `{path} {path}/ /page`.
fn page_of(words: &[String]) -> Option<String> {
    tried(words).filter(|tried| tried.places.is_none())?.page
}

/// The `file_server` of a `handle` for existing files, if nothing else is in it.
fn files_first<'s>(step: &DirectiveStep<'s>, named: &Named<'s>) -> Option<&'s Directive> {
    let (false, tried) = named.tried(step.directive).filter(|_| step.directive.name == "handle")? else {
        return None;
    };
    let [server] = step.directive.inner() else { return None };
    let is_path = tried.is_empty() || matches!(tried, [path] if path == "{path}");
    let is_plain = server.name == "file_server" && server.words.is_empty() && server.inner().is_empty();
    (is_path && is_plain).then_some(server)
}

/// A page for a `rewrite` whose matcher tries files, as `try_files` does.
fn tried_page(step: &DirectiveStep<'_>, named: &Named<'_>) -> Option<String> {
    const FOUND: [&str; 2] = ["{http.matchers.file.relative}", "{file_match.relative}"];
    let [to] = step.words else { return None };
    match named.tried(step.directive).filter(|_| step.directive.name == "rewrite")? {
        (false, words) if FOUND.contains(&to.as_str()) => page_of(words),
        (true, []) => page_of(&["{path}".to_owned(), to.clone()]),
        (true, words) => page_of(&[words, std::slice::from_ref(to)].concat()),
        (false, _) => None,
    }
}

/// The texts that are the same for these requests as before earlier directives.
fn known(texts: &Texts, holds: &Holds<'_>) -> Texts {
    let known = |(name, text): (&String, &Result<CaddyText, String>)| {
        let still = text.clone().and_then(|text| holds.check_unchanged(&text.asked()).map(|()| text));
        (name.clone(), still)
    };
    texts.iter().map(known).collect()
}

/// A placeholder that `map` or `vars` set, for texts.
fn filled(
    directive: &Directive,
    name: &str,
    texts: &Texts,
    definitions: &mut Definitions,
) -> Result<PlaceholderText, String> {
    let known = texts.get(name.strip_prefix("http.").unwrap_or(name));
    let known =
        known.ok_or_else(|| format!("{{{name}}}"))?.as_ref().map_err(|why| format!("{{{name}}}: {why}"))?;
    if let Some(only) = known.only() {
        return Ok(PlaceholderText::Text(only));
    }
    let text = known.written(definitions)?;
    let base = name.rsplit('.').next().unwrap_or(name);
    definitions.value(base, values::bare(&text), known.from(directive)).map(PlaceholderText::Value)
}
