//! The reference of all options, generated from their declarations.

use std::sync::LazyLock;

use serde_json::Value;

use crate::document::merge::Merging;
use crate::document::reader::Format;
use crate::option::table::{Page, Shape};
use crate::tables::file::FILE;

/// A JSON Schema of the file (draft 2020-12), for editors. It rejects unknown options, and describes every value at
/// least in words.
pub fn schema() -> serde_json::Value {
    let mut schema = shape().schema();
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["title"] = "The configuration of vanward".into();
    schema
}

/// All options as Markdown tables: what each takes, its default, its meaning.
pub fn reference() -> String {
    let mut page = Page::default();
    shape().document("", &mut page);
    format!("### Top level\n\n{}", page.finish())
}

fn shape() -> &'static dyn Shape {
    &FILE
}

/// The format of a file, for reading one.
pub(crate) const FORMAT: Format = Format {
    // Only one file can be right about an unknown option.
    merging: |name| FILE.option(name).map_or(Merging::Once, |(_, option)| option.row.merging),
    owners,
};

/// The tables that have options, with those: `[timeouts]`, `[[route]]`, `[upstream.NAME]`, `the file`.
pub(crate) fn options_by_table() -> Vec<(String, Vec<String>)> {
    let schema = schema();
    let names = |table: &Value| -> Vec<String> {
        table["properties"].as_object().into_iter().flat_map(|options| options.keys().cloned()).collect()
    };
    let of_top = schema["properties"].as_object().into_iter().flatten().filter_map(|(name, option)| {
        let any = option["anyOf"].as_array().into_iter().flatten();
        any.chain([option]).find_map(|one| {
            let (title, table) = if one["items"]["properties"].is_object() {
                (format!("[[{name}]]"), &one["items"])
            } else if one["additionalProperties"]["properties"].is_object() {
                (format!("[{name}.NAME]"), &one["additionalProperties"])
            } else {
                (format!("[{name}]"), one)
            };
            table["properties"].is_object().then(|| (title, names(table)))
        })
    });
    of_top.chain([("the file".to_owned(), names(&schema))]).collect()
}

static TABLES: LazyLock<Vec<(String, Vec<String>)>> = LazyLock::new(options_by_table);

/// Says in which tables an option of this name exists; `None` if in none, or in more than three.
fn owners(option: &str) -> Option<String> {
    let owners = TABLES.iter().filter(|(_, options)| options.iter().any(|known| known == option));
    let owners: Vec<&str> = owners.map(|(title, _)| title.as_str()).collect();
    match owners.as_slice() {
        [] => None,
        [owners @ .., last] if owners.len() < 3 => {
            let before: String = owners.iter().map(|owner| format!("{owner}, ")).collect();
            Some(format!(
                "it is an option of {}{last}",
                before.trim_end_matches(", ").to_owned() + if before.is_empty() { "" } else { " and " }
            ))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_has_owners() {
        assert_eq!(owners("drain").as_deref(), Some("it is an option of [timeouts]"));
        assert_eq!(owners("nothing"), None);
    }
}
