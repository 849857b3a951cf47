//! Bots that a route lets in (Web Bot Auth): their names, and their keys.

use std::sync::Arc;

use config::{Server, WebBotAuth};

use super::tokens::Keys;
use crate::context::vouched::Vouched;

/// The bots of a route. Shared by all workers.
pub(crate) struct Bots {
    pub(crate) settings: WebBotAuth,
    pub(crate) agents: Vec<Agent>,
}

/// An agent, which signs the requests of a bot.
pub(crate) struct Agent {
    server: Server,
    pub(crate) keys: Arc<Keys>,
    /// What its signature says: who it is.
    pub(crate) vouched: Arc<Vouched>,
}

impl Bots {
    /// The bots of a route; `keys` are those of each agent.
    pub(super) fn new(settings: &WebBotAuth, keys: impl IntoIterator<Item = Arc<Keys>>) -> Self {
        let agent = |(source, keys): (&config::KeySource, Arc<Keys>)| Agent {
            server: source.url.server.clone(),
            keys,
            vouched: Arc::new(Vouched { user: source.url.origin(), ..Vouched::default() }),
        };
        Self { settings: settings.clone(), agents: settings.agents.iter().zip(keys).map(agent).collect() }
    }

    /// The agent that Signature-Agent names.
    pub(crate) fn agent(&self, named: &str) -> Option<&Agent> {
        let server: Server = named.parse().ok()?;
        self.agents.iter().find(|agent| agent.server == server)
    }
}
