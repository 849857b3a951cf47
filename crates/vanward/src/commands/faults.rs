//! `vanward faults`: shows, adds and removes injected faults of the running proxy, without a reload.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::Write as _;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::process::ExitCode;

use api::status::{FaultStatus, FaultsAdded, FaultsRemoved, HiddenFault};
#[cfg(any(feature = "lab", test))]
use config::FaultRule;
use shape::{Fault, Occasion};
use toml_text::quoted;

use super::address::{hint, quoted_word};
use super::reach::ProxySelection;
use super::table::{self, Align};

/// Shows, adds and removes injected faults of the running proxy.
///
/// A change applies to the next request of every connection, and closes none; connection faults apply to new
/// connections. Added faults survive reloads and upgrades. A removed fault of the file stays removed until the faults
/// in the file change.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct FaultsArgs {
    #[command(subcommand)]
    what: Option<FaultsCommand>,

    /// Print the faults as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    reach: ProxySelection,
}

#[derive(clap::Subcommand)]
enum FaultsCommand {
    /// Add a fault
    Add(Add),
    /// Remove one fault
    Remove {
        /// Name of the fault
        #[arg(long, value_name = "NAME", required_unless_present = "name")]
        fault: Option<String>,
        #[arg(hide = true, conflicts_with = "fault")]
        name: Option<String>,
        #[command(flatten)]
        reach: ProxySelection,
    },
    /// Remove all faults, also those of the file, and all changes by `vanward shape`
    Clear {
        #[command(flatten)]
        reach: ProxySelection,
    },
}

#[derive(clap::Args)]
#[command(after_help = ADD_EXAMPLES)]
struct Add {
    /// `[PROBABILITY:]FAULT`: 1%:503, delay 2s, `5%:cut 10KB`
    #[arg(value_name = "FAULT", required_unless_present = "file", num_args = 1..)]
    fault: Vec<String>,

    /// Name in logs [default: FAULT]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Only requests of this route, by its name in the file. Can be repeated
    #[arg(long = "route", value_name = "NAME")]
    routes: Vec<String>,

    /// Only clients of this listener, by its name in the file. Can be repeated
    #[arg(long = "listener", value_name = "NAME")]
    listeners: Vec<String>,

    /// Paths: `/api` for all below it, `= /api`, `~ regex`
    #[arg(long, value_name = "PATH")]
    path: Option<String>,

    /// Only the first N requests of each client
    #[arg(long, value_name = "N")]
    first: Option<NonZeroU32>,

    /// Only every Nth matching request
    #[arg(long, value_name = "N")]
    every: Option<NonZeroU32>,

    /// Only requests with this field: `NAME: VALUE`, or `NAME` for any value. Can be repeated: all must match
    #[arg(long, value_name = "FIELD")]
    header: Vec<String>,

    /// Only clients of this network, such as 10.0.0.0/8, or one address. Can be repeated
    #[arg(long, value_name = "NETWORK")]
    client: Vec<String>,

    /// Remove the fault after this time: 30s, 5m
    #[arg(long, value_name = "DURATION", value_parser = config::duration)]
    expires: Option<std::time::Duration>,

    /// Tell the client in the response field `Vanward-Fault`
    #[arg(long)]
    show: bool,

    /// Read `[[fault]]` tables from a file instead, with all their options
    #[arg(long, value_name = "FILE", conflicts_with_all = ["fault", "name", "routes", "listeners", "path", "first", "every", "header", "client", "expires", "show"])]
    file: Option<PathBuf>,

    #[command(flatten)]
    reach: ProxySelection,
}

const EXAMPLES: &str = "\
Examples:
  vanward faults                               lists the faults, and how often each was injected
  vanward faults add 1%:503
  vanward faults add 'delay 2s±100ms' --route /api --expires 5m
  vanward faults remove --fault 'delay 2s±100ms'
  vanward faults clear                         no faults, and the rates and delays of the file";

const ADD_EXAMPLES: &str = "\
Examples:
  vanward faults add 1%:503
  vanward faults add 'delay 2s±100ms' --route /api --expires 5m
  vanward faults add 503 --first 3 --client 10.0.0.0/8
  vanward faults add 503 --every 10 --header 'X-Tenant: test'
  vanward faults add 'cut 10KB' --name short --show
  vanward faults add '2%:connection reset 10KB'
  vanward faults add 'connection refuse' --expires 30s
  vanward faults add --file faults.toml        [[fault]] tables, as in the configuration";

pub(crate) fn run(arguments: &FaultsArgs) -> ExitCode {
    let FaultsArgs { what, json, reach } = arguments;
    let done = match what {
        None => list(reach, *json),
        Some(FaultsCommand::Add(add)) => adds(add),
        Some(FaultsCommand::Remove { fault, name, reach }) => {
            if let Some(name) = name {
                hint(&[Some(format!("--fault {}", quoted_word(name)))]);
            }
            // clap requires one of both.
            let name = fault.as_ref().or(name.as_ref()).map(String::as_str).unwrap_or_default();
            removes(reach, &format!("/faults/{}", escaped(name)))
        }
        Some(FaultsCommand::Clear { reach }) => removes(reach, "/faults"),
    };
    done.map_or_else(|code| code, |()| ExitCode::SUCCESS)
}

fn list(reach: &ProxySelection, is_json: bool) -> Result<(), ExitCode> {
    let answer = reach.get("/faults")?;
    let faults: Vec<FaultStatus> = answer.told()?;
    let text = match (is_json, faults.as_slice()) {
        (true, _) => String::from_utf8_lossy(&answer.body).into_owned(),
        (false, []) => "no faults\n".to_owned(),
        (false, faults) => table(faults),
    };
    // A closed pipe means that the reader has seen enough.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
    Ok(())
}

fn adds(add: &Add) -> Result<(), ExitCode> {
    let text = match &add.file {
        Some(file) => std::fs::read_to_string(file)
            .map_err(|error| super::fail(super::USAGE, format_args!("{}: {error}", file.display())))?,
        None => {
            let fault = config::injection(&add.fault.join(" "));
            written(add, &fault.map_err(|error| super::fail(super::USAGE, error))?)
        }
    };
    let FaultsAdded { faults, hidden, tcp_alone } = add.reach.post_text("/faults", &text)?.told()?;
    for name in faults {
        super::say(format_args!("fault {name:?} is injected"));
    }
    for HiddenFault { fault, by } in hidden {
        super::say(format_args!(
            "warning: {fault:?} has no effect, because the earlier fault {by:?} affects every matching request or \
             connection: remove that one, `vanward faults remove --fault {by:?}`"
        ));
    }
    for fault in tcp_alone {
        super::say(format_args!(
            "warning: {fault:?} affects only TCP connections: HTTP/3 clients are served as before. `connection \
             datagrams`, `black-hole` and `slow-start` affect them as well"
        ));
    }
    Ok(())
}

fn removes(reach: &ProxySelection, path: &str) -> Result<(), ExitCode> {
    let FaultsRemoved { removed, shaping_cleared } = reach.delete(path)?.told()?;
    let faults = if removed == 1 { "1 fault is".to_owned() } else { format!("{removed} faults are") };
    super::say(format_args!("{faults} removed"));
    if shaping_cleared > 0 {
        super::shape::say_cleared(shaping_cleared);
    }
    Ok(())
}

fn written(add: &Add, (occasion, fault): &(Occasion, Fault)) -> String {
    let mut table = "[[fault]]\n".to_owned();
    let mut put = |key: &str, value: String| table += &format!("{key} = {value}\n");
    put("inject", quoted(&config::written_fault(fault)));
    put("probability", quoted(&config::written_share(&occasion.probability)));
    if let Some(name) = &add.name {
        put("name", quoted(name));
    }
    let list = |names: &[String]| {
        format!("[{}]", names.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", "))
    };
    for (key, names) in [("route", &add.routes), ("listener", &add.listeners), ("clients", &add.client)] {
        if !names.is_empty() {
            put(key, list(names));
        }
    }
    if let Some(path) = &add.path {
        put("path", quoted(path));
    }
    if let Some(first) = add.first {
        put("first", first.to_string());
    }
    if let Some(every) = add.every {
        put("every", every.to_string());
    }
    if !add.header.is_empty() {
        let fields = add.header.iter().map(|field| match field.split_once(':') {
            Some((name, value)) => (name.trim(), quoted(value.trim())),
            None => (field.trim(), "true".to_owned()),
        });
        // If a name repeats, the last value counts.
        let fields: BTreeMap<&str, String> = fields.collect();
        let fields: Vec<String> =
            fields.iter().map(|(name, value)| format!("{} = {value}", quoted(name))).collect();
        put("headers", format!("{{ {} }}", fields.join(", ")));
    }
    if let Some(expires) = add.expires {
        put("expires", quoted(&format!("{}ms", expires.as_millis())));
    }
    put("show", add.show.to_string());
    table
}

/// Converts faults of flags to rules with unique names, for every request.
#[cfg(any(feature = "lab", test))]
pub(crate) fn rules(faults: &[(Occasion, Fault)]) -> Vec<FaultRule> {
    let mut rules: Vec<FaultRule> = Vec::new();
    for (occasion, fault) in faults {
        let written = config::written_fault(fault);
        let taken = |name: &String| rules.iter().any(|rule| rule.name == *name);
        let numbered = (2..).map(|number| format!("{written} #{number}"));
        let name = std::iter::once(written.clone()).chain(numbered).find(|name| !taken(name));
        rules.push(FaultRule::new(name.unwrap_or(written), fault.clone(), occasion.clone()));
    }
    rules
}

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

/// Escapes a name as a path segment.
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
            "--first",
            "3",
            "--every",
            "2",
            "--header",
            "X-Tenant: a",
            "--header",
            "X-Any",
            "--client",
            "10.0.0.0/8",
        ];
        let add = <Add as clap::Args>::augment_args(clap::Command::new("add")).get_matches_from(words);
        let add = <Add as clap::FromArgMatches>::from_arg_matches(&add).expect("are flags");
        let (occasion, fault) = config::injection(&add.fault.join(" ")).expect("is a fault");
        let text = written(&add, &(occasion.clone(), fault.clone()));
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
        assert_eq!(rule.first.as_ref().map(|first| first.count.get()), Some(3));
        assert_eq!(rule.occasion.every.get(), 2);
        let mut headers = rule.rules[0].headers.clone();
        headers.sort_by(|one, other| one.0.cmp(&other.0));
        let (any, exact) = (route::ValueRule::Present, route::ValueRule::Exact("a".to_owned()));
        assert_eq!(headers, [("X-Any".to_owned(), any), ("X-Tenant".to_owned(), exact)]);
        assert_eq!(rule.rules[0].clients, ["10.0.0.0/8".parse().expect("is a network")]);
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
