//! The reference of all options, generated from their declarations.

use crate::options::FILE;
use crate::table::Page;

/// A JSON Schema of the file (draft 2020-12), for editors. It rejects unknown options, and describes every value at
/// least in words.
pub fn schema() -> serde_json::Value {
    let mut schema = FILE.schema();
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["title"] = "The configuration of vanward".into();
    schema
}

/// All options as Markdown tables: what each takes, its default, its meaning.
pub fn reference() -> String {
    let mut page = Page::default();
    FILE.document("", &mut page);
    format!("### Top level\n\n{}", page.finish())
}
