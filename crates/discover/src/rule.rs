//! Rules of Traefik: ``Host(`a.example`) && (PathPrefix(`/a`) || PathPrefix(`/b`))`` becomes a list of
//! alternatives, one route each. A condition without a counterpart rejects the whole rule: without it, the route
//! would match too many requests.

const DEPTH_MAX: usize = 16;
const ALTERNATIVES_MAX: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct RuleMatch {
    /// Empty matches any host.
    pub(crate) hosts: Vec<String>,
    pub(crate) path: Option<Path>,
    /// Empty matches any method.
    pub(crate) methods: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Path {
    Exact(String),
    Prefix(String),
}

/// Parses a rule. Fails with the condition that has no counterpart.
pub(crate) fn read(text: &str) -> Result<Vec<RuleMatch>, String> {
    let mut reader = RuleReader { rest: text.trim_start(), depth: 0 };
    let alternatives = reader.any()?;
    if reader.rest.is_empty() {
        Ok(alternatives)
    } else {
        Err(format!("{:?} is not expected here", reader.rest))
    }
}

struct RuleReader<'t> {
    rest: &'t str,
    depth: usize,
}

impl<'t> RuleReader<'t> {
    fn take(&mut self, token: &str) -> bool {
        let Some(rest) = self.rest.strip_prefix(token) else { return false };
        self.rest = rest.trim_start();
        true
    }

    fn any(&mut self) -> Result<Vec<RuleMatch>, String> {
        let mut all = self.all()?;
        while self.take("||") {
            all.extend(self.all()?);
            if all.len() > ALTERNATIVES_MAX {
                return Err(format!("it has more than {ALTERNATIVES_MAX} alternatives"));
            }
        }
        Ok(all)
    }

    fn all(&mut self) -> Result<Vec<RuleMatch>, String> {
        let mut all = self.one()?;
        while self.take("&&") {
            let more = self.one()?;
            if all.len() * more.len() > ALTERNATIVES_MAX {
                return Err(format!("it has more than {ALTERNATIVES_MAX} alternatives"));
            }
            let both = |one: &RuleMatch| more.iter().map(|other| both(one, other)).collect::<Vec<_>>();
            all = all.iter().flat_map(both).collect::<Result<_, _>>()?;
        }
        Ok(all)
    }

    fn one(&mut self) -> Result<Vec<RuleMatch>, String> {
        if self.rest.starts_with('!') {
            return Err("\"!\" is not supported".to_owned());
        }
        if self.take("(") {
            self.depth += 1;
            if self.depth > DEPTH_MAX {
                return Err("it has too many parentheses".to_owned());
            }
            let inside = self.any()?;
            self.depth -= 1;
            return if self.take(")") { Ok(inside) } else { Err("a parenthesis is not closed".to_owned()) };
        }
        let end =
            self.rest.find(|character: char| !character.is_ascii_alphanumeric()).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest.trim_start();
        if name.is_empty() || !self.take("(") {
            return Err(format!("a condition such as Host(`a.example`) is expected before {:?}", self.rest));
        }
        let values = self.values()?;
        conditions(name, values)
    }

    fn values(&mut self) -> Result<Vec<&'t str>, String> {
        let mut values = Vec::new();
        loop {
            let quote = self.rest.chars().next().filter(|quote| "`\"'".contains(*quote));
            let quoted = quote.and_then(|quote| self.rest[1..].split_once(quote));
            let (value, rest) = quoted.ok_or("a value in backquotes is expected")?;
            values.push(value);
            self.rest = rest.trim_start();
            if self.take(")") {
                return Ok(values);
            }
            if !self.take(",") {
                return Err("a parenthesis is not closed".to_owned());
            }
        }
    }
}

fn conditions(name: &str, values: Vec<&str>) -> Result<Vec<RuleMatch>, String> {
    let owned = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect();
    let paths = |path: fn(String) -> Path| {
        let is_path = |value: &&str| value.starts_with('/') && !value.contains(['{', '$', '~', ' ']);
        match values.iter().find(|value| !is_path(value)) {
            Some(value) => Err(format!("{name}(`{value}`) is not a plain path")),
            None => {
                let of = |value: &&str| RuleMatch {
                    path: Some(path((*value).to_owned())),
                    ..RuleMatch::default()
                };
                Ok(values.iter().map(of).collect())
            }
        }
    };
    match name {
        "Host" => {
            let hosts = values.iter().map(|host| host.to_ascii_lowercase()).collect();
            Ok(vec![RuleMatch { hosts, ..RuleMatch::default() }])
        }
        "Path" => paths(Path::Exact),
        "PathPrefix" => paths(Path::Prefix),
        "Method" => Ok(vec![RuleMatch { methods: owned(&values), ..RuleMatch::default() }]),
        other => Err(format!("{other} is not supported; Host, Path, PathPrefix and Method are")),
    }
}

fn both(one: &RuleMatch, other: &RuleMatch) -> Result<RuleMatch, String> {
    let lists = |one: &Vec<String>, other: &Vec<String>| match (one.is_empty(), other.is_empty()) {
        (_, true) => Ok(one.clone()),
        (true, _) => Ok(other.clone()),
        _ => Err("a request never has two hosts or methods".to_owned()),
    };
    let path = match (&one.path, &other.path) {
        (Some(_), Some(_)) => return Err("two conditions on the path are not supported".to_owned()),
        (one, other) => one.as_ref().or(other.as_ref()).cloned(),
    };
    Ok(RuleMatch {
        hosts: lists(&one.hosts, &other.hosts)?,
        path,
        methods: lists(&one.methods, &other.methods)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(alternatives: &[RuleMatch]) -> String {
        let one = |one: &RuleMatch| {
            let path = match &one.path {
                Some(Path::Exact(path)) => format!("= {path}"),
                Some(Path::Prefix(path)) => path.clone(),
                None => String::new(),
            };
            format!("{}|{path}|{}", one.hosts.join(","), one.methods.join(","))
        };
        alternatives.iter().map(one).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn rules() {
        for (rule, expected) in [
            ("Host(`a.example`)", "a.example||"),
            (" Host(`A.example`, \"b.example\") ", "a.example,b.example||"),
            ("Host(`a`)&&PathPrefix(`/api`)", "a|/api|"),
            ("Host(`a`) && (PathPrefix(`/b`) || Path(`/c`))", "a|/b|; a|= /c|"),
            ("Host(`a`) || Host(`b`) && Method(`GET`, `HEAD`)", "a||; b||GET,HEAD"),
            ("PathPrefix(`/a`, `/b`)", "|/a|; |/b|"),
            ("((Host('a')))", "a||"),
        ] {
            assert_eq!(read(rule).map(|read| shown(&read)).as_deref(), Ok(expected), "{rule}");
        }
    }

    #[test]
    fn conditions_without_a_counterpart_make_a_rule_fail() {
        for (rule, why) in [
            ("", "a condition such as"),
            ("Host(`a`) &&", "a condition such as"),
            ("Host(`a`", "not closed"),
            ("(Host(`a`)", "not closed"),
            ("Host(a)", "backquotes"),
            ("Host(`a`) x", "not expected"),
            ("!Host(`a`)", "\"!\""),
            ("Host(`a`) && ClientIP(`10.0.0.0/8`)", "ClientIP is not supported"),
            ("HostRegexp(`.*`)", "HostRegexp is not supported"),
            ("Host(`a`) && Host(`b`)", "never"),
            ("Path(`/a`) && PathPrefix(`/b`)", "two conditions on the path"),
            ("PathPrefix(`/{id:[0-9]+}`)", "not a plain path"),
        ] {
            let read = read(rule);
            assert!(read.as_ref().is_err_and(|told| told.contains(why)), "{rule}: {read:?}");
        }
        assert!(read(&"(".repeat(100)).is_err());
        let many = ["(Path(`/a`) || Path(`/b`))"; 7].join(" && Method(`GET`) && ");
        assert!(read(&many).is_err());
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[HostPathPrefix(`/a.é)&|! \"',]{0,60}") {
            let _ = read(&text);
        }
    }
}
