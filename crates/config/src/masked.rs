//! Prints a configuration without its secrets.
//!
//! What came from a file or a variable with a secret is printed as the reference that stands for it, so that the text means
//! the same. What is written in fields of requests and responses that carry secrets is replaced by asterisks.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::checked::Config;
use crate::read::Reading;
use crate::settings::Settings;
use crate::substitution::{Secret, is_named_like_a_secret};

/// What stands for a secret that is written in the file.
const MASK: &str = "***";

/// Fields whose values are secret, besides those whose name says so.
const SECRET_FIELDS: [&str; 4] = ["authorization", "proxy-authorization", "cookie", "set-cookie"];

/// Words in front of credentials (RFC 9110 §11.1), which are no secrets themselves.
const SCHEMES: [&str; 5] = ["basic", "bearer", "digest", "negotiate", "token"];

impl Reading {
    /// The configuration as one file with all options, without secrets; `None` if there are mistakes.
    pub fn printed(&self) -> Option<String> {
        Some(printed(self.config.as_ref()?, &self.secrets))
    }

    /// Whether a secret is written in the files themselves, rather than referred to.
    pub fn has_written_secrets(&self) -> bool {
        let Some(config) = &self.config else { return false };
        let text = config.to_toml();
        DeTable::parse(&text).is_ok_and(|root| {
            let mut masks = Masks { secrets: &self.secrets, replaced: Vec::new() };
            masks.table(root.get_ref());
            masks.replaced.iter().any(|(_, value)| value == MASK)
        })
    }
}

impl Config {
    /// Settings that were made from the configuration as one file with all options, without its secrets.
    pub fn printed(&self, settings: &Settings) -> String {
        printed(settings, self.secrets())
    }
}

fn printed(settings: &Settings, secrets: &[Secret]) -> String {
    let text = settings.to_toml();
    let Ok(root) = DeTable::parse(&text) else { return text };
    let mut masks = Masks { secrets, replaced: Vec::new() };
    masks.table(root.get_ref());
    let Masks { mut replaced, .. } = masks;
    replaced.sort_by_key(|(at, _)| at.start);
    let (mut masked, mut rest) = (String::with_capacity(text.len()), 0);
    for (at, value) in replaced {
        masked += &text[rest..at.start];
        masked += &toml_text::quoted(&value);
        rest = at.end;
    }
    masked + &text[rest..]
}

struct Masks<'r> {
    secrets: &'r [Secret],
    /// Texts of the file, and what is printed instead.
    replaced: Vec<(Range<usize>, String)>,
}

impl Masks<'_> {
    fn table(&mut self, table: &DeTable<'_>) {
        for (key, value) in table.iter() {
            self.value(key.get_ref(), value);
        }
    }

    fn value(&mut self, name: &str, value: &Spanned<DeValue<'_>>) {
        match value.get_ref() {
            DeValue::Table(table) => self.table(table),
            DeValue::Array(elements) => elements.iter().for_each(|element| self.value(name, element)),
            DeValue::String(text) => {
                let (referred, open) = referred(text, self.secrets);
                let printed = if is_secret_field(name) && tells(&open) { MASK.to_owned() } else { referred };
                if printed != *text {
                    self.replaced.push((value.span(), printed));
                }
            }
            _ => {}
        }
    }
}

/// Whether a name is the one of a field that carries a secret. Options have no hyphens and no capital letters.
fn is_secret_field(name: &str) -> bool {
    let is_field = name.contains(|byte: char| byte == '-' || byte.is_ascii_uppercase());
    let lower = name.to_ascii_lowercase();
    SECRET_FIELDS.contains(&lower.as_str()) || (is_field && is_named_like_a_secret(name))
}

/// The text with references instead of secrets, and the text without them.
fn referred(text: &str, secrets: &[Secret]) -> (String, String) {
    let mut forms: Vec<(String, &str)> = Vec::new();
    for Secret { value, reference } in secrets {
        for form in [value.replace('$', "$$"), toml_text::unexpanded(value), value.clone()] {
            if text.contains(&form) && !forms.iter().any(|(known, _)| *known == form) {
                forms.push((form, reference));
            }
        }
    }
    // The longest first: one secret may be a part of another.
    forms.sort_by_key(|(form, _)| std::cmp::Reverse(form.len()));
    let (mut printed, mut open, mut rest) = (String::new(), String::new(), text);
    while let Some(next) = rest.chars().next() {
        match forms.iter().find(|(form, _)| rest.starts_with(form.as_str())) {
            // A dollar sign in front of a reference would make it a text.
            Some(_) if printed.ends_with('$') => return (MASK.to_owned(), String::new()),
            Some((form, reference)) => {
                printed += reference;
                rest = &rest[form.len()..];
            }
            None => {
                printed.push(next);
                open.push(next);
                rest = &rest[next.len_utf8()..];
            }
        }
    }
    (printed, open)
}

/// Whether a text says more than a scheme and variables of the request.
fn tells(text: &str) -> bool {
    let is_scheme = |word: &str| SCHEMES.iter().any(|scheme| scheme.eq_ignore_ascii_case(word));
    let is_variable = |word: &str| word.starts_with('$') && !word[1..].contains('$');
    text.split_whitespace().any(|word| !is_scheme(word) && !is_variable(word))
}
