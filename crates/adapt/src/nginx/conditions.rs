//! Translates the condition of an `if`: a test of one variable.

use regex::RegexBuilder;

use super::truth::{Binding, NginxCondition};
use super::variables::{ResolvedVariable, SetVariables, TextPart, ValueTest, VariableValue, expression_of};
use super::{NginxAdapter, look_ahead};
use crate::draft::StatementOrigin;
use crate::rules::literal;
use crate::values;

/// Choices with more tests become maps.
pub(super) const TESTS_MAX: usize = 30;

/// Why a condition has no translation: Vanward's ask for no files.
pub(super) const ASKS_FOR_FILES: &str = "the condition asks for files";

pub(super) enum VariableTest {
    /// Neither empty nor `0`.
    IsSet,
    Equal {
        value: VariableValue,
        is_not: bool,
    },
    Matches {
        pattern: String,
        is_not: bool,
    },
}

/// A translated condition, and the directives that declare or set its variables.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TestedCondition {
    pub(super) condition: NginxCondition,
    pub(super) used: Vec<usize>,
    /// Whether it compares the path as it was sent with one whose escapes are decoded.
    pub(super) is_decoded: bool,
}

impl NginxAdapter<'_> {
    /// Translates the words of an `if`.
    ///
    /// # Errors
    /// Why there is no translation.
    pub(super) fn tested(
        &mut self,
        words: &[String],
        sets: &SetVariables,
    ) -> Result<TestedCondition, String> {
        let tested = self.tested_later(words, sets)?;
        match tested.condition.written().contains("response.") {
            true => Err("its variable is known only after the response".to_owned()),
            false => Ok(tested),
        }
    }

    /// As [`tested`](Self::tested), where the response is known.
    pub(super) fn tested_later(
        &mut self,
        words: &[String],
        sets: &SetVariables,
    ) -> Result<TestedCondition, String> {
        let mut words: Vec<String> = words.to_vec();
        match words.first_mut() {
            Some(first) if first.starts_with('(') => drop(first.remove(0)),
            _ => return Err("the condition has no brackets".to_owned()),
        }
        if let Some(last) = words.last_mut() {
            *last = last.strip_suffix(')').unwrap_or(last).to_owned();
        }
        words.retain(|word| !word.is_empty());
        let (name, sign, value) = match words.as_slice() {
            [name] => (name, "", String::new()),
            [name, sign, value @ ..] => (name, sign.as_str(), value.join(" ")),
            [] => return Err("the condition is empty".to_owned()),
        };
        if matches!(name.trim_start_matches('!'), "-f" | "-d" | "-e" | "-x") {
            return Err(ASKS_FOR_FILES.to_owned());
        }
        if !name.starts_with('$') {
            return Err("the condition tests no variable".to_owned());
        }
        let mut resolved = self.declarations.text(name, sets)?;
        let is_not = sign.starts_with('!');
        let test = match sign.trim_start_matches('!') {
            "" => VariableTest::IsSet,
            "=" => {
                let other = self.declarations.text(&value, sets)?;
                resolved.used.extend(other.used);
                VariableTest::Equal { value: other.value, is_not }
            }
            sign @ ("~" | "~*") => {
                let pattern = match look_ahead::split(&value) {
                    Some(_) if sign == "~" => value,
                    _ => values::search(&value, sign == "~*")?,
                };
                VariableTest::Matches { pattern, is_not }
            }
            _ => return Err("the condition is not understood".to_owned()),
        };
        if let VariableTest::Matches { pattern, is_not } = &test
            && let Some(parts) = look_ahead::split(pattern)
        {
            return self.looked_ahead(&parts, *is_not, &resolved, name);
        }
        let is_decoded = resolved.value.is_decoded();
        let compared = match &test {
            VariableTest::Matches { pattern, .. } => pattern.as_str(),
            VariableTest::Equal { value, .. } => value.as_constant().unwrap_or_default(),
            VariableTest::IsSet => "",
        };
        if is_decoded && compared.contains('%') {
            return Err(format!("{compared} has an escape, and paths are compared without"));
        }
        let condition = self.condition(&resolved, &test, name.trim_start_matches('$'))?;
        let used: Vec<usize> = resolved.used.into_iter().collect();
        self.sheet.met.extend(used.iter().copied());
        Ok(TestedCondition { condition, used, is_decoded })
    }

    /// A test with an expression that looks ahead in one of its alternatives.
    fn looked_ahead(
        &mut self,
        parts: &look_ahead::Parts,
        is_not: bool,
        resolved: &ResolvedVariable,
        name: &str,
    ) -> Result<TestedCondition, String> {
        let mut is = |pattern: &str| {
            let test = VariableTest::Matches { pattern: values::search(pattern, false)?, is_not: false };
            self.condition(resolved, &test, name.trim_start_matches('$'))
        };
        let ahead = NginxCondition::all(vec![is(&parts.with)?, is(&parts.not)?.negated()]);
        let rest = match &parts.others {
            Some(others) => is(others)?,
            None => NginxCondition::Known(false),
        };
        let condition = NginxCondition::any(vec![rest, ahead]).negated_if(is_not);
        let used: Vec<usize> = resolved.used.iter().copied().collect();
        self.sheet.met.extend(used.iter().copied());
        Ok(TestedCondition { condition, used, is_decoded: resolved.value.is_decoded() })
    }

    /// Applies a test to a value. `base` names the map that it may become.
    ///
    /// # Errors
    /// Why there is no translation.
    pub(super) fn condition(
        &mut self,
        resolved: &ResolvedVariable,
        test: &VariableTest,
        base: &str,
    ) -> Result<NginxCondition, String> {
        if resolved.value.leaves().len() > TESTS_MAX {
            if let VariableTest::Equal { value, .. } = test
                && value.as_constant().is_none()
            {
                return Err("it compares two variables".to_owned());
            }
            let text = self.expression(resolved, base)?;
            return Ok(test.on_text(&text, false));
        }
        test.on(&resolved.value)
    }
}

impl VariableTest {
    pub(super) fn on(&self, value: &VariableValue) -> Result<NginxCondition, String> {
        let (tests, otherwise) = match value {
            VariableValue::Text(parts) => return self.on_parts(parts),
            VariableValue::Choice { tests, otherwise } => (tests, otherwise),
        };
        let results = tests.iter().map(|(_, value)| self.on(value)).collect::<Result<Vec<_>, _>>()?;
        let mut known = self.on(otherwise)?;
        let mut rest: &[(ValueTest, VariableValue)] = tests;
        while let Some(last) = rest.len().checked_sub(1) {
            let result = results[last].clone();
            let alike = results[..rest.len()].iter().rev().take_while(|other| **other == result).count();
            let (before, group) = rest.split_at(rest.len() - alike);
            known = ValueTest::any(group.iter().map(|(test, _)| test)).choose(result, known);
            rest = before;
        }
        Ok(known)
    }

    fn on_parts(&self, parts: &[TextPart]) -> Result<NginxCondition, String> {
        if let Some(constant) = VariableValue::Text(parts.to_vec()).as_constant() {
            return self.on_constant(constant);
        }
        let expression = expression_of(parts)?;
        if let Self::Equal { value: VariableValue::Text(other), is_not } = self
            && VariableValue::Text(other.clone()).as_constant().is_none()
        {
            let other = expression_of(other)?;
            let sign = if *is_not { "!=" } else { "==" };
            return Ok(NginxCondition::Text(
                format!("{} {sign} {}", expression.text, other.text),
                Binding::Comparison,
            ));
        }
        if let Self::Equal { value: VariableValue::Choice { .. }, .. } = self {
            return Err("it compares two variables".to_owned());
        }
        Ok(self.on_text(&expression.text, expression.is_set))
    }

    /// On a text that is no constant. `is_set` tells whether it is neither empty nor `0`.
    fn on_text(&self, text: &str, is_set: bool) -> NginxCondition {
        match self {
            Self::IsSet if is_set => NginxCondition::Known(true),
            Self::IsSet => NginxCondition::among(text, &["", "0"]).negated(),
            Self::Equal { value, is_not } => match value.as_constant() {
                Some("") if is_set => NginxCondition::Known(*is_not),
                constant => NginxCondition::equal(text, constant.unwrap_or_default()).negated_if(*is_not),
            },
            Self::Matches { pattern, is_not } => {
                NginxCondition::call(format!("{text}.matches({})", literal(pattern))).negated_if(*is_not)
            }
        }
    }

    fn on_constant(&self, text: &str) -> Result<NginxCondition, String> {
        Ok(match self {
            Self::IsSet => NginxCondition::Known(!matches!(text, "" | "0")),
            Self::Equal { value, is_not } => match value.as_constant() {
                Some(wanted) => NginxCondition::Known((text == wanted) != *is_not),
                None => {
                    let swapped = Self::Equal { value: VariableValue::constant(text), is_not: *is_not };
                    swapped.on(value)?
                }
            },
            Self::Matches { pattern, is_not } => {
                let pattern = RegexBuilder::new(pattern).unicode(false).build();
                NginxCondition::Known(pattern.is_ok_and(|pattern| pattern.is_match(text)) != *is_not)
            }
        })
    }
}

/// The directives of a condition or value, for comments.
pub(super) fn origins(used: impl IntoIterator<Item = usize>) -> Vec<StatementOrigin> {
    used.into_iter().map(StatementOrigin::Directive).collect()
}
