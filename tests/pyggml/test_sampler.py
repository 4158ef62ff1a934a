"""Sampler chains."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import pytest

from pyggml import Batch, Context, InvalidArgumentError, Model, Sampler
from tests.pyggml.conftest import Tokens


@pytest.fixture
def decoded(context: Context, story: Tokens) -> Context:
    context.decode(Batch.from_arrays(story, range(len(story))))
    return context


@pytest.fixture
def sampler(model: Model) -> Iterator[Sampler]:
    with Sampler(model) as sampler:
        yield sampler


def test_greedy_takes_the_most_likely_token(decoded: Context, sampler: Sampler) -> None:
    assert sampler.greedy().sample(decoded) == decoded.logits().argmax()


def test_a_seed_makes_chance_repeatable(decoded: Context, model: Model) -> None:
    def draw(seed: int) -> list[int]:
        with Sampler(model).temp(1.5).dist(seed) as sampler:
            return [sampler.sample(decoded) for _ in range(12)]

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)


def test_a_reset_starts_chance_again(decoded: Context, sampler: Sampler) -> None:
    sampler.temp(1.5).dist(5)
    first = [sampler.sample(decoded) for _ in range(6)]
    sampler.reset()
    assert [sampler.sample(decoded) for _ in range(6)] == first


def test_a_clone_goes_on_where_its_original_is(decoded: Context, sampler: Sampler) -> None:
    sampler.temp(1.5).dist(5)
    sampler.sample(decoded)
    with sampler.clone() as clone:
        assert [clone.sample(decoded) for _ in range(6)] == [sampler.sample(decoded) for _ in range(6)]


@pytest.mark.parametrize(
    "narrow",
    [
        lambda s: s.top_k(1),
        lambda s: s.top_p(1e-6),
        lambda s: s.min_p(1.0),
        lambda s: s.temp(0.0),
    ],
)
def test_a_chain_narrowed_to_one_token_is_greedy(
    decoded: Context, sampler: Sampler, narrow: Callable[[Sampler], Sampler]
) -> None:
    assert narrow(sampler).dist(3).sample(decoded) == decoded.logits().argmax()


def test_a_bias_excludes_a_token(decoded: Context, sampler: Sampler) -> None:
    best = int(decoded.logits().argmax())
    assert sampler.logit_bias({best: -math.inf}).greedy().sample(decoded) != best


def test_a_repeated_token_becomes_less_likely(decoded: Context, sampler: Sampler) -> None:
    best = int(decoded.logits().argmax())
    sampler.penalties(32, repeat=10.0, presence=10.0).greedy()
    sampler.accept(best)
    assert sampler.sample(decoded) != best


def test_a_grammar_decides_what_may_follow(decoded: Context, model: Model, sampler: Sampler) -> None:
    sampler.grammar('root ::= "colour" " is " ("red" | "blue")').greedy()
    text = b""
    while not text.endswith((b"red", b"blue")):
        text += model.vocab.piece(sampler.sample(decoded))
    assert text in (b"colour is red", b"colour is blue")
    assert model.vocab.is_end(sampler.sample(decoded))


def test_a_grammar_without_a_way_on_says_so(decoded: Context, model: Model, sampler: Sampler) -> None:
    excluded = {token: -math.inf for token in range(model.vocab.n_tokens) if model.vocab.piece(token)[:1] in b"ab"}
    sampler.logit_bias(excluded).grammar('root ::= "ab"').greedy()
    with pytest.raises(InvalidArgumentError, match="no token is left"):
        sampler.sample(decoded)


@pytest.mark.parametrize(
    ("grammar", "match"),
    [
        ('root ::= "a"{2,1}', "cannot parse the grammar"),
        ('root ::= "' + "a" * 500_000 + '"{2000}', "too much memory"),
        ("root ::= " + "(" * 200_000 + '"a"' + ")" * 200_000, "nested too deeply"),
    ],
    ids=["wraps", "large", "deep"],
)
def test_a_grammar_that_would_take_the_machine_is_refused(sampler: Sampler, grammar: str, match: str) -> None:
    with pytest.raises(InvalidArgumentError, match=match):
        sampler.grammar(grammar)


@pytest.mark.parametrize(
    ("step", "match"),
    [
        (lambda s: s.grammar("this is no grammar"), "cannot parse the grammar"),
        (lambda s: s.grammar('start ::= "a"'), "cannot parse the grammar"),
        (lambda s: s.grammar(""), "empty"),
        (lambda s: s.logit_bias({49152: 1.0}), "bias"),
        (lambda s: s.logit_bias({1: math.nan}), "bias"),
        (lambda s: s.temp(math.nan), "temperature is nan"),
        (lambda s: s.dist(-1), "seed is -1"),
        (lambda s: s.penalties(64, repeat=0.0), "repeat 0.0"),
        (lambda s: s.greedy().top_k(3), "already ends"),
        (lambda s: s.accept(49152), "not in the vocabulary"),
    ],
)
def test_wrong_arguments_are_refused(sampler: Sampler, step: Callable[[Sampler], object], match: str) -> None:
    with pytest.raises(InvalidArgumentError, match=match):
        step(sampler)
