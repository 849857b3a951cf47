//! Flags that address a server, and the hint for the forms of version 0.2, which had words instead of flags.

use api::status::ServerOrder;

/// Flags that select a server.
#[derive(clap::Args)]
pub(super) struct ServerFlags {
    /// URL, HOST:PORT, or name in the file
    #[arg(long, value_name = "SERVER", required_unless_present = "old_server")]
    server: Option<String>,

    #[arg(hide = true, value_name = "SERVER", conflicts_with = "server")]
    old_server: Option<String>,

    /// Only in this upstream, instead of all that have the server
    #[arg(long, value_name = "NAME")]
    upstream: Option<String>,
}

impl ServerFlags {
    /// Returns the order to change the server. `weight` is written in the hint for the old form.
    pub(super) fn order(&self, weight: Option<u32>) -> ServerOrder {
        if let Some(server) = &self.old_server {
            let weight = weight.map(|weight| format!("--weight {weight}"));
            hint(&[Some(format!("--server {}", quoted_word(server))), weight]);
        }
        let server = self.server.as_ref().or(self.old_server.as_ref());
        ServerOrder { server: server.cloned().unwrap_or_default(), upstream: self.upstream.clone(), weight }
    }
}

/// Says how the current version addresses what the old form has addressed.
pub(super) fn hint(flags: &[Option<String>]) {
    let flags: Vec<&str> = flags.iter().flatten().map(String::as_str).collect();
    super::say(format_args!(
        "hint: write `{}`; the next version no longer reads the form without it",
        flags.join(" ")
    ));
}

/// The word as a shell takes it.
pub(super) fn quoted_word(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/@[]".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_shells_where_they_must_be() {
        for (word, quoted) in [
            ("http://10.0.0.1:9000", "http://10.0.0.1:9000"),
            ("a b", "'a b'"),
            ("it's", "'it'\\''s'"),
            ("", "''"),
            ("$x", "'$x'"),
        ] {
            assert_eq!(quoted_word(word), quoted);
        }
    }
}
