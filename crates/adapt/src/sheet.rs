//! Collects the result: the tables of `vanward.toml`, and notes on statements that are not in it.
//!
//! Each peer fills a sheet. `finish` writes the text, and adds the verdict by name for statements without a note.

use std::collections::BTreeSet;

use crate::definitions::Definitions;
use crate::draft::{DraftTable, DraftValue, StatementOrigin};
use crate::rules::Routes;
use crate::source::SourceFiles;
use crate::{Adapted, Remark, RemarkKind};

struct StatementNote {
    number: usize,
    kind: RemarkKind,
    why: String,
    instead: String,
}

/// Verdict, reason, and what to do instead.
pub(crate) type Said = (RemarkKind, String, String);

pub(crate) struct Sheet<'s> {
    pub(crate) source: &'s SourceFiles,
    notes: Vec<StatementNote>,
    pub(crate) top: DraftTable,
    pub(crate) listeners: Vec<DraftTable>,
    pub(crate) routes: Vec<DraftTable>,
    pub(crate) upstreams: Vec<DraftTable>,
    /// `[cache]`, `[timeouts]`, `[limits]` and the like, by header.
    pub(crate) tables: Vec<DraftTable>,
    pub(crate) definitions: Definitions,
    /// Statements that were evaluated for each kind of request.
    pub(crate) met: BTreeSet<usize>,
}

impl<'s> Sheet<'s> {
    pub(crate) fn new(source: &'s SourceFiles) -> Self {
        Self {
            source,
            notes: Vec::new(),
            top: DraftTable::default(),
            listeners: Vec::new(),
            routes: Vec::new(),
            upstreams: Vec::new(),
            tables: Vec::new(),
            definitions: Definitions::default(),
            met: BTreeSet::new(),
        }
    }

    pub(crate) fn note(&mut self, number: usize, kind: RemarkKind, why: &str, instead: &str) {
        let is_there =
            self.notes.iter().any(|note| note.number == number && note.kind == kind && note.why == why);
        if !is_there {
            self.notes.push(StatementNote { number, kind, why: why.to_owned(), instead: instead.to_owned() });
        }
    }

    pub(crate) fn differs(&mut self, number: usize, why: &str, instead: &str) {
        self.note(number, RemarkKind::Differs, why, instead);
    }

    pub(crate) fn needless(&mut self, number: usize, why: &str) {
        self.note(number, RemarkKind::NeedsNothing, why, "");
    }

    pub(crate) fn refuse(&mut self, number: usize, why: &str, instead: &str) {
        self.note(number, RemarkKind::Refused, why, instead);
    }

    /// Reports where routes differ from the rules that they stand for.
    pub(crate) fn report(&mut self, routes: &Routes) {
        let numbers = |origins: &[StatementOrigin]| -> Vec<usize> {
            let number = |origin: &StatementOrigin| match origin {
                StatementOrigin::Directive(number) => Some(*number),
                StatementOrigin::Default(_) => None,
            };
            origins.iter().filter_map(number).collect()
        };
        for number in numbers(&routes.unsaid) {
            let why = "a request that matches this and another expression gets the result of the first one";
            self.differs(number, why, "write a [[route]] for requests that match both");
        }
        for number in numbers(&routes.dropped) {
            let why = "it is one of more conditions than can become routes; their requests get 501";
            self.refuse(number, why, "write the [[route]]s that are needed, with `when`");
        }
    }

    /// Adds a note unless an option or a note already names the statement.
    pub(crate) fn say_if_unsaid(&mut self, number: usize, kind: RemarkKind, why: &str) {
        let is_noted = self.notes.iter().any(|note| note.number == number);
        if !is_noted && !self.all().any(|table| table.cites(number)) {
            self.note(number, kind, why, "");
        }
    }

    /// Sets an option that exists once, for all routes and listeners. The first value wins.
    pub(crate) fn once(&mut self, header: &str, key: &str, value: impl Into<DraftValue>, number: usize) {
        let value = value.into();
        let table = self.table(header);
        match table.get(key) {
            Some(known) if *known != value => {
                let why =
                    format!("`{key}` of {header} has one value for all, and an earlier directive has set it");
                self.refuse(number, &why, "choose the value that suits all servers");
            }
            Some(_) => table.cite(key, StatementOrigin::Directive(number)),
            None => table.set(key, value, vec![StatementOrigin::Directive(number)]),
        }
    }

    pub(crate) fn set(
        &mut self,
        header: &str,
        key: &str,
        value: impl Into<DraftValue>,
        origins: Vec<StatementOrigin>,
    ) {
        self.table(header).set(key, value, origins);
    }

    pub(crate) fn table(&mut self, header: &str) -> &mut DraftTable {
        let index = match self.tables.iter().position(|table| table.header == header) {
            Some(index) => index,
            None => {
                self.tables.push(DraftTable::new(header, Vec::new()));
                self.tables.len() - 1
            }
        };
        &mut self.tables[index]
    }

    /// Adds an upstream under a free name, or returns the name of an equal one.
    pub(crate) fn upstream(&mut self, base: &str, made: DraftTable) -> String {
        upstream(&mut self.upstreams, base, made)
    }

    /// Writes the result. `by_name` gives the verdict on statements without an option or a note.
    pub(crate) fn finish(mut self, peer: &str, by_name: &dyn Fn(&str, &str) -> Said) -> Adapted {
        for number in std::mem::take(&mut self.met) {
            self.say_if_unsaid(
                number,
                RemarkKind::NeedsNothing,
                "requests get the same responses without it",
            );
        }
        let mut cited = BTreeSet::new();
        let toml = self.render(peer, &mut cited);
        let source = self.source;
        for (number, why) in &source.unread {
            let why = format!("its files cannot be read: {why}");
            self.refuse(*number, &why, "run the command where the files are");
        }
        let within = self.judge_by_name(&cited, by_name);
        self.notes.sort_by_key(|note| note.number);
        let mut refused: BTreeSet<usize> =
            self.numbers(|kind| matches!(kind, RemarkKind::Unused | RemarkKind::Refused));
        refused.extend(within);
        let told: BTreeSet<usize> = self.numbers(|kind| kind == RemarkKind::Differs);
        let directives = source.places.len();
        let taken = (0..directives)
            .filter(|number| (cited.contains(number) || told.contains(number)) && !refused.contains(number))
            .count();
        let remarks: Vec<Remark> = self.notes.iter().map(|note| self.remark(note)).collect();
        Adapted { toml, remarks, directives, taken, needless: directives - taken - refused.len() }
    }

    /// Adds the verdict by name on statements without an option or a note. Those within a refused block have no remark
    /// of their own, and are returned.
    fn judge_by_name(
        &mut self,
        cited: &BTreeSet<usize>,
        by_name: &dyn Fn(&str, &str) -> Said,
    ) -> BTreeSet<usize> {
        let noted = self.numbers(|_| true);
        let noted_refused = self.numbers(|kind| matches!(kind, RemarkKind::Unused | RemarkKind::Refused));
        let mut within = BTreeSet::new();
        // The refused block, and the first statement behind it.
        let mut block = None;
        for (number, place) in self.source.places.iter().enumerate() {
            block = block.filter(|(_, end)| number < *end);
            let mut is_refused = noted_refused.contains(&number);
            if !cited.contains(&number) && !noted.contains(&number) {
                let (mut kind, mut why, mut instead) = by_name(&place.name, &place.text);
                let inner = number + 1..number + 1 + place.inner;
                let is_cited = cited.range(inner.clone()).next().is_some();
                if kind >= RemarkKind::Unused
                    && (is_cited || noted.range(inner).any(|inner| !noted_refused.contains(inner)))
                {
                    let what = if is_cited { "is taken over" } else { "has remarks of its own" };
                    why = format!("what is in it {what}");
                    (kind, instead) = (RemarkKind::NeedsNothing, String::new());
                }
                is_refused = matches!(kind, RemarkKind::Unused | RemarkKind::Refused);
                match block {
                    Some(_) if is_refused => drop(within.insert(number)),
                    _ => self.note(number, kind, &why, &instead),
                }
            }
            if is_refused && block.is_none() && place.inner > 0 {
                block = Some((number, number + 1 + place.inner));
            }
        }
        for note in self.notes.iter_mut().filter(|note| note.kind >= RemarkKind::Unused) {
            let inner = self.source.places.get(note.number).map_or(0, |place| place.inner);
            match within.range(note.number + 1..note.number + 1 + inner).count() {
                0 => {}
                1 => note.why += "; nor is the directive in it",
                count => note.why += &format!("; nor are {count} directives in it"),
            }
        }
        within
    }

    /// All tables, in the order of the file.
    fn all(&self) -> impl Iterator<Item = &DraftTable> {
        let before = std::iter::once(&self.top).chain(&self.listeners).chain(self.definitions.tables());
        before.chain(&self.routes).chain(&self.upstreams).chain(&self.tables)
    }

    fn numbers(&self, wanted: fn(RemarkKind) -> bool) -> BTreeSet<usize> {
        self.notes.iter().filter(|note| wanted(note.kind)).map(|note| note.number).collect()
    }

    fn remark(&self, note: &StatementNote) -> Remark {
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
        for table in self.all().filter(|table| !table.is_empty() || table.header == "[cache]") {
            text.push('\n');
            text += &table.render(&named, cited);
        }
        text
    }
}

/// Adds an upstream to a list under a free name, or returns the name of an equal one.
pub(crate) fn upstream(upstreams: &mut Vec<DraftTable>, base: &str, mut made: DraftTable) -> String {
    let mut attempt = 1;
    loop {
        let name = if attempt == 1 { base.to_owned() } else { format!("{base}-{attempt}") };
        made.header = upstream_header(&name);
        match upstreams.iter_mut().find(|known| known.header == made.header) {
            Some(known) if known.says_the_same(&made) => {
                for origin in made.from {
                    known.cite("servers", origin);
                }
                return name;
            }
            Some(_) => attempt += 1,
            None => {
                upstreams.push(made);
                return name;
            }
        }
    }
}

pub(crate) fn upstream_header(name: &str) -> String {
    let is_bare = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    if is_bare { format!("[upstream.{name}]") } else { format!("[upstream.{}]", crate::draft::quoted(name)) }
}

pub(crate) fn name_of(text: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-');
    let name: String =
        text.chars().map(|letter| if is_plain(letter) { letter } else { '-' }).take(50).collect();
    let name = name.trim_matches('-').to_owned();
    if name.is_empty() { "upstream".to_owned() } else { name }
}

pub(crate) fn one_or_list(texts: &[String]) -> DraftValue {
    match texts {
        [one] => one.clone().into(),
        several => several.to_vec().into(),
    }
}
