//! Reads a configuration file: a JSON list of proxies with their toxics, which Toxiproxy calls its config.
//!
//! The file is checked more strictly than API requests: unknown keys are mistakes.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;

use mistake::{LineMap, Mistake};
use serde_json::{Map, Value};
use shape::ToxicKind;

use super::body;
use super::proxies::{PROXIES_MAX, PreparedProxy};
use super::refusal::ApiRefusal;

/// Enough for the maximum number of proxies, written by hand.
const LARGEST_FILE_BYTES: u64 = 16 << 20;

/// Longer wrong values are cut in messages.
const GIVEN_SHOWN_MAX: usize = 40;

#[derive(Debug, Default)]
pub struct Config {
    pub(super) proxies: Vec<PreparedProxy>,
    file: String,
    text: String,
}

/// A key, a description of its value, and a check of the value.
type Known = (&'static str, &'static str, fn(&Value) -> bool);

const PROXY: &[Known] = &[
    ("name", "a text", Value::is_string),
    ("listen", "a text, HOST:PORT", |value| value == "" || has_port(value)),
    ("upstream", "a text, HOST:PORT", |value| has_port(value) && !is_port_alone(value)),
    ("enabled", "true or false", Value::is_boolean),
    ("toxics", "a list of toxics: [{\"type\": …}]", Value::is_array),
];
const TOXIC: &[Known] = &[
    ("name", "a text", Value::is_string),
    ("type", "a text", Value::is_string),
    ("stream", "\"upstream\" or \"downstream\"", Value::is_string),
    ("toxicity", "a number from 0 to 1", Value::is_number),
    ("attributes", "an object: {\"latency\": 100}", Value::is_object),
];
const LIST: &str = "a list of proxies: [{\"name\": …, \"listen\": …, \"upstream\": …}]";

impl Config {
    /// # Errors
    /// The mistakes of [`read`](Self::read), or that the file cannot be read.
    pub fn load(path: &Path) -> Result<Self, Vec<Mistake>> {
        let file = path.display().to_string();
        let failed = |why: String| vec![LineMap::new("", &file).mistake(&(0..0), why)];
        let bytes = bytes_of(path).map_err(|error| failed(format!("the file can't be read: {error}")))?;
        if bytes.len() as u64 > LARGEST_FILE_BYTES {
            return Err(failed(format!("the file is larger than {} MiB", LARGEST_FILE_BYTES >> 20)));
        }
        let text = String::from_utf8(bytes).map_err(|_| failed("this is not UTF-8 text".to_owned()))?;
        Self::read(&text, &file)
    }

    /// Parses the text of a file; `file` is its name in mistakes.
    ///
    /// # Errors
    /// The first mistake of each invalid proxy.
    pub fn read(text: &str, file: &str) -> Result<Self, Vec<Mistake>> {
        let places = LineMap::new(text, file);
        let value: Value =
            serde_json::from_str(text).map_err(|error| vec![no_json(text, &places, &error)])?;
        let Value::Array(proxies) = body::in_lower_case(value) else {
            return Err(vec![places.mistake(&first(text), "this is not a list").expecting(LIST)]);
        };
        if proxies.len() > PROXIES_MAX {
            let much = ApiRefusal::TooMany { what: "proxies", most: PROXIES_MAX };
            return Err(vec![placed(text, &places, &proxies_in(text), &much.at("proxy", PROXIES_MAX))]);
        }
        let wrong =
            |(index, proxy): (usize, &Value)| fits(proxy).err().map(|refusal| refusal.at("proxy", index));
        let mut refusals: Vec<ApiRefusal> = proxies.iter().enumerate().filter_map(wrong).collect();
        let mut wanted = Vec::new();
        for read in PreparedProxy::list(proxies) {
            match read {
                Ok(proxy) => wanted.push(proxy),
                // This proxy has a refusal already.
                Err(refusal) if refusals.iter().any(|other| other.is_of_same(&refusal)) => {}
                Err(refusal) => refusals.push(refusal),
            }
        }
        if refusals.is_empty() {
            return Ok(Self { proxies: wanted, file: file.to_owned(), text: text.to_owned() });
        }
        let at = proxies_in(text);
        let mut mistakes: Vec<Mistake> =
            refusals.iter().map(|refusal| placed(text, &places, &at, refusal)).collect();
        mistakes.sort_by_key(|mistake| (mistake.line, mistake.column));
        Err(mistakes)
    }

    pub(super) fn mistake(&self, refusal: &ApiRefusal) -> Mistake {
        let Self { text, file, .. } = self;
        placed(text, &LineMap::new(text, file), &proxies_in(text), refusal)
    }

    pub(super) fn take(&mut self) -> Vec<PreparedProxy> {
        std::mem::take(&mut self.proxies)
    }
}

/// Reads the file, and one byte beyond the limit, which reveals a file that is too large.
fn bytes_of(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(LARGEST_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Checks the keys of a proxy and the types of their values.
fn fits(proxy: &Value) -> Result<(), ApiRefusal> {
    let pairs = keys_fit(proxy, "a proxy", PROXY, |_, _| None)?;
    let toxics = pairs.get("toxics").and_then(Value::as_array);
    for (index, toxic) in toxics.into_iter().flatten().enumerate() {
        keys_fit(toxic, "a toxic", TOXIC, misplaced).map_err(|refusal| refusal.at("toxic", index))?;
    }
    Ok(())
}

fn keys_fit<'v>(
    value: &'v Value,
    of: &'static str,
    known: &[Known],
    better: fn(&Map<String, Value>, &str) -> Option<ApiRefusal>,
) -> Result<&'v Map<String, Value>, ApiRefusal> {
    let form = |key: Option<&str>, expected, given: &Value| {
        let given = given.to_string().chars().take(GIVEN_SHOWN_MAX).collect();
        ApiRefusal::Form { key: key.map(str::to_owned), of, expected, given }
    };
    let pairs = value.as_object().ok_or_else(|| form(None, "an object: {…}", value))?;
    for (key, value) in pairs {
        match known.iter().find(|(name, ..)| name == key) {
            Some((_, expected, is_right)) if !value.is_null() && !is_right(value) => {
                return Err(form(Some(key), expected, value));
            }
            Some(_) => {}
            None => {
                let known = known.iter().map(|(name, ..)| *name).collect();
                return Err(better(pairs, key).unwrap_or(ApiRefusal::Key { name: key.clone(), of, known }));
            }
        }
    }
    Ok(pairs)
}

/// Refuses an attribute that is outside `attributes`.
fn misplaced(toxic: &Map<String, Value>, key: &str) -> Option<ApiRefusal> {
    let kind = ToxicKind::named(toxic.get("type")?.as_str()?)?;
    let is_attribute = kind.attributes.iter().any(|attribute| attribute.name == key);
    is_attribute.then(|| ApiRefusal::Misplaced { name: key.to_owned() })
}

fn has_port(value: &Value) -> bool {
    let port = value.as_str().and_then(|text| text.rsplit_once(':')).map(|(_, port)| port);
    port.is_some_and(|port| port.parse::<u16>().is_ok())
}

fn is_port_alone(value: &Value) -> bool {
    value.as_str().and_then(|text| text.rsplit_once(':')).is_some_and(|(host, _)| host.is_empty())
}

/// Reports invalid JSON at the place of the first error.
fn no_json(text: &str, places: &LineMap<'_>, error: &serde_json::Error) -> Mistake {
    let lines = text.split_inclusive('\n').take(error.line().saturating_sub(1));
    let at = (lines.map(str::len).sum::<usize>() + error.column().saturating_sub(1)).min(text.len());
    let at = (0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let said = mistake::json_error(&error.to_string());
    let what = said.split(" at line ").next().unwrap_or_default();
    places.mistake(&(at..at + 1), format!("this is not JSON: {what}")).expecting(LIST)
}

/// Finds the text of each proxy.
fn proxies_in(text: &str) -> Vec<Range<usize>> {
    members(text, first(text).start).into_iter().map(|member| member.value).collect()
}

fn placed(text: &str, places: &LineMap<'_>, proxies: &[Range<usize>], refusal: &ApiRefusal) -> Mistake {
    let (mut at, mut cause) = (first(text), refusal);
    while let ApiRefusal::At { what, number, refusal } = cause {
        let inner = match *what {
            "toxic" => toxic_in(text, at.start, number - 1),
            _ => proxies.get(number - 1).cloned(),
        };
        at = inner.unwrap_or(at);
        cause = refusal;
    }
    let key = cause.names_key().and_then(|name| key_within(text, at.start, name));
    let message = match cause {
        ApiRefusal::Body(why) => why.clone(),
        cause => cause.to_string(),
    };
    places.mistake(&key.unwrap_or(at), message)
}

/// Finds the text of a toxic of the proxy that begins at `start`.
fn toxic_in(text: &str, start: usize, index: usize) -> Option<Range<usize>> {
    let toxics = members(text, start).into_iter().find(|member| is_key(text, member, "toxics"))?;
    members(text, toxics.value.start).into_iter().nth(index).map(|member| member.value)
}

/// A member of a list or an object, as ranges of the text. In a list, the keys are empty.
struct FileMember {
    key: Range<usize>,
    value: Range<usize>,
}

fn is_key(text: &str, member: &FileMember, name: &str) -> bool {
    text.get(member.key.clone()).is_some_and(|key| key.trim_matches('"').eq_ignore_ascii_case(name))
}

/// Finds the first key with this name in an object, or in its nested values.
fn key_within(text: &str, start: usize, name: &str) -> Option<Range<usize>> {
    members(text, start).into_iter().find_map(|member| match is_key(text, &member, name) {
        true => Some(member.key),
        false => key_within(text, member.value.start, name),
    })
}

/// Finds the text of the outermost value.
fn first(text: &str) -> Range<usize> {
    value(text, gap(text, 0))
}

/// Finds the members of the list or object at `start` in valid JSON; none for any other value.
fn members(text: &str, start: usize) -> Vec<FileMember> {
    let is_object = match text.as_bytes().get(start) {
        Some(b'{') => true,
        Some(b'[') => false,
        _ => return Vec::new(),
    };
    let mut members = Vec::new();
    let mut at = gap(text, start + 1);
    while at < text.len() && !matches!(text.as_bytes()[at], b']' | b'}') {
        let key = if is_object { value(text, at) } else { at..at };
        let value = value(text, gap(text, key.end));
        at = gap(text, value.end);
        members.push(FileMember { key, value });
    }
    members
}

/// Skips white space, commas and colons.
fn gap(text: &str, start: usize) -> usize {
    let is_between = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | b',' | b':');
    start + text.as_bytes()[start.min(text.len())..].iter().take_while(|byte| is_between(byte)).count()
}

fn value(text: &str, start: usize) -> Range<usize> {
    let (mut depth, mut is_text, mut is_escaped) = (0u32, false, false);
    for (at, byte) in text.as_bytes()[start.min(text.len())..].iter().enumerate() {
        let at = start + at;
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            _ if is_text => continue,
            b'[' | b'{' => depth += 1,
            b']' | b'}' if depth == 0 => return start..at,
            b']' | b'}' => depth -= 1,
            b' ' | b'\t' | b'\r' | b'\n' | b',' | b':' if depth == 0 => return start..at,
            _ => continue,
        }
        if depth == 0 && !is_text && matches!(byte, b'"' | b']' | b'}') {
            return start..at + 1;
        }
    }
    start..text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the mistakes in a file, each with the text that it marks.
    fn mistakes(text: &str) -> Vec<(String, String)> {
        let mistakes = Config::read(text, "f").err().unwrap_or_default();
        let marked = |mistake: &Mistake| {
            let excerpt = &mistake.excerpt;
            excerpt.text.chars().skip(excerpt.before).take(excerpt.marked).collect()
        };
        mistakes.iter().map(|mistake| (mistake.to_string(), marked(mistake))).collect()
    }

    #[test]
    fn a_file_is_read_as_the_documents_of_toxiproxy_have_it() {
        let text = r#"[
  {
    "name": "web_dev_frontend_1",
    "listen": "[::]:18080",
    "upstream": "webapp.domain:8080",
    "enabled": true
  },
  {"Name": "web_dev_mysql_1", "Upstream": "database.domain:3306", "enabled": null,
   "toxics": [{"type": "latency", "attributes": {"Latency": 1000, "jitter": null}}, {"type": "timeout", "name": "t"}]}
]
"#;
        assert_eq!(Config::read(text, "f").map(|config| config.proxies.len()), Ok(2));
        assert_eq!(Config::read(" []", "f").map(|config| config.proxies.len()), Ok(0));
    }

    #[test]
    fn mistakes_are_told_where_they_are() {
        let a = r#"{"name": "a", "upstream": "u:1""#;
        let cases: &[(&str, &str, &str)] = &[
            ("", "f:1:1: this is not JSON: the text ends too early; expected a list of proxies", ""),
            ("[\n  {\"name\": \"a\",}\n]", "f:2:16: this is not JSON: trailing comma", "}"),
            (r#" {"proxies": []}"#, "f:1:2: this is not a list; expected a list of proxies", "{"),
            ("[7]", "f:1:2: a proxy is an object: {…}, not 7", "7"),
            (
                "[\n {\"name\": \"a\",\n  \"upsteam\": \"u:1\"}]",
                r#"f:3:3: unknown key "upsteam" of a proxy; did you mean "upstream"?"#,
                r#""upsteam""#,
            ),
            (r#"[{"name": "a"}]"#, "f:1:2: missing required field: upstream", "{"),
            (
                &format!("[{a}, \"enabled\": \"no\"}}]"),
                "\"enabled\" of a proxy is true or false, not \"no\"",
                "\"enabled\"",
            ),
            (
                r#"[{"name": "a", "listen": ":1", "upstream": "localhost"}]"#,
                r#""upstream" of a proxy is a text, HOST:PORT, not "localhost""#,
                r#""upstream""#,
            ),
            (
                r#"[{"name": "a", "listen": "0.0.0.0:99999", "upstream": "[::1]:1"}]"#,
                r#""listen" of a proxy is a text, HOST:PORT, not "0.0.0.0:99999""#,
                r#""listen""#,
            ),
            (r#"[{"name": "a", "upstream": ":1"}]"#, r#""upstream" of a proxy is"#, r#""upstream""#),
            (
                &format!("[{a}, \"toxics\": {{}}}}]"),
                "\"toxics\" of a proxy is a list of toxics",
                "\"toxics\"",
            ),
            (&format!("[{a}}},\n{a}}}]"), "f:2:1: proxy already exists: \"a\" is in the list twice", "{"),
            (
                &format!("[{a}, \"TOXICS\": [{{\"type\": \"latency\"}},\n {{\"type\": \"noise\"}}]}}]"),
                "f:2:2: invalid toxic type: \"noise\" is none of latency",
                "{",
            ),
            (
                &format!(
                    "[{a}, \"toxics\": [\n{{\"type\": \"latency\", \"attributes\": {{\"Latnecy\": 1}}}}]}}]"
                ),
                "f:2:36: unknown attribute \"latnecy\" of latency; did you mean \"latency\"? It has latency, jitter",
                "\"Latnecy\"",
            ),
            (
                &format!("[{a}, \"toxics\": [{{\"type\": \"timeout\", \"timeout\": 5}}]}}]"),
                "\"timeout\" belongs in \"attributes\"",
                "\"timeout\"",
            ),
            (
                &format!("[{a}, \"toxics\": [{{\"type\": \"timeout\", \"toxcity\": 0.5}}]}}]"),
                "unknown key \"toxcity\" of a toxic; did you mean \"toxicity\"?",
                "\"toxcity\"",
            ),
            (
                &format!("[{a}, \"toxics\": [{{\"type\": \"timeout\", \"toxicity\": 50}}]}}]"),
                ": toxicity is a share of connections from 0 to 1, not 50",
                "{",
            ),
            // Brackets, quotes and escapes in texts are not structure.
            (
                r#"[{"name": "]}\"{[,", "upstream": "u\\:1"}, {"name": "b", "upstream": "\u0075:1", "listn": ""}]"#,
                r#"unknown key "listn" of a proxy; did you mean "listen"?"#,
                r#""listn""#,
            ),
        ];
        for (text, said, marked) in cases {
            let all = mistakes(text);
            let [(sentence, mark)] = all.as_slice() else { panic!("{text}: {all:?}") };
            assert!(sentence.contains(said), "{text}: {sentence}");
            assert!(mark.starts_with(marked), "{text}: {mark:?}");
        }
    }

    #[test]
    fn every_proxy_that_is_wrong_is_told_of_once() {
        let all = mistakes(
            "[{\"nam\": \"a\"},\n{\"name\": \"b\", \"upstream\": \"u:1\"},\n{\"name\": 7},\n{\"name\": \"b\", \"upstream\": \"u:2\"}]",
        );
        let places: Vec<&str> = all.iter().filter_map(|(sentence, _)| sentence.get(..6)).collect();
        assert_eq!(places, ["f:1:3:", "f:3:2:", "f:4:1:"], "{all:?}");
        let many = format!("[{}{{}}]", "{},\n".repeat(PROXIES_MAX));
        let all = mistakes(&many);
        assert!(
            all.len() == 1 && all[0].0.starts_with("f:1025:1: there are already 1024 proxies"),
            "{all:?}"
        );
    }

    #[test]
    fn whatever_is_cut_off_is_a_mistake() {
        let text = r#"[{"name": "é\"", "upstream": "u:1", "toxics": [{"type": "latency", "attributes": {"latency": 1.0}}]}]"#;
        assert!(Config::read(text, "f").is_ok());
        for end in (0..text.len()).filter(|end| text.is_char_boundary(*end)) {
            assert_eq!(mistakes(&text[..end]).len(), 1, "{}", &text[..end]);
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_is_a_mistake() {
        for (path, said) in [
            ("/nowhere/f.json", "/nowhere/f.json:1:1: the file can't be read"),
            ("/", "can't be read"),
            ("/dev/zero", "is larger than 16 MiB"),
        ] {
            let mistakes = Config::load(Path::new(path)).expect_err(path);
            assert!(mistakes[0].to_string().contains(said), "{mistakes:?}");
        }
    }
}
