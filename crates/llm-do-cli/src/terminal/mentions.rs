//! Files that a line of a chat names with `@path`: they are completed, and go with what is said.

use std::fs;
use std::path::Path;

/// The beginning of a path that is being typed behind `@`, at the end of this text.
pub fn begun(typed: &str) -> Option<&str> {
    let word = typed.rsplit(char::is_whitespace).next().unwrap_or_default();
    word.strip_prefix('@')
}

/// Paths that begin like this, as they would be typed. A directory ends with `/`.
pub fn completed(begun: &str) -> Vec<String> {
    let (parent, start) = begun.rfind('/').map_or(("", begun), |end| begun.split_at(end + 1));
    let directory = if parent.is_empty() { Path::new(".") } else { Path::new(parent) };
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut paths: Vec<String> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let is_meant = name.starts_with(start) && (start.starts_with('.') || !name.starts_with('.'));
            // What has a blank in it cannot be told from the next word.
            let is_word = !name.chars().any(char::is_whitespace);
            let end = if entry.path().is_dir() { "/" } else { "" };
            (is_meant && is_word).then(|| format!("{parent}{name}{end}"))
        })
        .collect();
    paths.sort();
    paths
}

/// The paths that a text names, in order, each once. Signs that end a sentence are no part of one, unless a file has that name.
pub fn named(text: &str) -> Vec<&str> {
    let mut paths: Vec<&str> = Vec::new();
    for word in text.split_whitespace() {
        let Some(path) = word.strip_prefix('@').filter(|path| !path.is_empty()) else { continue };
        let path =
            if Path::new(path).exists() { path } else { path.trim_end_matches(['.', ',', ';', ':', '!', '?', ')']) };
        if !path.is_empty() && !paths.contains(&path) {
            paths.push(path);
        }
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_words_behind_the_sign() {
        assert_eq!(named("Compare @a.md, @b/c.txt and @a.md. Mail ann@example.org about @?"), ["a.md", "b/c.txt"]);
        assert_eq!(begun("look at @no"), Some("no"));
        assert_eq!(begun("@"), Some(""));
        assert_eq!(begun("look at @no "), None);
        assert_eq!(begun("ann@no"), None);
    }

    #[test]
    fn what_is_there_is_completed() {
        let place = tempfile::tempdir().unwrap();
        for name in ["notes.md", "no way.md", ".notes", "other"] {
            fs::write(place.path().join(name), "").unwrap();
        }
        fs::create_dir(place.path().join("nothing")).unwrap();
        let at = |start: &str| format!("{}/{start}", place.path().display());
        assert_eq!(completed(&at("no")), [at("notes.md"), at("nothing/")]);
        assert_eq!(completed(&at(".n")), [at(".notes")]);
        assert_eq!(completed(&at("none/x")), Vec::<String>::new());
    }
}
