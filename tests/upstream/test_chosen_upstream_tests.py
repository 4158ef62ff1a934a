"""A fast part of llama-server's own tests, against both servers: one or two of each kind. All of them:
`scripts/upstream-suite`."""

from __future__ import annotations

import pytest

from tests.e2e.program import our_program, stock_program
from tests.upstream.run import run
from tests.upstream.verdict import DEBT_FILE, judge, read_debt

pytestmark = pytest.mark.slow

CHOSEN = (
    "unit/test_basic.py::test_server_props",
    "unit/test_basic.py::test_server_slots",
    "unit/test_basic.py::test_server_model_aliases_and_tags",
    "unit/test_chat_completion.py::test_invalid_chat_completion_req",
    "unit/test_chat_completion.py::test_logprobs_stream",
    "unit/test_compat_anthropic.py::test_anthropic_messages_basic",
    "unit/test_compat_anthropic.py::test_anthropic_messages_streaming",
    "unit/test_completion.py::test_completion_with_tokens_input",
    "unit/test_completion.py::test_completion_parallel_slots",
    "unit/test_completion.py::test_cancel_request",
    "unit/test_embedding.py::test_embedding_multiple",
    "unit/test_embedding.py::test_embedding_openai_library_base64",
    "unit/test_ignore_eos.py",
    "unit/test_infill.py",
    "unit/test_kv_keep_only_active.py",
    "unit/test_lora.py",
    "unit/test_mcp_servers.py::test_mcp_tool_invocation",
    "unit/test_metrics.py::test_metrics_prometheus_format",
    "unit/test_rerank.py::test_rerank",
    "unit/test_security.py::test_correct_api_key",
    "unit/test_security.py::test_cors_options",
    "unit/test_security.py::test_cors_proxy_only_forwards_explicit_proxy_headers",
    "unit/test_tokenize.py",
    "unit/test_tools_builtin.py::test_tools_builtin_exec_shell_command_stream",
    "unit/test_tools_builtin.py::test_tools_builtin_write_then_edit_file",
)
N_PASSED_BY_STOCK = 49  # or more: fewer means that the models or the suite are not what they were


def test_pyggml_server_passes_what_llama_server_passes_but_for_the_debt() -> None:
    stock = run("chosen-stock", stock_program(), CHOSEN)
    ours = run("chosen-ours", our_program(), CHOSEN)
    verdict = judge(stock, ours, read_debt(DEBT_FILE.read_text(encoding="utf-8")))
    assert verdict.grown == []
    assert verdict.paid == []
    assert len(verdict.both) >= N_PASSED_BY_STOCK
