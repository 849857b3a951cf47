//! Texts with variables: Vanward's own, and values for those that the configuration declares or sets.

use super::conditions::origins;
use super::scope::BlockScope;
use super::servers::RouteEntry;
use super::values::{split_name, variable};
use super::variables::{ResolvedVariable, TextPart, VariableValue};
use super::{NginxAdapter, facts};

/// A part of a text with variables.
pub(super) enum TemplatePart {
    Text(String),
    /// The name of a variable here.
    Variable(String),
}

/// Whether the expression of a route's path has a group with a name.
fn has_group(path: &str, name: &str) -> bool {
    path.starts_with('~') && ["(?<", "(?P<"].iter().any(|begin| path.contains(&format!("{begin}{name}>")))
}

/// When a text is filled in, which decides what variables it can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FilledIn {
    Before,
    WithResponse,
}

impl<'s> NginxAdapter<'s> {
    /// Converts a text with variables. The route of `entry` gets values that depend on its block.
    ///
    /// # Errors
    /// The variable that is not supported, and why.
    pub(super) fn template(
        &mut self,
        text: &str,
        scope: &BlockScope<'s>,
        entry: &mut RouteEntry,
    ) -> Result<String, String> {
        Ok(written(&self.parts(text, scope, entry, FilledIn::Before)?))
    }

    /// As [`template`](Self::template), for a text that is filled in with the response.
    ///
    /// # Errors
    /// The variable that is not supported, and why.
    pub(super) fn template_of_response(
        &mut self,
        text: &str,
        scope: &BlockScope<'s>,
        entry: &mut RouteEntry,
    ) -> Result<String, String> {
        Ok(written(&self.parts(text, scope, entry, FilledIn::WithResponse)?))
    }

    /// Converts the body of a response, in which variables have braces.
    ///
    /// # Errors
    /// The variable that is not supported, and why.
    pub(super) fn body_template(
        &mut self,
        text: &str,
        scope: &BlockScope<'s>,
        entry: &mut RouteEntry,
    ) -> Result<String, String> {
        let written = |part| match part {
            TemplatePart::Text(text) => text.replace("${", "$${"),
            TemplatePart::Variable(name) => format!("${{{name}}}"),
        };
        Ok(self.parts(text, scope, entry, FilledIn::Before)?.into_iter().map(written).collect())
    }

    fn parts(
        &mut self,
        text: &str,
        scope: &BlockScope<'s>,
        entry: &mut RouteEntry,
        when: FilledIn,
    ) -> Result<Vec<TemplatePart>, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(dollar) = rest.find('$') {
            push_text(&mut parts, &rest[..dollar]);
            let (name, behind) = split_name(&rest[dollar + 1..]);
            if name.is_empty() {
                push_text(&mut parts, "$");
            } else if name.bytes().all(|byte| byte.is_ascii_digit()) && !scope.sets().contains_key(name) {
                // A group of the route's path.
                parts.push(TemplatePart::Variable(name.to_owned()));
            } else if !scope.sets().contains_key(name) && has_group(&entry.path, name) {
                parts.push(TemplatePart::Variable(format!("capture.{name}")));
            } else {
                let resolved = self.declarations.text(&format!("${{{name}}}"), scope.sets())?;
                self.value_parts(name, &resolved, (&mut *entry, when), &mut parts)?;
            }
            rest = behind;
        }
        push_text(&mut parts, rest);
        Ok(parts)
    }

    /// Adds a variable: a choice as a value, other texts in their parts.
    fn value_parts(
        &mut self,
        name: &str,
        resolved: &ResolvedVariable,
        (entry, when): (&mut RouteEntry, FilledIn),
        parts: &mut Vec<TemplatePart>,
    ) -> Result<(), String> {
        let VariableValue::Text(all) = &resolved.value else {
            let value = match when {
                FilledIn::Before => self.value(name, resolved, Some(entry))?,
                FilledIn::WithResponse => self.known_value(name, resolved, Some(entry))?,
            };
            parts.push(TemplatePart::Variable(value));
            return Ok(());
        };
        for part in all {
            match part {
                TextPart::Constant(text) => push_text(parts, text),
                TextPart::NginxFact(name) => match variable(name) {
                    Some(here) => parts.push(TemplatePart::Variable(here)),
                    None => {
                        let value = VariableValue::Text(vec![part.clone()]);
                        let value = self.value(
                            name,
                            &ResolvedVariable { value, ..ResolvedVariable::constant("") },
                            None,
                        )?;
                        parts.push(TemplatePart::Variable(value));
                    }
                },
            }
        }
        for number in &resolved.used {
            self.sheet.needless(*number, "its value is written where it is used");
        }
        Ok(())
    }

    /// Defines a value: for all routes, unless it depends on the block of `entry`. Returns its name.
    ///
    /// # Errors
    /// Why that is not possible.
    pub(super) fn value(
        &mut self,
        base: &str,
        resolved: &ResolvedVariable,
        entry: Option<&mut RouteEntry>,
    ) -> Result<String, String> {
        match resolved.value.is_late() {
            true => Err(format!("${base} is known only after the response")),
            false => self.known_value(base, resolved, entry),
        }
    }

    /// As [`value`](Self::value), for a place that is filled in with the response.
    ///
    /// # Errors
    /// Why that is not possible.
    pub(super) fn known_value(
        &mut self,
        base: &str,
        resolved: &ResolvedVariable,
        entry: Option<&mut RouteEntry>,
    ) -> Result<String, String> {
        let text = facts::without_brackets(self.expression(resolved, base)?);
        let from = origins(resolved.used.iter().copied());
        match entry.filter(|_| resolved.is_of_block) {
            Some(entry) => self.sheet.definitions.value_of_route(&mut entry.options, base, &text, from),
            None => self.sheet.definitions.value(base, &text, from),
        }
    }
}

/// Writes a text with variables. They have braces before a character that could belong to their names; values always.
pub(super) fn written(parts: &[TemplatePart]) -> String {
    let joins = |next: char| next.is_ascii_alphanumeric() || matches!(next, '_' | '.' | '-');
    let mut made = String::new();
    for (index, part) in parts.iter().enumerate() {
        match part {
            TemplatePart::Text(text) => made.push_str(&text.replace('$', "$$")),
            TemplatePart::Variable(name) => {
                let is_joined = match parts.get(index + 1) {
                    Some(TemplatePart::Text(text)) => text.starts_with(joins),
                    _ => false,
                };
                made.push_str(&if is_joined || !is_variable(name) {
                    format!("${{{name}}}")
                } else {
                    format!("${name}")
                });
            }
        }
    }
    made
}

/// Whether a name is no value.
fn is_variable(name: &str) -> bool {
    let family = name.split_once('.').map_or(name, |(family, _)| family);
    route::is_variable(family)
        || name.bytes().all(|byte| byte.is_ascii_digit())
        || logline::field_names().any(|field| field == name)
}

fn push_text(parts: &mut Vec<TemplatePart>, text: &str) {
    match parts.last_mut() {
        _ if text.is_empty() => {}
        Some(TemplatePart::Text(known)) => known.push_str(text),
        _ => parts.push(TemplatePart::Text(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::SourceFiles;

    #[test]
    fn variables_have_the_names_of_here() {
        let source = SourceFiles::default();
        let mut adapter = NginxAdapter::new(&source);
        for (nginx, here) in [
            ("https://$host$request_uri", Ok("https://$host$path_and_query")),
            ("$http_x_api_key", Ok("$header.X-Api-Key")),
            ("a${host}b", Ok("a${host}b")),
            ("/new/$1.html", Ok("/new/${1}.html")),
            ("/new/$1/x", Ok("/new/$1/x")),
            ("a$", Ok("a$$")),
            ("$cookie_id;$arg_q", Ok("$cookie.id;$arg.q")),
            // A value.
            ("$uri$is_args$args", Ok("$path${is_args}$query")),
            ("$geoip_country", Err("there is no variable $geoip_country")),
        ] {
            let mut entry = RouteEntry::new("/", Vec::new());
            let made = adapter.template(nginx, &BlockScope::from_level(&[]), &mut entry);
            assert_eq!(made.as_deref().map_err(String::as_str), here, "{nginx}");
        }
    }
}
