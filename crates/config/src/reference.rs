//! The reference of all options, from their declarations.

use crate::options::FILE;
use crate::table::Page;

/// The file as a JSON Schema (draft 2020-12), for editors: what is no option in it is none, and what an option takes is
/// said at least in words.
pub fn schema() -> serde_json::Value {
    let mut schema = FILE.schema();
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["title"] = "The configuration of vanward".into();
    schema
}

/// Every option as Markdown tables: what it takes, its default, what it means.
pub fn reference() -> String {
    let mut page = Page::default();
    FILE.document("", &mut page);
    format!("### Top level\n\n{}", page.finish())
}
