//! Wrong expressions with their messages, each with its place. `UPDATE=1` writes the messages into `mistakes.txt`.

use expression::{ExchangeStage, Expression, ExpressionFault, ExpressionLimits, FactFamily, ValueType};

use crate::exchange::schema;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mistakes.txt");

/// The mistake with a mark below its place, as the file has it.
fn shown(text: &str, fault: &ExpressionFault) -> String {
    let before = text[..fault.at.start].chars().count();
    let marked = text[fault.at.clone()].chars().count().max(1);
    format!("{text}\n{}{} {fault}\n", " ".repeat(before), "^".repeat(marked))
}

/// The file has a line with a stage, then expressions with their messages.
#[test]
fn each_mistake_has_its_place_and_the_nearest_right_form() {
    let known = std::fs::read_to_string(FILE).unwrap();
    let mut written = String::new();
    let mut stage = ExchangeStage::Connection;
    let mut count = 0;
    for block in known.split("\n\n") {
        let text = block.lines().next().unwrap_or_default();
        let named = match text {
            "# Connection" => Some(ExchangeStage::Connection),
            "# Request" => Some(ExchangeStage::Request),
            "# Authenticated" => Some(ExchangeStage::Authenticated),
            "# Forward" => Some(ExchangeStage::Forward),
            "# Response" => Some(ExchangeStage::Response),
            _ => None,
        };
        if let Some(named) = named {
            stage = named;
            written += &format!("{text}\n\n");
            continue;
        }
        let compiled =
            Expression::of_type(ValueType::Boolean, text, &schema(stage), &ExpressionLimits::default());
        let fault = compiled.expect_err(text);
        written += &format!("{}\n", shown(text, &fault));
        count += 1;
    }
    assert!(count >= 100);
    let written = format!("{}\n", written.trim_end());
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(FILE, written).unwrap();
        return;
    }
    for (written, known) in written.split("\n\n").zip(known.split("\n\n")) {
        assert_eq!(written, known);
    }
    assert_eq!(written, known);
}

/// A caller names the places in which a name is known, so it has to know since when it is.
#[test]
fn a_name_that_is_known_later_says_from_which_stage() {
    let from = |text| {
        let schema = schema(ExchangeStage::Request);
        Expression::new(text, &schema, &ExpressionLimits::default()).unwrap_err().known_from
    };
    for (text, stage) in [
        ("client.user", Some(ExchangeStage::Authenticated)),
        ("jwt.claims", Some(ExchangeStage::Authenticated)),
        ("\"a\" in jwt.claims.roles", Some(ExchangeStage::Authenticated)),
        ("upstream.name", Some(ExchangeStage::Forward)),
        ("response.headers[\"x\"]", Some(ExchangeStage::Response)),
        ("values.failed", Some(ExchangeStage::Response)),
        ("response.statos", None),
        ("1 +", None),
    ] {
        assert_eq!(from(text), stage, "{text}");
    }
}

#[test]
fn the_names_of_a_family_are_listed() {
    let text = "\"a\" in jwt.claims.roles || jwt.claims[\"sub\"] == \"b\" && has(jwt.claims.sub) || values.beta == \"1\"";
    let expression =
        Expression::new(text, &schema(ExchangeStage::Response), &ExpressionLimits::default()).unwrap();
    assert_eq!(expression.keys(FactFamily::JwtClaims), ["roles", "sub"]);
    assert_eq!(expression.keys(FactFamily::RequestHeaders), ["x-beta"], "also within definitions");
    assert_eq!(expression.keys(FactFamily::ResponseHeaders), [""; 0]);
}

#[test]
fn a_mistake_in_a_text_of_its_own_has_line_and_excerpt() {
    let text = "request.method == \"GET\"\n  && request.paht == \"/\"";
    let fault =
        Expression::new(text, &schema(ExchangeStage::Request), &ExpressionLimits::default()).unwrap_err();
    let mistake = fault.in_text(text, "condition");
    assert_eq!(
        mistake.to_string(),
        "condition:2:6: the name request.paht does not exist; did you mean \"request.path\"?"
    );
    assert_eq!(mistake.shown(), "    2 |   && request.paht == \"/\"\n      |      ^^^^^^^^^^^^\n");
}

/// A text over several lines is wrong in one of them.
#[test]
fn places_are_within_the_text() {
    for text in [
        "",
        "\n\n",
        "\"a\nb\"",
        "'\u{e9}",
        "\u{e9}",
        "a.\u{e9}",
        "\"\\\u{e9}\"",
        "\"\\u12\u{e9}4\"",
        "r'",
        "0x\u{e9}",
    ] {
        let fault = Expression::new(text, &schema(ExchangeStage::Response), &ExpressionLimits::default())
            .unwrap_err();
        assert!(text.get(fault.at.clone()).is_some(), "{text:?}: {fault:?}");
    }
}
