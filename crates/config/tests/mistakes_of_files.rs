//! Mistakes in places of files, and in the page that unknown clients get.

use super::mistakes_of_routes::said;

#[test]
fn mistakes() {
    let rows: [(&str, &[&str]); 4] = [
        (
            "files = { root = \"/usr\", try = [\"x\", \"$path\"] }",
            &[
                "5:33: try: \"x\" is not the path of a file that clients can get; expected a path with $path for that of the request, such as $path.html, $path/index.html, $path/ or /down.html",
            ],
        ),
        (
            "files = { root = \"/usr\", listing = true, try = [\"$path\"] }",
            &[
                "5:49: files has listing, and `try` has no directory; expected \"$path/\" among the places, or no such option",
            ],
        ),
        (
            "files = { root = \"/usr\", cache_control_for = { \"a\" = \"no-cache\" } }",
            &["5:48: cache_control_for: \"a\" is no path of files; expected /index.html, /assets/* or *.js"],
        ),
        (
            "upstream = \"app\"\nforward_auth = { upstream = \"app\", sign_in_parameter = \"next\" }",
            &[
                "6:56: sign_in_parameter: there is no URL in sign_in that would get it; expected sign_in with a URL or a path",
            ],
        ),
    ];
    for (route, expected) in rows {
        assert_eq!(said(route), expected, "{route}");
    }
}
