//! Operators' switches of maintenance at run time.
//!
//! A route has at most one switch, and all routes together have another one; a route's own takes precedence. Details
//! that a switch omits come from the file. The switch of a route that the file no longer has is kept without effect.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use api::maintenance::{MaintenanceOrder, MaintenanceStatus};
use config::{Config, IpNet, Maintenance, Page, Route, Settings, Shared, ValueError};
use serde::{Deserialize, Serialize};
use telemetry::message;

use crate::handover;

const ROUTES_MAX: usize = 16_384;
/// Maximum number of names in a rejection.
const NAMES_TOLD_MAX: usize = 8;

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct MaintenanceOverrides {
    all: Option<Switch>,
    routes: BTreeMap<String, Switch>,
}

#[derive(Debug, Clone, PartialEq)]
enum Switch {
    On(Box<Details>),
    Off,
}

/// The response to requests, as far as the operator has set it.
#[derive(Debug, Clone, PartialEq)]
struct Details {
    order: MaintenanceOrder,
    page: Option<Page>,
    retry_after: Option<Duration>,
    allow: Option<Vec<IpNet>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct MaintenanceHandover {
    is_on: bool,
    /// For one route, or for all.
    order: MaintenanceOrder,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum MaintenanceRefusal {
    #[error("page: {path}: {problem}")]
    Page { path: String, problem: String },
    #[error("page: {0:?} is not an absolute path: the proxy may run in another folder")]
    RelativePage(String),
    #[error("{key}: {error}")]
    Value { key: &'static str, error: ValueError },
    #[error("name routes, or set all")]
    Nothing,
    #[error("routes are named, and all is set: use only one of them")]
    Both,
    #[error("no route is named {name:?}; {known}")]
    NoRoute { name: String, known: String },
    #[error("leave out page, retry_after and allow: they have no effect when a maintenance ends")]
    DetailsOfOff,
    #[error("more than {ROUTES_MAX} routes differ from the file: put them into it")]
    TooMany,
    #[error("it is more than 15 KiB long: put it into the file")]
    TooLong,
}

impl Details {
    fn read(order: &MaintenanceOrder) -> Result<Self, MaintenanceRefusal> {
        let page = order.page.as_deref().map(|path| {
            if !Path::new(path).is_absolute() {
                return Err(MaintenanceRefusal::RelativePage(path.to_owned()));
            }
            let refuse = |problem| MaintenanceRefusal::Page { path: path.to_owned(), problem };
            config::page(Path::new(path)).map_err(refuse)
        });
        let retry_after = order.retry_after.as_deref().map(|text| {
            config::duration(text).map_err(|error| MaintenanceRefusal::Value { key: "retry_after", error })
        });
        let network = |text: &String| {
            config::network(text).map_err(|error| MaintenanceRefusal::Value { key: "allow", error })
        };
        let allow = order.allow.as_ref().map(|networks| networks.iter().map(network).collect());
        Ok(Self {
            order: MaintenanceOrder { routes: Vec::new(), all: false, ..order.clone() },
            page: page.transpose()?,
            retry_after: retry_after.transpose()?,
            allow: allow.transpose()?,
        })
    }
}

impl Switch {
    fn over(&self, file: Option<Maintenance>) -> Option<Maintenance> {
        match self {
            Self::Off => file.map(|file| Maintenance { is_on: false, ..file }),
            Self::On(details) => {
                let file = file.unwrap_or_default();
                let Details { page, retry_after, allow, .. } = &**details;
                Some(Maintenance {
                    is_on: true,
                    page: page.clone().or(file.page),
                    retry_after: retry_after.unwrap_or(file.retry_after),
                    allow: allow.clone().unwrap_or(file.allow),
                })
            }
        }
    }
}

impl MaintenanceOverrides {
    /// Switches the maintenance of routes on. Returns their names. `file` is the configuration of the file.
    pub(crate) fn begin(
        &mut self,
        order: &MaintenanceOrder,
        file: &Config,
    ) -> Result<Vec<String>, MaintenanceRefusal> {
        let routes = routes(order, file)?;
        let details = Details::read(order)?;
        if !handover::fits(&order) {
            return Err(MaintenanceRefusal::TooLong);
        }
        let switch = Switch::On(Box::new(details));
        if order.all {
            *self = Self { all: Some(switch), routes: BTreeMap::new() };
        } else {
            self.routes.extend(routes.iter().map(|route| (route.clone(), switch.clone())));
        }
        if self.routes.len() > ROUTES_MAX { Err(MaintenanceRefusal::TooMany) } else { Ok(routes) }
    }

    /// Switches the maintenance of routes off, even if the file has it on. Returns the names of those that had it.
    pub(crate) fn end(
        &mut self,
        order: &MaintenanceOrder,
        file: &Config,
    ) -> Result<Vec<String>, MaintenanceRefusal> {
        if order.page.is_some() || order.retry_after.is_some() || order.allow.is_some() {
            return Err(MaintenanceRefusal::DetailsOfOff);
        }
        // A route that the file no longer has is found by its former name.
        let is_kept = |name: &String| self.routes.contains_key(name);
        let known: Vec<String> = order.routes.iter().filter(|name| !is_kept(name)).cloned().collect();
        if !known.is_empty() || order.all || order.routes.is_empty() {
            routes(&MaintenanceOrder { routes: known, ..order.clone() }, file)?;
        }
        if order.all {
            let mut ended: Vec<String> = file.routes.iter().map(|route| route.name.clone()).collect();
            ended.retain(|name| self.refuses(name, file));
            let is_in_file = file.routes.iter().any(|route| is_on(route));
            *self = Self { all: is_in_file.then_some(Switch::Off), routes: BTreeMap::new() };
            return Ok(ended);
        }
        let ended = order.routes.iter().filter(|name| self.refuses(name, file)).cloned().collect();
        for name in &order.routes {
            self.routes.remove(name);
            let is_on_still = file.routes.iter().any(|route| route.name == *name && is_on(route))
                || matches!(self.all, Some(Switch::On(_)));
            if is_on_still {
                self.routes.insert(name.clone(), Switch::Off);
            }
        }
        if self.routes.len() > ROUTES_MAX { Err(MaintenanceRefusal::TooMany) } else { Ok(ended) }
    }

    fn refuses(&self, route: &str, file: &Config) -> bool {
        let is_on_in_file = || file.routes.iter().any(|known| known.name == *route && is_on(known));
        self.for_route(route).map_or_else(is_on_in_file, |switch| *switch != Switch::Off)
    }

    pub(crate) fn over(&self, config: &mut Settings) {
        if *self == Self::default() {
            return;
        }
        for route in &mut config.routes {
            if let Some(switch) = self.for_route(&route.name) {
                let maintenance = &mut route.policies.options.maintenance;
                *maintenance = switch.over(maintenance.take());
            }
        }
    }

    fn for_route(&self, route: &str) -> Option<&Switch> {
        self.routes.get(route).or(self.all.as_ref())
    }

    /// Lists the routes that are under maintenance, or would be without the switches.
    pub(crate) fn status(&self, config: &Config) -> Vec<MaintenanceStatus> {
        let told = |route: &Shared<Route>| {
            let (maintenance, switch) =
                (route.policies.options.maintenance.as_ref()?, self.for_route(&route.name));
            (maintenance.is_on || switch.is_some()).then(|| MaintenanceStatus {
                route: route.name.clone(),
                is_on: maintenance.is_on,
                by_command: switch.is_some(),
                page: maintenance.page.as_ref().map(|page| page.file.display().to_string()),
                retry_after_seconds: maintenance.retry_after.as_secs(),
                allow: maintenance.allow.iter().map(ToString::to_string).collect(),
            })
        };
        config.routes.iter().filter_map(told).collect()
    }

    pub(crate) fn handover(&self) -> impl Iterator<Item = MaintenanceHandover> {
        let all = self.all.iter().map(|switch| (None, switch));
        let routes = self.routes.iter().map(|(route, switch)| (Some(route.clone()), switch));
        all.chain(routes).map(|(route, switch)| {
            let order = match switch {
                Switch::On(details) => details.order.clone(),
                Switch::Off => MaintenanceOrder::default(),
            };
            let all = route.is_none();
            let order = MaintenanceOrder { routes: route.into_iter().collect(), all, ..order };
            MaintenanceHandover { is_on: *switch != Switch::Off, order }
        })
    }

    /// Records a switch from the previous process. If its page is gone, clients get the error page for 503.
    pub(crate) fn inherit(&mut self, MaintenanceHandover { is_on, order }: MaintenanceHandover) {
        let read = || {
            Details::read(&order).or_else(|refusal| {
                message::warn(&format!("maintenance continues with the error page for 503: {refusal}"));
                Details::read(&MaintenanceOrder { page: None, ..order.clone() })
            })
        };
        let switch = match is_on.then(read) {
            None => Switch::Off,
            Some(Ok(details)) => Switch::On(Box::new(details)),
            Some(Err(refusal)) => return message::warn(&format!("a maintenance is lost: {refusal}")),
        };
        if order.all {
            self.all = Some(switch);
        } else {
            self.routes.extend(order.routes.into_iter().map(|route| (route, switch.clone())));
        }
    }
}

fn is_on(route: &Route) -> bool {
    route.policies.options.maintenance.as_ref().is_some_and(|maintenance| maintenance.is_on)
}

fn routes(order: &MaintenanceOrder, config: &Config) -> Result<Vec<String>, MaintenanceRefusal> {
    let names = || config.routes.iter().map(|route| route.name.as_str());
    match (order.routes.as_slice(), order.all) {
        ([], false) => Err(MaintenanceRefusal::Nothing),
        ([], true) => Ok(names().map(str::to_owned).collect()),
        (_, true) => Err(MaintenanceRefusal::Both),
        (wanted, false) => {
            if let Some(unknown) = wanted.iter().find(|wanted| !names().any(|name| name == *wanted)) {
                return Err(MaintenanceRefusal::NoRoute { name: unknown.clone(), known: told(names()) });
            }
            Ok(wanted.to_vec())
        }
    }
}

fn told<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let all: Vec<&str> = names.collect();
    let some = all.iter().take(NAMES_TOLD_MAX).copied().collect::<Vec<_>>().join(", ");
    match all.len().saturating_sub(NAMES_TOLD_MAX) {
        0 => format!("there are {some}"),
        more => format!("there are {some} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> Config {
        config::parse(
            "[[listen]]\naddress = \"127.0.0.1:0\"\n[[route]]\nname = \"a\"\npath = \"/a\"\nupstream = \"app\"\n\
             [[route]]\nname = \"b\"\npath = \"/b\"\nupstream = \"app\"\nmaintenance = { retry_after = \"1h\", allow = [\"10.0.0.0/8\"] }\n\
             [[route]]\nname = \"c\"\npath = \"/c\"\nupstream = \"app\"\nmaintenance = { on = false, retry_after = \"1m\" }\n\
             [upstream.app]\nservers = [\"http://a\"]\n",
            "f",
        )
        .expect("is valid")
    }

    fn named(routes: &[&str]) -> MaintenanceOrder {
        MaintenanceOrder { routes: routes.iter().map(ToString::to_string).collect(), ..Default::default() }
    }

    fn all() -> MaintenanceOrder {
        MaintenanceOrder { all: true, ..Default::default() }
    }

    /// Writes `a 300` for each route under maintenance, with `!` if a command has switched it.
    fn shown(overrides: &MaintenanceOverrides) -> String {
        let config = file().edit(|settings| overrides.over(settings)).expect("is valid");
        let line = |status: &MaintenanceStatus| {
            let MaintenanceStatus { route, is_on, by_command, retry_after_seconds, .. } = status;
            let [on, command] = [if *is_on { "" } else { " off" }, if *by_command { "!" } else { "" }];
            format!("{route}{command} {retry_after_seconds}{on}")
        };
        overrides.status(&config).iter().map(line).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn switches_lie_over_the_file() {
        type Step = (bool, MaintenanceOrder);
        let detailed = || MaintenanceOrder { retry_after: Some("7s".to_owned()), ..named(&["a"]) };
        let cases: &[(&[Step], &str)] = &[
            (&[], "b 3600"),
            (&[(true, named(&["a"]))], "a! 300, b 3600"),
            (&[(true, named(&["a", "c"]))], "a! 300, b 3600, c! 60"),
            (&[(true, detailed())], "a! 7, b 3600"),
            (&[(true, detailed()), (true, named(&["a"]))], "a! 300, b 3600"),
            (&[(true, named(&["a"])), (false, named(&["a"]))], "b 3600"),
            (&[(false, named(&["b"]))], "b! 3600 off"),
            (&[(false, named(&["b"])), (true, named(&["b"]))], "b! 3600"),
            (&[(true, all())], "a! 300, b! 3600, c! 60"),
            (&[(true, all()), (false, named(&["b"]))], "a! 300, b! 3600 off, c! 60"),
            (&[(false, named(&["b"])), (true, all())], "a! 300, b! 3600, c! 60"),
            (&[(true, all()), (false, all())], "b! 3600 off, c! 60 off"),
        ];
        for (steps, expected) in cases {
            let mut overrides = MaintenanceOverrides::default();
            for (begins, order) in *steps {
                let done =
                    if *begins { overrides.begin(order, &file()) } else { overrides.end(order, &file()) };
                done.expect("is done");
            }
            assert_eq!(shown(&overrides), *expected, "{steps:?}");
            let mut next = MaintenanceOverrides::default();
            overrides.handover().for_each(|switch| next.inherit(switch));
            assert_eq!(next, overrides, "{steps:?}");
        }
    }

    #[test]
    fn an_end_names_the_routes_that_were_under_maintenance() {
        type Step = (bool, MaintenanceOrder);
        let cases: &[(&[Step], MaintenanceOrder, &[&str])] = &[
            (&[], all(), &["b"]),
            (&[], named(&["a", "b", "c"]), &["b"]),
            (&[(true, named(&["c"]))], all(), &["b", "c"]),
            (&[(true, all())], all(), &["a", "b", "c"]),
            (&[(true, all()), (false, named(&["b"]))], all(), &["a", "c"]),
            (&[(false, all())], all(), &[]),
            (&[(false, named(&["b"]))], named(&["b"]), &[]),
        ];
        for (steps, end, expected) in cases {
            let mut overrides = MaintenanceOverrides::default();
            for (begins, order) in *steps {
                let done =
                    if *begins { overrides.begin(order, &file()) } else { overrides.end(order, &file()) };
                done.expect("is done");
            }
            assert_eq!(overrides.end(end, &file()).expect("is done"), *expected, "{steps:?} {end:?}");
        }
        // A route that the file no longer has.
        let mut overrides = MaintenanceOverrides::default();
        overrides
            .routes
            .insert("gone".to_owned(), Switch::On(Box::new(Details::read(&all()).expect("is read"))));
        assert_eq!(overrides.end(&named(&["gone"]), &file()).expect("is done"), ["gone"]);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let with = |page: Option<&str>, retry_after: Option<&str>, allow: Option<&str>| MaintenanceOrder {
            page: page.map(str::to_owned),
            retry_after: retry_after.map(str::to_owned),
            allow: allow.map(|network| vec![network.to_owned()]),
            ..named(&["a"])
        };
        for (begins, order, expected) in [
            (true, named(&[]), "name routes, or set all"),
            (true, MaintenanceOrder { all: true, ..named(&["a"]) }, "use only one of them"),
            (true, named(&["a", "api"]), "no route is named \"api\""),
            (false, named(&["d"]), "no route is named \"d\""),
            (false, named(&[]), "name routes"),
            (true, with(Some("/nowhere/a.html"), None, None), "page: /nowhere/a.html: it can't be read"),
            (true, with(Some("a.html"), None, None), "is not an absolute path"),
            (true, with(None, Some("soon"), None), "retry_after: \"soon\" is not a number"),
            (true, with(None, None, Some("10.0.0.1/8")), "allow: "),
            (false, with(None, Some("1m"), None), "leave out page, retry_after and allow"),
        ] {
            let mut overrides = MaintenanceOverrides::default();
            let done = if begins { overrides.begin(&order, &file()) } else { overrides.end(&order, &file()) };
            let refusal = done.expect_err("is refused").to_string();
            assert!(refusal.contains(expected), "{order:?}: {refusal}");
            assert_eq!(overrides, MaintenanceOverrides::default());
        }
    }

    #[test]
    fn a_page_that_is_gone_ends_no_maintenance() {
        let mut overrides = MaintenanceOverrides::default();
        let page = Some("/nowhere/a.html".to_owned());
        overrides
            .inherit(MaintenanceHandover { is_on: true, order: MaintenanceOrder { page, ..named(&["a"]) } });
        assert_eq!(shown(&overrides), "a! 300, b 3600");
    }
}
