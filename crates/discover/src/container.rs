//! Containers, as Docker and Podman describe them (`GET /containers/ID/json`).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::Value;

/// The parts of a container's description that routes and upstreams depend on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Container {
    /// Without the leading slash.
    pub name: String,
    pub(crate) labels: BTreeMap<String, String>,
    networks: BTreeMap<String, IpAddr>,
    /// Uses the network of the host (`--network host`).
    is_on_host: bool,
    /// TCP ports that the image or the command line exposes.
    exposed: BTreeSet<u16>,
    /// Host addresses of published TCP ports, by container port.
    published: BTreeMap<u16, (IpAddr, u16)>,
    pub(crate) state: ContainerState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ContainerState {
    #[default]
    Running,
    /// The container's health check has not succeeded yet, or has failed.
    Unhealthy,
    Stopped,
}

impl Container {
    pub fn read(told: &Value) -> Option<Self> {
        let config = &told["Config"];
        let name = told["Name"].as_str()?.trim_start_matches('/').to_owned();
        let labels = config["Labels"].as_object().into_iter().flatten();
        let settings = &told["NetworkSettings"];
        let networks = settings["Networks"].as_object().into_iter().flatten();
        let ports = settings["Ports"].as_object().into_iter().flatten();
        let exposed = config["ExposedPorts"].as_object().into_iter().flatten().map(|(port, _)| port);
        let address = |network: &Value| {
            let of = |key: &str| network[key].as_str()?.parse::<IpAddr>().ok();
            of("IPAddress").or_else(|| of("GlobalIPv6Address"))
        };
        let published = |bindings: &Value| {
            let binding = bindings.as_array()?.first()?;
            let ip = binding["HostIp"].as_str()?.parse::<IpAddr>().ok().filter(|ip| !ip.is_unspecified());
            Some((ip.unwrap_or(IpAddr::from([127, 0, 0, 1])), binding["HostPort"].as_str()?.parse().ok()?))
        };
        Some(Self {
            name,
            labels: labels
                .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
                .collect(),
            networks: networks
                .filter_map(|(name, network)| Some((name.clone(), address(network)?)))
                .collect(),
            is_on_host: told["HostConfig"]["NetworkMode"] == "host",
            exposed: ports
                .clone()
                .map(|(port, _)| port)
                .chain(exposed)
                .filter_map(|port| tcp(port))
                .collect(),
            published: ports
                .filter_map(|(port, bindings)| Some((tcp(port)?, published(bindings)?)))
                .collect(),
            state: state(&told["State"]),
        })
    }

    pub(crate) fn label(&self, name: &str) -> Option<&str> {
        self.labels.get(name).map(String::as_str)
    }

    /// Returns the address at which a port is reached, in the named network if there is one. An error says what to do.
    pub(crate) fn place(&self, port: u16, network: Option<&str>) -> Result<(IpAddr, u16), String> {
        if self.is_on_host {
            return Ok((IpAddr::from([127, 0, 0, 1]), port));
        }
        match network {
            Some(network) => {
                let names: Vec<&str> = self.networks.keys().map(String::as_str).collect();
                let wrong = || format!("it has no address in network {network:?}, but in {}", listed(&names));
                self.networks.get(network).map(|address| (*address, port)).ok_or_else(wrong)
            }
            None => match self.networks.first_key_value() {
                Some((_, address)) => Ok((*address, port)),
                None => self.published.get(&port).copied().ok_or_else(|| {
                    format!("it has no address, and its port {port} is not published on the machine: publish it (-p)")
                }),
            },
        }
    }

    pub(crate) fn networks(&self) -> usize {
        self.networks.len()
    }

    /// Returns the only TCP port that the container names; else the lowest one and `true`. Fails if it names none.
    pub(crate) fn port(&self) -> Result<(u16, bool), String> {
        let port = self.exposed.first().ok_or("it exposes no TCP port: set its port in a label")?;
        Ok((*port, self.exposed.len() > 1))
    }
}

fn listed(names: &[&str]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn tcp(port: &str) -> Option<u16> {
    port.strip_suffix("/tcp")?.parse().ok()
}

fn state(told: &Value) -> ContainerState {
    // Podman's own API calls it Healthcheck, unlike its Docker-compatible one.
    let health = told["Health"]["Status"].as_str().unwrap_or_default();
    match (told["Running"].as_bool(), told["Paused"].as_bool(), health) {
        (Some(false), ..) | (_, Some(true), _) => ContainerState::Stopped,
        (_, _, "starting" | "unhealthy") => ContainerState::Unhealthy,
        _ => ContainerState::Running,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn container(told: &Value) -> Container {
        Container::read(told).expect("it is one")
    }

    #[test]
    fn places() {
        let network = |address: &str| json!({ "IPAddress": address });
        for (told, port, network, expected) in [
            (json!({ "Networks": { "bridge": network("172.17.0.2") } }), 80, None, Ok("172.17.0.2:80")),
            (
                json!({ "Networks": { "a": network("10.0.0.2"), "b": network("10.0.1.2") } }),
                80,
                Some("b"),
                Ok("10.0.1.2:80"),
            ),
            (
                json!({ "Networks": { "a": network("10.0.0.2") } }),
                80,
                Some("c"),
                Err("it has no address in network \"c\", but in a"),
            ),
            // Rootless Podman: containers have only an address on the host.
            (
                json!({ "Networks": { "pasta": network("") }, "Ports": { "80/tcp": [{ "HostIp": "0.0.0.0", "HostPort": "8080" }] } }),
                80,
                None,
                Ok("127.0.0.1:8080"),
            ),
            (
                json!({ "Ports": { "80/tcp": [{ "HostIp": "10.9.9.9", "HostPort": "8080" }] } }),
                80,
                None,
                Ok("10.9.9.9:8080"),
            ),
            (
                json!({ "Ports": { "80/tcp": null } }),
                80,
                None,
                Err("it has no address, and its port 80 is not published on the machine: publish it (-p)"),
            ),
        ] {
            let told = json!({ "Name": "/web", "NetworkSettings": told });
            let place = container(&told).place(port, network).map(|(ip, port)| format!("{ip}:{port}"));
            assert_eq!(place.as_deref().map_err(String::as_str), expected, "{told}");
        }
        let host = json!({ "Name": "/web", "HostConfig": { "NetworkMode": "host" } });
        assert_eq!(container(&host).place(9000, None), Ok((IpAddr::from([127, 0, 0, 1]), 9000)));
    }

    #[test]
    fn ports_and_states() {
        let told = json!({ "Name": "/web", "Config": { "ExposedPorts": { "8080/tcp": {}, "53/udp": {} } } });
        assert_eq!(container(&told).port(), Ok((8080, false)));
        let told =
            json!({ "Name": "/web", "NetworkSettings": { "Ports": { "9000/tcp": null, "80/tcp": null } } });
        assert_eq!(container(&told).port(), Ok((80, true)));
        assert!(container(&json!({ "Name": "/web" })).port().is_err());
        for (told, expected) in [
            (json!({ "Running": true }), ContainerState::Running),
            (json!({ "Running": true, "Health": { "Status": "healthy" } }), ContainerState::Running),
            (json!({ "Running": true, "Health": { "Status": "" } }), ContainerState::Running),
            (json!({ "Running": true, "Health": { "Status": "starting" } }), ContainerState::Unhealthy),
            (json!({ "Running": true, "Health": { "Status": "unhealthy" } }), ContainerState::Unhealthy),
            (json!({ "Running": false }), ContainerState::Stopped),
            (json!({ "Running": true, "Paused": true }), ContainerState::Stopped),
        ] {
            assert_eq!(state(&told), expected, "{told}");
        }
        assert_eq!(Container::read(&json!([])), None);
    }
}
