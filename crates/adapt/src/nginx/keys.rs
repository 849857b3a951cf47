//! Keys of rate limits and of the cache, with variables.

use super::conditions::{VariableTest, origins};
use super::scope::BlockScope;
use super::servers::RouteEntry;
use super::truth::NginxCondition;
use super::variables::{TextPart, VariableValue};
use super::{NginxAdapter, values};
use crate::draft::{DraftValue, StatementOrigin};
use crate::sheet::one_or_list;

/// The key of a rate limit. nginx does not count requests whose key is empty.
pub(super) struct CountedKey {
    pub(super) key: DraftValue,
    pub(super) when: Option<String>,
    pub(super) from: Vec<StatementOrigin>,
}

impl<'s> NginxAdapter<'s> {
    /// Translates the key of `limit_req_zone`.
    ///
    /// # Errors
    /// Why it has no translation.
    pub(super) fn rate_key(
        &mut self,
        text: &str,
        scope: &BlockScope<'s>,
        entry: &mut RouteEntry,
    ) -> Result<CountedKey, String> {
        let text = text.replace("$server_name", "$host");
        let resolved = self.declarations.text(&text, scope.sets())?;
        let base = text.trim_start_matches(['$', '{']).trim_end_matches('}').to_owned();
        let not_empty = VariableTest::Equal { value: VariableValue::constant(""), is_not: true };
        let counts = self.condition(&resolved, &not_empty, &base)?;
        let mut leaves: Vec<&VariableValue> = resolved.value.leaves();
        leaves.retain(|leaf| leaf.as_constant() != Some(""));
        leaves.dedup();
        let parts = match leaves.as_slice() {
            [VariableValue::Text(parts)] => key_parts(parts),
            _ => None,
        };
        let key = match parts {
            Some(parts) => one_or_list(&parts),
            None => {
                let name = self.value(&base, &resolved, Some(entry))?;
                format!("${{{name}}}").into()
            }
        };
        let when = match counts {
            NginxCondition::Known(true) => None,
            condition => Some(condition.written()),
        };
        Ok(CountedKey { key, when, from: origins(resolved.used) })
    }

    /// Returns the options of `cache` that add further parts to its key. Scheme, host, path and query are always in it.
    ///
    /// # Errors
    /// Why it has no translation.
    pub(super) fn cache_key(
        &mut self,
        text: &str,
        scope: &BlockScope<'s>,
        entry: &mut RouteEntry,
    ) -> Result<Vec<(&'static str, String)>, String> {
        const ALWAYS: [&str; 12] = [
            "scheme",
            "proxy_host",
            "host",
            "http_host",
            "request_uri",
            "request_method",
            "uri",
            "args",
            "is_args",
            "query_string",
            "server_name",
            "document_uri",
        ];
        let has = |name: &str| text.contains(&format!("${name}")) || text.contains(&format!("${{{name}}}"));
        if !has("request_uri") && !(has("uri") && (has("args") || has("query_string"))) {
            return Err("the key is scheme, host, path and query".to_owned());
        }
        let mut made = Vec::new();
        let mut rest = text;
        while let Some(dollar) = rest.find('$') {
            let (name, behind) = values::split_name(&rest[dollar + 1..]);
            rest = behind;
            if ALWAYS.contains(&name) {
                continue;
            }
            let part = |prefix: &str| name.strip_prefix(prefix).filter(|rest| !rest.is_empty());
            let resolved = self.declarations.text(&format!("${{{name}}}"), scope.sets())?;
            made.push(match (resolved.value.as_fact().and(part("http_")), part("cookie_")) {
                (Some(field), _) => ("key_headers", values::field_name(field)),
                (_, Some(cookie)) if resolved.value.as_fact().is_some() => ("key_cookies", cookie.to_owned()),
                _ => ("key_values", self.value(name, &resolved, Some(entry))?),
            });
        }
        Ok(made)
    }
}

/// The parts of a key, if a rate limit has them without a value.
fn key_parts(parts: &[TextPart]) -> Option<Vec<String>> {
    let facts = parts.iter().filter_map(|part| match part {
        TextPart::NginxFact(name) => Some(name),
        TextPart::Constant(_) => None,
    });
    let keys: Vec<String> = facts.map(|name| key_of(name)).collect::<Option<_>>()?;
    if keys.is_empty() { Some(vec!["route".to_owned()]) } else { Some(keys) }
}

fn key_of(name: &str) -> Option<String> {
    let of = |prefix: &str| name.strip_prefix(prefix).filter(|rest| !rest.is_empty());
    match name {
        "binary_remote_addr" | "remote_addr" => Some("client".to_owned()),
        "host" | "http_host" => Some("host".to_owned()),
        _ => of("http_")
            .map(|field| format!("header:{}", values::field_name(field)))
            .or_else(|| of("cookie_").map(|cookie| format!("cookie:{cookie}")))
            .or_else(|| of("arg_").map(|argument| format!("query:{argument}"))),
    }
}
