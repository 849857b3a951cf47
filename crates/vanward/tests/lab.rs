//! The shortest runs of `vanward lab`. The quality of figures is not tested: a busy machine makes some invalid, and
//! the lab reports that.

use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use report::Results;
use rustix::process::Signal;

use crate::process::{self, Process};

/// Exit code: failed or interrupted.
const FAILED: i32 = 1;
/// Exit codes: a mistake in a plan, an invalid figure, a missed expectation.
const MISTAKE: i32 = 78;
const INVALID_RUN: i32 = 98;
const MISSED: i32 = 99;

/// A closed loop with one connection and a number of requests: in a short time, a busy machine may complete none.
const PLAN: &str = "title = \"Shortest\"\nproxies = [\"direct\", \"vanward\"]\nrepeats = 1\nduration = \"200ms\"\n\
                    [[case]]\nname = \"tiny\"\npayload = \"tiny\"\nconnections = 1\nrequests = 20\n";

fn start(folder: &Path, plan: &str, arguments: &[&str]) -> Process {
    std::fs::write(folder.join("plan.toml"), plan).expect("a plan");
    Process::start_in(folder, &[&["lab", "run", "plan.toml", "--out", "out"], arguments].concat())
}

fn results(folder: &Path) -> Results {
    let text = std::fs::read_to_string(folder.join("out/results.json")).expect("results");
    Results::from_json(&text).expect("it reads what it wrote")
}

#[test]
fn a_run_leaves_its_figures_in_every_form_and_two_alike_show_no_difference() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let ended = start(folder.path(), PLAN, &["--plots"]).ended();
    assert!(matches!(ended.status.code(), Some(0 | INVALID_RUN)), "{ended:?}");
    let results = results(folder.path());
    assert_eq!((results.runs.len(), results.incomplete.as_deref()), (2, None));
    assert_eq!(results.proxies[1].started[0].cases, ["tiny"]);
    for file in ["report.html", "report.md", "results.csv", "latency/tiny-vanward.hgrm", "plots"] {
        assert!(folder.path().join("out").join(file).exists(), "{file} is missing: {ended:?}");
    }

    let plots = |folder: &Path| -> Vec<String> {
        let files = std::fs::read_dir(folder.join("plots"))
            .expect("plots")
            .map(|file| file.expect("a file").file_name());
        let mut names: Vec<String> = files.map(|name| name.to_string_lossy().into_owned()).collect();
        names.sort_unstable();
        names.into_iter().filter(|name| name.starts_with("latency-tiny")).collect()
    };
    let drawn = |names: &[&str]| -> Vec<String> {
        let endings = if cfg!(feature = "pictures") { &["png", "svg"][..] } else { &["svg"] };
        names.iter().flat_map(|name| endings.iter().map(move |ending| format!("{name}.{ending}"))).collect()
    };
    let screen = drawn(&["latency-tiny-dark", "latency-tiny"]);
    assert_eq!(plots(&folder.path().join("out")), screen);

    std::fs::remove_file(folder.path().join("out/report.html")).expect("it was there");
    Process::start_in(folder.path(), &["lab", "report", "out", "--plots", "--style", "paper"])
        .ended()
        .with_code(0);
    assert!(folder.path().join("out/report.html").exists());
    assert_eq!(plots(&folder.path().join("out")), drawn(&["latency-tiny-paper"]));

    // Stored or sent results are compressed.
    let kept = folder.path().join("kept");
    std::fs::create_dir(&kept).expect("a folder");
    let results_gz = std::fs::File::create(kept.join("results.json.gz")).expect("a file");
    let mut packing = flate2::write::GzEncoder::new(results_gz, flate2::Compression::default());
    packing.write_all(results.to_json().as_bytes()).and_then(|()| packing.try_finish()).expect("written");

    // For compressed results, only the page is rendered again unless more is requested.
    let made = Process::start_in(folder.path(), &["lab", "report", "--page", "kept"]).ended().with_code(0);
    assert_eq!(made.output, "kept/report.html\n");
    assert_eq!(std::fs::read_dir(&kept).expect("a folder").count(), 2, "the results and the page");

    let compare = ["lab", "compare", "kept", "out/results.json", "--fail-on", "0", "--html", "both.html"];
    // A single round cannot be judged, and a gate without a basis fails.
    let compared = Process::start_in(folder.path(), &compare).ended().with_code(INVALID_RUN);
    assert!(compared.errors.contains("cannot judge"), "{compared:?}");
    assert!(compared.output.contains("No difference beyond noise and drift."), "{}", compared.output);
    assert!(folder.path().join("both.html").exists());

    let whole = std::fs::read(kept.join("results.json.gz")).expect("it was written");
    std::fs::write(folder.path().join("half.json.gz"), &whole[..whole.len() / 2]).expect("a file");
    let refused = Process::start_in(folder.path(), &["lab", "compare", "half.json.gz", "out"]);
    let refused = refused.ended().with_code(FAILED);
    assert!(refused.errors.contains("cannot read half.json.gz"), "{refused:?}");
    assert!(refused.errors.contains("copy it again"), "{refused:?}");
    let refused = Process::start_in(folder.path(), &["lab", "compare", "plan.toml", "out"]);
    let refused = refused.ended().with_code(FAILED);
    assert!(refused.errors.contains("cannot read plan.toml: not the results of a lab run"), "{refused:?}");
    assert!(refused.errors.contains("give the results.json of one, or its folder"), "{refused:?}");
}

#[test]
fn an_expectation_that_was_missed_fails_the_run_and_is_in_its_junit_file() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let plan = format!("expect = [\"requests/s < 0\"]\n{PLAN}");
    let ended = start(folder.path(), &plan, &["--proxies", "vanward"]).ended().with_code(MISSED);
    assert!(ended.output.contains("Missed in tiny"), "{}", ended.output);
    let junit = std::fs::read_to_string(folder.path().join("out/junit.xml")).expect("it is written");
    assert!(junit.contains("failures=\"1\""), "{junit}");
    // The report's table has the same figure, in the column of requests per second.
    let measured =
        junit.split_once("expected requests/s &lt; 0, measured ").and_then(|(_, rest)| rest.split_once("/s"));
    let (measured, _) = measured.expect("a figure");
    let row = ended.output.lines().find(|line| line.trim().starts_with("vanward")).expect("a row");
    assert!(row.contains(measured), "{measured}: {row}");
}

/// The command for a service with another page of 128 bytes and status 200. `vanward origin` has such pages, too.
fn other_page(folder: &Path) -> String {
    let script = format!(
        "printf '[[listen]]\\naddress = \"%s\"\\n[[route]]\\nrespond = {{ status = 200, body = \"%128s\" }}\\n' \"$1\" \"we are down\" \
         >{0}/other.toml; exec {1} run --config {0}/other.toml",
        folder.display(),
        env!("CARGO_BIN_EXE_vanward")
    );
    format!("[command]\nother = [\"sh\", \"-c\", {script:?}, \"sh\", \"{{listen}}\", \"{{origin}}\"]\n")
}

#[test]
fn another_page_than_that_of_the_origins_is_an_error() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (head, case) = PLAN.split_once("[[case]]").expect("it has a case");
    let head = head.replace("\"vanward\"", "\"other\"");
    let plan = |responses: &str| {
        let command = other_page(folder.path());
        format!("expect = [\"other: errors = 0\"]\n{head}{command}[[case]]{case}{responses}")
    };
    let errors = || {
        let results = results(folder.path());
        let of = |name: &str| {
            let run = results.runs.iter().find(|run| run.proxy == name).expect(name);
            run.outcome.figures().expect("figures").errors.clone()
        };
        assert_eq!(of("direct"), Default::default());
        of("other")
    };
    start(folder.path(), &plan(""), &[]).ended().with_code(MISSED);
    assert!(
        errors().iter().all(|(kind, count)| kind.starts_with("check: ") && *count == 20),
        "{:?}",
        errors()
    );
    let ended = start(folder.path(), &plan("responses = \"any\"\n"), &[]).ended();
    assert!(matches!(ended.status.code(), Some(0 | INVALID_RUN)), "{ended:?}");
    assert_eq!(errors(), Default::default());
}

/// Returns the messages of a plan's run, each sentence on one line.
fn said(folder: &Path, plan: &str) -> String {
    let ended = start(folder, plan, &[]).ended();
    assert!(matches!(ended.status.code(), Some(0 | INVALID_RUN)), "{ended:?}");
    ended.output.replace("\n  ", " ")
}

#[test]
fn proxies_that_are_set_up_unlike_each_other_are_not_ranked() {
    let told = process::run(&["lab", "doctor", "--json"]).with_code(0);
    // CI has it, because its script installs it.
    if !told.output.contains("bin/nginx") {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let plan = PLAN.replace("\"direct\"", "\"nginx\"")
        + "[proxy.nginx]\naccess_log = true\nworkers = 2\nkeep_alive = false\n";
    let said = said(folder.path(), &plan);
    for differs in [
        "Logging differs: nginx: every request to a file; vanward: off",
        "Workers differs: nginx: 2; vanward: 1",
        "Keep-alive differs: nginx: off; vanward: on",
        "Not ranked: nginx, vanward",
        "measured once, so the spread is unknown",
    ] {
        assert!(said.contains(differs), "{differs}: {said}");
    }
}

#[test]
fn a_proxy_that_fails_requests_is_not_ranked() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    // A seed fails one request in two hundred: more than the judge permits, and less than what ends a measurement.
    let failing = format!(
        "[command]\nfailing = [{:?}, \"proxy\", \"--from\", \"{{listen}}\", \"--to\", \"http://{{origin}}\", \"--workers\", \
         \"1\", \"--fail\", \"0.5%:503\"]\n",
        env!("CARGO_BIN_EXE_vanward")
    );
    let (head, case) = PLAN.split_once("[[case]]").expect("it has a case");
    let head = head.replace("\"direct\"", "\"failing\"");
    let plan = format!("{head}{failing}[[case]]{}", case.replace("= 20\n", "= 1000\n"));
    let said = said(folder.path(), &plan);
    assert!(said.contains("Of the requests failed:") && said.contains("Not ranked: failing."), "{said}");
}

#[test]
fn another_process_on_the_machine_is_noticed() {
    /// Processes that end with the test.
    struct Spinning(Vec<std::process::Child>);

    impl Drop for Spinning {
        fn drop(&mut self) {
            for child in &mut self.0 {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }

    let cores = std::thread::available_parallelism().expect("the kernel tells").get();
    let spin = |_| Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("a shell");
    let _spinning = Spinning((0..cores).map(spin).collect());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let said = said(folder.path(), &PLAN.replace("requests = 20\n", ""));
    assert!(said.contains("Other programs used") && said.contains("Not ranked: vanward."), "{said}");
}

#[test]
fn too_few_descriptors_are_named_as_the_limit() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let plan = PLAN.replace("connections = 1\n", "connections = 400\n");
    std::fs::write(folder.path().join("plan.toml"), plan).expect("a plan");
    let mut limited = Command::new("sh");
    limited
        .args(["-c", "ulimit -n 256; exec \"$0\" lab run plan.toml --out out"])
        .arg(env!("CARGO_BIN_EXE_vanward"))
        .current_dir(folder.path());
    let ended = Process::of(&mut limited).ended().with_code(INVALID_RUN);
    let said = ended.output.replace("\n  ", " ");
    assert!(said.contains("ulimit -n") && said.contains("Not ranked: vanward."), "{said}");
}

#[test]
fn an_interrupted_run_keeps_what_it_has_says_what_is_missing_and_leaves_no_process() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let long = PLAN.replace("200ms", "10m").replace("requests = 20\n", "");
    let lab = start(folder.path(), &long, &[]);
    process::wait_for_a_load_in(folder.path());
    lab.signal(Signal::INT);
    let ended = lab.ended().with_code(FAILED);
    assert!(ended.errors.contains("ended after 0 of 2 measurements"), "{}", ended.errors);
    let junit = std::fs::read_to_string(folder.path().join("out/junit.xml")).expect("it is written");
    assert!(junit.contains("<failure") && junit.contains("ended after 0 of 2 measurements"), "{junit}");
    assert!(results(folder.path()).incomplete.is_some());
    assert_eq!(process::all_in(folder.path()), Vec::<String>::new());
}

#[test]
fn a_proxy_that_dies_is_named_and_the_others_are_measured() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    // Its shell ends the proxy at the first request after the probes.
    let program = env!("CARGO_BIN_EXE_vanward");
    let script = format!(
        "{program} proxy --from {{listen}} --to http://{{origin}} --workers 1 --log log & \
         until [ $(wc -l < log) -gt 5 ]; do sleep 0.01; done; kill -9 $!; kill -9 $$"
    );
    // Limited by time: five seconds are enough for a few requests on any machine.
    let lasting =
        PLAN.replace("requests = 20\n", "").replace("200ms", "5s").replace("\"direct\"", "\"mortal\"");
    let (head, case) = lasting.split_once("[[case]]").expect("it has a case");
    let plan = format!("{head}[command]\nmortal = [\"sh\", \"-c\", {script:?}]\n[[case]]{case}");
    let ended = start(folder.path(), &plan, &[]).ended().with_code(INVALID_RUN);
    let results = results(folder.path());
    assert_eq!((results.runs.len(), results.incomplete.as_deref()), (2, None));
    for run in &results.runs {
        let died = run
            .outcome
            .refusal()
            .is_some_and(|reason| reason.starts_with("mortal ended unexpectedly (signal: 9"));
        assert_eq!(died, run.proxy == "mortal", "{run:?}");
    }
    assert!(ended.output.contains("mortal ended unexpectedly"), "{}", ended.output);
    assert!(
        ended.errors.contains("mortal has no valid round in tiny: mortal ended unexpectedly"),
        "{ended:?}"
    );
    let junit = std::fs::read_to_string(folder.path().join("out/junit.xml")).expect("it is written");
    assert!(junit.contains("<failure") && junit.contains("mortal has no valid round"), "{junit}");
    assert_eq!(process::all_in(folder.path()), Vec::<String>::new());
}

#[test]
fn a_full_disk_leaves_the_last_results_whole_and_says_what_is_missing() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let whole = start(folder.path(), PLAN, &[]).ended();
    assert!(matches!(whole.status.code(), Some(0 | INVALID_RUN)), "{whole:?}");
    let before = results(folder.path());

    // Results contain their plan: after the first measurement they exceed 8 KiB. A generator's output is far smaller.
    let more = PLAN
        .replace("connections = 1", "connections = [1, 2, 3, 4, 5, 6, 7, 8]")
        .replace("\"tiny\"\npay", "\"{connections}\"\npay");
    let more = format!("{more}# {}\n", "-".repeat(16 * 1024));
    std::fs::write(folder.path().join("plan.toml"), more).expect("a plan");
    // The file size limit acts like a full disk.
    let full = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 16; exec \"$0\" lab run plan.toml --out out"])
        .arg(env!("CARGO_BIN_EXE_vanward"))
        .current_dir(folder.path())
        .output()
        .expect("a shell");
    let said = [full.stdout, full.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    assert_eq!(full.status.code(), Some(1), "{said:?}");
    assert!(said[0].contains("requests/s"), "the figures are on the terminal at least: {said:?}");
    assert!(said[1].contains("cannot write out/results.json") && said[1].contains("free space"), "{said:?}");
    assert_eq!(results(folder.path()), before);
    assert!(!folder.path().join("out/results.json.part").exists());
    assert_eq!(process::all_in(folder.path()), Vec::<String>::new());
}

#[test]
fn no_room_for_files_of_its_own_is_named_as_the_reason() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("plan.toml"), PLAN).expect("a plan");
    std::fs::create_dir(folder.path().join("tmp")).expect("a folder");
    // A small disk for this run only, filled to its last byte.
    let script = "mount -t tmpfs -o size=64k tmpfs tmp || exit 77; cat /dev/zero >tmp/fill 2>/dev/null; \
                  TMPDIR=$PWD/tmp exec \"$0\" lab run plan.toml --out out";
    let mut alone = Command::new("unshare");
    alone.args(["-m", "sh", "-c", script, env!("CARGO_BIN_EXE_vanward")]).current_dir(folder.path());
    let ended = Process::of(&mut alone).ended();
    // Mounting requires root.
    if ended.errors.contains("unshare failed") || ended.status.code() == Some(77) {
        return;
    }
    assert!(matches!(ended.status.code(), Some(1 | INVALID_RUN)), "{ended:?}");
    let said = ended.output.replace("\n  ", " ") + &ended.errors;
    assert!(said.contains("there is no room for files in"), "{said}");
    assert_eq!(process::all_in(folder.path()), Vec::<String>::new());
}

#[test]
fn results_of_a_killed_lab_say_that_the_rest_is_missing() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let lab = start(folder.path(), &PLAN.replace("repeats = 1", "repeats = 5000"), &[]);
    let patience = process::Patience::new();
    while !folder.path().join("out/results.json").exists() {
        patience.wait_a_little("nothing is kept");
    }
    // After the kill, the lab cannot report it.
    drop(lab);
    let kept = results(folder.path());
    let said = kept.incomplete.unwrap_or_default();
    assert!(said.contains(&format!("after {} of 10000 measurements", kept.runs.len())), "{said}");
    while !process::all_in(folder.path()).is_empty() {
        patience.wait_a_little("something goes on without it");
    }
}

#[test]
fn a_run_that_was_broken_off_is_gone_on_with() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let plan = PLAN.replace("repeats = 1", "repeats = 2");
    start(folder.path(), &plan, &[]).ended();
    let whole = results(folder.path());
    let key = |run: &report::results::Run| (run.proxy.clone(), run.round);
    let kept = |broken_off: &Results| {
        std::fs::write(folder.path().join("out/results.json"), broken_off.to_json()).expect("can be written");
    };
    let mut broken_off = whole.clone();
    broken_off.runs.truncate(1);
    broken_off.incomplete = Some("It was broken off.".to_owned());
    kept(&broken_off);
    let ended = start(folder.path(), &plan, &["--resume"]).ended();
    assert!(matches!(ended.status.code(), Some(0 | INVALID_RUN)), "{ended:?}");
    assert!(ended.errors.contains("1 measurement there already, and 3 measurements"), "{}", ended.errors);
    let resumed = results(folder.path());
    assert_eq!(resumed.runs[0], whole.runs[0]);
    let order = |results: &Results| results.runs.iter().map(key).collect::<Vec<_>>();
    assert_eq!((order(&resumed), resumed.incomplete), (order(&whole), None));
    assert!(resumed.notes.iter().any(|note| note.contains("was interrupted after 1 measurement")));
    let mut began = resumed.runs.windows(2).map(|two| two[0].began_seconds < two[1].began_seconds);
    assert!(began.all(|is_later| is_later) && resumed.took_seconds > whole.runs[0].began_seconds);

    let others = start(folder.path(), &plan, &["--resume", "--seed", "2"]).ended().with_code(FAILED);
    assert!(
        others.errors.contains("cannot be continued: its command was `vanward lab run"),
        "{}",
        others.errors
    );
    assert_eq!(results(folder.path()).runs, resumed.runs, "nothing of it is lost");

    let more = start(folder.path(), &plan, &["--resume", "--repeats", "3"]).ended();
    assert!(more.errors.contains("4 measurements there already, and 2 measurements"), "{}", more.errors);
    let more = results(folder.path());
    assert_eq!(more.runs[..4], resumed.runs);
    assert_eq!((more.runs.len(), more.conditions.rounds, more.runs[5].round), (6, 3, 3));
    let fewer = start(folder.path(), &plan, &["--resume"]).ended().with_code(FAILED);
    assert!(fewer.errors.contains("it was planned with 3 rounds, and this run with 2"), "{}", fewer.errors);
    std::fs::remove_file(folder.path().join("out/results.json")).expect("it is there");
    let nothing = start(folder.path(), &plan, &["--resume"]).ended().with_code(FAILED);
    assert!(nothing.errors.contains("results.json"), "{}", nothing.errors);
}

#[test]
fn mistakes_have_a_place_and_prevent_the_start() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let refused = start(folder.path(), &PLAN.replace("payload", "paylod"), &[]).ended().with_code(MISTAKE);
    assert!(
        refused.errors.contains("plan.toml:7:1: ") && refused.errors.contains("payload"),
        "{}",
        refused.errors
    );
    for (flag, name, said) in
        [("--proxies", "squid", "no proxy \"squid\""), ("--cases", "tin", "mean \"tiny\"")]
    {
        let refused = start(folder.path(), PLAN, &[flag, name]).ended().with_code(2);
        assert!(refused.errors.contains(said), "{}", refused.errors);
    }
    let missing =
        Process::start_in(folder.path(), &["lab", "compare", "none", "none"]).ended().with_code(FAILED);
    assert!(missing.errors.contains("cannot read none"), "{}", missing.errors);
}

#[test]
fn missing_programs_are_named_with_their_packages() {
    let told = process::run(&["lab", "doctor", "--json"]).with_code(0);
    let told: serde_json::Value = serde_json::from_str(&told.output).expect("JSON");
    let all = |kind: &str| told[kind].as_array().expect("a list").clone();
    assert_eq!((all("proxies").len(), all("generators").len()), (16, 4));
    for each in [all("proxies"), all("generators")].concat() {
        assert!(each["program"].is_string() || each["remedy"].is_string(), "{each}");
    }
}

#[test]
fn durations_are_shown_before_a_run() {
    let listed = process::run(&["lab", "list"]).with_code(0).output;
    let [name, times] = listed.lines().collect::<Vec<_>>()[..2] else { panic!("{listed}") };
    let (experiments, runs) = listed.split_once("\n\n").expect("resilience runs come behind");
    assert!(name.starts_with("monolake ") && experiments.lines().count() == 14, "{listed}");
    assert!(runs.contains("\ndying-servers ") && runs.lines().count() == 9, "{listed}");
    let shown = process::run(&["lab", "show", "monolake"]).with_code(0);
    assert!(
        shown.output.starts_with("# ") && shown.errors.contains(times.trim()),
        "{times}: {}",
        shown.errors
    );

    let folder = tempfile::tempdir().expect("a temporary folder");
    // Two proxies, twice: at least 1.3 s each.
    let plan = PLAN.replace("requests = 20\n", "").replace("repeats = 1", "repeats = 9");
    let changes = ["--repeats", "2", "--duration", "1s", "--warm-up", "300ms", "--cases", "t*"];
    let ended = start(folder.path(), &plan, &changes).ended();
    assert!(matches!(ended.status.code(), Some(0 | INVALID_RUN)), "{ended:?}");
    assert!(ended.errors.contains("4 measurements, at least 5 s: done after "), "{}", ended.errors);
    let results = results(folder.path());
    assert_eq!((results.runs.len(), results.conditions.measured_seconds), (4, 1.0));
    let changes =
        ["2 rounds instead of 9", "measurements of 1s instead of 200ms", "warm-ups of 300ms instead of none"];
    assert_eq!(results.conditions.changes, changes);
    assert!(ended.output.contains("This is not the whole plan: 2 rounds instead of 9"), "{}", ended.output);
    let repeats = "--cases 't*' --repeats 2 --duration 1s --warm-up 300ms --seed 1";
    assert!(results.command.ends_with(repeats), "{}", results.command);
}

#[test]
fn streams_are_measured_like_requests_and_expected_of() {
    let folder = tempfile::tempdir().expect("a folder");
    let plan = "title = \"Streams\"\nproxies = [\"direct\", \"vanward\"]\nrepeats = 1\nduration = \"1s\"\n\
                expect = [\"lost = 0\", \"duplicates = 0\", \"gap-max < 1m\", \"errors = 0\"]\n\
                [[case]]\nname = \"{stream}\"\nstream = { kind = \"echo\", size = \"200B\" }\npayload = \"/websocket\"\n\
                connections = 4\nrequests = 200\n\
                [[case]]\nname = \"{stream}\"\nstream = \"events\"\npayload = \"/events?rate=200\"\nconnections = 2\n\
                requests = 50\n\
                [[case]]\nname = \"{stream}\"\nstream = { kind = \"grpc-unary\", per_connection = 5 }\n\
                payload = \"/vanward.Origin/Echo\"\nconnections = 2\nrequests = 200\n";
    let said = start(folder.path(), plan, &[]).ended().with_code(0);
    assert!(
        said.output.contains("CPU/message") && said.output.contains("longest silence"),
        "{}",
        said.output
    );
    let results = results(folder.path());
    assert_eq!((results.runs.len(), results.expectations.len()), (6, 12), "{results:?}");
    for run in &results.runs {
        let measured = run.outcome.valid().unwrap_or_else(|| panic!("{run:?}"));
        let streams = measured.streams.as_ref().expect("figures of streams");
        let least = if run.case == "events" { 50 } else { 200 };
        assert!(measured.requests >= least && streams.lost == 0 && streams.opened >= 2, "{run:?}");
        assert!(streams.gaps.count() > 0, "{run:?}");
        assert_eq!(streams.sent == 0, run.case == "events", "{run:?}");
    }
}
