//! Messages between the lab and its agents: an order and its answer are one line of JSON each, in order.
//!
//! Both ends are the same version of the same program, which is checked, so the format needs no compatibility.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use report::results::{Absent, Cores, Machine, Network, Outcome, Process, Watched};
use serde::{Deserialize, Serialize};

use crate::generator::Request;
use crate::origins::{self, Addresses};
use crate::plan::{Deviation, Payload};
use crate::proxies::{Installed, Service, Template};

/// Order to an agent.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Ask {
    /// First order: the task of the machine.
    Begin(Share),
    /// Asks for the time of the agent's clock.
    Clock,
    /// Asks which of these proxies are installed.
    Look(Wanted),
    /// Asks what each of these proxies does not support of its service.
    Refusals(Vec<(Installed, Service)>),
    /// Writes a file into the agent's folder, readable only by its owner.
    Put {
        /// File name.
        name: String,
        /// Text of the file.
        text: String,
    },
    /// Starts origins.
    Origins(origins::Wanted),
    /// Asks whether the origins still run.
    AreOriginsUp,
    /// Starts a proxy and waits until it serves the payload.
    Proxy {
        /// The proxy.
        installed: Installed,
        /// Task of the proxy.
        service: Box<Service>,
        /// Response that the probe requests.
        payload: Payload,
    },
    /// Ends the proxy.
    StopProxy,
    /// Sends load without measuring.
    WarmUp(Load),
    /// Samples the usage, and sends load or waits for [`Ask::Enough`].
    Measure(Measurement),
    /// Ends a measurement on a machine that sends no load.
    Enough,
    /// Keep-alive message without an answer.
    Alive,
}

/// Task of a machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Share {
    pub(crate) client: bool,
    pub(crate) proxy: bool,
    pub(crate) origins: bool,
    /// Highest number of workers of a proxy in the plan.
    pub(crate) workers: usize,
}

/// Proxies of a plan.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Wanted {
    /// Names of the proxies, in order.
    pub names: Vec<String>,
    /// Programs that only the plan knows.
    pub commands: Vec<(String, Template)>,
    /// Services that run already.
    pub targets: Vec<(String, Server)>,
    /// Programs of known proxies in other versions, such as `nginx@1.22`.
    pub programs: Vec<(String, PathBuf)>,
    /// Settings that differ for some proxies.
    pub deviations: BTreeMap<String, Deviation>,
}

/// A service that runs already.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Server {
    /// Scheme, host and port: `http://127.0.0.1:8080`.
    pub url: String,
    /// The port.
    pub port: u16,
}

impl From<Server> for String {
    fn from(server: Server) -> Self {
        server.url
    }
}

impl TryFrom<String> for Server {
    type Error = String;

    fn try_from(written: String) -> Result<Self, String> {
        let refused = || {
            format!(
                "{written:?} is no service; expected http:// or https:// with a host, perhaps a port, and no path: a case \
                 has the path"
            )
        };
        let (scheme, rest) = written.split_once("://").ok_or_else(refused)?;
        let default = match scheme {
            "http" => 80,
            "https" => 443,
            _ => return Err(refused()),
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        let is_other = |c: char| c.is_whitespace() || c.is_control() || "/?#@\\\"<>".contains(c);
        if authority.is_empty() || authority.contains(is_other) {
            return Err(refused());
        }
        // The colons of an IPv6 address are in brackets.
        let port = match authority.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')) {
            Some((host, port)) if !host.is_empty() => port.parse().map_err(|_| refused())?,
            Some(_) => return Err(refused()),
            None => default,
        };
        let url = if authority.ends_with(&format!(":{port}")) {
            format!("{scheme}://{authority}")
        } else {
            format!("{scheme}://{authority}:{port}")
        };
        Ok(Self { url, port })
    }
}

/// Load to send.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Load {
    /// Name of the generator.
    pub(crate) generator: String,
    pub(crate) request: Request,
}

/// Order to measure, for one machine.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Measurement {
    /// Start of the measurement by the agent's clock; `None` is at once.
    pub(crate) at: Option<Duration>,
    /// Longest interval between two samples of the usage.
    pub(crate) every: Duration,
    /// Port of the proxy; without a proxy, the port of the origin.
    pub(crate) port: u16,
    pub(crate) origin_ports: Vec<u16>,
    pub(crate) load: Option<Load>,
}

/// Answer of an agent.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Begun(Box<Begun>),
    /// Time since the agent began.
    Clock(Duration),
    Looked {
        here: Vec<Installed>,
        absent: Vec<Absent>,
    },
    /// Reasons in the order of the services; `None` for a supported one.
    Refusals(Vec<Option<String>>),
    Origins {
        addresses: Addresses,
        processes: Vec<Process>,
    },
    /// Address of the proxy, and how it was started; `None` if there is nothing to start.
    Proxy(Option<(SocketAddr, Process)>),
    Seen(Box<Seen>),
    Done,
    /// The order failed, with the reason.
    Failed(String),
}

/// First answer: the agent is ready.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Begun {
    /// Version of the program.
    pub(crate) version: String,
    pub(crate) machine: Machine,
    pub(crate) cores: Cores,
    /// Load averages over 1, 5 and 15 minutes.
    pub(crate) load_average: [f64; 3],
    /// Folder of the agent's files.
    pub(crate) folder: PathBuf,
    /// Addresses of the ssh connection, if there is one: of the lab, and of this machine.
    pub(crate) reached: Option<(IpAddr, IpAddr)>,
}

/// Results of one machine for a measurement.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Seen {
    /// Command line and outcome of the load; `None` if the machine sent none.
    pub(crate) load: Option<(String, Outcome)>,
    pub(crate) proxy: Option<Watched>,
    /// How the proxy ended, if it ended.
    pub(crate) proxy_end: Option<String>,
    pub(crate) origins: Option<Watched>,
    pub(crate) generator: Option<Watched>,
    pub(crate) origins_cpu_seconds: Option<f64>,
    pub(crate) origin_connections: Option<u64>,
    pub(crate) machine_cpu_seconds: Option<f64>,
    pub(crate) network: Network,
}
