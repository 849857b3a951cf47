//! `Config`: settings without mistakes, and checked edits of them.
//!
//! An edit costs a pass over the pointers to routes and upstreams, and the checks of what it touches.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;

use mistake::Mistake;

use crate::checks::settings::Part;
use crate::document::text::Document;
use crate::option::server::Server;
use crate::option::shared::Shared;
use crate::tables::listen::Listener;
use crate::tables::names::unique;
use crate::tables::settings::Settings;

/// A valid configuration: settings that were checked, and the text that they were read from. Clones share them.
#[derive(Debug, Clone)]
pub struct Config {
    settings: Arc<Settings>,
    /// The settings that the text means, without changes.
    read: Arc<Settings>,
    document: Arc<Document>,
}

/// Two are the same if they do the same, wherever their values came from.
impl PartialEq for Config {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.settings, &other.settings) || self.settings == other.settings
    }
}

/// Gives read access to the settings. They are never changed in place.
impl Deref for Config {
    type Target = Settings;

    fn deref(&self) -> &Settings {
        &self.settings
    }
}

impl Config {
    /// Wraps settings in which no mistake was found.
    pub(crate) fn checked(settings: Settings, document: Document) -> Self {
        let settings = Arc::new(settings);
        Self { read: Arc::clone(&settings), settings, document: Arc::new(document) }
    }

    /// The text that was read.
    pub(crate) fn document(&self) -> &Document {
        &self.document
    }

    /// The settings that the document means, without changes.
    pub(crate) fn as_read(&self) -> &Settings {
        &self.read
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
    /// The rules that the settings break. Ranges of single values are not among them.
    pub fn new(mut settings: Settings) -> Result<Self, Vec<Mistake>> {
        name_listeners(&mut settings.listeners);
        let broken = Part::whole(&settings).check(&settings);
        if broken.is_empty() { Ok(Self::checked(settings, Document::default())) } else { Err(broken) }
    }

    /// Returns the configuration with a change. The only way from one valid configuration to another. Checks what the
    /// change touches.
    ///
    /// # Errors
    /// The rules that the result breaks. `self` never changes.
    pub fn edit(&self, change: impl FnOnce(&mut Settings)) -> Result<Self, Vec<Mistake>> {
        let mut settings = Settings::clone(&self.settings);
        change(&mut settings);
        share(&mut settings, &self.settings);
        name_listeners(&mut settings.listeners);
        let Some(part) = Part::changed(&self.settings, &settings) else { return Ok(self.clone()) };
        let broken = part.check(&settings);
        if !broken.is_empty() {
            return Err(broken);
        }
        let settings = if settings == *self.read { Arc::clone(&self.read) } else { Arc::new(settings) };
        Ok(Self { settings, read: Arc::clone(&self.read), document: Arc::clone(&self.document) })
    }

    /// Keeps the routes and upstreams of another configuration that are equal here, in the place of their copies: what
    /// was made of them need not be made again.
    pub fn sharing(self, other: &Self) -> Self {
        if Arc::ptr_eq(&self.settings, &other.settings) {
            return self;
        }
        let Self { settings, read, document } = self;
        let is_as_read = Arc::ptr_eq(&settings, &read);
        let shared = |settings: Arc<Settings>, with: &Settings| {
            let mut settings = Arc::unwrap_or_clone(settings);
            share(&mut settings, with);
            Arc::new(settings)
        };
        if is_as_read {
            drop(read);
            let settings = shared(settings, &other.settings);
            return Self { read: Arc::clone(&settings), settings, document };
        }
        let settings = shared(settings, &other.settings);
        Self { read: shared(read, &settings), settings, document }
    }

    /// Returns the settings, which can be changed and checked again.
    pub fn into_settings(self) -> Settings {
        let Self { settings, read, .. } = self;
        drop(read);
        Arc::unwrap_or_clone(settings)
    }
}

/// Replaces routes and upstreams by those of `before` that are equal.
fn share(settings: &mut Settings, before: &Settings) {
    share_list(&mut settings.routes, &before.routes, |route| &route.name);
    share_list(&mut settings.upstreams, &before.upstreams, |upstream| &upstream.name);
}

fn share_list<T: PartialEq>(list: &mut [Shared<T>], before: &[Shared<T>], name: fn(&T) -> &str) {
    let mut by_name = None;
    for (place, item) in list.iter_mut().enumerate() {
        let at_place = before.get(place);
        if at_place.is_some_and(|before| item.share_with(before) || name(before) == name(item)) {
            continue;
        }
        let by_name = by_name
            .get_or_insert_with(|| before.iter().map(|item| (name(item), item)).collect::<HashMap<_, _>>());
        if let Some(before) = by_name.get(name(item)) {
            item.share_with(before);
        }
    }
}

/// Numbers listeners that have one default name, as reading a file does.
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
    use crate::read::parse;
    use crate::tables::route::Route;

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
            ("does not exist", |settings| settings.listeners[0].tcp = route::Split::new([(7, "", 1)])),
            ("does not exist", |settings| settings.routes[0].rules[0].listeners = vec![3]),
            ("no listen", |settings| settings.listeners.clear()),
            ("no route", |settings| settings.routes.clear()),
            ("appears twice", |settings| settings.routes.push(Route::to(None, "/", 0).into())),
            ("appears twice", |settings| {
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

    /// The rest is neither copied nor looked at.
    #[test]
    fn an_edit_keeps_what_it_does_not_touch() {
        let config = parse(MANY, "f").expect("is valid");
        let edited = config.edit(|settings| {
            settings.upstreams[1].servers[0].weight = 7;
            // Not changed in the end.
            settings.routes[0].name.push('x');
            settings.routes[0].name.pop();
        });
        let edited = edited.expect("is valid");
        let kept = |place: usize| {
            let upstreams = [&edited.upstreams, &config.upstreams].map(|upstreams| &upstreams[place]);
            let routes = [&edited.routes, &config.routes].map(|routes| &routes[place]);
            [upstreams[0].is_one_with(upstreams[1]), routes[0].is_one_with(routes[1])]
        };
        assert_eq!([kept(0), kept(1)], [[true, true], [false, true]]);
        let again = parse(&MANY.replace("https://two", "https://other"), "f").expect("is valid");
        let again = again.sharing(&config);
        assert!(again.upstreams[0].is_one_with(&config.upstreams[0]));
        assert!(again.routes.iter().zip(&config.routes).all(|(one, other)| one.is_one_with(other)));
    }

    /// Faults, certificates and listeners name routes and upstreams that an edit does not touch.
    #[test]
    fn an_edit_is_checked_beside_all_that_refers_to_others() {
        let config = parse(MANY, "f").expect("is valid");
        let edited = config.edit(|settings| settings.upstreams[0].servers[0].weight = 7);
        assert_eq!(edited.map(|edited| edited.upstreams[0].servers[0].weight), Ok(7));
        let edited = config.edit(|settings| settings.routes[1].shaping.response_delay = None);
        assert_eq!(edited, Ok(config.clone()));
        type Edit = fn(&mut Settings);
        let cases: [(&str, Edit); 4] = [
            ("HTTP/1.1", |settings| settings.upstreams[1].protocol = crate::Protocol::Http1),
            ("no HTTP", |settings| {
                settings.upstreams[1].servers = vec!["tcp://two:2".parse().expect("is a URL")];
            }),
            ("needs a store", |settings| settings.cache = None),
            ("cannot use it", |settings| {
                settings.routes[0].shaping.response_delay = Some(crate::delay("1s").expect("is a delay"));
            }),
        ];
        for (expected, edit) in cases {
            let mistakes = config.edit(edit).expect_err(expected);
            let all: Vec<String> = mistakes.iter().map(Mistake::sentence).collect();
            assert!(all.iter().any(|sentence| sentence.contains(expected)), "{expected}: {all:?}");
        }
    }

    const MANY: &str = r#"
[[listen]]
address = "127.0.0.1:8443"
tls = { certificates = "auto", one_certificate = true }
[[listen]]
address = "127.0.0.1:5432"
tcp = "three"
[acme]
folder = "/var/lib/acme"
contact = "a@example.com"
ports_forwarded = true
[cache]
memory = "1MiB"
[[route]]
host = "one.example.com"
upstream = "one"
cache = {}
[[route]]
name = "two"
host = "two.example.com"
upstream = "two"
grpc_web = true
[upstream.one]
servers = ["http://one:1"]
[upstream.two]
servers = ["https://two:2"]
protocol = "h2"
[upstream.three]
servers = ["tcp://three:3"]
[[fault]]
name = "f"
route = "two"
inject = "503"
"#;

    /// Which instances share a cache is not known before a store tells it.
    #[test]
    fn the_servers_of_peers_may_be_none() {
        let peers = "[cache]\nmemory = \"1MiB\"\n[cache.peers]\nlisten = \"127.0.0.1:7000\"\n\
                     address = \"127.0.0.1:7000\"\nca = \"ca\"\ncert = \"cert\"\nkey = \"key\"\n";
        let file = "[[listen]]\naddress = \"127.0.0.1:80\"\n[[route]]\ncache = {}\nupstream = \"a\"\n\
                    [upstream.a]\nservers = [\"http://a:1\"]\n";
        let redis = "[redis]\nurl = \"redis://a\"\n";
        let config = parse(&format!("{file}{redis}{peers}"), "f").expect("is valid");
        let edited = config.edit(|settings| {
            settings.listeners[0].name = "x".to_owned();
            settings.upstreams[1].servers.clear();
        });
        assert!(edited.is_ok(), "{edited:?}");
    }

    #[test]
    fn a_socket_has_a_short_path() {
        let edited = config().edit(|settings| settings.admin = Some("/run/".to_owned().into()));
        assert!(edited.is_err());
        let edited = config().edit(|settings| settings.admin = Some("a".repeat(200).into()));
        assert!(edited.is_err());
        assert!(config().edit(|settings| settings.admin = Some("vanward.sock".into())).is_ok());
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
