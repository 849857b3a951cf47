//! Statements that no option comes from, by their names.

use crate::Kind;
use crate::sheet::Said;

/// What became of a statement that neither an option nor a remark names.
pub(super) fn known(name: &str) -> Said {
    let lower = name.to_ascii_lowercase();
    let needless = |why: &str| (Kind::NeedsNothing, why.to_owned(), String::new());
    let refused = |why: &str, instead: &str| (Kind::Refused, why.to_owned(), instead.to_owned());
    match lower.as_str() {
        "user" | "group" | "daemon" | "supervisor" | "rootjail" | "pidfile" | "enginescache" => {
            needless("the service manager does that: docs/install.md")
        }
        "threads" | "workermincount" | "workermaxcount" | "workeridletimeout" | "maintimeout" => {
            needless("one worker a core serves all connections")
        }
        "alive" | "dynscale" | "backendstats" => {
            needless("servers are left out while they fail, and tried again, by themselves")
        }
        "loglevel" | "logfacility" | "logtag" | "logsuppress" | "accesslog" => {
            needless("there is no log without [log]")
        }
        "address" | "port" | "priority" | "weight" | "type" | "id" | "ttl" | "disabled" => {
            needless("it is part of what is said of its block")
        }
        "end" | "include" | "match" => needless("it is part of what is said of its block"),
        "service" | "backend" | "emergency" | "session" => needless("no request reaches it"),
        "listenhttp" | "listenhttps" => needless("nothing listens there"),
        "url" | "path" | "host" | "headrequire" | "header" | "headdeny" | "not" => {
            needless("no request gets anything else without it")
        }
        "rewritelocation" | "rewritedestination" => needless("Location is passed on as the server wrote it"),
        "balance" | "balancer" => needless("servers get their shares by weight, in turn"),
        "ciphers"
        | "sslallowclientrenegotiation"
        | "sslhonorcipherorder"
        | "ecdhcurve"
        | "sslengine"
        | "dhparams" => {
            refused("ciphers are named in another way", "`ciphers` and `groups` of [listen.tls]: docs/tls.md")
        }
        "clientcert" | "calist" | "verifylist" | "crllist" | "noverify" => refused(
            "clients' certificates are configured in another way",
            "`clients` of [listen.tls]: docs/tls.md",
        ),
        "acl" | "trustedip" | "basicauth" => {
            refused("it is written in another way", "`allow`, `auth` of [[route]], `trusted_proxies`")
        }
        "checkurl" => refused(
            "paths are not compared with an expression for all",
            "routes with a `path` that permit what is wanted",
        ),
        "rewrite" | "setpath" | "seturl" | "setquery" | "setqueryparam" | "replaceurl" => {
            refused("paths are rewritten in another way", "`rewrite` of [[route]]")
        }
        "redirectdynamic" => {
            refused("groups are written in another way", "`redirect` of a [[route]] with an expression")
        }
        "errornofile" | "errorfile" | "nossl11" | "err" => {
            refused("it is written in another way", "`error_pages`")
        }
        "acme" => refused("certificates come by themselves", "[acme]: docs/certificates.md"),
        "metrics" => refused("they are a listener of their own", "`metrics` at the top: docs/observing.md"),
        "control" => refused("the socket has to be a path", "`admin` at the top"),
        "ignoresrvport" | "resolve" | "resolver" => {
            needless("names are resolved, and followed as they change")
        }
        _ => refused("it is not known", "see docs/configuration.md for what there is"),
    }
}
