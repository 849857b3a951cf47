//! Remarks on blocks, and on repeated directives.

use super::*;

#[test]
fn a_block_that_is_not_taken_over_is_reported_once() {
    let text = in_location(
        "proxy_pass http://u; } location @d { proxy_pass http://u; proxy_set_header A b; allow all;",
    );
    let adapted = checked(&text);
    let refused: Vec<_> = adapted.remarks.iter().filter(|remark| remark.kind >= RemarkKind::Unused).collect();
    let [block] = refused[..] else { panic!("{refused:#?}") };
    assert_eq!(block.directive, "location @d");
    assert!(block.why.ends_with("; nor are 3 directives in it"), "{block}");
    assert_eq!(adapted.refused(), 4);
}

#[test]
fn equal_remarks_on_equal_directives_are_one() {
    let remark = |file: &str, line, why: &str| crate::Remark {
        file: file.to_owned(),
        line,
        directive: "expires 30d".to_owned(),
        kind: RemarkKind::Differs,
        why: why.to_owned(),
        instead: String::new(),
    };
    let remarks = [remark("a", 1, "x"), remark("a", 4, "x"), remark("a", 6, "y"), remark("b", 9, "x")];
    let shown: Vec<String> = crate::repeated(&remarks).iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        ["a:1: differs: expires 30d: x (3 places: also at 4, b:9)", "a:6: differs: expires 30d: y"]
    );
}

#[test]
fn stub_status_is_a_text_with_counts() {
    let written = options(&in_location("stub_status; allow 10.0.0.0/8; deny all;")).join("\n");
    for part in [
        "Active connections: ${proxy.connections} \\nserver accepts handled requests",
        "content_type = \"text/plain\"",
        "allow = [\"10.0.0.0/8\"]",
        "status = 403",
    ] {
        assert!(written.contains(part), "{part}: {written}");
    }
    let text = "charset koi8-r;";
    let adapted = checked(&in_location(&format!("proxy_pass http://u; {text}")));
    let is_told =
        |remark: &crate::Remark| remark.kind == RemarkKind::Refused && text.starts_with(&remark.directive);
    assert!(adapted.remarks.iter().any(is_told), "{:?}", adapted.remarks);
}
