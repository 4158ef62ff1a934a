"""A chat template that does with `chat_template_kwargs` what would take all of the time, memory or stack."""

from __future__ import annotations

from typing import Any

MANY = 10**9

#: What it does where the body says `do`; else it is a plain template.
DEEDS = {
    "one loop": "{% for i in range(n) %}{{ i }}{% endfor %}",
    "nested loops": "{% for i in range(n) %}{% for j in range(n) %}{% for k in range(n) %}{% endfor %}{% endfor %}"
    "{% endfor %}",
    "a repeated string": "{{ 'a' * n }}",
    "a string that doubles": "{% set s = namespace(t='a') %}{% for i in range(60) %}{% set s.t = s.t ~ s.t %}"
    "{% endfor %}",
    "a string of one part that doubles": "{% set s = namespace(t='a') %}{% for i in range(60) %}"
    "{% set s.t = (s.t ~ s.t) | replace('b', 'c') %}{% endfor %}",
    "an array that doubles": "{% set s = namespace(t=[1]) %}{% for i in range(60) %}{% set s.t = s.t + s.t %}"
    "{% endfor %}",
    "an indentation": "{{ [[[1]]] | tojson(indent=n) }}",
    "a macro that calls itself": "{% macro f(m) %}{{ f(m) }}{% endmacro %}{{ f(n) }}",
    "a test of every pair": "{% for i in range(n) %}{% if i in range(n) %}{% endif %}{% endfor %}",
}
MESSAGES = "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
TEMPLATE = (
    "".join(
        f"{{% {'elif' if i else 'if'} do is defined and do == '{name}' %}}{text}"
        for i, (name, text) in enumerate(DEEDS.items())
    )
    + f"{{% else %}}{MESSAGES}{{% endif %}}{{% if add_generation_prompt %}}assistant: {{% endif %}}"
)


def hungry_chat(deed: str, n: int = MANY) -> dict[str, Any]:
    """A body that makes the template do it."""
    kwargs = {"do": deed, "n": n}
    return {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1, "chat_template_kwargs": kwargs}


def endless_chat(cpu_s: float) -> dict[str, Any]:
    """One that takes little memory and no end, and may take so much CPU time: the bound grows by 10 s for each MB."""
    return {**hungry_chat("nested loops", n=3000), "user": "x" * int(cpu_s * 100_000)}
