use super::*;
use crate::tools::shell::words::split;

fn project() -> (tempfile::TempDir, CommandDirectory) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    std::fs::create_dir_all(path.join("src/inner")).unwrap();
    for file in ["a.txt", "b.txt", "README.md", "src/main.rs", "src/inner/lib.rs", "-rf", "in", "out"] {
        std::fs::write(path.join(file), "x\n").unwrap();
    }
    std::fs::create_dir_all(path.join("secret")).unwrap();
    std::fs::write(path.join("secret/.env"), "KEY=1\n").unwrap();
    let open = CommandDirectory::open(path).unwrap();
    (directory, open)
}

#[test]
fn honest_commands_fit() {
    let (_kept, directory) = project();
    let misjudged: Vec<_> = include_str!("honest.txt")
        .lines()
        .map(|command| (command, split(command).and_then(|words| fit(&words, &directory, &|_| false))))
        .filter(|(_, fit)| *fit != Ok(Fit::default()))
        .collect();
    assert_eq!(misjudged, []);
}

#[test]
fn hostile_commands_do_not() {
    let (_kept, directory) = project();
    let misjudged: Vec<_> = include_str!("hostile.txt")
        .lines()
        .filter(|command| split(command).and_then(|words| fit(&words, &directory, &|_| false)).is_ok())
        .collect();
    assert_eq!(misjudged, Vec::<&str>::new());
}

#[test]
fn secrets_are_asked_about() {
    let (_kept, directory) = project();
    for command in [
        "cat secret/.env",
        "cat .env",
        "head -n1 ./secret/../secret/.env",
        "grep -r KEY .",
        "grep -r KEY",
        "grep -rn --include=.env KEY secret",
        "grep -r --exclude=zzz --include='*.rs' KEY .",
        "grep -r --include='*.rs' --exclude=zzz KEY .",
        "grep -r --include='*.env' KEY .",
        "grep -f .env a.txt",
        "wc -l secret/.env a.txt",
        "git show HEAD:.env",
        "git show HEAD:secret/.env",
        "git show :0:.env",
        "git diff -- secret/.env",
        "git diff secret src",
        "git log -p -- .env",
        "sort id_rsa",
        "ls .ssh",
        "find .ssh",
    ] {
        let fit =
            fit(&split(command).unwrap(), &directory, &|_| false).unwrap_or_else(|error| panic!("{command}: {error}"));
        assert!(!fit.doubts.is_empty(), "{command}");
    }
    for command in ["grep -r KEY src", "grep -rn --include='*.rs' KEY .", "find . -name .env", "ls -R"] {
        assert_eq!(fit(&split(command).unwrap(), &directory, &|_| false), Ok(Fit::default()), "{command}");
    }
}

#[test]
fn moving_says_what_changes() {
    let (_kept, directory) = project();
    let fit = fit(&split("mv a.txt src").unwrap(), &directory, &|_| false).unwrap();
    let changes: Vec<_> = fit.changes.iter().map(|place| place.beneath.display().to_string()).collect();
    assert_eq!(changes, ["src/a.txt", "a.txt", "src"]);
}
