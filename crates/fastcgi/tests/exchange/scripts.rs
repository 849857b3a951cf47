//! Which scripts a path may name.

use fastcgi::{ScriptCandidates, ScriptForm, ScriptPathError, ScriptRules, ScriptRulesError};
use proptest::prelude::*;

/// The longest path of a file.
const NAME_BYTES_MAX: usize = 4095;

fn rules(has_front: bool) -> ScriptRules<'static> {
    ScriptRules::new(".php", Some("index.php"), has_front).unwrap()
}

fn words(path: &[u8], rules: ScriptRules<'_>) -> Result<String, ScriptPathError> {
    let mut memory = b"left over".to_vec();
    let words = ScriptCandidates::new(path, rules, &mut memory)?.map(|script| {
        let form = match script.form {
            ScriptForm::Script => "",
            ScriptForm::DirectoryIndex => "=",
            ScriptForm::DirectoryWithoutSlash => ">",
            ScriptForm::Front => "*",
        };
        let info = String::from_utf8_lossy(script.path_info).into_owned();
        format!("{form}{}|{info}", String::from_utf8_lossy(script.name)).trim_end_matches('|').to_owned()
    });
    Ok(words.collect::<Vec<_>>().join(" "))
}

#[test]
fn paths_have_candidates_in_order() {
    for (path, expected) in [
        ("/", "=/index.php"),
        ("", "=/index.php"),
        ("//", "=/index.php"),
        ("/index.php", "/index.php *"),
        ("/a.php", "/a.php *"),
        ("/a.php/", "/a.php|/ *"),
        ("/a.php/info/x", "/a.php|/info/x *"),
        ("//sub///a.php//info//x", "/sub/a.php|/info/x *"),
        ("/a%2ephp/b%20c", "/a.php|/b c *"),
        // PHP alone would walk up to x.jpg and run it.
        ("/x.jpg/a.php", "/x.jpg/a.php *"),
        ("/upload/x.gif/.php", "*"),
        ("/a.php/b.php", "/a.php|/b.php /a.php/b.php *"),
        ("/a.php/b.php/c", "/a.php|/b.php/c /a.php/b.php|/c *"),
        // Another extension to a file system, and to php-fpm.
        ("/A.PHP", ">/A.PHP/index.php *"),
        ("/a.php5", ">/a.php5/index.php *"),
        ("/a.phpx/y", ">/a.phpx/y/index.php *"),
        ("/a.php.jpg", ">/a.php.jpg/index.php *"),
        ("/a.php;x=1/y", ">/a.php;x=1/y/index.php *"),
        ("/a.php%20", ">/a.php /index.php *"),
        ("/a.php.", ">/a.php./index.php *"),
        ("/about", ">/about/index.php *"),
        ("/admin/", "=/admin/index.php *"),
        ("/%252e%252e/a.php", "/%2e%2e/a.php *"),
        // Hidden names are no scripts, but PATH_INFO may have them.
        ("/.git/x.php", "*"),
        ("/.well-known/x.php", "*"),
        ("/.env.php", "*"),
        ("/a/.php", "*"),
        ("/a.php/.well-known/b.php", "/a.php|/.well-known/b.php *"),
        ("/.hidden/", "*"),
        // The front script reads REQUEST_URI, so an escaped slash is no question of files.
        ("/search/a%2Fb", "*"),
        ("/search/a%5cb", "*"),
        ("/search/a\\b", "*"),
        ("/a\\.php", "*"),
        ("/a%5c.php/b", "*"),
        ("/a%2f.php/b", "*"),
    ] {
        let expected = expected.replace('*', "*/index.php");
        assert_eq!(words(path.as_bytes(), rules(true)), Ok(expected), "{path}");
    }
    // Overlong forms of UTF-8 are bytes like others: no file system takes them for dots or slashes.
    assert_eq!(
        words(b"/%c0%ae%c0%ae/a.php", rules(false)).unwrap(),
        "/\u{fffd}\u{fffd}\u{fffd}\u{fffd}/a.php"
    );
}

#[test]
fn without_index_or_front_only_scripts_are_left() {
    let bare = ScriptRules::new(".php", None, true).unwrap();
    for (path, with_index, without) in [
        ("/", "=/index.php", ""),
        ("/about", ">/about/index.php", ""),
        ("/a.php/b", "/a.php|/b", "/a.php|/b"),
        ("/a%2fb", "", ""),
    ] {
        assert_eq!(words(path.as_bytes(), rules(false)).unwrap(), with_index, "{path}");
        assert_eq!(words(path.as_bytes(), bare).unwrap(), without, "{path}");
    }
}

#[test]
fn ambiguous_paths_are_refused() {
    use ScriptPathError::{BrokenEscape, Control, DotSegment, EscapedSlash, NotAbsolute};
    for (path, error) in [
        ("*", NotAbsolute),
        ("a.php", NotAbsolute),
        ("host:80", NotAbsolute),
        ("/..", DotSegment),
        ("/../a.php", DotSegment),
        ("/a.php/..", DotSegment),
        ("/a.php/../../etc/passwd", DotSegment),
        ("/./a.php", DotSegment),
        ("/%2e%2e/a.php", DotSegment),
        ("/%2E./a.php", DotSegment),
        ("/..%2fa.php", DotSegment),
        ("/..%5ca.php", DotSegment),
        ("/..\\a.php", DotSegment),
        ("/x%2f..%2fy", DotSegment),
        ("/%", BrokenEscape),
        ("/%2", BrokenEscape),
        ("/%zz/a.php", BrokenEscape),
        ("/%+1", BrokenEscape),
        ("/a.php%00.jpg", Control),
        ("/a.jpg%00.php", Control),
        ("/a.php%0a/x", Control),
        ("/index.php/PHP%0Ais_bad", Control),
        ("/a.php/%7f", Control),
        ("/a%2Fb.php", EscapedSlash),
        ("/x%2ephp%2fy", EscapedSlash),
        ("/a.php%2fx", EscapedSlash),
        ("/a.php/x%2fy", EscapedSlash),
        ("/a.php/x%5Cy", EscapedSlash),
        ("/a.php\\x", EscapedSlash),
        ("/x\\a.php", EscapedSlash),
    ] {
        assert_eq!(words(path.as_bytes(), rules(true)), Err(error), "{path}");
    }
}

#[test]
fn names_longer_than_any_path_are_no_candidates() {
    let long = format!("/{}/a.php", "x".repeat(NAME_BYTES_MAX));
    assert_eq!(words(long.as_bytes(), rules(true)).unwrap(), "*/index.php");
    let directory = format!("/{}", "x/".repeat(2047));
    assert_eq!(words(directory.as_bytes(), rules(true)).unwrap(), "*/index.php");
    let info = format!("/a.php/{}", "x".repeat(NAME_BYTES_MAX));
    assert!(words(info.as_bytes(), rules(true)).unwrap().starts_with("/a.php|/xxx"));
}

#[test]
fn a_path_of_many_scripts_costs_few_looks() {
    let many = "/a.php".repeat(600);
    let mut memory = Vec::new();
    let candidates = ScriptCandidates::new(many.as_bytes(), rules(true), &mut memory).unwrap();
    assert_eq!(candidates.count(), 8 + 1);
}

#[test]
fn the_first_that_exists_is_the_script() {
    let files: [&[u8]; 3] = [b"/index.php", b"/x.jpg", b"/d.php/b.php"];
    for (path, expected) in [
        ("/x.jpg/a.php", Some((&b"/index.php"[..], &b""[..]))),
        ("/d.php/b.php/c", Some((b"/d.php/b.php", b"/c"))),
        ("/index.php/c", Some((b"/index.php", b"/c"))),
        ("/", Some((b"/index.php", b""))),
    ] {
        let mut memory = Vec::new();
        let candidates = ScriptCandidates::new(path.as_bytes(), rules(true), &mut memory).unwrap();
        let found = candidates.first_existing(|name| files.contains(&name));
        assert_eq!(found.map(|script| (script.name, script.path_info)), expected, "{path}");
    }
    let mut memory = Vec::new();
    let candidates = ScriptCandidates::new(b"/x.jpg/a.php", rules(false), &mut memory).unwrap();
    assert_eq!(candidates.first_existing(|name| files.contains(&name)), None);
}

#[test]
fn settings_that_name_no_script_are_refused() {
    for (split, index, expected) in [
        (".php", Some("index.php"), Ok(())),
        (".phtml", None, Ok(())),
        ("php", None, Err(ScriptRulesError::Split)),
        (".", None, Err(ScriptRulesError::Split)),
        ("", None, Err(ScriptRulesError::Split)),
        ("./php", None, Err(ScriptRulesError::Split)),
        (".php ", None, Err(ScriptRulesError::Split)),
        (".php", Some(""), Err(ScriptRulesError::Index)),
        (".php", Some("index.html"), Err(ScriptRulesError::Index)),
        (".php", Some(".php"), Err(ScriptRulesError::Index)),
        (".php", Some("../index.php"), Err(ScriptRulesError::Index)),
        (".php", Some(".index.php"), Err(ScriptRulesError::Index)),
        (".php", Some("a/index.php"), Err(ScriptRulesError::Index)),
    ] {
        assert_eq!(ScriptRules::new(split, index, true).map(|_| ()), expected, "{split} {index:?}");
    }
}

proptest! {
    #[test]
    fn whatever_is_sent_names_scripts_beneath_the_root(path in prop::collection::vec(
        prop_oneof![
            4 => prop::sample::select(vec![
                "/", "/", ".", "..", "%2e", "%2f", "%5c", "\\", ".php", "a", "a.php", "%00", "%", "/a.php/",
            ]).prop_map(|piece| piece.as_bytes().to_vec()),
            1 => prop::collection::vec(any::<u8>(), 0..3),
        ],
        0..12,
    ).prop_map(|pieces| pieces.concat())) {
        let mut memory = Vec::new();
        if let Ok(candidates) = ScriptCandidates::new(&path, rules(true), &mut memory) {
            let mut whole = None;
            for script in candidates {
                prop_assert!(script.name.starts_with(b"/") && script.name.ends_with(b".php"));
                let is_plain = |name: &[u8]| !name.is_empty() && !name.starts_with(b".");
                prop_assert!(script.name[1..].split(|&byte| byte == b'/').all(is_plain));
                prop_assert!(!script.name.iter().any(|byte| *byte < b' ' || *byte == b'\\'));
                prop_assert!(script.path_info.is_empty() || script.path_info[0] == b'/');
                if script.form == ScriptForm::Script {
                    let path = [script.name, script.path_info].concat();
                    prop_assert_eq!(whole.get_or_insert_with(|| path.clone()), &path);
                }
            }
        }
    }
}
