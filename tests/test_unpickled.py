"""No module loads a pickle, runs a text as a program, or hands a name to a shell: read off the source."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import msbench

PACKAGE = Path(msbench.__file__).parent
REFUSED = {
    *("eval", "exec", "compile", "__import__"),
    *("pickle.load", "pickle.loads", "pickle.Unpickler", "dill.load", "joblib.load", "shelve.open"),
    *("marshal.load", "marshal.loads", "pandas.read_pickle", "pd.read_pickle", "pandas.HDFStore"),
    *("os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"),
    *("yaml.load", "yaml.unsafe_load", "yaml.full_load", "yaml.load_all"),
    *("tarfile.open", "shutil.unpack_archive", "tempfile.mktemp"),
}
ALLOWED = {
    # A pickle of CIFAR-10 is loaded if it has its published digest, which is computed first.
    "datasets/cifar10.py": ["imports pickle", "calls pickle.loads"],
    # The package's own zip, whose code runs already.
    "results/files.py": ["calls archive.extractall"],
}
MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def faults(source: str) -> Iterator[str]:
    """What a module should not do, with its line."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names]
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in MODULES.intersection(each.partition(".")[0] for each in names):
                yield f"{node.lineno}: imports {name}"
        if isinstance(node, ast.Call):
            yield from call_faults(node, dotted(node.func))


def call_faults(node: ast.Call, name: str) -> Iterator[str]:
    given = {each.arg: each.value for each in node.keywords}
    values = {key: getattr(value, "value", ...) for key, value in given.items()}
    literal = bool(node.args) and isinstance(node.args[0], ast.Constant)
    if (name in REFUSED and not (name == "__import__" and literal)) or name.endswith(
        (".extractall", ".extract")
    ):
        yield f"{node.lineno}: calls {name}"
    if values.get("shell", False) is not False:
        yield f"{node.lineno}: {name} with a shell"
    if values.get("allow_pickle", False) is not False:
        yield f"{node.lineno}: {name} with allow_pickle"
    if name in ("np.load", "numpy.load") and "allow_pickle" not in values:
        yield f"{node.lineno}: {name} without allow_pickle=False"
    if name == "torch.load" and values.get("weights_only") is not True:
        yield f"{node.lineno}: torch.load without weights_only=True"


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.name)
def test_nothing_that_is_read_is_run(path: Path) -> None:
    allowed = ALLOWED.get(path.relative_to(PACKAGE).as_posix(), [])
    assert [found.partition(": ")[2] for found in faults(path.read_text(encoding="utf-8"))] == allowed


@pytest.mark.parametrize(
    "source",
    [
        *("import pickle", "from pickle import loads", "import os\nos.system('ls')", "eval('1')"),
        *("torch.load('x')", "torch.load('x', weights_only=False)", "np.load('x')", "yaml.load(x, L)"),
        *("np.load('x', allow_pickle=True)", "subprocess.run('ls', shell=True)", "archive.extractall('x')"),
        *("subprocess.run('ls', shell=flag)", "pd.read_pickle('x')", "__import__(name)"),
    ],
)
def test_each_of_these_is_found(source: str) -> None:
    assert len(list(faults(source))) == 1
