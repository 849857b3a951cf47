//! Checks of the `adapt` targets: each input is translated, or rejected with a place in the text. The output is
//! TOML, and each statement is counted once.

use adapt::{Adapted, Include};
use mistake::Mistake;

/// Adapts a configuration. Included files contain the text after the first zero byte.
pub fn check(bytes: &[u8], adapt: fn(&str, &str, Include<'_>) -> Result<Adapted, Box<Mistake>>) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (text, more) = text.split_once('\0').unwrap_or((text, ""));
    let mut asked = 0;
    let mut include = |_: &str| {
        // Files that include themselves many times are slow and find nothing new.
        asked += 1;
        if asked > 8 { Err("enough".to_owned()) } else { Ok(vec![("more".to_owned(), more.to_owned())]) }
    };
    match adapt(text, "peer.conf", &mut include) {
        Ok(adapted) => {
            assert_eq!(adapted.taken + adapted.needless + adapted.refused(), adapted.directives);
            assert!(adapted.remarks.iter().all(|remark| remark.line > 0 && !remark.why.is_empty()));
            let reading = config::examine_in(&adapted.toml, "vanward.toml", &config::Nowhere);
            assert!(reading.mistakes.iter().all(|mistake| mistake.line > 0));
        }
        Err(mistake) => assert!(mistake.line > 0 && !mistake.message.is_empty()),
    }
}
