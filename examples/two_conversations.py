"""Two conversations in one context: one is saved, dropped, restored as another sequence, and goes on unchanged.

    .venv/bin/python examples/two_conversations.py model.gguf

Prints both runs and exits with 1 if the restored conversation is not, token for token, the uninterrupted one.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pyggml import Batch, Context, ContextParams, Model, Sampler

N_BEFORE = 20  # tokens before the save
N_AFTER = 30  # tokens after the restore


class Conversation:
    """A greedy chat in one sequence of a context, one token at a time."""

    def __init__(self, context: Context, model: Model, seq_id: int, question: str):
        self.context = context
        self.model = model
        self.seq_id = seq_id
        prompt = model.apply_chat_template([("user", question)])
        self.pending: Sequence[int] = model.vocab.tokenize(prompt, parse_special=True).tolist()
        self.answer: list[int] = []

    def go_on(self, n_tokens: int) -> None:
        with Sampler(self.model).greedy() as sampler:
            for _ in range(n_tokens):
                end = self.context.seq_pos_max(self.seq_id)
                first = 0 if end is None else end + 1
                positions = range(first, first + len(self.pending))
                self.context.decode(Batch.from_arrays(self.pending, positions, self.seq_id))
                token = sampler.sample(self.context)
                self.answer.append(token)
                self.pending = [token]

    @property
    def text(self) -> str:
        return self.model.vocab.detokenize(self.answer, unparse_special=True)


def uninterrupted(model: Model, params: ContextParams, question: str) -> list[int]:
    with Context(model, params) as context:
        alone = Conversation(context, model, 0, question)
        alone.go_on(N_BEFORE + N_AFTER)
        return alone.answer


def main(path: str) -> int:
    params = ContextParams(n_ctx=512, n_seq_max=3, n_threads=2, n_threads_batch=2)
    question = "Write two sentences about the sea."
    with Model(path) as model, Context(model, params) as context:
        expected = uninterrupted(model, params, question)

        first = Conversation(context, model, 0, question)
        second = Conversation(context, model, 1, "What is bread made of?")
        first.go_on(N_BEFORE)
        second.go_on(5)

        state = context.save_state(first.seq_id)
        context.seq_remove(first.seq_id)
        print(f"saved {len(state)} bytes; cells in use without the first conversation: {context.n_cells_used()}")
        second.go_on(N_AFTER)

        first.seq_id = 2
        context.restore_state(state, first.seq_id)
        print(f"restored as sequence {first.seq_id}; cells in use: {context.n_cells_used()}")
        first.go_on(N_AFTER)

        print(f"\nfirst:  {first.text}\n\nsecond: {second.text}\n")
        same = first.answer == expected
        print("the same tokens as uninterrupted" if same else "DIFFERENT from the uninterrupted conversation")
        return 0 if same else 1


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
