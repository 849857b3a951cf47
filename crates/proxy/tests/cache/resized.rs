//! Reloads that change the size of the store: fitting responses stay, and messages report the others.

use testkit::scene::{BOTH, Scene, Spoken, get, read};

use super::answered::{ONE_ROUTE, response};
use super::judged::{comes_to_be_stored, is_hit};

/// Reloads with another memory size. Returns the messages.
fn reload(scene: &Scene, memory: &str, cache: &str) -> Vec<String> {
    let text = ONE_ROUTE
        .replace("memory = \"64MiB\"", memory)
        .replace("cache = {}", cache)
        .replace("{0}", &scene.server_address(0));
    let text = format!("workers = 2\n{text}\n[[listen]]\naddress = \"127.0.0.1:0\"\n");
    scene.running().reload(read(&text)).expect("it is valid")
}

fn store(scene: &Scene, count: usize) {
    for number in 0..count {
        let target = format!("/{number}");
        scene.exchange(
            Spoken::Http1,
            &get(&target),
            &response("Cache-Control: max-age=600\r\n", &"x".repeat(20_000)),
        );
        comes_to_be_stored(scene, Spoken::Http1, &get(&target));
    }
}

#[test]
fn what_fits_outlives_a_reload_with_other_memory() {
    let scene = Scene::new(ONE_ROUTE);
    store(&scene, 20);
    for memory in ["16MiB", "1GiB", "8MiB"] {
        let remarks = reload(&scene, &format!("memory = \"{memory}\""), "cache = {}");
        assert!(remarks.is_empty(), "{remarks:?}");
        for number in 0..20 {
            let got = scene.answer(BOTH[number % 2], &get(&format!("/{number}")));
            assert!(is_hit(&got), "{memory} {number}");
        }
    }
    assert!(scene.try_accept(0).is_none());
}

#[test]
fn what_does_not_fit_is_said() {
    let scene = Scene::new(ONE_ROUTE);
    store(&scene, 100);
    let remarks = reload(&scene, "memory = \"1MiB\"", "cache = {}");
    let made_room = remarks[0].strip_prefix("cache: ").and_then(|told| told.split(' ').next());
    let made_room: usize =
        made_room.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("{remarks:?}"));
    assert!((40..80).contains(&made_room), "{remarks:?}");
    assert!(remarks[0].contains(&format!("; {} remain", 100 - made_room)), "{remarks:?}");
    let disk = scene.file("disk").display().to_string();
    let remarks = reload(
        &scene,
        &format!("memory = \"1MiB\"\ndisk = {{ path = \"{disk}\", size = \"16MiB\" }}"),
        "cache = {}",
    );
    let kept = 100 - made_room;
    assert_eq!(
        remarks,
        [format!(
            "cache: it starts empty, because its disk was changed: {kept} stored responses in memory are dropped"
        )]
    );
    store(&scene, 1);
    let text = format!(
        "workers = 2\n[[listen]]\naddress = \"127.0.0.1:0\"\n[[route]]\nupstream = \"app\"\n[upstream.app]\nservers = [\"http://{}\"]\n",
        scene.server_address(0)
    );
    let remarks = scene.running().reload(read(&text)).expect("it is valid");
    assert_eq!(
        remarks,
        ["cache: it was removed from the configuration: 1 stored responses in memory are dropped"]
    );
}
