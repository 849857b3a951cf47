//! Session tickets for clients. Their keys change every six hours; all workers share them, and a process can hand them
//! over to its successor. rustls keeps TLS 1.2 sessions without tickets in memory.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use arc_swap::ArcSwap;
use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, Nonce, RandomizedNonceKey};
use aws_lc_rs::digest::{self, SHA256};
use aws_lc_rs::rand;
use rustls::server::ProducesTickets;

use crate::server::now;

/// How long a key makes tickets. It is accepted for as long again, and then deleted, so that recorded sessions cannot
/// be decrypted later.
const KEY_SECONDS: u32 = 6 * 60 * 60;
/// The key that makes tickets, and the previous one.
const KEYS_MAX: usize = 2;

const NAME_BYTES: usize = 16;
const SECRET_BYTES: usize = 32;
const NONCE_BYTES: usize = 12;
/// The length of the digest of the admitted clients.
const ADMITS_BYTES: usize = 32;
/// The length of a serialized key: name, secret, creation time.
const KEY_BYTES: usize = NAME_BYTES + SECRET_BYTES + size_of::<i64>();
/// The version of the serialized form, written first.
const FORM: u8 = 1;

/// The ticket keys of a listener.
pub(crate) struct Tickets {
    /// Newest first, never empty.
    keys: ArcSwap<Vec<TicketKey>>,
    /// Held while keys change.
    turn: Mutex<()>,
}

/// A ticket key. A ticket is the key's name, a nonce, and the encrypted session. Nonces are random for any number of
/// tickets, because a repeated nonce only reveals that two sessions are equal (RFC 8452).
#[derive(Clone)]
struct TicketKey {
    name: [u8; NAME_BYTES],
    secret: [u8; SECRET_BYTES],
    made_at: i64,
}

/// The serialized ticket keys of a listener, for the process that takes over. Secret: they can decrypt its clients'
/// traffic.
#[derive(Clone, PartialEq, Eq)]
pub struct TicketKeys(Vec<u8>);

impl TicketKeys {
    /// Restores keys from the bytes of [`as_bytes`](Self::as_bytes).
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// The serialized keys. Secret: hand them only to the process that takes over.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for TicketKeys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("TicketKeys(secret)")
    }
}

/// Digest of the client certificates that a listener accepts. A ticket admits its client without another check of its
/// certificate, so only listeners with the same digest may share keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Admits([u8; ADMITS_BYTES]);

impl Admits {
    pub(crate) fn begin() -> Admitting {
        Admitting(digest::Context::new(&SHA256))
    }
}

/// The digest while rules are added.
pub(crate) struct Admitting(digest::Context);

impl Admitting {
    /// Adds a rule: whether a certificate is required, and the parts that determine which ones are accepted.
    pub(crate) fn add<'p>(&mut self, is_required: bool, parts: impl Iterator<Item = &'p [u8]>) {
        self.0.update(&[u8::from(is_required)]);
        for part in parts {
            self.0.update(&(part.len() as u64).to_be_bytes());
            self.0.update(part);
        }
        // No part has this length, so it separates the rules.
        self.0.update(&u64::MAX.to_be_bytes());
    }

    pub(crate) fn finish(self) -> Admits {
        let mut admits = [0; ADMITS_BYTES];
        admits.copy_from_slice(self.0.finish().as_ref());
        Admits(admits)
    }
}

impl Tickets {
    /// Creates a fresh key. `None` if the system has no random bytes.
    pub(crate) fn new() -> Option<Self> {
        let keys = ArcSwap::from_pointee(vec![TicketKey::new(now())?]);
        Some(Self { keys, turn: Mutex::default() })
    }

    /// The serialized keys, for the process that takes over.
    pub(crate) fn keys(&self, admits: Admits) -> TicketKeys {
        let keys = self.keys.load();
        let mut bytes = Vec::with_capacity(1 + ADMITS_BYTES + KEYS_MAX * KEY_BYTES);
        bytes.push(FORM);
        bytes.extend_from_slice(&admits.0);
        for key in keys.iter() {
            bytes.extend_from_slice(&key.name);
            bytes.extend_from_slice(&key.secret);
            bytes.extend_from_slice(&key.made_at.to_be_bytes());
        }
        TicketKeys(bytes)
    }

    /// Adopts the keys of another process, if they admit the same clients. Returns whether it did.
    pub(crate) fn adopt(&self, keys: &TicketKeys, admits: Admits) -> bool {
        self.adopt_at(keys, admits, now())
    }

    fn adopt_at(&self, keys: &TicketKeys, admits: Admits, now: i64) -> bool {
        let Some(keys) = read(keys, admits) else { return false };
        let keys: Vec<TicketKey> = keys.into_iter().filter(|key| key.is_accepted(now)).collect();
        let is_any = !keys.is_empty();
        if is_any {
            let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
            self.keys.store(keys.into());
        }
        is_any
    }

    fn encrypt_at(&self, plain: &[u8], now: i64) -> Option<Vec<u8>> {
        self.rotate(now);
        self.keys.load().first()?.seal(plain)
    }

    fn decrypt_at(&self, ticket: &[u8], now: i64) -> Option<Vec<u8>> {
        let (name, sealed) = ticket.split_at_checked(NAME_BYTES)?;
        let keys = self.keys.load();
        let key = keys.iter().find(|key| key.name == name && key.is_accepted(now))?;
        key.open(sealed)
    }

    /// Replaces the key that makes tickets, if it is time.
    fn rotate(&self, now: i64) {
        let is_due = || self.keys.load().first().is_none_or(|newest| !newest.makes_tickets(now));
        if !is_due() {
            return;
        }
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        // Another worker may have been first. Without random bytes the old key stays.
        if is_due()
            && let Some(fresh) = TicketKey::new(now)
        {
            let older =
                self.keys.load().iter().filter(|key| key.is_accepted(now)).cloned().collect::<Vec<_>>();
            self.keys.store([fresh].into_iter().chain(older).take(KEYS_MAX).collect::<Vec<_>>().into());
        }
    }
}

fn read(keys: &TicketKeys, admits: Admits) -> Option<Vec<TicketKey>> {
    let bytes = keys.0.strip_prefix(&[FORM])?.strip_prefix(&admits.0)?;
    let (keys, rest) = bytes.as_chunks::<KEY_BYTES>();
    let is_whole = rest.is_empty() && keys.len() <= KEYS_MAX;
    is_whole.then(|| keys.iter().filter_map(TicketKey::read).collect())
}

impl TicketKey {
    fn new(now: i64) -> Option<Self> {
        let mut key = Self { name: [0; NAME_BYTES], secret: [0; SECRET_BYTES], made_at: now };
        rand::fill(&mut key.name).and_then(|()| rand::fill(&mut key.secret)).ok()?;
        Some(key)
    }

    fn read(bytes: &[u8; KEY_BYTES]) -> Option<Self> {
        let (name, rest) = bytes.split_first_chunk()?;
        let (secret, rest) = rest.split_first_chunk()?;
        Some(Self { name: *name, secret: *secret, made_at: i64::from_be_bytes(rest.try_into().ok()?) })
    }

    fn makes_tickets(&self, now: i64) -> bool {
        now.saturating_sub(self.made_at) < i64::from(KEY_SECONDS)
    }

    fn is_accepted(&self, now: i64) -> bool {
        now.saturating_sub(self.made_at) < i64::from(KEY_SECONDS) * KEYS_MAX as i64
    }

    fn seal(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let mut sealed = plain.to_vec();
        let nonce = self.cipher()?.seal_in_place_append_tag(Aad::from(self.name), &mut sealed).ok()?;
        let parts: [&[u8]; 3] = [&self.name, nonce.as_ref(), &sealed];
        Some(parts.concat())
    }

    fn open(&self, sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = sealed.split_at_checked(NONCE_BYTES)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut plain = sealed.to_vec();
        let length = self.cipher()?.open_in_place(nonce, Aad::from(self.name), &mut plain).ok()?.len();
        plain.truncate(length);
        Some(plain)
    }

    fn cipher(&self) -> Option<RandomizedNonceKey> {
        RandomizedNonceKey::new(&AES_256_GCM_SIV, &self.secret).ok()
    }
}

impl fmt::Debug for Tickets {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Tickets")
    }
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        KEY_SECONDS
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.encrypt_at(plain, now())
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.decrypt_at(cipher, now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3600;
    const ADMITS: Admits = Admits([7; ADMITS_BYTES]);

    fn made_at(now: i64) -> Tickets {
        let keys = ArcSwap::from_pointee(vec![TicketKey::new(now).expect("random bytes")]);
        Tickets { keys, turn: Mutex::default() }
    }

    #[test]
    fn a_ticket_is_taken_until_its_key_is_gone() {
        let tickets = made_at(0);
        let first = tickets.encrypt_at(b"session", 5 * HOUR).expect("a ticket");
        let second = tickets.encrypt_at(b"another", 7 * HOUR).expect("a ticket");
        assert_ne!(first[..NAME_BYTES], second[..NAME_BYTES], "the key has changed");
        let opened = |ticket: &[u8], now| tickets.decrypt_at(ticket, now);
        assert_eq!(opened(&first, 11 * HOUR).as_deref(), Some(&b"session"[..]));
        assert_eq!(opened(&first, 12 * HOUR), None);
        assert_eq!(opened(&second, 18 * HOUR).as_deref(), Some(&b"another"[..]));
        assert_eq!(opened(&second, 19 * HOUR), None);
        tickets.encrypt_at(b"", 40 * HOUR);
        assert_eq!(tickets.keys.load().len(), 1, "what nobody accepts is gone");
    }

    #[test]
    fn foreign_tickets_are_refused() {
        let tickets = made_at(0);
        let ticket = tickets.encrypt_at(b"session", 0).expect("a ticket");
        assert!(!ticket.windows(7).any(|window| window == b"session"));
        for place in 0..ticket.len() {
            let mut forged = ticket.clone();
            forged[place] ^= 1;
            assert_eq!(tickets.decrypt_at(&forged, 0), None, "{place}");
            assert_eq!(tickets.decrypt_at(&ticket[..place], 0), None, "{place}");
        }
        assert_eq!(made_at(0).decrypt_at(&ticket, 0), None, "another's");
    }

    #[test]
    fn another_process_goes_on_with_the_keys() {
        let tickets = made_at(0);
        let old = tickets.encrypt_at(b"old", 0).expect("a ticket");
        let new = tickets.encrypt_at(b"new", 7 * HOUR).expect("a ticket");
        let keys = TicketKeys::from_bytes(tickets.keys(ADMITS).as_bytes().to_vec());
        assert_eq!(format!("{keys:?}"), "TicketKeys(secret)");
        let next = made_at(7 * HOUR);
        assert!(next.adopt_at(&keys, ADMITS, 8 * HOUR));
        for (ticket, plain) in [(&old, b"old"), (&new, b"new")] {
            assert_eq!(next.decrypt_at(ticket, 8 * HOUR).as_deref(), Some(&plain[..]));
        }
        let again = next.encrypt_at(b"again", 8 * HOUR).expect("a ticket");
        assert_eq!(tickets.decrypt_at(&again, 8 * HOUR).as_deref(), Some(&b"again"[..]));
    }

    #[test]
    fn keys_for_other_clients_or_of_another_form_are_left() {
        let tickets = made_at(0);
        let ticket = tickets.encrypt_at(b"session", 0).expect("a ticket");
        let keys = tickets.keys(ADMITS);
        let changed = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = keys.as_bytes().to_vec();
            change(&mut bytes);
            TicketKeys::from_bytes(bytes)
        };
        let others = [
            (changed(&|bytes| bytes[0] += 1), ADMITS, 0, "another form"),
            (changed(&Vec::clear), ADMITS, 0, "nothing"),
            (changed(&|bytes| bytes.truncate(40)), ADMITS, 0, "half a key"),
            (changed(&|bytes| bytes.extend_from_within(33..)), ADMITS, 13 * HOUR, "too old"),
            (keys.clone(), Admits([8; ADMITS_BYTES]), 0, "for other clients"),
        ];
        for (keys, admits, now, what) in others {
            let next = made_at(now);
            assert!(!next.adopt_at(&keys, admits, now), "{what}");
            assert_eq!(next.decrypt_at(&ticket, now), None, "{what}");
            assert!(next.encrypt_at(b"", now).is_some(), "{what}: it goes on with its own");
        }
    }
}
