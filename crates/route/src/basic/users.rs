//! User files in the format of `htpasswd` (`NAME:HASH` lines), and password verification.
//!
//! Accepts bcrypt (`htpasswd -B`), SHA-256 and SHA-512 crypt (`mkpasswd`, `openssl passwd -5` and `-6`) and `$apr1$`.
//! Rejects plain text, unsalted SHA-1 and DES crypt, which protect nothing, and hashes with an excessive cost.

use std::collections::HashMap;
use std::str::FromStr;

use subtle::ConstantTimeEq;

use super::{CREDENTIAL_BYTES_MAX, Credentials, apr1, sha_crypt};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Users {
    list: Vec<BasicUser>,
    /// The user whose hash takes longest to verify.
    costliest: usize,
    by_name: HashMap<Box<[u8]>, usize>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct BasicUser {
    name: Box<str>,
    hash: PasswordHash,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum PasswordHash {
    Bcrypt(Box<str>),
    ShaCrypt(Box<str>),
    Apr1 { salt: Box<[u8]>, text: [u8; apr1::TEXT_BYTES] },
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {kind}")]
pub struct UserFault {
    /// From 1.
    pub line: usize,
    pub kind: UserFaultKind,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UserFaultKind {
    /// There is no colon, or no name before it.
    #[error("expected NAME:HASH, as htpasswd -B writes it")]
    Form,
    /// No client can send the name.
    #[error("the name has a control character, or more than {CREDENTIAL_BYTES_MAX} bytes")]
    Name,
    #[error("{name} is on line {first} already; take one of them out")]
    Repeated {
        name: String,
        /// The line of the first occurrence.
        first: usize,
    },
    #[error("{0} does not protect a password; make the line again with htpasswd -B")]
    Unsafe(&'static str),
    /// The hash is of a known kind, but malformed.
    #[error("the {0} hash is not whole; make the line again with htpasswd -B")]
    Broken(&'static str),
    /// The hash takes too long to verify.
    #[error("a {kind} of cost {cost} takes too long; use at most {max}")]
    TooCostly {
        kind: &'static str,
        cost: u32,
        /// The highest accepted cost.
        max: u32,
    },
}

/// The highest accepted cost of bcrypt. Each step doubles the time; 14 takes about a second.
const BCRYPT_COST_MAX: u32 = 14;
/// The most rounds of SHA crypt: a hundred times the default, about half a second.
const SHA_ROUNDS_MAX: u32 = 500_000;
const SHA_ROUNDS_MIN: u32 = 1000;
const SHA_SALT_BYTES_MAX: usize = 16;

impl Users {
    /// Parses a user file. Empty lines and lines that start with `#` are ignored.
    ///
    /// # Errors
    /// All invalid lines.
    pub fn parse(text: &str) -> Result<Self, Vec<UserFault>> {
        let mut users = Self::default();
        let mut lines_of = Vec::new();
        let mut faults = Vec::new();
        for (index, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let user = read_line(line).and_then(|user| match users.by_name.get(user.name.as_bytes()) {
                Some(known) => {
                    Err(UserFaultKind::Repeated { name: user.name.to_string(), first: lines_of[*known] })
                }
                None => Ok(user),
            });
            match user {
                Ok(user) => {
                    users.by_name.insert(user.name.as_bytes().into(), users.list.len());
                    users.list.push(user);
                    lines_of.push(index + 1);
                }
                Err(kind) => faults.push(UserFault { line: index + 1, kind }),
            }
        }
        let costs = users.list.iter().enumerate().map(|(index, user)| (user.hash.cost_us(), index));
        users.costliest = costs.max().map_or(0, |(_, index)| index);
        if faults.is_empty() { Ok(users) } else { Err(faults) }
    }

    /// Verifies credentials. Returns the number of the user, for [`Users::name`].
    ///
    /// Takes from one millisecond to a second, depending on the hash. Never call it on a thread that serves
    /// connections, nor for more requests at once than there are cores to spare. An unknown name takes as long as the
    /// costliest hash. So the time does not reveal whether the name exists, if all hashes cost the same.
    pub fn verify(&self, credentials: &Credentials) -> Option<usize> {
        let known = self.by_name.get(credentials.user.as_slice()).copied();
        let user = self.list.get(known.unwrap_or(self.costliest))?;
        let is_right = user.hash.is_of(&credentials.password);
        known.filter(|_| is_right)
    }

    pub fn name(&self, user: usize) -> Option<&str> {
        self.list.get(user).map(|user| &*user.name)
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Users whose hash is accepted, but should be replaced: `$apr1$`.
    pub fn weak(&self) -> impl Iterator<Item = &str> {
        self.list.iter().filter(|user| matches!(user.hash, PasswordHash::Apr1 { .. })).map(|user| &*user.name)
    }
}

fn read_line(line: &str) -> Result<BasicUser, UserFaultKind> {
    let (name, hash) =
        line.split_once(':').filter(|(name, _)| !name.is_empty()).ok_or(UserFaultKind::Form)?;
    if name.len() > CREDENTIAL_BYTES_MAX || name.chars().any(char::is_control) {
        return Err(UserFaultKind::Name);
    }
    Ok(BasicUser { name: name.into(), hash: PasswordHash::read(hash.trim_end())? })
}

impl PasswordHash {
    fn read(text: &str) -> Result<Self, UserFaultKind> {
        match text.split('$').nth(1) {
            Some("2a" | "2b" | "2y") if text.starts_with('$') => Self::bcrypt(text),
            Some("5") if text.starts_with('$') => Self::sha_crypt(text, "SHA-256 crypt", 43),
            Some("6") if text.starts_with('$') => Self::sha_crypt(text, "SHA-512 crypt", 86),
            Some("apr1") if text.starts_with('$') => Self::apr1(text),
            Some("2x" | "1") if text.starts_with('$') => Err(UserFaultKind::Unsafe("a hash of this kind")),
            _ if text.starts_with("{SHA}") => Err(UserFaultKind::Unsafe("an unsalted SHA-1")),
            _ if text.len() == 13 && is_crypt_text(text) => Err(UserFaultKind::Unsafe("a DES crypt")),
            _ => Err(UserFaultKind::Unsafe("a password in plain text, or a hash of an unknown kind,")),
        }
    }

    fn bcrypt(text: &str) -> Result<Self, UserFaultKind> {
        let broken = UserFaultKind::Broken("bcrypt");
        let parts = bcrypt::HashParts::from_str(text).map_err(|_| broken.clone())?;
        // Only two digits are a valid cost.
        if !text.as_bytes()[4..6].iter().all(u8::is_ascii_digit) || !(4..=31).contains(&parts.get_cost()) {
            return Err(broken);
        }
        within("bcrypt", parts.get_cost(), BCRYPT_COST_MAX)?;
        Ok(Self::Bcrypt(text.into()))
    }

    fn sha_crypt(text: &str, kind: &'static str, hash_len: usize) -> Result<Self, UserFaultKind> {
        let fields: Vec<&str> = text.split('$').skip(2).collect();
        let (rounds, salt, hash) = match fields[..] {
            [salt, hash] => (None, salt, hash),
            [rounds, salt, hash] => (Some(rounds), salt, hash),
            _ => return Err(UserFaultKind::Broken(kind)),
        };
        if let Some(rounds) = rounds {
            let rounds = rounds.strip_prefix("rounds=").and_then(|rounds| rounds.parse().ok());
            let rounds: u32 =
                rounds.filter(|rounds| *rounds >= SHA_ROUNDS_MIN).ok_or(UserFaultKind::Broken(kind))?;
            within(kind, rounds, SHA_ROUNDS_MAX)?;
        }
        let is_whole = (1..=SHA_SALT_BYTES_MAX).contains(&salt.len())
            && hash.len() == hash_len
            && is_crypt_text(salt)
            && is_crypt_text(hash);
        if is_whole { Ok(Self::ShaCrypt(text.into())) } else { Err(UserFaultKind::Broken(kind)) }
    }

    fn apr1(text: &str) -> Result<Self, UserFaultKind> {
        let broken = UserFaultKind::Broken("apr1");
        let fields: Vec<&str> = text.split('$').skip(2).collect();
        let [salt, hash] = fields[..] else { return Err(broken) };
        if !(1..=apr1::SALT_BYTES_MAX).contains(&salt.len()) || !is_crypt_text(hash) {
            return Err(broken);
        }
        let text = hash.as_bytes().try_into().map_err(|_| broken)?;
        Ok(Self::Apr1 { salt: salt.as_bytes().into(), text })
    }

    /// The approximate time to verify the hash, in microseconds.
    fn cost_us(&self) -> u64 {
        const BCRYPT_US: u64 = 60;
        const APR1_US: u64 = 500;
        let field = |text: &str| text.split('$').nth(2).map(str::to_owned).unwrap_or_default();
        match self {
            Self::Bcrypt(text) => BCRYPT_US << field(text).parse().unwrap_or(0).min(BCRYPT_COST_MAX),
            // A round takes about a microsecond.
            Self::ShaCrypt(text) => {
                let rounds = field(text).strip_prefix("rounds=").and_then(|rounds| rounds.parse().ok());
                rounds.unwrap_or(u64::from(sha_crypt::ROUNDS))
            }
            Self::Apr1 { .. } => APR1_US,
        }
    }

    /// Whether the password matches. The time does not depend on how much of it is right. Bcrypt uses only the first 72
    /// bytes, as it did when the hash was created.
    fn is_of(&self, password: &[u8]) -> bool {
        match self {
            Self::Bcrypt(text) => bcrypt::verify(password, text).unwrap_or(false),
            Self::ShaCrypt(text) => sha_crypt::verify(password, text),
            Self::Apr1 { salt, text } => apr1::hash(password, salt).ct_eq(text).into(),
        }
    }
}

fn within(kind: &'static str, cost: u32, max: u32) -> Result<(), UserFaultKind> {
    if cost <= max { Ok(()) } else { Err(UserFaultKind::TooCostly { kind, cost, max }) }
}

fn is_crypt_text(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'/')
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    fn credentials(user: &str, password: &str) -> Credentials {
        let value = format!("Basic {}", STANDARD.encode(format!("{user}:{password}")));
        Credentials::parse(value.as_bytes()).unwrap()
    }

    /// Created by libxcrypt and `openssl passwd`.
    const FILE: &str = "\
# staff
bcrypt:$2b$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW
apache:$2y$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW

sha256:$5$saltstring$5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5
rounds:$5$rounds=10000$saltstringsaltst$3xv.VbSHBb41AL9AvLeujZkZRBAwqFMz2.opqey6IcA\r
sha512:$6$saltstring$svn8UoSVapNtMuq1ukKS4tPQd8iKwSMHWjl/O817G3uBnIFNjnQJuesI68u4OTLiBFdcbYEdFCoEOfaS35inz1
short:$6$rounds=1000$s$thU1EX/P2MJVAzh08Fr1OA4W4IHtAbS1VHgrN5u34dUyWa4cdAG0GORW.CUgUcsLenSyNvBMvFSlBOY2vkx0Z.
apr1:$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/
long:$2y$04$abcdefghijklmnopqrstuubzadhGtS2zEF.gu0yd0opP6cVzb.e0i
caf\u{e9}:$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/
";

    #[test]
    fn passwords_are_verified() {
        let users = Users::parse(FILE).unwrap();
        let long = "x".repeat(80);
        for (user, password) in [
            ("bcrypt", "secret"),
            ("apache", "secret"),
            ("sha256", "Hello world!"),
            ("rounds", "Hello world!"),
            ("sha512", "Hello world!"),
            ("short", "Hello world!"),
            ("apr1", "secret"),
            ("long", &long),
            ("caf\u{e9}", "secret"),
        ] {
            let found = users.verify(&credentials(user, password));
            assert_eq!(found.and_then(|user| users.name(user)), Some(user));
            for wrong in ["", "Secret", "secret ", "hello world!", "Hello world"] {
                assert_eq!(users.verify(&credentials(user, wrong)), None, "{user} {wrong}");
            }
        }
        assert_eq!(users.verify(&credentials("nobody", "secret")), None);
        assert_eq!(users.verify(&credentials("Bcrypt", "secret")), None, "names are case-sensitive");
        assert_eq!(Users::parse("# nobody\n").unwrap().verify(&credentials("a", "b")), None);
        assert_eq!(users.weak().collect::<Vec<_>>(), ["apr1", "caf\u{e9}"]);
        assert_eq!((users.len(), users.is_empty(), users.name(99)), (9, false, None));
    }

    #[test]
    fn an_unknown_user_takes_as_long_as_the_costliest_hash() {
        let costliest = |text: &str| {
            let users = Users::parse(text).unwrap();
            users.name(users.costliest).unwrap_or_default().to_owned()
        };
        assert_eq!(costliest(FILE), "rounds");
        let salt = "abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW";
        assert_eq!(costliest(&format!("{FILE}slow:$2b$12${salt}\nquick:$2b$05${salt}")), "slow");
        assert_eq!(costliest(""), "");
    }

    #[test]
    fn all_invalid_lines_are_reported() {
        let kinds = |text: &str| -> Vec<(usize, UserFaultKind)> {
            Users::parse(text).unwrap_err().into_iter().map(|fault| (fault.line, fault.kind)).collect()
        };
        let hash = "$2b$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW";
        assert_eq!(
            kinds(&format!("a:{hash}\nnobody\n\n:{hash}\na:{hash}\nb\u{7}:{hash}")),
            [
                (2, UserFaultKind::Form),
                (4, UserFaultKind::Form),
                (5, UserFaultKind::Repeated { name: "a".to_owned(), first: 1 }),
                (6, UserFaultKind::Name),
            ]
        );
        for (hash, kind) in [
            ("secret", UserFaultKind::Unsafe("a password in plain text, or a hash of an unknown kind,")),
            ("", UserFaultKind::Unsafe("a password in plain text, or a hash of an unknown kind,")),
            ("x$5$a", UserFaultKind::Unsafe("a password in plain text, or a hash of an unknown kind,")),
            ("{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=", UserFaultKind::Unsafe("an unsalted SHA-1")),
            ("rqXexS6ZhobKA", UserFaultKind::Unsafe("a DES crypt")),
            ("$1$abc$xyz", UserFaultKind::Unsafe("a hash of this kind")),
            ("$2b$04$short", UserFaultKind::Broken("bcrypt")),
            ("$2b$+4$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW", UserFaultKind::Broken("bcrypt")),
            ("$2b$03$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW", UserFaultKind::Broken("bcrypt")),
            (
                "$2b$15$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW",
                UserFaultKind::TooCostly { kind: "bcrypt", cost: 15, max: 14 },
            ),
            ("$5$saltstring$5B8vYYiY", UserFaultKind::Broken("SHA-256 crypt")),
            ("$5$$5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5", UserFaultKind::Broken("SHA-256 crypt")),
            (
                "$5$rounds=x$a$5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5",
                UserFaultKind::Broken("SHA-256 crypt"),
            ),
            (
                "$5$rounds=999$a$5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5",
                UserFaultKind::Broken("SHA-256 crypt"),
            ),
            ("$6$a$b$c$d", UserFaultKind::Broken("SHA-512 crypt")),
            (
                "$5$rounds=999999999$a$5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5",
                UserFaultKind::TooCostly { kind: "SHA-256 crypt", cost: 999_999_999, max: 500_000 },
            ),
            ("$apr1$abcdefgh$h9FWg", UserFaultKind::Broken("apr1")),
            ("$apr1$abcdefghi$h9FWgUz3n9YxylKLlR5SQ/", UserFaultKind::Broken("apr1")),
        ] {
            assert_eq!(kinds(&format!("a:{hash}")), [(1, kind)], "{hash}");
        }
    }
}
