//! What the kernel keeps, tried from inside by a command that may run anything.

use std::io::Read as _;
use std::net::TcpListener;

use crate::world::{self, World, is_full, is_offered, part, rule, rules};
use llm_do::event::{EventKind, Listen};
use llm_do::model::name::ModelChoices;
use llm_do::project::Project;
use llm_do::runtime::{Models, Runtime, RuntimeConfig};
use llm_do::tools::approval::Approvals;
use llm_do::tools::approval::Rule;
use llm_do::tools::fence::{self, Fencing};
use llm_do::tools::source::Grammar;

fn with_bash(fencing: Fencing) -> World {
    World::new(fencing).with(vec![rules(vec![rule("bash", Rule::Allow)])])
}

#[test]
fn a_fenced_command_reads_and_writes_only_where_it_may() {
    if !is_offered() {
        return;
    }
    for fencing in [Fencing::WhereOffered, Fencing::Thin] {
        a_command_reads_and_writes_only_where_it_may(&with_bash(fencing));
    }
}

fn a_command_reads_and_writes_only_where_it_may(world: &World) {
    let outside = world.outside().canonicalize().unwrap();
    let before = world.state();
    let mut scripts = vec![
        format!("cat {}/secret.txt", outside.display()),
        format!("ls {}", outside.display()),
        format!("echo x > {}/new", outside.display()),
        format!("echo x >> {}/secret.txt", outside.display()),
        format!("rm {}/secret.txt", outside.display()),
        format!("mv {}/secret.txt .", outside.display()),
        format!("ln {}/secret.txt here", outside.display()),
        format!("{}/evil", outside.display()),
        format!("mkdir {}/d", outside.display()),
        "cat /proc/1/environ".to_owned(),
        "cat /proc/1/mem".to_owned(),
        "ls -l /proc/1/fd/1".to_owned(),
        "echo x > /proc/sys/kernel/hostname".to_owned(),
        "echo x > /proc/self/comm".to_owned(),
        "cat /etc/shadow".to_owned(),
        "ls /root".to_owned(),
        "ls /home".to_owned(),
        "echo x > /dev/tty".to_owned(),
        "echo x > /new".to_owned(),
        "echo x > /usr/new".to_owned(),
    ];
    if !is_full(world.fencing) {
        // Behind the full fence these are its own.
        scripts.extend(["cat /proc/self/environ", "ls /tmp"].map(str::to_owned));
    }
    for script in scripts {
        let ran = world.attempt(&format!("bash -c '{script}'")).ran();
        assert_ne!(ran.exit_code, 0, "{script}: {ran:?}");
        assert!(!ran.stdout.contains("secret"), "{script}: {ran:?}");
    }
    assert_eq!(world.state(), before);
    let ran = world
        .attempt("bash -c 'echo x > new && cat new && echo y > $TMPDIR/t && cat $TMPDIR/t && mkdir d && mv new d'")
        .ran();
    assert_eq!((ran.stdout.as_str(), ran.exit_code), ("x\ny\n", 0), "{ran:?}");
}

#[test]
fn other_directories_may_be_written_where_the_toolset_says_so() {
    if !is_offered() {
        return;
    }
    let mut shell = rules(vec![rule("bash", Rule::Allow)]);
    let world = World::new(Fencing::WhereOffered);
    shell.config.write = vec![world.outside().display().to_string()];
    let world = world.with(vec![shell]);
    let script = format!("bash -c 'echo x > {}/new'", world.outside().display());
    assert_eq!(world.attempt(&script).ran().exit_code, 0);
}

#[test]
fn a_reading_command_behind_the_fence_changes_nothing_even_if_it_wanted_to() {
    if !is_offered() {
        return;
    }
    // `sort` and `find` with the flags that the grammar does not have, as if it had a hole: a grammar's fence around a
    // command that a person approved is the same.
    let bounds = fence::Bounds {
        read: vec!["/tmp".into()],
        run: Vec::new(),
        write: fence::Write::Nothing,
        network: fence::Network::None,
        shelter: fence::Shelter::default(),
    };
    let world = World::new(Fencing::WhereOffered);
    let before = world.state();
    for command in [
        "sort -o out a.txt",
        "find . -delete",
        "find . -exec ./evil {} +",
        "chmod 000 a.txt",
        "touch a.txt",
        "truncate -s 0 a.txt",
        "ln -s a.txt l",
        "mkdir d",
        "cp a.txt c.txt",
        "mv a.txt c.txt",
        "rm a.txt",
        "mknod p p",
    ] {
        let words: Vec<&str> = command.split(' ').collect();
        let (directory, bounds) = (world.inside(), bounds.clone());
        let run = std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    let group = rustix::process::getpid();
                    let around = fence::thin::Around::Thread { group };
                    fence::thin::ThreadRestriction::new(&bounds, around).unwrap().restrict_thread().unwrap();
                    std::process::Command::new(words[0]).args(&words[1..]).current_dir(&directory).output()
                })
                .join()
                .unwrap()
        });
        if let Ok(output) = run {
            assert!(!output.status.success() || command.starts_with("find"), "{command}: {output:?}");
        }
        assert_eq!(world.state(), before, "{command}");
    }
}

#[test]
fn sockets_are_opened_only_where_the_toolset_says_so() {
    if !is_offered() {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let script = format!("bash -c 'echo hello > /dev/tcp/127.0.0.1/{port}'");
    let datagram = format!("bash -c 'echo hello > /dev/udp/127.0.0.1/{port}'");
    let world = with_bash(Fencing::WhereOffered);
    assert_ne!(world.attempt(&script).ran().exit_code, 0);
    assert_ne!(world.attempt(&datagram).ran().exit_code, 0);
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "nobody came");
    listener.set_nonblocking(false).unwrap();
    let grammar = Grammar::Rules { rules: vec![rule("bash", Rule::Allow)], default: None };
    let mut open = part("open", grammar);
    open.config.network = true;
    let world = World::new(Fencing::WhereOffered).with(vec![open]);
    assert_eq!(world.attempt(&script).ran().exit_code, 0);
    let mut text = String::new();
    listener.accept().unwrap().0.read_to_string(&mut text).unwrap();
    assert_eq!(text, "hello\n");
}

#[test]
fn a_fenced_command_cannot_signal_those_outside() {
    if !is_offered() {
        return;
    }
    let mut sleeper = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    let world = with_bash(Fencing::WhereOffered);
    let ran = world.attempt(&format!("bash -c 'kill -9 {}'", sleeper.id())).ran();
    let survived = sleeper.try_wait().unwrap().is_none();
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    assert!(survived && ran.exit_code != 0, "{ran:?}");
}

#[test]
fn without_a_fence_configured_shells_ask_and_grammars_do_not() {
    let shells = vec![part("shell_readonly", Grammar::ReadOnly), rules(vec![rule("bash", Rule::Allow)])];
    let world = World::new(Fencing::Off).with(shells);
    assert_eq!(world.attempt("cat a.txt").ran().exit_code, 0);
    world.attempt("bash -c true").asks();
    assert_eq!(world.approved("bash -c true").ran().exit_code, 0);
}

#[test]
fn this_program_itself_stays_free() {
    let world = with_bash(Fencing::WhereOffered);
    world.approved("bash -c true").ran();
    std::fs::write(world.path("outside/free"), "x").unwrap();
    drop(TcpListener::bind("127.0.0.1:0").unwrap());
}

#[test]
fn a_link_that_changes_between_judging_and_running_leads_nowhere() {
    if !is_offered() {
        return;
    }
    let world = World::new(Fencing::WhereOffered);
    let (flip, other) = (world.path("inside/flip"), world.path("inside/other"));
    let targets = [world.path("inside/a.txt"), world.path("outside/secret.txt")];
    let targets = [targets[0].strip_prefix(world.inside()).unwrap().to_owned(), targets[1].clone()];
    std::os::unix::fs::symlink(&targets[0], &flip).unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut turn = 0;
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                turn += 1;
                std::os::unix::fs::symlink(&targets[turn % 2], &other).unwrap();
                std::fs::rename(&other, &flip).unwrap();
            }
        });
        let orders = vec![("cat flip".to_owned(), 5); 200];
        for attempt in world.session(llm_do::tools::approval::Approvals::unattended()).attempts(&orders) {
            if let crate::world::Attempt::Ran(ran) = attempt {
                assert!(!ran.stdout.contains("secret"), "{ran:?}");
            }
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn the_lack_of_a_fence_is_said_once_in_a_session() {
    let models = ModelChoices::scripted("- {round: 1, call: {shell: {command: ls}}}\n- say: done\n");
    for (fencing, expected) in [(Fencing::Off, 1), (Fencing::WhereOffered, usize::from(!is_offered()))] {
        let project = Project::new(".").agent("main.worker", "---\nname: main\ntoolsets: [shell_readonly]\n---\nGo.");
        let program = project.link(&models).unwrap_or_else(|report| panic!("{report:?}"));
        let config = RuntimeConfig { fence: world::fence(fencing), ..RuntimeConfig::new(Approvals::unattended()) };
        let (runtime, mut listener) = Runtime::with_listener(program, Models::default(), config, Listen::Facts);
        let executor = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        executor.block_on(async {
            runtime.run("one").await.unwrap();
            runtime.run("two").await.unwrap();
        });
        let mut notices = Vec::new();
        while let Ok(event) = listener.try_recv() {
            if let EventKind::Notice { text } = event.kind {
                notices.push(text);
            }
        }
        assert_eq!(notices.len(), expected, "{notices:?}");
    }
}
