//! Bots that a route admits (Web Bot Auth): their names, and their keys.

use std::sync::Arc;

use config::{Server, WebBotAuth};

use super::tokens::LiveTokenKeys;
use crate::shared::vouched::Vouched;

/// The bots of a route. Shared by all workers.
pub(crate) struct Bots {
    pub(crate) settings: WebBotAuth,
    pub(crate) agents: Vec<BotAgent>,
}

/// An agent, which signs the requests of a bot.
pub(crate) struct BotAgent {
    server: Server,
    pub(crate) keys: Arc<LiveTokenKeys>,
    /// The identity that its signature proves.
    pub(crate) vouched: Arc<Vouched>,
}

impl Bots {
    /// Creates the bots of a route; `keys` are those of each agent.
    pub(super) fn new(settings: &WebBotAuth, keys: impl IntoIterator<Item = Arc<LiveTokenKeys>>) -> Self {
        let agent = |(source, keys): (&config::KeySource, Arc<LiveTokenKeys>)| BotAgent {
            server: source.url.server.clone(),
            keys,
            vouched: Arc::new(Vouched { user: source.url.origin(), ..Vouched::default() }),
        };
        Self { settings: settings.clone(), agents: settings.agents.iter().zip(keys).map(agent).collect() }
    }

    /// Returns the agent that Signature-Agent names.
    pub(crate) fn agent(&self, named: &str) -> Option<&BotAgent> {
        let server: Server = named.parse().ok()?;
        self.agents.iter().find(|agent| agent.server == server)
    }
}
