"""Every way in which a start can fail: one line names what is wrong and what to do, the exit code is 1, and nobody sees
a traceback. llama-server ends too wherever ours does."""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import StartServer
from tests.e2e.program import FOREIGN_PREFIXES, PATIENCE_S, our_program, stock_program
from tests.native.conftest import NativeTests, native_tests
from tests.upstream.chain_model import Chain, write_chain_model
from tests.upstream.vocabulary import read_vocabulary

__all__ = ["native_tests"]

GIB = 1024 * 1024 * 1024
NO_HUB = {"HF_ENDPOINT": "http://127.0.0.1:1"}  # nobody listens there
MISSING = "{here}/missing"
PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 24, 1, 2  # of Linux

#: Flags, and words of the one line that says it. `{model}` is a model, `{here}` the folder of `make_files`.
WITHOUT_MODEL: dict[str, tuple[list[str], list[str]]] = {
    "no such file": (["-m", MISSING], [MISSING, "there is no such file", "-hf"]),
    "a folder": (["-m", "{here}"], ["it is a folder: name a file in it"]),
    "no model": (["-m", "{here}/text.gguf"], ["text.gguf", "no GGUF file", "convert_hf_to_gguf.py"]),
    "an empty file": (["-m", "{here}/empty.gguf"], ["empty.gguf", "it is empty: download it again"]),
    "a file that is cut short": (["-m", "{here}/cut.gguf"], ["cut.gguf", "not within the file bounds", "download it"]),
    "a header and no more": (["-m", "{here}/head.gguf"], ["head.gguf", "download it again"]),
    "a hub that cannot be reached": (["-hf", "user/model"], ["-hf user/model", "Connection refused"]),
    "nothing in the cache": (["-hf", "user/model", "--offline"], ["--offline", "start once without"]),
    "no such flag": (["--frobnicate"], ["invalid argument: --frobnicate"]),
    "no such folder of models": (["--models-dir", MISSING], [MISSING, "is not a directory"]),
    "no such presets": (["--models-preset", MISSING], [MISSING, "does not exist"]),
}
WITH_MODEL: dict[str, tuple[list[str], list[str]]] = {
    "a flag without its value": (["-c"], ["-c", "expected value for argument"]),
    "no number": (["-c", "many"], ["-c"]),
    "a host that does not exist": (["--host", "host.invalid"], ["host.invalid", "see --host"]),
    "no folder for slots": (["--slot-save-path", MISSING], ["--slot-save-path", MISSING]),
    "a file as a folder for slots": (["--slot-save-path", "{here}/text.gguf"], ["--slot-save-path", "text.gguf"]),
    "no such file of keys": (["--api-key-file", MISSING], ["--api-key-file", MISSING]),
    "no TLS files": (["--ssl-key-file", MISSING, "--ssl-cert-file", MISSING], [MISSING, "take PEM files"]),
    "bad TLS files": (
        ["--ssl-key-file", "{here}/text.gguf", "--ssl-cert-file", "{here}/text.gguf"],
        ["text.gguf", "take PEM files"],
    ),
    "no such type of the cache": (["-ctk", "q9_9"], ["q9_9"]),
    "a type that needs flash attention": (["-ctv", "q4_0", "-fa", "off"], ["quantized V cache requires flash_attn"]),
    "too many slots": (["-np", "1000"], ["n_seq_max must be <= 256"]),
    "no slots": (["-np", "0"], ["-np"]),
    "no such adapter": (["--lora", MISSING], ["--lora", MISSING, "there is no such file"]),
    "a folder as an adapter": (["--lora-scaled", "{here}:0.5"], ["--lora", "it is a folder: name a file"]),
    "a text as an adapter": (["--lora", "{here}/text.gguf"], ["--lora", "text.gguf", "convert_lora_to_gguf.py"]),
    "no adapter": (["--lora", "{model}"], ["failed to create a context"]),
    "no such draft model": (["-md", MISSING], ["draft model", MISSING, "there is no such file"]),
    "no draft model": (["-md", "{here}/text.gguf"], ["draft model", "text.gguf", "no GGUF file"]),
    "a draft model that is cut short": (["-md", "{here}/cut.gguf"], ["draft model", "cut.gguf", "download it again"]),
    "no such template": (["--chat-template-file", MISSING], [MISSING]),
    "a bad template": (["--jinja", "--chat-template", "{% for %}"], ["using another chat template"]),
    "no such grammar": (["--grammar-file", MISSING], [MISSING]),
    "no such page": (["--path", MISSING], ["static assets path not found", MISSING]),
    "no such tool": (["--tools", "frobnicate"], ["frobnicate", "available tools"]),
    "no such servers of tools": (["--mcp-servers-config", MISSING], [MISSING, "failed to open"]),
    "no such device": (["--device", "FROB0"], ["FROB0"]),
    "no such picture reader": (["--mmproj", MISSING], ["multimodal model", MISSING]),
}
OF_OURS: dict[str, tuple[list[str], list[str]]] = {
    "too much staging memory": (["--preempt-staging", "99999999"], ["--preempt-staging", "99999999", "range"]),
    "no host memory": (["--preempt-ram", "-5"], ["--preempt-ram", "-5"]),
    "no such policy": (["--preempt-policy", "best"], ["--preempt-policy", "best", "smallest"]),
    "no folder for parked states": (
        ["--preempt-disk", "100", "--disk-path", MISSING],
        ["no file can be made in", MISSING, "name another folder with --disk-path"],
    ),
    "a folder in which nobody can make files": (
        ["--preempt-disk", "100", "--disk-path", "/proc"],
        ["no file can be made in /proc", "name another folder with --disk-path"],
    ),
    "no file of priorities": (["--priority-keys", MISSING], ["--priority-keys", MISSING]),
}
#: llama-server aborts at these, or starts without what was asked for: open to anybody, or without the vector.
OF_SIZES: dict[str, tuple[list[str], list[str]]] = {
    "a context below nothing": (["-c", "-5"], ["--ctx-size -5", "0 for the model's own"]),
    "a batch of nothing": (["-b", "0"], ["--batch-size 0", "1 or more"]),
    "no grammar": (["--grammar", "root : a"], ["--grammar", "root : a", "grammars/README.md", "leave it out"]),
    "a folder as a file of keys": (["--api-key-file", "{here}"], ["--api-key-file", "it is a folder: name a file"]),
    "a file without keys": (["--api-key-file", "{here}/empty.gguf"], ["--api-key-file", "write a key on a line"]),
    "no control vector": (
        ["--control-vector", "{model}"],
        ["--control-vector", "{model}", "no control vector", "llama-cvector-generator"],
    ),
}
#: Of files that their mode lets nobody read.
NOT_READABLE: dict[str, tuple[list[str], list[str]]] = {
    "a model": (["-m", "{here}/secret.gguf"], ["secret.gguf", "Permission denied", "see to its owner and mode"]),
    "a file of keys": (
        ["-m", "{model}", "--api-key-file", "{here}/secret.gguf"],
        ["--api-key-file", "secret.gguf", "Permission denied", "see to its owner and mode"],
    ),
    "a grammar": (
        ["-m", "{model}", "--grammar-file", "{here}/secret.gguf"],
        ["--grammar-file", "secret.gguf", "Permission denied", "see to its owner and mode"],
    ),
    "a draft model": (
        ["-m", "{model}", "-md", "{here}/secret.gguf"],
        ["draft model", "secret.gguf", "Permission denied", "see to its owner and mode"],
    ),
}


@pytest.fixture(scope="module")
def here(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    whole = smollm2_path.read_bytes()
    (folder / "text.gguf").write_text("no model\n" * 100)
    (folder / "empty.gguf").touch()
    (folder / "cut.gguf").write_bytes(whole[: len(whole) // 2])
    (folder / "head.gguf").write_bytes(whole[:200])
    (folder / "secret.gguf").write_bytes(whole[:200])
    (folder / "secret.gguf").chmod(0)
    return folder


def obey_modes() -> None:
    """Whoever this process is, root too, may open only what the modes of files let it."""
    for capability in CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH:
        ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


def limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (6 * GIB, 6 * GIB))


def outcome(
    program: Path, flags: list[str], environment: dict[str, str], before: Callable[[], None] | None = None
) -> tuple[int, list[str]]:
    """Exit code, and the lines that it printed."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN_PREFIXES)}
    done = subprocess.run(
        [program, *flags],
        env={**own, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        preexec_fn=before,
    )
    return done.returncode, (done.stdout + done.stderr).splitlines()


def assert_it_says(lines: list[str], words: list[str]) -> None:
    printed = "\n".join(lines)
    assert "Traceback" not in printed, printed
    assert [line for line in lines if all(word in line for word in words)], f"no line has {words}:\n{printed}"


CASES = [(flags, words, False) for flags, words in WITHOUT_MODEL.values()]
CASES += [(flags, words, True) for flags, words in WITH_MODEL.values()]


@pytest.mark.parametrize(("flags", "words", "has_model"), CASES, ids=[*WITHOUT_MODEL, *WITH_MODEL])
def test_it_is_said_in_one_line_and_llama_server_ends_too(
    here: Path, smollm2_path: Path, tmp_path: Path, flags: list[str], words: list[str], has_model: bool
) -> None:
    def filled(text: str) -> str:
        return text.replace("{here}", str(here)).replace("{model}", str(smollm2_path))

    model = ["-m", str(smollm2_path)] if has_model else []
    all_flags = [*model, "--port", "0", "-t", "1", *map(filled, flags)]
    environment = {**NO_HUB, "LLAMA_CACHE": str(tmp_path)}
    code, lines = outcome(our_program(), all_flags, environment)
    assert code == 1
    assert_it_says(lines, [*map(filled, words)])
    assert outcome(stock_program(), all_flags, environment)[0] == 1


@pytest.mark.parametrize(("flags", "words"), [*OF_OURS.values(), *OF_SIZES.values()], ids=[*OF_OURS, *OF_SIZES])
def test_so_it_is_for_flags_of_our_own(here: Path, smollm2_path: Path, flags: list[str], words: list[str]) -> None:
    def filled(text: str) -> str:
        return text.replace("{here}", str(here)).replace("{model}", str(smollm2_path))

    more = ["-c", "256", "-t", "1", "--no-warmup", "-fit", "off"]
    code, lines = outcome(our_program(), ["-m", str(smollm2_path), "--port", "0", *more, *map(filled, flags)], {})
    assert code == 1
    assert_it_says(lines, [*map(filled, words)])


@pytest.mark.parametrize(("flags", "words"), NOT_READABLE.values(), ids=NOT_READABLE)
def test_a_file_that_may_not_be_read_is_named(
    here: Path, smollm2_path: Path, flags: list[str], words: list[str]
) -> None:
    filled = [flag.replace("{here}", str(here)).replace("{model}", str(smollm2_path)) for flag in flags]
    all_flags = [*filled, "--port", "0", "-t", "1", "-c", "256", "--no-warmup", "-fit", "off"]
    code, lines = outcome(our_program(), all_flags, {}, obey_modes)
    assert code == 1
    assert_it_says(lines, words)
    assert outcome(stock_program(), all_flags, {}, obey_modes)[0] == 1


def test_a_context_that_memory_cannot_hold_names_what_to_lower(smollm2_path: Path) -> None:
    flags = ["-m", str(smollm2_path), "--port", "0", "-t", "1", "-c", "1000000", "-fit", "off", "--no-warmup"]
    code, lines = outcome(our_program(), flags, {}, limit_memory)
    assert code == 1
    assert_it_says(lines, ["failed to create a context", "lower -c, -np or the batch size"])
    assert outcome(stock_program(), flags, {}, limit_memory)[0] == 1


def test_staging_memory_that_the_device_does_not_have_is_named(smollm2_path: Path, native_tests: NativeTests) -> None:
    flags = ["-m", str(smollm2_path), "--port", "0", "-t", "1", "-c", "512", "-ngl", "99", "-fit", "off"]
    on_simdev = {"GGML_BACKEND_PATH": str(native_tests.simdev)}
    code, lines = outcome(our_program(), [*flags, "--preempt-staging", "16000"], on_simdev, limit_memory)
    assert code == 1
    assert_it_says(lines, ["failed to create a context", "--preempt-staging, which is 16000 MiB on each device"])


def test_a_draft_model_of_another_vocabulary_is_left_out_with_a_warning(
    start_ours: StartServer, tmp_path: Path
) -> None:
    """As in llama-server, the server answers without guesses."""
    write_chain_model(tmp_path / "other.gguf", read_vocabulary("llama-spm"), Chain(("▁little", "▁wise", "▁day")))
    with start_ours("-md", str(tmp_path / "other.gguf"), "--spec-type", "draft-simple") as server:
        warning = next(line for line in server.lines if "is not used" in line)
        assert f"draft model '{tmp_path / 'other.gguf'}'" in warning
        assert "leave -md out" in warning
        assert server.post("/completion", {"prompt": "Hi", "n_predict": 2}).json()["tokens_predicted"] == 2
