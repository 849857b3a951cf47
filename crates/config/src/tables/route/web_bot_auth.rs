//! The option `web_bot_auth` of routes: its declaration, and its relations.

use std::path::PathBuf;
use std::time::Duration;

use crate::document::reader::Reader;
use crate::document::value_error::{ValueError, ValueFault};
use crate::option::kind::{At, Located, Switch, Text};
use crate::option::pairs::OneOrMany;
use crate::option::path::PATH_KIND;
use crate::option::range::Wait;
use crate::option::server::Scheme;
use crate::option::table::{Element, Inline, Table, key, required};
use crate::tables::jwt::options::{REFRESH, is_loopback, key_url};
use crate::tables::jwt::{KeySource, KeyUrl, WebBotAuth};

/// Where agents publish their keys (draft-meunier-http-message-signatures-directory §4).
const DIRECTORY: &str = "/.well-known/http-message-signatures-directory";

#[derive(Debug, Clone)]
pub(crate) struct BotsWritten {
    agents: Vec<Located<KeyUrl>>,
    lifetime: Duration,
    leeway: Duration,
    refresh: Duration,
    ca: Option<Located<PathBuf>>,
    allow_http: bool,
}

impl Default for BotsWritten {
    fn default() -> Self {
        Self {
            agents: Vec::new(),
            lifetime: Duration::from_secs(24 * 60 * 60),
            leeway: Duration::from_secs(30),
            refresh: Duration::from_secs(60 * 60),
            ca: None,
            allow_http: false,
        }
    }
}

const AGENT: &str = "the URL of an agent such as https://bot.example.com";

const AGENT_URL: Text<KeyUrl> = Text {
    expected: AGENT,
    read: |text| {
        let url = key_url(text).map_err(|error| ValueError { expected: AGENT, ..error })?;
        if url.path == "/" {
            return Ok(KeyUrl { path: DIRECTORY.to_owned(), ..url });
        }
        let why = "has a path, but agents are identified by host only";
        let fault = ValueFault::Unknown { written: text.to_owned(), why, nearest: None };
        Err(ValueError { fault, expected: AGENT })
    },
    print: |url| url.origin(),
};

pub(crate) const WEB_BOT_AUTH: Inline<BotsWritten> = Inline {
    title: "web_bot_auth",
    example: "{ agents = [\"https://bot.example.com\"] }",
    table: &Table {
        options: &[
            required!(
                "agents",
                OneOrMany(At(AGENT_URL)),
                BotsWritten.agents,
                "Admitted agents, by the URL in their Signature-Agent. Their keys are fetched from \
                 `/.well-known/http-message-signatures-directory` there, and from nowhere else.",
            ),
            key!(
                "lifetime",
                Wait { range: Duration::from_secs(1)..=Duration::from_secs(7 * 24 * 60 * 60) },
                BotsWritten.lifetime,
                "Longest accepted time from `created` to `expires` of a signature. During this time, anyone \
                 who has seen a request can repeat it.",
            ),
            key!(
                "leeway",
                Wait { range: Duration::ZERO..=Duration::from_secs(600) },
                BotsWritten.leeway,
                "How far the clocks of agent and proxy may be apart.",
            ),
            key!(
                "refresh",
                Wait { range: REFRESH },
                BotsWritten.refresh,
                "How long fetched keys are used before they are fetched again, if the response has no `Cache-Control: \
                 max-age`; that counts from 1m to 1d.",
            ),
            key!(
                "ca",
                PATH_KIND,
                BotsWritten.ca,
                "The CA certificates that sign the certificates of the agents' servers, in PEM. Default: those of the \
                 system.",
            ),
            key!(
                "allow_http",
                Switch,
                BotsWritten.allow_http,
                "Permits `http://` agents on other machines. Then an attacker on the network can replace the \
                 keys.",
            ),
        ],
    },
};

/// Checks the relations of the options; `None` if there is a mistake.
pub(crate) fn web_bot_auth(
    Element { value: written, at, is_intact, .. }: &Element<BotsWritten>,
    reader: &mut Reader<'_>,
) -> Option<WebBotAuth> {
    let refused_before = reader.refused();
    if written.agents.is_empty() && *is_intact {
        let mistake = reader.mistake(at, "web_bot_auth: no agent is admitted");
        reader.add(mistake.expecting(format!("agents: {AGENT}")));
    }
    for Located { value: url, at } in &written.agents {
        if url.server.scheme == Scheme::Http && !is_loopback(&url.server.host) && !written.allow_http {
            let message = "agents: over http, an attacker on the network can replace the keys";
            let mistake = reader.mistake(at, message);
            reader.add(mistake.expecting("an https:// URL, or allow_http = true"));
        }
    }
    let source = |agent: &Located<KeyUrl>| KeySource {
        issuer: None,
        url: agent.value.clone(),
        ca: written.ca.as_ref().map(|ca| ca.value.clone()),
        refresh: written.refresh,
    };
    (*is_intact && reader.refused() == refused_before).then(|| WebBotAuth {
        agents: written.agents.iter().map(source).collect(),
        lifetime_s: written.lifetime.as_secs(),
        leeway_s: written.leeway.as_secs(),
    })
}
