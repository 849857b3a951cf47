//! The schema of options that take an expression: its type, and the names that it can use, for editors.

use expression::{ExchangeStage, Fact, FactFamily, ValueType};
use serde_json::{Value, json};

/// The types of facts, each with its word in the schema and the plural for people.
const TYPES: [(ValueType, &str, &str); 6] = [
    (ValueType::Text, "text", "texts"),
    (ValueType::Integer, "integer", "integers"),
    (ValueType::Boolean, "boolean", "true or false"),
    (ValueType::Duration, "duration", "durations"),
    (ValueType::Time, "time", "times"),
    (ValueType::Address, "address", "addresses"),
];

/// Describes an expression. `of` is the type that the option needs; `None` if it gives a name to an expression of any type.
pub(crate) fn schema(expected: &str, of: Option<ValueType>, stage: ExchangeStage) -> Value {
    let word = |of: ValueType| TYPES.iter().find(|(known, ..)| *known == of).map(|(_, word, _)| *word);
    let facts = || Fact::ALL.iter().filter(|fact| fact.stage() <= stage);
    let families = || FactFamily::ALL.into_iter().filter(|family| family.stage() <= stage);
    let of_facts = facts().map(|fact| {
        json!({ "name": fact.name(), "type": word(fact.value_type()), "optional": fact.is_optional() })
    });
    let of_families = families().map(
        |family| json!({ "name": format!("{}[\"NAME\"]", family.name()), "type": "text", "optional": true }),
    );
    let by_type: Vec<String> = TYPES
        .iter()
        .filter_map(|(of, _, plural)| {
            let names: Vec<&str> =
                facts().filter(|fact| fact.value_type() == *of).map(|fact| fact.name()).collect();
            (!names.is_empty()).then(|| format!("{plural} {}", names.join(", ")))
        })
        .collect();
    let families: Vec<String> = families().map(|family| format!("{}[\"NAME\"]", family.name())).collect();
    let when = match of {
        Some(of) => format!(", which is {of}. It is evaluated {}", stage.since()),
        None => ". Places can use it where all of its names are known".to_owned(),
    };
    let description = format!(
        "{expected}{when}. Its names: {}; texts by name {}; maps map.NAME and values values.NAME. See \
         [names](conditions.md#names)",
        by_type.join("; "),
        families.join(", "),
    );
    let example = expected.split('\'').nth(1);
    json!({
        "type": "string",
        "description": description,
        "examples": example.into_iter().collect::<Vec<_>>(),
        "x-vanward-expression": {
            "type": of.and_then(word),
            "names": of_facts.chain(of_families).collect::<Vec<_>>(),
        },
    })
}
