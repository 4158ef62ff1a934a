"""A search by meaning: embeds a few sentences and ranks them by their similarity to your query.

    ./scripts/serve --embeddings --pooling mean            # in another terminal; any embedding model is better
    .venv/bin/python examples/embedding_search.py QUERY [URL]         # URL: http://127.0.0.1:8080/v1

Prints the sentences, the most similar first, each with its cosine similarity.
"""

from __future__ import annotations

import sys

import numpy as np
from openai import OpenAI

URL = "http://127.0.0.1:8080/v1"
SENTENCES = [
    "The pool is full, so one chat waits in host memory.",
    "Bread is made of flour, water and salt.",
    "The Baltic is a shallow sea.",
    "A cell holds the keys and values of one token.",
]


def embed(client: OpenAI, texts: list[str]) -> np.ndarray:
    """One row of unit length per text."""
    answer = client.embeddings.create(model="default", input=texts)
    rows = np.array([item.embedding for item in answer.data])
    unit: np.ndarray = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit


def main(query: str, url: str = URL) -> None:
    client = OpenAI(base_url=url, api_key="none")
    rows = embed(client, [query, *SENTENCES])
    similarities = rows[1:] @ rows[0]
    for index in np.argsort(-similarities):
        print(f"{similarities[index]:.3f}  {SENTENCES[index]}")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(*sys.argv[1:3])
