//! The option `tcp` of a listener: bytes that are forwarded to an upstream, or to several by weight.

use route::Split;
use toml::de::DeValue;

use crate::document::reader::Reader;
use crate::option::form::Form;
use crate::option::kind::{Described, Kind, Located, refuse_type};
use crate::option::matching::SPLIT;
use crate::option::pairs::Pair;
use crate::option::table::Written;
use crate::tables::names::Names;

/// The name of an upstream, or several with their weights.
pub(crate) struct SharesKind;

const EXPECTED: &str = "the name of an upstream: NAME of [upstream.NAME], or weights of upstreams such as { app = 9, canary = 1 }";
const BRIEF: &str = "the name of an upstream, or a table";

impl Described for SharesKind {
    fn form(&self) -> Form {
        Form::brief(EXPECTED, BRIEF)
    }
}

impl Kind<Vec<Pair<String, u32>>> for SharesKind {
    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<Vec<Pair<String, u32>>> {
        match written.value.get_ref() {
            DeValue::String(name) => {
                Some(vec![Pair { at: written.value.span(), name: name.to_string(), value: 1 }])
            }
            DeValue::Table(_) => SPLIT.read(written, reader),
            _ => {
                refuse_type(written, self.expected(), reader);
                None
            }
        }
    }

    fn print(&self, shares: &Vec<Pair<String, u32>>) -> Option<String> {
        match shares.as_slice() {
            [Pair { name, value: 1, .. }] => Some(crate::option::kind::quoted(name)),
            _ => SPLIT.print(shares),
        }
    }
}

/// Returns where connections go; `None` after a mistake.
pub(crate) fn resolve(
    tcp: &Located<Vec<Pair<String, u32>>>,
    names: &Names<'_>,
    reader: &mut Reader<'_>,
) -> Option<Split> {
    let found: Vec<Option<(usize, &str, u32)>> = tcp
        .value
        .iter()
        .map(|Pair { at, name, value }| {
            Some((names.tcp_upstream("tcp", name, at, reader)?, name.as_str(), *value))
        })
        .collect();
    let to = Split::new(found.into_iter().collect::<Option<Vec<_>>>()?);
    if to.is_none() && reader.is_whole() {
        let mistake = reader.mistake(&tcp.at, "tcp: no upstream gets a share");
        reader.add(mistake.expecting("a weight above 0, such as { old = 9, new = 1 }"));
    }
    to
}
