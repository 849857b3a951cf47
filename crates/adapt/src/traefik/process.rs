//! Process-wide settings: log, messages, metrics, traces, dashboard.

use super::entry_points::ListenerPoint;
use super::{TraefikAdapter, find, from, numbers, text};
use crate::rules;
use crate::source::Directive;

impl<'s> TraefikAdapter<'s> {
    pub(super) fn process(&mut self, points: &[ListenerPoint<'s>]) {
        for directive in self.tree {
            match directive.name.to_ascii_lowercase().as_str() {
                "accesslog" => self.access_log(directive),
                "log" => self.messages(directive),
                "metrics" => self.metrics(directive),
                "tracing" => self.tracing(directive),
                "ping" => self.ping(directive, points),
                "providers" => self.providers(directive),
                "api" => {
                    let instead = "`dashboard = \"127.0.0.1:8081\"` at the top: docs/dashboard.md";
                    self.refuse_all(directive, "the page of the proxy has a separate address", instead);
                }
                _ => {}
            }
        }
    }

    fn access_log(&mut self, log: &'s Directive) {
        let place = text(log, "filePath");
        let number = place.map_or(log.number, |(_, place)| place.number);
        self.sheet.once("[log]", "target", place.map_or("stdout", |(file, _)| file), number);
        let format = text(log, "format");
        if let Some((_, place)) = format.filter(|(format, _)| format.eq_ignore_ascii_case("json")) {
            self.sheet.once("[log]", "format", "json", place.number);
            self.sheet.differs(place.number, "fields have other names", "see docs/logging.md");
        } else {
            let number = format.map_or(number, |(_, place)| place.number);
            self.sheet.differs(
                number,
                "the log is the extended Combined Log Format",
                "`format` of [log] takes other forms: docs/logging.md",
            );
        }
        for option in log.inner() {
            match option.name.to_ascii_lowercase().as_str() {
                "filepath" | "format" => {}
                "bufferingsize" => {
                    self.sheet.needless(option.number, "a separate thread writes the lines");
                }
                "filters" => {
                    let instead = "`access_log = \"1%\"` of a route logs a share, and all failures";
                    self.refuse_all(option, "lines are not chosen by status or duration", instead);
                }
                "fields" => {
                    let instead =
                        "`fields`, `hide_headers`, `query` and `addresses` of [log]: docs/logging.md";
                    self.refuse_all(option, "fields have other names", instead);
                }
                _ => self.refuse_all(option, "the log has other targets", "see docs/logging.md"),
            }
        }
    }

    fn messages(&mut self, log: &'s Directive) {
        for option in log.inner() {
            let word = option.word(0).to_ascii_lowercase();
            match option.name.to_ascii_lowercase().as_str() {
                "level" => {
                    let level = match word.as_str() {
                        "error" | "fatal" | "panic" => "error",
                        "warn" => "warn",
                        _ => "info",
                    };
                    self.sheet.once("[messages]", "level", level, option.number);
                }
                "format" => {
                    let format = if word == "json" { "json" } else { "text" };
                    self.sheet.once("[messages]", "format", format, option.number);
                }
                "nocolor" => self.sheet.needless(option.number, "messages have no colors"),
                _ => {
                    let instead = "have the service manager write them to a file or the journal";
                    self.refuse_all(option, "messages go to standard error", instead);
                }
            }
        }
    }

    pub(super) fn metrics_point(&self) -> Option<(&'s str, &'s Directive)> {
        let prometheus = self.top("metrics").find_map(|metrics| find(metrics, "prometheus"))?;
        text(prometheus, "entryPoint")
    }

    fn metrics(&mut self, metrics: &'s Directive) {
        for system in metrics.inner() {
            if !system.name.eq_ignore_ascii_case("prometheus") {
                let instead =
                    "`metrics = \"127.0.0.1:9090\"` at the top is for Prometheus: docs/observing.md";
                self.refuse_all(system, "metrics are pulled, not pushed", instead);
                continue;
            }
            let point = self.metrics_point().and_then(|(name, place)| {
                let points = self.top("entryPoints").flat_map(Directive::inner);
                let point = points.into_iter().find(|point| point.name.eq_ignore_ascii_case(name))?;
                Some((text(point, "address")?, point, place))
            });
            if let Some(((address, at), point, place)) = point {
                let address =
                    if address.starts_with(':') { format!("[::]{address}") } else { address.to_owned() };
                let origins = [from(place), from(point), from(at)].concat();
                self.sheet.top.set("metrics", address, origins);
                self.sheet.differs(place.number, "metrics have other names", "see docs/observing.md");
            } else {
                let number = system.number;
                self.sheet.refuse(
                    number,
                    "metrics have a separate address",
                    "`metrics = \"127.0.0.1:9090\"` at the top",
                );
            }
            for option in system.inner() {
                for number in numbers(option) {
                    self.sheet.needless(number, "metrics have labels of listeners, routes and servers");
                }
            }
        }
    }

    fn tracing(&mut self, tracing: &'s Directive) {
        let http = find(tracing, "otlp").and_then(|otlp| find(otlp, "http"));
        let Some((endpoint, place)) = http.and_then(|http| text(http, "endpoint")) else {
            let instead = "write [tracing] with `collector = \"http://HOST:4318\"`: docs/traces.md";
            return self.refuse_all(
                tracing,
                "spans are sent by OTLP over HTTP, to an address that is named",
                instead,
            );
        };
        self.sheet.once("[tracing]", "collector", endpoint, place.number);
        for option in tracing.inner() {
            match option.name.to_ascii_lowercase().as_str() {
                "otlp" => {}
                "servicename" => self.sheet.once("[tracing]", "service", option.word(0), option.number),
                "samplerate" => match option.word(0).parse::<f64>() {
                    Ok(share) if (0.0..=1.0).contains(&share) => {
                        let share = format!("{}%", (share * 1_000_000.0).round() / 10_000.0);
                        self.sheet.once("[tracing]", "sample", share, option.number);
                    }
                    _ => self.unread(option, "`sample = \"10%\"`"),
                },
                _ => self.refuse_all(option, "spans have the attributes of docs/traces.md", "leave it out"),
            }
        }
        if find(tracing, "sampleRate").is_none() {
            let origins = vec![crate::draft::StatementOrigin::Default("the default of Traefik's sampleRate")];
            self.sheet.set("[tracing]", "sample", "100%", origins);
        }
    }

    fn ping(&mut self, ping: &'s Directive, points: &[ListenerPoint<'s>]) {
        let named = text(ping, "entryPoint");
        let point =
            named.and_then(|(name, _)| points.iter().find(|point| point.name.eq_ignore_ascii_case(name)));
        let (Some(point), Some((_, place))) = (point, named) else {
            let instead = "`vanward status` or `respond` of a [[route]] tells that it runs";
            return self.refuse_all(ping, "it has a page at an entry point of Traefik's own", instead);
        };
        let mut table = crate::draft::DraftTable::new("[[route]]", from(place));
        if self.sheet.routes.iter().any(|route| route.get("listener").is_some()) {
            table.set("listener", point.name.as_str(), Vec::new());
        }
        table.set("path", "/ping*", Vec::new());
        table.set("respond", rules::answer(200, Some(("OK", "text/plain"))), Vec::new());
        self.sheet.routes.push(table);
        for option in ping.inner().iter().filter(|option| option.number != place.number) {
            self.sheet.differs(option.number, "while it drains it answers as before, until it stops", "");
        }
    }

    fn providers(&mut self, providers: &'s Directive) {
        for provider in providers.inner() {
            match provider.name.to_ascii_lowercase().as_str() {
                "file" => {
                    for option in provider.inner() {
                        let why = match option.name.to_ascii_lowercase().as_str() {
                            "filename" | "directory" => "the files are read here",
                            _ => "`vanward reload`, or SIGHUP, reads the files again",
                        };
                        self.sheet.needless(option.number, why);
                    }
                }
                "kubernetesgateway" => {
                    let instead =
                        "`vanward run --gateway` serves the objects of the Gateway API: docs/kubernetes.md";
                    self.refuse_all(provider, "a cluster is followed in another way", instead);
                }
                "providersthrottleduration" => {
                    self.sheet.needless(provider.number, "changes take effect at once");
                }
                _ => {
                    let instead = "write the routes into files: `include = \"conf.d/*.toml\"`, or keep them in etcd: docs/fleet.md";
                    self.refuse_all(provider, "routes cannot come from there", instead);
                }
            }
        }
    }
}
