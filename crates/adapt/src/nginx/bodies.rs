//! Caching and compression of responses.

use super::conditions::origins;
use super::scope::BlockScope;
use super::servers::RouteEntry;
use super::syntax::Directive;
use super::truth::NginxCondition;
use super::{NginxAdapter, from, values};
use crate::RemarkKind;
use crate::draft::{DraftTable, DraftValue, StatementOrigin};
use crate::values as written;

/// Minimum size of a disk cache.
const DISK_BYTES_MIN: u64 = 16 << 20;
/// Script types in nginx's lists of types.
const NGINX_SCRIPTS: [&str; 2] = ["application/javascript", "application/x-javascript"];

impl<'s> NginxAdapter<'s> {
    /// Translates `proxy_cache_path`: one store for all zones.
    pub(super) fn cache_path(&mut self, scope: &BlockScope<'s>) {
        for (index, path) in
            scope.own().iter().filter(|directive| directive.name == "proxy_cache_path").enumerate()
        {
            if index > 0 {
                let why = "all routes share one store, and an earlier directive has set it";
                self.note(path, RemarkKind::Differs, why, "make `size` of [cache] large enough for all");
                continue;
            }
            let size =
                path.words.iter().find_map(|word| word.strip_prefix("max_size=")).and_then(values::bytes);
            let size = size.unwrap_or(1 << 30).max(DISK_BYTES_MIN);
            let mut cache = DraftTable::new("[cache]", from(path));
            cache.set(
                "memory",
                "128MiB",
                vec![StatementOrigin::Default(
                    "nginx has no cache in memory: the most requested responses are kept there",
                )],
            );
            let disk =
                [("path".to_owned(), path.word(0).into()), ("size".to_owned(), written::size(size).into())];
            cache.set("disk", DraftValue::Table(disk.into()), from(path));
            self.sheet.tables.push(cache);
            let why = "the folder has another format: responses that nginx stored are not used";
            self.note(path, RemarkKind::Differs, why, "empty it, or name another one");
        }
    }

    /// Translates `proxy_cache` and its options for a route with a server.
    pub(super) fn cache(&mut self, scope: &BlockScope<'s>, entry: &mut RouteEntry) {
        let Some(zone) = scope.one("proxy_cache") else { return };
        if zone.word(0) == "off" {
            return self.note(zone, RemarkKind::NeedsNothing, "nothing is stored without `cache`", "");
        }
        if !self.sheet.tables.iter().any(|table| table.header == "[cache]") {
            let origin = vec![StatementOrigin::Default("its proxy_cache_path is not in this file")];
            self.sheet.set("[cache]", "memory", "128MiB", origin);
        }
        let none = DraftValue::Text("0%".to_owned());
        entry.options.extend("cache", ("heuristic", none), from(zone));
        self.lifetimes(scope, entry);
        let stale: Vec<&Directive> = scope.all("proxy_cache_use_stale");
        for directive in stale {
            let has = |word: &str| directive.words.iter().any(|known| known == word);
            if has("off") {
                self.note(directive, RemarkKind::NeedsNothing, "it is the default", "");
                continue;
            }
            let kept = written::duration(self.kept(scope));
            if ["error", "timeout", "http_500", "http_502", "http_503", "http_504"]
                .iter()
                .any(|word| has(word))
            {
                entry.options.extend("cache", ("grace", kept.as_str().into()), from(directive));
            }
            if has("updating") {
                entry.options.extend(
                    "cache",
                    ("stale_while_revalidate", kept.as_str().into()),
                    from(directive),
                );
            }
        }
        let key = scope.one("proxy_cache_key");
        if key.is_none_or(|key| key.words.concat().contains("$proxy_host")) {
            let why = "the key has the host that the client asked for: hosts share no responses";
            self.note(key.unwrap_or(zone), RemarkKind::Differs, why, "");
        }
        if let Some(key) = key {
            match self.cache_key(&key.words.concat(), scope, entry) {
                Ok(parts) if parts.is_empty() => {
                    self.note(key, RemarkKind::NeedsNothing, "the key is scheme, host, path and query", "");
                }
                Ok(parts) => {
                    for (option, name) in parts {
                        let mut names = match entry.options.inner("cache", option) {
                            Some(DraftValue::List(known)) => known.clone(),
                            _ => Vec::new(),
                        };
                        names.push(name.into());
                        entry.options.extend("cache", (option, DraftValue::List(names)), from(key));
                    }
                }
                Err(why) => {
                    let instead =
                        "`key_headers`, `key_cookies`, `query_keep` and `query_drop` of `cache` change it";
                    self.note(key, RemarkKind::Refused, &why, instead);
                }
            }
        }
        self.bypasses(scope, entry);
        if let Some(ignored) = scope.one("proxy_ignore_headers") {
            self.ignored(ignored, entry);
        }
    }

    /// Translates `proxy_cache_bypass` and `proxy_no_cache`: requests that neither get nor leave stored responses.
    fn bypasses(&mut self, scope: &BlockScope<'s>, entry: &mut RouteEntry) {
        let directives = ["proxy_cache_bypass", "proxy_no_cache"].map(|name| scope.all(name));
        let words = directives.each_ref().map(|list| {
            let mut words: Vec<&str> =
                list.iter().flat_map(|directive| &directive.words).map(String::as_str).collect();
            words.sort_unstable();
            words
        });
        let [bypass, stores_not] = &words;
        let (mut met, mut from_all) = (Vec::new(), Vec::new());
        for directive in directives.iter().flatten() {
            for word in &directive.words {
                match self.tested(&[format!("({word})")], scope.sets()) {
                    Ok(tested) => {
                        met.push(tested.condition);
                        from_all.extend(origins(tested.used));
                    }
                    // What is not known may be private.
                    Err(why) => {
                        let why = format!("nothing is stored here, because it is not known when: {why}");
                        let instead = "write `cache = { when = \"…\" }` in the [[route]]";
                        self.note(directive, RemarkKind::Refused, &why, instead);
                        return entry.options.without("cache");
                    }
                }
            }
            from_all.extend(from(directive));
            if bypass != stores_not {
                let why = "these requests get no stored response, and theirs are not stored";
                self.note(directive, RemarkKind::Differs, why, "");
            }
        }
        match NginxCondition::any(met).negated() {
            NginxCondition::Known(true) => {}
            NginxCondition::Known(false) => entry.options.without("cache"),
            when => {
                let when = DraftValue::Expression(when.written());
                entry.options.extend("cache", ("when", when), from_all);
            }
        }
    }

    /// Returns how long nginx keeps unused responses, in milliseconds.
    fn kept(&self, scope: &BlockScope<'s>) -> u64 {
        let paths = scope.outer("proxy_cache_path");
        let inactive =
            paths.iter().flat_map(|path| &path.words).find_map(|word| word.strip_prefix("inactive="));
        inactive.and_then(values::milliseconds).filter(|time| *time > 0).unwrap_or(600_000)
    }

    fn lifetimes(&mut self, scope: &BlockScope<'s>, entry: &mut RouteEntry) {
        let mut statuses: Vec<(String, DraftValue)> = Vec::new();
        for valid in scope.all("proxy_cache_valid") {
            let Some((time, codes)) = valid.words.split_last() else { continue };
            let Some(time) = values::milliseconds(time).filter(|time| *time <= 365 * 86_400_000) else {
                self.unread_value(valid);
                continue;
            };
            let lifetime = written::duration(time);
            let usual = ["200".to_owned(), "301".to_owned(), "302".to_owned()];
            let codes = if codes.is_empty() { &usual[..] } else { codes };
            for code in codes {
                match code.as_str() {
                    "200" | "301" | "any" if time > 0 => {
                        entry.options.extend("cache", ("default_ttl", lifetime.as_str().into()), from(valid));
                        if code == "200" {
                            let why = "responses such as 404 and 410 are stored for this time, too";
                            self.note(
                                valid,
                                RemarkKind::Differs,
                                why,
                                "name them in `status_ttl` of `cache`",
                            );
                        }
                        if code == "any" {
                            let why = "responses such as 302, 401 and 500 are stored only if the server gives a lifetime";
                            self.note(
                                valid,
                                RemarkKind::Differs,
                                why,
                                "name them in `status_ttl` of `cache`",
                            );
                        }
                    }
                    code if code.parse::<u16>().is_ok() => {
                        statuses.push((code.to_owned(), lifetime.as_str().into()));
                        entry.options.extend(
                            "cache",
                            ("status_ttl", DraftValue::Table(statuses.clone())),
                            from(valid),
                        );
                        if codes.iter().any(|code| !matches!(code.as_str(), "200" | "301" | "302")) {
                            let why =
                                "for statuses other than 200 and 301 it overrides what the response says";
                            self.note(valid, RemarkKind::Differs, why, "");
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    fn ignored(&mut self, directive: &'s Directive, entry: &mut RouteEntry) {
        let mut words: Vec<DraftValue> = Vec::new();
        for field in &directive.words {
            let word = match field.to_ascii_lowercase().as_str() {
                "cache-control" | "expires" | "x-accel-expires" => "response-directives",
                "set-cookie" => "set-cookie",
                "vary" => "vary",
                _ => continue,
            };
            if !words.contains(&word.into()) {
                words.push(word.into());
            }
        }
        if words.is_empty() {
            return self.note(
                directive,
                RemarkKind::NeedsNothing,
                "fields X-Accel-… are obeyed with `accel` only",
                "",
            );
        }
        entry.options.extend("cache", ("ignore", DraftValue::List(words)), from(directive));
    }

    /// Translates `gzip`.
    pub(super) fn compression(&mut self, scope: &BlockScope<'s>, entry: &mut RouteEntry) {
        let Some(gzip) = scope.one("gzip") else { return };
        let has_body = entry.has_server() || entry.options.get("files").is_some();
        if !values::is_on(gzip.word(0)) {
            return self.note(gzip, RemarkKind::NeedsNothing, "nothing is compressed without `compress`", "");
        }
        if !has_body {
            return;
        }
        let mut origins = from(gzip);
        let mut pairs = vec![("codings".to_owned(), DraftValue::List(vec!["gzip".into()]))];
        if let Some(level) = scope.one("gzip_comp_level")
            && let Ok(number @ 1..=9) = level.word(0).parse::<u64>()
        {
            pairs.push((
                "level".to_owned(),
                DraftValue::Table(vec![("gzip".to_owned(), DraftValue::Number(number))]),
            ));
            origins.extend(from(level));
        }
        let mut types: Vec<DraftValue> = vec!["text/html".into()];
        if let Some(list) = scope.one("gzip_types") {
            for kind in &list.words {
                let kind = if kind == "*" { "*/*" } else { kind };
                if kind == "*/*" {
                    let why = "types are named, such as \"text/*\"";
                    self.note(list, RemarkKind::Differs, why, "name more in `types` of `compress`");
                } else if kind.contains('/') && !types.contains(&kind.into()) {
                    types.push(kind.into());
                }
            }
            origins.extend(from(list));
        }
        // Scripts have another type here (RFC 9239) than in nginx's list of types.
        let is_script = |kind: &DraftValue| NGINX_SCRIPTS.iter().any(|script| *kind == (*script).into());
        if entry.options.get("files").is_some()
            && types.iter().any(is_script)
            && !types.contains(&"text/javascript".into())
        {
            types.push("text/javascript".into());
        }
        pairs.push(("types".to_owned(), DraftValue::List(types)));
        let least = scope.one("gzip_min_length");
        let bytes = least.and_then(|least| values::bytes(least.word(0))).unwrap_or(20);
        pairs.push(("min_size".to_owned(), written::size(bytes).into()));
        origins.extend(least.map(|least| StatementOrigin::Directive(least.number)));
        entry.options.set("compress", DraftValue::Table(pairs), origins);
    }
}
