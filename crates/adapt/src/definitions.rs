//! Maps and values of the result, `[map.NAME]` and `[values]`, under names that come from the peer's variables.

use std::collections::BTreeSet;
use std::sync::Arc;

use expression::{ExchangeStage, Expression, ExpressionLimits, Fact, Map, Schema, ValueType};

use crate::draft::{DraftTable, DraftValue, StatementOrigin};

/// Vanward's limits.
const MAPS_MAX: usize = 1000;
const VALUES_MAX: usize = 64;
const NAME_BYTES_MAX: usize = 64;
/// More entries of a map have a line each.
const ENTRIES_IN_LINE_MAX: usize = 4;

/// Definitions that routes and other tables refer to.
#[derive(Debug, Clone)]
pub(crate) struct Definitions {
    /// Each map, and its entries if they have a line each.
    maps: Vec<(DraftTable, DraftTable)>,
    values: DraftTable,
    /// Names of values that routes have themselves.
    of_routes: BTreeSet<String>,
}

impl Default for Definitions {
    fn default() -> Self {
        let values = DraftTable::new("[values]", Vec::new());
        Self { maps: Vec::new(), values, of_routes: BTreeSet::new() }
    }
}

/// A map from keys of requests to texts.
#[derive(Debug, Clone, Default)]
pub(crate) struct DraftMap {
    /// Such as `exact`, which is the default of Vanward.
    pub(crate) kind: &'static str,
    /// The expression of the key. Without it, `map.NAME[key]` asks the map, and there is no default.
    pub(crate) key: Option<String>,
    pub(crate) default: Option<String>,
    pub(crate) entries: Vec<(String, String)>,
}

impl Definitions {
    /// Adds a map under a free name, or cites an equal one of any name. Returns the name for expressions, such as `map.tenant`.
    ///
    /// # Errors
    /// There are too many maps.
    pub(crate) fn map(
        &mut self,
        base: &str,
        map: DraftMap,
        from: Vec<StatementOrigin>,
    ) -> Result<String, String> {
        let mut made = DraftTable::new("", from);
        if let Some(key) = map.key {
            made.set("key", DraftValue::Expression(key), Vec::new());
        }
        if map.kind != "exact" {
            made.set("kind", map.kind, Vec::new());
        }
        if let Some(default) = map.default {
            made.set("default", toml_text::unexpanded(&default), Vec::new());
        }
        let mut keys = BTreeSet::new();
        let entries = map.entries.into_iter().filter(|(key, _)| keys.insert(key.clone()));
        let entry = |(key, value): (String, String)| (key, toml_text::unexpanded(&value).into());
        let mut entries: Vec<(String, DraftValue)> = entries.map(entry).collect();
        if entries.len() <= ENTRIES_IN_LINE_MAX {
            made.set("entries", DraftValue::Table(std::mem::take(&mut entries)), Vec::new());
        }
        self.add_map(base, made, DraftTable::of_pairs(String::new(), entries))
    }

    /// Adds a map whose entries Vanward reads from a file. Without values, the file is a set of keys.
    ///
    /// # Errors
    /// There are too many maps.
    pub(crate) fn map_of_file(
        &mut self,
        base: &str,
        (kind, has_values): (&'static str, bool),
        file: &str,
        from: Vec<StatementOrigin>,
    ) -> Result<String, String> {
        let mut made = DraftTable::new("", from);
        if kind != "exact" {
            made.set("kind", kind, Vec::new());
        }
        made.set("file", toml_text::unexpanded(file), Vec::new());
        if !has_values {
            made.set("format", "keys", Vec::new());
        }
        self.add_map(base, made, DraftTable::default())
    }

    /// Adds a map under a free name, or cites an equal one.
    fn add_map(
        &mut self,
        base: &str,
        mut made: DraftTable,
        mut entries: DraftTable,
    ) -> Result<String, String> {
        let is_same = |(known, lines): &&mut (DraftTable, DraftTable)| {
            known.says_the_same(&made) && lines.says_the_same(&entries)
        };
        if let Some((known, _)) = self.maps.iter_mut().find(is_same) {
            let new = made.from.iter().filter(|origin| !known.from.contains(origin));
            let new: Vec<_> = new.cloned().collect();
            known.from.extend(new);
            return Ok(known.header.trim_matches(['[', ']']).to_owned());
        }
        let is_free = |name: &String| self.maps.iter().all(|(map, _)| map.header != format!("[map.{name}]"));
        if self.maps.len() < MAPS_MAX
            && let Some(name) = names(base).find(is_free)
        {
            made.header = format!("[map.{name}]");
            entries.header = format!("[map.{name}.entries]");
            self.maps.push((made, entries));
            return Ok(format!("map.{name}"));
        }
        Err(format!("there would be more than {MAPS_MAX} maps"))
    }

    /// The names that expressions can use.
    pub(crate) fn schema(&self) -> Schema {
        let limits = ExpressionLimits::default();
        let mut schema = Schema::new(ExchangeStage::Request);
        for (number, (map, _)) in (0..).zip(&self.maps) {
            let text = |key: &str| match map.get(key) {
                Some(DraftValue::Text(text) | DraftValue::Expression(text)) => Some(text.as_str()),
                _ => None,
            };
            let keys = if text("kind") == Some("network") { ValueType::Address } else { ValueType::Text };
            let is_set = text("format") == Some("keys");
            let declared = Map { number, keys, values: (!is_set).then_some(ValueType::Text) };
            let name = map.header.trim_start_matches('[').trim_end_matches(']');
            schema = match text("key").map(|key| Expression::new(key, &schema, &limits)) {
                None => schema.with_map(name, declared),
                // A mistake in the key is one of the configuration.
                Some(Err(_)) => schema,
                Some(Ok(key)) => {
                    let own = schema.clone().with_map("map.it", declared);
                    let own = own.with_definition("map.key", Arc::new(key));
                    let default = text("default").map_or("", |_| " ?? \"\"");
                    let value = Expression::new(&format!("map.it[map.key]{default}"), &own, &limits);
                    value
                        .into_iter()
                        .fold(schema, |schema, value| schema.with_definition(name, Arc::new(value)))
                }
            };
        }
        for (name, value) in self.values.pairs() {
            let DraftValue::Expression(text) = value else { continue };
            if let Ok(value) = Expression::new(text, &schema, &limits) {
                schema = schema.with_definition(&format!("values.{name}"), Arc::new(value));
            }
        }
        schema
    }

    /// Adds a value for all routes under a free name, or cites an equal one. Returns the name, for `${name}` in texts and
    /// `values.name` in expressions.
    ///
    /// # Errors
    /// There are too many values.
    pub(crate) fn value(
        &mut self,
        base: &str,
        expression: &str,
        from: Vec<StatementOrigin>,
    ) -> Result<String, String> {
        let wanted = DraftValue::Expression(expression.to_owned());
        let free = |name: &String| !self.of_routes.contains(name);
        for name in names(base).filter(is_allowed).filter(free) {
            match self.values.get(&name) {
                Some(known) if *known == wanted => {
                    from.into_iter().for_each(|origin| self.values.cite(&name, origin));
                    return Ok(name);
                }
                Some(_) => {}
                None if self.values.len() >= VALUES_MAX => break,
                None => {
                    self.values.set(&name, wanted, from);
                    return Ok(name);
                }
            }
        }
        Err(too_many_values())
    }

    /// Whether a value is made of the requested host alone, so that it may be the host of a redirect.
    pub(crate) fn is_of_host(&self, name: &str) -> bool {
        let made = Expression::new(&format!("values.{name}"), &self.schema(), &ExpressionLimits::default());
        made.is_ok_and(|made| made.asks_only_for(Fact::RequestHost))
    }

    /// Whether all routes have a value of this name.
    pub(crate) fn has_value(&self, name: &str) -> bool {
        self.values.get(name).is_some()
    }

    /// Adds a value to the option `values` of a route's table, as [`value`](Self::value) does for all routes.
    ///
    /// # Errors
    /// The route has too many values.
    pub(crate) fn value_of_route(
        &mut self,
        route: &mut DraftTable,
        base: &str,
        expression: &str,
        from: Vec<StatementOrigin>,
    ) -> Result<String, String> {
        let wanted = DraftValue::Expression(expression.to_owned());
        let known = match route.get("values") {
            Some(DraftValue::Table(known)) => known.clone(),
            _ => Vec::new(),
        };
        for name in names(base).filter(is_allowed) {
            let own = known.iter().find(|(own, _)| *own == name).map(|(_, value)| value);
            if own == Some(&wanted) || own.is_none() && self.values.get(&name) == Some(&wanted) {
                return Ok(name);
            }
            if own.is_none() && self.values.get(&name).is_none() {
                if known.len() >= VALUES_MAX {
                    break;
                }
                route.extend("values", (&name, wanted), from);
                self.of_routes.insert(name.clone());
                return Ok(name);
            }
        }
        Err(too_many_values())
    }

    pub(crate) fn tables(&self) -> impl Iterator<Item = &DraftTable> {
        self.maps.iter().flat_map(|(map, entries)| [map, entries]).chain(std::iter::once(&self.values))
    }
}

fn too_many_values() -> String {
    format!("there would be more than {VALUES_MAX} values")
}

/// Names that begin with a variable's name: `tenant`, `tenant_2`, `tenant_3` …
fn names(base: &str) -> impl Iterator<Item = String> {
    let lower = base.chars().map(|letter| letter.to_ascii_lowercase());
    let name: String =
        lower.map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' }).collect();
    let name = name.trim_matches('_');
    let is_first = name.starts_with(|first: char| first.is_ascii_lowercase());
    let name = if is_first { name.to_owned() } else { format!("v{name}") };
    // Room for a number.
    let name: String = name.chars().take(NAME_BYTES_MAX - 8).collect();
    (1_u32..).map(move |number| if number == 1 { name.clone() } else { format!("{name}_{number}") })
}

/// Whether a name is no variable of every request, and no field of logs.
fn is_allowed(name: &String) -> bool {
    !route::is_variable(name) && logline::field_names().all(|field| field != name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(definitions: &Definitions) -> String {
        let render =
            |table: &DraftTable| table.render(&|number| format!("line {number}"), &mut BTreeSet::new());
        definitions.tables().filter(|table| !table.is_empty()).map(render).collect()
    }

    fn map(entries: &[(&str, &str)]) -> DraftMap {
        let entry = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        DraftMap {
            kind: "suffix",
            key: Some("request.host".to_owned()),
            default: Some("www".to_owned()),
            entries: entries.iter().map(entry).collect(),
        }
    }

    #[test]
    fn names_are_free_and_equal_definitions_share_one() {
        let mut made = Definitions::default();
        let mut route = DraftTable::default();
        let at = |number| vec![StatementOrigin::Directive(number)];
        assert_eq!(made.map("Tenant", map(&[("a.b", "${HOME}")]), at(1)).as_deref(), Ok("map.tenant"));
        assert_eq!(made.map("tenant", map(&[("a.b", "2")]), at(2)).as_deref(), Ok("map.tenant_2"));
        assert_eq!(made.map("tenant", map(&[("a.b", "2")]), at(3)).as_deref(), Ok("map.tenant_2"));
        let many = [("a", "1"), ("*.b", "2"), ("c", "3"), ("d", "4"), ("e", "5"), ("a", "6")];
        assert_eq!(made.map("many", map(&many), at(3)).as_deref(), Ok("map.many"));
        // `host` is a variable, `client` a field of logs.
        for (base, expression, name) in [
            ("app", "map.tenant", "app"),
            ("app", "map.tenant", "app"),
            ("app", "\"it's\"", "app_2"),
            ("host", "request.host", "host_2"),
            ("client", "\"c\"", "client_2"),
            ("9-lives", "\"9\"", "v9_lives"),
        ] {
            assert_eq!(made.value(base, expression, at(4)).as_deref(), Ok(name), "{base}");
        }
        for (expression, name) in [("\"1\"", "app_3"), ("map.tenant", "app"), ("\"1\"", "app_3")] {
            assert_eq!(made.value_of_route(&mut route, "app", expression, at(5)).as_deref(), Ok(name));
        }
        assert_eq!(made.value("app", "\"4\"", at(6)).as_deref(), Ok("app_4"));
        let expected = "[map.tenant]  # line 1\nkey = 'request.host'\nkind = \"suffix\"\ndefault = \"www\"\n\
            entries = { \"a.b\" = \"$${HOME}\" }\n\
            [map.tenant_2]  # line 2, line 3\nkey = 'request.host'\nkind = \"suffix\"\ndefault = \"www\"\n\
            entries = { \"a.b\" = \"2\" }\n\
            [map.many]  # line 3\nkey = 'request.host'\nkind = \"suffix\"\ndefault = \"www\"\n\
            [map.many.entries]\na = \"1\"\n\"*.b\" = \"2\"\nc = \"3\"\nd = \"4\"\ne = \"5\"\n\
            [values]\napp = 'map.tenant'  # line 4\napp_2 = \"\\\"it's\\\"\"  # line 4\nhost_2 = 'request.host'  # line 4\n\
            client_2 = '\"c\"'  # line 4\nv9_lives = '\"9\"'  # line 4\napp_4 = '\"4\"'  # line 6\n";
        assert_eq!(rendered(&made), expected);
    }

    #[test]
    fn more_than_vanward_takes_is_an_error() {
        let mut made = Definitions::default();
        let mut route = DraftTable::default();
        for number in 0..VALUES_MAX {
            let expression = format!("\"{number}\"");
            assert!(made.value("all", &expression, Vec::new()).is_ok());
            assert!(made.value_of_route(&mut route, "own", &expression, Vec::new()).is_ok());
        }
        assert_eq!(made.value("all", "\"x\"", Vec::new()), Err(too_many_values()));
        assert_eq!(made.value_of_route(&mut route, "own", "\"x\"", Vec::new()), Err(too_many_values()));
        assert_eq!(made.value("all", "\"7\"", Vec::new()).as_deref(), Ok("all_8"));
    }
}
