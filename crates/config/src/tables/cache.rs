//! Settings of the cache store.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use balance::{EjectionSettings, FleetSettings, NoneUp};
use expression::Expression;
use ipnet::IpNet;

use crate::option::host::ListenAddress;
use crate::option::server::Server;
use crate::tables::listen::Listener;
use crate::tables::tls::{
    CertificateFiles, Certificates, ClientCertificates, ClientTrust, KeyPair, ListenerTls, UpstreamTls,
};
use crate::tables::upstream::{Dns, Protocol, Retry, RetryOn, Upstream};

/// Options of the cache.
pub(crate) mod options;
/// The table `[cache.peers]`.
pub(crate) mod peers;

/// The cache store, which all routes with `cache` share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheStore {
    /// The memory limit of the whole store.
    pub memory_bytes: u64,
    /// The largest response that is stored.
    pub object_bytes_max: u64,
    /// The disk store, which outlives the process; `None` without a disk.
    pub disk: Option<CacheDisk>,
    /// The networks whose requests with the method PURGE are obeyed. If empty, PURGE is not understood.
    pub purge_from: Vec<IpNet>,
    /// The instances that share stored responses; `None` for a single instance.
    pub peers: Option<CachePeers>,
}

/// The disk store behind the memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheDisk {
    /// A folder that nothing else uses.
    pub path: PathBuf,
    pub size_bytes: u64,
}

/// Instances that share what they store: each owns a part of all keys, and the others ask it for those.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachePeers {
    /// The address for the other instances.
    pub listen: SocketAddr,
    /// The address of this instance for the others.
    pub address: Server,
    /// The addresses of all, this one included; `None` means those that etcd tells.
    pub members: Option<Vec<Server>>,
    /// The CA that signs the certificates of all.
    pub ca: PathBuf,
    /// The certificate of this one, for both sides of a connection.
    pub certificate: KeyPair,
    /// A name that each certificate must have.
    pub name: Option<String>,
    /// How long an instance may be silent.
    pub timeout: Duration,
    /// From so many requests on in a while a response is kept that another instance owns; 0 means never.
    pub hot_requests: u32,
    /// The part of the memory that what is kept so may take.
    pub hot_percent: u32,
}

/// A lifetime of stored responses for which a condition holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheRule {
    pub when: Arc<Expression>,
    /// With zero, they are not stored.
    pub ttl_ms: u64,
}

impl CachePeers {
    /// The name of the listener for other instances, and of their upstream.
    pub const NAME: &str = "cache-peers";
    pub(crate) const TIMEOUT: Duration = Duration::from_secs(1);
    /// The defaults of `hot_requests` and `hot_percent`.
    pub(crate) const HOT_REQUESTS: u32 = 20;
    pub(crate) const HOT_PERCENT: u32 = 10;
    /// An instance that fails so often in a row loses its share for a while.
    const FAILURES_IN_A_ROW: Option<NonZeroU32> = NonZeroU32::new(3);

    /// The listener for other instances.
    pub(crate) fn listener(&self) -> Listener {
        let files = CertificateFiles { pair: self.certificate.clone(), ocsp: None, names: Vec::new() };
        let client_certificates = ClientCertificates::Required(ClientTrust::from(self.ca.clone()));
        let certificates = Certificates::Files(vec![files]);
        Listener {
            name: Self::NAME.to_owned(),
            tls: Some(ListenerTls { client_certificates, ..ListenerTls::new(certificates) }),
            is_for_peers: true,
            ..Listener::at(ListenAddress::Tcp(self.listen))
        }
    }

    /// The instances as an upstream, this one included: its keys are not asked for elsewhere.
    pub(crate) fn upstream(&self) -> Upstream {
        let retry = Retry { on: RetryOn::none(), attempts: 1, ..Retry::default() };
        // One that is up is asked for its keys, and no other: which one it is must follow from the key alone.
        let settings = FleetSettings {
            none_up: NoneUp::Refuse,
            load_bound_percent: None,
            ejection: Some(EjectionSettings {
                failures_in_a_row: Self::FAILURES_IN_A_ROW,
                failures_percent: None,
                latency_factor: None,
                base: Duration::from_secs(5),
                longest: Duration::from_secs(30),
                up_percent_min: 0,
                ..EjectionSettings::default()
            }),
            ..FleetSettings::default()
        };
        let servers = self.members.clone().unwrap_or_else(|| vec![self.address.clone()]);
        Upstream {
            balance: balance::policy("consistent-hash").unwrap_or(balance::DEFAULT),
            protocol: Protocol::Http2,
            tls: UpstreamTls {
                ca: Some(self.ca.clone()),
                name: self.name.clone(),
                certificate: Some(self.certificate.clone()),
                table: "cache.peers",
                ..UpstreamTls::default()
            },
            settings,
            // Requests that fail tell enough, and cost little: one that has just started is asked at once.
            check: None,
            // What one is called is what it is known by, wherever that leads.
            dns: Dns::One,
            retry,
            ..Upstream::from_name(Self::NAME, servers)
        }
    }
}

impl CacheStore {
    pub(crate) const OBJECT_BYTES_MAX: u64 = 16 << 20;

    /// A store with this much memory, and defaults for the rest.
    pub fn from_memory_bytes(memory_bytes: u64) -> Self {
        Self {
            memory_bytes,
            object_bytes_max: Self::OBJECT_BYTES_MAX,
            disk: None,
            purge_from: Vec::new(),
            peers: None,
        }
    }
}
