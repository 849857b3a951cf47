//! `Config`: settings without mistakes, and checked edits of them.
//!
//! A check prints the settings as a file and reads that file, so that edits obey the rules of files, and no rule exists
//! twice. Edits are rare (flags, a reload, a command of the admin API), and cost as much as a reload.

use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;

use crate::read::parse;
use crate::resolve::unique;
use crate::settings::{Listener, Server, Settings};
use crate::substitution::Secret;
use mistake::{Mistake, Places};

/// A valid configuration: settings that were checked, and cannot change without another check.
#[derive(Debug, Clone)]
pub struct Config(Settings, Arc<[Secret]>);

/// Two are the same if they do the same, wherever their values came from.
impl PartialEq for Config {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

/// Gives read access to the settings. They are never changed in place.
impl Deref for Config {
    type Target = Settings;

    fn deref(&self) -> &Settings {
        &self.0
    }
}

impl Config {
    /// Wraps settings of a file in which no mistake was found.
    /// `secrets` are those that its files refer to, which are not printed.
    pub(crate) fn checked(settings: Settings, secrets: &[Secret]) -> Self {
        Self(settings, secrets.into())
    }

    /// The secrets that the files refer to.
    pub(crate) fn secrets(&self) -> &[Secret] {
        &self.1
    }

    /// The configuration of a proxy without a file, as `Settings::for_servers`.
    ///
    /// # Panics
    /// If the addresses or servers are no valid configuration.
    pub fn for_servers(listeners: Vec<SocketAddr>, servers: Vec<Server>) -> Self {
        Self::new(Settings::for_servers(listeners, servers))
            .unwrap_or_else(|mistakes| panic!("these servers are a configuration: {mistakes:?}"))
    }

    /// Checks settings. Listeners without a name that share an address are numbered.
    ///
    /// # Errors
    /// All mistakes. Positions refer to the file that `Settings::to_toml` prints.
    pub fn new(mut settings: Settings) -> Result<Self, Vec<Mistake>> {
        let mistakes = dangling(&settings);
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        name_listeners(&mut settings.listeners);
        parse(&settings.to_toml(), EDITED)?;
        Ok(Self(settings, Arc::default()))
    }

    /// Returns the configuration with a change. The only way from one valid configuration to another.
    ///
    /// # Errors
    /// All mistakes of the result. `self` never changes.
    pub fn edit(&self, change: impl FnOnce(&mut Settings)) -> Result<Self, Vec<Mistake>> {
        let mut settings = self.0.clone();
        change(&mut settings);
        let checked = if settings == self.0 { settings } else { Self::new(settings)?.0 };
        Ok(Self(checked, Arc::clone(&self.1)))
    }

    /// Returns the settings, which can be changed and checked again.
    pub fn into_settings(self) -> Settings {
        self.0
    }
}

/// The file name in mistakes of settings that are in no file.
const EDITED: &str = "the changed configuration";

/// Indices that lead nowhere. They cannot be printed: a file has names.
fn dangling(settings: &Settings) -> Vec<Mistake> {
    let known = |index: &usize| *index < settings.upstreams.len();
    let heard = |index: &usize| *index < settings.listeners.len();
    let of_routes = settings.routes.iter().filter(|route| {
        let leads_nowhere = !route.upstreams().all(|index| known(&index));
        leads_nowhere || !route.rules.iter().flat_map(|rule| &rule.listeners).all(heard)
    });
    let of_routes =
        of_routes.map(|route| format!("route {:?}: its upstream or listener does not exist", route.name));
    let of_listeners = settings.listeners.iter().filter(|listener| {
        let passed = listener.passthrough.iter().flat_map(crate::Passthrough::upstreams);
        !listener.tcp.into_iter().chain(passed).all(|index| known(&index))
    });
    let of_listeners =
        of_listeners.map(|listener| format!("listener {:?}: its upstream does not exist", listener.name));
    let place = Places::new("", EDITED);
    of_routes.chain(of_listeners).map(|message| place.mistake(&(0..0), message)).collect()
}

/// Gives each listener a name of its own, as reading a file does.
fn name_listeners(listeners: &mut [Listener]) {
    let names = unique(listeners.iter().map(|listener| {
        let default = listener.address.to_string();
        ((listener.name != default).then(|| listener.name.clone()), default)
    }));
    for (listener, name) in listeners.iter_mut().zip(names) {
        listener.name = name;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Route;

    fn address(text: &str) -> SocketAddr {
        text.parse().expect("is an address")
    }

    fn config() -> Config {
        let server = "http://127.0.0.1:9000".parse().expect("is a URL");
        Config::for_servers(vec![address("127.0.0.1:8080")], vec![server])
    }

    #[test]
    fn an_edit_changes_what_it_names_and_nothing_else() {
        let edited = config().edit(|settings| settings.shed.concurrency = None).expect("is valid");
        assert_eq!(edited.shed.concurrency, None);
        let back = edited.edit(|settings| settings.shed = config().shed).expect("is valid");
        assert_eq!(back, config());
    }

    /// Each of these was a `Config` once that could only panic, or serve the wrong requests.
    #[test]
    fn an_edit_with_a_mistake_is_refused() {
        type Edit = fn(&mut Settings);
        let cases: [(&str, Edit); 9] = [
            ("does not exist", |settings| settings.routes[0].action = crate::Action::Upstream(1)),
            ("does not exist", |settings| settings.listeners[0].tcp = Some(7)),
            ("does not exist", |settings| settings.routes[0].rules[0].listeners = vec![3]),
            ("no listen", |settings| settings.listeners.clear()),
            ("no route", |settings| settings.routes.clear()),
            ("is there twice", |settings| settings.routes.push(Route::to(None, "/", 0))),
            ("is there twice", |settings| {
                settings.listeners.push(Listener::plain(address("127.0.0.1:8080")));
            }),
            ("servers", |settings| settings.upstreams[0].servers.clear()),
            ("servers", |settings| {
                settings.upstreams[0].servers.push("tcp://127.0.0.1:9001".parse().expect("is a URL"));
            }),
        ];
        for (expected, edit) in cases {
            let mistakes = config().edit(edit).expect_err(expected);
            let sentences: Vec<String> = mistakes.iter().map(Mistake::sentence).collect();
            assert!(
                sentences.iter().any(|sentence| sentence.contains(expected)),
                "{expected}: {sentences:?}"
            );
        }
    }

    /// The kernel chooses a port for each of them.
    #[test]
    fn listeners_without_names_may_share_port_0() {
        let any = address("127.0.0.1:0");
        let edited = config().edit(|settings| settings.listeners = vec![Listener::plain(any); 2]);
        let edited = edited.expect("is valid");
        let names: Vec<&str> = edited.listeners.iter().map(|listener| listener.name.as_str()).collect();
        assert_eq!(names, ["127.0.0.1:0", "127.0.0.1:0 #2"]);
    }
}
