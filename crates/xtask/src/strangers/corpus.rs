//! `cargo xtask adapt --prove`: proves the translation of each configuration of the corpus beside its program.
//!
//! `vanward adapt --prove` compares. This module runs it for each file, and judges its reports by `expected.toml`.

/// Expectations of files that are not plainly equal.
mod expected;
/// Mistakes planted in `adapt`, which the corpus has to find.
pub(super) mod planted;
/// The table of the results.
mod table;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::programs::{self, Needed};
use crate::say;
use crate::scratch::Scratch;
use crate::workspace::Workspace;
use expected::{CorpusExpectation, CorpusExpectations, Judged};
use table::Verdicts;

const FOLDER: &str = "crates/adapt/corpus";
/// Programs, and the extension of their configurations.
const KINDS: [(&str, &str); 4] =
    [("nginx", "conf"), ("haproxy", "cfg"), ("caddy", "Caddyfile"), ("varnish", "vcl")];
pub(super) const NEEDED: [Needed; 4] =
    [programs::NGINX, programs::HAPROXY, programs::CADDY, programs::VARNISHD];
/// Parts of the corpus, of which CI runs one with each commit.
pub(super) const PARTS: usize = 10;
/// Requests for each configuration.
const REQUESTS: &str = "400";
/// A proof that takes longer is ended.
const PROOF_MAX: Duration = Duration::from_secs(120);
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// Flags of `adapt`.
#[derive(clap::Args)]
pub(crate) struct AdaptStrangerArgs {
    /// Prove the translation of each configuration of the corpus, beside its original program.
    #[arg(long)]
    prove: bool,
    /// Plant mistakes in `adapt`, each in a copy of the workspace: the corpus has to find them.
    #[arg(long, conflicts_with = "prove")]
    planted: bool,
    /// Prove only this tenth of the corpus, from 0 to 9.
    #[arg(long, value_name = "K", requires = "prove", value_parser = clap::value_parser!(u8).range(0..10))]
    tenth: Option<u8>,
    /// The program to test. Without it, the workspace is built.
    #[arg(long, value_name = "FILE", requires = "prove")]
    program: Option<PathBuf>,
    /// Files of the corpus, by parts of their names such as `nginx/wordpress`; all unless given. With --planted,
    /// names of mistakes.
    #[arg(value_name = "NAME")]
    names: Vec<String>,
}

impl AdaptStrangerArgs {
    /// Whether only Traefik is wanted.
    pub(super) fn is_plain(&self) -> bool {
        !self.prove && !self.planted
    }
}

/// Runs `adapt --prove` and `adapt --planted`.
pub(super) fn run(workspace: &Workspace, arguments: &AdaptStrangerArgs) -> Result<(), String> {
    if arguments.planted {
        return planted::check(workspace, &arguments.names);
    }
    let program = match &arguments.program {
        Some(program) => program.clone(),
        None => programs::build_vanward(workspace)?,
    };
    let corpus = Corpus::read(&workspace.root)?;
    let chosen = corpus.chosen(&arguments.names, arguments.tenth.map(usize::from));
    if chosen.is_empty() {
        return Err(format!("no file of {FOLDER} has such a name"));
    }
    prove(&corpus, &program, &chosen)
}

/// Proves the part of the corpus whose turn it is.
pub(super) fn check(workspace: &Workspace, commits: usize) -> Result<(), String> {
    let program = programs::build_vanward(workspace)?;
    let corpus = Corpus::read(&workspace.root)?;
    let chosen = corpus.chosen(&[], Some(commits % PARTS));
    say(format_args!("commit {commits}: proves {} of {} configurations", chosen.len(), corpus.files.len()));
    prove(&corpus, &program, &chosen)
}

/// A configuration of the corpus.
pub(super) struct CorpusFile {
    pub(super) kind: &'static str,
    /// Without the extension.
    pub(super) name: String,
    /// From the top of the workspace.
    path: String,
}

impl CorpusFile {
    pub(super) fn shown(&self) -> String {
        format!("{}/{}", self.kind, self.name)
    }
}

pub(super) struct Corpus {
    root: PathBuf,
    files: Vec<CorpusFile>,
    expectations: CorpusExpectations,
}

impl Corpus {
    pub(super) fn read(root: &Path) -> Result<Self, String> {
        let mut files = Vec::new();
        for (kind, extension) in KINDS {
            let folder = format!("{FOLDER}/{kind}");
            let listed = fs::read_dir(root.join(&folder)).map_err(|error| format!("{folder}: {error}"))?;
            let mut names: Vec<String> = listed
                .flatten()
                .filter_map(|entry| entry.file_name().into_string().ok())
                .filter_map(|name| name.strip_suffix(&format!(".{extension}")).map(str::to_owned))
                .collect();
            names.sort();
            files.extend(names.into_iter().map(|name| CorpusFile {
                kind,
                path: format!("{folder}/{name}.{extension}"),
                name,
            }));
        }
        let expectations = CorpusExpectations::read(&root.join(FOLDER).join("expected.toml"))?;
        if let Some(unknown) =
            expectations.names().find(|name| !files.iter().any(|file| file.shown() == **name))
        {
            return Err(format!("{FOLDER}/expected.toml: there is no configuration {unknown}"));
        }
        Ok(Self { root: root.to_owned(), files, expectations })
    }

    /// The files with such names. A part has every tenth of them, so that it has files of each program.
    pub(super) fn chosen(&self, names: &[String], part: Option<usize>) -> Vec<&CorpusFile> {
        let is_named = |file: &&CorpusFile| {
            names.is_empty() || names.iter().any(|name| file.shown().contains(name.as_str()))
        };
        let is_in_part = |at: usize| part.is_none_or(|part| at % PARTS == part);
        self.files
            .iter()
            .filter(is_named)
            .enumerate()
            .filter(|(at, _)| is_in_part(*at))
            .map(|(_, file)| file)
            .collect()
    }
}

/// Proves files, as many at a time as there are processors, and prints the table.
fn prove(corpus: &Corpus, program: &Path, chosen: &[&CorpusFile]) -> Result<(), String> {
    let started = Instant::now();
    let all = judged(corpus, program, chosen)?;
    let verdicts = Verdicts::of(chosen.iter().zip(&all).map(|(file, judged)| (file.kind, judged.verdict)));
    say(format_args!("\n{verdicts}"));
    say(format_args!("{} configurations in {} s", chosen.len(), started.elapsed().as_secs()));
    let unmet: Vec<String> = chosen
        .iter()
        .zip(&all)
        .filter(|(_, judged)| !judged.unmet.is_empty())
        .map(|(file, _)| file.shown())
        .collect();
    if unmet.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{} of {} configurations are not as {FOLDER}/expected.toml says: {}\n\
         See one with: vanward adapt KIND FILE --prove --requests {REQUESTS}",
        unmet.len(),
        chosen.len(),
        unmet.join(", ")
    ))
}

/// Judges files in the order of the list.
pub(super) fn judged(corpus: &Corpus, program: &Path, chosen: &[&CorpusFile]) -> Result<Vec<Judged>, String> {
    let scratch = Scratch::new("corpus")?;
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Judged)>> = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(file) = chosen.get(at) else { break };
                    let judged = judge(corpus, program, file, &scratch.path().join(at.to_string()));
                    for line in judged.lines() {
                        say(format_args!("{}: {line}", file.shown()));
                    }
                    if let Ok(mut done) = done.lock() {
                        done.push((at, judged));
                    }
                }
            });
        }
    });
    let mut done = done.into_inner().map_err(|_| "a proof panicked".to_owned())?;
    done.sort_by_key(|(at, _)| *at);
    Ok(done.into_iter().map(|(_, judged)| judged).collect())
}

fn judge(corpus: &Corpus, program: &Path, file: &CorpusFile, output: &Path) -> Judged {
    let expected = corpus.expectations.of(&file.shown());
    let run = |more: &[&str]| {
        let mut command = Command::new(program);
        command.args(["adapt", file.kind, &file.path, "--json"]).args(more).current_dir(&corpus.root);
        json_of(command, output)
    };
    let report = match run(&["--prove", "--requests", REQUESTS]) {
        Ok(report) => report,
        Err(why) => return Judged::without_report(why, expected),
    };
    // Remarks are needed only where they have to name a difference.
    let translation = match expected.is_some_and(CorpusExpectation::needs_remarks) {
        true => run(&[]),
        false => Ok(Value::Null),
    };
    match translation {
        Ok(translation) => Judged::new(&report, &translation, expected),
        Err(why) => Judged::without_report(why, expected),
    }
}

/// Runs a command that prints an object. Its output goes to files, so that it never waits for a reader.
fn json_of(mut command: Command, output: &Path) -> Result<Value, String> {
    let failed = |error: std::io::Error| format!("it cannot be run: {error}");
    let said = output.with_extension("stderr");
    command.stdout(fs::File::create(output).map_err(failed)?);
    command.stderr(fs::File::create(&said).map_err(failed)?).stdin(Stdio::null());
    let mut child = command.spawn().map_err(failed)?;
    let started = Instant::now();
    while child.try_wait().map_err(failed)?.is_none() {
        if started.elapsed() > PROOF_MAX {
            // The programs that it started end with it.
            child.kill().and_then(|()| child.wait()).map_err(failed)?;
            return Err(format!("it took longer than {} s", PROOF_MAX.as_secs()));
        }
        thread::sleep(BETWEEN_LOOKS);
    }
    let text = fs::read_to_string(output).map_err(failed)?;
    serde_json::from_str(&text).map_err(|_| {
        let said = fs::read_to_string(&said).unwrap_or_default();
        said.trim().lines().last().unwrap_or("it printed nothing").to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_have_each_file_once_and_each_program_in_its_share() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the workspace");
        let corpus = Corpus::read(root).expect("the corpus");
        assert_eq!(corpus.files.len(), 200);
        let parts: Vec<Vec<String>> = (0..PARTS)
            .map(|part| corpus.chosen(&[], Some(part)).into_iter().map(CorpusFile::shown).collect())
            .collect();
        let mut all: Vec<String> = parts.concat();
        assert_eq!(all.len(), 200);
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 200);
        for part in parts {
            let of = |kind: &str| part.iter().filter(|name| name.starts_with(kind)).count();
            assert!((11..=12).contains(&of("nginx/")) && of("varnish/") == 2, "{part:?}");
        }
    }
}
