//! Maps from keys of requests to values, for expressions.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use expression::{ExchangeStage, Expression, ExpressionLimits, SchemaConstant, Value, ValueType};
use maps::{Column, Columns, FileFormat, MapKind, MapShape, MapTable, MapValue, TableBuilder};
use toml::de::DeValue;

use crate::document::expression_names::{ExpressionName, ExpressionNames};
use crate::document::reader::{Reader, Span, refuse};
use crate::document::value_error::{ValueError, ValueFault};
use crate::option::condition::read_expression;
use crate::option::form::Form;
use crate::option::kind::{At, Described, Kind, Located, Maybe, Word, quoted, refuse_type};
use crate::option::path::{PATH_KIND, Path};
use crate::option::section::read_named;
use crate::option::table::{Table, Written, key};

/// The largest file of entries.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// The most maps of one configuration.
const MAPS_MAX: usize = 1000;

/// A map from keys of requests to values.
#[derive(Debug, Clone, PartialEq)]
pub struct Map {
    pub name: String,
    /// The key of a request. Without it, expressions give the key: `map.NAME[key]`.
    pub key: Option<Arc<Expression>>,
    /// The value of keys without an entry.
    pub default: Option<MapValue>,
    /// The file with entries.
    pub file: Option<MapFile>,
    /// The entries in the configuration itself.
    pub entries: Arc<[(String, String)]>,
    /// All entries, also those of the file.
    pub table: Arc<MapTable>,
}

/// A file with entries of a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapFile {
    pub path: PathBuf,
    pub format: FileFormat,
    /// The version that was read.
    pub version: FileVersion,
}

/// The version of a file: device, inode, length, and the time of the last change. `None` if there is no file.
pub type FileVersion = Option<(u64, u64, u64, i64, i64)>;

impl MapFile {
    /// The version of the file now.
    pub fn version_now(&self) -> FileVersion {
        file_version(&self.path)
    }
}

fn file_version(path: &std::path::Path) -> FileVersion {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino(), metadata.len(), metadata.mtime(), metadata.mtime_nsec()))
}

impl Map {
    /// The name in expressions and texts: `map.NAME`.
    pub fn full_name(&self) -> String {
        format!("map.{}", self.name)
    }

    /// The values of the entries in the configuration itself, as texts have them.
    pub(crate) fn configured_texts(&self) -> BTreeSet<String> {
        let shape = self.table.shape();
        self.entries
            .iter()
            .filter_map(|(_, value)| Some(plain(shape.value(value).ok()?.as_value())))
            .collect()
    }

    /// The values of all entries, as texts have them, each once.
    pub(crate) fn texts(&self) -> impl Iterator<Item = String> {
        self.table.distinct_values().map(plain)
    }

    /// Reads the file again and builds a table with all entries.
    ///
    /// # Errors
    /// The file cannot be read, or has a mistake.
    pub fn read_again(&self) -> Result<MapTable, String> {
        let mut builder = TableBuilder::new(self.table.shape());
        let inline = self.entries.iter().try_for_each(|(key, value)| builder.add(key, value));
        inline.map_err(|fault| fault.to_string())?;
        if let Some(MapFile { path, format, .. }) = &self.file {
            let bytes = crate::document::surroundings::read_at_most(path, FILE_BYTES_MAX)?;
            format.read(&bytes, &mut builder).map_err(|fault| fault.to_string())?;
        }
        builder.build().map_err(|fault| fault.to_string())
    }
}

fn plain(value: Value<'_>) -> String {
    value.with_plain(|text| String::from_utf8_lossy(text).into_owned())
}

#[derive(Debug, Clone)]
pub(crate) struct MapWritten {
    key: Option<Located<Arc<Expression>>>,
    kind: MapKind,
    of: Option<ValueType>,
    default: Option<Located<Scalar>>,
    entries: Option<EntriesWritten>,
    file: Path,
    format: FormatWord,
    key_column: Option<Column>,
    value_column: Option<Column>,
}

impl Default for MapWritten {
    fn default() -> Self {
        Self {
            key: None,
            kind: MapKind::Exact,
            of: None,
            default: None,
            entries: None,
            file: None,
            format: FormatWord::Pairs,
            key_column: None,
            value_column: None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FormatWord {
    Pairs,
    Keys,
    Csv,
}

/// A text, an integer or a boolean.
#[derive(Debug, Clone)]
struct Scalar {
    text: String,
    of: ValueType,
}

/// Entries in the configuration itself.
#[derive(Debug, Clone)]
struct EntriesWritten {
    at: Span,
    /// Whether they are keys alone.
    is_set: bool,
    entries: Vec<(Span, String, Scalar)>,
}

pub(crate) static MAP: Table<MapWritten> = Table {
    options: &[
        key!(
            "key",
            Maybe(At(KeyKind)),
            MapWritten.key,
            "The key of a request, as an expression. `map.NAME` is then the value for this request. Without it, \
             expressions give the key: `map.NAME[key]`, or `key in map.NAME`.",
        ),
        key!(
            "kind",
            Word {
                words: &[
                    ("exact", MapKind::Exact),
                    ("prefix", MapKind::Prefix),
                    ("suffix", MapKind::Suffix),
                    ("network", MapKind::Network),
                    ("regex", MapKind::Regex),
                ],
            },
            MapWritten.kind,
            "How keys are compared. `exact`: equal texts. `prefix`: the longest entry that the key starts with. \
             `suffix`: hosts; the longest entry that is the host or a parent domain (`*.example.com`: only its \
             subdomains). `network`: the smallest network that contains the address. `regex`: the first expression that \
             matches.",
        ),
        key!(
            "type",
            Maybe(Word {
                words: &[
                    ("text", ValueType::Text),
                    ("integer", ValueType::Integer),
                    ("boolean", ValueType::Boolean),
                    ("duration", ValueType::Duration),
                ],
            }),
            MapWritten.of,
            "The type of the values. Default: that of `default` or of the first of the `entries`, else text.",
        ),
        key!(
            "default",
            Maybe(At(ScalarKind)),
            MapWritten.default,
            "The value of keys without an entry. Without it the value is absent, so expressions need `??`.",
        ),
        key!(
            "entries",
            EntriesKind,
            MapWritten.entries,
            "Entries: a table of keys and values, or an array of keys (a set). A set is true or false in expressions. \
             `[]` is a set that commands fill.",
        ),
        key!(
            "file",
            PATH_KIND,
            MapWritten.file,
            "A file of more entries, at most 256 MiB. It is read again when it changes. A file with a mistake changes \
             nothing.",
        ),
        key!(
            "format",
            Word {
                words: &[("pairs", FormatWord::Pairs), ("keys", FormatWord::Keys), ("csv", FormatWord::Csv)]
            },
            MapWritten.format,
            "The form of the file. `pairs`: a key, spaces and a value on each line. `keys`: a key on each line (a set). \
             `csv`: columns. Lines of the first two that begin with `#` are comments.",
        ),
        key!(
            "key_column",
            ColumnKind,
            MapWritten.key_column,
            "The column of the keys in a CSV file: its number, from 1, or its name in the first line. Default: 1.",
        ),
        key!(
            "value_column",
            ColumnKind,
            MapWritten.value_column,
            "The column of the values in a CSV file. Without it, the keys are a set.",
        ),
    ],
};

/// Reads `[map.NAME]`. Expressions in tables that are declared later can use the maps.
pub(crate) fn read(written: &Written<'_>, reader: &mut Reader<'_>) -> Vec<Map> {
    let (mut maps, refused_before) = (Vec::new(), reader.refused());
    read_named(&MAP, written, &mut maps, reader);
    let maps: Vec<Map> = maps.into_iter().filter_map(|map| resolve(map, reader)).collect();
    reader.expression_names.is_incomplete |= reader.refused() > refused_before;
    for (number, map) in maps.iter().enumerate() {
        if let Err(why) = add_names(map, number, &mut reader.expression_names) {
            reader.add(reader.mistake(&written.value.span(), why));
        }
    }
    maps
}

/// Adds the name of a map to those that expressions can use. `number` is the map's place in the configuration.
pub(crate) fn add_names(map: &Map, number: usize, names: &mut ExpressionNames) -> Result<(), String> {
    let number = u16::try_from(number).ok().filter(|number| usize::from(*number) < MAPS_MAX);
    let number = number.ok_or_else(|| format!("there are more than {MAPS_MAX} maps"))?;
    let MapShape { kind, values } = map.table.shape();
    let name = map.full_name();
    let declared = expression::Map { number, keys: kind.key_type(), values };
    let Some(key) = &map.key else {
        names.add(name, ExpressionName::Map(declared));
        return Ok(());
    };
    let schema = names.schema(ExchangeStage::Response).with_map("map.it", declared);
    let schema = schema.with_definition("map.key", key.clone());
    let default = map.default.as_ref().map(|default| match default {
        MapValue::Present => SchemaConstant::Boolean(true),
        MapValue::Boolean(value) => SchemaConstant::Boolean(*value),
        MapValue::Integer(number) => SchemaConstant::Integer(*number),
        MapValue::Text(text) => SchemaConstant::Text(text.to_string()),
        MapValue::Duration(nanoseconds) => SchemaConstant::Duration(*nanoseconds),
    });
    let text = match (values, &default) {
        (None, _) => "map.key in map.it",
        (_, None | Some(SchemaConstant::Boolean(false))) => "map.it[map.key]",
        (_, Some(SchemaConstant::Boolean(true))) => "map.key in map.it ? map.it[map.key] : true",
        _ => "map.it[map.key] ?? map.default",
    };
    let schema = match default {
        Some(default) => schema.with_constant("map.default", default),
        None => schema,
    };
    let value = Expression::new(text, &schema, &ExpressionLimits::default());
    let value = value.map_err(|fault| format!("the key of {name}: {fault}"))?;
    names.add(name, ExpressionName::Definition(Arc::new(value)));
    Ok(())
}

/// Checks the options of a map, reads its file, and builds its table.
fn resolve((at, name, written): (Span, String, MapWritten), reader: &mut Reader<'_>) -> Option<Map> {
    let refused_before = reader.refused();
    let is_first = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    let is_name = name.bytes().all(|byte| is_first(byte) || byte.is_ascii_digit());
    if !is_name || !name.bytes().next().is_some_and(is_first) {
        let message = format!("{name:?} can't name a map, because expressions write map.NAME");
        refuse(&at, &message, "letters, digits and '_', with a letter first", reader);
    }
    let MapWritten { key, kind, of, default, entries, file, format, key_column, value_column } = written;
    if let Some(key) = &key {
        check_key(key, kind, reader);
    }
    let format = file_format((format, key_column, value_column), &at, reader)?;
    let of_file = file.is_some().then(|| has_keys_only(&format));
    let of_entries = entries.as_ref().map(|entries| entries.is_set);
    if of_file.zip(of_entries).is_some_and(|(one, other)| one != other) {
        let message = format!("map.{name}: of entries and file, one has values and the other has keys alone");
        refuse(&at, &message, "values in both, or format = \"keys\" and an array of entries", reader);
        return None;
    }
    let file = file.map(|Located { value, at }| (at, value));
    let is_set = of_file.or(of_entries) == Some(true);
    if is_set && let Some(Located { at, .. }) = &default {
        refuse(at, "default: the keys of a set have no values", "a map without default", reader);
    }
    let of_first = || entries.as_ref().and_then(|entries| entries.entries.first());
    let inferred = default.as_ref().map(|default| default.value.of);
    let inferred = of.or(inferred).or_else(|| Some(of_first()?.2.of)).unwrap_or(ValueType::Text);
    let shape = MapShape { kind, values: (!is_set).then_some(inferred) };
    let mut builder = TableBuilder::new(shape);
    let default = default.filter(|_| !is_set).and_then(|Located { value, at }| {
        let read = shape.value(&value.text);
        read.map_err(|fault| reader.add(reader.mistake(&at, format!("default: {fault}")))).ok()
    });
    let mut inline = Vec::new();
    let entries_at = entries.as_ref().map_or(at.clone(), |entries| entries.at.clone());
    for (at, key, value) in entries.into_iter().flat_map(|entries| entries.entries) {
        match builder.add(&key, &value.text) {
            Ok(()) => inline.push((key, value.text)),
            Err(fault) => reader.add(reader.mistake(&at, format!("entries: {fault}"))),
        }
    }
    let file_at = file.as_ref().map(|(at, _)| at.clone());
    let file = file.and_then(|(at, path)| read_file((&at, path), format, &mut builder, reader));
    let table = match builder.build() {
        Ok(table) => table,
        Err(fault) => {
            let at = file_at.unwrap_or(entries_at);
            reader.add(reader.mistake(&at, format!("entries: {fault}")));
            return None;
        }
    };
    if reader.refused() > refused_before {
        return None;
    }
    Some(Map {
        name,
        key: key.map(|key| key.value),
        default,
        file,
        entries: inline.into(),
        table: Arc::new(table),
    })
}

/// The form of the file. Otherwise adds a mistake.
fn file_format(
    written: (FormatWord, Option<Column>, Option<Column>),
    at: &Span,
    reader: &mut Reader<'_>,
) -> Option<FileFormat> {
    match written {
        (FormatWord::Csv, key, value) => {
            Some(FileFormat::Csv(Columns { key: key.unwrap_or(Column::Number(1)), value }))
        }
        (_, Some(_), _) | (_, _, Some(_)) => {
            refuse(at, "a column is named, but the file is not CSV", "format = \"csv\"", reader);
            None
        }
        (FormatWord::Keys, ..) => Some(FileFormat::Keys),
        (FormatWord::Pairs, ..) => Some(FileFormat::Pairs),
    }
}

/// Whether the lines of a file have keys without values.
fn has_keys_only(format: &FileFormat) -> bool {
    match format {
        FileFormat::Keys => true,
        FileFormat::Csv(columns) => columns.value.is_none(),
        FileFormat::Pairs => false,
    }
}

fn read_file(
    (at, path): (&Span, PathBuf),
    format: FileFormat,
    builder: &mut TableBuilder,
    reader: &mut Reader<'_>,
) -> Option<MapFile> {
    if reader.surroundings().may_be_elsewhere(Some(&path)) {
        reader.leave_open(at, &format!("file: there is no file {} here", path.display()));
        return None;
    }
    // Taken first: a change during the reading counts as a later one.
    let version = file_version(&path);
    let bytes = reader.surroundings().named_file(&path, FILE_BYTES_MAX);
    let read = bytes.and_then(|bytes| format.read(&bytes, builder).map_err(|fault| fault.to_string()));
    match read {
        Ok(()) => Some(MapFile { path, format, version }),
        Err(problem) => {
            let fault = ValueFault::File { path, problem };
            reader.refuse(at, "file", &ValueError { fault, expected: "a file of entries" });
            None
        }
    }
}

fn check_key(key: &Located<Arc<Expression>>, kind: MapKind, reader: &mut Reader<'_>) {
    let Located { value: key, at } = key;
    let (wanted, of) = (kind.key_type(), key.kind().of);
    if wanted == of {
        return;
    }
    let message = format!("key: a map of kind {:?} looks up {wanted}; this is {of}", kind.word());
    let expected = match of {
        ValueType::Address => "kind = \"network\"".to_owned(),
        _ if kind == MapKind::Network => "an address such as 'client.address'".to_owned(),
        _ => format!("a text such as 'string({key})'"),
    };
    refuse(at, &message, &expected, reader);
}

/// The kind of value for the key of a map: an expression of any stage. The value of the map is known when its key is.
struct KeyKind;

const KEY: &str = "an expression such as 'request.host'";

impl Described for KeyKind {
    fn form(&self) -> Form {
        Form::Expression { expected: KEY, of: None, stage: ExchangeStage::Response }
    }
}

impl Kind<Arc<Expression>> for KeyKind {
    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<Arc<Expression>> {
        let DeValue::String(text) = written.value.get_ref() else {
            refuse_type(written, self.expected(), reader);
            return None;
        };
        let text = Located { value: text.as_ref(), at: written.value.span() };
        let key = read_expression(written.name, &text, KEY, reader)?;
        reader.note_expression(&text.at, written.full_name(), &key);
        Some(key)
    }

    fn print(&self, key: &Arc<Expression>) -> Option<String> {
        Some(quoted(key.as_str()))
    }
}

struct ScalarKind;

impl Described for ScalarKind {
    fn form(&self) -> Form {
        Form::words("a text, an integer, true or false")
    }
}

impl Kind<Scalar> for ScalarKind {
    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<Scalar> {
        let (text, of) = match written.value.get_ref() {
            DeValue::String(text) => (text.to_string(), ValueType::Text),
            DeValue::Boolean(value) => (value.to_string(), ValueType::Boolean),
            DeValue::Integer(number) if number.radix() == 10 => {
                (number.as_str().replace('_', ""), ValueType::Integer)
            }
            _ => {
                refuse_type(written, self.expected(), reader);
                return None;
            }
        };
        Some(Scalar { text, of })
    }

    fn print(&self, scalar: &Scalar) -> Option<String> {
        Some(if scalar.of == ValueType::Text { quoted(&scalar.text) } else { scalar.text.clone() })
    }
}

struct EntriesKind;

impl Described for EntriesKind {
    fn form(&self) -> Form {
        Form::words("a table such as { \"a.example\" = \"one\" }, or an array of keys")
    }
}

impl Kind<Option<EntriesWritten>> for EntriesKind {
    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<Option<EntriesWritten>> {
        let at = written.value.span();
        let within = |value| Written { path: written.path, name: written.name, value };
        let mut entries = Vec::new();
        let is_set = match written.value.get_ref() {
            DeValue::Table(table) => {
                for (key, value) in table.iter() {
                    if !reader.skip_broken(&key.span())
                        && let Some(scalar) = ScalarKind.read(&within(value), reader)
                    {
                        entries.push((key.span(), key.get_ref().to_string(), scalar));
                    }
                }
                // The parser sorts by key; of regular expressions, the first one in the file wins.
                entries.sort_by_key(|(at, ..)| at.start);
                false
            }
            DeValue::Array(keys) => {
                for key in keys.iter() {
                    let Some(text) = key.get_ref().as_str() else {
                        refuse_type(&within(key), "a key in quotes".to_owned(), reader);
                        continue;
                    };
                    let nothing = Scalar { text: String::new(), of: ValueType::Text };
                    entries.push((key.span(), text.to_owned(), nothing));
                }
                true
            }
            _ => {
                refuse_type(written, self.expected(), reader);
                return None;
            }
        };
        Some(Some(EntriesWritten { at, is_set, entries }))
    }

    fn print(&self, _: &Option<EntriesWritten>) -> Option<String> {
        None
    }
}

struct ColumnKind;

impl Described for ColumnKind {
    fn form(&self) -> Form {
        Form::words("the number or the name of a column")
    }
}

impl Kind<Option<Column>> for ColumnKind {
    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<Option<Column>> {
        let column = match written.value.get_ref() {
            DeValue::Integer(number) => {
                let number = number.as_str().parse().ok().filter(|number| (1..=1000).contains(number));
                number.map(Column::Number)
            }
            DeValue::String(name) if !name.is_empty() => Some(Column::Named(name.to_string())),
            _ => None,
        };
        if column.is_none() {
            let message = format!("{}: this is no column", written.name);
            refuse(&written.value.span(), &message, "a number from 1 to 1000, or a name", reader);
        }
        column.map(Some)
    }

    fn print(&self, column: &Option<Column>) -> Option<String> {
        column.as_ref().map(|column| match column {
            Column::Number(number) => number.to_string(),
            Column::Named(name) => quoted(name),
        })
    }
}
