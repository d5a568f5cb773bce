//! Landlock for files, TCP and signals; seccomp for what Landlock does not know: sockets of every kind, process groups,
//! modes and owners of files, the memory of others.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, LandlockStatus, PathBeneath, PathFd,
    Ruleset, RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope,
};
use rustix::process::Pid;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, set_capabilities};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    sock_filter,
};

use super::{Bounds, Network, Shelter, Write};

/// The newest rules that are asked for; older kernels give what they have.
const NEWEST: ABI = ABI::V6;

/// Programs and libraries of the system, and little else.
pub(crate) const SYSTEM: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
    "/run/current-system",
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/group",
];
/// Devices that any program may read.
pub(crate) const DEVICES: &[&str] = &["/dev/zero", "/dev/urandom", "/dev/random"];
/// What names of hosts and certificates are found with.
pub(crate) const NETWORK_FILES: &[&str] = &[
    "/etc/hosts",
    "/etc/resolv.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/ssl",
    "/etc/pki",
    "/etc/ca-certificates",
];

/// Around what a restriction is put.
#[derive(Clone, Copy, Debug)]
pub enum Around {
    /// A thread among the user's other processes: what it starts stays in one process group.
    Thread { group: Pid },
    /// A thread of a keeper, which has processes, IPC and files of its own.
    Keeper,
}

/// Landlock and seccomp, ready to be put on the thread that calls [`ThreadRestriction::restrict_thread`].
pub struct ThreadRestriction {
    ruleset: RulesetCreated,
    filters: [BpfProgram; 2],
    around: Around,
}

impl ThreadRestriction {
    /// Prepares what keeps a thread within these bounds; an error says what the kernel does not offer.
    pub fn new(bounds: &Bounds, around: Around) -> Result<Self, String> {
        let ruleset = ruleset(bounds, around).map_err(|error| format!("Landlock: {error}"))?;
        Ok(Self { ruleset, filters: [known_calls(), refused_calls(bounds, around)?], around })
    }

    /// Restricts this thread, for ever, and all that it starts from now on.
    pub fn restrict_thread(self) -> Result<(), String> {
        self.restrict().map(drop)
    }

    fn restrict(self) -> Result<LandlockStatus, String> {
        let status = self.ruleset.restrict_self().map_err(|error| format!("Landlock: {error}"))?;
        // A keeper has files of its own, with Landlock or without it.
        if status.ruleset == RulesetStatus::NotEnforced && matches!(self.around, Around::Thread { .. }) {
            return Err("Landlock is not enforced".to_owned());
        }
        for filter in &self.filters {
            seccompiler::apply_filter(filter).map_err(|error| format!("seccomp: {error}"))?;
        }
        give_up_privileges().map_err(|error| format!("privileges stay: {error}"))?;
        Ok(status.landlock)
    }
}

/// Of the privileges of root those are left that are about files, which Landlock keeps in their places: a container's
/// root works on files of others. A keeper has none to give up. Landlock has seen to it that no program gets any back.
fn give_up_privileges() -> rustix::io::Result<()> {
    let files = CapabilitySet::CHOWN
        | CapabilitySet::DAC_OVERRIDE
        | CapabilitySet::DAC_READ_SEARCH
        | CapabilitySet::FOWNER
        | CapabilitySet::FSETID;
    let CapabilitySets { effective, permitted, .. } = capabilities(None)?;
    clear_ambient_capability_set()?;
    let left = CapabilitySets {
        effective: effective & files,
        permitted: permitted & files,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, left)
}

/// What the thin fence is made of here, in words for people, or why there can be none. Found out by putting one on a
/// thread that then ends.
pub fn offered() -> Result<String, String> {
    let (read, run, shelter) = (Vec::new(), Vec::new(), Shelter::default());
    let bounds = Bounds { read, run, write: Write::Nothing, network: Network::None, shelter };
    let restriction = ThreadRestriction::new(&bounds, Around::Thread { group: rustix::process::getpid() })?;
    let tried = std::thread::Builder::new().spawn(move || restriction.restrict()).map(std::thread::JoinHandle::join);
    let status = match tried {
        Ok(Ok(status)) => status?,
        Ok(Err(_)) | Err(_) => return Err("no thread could try it".to_owned()),
    };
    Ok(match status {
        LandlockStatus::Available { effective_abi, kernel_abi } => {
            let abi = kernel_abi.unwrap_or(effective_abi as i32);
            format!("Landlock ABI {abi}; seccomp")
        }
        LandlockStatus::NotEnabled | LandlockStatus::NotImplemented => "Landlock; seccomp".to_owned(),
    })
}

fn ruleset(bounds: &Bounds, around: Around) -> Result<RulesetCreated, RulesetError> {
    let everything = AccessFs::from_all(NEWEST);
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let run = AccessFs::from_read(NEWEST);
    let least = match around {
        Around::Thread { .. } => CompatLevel::HardRequirement,
        Around::Keeper => CompatLevel::BestEffort,
    };
    let mut ruleset = Ruleset::default()
        .set_compatibility(least)
        .handle_access(AccessFs::from_all(ABI::V1))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(everything)?
        .scope(Scope::Signal)?;
    if bounds.network == Network::None {
        ruleset = ruleset.handle_access(AccessNet::from_all(NEWEST))?.scope(Scope::AbstractUnixSocket)?;
    }
    let mut created = ruleset.create()?;
    created = allow(created, SYSTEM, run)?;
    created = allow(created, DEVICES, read)?;
    created = allow(created, &["/dev/null"], AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate)?;
    created = allow(created, &bounds.read, read)?;
    created = allow(created, &bounds.run, run)?;
    if let Write::Beneath(directories) = &bounds.write {
        // No devices: those that are there may be used only where they are named above.
        let write = everything & !(AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev);
        created = allow(created, directories, write)?;
        if matches!(around, Around::Keeper) && bounds.shelter.private.is_some() {
            created = allow(created, &["/tmp"], write)?;
        }
    }
    if bounds.network == Network::Open {
        created = allow(created, NETWORK_FILES, read)?;
    }
    if matches!(around, Around::Keeper) {
        // The `/proc` of a keeper is its own and read-only.
        created = allow(created, &["/proc"], read)?;
    }
    Ok(created)
}

/// Paths that do not exist need no rule.
fn allow<P: AsRef<Path>>(
    ruleset: RulesetCreated,
    paths: &[P],
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    let rules = paths.iter().filter_map(|path| {
        let is_directory = path.as_ref().is_dir();
        let open = PathFd::new(path).ok()?;
        let access = if is_directory { access } else { access & AccessFs::from_file(NEWEST) };
        Some(Ok::<_, RulesetError>(PathBeneath::new(open, access)))
    });
    ruleset.add_rules(rules)
}

type SystemCalls = &'static [i64];

/// What no command needs and what would reach around Landlock: other processes, mounts, keys, the kernel itself.
const NEVER: SystemCalls = &[
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsmount,
    libc::SYS_mount_setattr,
    libc::SYS_open_by_handle_at,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_shmget,
    libc::SYS_msgget,
    libc::SYS_semget,
    libc::SYS_mq_open,
    libc::SYS_fanotify_init,
    libc::SYS_fspick,
    libc::SYS_fsconfig,
    KEXEC_FILE_LOAD,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_acct,
    libc::SYS_syslog,
];
/// `libc` does not name it for each of our targets: this is its number on x86-64, and on those that count as the kernel does now.
const KEXEC_FILE_LOAD: libc::c_long = if cfg!(target_arch = "x86_64") { 320 } else { 294 };
#[cfg(target_arch = "x86_64")]
const NEVER_HERE: SystemCalls = &[libc::SYS_iopl, libc::SYS_ioperm];
#[cfg(not(target_arch = "x86_64"))]
const NEVER_HERE: SystemCalls = &[];

/// Calls whose first argument is the number of a process: they are about this process if it is 0, and about any other
/// if not.
const OF_PROCESSES: SystemCalls = &[
    libc::SYS_prlimit64,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setscheduler,
];

/// The newest call that is known here; those that come after it are treated as if the kernel did not have them.
const NEWEST_CALL: i64 = 466;

/// What Landlock does not count as writing.
const METADATA: SystemCalls = &[
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    SYS_FCHMODAT2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    SYS_SETXATTRAT,
    SYS_REMOVEXATTRAT,
];
const CONTENT: SystemCalls = &[libc::SYS_truncate, libc::SYS_mknodat];
// The same numbers on every architecture; newer than the list of names.
const SYS_FCHMODAT2: i64 = 452;
const SYS_SETXATTRAT: i64 = 463;
const SYS_REMOVEXATTRAT: i64 = 466;

#[cfg(target_arch = "x86_64")]
const OLD_METADATA: SystemCalls =
    &[libc::SYS_chmod, libc::SYS_chown, libc::SYS_lchown, libc::SYS_utime, libc::SYS_utimes, libc::SYS_futimesat];
#[cfg(not(target_arch = "x86_64"))]
const OLD_METADATA: SystemCalls = &[];

/// Every call that is known here but `clone3`, whose flags a filter cannot read: the others are not there, as in an
/// older kernel, and libraries do without. That includes the second way in that x86-64 has: the same calls with a bit
/// set.
///
/// A range is written out here, because [`SeccompFilter`] compares each number by itself: the kernel would try two
/// thousand steps for each of its calls when the filter is put on. The other filter sees to the architecture.
fn known_calls() -> BpfProgram {
    const NUMBER: u32 = 0; // Where the number of the call lies in what the filter is given.
    let step =
        |code: u32, jt: u8, jf: u8, k: u32| sock_filter { code: u16::try_from(code).unwrap_or(u16::MAX), jt, jf, k };
    let number = |call: i64| u32::try_from(call).unwrap_or(u32::MAX);
    vec![
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, NUMBER),
        step(libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K, 2, 0, number(NEWEST_CALL)),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, 0, number(libc::SYS_clone3)),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs()),
    ]
}

fn refused_calls(bounds: &Bounds, around: Around) -> Result<BpfProgram, String> {
    let mut refused: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    let is_among_others = matches!(around, Around::Thread { .. });
    let mut never = |calls: SystemCalls| refused.extend(calls.iter().map(|call| (*call, Vec::new())));
    never(NEVER);
    never(NEVER_HERE);
    if bounds.write == Write::Nothing {
        never(CONTENT);
    }
    // A mount that is read-only keeps these, too; Landlock does not.
    let is_private = |path: &PathBuf| bounds.shelter.private.as_ref() == Some(path);
    if bounds.write == Write::Nothing || (is_among_others && bounds.written().iter().all(is_private)) {
        never(METADATA);
        never(OLD_METADATA);
    }
    if is_among_others {
        // `setsid` leaves the group, and `inotify_add_watch` tells of files that may not be read.
        never(&[libc::SYS_setsid, libc::SYS_inotify_add_watch]);
    }
    if let Around::Thread { group } = around {
        // Into the group and nowhere else: nothing that is started leaves it, and so nothing outlives it.
        let id = u64::from(group.as_raw_nonzero().get().unsigned_abs());
        refused.insert(libc::SYS_setpgid, vec![when(&[differs(1, id)])?]);
    }
    for call in OF_PROCESSES {
        refused.insert(*call, vec![when(&[differs(0, 0)])?]);
    }
    // The second argument says whose priority is set, the first one what that number means; the number of a user means
    // all processes of the user.
    for (call, user) in [(libc::SYS_setpriority, 2), (libc::SYS_ioprio_set, 3)] {
        refused.insert(call, vec![when(&[differs(1, 0)])?, when(&[equals(0, user)])?]);
    }
    let namespaces = NAMESPACES.iter().map(|flag| when(&[has(0, u64::from(flag.unsigned_abs()))]));
    refused.insert(libc::SYS_clone, namespaces.collect::<Result<_, _>>()?);
    refused.insert(libc::SYS_socket, refused_sockets(bounds.network)?);
    program(refused, SeccompAction::Allow, SeccompAction::Errno(libc::EPERM.unsigned_abs()))
}

const NAMESPACES: &[i32] = &[
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// The sockets that are refused. Without the network: those of every family, since Landlock knows TCP only. With it:
/// all but those that leave the machine, and the one that programs ask for the machine's addresses. Local ones lead to
/// services that act with the user's rights.
fn refused_sockets(network: Network) -> Result<Vec<SeccompRule>, String> {
    let family = |family: i32| u64::from(family.unsigned_abs());
    let [inet, inet6, netlink] = [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK].map(family);
    match network {
        Network::None => Ok(Vec::new()),
        Network::Open => Ok(vec![
            when(&[differs(0, inet), differs(0, inet6), differs(0, netlink)])?,
            when(&[equals(0, netlink), differs(2, family(libc::NETLINK_ROUTE))])?,
        ]),
    }
}

/// An argument, how it is compared, and with what.
type Comparison = (u8, SeccompCmpArgLen, SeccompCmpOp, u64);

fn differs(argument: u8, value: u64) -> Comparison {
    (argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, value)
}

fn equals(argument: u8, value: u64) -> Comparison {
    (argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)
}

fn has(argument: u8, flag: u64) -> Comparison {
    (argument, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(flag), flag)
}

fn when(comparisons: &[Comparison]) -> Result<SeccompRule, String> {
    let conditions = comparisons
        .iter()
        .map(|(argument, length, operator, value)| {
            SeccompCondition::new(*argument, length.clone(), operator.clone(), *value)
        })
        .collect::<Result<_, _>>();
    conditions.and_then(SeccompRule::new).map_err(wrong)
}

fn program(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    otherwise: SeccompAction,
    listed: SeccompAction,
) -> Result<BpfProgram, String> {
    let architecture = std::env::consts::ARCH.try_into().map_err(wrong)?;
    SeccompFilter::new(rules, otherwise, listed, architecture).and_then(TryInto::try_into).map_err(wrong)
}

fn wrong(error: impl std::fmt::Display) -> String {
    format!("seccomp: {error}")
}
