//! Links between files of the repository lead somewhere.

use crate::{documents, read, repository};

/// The targets of Markdown links, outside of code.
fn links(document: &str) -> Vec<&str> {
    let mut in_fence = false;
    let mut all = Vec::new();
    for line in document.lines() {
        in_fence ^= line.starts_with("```");
        if !in_fence {
            let targets = line.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
            all.extend(targets.map(|(target, _)| target));
        }
    }
    all
}

/// How GitHub calls a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim_start_matches('#').trim().to_lowercase();
    let kept: String = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_')).collect();
    kept.replace(' ', "-")
}

#[test]
fn every_link_leads_somewhere() {
    let mut all = documents("docs");
    all.extend(documents("examples"));
    let top = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"];
    all.extend(top.map(str::to_owned));
    for path in all {
        let document = read(&path);
        for link in links(&document).into_iter().filter(|link| !link.contains("://")) {
            let (file, place) = link.split_once('#').unwrap_or((link, ""));
            let directory = repository().join(&path).parent().unwrap().to_owned();
            let target = if file.is_empty() { repository().join(&path) } else { directory.join(file) };
            assert!(target.exists(), "{path} links to {link}, which is not there");
            if !place.is_empty() {
                let text = std::fs::read_to_string(&target).unwrap();
                let is_there = text.lines().any(|line| line.starts_with('#') && anchor(line) == place);
                assert!(is_there, "{path} links to {link}: no such heading");
            }
        }
    }
}

#[test]
fn every_document_is_in_the_index() {
    let index = read("docs/README.md");
    for path in documents("docs").iter().filter(|path| *path != "docs/README.md") {
        let file = path.strip_prefix("docs/").unwrap();
        assert!(index.contains(&format!("]({file})")), "{path} is not in docs/README.md");
    }
}
