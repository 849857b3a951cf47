//! Names that other tables refer to: listeners, upstreams, sets of header edits, and the texts that values can give.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use ::route::NamedValues;
use expression::PossibleTexts;
use mistake::nearest;

use crate::document::reader::{Reader, Span, refuse};
use crate::option::kind::Located;
use crate::option::table::one_of;
use crate::tables::headers::EditsWritten;
use crate::tables::map::Map;
use crate::tables::upstream::Protocol;

/// Makes names unique: written names stay, and a default name that is taken gets a number.
pub(crate) fn unique(names: impl Iterator<Item = (Option<String>, String)> + Clone) -> Vec<String> {
    let mut taken: HashSet<String> = names.clone().filter_map(|(written, _)| written).collect();
    let mut next_of: HashMap<String, usize> = HashMap::new();
    let name = |(written, default): (Option<String>, String)| {
        if let Some(written) = written {
            return written;
        }
        let mut name = default.clone();
        while !taken.insert(name.clone()) {
            let next = next_of.entry(default.clone()).or_insert(1);
            *next += 1;
            name = format!("{default} #{next}");
        }
        name
    };
    names.map(name).collect()
}

/// The message about an upstream with a server that speaks no HTTP, and what is expected.
pub(crate) fn speaks_no_http(option: &str, upstream: &str) -> (String, &'static str) {
    let message = format!("{option}: upstream {upstream:?} has a tcp:// server, which speaks no HTTP");
    (message, "http:// or https:// servers, or a listener with tcp")
}

/// The names that routes can refer to.
pub(crate) struct Names<'f> {
    /// The indices of listeners, by name and by address.
    pub(crate) listeners: HashMap<String, usize>,
    /// For each listener, whether it passes on bytes (`tcp`).
    pub(crate) is_tcp: Vec<bool>,
    /// For each listener, whether it is a Unix socket.
    pub(crate) is_unix: Vec<bool>,
    /// For each listener, whether it has TLS.
    pub(crate) has_tls: Vec<bool>,
    /// Whether it has HTTP/3, for each listener.
    pub(crate) has_http3: Vec<bool>,
    /// The indices of upstreams, by name.
    pub(crate) upstreams: HashMap<&'f str, usize>,
    /// The names of upstreams, in the order of the file.
    pub(crate) upstream_names: Vec<&'f str>,
    /// For each upstream, whether a server does not speak HTTP.
    pub(crate) has_bytes_only: Vec<bool>,
    /// For each upstream, whether a server has TLS.
    pub(crate) has_https: Vec<bool>,
    /// For each upstream, the protocol that its servers speak.
    pub(crate) protocols: Vec<Protocol>,
    /// For each upstream, the values that its requests are keyed by: `hash_key` and `sticky.by`, with the name of the option.
    pub(crate) keyed_by: Vec<Vec<(&'static str, &'f str)>>,
    /// Whether there is a cache store.
    pub(crate) has_cache: bool,
    /// The sets of header edits.
    pub(crate) header_sets: HashMap<&'f str, &'f EditsWritten>,
    /// The values of the top level and of maps.
    pub(crate) values: Arc<NamedValues>,
    /// The maps, by their numbers.
    pub(crate) maps: &'f [Map],
}

impl Names<'_> {
    /// The index of an upstream that an option names. An unknown name is a mistake, except in a broken file, where the
    /// upstream may have been lost.
    pub(crate) fn upstream(
        &self,
        option: &str,
        wanted: &str,
        at: &Span,
        reader: &mut Reader<'_>,
    ) -> Option<usize> {
        let found = self.upstreams.get(wanted).copied();
        if found.is_none() && reader.is_whole() {
            let mistake = reader.mistake(at, format!("{option}: no upstream is named {wanted:?}"));
            let near = nearest(wanted, self.upstream_names.iter().copied()).map(str::to_owned);
            let expected = match self.upstream_names.as_slice() {
                [] => format!("a table [upstream.{wanted}]"),
                names => one_of(names),
            };
            reader.add(mistake.meaning(near).expecting(expected));
        }
        found
    }

    /// The index of an upstream whose servers speak HTTP, by name.
    pub(crate) fn http_upstream(
        &self,
        option: &str,
        wanted: &str,
        at: &Span,
        reader: &mut Reader<'_>,
    ) -> Option<usize> {
        let found = self.upstream(option, wanted, at, reader)?;
        if self.has_bytes_only[found] {
            let (message, expected) = speaks_no_http(option, wanted);
            refuse(at, &message, expected, reader);
            return None;
        }
        Some(found)
    }

    /// The names and indices of the upstreams whose servers speak HTTP.
    pub(crate) fn http_upstreams(&self) -> impl Iterator<Item = (&str, usize)> {
        let all = self.upstream_names.iter().zip(0..);
        all.filter(|(_, index)| !self.has_bytes_only[*index]).map(|(name, index)| (*name, index))
    }

    /// The index of an upstream that bytes are passed on to, by name.
    pub(crate) fn tcp_upstream(
        &self,
        option: &str,
        wanted: &str,
        at: &Span,
        reader: &mut Reader<'_>,
    ) -> Option<usize> {
        let found = self.upstream(option, wanted, at, reader)?;
        match self.protocols.get(found) {
            Some(Protocol::Http3) => {
                let message =
                    format!("{option}: upstream {wanted:?} has protocol = \"h3\", which cannot carry TCP");
                refuse(at, &message, "an upstream without protocol = \"h3\"", reader);
                None
            }
            Some(Protocol::Fastcgi) => {
                let message = format!("{option}: upstream {wanted:?} gets FastCGI requests, not bytes");
                refuse(at, &message, "an upstream with tcp:// servers", reader);
                None
            }
            Some(Protocol::Http1 | Protocol::Http2) | None => Some(found),
        }
    }

    /// The index of a listener of any protocol, by name or address.
    pub(crate) fn any_listener(&self, wanted: &Located<String>, reader: &mut Reader<'_>) -> Option<usize> {
        let Some(&found) = self.listeners.get(&wanted.value) else {
            if reader.is_whole() {
                let mut names: Vec<&str> = self.listeners.keys().map(String::as_str).collect();
                names.sort_unstable();
                let message = format!("listener: no listener is named {:?}", wanted.value);
                let mistake = reader.mistake(&wanted.at, message);
                let near = nearest(&wanted.value, names.iter().copied()).map(str::to_owned);
                reader.add(mistake.expecting(one_of(&names)).meaning(near));
            }
            return None;
        };
        Some(found)
    }

    /// The index of a listener that speaks HTTP, by name or address.
    pub(crate) fn listener(&self, wanted: &Located<String>, reader: &mut Reader<'_>) -> Option<usize> {
        let found = self.any_listener(wanted, reader)?;
        if self.is_tcp[found] {
            let message = format!("listener: {:?} has tcp, so routes do not apply to it", wanted.value);
            refuse(&wanted.at, &message, "a listener without tcp", reader);
            return None;
        }
        Some(found)
    }
}

/// The most texts of a list for people.
const SHOWN_MAX: usize = 20;

/// Texts that a value can be, but that an option does not accept.
#[derive(Default)]
pub(crate) struct WrongTexts {
    /// Texts in the configuration itself, behind the option and their source, as a message begins with them.
    pub(crate) configured: Vec<(String, String)>,
    /// Texts in files of maps, behind the option and their source. They change while the proxy runs.
    of_files: Vec<(String, BTreeSet<String>)>,
}

impl WrongTexts {
    pub(crate) fn find(
        option: &str,
        possible: &PossibleTexts<'_>,
        maps: &[Map],
        is_right: impl Fn(&str) -> bool,
    ) -> Self {
        let mut found = Self::default();
        let constants = possible.constants.iter().map(|text| String::from_utf8_lossy(text).into_owned());
        for text in constants.filter(|text| !is_right(text)) {
            found.configured.push((option.to_owned(), text));
        }
        let numbers: BTreeSet<u16> = possible.maps.iter().copied().collect();
        for map in numbers.into_iter().filter_map(|map| maps.get(usize::from(map))) {
            let configured = map.configured_texts();
            let is_wrong = |text: &String| !configured.contains(text) && !is_right(text);
            let of_file: BTreeSet<String> = map.texts().filter(is_wrong).collect();
            if let (Some(file), false) = (&map.file, of_file.is_empty()) {
                let source = format!("{option}, by {}: {}", map.full_name(), file.path.display());
                found.of_files.push((source, of_file));
            }
            let option = format!("{option}, by an entry of {}", map.full_name());
            let wrong = configured.into_iter().filter(|text| !is_right(text));
            found.configured.extend(wrong.map(|text| (option.clone(), text)));
        }
        found
    }

    /// Warns of the texts in files.
    pub(crate) fn warn_of_files(&self, what: &str, expected: &str, at: &Span, reader: &mut Reader<'_>) {
        // What is missing may have been lost with a line that is no TOML.
        if !reader.is_whole() {
            return;
        }
        for (source, texts) in &self.of_files {
            let message = format!("{source} has {what}: {}", listed(texts));
            reader.warn(reader.mistake(at, message).expecting(expected));
        }
    }
}

/// Formats texts for people: the first ones, then how many more there are.
pub(crate) fn listed(texts: &BTreeSet<impl AsRef<str>>) -> String {
    let shown: Vec<&str> = texts.iter().map(AsRef::as_ref).take(SHOWN_MAX).collect();
    match texts.len() - shown.len() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
