//! `vanward shape`: shows and changes rate limits and delays of the running proxy, without a reload.

use std::io::Write as _;
use std::process::ExitCode;

use api::shaping::{PlaceKind, PlaceNamed, ShapingCleared, ShapingOrder, ShapingStatus};
use config::PROFILES;

use super::address::{hint, quoted_word};
use super::faults::escaped;
use super::reach::ProxySelection;
use super::table::{self, Align};

/// Shows and changes rate limits and delays of the running proxy.
///
/// A change takes effect before the command returns, also for transfers in progress and open connections. It closes
/// nothing, and survives reloads and upgrades.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct ShapeArgs {
    #[command(subcommand)]
    what: Option<ShapeCommand>,

    /// Print the settings as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    reach: ProxySelection,
}

#[derive(clap::Subcommand)]
enum ShapeCommand {
    Set(Box<ShapeSet>),
    /// Return one listener, route or upstream, or all, to the settings of the file
    Clear {
        #[command(flatten)]
        target: Option<Target>,
        #[arg(hide = true, requires = "place")]
        name: Option<String>,
        #[command(flatten)]
        reach: ProxySelection,
    },
}

/// Flags that select a listener, a route or an upstream. If there is only one, its name can be left out.
#[derive(clap::Args)]
#[group(id = "target", required = true, multiple = false)]
struct Target {
    /// A listener, by its name or address in the file; without NAME the only one
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "")]
    listener: Option<String>,

    /// A route, by its name in the file; without NAME the only one
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "")]
    route: Option<String>,

    /// An upstream, by its name in the file; without NAME the only one
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "")]
    upstream: Option<String>,

    /// The form of version 0.2: `shape set route /`
    #[arg(value_enum, hide = true)]
    place: Option<ShapePlace>,
}

impl Target {
    /// Returns the kind and the name. `name` is the second word of the old form, which gets a hint.
    fn named(&self, name: Option<&str>) -> (ShapePlace, Option<String>) {
        let flags = [
            (ShapePlace::Listener, &self.listener),
            (ShapePlace::Route, &self.route),
            (ShapePlace::Upstream, &self.upstream),
        ];
        if let Some((place, name)) = flags.into_iter().find_map(|(place, name)| Some((place, name.as_ref()?)))
        {
            return (place, Some(name.clone()).filter(|name| !name.is_empty()));
        }
        // clap requires one of the group.
        let place = self.place.unwrap_or(ShapePlace::Listener);
        let flag = format!("--{}", word(place.into()));
        hint(&[Some(flag), name.map(quoted_word)]);
        (place, name.map(str::to_owned))
    }
}

/// Changes rates and delays of a listener, a route or an upstream.
///
/// A new change replaces the old; settings that it does not name return to the file's. `none` removes a limit or a
/// delay of the file.
#[derive(clap::Args)]
#[command(after_help = SET_EXAMPLES, override_usage = SET_USAGE)]
#[group(id = "what", required = true, multiple = true, args = [
    "profile", "rate", "upload_rate", "connect_delay", "latency", "loss", "delay", "response_delay",
])]
struct ShapeSet {
    #[command(flatten)]
    target: Target,

    #[arg(hide = true, requires = "place")]
    name: Option<String>,

    /// Link to emulate, built in or `[profile.NAME]` of the file, with rate, round-trip time and packet loss; for
    /// listeners
    #[arg(long, value_name = "NAME", long_help = profile_help())]
    profile: Option<String>,

    /// Rate limit of responses: 5KB/s, 10Mbit/s, `1MB/s per client`. Can be repeated: all limits apply
    #[arg(long, value_name = "RATE")]
    rate: Option<Vec<String>>,

    /// Rate limit of request bodies, in the same form
    #[arg(long, value_name = "RATE")]
    upload_rate: Option<Vec<String>>,

    /// Delay of new connections: 50ms, `50ms±10ms`; for listeners and upstreams
    #[arg(long, value_name = "DELAY")]
    connect_delay: Option<String>,

    /// Delay of all data, in both directions; for listeners and upstreams
    #[arg(long, value_name = "DELAY")]
    latency: Option<String>,

    /// Packet loss, and the time until a packet is sent again: `0.5% 300ms`; for listeners and upstreams
    #[arg(long, value_name = "LOSS")]
    loss: Option<String>,

    /// Delay of requests; for routes
    #[arg(long, value_name = "DELAY")]
    delay: Option<String>,

    /// Delay of responses; for routes
    #[arg(long, value_name = "DELAY")]
    response_delay: Option<String>,

    /// Remove the change after this time: 30s, 5m
    #[arg(long, value_name = "DURATION")]
    expires: Option<String>,

    #[command(flatten)]
    reach: ProxySelection,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum ShapePlace {
    /// An address that clients connect to
    Listener,
    /// A `[[route]]` of the file
    Route,
    /// A group of servers
    Upstream,
}

const EXAMPLES: &str = "\
Examples:
  vanward shape                                all rates and delays
  vanward shape set --route / --rate 5KB/s --delay 2s±100ms
  vanward shape set --listener --profile lte --expires 5m
  vanward shape clear";

const SET_USAGE: &str = "vanward shape set <--listener [NAME]|--route [NAME]|--upstream [NAME]> <--rate RATE|--delay DELAY|…> [OPTIONS]";

const SET_EXAMPLES: &str = "\
Examples:
  vanward shape set --route / --rate 5KB/s --delay 2s±100ms
  vanward shape set --listener --profile lte --expires 5m
  vanward shape set --listener 127.0.0.1:8080 --rate '1MB/s per client' --latency '50ms±10ms normal'
  vanward shape set --upstream app --latency 20ms --loss '0.5% 300ms'
  vanward shape set --route /api --rate none   no limit, whatever the file says";

fn profile_help() -> String {
    let known = PROFILES.iter().map(|profile| profile.name).collect::<Vec<_>>().join(", ");
    format!(
        "A link by its name: its rates, its round trip and packets that are lost; of a listener. NAME is one of the \
         file's own ([profile.NAME]), or one of {known}"
    )
}

pub(crate) fn run(arguments: &ShapeArgs) -> ExitCode {
    let ShapeArgs { what, json, reach } = arguments;
    let done = match what {
        None => list(reach, *json),
        Some(ShapeCommand::Set(set)) => sets(set),
        Some(ShapeCommand::Clear { target, name, reach }) => {
            clears(reach, target.as_ref().map(|target| target.named(name.as_deref())))
        }
    };
    done.map_or_else(|code| code, |()| ExitCode::SUCCESS)
}

fn list(reach: &ProxySelection, is_json: bool) -> Result<(), ExitCode> {
    let answer = reach.get("/shaping")?;
    let places: Vec<ShapingStatus> = answer.told()?;
    let text = if is_json { String::from_utf8_lossy(&answer.body).into_owned() } else { table(&places) };
    // A closed pipe means that the reader has seen enough.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
    Ok(())
}

fn sets(set: &ShapeSet) -> Result<(), ExitCode> {
    let PlaceNamed { place, name } = set.reach.post("/shaping", &order(set))?.told()?;
    let places: Vec<ShapingStatus> = set.reach.get("/shaping")?.told()?;
    let now = places.iter().find(|status| status.place == place && status.name == name);
    let now =
        now.map_or_else(|| "changed".to_owned(), |status| format!("{}; {}", told(status), note(status)));
    super::say(format_args!("{} {name:?}: {now}", word(place)));
    Ok(())
}

fn order(set: &ShapeSet) -> ShapingOrder {
    let (place, name) = set.target.named(set.name.as_deref());
    ShapingOrder {
        profile: set.profile.clone(),
        rate: set.rate.clone(),
        upload_rate: set.upload_rate.clone(),
        connect_delay: set.connect_delay.clone(),
        latency: set.latency.clone(),
        loss: set.loss.clone(),
        delay: set.delay.clone(),
        response_delay: set.response_delay.clone(),
        expires: set.expires.clone(),
        ..ShapingOrder::new(place.into(), name)
    }
}

fn clears(reach: &ProxySelection, which: Option<(ShapePlace, Option<String>)>) -> Result<(), ExitCode> {
    let path = match which {
        Some((place, name)) => {
            let name = name.map_or_else(|| only(reach, place), Ok)?;
            format!("/shaping/{}/{}", word(place.into()), escaped(&name))
        }
        None => "/shaping".to_owned(),
    };
    let ShapingCleared { cleared } = reach.delete(&path)?.told()?;
    say_cleared(cleared);
    Ok(())
}

/// Returns the name of the only listener, route or upstream.
fn only(reach: &ProxySelection, place: ShapePlace) -> Result<String, ExitCode> {
    let kind = PlaceKind::from(place);
    let all: Vec<ShapingStatus> = reach.get("/shaping")?.told()?;
    let mut names = all.into_iter().filter(|status| status.place == kind).map(|status| status.name);
    match (names.next(), names.next()) {
        (Some(name), None) => Ok(name),
        (None, _) => Err(super::fail(super::FAILED, format_args!("the proxy has no {}", word(kind)))),
        (Some(one), Some(other)) => {
            let all = [one, other].into_iter().chain(names).map(|name| format!("{name:?}"));
            let all = all.collect::<Vec<_>>().join(", ");
            let flag = word(kind);
            Err(super::fail(super::FAILED, format_args!("name one with --{flag} NAME: there are {all}")))
        }
    }
}

/// Reports how many places returned to the file's settings.
pub(super) fn say_cleared(cleared: usize) {
    let places = if cleared == 1 { "1 place".to_owned() } else { format!("{cleared} places") };
    super::say(format_args!("{places} returned to the settings of the file"));
}

pub(super) fn table(places: &[ShapingStatus]) -> String {
    let rows: Vec<[String; 3]> = places
        .iter()
        .map(|place| [format!("{} {}", word(place.place), place.name), told(place), note(place)])
        .collect();
    table::table([("", Align::Left), ("", Align::Left), ("", Align::Left)], &rows)
}

/// Formats a place: `rate 1MB/s and 100KB/s per client, latency 50ms`.
fn told(place: &ShapingStatus) -> String {
    let rates = [("rate", &place.rate), ("upload rate", &place.upload_rate)];
    let rates = rates.into_iter().filter(|(_, rates)| !rates.is_empty());
    let rates = rates.map(|(name, rates)| format!("{name} {}", rates.join(" and ")));
    let delays = [
        ("connect delay", &place.connect_delay),
        ("latency", &place.latency),
        ("loss", &place.loss),
        ("delay", &place.delay),
        ("response delay", &place.response_delay),
    ];
    let delays =
        delays.into_iter().filter_map(|(name, delay)| delay.as_ref().map(|delay| format!("{name} {delay}")));
    let all: Vec<String> = rates.chain(delays).collect();
    if all.is_empty() { "not shaped".to_owned() } else { all.join(", ") }
}

fn note(place: &ShapingStatus) -> String {
    match (place.is_changed, place.expires_in_seconds) {
        (false, _) => String::new(),
        (true, None) => "changed".to_owned(),
        (true, Some(seconds)) => format!("changed, expires in {seconds:.1} s"),
    }
}

fn word(place: PlaceKind) -> &'static str {
    match place {
        PlaceKind::Listener => "listener",
        PlaceKind::Route => "route",
        PlaceKind::Upstream => "upstream",
    }
}

impl From<ShapePlace> for PlaceKind {
    fn from(place: ShapePlace) -> Self {
        match place {
            ShapePlace::Listener => Self::Listener,
            ShapePlace::Route => Self::Route,
            ShapePlace::Upstream => Self::Upstream,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(place: PlaceKind, name: &str) -> ShapingStatus {
        ShapingStatus {
            place,
            name: name.to_owned(),
            rate: Vec::new(),
            upload_rate: Vec::new(),
            connect_delay: None,
            latency: None,
            loss: None,
            delay: None,
            response_delay: None,
            is_changed: false,
            expires_in_seconds: None,
        }
    }

    #[test]
    fn places_are_shown_with_their_changes() {
        let places = [
            ShapingStatus {
                rate: vec!["1MB/s".to_owned(), "5KB/s per client".to_owned()],
                latency: Some("50ms±5ms".to_owned()),
                is_changed: true,
                expires_in_seconds: Some(12.04),
                ..place(PlaceKind::Listener, "127.0.0.1:8080")
            },
            ShapingStatus { delay: Some("2s".to_owned()), ..place(PlaceKind::Route, "/") },
            ShapingStatus { is_changed: true, ..place(PlaceKind::Upstream, "app") },
        ];
        let expected = "  \
  listener 127.0.0.1:8080  rate 1MB/s and 5KB/s per client, latency 50ms±5ms  changed, expires in 12.0 s
  route /                  delay 2s
  upstream app             not shaped                                         changed
";
        assert_eq!(table(&places), expected);
    }

    #[test]
    fn flags_are_what_the_admin_api_takes() {
        let flags = ["--rate", "1MB/s", "--rate", "5KB/s per client", "--loss", "1% 5ms"];
        let expected = ShapingOrder {
            rate: Some(vec!["1MB/s".to_owned(), "5KB/s per client".to_owned()]),
            loss: Some("1% 5ms".to_owned()),
            ..ShapingOrder::new(PlaceKind::Upstream, Some("app".to_owned()))
        };
        for target in [&["--upstream", "app"][..], &["--upstream=app"], &["upstream", "app"]] {
            let words = [&["set"], target, &flags].concat();
            let set =
                <ShapeSet as clap::Args>::augment_args(clap::Command::new("set")).get_matches_from(words);
            let set = <ShapeSet as clap::FromArgMatches>::from_arg_matches(&set).expect("are flags");
            assert_eq!(order(&set), expected, "{target:?}");
        }
    }
}
