//! Caches of responses: `proxy_cache` and `fastcgi_cache`, with their options.

use super::conditions::origins;
use super::scope::BlockScope;
use super::servers::RouteEntry;
use super::syntax::Directive;
use super::truth::{Binding, NginxCondition};
use super::{NginxAdapter, from, values};
use crate::RemarkKind;
use crate::draft::{DraftTable, DraftValue, StatementOrigin};
use crate::values as written;

/// Minimum size of a disk cache.
const DISK_BYTES_MIN: u64 = 16 << 20;
/// The first words of directives about caches.
const KINDS: [&str; 2] = ["proxy", "fastcgi"];
/// Directives of Cache-Control that give nginx a lifetime, or forbid it to store a response.
const DECIDING: &str = "no-cache|no-store|private|max-age=|s-maxage=";

impl<'s> NginxAdapter<'s> {
    /// Translates `proxy_cache_path` and `fastcgi_cache_path`: one store for all zones.
    pub(super) fn cache_path(&mut self, scope: &BlockScope<'s>) {
        for (index, path) in scope.own().iter().filter(|directive| is_path(directive)).enumerate() {
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

    /// Translates `proxy_cache` and its options for a route with a server; `kind` is the first word of their names.
    pub(super) fn cache(&mut self, kind: &str, scope: &BlockScope<'s>, entry: &mut RouteEntry) {
        let named = |rest: &str| format!("{kind}_{rest}");
        let Some(zone) = scope.one(&named("cache")) else { return };
        if zone.word(0) == "off" {
            return self.note(zone, RemarkKind::NeedsNothing, "nothing is stored without `cache`", "");
        }
        if !self.sheet.tables.iter().any(|table| table.header == "[cache]") {
            let origin = vec![StatementOrigin::Default("the folder of its zone is not in this file")];
            self.sheet.set("[cache]", "memory", "128MiB", origin);
        }
        let none = DraftValue::Text("0%".to_owned());
        entry.options.extend("cache", ("heuristic", none), from(zone));
        self.lifetimes(kind, scope, entry);
        let stale: Vec<&Directive> = scope.all(&named("cache_use_stale"));
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
        let key = scope.one(&named("cache_key"));
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
        self.min_uses(kind, scope, entry);
        self.bypasses(kind, scope, entry);
        if let Some(ignored) = scope.one(&named("ignore_headers")) {
            self.ignored(ignored, entry);
        }
    }

    /// Translates `proxy_cache_min_uses`.
    fn min_uses(&mut self, kind: &str, scope: &BlockScope<'s>, entry: &mut RouteEntry) {
        let Some(uses) = scope.one(&format!("{kind}_cache_min_uses")) else { return };
        match uses.word(0).parse::<u64>() {
            Ok(0 | 1) => self.note(uses, RemarkKind::NeedsNothing, "it is the default", ""),
            Ok(count) => {
                let count = DraftValue::Number(count.min(100));
                entry.options.extend("cache", ("min_uses", count), from(uses));
            }
            Err(_) => self.unread_value(uses),
        }
    }

    /// Translates `proxy_cache_bypass` and `proxy_no_cache`: requests that neither get nor leave stored responses.
    fn bypasses(&mut self, kind: &str, scope: &BlockScope<'s>, entry: &mut RouteEntry) {
        let directives = ["cache_bypass", "no_cache"].map(|name| scope.all(&format!("{kind}_{name}")));
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
        let paths = scope.outermost().iter().filter(|directive| is_path(directive));
        let inactive = paths.flat_map(|path| &path.words).find_map(|word| word.strip_prefix("inactive="));
        inactive.and_then(values::milliseconds).filter(|time| *time > 0).unwrap_or(600_000)
    }

    /// Translates `proxy_cache_valid`: lifetimes of responses that give none.
    fn lifetimes(&mut self, kind: &str, scope: &BlockScope<'s>, entry: &mut RouteEntry) {
        let ignored = scope.one(&format!("{kind}_ignore_headers"));
        let obeys = |name: &str| {
            !ignored.is_some_and(|it| it.words.iter().any(|word| word.eq_ignore_ascii_case(name)))
        };
        let mut given = Vec::new();
        if obeys("Cache-Control") && obeys("Expires") {
            let control =
                format!("(response.headers[\"cache-control\"] ?? \"\").lowerAscii().matches(\"{DECIDING}\")");
            given.push(NginxCondition::call(control));
            given.push(NginxCondition::call("has(response.headers[\"expires\"])".to_owned()));
        }
        let gives_none = NginxCondition::any(given).negated();
        let mut rules = Vec::new();
        for valid in scope.all(&format!("{kind}_cache_valid")) {
            let Some((time, codes)) = valid.words.split_last() else { continue };
            let Some(time) = values::milliseconds(time).filter(|time| *time <= 365 * 86_400_000) else {
                self.unread_value(valid);
                continue;
            };
            let usual = ["200".to_owned(), "301".to_owned(), "302".to_owned()];
            let codes = if codes.is_empty() { &usual[..] } else { codes };
            let statuses: Vec<&str> =
                codes.iter().map(String::as_str).filter(|code| code.parse::<u16>().is_ok()).collect();
            let of_status = match statuses.as_slice() {
                _ if codes.iter().any(|code| code == "any") => NginxCondition::Known(true),
                [] => continue,
                [one] => NginxCondition::Text(format!("response.status == {one}"), Binding::Comparison),
                more => {
                    let list = format!("response.status in [{}]", more.join(", "));
                    NginxCondition::Text(list, Binding::Comparison)
                }
            };
            let when = NginxCondition::all(vec![of_status, gives_none.clone()]).written();
            let rule = vec![
                ("when".to_owned(), DraftValue::Expression(when)),
                ("ttl".to_owned(), written::duration(time).into()),
            ];
            rules.push(DraftValue::Table(rule));
            entry.options.extend("cache", ("rules", DraftValue::List(rules.clone())), from(valid));
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
}

/// Whether a directive names the folder of a cache.
fn is_path(directive: &Directive) -> bool {
    KINDS.iter().any(|kind| directive.name.strip_prefix(kind) == Some("_cache_path"))
}
