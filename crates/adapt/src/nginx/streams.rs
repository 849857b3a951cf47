//! The block `stream`: layer 4 listeners without routes.

use super::scope::BlockScope;
use super::syntax::Directive;
use super::{Door, NginxAdapter, access, from, upstreams, values};
use crate::RemarkKind;
use crate::draft::{DraftTable, DraftValue, StatementOrigin};
use crate::sheet::name_of;
use crate::values as written;

impl<'s> NginxAdapter<'s> {
    pub(super) fn stream(&mut self, level: &'s [Directive]) {
        let groups: Vec<&Directive> = level.iter().filter(|directive| directive.name == "upstream").collect();
        for server in level.iter().filter(|directive| directive.name == "server") {
            let scope = BlockScope::from_level(level).within(server.inner());
            let Some(pass) = scope.here("proxy_pass") else {
                self.note(
                    server,
                    RemarkKind::Refused,
                    "it has no server",
                    "name an upstream as `tcp` of [[listen]]",
                );
                continue;
            };
            self.pass_bytes(server, pass, &scope, &groups);
        }
    }

    fn pass_bytes(
        &mut self,
        server: &'s Directive,
        pass: &'s Directive,
        scope: &BlockScope<'s>,
        groups: &[&'s Directive],
    ) {
        if pass.word(0).contains('$') {
            let instead = "write `passthrough = [{ names = [\"…\"], upstream = \"NAME\" }]` in [[listen]]";
            return self.note(pass, RemarkKind::Refused, "a server is not chosen by a variable", instead);
        }
        let mut made = DraftTable::new("", from(pass));
        let group = groups.iter().find(|group| group.word(0) == pass.word(0));
        match group {
            Some(group) => {
                made.from = from(group);
                self.group(group, "tcp", &mut made);
            }
            None => {
                let servers = DraftValue::List(vec![upstreams::url("tcp", pass.word(0)).into()]);
                made.set("servers", servers, from(pass));
            }
        }
        if scope.one("proxy_protocol").is_some_and(|told| values::is_on(told.word(0))) {
            let told = scope.one("proxy_protocol").map(from).unwrap_or_default();
            made.set("send_proxy_protocol", "v1", told);
        }
        if let Some(connect) = scope.one("proxy_connect_timeout") {
            match values::milliseconds(connect.word(0)) {
                Some(time @ 1..=86_400_000) => {
                    made.extend("pool", ("connect_timeout", written::duration(time).into()), from(connect));
                }
                _ => self.unread_value(connect),
            }
        }
        let name = self.sheet.upstream(&format!("tcp-{}", name_of(pass.word(0))), made);
        for listen in scope.all("listen") {
            self.door_for_bytes(listen, &name, pass, scope);
        }
        if let Some(idle) = scope.one("proxy_timeout") {
            match values::milliseconds(idle.word(0)) {
                Some(time @ 1..=86_400_000) => {
                    self.once("[timeouts]", "tunnel_idle", written::duration(time), idle);
                }
                _ => self.unread_value(idle),
            }
        }
        self.note(server, RemarkKind::NeedsNothing, "its parts are in [[listen]] and [upstream.NAME]", "");
    }

    fn door_for_bytes(
        &mut self,
        listen: &'s Directive,
        name: &str,
        pass: &'s Directive,
        scope: &BlockScope<'s>,
    ) {
        if listen.words.iter().any(|word| word == "udp") {
            let instead = "leave these listeners to nginx";
            return self.note(listen, RemarkKind::Refused, "datagrams are not forwarded", instead);
        }
        if listen.words.iter().any(|word| word == "ssl") {
            let why = "TLS of streams is not taken over";
            return self.note(listen, RemarkKind::Refused, why, "write `tls` beside `tcp` in [[listen]]");
        }
        let Some(address) = self.address(listen) else { return };
        let mut door = Door::for_bytes(&address, StatementOrigin::Directive(listen.number));
        door.options.set("tcp", name, from(pass));
        for limit in scope.all("limit_conn") {
            let zone = access::zone(scope, "limit_conn_zone", limit.word(0));
            let zone = zone.filter(|zone| matches!(zone.word(0), "$binary_remote_addr" | "$remote_addr"));
            match (limit.word(1).parse::<u64>(), zone) {
                (Ok(max @ 1..=1_000_000), Some(zone)) if !address.starts_with("unix:") => {
                    let origins = [limit, zone].map(|origin| StatementOrigin::Directive(origin.number));
                    door.options.set("connections_per_client", DraftValue::Number(max), origins.into());
                }
                _ => {
                    let why = "connections are counted by the client's address";
                    let instead = "`connections_per_client` of [[listen]]";
                    self.note(limit, RemarkKind::Refused, why, instead);
                }
            }
        }
        self.doors.push(door);
    }
}
