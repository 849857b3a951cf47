//! Reports servers that go on failing requests: once a minute, with the number of failures and the last reason. Workers
//! report the first failure themselves.

use std::sync::Weak;
use std::time::Duration;

use balance::Time;
use proxy::context::plan::Plan;
use telemetry::message;

use crate::change::Control;
use crate::tick::tick;

const LOOK: Duration = Duration::from_secs(5);

/// Reports failures that no message has mentioned, until the proxy ends.
pub(crate) async fn watch(control: Weak<Control>) {
    loop {
        tick(LOOK).await;
        let Some((plan, now)) = control.upgrade().map(|control| (control.plan(), control.time())) else {
            return;
        };
        due(&plan, now).iter().for_each(|failures| message::warn(failures));
    }
}

/// Returns a message for each server with failures that are due.
fn due(plan: &Plan, now: Time) -> Vec<String> {
    let mut due = Vec::new();
    for upstream in &plan.upstreams {
        for (server, watch) in upstream.servers.iter().zip(&upstream.watches) {
            let Some((count, reason)) = watch.due_failures(now) else { continue };
            let requests =
                if count == 1 { "1 more request".to_owned() } else { format!("{count} more requests") };
            let (name, label) = (&upstream.config.name, &server.label);
            due.push(format!("upstream {name}, server {label}: {requests} failed, the last one: {reason}"));
        }
    }
    due
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;

    /// Sends requests that fail, each on a new connection.
    fn fails(proxy: &crate::Running, requests: usize) {
        for _ in 0..requests {
            let mut client = TcpStream::connect(proxy.addresses()[0]).expect("it listens");
            client.write_all(b"GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").expect("it reads");
            let mut response = String::new();
            client.read_to_string(&mut response).expect("it answers");
            assert!(response.starts_with("HTTP/1.1 502 "), "{response}");
        }
    }

    #[test]
    fn failures_are_reported_once_a_minute_with_their_number() {
        let text = "workers = 1\n[[listen]]\naddress = \"127.0.0.1:0\"\n[[route]]\nupstream = \"app\"\n[upstream.app]\n\
                    servers = [\"http://127.0.0.1:1\"]\nretry = { attempts = 1 }\neject = \"off\"\n";
        let proxy = crate::start(config::parse(text, "f").expect("is valid")).expect("it starts");
        let control = &proxy.control;
        fails(&proxy, 31);
        let began = control.time();
        let due_in = |seconds: u64| due(&control.plan(), began + Duration::from_secs(seconds));
        let said = |requests: &str| {
            [format!("upstream app, server 127.0.0.1:1: {requests} failed, the last one: connection refused")]
        };
        assert_eq!(due_in(0), Vec::<String>::new(), "the worker has just reported the first");
        assert_eq!(due_in(60), said("30 more requests"));
        assert_eq!(due_in(120), Vec::<String>::new(), "none has failed since");
        fails(&proxy, 1);
        assert_eq!(due_in(119), Vec::<String>::new(), "not a minute later");
        assert_eq!(due_in(120), said("1 more request"));
        // A reload keeps what was not reported.
        fails(&proxy, 2);
        proxy
            .reload(
                config::parse(&format!("{text}[timeouts]\nclient_body = \"9s\"\n"), "f").expect("is valid"),
            )
            .expect("it is taken");
        assert_eq!(due_in(180), said("2 more requests"));
    }
}
