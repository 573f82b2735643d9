"""The README.md of an export: what the model is and how it came about.

Everything in it is from the state, the record of the model and the node's log; nothing is made up.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime

from neuroswarm.export.source import Source
from neuroswarm.export.training_log import TrainingLog
from neuroswarm.values import counted

_USE = {
    "hf": """\
```python
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained(".", local_files_only=True)
```
""",
    "peft": """\
```python
from peft import PeftModel

model = PeftModel.from_pretrained(base, ".")  # `base`: the model below the adapters
```
""",
    "safetensors": """\
```python
from safetensors.torch import load_file

tensors = load_file("model.safetensors")
```
""",
}
_GENERATE = """\
```
neuroswarm generate . --prompt "Once"
```
"""


def render_card(source: Source, log: TrainingLog, form: str, *, is_merged: bool = False) -> str:
    """The card as Markdown, with the header that model hubs read.

    Args:
        source: The state.
        log: What the node's log tells.
        form: Name of the form.
        is_merged: Whether low-rank adapters were added into their base.
    """
    is_built_in = form == "hf" and ":" not in source.record.model and source.record.model
    use = _GENERATE if is_built_in else _USE.get(form, "")
    lines = [
        *_header(source, form, is_merged=is_merged),
        *_model(source),
        *_swarm(source, log),
        *_rules(source),
    ]
    return "\n".join(lines) + (f"\n## Use\n\n{use}" if use else "")


def _header(source: Source, form: str, *, is_merged: bool) -> Iterator[str]:
    is_pretrained = form == "hf" and (":" in source.record.model or not source.record.model)
    yield "---"
    library = "transformers" if is_pretrained else "neuroswarm"
    yield f"library_name: {'peft' if form == 'peft' else library}"
    yield "tags:\n- neuroswarm\n- decentralized-training"
    yield "---\n"
    yield f"# {source.record.class_name}, round {source.state.round}\n"
    agreed = "the outer state that the nodes agreed on, bit for bit"
    what = f"The base with the adapters added; those are {agreed}"
    yield (
        "Trained by a swarm of nodes without a coordinator. "
        f"{what if is_merged else f'The parameters are {agreed}'}.\n"
    )


def _model(source: Source) -> Iterator[str]:
    record, state = source.record, source.state
    names = {"": "unknown", "bytes": "bytes"}
    yield "| | |\n|---|---|"
    yield f"| model | {f'`{record.model}`' if record.model else 'handed over from Python'} |"
    yield f"| parameters that were trained | {state.num_params:,} |"
    if record.lora is not None:
        rank, has_a = record.lora.settings["rank"], record.lora.settings["train_a"]
        a = "trained" if has_a else f"frozen, from seed {record.lora.seed}"
        yield f"| low-rank adapters | rank {rank}, alpha {record.lora.alpha:g}, A {a} |"
    dtypes = sorted({part.dtype for fragment in record.fragments for part in fragment.parameters})
    yield f"| dtypes | {', '.join(dtypes)} |"
    yield f"| vocabulary | {record.vocab_size} tokens |"
    yield f"| tokenizer | {names.get(record.tokenizer, f'SHA-256 `{record.tokenizer}`')} |"
    yield f"| round | {state.round} |"
    yield f"| digest of the state | `{state.digest.hex()}` |"
    yield f"| architecture hash | `{record.architecture}` |"
    if record.base:
        yield f"| hash of the frozen parameters | `{record.base}` |"
    yield ""


def _swarm(source: Source, log: TrainingLog) -> Iterator[str]:
    yield "## Training\n"
    if not log.is_known:
        yield "The log of the node that this was exported from does not tell of it.\n"
        return
    yield f"As the node `{source.meta.get('node_id', 'unknown')}` logged it:\n"
    began, ended = _show_time(log.began_at), _show_time(log.ended_at)
    yield (
        f"- {counted(log.num_rounds, 'commit')}, states of rounds {log.first_round} to "
        f"{log.last_round}, from {began} to {ended}"
    )
    if log.num_empty:
        yield f"- {counted(log.num_empty, 'round')} without any contribution"
    if log.num_tokens is not None:
        yield f"- tokens that this node trained on: {log.num_tokens:,}"
    for what, loss in (("first", log.first_loss), ("last", log.last_loss)):
        if loss is not None:
            yield f"- {what} held-out loss: {loss[1]:.4f} nats a token, round {loss[0]}"
    yield "\n| node | agreed contributions |\n|---|---|"
    for node, count in log.contributions.items():
        yield f"| `{node}` | {count} |"
    yield ""


def _rules(source: Source) -> Iterator[str]:
    rules = json.dumps(json.loads(source.state.rules.to_bytes()), indent=1, sort_keys=True)
    yield f"## Rules of the swarm\n\n```json\n{rules}\n```"


def _show_time(at: float | None) -> str:
    if at is None:
        return "an unknown time"
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")
