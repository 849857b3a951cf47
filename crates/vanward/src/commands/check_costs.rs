//! `vanward check --costs`: the expressions of a configuration with their worst case, dearest first.

use std::fmt::Write;

use config::{ExpressionLimits, Reading, WrittenExpression};
use serde_json::{Value, json};

/// The characters of an expression that a line shows.
const SHOWN_MAX: usize = 100;

fn dearest_first(reading: &Reading) -> Vec<&WrittenExpression> {
    let mut all: Vec<&WrittenExpression> = reading.expressions.iter().collect();
    let place = |written: &WrittenExpression| {
        (reading.sources.iter().position(|file| *file == written.file), written.line, written.column)
    };
    all.sort_by_key(|written| (std::cmp::Reverse(written.expression.cost()), place(written)));
    all
}

pub(super) fn text(reading: &Reading) -> String {
    let steps_max = ExpressionLimits::default().steps;
    let mut text = format!("Steps of each expression in the worst case; at most {steps_max} are allowed:\n");
    for WrittenExpression { file, line, column, option, expression } in dearest_first(reading) {
        let (steps, expression) = (expression.cost(), shortened(expression.as_str()));
        // Writing to a String does not fail.
        let _ = writeln!(text, "{steps:>6}  {file}:{line}:{column}: {option}: {expression}");
    }
    text
}

/// The first characters of an expression, on one line.
fn shortened(expression: &str) -> String {
    let line = expression.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

pub(super) fn json(reading: &Reading, mistakes: Value) -> Value {
    let expressions = dearest_first(reading).into_iter().map(|written| {
        let WrittenExpression { file, line, column, option, expression } = written;
        json!({
            "steps": expression.cost(),
            "file": file,
            "line": line,
            "column": column,
            "option": option,
            "expression": expression.as_str(),
        })
    });
    json!({
        "steps_max": ExpressionLimits::default().steps,
        "expressions": expressions.collect::<Value>(),
        "mistakes": mistakes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
[[listen]]
address = "127.0.0.1:1"
[map.tenant]
key = 'request.headers["x-tenant"] ?? request.host'
entries = { a = "b" }
[values]
is_bot = '(request.headers["user-agent"] ?? "").matches("bot|crawler")'
[[route]]
when = 'values.is_bot && map.tenant == "b"'
respond = { status = 403 }
[[route]]
respond = { status = 204 }
deny = { when = """request.method
== "POST" """ }
response_headers = { when = 'response.status >= 500', remove = "X-A" }
[[fault]]
inject = "503"
when = 'request.method == "PUT"'
"#;

    #[test]
    fn each_expression_has_its_steps() {
        let reading = config::examine(FILE, "f");
        assert_eq!(reading.mistakes, []);
        let text = text(&reading);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "Steps of each expression in the worst case; at most 100000 are allowed:");
        // A condition costs what the values in it cost, and more.
        let order = ["10:8: route.when: ", "8:10: values.is_bot: ", "5:7: map.tenant.key: "];
        for (line, place) in lines[1..].iter().zip(order) {
            assert!(line.contains(&format!("  f:{place}")), "{place}: {text}");
        }
        let cheap = [
            "     3  f:14:17: route.when: request.method == \"POST\"",
            "     3  f:16:29: route.when: response.status >= 500",
            "     3  f:19:8: fault.when: request.method == \"PUT\"",
        ];
        assert_eq!(lines[4..], cheap, "{text}");
        let steps: Vec<u64> =
            lines[1..].iter().map(|line| line.trim().split(' ').next().unwrap().parse().unwrap()).collect();
        assert!(steps.is_sorted_by(|one, next| one >= next), "{steps:?}");
        let json = json(&reading, json!([]));
        assert_eq!(json["steps_max"], 100_000);
        assert_eq!(json["expressions"].as_array().unwrap().len(), steps.len());
        assert_eq!(
            json["expressions"][4],
            json!({
                "steps": 3, "file": "f", "line": 16, "column": 29, "option": "route.when",
                "expression": "response.status >= 500",
            })
        );
    }

    #[test]
    fn long_expressions_are_cut() {
        assert_eq!(shortened("a ==\n  \"b\""), "a == \"b\"");
        assert_eq!(shortened(&"\u{e9}".repeat(101)), format!("{}…", "\u{e9}".repeat(100)));
    }
}
