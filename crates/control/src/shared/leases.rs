//! Locks between instances. The holder extends its lock while it works, and the lock expires soon after a crash.

use std::sync::Arc;
use std::time::Duration;

use telemetry::message;
use tokio::task::AbortHandle;

use super::engine::Engine;

/// How long a lock outlives a crashed instance.
const LEASE: Duration = Duration::from_secs(30);
const EXTEND_EVERY: Duration = Duration::from_secs(10);

/// Only its owner extends or frees a lock.
const EXTEND: &str = r"
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 0";
const FREE: &str = r"
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0";

/// A lock that is held until this is dropped.
pub(crate) struct Lease {
    engine: Arc<Engine>,
    key: String,
    owner: String,
    extends: AbortHandle,
}

impl Engine {
    /// Takes a lock; `None` if another instance holds it. Must be called on the control thread.
    pub(crate) async fn lease(self: &Arc<Self>, key: &str) -> Result<Option<Lease>, String> {
        let owner = format!("{}:{:032x}", self.instance, fastrand::u128(..));
        let mut command = redis::cmd("SET");
        command.arg(self.key(key)).arg(&owner).arg("NX").arg("PX").arg(LEASE.as_millis() as u64);
        let taken: Option<String> = self.ask(&command).await?;
        Ok(taken.is_some().then(|| {
            let extending = extend(Arc::clone(self), key.to_owned(), owner.clone());
            let extends = tokio::task::spawn_local(extending).abort_handle();
            Lease { engine: Arc::clone(self), key: key.to_owned(), owner, extends }
        }))
    }
}

async fn extend(engine: Arc<Engine>, key: String, owner: String) {
    let lease_ms = LEASE.as_millis().to_string();
    loop {
        tokio::time::sleep(EXTEND_EVERY).await;
        let extended: Result<u64, String> =
            engine.run(EXTEND, &[&key], &[owner.as_bytes(), lease_ms.as_bytes()]).await;
        if extended == Ok(0) {
            // The holder continues: at worst, another instance does the same work.
            message::warn(&format!("{key}: Redis has lost this lock, another instance may take it"));
            return;
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.extends.abort();
        let (engine, key, owner) =
            (Arc::clone(&self.engine), self.key.clone(), std::mem::take(&mut self.owner));
        tokio::task::spawn_local(async move {
            // If this fails, the lock expires.
            let _: Result<u64, String> = engine.run(FREE, &[&key], &[owner.as_bytes()]).await;
        });
    }
}
