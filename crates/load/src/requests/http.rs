//! Lists in `.http` files, for the REST Client of VS Code and the HTTP Client of IntelliJ.
//!
//! `###` separates requests; `@name = value` sets a variable; weights and checks are in comments: `# @weight 3`, `#
//! @check status 200`. Scripts are refused, because they would not run.

use std::collections::HashMap;
use std::ops::Range;

use mistake::nearest;

use super::checks::{self, CheckMistake};
use super::draft::RequestDraft;
use super::{ListReading, Placed};
use crate::template;

/// Maximum nesting of variables within variables.
const DEPTH_MAX: usize = 10;
/// Maximum length of a text after its variables are replaced.
const EXPANDED_BYTES_MAX: usize = 1 << 20;
/// Notes in comments: ours, and those of other programs.
const NOTES: [&str; 3] = ["name", "weight", "check"];
const FOREIGN: [&str; 8] =
    ["note", "no-redirect", "no-cookie-jar", "no-log", "no-auto-encoding", "title", "description", "timeout"];

type Line<'s> = Placed<&'s str>;

pub(super) fn read(reading: &mut ListReading<'_>) {
    let lines = lines(reading.source.text);
    let variables = variables(&lines, reading);
    let mut blocks: Vec<(Option<&Line<'_>>, &[Line<'_>])> = Vec::new();
    let (mut separator, mut start) = (None, 0);
    for (number, line) in lines.iter().enumerate().filter(|(_, line)| line.value.starts_with("###")) {
        blocks.push((separator, &lines[start..number]));
        (separator, start) = (Some(line), number + 1);
    }
    blocks.push((separator, &lines[start..]));
    for (separator, block) in blocks {
        read_block(reading, separator, block, &variables);
        if reading.is_full() {
            return;
        }
    }
}

fn lines(text: &str) -> Vec<Line<'_>> {
    let mut start = 0;
    let line = |whole: &'_ str| {
        let at = start;
        start += whole.len();
        (whole.len(), at)
    };
    let places: Vec<(usize, usize)> = text.split_inclusive('\n').map(line).collect();
    let trimmed = |(length, at): (usize, usize)| {
        let value = text[at..at + length].trim_end_matches(['\n', '\r']);
        Placed { value, at: at..at + value.len() }
    };
    places.into_iter().map(trimmed).collect()
}

/// Name and value of a line `@name = value`.
fn variable<'s>(line: &Line<'s>) -> Option<(&'s str, &'s str)> {
    let (name, value) = line.value.strip_prefix('@')?.split_once('=')?;
    let name = name.trim();
    let is_name = |text: &str| !text.is_empty() && !text.contains(char::is_whitespace);
    is_name(name).then_some((name, value.trim()))
}

/// The variables of the file. As in other clients they apply to the whole file, and the last of a name wins.
fn variables<'s>(lines: &[Line<'s>], reading: &mut ListReading<'_>) -> HashMap<&'s str, &'s str> {
    let mut variables = HashMap::new();
    // A body may have lines that look like a variable.
    let mut is_body = false;
    let mut has_request = false;
    for line in lines {
        if line.value.starts_with("###") {
            (is_body, has_request) = (false, false);
        } else if is_body {
        } else if line.value.trim().is_empty() {
            is_body = has_request;
        } else if let (false, true) = (has_request, line.value.starts_with('@')) {
            match variable(line) {
                Some((name, value)) => {
                    variables.insert(name, value);
                }
                None => reading.wrong(&line.at, "this is not a variable; expected @name = value"),
            }
        } else if !is_comment(line.value) {
            has_request = true;
        }
    }
    variables
}

fn is_comment(line: &str) -> bool {
    line.starts_with('#') || line.starts_with("//")
}

fn read_block(
    reading: &mut ListReading<'_>,
    separator: Option<&Line<'_>>,
    block: &[Line<'_>],
    variables: &HashMap<&str, &str>,
) {
    let is_before = |line: &&Line<'_>| {
        line.value.trim().is_empty() || is_comment(line.value) || line.value.starts_with('@')
    };
    let before = block.iter().take_while(is_before).count();
    let (notes, request) = block.split_at(before);
    let Some((first, rest)) = request.split_first() else { return };
    let known = reading.mistakes.len();
    let mut draft = RequestDraft::new(first.at.clone());
    let title = separator.map(|line| line.value.trim_start_matches('#').trim()).unwrap_or_default();
    draft.name = Some(title.to_owned()).filter(|name| !name.is_empty());
    for note in notes.iter().filter(|note| is_comment(note.value)) {
        read_note(reading, note, &mut draft);
    }
    let expand = |reading: &mut ListReading<'_>, line: &Line<'_>| expanded(reading, line, variables);
    let continued = rest.iter().take_while(|line| line.value.trim_start().starts_with(['?', '&'])).count();
    let (continuations, rest) = rest.split_at(continued);
    let mut line = first.value.trim().to_owned();
    continuations.iter().for_each(|more| line.push_str(more.value.trim()));
    if is_foreign_line(&line) {
        let message = "this is not an HTTP request; expected METHOD URL (GraphQL, gRPC and WebSocket requests, and \
                       comments in /* */, are not supported)";
        return reading.wrong(&first.at, message);
    }
    let line = expand(reading, &Placed { value: &line, at: first.at.clone() });
    read_line(&line, first, &mut draft);
    let fields = rest.iter().take_while(|line| !line.value.trim().is_empty()).count();
    let (fields, body) = rest.split_at(fields);
    for field in fields.iter().filter(|line| !is_comment(line.value)) {
        if is_script(reading, field) {
            continue;
        }
        let text = expand(reading, field);
        match text.split_once(':') {
            Some((name, value)) => {
                let (name, value) = (name.trim().to_owned(), value.trim().to_owned());
                let value = if name.eq_ignore_ascii_case("authorization") { basic(&value) } else { value };
                if let Some(what) = foreign_field(&name, &value) {
                    reading.wrong(&field.at, format!("{what} is not supported: it would be sent unchanged"));
                }
                draft.headers.push(Placed { value: (name, value), at: field.at.clone() });
            }
            None if field.value.trim_start().starts_with("/*") => {
                reading.wrong(&field.at, "comments in /* */ are not supported; begin each line with #");
            }
            None => reading.wrong(
                &field.at,
                "this is not a header; expected 'Name: value', or an empty line before the body",
            ),
        }
    }
    read_body(reading, body, &mut draft, variables);
    leads_to_host(reading, &mut draft);
    if reading.mistakes.len() == known {
        draft.end(reading);
    }
}

/// Whether a line is a special request line or comment of other clients.
fn is_foreign_line(line: &str) -> bool {
    let method = line.split_whitespace().next().unwrap_or_default();
    matches!(method, "GRAPHQL" | "GRPC" | "WEBSOCKET" | "RSOCKET")
        || line.starts_with("/*")
        || line.starts_with("*/")
}

/// Describes what other clients do with a field instead of sending it.
fn foreign_field(name: &str, value: &str) -> Option<&'static str> {
    let (scheme, rest) = value.split_once(' ').unwrap_or((value, ""));
    let rest = rest.trim();
    match name.to_ascii_lowercase().as_str() {
        "x-request-type" if value.eq_ignore_ascii_case("graphql") => Some("GraphQL"),
        // RFC 7616 §3.4: a complete field has parameters.
        "authorization" if scheme.eq_ignore_ascii_case("digest") && !rest.contains('=') => {
            Some("Digest authentication")
        }
        // A computed signature is a single word.
        "authorization" if scheme.eq_ignore_ascii_case("aws") && rest.contains(char::is_whitespace) => {
            Some("signing for AWS")
        }
        "authorization" if scheme.eq_ignore_ascii_case("cognito") => Some("signing in to AWS Cognito"),
        "authorization" if scheme.eq_ignore_ascii_case("ntlm") && rest.contains([':', ' ']) => {
            Some("NTLM authentication")
        }
        _ => None,
    }
}

/// Parses the request line: `METHOD URL HTTP/1.1`. The method and the version are optional.
fn read_line(text: &str, line: &Line<'_>, draft: &mut RequestDraft) {
    let text = text.trim();
    let version_at = text.rfind(" HTTP/").filter(|at| !text[at + 6..].contains(' '));
    let text = version_at.map_or(text, |at| &text[..at]).trim();
    let (method, url) = match text.split_once(char::is_whitespace) {
        Some((method, url)) if !method.contains(['/', ':', '{']) => (Some(method), url.trim()),
        _ => (None, text),
    };
    let placed = |value: &str| {
        let found = line.value.find(value).map(|start| line.at.start + start);
        Placed { value: value.to_owned(), at: found.map_or(line.at.clone(), |at| at..at + value.len()) }
    };
    draft.method = Some(placed(method.unwrap_or("GET")));
    draft.url = Some(placed(url));
}

/// Without a URL on the command line, a path with a Host field goes to that host.
fn leads_to_host(reading: &ListReading<'_>, draft: &mut RequestDraft) {
    let host = draft.headers.iter().find(|field| field.value.0.eq_ignore_ascii_case("host"));
    if let (None, Some(host), Some(url)) = (reading.source.base, host, &mut draft.url)
        && url.value.starts_with('/')
    {
        url.value = format!("http://{}{}", host.value.1, url.value);
    }
}

/// Parses `# @name order`, `# @weight 3`, `# @check status 200`.
fn read_note(reading: &mut ListReading<'_>, line: &Line<'_>, draft: &mut RequestDraft) {
    let text = line.value.trim_start_matches(['#', '/']).trim_start();
    let Some(note) = text.strip_prefix('@') else { return };
    let (name, value) = note.split_once(char::is_whitespace).unwrap_or((note, ""));
    let (value, at) = (value.trim(), line.at.clone());
    match name {
        "name" if !value.is_empty() => draft.name = Some(value.to_owned()),
        // A text that is not a number is refused as a weight.
        "weight" => draft.weight = Some(Placed { value: value.parse().unwrap_or(-1), at }),
        "check" => read_check(reading, value, &at, draft),
        _ if FOREIGN.contains(&name) => {}
        _ => {
            let mistake = reading.places.mistake(&at, format!("unknown note @{name}"));
            let meant = nearest(name, NOTES).map(str::to_owned);
            reading.report(mistake.expecting("@name, @weight or @check").meaning(meant));
        }
    }
}

fn read_check(reading: &mut ListReading<'_>, text: &str, at: &Range<usize>, draft: &mut RequestDraft) {
    match checks::add(text, &mut draft.check) {
        Ok(()) => {}
        Err(CheckMistake::Unknown(what)) => {
            let mistake = reading.places.mistake(at, format!("unknown check {what:?}"));
            let meant = nearest(&what, super::CHECKS).map(str::to_owned);
            reading.report(mistake.expecting(super::CHECKS.join(", ")).meaning(meant));
        }
        Err(CheckMistake::Value(message)) => reading.wrong(at, message),
    }
}

/// Whether a line begins a script or names a file for the response. It is reported, because it would not run.
fn is_script(reading: &mut ListReading<'_>, line: &Line<'_>) -> bool {
    let text = line.value.trim_start();
    let is_script = text.starts_with("> ") || text.starts_with(">>") || text.starts_with("< {%");
    if is_script {
        let message = "scripts and files for responses are not supported; remove these lines, and write checks as \
                       # @check status 200";
        reading.wrong(&line.at, message);
    }
    is_script
}

/// Reads the body: lines, and files after `<`.
fn read_body(
    reading: &mut ListReading<'_>,
    lines: &[Line<'_>],
    draft: &mut RequestDraft,
    variables: &HashMap<&str, &str>,
) {
    // Empty lines around the body separate it; references to earlier responses do not belong to it.
    let is_part = |line: &&Line<'_>| !line.value.trim().is_empty() && !line.value.starts_with("<> ");
    let (Some(first), Some(last)) =
        (lines.iter().position(|line| is_part(&line)), lines.iter().rposition(|line| is_part(&line)))
    else {
        return;
    };
    let kind = draft.headers.iter().find(|field| field.value.0.eq_ignore_ascii_case("content-type"));
    let kind = kind.map(|field| field.value.1.to_ascii_lowercase()).unwrap_or_default();
    // RFC 2046 §5.1.1: lines of multipart end with CRLF. A form is one line, written over several.
    let line_end = match kind.as_str() {
        kind if kind.starts_with("multipart/") => "\r\n",
        kind if kind.starts_with("application/x-www-form-urlencoded") => "",
        _ => "\n",
    };
    let mut body = Vec::new();
    // A file beside lines of text is literal, too.
    let is_literal = lines[first..=last].iter().all(|line| line.value.starts_with("< "));
    for (number, line) in lines[first..=last].iter().enumerate() {
        if number > 0 {
            body.extend_from_slice(line_end.as_bytes());
        }
        if is_script(reading, line) {
            return;
        }
        if let Some(file) = line.value.strip_prefix("< ") {
            let content = reading.file(file.trim(), &line.at).unwrap_or_default();
            body.extend_from_slice(&if is_literal { content } else { template::literal(&content) });
        } else if let Some(file) = line.value.strip_prefix("<@") {
            body.extend_from_slice(filled_file(reading, file, line, variables).as_bytes());
        } else {
            let text = expanded(reading, line, variables);
            body.extend_from_slice(if line_end.is_empty() { text.trim() } else { &text }.as_bytes());
        }
    }
    draft.is_literal_body = is_literal;
    draft.body = Some(body);
}

/// Reads a file and replaces its variables: `<@ FILE` or `<@utf-8 FILE`.
fn filled_file(
    reading: &mut ListReading<'_>,
    file: &str,
    line: &Line<'_>,
    variables: &HashMap<&str, &str>,
) -> String {
    let (encoding, name) = file.split_once(' ').unwrap_or((file, ""));
    if name.trim().is_empty() || !matches!(encoding.to_ascii_lowercase().as_str(), "" | "utf8" | "utf-8") {
        reading.wrong(&line.at, "a file with variables is written <@ FILE, and is UTF-8 text");
        return String::new();
    }
    let content = reading.file(name.trim(), &line.at).unwrap_or_default();
    match String::from_utf8(content) {
        Ok(text) => expanded(reading, &Placed { value: &text, at: line.at.clone() }, variables),
        Err(_) => {
            reading.wrong(&line.at, "a file with variables is UTF-8 text, and this one is not; write < FILE");
            String::new()
        }
    }
}

/// Replaces the variables of a line. Those that differ each time become templates.
fn expanded(reading: &mut ListReading<'_>, line: &Line<'_>, variables: &HashMap<&str, &str>) -> String {
    let mut text = line.value.to_owned();
    for _ in 0..DEPTH_MAX {
        let (mut out, mut rest, mut is_final) = (String::new(), text.as_str(), true);
        while let Some((before, after)) = rest.split_once("{{") {
            out.push_str(before);
            let Some((name, behind)) = after.split_once("}}") else {
                reading.wrong(&line.at, "{{ has no }}");
                return String::new();
            };
            rest = behind;
            let name = name.trim();
            match (variables.get(name), dynamic(name)) {
                (Some(value), _) => {
                    is_final &= !value.contains("{{");
                    out.push_str(value);
                }
                (None, Some(value)) => out.push_str(&format!("{{{{{value}}}}}")),
                (None, None) => {
                    let known = variables.keys().copied().chain(["counter", "random", "uuid", "timestamp"]);
                    let word = name.split([' ', '(']).next().unwrap_or(name);
                    let meant = nearest(word, known).map(str::to_owned);
                    let start = line
                        .value
                        .find(name)
                        .map_or(line.at.clone(), |at| line.at.start + at..line.at.start + at + name.len());
                    let mistake = reading.places.mistake(&start, format!("unknown variable {name:?}"));
                    let expected = "one that is set by @name = value, or counter, random FIRST LAST, uuid, timestamp or \
                                    timestamp_ms";
                    reading.report(mistake.expecting(expected).meaning(meant));
                    return String::new();
                }
            }
        }
        out.push_str(rest);
        if is_final {
            return out;
        }
        if out.len() > EXPANDED_BYTES_MAX {
            break;
        }
        text = out;
    }
    reading.wrong(&line.at, "the variables refer to each other in a circle");
    String::new()
}

/// The template for a dynamic variable of other clients.
fn dynamic(name: &str) -> Option<String> {
    let number = |text: &str| text.trim().parse::<u64>().ok();
    // In other clients, the second number is excluded.
    let random = |first: &str, last: &str| {
        let (first, last) = (number(first)?, number(last)?.checked_sub(1)?);
        (first <= last).then(|| format!("random:{first}:{last}"))
    };
    match name {
        "$guid" | "$uuid" | "$random.uuid" => return Some("uuid".to_owned()),
        "$timestamp" => return Some("timestamp".to_owned()),
        "$counter" => return Some("counter".to_owned()),
        "$randomInt" => return Some("random:0:999".to_owned()),
        _ => {}
    }
    if let Some(rest) = name.strip_prefix("$randomInt ") {
        return rest.trim().split_once(' ').and_then(|(first, last)| random(first, last));
    }
    if let Some(rest) = name.strip_prefix("$random.integer(") {
        return rest.strip_suffix(')')?.split_once(',').and_then(|(first, last)| random(first, last));
    }
    let template = crate::template::LoadTemplate::parse(format!("{{{{{name}}}}}").as_bytes()).ok()?;
    Some(template.canonical().trim_matches(['{', '}']).to_owned())
}

/// Encodes `Basic NAME PASSWORD` and `Basic NAME:PASSWORD`, as other clients do.
fn basic(value: &str) -> String {
    use base64::Engine;
    let Some(credentials) = value.strip_prefix("Basic ").map(str::trim) else { return value.to_owned() };
    let plain = match credentials.split_once([' ', ':']) {
        Some((name, password)) => format!("{name}:{}", password.trim_start()),
        None => return value.to_owned(),
    };
    format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(plain))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{ListFormat, RequestSource, parse};
    use crate::listed::{Check, Listed};
    use crate::template::{LoadTemplate, Values};

    fn read(text: &str, base: Option<&str>) -> Result<Vec<Listed>, Vec<String>> {
        let file = |name: &str| match name {
            "./body.json" => Ok(b"{{counter}} {{host}}".to_vec()),
            "./binary" => Ok(b"\xff{{counter}}{{".to_vec()),
            _ => Err("it is not there".to_owned()),
        };
        let source = RequestSource { text, file: "r.http", base, hosts: &[], given: &[], read: &file };
        let shown = |mistakes: Vec<mistake::Mistake>| mistakes.iter().map(ToString::to_string).collect();
        parse(ListFormat::Http, &source).map_err(shown)
    }

    #[test]
    fn files_of_other_clients_are_read() {
        let text = "@host = http://a:{{port}}\r\n@port=81\n# a comment\n\n{{host}}/list\n    ?q=1\n    &r={{$randomInt 1 10}}\n\n\
                    ### place an order\n# @weight 3\n// @check status 201, 4xx\n# @check contains \"id\"\n# @check header Content-Type: text/*\n# @check size 1..\n\
                    POST {{host}}/orders HTTP/1.1\nContent-Type: application/json\nAuthorization: Basic me secret\n# X-Off: 1\nX-Id: {{$guid}}\n\n\
                    {\n  \"id\": {{counter}}\n}\n\n<> earlier.json\n\n\
                    ###\n# @name form\nPOST /form\nHost: b\nContent-Type: application/x-www-form-urlencoded\n\na=1\n&b=2\n\
                    ### file\nPUT {{host}}/file\n\n< ./body.json\n\
                    ### template\nPUT {{host}}/file\n\n<@ ./body.json\n###\n";
        let told = read(text, None).expect("no mistake");
        let plain = Listed { method: "POST".into(), weight: 1, is_template: true, ..Listed::default() };
        let expected = [
            Listed {
                method: "GET".into(),
                url: "http://a:81/list?q=1&r={{random:1:9}}".into(),
                place: "r.http:5:1".into(),
                ..plain.clone()
            },
            Listed {
                name: Some("place an order".into()),
                url: "http://a:81/orders".into(),
                headers: [
                    "Content-Type: application/json",
                    "Authorization: Basic bWU6c2VjcmV0",
                    "X-Id: {{uuid}}",
                ]
                .map(str::to_owned)
                .into(),
                body: b"{\n  \"id\": {{counter}}\n}".to_vec(),
                weight: 3,
                check: Check {
                    status: vec![(201, 201), (400, 499)],
                    header: vec![("Content-Type".into(), "text/*".into())],
                    contains: vec!["\"id\"".into()],
                    size: Some((1, u64::MAX)),
                    digest: None,
                },
                place: "r.http:15:1".into(),
                ..plain.clone()
            },
            Listed {
                name: Some("form".into()),
                url: "http://b/form".into(),
                headers: ["Host: b", "Content-Type: application/x-www-form-urlencoded"]
                    .map(str::to_owned)
                    .into(),
                body: b"a=1&b=2".to_vec(),
                place: "r.http:29:1".into(),
                ..plain.clone()
            },
            Listed {
                name: Some("file".into()),
                method: "PUT".into(),
                url: "http://a:81/file".into(),
                body: b"{{counter}} {{host}}".to_vec(),
                is_literal_body: true,
                place: "r.http:36:1".into(),
                ..plain.clone()
            },
            Listed {
                name: Some("template".into()),
                method: "PUT".into(),
                url: "http://a:81/file".into(),
                body: b"{{counter}} http://a:81".to_vec(),
                place: "r.http:40:1".into(),
                ..plain
            },
        ];
        assert_eq!(told, expected);
    }

    /// The bytes of a request; its values differ each time.
    fn sent(listed: &Listed) -> Vec<u8> {
        let template = match listed.is_literal_body {
            true => LoadTemplate::from_text(&listed.body),
            false => LoadTemplate::parse(&listed.body).expect("a template"),
        };
        let mut out = Vec::new();
        template.render(&mut Values::new(1, 0, 7, 0), &mut out);
        out
    }

    #[test]
    fn a_file_is_sent_as_it_is_beside_text_too() {
        let text = "PUT http://a/\nContent-Type: multipart/form-data; boundary=b\n\n--b\n\n{{counter}}\n--b\n\n< ./binary\n--b--\n\
                    ###\nPUT http://a/\n\n< ./binary\n###\nPUT http://a/\n\n<@utf-8 ./body.json\n";
        let listed = read(&format!("@host = h\n{text}"), None).expect("no mistake");
        assert_eq!(sent(&listed[0]), b"--b\r\n\r\n7\r\n--b\r\n\r\n\xff{{counter}}{{\r\n--b--");
        assert_eq!((sent(&listed[1]), sent(&listed[2])), (b"\xff{{counter}}{{".to_vec(), b"7 h".to_vec()));
        // Fields with values that were computed elsewhere are sent.
        for field in [
            "Digest username=\"me\", realm=\"r\"",
            "AWS AKID:c2ln",
            "AWS4-HMAC-SHA256 Credential=x, Signature=y",
        ] {
            let listed = read(&format!("GET http://a/\nAuthorization: {field}\n"), None).expect(field);
            assert_eq!(listed[0].headers, [format!("Authorization: {field}")]);
        }
    }

    #[test]
    fn every_mistake_is_told_with_its_place_and_what_is_meant() {
        for (text, expected) in [
            ("# nothing\n", "1:1: the file has no request"),
            ("GTE http://a/", "1:1: unknown method \"GTE\"; did you mean \"GET\"?"),
            ("GET ftp://a/", "1:5: URL \"ftp://a/\": write http"),
            ("GET /x", "1:5: a path needs a host"),
            ("@host http://a\nGET http://a/", "1:1: this is not a variable; expected @name = value"),
            ("@host = http://a\nGET {{hots}}/", "2:7: unknown variable \"hots\"; did you mean \"host\"?"),
            (
                "@a = {{b}}\n@b = {{a}}\nGET http://{{a}}/",
                "3:1: the variables refer to each other in a circle",
            ),
            ("GET http://a/{{", "1:1: {{ has no }}"),
            ("GET http://a{{counter}}/", "1:5: the host of a URL cannot contain values"),
            ("GET http://a/{{$processEnv X}}", "1:16: unknown variable \"$processEnv X\""),
            ("GET http://a/{{randm 1 2}}", "1:16: unknown variable \"randm 1 2\"; did you mean \"random\"?"),
            ("GET http://a/{{$randomInt 5 5}}", "1:16: unknown variable"),
            ("GET http://a/\nX-A 1", "2:1: this is not a header"),
            ("GET http://a/\nX A: 1", "2:1: header \"X A\": the name"),
            ("# @wieght 2\nGET http://a/", "1:1: unknown note @wieght; did you mean \"weight\"?"),
            ("# @weight x\nGET http://a/", "1:1: the weight must be a whole number"),
            ("# @check stauts 200\nGET http://a/", "1:1: unknown check \"stauts\"; did you mean \"status\"?"),
            ("# @check status 2000\nGET http://a/", "1:1: status is not understood"),
            ("# @check contains\nGET http://a/", "1:1: every body contains"),
            (
                "GET http://a/\n\n> {% client.test() %}",
                "3:1: scripts and files for responses are not supported",
            ),
            ("GET http://a/\n\n< other", "3:1: cannot read other: it is not there"),
            ("PUT http://a/\n\n<@latin1 ./body.json", "3:1: a file with variables is written <@ FILE"),
            ("PUT http://a/\n\n<@./body.json", "3:1: a file with variables is written <@ FILE"),
            ("PUT http://a/\n\n<@ ./binary", "3:1: a file with variables is UTF-8 text, and this one is not"),
            ("GRAPHQL http://a/\n\nquery { a }", "1:1: this is not an HTTP request"),
            ("WEBSOCKET ws://a/", "1:1: this is not an HTTP request"),
            ("POST http://a/\nX-Request-Type: GraphQL\n\nquery { a }", "2:1: GraphQL is not supported"),
            ("GET http://a/\nAuthorization: Digest me secret", "2:1: Digest authentication is not supported"),
            ("GET http://a/\nauthorization: AWS AKID key region:x", "2:1: signing for AWS is not supported"),
            ("/* a comment */\nGET http://a/", "1:1: this is not an HTTP request"),
            ("GET http://a/\n/* X-A 1 */\n", "2:1: comments in /* */ are not supported"),
        ] {
            let mistakes = read(text, None).expect_err(text);
            assert!(mistakes[0].starts_with(&format!("r.http:{expected}")), "{text}: {mistakes:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused_at_places_of_it(
            text in "(@a = \\{\\{b\\}\\}\n|@b=1|GET |/x|http://a/|\\{\\{|\\}\\}|a|counter|###|# @check |status |200|\r|\n|\n\n|< |é| |:|\\[\\[request\\]\\]\n|path = |\"){0,24}"
        ) {
            let lines: Vec<&str> = text.split('\n').collect();
            for format in [ListFormat::Http, ListFormat::Toml, ListFormat::Har, ListFormat::Lines] {
                let source = RequestSource { text: &text, file: "f", base: Some("http://a"), hosts: &[], given: &[], read: &|_| Ok(Vec::new()) };
                match parse(format, &source) {
                    Ok(listed) => prop_assert!(!listed.is_empty()),
                    Err(mistakes) => {
                        prop_assert!(!mistakes.is_empty());
                        for mistake in mistakes {
                            let line = lines.get(mistake.line - 1).expect("a line");
                            prop_assert!((1..=line.chars().count() + 1).contains(&mistake.column), "{}", mistake);
                        }
                    }
                }
            }
        }
    }
}
