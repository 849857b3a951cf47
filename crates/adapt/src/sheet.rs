//! The result in the making: the tables of `vanward.toml`, and what is said of statements that are not in it.
//!
//! Each peer fills one; `finish` writes the text, and says of each statement that nothing else was said of what its name tells.

use std::collections::BTreeSet;

use crate::draft::{Origin, Table, Value};
use crate::source::Source;
use crate::{Adapted, Kind, Remark};

/// A note about a statement, by its number.
struct Note {
    number: usize,
    kind: Kind,
    why: String,
    instead: String,
}

/// What became of a statement: the kind, why, and what to do instead.
pub(crate) type Said = (Kind, String, String);

pub(crate) struct Sheet<'s> {
    pub(crate) source: &'s Source,
    notes: Vec<Note>,
    pub(crate) top: Table,
    pub(crate) listeners: Vec<Table>,
    pub(crate) routes: Vec<Table>,
    pub(crate) upstreams: Vec<Table>,
    /// `[cache]`, `[timeouts]`, `[limits]` and the like, by header.
    pub(crate) tables: Vec<Table>,
}

impl<'s> Sheet<'s> {
    pub(crate) fn new(source: &'s Source) -> Self {
        Self {
            source,
            notes: Vec::new(),
            top: Table::default(),
            listeners: Vec::new(),
            routes: Vec::new(),
            upstreams: Vec::new(),
            tables: Vec::new(),
        }
    }

    pub(crate) fn note(&mut self, number: usize, kind: Kind, why: &str, instead: &str) {
        let is_there =
            self.notes.iter().any(|note| note.number == number && note.kind == kind && note.why == why);
        if !is_there {
            self.notes.push(Note { number, kind, why: why.to_owned(), instead: instead.to_owned() });
        }
    }

    pub(crate) fn differs(&mut self, number: usize, why: &str, instead: &str) {
        self.note(number, Kind::Differs, why, instead);
    }

    pub(crate) fn needless(&mut self, number: usize, why: &str) {
        self.note(number, Kind::NeedsNothing, why, "");
    }

    pub(crate) fn refuse(&mut self, number: usize, why: &str, instead: &str) {
        self.note(number, Kind::Refused, why, instead);
    }

    /// Says something of a statement that neither an option nor a note names.
    pub(crate) fn say_if_unsaid(&mut self, number: usize, kind: Kind, why: &str) {
        let is_noted = self.notes.iter().any(|note| note.number == number);
        let all = std::iter::once(&self.top).chain(&self.listeners).chain(&self.routes);
        let mut all = all.chain(&self.upstreams).chain(&self.tables);
        if !is_noted && !all.any(|table| table.cites(number)) {
            self.note(number, kind, why, "");
        }
    }

    /// An option that there is once, for all routes and listeners; of several values the first holds.
    pub(crate) fn once(&mut self, header: &str, key: &str, value: impl Into<Value>, number: usize) {
        let value = value.into();
        let table = self.table(header);
        match table.get(key) {
            Some(known) if *known != value => {
                let why =
                    format!("`{key}` of {header} is one value for all, and another directive came first");
                self.refuse(number, &why, "choose the value that suits all servers");
            }
            Some(_) => table.cite(key, Origin::Directive(number)),
            None => table.set(key, value, vec![Origin::Directive(number)]),
        }
    }

    pub(crate) fn set(&mut self, header: &str, key: &str, value: impl Into<Value>, origins: Vec<Origin>) {
        self.table(header).set(key, value, origins);
    }

    pub(crate) fn table(&mut self, header: &str) -> &mut Table {
        let index = match self.tables.iter().position(|table| table.header == header) {
            Some(index) => index,
            None => {
                self.tables.push(Table::new(header, Vec::new()));
                self.tables.len() - 1
            }
        };
        &mut self.tables[index]
    }

    /// Adds an upstream under a name that is free, or finds the one that is the same.
    pub(crate) fn upstream(&mut self, base: &str, mut made: Table) -> String {
        let mut attempt = 1;
        loop {
            let name = if attempt == 1 { base.to_owned() } else { format!("{base}-{attempt}") };
            made.header = upstream_header(&name);
            match self.upstreams.iter_mut().find(|known| known.header == made.header) {
                Some(known) if known.says_the_same(&made) => {
                    for origin in made.from {
                        known.cite("servers", origin);
                    }
                    return name;
                }
                Some(_) => attempt += 1,
                None => {
                    self.upstreams.push(made);
                    return name;
                }
            }
        }
    }

    /// The result. `by_name` says of a statement without an option or a note what its name alone tells.
    pub(crate) fn finish(mut self, peer: &str, by_name: &dyn Fn(&str, &str) -> Said) -> Adapted {
        let mut cited = BTreeSet::new();
        let toml = self.render(peer, &mut cited);
        let source = self.source;
        for (number, why) in &source.unread {
            let why = format!("its files cannot be read: {why}");
            self.refuse(*number, &why, "run the command where the files are");
        }
        let noted = self.numbers(|_| true);
        for (number, place) in source.places.iter().enumerate() {
            if !cited.contains(&number) && !noted.contains(&number) {
                let (kind, why, instead) = by_name(&place.name, &place.text);
                self.note(number, kind, &why, &instead);
            }
        }
        self.notes.sort_by_key(|note| note.number);
        let refused: BTreeSet<usize> = self.numbers(|kind| kind == Kind::Refused);
        let told: BTreeSet<usize> = self.numbers(|kind| kind == Kind::Differs);
        let directives = source.places.len();
        let taken = (0..directives)
            .filter(|number| (cited.contains(number) || told.contains(number)) && !refused.contains(number))
            .count();
        let remarks: Vec<Remark> = self.notes.iter().map(|note| self.remark(note)).collect();
        Adapted { toml, remarks, directives, taken, needless: directives - taken - refused.len() }
    }

    fn numbers(&self, wanted: fn(Kind) -> bool) -> BTreeSet<usize> {
        self.notes.iter().filter(|note| wanted(note.kind)).map(|note| note.number).collect()
    }

    fn remark(&self, note: &Note) -> Remark {
        let place = &self.source.places[note.number];
        Remark {
            file: self.source.files[place.file].clone(),
            line: place.line,
            directive: place.text.clone(),
            kind: note.kind,
            why: note.why.clone(),
            instead: note.instead.clone(),
        }
    }

    fn render(&self, peer: &str, cited: &mut BTreeSet<usize>) -> String {
        let source = self.source;
        let named = |number: usize| {
            let place = &source.places[number];
            format!("{}:{} {}", source.files[place.file], place.line, place.name)
        };
        let first = source.files.first().map_or("", String::as_str);
        let mut text =
            format!("# From {}, by `vanward adapt {peer}`. ", first.replace(char::is_control, " "));
        text += "Comments name the lines that options came from.\n";
        let top = std::iter::once(&self.top);
        let all = top.chain(&self.listeners).chain(&self.routes).chain(&self.upstreams).chain(&self.tables);
        for table in all.filter(|table| !table.is_empty() || table.header == "[cache]") {
            text.push('\n');
            text += &table.render(&named, cited);
        }
        text
    }
}

/// The header of an upstream's table.
pub(crate) fn upstream_header(name: &str) -> String {
    let is_bare = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    if is_bare { format!("[upstream.{name}]") } else { format!("[upstream.{}]", crate::draft::quoted(name)) }
}

/// A name for an upstream.
pub(crate) fn name_of(text: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-');
    let name: String =
        text.chars().map(|letter| if is_plain(letter) { letter } else { '-' }).take(50).collect();
    let name = name.trim_matches('-').to_owned();
    if name.is_empty() { "upstream".to_owned() } else { name }
}

/// One text, or several as a list.
pub(crate) fn one_or_list(texts: &[String]) -> Value {
    match texts {
        [one] => one.clone().into(),
        several => several.to_vec().into(),
    }
}
