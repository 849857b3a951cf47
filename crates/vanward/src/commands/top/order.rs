//! What a key sends to the proxy: the request of the admin API, the question that comes first, and what is told of it.

use api::cache::PurgeOrder;
use api::status::ServerOrder;

use super::super::faults::escaped;

/// A server, and how many others of its upstream get requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Server {
    pub(super) upstream: String,
    pub(super) url: String,
    pub(super) label: String,
    pub(super) others_up: usize,
}

/// An order to the proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Order {
    Drain(Server),
    Restore(Server),
    Weigh(Server, u32),
    /// Purges a URL, where `*` matches any text.
    Purge(String),
    PurgeAll,
    RemoveFault(String),
    ClearFaults,
}

impl Order {
    /// Method, path and body of the request.
    pub(super) fn request(&self) -> (&'static str, String, String) {
        let server = |word: &str, server: &Server, weight| {
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

    /// What is asked before it is sent; `None` for what takes nothing away.
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

    /// What is told once it is done.
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
    // Plain structs of texts and numbers are always JSON.
    serde_json::to_string(order).unwrap_or_default()
}
