//! State of reading a file: its syntax tree, and the mistakes so far.
//!
//! After a syntax error the rest is still read, so that one run shows everything. Conclusions that a broken file does
//! not allow are avoided: a broken value is skipped, and nothing is called missing where a part was lost.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use expression::Expression;
use mistake::{LineMap, Mistake, PlainWords, toml_syntax};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::document::expression_names::ExpressionNames;
use crate::document::foreign;
use crate::document::merge::{Merging, merge, shifted};
use crate::document::pieces::Pieces;
use crate::document::sources::{Problem, Source, Sources};
use crate::document::substitution::{Expanded, Incomplete, Secret, Substitution};
use crate::document::surroundings::Surroundings;
use crate::document::value_error::ValueError;

/// The nesting beyond which a value is treated as one piece; no table of a configuration is deeper.
const DEEPEST_TABLE: usize = 8;

/// The most mistakes that are kept. A file with more is probably of another kind.
const MOST_MISTAKES: usize = 1000;

/// A range of bytes in the texts of all files; see `sources`.
pub(crate) type Span = Range<usize>;

/// Properties of the options of a file that reading depends on.
#[derive(Clone, Copy)]
pub(crate) struct Format {
    /// The rule by which an option of several files becomes one.
    pub(crate) merging: fn(&str) -> Merging,
    /// The tables in which an option of this name exists, for hints.
    pub(crate) owners: fn(&str) -> Option<String>,
}

#[cfg(test)]
impl Format {
    /// A format without options.
    pub(crate) const NONE: Self = Self { merging: |_| Merging::Once, owners: |_| None };
}

/// Where a route has an option from that it does not have itself.
#[derive(Debug, Clone)]
pub(crate) struct Inherited {
    pub(crate) option: &'static str,
    pub(crate) at: Span,
}

/// Rejects a value at a position.
pub(crate) fn refuse(at: &Span, message: &str, expected: &str, reader: &mut Reader<'_>) {
    let mistake = reader.mistake(at, message);
    reader.add(mistake.expecting(expected));
}

/// Collects the mistakes of all files.
pub(crate) struct Reader<'t> {
    surroundings: &'t dyn Surroundings,
    /// The options that the file may have.
    pub(crate) format: Format,
    /// The places of each file, and where its text begins.
    files: Vec<(usize, LineMap<'t>)>,
    mistakes: Vec<Mistake>,
    /// How many mistakes were dropped because of the limit.
    dropped: usize,
    warnings: Vec<Mistake>,
    /// The positions of keys whose values have a syntax error.
    broken: HashSet<usize>,
    /// How many of the broken values were skipped so far.
    skipped: usize,
    /// Whether no part of the file was lost to a syntax error.
    whole: bool,
    has_syntax_errors: bool,
    /// Whether something is left to the machines that use the configuration.
    is_left_open: bool,
    /// Substituted parts of strings, by the positions of the strings; see `Expanded::literal`.
    literal: HashMap<usize, Vec<Range<usize>>>,
    /// The secrets that were put in.
    secrets: Vec<Secret>,
    /// The route that is looked at, if it has options from `[route_defaults]`.
    heir: Option<Heir>,
    /// Mistakes of `[route_defaults]` that are reported for one route, and hold for all.
    of_defaults: HashSet<(usize, usize, String)>,
    /// The names that the file has added to expressions so far.
    pub(crate) expression_names: ExpressionNames,
    /// The expressions that were read, with option and position.
    expressions: Vec<(usize, String, Arc<Expression>)>,
}

/// A route with options from `[route_defaults]`.
struct Heir {
    place: String,
    /// The options, where they are, and what a message calls that place.
    inherited: Vec<(&'static str, Scope, String)>,
}

/// A part of a file: its name, and line and column of the first and the last character.
struct Scope {
    file: String,
    from: (usize, usize),
    to: (usize, usize),
}

impl<'t> Reader<'t> {
    /// Parses the syntax of all files, puts in what their texts refer to, and joins them.
    pub(crate) fn new(
        sources: &'t Sources<'_>,
        surroundings: &'t dyn Surroundings,
        format: Format,
    ) -> (Self, Spanned<DeTable<'t>>) {
        let texts = sources.files.iter().map(|file| &*file.text);
        Self::from_texts(texts, sources, surroundings, format)
    }

    /// Parses what surrounds the routes. `read_pieces` reads the routes.
    pub(crate) fn without_routes(
        pieces: &'t [Pieces],
        sources: &'t Sources<'_>,
        surroundings: &'t dyn Surroundings,
        format: Format,
    ) -> (Self, Spanned<DeTable<'t>>) {
        Self::from_texts(pieces.iter().map(|pieces| &*pieces.rest), sources, surroundings, format)
    }

    fn from_texts(
        texts: impl Iterator<Item = &'t str>,
        sources: &'t Sources<'_>,
        surroundings: &'t dyn Surroundings,
        format: Format,
    ) -> (Self, Spanned<DeTable<'t>>) {
        let mut reader = Self {
            surroundings,
            format,
            files: sources
                .files
                .iter()
                .map(|file| (file.start, LineMap::new(&file.text, &file.name)))
                .collect(),
            mistakes: Vec::new(),
            dropped: 0,
            warnings: Vec::new(),
            broken: HashSet::new(),
            skipped: 0,
            whole: sources.problems.is_empty(),
            has_syntax_errors: false,
            is_left_open: false,
            literal: HashMap::new(),
            secrets: Vec::new(),
            heir: None,
            of_defaults: HashSet::new(),
            expression_names: ExpressionNames::default(),
            expressions: Vec::new(),
        };
        let mut substitution = Substitution::new(surroundings);
        let mut root: Option<DeTable<'t>> = None;
        for (index, (Source { start, folder, .. }, text)) in sources.files.iter().zip(texts).enumerate() {
            let (table, errors) = DeTable::parse_recoverable(text);
            if !errors.is_empty() {
                reader.has_syntax_errors = true;
                reader.syntax_errors(index, text, &errors, &pieces_of(&table, text));
            }
            let mut table = table.into_inner();
            if *start > 0 {
                table = shifted(table, *start);
            }
            reader.complete_table(&mut table, folder, &mut substitution);
            match &mut root {
                Some(root) => merge(root, table, &mut reader),
                None => root = Some(table),
            }
        }
        for Problem { at, message, expected } in &sources.problems {
            let mistake = reader.mistake(at, message.as_str());
            reader.add(Mistake { expected: expected.map(str::to_owned), ..mistake });
        }
        reader.secrets = substitution.secrets;
        (reader, Spanned::new(0..0, root.unwrap_or_default()))
    }

    /// Reads the pieces of all files with `read`, and drops the syntax tree of each. Returns whether no piece has a syntax
    /// error.
    pub(crate) fn read_pieces(
        &mut self,
        pieces: &[Pieces],
        sources: &Sources<'_>,
        mut read: impl FnMut(&DeTable<'_>, &mut Self),
    ) -> bool {
        let mut substitution = Substitution::new(self.surroundings);
        for (Source { text, start, folder, .. }, Pieces { routes, .. }) in sources.files.iter().zip(pieces) {
            for piece in routes {
                let (table, errors) = DeTable::parse_recoverable(&text[piece.clone()]);
                if !errors.is_empty() {
                    return false;
                }
                let mut table = shifted(table.into_inner(), start + piece.start);
                self.complete_table(&mut table, folder, &mut substitution);
                read(&table, self);
            }
        }
        let is_new = |secret: &Secret| !self.secrets.contains(secret);
        let new: Vec<Secret> = substitution.secrets.into_iter().filter(is_new).collect();
        self.secrets.extend(new);
        true
    }

    pub(crate) fn has_syntax_errors(&self) -> bool {
        self.has_syntax_errors
    }

    pub(crate) fn surroundings(&self) -> &'t dyn Surroundings {
        self.surroundings
    }

    /// Puts in what the strings of a table refer to. One that cannot be completed makes its option a broken one.
    fn complete_table(
        &mut self,
        table: &mut DeTable<'_>,
        folder: &Path,
        substitution: &mut Substitution<'_>,
    ) {
        for (key, value) in table.iter_mut() {
            self.complete(key.span().start, value, folder, substitution);
        }
    }

    fn complete(
        &mut self,
        key: usize,
        value: &mut Spanned<DeValue<'_>>,
        folder: &Path,
        substitution: &mut Substitution<'_>,
    ) {
        let at = value.span();
        match value.get_mut() {
            DeValue::Table(table) => self.complete_table(table, folder, substitution),
            DeValue::Array(elements) => {
                elements.iter_mut().for_each(|element| self.complete(key, element, folder, substitution));
            }
            DeValue::String(text) => match substitution.expand(text, folder) {
                Ok(None) => {}
                Ok(Some(Expanded { text: completed, literal, is_public })) => {
                    if let Some(path) = is_public {
                        let what = format!("{}: every user of this machine may read it", path.display());
                        let warning = self.mistake(&at, what);
                        self.warn(warning.expecting("a file that only its owner may read: chmod o-r"));
                    }
                    *text = Cow::Owned(completed);
                    self.literal.insert(at.start, literal);
                }
                Err(incomplete) => {
                    self.broken.insert(key);
                    let Incomplete { offset, message, expected, is_elsewhere } = incomplete;
                    let at = self.within(&at, offset);
                    if is_elsewhere {
                        self.leave_open(&at, &message);
                    } else {
                        let mistake = self.mistake(&at, message);
                        self.add(mistake.expecting(expected));
                    }
                }
            },
            _ => {}
        }
    }

    /// Leaves an option to the machines that use the configuration, as something that it needs is missing here.
    pub(crate) fn leave_open(&mut self, at: &Span, what: &str) {
        self.is_left_open = true;
        self.skipped += 1;
        let warning = self.mistake(at, format!("{what}; only the instances can check this option"));
        self.warn(warning);
    }

    /// Returns the substituted parts of the string at a place. Dollar signs there name no variables of requests.
    pub(crate) fn literal(&self, at: &Span) -> &[Range<usize>] {
        self.literal.get(&at.start).map_or(&[], Vec::as_slice)
    }

    /// Whether something was put into the string at a place, which may then be meant as a number.
    pub(crate) fn is_completed(&self, at: &Span) -> bool {
        self.literal.contains_key(&at.start)
    }

    /// Adds a mistake for each broken value or, outside of values, for each line: what follows within it is
    /// mostly the parser's guess at what the first error meant.
    fn syntax_errors(&mut self, file: usize, text: &str, errors: &[toml::de::Error], pieces: &[Span]) {
        let start = self.files[file].0;
        let mut spans: Vec<(Span, &str)> =
            errors.iter().map(|error| (error.span().unwrap_or(0..0), error.message())).collect();
        spans.sort_by_key(|(span, _)| span.start);
        let mut lines = HashSet::new();
        for (span, message) in spans {
            if self.is_full() {
                self.whole = false;
                self.dropped += 1;
                break;
            }
            let candidate = pieces.partition_point(|piece| piece.start <= span.start).checked_sub(1);
            let piece = candidate.map(|index| &pieces[index]).filter(|piece| span.start <= piece.end);
            let is_first = match piece {
                Some(piece) => self.broken.insert(start + piece.start),
                None => {
                    self.whole = false;
                    lines.insert(self.files[file].1.line(span.start))
                }
            };
            if is_first {
                let mistake = syntax_mistake(&self.files[file].1, text, &span, message);
                // Of other proxies most lines are no TOML.
                let hint = if piece.is_none() { foreign::line(&mistake.excerpt.text) } else { None };
                let mistake = mistake.hinting(hint.map(str::to_owned));
                self.add(mistake);
            }
        }
    }

    /// Whether the value of the key at `key` cannot be used, which is already reported.
    pub(crate) fn is_broken(&self, key: &Span) -> bool {
        self.broken.contains(&key.start)
    }

    /// Whether the value of the key at `key` has a syntax error, which is already reported. If so, the value counts as
    /// rejected.
    pub(crate) fn skip_broken(&mut self, key: &Span) -> bool {
        let is_broken = self.is_broken(key);
        self.skipped += usize::from(is_broken);
        is_broken
    }

    /// How many values were rejected so far.
    pub(crate) fn refused(&self) -> usize {
        self.mistakes.len() + self.dropped + self.skipped
    }

    /// Whether the file is complete, so that what was not found is really missing.
    pub(crate) fn is_whole(&self) -> bool {
        self.whole
    }

    /// Where a position is, for a message about another one: `line 12`, or `conf.d/app.toml:12` of several files.
    pub(crate) fn line(&self, at: &Span) -> String {
        let (places, at) = self.place(at);
        let line = places.line(at.start);
        if self.files.len() > 1 { format!("{}:{line}", places.file()) } else { format!("line {line}") }
    }

    /// The file of a position, and the position in it.
    fn place(&self, at: &Span) -> (&LineMap<'t>, Span) {
        let index = self.files.partition_point(|(start, _)| *start <= at.start).saturating_sub(1);
        let (start, places) = &self.files[index];
        (places, at.start - start..at.end.saturating_sub(*start))
    }

    /// Makes a mistake at a position. Pass it to `add` when it is complete.
    pub(crate) fn mistake(&self, at: &Span, message: impl Into<String>) -> Mistake {
        // Finding a column costs a walk along its line: not for what won't be kept.
        let (places, at) = self.place(if self.is_full() { &(0..0) } else { at });
        places.mistake(&at, message)
    }

    /// Begins with a route, and with what it has from `[route_defaults]`: mistakes that follow from that name both.
    pub(crate) fn enter(&mut self, route: &Span, inherited: &[Inherited]) {
        if inherited.is_empty() || self.is_full() {
            return;
        }
        let scope = |Inherited { option, at }: &Inherited| {
            let (first, last) = (self.mistake(at, ""), self.mistake(&(at.end..at.end), ""));
            let scope =
                Scope { file: first.file, from: (first.line, first.column), to: (last.line, last.column) };
            (*option, scope, self.line(at))
        };
        let inherited = inherited.iter().map(scope).collect();
        self.heir = Some(Heir { place: self.line(route), inherited });
    }

    /// Ends with a route.
    pub(crate) fn leave(&mut self) {
        self.heir = None;
    }

    /// Adds the other place to a mistake that follows from an option of `[route_defaults]`; `None` if it is reported.
    fn explained(&mut self, mut mistake: Mistake) -> Option<Mistake> {
        let Some(Heir { place, inherited }) = &self.heir else { return Some(mistake) };
        let (line, column) = (mistake.line, mistake.column);
        let is_there =
            |scope: &Scope| scope.file == mistake.file && (scope.from..=scope.to).contains(&(line, column));
        if inherited.iter().any(|(_, scope, _)| is_there(scope)) {
            if !self.of_defaults.insert((line, column, mistake.message.clone())) {
                return None;
            }
            mistake.message += &format!(", for the route of {place}");
            return Some(mistake);
        }
        let is_part = |character: char| !character.is_ascii_alphanumeric() && character != '_';
        let has = |option: &str| mistake.message.split(is_part).any(|word| word == option);
        if let Some((option, _, at)) = inherited.iter().find(|(option, ..)| has(option)) {
            mistake.message += &format!(" ({option} is from [route_defaults], {at})");
        }
        Some(mistake)
    }

    pub(crate) fn add(&mut self, mistake: Mistake) {
        let Some(mistake) = self.explained(mistake) else {
            self.skipped += 1;
            return;
        };
        if self.is_full() {
            self.dropped += 1;
        } else {
            self.mistakes.push(mistake);
        }
    }

    /// Adds a warning: the setting is valid, but probably unintended.
    pub(crate) fn warn(&mut self, warning: Mistake) {
        let Some(warning) = self.explained(warning) else { return };
        if self.warnings.len() < MOST_MISTAKES && !self.is_full() {
            self.warnings.push(warning);
        }
    }

    fn is_full(&self) -> bool {
        self.mistakes.len() >= MOST_MISTAKES
    }

    /// Whether an expression may use a name whose declaration has a mistake. Counts the expression as skipped.
    pub(crate) fn may_lack_names(&mut self, expression: &str) -> bool {
        let may_lack = self.expression_names.is_incomplete && expression.contains("map.");
        self.skipped += usize::from(may_lack);
        may_lack
    }

    /// Adds the mistake that a text uses a map without key. Returns whether that is the reason why `variable` is unknown, or
    /// may be because of a mistake that is reported already.
    pub(crate) fn refuses_map(&mut self, at: &Span, option: &str, variable: &str) -> bool {
        if variable.starts_with("map.") && self.may_lack_names(variable) {
            return true;
        }
        let Some((why, expected)) = self.expression_names.map_without_key(variable) else { return false };
        self.add(self.mistake(at, format!("{option}: {why}")).expecting(expected));
        true
    }

    /// Remembers an expression, whose option has this name in the file.
    pub(crate) fn note_expression(&mut self, at: &Span, option: String, expression: &Arc<Expression>) {
        self.expressions.push((at.start, option, Arc::clone(expression)));
    }

    /// Adds a mistake about the value of the option `name`.
    pub(crate) fn refuse(&mut self, at: &Span, name: &str, error: &ValueError) {
        let at = &error.fault.offset().map_or(at.clone(), |offset| self.within(at, offset));
        if let Some(variable) = error.fault.unknown_variable()
            && self.refuses_map(at, name, variable)
        {
            return;
        }
        let mistake = self.mistake(at, format!("{name}: {}", error.fault));
        self.add(mistake.expecting(error.expected).meaning(error.fault.meant()));
    }

    /// The position of a byte in a string if the file contains the string literally, otherwise the position of the
    /// string.
    pub(crate) fn within(&self, string: &Span, offset: usize) -> Span {
        let quote =
            |text: &str| !text.starts_with(r#"""""#) && !text.starts_with("'''") && !text.contains('\\');
        let (places, at) = self.place(string);
        let is_verbatim = !self.is_completed(string) && places.text(&at).is_some_and(quote);
        let start = if is_verbatim { (string.start + 1 + offset).min(string.end) } else { string.start };
        start..string.end
    }

    /// Whether there are mistakes, or options that cannot be checked here: what follows from the whole is not known then.
    pub(crate) fn has_mistakes(&self) -> bool {
        !self.mistakes.is_empty() || self.is_left_open
    }

    /// Returns all mistakes and warnings, in the order of the files. If there were too many, only the first ones found.
    pub(crate) fn finish(mut self) -> Findings {
        let files: Vec<String> = self.files.iter().map(|(_, places)| places.file().to_owned()).collect();
        in_order(&mut self.mistakes, &files);
        // What several routes have from one place is one mistake.
        self.mistakes.dedup();
        if let Some(last) = self.mistakes.last().filter(|_| self.dropped > 0) {
            let message = format!("only the first {MOST_MISTAKES} mistakes are listed");
            self.mistakes.push(Mistake {
                message,
                expected: None,
                nearest: None,
                hint: None,
                ..last.clone()
            });
        }
        in_order(&mut self.warnings, &files);
        self.warnings.dedup();
        let expressions = std::mem::take(&mut self.expressions);
        let place = |(offset, option, expression): (usize, String, Arc<Expression>)| {
            let (places, at) = self.place(&(offset..offset));
            let (line, column) = places.line_and_column(at.start);
            WrittenExpression { file: places.file().to_owned(), line, column, option, expression }
        };
        let expressions = expressions.into_iter().map(place).collect();
        Findings {
            mistakes: self.mistakes,
            warnings: self.warnings,
            files,
            secrets: self.secrets,
            expressions,
        }
    }
}

/// The results of reading, besides the options.
pub(crate) struct Findings {
    pub(crate) mistakes: Vec<Mistake>,
    pub(crate) warnings: Vec<Mistake>,
    /// The files that were read.
    pub(crate) files: Vec<String>,
    pub(crate) secrets: Vec<Secret>,
    pub(crate) expressions: Vec<WrittenExpression>,
}

/// An expression of a configuration, and where it is written.
#[derive(Debug, Clone, PartialEq)]
pub struct WrittenExpression {
    pub file: String,
    pub line: usize,
    pub column: usize,
    /// The option, such as `route.when`, `values.app` or `map.tenant.key`.
    pub option: String,
    pub expression: Arc<Expression>,
}

/// Sorts mistakes as their places are in `files`.
pub(crate) fn in_order(mistakes: &mut [Mistake], files: &[String]) {
    mistakes.sort_by_cached_key(|mistake| {
        (files.iter().position(|file| *file == mistake.file), mistake.line, mistake.column)
    });
}

/// Where each key with its value begins and ends, in the order of the file.
fn pieces_of(root: &Spanned<DeTable<'_>>, text: &str) -> Vec<Span> {
    let mut pieces = Vec::new();
    collect_pieces(root.get_ref(), text, 0, &mut pieces);
    pieces.sort_by_key(|piece| piece.start);
    pieces
}

fn collect_pieces(table: &DeTable<'_>, text: &str, depth: usize, pieces: &mut Vec<Span>) {
    for (key, value) in table.iter() {
        let is_inline = text.get(value.span()).is_some_and(|written| written.starts_with('{'));
        match value.get_ref() {
            DeValue::Table(inner) if depth < DEEPEST_TABLE && !is_inline => {
                collect_pieces(inner, text, depth + 1, pieces);
            }
            DeValue::Array(tables) if depth < DEEPEST_TABLE && has_headers(value.span(), tables) => {
                for inner in tables.iter().filter_map(|table| table.get_ref().as_table()) {
                    collect_pieces(inner, text, depth + 1, pieces);
                }
            }
            _ => pieces.push(key.span().start..value.span().end),
        }
    }
}

/// The place of an array of `[[tables]]` is its first header; that of `[…]` is around all its elements.
fn has_headers(array: Span, elements: &[Spanned<DeValue<'_>>]) -> bool {
    elements.first().is_some_and(|first| first.span() == array)
}

fn syntax_mistake(places: &LineMap<'_>, text: &str, span: &Span, message: &str) -> Mistake {
    let (at, PlainWords { message, expected }) = toml_syntax(text, span, message);
    Mistake { expected, ..places.mistake(&at, message) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::surroundings::Machine;

    fn from_text(text: &str) -> (Vec<String>, bool) {
        let sources = Sources::from_text(text, "f", &Machine);
        let (reader, _) = Reader::new(&sources, &Machine, Format::NONE);
        let whole = reader.is_whole();
        (reader.finish().mistakes.iter().map(ToString::to_string).collect(), whole)
    }

    #[test]
    fn syntax_errors_one_for_each_broken_value_or_line() {
        for (text, said, whole) in [
            ("a = 1\n", &[][..], true),
            ("a = 10s\n", &["f:1:5: 10s is not a value; expected text in quotes: \"10s\""], true),
            (
                "a = \nb = 2\nc = \n",
                &["f:1:5: a value is missing after =", "f:3:5: a value is missing after ="],
                true,
            ),
            ("a = \"b\nc = 1\n", &["f:1:7: this text has no closing quote; expected `\"`"], true),
            (
                "a = 08\n",
                &[
                    "f:1:5: 08 is not a number; expected a number such as 80 or 0.5, or text in quotes: \"08\"",
                ],
                true,
            ),
            (
                "a = 127.0.0.1:80\n",
                &["f:1:5: 127.0.0.1:80 is not a value; expected text in quotes: \"127.0.0.1:80\""],
                true,
            ),
            (
                "a = [::1]:80\n",
                &["f:1:5: [::1]:80 is not a value; expected text in quotes: \"[::1]:80\""],
                true,
            ),
            ("a = 1\na = 2\n", &["f:2:1: \"a\" appears twice"], false),
            ("[t]\n[t]\nb = 1\n", &["f:2:2: \"t\" appears twice"], false),
            (
                "a\nb c\n",
                &["f:1:2: key with no value; expected `=`", "f:2:3: key with no value; expected `=`"],
                false,
            ),
        ] {
            assert_eq!(from_text(text), (said.iter().map(ToString::to_string).collect(), whole), "{text}");
        }
        // An unclosed array swallows what follows: one mistake, not one a token.
        assert_eq!(from_text("a = [1,\nb = 2\nc = 3\n[d]\ne = 1\n").0.len(), 1);
    }

    #[test]
    fn of_very_many_mistakes_the_first_are_kept() {
        let text =
            format!("limits = {{ {} }}", (0..20_000).map(|n| format!("k{n} = 1, ")).collect::<String>());
        for text in [text, "a b\n".repeat(20_000)] {
            let mistakes = crate::parse(&text, "f").unwrap_err();
            assert_eq!(mistakes.len(), MOST_MISTAKES + 1);
            assert_eq!(mistakes[MOST_MISTAKES].message, "only the first 1000 mistakes are listed");
        }
    }

    #[test]
    fn deep_nesting_is_refused_not_followed() {
        for text in [
            format!("a = {}", "[".repeat(100_000)),
            format!("a = {}", "{a=".repeat(100_000)),
            format!("[{}a]", "a.".repeat(100_000)),
            format!("{}a = 1", "a.".repeat(100_000)),
        ] {
            let sources = Sources::from_text(&text, "f", &Machine);
            let (reader, _root) = Reader::new(&sources, &Machine, Format::NONE);
            drop(reader);
        }
    }
}
