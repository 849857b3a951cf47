//! Messages between the lab and its agents: an order and its answer are one line of JSON each, in order.
//!
//! Both ends are the same version of the same program, which is checked, so the format needs no compatibility.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use report::results::{Absent, Cores, MeasurementOutcome, Network, RunMachine, StartedProcess, WatchedUsage};
use serde::{Deserialize, Serialize};

use crate::generator::GeneratorRequest;
use crate::origins::{self, Addresses};
use crate::plan::{Deviation, OriginPayload};
use crate::proxies::{CommandTemplate, Installed, Service};

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum AgentOrder {
    /// First order: the task of the machine.
    Begin(MachineShare),
    Clock,
    /// Asks which of these proxies are installed.
    Look(WantedProxies),
    /// Asks which features of its service each of these proxies lacks.
    Refusals(Vec<(Installed, Service)>),
    /// Writes a file into the agent's folder, readable only by its owner.
    Put {
        name: String,
        text: String,
    },
    Origins(origins::OriginSettings),
    AreOriginsUp,
    /// Starts a proxy and waits until it serves the payload.
    Proxy {
        installed: Installed,
        service: Box<Service>,
        /// Response that the probe requests.
        payload: OriginPayload,
    },
    StopProxy,
    WarmUp(AgentLoad),
    /// Samples the usage, and sends load or waits for [`Ask::Enough`].
    Measure(Measurement),
    /// Ends a measurement on a machine that sends no load.
    Enough,
    /// Keep-alive message without an answer.
    Alive,
}

/// Parts of the lab that run on a machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MachineShare {
    pub(crate) client: bool,
    pub(crate) proxy: bool,
    pub(crate) origins: bool,
    /// Highest number of workers of a proxy in the plan.
    pub(crate) workers: usize,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct WantedProxies {
    /// Names of the proxies, in order.
    pub names: Vec<String>,
    /// Programs that only the plan knows.
    pub commands: Vec<(String, CommandTemplate)>,
    pub targets: Vec<(String, AgentService)>,
    /// Programs of known proxies in other versions, such as `nginx@1.22`.
    pub programs: Vec<(String, PathBuf)>,
    /// Settings that differ for some proxies.
    pub deviations: BTreeMap<String, Deviation>,
}

/// A service that runs already.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AgentService {
    /// Scheme, host and port: `http://127.0.0.1:8080`.
    pub url: String,
    pub port: u16,
}

impl From<AgentService> for String {
    fn from(server: AgentService) -> Self {
        server.url
    }
}

impl TryFrom<String> for AgentService {
    type Error = String;

    fn try_from(written: String) -> Result<Self, String> {
        let refused = || {
            format!(
                "{written:?} is not the URL of a service; expected http://HOST[:PORT] or https://HOST[:PORT]; the \
                 path belongs to a case"
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

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct AgentLoad {
    pub(crate) generator: String,
    pub(crate) request: GeneratorRequest,
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
    pub(crate) load: Option<AgentLoad>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum AgentReply {
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
        processes: Vec<StartedProcess>,
    },
    /// Address and command of the proxy; `None` if there is nothing to start.
    Proxy(Option<(SocketAddr, StartedProcess)>),
    Seen(Box<MachineResults>),
    Done,
    /// The order failed, with the reason.
    Failed(String),
}

/// First answer: the agent is ready.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Begun {
    pub(crate) version: String,
    pub(crate) machine: RunMachine,
    pub(crate) cores: Cores,
    /// Load averages over 1, 5 and 15 minutes.
    pub(crate) load_average: [f64; 3],
    pub(crate) folder: PathBuf,
    /// Addresses of the ssh connection, if there is one: of the lab, and of this machine.
    pub(crate) reached: Option<(IpAddr, IpAddr)>,
}

/// Results of one machine for a measurement.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct MachineResults {
    /// Command line and outcome of the load; `None` if the machine sent none.
    pub(crate) load: Option<(String, MeasurementOutcome)>,
    pub(crate) proxy: Option<WatchedUsage>,
    /// Exit status of the proxy, if it ended.
    pub(crate) proxy_end: Option<String>,
    pub(crate) origins: Option<WatchedUsage>,
    pub(crate) generator: Option<WatchedUsage>,
    pub(crate) origins_cpu_seconds: Option<f64>,
    pub(crate) origin_connections: Option<u64>,
    pub(crate) machine_cpu_seconds: Option<f64>,
    pub(crate) network: Network,
}
