//! `vanward check`: validates a configuration file and reports all mistakes.
//!
//! It reads the certificates of the file, and checks that its directories and host names exist. It starts nothing and
//! opens no port: a valid file can still use an occupied port.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use config::{Config, Mistake, Owner, Reading, Settings};
use control::RouteExplained;
use tls::{ClientSide, Problem, ServerSide};

use super::check_needs::with_needs;
use super::check_route::RouteQuery;

/// Validates a configuration file and reports every mistake at once.
///
/// Each mistake is on standard error: file, line, column, the problem and the expected value, followed by the line of
/// the file. Certificates and keys in the file are checked too; an expired one is a mistake here, although `vanward
/// run` would start with it. A missing directory for a log or socket is a mistake, and so is a folder, CA or key that
/// automatic certificates cannot use; a server name that does not resolve is a warning. The exit code is 78 with
/// mistakes, otherwise 0; warnings do not change it.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The configuration file [default: vanward.toml, or /etc/vanward/vanward.toml if there is none here].
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,

    /// Print the configuration as one file with every option, including defaults, and without secrets.
    ///
    /// What came from a file or an environment variable with a secret is printed as `${file:PATH}` or `${NAME}`; values of
    /// Authorization, Cookie and similar fields that are written in the file as `***`.
    #[arg(long, conflicts_with = "route")]
    print: bool,

    /// Print mistakes and warnings as a JSON array on standard output; with --print, an object with the configuration;
    /// with --route, the result as an object.
    #[arg(long)]
    json: bool,

    /// Print a JSON Schema of the file, for editors, without reading a file.
    #[arg(long, conflicts_with_all = ["json", "print", "route"])]
    schema: bool,

    #[command(flatten)]
    asked: RouteQuery,
}

const EXAMPLES: &str = "\
Examples:
  vanward check vanward.toml
  vanward check --print vanward.toml        one file, with every default
  vanward check --print --json vanward.toml | jq .configuration.upstream
  vanward check --json vanward.toml | jq -r '.[].message'
  vanward check vanward.toml --route GET https://www.example.com/api/users
  vanward check vanward.toml --route POST /login --header 'X-Tenant: a' --client 192.0.2.7 --listener web
  vanward check vanward.toml --route GET /api --json | jq -r .route
  vanward check --schema > vanward.schema.json";

pub(crate) fn run(arguments: &Args) -> ExitCode {
    if arguments.schema {
        let output = format!("{:#}\n", config::schema());
        return tell(&Answer { output, remarks: String::new(), code: 0 });
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
                tell(&Answer { output, remarks: remarks(&reading), code })
            }
            Err(why) => super::fail(super::USAGE, why),
        };
    }
    let form = match (arguments.json, arguments.print) {
        (true, true) => Form::PrintedJson,
        (true, false) => Form::Json,
        (false, true) => Form::File,
        (false, false) => Form::Summary,
    };
    tell(&answer(&reading, &file.display().to_string(), form))
}

fn tell(Answer { output, remarks, code }: &Answer) -> ExitCode {
    let _ = std::io::stderr().lock().write_all(remarks.as_bytes());
    match std::io::stdout().lock().write_all(output.as_bytes()) {
        // Whoever closed the pipe has read enough.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            super::fail(super::FAILED, format_args!("cannot write to standard output: {error}"))
        }
        _ => ExitCode::from(*code),
    }
}

/// Output for a file.
#[derive(Clone, Copy)]
enum Form {
    Summary,
    File,
    Json,
    PrintedJson,
}

/// Output and exit code of a check.
#[derive(Debug, PartialEq)]
struct Answer {
    /// Text for standard output.
    output: String,
    /// Text for standard error.
    remarks: String,
    code: u8,
}

fn answer(reading: &Reading, file: &str, form: Form) -> Answer {
    let Reading { config, mistakes, warnings, .. } = reading;
    let code = if config.is_some() { 0 } else { super::BAD_CONFIGURATION };
    let findings = || -> serde_json::Value {
        let mistakes = mistakes.iter().map(|mistake| json(mistake, "mistake"));
        mistakes.chain(warnings.iter().map(|warning| json(warning, "warning"))).collect()
    };
    let value = match form {
        Form::Json => Some(findings()),
        Form::PrintedJson => Some(serde_json::json!({
            "sources": reading.sources,
            "configuration": reading.printed().and_then(|text| text.parse::<toml::Table>().ok()),
            "mistakes": findings(),
        })),
        Form::Summary | Form::File => None,
    };
    if let Some(value) = value {
        return Answer { output: format!("{value:#}\n"), remarks: String::new(), code };
    }
    let remarks = remarks(reading);
    let output = match (config, form) {
        (None, _) => String::new(),
        (Some(_), Form::File) => reading.printed().unwrap_or_default(),
        (Some(config), _) => format!("{file}: valid: {}\n{}", summary(config), included(reading)),
    };
    Answer { output, remarks, code }
}

/// Adds problems of the files that the configuration names: those that `counts` selects as mistakes, the others as
/// warnings.
pub(super) fn with_files(mut reading: Reading, counts: fn(&Problem) -> bool) -> Reading {
    let Some(config) = &reading.config else { return reading };
    let (mut found, mut warnings) = (Vec::new(), std::mem::take(&mut reading.warnings));
    for (owner, problem) in problems(config) {
        let list = if counts(&problem) { &mut found } else { &mut warnings };
        let Problem { file, fault } = problem;
        list.extend(reading.mistake_about(owner, file.as_deref(), &fault.to_string(), fault.expected()));
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

/// Problems of the certificates, keys and CAs that a configuration names.
pub(super) fn problems(config: &Settings) -> Vec<(Owner, Problem)> {
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

/// Text about a file: for each mistake and warning a line with its place, and the line of the file.
pub(super) fn remarks(reading: &Reading) -> String {
    let mistakes = reading.mistakes.iter().map(|mistake| format!("{mistake}\n{}", mistake.shown()));
    mistakes.chain(reading.warnings.iter().map(warning)).collect()
}

fn warning(warning: &Mistake) -> String {
    let Mistake { file, line, column, .. } = warning;
    format!("{file}:{line}:{column}: warning: {}\n{}", warning.sentence(), warning.shown())
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

/// The files that were read, if there are several.
fn included(reading: &Reading) -> String {
    match reading.sources.as_slice() {
        [] | [_] => String::new(),
        [_, included @ ..] => included.iter().map(|file| format!("  includes {file}\n")).collect(),
    }
}

/// Text: `2 listeners, 1 route, 1 upstream, 3 servers`.
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

    fn of(text: &str, form: Form) -> Answer {
        answer(&config::examine(text, "f.toml"), "f.toml", form)
    }

    /// Keeps the lines that begin with a place.
    fn without_excerpts(answer: Answer) -> Answer {
        let lines = answer.remarks.lines().filter(|line| !line.starts_with(' '));
        Answer { remarks: lines.map(|line| format!("{line}\n")).collect(), ..answer }
    }

    #[test]
    fn a_valid_file_is_summed_up() {
        let output = "f.toml: valid: 1 listener, 1 route, 1 upstream, 2 servers\n".to_owned();
        assert_eq!(of(VALID, Form::Summary), Answer { output, remarks: String::new(), code: 0 });
    }

    #[test]
    fn a_printed_file_means_the_same() {
        let Answer { output, code, .. } = of(VALID, Form::File);
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
f.toml:5:1: unknown key \"hots\" in [[route]]; did you mean \"host\"? Expected name, listener, host…
    5 | hots = \"a\"
      | ^^^^
";
        for form in [Form::Summary, Form::File] {
            let expected = Answer { output: String::new(), remarks: remarks.to_owned(), code: 78 };
            let mut said = of(&text, form);
            // Not all options of a route.
            let list = said.remarks.find(", path, methods").expect("all are named");
            let end = list + said.remarks[list..].find('\n').expect("it is a line");
            said.remarks.replace_range(list..end, "…");
            assert_eq!(said, expected);
        }
    }

    #[test]
    fn warnings_are_lines_and_the_code_is_0() {
        let text = format!("{VALID}[upstream.old]\nservers = [\"http://old\"]\n");
        let Answer { remarks, code, .. } = of(&text, Form::Summary);
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
             -----BEGIN PRIVATE KEY-----\n\
             f.toml:13:77: ca: /dev/null: it has no certificate; {pem}\n"
        );
        let expected = Answer { output: String::new(), remarks, code: 78 };
        assert_eq!(without_excerpts(answer(&reading, "f.toml", Form::Summary)), expected);
        let unusable = with_files(config::examine(&text, "f.toml"), |problem| !problem.is_usable());
        assert_eq!(unusable.mistakes, reading.mistakes);
        let none = with_files(config::examine(&text, "f.toml"), |_| false);
        assert!(none.config.is_some() && none.mistakes.is_empty());
    }

    #[test]
    fn json_is_an_array_whatever_is_found() {
        assert_eq!(
            of(VALID, Form::Json),
            Answer { output: "[]\n".to_owned(), remarks: String::new(), code: 0 }
        );
        let text = VALID.replace("address", "adress");
        let Answer { output, remarks, code } = of(&text, Form::Json);
        let expected = serde_json::json!([{
            "severity": "mistake",
            "file": "f.toml",
            "line": 2,
            "column": 1,
            "message": "unknown key \"adress\" in [[listen]]",
            "expected": "address, name, proxy_protocol, tcp, passthrough, tls, redirect_to_https, hsts, http2, http3, rate, upload_rate, profile, connect_delay, latency, loss, datagram_rate or datagram_upload_rate",
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
        let Answer { output, remarks, code } = of(&text, Form::PrintedJson);
        let printed: serde_json::Value = serde_json::from_str(&output).unwrap();
        assert_eq!(printed["sources"], serde_json::json!(["f.toml"]));
        assert_eq!(printed["configuration"]["upstream"]["app"]["servers"].as_array().unwrap().len(), 2);
        assert_eq!(printed["configuration"]["route"][0]["request_headers"]["set"]["Authorization"], "***");
        assert_eq!((&printed["mistakes"], remarks.as_str(), code), (&serde_json::json!([]), "", 0));
        assert!(!of(&text, Form::File).output.contains("abc"));
        let wrong = of(&VALID.replace("address", "adress"), Form::PrintedJson);
        let printed: serde_json::Value = serde_json::from_str(&wrong.output).unwrap();
        assert_eq!((&printed["configuration"], wrong.code), (&serde_json::Value::Null, 78));
        assert_eq!(printed["mistakes"][0]["line"], 2);
    }
}
