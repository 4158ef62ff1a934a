"""What `serve run pyggml_server.ray:app` takes."""

from __future__ import annotations

import pytest
from pyggml_server.ray.arguments import ArgumentError, Arguments, read_arguments


def test_what_is_not_for_ray_is_a_flag_of_the_server() -> None:
    given = {"model": "a.gguf", "replicas": "2", "ctx_size": "8192", "np": "4", "c": 5, "kv_unified": "true"}
    read = read_arguments(given)
    assert read.replicas == 2
    assert read.argv == ("--model", "a.gguf", "--ctx-size", "8192", "-np", "4", "-c", "5", "--kv-unified")


def test_a_config_file_gives_values_and_a_command_line_text() -> None:
    assert read_arguments({"replicas": 3, "kv_unified": True}) == read_arguments(
        {"replicas": "3", "kv_unified": "true"}
    )


def test_false_switches_off_and_flags_come_as_they_are() -> None:
    given = {"mmap": False, "flags": "-np 4 --alias 'two words'", "flash_attn": "on"}
    assert read_arguments(given).argv == ("--no-mmap", "-np", "4", "--alias", "two words", "--flash-attn", "on")


def test_nothing_given_is_one_replica_that_does_not_scale() -> None:
    assert read_arguments({}) == Arguments()
    assert not read_arguments({"replicas": "2"}).scales
    assert read_arguments({"replicas": "2", "max_replicas": "4"}).scales


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"replicas": "two"}, "replicas=two: not a whole number"),
        ({"replicas": "0"}, "replicas=0: at least 1"),
        ({"replicas": "3", "max_replicas": "2"}, "max_replicas=2: at least replicas=3"),
        ({"cpus": "many"}, "cpus=many: not a number"),
        ({"drain_s": "inf"}, "drain_s=inf: 0 or more"),
        ({"target_pressure": "0"}, "target_pressure=0: above 0"),
        ({"max_ongoing_requests": 0}, "max_ongoing_requests=0: at least 1"),
        ({"routing": "random"}, "routing=random: one of session, any"),
        ({"port": "8080"}, "--port is not for a replica; Ray's proxy listens"),
        ({"flags": "--ssl_key_file=a.pem"}, "--ssl-key-file is not for a replica"),
    ],
)
def test_what_is_wrong_is_named_with_what_would_be_right(given: dict[str, object], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        read_arguments(given)
