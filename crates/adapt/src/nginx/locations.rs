//! Locations: their paths in nginx's order of precedence, and their content.
//!
//! Both proxies prefer an exact path, then expressions in their order, then the longest prefix. `^~` becomes an
//! expression before all others, if there are any.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::branches::{self, Branches, RewriteBranch};
use super::conditions::TestedCondition;
use super::content;
use super::internal;
use super::scope::BlockScope;
use super::servers::RouteEntry;
use super::syntax::Directive;
use super::truth::NginxCondition;
use super::variables::ResolvedVariable;
use super::{NginxAdapter, constants, from, groups};
use crate::RemarkKind;
use crate::draft::{DraftValue, StatementOrigin};
use crate::rules::literal;
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
    /// `$name`: where no expression matches, and the variable is set (since nginx 1.31.5).
    Predicate(String),
    /// `@name`: only other locations lead there.
    Named,
}

/// All paths, in the order of expressions.
const ALL_PATHS: &str = "~ (?s).*";

impl LocationMatch {
    pub(super) fn from_location(location: &Directive) -> Self {
        let path = |index| location.word(index).to_owned();
        match (location.word(0), location.words.len()) {
            ("=", 2) => Self::Exact(path(1)),
            ("^~", 2) => Self::FirstPrefix(path(1)),
            ("~", 2) => Self::Pattern { text: path(1), ignores_case: false },
            ("~*", 2) => Self::Pattern { text: path(1), ignores_case: true },
            (first, _) if first.starts_with('@') => Self::Named,
            (first, 1) if first.starts_with('$') => Self::Predicate(path(0)),
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

    fn is_predicate(&self) -> bool {
        matches!(self, Self::Predicate(_))
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

#[derive(Clone)]
pub(super) struct Location<'s> {
    pub(super) block: &'s Directive,
    pub(super) scope: BlockScope<'s>,
    pub(super) matching: LocationMatch,
    /// The location around a predicate.
    pub(super) outer: Option<LocationMatch>,
    /// Whether it is an expression within `location /`, which holds where no longer prefix matches.
    pub(super) within: Option<String>,
}

impl Location<'_> {
    /// The location, without the values of variables that requests may bring from other locations. `set_elsewhere`
    /// counts the locations that set each variable.
    fn with_unknown(&self, set_elsewhere: &BTreeMap<String, usize>) -> Self {
        if set_elsewhere.is_empty() {
            return self.clone();
        }
        let own = constants::set_in(self.block);
        let mut sets = self.scope.sets().clone();
        for (name, count) in set_elsewhere {
            if *count > usize::from(own.contains(name)) {
                let why = format!("another location sets ${name}, and requests may move from there");
                sets.insert(name.clone(), Err(why));
            }
        }
        Self { scope: self.scope.with_sets(&Rc::new(sets)), ..self.clone() }
    }
}

#[derive(Default)]
struct LocationRoutes {
    routes: Vec<RouteEntry>,
    /// Whether a server answers.
    is_asked: bool,
}

impl<'s> NginxAdapter<'s> {
    pub(super) fn entries(&mut self, server: &'s Directive, scope: &BlockScope<'s>) -> Vec<RouteEntry> {
        let scope = &with_server_name(scope);
        let branches = self.branches(server, scope, TestedCondition::always());
        let scope = &scope.with_sets(&branches.sets);
        let mut entries = self.of_server(&branches, server, scope);
        if branches.is_final || branches.closed.is_some() {
            for location in scope.own().iter().filter(|directive| directive.name == "location") {
                if branches.closed.is_some() {
                    let why = "an `if` of the server has no translation, so its requests get 501";
                    self.note(location, RemarkKind::Refused, why, "see the remark on the `if`");
                } else {
                    self.unreachable(location, "the `return` of the server answers before it");
                }
            }
            return entries;
        }
        let mut locations = Vec::new();
        self.flatten(scope, None, &mut locations);
        entries.extend(self.of_locations(&locations, server, scope, !branches.all.is_empty()));
        let has_root = locations.iter().any(|location| matches!(&location.matching, LocationMatch::Prefix(path) | LocationMatch::FirstPrefix(path) if path == "/"));
        if !has_root {
            entries.push(self.rest(server, scope));
        }
        for location in &locations {
            if location.matching == LocationMatch::Named && !self.named.contains(&location.block.number) {
                let why = "no route leads to this named location";
                let instead = "write a [[route]] whose path tells these requests apart";
                self.note(location.block, RemarkKind::Refused, why, instead);
            }
        }
        entries
    }

    /// The route for requests that no location matches.
    fn rest(&mut self, server: &'s Directive, scope: &BlockScope<'s>) -> RouteEntry {
        let matching = LocationMatch::Prefix("/".to_owned());
        let mut entry = RouteEntry::new("/", Vec::new());
        self.files_or_nothing(scope, &matching, &mut entry);
        let location = Location { block: server, scope: scope.clone(), matching, outer: None, within: None };
        if !self.files_else(&location, server, &mut entry) {
            self.body_limit(scope, &mut entry);
            self.access(scope, server, &mut entry);
        }
        entry
    }

    /// Builds the routes of all locations. Of expressions, the first one wins, as in nginx. `has_answers` tells whether
    /// the server has answers before them.
    fn of_locations(
        &mut self,
        locations: &[Location<'s>],
        server: &'s Directive,
        scope: &BlockScope<'s>,
        has_answers: bool,
    ) -> Vec<RouteEntry> {
        let is_expression = |location: &Location<'_>| {
            matches!(location.matching, LocationMatch::Pattern { .. })
                || location.matching.is_predicate() && location.outer.is_none()
        };
        let has_patterns = locations.iter().any(is_expression);
        let written: Vec<&str> = locations.iter().filter_map(|location| location.matching.path()).collect();
        let (mut inner, mut first, mut others) = (Vec::new(), Vec::new(), Vec::new());
        let mut predicates = Vec::new();
        let set_elsewhere = constants::set_by_locations(server.inner());
        let folders = self.internal_folders(locations);
        for location in locations {
            let Some(path) = self.path(location, has_patterns) else {
                others.extend(closed_expression(location));
                continue;
            };
            let location = &location.with_unknown(&set_elsewhere);
            let LocationRoutes { mut routes, is_asked } = match self.moved_on(location, locations, server) {
                Some(routes) => LocationRoutes { routes, is_asked: false },
                None => self.of_location(location, server, &path, has_answers),
            };
            let longer = longer_prefixes(location, locations, scope);
            for route in &mut routes {
                internal::let_servers_name(&folders, &location.scope, route);
                if has_patterns && let Some(elsewhere) = &longer {
                    route.only_if(elsewhere);
                }
            }
            let slashed =
                location.matching.path().filter(|_| is_asked).and_then(|path| path.strip_suffix('/'));
            if let Some(bare) = slashed.filter(|bare| !bare.is_empty() && !written.contains(bare)) {
                let mut slash = with_slash(bare, location.block);
                self.response_headers(&location.scope, &mut slash);
                others.push(slash);
            }
            match location.matching {
                LocationMatch::FirstPrefix(_) if has_patterns => first.extend(routes),
                LocationMatch::Pattern { .. } if location.within.is_some() => inner.extend(routes),
                LocationMatch::Predicate(_) => predicates.extend(routes),
                _ => others.extend(routes),
            }
        }
        self.pages_with_fields(locations, scope);
        first.sort_by_key(|entry: &RouteEntry| std::cmp::Reverse(entry.path.len()));
        [inner, first, others, predicates].concat()
    }

    /// Builds the routes of a location: for its branches, and for all other requests.
    fn of_location(
        &mut self,
        location: &Location<'s>,
        server: &'s Directive,
        path: &str,
        has_answers: bool,
    ) -> LocationRoutes {
        let block = location.block;
        let mut made = LocationRoutes::default();
        let given = match self.given(location) {
            Ok(given) => given,
            Err(closed) => {
                made.routes.extend(closed.map(|closed| *closed));
                return made;
            }
        };
        let is_internal = location.scope.here("internal").is_some();
        let branches = if is_internal {
            Branches::none(&location.scope)
        } else {
            self.branches(block, &location.scope, given.clone())
        };
        let location = &Location { scope: location.scope.with_sets(&branches.sets), ..location.clone() };
        let new = |when| RouteEntry { when, ..RouteEntry::new(path, from(block)) };
        // Routes with `methods` would come before those with `when` for the same path.
        let is_behind = given.condition != NginxCondition::Known(true)
            || has_answers && matches!(location.matching, LocationMatch::Exact(_));
        let only = match branches.all.as_slice() {
            [branch] if !is_behind => method_of(branch.block),
            _ => None,
        };
        for branch in &branches.all {
            let mut entry = new(branch.when.clone());
            if let Some(method) = only.as_ref().filter(|_| branch.answer.is_some()) {
                entry.when = None;
                entry.methods = Some((DraftValue::List(vec![method.clone().into()]), from(branch.block)));
            }
            self.branch(branch, location, server, &mut entry);
            made.routes.push(entry);
        }
        let mut entry = new(given.when());
        if let Some(closed) = branches.closed {
            content::not_taken(closed, &mut entry);
            made.routes.push(entry);
            return made;
        }
        if branches.is_final {
            made.routes = made.routes.into_iter().flat_map(RouteEntry::with_nowhere).collect();
            return made;
        }
        made.is_asked = self.content(location, server, &mut entry);
        let among = (is_behind || !branches.all.is_empty()).then_some(&given);
        if let Some(mut refused) = self.limit_except(location, &mut entry, among) {
            refused.path = path.to_owned();
            // The methods leave the location before its conditions are asked.
            made.routes.insert(0, refused);
        }
        made.routes.push(entry);
        made.routes = made.routes.into_iter().flat_map(RouteEntry::with_nowhere).collect();
        made
    }

    /// The condition of a location: that of a predicate. If it has no translation, a route that refuses all requests
    /// if the location does.
    fn given(&mut self, location: &Location<'s>) -> Result<TestedCondition, Option<Box<RouteEntry>>> {
        let LocationMatch::Predicate(name) = &location.matching else { return Ok(TestedCondition::always()) };
        match self.tested(&[format!("({name})")], location.scope.sets()) {
            Ok(tested) if tested.condition == NginxCondition::Known(false) => {
                self.unreachable(location.block, "its predicate never holds");
                Err(None)
            }
            Ok(tested) => Ok(tested),
            Err(why) => {
                let instead = "write a [[route]] with the condition: docs/conditions.md";
                self.note(location.block, RemarkKind::Refused, &why, instead);
                let refuses =
                    location.scope.own().iter().any(|inner| {
                        inner.name == "deny" || inner.name == "return" && branches::refuses(inner)
                    });
                Err(refuses.then(|| {
                    let mut entry = RouteEntry::new(ALL_PATHS, from(location.block));
                    content::not_taken(location.block, &mut entry);
                    Box::new(entry)
                }))
            }
        }
    }

    /// Fills in the route for a branch of a location.
    fn branch(
        &mut self,
        branch: &RewriteBranch<'s>,
        location: &Location<'s>,
        server: &'s Directive,
        entry: &mut RouteEntry,
    ) {
        let scope = if branch.block.name == "if" {
            entry.from.extend(from(branch.block));
            location.scope.within_if(branch.block.inner())
        } else {
            location.scope.clone()
        };
        let scope = scope.with_sets(&branch.sets);
        match branch.answer {
            Some(answer) if answer.name == "return" => {
                self.answer(answer, branch.url.as_deref(), &scope, server, entry);
                branch.give_pattern(entry);
            }
            Some(rewrite) if branch.pattern.is_some() => {
                let status = if rewrite.word(2) == "permanent" { 301 } else { 302 };
                let (to, keeps_query) = match rewrite.word(1).strip_suffix('?') {
                    Some(to) => (to, false),
                    None => (rewrite.word(1), true),
                };
                let slash = if branches::from_root(rewrite.word(0), to).is_some() { "/" } else { "" };
                self.redirect(rewrite, &format!("{slash}{to}"), status, &scope, entry);
                if !keeps_query
                    && let Some(DraftValue::Text(to)) = entry.options.inner("redirect", "to").cloned()
                {
                    entry.options.extend("redirect", ("to", values::without_query(to).into()), Vec::new());
                }
                branch.give_pattern(entry);
                self.response_headers(&scope, entry);
                self.logged(&scope, entry);
            }
            Some(rewrite) => self.moved_in_branch(rewrite, location, &scope, entry),
            None => {
                let inner = Location { scope, ..location.clone() };
                self.content(&inner, server, entry);
            }
        }
    }

    /// Translates a `rewrite` to another URL in an `if` of a location.
    fn moved_in_branch(
        &mut self,
        rewrite: &'s Directive,
        location: &Location<'s>,
        scope: &BlockScope<'s>,
        entry: &mut RouteEntry,
    ) {
        let status = if rewrite.word(2) == "permanent" { 301 } else { 302 };
        let to = rewrite.word(1).trim_end_matches('?');
        let begins =
            location.matching.path().is_some_and(|path| rewrite.word(0).starts_with(&format!("^{path}")));
        let to = match rewrite.word(0) {
            "^" | ".*" | "^.*" | "^.*$" | "^/" if !to.contains("$1") => to.to_owned(),
            pattern if with_whole_path(pattern, to).is_some() => {
                with_whole_path(pattern, to).unwrap_or_default()
            }
            pattern if begins && values::expression(pattern, false).is_ok() => {
                entry.path = format!("~ {}", values::expression(pattern, false).unwrap_or_default());
                to.to_owned()
            }
            _ => {
                let why = "a path is rewritten in its route";
                self.note(rewrite, RemarkKind::Refused, why, "write a [[route]] with `redirect`");
                return content::not_taken(rewrite, entry);
            }
        };
        self.redirect(rewrite, &to, status, scope, entry);
        self.response_headers(scope, entry);
        self.logged(scope, entry);
    }

    /// The path of an answer that comes before all locations: of all paths, and of each exact path, because those take
    /// precedence.
    fn all_paths(scope: &BlockScope<'s>) -> Vec<String> {
        let exact = scope.own().iter().filter(|directive| directive.name == "location");
        let exact = exact.filter_map(|location| match LocationMatch::from_location(location) {
            LocationMatch::Exact(path) => Some(format!("= {}", encoded(&path))),
            _ => None,
        });
        std::iter::once(ALL_PATHS.to_owned()).chain(exact).collect()
    }

    /// Builds the routes for branches of a server, which come before its locations.
    fn of_server(
        &mut self,
        branches: &Branches<'s>,
        server: &'s Directive,
        scope: &BlockScope<'s>,
    ) -> Vec<RouteEntry> {
        let moves = |branch: &RewriteBranch<'_>| branch.answer.is_some_and(|answer| answer.name == "rewrite");
        let rest = "/".to_owned();
        let paths = match branches.is_final && !branches.all.iter().any(moves) {
            true => vec![rest.clone()],
            false => Self::all_paths(scope),
        };
        let mut entries = Vec::new();
        for branch in &branches.all {
            let block = branch.block;
            let is_if = block.name == "if";
            let scope = if is_if { scope.within_if(block.inner()) } else { scope.clone() };
            let scope = scope.with_sets(&branch.sets);
            match branch.answer {
                Some(answer) if answer.name == "return" => {
                    // The last answer is for all requests that are left.
                    let all = if branch.when.is_none() { std::slice::from_ref(&rest) } else { &paths[..] };
                    for path in all {
                        let from = if is_if { from(block) } else { Vec::new() };
                        let mut entry = RouteEntry::new(path.as_str(), from);
                        entry.when.clone_from(&branch.when);
                        self.answer(answer, branch.url.as_deref(), &scope, server, &mut entry);
                        branch.give_pattern(&mut entry);
                        entries.push(entry);
                    }
                }
                Some(rewrite) => {
                    if let Some(mut entry) = self.moved(rewrite, &scope) {
                        entry.when.clone_from(&branch.when);
                        entries.push(entry);
                    }
                }
                None => {
                    let why = "an `if` of a server answers, or sets variables";
                    self.note(block, RemarkKind::Refused, why, "write it into the locations");
                }
            }
        }
        if let Some(closed) = branches.closed {
            for path in Self::all_paths(scope) {
                let mut entry = RouteEntry::new(path, from(closed));
                content::not_taken(closed, &mut entry);
                entries.push(entry);
            }
        }
        entries
    }

    /// Collects all locations of a server. Inner ones move up, because their paths are longer.
    fn flatten(
        &mut self,
        scope: &BlockScope<'s>,
        outer: Option<&LocationMatch>,
        into: &mut Vec<Location<'s>>,
    ) {
        for block in scope.own().iter().filter(|directive| directive.name == "location") {
            let matching = LocationMatch::from_location(block);
            let scope = scope.within(block.inner());
            let outer_path = outer.map(|outer| outer.path());
            let is_within = match (&matching, outer_path) {
                (_, None | Some(Some("/"))) => true,
                (LocationMatch::Predicate(_) | LocationMatch::Pattern { .. }, Some(outer)) => outer.is_some(),
                (LocationMatch::Exact(path) | LocationMatch::Prefix(path), Some(Some(outer))) => {
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
            self.flatten(&scope, Some(&matching), into);
            let is_expression = matches!(matching, LocationMatch::Pattern { .. });
            let within = outer_path.flatten().filter(|_| is_expression).map(str::to_owned);
            let outer = if matching.is_predicate() { outer.cloned() } else { None };
            into.push(Location { block, scope, matching, outer, within });
        }
    }

    /// Translates `limit_except GET { deny all; }`: `methods` of the route, or a condition for all other methods beside
    /// routes with `when`, because a route with `methods` takes precedence over those. `given` is the location's condition.
    fn limit_except(
        &mut self,
        location: &Location<'s>,
        entry: &mut RouteEntry,
        given: Option<&TestedCondition>,
    ) -> Option<RouteEntry> {
        let block = location.scope.here("limit_except")?;
        let [deny] = block.inner() else { return None };
        if deny.name != "deny" || deny.word(0) != "all" {
            return None;
        }
        let mut methods: Vec<&str> = block.words.iter().map(String::as_str).collect();
        // In nginx, GET includes HEAD.
        if methods.contains(&"GET") && !methods.contains(&"HEAD") {
            methods.push("HEAD");
        }
        let mut refused = RouteEntry::new("", from(block));
        if let Some(given) = given {
            let others = NginxCondition::among("request.method", &methods).negated();
            let when = NginxCondition::all(vec![given.condition.clone(), others]);
            refused.when = Some((when.written(), from(block)));
        } else {
            let list = methods.iter().map(|method| (*method).into()).collect();
            entry.methods = Some((DraftValue::List(list), from(block)));
        }
        let status = DraftValue::Table(vec![("status".to_owned(), 403.into())]);
        refused.options.set("respond", status, from(deny));
        self.response_headers(&location.scope.within(block.inner()), &mut refused);
        Some(refused)
    }

    pub(super) fn unreachable(&mut self, block: &Directive, why: &str) {
        self.note(block, RemarkKind::NeedsNothing, why, "");
        // Entries of these blocks are part of them.
        if !matches!(block.name.as_str(), "types" | "map" | "geo" | "split_clients" | "match") {
            block.inner().iter().for_each(|inner| self.unreachable(inner, why));
        }
    }

    fn path(&mut self, location: &Location<'s>, has_patterns: bool) -> Option<String> {
        let block = location.block;
        let refuse = |adapter: &mut Self, why: &str| {
            adapter.note(block, RemarkKind::Refused, why, "write the path of the [[route]] by hand");
            None
        };
        if location.matching.path().is_some_and(|path| !path.starts_with('/') || path.contains("//")) {
            return refuse(self, "no path of a request matches it: nginx merges slashes");
        }
        match &location.matching {
            LocationMatch::Exact(path) => Some(format!("= {}", encoded(path))),
            LocationMatch::Pattern { text, ignores_case } => match values::expression(text, *ignores_case) {
                Ok(pattern) => Some(format!("~ {pattern}")),
                Err(why) => refuse(self, &why),
            },
            LocationMatch::FirstPrefix(path) if has_patterns => {
                Some(format!("~ {}(.*)", values::escaped(path)))
            }
            LocationMatch::Prefix(path) | LocationMatch::FirstPrefix(path) if path == "/" => {
                Some(path.clone())
            }
            LocationMatch::Prefix(path) | LocationMatch::FirstPrefix(path) => {
                Some(format!("{}*", encoded(path)))
            }
            LocationMatch::Predicate(_) => match &location.outer {
                None => Some(ALL_PATHS.to_owned()),
                Some(outer) => {
                    let outer = Location { matching: outer.clone(), outer: None, ..location.clone() };
                    self.path(&outer, has_patterns)
                }
            },
            // Known at the end, when all locations that lead there were read.
            LocationMatch::Named => None,
        }
    }

    /// Translates a `rewrite` that answers: `permanent`, `redirect`, or to another site.
    fn moved(&mut self, rewrite: &'s Directive, scope: &BlockScope<'s>) -> Option<RouteEntry> {
        if !branches::is_redirect(rewrite) {
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
        let to = rewrite.word(1).trim_end_matches('?');
        let to = with_whole_path(rewrite.word(0), to).unwrap_or_else(|| to.to_owned());
        self.redirect(rewrite, &to, status, scope, &mut entry);
        Some(entry)
    }
}

/// The file of a path in a location with an `alias`; `None` if it has variables other than groups.
pub(super) fn aliased(block: &Directive, alias: &str, path: &str) -> Option<String> {
    let file = match LocationMatch::from_location(block) {
        LocationMatch::Exact(_) => alias.to_owned(),
        LocationMatch::Prefix(of) | LocationMatch::FirstPrefix(of) => {
            format!("{alias}{}", path.strip_prefix(&of)?)
        }
        LocationMatch::Pattern { text, ignores_case } => {
            let pattern = regex::RegexBuilder::new(&text).case_insensitive(ignores_case).build().ok()?;
            let groups = pattern.captures(path)?;
            (1..groups.len()).fold(alias.to_owned(), |file, number| {
                file.replace(&format!("${number}"), groups.get(number).map_or("", |group| group.as_str()))
            })
        }
        LocationMatch::Predicate(_) | LocationMatch::Named => return None,
    };
    (file.starts_with('/') && !file.contains('$') && !file.contains("..")).then_some(file)
}

/// A route for the requests of an expression that cannot be written, if the location refuses them: they get 501.
fn closed_expression(location: &Location<'_>) -> Option<RouteEntry> {
    let LocationMatch::Pattern { text, ignores_case } = &location.matching else { return None };
    let guards = |inner: &Directive| {
        ["deny", "auth_basic", "auth_request", "internal"].contains(&inner.name.as_str())
            || inner.name == "return" && branches::refuses(inner)
    };
    location.scope.own().iter().any(guards).then_some(())?;
    let pattern = values::expression(&values::without_assertions(text), *ignores_case).ok()?;
    let mut entry = RouteEntry::new(format!("~ {pattern}"), from(location.block));
    content::not_taken(location.block, &mut entry);
    Some(entry)
}

/// Writes the group of an expression for all paths as the path.
fn with_whole_path(pattern: &str, to: &str) -> Option<String> {
    match pattern {
        "^(.*)$" | "^(.*)" | "(.*)" => Some(to.replace("$1", "${uri}")),
        "^/(.*)$" | "^/(.*)" => Some(to.replace("/$1", "${uri}")),
        _ => None,
    }
}

/// Gives `$server_name` its value, the first name, if that is a host. The groups of an expression that is the only name are
/// variables.
fn with_server_name<'s>(scope: &BlockScope<'s>) -> BlockScope<'s> {
    let names = scope.here("server_name");
    let name = names.map_or("", |names| names.word(0));
    if let (Some(pattern), Some(1)) = (name.strip_prefix('~'), names.map(|names| names.words.len())) {
        let mut sets = scope.sets().clone();
        for piece in groups::pieces("host", pattern) {
            let resolved = piece.resolved();
            sets.extend(piece.name.map(|name| (name, Ok(resolved))));
        }
        return scope.with_sets(&Rc::new(sets));
    }
    if name.is_empty() || name.starts_with(['.', '*', '~', '_']) || name.ends_with('*') {
        return scope.clone();
    }
    let mut sets = scope.sets().clone();
    sets.insert("server_name".to_owned(), Ok(Rc::new(ResolvedVariable::constant(name))));
    scope.with_sets(&Rc::new(sets))
}

/// Writes a path of nginx, which is decoded, with escapes where a route needs them (RFC 3986 §3.3).
pub(super) fn encoded(path: &str) -> String {
    let mut text = String::new();
    for byte in path.bytes() {
        if byte.is_ascii_graphic() && !b"%?#*".contains(&byte) {
            text.push(char::from(byte));
        } else {
            text += &format!("%{byte:02X}");
        }
    }
    text
}

/// A condition that excludes the requests of longer prefixes, which nginx prefers to a shorter `^~` and to an expression
/// within `location /`. `None` if there are none.
fn longer_prefixes(location: &Location<'_>, all: &[Location<'_>], server: &BlockScope<'_>) -> Option<String> {
    let root = "/".to_owned();
    let mut within = &root;
    let longer: Vec<String> = match &location.matching {
        LocationMatch::FirstPrefix(own) => {
            let plain = all.iter().filter_map(|other| match &other.matching {
                LocationMatch::Prefix(path) => Some(path.clone()),
                _ => None,
            });
            plain.filter(|path| path.len() > own.len() && path.starts_with(own)).collect()
        }
        LocationMatch::Pattern { .. } => {
            within = location.within.as_ref()?;
            let beside = server.own().iter().filter(|directive| directive.name == "location");
            let beside = beside.filter_map(|block| match LocationMatch::from_location(block) {
                LocationMatch::Prefix(path) | LocationMatch::FirstPrefix(path) => Some(path),
                _ => None,
            });
            beside.filter(|path| path.len() > within.len() && path.starts_with(within.as_str())).collect()
        }
        _ => return None,
    };
    let begins = |path: &String| format!("request.path.startsWith({})", literal(path));
    let all: Vec<String> = longer.iter().map(begins).collect();
    let inside = (within != "/").then(|| format!("request.path.startsWith({})", literal(within)));
    let outside = (!all.is_empty()).then(|| format!("!({})", all.join(" || ")));
    match (inside, outside) {
        (Some(inside), Some(outside)) => Some(format!("{inside} && {outside}")),
        (inside, outside) => inside.or(outside),
    }
}

/// nginx redirects `/api` to `/api/` if the latter is the path of a location with a server.
fn with_slash(bare: &str, location: &Directive) -> RouteEntry {
    let origin = StatementOrigin::Directive(location.number);
    let mut entry = RouteEntry::new(format!("= {}", encoded(bare)), vec![origin]);
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
