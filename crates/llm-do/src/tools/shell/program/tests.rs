use std::os::unix::fs::symlink;

use super::*;

/// The path of a directory that only the user and root can write, all the way up, or `None` where tests run elsewhere.
fn private() -> Option<tempfile::TempDir> {
    let above = Path::new(env!("CARGO_MANIFEST_DIR"));
    let directory = tempfile::Builder::new().prefix("programs").tempdir_in(above).unwrap();
    let way = way::to(&directory.path().canonicalize().unwrap()).unwrap().entered();
    way.directories.iter().all(|(path, metadata)| others_may_write(path, metadata).is_none()).then_some(directory)
}

fn script(path: &Path) -> PathBuf {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.to_owned()
}

fn refused(place: ProgramPlace) -> String {
    match place {
        ProgramPlace::Refused(reason) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn programs_are_found_by_name_in_trusted_directories_only() {
    let programs = Programs::default();
    let cat = programs.find("cat").unwrap();
    assert!(cat.path.is_absolute() && cat.path.ends_with("cat") && cat.is_unchanged());
    for name in ["./cat", "../bin/cat", "bin/cat", "CAT", "no-such-program", "", "."] {
        let said = programs.find(name).unwrap_err();
        assert!(said.contains("is not in /"), "{name}: {said}");
    }
    assert_eq!(programs.find(cat.path.to_str().unwrap()).unwrap(), cat);
    assert!(programs.search_path().split(':').all(|directory| is_trusted(Path::new(directory))));
    assert!(!is_trusted(Path::new("/tmp")));
}

#[test]
fn a_path_into_the_project_what_is_written_or_processes_is_refused_whoever_owns_it() {
    let Some(scene) = private() else { return };
    let root = scene.path().canonicalize().unwrap();
    let tool = script(&root.join("clone/tool.sh"));
    script(&root.join("work/tool.sh"));
    script(&root.join("written/deep/tool.sh"));
    let elsewhere = script(&root.join("bin/tool.sh"));
    symlink(root.join("clone"), root.join("bin/alias")).unwrap();
    symlink(&tool, root.join("bin/link")).unwrap();
    symlink("../bin/tool.sh", root.join("clone/out")).unwrap();
    let written = root.join("written");
    let grounds = Grounds::new(&root.join("clone"), &root.join("work"), [written.as_path()]);
    for (path, said) in [
        ("clone/tool.sh", "the project"),
        ("bin/../clone/tool.sh", "the project"),
        ("bin/alias/tool.sh", "the project"),
        ("bin/link", "the project"),
        ("clone/out", "the project"),
        ("clone/none", "the project"),
        ("work/tool.sh", "the working directory"),
        ("written/deep/tool.sh", "may write"),
    ] {
        let reason = refused(grounds.place(&root.join(path)));
        assert!(reason.contains(said), "{path}: {reason}");
    }
    refused(grounds.place(Path::new("/proc/1/root/usr/bin/wc")));
    for path in ["/proc/self/cwd/tool.sh", "/proc/self/exe", "/proc/self/../self/exe"] {
        assert!(refused(grounds.place(Path::new(path))).contains("processes"), "{path}");
    }
    assert!(refused(grounds.place(Path::new("/tmp/x"))).contains("temporary"));
    let expected = if rustix::process::geteuid().is_root() { "System" } else { "Own" };
    assert!(format!("{:?}", grounds.place(&elsewhere)).starts_with(expected));
    assert_eq!(grounds.place(Path::new("/usr/bin/env")), ProgramPlace::System);
    assert_eq!(grounds.place(&root.join("bin/none")), ProgramPlace::Missing);
    assert_eq!(grounds.place(&root.join("bin")), ProgramPlace::Missing);
}

#[test]
fn a_directory_or_a_file_that_others_may_write_is_refused() {
    let Some(scene) = private() else { return };
    let root = scene.path().canonicalize().unwrap();
    let open = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    let tool = script(&root.join("shared/bin/tool"));
    let grounds = Grounds::default();
    assert!(!matches!(grounds.place(&tool), ProgramPlace::Refused(_)));
    for mode in [0o777, 0o775, 0o1777] {
        open(&root.join("shared"), mode);
        let reason = refused(grounds.place(&tool));
        assert!(reason.contains("leads through a directory that others may write"), "{reason}");
        let (own, left_out) = grounds.own_directories(&[root.join("shared/bin")]);
        assert!(own.is_empty() && left_out[0].contains("others may write"), "{left_out:?}");
    }
    open(&root.join("shared"), 0o755);
    open(&tool, 0o757);
    assert!(refused(grounds.place(&tool)).contains("is a file that others may write"));
    assert_eq!(grounds.own_directories(&[root.join("shared/bin")]).0, [root.join("shared/bin")]);
    let (own, left_out) = grounds.own_directories(&[tool.clone(), root.join("none"), "relative".into()]);
    assert!(own.is_empty() && left_out.len() == 3, "{left_out:?}");
}

#[test]
fn what_belongs_to_somebody_else_is_refused() {
    let Some(scene) = private().filter(|_| rustix::process::geteuid().is_root()) else { return };
    let root = scene.path().canonicalize().unwrap();
    let tool = script(&root.join("theirs/tool"));
    std::os::unix::fs::chown(root.join("theirs"), Some(65534), Some(65534)).unwrap();
    assert!(refused(Grounds::default().place(&tool)).contains("belongs to somebody else"));
}

#[test]
fn a_name_is_found_in_directories_of_the_users_own_after_those_of_the_system() {
    let Some(scene) = private() else { return };
    let root = scene.path().canonicalize().unwrap();
    let mine = script(&root.join("mine"));
    script(&root.join("cat"));
    let programs = Programs::new(Grounds::default(), vec![root.clone()], &BTreeMap::new());
    let found = programs.find("mine").unwrap();
    assert_eq!(found.path, mine);
    assert!(!programs.find("cat").unwrap().path.starts_with(&root));
    assert!(programs.search_path().ends_with(root.to_str().unwrap()));
    assert!(programs.run_from(&found).contains(&root));
    std::fs::rename(script(&root.join("other")), &mine).unwrap();
    assert!(!programs.find("mine").unwrap().is_unchanged(), "what was found is what counts");
}
