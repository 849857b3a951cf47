//! `vanward docker`: follows the containers of Docker or Podman, and keeps a file of the routes and upstreams that their labels ask for.
//!
//! A process of its own, so that the proxy needs no access to the socket of Docker, which is as good as root. What labels mean is
//! the business of the crate `discover`.

/// The API of Docker and Podman, which is only read.
mod engine;

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use api::status::ReloadResult;
use discover::{Container, Fragment, Remark, translate};
use engine::Engine;

use super::reach::{Line, Reach};
use super::units;

/// How long a reload may take: it waits for names and workers.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pauses between attempts while the engine is gone.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Follows containers of Docker or Podman, and keeps the routes that their labels ask for.
///
/// Containers with the label vanward.enable=true, or with routers of Traefik, become routes and upstreams in a file that the
/// proxy's configuration includes. Whenever containers come, go, or change their health, the file is written anew and the
/// running proxy reloads. Labels that cannot be taken over are told with the container. While the engine is gone the file stays as
/// it is. The socket is only read (GET). See docs/discovery.md.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Socket of the engine's API
    #[arg(long, value_name = "PATH", default_value = "/var/run/docker.sock")]
    engine: PathBuf,

    /// File to write, which the configuration includes
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,

    /// Write the file once, without a reload, and end
    #[arg(long)]
    once: bool,

    #[command(flatten)]
    reach: Reach,
}

const EXAMPLES: &str = "\
Examples:
  vanward docker --output conf.d/docker.toml            with include = \"conf.d/*.toml\" in vanward.toml
  vanward docker --output conf.d/docker.toml --engine /run/podman/podman.sock
  vanward docker --output docker.toml --once && vanward check";

pub(crate) fn run(arguments: &Args) -> ExitCode {
    let engine = Engine::new(&arguments.engine);
    let mut keeper =
        Keeper { output: &arguments.output, line: None, kept: None, refused: None, told: BTreeSet::new() };
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
        // What repeats is said once.
        if last != why {
            super::say(format_args!("{why}; {} stays as it is", arguments.output.display()));
            last = why;
        }
        thread::sleep(pause);
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Keeps the file as long as the engine answers. Returns why it does not.
fn follow(
    engine: &Engine,
    keeper: &mut Keeper<'_>,
    pause: &mut Duration,
) -> Result<std::convert::Infallible, String> {
    // Events first: nothing that happens meanwhile is missed.
    let mut events = engine.events()?;
    loop {
        keeper.keep(&engine.containers()?)?;
        *pause = PAUSE_MIN;
        events.wait()?;
    }
}

/// Keeps the file.
struct Keeper<'a> {
    output: &'a Path,
    /// The way to the proxy, if it is to reload.
    line: Option<Line>,
    /// What the file has, and the proxy with it.
    kept: Option<String>,
    /// What the proxy has refused.
    refused: Option<String>,
    /// Remarks that were said.
    told: BTreeSet<Remark>,
}

impl Keeper<'_> {
    /// Writes what containers ask for, and has the proxy reload if that is something else.
    ///
    /// # Errors
    /// Why the file is not written, or the proxy not reached.
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
                // A proxy that starts next has to be able to.
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

    /// Has the proxy reload, if there is one. Returns whether it takes the file.
    ///
    /// # Errors
    /// Why it is not reached.
    fn reload(&self) -> Result<bool, String> {
        let Some(line) = &self.line else { return Ok(true) };
        let answer = line.exchange("POST", "/reload", b"null", PATIENCE)?;
        // What is wrong is said there.
        Ok(answer.told::<ReloadResult>().is_ok())
    }

    /// In one step: whoever reads it finds the old or the new one.
    fn write(&self, text: &[u8]) -> Result<(), String> {
        let name = self.output.file_name().ok_or_else(|| format!("{} is no file", self.output.display()))?;
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

/// What containers ask for, without those whose labels make mistakes: one that is wrong holds up none that is right.
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

/// The first mistake of a part of a configuration.
fn mistake(fragment: &Fragment) -> Option<String> {
    if fragment.routes == 0 {
        return None;
    }
    let whole = format!("[[listen]]\naddress = \"127.0.0.1:0\"\n{}", fragment.toml);
    let mistakes = config::parse(&whole, "labels").err()?;
    // Its line is of no file that anybody has.
    mistakes.first().map(|mistake| mistake.to_string().lines().next().unwrap_or_default().to_owned())
}
