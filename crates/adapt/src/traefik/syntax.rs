//! The text of Traefik's files, in YAML or TOML: keys with a text, with texts, or with a block.
//!
//! What stands in a block is what counts: a block has no statement of its own, unless the user has given it its name, as
//! routers have. Its number is then that of the first statement in it.

use std::collections::BTreeMap;

use mistake::{Mistake, Places};
use saphyr_parser::{Event, Parser, Span};
use toml::de::{DeTable, DeValue};

use crate::Include;
use crate::source::{Directive, Source, joined};

const STATEMENTS_MAX: usize = 100_000;
const DEPTH_MAX: usize = 32;
/// Blocks whose keys are names of the user.
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

/// A key with its value.
#[derive(Clone)]
struct Node {
    key: String,
    line: usize,
    value: Value,
}

#[derive(Clone)]
enum Value {
    Text(String),
    /// A list: its keys are `-`.
    List(Vec<Node>),
    Block(Vec<Node>),
}

/// Reads a file, and those that its `providers.file` names. What each has is joined: static and dynamic options have keys of
/// their own.
///
/// # Errors
/// The text is neither YAML nor TOML, nests 32 deep, or has more than 100000 statements.
pub(super) fn read(
    text: &str,
    file: &str,
    include: Include<'_>,
) -> Result<(Vec<Directive>, Source), Box<Mistake>> {
    let mut reader = Reader { source: Source::default() };
    let mut tree = reader.file(text, file)?;
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
                        tree.extend(reader.file(&text, &name)?);
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

struct Reader {
    source: Source,
}

impl Reader {
    fn file(&mut self, text: &str, file: &str) -> Result<Vec<Directive>, Box<Mistake>> {
        self.source.files.push(file.to_owned());
        let places = Places::new(text, file);
        let nodes = if is_toml(text, file) { toml(text, &places)? } else { yaml(text, &places)? };
        let tree = self.directives(nodes, "", false);
        if self.source.places.len() > STATEMENTS_MAX {
            return Err(too_many(&places));
        }
        Ok(tree)
    }

    /// Numbers what is in a block. `path` are the keys around it.
    fn directives(&mut self, nodes: Vec<Node>, path: &str, are_named: bool) -> Vec<Directive> {
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
            if are_named || texts.is_some() || is_empty(&node.value) {
                let words = texts.as_deref().unwrap_or_default();
                number = self.source.add(file, node.line, &node.key, &joined(&whole, words));
            }
            let is_named = NAMED.contains(&node.key.to_ascii_lowercase().as_str()) && !are_named;
            let block = match (texts.is_some(), node.value) {
                (false, Value::Block(inner)) => Some(self.directives(inner, &whole, is_named)),
                (false, Value::List(inner)) => Some(self.directives(inner, &whole, false)),
                _ => None,
            };
            all.push(Directive { number, name: node.key, words: texts.unwrap_or_default(), block });
        }
        all
    }
}

/// The text of a value, or the texts of a list that has nothing else.
fn texts(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::Text(text) => Some(vec![text.clone()]),
        Value::List(items) if !items.is_empty() => {
            let text = |item: &Node| match &item.value {
                Value::Text(text) => Some(text.clone()),
                _ => None,
            };
            items.iter().map(text).collect()
        }
        _ => None,
    }
}

fn is_empty(value: &Value) -> bool {
    matches!(value, Value::List(inner) | Value::Block(inner) if inner.is_empty())
}

/// Traefik goes by the end of the name. Where that tells nothing, the first line does.
fn is_toml(text: &str, file: &str) -> bool {
    let has = |ending: &str| file.len() > ending.len() && file.ends_with(ending);
    if has(".yml") || has(".yaml") {
        return false;
    }
    let first = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'));
    has(".toml") || first.is_some_and(|line| line.starts_with('[') || line.contains(" = "))
}

fn toml(text: &str, places: &Places<'_>) -> Result<Vec<Node>, Box<Mistake>> {
    let root = DeTable::parse(text).map_err(|error| {
        let at = error.span().unwrap_or(0..0);
        Box::new(places.mistake(&at, error.message()).expecting("TOML").hinting(template(text)))
    })?;
    table(root.get_ref(), text, 0).ok_or_else(|| too_deep(places))
}

/// The nodes of a table in the order of the file; `None` if it nests too deep.
fn table(table: &DeTable<'_>, text: &str, depth: usize) -> Option<Vec<Node>> {
    let mut nodes = Vec::new();
    for (key, inner) in table {
        let at = key.span().start;
        nodes.push((
            at,
            Node {
                key: key.get_ref().to_string(),
                line: line_of(text, at),
                value: value(inner.get_ref(), text, depth)?,
            },
        ));
    }
    nodes.sort_by_key(|(at, _)| *at);
    Some(nodes.into_iter().map(|(_, node)| node).collect())
}

fn value(found: &DeValue<'_>, text: &str, depth: usize) -> Option<Value> {
    if depth >= DEPTH_MAX {
        return None;
    }
    Some(match found {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Integer(number) => Value::Text(number.as_str().to_owned()),
        DeValue::Float(number) => Value::Text(number.as_str().to_owned()),
        DeValue::Boolean(is_so) => Value::Text(is_so.to_string()),
        DeValue::Datetime(time) => Value::Text(time.to_string()),
        DeValue::Array(items) => {
            let mut nodes = Vec::new();
            for item in items {
                let line = line_of(text, item.span().start);
                nodes.push(Node {
                    key: "-".to_owned(),
                    line,
                    value: value(item.get_ref(), text, depth + 1)?,
                });
            }
            Value::List(nodes)
        }
        DeValue::Table(inner) => Value::Block(table(inner, text, depth + 1)?),
    })
}

fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1
}

/// A list or block of YAML that has not ended.
struct Open {
    key: String,
    line: usize,
    anchor: usize,
    is_list: bool,
    inner: Vec<Node>,
    /// The key whose value comes next.
    next: Option<(String, usize)>,
}

/// The nodes of YAML in the making.
struct Yaml<'p, 't> {
    places: &'p Places<'t>,
    open: Vec<Open>,
    anchors: BTreeMap<usize, Value>,
    count: usize,
    root: Option<Value>,
}

fn yaml(text: &str, places: &Places<'_>) -> Result<Vec<Node>, Box<Mistake>> {
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
        Some(Value::Block(nodes)) => Ok(nodes),
        None => Ok(Vec::new()),
        Some(Value::Text(text)) if text.is_empty() => Ok(Vec::new()),
        Some(_) => {
            Err(Box::new(places.mistake(&(0..0), "there are no keys").expecting("`http:` and the like")))
        }
    }
}

/// The place of a line, from 1, and a column in characters, from 0.
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
                let value = if is_null { Value::Block(Vec::new()) } else { Value::Text(text.into_owned()) };
                self.put(value, anchor, line)
            }
            Event::Alias(anchor) => {
                let value = self.anchors.get(&anchor).cloned().unwrap_or(Value::Block(Vec::new()));
                self.count += size(&value);
                self.put(value, 0, line)
            }
            Event::SequenceStart(anchor, _) => self.begin(anchor, true, line),
            Event::MappingStart(anchor, _) => self.begin(anchor, false, line),
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(open) = self.open.pop() else { return Ok(()) };
                let value = if open.is_list { Value::List(open.inner) } else { Value::Block(open.inner) };
                if open.anchor > 0 {
                    self.anchors.insert(open.anchor, value.clone());
                }
                self.add(Node { key: open.key, line: open.line, value });
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn wants_key(&self) -> bool {
        self.open.last().is_some_and(|open| !open.is_list && open.next.is_none())
    }

    /// The key of the value that comes now, and its line.
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
        self.open.push(Open { key, line, anchor, is_list, inner: Vec::new(), next: None });
        Ok(())
    }

    fn put(&mut self, value: Value, anchor: usize, line: usize) -> Result<(), Box<Mistake>> {
        self.count += 1;
        if self.count > STATEMENTS_MAX {
            return Err(too_many(self.places));
        }
        if anchor > 0 {
            self.anchors.insert(anchor, value.clone());
        }
        let (key, line) = self.key(line);
        self.add(Node { key, line, value });
        Ok(())
    }

    fn add(&mut self, node: Node) {
        let Some(open) = self.open.last_mut() else {
            // Of several documents in one file the first counts.
            self.root.get_or_insert(node.value);
            return;
        };
        match node.value {
            // Keys of another block, where this one has none of the name.
            Value::Block(merged) if node.key == "<<" => {
                for node in merged {
                    if !open.inner.iter().any(|known| known.key == node.key) {
                        open.inner.push(node);
                    }
                }
            }
            value => {
                open.inner.retain(|known| open.is_list || known.key != node.key);
                open.inner.push(Node { value, ..node });
            }
        }
    }
}

/// How many nodes a value has.
fn size(value: &Value) -> usize {
    match value {
        Value::Text(_) => 1,
        Value::List(inner) | Value::Block(inner) => {
            1 + inner.iter().map(|node| size(&node.value)).sum::<usize>()
        }
    }
}

fn template(text: &str) -> Option<String> {
    text.contains("{{").then(|| "templates are not evaluated: write what comes of them".to_owned())
}

fn too_deep(places: &Places<'_>) -> Box<Mistake> {
    Box::new(
        places
            .mistake(&(0..0), "blocks are nested too deep")
            .expecting("keys that are texts, at most 32 deep"),
    )
}

fn too_many(places: &Places<'_>) -> Box<Mistake> {
    Box::new(places.mistake(&(0..0), "there are more than 100000 statements").expecting("a smaller file"))
}
