//! The option `on_status` of a route: other servers for error statuses and failures.

use ::route::{ErrorPages, PageFor, TemplateScope, TemplateStage};

use crate::document::reader::{Reader, refuse};
use crate::document::value_error::{ValueError, ValueFault};
use crate::option::kind::{At, Located, Maybe, Name, Switch, UPSTREAM_NAME};
use crate::option::matching::FieldName;
use crate::option::pairs::{Pair, Pairs};
use crate::option::table::{Element, Inline, Table, key, required};
use crate::tables::headers::{self, FIELDS};
use crate::tables::names::Names;
use crate::tables::route::{Action, StatusFallback, StatusFallbacks};

/// The placeholder in a path for the first status.
const STATUS: &str = "{status}";

#[derive(Debug, Clone, Default)]
pub(crate) struct FallbackWritten {
    upstream: Option<Located<String>>,
    path: Option<Located<String>>,
    fields: Vec<Pair<FieldName, Located<String>>>,
    keep_status: bool,
    only_failures: bool,
}

const PATH: &str = "a path such as /error.html or /{status}.html";

const FALLBACK: Inline<FallbackWritten> = Inline {
    title: "on_status",
    example: "{ upstream = \"legacy\" }",
    table: &Table {
        options: &[
            required!(
                "upstream",
                Maybe(At(UPSTREAM_NAME)),
                FallbackWritten.upstream,
                "The upstream that answers instead.",
            ),
            key!(
                "path",
                Maybe(At(Name { expected: PATH })),
                FallbackWritten.path,
                "Requests this page with GET, without the body: `/{status}.html`. `{status}` is the first status. \
                 Default: the same request again.",
            ),
            key!(
                "fields",
                FIELDS,
                FallbackWritten.fields,
                "With `path`: fields of the request for the page, with variables: `{ X-Code = \"$status\" }`. They replace \
                 the client's. `$status` is the first status.",
            ),
            key!(
                "keep_status",
                Switch,
                FallbackWritten.keep_status,
                "The client gets the first status with the second response.",
            ),
            key!(
                "only_failures",
                Switch,
                FallbackWritten.only_failures,
                "Only if there is no response (502, 503, 504): responses of servers are forwarded.",
            ),
        ],
    },
};

pub(crate) const ON_STATUS: Pairs<PageFor, Inline<FallbackWritten>> = Pairs {
    expected: "upstreams by status such as { 404 = { upstream = \"legacy\" } }",
    name: |text| {
        let fault = || ValueFault::Unknown {
            written: text.to_owned(),
            why: "is no status of an error",
            nearest: None,
        };
        let scope = PageFor::parse(text).filter(|scope| *scope != PageFor::Errors);
        scope.ok_or_else(|| ValueError { fault: fault(), expected: "400 to 599, 4xx or 5xx" })
    },
    print_name: ToString::to_string,
    kind: FALLBACK,
};

/// The option as written.
pub(crate) type OnStatusWritten = Located<Vec<Pair<PageFor, Element<FallbackWritten>>>>;

/// Converts the option; `None` if there is a mistake.
pub(crate) fn fallbacks(
    written: Option<&OnStatusWritten>,
    names: &Names<'_>,
    reader: &mut Reader<'_>,
) -> Option<Option<Box<StatusFallbacks>>> {
    let refused_before = reader.refused();
    let mut fallbacks = Vec::new();
    for Pair { name, value: Element { value, .. }, .. } in written.iter().flat_map(|it| &it.value) {
        let Some(upstream) = &value.upstream else { continue };
        let upstream = names.http_upstream("on_status", &upstream.value, &upstream.at, reader);
        if let Some(Located { value: path, at }) = &value.path
            && !is_path(path)
        {
            refuse(at, &format!("path: {path:?} is not the path of a page"), PATH, reader);
        }
        if let (None, Some(Pair { at, .. })) = (&value.path, value.fields.first()) {
            refuse(
                at,
                "fields: the same request is sent again",
                "path, or request_headers of the route",
                reader,
            );
        }
        // Values of the route belong to the client's request.
        let stage = (TemplateStage::Response, TemplateScope::default());
        let fields = headers::set_alone(("fields", &value.fields), stage, reader);
        let (Some(upstream), Some(fields)) = (upstream, fields) else { continue };
        // Names with `_` as well, which many servers cannot tell from `-`.
        let fields = fields.removing(value.fields.iter().map(|field| field.name.0.as_str()));
        let path = value.path.as_ref().map(|path| path.value.clone());
        let &FallbackWritten { keep_status, only_failures, .. } = value;
        fallbacks.push((*name, StatusFallback { upstream, path, fields, keep_status, only_failures }));
    }
    let has_any = !fallbacks.is_empty();
    (reader.refused() == refused_before).then(|| has_any.then(|| Box::new(ErrorPages::new(fallbacks))))
}

/// Whether a path can be requested once `{status}` is replaced (RFC 9112 §3.2.1).
fn is_path(path: &str) -> bool {
    let rest = path.replace(STATUS, "");
    path.starts_with('/')
        && rest.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'#' | b'{' | b'}' | b'\\'))
}

/// Rejects an upstream that would get the same request again.
pub(crate) fn check(
    written: &OnStatusWritten,
    fallbacks: &StatusFallbacks,
    action: &Action,
    reader: &mut Reader<'_>,
) {
    let own = match action {
        Action::Upstream(upstream) => Some(*upstream),
        Action::Files(files) => files.otherwise,
        Action::Split(_) | Action::Named(_) | Action::Redirect(_) | Action::Respond(_) => None,
    };
    let all = written.value.iter().zip(fallbacks.pages());
    for (pair, (_, fallback)) in all.filter(|(_, (_, fallback))| fallback.path.is_none()) {
        if Some(fallback.upstream) == own {
            let message =
                "on_status: this is the upstream of the route, which would get the same request again";
            refuse(&pair.at, message, "another upstream, path, or retry", reader);
        }
    }
}

impl StatusFallback {
    /// The path of the page for a status; `None` for the same request again.
    pub fn path_for(&self, status: u16) -> Option<String> {
        self.path.as_ref().map(|path| path.replace(STATUS, &status.to_string()))
    }
}
