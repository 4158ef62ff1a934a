"""The command line program llm against the server at $URL: prints what it got (`works`), or its words (`mistakes`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

PROGRAM = Path(sys.executable).with_name("llm")


def works() -> dict[str, object]:
    return {"whole": run(os.environ["HELLO"], "--no-stream")[1], "stream": run(os.environ["HELLO"])[1]}


def mistakes() -> dict[str, object]:
    return {
        "wrong key": run(os.environ["HELLO"], key="wrong"),
        "too long": run(os.environ["TOO_LONG"]),
        "loading": run(os.environ["HELLO"], url=os.environ["LOADING_URL"]),
    }


def run(text: str, *options: str, key: str = os.environ["KEY"], url: str = os.environ["URL"]) -> list[object]:
    """Exit code, and what it printed on its two streams."""
    with TemporaryDirectory() as folder:
        model = f"- model_id: ours\n  model_name: any\n  api_base: {url}\n  api_key_name: ours\n"
        Path(folder, "extra-openai-models.yaml").write_text(model, encoding="utf-8")
        done = subprocess.run(
            [PROGRAM, "-m", "ours", "-o", "temperature", "0", "-o", "max_tokens", "5", "--key", key, *options, text],
            env={**os.environ, "LLM_USER_PATH": folder},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    return [done.returncode, done.stdout.strip(), done.stderr.strip()]


if __name__ == "__main__":
    print(json.dumps({"works": works, "mistakes": mistakes}[sys.argv[1]]()))
