//! The blocks `map` and `geo`, as values.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use ipnet::IpNet;
use regex::RegexBuilder;

use super::syntax::Directive;
use super::variables::{
    Declarations, MapKeyKind, ResolvedVariable, SetVariables, TextPart, ValueTest, VariableValue,
    expression_of,
};
use crate::values;

/// The entries of a `map`, in nginx's order of precedence.
#[derive(Default)]
struct MapEntries {
    /// In lower case: case is ignored.
    exact: Vec<(String, VariableValue)>,
    /// Wildcards of hosts, the longest first.
    suffixes: Vec<(String, VariableValue)>,
    prefixes: Vec<(String, VariableValue)>,
    patterns: Vec<(String, VariableValue)>,
}

/// Resolves the variable of a `map`.
///
/// # Errors
/// Why it has no translation.
pub(super) fn of_map(
    map: &Directive,
    declarations: &Declarations<'_>,
    sets: &SetVariables,
    nested: usize,
) -> Result<ResolvedVariable, String> {
    let [source, _] = map.words.as_slice() else {
        return Err("it has no source".to_owned());
    };
    let mut resolved = declarations.text_within(source, sets, nested)?;
    let has_hosts = map.inner().iter().any(|entry| entry.name == "hostnames" && entry.words.is_empty());
    let groups = group_names(map);
    let mut entries = MapEntries::default();
    let mut default = VariableValue::constant("");
    for entry in map.inner() {
        let [text] = entry.words.as_slice() else { continue };
        if entry.name == "include" {
            continue;
        }
        if uses_groups(text, &groups) {
            return Err("its values use groups of expressions".to_owned());
        }
        let value = declarations.text_within(text, sets, nested)?;
        resolved.used.extend(value.used);
        resolved.is_of_block |= value.is_of_block;
        if entry.name == "default" {
            default = value.value;
        } else {
            entries.add(&entry.name, has_hosts, value.value)?;
        }
    }
    entries.suffixes.sort_by_key(|(key, _)| Reverse(key.len()));
    entries.prefixes.sort_by_key(|(key, _)| Reverse(key.len()));
    resolved.value = resolved.value.map(&mut |leaf| entries.of(leaf, &default))?;
    Ok(resolved)
}

/// The names of groups in the expressions of a `map`.
fn group_names(map: &Directive) -> Vec<&str> {
    let patterns = map.inner().iter().filter(|entry| entry.name.starts_with('~'));
    let groups = patterns.flat_map(|entry| entry.name.split("(?").skip(1));
    let named = groups.filter_map(|group| group.trim_start_matches('P').strip_prefix('<'));
    named.filter(|name| !name.starts_with(['=', '!'])).filter_map(|name| name.split('>').next()).collect()
}

fn uses_groups(text: &str, groups: &[&str]) -> bool {
    let mut rest = text;
    while let Some(dollar) = rest.find('$') {
        let (name, behind) = super::values::split_name(&rest[dollar + 1..]);
        if groups.contains(&name) || name.starts_with(|first: char| first.is_ascii_digit()) {
            return true;
        }
        rest = behind;
    }
    false
}

impl MapEntries {
    fn add(&mut self, key: &str, has_hosts: bool, value: VariableValue) -> Result<(), String> {
        if let Some(pattern) = key.strip_prefix('~') {
            let ignores_case = pattern.starts_with('*');
            let pattern = values::search(pattern.trim_start_matches('*'), ignores_case)?;
            self.patterns.push((pattern, value));
            return Ok(());
        }
        let key = key.strip_prefix('\\').unwrap_or(key).to_ascii_lowercase();
        let list = match () {
            () if !has_hosts => &mut self.exact,
            () if key.starts_with("*.") => &mut self.suffixes,
            () if key.starts_with('.') && key.len() > 1 => {
                self.suffixes.push((key[1..].to_owned(), value));
                return Ok(());
            }
            () if key.ends_with(".*") => {
                self.prefixes.push((key[..key.len() - 1].to_owned(), value));
                return Ok(());
            }
            () => &mut self.exact,
        };
        list.push((key, value));
        Ok(())
    }

    /// The value for a source.
    fn of(&self, source: &VariableValue, default: &VariableValue) -> Result<VariableValue, String> {
        if let Some(constant) = source.as_constant() {
            return Ok(self.find(constant).unwrap_or(default).clone());
        }
        let VariableValue::Text(parts) = source else { return Err("it depends on a choice".to_owned()) };
        if let Some(escaped) = self.escaped(parts) {
            return Err(format!("{escaped} has an escape, and paths are compared without"));
        }
        let expression = expression_of(parts)?;
        let has_letters = |entries: &[(String, VariableValue)]| {
            entries.iter().any(|(key, _)| key.bytes().any(|byte| byte.is_ascii_alphabetic()))
        };
        let ignores_case =
            [&self.exact, &self.suffixes, &self.prefixes].into_iter().any(|entries| has_letters(entries));
        let lower = if expression.is_lower || !ignores_case {
            expression.text.clone()
        } else {
            format!("{}.lowerAscii()", expression.text)
        };
        let mut tests = Vec::new();
        for (kind, source, entries) in [
            (MapKeyKind::Exact, &lower, &self.exact),
            (MapKeyKind::Suffix, &lower, &self.suffixes),
            (MapKeyKind::Prefix, &lower, &self.prefixes),
            (MapKeyKind::Regex, &expression.text, &self.patterns),
        ] {
            for (key, value) in entries {
                tests
                    .push((ValueTest::Key { kind, source: source.clone(), key: key.clone() }, value.clone()));
            }
        }
        Ok(choice(tests, default.clone()))
    }

    /// A key with an escape, if the source has the path as it was sent.
    fn escaped(&self, parts: &[TextPart]) -> Option<&str> {
        let is_raw =
            parts.iter().any(|part| matches!(part, TextPart::NginxFact(name) if name == "request_uri"));
        let all = self.exact.iter().chain(&self.prefixes).chain(&self.patterns);
        let mut keys = all.map(|(key, _)| key.as_str());
        keys.find(|key| is_raw && key.contains('%'))
    }

    /// The value for a constant.
    fn find(&self, text: &str) -> Option<&VariableValue> {
        let lower = text.to_ascii_lowercase();
        let is_below = |key: &str| match key.strip_prefix("*.") {
            Some(domain) => lower.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.')),
            None => lower.strip_suffix(key).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')),
        };
        let matches = |pattern: &str| {
            let pattern = RegexBuilder::new(pattern).unicode(false).build();
            pattern.is_ok_and(|pattern| pattern.is_match(text))
        };
        let exact = self.exact.iter().find(|(key, _)| *key == lower);
        exact
            .or_else(|| self.suffixes.iter().find(|(key, _)| is_below(key)))
            .or_else(|| self.prefixes.iter().find(|(key, _)| lower.starts_with(key.as_str())))
            .or_else(|| self.patterns.iter().find(|(pattern, _)| matches(pattern)))
            .map(|(_, value)| value)
    }
}

fn choice(tests: Vec<(ValueTest, VariableValue)>, default: VariableValue) -> VariableValue {
    match tests.is_empty() {
        true => default,
        false => VariableValue::Choice { tests, otherwise: Box::new(default) },
    }
}

/// Resolves the variable of a `geo`.
///
/// # Errors
/// Why it has no translation.
pub(super) fn of_geo(geo: &Directive) -> Result<ResolvedVariable, String> {
    if geo.words.len() > 1 && !matches!(geo.word(0), "$remote_addr" | "$binary_remote_addr") {
        return Err("its address is another variable than $remote_addr".to_owned());
    }
    let (mut networks, mut default): (BTreeMap<IpNet, &str>, _) = (BTreeMap::new(), "");
    for entry in geo.inner() {
        match (entry.name.as_str(), entry.words.as_slice()) {
            ("default", [value]) => default = value,
            ("ranges", []) => {}
            ("include", [_]) => {}
            ("delete", [network]) => {
                for network in networks_of(network)? {
                    networks.remove(&network);
                }
            }
            ("proxy" | "proxy_recursive", _) => {
                return Err(
                    "it reads addresses of clients from proxies of its own (`trusted_proxies` is for all)"
                        .to_owned(),
                );
            }
            (network, [value]) => {
                networks.extend(networks_of(network)?.into_iter().map(|network| (network, value.as_str())));
            }
            (other, _) => return Err(format!("`{other}` is not supported")),
        }
    }
    // The longest prefix decides.
    let mut networks: Vec<(IpNet, &str)> = networks.into_iter().collect();
    networks.sort_by_key(|(network, _)| network.max_prefix_len() - network.prefix_len());
    let test = |(network, value): (IpNet, &str)| {
        let key = match network.prefix_len() == network.max_prefix_len() {
            true => network.addr().to_string(),
            false => network.to_string(),
        };
        let test = ValueTest::Key { kind: MapKeyKind::Network, source: "client.address".to_owned(), key };
        (test, VariableValue::constant(value))
    };
    let tests = networks.into_iter().map(test).collect();
    let value = choice(tests, VariableValue::constant(default));
    Ok(ResolvedVariable { value, ..ResolvedVariable::constant("") })
}

/// The networks of an entry: one, or those of a range such as `10.0.0.1-10.0.0.9`.
fn networks_of(text: &str) -> Result<Vec<IpNet>, String> {
    let wrong = || format!("{text} is no network");
    if let Some((first, last)) = text.split_once('-') {
        let (Ok(first), Ok(last)) = (first.parse(), last.parse()) else { return Err(wrong()) };
        return Ok(ipnet::Ipv4Subnets::new(first, last, 0).map(IpNet::V4).collect());
    }
    if let Ok(network) = text.parse::<IpNet>() {
        return Ok(vec![network.trunc()]);
    }
    let address: std::net::IpAddr = text.parse().map_err(|_| wrong())?;
    Ok(vec![address.into()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_networks() {
        let text =
            |text| networks_of(text).map(|all| all.iter().map(ToString::to_string).collect::<Vec<_>>());
        for (range, expected) in [
            ("10.1.0.0-10.1.255.255", vec!["10.1.0.0/16"]),
            ("10.0.0.1-10.0.0.4", vec!["10.0.0.1/32", "10.0.0.2/31", "10.0.0.4/32"]),
            ("10.1.2.3/8", vec!["10.0.0.0/8"]),
            ("::1", vec!["::1/128"]),
            ("10.0.0.4-10.0.0.1", vec![]),
        ] {
            assert_eq!(text(range), Ok(expected.into_iter().map(str::to_owned).collect()), "{range}");
        }
        assert_eq!(text("10.0.0-x"), Err("10.0.0-x is no network".to_owned()));
    }
}
