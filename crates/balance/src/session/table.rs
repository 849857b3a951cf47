//! Table of sticky sessions for all workers: shards, each behind a lock that is held briefly.
//!
//! Keys are stored as 128-bit hashes, so that a session takes up to 200 bytes with index, and no session names are in
//! memory. Bounded: the least recently used session is evicted.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::hash::{HashSecret, ServerId};
use crate::time::Time;

/// The hashed key of a session, as upper and lower half. As two `u64`, because an `Option<u128>` would take more memory
/// and time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionKey(u64, u64);

impl SessionKey {
    /// The key of the session with this name. With a secret of the process, an attacker cannot produce another
    /// session's key.
    pub fn from_name(name: &[u8], secret: HashSecret) -> Self {
        Self::from_u128(secret.hash_wide(name))
    }

    /// For the process that takes over.
    pub const fn as_u128(self) -> u128 {
        (self.0 as u128) << 64 | self.1 as u128
    }

    pub const fn from_u128(number: u128) -> Self {
        Self((number >> 64) as u64, number as u64)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundSession {
    pub server: ServerId,
    /// The previous use.
    pub used_at: Time,
}

/// The number of shards, except in small tables.
// Workers wait for each other only if two look at one shard in the same moment.
const SHARDS: usize = 16;
/// Tables for fewer sessions have one shard, so that their limit is exact.
const SHARDED_MIN: usize = 1024;

/// The sticky sessions of an upstream.
#[derive(Debug)]
pub struct Sessions {
    shards: Box<[Mutex<SessionShard>]>,
    secret: HashSecret,
}

impl Sessions {
    /// A table for `sessions_max` sessions, each forgotten when unused for `ttl`. Memory is used as needed. `secret`
    /// must be random.
    ///
    /// # Panics
    /// If `sessions_max` is 0, or more than two billion.
    pub fn new(sessions_max: usize, ttl: Duration, secret: HashSecret) -> Self {
        assert!((1..=i32::MAX as usize).contains(&sessions_max), "a table has room for sessions");
        // Shards fill unevenly, so that a small table would evict before it is full.
        let shards = if sessions_max < SHARDED_MIN { 1 } else { SHARDS };
        let shard = |_| Mutex::new(SessionShard::new(sessions_max.div_ceil(shards), ttl));
        Self { shards: (0..shards).map(shard).collect(), secret }
    }

    /// The secret that keys are hashed with, for the process that takes over.
    pub const fn secret(&self) -> HashSecret {
        self.secret
    }

    /// The key of the session with this name.
    pub fn key(&self, name: &[u8]) -> SessionKey {
        SessionKey::from_name(name, self.secret)
    }

    /// The server of a session. Counts as a use of the session.
    pub fn find(&self, key: SessionKey, now: Time) -> Option<ServerId> {
        self.find_since(key, Time::START, now).map(|found| found.server)
    }

    /// The server of a session, and its previous use. Counts as a use, unless the previous one was before `doubted_at`.
    pub fn find_since(&self, key: SessionKey, doubted_at: Time, now: Time) -> Option<FoundSession> {
        self.shard(key).find(key, doubted_at, now)
    }

    /// Binds a session to a server, replacing an earlier one.
    pub fn bind(&self, key: SessionKey, server: ServerId, now: Time) {
        self.shard(key).bind(key, server, now);
    }

    /// Removes a session. Returns whether it existed.
    pub fn forget(&self, key: SessionKey) -> bool {
        self.shard(key).forget(key)
    }

    /// The number of sessions. Expired ones count until they are looked up or evicted.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).index.len()).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of sessions on a server. Visits all sessions.
    pub fn on(&self, server: ServerId, now: Time) -> usize {
        self.shards.iter().map(|shard| lock(shard).on(server, now)).sum()
    }

    /// The most recently used sessions, at most `sessions_max`, least recently used first: bound in this order, another
    /// table evicts them in the original order.
    pub fn latest(&self, sessions_max: usize, now: Time) -> Vec<(SessionKey, ServerId)> {
        let mut latest: Vec<(Time, SessionKey, ServerId)> = Vec::new();
        for shard in &self.shards {
            let shard = lock(shard);
            let used = shard.newest_first().take_while(|session| !shard.is_forgotten(session, now));
            latest.extend(
                used.take(sessions_max).map(|session| (session.used_at, session.key, session.server)),
            );
        }
        latest.sort_by_key(|(used_at, ..)| *used_at);
        // Each shard gave up to the limit, since any of them may have the latest sessions.
        let surplus = latest.len().saturating_sub(sessions_max);
        latest.drain(surplus..).map(|(_, key, server)| (key, server)).collect()
    }

    fn shard(&self, key: SessionKey) -> MutexGuard<'_, SessionShard> {
        // The index uses the lower bits.
        lock(&self.shards[(key.0 >> 32) as usize % self.shards.len()])
    }
}

/// A shard is consistent between any two of its steps, so a panic elsewhere does not corrupt it.
fn lock(shard: &Mutex<SessionShard>) -> MutexGuard<'_, SessionShard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug)]
struct SessionShard {
    index: HashMap<SessionKey, u32, BuildHasherDefault<Hashed>>,
    sessions: Vec<SessionSlot>,
    sessions_max: usize,
    ttl: Duration,
    /// The most and the least recently used session; links lead from the first to the second.
    newest: u32,
    oldest: u32,
    /// Free places, linked by `older`.
    free: u32,
}

#[derive(Debug)]
struct SessionSlot {
    key: SessionKey,
    server: ServerId,
    used_at: Time,
    newer: u32,
    older: u32,
}

const NONE: u32 = u32::MAX;

impl SessionShard {
    fn new(sessions_max: usize, ttl: Duration) -> Self {
        // Twice the room, so that removed entries are cleaned up in place and the index never grows.
        let index = HashMap::with_capacity_and_hasher(2 * sessions_max, BuildHasherDefault::default());
        Self { index, sessions: Vec::new(), sessions_max, ttl, newest: NONE, oldest: NONE, free: NONE }
    }

    fn find(&mut self, key: SessionKey, doubted_at: Time, now: Time) -> Option<FoundSession> {
        let place = *self.index.get(&key)?;
        if self.is_over(place, now) {
            // Frees the place at once, although eviction would find it later.
            self.forget(key);
            return None;
        }
        let SessionSlot { server, used_at, .. } = self.sessions[place as usize];
        // A session in doubt may have moved at another instance, so the look-up alone must not keep it alive.
        if used_at >= doubted_at {
            self.use_now(place, now);
        }
        Some(FoundSession { server, used_at })
    }

    fn bind(&mut self, key: SessionKey, server: ServerId, now: Time) {
        if let Some(&place) = self.index.get(&key) {
            self.sessions[place as usize].server = server;
            self.use_now(place, now);
            return;
        }
        // An expired session is evicted before memory grows; one that is alive, only when the table is full.
        let is_full = self.index.len() >= self.sessions_max;
        if self.oldest != NONE && (is_full || self.is_over(self.oldest, now)) {
            self.forget(self.sessions[self.oldest as usize].key);
        }
        let session = SessionSlot { key, server, used_at: now, newer: NONE, older: NONE };
        let place = self.free;
        let place = if place == NONE {
            self.sessions.push(session);
            self.sessions.len() as u32 - 1
        } else {
            self.free = self.sessions[place as usize].older;
            self.sessions[place as usize] = session;
            place
        };
        self.index.insert(key, place);
        self.link(place);
    }

    fn forget(&mut self, key: SessionKey) -> bool {
        let Some(place) = self.index.remove(&key) else { return false };
        self.unlink(place);
        self.sessions[place as usize].older = self.free;
        self.free = place;
        true
    }

    fn on(&self, server: ServerId, now: Time) -> usize {
        let places = self.index.values().filter(|&&place| !self.is_over(place, now));
        places.filter(|&&place| self.sessions[place as usize].server == server).count()
    }

    fn newest_first(&self) -> impl Iterator<Item = &SessionSlot> {
        let at = |place: u32| (place != NONE).then(|| &self.sessions[place as usize]);
        std::iter::successors(at(self.newest), move |session| at(session.older))
    }

    fn is_over(&self, place: u32, now: Time) -> bool {
        self.is_forgotten(&self.sessions[place as usize], now)
    }

    fn is_forgotten(&self, session: &SessionSlot, now: Time) -> bool {
        now.since(session.used_at) >= self.ttl
    }

    fn use_now(&mut self, place: u32, now: Time) {
        self.sessions[place as usize].used_at = now;
        if self.newest != place {
            self.unlink(place);
            self.link(place);
        }
    }

    fn link(&mut self, place: u32) {
        let older = std::mem::replace(&mut self.newest, place);
        match older {
            NONE => self.oldest = place,
            older => self.sessions[older as usize].newer = place,
        }
        let session = &mut self.sessions[place as usize];
        (session.newer, session.older) = (NONE, older);
    }

    fn unlink(&mut self, place: u32) {
        let SessionSlot { newer, older, .. } = self.sessions[place as usize];
        match newer {
            NONE => self.newest = older,
            newer => self.sessions[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.sessions[older as usize].newer = newer,
        }
    }
}

/// A hasher for keys that are hashes already.
#[derive(Debug, Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    // Never called for a `SessionKey`, but the trait requires it.
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    /// Uses the last half of the key as its hash.
    fn write_u64(&mut self, half: u64) {
        self.0 = half;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TTL: Duration = Duration::from_millis(100);

    fn at(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    fn server(number: u64) -> ServerId {
        ServerId::from_u64(number)
    }

    #[test]
    fn sessions_are_forgotten_when_they_are_not_used() {
        let sessions = Sessions::new(10, TTL, HashSecret::default());
        let [one, other] = [sessions.key(b"one"), sessions.key(b"other")];
        sessions.bind(one, server(1), at(0));
        sessions.bind(other, server(2), at(0));
        assert_eq!(sessions.find(one, at(99)), Some(server(1)), "used, and so kept");
        assert_eq!((sessions.on(server(1), at(120)), sessions.on(server(2), at(120))), (1, 0));
        assert_eq!(sessions.find(one, at(198)), Some(server(1)));
        assert_eq!((sessions.find(other, at(198)), sessions.len()), (None, 1));
        sessions.bind(one, server(3), at(200));
        assert_eq!(sessions.find(one, at(200)), Some(server(3)), "moved");
        let found =
            |server_number, millis| Some(FoundSession { server: server(server_number), used_at: at(millis) });
        assert_eq!(sessions.find_since(one, at(201), at(210)), found(3, 200), "in doubt, and so not used");
        assert_eq!(sessions.find_since(one, at(200), at(220)), found(3, 200));
        assert_eq!(sessions.find_since(one, at(0), at(230)), found(3, 220));
        assert!(sessions.forget(one) && !sessions.forget(one));
        assert!(sessions.is_empty());
    }

    #[test]
    fn the_session_used_least_recently_makes_room() {
        let sessions = Sessions::new(3, TTL, HashSecret::default());
        let keys = [b"a", b"b", b"c", b"d"].map(|name| sessions.key(name));
        for (key, millis) in keys[..3].iter().zip(0..) {
            sessions.bind(*key, server(millis), at(millis));
        }
        sessions.find(keys[0], at(5));
        sessions.bind(keys[3], server(9), at(6));
        let found = keys.map(|key| sessions.find(key, at(7)).map(ServerId::as_u64));
        assert_eq!(found, [Some(0), None, Some(2), Some(9)]);
    }

    #[test]
    fn another_table_goes_on_with_the_sessions_used_last() {
        let sessions = Sessions::new(2000, TTL, HashSecret::new(7));
        for number in 0..1500u32 {
            sessions.bind(
                sessions.key(&number.to_be_bytes()),
                server(u64::from(number)),
                at(u64::from(number)),
            );
        }
        sessions.find(sessions.key(&1405u32.to_be_bytes()), at(1500));
        let latest = |sessions_max| -> Vec<u64> {
            sessions.latest(sessions_max, at(1510)).into_iter().map(|(_, server)| server.as_u64()).collect()
        };
        let expected: Vec<u64> = (1411..1500).chain([1405]).collect();
        assert_eq!(latest(usize::MAX), expected, "without those whose time is over");
        assert_eq!((latest(2), latest(0)), (vec![1499, 1405], vec![]));
        let next = Sessions::new(2, TTL, sessions.secret());
        for (key, server) in sessions.latest(3, at(1510)) {
            next.bind(SessionKey::from_u128(key.as_u128()), server, at(0));
        }
        let found =
            [1498, 1499, 1405].map(|number: u32| next.find(next.key(&number.to_be_bytes()), at(1)).is_some());
        assert_eq!(found, [false, true, true]);
    }

    #[test]
    fn a_large_table_holds_exactly_its_limit() {
        let sessions = Sessions::new(10_000, TTL, HashSecret::new(7));
        for number in 0u32..50_000 {
            sessions.bind(sessions.key(&number.to_be_bytes()), server(1), at(0));
        }
        assert!((9_900..=10_000).contains(&sessions.len()), "{}", sessions.len());
        let room: usize = sessions.shards.iter().map(|shard| lock(shard).sessions.len()).sum();
        assert_eq!(room, 10_000);
    }

    #[test]
    fn sessions_whose_time_is_over_make_room_before_memory_grows() {
        let sessions = Sessions::new(1000, TTL, HashSecret::default());
        for number in 0u32..5000 {
            // At most a hundred sessions are alive at any time.
            sessions.bind(sessions.key(&number.to_be_bytes()), server(1), at(u64::from(number)));
        }
        assert_eq!(lock(&sessions.shards[0]).sessions.len(), 100);
    }

    proptest! {
        #[test]
        fn it_does_as_a_list_would(steps in prop::collection::vec((0u8..3, 0u8..12, 0u64..30), 0..300)) {
            let sessions = Sessions::new(5, TTL, HashSecret::default());
            // From the least recently used one: key, server, last use.
            let mut list: Vec<(u8, u64, u64)> = Vec::new();
            let mut now = 0;
            for (step, name, millis) in steps {
                now += millis;
                let key = sessions.key(&[name]);
                let known = list.iter().position(|session| session.0 == name).map(|place| list.remove(place));
                match step {
                    0 => {
                        let known = known.filter(|session| now - session.2 < 100);
                        prop_assert_eq!(sessions.find(key, at(now)).map(ServerId::as_u64), known.map(|known| known.1));
                        list.extend(known.map(|(name, server, _)| (name, server, now)));
                    }
                    1 => {
                        if known.is_none() && !list.is_empty() && (list.len() >= 5 || now - list[0].2 >= 100) {
                            list.remove(0);
                        }
                        sessions.bind(key, server(now), at(now));
                        list.push((name, now, now));
                    }
                    _ => prop_assert_eq!(sessions.forget(key), known.is_some()),
                }
                prop_assert_eq!(sessions.len(), list.len());
            }
        }
    }
}
