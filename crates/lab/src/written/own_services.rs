//! Tables about services of one's own: `[origin]`, and what a case's requests are.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::Range;

use report::results::File;
use serde::Deserialize;
use toml::Spanned;

use crate::agent::words::Server;
use crate::plan::{Message, OriginPlan, OriginSource};
use crate::proxies::Template;

/// Servers behind the proxies, if they are not `vanward origin`.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct RawOrigin {
    #[serde(default)]
    url: Vec<Spanned<Server>>,
    #[serde(default)]
    command: Vec<String>,
    ready: Option<Spanned<String>>,
}

impl RawOrigin {
    /// The servers of a plan, with this number of `origins`, if it says one.
    pub(super) fn plan(
        written: Option<&Spanned<Self>>,
        origins: Option<&Spanned<NonZeroUsize>>,
        refuse: &mut dyn FnMut(Range<usize>, String),
    ) -> OriginPlan {
        let count = origins.map_or(NonZeroUsize::MIN, |count| *count.get_ref());
        let Some(raw) = written else { return OriginPlan::own(count) };
        let RawOrigin { url, command, ready } = raw.get_ref();
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
                for other in url.iter().filter(|server| !server.get_ref().url.starts_with("http://")) {
                    let message =
                        "the lab reaches running origins over http:// alone; expected http://HOST:PORT";
                    refuse(other.span(), message.to_owned());
                }
                if let Some(count) = origins {
                    refuse(
                        count.span(),
                        "origins counts servers that the lab starts; those of [origin] run already"
                            .to_owned(),
                    );
                }
                let name = |server: &Spanned<Server>| server.get_ref().url.replacen("http://", "", 1);
                OriginSource::Running(url.iter().map(name).collect())
            }
            (true, true) | (false, false) => {
                let message = "[origin] has either url, for servers that run already, or command, for a program that the \
                               lab starts";
                refuse(raw.span(), message.to_owned());
                OriginSource::Own(count)
            }
        };
        if let Some(path) = ready.as_ref().filter(|path| !path.get_ref().starts_with('/')) {
            refuse(
                path.span(),
                format!("ready = {:?} is no path; expected one such as /health", path.get_ref()),
            );
        }
        OriginPlan { source, ready: ready.as_ref().map(|path| path.get_ref().clone()) }
    }
}

/// A program that only the plan knows.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "expected a command line such as [\"program\", \"{listen}\"], or a table with run, and perhaps files and version"
)]
pub(super) enum RawCommand {
    Line(Vec<String>),
    Table(RawProgram),
}

/// A program with files.
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
    pub(super) fn template(self) -> Template {
        match self {
            Self::Line(command) => Template { command, ..Template::default() },
            Self::Table(RawProgram { run, files, version }) => Template {
                command: run,
                files: files.into_iter().map(|(name, text)| File { name, text }).collect(),
                version,
            },
        }
    }

    /// Why it cannot be started.
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
    pub(super) fn message(&self) -> Message {
        Message {
            method: self.method.clone(),
            headers: self.headers.iter().map(|(name, value)| format!("{name}: {value}")).collect(),
            body: self.body.clone(),
        }
    }

    /// Why requests like that are impossible.
    pub(super) fn impossible(&self) -> Option<String> {
        let is_word = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        let method = self.method.as_deref().filter(|method| !is_word(method) || *method == "CONNECT");
        if let Some(method) = method {
            return Some(format!("method = {method:?} is none that is answered; expected one such as POST"));
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
