//! `vanward maintenance`: takes routes of the running proxy out of service and back, without a reload.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use api::maintenance::{MaintenanceOrder, MaintenanceStatus, MaintenanceSwitched};

use super::reach::ProxySelection;
use super::table::{self, Align};

/// Takes routes of the running proxy out of service and back: clients get 503 with Retry-After.
///
/// A switch takes effect before the command returns. Running requests finish. It survives reloads and upgrades, until
/// it is switched again; a restart forgets it.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct MaintenanceArgs {
    #[command(subcommand)]
    what: Option<MaintenanceCommand>,

    #[command(flatten)]
    list: MaintenanceList,
}

#[derive(clap::Subcommand)]
enum MaintenanceCommand {
    On(On),
    /// Serves routes again, also if the file has them under maintenance
    Off {
        #[command(flatten)]
        target: RouteFlags,
        #[command(flatten)]
        reach: ProxySelection,
    },
    /// Lists the routes that are under maintenance
    List(MaintenanceList),
}

/// Puts routes under maintenance.
///
/// Details that no flag sets come from the route's `maintenance` in the file. A new switch replaces the old.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
struct On {
    #[command(flatten)]
    target: RouteFlags,

    /// Page that clients get [default: the error page for 503]
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,

    /// When clients may retry: 10m, 1h [default: 5m]
    #[arg(long, value_name = "DURATION")]
    retry_after: Option<String>,

    /// Network of clients that are served as usual. Can be repeated
    #[arg(long, value_name = "NETWORK")]
    allow: Option<Vec<String>>,

    #[command(flatten)]
    reach: ProxySelection,
}

#[derive(clap::Args)]
struct MaintenanceList {
    /// Print the routes as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    reach: ProxySelection,
}

/// Flags that select routes.
#[derive(clap::Args)]
#[group(required = true)]
struct RouteFlags {
    /// Name of a route: `name` in the file, else its host and path. Can be repeated
    #[arg(long = "route", value_name = "NAME", conflicts_with = "all")]
    routes: Vec<String>,

    /// All routes, also those that a reload adds
    #[arg(long)]
    all: bool,
}

const EXAMPLES: &str = "\
Examples:
  vanward maintenance on --route shop --retry-after 10m
  vanward maintenance on --all --page /etc/vanward/maintenance.html --allow 10.0.0.0/8
  vanward maintenance list
  vanward maintenance off --all";

/// The maximum number of switched routes that are named.
const NAMED_MAX: usize = 10;

pub(crate) fn run(arguments: &MaintenanceArgs) -> ExitCode {
    let done = match &arguments.what {
        None => list(&arguments.list),
        Some(MaintenanceCommand::List(arguments)) => list(arguments),
        Some(MaintenanceCommand::On(on)) => order(on).and_then(|order| {
            switch(&on.reach, "on", &order, "is under maintenance, which the proxy answers with 503")
        }),
        Some(MaintenanceCommand::Off { target, reach }) => {
            switch(reach, "off", &target.order(), "is served again")
        }
    };
    done.map_or_else(|code| code, |()| ExitCode::SUCCESS)
}

fn list(MaintenanceList { json, reach }: &MaintenanceList) -> Result<(), ExitCode> {
    let answer = reach.get("/maintenance")?;
    let routes: Vec<MaintenanceStatus> = answer.told()?;
    let text = match (json, routes.is_empty()) {
        (true, _) => String::from_utf8_lossy(&answer.body).into_owned(),
        (false, true) => "no route is under maintenance\n".to_owned(),
        (false, false) => table(&routes),
    };
    // A closed pipe means that the reader has seen enough.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
    Ok(())
}

fn switch(reach: &ProxySelection, what: &str, order: &MaintenanceOrder, now: &str) -> Result<(), ExitCode> {
    let MaintenanceSwitched { routes } = reach.post(&format!("/maintenance/{what}"), order)?.told()?;
    for line in switched(&routes, now) {
        super::say(line);
    }
    Ok(())
}

/// The lines about switched routes: one for each, or a count of them.
fn switched(routes: &[String], now: &str) -> Vec<String> {
    match routes {
        [] => vec!["nothing changed: none of the routes was under maintenance".to_owned()],
        routes if routes.len() > NAMED_MAX => vec![format!("each of {} routes {now}", routes.len())],
        routes => routes.iter().map(|route| format!("route {route} {now}")).collect(),
    }
}

impl RouteFlags {
    fn order(&self) -> MaintenanceOrder {
        MaintenanceOrder { routes: self.routes.clone(), all: self.all, ..MaintenanceOrder::default() }
    }
}

/// Builds the order to the proxy, whose working directory may differ.
fn order(on: &On) -> Result<MaintenanceOrder, ExitCode> {
    let absolute = |page: &PathBuf| {
        std::path::absolute(page)
            .map_err(|error| super::fail(super::USAGE, format_args!("{}: {error}", Path::display(page))))
    };
    let page = on.page.as_ref().map(absolute).transpose()?;
    Ok(MaintenanceOrder {
        page: page.map(|page| page.display().to_string()),
        retry_after: on.retry_after.clone(),
        allow: on.allow.clone(),
        ..on.target.order()
    })
}

pub(super) fn table(routes: &[MaintenanceStatus]) -> String {
    let rows: Vec<_> = routes.iter().map(|status| [status.route.clone(), told(status)]).collect();
    table::table([("", Align::Left), ("", Align::Left)], &rows)
}

/// Formats a route: `503, retry after 5m, for all but 10.0.0.0/8; by command`.
fn told(status: &MaintenanceStatus) -> String {
    let source = if status.by_command { "by command" } else { "by the file" };
    if !status.is_on {
        return format!("served; {source}");
    }
    let retry_after = config::written_duration(Duration::from_secs(status.retry_after_seconds));
    let page = status.page.as_ref().map(|page| format!(", page {page}")).unwrap_or_default();
    let allow = match status.allow.as_slice() {
        [] => String::new(),
        networks => format!(", for all but {}", networks.join(" and ")),
    };
    format!("503, retry after {retry_after}{page}{allow}; {source}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_switched_routes_are_counted() {
        let lines = |count: usize| {
            let routes: Vec<_> = (0..count).map(|number| number.to_string()).collect();
            switched(&routes, "is served again")
        };
        assert_eq!(lines(0), ["nothing changed: none of the routes was under maintenance"]);
        assert_eq!(lines(1), ["route 0 is served again"]);
        assert_eq!(lines(10)[9], "route 9 is served again");
        assert_eq!(lines(11), ["each of 11 routes is served again"]);
    }

    #[test]
    fn routes_are_told_with_who_switched_them() {
        let status = |route: &str, is_on, by_command| MaintenanceStatus {
            route: route.to_owned(),
            is_on,
            by_command,
            page: None,
            retry_after_seconds: 300,
            allow: Vec::new(),
        };
        let routes = [
            MaintenanceStatus {
                page: Some("/etc/page.html".to_owned()),
                allow: vec!["10.0.0.0/8".to_owned(), "fd00::/8".to_owned()],
                ..status("shop.example/", true, true)
            },
            status("/", true, false),
            status("/b", false, true),
        ];
        let expected = "  \
  shop.example/  503, retry after 5m, page /etc/page.html, for all but 10.0.0.0/8 and fd00::/8; by command
  /              503, retry after 5m; by the file
  /b             served; by command
";
        assert_eq!(table(&routes), expected);
    }
}
