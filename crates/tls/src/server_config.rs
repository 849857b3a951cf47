//! The rustls configurations of a listener: one for its clients, and one for the clients of each rule about client
//! certificates. They share tickets and sessions, because rustls resumes a session only for its original name.

use std::sync::Arc;

use config::{ClientCertificates, ClientTrust, ExpiredCrls, ListenerTls};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ServerSessionMemoryCache, WebPkiClientVerifier};

use crate::crl;
use crate::depth_verifier::DepthVerifier;
use crate::file;
use crate::key_log;
use crate::names::HostNames;
use crate::problem::{CertificateFault, CertificateProblem};
use crate::provider;
use crate::quic::H3;
use crate::store::CertificateStore;
use crate::tickets::{Admits, Tickets};

/// Sessions kept for clients that use TLS 1.2 without tickets: 150 bytes each, plus any client certificates.
const SESSIONS: usize = 4096;

/// Tickets per connection. Each resumed connection brings a new one, so that a client never runs out. A second ticket
/// would serve a second simultaneous connection, which HTTP/2 does not need.
const TICKETS: usize = 1;

/// Bytes of records with early data that are skipped: a client may have a ticket from an earlier server with our name.
/// Servers mostly allow 16 KiB, and 64 KiB if they buffer it (NSS); the rest is for the overhead of small records.
const EARLY_DATA_SKIPPED: u32 = 128 * 1024;

/// The rules about client certificates by name. The first is the listener's own.
#[derive(Debug)]
pub(crate) struct ClientRules {
    asked: Vec<Arc<ClientCertificates>>,
    names: HostNames,
}

impl ClientRules {
    pub(crate) fn new(tls: &ListenerTls) -> Self {
        let of_names = tls.client_rules.iter().map(|rule| &rule.client_certificates);
        let asked = [&tls.client_certificates].into_iter().chain(of_names);
        Self {
            asked: asked.map(|asked| Arc::new(asked.clone())).collect(),
            names: HostNames::new(tls.client_rules.iter().map(|rule| rule.names.as_slice())),
        }
    }

    pub(crate) fn is_by_name(&self) -> bool {
        self.asked.len() > 1
    }

    /// The index of the rule for a lower-case name.
    pub(crate) fn place(&self, name: Option<&str>) -> usize {
        name.and_then(|name| self.names.having(name).next()).map_or(0, |rule| rule + 1)
    }

    pub(crate) fn asked(&self, place: usize) -> &Arc<ClientCertificates> {
        &self.asked[place]
    }

    /// All CAs and revocation lists.
    pub(crate) fn trusts(&self) -> impl Iterator<Item = &ClientTrust> {
        self.asked.iter().filter_map(|asked| asked.trust())
    }
}

/// The configurations of a listener, and their shared state.
#[derive(Debug)]
pub(crate) struct Configs {
    /// By the index of the rule.
    all: Vec<Arc<ServerConfig>>,
    /// For QUIC, by the listener's own rule.
    quic: Option<Arc<ServerConfig>>,
    pub(crate) tickets: Arc<Tickets>,
    /// The clients that the tickets admit.
    pub(crate) admits: Admits,
    /// When the next update of a revocation list is due, in seconds since 1970.
    pub(crate) crls_until: Option<i64>,
    /// Problems of revocation lists that do not prevent their use.
    pub(crate) remarks: Vec<CertificateProblem>,
}

impl Configs {
    pub(crate) fn for_place(&self, place: usize) -> &Arc<ServerConfig> {
        &self.all[place]
    }

    pub(crate) fn quic(&self) -> Option<&Arc<ServerConfig>> {
        self.quic.as_ref()
    }

    pub(crate) fn new(
        rules: &ClientRules,
        tls: &ListenerTls,
        store: &Arc<CertificateStore>,
        (protocols, http3): (&[Vec<u8>], bool),
        now: i64,
    ) -> Result<Self, CertificateProblem> {
        let mut admits = Admits::begin();
        let (mut crls_until, mut remarks, mut verifiers) = (None, Vec::new(), Vec::new());
        for asked in &rules.asked {
            let is_required = matches!(**asked, ClientCertificates::Required(_));
            let read = asked.trust().map(|trust| ReadTrust::new(trust, now, &mut remarks)).transpose()?;
            let depth = asked.trust().and_then(|trust| trust.depth).map(usize::to_be_bytes);
            let parts = read.as_ref().map(ReadTrust::parts).into_iter().flatten();
            admits.add(is_required, parts.chain(depth.as_ref().map(<[u8; 8]>::as_slice)));
            crls_until = crls_until.into_iter().chain(read.iter().filter_map(|read| read.until)).min();
            let verifier = read.zip(asked.trust()).map(|(read, trust)| read.verifier(trust, is_required));
            verifiers.push(verifier.transpose()?);
        }
        let no_random = "there are no random bytes for a key".to_owned();
        let tickets = Tickets::new()
            .ok_or(CertificateProblem { file: None, fault: CertificateFault::Refused(no_random) })?;
        let tickets = Arc::new(tickets);
        let key_log = tls.key_log.then(|| key_log::open(&mut remarks));
        let sessions = ServerSessionMemoryCache::new(SESSIONS);
        let configs = verifiers.into_iter().map(|verifier| {
            let mut config = config(verifier, tls, store)?;
            config.alpn_protocols = protocols.to_vec();
            config.ticketer = Arc::clone(&tickets) as _;
            config.session_storage = Arc::clone(&sessions) as _;
            if let Some(key_log) = &key_log {
                config.key_log = Arc::clone(key_log);
            }
            Ok(Arc::new(config))
        });
        let all = configs.collect::<Result<Vec<_>, CertificateProblem>>()?;
        let quic = all.first().filter(|_| http3).map(|config| Arc::new(for_quic(config)));
        Ok(Self { all, quic, tickets, admits: admits.finish(), crls_until, remarks })
    }
}

/// RFC 9001 §4.6.1: in QUIC early data has no size limit, and none is accepted.
fn for_quic(config: &ServerConfig) -> ServerConfig {
    let mut config = config.clone();
    config.alpn_protocols = vec![H3.into()];
    config.max_early_data_size = 0;
    config
}

fn config(
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    tls: &ListenerTls,
    store: &Arc<CertificateStore>,
) -> Result<ServerConfig, CertificateProblem> {
    let negotiation = &tls.negotiation;
    let refused = |error: rustls::Error| CertificateProblem {
        file: None,
        fault: CertificateFault::Refused(error.to_string()),
    };
    let builder = ServerConfig::builder_with_provider(provider::for_clients(negotiation));
    let builder = builder.with_protocol_versions(&provider::versions(negotiation)).map_err(refused)?;
    let builder = match verifier {
        None => builder.with_no_client_auth(),
        Some(verifier) => builder.with_client_cert_verifier(verifier),
    };
    let mut config = builder.with_cert_resolver(Arc::clone(store) as _);
    config.ignore_client_order = provider::prefers_own_order(negotiation);
    config.send_tls13_tickets = TICKETS;
    // RFC 8446 §8: early data could be replayed. None is accepted: rustls would need stored sessions for it, and our
    // tickets allow none. This value only limits how much of it rustls skips (§4.2.10).
    config.max_early_data_size = EARLY_DATA_SKIPPED;
    config.enable_secret_extraction = true;
    Ok(config)
}

/// A CA and its revocation lists, after reading.
struct ReadTrust {
    certificates: Vec<CertificateDer<'static>>,
    crls: Vec<CertificateRevocationListDer<'static>>,
    /// When the next update of one of them is due.
    until: Option<i64>,
}

impl ReadTrust {
    fn new(
        trust: &ClientTrust,
        now: i64,
        remarks: &mut Vec<CertificateProblem>,
    ) -> Result<Self, CertificateProblem> {
        let certificates = file::certificates(&trust.ca)?;
        let (mut crls, mut until) = (Vec::new(), None);
        for path in &trust.crls {
            for list in crl::read(path)? {
                match list.until {
                    Some(end) if end < now => {
                        let is_refused = trust.expired_crls == ExpiredCrls::Refuse;
                        remarks.push(CertificateProblem::new(path, crl::expired(end, is_refused)));
                    }
                    end => until = until.into_iter().chain(end).min(),
                }
                crls.push(list.der);
            }
        }
        Ok(Self { certificates, crls, until })
    }

    /// The parts that determine which clients are admitted.
    fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let certificates = self.certificates.iter().map(|certificate| &**certificate);
        certificates.chain(self.crls.iter().map(|crl| &**crl))
    }

    fn verifier(
        self,
        trust: &ClientTrust,
        is_required: bool,
    ) -> Result<Arc<dyn ClientCertVerifier>, CertificateProblem> {
        let roots = Arc::new(file::roots(&trust.ca, self.certificates)?);
        let builder = WebPkiClientVerifier::builder_with_provider(roots, provider::for_certificates());
        // RFC 5280 §6.3: checks the client's certificate and the intermediate ones.
        let mut builder = builder.with_crls(self.crls);
        if trust.expired_crls == ExpiredCrls::Refuse {
            builder = builder.enforce_revocation_expiration();
        }
        if !is_required {
            builder = builder.allow_unauthenticated();
        }
        let refused =
            |error| CertificateProblem::new(&trust.ca, CertificateFault::Refused(format!("{error}")));
        let verifier = builder.build().map_err(refused)?;
        Ok(match trust.depth {
            Some(depth) => Arc::new(DepthVerifier { verifier, depth }),
            None => verifier,
        })
    }
}
