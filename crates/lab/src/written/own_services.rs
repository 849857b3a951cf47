//! Tables about the user's own services: `[origin]`, and the requests of a case.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::Path;

use report::results::File;
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use crate::agent::words::AgentService;
use crate::plan::{OriginPlan, OriginSource, OriginsTls, RequestOptions};
use crate::proxies::CommandTemplate;

/// Servers behind the proxies, if they are not `vanward origin`.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct RawOrigin {
    #[serde(default)]
    url: Vec<Spanned<AgentService>>,
    #[serde(default)]
    command: Vec<String>,
    ready: Option<Spanned<String>>,
    ca: Option<Spanned<String>>,
    name: Option<Spanned<String>>,
}

impl RawOrigin {
    /// The servers of the plan `file`; `origins` is their number, if the plan has one.
    pub(super) fn plan(
        written: Option<&Spanned<Self>>,
        origins: Option<&Spanned<NonZeroUsize>>,
        file: &str,
        refuse: &mut dyn FnMut(Range<usize>, String),
    ) -> OriginPlan {
        let count = origins.map_or(NonZeroUsize::MIN, |count| *count.get_ref());
        let Some(raw) = written else { return OriginPlan::own(count) };
        let RawOrigin { url, command, ready, .. } = raw.get_ref();
        let source = match (url.is_empty(), command.is_empty()) {
            (true, false) => {
                let has_address =
                    command.iter().any(|word| word.contains("{port}") || word.contains("{listen}"));
                if !has_address {
                    let message = "the command of [origin] does not say where to listen; expected {listen} or {port} in it";
                    refuse(raw.span(), message.to_owned());
                }
                OriginSource::Command(count, command.clone())
            }
            (false, true) => {
                if let Some(count) = origins {
                    refuse(
                        count.span(),
                        "origins is the number of servers that the lab starts, but the servers of [origin] are \
                         already running; leave it out"
                            .to_owned(),
                    );
                }
                let name = |server: &Spanned<AgentService>| host_and_port(server.get_ref()).to_owned();
                OriginSource::Running(url.iter().map(name).collect())
            }
            (true, true) | (false, false) => {
                let message = "[origin] has either url, for running servers, or command, for a program that the lab \
                               starts";
                refuse(raw.span(), message.to_owned());
                OriginSource::Own(count)
            }
        };
        if let Some(path) = ready.as_ref().filter(|path| !path.get_ref().starts_with('/')) {
            refuse(
                path.span(),
                format!("ready = {:?} is not a path; expected a path such as /health", path.get_ref()),
            );
        }
        let tls = raw.get_ref().tls(&raw.span(), file, refuse);
        OriginPlan { source, ready: ready.as_ref().map(|path| path.get_ref().clone()), tls }
    }

    /// Certificate check for servers that run already.
    fn tls(
        &self,
        at: &Range<usize>,
        file: &str,
        refuse: &mut dyn FnMut(Range<usize>, String),
    ) -> Option<OriginsTls> {
        let is_https = |server: &Spanned<AgentService>| server.get_ref().url.starts_with("https://");
        let Some(first) = self.url.iter().find(|server| is_https(server)) else {
            for (key, written) in [("ca", &self.ca), ("name", &self.name)] {
                if let Some(written) = written {
                    refuse(
                        written.span(),
                        format!("{key} applies to certificates, so it needs https:// URLs"),
                    );
                }
            }
            return None;
        };
        if let Some(other) = self.url.iter().find(|server| !is_https(server)) {
            refuse(
                other.span(),
                "other origins use TLS and this one does not; write https:// in all of them".to_owned(),
            );
            return None;
        }
        let Some(ca) = &self.ca else {
            let message = "the proxies verify certificates of https:// origins; expected ca = \"FILE\", the authority \
                           that signed them, such as /etc/ssl/certs/ca-certificates.crt";
            refuse(at.clone(), message.to_owned());
            return None;
        };
        let authority = authority(ca, file, refuse)?;
        let host = host_and_port(first.get_ref());
        let host = host.rsplit_once(':').map_or(host, |(host, _)| host).trim_matches(['[', ']']);
        let name = self.name.as_ref().map_or(host, |name| name.get_ref().as_str());
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-:".contains(&byte))
        {
            let at = self.name.as_ref().map_or(at.clone(), Spanned::span);
            refuse(
                at,
                format!(
                    "{name:?} is not a valid name in a certificate; expected one such as orders.example.com"
                ),
            );
            return None;
        }
        Some(OriginsTls { authority, name: name.to_owned() })
    }
}

fn host_and_port(server: &AgentService) -> &str {
    server.url.split_once("://").map_or(&server.url, |(_, rest)| rest)
}

/// Certificates of the authorities of services that run already, by service name.
pub(super) fn authorities(
    targets: &BTreeMap<Spanned<String>, RawTarget>,
    file: &str,
    refuse: &mut dyn FnMut(Range<usize>, String),
) -> Vec<(String, String)> {
    let with_ca = targets.iter().filter_map(|(name, target)| Some((name, target.ca.as_ref()?)));
    let read = with_ca.map(|(name, ca)| Some((name.get_ref().clone(), authority(ca, file, refuse)?)));
    read.flatten().collect()
}

/// Certificates of authorities, from a file beside the plan.
fn authority(
    written: &Spanned<String>,
    plan: &str,
    refuse: &mut dyn FnMut(Range<usize>, String),
) -> Option<String> {
    let path = Path::new(plan).parent().unwrap_or(Path::new("")).join(written.get_ref());
    authority_of(&path).map_err(|message| refuse(written.span(), message)).ok()
}

/// Certificates of authorities, from a file.
///
/// # Errors
/// The reason why the file has none, in words.
pub fn authority_of(path: &Path) -> Result<String, String> {
    let text =
        std::fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    if !text.contains("-----BEGIN CERTIFICATE-----") {
        let path = path.display();
        return Err(format!("{path} has no certificate; it must be PEM, with BEGIN CERTIFICATE lines"));
    }
    Ok(text)
}

/// A service that runs already: its URL, or a table.
pub(super) struct RawTarget {
    pub(super) server: AgentService,
    pub(super) ca: Option<Spanned<String>>,
}

impl<'de> Deserialize<'de> for RawTarget {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ServiceOrList;
        impl<'de> Visitor<'de> for ServiceOrList {
            type Value = RawTarget;

            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("a URL, or { url = \"https://HOST\", ca = \"FILE\" }")
            }

            fn visit_str<E: serde::de::Error>(self, written: &str) -> Result<RawTarget, E> {
                let server = AgentService::try_from(written.to_owned()).map_err(E::custom)?;
                Ok(RawTarget { server, ca: None })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RawTarget, A::Error> {
                #[derive(Deserialize)]
                #[serde(deny_unknown_fields)]
                struct ServicesTable {
                    url: AgentService,
                    ca: Option<Spanned<String>>,
                }
                let ServicesTable { url: server, ca } =
                    ServicesTable::deserialize(MapAccessDeserializer::new(map))?;
                Ok(RawTarget { server, ca })
            }
        }
        deserializer.deserialize_any(ServiceOrList)
    }
}

/// A program that only the plan knows.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "expected a command line such as [\"program\", \"{listen}\"], or a table with run, and optionally \
                 files and version"
)]
pub(super) enum RawCommand {
    Line(Vec<String>),
    Table(RawProgram),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawProgram {
    run: Vec<String>,
    #[serde(default)]
    files: BTreeMap<String, String>,
    #[serde(default)]
    version: Vec<String>,
}

impl RawCommand {
    pub(super) fn template(self) -> CommandTemplate {
        match self {
            Self::Line(command) => CommandTemplate { command, ..CommandTemplate::default() },
            Self::Table(RawProgram { run, files, version }) => CommandTemplate {
                command: run,
                files: files.into_iter().map(|(name, text)| File { name, text }).collect(),
                version,
            },
        }
    }

    /// The reason why it cannot be started.
    pub(super) fn impossible(&self) -> Option<String> {
        let (line, files) = match self {
            Self::Line(line) => (line, None),
            Self::Table(program) => (&program.run, Some(&program.files)),
        };
        if line.first().is_none_or(String::is_empty) {
            return Some("the command line has no program".to_owned());
        }
        let mut names = files.into_iter().flat_map(BTreeMap::keys);
        let is_elsewhere = |name: &&String| name.contains('/') || name.starts_with('.') || name.is_empty();
        let name = names.find(is_elsewhere)?;
        Some(format!("the file {name:?} is not in the folder of the proxy; expected a name such as app.conf"))
    }
}

/// Differences of a case's requests from a plain GET.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRequest {
    method: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    body: Option<String>,
}

impl RawRequest {
    pub(super) fn message(&self) -> RequestOptions {
        RequestOptions {
            method: self.method.clone(),
            headers: self.headers.iter().map(|(name, value)| format!("{name}: {value}")).collect(),
            body: self.body.clone(),
        }
    }

    /// The reason why such requests are impossible.
    pub(super) fn impossible(&self) -> Option<String> {
        let is_word = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        let method = self.method.as_deref().filter(|method| !is_word(method) || *method == "CONNECT");
        if let Some(method) = method {
            return Some(format!("method = {method:?} cannot be used; expected a method such as POST"));
        }
        let wrong = |(name, value): &(&String, &String)| {
            !is_word(name) || name.contains(':') || value.chars().any(char::is_control)
        };
        if let Some((name, _)) = self.headers.iter().find(wrong) {
            return Some(format!(
                "the header {name:?} cannot be sent; expected a name and a value without line ends"
            ));
        }
        let body = self.body.as_deref().is_some_and(|body| body.starts_with('@'));
        body.then(|| "body begins with @, which names a file elsewhere; expected the text itself".to_owned())
    }
}
