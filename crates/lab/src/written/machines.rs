//! Tables `[machine.client]`, `[machine.proxy]` and `[machine.origin]` of a plan. Default: all on this machine.

use std::collections::HashSet;
use std::net::IpAddr;
use std::path::PathBuf;

use serde::Deserialize;

use super::Each;
use crate::site::Host;
use crate::sites::Placement;

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct RawMachines {
    client: Option<RawMachine>,
    proxy: Option<RawMachine>,
    origin: Option<RawMachine>,
}

/// A machine. Only clients may have a list.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawMachine {
    ssh: Option<Each<String>>,
    #[serde(default)]
    options: Vec<String>,
    address: Option<IpAddr>,
    program: Option<PathBuf>,
}

impl RawMachines {
    pub(super) fn placement(self) -> Result<Placement, String> {
        let hosts = |machine: Option<RawMachine>| {
            machine.map_or_else(|| Ok(vec![Host::default()]), RawMachine::hosts)
        };
        let one = |name: &str, machine: Option<RawMachine>| match &hosts(machine)?[..] {
            [host] => Ok(host.clone()),
            _ => {
                Err(format!("[machine.{name}] must name one machine; only [machine.client] may name several"))
            }
        };
        Ok(Placement {
            proxy: one("proxy", self.proxy)?,
            origins: one("origin", self.origin)?,
            clients: hosts(self.client)?,
        })
    }
}

impl RawMachine {
    fn hosts(self) -> Result<Vec<Host>, String> {
        let Self { ssh, options, address, program } = self;
        let Some(Each(all)) = ssh else {
            return Ok(vec![Host { ssh: None, options, address, program: None }]);
        };
        // ssh would read a leading dash as a flag.
        if let Some(wrong) = all.iter().find(|one| one.is_empty() || one.starts_with('-')) {
            return Err(format!("{wrong:?} is not a machine; expected \"host\" or \"user@host\""));
        }
        let mut seen = HashSet::new();
        if all.is_empty() || !all.iter().all(|one| seen.insert(one.clone())) {
            return Err("ssh = [...] must name at least one machine, and none twice".to_owned());
        }
        let host = |ssh| Host { ssh: Some(ssh), options: options.clone(), address, program: program.clone() };
        Ok(all.into_iter().map(host).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Placement, String> {
        toml::from_str::<RawMachines>(text).map_err(|error| error.message().to_owned())?.placement()
    }

    #[test]
    fn what_is_not_said_is_here() {
        assert_eq!(read(""), Ok(Placement::default()));
        let addressed = read("proxy = { address = \"10.0.0.1\" }").expect("a placement");
        assert_eq!((addressed.proxy.ssh, addressed.proxy.address), (None, "10.0.0.1".parse().ok()));
    }

    #[test]
    fn several_clients_make_one_load_and_the_rest_is_one_machine_each() {
        let placed = read(
            "client = { ssh = [\"a\", \"root@b\"], options = [\"-F\", \"f\"] }\nproxy = { ssh = \"c\" }\norigin = { ssh = \"c\" }\n",
        )
        .expect("a placement");
        let named: Vec<_> = placed.clients.iter().map(|host| host.ssh.as_deref()).collect();
        assert_eq!(named, [Some("a"), Some("root@b")]);
        assert!(placed.clients.iter().all(|host| host.options == ["-F", "f"]));
        assert_eq!(placed.proxy, placed.origins);
    }

    #[test]
    fn what_is_no_machine_is_refused() {
        for (text, said) in [
            ("proxy = { ssh = [\"a\", \"b\"] }", "[machine.proxy] must name one machine"),
            ("origin = { ssh = \"-oProxyCommand=sh\" }", "is not a machine"),
            ("client = { ssh = [\"a\", \"a\"] }", "none twice"),
            ("client = { ssh = [] }", "at least one machine"),
            ("server = { ssh = \"a\" }", "unknown field"),
        ] {
            let refused = read(text).expect_err(text);
            assert!(refused.contains(said), "{text}: {refused}");
        }
    }
}
