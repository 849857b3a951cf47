//! Splits the path of a request into a script and its path info (RFC 3875 §4.1.5, §4.1.13), without a file system.
//!
//! A path gives a few candidates, and the first whose file exists is the script. So `/x.jpg/a.php` never runs `x.jpg`, as
//! PHP itself would with `cgi.fix_pathinfo`. Dot segments are refused, not resolved.

use memchr::memchr_iter;

/// Rules that map paths to scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScriptRules<'a> {
    split: &'a [u8],
    index: Option<&'a [u8]>,
    has_front: bool,
}

/// Why settings name no scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ScriptRulesError {
    /// The split is not a dot and an extension.
    #[error("split is a dot and the extension of scripts, such as .php")]
    Split,
    /// The index is not the name of a script.
    #[error("index is the name of a script in a directory, such as index.php")]
    Index,
}

impl<'a> ScriptRules<'a> {
    /// A script has a name that ends in `split`, in the same case: to a file system `.PHP` is another extension. `index` is
    /// the script of a directory. With `has_front`, the root's index gets every request that names no script.
    ///
    /// # Errors
    /// The split or the index is invalid.
    pub fn new(split: &'a str, index: Option<&'a str>, has_front: bool) -> Result<Self, ScriptRulesError> {
        let is_plain = |byte: u8| byte > b' ' && byte != 0x7f && !b"/\\%".contains(&byte);
        let is_name = |name: &str| name.bytes().all(is_plain);
        if split.len() < 2 || !split.starts_with('.') || split.ends_with('.') || !is_name(split) {
            return Err(ScriptRulesError::Split);
        }
        let is_index = |index: &str| is_name(index) && is_script(index.as_bytes(), split.as_bytes());
        if index.is_some_and(|index| !is_index(index)) {
            return Err(ScriptRulesError::Index);
        }
        Ok(Self::of_valid(split, index, has_front))
    }

    /// The rules of settings that [`new`](Self::new) has accepted before.
    #[inline]
    pub fn of_valid(split: &'a str, index: Option<&'a str>, has_front: bool) -> Self {
        Self { split: split.as_bytes(), index: index.map(str::as_bytes), has_front }
    }
}

/// Rule that has found the script of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScriptForm {
    /// The path names the script.
    Script,
    /// The path names the script's directory, with a slash at its end.
    DirectoryIndex,
    /// The path names the script's directory, without the slash. The client is redirected to the path with it.
    DirectoryWithoutSlash,
    /// The script is the root's index, which looks at REQUEST_URI.
    Front,
}

/// A script, and what of the path is behind it. The file may not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Script<'a> {
    /// SCRIPT_NAME: an absolute path, decoded once, without dot segments or empty segments. Its file lies beneath the
    /// root. The code that opens the file decides whether symbolic links may lead out of the root.
    pub name: &'a [u8],
    /// PATH_INFO: empty, or begins with a slash. Decoded once.
    pub path_info: &'a [u8],
    pub form: ScriptForm,
}

/// Why a path is refused; the status is 400.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ScriptPathError {
    /// The target does not begin with a slash: `*`, or the authority of a CONNECT.
    #[error("the target is no path (RFC 3875 §4.1.13)")]
    NotAbsolute,
    /// The path has a segment `.` or `..`, perhaps escaped.
    #[error("the path has a dot segment (RFC 3986 §6.2.2.3)")]
    DotSegment,
    /// The path has an escape that is not `%` and two hexadecimal digits.
    #[error("the path has a broken escape (RFC 3986 §2.1)")]
    BrokenEscape,
    /// The path has a control byte, perhaps escaped. C ends a string at NUL, and PHP has misread line ends in paths
    /// (CVE-2019-11043).
    #[error("the path has a control byte (RFC 3986 §2.2)")]
    Control,
    /// The path names a script and has an escaped slash, or a backslash. Decoded, it is another path (RFC 3875 §4.1.5).
    #[error("the path of a script has an escaped slash or a backslash (RFC 3875 §4.1.5)")]
    EscapedSlash,
}

/// The longest path of a file (PATH_MAX of Linux, without the NUL).
const NAME_BYTES_MAX: usize = 4095;
/// The most scripts that are looked for in a path. Each costs the caller a look at the file system, and a client may send
/// a path of hundreds.
const SCRIPTS_MAX: u8 = 8;

/// The scripts that a path may name, in the order in which they are looked for. Without one, the response is a 404.
#[derive(Debug, Clone)]
pub struct ScriptCandidates<'a> {
    /// The decoded path.
    path: &'a [u8],
    /// The decoded path with the index of the directory that it names; empty if there is no index, or the path names
    /// something else.
    with_index: &'a [u8],
    /// The root's index; empty if it gets no other requests.
    front: &'a [u8],
    split: &'a [u8],
    /// The path has no script behind this place.
    end: usize,
    /// How far scripts were looked for in the path.
    at: usize,
    /// How many further scripts are looked for.
    left: u8,
    next: Next,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Scripts,
    Index,
    Front,
    Nothing,
}

impl<'a> ScriptCandidates<'a> {
    /// Reads a path without its query. `memory` holds what the candidates are made of; its content is replaced.
    ///
    /// # Errors
    /// The path could be read in more than one way.
    pub fn new(
        path: &[u8],
        rules: ScriptRules<'a>,
        memory: &'a mut Vec<u8>,
    ) -> Result<Self, ScriptPathError> {
        memory.clear();
        let path = if path.is_empty() { b"/" } else { path };
        if path[0] != b'/' {
            return Err(ScriptPathError::NotAbsolute);
        }
        let has_escaped_slash = decode(path, memory)?;
        let mut names_script = false;
        for segment in memory.split(|byte| matches!(byte, b'/' | b'\\')) {
            if matches!(segment, b"." | b"..") {
                return Err(ScriptPathError::DotSegment);
            }
            names_script |= is_script(segment, rules.split);
        }
        if has_escaped_slash && names_script {
            return Err(ScriptPathError::EscapedSlash);
        }
        let path_len = memory.len();
        // A directory whose name has an extension of scripts has no index: the path is a script that does not exist.
        let index = rules.index.filter(|_| !has_escaped_slash && !names_script);
        if let Some(index) = index {
            if memory[path_len - 1] != b'/' {
                memory.push(b'/');
            }
            memory.extend_from_slice(index);
        }
        let front_start = memory.len();
        if let Some(index) = rules.index.filter(|_| rules.has_front) {
            memory.push(b'/');
            memory.extend_from_slice(index);
        }
        let (with_index, front) = memory.split_at(front_start);
        let path = &with_index[..path_len];
        let visible_len = visible_len(path);
        let is_allowed = visible_len == path.len() && with_index.len() <= NAME_BYTES_MAX;
        Ok(Self {
            path,
            with_index: if index.is_some() && is_allowed { with_index } else { b"" },
            front,
            split: rules.split,
            end: if has_escaped_slash { 0 } else { visible_len.min(NAME_BYTES_MAX) },
            at: 0,
            left: SCRIPTS_MAX,
            next: Next::Scripts,
        })
    }

    /// The first candidate for which `exists` returns true. It gets the script's name, which is absolute beneath the root,
    /// and says whether that is a regular file.
    pub fn first_existing(mut self, mut exists: impl FnMut(&[u8]) -> bool) -> Option<Script<'a>> {
        self.find(|script| exists(script.name))
    }

    /// The next segment of the path that has the name of a script.
    ///
    /// At most one candidate of a path is a file, because a file has no entries: so their order does not matter.
    fn script(&mut self) -> Option<Script<'a>> {
        while self.at < self.end && self.left > 0 {
            // The segment begins behind a slash.
            let start = self.at + 1;
            let rest = self.path.get(start..)?;
            let len = rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len());
            self.at = start + len;
            if self.at <= self.end && is_script(&rest[..len], self.split) {
                self.left -= 1;
                let (name, path_info) = self.path.split_at(self.at);
                return Some(Script { name, path_info, form: ScriptForm::Script });
            }
        }
        None
    }
}

impl<'a> Iterator for ScriptCandidates<'a> {
    type Item = Script<'a>;

    fn next(&mut self) -> Option<Script<'a>> {
        let without_info = |name, form| Script { name, path_info: b"", form };
        loop {
            match self.next {
                Next::Scripts => match self.script() {
                    Some(script) => return Some(script),
                    None => self.next = Next::Index,
                },
                Next::Index => {
                    self.next = Next::Front;
                    if !self.with_index.is_empty() {
                        let has_slash = self.path.ends_with(b"/");
                        let form = if has_slash {
                            ScriptForm::DirectoryIndex
                        } else {
                            ScriptForm::DirectoryWithoutSlash
                        };
                        return Some(without_info(self.with_index, form));
                    }
                }
                Next::Front => {
                    self.next = Next::Nothing;
                    // The root's index was the candidate before, if the path is the root.
                    if !self.front.is_empty() && self.front != self.with_index {
                        return Some(without_info(self.front, ScriptForm::Front));
                    }
                }
                Next::Nothing => return None,
            }
        }
    }
}

/// Whether a segment is the name of a script: more than the extension alone, and not hidden.
fn is_script(segment: &[u8], split: &[u8]) -> bool {
    segment.len() > split.len() && segment.ends_with(split) && segment[0] != b'.'
}

/// Appends the path with its escapes decoded once and slashes in a row merged, as file systems do. Returns whether it has
/// an escaped slash or a backslash.
fn decode(path: &[u8], out: &mut Vec<u8>) -> Result<bool, ScriptPathError> {
    // Most paths are copied as they are.
    let mut last = 0;
    let is_plain = path.iter().all(|&byte| {
        let is_same_slash = byte == b'/' && last == b'/';
        last = byte;
        PLAIN[usize::from(byte)] && !is_same_slash
    });
    if is_plain && out.is_empty() {
        out.extend_from_slice(path);
        return Ok(false);
    }
    decode_each(path, out)
}

/// Bytes that decoding does not change, and that are no separators of other systems.
static PLAIN: [bool; 256] = {
    let mut table = [true; 256];
    let mut byte = 0;
    while byte < table.len() {
        table[byte] = !matches!(byte as u8, ..b' ' | 0x7f | b'%' | b'\\');
        byte += 1;
    }
    table
};

fn decode_each(path: &[u8], out: &mut Vec<u8>) -> Result<bool, ScriptPathError> {
    let mut has_escaped_slash = false;
    let mut rest = path;
    while let [first, behind @ ..] = rest {
        let (byte, is_escape, behind) = match (first, behind) {
            (b'%', [high, low, behind @ ..]) => (escaped(*high, *low)?, true, behind),
            (b'%', _) => return Err(ScriptPathError::BrokenEscape),
            _ => (*first, false, behind),
        };
        if byte < b' ' || byte == 0x7f {
            return Err(ScriptPathError::Control);
        }
        has_escaped_slash |= byte == b'\\' || (byte == b'/' && is_escape);
        if byte != b'/' || out.last() != Some(&b'/') {
            out.push(byte);
        }
        rest = behind;
    }
    Ok(has_escaped_slash)
}

fn escaped(high: u8, low: u8) -> Result<u8, ScriptPathError> {
    let digit =
        |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8).ok_or(ScriptPathError::BrokenEscape);
    Ok(digit(high)? << 4 | digit(low)?)
}

/// The length of the path up to its first hidden segment: no script lies in a directory such as `.git`.
fn visible_len(path: &[u8]) -> usize {
    let is_hidden = |dot: &usize| *dot > 0 && path[dot - 1] == b'/';
    memchr_iter(b'.', path).find(is_hidden).map_or(path.len(), |dot| dot - 1)
}
