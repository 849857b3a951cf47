//! Verdicts on statements without an option, by name and place.

use crate::RemarkKind;
use crate::sheet::Said;

/// Returns the verdict on a statement that neither an option nor a remark names. `text` is its place with its value.
pub(super) fn known(name: &str, text: &str) -> Said {
    let needless = |why: &str| (RemarkKind::NeedsNothing, why.to_owned(), String::new());
    let refused = |why: &str, instead: &str| (RemarkKind::Refused, why.to_owned(), instead.to_owned());
    let lower = text.to_ascii_lowercase();
    let is_in = |start: &str| lower.starts_with(start);
    match name.to_ascii_lowercase().as_str() {
        _ if is_in("global") => needless("no usage data is sent"),
        "reuseport" | "asdefault" | "allowacmebypass" if is_in("entrypoints") => {
            needless("that is the default")
        }
        _ if is_in("entrypoints") && lower.contains(".observability.") => {
            needless("metrics and traces cover all listeners; `access_log = false` of a route leaves it out")
        }
        _ if is_in("entrypoints") => needless("it is part of the definition of the entry point"),
        _ if is_in("certificatesresolvers") => needless("no router names it"),
        _ if is_in("tls.") => needless("no router with TLS needs it"),
        _ if is_in("http.routers") && lower.contains(".tls") => {
            needless("the listener has it for all routers")
        }
        "service" if is_in("http.routers") => needless("no request of its router reaches it"),
        _ if is_in("tcp.routers") || is_in("tcp.services") => {
            needless("it is part of the definition of the router")
        }
        _ if is_in("serverstransport") => needless("no service with servers needs it"),
        _ if is_in("hostresolver") => {
            refused("hosts of requests are not looked up", "name all hosts in `host` of the route")
        }
        _ if is_in("core.defaultrulesyntax") => needless("rules are read by their version"),
        _ if is_in("experimental") => refused(
            "plug-ins and experiments of Traefik cannot be loaded",
            "look for what they do in docs/configuration.md",
        ),
        _ => refused("`vanward adapt` does not know it", "look for what it does in docs/configuration.md"),
    }
}
