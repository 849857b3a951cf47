//! Conditions of HAProxy's rules, as conditions on requests.

use std::collections::BTreeMap;

use adapt::statements::Statement;

use crate::old::OldCondition;
use crate::pattern::TextPattern;

/// Requests beyond what a limit admits, and the most for one limit.
const BURST_MORE: usize = 5;
const BURST_MAX: usize = 60;
/// Requests beyond what a limit of concurrent ones admits, and the highest limit that gets them.
const AT_ONCE_MORE: usize = 3;
const AT_ONCE_MAX: usize = 100;
/// Values of one condition that get requests.
const VALUES_MAX: usize = 4;

/// Ways to meet the conditions of one rule that get requests.
const WAYS_MAX: usize = 16;

/// Texts that conditions name.
#[derive(Default)]
pub(super) struct HaproxyTexts {
    /// Credentials as in `Authorization`, by the name of their list.
    pub(super) users: BTreeMap<String, String>,
    /// Keys and values of maps, by file.
    pub(super) maps: BTreeMap<String, Vec<(String, String)>>,
}

impl HaproxyTexts {
    /// The keys of the map that a sample looks its value up in, as conditions, each with its value.
    pub(super) fn mapped(&self, sample: &str) -> Vec<(OldCondition, String)> {
        let Some(file) = map_files(sample).into_iter().next() else { return Vec::new() };
        let (fetch, converters) = sample.split_once(',').unwrap_or((sample, ""));
        let (name, argument) = fetch.split_once('(').unwrap_or((fetch, ""));
        let argument = argument.trim_end_matches(')');
        let name = name.strip_prefix("req.").unwrap_or(name);
        let way = if converters.contains("map_beg") { "beg" } else { "str" };
        let rows = self.maps.get(file).map(Vec::as_slice).unwrap_or_default();
        let of_row = |(key, value): &(String, String)| {
            Some((of_text(name, argument, pattern(way, key.clone(), false))?, value.clone()))
        };
        rows.iter().filter_map(of_row).collect()
    }
}

/// Conditions by name, each with the ways to meet it.
pub(super) type Acls = BTreeMap<String, Vec<OldCondition>>;

pub(super) fn acls(section: &Statement, texts: &HaproxyTexts) -> Acls {
    let mut all = Acls::new();
    for line in section.inner().iter().filter(|line| line.name == "acl") {
        let words = line.words.get(1..).unwrap_or_default();
        all.entry(line.word(0).to_owned()).or_default().extend(criterion(words, texts));
    }
    all
}

/// The conditions of a line behind `if` or `unless`: a list for each way to meet them.
pub(super) fn ways(line: &Statement, known: &Acls, texts: &HaproxyTexts) -> Vec<Vec<OldCondition>> {
    let Some(start) = line.words.iter().rposition(|word| word == "if" || word == "unless") else {
        return vec![Vec::new()];
    };
    let mut ways: Vec<Vec<OldCondition>> = Vec::new();
    let mut misses: Vec<Vec<OldCondition>> = Vec::new();
    let mut current: Vec<Vec<OldCondition>> = vec![Vec::new()];
    let mut words = line.words[start + 1..].iter();
    let mut is_negated = line.words[start] == "unless";
    while let Some(word) = words.next() {
        let mut name = word.as_str();
        while let Some(rest) = name.strip_prefix('!') {
            is_negated = !is_negated;
            name = rest;
        }
        let met = match name {
            "or" | "||" => {
                ways.append(&mut current);
                current.push(Vec::new());
                continue;
            }
            "" => continue,
            "{" => {
                let inner: Vec<String> = words.by_ref().take_while(|word| *word != "}").cloned().collect();
                criterion(&inner, texts)
            }
            name => known.get(name).cloned().unwrap_or_default(),
        };
        let extended = |conditions: &Vec<OldCondition>| {
            let with = |one: &OldCondition| conditions.iter().cloned().chain([one.clone()]).collect();
            met.iter().take(VALUES_MAX).map(with).collect::<Vec<Vec<OldCondition>>>()
        };
        // What must not hold does not hold for most requests. One for which it holds misses the rule.
        if is_negated {
            misses.extend(current.iter().flat_map(extended).take(VALUES_MAX));
        } else if !met.is_empty() {
            current = current.iter().flat_map(extended).take(WAYS_MAX).collect();
        }
        is_negated = false;
    }
    ways.append(&mut current);
    ways.append(&mut misses);
    ways
}

/// The ways to meet a criterion with its values.
fn criterion(words: &[String], texts: &HaproxyTexts) -> Vec<OldCondition> {
    let Some(first) = words.first() else { return Vec::new() };
    let mapped = texts.mapped(first);
    if !mapped.is_empty() && words.iter().any(|word| word == "found") {
        return mapped.into_iter().map(|(condition, _)| condition).take(VALUES_MAX).collect();
    }
    // Converters behind a comma.
    let (sample, converters) = first.split_once(',').unwrap_or((first, ""));
    let (name, argument) = match sample.split_once('(') {
        Some((name, rest)) => {
            (name, rest.split(')').next().unwrap_or_default().split(',').next().unwrap_or_default())
        }
        None => (sample, ""),
    };
    let name = name.strip_prefix("req.").unwrap_or(name);
    let mut any_case = converters.contains("lower");
    let mut way = None;
    let mut values = Vec::new();
    let mut rest = words[1..].iter();
    while let Some(word) = rest.next() {
        match word.as_str() {
            "-i" => any_case = true,
            "-m" => way = rest.next().map(String::as_str),
            "-f" | "-M" | "-n" => return Vec::new(),
            "--" => {}
            "eq" | "gt" | "ge" | "lt" | "le" if name.starts_with("sc") => {}
            value => values.push(value.to_owned()),
        }
    }
    let (name, ending) = match name.rsplit_once('_') {
        Some((name, ending @ ("beg" | "end" | "sub" | "dir" | "dom" | "reg"))) => (name, Some(ending)),
        _ => (name, None),
    };
    let way = ending.or(way).unwrap_or("str");
    let number = || values.iter().find_map(|value| value.parse::<usize>().ok());
    match name {
        "src" => {
            return values
                .into_iter()
                .take(VALUES_MAX)
                .map(|value| OldCondition::Clients(vec![value]))
                .collect();
        }
        "method" => return vec![OldCondition::Methods(values)],
        "http_auth" | "http_auth_group" => {
            return texts.users.get(argument).map(of_login).into_iter().collect();
        }
        _ if name.starts_with("sc") && name.contains("http_req") => {
            return number()
                .map(|number| OldCondition::Burst((number + BURST_MORE).min(BURST_MAX)))
                .into_iter()
                .collect();
        }
        _ if name.starts_with("sc") && name.contains("conn_cur") => {
            return number().filter(|most| *most <= AT_ONCE_MAX).map(at_once).into_iter().collect();
        }
        // A number that meets the comparison.
        _ if way == "int" => values = met_number(&values).into_iter().collect(),
        _ => {}
    }
    if way == "found" {
        values = vec![String::new()];
    }
    values
        .into_iter()
        .take(VALUES_MAX)
        .filter_map(|value| of_text(name, argument, pattern(way, value, any_case)))
        .collect()
}

fn of_login(pair: &String) -> OldCondition {
    OldCondition::Field("Authorization".to_owned(), TextPattern::Exact(format!("Basic {pair}")))
}

fn at_once(most: usize) -> OldCondition {
    OldCondition::AtOnce(most + AT_ONCE_MORE)
}

/// A number that meets a comparison such as `gt 10`.
fn met_number(words: &[String]) -> Option<String> {
    let has = |signs: &[&str]| words.iter().any(|word| signs.contains(&word.as_str()));
    let number = words.iter().find_map(|word| word.parse::<usize>().ok()).filter(|_| !has(&["lt", "le"]))?;
    Some((number + usize::from(has(&["gt"]))).to_string())
}

fn pattern(way: &str, value: String, any_case: bool) -> TextPattern {
    match way {
        "beg" => TextPattern::Prefix(value),
        "end" => TextPattern::Suffix(value),
        "sub" | "dir" | "dom" => TextPattern::Contains(value),
        "reg" => TextPattern::Regex { pattern: value, any_case },
        "found" => TextPattern::Present,
        _ if any_case => TextPattern::ExactAnyCase(value),
        _ => TextPattern::Exact(value),
    }
}

fn of_text(name: &str, argument: &str, pattern: TextPattern) -> Option<OldCondition> {
    Some(match name {
        "path" | "url" | "pathq" | "capture.req.uri" => OldCondition::Path(pattern),
        "hdr" | "fhdr" if argument.eq_ignore_ascii_case("host") => OldCondition::Host(pattern),
        "base" => return None,
        // A request with it becomes a tunnel.
        "hdr" | "fhdr" if matches!(argument.to_ascii_lowercase().as_str(), "upgrade" | "connection") => {
            return None;
        }
        "hdr" | "fhdr" => OldCondition::Field(argument.to_owned(), pattern),
        "cook" | "cookie" => OldCondition::Cookie(argument.to_owned(), pattern),
        "url_param" | "urlp" => OldCondition::Argument(argument.to_owned(), pattern),
        _ => return None,
    })
}

/// The files in `map(FILE)`, `map_beg(FILE,default)` and so on.
pub(super) fn map_files(word: &str) -> Vec<&str> {
    let mut all = Vec::new();
    let mut rest = word;
    while let Some(place) = rest.find("map") {
        rest = &rest[place + 3..];
        let Some((kind, behind)) = rest.split_once('(') else { break };
        let is_map = kind.is_empty()
            || kind.starts_with('_') && kind.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        if is_map {
            all.extend(behind.split([')', ',']).next());
        }
    }
    all
}
