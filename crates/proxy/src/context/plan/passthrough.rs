//! Selects upstreams for layer 4: undecrypted TLS by the server name and the protocols that a client requests, and shares
//! by weight.

use config::Config;
use route::Split;
use tls::{ClientHello, HostNames};

/// A listener's rules for TLS that is passed on.
#[derive(Debug)]
pub(crate) struct Passthrough {
    names: HostNames,
    /// Rules without server name.
    any: Vec<usize>,
    rules: Vec<PassthroughRule>,
}

#[derive(Debug)]
struct PassthroughRule {
    /// The client must offer one of these (ALPN); empty accepts any client.
    protocols: Vec<String>,
    to: UpstreamShares,
}

/// Upstreams that get connections by weight.
#[derive(Debug)]
pub(crate) struct UpstreamShares {
    to: Split,
    /// Indices and names of the upstreams.
    upstreams: Vec<(usize, String)>,
}

impl UpstreamShares {
    pub(crate) fn new(to: &Split, config: &Config) -> Self {
        let named = |(index, _): (usize, u32)| (index, config.upstreams[index].name.clone());
        Self { to: to.clone(), upstreams: to.shares().map(named).collect() }
    }

    /// Returns index and name of the upstream for a random number.
    pub(crate) fn draw(&self, random: u64) -> Option<&(usize, String)> {
        match self.upstreams.as_slice() {
            [only] => Some(only),
            several => {
                let drawn = self.to.among(|_| true).draw(random);
                several.iter().find(|(upstream, _)| *upstream == drawn)
            }
        }
    }
}

impl Passthrough {
    /// Compiles the rules of a listener; `None` without any.
    pub(crate) fn new(listener: &config::Listener, config: &Config) -> Option<Self> {
        let passthrough = &listener.passthrough;
        let is_any = |names: &[String]| names.iter().any(|name| name == "*");
        let rules = passthrough.iter().map(|one| PassthroughRule {
            protocols: one.protocols.clone(),
            to: UpstreamShares::new(&one.to, config),
        });
        (!passthrough.is_empty()).then(|| Self {
            names: HostNames::new(passthrough.iter().map(|one| one.names.as_slice())),
            any: (0..passthrough.len()).filter(|rule| is_any(&passthrough[*rule].names)).collect(),
            rules: rules.collect(),
        })
    }

    /// Returns index and name of the upstream for a client, by a random number; `None` if its TLS is not passed on.
    pub(crate) fn upstream(&self, hello: &ClientHello, random: u64) -> Option<&(usize, String)> {
        // Rules for the client's name come before those for any name.
        let named = hello.server_name.iter().flat_map(|name| self.names.having(name));
        let mut rules = named.chain(self.any.iter().copied()).map(|rule| &self.rules[rule]);
        let found = rules.find(|rule| {
            let offers = |protocol: &String| hello.protocols.iter().any(|one| **one == *protocol.as_bytes());
            rule.protocols.is_empty() || rule.protocols.iter().any(offers)
        });
        found?.to.draw(random)
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use config::{Settings, Upstream};

    use super::*;

    #[test]
    fn exact_names_come_before_wildcards_and_those_before_any() {
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut settings =
            Settings::for_servers(vec![address], vec!["http://127.0.0.1:1".parse().expect("is one")]);
        let first = settings.upstreams[0].clone();
        settings.upstreams = ["app", "a", "b", "c", "d", "e"]
            .map(|name| Upstream { name: name.to_owned(), ..Upstream::clone(&first) }.into())
            .into();
        settings.listeners[0].tcp = Split::new([(0, "app", 1)]);
        let one = |names: &[&str], protocols: &[&str], upstream| config::Passthrough {
            names: names.iter().map(ToString::to_string).collect(),
            protocols: protocols.iter().map(ToString::to_string).collect(),
            to: Split::new([(upstream, "", 1)]).expect("a share"),
        };
        settings.listeners[0].passthrough = vec![
            one(&["*"], &["imap"], 1),
            one(&["*.example.com"], &[], 2),
            one(&["www.example.com"], &["acme-tls/1", "h3"], 3),
            one(&["www.example.com"], &["h2"], 4),
            one(&["*.example.org", "b.example"], &[], 5),
        ];
        let config = testkit::scene::valid(settings);
        let passthrough = Passthrough::new(&config.listeners[0], &config).expect("it has rules");
        for (name, protocols, expected) in [
            (Some("www.example.com"), &["h3"][..], Some("c")),
            (Some("www.example.com"), &["http/1.1", "h2"], Some("d")),
            (Some("www.example.com"), &[], Some("b")),
            (Some("other.example.com"), &["imap"], Some("b")),
            (Some("a.b.example.com"), &["h2"], None),
            (Some("a.b.example.com"), &["imap"], Some("a")),
            (Some("b.example"), &["imap"], Some("e")),
            (Some("b.example"), &[], Some("e")),
            (None, &[], None),
            (None, &["imap"], Some("a")),
        ] {
            let hello = ClientHello {
                server_name: name.map(Into::into),
                protocols: protocols.iter().map(|protocol| protocol.as_bytes().into()).collect(),
            };
            let upstream = passthrough.upstream(&hello, 7).map(|(_, name)| name.as_str());
            assert_eq!(upstream, expected, "{name:?} {protocols:?}");
        }
    }

    #[test]
    fn shares_are_those_of_the_random_number() {
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut settings =
            Settings::for_servers(vec![address], vec!["http://127.0.0.1:1".parse().expect("is one")]);
        let first = settings.upstreams[0].clone();
        settings.upstreams.push(Upstream { name: "none".to_owned(), ..Upstream::clone(&first) }.into());
        settings.listeners[0].tcp = Split::new([(0, "app", 1)]);
        settings.listeners[0].passthrough = vec![config::Passthrough {
            names: vec!["*".to_owned()],
            protocols: Vec::new(),
            to: Split::new([(0, "app", 3), (1, "none", 1)]).expect("shares"),
        }];
        let config = testkit::scene::valid(settings);
        let passthrough = Passthrough::new(&config.listeners[0], &config).expect("it has rules");
        let hello = ClientHello { server_name: None, protocols: Vec::new() };
        let drawn = |random| passthrough.upstream(&hello, random).map(|(index, _)| *index);
        let last = u64::MAX / 4 * 3;
        assert_eq!([0, last, last + 4, u64::MAX].map(drawn), [0, 0, 1, 1].map(Some));
    }
}
