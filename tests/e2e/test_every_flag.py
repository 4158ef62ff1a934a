"""Every flag of llama-server's help: five command lines have nearly all of them, and both servers start with each and
answer alike. What is left ends both alike, or is tested elsewhere."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np
import pytest

from tests.e2e.comparing import differences, normalised
from tests.e2e.conftest import TEMPLATES
from tests.e2e.flag_values import COMMAND_LINES, ELSEWHERE, ENDING, HUB
from tests.e2e.program import (
    PATIENCE_S,
    ServerProcess,
    free_port,
    our_program,
    stock_program,
)
from tests.e2e.test_command_line import complaints, outcome
from tests.upstream.chain_model import Chain, write_adapter, write_chain_model
from tests.upstream.vocabulary import read_vocabulary

NAMES = re.compile(r"^-[^\s,]+(?:, +-[^\s,]+)*", re.MULTILINE)
AUTHORIZED = {"Authorization": "Bearer sesame"}
CHAIN = Chain(words=("▁little", "▁wise", "▁day"), adapted=((0.7, "▁far"),))
CHAT = {"messages": [{"role": "user", "content": "Name three seas."}], "max_tokens": 8, "temperature": 0}


@pytest.fixture(scope="module")
def flag_names() -> list[list[str]]:
    """The names of each flag, as the help of llama-server has them."""
    _, printed, _ = outcome(stock_program(), "--help")
    return [re.split(", +", names) for names in NAMES.findall(printed) if not names.startswith("-----")]


@pytest.fixture
def folder(small_models: Path, tmp_path: Path) -> Path:
    """What the command lines name."""
    for name in ("one", "two"):
        (tmp_path / f"{name}.gguf").symlink_to(small_models / f"{name}.gguf")
    (tmp_path / "grammar.gbnf").write_text("root ::= [a-z ]+", encoding="utf-8")
    (tmp_path / "schema.json").write_text('{"enum": ["a", "b"]}', encoding="utf-8")
    (tmp_path / "keys").write_text("sesame\n", encoding="utf-8")
    (tmp_path / "ui.json").write_text('{"a": 1}', encoding="utf-8")
    (tmp_path / "lookup").touch()
    (tmp_path / "servers.json").write_text('{"mcpServers": {}}', encoding="utf-8")
    shutil.copy(TEMPLATES / "Qwen-Qwen3-0.6B.jinja", tmp_path / "template.jinja")
    write_control_vector(tmp_path / "control.gguf", n_embd=576)
    vocabulary = read_vocabulary("llama-spm")
    write_chain_model(tmp_path / "chain.gguf", vocabulary, CHAIN, has_experts=True)
    write_adapter(tmp_path / "adapter.gguf", vocabulary, CHAIN)
    return tmp_path


def write_control_vector(path: Path, n_embd: int) -> None:
    writer = gguf.GGUFWriter(path, "controlvector")
    writer.add_string("controlvector.model_hint", "llama")
    writer.add_uint32("controlvector.layer_count", 1)
    writer.add_tensor("direction.1", np.full(n_embd, 0.01, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def arguments(flags: Mapping[str, str | None], folder: Path, port: int) -> list[str]:
    words: list[str] = []
    for name, value in flags.items():
        words.append(name)
        if value is not None:
            filled = value.format(folder=folder, port=port)
            words += filled.split(" ") if name == "--control-vector-layer-range" else [filled]
    return words


def test_every_flag_of_the_help_is_given_somewhere_here(flag_names: list[list[str]]) -> None:
    given = {name for flags in COMMAND_LINES.values() for name in flags} | {*ENDING, *HUB, *ELSEWHERE}
    missing = [names for names in flag_names if not given.intersection(names)]
    assert missing == []
    assert given - {name for names in flag_names for name in names} == set()


@pytest.mark.parametrize("name", COMMAND_LINES)
def test_both_servers_start_with_it_and_answer_alike(name: str, folder: Path) -> None:
    flags = COMMAND_LINES[name]
    prefix = flags.get("--api-prefix") or ""
    ours, stock = (told(program, flags, folder, prefix) for program in (our_program(), stock_program()))
    assert list(differences(ours, stock)) == []


def told(program: Path, flags: Mapping[str, str | None], folder: Path, prefix: str) -> list[object]:
    """What a server says of how it was started, and what it answers."""
    port = free_port()
    server = ServerProcess([program, *arguments(flags, folder, port)])
    server.url = f"http://127.0.0.1:{port}{prefix}"
    try:
        assert server.answer_once_it_listens("/health", awaited=503, headers=AUTHORIZED).status_code == 200
        chat = server.post("/v1/chat/completions", CHAT, headers=AUTHORIZED)
        said = [server.get(path, headers=AUTHORIZED) for path in ("/props", "/v1/models")]
        return [chat.status_code, *(normalised(response.json()) for response in (chat, *said))]
    finally:
        server.kill()


@pytest.mark.parametrize("flag", ENDING)
def test_a_flag_that_ends_the_program_ends_both_alike(flag: str) -> None:
    our_code, *ours = outcome(our_program(), *ENDING[flag].split(" "))
    stock_code, *stock = outcome(stock_program(), *ENDING[flag].split(" "))
    assert our_code == stock_code
    shown = [complaints(printed) for printed in ours]
    wanted = [complaints(printed) for printed in stock]
    if flag == "--usage":  # ours come first
        shown[0] = shown[0][-len(wanted[0]) :]
    assert shown == wanted


@pytest.mark.parametrize("flag", HUB)
def test_a_model_of_the_hub_that_is_not_here_ends_an_offline_start_and_ours_says_which(
    flag: str, tmp_path: Path
) -> None:
    environment = {"LLAMA_CACHE": str(tmp_path), "PATH": "/usr/bin:/bin"}
    for program in (our_program(), stock_program()):
        done = subprocess.run(
            [program, flag, "--offline", "--port", "0"],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 1, done.stderr
        if program == our_program():
            assert re.search(r"-hf \S+/\S+", done.stderr), done.stderr


def test_what_is_tested_elsewhere_is_named_there() -> None:
    for flag, (file, spelling) in ELSEWHERE.items():
        assert spelling in (Path(__file__).parent / file).read_text(encoding="utf-8"), flag
