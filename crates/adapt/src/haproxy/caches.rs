//! Caches: `cache NAME`, `http-request cache-use` and `http-response cache-store`.

use super::rule_sets::FrontendRule;
use super::{HaproxyAdapter, HaproxySection};
use crate::draft::{DraftValue, StatementOrigin};
use crate::rules::RegionOutcome;
use crate::values;

/// HAProxy's default of `max-age`, in seconds.
const MAX_AGE: u64 = 60;
/// Condition of the responses that HAProxy does not store: other statuses, and responses with neither a lifetime nor a validator.
const UNSTORED: &str = "response.status != 200 || !(has(response.headers[\"etag\"]) || \
                        has(response.headers[\"last-modified\"]) || has(response.headers[\"expires\"]) || \
                        (response.headers[\"cache-control\"] ?? \"\").contains(\"max-age\"))";

impl<'s> HaproxyAdapter<'s> {
    /// Translates `cache-use`. Its cache becomes the store of all routes.
    pub(super) fn cache_use(&mut self, rule: &FrontendRule<'s>, made: &mut RegionOutcome) {
        let name = rule.line.word(2);
        let is_it = |section: &&HaproxySection| section.kind() == "cache" && section.name() == name;
        let Some(section) = self.sections.iter().find(is_it) else {
            let why = format!("there is no cache {name}");
            return self.sheet.refuse(rule.line.number, &why, "write `cache = {}` into the [[route]]");
        };
        let origin = StatementOrigin::Directive;
        let line = |name: &str| section.lines.iter().find(|line| line.word(0) == name);
        let number = |name: &str| line(name).and_then(|line| line.word(1).parse::<u64>().ok());
        let megabytes = number("total-max-size").unwrap_or(1).clamp(1, 4096);
        let mut from = vec![origin(section.head.number)];
        from.extend(line("total-max-size").map(|line| origin(line.number)));
        self.sheet.set("[cache]", "memory", values::size(megabytes << 20), from);
        let object = number("max-object-size").unwrap_or((megabytes << 20) / 256).max(1024);
        let from = line("max-object-size").map(|line| origin(line.number)).into_iter().collect();
        self.sheet.set("[cache]", "object", values::size(object), from);
        let keeps_variants = line("process-vary").is_some_and(|line| line.word(1) == "on");
        let vary = if keeps_variants { "" } else { " || has(response.headers[\"vary\"])" };
        let rule_of_statuses = DraftValue::Table(vec![
            ("when".to_owned(), DraftValue::Expression(format!("{UNSTORED}{vary}"))),
            ("ttl".to_owned(), "0s".into()),
        ]);
        let ttl = values::duration(number("max-age").unwrap_or(MAX_AGE).max(1) * 1000);
        let mut from = rule.from();
        from.extend(["max-age", "process-vary"].into_iter().filter_map(line).map(|line| origin(line.number)));
        let pairs = vec![
            ("default_ttl".to_owned(), ttl.into()),
            ("heuristic".to_owned(), "0%".into()),
            ("rules".to_owned(), DraftValue::List(vec![rule_of_statuses])),
        ];
        made.options.set("cache", DraftValue::Table(pairs), from);
        let why = "a missing response is fetched whole: without the client's conditions and ranges";
        self.sheet.differs(rule.line.number, why, "");
        if let Some(line) = line("max-age") {
            let why = "it is for responses without a lifetime; that of a server is not cut to it";
            self.sheet.differs(line.number, why, "write `ttl` of `cache`");
        }
    }

    /// Translates `cache-store`, which belongs to `cache-use`.
    pub(super) fn cache_store(&mut self, rule: &FrontendRule<'s>, made: &mut RegionOutcome) {
        if made.options.get("cache").is_none() {
            let why = "no `cache-use` for these requests gets what would be stored";
            return self.sheet.refuse(rule.line.number, why, "write `cache = {}` into the [[route]]");
        }
        rule.from().into_iter().for_each(|origin| made.options.cite("cache", origin));
    }
}
