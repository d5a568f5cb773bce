use std::os::unix::fs::symlink;

use cap_std::ambient_authority;
use proptest::prelude::*;

use super::*;

fn opened(path: &Path) -> Dir {
    Dir::open_ambient_dir(path, ambient_authority()).unwrap()
}

/// A tree with a file outside it that nothing may reach.
fn tree() -> tempfile::TempDir {
    let temporary = tempfile::tempdir().unwrap();
    let root = temporary.path().join("root");
    std::fs::create_dir_all(root.join("a/b")).unwrap();
    std::fs::write(root.join("a/b/file"), "x").unwrap();
    std::fs::write(temporary.path().join("outside"), "x").unwrap();
    for (target, link) in [
        ("a/b", "inner"),
        ("../a/b/file", "a/up"),
        ("b/../../a/./b//file", "a/crooked"),
        ("../outside", "out"),
        ("/", "slash"),
        ("nowhere", "dangling"),
        ("loop", "loop"),
        ("two", "one"),
        ("one", "two"),
        ("/proc/self/root", "magic"),
    ] {
        symlink(target, root.join(link)).unwrap();
    }
    temporary
}

#[test]
fn a_path_is_found_behind_its_links() {
    let tree = tree();
    let root = opened(&tree.path().join("root"));
    for (path, real) in [
        ("a/b/file", "a/b/file"),
        ("./a//b/./file", "a/b/file"),
        ("a/../a/b/file", "a/b/file"),
        ("inner/file", "a/b/file"),
        ("a/up", "a/b/file"),
        ("a/crooked", "a/b/file"),
        ("inner/../up", "a/b/file"),
        ("inner", "a/b"),
        ("", ""),
        (".", ""),
    ] {
        let place = resolve(&root, Path::new(path)).unwrap();
        assert_eq!(place.path, Path::new(real), "{path}");
        assert_eq!(
            place.directories.len(),
            if real.ends_with("file") { 3 } else { Path::new(real).iter().count() + 1 }
        );
        let identity = Identity::of_path(&tree.path().join("root").join(real)).unwrap();
        assert_eq!(place.found.unwrap().identity, identity, "{path}");
    }
}

#[test]
fn nothing_leads_outside_or_round_in_circles() {
    let tree = tree();
    let root = opened(&tree.path().join("root"));
    for path in [
        "..",
        "../outside",
        "a/../../outside",
        "inner/../../../outside",
        "out",
        "slash",
        "slash/etc",
        "magic/etc",
        "/etc",
    ] {
        assert!(matches!(resolve(&root, Path::new(path)), Err(FileOpenError::Outside)), "{path}");
    }
    for path in ["loop", "loop/x", "one", "two/x"] {
        assert!(matches!(resolve(&root, Path::new(path)), Err(FileOpenError::Io(_))), "{path}");
    }
    assert!(matches!(resolve(&root, Path::new("a/b/file/x")), Err(FileOpenError::Io(_))));
    assert!(matches!(resolve(&root, Path::new("a\0b")), Err(FileOpenError::Io(_))));
}

#[test]
fn what_does_not_exist_is_a_place_unless_a_link_leads_there() {
    let tree = tree();
    let root = opened(&tree.path().join("root"));
    let place = resolve(&root, Path::new("inner/new/deep/file")).unwrap();
    assert_eq!(
        (place.path.as_path(), &place.found, place.directories.len()),
        (Path::new("a/b/new/deep/file"), &None, 3)
    );
    let (parent, name) = place.make_parent().unwrap();
    parent.write(name, "y").unwrap();
    assert_eq!(std::fs::read_to_string(tree.path().join("root/a/b/new/deep/file")).unwrap(), "y");
    for path in ["dangling", "dangling/x", "missing/../a", "missing/.."] {
        assert!(matches!(resolve(&root, Path::new(path)), Err(FileOpenError::Missing)), "{path}");
    }
}

#[test]
fn a_directory_that_became_a_link_is_not_entered() {
    let tree = tree();
    let root = tree.path().join("root");
    let place = resolve(&opened(&root), Path::new("new/file")).unwrap();
    symlink(tree.path(), root.join("new")).unwrap();
    assert!(place.make_parent().is_err());
    let place = resolve(&opened(&root), Path::new("a/b/file")).unwrap();
    std::fs::remove_file(root.join("a/b/file")).unwrap();
    symlink(tree.path().join("outside"), root.join("a/b/file")).unwrap();
    assert!(place.open().is_err());
}

/// Names from a small alphabet, so that paths meet what is there.
fn any_name() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "c", "d", "..", ".", "ü"]).prop_map(str::to_owned)
}

/// Without a `.` at the end: to the kernel it says that a directory is there, here it says nothing.
fn any_path() -> impl Strategy<Value = String> {
    (prop::collection::vec(any_name(), 1..6), 0..12u8).prop_map(|(names, absolute)| {
        let path = if absolute == 0 { format!("/{}", names.join("/")) } else { names.join("/") };
        path.trim_end_matches("/.").to_owned()
    })
}

proptest! {
    /// The result is compared with the kernel's: what it finds beneath the root is found here, and nothing else.
    #[test]
    fn the_walk_agrees_with_the_kernel(
        entries in prop::collection::vec((any_path(), any_path(), 0..3u8), 0..12),
        asked in prop::collection::vec(any_path(), 1..12),
    ) {
        let temporary = tempfile::tempdir().unwrap();
        let root = temporary.path().canonicalize().unwrap().join("r");
        std::fs::create_dir(&root).unwrap();
        let inside = |path: &str| Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
        for (path, target, kind) in &entries {
            if !inside(path) {
                continue;
            }
            let full = root.join(path);
            let _ = match kind {
                0 => std::fs::create_dir_all(&full),
                1 => full.parent().filter(|parent| parent.is_dir()).map_or(Ok(()), |_| std::fs::write(&full, path).or(Ok(()))),
                _ => symlink(target, &full),
            };
        }
        let directory = opened(&root);
        for path in &asked {
            let found = resolve(&directory, Path::new(path));
            let kernel = if path.starts_with('/') { None } else { std::fs::canonicalize(root.join(path)).ok() };
            match (&found, &kernel) {
                (Ok(place), Some(kernel)) if place.found.is_some() => prop_assert_eq!(&root.join(&place.path), kernel),
                (Ok(place), None) if place.found.is_none() => {
                    prop_assert!(std::fs::symlink_metadata(root.join(&place.path)).is_err(), "{}", path);
                }
                // A path that leaves the root and comes back is one that the kernel follows and this walk does not.
                (Err(FileOpenError::Outside), _) | (Err(_), None) => {}
                other => prop_assert!(false, "{}: {:?}", path, other),
            }
            if let Ok(place) = &found {
                prop_assert!(inside(&place.path.to_string_lossy()) || place.path.as_os_str().is_empty());
            }
        }
    }
}
