//! Writes TOML strings. A label cannot read environment variables or files: `${HOME}` stays a text.

pub(crate) use toml_text::literal as text;

use toml::Value;
use toml_text::quoted;

pub(crate) fn list(values: &[String]) -> String {
    format!("[{}]", values.iter().map(|value| text(value)).collect::<Vec<_>>().join(", "))
}

/// Converts the value of a label to TOML: it is valid TOML, or becomes a string.
pub(crate) fn value(label: &str) -> String {
    let read: Option<Value> = match toml::from_str::<toml::Table>(&format!("value = {label}")) {
        // A second key would be injected TOML.
        Ok(mut table) if table.len() == 1 => table.remove("value"),
        _ => None,
    };
    read.map_or_else(|| text(label), |value| inline(&value))
}

fn inline(value: &Value) -> String {
    match value {
        Value::String(string) => text(string),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Boolean(is) => is.to_string(),
        Value::Datetime(time) => text(&time.to_string()),
        Value::Array(values) => format!("[{}]", values.iter().map(inline).collect::<Vec<_>>().join(", ")),
        Value::Table(table) => {
            let pair = |(key, value): (&String, &Value)| format!("{} = {}", quoted(key), inline(value));
            format!("{{ {} }}", table.iter().map(pair).collect::<Vec<_>>().join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_toml_or_texts_and_nothing_is_put_in() {
        for (label, expected) in [
            ("10", "10"),
            ("true", "true"),
            ("\"a b\"", "\"a b\""),
            ("least-connections", "\"least-connections\""),
            ("30s", "\"30s\""),
            ("{ rate = \"10/s\", key = 'client' }", "{ \"key\" = \"client\", \"rate\" = \"10/s\" }"),
            ("[ \"a\", 1 ]", "[\"a\", 1]"),
            ("1\nb = 2", "\"1\\nb = 2\""),
            ("\"\"\"", "\"\\\"\\\"\\\"\""),
            ("${file:/etc/passwd}", "\"$${file:/etc/passwd}\""),
            ("\"${HOME}\"", "\"$${HOME}\""),
            ("a$${env:b}", "\"a$$$${env:b}\""),
        ] {
            assert_eq!(value(label), expected, "{label}");
        }
    }
}
