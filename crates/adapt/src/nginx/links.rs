//! `secure_link` with `secure_link_md5`: signed links, as the variable `$secure_link`.

use std::rc::Rc;

use super::scope::BlockScope;
use super::syntax::Directive;
use super::truth::{Binding, NginxCondition};
use super::variables::{
    Declarations, ResolvedVariable, SetVariables, ValueTest, VariableValue, expression_of,
};

/// Gives `$secure_link` its value, if the place has a hash of links.
pub(super) fn set(scope: &BlockScope<'_>, declarations: &Declarations<'_>, sets: &mut Rc<SetVariables>) {
    let (Some(link), Some(hash)) = (scope.one("secure_link"), scope.one("secure_link_md5")) else { return };
    let resolved = checked(link, hash, declarations, sets);
    Rc::make_mut(sets).insert("secure_link".to_owned(), resolved);
}

/// The empty text for a wrong hash, `0` for a link that has ended, else `1`.
///
/// # Errors
/// A variable has no translation.
fn checked(
    link: &Directive,
    hash: &Directive,
    declarations: &Declarations<'_>,
    sets: &SetVariables,
) -> Result<Rc<ResolvedVariable>, String> {
    let (given, end) =
        link.word(0).split_once(',').map_or((link.word(0), None), |(given, end)| (given, Some(end)));
    let text = |text: &str| match declarations.text(text, sets)?.value {
        VariableValue::Text(parts) => expression_of(&parts).map(|made| made.text),
        VariableValue::Choice { .. } => Err("its hash has a variable with several texts".to_owned()),
    };
    let signed = ["${secure_link_expires}", "$secure_link_expires"]
        .iter()
        .fold(hash.word(0).to_owned(), |text, name| text.replace(name, end.unwrap_or_default()));
    let comparison = |text: String| NginxCondition::Text(text, Binding::Comparison);
    let made = format!("{}.hash(\"md5\", \"base64url\")", text(&signed)?);
    let mut wrong = vec![comparison(format!("{} != {made}", text(given)?))];
    let mut tests = Vec::new();
    if let Some(end) = end {
        let end = format!("(int({}) ?? 0)", text(end)?);
        wrong.push(comparison(format!("{end} <= 0")));
        tests.push((ValueTest::When(comparison(format!("{end} < int(time)"))), VariableValue::constant("0")));
    }
    tests.insert(0, (ValueTest::When(NginxCondition::any(wrong)), VariableValue::constant("")));
    Ok(Rc::new(ResolvedVariable {
        value: VariableValue::Choice { tests, otherwise: Box::new(VariableValue::constant("1")) },
        used: [link.number, hash.number].into(),
        is_of_block: true,
    }))
}
