//! What the interpreter does before it is asked for anything, and that nobody waits for more of it than is needed.

use std::fs::File;

use crate::session::of_type;
use crate::{calls, project, run};

const MAIN: &str = "entry: true\ntools: [tool]\napproval: { tool: allow }";

#[test]
fn a_run_that_calls_no_code_does_not_wait_for_the_loop_and_leaves_no_interpreter_behind() {
    // The loop cannot be imported, and that takes a minute to find out. The file is free again once the last process
    // that has it is gone.
    let kit = "\
import fcntl, os, sys, time
file = open('held', 'w')
fcntl.flock(file, fcntl.LOCK_EX)
print('printed')
os.write(1, b'written\\n')
class Never:
    def find_spec(self, name, path=None, target=None):
        if name == 'asyncio':
            time.sleep(60)
            raise ImportError(name)
sys.meta_path.insert(0, Never())
def tool() -> str:
    return ''
TOOLS = [tool]
";
    let sandbox = project(&[("main", MAIN)], &[("kit.py", kit)], "- say: hi\n");
    let (events, result) = run(&sandbox, &["--json"]).events();
    assert_eq!(result["output"], "hi", "{result}");
    let mut printed: Vec<&str> =
        of_type(&events, "process_output").iter().map(|event| event["text"].as_str().unwrap()).collect();
    printed.sort_unstable();
    assert_eq!(printed, ["printed\n", "written\n"], "what was said before the end is told");
    File::open(sandbox.path().join("held")).unwrap().lock().unwrap();
}

#[test]
fn a_call_finds_the_loop_that_was_imported_after_the_files_were() {
    let kit = "\
import os, sys
class Watched:
    def find_spec(self, name, path=None, target=None):
        seen.append(name)
# What the machine's own additions to Python import is not ours.
import subprocess
bare = subprocess.check_output([os.readlink('/proc/self/exe'), '-c', 'import sys; print(*sys.modules)'], text=True).split()
seen = [name for name in ('asyncio', 'inspect') if name in sys.modules and name not in bare]
sys.meta_path.insert(0, Watched())
def tool(text: str, least: int = 1, *, exact: bool = False) -> str:
    '''Counts words.

    Args:
        text: where
    '''
    return f\"{seen[:seen.index('asyncio')]} {'asyncio' in sys.modules}\"
TOOLS = [tool]
";
    let sandbox = project(&[("main", MAIN)], &[("kit.py", kit)], &calls(&["{ tool: { text: a } }"]));
    assert_eq!(run(&sandbox, &["-q"]).answer(), "[] True\n", "the rest would only make everybody wait");
}

#[test]
fn what_is_read_of_a_function_is_what_python_would_say_of_it() {
    let kit = r#"
import functools, inspect, typing
from llm_do._host.function import REQUIRED, docstring_of, parameters_of
from llm_do.runtime import CallContext
from llm_do.toolsets.approval import set_toolset_approval_config
def nothing(): pass
def bare(a, b=2): "One line.  "
def plain(a: str, b: int = 2, *, c: float, d: bool = True) -> None:
    """Does it.

    	Args:
    	    a: tabs
          b: less

        """
def later(a: "str", b: "list[int]" = ()):
    """
    Begins late,
      and goes on.
    """
def optional(a: str = None, b: typing.Optional[int] = None): pass
def positional(a: CallContext, /, b: int): pass
def anything(*a: int, **b: str): "x\n   y\n\n\n"
def mixed(a: list[int], b: dict[str, "int"] = {}, c: typing.Annotated[int, "n"] = 0): ""
def context(ctx: CallContext, a: set): "é"
@functools.wraps(plain)
def wrapped(*a, **b): pass
def signed(a: int): pass
signed.__signature__ = inspect.Signature()
def approved(a: int = -1, *, b: int = None): "Approved."
set_toolset_approval_config(approved, {})
class Base:
    def method(self, a: int): "From above."
class Derived(Base):
    def method(self, a: int): pass
    def __call__(self, a: int): "Called."
async def waits(a: bytes): "\n\n  Two lines\n  and blanks.\n   \n"
functions = [nothing, bare, plain, later, optional, positional, anything, mixed, context, wrapped, signed, approved, waits,
    Derived.method, Derived().method, Derived(), functools.partial(plain, "x"), lambda a, b=1: a]
def parameters(function):
    kinds = ("POSITIONAL_OR_KEYWORD", "KEYWORD_ONLY")
    return [(one.name, REQUIRED if one.default is one.empty else one.default, None if one.kind.name in kinds else str(one))
        for one in inspect.signature(function).parameters.values()]
def tool() -> str:
    for function in functions:
        read = [(one.name, one.default, one.unnamed) for one in parameters_of(function)]
        assert read == parameters(function), (function, read)
        read = docstring_of(function)
        assert read == (inspect.getdoc(function) or "").strip("\n"), (function, read)
    return f"{len(functions)} functions"
TOOLS = [tool]
"#;
    let sandbox = project(&[("main", MAIN)], &[("kit.py", kit)], &calls(&["{ tool: {} }"]));
    assert_eq!(run(&sandbox, &["-q"]).answer(), "18 functions\n");
}

#[test]
fn a_file_is_one_module_by_all_its_names_and_a_hard_link_is_another() {
    let kit = "print('ran')\n";
    let sandbox =
        project(&[("main", "entry: true")], &[("kit.py", kit), ("same.py", ""), ("other.py", "")], "- say: hi\n");
    for name in ["same.py", "other.py"] {
        std::fs::remove_file(sandbox.path().join(name)).unwrap();
    }
    std::os::unix::fs::symlink("kit.py", sandbox.path().join("same.py")).unwrap();
    std::fs::hard_link(sandbox.path().join("kit.py"), sandbox.path().join("other.py")).unwrap();
    let (events, _) = run(&sandbox, &["--json"]).events();
    assert_eq!(of_type(&events, "process_output").len(), 2);
}
