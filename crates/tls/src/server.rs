//! TLS to clients: a listener's certificates as a rustls configuration, which stays while certificates are replaced.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use config::{CertificateFiles, Certificates, ClientCertificates, Listener, ListenerTls};
use rustls::ServerConfig;
use rustls::pki_types::UnixTime;
use rustls::server::{ServerSessionMemoryCache, WebPkiClientVerifier};

use crate::file::{self, Watched};
use crate::pair::Pair;
use crate::problem::{Fault, Problem};
use crate::provider;
use crate::store::{Shelf, Store};
use crate::tickets::{Admits, TicketKeys, Tickets};

/// Sessions kept for clients that speak TLS 1.2 without tickets, 150 bytes each or a client's certificates more.
const SESSIONS: usize = 4096;

/// Tickets for each connection. Each connection that is resumed brings a new one, so that a client never runs out, and
/// a second ticket is for a second connection made at the same time: with HTTP/2 there is none.
const TICKETS: usize = 1;

/// Bytes of records with early data that are skipped: a client has a ticket of a server that was here before, or shares
/// its name with us. Servers allow 16 KiB mostly, and 64 KiB where they keep what comes (NSS); the rest is for what small
/// records add.
const EARLY_DATA_SKIPPED: u32 = 128 * 1024;

/// The TLS server configuration of one listener, shared by all workers.
#[derive(Debug)]
pub struct ServerSide {
    config: ArcSwap<ServerConfig>,
    store: Arc<Store>,
    tls: ListenerTls,
    protocols: Vec<Vec<u8>>,
    state: Mutex<State>,
}

/// What only a tick needs.
#[derive(Debug)]
struct State {
    entries: Vec<Entry>,
    ca: Option<Watched>,
    tickets: Arc<Tickets>,
    /// Whom the tickets' keys let in.
    admits: Admits,
}

/// A certificate in use.
#[derive(Debug)]
struct Entry {
    /// Where it came from; `None` was made at start.
    source: Option<(CertificateFiles, Watched)>,
    pair: Pair,
}

/// The result of checking the files for changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reload {
    /// Files whose new content is now in use.
    pub taken: Vec<PathBuf>,
    /// Problems. If a new file is unusable, its old content stays in use.
    pub problems: Vec<Problem>,
}

impl ServerSide {
    /// Loads the certificates of a listener; `None` if it does not use TLS.
    ///
    /// # Errors
    /// All problems in all files that make the configuration unusable.
    pub fn load(listener: &Listener) -> Result<Option<Self>, Vec<Problem>> {
        let Some(tls) = &listener.tls else { return Ok(None) };
        let now = now();
        let mut problems = Vec::new();
        let mut entries = Vec::new();
        match &tls.certificates {
            Certificates::SelfSigned => match Pair::self_signed(listener.address.ip(), now) {
                Ok(pair) => entries.push(Entry { source: None, pair }),
                Err(problem) => problems.push(problem),
            },
            Certificates::Files(files) => {
                for files in files {
                    let watched = Watched::new(paths(files));
                    match Pair::load(files, now) {
                        Ok(pair) => entries.push(Entry { source: Some((files.clone(), watched)), pair }),
                        Err(found) => problems.extend(found),
                    }
                }
            }
        }
        for entry in entries.iter_mut().skip(1).filter(|entry| entry.pair.certificate.names.is_empty()) {
            let Some((files, _)) = &entry.source else { continue };
            entry.pair.remarks.push(Problem::new(&files.pair.cert, Fault::NoName));
        }
        let ca = tls.client_certificates.ca().map(|path| Watched::new(vec![path.clone()]));
        let shelf = Shelf::new(entries.iter().map(|entry| &entry.pair));
        let store = Arc::new(Store::new(shelf, tls.unknown_names));
        // Nobody looks at what is passed on: what is spoken inside is for the client to know.
        let protocols = if listener.tcp.is_some() { Vec::new() } else { protocols(listener.http2) };
        let config = server_config(tls, &store, &protocols);
        match config {
            Ok(Made { config, tickets, admits }) if problems.is_empty() => Ok(Some(Self {
                config: ArcSwap::from_pointee(config),
                store,
                tls: tls.clone(),
                protocols,
                state: Mutex::new(State { entries, ca, tickets, admits }),
            })),
            config => Err(problems.into_iter().chain(config.err()).collect()),
        }
    }

    /// The rustls configuration for a handshake. Callers ask for each connection, since it changes when the CA for
    /// client certificates changes. Such a change ends the sessions that the old CA permitted.
    pub fn config(&self) -> Arc<ServerConfig> {
        self.config.load_full()
    }

    /// The keys that a process which takes over needs to accept this process's session tickets.
    pub fn ticket_keys(&self) -> TicketKeys {
        let state = self.state();
        state.tickets.keys(state.admits)
    }

    /// Adopts the ticket keys of the previous process, if both listeners ask for the same client certificates. Returns
    /// whether it did.
    pub fn adopt_ticket_keys(&self, keys: &TicketKeys) -> bool {
        let state = self.state();
        state.tickets.adopt(keys, state.admits)
    }

    /// Problems of the certificates in use that do not prevent their use, such as an expired certificate.
    pub fn remarks(&self) -> Vec<Problem> {
        self.state().entries.iter().flat_map(|entry| entry.pair.remarks.clone()).collect()
    }

    /// Checks the files, and reloads those that changed, but not since the previous tick.
    pub fn tick(&self) -> Reload {
        self.tick_at(UnixTime::now())
    }

    /// Checks the files as [`tick`](Self::tick) does, but at a given time, at which a stapled response may have
    /// expired.
    pub fn tick_at(&self, time: UnixTime) -> Reload {
        self.reload_where(seconds(time), Watched::has_settled_change)
    }

    /// Reloads all files.
    pub fn reload(&self) -> Reload {
        self.reload_where(now(), |_| true)
    }

    fn reload_where(&self, now: i64, is_due: impl Fn(&mut Watched) -> bool) -> Reload {
        let mut reload = Reload::default();
        let mut state = self.state();
        let mut is_changed = false;
        let State { entries, ca, tickets, admits } = &mut *state;
        for Entry { source, pair } in entries.iter_mut() {
            let Some((files, watched)) = source else { continue };
            let is_due = is_due(watched);
            let is_stale = pair.is_staple_stale(now);
            if !is_due && !is_stale {
                continue;
            }
            watched.mark_read();
            match Pair::load(files, now) {
                Ok(new) => {
                    reload.problems.extend(new.remarks.iter().cloned());
                    if is_due {
                        reload.taken.push(files.pair.cert.clone());
                    }
                    *pair = new;
                    is_changed = true;
                }
                Err(problems) => {
                    reload.problems.extend(problems);
                    if is_stale {
                        pair.remove_staple();
                        is_changed = true;
                    }
                }
            }
        }
        if is_changed {
            self.store.replace(Shelf::new(entries.iter().map(|entry| &entry.pair)));
        }
        if let Some(watched) = ca
            && is_due(watched)
        {
            watched.mark_read();
            match server_config(&self.tls, &self.store, &self.protocols) {
                Ok(made) => {
                    self.config.store(Arc::new(made.config));
                    (*tickets, *admits) = (made.tickets, made.admits);
                    reload.taken.extend(self.tls.client_certificates.ca().cloned());
                }
                Err(problem) => reload.problems.push(problem),
            }
        }
        reload
    }

    /// A panic while it was held leaves it as it was: each step of a reload is whole.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn paths(files: &CertificateFiles) -> Vec<PathBuf> {
    let CertificateFiles { pair, ocsp } = files;
    [&pair.cert, &pair.key].into_iter().chain(ocsp).cloned().collect()
}

/// RFC 7301 §3.2: in the order that the server prefers.
fn protocols(http2: bool) -> Vec<Vec<u8>> {
    let http2 = http2.then(|| b"h2".to_vec());
    http2.into_iter().chain([b"http/1.1".to_vec()]).collect()
}

/// A configuration of rustls, and the tickets in it.
struct Made {
    config: ServerConfig,
    tickets: Arc<Tickets>,
    admits: Admits,
}

fn server_config(tls: &ListenerTls, store: &Arc<Store>, protocols: &[Vec<u8>]) -> Result<Made, Problem> {
    let ListenerTls { client_certificates, negotiation, .. } = tls;
    let failed = |why: String| Problem { file: None, fault: Fault::Refused(why) };
    let refused = |error: rustls::Error| failed(error.to_string());
    let is_required = matches!(client_certificates, ClientCertificates::Required { .. });
    let certificates = client_certificates.ca().map(|ca| file::certificates(ca)).transpose()?;
    let admits = Admits::of(is_required, certificates.as_deref().unwrap_or_default());
    let builder = ServerConfig::builder_with_provider(provider::for_clients(negotiation));
    let builder = builder.with_protocol_versions(&provider::versions(negotiation)).map_err(refused)?;
    let builder = match client_certificates.ca().zip(certificates) {
        None => builder.with_no_client_auth(),
        Some((ca, certificates)) => {
            let roots = Arc::new(file::roots(ca, certificates)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider::for_certificates());
            let verifier = if is_required { verifier } else { verifier.allow_unauthenticated() };
            let refused = |error| Problem::new(ca, Fault::Refused(format!("{error}")));
            builder.with_client_cert_verifier(verifier.build().map_err(refused)?)
        }
    };
    let mut config = builder.with_cert_resolver(Arc::clone(store) as _);
    config.alpn_protocols = protocols.to_vec();
    config.ignore_client_order = provider::prefers_own_order(negotiation);
    let tickets = Tickets::new().ok_or_else(|| failed("there are no random bytes for a key".to_owned()))?;
    let tickets = Arc::new(tickets);
    config.ticketer = Arc::clone(&tickets) as _;
    config.send_tls13_tickets = TICKETS;
    config.session_storage = ServerSessionMemoryCache::new(SESSIONS);
    // RFC 8446 §8: early data could be replayed. None is accepted, for that would take sessions kept here in place of
    // tickets, and no ticket of ours allows any: to rustls this says how much of it is skipped (§4.2.10).
    config.max_early_data_size = EARLY_DATA_SKIPPED;
    config.enable_secret_extraction = true;
    Ok(Made { config, tickets, admits })
}

/// The current time, in seconds since 1970.
pub(crate) fn now() -> i64 {
    seconds(UnixTime::now())
}

fn seconds(time: UnixTime) -> i64 {
    i64::try_from(time.as_secs()).unwrap_or(i64::MAX)
}
