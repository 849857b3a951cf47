//! What a configuration needs on the machine besides certificates: folders for files, names that resolve.
//!
//! Nothing is looked up here: that is up to the command that checks a file on the machine where it will run.

use std::path::{Path, PathBuf};

use crate::kind::Located;
use crate::options::File;
use crate::reader::{Reader, Span};
use crate::settings::{ListenAddress, LogTarget, ServerHost};
use mistake::Mistake;

/// Something that must exist on the machine, and where the configuration says so.
#[derive(Debug, Clone, PartialEq)]
pub struct Need {
    /// What must exist.
    pub what: Needed,
    option: &'static str,
    place: Mistake,
}

/// What must exist on the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Needed {
    /// The folder in which this file will be created.
    FolderOf(PathBuf),
    /// The address of this host name.
    AddressOf(String),
}

impl Need {
    /// Makes a mistake at the position of the need, with the given message.
    pub fn mistake(&self, message: &str, expected: Option<&str>) -> Mistake {
        Mistake {
            message: format!("{}: {message}", self.option),
            expected: expected.map(str::to_owned),
            ..self.place.clone()
        }
    }
}

/// The needs of a file, in order.
pub(crate) fn needs(file: &File, reader: &Reader<'_>) -> Vec<Need> {
    let mut needs = Vec::new();
    let mut add = |what: Needed, option, at: &Span| {
        needs.push(Need { what, option, place: reader.mistake(at, "") });
    };
    let folder = |path: &Path| Needed::FolderOf(path.to_owned());
    if let Some(Located { value, at }) = &file.admin {
        add(folder(value), "admin", at);
    }
    if let Some(Located { value: LogTarget::File(path), at }) = &file.log.target {
        add(folder(path), "target", at);
    }
    for address in file.listen.iter().filter_map(|listen| listen.value.address.as_ref()) {
        if let Located { value: ListenAddress::Unix(path), at } = address {
            add(folder(path), "address", at);
        }
    }
    for server in file.upstreams.iter().flat_map(|(_, _, upstream)| &upstream.servers) {
        if let Located { value, at } = server
            && let ServerHost::Name(name) = &value.host
        {
            add(Needed::AddressOf(name.clone()), "servers", at);
        }
    }
    needs.sort_by_key(|need| (need.place.line, need.place.column));
    needs
}
