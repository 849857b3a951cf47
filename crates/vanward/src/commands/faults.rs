//! `vanward faults`: shows, adds and removes injected faults of the running proxy, without a reload.

use std::fmt::Write;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use api::status::{FaultStatus, FaultsAdded, FaultsRemoved, HiddenFault};
use config::FaultRule;
use shape::{Fault, Occasion};

use super::reach::Reach;
use super::table::{self, Align};

/// Shows, adds and removes injected faults of the running proxy.
///
/// A change applies to the next request of every connection, and closes none; connection faults apply to new
/// connections. Added faults survive reloads and upgrades. A removed fault of the file stays removed until the faults
/// in the file change.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Option<What>,

    /// Print the faults as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    reach: Reach,
}

#[derive(clap::Subcommand)]
enum What {
    /// Add a fault
    Add(Add),
    /// Remove one fault
    Remove {
        /// Name of the fault
        name: String,
        #[command(flatten)]
        reach: Reach,
    },
    /// Remove all faults, also those of the file, and all changes by `vanward shape`
    Clear {
        #[command(flatten)]
        reach: Reach,
    },
}

#[derive(clap::Args)]
#[command(after_help = ADD_EXAMPLES)]
struct Add {
    /// `[PROBABILITY:]FAULT`: 1%:503, `delay 2s`, `5%:cut 10KB`
    #[arg(value_name = "FAULT", required_unless_present = "file", value_parser = config::injection)]
    fault: Option<(Occasion, Fault)>,

    /// Name in logs [default: FAULT]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Paths: `/api` for all below it, `= /api`, `~ regex`
    #[arg(long, value_name = "PATH")]
    path: Option<String>,

    /// Remove the fault after this time: 30s, 5m
    #[arg(long, value_name = "DURATION", value_parser = config::duration)]
    expires: Option<std::time::Duration>,

    /// Tell the client in the response field `Vanward-Fault`
    #[arg(long)]
    show: bool,

    /// Read `[[fault]]` tables from a file instead, with all their options
    #[arg(long, value_name = "FILE", conflicts_with_all = ["fault", "name", "path", "expires", "show"])]
    file: Option<PathBuf>,

    #[command(flatten)]
    reach: Reach,
}

const EXAMPLES: &str = "\
Examples:
  vanward faults                               lists the faults, and how often each was injected
  vanward faults add 1%:503
  vanward faults add 'delay 2s±100ms' --path /api --expires 5m
  vanward faults remove 'delay 2s±100ms'
  vanward faults clear                         no faults, and rates and delays are those of the file";

const ADD_EXAMPLES: &str = "\
Examples:
  vanward faults add 1%:503
  vanward faults add 'delay 2s±100ms' --path /api --expires 5m
  vanward faults add 'cut 10KB' --name short --show
  vanward faults add '2%:connection reset 10KB'
  vanward faults add 'connection refuse' --expires 30s
  vanward faults add --file faults.toml        [[fault]] tables, as in the configuration";

pub(crate) fn run(arguments: &Args) -> ExitCode {
    let Args { what, json, reach } = arguments;
    let done = match what {
        None => list(reach, *json),
        Some(What::Add(add)) => adds(add),
        Some(What::Remove { name, reach }) => removes(reach, &format!("/faults/{}", escaped(name))),
        Some(What::Clear { reach }) => removes(reach, "/faults"),
    };
    done.map_or_else(|code| code, |()| ExitCode::SUCCESS)
}

fn list(reach: &Reach, is_json: bool) -> Result<(), ExitCode> {
    let answer = reach.get("/faults")?;
    let faults: Vec<FaultStatus> = answer.told()?;
    let text = match (is_json, faults.as_slice()) {
        (true, _) => String::from_utf8_lossy(&answer.body).into_owned(),
        (false, []) => "no faults\n".to_owned(),
        (false, faults) => table(faults),
    };
    // Who reads no further has seen enough.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
    Ok(())
}

fn adds(add: &Add) -> Result<(), ExitCode> {
    let text = match (&add.file, &add.fault) {
        (Some(file), _) => std::fs::read_to_string(file)
            .map_err(|error| super::fail(super::USAGE, format_args!("{}: {error}", file.display())))?,
        (None, Some((occasion, fault))) => written(add, occasion, fault),
        (None, None) => String::new(),
    };
    let FaultsAdded { faults, hidden } = add.reach.post_text("/faults", &text)?.told()?;
    for name in faults {
        super::say(format_args!("fault {name:?} is injected"));
    }
    for HiddenFault { fault, by } in hidden {
        super::say(format_args!(
            "warning: {fault:?} does not happen while the earlier fault {by:?} happens to every request or connection that matches: \
             remove that one, `vanward faults remove {by:?}`"
        ));
    }
    Ok(())
}

fn removes(reach: &Reach, path: &str) -> Result<(), ExitCode> {
    let FaultsRemoved { removed, shaping_cleared } = reach.delete(path)?.told()?;
    let faults = if removed == 1 { "1 fault is".to_owned() } else { format!("{removed} faults are") };
    super::say(format_args!("{faults} removed"));
    if shaping_cleared > 0 {
        super::shape::say_cleared(shaping_cleared);
    }
    Ok(())
}

/// The fault of the flags as a `[[fault]]` table.
fn written(add: &Add, occasion: &Occasion, fault: &Fault) -> String {
    let mut table = toml::Table::new();
    let mut put = |key: &str, value: toml::Value| drop(table.insert(key.to_owned(), value));
    put("inject", config::written_fault(fault).into());
    put("probability", config::written_share(&occasion.probability).into());
    if let Some(name) = &add.name {
        put("name", name.as_str().into());
    }
    if let Some(path) = &add.path {
        put("path", path.as_str().into());
    }
    if let Some(expires) = add.expires {
        put("expires", format!("{}ms", expires.as_millis()).into());
    }
    put("show", add.show.into());
    format!("[[fault]]\n{table}")
}

/// The faults of flags, with unique names, for every request.
pub(crate) fn rules(faults: &[(Occasion, Fault)]) -> Vec<FaultRule> {
    let mut rules: Vec<FaultRule> = Vec::new();
    for (occasion, fault) in faults {
        let written = config::written_fault(fault);
        let taken = |name: &String| rules.iter().any(|rule| rule.name == *name);
        let numbered = (2..).map(|number| format!("{written} #{number}"));
        let name = std::iter::once(written.clone()).chain(numbered).find(|name| !taken(name));
        rules.push(FaultRule::of(name.unwrap_or(written), fault.clone(), occasion.clone()));
    }
    rules
}

/// Faults as a table.
pub(super) fn table(faults: &[FaultStatus]) -> String {
    let row = |fault: &FaultStatus| {
        let off = (!fault.is_on).then(|| "not now".to_owned());
        let expires = fault.expires_in_seconds.map(|seconds| match seconds {
            0.0 => "expired".to_owned(),
            seconds => format!("expires in {seconds:.1} s"),
        });
        [
            fault.name.clone(),
            fault.inject.clone(),
            fault.probability.clone(),
            fault.matched.to_string(),
            fault.injected.to_string(),
            off.into_iter().chain(expires).collect::<Vec<_>>().join(", "),
        ]
    };
    let columns = [
        ("FAULT", Align::Left),
        ("INJECTS", Align::Left),
        ("PROBABILITY", Align::Right),
        ("MATCHED", Align::Right),
        ("INJECTED", Align::Right),
        ("", Align::Left),
    ];
    table::table(columns, &faults.iter().map(row).collect::<Vec<_>>())
}

/// A name, escaped as one segment of a path.
pub(super) fn escaped(name: &str) -> String {
    name.bytes().fold(String::new(), |mut text, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_written_as_a_file_has_them() {
        let words = [
            "add",
            "0.5%:delay 2s±100ms",
            "--name",
            "late \"one\"",
            "--path",
            "= /a",
            "--expires",
            "90s",
            "--show",
        ];
        let add = <Add as clap::Args>::augment_args(clap::Command::new("add")).get_matches_from(words);
        let add = <Add as clap::FromArgMatches>::from_arg_matches(&add).expect("are flags");
        let (occasion, fault) = add.fault.clone().expect("is given");
        let text = written(&add, &occasion, &fault);
        let config = config::Config::for_servers(
            vec!["127.0.0.1:1".parse().expect("is an address")],
            vec!["http://127.0.0.1:2".parse().expect("is a server")],
        );
        let [rule] = &config::faults(&text, "flags", &config).expect("is right")[..] else {
            panic!("one rule")
        };
        assert_eq!((rule.name.as_str(), &rule.fault, rule.is_shown), ("late \"one\"", &fault, true));
        assert_eq!(rule.occasion.probability, occasion.probability);
        assert_eq!(rule.occasion.expires, add.expires);
        assert_eq!(rule.rules[0].path, route::PathRule::Exact("/a".to_owned()));
    }

    #[test]
    fn faults_of_flags_have_names_of_their_own() {
        let fault = |text| config::injection(text).expect("is a fault");
        let named = rules(&[fault("503"), fault("1%:503"), fault("reset"), fault("503")]);
        assert_eq!(
            named.iter().map(|rule| rule.name.as_str()).collect::<Vec<_>>(),
            ["503", "503 #2", "reset", "503 #3"]
        );
    }

    #[test]
    fn a_table_of_faults() {
        let fault = |name: &str, is_on, expires_in_seconds| FaultStatus {
            name: name.to_owned(),
            inject: "503".to_owned(),
            probability: "1%".to_owned(),
            is_on,
            expires_in_seconds,
            matched: 1000,
            injected: 9,
        };
        let faults = [fault("503", true, None), fault("b", false, Some(0.0)), fault("c", true, Some(1.25))];
        let expected = "  \
  FAULT  INJECTS  PROBABILITY  MATCHED  INJECTED
  503    503               1%     1000         9
  b      503               1%     1000         9  not now, expired
  c      503               1%     1000         9  expires in 1.2 s
";
        assert_eq!(table(&faults), expected);
    }

    #[test]
    fn a_name_is_one_segment_of_a_path() {
        assert_eq!(escaped("delay 2s±1/a.b"), "delay%202s%C2%B11%2Fa.b");
    }
}
