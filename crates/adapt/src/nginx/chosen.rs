//! Servers that a variable chooses: `proxy_pass http://$backend`, and `split_clients`.

use super::NginxAdapter;
use super::conditions::{VariableTest, origins};
use super::expressions::chain;
use super::scope::BlockScope;
use super::servers::RouteEntry;
use super::syntax::Directive;
use super::truth::NginxCondition;
use super::upstreams::{AskedPath, AskedServers, has_host, target, whole_path, without_usual_port};
use super::values::{field_name, split_name};
use super::variables::{ResolvedVariable, VariableValue};
use crate::draft::{DraftValue, StatementOrigin};

/// Ends of `proxy_pass` that are the request's own path and query.
const OWN_PATHS: [&str; 4] = ["$request_uri", "$uri$is_args$args", "$uri?$args", "$uri"];
/// The most servers that a variable chooses from.
const SERVERS_MAX: usize = 1000;

impl<'s> NginxAdapter<'s> {
    /// Translates the target of a `proxy_pass` with variables, each of whose values is a constant.
    ///
    /// # Errors
    /// Why that is not possible.
    pub(super) fn chosen(
        &mut self,
        pass: &'s Directive,
        scope: &BlockScope<'s>,
        entry: &mut RouteEntry,
    ) -> Result<AskedServers, String> {
        let word = pass.word(0);
        let word = OWN_PATHS.iter().find_map(|end| word.strip_suffix(end)).unwrap_or(word);
        let (word, uri) = split_path(word);
        let path = self.fixed_path(uri, scope, entry)?;
        if let Some(asked) = self.split(word, pass, scope, entry)? {
            return Ok(AskedServers { path, ..asked });
        }
        let resolved = self.declarations.text(word, scope.sets())?;
        let first = word.split('$').nth(1).map_or("", |rest| split_name(rest).0);
        let mut servers: Vec<(String, Option<ChosenUpstream>)> = Vec::new();
        for leaf in resolved.value.leaves() {
            let Some(text) = leaf.as_constant() else {
                return Err("a server is not chosen by a text of the request".to_owned());
            };
            if servers.iter().any(|(known, _)| known == text) {
                continue;
            }
            if servers.len() >= SERVERS_MAX {
                return Err(format!("it chooses from more than {SERVERS_MAX} servers"));
            }
            servers.push((text.to_owned(), self.chosen_server(text, pass, scope)?));
        }
        let found: Vec<&ChosenUpstream> = servers.iter().filter_map(|(_, server)| server.as_ref()).collect();
        let Some(known) = found.first().map(|server| (*server).clone()) else {
            return Err("none of its values is a server".to_owned());
        };
        let server =
            |text: &str| servers.iter().find(|(of, _)| of == text).and_then(|(_, server)| server.clone());
        if servers.iter().any(|(_, server)| server.is_none()) {
            let mut nowhere = NginxCondition::Known(false);
            for (text, _) in servers.iter().filter(|(_, server)| server.is_none()) {
                let equal = VariableTest::Equal { value: VariableValue::constant(text), is_not: false };
                nowhere = NginxCondition::any(vec![nowhere, self.condition(&resolved, &equal, first)?]);
            }
            entry.nowhere = Some(nowhere);
        }
        // Requests without a server get another route.
        let mut named = |of: &dyn Fn(&ChosenUpstream) -> String, base: &str| -> Result<String, String> {
            if found.iter().all(|server| of(server) == of(&known)) {
                return Ok(of(&known));
            }
            let value = resolved.value.map(&mut |leaf| {
                let server = leaf.as_constant().and_then(server).unwrap_or_else(|| known.clone());
                Ok::<_, String>(VariableValue::constant(&of(&server)))
            })?;
            let value = ResolvedVariable { value, ..resolved.clone() };
            let name = self.constants(base, &value, entry)?;
            Ok(format!("${{{name}}}"))
        };
        let upstream = named(&|server| server.upstream.clone(), first)?;
        let host = match &known.host {
            // The names of groups.
            Some(_) if found.iter().all(|server| server.host.as_ref() == Some(&server.upstream)) => {
                Some(upstream.clone())
            }
            Some(_) => {
                Some(named(&|server| server.host.clone().unwrap_or_default(), &format!("{first}_host"))?)
            }
            None => None,
        };
        Ok(AskedServers { upstream, host, path, from: origins(resolved.used.iter().copied()) })
    }

    /// Translates a path behind variables. Where `proxy_pass` has variables, it is that of every request.
    fn fixed_path(
        &mut self,
        uri: &str,
        scope: &BlockScope<'s>,
        entry: &mut RouteEntry,
    ) -> Result<AskedPath, String> {
        const QUERIES: [&str; 4] = ["$is_args$args", "$is_args$query_string", "?$args", "?$query_string"];
        if uri.is_empty() {
            return Ok(AskedPath::Own);
        }
        let with_query = QUERIES.iter().find_map(|query| uri.strip_suffix(query));
        let path = with_query.unwrap_or(uri);
        if path.contains("is_args") || path.contains([' ', '"', '#', '<', '>', '\\', '^', '`', '|']) {
            return Err("its path cannot be written here".to_owned());
        }
        let path = self.template(path, scope, entry)?;
        Ok(AskedPath::Fixed(if with_query.is_some() { path } else { whole_path(&path) }))
    }

    /// Defines a value that is one of several constants: Vanward checks them, if a map does not give them.
    fn constants(
        &mut self,
        base: &str,
        value: &ResolvedVariable,
        entry: &mut RouteEntry,
    ) -> Result<String, String> {
        match chain(&value.value) {
            Ok(text) => {
                let from = origins(value.used.iter().copied());
                if value.is_of_block {
                    self.sheet.definitions.value_of_route(&mut entry.options, base, &text, from)
                } else {
                    self.sheet.definitions.value(base, &text, from)
                }
            }
            Err(_) => self.value(base, value, Some(entry)),
        }
    }

    /// Returns the server that a text names; `None` for a text that is no URL, to which nginx answers 500.
    fn chosen_server(
        &mut self,
        text: &str,
        pass: &'s Directive,
        scope: &BlockScope<'s>,
    ) -> Result<Option<ChosenUpstream>, String> {
        let Ok(target) = target(text, &pass.name) else { return Ok(None) };
        if target.uri.is_some() {
            return Err("a path behind a variable replaces that of the request".to_owned());
        }
        let upstream = self.upstream(&target, pass, scope).ok_or("its server cannot be named")?;
        let host = has_host(&target).then(|| without_usual_port(&target));
        Ok(Some(ChosenUpstream { upstream, host }))
    }

    /// Translates `proxy_pass http://$name` where `split_clients` declares the variable.
    fn split(
        &mut self,
        word: &str,
        pass: &'s Directive,
        scope: &BlockScope<'s>,
        entry: &mut RouteEntry,
    ) -> Result<Option<AskedServers>, String> {
        let (start, name) = match word.split_once('$') {
            Some((start, name)) => (start, split_name(name)),
            None => return Ok(None),
        };
        let Some(split) = self.declarations.find(name.0).filter(|found| found.name == "split_clients") else {
            return Ok(None);
        };
        if scope.sets().contains_key(name.0) {
            return Ok(None);
        }
        let key = split.word(0).split_once('$').map_or("", |(_, rest)| split_name(rest).0);
        let sticky = match key {
            "remote_addr" | "binary_remote_addr" => Some("client".to_owned()),
            "request_id" => None,
            key => match (key.strip_prefix("http_"), key.strip_prefix("arg_")) {
                (Some(field), _) => Some(format!("header:{}", field_name(field))),
                (_, Some(argument)) => Some(format!("query:{argument}")),
                _ => return Err("`split` goes by the client, a field or a parameter".to_owned()),
            },
        };
        let (mut weights, mut hosts, mut left) = (Vec::new(), Vec::new(), 10_000_u64);
        for part in split.inner() {
            let weight = match part.name.as_str() {
                "*" => left,
                percent => hundredths(percent).ok_or_else(|| format!("{percent} is no percentage"))?,
            };
            left = left.saturating_sub(weight);
            let text = format!("{start}{}{}", part.word(0), name.1);
            let server =
                self.chosen_server(&text, pass, scope)?.ok_or_else(|| format!("{text} is no server"))?;
            hosts.push(server.host);
            match weights.iter_mut().find(|(known, _): &&mut (String, u64)| *known == server.upstream) {
                Some((_, known)) => *known += weight,
                None if weight > 0 => weights.push((server.upstream, weight)),
                None => {}
            }
        }
        let divisor =
            weights.iter().fold(0, |divisor, (_, weight)| greatest_common_divisor(divisor, *weight));
        let weight = |(name, weight): (String, u64)| (name, DraftValue::Number(weight / divisor.max(1)));
        let pairs: Vec<(String, DraftValue)> = weights.into_iter().map(weight).collect();
        let mut from = super::from(pass);
        from.push(StatementOrigin::Directive(split.number));
        entry.options.set("split", DraftValue::Table(pairs), from.clone());
        if let Some(by) = sticky {
            let sticky = DraftValue::Table(vec![("by".to_owned(), by.into())]);
            entry.options.set("sticky", sticky, from.clone());
        }
        let is_one = hosts.windows(2).all(|pair| pair[0] == pair[1]);
        let has_host =
            scope.all("proxy_set_header").iter().any(|set| set.word(0).eq_ignore_ascii_case("host"));
        if !is_one && !has_host {
            return Err("each server of a `split` would need another `host`".to_owned());
        }
        Ok(Some(AskedServers {
            upstream: String::new(),
            host: hosts.pop().flatten(),
            path: AskedPath::Own,
            from,
        }))
    }
}

/// Splits a target into scheme with host, and path.
fn split_path(word: &str) -> (&str, &str) {
    let host = word.find("://").map_or(0, |scheme| scheme + 3);
    let path = word.get(host..).and_then(|rest| rest.find('/'));
    word.split_at(path.map_or(word.len(), |path| host + path))
}

#[derive(Clone)]
struct ChosenUpstream {
    upstream: String,
    host: Option<String>,
}

/// A percentage such as `0.5%`, in hundredths of a percent.
fn hundredths(text: &str) -> Option<u64> {
    let (whole, part) = text.strip_suffix('%')?.split_once('.').unwrap_or((text.strip_suffix('%')?, ""));
    let is_short = part.len() <= 2 && part.bytes().all(|byte| byte.is_ascii_digit());
    let part: u64 = format!("{part:0<2}").parse().ok().filter(|_| is_short)?;
    whole.parse::<u64>().ok().filter(|whole| *whole <= 100).map(|whole| whole * 100 + part)
}

fn greatest_common_divisor(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { greatest_common_divisor(other, one % other) }
}
