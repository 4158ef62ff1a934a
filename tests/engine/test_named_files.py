"""Files and folders that the command line names: what cannot be used ends the start in one line that names the value
and the remedy, or is warned of where the server can do without."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from pyggml_server.errors import UsageError
from pyggml_server.native.command_line import CommandLine
from pyggml_server.native.log import flush_log

FOLDER = "'{here}': it is a folder: name a file"
NO_JSON = ": it is not JSON: "
NO_KEY = "there is no key in it, and without one anybody could use this server: write a key on a line of its own"
OF_LORA = "no GGUF file: convert the adapter with llama.cpp's convert_lora_to_gguf.py"
OF_VECTOR = "no GGUF file: make one with llama.cpp's llama-cvector-generator"
REFUSED = [
    *(
        (flag, "{here}", f"{flag} {FOLDER}")
        for flag in (
            "--grammar-file",
            "--json-schema-file",
            "--chat-template-file",
            "--ui-config-file",
            "--mcp-servers-config",
            "--api-key-file",
            "--models-preset",
        )
    ),
    *(
        (flag, f"{{here}}/{file}", f"{flag} '{{here}}/{file}'{NO_JSON}")
        for flag, file in (
            ("--json-schema-file", "empty"),
            ("--json-schema-file", "text"),
            ("--ui-config-file", "text"),
            ("--mcp-servers-config", "empty"),
            ("--mcp-servers-config", "text"),
        )
    ),
    ("--ui-config", "no json", f"--ui-config 'no json'{NO_JSON}"),
    ("--api-key-file", "{here}/empty", f"--api-key-file '{{here}}/empty': {NO_KEY}"),
    ("--api-key-file", "{here}/comments", f"--api-key-file '{{here}}/comments': {NO_KEY}"),
    ("--lora", "{here}", f"--lora {FOLDER}"),
    ("--lora", "{here}/missing", "--lora '{here}/missing': there is no such file"),
    ("--lora", "{here}/text", f"--lora '{{here}}/text': {OF_LORA}"),
    ("--lora-scaled", "{here}/empty:0.5", f"--lora '{{here}}/empty': {OF_LORA}"),
    ("--control-vector", "{here}", f"--control-vector {FOLDER}"),
    ("--control-vector", "{here}/missing", "--control-vector '{here}/missing': there is no such file"),
    ("--control-vector-scaled", "{here}/text:2", f"--control-vector '{{here}}/text': {OF_VECTOR}"),
]
WARNED = [
    (
        "--ssl-key-file",
        "{here}/text",
        "--ssl-key-file '{here}/text': connections are not encrypted without --ssl-cert-file",
    ),
    ("--ssl-cert-file", "{here}/text", "--ssl-cert-file '{here}/text': connections are not encrypted without"),
    ("--log-file", "{here}", "--log-file '{here}': it cannot be written (it is a folder)"),
    ("--log-file", "{here}/missing/log", "--log-file '{here}/missing/log': it cannot be written (No such file"),
    ("--slot-save-path", "/proc/self/task", "--slot-save-path '/proc/self/task/': nothing can be written in it"),
]
HARMLESS = [  # as in llama-server
    ("--grammar-file", "{here}/empty"),
    ("--chat-template-file", "{here}/empty"),
    ("--ui-config-file", "{here}/empty"),
    ("--api-key-file", "{here}/keys"),
    ("--slot-save-path", "{here}"),
]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    (folder / "empty").touch()
    (folder / "text").write_text("no thing\n")
    (folder / "comments").write_text("# none yet\n\n")
    (folder / "keys").write_text("# mine\nsesame\n")
    return folder


def warnings_of(capfd: pytest.CaptureFixture[str]) -> list[str]:
    flush_log()  # another thread writes them
    return [line for line in capfd.readouterr().err.splitlines() if " W " in line]


@pytest.mark.parametrize(("flag", "value", "words"), REFUSED)
def test_what_cannot_be_used_ends_the_start(here: Path, flag: str, value: str, words: str) -> None:
    with pytest.raises(UsageError) as refused:
        CommandLine.parse([flag, value.format(here=here)])
    assert str(refused.value).startswith("error: " + words.format(here=here))
    assert "\n" not in str(refused.value)


def test_a_variable_of_the_environment_is_looked_at_too(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMA_ARG_API_KEY_FILE", str(here))
    with pytest.raises(UsageError, match=r"LLAMA_ARG_API_KEY_FILE '.*': it is a folder: name a file"):
        CommandLine.parse([])


@pytest.mark.parametrize(("flag", "value", "words"), WARNED)
def test_what_the_server_does_without_is_warned_of(
    here: Path, flag: str, value: str, words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    CommandLine.parse([flag, value.format(here=here)])
    (warning,) = warnings_of(capfd)
    assert words.format(here=here) in warning


@pytest.mark.parametrize(("flag", "value"), HARMLESS)
def test_nothing_is_said_of_the_others(here: Path, flag: str, value: str, capfd: pytest.CaptureFixture[str]) -> None:
    CommandLine.parse([flag, value.format(here=here)])
    assert warnings_of(capfd) == []


def test_a_file_without_a_key_does_no_harm_beside_one_that_is_given(here: Path) -> None:
    line = CommandLine.parse(["--api-key", "sesame", "--api-key-file", str(here / "empty")])
    assert line.settings.api_keys == ("sesame",)


def test_a_pipe_is_left_to_who_reads_it(here: Path) -> None:
    """As a shell's <(command) is one: what is taken from it is gone, and without a writer an open waits."""
    keys, adapter = here / "keys.pipe", here / "adapter.pipe"
    os.mkfifo(keys)
    os.mkfifo(adapter)
    writer = threading.Thread(target=keys.write_text, args=("sesame\n",), daemon=True)
    writer.start()
    line = CommandLine.parse(["--api-key-file", str(keys), "--lora", str(adapter)])
    writer.join()
    assert line.settings.api_keys == ("sesame",)


def test_values_that_look_like_flags_are_values(here: Path) -> None:
    """What stands behind a flag is its value, whatever it is."""
    line = CommandLine.parse(["--alias", "--api-key-file", "--api-prefix", f"/{here.name}"])
    assert line.settings.model_name == "--api-key-file"
