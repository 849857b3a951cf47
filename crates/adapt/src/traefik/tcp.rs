//! Routers of TCP: connections are forwarded by server name (SNI) or by listener.

use super::entry_points::ListenerPoint;
use super::{TraefikAdapter, find, from, is_on, numbers, rule, text};
use crate::draft::{DraftTable, DraftValue, StatementOrigin};
use crate::sheet::name_of;
use crate::source::Directive;

impl<'s> TraefikAdapter<'s> {
    pub(super) fn tcp_routers(&mut self, points: &[ListenerPoint<'s>]) {
        for kind in ["routers", "services"] {
            for definition in self.defined("udp", kind) {
                let instead = "keep Traefik for it, or pass datagrams on with the kernel (nftables)";
                self.refuse_all(definition, "datagrams are not forwarded", instead);
            }
        }
        let routers: Vec<&'s Directive> = self.defined("tcp", "routers").collect();
        for router in routers {
            self.tcp_router(router, points);
        }
    }

    fn tcp_router(&mut self, router: &'s Directive, points: &[ListenerPoint<'s>]) {
        let (written, place) = text(router, "rule").unwrap_or(("HostSNI(`*`)", router));
        let names = match rule::server_names(written) {
            Ok(names) => names,
            Err(why) => {
                let instead = "write `passthrough` or `tcp` in a separate [[listen]]";
                return self.sheet.refuse(place.number, &why, instead);
            }
        };
        for inner in router.inner() {
            match inner.name.to_ascii_lowercase().as_str() {
                "entrypoints" => self.sheet.needless(inner.number, "it is at the listeners"),
                "priority" => self.sheet.needless(inner.number, "exact names come before wildcards"),
                "middlewares" => {
                    let instead = "the kernel's firewall refuses clients before they are connected";
                    self.sheet.refuse(
                        inner.number,
                        "forwarded connections are accepted from all clients",
                        instead,
                    );
                }
                _ => {}
            }
        }
        let Some((service, at)) = text(router, "service") else { return };
        let Some(upstream) = self.tcp_service(service, at) else { return };
        let tls = find(router, "tls");
        for point in points.iter().filter(|point| point.has(router)) {
            let wanted = DraftValue::from(point.address.as_str());
            let number = self.sheet.listeners.iter().position(|table| table.get("address") == Some(&wanted));
            let Some(number) = number else { continue };
            match tls {
                Some(tls) if is_on(tls, "passthrough") && !point.has_tls => {
                    // A router without entry points serves all of them.
                    if find(router, "entryPoints").is_some() {
                        let instead = "write `tcp` or `tls` besides, for clients that ask for other names";
                        self.sheet.refuse(
                            router.number,
                            "other routers of its entry point have no TLS",
                            instead,
                        );
                    }
                }
                Some(tls) if is_on(tls, "passthrough") => {
                    let origins = [from(router), from(place), from(at), told(tls)].concat();
                    self.passed_on(number, &names, &upstream, origins);
                }
                _ if names == ["*"] => {
                    let origins = [from(router), from(place), from(at)].concat();
                    self.sheet.listeners[number].set("tcp", upstream.as_str(), origins);
                }
                _ => {
                    let instead =
                        "`passthrough = [{ names = [\"…\"], upstream = \"…\" }]` passes TLS on as it is";
                    self.sheet.refuse(
                        router.number,
                        "only TLS connections that are forwarded encrypted can be selected by name",
                        instead,
                    );
                }
            }
        }
    }

    /// Adds TLS passthrough by server name to a listener.
    fn passed_on(&mut self, number: usize, names: &[String], upstream: &str, origins: Vec<StatementOrigin>) {
        let pairs = [
            ("names".to_owned(), DraftValue::from(names.to_vec())),
            ("upstream".to_owned(), upstream.into()),
        ];
        let listener = &mut self.sheet.listeners[number];
        listener.push("passthrough", DraftValue::Table(pairs.into()), origins);
        let http3 = listener.option("http3").map(|(_, origins)| origins);
        listener.without("http3");
        for origin in http3.into_iter().flatten() {
            if let StatementOrigin::Directive(number) = origin {
                let instead = "write a [[listen]] with another address for one of them";
                self.sheet.refuse(number, "TLS that is passed on is not HTTP/3", instead);
            }
        }
    }

    fn tcp_service(&mut self, name: &str, place: &'s Directive) -> Option<String> {
        let definition = self.definition("tcp", "services", name);
        let balancer =
            definition.and_then(|definition| Some((definition, find(definition, "loadBalancer")?)));
        let Some((definition, balancer)) = balancer else {
            let instead = "write an [upstream.NAME] with tcp:// servers";
            self.sheet.refuse(place.number, "it is no service with servers of the files", instead);
            return None;
        };
        let mut table = DraftTable::new("", from(definition));
        for server in find(balancer, "servers").map_or(&[][..], Directive::inner) {
            match text(server, "address") {
                Some((address, at)) if address.contains(':') && !is_on(server, "tls") => {
                    table.push("servers", format!("tcp://{address}").into(), from(at));
                }
                _ => {
                    let instead = "write it into `servers` of the upstream";
                    self.refuse_all(server, "it has no address, or is reached over TLS", instead);
                }
            }
        }
        for option in balancer.inner() {
            match option.name.to_ascii_lowercase().as_str() {
                "servers" => {}
                "proxyprotocol" => {
                    let version = if text(option, "version").is_some_and(|(version, _)| version == "1") {
                        "v1"
                    } else {
                        "v2"
                    };
                    table.set("send_proxy_protocol", version, told(option));
                }
                _ => self.refuse_all(
                    option,
                    "it is written in another way",
                    "see [upstream.NAME] and [timeouts]",
                ),
            }
        }
        table.get("servers")?;
        Some(self.sheet.upstream(&name_of(&definition.name), table))
    }
}

fn told(block: &Directive) -> Vec<StatementOrigin> {
    numbers(block).into_iter().map(StatementOrigin::Directive).collect()
}
