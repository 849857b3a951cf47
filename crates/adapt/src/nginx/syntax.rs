//! Parses nginx's files: words, quotes, comments, blocks, includes.

use mistake::{LineMap, Mistake};

use crate::Include;
pub(crate) use crate::source::Directive;
use crate::source::{SourceFiles, joined};

const BLOCKS_DEEP_MAX: usize = 32;
/// Deeper includes are probably a file that includes itself.
const INCLUDES_DEEP_MAX: usize = 16;
const FILES_MAX: usize = 1000;
const DIRECTIVES_MAX: usize = 100_000;

/// Parses all files to a tree, with the place of each directive.
pub(crate) fn read(
    text: &str,
    file: &str,
    include: Include<'_>,
) -> Result<(Vec<Directive>, SourceFiles), Box<Mistake>> {
    let mut source = SourceFiles::default();
    let tree = read_file(text, file, 0, 0, &mut source, include)?;
    Ok((tree, source))
}

fn read_file(
    text: &str,
    name: &str,
    depth: usize,
    blocks: usize,
    source: &mut SourceFiles,
    include: Include<'_>,
) -> Result<Vec<Directive>, Box<Mistake>> {
    source.files.push(name.to_owned());
    let file = source.files.len() - 1;
    let mut reader = NginxReader { text, at: 0, places: LineMap::new(text, name), file };
    reader.block(None, blocks, depth, source, include)
}

/// A word, or the end of a directive.
enum NginxToken {
    Word(String),
    End,
    Open,
    Close,
    Eof,
}

struct NginxReader<'t> {
    text: &'t str,
    at: usize,
    places: LineMap<'t>,
    file: usize,
}

impl NginxReader<'_> {
    /// Parses directives up to the end of the block or file. `opened` is the start of the block.
    fn block(
        &mut self,
        opened: Option<usize>,
        blocks: usize,
        depth: usize,
        source: &mut SourceFiles,
        include: Include<'_>,
    ) -> Result<Vec<Directive>, Box<Mistake>> {
        let mut list = Vec::new();
        loop {
            self.skip_space();
            let start = self.at;
            let name = match self.token()? {
                NginxToken::Word(name) => name,
                NginxToken::Close if opened.is_some() => return Ok(list),
                NginxToken::Eof if opened.is_none() => return Ok(list),
                NginxToken::Eof => {
                    let open = opened.unwrap_or(start);
                    return Err(self.wrong(open, "this block has no end", "a } behind its last directive"));
                }
                NginxToken::Close => return Err(self.wrong(start, "a } without its {", "a directive")),
                NginxToken::Open | NginxToken::End => {
                    return Err(self.wrong(start, "a directive has no name", "a name such as listen"));
                }
            };
            let directive = self.directive(start, name, blocks, depth, source, include)?;
            if directive.name == "include" && directive.words.len() == 1 && directive.block.is_none() {
                let more = self.included(&directive, start, blocks, depth, source, include)?;
                list.push(directive);
                list.extend(more);
            } else {
                list.push(directive);
            }
        }
    }

    fn directive(
        &mut self,
        start: usize,
        name: String,
        blocks: usize,
        depth: usize,
        source: &mut SourceFiles,
        include: Include<'_>,
    ) -> Result<Directive, Box<Mistake>> {
        let number = source.places.len();
        if number >= DIRECTIVES_MAX {
            return Err(self.wrong(start, "there are more than 100000 directives", "a smaller file"));
        }
        let line = self.places.line(start);
        source.add(self.file, line, &name, "");
        let mut words = Vec::new();
        let block = loop {
            self.skip_space();
            let at = self.at;
            match self.token()? {
                NginxToken::Word(word) => words.push(word),
                NginxToken::End => break None,
                NginxToken::Open if name.ends_with("_by_lua_block") => {
                    self.skip_code(at)?;
                    break Some(Vec::new());
                }
                NginxToken::Open if blocks >= BLOCKS_DEEP_MAX => {
                    return Err(self.wrong(at, "blocks are nested more than 32 deep", "fewer of them"));
                }
                NginxToken::Open => {
                    source.places[number].text = joined(&name, &words);
                    break Some(self.block(Some(at), blocks + 1, depth, source, include)?);
                }
                NginxToken::Close | NginxToken::Eof => {
                    let what = format!("the directive {name:?} does not end");
                    return Err(self.wrong(start, &what, "a ; behind its last word"));
                }
            }
        };
        source.places[number].text = joined(&name, &words);
        // The content of these blocks is no list of directives, but belongs to the block's directive.
        if matches!(name.as_str(), "types" | "map" | "geo" | "split_clients" | "match") && block.is_some() {
            source.places.truncate(number + 1);
            source.unread.iter_mut().for_each(|(unread, _)| *unread = number.min(*unread));
        }
        source.end_block(number);
        Ok(Directive { number, name, words, block })
    }

    fn included(
        &self,
        directive: &Directive,
        start: usize,
        blocks: usize,
        depth: usize,
        source: &mut SourceFiles,
        include: Include<'_>,
    ) -> Result<Vec<Directive>, Box<Mistake>> {
        if depth >= INCLUDES_DEEP_MAX {
            return Err(self.wrong(start, "files include each other more than 16 deep", "no cycle"));
        }
        let files = match include(directive.word(0)) {
            Ok(files) => files,
            Err(why) => {
                source.unread.push((directive.number, why));
                return Ok(Vec::new());
            }
        };
        let mut all = Vec::new();
        for (name, text) in files {
            if source.files.len() >= FILES_MAX {
                return Err(self.wrong(start, "there are more than 1000 files", "fewer of them"));
            }
            all.extend(read_file(&text, &name, depth + 1, blocks, source, include)?);
        }
        Ok(all)
    }

    fn skip_space(&mut self) {
        let rest = &self.text[self.at..];
        let mut characters = rest.char_indices();
        let mut skipped = rest.len();
        while let Some((offset, character)) = characters.next() {
            if character == '#' {
                for (_, behind) in characters.by_ref() {
                    if behind == '\n' {
                        break;
                    }
                }
            } else if !character.is_ascii_whitespace() && character != '\u{feff}' {
                skipped = offset;
                break;
            }
        }
        self.at += skipped;
    }

    fn token(&mut self) -> Result<NginxToken, Box<Mistake>> {
        let start = self.at;
        let rest = &self.text[start..];
        let Some(first) = rest.chars().next() else { return Ok(NginxToken::Eof) };
        self.at += first.len_utf8();
        match first {
            ';' => Ok(NginxToken::End),
            '{' => Ok(NginxToken::Open),
            '}' => Ok(NginxToken::Close),
            '"' | '\'' => self.quoted(start, first),
            _ => {
                self.at = start;
                Ok(NginxToken::Word(self.bare()))
            }
        }
    }

    fn quoted(&mut self, start: usize, quote: char) -> Result<NginxToken, Box<Mistake>> {
        let mut word = String::new();
        while let Some(character) = self.next() {
            if character == quote {
                let behind = self.text[self.at..].chars().next();
                if behind.is_some_and(|next| !next.is_ascii_whitespace() && !matches!(next, ';' | '{' | ')'))
                {
                    return Err(self.wrong(
                        self.at,
                        "there is text after the closing quote",
                        "a space, ; or {",
                    ));
                }
                return Ok(NginxToken::Word(word));
            }
            self.take(character, &mut word);
        }
        Err(self.wrong(start, "this text has no closing quote", &format!("a {quote} at its end")))
    }

    fn bare(&mut self) -> String {
        let mut word = String::new();
        let mut after_dollar = false;
        while let Some(character) = self.text[self.at..].chars().next() {
            let opens = character == '{' && !after_dollar;
            if character.is_ascii_whitespace() || character == ';' || opens {
                break;
            }
            after_dollar = character == '$';
            self.at += character.len_utf8();
            self.take(character, &mut word);
        }
        word
    }

    fn next(&mut self) -> Option<char> {
        let character = self.text[self.at..].chars().next()?;
        self.at += character.len_utf8();
        Some(character)
    }

    /// Appends a character, and resolves a backslash before it: for quotes, backslashes and three controls. Before
    /// other characters the backslash stays, as in expressions.
    fn take(&mut self, character: char, word: &mut String) {
        if character != '\\' {
            word.push(character);
            return;
        }
        match self.text[self.at..].chars().next() {
            Some(escaped @ ('"' | '\'' | '\\')) => word.push(escaped),
            Some('t') => word.push('\t'),
            Some('r') => word.push('\r'),
            Some('n') => word.push('\n'),
            Some(other) => {
                word.push('\\');
                word.push(other);
            }
            None => {
                word.push('\\');
                return;
            }
        }
        self.next();
    }

    /// Skips a block of another language up to its closing brace.
    fn skip_code(&mut self, open: usize) -> Result<(), Box<Mistake>> {
        let mut depth = 1;
        while let Some(character) = self.next() {
            match character {
                '{' => depth += 1,
                '}' => depth -= 1,
                '"' | '\'' => {
                    let mut escaped = false;
                    while let Some(inner) = self.next() {
                        if inner == '\n' || (inner == character && !escaped) {
                            break;
                        }
                        escaped = inner == '\\' && !escaped;
                    }
                }
                '-' if self.text[self.at..].starts_with('-') => {
                    let rest = &self.text[self.at..];
                    self.at += rest.find('\n').unwrap_or(rest.len());
                }
                _ => {}
            }
            if depth == 0 {
                return Ok(());
            }
        }
        Err(self.wrong(open, "this block has no end", "a } behind its code"))
    }

    fn wrong(&self, at: usize, what: &str, expected: &str) -> Box<Mistake> {
        let end = self.text[at..].chars().next().map_or(at, |first| at + first.len_utf8());
        Box::new(self.places.mistake(&(at..end), what).expecting(expected))
    }
}
