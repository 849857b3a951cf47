//! Explains the values of a request in a route, for `route_explained`.

use config::{Files, NamedUpstream, Respond, Route};
use route::{FieldLookup, VariableValues};

use crate::route_conditions::known_later;

/// The upstream that values name, or the text that names none.
pub(crate) fn upstream<F: FieldLookup + ?Sized>(
    named: &NamedUpstream,
    values: &VariableValues<'_, F>,
) -> Result<usize, String> {
    let mut text = Vec::new();
    named.name.fill(values, &mut text);
    named.find(&text).ok_or_else(|| String::from_utf8_lossy(&text).into_owned())
}

/// The status of a response, or the text of values that is none.
pub(crate) fn status<F: FieldLookup + ?Sized>(
    respond: &Respond,
    values: &VariableValues<'_, F>,
) -> Result<u16, String> {
    let Some(template) = &respond.status else { return Ok(respond.response.status()) };
    let mut text = Vec::new();
    template.fill(values, &mut text);
    route::response_status(&text).ok_or_else(|| String::from_utf8_lossy(&text).into_owned())
}

/// Describes the folder of files.
pub(crate) fn folder<F: FieldLookup + ?Sized>(files: &Files, values: &VariableValues<'_, F>) -> String {
    let root = files.root.display();
    let Some(below) = &files.below else { return format!("files beneath {root}") };
    if let Some(known) = known_later(below.values_known()) {
        return format!("files beneath {root}/{}, a folder that is known {known}", below.as_str());
    }
    let mut folder = Vec::new();
    match below.fill_folder(values, &mut folder) {
        true => format!("files beneath {root}/{}", folder.escape_ascii()),
        false => format!("404, because its values name no folder below {root}"),
    }
}

/// Lists the values that the request has in the route, one a line.
pub(crate) fn listed<F: FieldLookup + ?Sized>(
    route: &Route,
    values: &VariableValues<'_, F>,
) -> Option<String> {
    let request = &values.request;
    let meaning = |name: &str| {
        let mut all = route.values.meanings();
        all.find(|(known, _)| *known == name).map(|(_, meaning)| meaning.to_string()).unwrap_or_default()
    };
    let lines = route.values.iter().map(|(name, value)| {
        if let Some(known) = known_later(value.stage()) {
            return format!("\n  {name} is known {known}: {}", meaning(name));
        }
        let mut text = None;
        let mut show = |value: &[u8]| text = Some(value.escape_ascii().to_string());
        request.conditions.value(value, request.path, &mut show);
        let text = text.map_or_else(|| "absent".to_owned(), |text| format!("\"{text}\""));
        format!("\n  {name} = {text}")
    });
    let lines: String = lines.collect();
    (!lines.is_empty()).then(|| format!("Its values:{lines}"))
}
