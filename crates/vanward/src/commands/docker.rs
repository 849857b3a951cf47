//! `vanward docker`: follows the containers of Docker or Podman, and maintains a file with the routes and upstreams
//! from their labels.
//!
//! It is a separate process, because access to Docker's socket is equivalent to root, and the proxy should not have
//! it. The crate `discover` translates labels.

/// The read-only client of Docker's and Podman's API.
mod engine;

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use api::status::{ReloadResult, SourceReport};
use discover::{Container, Fragment, Remark, translate};
use engine::DockerEngine;

use super::reach::{AdminLine, ProxySelection};
use super::units;

/// Maximum time of a reload, which waits for names and workers.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Follows containers of Docker or Podman, and maintains the routes from their labels.
///
/// Containers with the label vanward.enable=true, or with routers of Traefik, become routes and upstreams in a file
/// that the proxy's configuration includes. Whenever containers start, stop, or change their health, the file is
/// written again and the running proxy reloads. Labels that cannot be taken over are reported with the container.
/// While the engine is unreachable, the file stays unchanged. The socket is only read (GET). See docs/discovery.md.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DockerArgs {
    /// Socket of the engine's API
    #[arg(long, value_name = "PATH", default_value = "/var/run/docker.sock")]
    engine: PathBuf,

    /// File to write, which the configuration includes
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,

    /// Write the file once without a reload, then exit
    #[arg(long)]
    once: bool,

    #[command(flatten)]
    reach: ProxySelection,
}

const EXAMPLES: &str = "\
Examples:
  vanward docker --output conf.d/docker.toml            with include = \"conf.d/*.toml\" in vanward.toml
  vanward docker --output conf.d/docker.toml --engine /run/podman/podman.sock
  vanward docker --output docker.toml --once && vanward check";

pub(crate) fn run(arguments: &DockerArgs) -> ExitCode {
    let engine = DockerEngine::new(&arguments.engine);
    let mut keeper = FileKeeper {
        output: &arguments.output,
        line: None,
        kept: None,
        refused: None,
        told: BTreeSet::new(),
    };
    if arguments.once {
        return match engine.containers().and_then(|containers| keeper.keep(&containers)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => super::fail(super::FAILED, why),
        };
    }
    keeper.line = match arguments.reach.line() {
        Ok(line) => Some(line),
        Err(code) => return code,
    };
    let (mut pause, mut last) = (PAUSE_MIN, String::new());
    loop {
        let Err(why) = follow(&engine, &mut keeper, &mut pause);
        let why = format!("{why}; {} stays as it is", arguments.output.display());
        keeper.report(Some(&why));
        // A repeated reason is reported once.
        if last != why {
            super::say(&why);
            last = why;
        }
        thread::sleep(pause);
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Maintains the file while the engine responds. Returns why it no longer does.
fn follow(
    engine: &DockerEngine,
    keeper: &mut FileKeeper<'_>,
    pause: &mut Duration,
) -> Result<std::convert::Infallible, String> {
    // Events come first, so that no change in between is missed.
    let mut events = engine.events()?;
    loop {
        keeper.keep(&engine.containers()?)?;
        keeper.report(None);
        *pause = PAUSE_MIN;
        events.wait()?;
    }
}

struct FileKeeper<'a> {
    output: &'a Path,
    /// The connection to the proxy, unless it should not reload.
    line: Option<AdminLine>,
    /// The content of the file that the proxy uses.
    kept: Option<String>,
    refused: Option<String>,
    told: BTreeSet<Remark>,
}

impl FileKeeper<'_> {
    /// Writes the routes of containers, and reloads the proxy if they changed.
    fn keep(&mut self, containers: &[Container]) -> Result<(), String> {
        let Fragment { toml, remarks, routes, servers } = usable(containers);
        for remark in &remarks {
            if !self.told.contains(remark) {
                super::say(remark);
            }
        }
        self.told = remarks.into_iter().collect();
        let text = format!("# Written by vanward docker: changes here are lost.\n\n{toml}");
        if self.kept.as_ref() == Some(&text) || self.refused.as_ref() == Some(&text) {
            return Ok(());
        }
        let before = fs::read(self.output).ok();
        if before.as_deref() != Some(text.as_bytes()) {
            self.write(text.as_bytes())?;
        }
        match self.reload() {
            Ok(true) => {
                let output = self.output.display();
                let of = |number: usize, noun| units::count(number as u64, noun);
                super::say(format_args!(
                    "{output} has {} and {} of {}",
                    of(routes, "route"),
                    of(servers, "server"),
                    of(containers.len(), "container")
                ));
                (self.kept, self.refused) = (Some(text), None);
                Ok(())
            }
            Ok(false) => {
                // A proxy that starts next must be able to use the file.
                match &before {
                    Some(before) => self.write(before)?,
                    None => fs::remove_file(self.output).map_err(|error| failed(self.output, &error))?,
                }
                super::say(format_args!("{} is as it was, until containers change", self.output.display()));
                self.refused = Some(text);
                Ok(())
            }
            Err(why) => Err(why),
        }
    }

    /// Reports to the proxy why containers are unknown, or that they are known, for its status and metrics. If the
    /// proxy is unreachable, the next report reaches it.
    fn report(&self, failure: Option<&str>) {
        let Some(line) = &self.line else { return };
        let report = SourceReport { source: "docker".to_owned(), failure: failure.map(str::to_owned) };
        if let Ok(body) = serde_json::to_vec(&report) {
            let _ = line.exchange("POST", "/sources", &body, PATIENCE);
        }
    }

    /// Reloads the proxy, if there is one. Returns whether it accepts the file. Fails if the proxy is unreachable.
    fn reload(&self) -> Result<bool, String> {
        let Some(line) = &self.line else { return Ok(true) };
        let answer = line.exchange("POST", "/reload", b"null", PATIENCE)?;
        // The proxy's response has the mistakes.
        Ok(answer.told::<ReloadResult>().is_ok())
    }

    /// Writes atomically: readers see the old or the new file.
    fn write(&self, text: &[u8]) -> Result<(), String> {
        let name =
            self.output.file_name().ok_or_else(|| format!("{} is not a file", self.output.display()))?;
        let mut draft = std::ffi::OsString::from(".");
        draft.push(name);
        draft.push(".new");
        let draft = self.output.with_file_name(draft);
        let write = || -> io::Result<()> {
            let mut file = fs::File::create(&draft)?;
            file.write_all(text)?;
            file.sync_all()?;
            fs::rename(&draft, self.output)
        };
        write().map_err(|error| failed(self.output, &error))
    }
}

fn failed(path: &Path, error: &io::Error) -> String {
    format!("{} cannot be written: {error}", path.display())
}

/// Translates containers, without those whose labels cause mistakes, so that valid containers stay available.
fn usable(containers: &[Container]) -> Fragment {
    let whole = translate(containers);
    if mistake(&whole).is_none() {
        return whole;
    }
    let mut wrong = Vec::new();
    let right: Vec<Container> = containers
        .iter()
        .filter(|container| match mistake(&translate(std::slice::from_ref(container))) {
            Some(why) => {
                let why = format!("its labels make a mistake, it is left out: {why}");
                wrong.push(Remark { container: container.name.clone(), label: String::new(), why });
                false
            }
            None => true,
        })
        .cloned()
        .collect();
    let mut fragment = translate(&right);
    fragment.remarks.extend(wrong);
    fragment
}

fn mistake(fragment: &Fragment) -> Option<String> {
    if fragment.routes == 0 {
        return None;
    }
    let whole = format!("[[listen]]\naddress = \"127.0.0.1:0\"\n{}", fragment.toml);
    let mistakes = config::parse(&whole, "labels").err()?;
    // Its line number refers to no existing file.
    mistakes.first().map(|mistake| mistake.to_string().lines().next().unwrap_or_default().to_owned())
}
