"""The house rules that no linter checks: sizes, names, and who may start tasks."""

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "neuroswarm"
TESTS = ROOT / "tests"
THIS = Path(__file__)

MAX_MODULE_LINES = 400
MAX_FUNCTION_LINES = 60
MAX_CONSTRUCTOR_PARAMETERS = 6
BANNED_NAMES = re.compile(r"^(utils?|common|helpers?|misc|base_.*)$")

SOURCES = sorted(p for p in PACKAGE.rglob("*.py") if "v1" not in p.relative_to(PACKAGE).parts)
TEST_SOURCES = sorted(p for p in TESTS.rglob("*.py") if p != THIS)


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def names_used(path: Path) -> Iterator[tuple[int, str]]:
    """Every dotted name that the module reads or imports, with its line."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Attribute):
            yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)


def offenders(paths: list[Path], find: Callable[[Path], object]) -> dict[str, object]:
    """What `find` finds, by module; modules without an offence are left out."""
    found = {name(path): find(path) for path in paths}
    return {module: offence for module, offence in found.items() if offence}


def strings(path: Path) -> Iterator[tuple[int, str]]:
    """Every text in the module that is no docstring, with its line."""
    whole = tree(path)
    statements = (node for node in ast.walk(whole) if isinstance(node, ast.Expr))
    docs = {id(statement.value) for statement in statements}
    for node in ast.walk(whole):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.lineno, node.value


def num_lines(node: ast.stmt) -> int:
    assert node.end_lineno is not None, "parsed from text"
    return node.end_lineno - node.lineno + 1


def docstring_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of the docstring, which do not make a function long."""
    return 0 if ast.get_docstring(function) is None else num_lines(function.body[0])


def uses(path: Path, *wanted: str) -> list[tuple[int, str]]:
    return [use for use in names_used(path) if use[1] in wanted]


def test_there_is_something_to_check():
    assert len(SOURCES) > 20
    assert len(TEST_SOURCES) > 5


def test_modules_are_short():
    def too_long(path: Path) -> int:
        lines = len(path.read_text(encoding="utf-8").splitlines())
        return lines if lines > MAX_MODULE_LINES else 0

    assert not offenders(SOURCES, too_long)


def test_modules_have_telling_names():
    def banned(path: Path) -> list[str]:
        return [p for p in path.relative_to(ROOT).with_suffix("").parts if BANNED_NAMES.match(p)]

    assert not offenders(SOURCES, banned)


def test_functions_are_short():
    def too_long(path: Path) -> dict[str, int]:
        lengths = {f.name: num_lines(f) - docstring_lines(f) for f in functions(path)}
        return {name: lines for name, lines in lengths.items() if lines > MAX_FUNCTION_LINES}

    assert not offenders(SOURCES, too_long)


def test_constructors_take_few_parameters():
    def too_wide(path: Path) -> list[int]:
        return [
            f.lineno
            for f in functions(path)
            if f.name == "__init__"
            if len(f.args.args) + len(f.args.kwonlyargs) - 1 > MAX_CONSTRUCTOR_PARAMETERS
        ]

    assert not offenders(SOURCES, too_wide)


def test_only_services_start_tasks():
    def starts(path: Path) -> list[tuple[int, str]]:
        return [use for use in names_used(path) if use[1].rpartition(".")[2] == "create_task"]

    assert set(offenders(SOURCES, starts)) == {"neuroswarm/service.py"}


def test_only_the_command_line_reads_the_environment():
    outside = [path for path in SOURCES if not path.is_relative_to(PACKAGE / "cli")]
    assert not offenders(outside, lambda path: uses(path, "os.environ", "os.getenv", "os.environb"))


def test_nothing_is_pickled():
    loaders = ("pickle", "marshal", "shelve", "torch.load", "torch.save")
    assert not offenders(SOURCES, lambda path: uses(path, *loaders))


def test_time_comes_from_the_injected_clock():
    readers = ("time.time", "time.time_ns", "datetime.now", "datetime.datetime.now")
    found = offenders(SOURCES, lambda path: uses(path, *readers))
    assert set(found) == {"neuroswarm/clock.py"}


SYSTEM_MODULES = ("fcntl", "resource", "pwd", "grp", "termios", "msvcrt", "winreg")
SYSTEM_CALLS = re.compile(
    r"^os\.(sched_\w+|(get|set)priority|nice|getloadavg|statvfs|get(e?uid|e?gid)|fchmod|preadv?"
    r"|pwritev?|sysconf|O_CLOEXEC|O_NOFOLLOW|O_DIRECTORY|fork)$|add_signal_handler$"
)
KERNEL_FILES = re.compile(r"(^|[\"'{ ])/?(proc|sys)/(?!bus)")


def test_only_the_hardware_room_knows_one_system():
    """What some systems lack is asked for in `neuroswarm.hardware`, which answers on all."""

    def knows(path: Path) -> list[tuple[int, str]]:
        used = [
            (line, what)
            for line, what in names_used(path)
            if what.split(".")[0] in SYSTEM_MODULES or SYSTEM_CALLS.search(what)
        ]
        return used + [text for text in strings(path) if KERNEL_FILES.search(text[1])]

    outside = [path for path in SOURCES if not path.is_relative_to(PACKAGE / "hardware")]
    assert not offenders(outside, knows)


def test_sources_are_ascii():
    assert not offenders(SOURCES, lambda path: not path.read_bytes().isascii())


def test_tests_use_no_mocks():
    def mocks(path: Path) -> list[tuple[int, str]]:
        return [use for use in names_used(path) if "mock" in use[1].lower().split(".")]

    assert not offenders(TEST_SOURCES, mocks)


def test_tests_never_sleep():
    def sleeps(path: Path) -> list[str]:
        return [
            ast.unparse(node)
            for node in ast.walk(tree(path))
            if isinstance(node, ast.Call)
            if ast.unparse(node.func) in ("time.sleep", "asyncio.sleep")
            if not (isinstance(node.args[0], ast.Constant) and node.args[0].value == 0)
        ]

    assert not offenders(TEST_SOURCES, sleeps)


def test_names_of_test_files_are_unique():
    names = [path.name for path in TEST_SOURCES if path.name.startswith("test_")]
    assert len(names) == len(set(names))
