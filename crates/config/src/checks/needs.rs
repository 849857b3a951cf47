//! The needs of a configuration on the machine, besides certificates: folders for files, names that resolve.
//!
//! Nothing is looked up here: that is up to the command that checks a file on the machine where it will run.

use std::path::{Path, PathBuf};

use mistake::Mistake;

use crate::document::reader::{Reader, Span};
use crate::option::host::ListenAddress;
use crate::option::kind::Located;
use crate::option::server::ServerHost;
use crate::tables::acme::Acme;
use crate::tables::acme::options::AcmeWritten;
use crate::tables::file::File;
use crate::tables::log::LogTarget;

/// Something that must exist on the machine, and where the configuration says so.
#[derive(Debug, Clone, PartialEq)]
pub struct Need {
    /// The file, folder or name.
    pub what: Needed,
    option: &'static str,
    place: Mistake,
}

/// Files, folders and names that must exist on the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Needed {
    /// The folder in which this file will be created.
    FolderOf(PathBuf),
    /// This folder with files for clients. Until it exists, they get 404.
    FilesRoot(PathBuf),
    /// The addresses of this host name, or the records of this service.
    AddressOf(ServerHost),
    /// This folder for certificates, keys and accounts of the process alone. It is made if it is missing.
    OwnFolder(PathBuf),
    /// This file with certificates of CAs.
    Authorities(PathBuf),
    /// This file with a secret of the given form.
    Secret(PathBuf, SecretForm),
    /// A program that can talk to Redis.
    Redis,
}

/// The format of a secret in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretForm {
    /// Base64 with `+` and `/` (RFC 4648 §4).
    Base64,
    /// Base64 with `-` and `_` (RFC 4648 §5), with or without padding.
    Base64Url,
    /// A token in the first line.
    Token,
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
    for log in &file.log {
        if let Some(Located { value: LogTarget::File(path), at }) = &log.value.target {
            add(folder(path), "target", at);
        }
        if let Some(Located { value: ca, at }) = log.value.receiver_ca() {
            add(Needed::Authorities(ca.clone()), "ca", at);
        }
    }
    if let Some(Located { value: ca, at }) = file.tracing.as_ref().and_then(|tracing| tracing.value.ca()) {
        add(Needed::Authorities(ca.clone()), "ca", at);
    }
    if let Some(Located { value: ca, at }) = file.consul.ca() {
        add(Needed::Authorities(ca.clone()), "ca", at);
    }
    if let Some(Located { value: file, at }) = file.consul.token_file() {
        add(Needed::Secret(file.clone(), SecretForm::Token), "token_file", at);
    }
    for address in file.listen.iter().filter_map(|listen| listen.value.address.as_ref()) {
        if let Located { value: ListenAddress::Unix(path), at } = address {
            add(folder(path), "address", at);
        }
    }
    for capture in file.routes.iter().filter_map(|route| route.value.capture.as_ref()) {
        add(folder(&capture.value.file), "capture", &capture.at);
    }
    for (root, at) in file.routes.iter().filter_map(|route| route.value.files.as_ref()?.value.root()) {
        add(Needed::FilesRoot(root), "root", at);
    }
    for folder in file.routes.iter().filter_map(|route| route.value.accel.as_ref()).flat_map(|it| &it.value) {
        add(Needed::FilesRoot(folder.value.value.clone()), "accel", &folder.value.at);
    }
    for server in file.upstreams.iter().flat_map(|(_, _, upstream)| &upstream.servers) {
        if let Located { value, at } = server
            && matches!(value.host, ServerHost::Name(_) | ServerHost::Service(_))
        {
            add(Needed::AddressOf(value.host.clone()), "servers", at);
        }
    }
    let mut listeners = file.listen.iter().filter_map(|listen| listen.value.tls.as_ref());
    if let Some(tls) = listeners.find(|tls| tls.value.certificates.is_automatic()) {
        add_acme(&file.acme, &tls.at, &mut add);
    }
    if let Some(redis) = &file.redis {
        add(Needed::Redis, "redis", &redis.at);
    }
    needs.sort_by_key(|need| (need.place.line, need.place.column));
    needs
}

/// Adds the needs of automatic certificates; `listener` is one that has them.
fn add_acme(acme: &AcmeWritten, listener: &Span, add: &mut impl FnMut(Needed, &'static str, &Span)) {
    match &acme.folder {
        Some(Located { value, at }) => add(Needed::OwnFolder(value.clone()), "folder", at),
        None => add(Needed::OwnFolder(Acme::FOLDER.into()), "folder of [acme]", listener),
    }
    let mut add_file = |file: &Option<Located<PathBuf>>, option, needed: fn(PathBuf) -> Needed| {
        if let Some(Located { value, at }) = file {
            add(needed(value.clone()), option, at);
        }
    };
    let base64url = |file| Needed::Secret(file, SecretForm::Base64Url);
    let fallback = acme.fallback.as_ref().map(|fallback| &fallback.value);
    let fallback = fallback.map(|fallback| (&fallback.ca, &fallback.external_account));
    for (ca, account) in [(&acme.ca, &acme.external_account)].into_iter().chain(fallback) {
        add_file(ca, "ca", Needed::Authorities);
        if let Some(account) = account {
            add_file(&account.value.key_file, "key_file", base64url);
        }
    }
    if let Some(dns) = &acme.dns {
        add_file(&dns.value.key_file, "key_file", |file| Needed::Secret(file, SecretForm::Base64));
    }
}
