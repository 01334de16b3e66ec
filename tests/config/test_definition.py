"""The digest of a definition follows what decides a result, and nothing else."""

from pathlib import Path
from textwrap import dedent

import pytest

from msbench.config.definition import Definition, SourceTree

MODEL = '''
    """A model."""

    import math
    from package.layers import SCALE, Layer
    from package import kernels, messages

    UNUSED = 1


    def build(width: int, depth: int = 2) -> list[Layer]:
        """Build it."""
        messages.say("building")
        return [Layer(math.sqrt(width) * SCALE, kernels.fast) for _ in range(depth)]
    '''
LAYERS = """
    import torch

    SCALE = 0.1
    torch.set_num_threads(1)


    class Layer:
        # A comment.
        def __init__(self, width, kernel):
            self.width = shift(width)

        def run(self, x):
            return x + 1


    def shift(x):
        return x - 1


    def unrelated(x):
        return x * 3
    """
PACKAGE = {
    "model": MODEL,
    "layers": LAYERS,
    "kernels": "def fast(x):\n    return x\n",
    "messages": "def say(text):\n    print(text)\n",
}


@pytest.fixture
def digest(tmp_path: Path) -> "Digest":
    return Digest(tmp_path)


class Digest:
    """Digest the definition of `model:build` in a package of these files."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, 0

    def define(self, files: dict[str, str], root: str = "package.model:build") -> Definition:
        self.count += 1
        package = self.folder / str(self.count) / "package"
        for name, text in {"__init__": "", **files}.items():
            path = package / f"{name}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(dedent(text), encoding="utf-8")
        tree = SourceTree(package, without=("package.kernels", "package.messages"))
        return tree.digest_definition([root])

    def __call__(self, **files: str) -> str:
        return self.define(PACKAGE | files).digest


def edit(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1
    return text.replace(old, new)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"""Build it."""', '"""Make one."""'),
        ('"""A model."""', ""),
        ("UNUSED = 1", "UNUSED = 2"),
        ("width: int, ", "width: float, "),
        (" -> list[Layer]", ""),
        ("for _ in range(depth)]", "for _ in range(depth) ]  # a comment"),
        ("        return", "\n\n        return"),
        ("import math", "import os\n    import math"),
        ("import math", "from math import sqrt"),
        ("import math", "import math as m"),
    ],
)
def test_wording_annotations_imports_and_layout_change_no_digest(digest: Digest, old: str, new: str) -> None:
    text = edit(MODEL, old, new)
    text = text.replace("math.sqrt(", "sqrt(") if "import sqrt" in new else text
    text = text.replace("math.sqrt(", "m.sqrt(") if "as m" in new else text
    assert digest(model=text) == digest()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("depth: int = 2", "depth: int = 3"),
        ("* SCALE", "/ SCALE"),
        ("math.sqrt", "math.exp"),
        ("import math", "import cmath as math"),
        ("kernels.fast", "kernels.other"),
        ("for _ in range(depth)", "for _ in range(depth) if width"),
        ('messages.say("building")', 'messages.say("working")'),
    ],
)
def test_a_change_in_the_root_changes_the_digest(digest: Digest, old: str, new: str) -> None:
    kernels = PACKAGE["kernels"] + "def other(x):\n    return x\n"
    assert digest(model=edit(MODEL, old, new), kernels=kernels) != digest(kernels=kernels)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("SCALE = 0.1", "SCALE = 0.2"),
        ("x - 1", "x - 2"),
        ("x + 1", "1 + x"),
        ("set_num_threads(1)", "set_num_threads(2)"),
        ("self.width = shift(width)", "self.width = width"),
    ],
)
def test_a_change_in_what_the_root_uses_changes_the_digest(digest: Digest, old: str, new: str) -> None:
    assert digest(layers=edit(LAYERS, old, new)) != digest()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x * 3", "x * 4"),
        ("SCALE = 0.1", "SCALE = 1e-1"),
        ("# A comment.", "# Another."),
        ("import torch", "import torch\n    import numpy"),
    ],
)
def test_a_change_in_nothing_that_the_root_uses_changes_no_digest(digest: Digest, old: str, new: str) -> None:
    assert digest(layers=edit(LAYERS, old, new)) == digest()


def test_kernels_and_messages_change_no_digest(digest: Digest) -> None:
    assert digest(kernels="def fast(x):\n    return x + 0\n") == digest()
    assert digest(messages="def say(text):\n    raise SystemExit\n") == digest()


def test_moving_and_renaming_change_no_digest(digest: Digest) -> None:
    moved = edit(MODEL, "package.layers", "package.parts.blocks")
    files = {name: text for name, text in PACKAGE.items() if name != "layers"}
    renamed = {**files, "model": moved, "parts/__init__": "", "parts/blocks": LAYERS}
    through = {**renamed, "parts/__init__": "from package.parts.blocks import SCALE, Layer"}
    through["model"] = edit(MODEL, "package.layers", "package.parts")
    as_module = MODEL.replace(
        "from package.layers import SCALE, Layer", "from package import layers as blocks"
    )
    as_module = as_module.replace("* SCALE", "* blocks.SCALE").replace("[Layer(", "[blocks.Layer(")
    names = LAYERS.replace("class Layer", "class Block").replace("shift", "shift_left")
    classes = MODEL.replace("import SCALE, Layer", "import SCALE, Block as Layer")
    expected = digest()
    assert digest.define(renamed).digest == expected
    assert digest.define(through).digest == expected
    assert digest(model=as_module.replace("list[Layer]", "list")) == expected
    assert digest(model=classes, layers=names) == expected


def test_merging_and_splitting_files_changes_no_digest(digest: Digest) -> None:
    layers, shift = LAYERS.split("\n\n    def shift(x):\n        return x - 1\n")
    split = {"layers": "from package.shifts import shift\n" + dedent(layers) + dedent(shift)}
    assert digest(**split, shifts="def shift(x):\n    return x - 1\n") == digest()


def test_the_order_of_definitions_changes_no_digest(digest: Digest) -> None:
    first = "    def shift(x):\n        return x - 1\n"
    assert digest(layers="\n    import torch\n" + first + edit(LAYERS, first, "")) == digest()


def test_another_function_of_the_same_name_and_text_is_another_definition(digest: Digest) -> None:
    one, two = (f"STEP = {step}\ndef shift(x):\n    return x + STEP\n" for step in (1, 2))
    both = "from package import one, two\ndef build():\n    return one.shift(1) - two.shift(2)\n"
    swapped = both.replace("one.shift(1)", "two.shift(1)").replace("two.shift(2)", "one.shift(2)")
    assert digest(model=both, one=one, two=two) != digest(model=swapped, one=one, two=two)


def test_two_names_of_one_statement_are_two_definitions(digest: Digest) -> None:
    sizes = "WIDTH, DEPTH = 2, 3\n"
    model = sizes + "def build():\n    return WIDTH - DEPTH\n"
    assert digest(model=model) != digest(model=sizes + "def build():\n    return DEPTH - WIDTH\n")
    model = "from package.sizes import DEPTH, WIDTH\ndef build():\n    return WIDTH - DEPTH\n"
    swapped = model.replace("WIDTH - DEPTH", "DEPTH - WIDTH")
    assert digest(model=model, sizes=sizes) != digest(model=swapped, sizes=sizes)


def test_variables_of_inner_scopes_define_nothing(digest: Digest) -> None:
    table = "TABLE = {key: value for key, value in {}.items()}\n"
    model = table + "def build(key, value):\n    return key - value\n"
    assert digest(model=model) != digest(model=model.replace("key - value", "value - key"))
    assert digest(model=model) == digest(model=edit(model, table, "TABLE = 1\n"))


@pytest.mark.parametrize(
    "body",
    [
        "def build(shift):\n    return shift.missing(1)\n",
        "def build():\n    shift = 1\n    return shift\n",
        "def build():\n    return [shift.missing for shift in ()]\n",
        "def build():\n    return lambda shift: shift.missing\n",
        "def build(shift):\n    def inner():\n        return layers.missing, shift\n    layers = 1\n",
    ],
)
def test_a_local_name_is_no_definition_of_the_module(digest: Digest, body: str) -> None:
    model = "from package import layers\nfrom package.layers import shift\n" + body
    assert digest(model=model) == digest(model=model, layers=edit(LAYERS, "x - 1", "x - 2"))


@pytest.mark.parametrize(
    "body",
    [
        "def build(shift=shift):\n    return shift(1)\n",
        "def build():\n    return [shift for shift in shift(1)]\n",
        "def build():\n    global shift\n    shift = shift(1)\n",
        "@shift\ndef build(shift):\n    return shift\n",
    ],
)
def test_a_name_outside_of_its_scope_is_the_modules(digest: Digest, body: str) -> None:
    model = "from package.layers import shift\n" + body
    assert digest(model=model) != digest(model=model, layers=edit(LAYERS, "x - 1", "x - 2"))


@pytest.mark.parametrize("line", ["from .layers import *", "from package.layers import *"])
def test_imports_that_cannot_be_followed_are_refused(digest: Digest, line: str) -> None:
    with pytest.raises(LookupError, match="line 1: only imports of names can be followed"):
        digest(model=f"{line}\ndef build():\n    return shift(1)\n")


@pytest.mark.parametrize(
    "model",
    [
        "def build():\n    from package.layers import shift\n    shift = list(shift)\n    return shift\n",
        "def shift():\n    pass\ndef build():\n    from package.layers import shift\n    return shift(1)\n",
        "try:\n    from package.layers import shift\nexcept ImportError:\n"
        "    def shift(x):\n        return x\n"
        "def build():\n    return shift(1)\n",
    ],
)
def test_an_import_counts_where_the_name_is_defined_too(digest: Digest, model: str) -> None:
    assert digest(model=model) != digest(model=model, layers=edit(LAYERS, "x - 1", "x - 2"))


def test_the_order_of_effects_changes_the_digest(digest: Digest) -> None:
    effects = "print(1)\nprint(2)\n"
    model = effects + "def build():\n    return 1\n"
    assert digest(model=model) != digest(model=model.replace(effects, "print(2)\nprint(1)\n"))


def test_checks_of_settings_change_no_digest(digest: Digest) -> None:
    model = """
        from pydantic import BaseModel, field_validator

        class build(BaseModel):
            width: int = 1

            @field_validator("width")
            def check(cls, value):
                return 1 / value

            @property
            def twice(self):
                return 2 * self.width
        """
    assert digest(model=model) == digest(model=edit(model, "1 / value", "2 / value"))
    assert digest(model=model) != digest(model=edit(model, "2 * self", "3 * self"))
    assert digest(model=model) != digest(model=edit(model, "int = 1", "int = 2"))


def test_a_module_that_is_passed_on_counts_as_a_whole(digest: Digest) -> None:
    model = "from package import layers\ndef build():\n    return vars(layers)\n"
    changed = edit(LAYERS, "x * 3", "x * 4")
    assert digest(model=model) != digest(model=model, layers=changed)


def test_a_function_with_the_name_of_its_module_is_meant_where_the_package_imports_it(digest: Digest) -> None:
    files = {"parts/__init__": "from package.parts.shift import shift", "parts/shift": LAYERS}
    files["model"] = "from package.parts import shift\ndef build():\n    return shift(1)\n"
    changed = {**files, "parts/shift": edit(LAYERS, "x * 3", "x * 4")}
    assert digest.define(files).digest == digest.define(changed).digest
    changed = {**files, "parts/shift": edit(LAYERS, "x - 1", "x - 2")}
    assert digest.define(files).digest != digest.define(changed).digest


def test_imports_in_functions_and_for_types_are_followed(digest: Digest) -> None:
    model = "def build():\n    from package.layers import shift\n\n    return shift(1)\n"
    assert digest(model=model) != digest(model=model, layers=edit(LAYERS, "x - 1", "x - 2"))


def test_files_are_named_with_a_digest_of_what_counts_in_them(digest: Digest) -> None:
    before, after = (
        digest.define(PACKAGE),
        digest.define(PACKAGE | {"layers": edit(LAYERS, "x - 1", "x - 2")}),
    )
    assert set(before.files) == {"model.py", "layers.py"}
    assert before.files["model.py"] == after.files["model.py"]
    assert before.files["layers.py"] != after.files["layers.py"]


def test_an_import_of_what_does_not_exist_is_an_error(digest: Digest) -> None:
    with pytest.raises(LookupError, match=r"layers.py: no missing is defined here"):
        digest(model="from package.layers import missing\ndef build():\n    return missing\n")


def test_a_reference_counts_in_place_of_an_operation(digest: Digest, tmp_path: Path) -> None:
    def define(text: str) -> str:
        digest.define(PACKAGE | {"layers": text})
        instead = {"package.layers:shift": ["package.layers:unrelated"]}
        tree = SourceTree(tmp_path / str(digest.count) / "package", instead=instead)
        return tree.digest_definition(["package.model:build"]).digest

    assert define(LAYERS) == define(edit(LAYERS, "x - 1", "x - 2"))
    assert define(LAYERS) != define(edit(LAYERS, "x * 3", "x * 4"))


@pytest.mark.parametrize("root", ["package.model:missing", "package.missing:build", "package.missing"])
def test_a_root_that_does_not_exist_is_an_error(digest: Digest, root: str) -> None:
    with pytest.raises(LookupError, match="missing"):
        digest.define(PACKAGE, root)


def test_digests_are_the_same_for_every_version_of_python(digest: Digest) -> None:
    model = '''
        from dataclasses import dataclass
        from typing import Generic, TypeVar

        T = TypeVar("T")


        @dataclass(frozen=True)
        class Pair(Generic[T]):
            """Two."""

            one: T
            two: T = 1e-3  # type: ignore

            def __str__(self):
                return f"{self.one!r:>{len('a') + 3}} and {self.two=} \\u00e9 \\U0001fae0" "!"


        async def build(*args, key=-1j, **more):
            match args:
                case [Pair(one=1), *rest] if (n := len(rest)) > 0:
                    return lambda x, /, y=..., *, z=b"\\0": x[n:, ::2] @ y
                case {"a": 1 | None, **others}:
                    async with key as k, k as l:
                        yield await others, True, 1_000, 0x1F, "u"
            try:
                global T
                del T
            except* ValueError as error:
                raise KeyError from error
        '''
    # Computed with Python 3.11, 3.12 and 3.13.
    assert digest(model=model) == "5dcafd010af438112d59e4fd51c7cf6b47bfdb0451c51854d107ac04564544ec"
