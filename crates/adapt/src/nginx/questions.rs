//! `auth_request`: servers that admit clients, and where clients go that they do not know.

use super::locations::{LocationMatch, leading_to};
use super::scope::BlockScope;
use super::servers::RouteEntry;
use super::syntax::Directive;
use super::upstreams::{BY_ITSELF, PassTarget, has_host, target, without_usual_port};
use super::{NginxAdapter, content, from};
use crate::RemarkKind;
use crate::draft::{DraftValue, StatementOrigin};
use crate::values as written;

/// A page for clients that are not known: `error_page`, the location, its `return` and its scope.
type SignInPage<'s> = (&'s Directive, &'s Directive, &'s Directive, BlockScope<'s>);

/// The redirect to the Location of the authentication server: `error_page 401 =302 $url` with `auth_request_set $url
/// $upstream_http_location`, both directives.
pub(super) fn to_location<'s>(scope: &BlockScope<'s>) -> Option<(&'s Directive, &'s Directive)> {
    scope.one("auth_request").filter(|question| question.word(0) != "off")?;
    let is_it = |page: &&Directive| {
        matches!(page.words.as_slice(), [code, status, url]
            if code == "401" && status == "=302" && url.starts_with('$'))
    };
    let page = scope.all("error_page").into_iter().find(is_it)?;
    let set = scope.all("auth_request_set").into_iter().find(|set| set.word(0) == page.word(2))?;
    (set.word(1) == "$upstream_http_location").then_some((page, set))
}

/// The field of the authentication server's answer that `proxy_set_header` sends to a server, with its
/// `auth_request_set`.
pub(super) fn vouched<'s>(set: &Directive, scope: &BlockScope<'s>) -> Option<(&'s Directive, String)> {
    scope.one("auth_request").filter(|question| question.word(0) != "off")?;
    let known = scope.all("auth_request_set").into_iter().rev().find(|known| known.word(0) == set.word(1))?;
    let field = known.word(1).strip_prefix("$upstream_http_")?.replace('_', "-");
    Some((known, field))
}

/// The page of a server that clients without a session get: `error_page 401 = /oauth2/sign_in`, with its location.
pub(super) fn sign_in_server<'s>(
    scope: &BlockScope<'s>,
    server: &'s Directive,
) -> Option<(&'s Directive, &'s Directive)> {
    let is_it = |page: &&Directive| matches!(page.words.as_slice(), [code, sign, url] if code == "401" && sign == "=" && url.starts_with('/'));
    scope.one("auth_request").filter(|question| question.word(0) != "off")?;
    let page = scope.all("error_page").into_iter().find(is_it)?;
    let [location, ..] = leading_to(page.word(2), server.inner())[..] else { return None };
    let has = |name: &str| location.inner().iter().any(|inner| inner.name == name);
    let asks = |level: &'s Directive| level.inner().iter().find(|inner| inner.name == "auth_request");
    // Its clients would be sent to it again.
    let is_open = asks(location).or_else(|| asks(server)).is_none_or(|question| question.word(0) == "off");
    (has("proxy_pass") && is_open && !has("internal")).then_some((page, location))
}

impl<'s> NginxAdapter<'s> {
    /// Translates `auth_request`: the named location leads to a server.
    pub(super) fn question(
        &mut self,
        question: &'s Directive,
        scope: &BlockScope<'s>,
        server: &'s Directive,
        entry: &mut RouteEntry,
    ) {
        let location = server.inner().iter().find(|directive| {
            directive.name == "location"
                && LocationMatch::from_location(directive).path() == Some(question.word(0))
        });
        let pass =
            location.and_then(|location| location.inner().iter().find(|inner| inner.name == "proxy_pass"));
        let made = pass.and_then(|pass| {
            let mut target = target(pass.word(0), &pass.name).ok()?;
            let outer = BlockScope::from_level(scope.outermost());
            let asking = outer.within(server.inner()).within(location?.inner());
            target.host_field = self.host_of_question(&target, &asking);
            let name = self.upstream(&target, pass, &asking)?;
            Some((name, target.uri.unwrap_or_else(|| question.word(0).to_owned()), pass))
        });
        let Some((name, path, pass)) = made else {
            let instead = "write `forward_auth = { upstream = \"NAME\", path = \"/verify\" }`";
            self.note(question, RemarkKind::Refused, "its location leads to no server", instead);
            return content::not_taken(question, entry);
        };
        let pairs = vec![("upstream".to_owned(), name.into()), ("path".to_owned(), path.into())];
        let mut origins = from(question);
        origins.extend(from(pass));
        entry.options.set("forward_auth", DraftValue::Table(pairs), origins);
        let why = vec![StatementOrigin::Default("nginx forwards no answer of that server")];
        entry.options.extend("forward_auth", ("pass_answer", false.into()), why);
        self.sign_in(scope, server, entry);
        for set in scope.all("proxy_set_header") {
            let Some((known, field)) = vouched(set, scope) else { continue };
            let mut origins = from(set);
            origins.extend(from(known));
            if field.eq_ignore_ascii_case(set.word(0)) {
                entry.options.listed("forward_auth", "copy_headers", set.word(0), origins);
            } else {
                entry.options.field("forward_auth", "copy_headers_as", set.word(0), &field, origins);
            }
        }
        let why = "the server gets the fields of the client";
        self.note(question, RemarkKind::Differs, why, "");
    }

    /// Translates the ways to a page for clients without a session.
    fn sign_in(&mut self, scope: &BlockScope<'s>, server: &'s Directive, entry: &mut RouteEntry) {
        if let Some((page, location, answer, inner)) = self.signs_in(scope, server) {
            let to = answer.words.last().map_or("", String::as_str).replacen("://$http_host", "://$host", 1);
            match self.template(&to, &inner, entry) {
                Ok(to) if written::is_location(&to, &|_| false) => {
                    let mut origins = from(page);
                    origins.extend(from(answer));
                    origins.extend(from(location));
                    self.named.insert(location.number);
                    let has_parameter = to.contains("?rd=") || to.contains("&rd=");
                    entry.options.extend("forward_auth", ("sign_in", to.into()), origins);
                    if !has_parameter {
                        entry.options.extend("forward_auth", ("sign_in_parameter", "off".into()), Vec::new());
                    }
                }
                _ => self.note(
                    page,
                    RemarkKind::Refused,
                    "its URL has no translation",
                    "write `sign_in` of `forward_auth`",
                ),
            }
        }
        if let Some((page, set)) = to_location(scope) {
            let mut origins = from(page);
            origins.extend(from(set));
            entry.options.extend("forward_auth", ("sign_in", "location".into()), origins);
        }
        if let Some((page, location)) = sign_in_server(scope, server) {
            let mut origins = from(page);
            origins.extend(from(location));
            entry.options.extend("forward_auth", ("sign_in", page.word(2).into()), origins);
            let why = "clients without a session are redirected (302) to the page, with the URL in the parameter rd; \
                       nginx sends the page in its place";
            self.note(page, RemarkKind::Differs, why, "`sign_in` and `sign_in_parameter` of `forward_auth`");
        }
    }

    /// The redirect of clients that an authentication server does not know: `error_page 401 = @name`.
    pub(super) fn signs_in(&self, scope: &BlockScope<'s>, server: &'s Directive) -> Option<SignInPage<'s>> {
        scope.one("auth_request").filter(|question| question.word(0) != "off")?;
        let pages = scope.all("error_page");
        let page = pages.into_iter().find(|page| page.words.first().is_some_and(|code| code == "401"))?;
        let is_replaced = page.words.iter().any(|word| matches!(word.as_str(), "=" | "=302"));
        let (location, answer, inner) =
            content::answering_page(page, scope, server).filter(|_| is_replaced)?;
        let is_redirect = match answer.words.as_slice() {
            [url] => url.parse::<u16>().is_err(),
            [status, _] => status == "302",
            _ => false,
        };
        is_redirect.then_some((page, location, answer, inner))
    }

    /// The Host that nginx sends to an authentication server; `None` for that of the client.
    fn host_of_question(&mut self, target: &PassTarget, scope: &BlockScope<'s>) -> Option<String> {
        let sets = scope.all("proxy_set_header");
        for set in &sets {
            let name = set.word(0).to_ascii_lowercase();
            let is_sent = name == "host"
                || set.word(1).is_empty()
                || name.starts_with("x-original-")
                || BY_ITSELF.contains(&name.as_str());
            if !is_sent {
                let why =
                    "the authentication server gets the client's fields, X-Forwarded-… and X-Original-… only";
                self.note(set, RemarkKind::Refused, why, "have it read X-Forwarded-For");
            } else if name != "host" || set.word(1).starts_with('$') {
                let why = "servers that authenticate get this without an option";
                self.note(set, RemarkKind::NeedsNothing, why, "");
            } else {
                self.note(set, RemarkKind::NeedsNothing, "it is the `host` of the upstream", "");
            }
        }
        let own = sets.iter().find(|set| set.word(0).eq_ignore_ascii_case("host"));
        match own.map(|set| set.word(1)) {
            Some("$http_host" | "$host") => None,
            Some(host) if !host.contains('$') => Some(host.to_owned()),
            Some("$proxy_host") | None => has_host(target).then(|| without_usual_port(target)),
            Some(_) => None,
        }
    }
}
