//! Changes of maps by commands, beside reloads, upgrades and changes of files.

use crate::changes::Scene;
use crate::process::{Patience, get, run_in};

/// Changes of maps survive a reload and an upgrade, and lie on top of a file that changes.
#[test]
fn changes_of_maps_outlive_reloads_and_upgrades() {
    let scene = Scene::start(1);
    let run = |arguments: &[&str]| run_in(scene.path(), arguments);
    let list = scene.path().join("list");
    std::fs::write(&list, "192.0.2.0/24\n").expect("it is writable");
    let maps = format!(
        "[map.banned]\nkey = 'client.address'\nkind = \"network\"\nfile = {list:?}\nformat = \"keys\"\n\
         [map.tenant]\nkey = 'request.host'\nentries = {{ a = \"b\" }}\n\
         [[route]]\nwhen = 'map.banned || map.tenant == \"z\"'\nrespond = {{ status = 403 }}\n"
    );
    scene.write(1, &maps);
    scene.reload();
    let get = |map: &str, key: &str| run(&["map", "get", map, key]).output.trim().to_owned();
    run(&["map", "set", "banned", "203.0.113.7", "--for", "1h"]).with_code(0);
    run(&["map", "delete", "banned", "192.0.2.0/24"]).with_code(0);
    let other = scene.path().join("other");
    std::fs::write(&other, "one 1\ntwo 2\n").expect("it is writable");
    run(&["map", "replace", "tenant", &other.display().to_string()]).with_code(0);
    run(&["map", "set", "tenant", "three", "3"]).with_code(0);
    run(&["map", "get", "tenant", "a"]).with_code(1);
    let check = |when: &str| {
        for (map, key, value) in [
            ("banned", "203.0.113.7", "true"),
            ("banned", "192.0.2.1", ""),
            ("tenant", "one", "1"),
            ("tenant", "three", "3"),
            ("tenant", "a", ""),
        ] {
            assert_eq!(get(map, key), value, "{when}: {map} {key}");
        }
        let shown = run(&["map", "show", "banned"]).with_code(0).output;
        assert!(shown.contains("203.0.113.7/32") && shown.contains("ends in "), "{when}: {shown}");
    };
    check("at once");
    scene.reload();
    check("after a reload");
    scene.upgrade();
    check("after an upgrade");
    // The proxy looks at the file once a second.
    std::fs::write(scene.path().join("new"), "198.51.100.0/24\n192.0.2.0/24\n").expect("it is writable");
    std::fs::rename(scene.path().join("new"), &list).expect("it is renamed");
    let patience = Patience::new();
    while get("banned", "198.51.100.1") != "true" {
        patience.wait_a_little("the file is not read again");
    }
    check("after a change of the file");
    std::fs::write(&list, "nonsense\n").expect("it is writable");
    run(&["map", "reset", "tenant"]).with_code(0);
    assert_eq!(get("tenant", "a"), "b");
    let table = run(&["map"]).with_code(0).output;
    assert!(table.contains("network to set") && table.contains("2 changed by command"), "{table}");
    let refused = run(&["map", "set", "tenat", "--file", &other.display().to_string()]).with_code(1);
    assert!(refused.errors.contains("did you mean \"tenant\"?"), "{}", refused.errors);
    std::fs::write(&other, "# networks\n198.51.100.9 # a comment\n").expect("it is writable");
    run(&["map", "set", "banned", "--for", "1h", "--file", &other.display().to_string()]).with_code(0);
    run(&["map", "get", "banned", "198.51.100.9"]).with_code(0);
    scene.end();
}

/// An upgrade does not begin the time of an entry again, and the first request afterwards is decided by it.
#[test]
fn entries_end_at_their_time_after_an_upgrade() {
    let scene = Scene::start(1);
    let run = |arguments: &[&str]| run_in(scene.path(), arguments).with_code(0).output;
    let maps = "[map.banned]\nkey = 'client.address'\nkind = \"network\"\nentries = []\n\
                [map.tenant]\nkey = 'request.path'\nkind = \"prefix\"\nentries = { \"/a\" = \"one\" }\n\
                [values]\ntenant = 'map.tenant ?? \"none\"'\n\
                [[route]]\npath = \"/a\"\nwhen = 'map.banned && values.tenant == \"two\"'\n\
                respond = { status = 403, body = \"${tenant}\" }\n";
    scene.write(1, maps);
    scene.reload();
    run(&["map", "set", "banned", "127.0.0.1", "--for", "1h"]);
    run(&["map", "set", "tenant", "/a", "two"]);
    let rest = || {
        let shown: serde_json::Value =
            serde_json::from_str(&run(&["map", "show", "banned", "--json"])).expect("is JSON");
        shown["entries"][0]["ends_in_seconds"].as_u64().expect("it has an end")
    };
    assert!((3000..=3600).contains(&rest()), "{}", rest());
    let patience = Patience::new();
    while rest() > 3598 {
        patience.wait_a_little("the rest of the time does not get shorter");
    }
    let before = rest();
    scene.upgrade();
    let answer = get(scene.address(), "/a");
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.ends_with("\r\n\r\ntwo"), "{answer}");
    let after = rest();
    assert!((before - 600..=before).contains(&after), "{after} s instead of {before} s");
    scene.end();
}
