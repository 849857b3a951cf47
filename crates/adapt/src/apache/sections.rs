//! `<Location>` sections in order: later ones win. Their guards, fields and redirects.

use super::hosts::VirtualHost;
use super::{ApacheAdapter, from, last};
use crate::draft::{DraftTable, DraftValue, StatementOrigin};
use crate::rules::{self, Atom, Expression, Holds, PathIs, RegionOutcome, Test};
use crate::source::Directive;
use crate::values;

const INSTEAD: &str = "write `allow`, `auth` or `when` of the [[route]]: docs/auth.md";
/// Directives of a section with a meaning here, besides guards.
const READ: [&str; 10] = [
    "proxypass",
    "proxypassreverse",
    "redirect",
    "header",
    "requestheader",
    "require",
    "authtype",
    "authname",
    "authuserfile",
    "authbasicprovider",
];

pub(super) struct Section<'d> {
    pub(super) directive: &'d Directive,
    condition: Expression,
    /// Why its requests get 501.
    why: Option<String>,
}

/// The condition that a path is this one, or below it. It ends at a slash.
pub(super) fn below(path: &str, number: usize) -> Expression {
    if path == "/" {
        return Expression::fixed(true);
    }
    let atoms = match path.strip_suffix('/') {
        Some(_) => vec![Atom::Path(PathIs::prefix(path))],
        None => vec![Atom::Path(PathIs::exact(path)), Atom::Path(PathIs::prefix(&format!("{path}/")))],
    };
    Expression::Any(atoms, number)
}

impl<'s> ApacheAdapter<'s> {
    pub(super) fn sections<'d>(&mut self, inner: impl Iterator<Item = &'d Directive>) -> Vec<Section<'d>> {
        let mut all = Vec::new();
        for directive in inner {
            if let Some((condition, why)) = guard_outside(directive) {
                let why = format!("{why}; its requests get 501, so that they are not let through");
                self.sheet.refuse(directive.number, &why, INSTEAD);
                all.push(Section { directive, condition, why: Some(why) });
                continue;
            }
            let (condition, mut why) = match (directive.name.as_str(), directive.words.as_slice()) {
                ("<location>", [path]) if path.starts_with('/') && !path.contains(['*', '?', '[']) => {
                    (below(path, directive.number), None)
                }
                ("<location>", [sign, pattern]) if sign == "~" => {
                    (pattern_of(pattern, directive.number), None)
                }
                ("<locationmatch>", [pattern]) => (pattern_of(pattern, directive.number), None),
                ("<location>" | "<locationmatch>" | "<if>" | "<limitexcept>" | "<limit>", _) => {
                    let why = "the requests of this section are not understood".to_owned();
                    (Expression::fixed(true), Some(why))
                }
                _ => continue,
            };
            let unknown = directive.inner().iter().find(|inner| !READ.contains(&inner.name.as_str()));
            if let Some(unknown) = unknown {
                why = why.or_else(|| Some(format!("{} in it is not read", unknown.name)));
            }
            if let Some(why) = &why {
                let why = format!("{why}; its requests get 501, so that they are not let through");
                self.sheet.refuse(directive.number, &why, INSTEAD);
            }
            all.push(Section { directive, condition, why });
        }
        all
    }

    pub(super) fn tests_of(&self, host: &VirtualHost<'_>, tests: &mut Vec<Test>) {
        for section in &host.sections {
            section.condition.tests(tests);
        }
        for directive in host.inner {
            if let Some(condition) = super::targets::condition(directive) {
                condition.tests(tests);
            }
        }
    }

    /// The sections that a request is in, in order. `Err` is one whose requests get 501.
    pub(super) fn inside<'h, 'd>(
        &mut self,
        host: &'h VirtualHost<'d>,
        holds: &Holds<'_>,
    ) -> Result<Vec<&'d Directive>, &'h Section<'d>> {
        let mut all = Vec::new();
        for section in &host.sections {
            match section.condition.verdict(holds, false) {
                Ok(false) => {}
                Ok(true) if section.why.is_none() => all.push(section.directive),
                Ok(true) => return Err(section),
                Err(why) => {
                    let why = format!("{why}; its requests get 501, so that they are not let through");
                    self.sheet.refuse(section.directive.number, &why, INSTEAD);
                    return Err(section);
                }
            }
        }
        Ok(all)
    }

    /// Applies fields, guards and redirects of sections. Returns whether one of them answers.
    pub(super) fn guarded(
        &mut self,
        host: &VirtualHost<'_>,
        holds: &Holds<'_>,
        made: &mut RegionOutcome,
    ) -> bool {
        let sections = match self.inside(host, holds) {
            Ok(sections) => sections,
            Err(section) => {
                made.from.extend(from(section.directive));
                refuse(made, from(section.directive));
                return true;
            }
        };
        self.fields(host.inner, made);
        // The guards of the last section with any count, as AuthMerging is Off by default.
        let guards = |section: &&&Directive| section.inner().iter().any(|inner| inner.name == "require");
        let guarding = sections.iter().rev().find(guards).copied();
        for section in &sections {
            made.from.extend(from(section));
            self.fields(section.inner(), made);
        }
        if let Some(section) = guarding
            && self.guard(section, &sections, made)
        {
            return true;
        }
        sections.iter().rev().any(|section| {
            let redirect = section.inner().iter().find(|inner| inner.name == "redirect");
            redirect.is_some_and(|redirect| self.redirect_in_section(redirect, made))
        })
    }

    /// Applies the `Require`s of a section. Returns whether all requests are refused.
    fn guard(&mut self, section: &Directive, all: &[&Directive], made: &mut RegionOutcome) -> bool {
        let requires: Vec<&Directive> =
            section.inner().iter().filter(|inner| inner.name == "require").collect();
        let words = |require: &Directive| -> Vec<String> {
            require.words.iter().map(|word| word.to_ascii_lowercase()).collect()
        };
        let mut networks = Vec::new();
        let mut origins: Vec<StatementOrigin> = Vec::new();
        for require in &requires {
            let words = words(require);
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            match words.as_slice() {
                ["all", "granted"] => {
                    self.sheet.needless(require.number, "that is the default of a route");
                    return false;
                }
                ["ip", rest @ ..]
                    if !rest.is_empty() && rest.iter().all(|network| values::is_network(network)) =>
                {
                    networks.extend(rest.iter().map(|network| (*network).to_owned()));
                    origins.extend(from(require));
                }
                ["local"] => {
                    networks.extend(["127.0.0.0/8", "::1"].map(str::to_owned));
                    origins.extend(from(require));
                }
                ["all", "denied"] if requires.len() == 1 => {
                    made.options.set("respond", rules::answer(403, None), from(require));
                    return true;
                }
                ["valid-user"] if requires.len() == 1 => return self.password(require, all, made),
                _ => {
                    let why = "this guard is not understood; its requests get 501, so that they are not let through";
                    self.sheet.refuse(require.number, why, INSTEAD);
                    refuse(made, from(require));
                    return true;
                }
            }
        }
        made.options.set("allow", networks, origins);
        false
    }

    /// Asks for a password. Returns whether all requests are refused, because no file of users is named.
    fn password(&mut self, require: &Directive, all: &[&Directive], made: &mut RegionOutcome) -> bool {
        let option = |name: &str| all.iter().rev().find_map(|section| last(section.inner(), name));
        let is_basic = option("authtype").is_some_and(|kind| kind.word(0).eq_ignore_ascii_case("basic"));
        let is_file = option("authbasicprovider").is_none_or(|provider| provider.words == ["file"]);
        let Some(file) = option("authuserfile").filter(|_| is_basic && is_file) else {
            let why = "passwords are read from a file, with AuthType Basic; its requests get 501";
            self.sheet.refuse(require.number, why, INSTEAD);
            refuse(made, from(require));
            return true;
        };
        let mut origins = from(require);
        let mut pairs = vec![("users".to_owned(), DraftValue::from(file.word(0)))];
        for name in ["authuserfile", "authtype", "authname", "authbasicprovider"] {
            origins.extend(option(name).into_iter().flat_map(from));
        }
        if let Some(realm) = option("authname") {
            pairs.push(("realm".to_owned(), realm.word(0).into()));
        }
        made.options.set("auth", DraftValue::Table(pairs), origins);
        false
    }

    /// Translates `Header` and `RequestHeader`.
    fn fields(&mut self, all: &[Directive], made: &mut RegionOutcome) {
        for directive in all {
            let option = match directive.name.as_str() {
                "header" => "response_headers",
                "requestheader" => "request_headers",
                _ => continue,
            };
            let mut words: Vec<&str> = directive.words.iter().map(String::as_str).collect();
            let has_always = words.first().is_some_and(|word| word.eq_ignore_ascii_case("always"));
            if has_always || words.first().is_some_and(|word| word.eq_ignore_ascii_case("onsuccess")) {
                words.remove(0);
            }
            let verb = words.first().map(|word| word.to_ascii_lowercase()).unwrap_or_default();
            let name = words.get(1).map_or("", |name| name.trim_end_matches(':'));
            let is_name = !name.is_empty()
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
            let value = words.get(2).copied().unwrap_or_default();
            let is_plain = is_name && !value.contains('%') && words.len() <= 3;
            let is_of_response = option == "response_headers";
            match (verb.as_str(), words.len()) {
                // Fields of servers and these are in two tables, and clients get both.
                ("unset", 2) if is_plain && is_of_response && has_always => {
                    let why = "with `always`, Apache keeps a field of the server, and so does Vanward";
                    self.sheet.differs(directive.number, why, "without `always` it is removed");
                }
                ("set", 3) if is_plain && is_of_response && has_always => {
                    made.options.field(option, "add", name, &value.replace('$', "$$"), from(directive));
                }
                ("set", 3) if is_plain => {
                    made.options.field(option, "set", name, &value.replace('$', "$$"), from(directive));
                }
                ("add", 3) if is_plain => {
                    made.options.field(option, "add", name, &value.replace('$', "$$"), from(directive));
                }
                ("unset", 2) if is_plain => {
                    made.options.listed(option, "remove", name, from(directive));
                }
                _ => {
                    let instead = "write `request_headers` or `response_headers` of the [[route]]";
                    let why = "it is more than a name with a text to set, add or unset";
                    self.sheet.refuse(directive.number, why, instead);
                    continue;
                }
            }
            if is_of_response && !has_always && verb != "unset" {
                let why = "without `always`, Apache leaves it out of its own responses to errors";
                self.sheet.differs(directive.number, why, "");
            }
        }
    }
}

/// The condition of a guard outside of sections for paths, and its name: such requests get 501.
fn guard_outside(directive: &Directive) -> Option<(Expression, &'static str)> {
    match directive.name.as_str() {
        "sslverifyclient" if !directive.word(0).eq_ignore_ascii_case("none") => {
            Some((Expression::fixed(true), "client certificates are asked for in another way"))
        }
        "<proxy>" | "<proxymatch>" => {
            let is_harmless = |inner: &Directive| {
                let words: Vec<String> = inner.words.iter().map(|word| word.to_ascii_lowercase()).collect();
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                matches!(
                    (inner.name.as_str(), words.as_slice()),
                    ("balancermember" | "proxyset" | "order", _)
                        | ("require", ["all", "granted"])
                        | ("allow", ["from", "all"])
                )
            };
            let has_guard = !directive.inner().iter().all(is_harmless);
            has_guard.then(|| (Expression::fixed(true), "it has a guard or an option that is not read"))
        }
        "rewriterule" => {
            let flags = directive.word(2).trim_matches(['[', ']']).to_ascii_lowercase();
            let refuses =
                flags.split(',').any(|flag| matches!(flag.trim(), "f" | "forbidden" | "g" | "gone"));
            let pattern = directive.word(0);
            let condition = match pattern.starts_with('!') {
                true => Expression::fixed(true),
                false => pattern_of(pattern, directive.number),
            };
            refuses.then_some((condition, "it refuses requests by mod_rewrite"))
        }
        _ => None,
    }
}

fn pattern_of(pattern: &str, number: usize) -> Expression {
    match values::expression(pattern, false) {
        Ok(pattern) => Expression::Any(vec![Atom::Path(PathIs::Pattern(pattern))], number),
        Err(why) => Expression::Unsaid(why),
    }
}

/// Answers 501, also instead of a server.
pub(super) fn refuse(made: &mut RegionOutcome, origins: Vec<StatementOrigin>) {
    let from = std::mem::take(&mut made.from);
    *made = RegionOutcome { from, options: DraftTable::default() };
    let body = Some(("not taken over from apache\n", "text/plain"));
    made.options.set("respond", rules::answer(501, body), origins);
}
