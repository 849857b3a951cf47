//! The reference of all options, from their declarations.

use crate::options::FILE;
use crate::table::Page;

/// Every option as Markdown tables: what it takes, its default, what it means.
pub fn reference() -> String {
    let mut page = Page::default();
    FILE.document("", &mut page);
    format!("### Top level\n\n{}", page.finish())
}
