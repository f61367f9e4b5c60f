"""The layers: what each package may import, read from its source; and what `import provider_concurrency` pulls in."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

IMPL, MODEL, SPEC = "provider_concurrency", "provider_concurrency_model", "provider_concurrency_spec"
OWN_MODULES = {"httpx", "httpx2", "httpcore", "httpcore2", "anyio"}
"""Third parties that modules of the library of their own may import, nobody else."""
OBSERVER_MODULES = {"prometheus_client", "opentelemetry"}
"""The same of the observers."""


def root_of(package: str) -> Path:
    spec = find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def imports_of(path: Path) -> Iterator[str]:
    """The full names that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:  # a relative one stays within its package
            yield node.module or ""


def files_of(package: str) -> list[Path]:
    files = sorted(root_of(package).rglob("*.py"))
    assert files
    return files


def third_parties(path: Path) -> set[str]:
    names = {name.split(".")[0] for name in imports_of(path)}
    return names - set(sys.stdlib_module_names) - {IMPL, MODEL, SPEC}


@pytest.mark.parametrize("path", files_of(SPEC), ids=lambda path: path.name)
def test_spec_imports_only_the_standard_library(path: Path) -> None:
    assert third_parties(path) <= ({"jsonschema"} if path.stem == "schemas" else set())
    assert not {name for name in imports_of(path) if name.split(".")[0] in (IMPL, MODEL)}


@pytest.mark.parametrize("path", files_of(MODEL), ids=lambda path: path.name)
def test_model_never_imports_impl(path: Path) -> None:
    assert not {name for name in imports_of(path) if name.split(".")[0] == IMPL}
    if "check" not in path.relative_to(root_of(MODEL)).parts:
        assert third_parties(path) <= {"transitions"}


@pytest.mark.parametrize("path", files_of(IMPL), ids=lambda path: path.name)
def test_impl_imports_only_the_standard_library_and_spec_only_in_port(path: Path) -> None:
    allowed = OWN_MODULES if "integrations" in path.parts else OBSERVER_MODULES if "observers" in path.parts else set()
    assert third_parties(path) <= allowed
    others = {name.split(".")[0] for name in imports_of(path)} & {MODEL, SPEC}
    assert others <= ({SPEC} if path.name == "port.py" else set())


def test_the_walk_sees_every_way_to_import(tmp_path: Path) -> None:
    source = "import a.b as c\nfrom d.e import f\ndef g():\n    import h, rich\n    from typer import i\n"
    path = tmp_path / "module.py"
    path.write_text(source)
    assert list(imports_of(path)) == ["a.b", "d.e", "h", "rich", "typer"]
    assert third_parties(path) == {"a", "d", "h", "rich", "typer"}


def test_importing_the_library_pulls_in_nothing_else() -> None:
    program = (
        "import sys; before = set(sys.modules); import provider_concurrency; "
        "print(*sorted({name.split('.')[0] for name in set(sys.modules) - before}))"
    )
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True, timeout=60)
    new = set(done.stdout.split())
    assert IMPL in new
    assert new - set(sys.stdlib_module_names) == {IMPL}


def test_all_is_sorted_and_there() -> None:
    import provider_concurrency

    assert provider_concurrency.__all__ == sorted(provider_concurrency.__all__)
    for name in provider_concurrency.__all__:
        assert getattr(provider_concurrency, name) is not None
