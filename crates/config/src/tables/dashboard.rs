//! The dashboard: its settings, and the kind of file for its tokens.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::option::named_file::FileKind;

/// The shortest token: 96 bits if it is hexadecimal digits.
const SHORTEST_BYTES: usize = 24;

pub(crate) const TOKENS: FileKind<DashboardTokens> = FileKind {
    expected: "the path of a file with a token of 24 bytes or more on each line, as openssl rand -hex 32 makes one",
    make: |path: &Path, bytes: Vec<u8>| {
        let lines = bytes.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
        let tokens: Vec<Box<[u8]>> = lines.filter(|line| !line.is_empty()).map(Box::from).collect();
        // RFC 6750 §2.1: what a client can send as a token.
        let is_sent = |token: &[u8]| token.iter().all(u8::is_ascii_graphic);
        match tokens.iter().position(|token| token.len() < SHORTEST_BYTES || !is_sent(token)) {
            Some(wrong) => Err(format!(
                "its token {} is not {SHORTEST_BYTES} or more letters, digits and signs",
                wrong + 1
            )),
            None if tokens.is_empty() => Err("it has no token".to_owned()),
            None => Ok(DashboardTokens { file: PathBuf::from(path), tokens: tokens.into() }),
        }
    },
    path: |tokens| &tokens.file,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dashboard {
    /// Its address, which only this machine can reach unless there are tokens.
    pub address: SocketAddr,
    /// Whether the page may change the proxy.
    pub is_writable: bool,
    /// Tokens, of which a request has to bring one; `None` asks for none.
    pub tokens: Option<DashboardTokens>,
    /// Names under which browsers may ask for it, besides its address and `localhost`.
    pub hosts: Vec<String>,
}

/// The tokens of the dashboard. `Debug` does not show them.
#[derive(Clone, PartialEq, Eq)]
pub struct DashboardTokens {
    /// The file that they were read from.
    pub file: PathBuf,
    /// At least one, each of 24 bytes or more.
    pub tokens: Arc<[Box<[u8]>]>,
}

impl fmt::Debug for DashboardTokens {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "DashboardTokens({:?}, {} of them)", self.file, self.tokens.len())
    }
}

#[cfg(test)]
mod tests {
    use crate::{Config, parse};

    const REST: &str = "[[listen]]\naddress = \"127.0.0.1:80\"\n[[route]]\nrespond = { status = 200 }\n";

    fn read(text: &str) -> Result<Config, String> {
        parse(&format!("{text}\n{REST}"), "f").map_err(|mistakes| mistakes[0].to_string())
    }

    #[test]
    fn only_this_machine_may_look_without_a_token() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("token");
        std::fs::write(&file, "0123456789abcdef0123456789abcdef\n").expect("it is writable");
        let token = format!("dashboard_token_file = {:?}", file.display().to_string());
        for address in ["127.0.0.1:9901", "[::1]:9901"] {
            assert!(read(&format!("dashboard = \"{address}\"")).is_ok(), "{address}");
        }
        for address in ["0.0.0.0:9901", "192.0.2.1:9901", "[::]:9901"] {
            let text = format!("dashboard = \"{address}\"");
            let told = read(&text).expect_err(address);
            assert!(told.contains("has no token"), "{told}");
            let config = read(&format!("{text}\n{token}")).unwrap_or_else(|told| panic!("{told}"));
            let again = parse(&config.text(&config), "f").expect("what is printed can be read");
            assert_eq!(again.dashboard, config.dashboard);
            assert!(!format!("{config:?}").contains("0123456789abcdef"), "Debug shows no token");
        }
        for token in ["short", "with spaces in between them all", ""] {
            std::fs::write(&file, token).expect("it is writable");
            read(&format!(
                "dashboard = \"127.0.0.1:9901\"\n{}",
                format_args!("dashboard_token_file = {:?}", file.display().to_string())
            ))
            .expect_err(token);
        }
    }

    #[test]
    fn a_dashboard_on_all_addresses_is_remarked_on() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("token");
        std::fs::write(&file, "0123456789abcdef0123456789abcdef\n").expect("it is writable");
        for (address, is_for_all) in
            [("0.0.0.0", true), ("[::]", true), ("192.0.2.1", false), ("127.0.0.1", false)]
        {
            let token = file.display().to_string();
            let text = format!("dashboard = \"{address}:9901\"\ndashboard_token_file = {token:?}\n{REST}");
            let reading = crate::examine(&text, "f");
            assert!(reading.config.is_some(), "{address}: {:?}", reading.mistakes);
            let told: Vec<_> = reading.warnings.iter().map(ToString::to_string).collect();
            assert_eq!(told.len(), usize::from(is_for_all), "{address}: {told:?}");
            assert!(
                told.iter().all(|told| told.starts_with("f:1:") && told.contains("in the clear")),
                "{told:?}"
            );
        }
    }

    #[test]
    fn what_belongs_to_a_dashboard_needs_one() {
        for text in ["dashboard_write = true", "dashboard_hosts = [\"proxy.example.com\"]"] {
            let told = read(text).expect_err(text);
            assert!(told.contains("dashboard is not set"), "{told}");
            read(&format!("dashboard = \"127.0.0.1:0\"\n{text}")).unwrap_or_else(|told| panic!("{told}"));
        }
    }

    #[test]
    fn secrets_of_the_file_are_not_printed_even_after_a_change() {
        let text = "dashboard = \"127.0.0.1:0\"\n[[route]]\npath = \"/a\"\nrespond = { status = 200 }\n\
                    request_headers = { set = { Authorization = \"Bearer very-secret\" } }\n";
        let config = read(&format!("{text}\n")).unwrap_or_else(|told| panic!("{told}"));
        let changed =
            config.edit(|settings| settings.workers = std::num::NonZeroUsize::new(3)).expect("it is valid");
        for printed in [config.printed(&config), changed.printed(&changed)] {
            assert!(!printed.contains("very-secret") && printed.contains("***"), "{printed}");
        }
    }
}
