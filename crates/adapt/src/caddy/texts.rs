//! Placeholders that `map` and `vars` set, as maps, values and expressions of Vanward.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::cel;
use crate::definitions::{Definitions, DraftMap};
use crate::draft::StatementOrigin;
use crate::rules::literal;
use crate::source::Directive;
use crate::values;

/// Placeholders with the texts that they stand for, or why those are unknown.
pub(super) type Texts = BTreeMap<String, Result<CaddyText, String>>;

/// The most texts that one is known to be one of.
const POSSIBLE_MAX: usize = 1000;

/// A text that is never absent.
#[derive(Debug, Clone, Default)]
pub(super) struct CaddyText {
    pieces: Vec<CaddyPiece>,
    /// The directives that set it.
    pub(super) from: Vec<StatementOrigin>,
}

#[derive(Debug, Clone)]
enum CaddyPiece {
    Constant(String),
    /// An expression, and all texts that it can be.
    Expression(String, Option<BTreeSet<String>>),
    Map(Rc<CaddyMap>),
}

/// A destination of the directive `map`.
#[derive(Debug)]
struct CaddyMap {
    name: String,
    map: DraftMap,
    from: Vec<StatementOrigin>,
}

impl CaddyMap {
    fn values(&self) -> impl Iterator<Item = &String> {
        self.map.entries.iter().map(|(_, value)| value).chain(&self.map.default)
    }
}

impl CaddyText {
    pub(super) fn constant(text: &str) -> Self {
        Self { pieces: vec![CaddyPiece::Constant(text.to_owned())], from: Vec::new() }
    }

    pub(super) fn expression(text: String, possible: Option<BTreeSet<String>>) -> Self {
        Self { pieces: vec![CaddyPiece::Expression(text, possible)], from: Vec::new() }
    }

    /// Reads a text with placeholders.
    ///
    /// # Errors
    /// The placeholder that has no equivalent.
    pub(super) fn read(text: &str, texts: &Texts) -> Result<Self, String> {
        let mut made = Self::default();
        let mut rest = text;
        while !rest.is_empty() {
            let placeholder = cel::placeholder(rest);
            let Some(name) = placeholder else {
                let length = rest.char_indices().skip(1).find(|(_, letter)| *letter == '{');
                let (constant, behind) = rest.split_at(length.map_or(rest.len(), |(at, _)| at));
                if constant.starts_with("{$") {
                    return Err(format!("{text} is not constant"));
                }
                made.pieces.push(CaddyPiece::Constant(constant.to_owned()));
                rest = behind;
                continue;
            };
            match texts.get(name.strip_prefix("http.").unwrap_or(name)) {
                Some(Ok(known)) => {
                    made.pieces.extend(known.pieces.iter().cloned());
                    made.from.extend(known.from.iter().cloned());
                }
                Some(Err(why)) => return Err(why.clone()),
                None => {
                    let text = cel::text(name).ok_or_else(|| format!("{{{name}}} has no equivalent"))?;
                    made.pieces.push(CaddyPiece::Expression(text, None));
                }
            }
            rest = &rest[name.len() + 2..];
        }
        Ok(made)
    }

    /// Adds the directives that set it to those that use it.
    pub(super) fn from(&self, directive: &Directive) -> Vec<StatementOrigin> {
        let own = StatementOrigin::Directive(directive.number);
        self.from.iter().cloned().chain([own]).collect()
    }

    pub(super) fn set_by(mut self, directive: &Directive) -> Self {
        self.from.push(StatementOrigin::Directive(directive.number));
        self
    }

    /// All texts that it can be.
    pub(super) fn possible(&self) -> Option<BTreeSet<String>> {
        let mut made = BTreeSet::from([String::new()]);
        for piece in &self.pieces {
            let texts: BTreeSet<&str> = match piece {
                CaddyPiece::Constant(text) => BTreeSet::from([text.as_str()]),
                CaddyPiece::Expression(_, possible) => {
                    possible.as_ref()?.iter().map(String::as_str).collect()
                }
                CaddyPiece::Map(map) => map.values().map(String::as_str).collect(),
            };
            if made.len().saturating_mul(texts.len()) > POSSIBLE_MAX {
                return None;
            }
            made = made
                .iter()
                .flat_map(|first| texts.iter().map(move |last| format!("{first}{last}")))
                .collect();
        }
        Some(made)
    }

    /// Parts of requests that it depends on, as expressions.
    pub(super) fn asked(&self) -> String {
        let asked = self.pieces.iter().filter_map(|piece| match piece {
            CaddyPiece::Constant(_) => None,
            CaddyPiece::Expression(text, _) => Some(text.as_str()),
            CaddyPiece::Map(map) => map.map.key.as_deref(),
        });
        asked.collect::<Vec<_>>().join(" ")
    }

    /// The only text that it can be.
    pub(super) fn only(&self) -> Option<String> {
        self.possible().filter(|possible| possible.len() == 1)?.pop_first()
    }

    /// The expression.
    ///
    /// # Errors
    /// There are too many maps.
    pub(super) fn written(&self, definitions: &mut Definitions) -> Result<String, String> {
        let mut parts = Vec::new();
        for piece in &self.pieces {
            parts.push(match piece {
                CaddyPiece::Constant(text) => literal(text),
                CaddyPiece::Expression(text, _) => text.clone(),
                CaddyPiece::Map(map) => definitions.map(&map.name, map.map.clone(), map.from.clone())?,
            });
        }
        Ok(match parts.as_slice() {
            [] => literal(""),
            [one] => one.clone(),
            several => format!("({})", several.join(" + ")),
        })
    }

    /// A text that `change` makes of each text that this can be, as an expression; `None` if it is not known which.
    ///
    /// # Errors
    /// What `change` says, or there are too many maps.
    pub(super) fn changed(
        &self,
        name: &str,
        change: &mut dyn FnMut(&str) -> Result<String, String>,
        definitions: &mut Definitions,
    ) -> Result<Option<String>, String> {
        /// More cases are no readable expression.
        const CASES_MAX: usize = 16;
        let is_map = |piece: &&CaddyPiece| matches!(piece, CaddyPiece::Map(_));
        let are_others_constant =
            self.pieces.iter().all(|piece| !matches!(piece, CaddyPiece::Expression(..)));
        if are_others_constant && self.pieces.iter().filter(is_map).count() == 1 {
            let (mut before, mut behind, mut found) = (String::new(), String::new(), None);
            for piece in &self.pieces {
                match piece {
                    CaddyPiece::Constant(text) if found.is_none() => before.push_str(text),
                    CaddyPiece::Constant(text) => behind.push_str(text),
                    CaddyPiece::Map(map) => found = Some(map),
                    CaddyPiece::Expression(..) => {}
                }
            }
            let Some(map) = found else { return Ok(None) };
            let mut changed = map.map.clone();
            for (_, value) in &mut changed.entries {
                *value = change(&format!("{before}{value}{behind}"))?;
            }
            // An empty text leads nowhere.
            if let Some(default) = changed.default.as_mut().filter(|default| !default.is_empty()) {
                *default = change(&format!("{before}{default}{behind}"))?;
            }
            return definitions.map(&map.name, changed, map.from.clone()).map(Some);
        }
        let Some(possible) = self.possible().filter(|possible| possible.len() <= CASES_MAX) else {
            return Ok(None);
        };
        let text = self.written(definitions)?;
        let value = format!("values.{}", definitions.value(name, values::bare(&text), Vec::new())?);
        let mut made = String::new();
        let mut rest = possible.iter().filter(|text| !text.is_empty()).peekable();
        while let Some(text) = rest.next() {
            let new = literal(&change(text)?);
            match rest.peek() {
                Some(_) => made += &format!("{value} == {} ? {new} : ", literal(text)),
                None => made += &new,
            }
        }
        Ok(Some(made))
    }
}

/// Adds the placeholders that the directive `map` sets.
pub(super) fn map(directive: &Directive, texts: &mut Texts) {
    let names: Vec<String> = directive.words.iter().skip(1).map(|word| placeholder_name(word)).collect();
    for (place, name) in names.iter().enumerate() {
        let made = destination(directive, name, place, texts);
        texts.insert(name.clone(), made);
    }
}

/// The name in `{name}`, as texts are known by it.
fn placeholder_name(word: &str) -> String {
    let name = word.trim_start_matches('{').trim_end_matches('}');
    name.strip_prefix("http.").unwrap_or(name).to_owned()
}

fn destination(directive: &Directive, name: &str, place: usize, texts: &Texts) -> Result<CaddyText, String> {
    let source = directive.word(0);
    if source.starts_with(['@', '/', '*']) {
        return Err("the map has a matcher".to_owned());
    }
    let source = CaddyText::read(source, texts)?;
    let key = match source.pieces.as_slice() {
        [CaddyPiece::Expression(text, _)] => text.clone(),
        _ => return Err("the source of the map is not one placeholder".to_owned()),
    };
    let mut from = vec![StatementOrigin::Directive(directive.number)];
    let mut entries = Vec::new();
    let mut default = String::new();
    let has_patterns = directive.inner().iter().any(|line| line.name.starts_with('~'));
    for line in directive.inner() {
        from.push(StatementOrigin::Directive(line.number));
        if line.name.is_empty() {
            return Err("a line of the map is for an empty text".to_owned());
        }
        let Some(output) = line.words.get(place) else {
            return Err("a line of the map has fewer texts than there are placeholders".to_owned());
        };
        let output = if output == "-" { "" } else { output };
        if output.contains('{') || output.contains('$') && line.name.starts_with('~') {
            return Err("a text of the map is not constant".to_owned());
        }
        match line.name.strip_prefix('~') {
            _ if line.name == "default" => output.clone_into(&mut default),
            // The next line that matches counts.
            _ if output.is_empty() && line.words.get(place).is_some_and(|word| word == "-") => {}
            Some(pattern) => entries.push((values::search(pattern, false)?, output.to_owned())),
            None if has_patterns => {
                entries.push((format!("^{}$", values::escaped(&line.name)), output.to_owned()));
            }
            None => entries.push((line.name.clone(), output.to_owned())),
        }
    }
    let kind = if has_patterns { "regex" } else { "exact" };
    let key = Some(values::bare(&key).to_owned());
    let map = DraftMap { kind, key, default: Some(default), entries };
    let name = name.rsplit('.').next().unwrap_or(name).to_owned();
    Ok(CaddyText { pieces: vec![CaddyPiece::Map(Rc::new(CaddyMap { name, map, from }))], from: Vec::new() })
}
