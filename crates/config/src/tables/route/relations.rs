//! Rules between the options of a route, for files and for settings that a program changes.

use crate::tables::route::{Action, Route};
use crate::tables::upstream::Protocol;

/// The options that depend on each other.
pub(crate) struct Relations<'r> {
    /// Whether there is a table `[cache]`.
    pub(crate) has_store: bool,
    pub(crate) has_cache: bool,
    pub(crate) has_response_delay: bool,
    /// Whether all responses are files.
    pub(crate) has_files: bool,
    pub(crate) has_redirect: bool,
    /// Whether servers respond; `None` if that is not known.
    pub(crate) asks_servers: Option<bool>,
    /// The first upstream whose protocol does not carry gRPC.
    pub(crate) plain_upstream: Option<(&'r str, Protocol)>,
    pub(crate) has_on_status: bool,
    pub(crate) has_accel: bool,
    pub(crate) has_grpc_web: bool,
    pub(crate) has_alt_svc: bool,
    pub(crate) has_compress: bool,
    pub(crate) has_dictionaries: bool,
}

/// The option that breaks a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RoutePlace {
    Route,
    Cache,
    ResponseDelay,
}

/// A broken rule: its place, what is wrong, what is expected.
pub(crate) type Broken = (RoutePlace, String, String);

impl<'r> Relations<'r> {
    /// The options of a route in force. `upstream` tells the name and protocol of one.
    pub(crate) fn new(
        route: &Route,
        has_store: bool,
        upstream: impl Fn(usize) -> (&'r str, Protocol),
    ) -> Self {
        let options = &route.policies.options;
        let mut upstreams = route.action.upstreams().map(upstream);
        let plain = upstreams.find(|(_, protocol)| !protocol.is_multiplexed());
        Self {
            has_store,
            has_cache: route.cache.is_some(),
            has_response_delay: route.shaping.response_delay.is_some(),
            has_files: route.action.has_only_files(),
            has_redirect: matches!(route.action, Action::Redirect(_)),
            asks_servers: Some(route.action.upstreams().next().is_some()),
            plain_upstream: plain,
            has_on_status: route.policies.on_status.is_some(),
            has_accel: !route.policies.accel.is_empty(),
            has_grpc_web: options.grpc_web,
            has_alt_svc: options.alt_svc,
            has_compress: options.compress.is_some(),
            has_dictionaries: options.compress.as_ref().is_some_and(|it| !it.dictionaries.is_empty()),
        }
    }

    /// The rules that the options break.
    pub(crate) fn broken(&self) -> Vec<Broken> {
        let mut broken = Vec::new();
        let mut refuse = refusing(&mut broken);
        refuse(
            self.has_cache && !self.has_store,
            RoutePlace::Cache,
            "cache: it needs a store for responses",
            "a table [cache] with memory = \"256MiB\"",
        );
        refuse(
            self.has_cache && self.has_files,
            RoutePlace::Cache,
            "cache: files are not stored, since the system has them in memory already",
            "no cache on a route with files",
        );
        refuse(
            self.has_cache && self.has_grpc_web && self.asks_servers.is_some(),
            RoutePlace::Cache,
            "cache: a route with grpc_web stores no responses",
            "one of them",
        );
        refuse(
            self.has_response_delay && self.has_cache,
            RoutePlace::ResponseDelay,
            "response_delay: a route with cache cannot use it",
            "delay, or a route without cache",
        );
        refuse(
            self.has_response_delay && self.has_files,
            RoutePlace::ResponseDelay,
            "response_delay: a route with files has no server whose responses could be delayed",
            "delay",
        );
        refuse(
            self.has_compress && self.has_redirect,
            RoutePlace::Route,
            "compress: a redirect has no body",
            "a route without compress",
        );
        refuse(
            self.has_dictionaries && !self.has_cache,
            RoutePlace::Route,
            "compress: dictionaries are stored responses, and the route has no cache",
            "cache = {}, or no dictionaries",
        );
        drop(refuse);
        broken.extend(self.broken_with_servers());
        broken
    }

    /// The broken rules of options that need servers.
    fn broken_with_servers(&self) -> Vec<Broken> {
        let mut broken = Vec::new();
        let mut refuse = refusing(&mut broken);
        let asks_nobody = self.asks_servers == Some(false);
        refuse(
            self.has_grpc_web && asks_nobody,
            RoutePlace::Route,
            "grpc_web: this route asks no server",
            "upstream or split",
        );
        refuse(
            self.has_alt_svc && asks_nobody,
            RoutePlace::Route,
            "alt_svc: this route asks no server",
            "upstream or split",
        );
        refuse(
            self.has_accel && asks_nobody,
            RoutePlace::Route,
            "accel: this route asks no server",
            "upstream or split, or files",
        );
        refuse(
            self.has_on_status && asks_nobody,
            RoutePlace::Route,
            "on_status: this route asks no server",
            "upstream or split, or error_pages",
        );
        refuse(
            self.has_on_status && self.has_grpc_web,
            RoutePlace::Route,
            "on_status: a route with grpc_web cannot ask another upstream, because statuses of gRPC come in trailers",
            "one of them",
        );
        self.check_grpc_web(&mut refuse);
        drop(refuse);
        broken
    }

    fn check_grpc_web(&self, refuse: &mut impl FnMut(bool, RoutePlace, &str, &str)) {
        if let (true, Some((name, protocol))) = (self.has_grpc_web, self.plain_upstream) {
            let (spoken, expected) = match protocol {
                Protocol::Fastcgi => ("FastCGI", "an upstream with protocol = \"h2\"".to_owned()),
                _ => ("HTTP/1.1", format!("protocol = \"h2\" in [upstream.{name}]")),
            };
            let message =
                format!("grpc_web: upstream {name:?} speaks {spoken}, and gRPC is HTTP/2 or HTTP/3");
            refuse(true, RoutePlace::Route, &message, &expected);
        }
    }
}

/// Returns a function that adds a broken rule.
fn refusing(broken: &mut Vec<Broken>) -> impl FnMut(bool, RoutePlace, &str, &str) {
    |is_broken, at, message, expected| {
        if is_broken {
            broken.push((at, message.to_owned(), expected.to_owned()));
        }
    }
}
