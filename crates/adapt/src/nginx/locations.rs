//! Locations: their paths in nginx's order of precedence, and what answers there.
//!
//! Both proxies prefer an exact path, then expressions in their order, then the longest prefix. `^~` becomes an
//! expression before all others, where there are others.

use super::scope::Scope;
use super::servers::Entry;
use super::syntax::Directive;
use super::{Adapter, from};
use crate::Kind;
use crate::draft::{Origin, Value};
use crate::rules::{is_host, is_path};
use crate::values;

/// What a location matches.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Match {
    Exact(String),
    Prefix(String),
    /// `^~`: no expression is tried where this is the longest prefix.
    FirstPrefix(String),
    Pattern {
        text: String,
        ignores_case: bool,
    },
    /// `@name`: only other locations lead there.
    Named,
}

impl Match {
    pub(super) fn of(location: &Directive) -> Self {
        let path = |index| location.word(index).to_owned();
        match (location.word(0), location.words.len()) {
            ("=", 2) => Self::Exact(path(1)),
            ("^~", 2) => Self::FirstPrefix(path(1)),
            ("~", 2) => Self::Pattern { text: path(1), ignores_case: false },
            ("~*", 2) => Self::Pattern { text: path(1), ignores_case: true },
            (first, _) if first.starts_with('@') => Self::Named,
            // nginx also takes the sign and the path in one word.
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

/// The location that nginx chooses for a path, and those around it, the innermost first; none where only the server itself answers.
pub(super) fn leading_to<'s>(path: &str, level: &'s [Directive]) -> Vec<&'s Directive> {
    let all = || level.iter().filter(|directive| directive.name == "location");
    let with_inner = |block: &'s Directive| {
        let mut blocks = leading_to(path, block.inner());
        blocks.push(block);
        blocks
    };
    if let Some(exact) = all().find(|block| matches!(Match::of(block), Match::Exact(of) if of == path)) {
        return vec![exact];
    }
    let prefixes = all().filter_map(|block| match Match::of(block) {
        Match::Prefix(of) if path.starts_with(&of) => Some((of.len(), false, block)),
        Match::FirstPrefix(of) if path.starts_with(&of) => Some((of.len(), true, block)),
        _ => None,
    });
    let longest = prefixes.max_by_key(|(length, ..)| *length);
    let matches = |block: &&Directive| match Match::of(block) {
        Match::Pattern { text, ignores_case } => regex::RegexBuilder::new(&text)
            .case_insensitive(ignores_case)
            .build()
            .is_ok_and(|pattern| pattern.is_match(path)),
        _ => false,
    };
    match longest {
        Some((_, true, block)) => with_inner(block),
        // An expression within the longest prefix comes before those beside it.
        Some((_, false, block)) => match (with_inner(block), all().find(matches)) {
            (blocks, Some(pattern)) if blocks.len() == 1 => with_inner(pattern),
            (blocks, _) => blocks,
        },
        None => all().find(matches).map(with_inner).unwrap_or_default(),
    }
}

/// A location with the blocks around it.
pub(super) struct Location<'s> {
    pub(super) block: &'s Directive,
    pub(super) scope: Scope<'s>,
    pub(super) matching: Match,
}

impl<'s> Adapter<'s> {
    /// The routes of a server.
    pub(super) fn entries(&mut self, server: &'s Directive, scope: &Scope<'s>) -> Vec<Entry> {
        let mut entries = self.conditions(scope);
        if let Some(answer) = scope.here("return") {
            let mut entry = Entry::new("/", Vec::new());
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
            locations.iter().any(|location| matches!(location.matching, Match::Pattern { .. }));
        let exact: Vec<String> = locations
            .iter()
            .filter_map(|location| match &location.matching {
                Match::Exact(path) => Some(path.clone()),
                _ => None,
            })
            .collect();
        let mut first = Vec::new();
        for location in &locations {
            let Some(path) = self.path(location, has_patterns) else { continue };
            let mut entry = Entry::new(path, from(location.block));
            let is_asked = self.content(location, server, &mut entry);
            let closed = self.methods(location, &mut entry);
            let slashed = match &location.matching {
                Match::Prefix(path) | Match::FirstPrefix(path) if is_asked => path.strip_suffix('/'),
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
            match location.matching {
                Match::FirstPrefix(_) if has_patterns => first.push(entry),
                _ => entries.push(entry),
            }
        }
        first.sort_by_key(|entry| std::cmp::Reverse(entry.path.len()));
        let has_root = locations.iter().any(|location| matches!(&location.matching, Match::Prefix(path) | Match::FirstPrefix(path) if path == "/"));
        if !has_root {
            let mut entry = Entry::new("/", Vec::new());
            self.files_or_nothing(scope, &Match::Prefix("/".to_owned()), &mut entry);
            self.access(scope, server, &mut entry);
            entries.push(entry);
        }
        first.extend(entries);
        first
    }

    /// All locations of a server; those within others stand beside them, since their paths are longer.
    fn flatten(&mut self, scope: &Scope<'s>, outer: Option<&str>, into: &mut Vec<Location<'s>>) {
        for block in scope.own().iter().filter(|directive| directive.name == "location") {
            let matching = Match::of(block);
            let scope = scope.within(block.inner());
            let is_within = match (&matching, outer) {
                (_, None | Some("/")) => true,
                (Match::Exact(path) | Match::Prefix(path), Some(outer)) => path.starts_with(outer),
                _ => false,
            };
            if !is_within {
                let why = "an expression within another location holds only there";
                self.note(
                    block,
                    Kind::Refused,
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

    /// Requests of a location that are answered by their method: `limit_except GET { deny all; }`, `if ($request_method = …)`
    /// with a `return`. What the location has is then for the other methods.
    fn methods(&mut self, location: &Location<'s>, entry: &mut Entry) -> Vec<Entry> {
        let mut answered = Vec::new();
        for block in location.scope.own() {
            let inner = location.scope.within(block.inner());
            let mut answer = Entry::new(entry.path.clone(), from(block));
            match (block.name.as_str(), block.inner()) {
                ("limit_except", [deny]) if deny.name == "deny" && deny.word(0) == "all" => {
                    let mut methods: Vec<Value> =
                        block.words.iter().map(|word| word.as_str().into()).collect();
                    // GET stands for both.
                    if block.words.iter().any(|word| word == "GET")
                        && !block.words.iter().any(|word| word == "HEAD")
                    {
                        methods.push("HEAD".into());
                    }
                    entry.methods = Some((Value::List(methods), from(block)));
                    let status = Value::Table(vec![("status".to_owned(), 403.into())]);
                    answer.options.set("respond", status, from(deny));
                    self.response_headers(&inner, &mut answer);
                }
                ("if", [returned]) if returned.name == "return" => {
                    let Some(method) = method_of(block) else { continue };
                    answer.methods = Some((Value::List(vec![method.into()]), from(block)));
                    self.answer(returned, &inner, &mut answer);
                }
                _ => continue,
            }
            answered.push(answer);
        }
        answered
    }

    fn unreachable(&mut self, block: &Directive) {
        self.note(block, Kind::NeedsNothing, "the `return` of the server answers before it", "");
        for inner in block.inner() {
            self.unreachable(inner);
        }
    }

    /// The path of a location as [[route]] writes it.
    fn path(&mut self, location: &Location<'s>, has_patterns: bool) -> Option<String> {
        let block = location.block;
        let refuse = |adapter: &mut Self, why: &str| {
            adapter.note(block, Kind::Refused, why, "write the path of the [[route]] by hand");
            None
        };
        if let Some(path) = location.matching.path()
            && !is_path(path)
        {
            return refuse(self, "the path has characters that cannot be written here");
        }
        match &location.matching {
            Match::Exact(path) => Some(format!("= {path}")),
            Match::Pattern { text, ignores_case } => match values::expression(text, *ignores_case) {
                Ok(pattern) => Some(format!("~ {pattern}")),
                Err(why) => refuse(self, &why),
            },
            Match::FirstPrefix(path) if has_patterns => Some(format!("~ {}(.*)", values::escaped(path))),
            Match::Prefix(path) | Match::FirstPrefix(path) => {
                if !path.ends_with('/') {
                    let why = format!("{path} matches whole segments: not {path}x");
                    self.note(block, Kind::Differs, &why, "");
                }
                let bare = path.trim_end_matches('/');
                Some(if bare.is_empty() { "/" } else { bare }.to_owned())
            }
            Match::Named => {
                let why = "there are no named locations";
                let instead = "write a [[route]] whose path tells these requests apart";
                self.note(block, Kind::Refused, why, instead);
                None
            }
        }
    }

    /// `if` and `rewrite` of a server: routes before all others.
    fn conditions(&mut self, scope: &Scope<'s>) -> Vec<Entry> {
        let mut entries = Vec::new();
        for directive in scope.own() {
            match directive.name.as_str() {
                "if" => entries.extend(self.condition(directive, scope)),
                "rewrite" => entries.extend(self.moved(directive)),
                _ => {}
            }
        }
        entries
    }

    /// `if ($host = name) { return … }` and `if ($request_method = NAME) { return … }`.
    fn condition(&mut self, block: &'s Directive, scope: &Scope<'s>) -> Option<Entry> {
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
        let mut entry = Entry::new("/", Vec::new());
        match variable.trim() {
            "$host" | "$http_host" if is_host(value) => {
                entry.host = Some((value.to_ascii_lowercase(), from(block)));
            }
            "$request_method" if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_uppercase()) => {
                entry.methods = Some((Value::List(vec![value.into()]), from(block)));
                let why = "locations with their own paths come before it";
                self.note(block, Kind::Differs, why, "say `methods` in their routes too");
            }
            _ => return None,
        }
        self.answer(answer, &inner, &mut entry);
        Some(entry)
    }

    /// `rewrite` with an answer: `permanent`, `redirect`, or to another site.
    fn moved(&mut self, rewrite: &Directive) -> Option<Entry> {
        let is_answer = matches!(rewrite.word(2), "permanent" | "redirect")
            || ["http://", "https://", "$scheme"].iter().any(|begin| rewrite.word(1).starts_with(begin));
        if !is_answer {
            let instead = "write `rewrite` in the [[route]] that asks the server";
            self.note(rewrite, Kind::Refused, "a path is rewritten where its route is", instead);
            return None;
        }
        let pattern = match values::expression(rewrite.word(0), false) {
            Ok(pattern) => pattern,
            Err(why) => {
                self.note(rewrite, Kind::Refused, &why, "write a [[route]] with `redirect` by hand");
                return None;
            }
        };
        let mut entry = Entry::new(format!("~ {pattern}"), from(rewrite));
        let status = if rewrite.word(2) == "permanent" { 301 } else { 302 };
        self.redirect(rewrite, rewrite.word(1).trim_end_matches('?'), status, &mut entry);
        Some(entry)
    }
}

/// nginx redirects `/api` to `/api/` where that is the path of a location that asks a server.
fn with_slash(bare: &str, location: &Directive) -> Entry {
    let origin = Origin::Directive(location.number);
    let mut entry = Entry::new(format!("= {bare}"), vec![origin]);
    let to = [("to".to_owned(), Value::from(format!("{bare}/"))), ("status".to_owned(), 301.into())];
    let why = vec![Origin::Default("nginx adds the slash")];
    entry.options.set("redirect", Value::Table(to.into()), why);
    entry
}

/// The method of `if ($request_method = NAME)`.
fn method_of(block: &Directive) -> Option<String> {
    let text = block.words.join(" ");
    let text = text.trim_start_matches('(').trim_end_matches(')');
    let (variable, value) = text.split_once('=')?;
    let value = value.trim().trim_matches('"');
    let is_method = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_uppercase());
    (variable.trim() == "$request_method" && is_method).then(|| value.to_owned())
}
