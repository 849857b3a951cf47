//! Options of the dashboard: their relations, and what they mean.

use std::path::{Path, PathBuf};

use crate::kind::{Located, located};
use crate::named_file::FileKind;
use crate::options::File;
use crate::reader::Reader;
use crate::settings::{Dashboard, DashboardTokens};

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
                "token {} of it is not {SHORTEST_BYTES} or more letters, digits and signs",
                wrong + 1
            )),
            None if tokens.is_empty() => Err("it has no token".to_owned()),
            None => Ok(DashboardTokens { file: PathBuf::from(path), tokens: tokens.into() }),
        }
    },
    path: |tokens| &tokens.file,
};

/// Refuses what would show the proxy to everybody, and what would have no effect.
pub(crate) fn check(file: &File, reader: &mut Reader<'_>) {
    let Some(Located { value: address, at }) = &file.dashboard else {
        let others = [
            ("dashboard_write", file.dashboard_write.as_ref().map(|is_on| &is_on.at)),
            ("dashboard_token_file", file.dashboard_token_file.as_ref().map(|tokens| &tokens.at)),
            ("dashboard_hosts", file.dashboard_hosts.as_ref().map(|hosts| &hosts.at)),
        ];
        for (name, at) in others.into_iter().filter_map(|(name, at)| Some((name, at?))) {
            let mistake = reader.mistake(at, format!("{name}: there is no dashboard"));
            reader.add(mistake.expecting("dashboard = \"127.0.0.1:9901\" as well".to_owned()));
        }
        return;
    };
    if !address.ip().is_loopback() && file.dashboard_token_file.is_none() && reader.is_whole() {
        let problem = format!("dashboard: others than this machine can reach {address}, and it has no token");
        let mistake = reader.mistake(at, problem);
        reader.add(
            mistake
                .expecting("a loopback address such as 127.0.0.1:9901, or dashboard_token_file".to_owned()),
        );
    } else if address.ip().is_unspecified() {
        let warning = reader.mistake(
            at,
            format!("dashboard: {address} is every address of this machine, and tokens are sent to it in the clear"),
        );
        let expected =
            "the address of a network of operators, or a loopback address behind a [[listen]] with tls";
        reader.warn(warning.expecting(expected.to_owned()));
    }
}

/// What the options of a file mean.
pub(crate) fn meaning(file: &mut File) -> Option<Dashboard> {
    Some(Dashboard {
        address: file.dashboard.take()?.value,
        is_writable: file.dashboard_write.as_ref().is_some_and(|is_on| is_on.value),
        tokens: file.dashboard_token_file.take().map(|tokens| tokens.value),
        hosts: file.dashboard_hosts.take().map(|hosts| hosts.value).unwrap_or_default(),
    })
}

/// The options for a file, for printing.
pub(crate) fn write(dashboard: Option<&Dashboard>, file: &mut File) {
    let Some(Dashboard { address, is_writable, tokens, hosts }) = dashboard.cloned() else { return };
    file.dashboard = Some(located(address));
    file.dashboard_write = Some(located(is_writable));
    file.dashboard_token_file = tokens.map(located);
    file.dashboard_hosts = (!hosts.is_empty()).then(|| located(hosts));
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
            let again = parse(&config.to_toml(), "f").expect("what is printed can be read");
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
            assert!(told.contains("there is no dashboard"), "{told}");
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
