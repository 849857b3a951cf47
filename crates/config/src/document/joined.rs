//! Joins the texts of several files to one text with the same meaning, comments included.

use toml_edit::{ArrayOfTables, DocumentMut, Item, Table, Value};

/// The texts of files as one. Each file begins with a comment that names it, after the first one.
pub(crate) fn joined(mut files: Vec<(&str, String)>) -> String {
    let has_include = |text: &str| text.contains("include");
    if files.len() < 2 && !files.iter().any(|(_, text)| has_include(text)) {
        return files.pop().map(|(_, text)| text).unwrap_or_default();
    }
    let mut all = DocumentMut::new();
    for (index, (name, text)) in files.iter().enumerate() {
        let Ok(mut file) = text.parse::<DocumentMut>() else { continue };
        file.remove("include");
        if index == 0 {
            all = file;
            with_headers(all.as_table_mut());
            continue;
        }
        let trailing = [all.trailing(), file.trailing()].map(|raw| raw.as_str().unwrap_or_default()).concat();
        let mut table = std::mem::take(file.as_table_mut());
        with_headers(&mut table);
        name_first(&mut table, name);
        shift(&mut table, last_position(all.as_table()) + 1);
        append(all.as_table_mut(), table);
        all.set_trailing(trailing);
    }
    all.to_string()
}

/// Gives the tables below the top level headers, so that those of other files can follow.
fn with_headers(root: &mut Table) {
    let mut next = last_position(root) + 1;
    let mut place = || {
        next += 1;
        Some(next - 1)
    };
    for (_, item) in root.iter_mut() {
        *item = match std::mem::take(item) {
            Item::Value(Value::Array(all)) if !all.is_empty() && all.iter().all(Value::is_inline_table) => {
                match Item::Value(Value::Array(all)).into_array_of_tables() {
                    Ok(mut all) => {
                        all.iter_mut().for_each(|table| table.set_position(place()));
                        Item::ArrayOfTables(all)
                    }
                    Err(item) => item,
                }
            }
            item if item.is_inline_table() || item.as_table().is_some_and(Table::is_dotted) => {
                match item.into_table() {
                    Ok(mut table) => {
                        table.set_dotted(false);
                        table.set_position(place());
                        below_with_headers(&mut table, &mut place);
                        Item::Table(table)
                    }
                    Err(item) => item,
                }
            }
            item => item,
        };
    }
}

/// Does so for tables with names, such as `upstream.app`.
fn below_with_headers(table: &mut Table, place: &mut impl FnMut() -> Option<isize>) {
    let is_of_tables = table.iter().all(|(_, item)| item.is_table_like());
    if !is_of_tables {
        return;
    }
    table.set_implicit(true);
    for (_, item) in table.iter_mut() {
        *item = match std::mem::take(item).into_table() {
            Ok(mut table) => {
                table.set_dotted(false);
                table.set_position(place());
                Item::Table(table)
            }
            Err(item) => item,
        };
    }
}

/// Puts a comment with the name of the file in front of what it begins with.
fn name_first(table: &mut Table, name: &str) {
    let comment = format!("\n# {name}\n");
    let key = table.iter().find(|(_, item)| item.is_value()).map(|(key, _)| key.to_owned());
    if let Some(mut key) = key.as_deref().and_then(|key| table.key_mut(key)) {
        let decor = key.leaf_decor_mut();
        let before = decor.prefix().and_then(|prefix| prefix.as_str()).unwrap_or_default().to_owned();
        decor.set_prefix(format!("{comment}{before}"));
    }
    if let Some(first) = tables(table).min_by_key(|table| table.position().unwrap_or(isize::MAX)) {
        let decor = first.decor_mut();
        let before = decor.prefix().and_then(|prefix| prefix.as_str()).unwrap_or_default();
        let prefix = format!("{comment}{}", before.trim_start_matches(['\r', '\n']));
        decor.set_prefix(prefix);
    }
}

/// The tables below a table that have headers.
fn tables(table: &mut Table) -> Box<dyn Iterator<Item = &mut Table> + '_> {
    Box::new(table.iter_mut().flat_map(|(_, item)| -> Box<dyn Iterator<Item = &mut Table>> {
        match item {
            Item::Table(inner) => {
                let is_implicit = inner.is_implicit();
                if is_implicit { tables(inner) } else { Box::new(std::iter::once(inner)) }
            }
            Item::ArrayOfTables(all) => Box::new(all.iter_mut()),
            _ => Box::new(std::iter::empty()),
        }
    }))
}

/// Adds the options of another file.
fn append(all: &mut Table, mut more: Table) {
    let keys: Vec<String> = more.iter().map(|(key, _)| key.to_owned()).collect();
    for name in keys {
        let Some((key, item)) = more.remove_entry(&name) else { continue };
        match (all.get_mut(&name), item) {
            (Some(Item::Table(all)), Item::Table(more)) => append(all, more),
            (Some(Item::ArrayOfTables(all)), Item::ArrayOfTables(more)) => all.extend(more),
            // Other options are in one file.
            (_, item) => {
                all.insert_formatted(&key, item);
            }
        }
    }
}

/// Moves the tables of a document behind those of another one.
pub(crate) fn shift(table: &mut Table, by: isize) {
    table.set_position(table.position().map(|position| position + by));
    for (_, item) in table.iter_mut() {
        match item {
            Item::Table(inner) => shift(inner, by),
            Item::ArrayOfTables(all) => all.iter_mut().for_each(|table| shift(table, by)),
            _ => {}
        }
    }
}

/// The place of the last table of a document.
pub(crate) fn last_position(table: &Table) -> isize {
    let of_item = |(_, item): (&str, &Item)| match item {
        Item::Table(inner) => last_position(inner),
        Item::ArrayOfTables(all) => last_of(all),
        _ => 0,
    };
    table.iter().map(of_item).max().unwrap_or_default().max(table.position().unwrap_or_default())
}

fn last_of(all: &ArrayOfTables) -> isize {
    all.iter().map(last_position).max().unwrap_or_default()
}
