//! What the lab and its agents say to each other: a line of JSON for each ask, and one for each answer, in order.
//!
//! Both ends are the same version of the same program, which is checked: these words have no history to keep.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use report::results::{Absent, Cores, Machine, Network, Outcome, Process, Watched};
use serde::{Deserialize, Serialize};

use crate::generator::Request;
use crate::origins::{self, Addresses};
use crate::plan::{Deviation, Payload};
use crate::proxies::{Installed, Service};

/// What an agent is told to do.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Ask {
    /// The first: what its machine is for.
    Begin(Share),
    /// What its clock says.
    Clock,
    /// Which of these proxies are there.
    Look(Wanted),
    /// What each of these cannot do of what is asked for.
    Refusals(Vec<(Installed, Service)>),
    /// Writes a file into its folder, which nobody else may read.
    Put {
        /// Its name.
        name: String,
        /// Its text.
        text: String,
    },
    /// Starts origins.
    Origins(origins::Wanted),
    /// Whether they still run.
    AreOriginsUp,
    /// Starts a proxy and waits until it serves the payload.
    Proxy {
        /// Which.
        installed: Installed,
        /// What it is to do.
        service: Box<Service>,
        /// What it is probed with.
        payload: Payload,
    },
    /// Ends it.
    StopProxy,
    /// Sends load that is not looked at.
    WarmUp(Load),
    /// Watches what runs here, and sends load or waits for [`Ask::Enough`].
    Measure(Measurement),
    /// Ends a measurement where no load runs.
    Enough,
    /// Nothing: who asks is still there. Has no answer.
    Alive,
}

/// What a machine is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Share {
    pub(crate) client: bool,
    pub(crate) proxy: bool,
    pub(crate) origins: bool,
    /// The most workers that a proxy of the plan has.
    pub(crate) workers: usize,
}

/// The proxies that a plan wants.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Wanted {
    /// Their names, in order.
    pub names: Vec<String>,
    /// Programs that only the plan knows.
    pub commands: Vec<(String, Vec<String>)>,
    /// What some are given otherwise than the others.
    pub deviations: BTreeMap<String, Deviation>,
}

/// Load to be sent.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Load {
    /// The generator's name.
    pub(crate) generator: String,
    pub(crate) request: Request,
}

/// One measurement, as one machine takes part in it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Measurement {
    /// When it begins by the agent's clock; `None` is at once.
    pub(crate) at: Option<Duration>,
    /// The longest between two looks at what is used.
    pub(crate) every: Duration,
    /// Where the proxy listens, or without one the origin that stands for it.
    pub(crate) port: u16,
    pub(crate) origin_ports: Vec<u16>,
    pub(crate) load: Option<Load>,
}

/// What an agent says.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Begun(Box<Begun>),
    /// Since the agent began.
    Clock(Duration),
    Looked {
        here: Vec<Installed>,
        absent: Vec<Absent>,
    },
    /// In the order of what was asked; `None` where nothing is refused.
    Refusals(Vec<Option<String>>),
    Origins {
        addresses: Addresses,
        processes: Vec<Process>,
    },
    /// `None` where there is nothing to start.
    Proxy(Option<(SocketAddr, Process)>),
    Seen(Box<Seen>),
    Done,
    /// What was asked could not be done.
    Failed(String),
}

/// An agent that is ready.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Begun {
    /// The version of its program.
    pub(crate) version: String,
    pub(crate) machine: Machine,
    pub(crate) cores: Cores,
    /// Load averages over 1, 5 and 15 minutes.
    pub(crate) load_average: [f64; 3],
    /// Where its files are.
    pub(crate) folder: PathBuf,
    /// The addresses of the connection that it is spoken with over, if it is one: of who asks, and its own.
    pub(crate) reached: Option<(IpAddr, IpAddr)>,
}

/// What a machine saw of a measurement.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Seen {
    /// How the load was typed, and what came of it; `None` where none was sent.
    pub(crate) load: Option<(String, Outcome)>,
    pub(crate) proxy: Option<Watched>,
    /// How the proxy ended, if it did.
    pub(crate) proxy_end: Option<String>,
    pub(crate) origins: Option<Watched>,
    pub(crate) generator: Option<Watched>,
    pub(crate) origins_cpu_seconds: Option<f64>,
    pub(crate) origin_connections: Option<u64>,
    pub(crate) machine_cpu_seconds: Option<f64>,
    pub(crate) network: Network,
}
