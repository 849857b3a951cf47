//! TLS to clients: a listener's certificates as a rustls configuration, which stays while certificates are replaced.

use std::net::IpAddr;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use arc_swap::ArcSwap;
use config::{CertificateFiles, Certificates, ClientCertificates, ClientTrust, Listener, ListenerTls};
use rustls::pki_types::UnixTime;
use rustls::{ServerConfig, SignatureAlgorithm};

use crate::challenges::{ACME_TLS, Challenges};
use crate::file::WatchedFiles;
use crate::inventory::{CertificateInUse, InventorySource};
use crate::names::is_for;
use crate::pair::CertificatePair;
use crate::problem::{CertificateFault, CertificateProblem};
use crate::provider;
use crate::quic::QuicServer;
use crate::server_config::{ClientRules, Configs};
use crate::store::{CertificateStore, Shelf};
use crate::tickets::TicketKeys;

/// Certificates whose files one tick checks. More of them take turns, because each costs two system calls.
const LOOKED_AT: usize = 1000;

/// The TLS server configuration of one listener, shared by all workers.
#[derive(Debug)]
pub struct ServerSide {
    configs: ArcSwap<Configs>,
    rules: ClientRules,
    store: Arc<CertificateStore>,
    tls: ListenerTls,
    protocols: Vec<Vec<u8>>,
    http3: bool,
    state: Mutex<ServerTlsState>,
}

/// State that only a tick needs.
#[derive(Debug)]
struct ServerTlsState {
    entries: Vec<CertificateEntry>,
    /// The first certificate that the next tick checks.
    next: usize,
    /// CAs and revocation lists.
    trust: Option<WatchedFiles>,
    /// When the next update of a revocation list is due, in seconds since 1970, unless that was already reported.
    crls_until: Option<i64>,
}

/// A certificate in use.
#[derive(Debug)]
struct CertificateEntry {
    /// Its files; `None` for a certificate that was created at start.
    source: Option<(CertificateFiles, WatchedFiles)>,
    pair: CertificatePair,
    automatic: Option<Automatic>,
}

/// State of an automatic certificate.
#[derive(Debug)]
struct Automatic {
    /// As configured.
    name: String,
    /// Whether the pair is self-signed, because no certificate was issued yet.
    is_stand_in: bool,
}

/// The result of checking the files for changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reload {
    /// Files whose new content is now in use.
    pub taken: Vec<PathBuf>,
    /// Problems. If a new file is unusable, its old content stays in use.
    pub problems: Vec<CertificateProblem>,
}

impl ServerSide {
    /// Loads the certificates of a listener. `None` if it does not use TLS.
    ///
    /// # Errors
    /// All problems in all files that make the configuration unusable.
    pub fn load(listener: &Listener) -> Result<Option<Self>, Vec<CertificateProblem>> {
        Self::load_answering(listener, &Arc::default())
    }

    /// Loads the certificates of a listener, which answers these challenges if its certificates are automatic.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_answering(
        listener: &Listener,
        challenges: &Arc<Challenges>,
    ) -> Result<Option<Self>, Vec<CertificateProblem>> {
        let Some(tls) = &listener.tls else { return Ok(None) };
        let now = now();
        let mut problems = Vec::new();
        let mut entries = Vec::new();
        match &tls.certificates {
            Certificates::SelfSigned => match CertificatePair::self_signed(listener.address.ip(), now) {
                Ok(pair) => entries.push(CertificateEntry { source: None, pair, automatic: None }),
                Err(problem) => problems.push(problem),
            },
            Certificates::Automatic { names, folder, .. } => {
                for name in names {
                    match automatic(folder, name, now) {
                        Ok(entry) => entries.push(entry),
                        Err(problem) => problems.push(problem),
                    }
                }
            }
            Certificates::Files(files) => {
                for loaded in load_all(files, now) {
                    match loaded {
                        Ok(entry) => entries.push(entry),
                        Err(found) => problems.extend(found),
                    }
                }
            }
        }
        problems.extend(entries.iter().filter_map(|entry| entry.no_suite(tls)));
        for entry in entries.iter_mut().skip(1).filter(|entry| entry.pair.names.is_empty()) {
            let Some((files, _)) = &entry.source else { continue };
            entry.pair.remarks.push(CertificateProblem::new(&files.pair.cert, CertificateFault::NoName));
        }
        let rules = ClientRules::new(tls);
        let trust: Vec<PathBuf> = rules.trusts().flat_map(trust_paths).cloned().collect();
        let trust = (!trust.is_empty()).then(|| WatchedFiles::new(trust));
        let shelf = Shelf::new(entries.iter().map(|entry| &entry.pair));
        let is_automatic = matches!(tls.certificates, Certificates::Automatic { .. });
        let challenges = is_automatic.then(|| Arc::clone(challenges));
        let store = Arc::new(CertificateStore::new(shelf, tls.unknown_names, challenges));
        // In passed-through streams, client and server choose the protocol.
        let mut protocols = if listener.tcp.is_some() { Vec::new() } else { protocols(listener.http2) };
        if is_automatic && listener.tcp.is_none() {
            protocols.push(ACME_TLS.into());
        }
        match Configs::new(&rules, tls, &store, (&protocols, listener.http3), now) {
            Ok(configs) if problems.is_empty() => Ok(Some(Self {
                state: Mutex::new(ServerTlsState { entries, next: 0, trust, crls_until: configs.crls_until }),
                configs: ArcSwap::from_pointee(configs),
                rules,
                store,
                tls: tls.clone(),
                protocols,
                http3: listener.http3,
            })),
            configs => Err(problems.into_iter().chain(configs.err()).collect()),
        }
    }

    /// The rustls configuration for a handshake to which no rule by name applies. Get it for each connection: it
    /// changes when the CA for client certificates, or a revocation list, changes. Such a change ends the sessions that
    /// the old ones permitted.
    pub fn config(&self) -> Arc<ServerConfig> {
        self.config_for(None)
    }

    /// The rustls configuration for a handshake with a client that requests this name, in lower case.
    pub fn config_for(&self, name: Option<&str>) -> Arc<ServerConfig> {
        Arc::clone(self.configs.load().for_place(self.rules.place(name)))
    }

    /// TLS for a QUIC handshake with a client that has connected to this address. `None` if the listener has no HTTP/3.
    /// Callers ask for each connection, as for [`config`](Self::config).
    pub fn quic(&self, address: Option<IpAddr>) -> Option<Arc<dyn quinn_proto::crypto::ServerConfig>> {
        let config = Arc::clone(self.configs.load().quic()?);
        let server = QuicServer::new(config, address.filter(|_| self.has_addresses()))?;
        Some(Arc::new(server))
    }

    /// TLS for a QUIC handshake that ends with an alert at the beginning.
    pub fn failing_quic(&self) -> Option<Arc<dyn quinn_proto::crypto::ServerConfig>> {
        let server = QuicServer::new(Arc::clone(self.configs.load().quic()?), None)?;
        Some(Arc::new(server.failing()))
    }

    /// Whether a certificate is for an IP address, so that handshakes need the local address of the client's
    /// connection.
    pub fn has_addresses(&self) -> bool {
        self.store.has_addresses()
    }

    /// Whether there are rules about client certificates by name, so that the server name must be known before the
    /// handshake.
    pub fn has_rules_by_name(&self) -> bool {
        self.rules.is_by_name()
    }

    /// The client certificates that are required for this server name, in lower case.
    pub fn asked_for(&self, name: Option<&str>) -> &Arc<ClientCertificates> {
        self.rules.asked(self.rules.place(name))
    }

    /// The keys that a process that takes over needs to accept this process's session tickets.
    pub fn ticket_keys(&self) -> TicketKeys {
        let configs = self.configs.load();
        configs.tickets.keys(configs.admits)
    }

    /// Adopts the ticket keys of the previous process, if both listeners accept the same client certificates. Returns
    /// whether it did.
    pub fn adopt_ticket_keys(&self, keys: &TicketKeys) -> bool {
        let configs = self.configs.load();
        configs.tickets.adopt(keys, configs.admits)
    }

    /// Problems of the certificates in use that do not prevent their use, such as an expired certificate.
    pub fn remarks(&self) -> Vec<CertificateProblem> {
        let of_lists = self.configs.load().remarks.clone();
        let state = self.state();
        state.entries.iter().flat_map(|entry| entry.pair.remarks.clone()).chain(of_lists).collect()
    }

    /// The certificates in use, in the order of the configuration.
    pub fn certificates(&self) -> Vec<CertificateInUse> {
        self.certificates_at(UnixTime::now())
    }

    /// The certificates in use, with their problems at a given time.
    pub fn certificates_at(&self, time: UnixTime) -> Vec<CertificateInUse> {
        let state = self.state();
        let certificates = state.entries.iter().filter_map(|CertificateEntry { source, pair, automatic }| {
            let source = match (automatic, source) {
                (Some(Automatic { name, is_stand_in: true }), _) => InventorySource::StandIn(name.clone()),
                (Some(Automatic { name, .. }), Some((files, _))) => {
                    InventorySource::Automatic(name.clone(), files.pair.cert.clone())
                }
                (None, Some((files, _))) => InventorySource::File(files.pair.cert.clone()),
                (_, None) => InventorySource::SelfSigned,
            };
            let der = pair.key.cert.first()?;
            CertificateInUse::read(der, source, pair.remarks.clone(), seconds(time))
        });
        certificates.collect()
    }

    /// Reloads the automatic certificate of a name, which was just written.
    pub fn reload_automatic(&self, name: &str) -> Reload {
        let mut reload = Reload::default();
        let mut state = self.state();
        let is_meant =
            |entry: &&mut CertificateEntry| entry.automatic.as_ref().is_some_and(|of| of.name == name);
        let Some(entry) = state.entries.iter_mut().find(is_meant) else { return reload };
        let Some((files, mut watched)) = entry.source.take() else { return reload };
        watched.mark_read();
        let is_changed = entry.load(&files, (now(), true), &mut reload);
        entry.source = Some((files, watched));
        if is_changed {
            self.store.replace(Shelf::new(state.entries.iter().map(|entry| &entry.pair)));
        }
        reload
    }

    /// Checks the files, and reloads those that changed, but not since the previous tick.
    pub fn tick(&self) -> Reload {
        self.tick_at(UnixTime::now())
    }

    /// Checks the files as [`tick`](Self::tick) does, but at a given time, at which a stapled response may have
    /// expired.
    pub fn tick_at(&self, time: UnixTime) -> Reload {
        self.reload_where(seconds(time), LOOKED_AT, WatchedFiles::has_settled_change)
    }

    pub fn reload(&self) -> Reload {
        self.reload_where(now(), usize::MAX, |_| true)
    }

    fn reload_where(&self, now: i64, count: usize, is_due: impl Fn(&mut WatchedFiles) -> bool) -> Reload {
        let mut reload = Reload::default();
        let mut state = self.state();
        let mut is_changed = false;
        let ServerTlsState { entries, next, trust, crls_until } = &mut *state;
        let first = if count < entries.len() { *next } else { 0 };
        let end = first.saturating_add(count).min(entries.len());
        *next = if end < entries.len() { end } else { 0 };
        for entry in &mut entries[first..end] {
            let Some((files, mut watched)) = entry.source.take() else { continue };
            let is_due = is_due(&mut watched);
            if is_due || entry.pair.is_staple_stale(now) {
                watched.mark_read();
                is_changed |= entry.load(&files, (now, is_due), &mut reload);
            }
            entry.source = Some((files, watched));
        }
        if is_changed {
            self.store.replace(Shelf::new(entries.iter().map(|entry| &entry.pair)));
        }
        if let Some(watched) = trust {
            let is_due = is_due(watched);
            let is_stale = crls_until.take_if(|until| *until < now).is_some();
            if is_due || is_stale {
                watched.mark_read();
                let made =
                    Configs::new(&self.rules, &self.tls, &self.store, (&self.protocols, self.http3), now);
                match made {
                    Ok(made) => {
                        reload.problems.extend(made.remarks.iter().cloned());
                        *crls_until = made.crls_until;
                        self.configs.store(Arc::new(made));
                        if is_due {
                            reload.taken.extend(watched.paths().iter().cloned());
                        }
                    }
                    Err(problem) => reload.problems.push(problem),
                }
            }
        }
        reload
    }

    /// A panic elsewhere does not corrupt the state: each step of a reload is complete.
    fn state(&self) -> MutexGuard<'_, ServerTlsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CertificateEntry {
    /// The problem if no handshake could succeed with this certificate. Self-signed stand-ins are exempt.
    fn no_suite(&self, tls: &ListenerTls) -> Option<CertificateProblem> {
        let (files, _) = self.source.as_ref().filter(|_| self.automatic.is_none())?;
        let key = &*self.pair.key.key;
        if provider::has_suite_for(&tls.negotiation, key) {
            return None;
        }
        let kind = match key.algorithm() {
            SignatureAlgorithm::RSA => "RSA",
            SignatureAlgorithm::ED25519 => "Ed25519",
            _ => "ECDSA",
        };
        Some(CertificateProblem::new(&files.pair.key, CertificateFault::NoSuite(kind)))
    }

    /// Loads the files if they have changed (`is_due`), or if the staple is stale. Returns whether the pair in use has
    /// changed.
    fn load(&mut self, files: &CertificateFiles, (now, is_due): (i64, bool), reload: &mut Reload) -> bool {
        match load_for(self.automatic.as_ref(), files, now) {
            Ok(new) => {
                reload.problems.extend(new.remarks.iter().cloned());
                if is_due {
                    reload.taken.push(files.pair.cert.clone());
                }
                self.pair = new;
                if let Some(automatic) = &mut self.automatic {
                    automatic.is_stand_in = false;
                }
                true
            }
            Err(problems) => {
                // Kept, so that `certificates` shows the conflict for as long as it lasts.
                self.pair.remarks.retain(|remark| !is_of_name(remark));
                self.pair.remarks.extend(problems.iter().filter(|problem| is_of_name(problem)).cloned());
                reload.problems.extend(problems);
                let is_stale = self.pair.is_staple_stale(now);
                if is_stale {
                    self.pair.remove_staple();
                }
                is_stale
            }
        }
    }
}

/// The automatic certificate of a name if it was issued, otherwise a self-signed one.
fn automatic(folder: &Path, name: &str, now: i64) -> Result<CertificateEntry, CertificateProblem> {
    let files =
        CertificateFiles { pair: Certificates::automatic_files(folder, name), ocsp: None, names: Vec::new() };
    let watched = WatchedFiles::new(paths(&files));
    let mut automatic = Automatic { name: name.to_owned(), is_stand_in: false };
    let pair = match load_for(Some(&automatic), &files, now) {
        Ok(pair) => pair,
        // An unusable certificate is replaced by a new one.
        Err(mut problems) => {
            automatic.is_stand_in = true;
            problems.retain(is_of_name);
            let mut pair = CertificatePair::self_signed_for(vec![name.to_owned()], now)?;
            pair.remarks = problems;
            pair
        }
    };
    Ok(CertificateEntry { source: Some((files, watched)), pair, automatic: Some(automatic) })
}

/// Loads a certificate. An automatic one must be for the name of its folder. Otherwise a wrong copy, or another user
/// with write permission, could replace the certificate of that name.
fn load_for(
    automatic: Option<&Automatic>,
    files: &CertificateFiles,
    now: i64,
) -> Result<CertificatePair, Vec<CertificateProblem>> {
    let pair = CertificatePair::load(files, now)?;
    match automatic {
        Some(Automatic { name, .. }) if !is_for(&pair.names, name) => {
            let names = if pair.names.is_empty() { "no name".to_owned() } else { pair.names.join(", ") };
            Err(vec![CertificateProblem::new(
                &files.pair.cert,
                CertificateFault::OtherName { names, wanted: name.clone() },
            )])
        }
        _ => Ok(pair),
    }
}

fn is_of_name(problem: &CertificateProblem) -> bool {
    matches!(problem.fault, CertificateFault::OtherName { .. })
}

/// The fewest certificates that a thread loads.
const PART: usize = 256;

/// Loads certificates in order, many of them on several threads. Each key costs 0.1 to 1 ms, because a point of its
/// curve is computed, or its primes are checked.
fn load_all(files: &[CertificateFiles], now: i64) -> Vec<Result<CertificateEntry, Vec<CertificateProblem>>> {
    let load = |files: &CertificateFiles| {
        let watched = WatchedFiles::new(paths(files));
        let pair = CertificatePair::load(files, now)?;
        Ok(CertificateEntry { source: Some((files.clone(), watched)), pair, automatic: None })
    };
    let threads = thread::available_parallelism().map_or(1, usize::from).min(files.len() / PART);
    if threads < 2 {
        return files.iter().map(load).collect();
    }
    thread::scope(|scope| {
        let parts = files.chunks(files.len().div_ceil(threads));
        let parts = parts.map(|part| scope.spawn(move || part.iter().map(load).collect::<Vec<_>>()));
        let parts: Vec<_> = parts.collect();
        let joined = parts.into_iter().map(|part| part.join().unwrap_or_else(|panic| resume_unwind(panic)));
        joined.flatten().collect()
    })
}

fn trust_paths(trust: &ClientTrust) -> impl Iterator<Item = &PathBuf> {
    [&trust.ca].into_iter().chain(&trust.crls)
}

fn paths(files: &CertificateFiles) -> Vec<PathBuf> {
    let CertificateFiles { pair, ocsp, names: _ } = files;
    pair.files().chain(ocsp).cloned().collect()
}

/// RFC 7301 §3.2: in the order that the server prefers.
fn protocols(http2: bool) -> Vec<Vec<u8>> {
    let http2 = http2.then(|| b"h2".to_vec());
    http2.into_iter().chain([b"http/1.1".to_vec()]).collect()
}

/// In seconds since 1970.
pub(crate) fn now() -> i64 {
    seconds(UnixTime::now())
}

fn seconds(time: UnixTime) -> i64 {
    i64::try_from(time.as_secs()).unwrap_or(i64::MAX)
}
