//! Operators' changes of rates and delays at run time.
//!
//! Each listener, route or upstream has at most one change; a new one replaces it. Settings that a change omits
//! come from the file. A change of a place that the file no longer has is kept without effect.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use balance::Time;
use config::{Bandwidth, Bandwidths, Config, Link, Settings, ValueError};
use shape::{Delay, LinkLoss};
use telemetry::message;

use crate::StartError;
use crate::change::{AmendError, Control};
use crate::handover;
use api::shaping::{PlaceKind, PlaceNamed, ShapingOrder};

const PLACES_MAX: usize = 16_384;
/// Maximum number of names in a rejection.
const NAMES_TOLD_MAX: usize = 8;
/// Delay before another attempt to end an expired change.
const AGAIN: Duration = Duration::from_secs(1);
/// Removes a delay, or all rates.
const NONE: &str = "none";

/// All changes of rates and delays, by place.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ShapingOverrides(BTreeMap<(PlaceKind, String), PlaceChange>);

#[derive(Debug, Clone, PartialEq)]
struct PlaceChange {
    order: ShapingOrder,
    settings: Meant,
    until: Option<Time>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ReshapeRefusal {
    #[error("{key}: {error}")]
    Value { key: &'static str, error: ValueError },
    #[error("profile: no link is named {0:?}; there are {1}")]
    NoProfile(String, String),
    #[error("{key}: {kind}s have no such setting; it is for {}", listed(.of))]
    Elsewhere { key: &'static str, kind: PlaceKind, of: &'static [PlaceKind] },
    #[error("the change is empty: give a rate, a delay or a profile, or remove a change with DELETE")]
    Nothing,
    #[error("no {kind} is named {name:?}; {known}")]
    NoPlace { kind: PlaceKind, name: String, known: String },
    #[error("name the {kind}; {known}")]
    WhichPlace { kind: PlaceKind, known: String },
    #[error("{kind} {name:?} has no change to remove")]
    NotChanged { kind: PlaceKind, name: String },
    #[error("response_delay: route {0:?} has a cache, and hits would not be delayed; use delay")]
    Cached(String),
    #[error("more than {PLACES_MAX} places differ from the file: put them into it")]
    TooMany,
    #[error("it is more than 15 KiB long: put it into the file")]
    TooLong,
}

impl ShapingOverrides {
    /// Records a change. Returns its place, which `config` must have.
    pub(crate) fn amend(
        &mut self,
        order: &ShapingOrder,
        config: &Config,
        now: Time,
    ) -> Result<PlaceNamed, ReshapeRefusal> {
        for (key, rates) in [("rate", &order.rate), ("upload_rate", &order.upload_rate)] {
            let mut rates = rates.iter().flatten();
            let with_unit = rates.try_for_each(|rate| config::check_rate_unit(rate));
            with_unit.map_err(|error| ReshapeRefusal::Value { key, error })?;
        }
        let change = PlaceChange::read(order, now)?;
        if let Some(profile) = order.profile.as_deref().filter(|name| config.profile(name).is_none()) {
            let known = config.profile_names().collect::<Vec<_>>().join(", ");
            return Err(ReshapeRefusal::NoProfile(profile.to_owned(), known));
        }
        let name = place(order.place, order.name.as_deref(), config)?;
        if change.settings.response_delay.is_given()
            && config.routes.iter().any(|route| route.name == name && route.cache.is_some())
        {
            return Err(ReshapeRefusal::Cached(name));
        }
        // It must fit into the handover of an upgrade.
        if !handover::fits(&ShapingOrder { name: Some(name.clone()), ..order.clone() }) {
            return Err(ReshapeRefusal::TooLong);
        }
        self.0.insert((order.place, name.clone()), change);
        if self.0.len() > PLACES_MAX {
            return Err(ReshapeRefusal::TooMany);
        }
        Ok(PlaceNamed { place: order.place, name })
    }

    /// Records a change from the previous process. Its place is not checked.
    pub(crate) fn inherit(&mut self, order: &ShapingOrder) {
        match PlaceChange::read(order, Time::START) {
            Ok(change) => {
                let name = order.name.clone().unwrap_or_default();
                self.0.insert((order.place, name), change);
            }
            // A file of delays may be gone.
            Err(refusal) => {
                message::warn(&format!("a change of rates and delays is lost: {refusal}"));
            }
        }
    }

    pub(crate) fn remove(
        &mut self,
        kind: PlaceKind,
        name: &str,
        config: &Config,
    ) -> Result<(), ReshapeRefusal> {
        // A place that the file no longer has is found by its former name.
        let name = place(kind, Some(name), config).unwrap_or_else(|_| name.to_owned());
        match self.0.remove(&(kind, name.clone())) {
            Some(_) => Ok(()),
            None => Err(ReshapeRefusal::NotChanged { kind, name }),
        }
    }

    pub(crate) fn clear(&mut self) -> usize {
        std::mem::take(&mut self.0).len()
    }

    /// Removes the changes that have expired. Returns their places.
    pub(crate) fn expire(&mut self, now: Time) -> Vec<PlaceNamed> {
        let is_over = |change: &PlaceChange| change.until.is_some_and(|until| until <= now);
        let over = self.0.extract_if(.., |_, change| is_over(change));
        over.map(|((place, name), _)| PlaceNamed { place, name }).collect()
    }

    /// The time at which the next change expires.
    pub(crate) fn next_end(&self) -> Option<Time> {
        self.0.values().filter_map(|change| change.until).min()
    }

    /// Whether a place has a change, and if so, its remaining time (if it expires).
    pub(crate) fn for_kind(&self, kind: PlaceKind, name: &str, now: Time) -> Option<Option<Duration>> {
        let change = self.0.get(&(kind, name.to_owned()))?;
        Some(change.until.map(|until| until.since(now)))
    }

    pub(crate) fn orders(&self, now: Time) -> impl Iterator<Item = ShapingOrder> {
        self.0.iter().map(move |((place, name), change)| ShapingOrder {
            place: *place,
            name: Some(name.clone()),
            expires: change.until.map(|until| format!("{}ms", until.since(now).as_millis())),
            ..change.order.clone()
        })
    }

    /// Applies the changes to a configuration. A change with a profile that the file no longer has does not apply.
    pub(crate) fn over(&self, config: &mut Settings) {
        for ((kind, name), PlaceChange { order, settings, .. }) in &self.0 {
            let link = order.profile.as_deref().map(|name| config.profile(name));
            let settings = match link {
                None => settings.clone(),
                Some(Some(link)) => settings.clone().behind(link),
                // The file no longer has the profile, so the whole change waits for it.
                Some(None) => continue,
            };
            match kind {
                PlaceKind::Listener => {
                    for listener in config.listeners.iter_mut().filter(|listener| listener.name == *name) {
                        settings.over_rates(&mut listener.bandwidths);
                        settings.over_link(&mut listener.link);
                    }
                }
                PlaceKind::Route => {
                    for route in config.routes.iter_mut().filter(|route| route.name == *name) {
                        settings.over_rates(&mut route.shaping.bandwidths);
                        settings.delay.over(&mut route.shaping.delay);
                        settings.response_delay.over(&mut route.shaping.response_delay);
                    }
                }
                PlaceKind::Upstream => {
                    for upstream in config.upstreams.iter_mut().filter(|upstream| upstream.name == *name) {
                        settings.over_rates(&mut upstream.bandwidths);
                        settings.over_link(&mut upstream.link);
                    }
                }
            }
        }
    }
}

/// Returns the name of the place in an order. Without a name, the only one.
fn place(kind: PlaceKind, name: Option<&str>, config: &Config) -> Result<String, ReshapeRefusal> {
    let places: Vec<(&str, Option<String>)> = match kind {
        PlaceKind::Listener => {
            let named = |listener: &config::Listener| Some(listener.address.to_string());
            config.listeners.iter().map(|listener| (listener.name.as_str(), named(listener))).collect()
        }
        PlaceKind::Route => config.routes.iter().map(|route| (route.name.as_str(), None)).collect(),
        PlaceKind::Upstream => {
            config.upstreams.iter().map(|upstream| (upstream.name.as_str(), None)).collect()
        }
    };
    let known = || {
        let named = places.iter().take(NAMES_TOLD_MAX).map(|(name, _)| format!("{name:?}"));
        let named = named.collect::<Vec<_>>().join(", ");
        match places.len() {
            0 => "there is none".to_owned(),
            1 => format!("there is {named}"),
            count if count <= NAMES_TOLD_MAX => format!("there are {named}"),
            count => format!("there are {named} and {} more", count - NAMES_TOLD_MAX),
        }
    };
    let Some(name) = name else {
        return match places.as_slice() {
            [(only, _)] => Ok((*only).to_owned()),
            _ => Err(ReshapeRefusal::WhichPlace { kind, known: known() }),
        };
    };
    let is_meant = |(of, other): &&(&str, Option<String>)| *of == name || other.as_deref() == Some(name);
    match places.iter().find(is_meant) {
        Some((name, _)) => Ok((*name).to_owned()),
        None => Err(ReshapeRefusal::NoPlace { kind, name: name.to_owned(), known: known() }),
    }
}

impl PlaceChange {
    fn read(order: &ShapingOrder, now: Time) -> Result<Self, ReshapeRefusal> {
        check_keys(order)?;
        let expires = order.expires.as_deref().map(config::duration).transpose();
        let expires = expires.map_err(|error| ReshapeRefusal::Value { key: "expires", error })?;
        let settings = Meant::read(order)?;
        Ok(Self { order: order.clone(), settings, until: expires.map(|after| now + after) })
    }
}

/// Checks that an order has settings, and that its place supports them.
fn check_keys(order: &ShapingOrder) -> Result<(), ReshapeRefusal> {
    use PlaceKind::{Listener, Route, Upstream};
    const ALL: &[PlaceKind] = &[Listener, Route, Upstream];
    const LINKS: &[PlaceKind] = &[Listener, Upstream];
    let keys = [
        ("rate", order.rate.is_some(), ALL),
        ("upload_rate", order.upload_rate.is_some(), ALL),
        ("profile", order.profile.is_some(), &[Listener]),
        ("connect_delay", order.connect_delay.is_some(), LINKS),
        ("latency", order.latency.is_some(), LINKS),
        ("loss", order.loss.is_some(), LINKS),
        ("delay", order.delay.is_some(), &[Route]),
        ("response_delay", order.response_delay.is_some(), &[Route]),
    ];
    let mut given = keys.into_iter().filter(|(_, is_given, _)| *is_given).peekable();
    if given.peek().is_none() {
        return Err(ReshapeRefusal::Nothing);
    }
    match given.find(|(_, _, of)| !of.contains(&order.place)) {
        Some((key, _, of)) => Err(ReshapeRefusal::Elsewhere { key, kind: order.place, of }),
        None => Ok(()),
    }
}

/// The parsed settings of an order, without its link profile.
#[derive(Debug, Clone, PartialEq)]
struct Meant {
    rate: Becomes<Vec<Bandwidth>>,
    upload_rate: Becomes<Vec<Bandwidth>>,
    connect_delay: Becomes<Option<Delay>>,
    latency: Becomes<Option<Delay>>,
    loss: Becomes<Option<LinkLoss>>,
    delay: Becomes<Option<Delay>>,
    response_delay: Becomes<Option<Delay>>,
}

#[derive(Debug, Clone, PartialEq)]
enum Becomes<T> {
    AsInTheFile,
    Other(T),
}

impl<T: Clone> Becomes<T> {
    fn over(&self, option: &mut T) {
        if let Self::Other(other) = self {
            option.clone_from(other);
        }
    }

    fn is_given(&self) -> bool {
        matches!(self, Self::Other(_))
    }

    fn or(self, other: T) -> Self {
        if self.is_given() { self } else { Self::Other(other) }
    }
}

impl Meant {
    fn read(order: &ShapingOrder) -> Result<Self, ReshapeRefusal> {
        Ok(Self {
            rate: rates("rate", order.rate.as_deref())?,
            upload_rate: rates("upload_rate", order.upload_rate.as_deref())?,
            connect_delay: value("connect_delay", order.connect_delay.as_deref(), config::delay)?,
            latency: value("latency", order.latency.as_deref(), config::delay)?,
            loss: value("loss", order.loss.as_deref(), config::loss)?,
            delay: value("delay", order.delay.as_deref(), config::delay)?,
            response_delay: value("response_delay", order.response_delay.as_deref(), config::delay)?,
        })
    }

    /// Combines the settings with a link profile: all rates apply, as in a file, and given settings replace the link's.
    fn behind(self, link: (Bandwidths, Link)) -> Self {
        let (Bandwidths { mut down, mut up }, Link { connect_delay, latency, loss }) = link;
        let add = |all: &mut Vec<Bandwidth>, named: Becomes<Vec<Bandwidth>>| {
            if let Becomes::Other(mut named) = named {
                all.append(&mut named);
            }
        };
        add(&mut down, self.rate);
        add(&mut up, self.upload_rate);
        Self {
            rate: Becomes::Other(down),
            upload_rate: Becomes::Other(up),
            connect_delay: self.connect_delay.or(connect_delay),
            latency: self.latency.or(latency),
            loss: self.loss.or(loss),
            ..self
        }
    }

    fn over_rates(&self, bandwidths: &mut Bandwidths) {
        self.rate.over(&mut bandwidths.down);
        self.upload_rate.over(&mut bandwidths.up);
    }

    fn over_link(&self, link: &mut Link) {
        self.connect_delay.over(&mut link.connect_delay);
        self.latency.over(&mut link.latency);
        self.loss.over(&mut link.loss);
    }
}

fn rates(key: &'static str, texts: Option<&[String]>) -> Result<Becomes<Vec<Bandwidth>>, ReshapeRefusal> {
    let Some(texts) = texts else { return Ok(Becomes::AsInTheFile) };
    let texts = if matches!(texts, [only] if only == NONE) { &[] } else { texts };
    let read = |text: &String| config::bandwidth(text).map_err(|error| ReshapeRefusal::Value { key, error });
    Ok(Becomes::Other(texts.iter().map(read).collect::<Result<_, _>>()?))
}

fn value<T>(
    key: &'static str,
    text: Option<&str>,
    read: impl Fn(&str) -> Result<T, ValueError>,
) -> Result<Becomes<Option<T>>, ReshapeRefusal> {
    match text {
        None => Ok(Becomes::AsInTheFile),
        Some(NONE) => Ok(Becomes::Other(None)),
        Some(text) => match read(text) {
            Ok(value) => Ok(Becomes::Other(Some(value))),
            Err(error) => Err(ReshapeRefusal::Value { key, error }),
        },
    }
}

fn listed(kinds: &[PlaceKind]) -> String {
    kinds.iter().map(|kind| format!("{kind}s")).collect::<Vec<_>>().join(" and ")
}

/// Removes changes when they expire, until the proxy ends.
pub(crate) async fn watch(control: Weak<Control>) {
    loop {
        let Some(strong) = control.upgrade() else { return };
        let changed = Arc::clone(&strong.shaping_overrides);
        let rest = strong.overrides().shaping.next_end().map(|end| end.since(strong.time()));
        drop(strong);
        let Some(rest) = rest else {
            changed.notified().await;
            continue;
        };
        // `changed` remembers a change in between, so none is missed.
        if tokio::time::timeout(rest, changed.notified()).await.is_ok() {
            continue;
        }
        let Some(control) = control.upgrade() else { return };
        // The call waits for the workers, which may wait for this thread.
        match tokio::task::spawn_blocking(move || control.expire()).await {
            Ok(Ok(places)) => {
                for PlaceNamed { place, name } in places {
                    message::info(&format!(
                        "{place} {name:?}: rates and delays return to the file's: the change expired"
                    ));
                }
            }
            // The changes end in the new process, or with this one.
            Ok(Err(AmendError::NotPossible(StartError::Leaving))) | Err(_) => return,
            Ok(Err(error)) => {
                message::warn(&format!("expired changes of rates and delays stay active: {error}"));
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
[[listen]]
address = \"127.0.0.1:1\"
name = \"front\"
rate = \"9MB/s\"
latency = \"9ms\"
[[route]]
path = \"/kept\"
name = \"kept\"
upstream = \"app\"
cache = {}
[[route]]
name = \"rest\"
upstream = \"app\"
rate = \"8MB/s\"
delay = \"8ms\"
[cache]
memory = \"1MiB\"
[upstream.app]
servers = [\"http://one:1\"]
[profile.own]
rate = \"7MB/s\"
upload_rate = \"6MB/s\"
connect_delay = \"9ms\"
latency = \"5ms\"
loss = \"2% 1ms\"
";

    fn file() -> Config {
        config::parse(FILE, "f").unwrap_or_else(|mistakes| panic!("{mistakes:?}"))
    }

    fn order(json: &str) -> ShapingOrder {
        serde_json::from_str(json).unwrap_or_else(|error| panic!("{json}: {error}"))
    }

    fn shown(config: &Settings) -> String {
        let listener = &config.listeners[0];
        let (route, upstream) = (&config.routes[1].shaping, &config.upstreams[0]);
        let rates = |all: &Bandwidths| {
            let written = |rates: &[Bandwidth]| {
                rates.iter().map(config::written_bandwidth).collect::<Vec<_>>().join("+")
            };
            format!("{}/{}", written(&all.down), written(&all.up))
        };
        let late = |delay: &Option<Delay>| delay.as_ref().map_or("-".to_owned(), config::written_delay);
        let link = |link: &Link| {
            let loss = link.loss.as_ref().map_or("-".to_owned(), config::written_loss);
            format!("{} {} {loss}", late(&link.connect_delay), late(&link.latency))
        };
        format!(
            "{} {}, {} {} {}, {} {}",
            rates(&listener.bandwidths),
            link(&listener.link),
            rates(&route.bandwidths),
            late(&route.delay),
            late(&route.response_delay),
            rates(&upstream.bandwidths),
            link(&upstream.link),
        )
    }

    #[test]
    fn changes_lie_over_the_file() {
        for (orders, expected) in [
            (&[][..], "9MB/s/ - 9ms -, 8MB/s/ 8ms -, / - - -"),
            (&[r#"{"place":"listener","rate":"1MB/s"}"#], "1MB/s/ - 9ms -, 8MB/s/ 8ms -, / - - -"),
            (
                &[
                    r#"{"place":"listener","name":"front","rate":["1MB/s","2MB/s per client"],"latency":"none"}"#,
                ],
                "1MB/s+2MB/s per client/ - - -, 8MB/s/ 8ms -, / - - -",
            ),
            (
                &[r#"{"place":"listener","name":"127.0.0.1:1","rate":"none","loss":"1% 5ms"}"#],
                "/ - 9ms 1% 5ms, 8MB/s/ 8ms -, / - - -",
            ),
            (
                &[r#"{"place":"listener","profile":"fibre","rate":"1MB/s","latency":"1s"}"#],
                "25MB/s per client+1MB/s/100Mbit/s per client 4ms 1s -, 8MB/s/ 8ms -, / - - -",
            ),
            (
                &[r#"{"place":"listener","profile":"own","upload_rate":"1MB/s","connect_delay":"none"}"#],
                "7MB/s/6MB/s+1MB/s - 5ms 2% 1ms, 8MB/s/ 8ms -, / - - -",
            ),
            (
                &[
                    r#"{"place":"route","name":"rest","upload_rate":"7MB/s","delay":"none","response_delay":"3ms"}"#,
                ],
                "9MB/s/ - 9ms -, 8MB/s/7MB/s - 3ms, / - - -",
            ),
            (
                &[
                    r#"{"place":"upstream","rate":"1MB/s","latency":"5ms"}"#,
                    r#"{"place":"upstream","name":"app","connect_delay":"6ms"}"#,
                ],
                "9MB/s/ - 9ms -, 8MB/s/ 8ms -, / 6ms - -",
            ),
        ] {
            let mut shaping_overrides = ShapingOverrides::default();
            for text in orders {
                shaping_overrides
                    .amend(&order(text), &file(), Time::START)
                    .unwrap_or_else(|error| panic!("{text}: {error}"));
            }
            let mut config = file().into_settings();
            shaping_overrides.over(&mut config);
            assert_eq!(shown(&config), expected, "{orders:?}");
            let mut next = ShapingOverrides::default();
            shaping_overrides.orders(Time::START).for_each(|order| next.inherit(&order));
            let mut config = file().into_settings();
            next.over(&mut config);
            assert_eq!(shown(&config), expected, "{orders:?}, in the next process");
            assert_eq!(shaping_overrides.clear(), usize::from(!orders.is_empty()));
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (json, expected) in [
            (r#"{"place":"route","rate":"1MB/s"}"#, "name the route; there are \"kept\", \"rest\""),
            (
                r#"{"place":"route","name":"rst","rate":"1MB/s"}"#,
                "no route is named \"rst\"; there are \"kept\", \"rest\"",
            ),
            (r#"{"place":"listener"}"#, "the change is empty"),
            (r#"{"place":"listener","expires":"1s"}"#, "the change is empty"),
            (
                r#"{"place":"listener","delay":"1s"}"#,
                "delay: listeners have no such setting; it is for routes",
            ),
            (
                r#"{"place":"route","name":"rest","latency":"1s"}"#,
                "latency: routes have no such setting; it is for listeners and upstreams",
            ),
            (
                r#"{"place":"upstream","profile":"lte"}"#,
                "profile: upstreams have no such setting; it is for listeners",
            ),
            (
                r#"{"place":"listener","profile":"LTE"}"#,
                "profile: no link is named \"LTE\"; there are own, dial-up, ",
            ),
            (r#"{"place":"listener","rate":"1mb/s"}"#, "did you mean \"MB/s\"?"),
            (r#"{"place":"listener","latency":"soon"}"#, "latency: "),
            (r#"{"place":"listener","latency":"1s","expires":"later"}"#, "expires: "),
            (
                r#"{"place":"route","name":"kept","response_delay":"1s"}"#,
                "has a cache, and hits would not be delayed",
            ),
        ] {
            let refusal =
                ShapingOverrides::default().amend(&order(json), &file(), Time::START).expect_err(json);
            assert!(refusal.to_string().contains(expected), "{json}: {refusal}");
        }
        let mut shaping_overrides = ShapingOverrides::default();
        assert!(shaping_overrides.remove(PlaceKind::Listener, "front", &file()).is_err());
    }

    /// A link profile follows the file. If the file no longer has it, the place returns to the file's settings.
    #[test]
    fn a_link_of_a_file_changes_with_it() {
        let mut shaping_overrides = ShapingOverrides::default();
        shaping_overrides
            .amend(&order(r#"{"place":"listener","profile":"own"}"#), &file(), Time::START)
            .expect("it is there");
        let over = |text: &str| {
            let mut config = config::parse(text, "f").expect("it is right").into_settings();
            shaping_overrides.over(&mut config);
            shown(&config)
        };
        assert_eq!(over(FILE), "7MB/s/6MB/s 9ms 5ms 2% 1ms, 8MB/s/ 8ms -, / - - -");
        let slower = FILE.replace("7MB/s", "3MB/s");
        assert_eq!(over(&slower), "3MB/s/6MB/s 9ms 5ms 2% 1ms, 8MB/s/ 8ms -, / - - -");
        let without = FILE.replace("profile.own", "profile.other");
        assert_eq!(over(&without), "9MB/s/ - 9ms -, 8MB/s/ 8ms -, / - - -");
    }

    #[test]
    fn changes_end_by_themselves() {
        let mut shaping_overrides = ShapingOverrides::default();
        let at = Time::from_millis;
        for (json, now) in [
            (r#"{"place":"listener","rate":"1MB/s","expires":"30ms"}"#, 0),
            (r#"{"place":"upstream","rate":"1MB/s","expires":"10ms"}"#, 5),
            (r#"{"place":"route","name":"rest","rate":"1MB/s"}"#, 5),
        ] {
            shaping_overrides.amend(&order(json), &file(), at(now)).unwrap_or_else(|error| panic!("{error}"));
        }
        assert_eq!(shaping_overrides.next_end(), Some(at(15)));
        assert!(shaping_overrides.expire(at(14)).is_empty());
        let named = |place, name: &str| PlaceNamed { place, name: name.to_owned() };
        assert_eq!(shaping_overrides.expire(at(15)), [named(PlaceKind::Upstream, "app")]);
        assert_eq!(
            shaping_overrides.for_kind(PlaceKind::Listener, "front", at(20)),
            Some(Some(Duration::from_millis(10)))
        );
        assert_eq!(shaping_overrides.for_kind(PlaceKind::Route, "rest", at(20)), Some(None));
        let left: Vec<Option<String>> = shaping_overrides.orders(at(20)).map(|order| order.expires).collect();
        assert_eq!(left, [Some("10ms".to_owned()), None]);
        assert_eq!(shaping_overrides.expire(at(30)), [named(PlaceKind::Listener, "front")]);
        // A listener is found by its address as well.
        shaping_overrides
            .amend(&order(r#"{"place":"listener","rate":"none"}"#), &file(), at(30))
            .expect("is right");
        shaping_overrides.remove(PlaceKind::Listener, "127.0.0.1:1", &file()).expect("is there");
        assert_eq!(shaping_overrides.next_end(), None);
    }
}
