//! HaproxyVariables of HAProxy (`set-var`) as values of Vanward, in the order of the rules.

use std::collections::{BTreeMap, BTreeSet};

use super::expressions::Sample;
use super::syntax::HaproxyLine;
use crate::definitions::Definitions;
use crate::draft::StatementOrigin;
use crate::rules::literal;
use crate::values::bare;

/// The most variables of a frontend with its backends.
const VARIABLES_MAX: usize = 100;

/// HaproxyVariables as they are behind a rule.
#[derive(Debug, Clone, Default)]
pub(super) struct HaproxyVariables {
    known: BTreeMap<String, Result<HaproxyVariable, String>>,
    /// Names that rules have changed, as in expressions: `request.path`.
    changed: BTreeSet<String>,
    /// Whether a rule may have skipped those after it.
    has_allowed: bool,
}

#[derive(Debug, Clone)]
struct HaproxyVariable {
    /// An expression that is empty where the variable is not set.
    text: String,
    /// The condition under which it is set; `None`: always.
    found: Option<String>,
    possible: Option<BTreeSet<String>>,
    from: Vec<StatementOrigin>,
}

impl HaproxyVariables {
    /// The value of a variable.
    ///
    /// # Errors
    /// Why it has no translation.
    pub(super) fn sample(&self, name: &str, definitions: &mut Definitions) -> Result<Sample, String> {
        match self.known.get(name) {
            None => Err(format!("no rule before sets {name}")),
            Some(Err(why)) => Err(format!("{name} is not known: {why}")),
            Some(Ok(HaproxyVariable { text, found, possible, from })) => {
                let is_constant =
                    possible.as_ref().is_some_and(|possible| possible.len() == 1) && found.is_none();
                let text = match is_constant {
                    true => text.clone(),
                    false => format!("values.{}", definitions.value(name, bare(text), from.clone())?),
                };
                let is_never_empty = possible.as_ref().is_some_and(|possible| !possible.contains(""));
                let found = found.as_ref().map(|found| match is_never_empty {
                    true => format!("{text} != \"\""),
                    false => found.clone(),
                });
                Ok(Sample::named(text, found, possible.clone()))
            }
        }
    }

    /// HaproxyVariables for responses: those of `req.` are gone, and those with these names may have been set by a backend.
    pub(super) fn of_responses(&self, names: &BTreeSet<&str>) -> Self {
        let mut made = self.clone();
        made.known.retain(|name, _| !name.starts_with("req."));
        for name in names {
            made.known.insert((*name).to_owned(), Err("a backend may set it".to_owned()));
        }
        made
    }

    /// Applies a rule that sets a variable, under a condition if it has one.
    pub(super) fn set(
        &mut self,
        line: &HaproxyLine,
        name: &str,
        sample: Result<Sample, String>,
        condition: Result<Option<String>, String>,
        definitions: &mut Definitions,
    ) {
        let before = match self.known.get(name) {
            None => Ok(None),
            Some(Ok(_)) => self.sample(name, definitions).map(Some),
            Some(Err(why)) => Err(why.clone()),
        };
        let made = self.assigned(line, sample, condition, before);
        if self.known.len() < VARIABLES_MAX || self.known.contains_key(name) {
            self.known.insert(name.to_owned(), made);
        }
    }

    fn assigned(
        &self,
        line: &HaproxyLine,
        sample: Result<Sample, String>,
        condition: Result<Option<String>, String>,
        before: Result<Option<Sample>, String>,
    ) -> Result<HaproxyVariable, String> {
        let (sample, condition) = (sample?, condition?);
        let from = vec![StatementOrigin::Directive(line.number)];
        let parts = [condition.as_deref(), sample.found()];
        for text in parts.into_iter().flatten().chain([sample.text.as_str()]) {
            self.check_unchanged(text)?;
        }
        if self.has_allowed {
            return Err("an earlier rule may allow the request".to_owned());
        }
        let holds: Vec<String> = parts.into_iter().flatten().map(|part| format!("({part})")).collect();
        if holds.is_empty() {
            return Ok(HaproxyVariable {
                text: sample.total(),
                found: None,
                possible: sample.possible,
                from,
            });
        }
        let before = before?;
        let holds = match holds.as_slice() {
            [one] => bare(one).to_owned(),
            several => several.join(" && "),
        };
        let (old, found) = match &before {
            None => (literal(""), Some(holds.clone())),
            Some(before) => (before.total(), before.found().map(|found| format!("({holds}) || ({found})"))),
        };
        let mut possible = sample.possible.clone();
        let more = before.map_or(Some(BTreeSet::new()), |before| before.possible);
        possible = possible.zip(more).map(|(one, other)| one.into_iter().chain(other).collect());
        let text = if holds == sample.found().unwrap_or_default() && old == "\"\"" {
            sample.total()
        } else {
            format!("({holds} ? {} : {old})", sample.total())
        };
        Ok(HaproxyVariable { text, found, possible, from })
    }

    /// Removes a variable.
    pub(super) fn unset(&mut self, name: &str, is_always: bool) {
        if is_always && !self.has_allowed {
            self.known.remove(name);
        } else {
            let why = "a rule with a condition removes it".to_owned();
            self.known.insert(name.to_owned(), Err(why));
        }
    }

    /// Remembers what a rule changes besides variables.
    pub(super) fn change(&mut self, action: &str, name: &str) {
        let names = match action {
            "set-header" | "add-header" | "del-header" | "replace-header" | "replace-value" => {
                match name.to_ascii_lowercase().as_str() {
                    "host" => vec!["request.host".to_owned()],
                    name => vec![format!("request.headers[{}]", literal(name))],
                }
            }
            "set-path" | "replace-path" => vec!["request.path".to_owned()],
            "set-query" => vec!["request.query".to_owned()],
            "set-uri" | "replace-uri" | "set-pathq" | "replace-pathq" => {
                vec!["request.path".to_owned(), "request.query".to_owned()]
            }
            "set-method" => vec!["request.method".to_owned()],
            _ => Vec::new(),
        };
        self.changed.extend(names);
        self.has_allowed |= action == "allow";
    }

    /// Values are those of the request as clients send it.
    fn check_unchanged(&self, text: &str) -> Result<(), String> {
        match self.changed.iter().find(|name| text.contains(name.as_str())) {
            Some(name) => Err(format!("an earlier rule changes {name}")),
            None => Ok(()),
        }
    }
}
