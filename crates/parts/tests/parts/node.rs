//! A client in another language.

use std::fs;
use std::path::Path;

use parts::{command, is_wanted, printed, repository, workplace};

#[test]
fn the_client_in_javascript_prints_what_the_document_says() {
    if !is_wanted("node") {
        return;
    }
    let document = fs::read_to_string(repository().join("docs/serve.md")).unwrap();
    let blocks: Vec<&str> =
        document.split("```javascript\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert_eq!(blocks.len(), 1);
    assert!(blocks[0].lines().filter(|line| !line.trim().is_empty() && !line.starts_with("//")).count() <= 20);
    let expected: Vec<&str> = blocks[0].lines().filter_map(|line| line.strip_prefix("// ")).collect();
    let place = workplace();
    fs::write(place.path().join("client.mjs"), blocks[0]).unwrap();
    let said = printed(command(Path::new("node"), place.path()).arg("client.mjs"));
    assert_eq!(said.lines().collect::<Vec<_>>(), expected);
}
