"""Tokens to text piece by piece, each as soon as it is whole.

Knows nothing of models.
"""

from __future__ import annotations

from collections.abc import Callable

from neuroswarm.corpus.tokenizer import Tokenizer

UNKNOWN = "\N{REPLACEMENT CHARACTER}"
MAX_HELD = 8
"""Tokens that are held back for the rest of a character; what is none by then is shown so."""


class TextStream:
    """Shows the text of tokens as they come.

    Args:
        tokenizer: Makes text of them.
        show: Told every piece of text.
    """

    def __init__(self, tokenizer: Tokenizer, show: Callable[[str], None]) -> None:
        self._tokenizer = tokenizer
        self._show = show
        self._known: list[int] = []
        """Tokens whose text was shown last: what comes after may be spelled otherwise alone."""
        self._held: list[int] = []

    def put(self, token: int) -> None:
        """Take one token; shows text unless a character is still in the making."""
        self._held.append(token)
        piece = self._piece()
        if piece and (not piece.endswith(UNKNOWN) or len(self._held) >= MAX_HELD):
            self._show(piece)
            self._known, self._held = self._held, []

    def end(self) -> None:
        """Show what was held back."""
        if piece := self._piece():
            self._show(piece)
        self._known, self._held = [], []

    def _piece(self) -> str:
        before = self._tokenizer.decode(self._known)
        return self._tokenizer.decode([*self._known, *self._held])[len(before) :]
