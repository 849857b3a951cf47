//! The option `passthrough` of a listener: TLS that is forwarded unchanged, by the name and the protocols that the client
//! requests.

use std::collections::HashMap;

use route::Split;

use crate::document::reader::{Reader, Span};
use crate::document::value_error::{ValueError, ValueFault};
use crate::option::host::{NAMES_PATTERN, names_pattern};
use crate::option::kind::{At, List, Located, Maybe, Text, UPSTREAM_NAME};
use crate::option::matching::SPLIT;
use crate::option::pairs::Pair;
use crate::option::table::{Element, Inline, Table, key, required};
use crate::tables::listen::{Listen, Passthrough};
use crate::tables::names::Names;

/// A parsed element of `passthrough`.
#[derive(Debug, Clone, Default)]
pub(crate) struct PassthroughWritten {
    pub(crate) names: Option<Vec<Located<String>>>,
    pub(crate) alpn: Vec<String>,
    pub(crate) upstream: Option<Located<String>>,
    pub(crate) split: Option<Located<Vec<Pair<String, u32>>>>,
}

pub(crate) const PASSTHROUGH: Inline<PassthroughWritten> = Inline {
    title: "this passthrough",
    example: "{ names = [\"db.example.com\"], upstream = \"database\" }",
    table: &Table {
        options: &[
            required!(
                "names",
                Maybe(List {
                    kind: At(Text { expected: NAMES_PATTERN, read: names_pattern, print: String::clone }),
                    may_be_empty: false,
                }),
                PassthroughWritten.names,
                "The server names (SNI), also with a wildcard for one label, `*.example.com`, or for any \
                 number of labels, `**.example.com`. `\"*\"` matches every name, and clients without one. \
                 Exact names take precedence over wildcards, those with more labels over others, and all \
                 over `\"*\"`; then the order of the list decides.",
            ),
            key!(
                "alpn",
                List { kind: PROTOCOL, may_be_empty: true },
                PassthroughWritten.alpn,
                "Only clients that offer one of these protocols (ALPN), such as `acme-tls/1`. Default: all \
                 clients.",
            ),
            key!(
                "upstream",
                Maybe(At(UPSTREAM_NAME)),
                PassthroughWritten.upstream,
                "The upstream that gets the unchanged bytes, beginning with the ClientHello. One of \
                 `upstream` and `split` is required.",
            ),
            key!(
                "split",
                Maybe(At(SPLIT)),
                PassthroughWritten.split,
                "Distributes connections over several upstreams by weight: `{ old = 9, new = 1 }`.",
            ),
        ],
    },
};

const PROTOCOL: Text<String> = Text { expected: PROTOCOL_EXPECTED, read: protocol, print: String::clone };
const PROTOCOL_EXPECTED: &str = "a protocol of ALPN such as h2, up to 255 bytes";

fn protocol(text: &str) -> Result<String, ValueError> {
    // RFC 7301 §3.1.
    if (1..=255).contains(&text.len()) {
        return Ok(text.to_owned());
    }
    let fault = match text {
        "" => ValueFault::Empty,
        long => ValueFault::TooLarge(long.to_owned()),
    };
    Err(ValueError { fault, expected: PROTOCOL_EXPECTED })
}

/// Adds mistakes about TLS that is passed on, and converts it to settings.
pub(crate) fn resolve(listen: &Listen, names: &Names<'_>, reader: &mut Reader<'_>) -> Vec<Passthrough> {
    let mut settings = Vec::new();
    let mut known: HashMap<(&str, &[String]), ()> = HashMap::new();
    for Element { value: written, at, is_intact, .. } in &listen.passthrough {
        if listen.tls.is_none() && listen.tcp.is_none() && reader.is_whole() {
            let mistake = reader.mistake(at, "passthrough needs tls or tcp");
            reader.add(mistake.expecting("one of them, for all other connections"));
        }
        for name in written.names.iter().flatten() {
            if known.insert((&name.value, &written.alpn), ()).is_some() {
                let message = format!("names: an earlier entry already forwards {:?}", name.value);
                let mistake = reader.mistake(&name.at, message);
                reader.add(mistake.expecting("each name once, or with another alpn"));
            }
        }
        let Some(to) = to(written, (at, *is_intact), names, reader) else { continue };
        if *is_intact {
            let names = written.names.iter().flatten().map(|name| name.value.clone()).collect();
            settings.push(Passthrough { names, protocols: written.alpn.clone(), to });
        }
    }
    settings
}

/// Where connections go; `None` if there is a mistake.
fn to(
    written: &PassthroughWritten,
    (at, is_intact): (&Span, bool),
    names: &Names<'_>,
    reader: &mut Reader<'_>,
) -> Option<Split> {
    let mut refuse = |at: &Span, message: &str, expected: &str| {
        let mistake = reader.mistake(at, message);
        reader.add(mistake.expecting(expected));
    };
    let (option, shares) = match (&written.upstream, &written.split) {
        (Some(upstream), None) => ("upstream", vec![(&upstream.value, 1, &upstream.at)]),
        (None, Some(split)) => {
            ("split", split.value.iter().map(|share| (&share.name, share.value, &share.at)).collect())
        }
        (Some(_), Some(split)) => {
            refuse(&split.at, "split cannot be combined with upstream", "one of them");
            return None;
        }
        (None, None) => {
            if is_intact {
                refuse(at, "this passthrough has no upstream", "upstream or split");
            }
            return None;
        }
    };
    let mut found = Vec::new();
    for (name, weight, at) in shares {
        let upstream = names.upstream(option, name, at, reader)?;
        if names.has_https[upstream] {
            let message = format!("{option}: {name:?} has https servers: TLS would be wrapped in TLS");
            let mistake = reader.mistake(at, message);
            reader.add(mistake.expecting("servers such as tcp://10.0.0.5:443"));
        }
        found.push((upstream, name.as_str(), weight));
    }
    let to = Split::new(found);
    if let (None, Some(split)) = (&to, &written.split) {
        let mistake = reader.mistake(&split.at, "split: no upstream gets a share");
        reader.add(mistake.expecting("a weight above 0, such as { old = 9, new = 1 }"));
    }
    to
}
