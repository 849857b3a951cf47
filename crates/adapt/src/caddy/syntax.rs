//! Parses Caddyfiles: tokens, blocks, snippets, imports.

use std::collections::BTreeMap;

use mistake::{LineMap, Mistake};

use crate::source::{Directive, SourceFiles, joined};
use crate::{Include, environment};

const BLOCKS_DEEP_MAX: usize = 32;
const IMPORTS_DEEP_MAX: usize = 16;
const FILES_MAX: usize = 1000;
const DIRECTIVES_MAX: usize = 100_000;

#[derive(Debug, Clone)]
struct CaddyToken {
    text: String,
    line: usize,
    at: usize,
    /// A quoted brace opens no block.
    is_quoted: bool,
    file: usize,
}

/// Parses a file and its imports to blocks, with the place of each directive.
pub(crate) fn read(
    text: &str,
    file: &str,
    include: Include<'_>,
) -> Result<(Vec<Directive>, SourceFiles), Box<Mistake>> {
    let mut reader = CaddyReader { source: SourceFiles::from_file(file), snippets: BTreeMap::new() };
    let places = LineMap::new(text, file);
    let tokens = tokens(text, 0, &places)?;
    let mut at = 0;
    let end = SyntaxEnd { places: &places, length: text.len() };
    let tree = reader.block(&tokens, &mut at, 0, 0, &end, include)?;
    if let Some(token) = tokens.get(at) {
        return Err(end.wrong(Some(token), "a } without its {", "a directive"));
    }
    Ok((tree, reader.source))
}

struct SyntaxEnd<'t> {
    places: &'t LineMap<'t>,
    length: usize,
}

impl SyntaxEnd<'_> {
    fn wrong(&self, token: Option<&CaddyToken>, what: &str, expected: &str) -> Box<Mistake> {
        let range = match token {
            Some(token) if token.file == 0 => token.at..(token.at + token.text.len().max(1)).min(self.length),
            _ => self.length..self.length,
        };
        let is_cut = self.places.text(&range).is_none();
        let range = if is_cut { range.start..range.start } else { range };
        Box::new(self.places.mistake(&range, what).expecting(expected))
    }
}

struct CaddyReader {
    source: SourceFiles,
    snippets: BTreeMap<String, Vec<CaddyToken>>,
}

impl CaddyReader {
    /// Parses directives up to the end of a block or of the tokens.
    fn block(
        &mut self,
        tokens: &[CaddyToken],
        at: &mut usize,
        depth: usize,
        imports: usize,
        end: &SyntaxEnd<'_>,
        include: Include<'_>,
    ) -> Result<Vec<Directive>, Box<Mistake>> {
        let mut list = Vec::new();
        while let Some(first) = tokens.get(*at) {
            if is_brace(first, "}") {
                return Ok(list);
            }
            let start = *at;
            let words = line(tokens, at);
            let opens = words.last().is_some_and(|word| is_brace(word, "{"));
            let name = if opens && words.len() == 1 { "{".to_owned() } else { first.text.clone() };
            // A comma continues the line: addresses of a site.
            let count = if opens { words.len() - 1 } else { words.len() };
            let texts = texts(&words[..count]);
            if self.source.places.len() >= DIRECTIVES_MAX {
                return Err(end.wrong(
                    Some(first),
                    "there are more than 100000 directives",
                    "a smaller file",
                ));
            }
            let number =
                self.source.add(first.file, first.line, &name, &environment::written(&joined(&name, &texts)));
            let mut block = None;
            if opens {
                if depth >= BLOCKS_DEEP_MAX {
                    return Err(end.wrong(
                        Some(first),
                        "blocks are nested more than 32 deep",
                        "fewer of them",
                    ));
                }
                let body = *at;
                // A snippet is parsed where it is imported.
                if depth == 0 && name.starts_with('(') {
                    skip(tokens, at);
                    self.snippets
                        .insert(name.trim_matches(['(', ')']).to_owned(), tokens[body..*at].to_vec());
                } else {
                    block = Some(self.block(tokens, at, depth + 1, imports, end, include)?);
                }
                if tokens.get(*at).is_none() {
                    return Err(end.wrong(
                        tokens.get(start),
                        "this block has no end",
                        "a } behind its last directive",
                    ));
                }
                *at += 1;
                self.source.end_block(number);
            }
            let directive = Directive { number, name, words: texts, block };
            if directive.name == "import" && directive.block.is_none() {
                let more = self.imported(&directive, first, depth, imports, end, include)?;
                list.push(directive);
                list.extend(more);
            } else {
                list.push(directive);
            }
        }
        Ok(list)
    }

    /// Inserts a snippet, or files.
    fn imported(
        &mut self,
        directive: &Directive,
        token: &CaddyToken,
        depth: usize,
        imports: usize,
        end: &SyntaxEnd<'_>,
        include: Include<'_>,
    ) -> Result<Vec<Directive>, Box<Mistake>> {
        if imports >= IMPORTS_DEEP_MAX {
            return Err(end.wrong(Some(token), "imports are nested more than 16 deep", "no cycle"));
        }
        let mut all = Vec::new();
        if let Some(snippet) = self.snippets.get(directive.word(0)) {
            let tokens: Vec<CaddyToken> =
                snippet.iter().map(|token| with_arguments(token, &directive.words)).collect();
            let mut at = 0;
            all.extend(self.block(&tokens, &mut at, depth, imports + 1, end, include)?);
            return Ok(all);
        }
        let files = match include(directive.word(0)) {
            Ok(files) => files,
            Err(why) => {
                self.source.unread.push((directive.number, why));
                return Ok(all);
            }
        };
        for (name, text) in files {
            if self.source.files.len() >= FILES_MAX {
                return Err(end.wrong(Some(token), "there are more than 1000 files", "fewer of them"));
            }
            self.source.files.push(name.clone());
            let places = LineMap::new(&text, &name);
            let tokens = tokens(&text, self.source.files.len() - 1, &places)?;
            let mut at = 0;
            all.extend(self.block(&tokens, &mut at, depth, imports + 1, end, include)?);
        }
        Ok(all)
    }
}

/// Returns the words after the name of a directive. Within an expression, quotes stay.
fn texts(words: &[&CaddyToken]) -> Vec<String> {
    let name = words.first().map_or("", |word| word.text.as_str());
    let first = words.get(1).map_or("", |word| word.text.as_str());
    let is_matcher = name.starts_with('@');
    let mut texts: Vec<String> = words.iter().skip(1).map(|word| word.text.clone()).collect();
    let start = match first {
        // `@name `EXPRESSION`` is short for `@name expression `EXPRESSION``.
        _ if is_matcher && words.len() == 2 && words[1].is_quoted => {
            texts.insert(0, "expression".to_owned());
            return texts;
        }
        "expression" if is_matcher || name == "not" => 2,
        _ if name == "expression" => 1,
        _ => return texts,
    };
    if words.len() > start + 1 {
        for (text, word) in
            texts.iter_mut().zip(&words[1..]).skip(start - 1).filter(|(_, word)| word.is_quoted)
        {
            *text = format!("\"{}\"", word.text.replace('\\', "\\\\").replace('"', "\\\""));
        }
    }
    texts
}

/// Takes the tokens of a line. A comma continues the addresses of a site.
fn line<'t>(tokens: &'t [CaddyToken], at: &mut usize) -> Vec<&'t CaddyToken> {
    let mut words: Vec<&CaddyToken> = Vec::new();
    while let Some(token) = tokens.get(*at) {
        let goes_on = words.last().is_none_or(|last| last.line == token.line || last.text.ends_with(','));
        if !goes_on || (is_brace(token, "}") && !words.is_empty()) {
            break;
        }
        words.push(token);
        *at += 1;
        if is_brace(token, "{") {
            break;
        }
    }
    words
}

fn skip(tokens: &[CaddyToken], at: &mut usize) {
    let mut depth = 1;
    while let Some(token) = tokens.get(*at) {
        match token {
            token if is_brace(token, "{") => depth += 1,
            token if is_brace(token, "}") => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return;
        }
        *at += 1;
    }
}

fn is_brace(token: &CaddyToken, brace: &str) -> bool {
    token.text == brace && !token.is_quoted
}

/// Replaces `{args[0]}` and `{args.0}` by the arguments of the import.
fn with_arguments(token: &CaddyToken, words: &[String]) -> CaddyToken {
    let mut token = token.clone();
    if token.text.contains("{args") {
        for (index, word) in words.iter().skip(1).enumerate().take(20) {
            token.text = token
                .text
                .replace(&format!("{{args[{index}]}}"), word)
                .replace(&format!("{{args.{index}}}"), word);
        }
    }
    token
}

fn tokens(text: &str, file: usize, places: &LineMap<'_>) -> Result<Vec<CaddyToken>, Box<Mistake>> {
    let mut tokens = Vec::new();
    let mut line = 1;
    let mut letters = text.char_indices().peekable();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\n' => line += 1,
            letter if letter.is_whitespace() => {}
            '#' => while letters.next_if(|(_, next)| *next != '\n').is_some() {},
            '\\' if letters.next_if(|(_, next)| *next == '\n').is_some() => {}
            '"' | '`' => {
                let begun = line;
                let mut word = String::new();
                loop {
                    match letters.next() {
                        Some((_, end)) if end == letter => break,
                        Some((_, '\\'))
                            if letter == '"' && letters.next_if(|(_, next)| *next == '"').is_some() =>
                        {
                            word.push('"');
                        }
                        Some((_, inner)) => {
                            line += usize::from(inner == '\n');
                            word.push(inner);
                        }
                        None => {
                            let mistake = places.mistake(&(at..at + 1), "this text has no closing quote");
                            return Err(Box::new(mistake.expecting("a quote at its end")));
                        }
                    }
                }
                let text = with_environment(&word);
                tokens.push(CaddyToken { text, line: begun, at, is_quoted: true, file });
            }
            first => {
                let mut word = String::from(first);
                while let Some((_, next)) = letters.next_if(|(_, next)| !next.is_whitespace()) {
                    word.push(next);
                }
                let text = with_environment(&word);
                tokens.push(CaddyToken { text, line, at, is_quoted: false, file });
            }
        }
    }
    Ok(tokens)
}

/// Converts `{$NAME}` and `{$NAME:default}`, which Caddy replaces before it reads anything else.
fn with_environment(text: &str) -> String {
    let mut parts = text.split("{$");
    let mut made = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once('}').filter(|(reference, _)| !reference.is_empty()) {
            Some((reference, behind)) => {
                let (name, default) =
                    reference.split_once(':').map_or((reference, None), |(name, value)| (name, Some(value)));
                made += &environment::variable(name, default);
                made += behind;
            }
            None => made += &format!("{{${part}"),
        }
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(text: &str) -> String {
        fn shown(list: &[Directive]) -> String {
            let one = |directive: &Directive| {
                let inner =
                    directive.block.as_ref().map(|block| format!("[{}]", shown(block))).unwrap_or_default();
                format!("{} {}{inner}", directive.name, directive.words.join(",")).trim().to_owned()
            };
            list.iter().map(one).collect::<Vec<_>>().join("; ")
        }
        environment::written(&shown(
            &read(text, "C", &mut |_: &str| Ok(vec![("m".to_owned(), "more here".to_owned())]))
                .expect("it is read")
                .0,
        ))
    }

    #[test]
    fn blocks_snippets_and_imports_are_read() {
        let cases = [
            ("a.b {\n respond \"x y\" 200\n}", "a.b [respond x y,200]"),
            ("a.b,\nc.d {\n log\n}", "a.b, c.d[log]"),
            ("{\n admin off\n}\n:80\nlog # all", "{ [admin off]; :80; log"),
            ("(s) {\n header X {args[0]}\n}\na {\n import s 1\n}", "(s); a [import s,1; header X,1]"),
            ("a {\n import *.c\n}", "a [import *.c; more here]"),
            ("a {\n respond `{ }` \\\n 201\n}", "a [respond { },201]"),
            ("{$A}:80 {\n root \"{$B:/x}/y\" {$\n}", "${A}:80 [root ${B:-/x}/y,{$]"),
            ("a {\n @m expression {path} == \"/x\"\n}", "a [@m expression,{path},==,\"/x\"]"),
            ("a {\n @m `{path} == \"/x\"`\n}", "a [@m expression,{path} == \"/x\"]"),
        ];
        for (text, expected) in cases {
            assert_eq!(tree(text), expected, "{text}");
        }
    }

    #[test]
    fn wrong_syntax_has_its_place() {
        let said = |text: &str| {
            read(text, "C", &mut |_: &str| Ok(vec![("m".to_owned(), "import m".to_owned())]))
                .expect_err(text)
                .to_string()
        };
        assert!(said("a {\n log").starts_with("C:1:1: this block has no end"), "{}", said("a {\n log"));
        assert!(said("}").starts_with("C:1:1: a } without its {"));
        assert!(said("a \"b").starts_with("C:1:3: this text has no closing quote"));
        assert!(said("import m").contains("16 deep"));
    }
}
