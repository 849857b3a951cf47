//! Cookies of one user (RFC 6265): stores those that servers set, and selects those for a request. No clock.

use std::time::{Duration, Instant, SystemTime};

use crate::url::{Url, UrlScheme};

/// Maximum bytes of name and value together (RFC 6265 §6.1).
const COOKIE_BYTES_MAX: usize = 4096;
/// Maximum number of cookies of a user; beyond it the oldest is removed.
const COOKIES_MAX: usize = 100;

#[derive(Debug, Clone, Default)]
pub(crate) struct Jar {
    cookies: Vec<Cookie>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Cookie {
    name: String,
    value: String,
    /// Host or domain in lower case; empty for every host.
    domain: String,
    /// Only for this host, not for its subdomains.
    is_host_only: bool,
    path: String,
    is_secure: bool,
    expires: Option<Instant>,
}

impl Jar {
    /// Parses the initial cookies of every user, `name=value; name2=value2`, which apply to every host.
    pub(crate) fn given(text: &str) -> Result<Self, &'static str> {
        let pairs = text.split(';').map(str::trim).filter(|pair| !pair.is_empty());
        let cookies = pairs.map(|pair| {
            let (name, value) = pair.split_once('=').ok_or("write cookies as 'name=value; name2=value2'")?;
            if name.is_empty() || pair.bytes().any(|byte| !(b' '..=b'~').contains(&byte)) {
                return Err("a cookie has a character that cannot be sent, or no name");
            }
            Ok(Cookie {
                name: name.trim().to_owned(),
                value: value.trim().to_owned(),
                domain: String::new(),
                is_host_only: false,
                path: "/".to_owned(),
                is_secure: false,
                expires: None,
            })
        });
        Ok(Self { cookies: cookies.collect::<Result<_, _>>()? })
    }

    /// Value of the Cookie field for a URL; empty for none.
    pub(crate) fn field(&self, url: &Url<'_>, now: Instant) -> String {
        let host = url.host.to_ascii_lowercase();
        let path = url.target.split('?').next().unwrap_or_default();
        let is_sent = |cookie: &&Cookie| {
            cookie.is_for(&host)
                && cookie.covers(path)
                && (!cookie.is_secure || url.scheme == UrlScheme::Https)
                && cookie.expires.is_none_or(|expires| expires > now)
        };
        let mut sent: Vec<&Cookie> = self.cookies.iter().filter(is_sent).collect();
        // RFC 6265 §5.4: longer paths first.
        sent.sort_by_key(|cookie| std::cmp::Reverse(cookie.path.len()));
        let pairs: Vec<String> =
            sent.iter().map(|cookie| format!("{}={}", cookie.name, cookie.value)).collect();
        pairs.join("; ")
    }

    /// Stores the cookie of a Set-Cookie field. A malformed field is ignored (RFC 6265 §5.2).
    pub(crate) fn set(&mut self, text: &str, url: &Url<'_>, now: Instant, clock: SystemTime) {
        let Some(cookie) = Cookie::parse(text, url, now, clock) else { return };
        let is_same = |other: &Cookie| {
            // The server's cookie replaces an initial one with the same name.
            other.name == cookie.name
                && (other.domain.is_empty() || (other.domain == cookie.domain && other.path == cookie.path))
        };
        self.cookies.retain(|other| !is_same(other) && other.expires.is_none_or(|expires| expires > now));
        if cookie.expires.is_some_and(|expires| expires <= now) {
            return;
        }
        if self.cookies.len() >= COOKIES_MAX {
            self.cookies.remove(0);
        }
        self.cookies.push(cookie);
    }
}

impl Cookie {
    fn parse(text: &str, url: &Url<'_>, now: Instant, clock: SystemTime) -> Option<Self> {
        let mut parts = text.split(';');
        let (name, value) = parts.next()?.split_once('=')?;
        let (name, value) = (name.trim(), value.trim());
        let is_text = |text: &str| text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        if name.is_empty() || !is_text(name) || !is_text(value) || name.len() + value.len() > COOKIE_BYTES_MAX
        {
            return None;
        }
        let host = url.host.to_ascii_lowercase();
        let mut cookie = Self {
            name: name.to_owned(),
            value: value.to_owned(),
            domain: host.clone(),
            is_host_only: true,
            path: default_path(url.target),
            is_secure: false,
            expires: None,
        };
        let mut max_age = None;
        for part in parts {
            let (attribute, value) = part.split_once('=').unwrap_or((part, ""));
            let value = value.trim();
            match attribute.trim().to_ascii_lowercase().as_str() {
                "domain" if !value.trim_start_matches('.').is_empty() => {
                    cookie.domain = value.trim_start_matches('.').to_ascii_lowercase();
                    cookie.is_host_only = false;
                }
                "path" if value.starts_with('/') => value.clone_into(&mut cookie.path),
                "secure" => cookie.is_secure = true,
                "max-age" => max_age = value.parse::<i64>().ok().or(max_age),
                "expires" => cookie.expires = expiry(value, now, clock).or(cookie.expires),
                _ => {}
            }
        }
        // RFC 6265 §5.3: Max-Age overrides Expires.
        if let Some(seconds) = max_age {
            let seconds = u64::try_from(seconds).unwrap_or(0);
            cookie.expires = now.checked_add(Duration::from_secs(seconds));
        }
        // A server cannot set cookies for other hosts, or for a whole top-level domain.
        let is_its_own = cookie.is_host_only
            || (cookie.is_for(&host) && (cookie.domain.contains('.') || cookie.domain == host));
        is_its_own.then_some(cookie)
    }

    fn is_for(&self, host: &str) -> bool {
        let is_below = || {
            let above = host.strip_suffix(&self.domain).and_then(|rest| rest.strip_suffix('.'));
            above.is_some() && host.parse::<std::net::IpAddr>().is_err()
        };
        self.domain.is_empty() || self.domain == host || (!self.is_host_only && is_below())
    }

    /// RFC 6265 §5.1.4.
    fn covers(&self, path: &str) -> bool {
        let path = if path.is_empty() { "/" } else { path };
        path.strip_prefix(&self.path)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || self.path.ends_with('/'))
    }
}

/// Path of a cookie without one (RFC 6265 §5.1.4).
fn default_path(target: &str) -> String {
    let path = target.split('?').next().unwrap_or_default();
    match path.rfind('/') {
        Some(slash) if slash > 0 => path[..slash].to_owned(),
        _ => "/".to_owned(),
    }
}

/// Converts a date to the run's clock.
fn expiry(date: &str, now: Instant, clock: SystemTime) -> Option<Instant> {
    // Dates in cookies may have dashes.
    let at = httpdate::parse_http_date(&date.replace('-', " ")).ok()?;
    match at.duration_since(clock) {
        Ok(left) => now.checked_add(left),
        Err(_) => Some(now),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(set: &[(&str, &str)], url: &str) -> String {
        let (mut jar, now, clock) = (Jar::default(), Instant::now(), SystemTime::now());
        for (from, text) in set {
            jar.set(text, &Url::parse(from).expect("a URL"), now, clock);
        }
        jar.field(&Url::parse(url).expect("a URL"), now)
    }

    #[test]
    fn cookies_go_where_their_attributes_say() {
        const A: &str = "http://www.a.test/x/y?z";
        /// Set-Cookie fields with the URLs that set them, a URL, and the Cookie field for it.
        type Case<'a> = (&'a [(&'a str, &'a str)], &'a str, &'a str);
        let cases: [Case<'_>; 17] = [
            (&[(A, "k=v")], "http://www.a.test/x/other", "k=v"),
            (&[(A, "k=v")], "http://www.a.test:81/x", "k=v"),
            (&[(A, "k=v")], "http://www.a.test/", ""),
            (&[(A, "k=v; Path=/")], "http://www.a.test", "k=v"),
            (&[(A, "k=v; Path=/x")], "http://www.a.test/xy", ""),
            (&[(A, "k=v; Path=/")], "http://a.test/", ""),
            (&[(A, "k=v; Path=/; Domain=.A.test")], "http://b.a.test/", "k=v"),
            (&[(A, "k=v; Path=/; Domain=b.test")], "http://b.test/", ""),
            (&[(A, "k=v; Path=/; Domain=test")], "http://www.a.test/", ""),
            (&[("http://10.0.0.1/", "k=v; Domain=0.0.1")], "http://10.0.0.1/", ""),
            (&[(A, "k=v; Path=/; Secure")], "http://www.a.test/", ""),
            (&[(A, "k=v; Path=/; secure; HttpOnly; SameSite=Lax")], "https://www.a.test/", "k=v"),
            (&[(A, "k=v"), (A, "k=w"), (A, "l = m ; Path=/")], "http://www.a.test/x", "k=w; l=m"),
            (&[(A, "k=v"), (A, "k=; Max-Age=0")], "http://www.a.test/x", ""),
            (&[(A, "k=v"), (A, "k=; expires=Thu, 01-Jan-1970 00:00:00 GMT")], "http://www.a.test/x", ""),
            (&[(A, "k=v; Expires=Fri, 31 Dec 2100 00:00:00 GMT; Max-Age=x")], "http://www.a.test/x", "k=v"),
            (&[(A, "novalue"), (A, "=v"), (A, "k=\u{1}"), (A, "")], "http://www.a.test/x", ""),
        ];
        for (set, url, expected) in cases {
            assert_eq!(sent(set, url), expected, "{set:?} {url}");
        }
    }

    #[test]
    fn a_user_begins_with_what_it_was_given_and_holds_a_bounded_number() {
        let url = Url::parse("http://a/").expect("a URL");
        let mut jar = Jar::given("a=1; b=2;").expect("cookies");
        let (now, clock) = (Instant::now(), SystemTime::now());
        assert_eq!(jar.field(&url, now), "a=1; b=2");
        jar.set("a=3", &url, now, clock);
        assert_eq!(jar.field(&url, now), "b=2; a=3");
        for number in 0..200 {
            jar.set(&format!("n{number}=1"), &url, now, clock);
        }
        assert_eq!(jar.cookies.len(), COOKIES_MAX);
        jar.set(&format!("long={}", "x".repeat(5000)), &url, now, clock);
        assert!(!jar.field(&url, now).contains("long"));
        assert!(["a", "=1", "a=\nb"].iter().all(|text| Jar::given(text).is_err()));
        assert_eq!(Jar::given("").expect("none").field(&url, now), "");
    }
}
