//! Orders of keys to the proxy: the request to the admin API, the confirmation before, and the notice afterwards.

use api::cache::PurgeOrder;
use api::status::ServerOrder;

use super::super::faults::escaped;

/// A server, and the number of other servers in its upstream that get requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TopServer {
    pub(super) upstream: String,
    pub(super) url: String,
    pub(super) label: String,
    pub(super) others_up: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TopOrder {
    Drain(TopServer),
    Restore(TopServer),
    Weigh(TopServer, u32),
    /// Purges a URL, where `*` matches any text.
    Purge(String),
    PurgeAll,
    RemoveFault(String),
    ClearFaults,
}

impl TopOrder {
    /// Returns method, path and body of the request.
    pub(super) fn request(&self) -> (&'static str, String, String) {
        let server = |word: &str, server: &TopServer, weight| {
            let upstream = Some(server.upstream.clone());
            let order = ServerOrder { server: server.url.clone(), upstream, weight };
            ("POST", format!("/servers/{word}"), json(&order))
        };
        let purge = |order: PurgeOrder| ("POST", "/cache/purge".to_owned(), json(&order));
        match self {
            Self::Drain(of) => server("drain", of, None),
            Self::Restore(of) => server("restore", of, None),
            Self::Weigh(of, weight) => server("weigh", of, Some(*weight)),
            Self::Purge(url) => purge(PurgeOrder { urls: vec![url.clone()], ..PurgeOrder::default() }),
            Self::PurgeAll => purge(PurgeOrder { all: true, ..PurgeOrder::default() }),
            Self::RemoveFault(name) => ("DELETE", format!("/faults/{}", escaped(name)), String::new()),
            Self::ClearFaults => ("DELETE", "/faults".to_owned(), String::new()),
        }
    }

    /// Returns the question before a destructive order; `None` for others.
    pub(super) fn question(&self) -> Option<String> {
        Some(match self {
            Self::Drain(server) => {
                let last = if server.others_up == 0 { " No other server of it gets requests!" } else { "" };
                format!("Drain {} of upstream {}?{last}", server.label, server.upstream)
            }
            Self::Weigh(server, 0) => format!("Give {} only requests of its sessions?", server.label),
            Self::PurgeAll => "Purge the whole cache? Every response is fetched again.".to_owned(),
            Self::ClearFaults => "Remove all faults, and all changes of rates and delays?".to_owned(),
            Self::RemoveFault(name) => format!("Remove the fault {name}?"),
            Self::Restore(_) | Self::Weigh(..) | Self::Purge(_) => return None,
        })
    }

    /// Returns the notice after the order.
    pub(super) fn done(&self) -> String {
        match self {
            Self::Drain(server) => format!("{} is drained", server.label),
            Self::Restore(server) => format!("{} gets requests again", server.label),
            Self::Weigh(server, weight) => format!("{} has weight {weight}", server.label),
            Self::Purge(url) => format!("{url} is purged"),
            Self::PurgeAll => "the whole cache is purged".to_owned(),
            Self::RemoveFault(name) => format!("the fault {name} is removed"),
            Self::ClearFaults => "all faults are removed".to_owned(),
        }
    }
}

fn json(order: &impl serde::Serialize) -> String {
    // Plain structs of texts and numbers are always valid JSON.
    serde_json::to_string(order).unwrap_or_default()
}
