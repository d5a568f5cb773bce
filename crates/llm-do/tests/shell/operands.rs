//! What the words of a command lead to: secrets and what decides a project ask however they are named, an answer is for
//! what it was shown, and honest commands pass.

use std::sync::{Arc, Mutex};

use crate::world::{ALL, Attempt, World, is_offered, part, rule, rules};
use llm_do::BoxFuture;
use llm_do::tools::approval::{Answer, ApprovalRequest, Approvals, Approver, Rule};
use llm_do::tools::fence::Fencing;
use llm_do::tools::source::{Grammar, ShellRule};

const PROGRAMS: &str =
    "grep, sort, git show, git diff, cp, tar, install, cat, wc -l, git branch, date, mkdir, dd, ls, echo, mv";

/// A shell whose rules allow these, in a directory with a secret and an agent.
fn allowing(fencing: Fencing) -> World {
    let allowed = PROGRAMS.split(", ").map(|pattern| rule(pattern, Rule::Allow)).collect();
    let world = World::new(fencing).with(vec![rules(allowed)]);
    world.file("inside/.env", "TOKEN=hidden-value\n");
    world.file("inside/main.worker", "precious\n");
    world.file("inside/list", ".env\n");
    world.file("inside/drafts/evil.yaml", "name: evil\n");
    world.file("inside/plain/x.txt", "TOKEN\n");
    world.link("inside/notes", ".env");
    world
}

#[test]
fn a_secret_or_an_agent_asks_however_a_word_names_it() {
    for fencing in ALL {
        let world = allowing(fencing);
        let before = world.state();
        for command in [
            "grep -f.env -v x a.txt",
            "sort -omain.worker a.txt",
            "sort -onew.worker a.txt",
            "git show HEAD:.env",
            "git diff --no-index /dev/null -- .env",
            "tar -cf- @list",
            "tar -cf- -T list",
            "tar -cf- --files-from=list",
            "sort --files0-from=list",
            "install -Dtworkers/generated drafts/evil.yaml",
            "install -Dt. drafts/evil.yaml",
            "cp drafts/evil.yaml -t.",
            "cat notes",
            "dd if=.env",
            "dd of=main.worker",
            "cat ./plain/../.env",
            "echo x --file=.env",
            "mv a.txt .git/config",
            "mv a.txt .bash_aliases",
            "cp a.txt .config/git/config",
        ] {
            match world.attempt(command) {
                Attempt::Stopped(reason) => assert!(reason.contains("needs an approval"), "{command}: {reason}"),
                Attempt::Ran(ran) => panic!("{command}: {ran:?}"),
            }
            assert_eq!(world.state(), before, "{command}");
        }
    }
}

#[test]
fn a_directory_with_secrets_asks_unless_the_fence_hides_them() {
    for fencing in ALL {
        for command in ["cp -r . copy", "cp -r ./ copy", "grep -r TOKEN .", "grep -r TOKEN ..", "grep -r TOKEN /"] {
            let world = allowing(fencing);
            let attempt = world.attempt(command);
            if !world.fence().is_full() {
                attempt.asks();
                continue;
            }
            let ran = attempt.ran();
            assert!(!format!("{ran:?}").contains("hidden-value"), "{command}: {ran:?}");
            let is_looked_at = command.ends_with('.');
            assert!(!is_looked_at || ran.stdout.contains("plain/x.txt"), "{command}: {ran:?}");
            let copy = std::fs::read_to_string(world.path("inside/copy/.env")).unwrap_or_default();
            assert!(!copy.contains("hidden-value"), "{command}: {copy}");
            // Whoever agrees to something else has not agreed to what lies deeper.
            let named = world.approved(&format!("{command} a.txt .git/config")).ran();
            assert!(!format!("{named:?}").contains("hidden-value"), "{command}: {named:?}");
        }
    }
}

#[test]
fn a_repository_that_holds_a_password_is_not_met_unasked() {
    for fencing in ALL {
        let world = allowing(fencing);
        std::fs::remove_file(world.path("inside/.env")).unwrap();
        world.file("inside/sub/.git/config", "[remote \"o\"]\n\turl = https://me:hidden-value@example.org/x\n");
        world.attempt("grep -r hidden sub").asks();
    }
}

#[test]
fn what_names_neither_passes() {
    if !is_offered() {
        return;
    }
    let world = allowing(Fencing::WhereOffered);
    for command in [
        "wc -l a.txt",
        "date",
        "cat a.txt",
        "grep -r TOKEN plain",
        "cp a.txt plain/b.txt",
        "echo done.",
        "echo .rs -name plain/",
        "dd if=a.txt of=plain/c.txt",
        "mkdir fmt",
    ] {
        match world.attempt(command) {
            Attempt::Ran(ran) => assert_eq!(ran.exit_code, 0, "{command}: {ran:?}"),
            Attempt::Stopped(reason) => panic!("{command}: {reason}"),
        }
    }
    assert!(
        std::process::Command::new("git").args(["init", "-q"]).current_dir(world.inside()).status().unwrap().success()
    );
    assert_eq!(world.attempt("git branch").ran().exit_code, 0);
}

#[test]
fn options_ask_however_they_are_spelled() {
    if !is_offered() {
        return;
    }
    let careful = ShellRule { approval_required_if_args: vec!["-p".into()], ..rule("mkdir", Rule::Allow) };
    let push = ShellRule { approval_required_if_args: vec!["--force".into()], ..rule("echo push", Rule::Allow) };
    let known = ShellRule { allowed_args: Some(vec!["-v".into()]), ..rule("rmdir", Rule::Allow) };
    let world = World::new(Fencing::WhereOffered).with(vec![rules(vec![careful, push, known])]);
    for command in [
        "mkdir -pv made/deep",
        "mkdir -vp made/deep",
        "mkdir -m755 -vp made/deep",
        "echo push --forc",
        "echo push --force=yes",
        "rmdir --parents empty",
        "rmdir -f empty",
        "rmdir -vp empty",
    ] {
        world.attempt(command).asks();
    }
    for command in ["mkdir -v -m755 made", "echo push origin", "rmdir -v made"] {
        assert_eq!(world.attempt(command).ran().exit_code, 0, "{command}");
    }
}

#[test]
fn an_option_that_runs_a_program_asks() {
    if !is_offered() {
        return;
    }
    let plain = |pattern| ShellRule { i_understand: false, ..rule(pattern, Rule::Allow) };
    let allowed = ["sort", "install", "git diff", "true"].map(plain).to_vec();
    let world = World::new(Fencing::WhereOffered).with(vec![rules(allowed)]);
    for command in [
        "sort --compress-program=./evil -S1 a.txt",
        "sort --comp ./evil a.txt",
        "install --strip-program=./evil -s a.txt b",
        "git diff --ext-diff",
    ] {
        world.attempt(command).asks();
    }
    assert_eq!(world.attempt("sort a.txt").ran().stdout, "alpha\nbeta\n");
}

/// Answers each question alike, and changes the world before it does.
#[derive(Clone)]
struct Person {
    answer: Answer,
    asked: Arc<Mutex<Vec<ApprovalRequest>>>,
    meanwhile: Arc<dyn Fn(usize) + Send + Sync>,
}

impl Approver for Person {
    fn ask<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, Answer> {
        let mut asked = self.asked.lock().unwrap();
        asked.push(request.clone());
        (self.meanwhile)(asked.len());
        Box::pin(async { self.answer.clone() })
    }
}

impl Person {
    fn answering(answer: Answer, meanwhile: impl Fn(usize) + Send + Sync + 'static) -> Self {
        Self { answer, asked: Arc::default(), meanwhile: Arc::new(meanwhile) }
    }

    fn reasons(&self) -> Vec<String> {
        self.asked.lock().unwrap().iter().map(|request| request.question.reason.clone()).collect()
    }
}

fn relink(world: &World, path: &str, target: &str) {
    std::fs::remove_file(world.path(path)).unwrap();
    world.link(path, target);
}

/// With the built-in shell, and with a rule that allows.
fn reading(fencing: Fencing) -> [World; 2] {
    let configured = World::new(fencing).with(vec![rules(vec![rule("cat", Rule::Allow)])]);
    let worlds = [World::new(fencing).with(vec![part("shell_readonly", Grammar::ReadOnly)]), configured];
    for world in &worlds {
        world.file("inside/.env", "KEY=1\n");
        world.file("inside/.aws/credentials", "KEY=2\n");
        world.link("inside/notes", ".env");
    }
    worlds
}

#[test]
fn an_answer_for_the_session_is_for_what_a_name_led_to() {
    for fencing in ALL {
        for answer in [Answer::CallForSession, Answer::ToolForSession] {
            for world in reading(fencing) {
                let person = Person::answering(answer.clone(), |_| {});
                let session = world.session(Approvals::ask(person.clone()));
                assert_eq!(session.attempt("cat notes", 5).ran().stdout, "KEY=1\n");
                relink(&world, "inside/notes", ".aws/credentials");
                assert_eq!(session.attempt("cat notes", 5).ran().stdout, "KEY=2\n");
                let reasons = person.reasons();
                assert_eq!(reasons.len(), 2, "{reasons:?}");
                assert!(reasons[0].contains("notes → .env"), "{reasons:?}");
                assert!(reasons[1].contains("notes → .aws/credentials"), "{reasons:?}");
                let asked = person.asked.lock().unwrap();
                let preview = asked[0].question.preview.clone().unwrap();
                assert!(preview.contains("leads to  notes → .env"), "{preview}");
            }
        }
    }
}

#[test]
fn the_same_target_is_covered_and_another_file_of_the_same_name_is_not() {
    for fencing in ALL {
        let [world, _] = reading(fencing);
        let person = Person::answering(Answer::CallForSession, |_| {});
        let session = world.session(Approvals::ask(person.clone()));
        session.attempt("cat notes", 5).ran();
        session.attempt("cat notes", 5).ran();
        assert_eq!(person.reasons().len(), 1);
        world.file("inside/other", "KEY=3\n");
        std::fs::rename(world.path("inside/other"), world.path("inside/.env")).unwrap();
        session.attempt("cat notes", 5).ran();
        assert_eq!(person.reasons().len(), 2);
    }
}

#[test]
fn what_changes_between_answer_and_start_is_asked_again() {
    for fencing in ALL {
        for world in reading(fencing) {
            let path = world.path("inside/notes");
            let meanwhile = move |asked: usize| {
                if asked == 1 {
                    std::fs::remove_file(&path).unwrap();
                    std::os::unix::fs::symlink(".aws/credentials", &path).unwrap();
                }
            };
            let person = Person::answering(Answer::Once, meanwhile);
            let session = world.session(Approvals::ask(person.clone()));
            assert_eq!(session.attempt("cat notes", 5).ran().stdout, "KEY=2\n");
            let reasons = person.reasons();
            assert!(reasons.len() == 2 && reasons[1].contains("credentials"), "{reasons:?}");
        }
    }
}
