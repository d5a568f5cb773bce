//! Programs that run other programs or any code: a rule that allows one of them allows everything, whatever it says.
//! They are told by their names and by the files that these lead to.

use std::path::Path;

use crate::escape::visible;

/// Why a rule must not allow this on its own, if so: allowing the program is allowing any program.
pub(crate) fn by_name(pattern: &[String]) -> Option<String> {
    called(pattern, file_name(pattern.first()?))
}

/// The same, by the file that the name of the program leads to.
pub(crate) fn by_file(pattern: &[String], file: &Path) -> Option<String> {
    let name = file.file_name()?.to_str()?;
    // Such a program does what the name says by which it is called, and is judged by that name.
    if has_any(CALLED_BY_NAME, &stems(name)) {
        return None;
    }
    let reason = called(pattern, name)?;
    Some(format!("`{}` is `{}`: {reason}", visible(pattern.first()?), visible(&file.display().to_string())))
}

fn has(names: &str, name: &str) -> bool {
    names.split_whitespace().any(|known| known == name)
}

fn has_any(names: &str, stems: &[&str]) -> bool {
    names.split_whitespace().any(|known| stems.contains(&known))
}

fn file_name(program: &str) -> &str {
    Path::new(program).file_name().and_then(|name| name.to_str()).unwrap_or(program)
}

fn called(pattern: &[String], name: &str) -> Option<String> {
    let stems = stems(name);
    if let Some(class) = CLASSES.iter().find(|class| has_any(class.programs, &stems)) {
        return Some(format!("`{name}` {}", class.does));
    }
    if is_loader(name) {
        return Some(format!("`{name}` runs any other program"));
    }
    let builder = BUILDERS.iter().find(|builder| stems.contains(&builder.program))?;
    let Some(first) = pattern.get(1) else {
        return Some(format!("`{name}` alone runs any code: name a subcommand"));
    };
    if first.starts_with(['-', '+']) {
        return Some(format!("`{name} {}` leaves the subcommand open", visible(first)));
    }
    if has(builder.dangerous, first) {
        return Some(format!("`{name} {first}` runs any code"));
    }
    let is_own = builder.known.is_empty() || has(builder.known, first);
    (!is_own).then(|| format!("`{name} {}` is none of its own subcommands, and may be anything", visible(first)))
}

/// Options of an otherwise harmless program that make it run another one.
pub(crate) fn executing_options(program: &str) -> impl Iterator<Item = &'static str> {
    let found = EXECUTING_OPTIONS.iter().find(|(name, _)| *name == file_name(program));
    found.map_or("", |(_, options)| options).split_whitespace()
}

/// What a name is without versions, architectures and flavours: `perl5.36-x86_64-linux-gnu` is `perl`, `vim.basic` is
/// `vim`, `x86_64-linux-gnu-gcc-12` is `gcc`. The name itself is the first.
fn stems(name: &str) -> Vec<&str> {
    let mut stems = vec![name];
    let base = without_target(name);
    stems.push(base);
    stems.push(base.split('.').next().unwrap_or(base));
    stems.push(base.trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-')));
    // `python3-dbg`, `perl5.36-x86_64-linux-gnu`, `gcc-12.2-static`: what follows a version belongs to it.
    if let Some(at) = base.find(|c: char| c.is_ascii_digit()).filter(|at| *at > 0) {
        stems.push(base[..at].trim_end_matches('-'));
    }
    for flavour in FLAVOURS {
        stems.extend(base.strip_suffix(flavour));
    }
    stems
}

/// `x86_64-linux-gnu-gcc` is a `gcc`.
fn without_target(name: &str) -> &str {
    let is_target = ARCHITECTURES.iter().any(|architecture| name.starts_with(architecture));
    let end = TARGETS.iter().filter_map(|target| Some(name.rfind(target)? + target.len())).max();
    end.filter(|_| is_target).map_or(name, |end| &name[end..])
}

/// The program that starts programs: `ld-linux-x86-64.so.2`, `ld-musl-aarch64.so.1`, `ld-2.31.so`, `ld.so`.
fn is_loader(name: &str) -> bool {
    name.starts_with("ld") && (name.contains(".so") || name.contains("-linux") || name.contains("-musl"))
}

const ARCHITECTURES: &[&str] =
    &["x86_64-", "i386-", "i586-", "i686-", "aarch64-", "arm", "riscv64-", "powerpc", "s390"];
const TARGETS: &[&str] = &["-gnu-", "-gnueabihf-", "-gnueabi-", "-musl-", "-elf-", "-eabi-", "-mingw32-"];
const FLAVOURS: &[&str] = &["-static", "-dbg", "-debug", "-nox"];

/// One file with many names, each of them a program of its own.
const CALLED_BY_NAME: &str = "busybox toybox coreutils rustup snap";

/// Programs that are dangerous for one reason.
struct DangerClass {
    /// Completes "`program` …".
    does: &'static str,
    /// Their names, apart by blanks.
    programs: &'static str,
}

/// A program with subcommands.
struct SubcommandProgram {
    program: &'static str,
    /// Subcommands that run what a project brings along.
    dangerous: &'static str,
    /// All that it has of its own; empty: others are harmless. What is not among them may be an alias or a plugin.
    known: &'static str,
}

const EXECUTING_OPTIONS: &[(&str, &str)] = &[
    ("curl", "--config -K --engine"),
    ("git", "--exec --exec-path --ext-diff --open-files-in-pager --receive-pack --textconv --upload-pack"),
    ("install", "--strip-program"),
    ("pandoc", "--filter -F --lua-filter -L --pdf-engine"),
    ("sort", "--compress-program"),
    ("ssh-keygen", "-D"),
    ("wget", "--use-askpass"),
];

const CLASSES: &[DangerClass] = &[
    DangerClass { does: "runs any other program", programs: WRAPPERS },
    DangerClass { does: "runs any code", programs: INTERPRETERS },
    DangerClass { does: "starts any program from within", programs: EDITORS_AND_PAGERS },
    DangerClass { does: "runs what a build or an option names", programs: BUILD_TOOLS },
    DangerClass { does: "runs what an option or its input names", programs: HOOKED },
];

/// They run their arguments, here or elsewhere.
const WRAPPERS: &str = "
    abduco agetty ansible at batch busybox busctl bwrap byobu capsh catchsegv ccache cgexec chpst choom chroot
    chrt command cpulimit crontab daemon daemonize dbus-launch dbus-run-session dbus-send dbus-daemon direnv
    distcc distrobox doas docker dpkg-architecture dtach dumb-init entr env eval exec fakechroot faketime
    fakeroot firejail flatpak flock gdbus genie getty git-shell gosu guix hyperfine i386 i586 i686 icecc ionice
    ip kubectl launchctl ldd linux32 linux64 login logsave ltrace machinectl mono multitime newgrp nice nohup
    nsenter numactl opam open parallel perf pexec pidstat pkexec podman ppc ppc32 ppc64 prlimit proot
    qemu-aarch64 qemu-arm qemu-i386 qemu-x86_64 rlwrap rsh run-mailcap run-parts run0 runcon runuser s390 s390x
    sccache schroot scp screen script scriptreplay sem service setarch setpriv setsid setuidgid sftp sg snap
    socat softlimit sops sparc sparc32 sparc64 ssh ssh-agent sshpass start-stop-daemon stdbuf strace su su-exec
    sudo sudoedit systemctl systemd-cat systemd-inhibit systemd-nspawn systemd-run systemd-socket-activate
    taskset tini time timeout tmate tmux toolbox torify torsocks toybox trace-cmd uclampset uname26 unbuffer
    unshare valgrind virsh watch watchexec wine wine64 x86_64 xargs xdg-open xterm xvfb-run
";

const INTERPRETERS: &str = "
    clisp es gs maxima powershell racket Rscript R ash awk bash bpftrace bun bunx byebug cowsay cowthink cpan
    crash csh csi dash dc debugfs deno dotnet elixir elvish erl escript expect fish gawk gdb gdbserver ghc ghci
    ginsh gnuplot groovy guile iex ipython irb java jjs jrunscript jshell julia jupyter ksh kotlin lldb lua
    luajit luatex lualatex latex pdflatex pdftex sbcl scsh tex xelatex xetex latexmk m4 mawk mksh mysql mariadb
    nawk nim node nodejs npx nu ocaml octave original-awk osascript pdb perl perlbug perldoc php pip pipx pnpx
    posh pry psql pwsh pydoc pypy pytest python rbash rc rksh ruby runghc runhaskell rustup rzsh sash scala sed
    sh slsh sqlite swift swipl tclsh tcsh ts-node tsx uvx wish xonsh yash zsh
";

/// `!command`, `:!command`, `--cmd`, and whatever their files say.
const EDITORS_AND_PAGERS: &str = "
    aptitude bat dmesg ed editor emacs emacsclient ex ftp gview gvim hx ispell joe jed journalctl kak less
    lessfile lesspipe lftp loginctl lynx mail mailx man mc micro more most mutt nano ncdu ncftp nmap nvim pager
    pg pico red rnano rview rvim select-editor sensible-editor sensible-pager smbclient telnet timedatectl top
    vi view vigr vim vimdiff vimtutor vipw w3m zathura
";

/// Compilers take plugins and wrappers, linkers too; the rest follows files of the project.
const BUILD_TOOLS: &str = "
    ant ar autoconf automake autoreconf bazel bison c++ c89 c99 cabal cc clang clang++ clang-cpp cmake collect2
    cpack cpp ctest earthly g++ gcc gcc-ar gcc-nm gcc-ranlib gccgo gem gfortran gmake gnat gold gradle gradlew
    hatch helm invoke javac just kotlinc ld ld.bfd ld.gold ld.lld lein libtool lld lto-dump make meson mold mvn
    ninja nix nix-build nix-shell nm nox objcopy pdm pre-commit qmake rake ranlib rustc rustdoc sbt scalac scons
    stack strip task terraform tox tsc vagrant waf yacc zig
";

/// Archivers, copiers and packagers with hooks, filters and helpers.
const HOOKED: &str = "
    7z 7za 7zr apk apt apt-get aria2c brew bsdtar bzr cpio cvs dnf dpkg dpkg-deb dpkg-source exiftool find
    fossil fzf git-lfs gpg groff gtar hg insmod logrotate modprobe mount msgfilter nc ncat netcat openssl
    openvpn pacman pax rclone restic rg rpm rpmbuild rsync split star svn tar tcpdump troff tshark udevadm yum
    zip zypper
";

const BUILDERS: &[SubcommandProgram] = &[
    SubcommandProgram { program: "git", dangerous: GIT_DANGEROUS, known: GIT_KNOWN },
    SubcommandProgram {
        program: "cargo",
        dangerous: "b bench build c check clippy d doc fix install miri nextest package publish r run rustc \
            rustdoc t test",
        known: "add audit clean deny fetch fmt generate-lockfile help info init locate-project login \
            logout metadata new outdated owner pkgid remove report rm search tree uninstall update \
            vendor verify-project version yank",
    },
    SubcommandProgram { program: "go", dangerous: "build generate install run test tool vet", known: "" },
    SubcommandProgram {
        program: "npm",
        dangerous: "add ci create exec explore i init innit install it link pack publish rebuild restart run \
            run-script start stop t test update version x",
        known: "",
    },
    SubcommandProgram {
        program: "pnpm",
        dangerous: "add create dlx exec i install rebuild run start t test update",
        known: "audit licenses list ls outdated root store why",
    },
    SubcommandProgram {
        program: "yarn",
        dangerous: "add create dlx exec install node run start test up upgrade",
        known: "audit cache help info licenses list npm outdated version why",
    },
    SubcommandProgram { program: "bundle", dangerous: "exec install open update", known: "" },
    SubcommandProgram { program: "bundler", dangerous: "exec install open update", known: "" },
    SubcommandProgram { program: "poetry", dangerous: "add build install run shell update", known: "" },
    SubcommandProgram { program: "uv", dangerous: "add build pip run sync tool", known: "" },
    SubcommandProgram { program: "conda", dangerous: "build create install run update", known: "" },
    SubcommandProgram { program: "composer", dangerous: "exec install require run run-script update", known: "" },
    SubcommandProgram {
        program: "gh",
        dangerous: "alias api codespace cs extension run",
        known: "auth browse cache gist issue label org pr project release repo ruleset search secret \
            status variable workflow",
    },
];

const GIT_DANGEROUS: &str = "
    bisect config daemon difftool filter-branch for-each-repo grep gui help hook instaweb maintenance mergetool
    rebase receive-pack remote-ext remote-fd send-email shell submodule upload-archive upload-pack web--browse
";

const GIT_KNOWN: &str = "
    add am annotate apply archive blame branch bundle cat-file check-attr check-ignore check-mailmap
    check-ref-format checkout checkout-index cherry cherry-pick clean clone commit commit-graph commit-tree
    count-objects describe diff diff-files diff-index diff-tree fast-export fetch fetch-pack fmt-merge-msg
    for-each-ref format-patch fsck gc hash-object index-pack init interpret-trailers log ls-files ls-remote
    ls-tree merge merge-base merge-file merge-tree mktag mktree mv name-rev notes pack-objects pack-refs
    patch-id prune pull push range-diff read-tree reflog remote repack replace request-pull rerere reset restore
    rev-list rev-parse revert rm shortlog show show-branch show-index show-ref sparse-checkout stage stash
    status stripspace switch symbolic-ref tag update-index update-ref var verify-commit verify-pack verify-tag
    version whatchanged worktree write-tree
";

#[cfg(test)]
mod tests {
    use super::*;

    fn danger_of(pattern: &str) -> Option<String> {
        by_name(&pattern.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn what_runs_anything_is_dangerous_to_allow() {
        for pattern in
            "env, xargs, python, python3, python3.12, /usr/bin/python3, make, git, cargo, cargo test, go test, \
             npm run, npm run build, docker, sudo ls, bash -c, awk, sed, find, rg, tar, timeout 5, busybox sh, \
             git -c, perl, node, gawk, sh, ssh host, pip3, npx, lua5.4, /lib64/ld-linux-x86-64.so.2, \
             ld-musl-aarch64.so.1, ld-2.31.so, ld.so, perl5.36-x86_64-linux-gnu, setarch -R, x86_64 sh, i386, \
             linux32, prlimit, choom -n, rbash, pdb3, pdb3.11, vim.basic, vim.tiny, split, gcc, gcc-12, \
             x86_64-linux-gnu-gcc-12, c++, clang++-15, git x, sqlite3, dc, ssh-agent, dbus-run-session, sg, \
             run-parts, dpkg-architecture, busybox.static, git-shell, cargo evil, python3-dbg, ksh93, \
             arm-linux-gnueabihf-ld.bfd, tclsh8.6, php8.2, nano, less, cc, ar, bsdtar, rsync, uclampset, \
             flock, gh alias, git bisect, m4, top, nc.traditional, mysql, socat, tmux, screen, ldd, snap run, hg, \
             qemu-x86_64-static, wine64, sbcl, gs, mount, direnv exec"
                .split(", ")
        {
            assert!(danger_of(pattern).is_some(), "{pattern}");
        }
    }

    #[test]
    fn what_does_one_thing_is_not() {
        for pattern in "ls, cat, git push, git commit, git branch, git status, cargo fmt, cargo tree, jq, date, wc -l, \
             npm ls, mkdir, go doc, cp, mv, touch, install, sort, grep, head, tail, diff, sha256sum, sum, \
             ld-report, make-report, no-such-program, ruff check, prettier, x86-info, true, printf, tee, stat, \
             gofmt, rustfmt, md5sum, base64, tree, file, ping, ln, rm"
            .split(", ")
        {
            assert_eq!(danger_of(pattern), None, "{pattern}");
        }
    }

    #[test]
    fn a_program_is_judged_by_the_file_that_its_name_leads_to() {
        let by_file = |name: &str, file: &str| by_file(&[name.to_owned()], Path::new(file));
        for (name, file) in [
            ("editor", "/bin/nano"),
            ("harmless", "/usr/bin/vim.basic"),
            ("tidy", "/usr/bin/perl5.36-x86_64-linux-gnu"),
            ("tool", "/opt/x/python3.12"),
        ] {
            let said = by_file(name, file).unwrap();
            assert!(said.starts_with(&format!("`{name}` is `{file}`: ")), "{said}");
        }
        assert_eq!(by_file("calm", "/usr/bin/wc"), None);
        assert_eq!(by_file("ls", "/bin/busybox.static"), None, "one of many names is what it is called");
    }
}
