//! What the examples do besides what their READMEs show.

use crate::repository;

#[test]
fn every_example_has_a_readme_with_a_session() {
    for entry in std::fs::read_dir(repository().join("examples")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            let readme = std::fs::read_to_string(path.join("README.md")).unwrap();
            assert!(readme.contains("```console\n$ "), "{}: its README shows no command", path.display());
        }
    }
}
