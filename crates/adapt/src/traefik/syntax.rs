//! Parses Traefik's files in YAML or TOML: keys with a text, with texts, or with a block.
//!
//! Only the content of blocks counts. A block is a statement only if its key is a name of the user's, as for
//! routers. It then has the number of its first inner statement.

use std::collections::BTreeMap;

use mistake::{LineMap, Mistake};
use saphyr_parser::{Event, Parser, Span};
use toml::de::{DeTable, DeValue};

use crate::Include;
use crate::source::{Directive, SourceFiles, joined};

const STATEMENTS_MAX: usize = 100_000;
const DEPTH_MAX: usize = 32;
/// Blocks whose keys are names of the user's.
const NAMED: [&str; 9] = [
    "routers",
    "services",
    "middlewares",
    "serverstransports",
    "entrypoints",
    "certificatesresolvers",
    "options",
    "stores",
    "plugin",
];

#[derive(Clone)]
struct YamlNode {
    key: String,
    line: usize,
    value: YamlValue,
}

#[derive(Clone)]
enum YamlValue {
    Text(String),
    /// A list: its keys are `-`.
    List(Vec<YamlNode>),
    Block(Vec<YamlNode>),
}

/// Keys at the top of dynamic files. Traefik ignores others there: a folder may hold the static file, too.
const DYNAMIC: [&str; 4] = ["http", "tcp", "udp", "tls"];

/// Parses and merges a file and those of its `providers.file`: static and dynamic options have different keys.
pub(crate) fn read(
    text: &str,
    file: &str,
    include: Include<'_>,
) -> Result<(Vec<Directive>, SourceFiles), Box<Mistake>> {
    let mut reader = YamlReader { source: SourceFiles::default() };
    let mut tree = reader.file(text, file, |_| true)?;
    let is_dynamic = |node: &YamlNode| DYNAMIC.iter().any(|key| node.key.eq_ignore_ascii_case(key));
    for (number, pattern, is_folder) in provided(&tree) {
        let patterns: Vec<String> = match is_folder {
            true => {
                let folder = pattern.trim_end_matches('/');
                ["toml", "yml", "yaml"].iter().map(|ending| format!("{folder}/**/*.{ending}")).collect()
            }
            false => vec![pattern],
        };
        for pattern in patterns {
            match include(&pattern) {
                Ok(files) => {
                    for (name, text) in files {
                        tree.extend(reader.file(&text, &name, is_dynamic)?);
                    }
                }
                Err(why) => reader.source.unread.push((number, why)),
            }
        }
    }
    Ok((tree, reader.source))
}

/// The files and folders of `providers.file`, with the numbers of their statements.
fn provided(tree: &[Directive]) -> Vec<(usize, String, bool)> {
    let is = |name: &'static str| move |directive: &&Directive| directive.name.eq_ignore_ascii_case(name);
    let files = tree.iter().filter(is("providers")).flat_map(Directive::inner).filter(is("file"));
    let mut found = Vec::new();
    for option in files.flat_map(Directive::inner) {
        let is_folder = option.name.eq_ignore_ascii_case("directory");
        if is_folder || option.name.eq_ignore_ascii_case("filename") {
            found.push((option.number, option.word(0).to_owned(), is_folder));
        }
    }
    found
}

struct YamlReader {
    source: SourceFiles,
}

impl YamlReader {
    /// Parses a file, with the blocks at its top that are wanted.
    fn file(
        &mut self,
        text: &str,
        file: &str,
        is_wanted: impl FnMut(&YamlNode) -> bool,
    ) -> Result<Vec<Directive>, Box<Mistake>> {
        self.source.files.push(file.to_owned());
        let places = LineMap::new(text, file);
        let mut nodes = if is_toml(text, file) { toml(text, &places)? } else { yaml(text, &places)? };
        nodes.retain(is_wanted);
        let tree = self.directives(nodes, "", false);
        if self.source.places.len() > STATEMENTS_MAX {
            return Err(too_many(&places));
        }
        Ok(tree)
    }

    /// Numbers the content of a block. `path` are its outer keys.
    fn directives(&mut self, nodes: Vec<YamlNode>, path: &str, are_named: bool) -> Vec<Directive> {
        let mut all = Vec::new();
        for node in nodes {
            if self.source.places.len() > STATEMENTS_MAX {
                break;
            }
            let separator = if path.is_empty() { "" } else { "." };
            let whole = format!("{path}{separator}{}", node.key);
            let file = self.source.files.len() - 1;
            let texts = texts(&node.value);
            let mut number = self.source.places.len();
            let mut is_statement = false;
            if are_named || texts.is_some() || is_empty(&node.value) {
                let words = texts.as_deref().unwrap_or_default();
                number = self.source.add(file, node.line, &node.key, &joined(&whole, words));
                is_statement = true;
            }
            let is_named = NAMED.contains(&node.key.to_ascii_lowercase().as_str()) && !are_named;
            let block = match (texts.is_some(), node.value) {
                (false, YamlValue::Block(inner)) => Some(self.directives(inner, &whole, is_named)),
                (false, YamlValue::List(inner)) => Some(self.directives(inner, &whole, false)),
                _ => None,
            };
            if is_statement {
                self.source.end_block(number);
            }
            all.push(Directive { number, name: node.key, words: texts.unwrap_or_default(), block });
        }
        all
    }
}

/// The text of a value, or the texts of a list without other values.
fn texts(value: &YamlValue) -> Option<Vec<String>> {
    match value {
        YamlValue::Text(text) => Some(vec![text.clone()]),
        YamlValue::List(items) if !items.is_empty() => {
            let text = |item: &YamlNode| match &item.value {
                YamlValue::Text(text) => Some(text.clone()),
                _ => None,
            };
            items.iter().map(text).collect()
        }
        _ => None,
    }
}

fn is_empty(value: &YamlValue) -> bool {
    matches!(value, YamlValue::List(inner) | YamlValue::Block(inner) if inner.is_empty())
}

/// Traefik goes by the file name's extension. Without a known one, the first line decides.
fn is_toml(text: &str, file: &str) -> bool {
    let has = |ending: &str| file.len() > ending.len() && file.ends_with(ending);
    if has(".yml") || has(".yaml") {
        return false;
    }
    let first = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'));
    has(".toml") || first.is_some_and(|line| line.starts_with('[') || line.contains(" = "))
}

fn toml(text: &str, places: &LineMap<'_>) -> Result<Vec<YamlNode>, Box<Mistake>> {
    let root = DeTable::parse(text).map_err(|error| {
        let (at, words) = mistake::toml_syntax(text, &error.span().unwrap_or(0..0), error.message());
        let expected = words.expected.unwrap_or_else(|| "TOML".to_owned());
        Box::new(places.mistake(&at, words.message).expecting(expected).hinting(template(text)))
    })?;
    table(root.get_ref(), text, 0).ok_or_else(|| too_deep(places))
}

/// Returns the nodes of a table in the order of the file; `None` if it nests too deep.
fn table(table: &DeTable<'_>, text: &str, depth: usize) -> Option<Vec<YamlNode>> {
    let mut nodes = Vec::new();
    for (key, inner) in table {
        let at = key.span().start;
        nodes.push((
            at,
            YamlNode {
                key: key.get_ref().to_string(),
                line: line_of(text, at),
                value: value(inner.get_ref(), text, depth)?,
            },
        ));
    }
    nodes.sort_by_key(|(at, _)| *at);
    Some(nodes.into_iter().map(|(_, node)| node).collect())
}

fn value(found: &DeValue<'_>, text: &str, depth: usize) -> Option<YamlValue> {
    if depth >= DEPTH_MAX {
        return None;
    }
    Some(match found {
        DeValue::String(text) => YamlValue::Text(text.to_string()),
        DeValue::Integer(number) => YamlValue::Text(number.as_str().to_owned()),
        DeValue::Float(number) => YamlValue::Text(number.as_str().to_owned()),
        DeValue::Boolean(is_so) => YamlValue::Text(is_so.to_string()),
        DeValue::Datetime(time) => YamlValue::Text(time.to_string()),
        DeValue::Array(items) => {
            let mut nodes = Vec::new();
            for item in items {
                let line = line_of(text, item.span().start);
                nodes.push(YamlNode {
                    key: "-".to_owned(),
                    line,
                    value: value(item.get_ref(), text, depth + 1)?,
                });
            }
            YamlValue::List(nodes)
        }
        DeValue::Table(inner) => YamlValue::Block(table(inner, text, depth + 1)?),
    })
}

fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1
}

/// An unclosed list or block of YAML.
struct OpenYaml {
    key: String,
    line: usize,
    anchor: usize,
    is_list: bool,
    inner: Vec<YamlNode>,
    next: Option<(String, usize)>,
}

/// Builds nodes from YAML events.
struct Yaml<'p, 't> {
    places: &'p LineMap<'t>,
    open: Vec<OpenYaml>,
    anchors: BTreeMap<usize, YamlValue>,
    count: usize,
    root: Option<YamlValue>,
}

fn yaml(text: &str, places: &LineMap<'_>) -> Result<Vec<YamlNode>, Box<Mistake>> {
    let mut made = Yaml { places, open: Vec::new(), anchors: BTreeMap::new(), count: 0, root: None };
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        let (event, span) = event.map_err(|error| {
            let at = offset(text, error.marker().line(), error.marker().col());
            Box::new(places.mistake(&(at..at), error.info()).expecting("YAML").hinting(template(text)))
        })?;
        made.event(event, &span)?;
    }
    match made.root {
        Some(YamlValue::Block(nodes)) => Ok(nodes),
        None => Ok(Vec::new()),
        Some(YamlValue::Text(text)) if text.is_empty() => Ok(Vec::new()),
        Some(_) => {
            Err(Box::new(places.mistake(&(0..0), "there are no keys").expecting("`http:` and the like")))
        }
    }
}

/// Returns the byte offset of a line, from 1, and a column in characters, from 0.
fn offset(text: &str, line: usize, column: usize) -> usize {
    let before: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    let rest = &text[before..];
    before + rest.char_indices().nth(column).map_or(rest.len(), |(at, _)| at)
}

impl Yaml<'_, '_> {
    fn event(&mut self, event: Event<'_>, span: &Span) -> Result<(), Box<Mistake>> {
        let line = span.start.line();
        match event {
            Event::Scalar(text, style, anchor, _) => {
                let is_null =
                    style == saphyr_parser::ScalarStyle::Plain && matches!(&*text, "" | "~" | "null");
                if self.wants_key() {
                    if let Some(open) = self.open.last_mut() {
                        open.next = Some((text.into_owned(), line));
                    }
                    return Ok(());
                }
                let value =
                    if is_null { YamlValue::Block(Vec::new()) } else { YamlValue::Text(text.into_owned()) };
                self.put(value, anchor, line)
            }
            Event::Alias(anchor) => {
                let value = self.anchors.get(&anchor).cloned().unwrap_or(YamlValue::Block(Vec::new()));
                self.count += size(&value);
                self.put(value, 0, line)
            }
            Event::SequenceStart(anchor, _) => self.begin(anchor, true, line),
            Event::MappingStart(anchor, _) => self.begin(anchor, false, line),
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(open) = self.open.pop() else { return Ok(()) };
                let value =
                    if open.is_list { YamlValue::List(open.inner) } else { YamlValue::Block(open.inner) };
                if open.anchor > 0 {
                    self.anchors.insert(open.anchor, value.clone());
                }
                self.add(YamlNode { key: open.key, line: open.line, value });
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn wants_key(&self) -> bool {
        self.open.last().is_some_and(|open| !open.is_list && open.next.is_none())
    }

    /// Returns the key of the current value, and its line.
    fn key(&mut self, line: usize) -> (String, usize) {
        let next = self.open.last_mut().and_then(|open| open.next.take());
        next.unwrap_or_else(|| ("-".to_owned(), line))
    }

    fn begin(&mut self, anchor: usize, is_list: bool, line: usize) -> Result<(), Box<Mistake>> {
        let is_key = self.wants_key();
        if self.open.len() >= DEPTH_MAX || is_key {
            return Err(too_deep(self.places));
        }
        let (key, line) = self.key(line);
        self.open.push(OpenYaml { key, line, anchor, is_list, inner: Vec::new(), next: None });
        Ok(())
    }

    fn put(&mut self, value: YamlValue, anchor: usize, line: usize) -> Result<(), Box<Mistake>> {
        self.count += 1;
        if self.count > STATEMENTS_MAX {
            return Err(too_many(self.places));
        }
        if anchor > 0 {
            self.anchors.insert(anchor, value.clone());
        }
        let (key, line) = self.key(line);
        self.add(YamlNode { key, line, value });
        Ok(())
    }

    fn add(&mut self, node: YamlNode) {
        let Some(open) = self.open.last_mut() else {
            // If a file has several documents, the first counts.
            self.root.get_or_insert(node.value);
            return;
        };
        match node.value {
            // Keys of another block, unless this one has the same key.
            YamlValue::Block(merged) if node.key == "<<" => {
                for node in merged {
                    if !open.inner.iter().any(|known| known.key == node.key) {
                        open.inner.push(node);
                    }
                }
            }
            value => {
                open.inner.retain(|known| open.is_list || known.key != node.key);
                open.inner.push(YamlNode { value, ..node });
            }
        }
    }
}

fn size(value: &YamlValue) -> usize {
    match value {
        YamlValue::Text(_) => 1,
        YamlValue::List(inner) | YamlValue::Block(inner) => {
            1 + inner.iter().map(|node| size(&node.value)).sum::<usize>()
        }
    }
}

fn template(text: &str) -> Option<String> {
    text.contains("{{").then(|| "templates are not evaluated: write their result".to_owned())
}

fn too_deep(places: &LineMap<'_>) -> Box<Mistake> {
    Box::new(
        places
            .mistake(&(0..0), "blocks are nested too deep")
            .expecting("keys that are texts, at most 32 deep"),
    )
}

fn too_many(places: &LineMap<'_>) -> Box<Mistake> {
    Box::new(places.mistake(&(0..0), "there are more than 100000 statements").expecting("a smaller file"))
}
