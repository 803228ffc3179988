"""Read the manifests of published traces in `data/manifests`: files, addresses, sizes and checksums."""

import tomllib
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from pipelines.errors import BadUsage, FetchError

__all__ = ["how_to_get", "publication"]

MANIFESTS = Path(__file__).resolve().parents[2] / "data" / "manifests"

# A name starts with a letter or a digit, which excludes `..`, hidden files and absolute paths.
_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"
Name = Annotated[str, StringConstraints(pattern=rf"^{_NAME}$")]
RelativePath = Annotated[str, StringConstraints(pattern=rf"^{_NAME}(/{_NAME})*$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
HttpsAddress = Annotated[str, StringConstraints(pattern=r"^https://[^\s/]+/\S*$")]
Text = Annotated[str, StringConstraints(min_length=1)]
Bytes = Annotated[int, Field(ge=0)]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Member(_Record):
    """One wanted file in an archive, matched by the end of its path."""

    path: RelativePath
    size_bytes: Bytes | None = None
    sha256: Sha256 | None = None


class Unpacking(_Record):
    """The wanted members of an archive, their target folder, and the maximum size of the unpacked archive."""

    max_bytes: Bytes
    members: Annotated[tuple[Member, ...], Field(min_length=1)]
    into: RelativePath | None = None


class PublishedFile(_Record):
    """One file of a trace, with an exact or a maximum size; only with an exact size the digest may be missing."""

    name: RelativePath
    url: HttpsAddress
    sha256: Sha256 | None = None
    size_bytes: Bytes | None = None
    max_bytes: Bytes | None = None
    unpack: Unpacking | None = None

    @property
    def limit_bytes(self) -> int:
        """Return the maximum number of bytes; a larger download is refused."""
        return next(bound for bound in (self.size_bytes, self.max_bytes) if bound is not None)

    @model_validator(mode="after")
    def _has_one_bound(self) -> Self:
        if (self.size_bytes is None) == (self.max_bytes is None):
            raise ValueError(f"{self.name} needs either size_bytes or max_bytes")
        if self.sha256 is None and self.size_bytes is None:
            raise ValueError(f"{self.name} needs sha256 or size_bytes")
        return self


class Publication(_Record):
    """A published trace: publisher, licence, citation, files, and the shell command that uses them."""

    name: Name
    title: Text
    publisher: Text
    licence: Text
    homepage: HttpsAddress
    citation: Text
    next: Text
    files: Annotated[tuple[PublishedFile, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        names = [file.name for file in self.files]
        if len(set(names)) < len(names):
            raise ValueError(f"file names repeat: {sorted(name for name in set(names) if names.count(name) > 1)}")
        return self


def published_names() -> list[str]:
    """Return the names of the traces that can be fetched."""
    if not MANIFESTS.is_dir():
        raise FetchError(
            f"found no folder {MANIFESTS}, expected the manifests of the published traces there: "
            "run taut from a clone of the project, installed with `pip install --editable .`"
        )
    return sorted(path.stem for path in MANIFESTS.glob("*.toml"))


def how_to_get(trace: str) -> str:
    """Return in words the one shell command that puts a trace into the lake, or that there is none."""
    if trace in published_names():
        return f"get it with `taut fetch {trace} && {publication(trace).next.format(to=f'data/raw/{trace}')}`"
    if trace == "pai-synth":
        return "get it with `taut synth pai && taut ingest pai --from data/raw/pai-synth --as pai-synth`"
    return f"{trace} is not a published trace, so no command gets it (docs/results.md)"


def publication(name: str) -> Publication:
    """Return the published trace called `name`."""
    names = published_names()
    if name not in names:
        raise BadUsage(f"found no published trace {name!r}, expected one of: {', '.join(names)}")
    return read_publication(MANIFESTS / f"{name}.toml")


def read_publication(path: Path) -> Publication:
    """Read and check one manifest."""
    try:
        return Publication.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise FetchError(f"cannot read the manifest {path}: {error}") from error
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, fault['loc'])) or 'file'}: {fault['msg']}" for fault in error.errors())
        raise FetchError(
            f"{path} is not a valid manifest (the top of the file describes the format): {faults}"
        ) from error
