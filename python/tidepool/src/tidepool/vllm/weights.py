"""Tells the weights of one model from those of another, wherever they lie.

Folders of one name may hold different models, and one model may lie under many names, so a path says nothing. The
identity covers every tensor's name, type, shape and content, but not how tensors are spread over files. Of large models
only a part of every tensor is read: two models that differ in a few values of a large tensor need ``weights_check =
"full"``.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import InvalidError

#: Models up to this size are always read completely.
_SMALL = 256 << 20
#: Bytes read of a large tensor at each of some places.
_SAMPLE = 4096
#: Places read in a whole model, about.
_PLACES = 50_000
#: The largest valid header.
_LARGEST_HEADER = 256 << 20
_OTHER = (".bin", ".pt", ".pth", ".gguf")


def weights_identity(model_config: Any, load_config: Any, *, check: str, name: str) -> str:
    """The identity of the weights: a short string that is equal exactly for equal weights."""
    if name:
        return f"named {name}"
    if load_config.load_format == "dummy":
        return f"dummy, seed {model_config.seed}"
    return digest_of(_folder(model_config, load_config), full=check == "full")


def drafts_identity(vllm_config: Any, *, check: str, name: str) -> str:
    """As :func:`weights_identity`, for a draft model, whose KV is in the blocks too."""
    speculative, model = vllm_config.speculative_config, vllm_config.model_config
    draft = getattr(speculative, "draft_model_config", None)
    if draft is None or draft.model == model.model:
        return "no weights of its own"
    return f"{speculative.method}, {weights_identity(draft, vllm_config.load_config, check=check, name=name)}"


def digest_of(place: Path, *, full: bool = False) -> str:
    """The digest of the weights in a folder, or of one file."""
    files = sorted(place.iterdir()) if place.is_dir() else [place]
    tensors = [path for path in files if path.suffix == ".safetensors"]
    others = [path for path in files if path.suffix in _OTHER]
    if not tensors and not others:
        raise InvalidError(f"{place} has no weights that could be told apart: set weights_id to a name for them")
    if tensors:
        full = full or sum(path.stat().st_size for path in tensors) <= _SMALL
        return _of_tensors(tensors, full)
    full = full or sum(path.stat().st_size for path in others) <= _SMALL
    return _of_files(others, full)


def _folder(model_config: Any, load_config: Any) -> Path:
    named = Path(model_config.model)
    if named.exists():
        return named
    try:
        from huggingface_hub import snapshot_download

        found = snapshot_download(
            model_config.model,
            revision=model_config.revision,
            cache_dir=load_config.download_dir,
            local_files_only=True,
        )
    except Exception as error:
        raise InvalidError(
            f"the weights of {model_config.model} were not found on this host ({error}): "
            "set weights_id to a name for them"
        ) from error
    return Path(found)


def _of_tensors(paths: list[Path], full: bool) -> str:
    tensors: dict[str, tuple[Path, Any, int]] = {}
    for path in paths:
        with path.open("rb") as source:
            start, header = _header(path, source)
        tensors.update({name: (path, entry, start) for name, entry in header.items() if name != "__metadata__"})
    places = max(2, min(64, _PLACES // max(1, len(tensors))))
    digest = hashlib.blake2b(digest_size=16)
    opened: dict[Path, BinaryIO] = {}
    try:
        for name, (path, entry, start) in sorted(tensors.items()):
            digest.update(json.dumps([name, entry["dtype"], entry["shape"]]).encode())
            file = opened.get(path) or opened.setdefault(path, path.open("rb"))
            begin, end = entry["data_offsets"]
            _add(digest, file, start + begin, end - begin, None if full else places)
    finally:
        for file in opened.values():
            file.close()
    return f"{len(tensors)} tensors {digest.hexdigest()}"


def _header(path: Path, file: BinaryIO) -> tuple[int, dict[str, Any]]:
    """The start of a file's tensors, and their descriptions."""
    length = int.from_bytes(file.read(8), "little")
    if length > min(_LARGEST_HEADER, path.stat().st_size):
        raise InvalidError(f"{path} is no safetensors file: its header would have {length} bytes")
    header = json.loads(file.read(length))
    if not isinstance(header, dict):
        raise InvalidError(f"{path} is no safetensors file: its header is no object")
    return 8 + length, header


def _of_files(paths: list[Path], full: bool) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for path in paths:
        size = path.stat().st_size
        digest.update(size.to_bytes(8, "little"))
        with path.open("rb") as file:
            _add(digest, file, 0, size, None if full else _PLACES // len(paths) // 8)
    return f"{len(paths)} files {digest.hexdigest()}"


def _add(digest: Any, file: BinaryIO, start: int, length: int, places: int | None) -> None:
    for offset, size in _samples(length, places):
        digest.update(os.pread(file.fileno(), size, start + offset))


def _samples(length: int, places: int | None) -> Iterator[tuple[int, int]]:
    """All of ``length`` bytes in steps, or samples at so many places, spread evenly from the first byte to the last."""
    if places is None or length <= places * _SAMPLE:
        step = 1 << 20
        yield from ((offset, min(step, length - offset)) for offset in range(0, length, step))
        return
    last = length - _SAMPLE
    yield from ((last * place // (places - 1), _SAMPLE) for place in range(places))
