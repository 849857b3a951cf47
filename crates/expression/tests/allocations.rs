//! An evaluation allocates nothing, once the buffer for texts and the regular expressions have made room for themselves.

use allocation_counter::measure;
use expression::{EvaluationScratch, Expression};

use crate::exchange::{Exchange, compiled};

#[test]
fn an_evaluation_allocates_nothing() {
    let expressions: Vec<Expression> = [
        r#"request.headers["x-beta"] == "1" && request.method in ["GET", "HEAD"]"#,
        r#"(request.headers["user-agent"] ?? "").lowerAscii().contains("bot") || request.path.matches("v[0-9]+")"#,
        r#"request.query["name"] == "a b c" && "y&" in request.query["tag"] && client.address in values.office"#,
        r#""<" + request.path.lowerAscii() + (request.query["name"] ?? "") + string(client.address) + ">""#,
        r#"map.tenants[request.host] ?? (request.headers["x-list"] ?? "").split(",")[0]"#,
        r#"time.getHours("+02:00") > 8 && int(request.headers["x-number"]) ?? 0 < 0"#,
    ]
    .map(compiled)
    .into();
    let exchange = Exchange::default();
    let mut scratch = EvaluationScratch::new();
    let mut evaluate = || {
        for expression in &expressions {
            assert!(expression.evaluate(&exchange, &mut scratch).is_some(), "{expression}");
        }
    };
    evaluate();
    assert_eq!(measure(evaluate).count_total, 0);
}
