"""langchain-openai, litellm and llm: a chat, a stream, tools, and each one's own exceptions. They are in the extra
`clients`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.clients import (
    CITIES,
    GREETING,
    KEY,
    OPENING,
    QUESTION,
    TOO_LONG,
    TOO_LONG_MESSAGE,
    WEATHER,
    is_missing,
    module,
)
from tests.e2e.program import PATIENCE_S, ServerProcess

# their own deprecations are not ours to mend
pytestmark = pytest.mark.filterwarnings("default")
TOOLS = [{"type": "function", "function": {"name": "rain", "description": "Weather", "parameters": WEATHER}}]


class TestLangchain:
    def model(self, keyed: ServerProcess, key: str = KEY, max_tokens: int = 5) -> Any:
        options = {"temperature": 0, "max_tokens": max_tokens, "max_retries": 0}
        return module("langchain_openai").ChatOpenAI(base_url=keyed.url + "/v1", api_key=key, model="any", **options)

    def test_chats_and_streams(self, keyed: ServerProcess) -> None:
        model = self.model(keyed)
        assert model.invoke("Hi").content == GREETING
        assert "".join(chunk.content for chunk in model.stream("Hi")) == GREETING

    def test_calls_tools(self, keyed: ServerProcess) -> None:
        model = self.model(keyed, max_tokens=100).bind_tools(TOOLS, tool_choice="required")
        model = model.bind(extra_body={"cache_prompt": False})  # what is reused of a prompt changes the text a little
        answer = model.invoke([("user", QUESTION), ("assistant", OPENING)])
        assert [call["args"] for call in answer.tool_calls] == [{"city": city} for city in CITIES]

    def test_raises_its_exceptions(self, keyed: ServerProcess) -> None:
        openai = module("openai")
        with pytest.raises(openai.AuthenticationError, match="Invalid API Key"):
            self.model(keyed, key="wrong").invoke("Hi")
        with pytest.raises(openai.BadRequestError, match=TOO_LONG_MESSAGE):
            self.model(keyed).invoke(TOO_LONG)


class TestLitellm:
    @pytest.fixture
    def litellm(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        # else it asks the network for prices when it is imported
        monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        return module("litellm")

    def ask(self, litellm: Any, keyed: ServerProcess, text: str = "Hi", key: str = KEY, **options: Any) -> Any:
        messages = [{"role": "user", "content": text}]
        address = {"model": "openai/any", "api_base": keyed.url + "/v1", "api_key": key}
        return litellm.completion(**address, messages=messages, max_tokens=5, temperature=0, **options)

    def test_chats_and_streams(self, litellm: Any, keyed: ServerProcess) -> None:
        assert self.ask(litellm, keyed).choices[0].message.content == GREETING
        chunks = self.ask(litellm, keyed, stream=True)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == GREETING

    def test_raises_its_exceptions(self, litellm: Any, keyed: ServerProcess) -> None:
        with pytest.raises(litellm.AuthenticationError, match="Invalid API Key"):
            self.ask(litellm, keyed, key="wrong")
        with pytest.raises(litellm.ContextWindowExceededError, match=TOO_LONG_MESSAGE):
            self.ask(litellm, keyed, TOO_LONG)


class TestLlm:
    """The command line program."""

    def run(self, keyed: ServerProcess, folder: Path, text: str, key: str = KEY) -> subprocess.CompletedProcess[str]:
        program = Path(sys.executable).with_name("llm")
        if not program.is_file():
            is_missing("llm is not installed: pip install -e '.[clients]'")
        model = f"- model_id: ours\n  model_name: any\n  api_base: {keyed.url}/v1\n  api_key_name: ours\n"
        (folder / "extra-openai-models.yaml").write_text(model)
        options = ["-o", "temperature", "0", "-o", "max_tokens", "5", "--key", key]
        return subprocess.run(
            [program, "-m", "ours", *options, text],
            env={**os.environ, "LLM_USER_PATH": str(folder)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    def test_chats(self, keyed: ServerProcess, tmp_path: Path) -> None:
        done = self.run(keyed, tmp_path, "Hi")
        assert (done.returncode, done.stdout.strip()) == (0, GREETING), done.stderr

    def test_says_what_is_wrong(self, keyed: ServerProcess, tmp_path: Path) -> None:
        assert "Invalid API Key" in self.run(keyed, tmp_path, "Hi", key="wrong").stderr
        assert "exceeds the available context size" in self.run(keyed, tmp_path, TOO_LONG).stderr
