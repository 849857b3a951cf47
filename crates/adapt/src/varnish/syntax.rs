//! Parses VCL: tokens, comments, declarations, statements with their blocks.

use mistake::{LineMap, Mistake};

use crate::Include;
use crate::source::SourceFiles;

const BLOCKS_DEEP_MAX: usize = 32;
const INCLUDES_DEEP_MAX: usize = 16;
const STATEMENTS_MAX: usize = 100_000;

/// A word, a quoted text, or a sign.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum VclToken {
    Word(String),
    Text(String),
    Sign(&'static str),
}

impl VclToken {
    pub(crate) fn is(&self, sign: &str) -> bool {
        matches!(self, Self::Sign(known) if *known == sign)
    }

    /// The word, or the content of the text.
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Word(text) | Self::Text(text) => text,
            Self::Sign(sign) => sign,
        }
    }
}

#[derive(Debug)]
pub(crate) enum Declaration {
    /// `backend`, `probe`, `vcl`, `import` and the like: kind, name, and the fields of the block.
    Block {
        number: usize,
        kind: String,
        name: String,
        fields: Vec<(usize, String, Vec<VclToken>)>,
    },
    Acl {
        number: usize,
        name: String,
        entries: Vec<VclToken>,
    },
    Sub {
        number: usize,
        name: String,
        body: Vec<Statement>,
    },
}

#[derive(Debug)]
pub(crate) enum Statement {
    /// Conditions with their statements; the last condition may be empty (`else`).
    If(Vec<(usize, Vec<VclToken>, Vec<Statement>)>),
    /// `set`, `unset`, `return`, `call`, `new` and all others: the first word and the tokens after it.
    Plain { number: usize, name: String, tokens: Vec<VclToken> },
}

type Read<T> = Result<T, Box<Mistake>>;

pub(crate) fn read(text: &str, file: &str, include: Include<'_>) -> Read<(Vec<Declaration>, SourceFiles)> {
    let mut source = SourceFiles::default();
    let declarations = read_file(text, file, 0, &mut source, include)?;
    Ok((declarations, source))
}

fn read_file(
    text: &str,
    file: &str,
    depth: usize,
    source: &mut SourceFiles,
    include: Include<'_>,
) -> Read<Vec<Declaration>> {
    source.files.push(file.to_owned());
    let places = LineMap::new(text, file);
    let mut reader =
        VclReader { tokens: tokens(text, &places)?, at: 0, places, text, file: source.files.len() - 1 };
    let mut all = Vec::new();
    while reader.at < reader.tokens.len() {
        let start = reader.at;
        let kind = reader.word("a declaration such as `backend` or `sub`")?;
        if kind == "include" {
            let name = reader.next().map_or(String::new(), |token| token.text().to_owned());
            let number = reader.add(source, start, "include")?;
            reader.sign(";")?;
            if depth >= INCLUDES_DEEP_MAX {
                return Err(reader.wrong(start, "files include each other more than 16 deep", "no cycle"));
            }
            match include(&name) {
                Ok(files) => {
                    for (name, text) in files {
                        all.extend(read_file(&text, &name, depth + 1, source, include)?);
                    }
                }
                Err(why) => source.unread.push((number, why)),
            }
            continue;
        }
        all.push(reader.declaration(start, kind, source)?);
    }
    Ok(all)
}

struct VclReader<'t> {
    tokens: Vec<(VclToken, usize)>,
    at: usize,
    places: LineMap<'t>,
    text: &'t str,
    file: usize,
}

impl VclReader<'_> {
    fn next(&mut self) -> Option<VclToken> {
        let token = self.tokens.get(self.at).map(|(token, _)| token.clone());
        self.at += 1;
        token
    }

    fn peek(&self, sign: &str) -> bool {
        self.tokens.get(self.at).is_some_and(|(token, _)| token.is(sign))
    }

    fn word(&mut self, expected: &str) -> Read<String> {
        let start = self.at;
        match self.next() {
            Some(VclToken::Word(word)) => Ok(word),
            _ => Err(self.wrong(start, "a word is missing", expected)),
        }
    }

    fn sign(&mut self, sign: &str) -> Read<()> {
        let start = self.at;
        match self.next() {
            Some(token) if token.is(sign) => Ok(()),
            _ => Err(self.wrong(start, "this has no end, or unexpected text follows", &format!("a {sign}"))),
        }
    }

    /// Counts a statement, with its text up to its end or its block.
    fn add(&self, source: &mut SourceFiles, start: usize, name: &str) -> Read<usize> {
        if source.places.len() >= STATEMENTS_MAX {
            return Err(self.wrong(start, "there are more than 100000 statements", "a smaller file"));
        }
        let tokens = self.tokens.get(start..).unwrap_or_default();
        let at = tokens.first().map_or(0, |(_, at)| *at);
        let end = tokens.iter().find(|(token, _)| token.is(";") || token.is("{")).map(|(_, end)| *end);
        let text = self.text.get(at..end.unwrap_or(self.text.len())).unwrap_or_default();
        Ok(source.add(self.file, self.places.line(at), name, text.lines().next().unwrap_or_default().trim()))
    }

    fn declaration(&mut self, start: usize, kind: String, source: &mut SourceFiles) -> Read<Declaration> {
        let number = self.add(source, start, &kind)?;
        if kind == "sub" {
            let name = self.word("the name of a subroutine")?;
            self.sign("{")?;
            let body = self.block(1, source)?;
            source.end_block(number);
            return Ok(Declaration::Sub { number, name, body });
        }
        let mut words = Vec::new();
        while !self.peek("{") && !self.peek(";") {
            match self.next() {
                Some(token) => words.push(token.text().to_owned()),
                None => return Err(self.wrong(start, "this declaration does not end", "a ; or a block")),
            }
        }
        let name = words.first().cloned().unwrap_or_default();
        if self.peek(";") {
            self.at += 1;
            return Ok(Declaration::Block { number, kind, name, fields: Vec::new() });
        }
        self.at += 1;
        if kind == "acl" {
            let mut entries = Vec::new();
            while !self.peek("}") {
                entries.push(self.next().ok_or_else(|| self.wrong(start, "this list has no end", "a }"))?);
            }
            self.at += 1;
            return Ok(Declaration::Acl { number, name, entries });
        }
        let fields = self.fields(start, source)?;
        source.end_block(number);
        Ok(Declaration::Block { number, kind, name, fields })
    }

    /// Parses `.name = value;` up to the end of the block. Fields of an inner block are prefixed with the outer name.
    fn fields(
        &mut self,
        start: usize,
        source: &mut SourceFiles,
    ) -> Read<Vec<(usize, String, Vec<VclToken>)>> {
        let mut fields = Vec::new();
        while !self.peek("}") {
            let begin = self.at;
            let name = self.word("a field such as .host")?;
            let number = self.add(source, begin, &name)?;
            self.sign("=")?;
            let mut value = Vec::new();
            if self.peek("{") {
                self.at += 1;
                let inner = self.fields(start, source)?;
                fields.push((number, name.clone(), Vec::new()));
                fields.extend(
                    inner.into_iter().map(|(number, inner, value)| (number, format!("{name}{inner}"), value)),
                );
                if self.peek(";") {
                    self.at += 1;
                }
                continue;
            }
            while !self.peek(";") {
                value.push(self.next().ok_or_else(|| self.wrong(start, "this block has no end", "a }"))?);
            }
            self.at += 1;
            fields.push((number, name, value));
        }
        self.at += 1;
        Ok(fields)
    }

    fn block(&mut self, depth: usize, source: &mut SourceFiles) -> Read<Vec<Statement>> {
        let open = self.at.saturating_sub(1);
        if depth > BLOCKS_DEEP_MAX {
            return Err(self.wrong(open, "blocks are nested more than 32 deep", "fewer of them"));
        }
        let mut list = Vec::new();
        while !self.peek("}") {
            let start = self.at;
            if self.at >= self.tokens.len() {
                return Err(self.wrong(open, "this block has no end", "a } behind its last statement"));
            }
            let name = self.word("a statement such as `set` or `return`")?;
            if name == "if" {
                list.push(self.conditional(start, depth, source)?);
                continue;
            }
            let number = self.add(source, start, &name)?;
            let mut tokens = Vec::new();
            while !self.peek(";") {
                match self.next() {
                    Some(token) if !token.is("{") && !token.is("}") => tokens.push(token),
                    _ => return Err(self.wrong(start, "this statement does not end", "a ; behind it")),
                }
            }
            self.at += 1;
            list.push(Statement::Plain { number, name, tokens });
        }
        self.at += 1;
        Ok(list)
    }

    fn conditional(&mut self, start: usize, depth: usize, source: &mut SourceFiles) -> Read<Statement> {
        let mut branches = Vec::new();
        let mut begin = start;
        let mut name = "if";
        loop {
            let number = self.add(source, begin, name)?;
            let mut condition = Vec::new();
            if name != "else" {
                self.sign("(")?;
                let mut open = 1;
                loop {
                    let token =
                        self.next().ok_or_else(|| self.wrong(begin, "this condition has no end", "a )"))?;
                    match &token {
                        token if token.is("(") => open += 1,
                        token if token.is(")") => open -= 1,
                        _ => {}
                    }
                    if open == 0 {
                        break;
                    }
                    condition.push(token);
                }
            }
            self.sign("{")?;
            branches.push((number, condition, self.block(depth + 1, source)?));
            source.end_block(number);
            begin = self.at;
            let word = |place: usize| {
                self.tokens.get(place).map(|(token, _)| token.text().to_owned()).unwrap_or_default()
            };
            match (word(self.at).as_str(), word(self.at + 1).as_str()) {
                _ if name == "else" => break,
                ("else", "if") => self.at += 2,
                ("elseif" | "elsif" | "elif", _) => self.at += 1,
                ("else", _) => {
                    self.at += 1;
                    name = "else";
                    continue;
                }
                _ => break,
            }
            name = "elseif";
        }
        Ok(Statement::If(branches))
    }

    fn wrong(&self, token: usize, what: &str, expected: &str) -> Box<Mistake> {
        let at = self.tokens.get(token).map_or(self.text.len(), |(_, at)| *at);
        let end = self.text[at..].chars().next().map_or(at, |first| at + first.len_utf8());
        Box::new(self.places.mistake(&(at..end), what).expecting(expected))
    }
}

const SIGNS: [&str; 23] = [
    "!~", "==", "!=", ">=", "<=", "&&", "||", "+=", "{", "}", "(", ")", ";", ",", "=", "~", "!", "<", ">",
    "+", "/", "-", "*",
];

fn tokens(text: &str, places: &LineMap<'_>) -> Read<Vec<(VclToken, usize)>> {
    let mut tokens = Vec::new();
    let mut at = 0;
    let until = |at: usize, end: &str| text[at..].find(end).map(|length| at + length);
    let unclosed = |at: usize, end: &str| -> Box<Mistake> {
        Box::new(places.mistake(&(at..at + 1), "this has no end").expecting(format!("a {end}")))
    };
    while let Some(letter) = text[at..].chars().next() {
        let rest = &text[at..];
        if letter.is_whitespace() {
            at += letter.len_utf8();
        } else if letter == '#' || rest.starts_with("//") {
            at = until(at, "\n").unwrap_or(text.len());
        } else if rest.starts_with("/*") {
            at = until(at, "*/").ok_or_else(|| unclosed(at, "*/"))? + 2;
        } else if let Some((begin, end)) = [("{\"", "\"}"), ("\"\"\"", "\"\"\""), ("\"", "\"")]
            .into_iter()
            .find(|(begin, _)| rest.starts_with(begin))
        {
            let close = until(at + begin.len(), end).ok_or_else(|| unclosed(at, end))?;
            tokens.push((VclToken::Text(text[at + begin.len()..close].to_owned()), at));
            at = close + end.len();
        } else if let Some(sign) =
            SIGNS.iter().find(|sign| rest.starts_with(**sign)).filter(|sign| **sign != "-")
        {
            tokens.push((VclToken::Sign(sign), at));
            at += sign.len();
        } else {
            let is_in = |letter: &char| letter.is_alphanumeric() || "._-:%".contains(*letter);
            let length: usize = rest.chars().take_while(is_in).map(char::len_utf8).sum();
            let length = if length == 0 { letter.len_utf8() } else { length };
            tokens.push((VclToken::Word(rest[..length].to_owned()), at));
            at += length;
        }
    }
    Ok(tokens)
}
