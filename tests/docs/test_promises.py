"""What the documents name exists: flags, endpoints, scripts, commands, variables, links."""

from __future__ import annotations

import os
import re
from pathlib import Path

import click
import pytest
from pyggml_server import config, flags, metrics
from pyggml_server.published import Counters
from pyggml_server.web.application import routes
from pyggml_server.web.service import Service
from starlette.routing import Route

from build_support.patch_commands import main as patches
from tests.docs.documents import DOCUMENTS, ROOT, anchors, code_spans, section, tables, text_of
from tests.web.fakes import FakeSettings

SOURCE_FOLDERS = ("build_support", "pyggml", "server", "scripts", "tests", "native")
ids = [str(path.relative_to(ROOT)) for path in DOCUMENTS]


def shown_default(flag: flags.Flag) -> str:
    """The default as a reader sees it. One that is made at start is told in the flag's own help."""
    ours = config.Config()
    value = next(getattr(part, flag.field) for part in (ours, ours.preempt, ours.serve) if hasattr(part, flag.field))
    if value is None:
        told = re.search(r"\(default: (.+)\)$", flag.help)
        assert told is not None, f"{flag.names[0]} has no default to show"
        return told[1]
    if isinstance(value, bool):
        return "enabled" if value else "disabled"
    return f"{value:g}" if isinstance(value, float) else str(value)


def test_the_flag_table_is_the_flags_with_their_defaults() -> None:
    (table,) = tables(section(text_of("docs/reference.md"), "Flags"))
    in_table = [(code_spans(names), code_spans(env), default) for names, env, default, _ in table[1:]]
    in_code = [
        ([*flag.names[:-1], f"{flag.names[-1]} {flag.hint}".rstrip()], [flag.env], shown_default(flag))
        for flag in flags.FLAGS
    ]
    assert in_table == in_code


@pytest.mark.parametrize("flag", flags.FLAGS, ids=lambda flag: flag.names[0])
def test_the_help_text_says_the_default_too(flag: flags.Flag) -> None:
    assert f"(default: {shown_default(flag)})" in flag.help


def methods_and_paths(table: list[list[str]]) -> set[tuple[str, str]]:
    found = set()
    for row in table[1:]:
        for span in code_spans(row[0]):
            method, _, path = span.partition(" ")
            found.add((method, path))
    return found


def test_the_endpoint_tables_are_the_routes() -> None:
    (served,) = map(methods_and_paths, tables(section(text_of("docs/reference.md"), "Endpoints")))
    all_routes = {
        (method, route.path.replace(":path}", "}"))
        for route in routes(Service(FakeSettings(ui=False)))
        if isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}
    }
    assert served == all_routes


@pytest.mark.parametrize("path", DOCUMENTS, ids=ids)
def test_every_script_that_is_named_can_be_run(path: Path) -> None:
    named = set(re.findall(r"(?<![\w/])(?:\./)?scripts/([a-z][a-z-]*)", path.read_text(encoding="utf-8")))
    runnable = {script.name for script in (ROOT / "scripts").iterdir() if os.access(script, os.X_OK)}
    assert named - runnable == set()


@pytest.mark.parametrize("path", DOCUMENTS, ids=ids)
def test_every_patch_command_and_option_that_is_named_exists(path: Path) -> None:
    for name, rest in re.findall(r"scripts/patches ([a-z]+)([^`\n#]*)", path.read_text(encoding="utf-8")):
        assert name in patches.commands, f"scripts/patches {name} is no command"
        known = {option for param in patches.commands[name].params for option in param.opts}
        assert set(re.findall(r"--[a-z-]+", rest)) <= known
        assert isinstance(patches.commands[name], click.Command)


@pytest.mark.parametrize("path", DOCUMENTS, ids=ids)
def test_every_link_leads_somewhere(path: Path) -> None:
    targets = re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8"))
    assert [target for target in targets if "://" not in target and not leads_somewhere(path, target)] == []


def leads_somewhere(document: Path, target: str) -> bool:
    """Whether the file is there, and the heading in it."""
    name, _, anchor = target.partition("#")
    file = document.parent / name if name else document
    return file.exists() and (not anchor or anchor in anchors(file.read_text(encoding="utf-8")))


def test_a_link_to_a_heading_that_is_not_there_leads_nowhere() -> None:
    reference = ROOT / "docs" / "reference.md"
    assert leads_somewhere(reference, "reference.md#what-preemption-does")
    assert not leads_somewhere(reference, "reference.md#what-nobody-wrote")
    assert not leads_somewhere(reference, "#what-nobody-wrote")


def test_the_guide_explains_every_metric_of_ours() -> None:
    (table,) = [table for table in tables(text_of("docs/guide.md")) if table[0][0] == "name"]
    explained = [name for row in table[1:] for name in code_spans(row[0])]
    ours = [entry.name for entry in (*metrics.preempt_counters(Counters()), *metrics.preempt_gauges(Counters()))]
    assert sorted(explained) == sorted([*ours, *metrics.GAP_HISTOGRAMS])


@pytest.mark.parametrize("path", DOCUMENTS, ids=ids)
def test_every_variable_of_ours_that_is_named_is_read_somewhere(path: Path) -> None:
    named = set(re.findall(r"\b(?:PYGGML|LLAMA_SERVER_PREEMPT)_[A-Z_]+\b", path.read_text(encoding="utf-8")))
    assert {name for name in named if not is_in_source(name)} == set()


def is_in_source(name: str) -> bool:
    here = ROOT / "tests" / "docs"
    for folder in SOURCE_FOLDERS:
        for file in (ROOT / folder).rglob("*"):
            is_text = file.suffix in {".py", ".txt", ".cpp", ".h"} or file.parent.name == "scripts"
            if is_text and file.is_file() and here not in file.parents and name in file.read_text(encoding="utf-8"):
                return True
    return False


def test_the_licence_and_the_package_agree() -> None:
    assert text_of("LICENSE").startswith("MIT License")
    assert 'license = "MIT"' in text_of("pyproject.toml")
