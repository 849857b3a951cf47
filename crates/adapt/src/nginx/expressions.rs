//! Writes values of variables as expressions: choices, or maps with many entries.

use super::NginxAdapter;
use super::conditions::{TESTS_MAX, origins};
use super::facts::without_brackets;
use super::variables::{MapKeyKind, ResolvedVariable, ValueTest, VariableValue, expression_of};
use crate::definitions::DraftMap;

/// Choices with fewer tests are written out.
const MAP_TESTS_MIN: usize = 4;
/// The longest expression, and the longest keys and values of maps: those of Vanward.
pub(super) const EXPRESSION_BYTES_MAX: usize = 8192;
const KEY_BYTES_MAX: usize = 1024;
const VALUE_BYTES_MAX: usize = 4096;

impl NginxAdapter<'_> {
    /// Writes a value. `base` names the maps that it needs.
    ///
    /// # Errors
    /// Why it has no translation.
    pub(super) fn expression(&mut self, resolved: &ResolvedVariable, base: &str) -> Result<String, String> {
        let text = self.part(&resolved.value, resolved, base)?;
        match text.len() {
            ..=EXPRESSION_BYTES_MAX => Ok(text),
            _ => Err(format!("the expression would be longer than {EXPRESSION_BYTES_MAX} bytes")),
        }
    }

    fn part(
        &mut self,
        value: &VariableValue,
        resolved: &ResolvedVariable,
        base: &str,
    ) -> Result<String, String> {
        if let VariableValue::Choice { tests, otherwise } = value
            && tests.len() >= MAP_TESTS_MIN
            && tests.iter().all(|(test, value)| is_entry(test, value))
        {
            return self.mapped(tests, otherwise, resolved, base);
        }
        chain(value)
    }

    /// Writes a choice as maps, one for each kind of keys: the first that has the key gives the value.
    fn mapped(
        &mut self,
        tests: &[(ValueTest, VariableValue)],
        otherwise: &VariableValue,
        resolved: &ResolvedVariable,
        base: &str,
    ) -> Result<String, String> {
        let (mut runs, mut of_empty): (Vec<KeyRun<'_>>, _) = (Vec::new(), None);
        for (test, value) in tests {
            let (ValueTest::Key { kind, source, key }, Some(value)) = (test, value.as_constant()) else {
                continue;
            };
            if key.is_empty() && *kind == MapKeyKind::Exact {
                // A map has no empty key.
                of_empty.get_or_insert((test.condition(), value));
                continue;
            }
            let entry = (key.clone(), value.to_owned());
            match runs.last_mut() {
                Some(run) if run.kind == *kind && run.source == source => run.entries.push(entry),
                _ => runs.push(KeyRun { kind: *kind, source, entries: vec![entry] }),
            }
        }
        let mut names = Vec::with_capacity(runs.len());
        let count = runs.len();
        for (index, KeyRun { kind, source, entries }) in runs.into_iter().enumerate() {
            let is_last = index + 1 == count;
            let default = otherwise.as_constant().filter(|_| is_last).map(str::to_owned);
            let key = Some(without_brackets(source.to_owned()));
            let map = DraftMap { kind: kind.word(), key, default, entries };
            let from = origins(resolved.used.iter().copied());
            names.push(self.sheet.definitions.map(base, map, from)?);
        }
        if otherwise.as_constant().is_none() || names.is_empty() {
            names.push(operand(otherwise)?);
        }
        let text = names.join(" ?? ");
        let text = if names.len() > 1 { format!("({text})") } else { text };
        Ok(match of_empty {
            Some((condition, value)) => {
                format!("({} ? {} : {text})", condition.operand(), crate::rules::literal(value))
            }
            None => text,
        })
    }
}

/// Entries of one map.
struct KeyRun<'v> {
    kind: MapKeyKind,
    source: &'v str,
    entries: Vec<(String, String)>,
}

impl MapKeyKind {
    fn word(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Prefix => "prefix",
            Self::Suffix => "suffix",
            Self::Network => "network",
            Self::Regex => "regex",
        }
    }
}

/// Whether a map can have a test as an entry.
fn is_entry(test: &ValueTest, value: &VariableValue) -> bool {
    let is_key = matches!(test, ValueTest::Key { key, .. } if key.len() <= KEY_BYTES_MAX);
    let is_value = |text: &str| text.len() <= VALUE_BYTES_MAX && !text.chars().any(char::is_control);
    is_key && value.as_constant().is_some_and(is_value)
}

/// Writes a value with its tests.
///
/// # Errors
/// There are too many tests, or a variable has no expression.
pub(super) fn chain(value: &VariableValue) -> Result<String, String> {
    let (tests, otherwise) = match value {
        VariableValue::Text(parts) => return expression_of(parts).map(|expression| expression.text),
        VariableValue::Choice { tests, otherwise } => (tests, otherwise),
    };
    if value.leaves().len() > TESTS_MAX {
        return Err(format!("it depends on more than {TESTS_MAX} conditions"));
    }
    let mut text = chain(otherwise)?;
    let mut rest: &[(ValueTest, VariableValue)] = tests;
    while let Some((_, last)) = rest.last() {
        let alike = rest.iter().rev().take_while(|(_, other)| other == last).count();
        let (before, group) = rest.split_at(rest.len() - alike);
        let is_needless = before.len() + alike == tests.len() && last == otherwise.as_ref();
        if !is_needless {
            let any = ValueTest::any(group.iter().map(|(test, _)| test));
            text = format!("{} ? {} : {text}", any.operand(), operand(last)?);
        }
        rest = before;
    }
    Ok(text)
}

/// Writes a value as a part of a larger expression.
fn operand(value: &VariableValue) -> Result<String, String> {
    let text = chain(value)?;
    Ok(if matches!(value, VariableValue::Choice { .. }) { format!("({text})") } else { text })
}
