//! Statements that no option comes from: those that need nothing, and those that cannot be said, with the reason.

use crate::Kind;
use crate::sheet::Said;

use Kind::{NeedsNothing, Refused};

/// What a statement needs that no option came from.
pub(super) fn known(name: &str) -> Said {
    let (kind, why, instead) = match name {
        "vcl" | "import" | "include" => (NeedsNothing, "what it brings is said where it is used", ""),
        "sub" => (NeedsNothing, "its statements are options by themselves", ""),
        "acl" => (NeedsNothing, "no condition that was taken over goes by it", ""),
        "probe" | "backend" => (Refused, "it has no server, or no backend uses it", "leave it out"),
        "ban" | "purge" | "std.ban" => {
            (Refused, "purges are requests of their own", "`purge_from` of [cache], or `vanward purge`")
        }
        "synthetic" => (
            Refused,
            "an answer of the proxy has a body that is written in the file",
            "write `respond` or `error_pages`",
        ),
        "hash_data" => (
            Refused,
            "a key is made of URL, host, fields and cookies",
            "`key_headers` and `key_cookies` of `cache`",
        ),
        "std.log" | "std.syslog" | "std.timestamp" => (NeedsNothing, "[log] has a line for each request", ""),
        "if" | "elseif" | "else" => (Refused, "it stands where no request of a route comes", "leave it out"),
        "set" | "unset" | "remove" => (
            Refused,
            "there is no option for it, or no request comes to it",
            "look for what it does in docs/configuration.md",
        ),
        "return" | "call" => (NeedsNothing, "it decides nothing that is not decided without it", ""),
        "new" => (Refused, "there is nothing like this object", "write an [upstream.NAME] with its servers"),
        name if name.starts_with('.') => (
            Refused,
            "a server has nothing like it, or is used by none",
            "see [upstream.NAME] in docs/configuration.md",
        ),
        _ => (
            Refused,
            "`vanward adapt` does not know this statement",
            "look for what it does in docs/configuration.md",
        ),
    };
    (kind, why.to_owned(), instead.to_owned())
}
