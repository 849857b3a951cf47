//! Launch and reload of each proxy in a resilience run.
//!
//! All proxies give up on a silent server after the same time, and try another one. Otherwise each has its driver's
//! defaults. HAProxy also has health checks, because it finds dead servers only by them.

use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Duration;

use report::results::File;
use rustix::process::Signal;

use crate::error::Error;
use crate::proxies::{Installed, Launch, Service, command, haproxy, nginx, target, vanward};

/// The signal that makes a proxy read its configuration again, or the reason why there is none.
pub(crate) fn reload(installed: &Installed) -> Result<Signal, &'static str> {
    let name = installed.driver.name;
    match name {
        _ if name == haproxy::DRIVER.name => Ok(Signal::USR2),
        _ if [vanward::DRIVER.name, nginx::DRIVER.name, command::DRIVER.name].contains(&name) => {
            Ok(Signal::HUP)
        }
        _ if name == target::DRIVER.name => {
            Err("it was already running: the lab cannot make it reload its configuration")
        }
        _ => Err("the lab has no command that makes it reload its configuration"),
    }
}

/// The launch of a proxy that gives up on a silent server after `server_timeout`. It sends each server at most
/// `capacity` requests at once: more would wait there, and be processed after their clients have given up.
pub(crate) fn launch(
    installed: &Installed,
    service: &Service,
    folder: &Path,
    server_timeout: Duration,
    capacity: Option<NonZeroUsize>,
) -> Result<Launch, Error> {
    let ms = server_timeout.as_millis();
    let name = installed.driver.name;
    // Only a file can be read again, and only a file can set the time-outs.
    let mut launch = if name == vanward::DRIVER.name {
        vanward::by_file(installed, service, folder)?
    } else {
        (installed.driver.configure)(installed, service, folder)?
    };
    let Some(file) = launch.files.first_mut() else { return Ok(launch) };
    if let Some(most) = capacity {
        limit(name, file, service, most, ms);
    }
    if name == vanward::DRIVER.name {
        file.text += &format!(
            "[upstream.origins.retry]\non = [\"connect\", \"reset\", \"timeout\"]\n\
             [timeouts]\nupstream_connect = \"{ms}ms\"\nupstream_first_byte = \"{ms}ms\"\n"
        );
    } else if name == nginx::DRIVER.name {
        let timeouts = format!("proxy_connect_timeout {ms}ms;\n    proxy_read_timeout {ms}ms;\n    ");
        file.text = file.text.replacen("proxy_buffer_size", &format!("{timeouts}proxy_buffer_size"), 1);
    } else if name == haproxy::DRIVER.name {
        let more = "    option redispatch 1\n    retry-on conn-failure empty-response response-timeout\n";
        file.text = file
            .text
            .replacen("    timeout connect 5s\n", &format!("{more}    timeout connect {ms}ms\n"), 1)
            .replacen("    timeout server 60s\n", &format!("    timeout server {ms}ms\n"), 1)
            .replace(" pool-max-conn -1", " pool-max-conn -1 check inter 500ms fall 2 rise 1");
        // A master that stays in the foreground: only a master reloads.
        if let Some(at) = launch.command.iter().position(|word| word == "-db") {
            launch.command.insert(at, "-W".to_owned());
        }
    }
    Ok(launch)
}

/// Limits the active requests of each server.
fn limit(name: &str, file: &mut File, service: &Service, most: NonZeroUsize, ms: u128) {
    for origin in &service.origins {
        let (from, to) = if name == vanward::DRIVER.name {
            (
                format!("\"http://{origin}\""),
                format!("{{ url = \"http://{origin}\", max_requests = {most} }}"),
            )
        } else if name == nginx::DRIVER.name {
            (format!("server {origin};"), format!("server {origin} max_conns={most};"))
        } else if name == haproxy::DRIVER.name {
            (format!("{origin} pool-max-conn"), format!("{origin} maxconn {most} pool-max-conn"))
        } else {
            return;
        };
        file.text = file.text.replace(&from, &to);
    }
    if name == nginx::DRIVER.name {
        // Without shared memory each worker would count separately.
        file.text =
            file.text.replace("upstream origins {\n", "upstream origins {\n        zone origins 64k;\n");
    } else if name == haproxy::DRIVER.name {
        let queue = format!("    timeout queue {ms}ms\n    timeout connect");
        file.text = file.text.replacen("    timeout connect", &queue, 1);
    }
}

#[cfg(test)]
mod tests {
    use report::results::{ClientVersion, Layer, OriginProtocol};

    use super::*;
    use crate::plan::{Deviation, Features};
    use crate::proxies::{CommandTemplate, Driver, envoy};
    use crate::start::ANY_PORT;

    fn installed(driver: &'static Driver) -> Installed {
        Installed {
            name: driver.name.to_owned(),
            driver,
            program: driver.name.into(),
            version: "1.31.0".to_owned(),
            build: String::new(),
            template: CommandTemplate {
                command: vec!["mine".to_owned(), "{listen}".to_owned()],
                ..CommandTemplate::default()
            },
            deviation: Deviation::default(),
        }
    }

    #[test]
    fn proxies_give_up_on_silent_servers_after_the_same_time() {
        let service = Service {
            listen: ANY_PORT,
            tls: None,
            version: ClientVersion::Http1,
            origins: vec![
                "127.0.0.1:81".parse().expect("an address"),
                "127.0.0.1:82".parse().expect("an address"),
            ],
            upstream: OriginProtocol::Http,
            origins_certificate: None,
            layer: Layer::Seven,
            workers: NonZeroUsize::MIN,
            keep_alive: true,
            access_log: false,
            features: Features::default(),
            target: None,
            streams: None,
        };
        let launched = |driver: &'static Driver| {
            launch(&installed(driver), &service, Path::new("/f"), Duration::from_millis(700), None)
                .expect(driver.name)
        };
        let cases: [(&'static Driver, &[&str]); 3] = [
            (
                &vanward::DRIVER,
                &["\"timeout\"", "upstream_connect = \"700ms\"", "upstream_first_byte = \"700ms\""],
            ),
            (&nginx::DRIVER, &["proxy_connect_timeout 700ms;", "proxy_read_timeout 700ms;"]),
            (
                &haproxy::DRIVER,
                &[
                    "timeout connect 700ms",
                    "timeout server 700ms",
                    "redispatch",
                    "82 pool-max-conn -1 check inter 500ms",
                ],
            ),
        ];
        for (driver, expected) in cases {
            let text = launched(driver).files[0].text.clone();
            for line in expected {
                assert!(text.contains(line), "{line}:\n{text}");
            }
        }
        assert!(launched(&haproxy::DRIVER).command.contains(&"-W".to_owned()));
        // No proxy sends a server more requests than its capacity.
        let limited = |driver: &'static Driver| {
            let most = NonZeroUsize::new(4);
            let launch =
                launch(&installed(driver), &service, Path::new("/f"), Duration::from_millis(700), most);
            launch.expect(driver.name).files[0].text.clone()
        };
        for (driver, expected) in [
            (&vanward::DRIVER, &["{ url = \"http://127.0.0.1:82\", max_requests = 4 }"][..]),
            (&nginx::DRIVER, &["zone origins 64k;", "server 127.0.0.1:82 max_conns=4;"]),
            (&haproxy::DRIVER, &["127.0.0.1:82 maxconn 4 pool-max-conn", "timeout queue 700ms"]),
        ] {
            let text = limited(driver);
            assert!(expected.iter().all(|line| text.contains(line)), "{text}");
        }
        assert!(launched(&command::DRIVER).files.is_empty());
    }

    #[test]
    fn a_proxy_that_cannot_reload_says_why() {
        let all: [(&'static Driver, Option<Signal>); 6] = [
            (&vanward::DRIVER, Some(Signal::HUP)),
            (&nginx::DRIVER, Some(Signal::HUP)),
            (&haproxy::DRIVER, Some(Signal::USR2)),
            (&command::DRIVER, Some(Signal::HUP)),
            (&target::DRIVER, None),
            (&envoy::DRIVER, None),
        ];
        for (driver, expected) in all {
            assert_eq!(reload(&installed(driver)).ok(), expected, "{}", driver.name);
        }
    }
}
