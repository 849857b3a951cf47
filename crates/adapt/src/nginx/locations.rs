//! Locations: their paths in nginx's order of precedence, and their content.
//!
//! Both proxies prefer an exact path, then expressions in their order, then the longest prefix. `^~` becomes an
//! expression before all others, if there are any.

use super::conditions;
use super::fastcgi;
use super::internal;
use super::scope::BlockScope;
use super::servers::RouteEntry;
use super::syntax::Directive;
use super::{NginxAdapter, from};
use crate::RemarkKind;
use crate::draft::{DraftValue, StatementOrigin};
use crate::rules::{is_host, is_path};
use crate::values;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum LocationMatch {
    Exact(String),
    Prefix(String),
    /// `^~`: if this is the longest prefix, no expression is tried.
    FirstPrefix(String),
    Pattern {
        text: String,
        ignores_case: bool,
    },
    /// `@name`: only other locations lead there.
    Named,
}

impl LocationMatch {
    pub(super) fn from_location(location: &Directive) -> Self {
        let path = |index| location.word(index).to_owned();
        match (location.word(0), location.words.len()) {
            ("=", 2) => Self::Exact(path(1)),
            ("^~", 2) => Self::FirstPrefix(path(1)),
            ("~", 2) => Self::Pattern { text: path(1), ignores_case: false },
            ("~*", 2) => Self::Pattern { text: path(1), ignores_case: true },
            (first, _) if first.starts_with('@') => Self::Named,
            // nginx also accepts sign and path as one word.
            (first, 1) if first.starts_with("~*") => {
                Self::Pattern { text: first[2..].to_owned(), ignores_case: true }
            }
            (first, 1) if first.starts_with('~') => {
                Self::Pattern { text: first[1..].to_owned(), ignores_case: false }
            }
            (first, 1) if first.starts_with("^~") => Self::FirstPrefix(first[2..].to_owned()),
            (first, 1) if first.starts_with('=') => Self::Exact(first[1..].to_owned()),
            (first, _) => Self::Prefix(first.to_owned()),
        }
    }

    /// The path of a prefix or an exact location.
    pub(super) fn path(&self) -> Option<&str> {
        match self {
            Self::Exact(path) | Self::Prefix(path) | Self::FirstPrefix(path) => Some(path),
            _ => None,
        }
    }
}

/// Returns the location that nginx selects for a path and its outer ones, innermost first; empty without a match.
pub(super) fn leading_to<'s>(path: &str, level: &'s [Directive]) -> Vec<&'s Directive> {
    let all = || level.iter().filter(|directive| directive.name == "location");
    let with_inner = |block: &'s Directive| {
        let mut blocks = leading_to(path, block.inner());
        blocks.push(block);
        blocks
    };
    if let Some(exact) = all()
        .find(|block| matches!(LocationMatch::from_location(block), LocationMatch::Exact(of) if of == path))
    {
        return vec![exact];
    }
    let prefixes = all().filter_map(|block| match LocationMatch::from_location(block) {
        LocationMatch::Prefix(of) if path.starts_with(&of) => Some((of.len(), false, block)),
        LocationMatch::FirstPrefix(of) if path.starts_with(&of) => Some((of.len(), true, block)),
        _ => None,
    });
    let longest = prefixes.max_by_key(|(length, ..)| *length);
    let matches = |block: &&Directive| match LocationMatch::from_location(block) {
        LocationMatch::Pattern { text, ignores_case } => regex::RegexBuilder::new(&text)
            .case_insensitive(ignores_case)
            .build()
            .is_ok_and(|pattern| pattern.is_match(path)),
        _ => false,
    };
    match longest {
        Some((_, true, block)) => with_inner(block),
        // An expression inside the longest prefix takes precedence over those beside it.
        Some((_, false, block)) => match (with_inner(block), all().find(matches)) {
            (blocks, Some(pattern)) if blocks.len() == 1 => with_inner(pattern),
            (blocks, _) => blocks,
        },
        None => all().find(matches).map(with_inner).unwrap_or_default(),
    }
}

pub(super) struct Location<'s> {
    pub(super) block: &'s Directive,
    pub(super) scope: BlockScope<'s>,
    pub(super) matching: LocationMatch,
}

impl<'s> NginxAdapter<'s> {
    pub(super) fn entries(&mut self, server: &'s Directive, scope: &BlockScope<'s>) -> Vec<RouteEntry> {
        let mut entries = self.conditions(scope);
        if let Some(answer) = scope.here("return") {
            let mut entry = RouteEntry::new("/", Vec::new());
            self.answer(answer, scope, &mut entry);
            entries.push(entry);
            for location in scope.own().iter().filter(|directive| directive.name == "location") {
                self.unreachable(location);
            }
            return entries;
        }
        let mut locations = Vec::new();
        self.flatten(scope, None, &mut locations);
        let has_patterns =
            locations.iter().any(|location| matches!(location.matching, LocationMatch::Pattern { .. }));
        let exact = exact_paths(&locations);
        let folders = self.internal_folders(&locations);
        let (mut first, mut statics) = (Vec::new(), Vec::new());
        for location in &locations {
            let Some(path) = self.path(location, has_patterns) else { continue };
            let mut entry = RouteEntry::new(path, from(location.block));
            let is_asked = self.content(location, server, &mut entry);
            internal::let_servers_name(&folders, &location.scope, &mut entry);
            let closed = self.methods(location, &mut entry);
            let slashed = match &location.matching {
                LocationMatch::Prefix(path) | LocationMatch::FirstPrefix(path) if is_asked => {
                    path.strip_suffix('/')
                }
                _ => None,
            };
            if let Some(bare) =
                slashed.filter(|bare| !bare.is_empty() && !exact.iter().any(|path| path == bare))
            {
                let mut slash = with_slash(bare, location.block);
                self.response_headers(&scope.within(&[]), &mut slash);
                entries.push(slash);
            }
            entries.extend(closed);
            if let Some(mut files) = self.static_files(location, &entry) {
                self.access(&location.scope, server, &mut files);
                statics.push(files);
            }
            match location.matching {
                LocationMatch::FirstPrefix(_) if has_patterns => first.push(entry),
                _ => entries.push(entry),
            }
        }
        for location in &locations {
            if location.matching == LocationMatch::Named && !self.named.contains(&location.block.number) {
                let why = "no route leads to this named location";
                let instead = "write a [[route]] whose path tells these requests apart";
                self.note(location.block, RemarkKind::Refused, why, instead);
            }
        }
        first.sort_by_key(|entry| std::cmp::Reverse(entry.path.len()));
        let has_root = locations.iter().any(|location| matches!(&location.matching, LocationMatch::Prefix(path) | LocationMatch::FirstPrefix(path) if path == "/"));
        if !has_root {
            let mut entry = RouteEntry::new("/", Vec::new());
            self.files_or_nothing(scope, &LocationMatch::Prefix("/".to_owned()), &mut entry);
            self.access(scope, server, &mut entry);
            entries.push(entry);
        }
        // Expressions of the file come before, in nginx as well.
        entries.extend(statics);
        first.extend(entries);
        first
    }

    /// Collects all locations of a server. Inner ones move up, because their paths are longer.
    fn flatten(&mut self, scope: &BlockScope<'s>, outer: Option<&str>, into: &mut Vec<Location<'s>>) {
        for block in scope.own().iter().filter(|directive| directive.name == "location") {
            let matching = LocationMatch::from_location(block);
            let scope = scope.within(block.inner());
            let is_within = match (&matching, outer) {
                (_, None | Some("/")) => true,
                (LocationMatch::Exact(path) | LocationMatch::Prefix(path), Some(outer)) => {
                    path.starts_with(outer)
                }
                _ => false,
            };
            if !is_within {
                let why = "an expression within another location holds only there";
                self.note(
                    block,
                    RemarkKind::Refused,
                    why,
                    "write a [[route]] whose expression begins with the outer path",
                );
                continue;
            }
            let path = matching.path().unwrap_or_default().to_owned();
            self.flatten(&scope, Some(&path), into);
            into.push(Location { block, scope, matching });
        }
    }

    /// Builds routes for requests that the location answers by method: `limit_except GET { deny all; }`, or `if
    /// ($request_method = …)` with a `return`. The location's content is then for the other methods.
    fn methods(&mut self, location: &Location<'s>, entry: &mut RouteEntry) -> Vec<RouteEntry> {
        let mut answered = Vec::new();
        for block in location.scope.own() {
            let inner = location.scope.within(block.inner());
            let mut answer = RouteEntry::new(entry.path.clone(), from(block));
            match (block.name.as_str(), block.inner()) {
                ("limit_except", [deny]) if deny.name == "deny" && deny.word(0) == "all" => {
                    let mut methods: Vec<DraftValue> =
                        block.words.iter().map(|word| word.as_str().into()).collect();
                    // In nginx, GET includes HEAD.
                    if block.words.iter().any(|word| word == "GET")
                        && !block.words.iter().any(|word| word == "HEAD")
                    {
                        methods.push("HEAD".into());
                    }
                    entry.methods = Some((DraftValue::List(methods), from(block)));
                    let status = DraftValue::Table(vec![("status".to_owned(), 403.into())]);
                    answer.options.set("respond", status, from(deny));
                    self.response_headers(&inner, &mut answer);
                }
                ("if", [_])
                    if fastcgi::is_for_missing_files(block)
                        && location.scope.here("fastcgi_pass").is_some() =>
                {
                    continue;
                }
                ("if", [returned]) if returned.name == "return" => {
                    let is_one = location.scope.own().iter().filter(|other| other.name == "if").count() == 1;
                    match method_of(block).filter(|_| is_one) {
                        Some(method) => {
                            answer.methods = Some((DraftValue::List(vec![method.into()]), from(block)));
                        }
                        None => match self.when(block, returned, &location.scope) {
                            Some(when) => answer.when = Some(when),
                            None => continue,
                        },
                    }
                    self.answer(returned, &inner, &mut answer);
                }
                _ => continue,
            }
            answered.push(answer);
        }
        answered
    }

    /// Translates the condition of an `if` with a `return`, or notes why that is not possible.
    fn when(
        &mut self,
        block: &Directive,
        returned: &Directive,
        scope: &BlockScope<'s>,
    ) -> Option<(String, Vec<StatementOrigin>)> {
        let has_group = |word: &String| {
            word.as_bytes().windows(2).any(|pair| pair[0] == b'$' && pair[1].is_ascii_digit())
        };
        let condition = match conditions::written(&block.words, scope.outermost()) {
            Ok(_) if returned.words.iter().any(has_group) => {
                Err("its `return` uses groups of the expression".to_owned())
            }
            condition => condition,
        };
        match condition {
            Ok(condition) => {
                let mut origins = from(block);
                for declaration in scope.outermost() {
                    if condition.declared.contains(&declaration.number) {
                        origins.extend(from(declaration));
                        for entry in declaration.inner() {
                            self.note(entry, RemarkKind::NeedsNothing, "it is part of its block", "");
                        }
                    }
                }
                Some((condition.text, origins))
            }
            Err(why) => {
                let instead = "write a [[route]] with the condition: docs/conditions.md";
                self.note(block, RemarkKind::Refused, &why, instead);
                None
            }
        }
    }

    fn unreachable(&mut self, block: &Directive) {
        self.note(block, RemarkKind::NeedsNothing, "the `return` of the server answers before it", "");
        for inner in block.inner() {
            self.unreachable(inner);
        }
    }

    fn path(&mut self, location: &Location<'s>, has_patterns: bool) -> Option<String> {
        let block = location.block;
        let refuse = |adapter: &mut Self, why: &str| {
            adapter.note(block, RemarkKind::Refused, why, "write the path of the [[route]] by hand");
            None
        };
        if let Some(path) = location.matching.path()
            && !is_path(path)
        {
            return refuse(self, "the path has characters that cannot be written here");
        }
        match &location.matching {
            LocationMatch::Exact(path) => Some(format!("= {path}")),
            LocationMatch::Pattern { text, ignores_case } => match values::expression(text, *ignores_case) {
                Ok(pattern) => Some(format!("~ {pattern}")),
                Err(why) => refuse(self, &why),
            },
            LocationMatch::FirstPrefix(path) if has_patterns => {
                Some(format!("~ {}(.*)", values::escaped(path)))
            }
            LocationMatch::Prefix(path) | LocationMatch::FirstPrefix(path) => {
                if !path.ends_with('/') {
                    let why = format!("{path} matches whole segments: not {path}x");
                    self.note(block, RemarkKind::Differs, &why, "");
                }
                let bare = path.trim_end_matches('/');
                Some(if bare.is_empty() { "/" } else { bare }.to_owned())
            }
            // Known at the end, when all locations that lead there were read.
            LocationMatch::Named => None,
        }
    }

    /// Translates `if` and `rewrite` in a server: routes before all others.
    fn conditions(&mut self, scope: &BlockScope<'s>) -> Vec<RouteEntry> {
        let mut entries = Vec::new();
        for directive in scope.own() {
            match directive.name.as_str() {
                "if" => match self.condition(directive, scope) {
                    Some(entry) => entries.push(entry),
                    None => entries.extend(self.first(directive, scope)),
                },
                "rewrite" => entries.extend(self.moved(directive)),
                _ => {}
            }
        }
        entries
    }

    /// Translates `if ($host = name) { return … }` and `if ($request_method = NAME) { return … }`.
    fn condition(&mut self, block: &'s Directive, scope: &BlockScope<'s>) -> Option<RouteEntry> {
        let inner = scope.within(block.inner());
        let [answer] = block.inner() else { return None };
        if answer.name != "return" {
            return None;
        }
        let words: Vec<&str> = block.words.iter().flat_map(|word| word.split_whitespace()).collect();
        let text = words.join(" ");
        let text = text.trim_start_matches('(').trim_end_matches(')').trim();
        let (variable, value) = text.split_once(" = ")?;
        let value = value.trim().trim_matches('"');
        let mut entry = RouteEntry::new("/", Vec::new());
        match variable.trim() {
            "$host" | "$http_host" if is_host(value) => {
                entry.host = Some((value.to_ascii_lowercase(), from(block)));
            }
            "$request_method" if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_uppercase()) => {
                entry.methods = Some((DraftValue::List(vec![value.into()]), from(block)));
                let why = "locations with their own paths take precedence over it";
                self.note(block, RemarkKind::Differs, why, "write `methods` in their routes too");
            }
            _ => return None,
        }
        self.answer(answer, &inner, &mut entry);
        Some(entry)
    }

    /// Translates another `if (…) { return … }` of a server, which comes before all locations: a route for all paths,
    /// and one for each exact path, because those take precedence.
    fn first(&mut self, block: &'s Directive, scope: &BlockScope<'s>) -> Vec<RouteEntry> {
        let [returned] = block.inner() else { return Vec::new() };
        if returned.name != "return" {
            return Vec::new();
        }
        let Some(when) = self.when(block, returned, scope) else { return Vec::new() };
        let exact = scope.own().iter().filter(|directive| directive.name == "location");
        let exact = exact.filter_map(|location| match LocationMatch::from_location(location) {
            LocationMatch::Exact(path) if is_path(&path) => Some(format!("= {path}")),
            _ => None,
        });
        let paths: Vec<String> = std::iter::once("~ (?s).*".to_owned()).chain(exact).collect();
        let inner = scope.within(block.inner());
        let mut entries = Vec::new();
        for path in paths {
            let mut entry = RouteEntry::new(path, Vec::new());
            entry.when = Some(when.clone());
            self.answer(returned, &inner, &mut entry);
            entries.push(entry);
        }
        entries
    }

    /// Translates a `rewrite` that answers: `permanent`, `redirect`, or to another site.
    fn moved(&mut self, rewrite: &Directive) -> Option<RouteEntry> {
        let is_answer = matches!(rewrite.word(2), "permanent" | "redirect")
            || ["http://", "https://", "$scheme"].iter().any(|begin| rewrite.word(1).starts_with(begin));
        if !is_answer {
            let instead = "write `rewrite` in the [[route]] that asks the server";
            self.note(rewrite, RemarkKind::Refused, "a path is rewritten in its route", instead);
            return None;
        }
        let pattern = match values::expression(rewrite.word(0), false) {
            Ok(pattern) => pattern,
            Err(why) => {
                self.note(rewrite, RemarkKind::Refused, &why, "write a [[route]] with `redirect` by hand");
                return None;
            }
        };
        let mut entry = RouteEntry::new(format!("~ {pattern}"), from(rewrite));
        let status = if rewrite.word(2) == "permanent" { 301 } else { 302 };
        self.redirect(rewrite, rewrite.word(1).trim_end_matches('?'), status, &mut entry);
        Some(entry)
    }
}

fn exact_paths(locations: &[Location<'_>]) -> Vec<String> {
    let exact = locations.iter().filter_map(|location| match &location.matching {
        LocationMatch::Exact(path) => Some(path.clone()),
        _ => None,
    });
    exact.collect()
}

/// nginx redirects `/api` to `/api/` if the latter is the path of a location with a server.
fn with_slash(bare: &str, location: &Directive) -> RouteEntry {
    let origin = StatementOrigin::Directive(location.number);
    let mut entry = RouteEntry::new(format!("= {bare}"), vec![origin]);
    let to = [("to".to_owned(), DraftValue::from(format!("{bare}/"))), ("status".to_owned(), 301.into())];
    let why = vec![StatementOrigin::Default("nginx adds the slash")];
    entry.options.set("redirect", DraftValue::Table(to.into()), why);
    entry
}

/// Returns the method in `if ($request_method = NAME)`.
fn method_of(block: &Directive) -> Option<String> {
    let text = block.words.join(" ");
    let text = text.trim_start_matches('(').trim_end_matches(')');
    let (variable, value) = text.split_once('=')?;
    let value = value.trim().trim_matches('"');
    let is_method = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_uppercase());
    (variable.trim() == "$request_method" && is_method).then(|| value.to_owned())
}
