//! Driver of any program, by its command line and its files in the plan. It supports no features beside forwarding.
//!
//! Replaces `{listen}`, `{host}`, `{port}`, `{origin}`, `{origins}`, `{workers}`, `{folder}`, `{cert}` and `{key}`.

use std::path::Path;
use std::process::Command;

use report::results::{File, ProxyRole};
use serde::{Deserialize, Serialize};

use super::{Driver, Installed, Launch, Service, text};
use crate::error::Error;

/// Longer version texts are cut, in characters.
const VERSION_CHARS_MAX: usize = 60;

/// Runs the command line of the plan.
pub const DRIVER: Driver = Driver {
    name: "command",
    role: ProxyRole::Peer,
    program: None,
    remedy: "",
    version: |_| None,
    configure,
};

/// Command and files of a program from the plan.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandTemplate {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Files that it reads, with names relative to `{folder}`.
    pub files: Vec<File>,
    /// Command line that prints its version; may be empty.
    pub version: Vec<String>,
}

impl CommandTemplate {
    fn has(&self, placeholder: &str) -> bool {
        self.command
            .iter()
            .chain(self.files.iter().map(|file| &file.text))
            .any(|text| text.contains(placeholder))
    }

    /// The first line of the program's version output; empty if there is none.
    pub(super) fn told_version(&self) -> String {
        let told = self.version.split_first().and_then(|(program, arguments)| {
            let told = Command::new(program).args(arguments).output().ok()?;
            Some([told.stdout, told.stderr].concat())
        });
        let told = told.unwrap_or_default();
        let text = String::from_utf8_lossy(&told);
        let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
        line.trim().chars().filter(|c| !c.is_control()).take(VERSION_CHARS_MAX).collect()
    }
}

fn configure(installed: &Installed, service: &Service, folder: &Path) -> Result<Launch, Error> {
    let template = &installed.template;
    // Placeholders for the certificate show that the program supports TLS.
    if !(template.has("{cert}") && template.has("{key}")) {
        service.is_plain(DRIVER.name)?;
    }
    service.is_http1(DRIVER.name)?;
    service.keeps_alive_unlogged(DRIVER.name)?;
    // The plan's author has to know whether the program forwards streams.
    service.without_streams().passes_on_only(DRIVER.name)?;
    let origins: Vec<String> = service.origins.iter().map(ToString::to_string).collect();
    let path = |path: Option<&Path>| path.map(text).unwrap_or_default();
    let tls = service.tls.as_ref();
    let replaced = [
        ("{listen}", service.listen.to_string()),
        ("{host}", service.listen.ip().to_string()),
        ("{port}", service.listen.port().to_string()),
        ("{origin}", origins.first().cloned().unwrap_or_default()),
        ("{origins}", origins.join(",")),
        ("{workers}", service.workers.to_string()),
        ("{folder}", text(folder)),
        ("{cert}", path(tls.map(|tls| tls.certificate.as_path()))),
        ("{key}", path(tls.map(|tls| tls.key.as_path()))),
    ];
    let filled = |text: &String| {
        replaced.iter().fold(text.clone(), |text, (placeholder, value)| text.replace(placeholder, value))
    };
    let file = |file: &File| File { name: file.name.clone(), text: filled(&file.text) };
    Ok(Launch {
        command: template.command.iter().map(filled).collect(),
        files: template.files.iter().map(file).collect(),
        ..Launch::default()
    })
}
