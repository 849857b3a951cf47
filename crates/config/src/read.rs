//! Reads a file into a `Config`, or into all its mistakes.

use std::path::{Path, PathBuf};

use mistake::{LineMap, Mistake};

use crate::checks::needs::{Need, needs};
use crate::checks::resolve::resolve;
use crate::checks::tls::{NamedFile, Owner, named_files};
use crate::config::Config;
use crate::document::foreign_file;
use crate::document::pieces::{self, Pieces};
use crate::document::reader::{Findings, Reader, WrittenExpression, in_order};
use crate::document::sources::{Source, Sources};
use crate::document::surroundings::{Machine, Surroundings, shown_path};
use crate::document::text::Document;
use crate::option::table::Written;
use crate::tables::file::{FILE, File};
use crate::tables::reference::FORMAT;

/// The result of reading a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// The configuration; `None` if there are mistakes.
    pub config: Option<Config>,
    /// All mistakes, in the order of the file.
    pub mistakes: Vec<Mistake>,
    /// Settings that are valid but probably unintended, in the order of the file.
    pub warnings: Vec<Mistake>,
    /// The TLS files that the configuration names. They have not been opened.
    pub files: Vec<NamedFile>,
    /// Other files, folders and names that must exist on the machine. They have not been looked up.
    pub needs: Vec<Need>,
    /// The files of the configuration that were read, in order: each one before those that it includes.
    pub sources: Vec<String>,
    /// The expressions that were read, also if there are mistakes elsewhere.
    pub expressions: Vec<WrittenExpression>,
}

impl Reading {
    /// Returns the configuration, or all mistakes.
    pub fn into_result(self) -> Result<Config, Vec<Mistake>> {
        self.config.ok_or(self.mistakes)
    }

    /// Makes a mistake about the content of a named file, at the position where the configuration names it.
    pub fn mistake_about(
        &self,
        owner: Owner,
        file: Option<&Path>,
        message: &str,
        expected: Option<&str>,
    ) -> Option<Mistake> {
        let of_owner = || self.files.iter().filter(|named| named.owner == owner);
        let exact = of_owner().find(|named| file.is_some() && named.path.as_deref() == file);
        let named = exact.or_else(|| of_owner().find(|named| named.path.is_none()))?;
        let file = file.map(|file| format!("{}: ", shown_path(file))).unwrap_or_default();
        Some(Mistake {
            message: format!("{}: {file}{message}", named.option),
            expected: expected.map(str::to_owned),
            ..named.place.clone()
        })
    }

    /// Sorts mistakes about the files by their places.
    pub fn in_order(&self, mistakes: &mut [Mistake]) {
        in_order(mistakes, &self.sources);
    }

    fn failed(mistake: Mistake) -> Self {
        Self {
            config: None,
            sources: vec![mistake.file.clone()],
            mistakes: vec![mistake],
            warnings: Vec::new(),
            files: Vec::new(),
            needs: Vec::new(),
            expressions: Vec::new(),
        }
    }
}

/// Reads the file at `path`. A file that cannot be read is a mistake too.
pub fn load(path: &Path) -> Result<Config, Vec<Mistake>> {
    examine_file(path).into_result()
}

/// Parses the text of a file. `file_name` is used only in mistakes.
pub fn parse(text: &str, file_name: &str) -> Result<Config, Vec<Mistake>> {
    examine(text, file_name).into_result()
}

/// Reads the file at `path` like `load`, and also returns warnings, files and needs.
pub fn examine_file(path: &Path) -> Reading {
    let file_name = path.display().to_string();
    let failed = |text: &str, offset, message: String| {
        Reading::failed(LineMap::new(text, &file_name).mistake(&(offset..offset), message))
    };
    let bytes = match Machine.file(path) {
        Ok(bytes) => bytes,
        // The place has the name that the user wrote.
        Err(why) if path.is_relative() => return failed("", 0, format!("{}: {why}", shown_path(path))),
        Err(why) => return failed("", 0, why),
    };
    match std::str::from_utf8(&bytes) {
        Ok(text) => examine(text, &file_name),
        Err(error) => {
            let valid = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
            failed(&valid, valid.len(), "this is not UTF-8 text".to_owned())
        }
    }
}

/// Parses the text of a file like `parse`, and also returns warnings, files and needs.
pub fn examine(text: &str, file_name: &str) -> Reading {
    examine_in(text, file_name, &Machine)
}

/// Like `examine`, with other files and environment variables than those of the machine.
pub fn examine_in(text: &str, file_name: &str, surroundings: &dyn Surroundings) -> Reading {
    let sources = Sources::from_text(text, file_name, surroundings);
    let pieces = pieces::of_files(sources.files.iter().map(|file| &*file.text));
    examine_sources(sources, pieces, surroundings)
}

fn examine_sources(
    sources: Sources<'_>,
    pieces: Option<Vec<Pieces>>,
    surroundings: &dyn Surroundings,
) -> Reading {
    let in_pieces = pieces.as_deref().and_then(|pieces| read_in_pieces(pieces, &sources, surroundings));
    let (mut reader, file) = in_pieces.unwrap_or_else(|| {
        let (mut reader, root) = Reader::new(&sources, surroundings, FORMAT);
        let file = FILE.read(("the file", ""), root.get_ref(), &(0..0), &mut reader);
        (reader, file)
    });
    let (files, needs) = (named_files(&file, &reader), needs(&file, &reader));
    let settings = resolve(file, &mut reader);
    let Findings { mistakes, warnings, files: names, secrets, expressions } = reader.finish();
    if !mistakes.is_empty() {
        let mut whose =
            sources.files.iter().filter_map(|file| Some((file, foreign_file::whose(&file.text)?)));
        if let Some((Source { text, name, .. }, (system, at))) = whose.next() {
            return Reading::failed(of_another(text, name, system, at));
        }
    }
    // `resolve` has found no mistake, or returned nothing.
    let config = settings.map(|settings| Config::checked(settings, Document::new(sources, secrets)));
    Reading { config, mistakes, warnings, files, needs, sources: names, expressions }
}

/// Reads files whose routes are apart; `None` if they have to be parsed as a whole.
fn read_in_pieces<'t>(
    pieces: &'t [Pieces],
    sources: &'t Sources<'_>,
    surroundings: &'t dyn Surroundings,
) -> Option<(Reader<'t>, File)> {
    let (mut reader, root) = Reader::without_routes(pieces, sources, surroundings, FORMAT);
    if reader.has_syntax_errors() || root.get_ref().contains_key("route") {
        return None;
    }
    let mut file = FILE.read(("the file", ""), root.get_ref(), &(0..0), &mut reader);
    let (_, option) = FILE.option("route")?;
    file.routes.reserve_exact(pieces.iter().map(|pieces| pieces.route_count).sum());
    let is_whole = reader.read_pieces(pieces, sources, |table, reader| {
        for (_, value) in table {
            (option.read)(&Written { path: "", name: option.row.name, value }, &mut file, reader);
        }
    });
    is_whole.then_some((reader, file))
}

/// The option `admin` of the file at `path`, whatever is wrong elsewhere in it.
///
/// # Errors
/// If the file cannot be read, or has no `admin` and what is wrong with it may be the reason.
pub fn admin_socket(path: &Path) -> Result<Option<PathBuf>, Vec<Mistake>> {
    let file_name = path.display().to_string();
    let failed = |why: String| vec![LineMap::new("", &file_name).mistake(&(0..0), why)];
    let text = Machine.file(path).map_err(failed)?;
    let text = String::from_utf8(text).map_err(|_| failed("this is not UTF-8 text".to_owned()))?;
    let sources = Sources::from_text(&text, &file_name, &Machine);
    let (reader, root) = Reader::new(&sources, &Machine, FORMAT);
    let admin = root.get_ref().get_key_value("admin").filter(|(key, _)| !reader.is_broken(&key.span()));
    match admin.and_then(|(_, value)| value.get_ref().as_str()) {
        Some(socket) => Ok(Some(PathBuf::from(socket))),
        None => {
            let mistakes = reader.finish().mistakes;
            if mistakes.is_empty() { Ok(None) } else { Err(mistakes) }
        }
    }
}

/// Proxies whose configurations `vanward adapt` reads, with their words there.
const ADAPTED: [(&str, &str); 6] = [
    ("nginx", "nginx"),
    ("HAProxy", "haproxy"),
    ("Caddy", "caddy"),
    ("Varnish (VCL)", "varnish"),
    ("Squid", "squid"),
    ("Traefik", "traefik"),
];

/// The one mistake of a file that is for another proxy, at the line that tells it.
fn of_another(text: &str, file_name: &str, system: &str, line: usize) -> Mistake {
    let before: usize = text.split_inclusive('\n').take(line - 1).map(str::len).sum();
    let written = text[before..].lines().next().unwrap_or_default();
    let indent = written.len() - written.trim_start().len();
    let at = before + indent..before + written.trim_end().len().max(indent);
    let mistake = LineMap::new(text, file_name).mistake(&at, format!("this is a configuration of {system}"));
    let adapted = ADAPTED.iter().find(|(name, _)| *name == system);
    let adapted = adapted.map(|(_, word)| format!("`vanward adapt {word} {file_name}` translates it"));
    let expected = "a configuration of vanward, in TOML: [[listen]] with an address, [[route]] with what it \
                    matches, and [upstream.NAME] with servers; `vanward help run` shows the smallest";
    mistake.expecting(expected).hinting(adapted)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTS: [&str; 8] = [
        "[[listen]]\naddress = \"127.0.0.1:80\"\n[route_defaults]\nallow = [\"10.0.0.0/8\"]\n",
        "[[route]]\nhost = \"a.example\"\nupstream = \"u\"\n",
        "[[route]]\nupstream = \"u\"\n[route.request_headers.set]\nX-Name = \"${NAME:-none}\"\n",
        "[upstream.u]\nservers = [\"http://127.0.0.1:81\"]\n",
        "[[route]]\nhots = \"b.example\"\nupstream = \"w\"\nlocation = 1\n",
        "[upstream.w]\nserver = 1\n",
        "[[route]]\nhost = b.example\n",
        "[upstream.x]\nservers = [\n",
    ];

    #[test]
    fn in_pieces_a_file_means_the_same() {
        for [first, second] in [[3, 1], [4, 3], [4, 5], [6, 5], [7, 1], [4, 6]] {
            let text: String = [0, 1, 2, first, 1, second].map(|part| PARTS[part]).concat();
            let sources = || Sources::from_text(&text, "f", &Machine);
            let pieces = Pieces::parse(&text, 1).map(|pieces| vec![pieces]);
            let whole = examine_sources(sources(), None, &Machine);
            assert_eq!(examine_sources(sources(), pieces, &Machine), whole, "{text}");
        }
    }
}
