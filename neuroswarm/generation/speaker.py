"""Models that continue a row of tokens, each in the way that suits it.

Knows nothing of text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from neuroswarm.errors import ComputeError
from neuroswarm.generation.sampling import Sampling, choose
from neuroswarm.models.hugging_face import quiet
from neuroswarm.models.rwkv7 import Rwkv7

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Hear = Callable[[int], None]
"""Told every token as soon as it is chosen."""

Speaker = Callable[[Sequence[int], Sampling, Hear], None]
"""Continues a prompt of at least one token."""


def speak_in_windows(model: nn.Module, context: int) -> Speaker:
    """Of any model with `forward(inputs)` -> logits: reads the last tokens anew for each token.

    Args:
        model: In evaluation mode.
        context: Tokens that it reads at most.
    """

    @torch.no_grad()
    def speak(prompt: Sequence[int], sampling: Sampling, hear: Hear) -> None:
        generator = torch.Generator().manual_seed(sampling.seed)
        tokens = list(prompt)
        for _ in range(sampling.max_tokens):
            logits_V = _last_logits(model, model(torch.tensor([tokens[-context:]])))
            tokens.append(choose(logits_V, sampling, generator))
            hear(tokens[-1])

    return speak


def speak_recurrently(model: Rwkv7) -> Speaker:
    """Of RWKV-7: the prompt at once, then token by token from the state, each at the same cost."""

    @torch.no_grad()
    def speak(prompt: Sequence[int], sampling: Sampling, hear: Hear) -> None:
        generator = torch.Generator().manual_seed(sampling.seed)
        logits_BTV, state = model.read(torch.tensor([list(prompt)]))
        for index in range(sampling.max_tokens):
            token = choose(logits_BTV[0, -1], sampling, generator)
            hear(token)
            if index + 1 < sampling.max_tokens:
                logits_BTV, state = model.read(torch.tensor([[token]]), state)

    return speak


def speak_by_library(model: PreTrainedModel, context: int | None) -> Speaker:
    """Of Hugging Face models: their own `generate`, with its cache and its end of text.

    Args:
        model: In evaluation mode.
        context: Tokens that prompt and answer may have together; the beginning of a longer prompt
            is not read, and the answer ends there. None: any number.
    """

    def speak(prompt: Sequence[int], sampling: Sampling, hear: Hear) -> None:
        num_new = sampling.max_tokens
        if context is not None:
            prompt = prompt[-max(1, context - num_new) :]
            num_new = min(num_new, context - len(prompt))
        inputs = torch.tensor([list(prompt)])
        chosen: dict[str, Any] = {"do_sample": False}
        if sampling.temperature:
            chosen = {"do_sample": True, "temperature": sampling.temperature}
            chosen["top_k"] = sampling.top_k
        with quiet(), torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(sampling.seed)
            model.generate(  # type: ignore[operator]
                inputs,
                attention_mask=torch.ones_like(inputs),
                max_new_tokens=num_new,
                pad_token_id=0,  # nothing is padded; unset, the library gives advice
                streamer=_Listener(hear),
                **chosen,
            )

    return speak


class _Listener:
    """What `generate` tells of its tokens: first the prompt, then one after the other."""

    def __init__(self, hear: Hear) -> None:
        self._hear = hear
        self._has_prompt = False

    def put(self, tokens: Tensor) -> None:
        if not self._has_prompt:
            self._has_prompt = True
            return
        for token in tokens.flatten().tolist():
            self._hear(token)

    def end(self) -> None:
        """Nothing is left to say."""


def _last_logits(model: nn.Module, result: object) -> Tensor:
    logits = getattr(result, "logits", result)
    if not isinstance(logits, Tensor) or logits.dim() != 3:
        found = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ComputeError(
            f"{type(model).__name__} returned {found} without targets (needs logits [B, T, V]): "
            "it cannot be asked to go on"
        )
    last: Tensor = logits[0, -1]
    return last
