//! Annotations for sticky sessions by cookie.

use super::{Annotations, switch};
use crate::filters::Options;
use crate::written::{inline, text};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Affinity {
    /// Options of `sticky` except `by`, the path and the secret.
    options: Options,
    path: Option<String>,
    pub(crate) keeps_side: bool,
}

impl Affinity {
    /// Returns the option `sticky` for a route's path. Browsers send the cookie with the longest path first, so
    /// cookies of several paths stay distinct.
    pub(crate) fn option(&self, path: &str, secret: Option<&str>) -> String {
        let has_name = self.options.iter().any(|(option, _)| *option == "name");
        let own = Some(path).filter(|path| has_name && path.starts_with('/'));
        let path = self.path.as_deref().or(own).map(|path| ("path", text(path)));
        inline(
            [("by", text("cookie"))]
                .into_iter()
                .chain(self.options.clone())
                .chain(path)
                .chain(signed(secret)),
        )
    }

    /// Returns the option `sticky` for the side of a canary.
    pub(crate) fn side(&self, secret: Option<&str>) -> Option<String> {
        self.keeps_side.then(|| inline([("by", text("cookie"))].into_iter().chain(signed(secret))))
    }
}

fn signed(secret: Option<&str>) -> Option<(&'static str, String)> {
    secret.map(|file| ("secret_file", text(file)))
}

impl Annotations<'_> {
    pub(super) fn affinity(&mut self) -> Option<Affinity> {
        let kind = self.value("affinity", |kind| if kind == "cookie" { Ok(()) } else { Err("cookie") });
        // Both modes keep an existing session on its server.
        self.value("affinity-mode", |mode| match mode {
            "persistent" | "balanced" => Ok(()),
            _ => Err("persistent or balanced"),
        });
        let keeps_side = self.value("affinity-canary-behavior", |behavior| match behavior {
            "sticky" => Ok(true),
            "legacy" => Ok(false),
            _ => Err("sticky or legacy"),
        });
        self.value("session-cookie-change-on-failure", |is_on| match is_on {
            "true" => Ok(()),
            _ => Err("true: a session with a failed server gets another server and a new cookie"),
        });
        self.value("session-cookie-conditional-samesite-none", |is_on| match is_on {
            "false" => Ok(()),
            _ => Err("false: all browsers get the same cookie, and those that reject SameSite=None are from before 2020"),
        });
        let seconds = |seconds: &str| {
            let number = seconds.parse::<u32>().ok().filter(|seconds| (1..=31_536_000).contains(seconds));
            number.map(|seconds| text(&format!("{seconds}s"))).ok_or("1 to 31536000 seconds")
        };
        let (age, expires) =
            (self.value("session-cookie-max-age", seconds), self.value("session-cookie-expires", seconds));
        let name = self.value("session-cookie-name", |name| match is_token(name) {
            true => Ok(text(name)),
            false => Err("the name of a cookie"),
        });
        let same_site =
            self.value("session-cookie-samesite", |value| match value.to_ascii_lowercase().as_str() {
                value @ ("lax" | "strict" | "none") => Ok(text(value)),
                _ => Err("None, Lax or Strict"),
            });
        let secure = self.value("session-cookie-secure", switch).map(|is_on| is_on.to_string());
        let domain = self.value("session-cookie-domain", |domain| Ok(text(domain)));
        let path = self.value("session-cookie-path", |path| match path.starts_with('/') {
            true => Ok(path.to_owned()),
            false => Err("a path such as /app"),
        });
        let options = [
            ("ttl", age.or(expires)),
            ("name", name),
            ("same_site", same_site),
            ("secure", secure),
            ("domain", domain),
        ];
        let options = options.into_iter().filter_map(|(option, value)| Some((option, value?))).collect();
        kind.map(|()| Affinity { options, path, keeps_side: keeps_side.unwrap_or(true) })
    }
}

/// Whether a text is a token (RFC 9110 §5.6.2), as names of cookies and fields must be.
pub(crate) fn is_token(text: &str) -> bool {
    let is_char = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_char)
}
