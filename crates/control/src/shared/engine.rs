//! Redis for whoever shares something now and then, such as certificates: as it is reached at this moment.

use std::sync::Arc;
use std::time::Duration;

use config::Redis;
use redis::{Cmd, FromRedisValue};

use super::link::Link;
use super::seal::Seal;

/// Redis while it is reached.
pub(crate) struct Engine {
    link: Arc<Link>,
    /// What the names of all keys begin with.
    name: String,
    /// The name of this instance.
    pub(crate) instance: String,
    /// What secrets are sealed with.
    pub(crate) seal: Arc<Seal>,
}

/// Whether secrets can be shared at this moment.
pub(crate) enum Reach {
    /// There is no Redis, or no secret that seals them.
    Nothing,
    /// It was not reached for so long.
    Gone(Duration),
    Up(Arc<Engine>),
}

impl Engine {
    pub(super) fn new(settings: &Redis, instance: &str, (link, seal): (&Arc<Link>, &Arc<Seal>)) -> Self {
        let (name, instance) = (settings.name.clone(), instance.to_owned());
        Self { link: Arc::clone(link), name, instance, seal: Arc::clone(seal) }
    }

    /// The whole name of a key.
    pub(crate) fn key(&self, name: &str) -> String {
        format!("{}:{name}", self.name)
    }

    /// Has a command done.
    ///
    /// # Errors
    /// Why there is no answer, or not the one that was expected.
    pub(crate) async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, String> {
        self.link.ask(command).await
    }

    /// Has Redis keep a script. Returns how to call it.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub(crate) async fn script(&self, text: &str) -> Result<String, String> {
        self.link.script(text).await
    }

    /// Has a script done, for commands that are rare: its text goes along.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub(crate) async fn run<T: FromRedisValue>(
        &self,
        script: &str,
        keys: &[&str],
        arguments: &[&[u8]],
    ) -> Result<T, String> {
        let mut command = redis::cmd("EVAL");
        command.arg(script).arg(keys.len());
        keys.iter().for_each(|key| _ = command.arg(self.key(key)));
        self.ask(command.arg(arguments)).await
    }
}
