import ctypes, json, os, platform, subprocess, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
wide = platform.machine() == "x86_64"
def call(number, *arguments):
    ctypes.set_errno(0)
    done = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(argument) for argument in arguments])
    return ctypes.get_errno() if done == -1 else 0
parent, zero = os.getppid(), 0
numbers = {
    "prlimit64": (302, 261), "setpriority": (141, 140), "ioprio_set": (251, 30), "sched_setaffinity": (203, 122),
    "sched_setparam": (142, 118), "sched_setscheduler": (144, 119), "sched_setattr": (314, 274), "clone": (56, 220),
    "shmget": (29, 194), "msgget": (68, 186), "semget": (64, 190), "mq_open": (240, 180), "fanotify_init": (300, 262),
    "kexec_file_load": (320, 294), "clock_adjtime": (305, 266), "adjtimex": (159, 171), "acct": (163, 89),
    "inotify_add_watch": (254, 27), "syslog": (103, 116), "setsid": (112, 157), "ptrace": (101, 117), "unshare": (272, 97),
}
same = {"fspick": 433, "fsconfig": 431, "clone3": 435, "setxattrat": 463, "removexattrat": 466, "newer": 467, "far": 1000}
n = {name: pair[0 if wide else 1] for name, pair in numbers.items()} | same
said = {name: call(n[name], 0, 0, 0, 0, 0) for name in (
    "shmget", "msgget", "semget", "mq_open", "fanotify_init", "kexec_file_load", "clock_adjtime", "adjtimex", "acct", "syslog",
    "inotify_add_watch", "setsid", "unshare", "fspick", "fsconfig", "clone3", "setxattrat", "removexattrat", "newer", "far")}
said["ptrace"] = call(n["ptrace"], 16, parent, 0, 0)
if wide:
    said["iopl"], said["ioperm"] = call(172, 0), call(173, 0, 1, 0)
    said["other way in"] = call(0x40000000 | 39)
for name in ("prlimit64", "sched_setaffinity", "sched_setparam", "sched_setscheduler", "sched_setattr"):
    said[name] = call(n[name], parent, 0, 0, 0)
said["setpriority"], said["of all"] = call(n["setpriority"], 0, parent, 5), call(n["setpriority"], 2, 0, 5)
said["ioprio_set"], said["io of all"] = call(n["ioprio_set"], 1, parent, 0), call(n["ioprio_set"], 3, 0, 0)
for bit in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
    said["clone %x" % bit] = call(n["clone"], bit | 17, 0, 0, 0, 0)
def opened(family, kind, protocol):
    try:
        import socket
        socket.socket(family, kind, protocol).close()
        return 0
    except OSError as error:
        return error.errno
for name, family, kind, protocol in (
    ("unix", 1, 1, 0), ("inet", 2, 1, 0), ("inet6", 10, 2, 0), ("route", 16, 3, 0), ("audit", 16, 3, 9), ("raw", 2, 3, 1), ("vsock", 40, 1, 0)):
    said[name] = opened(family, kind, protocol)
import resource
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
os.nice(1)
heard = []
thread = threading.Thread(target=lambda: heard.append(1)); thread.start(); thread.join()
child = os.fork()
if child == 0:
    os._exit(7)
said["thread"], said["fork"] = len(heard), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
said["spawn"] = subprocess.run([sys.executable, "-c", "print('spawned')"], capture_output=True, text=True).stdout.strip()
print(json.dumps(said))
