//! JSON in which the names of an object must be unique.
//!
//! RFC 7519 §4 and RFC 7515 §4 allow rejecting duplicates. Readers differ in whether they take the first or the last,
//! so a server could read another value than the proxy checked.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Json {
    Null,
    Switch(bool),
    Number(serde_json::Number),
    Text(String),
    List(Vec<Json>),
    Table(Vec<(String, Json)>),
}

impl Json {
    /// Parses a whole text. `None` if it is invalid JSON, has a duplicate name, or is nested deeper than 128 levels.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    /// `None` if there is no such member, or this is no object.
    pub(crate) fn member(&self, name: &str) -> Option<&Self> {
        let Self::Table(members) = self else { return None };
        members.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    pub(crate) fn text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    pub(crate) fn list(&self) -> Option<&[Self]> {
        if let Self::List(list) = self { Some(list) } else { None }
    }

    /// The member at a path of names with dots, such as `realm_access.roles`. A name may itself have dots, as URLs do.
    pub(crate) fn find(&self, path: &str) -> Option<&Self> {
        let inner = || {
            let mut dots = path.match_indices('.');
            dots.find_map(|(dot, _)| self.member(&path[..dot])?.find(&path[dot + 1..]))
        };
        self.member(path).or_else(inner)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Json;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Switch(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Json, E> {
        let number = serde_json::Number::from_f64(value).ok_or_else(|| E::custom("not finite"))?;
        Ok(Json::Number(number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(Json::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Json, E> {
        Ok(Json::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Json, A::Error> {
        let mut list = Vec::new();
        while let Some(value) = access.next_element()? {
            list.push(value);
        }
        Ok(Json::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Json, A::Error> {
        /// Limits the time for comparing the names of an object, which grows with the square of their number.
        const MEMBERS_MAX: usize = 256;
        let mut members: Vec<(String, Json)> = Vec::new();
        while let Some((name, value)) = access.next_entry::<String, Json>()? {
            if members.len() == MEMBERS_MAX || members.iter().any(|(known, _)| *known == name) {
                return Err(A::Error::custom("a name is there twice, or there are too many"));
            }
            members.push((name, value));
        }
        Ok(Json::Table(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_there_once() {
        for (text, is_json) in [
            (r#"{"a":1,"b":{"a":2}}"#, true),
            (r#" {"a":[]} "#, true),
            (r#"{"a":1,"a":1}"#, false),
            (r#"{"a":{"b":1,"b":2}}"#, false),
            (r#"[{"a":1,"\u0061":2}]"#, false),
            (r#"{"a":1} {"#, false),
            (r#"{"a":1},"#, false),
            ("{'a':1}", false),
            ("{\"a\":\"\u{1}\"}", false),
            (r#"{"a":NaN}"#, false),
            (r#"{"a":1e999}"#, false),
            ("", false),
            (&"[".repeat(10_000), false),
        ] {
            assert_eq!(Json::parse(text.as_bytes()).is_some(), is_json, "{text:.40}");
        }
        assert!(Json::parse(b"\"\xff\"").is_none(), "UTF-8 alone");
    }

    #[test]
    fn members_are_found_by_path() {
        let text =
            r#"{"realm_access":{"roles":["a"]},"https://x.test/roles":"b","a.b":{"c":1},"a":{"b":{"c":2}}}"#;
        let json = Json::parse(text.as_bytes()).unwrap();
        assert_eq!(json.find("realm_access.roles").and_then(Json::list).map(<[Json]>::len), Some(1));
        assert_eq!(json.find("https://x.test/roles").and_then(Json::text), Some("b"));
        assert_eq!(json.find("a.b.c"), Some(&Json::Number(2.into())), "the shortest name first");
        for missing in ["", ".", "realm_access.", "realm_access.roles.0", "c"] {
            assert_eq!(json.find(missing), None, "{missing}");
        }
    }
}
