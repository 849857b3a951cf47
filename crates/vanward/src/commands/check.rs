//! `vanward check`: validates a configuration file and reports all mistakes.
//!
//! It reads the certificates of the file, and checks that its directories and host names exist. It starts nothing and
//! opens no port: a valid file can still use an occupied port.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use config::{Action, Config, Mistake, Needed, Owner, Reading, Route, Settings};
use control::RouteExplained;
use mistake::{RepeatedMistake, repeated};
use tls::{CertificateProblem, ClientSide, ServerSide};

use super::check_costs;
use super::check_needs::with_needs;
use super::check_route::RouteQuery;
use super::features;

/// Validates a configuration file and reports every mistake at once.
///
/// Each mistake is on standard error: file, line, column, the problem and the expected value, followed by the line of
/// the file. Certificates and keys in the file are checked too; an expired one is a mistake here, although `vanward
/// run` would start with it. A missing directory for a log, a socket or `files` is a mistake. So is a folder, CA or
/// key that automatic certificates cannot use. A server name that does not resolve is a warning. The exit code is 78
/// with mistakes, otherwise 0; warnings do not change it.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CheckArgs {
    /// The configuration file [default: vanward.toml, or /etc/vanward/vanward.toml if there is none here].
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,

    /// Print the configuration as one file, as it was written: with its comments, and without secrets.
    ///
    /// References such as `${file:PATH}` and `${NAME}` stay. Values of Authorization, Cookie and similar fields that are
    /// written in the file are printed as `***`.
    #[arg(long, conflicts_with = "route")]
    print: bool,

    /// Print mistakes and warnings as a JSON array on standard output; with --print, an object with the configuration;
    /// with --route or --costs, the result as an object.
    #[arg(long)]
    json: bool,

    /// List conditions, values and keys of maps with their cost, the dearest first.
    ///
    /// The cost is the worst case in steps: a step is a name, an operator or 64 bytes of text. It includes that of the
    /// values that an expression uses.
    #[arg(long, conflicts_with_all = ["print", "route"])]
    costs: bool,

    /// Print a JSON Schema of the file, for editors, without reading a file.
    #[arg(long, conflicts_with_all = ["json", "print", "route", "costs"])]
    schema: bool,

    #[command(flatten)]
    asked: RouteQuery,
}

const EXAMPLES: &str = "\
Examples:
  vanward check vanward.toml
  vanward check --print vanward.toml        all files as one, without secrets
  vanward check --print --json vanward.toml | jq .configuration.upstream
  vanward check --json vanward.toml | jq -r '.[].message'
  vanward check vanward.toml --route GET https://www.example.com/api/users
  vanward check vanward.toml --route POST /login --header 'X-Tenant: a' --client 192.0.2.7 --listener web
  vanward check vanward.toml --route GET /api --json | jq -r .route
  vanward check --costs vanward.toml        what each condition costs, the dearest first
  vanward check --schema > vanward.schema.json";

pub(crate) fn run(arguments: &CheckArgs) -> ExitCode {
    if arguments.schema {
        let output = format!("{:#}\n", config::schema());
        return tell(&CheckOutput { output, remarks: String::new(), code: 0 });
    }
    let file = super::file_or_usual(arguments.file.as_deref());
    let reading = with_files(config::examine_file(&file), |problem| !problem.is_advice());
    let asked = arguments.asked.order();
    let reading = if asked.is_some() { reading } else { with_needs(reading) };
    if let (Some(config), Some(order)) = (&reading.config, &asked) {
        return match control::explain_route(config, order) {
            Ok(RouteExplained { text, json, is_routed }) => {
                let output = if arguments.json { format!("{json:#}\n") } else { text };
                let code = if is_routed { 0 } else { super::FAILED };
                tell(&CheckOutput { output, remarks: remarks(&reading), code })
            }
            Err(why) => super::fail(super::USAGE, why),
        };
    }
    let form = match (arguments.json, arguments.print) {
        (true, _) if arguments.costs => CheckForm::CostsJson,
        (false, _) if arguments.costs => CheckForm::Costs,
        (true, true) => CheckForm::PrintedJson,
        (true, false) => CheckForm::Json,
        (false, true) => CheckForm::File,
        (false, false) => CheckForm::Summary,
    };
    tell(&answer(&reading, &file.display().to_string(), form))
}

fn tell(CheckOutput { output, remarks, code }: &CheckOutput) -> ExitCode {
    let _ = std::io::stderr().lock().write_all(remarks.as_bytes());
    match std::io::stdout().lock().write_all(output.as_bytes()) {
        // A closed pipe means that the reader has seen enough.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            super::fail(super::FAILED, format_args!("cannot write to standard output: {error}"))
        }
        _ => ExitCode::from(*code),
    }
}

#[derive(Clone, Copy)]
enum CheckForm {
    Summary,
    File,
    Json,
    PrintedJson,
    Costs,
    CostsJson,
}

#[derive(Debug, PartialEq)]
struct CheckOutput {
    output: String,
    remarks: String,
    code: u8,
}

fn answer(reading: &Reading, file: &str, form: CheckForm) -> CheckOutput {
    let Reading { config, mistakes, warnings, .. } = reading;
    let code = if config.is_some() { 0 } else { super::BAD_CONFIGURATION };
    let findings = || -> serde_json::Value {
        let mistakes = mistakes.iter().map(|mistake| json(mistake, "mistake"));
        mistakes.chain(warnings.iter().map(|warning| json(warning, "warning"))).collect()
    };
    let value = match form {
        CheckForm::Json => Some(findings()),
        CheckForm::PrintedJson => Some(serde_json::json!({
            "sources": reading.sources,
            "configuration": reading.printed().and_then(|text| text.parse::<toml::Table>().ok()),
            "mistakes": findings(),
        })),
        CheckForm::CostsJson => Some(check_costs::json(reading, findings())),
        CheckForm::Summary | CheckForm::File | CheckForm::Costs => None,
    };
    if let Some(value) = value {
        return CheckOutput { output: format!("{value:#}\n"), remarks: String::new(), code };
    }
    let remarks = remarks(reading);
    let output = match (config, form) {
        (None, _) => String::new(),
        (Some(_), CheckForm::File) => reading.printed().unwrap_or_default(),
        (Some(_), CheckForm::Costs) => check_costs::text(reading),
        (Some(config), _) => {
            format!("{file}: valid: {}\n{}{}", summary(config), included(reading), named_upstreams(config))
        }
    };
    CheckOutput { output, remarks, code }
}

/// Adds problems of the files that the configuration refers to: those that `counts` selects as mistakes, the others
/// as warnings. Adds a mistake for Redis in a build without it.
pub(super) fn with_files(mut reading: Reading, counts: fn(&CertificateProblem) -> bool) -> Reading {
    let Some(config) = &reading.config else { return reading };
    let (mut found, mut warnings) = (Vec::new(), std::mem::take(&mut reading.warnings));
    for (owner, problem) in problems(config) {
        let list = if counts(&problem) { &mut found } else { &mut warnings };
        let CertificateProblem { file, fault } = problem;
        list.extend(reading.mistake_about(owner, file.as_deref(), &fault.to_string(), fault.expected()));
    }
    if let Some(missing) = features::FLEET.missing() {
        let redis = reading.needs.iter().filter(|need| need.what == Needed::Redis);
        found.extend(redis.map(|need| need.mistake(&missing, None)));
    }
    for list in [&mut found, &mut warnings] {
        reading.in_order(list);
    }
    reading.warnings = warnings;
    if !found.is_empty() {
        reading.config = None;
        reading.mistakes = found;
    }
    reading
}

pub(super) fn problems(config: &Settings) -> Vec<(Owner, CertificateProblem)> {
    let of_listeners = config.listeners.iter().enumerate().map(|(index, listener)| {
        let problems = match ServerSide::load(listener) {
            Ok(tls) => tls.map(|tls| tls.remarks()).unwrap_or_default(),
            Err(problems) => problems,
        };
        (Owner::Listener(index), problems)
    });
    let of_upstreams = config.upstreams.iter().enumerate().map(|(index, upstream)| {
        let problems = match ClientSide::load(upstream) {
            Ok(tls) => tls.map(|tls| tls.remarks().to_vec()).unwrap_or_default(),
            Err(problems) => problems,
        };
        (Owner::Upstream(index), problems)
    });
    let all = of_listeners.chain(of_upstreams);
    all.flat_map(|(owner, problems)| problems.into_iter().map(move |problem| (owner, problem))).collect()
}

/// Formats mistakes and warnings with the place and the line of the file; repeated ones once, with all places.
pub(super) fn remarks(reading: &Reading) -> String {
    let (mistakes, warnings) = (repeated(&reading.mistakes), repeated(&reading.warnings));
    let mistakes = mistakes.iter().map(|mistake| remark("", mistake));
    mistakes.chain(warnings.iter().map(|warning| remark("warning: ", warning))).collect()
}

fn remark(kind: &str, mistake: &RepeatedMistake<'_>) -> String {
    let first = mistake.first;
    let Mistake { file, line, column, .. } = first;
    let mut text = format!("{file}:{line}:{column}: {kind}{}\n{}", first.sentence(), first.shown());
    if let Some(places) = mistake.places() {
        text += &format!("      = {places}\n");
    }
    text
}

fn json(mistake: &Mistake, severity: &str) -> serde_json::Value {
    let Mistake { file, line, column, message, expected, nearest, hint, .. } = mistake;
    serde_json::json!({
        "severity": severity,
        "file": file,
        "line": line,
        "column": column,
        "message": message,
        "expected": expected,
        "nearest": nearest,
        "hint": hint,
    })
}

fn included(reading: &Reading) -> String {
    match reading.sources.as_slice() {
        [] | [_] => String::new(),
        [_, included @ ..] => included.iter().map(|file| format!("  includes {file}\n")).collect(),
    }
}

/// Formats `2 listeners, 1 route, 1 upstream, 3 servers`.
fn summary(config: &Config) -> String {
    let servers = config.upstreams.iter().map(|upstream| upstream.servers.len()).sum();
    let counts = [
        (config.listeners.len(), "listener"),
        (config.routes.len(), "route"),
        (config.upstreams.len(), "upstream"),
        (servers, "server"),
    ];
    counts.map(|(count, noun)| format!("{count} {noun}{}", if count == 1 { "" } else { "s" })).join(", ")
}

/// Formats the upstreams that values of routes can name, a route a line.
fn named_upstreams(config: &Config) -> String {
    let line = |route: &Route| {
        let Action::Named(named) = &route.action else { return None };
        let (route, text) = (&route.name, named.name.as_str());
        Some(match config.possible_upstreams(named)?.as_str() {
            "" => format!("  route {route}: {text} names no upstream now\n"),
            upstreams => format!("  route {route}: {text} names one of {upstreams}\n"),
        })
    };
    config.routes.iter().filter_map(|route| line(route)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "\
[[listen]]
address = \"127.0.0.1:8080\"
[[route]]
upstream = \"app\"
[upstream.app]
servers = [\"http://127.0.0.1:9000\", \"http://127.0.0.1:9001\"]
";

    fn check_text(text: &str, form: CheckForm) -> CheckOutput {
        answer(&config::examine(text, "f.toml"), "f.toml", form)
    }

    /// Keeps only the lines that begin with a place.
    fn without_excerpts(answer: CheckOutput) -> CheckOutput {
        let lines = answer.remarks.lines().filter(|line| !line.starts_with(' '));
        CheckOutput { remarks: lines.map(|line| format!("{line}\n")).collect(), ..answer }
    }

    #[test]
    fn a_repeated_mistake_is_one_message_with_all_places() {
        let routes = |count: usize| "[[route]]\nupstream = \"app\"\npaht = \"/\"\n".repeat(count);
        let text = |count| {
            format!("{VALID}{}", routes(count)).replace(
                "[upstream.app]\nservers = [\"http://127.0.0.1:9000\", \"http://127.0.0.1:9001\"]\n",
                "",
            ) + "[upstream.app]\nservers = [\"http://127.0.0.1:9000\"]\n"
        };
        let remarks = check_text(&text(3), CheckForm::Summary).remarks;
        let unknown: Vec<&str> = remarks.lines().filter(|line| line.contains("paht")).collect();
        assert_eq!(unknown.len(), 2, "the message and the line: {remarks}");
        assert!(remarks.contains("      = 3 places: also at 10:1, 13:1\n"), "{remarks}");
        let remarks = check_text(&text(30), CheckForm::Summary).remarks;
        assert!(
            remarks.contains("= 30 places: also at 10:1, ") && remarks.contains(", 9 more\n"),
            "{remarks}"
        );
        let json = check_text(&text(3), CheckForm::Json).output;
        assert_eq!(json.matches("paht").count(), 3, "programs get each: {json}");
    }

    #[test]
    fn a_valid_file_is_summed_up() {
        let output = "f.toml: valid: 1 listener, 1 route, 1 upstream, 2 servers\n".to_owned();
        assert_eq!(
            check_text(VALID, CheckForm::Summary),
            CheckOutput { output, remarks: String::new(), code: 0 }
        );
    }

    #[test]
    fn upstreams_that_values_can_name_are_listed() {
        let with = |map: &str| {
            let text = VALID.replace("upstream = \"app\"", "upstream = \"${map.color}\"");
            let green = "[upstream.green]\nservers = [\"http://127.0.0.1:1\"]\n";
            check_text(&format!("{text}{green}[map.color]\nkey = 'request.host'\n{map}"), CheckForm::Summary)
        };
        for (map, line) in [
            ("entries = { a = \"green\" }", "  route /: ${map.color} names one of green\n"),
            (
                "default = \"app\"\nentries = { a = \"green\" }",
                "  route /: ${map.color} names one of app, green\n",
            ),
            ("type = \"text\"", "  route /: ${map.color} names no upstream now\n"),
        ] {
            let CheckOutput { output, remarks, code } = with(map);
            assert_eq!((remarks.as_str(), code), ("", 0), "{map}");
            assert!(output.ends_with(line), "{map}: {output}");
        }
        let many: String = (0..25).map(|number| format!("k{number} = \"u{number:02}\", ")).collect();
        let upstreams: String =
            (0..25).map(|number| format!("[upstream.u{number:02}]\nservers = [\"http://a\"]\n")).collect();
        let output = with(&format!("entries = {{ {many} }}\n{upstreams}")).output;
        assert!(output.ends_with("names one of u00, u01, u02, u03, u04, u05, u06, u07, u08, u09, u10, u11, u12, u13, u14, u15, u16, u17, u18, u19 and 5 more\n"), "{output}");
    }

    #[test]
    fn a_printed_file_means_the_same() {
        let CheckOutput { output, code, .. } = check_text(VALID, CheckForm::File);
        assert_eq!(code, 0);
        assert_eq!(config::parse(&output, "printed"), config::parse(VALID, "f.toml"));
    }

    #[test]
    fn mistakes_are_lines_and_the_code_is_78() {
        let text = VALID.replace("upstream = \"app\"", "upstream = \"ap\"\nhots = \"a\"");
        let remarks = "\
f.toml:4:12: upstream: no upstream is named \"ap\"; did you mean \"app\"? Expected app
    4 | upstream = \"ap\"
      |            ^^^^
f.toml:5:1: unknown key \"hots\" in [[route]]; did you mean \"host\"? Expected name, values, listener, host…
    5 | hots = \"a\"
      | ^^^^
";
        for form in [CheckForm::Summary, CheckForm::File] {
            let expected = CheckOutput { output: String::new(), remarks: remarks.to_owned(), code: 78 };
            let mut said = check_text(&text, form);
            // The list of a route's options is cut.
            let list = said.remarks.find(", path, methods").expect("all are named");
            let end = list + said.remarks[list..].find('\n').expect("it is a line");
            said.remarks.replace_range(list..end, "…");
            assert_eq!(said, expected);
        }
    }

    #[test]
    fn warnings_are_lines_and_the_code_is_0() {
        let text = format!("{VALID}[upstream.old]\nservers = [\"http://old\"]\n");
        let CheckOutput { remarks, code, .. } = check_text(&text, CheckForm::Summary);
        let excerpt = "    7 | [upstream.old]\n      |           ^^^\n";
        assert_eq!(remarks, format!("f.toml:7:11: warning: no route leads to upstream \"old\"\n{excerpt}"));
        assert_eq!(code, 0);
    }

    #[test]
    fn files_that_are_named_are_looked_into() {
        let listeners = "\
[[listen]]
address = \"127.0.0.1:8443\"
tls = { cert = \"/nowhere/a.pem\", key = \"/dev/null\" }
[[listen]]
address = \"127.0.0.1:8444\"
tls = { self_signed = true, client_certificates = { mode = \"optional\", ca = \"/dev/null\" } }
";
        let text =
            format!("{VALID}tls = {{ ca = \"/dev/null\" }}\n{listeners}").replace("\"http://", "\"https://");
        let reading = with_files(config::examine(&text, "f.toml"), |_| true);
        let missing = std::fs::read("/nowhere/a.pem").unwrap_err();
        let pem = "expected certificates in PEM: -----BEGIN CERTIFICATE-----";
        let remarks = format!(
            "f.toml:7:14: ca: /dev/null: it has no certificate; {pem}\n\
             f.toml:10:16: cert: /nowhere/a.pem: it can't be read: {missing}\n\
             f.toml:10:40: key: /dev/null: it has no private key; expected a private key in PEM: \
             -----BEGIN PRIVATE KEY-----\n"
        );
        let expected = CheckOutput { output: String::new(), remarks, code: 78 };
        let output = answer(&reading, "f.toml", CheckForm::Summary);
        assert!(output.remarks.contains("      = 2 places: also at 13:77\n"), "{}", output.remarks);
        assert_eq!(without_excerpts(output), expected);
        let unusable = with_files(config::examine(&text, "f.toml"), |problem| !problem.is_usable());
        assert_eq!(unusable.mistakes, reading.mistakes);
        let none = with_files(config::examine(&text, "f.toml"), |_| false);
        assert!(none.config.is_some() && none.mistakes.is_empty());
    }

    #[test]
    fn json_is_always_an_array() {
        assert_eq!(
            check_text(VALID, CheckForm::Json),
            CheckOutput { output: "[]\n".to_owned(), remarks: String::new(), code: 0 }
        );
        let text = VALID.replace("address", "adress");
        let CheckOutput { output, remarks, code } = check_text(&text, CheckForm::Json);
        let expected = serde_json::json!([{
            "severity": "mistake",
            "file": "f.toml",
            "line": 2,
            "column": 1,
            "message": "unknown key \"adress\" in [[listen]]",
            "expected": "address, name, values, proxy_protocol, tcp, passthrough, tls, redirect_to_https, hsts, http2, http3, connections_per_client, rate, upload_rate, profile, connect_delay, latency, loss, datagram_rate or datagram_upload_rate",
            "nearest": "address",
            "hint": null,
        }]);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&output).unwrap(), expected);
        assert_eq!((remarks, code), (String::new(), 78));
    }

    #[test]
    fn a_printed_configuration_is_json_too_without_secrets() {
        let secret = "upstream = \"app\"\nrequest_headers = { set = { Authorization = \"Basic abc\" } }";
        let text = VALID.replace("upstream = \"app\"", secret);
        let CheckOutput { output, remarks, code } = check_text(&text, CheckForm::PrintedJson);
        let printed: serde_json::Value = serde_json::from_str(&output).unwrap();
        assert_eq!(printed["sources"], serde_json::json!(["f.toml"]));
        assert_eq!(printed["configuration"]["upstream"]["app"]["servers"].as_array().unwrap().len(), 2);
        assert_eq!(printed["configuration"]["route"][0]["request_headers"]["set"]["Authorization"], "***");
        assert_eq!((&printed["mistakes"], remarks.as_str(), code), (&serde_json::json!([]), "", 0));
        assert!(!check_text(&text, CheckForm::File).output.contains("abc"));
        let wrong = check_text(&VALID.replace("address", "adress"), CheckForm::PrintedJson);
        let printed: serde_json::Value = serde_json::from_str(&wrong.output).unwrap();
        assert_eq!((&printed["configuration"], wrong.code), (&serde_json::Value::Null, 78));
        assert_eq!(printed["mistakes"][0]["line"], 2);
    }
}
