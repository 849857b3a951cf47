//! Reports all mistakes of a text with a parser that stops at the first one. It replaces the text of a mistake with
//! spaces, so that positions stay, and parses again.
//!
//! Removed text is not reported as missing afterwards.

use std::collections::HashSet;
use std::ops::Range;

use mistake::{LineMap, Mistake, PlainWords, nearest, toml_syntax, value_error};
use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

const MISTAKES_MOST: usize = 200;
/// Maximum nesting depth: deeper than any table of a plan.
const DEPTH_MOST: usize = 8;

pub(super) struct Every<T> {
    /// Value of the text, if it could be understood.
    pub(super) value: Option<T>,
    /// In the order of the text.
    pub(super) mistakes: Vec<Mistake>,
    /// No line of the text was removed.
    is_whole: bool,
    /// Removed keys, and similar known keys.
    taken: HashSet<String>,
}

impl<T> Every<T> {
    /// Whether a missing key is really missing, and was not removed.
    pub(super) fn lacks(&self, key: &str) -> bool {
        self.is_whole && !self.taken.contains(key)
    }
}

pub(super) fn read<T: DeserializeOwned>(text: &str, file: &str) -> Every<T> {
    let places = LineMap::new(text, file);
    let mut left = text.to_owned();
    let mut mistakes = syntax(&mut left, &places);
    let is_whole = mistakes.is_empty();
    let mut taken = HashSet::new();
    let mut value = None;
    while mistakes.len() < MISTAKES_MOST {
        let error = match toml::from_str(&left) {
            Ok(read) => {
                value = Some(read);
                break;
            }
            Err(error) => error,
        };
        let span = error.span().unwrap_or_default();
        let missing = error.message().strip_prefix("missing field `").and_then(|rest| rest.split('`').next());
        if missing.is_none_or(|name| is_whole && !taken.contains(name)) {
            let mistake = told(&places, &span, error.message());
            taken.extend(mistake.nearest.clone());
            mistakes.push(mistake);
        }
        let done = match missing {
            Some(_) => take_table(&mut left, &span, &mut taken),
            None => take_piece(&mut left, &span, &mut taken),
        };
        if !done {
            break;
        }
    }
    mistakes.sort_by_key(|mistake| (mistake.line, mistake.column));
    Every { value, mistakes, is_whole, taken }
}

/// Message of the parser; for a misspelt name, with the most similar known name.
fn told(places: &LineMap<'_>, span: &Range<usize>, message: &str) -> Mistake {
    let is_unknown = message.starts_with("unknown");
    let mut names = message.split('`').skip(1).step_by(2);
    let meant = names.next().filter(|_| is_unknown).and_then(|written| nearest(written, names));
    let PlainWords { message, expected } = value_error(message);
    // A mistake about a whole table is marked only at its first line.
    let end = places.text(span).and_then(|text| text.find('\n')).map_or(span.end, |line| span.start + line);
    let mistake = places.mistake(&(span.start..end), message).meaning(meant.map(str::to_owned));
    Mistake { expected, ..mistake }
}

/// Reports one mistake for each line that is not TOML, and removes the lines.
fn syntax(left: &mut String, places: &LineMap<'_>) -> Vec<Mistake> {
    let mut mistakes = Vec::new();
    let whole = left.clone();
    for round in 0..MISTAKES_MOST {
        let (_, errors) = DeTable::parse_recoverable(left);
        let spans: Vec<(Range<usize>, String)> =
            errors.iter().map(|error| (error.span().unwrap_or(0..0), error.message().to_owned())).collect();
        if spans.is_empty() {
            break;
        }
        let mut lines = HashSet::new();
        for (span, message) in spans {
            // Later mistakes are consequences of the removal.
            if lines.insert(places.line(span.start)) && round == 0 && mistakes.len() < MISTAKES_MOST {
                let (at, PlainWords { message, expected }) = toml_syntax(&whole, &span, &message);
                mistakes.push(Mistake { expected, ..places.mistake(&at, message) });
            }
            let start = left[..span.start.min(left.len())].rfind('\n').map_or(0, |at| at + 1);
            let end = left[start..].find('\n').map_or(left.len(), |at| start + at);
            blank(left, start..end);
        }
    }
    mistakes
}

/// Removes the smallest piece around a position: a key with its value, an element, or a table with its header.
fn take_piece(left: &mut String, span: &Range<usize>, taken: &mut HashSet<String>) -> bool {
    let Ok(root) = DeTable::parse(left) else { return false };
    let mut pieces = Vec::new();
    collect(root.get_ref(), 0, &mut pieces);
    let around = pieces.into_iter().filter(|(piece, _)| piece.start <= span.start && span.start < piece.end);
    let Some((piece, name)) = around.min_by_key(|(piece, _)| piece.len()) else { return false };
    taken.extend(name);
    if is_header(left, piece.start) {
        return take_table(left, &piece, taken);
    }
    let behind = left[piece.end..].find(|character: char| !character.is_whitespace());
    let before = left[..piece.start].rfind(|character: char| !character.is_whitespace());
    match (behind.map(|at| piece.end + at), before) {
        (Some(comma), _) if left[comma..].starts_with(',') => blank(left, comma..comma + 1),
        (_, Some(comma)) if left[comma..].starts_with(',') => blank(left, comma..comma + 1),
        _ => {}
    }
    blank(left, piece);
    true
}

/// Removes the table with the header at or before a position, with its subtables. The top level is not a table.
fn take_table(left: &mut String, span: &Range<usize>, taken: &mut HashSet<String>) -> bool {
    let starts = std::iter::once(0).chain(left.match_indices('\n').map(|(at, _)| at + 1));
    let headers: Vec<usize> = starts.filter(|start| is_header(left, *start)).collect();
    let end_of_line = left[span.start..].find('\n').map_or(left.len(), |at| span.start + at);
    let Some(place) = headers.iter().rposition(|start| *start <= end_of_line) else { return false };
    let name = |start: usize| {
        let line = left[start..].lines().next().unwrap_or_default();
        line.trim().trim_matches(['[', ']']).to_owned()
    };
    let own = name(headers[place]);
    taken.extend(own.split('.').next().map(str::to_owned));
    let below = format!("{own}.");
    let end = headers[place + 1..].iter().find(|start| !name(**start).starts_with(&below));
    blank(left, headers[place]..end.copied().unwrap_or(left.len()));
    true
}

fn is_header(text: &str, at: usize) -> bool {
    let start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    text[start..].trim_start_matches([' ', '\t']).starts_with('[')
}

/// Collects keys with their values, and elements of arrays, each with its position.
fn collect(table: &DeTable<'_>, depth: usize, pieces: &mut Vec<(Range<usize>, Option<String>)>) {
    for (key, value) in table.iter() {
        let end = value.span().end.max(key.span().end);
        pieces.push((key.span().start..end, Some(key.get_ref().to_string())));
        collect_value(value, depth, pieces);
    }
}

fn collect_value(
    value: &Spanned<DeValue<'_>>,
    depth: usize,
    pieces: &mut Vec<(Range<usize>, Option<String>)>,
) {
    match value.get_ref() {
        DeValue::Table(inner) if depth < DEPTH_MOST => collect(inner, depth + 1, pieces),
        DeValue::Array(elements) if depth < DEPTH_MOST => {
            for element in elements.iter() {
                if !matches!(element.get_ref(), DeValue::Table(_)) {
                    pieces.push((element.span(), None));
                }
                collect_value(element, depth + 1, pieces);
            }
        }
        _ => {}
    }
}

/// Replaces text with spaces, and keeps line ends.
fn blank(text: &mut String, range: Range<usize>) {
    let spaces: String = text[range.clone()]
        .chars()
        .flat_map(|character| {
            let space = if character == '\n' { '\n' } else { ' ' };
            std::iter::repeat_n(space, character.len_utf8())
        })
        .collect();
    text.replace_range(range, &spaces);
}
