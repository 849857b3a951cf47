//! Options of CORS, declared once, with their relations.

use std::time::Duration;

use ::route::{AllowedOrigin, Cors, OriginError};

use crate::document::reader::Reader;
use crate::document::value_error::{ValueError, ValueFault};
use crate::option::kind::{At, Located, Maybe, Switch, Text};
use crate::option::matching::{FieldName, METHOD, is_token};
use crate::option::pairs::OneOrMany;
use crate::option::range::{DAY, Wait};
use crate::option::table::{Element, Inline, Table, key, required};

#[derive(Debug, Clone, Default)]
pub(crate) struct CorsWritten {
    origins: Vec<Located<AllowedOrigin>>,
    methods: Vec<Located<String>>,
    headers: Vec<Located<String>>,
    expose: Vec<Located<String>>,
    credentials: bool,
    max_age: Option<Duration>,
    private_network: bool,
}

pub(crate) const CORS: Inline<CorsWritten> = Inline {
    title: "cors",
    example: "{ origins = [\"https://app.example.com\"], methods = [\"PUT\"], headers = [\"Content-Type\"] }",
    table: &Table {
        options: &[
            required!(
                "origins",
                OneOrMany(At(ORIGIN)),
                CorsWritten.origins,
                "Origins that may read responses: `https://app.example.com`, with the port unless it is the \
                 scheme's own; `https://*.example.com` for every host below the domain, with this \
                 scheme and port; `*` for all. `null`, the origin of sandboxed pages and local files, \
                 only if it is named.",
            ),
            key!(
                "methods",
                OneOrMany(At(METHOD_OR_ANY)),
                CorsWritten.methods,
                "Methods that are allowed besides GET, HEAD and POST. `*`: any.",
            ),
            key!(
                "headers",
                OneOrMany(At(FIELD_OR_ANY)),
                CorsWritten.headers,
                "Request fields that are allowed besides the few that need no permission, such as Accept. \
                 JSON needs `Content-Type`. `*`: any except `Authorization`, which has to be named.",
            ),
            key!(
                "expose",
                OneOrMany(At(FIELD_OR_ANY)),
                CorsWritten.expose,
                "Response fields that scripts can read, besides the few that they always can, such as \
                 Content-Type. `*`: all.",
            ),
            key!(
                "credentials",
                Switch,
                CorsWritten.credentials,
                "Allows requests with cookies, passwords and client certificates. Not together with `*`.",
            ),
            key!(
                "max_age",
                Maybe(Wait { range: Duration::ZERO..=DAY }),
                CorsWritten.max_age,
                "How long browsers keep the answer to a preflight. Default: the browsers' own, which is 5s; \
                 Chromium keeps none longer than 2h.",
            ),
            key!(
                "private_network",
                Switch,
                CorsWritten.private_network,
                "Answers preflights of pages on public addresses to a private one with \
                 Access-Control-Allow-Private-Network.",
            ),
        ],
    },
};

const ORIGIN: Text<AllowedOrigin> = Text {
    expected: "an origin such as https://app.example.com or https://*.example.com, or *",
    read: |text| {
        text.parse().map_err(|error: OriginError| ValueError {
            fault: ValueFault::Unknown {
                written: text.to_owned(),
                why: error.why(),
                nearest: meant_origin(text, error),
            },
            expected: ORIGIN.expected,
        })
    },
    print: ToString::to_string,
};

/// The origin that was probably meant: without a path or the scheme's own port, in lower case.
fn meant_origin(text: &str, error: OriginError) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    let meant = match error {
        OriginError::Form => format!("https://{lower}"),
        OriginError::Path => {
            let (scheme, rest) = lower.split_once("://")?;
            let host = rest.split(['/', '?', '#']).next()?;
            format!("{scheme}://{host}")
        }
        OriginError::OwnPort => lower.rsplit_once(':')?.0.to_owned(),
        OriginError::Host => lower.trim_end_matches('.').to_owned(),
        OriginError::Port | OriginError::Wildcard => return None,
    };
    meant.parse::<AllowedOrigin>().is_ok().then_some(meant)
}

const METHOD_OR_ANY: Text<String> = Text {
    expected: "a method such as PUT, or *",
    read: |text| match text {
        "*" => Ok(text.to_owned()),
        method => {
            (METHOD.read)(method).map_err(|error| ValueError { expected: METHOD_OR_ANY.expected, ..error })
        }
    },
    print: String::clone,
};

const FIELD_OR_ANY: Text<String> = Text {
    expected: "the name of a header field such as Content-Type, or *",
    read: |text| match text {
        name if is_token(name) => Ok(name.to_owned()),
        _ => FieldName::read(text)
            .map(|name| name.0)
            .map_err(|error| ValueError { expected: FIELD_OR_ANY.expected, ..error }),
    },
    print: String::clone,
};

/// Request fields of gRPC-Web that need permission.
const OF_CALLS: [&str; 4] = ["Content-Type", "X-Grpc-Web", "X-User-Agent", "Grpc-Timeout"];
/// Response fields with the status of a call, where a response has no body.
const OF_STATUS: [&str; 3] = ["Grpc-Status", "Grpc-Message", "Grpc-Status-Details-Bin"];

/// Converts the option; `None` if there is a mistake. `has_calls` is of a route with `grpc_web`.
pub(crate) fn cors(
    Element { value: written, .. }: &Element<CorsWritten>,
    has_calls: bool,
    reader: &mut Reader<'_>,
) -> Option<Cors> {
    let refused_before = reader.refused();
    if written.credentials {
        refuse_any(written, reader);
    }
    let any = written.origins.iter().find(|origin| origin.value == AllowedOrigin::Any);
    if let (Some(any), 2..) = (any, written.origins.len()) {
        let mistake = reader.mistake(&any.at, "origins: * allows every origin, also those beside it");
        reader.add(mistake.expecting("* alone, or the origins without it"));
    }
    let names = |written: &[Located<String>]| -> Vec<String> {
        written.iter().map(|name| name.value.clone()).collect()
    };
    let mut cors = Cors {
        origins: written.origins.iter().map(|origin| origin.value.clone()).collect(),
        methods: names(&written.methods),
        headers: names(&written.headers),
        expose: names(&written.expose),
        credentials: written.credentials,
        max_age: written.max_age,
        private_network: written.private_network,
    };
    if has_calls {
        add(&mut cors.headers, &OF_CALLS);
        add(&mut cors.expose, &OF_STATUS);
    }
    (reader.refused() == refused_before).then_some(cors)
}

/// Adds names that are not there.
fn add(names: &mut Vec<String>, others: &[&str]) {
    if names.iter().any(|name| name == "*") {
        return;
    }
    for other in others {
        if !names.iter().any(|name| name.eq_ignore_ascii_case(other)) {
            names.push((*other).to_owned());
        }
    }
}

/// Fetch, §3.3.5: with credentials, browsers take `*` for a name, and `*` as the origin for a refusal.
fn refuse_any(written: &CorsWritten, reader: &mut Reader<'_>) {
    if let Some(any) = written.origins.iter().find(|origin| origin.value == AllowedOrigin::Any) {
        let message = "origins: with credentials, browsers refuse *, and every site could act as your users";
        let mistake = reader.mistake(&any.at, message);
        reader.add(mistake.expecting("the origins by name, or credentials = false"));
    }
    for (option, names) in
        [("methods", &written.methods), ("headers", &written.headers), ("expose", &written.expose)]
    {
        if let Some(any) = names.iter().find(|name| name.value == "*") {
            let message = format!("{option}: with credentials, browsers treat * as a name, not as all");
            let mistake = reader.mistake(&any.at, message);
            reader.add(mistake.expecting("the names, or credentials = false"));
        }
    }
}
