//! `vanward fleet`: instances with a configuration in etcd, its versions, trials and rollbacks.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ::fleet::{
    EtcdClient, EtcdFailure, EtcdStore, FIRST, InstanceState, Location, RolloutPolicy, SeenState,
    StoreMember, StoredVersion, Tree, TrialVerdict, WrittenSecrets, runs_everywhere,
};
use mistake::repeated;
use serde::Serialize;

use super::fleet_flags::EtcdFlags;
use super::run_fleet::on_a_thread;
use super::table::{Align, table};
use super::units;

/// Shows the instances that share a configuration in etcd: which version each runs, and its state relative to the
/// one in etcd.
///
/// Exits with 0 if all instances run the version in etcd, and 1 if one does not, if none runs, or if etcd is empty.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct FleetViewArgs {
    #[command(subcommand)]
    what: Option<FleetCommand>,

    #[command(flatten)]
    show: Show,
}

#[derive(clap::Args)]
struct Show {
    /// Print the fleet as JSON
    #[arg(long)]
    json: bool,

    /// Wait up to this long until all instances run the version in etcd, or it was found bad
    #[arg(long, value_name = "TIME", value_parser = trial_time)]
    wait: Option<Duration>,

    #[command(flatten)]
    place: ConfigLocation,
}

/// Location of the configuration.
#[derive(Clone, clap::Args)]
struct ConfigLocation {
    /// The configuration in etcd: etcd://HOST:PORT,HOST:PORT/PREFIX, or etcd+http:// in the clear
    /// [default: $VANWARD_FLEET]
    #[arg(long, short, value_name = "URL")]
    config: Option<String>,

    #[command(flatten)]
    etcd: EtcdFlags,
}

#[derive(clap::Subcommand)]
enum FleetCommand {
    /// Checks a file, or a folder with vanward.toml, and writes it to etcd as a new version
    Push {
        /// A file, or a folder whose `*.toml` files become the tree
        #[arg(value_name = "PATH")]
        path: PathBuf,
        #[command(flatten)]
        place: ConfigLocation,
    },
    /// Lists the stored versions, newest first
    Versions {
        /// Print them as JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        place: ConfigLocation,
    },
    /// Writes an earlier version to etcd again: the previous one, unless one is named
    Rollback {
        /// Version to write [default: the previous one]
        #[arg(value_name = "VERSION")]
        version: Option<String>,
        #[command(flatten)]
        place: ConfigLocation,
    },
    /// Shows or sets the rollout of new versions to the instances
    Canary {
        /// How long one instance tries a new version before the others apply it; 0: all apply it at once
        #[arg(long, value_name = "TIME", value_parser = trial_time)]
        time: Option<Duration>,
        /// Maximum share of failed requests during a trial, in percent
        #[arg(long, value_name = "PERCENT", value_parser = percent)]
        errors: Option<f64>,
        /// The instance that tries new versions [default: the first by name]
        #[arg(long, value_name = "NAME")]
        instance: Option<String>,
        #[command(flatten)]
        place: ConfigLocation,
    },
}

const EXAMPLES: &str = "\
Examples:
  vanward fleet --config etcd://etcd1:2379/edge
  vanward run --config etcd://etcd1:2379,etcd2:2379/edge --instance edge-1
  export VANWARD_FLEET=etcd://etcd1:2379/edge
  vanward fleet push vanward.toml && vanward fleet --wait 30s
  vanward fleet canary --time 30s --errors 1
  vanward fleet rollback";

const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(100);
/// Prefix of messages while etcd is unreachable.
const NOT_REACHED: &str = "etcd cannot be reached";

pub(crate) fn run(arguments: &FleetViewArgs) -> ExitCode {
    let place = match &arguments.what {
        None => &arguments.show.place,
        Some(
            FleetCommand::Push { place, .. }
            | FleetCommand::Versions { place, .. }
            | FleetCommand::Rollback { place, .. }
            | FleetCommand::Canary { place, .. },
        ) => place,
    };
    if let Err(why) = place.location() {
        return super::fail(super::USAGE, why);
    }
    let done = match &arguments.what {
        None => show(&arguments.show),
        Some(FleetCommand::Push { path, place }) => push(path, place),
        Some(FleetCommand::Versions { json, place }) => versions(*json, place),
        Some(FleetCommand::Rollback { version, place }) => rollback(version.as_deref(), place),
        Some(FleetCommand::Canary { time, errors, instance, place }) => {
            canary(*time, *errors, instance.as_ref(), place)
        }
    };
    done.unwrap_or_else(|why| super::fail(super::FAILED, why))
}

fn trial_time(text: &str) -> Result<Duration, String> {
    match text {
        "0" => Ok(Duration::ZERO),
        text => config::duration(text).map_err(|error| error.to_string()),
    }
}

fn percent(text: &str) -> Result<f64, String> {
    let percent = text.parse().ok().filter(|percent| (0.0..=100.0).contains(percent));
    percent.ok_or_else(|| "expected a share in percent, from 0 to 100".to_owned())
}

impl ConfigLocation {
    fn location(&self) -> Result<Location, String> {
        let url = self.config.clone().or_else(|| std::env::var("VANWARD_FLEET").ok());
        let url = url.ok_or("name the fleet: --config etcd://HOST:PORT/PREFIX, or $VANWARD_FLEET")?;
        Location::parse(&url)
    }

    fn store(&self) -> Result<EtcdStore, String> {
        Ok(EtcdStore { client: EtcdClient::new(self.location()?, self.etcd.access())? })
    }
}

#[derive(Serialize)]
struct FleetReport {
    /// Empty if there is no version in etcd.
    version: String,
    problem: Option<String>,
    verdict: Option<TrialVerdict>,
    policy: RolloutPolicy,
    instances: Vec<StoreMember>,
}

impl FleetReport {
    /// Whether at least one instance runs, and all run the version in etcd.
    fn is_whole(&self) -> bool {
        runs_everywhere(&self.version, &self.instances)
    }

    /// Whether waiting is useless: the instances run the version, or it was found bad.
    fn is_settled(&self) -> bool {
        self.is_whole() || self.verdict.as_ref().is_some_and(|verdict| !verdict.is_good)
    }
}

fn show(Show { json, wait, place }: &Show) -> Result<ExitCode, String> {
    let until = Instant::now() + wait.unwrap_or_default();
    let fleet = loop {
        let seen = look(place);
        let is_late = Instant::now() >= until;
        match seen {
            Ok(fleet) if is_late || fleet.is_settled() => break fleet,
            Err(why) if is_late || !why.starts_with(NOT_REACHED) => return Err(why),
            _ => std::thread::sleep(PAUSE),
        }
    };
    let text = match json {
        true => json_text(&fleet)?,
        false => shown(&fleet),
    };
    write(&text);
    Ok(if fleet.is_whole() { ExitCode::SUCCESS } else { ExitCode::from(super::FAILED) })
}

fn look(place: &ConfigLocation) -> Result<FleetReport, String> {
    patiently(async || {
        let store = place.store()?;
        let SeenState { version, verdict, policy, tree, .. } = store.look().await.map_err(told)?;
        let instances = store.members().await.map_err(told)?;
        Ok(FleetReport { version, problem: tree.err(), verdict, policy, instances })
    })
}

fn shown(fleet: &FleetReport) -> String {
    let FleetReport { version, problem, verdict, policy, instances } = fleet;
    let mut text = match (problem, verdict) {
        (Some(why), _) => format!("{why}\n"),
        (None, None) => format!("version {version}\n"),
        (None, Some(TrialVerdict { is_good, by, why })) => {
            let word = if *is_good { "good" } else { "bad" };
            format!("version {version}, found {word} by {by}: {why}\n")
        }
    };
    text += &canary_text(policy);
    if instances.is_empty() {
        return text + "no instance runs\n";
    }
    let rows: Vec<[String; 8]> = instances.iter().map(|member| row(member, version)).collect();
    let columns = [
        ("INSTANCE", Align::Left),
        ("VERSION", Align::Left),
        ("STATE", Align::Left),
        ("FOR", Align::Left),
        ("REQUESTS/S", Align::Right),
        ("5XX/S", Align::Right),
        ("PROGRAM", Align::Left),
        ("", Align::Left),
    ];
    text + &table(columns, &rows)
}

fn row(member: &StoreMember, wanted: &str) -> [String; 8] {
    // The instance has not looked since the push, or is gone while its lease lasts.
    let is_behind = member.state == InstanceState::Current && member.version != wanted;
    let state = if is_behind { "behind" } else { member.state.word() };
    [
        member.name.clone(),
        member.version.clone(),
        state.to_owned(),
        age(member.since),
        member.requests_per_second.to_string(),
        member.failures_per_second.to_string(),
        member.program.clone(),
        member.why.clone(),
    ]
}

fn canary_text(policy: &RolloutPolicy) -> String {
    let RolloutPolicy { canary_seconds, errors_percent, instance } = policy;
    if *canary_seconds == 0 {
        return "new versions reach all instances at once\n".to_owned();
    }
    let who = instance.as_deref().unwrap_or("the first instance by name");
    format!(
        "{who} tries new versions for {canary_seconds} s, with at most {errors_percent}% of its requests failing\n"
    )
}

fn push(path: &Path, place: &ConfigLocation) -> Result<ExitCode, String> {
    let (tree, location) = (read(path)?, place.location()?);
    if location.is_one_file() && tree.files.len() > 1 {
        return Err(format!("{location} is one file, and {} has several", path.display()));
    }
    let reading = tree.examine_for_others(&location, place.etcd.secrets());
    let mistakes: Vec<String> = repeated(&reading.mistakes).iter().map(ToString::to_string).collect();
    if !mistakes.is_empty() {
        return Err(mistakes.join("\n"));
    }
    reading.warnings.iter().for_each(super::say);
    patiently(async || replace(&place.store()?, &tree).await)
}

async fn replace(store: &EtcdStore, tree: &Tree) -> Result<ExitCode, String> {
    let (_, there) = store.client.read(&[store.client.location().keys()]).await.map_err(told)?;
    let there: Vec<_> = there.into_iter().flatten().collect();
    let version = tree.version();
    let before = Tree::new(store.client.location(), &there).unwrap_or_default();
    let is_again = before == *tree;
    if is_again && !is_refused(store).await? {
        super::say(format_args!("version {version} is in etcd already"));
        return Ok(ExitCode::SUCCESS);
    }
    // A version without a trial is a valid rollback, too, if it can be used.
    let examined = before.examine_for_others(store.client.location(), WrittenSecrets::Allowed);
    if examined.mistakes.is_empty() {
        store.keep(&before).await.map_err(told)?;
    }
    if !store.replace(tree, &there).await.map_err(told)? {
        return Err("the configuration in etcd was changed meanwhile; look at it, and try again".to_owned());
    }
    store.keep(tree).await.map_err(told)?;
    let again = if is_again { " already, and was refused: it is tried again" } else { "" };
    super::say(format_args!(
        "version {version} is in etcd{again}; `vanward fleet` shows which instances run it"
    ));
    Ok(ExitCode::SUCCESS)
}

/// Whether the version in etcd was found bad, or an instance refuses it.
async fn is_refused(store: &EtcdStore) -> Result<bool, String> {
    let verdict = store.look().await.map_err(told)?.verdict;
    let members = store.members().await.map_err(told)?;
    let is_bad = verdict.is_some_and(|verdict| !verdict.is_good);
    Ok(is_bad || members.iter().any(|member| member.state == InstanceState::Refusing))
}

fn read(path: &Path) -> Result<Tree, String> {
    let failed = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    let mut files = BTreeMap::new();
    if !path.is_dir() {
        let text = std::fs::read_to_string(path).map_err(|error| failed(path, error))?;
        files.insert(FIRST.to_owned(), text);
        return Ok(Tree { files });
    }
    let mut folders = vec![path.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).map_err(|error| failed(&folder, error))? {
            let file = entry.map_err(|error| failed(&folder, error))?.path();
            let is_hidden = file.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
            if is_hidden {
                continue;
            }
            if file.is_dir() {
                folders.push(file);
            } else if file.extension().is_some_and(|extension| extension == "toml") {
                let name = file.strip_prefix(path).unwrap_or(&file).to_string_lossy().into_owned();
                files.insert(name, std::fs::read_to_string(&file).map_err(|error| failed(&file, error))?);
            }
        }
    }
    match files.contains_key(FIRST) {
        true => Ok(Tree { files }),
        false => Err(format!("{} has no {FIRST}", path.display())),
    }
}

fn versions(json: bool, place: &ConfigLocation) -> Result<ExitCode, String> {
    let (wanted, versions, verdicts) = patiently(async || {
        let store = place.store()?;
        let wanted = store.look().await.map_err(told)?.version;
        Ok((wanted, store.versions().await.map_err(told)?, store.verdicts().await.map_err(told)?))
    })?;
    if json {
        write(&json_text(&versions)?);
        return Ok(ExitCode::SUCCESS);
    }
    let verdict =
        |version: &str| verdicts.iter().find(|(known, _)| known == version).map(|(_, verdict)| verdict);
    let rows: Vec<[String; 4]> = versions
        .iter()
        .map(|StoredVersion { version, at, tree }| {
            let note = match verdict(version) {
                Some(TrialVerdict { is_good: false, by, why }) => format!("found bad by {by}: {why}"),
                Some(TrialVerdict { by, .. }) => format!("found good by {by}"),
                None => String::new(),
            };
            let place = if *version == wanted { "in etcd" } else { "" };
            let files = tree.files.len();
            [version.clone(), age(*at), units::count(files as u64, "file"), {
                if place.is_empty() || note.is_empty() {
                    format!("{place}{note}")
                } else {
                    format!("{place}, {note}")
                }
            }]
        })
        .collect();
    let columns = [("VERSION", Align::Left), ("AGE", Align::Left), ("SIZE", Align::Left), ("", Align::Left)];
    write(&table(columns, &rows));
    Ok(ExitCode::SUCCESS)
}

fn rollback(version: Option<&str>, place: &ConfigLocation) -> Result<ExitCode, String> {
    patiently(async || {
        let store = place.store()?;
        let wanted = store.look().await.map_err(told)?.version;
        let (kept, verdicts) = (store.versions().await.map_err(told)?, store.verdicts().await.map_err(told)?);
        let is_bad =
            |version: &str| verdicts.iter().any(|(known, verdict)| known == version && !verdict.is_good);
        let found = match version {
            Some(version) => kept.iter().find(|kept| kept.version == version),
            None => kept.iter().find(|kept| kept.version != wanted && !is_bad(&kept.version)),
        };
        let Some(found) = found else {
            let known: Vec<&str> = kept.iter().map(|kept| kept.version.as_str()).collect();
            return Err(match version {
                Some(version) => {
                    format!("version {version} is not stored; the stored versions are: {}", known.join(", "))
                }
                None => "no other good version is stored".to_owned(),
            });
        };
        replace(&store, &found.tree).await
    })
}

fn canary(
    time: Option<Duration>,
    errors: Option<f64>,
    instance: Option<&String>,
    place: &ConfigLocation,
) -> Result<ExitCode, String> {
    let policy = patiently(async || {
        let store = place.store()?;
        let mut policy = store.look().await.map_err(told)?.policy;
        if time.is_none() && errors.is_none() && instance.is_none() {
            return Ok(policy);
        }
        policy.canary_seconds = time.map_or(policy.canary_seconds, |time| time.as_secs());
        policy.errors_percent = errors.unwrap_or(policy.errors_percent);
        policy.instance = instance.cloned().or(policy.instance);
        store.set_policy(&policy).await.map_err(told)?;
        Ok(policy)
    })?;
    write(&canary_text(&policy));
    Ok(ExitCode::SUCCESS)
}

/// Retries for a while, because nodes of etcd without a leader elect one within seconds. `act` begins with a look,
/// so that a retry repeats nothing.
fn patiently<T>(act: impl AsyncFn() -> Result<T, String>) -> Result<T, String> {
    on_a_thread(async || {
        let began = Instant::now();
        loop {
            match act().await {
                Err(why) if why.starts_with(NOT_REACHED) && began.elapsed() < PATIENCE => {
                    tokio::time::sleep(PAUSE).await;
                }
                done => return done,
            }
        }
    })
}

fn told(failure: EtcdFailure) -> String {
    match failure {
        EtcdFailure::Unreachable(why) => format!("{NOT_REACHED}: {why}"),
        EtcdFailure::Refused(_) => failure.to_string(),
    }
}

fn json_text(value: &impl Serialize) -> Result<String, String> {
    serde_json::to_string_pretty(value).map(|text| text + "\n").map_err(|error| error.to_string())
}

fn write(text: &str) {
    // A closed pipe means that the reader has seen enough.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}

/// Formats the time since a moment in seconds since 1970.
fn age(seconds: u64) -> String {
    units::time(::fleet::now().saturating_sub(seconds))
}
