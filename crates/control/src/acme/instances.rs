//! Certificates of instances that share through Redis: one instance orders at a time, and the others copy its
//! result. Without Redis, each instance waits while there is time, and then orders itself.

use std::time::Duration;

use telemetry::message;

use super::folder::{CertificateOrigin, Issued};
use super::known::UsableCertificate;
use super::schedule::Validity;
use super::{CertificateTask, now};
use crate::shared::{Engine, Lease, Reach, SharedCertificate};

/// Without a certificate, an instance waits this long for an unreachable Redis.
const PATIENCE: Duration = Duration::from_secs(60);
/// Shorter losses of Redis are not reported.
const MOMENT: Duration = Duration::from_secs(2);
/// With a certificate, an instance does not wait in this last fraction of the lifetime.
const LAST_PART: i64 = 6;

pub(super) enum Leave {
    /// Nothing is shared, or Redis has been unreachable for too long.
    Alone,
    /// This instance holds the lock.
    Held(Lease),
    Taken,
    /// Redis is unreachable, but there is time.
    Waits,
}

impl CertificateTask {
    /// Asks for permission to order the certificate. `is_ordered`: an operator has requested it.
    pub(super) async fn leave(&self, known: Option<&UsableCertificate>, is_ordered: bool) -> Leave {
        let Some(reach) = self.issuer.control.upgrade().map(|control| control.shared.reach()) else {
            return Leave::Waits;
        };
        let gone = match reach {
            Reach::Nothing => return Leave::Alone,
            Reach::Gone(since) => since,
            Reach::Up(engine) => match engine.lease(&format!("acme:lock:{}", self.name)).await {
                Ok(Some(lease)) => return Leave::Held(lease),
                Ok(None) => return Leave::Taken,
                Err(_) => Duration::ZERO,
            },
        };
        if is_ordered || may_ask_alone(gone, known.map(|known| known.validity), now()) {
            self.say("Redis cannot be reached, so this instance requests one itself");
            return Leave::Alone;
        }
        // A starting proxy reaches Redis in a moment.
        if gone < MOMENT {
            return Leave::Waits;
        }
        self.say(match known {
            None => "waits for Redis, because another instance may request it; after a minute this instance requests \
                     one itself",
            Some(_) => {
                "its renewal waits for Redis, because another instance may request it; in the last sixth of its \
                 lifetime this instance requests one itself"
            }
        });
        Leave::Waits
    }

    /// Takes the shared certificate if it is newer than this instance's, else shares this instance's.
    pub(super) async fn exchange(&self) {
        let Some(reach) = self.issuer.control.upgrade().map(|control| control.shared.reach()) else { return };
        let Reach::Up(engine) = reach else { return };
        let own = self.known().filter(|_| !self.is_of_another_authority());
        let own_from = own.as_ref().map(|own| own.validity.from);
        let done = match engine.certificate(&self.name).await {
            Ok(Some((from, shared))) if own_from.is_none_or(|own| own < from) => self.take(&shared),
            Ok(shared) if shared.as_ref().map(|(from, _)| *from) < own_from => self.share(&engine).await,
            Ok(_) => Ok(()),
            Err(why) => Err(why),
        };
        if let Err(why) = done {
            self.say(&why);
        }
    }

    fn take(&self, shared: &SharedCertificate) -> Result<(), String> {
        let issuer = &self.issuer;
        let is_its = |directory: String| directory == shared.directory;
        if !issuer.authorities().iter().any(|authority| is_its(authority.directory.to_string())) {
            // The other instance has another configuration.
            return Ok(());
        }
        let failed = |error| format!("{} cannot be written: {error}", issuer.settings.folder.display());
        // Another process with the same folder may take it, too.
        let Some(_lock) = issuer.folder.lock(&self.name).map_err(failed)? else { return Ok(()) };
        let origin = CertificateOrigin { directory: shared.directory.clone() };
        let issued = Issued { chain: &shared.chain, key: &shared.key, origin };
        let check = |files: &config::KeyPair| match UsableCertificate::read(files, &self.names) {
            Some(known) if known.validity.until > now() => Ok(()),
            _ => Err("the certificate from another instance is unusable".to_owned()),
        };
        issuer.folder.put(&self.name, &issued, check)?;
        self.reload();
        let until = self.known().map(|known| tls::written_time(known.validity.until)).unwrap_or_default();
        message::info(&format!(
            "certificate of {}: taken from another instance, valid until {until}",
            self.name
        ));
        Ok(())
    }

    pub(super) async fn share(&self, engine: &Engine) -> Result<(), String> {
        let (Some(known), Some(authority)) = (self.known(), self.issuer.authority_of(&self.name)) else {
            return Ok(());
        };
        let files = self.issuer.folder.files(&self.name);
        let read = |path: &std::path::Path| {
            std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
        };
        let shared = SharedCertificate {
            chain: read(&files.cert)?,
            key: read(&files.key)?,
            directory: authority.directory.to_string(),
        };
        let Validity { from, until } = known.validity;
        let left = Duration::from_secs((until - now()).max(1).unsigned_abs());
        engine.put_certificate(&self.name, &shared, (from, left)).await
    }

    /// Writes a message about the certificate, unless it repeats the last one.
    fn say(&self, what: &str) {
        if self.said.replace(what.to_owned()) != what {
            message::warn(&format!("certificate of {}: {what}", self.name));
        }
    }
}

/// Whether an instance may order without Redis, after this time without it.
fn may_ask_alone(gone: Duration, validity: Option<Validity>, now: i64) -> bool {
    let is_near_end = |Validity { from, until }| (until - now).saturating_mul(LAST_PART) < until - from;
    gone >= PATIENCE && validity.is_none_or(is_near_end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_redis_an_instance_waits_while_there_is_time() {
        let day = 86_400;
        let ninety = Some(Validity { from: 0, until: 90 * day });
        for (gone_seconds, validity, now, expected) in [
            (0, None, 0, false),
            (59, None, 0, false),
            (60, None, 0, true),
            (60, ninety, 60 * day, false),
            (1_000_000, ninety, 75 * day, false),
            (60, ninety, 75 * day + 1, true),
            (59, ninety, 89 * day, false),
            (60, ninety, 91 * day, true),
        ] {
            let alone = may_ask_alone(Duration::from_secs(gone_seconds), validity, now);
            assert_eq!(alone, expected, "{gone_seconds} {validity:?} {now}");
        }
    }
}
