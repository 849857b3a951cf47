//! Redis access for occasional sharing, for example of certificates, while Redis is reachable.

use std::sync::Arc;
use std::time::Duration;

use config::Redis;
use redis::{Cmd, FromRedisValue};

use super::link::RedisLink;
use super::seal::Seal;

pub(crate) struct Engine {
    link: Arc<RedisLink>,
    /// Prefix of all keys.
    name: String,
    pub(crate) instance: String,
    pub(crate) seal: Arc<Seal>,
}

pub(crate) enum Reach {
    /// There is no Redis, or no secret to seal with.
    Nothing,
    /// Unreachable for this time.
    Gone(Duration),
    Up(Arc<Engine>),
}

impl Engine {
    pub(super) fn new(settings: &Redis, instance: &str, (link, seal): (&Arc<RedisLink>, &Arc<Seal>)) -> Self {
        let (name, instance) = (settings.name.clone(), instance.to_owned());
        Self { link: Arc::clone(link), name, instance, seal: Arc::clone(seal) }
    }

    pub(crate) fn key(&self, name: &str) -> String {
        format!("{}:{name}", self.name)
    }

    /// Sends a command. An unexpected answer is an error.
    pub(crate) async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, String> {
        self.link.ask(command).await
    }

    /// Loads a script. Returns its hash.
    pub(crate) async fn script(&self, text: &str) -> Result<String, String> {
        self.link.script(text).await
    }

    /// Runs a script with its text, for rare commands.
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
