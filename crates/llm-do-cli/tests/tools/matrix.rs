//! The same attempt as whoever runs the tests and as somebody else, behind each fence and behind none: a row of a table is
//! enough to try something everywhere.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, lchown, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use seccompiler::{SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Ended, wait};

/// What the kernel lets the program have, and whoever it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    AsItIs,
    /// As in many containers: no namespaces for users.
    WithoutNamespaces,
    /// As an old one.
    WithoutLandlock,
}

pub const KERNELS: [Kernel; 3] = [Kernel::AsItIs, Kernel::WithoutNamespaces, Kernel::WithoutLandlock];
const LANDLOCK: std::ops::RangeInclusive<i64> = 444..=446;

/// Does something on such a kernel: the filter belongs to the thread, and to all that it starts.
pub fn on<T: Send>(kernel: Kernel, deed: impl FnOnce() -> T + Send) -> T {
    let refused = match kernel {
        Kernel::AsItIs => return deed(),
        Kernel::WithoutNamespaces => Vec::new(),
        Kernel::WithoutLandlock => LANDLOCK.collect(),
    };
    let restricted = move || {
        let new_user = u64::from(libc::CLONE_NEWUSER.unsigned_abs());
        let condition =
            SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(new_user), new_user).unwrap();
        let mut rules: BTreeMap<i64, Vec<SeccompRule>> = refused.into_iter().map(|call| (call, Vec::new())).collect();
        rules.insert(libc::SYS_unshare, vec![SeccompRule::new(vec![condition]).unwrap()]);
        let refuse = SeccompAction::Errno(libc::EPERM.unsigned_abs());
        let architecture = std::env::consts::ARCH.try_into().unwrap();
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, architecture).unwrap();
        let program: seccompiler::BpfProgram = filter.try_into().unwrap();
        seccompiler::apply_filter(&program).unwrap();
        deed()
    };
    std::thread::scope(|scope| scope.spawn(restricted).join().unwrap())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    Ours,
    Another,
}

/// What keeps a command in, as far as the user is content with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wall {
    Full,
    /// The thin fence, and the user said that it is enough.
    Thin,
    /// The thin fence, and nobody said so: what a rule allows asks.
    ThinUnaccepted,
    /// What a rule allows asks.
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    pub user: User,
    pub wall: Wall,
}

impl Setting {
    /// All of them that this kernel can show.
    pub fn all() -> Vec<Self> {
        let offered = Place::new(&[], &json!({})).fence(Kernel::AsItIs);
        let is_offered = |wall: &Wall| match wall {
            Wall::Full => offered.starts_with("full"),
            Wall::Thin | Wall::ThinUnaccepted => !offered.starts_with("none"),
            Wall::None => true,
        };
        let walls = [Wall::Full, Wall::Thin, Wall::ThinUnaccepted, Wall::None].into_iter().filter(is_offered);
        walls.flat_map(|wall| [User::Ours, User::Another].map(|user| Self { user, wall })).collect()
    }

    /// Whether a rule that allows is enough.
    pub fn allows(self) -> bool {
        matches!(self.wall, Wall::Full | Wall::Thin)
    }

    pub fn kernel(self) -> Kernel {
        match self.wall {
            Wall::Full => Kernel::AsItIs,
            Wall::Thin | Wall::ThinUnaccepted => Kernel::WithoutNamespaces,
            Wall::None => Kernel::WithoutLandlock,
        }
    }
}

/// What became of a command.
#[derive(Debug)]
pub enum Outcome {
    Ran {
        stdout: String,
        #[allow(dead_code, reason = "it is shown when a test fails")]
        stderr: String,
        code: i64,
    },
    /// Refused, or it must ask and nobody is there.
    Stopped(String),
}

impl Outcome {
    #[track_caller]
    pub fn asks(&self) {
        assert!(matches!(self, Self::Stopped(reason) if reason.contains("needs an approval")), "{self:?}");
    }

    /// What it said, and that it succeeded.
    #[track_caller]
    pub fn said(&self) -> &str {
        match self {
            Self::Ran { stdout, code: 0, .. } => stdout,
            other => panic!("{other:?}"),
        }
    }
}

/// A project in `inside`, which is the working directory, beside which lie `outside` and a home.
pub struct Place(TempDir);

impl Place {
    /// With a shell of these rules and settings for its only agent.
    pub fn new(rules: &[&str], shell: &Value) -> Self {
        let place = Self(TempDir::new().unwrap());
        fs::set_permissions(place.0.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for directory in ["inside", "outside", "home"] {
            fs::create_dir(place.path(directory)).unwrap();
        }
        let allow = |pattern: &&str| json!({"pattern": pattern, "approval": "allow", "i_understand": true});
        let mut mine = json!({"rules": rules.iter().map(allow).collect::<Vec<_>>()});
        mine.as_object_mut().unwrap().extend(shell.as_object().unwrap().clone());
        let manifest = json!({"version": 1, "entry": {"agent": "main"}, "worker_files": ["main.worker"],
            "toolsets": {"mine": {"shell": mine}}, "runtime": {"return_permission_errors": true}});
        place.file("inside/project.json", &manifest.to_string());
        place.file("inside/main.worker", "---\nname: main\ntoolsets: [mine]\n---\nYou are main.\n");
        place.file("inside/notes.md", "one\n").file("outside/secret.txt", "the outside secret\n");
        place
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.0.path().canonicalize().unwrap().join(path)
    }

    pub fn file(&self, path: &str, text: &str) -> &Self {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    pub fn link(&self, path: &str, target: impl AsRef<Path>) -> &Self {
        symlink(target, self.path(path)).unwrap();
        self
    }

    pub fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.path(path)).ok()
    }

    /// Which fence `check` finds.
    pub fn fence(&self, kernel: Kernel) -> String {
        self.file("script.yaml", "- say: x\n");
        let script = self.script();
        let mut command = self.program(User::Ours, &["check", ".", "-m", &script]);
        let ended = on(kernel, || wait(&mut command));
        let line = ended.stdout.lines().find_map(|line| line.strip_prefix("fence")).unwrap_or_default();
        line.trim().to_owned()
    }

    fn script(&self) -> String {
        format!("scripted:{}", self.path("script.yaml").display())
    }

    /// The program as a user, in the working directory; everything here is that user's.
    pub fn program(&self, user: User, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.executable());
        command.args(arguments).env_clear().env("LLM_DO_TRUST", "1").env("HOME", self.path("home"));
        command.current_dir(self.path("inside"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Only root can become somebody else; anybody else is one already.
        if user == User::Another && fs::metadata("/proc/self").unwrap().uid() == 0 {
            const NOBODY: u32 = 65_534;
            command.uid(NOBODY).gid(NOBODY);
            give(self.0.path(), NOBODY);
        }
        command
    }

    /// Ours, or a copy if it lies where others cannot go.
    fn executable(&self) -> PathBuf {
        let ours = Path::new(env!("CARGO_BIN_EXE_llm-do"));
        let is_open = |path: &Path| path.metadata().is_ok_and(|metadata| metadata.mode() & 0o001 != 0);
        if ours.ancestors().all(is_open) {
            return ours.to_owned();
        }
        let copy = self.path("llm-do");
        // Copied by another process: one that writes a program and starts others meanwhile may find it busy.
        assert!(Command::new("cp").arg("-n").arg(ours).arg(&copy).status().unwrap().success());
        copy
    }

    /// The program, with a model that runs these commands one after the other.
    pub fn running(&self, setting: Setting, commands: &[&str], flags: &[&str]) -> Command {
        let mut rounds: Vec<Value> = (1..)
            .zip(commands)
            .map(|(round, command)| json!({"round": round, "call": [{"shell": {"command": command}}]}))
            .collect();
        rounds.push(json!({"say": "done"}));
        self.file("script.yaml", &json!(rounds).to_string());
        let script = self.script();
        let arguments = [&["run", ".", "hi", "-m", &script, "--json"], flags].concat();
        let mut command = self.program(setting.user, &arguments);
        if setting.wall == Wall::Thin {
            command.env("LLM_DO_FENCE", "thin");
        }
        command
    }

    /// Nothing is kept of it, so that what asks is refused and the next command is tried: a run that is kept would wait.
    pub fn ended(&self, setting: Setting, commands: &[&str], flags: &[&str]) -> Ended {
        let mut command = self.running(setting, commands, &[&["--ephemeral"], flags].concat());
        on(setting.kernel(), || wait(&mut command))
    }

    /// What became of each command.
    pub fn attempts(&self, setting: Setting, commands: &[&str]) -> Vec<Outcome> {
        self.attempts_with(setting, commands, &[])
    }

    pub fn attempts_with(&self, setting: Setting, commands: &[&str], flags: &[&str]) -> Vec<Outcome> {
        let ended = self.ended(setting, commands, flags);
        let outcomes = outcomes(&ended);
        assert_eq!(outcomes.len(), commands.len(), "{setting:?} {ended:?}");
        outcomes
    }

    /// Scripts for `sh`, so that no word of a command names what they touch.
    pub fn scripts(&self, setting: Setting, scripts: &[&str]) -> Vec<Outcome> {
        let scripts = scripts.iter().enumerate().map(|(at, script)| {
            self.file(&format!("inside/step{at}.sh"), script);
            format!("sh step{at}.sh")
        });
        let commands: Vec<String> = scripts.collect();
        self.attempts(setting, &commands.iter().map(String::as_str).collect::<Vec<_>>())
    }
}

fn outcomes(ended: &Ended) -> Vec<Outcome> {
    let result: Value = serde_json::from_str(ended.stdout.lines().last().unwrap_or_default()).unwrap_or_default();
    let messages = result["messages"].as_array().cloned().unwrap_or_default();
    let parts = messages.iter().flat_map(|message| message["parts"].as_array().cloned().unwrap_or_default());
    parts.filter(|part| part["type"] == "tool_result").map(|part| outcome(&part)).collect()
}

fn outcome(part: &Value) -> Outcome {
    let text = part["content"][0]["text"].as_str();
    match text.and_then(|text| serde_json::from_str::<Value>(text).ok()) {
        Some(said) => Outcome::Ran {
            stdout: said["stdout"].as_str().unwrap().to_owned(),
            stderr: said["stderr"].as_str().unwrap().to_owned(),
            code: said["exit_code"].as_i64().unwrap(),
        },
        None => Outcome::Stopped(part["error"].as_str().map_or_else(|| part.to_string(), str::to_owned)),
    }
}

/// Makes somebody the owner of everything beneath a directory.
fn give(path: &Path, user: u32) {
    lchown(path, Some(user), Some(user)).unwrap();
    if path.symlink_metadata().unwrap().is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            give(&entry.unwrap().path(), user);
        }
    }
}
