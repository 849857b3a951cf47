//! Parses request bodies of the API: JSON with keys in any case, as Toxiproxy's decoder accepts them.

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::refusal::ApiRefusal;

pub(super) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiRefusal> {
    Ok(serde_json::from_value(in_lower_case(serde_json::from_slice(body)?))?)
}

/// Converts all keys to lower case; of equal ones, that in lower case wins. The parser's limit bounds the recursion.
pub(super) fn in_lower_case(value: Value) -> Value {
    match value {
        // Capitals sort first, and later entries replace earlier ones.
        Value::Object(pairs) => {
            let lower = |(key, value): (String, Value)| (key.to_ascii_lowercase(), in_lower_case(value));
            Value::Object(pairs.into_iter().map(lower).collect())
        }
        Value::Array(values) => Value::Array(values.into_iter().map(in_lower_case).collect()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_are_read_in_any_case_and_values_as_they_are() {
        let value: Value = read(br#"[{"Name":"A","ATTRIBUTES":{"Latency":1}}]"#).expect("is JSON");
        assert_eq!(value, json!([{ "name": "A", "attributes": { "latency": 1 } }]));
        let value: Value = read(br#"{"name":"right","Name":"other"}"#).expect("is JSON");
        assert_eq!(value, json!({ "name": "right" }));
        assert!(read::<Value>(b"{").is_err());
    }
}
