//! `vanward adapt --prove`: runs the old proxy and Vanward side by side, and reports every difference.
//!
//! The crate `prove` generates requests and compares; this module starts programs and sends the requests.

/// Sends requests.
mod client;
/// Servers behind both proxies.
mod origins;
/// The report as an HTML page.
mod page;
/// Starts programs.
mod programs;

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use adapt::{Remark, RemarkKind};
use prove::{
    OldConfiguration, OldFileKind, OldProxy, Original, ProofAnswer, ProofCandidate, ProofEvidence,
    ProofOutcome, ProofReport, ProofRequest, ProofSetting, RequestRow, StandIns, StatementPlace, Verdict,
};

use super::super::demo::ProgressLine;
use super::super::{FAILED, verdict};
use client::ProofClient;
use origins::ProofOrigins;
use programs::{CheckRefusal, ProofDoors, RunningProgram};

/// Statements that the installed program does not know are left out, up to so many.
const REJECTED_MAX: usize = 50;
/// Listeners that only the candidate has.
const SPARE_LISTENERS: usize = 16;
/// Captured requests beyond this number are not sent.
const CAPTURED_MAX: usize = 100_000;
/// Requests are sent for at most this long.
const RUN_MAX: Duration = Duration::from_secs(600);
/// Concurrent requests that neither arrive nor are refused are queued, and their servers answer after this time.
const AT_ONCE_MAX: Duration = Duration::from_secs(5);

/// Configurations to prove.
pub(super) struct ToProve<'p> {
    pub(super) peer: OldProxy,
    /// The name of the old file, and its text.
    pub(super) name: &'p str,
    pub(super) text: &'p str,
    /// The configuration of Vanward, and its file; none for the translation.
    pub(super) candidate: &'p str,
    pub(super) candidate_file: Option<&'p Path>,
    pub(super) adapted: &'p adapt::Adapted,
    pub(super) requests: usize,
    pub(super) seed: u64,
    /// Captured requests, which are sent first.
    pub(super) capture: Option<&'p capture::Capture>,
    /// Whether the times between captured requests are repeated.
    pub(super) is_paced: bool,
    pub(super) json: bool,
    /// The file for the page.
    pub(super) html: Option<&'p Path>,
}

/// Why there is no proof.
enum NoProof {
    Undecided(String),
    Interrupted,
}

/// Proves a configuration, prints the report, and returns the exit code.
pub(super) fn run(asked: &ToProve<'_>, include: adapt::Include<'_>) -> ExitCode {
    let old = match prove::examine(asked.peer, asked.text, asked.name, include) {
        Ok(old) => old,
        Err(mistake) => return super::super::fail(super::super::BAD_CONFIGURATION, mistake),
    };
    if let Some(file) = asked.html
        // Now, not after the proof. A page of an earlier one stays until then.
        && let Err(error) = touch(file)
    {
        return without_proof(asked, &format!("--html {}: it cannot be written: {error}", file.display()));
    }
    let Some(program) = programs::installed(asked.peer.program()) else {
        let (name, source) = (asked.peer.program(), asked.peer.source());
        let why = format!("{name} is not installed, so nothing can be compared: {source}");
        return without_proof(asked, &why);
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return without_proof(asked, &format!("cannot start: {error}")),
    };
    let stop = Arc::new(AtomicBool::new(false));
    let proof = runtime.block_on(async {
        tokio::select! {
            biased;
            () = super::super::demo::interruption() => Err(NoProof::Interrupted),
            proof = prove_it(asked, old, &program, &stop) => proof,
        }
    });
    stop.store(true, Ordering::Relaxed);
    runtime.shutdown_background();
    match proof {
        Ok(proof) => told(asked, &proof, &programs::version(asked.peer, &program)),
        Err(NoProof::Undecided(why)) => without_proof(asked, &why),
        Err(NoProof::Interrupted) => without_proof(asked, "interrupted: there is no report"),
    }
}

/// Says why there is no proof, with `--json` also as an object.
fn without_proof(asked: &ToProve<'_>, why: &str) -> ExitCode {
    if asked.json {
        let object = prove::json_without_proof(asked.peer, asked.name, why);
        // Standard error says the same, if this fails.
        let _ = super::super::demo::print(&format!("{object:#}\n"));
    }
    super::super::fail(verdict::INVALID, why)
}

fn told(asked: &ToProve<'_>, proof: &ProofReport, program: &str) -> ExitCode {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let setting = ProofSetting {
        file: asked.name.to_owned(),
        candidate: asked.candidate_file.map(|file| file.display().to_string()),
        program: program.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        seed: asked.seed,
        date: report::figure::date(now.as_secs()),
    };
    let text = match asked.json {
        true => format!("{:#}\n", prove::json(proof, &setting)),
        false => prove::text(proof, &setting),
    };
    if let Err(why) = super::super::demo::print(&text) {
        return super::super::fail(verdict::INVALID, why);
    }
    if let Some(file) = asked.html {
        let page = page::html(proof, &setting).map_err(|error| error.to_string());
        let written = page.and_then(|page| write(file, &page).map_err(|error| error.to_string()));
        if let Err(why) = written {
            return super::super::fail(verdict::INVALID, format_args!("{}: {why}", file.display()));
        }
    }
    match proof.verdict() {
        Verdict::Same => ExitCode::SUCCESS,
        Verdict::Differs => ExitCode::from(FAILED),
        Verdict::Undecided => ExitCode::from(verdict::INVALID),
    }
}

fn undecided(what: &str) -> impl Fn(std::io::Error) -> NoProof + '_ {
    move |error| NoProof::Undecided(format!("{what}: {error}"))
}

/// Everything that a proof needs before programs start.
struct Bench {
    folder: tempfile::TempDir,
    requests: Vec<ProofRequest>,
    /// Statements that too few requests were asked for, with the reason.
    left_out: Vec<(StatementPlace, String)>,
    theirs: StandIns,
    ours: StandIns,
    their_origins: ProofOrigins,
    our_origins: ProofOrigins,
    candidate: ProofCandidate,
}

impl Bench {
    fn prepare(asked: &ToProve<'_>, old: &OldConfiguration) -> Result<Self, NoProof> {
        let folder = tempfile::Builder::new().prefix("vanward-proof-").tempdir();
        let folder = folder.map_err(undecided("a temporary folder"))?;
        // Workers of the old program may run as another user.
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))
            .map_err(undecided("a temporary folder"))?;
        let start =
            || ProofOrigins::start(&old.servers).map_err(undecided("no port is free for the servers"));
        let (their_origins, our_origins) = (start()?, start()?);
        let doors = ProofDoors::take(old.doors.len()).map_err(undecided("no port is free"))?;
        let spare = ProofDoors::take(SPARE_LISTENERS).map_err(undecided("no port is free"))?;
        let captured = asked.capture.map(|capture| prove::captured(old, capture, CAPTURED_MAX));
        let mut requests = captured.unwrap_or_default();
        let mut left_out = Vec::new();
        if asked.requests > 0 {
            let generated = prove::generate(old, asked.seed, asked.requests, requests.len());
            requests.extend(generated.requests);
            left_out = generated.left_out;
        }
        let servers = their_origins.addresses.clone();
        let theirs = stand_ins(old, folder.path(), doors.theirs.clone(), servers)
            .map_err(undecided("the temporary folder"))?;
        let ours =
            StandIns { doors: doors.ours.clone(), servers: our_origins.addresses.clone(), ..theirs.clone() };
        for (path, content) in prove::files(old, &theirs, &requests) {
            // A folder may have the name, because another request has a path within it.
            match write(Path::new(&path), &content) {
                Err(error)
                    if !matches!(
                        error.kind(),
                        ErrorKind::AlreadyExists | ErrorKind::NotADirectory | ErrorKind::IsADirectory
                    ) =>
                {
                    return Err(undecided("a file of the old proxy")(error));
                }
                _ => {}
            }
        }
        copy_patterns(old, asked.name, &theirs).map_err(undecided("a file of the old proxy"))?;
        let candidate = prove::candidate(old, &ours, asked.candidate, &spare.ours)
            .map_err(|why| NoProof::Undecided(format!("the configuration of Vanward: {why}")))?;
        for file in candidate.users.iter().filter(|file| !Path::new(file).exists()) {
            write(Path::new(file), prove::USERS).map_err(undecided("a file of users"))?;
        }
        Ok(Self { folder, requests, left_out, theirs, ours, their_origins, our_origins, candidate })
    }

    /// Starts Vanward with the candidate.
    async fn start_vanward(&self) -> Result<RunningProgram, NoProof> {
        let folder = self.folder.path();
        let file = folder.join("vanward.toml");
        write(&file, &self.candidate.text).map_err(undecided("the configuration of Vanward"))?;
        let program = std::env::current_exe().map_err(undecided("this program's file"))?;
        let command = [&program.display().to_string(), "run", "--config", &file.display().to_string()];
        let is_open = |door: &usize| !self.candidate.closed.contains(door);
        let open: Vec<_> =
            (0..self.ours.doors.len()).filter(is_open).map(|door| self.ours.doors[door]).collect();
        let running =
            RunningProgram::start("vanward", command.map(str::to_owned).to_vec(), folder, &open).await;
        running.map_err(NoProof::Undecided)
    }
}

async fn prove_it(
    asked: &ToProve<'_>,
    mut old: OldConfiguration,
    program: &Path,
    stop: &Arc<AtomicBool>,
) -> Result<ProofReport, NoProof> {
    if old.doors.is_empty() {
        return Err(NoProof::Undecided(format!("{} listens nowhere", asked.name)));
    }
    let mut bench = Bench::prepare(asked, &old)?;
    let folder = bench.folder.path().to_owned();
    let (mut their_program, original) = started(&mut old, program, &folder, &mut bench.theirs).await?;
    let mut our_program = bench.start_vanward().await?;
    let last = bench.requests.iter().filter_map(|request| request.due).max().unwrap_or_default();
    let run_max = RUN_MAX + if asked.is_paced { last } else { Duration::ZERO };
    let run = ProofRun {
        is_paced: asked.is_paced,
        run_max,
        requests: bench.requests.clone(),
        doors: old.doors.clone(),
        theirs: (bench.theirs.doors.clone(), bench.their_origins),
        ours: (bench.ours.doors.clone(), bench.our_origins),
        stop: Arc::clone(stop),
    };
    let sent = tokio::task::spawn_blocking(move || run.send_all()).await;
    let (theirs, ours) =
        sent.map_err(|error| NoProof::Undecided(error.to_string()))?.map_err(NoProof::Undecided)?;
    for program in [&mut their_program, &mut our_program] {
        if let Some(why) = program.ended() {
            return Err(NoProof::Undecided(why));
        }
    }
    // The logs are complete when the programs have ended.
    their_program.stop().await;
    our_program.stop().await;
    let (done, all) = (theirs.len(), bench.requests.len());
    if done < all {
        let why = format!("only {done} of {all} requests were sent in {} s", run_max.as_secs());
        return Err(NoProof::Undecided(why));
    }
    let mut replaced = original.replaced;
    replaced.extend(bench.candidate.replaced);
    Ok(prove::report(ProofEvidence {
        old: &old,
        requests: &bench.requests,
        theirs: (&bench.theirs, &theirs),
        ours: (&bench.ours, &ours),
        marks: &original.marks,
        reached: &programs::reached(asked.peer, &folder, &theirs),
        logged: (old.has_log() && bench.candidate.has_log).then(|| programs::logged(old.peer, &folder)),
        replaced,
        closed: &bench.candidate.closed,
        lacks: asked.capture.map(lacks_of).unwrap_or_default(),
        remarks: &remarks_of(asked),
        left_out: &bench.left_out,
    }))
}

/// Remarks that matter to a proof. Those on what works differently are about the translation, not about a candidate.
fn remarks_of(asked: &ToProve<'_>) -> Vec<Remark> {
    let matters = |remark: &&Remark| match remark.kind {
        RemarkKind::NeedsNothing | RemarkKind::Unused => false,
        RemarkKind::Differs => asked.candidate_file.is_none(),
        RemarkKind::Refused => true,
    };
    asked.adapted.remarks.iter().filter(matters).cloned().collect()
}

/// Lists facts that a capture lacks, and its requests that are not sent.
fn lacks_of(capture: &capture::Capture) -> Vec<String> {
    let beyond = capture.requests.len().saturating_sub(CAPTURED_MAX);
    let more = (beyond > 0).then(|| format!("the last {beyond} requests, beyond {CAPTURED_MAX}"));
    capture.lacks.iter().cloned().chain(more).collect()
}

/// Copies lists and maps with a relative path, which begin at the folder of the old file.
fn copy_patterns(old: &OldConfiguration, name: &str, stand_ins: &StandIns) -> std::io::Result<()> {
    let folder = Path::new(name).parent().unwrap_or(Path::new("."));
    for file in old.files.iter().filter(|file| file.kind == OldFileKind::Patterns) {
        let place = stand_ins.file(&file.path);
        if place != file.path {
            // A missing one is empty.
            let text = std::fs::read_to_string(folder.join(&file.path)).unwrap_or_default();
            write(Path::new(&place), &text)?;
        }
    }
    Ok(())
}

/// Starts the old program with its configuration. Statements that the installed one does not know are left out.
async fn started(
    old: &mut OldConfiguration,
    program: &Path,
    folder: &Path,
    stand_ins: &mut StandIns,
) -> Result<(RunningProgram, Original), NoProof> {
    let file = folder.join(programs::file_name(old.peer));
    loop {
        let made = prove::original(old, stand_ins);
        write(&file, &made.text).map_err(undecided("the old configuration"))?;
        let refusal = match programs::check(old.peer, program, folder, &file, &made) {
            Err(refusal) => refusal,
            Ok(()) => {
                let command = programs::command(old.peer, program, folder, &file, &stand_ins.doors);
                let running = RunningProgram::start(old.peer.name(), command, folder, &stand_ins.doors).await;
                match running {
                    Ok(mut running) => match loaded(&mut running, old, folder, &made, stand_ins).await? {
                        Ok(()) => return Ok((running, made)),
                        Err(refusal) => {
                            running.stop().await;
                            refusal
                        }
                    },
                    Err(why) => programs::refusal(&why, &made).ok_or(NoProof::Undecided(why))?,
                }
            }
        };
        without(old, stand_ins, refusal)?;
    }
}

/// Waits until the program has read its configuration, which Traefik does after it listens.
async fn loaded(
    running: &mut RunningProgram,
    old: &OldConfiguration,
    folder: &Path,
    made: &Original,
    stand_ins: &StandIns,
) -> Result<Result<(), CheckRefusal>, NoProof> {
    if old.peer != OldProxy::Traefik {
        return Ok(Ok(()));
    }
    let client = ProofClient::new().map_err(NoProof::Undecided)?;
    let is_ready = || {
        old.doors.iter().zip(&stand_ins.doors).enumerate().all(|(index, (door, address))| {
            let status = client.send(*address, door, &prove::readiness(index)).status;
            !matches!(status, 0 | 404)
        })
    };
    Ok(programs::loaded(running, folder, made, is_ready).await)
}

/// Leaves out a statement that the installed program does not know.
fn without(
    old: &mut OldConfiguration,
    stand_ins: &mut StandIns,
    refusal: CheckRefusal,
) -> Result<(), NoProof> {
    let name = old.peer.name();
    let place = match refusal {
        CheckRefusal::Other(why) => {
            return Err(NoProof::Undecided(format!("{name} does not accept its configuration: {why}")));
        }
        CheckRefusal::Unknown(_) if stand_ins.rejected.len() >= REJECTED_MAX => {
            let why = format!("{name} knows too little of its configuration; is its version right?");
            return Err(NoProof::Undecided(why));
        }
        CheckRefusal::Unknown(place) => place,
    };
    if !stand_ins.rejected.insert(place.clone()) {
        return Err(NoProof::Undecided(format!("{name} does not accept its configuration: {place}")));
    }
    old.untested.push((place, format!("the installed {name} does not know it")));
    Ok(())
}

/// Chooses the stand-ins of the old proxy, and makes a certificate.
fn stand_ins(
    old: &OldConfiguration,
    folder: &Path,
    doors: Vec<std::net::SocketAddr>,
    servers: Vec<std::net::SocketAddr>,
) -> std::io::Result<StandIns> {
    let (certificate, key) = (folder.join("cert.pem"), folder.join("key.pem"));
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]);
    let made = made.map_err(std::io::Error::other)?;
    std::fs::write(&certificate, made.cert.pem())?;
    std::fs::write(&key, made.signing_key.serialize_pem())?;
    let pair = made.cert.pem() + &made.signing_key.serialize_pem();
    std::fs::write(folder.join("pair.pem"), pair)?;
    let is_readable = |path: &&str| {
        path.starts_with('/')
            && std::fs::metadata(path).is_ok_and(|found| found.is_dir() || std::fs::File::open(path).is_ok())
    };
    let files = old.files.iter().map(|file| file.path.split('$').next().unwrap_or_default());
    let mut existing: BTreeSet<String> =
        files.filter(|path| path.len() > 1).filter(is_readable).map(str::to_owned).collect();
    let media_types = "/etc/nginx/mime.types";
    if is_readable(&media_types) {
        existing.insert(media_types.to_owned());
    }
    for module in std::fs::read_dir("/usr/lib/nginx/modules").into_iter().flatten().flatten() {
        existing.insert(module.path().display().to_string());
    }
    Ok(StandIns {
        folder: folder.display().to_string(),
        doors,
        servers,
        existing,
        certificate: certificate.display().to_string(),
        key: key.display().to_string(),
        rejected: BTreeSet::new(),
    })
}

/// Creates a file and its folder, unless they exist.
fn touch(path: &Path) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::OpenOptions::new().create(true).append(true).open(path).map(drop)
}

fn write(path: &Path, text: &str) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(path, text)
}

/// Sends requests at the same time. The servers answer when each one has arrived there, or was refused.
fn at_once(
    requests: &[ProofRequest],
    send: impl Fn(&ProofRequest) -> ProofAnswer + Sync,
    origins: &ProofOrigins,
) -> Vec<ProofAnswer> {
    let answered = AtomicUsize::new(0);
    let one = &|request: &ProofRequest| {
        let answer = send(request);
        answered.fetch_add(1, Ordering::Relaxed);
        answer
    };
    origins.hold();
    std::thread::scope(|scope| {
        let sent: Vec<_> = requests.iter().map(|request| scope.spawn(move || one(request))).collect();
        let started = Instant::now();
        while answered.load(Ordering::Relaxed) + origins.held() < requests.len()
            && started.elapsed() < AT_ONCE_MAX
        {
            std::thread::sleep(Duration::from_millis(1));
        }
        origins.release();
        sent.into_iter().map(|sent| sent.join().unwrap_or_default()).collect()
    })
}

/// Shorter proofs show no progress.
const PROGRESS_AFTER: Duration = Duration::from_secs(1);
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);
/// Time for copies of the last requests to arrive.
const SETTLE: Duration = Duration::from_millis(200);

/// The requests, and where they go.
struct ProofRun {
    requests: Vec<ProofRequest>,
    doors: Vec<prove::OldDoor>,
    theirs: (Vec<std::net::SocketAddr>, ProofOrigins),
    ours: (Vec<std::net::SocketAddr>, ProofOrigins),
    stop: Arc<AtomicBool>,
    /// Whether captured requests wait until they are due.
    is_paced: bool,
    run_max: Duration,
}

impl ProofRun {
    /// Sends each request to both proxies, one after the other.
    fn send_all(self) -> Result<(Vec<ProofOutcome>, Vec<ProofOutcome>), String> {
        let client = ProofClient::new()?;
        let started = Instant::now();
        let (mut theirs, mut ours) = (Vec::new(), Vec::new());
        let mut numbers = Vec::new();
        let progress = ProgressLine::new();
        let are_together = |one: &ProofRequest, next: &ProofRequest| {
            one.row == RequestRow::AtOnce && (one.row, one.client) == (next.row, next.client)
        };
        for requests in self.requests.chunk_by(are_together) {
            if let Some(due) = requests[0].due.filter(|_| self.is_paced) {
                self.wait(started + due);
            }
            if self.stop.load(Ordering::Relaxed) || started.elapsed() > self.run_max {
                break;
            }
            if started.elapsed() > PROGRESS_AFTER {
                progress.show(&format!("{} of {} requests are sent", numbers.len(), self.requests.len()));
            }
            let Some(door) = self.doors.get(requests[0].door) else { continue };
            numbers.extend(requests.iter().map(|request| request.number));
            for ((addresses, origins), outcomes) in [(&self.theirs, &mut theirs), (&self.ours, &mut ours)] {
                let address = addresses[requests[0].door];
                let answers = match requests {
                    [request] => vec![client.send(address, door, request)],
                    several => at_once(several, |request| client.send(address, door, request), origins),
                };
                outcomes.extend(answers.into_iter().map(|answer| ProofOutcome { answer, seen: Vec::new() }));
            }
        }
        progress.clear();
        // Copies of a request may arrive behind its response.
        std::thread::sleep(SETTLE);
        for (origins, outcomes) in [(&self.theirs.1, &mut theirs), (&self.ours.1, &mut ours)] {
            for (outcome, number) in outcomes.iter_mut().zip(&numbers) {
                outcome.seen = origins.take(*number);
            }
        }
        Ok((theirs, ours))
    }

    /// Waits until a captured request is due, or the proof ends.
    fn wait(&self, due: Instant) {
        while !self.stop.load(Ordering::Relaxed) && Instant::now() < due {
            std::thread::sleep(due.saturating_duration_since(Instant::now()).min(BETWEEN_LOOKS));
        }
    }
}
