//! Tests of changes: changes that wait for an upgrade, counters of logs, and parts that a change keeps. Tests with
//! requests are in `proxy`.

use std::net::IpAddr;
use std::path::Path;
use std::time::SystemTime;

use config::{Route, Settings, Shared, Upstream};
use proxy::context::plan::UpstreamPlan;

use super::*;
use crate::start;
use crate::upgrade::UpgradeError;

fn config(log: Option<&Path>) -> Config {
    let target = |path: &Path| config::LogTarget::File(path.to_owned());
    let log = log.map(|path| config::AccessLog::new(target(path), config::LogFormat::Json));
    let any = "127.0.0.1:0".parse().expect("is an address");
    let server = "http://127.0.0.1:1".parse().expect("is a URL");
    let servers = Settings::for_servers(vec![any], vec![server]);
    Config::new(Settings { access_logs: log.into_iter().collect(), ..servers }).expect("it is valid")
}

/// The new process would not know of the change.
#[test]
fn a_change_that_waits_for_an_upgrade_comes_too_late() {
    let proxy = start(config(None)).expect("it starts");
    let (control, other) = (&proxy.control, Arc::clone(&proxy.control));
    let (begins, begun) = blocking::channel();
    let mut waits = None;
    let handed_over = control.hand_over(|_| {
        waits = Some(std::thread::spawn(move || {
            let _ = begins.send(());
            other.change(config(None))
        }));
        let _ = begun.recv();
        // The other end is closed.
        let (channel, _) = std::os::unix::net::UnixStream::pair().expect("a pair of sockets");
        Ok::<_, UpgradeError>(((), OwnedFd::from(channel)))
    });
    handed_over.expect("nothing fails");
    let outcome = waits.expect("it was begun").join().expect("it does not panic");
    assert!(matches!(outcome, Err(StartError::Leaving)));
}

#[test]
fn lines_that_a_log_has_lost_count_on_with_the_next_log() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let proxy = start(config(Some(&folder.path().join("a")))).expect("it starts");
    let log = lock(&proxy.control.held).log.clone().expect("there is one");
    let mut worker = log.for_worker();
    log.close();
    worker.record(&telemetry::LogEntry::new(IpAddr::from([127, 0, 0, 1])), SystemTime::UNIX_EPOCH);
    drop(worker);
    assert_eq!(proxy.control.metrics.log_lines_dropped(), Some(1));
    for (name, lost) in [(Some("b"), Some(1)), (None, None), (Some("c"), Some(1))] {
        let log = name.map(|name| folder.path().join(name));
        proxy.reload(config(log.as_deref())).expect("it is valid");
        assert_eq!(proxy.control.metrics.log_lines_dropped(), lost, "{name:?}");
    }
}

fn several() -> Config {
    let any = "127.0.0.1:0".parse().expect("is an address");
    let server = |port: u16| format!("http://127.0.0.1:{port}").parse().expect("is a URL");
    let route = |number: usize| Route::to(None, ["/a", "/b"][number], number);
    let upstream = |number: usize| Upstream::from_name(["a", "b"][number], vec![server(number as u16 + 1)]);
    let routes = [0, 1].map(|number| Shared::from(route(number))).into();
    let upstreams = [0, 1].map(|number| Shared::from(upstream(number))).into();
    let settings = Settings { routes, upstreams, ..Settings::for_servers(vec![any], vec![server(1)]) };
    Config::new(settings).expect("it is valid")
}

/// Compares the routes and upstreams of two plans by address.
fn same(before: &Plan, after: &Plan) -> [Vec<bool>; 2] {
    let upstream = |(one, other): (&Arc<UpstreamPlan>, _)| Arc::ptr_eq(one, other);
    let routes = before.routes.iter().zip(&after.routes).map(|(one, other)| Arc::ptr_eq(one, other));
    [routes.collect(), before.upstreams.iter().zip(&after.upstreams).map(upstream).collect()]
}

#[test]
fn a_change_keeps_what_it_does_not_touch() {
    let proxy = start(several()).expect("it starts");
    let control = &proxy.control;
    let server = "http://127.0.0.1:2";
    let mut before = control.plan();
    let mut kept = || {
        let after = control.plan();
        let last = std::mem::replace(&mut before, Arc::clone(&after));
        same(&last, &after)
    };
    control.amend(&Amendment::Drain, server, None).expect("it is there");
    assert_eq!(kept(), [[true, true], [true, true]]);
    control.amend(&Amendment::Weigh(7), server, None).expect("it is there");
    assert_eq!(kept(), [[true, true], [true, false]]);
    control.amend(&Amendment::Drain, "http://127.0.0.1:1", None).expect("it is there");
    assert_eq!(kept(), [[true, true], [true, true]], "beside another change");

    // A reloaded file is a new one, even with the same text.
    control.change(several()).expect("it is valid");
    assert_eq!(kept(), [[true, true], [true, true]]);
    let other =
        several().edit(|settings| settings.routes[0].policies.location = Some(route::MappedUrls::All));
    control.change(other.expect("it is valid")).expect("it is valid");
    assert_eq!(kept(), [[false, true], [true, true]]);
    // A route's limits include some of the global ones.
    let other = several().edit(|settings| settings.limits.body_bytes = Some(1));
    control.change(other.expect("it is valid")).expect("it is valid");
    assert_eq!(kept(), [[false, false], [true, true]]);
    assert_eq!(control.plan().config.upstreams[1].servers[0].weight, 7);
}
